//! What `#[kernel]` expands to: control flow whose condition decides, by its type, between staging time and run time.
//!
//! The macro turns every `if`, `while` and `for` into a small object from here. On host values (`bool`, ordinary iterators) the
//! object does what the keyword does. On staged values it opens a region of the kernel, lets the body run once to fill it, and
//! threads the variables that the body assigns through the region: `enter`, `save`, `leave` and `join` are called with each of
//! them. Nothing here is meant to be called by hand.

use std::marker::PhantomData;
use std::panic::Location;

pub use tilewright_ir::Value;
use tilewright_ir::{Cmp, Diagnostic, Frame, Loc, Op, Opcode, Type};

use crate::element::{Element, Integer};
use crate::kernel::{Argument, Kernel};
use crate::trace;
use crate::value::{Operand, Val};
use crate::{Error, kernel};

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

fn values_of(carried: &(impl Carry + ?Sized)) -> Vec<Value> {
    let mut out = Vec::new();
    carried.values(&mut out);
    out
}

// ---- if -----------------------------------------------------------------------------------------------------------------------

/// What can stand after `if` and `while`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a condition",
    note = "a condition is a `bool`, decided while staging, or a `Val<bool>`, decided when the kernel runs"
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
        let op = trace::push(Opcode::While, [], [], []);
        trace::open(op);
        StagedLoop {
            op,
            at: Location::caller(),
            round: 0,
            args: Vec::new(),
            body: Vec::new(),
            sizes: Vec::new(),
            turn: 0,
            yields: Vec::new(),
        }
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
            self.results = self.merge().into_iter();
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
        self.yields[self.arms as usize - 1].extend(hand_on(self.at, variable, saved.len()));
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

    /// One value for each place: what both arms agree on, or a result of the `if`.
    fn merge(&mut self) -> Vec<Value> {
        let [then, other] = &self.yields;
        if then.len() != other.len() {
            let message = format!(
                "the arms of this `if` give {} and {} staged values; both must give as many",
                then.len(),
                other.len()
            );
            report_at(self.at, &message);
        }
        let (op, at) = (self.op, self.at);
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
}

