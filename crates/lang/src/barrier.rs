//! Barriers of the block and of the cluster, fences, barrier objects.

pub use tilewright_ir::FenceProxy;
use tilewright_ir::{Align, Attr, Bytes, Combine, Flags, Opcode, Order, Scope, Type};
use tilewright_macros::Carry;

use crate::element::Element;
use crate::memory::{ClusterPtr, Ptr, SharedPtr};
use crate::trace;
use crate::value::{Operand, Val};

/// Waits for all threads of the block, and orders their accesses to memory.
#[track_caller]
pub fn barrier() {
    let id = trace::u32_const(0);
    trace::effect(Opcode::Barrier, [id], [Flags::ALIGNED.into()]);
}

/// One of the 16 barriers of a block, for some of its threads. Number 0 is [`barrier`]'s.
#[derive(Debug, Clone, Copy)]
pub struct NamedBarrier {
    id: Val<u32>,
    threads: u32,
}

impl NamedBarrier {
    /// Barrier number `id` for `threads` threads, a multiple of 32.
    #[track_caller]
    pub fn new(id: impl Operand<u32>, threads: u32) -> NamedBarrier {
        if threads == 0 || !threads.is_multiple_of(32) || threads > 1024 {
            trace::error(format!("a barrier of {threads} threads; expected a multiple of 32 up to 1024"));
        }
        NamedBarrier { id: id.val(), threads }
    }

    /// Waits for all its threads.
    #[track_caller]
    pub fn wait(self) {
        let count = trace::u32_const(self.threads);
        trace::effect(Opcode::Barrier, [self.id.id, count], [Flags::ALIGNED.into()]);
    }

    /// Arrives without waiting.
    #[track_caller]
    pub fn arrive(self) {
        let count = trace::u32_const(self.threads);
        trace::effect(Opcode::BarrierArrive, [self.id.id, count], [Flags::ALIGNED.into()]);
    }
}

#[track_caller]
fn barrier_reduce(op: Combine, predicate: Val<bool>, ty: Type) -> tilewright_ir::Value {
    let id = trace::u32_const(0);
    trace::value(Opcode::BarrierReduce, [predicate.id, id], [op.into(), Flags::ALIGNED.into()], ty)
}

/// Waits for the block, and tells whether the predicate holds in all its threads.
#[must_use]
#[track_caller]
pub fn barrier_all(predicate: Val<bool>) -> Val<bool> {
    Val::of(barrier_reduce(Combine::And, predicate, Type::BOOL))
}

/// Waits for the block, and tells whether the predicate holds in any of its threads.
#[must_use]
#[track_caller]
pub fn barrier_any(predicate: Val<bool>) -> Val<bool> {
    Val::of(barrier_reduce(Combine::Or, predicate, Type::BOOL))
}

/// Waits for the block, and counts its threads where the predicate holds.
#[must_use]
#[track_caller]
pub fn barrier_count(predicate: Val<bool>) -> Val<u32> {
    Val::of(barrier_reduce(Combine::Popc, predicate, Type::U32))
}

/// Waits for all threads of all blocks of the cluster, and orders their accesses to memory.
#[track_caller]
pub fn cluster_barrier() {
    cluster_arrive();
    cluster_wait();
}

/// Arrives at the barrier of the cluster; what was written before is visible after the others' [`cluster_wait`].
#[track_caller]
pub fn cluster_arrive() {
    trace::effect(Opcode::ClusterArrive, [], [Flags::ALIGNED.into()]);
}

/// Arrives at the barrier of the cluster without publishing anything.
#[track_caller]
pub fn cluster_arrive_relaxed() {
    trace::effect(Opcode::ClusterArrive, [], [Order::Relaxed.into(), Flags::ALIGNED.into()]);
}

/// Waits until all threads of the cluster have arrived.
#[track_caller]
pub fn cluster_wait() {
    trace::effect(Opcode::ClusterWait, [], [Flags::ALIGNED.into()]);
}

