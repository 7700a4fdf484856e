//! [`Val`]: a value of the running kernel, and what can be computed from it.

use std::fmt;
use std::marker::PhantomData;
use std::ops;

use tilewright_ir::{Attr, Element as Kind, Flags, Funnel, Half, Lut, Opcode, Permute, Round, Type, Value};

use crate::element::{Element, Float, Integer, Logic, Number, Word};
use crate::tile::TileOperand;
use crate::trace;

/// A value that the kernel computes when it runs.
///
/// Operators build the computation: `x + 1.0` appends an addition to the kernel under construction and gives the `Val` of its
/// result. Constants mix freely as long as the types agree; [`Val::cast`] converts.
///
/// Integers wrap. An integer divided by zero has all bits set, as quotient and as remainder: -1, or the largest number without a sign.
pub struct Val<T> {
    pub(crate) id: Value,
    ty: PhantomData<fn() -> T>,
}

impl<T> Clone for Val<T> {
    fn clone(&self) -> Val<T> {
        *self
    }
}

impl<T> Copy for Val<T> {}

impl<T> fmt::Debug for Val<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

/// What can stand for a value of type `T`: a [`Val`] of it, or a constant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be used as a value of type `{T}`",
    label = "expected `{T}` or `Val<{T}>`",
    note = "there are no implicit conversions: write `.cast::<{T}>()`, or give a constant its type as in `1u32` or `0.5f32`"
)]
pub trait Operand<T>: TileOperand<T, Output = Val<T>> {
    /// The value.
    #[track_caller]
    fn val(self) -> Val<T>;
}

#[diagnostic::do_not_recommend]
impl<T> Operand<T> for Val<T> {
    fn val(self) -> Val<T> {
        self
    }
}

#[diagnostic::do_not_recommend]
impl<T: Element> Operand<T> for T {
    #[track_caller]
    fn val(self) -> Val<T> {
        Val::of(trace::constant(T::ELEMENT, self.to_bits()))
    }
}

/// A constant as a value: the start of a running sum, for example.
#[track_caller]
pub fn val<T: Element>(constant: T) -> Val<T> {
    constant.val()
}

/// A condition that chooses between values of type `T`, or a tile of conditions that choose between tiles of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot choose between `{Y}` and `{N}`",
    note = "the condition is a `Val<bool>`, or a `Tile<bool>` for tiles; both values have one type, and constants need theirs, as in `0u32`"
)]
pub trait Selects<T, Y, N> {
    /// `Val<T>` or `Tile<T>`.
    type Output;
    /// One of both.
    #[track_caller]
    fn choose(self, yes: Y, no: N) -> Self::Output;
}

#[diagnostic::do_not_recommend]
impl<T: Element, Y: Operand<T>, N: Operand<T>> Selects<T, Y, N> for Val<bool> {
    type Output = Val<T>;
    #[track_caller]
    fn choose(self, yes: Y, no: N) -> Val<T> {
        let (yes, no) = (yes.val(), no.val());
        Val::of(trace::value(Opcode::Select, [self.id, yes.id, no.id], [], None))
    }
}

/// `yes` where the condition holds, else `no`. Both are computed. With a tile of conditions, element by element.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel]
/// fn clip(x: Global<f32>) {
///     let v = x.at(thread_id(0)).load();
///     x.at(thread_id(0)).store(select(v > 1.0, 1.0, v));
/// }
/// clip::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[track_caller]
pub fn select<T, C: Selects<T, Y, N, Output = O>, Y, N, O>(condition: C, yes: Y, no: N) -> O {
    condition.choose(yes, no)
}

/// The smaller of two.
#[track_caller]
pub fn min<T: Number>(a: Val<T>, b: impl Operand<T>) -> Val<T> {
    a.min(b)
}

/// The larger of two.
#[track_caller]
pub fn max<T: Number>(a: Val<T>, b: impl Operand<T>) -> Val<T> {
    a.max(b)
}

/// The smallest multiple count: `a / b` rounded up. `a + b - 1` must not wrap.
#[track_caller]
pub fn div_ceil<T: Integer>(a: Val<T>, b: impl Operand<T>) -> Val<T> {
    let b = b.val();
    (a + b - T::ONE) / b
}

impl<T> Val<T> {
    pub(crate) fn of(id: Value) -> Val<T> {
        Val { id, ty: PhantomData }
    }

