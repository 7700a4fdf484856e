//! [`Element`]: the number types that the hardware computes with.
//!
//! Signedness and the format of a float are part of the type. What is known of a type is one row of one table; every
//! query reads that row. The type says nothing about which instruction takes it: that is in the tables of atoms.

use std::fmt;
use std::str::FromStr;

use crate::error::HardwareError;

/// A number type of the hardware.
///
/// ```
/// use tilewright_hardware::Element;
/// let e: Element = "bf16".parse()?;
/// assert_eq!((e, e.bits(), e.mantissa_bits()), (Element::BF16, 16, Some(7)));
/// assert_eq!(Element::E2M1.bytes(), 1);
/// assert!("bf17".parse::<Element>().is_err());
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// A truth value: one bit of information, one byte in memory.
    Bool,
    /// 8-bit two's complement.
    I8,
    /// 16-bit two's complement.
    I16,
    /// 32-bit two's complement.
    I32,
    /// 64-bit two's complement.
    I64,
    /// 8-bit unsigned.
    U8,
    /// 16-bit unsigned.
    U16,
    /// 32-bit unsigned.
    U32,
    /// 64-bit unsigned.
    U64,
    /// IEEE half precision.
    F16,
    /// The upper half of an f32.
    BF16,
    /// An f32 of which tensor cores read the upper 19 bits; 32 bits in memory.
    TF32,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
    /// 8-bit float, 4 exponent bits, finite range up to 448.
    E4M3,
    /// 8-bit float, 5 exponent bits.
    E5M2,
    /// 4-bit float, two to a byte.
    E2M1,
    /// A power of two in 8 bits: the scale factor of block-scaled formats.
    UE8M0,
}

enum Kind {
    Bool,
    Signed,
    Unsigned,
    Float { exponent: u32, mantissa: u32 },
}

struct Row {
    element: Element,
    name: &'static str,
    bits: u32,
    kind: Kind,
}

const fn row(element: Element, name: &'static str, bits: u32, kind: Kind) -> Row {
    Row { element, name, bits, kind }
}

const fn float(exponent: u32, mantissa: u32) -> Kind {
    Kind::Float { exponent, mantissa }
}

/// In the order of the enum: the discriminant is the index.
const TABLE: [Row; 18] = [
    row(Element::Bool, "bool", 1, Kind::Bool),
    row(Element::I8, "i8", 8, Kind::Signed),
    row(Element::I16, "i16", 16, Kind::Signed),
    row(Element::I32, "i32", 32, Kind::Signed),
    row(Element::I64, "i64", 64, Kind::Signed),
    row(Element::U8, "u8", 8, Kind::Unsigned),
    row(Element::U16, "u16", 16, Kind::Unsigned),
    row(Element::U32, "u32", 32, Kind::Unsigned),
    row(Element::U64, "u64", 64, Kind::Unsigned),
    row(Element::F16, "f16", 16, float(5, 10)),
    row(Element::BF16, "bf16", 16, float(8, 7)),
    row(Element::TF32, "tf32", 32, float(8, 10)),
    row(Element::F32, "f32", 32, float(8, 23)),
    row(Element::F64, "f64", 64, float(11, 52)),
    row(Element::E4M3, "e4m3", 8, float(4, 3)),
    row(Element::E5M2, "e5m2", 8, float(5, 2)),
    row(Element::E2M1, "e2m1", 4, float(2, 1)),
    row(Element::UE8M0, "ue8m0", 8, float(8, 0)),
];

impl Element {
    /// Every element type, in the order of the enum.
    pub const ALL: [Element; 18] = {
        let mut all = [Element::Bool; TABLE.len()];
        let mut i = 0;
        while i < TABLE.len() {
            // The queries index the table by discriminant; a row in the wrong place must not compile.
            assert!(TABLE[i].element as usize == i);
            all[i] = TABLE[i].element;
            i += 1;
        }
        all
    };

    const fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Bits of one element where elements are packed: 1 for a truth value, 4 for e2m1, 32 for tf32.
    pub const fn bits(self) -> u32 {
        self.row().bits
    }

    /// Bytes of one element that stands alone, rounded up.
    pub const fn bytes(self) -> u32 {
        self.row().bits.div_ceil(8)
    }

    /// Whether this is an integer; a truth value is none.
    pub const fn is_int(self) -> bool {
        matches!(self.row().kind, Kind::Signed | Kind::Unsigned)
    }

    /// Whether negative numbers exist: signed integers, and all floats but ue8m0.
    pub const fn is_signed(self) -> bool {
        match self.row().kind {
            Kind::Signed => true,
            Kind::Float { exponent, mantissa } => 1 + exponent + mantissa <= self.row().bits,
            Kind::Bool | Kind::Unsigned => false,
        }
    }

    /// Whether this is a floating-point type.
    pub const fn is_float(self) -> bool {
        matches!(self.row().kind, Kind::Float { .. })
    }

    /// Whether this is the truth value.
    pub const fn is_bool(self) -> bool {
        matches!(self.row().kind, Kind::Bool)
    }

    /// The name in text: `bool`, `i8`, `bf16`, `e4m3`.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// Stored mantissa bits of a float (the leading one is not stored).
    pub const fn mantissa_bits(self) -> Option<u32> {
        match self.row().kind {
            Kind::Float { mantissa, .. } => Some(mantissa),
            _ => None,
        }
    }

    /// Exponent bits of a float.
    pub const fn exponent_bits(self) -> Option<u32> {
        match self.row().kind {
            Kind::Float { exponent, .. } => Some(exponent),
            _ => None,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Element {
    type Err = HardwareError;

    fn from_str(text: &str) -> Result<Element, HardwareError> {
        let found = TABLE.iter().find(|row| row.name == text);
        found.map(|row| row.element).ok_or_else(|| HardwareError::UnknownElement { found: text.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for element in Element::ALL {
            assert_eq!(element.to_string().parse::<Element>().unwrap(), element);
        }
        let message = "F16".parse::<Element>().unwrap_err().to_string();
        assert!(
            message.contains("`F16`") && message.contains("bf16") && message.contains("ue8m0"),
            "{message}"
        );
    }

    #[test]
    fn floats_fill_their_bits() {
        for element in Element::ALL {
            let (Some(exponent), Some(mantissa)) = (element.exponent_bits(), element.mantissa_bits()) else {
                assert!(!element.is_float());
                continue;
            };
            // tf32 leaves the low 13 bits of its word unused.
            let used = if element == Element::TF32 { 19 } else { element.bits() };
            assert_eq!(u32::from(element.is_signed()) + exponent + mantissa, used, "{element}");
        }
    }

    #[test]
    fn kinds_are_disjoint() {
        for element in Element::ALL {
            let kinds = [element.is_int(), element.is_float(), element.is_bool()];
            assert_eq!(kinds.into_iter().filter(|is| *is).count(), 1, "{element}");
            let signed_name =
                element.name().starts_with('i') || (element.is_float() && element != Element::UE8M0);
            assert_eq!(element.is_signed(), signed_name, "{element}");
        }
        assert_eq!([Element::Bool, Element::E2M1, Element::TF32].map(Element::bytes), [1, 1, 4]);
        assert_eq!([Element::Bool, Element::E2M1, Element::TF32].map(Element::bits), [1, 4, 32]);
    }
}
