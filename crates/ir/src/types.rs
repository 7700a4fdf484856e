//! Types of IR values. All are small and `Copy`; none needs an interner.

use std::fmt;

use tilewright_hardware::Element;

use crate::IrError;

/// An address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Device memory; 64-bit addresses.
    Global,
    /// This block's shared memory; 32-bit addresses.
    Shared,
    /// Shared memory of any block of the cluster; 32-bit addresses.
    Cluster,
    /// Memory of one thread; 64-bit addresses.
    Local,
    /// Read-only constant memory; 64-bit addresses.
    Constant,
    /// Any of the above, told apart at run time; 64-bit addresses.
    Generic,
}

impl Space {
    /// All spaces.
    pub const ALL: [Space; 6] =
        [Space::Global, Space::Shared, Space::Cluster, Space::Local, Space::Constant, Space::Generic];

    /// The name in the text form.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Space::Global => "global",
            Space::Shared => "shared",
            Space::Cluster => "cluster",
            Space::Local => "local",
            Space::Constant => "constant",
            Space::Generic => "generic",
        }
    }

    /// Width of an address in bits.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Space::Shared | Space::Cluster => 32,
            Space::Global | Space::Local | Space::Constant | Space::Generic => 64,
        }
    }
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Type {
    /// One element.
    Scalar(Element),
    /// Several elements of one thread, packed into registers. Written `4xf32`.
    Vector(Element, u16),
    /// An address. It does not know what it points to: loads and stores say that.
    Pointer(Space),
    /// A kernel parameter that describes a tensor to the copy engine (128 bytes).
    TensorMap,
    /// The registers in which a warpgroup's tensor core accumulates, as a place and not as a value: a multiplication changes
    /// them while the program goes on. Written `acc<64xf32>`, counting elements of one thread.
    Accumulator(Element, u16),
}

impl Type {
    /// `bool`.
    pub const BOOL: Type = Type::Scalar(Element::Bool);
    /// `u32`.
    pub const U32: Type = Type::Scalar(Element::U32);
    /// `i32`.
    pub const I32: Type = Type::Scalar(Element::I32);
    /// `u64`.
    pub const U64: Type = Type::Scalar(Element::U64);
    /// `i64`.
    pub const I64: Type = Type::Scalar(Element::I64);
    /// `f32`.
    pub const F32: Type = Type::Scalar(Element::F32);

    /// The element of a scalar, vector or accumulator.
    #[must_use]
    pub fn element(self) -> Option<Element> {
        match self {
            Type::Scalar(element) | Type::Vector(element, _) | Type::Accumulator(element, _) => Some(element),
            Type::Pointer(_) | Type::TensorMap => None,
        }
    }

    /// The number of elements: 1 for a scalar, 0 for what has none.
    #[must_use]
    pub fn lanes(self) -> u32 {
        match self {
            Type::Scalar(_) => 1,
            Type::Vector(_, n) | Type::Accumulator(_, n) => u32::from(n),
            Type::Pointer(_) | Type::TensorMap => 0,
        }
    }

    /// The space of a pointer.
    #[must_use]
    pub fn space(self) -> Option<Space> {
        match self {
            Type::Pointer(space) => Some(space),
            _ => None,
        }
    }

    /// Bits in registers.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Type::Scalar(element) => element.bits(),
            Type::Vector(element, n) | Type::Accumulator(element, n) => element.bits() * u32::from(n),
            Type::Pointer(space) => space.bits(),
            Type::TensorMap => 1024,
        }
    }

    /// Bytes in memory, each element rounded up to whole bytes; sub-byte elements are packed.
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// The same type with another element.
    #[must_use]
    pub fn with_element(self, element: Element) -> Type {
        match self {
            Type::Vector(_, n) => Type::Vector(element, n),
            Type::Accumulator(_, n) => Type::Accumulator(element, n),
            _ => Type::Scalar(element),
        }
    }
}

impl From<Element> for Type {
    fn from(element: Element) -> Type {
        Type::Scalar(element)
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Scalar(element) => write!(f, "{element}"),
            Type::Vector(element, n) => write!(f, "{n}x{element}"),
            Type::Pointer(space) => write!(f, "ptr<{space}>"),
            Type::TensorMap => f.write_str("tensor_map"),
            Type::Accumulator(element, n) => write!(f, "acc<{n}x{element}>"),
        }
    }
}

impl std::str::FromStr for Space {
    type Err = IrError;

    fn from_str(text: &str) -> Result<Space, IrError> {
        Space::ALL.into_iter().find(|space| space.name() == text).ok_or_else(|| IrError::Unknown {
            what: "space",
            found: text.to_owned(),
            known: Space::ALL.map(Space::name).join(", "),
        })
    }
}

impl std::str::FromStr for Type {
    type Err = IrError;

    fn from_str(text: &str) -> Result<Type, IrError> {
        let unknown = || IrError::Unknown {
            what: "type",
            found: text.to_owned(),
            known: "f32, 4xf32, ptr<global>, tensor_map, acc<64xf32> and the like".to_owned(),
        };
        let inside = |prefix: &str| text.strip_prefix(prefix).and_then(|rest| rest.strip_suffix('>'));
        let vector = |text: &str| {
            let (count, element) = text.split_once('x')?;
            Some((element.parse::<Element>().ok()?, count.parse::<u16>().ok()?))
        };
        if text == "tensor_map" {
            return Ok(Type::TensorMap);
        }
        if let Some(space) = inside("ptr<") {
            return Ok(Type::Pointer(space.parse()?));
        }
        if let Some(inner) = inside("acc<") {
            return vector(inner).map(|(element, n)| Type::Accumulator(element, n)).ok_or_else(unknown);
        }
        if let Ok(element) = text.parse::<Element>() {
            return Ok(Type::Scalar(element));
        }
        vector(text).map(|(element, n)| Type::Vector(element, n)).ok_or_else(unknown)
    }
}
