//! Tensor maps: what TMA copies between a tensor in global memory and a box in shared memory, address by address.
//!
//! NVIDIA does not say what is in the 128 bytes of a tensor map, so these have a format of their own, with a magic
//! number and a checksum. 128 zeros are a blank map, which a kernel may fill in field by field with
//! `tensormap.replace`. Fields are checked against each other when the map is made and when it is used, not when a
//! field is replaced: a kernel changes them one after the other.
//!
//! A box lies in shared memory row after row: without gaps, or with a swizzle at multiples of its span, also where a row is shorter. The
//! swizzle is an exclusive-or on the whole address, whatever address the box starts at.
//!
//! Interleaved layouts are not supported. Which bytes go where is decided here; that elements of `tf32` are rounded, by whoever copies
//! them. Subnormals of the `ftz` types are not flushed.

use tilewright_hardware::{OobFill, SwizzleMode};
use tilewright_ptx::Type;

use super::error::{Result, TensorError};

mod encoding;
mod fields;

pub use fields::{DataType, Field};

/// Most dimensions of a tensor.
const RANKS: usize = 5;
/// The alignment of a box in shared memory.
const BOX_ALIGNMENT: u32 = 128;
/// Bytes that TMA moves as one, and the alignment of addresses and strides.
const PIECE: u32 = 16;

/// What an instruction copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A box of the tensor.
    Tile {
        /// Its extents in the tensor, innermost first.
        extents: [u32; RANKS],
    },
    /// Pixels of an image, for a convolution. Dimensions are channels, then width, height and depth as far as there
    /// are, then the image.
    Im2col {
        /// Lower corner of the bounding box, relative to the first pixel: width first.
        lower: [i32; 3],
        /// Upper corner, relative to the last pixel.
        upper: [i32; 3],
        /// Channels of a pixel that are copied.
        channels: u32,
        /// Pixels that are copied.
        pixels: u32,
    },
}

/// Neighbouring bytes that a copy moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Run {
    /// Where they are in shared memory, after the swizzle.
    pub shared: u32,
    /// Where they are in global memory; `None` outside of the tensor, where a load fills in
    /// [`TensorMap::fill_bits`] and a store writes nothing.
    pub global: Option<u64>,
    /// How many.
    pub bytes: u32,
}

/// What a tensor map is made of, all dimensions innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec<'a> {
    /// The type of the elements.
    pub data_type: DataType,
    /// Where the tensor is.
    pub address: u64,
    /// Its extents in elements: as many as it has dimensions.
    pub dims: &'a [u64],
    /// The distance in bytes of neighbours in each dimension but the innermost.
    pub strides: &'a [u64],
    /// What is copied.
    pub access: Access,
    /// Of each dimension, that every n-th element is copied; the innermost is not looked at.
    pub element_strides: &'a [u32],
    /// The interleaved layout, which must be 0.
    pub interleave: u32,
    /// How the box is swizzled in shared memory.
    pub swizzle: SwizzleMode,
    /// What is read outside of the tensor.
    pub fill: OobFill,
}

/// A tensor map.
///
/// ```
/// use tilewright_hardware::{OobFill, SwizzleMode};
/// use tilewright_sim::tensor::tensor_map::{Access, DataType, Run, Spec, TensorMap};
/// let map = TensorMap::new(&Spec {
///     data_type: DataType::F32,
///     address: 0x1000,
///     dims: &[10, 3],
///     strides: &[48],
///     access: Access::Tile { extents: [4, 2, 1, 1, 1] },
///     element_strides: &[1, 1],
///     interleave: 0,
///     swizzle: SwizzleMode::None,
///     fill: OobFill::Zeros,
/// })?;
/// assert_eq!(map.box_bytes()?, 32);
/// // Two columns of rows 2 and 3: the last columns, and row 3 is none.
/// let runs = map.tile(&[8, 2], 1024)?;
/// assert_eq!(runs[0], Run { shared: 1024, global: Some(0x1000 + 2 * 48 + 8 * 4), bytes: 8 });
/// assert_eq!(runs[1], Run { shared: 1032, global: None, bytes: 24 });
/// assert_eq!(TensorMap::decode(&map.encode())?, map);
/// # Ok::<(), tilewright_sim::tensor::TensorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMap {
    data_type: DataType,
    rank: usize,
    address: u64,
    dims: [u64; RANKS],
    strides: [u64; RANKS - 1],
    element_strides: [u32; RANKS],
    access: Access,
    swizzle: SwizzleMode,
    fill: OobFill,
}

