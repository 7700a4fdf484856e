//! Shared-memory tiles as TMA writes them and wgmma reads them: [`SwizzleMode`] and [`smem_tile`].
//!
//! A swizzle is an exclusive-or on byte addresses: pieces of 16 bytes change places inside a row of `span` bytes, by the
//! number of the 128-byte line. It is a function of the address, so a tile must start at a multiple of
//! [`SwizzleMode::alignment`] for its layout to be right.

use std::fmt;

use tilewright_layout::{Composed, Layout, Swizzle};

use crate::element::Element;
use crate::error::{HardwareError, Result};

/// Which mode of a tile is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Major {
    /// The depth: A stored by rows, B stored by columns.
    K,
    /// The rows of the tile, m or n.
    Mn,
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Major::K => "K-major",
            Major::Mn => "MN-major",
        })
    }
}

/// A swizzle that TMA and wgmma know.
///
/// ```
/// use tilewright_hardware::{Element, SwizzleMode};
/// assert_eq!(SwizzleMode::B128.bytes().to_string(), "S<3,4,3>");
/// assert_eq!(SwizzleMode::B128.for_element(Element::BF16).to_string(), "S<3,3,3>");
/// assert_eq!(SwizzleMode::B64.alignment(), 512);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SwizzleMode {
    /// Addresses as they are.
    None,
    /// Inside rows of 32 bytes.
    B32,
    /// Inside rows of 64 bytes.
    B64,
    /// Inside rows of 128 bytes.
    B128,
}

/// Bytes that a swizzle moves as one.
pub(crate) const PIECE: u32 = 16;

impl SwizzleMode {
    /// Every mode, narrowest first.
    pub const ALL: [SwizzleMode; 4] =
        [SwizzleMode::None, SwizzleMode::B32, SwizzleMode::B64, SwizzleMode::B128];

    /// Bytes in a row of the pattern; 16, one piece, without a swizzle.
    pub const fn span(self) -> u32 {
        PIECE << self as u32
    }

    /// The alignment of a tile in bytes at which the pattern starts with its first row. Without a swizzle: what TMA
    /// asks of any tile.
    pub const fn alignment(self) -> u32 {
        8 * self.span()
    }

    /// The number that TMA gives it in a tensor map.
    pub const fn tma_code(self) -> u32 {
        self as u32
    }

    /// The number that wgmma gives it in a matrix descriptor.
    pub const fn wgmma_code(self) -> u64 {
        match self {
            SwizzleMode::None => 0,
            SwizzleMode::B32 => 3,
            SwizzleMode::B64 => 2,
            SwizzleMode::B128 => 1,
        }
    }

    /// The swizzle of byte addresses.
    pub fn bytes(self) -> Swizzle {
        self.in_units(PIECE)
    }

    /// The swizzle of element indices.
    pub fn for_element(self, element: Element) -> Swizzle {
        self.in_units(piece_elements(element))
    }

    /// With so many units, a power of two, in a piece of 16 bytes.
    fn in_units(self, piece: u32) -> Swizzle {
        let swizzle = Swizzle::new(i64::from(self as u32), i64::from(piece.trailing_zeros()), 3);
        #[expect(clippy::expect_used, reason = "at most 3 bits, base 5 and shift 3, whatever the element")]
        swizzle.expect("the bits do not overlap")
    }
}

impl fmt::Display for SwizzleMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SwizzleMode::None => "unswizzled",
            SwizzleMode::B32 => "32-byte swizzled",
            SwizzleMode::B64 => "64-byte swizzled",
            SwizzleMode::B128 => "128-byte swizzled",
        })
    }
}

/// Elements in 16 bytes of memory; a truth value takes a byte there.
fn piece_elements(element: Element) -> u32 {
    PIECE * 8 / if element.is_bool() { 8 } else { element.bits() }
}