    #[track_caller]
    pub(crate) fn unary(self, code: Opcode, attrs: impl IntoIterator<Item = Attr>) -> Val<T> {
        Val::of(trace::value(code, [self.id], attrs, None))
    }

    #[track_caller]
    pub(crate) fn binary(
        self,
        code: Opcode,
        rhs: impl Operand<T>,
        attrs: impl IntoIterator<Item = Attr>,
    ) -> Val<T> {
        let rhs = rhs.val();
        Val::of(trace::value(code, [self.id, rhs.id], attrs, None))
    }
}

impl<T: Element> Val<T> {
    /// Converts to another element type. Floats become integers by rounding towards zero, clamped to the range; everything becomes a
    /// float by rounding to nearest even, and the 8- and 4-bit floats clamp to their largest finite value.
    #[track_caller]
    pub fn cast<U: Element>(self) -> Val<U> {
        if T::ELEMENT == U::ELEMENT {
            return Val::of(self.id);
        }
        Val::of(trace::value(Opcode::Cvt, [self.id], [], Type::Scalar(U::ELEMENT)))
    }

    /// Converts with an explicit rounding.
    #[track_caller]
    pub fn cast_rounded<U: Element>(self, round: Round) -> Val<U> {
        if T::ELEMENT == U::ELEMENT {
            return Val::of(self.id);
        }
        Val::of(trace::value(Opcode::Cvt, [self.id], [round.into()], Type::Scalar(U::ELEMENT)))
    }

    /// Converts, clamping to the range of the new type: integers do not wrap, and of floats, what is beyond the largest finite number becomes
    /// that, infinities included. NaN stays NaN where there is one.
    ///
    /// ```
    /// use tilewright_lang::prelude::*;
    /// #[kernel]
    /// fn k(x: Global<f32>, bytes: Global<i8>, halves: Global<f16>) {
    ///     bytes.store(x.load().cast_saturating());
    ///     halves.store(x.load().cast_saturating()); // at most 65504
    /// }
    /// k::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[track_caller]
    pub fn cast_saturating<U: Element>(self) -> Val<U> {
        trace::here();
        let (to, ty) = (U::ELEMENT, Type::Scalar(U::ELEMENT));
        let clamped = |flag: Flags| Val::of(trace::value(Opcode::Cvt, [self.id], [flag.into()], ty));
        let (largest, sign) = match to {
            _ if T::ELEMENT == to && !to.is_float() => return self.cast(),
            _ if to.is_int() => return clamped(Flags::SAT),
            Kind::TF32 => return clamped(Flags::SATFINITE),
            Kind::F16 => (0x7bff, 15),
            Kind::BF16 => (0x7f7f, 15),
            Kind::F32 => (0x7f7f_ffff, 31),
            Kind::F64 => (0x7fef_ffff_ffff_ffff, 63),
            // Smaller floats clamp in any case.
            _ => return self.cast(),
        };
        let bounds = [(Opcode::Min, largest), (Opcode::Max, largest | 1 << sign)];
        bounds.into_iter().fold(self.cast(), |value, (code, bound)| {
            value.binary(code, Val::of(trace::constant(to, bound)), [Flags::NAN.into()])
        })
    }

    /// Converts to a float type; negative values become zero.
    #[track_caller]
    pub fn cast_relu<U: Element>(self) -> Val<U> {
        Val::of(trace::value(Opcode::Cvt, [self.id], [Flags::RELU.into()], Type::Scalar(U::ELEMENT)))
    }

    /// The same bits as another type of the same size.
    #[track_caller]
    pub fn bitcast<U: Element>(self) -> Val<U> {
        Val::of(trace::value(Opcode::Bitcast, [self.id], [], Type::Scalar(U::ELEMENT)))
    }
}

impl<T: Number> Val<T> {
    /// The smaller; a number rather than NaN.
    #[track_caller]
    pub fn min(self, other: impl Operand<T>) -> Val<T> {
        self.binary(Opcode::Min, other, [])
    }

    /// The larger; a number rather than NaN.
    #[track_caller]
    pub fn max(self, other: impl Operand<T>) -> Val<T> {
        self.binary(Opcode::Max, other, [])
    }