fn wrong(
    field: impl Into<String>,
    found: impl std::fmt::Display,
    expected: impl Into<String>,
) -> TensorError {
    TensorError::TensorMap { field: field.into(), found: found.to_string(), expected: expected.into() }
}

/// The first of some values that breaks a rule.
fn each<T: Copy + std::fmt::Display>(
    field: &str,
    values: &[T],
    rule: impl Fn(T) -> bool,
    expected: &str,
) -> Result<()> {
    match values.iter().enumerate().find(|(_, value)| !rule(**value)) {
        Some((index, value)) => Err(wrong(format!("{field} {index} of"), value, expected)),
        None => Ok(()),
    }
}

impl TensorMap {
    /// A map, if it keeps to the rules of the driver.
    pub fn new(spec: &Spec<'_>) -> Result<TensorMap> {
        let rank = spec.dims.len();
        if spec.interleave != 0 {
            return Err(wrong(
                "interleave layout",
                spec.interleave,
                "0: interleaved layouts are not supported",
            ));
        }
        let given = (spec.strides.len() + 1, spec.element_strides.len());
        if !(1..=RANKS).contains(&rank) || given != (rank, rank) {
            let found = format!("{rank} with {} strides and {} element strides", given.0 - 1, given.1);
            return Err(wrong("rank", found, "1 to 5, one stride less and as many element strides"));
        }
        let mut map = TensorMap {
            data_type: spec.data_type,
            rank,
            address: spec.address,
            dims: [1; RANKS],
            strides: [0; RANKS - 1],
            element_strides: [1; RANKS],
            access: spec.access,
            swizzle: spec.swizzle,
            fill: spec.fill,
        };
        map.dims[..rank].copy_from_slice(spec.dims);
        map.strides[..rank - 1].copy_from_slice(spec.strides);
        map.element_strides[..rank].copy_from_slice(spec.element_strides);
        // What belongs to no dimension is as in a map that never had it.
        match &mut map.access {
            Access::Tile { extents } => extents[rank..].fill(1),
            Access::Im2col { lower, upper, .. } => {
                let spatial = rank.saturating_sub(2);
                lower[spatial..].fill(0);
                upper[spatial..].fill(0);
            }
        }
        map.check()?;
        Ok(map)
    }

    /// The usual map: boxes of a tensor whose elements lie next to each other along the innermost dimension. Dimensions, strides in
    /// bytes (without the innermost) and box are innermost first.
    ///
    /// ```
    /// use tilewright_hardware::SwizzleMode;
    /// use tilewright_ptx::Type;
    /// use tilewright_sim::TensorMap;
    /// let map = TensorMap::tiled(Type::Bf16, 0x1000, &[256, 64], &[512], &[64, 32], SwizzleMode::B128)?;
    /// assert_eq!(map.box_bytes()?, 64 * 32 * 2);
    /// # Ok::<(), tilewright_sim::tensor::TensorError>(())
    /// ```
    pub fn tiled(
        element: Type,
        address: u64,
        dims: &[u64],
        strides: &[u64],
        tile: &[u32],
        swizzle: SwizzleMode,
    ) -> Result<TensorMap> {
        let data_type = DataType::for_element(element)
            .ok_or_else(|| wrong("element type", element, "a type of 1, 2, 4 or 8 bytes"))?;
        let mut extents = [1; RANKS];
        if tile.len() != dims.len() || dims.len() > RANKS {
            return Err(wrong(
                "box rank",
                tile.len(),
                format!("the rank of the tensor, {}, at most 5", dims.len()),
            ));
        }
        extents[..tile.len()].copy_from_slice(tile);
        TensorMap::new(&Spec {
            data_type,
            address,
            dims,
            strides,
            element_strides: &[1; RANKS][..dims.len()],
            access: Access::Tile { extents },
            interleave: 0,
            swizzle,
            fill: OobFill::Zeros,
        })
    }

