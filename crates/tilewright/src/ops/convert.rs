//! [`convert`]: the same numbers in another type.
//!
//! Numbers go through f32, which holds those of all types, and are rounded to the nearest, ties to even. f16 and bf16 take what is beyond
//! their largest number for infinity; 8-bit floats and integers for their largest. NaN stays NaN, and is 0 as an integer. Nothing is
//! written where there is nothing.
//!
//! Works in place where the types have the same size: `y` may be exactly `x`.

use tilewright_kernels::ops as kernels;

use super::cpu::on_cpu;
use super::launch::{key, launch, parts, programs};
use super::rows::{Operands, expect_extents};
use super::{Error, NumberItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// Numbers of `x` in the type of `y`.
///
/// ```
/// use tilewright::ops::convert;
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let (x, y) = (device.upload(&[1.5f32, -1000.0, f32::NAN])?, device.alloc::<i8>(3)?);
/// convert(&device, &x, &y)?;
/// assert_eq!(y.to_vec()?, [2, -128, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the operands do not fit together, or the device fails.
pub fn convert<'r, T: NumberItem, U: NumberItem>(
    device: &Device,
    x: impl Into<Rows<'r, T>>,
    y: impl Into<Rows<'r, U>>,
) -> Result<(), Error> {
    let (x, y) = (x.into(), y.into());
    let mut operands = Operands::on(device);
    operands.input("x", &x)?;
    expect_extents("y", &y, x.extents(), "as `x` has")?;
    operands.result("y", &y)?;
    if device.kind() != DeviceKind::Cpu {
        let shape = parts(x.extents());
        let key = key("convert", &[T::ELEMENT, U::ELEMENT], &[], shape);
        let arguments: &[&dyn Argument] = &[&x.tensor(), &y.tensor()];
        return launch(device, &key, programs(x.extents(), shape), arguments, || {
            kernels::convert::stage::<T, U>(shape)
        });
    }
    on_cpu(device, |mut host| {
        let grid = host.numbers(&x)?;
        host.write_numbers(&y, &grid)
    })
}
