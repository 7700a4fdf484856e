//! How values lie in registers.
//!
//! There are four classes of registers, by size alone: PTX lets an instruction of any type work on untyped registers of its
//! size. A value is a list of [`Word`]s of one [`Width`]:
//!
//! * scalars of up to 16 bits have one 16-bit word. Of an 8-bit integer only the low byte means something; ops for which the
//!   upper byte matters [normalise](crate::emit::Emitter::normal) it first.
//! * vectors of elements below 32 bits are packed, low element first, into 32-bit words; into one 16-bit word if they fit;
//! * vectors of 32-bit and 64-bit elements have one word an element;
//! * a truth value is a predicate, a vector of them one predicate an element;
//! * pointers are 32 or 64 bits wide by their space; a tensor map is the generic address of it.
//!
//! A word that is known at compile time is an immediate and takes no register until an instruction insists on one.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::Type;
use tilewright_ptx::{self as ptx, Modifier, Symbol};

/// The size class of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Width {
    Pred,
    B8,
    B16,
    B32,
    B64,
}

impl Width {
    pub(crate) const ALL: [Width; 5] = [Width::Pred, Width::B8, Width::B16, Width::B32, Width::B64];

    /// What names of registers begin with.
    pub(crate) fn prefix(self) -> &'static str {
        match self {
            Width::Pred => "%p",
            Width::B8 => "%b",
            Width::B16 => "%h",
            Width::B32 => "%r",
            Width::B64 => "%q",
        }
    }

    /// The untyped PTX type.
    pub(crate) fn bits_type(self) -> ptx::Type {
        match self {
            Width::Pred => ptx::Type::Pred,
            Width::B8 => ptx::Type::B8,
            Width::B16 => ptx::Type::B16,
            Width::B32 => ptx::Type::B32,
            Width::B64 => ptx::Type::B64,
        }
    }

    /// The untyped PTX type as a modifier.
    pub(crate) fn modifier(self) -> Modifier {
        Modifier::Type(self.bits_type())
    }

    /// The class for registers of a PTX type.
    pub(crate) fn of(ty: ptx::Type) -> Width {
        match ty.bits() {
            1 => Width::Pred,
            2..=16 => Width::B16,
            17..=32 => Width::B32,
            _ => Width::B64,
        }
    }
}

/// One register, or bits known at compile time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Reg(Symbol),
    Imm(u64),
}

/// The words of a value.
pub(crate) type Words = SmallVec<[Word; 4]>;

/// How many words of which width hold a type. An accumulator counts as its vector.
pub(crate) fn shape(ty: Type) -> (Width, usize) {
    match ty {
        Type::Scalar(element) => (element_width(element), 1),
        Type::Vector(element, lanes) | Type::Accumulator(element, lanes) => {
            let lanes = usize::from(lanes);
            let bits = lanes * element.bits() as usize;
            match element.bits() {
                1 => (Width::Pred, lanes),
                32 => (Width::B32, lanes),
                64 => (Width::B64, lanes),
                _ if bits <= 16 => (Width::B16, 1),
                _ => (Width::B32, bits.div_ceil(32)),
            }
        }
        Type::Pointer(space) if space.bits() == 32 => (Width::B32, 1),
        Type::Pointer(_) | Type::TensorMap => (Width::B64, 1),
        // Lowered before; whoever meets one is refused by its op.
        Type::Tile(..) => (Width::B32, 0),
    }
}

/// The register of one element that stands alone.
pub(crate) fn element_width(element: Element) -> Width {
    match element.bits() {
        1 => Width::Pred,
        2..=16 => Width::B16,
        17..=32 => Width::B32,
        _ => Width::B64,
    }
}

/// The type that arithmetic on an element has in PTX. Bytes compute in 16 bits; what only converts is untyped.
pub(crate) fn arithmetic(element: Element) -> ptx::Type {
    use ptx::Type as T;
    match element {
        Element::Bool => T::Pred,
        Element::I8 | Element::I16 => T::S16,
        Element::U8 | Element::U16 => T::U16,
        Element::I32 => T::S32,
        Element::U32 => T::U32,
        Element::I64 => T::S64,
        Element::U64 => T::U64,
        Element::F16 => T::F16,
        Element::BF16 => T::Bf16,
        Element::F32 | Element::TF32 => T::F32,
        Element::F64 => T::F64,
        Element::E4M3 | Element::E5M2 | Element::E2M1 | Element::UE8M0 => T::B16,
    }
}

/// The type of an element as `cvt` names it: like [`arithmetic`], but bytes are bytes.
pub(crate) fn exact(element: Element) -> ptx::Type {
    match element {
        Element::I8 => ptx::Type::S8,
        Element::U8 => ptx::Type::U8,
        _ => arithmetic(element),
    }
}

/// The type of two 16-bit floats in one register.
pub(crate) fn pair(element: Element) -> Option<ptx::Type> {
    match element {
        Element::F16 => Some(ptx::Type::F16x2),
        Element::BF16 => Some(ptx::Type::Bf16x2),
        _ => None,
    }
}
