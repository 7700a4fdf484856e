//! `while` and `for`: loops that run while staging, or loops of the kernel; and ranges, which tell them apart.

use std::marker::PhantomData;
use std::panic::Location;

use tilewright_ir::{Op, Opcode, Type, Value};

use super::branch::Condition;
use super::carry::{Carry, close_at, next_round, values_of};
use crate::element::Integer;
use crate::trace;
use crate::value::{Operand, Val};

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
    /// Opens the loop and the region of its condition.
    #[track_caller]
    pub(super) fn open() -> StagedLoop {
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

    /// Carries a variable through the loop.
    pub fn enter<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        let args = carry_in(self.op, &values_of(variable));
        self.sizes.push(args.len());
        self.args.extend(&args);
        variable.replace(&mut args.into_iter());
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
        let start = slot(&self.args, &self.sizes, self.turn);
        self.body.extend(next_round(self.at, values_of(variable), &start));
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
        let start = slot(&self.args, &self.sizes, self.turn);
        self.yields.extend(next_round(self.at, values_of(variable), &start));
        self.turn += 1;
    }

    /// Gives a variable its value after the loop.
    pub fn join<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        variable.replace(&mut carried_back(self.op, &self.sizes, self.turn).into_iter());
        self.turn += 1;
    }
}

/// Adds a variable to the operands of a loop and to the arguments of its first region: what the variable becomes.
fn carry_in(op: Op, values: &[Value]) -> Vec<Value> {
    trace::with(|t| {
        let region = t.builder.func.op(op).regions[0];
        let add = |&v: &Value| {
            t.builder.func.op_mut(op).operands.push(v);
            let ty = t.builder.func.ty(v);
            t.builder.func.add_arg(region, ty)
        };
        values.iter().map(add).collect()
    })
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

/// The results of a loop that belong to variable number `turn`.
fn carried_back(op: Op, sizes: &[usize], turn: usize) -> Vec<Value> {
    let results = trace::with(|t| t.builder.func.op(op).results.to_vec());
    slot(&results, sizes, turn)
}

/// The values that belong to variable number `turn`.
fn slot(values: &[Value], sizes: &[usize], turn: usize) -> Vec<Value> {
    let start: usize = sizes[..turn].iter().sum();
    values[start..start + sizes[turn]].to_vec()
}

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
        let args = carry_in(self.op, &values_of(variable));
        self.sizes.push(args.len());
        self.args.extend(&args);
        variable.replace(&mut args.into_iter());
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
        let start = slot(&self.args, &self.sizes, self.turn);
        self.yields.extend(next_round(self.at, values_of(variable), &start));
        self.turn += 1;
    }

    /// Gives a variable its value after the loop.
    pub fn join<C: Carry + ?Sized>(&mut self, variable: &mut C) {
        variable.replace(&mut carried_back(self.op, &self.sizes, self.turn).into_iter());
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
