//! The table of cases, by theme; each file belongs to the source of the same name.

mod async_copies;
mod atomics;
mod barriers;
mod block;
mod control;
mod elementwise;
mod extras;
mod faults;
mod hopper;
mod integer;
mod math;
mod memory;
mod tensor;
mod triton;
mod warp;
mod wgmma;

use crate::case::Case;

pub(crate) fn all() -> Vec<Case> {
    [
        elementwise::cases(),
        integer::cases(),
        math::cases(),
        control::cases(),
        memory::cases(),
        warp::cases(),
        block::cases(),
        barriers::cases(),
        atomics::cases(),
        async_copies::cases(),
        hopper::cases(),
        tensor::cases(),
        wgmma::cases(),
        extras::cases(),
        faults::cases(),
        triton::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
