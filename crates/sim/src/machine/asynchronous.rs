//! Asynchronous work: what is under way, and when it happens.
//!
//! The bytes of a copy move when it is due, at a time that the seed decides, so that a kernel that is too early reads what would be there
//! on a slow day.

use std::sync::Arc;

use tilewright_ptx::Type;

use crate::check::Knowledge;
use crate::memory::{POISON, window};
use crate::number::{Combine, Lanes};
use crate::tensor::Run;

use super::access::{low, number};
use super::atomic::flushed_f32;
use super::cluster::{Cluster, Env, index};
use super::exec::bits;
use super::matrix::WgmmaWork;
use super::mbarrier::location;
use super::report::Where;
use super::warp::{Wait, Warp};

/// Work under way.
pub(crate) struct Async {
    /// When it happens.
    pub(crate) due: u64,
    /// Order of issue.
    seq: u64,
    pub(crate) work: Work,
}

/// What a copy does with what it finds.
#[derive(Clone, Copy)]
pub(crate) struct Reduce {
    pub(crate) combine: Combine,
    pub(crate) ty: Type,
    /// Whether subnormal numbers count as zero.
    pub(crate) flush: bool,
}

impl Reduce {
    pub(crate) fn plain((combine, ty): (Combine, Type)) -> Reduce {
        Reduce { combine, ty, flush: false }
    }
}

/// Who has issued a copy that completes in groups, and in which.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Issuer {
    pub(crate) block: usize,
    pub(crate) warp: u32,
    pub(crate) lane: u32,
    pub(crate) group: u32,
}

/// The barrier that a copy completes on.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) block: usize,
    pub(crate) mbarrier: u32,
    pub(crate) phase: u32,
}

/// What is under way.
pub(crate) enum Work {
    CpAsync {
        block: usize,
        warp: u32,
        lanes: u32,
        group: u32,
        dst: Box<[u32; 32]>,
        src: Box<Lanes>,
        bytes: usize,
        read: [u8; 32],
    },
    CpArrive {
        block: usize,
        warp: u32,
        lane: u32,
        mbarrier: (usize, u32),
        know: Option<Arc<Knowledge>>,
    },
    Load {
        runs: Vec<Run>,
        targets: Vec<Target>,
        bytes: u64,
        fill: Fill,
        from: Where,
    },
    Push {
        block: usize,
        src: u32,
        bytes: u32,
        dst: (usize, u32),
        target: Target,
        combine: Option<Reduce>,
        from: Where,
    },
    Element {
        dst: (usize, u32),
        data: Vec<u8>,
        target: Target,
        combine: Option<Reduce>,
        from: Where,
    },
    StoreRead {
        issuer: Issuer,
        runs: Vec<Run>,
        combine: Option<Reduce>,
    },
    StoreWrite {
        issuer: Issuer,
        pieces: Vec<(u64, Vec<u8>)>,
        combine: Option<Reduce>,
    },
    Wgmma(Box<WgmmaWork>),
}

/// A reduction to global memory that is applied when the round ends.
pub(crate) struct Reduction {
    pub(crate) issuer: Issuer,
    pieces: Vec<(u64, Vec<u8>)>,
    reduce: Reduce,
}

impl Cluster {
    /// A time from now: often soon, sometimes late.
    pub(crate) fn delay(&mut self) -> u64 {
        let scale = [16, 200, 1000, 4000][usize::try_from(self.random.below(4)).unwrap_or(0)];
        self.now + 1 + self.random.below(scale)
    }

    pub(crate) fn start(&mut self, work: Work) {
        let due = self.delay();
        self.start_at(due, work);
    }

    fn start_at(&mut self, due: u64, work: Work) {
        self.sequence += 1;
        self.next_due = self.next_due.min(due);
        self.asyncs.push(Async { due, seq: self.sequence, work });
    }

    /// Queues a product of the tensor cores, not before those that its warpgroup issued earlier.
    pub(crate) fn start_wgmma(&mut self, earliest: u64, work: WgmmaWork) -> u64 {
        let due = self.delay().max(earliest);
        self.start_at(due, Work::Wgmma(Box::new(work)));
        due
    }

    /// Does what is due.
    pub(crate) fn finish_due(&mut self, env: &Env<'_>) {
        while self.next_due <= self.now {
            let next = self.asyncs.iter().enumerate().filter(|(_, work)| work.due <= self.now);
            let Some((at, _)) = next.min_by_key(|(_, work)| (work.due, work.seq)) else { break };
            let Async { seq, work, .. } = self.asyncs.swap_remove(at);
            self.progress += 1;
            self.finish(env, seq, work);
            self.next_due = self.asyncs.iter().map(|work| work.due).min().unwrap_or(u64::MAX);
        }
    }

