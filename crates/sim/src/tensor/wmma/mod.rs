//! `wmma.load`, `wmma.mma` and `wmma.store`: matrix products of a warp whose fragments PTX leaves open.
//!
//! PTX says how many registers a fragment has, not which element is where; programs may only do the same to all
//! elements. Here lane `l` holds a run of neighbouring elements, A by rows, B by columns, accumulators by rows: element
//! `i` of lane `l` is number `(l * count + i) % size`. Fragments of `f16` are larger than their matrix, as on the
//! hardware: several lanes then hold the same elements. The layout in memory, `row` or `col`, does not change the
//! fragment.

use std::sync::Arc;

use rustc_apfloat::Round;
use tilewright_ptx::{Instruction, Modifier, Opcode, Shape, Type};

use super::format::{Accumulator, Format};
use super::product::{Places, Product};
use crate::number::Lanes;

/// A `wmma` instruction, decoded.
#[derive(Clone, Debug)]
pub enum Wmma {
    /// `wmma.load`
    Load(Transfer),
    /// `wmma.store`
    Store(Transfer),
    /// `wmma.mma`
    Multiply(Multiply),
}

/// A matrix of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matrix {
    /// The left factor, m times k.
    A,
    /// The right factor, k times n.
    B,
    /// The accumulator, m times n.
    C,
}

/// The type of the elements of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Factor(Format),
    Accumulator(Accumulator),
}

/// A fragment between registers and memory. It moves in units: an element or, of elements smaller than a byte, a
/// register.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier as M, Opcode, Shape};
/// use tilewright_sim::tensor::wmma::Wmma;
/// let shape = M::Shape(Shape { m: 16, n: 16, k: 16 });
/// let words = [M::Load, M::A, M::Sync, M::Aligned, M::Row, shape, M::Shared, M::F16];
/// let Some(Wmma::Load(load)) = Wmma::decode(&Instruction::new(Opcode::Wmma, &words, [])) else {
///     panic!("Volta has it");
/// };
/// assert_eq!((load.registers(), load.units_per_register(), load.unit_bytes()), (8, 2, 2));
/// assert_eq!(load.default_stride(), 16);
/// // The sixteen elements of lane 3 are row 3; lane 19 has them too.
/// assert_eq!(load.offset(3, 5, 100), 2 * (3 * 100 + 5));
/// assert_eq!(load.offset(19, 5, 100), load.offset(3, 5, 100));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    matrix: Matrix,
    shape: Extents,
    element: Element,
    columns: bool,
}

/// A product; its fragments are those that [`Transfer`] moves.
#[derive(Clone, Debug)]
pub struct Multiply {
    product: Product,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extents {
    m: usize,
    n: usize,
    k: usize,
}

impl Extents {
    /// Length of a run of neighbours, and number of runs.
    fn runs(self, matrix: Matrix) -> (usize, usize) {
        match matrix {
            Matrix::A => (self.k, self.m),
            Matrix::B => (self.k, self.n),
            Matrix::C => (self.n, self.m),
        }
    }

    /// Elements of a fragment in each lane.
    fn count(self, matrix: Matrix, element: Element) -> usize {
        let (length, number) = self.runs(matrix);
        match element {
            Element::Factor(Format::F16) => 16,
            _ => length * number / 32,
        }
    }

    /// Which run element `index` of a lane is in, and where in it.
    fn locate(self, matrix: Matrix, element: Element, lane: usize, index: usize) -> (usize, usize) {
        let (length, number) = self.runs(matrix);
        let flat = (lane * self.count(matrix, element) + index) % (length * number);
        (flat / length, flat % length)
    }

    /// Where the elements of a fragment lie in the dense matrices of [`Product`].
    fn places(self, matrix: Matrix, element: Element) -> Places {
        let mut places = Vec::new();
        for index in 0..self.count(matrix, element) {
            for lane in 0..32 {
                let (run, within) = self.locate(matrix, element, lane, index);
                let (_, number) = self.runs(matrix);
                // All shapes have at most 1024 elements.
                places.push(u16::try_from(within * number + run).unwrap_or(u16::MAX));
            }
        }
        Arc::from(places)
    }
}

/// The shapes of a type of factors.
fn shapes(format: Format) -> &'static [(u16, u16, u16)] {
    match format {
        Format::F16 | Format::Bf16 | Format::S8 | Format::U8 => &[(16, 16, 16), (8, 32, 16), (32, 8, 16)],
        Format::Tf32 => &[(16, 16, 8)],
        Format::F64 => &[(8, 8, 4)],
        Format::S4 | Format::U4 => &[(8, 8, 32)],
        Format::B1 => &[(8, 8, 128)],
        Format::E4m3 | Format::E5m2 => &[],
    }
}

