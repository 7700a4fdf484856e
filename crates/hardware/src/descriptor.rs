//! Matrix descriptors of wgmma, computed from the layout of a tile in shared memory.
//!
//! wgmma reads an operand of `rows` rows and 32 bytes of k through a 64-bit descriptor: a start address, two strides and
//! a swizzle. Which descriptor reads a given layout, if any, is found by trying all forms and comparing every element
//! with the address that the tensor core would compute, so a layout is judged by what it does, not by how it is written.
//!
//! # What the tensor core computes
//!
//! With `S` the span of the swizzle in bytes, byte `a` along the contiguous mode of line `l` of the other mode is at
//! `start + a % S + (a / S) * panel + (l % 8) * S + (l / 8) * group`, then the exclusive-or of the swizzle on the whole
//! address. `panel` is the leading and `group` the stride byte offset; MN-major without a swizzle exchanges the two.
//! A K-major swizzled operand has no second panel, because 32 bytes of k never leave a row.

use tilewright_layout::Composed;

use crate::element::Element;
use crate::error::{Result, to_u32};
use crate::swizzle::{Major, PIECE, SwizzleMode};
use crate::tile::{ByteTile, Mismatch, View};

/// Bytes of k that one wgmma reads.
const STEP_BYTES: i64 = 32;
/// Addresses and strides have 18 bits, of which the low 4 are zero.
const ADDRESS_MASK: u32 = 0x3FFFF;
/// Written where the form has no use for a stride.
const UNUSED: i64 = PIECE as i64;

/// How wgmma reads the tiles of an operand.
///
/// ```
/// use tilewright_hardware::{Element, Major, MatrixDescriptor, SwizzleMode, smem_tile};
/// let tile = smem_tile(Major::K, 128, 64, Element::BF16, SwizzleMode::B128)?;
/// let d = MatrixDescriptor::for_operand(&tile, Element::BF16, 64)?;
/// assert_eq!((d.swizzle, d.major, d.stride_bytes), (SwizzleMode::B128, Major::K, 1024));
/// assert_eq!(d.k_offsets, [0, 32, 64, 96]);
/// assert_eq!(d.row_offsets, [0, 8192]);
/// assert_eq!(d.encode_high(), 0x4000_0040_0001_0000);
///
/// let rows = "S<0,3,3> o 0 o (64,64):(64,1)".parse()?;
/// assert!(MatrixDescriptor::for_operand(&rows, Element::BF16, 64).is_err());
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixDescriptor {
    /// The swizzle; the tile must start at a multiple of its [`alignment`](SwizzleMode::alignment).
    pub swizzle: SwizzleMode,
    /// Which mode is contiguous; MN-major needs the transpose flag of the instruction.
    pub major: Major,
    /// The leading-dimension byte offset.
    pub leading_bytes: u32,
    /// The stride-dimension byte offset.
    pub stride_bytes: u32,
    /// Where each group of `rows` rows starts, in bytes from the start of the tile.
    pub row_offsets: Vec<u32>,
    /// Where each step of 32 bytes of k starts, in bytes from the start of the row group.
    pub k_offsets: Vec<u32>,
}

impl MatrixDescriptor {
    /// The descriptor that reads `rows` rows at a time of a tile `(row, k) -> element index`; the error says why there
    /// is none.
    ///
    /// `rows` is m, which is 64, for A and n for B. The tile may have several times as many rows and any number of
    /// steps of k.
    pub fn for_operand(layout: &Composed, element: Element, rows: u32) -> Result<MatrixDescriptor> {
        let tile = ByteTile::new("wgmma", layout, element)?;
        if !matches!(element.bits(), 8 | 16 | 32) {
            return Err(tile.refuse("expected elements of 8, 16 or 32 bits"));
        }
        let rows = i64::from(rows);
        if rows == 0 || rows % 8 != 0 || rows > 256 || tile.rows % rows != 0 {
            let reason = format!(
                "{} rows are not read {rows} at a time; expected a divisor that is a multiple of 8 up to 256",
                tile.rows
            );
            return Err(tile.refuse(reason));
        }
        if tile.k * tile.bytes() % STEP_BYTES != 0 {
            let reason = format!("its depth is {} bytes, expected a multiple of 32", tile.k * tile.bytes());
            return Err(tile.refuse(reason));
        }
        let mut closest = Mismatch::nothing("it has no form that wgmma knows");
        for mode in SwizzleMode::ALL.into_iter().rev() {
            for major in [Major::K, Major::Mn] {
                match fit(&tile, &tile.view(mode, major), rows) {
                    Ok(form) if major == Major::Mn && element.bits() != 16 => {
                        let reason = format!(
                            "it is {} {major}, which wgmma reads only with 16-bit elements",
                            form.mode
                        );
                        return Err(tile.refuse(reason));
                    }
                    Ok(form) => return form.descriptor(),
                    Err(mismatch) => closest = closest.closest(mismatch),
                }
            }
        }
        Err(tile.refuse(closest.reason))
    }

