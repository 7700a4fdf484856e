//! Tensor-core instructions as data: which types, which shapes, on which chip, and who holds which element.
//!
//! Two families share one table: `mma.sync`, which a warp executes on registers, and `wgmma`, which a warpgroup
//! executes with B in shared memory. Everything that tells them apart follows from [`Mma::group`].
//!
//! # Convention
//!
//! An instruction computes `C(m,n) += sum over k of A(m,k) * B(n,k)`. A fragment is a [`TvLayout`] from (thread,
//! value) to the index in the tile `(m,k)`, `(n,k)` or `(m,n)`, first mode fastest, as in CuTe. Values are numbered as
//! they lie in registers, low bits first: with 16-bit elements, values 0 and 1 are the halves of register 0.
//!
//! All fragments of both families are one pattern, see [`fragment`]. Blackwell's `tcgen05` keeps its operands in
//! shared and tensor memory and is issued by one thread for a block or a pair of blocks: a further [`Group`] without
//! register fragments. Block-scaled `mma.sync` is further rows here, with the type of the scale factors.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{LazyLock, OnceLock};

use tilewright_layout::{Layout, Tree, TvLayout};

use crate::arch::{Arch, WARP, WARPGROUP};
use crate::element::Element;
use crate::error::{HardwareError, Result, names};

/// Extents of one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of C, rows of B.
    pub n: u32,
    /// Depth of the sum.
    pub k: u32,
}

impl From<(u32, u32, u32)> for Shape {
    fn from((m, n, k): (u32, u32, u32)) -> Shape {
        Shape { m, n, k }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("m{}n{}k{}", self.m, self.n, self.k))
    }
}

/// The threads that execute an instruction together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Group {
    /// 32 threads, all operands in registers: `mma.sync`.
    Warp,
    /// 128 threads, B in shared memory, A in shared memory or registers: `wgmma`.
    Warpgroup,
}

impl Group {
    /// Number of threads.
    pub const fn threads(self) -> u32 {
        match self {
            Group::Warp => WARP,
            Group::Warpgroup => WARPGROUP,
        }
    }
}

/// A matrix of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operand {
    /// The left factor, `(m,k)`.
    A,
    /// The right factor, `(n,k)`.
    B,
    /// The accumulator, `(m,n)`.
    C,
}

/// One tensor-core instruction. All there are is in the table: [`all`], [`find`], [`best`].
///
/// ```
/// use tilewright_hardware::{Element::*, Operand, mma};
/// let atom = mma::find(BF16, BF16, F32, (16, 8, 16))?;
/// assert_eq!(atom.to_string(), "mma.m16n8k16.f32.bf16.bf16");
/// let c = atom.fragment(Operand::C).expect("mma.sync keeps everything in registers");
/// assert_eq!(c.to_string(), "((4,8),(2,2,1)):((32,1),(16,8,128))");
/// assert_eq!(c.coordinate(5, 3)?.to_string(), "(9,3)");
///
/// let wide = mma::find(BF16, BF16, F32, (64, 256, 16))?;
/// assert_eq!(wide.registers(Operand::C), Some(128));
/// assert!(wide.fragment(Operand::B).is_none());
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mma {
    /// The extents.
    pub shape: Shape,
    /// The type of the left factor.
    pub a: Element,
    /// The type of the right factor.
    pub b: Element,
    /// The type of the accumulator.
    pub c: Element,
    /// Who executes it.
    pub group: Group,
    /// The architecture it needs.
    pub needs: Arch,
    /// The oldest PTX version that has it, major and minor.
    pub ptx: (u32, u32),
    fragments: OnceLock<[Option<TvLayout>; 3]>,
}

impl Mma {
    fn key(&self) -> (Group, Shape, Element, Element, Element) {
        (self.group, self.shape, self.a, self.b, self.c)
    }

    /// The type of an operand.
    pub fn element(&self, operand: Operand) -> Element {
        match operand {
            Operand::A => self.a,
            Operand::B => self.b,
            Operand::C => self.c,
        }
    }

    /// Rows and columns of an operand: `(m,k)`, `(n,k)` or `(m,n)`.
    pub fn extents(&self, operand: Operand) -> (u32, u32) {
        let Shape { m, n, k } = self.shape;
        match operand {
            Operand::A => (m, k),
            Operand::B => (n, k),
            Operand::C => (m, n),
        }
    }

