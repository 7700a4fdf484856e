//! Tilers: a layout for the whole domain, or one tiler for each mode.

use std::fmt;

use crate::error::{LayoutError, Result};
use crate::int_tuple::IntTuple;
use crate::layout::{Layout, Mode};
use crate::tree::Tree;

/// What to divide, multiply or compose a layout by.
///
/// Written `<3:3, (2,4):(1,8)>` by mode; a bare integer `n` stands for `n:1`, a shape `(3,4)` for `<3:1, 4:1>`, and
/// `_` leaves a mode alone.
///
/// ```
/// use tilewright_layout::Tiler;
/// let t: Tiler = "<3:3, (2,4):(1,8), _>".parse()?;
/// assert_eq!(t.to_string(), "<3:3, (2,4):(1,8), _>");
/// assert_eq!(Tiler::shape((64, 32))?.to_string(), "<64:1, 32:1>");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tiler {
    /// One layout for the whole domain.
    Layout(Layout),
    /// One tiler for each of the first top-level modes.
    Modes(Vec<Tiler>),
    /// Leaves the mode as it is.
    Keep,
}

impl Tiler {
    /// The by-mode tiler of a shape: contiguous tiles of these extents.
    pub fn shape(shape: impl Into<IntTuple>) -> Result<Tiler> {
        match shape.into() {
            Tree::Leaf(extent) => Ok(Tiler::Layout(Layout::from_tree(Tree::Leaf(Mode::new(extent, 1)))?)),
            Tree::Tuple(modes) => {
                Ok(Tiler::Modes(modes.into_iter().map(Tiler::shape).collect::<Result<_>>()?))
            }
        }
    }

    pub(crate) fn check_rank(&self, op: &'static str, layout: &Layout) -> Result<()> {
        match self {
            Tiler::Modes(modes) if modes.len() > layout.rank() => Err(LayoutError::Rank {
                op,
                what: format!("tiler {self}"),
                found: modes.len(),
                expected: format!("at most {}, the rank of {layout}", layout.rank()),
            }),
            _ => Ok(()),
        }
    }
}

impl From<Layout> for Tiler {
    fn from(layout: Layout) -> Self {
        Tiler::Layout(layout)
    }
}

impl From<&Layout> for Tiler {
    fn from(layout: &Layout) -> Self {
        Tiler::Layout(layout.clone())
    }
}

impl fmt::Display for Tiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tiler::Layout(layout) => layout.fmt(f),
            Tiler::Keep => f.write_str("_"),
            Tiler::Modes(modes) => {
                f.write_str("<")?;
                for (i, mode) in modes.iter().enumerate() {
                    if i > 0 {
                        f.write_str(", ")?;
                    }
                    mode.fmt(f)?;
                }
                f.write_str(">")
            }
        }
    }
}