/// The values of a variable at the end of a region: as many as it had when it came in, or a report.
fn hand_on<C: Carry + ?Sized>(at: &'static Location<'static>, variable: &C, size: usize) -> Vec<Value> {
    let mut values = values_of(variable);
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

fn report_at(at: &'static Location<'static>, message: &str) {
    trace::with(|t| {
        let loc = t.place(at);
        let diagnostic = Diagnostic::new(message, loc, &t.builder.func.locations);
        // Both arms of an `if` can find the same mistake.
        if t.errors.last() != Some(&diagnostic) {
            t.errors.push(diagnostic);
        }
    });
}

fn close_at(at: &'static Location<'static>, code: Opcode, operands: Vec<Value>) {
    trace::with(|t| {
        let loc = t.place(at);
        t.builder.push(code, operands, [], [], loc);
        t.builder.close();
    });
}

// ---- while ----------------------------------------------------------------------------------------------------------------------

/// The type of a condition, without evaluating it.
#[derive(Debug)]
pub struct TypeOf<C>(PhantomData<fn() -> C>);

/// The type that a closure would return.
pub fn type_of<C, F: FnOnce() -> C>(_condition: F) -> TypeOf<C> {
    TypeOf(PhantomData)
}

/// Opens a `while`.
#[track_caller]
#[allow(clippy::needless_pass_by_value, reason = "the argument is only there for its type")]
pub fn looping<C: Condition<Loop = L>, L>(_condition: TypeOf<C>) -> L {
    C::looping()
}

/// A `while` that runs while staging.
#[derive(Debug)]
pub struct HostLoop;

impl HostLoop {
    /// Nothing to do.
    pub fn enter<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// Always another round: `test` ends the loop.
    #[allow(clippy::should_implement_trait, reason = "the macro calls it; it is no iterator")]
    pub fn next(&mut self) -> bool {
        true
    }
    /// Nothing to do.
    pub fn hold<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// The condition itself.
    pub fn test(&mut self, condition: bool) -> bool {
        condition
    }
    /// Nothing to do.
    pub fn pass<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// Nothing to do.
    pub fn leave<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// Nothing to do.
    pub fn join<C: ?Sized>(&mut self, _variable: &mut C) {}
}

/// A `while` of the kernel.
#[derive(Debug)]
pub struct StagedLoop {
    op: Op,
    at: &'static Location<'static>,
    round: u32,
    args: Vec<Value>,
    /// The values after the condition, then those of the body.
    body: Vec<Value>,
    sizes: Vec<usize>,
    turn: usize,
    yields: Vec<Value>,
}

impl StagedLoop {
    /// Carries a variable through the loop.
    pub fn enter<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        let args = carry_in(self.op, variable);
        self.sizes.push(args.len());
        self.args.extend(args);
    }

    /// One round to record.
    #[allow(clippy::should_implement_trait, reason = "the macro calls it; it is no iterator")]
    pub fn next(&mut self) -> bool {
        self.round += 1;
        if self.round == 1 {
            return true;
        }
        close_at(self.at, Opcode::Yield, std::mem::take(&mut self.yields));
        carry_out(self.op, &self.args);
        self.turn = 0;
        false
    }

    /// Takes the value of a variable after the condition, which may have changed it.
    pub fn hold<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        self.body.extend(hand_on(self.at, variable, self.sizes[self.turn]));
        self.turn += 1;
    }

    /// Ends the first region with the condition, and opens the body.
    pub fn test(&mut self, condition: Val<bool>) -> bool {
        let held = std::mem::take(&mut self.body);
        let operands = std::iter::once(condition.id).chain(held).collect();
        close_at(self.at, Opcode::Condition, operands);
        let (op, args) = (self.op, &self.args);
        self.body = trace::with(|t| {
            let region = t.builder.open(op);
            let types: Vec<Type> = args.iter().map(|&v| t.ty(v)).collect();
            types.into_iter().map(|ty| t.builder.func.add_arg(region, ty)).collect()
        });
        self.turn = 0;
        true
    }

    /// Gives a variable its value inside the body.
    pub fn pass<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        let values = slot(&self.body, &self.sizes, self.turn);
        variable.replace(&mut values.into_iter());
        self.turn += 1;
        if self.turn == self.sizes.len() {
            self.turn = 0;
        }
    }

    /// Takes the value of a variable at the end of the body.
    pub fn leave<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        self.yields.extend(hand_on(self.at, variable, self.sizes[self.turn]));
        self.turn += 1;
    }

    /// Gives a variable its value after the loop.
    pub fn join<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        carry_back(self.op, &self.sizes, self.turn, variable);
        self.turn += 1;
    }
}

/// Adds a variable to the operands of a loop and to the arguments of its first region; the variable becomes the argument.
fn carry_in<C: Carry + ?Sized>(op: Op, variable: &mut C) -> Vec<Value> {
    let values = values_of(variable);
    let args: Vec<Value> = trace::with(|t| {
        let region = t.builder.func.op(op).regions[0];
        let add = |&v: &Value| {
            t.builder.func.op_mut(op).operands.push(v);
            let ty = t.builder.func.ty(v);
            t.builder.func.add_arg(region, ty)
        };
        values.iter().map(add).collect()
    });
    variable.replace(&mut args.clone().into_iter());
    args
}

/// Gives a loop one result for each value that it carries.
fn carry_out(op: Op, args: &[Value]) {
    trace::with(|t| {
        for &arg in args {
            let ty = t.ty(arg);
            t.builder.func.add_result(op, ty);
        }
    });
}

fn carry_back<C: Carry + ?Sized>(op: Op, sizes: &[usize], turn: usize, variable: &mut C) {
    let results = trace::with(|t| t.builder.func.op(op).results.to_vec());
    variable.replace(&mut slot(&results, sizes, turn).into_iter());
}

