//! Elementary functions, as methods of `Val`, `Vector` and `Tile` of f32, f16 and bf16.
//!
//! Each comes in two forms. The plain name is accurate for every argument: subnormal numbers, infinities, NaN and signed zeros
//! included. The name with `_fast` is the shortest sequence around the hardware's approximation; it takes subnormal numbers for zero
//! and has a domain. [`FUNCTIONS`] is the table of their errors, from which the documentation of the methods is made and against which
//! they are tested.
//!
//! ```
//! use tilewright_lang::math;
//! use tilewright_lang::prelude::*;
//!
//! #[kernel(threads = 256)]
//! fn activate(x: Global<bf16>, out: Global<bf16>, n: Val<u32>) {
//!     let i = block_id(0) * 256u32 + thread_id(0);
//!     if i < n {
//!         out.at(i).store(x.at(i).load().gelu());
//!     }
//! }
//!
//! let kernel = activate::stage()?;
//! let gelu = math::FUNCTIONS.iter().find(|f| f.name == "gelu").expect("a row");
//! assert!(gelu.accurate <= 4.0 && kernel.ir().contains("fma"));
//! # Ok::<(), tilewright_lang::Error>(())
//! ```
//!
//! Contract: the accurate forms consist of correctly rounded operations, and where they start from an approximation (`rcp`, `rsqrt`)
//! they correct it, so that results do not depend on the chip but for a last bit on rare arguments. f16 and bf16 compute in f32 and
//! round once, except for the fast forms that are an instruction of the hardware. The bounds hold on an H200 for every argument there
//! is (`results/h200/math.json`; `pow` on samples).
//!
//! Limits: of f64 only `sqrt`. Accurate `sin` and `cos` branch for arguments above 65536.

mod activations;
mod error_function;
mod exponential;
mod hyperbolic;
mod pieces;
mod roots;
mod trigonometric;

use half::{bf16, f16};
use tilewright_ir::{Element as Kind, Flags, Opcode, Round};

use crate::element::Element;
use crate::tile::{self, Tile, TileOperand};
use crate::trace;
use crate::value::{Operand, Val};
use crate::vector::Vector;

/// How far a result may be from the exact one: a number of ulp (of the result type, at the exact result), which may grow with the
/// argument, plus an absolute distance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bound {
    /// Distance in ulp.
    pub ulp: f64,
    /// Further ulp per unit of |argument|; for `pow` of the product |y| (1 + |log2 x|).
    pub slope: f64,
    /// Absolute distance.
    pub absolute: f64,
}

/// A row of [`FUNCTIONS`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MathFunction {
    /// Name of the accurate form; the fast one ends in `_fast`.
    pub name: &'static str,
    /// Largest error of the accurate form on f32, in ulp, over all arguments.
    pub accurate: f64,
    /// Error of the fast form on f32.
    pub fast: Bound,
    /// Arguments that the bounds of the fast forms are for.
    pub domain: (f32, f32),
    /// Error of the fast form on f16.
    pub fast_f16: Bound,
    /// Error of the fast form on bf16.
    pub fast_bf16: Bound,
    /// What else to know.
    pub notes: &'static str,
}

/// Largest error of the accurate forms on f16 and bf16, in ulp: one rounding, of an f32 that is nearly exact.
pub const ACCURATE_HALF: f64 = 0.501;

