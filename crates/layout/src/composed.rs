//! [`Composed`]: maps applied one after the other, such as `swizzle o offset o layout`.
//!
//! Most operations rearrange the domain and therefore act on the innermost layout alone; the maps around it stay.

use std::fmt;

use crate::error::{LayoutError, Result, argument, overflow};
use crate::int_tuple::{Coord, Index, IntTuple};
use crate::layout::Layout;
use crate::swizzle::Swizzle;
use crate::tiler::Tiler;
use crate::tree::Tree;

/// A layout or a swizzle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Map {
    /// An affine map.
    Layout(Layout),
    /// A permutation of bits.
    Swizzle(Swizzle),
}

impl Map {
    fn eval(&self, coord: &Coord) -> Result<IntTuple> {
        match (self, coord) {
            (Map::Layout(layout), _) => layout.eval(coord),
            (Map::Swizzle(swizzle), Tree::Leaf(Index::At(value))) => Ok(Tree::Leaf(swizzle.apply(*value)?)),
            (Map::Swizzle(swizzle), _) => {
                Err(argument("eval", format!("{swizzle} takes an integer, not the coordinate {coord}")))
            }
        }
    }
}

impl From<Layout> for Map {
    fn from(layout: Layout) -> Self {
        Map::Layout(layout)
    }
}

impl From<Swizzle> for Map {
    fn from(swizzle: Swizzle) -> Self {
        Map::Swizzle(swizzle)
    }
}

impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Map::Layout(layout) => layout.fmt(f),
            Map::Swizzle(swizzle) => swizzle.fmt(f),
        }
    }
}

/// An outer map and what is added before it is applied.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Stage {
    map: Map,
    offset: IntTuple,
}

/// `outer o offset o inner`: the function `c -> outer(offset + inner(c))`.
///
/// ```
/// use tilewright_layout::{Composed, Layout, Swizzle};
/// let tile: Layout = "(8,64):(64,1)".parse()?;
/// let smem = Composed::new(Swizzle::new(3, 3, 3)?, 0, tile)?;
/// assert_eq!(smem.to_string(), "S<3,3,3> o 0 o (8,64):(64,1)");
/// assert_eq!(smem.at(1)?, 72);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Composed {
    /// Outermost first, never empty.
    stages: Vec<Stage>,
    inner: Map,
}

impl Composed {
    /// The function `c -> outer(offset + inner(c))`.
    ///
    /// A swizzle takes integers, so `inner` must then have integer strides; an outer layout may take the
    /// coordinates that basis strides give.
    pub fn new(
        outer: impl Into<Map>,
        offset: impl Into<IntTuple>,
        inner: impl Into<Map>,
    ) -> Result<Composed> {
        let stage = Stage { map: outer.into(), offset: offset.into() };
        Composed { stages: vec![stage], inner: inner.into() }.checked()
    }

