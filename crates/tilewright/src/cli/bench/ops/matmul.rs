//! The product of the book, launched as its readers launch it: twenty lines, and no setting but the tile, which `--tile` chooses.

use tilewright::device::{Buffer, Device, DynBuffer, Item, Program};
use tilewright::hardware::Element;
use tilewright::lang::tile::prelude::*;

use super::super::super::Failure;
use super::super::timing::{Contestant, broken};
use super::case::Case;
use super::memory::Memory;
use super::subject::Subject;
use super::table::moves;

/// `c = a b`, a tile by a program, sixteen rows of tiles at a time: with tiles twice as wide as high, what runs together is about a square, and
/// reads the least.
#[kernel]
fn matmul<T: Float + Factor<T, f32>>(a: View<T, 2>, b: View<T, 2>, c: View<T, 2>, m: u32, n: u32, k: u32) {
    let own = c.partition_grouped([m, n], 16);
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        let a = a.tile([m, k]).at((own.start(0), step * k)).load();
        let b = b.tile([k, n]).at((step * k, own.start(1))).load();
        acc = dot(a, b, acc);
    }
    own.store(acc.cast());
}

/// The product on tiles.
pub(super) struct Matmul {
    /// The tile of a program, and the depth of a step, if one is asked for.
    pub(super) tile: Option<[u32; 3]>,
}

impl Matmul {
    fn tile(&self, device: &Device, case: &Case) -> [u32; 3] {
        self.tile.unwrap_or_else(|| tile(device.chip().multiprocessors, case.rows, case.columns))
    }
}

/// The tile for a product, if none is asked for: that of which the busiest multiprocessor computes the least. (8192 x 8192 on 132 of them: 15.5
/// rounds of 128 x 256 are 16, 20.8 of 128 x 192 are 21, which is 2 % less.)
fn tile(multiprocessors: u32, rows: u32, columns: u32) -> [u32; 3] {
    const M: u32 = 128;
    let busiest = |n: &u32| {
        let tiles = u64::from(rows.div_ceil(M)) * u64::from(columns.div_ceil(*n));
        tiles.div_ceil(multiprocessors.max(1).into()) * u64::from(*n)
    };
    let n = [256, 192].into_iter().min_by_key(busiest).unwrap_or(256);
    [M, n, 64]
}

impl Subject for Matmul {
    fn name(&self, device: &Device, case: &Case) -> String {
        let [m, n, k] = self.tile(device, case);
        format!("tiles {m}x{n}x{k}")
    }

    fn prepare<'a>(
        &'a self,
        device: &Device,
        case: &'a Case,
        memory: &'a Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure> {
        if case.op != &moves::MATMUL_TILE {
            return Ok(None);
        }
        let tile = self.tile(device, case);
        match case.element {
            Element::F16 => Product::<f16>::prepare(device, (case, tile), memory),
            Element::BF16 => Product::<bf16>::prepare(device, (case, tile), memory),
            // Tensor cores do not multiply f32.
            _ => Ok(None),
        }
    }
}

struct Product<'a, T> {
    program: Program,
    case: &'a Case,
    copies: Vec<[Buffer<T>; 3]>,
}

impl<'a, T: Item + Float + Factor<T, f32>> Product<'a, T> {
    fn prepare(
        device: &Device,
        (case, [m, n, k]): (&'a Case, [u32; 3]),
        memory: &Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure>
    where
        T: 'a,
    {
        let kernel = matmul::stage::<T>(m, n, k).map_err(|error| Failure::Machine(error.to_string()))?;
        let copy = |copy: usize| {
            let typed = |buffer: &Buffer<u8>| {
                DynBuffer::from(buffer).reinterpreted(T::ELEMENT).typed::<T>().map_err(broken)
            };
            match (memory.inputs(copy), memory.outputs(copy)) {
                ([a, b], [c]) => Ok([typed(a)?, typed(b)?, typed(c)?]),
                _ => Err(Failure::Machine("a product has two factors and one result".to_owned())),
            }
        };
        let copies = (0..memory.copies()).map(copy).collect::<Result<_, Failure>>()?;
        let program = device.program(&kernel).map_err(broken)?;
        Ok(Some(Box::new(Product { program, case, copies })))
    }
}

impl<T: Item> Contestant for Product<'_, T> {
    fn launch(&self, copy: usize) -> Result<(), Failure> {
        let Case { rows, columns, depth, .. } = *self.case;
        let (m, n, k) = (rows as usize, columns as usize, depth as usize);
        let [a, b, c] = &self.copies[copy % self.copies.len()];
        self.program.run(&[&a.view([m, k]), &b.view([k, n]), &c.view([m, n])]).map_err(broken)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_leave_little_of_the_last_round_idle() {
        for (multiprocessors, rows, columns, wide) in
            [(132, 4096, 4096, 256), (132, 8192, 8192, 192), (132, 128, 256 * 132, 256), (1, 1, 192, 192)]
        {
            assert_eq!(tile(multiprocessors, rows, columns), [128, wide, 64], "{rows}x{columns}");
        }
    }
}