    /// A map of 128 zeros.
    fn blank() -> TensorMap {
        TensorMap {
            data_type: DataType::U8,
            rank: 1,
            address: 0,
            dims: [0; RANKS],
            strides: [0; RANKS - 1],
            element_strides: [0; RANKS],
            access: Access::Tile { extents: [0; RANKS] },
            swizzle: SwizzleMode::None,
            fill: OobFill::Zeros,
        }
    }

    /// The type of the elements.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The type that PTX calculates with, as in a reduction.
    pub fn element_type(&self) -> Type {
        self.data_type.element_type()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Whether it copies pixels for a convolution.
    pub fn is_im2col(&self) -> bool {
        matches!(self.access, Access::Im2col { .. })
    }

    /// The bits of an element that a load fills in outside of the tensor. A NaN is the halfword `0x7ff7` repeated, as an H200 has it.
    pub fn fill_bits(&self) -> u64 {
        match self.fill {
            OobFill::Zeros => 0,
            OobFill::Nan => 0x7ff7_7ff7_7ff7_7ff7 >> (64 - 8 * self.data_type.bytes()),
        }
    }

    /// The map as stores and reductions see it: they do not clip the innermost dimension inside of a piece of 16 bytes.
    #[must_use]
    pub fn for_store(&self) -> TensorMap {
        let per_piece = u64::from((PIECE / self.data_type.bytes()).max(1));
        let mut map = self.clone();
        map.dims[0] = map.dims[0].next_multiple_of(per_piece);
        map
    }

    /// Bytes that one copy writes to shared memory and completes on its barrier, inside of the tensor or not.
    pub fn box_bytes(&self) -> Result<u32> {
        self.check()?;
        // Five extents of 256 overflow 32 bits; so does the shared memory of any chip.
        let elements = match self.access {
            Access::Tile { .. } => self.counts().iter().map(|count| u64::from(*count)).product::<u64>(),
            Access::Im2col { channels, pixels, .. } => u64::from(channels) * u64::from(pixels),
        };
        let bytes = elements * u64::from(self.data_type.bytes());
        u32::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= 1 << 24)
            .ok_or_else(|| wrong("box", format!("of {bytes} bytes"), "one that fits in shared memory"))
    }

    /// Bytes of shared memory that a copy reaches over. With a swizzle, every row (or pixel) begins at a multiple of the swizzle's span, as
    /// measured on an H200; what lies between narrower rows is left alone.
    pub fn shared_bytes(&self) -> Result<u32> {
        let bytes = self.box_bytes()?;
        let row = self.row_bytes().max(1);
        Ok(bytes / row * self.pitch().max(row))
    }

    fn row_bytes(&self) -> u32 {
        let elements = match self.access {
            Access::Tile { .. } => self.counts()[0],
            Access::Im2col { channels, .. } => channels,
        };
        elements * self.data_type.bytes()
    }

    /// Bytes from one row in shared memory to the next.
    fn pitch(&self) -> u32 {
        match self.swizzle {
            SwizzleMode::None => self.row_bytes(),
            SwizzleMode::B32 => 32,
            SwizzleMode::B64 => 64,
            SwizzleMode::B128 => 128,
        }
    }

