//! Where things lie in the 64-bit generic address space of the simulator.
//!
//! The windows are far apart and none begins at 0, so that a wild address falls between them. Global and constant memory are their own
//! generic addresses; the other spaces are windows of at most 4 GiB.

use super::op::Space;

/// Addresses of `.global` variables of modules begin here.
pub const GLOBAL: u64 = 0x7000_0000_0000;
/// Addresses of `.const` variables begin here.
pub const CONST: u64 = 0x6000_0000_0000;
/// Function `i` of a program has address `FUNCTION + 16 * i`.
pub const FUNCTION: u64 = 0x5000_0000_0000;
/// Generic address of shared address 0.
pub const SHARED: u64 = 0x4000_0000_0000;
/// Generic address of local address 0.
pub const LOCAL: u64 = 0x3000_0000_0000;
/// Generic address of the first kernel parameter.
pub const PARAM: u64 = 0x2000_0000_0000;
/// Bytes at the begin of a block's shared memory that belong to the system.
pub const RESERVED_SHARED: u32 = 1024;

/// What is added to an address in a space to make it generic.
///
/// ```
/// use tilewright_sim::program::{Space, window};
/// assert_eq!(window::base(Space::SharedCta), window::SHARED);
/// assert_eq!(window::base(Space::Global), 0);
/// ```
pub const fn base(space: Space) -> u64 {
    match space {
        Space::Generic | Space::Global | Space::Const => 0,
        Space::SharedCta | Space::SharedCluster => SHARED,
        Space::Local => LOCAL,
        Space::Param => PARAM,
    }
}

/// The address of a function.
pub const fn function_address(index: u32) -> u64 {
    FUNCTION + 16 * index as u64
}

/// The index of the function at an address, if it could be one.
///
/// ```
/// use tilewright_sim::program::window::{function_address, function_index};
/// assert_eq!(function_index(function_address(7)), Some(7));
/// assert_eq!(function_index(function_address(7) + 1), None);
/// ```
pub fn function_index(address: u64) -> Option<u32> {
    let distance = address.checked_sub(FUNCTION)?;
    if distance % 16 == 0 { u32::try_from(distance / 16).ok() } else { None }
}
