//! Operands: random numbers in memory, and what their elements stand for.
//!
//! Numbers are as in practice (normal for floats, every value for integers): on zeros or small integers a GPU draws less power and looks
//! faster than it is. A large matrix repeats one pattern, whose length is a prime, so that the host makes and keeps little, lines of a
//! matrix never match, and every element is known.

use tilewright::device::{Buffer, DeviceError};
use tilewright::hardware::Element;
use tilewright::lang::{E4m3, bf16, f16, nearest_bf16, nearest_f16};

/// The longest pattern, in elements: a prime.
const PERIOD: usize = 1_048_573;

/// Numbers that fill memory again and again.
#[derive(Debug)]
pub(super) struct Pattern {
    values: Vec<f64>,
    bytes: Vec<u8>,
}

impl Pattern {
    /// For a matrix of so many elements.
    pub(super) fn new(element: Element, elements: u64, seed: u64) -> Pattern {
        let count = usize::try_from(elements).unwrap_or(PERIOD).min(PERIOD);
        let mut random = Random(seed);
        let bytes: Vec<u8> = (0..count).flat_map(|_| random.element(element)).collect();
        let values = bytes.chunks(element.bytes() as usize).map(|bytes| decode(element, bytes)).collect();
        Pattern { values, bytes }
    }

    /// Numbers of so many places in an array, as i32: below `below`, each as likely as any other.
    pub(super) fn places(below: u32, elements: u64, seed: u64) -> Pattern {
        let count = usize::try_from(elements).unwrap_or(PERIOD).min(PERIOD);
        let mut random = Random(seed);
        let mut place = || i32::try_from(random.next() % u64::from(below.max(1))).unwrap_or(i32::MAX);
        let places: Vec<i32> = (0..count).map(|_| place()).collect();
        Pattern {
            values: places.iter().copied().map(f64::from).collect(),
            bytes: places.iter().flat_map(|place| place.to_le_bytes()).collect(),
        }
    }

    /// These numbers, rounded to the type.
    pub(super) fn of(element: Element, numbers: impl Iterator<Item = f64>) -> Pattern {
        let bytes: Vec<u8> = numbers.flat_map(|number| encode(element, number)).collect();
        let values = bytes.chunks(element.bytes() as usize).map(|bytes| decode(element, bytes)).collect();
        Pattern { values, bytes }
    }

    /// The number at a place in memory, in elements.
    pub(super) fn at(&self, place: u64) -> f64 {
        let count = self.values.len().max(1) as u64;
        usize::try_from(place % count).ok().and_then(|place| self.values.get(place)).copied().unwrap_or(0.0)
    }

    /// Fills memory with it.
    pub(super) fn fill(&self, memory: &Buffer<u8>) -> Result<(), DeviceError> {
        let mut filled = self.bytes.len().min(memory.len());
        if filled == 0 {
            return Ok(());
        }
        memory.slice(..filled)?.write(&self.bytes[..filled])?;
        while filled < memory.len() {
            let more = filled.min(memory.len() - filled);
            memory.slice(filled..filled + more)?.copy_from(&memory.slice(..more)?)?;
            filled += more;
        }
        Ok(())
    }
}

/// Splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Above 0, at most 1.
    #[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// The bytes of an element.
    #[allow(clippy::cast_possible_truncation, reason = "rounded to the type")]
    fn element(&mut self, element: Element) -> Vec<u8> {
        match element {
            Element::BF16 | Element::F16 | Element::F32 | Element::F64 => encode(element, self.normal()),
            // Tensor cores ignore the last 13 bits; here they are zero, so that products are exact.
            Element::TF32 => (((self.normal() as f32).to_bits() + 0x1000) & !0x1fff).to_le_bytes().to_vec(),
            Element::E4M3 | Element::E5M2 => vec![small(element, self.normal())],
            Element::Bool => vec![u8::from(self.next() >> 63 == 1)],
            _ => self.next().to_le_bytes()[..element.bytes() as usize].to_vec(),
        }
    }
}

/// The bytes of a number, rounded to one of the types that operands and results have; zeros of any other.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded to the type")]
pub(super) fn encode(element: Element, value: f64) -> Vec<u8> {
    match element {
        Element::BF16 => nearest_bf16(value).to_le_bytes().to_vec(),
        Element::F16 => nearest_f16(value).to_le_bytes().to_vec(),
        Element::F32 => (value as f32).to_le_bytes().to_vec(),
        Element::F64 => value.to_le_bytes().to_vec(),
        Element::I32 => (value as i32).to_le_bytes().to_vec(),
        Element::U32 => (value as u32).to_le_bytes().to_vec(),
        Element::I8 => (value.round_ties_even() as i8).to_le_bytes().to_vec(),
        Element::E4M3 => vec![E4m3::from_f64(value).0],
        _ => vec![0; element.bytes() as usize],
    }
}

