//! `ldmatrix` and `stmatrix`: 8x8 matrices of 16-bit units between shared memory and the registers of a warp.
//!
//! A matrix is eight rows of 16 bytes. Lane `l` gives the address of row `l % 8` of matrix `l / 8`; register `i` of
//! every lane belongs to matrix `i`. Without transposition lane `l` holds units `2 * (l % 4)` and the next of row
//! `l / 4`; with it, those of *column* `l / 4`.
//!
//! Wider and narrower types travel as 16-bit units: a row is then 16 bytes of them. Transposition moves 16-bit units, so
//! it fits only 16-bit elements. The transposing loads of bytes that Blackwell has are not here.

use tilewright_layout::{Layout, TvLayout};

use crate::arch::{Arch, WARP};
use crate::element::Element;
use crate::error::{HardwareError, Result, to_u32};
use crate::mma;
use crate::swizzle::Major;

/// Which way a [`MatrixCopy`] goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From shared memory to registers: `ldmatrix`.
    Load,
    /// From registers to shared memory: `stmatrix`.
    Store,
}

impl Direction {
    /// The architecture it needs.
    pub const fn needs(self) -> Arch {
        match self {
            Direction::Load => Arch::SM_80,
            Direction::Store => Arch::SM_90,
        }
    }
}

/// One form of `ldmatrix` or `stmatrix`: how many matrices, transposed or not.
///
/// ```
/// use tilewright_hardware::MatrixCopy;
/// let x4 = MatrixCopy::ALL[4];
/// assert_eq!((x4.matrices(), x4.transposed()), (4, false));
/// assert_eq!(x4.row_of_lane(19), Some((3, 2)));
/// let tv = x4.tv()?;
/// assert_eq!(tv.coordinate(5, 2)?.to_string(), "(1,2,1)");
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixCopy {
    matrices: u32,
    transposed: bool,
}

const fn form(matrices: u32, transposed: bool) -> MatrixCopy {
    MatrixCopy { matrices, transposed }
}

impl MatrixCopy {
    /// Every form; loads and stores have the same.
    pub const ALL: [MatrixCopy; 6] =
        [form(1, false), form(1, true), form(2, false), form(2, true), form(4, false), form(4, true)];

    /// Number of matrices, and of registers of each lane: 1, 2 or 4.
    pub const fn matrices(self) -> u32 {
        self.matrices
    }

    /// Whether a lane holds parts of a column instead of a row.
    pub const fn transposed(self) -> bool {
        self.transposed
    }

    /// Which lane holds which 16-bit unit, as a layout onto `(row, unit in the row, matrix)`.
    pub fn tv(self) -> Result<TvLayout> {
        let (lanes, pair) = if self.transposed { ((2, 8), 1) } else { ((16, 1), 8) };
        let matrices = i64::from(self.matrices);
        let layout = Layout::new(((4, 8), (2, matrices)), (lanes, (pair, 64)))?;
        Ok(TvLayout::new(layout, (8, 8, matrices))?)
    }

    /// Which (row, matrix) a lane gives the address of; `None` if its address is not looked at.
    pub const fn row_of_lane(self, lane: u32) -> Option<(u32, u32)> {
        if lane < 8 * self.matrices { Some((lane % 8, lane / 8)) } else { None }
    }
}

/// One `ldmatrix` or `stmatrix` that moves some registers of a fragment; see [`for_fragment`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FragmentCopy {
    /// The form.
    pub copy: MatrixCopy,
    /// The first of the 32-bit registers of the fragment that it moves; the others follow.
    pub register: u32,
    /// Top left corner of each matrix in the tile of the fragment, as seen by the first warp.
    corners: Vec<(u32, u32)>,
    /// Distance from the rows of a warp to those of the next.
    warp_rows: u32,
}

impl FragmentCopy {
    /// The coordinate `(row, column)` in the tile of the fragment where the 16 bytes start that `thread` gives the
    /// address of. The bytes go on along the contiguous mode.
    ///
    /// Lanes whose address is not looked at get the address of a lane that counts, so that all are valid.
    pub fn coordinate(&self, thread: u32) -> (u32, u32) {
        let lane = thread % WARP % (8 * self.copy.matrices);
        let (line, matrix) = (lane % 8, lane / 8);
        let (row, column) = self.corners[matrix as usize];
        let row = row.saturating_add((thread / WARP).saturating_mul(self.warp_rows));
        if self.copy.transposed { (row, column + line) } else { (row + line, column) }
    }
}

