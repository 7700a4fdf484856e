//! Memory that devices can reach.
//!
//! | file | what |
//! | --- | --- |
//! | `buffer.rs` | arrays on a device, and parts of them |
//! | `copy.rs` | copies and filling |
//! | `allocation.rs` | what owns memory, and how it goes |
//! | `order.rs` | what must wait for what |

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod copy;
pub(crate) mod order;

pub use buffer::{Buffer, Slice, SliceMut};
pub use copy::{Source, Target};