/// The values that belong to variable number `turn`.
fn slot(values: &[Value], sizes: &[usize], turn: usize) -> Vec<Value> {
    let start: usize = sizes[..turn].iter().sum();
    values[start..start + sizes[turn]].to_vec()
}

// ---- for ------------------------------------------------------------------------------------------------------------------------

/// What can stand after `for .. in`.
pub trait Source {
    /// The object that runs the loop.
    type Loop;
    /// Opens the loop.
    #[track_caller]
    fn each(self) -> Self::Loop;
}

/// Opens a `for`.
#[track_caller]
pub fn each<S: Source>(source: S) -> S::Loop {
    source.each()
}

/// A `for` that runs while staging.
#[derive(Debug)]
pub struct HostFor<I>(I);

impl<I: IntoIterator> Source for I {
    type Loop = HostFor<I::IntoIter>;
    fn each(self) -> HostFor<I::IntoIter> {
        HostFor(self.into_iter())
    }
}

impl<I: Iterator> HostFor<I> {
    /// Nothing to do.
    pub fn enter<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// The next item.
    #[allow(clippy::should_implement_trait, reason = "the macro calls it on both kinds of loop")]
    pub fn next(&mut self) -> Option<I::Item> {
        self.0.next()
    }
    /// Nothing to do.
    pub fn leave<C: ?Sized>(&mut self, _variable: &mut C) {}
    /// Nothing to do.
    pub fn join<C: ?Sized>(&mut self, _variable: &mut C) {}
}

/// A range whose ends are only known when the kernel runs.
#[derive(Debug, Clone, Copy)]
pub struct StagedRange<T> {
    start: Val<T>,
    end: Val<T>,
    step: Option<Val<T>>,
}

impl<T: Integer> StagedRange<T> {
    /// Every `step`-th number. The step must be positive.
    #[must_use]
    #[track_caller]
    pub fn step_by(self, step: impl Operand<T>) -> StagedRange<T> {
        StagedRange { step: Some(step.val()), ..self }
    }
}

impl<T: Integer> Source for StagedRange<T> {
    type Loop = StagedFor<T>;
    #[track_caller]
    fn each(self) -> StagedFor<T> {
        trace::here();
        let step = self.step.unwrap_or_else(|| T::ONE.val());
        let op = trace::push(Opcode::For, [self.start.id, self.end.id, step.id], [], []);
        let region = trace::open(op);
        let index = trace::with(|t| t.builder.func.add_arg(region, Type::Scalar(T::ELEMENT)));
        StagedFor {
            op,
            at: Location::caller(),
            index: Some(Val::of(index)),
            args: Vec::new(),
            sizes: Vec::new(),
            turn: 0,
            yields: Vec::new(),
        }
    }
}

/// A `for` of the kernel.
#[derive(Debug)]
pub struct StagedFor<T> {
    op: Op,
    at: &'static Location<'static>,
    index: Option<Val<T>>,
    args: Vec<Value>,
    sizes: Vec<usize>,
    turn: usize,
    yields: Vec<Value>,
}

impl<T> StagedFor<T> {
    /// Carries a variable through the loop.
    pub fn enter<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        let args = carry_in(self.op, variable);
        self.sizes.push(args.len());
        self.args.extend(args);
    }

    /// The counter, once; then the end of the body.
    #[allow(clippy::should_implement_trait, reason = "the macro calls it on both kinds of loop")]
    pub fn next(&mut self) -> Option<Val<T>> {
        let index = self.index.take();
        if index.is_none() {
            close_at(self.at, Opcode::Yield, std::mem::take(&mut self.yields));
            carry_out(self.op, &self.args);
            self.turn = 0;
        }
        index
    }

    /// Takes the value of a variable at the end of the body.
    pub fn leave<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        self.yields.extend(hand_on(self.at, variable, self.sizes[self.turn]));
        self.turn += 1;
    }

    /// Gives a variable its value after the loop.
    pub fn join<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        carry_back(self.op, &self.sizes, self.turn, variable);
        self.turn += 1;
    }
}

