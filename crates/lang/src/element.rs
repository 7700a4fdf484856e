//! Which Rust types stand for which element types.

use half::{bf16, f16};
use tilewright_ir::Element as Kind;

/// A Rust type that staged values can have: it names an [element type](Kind) and its constants have bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type of the kernel language",
    note = "element types are bool, i8 to i64, u8 to u64, f16, bf16, f32, f64, Tf32, E4m3, E5m2, E2m1 and Ue8m0"
)]
pub trait Element: Copy + PartialEq + 'static {
    /// The element type.
    const ELEMENT: Kind;
    /// The bits of a constant; only as many as the element has count.
    fn to_bits(self) -> u64;
}

/// Elements with arithmetic: integers and the floats f16, bf16, f32 and f64.
#[diagnostic::on_unimplemented(
    message = "there is no arithmetic on `{Self}`",
    note = "arithmetic exists for integers, f16, bf16, f32 and f64; convert with `.cast::<f32>()` first"
)]
pub trait Number: Element {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
}

/// Integers.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer",
    note = "integers are i8 to i64 and u8 to u64"
)]
pub trait Integer: Number {}

/// Integers of 32 bits: what most warp instructions take.
#[diagnostic::on_unimplemented(message = "`{Self}` is not an integer of 32 bits", note = "use u32 or i32")]
pub trait Word: Integer {}

/// Floats with arithmetic.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float with arithmetic",
    note = "those are f16, bf16, f32 and f64"
)]
pub trait Float: Number {}

/// Integers and `bool`.
#[diagnostic::on_unimplemented(message = "`{Self}` has no bitwise logic", note = "integers and bool have")]
pub trait Logic: Element {}

macro_rules! elements {
    ($( $ty:ty = $kind:ident, |$x:ident| $bits:expr; $($role:ident)* ),* $(,)?) => {$(
        #[diagnostic::do_not_recommend]
        impl Element for $ty {
            const ELEMENT: Kind = Kind::$kind;
            fn to_bits(self) -> u64 {
                let $x = self;
                $bits
            }
        }
        $( elements!(@ $role $ty); )*
    )*};
    (@ int $ty:ty) => {
        impl Number for $ty { const ZERO: $ty = 0; const ONE: $ty = 1; }
        impl Integer for $ty {}
        impl Logic for $ty {}
    };
    (@ word $ty:ty) => { impl Word for $ty {} };
    (@ float $ty:ty) => {
        impl Number for $ty { const ZERO: $ty = 0.0; const ONE: $ty = 1.0; }
        impl Float for $ty {}
    };
    (@ half $ty:ty) => {
        impl Number for $ty { const ZERO: $ty = <$ty>::ZERO; const ONE: $ty = <$ty>::ONE; }
        impl Float for $ty {}
    };
    (@ logic $ty:ty) => { impl Logic for $ty {} };
}

elements! {
    bool = Bool, |x| u64::from(x); logic,
    i8 = I8, |x| i64::from(x).cast_unsigned(); int,
    i16 = I16, |x| i64::from(x).cast_unsigned(); int,
    i32 = I32, |x| i64::from(x).cast_unsigned(); int word,
    i64 = I64, |x| x.cast_unsigned(); int,
    u8 = U8, |x| u64::from(x); int,
    u16 = U16, |x| u64::from(x); int,
    u32 = U32, |x| u64::from(x); int word,
    u64 = U64, |x| x; int,
    f16 = F16, |x| u64::from(x.to_bits()); half,
    bf16 = BF16, |x| u64::from(x.to_bits()); half,
    f32 = F32, |x| u64::from(x.to_bits()); float,
    f64 = F64, |x| x.to_bits(); float,
    Tf32 = TF32, |x| u64::from(x.0.to_bits());,
    E4m3 = E4M3, |x| u64::from(x.0);,
    E5m2 = E5M2, |x| u64::from(x.0);,
    E2m1 = E2M1, |x| u64::from(x.0);,
    Ue8m0 = UE8M0, |x| u64::from(x.0);,
}

/// An f32 of which tensor cores read the upper 19 bits.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Tf32(pub f32);

macro_rules! narrow {
    ($( $(#[$doc:meta])* $name:ident )*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub u8);
    )*};
}

narrow! {
    /// An 8-bit float with 4 exponent bits, by its bits. Finite up to 448.
    E4m3
    /// An 8-bit float with 5 exponent bits, by its bits.
    E5m2
    /// A 4-bit float, by its bits. Two share a byte.
    E2m1
    /// A power of two in 8 bits: the scale of a block of small floats.
    Ue8m0
}
