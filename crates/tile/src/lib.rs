//! The tile level: what its ops mean, and how they become code for threads.
//!
//! A kernel of the tile level says what a whole *program* does to tiles: blocks of elements that all of its threads hold together.
//! [`lower`] turns it into a kernel for threads; [`interp`] executes it as it stands, and so says what it means.

pub mod fuzz;
pub mod interp;
mod lower;
mod specialise;

pub use lower::{LowerError, Lowered, MapParameter, Number, lower};
pub use specialise::{Fact, specialise};
