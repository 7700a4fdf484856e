//! Tests of the checker's data structures.

mod groups;
mod laws;
mod model;
mod patterns;
mod report;
mod timing;