    /// The absolute value.
    #[track_caller]
    pub fn abs(self) -> Val<T> {
        self.unary(Opcode::Abs, [])
    }

    /// `self * b + c`, rounded once.
    #[track_caller]
    pub fn mul_add(self, b: impl Operand<T>, c: impl Operand<T>) -> Val<T> {
        let (b, c) = (b.val(), c.val());
        Val::of(trace::value(Opcode::Fma, [self.id, b.id, c.id], [], None))
    }
}

impl<T: Integer> Val<T> {
    /// `self / other` rounded up. `self + other - 1` must not wrap.
    #[track_caller]
    pub fn div_ceil(self, other: impl Operand<T>) -> Val<T> {
        div_ceil(self, other)
    }

    /// The high half of the product.
    #[track_caller]
    pub fn mul_hi(self, other: impl Operand<T>) -> Val<T> {
        self.binary(Opcode::MulHi, other, [])
    }

    /// Number of ones.
    #[track_caller]
    pub fn count_ones(self) -> Val<u32> {
        Val::of(trace::value(Opcode::Popc, [self.id], [], None))
    }

    /// Number of leading zeros.
    #[track_caller]
    pub fn leading_zeros(self) -> Val<u32> {
        Val::of(trace::value(Opcode::Clz, [self.id], [], None))
    }

    /// Bits in reverse order.
    #[track_caller]
    pub fn reverse_bits(self) -> Val<T> {
        self.unary(Opcode::Brev, [])
    }

    /// Position of the highest bit that differs from the sign; all ones if there is none.
    #[track_caller]
    pub fn find_high_bit(self) -> Val<u32> {
        Val::of(trace::value(Opcode::Bfind, [self.id], [], None))
    }

    /// The bits from `position`, `length` of them, sign-extended for signed types.
    #[track_caller]
    pub fn bit_field(self, position: impl Operand<u32>, length: impl Operand<u32>) -> Val<T> {
        let (position, length) = (position.val(), length.val());
        Val::of(trace::value(Opcode::Bfe, [self.id, position.id, length.id], [], None))
    }

    /// `self` with `length` bits from `position` replaced by the low bits of `field`.
    #[track_caller]
    pub fn insert_bit_field(
        self,
        field: impl Operand<T>,
        position: impl Operand<u32>,
        length: impl Operand<u32>,
    ) -> Val<T> {
        let (field, position, length) = (field.val(), position.val(), length.val());
        Val::of(trace::value(Opcode::Bfi, [field.id, self.id, position.id, length.id], [], None))
    }
}

/// The double-width product of two integers.
pub trait Widen: Integer {
    /// The integer twice as wide.
    type Wide: Integer;
}

macro_rules! widen {
    ($($narrow:ty => $wide:ty),*) => {$( impl Widen for $narrow { type Wide = $wide; } )*};
}
widen!(i16 => i32, u16 => u32, i32 => i64, u32 => u64);

impl<T: Widen> Val<T> {
    /// The whole product, twice as wide.
    #[track_caller]
    pub fn mul_wide(self, other: impl Operand<T>) -> Val<T::Wide> {
        let other = other.val();
        Val::of(trace::value(Opcode::MulWide, [self.id, other.id], [], Type::Scalar(T::Wide::ELEMENT)))
    }
}

impl<T: Word> Val<T> {
    /// Four products of bytes summed onto `acc`; bytes are signed where their word is.
    #[track_caller]
    pub fn dot4<U: Word, A: Word>(self, other: impl Operand<U>, acc: impl Operand<A>) -> Val<A> {
        let (other, acc) = (other.val(), acc.val());
        Val::of(trace::value(Opcode::Dp4a, [self.id, other.id, acc.id], [], None))
    }

    /// Two products of 16-bit values with two bytes of `other` (its lower or upper two), summed onto `acc`.
    #[track_caller]
    pub fn dot2<U: Word, A: Word>(self, other: impl Operand<U>, half: Half, acc: impl Operand<A>) -> Val<A> {
        let (other, acc) = (other.val(), acc.val());
        Val::of(trace::value(Opcode::Dp2a, [self.id, other.id, acc.id], [half.into()], None))
    }
}