    /// Which thread holds which element of an operand; `None` for B of wgmma, which is never in registers.
    pub fn fragment(&self, operand: Operand) -> Option<&TvLayout> {
        let all = self.fragments.get_or_init(|| [Operand::A, Operand::B, Operand::C].map(|o| self.build(o)));
        all[operand as usize].as_ref()
    }

    fn build(&self, operand: Operand) -> Option<TvLayout> {
        if !self.in_registers(operand) {
            return None;
        }
        let (rows, columns) = self.extents(operand);
        // Neighbours in a register; accumulators come in pairs of columns whatever their type.
        let run = match operand {
            Operand::C => 2,
            _ => (32 / self.element(operand).bits()).max(1),
        };
        let warps = self.group.threads() / WARP;
        #[expect(clippy::expect_used, reason = "a row of the table, not an input; the tests build every one")]
        Some(fragment(rows, columns, run, warps).expect("every row of the table has fragments"))
    }

    /// 32-bit registers that each thread holds of an operand; `None` if it is never in registers.
    pub fn registers(&self, operand: Operand) -> Option<u32> {
        let (rows, columns) = self.extents(operand);
        let bits = rows * columns / self.group.threads() * self.element(operand).bits();
        self.in_registers(operand).then_some(bits.div_ceil(32))
    }

    /// Whether an operand may come from registers.
    pub fn in_registers(&self, operand: Operand) -> bool {
        self.group == Group::Warp || operand != Operand::B
    }

    /// Whether an operand may come from shared memory.
    pub fn in_shared(&self, operand: Operand) -> bool {
        self.group == Group::Warpgroup && operand != Operand::C
    }

    /// Whether an operand in shared memory may have m or n contiguous instead of k: 16-bit types only.
    pub fn transposable(&self, operand: Operand) -> bool {
        self.in_shared(operand) && self.element(operand).bits() == 16
    }
}

impl PartialEq for Mma {
    fn eq(&self, other: &Mma) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Mma {}

impl Hash for Mma {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Mma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.group {
            Group::Warp => "mma",
            Group::Warpgroup => "wgmma",
        };
        f.pad(&format!("{family}.{}.{}.{}.{}", self.shape, self.c, self.a, self.b))
    }
}

/// The pattern of all fragments: who holds which element of a tile of `rows` times `columns`.
///
/// Lane `l` of a warp sits at row `l / 4` and, with `run` neighbouring columns in a register, at column
/// `run * (l % 4)`. Its values are first those neighbours, then the row 8 further down (where a warp has 16 rows),
/// then the columns `4 * run` further on. Each of `warps` warps has its own rows.
///
/// ```
/// use tilewright_hardware::mma;
/// // A of m16n8k16 with 16-bit elements.
/// assert_eq!(mma::fragment(16, 16, 2, 1)?.to_string(), "((4,8),(2,2,2)):((32,1),(16,8,128))");
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
pub fn fragment(rows: u32, columns: u32, run: u32, warps: u32) -> Result<TvLayout> {
    let whole =
        |extent: u32, unit: u64| (1..=65536).contains(&extent) && u64::from(extent).is_multiple_of(unit);
    if run == 0 || warps == 0 || !whole(rows, 8 * u64::from(warps)) || !whole(columns, 4 * u64::from(run)) {
        return Err(HardwareError::NoFragment { rows, columns, run, warps });
    }
    let [rows, columns, run, warps] = [rows, columns, run, warps].map(i64::from);
    let pair = |list: &[(i64, i64)]| {
        let modes = list.iter().map(|&(extent, stride)| Layout::new(extent, stride));
        Layout::tuple(modes.collect::<tilewright_layout::Result<Vec<_>>>()?)
    };
    let warp_rows = rows / warps;
    let mut threads = vec![(4, run * rows), (8, 1)];
    if warps > 1 {
        threads.push((warps, warp_rows));
    }
    let values = [(run, rows), (warp_rows / 8, 8), (columns / (4 * run), 4 * run * rows)];
    let layout = Layout::tuple([pair(&threads)?, pair(&values)?])?;
    Ok(TvLayout::new(layout, (rows, columns))?)
}

