//! [`role`]: different work for different warps of a block.

use std::ops::Range;

use tilewright_ir::{Attr, Opcode, Registers, Warps};

use crate::trace;

/// Some warps of a block, and how many registers each of their threads gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Role {
    /// For messages and profiles.
    pub name: &'static str,
    /// The warps.
    pub warps: Range<u32>,
    /// Registers of a thread: a multiple of 8 from 24 to 256; the warps must then be whole warpgroups. `None` leaves them alone.
    pub registers: Option<u32>,
}

/// Code for the warps of a role. Roles stand at the top of a kernel; their warps must not overlap.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel(threads = 256)]
/// fn two_jobs(out: Global<u32>) {
///     let loader = Role { name: "loader", warps: 0..4, registers: Some(40) };
///     let math = Role { name: "math", warps: 4..8, registers: Some(232) };
///     role(&loader, || out.store(1u32));
///     role(&math, || out.at(1).store(2u32));
/// }
/// assert!(two_jobs::stage()?.ir().contains("warps(4..8) registers(232)"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[track_caller]
pub fn role(role: &Role, body: impl FnOnce()) {
    open(role);
    body();
    trace::close(Opcode::Yield, []);
}

#[track_caller]
fn open(role: &Role) {
    let warp = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    let mut attrs = vec![
        Attr::text(role.name),
        Warps { start: warp(role.warps.start), end: warp(role.warps.end) }.into(),
    ];
    attrs.extend(role.registers.map(|n| Attr::from(Registers(n))));
    let op = trace::push(Opcode::Role, [], attrs, []);
    trace::open(op);
}
