//! Streams, events, and when work runs.

mod action;
mod event;
mod schedule;
mod stream;

pub(crate) use action::{Action, Copy, Endpoint, Fill, Launch, Place};
pub(crate) use event::{Event, Recorded};
pub(crate) use schedule::Schedule;
pub(crate) use stream::{PRIORITIES, Stream};
