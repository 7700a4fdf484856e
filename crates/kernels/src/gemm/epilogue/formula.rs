//! Functions in epilogues: those that are built in, one row of a table each, and [`Formula`]s that users write.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tilewright_lang::prelude::*;

use super::real::{Fast, Fingerprint, Probe, Real};

macro_rules! functions {
    ($( $(#[$doc:meta])* $variant:ident $name:ident $text:literal ),* $(,)?) => {
        /// A function of one number that is built in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Unary {$(
            $(#[$doc])*
            $variant,
        )*}

        impl Unary {
            /// All of them.
            pub const ALL: &[Unary] = &[$( Unary::$variant ),*];

            /// The name, as it stands in the text of an epilogue.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {$( Unary::$variant => $text, )*}
            }

            /// The function of a number, on the device or on the host.
            #[must_use]
            #[track_caller]
            pub fn apply<R: Real>(self, x: R) -> R {
                match self {$( Unary::$variant => x.$name(), )*}
            }
        }
    };
}

functions! {
    /// `-x`.
    Neg neg "neg",
    /// The absolute value.
    Abs abs "abs",
    /// Zero instead of negative numbers.
    Relu relu "relu",
    /// The square.
    Square square "square",
    /// One over the number.
    Recip recip "recip",
    /// The nearest integral value, ties to even.
    Round round_even "round",
    /// The exponential.
    Exp exp "exp",
    /// The natural logarithm.
    Ln ln "ln",
    /// The square root.
    Sqrt sqrt "sqrt",
    /// The hyperbolic tangent.
    Tanh tanh "tanh",
    /// The error function.
    Erf erf "erf",
    /// The logistic function.
    Sigmoid sigmoid "sigmoid",
    /// `x * sigmoid(x)`.
    Silu silu "silu",
    /// `x/2 * (1 + erf(x / sqrt(2)))`.
    Gelu gelu "gelu",
    /// The approximation of `gelu` by `tanh`.
    GeluTanh gelu_tanh "gelu_tanh",
}

/// A function of two numbers that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Binary {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product.
    Mul,
    /// The quotient.
    Div,
    /// The smaller.
    Min,
    /// The larger.
    Max,
}

impl Binary {
    /// The function of two numbers, on the device or on the host.
    #[must_use]
    #[track_caller]
    pub fn apply<R: Real>(self, x: R, y: R) -> R {
        match self {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Min => x.min(y),
            Binary::Max => x.max(y),
        }
    }
}

/// A function that a user writes, once for the device and the host.
///
/// ```
/// use tilewright_kernels::gemm::epilogue::{Epilogue, Formula, Real};
///
/// /// `slope * x` for negative numbers.
/// struct LeakyRelu {
///     slope: f64,
/// }
///
/// impl Formula for LeakyRelu {
///     fn name(&self) -> String {
///         "leaky_relu".to_owned()
///     }
///     fn apply<R: Real>(&self, x: &[R]) -> R {
///         x[0].max(x[0] * R::of(self.slope))
///     }
/// }
///
/// let epilogue = Epilogue::new().bias_per_column("bias", tilewright_hardware::Element::BF16).map(LeakyRelu { slope: 0.1 });
/// assert!(epilogue.to_string().starts_with("leaky_relu#"));
/// // Kernels are kept by what formulas compute: another slope is another kernel.
/// assert_ne!(epilogue, Epilogue::new().bias_per_column("bias", tilewright_hardware::Element::BF16).map(LeakyRelu { slope: 0.2 }));
/// ```
pub trait Formula: Send + Sync + 'static {
    /// Its name, an identifier, for messages and the texts of epilogues. It need not tell constants: kernels are kept by the
    /// [`Fingerprint`] of what [`apply`](Formula::apply) does.
    fn name(&self) -> String;

    /// How many numbers it takes.
    fn inputs(&self) -> usize {
        1
    }

    /// Computes it, of as many numbers as [`inputs`](Formula::inputs) says: the same for every kind of number and with every call. No
    /// `if`s on what the numbers are: [`Real::choose`] does that.
    #[track_caller]
    fn apply<R: Real>(&self, inputs: &[R]) -> R;
}

/// A [`Formula`] without its type, for each kind of number.
trait Erased: Send + Sync {
    fn fast(&self, inputs: &[Fast]) -> Fast;
    fn accurate(&self, inputs: &[Val<f32>]) -> Val<f32>;
    fn double(&self, inputs: &[Val<f64>]) -> Val<f64>;
    fn host_f32(&self, inputs: &[f32]) -> f32;
    fn host_f64(&self, inputs: &[f64]) -> f64;
    fn probe(&self, inputs: &[Probe]) -> Probe;
    fn fingerprint(&self) -> Fingerprint;
}

impl<F: Formula> Erased for F {
    fn fast(&self, inputs: &[Fast]) -> Fast {
        self.apply(inputs)
    }
    fn accurate(&self, inputs: &[Val<f32>]) -> Val<f32> {
        self.apply(inputs)
    }
    fn double(&self, inputs: &[Val<f64>]) -> Val<f64> {
        self.apply(inputs)
    }
    fn host_f32(&self, inputs: &[f32]) -> f32 {
        self.apply(inputs)
    }
    fn host_f64(&self, inputs: &[f64]) -> f64 {
        self.apply(inputs)
    }
    fn probe(&self, inputs: &[Probe]) -> Probe {
        self.apply(inputs)
    }
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(self)
    }
}

/// A [`Formula`] as part of an expression. Two are equal if their names are, and what they compute.
#[derive(Clone)]
pub struct UserFunction {
    name: String,
    inputs: usize,
    fingerprint: Fingerprint,
    formula: Arc<dyn Erased>,
}

impl UserFunction {
    /// From a formula.
    #[must_use]
    pub fn new(formula: impl Formula) -> UserFunction {
        let (name, inputs, fingerprint) = (formula.name(), formula.inputs(), Fingerprint::of(&formula));
        UserFunction { name, inputs, fingerprint, formula: Arc::new(formula) }
    }

    /// The formula's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many numbers it takes.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// What it computes.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Whether it computes what it did when it became part of an expression.
    pub(super) fn is_constant(&self) -> bool {
        self.formula.fingerprint() == self.fingerprint
    }

    /// Whether it takes functions that the device has no f64 form of.
    pub(super) fn needs_functions(&self) -> bool {
        self.formula.probe(&vec![Probe { functions: false }; self.inputs]).functions
    }
}

impl PartialEq for UserFunction {
    fn eq(&self, other: &UserFunction) -> bool {
        (&self.name, self.inputs, self.fingerprint) == (&other.name, other.inputs, other.fingerprint)
    }
}

impl Eq for UserFunction {}

impl Hash for UserFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fingerprint.hash(state);
    }
}

impl fmt::Debug for UserFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Kinds of numbers that a [`UserFunction`] can be called with.
pub(super) trait Callable: Real {
    fn call(function: &UserFunction, inputs: &[Self]) -> Self;
}

macro_rules! callable {
    ($($ty:ty, $method:ident);*) => {$(
        impl Callable for $ty {
            fn call(function: &UserFunction, inputs: &[$ty]) -> $ty {
                function.formula.$method(inputs)
            }
        }
    )*};
}
callable!(Fast, fast; Val<f32>, accurate; Val<f64>, double; f32, host_f32; f64, host_f64);

impl Unary {
    /// Whether the device has no f64 form of it.
    pub(super) fn needs_functions(self) -> bool {
        self.apply(Probe { functions: false }).functions
    }
}
