//! Recast: the same memory seen as wider or narrower elements.

use crate::error::{Result, argument, overflow};
use crate::layout::{Layout, Mode};
use crate::tree::Tree;

impl Layout {
    /// The layout in units of `n` elements each, for example from `f16` to 16-byte vectors with `n = 8`.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!("(32,4):(1,32)".parse::<Layout>()?.upcast(4)?.to_string(), "(8,4):(1,8)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn upcast(&self, n: i64) -> Result<Layout> {
        check_factor("upcast", self, n)?;
        let tree = self.tree().try_graft(&mut |mode| {
            let stride = mode.stride.value();
            let width = stride.abs();
            if stride == 0 || n == 1 {
                return Ok(Tree::Leaf(*mode));
            }
            if width % n == 0 {
                return Ok(Tree::Leaf(Mode::new(mode.extent, stride / n)));
            }
            // Several positions of this mode fall into one unit.
            let per_unit = n / width;
            if mode.extent != 1
                && (n % width != 0 || (mode.extent % per_unit != 0 && per_unit % mode.extent != 0))
            {
                return Err(argument(
                    "upcast",
                    format!("the mode {}:{stride} does not divide into units of {n} in {self}", mode.extent),
                ));
            }
            Ok(Tree::Leaf(Mode::new((mode.extent / per_unit.max(1)).max(1), stride.signum())))
        })?;
        Layout::from_tree(tree)
    }

    /// The layout in units of `1/n` element each, for example from 16-byte vectors to `f16` with `n = 8`.
    ///
    /// Needs a mode of stride 1 (or -1) to hold the parts of an element.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!("(8,4):(1,8)".parse::<Layout>()?.downcast(4)?.to_string(), "(32,4):(1,32)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn downcast(&self, n: i64) -> Result<Layout> {
        check_factor("downcast", self, n)?;
        let unit = |mode: &Mode| mode.stride.value().abs() == 1;
        let units = self.tree().leaves().filter(|mode| unit(mode) && mode.extent > 1).count();
        let single = self.tree().leaves().filter(|mode| unit(mode)).count() == 1;
        if n != 1 && units != 1 && !single {
            return Err(argument(
                "downcast",
                format!("{self} needs exactly one mode of stride 1 to hold the parts of an element"),
            ));
        }
        let tree = self.tree().try_graft(&mut |mode| {
            let stride = mode.stride.value();
            let mode = if unit(mode) && (single || mode.extent > 1) {
                mode.extent.checked_mul(n).map(|extent| Mode::new(extent, stride))
            } else {
                stride.checked_mul(n).map(|stride| Mode::new(mode.extent, stride))
            };
            mode.map(Tree::Leaf).ok_or_else(|| overflow(format!("{self} in units of 1/{n}")))
        })?;
        Layout::from_tree(tree)
    }
}

fn check_factor(op: &'static str, layout: &Layout, n: i64) -> Result<()> {
    if n < 1 {
        return Err(argument(op, format!("the factor is {n}, expected at least 1")));
    }
    if !layout.is_integral() {
        return Err(argument(op, format!("{layout} has basis strides, expected integers")));
    }
    Ok(())
}