/// `a..b`: an ordinary range of host numbers, or a run-time one if either end is staged.
#[diagnostic::on_unimplemented(
    message = "no range from `{Self}` to `{B}`",
    note = "both ends need the same integer type, such as `0..n` with `n: Val<u32>`"
)]
pub trait RangeTo<B> {
    /// The range.
    type Range;
    /// Makes it.
    #[track_caller]
    fn range(self, end: B) -> Self::Range;
}

/// `a..=b`, likewise.
#[diagnostic::on_unimplemented(
    message = "no range from `{Self}` to `{B}`",
    note = "both ends need the same host integer type; a range of staged values excludes its end, as in `a..b + 1`"
)]
pub trait RangeThrough<B> {
    /// The range.
    type Range;
    /// Makes it.
    #[track_caller]
    fn range(self, last: B) -> Self::Range;
}

// Here and below, what an operator gives is a parameter of its own: as a projection, rustc would report each mistake twice.

/// `a..b`.
#[track_caller]
pub fn range<A: RangeTo<B, Range = R>, B, R>(start: A, end: B) -> R {
    start.range(end)
}

/// `a..=b`.
#[track_caller]
pub fn range_inclusive<A: RangeThrough<B, Range = R>, B, R>(start: A, last: B) -> R {
    start.range(last)
}

#[diagnostic::do_not_recommend]
impl<T: Integer> RangeTo<Val<T>> for Val<T> {
    type Range = StagedRange<T>;
    #[track_caller]
    fn range(self, end: Val<T>) -> StagedRange<T> {
        StagedRange { start: self, end, step: None }
    }
}

#[diagnostic::do_not_recommend]
impl<T: Integer> RangeTo<T> for Val<T> {
    type Range = StagedRange<T>;
    #[track_caller]
    fn range(self, end: T) -> StagedRange<T> {
        StagedRange { start: self, end: end.val(), step: None }
    }
}

macro_rules! host_ranges {
    (staged $($ty:ty)*) => {$(
        #[diagnostic::do_not_recommend]
        impl RangeTo<Val<$ty>> for $ty {
            type Range = StagedRange<$ty>;
            #[track_caller]
            fn range(self, end: Val<$ty>) -> StagedRange<$ty> {
                StagedRange { start: self.val(), end, step: None }
            }
        }
    )*};
    ($($ty:ty)*) => {$(
        #[diagnostic::do_not_recommend]
        impl RangeTo<$ty> for $ty {
            type Range = std::ops::Range<$ty>;
            fn range(self, end: $ty) -> std::ops::Range<$ty> {
                self..end
            }
        }
        #[diagnostic::do_not_recommend]
        impl RangeThrough<$ty> for $ty {
            type Range = std::ops::RangeInclusive<$ty>;
            fn range(self, last: $ty) -> std::ops::RangeInclusive<$ty> {
                self..=last
            }
        }
    )*};
}

host_ranges!(i8 i16 i32 i64 u8 u16 u32 u64 usize isize char);
host_ranges!(staged i8 i16 i32 i64 u8 u16 u32 u64);

// ---- comparisons and logic ----------------------------------------------------------------------------------------------------

/// `<`, `<=`, `>`, `>=`: a `bool` on host values, a `Val<bool>` if either side is staged.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be compared with `{B}`",
    note = "both sides need the same type: convert with `.cast()`, or give the constant its type as in `0u32`"
)]
pub trait Compare<B> {
    /// `bool` or `Val<bool>`.
    type Output;
    /// `<`.
    #[track_caller]
    fn lt(&self, other: &B) -> Self::Output;
    /// `<=`.
    #[track_caller]
    fn le(&self, other: &B) -> Self::Output;
    /// `>`.
    #[track_caller]
    fn gt(&self, other: &B) -> Self::Output;
    /// `>=`.
    #[track_caller]
    fn ge(&self, other: &B) -> Self::Output;
}

