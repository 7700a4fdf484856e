//! The kernel language: GPU kernels as ordinary Rust.
//!
//! A kernel is a Rust function. Running it on the host *builds* it: a [`Val`] stands for a value of the running kernel, and
//! operators, loads and stores append to the kernel's code. What is an ordinary Rust value (a `u32`, a `bool`, a configuration
//! struct, a `for` over host numbers) is decided while staging and costs nothing at run time.
//!
//! ```
//! use tilewright_lang::prelude::*;
//!
//! /// out[i] = sum over row i of x, by one warp.
//! #[kernel(threads = 32)]
//! fn row_sum(x: Global<f32>, out: Global<f32>, columns: Val<u32>) {
//!     let row = block_id(0);
//!     let mut sum = val(0.0f32);
//!     for column in (thread_id(0)..columns).step_by(32) {
//!         sum += x.at(row.mul_wide(columns) + column.cast::<u64>()).load();
//!     }
//!     let total = warp_sum(sum);
//!     if thread_id(0) == 0 {
//!         out.at(row).store(total);
//!     }
//! }
//!
//! let kernel = row_sum::stage()?;
//! println!("{}", kernel.ir());
//! # Ok::<(), tilewright_lang::Error>(())
//! ```
//!
//! Where to find what: [`value`](Val) arithmetic, [`memory`](Ptr) pointers and atomics, [`Vector`], [`Shared`] tiles with layouts,
//! [`barrier`](mod@barrier) and [`Pipeline`], [`TensorMap`] copies, [`WarpMma`] and [`Accumulator`] for tensor cores, [`role`] for
//! warp specialisation, [`math`] functions. [`prelude`] has all names.
//!
//! This is the level of threads. At the level of [tiles](mod@tile), a kernel says what a whole block does, and the compiler distributes it.
//!
//! Contract: staging has no side effects and does no I/O, except that a report of a mistake shows the line of source it is about.
//! Nothing is inserted behind the author's back: no barrier, no fence, no bounds check.
//!
//! # Panics
//! Functions of this crate panic when they are called outside of a kernel that is being staged. All other mistakes are collected and
//! come back from `stage()`.

#[allow(unused_extern_crates, reason = "kernels written inside this crate expand to this name")]
extern crate self as tilewright_lang;

mod access;
pub mod barrier;
mod copy;
mod debug;
mod element;
mod error;
mod fragment;
mod kernel;
pub mod math;
mod memory;
mod mma;
mod pipeline;
mod reuse;
mod role;
mod special;
#[doc(hidden)]
pub mod stage;
mod tensor;
mod tensor_map;
mod thread_map;
pub mod tile;
mod trace;
mod value;
mod vector;
mod warp;

pub use element::{nearest_bf16, nearest_f16};
pub use prelude::*;
pub use reuse::{Inside, Memo, mistake, same};

/// A loop over host numbers that is written out: `for i in unroll(0..4)`.
///
/// A range of host numbers is unrolled anyway; this says that it is meant.
pub fn unroll<I: IntoIterator>(range: I) -> I {
    range
}

/// Everything a kernel needs.
pub mod prelude {
    pub use crate::barrier::{
        Mbarrier, NamedBarrier, RemoteMbarrier, barrier, barrier_all, barrier_any, barrier_count,
        cluster_arrive, cluster_arrive_relaxed, cluster_barrier, cluster_wait, fence, fence_async,
        fence_barrier_init, fence_proxy, grid_launch_dependents, grid_wait, overlap_grids,
    };
    pub use crate::copy::{
        bulk_commit, bulk_copy, bulk_load, bulk_prefetch, bulk_reduce, bulk_store, bulk_wait, bulk_wait_read,
        copy_async, copy_async_if, copy_async_part, copy_commit, copy_wait, store_async, store_vector_async,
    };
    pub use crate::debug::{Traced, assert_with, print, sleep, trap};
    pub use crate::element::{E2m1, E4m3, E5m2, Element, Float, Integer, Logic, Number, Tf32, Ue8m0, Word};
    pub use crate::error::Error;
    pub use crate::fragment::Fragment;
    pub use crate::kernel::{Argument, Kernel, ViewInfo};
    pub use crate::memory::{
        Access, ClusterPtr, Global, Index, L2Policy, Matrix, Ptr, SharedPtr, local, space,
    };
    pub use crate::mma::{Accumulator, WarpMma};
    pub use crate::pipeline::{Pipeline, Slot};
    pub use crate::role::{Role, role};
    pub use crate::special::{
        block_id, block_in_cluster, block_size, clock, cluster_grid_size, cluster_id, cluster_rank,
        cluster_size, global_timer, grid_size, lane_id, lane_mask_eq, lane_mask_ge, lane_mask_gt,
        lane_mask_le, lane_mask_lt, sm_id, thread_id, warp_id, warpgroup_id,
    };
    pub use crate::stage::{Carry, StagedRange};
    pub use crate::tensor::{Coordinates, IntoTile, Ring, Shared, k_major, mn_major};
    pub use crate::tensor_map::{Coordinate, CopyOptions, EditableMap, TensorMap};
    pub use crate::unroll;
    pub use crate::value::{Operand, Selects, Val, Widen, div_ceil, max, min, select, val};
    pub use crate::vector::Vector;
    pub use crate::warp::{
        ALL_LANES, Shuffled, active_mask, ballot, broadcast, elect, match_all, match_any, redux,
        shuffle_down, shuffle_in, shuffle_index, shuffle_up, shuffle_xor, vote_all, vote_any, vote_uniform,
        warp_barrier, warp_max, warp_reduce, warp_reduce_among, warp_sum,
    };
    pub use half::{bf16, f16};
    pub use tilewright_hardware::{Major, SwizzleMode, TensorMapSpec};
    pub use tilewright_ir::{
        Cache, Combine, Evict, FenceProxy, Funnel, Half, Level, Order, Permute, Prefetch, Round, Scope,
        Shuffle,
    };
    pub use tilewright_macros::{Carry, device, kernel};
}
