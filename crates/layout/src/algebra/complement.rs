//! Complement: the layout that fills what another one leaves out.

use crate::error::{LayoutError, Result, overflow};
use crate::int_tuple::{IntTuple, ceil_div};
use crate::layout::{Layout, Mode};
use crate::stride::{Basis, Stride};
use crate::tree::Tree;

impl Layout {
    /// [`Layout::complement_in`] up to the end of this layout's own codomain.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!("(2,4):(1,4)".parse::<Layout>()?.complement()?.to_string(), "2:2");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn complement(&self) -> Result<Layout> {
        match self.is_integral() {
            true => self.complement_in(1),
            false => complement_by_coordinate(self, Basis::NONE, None),
        }
    }

    /// A layout `R` with increasing values that shares none with `self` but 0, such that `(self, R)` covers
    /// `codomain` (an extent, or a shape).
    ///
    /// With basis strides the complement is taken along each coordinate, and `codomain` may be a shape nested
    /// like the coordinates. Refused for layouts that are not injective.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let l: Layout = "4:2".parse()?;
    /// assert_eq!(l.complement_in(24)?.to_string(), "(2,3):(1,8)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn complement_in(&self, codomain: impl Into<IntTuple>) -> Result<Layout> {
        let codomain = codomain.into();
        if let Some(&extent) = codomain.leaves().find(|extent| **extent < 1) {
            return Err(LayoutError::Extent { extent, shape: codomain.to_string() });
        }
        if self.is_integral() {
            let modes: Vec<Mode> = self.tree().leaves().copied().collect();
            return Ok(complement_along(self, modes, Basis::NONE, &codomain)?.coalesce());
        }
        complement_by_coordinate(self, Basis::NONE, Some(&codomain))
    }
}

/// The complement along every coordinate below `at`, nested like the coordinates and `codomain`.
///
/// Without a codomain every coordinate ends with a mode of extent 1 whose stride says where the next copy begins, as
/// in CuTe IR.
fn complement_by_coordinate(layout: &Layout, at: Basis, codomain: Option<&IntTuple>) -> Result<Layout> {
    let level = at.path().len();
    let below: Vec<Mode> = layout
        .tree()
        .leaves()
        .filter(|mode| !mode.stride.along_basis().is_none())
        .filter(|mode| mode.stride.along_basis().path().starts_with(at.path()))
        .copied()
        .collect();
    let ends_here = below.iter().any(|mode| mode.stride.along_basis() == at);
    let reached = below.iter().filter_map(|mode| mode.stride.along_basis().path().get(level).copied()).max();
    let rank = match codomain {
        // A stride along this coordinate takes all of it, however the codomain nests below.
        _ if ends_here => 0,
        Some(Tree::Tuple(modes)) => modes.len().max(reached.map_or(0, |mode| usize::from(mode) + 1)),
        _ => reached.map_or(0, |mode| usize::from(mode) + 1),
    };
    if rank == 0 {
        let open = complement_along(layout, below, at, codomain.unwrap_or(&Tree::Leaf(1)))?;
        return match codomain {
            Some(_) => Ok(open.coalesce()),
            None => drop_inner_ones(&open),
        };
    }
    // An integer codomain is counted with the first coordinate fastest: the last one takes what is left.
    let mut modes = Vec::with_capacity(rank);
    let mut rest = match codomain {
        Some(Tree::Leaf(extent)) => *extent,
        _ => 1,
    };
    for mode in 0..rank {
        let child = at.child(mode)?;
        let share = match codomain {
            None => None,
            Some(Tree::Tuple(codomains)) => Some(codomains.get(mode).cloned().unwrap_or(Tree::Leaf(1))),
            Some(Tree::Leaf(_)) if mode + 1 == rank => Some(Tree::Leaf(rest)),
            Some(Tree::Leaf(_)) => {
                let extent = extent_below(&below, child);
                rest = ceil_div(rest, extent);
                Some(Tree::Leaf(extent))
            }
        };
        modes.push(complement_by_coordinate(layout, child, share.as_ref())?);
    }
    Layout::tuple(modes)
}

/// Removes the modes of extent 1 but the last one.
fn drop_inner_ones(layout: &Layout) -> Result<Layout> {
    let modes: Vec<Mode> = layout.tree().leaves().copied().collect();
    let last = modes.len().saturating_sub(1);
    let kept = modes.into_iter().enumerate().filter(|(i, mode)| *i == last || mode.extent != 1);
    Layout::from_modes(kept.map(|(_, mode)| mode).collect())
}

/// The extent that `modes` cover along the coordinates below `at`.
fn extent_below(modes: &[Mode], at: Basis) -> i64 {
    let along = modes.iter().filter(|mode| mode.stride.along_basis().path().starts_with(at.path()));
    1 + along.map(|mode| (mode.extent - 1) * mode.stride.value().abs()).sum::<i64>()
}

/// The complement of modes that all walk along one coordinate.
fn complement_along(layout: &Layout, mut modes: Vec<Mode>, at: Basis, codomain: &IntTuple) -> Result<Layout> {
    let refuse = |reason: String| LayoutError::Complement { layout: layout.to_string(), reason };
    modes.retain(|mode| mode.stride.value() != 0 && mode.extent != 1);
    if let Some(mode) = modes.iter().find(|mode| mode.stride.value() < 0) {
        return Err(refuse(format!("the mode {}:{} walks backwards", mode.extent, mode.stride)));
    }
    modes.sort_by_key(|mode| mode.stride.value());

    let mut result = Vec::with_capacity(modes.len() + 1);
    let mut covered = 1i64;
    for mode in modes {
        let stride = mode.stride.value();
        // Rounded down: what does not fill a whole copy of the modes so far stays a hole.
        let copies = stride / covered;
        if copies == 0 {
            let text = format!(
                "the mode {}:{} starts before {covered}, where the modes of smaller stride end; it is not injective",
                mode.extent, mode.stride
            );
            return Err(refuse(text));
        }
        result.push(Tree::Leaf(Mode { extent: copies, stride: Stride::along(covered, at) }));
        covered = stride
            .checked_mul(mode.extent)
            .ok_or_else(|| overflow(format!("the end of the mode {}:{}", mode.extent, mode.stride)))?;
    }
    let rest = codomain.ceil_div(covered)?;
    let strides = rest.prefix_product_from(covered)?;
    result.push(Layout::new(rest, strides.map(&mut |&stride| Stride::along(stride, at)))?.into_tree());
    Layout::from_tree(Tree::Tuple(result))
}