    /// `outer o offset o self`.
    ///
    /// ```
    /// use tilewright_layout::{Composed, Swizzle};
    /// let c: Composed = "(8,8):(8,1) o 0 o 8:1".parse()?;
    /// let c = c.after(Swizzle::new(3, 0, 3)?, 0)?;
    /// assert_eq!(c.to_string(), "S<3,0,3> o 0 o (8,8):(8,1) o 0 o 8:1");
    /// assert_eq!(c.at(1)?, 9);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn after(mut self, outer: impl Into<Map>, offset: impl Into<IntTuple>) -> Result<Composed> {
        self.stages.insert(0, Stage { map: outer.into(), offset: offset.into() });
        self.checked()
    }

    /// Every composed layout passes through here. Evaluating at 0 shows whether the parts fit each other: coordinates have
    /// the same nesting everywhere.
    fn checked(self) -> Result<Composed> {
        match self.eval(&Tree::Leaf(Index::At(0))) {
            Ok(_) => Ok(self),
            Err(error) => {
                Err(argument("composed layout", format!("the parts of {self} do not fit: {error}")))
            }
        }
    }

    /// The innermost layout, which decides shape and size; `None` if it is a swizzle.
    pub fn layout(&self) -> Option<&Layout> {
        match &self.inner {
            Map::Layout(layout) => Some(layout),
            Map::Swizzle(_) => None,
        }
    }

    /// The maps around the innermost one with their offsets, outermost first.
    pub fn outer(&self) -> impl ExactSizeIterator<Item = (&Map, &IntTuple)> {
        self.stages.iter().map(|stage| (&stage.map, &stage.offset))
    }

    fn inner(&self, op: &'static str) -> Result<&Layout> {
        self.layout().ok_or_else(|| argument(op, format!("the inner part of {self} is not a layout")))
    }

    /// Number of coordinates.
    pub fn size(&self) -> Result<i64> {
        self.inner("size").map(Layout::size)
    }

    /// The shape of the domain.
    pub fn shape(&self) -> Result<IntTuple> {
        self.inner("shape").map(Layout::shape)
    }

    /// One more than the largest value: what a buffer must hold. Found by enumeration, because a swizzle may
    /// reach further than the layout inside it. Refused if a value is negative.
    pub fn cosize(&self) -> Result<i64> {
        let values = crate::analysis::values("cosize", self)?;
        if let Some(value) = values.iter().find(|value| **value < 0) {
            return Err(argument("cosize", format!("{self} takes the value {value}, expected none below 0")));
        }
        let last = values.into_iter().max().unwrap_or(0);
        last.checked_add(1).ok_or_else(|| overflow(format!("the cosize of {self}")))
    }

    /// The value at a one-dimensional index.
    pub fn at(&self, index: i64) -> Result<i64> {
        match self.eval(&Tree::Leaf(Index::At(index)))? {
            Tree::Leaf(value) => Ok(value),
            tuple => {
                Err(argument("at", format!("the value of {self} is the coordinate {tuple}; use `eval`")))
            }
        }
    }

    /// The value at a coordinate, as [`Layout::eval`].
    pub fn eval(&self, coord: &Coord) -> Result<IntTuple> {
        let mut value = self.inner.eval(coord)?;
        for stage in self.stages.iter().rev() {
            // Integers, the common case, need no tree.
            value = match (&value, &stage.offset, &stage.map) {
                (Tree::Leaf(a), Tree::Leaf(b), map) => {
                    let sum = a.checked_add(*b).ok_or_else(|| overflow("the offset"))?;
                    match map {
                        Map::Swizzle(swizzle) => Tree::Leaf(swizzle.apply(sum)?),
                        Map::Layout(layout) => layout.eval(&Tree::Leaf(Index::At(sum)))?,
                    }
                }
                (value, offset, map) => map.eval(&add(value, offset)?.into())?,
            };
        }
        Ok(value)
    }

    /// The same outer maps around `f(inner layout)`.
    pub fn map_inner(&self, op: &'static str, f: impl FnOnce(&Layout) -> Result<Layout>) -> Result<Composed> {
        let inner = Map::Layout(f(self.inner(op)?)?);
        Composed { stages: self.stages.clone(), inner }.checked()
    }

    /// `self o b`: the outer maps stay, the inner layout is composed.
    ///
    /// ```
    /// use tilewright_layout::Composed;
    /// let smem: Composed = "S<3,3,3> o 0 o (8,64):(64,1)".parse()?;
    /// assert_eq!(smem.compose(&"8:8".parse()?)?.to_string(), "S<3,3,3> o 0 o 8:1");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn compose(&self, b: &Layout) -> Result<Composed> {
        match &self.inner {
            Map::Layout(_) => self.map_inner("compose", |inner| inner.compose(b)),
            Map::Swizzle(swizzle) => {
                let mut stages = self.stages.clone();
                stages.push(Stage { map: (*swizzle).into(), offset: Tree::Leaf(0) });
                Composed { stages, inner: b.clone().into() }.checked()
            }
        }
    }

    /// `self o tiler`, as [`Layout::compose_tiler`].
    pub fn compose_tiler(&self, tiler: &Tiler) -> Result<Composed> {
        match tiler {
            Tiler::Layout(b) => self.compose(b),
            _ => self.map_inner("compose", |inner| inner.compose_tiler(tiler)),
        }
    }

    /// Fixes the coordinates that are not `_`: their value goes into the innermost offset.
    ///
    /// ```
    /// use tilewright_layout::Composed;
    /// let smem: Composed = "S<3,3,3> o 0 o (8,64):(64,1)".parse()?;
    /// let row = smem.slice(&"(3,_)".parse()?)?;
    /// assert_eq!(row.to_string(), "S<3,3,3> o 192 o (64):(1)");
    /// assert_eq!(row.at(5)?, smem.eval(&(3, 5).into())?.product()?);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn slice(&self, coord: &Coord) -> Result<Composed> {
        let (inner, offset) = self.inner("slice")?.slice_and_offset(coord)?;
        let mut stages = self.stages.clone();
        if let Some(stage) = stages.last_mut() {
            stage.offset = add(&stage.offset, &offset)?;
        }
        Composed { stages, inner: inner.into() }.checked()
    }

    /// In units of `n` elements, as [`Layout::upcast`].
    ///
    /// ```
    /// use tilewright_layout::Composed;
    /// // A bf16 tile in pieces of 16 bytes.
    /// let smem: Composed = "S<3,3,3> o 0 o (8,64):(64,1)".parse()?;
    /// assert_eq!(smem.upcast(8)?.to_string(), "S<3,0,3> o 0 o (8,8):(8,1)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn upcast(&self, n: i64) -> Result<Composed> {
        self.recast(
            |layout| layout.upcast(n),
            |swizzle| swizzle.upcast(n),
            |offset| match offset % n {
                0 => Ok(offset / n),
                _ => Err(argument("upcast", format!("the offset {offset} is no multiple of {n}"))),
            },
        )
    }

    /// In units of `1/n` element, as [`Layout::downcast`].
    pub fn downcast(&self, n: i64) -> Result<Composed> {
        self.recast(
            |layout| layout.downcast(n),
            |swizzle| swizzle.downcast(n),
            |offset| offset.checked_mul(n).ok_or_else(|| overflow(format!("the offset {n}*{offset}"))),
        )
    }

    fn recast(
        &self,
        layout: impl Fn(&Layout) -> Result<Layout>,
        swizzle: impl Fn(&Swizzle) -> Result<Swizzle>,
        offset: impl Fn(i64) -> Result<i64>,
    ) -> Result<Composed> {
        let map = |map: &Map| match map {
            Map::Layout(l) => layout(l).map(Map::Layout),
            Map::Swizzle(s) => swizzle(s).map(Map::Swizzle),
        };
        let inner = map(&self.inner)?; // first: it refuses a factor below 1
        let stages = self.stages.iter().map(|stage| {
            let offset = stage.offset.try_graft(&mut |&leaf| offset(leaf).map(Tree::Leaf))?;
            Ok(Stage { map: map(&stage.map)?, offset })
        });
        Composed { stages: stages.collect::<Result<_>>()?, inner }.checked()
    }

    /// The complement of the innermost layout; only for swizzles without offset, which permute its codomain.
    pub fn complement_in(&self, codomain: impl Into<IntTuple>) -> Result<Layout> {
        self.swizzles("complement")?;
        self.inner("complement")?.complement_in(codomain)
    }

    /// The left inverse: a swizzle is its own inverse, so `S o 0 o L` becomes `left_inverse(L) o 0 o S`. Only for swizzles without offset around a layout.
    pub fn left_inverse(&self) -> Result<Composed> {
        let swizzles = self.swizzles("left_inverse")?;
        let inverse = self.inner("left_inverse")?.left_inverse()?;
        Ok(Composed::undo(inverse, &swizzles))
    }

    /// The right inverse, see [`Composed::left_inverse`]; only for swizzles without offset around a layout, and only if they permute what that
    /// layout covers.
    pub fn right_inverse(&self) -> Result<Composed> {
        let swizzles = self.swizzles("right_inverse")?;
        let inverse = self.inner("right_inverse")?.right_inverse()?;
        let covered = inverse.size();
        if let Some(swizzle) = swizzles.iter().find(|swizzle| !swizzle.permutes_below(covered)) {
            return Err(LayoutError::Inverse {
                op: "right_inverse",
                layout: self.to_string(),
                reason: format!(
                    "{swizzle} does not permute the first {covered} values, which the layout covers"
                ),
            });
        }
        Ok(Composed::undo(inverse, &swizzles))
    }

    /// The swizzles, outermost first, if nothing else is around the inner layout.
    fn swizzles(&self, op: &'static str) -> Result<Vec<Swizzle>> {
        let swizzles = self.stages.iter().map(|stage| match (&stage.map, &stage.offset) {
            (Map::Swizzle(swizzle), Tree::Leaf(0)) => Ok(*swizzle),
            _ => Err(argument(
                op,
                format!("{self} has an outer layout or an offset; only swizzles are invertible"),
            )),
        });
        swizzles.collect()
    }

    /// `inverse o 0 o innermost swizzle o ... o outermost swizzle`: a swizzle is its own inverse.
    fn undo(inverse: Layout, swizzles: &[Swizzle]) -> Composed {
        let stage = |map: Map| Stage { map, offset: Tree::Leaf(0) };
        let mut maps = swizzles.iter().map(|swizzle| Map::Swizzle(*swizzle));
        let inner = maps.next().unwrap_or(Map::Layout(inverse.clone()));
        let mut stages = vec![stage(inverse.into())];
        stages.extend(maps.rev().map(stage));
        Composed { stages, inner }
    }
}

/// The sum of two values; 0 can be added to any coordinate, and a shorter coordinate is 0 where it ends.
fn add(a: &IntTuple, b: &IntTuple) -> Result<IntTuple> {
    match (a, b) {
        (Tree::Leaf(0), other) | (other, Tree::Leaf(0)) => Ok(other.clone()),
        (Tree::Leaf(a), Tree::Leaf(b)) => {
            a.checked_add(*b).map(Tree::Leaf).ok_or_else(|| overflow("the offset"))
        }
        (Tree::Tuple(a), Tree::Tuple(b)) => {
            let zero = Tree::Leaf(0);
            let sums =
                (0..a.len().max(b.len())).map(|i| add(a.get(i).unwrap_or(&zero), b.get(i).unwrap_or(&zero)));
            Ok(Tree::Tuple(sums.collect::<Result<_>>()?))
        }
        _ => Err(argument("offset", format!("{a} and {b} cannot be added; nest both alike"))),
    }
}

impl fmt::Display for Composed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            write!(f, "{} o {} o ", stage.map, stage.offset)?;
        }
        self.inner.fmt(f)
    }
}