/// The accumulators of a type of factors.
fn accumulators(format: Format) -> &'static [Accumulator] {
    match format {
        Format::F16 => &[Accumulator::F16, Accumulator::F32],
        Format::Bf16 | Format::Tf32 => &[Accumulator::F32],
        Format::F64 => &[Accumulator::F64],
        _ => &[Accumulator::S32],
    }
}

const FACTORS: [Format; 9] = [
    Format::F16,
    Format::Bf16,
    Format::Tf32,
    Format::F64,
    Format::S8,
    Format::U8,
    Format::S4,
    Format::U4,
    Format::B1,
];

impl Wmma {
    /// The form of an instruction; `None` if it is none of sm_70 to sm_90.
    pub fn decode(instruction: &Instruction) -> Option<Wmma> {
        if instruction.opcode != Opcode::Wmma {
            return None;
        }
        let mut columns = Vec::new();
        let (mut kind, mut matrix, mut shape) = (None, None, None);
        let (mut saturate, mut popc, mut logic, mut rounding) = (false, false, None, None);
        for &modifier in &instruction.modifiers {
            match modifier {
                Modifier::Sync | Modifier::Aligned | Modifier::Type(_) => {}
                Modifier::Global | Modifier::Shared | Modifier::SharedCta => {}
                Modifier::Load | Modifier::Store | Modifier::MmaOp => kind = Some(modifier),
                Modifier::A => matrix = Some(Matrix::A),
                Modifier::B => matrix = Some(Matrix::B),
                Modifier::C | Modifier::D => matrix = Some(Matrix::C),
                Modifier::Row => columns.push(false),
                Modifier::Col => columns.push(true),
                Modifier::Shape(found) => shape = Some(found),
                Modifier::Satfinite => saturate = true,
                Modifier::PopcOp => popc = true,
                Modifier::XorOp | Modifier::AndOp => logic = Some(modifier),
                Modifier::Rn => rounding = Some(Round::NearestTiesToEven),
                Modifier::Rz => rounding = Some(Round::TowardZero),
                Modifier::Rm => rounding = Some(Round::TowardNegative),
                Modifier::Rp => rounding = Some(Round::TowardPositive),
                _ => return None,
            }
        }
        let shape = shape?;
        let types: Vec<Type> = instruction.types().collect();
        if kind? == Modifier::MmaOp {
            let bits = types.get(1) == Some(&Type::B1);
            if (bits, bits) != (logic.is_some(), popc) || columns.len() != 2 || matrix.is_some() {
                return None;
            }
            let xor = logic == Some(Modifier::XorOp);
            return Multiply::new(shape, &types, &columns, saturate, xor, rounding).map(Wmma::Multiply);
        }
        let (&[ty], &[columns], Some(matrix)) = (&types[..], &columns[..], matrix) else { return None };
        if saturate || popc || logic.is_some() || rounding.is_some() {
            return None;
        }
        let transfer = Transfer::new(matrix, shape, ty, columns)?;
        match (kind?, matrix, instruction.modifiers.contains(&Modifier::D)) {
            (Modifier::Load, _, false) => Some(Wmma::Load(transfer)),
            (Modifier::Store, Matrix::C, true) => Some(Wmma::Store(transfer)),
            _ => None,
        }
    }
}

impl Transfer {
    fn new(matrix: Matrix, shape: Shape, ty: Type, columns: bool) -> Option<Transfer> {
        let Shape { m, n, k } = shape;
        let element = match matrix {
            Matrix::C => Element::Accumulator(Accumulator::of(ty)?),
            _ => Element::Factor(Format::of(ty)?),
        };
        let known = FACTORS.iter().any(|&format| {
            let typed = match element {
                Element::Factor(factor) => factor == format,
                Element::Accumulator(accumulator) => accumulators(format).contains(&accumulator),
            };
            typed && shapes(format).contains(&(m, n, k))
        });
        // Elements smaller than a byte have k contiguous.
        let small = matches!(element, Element::Factor(format) if format.bits() < 8);
        let contiguous = columns == (matrix == Matrix::B);
        let shape = Extents { m: m.into(), n: n.into(), k: k.into() };
        (known && (!small || contiguous)).then_some(Transfer { matrix, shape, element, columns })
    }

    /// Which matrix it is.
    pub fn matrix(&self) -> Matrix {
        self.matrix
    }

