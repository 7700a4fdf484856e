//! Code: images, modules, functions, the linker, and launches.

mod function;
mod image;
mod launch;
mod link;
mod module;
mod occupancy;

pub(crate) use function::Function;
pub(crate) use launch::Shape;
pub(crate) use link::Link;
pub(crate) use module::Module;