/// `==` and `!=`: a `bool` on host values, a `Val<bool>` if either side is staged.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be compared with `{B}`",
    note = "both sides need the same type: convert with `.cast()`, or give the constant its type as in `0u32`"
)]
pub trait Equals<B> {
    /// `bool` or `Val<bool>`.
    type Output;
    /// `==`.
    #[track_caller]
    fn eq(&self, other: &B) -> Self::Output;
    /// `!=`.
    #[track_caller]
    fn ne(&self, other: &B) -> Self::Output;
}

#[diagnostic::do_not_recommend]
impl<T: PartialOrd> Compare<T> for T {
    type Output = bool;
    fn lt(&self, other: &T) -> bool {
        self < other
    }
    fn le(&self, other: &T) -> bool {
        self <= other
    }
    fn gt(&self, other: &T) -> bool {
        self > other
    }
    fn ge(&self, other: &T) -> bool {
        self >= other
    }
}

#[diagnostic::do_not_recommend]
impl<T: PartialEq> Equals<T> for T {
    type Output = bool;
    fn eq(&self, other: &T) -> bool {
        self == other
    }
    fn ne(&self, other: &T) -> bool {
        self != other
    }
}

#[track_caller]
fn compare<T>(a: Val<T>, b: impl Operand<T>, how: Cmp) -> Val<bool> {
    let b = b.val();
    Val::of(trace::value(Opcode::Cmp, [a.id, b.id], [how.into()], None))
}

macro_rules! comparisons {
    ([$($generics:tt)*] $left:ty, $right:ty, |$a:ident| $value:expr) => {
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> Compare<$right> for $left {
            type Output = Val<bool>;
            #[track_caller]
            fn lt(&self, other: &$right) -> Val<bool> { let $a = *self; compare($value, *other, Cmp::Lt) }
            #[track_caller]
            fn le(&self, other: &$right) -> Val<bool> { let $a = *self; compare($value, *other, Cmp::Le) }
            #[track_caller]
            fn gt(&self, other: &$right) -> Val<bool> { let $a = *self; compare($value, *other, Cmp::Gt) }
            #[track_caller]
            fn ge(&self, other: &$right) -> Val<bool> { let $a = *self; compare($value, *other, Cmp::Ge) }
        }
        comparisons!(equals [$($generics)*] $left, $right, |$a| $value);
    };
    (equals [$($generics:tt)*] $left:ty, $right:ty, |$a:ident| $value:expr) => {
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> Equals<$right> for $left {
            type Output = Val<bool>;
            #[track_caller]
            fn eq(&self, other: &$right) -> Val<bool> { let $a = *self; compare($value, *other, Cmp::Eq) }
            #[track_caller]
            fn ne(&self, other: &$right) -> Val<bool> { let $a = *self; compare($value, *other, Cmp::Ne) }
        }
    };
}

comparisons!([T: Element] Val<T>, Val<T>, |a| a);
comparisons!([T: Element] Val<T>, T, |a| a);

macro_rules! host_left_comparisons {
    ($($ty:ty)*) => {$( comparisons!([] $ty, Val<$ty>, |a| a.val()); )*};
}

host_left_comparisons!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 half::f16 half::bf16);
comparisons!(equals [] bool, Val<bool>, |a| a.val());

/// `<`.
#[track_caller]
pub fn lt<A: Compare<B, Output = O>, B, O>(a: &A, b: &B) -> O {
    Compare::lt(a, b)
}

/// `<=`.
#[track_caller]
pub fn le<A: Compare<B, Output = O>, B, O>(a: &A, b: &B) -> O {
    Compare::le(a, b)
}

/// `>`.
#[track_caller]
pub fn gt<A: Compare<B, Output = O>, B, O>(a: &A, b: &B) -> O {
    Compare::gt(a, b)
}