/// Orders this thread's accesses to memory: those before with those after, as seen by the threads of `scope`.
///
/// In a kernel on tiles it orders those of the whole program, which its threads wait for each other for. With an atomic, itself ordered with
/// nothing, it lets programs hand memory to each other: who gives fences before the atomic, who takes fences after it.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
///
/// /// The sum of each column: programs add up to `rows` rows each, and the last of them to be done adds up what all have left.
/// #[kernel]
/// fn column_sums(x: View<f32, 2>, parts: View<f32, 2>, done: View<u32, 1>, out: View<f32, 1>, rows: u32, columns: u32) {
///     let own = x.tile([rows, columns]).block((program_id(0), 0)).load();
///     parts.tile([1, columns]).at((program_id(0), 0)).store(own.sum(0));
///     fence(Order::AcqRel, Scope::Gpu);
///     let before = done.points(0).atomic_add(1).item();
///     if before == num_programs(0) - 1 {
///         fence(Order::AcqRel, Scope::Gpu);
///         let mut sum = Tile::<f32>::zeros([1, columns]);
///         for program in 0..num_programs(0) {
///             sum += parts.tile([1, columns]).at((program, 0)).load();
///         }
///         out.tile([columns]).at(0).store(sum.squeeze(0));
///         let _ = done.points(0).atomic_exchange(0); // for the next launch
///     }
/// }
/// assert!(column_sums::stage(16, 128)?.ir().contains("fence"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[track_caller]
pub fn fence(order: Order, scope: Scope) {
    trace::effect(Opcode::Fence, [], [order.into(), scope.into()]);
}

/// Orders ordinary accesses with those of the copy engine and the tensor core. Needed by each thread that stored to shared memory,
/// before a barrier, before anybody lets the copy engine or the tensor core read it.
#[track_caller]
pub fn fence_async() {
    fence_proxy(FenceProxy::AsyncShared);
}

/// Orders ordinary accesses with those through another way to memory.
#[track_caller]
pub fn fence_proxy(proxy: FenceProxy) {
    trace::effect(Opcode::FenceProxy, [], [proxy.into()]);
}

/// Makes new barrier objects known to the cluster and the copy engine; a barrier must follow.
#[track_caller]
pub fn fence_barrier_init() {
    trace::effect(Opcode::FenceMbarInit, [], []);
}

/// Waits for the kernels that this one was launched to overlap with, before their results are read.
#[track_caller]
pub fn grid_wait() {
    trace::effect(Opcode::GridWait, [], []);
}

/// Lets the kernels that depend on this one start.
#[track_caller]
pub fn grid_launch_dependents() {
    trace::effect(Opcode::GridLaunch, [], []);
}

/// Lets this kernel begin while the one before it ends, and the next one while this one does: that is, what it takes to launch a kernel
/// overlaps with work. At the start of a kernel, by all threads; nothing that other kernels write is touched before.
#[track_caller]
pub fn overlap_grids() {
    grid_launch_dependents();
    grid_wait();
}

/// A barrier object in shared memory: arrivals and bytes are counted, and a phase completes when none is missing.
///
/// Waits name the parity of a phase: 0 for the first, then alternating. [`Pipeline`](crate::Pipeline) keeps the books for rings of
/// buffers.
#[derive(Debug, Clone, Copy, Carry)]
pub struct Mbarrier {
    pub(crate) ptr: SharedPtr<u64>,
}

/// A barrier object of another block of the cluster: one can arrive there, but not wait.
#[derive(Debug, Clone, Copy)]
pub struct RemoteMbarrier {
    pub(crate) ptr: ClusterPtr<u64>,
}

impl Mbarrier {
    /// Shared memory for `count` barrier objects. One thread must [`init`](Mbarrier::init) each before use.
    #[must_use]
    #[track_caller]
    pub fn array(count: u32, name: &str) -> Mbarrier {
        let attrs = [Bytes(8 * count).into(), Align(8).into(), Attr::text(name)];
        Mbarrier { ptr: Ptr::of(trace::value(Opcode::Shared, [], attrs, None)) }
    }

    /// Number `index` of an array of barrier objects.
    #[must_use]
    #[track_caller]
    pub fn at(self, index: impl Operand<u32>) -> Mbarrier {
        let index = index.val();
        Mbarrier { ptr: self.ptr.at(index) }
    }

    /// A phase completes after `arrivals` arrivals and all expected bytes. By one thread; then [`fence_barrier_init`] and a barrier.
    #[track_caller]
    pub fn init(self, arrivals: impl Operand<u32>) {
        let arrivals = arrivals.val();
        trace::effect(Opcode::MbarInit, [self.ptr.id, arrivals.id], []);
    }

