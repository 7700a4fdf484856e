//! Strides: integers, or integers times a basis element (`3@1`), for layouts whose codomain is a coordinate.

use std::fmt;

use crate::error::{Result, argument, overflow};
use crate::tree::{Tree, from_scalars};

/// How deep a basis path may be.
pub(crate) const MAX_BASIS_DEPTH: usize = 6;

/// How many modes a coordinate may have at each level.
pub(crate) const MAX_BASIS_MODE: u8 = 64;

/// A path into a nested coordinate, outermost mode first; the empty path stands for plain integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Basis {
    path: [u8; MAX_BASIS_DEPTH],
    depth: u8,
}

impl Basis {
    /// The basis of plain integers.
    pub const NONE: Basis = Basis { path: [0; MAX_BASIS_DEPTH], depth: 0 };

    /// The basis element of the coordinate at `path`, outermost mode first.
    pub fn new(path: &[usize]) -> Result<Basis> {
        let mut basis = Basis::NONE;
        for &mode in path {
            basis = basis.child(mode)?;
        }
        Ok(basis)
    }

    /// The basis element one level further in.
    pub(crate) fn child(mut self, mode: usize) -> Result<Basis> {
        let slot = usize::from(self.depth);
        if slot == MAX_BASIS_DEPTH {
            return Err(argument("basis", format!("a path has at most {MAX_BASIS_DEPTH} levels")));
        }
        self.path[slot] = u8::try_from(mode)
            .ok()
            .filter(|&mode| mode < MAX_BASIS_MODE)
            .ok_or_else(|| argument("basis", format!("mode {mode} is not below {MAX_BASIS_MODE}")))?;
        self.depth += 1;
        Ok(self)
    }

    /// The path, outermost mode first.
    pub fn path(&self) -> &[u8] {
        &self.path[..usize::from(self.depth)]
    }

    /// Whether this is the basis of plain integers.
    pub fn is_none(&self) -> bool {
        self.depth == 0
    }
}

impl fmt::Debug for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.path()).finish()
    }
}

/// An integer stride, or an integer times a basis element.
///
/// A zero stride has no basis: `0@1` and `0` are the same value.
///
/// ```
/// use tilewright_layout::Stride;
/// assert_eq!(Stride::from(4).to_string(), "4");
/// // Mode 4, then its mode 1, as CuTe writes it.
/// assert_eq!(Stride::basis(7, &[4, 1])?.to_string(), "7@1@4");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stride {
    value: i64,
    basis: Basis,
}

impl Stride {
    /// The stride 0.
    pub const ZERO: Stride = Stride { value: 0, basis: Basis::NONE };

    /// `value` steps along the coordinate at `path`, outermost mode first.
    pub fn basis(value: i64, path: &[usize]) -> Result<Stride> {
        Ok(Stride::along(value, Basis::new(path)?))
    }

    pub(crate) fn along(value: i64, basis: Basis) -> Stride {
        if value == 0 { Stride::ZERO } else { Stride { value, basis } }
    }

    /// The integer factor.
    pub fn value(&self) -> i64 {
        self.value
    }

    /// Which coordinate the stride walks along.
    pub fn along_basis(&self) -> Basis {
        self.basis
    }

    pub(crate) fn checked_mul(self, factor: i64) -> Result<Stride> {
        let value =
            self.value.checked_mul(factor).ok_or_else(|| overflow(format!("the stride {factor}*{self}")))?;
        Ok(Stride::along(value, self.basis))
    }

    /// The sum, where both walk along the same coordinate.
    pub(crate) fn checked_add(self, other: Stride) -> Result<Option<Stride>> {
        if self.value == 0 || other.value == 0 {
            return Ok(Some(if self.value == 0 { other } else { self }));
        }
        if self.basis != other.basis {
            return Ok(None);
        }
        let value = self
            .value
            .checked_add(other.value)
            .ok_or_else(|| overflow(format!("the stride {self}+{other}")))?;
        Ok(Some(Stride::along(value, self.basis)))
    }
}

impl From<i32> for Stride {
    fn from(value: i32) -> Self {
        Stride::along(value.into(), Basis::NONE)
    }
}

impl From<i64> for Stride {
    fn from(value: i64) -> Self {
        Stride::along(value, Basis::NONE)
    }
}

impl From<u32> for Stride {
    fn from(value: u32) -> Self {
        Stride::along(value.into(), Basis::NONE)
    }
}

impl fmt::Display for Stride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)?;
        self.basis.path().iter().rev().try_for_each(|mode| write!(f, "@{mode}"))
    }
}

/// A nested tuple of strides.
pub type StrideTuple = Tree<Stride>;

from_scalars!(Stride: Stride, i32, i64, u32);

impl From<Tree<i64>> for StrideTuple {
    fn from(tuple: Tree<i64>) -> Self {
        tuple.map(&mut |&value| value.into())
    }
}