    fn finish(&mut self, env: &Env<'_>, seq: u64, work: Work) {
        match work {
            Work::CpAsync { block, warp, lanes, dst, src, bytes, read, .. } => {
                for lane in bits(lanes) {
                    let mut data = [0; 16];
                    let wanted = usize::from(read[lane as usize]).min(bytes);
                    self.read_global(env, src[lane as usize], &mut data[..wanted]);
                    self.write_shared(dst[lane as usize], &data[..bytes]);
                }
                self.wake_where(false, |at, other, path| {
                    at.rank as usize == block
                        && other.index == warp
                        && matches!(path.wait, Wait::CpAsync { .. })
                });
            }
            Work::CpArrive { block, warp, lane, mbarrier, know } => {
                let earlier = self.asyncs.iter().any(|other| {
                    matches!(&other.work, Work::CpAsync { block: b, warp: w, lanes, .. }
                        if *b == block && *w == warp && lanes >> lane & 1 == 1 && other.seq < seq)
                });
                if earlier {
                    let due = self.delay();
                    self.next_due = self.next_due.min(due);
                    self.asyncs.push(Async {
                        due,
                        seq,
                        work: Work::CpArrive { block, warp, lane, mbarrier, know },
                    });
                } else {
                    self.arrive_async(mbarrier.0, mbarrier.1, know.as_deref());
                }
            }
            Work::Load { runs, targets, bytes, fill, from } => {
                for run in &runs {
                    let mut data = vec![0; run.bytes as usize];
                    match run.global {
                        Some(address) => {
                            self.read_global(env, address, &mut data);
                            if fill.rounds {
                                round_to_tf32(&mut data);
                            }
                        }
                        None => fill.fill(&mut data),
                    }
                    for target in &targets {
                        let offset = run.shared & ((1 << window::BLOCK_SHIFT) - 1);
                        self.write_shared(offset | index(target.block) << window::BLOCK_SHIFT, &data);
                    }
                }
                for target in targets {
                    self.complete_bytes(env, target.block, target.mbarrier, target.phase, bytes, from);
                }
            }
            Work::Push { block, src, bytes, dst, target, combine, from } => {
                let source = src as usize;
                let mut data = self.blocks[block].shared[source..source + bytes as usize].to_vec();
                if let Some(reduce) = combine {
                    let old = dst.1 as usize;
                    let old = self.blocks[dst.0].shared[old..old + bytes as usize].to_vec();
                    combine_bytes(reduce, &old, &mut data);
                }
                self.write_shared(dst.1 | index(dst.0) << window::BLOCK_SHIFT, &data);
                self.complete_bytes(env, target.block, target.mbarrier, target.phase, u64::from(bytes), from);
            }
            Work::Element { dst, mut data, target, combine, from } => {
                if let Some(reduce) = combine {
                    let at = dst.1 as usize;
                    let old = self.blocks[dst.0].shared[at..at + data.len()].to_vec();
                    combine_bytes(reduce, &old, &mut data);
                }
                self.write_shared(dst.1 | index(dst.0) << window::BLOCK_SHIFT, &data);
                self.complete_bytes(
                    env,
                    target.block,
                    target.mbarrier,
                    target.phase,
                    data.len() as u64,
                    from,
                );
            }
            Work::StoreRead { issuer, runs, combine } => {
                let pieces = runs
                    .iter()
                    .filter_map(|run| {
                        let from = (run.shared & ((1 << window::BLOCK_SHIFT) - 1)) as usize;
                        let bytes = self.blocks[issuer.block].shared.get(from..from + run.bytes as usize)?;
                        Some((run.global?, bytes.to_vec()))
                    })
                    .collect();
                self.start(Work::StoreWrite { issuer, pieces, combine });
                self.wake_bulk(issuer);
            }
            Work::StoreWrite { issuer, pieces, combine: Some(reduce) } => {
                self.reductions.push(Reduction { issuer, pieces, reduce });
            }
            Work::StoreWrite { issuer, pieces, combine: None } => {
                for (address, data) in pieces {
                    if let Some(found) = env.memory.find(address, data.len(), 0) {
                        self.overlay.write(found, address, &data);
                    }
                }
                self.wake_bulk(issuer);
            }
            Work::Wgmma(work) => self.finish_wgmma(env, &work),
        }
    }