impl Val<u32> {
    /// Picks four bytes of the eight in `self` (0 to 3) and `high` (4 to 7) by the nibbles of `selector`.
    #[track_caller]
    pub fn permute_bytes(self, high: impl Operand<u32>, selector: impl Operand<u32>) -> Val<u32> {
        let (high, selector) = (high.val(), selector.val());
        Val::of(trace::value(Opcode::Prmt, [self.id, high.id, selector.id], [], None))
    }

    /// Picks bytes in one of the hardware's special modes.
    #[track_caller]
    pub fn permute_bytes_in(
        self,
        mode: Permute,
        high: impl Operand<u32>,
        selector: impl Operand<u32>,
    ) -> Val<u32> {
        let (high, selector) = (high.val(), selector.val());
        Val::of(trace::value(Opcode::Prmt, [self.id, high.id, selector.id], [mode.into()], None))
    }

    /// Any bitwise function of three words. `table` applies it to the patterns `a = 0xf0`, `b = 0xcc`, `c = 0xaa`:
    ///
    /// ```
    /// # use tilewright_lang::prelude::*;
    /// # #[kernel] fn k(x: Val<u32>, y: Val<u32>, z: Val<u32>) {
    /// let majority = x.logic3(y, z, |a, b, c| (a & b) | (b & c) | (a & c));
    /// # assert_with(majority == 0u32, "m");
    /// # }
    /// # k::stage().unwrap();
    /// ```
    #[track_caller]
    pub fn logic3(self, b: impl Operand<u32>, c: impl Operand<u32>, table: fn(u8, u8, u8) -> u8) -> Val<u32> {
        let (b, c) = (b.val(), c.val());
        let lut = Lut(table(0xf0, 0xcc, 0xaa));
        Val::of(trace::value(Opcode::Lop3, [self.id, b.id, c.id], [lut.into()], None))
    }

    /// The upper word of `(high, self)` shifted left by `amount`, or the lower word of it shifted right.
    #[track_caller]
    pub fn funnel_shift(self, high: impl Operand<u32>, amount: impl Operand<u32>, how: Funnel) -> Val<u32> {
        let (high, amount) = (high.val(), amount.val());
        Val::of(trace::value(Opcode::FunnelShift, [self.id, high.id, amount.id], [how.into()], None))
    }
}

impl Val<f32> {
    /// `self / other` within 2 ulp, over the whole range: cheaper than the quotient rounded to nearest.
    #[track_caller]
    pub fn div_fast(self, other: impl Operand<f32>) -> Val<f32> {
        self.binary(Opcode::Div, other, [Flags::FULL.into()])
    }
}

impl<T: Float> Val<T> {
    /// The smaller; NaN if either is.
    #[track_caller]
    pub fn min_nan(self, other: impl Operand<T>) -> Val<T> {
        self.binary(Opcode::Min, other, [Flags::NAN.into()])
    }

    /// The larger; NaN if either is.
    #[track_caller]
    pub fn max_nan(self, other: impl Operand<T>) -> Val<T> {
        self.binary(Opcode::Max, other, [Flags::NAN.into()])
    }

    /// `self` with the sign of `sign`.
    #[track_caller]
    pub fn copysign(self, sign: impl Operand<T>) -> Val<T> {
        self.binary(Opcode::CopySign, sign, [])
    }

    /// Rounds to an integral value, ties to even.
    #[track_caller]
    pub fn round_even(self) -> Val<T> {
        self.unary(Opcode::RoundInt, [Round::Nearest.into()])
    }

    /// Rounds to an integral value, down.
    #[track_caller]
    pub fn floor(self) -> Val<T> {
        self.unary(Opcode::RoundInt, [Round::Down.into()])
    }

    /// Rounds to an integral value, up.
    #[track_caller]
    pub fn ceil(self) -> Val<T> {
        self.unary(Opcode::RoundInt, [Round::Up.into()])
    }

    /// Rounds to an integral value, towards zero.
    #[track_caller]
    pub fn trunc(self) -> Val<T> {
        self.unary(Opcode::RoundInt, [Round::Zero.into()])
    }

    /// Sum, rounded as told.
    #[track_caller]
    pub fn add_rounded(self, other: impl Operand<T>, round: Round) -> Val<T> {
        self.binary(Opcode::Add, other, [round.into()])
    }

    /// Product, rounded as told.
    #[track_caller]
    pub fn mul_rounded(self, other: impl Operand<T>, round: Round) -> Val<T> {
        self.binary(Opcode::Mul, other, [round.into()])
    }