/// `>=`.
#[track_caller]
pub fn ge<A: Compare<B, Output = O>, B, O>(a: &A, b: &B) -> O {
    Compare::ge(a, b)
}

/// `==`.
#[track_caller]
pub fn eq<A: Equals<B, Output = O>, B, O>(a: &A, b: &B) -> O {
    Equals::eq(a, b)
}

/// `!=`.
#[track_caller]
pub fn ne<A: Equals<B, Output = O>, B, O>(a: &A, b: &B) -> O {
    Equals::ne(a, b)
}

/// `&&`. The right side is only evaluated, or executed, if the left side holds.
#[diagnostic::on_unimplemented(
    message = "no `&&` of `{Self}` and `{B}`",
    note = "both sides are `bool` or `Val<bool>`"
)]
pub trait And<B> {
    /// `bool` or `Val<bool>`.
    type Output;
    /// `&&`.
    #[track_caller]
    fn and(self, right: impl FnOnce() -> B) -> Self::Output;
}

/// `||`. The right side is only evaluated, or executed, if the left side does not hold.
#[diagnostic::on_unimplemented(
    message = "no `||` of `{Self}` and `{B}`",
    note = "both sides are `bool` or `Val<bool>`"
)]
pub trait Or<B> {
    /// `bool` or `Val<bool>`.
    type Output;
    /// `||`.
    #[track_caller]
    fn or(self, right: impl FnOnce() -> B) -> Self::Output;
}

/// `&&`.
#[track_caller]
pub fn and<A: And<B, Output = O>, B, O>(left: A, right: impl FnOnce() -> B) -> O {
    left.and(right)
}

/// `||`.
#[track_caller]
pub fn or<A: Or<B, Output = O>, B, O>(left: A, right: impl FnOnce() -> B) -> O {
    left.or(right)
}

#[diagnostic::do_not_recommend]
impl And<bool> for bool {
    type Output = bool;
    fn and(self, right: impl FnOnce() -> bool) -> bool {
        self && right()
    }
}

#[diagnostic::do_not_recommend]
impl Or<bool> for bool {
    type Output = bool;
    fn or(self, right: impl FnOnce() -> bool) -> bool {
        self || right()
    }
}

#[diagnostic::do_not_recommend]
impl And<Val<bool>> for bool {
    type Output = Val<bool>;
    #[track_caller]
    fn and(self, right: impl FnOnce() -> Val<bool>) -> Val<bool> {
        if self { right() } else { false.val() }
    }
}

#[diagnostic::do_not_recommend]
impl Or<Val<bool>> for bool {
    type Output = Val<bool>;
    #[track_caller]
    fn or(self, right: impl FnOnce() -> Val<bool>) -> Val<bool> {
        if self { true.val() } else { right() }
    }
}

macro_rules! staged_logic {
    ($($right:ty)*) => {$(
        #[diagnostic::do_not_recommend]
        impl And<$right> for Val<bool> {
            type Output = Val<bool>;
            #[track_caller]
            fn and(self, right: impl FnOnce() -> $right) -> Val<bool> {
                either(self, || right().val(), || false.val())
            }
        }
        #[diagnostic::do_not_recommend]
        impl Or<$right> for Val<bool> {
            type Output = Val<bool>;
            #[track_caller]
            fn or(self, right: impl FnOnce() -> $right) -> Val<bool> {
                either(self, || true.val(), || right().val())
            }
        }
    )*};
}

staged_logic!(bool Val<bool>);

#[track_caller]
fn either(
    condition: Val<bool>,
    yes: impl FnOnce() -> Val<bool>,
    no: impl FnOnce() -> Val<bool>,
) -> Val<bool> {
    let mut branch: StagedBranch<Val<bool>> = condition.branch();
    branch.arm();
    branch.put(yes());
    branch.arm();
    branch.put(no());
    branch.arm();
    branch.finish()
}

// ---- kernels --------------------------------------------------------------------------------------------------------------------

