//! Thread-value layouts: which thread holds which elements of a tile.
//!
//! A TV layout maps `(thread, value)` to the index of an element in a tile (counted with the tile's first mode
//! fastest). Tensor-core fragments, vectorised copies and register tiles are all values of this one type.

use std::fmt;

use crate::analysis::{self, Access, Function, Sectors, WARP};
use crate::composed::Composed;
use crate::error::{LayoutError, Result, argument};
use crate::int_tuple::{Coord, IntTuple};
use crate::layout::Layout;

/// A layout `(thread, value) -> index in a tile`, together with the shape of the tile.
///
/// ```
/// use tilewright_layout::TvLayout;
/// // The accumulator of mma.m16n8k16: 32 threads, 4 values each, on a 16x8 tile.
/// let c = TvLayout::new("((4,8),(2,2)):((32,1),(16,8))".parse()?, (16, 8))?;
/// assert!(c.is_partition()?);
/// assert_eq!(c.coordinate(5, 3)?.to_string(), "(9,3)");
/// assert_eq!(c.owner(&(9, 3).into())?, Some((5, 3)));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TvLayout {
    layout: Layout,
    tile: IntTuple,
    threads: i64,
    values: i64,
}

impl TvLayout {
    /// The TV layout `layout` (rank 2: thread, value) on a tile of the given shape.
    pub fn new(layout: Layout, tile: impl Into<IntTuple>) -> Result<TvLayout> {
        let tile = tile.into();
        if layout.rank() != 2 {
            return Err(LayoutError::Rank {
                op: "tv",
                what: format!("layout {layout}"),
                found: layout.rank(),
                expected: "2, for thread and value".into(),
            });
        }
        let backwards = layout.tree().leaves().any(|mode| mode.stride.value() < 0 && mode.extent > 1);
        if !layout.is_integral() || backwards {
            return Err(argument("tv", format!("{layout} must have integer strides that are not negative")));
        }
        if let Some(&extent) = tile.leaves().find(|extent| **extent < 1) {
            return Err(LayoutError::Extent { extent, shape: tile.to_string() });
        }
        let (reached, size) = (layout.cosize()?, tile.product()?);
        if reached > size {
            let text = format!("{layout} reaches element {}, but the tile {tile} has {size}", reached - 1);
            return Err(argument("tv", text));
        }
        let (threads, values) = (layout.mode(0)?.size(), layout.mode(1)?.size());
        Ok(TvLayout { layout, tile, threads, values })
    }

    /// The layout `(thread, value) -> index in the tile`.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The shape of the tile.
    pub fn tile(&self) -> &IntTuple {
        &self.tile
    }

    /// Number of threads.
    pub fn threads(&self) -> i64 {
        self.threads
    }

    /// Number of values that each thread holds.
    pub fn values(&self) -> i64 {
        self.values
    }

    /// The index in the tile of value `value` of thread `thread`.
    pub fn index(&self, thread: i64, value: i64) -> Result<i64> {
        for (what, found, end) in [("thread", thread, self.threads()), ("value", value, self.values())] {
            if !(0..end).contains(&found) {
                return Err(argument("tv", format!("{what} {found} is not in 0..{end}")));
            }
        }
        self.layout.at(thread + self.threads() * value)
    }

    /// The coordinate in the tile of value `value` of thread `thread`.
    pub fn coordinate(&self, thread: i64, value: i64) -> Result<IntTuple> {
        Ok(self.tile.coordinate(self.index(thread, value)?))
    }

    /// The inverse: from the index in the tile to `thread + threads * value`.
    ///
    /// Where several threads hold an element, the lowest of them. Refused if that is not a layout.
    pub fn inverse(&self) -> Result<Layout> {
        self.layout.left_inverse()
    }

    /// Which thread holds the element at `coord`, as which of its values; `None` if nobody does.
    pub fn owner(&self, coord: &IntTuple) -> Result<Option<(i64, i64)>> {
        let index = Layout::column_major(self.tile.clone())?.eval(&Coord::from(coord))?.product()?;
        if !(0..self.tile.product()?).contains(&index) {
            return Err(argument("owner", format!("{coord} is not in the tile {}", self.tile)));
        }
        analysis::check_points("owner", self.layout.size())?;
        let holds = |at: i64| self.layout.at(at).is_ok_and(|found| found == index);
        let guess = self.inverse().and_then(|inverse| inverse.at(index)).ok();
        let guess = guess.filter(|at| (0..self.layout.size()).contains(at) && holds(*at));
        // Not every TV layout has an inverse that is a layout; search then.
        let at = guess.or_else(|| (0..self.layout.size()).find(|at| holds(*at)));
        Ok(at.map(|at| (at % self.threads(), at / self.threads())))
    }

    /// Whether every element of the tile is held exactly once.
    pub fn is_partition(&self) -> Result<bool> {
        Ok(self.layout.size() == self.tile.product()? && analysis::is_bijective(&self.layout)?)
    }

    /// The tile `memory` seen by threads: `(thread, value) -> memory(element)`.
    ///
    /// ```
    /// use tilewright_layout::TvLayout;
    /// let tv = TvLayout::new("(4,2):(2,1)".parse()?, (8,))?;
    /// assert_eq!(tv.partition(&"8:3".parse()?)?.to_string(), "(4,2):(6,3)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn partition(&self, memory: &Layout) -> Result<Layout> {
        self.check_memory(memory.size())?;
        memory.compose(&self.layout)
    }

    /// [`TvLayout::partition`] of a swizzled tile.
    pub fn partition_composed(&self, memory: &Composed) -> Result<Composed> {
        self.check_memory(memory.size()?)?;
        memory.compose(&self.layout)
    }

    fn check_memory(&self, size: i64) -> Result<()> {
        let expected = self.tile.product()?;
        if size != expected {
            let text =
                format!("the memory layout has {size} elements, the tile {} has {expected}", self.tile);
            return Err(argument("partition", text));
        }
        Ok(())
    }
}

