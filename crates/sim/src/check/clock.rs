//! The clocks of warps: who stands where, and what the lanes of a warp know.
//!
//! Every source of events has a *slot* in its cluster: one a warp (its 32 lanes are 32 threads), further ones for
//! asynchronous streams (a warp's `cp.async` groups, bulk groups, a warpgroup's wgmma groups, each mbarrier, whose clock is
//! the phase). Clusters are numbered over the grid.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::knowledge::Knowledge;

/// A thread, or an asynchronous stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Agent {
    /// The cluster, numbered over the grid.
    pub cluster: u32,
    /// The stream inside the cluster.
    pub slot: u16,
    /// The rank of the agent's block in its cluster: what CTA scope asks for.
    pub block: u16,
    /// The lane, below 32; 0 for streams that have no lanes.
    pub lane: u8,
}

/// A moment of an agent: everything it did up to and including `clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch {
    /// Whose clock it is.
    pub agent: Agent,
    /// The clock, from 1.
    pub clock: u32,
}

/// The clocks of one warp: lanes with equal knowledge share it.
///
/// A lane's own earlier accesses need no entry in its knowledge: program order orders them.
///
/// ```
/// use tilewright_sim::check::{Agent, Epoch, WarpClock};
///
/// let (mut a, mut b) = (WarpClock::new(0, 0, u32::MAX), WarpClock::new(0, 1, u32::MAX));
/// let before = Epoch { agent: Agent { cluster: 0, slot: 0, block: 0, lane: 3 }, clock: a.clock() };
/// let message = a.release(1 << 3);
/// b.acquire(1 << 7, &message);
/// assert!(b.view(7).knows(before) && !b.view(8).knows(before));
/// b.sync(u32::MAX);
/// assert!(b.view(8).knows(before) && b.views().count() == 1);
/// ```
#[derive(Clone, Debug)]
pub struct WarpClock {
    cluster: u32,
    slot: u16,
    lanes: u32,
    clock: u32,
    /// Never empty; the masks are disjoint and together `lanes`.
    classes: SmallVec<[(u32, Arc<Knowledge>); 2]>,
}

impl WarpClock {
    /// The warp in `slot` of `cluster` that consists of `lanes`; its lanes know nothing.
    #[must_use]
    pub fn new(cluster: u32, slot: u16, lanes: u32) -> Self {
        WarpClock {
            cluster,
            slot,
            lanes,
            clock: 1,
            classes: smallvec![(lanes, Arc::new(Knowledge::new(cluster)))],
        }
    }

    /// The clock that accesses made now are stamped with.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> u32 {
        self.clock
    }

    /// What a lane knows now; the first lane's knowledge for a lane that is not of this warp.
    #[inline]
    #[must_use]
    pub fn view(&self, lane: u32) -> &Arc<Knowledge> {
        let bit = 1u32 << (lane & 31);
        let class = if self.classes.len() == 1 {
            0
        } else {
            self.classes.iter().position(|(mask, _)| mask & bit != 0).unwrap_or(0)
        };
        &self.classes[class].1
    }

    /// The classes of lanes with equal knowledge.
    pub fn views(&self) -> impl Iterator<Item = (u32, &Arc<Knowledge>)> {
        self.classes.iter().map(|(mask, view)| (*mask, view))
    }

    /// All that these lanes know and did so far, for others to acquire; then the clock ticks.
    pub fn release(&mut self, lanes: u32) -> Arc<Knowledge> {
        let all = self.lanes;
        // Lanes that the warp does not have never do anything: a whole warp counts as 32 lanes, which stays one number.
        let whole = |mask: u32| if mask == all { u32::MAX } else { mask };
        let lanes = lanes & all;
        let mut touched = self.classes.iter().filter(|(mask, _)| mask & lanes != 0);
        let Some((first_mask, first)) = touched.next() else { return Arc::new(Knowledge::new(self.cluster)) };
        let mut told = Knowledge::clone(first);
        told.set_own_fence(0);
        told.learn(self.slot, whole(lanes), self.clock, false);
        told.learn(self.slot, whole(first_mask & lanes), first.own_fence(), true);
        for (mask, view) in touched {
            told.join(view);
            told.learn(self.slot, whole(mask & lanes), view.own_fence(), true);
        }
        self.tick();
        Arc::new(told)
    }

    /// These lanes learn what was released.
    pub fn acquire(&mut self, lanes: u32, from: &Knowledge) {
        self.update(lanes, |view| !view.includes(from), |view| view.join(from));
    }

    /// `bar.warp.sync`: these lanes learn from each other.
    pub fn sync(&mut self, lanes: u32) {
        let lanes = lanes & self.lanes;
        if lanes.count_ones() > 1 {
            let told = self.release(lanes);
            self.acquire(lanes, &told);
        }
    }

    /// These lanes learn that `of_lanes` of `slot` in their cluster have reached `clock`.
    pub fn learn(&mut self, lanes: u32, slot: u16, of_lanes: u32, clock: u32, proxied: bool) {
        let cluster = self.cluster;
        let news = |view: &Knowledge| {
            view.unknown(cluster, slot, of_lanes, clock) != 0
                || proxied && view.unknown_proxied(cluster, slot, of_lanes, clock) != 0
        };
        self.update(lanes, news, |view| view.learn(slot, of_lanes, clock, proxied));
    }

    /// Everything these lanes know or did is now proxied; then the clock ticks.
    pub fn proxy_fence(&mut self, lanes: u32) {
        let clock = self.clock;
        self.update(
            lanes,
            |_| true,
            |view| {
                view.proxy_fence();
                view.set_own_fence(clock);
            },
        );
        self.tick();
    }

    fn tick(&mut self) {
        self.clock = self.clock.saturating_add(1);
    }

    /// Changes the knowledge of `lanes`, splitting classes only where there is something to change.
    fn update(&mut self, lanes: u32, needed: impl Fn(&Knowledge) -> bool, change: impl Fn(&mut Knowledge)) {
        let mut touched = 0;
        for class in 0..self.classes.len() {
            let (mask, view) = &mut self.classes[class];
            let hit = *mask & lanes;
            if hit == 0 || !needed(view) {
                continue;
            }
            touched |= hit;
            if hit == *mask {
                change(Arc::make_mut(view));
            } else {
                let mut changed = Knowledge::clone(view);
                *mask &= !hit;
                change(&mut changed);
                self.classes.push((hit, Arc::new(changed)));
            }
        }
        if self.classes.len() > 1 && touched != 0 {
            self.merge(lanes);
        }
    }

    /// Unites classes that have become equal. Between classes inside `lanes` contents are compared, elsewhere identity.
    fn merge(&mut self, lanes: u32) {
        let mut kept = 0;
        for class in 0..self.classes.len() {
            let (mask, view) = &self.classes[class];
            let equal = self.classes[..kept].iter().position(|(other_mask, other)| {
                Arc::ptr_eq(view, other)
                    || view.same(other)
                    || (mask & lanes != 0 && other_mask & lanes != 0 && view == other)
            });
            match equal {
                Some(other) => self.classes[other].0 |= self.classes[class].0,
                None => {
                    self.classes.swap(kept, class);
                    kept += 1;
                }
            }
        }
        self.classes.truncate(kept);
    }
}