/// Rows in, the table and the methods out.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $name:ident, $fast:ident of $module:ident {
            accurate: $accurate:literal,
            fast: $ulp:literal $(+ $slope:literal * $of:literal)?, $absolute:literal,
            domain: $from:literal to $to:literal,
            f16: $ulp16:literal, $absolute16:literal,
            bf16: $ulpb16:literal, $absoluteb16:literal,
            half: $half:ident,
            arguments: ($($argument:ident)?),
            notes: $notes:literal,
        }
    )*) => {
        /// The functions and their errors.
        pub const FUNCTIONS: &[MathFunction] = &[$(
            MathFunction {
                name: stringify!($name),
                accurate: $accurate,
                fast: Bound { ulp: $ulp, slope: 0.0 $(+ $slope)?, absolute: $absolute },
                domain: ($from, $to),
                fast_f16: Bound { ulp: $ulp16, slope: 0.0, absolute: $absolute16 },
                fast_bf16: Bound { ulp: $ulpb16, slope: 0.0, absolute: $absoluteb16 },
                notes: $notes,
            },
        )*];

        /// Elementary functions; see [`math`](mod@crate::math).
        impl Val<f32> {$(
            $(#[$doc])*
            #[doc = concat!("\n\nAt most ", $accurate, " ulp from the exact result. ", $notes)]
            #[must_use]
            #[track_caller]
            pub fn $name(self $(, $argument: impl Operand<f32>)?) -> Val<f32> {
                $( let $argument = $argument.val(); )?
                $module::$name(self $(, $argument)?)
            }

            #[doc = concat!("Fast [`", stringify!($name), "`](Self::", stringify!($name), ").")]
            #[doc = concat!(
                "\n\nFrom ", $from, " to ", $to, " at most ", $ulp, $(" + ", $slope, " * ", $of,)?
                " ulp plus ", $absolute, " from the exact result. ", $notes
            )]
            #[must_use]
            #[track_caller]
            pub fn $fast(self $(, $argument: impl Operand<f32>)?) -> Val<f32> {
                $( let $argument = $argument.val(); )?
                $module::$fast(self $(, $argument)?)
            }
        )*}

        functions!(@half f16; $( $name $fast $module ($ulp16 $absolute16) $half ($($argument)?) )*);
        functions!(@half bf16; $( $name $fast $module ($ulpb16 $absoluteb16) $half ($($argument)?) )*);
        $( functions!(@vector $name $fast $half ($($argument)?)); )*
        functions!(@tile f32; $( $name $fast ($($argument)?) )*);
        functions!(@tile f16; $( $name $fast ($($argument)?) )*);
        functions!(@tile bf16; $( $name $fast ($($argument)?) )*);
    };
    (@tile $ty:ty; $( $name:ident $fast:ident ($($argument:ident)?) )*) => {
        /// Elementary functions of each element; see [`math`](mod@crate::math).
        impl Tile<$ty> {$(
            functions!(@of_each $ty; $name ($($argument)?));
            functions!(@of_each $ty; $fast ($($argument)?));
        )*}
    };
    (@of_each $ty:ty; $name:ident ()) => {
        #[doc = concat!("[`", stringify!($name), "`](Val::<", stringify!($ty), ">::", stringify!($name), ") of each element.")]
        #[must_use]
        #[track_caller]
        pub fn $name(self) -> Tile<$ty> {
            tile::unary(self, |x: Val<$ty>| x.$name())
        }
    };
    (@of_each $ty:ty; $name:ident ($argument:ident)) => {
        #[doc = concat!("[`", stringify!($name), "`](Val::<", stringify!($ty), ">::", stringify!($name), ") of each pair of elements.")]
        #[must_use]
        #[track_caller]
        pub fn $name(self, $argument: impl TileOperand<$ty>) -> Tile<$ty> {
            tile::binary(self, $argument, |x: Val<$ty>, $argument: Val<$ty>| x.$name($argument))
        }
    };
    (@half $ty:ty; $(
        $name:ident $fast:ident $module:ident ($ulp:literal $absolute:literal) $half:ident ($($argument:ident)?)
    )*) => {
        /// Elementary functions; see [`math`](mod@crate::math).
        impl Val<$ty> {$(
            #[doc = concat!("[`", stringify!($name), "`](Val::<f32>::", stringify!($name), ") in f32, rounded.")]
            #[doc = "\n\nAt most 0.501 ulp from the exact result."]
            #[must_use]
            #[track_caller]
            pub fn $name(self $(, $argument: impl Operand<$ty>)?) -> Val<$ty> {
                $( let $argument = $argument.val().cast::<f32>(); )?
                $module::$name(self.cast::<f32>() $(, $argument)?).cast()
            }

            #[doc = concat!("Fast [`", stringify!($name), "`](Self::", stringify!($name), ").")]
            #[doc = concat!(
                "\n\nAt most ", $ulp, " ulp plus ", $absolute, " from the exact result, in the domain of [`", stringify!($fast), "`](Val::<f32>::",
                stringify!($fast), ") on f32."
            )]
            #[must_use]
            #[track_caller]
            pub fn $fast(self $(, $argument: impl Operand<$ty>)?) -> Val<$ty> {
                $( let $argument = $argument.val().cast::<f32>(); )?
                functions!(@fast $half self, $module $fast ($($argument)?))
            }
        )*}
    };
    (@fast in_f32 $x:ident, $module:ident $fast:ident ($($argument:ident)?)) => {
        $module::$fast($x.cast::<f32>() $(, $argument)?).cast()
    };
    (@fast native_ex2 $x:ident, $module:ident $fast:ident ()) => {
        $x.unary(Opcode::Ex2, [Flags::APPROX.into()])
    };
    (@fast native_tanh $x:ident, $module:ident $fast:ident ()) => {
        $x.unary(Opcode::Tanh, [])
    };
    // The instructions that work on pairs have vector forms of their own.
    (@vector $name:ident $fast:ident in_f32 ()) => { functions!(@map $name); functions!(@map $fast); };
    (@vector $name:ident $fast:ident $native:ident ()) => { functions!(@map $name); };
    (@vector $name:ident $fast:ident $half:ident ($argument:ident)) => {
        functions!(@zip $name $argument);
        functions!(@zip $fast $argument);
    };
    (@map $name:ident) => {
        functions!(@map $name f32);
        functions!(@map $name f16);
        functions!(@map $name bf16);
    };
    (@map $name:ident $ty:ty) => {
        impl Vector<$ty> {
            #[doc = concat!("[`", stringify!($name), "`](Val::<", stringify!($ty), ">::", stringify!($name), ") of each element.")]
            #[must_use]
            #[track_caller]
            pub fn $name(self) -> Vector<$ty> {
                self.map(|x| x.$name())
            }
        }
    };
    (@zip $name:ident $argument:ident) => {
        functions!(@zip $name $argument f32);
        functions!(@zip $name $argument f16);
        functions!(@zip $name $argument bf16);
    };
    (@zip $name:ident $argument:ident $ty:ty) => {
        impl Vector<$ty> {
            #[doc = concat!("[`", stringify!($name), "`](Val::<", stringify!($ty), ">::", stringify!($name), ") of each pair of elements.")]
            #[must_use]
            #[track_caller]
            pub fn $name(self, $argument: Vector<$ty>) -> Vector<$ty> {
                if self.len() != $argument.len() {
                    trace::error(format!("vectors of {} and {} elements", self.len(), $argument.len()));
                    return self;
                }
                let pairs = self.elements().into_iter().zip($argument.elements());
                Vector::new(pairs.map(|(x, $argument)| x.$name($argument)))
            }
        }
    };
}

