//! Exact answers by enumeration: injectivity, vector width, memory sectors, bank conflicts, equality.
//!
//! Static layouts have at most a few ten thousand points, so everything here simply evaluates all of them: no
//! bound, no estimate. More than [`ENUMERATION_LIMIT`] points are refused.

use crate::composed::Composed;
use crate::error::{LayoutError, Result, argument, overflow};
use crate::int_tuple::{Coord, IntTuple, ceil_div};
use crate::layout::Layout;

/// The largest number of points that an analysis evaluates.
pub const ENUMERATION_LIMIT: i64 = 1 << 24;

/// Bytes in one sector, the unit in which global memory is read and written.
pub const SECTOR_BYTES: i64 = 32;

/// Threads in a warp.
pub const WARP: usize = 32;

/// Shared memory has this many banks of [`BANK_BYTES`] each.
pub const BANKS: usize = 32;

/// Bytes in one word of a shared-memory bank.
pub const BANK_BYTES: i64 = 4;

/// A function from `0..size` to integers: a [`Layout`] or a [`Composed`] one.
pub trait Function {
    /// Number of indices.
    fn points(&self) -> Result<i64>;
    /// The value at an index.
    fn value(&self, index: i64) -> Result<i64>;
    /// The value at an index where it may be a coordinate.
    fn image(&self, index: i64) -> Result<IntTuple>;
}

impl Function for Layout {
    fn points(&self) -> Result<i64> {
        Ok(self.size())
    }

    fn value(&self, index: i64) -> Result<i64> {
        self.at(index)
    }

    fn image(&self, index: i64) -> Result<IntTuple> {
        self.eval(&Coord::from(index))
    }
}

impl Function for Composed {
    fn points(&self) -> Result<i64> {
        self.size()
    }

    fn value(&self, index: i64) -> Result<i64> {
        self.at(index)
    }

    fn image(&self, index: i64) -> Result<IntTuple> {
        self.eval(&Coord::from(index))
    }
}

pub(crate) fn check_points(op: &'static str, size: i64) -> Result<()> {
    if size > ENUMERATION_LIMIT {
        return Err(LayoutError::TooLarge { op, size, limit: ENUMERATION_LIMIT });
    }
    Ok(())
}

/// All values in index order.
pub(crate) fn values(op: &'static str, f: &impl Function) -> Result<Vec<i64>> {
    let size = f.points()?;
    check_points(op, size)?;
    (0..size).map(|index| f.value(index)).collect()
}

/// Whether no two indices have the same value.
///
/// ```
/// use tilewright_layout::{Layout, analysis};
/// assert!(analysis::is_injective(&"(4,2):(1,5)".parse::<Layout>()?)?);
/// assert!(!analysis::is_injective(&"(4,2):(1,3)".parse::<Layout>()?)?);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn is_injective(f: &impl Function) -> Result<bool> {
    let mut values = values("is_injective", f)?;
    values.sort_unstable();
    Ok(values.windows(2).all(|pair| pair[0] != pair[1]))
}

/// Whether every value in `0..onto` is taken.
///
/// ```
/// use tilewright_layout::{Layout, analysis};
/// assert!(analysis::is_surjective(&"(4,3):(3,1)".parse::<Layout>()?, 12)?);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn is_surjective(f: &impl Function, onto: i64) -> Result<bool> {
    let mut values = values("is_surjective", f)?;
    values.retain(|value| (0..onto).contains(value));
    values.sort_unstable();
    values.dedup();
    Ok(i64::try_from(values.len()).is_ok_and(|taken| taken == onto.max(0)))
}

/// Whether the values are `0..size` in some order.
pub fn is_bijective(f: &impl Function) -> Result<bool> {
    is_surjective(f, f.points()?)
}

/// Whether both have the same size and the same value at every index.
///
/// ```
/// use tilewright_layout::{Layout, analysis};
/// let (a, b): (Layout, Layout) = ("(2,4):(1,2)".parse()?, "8:1".parse()?);
/// assert!(analysis::same_function(&a, &b)?);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn same_function(a: &impl Function, b: &impl Function) -> Result<bool> {
    let size = a.points()?;
    if size != b.points()? {
        return Ok(false);
    }
    check_points("same_function", size)?;
    for index in 0..size {
        if a.image(index)? != b.image(index)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The widest power of two `v <= limit` such that every aligned group of `v` indices has `v` consecutive values, the
/// first a multiple of `v`: as many elements as one vector access may move.
///
/// ```
/// use tilewright_layout::{Layout, analysis};
/// assert_eq!(analysis::max_vector_width(&"(8,4):(1,12)".parse::<Layout>()?, 8)?, 4);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn max_vector_width(f: &impl Function, limit: i64) -> Result<i64> {
    let values = values("max_vector_width", f)?;
    let fits = |width: usize, step: i64| {
        let contiguous =
            |group: &[i64]| (0i64..).zip(group).all(|(k, value)| group[0].checked_add(k) == Some(*value));
        values.len().is_multiple_of(width)
            && values.chunks(width).all(|group| group[0] % step == 0 && contiguous(group))
    };
    let mut width = 1;
    while width * 2 <= limit && usize::try_from(width * 2).is_ok_and(|count| fits(count, width * 2)) {
        width *= 2;
    }
    Ok(width)
}