/// The number that the bytes of an element stand for.
pub(super) fn decode(element: Element, bytes: &[u8]) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    let bits = u64::from_le_bytes(wide);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        reason = "the bits of the type, no more"
    )]
    match element {
        Element::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Element::F16 => f16::from_bits(bits as u16).to_f64(),
        Element::F32 | Element::TF32 => f64::from(f32::from_bits(bits as u32)),
        Element::F64 => f64::from_bits(bits),
        Element::I8 => f64::from(bits as u8 as i8),
        Element::I32 => f64::from(bits as u32 as i32),
        Element::U32 => f64::from(bits as u32),
        Element::Bool => f64::from(u8::from(bits != 0)),
        Element::E4M3 if bits & 0x7f == 0x7f => f64::NAN,
        Element::E4M3 => f64::from(value_of_small(3, 7, bits as u8)),
        Element::E5M2 => f64::from(value_of_small(2, 15, bits as u8)),
        _ => f64::NAN,
    }
}

/// The value of a finite 8-bit float.
fn value_of_small(mantissa_bits: u32, bias: i32, bits: u8) -> f32 {
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from((bits & 0x7f) >> mantissa_bits);
    let fraction = f32::from(bits & ((1 << mantissa_bits) - 1)) / f32::from(1u8 << mantissa_bits);
    let (whole, exponent) = if exponent == 0 { (0.0, 1) } else { (1.0, exponent) };
    sign * (whole + fraction) * f32::exp2((exponent - bias) as f32)
}

/// The bits of an 8-bit float near a number of ordinary size: rounded to its mantissa, to zero if it is tiny.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a normal distribution"
)]
fn small(element: Element, value: f64) -> u8 {
    let (mantissa_bits, bias) = if element == Element::E4M3 { (3, 7) } else { (2, 15) };
    let magnitude = value.abs();
    if magnitude < f64::from(1 - bias).exp2() {
        return 0;
    }
    // Rounding may carry into the exponent, which is what should happen.
    let exponent = magnitude.log2().floor();
    let steps = (magnitude / exponent.exp2() - 1.0) * f64::from(1u32 << mantissa_bits);
    let bits = ((exponent as i32 + bias) << mantissa_bits) + steps.round() as i32;
    (bits.clamp(0, 0x7e) as u8) | if value < 0.0 { 0x80 } else { 0 }
}

#[cfg(test)]
mod tests {
    use tilewright::device::Device;

    use super::*;

    #[test]
    fn memory_holds_what_the_pattern_says() {
        let device = Device::cpu();
        for (element, elements) in [(Element::BF16, 1000), (Element::F64, 3), (Element::E4M3, 5000)] {
            let pattern = Pattern::new(element, elements as u64 / 3 + 1, 7);
            let memory = device.alloc::<u8>(elements * element.bytes() as usize).unwrap();
            pattern.fill(&memory).unwrap();
            let bytes = memory.to_vec().unwrap();
            let found = bytes.chunks(element.bytes() as usize).map(|bytes| decode(element, bytes));
            assert!(found.enumerate().all(|(place, value)| value == pattern.at(place as u64)), "{element}");
        }
        // Of nothing, nothing is written.
        Pattern::new(Element::F32, 0, 1).fill(&device.alloc::<u8>(4).unwrap()).unwrap();
    }

    #[test]
    fn floats_are_normal_and_integers_are_everything() {
        for element in [
            Element::BF16,
            Element::F16,
            Element::TF32,
            Element::F32,
            Element::F64,
            Element::E4M3,
            Element::E5M2,
        ] {
            let values = Pattern::new(element, 20_000, 3).values;
            let mean = values.iter().sum::<f64>() / 20_000.0;
            let variance = values.iter().map(|value| value * value).sum::<f64>() / 20_000.0;
            assert!(mean.abs() < 0.05 && (variance - 1.0).abs() < 0.05, "{element}: {mean}, {variance}");
        }
        let values = Pattern::new(Element::I8, 20_000, 3).values;
        assert!(values.contains(&-128.0) && values.contains(&127.0));
        // The 13 bits of an f32 that tensor cores ignore, as the lowest bytes show.
        let bytes = Pattern::new(Element::TF32, 1000, 1).bytes;
        assert!(bytes.chunks(4).all(|bytes| bytes[0] == 0 && bytes[1] & 0x1f == 0));
    }

    #[test]
    fn small_floats_round_to_their_neighbours() {
        for (value, bits, read) in
            [(1.0, 0x38, 1.0), (-1.5, 0xbc, -1.5), (1.99, 0x40, 2.0), (1e-9, 0, 0.0), (3.3, 0x45, 3.25)]
        {
            assert_eq!(small(Element::E4M3, value), bits, "{value}");
            assert_eq!(decode(Element::E4M3, &[bits]), read);
        }
        assert_eq!(decode(Element::E5M2, &[small(Element::E5M2, 3.0)]), 3.0);
        assert_eq!(decode(Element::E5M2, &[0x7b]), 57344.0);
        assert_eq!(decode(Element::E4M3, &[0x01]), f64::exp2(-9.0));
    }
}
