//! Ordering through memory: strong accesses, fences, and the log of global accesses.
//!
//! The rules are those of the PTX memory model (PTX ISA, "Memory Consistency Model"), as far as a checker needs them:
//!
//! * A *release* is a store or atomic with `.release`, or any strong write behind a fence of the same thread. What the thread knew at
//!   the release, or at the fence, is attached to the location ([`SyncVar`]).
//! * An *acquire* is a load or atomic with `.acquire`, or any strong read before a fence of the same thread. It learns what is attached
//!   to the location it reads.
//! * Both hold only as far as the scopes reach.
//! * Atomics extend a release: what was attached stays attached.
//!
//! One thing is more lenient than the model: an atomic read-modify-write acquires even without a fence behind it. The pattern of the last
//! block, as the CUDA programming guide has it, relies on that.

use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_ptx::Type;

use crate::check::{Epoch, Kind as AccessKind, Knowledge, Proxy, Scope};
use crate::number::Lanes;
use crate::program::{Access, Fence, Order, Space, Strength};

use super::access::{Spaces, low};
use super::cluster::{Cluster, Env, index, rank_of};
use super::exec::{At, bits};
use super::warp::{Held, Warp};
use crate::memory::window;

/// What a strong write has released.
#[derive(Clone, Debug)]
pub(crate) struct SyncVar {
    /// What is known to whoever acquires it.
    pub(crate) know: Arc<Knowledge>,
    /// How far it reaches.
    pub(crate) scope: Scope,
    /// Cluster of the writer.
    pub(crate) cluster: u32,
    /// Block of the writer in its cluster.
    pub(crate) block: u16,
}

impl SyncVar {
    /// The scope that is needed for a thread of a block to see it.
    fn needed(&self, cluster: u32, block: u16) -> Scope {
        if self.cluster != cluster {
            Scope::Gpu
        } else if self.block != block {
            Scope::Cluster
        } else {
            Scope::Cta
        }
    }
}

/// Addresses of the lanes of an access.
#[derive(Clone, Debug)]
pub(crate) enum Addresses {
    /// Of lane `l`: `base + l * stride`, wrapping.
    Strided(u64, u64),
    /// One each.
    Each(Box<Lanes>),
    /// Ranges of a copy: address and bytes.
    Ranges(Box<[(u64, u32)]>),
}

impl Addresses {
    /// The addresses of some lanes, compactly.
    pub(crate) fn new(addresses: &Lanes, lanes: u32) -> Addresses {
        let first = lanes.trailing_zeros().min(31);
        let second = (lanes & (lanes - 1)).trailing_zeros();
        let stride = if second < 32 {
            let apart = u64::from(second - first);
            let distance = addresses[second as usize].wrapping_sub(addresses[first as usize]);
            if apart == 1 { distance } else { return Addresses::Each(Box::new(*addresses)) }
        } else {
            0
        };
        let base = addresses[first as usize].wrapping_sub(stride.wrapping_mul(u64::from(first)));
        let regular = (0..32).all(|lane| {
            lanes >> lane & 1 == 0 || addresses[lane] == base.wrapping_add(stride.wrapping_mul(lane as u64))
        });
        if regular { Addresses::Strided(base, stride) } else { Addresses::Each(Box::new(*addresses)) }
    }

    /// The parts of memory that some lanes touch, one bit each.
    pub(crate) fn parts(&self, lanes: u32) -> u8 {
        match self {
            Addresses::Ranges(ranges) => ranges.iter().fold(0, |parts, &(address, bytes)| {
                let last = address + u64::from(bytes.max(1)) - 1;
                let pages = (last >> PART_SHIFT) - (address >> PART_SHIFT) + 1;
                (0..pages.min(PARTS as u64))
                    .fold(parts, |parts, page| parts | 1 << part_of(address + (page << PART_SHIFT)))
            }),
            _ => bits(lanes).fold(0, |parts, lane| parts | 1 << part_of(self.of(lane))),
        }
    }

    /// The address of a lane.
    #[inline]
    pub(crate) fn of(&self, lane: u32) -> u64 {
        match self {
            Addresses::Strided(base, stride) => base.wrapping_add(stride.wrapping_mul(u64::from(lane))),
            Addresses::Each(each) => each[lane as usize],
            Addresses::Ranges(ranges) => ranges.first().map_or(0, |range| range.0),
        }
    }
}

/// Parts of global memory that the checker works on independently.
pub(crate) const PARTS: usize = 8;
/// Log of the bytes of memory that belong to one part, in turn.
pub(crate) const PART_SHIFT: u32 = 12;

