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

/// The extents of a tile: one to [`Shape::MAX_RANK`] dimensions, each at least 1, at most 2^31 elements together.
///
/// ```
/// use tilewright_ir::Shape;
/// let shape = Shape::new(&[128, 64]).expect("a small tile");
/// assert_eq!((shape.rank(), shape.elements(), shape.to_string()), (2, 8192, "128x64".to_owned()));
/// assert!(Shape::new(&[]).is_none() && Shape::new(&[4, 0]).is_none());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    rank: u8,
    extents: [u32; Shape::MAX_RANK],
}

impl Shape {
    /// The most dimensions that a tile can have.
    pub const MAX_RANK: usize = 5;

    /// The shape of these extents, outermost first; none if there are none, too many, a zero, or too many elements.
    #[must_use]
    pub fn new(extents: &[u32]) -> Option<Shape> {
        let elements = extents.iter().try_fold(1u32, |n, &extent| n.checked_mul(extent))?;
        if extents.is_empty() || extents.len() > Shape::MAX_RANK || elements == 0 || elements > 1 << 31 {
            return None;
        }
        let mut all = [1; Shape::MAX_RANK];
        all[..extents.len()].copy_from_slice(extents);
        Some(Shape { rank: u8::try_from(extents.len()).ok()?, extents: all })
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// The extents, outermost first.
    #[must_use]
    pub fn extents(&self) -> &[u32] {
        &self.extents[..self.rank()]
    }

    /// The number of elements.
    #[must_use]
    pub fn elements(&self) -> u32 {
        self.extents().iter().product()
    }

    /// The same with another extent along one axis; none if there is no such axis or the shape would not be one.
    #[must_use]
    pub fn with(&self, axis: usize, extent: u32) -> Option<Shape> {
        let mut extents = self.extents;
        *extents[..self.rank()].get_mut(axis)? = extent;
        Shape::new(&extents[..self.rank()])
    }

    /// The shape that both can be broadcast to: extents of 1 grow, and missing outer dimensions count as 1.
    ///
    /// ```
    /// use tilewright_ir::Shape;
    /// let [row, column] = [[1, 64], [128, 1]].map(|s| Shape::new(&s).expect("a shape"));
    /// assert_eq!(row.broadcast(&column), Shape::new(&[128, 64]));
    /// assert_eq!(row.broadcast(&Shape::new(&[32]).expect("a shape")), None);
    /// ```
    #[must_use]
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let at = |shape: &Shape, i: usize| {
            (i + shape.rank()).checked_sub(rank).map_or(1, |axis| shape.extents[axis])
        };
        let mut extents = [1; Shape::MAX_RANK];
        for (i, extent) in extents[..rank].iter_mut().enumerate() {
            *extent = match (at(self, i), at(other, i)) {
                (a, b) if a == b || b == 1 => a,
                (1, b) => b,
                _ => return None,
            };
        }
        Shape::new(&extents[..rank])
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, extent) in self.extents().iter().enumerate() {
            write!(f, "{}{extent}", if i > 0 { "x" } else { "" })?;
        }
        Ok(())
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
    /// Elements that a whole program holds together, at the tile level. Written `tile<128x64xf32>`.
    Tile(Element, Shape),
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

    /// The element of a scalar, vector, accumulator or tile.
    #[must_use]
    pub fn element(self) -> Option<Element> {
        match self {
            Type::Scalar(element)
            | Type::Vector(element, _)
            | Type::Accumulator(element, _)
            | Type::Tile(element, _) => Some(element),
            Type::Pointer(_) | Type::TensorMap => None,
        }
    }

    /// The number of elements that a thread holds: 1 for a scalar, 0 for what has none.
    #[must_use]
    pub fn lanes(self) -> u32 {
        match self {
            Type::Scalar(_) => 1,
            Type::Vector(_, n) | Type::Accumulator(_, n) => u32::from(n),
            Type::Pointer(_) | Type::TensorMap | Type::Tile(..) => 0,
        }
    }

    /// The shape of a tile.
    #[must_use]
    pub fn shape(self) -> Option<Shape> {
        match self {
            Type::Tile(_, shape) => Some(shape),
            _ => None,
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

    /// Bits in registers of one thread; of a tile all bits, wherever they are.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Type::Scalar(element) => element.bits(),
            Type::Vector(element, n) | Type::Accumulator(element, n) => element.bits() * u32::from(n),
            Type::Pointer(space) => space.bits(),
            Type::TensorMap => 1024,
            Type::Tile(element, shape) => element.bits().saturating_mul(shape.elements()),
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
            Type::Tile(_, shape) => Type::Tile(element, shape),
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
            Type::Tile(element, shape) => write!(f, "tile<{shape}x{element}>"),
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
            known: "f32, 4xf32, ptr<global>, tensor_map, acc<64xf32>, tile<128x64xf32> and the like"
                .to_owned(),
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
        if let Some(inner) = inside("tile<") {
            let tile = || {
                let (shape, element) = inner.rsplit_once('x')?;
                let extents: Vec<u32> = shape.split('x').map(|e| e.parse().ok()).collect::<Option<_>>()?;
                Some(Type::Tile(element.parse().ok()?, Shape::new(&extents)?))
            };
            return tile().ok_or_else(unknown);
        }
        if let Ok(element) = text.parse::<Element>() {
            return Ok(Type::Scalar(element));
        }
        vector(text).map(|(element, n)| Type::Vector(element, n)).ok_or_else(unknown)
    }
}
