//! What can be wrong with the operands of an asynchronous tensor instruction.

/// Why a matrix descriptor or a tensor map cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// A matrix descriptor of wgmma.
    #[error("the matrix descriptor {descriptor:#018x} of {operand} has {found}, expected {expected}")]
    Descriptor {
        /// The operand, `A` or `B`.
        operand: char,
        /// The descriptor.
        descriptor: u64,
        /// What is wrong in it.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The operands of a wgmma do not fit the instruction.
    #[error("wgmma has {found}, expected {expected}")]
    Operands {
        /// What was given.
        found: String,
        /// What the instruction takes.
        expected: String,
    },
    /// A tensor map, or what an instruction does with one.
    #[error("the tensor map has {field} {found}, expected {expected}")]
    TensorMap {
        /// The field that is wrong, by its name in PTX or in the driver.
        field: String,
        /// What is in it.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// Bytes that are no tensor map.
    #[error("these 128 bytes are no tensor map: {found}; encode one on the host, or start from zeros")]
    NoTensorMap {
        /// What is wrong with them.
        found: &'static str,
    },
}

/// A result of this module.
pub type Result<T, E = TensorError> = std::result::Result<T, E>;