/// `count` copies of a fragment one below the other; the values of the first copy come first.
///
/// Two n8 fragments of B as one: what a single `ldmatrix.x4` brings.
///
/// ```
/// use tilewright_hardware::{Element::*, Operand, mma};
/// let b = mma::find(F16, F16, F32, (16, 8, 16))?.fragment(Operand::B).expect("in registers");
/// let two = mma::repeat(b, 2)?;
/// assert_eq!(two.tile().to_string(), "(16,16)");
/// assert_eq!(two.coordinate(0, 4)?.to_string(), "(8,0)");
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
pub fn repeat(fragment: &TvLayout, count: u32) -> Result<TvLayout> {
    let (rows, columns) = extents(fragment)?;
    let count = i64::from(count);
    let all_rows =
        rows.checked_mul(count).ok_or_else(|| HardwareError::Range { found: format!("{rows}*{count}") })?;
    // From the tile of one copy to that of all; then one more mode of values.
    let spread = Layout::new((rows, columns), (1, all_rows))?.compose(fragment.layout())?;
    let values = Layout::tuple([spread.mode(1)?, Layout::new(count, rows)?])?;
    Ok(TvLayout::new(Layout::tuple([spread.mode(0)?, values])?, (all_rows, columns))?)
}

/// Rows and columns of the tile of a fragment.
pub(crate) fn extents(fragment: &TvLayout) -> Result<(i64, i64)> {
    match fragment.tile().modes() {
        [Tree::Leaf(rows), Tree::Leaf(columns)] => Ok((*rows, *columns)),
        _ => Err(HardwareError::Layout(tilewright_layout::LayoutError::Rank {
            op: "fragment",
            what: format!("tile {}", fragment.tile()),
            found: fragment.tile().rank(),
            expected: "2, rows and columns".into(),
        })),
    }
}

/// Types, shapes, architecture and PTX version: the rows of `mma.sync`.
type WarpRow =
    (&'static [(Element, Element)], &'static [Element], &'static [(u32, u32, u32)], Arch, (u32, u32));

use Element::{BF16, E4M3, E5M2, F16, F32, F64, I8, I32, TF32, U8};

const INTEGERS: &[(Element, Element)] = &[(I8, I8), (I8, U8), (U8, I8), (U8, U8)];
const FP8: &[(Element, Element)] = &[(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)];

const WARP_ROWS: &[WarpRow] = &[
    (&[(F16, F16)], &[F16, F32], &[(16, 8, 8), (16, 8, 16)], Arch::SM_80, (7, 0)),
    (&[(BF16, BF16)], &[F32], &[(16, 8, 8), (16, 8, 16)], Arch::SM_80, (7, 0)),
    (&[(TF32, TF32)], &[F32], &[(16, 8, 4), (16, 8, 8)], Arch::SM_80, (7, 0)),
    (&[(F64, F64)], &[F64], &[(8, 8, 4)], Arch::SM_80, (7, 0)),
    (&[(F64, F64)], &[F64], &[(16, 8, 4), (16, 8, 8), (16, 8, 16)], Arch::SM_90, (7, 8)),
    (INTEGERS, &[I32], &[(16, 8, 16), (16, 8, 32)], Arch::SM_80, (7, 0)),
    (FP8, &[F32], &[(16, 8, 32)], Arch::SM_89, (8, 4)),
    (FP8, &[F16], &[(16, 8, 32)], Arch::SM_89, (8, 7)),
    (FP8, &[F16, F32], &[(16, 8, 16)], Arch::SM_89, (8, 7)),
];

/// Types and PTX version: the rows of `wgmma`. Shapes follow: m is 64, k is 32 bytes, n is in [`wgmma_columns`].
type WarpgroupRow = (&'static [(Element, Element)], &'static [Element], (u32, u32));

const WARPGROUP_ROWS: &[WarpgroupRow] = &[
    (&[(F16, F16)], &[F16, F32], (8, 0)),
    (&[(BF16, BF16)], &[F32], (8, 0)),
    (&[(TF32, TF32)], &[F32], (8, 0)),
    (FP8, &[F16, F32], (8, 0)),
    (&[(I8, I8), (U8, U8)], &[I32], (8, 0)),
    (&[(I8, U8), (U8, I8)], &[I32], (8, 4)),
];

/// The extents n of wgmma: multiples of 8; with integers, above 32 only multiples of 16.
fn wgmma_columns(a: Element) -> impl Iterator<Item = u32> {
    (8..=256).step_by(8).filter(move |n| !a.is_int() || *n <= 32 || n % 16 == 0)
}

static TABLE: LazyLock<Vec<Mma>> = LazyLock::new(|| {
    let mut table = Vec::new();
    for &(types, accumulators, shapes, needs, ptx) in WARP_ROWS {
        for &(a, b) in types {
            for &c in accumulators {
                table.extend(shapes.iter().map(|&shape| Mma {
                    shape: shape.into(),
                    a,
                    b,
                    c,
                    group: Group::Warp,
                    needs,
                    ptx,
                    fragments: OnceLock::new(),
                }));
            }
        }
    }
    for &(types, accumulators, ptx) in WARPGROUP_ROWS {
        for &(a, b) in types {
            for &c in accumulators {
                table.extend(wgmma_columns(a).map(|n| Mma {
                    shape: Shape { m: 64, n, k: 32 * 8 / a.bits() },
                    a,
                    b,
                    c,
                    group: Group::Warpgroup,
                    needs: Arch::SM_90A,
                    ptx,
                    fragments: OnceLock::new(),
                }));
            }
        }
    }
    table
});

/// Every tensor-core instruction.
pub fn all() -> impl Iterator<Item = &'static Mma> {
    TABLE.iter()
}

