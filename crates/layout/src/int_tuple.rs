//! Integer tuples: shapes and coordinates, and the arithmetic on them.

use std::fmt;

use crate::error::{LayoutError, Result, argument, overflow};
use crate::tree::{Tree, from_scalars};

/// A nested tuple of integers, for example a shape `((2,3),4)`.
pub type IntTuple = Tree<i64>;

/// One leaf of a slicing coordinate: a position, or all of the mode (`_`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Index {
    /// This position.
    At(i64),
    /// The whole mode, written `_`.
    All,
}

/// A nested coordinate whose leaves are positions or underscores.
///
/// ```
/// use tilewright_layout::Coord;
/// let c: Coord = "(_,(1,0))".parse()?;
/// assert_eq!(c.to_string(), "(_,(1,0))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub type Coord = Tree<Index>;

impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Index::At(value) => value.fmt(f),
            Index::All => f.write_str("_"),
        }
    }
}

impl From<i32> for Index {
    fn from(value: i32) -> Self {
        Index::At(value.into())
    }
}

impl From<i64> for Index {
    fn from(value: i64) -> Self {
        Index::At(value)
    }
}

impl From<u32> for Index {
    fn from(value: u32) -> Self {
        Index::At(value.into())
    }
}

from_scalars!(Index: Index, i32, i64, u32);

impl From<IntTuple> for Coord {
    fn from(tuple: IntTuple) -> Self {
        tuple.map(&mut |&value| Index::At(value))
    }
}

impl From<&IntTuple> for Coord {
    fn from(tuple: &IntTuple) -> Self {
        tuple.map(&mut |&value| Index::At(value))
    }
}

impl IntTuple {
    /// Product of all leaves; 1 for the empty tuple.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// assert_eq!(IntTuple::from(((2, 3), 4)).product()?, 24);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn product(&self) -> Result<i64> {
        let mut product = 1i64;
        self.visit(&mut |&leaf| {
            product = product.checked_mul(leaf).ok_or_else(|| overflow(format!("the product of {self}")))?;
            Ok(())
        })?;
        Ok(product)
    }

    /// The tuple of the products of the top-level modes.
    pub fn product_each(&self) -> Result<IntTuple> {
        Ok(Tree::Tuple(
            self.modes().iter().map(|mode| mode.product().map(Tree::Leaf)).collect::<Result<_>>()?,
        ))
    }

    /// Sum of the products of corresponding leaves.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// let (a, b) = (IntTuple::from((1, 2)), IntTuple::from((3, 2)));
    /// assert_eq!(a.inner_product(&b)?, 7);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn inner_product(&self, other: &IntTuple) -> Result<i64> {
        let pairs = self.zip(other).ok_or_else(|| {
            argument("inner_product", format!("{self} and {other} are not congruent; nest both alike"))
        })?;
        let mut sum = 0i64;
        pairs.visit(&mut |(a, b)| {
            sum = a
                .checked_mul(*b)
                .and_then(|term| sum.checked_add(term))
                .ok_or_else(|| overflow(format!("the inner product of {self} and {other}")))?;
            Ok::<(), LayoutError>(())
        })?;
        Ok(sum)
    }

    /// Exclusive prefix products in the same nesting: the strides of a compact column-major layout.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// assert_eq!(IntTuple::from(((2, 3), 4)).prefix_product()?.to_string(), "((1,2),6)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn prefix_product(&self) -> Result<IntTuple> {
        self.prefix_product_from(1)
    }

    /// [`IntTuple::prefix_product`] starting at `first` instead of 1.
    pub fn prefix_product_from(&self, first: i64) -> Result<IntTuple> {
        let mut current = first;
        self.try_graft(&mut |&extent| {
            let stride = current;
            current = current
                .checked_mul(extent)
                .ok_or_else(|| overflow(format!("the prefix product of {self}")))?;
            Ok(Tree::Leaf(stride))
        })
    }

    /// Divides a shape by `divisor` from the left, each mode taking its share and passing on the rest.
    ///
    /// Every step must divide exactly, one way or the other.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// assert_eq!(IntTuple::from(((3, 4), 6)).shape_div(36)?.to_string(), "((1,1),2)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn shape_div(&self, divisor: i64) -> Result<IntTuple> {
        self.divide("shape_div", divisor, true)
    }

    /// [`IntTuple::shape_div`] that rounds up instead of refusing.
    pub fn ceil_div(&self, divisor: i64) -> Result<IntTuple> {
        self.divide("ceil_div", divisor, false)
    }

    fn divide(&self, op: &'static str, divisor: i64, exact: bool) -> Result<IntTuple> {
        if divisor < 1 {
            return Err(argument(op, format!("the divisor is {divisor}, expected at least 1")));
        }
        let mut rest = divisor;
        self.try_graft(&mut |&extent| {
            if extent < 1 {
                return Err(LayoutError::Extent { extent, shape: self.to_string() });
            }
            if exact && extent % rest != 0 && rest % extent != 0 {
                return Err(argument(op, format!("{extent} and {rest} do not divide each other in {self}")));
            }
            let share = ceil_div(extent, rest);
            rest = ceil_div(rest, extent);
            Ok(Tree::Leaf(share))
        })
    }

    /// The nested coordinate of a one-dimensional index, first mode fastest; the last mode takes what is left.
    ///
    /// ```
    /// use tilewright_layout::IntTuple;
    /// assert_eq!(IntTuple::from(((2, 3), 4)).coordinate(9).to_string(), "((1,1),1)");
    /// ```
    pub fn coordinate(&self, index: i64) -> IntTuple {
        let mut rest = index;
        let mut left = self.leaves().count();
        self.map(&mut |&extent| {
            left -= 1;
            if left == 0 || extent == 0 {
                return rest;
            }
            let digit = rest.wrapping_rem(extent);
            rest = rest.wrapping_div(extent);
            digit
        })
    }

    /// Whether every coordinate of `self` is also a coordinate of `other`: same size, and `other` refines the
    /// leaves of `self`.
    pub fn compatible(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (Tree::Leaf(extent), _) => other.product().is_ok_and(|product| product == *extent),
            (Tree::Tuple(a), Tree::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.compatible(b))
            }
            _ => false,
        }
    }
}

/// Division rounded up, for `a >= 1` and `b >= 1`.
pub(crate) fn ceil_div(a: i64, b: i64) -> i64 {
    (a - 1) / b + 1
}
