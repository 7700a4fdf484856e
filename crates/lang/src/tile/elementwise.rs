//! Element by element: `map`, operators, comparisons, and functions of [`Val`] as methods of [`Tile`].
//!
//! All of it goes through [`apply`], which brings tiles to one shape, opens the region of a `map` and runs the scalar code on one element
//! of each. Nothing is fused here: that is the compiler's work.

use std::ops;

use tilewright_ir::{Cmp, Flags, Opcode, Round, Type, Value};

use super::reduce::{self, Direction};
use super::value::{Tile, TileOperand, common_shape, grown};
use crate::element::{Element, Float, Integer, Logic, Number};
use crate::stage::{Compare, Equals, compare};
use crate::trace;
use crate::value::{Selects, Val, Widen};

/// Computes elements from the elements at the same position. Tiles among the inputs are brought to one shape and come as one element
/// each; scalars come as they are.
#[track_caller]
pub(crate) fn apply(inputs: &[Value], f: impl FnOnce(&[Value]) -> Vec<Value>) -> Vec<Value> {
    // Compiled once, not for every function of an element.
    let mut f = Some(f);
    apply_once(inputs, &mut |elements| f.take().map(|f| f(elements)).unwrap_or_default())
}

#[track_caller]
fn apply_once(inputs: &[Value], f: &mut dyn FnMut(&[Value]) -> Vec<Value>) -> Vec<Value> {
    trace::here();
    let mut inputs = inputs.to_vec();
    let Some(shape) = common_shape(&mut inputs) else { return f(&inputs) };
    let is_tile = |value: Value| trace::with(|t| t.ty(value)).shape().is_some();
    let tiles: Vec<Value> = inputs.iter().filter(|&&v| is_tile(v)).map(|&v| grown(v, shape)).collect();
    let op = trace::push(Opcode::Map, &tiles, [], []);
    let region = trace::open(op);
    let mut arguments = tiles.iter().map(|&tile| {
        trace::with(|t| {
            let element = t.ty(tile).element().unwrap_or(tilewright_ir::Element::Bool);
            t.builder.func.add_arg(region, Type::Scalar(element))
        })
    });
    let elements: Vec<Value> = inputs
        .iter()
        .map(|&input| if is_tile(input) { arguments.next().unwrap_or(input) } else { input })
        .collect();
    let results = f(&elements);
    trace::close(Opcode::Yield, &results);
    trace::with(|t| {
        let types: Vec<Type> = results.iter().map(|&result| t.ty(result)).collect();
        let tile = |ty: Type| Type::Tile(ty.element().unwrap_or(tilewright_ir::Element::Bool), shape);
        types.into_iter().map(|ty| t.builder.func.add_result(op, tile(ty))).collect()
    })
}

#[track_caller]
pub(crate) fn unary<T, R>(x: Tile<T>, f: impl FnOnce(Val<T>) -> Val<R>) -> Tile<R> {
    Tile::of(apply(&[x.id], |x| vec![f(Val::of(x[0])).id])[0])
}

#[track_caller]
pub(crate) fn binary<T, U, R>(
    a: impl TileOperand<T>,
    b: impl TileOperand<U>,
    f: impl FnOnce(Val<T>, Val<U>) -> Val<R>,
) -> Tile<R> {
    trace::here();
    let inputs = [a.id(), b.id()];
    Tile::of(apply(&inputs, |x| vec![f(Val::of(x[0]), Val::of(x[1])).id])[0])
}

#[track_caller]
fn ternary<T, U, V, R>(
    a: impl TileOperand<T>,
    b: impl TileOperand<U>,
    c: impl TileOperand<V>,
    f: impl FnOnce(Val<T>, Val<U>, Val<V>) -> Val<R>,
) -> Tile<R> {
    trace::here();
    let inputs = [a.id(), b.id(), c.id()];
    Tile::of(apply(&inputs, |x| vec![f(Val::of(x[0]), Val::of(x[1]), Val::of(x[2])).id])[0])
}

// ---- map -------------------------------------------------------------------------------------------------------------------------

