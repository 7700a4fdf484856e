//! Copies that run while the thread goes on: `cp.async` by every thread, bulk copies by one.

use tilewright_ir::{Bytes, Cache, Combine, Count, Element as Kind, Flags, Opcode, Operands, Prefetch};

use crate::barrier::{Mbarrier, RemoteMbarrier};
use crate::element::Element;
use crate::memory::{ClusterPtr, Global, L2Policy, SharedPtr};
use crate::tensor_map::CopyOptions;
use crate::trace;
use crate::value::{Operand, Val};
use crate::vector::Vector;

/// Bytes of `elements` elements, if a `cp.async` can copy that many.
#[track_caller]
fn async_bytes<T: Element>(elements: u32) -> Bytes {
    let bytes = elements.saturating_mul(T::ELEMENT.bits()) / 8;
    if !matches!(bytes, 4 | 8 | 16) {
        trace::error(format!("an asynchronous copy of {bytes} bytes; expected 4, 8 or 16"));
    }
    Bytes(bytes)
}

/// Starts to copy `elements` elements, 4, 8 or 16 bytes, from global to shared memory. Copies of 16 bytes bypass L1.
#[track_caller]
pub fn copy_async<T: Element>(to: SharedPtr<T>, from: Global<T>, elements: u32) {
    let bytes = async_bytes::<T>(elements);
    let cache = if bytes.0 == 16 { Cache::Global } else { Cache::All };
    trace::effect(Opcode::CpAsync, [to.id, from.id], [bytes.into(), cache.into(), Prefetch::B128.into()]);
}

/// Starts a copy like [`copy_async`] if the condition holds; otherwise the destination becomes zero and the source is not read.
#[track_caller]
pub fn copy_async_if<T: Element>(condition: Val<bool>, to: SharedPtr<T>, from: Global<T>, elements: u32) {
    let bytes = async_bytes::<T>(elements);
    let cache = if bytes.0 == 16 { Cache::Global } else { Cache::All };
    let size = crate::select(condition, bytes.0, 0u32);
    let attrs = [bytes.into(), cache.into(), Prefetch::B128.into()];
    trace::effect(Opcode::CpAsync, [to.id, from.id, size.id], attrs);
}

/// Starts a copy like [`copy_async`] of only the first `bytes` bytes, at most as many as `elements` elements have; the rest of the
/// destination becomes zero. For the ends of rows: nothing beyond those bytes is read, and with 0 the source is not looked at.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel(threads = 32)]
/// fn row_end(x: Global<bf16>, n: Val<u32>) {
///     let tile = Shared::<bf16>::new("256:1");
///     let first = thread_id(0) * 8;
///     let left = select(first < n, min(n - first, 8), 0u32);
///     copy_async_part(tile.at([first]), x.aligned(16).at(first), 8, left * 2);
///     copy_commit();
///     copy_wait(0);
/// }
/// assert!(row_end::stage()?.ir().contains("cp_async"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[track_caller]
pub fn copy_async_part<T: Element>(
    to: SharedPtr<T>,
    from: Global<T>,
    elements: u32,
    bytes: impl Operand<u32>,
) {
    let all = async_bytes::<T>(elements);
    let cache = if all.0 == 16 { Cache::Global } else { Cache::All };
    let bytes = bytes.val();
    let attrs = [all.into(), cache.into(), Prefetch::B128.into()];
    trace::effect(Opcode::CpAsync, [to.id, from.id, bytes.id], attrs);
}

/// Closes a group of this thread's copies.
#[track_caller]
pub fn copy_commit() {
    trace::effect(Opcode::CpAsyncCommit, [], []);
}

/// Waits until at most `pending` groups of this thread's copies are under way. A barrier shows the result to other threads.
#[track_caller]
pub fn copy_wait(pending: u32) {
    trace::effect(Opcode::CpAsyncWait, [], [Count(pending).into()]);
}

