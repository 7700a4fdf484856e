//! What has been compiled is kept: for the process in [`KernelCache`], for the user on disk in [`DiskCache`].
//!
//! Neither makes a driver call. The disk cache maps a [`Key`], the hash of everything that decides what a compiler makes,
//! to an [`Entry`], the bytes that it made. Nothing is ever lost with it: the worst outcome of a missing, full, damaged or
//! refused folder is that kernels are compiled again, so no operation of the disk cache returns an error; they are
//! counted in [`CacheStats`].

mod entry;
mod folder;
mod kernels;
mod key;
mod store;
mod trust;
mod upkeep;
pub(crate) mod wire;

pub use entry::{Entry, Problem};
pub use folder::{CACHE_VARIABLE, CacheFolder, CacheUsage};
pub use kernels::KernelCache;
pub use key::{Key, KeyBuilder, KeyError};
pub use store::{CACHE_SIZE_VARIABLE, CacheStats, DEFAULT_CAP, DiskCache, Put};
pub use upkeep::{EntryInfo, EntryState};
