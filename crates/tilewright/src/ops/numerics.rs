//! How far results may be from exact ones: one table, which the tests hold the operators to and the documentation is drawn from.

use std::fmt::{self, Write as _};

/// What errors are measured against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scale {
    /// The exact result itself.
    Result,
    /// The sum of the absolute values of all terms of the result, which is larger where terms cancel.
    Terms,
    /// The exact result times one plus the largest absolute exponent `scale * x` of the row.
    Exponent,
    /// One plus the largest absolute exponent `scale * x` of the row.
    Row,
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scale::Result => "the result",
            Scale::Terms => "the absolute values of its terms, added",
            Scale::Exponent => "the result times (1 + the largest absolute exponent of the row)",
            Scale::Row => "1 + the largest absolute exponent of the row",
        })
    }
}

/// The bound of one operator: results before they are rounded to their type differ from exact ones by at most `units` times 2^-24 times
/// the scale. A bound of 0 is exact.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Bound {
    /// The operator.
    pub operator: &'static str,
    /// What the error is measured against.
    pub scale: Scale,
    /// Units of 2^-24, the largest error of rounding to f32.
    pub units: f64,
}

impl Bound {
    /// The bound of an operator, by its name in the [table](BOUNDS).
    #[must_use]
    pub fn of(operator: &str) -> Option<&'static Bound> {
        BOUNDS.iter().find(|bound| bound.operator == operator)
    }

    /// The largest difference from an exact result, given the size of its scale, before it is rounded to its type.
    #[must_use]
    pub fn error(&self, scale: f64) -> f64 {
        self.units * 2f64.powi(-24) * scale
    }
}

const fn bound(operator: &'static str, scale: Scale, units: f64) -> Bound {
    Bound { operator, scale, units }
}

/// The bounds of all operators on the CPU.
pub const BOUNDS: &[Bound] = &[
    bound("softmax", Scale::Exponent, 4.0),
    bound("log-softmax", Scale::Row, 4.0),
    bound("softmax, gradient", Scale::Terms, 1.0),
    bound("log-softmax, gradient", Scale::Terms, 1.0),
    bound("cross entropy", Scale::Terms, 1.0),
    bound("cross entropy, gradient", Scale::Terms, 1.0),
    bound("RMSNorm", Scale::Result, 2.0),
    bound("RMSNorm of a sum", Scale::Terms, 3.0),
    bound("RMSNorm in 8 bits, scales", Scale::Result, 3.0),
    bound("RMSNorm, gradient", Scale::Terms, 2.0),
    bound("LayerNorm", Scale::Terms, 1.0),
    bound("LayerNorm of a sum", Scale::Terms, 3.0),
    bound("LayerNorm, gradient", Scale::Terms, 1.0),
    bound("RoPE", Scale::Terms, 1.0),
    bound("SwiGLU, GeGLU", Scale::Result, 1.0),
    bound("SwiGLU, GeGLU, gradient", Scale::Terms, 1.0),
    bound("sum, mean, sum of squares, norm", Scale::Terms, 1.0),
    bound("product", Scale::Result, 1.0),
    bound("logarithm of the sum of exponentials", Scale::Terms, 1.0),
    bound("largest, smallest, argmax, top-k", Scale::Result, 0.0),
    bound("cumulative sum", Scale::Terms, 1.0),
    bound("transpose, permute, embedding, convert", Scale::Result, 0.0),
    bound("dropout", Scale::Result, 2.0),
    bound("quantise, dequantise", Scale::Result, 2.0),
];

/// The table as it stands in the documentation.
#[must_use]
pub fn bounds_table() -> String {
    let mut text = String::from("| operator | largest error | measured against |\n| --- | --- | --- |\n");
    for Bound { operator, scale, units } in BOUNDS {
        let _ = match *units {
            0.0 => writeln!(text, "| {operator} | exact | |"),
            _ => writeln!(text, "| {operator} | {units} · 2⁻²⁴ | {scale} |"),
        };
    }
    text
}
