//! `ldmatrix`, `stmatrix` and `movmatrix`: 8x8 matrices of 16-bit units, between rows of 16 bytes and registers.
//!
//! Lane `l` gives the address of row `l % 8` of matrix `l / 8`; so row `i` of the rows here is at the address of lane
//! `i`. The forms with 8-bit units, which came after sm_90, are not decoded.

use tilewright_ptx::{Instruction, Modifier, Opcode};

use super::format::word;
use crate::number::Lanes;

/// Which way a [`MatrixCopy`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From memory to registers: `ldmatrix`.
    Load,
    /// From registers to memory: `stmatrix`.
    Store,
    /// From registers to registers: `movmatrix`.
    Move,
}

/// One form of a matrix copy, decoded.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier as M, Opcode, Shape};
/// use tilewright_sim::tensor::copy::{Direction, MatrixCopy};
/// let shape = M::Shape(Shape { m: 8, n: 8, k: 0 });
/// let words = [M::Sync, M::Aligned, shape, M::X2, M::Shared, M::B16];
/// let copy = MatrixCopy::decode(&Instruction::new(Opcode::Ldmatrix, &words, [])).expect("a form of Turing");
/// assert_eq!((copy.direction(), copy.rows()), (Direction::Load, 16));
/// let mut rows = [[0; 16]; 32];
/// rows[9][4..8].copy_from_slice(&7u32.to_le_bytes());
/// // Row 1 of matrix 1, units 2 and 3: lane 5 has them in its second register.
/// assert_eq!(copy.load(&rows)[1][5], 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixCopy {
    direction: Direction,
    matrices: usize,
    transposed: bool,
}

impl MatrixCopy {
    /// `ldmatrix` of 1, 2 or 4 matrices.
    pub fn load_of(matrices: usize, transposed: bool) -> MatrixCopy {
        MatrixCopy { direction: Direction::Load, matrices: matrices.min(4), transposed }
    }

    /// `stmatrix` of 1, 2 or 4 matrices.
    pub fn store_of(matrices: usize, transposed: bool) -> MatrixCopy {
        MatrixCopy { direction: Direction::Store, matrices: matrices.min(4), transposed }
    }

    /// The form of an instruction; `None` if it is none of sm_75 to sm_90.
    pub fn decode(instruction: &Instruction) -> Option<MatrixCopy> {
        let direction = match instruction.opcode {
            Opcode::Ldmatrix => Direction::Load,
            Opcode::Stmatrix => Direction::Store,
            Opcode::Movmatrix => Direction::Move,
            _ => return None,
        };
        let (mut shape, mut matrices, mut ty, mut transposed) = (None, None, None, false);
        for &modifier in &instruction.modifiers {
            match modifier {
                Modifier::Sync | Modifier::Aligned | Modifier::Shared | Modifier::SharedCta => {}
                Modifier::Shape(found) => shape = Some((found.m, found.n, found.k)),
                Modifier::X1 | Modifier::X2 | Modifier::X4 => matrices = modifier.count(),
                Modifier::Trans => transposed = true,
                Modifier::B16 => ty = Some(modifier),
                _ => return None,
            }
        }
        ty?;
        let moves = direction == Direction::Move;
        if shape != Some((8, 8, 0)) || (moves && (!transposed || matrices.is_some())) {
            return None;
        }
        let matrices = if moves { 1 } else { matrices? };
        Some(MatrixCopy { direction, matrices, transposed })
    }

    /// Which way it goes.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Matrices, and registers of each lane: 1, 2 or 4.
    pub fn matrices(&self) -> usize {
        self.matrices
    }

    /// Rows in memory: those at the addresses of so many lanes, from lane 0. The addresses of the others are not looked
    /// at.
    pub fn rows(&self) -> usize {
        if self.direction == Direction::Move { 0 } else { 8 * self.matrices }
    }

    /// Whether a lane holds parts of a column instead of a row.
    pub fn transposed(&self) -> bool {
        self.transposed
    }

    /// The registers that hold these rows; those beyond [`matrices`](MatrixCopy::matrices) are zero.
    pub fn load(&self, rows: &[[u8; 16]; 32]) -> [Lanes; 4] {
        let mut registers = [[0; 32]; 4];
        for (register, rows) in registers.iter_mut().zip(rows.chunks_exact(8)).take(self.matrices) {
            let unit =
                |row: usize, unit: usize| u16::from_le_bytes([rows[row][2 * unit], rows[row][2 * unit + 1]]);
            for (lane, value) in register.iter_mut().enumerate() {
                let (across, along) = (lane / 4, lane % 4 * 2);
                let [low, high] = match self.transposed {
                    false => [unit(across, along), unit(across, along + 1)],
                    true => [unit(along, across), unit(along + 1, across)],
                };
                *value = u64::from(low) | u64::from(high) << 16;
            }
        }
        registers
    }