/// The part that an address belongs to.
#[inline]
pub(crate) fn part_of(address: u64) -> usize {
    usize::try_from(address >> PART_SHIFT).unwrap_or(0) % PARTS
}

/// An access to global memory that the checker looks at when the round ends.
pub(crate) struct Logged {
    /// Number of the op.
    pub(crate) op: u32,
    /// Block in the cluster.
    pub(crate) block: usize,
    /// Warp in the block.
    pub(crate) warp: u32,
    /// Which lanes.
    pub(crate) lanes: u32,
    /// Where.
    pub(crate) addresses: Addresses,
    /// The parts of memory it touches, one bit each.
    pub(crate) parts: u8,
    /// Bytes of each lane.
    pub(crate) bytes: u32,
    /// Read, write, atomic.
    pub(crate) kind: AccessKind,
    /// Scope, if it is strong.
    pub(crate) strong: Option<Scope>,
    /// Proxy.
    pub(crate) proxy: Proxy,
    /// What is recorded; the lane is filled in for accesses of threads.
    pub(crate) epoch: Epoch,
    /// Who started it; the lane is filled in.
    pub(crate) issuer: crate::check::Agent,
    /// What the lanes knew.
    pub(crate) views: SmallVec<[(u32, Arc<Knowledge>); 1]>,
}

impl Cluster {
    /// What is attached to a location.
    fn attached(&self, env: &Env<'_>, address: Place) -> Option<SyncVar> {
        match address {
            Place::Global(address) => match self.released.get(&address) {
                Some(var) => var.clone(),
                None => env.sync.get(&address).cloned(),
            },
            Place::Shared(block, offset) => self.blocks.get(block)?.sync.get(&offset).cloned(),
        }
    }

    fn attach(&mut self, address: Place, var: Option<SyncVar>) {
        match address {
            Place::Global(address) => {
                self.released.insert(address, var);
            }
            Place::Shared(block, offset) => {
                let Some(block) = self.blocks.get_mut(block) else { return };
                match var {
                    Some(var) => block.sync.insert(offset, var),
                    None => block.sync.remove(&offset),
                };
            }
        }
    }

    /// A strong load has read: what it learns.
    pub(crate) fn observe(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
    ) {
        if !env.options.check {
            return;
        }
        let acquires = matches!(access.strength.order, Order::Acquire | Order::AcqRel | Order::Sc);
        for (lane, place) in places(access.space, addresses, at.lanes) {
            if let Some(var) = self.attached(env, place) {
                self.receive(warp, at, lane, &var, access.strength.scope, acquires);
            }
        }
    }

    fn receive(&self, warp: &mut Warp, at: At, lane: u32, var: &SyncVar, scope: Scope, acquires: bool) {
        let needed = var.needed(self.id, rank_of(self.blocks[at.block].rank));
        if var.scope < needed || scope < needed {
            return;
        }
        if acquires {
            warp.clock.acquire(1 << lane, &var.know);
        } else {
            warp.seen.push(Held { lanes: 1 << lane, know: var.know.clone(), scope: needed });
            if warp.seen.len() > 256 {
                warp.seen.drain(..128);
            }
        }
    }

    /// A strong store has written: what it releases.
    pub(crate) fn publish(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
    ) {
        self.progress += 1;
        if !env.options.check {
            return;
        }
        for (lane, place) in places(access.space, addresses, at.lanes) {
            let var = self.release(warp, at, lane, access.strength);
            self.attach(place, var);
        }
    }

    /// What a strong write of a lane releases.
    fn release(&self, warp: &mut Warp, at: At, lane: u32, strength: Strength) -> Option<SyncVar> {
        let (cluster, block) = (self.id, rank_of(self.blocks[at.block].rank));
        if matches!(strength.order, Order::Release | Order::AcqRel | Order::Sc) {
            let know = warp.clock.release(1 << lane);
            return Some(SyncVar { know, scope: strength.scope, cluster, block });
        }
        let held = warp.released.iter().rfind(|held| held.lanes >> lane & 1 == 1)?;
        Some(SyncVar { know: held.know.clone(), scope: held.scope.min(strength.scope), cluster, block })
    }