impl fmt::Display for TvLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.layout.fmt(f)
    }
}

/// A copy of a tile by many threads, each moving vectors of elements.
///
/// ```
/// use tilewright_layout::{Layout, TiledCopy};
/// // 32x8 threads, each moving 4 consecutive rows of a column-major f32 tile in one 16-byte access.
/// let copy = TiledCopy::new(&"(32,8):(1,32)".parse()?, &"(4,1):(1,1)".parse()?, 4)?;
/// assert_eq!(copy.tv().tile().to_string(), "(128,8)");
/// let memory: Layout = "(128,8):(1,128)".parse()?;
/// let sectors = copy.sectors(&memory, 4)?;
/// assert_eq!(sectors.touched, sectors.ideal);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TiledCopy {
    tv: TvLayout,
    vector: i64,
}

impl TiledCopy {
    /// Threads arranged as `threads` (coordinate to thread), each holding a block of elements arranged as `values`
    /// (coordinate to value), moved `vector` values at a time.
    pub fn new(threads: &Layout, values: &Layout, vector: i64) -> Result<TiledCopy> {
        for (name, layout) in [("thread", threads), ("value", values)] {
            if !analysis::is_bijective(layout)? {
                let text = format!("the {name} layout {layout} is not a bijection onto 0..{}", layout.size());
                return Err(argument("tiled_copy", text));
            }
        }
        if vector < 1 || values.size() % vector != 0 {
            let text = format!("the vector width {vector} does not divide the {} values", values.size());
            return Err(argument("tiled_copy", text));
        }
        // Interleave: coordinate in the tile -> thread + threads * value. Its inverse is the TV layout.
        let tile = threads.raked_product(values)?;
        let shape = tile.shape().product_each()?;
        let tv = tile.right_inverse()?.with_shape((threads.size(), values.size()))?;
        Ok(TiledCopy { tv: TvLayout::new(tv, shape)?, vector })
    }

    /// Which thread moves which elements.
    pub fn tv(&self) -> &TvLayout {
        &self.tv
    }

    /// Elements in one access.
    pub fn vector(&self) -> i64 {
        self.vector
    }

    /// Checks that every access finds its elements contiguous and aligned in `memory`.
    ///
    /// ```
    /// use tilewright_layout::{Layout, TiledCopy};
    /// let copy = TiledCopy::new(&"(8,4):(4,1)".parse()?, &"(1,8):(8,1)".parse()?, 8)?;
    /// assert!(copy.check(&"(8,32):(32,1)".parse::<Layout>()?).is_ok());
    /// assert!(copy.check(&"(8,32):(1,8)".parse::<Layout>()?).is_err());
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn check(&self, memory: &impl Function) -> Result<()> {
        self.tv.check_memory(memory.points()?)?;
        analysis::check_points("tiled_copy", self.tv.layout.size())?;
        for value in (0..self.tv.values()).step_by(usize::try_from(self.vector).unwrap_or(1)) {
            for thread in 0..self.tv.threads() {
                let first = memory.value(self.tv.index(thread, value)?)?;
                let mut contiguous = first % self.vector == 0;
                for k in 1..self.vector {
                    contiguous &=
                        first.checked_add(k) == Some(memory.value(self.tv.index(thread, value + k)?)?);
                }
                if !contiguous {
                    let text = format!(
                        "thread {thread} moves {} elements from value {value} on, but they are not contiguous and aligned at element {first}",
                        self.vector
                    );
                    return Err(argument("tiled_copy", text));
                }
            }
        }
        Ok(())
    }

    /// Sectors touched in global memory laid out as `memory`.
    pub fn sectors(&self, memory: &impl Function, element_bytes: i64) -> Result<Sectors> {
        let mut total = Sectors::default();
        self.each_warp(memory, element_bytes, |offsets, access| {
            total.add(analysis::sectors_of(offsets, access)?);
            Ok(())
        })?;
        Ok(total)
    }

    /// The worst bank conflict in shared memory laid out as `memory`.
    pub fn bank_conflicts(&self, memory: &impl Function, element_bytes: i64) -> Result<i64> {
        let mut worst = 1;
        self.each_warp(memory, element_bytes, |offsets, access| {
            worst = worst.max(analysis::bank_conflicts_of(offsets, access)?);
            Ok(())
        })?;
        Ok(worst)
    }

    /// Calls `visit` with the first element of every lane, for each access of each warp.
    fn each_warp(
        &self,
        memory: &impl Function,
        element_bytes: i64,
        mut visit: impl FnMut(&[i64], Access) -> Result<()>,
    ) -> Result<()> {
        self.check(memory)?;
        let access = Access { element_bytes, access_bytes: element_bytes.saturating_mul(self.vector) };
        for value in (0..self.tv.values()).step_by(usize::try_from(self.vector).unwrap_or(1)) {
            let offsets = (0..self.tv.threads())
                .map(|thread| memory.value(self.tv.index(thread, value)?))
                .collect::<Result<Vec<_>>>()?;
            offsets.chunks(WARP).try_for_each(|warp| visit(warp, access))?;
        }
        Ok(())
    }
}
