//! Tensor maps as 128 bytes: little-endian fields one after the other, zeros, and a checksum over all before it.

use super::super::error::{Result, TensorError};
use super::fields::{DataType, fill, swizzle};
use super::{Access, RANKS, TensorMap, wrong};

pub(super) const SIZE: usize = 128;
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"TWTM");

struct Writer {
    bytes: [u8; SIZE],
    at: usize,
}

impl Writer {
    fn new() -> Writer {
        Writer { bytes: [0; SIZE], at: 0 }
    }

    fn put(&mut self, value: u64, count: usize) {
        self.bytes[self.at..self.at + count].copy_from_slice(&value.to_le_bytes()[..count]);
        self.at += count;
    }
}

struct Reader<'a> {
    bytes: &'a [u8; SIZE],
    at: usize,
}

impl Reader<'_> {
    fn new(bytes: &[u8; SIZE]) -> Reader<'_> {
        Reader { bytes, at: 0 }
    }

    fn take(&mut self, count: usize) -> u64 {
        let mut value = [0; 8];
        value[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        u64::from_le_bytes(value)
    }

    /// At most four bytes.
    fn small(&mut self, count: usize) -> u32 {
        (self.take(count.min(4)) & 0xffff_ffff) as u32
    }

    /// Two bytes with a sign.
    fn signed(&mut self) -> i32 {
        let low = (self.take(2) & 0xffff) as u16;
        low.cast_signed().into()
    }

    /// Whether all that is left before the checksum is zero.
    fn is_done(&self) -> bool {
        self.bytes[self.at..SIZE - 8].iter().all(|byte| *byte == 0)
    }
}

/// FNV-1a of all but the last eight bytes.
pub(super) fn checksum(bytes: &[u8; SIZE]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes[..SIZE - 8].iter().fold(0xcbf2_9ce4_8422_2325, step)
}

impl TensorMap {
    /// The map as 128 bytes.
    pub fn encode(&self) -> [u8; SIZE] {
        let mut out = Writer::new();
        out.put(MAGIC.into(), 4);
        out.put(self.is_im2col().into(), 1);
        out.put(self.data_type as u64, 1);
        out.put(self.rank as u64, 1);
        out.put(self.swizzle.tma_code().into(), 1);
        out.put(self.fill.code().into(), 1);
        out.put(self.address, 8);
        self.dims.iter().for_each(|n| out.put(*n, 5));
        self.strides.iter().for_each(|n| out.put(*n, 8));
        self.element_strides.iter().for_each(|n| out.put((*n).into(), 1));
        match self.access {
            Access::Tile { extents } => extents.iter().for_each(|n| out.put((*n).into(), 2)),
            Access::Im2col { lower, upper, channels, pixels } => {
                let corners = lower.iter().chain(&upper);
                corners.for_each(|n| out.put(u64::from(n.cast_unsigned() & 0xffff), 2));
                out.put(channels.into(), 2);
                out.put(pixels.into(), 2);
            }
        }
        let checksum = checksum(&out.bytes);
        let mut encoded = out.bytes;
        encoded[SIZE - 8..].copy_from_slice(&checksum.to_le_bytes());
        encoded
    }

    /// The map in 128 bytes, as [`encode`](TensorMap::encode) wrote it; of 128 zeros, a blank one.
    pub fn decode(encoded: &[u8; SIZE]) -> Result<TensorMap> {
        if encoded.iter().all(|byte| *byte == 0) {
            return Ok(TensorMap::blank());
        }
        let refuse = |found| TensorError::NoTensorMap { found };
        let mut from = Reader::new(encoded);
        if from.small(4) != MAGIC {
            return Err(refuse("they do not begin with its magic number"));
        }
        if encoded[SIZE - 8..] != checksum(encoded).to_le_bytes() {
            return Err(refuse("their checksum is wrong"));
        }
        let im2col = match from.take(1) {
            0 => false,
            1 => true,
            _ => return Err(refuse("the access mode is unknown")),
        };
        let data_type = DataType::from_driver(from.small(1))?;
        let rank = from.small(1) as usize;
        if !(1..=RANKS).contains(&rank) {
            return Err(wrong("rank", rank, "1 to 5"));
        }
        let swizzle = swizzle(from.take(1))?;
        let fill = fill(from.take(1))?;
        let address = from.take(8);
        let dims = std::array::from_fn(|_| from.take(5));
        let strides = std::array::from_fn(|_| from.take(8));
        let element_strides = std::array::from_fn(|_| from.small(1));
        let access = match im2col {
            false => Access::Tile { extents: std::array::from_fn(|_| from.small(2)) },
            true => Access::Im2col {
                lower: std::array::from_fn(|_| from.signed()),
                upper: std::array::from_fn(|_| from.signed()),
                channels: from.small(2),
                pixels: from.small(2),
            },
        };
        if !from.is_done() {
            return Err(refuse("there is something behind the last field"));
        }
        Ok(TensorMap { data_type, rank, address, dims, strides, element_strides, access, swizzle, fill })
    }
}
