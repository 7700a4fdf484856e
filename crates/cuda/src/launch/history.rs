//! The latest launches of a stream, for the message about a fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::LaunchRecord;

/// How many launches are remembered.
const KEPT: usize = 32;

/// Launches that may not have ended, each with its order among those of all streams, and how many more there were.
pub(crate) type Pending = (Vec<(u64, LaunchRecord)>, u64);

/// The latest launches since the stream was last known to be well. Adding one costs a few nanoseconds and no allocation.
#[derive(Debug)]
pub(crate) struct History {
    ring: [Option<Entry>; KEPT],
    /// Launches ever.
    made: u64,
    /// Launches that are known to have ended well.
    done: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    kernel: Arc<str>,
    grid: [u32; 3],
    block: [u32; 3],
    /// Order among all streams.
    at: u64,
}

impl Default for History {
    fn default() -> History {
        History { ring: [const { None }; KEPT], made: 0, done: 0 }
    }
}

impl History {
    #[inline]
    pub(crate) fn push(&mut self, kernel: &Arc<str>, grid: [u32; 3], block: [u32; 3]) {
        static CLOCK: AtomicU64 = AtomicU64::new(0);
        let at = CLOCK.fetch_add(1, Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation, reason = "less than KEPT")]
        let slot = (self.made % KEPT as u64) as usize;
        match &mut self.ring[slot] {
            // The same kernel again and again costs no reference counts.
            Some(entry) if Arc::ptr_eq(&entry.kernel, kernel) => {
                (entry.grid, entry.block, entry.at) = (grid, block, at);
            }
            entry => *entry = Some(Entry { kernel: kernel.clone(), grid, block, at }),
        }
        self.made += 1;
    }

    /// What [`History::forget_until`] takes: everything up to now.
    pub(crate) fn mark(&self) -> u64 {
        self.made
    }

    /// All launches before the mark have ended well.
    pub(crate) fn forget_until(&mut self, mark: u64) {
        self.done = self.done.max(mark);
    }

    /// What may not have ended, with its order among all streams, and how many more there were.
    pub(crate) fn pending(&self, stream: u64) -> Pending {
        let first = self.done.max(self.made.saturating_sub(KEPT as u64));
        #[allow(clippy::cast_possible_truncation, reason = "less than KEPT")]
        let records =
            (first..self.made).filter_map(|n| self.ring[(n % KEPT as u64) as usize].clone()).map(|entry| {
                let Entry { kernel, grid, block, at } = entry;
                (at, LaunchRecord { kernel, grid, block, stream })
            });
        (records.collect(), first - self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_those_that_ended_are_forgotten() {
        let mut history = History::default();
        let names: Vec<Arc<str>> = (0..40).map(|i| format!("k{i}").into()).collect();
        for name in &names {
            history.push(name, [1, 1, 1], [32, 1, 1]);
        }
        let (pending, forgotten) = history.pending(1);
        assert_eq!((pending.len(), forgotten), (32, 8));
        assert_eq!(&*pending[0].1.kernel, "k8");
        let mark = history.mark();
        history.push(&names[0], [2, 1, 1], [32, 1, 1]);
        history.forget_until(mark);
        let (pending, forgotten) = history.pending(1);
        assert_eq!((pending.len(), forgotten), (1, 0));
        assert_eq!((&*pending[0].1.kernel, pending[0].1.grid), ("k0", [2, 1, 1]));
        history.forget_until(history.mark());
        assert_eq!(history.pending(1), (vec![], 0));
    }
}