/// The instruction with these types and this shape; the error names what there is instead.
///
/// ```
/// use tilewright_hardware::{Element::*, mma};
/// let error = mma::find(BF16, BF16, F32, (16, 8, 32)).unwrap_err().to_string();
/// assert!(error.contains("m16n8k8, m16n8k16"), "{error}");
/// let error = mma::find(BF16, BF16, F16, (16, 8, 16)).unwrap_err().to_string();
/// assert!(error.contains("bf16 * bf16 + f32"), "{error}");
/// ```
pub fn find(a: Element, b: Element, c: Element, shape: impl Into<Shape>) -> Result<&'static Mma> {
    let shape = shape.into();
    let found = TABLE.iter().find(|mma| (mma.a, mma.b, mma.c, mma.shape) == (a, b, c, shape));
    found.ok_or_else(|| HardwareError::NoMma {
        asked: format!("{a} * {b} + {c} as {shape}"),
        nearest: nearest(a, b, c, |_| true),
    })
}

/// The instruction for a whole tile: of those that divide `tile`, run on `arch` and belong to `group`, the one with the
/// largest k, then n, then m.
///
/// ```
/// use tilewright_hardware::{Arch, Element::*, Group, mma};
/// let atom = mma::best(Arch::SM_90A, Group::Warpgroup, BF16, BF16, F32, (128, 192, 64))?;
/// assert_eq!(atom.shape, (64, 192, 16).into());
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
pub fn best(
    arch: Arch,
    group: Group,
    a: Element,
    b: Element,
    c: Element,
    tile: impl Into<Shape>,
) -> Result<&'static Mma> {
    let tile = tile.into();
    let runs = |mma: &Mma| mma.group == group && arch.supports(mma.needs);
    let whole = |extent: u32, step: u32| extent > 0 && extent.is_multiple_of(step);
    let divides = |s: Shape| whole(tile.m, s.m) && whole(tile.n, s.n) && whole(tile.k, s.k);
    let fits = |mma: &&Mma| (mma.a, mma.b, mma.c) == (a, b, c) && runs(mma) && divides(mma.shape);
    let found = TABLE.iter().filter(fits).max_by_key(|mma| (mma.shape.k, mma.shape.n, mma.shape.m));
    found.ok_or_else(|| HardwareError::NoMma {
        asked: format!(
            "{a} * {b} + {c} on {} threads of {arch} in steps that divide {tile}",
            group.threads()
        ),
        nearest: nearest(a, b, c, runs),
    })
}