    /// The rows that hold these registers; those beyond [`rows`](MatrixCopy::rows), and of missing registers, are zero.
    pub fn store(&self, registers: &[Lanes]) -> [[u8; 16]; 32] {
        let mut rows = [[0; 16]; 32];
        for (rows, register) in rows.chunks_exact_mut(8).zip(registers).take(self.matrices) {
            for (lane, value) in register.iter().enumerate() {
                let (across, along) = (lane / 4, lane % 4 * 2);
                let [b0, b1, b2, b3] = word(*value).to_le_bytes();
                for (position, unit) in [[b0, b1], [b2, b3]].into_iter().enumerate() {
                    let (row, column) = match self.transposed {
                        false => (across, along + position),
                        true => (along + position, across),
                    };
                    rows[row][2 * column..2 * column + 2].copy_from_slice(&unit);
                }
            }
        }
        rows
    }
}

/// `movmatrix.trans`: the transposed matrix.
pub fn transpose(register: &Lanes) -> Lanes {
    let copy = |transposed| MatrixCopy { direction: Direction::Move, matrices: 1, transposed };
    let [transposed, ..] = copy(true).load(&copy(false).store(&[*register]));
    transposed
}

#[cfg(test)]
mod tests {
    use tilewright_ptx::Shape;

    use super::*;

    fn decode(opcode: Opcode, count: Option<Modifier>, trans: bool) -> Option<MatrixCopy> {
        let mut words = vec![Modifier::Sync, Modifier::Aligned, Modifier::Shape(Shape { m: 8, n: 8, k: 0 })];
        words.extend(count);
        words.extend(trans.then_some(Modifier::Trans));
        words.extend((opcode != Opcode::Movmatrix).then_some(Modifier::Shared));
        words.push(Modifier::B16);
        MatrixCopy::decode(&Instruction::new(opcode, &words, []))
    }

    /// A number for each unit of each row.
    fn unit(row: usize, column: usize) -> u16 {
        u16::try_from(row * 8 + column + 1).unwrap()
    }

    fn numbered() -> [[u8; 16]; 32] {
        std::array::from_fn(|row| std::array::from_fn(|byte| unit(row, byte / 2).to_le_bytes()[byte % 2]))
    }

    #[test]
    fn loads_and_stores_follow_the_copies_of_the_hardware() {
        for form in tilewright_hardware::MatrixCopy::ALL {
            let count = [Modifier::X1, Modifier::X2, Modifier::X4][form.matrices().ilog2() as usize];
            let load = decode(Opcode::Ldmatrix, Some(count), form.transposed()).unwrap();
            let store = decode(Opcode::Stmatrix, Some(count), form.transposed()).unwrap();
            let registers = load.load(&numbered());
            let tv = form.tv().unwrap();
            for lane in 0..32 {
                for value in 0..tv.values() {
                    let index = usize::try_from(tv.index(lane, value).unwrap()).unwrap();
                    let (row, column, matrix) = (index % 8, index / 8 % 8, index / 64);
                    let value = usize::try_from(value).unwrap();
                    let register = registers[value / 2][usize::try_from(lane).unwrap()];
                    assert_eq!(
                        register >> (16 * (value % 2)) & 0xffff,
                        u64::from(unit(8 * matrix + row, column)),
                        "{form:?} lane {lane} value {value}"
                    );
                }
            }
            let stored = store.store(&registers);
            assert_eq!(stored[..store.rows()], numbered()[..store.rows()]);
            assert!(stored[store.rows()..].iter().flatten().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn movmatrix_transposes() {
        assert!(decode(Opcode::Movmatrix, None, true).is_some());
        assert!(decode(Opcode::Movmatrix, None, false).is_none());
        let x1 = decode(Opcode::Ldmatrix, Some(Modifier::X1), false).unwrap();
        let [matrix, ..] = x1.load(&numbered());
        let rows = x1.store(&[transpose(&matrix)]);
        for (row, bytes) in rows.iter().enumerate().take(8) {
            for column in 0..8 {
                let found = u16::from_le_bytes([bytes[2 * column], bytes[2 * column + 1]]);
                assert_eq!(found, unit(column, row));
            }
        }
        assert_eq!(transpose(&transpose(&matrix)), matrix);
    }

    #[test]
    fn what_is_no_form_is_refused() {
        assert!(decode(Opcode::Ldmatrix, None, false).is_none());
        assert!(decode(Opcode::Mma, Some(Modifier::X1), false).is_none());
        let bytes =
            [Modifier::Sync, Modifier::Shape(Shape { m: 16, n: 16, k: 0 }), Modifier::X1, Modifier::B8];
        assert!(MatrixCopy::decode(&Instruction::new(Opcode::Ldmatrix, &bytes, [])).is_none());
    }
}
