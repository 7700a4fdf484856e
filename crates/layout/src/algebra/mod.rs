//! The operations on layouts, one file each. All of them are methods of [`Layout`](crate::Layout).

mod coalesce;
mod complement;
mod compose;
mod divide;
mod domain;
mod inverse;
mod product;
mod recast;
