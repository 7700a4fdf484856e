//! `if`: one arm while staging, or both arms as regions of the kernel.

use std::panic::Location;

use tilewright_ir::{Diagnostic, Op, Opcode, Value};

use super::carry::{Carry, close_at, hand_on, report_at, values_of};
use super::loops::{HostLoop, StagedLoop};
use crate::trace;
use crate::value::Val;

/// What can stand after `if` and `while`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition",
    note = "a condition is a `bool`, decided while staging, or a `Val<bool>`, decided when the kernel runs",
    note = "a tile of conditions chooses by element: `select(conditions, a, b)`; `conditions.any_all()` is one condition"
)]
pub trait Condition {
    /// The object that runs the arms of an `if` with results of type `V`.
    type Branch<V>;
    /// The object that runs a `while`.
    type Loop;
    /// Opens an `if`.
    #[track_caller]
    fn branch<V>(self) -> Self::Branch<V>;
    /// Opens a `while`.
    #[track_caller]
    fn looping() -> Self::Loop;
}

/// Opens an `if`.
#[track_caller]
pub fn branch<V, C: Condition>(condition: C) -> C::Branch<V> {
    condition.branch()
}

/// An `if` that is decided while staging.
#[derive(Debug)]
pub struct HostBranch<V> {
    arm: Option<bool>,
    value: Option<V>,
}

/// An `if` of the kernel.
#[derive(Debug)]
pub struct StagedBranch<V> {
    op: Op,
    at: &'static Location<'static>,
    arms: u32,
    value: Option<V>,
    /// How to put other staged values into the value.
    replace: fn(&mut V, &mut dyn Iterator<Item = Value>),
    value_count: usize,
    saved: Vec<Vec<Value>>,
    /// How many variables have left the current arm; after the arms, how many values have been joined.
    left: usize,
    /// What each arm hands on: the value of the `if`, then the saved variables.
    yields: [Vec<Value>; 2],
    results: std::vec::IntoIter<Value>,
}

#[diagnostic::do_not_recommend]
impl Condition for bool {
    type Branch<V> = HostBranch<V>;
    type Loop = HostLoop;
    fn branch<V>(self) -> HostBranch<V> {
        HostBranch { arm: Some(self), value: None }
    }
    fn looping() -> HostLoop {
        HostLoop
    }
}

#[diagnostic::do_not_recommend]
impl Condition for Val<bool> {
    type Branch<V> = StagedBranch<V>;
    type Loop = StagedLoop;
    #[track_caller]
    fn branch<V>(self) -> StagedBranch<V> {
        let op = trace::push(Opcode::If, [self.id], [], []);
        StagedBranch {
            op,
            at: Location::caller(),
            arms: 0,
            value: None,
            replace: |_, _| {},
            value_count: 0,
            saved: Vec::new(),
            left: 0,
            yields: [Vec::new(), Vec::new()],
            results: Vec::new().into_iter(),
        }
    }
    #[track_caller]
    fn looping() -> StagedLoop {
        StagedLoop::open()
    }
}

impl<V> HostBranch<V> {
    /// Nothing to do: the variables are ordinary ones.
    pub fn save<C: ?Sized>(&mut self, _variable: &C) {}
    /// The arm to run, once.
    pub fn arm(&mut self) -> Option<bool> {
        self.arm.take()
    }
    /// Takes the value of the arm.
    pub fn put(&mut self, value: V) {
        self.value = Some(value);
    }
    /// Nothing to do.
    pub fn leave<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// Nothing to do.
    pub fn join<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// The value of the `if`.
    ///
    /// # Panics
    /// Never in code that the macro makes: an arm has run.
    #[allow(clippy::panic, reason = "the macro calls `put` in the arm that ran")]
    pub fn finish(self) -> V {
        self.value.unwrap_or_else(|| panic!("an `if` ended before its arm did"))
    }
}