functions! {
    /// `e` to the power of `self`.
    exp, exp_fast of exponential {
        accurate: 1.0,
        fast: 2.5 + 1.2 * "|x|", 0.0,
        domain: -87.0 to 88.0,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "",
    }
    /// Two to the power of `self`.
    exp2, exp2_fast of exponential {
        accurate: 1.0,
        fast: 2.5, 0.0,
        domain: -126.0 to 127.99,
        f16: 3.2, 0.0,
        bf16: 3.1, 0.0,
        half: native_ex2,
        arguments: (),
        notes: "Exact for integers.",
    }
    /// `e` to the power of `self`, minus one: accurate near zero.
    exp_m1, exp_m1_fast of exponential {
        accurate: 1.6,
        fast: 8.0 + 1.2 * "|x|", 0.0,
        domain: -87.0 to 88.0,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "",
    }
    /// The natural logarithm.
    log, log_fast of exponential {
        accurate: 1.2,
        fast: 5.5, 1.8e-7,
        domain: 1.2e-38 to 3.4e38,
        f16: 0.51, 1.8e-7,
        bf16: 0.51, 1.8e-7,
        half: in_f32,
        arguments: (),
        notes: "Of zero minus infinity, of negative numbers NaN.",
    }
    /// The logarithm to base two.
    log2, log2_fast of exponential {
        accurate: 1.1,
        fast: 5.0, 2.4e-7,
        domain: 1.2e-38 to 3.4e38,
        f16: 0.51, 2.4e-7,
        bf16: 0.51, 2.4e-7,
        half: in_f32,
        arguments: (),
        notes: "Exact for powers of two in the accurate form. Of zero minus infinity, of negative numbers NaN.",
    }
    /// The natural logarithm of one plus `self`: accurate near zero.
    ln_1p, ln_1p_fast of exponential {
        accurate: 1.5,
        fast: 16.0, 0.0,
        domain: -0.999 to 3.4e38,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "Of -1 minus infinity, below NaN.",
    }
    /// `self` to the power of `y`, with the special cases of C99.
    pow, pow_fast of exponential {
        accurate: 1.5,
        fast: 3.0 + 4.0 * "|y| (1 + |log2 x|)", 0.0,
        domain: 1.2e-38 to 3.4e38,
        f16: 1.0, 0.0,
        bf16: 0.6, 0.0,
        half: in_f32,
        arguments: (y),
        notes: "The fast form is for results that are neither subnormal nor infinite, and for |y| (1 + |log2 x|) up to 1000.",
    }
    /// The sine of an angle in radians.
    sin, sin_fast of trigonometric {
        accurate: 1.6,
        fast: 1.0, 7.5e-7,
        domain: -6.25 to 6.25,
        f16: 1.1, 7.5e-7,
        bf16: 1.1, 7.5e-7,
        half: in_f32,
        arguments: (),
        notes: "",
    }
    /// The cosine of an angle in radians.
    cos, cos_fast of trigonometric {
        accurate: 1.6,
        fast: 1.0, 7.5e-7,
        domain: -6.25 to 6.25,
        f16: 1.1, 7.5e-7,
        bf16: 1.1, 7.5e-7,
        half: in_f32,
        arguments: (),
        notes: "",
    }
    /// The hyperbolic tangent.
    tanh, tanh_fast of hyperbolic {
        accurate: 1.6,
        fast: 8200.0, 0.0,
        domain: -3.4e38 to 3.4e38,
        f16: 1.0, 0.0005,
        bf16: 1.0, 0.004,
        half: native_tanh,
        arguments: (),
        notes: "",
    }
    /// The error function.
    erf, erf_fast of error_function {
        accurate: 1.5,
        fast: 1.0, 2.5e-7,
        domain: -3.4e38 to 3.4e38,
        f16: 0.51, 3e-7,
        bf16: 0.51, 3e-7,
        half: in_f32,
        arguments: (),
        notes: "",
    }
    /// The logistic function, `1 / (1 + exp(-x))`.
    sigmoid, sigmoid_fast of activations {
        accurate: 2.8,
        fast: 6.0 + 1.2 * "|x|", 0.0,
        domain: -87.0 to 3.4e38,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "",
    }
    /// The sigmoid linear unit, `x * sigmoid(x)`.
    silu, silu_fast of activations {
        accurate: 3.4,
        fast: 6.0 + 1.2 * "|x|", 0.0,
        domain: -87.0 to 3.4e38,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "Minus zero at minus infinity in the accurate form.",
    }
    /// The Gaussian error linear unit, `x/2 * (1 + erf(x / sqrt(2)))`.
    gelu, gelu_fast of activations {
        accurate: 4.0,
        fast: 3.0, 3e-7,
        domain: -3.4e38 to 3.4e38,
        f16: 0.51, 3e-7,
        bf16: 0.51, 3e-7,
        half: in_f32,
        arguments: (),
        notes: "Minus zero at minus infinity in the accurate form.",
    }
    /// The Gaussian error linear unit by the approximation `x/2 * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
    gelu_tanh, gelu_tanh_fast of activations {
        accurate: 4.0,
        fast: 3.0, 3e-7,
        domain: -3.4e38 to 3.4e38,
        f16: 0.51, 3e-7,
        bf16: 0.51, 3e-7,
        half: in_f32,
        arguments: (),
        notes: "Errors are to this formula, not to `gelu`. Minus zero at minus infinity in the accurate form.",
    }
    /// The square root.
    sqrt, sqrt_fast of roots {
        accurate: 0.5,
        fast: 3.0, 0.0,
        domain: 1.2e-38 to 3.4e38,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "",
    }
    /// One over the square root.
    rsqrt, rsqrt_fast of roots {
        accurate: 1.0,
        fast: 3.2, 0.0,
        domain: 1.2e-38 to 3.4e38,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "Of zero infinity, of the zero's sign.",
    }
    /// One over `self`.
    recip, recip_fast of roots {
        accurate: 0.5,
        fast: 1.5, 0.0,
        domain: 1.2e-38 to 8e37,
        f16: 0.51, 0.0,
        bf16: 0.51, 0.0,
        half: in_f32,
        arguments: (),
        notes: "The fast form also takes negative arguments of that size.",
    }
}