    fn bits(&self) -> usize {
        match self.element {
            Element::Factor(format) => format.bits(),
            Element::Accumulator(Accumulator::F16) => 16,
            Element::Accumulator(Accumulator::F32 | Accumulator::S32) => 32,
            Element::Accumulator(Accumulator::F64) => 64,
        }
    }

    /// Elements in a unit.
    fn unit(&self) -> usize {
        if self.bits() < 8 { 32 / self.bits() } else { 1 }
    }

    /// Registers in each lane: 64-bit ones of `f64`, else 32-bit ones.
    pub fn registers(&self) -> usize {
        self.shape.count(self.matrix, self.element) / self.unit() / self.units_per_register()
    }

    /// Units in a register, low bits first.
    pub fn units_per_register(&self) -> usize {
        if self.bits() < 8 { 1 } else { (32 / self.bits()).max(1) }
    }

    /// Bytes of a unit in memory.
    pub fn unit_bytes(&self) -> usize {
        self.unit() * self.bits() / 8
    }

    /// The distance of rows, or columns, in elements if the instruction has no operand for it.
    pub fn default_stride(&self) -> u32 {
        let Extents { m, n, k } = self.shape;
        let stride = match (self.matrix, self.columns) {
            (Matrix::A, false) | (Matrix::B, true) => k,
            (Matrix::A | Matrix::C, true) => m,
            (Matrix::B | Matrix::C, false) => n,
        };
        u32::try_from(stride).unwrap_or(u32::MAX)
    }

    /// The alignment in bytes that PTX asks of every row, or column: the size of the fragment of a lane.
    pub fn alignment(&self) -> usize {
        self.registers() * self.units_per_register() * self.unit_bytes()
    }

    /// Where unit `index` of a lane is, in bytes from the address of the matrix; `stride` is in elements. Unit
    /// `register * units_per_register + position` is at that position of that register.
    pub fn offset(&self, lane: usize, index: usize, stride: u32) -> u64 {
        let (run, within) = self.shape.locate(self.matrix, self.element, lane, index * self.unit());
        // Runs are rows of A and C and columns of B.
        let (line, place) =
            if self.columns == (self.matrix == Matrix::B) { (run, within) } else { (within, run) };
        let elements = line as u64 * u64::from(stride) + place as u64;
        elements * self.bits() as u64 / 8
    }
}

impl Multiply {
    fn new(
        Shape { m, n, k }: Shape,
        types: &[Type],
        columns: &[bool],
        saturate: bool,
        xor: bool,
        rounding: Option<Round>,
    ) -> Option<Multiply> {
        let (d, a, b, c) = match *types {
            [d, c] => (d, Type::F16, Type::F16, c),
            [d, a, b, c] => (d, a, b, c),
            _ => return None,
        };
        let (a, b) = (Format::of(a)?, Format::of(b)?);
        let (c, d) = (Accumulator::of(c)?, Accumulator::of(d)?);
        let known = a == b
            && shapes(a).contains(&(m, n, k))
            && accumulators(a).contains(&c)
            && accumulators(a).contains(&d)
            && (!saturate || (a.is_integer() && a != Format::B1))
            && (rounding.is_none() || a == Format::F64)
            && (a.bits() >= 8 || columns == [false, true]);
        if !known {
            return None;
        }
        let shape = Extents { m: m.into(), n: n.into(), k: k.into() };
        let product = Product {
            m: shape.m,
            n: shape.n,
            k: shape.k,
            blocks: 1,
            a,
            b,
            c,
            d,
            a_places: shape.places(Matrix::A, Element::Factor(a)),
            b_places: shape.places(Matrix::B, Element::Factor(b)),
            c_places: shape.places(Matrix::C, Element::Accumulator(c)),
            d_places: shape.places(Matrix::C, Element::Accumulator(d)),
            saturate,
            xor,
            rounding: rounding.unwrap_or(Round::NearestTiesToEven),
        };
        Some(Multiply { product })
    }

    /// Registers of A, B, C and D in each lane.
    pub fn registers(&self) -> [usize; 4] {
        self.product.registers()
    }

    /// The types of A and B.
    pub fn factors(&self) -> (Format, Format) {
        (self.product.a, self.product.b)
    }

    /// Operations of the tensor cores, a multiply-add being two.
    pub fn operations(&self) -> u64 {
        self.product.operations()
    }

    /// The registers of D. Registers beyond [`registers`](Multiply::registers) are ignored, missing ones hold zeros.
    pub fn apply(&self, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
        self.product.apply(a, b, c, |left| left)
    }
}

#[cfg(test)]
mod tests;