    /// Elements of a box in each dimension that are copied.
    fn counts(&self) -> [u32; RANKS] {
        let mut counts = [1; RANKS];
        if let Access::Tile { extents } = self.access {
            for dimension in 0..self.rank {
                let stride = if dimension == 0 { 1 } else { self.element_strides[dimension].max(1) };
                counts[dimension] = extents[dimension].div_ceil(stride);
            }
        }
        counts
    }

    /// Whether the fields keep to the rules and fit each other.
    pub fn check(&self) -> Result<()> {
        let rank = self.rank;
        let bytes = self.data_type.bytes();
        if !self.address.is_multiple_of(PIECE.into()) {
            return Err(wrong("global address", format!("{:#x}", self.address), "a multiple of 16"));
        }
        each("global dimension", &self.dims[..rank], |n| (1..=1 << 32).contains(&n), "1 to 2^32")?;
        let stride = |n: u64| n < 1 << 40 && n.is_multiple_of(PIECE.into());
        each("global stride", &self.strides[..rank - 1], stride, "a multiple of 16 below 2^40")?;
        each("element stride", &self.element_strides[..rank], |n| (1..=8).contains(&n), "1 to 8")?;
        let width = match self.access {
            Access::Tile { extents } => {
                each("box dimension", &extents[..rank], |n| (1..=256).contains(&n), "1 to 256")?;
                extents[0] * bytes
            }
            Access::Im2col { lower, upper, channels, pixels } => {
                if rank < 3 {
                    return Err(wrong("rank", rank, "3 to 5 for im2col"));
                }
                let limit = [1 << 15, 1 << 7, 1 << 4][rank - 3];
                let inside = |n: i32| (-limit..limit).contains(&n);
                let expected = format!("-{limit} to {}", limit - 1);
                each("lower corner", &lower[..rank - 2], inside, &expected)?;
                each("upper corner", &upper[..rank - 2], inside, &expected)?;
                each("channels per pixel", &[channels], |n| (1..=256).contains(&n), "1 to 256")?;
                each("pixels per column", &[pixels], |n| (1..=1024).contains(&n), "1 to 1024")?;
                channels * bytes
            }
        };
        if !width.is_multiple_of(PIECE) {
            return Err(wrong("box", format!("whose rows have {width} bytes"), "a multiple of 16 bytes"));
        }
        if self.swizzle != SwizzleMode::None && width > self.swizzle.span() {
            let expected = format!("at most {}, the span of the swizzle", self.swizzle.span());
            return Err(wrong("box", format!("whose rows have {width} bytes"), expected));
        }
        if self.fill == OobFill::Nan && !self.data_type.is_float() {
            return Err(wrong("fill mode", format!("NaN for {:?}", self.data_type), "a floating-point type"));
        }
        Ok(())
    }

    fn check_use(&self, coordinates: usize, shared: u32) -> Result<u32> {
        let bytes = self.box_bytes()?;
        if coordinates != self.rank {
            return Err(wrong(
                "rank",
                self.rank,
                format!("{coordinates}, as the instruction has coordinates"),
            ));
        }
        if !shared.is_multiple_of(BOX_ALIGNMENT) {
            return Err(wrong("a box in shared memory at", format!("{shared:#x}"), "a multiple of 128"));
        }
        let reach = self.shared_bytes()?;
        if shared.checked_add(reach).is_none() {
            return Err(wrong("a box in shared memory at", format!("{shared:#x}"), "an address below 2^32"));
        }
        Ok(bytes)
    }

