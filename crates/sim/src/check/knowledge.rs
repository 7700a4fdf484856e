//! What has happened before a point of the execution, as a vector clock in two planes.
//!
//! A slot's 32 lane clocks are one number as long as they agree. A plane is therefore a dense array with the *least*
//! clock of every slot (one comparison answers nearly every question, and joining is a vectorised maximum) and a short
//! sorted list with the slots whose lanes differ.
//!
//! What is known of other clusters hangs in shared pieces: whole maps, chunks of 32 clusters and single clusters are
//! reference counted, and joining skips whatever both sides share. A chain of a thousand blocks that each learn from their
//! predecessor costs a few chunks a block, not a thousand clocks.

use std::ops::Range;
use std::sync::Arc;

use super::clock::Epoch;

type LaneClocks = [u32; 32];

/// One clock for each lane of each slot of a cluster.
///
/// `least` reaches to the highest slot ever learnt and `lanes` holds exactly the slots whose lanes differ, so equal planes
/// have equal representations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Plane {
    least: Vec<u32>,
    lanes: Vec<(u16, Arc<LaneClocks>)>,
}

impl Plane {
    fn least(&self, slot: u16) -> u32 {
        self.least.get(usize::from(slot)).copied().unwrap_or(0)
    }

    fn find(&self, slot: u16) -> Result<usize, usize> {
        self.lanes.binary_search_by_key(&slot, |(slot, _)| *slot)
    }

    /// Those of `lanes` whose `clock` is not reached here.
    #[inline(always)]
    fn unknown(&self, slot: u16, lanes: u32, clock: u32) -> u32 {
        if clock <= self.least(slot) {
            0
        } else if self.lanes.is_empty() {
            lanes
        } else {
            self.unknown_by_lane(slot, lanes, clock)
        }
    }

    fn unknown_by_lane(&self, slot: u16, lanes: u32, clock: u32) -> u32 {
        let Ok(at) = self.find(slot) else { return lanes };
        let reached =
            self.lanes[at].1.iter().rev().fold(0, |mask, &known| mask << 1 | u32::from(clock <= known));
        lanes & !reached
    }

    fn learn(&mut self, slot: u16, lanes: u32, clock: u32) {
        if lanes == 0 || clock <= self.least(slot) {
            return;
        }
        let index = usize::from(slot);
        if self.least.len() <= index {
            self.least.resize(index + 1, 0);
        }
        let at = match self.find(slot) {
            Err(_) if lanes == u32::MAX => {
                self.least[index] = clock;
                return;
            }
            Err(at) => {
                self.lanes.insert(at, (slot, Arc::new([self.least[index]; 32])));
                at
            }
            Ok(at) => at,
        };
        for (lane, known) in Arc::make_mut(&mut self.lanes[at].1).iter_mut().enumerate() {
            if lanes >> lane & 1 == 1 {
                *known = clock.max(*known);
            }
        }
        self.settle(at);
    }

    /// Restores the representation of the slot at `at` after its lanes changed; true if it is still in the list.
    fn settle(&mut self, at: usize) -> bool {
        let (slot, clocks) = &self.lanes[at];
        let (least, most) = clocks.iter().fold((u32::MAX, 0), |(low, high), &c| (low.min(c), high.max(c)));
        self.least[usize::from(*slot)] = least;
        if least == most {
            self.lanes.remove(at);
        }
        least != most
    }

    fn includes(&self, other: &Plane) -> bool {
        let shared = self.least.len().min(other.least.len());
        // A lane of `other` may be ahead of its slot's least clock; those slots are looked at lane by lane.
        self.least.iter().zip(&other.least).fold(true, |fine, (mine, theirs)| fine & (theirs <= mine))
            && other.least[shared..].iter().all(|&clock| clock == 0)
            && other.lanes.iter().all(|(slot, theirs)| match self.find(*slot) {
                Ok(at) => self.lanes[at].1.iter().zip(theirs.iter()).all(|(mine, theirs)| theirs <= mine),
                Err(_) => theirs.iter().all(|&clock| clock <= self.least(*slot)),
            })
    }

