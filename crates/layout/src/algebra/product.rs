//! Products: a layout repeated, arranged in six ways, and tiles laid out over a target shape.

use super::divide::{by_mode, unzip};
use crate::error::{LayoutError, Result, overflow};
use crate::int_tuple::{IntTuple, ceil_div};
use crate::layout::{Layout, Mode};
use crate::tiler::Tiler;
use crate::tree::Tree;

impl Layout {
    /// Repeats this layout: mode 0 of the result is the layout, mode 1 puts the copies where `tiler` says.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let block: Layout = "(2,2):(4,1)".parse()?;
    /// let tiler = "6:1".parse::<Layout>()?.into();
    /// assert_eq!(block.logical_product(&tiler)?.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn logical_product(&self, tiler: &Tiler) -> Result<Layout> {
        by_mode("logical_product", self, tiler, &|block, tile| {
            let codomain = block
                .size()
                .checked_mul(tile.cosize()?)
                .ok_or_else(|| overflow(format!("the product of {block} and {tile}")))?;
            Layout::tuple([block.clone(), block.complement_in(codomain)?.compose(tile)?])
        })
    }

    /// [`Layout::logical_product`] with all block modes gathered in mode 0 and all others in mode 1.
    pub fn zipped_product(&self, tiler: &Tiler) -> Result<Layout> {
        unzip("zipped_product", &self.logical_product(tiler)?, tiler)
    }

    /// [`Layout::zipped_product`] with mode 1 unpacked: `(block, copies, copies, ...)`.
    pub fn tiled_product(&self, tiler: &Tiler) -> Result<Layout> {
        self.zipped_product(tiler)?.unpack(false)
    }

    /// [`Layout::zipped_product`] with both modes unpacked.
    pub fn flat_product(&self, tiler: &Tiler) -> Result<Layout> {
        self.zipped_product(tiler)?.unpack(true)
    }

    /// The product mode by mode, blocks kept together: mode `i` is `(block i, tiler i)`.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let (block, tiler): (Layout, Layout) = ("(3,4):(4,1)".parse()?, "(2,5):(1,2)".parse()?);
    /// assert_eq!(block.blocked_product(&tiler)?.to_string(), "((3,2),(4,5)):((4,12),(1,24))");
    /// assert_eq!(block.raked_product(&tiler)?.to_string(), "((2,3),(5,4)):((12,4),(24,1))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn blocked_product(&self, tiler: &Layout) -> Result<Layout> {
        let product = self.logical_product(&tiler.into())?;
        zip_modes(&product.mode(0)?, &product.mode(1)?)
    }

    /// The product mode by mode, blocks interleaved: mode `i` is `(tiler i, block i)`.
    pub fn raked_product(&self, tiler: &Layout) -> Result<Layout> {
        let product = self.logical_product(&tiler.into())?;
        zip_modes(&product.mode(1)?, &product.mode(0)?)
    }

    /// Repeats this layout until it covers `shape`, copies in the order of the modes, or as `order` says
    /// (`order[i]` is the position of mode `i`, 0 varies first).
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let block: Layout = "(128,128):(128,1)".parse()?;
    /// let tiled = block.tile_to_shape((1024, 512), Some(&[1, 0]))?;
    /// assert_eq!(tiled.to_string(), "((128,8),(128,4)):((128,65536),(1,16384))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn tile_to_shape(&self, shape: impl Into<IntTuple>, order: Option<&[usize]>) -> Result<Layout> {
        let shape = shape.into();
        if self.rank() > shape.rank() {
            return Err(LayoutError::Rank {
                op: "tile_to_shape",
                what: format!("layout {self}"),
                found: self.rank(),
                expected: format!("at most {}, the rank of {shape}", shape.rank()),
            });
        }
        let mut block: Vec<Layout> = self.modes().collect();
        block.resize(shape.rank(), Layout::part(&Tree::Leaf(Mode::new(1, 0))));
        let mut counts = Vec::with_capacity(block.len());
        for (mode, extent) in block.iter().zip(shape.modes()) {
            let extent = extent.product()?;
            if extent < 1 {
                return Err(LayoutError::Extent { extent, shape: shape.to_string() });
            }
            counts.push(Tree::Leaf(ceil_div(extent, mode.size())));
        }
        let in_order: Vec<usize> = (0..counts.len()).collect();
        let copies = Layout::ordered(Tree::Tuple(counts), order.unwrap_or(&in_order))?;
        // A mode with a single copy takes no step: its stride prints as 0.
        let copies = Layout::from_tree(copies.tree().map(&mut |mode| match mode.extent {
            1 => Mode::new(1, 0),
            _ => *mode,
        }))?;
        Layout::tuple(block)?.blocked_product(&copies)
    }
}

/// Pairs the top-level modes of two layouts; where one has no mode left, the other's stands alone.
fn zip_modes(first: &Layout, second: &Layout) -> Result<Layout> {
    if first.depth() == 0 && second.depth() == 0 {
        return Layout::tuple([first.clone(), second.clone()]);
    }
    let (first, second): (Vec<_>, Vec<_>) = (first.modes().collect(), second.modes().collect());
    let pairs = (0..first.len().max(second.len())).map(|i| match (first.get(i), second.get(i)) {
        (Some(a), Some(b)) => Layout::tuple([a.clone(), b.clone()]),
        (Some(only), None) | (None, Some(only)) => Ok(only.clone()),
        (None, None) => unreachable!("i is below one of the lengths"),
    });
    Layout::tuple(pairs.collect::<Result<Vec<_>>>()?)
}