    /// An atomic of a lane: acquires, then releases on top of what was attached.
    pub(crate) fn exchange(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        place: Place,
        strength: Strength,
    ) {
        if !env.options.check {
            return;
        }
        let old = self.attached(env, place);
        if let Some(var) = &old {
            self.receive(warp, at, lane, var, strength.scope, true);
        }
        let new = self.release(warp, at, lane, strength);
        let joined = match (old, new) {
            (old, None) => old,
            (None, new) => new,
            (Some(old), Some(new)) => {
                let mut know = (*new.know).clone();
                know.join(&old.know);
                Some(SyncVar { know: Arc::new(know), scope: new.scope.max(old.scope), ..new })
            }
        };
        self.attach(place, joined);
    }

    /// `fence` and `membar`
    pub(crate) fn fence(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, fence: Fence) {
        if !env.options.check {
            return;
        }
        match fence {
            Fence::Thread(strength) => {
                if strength.order != Order::Release {
                    let mut kept = Vec::new();
                    for held in std::mem::take(&mut warp.seen) {
                        let mine = held.lanes & at.lanes;
                        if mine != 0 && strength.scope >= held.scope {
                            warp.clock.acquire(mine, &held.know);
                        } else {
                            kept.push(held);
                        }
                    }
                    warp.seen = kept;
                }
                if strength.order != Order::Acquire {
                    for old in &mut warp.released {
                        if old.scope <= strength.scope {
                            old.lanes &= !at.lanes;
                        }
                    }
                    warp.released.retain(|held| held.lanes != 0);
                    // A lane releases what it alone knows and did.
                    for lane in bits(at.lanes) {
                        let know = warp.clock.release(1 << lane);
                        warp.released.push(Held { lanes: 1 << lane, know, scope: strength.scope });
                    }
                }
            }
            Fence::ProxyAsync(_) => {
                warp.clock.proxy_fence(at.lanes);
                self.mbarriers_fenced(warp, at);
            }
            Fence::MbarrierInit => self.mbarriers_fenced(warp, at),
            Fence::ProxyTensormap(strength, address) => {
                if let (Order::Acquire, Some(address)) = (strength.order, address) {
                    let addresses = self.addresses(env, warp, at, address, Space::Generic);
                    let access = Access { space: Space::Generic, address, ty: Type::B64, count: 1, strength };
                    self.observe(env, warp, at, &access, &addresses);
                } else {
                    self.fence(env, warp, at, Fence::Thread(strength));
                }
            }
            Fence::ProxyOther => {}
        }
    }

    /// The shared memory of another block is about to be touched: that block must run.
    pub(crate) fn check_peer(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        rank: usize,
        action: &str,
    ) {
        if !env.options.check {
            return;
        }
        let slots = self.slots(index(rank), env);
        let known = warp.clock.view(lane).knows_any_of(slots);
        if self.blocks[rank].live_threads == 0 {
            self.peer_gone(env, warp, at, lane, rank, action);
        } else if !known {
            self.peer_not_started(env, warp, at, lane, rank, action);
        }
    }

    /// Notes that a thread touches the shared memory of another block, which must not exit before it knows of it.
    pub(crate) fn visit(&mut self, env: &Env<'_>, warp: &Warp, at: At, lane: u32, rank: usize) {
        if !env.options.check {
            return;
        }
        let agent = self.agent(at.block, warp.index, lane, env);
        let epoch = Epoch { agent, clock: warp.clock.clock() };
        self.add_visitor(rank, epoch, at.op);
    }

    /// Remembers an access that a block must know of before it exits.
    pub(crate) fn add_visitor(&mut self, rank: usize, epoch: Epoch, op: u32) {
        let visitors = &mut self.blocks[rank].visitors;
        match visitors.iter_mut().find(|(old, _)| old.agent == epoch.agent) {
            Some(old) => *old = (epoch, op),
            None => visitors.push((epoch, op)),
        }
    }
}

/// A location of global or shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Address.
    Global(u64),
    /// Index of the block and offset.
    Shared(usize, u32),
}

/// The locations that the lanes of a strong access touch, as far as others can see them.
fn places(space: Space, addresses: &Lanes, lanes: u32) -> Vec<(u32, Place)> {
    let spaces = Spaces::new(space, addresses, lanes);
    let offsets = spaces.shared_offsets(addresses);
    bits(spaces.global)
        .map(|lane| (lane, Place::Global(addresses[lane as usize])))
        .chain(bits(spaces.shared).map(|lane| (lane, shared_location(low(offsets[lane as usize])))))
        .collect()
}

/// Block and offset of an address in the shared window.
pub(crate) fn shared_location(address: u32) -> Place {
    Place::Shared((address >> window::BLOCK_SHIFT) as usize, address & ((1 << window::BLOCK_SHIFT) - 1))
}
