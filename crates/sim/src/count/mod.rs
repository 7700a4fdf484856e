//! What a profiler would count: instructions, bank conflicts, sectors, and the time they must at least take.
//!
//! The machine records into [`Sites`], one entry an op, while it runs; [`Counts`] is the report made of them afterwards, and
//! [`estimate`] holds the report against the peaks of a [`Gpu`].
//!
//! * [`pattern`]: how one warp's addresses fall on banks and sectors. The only place that knows the rules.
//! * [`sites`](Sites): the hot side. Additions and no allocation; an op number out of range is ignored.
//! * [`class`](OpClass): which kind of work an instruction is, from its text.
//! * [`counts`](Counts): sums, percentages and the table of memory accesses.
//! * [`roofline`](estimate): which of the peaks of a GPU binds.
//!
//! Limits: caches are not modelled. Sectors are what the warps ask for, so they bound the traffic of L2 and DRAM from above. PTX
//! instructions are counted, and the assembler makes more or fewer of them.

mod class;
mod counts;
pub mod pattern;
mod roofline;
mod sites;

pub use class::OpClass;
pub use counts::{Counts, Flow, LaunchFacts, MixRow, OpInfo, Residency, Shared, SiteRow, TensorRow};
pub use roofline::{Limit, Roofline, estimate};
pub use sites::{Sites, Traffic};
pub use tilewright_hardware::{Gpu, TensorKind};
