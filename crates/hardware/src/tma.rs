//! TMA: the rules of tensor maps as a checked value, and the boxes that fill a tile in shared memory.
//!
//! A box is what one instruction copies. It lands in shared memory row by row without gaps, innermost dimension first,
//! and is then swizzled by its address. Which boxes write a given tile is found by comparing every element with the
//! address that TMA would write it to. Interleaved layouts and im2col are not here.

use std::fmt;

use tilewright_layout::Composed;

use crate::element::Element;
use crate::error::{HardwareError, Result, to_u32};
use crate::swizzle::{Major, PIECE, SwizzleMode};
use crate::tile::{ByteTile, Mismatch, View};

/// Most dimensions of a tensor.
const MOST_DIMENSIONS: usize = 5;
/// Most elements of a box in each dimension.
const MOST_ELEMENTS: u32 = 256;
/// The alignment of a box in shared memory, whatever its swizzle.
const BOX_ALIGNMENT: i64 = 128;

/// What is read where a box leaves the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OobFill {
    /// Zeros.
    #[default]
    Zeros,
    /// A NaN that no computation makes; floats only.
    Nan,
}

impl OobFill {
    /// The number that the driver gives it.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// How much the L2 cache fetches at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum L2Promotion {
    /// What is asked for.
    None,
    /// 64 bytes.
    B64,
    /// 128 bytes.
    #[default]
    B128,
    /// 256 bytes.
    B256,
}

impl L2Promotion {
    /// The number that the driver gives it.
    pub const fn code(self) -> u32 {
        self as u32
    }
}

/// All of a tensor map but the tensor: the type, the box and how it lies in shared memory. Dimensions are innermost
/// first.
///
/// ```
/// use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};
/// let map = TensorMapSpec::new(Element::BF16, &[64, 128], SwizzleMode::B128)?;
/// assert_eq!((map.rank(), map.bytes(), map.data_type()), (2, 16384, 9));
/// map.check_tensor(0x1000, &[4096, 4096], &[8192])?;
///
/// let error = TensorMapSpec::new(Element::BF16, &[128, 128], SwizzleMode::B128).unwrap_err();
/// assert!(error.to_string().contains("at most 128 bytes"), "{error}");
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMapSpec {
    element: Element,
    data_type: u32,
    box_dims: Vec<u32>,
    element_strides: Vec<u32>,
    swizzle: SwizzleMode,
    oob_fill: OobFill,
    l2_promotion: L2Promotion,
}

fn refuse<T>(what: impl Into<String>, found: impl fmt::Display, expected: impl Into<String>) -> Result<T> {
    Err(HardwareError::TensorMap { what: what.into(), found: format!("{found}"), expected: expected.into() })
}

/// The driver's number for a type. Types it does not know travel as unsigned integers of the same width; only the fill
/// and reductions look at the type.
fn data_type(element: Element) -> Result<u32> {
    Ok(match element {
        Element::Bool | Element::I8 | Element::U8 | Element::E4M3 | Element::E5M2 | Element::UE8M0 => 0,
        Element::I16 | Element::U16 => 1,
        Element::U32 => 2,
        Element::I32 => 3,
        Element::U64 => 4,
        Element::I64 => 5,
        Element::F16 => 6,
        Element::F32 => 7,
        Element::F64 => 8,
        Element::BF16 => 9,
        Element::TF32 => 11,
        Element::E2M1 => return refuse("elements of type", element, "whole bytes; copy pairs as u8"),
    })
}

impl TensorMapSpec {
    /// A map with this box: neighbouring elements, zeros outside, 128 bytes of L2 promotion.
    pub fn new(element: Element, box_dims: &[u32], swizzle: SwizzleMode) -> Result<TensorMapSpec> {
        let data_type = data_type(element)?;
        let Some(&inner) = box_dims.first().filter(|_| box_dims.len() <= MOST_DIMENSIONS) else {
            return refuse("a box of rank", box_dims.len(), "1 to 5 dimensions");
        };
        if let Some((i, extent)) =
            box_dims.iter().enumerate().find(|(_, n)| !(1..=MOST_ELEMENTS).contains(*n))
        {
            return refuse(
                format!("the extent of box dimension {i},"),
                extent,
                "1 to 256; use several boxes",
            );
        }
        let width = inner * element.bytes();
        if !width.is_multiple_of(PIECE) {
            return refuse("a box whose innermost bytes are", width, "a multiple of 16");
        }
        if swizzle != SwizzleMode::None && width > swizzle.span() {
            let expected = format!("at most {} bytes with this swizzle; use several boxes", swizzle.span());
            return refuse("a box whose innermost bytes are", width, expected);
        }
        Ok(TensorMapSpec {
            element,
            data_type,
            box_dims: box_dims.to_vec(),
            element_strides: vec![1; box_dims.len()],
            swizzle,
            oob_fill: OobFill::default(),
            l2_promotion: L2Promotion::default(),
        })
    }

