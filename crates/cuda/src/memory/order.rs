//! Who used memory last: what makes one stream wait for another, and memory live until nobody uses it.
//!
//! Operations of one stream are in order anyway. When a second stream comes to the same memory, it must wait for those it conflicts
//! with: a reader for the writer, a writer for all. The wait is for everything that the other stream has been given so far, which
//! includes the conflicting operation. So nothing needs to be recorded when an operation is enqueued, and a program whose memory stays
//! on one stream pays one comparison for each argument.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use smallvec::SmallVec;

use crate::context::lock;
use crate::error::CudaError;
use crate::stream::Stream;

/// What an operation does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The streams whose operations on some memory may not be done. Pure bookkeeping, over anything that can be told apart.
#[derive(Clone, Debug)]
pub(crate) struct Uses<S> {
    writer: Option<S>,
    /// Since the write; each of them waits for the writer.
    readers: SmallVec<[S; 2]>,
}

impl<S> Default for Uses<S> {
    fn default() -> Uses<S> {
        Uses { writer: None, readers: SmallVec::new() }
    }
}

impl<S: Clone + PartialEq> Uses<S> {
    /// Those that a new operation of `stream` must wait for.
    pub(crate) fn before(&self, stream: &S, access: Access) -> SmallVec<[S; 2]> {
        let waits_for_writer = match access {
            // It waited when it first read.
            Access::Read => !self.readers.contains(stream),
            Access::Write => true,
        };
        let readers = self.readers.iter().filter(|_| access == Access::Write);
        let writer = self.writer.iter().filter(|_| waits_for_writer);
        let mut before = SmallVec::new();
        for other in writer.chain(readers) {
            if other != stream && !before.contains(other) {
                before.push(other.clone());
            }
        }
        before
    }

    /// The operation has been enqueued, after those that it must wait for.
    pub(crate) fn enter(&mut self, stream: &S, access: Access) {
        match access {
            Access::Read => {
                if !self.readers.contains(stream) {
                    self.readers.push(stream.clone());
                }
            }
            Access::Write => {
                self.writer = Some(stream.clone());
                self.readers.clear();
            }
        }
    }

    /// The one stream that used it, if it was one, and whether it wrote.
    fn only(&self) -> Option<(&S, bool)> {
        let stream = self.writer.as_ref().or(self.readers.first())?;
        let alone = self.readers.iter().all(|reader| reader == stream);
        alone.then_some((stream, self.writer.is_some()))
    }

    /// All streams, once each.
    pub(crate) fn streams(&self) -> SmallVec<[S; 2]> {
        let mut all: SmallVec<[S; 2]> = self.writer.iter().cloned().collect();
        for reader in &self.readers {
            if !all.contains(reader) {
                all.push(reader.clone());
            }
        }
        all
    }
}

/// The order of operations on one piece of memory.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Order {
    /// If one stream alone used the memory: its number, shifted, and a bit that says whether it wrote. Else 0.
    only: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    uses: Uses<Stream>,
    /// Views of the host: so many that read, or -1 for one that writes.
    host: i32,
    /// Whether it went back to the one it was borrowed from.
    revoked: bool,
}

impl Order {
    /// To be called before an operation is enqueued, by those who hold off conflicting operations until it is.
    #[inline]
    pub(crate) fn before(&self, stream: &Stream, access: Access) -> Result<(), CudaError> {
        let known = self.only.load(Ordering::Acquire);
        let enough = match access {
            Access::Read => known >> 1 == stream.id(),
            Access::Write => known == stream.id() << 1 | 1,
        };
        if enough { Ok(()) } else { self.wait(stream, access) }
    }

    #[cold]
    fn wait(&self, stream: &Stream, access: Access) -> Result<(), CudaError> {
        let mut state = lock(&self.state);
        state.expect_not_revoked()?;
        if state.host < 0 || state.host > 0 && access == Access::Write {
            return Err(CudaError::HostBusy { what: "memory that a device operation needs" });
        }
        for other in state.uses.before(stream, access) {
            other.precede(stream.raw())?;
        }
        state.uses.enter(stream, access);
        let only = match state.uses.only() {
            // With a view of the host, everybody must come here and look at it.
            Some((stream, wrote)) if state.host == 0 => stream.id() << 1 | u64::from(wrote),
            _ => 0,
        };
        self.only.store(only, Ordering::Release);
        Ok(())
    }

    /// The streams whose operations may not be done.
    pub(crate) fn streams(&self) -> SmallVec<[Stream; 2]> {
        lock(&self.state).uses.streams()
    }

    /// Waits until the host may look (or write), and keeps conflicting operations away until [`Order::leave_host`].
    pub(crate) fn enter_host(&self, access: Access) -> Result<(), CudaError> {
        let pending = {
            let mut state = lock(&self.state);
            state.expect_not_revoked()?;
            if state.host < 0 || state.host > 0 && access == Access::Write {
                return Err(CudaError::HostBusy { what: "memory that the host wants to use" });
            }
            // First shut the door, then wait for those who are inside.
            state.host = if access == Access::Write { -1 } else { state.host + 1 };
            self.only.store(0, Ordering::Release);
            match access {
                Access::Read => state.uses.writer.iter().cloned().collect(),
                Access::Write => state.uses.streams(),
            }
        };
        pass();
        if let Err(error) = pending.iter().try_for_each(Stream::finish) {
            self.leave_host();
            return Err(error);
        }
        let mut state = lock(&self.state);
        match access {
            // Only readers can have come meanwhile.
            Access::Read => state.uses.writer = None,
            Access::Write => state.uses = Uses::default(),
        }
        Ok(())
    }

