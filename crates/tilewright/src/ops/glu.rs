//! [`Glu`]: gated linear units, `y = activation(gate) * up`.
//!
//! Gate and up are often the halves of one matrix: views of its [columns](Rows::columns). NaN stays in its place, and so does what
//! infinity gives: `activation(-inf)` is 0, as its limit is, so that infinite `up` gives NaN there. No rows, no columns: nothing is written.
//!
//! Works in place: `y` may be exactly `gate` or `up`, and gradients exactly any of the inputs.

use tilewright_kernels::gemm::epilogue::Real;
use tilewright_kernels::ops::{self as kernels, Activation};

use super::cpu::{on_cpu, rounded};
use super::launch::{key, launch, parts, programs};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// A gated linear unit.
///
/// ```
/// use tilewright::ops::{Glu, Rows};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let x = device.upload(&[0.0f32, 1.0, 2.0, 3.0])?; // 1 x (2 + 2)
/// let y = device.alloc::<f32>(2)?;
/// let both = Rows::new(&x, 1, 4);
/// Glu::swiglu().run(&device, both.columns(0..2), both.columns(2..4), &y)?;
/// assert_eq!(y.to_vec()?, [0.0, 3.0 / (1.0 + (-1f32).exp())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Glu {
    activation: Activation,
}

impl Glu {
    /// SwiGLU: the activation is `x * sigmoid(x)`.
    #[must_use]
    pub fn swiglu() -> Glu {
        Glu { activation: Activation::Silu }
    }

    /// GeGLU: the activation is `x/2 * (1 + erf(x / sqrt(2)))`.
    #[must_use]
    pub fn geglu() -> Glu {
        Glu { activation: Activation::Gelu }
    }

    /// GeGLU with the approximation of the activation by `tanh`.
    #[must_use]
    pub fn geglu_tanh() -> Glu {
        Glu { activation: Activation::GeluTanh }
    }

    /// Computes `y` from `gate` and `up`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        gate: impl Into<Rows<'r, T>>,
        up: impl Into<Rows<'r, T>>,
        y: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let (gate, up, y) = (gate.into(), up.into(), y.into());
        let mut operands = Operands::on(device);
        operands.input("gate", &gate)?;
        expect_extents("up", &up, gate.extents(), "as `gate` has")?;
        operands.input("up", &up)?;
        expect_extents("y", &y, gate.extents(), "as `gate` has")?;
        operands.result("y", &y)?;
        if device.kind() != DeviceKind::Cpu {
            let shape = parts(gate.extents());
            let key = key("glu", &[T::ELEMENT, U::ELEMENT], &[self.activation as u32], shape);
            let arguments: &[&dyn Argument] = &[&gate.tensor(), &up.tensor(), &y.tensor()];
            let activation = self.activation;
            return launch(device, &key, programs(gate.extents(), shape), arguments, || {
                kernels::glu::stage::<T, U>(activation, shape)
            });
        }
        on_cpu(device, |mut host| {
            let (mut grid, up) = (host.numbers(&gate)?, host.numbers(&up)?);
            grid.each_row(|row, values| {
                for (gate, &up) in values.iter_mut().zip(up.row(row)) {
                    *gate = rounded(self.value(f64::from(*gate)) * f64::from(up));
                }
            });
            host.write_numbers(&y, &grid)
        })
    }

    /// Computes the gradients of `gate` and `up` from that of the result: `dgate = dy * up * activation'(gate)` and
    /// `dup = dy * activation(gate)`.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn backward<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        gate: impl Into<Rows<'r, T>>,
        up: impl Into<Rows<'r, T>>,
        dy: impl Into<Rows<'r, T>>,
        dgate: impl Into<Rows<'r, U>>,
        dup: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let (gate, up, dy, dgate, dup) = (gate.into(), up.into(), dy.into(), dgate.into(), dup.into());
        let mut operands = Operands::on(device);
        operands.input("gate", &gate)?;
        for (name, input) in [("up", &up), ("dy", &dy)] {
            expect_extents(name, input, gate.extents(), "as `gate` has")?;
            operands.input(name, input)?;
        }
        for (name, result) in [("dgate", &dgate), ("dup", &dup)] {
            expect_extents(name, result, gate.extents(), "as `gate` has")?;
            operands.result(name, result)?;
        }
        if device.kind() != DeviceKind::Cpu {
            let (shape, activation) = (parts(gate.extents()), self.activation);
            let key = key("glu_backward", &[T::ELEMENT, U::ELEMENT], &[activation as u32], shape);
            let arguments: &[&dyn Argument] =
                &[&gate.tensor(), &up.tensor(), &dy.tensor(), &dgate.tensor(), &dup.tensor()];
            return launch(device, &key, programs(gate.extents(), shape), arguments, || {
                kernels::glu_backward::stage::<T, U>(activation, shape)
            });
        }
        on_cpu(device, |mut host| {
            let (gate, up, mut first) = (host.numbers(&gate)?, host.numbers(&up)?, host.numbers(&dy)?);
            let mut second = first.clone();
            first.each_row(|row, values| {
                for ((dy, &gate), &up) in values.iter_mut().zip(gate.row(row)).zip(up.row(row)) {
                    let slope = self.slope(f64::from(gate));
                    *dy = rounded(f64::from(*dy) * f64::from(up) * slope);
                }
            });
            second.each_row(|row, values| {
                for (dy, &gate) in values.iter_mut().zip(gate.row(row)) {
                    *dy = rounded(f64::from(*dy) * self.value(f64::from(gate)));
                }
            });
            host.write_numbers(&dgate, &first)?;
            host.write_numbers(&dup, &second)
        })
    }
}

/// `sqrt(2 / pi)`.
const ROOT: f64 = 0.797_884_560_802_865_4;
/// Of the cube, in the approximation of `gelu` by `tanh`.
const CUBE: f64 = 0.044_715;

/// The activation, and how steep it is.
impl Glu {
    fn value(self, x: f64) -> f64 {
        // The limit, which infinity times zero is not.
        if x == f64::NEG_INFINITY {
            return 0.0;
        }
        match self.activation {
            Activation::Silu => Real::silu(x),
            Activation::Gelu => Real::gelu(x),
            Activation::GeluTanh => Real::gelu_tanh(x),
        }
    }

    fn slope(self, x: f64) -> f64 {
        if x.is_infinite() {
            return if x > 0.0 { 1.0 } else { 0.0 };
        }
        match self.activation {
            Activation::Silu => {
                let s = Real::sigmoid(x);
                s * (1.0 + x * (1.0 - s))
            }
            Activation::Gelu => {
                let density = (-0.5 * x * x).exp() * ROOT / 2.0;
                // The normal distribution. One plus the error function would lose its digits where that is close to minus one.
                let distribution = if x.abs() < 1e-30 { 0.5 } else { Real::gelu(x) / x };
                distribution + x * density
            }
            Activation::GeluTanh => {
                // One plus the hyperbolic tangent, halved, and one minus it.
                let y = 2.0 * ROOT * (x + CUBE * x * x * x);
                let (s, rest) = (Real::sigmoid(y), Real::sigmoid(-y));
                let inner = 2.0 * ROOT * (1.0 + 3.0 * CUBE * x * x);
                // Far out, the tail is zero before its factor is infinite.
                let tail = if s == 0.0 || rest == 0.0 { 0.0 } else { x * s * rest * inner };
                s + tail
            }
        }
    }
}