/// How many 32-byte sectors the accesses of warps touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sectors {
    /// Number of warp-wide accesses.
    pub requests: i64,
    /// Sectors touched, counted once for each request.
    pub touched: i64,
    /// Sectors that the same bytes would need if they were packed.
    pub ideal: i64,
}

impl Sectors {
    /// Share of the bytes moved that were asked for, between 0 and 1.
    #[allow(clippy::cast_precision_loss)] // both are far below 2^53
    pub fn efficiency(&self) -> f64 {
        if self.touched == 0 { 1.0 } else { self.ideal as f64 / self.touched as f64 }
    }

    pub(crate) fn add(&mut self, other: Sectors) {
        self.requests += other.requests;
        self.touched += other.touched;
        self.ideal += other.ideal;
    }
}

/// How lanes access memory: `f` gives the first element of each lane, which reads or writes `access_bytes` from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Bytes in one element of the layout.
    pub element_bytes: i64,
    /// Bytes that each lane moves: 1, 2, 4, 8 or 16.
    pub access_bytes: i64,
}

impl Access {
    /// Each lane moves one element of `bytes` bytes.
    pub fn elements(bytes: i64) -> Access {
        Access { element_bytes: bytes, access_bytes: bytes }
    }

    fn check(&self, op: &'static str) -> Result<()> {
        if !matches!(self.access_bytes, 1 | 2 | 4 | 8 | 16) {
            let text = format!("an access has {} bytes, expected 1, 2, 4, 8 or 16", self.access_bytes);
            return Err(argument(op, text));
        }
        if !(1..=16).contains(&self.element_bytes) {
            let text = format!("an element has {} bytes, expected 1 to 16", self.element_bytes);
            return Err(argument(op, text));
        }
        Ok(())
    }

    /// Byte addresses of all lanes, checked to be aligned.
    fn addresses(&self, op: &'static str, offsets: &[i64]) -> Result<Vec<i64>> {
        self.check(op)?;
        let address = |(lane, offset): (usize, &i64)| {
            let address = offset
                .checked_mul(self.element_bytes)
                .filter(|address| address.checked_add(self.access_bytes).is_some())
                .ok_or_else(|| overflow(format!("{op}: the address of lane {lane}")))?;
            if address < 0 || address % self.access_bytes != 0 {
                return Err(argument(
                    op,
                    format!(
                        "lane {lane} accesses {} bytes at byte {address}, expected a multiple of {} that is not negative",
                        self.access_bytes, self.access_bytes
                    ),
                ));
            }
            Ok(address)
        };
        offsets.iter().enumerate().map(address).collect()
    }
}

/// The sectors that warps of 32 lanes touch in global memory; index `i` of `f` is lane `i % 32` of warp `i / 32`.
///
/// ```
/// use tilewright_layout::{Layout, analysis::{self, Access}};
/// let packed = analysis::sectors(&"32:1".parse::<Layout>()?, Access::elements(4))?;
/// let strided = analysis::sectors(&"32:8".parse::<Layout>()?, Access::elements(4))?;
/// assert_eq!((packed.touched, strided.touched), (4, 32));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn sectors(f: &impl Function, access: Access) -> Result<Sectors> {
    sectors_of(&values("sectors", f)?, access)
}

pub(crate) fn sectors_of(offsets: &[i64], access: Access) -> Result<Sectors> {
    let addresses = access.addresses("sectors", offsets)?;
    let mut total = Sectors::default();
    for warp in addresses.chunks(WARP) {
        // An aligned access of at most 16 bytes lies in one sector.
        let mut touched: Vec<i64> = warp.iter().map(|address| address / SECTOR_BYTES).collect();
        let mut bytes = warp.to_vec();
        for list in [&mut touched, &mut bytes] {
            list.sort_unstable();
            list.dedup();
        }
        let count = |list: &[i64]| i64::try_from(list.len()).unwrap_or(i64::MAX);
        total.add(Sectors {
            requests: 1,
            touched: count(&touched),
            ideal: ceil_div(count(&bytes) * access.access_bytes, SECTOR_BYTES),
        });
    }
    Ok(total)
}