/// The `ldmatrix` or `stmatrix` instructions that move a fragment, for a tile in shared memory with `major` contiguous.
///
/// `fragment` is an operand of [`Mma`](crate::Mma), several of them ([`mma::repeat`]), or an accumulator whose values
/// were converted to `element`. The instructions come in the order of the registers, the widest possible each time.
///
/// ```
/// use tilewright_hardware::{Element::*, Major, Operand, matrix_copy, mma};
/// let atom = mma::find(BF16, BF16, F32, (16, 8, 16))?;
/// let a = atom.fragment(Operand::A).expect("in registers");
/// let [load] = &matrix_copy::for_fragment(a, BF16, Major::K)?[..] else { panic!("one x4 is enough") };
/// assert_eq!((load.copy.matrices(), load.copy.transposed()), (4, false));
/// assert_eq!([0, 9, 18, 27].map(|lane| load.coordinate(lane)), [(0, 0), (9, 0), (2, 8), (11, 8)]);
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
pub fn for_fragment(fragment: &TvLayout, element: Element, major: Major) -> Result<Vec<FragmentCopy>> {
    let refuse =
        |reason: String| HardwareError::NoMatrixCopy { fragment: fragment.to_string(), element, reason };
    let (rows, _) = mma::extents(fragment)?;
    let transposed = major == Major::Mn;
    if !matches!(element.bits(), 8 | 16 | 32) || (transposed && element.bits() != 16) {
        let expected =
            if transposed { "16-bit elements, to transpose" } else { "elements of 8, 16 or 32 bits" };
        return Err(refuse(format!("expected {expected}")));
    }
    let lanes = i64::from(WARP);
    let run = i64::from(32 / element.bits());
    if fragment.threads() % lanes != 0 || fragment.values() % run != 0 {
        return Err(refuse(format!(
            "{} threads with {} values are not whole warps with whole registers",
            fragment.threads(),
            fragment.values()
        )));
    }
    let at = |thread: i64, value: i64| -> Result<(i64, i64)> {
        let index = fragment.index(thread, value)?;
        Ok((index % rows, index / rows))
    };
    let warp_rows = if fragment.threads() > lanes { at(lanes, 0)?.0 - at(0, 0)?.0 } else { 0 };
    let registers = fragment.values() / run;
    let mut corners = Vec::new();
    for register in 0..registers {
        let (row, column) = at(0, register * run)?;
        for thread in 0..fragment.threads() {
            let (warp, lane) = (thread / lanes, thread % lanes);
            for e in 0..run {
                let expected = (row + warp * warp_rows + lane / 4, column + run * (lane % 4) + e);
                let found = at(thread, register * run + e)?;
                if found != expected {
                    return Err(refuse(format!(
                        "value {} of thread {thread} is element {found:?}, expected {expected:?}",
                        register * run + e
                    )));
                }
            }
        }
        corners.push((to_u32(row)?, to_u32(column)?));
    }
    let warp_rows = to_u32(warp_rows)?;
    let mut copies = Vec::new();
    let mut rest = &corners[..];
    while !rest.is_empty() {
        let matrices = [4, 2, 1].into_iter().find(|n| *n <= rest.len()).unwrap_or(1);
        let (now, later) = rest.split_at(matrices);
        copies.push(FragmentCopy {
            copy: MatrixCopy { matrices: to_u32(matrices)?, transposed },
            register: to_u32(corners.len() - rest.len())?,
            corners: now.to_vec(),
            warp_rows,
        });
        rest = later;
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mma::{Group, Operand};
    use tilewright_layout::Composed;

    use crate::swizzle::{SwizzleMode, smem_tile};

    #[test]
    fn forms_are_partitions_and_match_the_instruction_set() {
        for copy in MatrixCopy::ALL {
            let tv = copy.tv().unwrap();
            assert!(tv.is_partition().unwrap());
            for lane in 0..32 {
                for value in 0..tv.values() {
                    let (along, across) = (2 * (lane % 4) + value % 2, lane / 4);
                    let (row, unit) = if copy.transposed { (along, across) } else { (across, along) };
                    assert_eq!(tv.index(lane, value).unwrap(), row + 8 * unit + 64 * (value / 2), "{copy:?}");
                }
            }
            let rows: Vec<_> = (0..32).filter_map(|lane| copy.row_of_lane(lane)).collect();
            assert_eq!(rows.len(), 8 * copy.matrices as usize);
        }
    }

    /// Carries out the loads on a tile in shared memory, byte by byte: what is in the registers then?
    fn load(
        copies: &[FragmentCopy],
        tile: &Composed,
        rows: i64,
        major: Major,
        tv: &TvLayout,
        element: Element,
    ) {
        let bytes = i64::from(element.bytes());
        let run = i64::from(32 / element.bits());
        let address = |row: i64, column: i64| tile.at(row + rows * column).unwrap() * bytes;
        let mut loaded = 0;
        for copy in copies {
            assert_eq!(i64::from(copy.register), loaded, "registers come in order");
            loaded += i64::from(copy.copy.matrices());
            let units = copy.copy.tv().unwrap();
            for thread in 0..u32::try_from(tv.threads()).unwrap() {
                for value in 0..units.values() {
                    // Where the hardware takes this 16-bit unit from: a row whose address some lane of the warp gave.
                    let at: Vec<i64> =
                        units.coordinate((thread % 32).into(), value).unwrap().leaves().copied().collect();
                    let lane = u32::try_from(8 * at[2] + at[0]).unwrap();
                    let (row, column) = copy.coordinate(thread / 32 * 32 + lane);
                    let start = address(row.into(), column.into());
                    assert_eq!(start % 16, 0, "a row of a matrix is aligned");
                    let byte = start + 2 * at[1];
                    // Where the element of the fragment that belongs there lies.
                    let register = i64::from(copy.register) + value / 2;
                    let held = register * run + value % 2 * 2 / bytes;
                    let inside = value % 2 * 2 % bytes;
                    let want = tv.index(thread.into(), held).unwrap();
                    let want = address(want % rows, want / rows) + inside;
                    assert_eq!(byte, want, "{major:?} thread {thread} value {value}");
                }
            }
        }
        assert_eq!(loaded * run, tv.values());
    }

    #[test]
    fn operands_arrive_as_fragments() {
        let mut seen = 0;
        for atom in mma::all().filter(|mma| mma.group == Group::Warp || mma.shape.n == 64) {
            for operand in [Operand::A, Operand::B] {
                let element = atom.element(operand);
                let Some(one) = atom.fragment(operand).filter(|_| element != Element::F64) else { continue };
                for (count, major) in [1, 2, 4].into_iter().flat_map(|n| [(n, Major::K), (n, Major::Mn)]) {
                    let tv = mma::repeat(one, count).unwrap();
                    let copies = for_fragment(&tv, element, major);
                    if major == Major::Mn && element.bits() != 16 {
                        assert!(copies.unwrap_err().to_string().contains("16-bit"));
                        continue;
                    }
                    let (rows, columns) = mma::extents(&tv).unwrap();
                    let shape = (u32::try_from(rows).unwrap(), u32::try_from(columns).unwrap());
                    let tile = smem_tile(major, shape.0, shape.1, element, SwizzleMode::None).unwrap();
                    load(&copies.unwrap(), &tile, rows, major, &tv, element);
                    seen += 1;
                }
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn swizzled_tiles_and_accumulators() {
        for (m, n) in [(16, 64), (64, 128)] {
            let tv = mma::fragment(m, n, 2, m / 16).unwrap();
            for (major, mode) in
                SwizzleMode::ALL.into_iter().flat_map(|mode| [(Major::K, mode), (Major::Mn, mode)])
            {
                let Ok(tile) = smem_tile(major, m, n, Element::F16, mode) else {
                    assert!(m == 16 && major == Major::Mn && mode.span() > 32);
                    continue;
                };
                let copies = for_fragment(&tv, Element::F16, major).unwrap();
                assert!(copies.iter().all(|copy| copy.copy.matrices() == 4));
                load(&copies, &tile, m.into(), major, &tv, Element::F16);
            }
        }
    }

    #[test]
    fn what_is_no_fragment_is_refused() {
        let tv = TvLayout::new("(32,8):(8,1)".parse().unwrap(), (8, 32)).unwrap();
        let message = for_fragment(&tv, Element::F16, Major::K).unwrap_err().to_string();
        assert!(message.contains("thread 0"), "{message}");
        let pairs = mma::fragment(16, 8, 2, 1).unwrap();
        // f32 accumulators are pairs of columns, not one column a lane.
        assert!(for_fragment(&pairs, Element::F32, Major::K).is_err());
        assert!(for_fragment(&pairs, Element::F64, Major::K).is_err());
    }
}