/// A helper that is being executed; ops staged until it is dropped know its name and caller.
#[derive(Debug)]
pub struct FrameGuard {
    caller: Frame,
    call: Loc,
}

/// Enters a `#[device]` function.
#[track_caller]
#[must_use]
pub fn frame(name: &str) -> FrameGuard {
    let at = Location::caller();
    trace::with(|t| {
        let call = t.place(at);
        let frame = t.builder.func.locations.add_frame(name, call);
        FrameGuard { caller: std::mem::replace(&mut t.frame, frame), call }
    })
}

impl Drop for FrameGuard {
    fn drop(&mut self) {
        // During a panic the tracer may be gone already; then there is nothing to restore.
        if !std::thread::panicking() {
            trace::with(|t| (t.frame, t.last) = (self.caller, self.call));
        }
    }
}

/// Stages a kernel.
///
/// # Errors
/// Everything that staging and the verifier found.
#[track_caller]
pub fn kernel(name: &str, body: impl FnOnce()) -> Result<Kernel, Error> {
    kernel::stage(name, body)
}

/// Declares a run-time parameter.
#[track_caller]
#[must_use]
pub fn argument<A: Argument>(name: &str) -> A {
    A::declare(name)
}

/// What a compile-time parameter of a kernel can be: a plain value that can be copied and compared, so that equal constants give
/// equal kernels.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a compile-time parameter of a kernel",
    note = "a configuration struct needs `#[derive(Clone, PartialEq)]`",
    note = "if this name hides a staged type, write `#[runtime]` before the parameter: the attribute sees names, not types"
)]
pub trait Constant {}

impl<T: Clone + PartialEq> Constant for T {}

/// Checks that a parameter that looked like a constant is one.
pub fn assert_constant<T: Constant>() {}

/// Launch bounds, from the arguments of `#[kernel]`.
pub mod launch {
    use crate::trace;

    /// What gives the threads of a block: a number, or numbers for x, y and z.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a number of threads",
        note = "threads are a `u32`, or two or three of them for x, y and z"
    )]
    pub trait Threads {
        /// x, y, z.
        fn xyz(self) -> [u32; 3];
    }

    #[diagnostic::do_not_recommend]
    impl Threads for u32 {
        fn xyz(self) -> [u32; 3] {
            [self, 1, 1]
        }
    }

    #[diagnostic::do_not_recommend]
    impl Threads for (u32, u32) {
        fn xyz(self) -> [u32; 3] {
            [self.0, self.1, 1]
        }
    }

    #[diagnostic::do_not_recommend]
    impl Threads for (u32, u32, u32) {
        fn xyz(self) -> [u32; 3] {
            [self.0, self.1, self.2]
        }
    }

    /// The block has exactly these threads.
    #[track_caller]
    pub fn threads(threads: impl Threads) {
        let xyz = threads.xyz();
        let total = xyz.iter().map(|&n| u64::from(n)).product::<u64>();
        if !(1..=1024).contains(&total) {
            trace::error(format!("a block of {total} threads; expected 1 to 1024"));
        }
        trace::with(|t| t.builder.func.launch.threads = Some(xyz));
    }

    /// So many blocks shall fit on a multiprocessor.
    pub fn min_blocks(blocks: u32) {
        trace::with(|t| t.builder.func.launch.min_blocks = Some(blocks));
    }

    /// Blocks form clusters of this shape.
    #[track_caller]
    pub fn cluster(x: u32, y: u32, z: u32) {
        let total = u64::from(x) * u64::from(y) * u64::from(z);
        if !(1..=16).contains(&total) {
            trace::error(format!(
                "a cluster of {total} blocks; expected 1 to 8, or 16 where the chip allows it"
            ));
        }
        trace::with(|t| t.builder.func.launch.cluster = Some([x, y, z]));
    }

    /// A thread uses so many registers at most.
    pub fn max_registers(registers: u32) {
        trace::with(|t| t.builder.func.launch.max_registers = Some(registers));
    }
}