    fn join(&mut self, other: &Plane) {
        if self.least.len() < other.least.len() {
            self.least.resize(other.least.len(), 0);
        }
        for (slot, theirs) in &other.lanes {
            if let Err(at) = self.find(*slot) {
                let own = self.least(*slot);
                // Their least clock is below every lane's, so the loop below has nothing left to do here.
                self.lanes.insert(at, (*slot, Arc::new(theirs.map(|clock| clock.max(own)))));
            } else if let Ok(at) = self.find(*slot) {
                let mine = Arc::make_mut(&mut self.lanes[at].1);
                mine.iter_mut().zip(theirs.iter()).for_each(|(mine, &theirs)| *mine = theirs.max(*mine));
            }
        }
        for (mine, &theirs) in self.least.iter_mut().zip(&other.least) {
            *mine = theirs.max(*mine);
        }
        let mut at = 0;
        while at < self.lanes.len() {
            let (slot, clocks) = &mut self.lanes[at];
            let floor = other.least(*slot);
            if clocks.iter().any(|&clock| clock < floor) {
                Arc::make_mut(clocks).iter_mut().for_each(|clock| *clock = floor.max(*clock));
            }
            at += usize::from(self.settle(at));
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Planes {
    ordered: Plane,
    proxied: Plane,
}

impl Planes {
    fn includes(&self, other: &Planes) -> bool {
        self.ordered.includes(&other.ordered) && self.proxied.includes(&other.proxied)
    }
}

/// Raises `mine` to at least `theirs`, sharing instead of copying where one includes the other.
fn join_shared(mine: &mut Arc<Planes>, theirs: &Arc<Planes>) {
    if Arc::ptr_eq(mine, theirs) || mine.includes(theirs) {
        return;
    }
    if theirs.includes(mine) {
        *mine = Arc::clone(theirs);
    } else {
        let mine = Arc::make_mut(mine);
        mine.ordered.join(&theirs.ordered);
        mine.proxied.join(&theirs.proxied);
    }
}

const CHUNK: u32 = 32;
type Chunk = [Option<Arc<Planes>>; CHUNK as usize];

/// What has happened before some point: a clock for each lane of each slot of the own cluster, and for other clusters what
/// was learnt of them.
///
/// There are two planes: *ordered*, and *proxied* (ordered through a proxy fence, so that the async proxy may rely on it).
/// Proxied never exceeds ordered. Real clocks start at 1; clock 0 is known to everybody.
///
/// ```
/// use tilewright_sim::check::{Agent, Epoch, Knowledge};
///
/// let mut know = Knowledge::new(0);
/// know.learn(3, u32::MAX, 5, false);
/// let epoch = Epoch { agent: Agent { cluster: 0, slot: 3, block: 0, lane: 9 }, clock: 5 };
/// assert!(know.knows(epoch) && !know.knows_proxied(epoch));
/// know.proxy_fence();
/// assert!(know.knows_proxied(epoch));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knowledge {
    cluster: u32,
    /// The holder's own accesses up to this clock lie before a proxy fence of its own. Kept apart from the planes because
    /// lanes that share this value know nothing of each other's accesses. Never joined.
    own_fence: u32,
    own: Arc<Planes>,
    /// Sorted by chunk number. May hold a stale entry for the own cluster; only `own` counts.
    foreign: Arc<Vec<(u32, Arc<Chunk>)>>,
}

impl Knowledge {
    /// Knows nothing; for a point in `cluster`.
    #[must_use]
    pub fn new(cluster: u32) -> Self {
        Knowledge { cluster, own_fence: 0, own: Arc::default(), foreign: Arc::default() }
    }

    /// Whether `epoch` lies before this point.
    #[inline]
    #[must_use]
    pub fn knows(&self, epoch: Epoch) -> bool {
        self.unknown(epoch.agent.cluster, epoch.agent.slot, 1 << (epoch.agent.lane & 31), epoch.clock) == 0
    }

    /// Whether `epoch` lies before this point with a proxy fence in between.
    #[inline]
    #[must_use]
    pub fn knows_proxied(&self, epoch: Epoch) -> bool {
        self.unknown_proxied(epoch.agent.cluster, epoch.agent.slot, 1 << (epoch.agent.lane & 31), epoch.clock)
            == 0
    }

    /// Raises the clock of `lanes` of a slot in the own cluster.
    pub fn learn(&mut self, slot: u16, lanes: u32, clock: u32, proxied: bool) {
        if self.unknown(self.cluster, slot, lanes, clock) == 0
            && (!proxied || self.unknown_proxied(self.cluster, slot, lanes, clock) == 0)
        {
            return;
        }
        let own = Arc::make_mut(&mut self.own);
        own.ordered.learn(slot, lanes, clock);
        if proxied {
            own.proxied.learn(slot, lanes, clock);
        }
    }

    /// Pointwise maximum of both planes over all clusters; `other` may belong to another cluster.
    pub fn join(&mut self, other: &Knowledge) {
        if !Arc::ptr_eq(&self.foreign, &other.foreign) {
            if self.foreign.is_empty() {
                self.foreign = Arc::clone(&other.foreign);
                self.adopt_own(other);
            } else {
                self.join_foreign(other);
            }
        }
        self.raise(other.cluster, &other.own);
    }

    /// Everything ordered is now proxied.
    pub fn proxy_fence(&mut self) {
        if self.own.proxied != self.own.ordered {
            let own = Arc::make_mut(&mut self.own);
            own.proxied.clone_from(&own.ordered);
        }
        let fenced = |planes: &Arc<Planes>| planes.proxied == planes.ordered;
        if !self.foreign.iter().flat_map(|(_, chunk)| chunk.iter().flatten()).all(fenced) {
            for (_, chunk) in Arc::make_mut(&mut self.foreign) {
                if !chunk.iter().flatten().all(fenced) {
                    for planes in Arc::make_mut(chunk).iter_mut().flatten().filter(|planes| !fenced(planes)) {
                        let planes = Arc::make_mut(planes);
                        planes.proxied.clone_from(&planes.ordered);
                    }
                }
            }
        }
    }

    /// Whether any clock of these slots of the own cluster is known.
    #[must_use]
    pub fn knows_any_of(&self, slots: Range<u16>) -> bool {
        let plane = &self.own.ordered;
        let end = usize::from(slots.end).min(plane.least.len());
        let start = usize::from(slots.start).min(end);
        plane.least[start..end].iter().any(|&clock| clock > 0)
            || plane.lanes.iter().any(|(slot, _)| slots.contains(slot))
    }

    /// Whether this point knows all that `other` knows.
    #[must_use]
    pub fn includes(&self, other: &Knowledge) -> bool {
        let has = |cluster: u32, theirs: &Arc<Planes>| {
            self.of(cluster).is_some_and(|mine| Arc::ptr_eq(mine, theirs) || mine.includes(theirs))
                || **theirs == Planes::default()
        };
        has(other.cluster, &other.own)
            && (Arc::ptr_eq(&self.foreign, &other.foreign)
                || other.foreign.iter().all(|(number, chunk)| {
                    self.chunk(*number).is_some_and(|mine| Arc::ptr_eq(mine, chunk))
                        || (0..).zip(chunk.iter()).all(|(i, planes)| {
                            // The own cluster's entry in `other` may be stale, never ahead of what `other.own` says.
                            planes.as_ref().is_none_or(|planes| has(number * CHUNK + i, planes))
                        })
                }))
    }

    /// Equal by identity: a cheap test that never errs on the side of equality.
    pub(super) fn same(&self, other: &Knowledge) -> bool {
        self.own_fence == other.own_fence
            && Arc::ptr_eq(&self.own, &other.own)
            && Arc::ptr_eq(&self.foreign, &other.foreign)
    }

    /// Those of `lanes` that had not reached `clock` before this point.
    #[inline(always)]
    pub(super) fn unknown(&self, cluster: u32, slot: u16, lanes: u32, clock: u32) -> u32 {
        if cluster == self.cluster {
            return self.own.ordered.unknown(slot, lanes, clock);
        }
        self.unknown_elsewhere(cluster, slot, lanes, clock)
    }

    fn unknown_elsewhere(&self, cluster: u32, slot: u16, lanes: u32, clock: u32) -> u32 {
        self.of(cluster)
            .map_or_else(|| ignorance(lanes, clock), |planes| planes.ordered.unknown(slot, lanes, clock))
    }

    /// Like [`Self::unknown`], through a proxy fence.
    #[inline]
    pub(super) fn unknown_proxied(&self, cluster: u32, slot: u16, lanes: u32, clock: u32) -> u32 {
        self.of(cluster)
            .map_or_else(|| ignorance(lanes, clock), |planes| planes.proxied.unknown(slot, lanes, clock))
    }

    /// The holder's own accesses up to this clock lie before a proxy fence.
    pub(super) fn own_fence(&self) -> u32 {
        self.own_fence
    }

    pub(super) fn set_own_fence(&mut self, clock: u32) {
        self.own_fence = clock;
    }

    fn chunk(&self, number: u32) -> Option<&Arc<Chunk>> {
        let at = self.foreign.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(&self.foreign[at].1)
    }

    fn of(&self, cluster: u32) -> Option<&Arc<Planes>> {
        if cluster == self.cluster {
            return Some(&self.own);
        }
        self.chunk(cluster / CHUNK)?[(cluster % CHUNK) as usize].as_ref()
    }

    /// Takes over what `other` learnt of this point's own cluster.
    fn adopt_own(&mut self, other: &Knowledge) {
        if other.cluster != self.cluster
            && let Some(theirs) = other.of(self.cluster)
        {
            join_shared(&mut self.own, theirs);
        }
    }

    fn join_foreign(&mut self, other: &Knowledge) {
        for (number, theirs) in other.foreign.iter() {
            match self.foreign.binary_search_by_key(number, |(number, _)| *number) {
                Err(at) => Arc::make_mut(&mut self.foreign).insert(at, (*number, Arc::clone(theirs))),
                Ok(at) if Arc::ptr_eq(&self.foreign[at].1, theirs) => {}
                Ok(_) => {
                    for (i, planes) in (0..).zip(theirs.iter()) {
                        if let Some(planes) = planes {
                            self.raise(number * CHUNK + i, planes);
                        }
                    }
                }
            }
        }
        self.adopt_own(other);
    }

    fn raise(&mut self, cluster: u32, theirs: &Arc<Planes>) {
        if cluster == self.cluster {
            return join_shared(&mut self.own, theirs);
        }
        if self.of(cluster).is_some_and(|mine| Arc::ptr_eq(mine, theirs) || mine.includes(theirs)) {
            return;
        }
        let number = cluster / CHUNK;
        let foreign = Arc::make_mut(&mut self.foreign);
        let at = foreign.binary_search_by_key(&number, |(number, _)| *number).unwrap_or_else(|at| {
            foreign.insert(at, (number, Arc::new([const { None }; CHUNK as usize])));
            at
        });
        match &mut Arc::make_mut(&mut foreign[at].1)[(cluster % CHUNK) as usize] {
            Some(mine) => join_shared(mine, theirs),
            empty => *empty = Some(Arc::clone(theirs)),
        }
    }
}

/// What is unknown of a slot of which nothing is known.
fn ignorance(lanes: u32, clock: u32) -> u32 {
    if clock == 0 { 0 } else { lanes }
}
