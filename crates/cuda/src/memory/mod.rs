//! Memory that devices can reach.
//!
//! | file | what |
//! | --- | --- |
//! | `buffer.rs` | arrays on a device, and parts of them |
//! | `pinned.rs`, `managed.rs` | arrays that host and devices share; `host.rs`: what the host sees of them |
//! | `pitched.rs` | arrays with padded rows, and rectangles |
//! | `pool.rs` | where memory in the order of a stream comes from |
//! | `copy.rs`, `copy_2d.rs` | copies and filling |
//! | `allocation.rs` | what owns memory, and how it goes |
//! | `order.rs` | what must wait for what |

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod copy;
mod copy_2d;
mod host;
mod managed;
pub(crate) mod order;
mod pinned;
mod pitched;
mod pool;

pub use buffer::{Buffer, Slice, SliceMut};
pub use copy::{Source, Target};
pub use copy_2d::{HostRect, HostRectMut, Source2d, Target2d};
pub use host::{HostMut, HostRef};
pub use managed::{Advice, Managed, Place};
pub use pinned::Pinned;
pub(crate) use pitched::Shape;
pub use pitched::{Pitched, Rect, RectMut};
pub use pool::{MemoryPool, PoolOptions, PoolUsage};
