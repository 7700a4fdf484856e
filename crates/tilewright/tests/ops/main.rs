//! Memory-bound operators against their definitions in f64: types, lengths, strides, special numbers, messages.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
#![allow(clippy::needless_range_loop, reason = "definitions have indices")]

mod common;
mod devices;
mod elements;
mod in_place;
mod losses;
mod margins;
mod messages;
mod norms;
mod reductions;
mod softmax;
mod steps;
mod table;
