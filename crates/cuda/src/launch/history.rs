//! The latest launches of a stream, for the message about a fault.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::context::lock;
use crate::error::LaunchRecord;

/// How many launches are remembered.
const KEPT: usize = 32;

/// Launches that may not have ended, with their order among all streams, and how many more there were.
pub(crate) type Pending = (Vec<(u64, LaunchRecord)>, u64);

/// A name as a number, so that remembering a launch is a handful of plain stores. Equal names have equal numbers; they are never given
/// back, and there are as many as a program has kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name(u32);

#[derive(Default)]
struct Names {
    numbers: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

impl Name {
    pub(crate) fn new(text: &Arc<str>) -> Name {
        let mut names = lock(&NAMES);
        let Names { numbers, texts } = names.get_or_insert_default();
        let next = u32::try_from(texts.len()).unwrap_or(u32::MAX);
        Name(*numbers.entry(text.clone()).or_insert_with(|| {
            texts.push(text.clone());
            next
        }))
    }

    fn text(number: u32) -> Option<Arc<str>> {
        lock(&NAMES).as_ref()?.texts.get(number as usize).cloned()
    }
}

/// The latest launches since the stream was last known to be well. Only one thread at a time adds (who has the stream's turn); others may
/// look meanwhile, and can then see one launch half written, in a message.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Launches ever.
    made: AtomicU64,
    /// Launches that are known to have ended well.
    done: AtomicU64,
    ring: [Slot; KEPT],
}

#[derive(Debug, Default)]
struct Slot {
    name: AtomicU32,
    extents: [AtomicU32; 6],
    /// Order among all streams.
    at: AtomicU64,
}

#[allow(clippy::cast_possible_truncation, reason = "less than KEPT")]
fn slot(number: u64) -> usize {
    (number % KEPT as u64) as usize
}

impl History {
    #[inline]
    pub(crate) fn push(&self, name: Name, grid: [u32; 3], block: [u32; 3]) {
        static CLOCK: AtomicU64 = AtomicU64::new(0);
        let made = self.made.load(Ordering::Relaxed);
        let slot = &self.ring[slot(made)];
        slot.name.store(name.0, Ordering::Relaxed);
        for (to, from) in slot.extents.iter().zip(grid.into_iter().chain(block)) {
            to.store(from, Ordering::Relaxed);
        }
        // Two threads may get the same number: it only sorts a message, and counting without a lock is cheaper.
        let at = CLOCK.load(Ordering::Relaxed);
        CLOCK.store(at + 1, Ordering::Relaxed);
        slot.at.store(at, Ordering::Relaxed);
        self.made.store(made + 1, Ordering::Release);
    }

    /// What [`History::forget_until`] takes: everything up to now.
    pub(crate) fn mark(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// All launches before the mark have ended well.
    pub(crate) fn forget_until(&self, mark: u64) {
        self.done.fetch_max(mark, Ordering::AcqRel);
    }

    /// What may not have ended.
    pub(crate) fn pending(&self, stream: u64) -> Pending {
        let (made, done) = (self.mark(), self.done.load(Ordering::Acquire));
        let first = done.max(made.saturating_sub(KEPT as u64)).min(made);
        let records = (first..made).filter_map(|number| {
            let slot = &self.ring[slot(number)];
            let [gx, gy, gz, bx, by, bz] =
                slot.extents.each_ref().map(|extent| extent.load(Ordering::Relaxed));
            let kernel = Name::text(slot.name.load(Ordering::Relaxed))?;
            let record = LaunchRecord { kernel, grid: [gx, gy, gz], block: [bx, by, bz], stream };
            Some((slot.at.load(Ordering::Relaxed), record))
        });
        (records.collect(), first.saturating_sub(done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_those_that_ended_are_forgotten() {
        let history = History::default();
        let names: Vec<Name> = (0..40).map(|i| Name::new(&format!("k{i}").into())).collect();
        for name in &names {
            history.push(*name, [1, 1, 1], [32, 1, 1]);
        }
        let (pending, forgotten) = history.pending(1);
        assert_eq!((pending.len(), forgotten), (32, 8));
        assert_eq!(&*pending[0].1.kernel, "k8");
        let mark = history.mark();
        history.push(names[0], [2, 1, 1], [32, 1, 1]);
        history.forget_until(mark);
        let (pending, forgotten) = history.pending(1);
        assert_eq!((pending.len(), forgotten), (1, 0));
        assert_eq!((&*pending[0].1.kernel, pending[0].1.grid), ("k0", [2, 1, 1]));
        history.forget_until(history.mark());
        assert_eq!(history.pending(1), (vec![], 0));
    }

    #[test]
    fn equal_names_are_one() {
        let name = |text: &str| Name::new(&text.into());
        assert_eq!(name("a kernel"), name("a kernel"));
        assert_ne!(name("a kernel"), name("another"));
    }
}