    /// What a tiled copy moves: the box that starts at `coordinates`, innermost first, and at `shared`.
    ///
    /// Runs come in the order of the box; neighbours are one run where they are neighbours on both sides.
    pub fn tile(&self, coordinates: &[i32], shared: u32) -> Result<Vec<Run>> {
        self.check_use(coordinates.len(), shared)?;
        if self.is_im2col() {
            return Err(wrong("access mode", "im2col", "tile, as the instruction"));
        }
        let counts = self.counts();
        let mut runs = Runs::new(self.swizzle, shared);
        let rows: u64 = counts[1..].iter().map(|count| u64::from(*count)).product();
        let mut index = [0u32; RANKS];
        for _ in 0..rows {
            let mut position = [0i64; RANKS];
            for dimension in 0..self.rank {
                let step = i64::from(index[dimension]) * i64::from(self.element_strides[dimension]);
                position[dimension] = i64::from(coordinates[dimension]) + step;
            }
            position[0] = coordinates[0].into();
            self.row(&position, counts[0], &mut runs);
            runs.next += self.pitch().saturating_sub(self.row_bytes());
            for dimension in 1..self.rank {
                index[dimension] += 1;
                if index[dimension] < counts[dimension] {
                    break;
                }
                index[dimension] = 0;
            }
        }
        Ok(runs.list)
    }

    /// What an im2col copy moves. `coordinates` are the channel, the position of the filter's corner in width, height
    /// and depth as far as there are, and the image; `offsets` are those of a tap of the filter, width first.
    ///
    /// Pixels are taken along the width of the bounding box, then its height, depth and the images, each
    /// `element_strides` apart; a tap outside of the image reads the fill.
    pub fn im2col(&self, coordinates: &[i32], offsets: &[u16], shared: u32) -> Result<Vec<Run>> {
        self.check_use(coordinates.len(), shared)?;
        let Access::Im2col { lower, upper, channels, pixels } = self.access else {
            return Err(wrong("access mode", "tile", "im2col, as the instruction"));
        };
        let spatial = self.rank - 2;
        if offsets.len() != spatial {
            return Err(wrong("im2col offsets", offsets.len(), format!("{spatial} with rank {}", self.rank)));
        }
        let limit = [1 << 16, 1 << 8, 1 << 5][spatial - 1];
        each("im2col offset", offsets, |n| u32::from(n) < limit, &format!("below {limit}"))?;
        let mut base = [0i64; RANKS];
        for (base, coordinate) in base.iter_mut().zip(coordinates) {
            *base = i64::from(*coordinate);
        }
        let mut runs = Runs::new(self.swizzle, shared);
        for _ in 0..pixels {
            let mut position = base;
            for dimension in 0..spatial {
                position[dimension + 1] += i64::from(offsets[dimension]);
            }
            self.row(&position, channels, &mut runs);
            runs.next += self.pitch().saturating_sub(self.row_bytes());
            let mut carry = true;
            for dimension in 0..spatial {
                let at = &mut base[dimension + 1];
                *at += i64::from(self.element_strides[dimension + 1]);
                // At most 2^32 elements.
                let size = i64::try_from(self.dims[dimension + 1]).unwrap_or(i64::MAX);
                carry = *at > size - 1 + i64::from(upper[dimension]);
                if !carry {
                    break;
                }
                *at = i64::from(lower[dimension]);
            }
            base[self.rank - 1] += i64::from(carry);
        }
        Ok(runs.list)
    }

    /// One row of a box: `count` elements from a position.
    fn row(&self, position: &[i64; RANKS], count: u32, runs: &mut Runs) {
        let bytes = self.data_type.bytes();
        let inside =
            |dimension: usize| u64::try_from(position[dimension]).is_ok_and(|at| at < self.dims[dimension]);
        if !(1..self.rank).all(inside) {
            return runs.push(None, count * bytes);
        }
        let first = i128::from(position[0]);
        let clamp = |at: i128| u32::try_from(at.clamp(0, count.into())).unwrap_or(0);
        let (begin, end) = (clamp(-first), clamp(i128::from(self.dims[0]) - first));
        let (begin, end) = (begin.min(end), end);
        let mut address = self.address;
        for (at, stride) in position[1..self.rank].iter().zip(&self.strides) {
            address = address.wrapping_add(stride.wrapping_mul(at.cast_unsigned()));
        }
        let inner = (position[0] + i64::from(begin)).cast_unsigned().wrapping_mul(bytes.into());
        runs.push(None, begin * bytes);
        runs.push(Some(address.wrapping_add(inner)), (end - begin) * bytes);
        runs.push(None, (count - end) * bytes);
    }

