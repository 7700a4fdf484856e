//! Comparisons, `&&` and `||`: `bool` on host values, `Val<bool>` where either side is staged.

use tilewright_ir::{Cmp, Element as Kind, Opcode, Type, Value};

use super::branch::{Condition, StagedBranch};
use crate::element::Element;
use crate::trace;
use crate::value::{Operand, Val};

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
pub(crate) fn compare<T>(a: Val<T>, b: impl Operand<T>, how: Cmp) -> Val<bool> {
    // No chip compares floats of 8 bits, and f32 has all of them.
    let comparable = |value: Value| {
        let is_small = trace::with(|t| matches!(t.ty(value), Type::Scalar(Kind::E4M3 | Kind::E5M2)));
        if is_small { trace::value(Opcode::Cvt, [value], [], Type::F32) } else { value }
    };
    Val::of(trace::value(Opcode::Cmp, [a.id, b.val().id].map(comparable), [how.into()], None))
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
    note = "both sides are `bool` or `Val<bool>`; tiles of conditions are combined with `&`"
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
    note = "both sides are `bool` or `Val<bool>`; tiles of conditions are combined with `|`"
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
