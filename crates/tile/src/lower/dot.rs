//! `dot`: matrix products.

use tilewright_hardware::Arch;
use tilewright_ir::{Func, OpData};

use super::layout::{Layout, Team};
use super::{Lowering, Result};

/// The layout of the sums of a product, if it dictates one.
pub(super) fn accumulator(_func: &Func, _data: &OpData, _arch: Arch, _team: Team) -> Option<Layout> {
    None
}

/// How many warps a function with products should have.
pub(super) fn warps(_func: &Func) -> u32 {
    4
}

impl Lowering<'_> {
    pub(super) fn dot(&mut self, data: &OpData) -> Result<()> {
        Err(self.unsupported(data, "has no code yet"))
    }
}
