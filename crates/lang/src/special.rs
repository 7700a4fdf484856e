//! Who am I: threads, blocks, clusters, clocks.

use tilewright_ir::{Element as Kind, Opcode, Special, Type};

use crate::trace;
use crate::value::Val;

#[track_caller]
fn special(x: Special) -> Val<u32> {
    Val::of(trace::value(Opcode::Special, [], [x.into()], Type::U32))
}

#[track_caller]
fn along(axis: u32, xyz: [Special; 3]) -> Val<u32> {
    match xyz.get(axis as usize) {
        Some(&register) => special(register),
        None => {
            trace::error(format!("axis {axis}; expected 0, 1 or 2 for x, y and z"));
            special(xyz[0])
        }
    }
}

macro_rules! along_axes {
    ($( $(#[$doc:meta])* $name:ident $x:ident $y:ident $z:ident )*) => {$(
        $(#[$doc])*
        #[must_use]
        #[track_caller]
        pub fn $name(axis: u32) -> Val<u32> {
            along(axis, [Special::$x, Special::$y, Special::$z])
        }
    )*};
}

along_axes! {
    /// This thread's position in its block along an axis (0 is x).
    thread_id TidX TidY TidZ
    /// The threads of a block along an axis.
    block_size NtidX NtidY NtidZ
    /// This block's position in the grid along an axis.
    block_id CtaidX CtaidY CtaidZ
    /// The blocks of the grid along an axis.
    grid_size NctaidX NctaidY NctaidZ
    /// This cluster's position in the grid along an axis.
    cluster_id ClusteridX ClusteridY ClusteridZ
    /// The clusters of the grid along an axis.
    cluster_grid_size NclusteridX NclusteridY NclusteridZ
    /// This block's position in its cluster along an axis.
    block_in_cluster ClusterCtaidX ClusterCtaidY ClusterCtaidZ
}

macro_rules! single {
    ($( $(#[$doc:meta])* $name:ident $register:ident )*) => {$(
        $(#[$doc])*
        #[must_use]
        #[track_caller]
        pub fn $name() -> Val<u32> {
            special(Special::$register)
        }
    )*};
}

single! {
    /// This thread's position in its warp.
    lane_id LaneId
    /// The multiprocessor that runs this block.
    sm_id SmId
    /// This block's number in its cluster.
    cluster_rank ClusterCtarank
    /// The blocks of the cluster.
    cluster_size ClusterNctarank
    /// The bit of this lane.
    lane_mask_eq LanemaskEq
    /// The bits of all lanes before this one.
    lane_mask_lt LanemaskLt
    /// The bits of this lane and all before.
    lane_mask_le LanemaskLe
    /// The bits of all lanes after this one.
    lane_mask_gt LanemaskGt
    /// The bits of this lane and all after.
    lane_mask_ge LanemaskGe
}

/// This warp's number in a block whose threads lie along x. The same in all lanes, and known to be.
#[must_use]
#[track_caller]
pub fn warp_id() -> Val<u32> {
    crate::warp::broadcast(thread_id(0) >> 5u32, 0u32)
}

/// This warpgroup's number in a block whose threads lie along x. The same in all lanes, and known to be.
#[must_use]
#[track_caller]
pub fn warpgroup_id() -> Val<u32> {
    crate::warp::broadcast(thread_id(0) >> 7u32, 0u32)
}

/// The multiprocessor's cycle counter.
#[must_use]
#[track_caller]
pub fn clock() -> Val<u64> {
    Val::of(trace::value(Opcode::Clock, [], [Special::Clock64.into()], Type::Scalar(Kind::U64)))
}

/// Nanoseconds since the GPU started.
#[must_use]
#[track_caller]
pub fn global_timer() -> Val<u64> {
    Val::of(trace::value(Opcode::Clock, [], [Special::GlobalTimer.into()], Type::Scalar(Kind::U64)))
}