    /// Ends the object, so that its memory can serve other purposes.
    #[track_caller]
    pub fn invalidate(self) {
        trace::effect(Opcode::MbarInvalidate, [self.ptr.id], []);
    }

    /// Arrives once.
    #[track_caller]
    pub fn arrive(self) {
        trace::effect(Opcode::MbarArrive, [self.ptr.id], []);
    }

    /// Arrives `count` times.
    #[track_caller]
    pub fn arrive_many(self, count: impl Operand<u32>) {
        let count = count.val();
        trace::effect(Opcode::MbarArrive, [self.ptr.id, count.id], []);
    }

    /// Arrives, and takes part in no later phase.
    #[track_caller]
    pub fn arrive_and_drop(self) {
        trace::effect(Opcode::MbarArriveDrop, [self.ptr.id], []);
    }

    /// The phase also waits for so many bytes.
    #[track_caller]
    pub fn expect(self, bytes: impl Operand<u32>) {
        let bytes = bytes.val();
        trace::effect(Opcode::MbarExpect, [self.ptr.id, bytes.id], []);
    }

    /// Arrives, and the phase also waits for so many bytes.
    #[track_caller]
    pub fn arrive_and_expect(self, bytes: impl Operand<u32>) {
        let bytes = bytes.val();
        trace::effect(Opcode::MbarArriveExpect, [self.ptr.id, bytes.id], []);
    }

    /// Arrives when this thread's `cp.async` copies are done. The arrival counts.
    #[track_caller]
    pub fn arrive_after_copies(self) {
        trace::effect(Opcode::CpAsyncArrive, [self.ptr.id], [Flags::NOINC.into()]);
    }

    /// Has the phase of this parity completed? Does not wait.
    #[must_use]
    #[track_caller]
    pub fn test(self, parity: impl Operand<u32>) -> Val<bool> {
        let parity = parity.val();
        Val::of(trace::value(Opcode::MbarTest, [self.ptr.id, parity.id], [], None))
    }

    /// Has the phase of this parity completed? May wait for a while before it answers.
    #[must_use]
    #[track_caller]
    pub fn try_wait(self, parity: impl Operand<u32>) -> Val<bool> {
        let parity = parity.val();
        Val::of(trace::value(Opcode::MbarTest, [self.ptr.id, parity.id], [Flags::TRY.into()], None))
    }

    /// Waits until the phase of this parity has completed.
    #[track_caller]
    pub fn wait(self, parity: impl Operand<u32>) {
        let parity = parity.val();
        trace::effect(Opcode::MbarWait, [self.ptr.id, parity.id], []);
    }

    /// Waits like [`wait`](Mbarrier::wait), and sees what other blocks of the cluster published.
    #[track_caller]
    pub fn wait_cluster(self, parity: impl Operand<u32>) {
        let parity = parity.val();
        trace::effect(
            Opcode::MbarWait,
            [self.ptr.id, parity.id],
            [Order::Acquire.into(), Scope::Cluster.into()],
        );
    }

    /// The same object in block `rank` of the cluster.
    #[must_use]
    #[track_caller]
    pub fn in_block(self, rank: impl Operand<u32>) -> RemoteMbarrier {
        RemoteMbarrier { ptr: self.ptr.in_block(rank) }
    }
}

impl RemoteMbarrier {
    /// Arrives once. Publishes nothing: for handing back a buffer that was only read.
    #[track_caller]
    pub fn arrive(self) {
        trace::effect(Opcode::MbarArrive, [self.ptr.id], []);
    }

    /// Arrives once, and publishes to the cluster what was written before. Much dearer than [`arrive`](RemoteMbarrier::arrive).
    #[track_caller]
    pub fn arrive_release(self) {
        trace::effect(Opcode::MbarArrive, [self.ptr.id], [Order::Release.into(), Scope::Cluster.into()]);
    }

    /// Arrives, and the phase there also waits for so many bytes.
    #[track_caller]
    pub fn arrive_and_expect(self, bytes: impl Operand<u32>) {
        let bytes = bytes.val();
        trace::effect(Opcode::MbarArriveExpect, [self.ptr.id, bytes.id], []);
    }
}

/// Pointers that name a barrier object to the copy engine.
impl<T: Element> From<SharedPtr<T>> for Mbarrier {
    fn from(ptr: SharedPtr<T>) -> Mbarrier {
        Mbarrier { ptr: ptr.cast() }
    }
}