/// One tile, or a tuple of tiles that go together.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
///
/// /// The largest element of each row, and where it is.
/// #[kernel]
/// fn largest(x: View<f32, 2>, value: View<f32, 2>, place: View<u32, 2>) {
///     let row = program_id(0);
///     let x = x.tile([1, 256]).at((row, 0)).load_or(f32::NEG_INFINITY);
///     // Any scalar code, for each element.
///     let clipped = x.map(|x| if x > 100.0 { x.log() } else { x });
///     let (v, i) = (clipped, Tile::iota(1, x.shape())).reduce(1, |(v, i), (w, j)| {
///         let second = (w > v) | ((w == v) & (j < i));
///         (select(second, w, v), select(second, j, i))
///     });
///     value.tile([1, 1]).at((row, 0)).store(v);
///     place.tile([1, 1]).at((row, 0)).store(i);
/// }
/// largest::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
pub trait Tiles: Copy {
    /// One element of each.
    type Elements: Elements<Tiles = Self>;

    #[doc(hidden)]
    fn ids(self) -> Vec<Value>;
    #[doc(hidden)]
    fn of_ids(ids: &[Value]) -> Self;

    /// Computes an element, or a tuple of elements, from the elements at each position. The code sees values from around it, but must
    /// not touch memory.
    #[track_caller]
    fn map<E: Elements>(self, f: impl FnOnce(Self::Elements) -> E) -> E::Tiles {
        let results = apply(&self.ids(), |x| f(Self::Elements::of_ids(x)).ids());
        E::Tiles::of_ids(&results)
    }

    /// Combines the elements along an axis, which stays with extent 1. `f` must be associative; elements keep their order, and how they are grouped is open.
    #[must_use]
    #[track_caller]
    fn reduce(self, axis: i32, f: impl FnOnce(Self::Elements, Self::Elements) -> Self::Elements) -> Self {
        reduce::combine(self, axis, Direction::All, f)
    }

    /// Combines each element with all before it along an axis: `f(what came before, element)`, associative.
    #[must_use]
    #[track_caller]
    fn scan(self, axis: i32, f: impl FnOnce(Self::Elements, Self::Elements) -> Self::Elements) -> Self {
        reduce::combine(self, axis, Direction::Forward, f)
    }

    /// Combines each element with all after it along an axis, the last first.
    #[must_use]
    #[track_caller]
    fn scan_reverse(
        self,
        axis: i32,
        f: impl FnOnce(Self::Elements, Self::Elements) -> Self::Elements,
    ) -> Self {
        reduce::combine(self, axis, Direction::Reverse, f)
    }
}

/// One value, or a tuple of values: what code on single elements takes and gives.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a tile",
    note = "the closure gives a `Val`, or a tuple of them; make a constant one with `val(..)`"
)]
pub trait Elements {
    /// Tiles of such elements.
    type Tiles: Tiles<Elements = Self>;

    #[doc(hidden)]
    fn ids(&self) -> Vec<Value>;
    #[doc(hidden)]
    fn of_ids(ids: &[Value]) -> Self;
}

impl<T> Tiles for Tile<T> {
    type Elements = Val<T>;
    fn ids(self) -> Vec<Value> {
        vec![self.id]
    }
    fn of_ids(ids: &[Value]) -> Self {
        Tile::of(ids[0])
    }
}

impl<T> Elements for Val<T> {
    type Tiles = Tile<T>;
    fn ids(&self) -> Vec<Value> {
        vec![self.id]
    }
    fn of_ids(ids: &[Value]) -> Self {
        Val::of(ids[0])
    }
}

#[diagnostic::do_not_recommend]
impl<T, const N: usize> Tiles for [Tile<T>; N] {
    type Elements = [Val<T>; N];
    fn ids(self) -> Vec<Value> {
        self.map(|tile| tile.id).to_vec()
    }
    fn of_ids(ids: &[Value]) -> Self {
        std::array::from_fn(|i| Tile::of(ids[i]))
    }
}

#[diagnostic::do_not_recommend]
impl<T, const N: usize> Elements for [Val<T>; N] {
    type Tiles = [Tile<T>; N];
    fn ids(&self) -> Vec<Value> {
        self.iter().map(|value| value.id).collect()
    }
    fn of_ids(ids: &[Value]) -> Self {
        std::array::from_fn(|i| Val::of(ids[i]))
    }
}