impl<V> StagedBranch<V> {
    /// Notes the value of a variable before the arms.
    pub fn save<C: Carry + ?Sized>(&mut self, variable: &C) {
        self.saved.push(values_of(variable));
    }

    /// Both arms in turn.
    pub fn arm(&mut self) -> Option<bool> {
        if self.arms > 0 {
            let yields = self.yields[self.arms as usize - 1].clone();
            close_at(self.at, Opcode::Yield, yields);
        }
        self.arms += 1;
        self.left = 0;
        if self.arms > 2 {
            self.results = merge(self.op, self.at, &self.yields).into_iter();
            return None;
        }
        trace::open(self.op);
        Some(self.arms == 1)
    }

    /// Takes the value of an arm.
    pub fn put(&mut self, value: V)
    where
        V: Carry,
    {
        let values = values_of(&value);
        self.replace = V::replace;
        self.value_count = values.len();
        self.yields[self.arms as usize - 1].extend(values);
        if self.value.is_none() {
            self.value = Some(value);
        }
    }

    /// Takes the value of a variable at the end of an arm, and puts the saved one back for the other arm.
    pub fn leave<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        let saved = self.saved[self.left].clone();
        self.yields[self.arms as usize - 1].extend(hand_on(self.at, values_of(variable), saved.len()));
        variable.replace(&mut saved.into_iter());
        self.left += 1;
    }

    /// Gives a variable its value after the `if`.
    pub fn join<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        // The value of the `if` comes first; it waits for `finish`.
        let mut rest = self.results.clone().skip(self.value_count + self.left);
        variable.replace(&mut rest);
        self.left += values_of(variable).len();
    }

    /// The value of the `if`.
    ///
    /// # Panics
    /// Never in code that the macro makes: both arms have run.
    #[allow(clippy::panic, reason = "the macro calls `put` in both arms")]
    pub fn finish(mut self) -> V {
        let mut value = self.value.take().unwrap_or_else(|| panic!("an `if` ended before its arms did"));
        (self.replace)(&mut value, &mut self.results);
        value
    }
}

/// One value for each place: what both arms agree on, or a result of the `if`.
fn merge(op: Op, at: &'static Location<'static>, [then, other]: &[Vec<Value>; 2]) -> Vec<Value> {
    if then.len() != other.len() {
        let message = format!(
            "the arms of this `if` give {} and {} staged values; both must give as many",
            then.len(),
            other.len()
        );
        report_at(at, &message);
    }
    trace::with(|t| {
        let regions = t.builder.func.op(op).regions.clone();
        let ends: Vec<Op> = regions.iter().filter_map(|&r| t.builder.func.terminator(r)).collect();
        for &end in &ends {
            t.builder.func.op_mut(end).operands.clear();
        }
        let mut merged = Vec::with_capacity(then.len());
        for (&a, &b) in then.iter().zip(other) {
            if a == b {
                merged.push(a);
                continue;
            }
            let (ta, tb) = (t.ty(a), t.ty(b));
            if ta != tb {
                let loc = t.place(at);
                let message =
                    format!("the arms of this `if` give {ta} and {tb}; both must give the same type");
                let diagnostic = Diagnostic::new(message, loc, &t.builder.func.locations);
                t.errors.push(diagnostic);
                merged.push(t.builder.value(Opcode::Poison, [], [], Some(ta), loc));
                continue;
            }
            for (&end, value) in ends.iter().zip([a, b]) {
                t.builder.func.op_mut(end).operands.push(value);
            }
            merged.push(t.builder.func.add_result(op, ta));
        }
        merged
    })
}

/// An `if` without `else`, for code of this crate that the macro does not rewrite.
#[track_caller]
pub(crate) fn when(condition: Val<bool>, body: impl FnOnce()) {
    let mut branch: StagedBranch<()> = condition.branch();
    branch.arm();
    body();
    branch.put(());
    branch.arm();
    branch.put(());
    branch.arm();
    branch.finish();
}