macro_rules! sin_cos {
    ($($ty:ty)*) => {$(
        impl Val<$ty> {
            /// Sine and cosine together, at little more than the cost of one. The results are those of [`sin`](Self::sin) and
            /// [`cos`](Self::cos).
            #[must_use]
            #[track_caller]
            pub fn sin_cos(self) -> (Val<$ty>, Val<$ty>) {
                let (sine, cosine) = trigonometric::sin_cos(self.cast::<f32>());
                (sine.cast(), cosine.cast())
            }

            /// [`sin_fast`](Self::sin_fast) and [`cos_fast`](Self::cos_fast).
            #[must_use]
            #[track_caller]
            pub fn sin_cos_fast(self) -> (Val<$ty>, Val<$ty>) {
                (self.sin_fast(), self.cos_fast())
            }
        }

        impl Vector<$ty> {
            #[doc = concat!("[`tanh_fast`](Val::<", stringify!($ty), ">::tanh_fast) of each element; pairs of 16 bits together.")]
            #[must_use]
            #[track_caller]
            pub fn tanh_fast(self) -> Vector<$ty> {
                Vector::of(trace::value(Opcode::Tanh, [self.id], [], None), self.len())
            }

            #[doc = concat!("[`exp2_fast`](Val::<", stringify!($ty), ">::exp2_fast) of each element; pairs of 16 bits together.")]
            #[must_use]
            #[track_caller]
            pub fn exp2_fast(self) -> Vector<$ty> {
                let flags = Flags::APPROX.with(Flags::FTZ.when(<$ty>::ELEMENT == Kind::F32));
                Vector::of(trace::value(Opcode::Ex2, [self.id], [flags.into()], None), self.len())
            }
        }
    )*};
}

sin_cos!(f32 f16 bf16);

impl Val<f64> {
    /// The square root, correctly rounded.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    /// /// The length of each row.
    /// #[kernel]
    /// fn lengths(x: View<f64, 2>, out: View<f64, 2>, columns: u32) {
    ///     let x = x.partition([4, columns]).load();
    ///     out.partition([4, 1]).store((x * x).sum(1).sqrt());
    /// }
    /// lengths::stage(256)?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn sqrt(self) -> Val<f64> {
        self.unary(Opcode::Sqrt, [Round::Nearest.into()])
    }
}

impl Tile<f64> {
    /// The square roots, correctly rounded.
    #[must_use]
    #[track_caller]
    pub fn sqrt(self) -> Tile<f64> {
        tile::unary(self, |x: Val<f64>| x.sqrt())
    }
}
