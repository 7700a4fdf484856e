//! [`Elementwise`]: one function of several matrices, element by element, with rows, columns and single numbers broadcast.
//!
//! The function is a [`Formula`], written once for all devices, or one that is built in ([`Unary`](crate::kernels::gemm::epilogue::Unary),
//! [`Binary`](crate::kernels::gemm::epilogue::Binary)). Its numbers are f32; the result is rounded once. NaN and infinities are what the
//! formula makes of them. No rows, no columns: nothing is written.
//!
//! A kernel is made once for each [`Fingerprint`]: what a formula computes, its constants included, whatever its type and name.
//!
//! Works in place: `y` may be exactly any input that is not broadcast.

use std::sync::Arc;

use tilewright_kernels::gemm::epilogue::{Fingerprint, Formula};
use tilewright_kernels::ops::{self as kernels, SharedFormula};

use super::cpu::on_cpu;
use super::launch::{launch, parts, programs};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// A function applied to every element.
///
/// ```
/// use tilewright::kernels::gemm::epilogue::{Binary, Formula, Real};
/// use tilewright::ops::{Elementwise, Rows};
/// use tilewright::prelude::*;
///
/// /// `relu(x * scale + bias)`
/// struct ScaleBiasRelu;
/// impl Formula for ScaleBiasRelu {
///     fn name(&self) -> String {
///         "scale_bias_relu".to_owned()
///     }
///     fn inputs(&self) -> usize {
///         3
///     }
///     fn apply<R: Real>(&self, x: &[R]) -> R {
///         x[0].mul_add(x[1], x[2]).relu()
///     }
/// }
///
/// let device = Device::cpu();
/// let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
/// let scale = device.upload(&[1.0f32, -1.0])?; // one for each row
/// let bias = device.upload(&[0.5f32, 2.5])?; // one for each column
/// let y = device.alloc::<f32>(4)?;
/// let (x, y) = (Rows::new(&x, 2, 2), Rows::new(&y, 2, 2));
/// let inputs = [x, Rows::new(&scale, 2, 1), Rows::new(&bias, 1, 2)];
/// Elementwise::new(ScaleBiasRelu).run(&device, &inputs, y)?;
/// # let found = device.alloc::<f32>(4)?;
/// # Elementwise::new(ScaleBiasRelu).run(&device, &inputs, Rows::new(&found, 2, 2))?;
/// # assert_eq!(found.to_vec()?, [1.5, 4.5, 0.0, 0.0]);
/// Elementwise::new(Binary::Add).run(&device, &[x, x], y)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Elementwise<F> {
    formula: SharedFormula<F>,
}

impl<F: Formula> Elementwise<F> {
    /// Of this function.
    #[must_use]
    pub fn new(formula: F) -> Elementwise<F> {
        Elementwise { formula: SharedFormula(Arc::new(formula)) }
    }

    fn launch<T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        inputs: &[Rows<'_, T>],
        y: &Rows<'_, U>,
    ) -> Result<(), Error> {
        let (shape, formula) = (parts(y.extents()), &self.formula);
        let views: Vec<_> = inputs.iter().map(Rows::tensor).collect();
        let to = y.tensor();
        let mut arguments: Vec<&dyn Argument> = views.iter().map(|view| view as &dyn Argument).collect();
        arguments.push(&to);
        let arguments = &arguments[..];
        // Of the formula as it is now: it may have changed inside since the last run.
        let key = (Fingerprint::of(&*formula.0), inputs.len(), [T::ELEMENT, U::ELEMENT], shape);
        let programs = programs(y.extents(), shape);
        match inputs.len() {
            1 => launch(device, &key, programs, arguments, || {
                kernels::elementwise1::stage::<T, U, F>(formula.clone(), shape)
            }),
            2 => launch(device, &key, programs, arguments, || {
                kernels::elementwise2::stage::<T, U, F>(formula.clone(), shape)
            }),
            3 => launch(device, &key, programs, arguments, || {
                kernels::elementwise3::stage::<T, U, F>(formula.clone(), shape)
            }),
            _ => Err(Error::no_kernel("a function of more than three matrices", device)),
        }
    }

    /// Computes `y` from as many inputs as the formula takes. An input with one row has it for all rows, one with one column for all
    /// columns.
    ///
    /// # Errors
    /// If the operands do not fit together, or the device fails.
    pub fn run<'r, T: FloatItem, U: FloatItem>(
        &self,
        device: &Device,
        inputs: &[Rows<'r, T>],
        y: impl Into<Rows<'r, U>>,
    ) -> Result<(), Error> {
        let y = y.into();
        let (rows, columns) = y.extents();
        if inputs.len() != self.formula.0.inputs() {
            let expected = format!("{}, as `{}` takes", self.formula.0.inputs(), self.formula.0.name());
            return Err(Error::argument(
                "inputs",
                inputs.len().to_string(),
                expected,
                "give one for each number",
            ));
        }
        let mut operands = Operands::on(device);
        let inputs: Vec<Rows<'_, T>> =
            inputs.iter().map(|input| input.broadcast_rows(rows).broadcast_columns(columns)).collect();
        for (number, input) in (1..).zip(&inputs) {
            let why = format_args!("as `y` has, or 1 to be broadcast, for input {number}");
            expect_extents("inputs", input, (rows, columns), why)?;
            operands.input("inputs", input)?;
        }
        operands.result("y", &y)?;
        if device.kind() != DeviceKind::Cpu {
            return self.launch(device, &inputs, &y);
        }
        on_cpu(device, |mut host| {
            let inputs = inputs.iter().map(|input| host.numbers(input)).collect::<Result<Vec<_>, _>>()?;
            let mut out = super::cpu::Grid::filled((rows, columns), 0.0f32);
            out.each_row(|row, values| {
                let mut numbers = vec![0.0f32; inputs.len()];
                for (j, value) in values.iter_mut().enumerate() {
                    numbers.iter_mut().zip(&inputs).for_each(|(to, input)| *to = input.row(row)[j]);
                    *value = self.formula.0.apply(&numbers);
                }
            });
            host.write_numbers(&y, &out)
        })
    }
}
