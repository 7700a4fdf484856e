//! The fields of a tensor map and the numbers that the driver and PTX give their values.

use tilewright_hardware::{OobFill, SwizzleMode};
use tilewright_ptx::{Modifier, Type};

use super::super::error::Result;
use super::wrong;

/// The type of the elements, numbered as by the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of the driver")]
pub enum DataType {
    #[default]
    U8 = 0,
    U16 = 1,
    U32 = 2,
    S32 = 3,
    U64 = 4,
    S64 = 5,
    F16 = 6,
    F32 = 7,
    F64 = 8,
    Bf16 = 9,
    F32Ftz = 10,
    Tf32 = 11,
    Tf32Ftz = 12,
}

impl DataType {
    /// In the order of the driver's numbers.
    pub const ALL: [DataType; 13] = [
        DataType::U8,
        DataType::U16,
        DataType::U32,
        DataType::S32,
        DataType::U64,
        DataType::S64,
        DataType::F16,
        DataType::F32,
        DataType::F64,
        DataType::Bf16,
        DataType::F32Ftz,
        DataType::Tf32,
        DataType::Tf32Ftz,
    ];

    /// The type with a number of the driver.
    pub fn from_driver(code: u32) -> Result<DataType> {
        DataType::ALL.get(code as usize).copied().ok_or_else(|| wrong("data type", code, "0 to 12"))
    }

    /// The type that holds elements of a type of PTX: that type, or an integer of its size.
    pub fn for_element(element: Type) -> Option<DataType> {
        let same = DataType::ALL.iter().copied().find(|data_type| data_type.element_type() == element);
        same.or(match element.bits() {
            8 => Some(DataType::U8),
            16 => Some(DataType::U16),
            32 => Some(DataType::U32),
            64 => Some(DataType::U64),
            _ => None,
        })
    }

    /// The type with a number of `tensormap.replace.elemtype`, which differ from the driver's.
    pub fn from_ptx(code: u64) -> Result<DataType> {
        let types = match code {
            0..=7 => DataType::ALL.get(usize::try_from(code).unwrap_or(usize::MAX)).copied(),
            8 => Some(DataType::F32Ftz),
            9 => Some(DataType::F64),
            10 => Some(DataType::Bf16),
            11 => Some(DataType::Tf32),
            12 => Some(DataType::Tf32Ftz),
            _ => None,
        };
        types.ok_or_else(|| wrong("elemtype", code, "0 to 12; later types pack less than a byte"))
    }

    /// Bytes of an element.
    pub const fn bytes(self) -> u32 {
        match self {
            DataType::U8 => 1,
            DataType::U16 | DataType::F16 | DataType::Bf16 => 2,
            DataType::U64 | DataType::S64 | DataType::F64 => 8,
            _ => 4,
        }
    }

    /// The type that PTX calculates with, as in a reduction.
    pub const fn element_type(self) -> Type {
        match self {
            DataType::U8 => Type::U8,
            DataType::U16 => Type::U16,
            DataType::U32 => Type::U32,
            DataType::S32 => Type::S32,
            DataType::U64 => Type::U64,
            DataType::S64 => Type::S64,
            DataType::F16 => Type::F16,
            DataType::F32 | DataType::F32Ftz => Type::F32,
            DataType::F64 => Type::F64,
            DataType::Bf16 => Type::Bf16,
            DataType::Tf32 | DataType::Tf32Ftz => Type::Tf32,
        }
    }

    pub(super) const fn is_float(self) -> bool {
        self as u32 >= DataType::F16 as u32
    }
}

/// A field that `tensormap.replace` can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of PTX")]
pub enum Field {
    GlobalAddress,
    Rank,
    BoxDim,
    GlobalDim,
    GlobalStride,
    ElementStride,
    Elemtype,
    InterleaveLayout,
    SwizzleMode,
    FillMode,
}

impl Field {
    /// The field that a modifier of `tensormap.replace` names.
    pub fn of(modifier: Modifier) -> Option<Field> {
        Some(match modifier {
            Modifier::GlobalAddress => Field::GlobalAddress,
            Modifier::Rank => Field::Rank,
            Modifier::BoxDim => Field::BoxDim,
            Modifier::GlobalDim => Field::GlobalDim,
            Modifier::GlobalStride => Field::GlobalStride,
            Modifier::ElementStride => Field::ElementStride,
            Modifier::Elemtype => Field::Elemtype,
            Modifier::InterleaveLayout => Field::InterleaveLayout,
            Modifier::SwizzleMode => Field::SwizzleMode,
            Modifier::FillMode => Field::FillMode,
            _ => return None,
        })
    }

    /// Whether the instruction has an ordinal.
    pub const fn has_ordinal(self) -> bool {
        matches!(self, Field::BoxDim | Field::GlobalDim | Field::GlobalStride | Field::ElementStride)
    }
}

/// The swizzle with a number of the driver, which PTX shares.
pub(super) fn swizzle(code: u64) -> Result<SwizzleMode> {
    let modes = SwizzleMode::ALL.into_iter();
    modes
        .clone()
        .find(|mode| u64::from(mode.tma_code()) == code)
        .ok_or_else(|| wrong("swizzle mode", code, "0 to 3: none, 32, 64 or 128 bytes"))
}

/// The fill with a number of the driver, which PTX shares.
pub(super) fn fill(code: u64) -> Result<OobFill> {
    let fills = [OobFill::Zeros, OobFill::Nan];
    let found = fills.into_iter().find(|fill| u64::from(fill.code()) == code);
    found.ok_or_else(|| wrong("fill mode", code, "0 or 1: zeros or NaN"))
}