    /// `self * b + c`, rounded as told.
    #[track_caller]
    pub fn mul_add_rounded(self, b: impl Operand<T>, c: impl Operand<T>, round: Round) -> Val<T> {
        let (b, c) = (b.val(), c.val());
        Val::of(trace::value(Opcode::Fma, [self.id, b.id, c.id], [round.into()], None))
    }

    /// `self * b + c`; negative results become zero. For f16 and bf16.
    #[track_caller]
    pub fn mul_add_relu(self, b: impl Operand<T>, c: impl Operand<T>) -> Val<T> {
        let (b, c) = (b.val(), c.val());
        Val::of(trace::value(Opcode::Fma, [self.id, b.id, c.id], [Flags::RELU.into()], None))
    }

    /// Sum, clamped to [0, 1].
    #[track_caller]
    pub fn add_saturating(self, other: impl Operand<T>) -> Val<T> {
        self.binary(Opcode::Add, other, [Flags::SAT.into()])
    }

    /// Is it NaN?
    #[track_caller]
    pub fn is_nan(self) -> Val<bool> {
        let attrs = [tilewright_ir::Cmp::Ne.into()];
        Val::of(trace::value(Opcode::Cmp, [self.id, self.id], attrs, None))
    }
}

macro_rules! operators {
    ($( $trait:ident $method:ident $assign_trait:ident $assign:ident $bound:ident $code:ident; )*) => {$(
        impl<T: $bound, R: TileOperand<T>> ops::$trait<R> for Val<T> {
            type Output = R::Output;
            #[track_caller]
            fn $method(self, rhs: R) -> R::Output {
                rhs.after(self, Opcode::$code)
            }
        }
        impl<T: $bound, R: Operand<T>> ops::$assign_trait<R> for Val<T> {
            #[track_caller]
            fn $assign(&mut self, rhs: R) {
                *self = self.binary(Opcode::$code, rhs, []);
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

macro_rules! shift {
    ($trait:ident $method:ident $assign_trait:ident $assign:ident $code:ident) => {
        impl<T: Integer, R: Operand<u32>> ops::$trait<R> for Val<T> {
            type Output = Val<T>;
            #[track_caller]
            fn $method(self, rhs: R) -> Val<T> {
                let rhs = rhs.val();
                Val::of(trace::value(Opcode::$code, [self.id, rhs.id], [], None))
            }
        }
        impl<T: Integer, R: Operand<u32>> ops::$assign_trait<R> for Val<T> {
            #[track_caller]
            fn $assign(&mut self, rhs: R) {
                *self = ops::$trait::$method(*self, rhs);
            }
        }
    };
}

shift!(Shl shl ShlAssign shl_assign Shl);
shift!(Shr shr ShrAssign shr_assign Shr);

impl<T: Number> ops::Neg for Val<T> {
    type Output = Val<T>;
    #[track_caller]
    fn neg(self) -> Val<T> {
        self.unary(Opcode::Neg, [])
    }
}

impl<T: Logic> ops::Not for Val<T> {
    type Output = Val<T>;
    #[track_caller]
    fn not(self) -> Val<T> {
        self.unary(Opcode::Not, [])
    }
}

/// Constants on the left: `1.0 - x`.
macro_rules! constant_left {
    ($($ty:ty: $($trait:ident $method:ident),*;)*) => {$($(
        impl ops::$trait<Val<$ty>> for $ty {
            type Output = Val<$ty>;
            #[track_caller]
            fn $method(self, rhs: Val<$ty>) -> Val<$ty> {
                ops::$trait::$method(self.val(), rhs)
            }
        }
    )*)*};
}

constant_left! {
    i8: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    i16: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    i32: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    i64: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    u8: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    u16: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    u32: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    u64: Add add, Sub sub, Mul mul, Div div, Rem rem, BitAnd bitand, BitOr bitor, BitXor bitxor;
    half::f16: Add add, Sub sub, Mul mul, Div div;
    half::bf16: Add add, Sub sub, Mul mul, Div div;
    f32: Add add, Sub sub, Mul mul, Div div;
    f64: Add add, Sub sub, Mul mul, Div div;
    bool: BitAnd bitand, BitOr bitor, BitXor bitxor;
}