/// The worst shared-memory bank conflict: into how many parts the hardware has to split an access. 1 is free of
/// conflicts.
///
/// Index `i` of `f` is lane `i % 32` of warp `i / 32`. Accesses of up to 4 bytes are served for a whole warp at once, of
/// 8 bytes for half a warp, of 16 bytes for a quarter; lanes that read the same 4-byte word share it.
///
/// ```
/// use tilewright_layout::{Layout, analysis::{self, Access}};
/// assert_eq!(analysis::bank_conflicts(&"32:32".parse::<Layout>()?, Access::elements(4))?, 32);
/// assert_eq!(analysis::bank_conflicts(&"32:33".parse::<Layout>()?, Access::elements(4))?, 1);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn bank_conflicts(f: &impl Function, access: Access) -> Result<i64> {
    bank_conflicts_of(&values("bank_conflicts", f)?, access)
}

pub(crate) fn bank_conflicts_of(offsets: &[i64], access: Access) -> Result<i64> {
    let addresses = access.addresses("bank_conflicts", offsets)?;
    // One pass over the banks moves 128 bytes.
    let lanes = match access.access_bytes {
        16 => WARP / 4,
        8 => WARP / 2,
        _ => WARP,
    };
    let words = ceil_div(access.access_bytes, BANK_BYTES);
    let mut worst = 1;
    for pass in addresses.chunks(WARP).flat_map(|warp| warp.chunks(lanes)) {
        let mut touched: Vec<i64> =
            pass.iter().flat_map(|address| (0..words).map(move |word| address / BANK_BYTES + word)).collect();
        touched.sort_unstable();
        touched.dedup();
        let mut load = [0i64; BANKS];
        for word in touched {
            load[bank_of(word)] += 1;
        }
        worst = load.into_iter().fold(worst, i64::max);
    }
    Ok(worst)
}

/// The bank that holds a word of shared memory.
pub(crate) fn bank_of(word: i64) -> usize {
    // The low bits of a two's complement number are its Euclidean remainder, so no conversion can fail.
    usize::from(word.to_le_bytes()[0]) % BANKS
}

/// The worst bank conflict when `ldmatrix` (or `stmatrix`) reads the 8x8 matrices (8 rows of 16 bytes) of a tile in
/// shared memory, row by row along mode 1.
///
/// `tile` maps `(row, column)` to an element; its rows must hold whole, contiguous 16-byte pieces.
///
/// ```
/// use tilewright_layout::{Composed, Layout, analysis};
/// let plain: Layout = "(64,64):(64,1)".parse()?;
/// let swizzled: Composed = "S<3,3,3> o 0 o (64,64):(64,1)".parse()?;
/// assert_eq!(analysis::ldmatrix_conflicts(&plain, (64, 64), 2)?, 8);
/// assert_eq!(analysis::ldmatrix_conflicts(&swizzled, (64, 64), 2)?, 1);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn ldmatrix_conflicts(tile: &impl Function, shape: (i64, i64), element_bytes: i64) -> Result<i64> {
    const OP: &str = "ldmatrix_conflicts";
    const ROW_BYTES: i64 = 16;
    let (rows, columns) = shape;
    if element_bytes < 1 || ROW_BYTES % element_bytes != 0 {
        return Err(argument(OP, format!("an element has {element_bytes} bytes, expected a divisor of 16")));
    }
    let width = ROW_BYTES / element_bytes;
    if rows < 1 || columns < 1 || rows % 8 != 0 || columns % width != 0 {
        let text = format!("the tile is {rows}x{columns}, expected multiples of 8 rows and {width} columns");
        return Err(argument(OP, text));
    }
    if rows.checked_mul(columns) != Some(tile.points()?) {
        return Err(argument(
            OP,
            format!("{rows}x{columns} is not the size {} of the layout", tile.points()?),
        ));
    }
    check_points(OP, tile.points()?)?;
    let access = Access { element_bytes, access_bytes: ROW_BYTES };
    let mut worst = 1;
    for row in (0..rows).step_by(8) {
        for column in (0..columns).step_by(usize::try_from(width).unwrap_or(1)) {
            let mut starts = Vec::with_capacity(8);
            for r in row..row + 8 {
                let start = tile.value(r + rows * column)?;
                for c in 1..width {
                    if start.checked_add(c) != Some(tile.value(r + rows * (column + c))?) {
                        let text = format!("row {r} is not contiguous at column {}", column + c);
                        return Err(argument(OP, text));
                    }
                }
                starts.push(start);
            }
            worst = worst.max(bank_conflicts_of(&starts, access)?);
        }
    }
    Ok(worst)
}
