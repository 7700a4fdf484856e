//! The numbers of cuBLASLt: one table for each enumeration of its headers that is used here.
//!
//! Sources: `cublasLt.h`, `cublas_api.h` and `library_types.h` of cuBLAS 13.8; the values are part of the library's binary interface and
//! the same since 12.0, but for the scaling modes, which came with 12.8.

use tilewright_hardware::Element;

/// `cudaDataType_t` of an element; none if cuBLASLt does not multiply it.
pub(crate) fn data_type(element: Element) -> Option<u32> {
    Some(match element {
        Element::F32 | Element::TF32 => 0,
        Element::F64 => 1,
        Element::F16 => 2,
        Element::I8 => 3,
        Element::I32 => 10,
        Element::BF16 => 14,
        Element::E4M3 => 28,
        Element::E5M2 => 29,
        _ => return None,
    })
}

/// How sums are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compute {
    /// In f32.
    F32,
    /// In f32, the factors rounded to tf32.
    Tf32,
    /// In f64.
    F64,
    /// In i32, results too.
    I32,
}

impl Compute {
    /// `cublasComputeType_t`.
    pub(crate) fn code(self) -> u32 {
        match self {
            Compute::F32 => 68,
            Compute::F64 => 70,
            Compute::I32 => 72,
            Compute::Tf32 => 77,
        }
    }

    /// The type of alpha and beta.
    pub(crate) fn scale(self) -> Element {
        match self {
            Compute::F32 | Compute::Tf32 => Element::F32,
            Compute::F64 => Element::F64,
            Compute::I32 => Element::I32,
        }
    }

    /// A number in the type of alpha and beta.
    pub(crate) fn number(self, value: f64) -> [u8; 8] {
        let mut bytes = [0; 8];
        #[allow(clippy::cast_possible_truncation, reason = "rounded, as cuBLAS would take it")]
        match self {
            Compute::F32 | Compute::Tf32 => bytes[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
            Compute::F64 => bytes.copy_from_slice(&value.to_ne_bytes()),
            Compute::I32 => bytes[..4].copy_from_slice(&(value as i32).to_ne_bytes()),
        }
        bytes
    }
}

/// What is contiguous in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Columns, as in BLAS.
    #[default]
    Columns,
    /// Rows.
    Rows,
}

impl Order {
    /// `cublasLtOrder_t`.
    pub(crate) fn code(self) -> i32 {
        match self {
            Order::Columns => 0,
            Order::Rows => 1,
        }
    }
}

/// What is applied to the sums, after the bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// max(x, 0)
    Relu,
    /// GELU by its approximation with tanh.
    Gelu,
}

impl Activation {
    /// `cublasLtEpilogue_t`: 1 alone means the default, 4 is the bit of the bias.
    pub(crate) fn code(self, bias: bool) -> u32 {
        let activation = match self {
            Activation::None => 0,
            Activation::Relu => 2,
            Activation::Gelu => 32,
        };
        match activation | if bias { 4 } else { 0 } {
            0 => 1,
            bits => bits,
        }
    }
}

/// What the factors of an 8-bit matrix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scaling {
    /// One f32 for the matrix.
    Tensor,
    /// An f32 for each row of op(A) or column of op(B).
    OuterVector,
}

impl Scaling {
    /// `cublasLtMatmulMatrixScale_t`.
    pub(crate) fn code(self) -> i32 {
        match self {
            Scaling::Tensor => 0,
            Scaling::OuterVector => 3,
        }
    }
}

/// `cublasLtMatrixLayoutAttribute_t`.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum LayoutAttribute {
    Order = 1,
    BatchCount = 5,
    BatchStride = 6,
}

/// `cublasLtMatmulDescAttributes_t`.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum MatmulAttribute {
    TransposeA = 3,
    TransposeB = 4,
    Epilogue = 7,
    BiasPointer = 8,
    ScalePointerA = 17,
    ScalePointerB = 18,
    ScalePointerD = 20,
    FastAccumulation = 25,
    BiasType = 26,
    ScaleModeA = 31,
    ScaleModeB = 32,
}

/// `cublasLtMatmulPreferenceAttributes_t`.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
pub(crate) enum PreferenceAttribute {
    Workspace = 1,
    AlignmentA = 5,
    AlignmentB = 6,
    AlignmentC = 7,
    AlignmentD = 8,
}

/// `cublasLtMatmulAlgoConfigAttributes_t` that tell algorithms apart, with words for them. The number of splits is an `int32_t`, all others
/// are of 4 bytes too, but for the last two, which have 2.
pub(crate) const ALGORITHM_WORDS: [(u32, &str, usize); 8] = [
    (0, "algo", 4),
    (1, "tile", 4),
    (6, "stages", 4),
    (2, "split", 4),
    (3, "reduction", 4),
    (4, "swizzle", 4),
    (7, "inner", 2),
    (8, "cluster", 2),
];

/// `cublasStatus_t`: the three that decide what happens next. Names of all come from the library.
pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 7;
pub(crate) const NOT_SUPPORTED: u32 = 15;

/// `cublasOperation_t`.
pub(crate) fn operation(transpose: bool) -> i32 {
    i32::from(transpose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epilogues_are_sets_of_bits() {
        use Activation::{Gelu, None, Relu};
        // CUBLASLT_EPILOGUE_DEFAULT, _RELU, _GELU, _BIAS, _RELU_BIAS, _GELU_BIAS
        let plain = [None, Relu, Gelu].map(|activation| activation.code(false));
        let with_bias = [None, Relu, Gelu].map(|activation| activation.code(true));
        assert_eq!((plain, with_bias), ([1, 2, 32], [4, 6, 36]));
    }

    #[test]
    fn numbers_have_the_type_of_the_sums() {
        assert_eq!(Compute::F32.number(1.0)[..4], 1.0f32.to_ne_bytes());
        assert_eq!(Compute::Tf32.number(-0.5)[..4], (-0.5f32).to_ne_bytes());
        assert_eq!(Compute::F64.number(0.1), 0.1f64.to_ne_bytes());
        assert_eq!(Compute::I32.number(-3.0)[..4], (-3i32).to_ne_bytes());
    }

    #[test]
    fn tf32_is_f32_in_memory_and_unknown_types_are_none() {
        assert_eq!(data_type(Element::TF32), data_type(Element::F32));
        assert_eq!(data_type(Element::Bool), Option::None);
    }
}