    /// With every n-th element of a dimension only; the innermost stride is not looked at by the hardware.
    pub fn with_element_strides(mut self, strides: &[u32]) -> Result<TensorMapSpec> {
        if strides.len() != self.rank() {
            return refuse("element strides of rank", strides.len(), format!("{}, as the box", self.rank()));
        }
        if let Some((i, stride)) = strides.iter().enumerate().find(|(_, n)| !(1..=8).contains(*n)) {
            return refuse(format!("element stride {i},"), stride, "1 to 8");
        }
        self.element_strides = strides.to_vec();
        Ok(self)
    }

    /// With a smaller extent in one dimension. With a swizzle that leaves alone how the rest lies in shared memory.
    ///
    /// ```
    /// use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};
    /// let map = TensorMapSpec::new(Element::BF16, &[64, 128], SwizzleMode::B128)?;
    /// assert_eq!(map.clone().shortened(1, 5)?.bytes(), 640);
    /// assert!(map.clone().shortened(1, 129).is_err());
    /// // Rows consist of pieces of 16 bytes.
    /// assert!(map.shortened(0, 4).is_err());
    /// # Ok::<(), tilewright_hardware::HardwareError>(())
    /// ```
    pub fn shortened(mut self, dimension: usize, extent: u32) -> Result<TensorMapSpec> {
        let what = |dimension: usize| format!("the extent of box dimension {dimension},");
        match self.box_dims.get_mut(dimension) {
            Some(most) if (1..=*most).contains(&extent) => *most = extent,
            Some(most) => return refuse(what(dimension), extent, format!("1 to {most}")),
            None => return refuse(what(dimension), extent, format!("a dimension below {}", self.rank())),
        }
        let width = self.box_dims[0] * self.element.bytes();
        if !width.is_multiple_of(PIECE) {
            return refuse("a box whose innermost bytes are", width, "a multiple of 16");
        }
        Ok(self)
    }

    /// With another value outside of the tensor.
    pub fn with_oob_fill(mut self, fill: OobFill) -> Result<TensorMapSpec> {
        // Floats that travel as bytes have no NaN for the hardware to write.
        if fill == OobFill::Nan && self.data_type < data_type(Element::F16)? {
            return refuse("a NaN fill of", self.element, "f16, bf16, tf32, f32 or f64");
        }
        self.oob_fill = fill;
        Ok(self)
    }

    /// With another L2 promotion.
    #[must_use]
    pub fn with_l2_promotion(mut self, promotion: L2Promotion) -> TensorMapSpec {
        self.l2_promotion = promotion;
        self
    }

    /// The type of the elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The driver's number for that type.
    pub fn data_type(&self) -> u32 {
        self.data_type
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.box_dims.len()
    }

    /// Extents of the box in the tensor.
    pub fn box_dims(&self) -> &[u32] {
        &self.box_dims
    }

    /// Distances of the elements that are copied.
    pub fn element_strides(&self) -> &[u32] {
        &self.element_strides
    }

    /// The swizzle in shared memory.
    pub fn swizzle(&self) -> SwizzleMode {
        self.swizzle
    }

    /// What is read outside of the tensor.
    pub fn oob_fill(&self) -> OobFill {
        self.oob_fill
    }

    /// How much the L2 cache fetches at once.
    pub fn l2_promotion(&self) -> L2Promotion {
        self.l2_promotion
    }

    /// Bytes that one box writes to shared memory, and that its barrier must expect: all of it, even where the box leaves
    /// the tensor.
    pub fn bytes(&self) -> u64 {
        let outer = self.box_dims.iter().zip(&self.element_strides).skip(1);
        let elements = outer.map(|(n, stride)| u64::from(n.div_ceil(*stride))).product::<u64>();
        elements * u64::from(self.box_dims[0]) * u64::from(self.element.bytes())
    }

    /// Checks a tensor in global memory against the rules: its address, its extents in elements, and the byte strides of
    /// all dimensions but the innermost.
    pub fn check_tensor(&self, address: u64, dims: &[u64], strides: &[u64]) -> Result<()> {
        let rank = self.rank();
        if (dims.len(), strides.len()) != (rank, rank - 1) {
            let found = format!("{} extents and {} strides", dims.len(), strides.len());
            return refuse("a tensor with", found, format!("{rank} and {}, as the box", rank - 1));
        }
        if !address.is_multiple_of(u64::from(PIECE)) {
            return refuse("the address", format!("{address:#x}"), "a multiple of 16");
        }
        if let Some((i, extent)) = dims.iter().enumerate().find(|(_, n)| !(1..=1 << 32).contains(*n)) {
            return refuse(format!("the extent of dimension {i},"), extent, "1 to 2^32");
        }
        let valid = |stride: &u64| *stride < 1 << 40 && stride.is_multiple_of(u64::from(PIECE));
        if let Some((i, stride)) = strides.iter().enumerate().find(|(_, n)| !valid(n)) {
            return refuse(
                format!("the byte stride of dimension {},", i + 1),
                stride,
                "a multiple of 16 below 2^40",
            );
        }
        Ok(())
    }

