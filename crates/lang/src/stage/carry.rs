//! [`Carry`]: what run-time regions can hand on.

use std::panic::Location;

use tilewright_ir::{Diagnostic, Opcode, Value};

use crate::trace;
use crate::value::Val;

/// What a run-time `if` or loop can hand on: staged values, and arrays, vectors and tuples of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot leave a run-time `if` or loop",
    label = "changed, or produced, where the condition is only known when the kernel runs",
    note = "host values change at staging time; make it a staged value with `val(..)`, or decide with a host `bool` or range"
)]
pub trait Carry {
    /// Appends the staged values inside.
    fn values(&self, out: &mut Vec<Value>);
    /// Replaces them, in the same order.
    fn replace(&mut self, from: &mut dyn Iterator<Item = Value>);
}

// Implementations of what macros call are not recommended: the list would hide the note that says what to do.
#[diagnostic::do_not_recommend]
impl<T> Carry for Val<T> {
    fn values(&self, out: &mut Vec<Value>) {
        out.push(self.id);
    }
    fn replace(&mut self, from: &mut dyn Iterator<Item = Value>) {
        if let Some(id) = from.next() {
            *self = Val::of(id);
        }
    }
}

macro_rules! carry_parts {
    ($( [$($generics:tt)*] $ty:ty; )*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> Carry for $ty {
            fn values(&self, out: &mut Vec<Value>) {
                self.iter().for_each(|part| part.values(out));
            }
            fn replace(&mut self, from: &mut dyn Iterator<Item = Value>) {
                self.iter_mut().for_each(|part| part.replace(from));
            }
        }
    )*};
}

carry_parts! {
    [C: Carry, const N: usize] [C; N];
    [C: Carry] Vec<C>;
    [C: Carry] Option<C>;
}

macro_rules! carry_tuples {
    ($( ($($name:ident $i:tt),*) )*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($name: Carry),*> Carry for ($($name,)*) {
            fn values(&self, _out: &mut Vec<Value>) {
                $( self.$i.values(_out); )*
            }
            fn replace(&mut self, _from: &mut dyn Iterator<Item = Value>) {
                $( self.$i.replace(_from); )*
            }
        }
    )*};
}

carry_tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

/// The staged values inside. What is done with them does not depend on the type of the variable, so the functions that do it take these.
pub(super) fn values_of(carried: &(impl Carry + ?Sized)) -> Vec<Value> {
    let mut out = Vec::new();
    carried.values(&mut out);
    out
}

/// The values of a variable at the end of a region: as many as it had when it came in, or a report.
pub(super) fn hand_on(at: &'static Location<'static>, mut values: Vec<Value>, size: usize) -> Vec<Value> {
    if values.len() != size {
        let message = format!(
            "the number of staged values in a variable changes here, from {size} to {}; only control flow of the host can do that",
            values.len()
        );
        report_at(at, &message);
        values.truncate(size);
    }
    values
}

/// The values of a variable at the end of a round of a loop: like those at its start, or a report. Types are rustc's business, but the
/// shape of a tile is part of its type only here.
pub(super) fn next_round(at: &'static Location<'static>, values: Vec<Value>, start: &[Value]) -> Vec<Value> {
    let mut values = hand_on(at, values, start.len());
    for (value, &before) in values.iter_mut().zip(start) {
        let (from, to) = trace::with(|t| (t.ty(before), t.ty(*value)));
        if from != to {
            let message = format!(
                "a variable that this loop carries is {from} at the start of a round and {to} at its end; its shape must stay"
            );
            report_at(at, &message);
            *value = trace::poison(from);
        }
    }
    values
}

pub(super) fn report_at(at: &'static Location<'static>, message: &str) {
    trace::with(|t| {
        let loc = t.place(at);
        let diagnostic = Diagnostic::new(message, loc, &t.builder.func.locations);
        // Both arms of an `if` can find the same mistake.
        if t.errors.last() != Some(&diagnostic) {
            t.errors.push(diagnostic);
        }
    });
}

pub(super) fn close_at(at: &'static Location<'static>, code: Opcode, operands: Vec<Value>) {
    trace::with(|t| {
        let loc = t.place(at);
        t.builder.push(code, operands, [], [], loc);
        t.builder.close();
    });
}