    pub(crate) fn leave_host(&self) {
        let mut state = lock(&self.state);
        state.host = if state.host < 0 { 0 } else { state.host - 1 };
    }

    /// Ends all use: operations are refused from now on. Gives those whose operations may not be done.
    pub(crate) fn revoke(&self) -> SmallVec<[Stream; 2]> {
        let users = {
            let mut state = lock(&self.state);
            state.revoked = true;
            self.only.store(0, Ordering::Release);
            state.uses.streams()
        };
        pass();
        users
    }
}

impl State {
    fn expect_not_revoked(&self) -> Result<(), CudaError> {
        if self.revoked { Err(CudaError::Returned) } else { Ok(()) }
    }
}

/// Held between [`Order::before`] and the end of the enqueueing by those whom no borrow of the memory holds off the host: launches of
/// graphs, and of kernels that take tensor maps. Else the host could get its view in between.
pub(crate) fn enqueueing() -> RwLockReadGuard<'static, ()> {
    ENQUEUEING.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for those who are enqueueing right now.
fn pass() {
    drop(ENQUEUEING.write().unwrap_or_else(PoisonError::into_inner));
}

static ENQUEUEING: RwLock<()> = RwLock::new(());

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    fn waits(uses: &mut Uses<u32>, stream: u32, access: Access) -> Vec<u32> {
        let before = uses.before(&stream, access);
        uses.enter(&stream, access);
        before.to_vec()
    }

    #[test]
    fn one_stream_never_waits() {
        let mut uses = Uses::default();
        for access in [Access::Write, Access::Read, Access::Read, Access::Write] {
            assert_eq!(waits(&mut uses, 1, access), [0u32; 0]);
        }
        assert_eq!(uses.only(), Some((&1, true)));
    }

    #[test]
    fn readers_wait_for_the_writer_once_and_a_writer_for_all() {
        let mut uses = Uses::default();
        assert_eq!(waits(&mut uses, 1, Access::Write), [0u32; 0]);
        assert_eq!(waits(&mut uses, 2, Access::Read), [1]);
        assert_eq!(waits(&mut uses, 2, Access::Read), [0u32; 0]);
        assert_eq!(waits(&mut uses, 3, Access::Read), [1]);
        assert_eq!(waits(&mut uses, 1, Access::Read), [0u32; 0]);
        assert_eq!(uses.only(), None);
        assert_eq!(waits(&mut uses, 1, Access::Write), [2, 3]);
        assert_eq!(uses.only(), Some((&1, true)));
        assert_eq!(waits(&mut uses, 2, Access::Write), [1]);
    }

    #[test]
    fn a_write_after_reads_without_a_writer_waits_for_the_readers() {
        let mut uses = Uses::default();
        assert_eq!(waits(&mut uses, 1, Access::Read), [0u32; 0]);
        assert_eq!(uses.only(), Some((&1, false)));
        assert_eq!(waits(&mut uses, 2, Access::Read), [0u32; 0]);
        assert_eq!(waits(&mut uses, 3, Access::Write), [1, 2]);
        assert_eq!(uses.streams().to_vec(), [3]);
    }

    /// Who enqueues without a borrow holds the host off until it has.
    #[test]
    fn a_view_of_the_host_waits_for_those_who_are_enqueueing() {
        let order = Order::default();
        let entered = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let launching = enqueueing();
            scope.spawn(|| {
                order.enter_host(Access::Write).unwrap();
                entered.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(50));
            assert!(!entered.load(Ordering::SeqCst));
            drop(launching);
        });
        assert!(entered.load(Ordering::SeqCst));
        assert!(matches!(order.enter_host(Access::Read), Err(CudaError::HostBusy { .. })));
        order.leave_host();
        order.enter_host(Access::Read).unwrap();
        order.enter_host(Access::Read).unwrap();
        order.leave_host();
        assert!(order.enter_host(Access::Write).is_err(), "one still reads");
        order.leave_host();
        order.enter_host(Access::Write).unwrap();
        order.leave_host();
        assert!(order.revoke().is_empty());
        assert_eq!(order.enter_host(Access::Read), Err(CudaError::Returned));
    }

    /// Against the definition: after any sequence of operations, each pair that conflicts is ordered by program order on one stream or by a
    /// chain of waits. Waiting for a stream means waiting for all that it has been given so far.
    #[test]
    fn every_conflict_is_ordered() {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut random = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        for _ in 0..2000 {
            let mut uses = Uses::default();
            let mut done: Vec<(u32, Access, u64)> = Vec::new();
            // For each stream, the set of operations that its next one comes after.
            let mut after = [0u64; 4];
            for n in 0..12 {
                let stream = u32::try_from(random(4)).unwrap();
                let access = if random(2) == 0 { Access::Read } else { Access::Write };
                for other in waits(&mut uses, stream, access) {
                    after[stream as usize] |= after[other as usize];
                }
                let known = after[stream as usize];
                for (earlier, &(_, with, bit)) in done.iter().enumerate() {
                    let conflict = access == Access::Write || with == Access::Write;
                    assert!(
                        !conflict || known & bit != 0,
                        "operation {n} is not ordered after {earlier}: {done:?}"
                    );
                }
                done.push((stream, access, 1 << n));
                after[stream as usize] |= 1 << n;
            }
        }
    }
}
