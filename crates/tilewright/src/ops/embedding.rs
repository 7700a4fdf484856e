//! [`embedding`]: rows of a table, chosen by index.
//!
//! Elements are copied bit by bit. An index that is no row of the table, negative ones included, gives a row of zeros. The result is in
//! memory of its own. Nothing is written where there is nothing.

use tilewright_kernels::ops as kernels;

use super::cpu::{Grid, on_cpu};
use super::launch::{key, launch, parts, programs};
use super::rows::{Operands, expect_extents};
use super::{Error, FloatItem, IndexItem, Rows};
use crate::device::{Argument, Device, DeviceKind};

/// Row `i` of `y` is row `indices[i]` of the table.
///
/// ```
/// use tilewright::ops::{Rows, embedding};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let table = device.upload(&[1.0f32, 2.0, 3.0, 4.0])?;
/// let (indices, y) = (device.upload(&[1i32, -1, 0])?, device.alloc::<f32>(6)?);
/// embedding(&device, Rows::new(&table, 2, 2), &indices, Rows::new(&y, 3, 2))?;
/// assert_eq!(y.to_vec()?, [3.0, 4.0, 0.0, 0.0, 1.0, 2.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the operands do not fit together, or the device fails.
pub fn embedding<'r, T: FloatItem, I: IndexItem>(
    device: &Device,
    table: impl Into<Rows<'r, T>>,
    indices: impl Into<Rows<'r, I>>,
    y: impl Into<Rows<'r, T>>,
) -> Result<(), Error> {
    let (table, y) = (table.into(), y.into());
    let (rows, _) = y.extents();
    let indices = indices.into().as_column(rows);
    let mut operands = Operands::on(device);
    operands.input("table", &table)?;
    expect_extents("indices", &indices, (rows, 1), "one for each row of `y`")?;
    operands.input("indices", &indices)?;
    let (known, columns) = table.extents();
    expect_extents("y", &y, (rows, columns), "with the columns of `table`")?;
    operands.apart("y", &y)?;
    if device.kind() != DeviceKind::Cpu {
        let tiling = parts((1, columns));
        let key = key("embedding", &[T::ELEMENT, I::ELEMENT], &[], tiling);
        let arguments: &[&dyn Argument] = &[&table.tensor(), &indices.tensor(), &y.tensor()];
        return launch(device, &key, programs(y.extents(), tiling), arguments, || {
            kernels::embedding::stage::<T, I>(tiling)
        });
    }
    on_cpu(device, |mut host| {
        let (table, indices) = (host.read(&table)?, host.read(&indices)?);
        let mut out = Grid::filled((rows, columns), T::from_f32(0.0));
        out.each_row(|row, values| {
            let index = usize::try_from(indices.values[row].index()).ok().filter(|index| *index < known);
            if let Some(index) = index {
                values.copy_from_slice(table.row(index));
            }
        });
        host.write(&y, &out)
    })
}
