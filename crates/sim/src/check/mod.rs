//! What the checker remembers: who knows of whom, who touched which byte last, and what was found.
//!
//! Three layers, none of which executes anything:
//!
//! * [`Knowledge`] and [`WarpClock`] are vector clocks: what has happened before the point where a thread stands.
//! * [`Shadow`] and [`GlobalShadow`] remember, for every byte, the accesses that a later one could still conflict with, and
//!   judge each new access by the issuer's knowledge. The rules are in [`Access`].
//! * [`Finding`] and [`Findings`] are what a person reads.
//!
//! ```
//! use tilewright_sim::check::{Access, Agent, Epoch, Hazard, Kind, Proxy, Shadow, WarpClock};
//!
//! let mut shared = Shadow::new(1024);
//! let (mut writer, mut reader) = (WarpClock::new(0, 0, u32::MAX), WarpClock::new(0, 1, u32::MAX));
//! let at = |warp: &WarpClock, slot| Epoch { agent: Agent { cluster: 0, slot, block: 0, lane: 0 }, clock: warp.clock() };
//!
//! let wrote = at(&writer, 0);
//! shared.access(0..4, &Access::plain(wrote, writer.view(0), 10, Kind::Write));
//! let read = at(&reader, 1);
//! let conflict = shared.access(0..4, &Access::plain(read, reader.view(0), 20, Kind::Read));
//! assert_eq!(conflict.map(|c| (c.hazard, c.earlier.pc)), Some((Hazard::ReadAfterWrite, 10)));
//!
//! // With a barrier in between, all is well.
//! reader.acquire(u32::MAX, &writer.release(u32::MAX));
//! let read = at(&reader, 1);
//! assert_eq!(shared.access(0..4, &Access::plain(read, reader.view(0), 20, Kind::Read)), None);
//! ```
//!
//! # Contract
//!
//! * No input panics: ranges are cut to the region, lanes are taken modulo 32.
//! * No false alarm comes from the compact representation. Where memory is bounded (long lists of readers), something may
//!   be forgotten, so that a conflict is missed; [`Shadow`] says when.

mod access;
mod clock;
mod finding;
mod findings;
mod history;
mod knowledge;
mod shadow;
#[cfg(test)]
mod tests;

pub use access::{Access, Conflict, Hazard, Kind, Past, Proxy, Scope};
pub use clock::{Agent, Epoch, WarpClock};
pub use finding::{Finding, FindingKind, Place, Source, likely_fix};
pub use findings::{Findings, Key};
pub use knowledge::Knowledge;
pub use shadow::{GlobalShadow, Shadow};