/// The canonical tile of `rows` times `k` elements in shared memory: a layout from `(row, k)` to element indices.
///
/// K-major: rows of `span` bytes of k one below the other; a tile deeper than that is several such panels, one after the
/// other. MN-major: the same with the roles exchanged, k rows of `span` bytes of m or n. Without a swizzle the panels
/// are 16 bytes wide, which makes them stacks of the core matrices of wgmma.
///
/// ```
/// use tilewright_hardware::{Element, Major, SwizzleMode, smem_tile};
/// let tile = smem_tile(Major::K, 128, 64, Element::BF16, SwizzleMode::B128)?;
/// assert_eq!(tile.to_string(), "S<3,3,3> o 0 o (128,64):(64,1)");
/// let wide = smem_tile(Major::Mn, 128, 64, Element::BF16, SwizzleMode::B128)?;
/// assert_eq!(wide.to_string(), "S<3,3,3> o 0 o ((64,2),64):((1,4096),64)");
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
pub fn smem_tile(major: Major, rows: u32, k: u32, element: Element, mode: SwizzleMode) -> Result<Composed> {
    let refuse =
        |reason: String| HardwareError::NoTile { form: format!("{mode} {major}"), rows, k, element, reason };
    let width = piece_elements(element) * (mode.span() / PIECE);
    let (along, across, name) = match major {
        Major::K => (k, rows, "k"),
        Major::Mn => (rows, k, "rows"),
    };
    if along == 0 || along % width != 0 {
        let reason =
            format!("{name} must be a multiple of {width}, {} bytes; or choose another swizzle", mode.span());
        return Err(refuse(reason));
    }
    if across == 0 || across % 8 != 0 {
        return Err(refuse(format!("the pattern has 8 rows, and {across} is no multiple of that")));
    }
    let [width, across, panels] = [width, across, along / width].map(i64::from);
    let line = match panels {
        1 => Layout::new(width, 1)?,
        _ => Layout::new((width, panels), (1, width * across))?,
    };
    let lines = Layout::new(across, width)?;
    let layout = match major {
        Major::K => Layout::tuple([lines, line])?,
        Major::Mn => Layout::tuple([line, lines])?,
    };
    Ok(Composed::new(mode.for_element(element), 0, layout)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_layout::analysis;

    #[test]
    fn the_byte_formula() {
        for mode in SwizzleMode::ALL {
            let mask = (1i64 << (mode as u32)) - 1;
            for address in (0..4096).step_by(4) {
                let expected = address ^ (((address >> 7) & mask) << 4);
                assert_eq!(mode.bytes().apply(address).unwrap(), expected);
                for element in [Element::I8, Element::F16, Element::F32] {
                    let es = i64::from(element.bytes());
                    let index = mode.for_element(element).apply(address / es).unwrap();
                    assert_eq!(index * es, expected - expected % es, "{mode} {element}");
                }
            }
        }
        assert_eq!(SwizzleMode::ALL.map(SwizzleMode::span), [16, 32, 64, 128]);
        assert_eq!(SwizzleMode::ALL.map(SwizzleMode::alignment), [128, 256, 512, 1024]);
        assert_eq!(SwizzleMode::ALL.map(SwizzleMode::tma_code), [0, 1, 2, 3]);
        assert_eq!(SwizzleMode::ALL.map(SwizzleMode::wgmma_code), [0, 3, 2, 1]);
        assert_eq!(SwizzleMode::B128.for_element(Element::E2M1).to_string(), "S<3,5,3>");
        assert_eq!(SwizzleMode::B128.for_element(Element::Bool), SwizzleMode::B128.bytes());
    }

    #[test]
    fn tiles_match_the_formulas_and_are_dense() {
        for element in [Element::I8, Element::BF16, Element::TF32, Element::F64] {
            let es = i64::from(element.bytes());
            for mode in SwizzleMode::ALL {
                let span = i64::from(mode.span());
                let swizzle = |lin: i64| lin ^ (((lin >> 7) & ((1 << (mode as u32)) - 1)) << 4);
                for (rows, k) in [(128, 128), (128, 256)] {
                    let (r64, k64) = (i64::from(rows), i64::from(k));
                    for major in [Major::K, Major::Mn] {
                        let tile = smem_tile(major, rows, k, element, mode).unwrap();
                        assert!(analysis::is_bijective(&tile).unwrap());
                        for (row, depth) in (0..r64).flat_map(|r| (0..k64).map(move |d| (r, d))) {
                            let (along, line, lines) = if major == Major::K {
                                (depth * es, row, r64)
                            } else {
                                (row * es, depth, k64)
                            };
                            let lin = along / span * lines * span + line * span + along % span;
                            assert_eq!(tile.at(row + r64 * depth).unwrap() * es, swizzle(lin));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn tiles_that_do_not_exist() {
        let message = |major, rows, k| {
            smem_tile(major, rows, k, Element::BF16, SwizzleMode::B128).unwrap_err().to_string()
        };
        assert!(message(Major::K, 64, 32).contains("k must be a multiple of 64"));
        assert!(message(Major::Mn, 32, 64).contains("rows must be a multiple of 64"));
        assert!(message(Major::K, 12, 64).contains("12 is no multiple"));
        assert!(smem_tile(Major::K, 0, 0, Element::BF16, SwizzleMode::None).is_err());
        assert!(smem_tile(Major::K, u32::MAX - 7, 64, Element::BF16, SwizzleMode::None).is_ok());
    }
}
