//! Which space a generic address points to.

use crate::program::Space;
pub(crate) use crate::program::window::{LOCAL, PARAM, SHARED, base};

/// Where user buffers start; module variables lie below.
pub(crate) const BUFFERS: u64 = 0x7100_0000_0000;

/// Size of a window.
const SIZE: u64 = 1 << 32;

/// Log of the bytes between the shared memory of one block of a cluster and the next, as on sm_90.
pub(crate) const BLOCK_SHIFT: u32 = 24;

/// The space that a generic address points to, and the address there.
pub(crate) fn resolve(address: u64) -> (Space, u64) {
    if address.wrapping_sub(SHARED) < SIZE {
        (Space::SharedCluster, address - SHARED)
    } else if address.wrapping_sub(LOCAL) < SIZE {
        (Space::Local, address - LOCAL)
    } else if address.wrapping_sub(PARAM) < SIZE {
        (Space::Param, address - PARAM)
    } else {
        (Space::Global, address)
    }
}