    /// The boxes that write a tile `(row, k) -> element index` in shared memory, as few as possible; the error says why
    /// there are none.
    ///
    /// ```
    /// use tilewright_hardware::{Element, Major, SwizzleMode, TensorMapSpec, smem_tile};
    /// // 128 values of bf16 are two rows of 128 bytes: two boxes.
    /// let tile = smem_tile(Major::K, 64, 128, Element::BF16, SwizzleMode::B128)?;
    /// let plan = TensorMapSpec::for_tile(&tile, Element::BF16)?;
    /// assert_eq!(plan.spec.box_dims(), [64, 64]);
    /// let boxes: Vec<_> = plan.boxes.iter().map(|b| (b.offset, b.coordinates)).collect();
    /// assert_eq!(boxes, [(0, [0, 0]), (8192, [64, 0])]);
    /// # Ok::<(), tilewright_hardware::HardwareError>(())
    /// ```
    pub fn for_tile(layout: &Composed, element: Element) -> Result<TileBoxes> {
        let tile = ByteTile::new("TMA", layout, element)?;
        let bytes = element.bytes();
        let mut found: Option<TileBoxes> = None;
        let mut closest =
            Mismatch::nothing("no box of 16 bytes or more is contiguous and aligned to 128 bytes");
        for mode in SwizzleMode::ALL.into_iter().rev() {
            for major in [Major::K, Major::Mn] {
                let view = tile.view(mode, major);
                // A narrower box than the span of the swizzle would leave gaps or change the pattern.
                let widths = match mode {
                    SwizzleMode::None => 1..=MOST_ELEMENTS.min(to_u32(view.along)?),
                    _ => mode.span() / bytes..=mode.span() / bytes,
                };
                for width in
                    widths.filter(|w| (*w * bytes).is_multiple_of(PIECE) && view.along % i64::from(*w) == 0)
                {
                    match cover(&tile, &view, width)? {
                        Ok(boxes)
                            if found.as_ref().is_none_or(|best| boxes.boxes.len() < best.boxes.len()) =>
                        {
                            found = Some(boxes);
                        }
                        Err(mismatch) => closest = closest.closest(mismatch),
                        Ok(_) => {}
                    }
                }
            }
        }
        found.ok_or_else(|| tile.refuse(closest.reason))
    }
}

/// One instruction of a [`TileBoxes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileBox {
    /// Where it lands, in bytes from the start of the tile.
    pub offset: u32,
    /// Where it starts in the tile, innermost first: `[k, row]` if K-major, `[row, k]` if MN-major.
    pub coordinates: [u32; 2],
}

/// The boxes that fill a tile; see [`TensorMapSpec::for_tile`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TileBoxes {
    /// The map, the same for all boxes. The tile must start at a multiple of its swizzle's alignment.
    pub spec: TensorMapSpec,
    /// Which mode of the tile is innermost in the tensor.
    pub major: Major,
    /// The boxes, along the innermost dimension first.
    pub boxes: Vec<TileBox>,
}

/// Boxes of `width` elements that write the tile under the assumption of a swizzle and of a contiguous mode; or where
/// the two part ways.
fn cover(
    tile: &ByteTile<'_>,
    view: &View<'_>,
    width: u32,
) -> Result<std::result::Result<TileBoxes, Mismatch>> {
    let (w, bytes) = (i64::from(width), tile.bytes());
    let at = |x: i64, line: i64| view.at(x, line).unwrap_or(-1);
    let contiguous = (1..view.across).take_while(|line| at(0, *line) == at(0, 0) + line * w * bytes).count();
    let most = (contiguous + 1).min(MOST_ELEMENTS as usize);
    let divides = |lines: &i64| view.across % lines == 0;
    let Some(height) = (1..=i64::try_from(most).unwrap_or(1)).rev().find(divides) else {
        return Ok(Err(view.mismatch(0, "it is empty")));
    };
    let alignment = if view.mode == SwizzleMode::None { BOX_ALIGNMENT } else { view.mode.alignment().into() };
    let mut matched = 0;
    let mut boxes = Vec::new();
    for line in (0..view.across).step_by(usize::try_from(height).unwrap_or(1)) {
        for x in (0..view.along).step_by(width as usize) {
            let start = at(x, line);
            if start % alignment != 0 {
                let text = format!("a box starts at byte {start}, expected a multiple of {alignment}");
                return Ok(Err(view.mismatch(matched, text)));
            }
            for (y, i) in (0..height).flat_map(|y| (0..w).map(move |i| (y, i))) {
                let (found, expected) = (at(x + i, line + y), start + (y * w + i) * bytes);
                if found != expected {
                    let (row, k) = if view.major == Major::K { (line + y, x + i) } else { (x + i, line + y) };
                    let text = format!(
                        "element ({row},{k}) is written to byte {expected} before the swizzle, not {found}"
                    );
                    return Ok(Err(view.mismatch(matched, text)));
                }
                matched += 1;
            }
            boxes.push(TileBox { offset: to_u32(start)?, coordinates: [to_u32(x)?, to_u32(line)?] });
        }
    }
    let spec = TensorMapSpec::new(tile.element, &[width, to_u32(height)?], view.mode)?;
    Ok(Ok(TileBoxes { spec, major: view.major, boxes }))
}