    fn wake_bulk(&mut self, issuer: Issuer) {
        self.wake_where(false, |at, other, path| {
            at.rank as usize == issuer.block
                && other.index == issuer.warp
                && matches!(path.wait, Wait::Bulk { .. })
        });
    }

    /// Applies the reductions of the round, through the overlay; it is this cluster's turn.
    pub(crate) fn reduce(&mut self, env: &Env<'_>) {
        for Reduction { issuer, pieces, reduce } in std::mem::take(&mut self.reductions) {
            for (address, mut data) in pieces {
                let Some(found) = env.memory.find(address, data.len(), 0) else { continue };
                let mut old = vec![0; data.len()];
                self.overlay.read(env.memory, found, address, &mut old);
                combine_bytes(reduce, &old, &mut data);
                self.overlay.write(found, address, &data);
            }
            self.progress += 1;
            self.wake_bulk(issuer);
        }
    }

    /// Bytes of global memory as the cluster sees them; poison outside of all buffers.
    pub(crate) fn read_global(&self, env: &Env<'_>, address: u64, out: &mut [u8]) {
        match env.memory.find(address, out.len(), 0) {
            Some(found) => {
                self.overlay.read(env.memory, found, address, out);
            }
            None => out.fill(POISON),
        }
    }

    /// Bytes into the shared memory of a block, without checks.
    fn write_shared(&mut self, address: u32, data: &[u8]) {
        let (block, offset) = location(address);
        let from = offset as usize;
        if let Some(place) =
            self.blocks.get_mut(block).and_then(|block| block.shared.get_mut(from..from + data.len()))
        {
            place.copy_from_slice(data);
        }
    }

    /// Whether some copy of a block still reads or writes its shared memory.
    pub(crate) fn unread_stores(&self, warp: &Warp, lanes: u32) -> Option<u32> {
        bits(lanes).find(|&lane| {
            let groups = warp.bulk[lane as usize];
            groups.open > 0 || groups.committed > warp.bulk_read[lane as usize]
        })
    }

    /// How many copies are under way towards an mbarrier.
    pub(crate) fn copies_towards(&self, block: usize, offset: u32) -> usize {
        let aims = |targets: &[Target]| {
            targets.iter().any(|target| target.block == block && target.mbarrier == offset)
        };
        self.asyncs
            .iter()
            .filter(|work| match &work.work {
                Work::Load { targets, .. } => aims(targets),
                Work::Push { target, .. } | Work::Element { target, .. } => {
                    aims(std::slice::from_ref(target))
                }
                _ => false,
            })
            .count()
    }
}

/// What a load of TMA does to elements.
#[derive(Clone, Copy, Default)]
pub(crate) struct Fill {
    /// The bits of an element outside of the tensor.
    pub(crate) outside: u64,
    /// Bytes of an element.
    pub(crate) size: usize,
    /// Whether elements become `tf32`.
    pub(crate) rounds: bool,
}

impl Fill {
    fn fill(self, data: &mut [u8]) {
        let element = self.outside.to_le_bytes();
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = element[i % self.size.clamp(1, 8)];
        }
    }
}

/// To nearest, ties to even, as an H200 loads `tf32`: ten bits of mantissa, subnormals kept, NaNs made canonical.
fn round_to_tf32(data: &mut [u8]) {
    for word in data.chunks_exact_mut(4) {
        let bits = low(number(word));
        let rounded = if f32::from_bits(bits).is_nan() {
            0x7FFF_E000
        } else {
            (bits + 0xFFF + (bits >> 13 & 1)) & !0x1FFF
        };
        word.copy_from_slice(&rounded.to_le_bytes());
    }
}

/// Combines `old` into `data`, element by element.
fn combine_bytes(reduce: Reduce, old: &[u8], data: &mut [u8]) {
    let Reduce { combine, ty, flush } = reduce;
    let element = ty.bits().div_ceil(8) as usize;
    let flushed = |bits: u64| if flush { flushed_f32(bits) } else { bits };
    for (old, new) in old.chunks_exact(element).zip(data.chunks_exact_mut(element)) {
        if let Some(value) = combine.apply(ty, flushed(number(old)), flushed(number(new)), 0) {
            new.copy_from_slice(&flushed(value).to_le_bytes()[..element.min(8)]);
        }
    }
}
