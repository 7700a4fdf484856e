//! [`transpose`] and [`permute`]: the same elements in another order, bit by bit, of any type.
//!
//! Results are in memory of their own. Nothing is written where there is nothing.

use tilewright_kernels::ops::{self as kernels, Tiling};

use super::cpu::{Grid, on_cpu};
use super::launch::{key, launch, programs};
use super::rows::{Operands, expect_extents};
use super::{Error, Rows};
use crate::device::{Argument, Buffer, Device, DeviceKind, Item};

/// Rows and columns that a program turns.
const SIDE: u32 = 32;

/// Rows of `x` become columns of `y`.
///
/// ```
/// use tilewright::ops::{Rows, transpose};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let (x, y) = (device.upload(&[1u32, 2, 3, 4, 5, 6])?, device.alloc::<u32>(6)?);
/// transpose(&device, Rows::new(&x, 2, 3), Rows::new(&y, 3, 2))?;
/// assert_eq!(y.to_vec()?, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the operands do not fit together, or the device fails.
pub fn transpose<'r, T: Item>(
    device: &Device,
    x: impl Into<Rows<'r, T>>,
    y: impl Into<Rows<'r, T>>,
) -> Result<(), Error> {
    let (x, y) = (x.into(), y.into());
    let (rows, columns) = x.extents();
    let mut operands = Operands::on(device);
    operands.input("x", &x)?;
    expect_extents("y", &y, (columns, rows), "what the columns of `x` make as rows")?;
    operands.apart("y", &y)?;
    if device.kind() != DeviceKind::Cpu {
        let tiling = Tiling::of([SIDE; 2], columns);
        let arguments: &[&dyn Argument] = &[&x.tensor(), &y.tensor()];
        let key = key("transpose", &[T::ELEMENT], &[], tiling);
        return launch(device, &key, programs(x.extents(), tiling), arguments, || {
            kernels::transpose::stage::<T>(tiling)
        });
    }
    on_cpu(device, |mut host| {
        let turned = host.read(&x.transposed())?;
        host.write(&y, &turned)
    })
}

/// Axes of a tensor of up to four dimensions in another order: axis `i` of `y` is axis `axes[i]` of `x`. Neither has gaps.
///
/// ```
/// use tilewright::ops::permute;
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// // 2 tokens with 3 heads of 2 numbers become 3 heads of 2 tokens.
/// let x = device.upload(&[0u32, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121])?;
/// let y = device.alloc::<u32>(12)?;
/// permute(&device, &x, &[2, 3, 2], &[1, 0, 2], &y)?;
/// assert_eq!(y.to_vec()?, [0, 1, 100, 101, 10, 11, 110, 111, 20, 21, 120, 121]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the operands do not fit together, or the device fails.
pub fn permute<T: Item>(
    device: &Device,
    x: &Buffer<T>,
    extents: &[usize],
    axes: &[usize],
    y: &Buffer<T>,
) -> Result<(), Error> {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    if extents.len() > 4 || sorted != (0..extents.len()).collect::<Vec<_>>() {
        let expected = format!("each axis of {extents:?} once, four at most");
        return Err(Error::argument("axes", format!("{axes:?}"), expected, "name every axis"));
    }
    // Where there is nothing, the product of the other extents may be no number.
    let elements = match extents.contains(&0) {
        true => Some(0),
        false => extents.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent)),
    };
    let Some(elements) = elements else {
        return Err(Error::argument(
            "extents",
            format!("{extents:?}"),
            "fewer than 2^64 elements",
            "split it",
        ));
    };
    for (name, buffer) in [("x", x), ("y", y)] {
        if buffer.len() != elements {
            let expected = format!("{elements}, as {extents:?} has");
            let found = format!("{} elements", buffer.len());
            return Err(Error::argument(name, found, expected, "give a slice of the buffer"));
        }
    }
    let mut operands = Operands::on(device);
    operands.input("x", &x.into())?;
    operands.apart("y", &y.into())?;
    if elements == 0 {
        return Ok(());
    }
    if device.kind() != DeviceKind::Cpu {
        return launch_permute(device, x, extents, axes, y);
    }
    let strides = dense(extents);
    // Steps of `y`, innermost first.
    let steps: Vec<(usize, usize)> = axes.iter().rev().map(|&axis| (extents[axis], strides[axis])).collect();
    on_cpu(device, |mut host| {
        let all = host.read(&x.into())?;
        let place = |mut index: usize| {
            steps.iter().fold(0, |at, (extent, stride)| {
                let coordinate = index % extent;
                index /= extent;
                at + coordinate * stride
            })
        };
        let values = (0..elements).map(|index| all.values[place(index)]).collect();
        host.write(&y.into(), &Grid { values, columns: elements })
    })
}

/// Elements between neighbours along each axis of a tensor without gaps.
fn dense(extents: &[usize]) -> Vec<usize> {
    (0..extents.len()).map(|axis| extents[axis + 1..].iter().product()).collect()
}

fn launch_permute<T: Item>(
    device: &Device,
    x: &Buffer<T>,
    extents: &[usize],
    axes: &[usize],
    y: &Buffer<T>,
) -> Result<(), Error> {
    // Four axes of `y`, the first ones of extent 1 if it has fewer, and the elements of `x` between neighbours along them.
    let (mut to, mut apart) = ([1usize; 4], [0usize; 4]);
    let strides = dense(extents);
    for (place, &axis) in (4 - axes.len()..).zip(axes) {
        (to[place], apart[place]) = (extents[axis], strides[axis]);
    }
    // A square of what is next to each other in `y` and in `x`.
    let near = (0..3).filter(|&axis| to[axis] > 1).min_by_key(|&axis| apart[axis]);
    let mut shape = [1u32; 4];
    for axis in near.into_iter().chain([3]) {
        shape[axis] = SIDE;
    }
    let blocks = to.iter().zip(shape).map(|(&extent, side)| extent.div_ceil(side as usize));
    let programs = u32::try_from(blocks.product::<usize>()).unwrap_or(u32::MAX);
    let key = ("permute", T::ELEMENT, shape);
    let arguments: &[&dyn Argument] = &[&x.strided(to, apart), &y.view(to)];
    launch(device, &key, [programs, 1], arguments, || kernels::permute::stage::<T>(shape))
}
