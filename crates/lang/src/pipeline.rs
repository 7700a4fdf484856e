//! [`Pipeline`]: a ring of buffers between threads that fill and threads that use them.
//!
//! Each slot of the ring has two barrier objects. `full` completes when the bytes that the producer announced have arrived, `empty`
//! when all consumers have let go. A [`Slot`] is a position in the ring together with the parity of its round; each side keeps its
//! own and moves it on with `slot = slot.next()`.

use tilewright_macros::Carry;

use crate::barrier::{Mbarrier, fence_barrier_init};
use crate::special::thread_id;
use crate::stage::{Equals, when};
use crate::value::{Operand, Val, select};

/// The barrier objects of a ring of buffers.
///
/// ```
/// use tilewright_lang::prelude::*;
/// /// Sums tiles of 32 floats: warp 0 copies them ahead, warp 1 adds them up.
/// #[kernel(threads = 64)]
/// fn stream(x: Global<f32>, out: Global<f32>, tiles: Val<u32>) {
///     let ring = Ring::<f32>::new(4, "32:1");
///     let pipe = Pipeline::new(4, 1);
///     barrier();
///     role(&Role { name: "copy", warps: 0..1, registers: None }, || {
///         if elect() {
///             let mut slot = pipe.producer();
///             for tile in 0..tiles {
///                 let full = pipe.acquire(slot, 128);
///                 bulk_load(ring.at(slot.index).ptr(), x.at(tile * 32), 128, full, CopyOptions::new());
///                 slot = slot.next();
///             }
///         }
///     });
///     role(&Role { name: "add", warps: 1..2, registers: None }, || {
///         let mut slot = pipe.consumer();
///         let mut sum = val(0.0f32);
///         for _ in 0..tiles {
///             pipe.wait(slot);
///             sum += ring.at(slot.index).at([lane_id()]).load();
///             warp_barrier();
///             if lane_id() == 0 {
///                 pipe.release(slot);
///             }
///             slot = slot.next();
///         }
///         out.at(lane_id()).store(sum);
///     });
/// }
/// stream::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Pipeline {
    full: Mbarrier,
    empty: Mbarrier,
    stages: u32,
}

/// A position in a ring, and the parity of the round it is in.
#[derive(Debug, Clone, Copy, Carry)]
pub struct Slot {
    /// Which buffer.
    pub index: Val<u32>,
    phase: Val<u32>,
    #[host]
    stages: u32,
}

impl Slot {
    /// The next buffer of the ring.
    #[must_use]
    #[track_caller]
    pub fn next(self) -> Slot {
        let index = self.index + 1u32;
        let wraps = index.eq(&self.stages);
        Slot {
            index: select(wraps, 0u32, index),
            phase: select(wraps, self.phase ^ 1u32, self.phase),
            stages: self.stages,
        }
    }
}

impl Slot {
    /// The buffer so many places further: for a consumer that leaves those between to others.
    #[must_use]
    #[track_caller]
    pub fn skip(self, places: impl Operand<u32>) -> Slot {
        let index = self.index + places.val();
        Slot {
            index: index % self.stages,
            phase: self.phase ^ ((index / self.stages) & 1u32),
            stages: self.stages,
        }
    }
}

impl Pipeline {
    /// A ring of `stages` slots that one thread fills and `consumers` arrivals free. Initialised by thread 0; a barrier of the block
    /// (or of the cluster, if other blocks arrive here) must follow before anybody uses it.
    #[must_use]
    #[track_caller]
    pub fn new(stages: u32, consumers: u32) -> Pipeline {
        let pipeline = Pipeline {
            full: Mbarrier::array(stages, "full"),
            empty: Mbarrier::array(stages, "empty"),
            stages,
        };
        when(thread_id(0).eq(&0u32), || {
            for stage in 0..stages {
                pipeline.full.at(stage).init(1u32);
                pipeline.empty.at(stage).init(consumers);
            }
            fence_barrier_init();
        });
        pipeline
    }

    /// The slot that a producer starts with.
    #[must_use]
    #[track_caller]
    pub fn producer(self) -> Slot {
        // A fresh barrier counts as completed with parity 1: the first round does not wait.
        Slot { index: 0u32.val(), phase: 1u32.val(), stages: self.stages }
    }

    /// The slot that a consumer starts with.
    #[must_use]
    #[track_caller]
    pub fn consumer(self) -> Slot {
        Slot { index: 0u32.val(), phase: 0u32.val(), stages: self.stages }
    }

    /// Producer: waits until the slot is free, and announces `bytes` bytes. Returns the barrier object for the copies.
    #[track_caller]
    pub fn acquire(self, slot: Slot, bytes: impl Operand<u32>) -> Mbarrier {
        self.empty.at(slot.index).wait(slot.phase);
        let full = self.full.at(slot.index);
        full.arrive_and_expect(bytes);
        full
    }

    /// Consumer: waits until the slot is full.
    #[track_caller]
    pub fn wait(self, slot: Slot) {
        self.full.at(slot.index).wait(slot.phase);
    }

    /// Consumer: lets go of the slot. By one thread for each of the `consumers`.
    #[track_caller]
    pub fn release(self, slot: Slot) {
        self.empty.at(slot.index).arrive();
    }

    /// Consumer: lets go of the slot in block `rank` of the cluster, whose producer fills this block too.
    #[track_caller]
    pub fn release_in_block(self, slot: Slot, rank: impl Operand<u32>) {
        self.empty.at(slot.index).in_block(rank).arrive();
    }

    /// The barrier object that is complete when the slot is full.
    #[must_use]
    #[track_caller]
    pub fn full(self, slot: Slot) -> Mbarrier {
        self.full.at(slot.index)
    }

    /// The barrier object that is complete when the slot is free.
    #[must_use]
    #[track_caller]
    pub fn empty(self, slot: Slot) -> Mbarrier {
        self.empty.at(slot.index)
    }
}