macro_rules! tuples {
    ($( ($($name:ident $i:tt),*) )*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($name),*> Tiles for ($(Tile<$name>,)*) {
            type Elements = ($(Val<$name>,)*);
            fn ids(self) -> Vec<Value> {
                vec![$(self.$i.id),*]
            }
            fn of_ids(ids: &[Value]) -> Self {
                ($(Tile::of(ids[$i]),)*)
            }
        }
        #[diagnostic::do_not_recommend]
        impl<$($name),*> Elements for ($(Val<$name>,)*) {
            type Tiles = ($(Tile<$name>,)*);
            fn ids(&self) -> Vec<Value> {
                vec![$(self.$i.id),*]
            }
            fn of_ids(ids: &[Value]) -> Self {
                ($(Val::of(ids[$i]),)*)
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

// ---- operators -------------------------------------------------------------------------------------------------------------------

/// `a op= b`: broadcasting must not change the shape of `a`.
#[track_caller]
fn assigned<T: Element>(before: Tile<T>, after: Tile<T>) -> Tile<T> {
    let (from, to) = (before.shape(), after.shape());
    if from == to {
        return after;
    }
    trace::error(format!(
        "a tile of {from} elements cannot become one of {to} by an assignment with an operator"
    ));
    Tile::poison(from)
}

macro_rules! operators {
    ($( $trait:ident $method:ident $assign_trait:ident $assign:ident $bound:ident $code:ident; )*) => {$(
        impl<T: $bound, R: TileOperand<T>> ops::$trait<R> for Tile<T> {
            type Output = Tile<T>;
            #[track_caller]
            fn $method(self, rhs: R) -> Tile<T> {
                binary(self, rhs, |a: Val<T>, b: Val<T>| a.binary(Opcode::$code, b, []))
            }
        }
        impl<T: $bound, R: TileOperand<T>> ops::$assign_trait<R> for Tile<T> {
            #[track_caller]
            fn $assign(&mut self, rhs: R) {
                *self = assigned(*self, ops::$trait::$method(*self, rhs));
            }
        }
    )*};
}

operators! {
    Add add AddAssign add_assign Number Add;
    Sub sub SubAssign sub_assign Number Sub;
    Mul mul MulAssign mul_assign Number Mul;
    Div div DivAssign div_assign Number Div;
    Rem rem RemAssign rem_assign Integer Rem;
    BitAnd bitand BitAndAssign bitand_assign Logic And;
    BitOr bitor BitOrAssign bitor_assign Logic Or;
    BitXor bitxor BitXorAssign bitxor_assign Logic Xor;
}

macro_rules! shifts {
    ($( $trait:ident $method:ident $assign_trait:ident $assign:ident; )*) => {$(
        impl<T: Integer, R: TileOperand<u32>> ops::$trait<R> for Tile<T> {
            type Output = Tile<T>;
            #[track_caller]
            fn $method(self, rhs: R) -> Tile<T> {
                binary(self, rhs, |a: Val<T>, b: Val<u32>| ops::$trait::$method(a, b))
            }
        }
        impl<T: Integer, R: TileOperand<u32>> ops::$assign_trait<R> for Tile<T> {
            #[track_caller]
            fn $assign(&mut self, rhs: R) {
                *self = assigned(*self, ops::$trait::$method(*self, rhs));
            }
        }
    )*};
}

shifts! {
    Shl shl ShlAssign shl_assign;
    Shr shr ShrAssign shr_assign;
}

impl<T: Number> ops::Neg for Tile<T> {
    type Output = Tile<T>;
    #[track_caller]
    fn neg(self) -> Tile<T> {
        unary(self, |x: Val<T>| -x)
    }
}

impl<T: Logic> ops::Not for Tile<T> {
    type Output = Tile<T>;
    #[track_caller]
    fn not(self) -> Tile<T> {
        unary(self, |x: Val<T>| !x)
    }
}

/// Constants on the left: `1.0 - x`.
macro_rules! constant_left {
    ($( $($ty:ty)*: $($trait:ident $method:ident),*; )*) => {$( constant_left!(@ [$($ty)*] $($trait $method)*); )*};
    (@ [$($ty:ty)*] $trait:ident $method:ident $($rest:tt)*) => {
        $(
            impl ops::$trait<Tile<$ty>> for $ty {
                type Output = Tile<$ty>;
                #[track_caller]
                fn $method(self, rhs: Tile<$ty>) -> Tile<$ty> {
                    binary(self, rhs, |a: Val<$ty>, b: Val<$ty>| ops::$trait::$method(a, b))
                }
            }
        )*
        constant_left!(@ [$($ty)*] $($rest)*);
    };
    (@ [$($ty:ty)*]) => {};
}

constant_left! {
    i8 i16 i32 i64 u8 u16 u32 u64: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    half::f16 half::bf16 f32 f64: Add add, Sub sub, Mul mul, Div div;
    bool: BitAnd bitand, BitOr bitor, BitXor bitxor;
}

macro_rules! comparisons {
    ([$($generics:tt)*] $left:ty, $right:ty, $element:ty) => {
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> Compare<$right> for $left {
            type Output = Tile<bool>;
            comparisons!(@ $right, $element, lt Lt, le Le, gt Gt, ge Ge);
        }
        comparisons!(equals [$($generics)*] $left, $right, $element);
    };
    (equals [$($generics:tt)*] $left:ty, $right:ty, $element:ty) => {
        #[diagnostic::do_not_recommend]
        impl<$($generics)*> Equals<$right> for $left {
            type Output = Tile<bool>;
            comparisons!(@ $right, $element, eq Eq, ne Ne);
        }
    };
    (@ $right:ty, $element:ty, $($method:ident $how:ident),*) => {$(
        #[track_caller]
        fn $method(&self, other: &$right) -> Tile<bool> {
            binary(*self, *other, |a: Val<$element>, b: Val<$element>| compare(a, b, Cmp::$how))
        }
    )*};
}

comparisons!([T: Element] Tile<T>, Tile<T>, T);
comparisons!([T: Element] Tile<T>, Val<T>, T);
comparisons!([T: Element] Tile<T>, T, T);
comparisons!([T: Element] Val<T>, Tile<T>, T);

macro_rules! host_left_comparisons {
    ($($ty:ty)*) => {$( comparisons!([] $ty, Tile<$ty>, $ty); )*};
}

host_left_comparisons!(i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 half::f16 half::bf16);
comparisons!(equals [] bool, Tile<bool>, bool);

#[diagnostic::do_not_recommend]
impl<T: Element, Y: TileOperand<T>, N: TileOperand<T>> Selects<T, Y, N> for Tile<bool> {
    type Output = Tile<T>;
    #[track_caller]
    fn choose(self, yes: Y, no: N) -> Tile<T> {
        ternary(self, yes, no, |c: Val<bool>, yes: Val<T>, no: Val<T>| c.choose(yes, no))
    }
}

// ---- functions -------------------------------------------------------------------------------------------------------------------

impl<T: Element> Tile<T> {
    /// Converts to another element type, as [`Val::cast`] does.
    #[must_use]
    #[track_caller]
    pub fn cast<U: Element>(self) -> Tile<U> {
        if T::ELEMENT == U::ELEMENT {
            return Tile::of(self.id);
        }
        unary(self, |x: Val<T>| x.cast::<U>())
    }

    /// Converts with an explicit rounding.
    #[must_use]
    #[track_caller]
    pub fn cast_rounded<U: Element>(self, round: Round) -> Tile<U> {
        unary(self, |x: Val<T>| x.cast_rounded::<U>(round))
    }

    /// Converts, clamping to the range of the new type, as [`Val::cast_saturating`] does.
    #[must_use]
    #[track_caller]
    pub fn cast_saturating<U: Element>(self) -> Tile<U> {
        unary(self, |x: Val<T>| x.cast_saturating::<U>())
    }

    /// The same bits as another type of the same size.
    #[must_use]
    #[track_caller]
    pub fn bitcast<U: Element>(self) -> Tile<U> {
        unary(self, |x: Val<T>| x.bitcast::<U>())
    }
}

/// The smaller or larger; NaN if either is.
#[track_caller]
pub(super) fn extreme<T: Number>(code: Opcode, a: Val<T>, b: Val<T>) -> Val<T> {
    a.binary(code, b, [Flags::NAN.when(T::ELEMENT.is_float()).into()])
}

impl<T: Number> Tile<T> {
    /// The smaller of two, element by element; NaN if either is. [`Tile::min`] is that of an axis.
    #[must_use]
    #[track_caller]
    pub fn minimum(self, other: impl TileOperand<T>) -> Tile<T> {
        binary(self, other, |a: Val<T>, b: Val<T>| extreme(Opcode::Min, a, b))
    }

    /// The larger of two, element by element; NaN if either is. [`Tile::max`] is that of an axis.
    #[must_use]
    #[track_caller]
    pub fn maximum(self, other: impl TileOperand<T>) -> Tile<T> {
        binary(self, other, |a: Val<T>, b: Val<T>| extreme(Opcode::Max, a, b))
    }

    /// The smaller of two, element by element; a number rather than NaN.
    #[must_use]
    #[track_caller]
    pub fn fmin(self, other: impl TileOperand<T>) -> Tile<T> {
        binary(self, other, |a: Val<T>, b: Val<T>| a.min(b))
    }

    /// The larger of two, element by element; a number rather than NaN.
    #[must_use]
    #[track_caller]
    pub fn fmax(self, other: impl TileOperand<T>) -> Tile<T> {
        binary(self, other, |a: Val<T>, b: Val<T>| a.max(b))
    }

    /// Elements below `low` become it, those above `high` become that; NaN stays.
    #[must_use]
    #[track_caller]
    pub fn clamp(self, low: impl TileOperand<T>, high: impl TileOperand<T>) -> Tile<T> {
        ternary(self, low, high, |x: Val<T>, low: Val<T>, high: Val<T>| {
            extreme(Opcode::Min, extreme(Opcode::Max, x, low), high)
        })
    }

    /// Negative elements become zero; NaN stays.
    #[must_use]
    #[track_caller]
    pub fn relu(self) -> Tile<T> {
        self.maximum(T::ZERO)
    }

    /// The absolute values.
    #[must_use]
    #[track_caller]
    pub fn abs(self) -> Tile<T> {
        unary(self, |x: Val<T>| x.abs())
    }

    /// `self * b + c`, rounded once.
    #[must_use]
    #[track_caller]
    pub fn mul_add(self, b: impl TileOperand<T>, c: impl TileOperand<T>) -> Tile<T> {
        ternary(self, b, c, |x: Val<T>, b: Val<T>, c: Val<T>| x.mul_add(b, c))
    }
}

/// Methods of `Val` as methods of `Tile`: rows are name, arguments, result.
macro_rules! methods {
    ($bound:ident: $( $(#[$doc:meta])* $name:ident ($($argument:ident: $of:ty)?) -> $result:ty; )*) => {
        impl<T: $bound> Tile<T> {$(
            $(#[$doc])*
            #[must_use]
            #[track_caller]
            pub fn $name(self $(, $argument: impl TileOperand<$of>)?) -> Tile<$result> {
                methods!(@ self $name ($($argument: $of)?))
            }
        )*}
    };
    (@ $self:ident $name:ident ()) => { unary($self, |x: Val<T>| x.$name()) };
    (@ $self:ident $name:ident ($argument:ident: $of:ty)) => {
        binary($self, $argument, |x: Val<T>, y: Val<$of>| x.$name(y))
    };
}

methods! { Float:
    /// Rounded to integral values, ties to even.
    round_even () -> T;
    /// Rounded to integral values, down.
    floor () -> T;
    /// Rounded to integral values, up.
    ceil () -> T;
    /// Rounded to integral values, towards zero.
    trunc () -> T;
    /// With the signs of other elements.
    copysign (sign: T) -> T;
    /// Which are NaN?
    is_nan () -> bool;
}

methods! { Integer:
    /// The high half of the products.
    mul_hi (other: T) -> T;
    /// Numbers of ones.
    count_ones () -> u32;
    /// Numbers of leading zeros.
    leading_zeros () -> u32;
    /// Bits in reverse order.
    reverse_bits () -> T;
    /// Quotients rounded up. `self + other - 1` must not wrap.
    div_ceil (other: T) -> T;
}

methods! { Widen:
    /// The whole products, twice as wide.
    mul_wide (other: T) -> T::Wide;
}
