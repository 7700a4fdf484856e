//! Looking inside a running kernel: traces for the simulator, assertions, traps.

use tilewright_ir::{Attr, Opcode, Operands, Value};

use crate::trace;
use crate::value::Val;

/// A value that can be traced.
pub trait Traced {
    /// The value inside.
    fn traced(&self) -> Value;
}

impl<T> Traced for Val<T> {
    fn traced(&self) -> Value {
        self.id
    }
}

/// Reports values to the simulator, with one `{}` for each; on a GPU it does nothing and costs nothing.
#[track_caller]
pub fn print(format: &str, values: &[&dyn Traced]) {
    let holes = format.matches("{}").count();
    if holes != values.len() {
        trace::error(format!("the format {format:?} has {holes} places for {} values", values.len()));
        return;
    }
    let values: Operands = values.iter().map(|v| v.traced()).collect();
    trace::effect(Opcode::Trace, values, [Attr::text(format)]);
}

/// Stops the grid with an error unless the condition holds.
#[track_caller]
pub fn assert_with(condition: Val<bool>, message: &str) {
    trace::effect(Opcode::Assert, [condition.id], [Attr::text(message)]);
}

/// Stops the grid with an error.
#[track_caller]
pub fn trap() {
    trace::effect(Opcode::Trap, [], []);
}

/// Sleeps for about so many nanoseconds.
#[track_caller]
pub fn sleep(nanoseconds: u32) {
    let n = trace::u32_const(nanoseconds);
    trace::effect(Opcode::Sleep, [n], []);
}