/// Starts to copy `bytes` bytes, a multiple of 16, to shared memory; `barrier` counts them. By one thread.
#[track_caller]
pub fn bulk_load<T: Element>(
    to: SharedPtr<T>,
    from: Global<T>,
    bytes: impl Operand<u32>,
    barrier: Mbarrier,
    options: CopyOptions,
) {
    let bytes = bytes.val();
    let ids = [to.id, from.id, bytes.id, barrier.ptr.id];
    let ids: Operands = ids.into_iter().chain(options.operands()).collect();
    trace::effect(Opcode::BulkLoad, ids, [options.flags().into()]);
}

/// Starts to copy `bytes` bytes, a multiple of 16, to global memory. By one thread.
#[track_caller]
pub fn bulk_store<T: Element>(
    to: Global<T>,
    from: SharedPtr<T>,
    bytes: impl Operand<u32>,
    policy: Option<L2Policy>,
) {
    let bytes = bytes.val();
    let ids: Operands = [to.id, from.id, bytes.id].into_iter().chain(policy.map(|p| p.0)).collect();
    trace::effect(Opcode::BulkStore, ids, [Flags::HINT.when(policy.is_some()).into()]);
}

/// Starts to copy `bytes` bytes to another block of the cluster; its `barrier` counts them. By one thread.
#[track_caller]
pub fn bulk_copy<T: Element>(
    to: ClusterPtr<T>,
    from: SharedPtr<T>,
    bytes: impl Operand<u32>,
    barrier: RemoteMbarrier,
) {
    let bytes = bytes.val();
    trace::effect(Opcode::BulkCopy, [to.id, from.id, bytes.id, barrier.ptr.id], []);
}

/// Starts to store a value of 4, 8 or 16 bytes to another block of the cluster; its `barrier` counts them. What was written before by this
/// thread is not shown to that block with it.
#[track_caller]
pub fn store_async<T: Element>(to: ClusterPtr<T>, value: impl Operand<T>, barrier: RemoteMbarrier) {
    let value = value.val();
    trace::effect(Opcode::StoreAsync, [to.id, value.id, barrier.ptr.id], []);
}

/// Starts to store a vector of 4, 8 or 16 bytes, as [`store_async`] does a value.
#[track_caller]
pub fn store_vector_async<T: Element>(to: ClusterPtr<T>, vector: Vector<T>, barrier: RemoteMbarrier) {
    trace::effect(Opcode::StoreAsync, [to.id, vector.id, barrier.ptr.id], []);
}

/// Starts to combine `bytes` bytes of elements into global memory. By one thread.
#[track_caller]
pub fn bulk_reduce<T: Element>(op: Combine, to: Global<T>, from: SharedPtr<T>, bytes: impl Operand<u32>) {
    let bytes = bytes.val();
    let element: Kind = T::ELEMENT;
    trace::effect(Opcode::BulkReduce, [to.id, from.id, bytes.id], [op.into(), element.into()]);
}

/// Brings `bytes` bytes into L2.
#[track_caller]
pub fn bulk_prefetch<T: Element>(from: Global<T>, bytes: impl Operand<u32>) {
    let bytes = bytes.val();
    trace::effect(Opcode::BulkPrefetch, [from.id, bytes.id], []);
}

/// Closes a group of this thread's bulk stores and tensor stores.
#[track_caller]
pub fn bulk_commit() {
    trace::effect(Opcode::BulkCommit, [], []);
}

/// Waits until at most `pending` groups of this thread's bulk stores are under way.
#[track_caller]
pub fn bulk_wait(pending: u32) {
    trace::effect(Opcode::BulkWait, [], [Count(pending).into()]);
}

/// Waits until all but `pending` groups have read their source, so that shared memory can be written again.
#[track_caller]
pub fn bulk_wait_read(pending: u32) {
    trace::effect(Opcode::BulkWait, [], [Count(pending).into(), Flags::READ.into()]);
}