/// What there is near the types asked for, for an error message: shapes if the types exist, else types.
fn nearest(a: Element, b: Element, c: Element, allowed: impl Fn(&Mma) -> bool) -> String {
    let mut rows: Vec<&Mma> = TABLE.iter().filter(|mma| allowed(mma)).collect();
    let score = |mma: &Mma| (u32::from(mma.a == a) + u32::from(mma.b == b)) * 2 + u32::from(mma.c == c);
    let closest = rows.iter().map(|mma| score(mma)).max().unwrap_or(0);
    rows.retain(|mma| score(mma) == closest);
    let distinct = |text: fn(&Mma) -> String| {
        let mut list: Vec<String> = Vec::new();
        for item in
            rows.iter().filter(|mma| mma.group == Group::Warp || mma.shape.n == 256).map(|mma| text(mma))
        {
            if !list.contains(&item) {
                list.push(item);
            }
        }
        names(list)
    };
    if rows.is_empty() {
        return "this chip has none for this group of threads".into();
    }
    // wgmma has every shape up to its widest; naming that one is enough.
    let wide = rows.iter().any(|mma| mma.group == Group::Warpgroup);
    let steps = match (wide, a.is_int()) {
        (false, _) => "",
        (true, false) => " (and every n from 8 to 256 in steps of 8 for m64)",
        (true, true) => " (and for m64 every n that is 8, 16, 24 or a multiple of 16 up to 256)",
    };
    if rows.iter().any(|mma| (mma.a, mma.b, mma.c) == (a, b, c)) {
        format!("these types have {}{steps}", distinct(|mma| mma.shape.to_string()))
    } else {
        format!("nearest are {}", distinct(|mma| format!("{} * {} + {}", mma.a, mma.b, mma.c)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coordinate(tv: &TvLayout, thread: i64, value: i64) -> (i64, i64) {
        let leaves: Vec<i64> = tv.coordinate(thread, value).unwrap().leaves().copied().collect();
        (leaves[0], leaves[1])
    }

    #[test]
    fn every_fragment_is_a_partition_of_its_tile() {
        for mma in all() {
            for operand in [Operand::A, Operand::B, Operand::C] {
                let Some(tv) = mma.fragment(operand) else {
                    assert!(mma.group == Group::Warpgroup && operand == Operand::B);
                    continue;
                };
                assert!(tv.is_partition().unwrap(), "{mma} {operand:?}");
                assert_eq!(tv.threads(), i64::from(mma.group.threads()), "{mma}");
                let (rows, columns) = mma.extents(operand);
                assert_eq!(extents(tv).unwrap(), (rows.into(), columns.into()));
                let bits = tv.values() * i64::from(mma.element(operand).bits());
                assert_eq!(mma.registers(operand), Some(u32::try_from(bits / 32).unwrap()), "{mma}");
            }
        }
    }

    #[test]
    fn rows_are_unique_and_found() {
        let mut keys = std::collections::HashSet::new();
        for mma in all() {
            assert!(keys.insert((mma.a, mma.b, mma.c, mma.shape)), "{mma} is listed twice");
            assert_eq!(find(mma.a, mma.b, mma.c, mma.shape).unwrap(), mma);
        }
    }

    /// The formulas of the instruction set, (lane, element) to (row, k), by shape and width of the type.
    #[test]
    fn warp_fragments_match_the_instruction_set() {
        for mma in all().filter(|mma| mma.group == Group::Warp) {
            let [a, b, c] = [Operand::A, Operand::B, Operand::C].map(|o| mma.fragment(o).unwrap());
            for lane in 0..32 {
                let (g, t) = (lane / 4, lane % 4);
                for e in 0..a.values() {
                    let expected = match mma.a.bits() {
                        16 => (g + 8 * ((e >> 1) & 1), 2 * t + (e & 1) + 8 * (e >> 2)),
                        8 => (g + 8 * ((e >> 2) & 1), 4 * t + (e & 3) + 16 * (e >> 3)),
                        _ => (g + 8 * (e & 1), t + 4 * (e >> 1)),
                    };
                    assert_eq!(coordinate(a, lane, e), expected, "{mma} A {lane} {e}");
                }
                for e in 0..b.values() {
                    let k = match mma.b.bits() {
                        16 => 2 * t + (e & 1) + 8 * (e >> 1),
                        8 => 4 * t + (e & 3) + 16 * (e >> 2),
                        _ => t + 4 * e,
                    };
                    assert_eq!(coordinate(b, lane, e), (g, k), "{mma} B {lane} {e}");
                }
                for e in 0..c.values() {
                    assert_eq!(coordinate(c, lane, e), (g + 8 * (e >> 1), 2 * t + (e & 1)), "{mma} C");
                }
            }
        }
    }

    #[test]
    fn warpgroup_fragments_match_the_instruction_set() {
        for mma in all().filter(|mma| mma.group == Group::Warpgroup && mma.shape.n <= 96) {
            let [a, c] = [Operand::A, Operand::C].map(|o| mma.fragment(o).unwrap());
            for thread in 0..128 {
                let (w, l) = (thread / 32, thread % 32);
                let top = 16 * w + l / 4;
                for i in 0..c.values() {
                    let expected = (top + 8 * ((i >> 1) & 1), 8 * (i >> 2) + 2 * (l % 4) + (i & 1));
                    assert_eq!(coordinate(c, thread, i), expected, "{mma} C");
                }
                for e in 0..a.values() {
                    let expected = match mma.a.bits() {
                        16 => (top + 8 * ((e >> 1) & 1), 2 * (l % 4) + (e & 1) + 8 * (e >> 2)),
                        32 => (top + 8 * (e & 1), l % 4 + 4 * (e >> 1)),
                        _ => (top + 8 * ((e >> 2) & 1), 4 * (l % 4) + (e & 3) + 16 * (e >> 3)),
                    };
                    assert_eq!(coordinate(a, thread, e), expected, "{mma} A");
                }
            }
        }
    }

    #[test]
    fn wgmma_has_the_shapes_of_hopper() {
        let columns = |a, b, c| -> Vec<u32> {
            let rows = all().filter(|m| m.group == Group::Warpgroup && (m.a, m.b, m.c) == (a, b, c));
            rows.map(|m| m.shape.n).collect()
        };
        assert_eq!(columns(BF16, BF16, F32), (8..=256).step_by(8).collect::<Vec<_>>());
        let integer = columns(I8, U8, I32);
        assert_eq!(&integer[..6], [8, 16, 24, 32, 48, 64]);
        assert_eq!((integer.len(), integer.last()), (18, Some(&256)));
        assert!(columns(BF16, BF16, F16).is_empty() && columns(TF32, TF32, F16).is_empty());
        for mma in all().filter(|m| m.group == Group::Warpgroup) {
            assert_eq!((mma.shape.m, mma.shape.k * mma.a.bits(), mma.needs), (64, 256, Arch::SM_90A));
            assert_eq!(mma.transposable(Operand::B), matches!(mma.a, F16 | BF16), "{mma}");
            let per_column = if mma.c == F16 { 4 } else { 2 };
            assert_eq!(mma.registers(Operand::C), Some(mma.shape.n / per_column));
            assert_eq!(mma.registers(Operand::A), Some(4));
        }
    }

    #[test]
    fn best_takes_the_deepest_that_divides() {
        let warp =
            |arch, a, c, tile: (u32, u32, u32)| best(arch, Group::Warp, a, a, c, tile).map(|m| m.shape);
        assert_eq!(warp(Arch::SM_80, F16, F32, (64, 64, 32)), Ok((16, 8, 16).into()));
        assert_eq!(warp(Arch::SM_80, F16, F32, (64, 64, 24)), Ok((16, 8, 8).into()));
        assert_eq!(warp(Arch::SM_80, F64, F64, (64, 64, 16)), Ok((8, 8, 4).into()));
        assert_eq!(warp(Arch::SM_90, F64, F64, (64, 64, 16)), Ok((16, 8, 16).into()));
        let message = warp(Arch::SM_80, E4M3, F32, (64, 64, 32)).unwrap_err().to_string();
        assert!(message.contains("e4m3") && !message.contains('\n'), "{message}");
        let error = best(Arch::SM_100A, Group::Warpgroup, F16, F16, F32, (64, 64, 16)).unwrap_err();
        assert!(error.to_string().contains("has none"), "{error}");
        let message = find(I8, I8, I32, (64, 40, 32)).unwrap_err().to_string();
        assert!(message.contains("multiple of 16"), "{message}");
    }
}
