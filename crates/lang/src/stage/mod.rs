//! What `#[kernel]` expands to: control flow whose condition decides, by its type, between staging time and run time.
//!
//! The macro turns every `if`, `while` and `for` into a small object from here. On host values (`bool`, ordinary iterators) the
//! object does what the keyword does. On staged values it opens a region of the kernel, lets the body run once to fill it, and
//! threads the variables that the body assigns through the region: `enter`, `save`, `leave` and `join` are called with each of
//! them. Nothing here is meant to be called by hand.

mod branch;
mod carry;
mod compare;
mod loops;

use std::panic::Location;

pub use tilewright_ir::Value;
use tilewright_ir::{Frame, Loc};

pub(crate) use branch::when;
pub use branch::{Condition, HostBranch, StagedBranch, branch};
pub use carry::Carry;
pub(crate) use compare::compare;
pub use compare::{And, Compare, Equals, Or, and, eq, ge, gt, le, lt, ne, or};
pub use loops::{
    HostFor, HostLoop, RangeThrough, RangeTo, Source, StagedFor, StagedLoop, StagedRange, TypeOf, each,
    looping, range, range_inclusive, type_of,
};

use crate::kernel::{Argument, Kernel};
use crate::trace;
use crate::{Error, kernel};

/// A helper that is being executed; ops staged until it is dropped know its name and caller.
#[derive(Debug)]
pub struct FrameGuard {
    caller: Frame,
    call: Loc,
}

/// Enters a `#[device]` function.
#[track_caller]
#[must_use]
pub fn frame(name: &str) -> FrameGuard {
    let at = Location::caller();
    trace::with(|t| {
        let call = t.place(at);
        let frame = t.builder.func.locations.add_frame(name, call);
        FrameGuard { caller: std::mem::replace(&mut t.frame, frame), call }
    })
}

impl Drop for FrameGuard {
    fn drop(&mut self) {
        // During a panic the tracer may be gone already; then there is nothing to restore.
        if !std::thread::panicking() {
            trace::with(|t| (t.frame, t.last) = (self.caller, self.call));
        }
    }
}

/// Stages a kernel.
///
/// # Errors
/// Everything that staging and the verifier found.
#[track_caller]
pub fn kernel(name: &str, body: impl FnOnce()) -> Result<Kernel, Error> {
    kernel::stage(name, body)
}

/// Declares a run-time parameter.
#[track_caller]
#[must_use]
pub fn argument<A: Argument>(name: &str) -> A {
    A::declare(name)
}

/// What a compile-time parameter of a kernel can be: a plain value that can be copied and compared, so that equal constants give
/// equal kernels.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a compile-time parameter of a kernel",
    note = "a configuration struct needs `#[derive(Clone, PartialEq)]`",
    note = "if this name hides a staged type, write `#[runtime]` before the parameter: the attribute sees names, not types"
)]
pub trait Constant {}

impl<T: Clone + PartialEq> Constant for T {}

/// Checks that a parameter that looked like a constant is one.
pub fn assert_constant<T: Constant>() {}

/// Launch bounds, from the arguments of `#[kernel]`.
pub mod launch {
    use crate::trace;

    /// What gives the threads of a block: a number, or numbers for x, y and z.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a number of threads",
        note = "threads are a `u32`, or two or three of them for x, y and z"
    )]
    pub trait Threads {
        /// x, y, z.
        fn xyz(self) -> [u32; 3];
    }

    #[diagnostic::do_not_recommend]
    impl Threads for u32 {
        fn xyz(self) -> [u32; 3] {
            [self, 1, 1]
        }
    }

    #[diagnostic::do_not_recommend]
    impl Threads for (u32, u32) {
        fn xyz(self) -> [u32; 3] {
            [self.0, self.1, 1]
        }
    }

    #[diagnostic::do_not_recommend]
    impl Threads for (u32, u32, u32) {
        fn xyz(self) -> [u32; 3] {
            [self.0, self.1, self.2]
        }
    }

    /// The block has exactly these threads.
    #[track_caller]
    pub fn threads(threads: impl Threads) {
        let xyz = threads.xyz();
        let total = xyz.iter().map(|&n| u64::from(n)).product::<u64>();
        if !(1..=1024).contains(&total) {
            trace::error(format!("a block of {total} threads; expected 1 to 1024"));
        }
        trace::with(|t| t.builder.func.launch.threads = Some(xyz));
    }

    /// So many blocks shall fit on a multiprocessor.
    pub fn min_blocks(blocks: u32) {
        trace::with(|t| t.builder.func.launch.min_blocks = Some(blocks));
    }

    /// Blocks form clusters of this shape.
    #[track_caller]
    pub fn cluster(x: u32, y: u32, z: u32) {
        let total = u64::from(x) * u64::from(y) * u64::from(z);
        if !(1..=16).contains(&total) {
            trace::error(format!(
                "a cluster of {total} blocks; expected 1 to 8, or 16 where the chip allows it"
            ));
        }
        trace::with(|t| t.builder.func.launch.cluster = Some([x, y, z]));
    }

    /// A thread uses so many registers at most.
    pub fn max_registers(registers: u32) {
        trace::with(|t| t.builder.func.launch.max_registers = Some(registers));
    }
}
