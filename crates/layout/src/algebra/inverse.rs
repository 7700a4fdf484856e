//! Inverses: from values back to indices.

use super::coalesce::coalesce_extended;
use crate::error::{LayoutError, Result, overflow};
use crate::layout::{Layout, Mode, nest};
use crate::stride::{Basis, Stride};
use crate::tree::Tree;

/// A mode of a layout together with the index stride at which it starts.
#[derive(Clone, Copy)]
struct Source {
    extent: i64,
    stride: i64,
    /// By how much the index grows from one position of the mode to the next.
    index: i64,
    /// The last mode of the layout goes on past its extent.
    last: bool,
}

impl Layout {
    /// The longest layout `R` with `self(R(i)) == i` for all `i < size(R)`.
    ///
    /// Always exists; it is `1:0` when `self` has no mode of stride 1. With basis strides the inverse is taken along
    /// each coordinate, and `R` takes the coordinate.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!("(8,4):(4,1)".parse::<Layout>()?.right_inverse()?.to_string(), "(4,8):(8,1)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn right_inverse(&self) -> Result<Layout> {
        self.inverse(|sources| {
            let mut modes = Vec::new();
            let mut reached = 1i64;
            for source in sources {
                if source.stride == reached {
                    modes.push(Mode::new(source.extent, source.index));
                    reached = reached
                        .checked_mul(source.extent)
                        .ok_or_else(|| overflow(format!("the codomain of {self}")))?;
                }
            }
            Ok(modes)
        })
    }

    /// A layout `R` with `self(R(self(i))) == self(i)` for all `i < size(self)`; if `self` is injective, that is
    /// `R(self(i)) == i`.
    ///
    /// Values that `self` does not take are mapped by stride 0 or to some index. Refused when the strides do not
    /// divide each other, or when overlapping modes would give a wrong index.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let l: Layout = "(4,2):(1,5)".parse()?;
    /// assert_eq!(l.left_inverse()?.to_string(), "(5,2):(1,4)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn left_inverse(&self) -> Result<Layout> {
        self.inverse(|sources| self.left_inverse_along(sources))
    }

    fn left_inverse_along(&self, sources: &[Source]) -> Result<Vec<Mode>> {
        let refuse =
            |reason: String| LayoutError::Inverse { op: "left_inverse", layout: self.to_string(), reason };
        let negative = sources.iter().filter(|source| source.stride < 0).count();
        if negative > 0 && negative < sources.len() {
            return Err(refuse("it has strides of both signs".into()));
        }
        // A layout that only walks backwards mirrors its inverse.
        let sign = if negative > 0 { -1 } else { 1 };
        let sources: Vec<Source> =
            sources.iter().map(|source| Source { stride: source.stride * sign, ..*source }).collect();

        let mut modes = Vec::with_capacity(sources.len() + 1);
        let mut reach = 0i64;
        if let Some(first) = sources.first() {
            modes.push(Mode::new(first.stride, 0));
        }
        for (i, source) in sources.iter().enumerate() {
            // Largest value of the modes so far: cannot overflow, the codomain of the layout bounds it.
            reach += (source.extent - 1) * source.stride;
            let next = sources.get(i + 1).map(|next| next.stride);
            if let Some(next) = next.filter(|next| next % source.stride != 0) {
                return Err(refuse(format!("stride {next} is no multiple of stride {}", source.stride)));
            }
            let radix = next.map(|next| next / source.stride);
            // The largest digit that the value can have here; it must be a position of the mode.
            let digit = radix.map_or(i64::MAX, |radix| radix - 1).min(reach / source.stride);
            if digit >= source.extent && !source.last {
                return Err(refuse(format!(
                    "its modes overlap, and the value {} of the mode {}:{} is past the end",
                    digit * source.stride,
                    source.extent,
                    source.stride
                )));
            }
            modes.push(Mode::new(radix.unwrap_or(source.extent), source.index * sign));
        }
        Ok(modes)
    }

    /// Applies `solve` to the modes along each coordinate, sorted by stride, and nests the results alike.
    fn inverse(&self, solve: impl Fn(&[Source]) -> Result<Vec<Mode>>) -> Result<Layout> {
        let along = |basis: Basis| -> Result<Layout> {
            let mut sources = self.sources(basis);
            sources.sort_by_key(|source| source.stride.abs());
            let mut modes = vec![Mode::new(1, 0)];
            modes.extend(solve(&sources)?);
            let layout = Layout::from_modes(modes)?.coalesce();
            // Extents of 1 print as `1:0`.
            Ok(if layout.size() == 1 { Layout::part(&Tree::Leaf(Mode::new(1, 0))) } else { layout })
        };
        if self.is_integral() {
            return along(Basis::NONE);
        }
        let mut inverses = Vec::new();
        for basis in self.bases() {
            inverses.push((basis, along(basis)?));
        }
        let values: Vec<(Basis, &Layout)> = inverses.iter().map(|(basis, layout)| (*basis, layout)).collect();
        Layout::from_tree(nest(&values, 0, &mut |_, inverse| match inverse {
            Some(layout) => layout.tree().clone(),
            None => Tree::Leaf(Mode { extent: 1, stride: Stride::ZERO }),
        }))
    }

    /// The coalesced modes of non-zero stride along `basis`, with their index strides.
    fn sources(&self, basis: Basis) -> Vec<Source> {
        let modes = coalesce_extended(self.tree());
        let mut index = 1i64;
        let mut sources = Vec::with_capacity(modes.len());
        for (i, mode) in modes.iter().enumerate() {
            let stride = mode.stride;
            if stride.value() != 0 && mode.extent != 1 && stride.along_basis() == basis {
                let last = i + 1 == modes.len();
                sources.push(Source { extent: mode.extent, stride: stride.value(), index, last });
            }
            index *= mode.extent; // cannot overflow: the size of the layout bounds it
        }
        sources
    }
}