    /// Does `tensormap.replace`. Only what can never be right is refused; see [`TensorMap::check`] for the rest.
    ///
    /// The stride is in bytes, and ordinal 0 is that of dimension 1.
    pub fn replace(&mut self, field: Field, ordinal: u32, value: u64) -> Result<()> {
        let at = ordinal as usize;
        let limit = match field {
            Field::GlobalStride => RANKS - 1,
            _ => RANKS,
        };
        if field.has_ordinal() && at >= limit {
            return Err(wrong("ordinal", ordinal, format!("below {limit} for {field:?}")));
        }
        let small = u32::try_from(value);
        match field {
            Field::GlobalAddress => self.address = value,
            Field::Rank => match usize::try_from(value) {
                Ok(rank) if rank < RANKS => self.rank = rank + 1,
                _ => return Err(wrong("rank less one of", value, "0 to 4")),
            },
            Field::BoxDim => match (&mut self.access, small) {
                (Access::Tile { extents }, Ok(value @ 0..=256)) => extents[at] = value,
                (Access::Tile { .. }, _) => {
                    return Err(wrong(format!("box dimension {at} of"), value, "1 to 256"));
                }
                _ => return Err(wrong("access mode", "im2col", "tile: only its box can be replaced")),
            },
            Field::GlobalDim => match value {
                0..=0x1_0000_0000 => self.dims[at] = value,
                _ => return Err(wrong(format!("global dimension {at} of"), value, "1 to 2^32")),
            },
            Field::GlobalStride => match value {
                0..0x100_0000_0000 => self.strides[at] = value,
                _ => {
                    return Err(wrong(
                        format!("global stride {at} of"),
                        value,
                        "a multiple of 16 below 2^40",
                    ));
                }
            },
            Field::ElementStride => match small {
                Ok(value @ 0..=8) => self.element_strides[at] = value,
                _ => return Err(wrong(format!("element stride {at} of"), value, "1 to 8")),
            },
            Field::Elemtype => self.data_type = DataType::from_ptx(value)?,
            Field::InterleaveLayout if value == 0 => {}
            Field::InterleaveLayout => {
                return Err(wrong("interleave layout", value, "0: interleaved layouts are not supported"));
            }
            Field::SwizzleMode => self.swizzle = fields::swizzle(value)?,
            Field::FillMode => self.fill = fields::fill(value)?,
        }
        Ok(())
    }
}

/// Collects runs: cuts them where the swizzle does, and joins neighbours.
struct Runs {
    swizzle: SwizzleMode,
    /// Where the next byte goes, before the swizzle.
    next: u32,
    list: Vec<Run>,
}

impl Runs {
    fn new(swizzle: SwizzleMode, shared: u32) -> Runs {
        Runs { swizzle, next: shared, list: Vec::new() }
    }

    fn push(&mut self, mut global: Option<u64>, mut bytes: u32) {
        while bytes > 0 {
            let piece = match self.swizzle {
                SwizzleMode::None => bytes,
                _ => bytes.min(PIECE - self.next % PIECE),
            };
            let lines = (1 << self.swizzle as u32) - 1;
            self.join(Run { shared: self.next ^ (self.next >> 7 & lines) << 4, global, bytes: piece });
            self.next += piece;
            global = global.map(|address| address.wrapping_add(piece.into()));
            bytes -= piece;
        }
    }

    fn join(&mut self, run: Run) {
        if let Some(last) = self.list.last_mut() {
            let follows = last.shared + last.bytes == run.shared
                && last.global.map(|address| address.wrapping_add(last.bytes.into())) == run.global;
            if follows {
                last.bytes += run.bytes;
                return;
            }
        }
        self.list.push(run);
    }
}

#[cfg(test)]
mod tests;
