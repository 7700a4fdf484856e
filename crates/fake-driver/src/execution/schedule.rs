//! The work that was given to streams and has not run.
//!
//! Every operation has a number and the numbers of those it has to follow: the one before it in its stream, those
//! behind the events that the stream waits for, and for the legacy stream those of all blocking streams. Nothing else
//! orders two operations. A synchronisation runs what it needs and no more, and of what is ready always the youngest:
//! whatever two streams left unordered runs in the order that nobody expected.
//!
//! An operation that uses memory allocated in stream order must follow the allocation, and a free must follow every
//! use. That is checked when the operation is given, exactly, and reported when it runs.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use cudarc::driver::sys::CUresult;

use crate::entry::{Driver, Outcome};
use crate::execution::{Action, Recorded};

#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) device: usize,
    /// The number of its stream, for reports.
    pub(crate) stream: u64,
    pub(crate) after: Vec<u64>,
    pub(crate) action: Action,
    /// A thread is inside its host function.
    running: bool,
    /// What is wrong with its order; reported when it runs.
    fault: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Schedule {
    pending: BTreeMap<u64, Operation>,
    last: u64,
    /// Advances with every operation, in nanoseconds.
    pub(crate) clock: u64,
}

impl Schedule {
    pub(crate) fn is_pending(&self, operation: u64) -> bool {
        self.pending.contains_key(&operation)
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Everything given to a device.
    pub(crate) fn of_device(&self, device: usize) -> Vec<u64> {
        self.pending.iter().filter(|(_, operation)| operation.device == device).map(|(&id, _)| id).collect()
    }

    pub(crate) fn end_context(&mut self, device: usize) {
        self.pending.retain(|_, operation| operation.device != device);
    }

    /// The pending operations among some and all that they follow.
    fn closure(&self, of: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        let mut open: Vec<u64> = of.into_iter().collect();
        while let Some(id) = open.pop() {
            if let Some(operation) = self.pending.get(&id)
                && found.insert(id)
            {
                open.extend(&operation.after);
            }
        }
        found
    }
}

impl Driver {
    /// Gives an operation to the schedule, past any stream.
    pub(crate) fn enqueue(&mut self, device: usize, stream: u64, after: Vec<u64>, action: Action) -> u64 {
        let mut after = after;
        if let Action::WaitEvent(event) = &action {
            after.extend(self.events.get(*event).ok().and_then(super::event::Event::operation));
        }
        after.retain(|&id| self.schedule.is_pending(id));
        after.sort_unstable();
        after.dedup();
        let fault = self.lifetime_fault(&action, &after);
        self.schedule.last += 1;
        let id = self.schedule.last;
        match &action {
            Action::RecordEvent(event) => {
                if let Ok(event) = self.events.get_mut(*event) {
                    event.recorded = Recorded::By(id);
                    event.time = None;
                }
            }
            Action::Allocate(base) => self.memory.allocation_queued(*base, id),
            Action::Free(base) => self.memory.free_queued(*base, id),
            Action::Host { .. } if self.config.lazy => self.run_later(id),
            _ => {}
        }
        let operation = Operation { device, stream, after, action, running: false, fault };
        self.schedule.pending.insert(id, operation);
        if !self.config.lazy {
            self.drain([id]);
        }
        id
    }

    /// A callback may be all that somebody waits for, so it cannot wait for ever.
    fn run_later(&self, id: u64) {
        let patience = self.config.patience;
        std::thread::spawn(move || {
            std::thread::sleep(patience);
            Driver::lock().drain([id]);
        });
    }

    fn lifetime_fault(&self, action: &Action, after: &[u64]) -> Option<String> {
        if let Action::Free(base) = action {
            let before = self.schedule.closure(after.iter().copied());
            let (&id, user) = self.schedule.pending.iter().find(|(id, operation)| {
                !before.contains(id)
                    && operation.action.touches().any(|at| self.memory.base_of(at) == Some(*base))
            })?;
            let (use_, stream) = (user.action.name(), user.stream);
            return Some(format!(
                "{base:#x} is freed without following operation {id} ({use_} in stream {stream}), which uses it"
            ));
        }
        action.touches().find_map(|at| {
            let range = self.memory.range_of(at)?;
            if let Some(free) = range.free {
                return Some(format!("{at:#x} is used by work given after its free (operation {free})"));
            }
            let allocation = range.allocation.filter(|&id| self.schedule.is_pending(id))?;
            let ordered = self.schedule.closure(after.iter().copied()).contains(&allocation);
            (!ordered)
                .then(|| format!("{at:#x} is used without following its allocation (operation {allocation})"))
        })
    }

    /// Runs operations, and all that they have to follow.
    pub(crate) fn drain(&mut self, goals: impl IntoIterator<Item = u64>) {
        let goals: Vec<u64> = goals.into_iter().collect();
        loop {
            let needed = self.schedule.closure(goals.iter().copied());
            if needed.is_empty() {
                return;
            }
            let mut waits: BTreeMap<u64, usize> = BTreeMap::new();
            let mut followers: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            for &id in &needed {
                let before = self.schedule.pending[&id].after.iter().filter(|&id| needed.contains(id));
                waits.insert(id, before.clone().count());
                before.for_each(|&earlier| followers.entry(earlier).or_default().push(id));
            }
            let mut ready: BinaryHeap<u64> = needed.iter().copied().filter(|id| waits[id] == 0).collect();
            while let Some(id) = ready.pop() {
                if self.schedule.pending.get(&id).is_some_and(|operation| operation.running) {
                    continue;
                }
                self.run(id);
                for follower in followers.remove(&id).unwrap_or_default() {
                    let left = waits.entry(follower).or_default();
                    *left -= 1;
                    if *left == 0 {
                        ready.push(follower);
                    }
                }
            }
            if goals.iter().any(|&id| self.schedule.is_pending(id)) {
                self.wait();
            }
        }
    }

    /// Runs one operation, if no other thread has done so meanwhile.
    fn run(&mut self, id: u64) {
        let Some(device) = self.schedule.pending.get(&id).map(|operation| operation.device) else { return };
        let lost = self.devices[device].sticky.is_some();
        let Some(operation) = self.schedule.pending.get_mut(&id) else { return };
        if let Action::Host { function: Some(function), data } = operation.action
            && !lost
        {
            operation.running = true;
            // SAFETY: the caller promised that the function can be called with its data when the stream gets here.
            self.unlocked(|| unsafe { function(data as *mut std::ffi::c_void) });
            self.schedule.pending.remove(&id);
            self.schedule.clock += 1_000;
            return;
        }
        let Some(operation) = self.schedule.pending.remove(&id) else { return };
        self.schedule.clock += 1_000;
        if lost {
            return;
        }
        let outcome = operation.fault.clone().map_or_else(|| self.perform(id, &operation), Err);
        if let Err(reason) = outcome {
            let name = operation.action.name();
            let report = format!("operation {id}, {name} in stream {}: {reason}", operation.stream);
            self.record.faults.push(report);
            self.devices[device].sticky = Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        }
    }

    /// Runs everything that was given to a device.
    pub(crate) fn drain_device(&mut self, device: usize) {
        let all = self.schedule.of_device(device);
        self.drain(all);
    }

    /// For queries: an answer, and progress, so that polling ends.
    pub(crate) fn poll(&mut self, device: usize, goal: Option<u64>) -> Outcome {
        match goal.filter(|&id| self.schedule.is_pending(id)) {
            None => self.not_lost(device),
            Some(id) => {
                self.drain([id]);
                Err(CUresult::CUDA_ERROR_NOT_READY)
            }
        }
    }
}