    /// All of the descriptor but the start address, which goes into bits 0 to 13 as `(address & 0x3FFFF) >> 4`.
    pub fn encode_high(&self) -> u64 {
        let field = |bytes: u32| u64::from((bytes & ADDRESS_MASK) >> 4);
        field(self.leading_bytes) << 16 | field(self.stride_bytes) << 32 | self.swizzle.wgmma_code() << 62
    }

    /// The whole descriptor for a start address: that of the tile plus a row offset plus a k offset.
    pub fn encode(&self, address: u32) -> u64 {
        self.encode_high() | u64::from((address & ADDRESS_MASK) >> 4)
    }
}

/// A form of the tensor core that agrees with the layout everywhere.
struct Form {
    mode: SwizzleMode,
    major: Major,
    panel: i64,
    group: i64,
    row_offsets: Vec<i64>,
    k_offsets: Vec<i64>,
}

impl Form {
    fn descriptor(&self) -> Result<MatrixDescriptor> {
        let (leading, stride) = match (self.major, self.mode) {
            (Major::Mn, SwizzleMode::None) => (self.group, self.panel),
            _ => (self.panel, self.group),
        };
        Ok(MatrixDescriptor {
            swizzle: self.mode,
            major: self.major,
            leading_bytes: to_u32(leading)?,
            stride_bytes: to_u32(stride)?,
            row_offsets: self.row_offsets.iter().copied().map(to_u32).collect::<Result<_>>()?,
            k_offsets: self.k_offsets.iter().copied().map(to_u32).collect::<Result<_>>()?,
        })
    }
}

/// Reads strides and starts off the layout under the assumption of a form, then checks every element.
fn fit(tile: &ByteTile<'_>, view: &View<'_>, rows: i64) -> std::result::Result<Form, Mismatch> {
    let (mode, major, bytes) = (view.mode, view.major, tile.bytes());
    let outside = || view.mismatch(0, "the tile is smaller than the instruction");
    let span = i64::from(mode.span());
    let depth = STEP_BYTES / bytes;
    // The part that one instruction reads, and how many of them there are.
    let (along, across) = if major == Major::K { (depth, rows) } else { (rows, depth) };
    let (row_groups, k_steps) = (tile.rows / rows, tile.k / depth);

    let first = view.at(0, 0).ok_or_else(outside)?;
    let stride = |at: Option<i64>, used: bool| match used {
        true => at.map(|at| at - first).ok_or_else(outside),
        false => Ok(UNUSED),
    };
    let panel = stride(view.at(span / bytes, 0), along * bytes > span)?;
    let group = stride(view.at(0, 8), across > 8)?;
    // A swizzled pattern repeats after eight rows; strides that break it would need other base offsets.
    let period = if mode == SwizzleMode::None { i64::from(PIECE) } else { 8 * span };
    for (name, value, used) in [("panel", panel, along * bytes > span), ("group of eight", group, across > 8)]
    {
        let range = 0..=i64::from(ADDRESS_MASK);
        if used && (value % period != 0 || !range.contains(&value)) {
            let text =
                format!("the next {name} is {value} bytes on, expected a multiple of {period} below 2^18");
            return Err(view.mismatch(0, text));
        }
    }

    let start = |row_group: i64, k_step: i64| {
        let (row, k) = (row_group * rows, k_step * depth);
        if major == Major::K { view.at(k, row) } else { view.at(row, k) }.ok_or_else(outside)
    };
    let row_offsets = (0..row_groups).map(|i| start(i, 0)).collect::<std::result::Result<Vec<_>, _>>()?;
    let k_offsets =
        (0..k_steps).map(|j| Ok(start(0, j)? - first)).collect::<std::result::Result<Vec<_>, Mismatch>>()?;

    let mut matched = 0;
    for (i, row_offset) in (0..).zip(&row_offsets) {
        for (j, k_offset) in (0..).zip(&k_offsets) {
            let begin = row_offset + k_offset;
            let aligned = match mode {
                SwizzleMode::None => begin % i64::from(PIECE) == 0,
                _ => begin % i64::from(PIECE) == 0 && begin % period < span,
            };
            if !aligned || *k_offset < 0 {
                let place = format!("row group {i}, step {j} of k starts at byte {begin}");
                return Err(view.mismatch(matched, place + ", not in the first row of the pattern"));
            }
            for line in 0..across {
                for x in 0..along {
                    let (group_at, panel_at) = (line / 8 * group, x * bytes / span * panel);
                    let expected = begin + x * bytes % span + panel_at + line % 8 * span + group_at;
                    let (row, k) = if major == Major::K { (line, x) } else { (x, line) };
                    let (row, k) = (i * rows + row, j * depth + k);
                    let found = if major == Major::K { view.at(k, row) } else { view.at(row, k) };
                    if found != Some(expected) {
                        let found = found.unwrap_or(-1);
                        let text = format!(
                            "element ({row},{k}) must lie at byte {expected} before the swizzle, not {found}"
                        );
                        return Err(view.mismatch(matched, text));
                    }
                    matched += 1;
                }
            }
        }
    }
    Ok(Form { mode, major, panel, group, row_offsets, k_offsets })
}
