//! The product of the book, launched as its readers launch it: twenty lines, and no setting but the tile, which `--tile` chooses.

use tilewright::device::{Buffer, Device, DynBuffer, Item, Program};
use tilewright::hardware::Element;
use tilewright::lang::tile::prelude::*;

use super::super::super::Failure;
use super::super::timing::{Contestant, broken};
use super::case::{Case, Op};
use super::memory::Memory;
use super::subject::Subject;

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

/// The tile of a program, and the depth of a step, if none is asked for.
pub(super) const TILE: [u32; 3] = [128, 256, 64];

/// The product on tiles.
pub(super) struct Matmul {
    tile: [u32; 3],
    name: String,
}

impl Matmul {
    pub(super) fn new(tile: [u32; 3]) -> Matmul {
        let [m, n, k] = tile;
        Matmul { tile, name: format!("tiles {m}x{n}x{k}") }
    }
}

impl Subject for Matmul {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare<'a>(
        &'a self,
        device: &Device,
        case: &'a Case,
        memory: &'a Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure> {
        if case.op != Op::MatmulTile {
            return Ok(None);
        }
        match case.element {
            Element::F16 => Product::<f16>::prepare(device, (case, self.tile), memory),
            Element::BF16 => Product::<bf16>::prepare(device, (case, self.tile), memory),
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
