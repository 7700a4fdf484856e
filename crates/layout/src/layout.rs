//! [`Layout`]: a function from coordinates to integers (or coordinates), written `shape:stride`.
//!
//! A layout is stored as one tree of modes, so shape and stride are congruent by construction. Construction also
//! proves once and for all that the size and every value inside the domain fit in 64 bits; what lies past the end
//! of the domain is checked where it is evaluated.

use std::fmt;

use crate::error::{LayoutError, Result, argument, overflow};
use crate::int_tuple::{Coord, Index, IntTuple};
use crate::stride::{Basis, Stride, StrideTuple};
use crate::tree::Tree;

/// One leaf of a layout: `extent:stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mode {
    /// Number of positions, at least 1.
    pub extent: i64,
    /// Distance between neighbouring positions.
    pub stride: Stride,
}

impl Mode {
    pub(crate) fn new(extent: i64, stride: impl Into<Stride>) -> Mode {
        Mode { extent, stride: stride.into() }
    }
}

/// A function from nested coordinates to integers, for example `(4,2):(1,16)`.
///
/// ```
/// use tilewright_layout::{Coord, Layout};
/// let l = Layout::new((4, 2), (1, 16))?;
/// assert_eq!(l.to_string(), "(4,2):(1,16)");
/// assert_eq!(l.at(5)?, 17); // index 5 is coordinate (1,1)
/// assert_eq!(l.eval(&Coord::from((1, 1)))?, 17.into());
/// assert_eq!(l, "(4,2):(1,16)".parse()?);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    tree: Tree<Mode>,
    size: i64,
    integral: bool,
}

/// Constructors.
impl Layout {
    /// The layout `shape:stride`; both must be nested alike.
    pub fn new(shape: impl Into<IntTuple>, stride: impl Into<StrideTuple>) -> Result<Layout> {
        let (shape, stride) = (shape.into(), stride.into());
        let pairs = shape.zip(&stride).ok_or_else(|| LayoutError::NotCongruent {
            shape: shape.to_string(),
            stride: stride.to_string(),
        })?;
        Layout::from_tree(pairs.map(&mut |&(extent, stride)| Mode { extent, stride }))
    }

    /// The compact column-major layout of `shape`: the first mode has stride 1.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// assert_eq!(Layout::column_major((4, (2, 3)))?.to_string(), "(4,(2,3)):(1,(4,8))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn column_major(shape: impl Into<IntTuple>) -> Result<Layout> {
        let shape = shape.into();
        let stride = shape.prefix_product()?;
        Layout::new(shape, stride)
    }

    /// The compact row-major layout of `shape`: the last mode has stride 1.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// assert_eq!(Layout::row_major((4, (2, 3)))?.to_string(), "(4,(2,3)):(6,(3,1))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn row_major(shape: impl Into<IntTuple>) -> Result<Layout> {
        fn reversed<T: Clone>(tree: &Tree<T>) -> Tree<T> {
            match tree {
                Tree::Leaf(value) => Tree::Leaf(value.clone()),
                Tree::Tuple(modes) => Tree::Tuple(modes.iter().rev().map(reversed).collect()),
            }
        }
        let shape = shape.into();
        let stride = reversed(&reversed(&shape).prefix_product()?);
        Layout::new(shape, stride)
    }

    /// The compact layout of `shape` whose top-level mode `i` is the `order[i]`-th to vary.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// assert_eq!(Layout::ordered((2, 3, 4), &[2, 0, 1])?.to_string(), "(2,3,4):(12,1,3)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn ordered(shape: impl Into<IntTuple>, order: &[usize]) -> Result<Layout> {
        let shape = shape.into();
        let modes = shape.modes();
        let mut sequence = vec![None; modes.len()];
        for (mode, &position) in order.iter().enumerate() {
            if let Some(slot @ None) = sequence.get_mut(position) {
                *slot = Some(mode);
            }
        }
        let sequence = sequence
            .into_iter()
            .collect::<Option<Vec<_>>>()
            .filter(|_| order.len() == modes.len())
            .ok_or_else(|| {
                argument("ordered", format!("{order:?} is not a permutation of 0..{}", modes.len()))
            })?;
        let mut strides = vec![Tree::Leaf(0); modes.len()];
        let mut current = 1i64;
        for mode in sequence {
            strides[mode] = modes[mode].prefix_product_from(current)?;
            current = modes[mode]
                .product()?
                .checked_mul(current)
                .ok_or_else(|| overflow(format!("the size of {shape}")))?;
        }
        let stride = match shape {
            Tree::Leaf(_) => Tree::unwrap_single(strides),
            Tree::Tuple(_) => Tree::Tuple(strides),
        };
        Layout::new(shape, stride)
    }

    /// The layout whose value is the coordinate itself, as TMA wants it.
    ///
    /// ```
    /// # use tilewright_layout::{Coord, Layout};
    /// let id = Layout::identity((4, 8))?;
    /// assert_eq!(id.to_string(), "(4,8):(1@0,1@1)");
    /// assert_eq!(id.eval(&Coord::from(6))?.to_string(), "(2,1)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn identity(shape: impl Into<IntTuple>) -> Result<Layout> {
        fn strides(shape: &IntTuple, at: Basis) -> Result<StrideTuple> {
            match shape {
                Tree::Leaf(_) => Ok(Tree::Leaf(Stride::along(1, at))),
                Tree::Tuple(modes) => Ok(Tree::Tuple(
                    modes
                        .iter()
                        .enumerate()
                        .map(|(i, mode)| strides(mode, at.child(i)?))
                        .collect::<Result<_>>()?,
                )),
            }
        }
        let shape = shape.into();
        let stride = strides(&shape, Basis::NONE)?;
        Layout::new(shape, stride)
    }

    /// The tuple of `modes`, as CuTe's `make_layout(a, b, ...)`.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// let pair = Layout::tuple([Layout::row_major((2, 3))?, "4:6".parse()?])?;
    /// assert_eq!(pair.to_string(), "((2,3),4):((3,1),6)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn tuple(modes: impl IntoIterator<Item = Layout>) -> Result<Layout> {
        Layout::from_tree(Tree::Tuple(modes.into_iter().map(|layout| layout.tree).collect()))
    }

    /// Checks a tree of modes and makes it a layout.
    pub(crate) fn from_tree(tree: Tree<Mode>) -> Result<Layout> {
        let mut size = 1i64;
        let mut span = 0i64;
        let mut codomain = Codomain::Zero;
        tree.visit(&mut |mode: &Mode| {
            if mode.extent < 1 {
                let shape = tree.map(&mut |mode| mode.extent).to_string();
                return Err(LayoutError::Extent { extent: mode.extent, shape });
            }
            size = size.checked_mul(mode.extent).ok_or_else(|| overflow("the size of the layout"))?;
            // One bound for all coordinates together is at least as strict as one for each.
            span = mode
                .stride
                .value()
                .checked_abs()
                .and_then(|stride| stride.checked_mul(mode.extent - 1))
                .and_then(|reach| span.checked_add(reach))
                .filter(|&span| span < i64::MAX)
                .ok_or_else(|| overflow("the codomain of the layout"))?;
            codomain = codomain.meet(mode.stride);
            Ok(())
        })?;
        let integral = matches!(codomain, Codomain::Zero | Codomain::Integers);
        let layout = Layout { tree, size, integral };
        match codomain {
            Codomain::Mixed => Err(layout.mixed_strides()),
            Codomain::Coordinates if !layout.basis_paths_agree() => Err(layout.mixed_strides()),
            _ => Ok(layout),
        }
    }

    pub(crate) fn from_modes(modes: Vec<Mode>) -> Result<Layout> {
        Layout::from_tree(Tree::unwrap_single(modes.into_iter().map(Tree::Leaf).collect()))
    }

    fn mixed_strides(&self) -> LayoutError {
        LayoutError::MixedStrides { stride: self.stride().to_string() }
    }

    /// No basis path may end where another one goes on.
    fn basis_paths_agree(&self) -> bool {
        let paths = self.bases();
        paths.iter().all(|a| paths.iter().all(|b| a == b || !b.path().starts_with(a.path())))
    }
}

/// What the strides of a layout add up to.
enum Codomain {
    Zero,
    Integers,
    Coordinates,
    Mixed,
}

impl Codomain {
    fn meet(&self, stride: Stride) -> Codomain {
        match (self, stride.value() == 0, stride.along_basis().is_none()) {
            (Codomain::Zero, true, _) => Codomain::Zero,
            (Codomain::Zero | Codomain::Integers, false, true) | (Codomain::Integers, true, _) => {
                Codomain::Integers
            }
            (Codomain::Zero | Codomain::Coordinates, false, false) | (Codomain::Coordinates, true, _) => {
                Codomain::Coordinates
            }
            _ => Codomain::Mixed,
        }
    }
}

/// Accessors.
impl Layout {
    /// The tree of `extent:stride` leaves.
    pub fn tree(&self) -> &Tree<Mode> {
        &self.tree
    }

    /// The shape.
    pub fn shape(&self) -> IntTuple {
        self.tree.map(&mut |mode| mode.extent)
    }

    /// The strides.
    pub fn stride(&self) -> StrideTuple {
        self.tree.map(&mut |mode| mode.stride)
    }

    /// Number of top-level modes.
    pub fn rank(&self) -> usize {
        self.tree.rank()
    }

    /// Nesting depth; 0 for a single mode such as `4:1`.
    pub fn depth(&self) -> usize {
        self.tree.depth()
    }

    /// Number of coordinates.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Extent of the codomain: the distance between the largest and the smallest value, plus one.
    ///
    /// With basis strides it is the product of the extents along each coordinate.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// assert_eq!("(4,2):(1,16)".parse::<Layout>()?.cosize()?, 20);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn cosize(&self) -> Result<i64> {
        let extent_along = |basis: Basis| {
            let modes = self.tree.leaves().filter(|mode| mode.stride.along_basis() == basis);
            1 + modes.map(|mode| (mode.extent - 1) * mode.stride.value().abs()).sum::<i64>()
        };
        if self.is_integral() {
            return Ok(extent_along(Basis::NONE));
        }
        self.bases().into_iter().try_fold(1i64, |product, basis| {
            product.checked_mul(extent_along(basis)).ok_or_else(|| overflow(format!("the cosize of {self}")))
        })
    }

    /// Whether the values are integers, that is, no stride has a basis.
    pub fn is_integral(&self) -> bool {
        self.integral
    }

    /// The distinct coordinates that the strides walk along, sorted; empty for an integral layout.
    pub(crate) fn bases(&self) -> Vec<Basis> {
        let mut bases: Vec<Basis> =
            self.tree.leaves().map(|mode| mode.stride.along_basis()).filter(|b| !b.is_none()).collect();
        bases.sort_unstable();
        bases.dedup();
        bases
    }

    /// The sub-layouts of the top-level modes. A single mode is its own only one.
    pub fn modes(&self) -> impl ExactSizeIterator<Item = Layout> + '_ {
        self.tree.modes().iter().map(Layout::part)
    }

    /// The sub-layout of top-level mode `mode`.
    pub fn mode(&self, mode: usize) -> Result<Layout> {
        self.tree.modes().get(mode).map(Layout::part).ok_or_else(|| LayoutError::Rank {
            op: "mode",
            what: format!("layout {self}"),
            found: self.rank(),
            expected: format!("more than {mode}"),
        })
    }

    /// A part of a valid layout is a valid layout.
    pub(crate) fn part(tree: &Tree<Mode>) -> Layout {
        let (mut size, mut integral) = (1, true);
        for mode in tree.leaves() {
            size *= mode.extent;
            integral &= mode.stride.along_basis().is_none();
        }
        Layout { tree: tree.clone(), size, integral }
    }

    pub(crate) fn into_tree(self) -> Tree<Mode> {
        self.tree
    }
}

/// Evaluation.
impl Layout {
    /// The value at a one-dimensional index, counted with the first mode fastest.
    ///
    /// Past the end of the domain the last mode goes on, as in CuTe; a negative index gives `-L(-i)`. Never
    /// allocates.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// let l: Layout = "(4,3):(3,1)".parse()?;
    /// assert_eq!((l.at(5)?, l.at(13)?), (4, 6));
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn at(&self, index: i64) -> Result<i64> {
        let mut sum = Sum::default();
        walk_index(&self.tree, index, &mut |stride, steps| sum.add(stride, steps))?;
        Ok(sum.value)
    }

    /// The value at a coordinate: an index, a tuple nested like the shape, or anything between. `_` counts as 0.
    ///
    /// Allocates nothing when the values are integers.
    ///
    /// ```
    /// # use tilewright_layout::{Coord, Layout};
    /// let l: Layout = "(4,(3,2)):(1,(4,12))".parse()?;
    /// assert_eq!(l.eval(&Coord::from((1, (2, 1))))?, 21.into());
    /// assert_eq!(l.eval(&Coord::from((1, 5)))?, 21.into());
    /// let id: Layout = "(4,8):(1@1,1@0)".parse()?;
    /// assert_eq!(id.eval(&Coord::from((1, 2)))?.to_string(), "(2,1)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn eval(&self, coord: &Coord) -> Result<IntTuple> {
        if self.is_integral() {
            let mut sum = Sum::default();
            walk(&self.tree, coord, &mut |stride, steps| sum.add(stride, steps))?;
            return Ok(Tree::Leaf(sum.value));
        }
        let mut values: Vec<(Basis, Sum)> =
            self.bases().into_iter().map(|basis| (basis, Sum::default())).collect();
        walk(&self.tree, coord, &mut |stride, steps| {
            match values.iter_mut().find(|(basis, _)| *basis == stride.along_basis()) {
                Some((_, sum)) => sum.add(Stride::from(stride.value()), steps),
                None => Ok(()), // stride 0
            }
        })?;
        let values: Vec<(Basis, i64)> = values.into_iter().map(|(basis, sum)| (basis, sum.value)).collect();
        Ok(nest(&values, 0, &mut |_, value| Tree::Leaf(value.unwrap_or(0))))
    }
}

/// An overflow-checked sum of `steps * stride`.
#[derive(Default)]
struct Sum {
    value: i64,
}

impl Sum {
    fn add(&mut self, stride: Stride, steps: i64) -> Result<()> {
        if !stride.along_basis().is_none() {
            return Err(argument("at", "the values are coordinates, not integers; use `eval`"));
        }
        self.value = stride
            .value()
            .checked_mul(steps)
            .and_then(|term| self.value.checked_add(term))
            .ok_or_else(|| overflow("the value at that coordinate"))?;
        Ok(())
    }
}

fn walk_index(tree: &Tree<Mode>, index: i64, add: &mut impl FnMut(Stride, i64) -> Result<()>) -> Result<()> {
    let mut rest = index;
    let mut pending: Option<Mode> = None;
    // Each mode waits until the next one is seen: the last one takes all that is left.
    tree.visit(&mut |mode| {
        if let Some(previous) = pending.replace(*mode) {
            add(previous.stride, rest % previous.extent)?;
            rest /= previous.extent;
        }
        Ok(())
    })?;
    pending.map_or(Ok(()), |last| add(last.stride, rest))
}

fn walk(tree: &Tree<Mode>, coord: &Coord, add: &mut impl FnMut(Stride, i64) -> Result<()>) -> Result<()> {
    match (tree, coord) {
        (_, Tree::Leaf(Index::All)) => Ok(()),
        (_, Tree::Leaf(Index::At(index))) => walk_index(tree, *index, add),
        (Tree::Tuple(modes), Tree::Tuple(coords)) if modes.len() == coords.len() => {
            modes.iter().zip(coords).try_for_each(|(mode, coord)| walk(mode, coord, add))
        }
        (_, Tree::Tuple(coords)) => Err(coordinate_rank("eval", tree, coord, coords.len())),
    }
}

fn coordinate_rank(op: &'static str, tree: &Tree<Mode>, coord: &Coord, found: usize) -> LayoutError {
    let shape = tree.map(&mut |mode| mode.extent);
    let expected = match tree {
        Tree::Leaf(_) => format!("an integer for extent {shape}"),
        Tree::Tuple(modes) => format!("{} for shape {shape}, or an integer", modes.len()),
    };
    LayoutError::Rank { op, what: format!("coordinate {coord}"), found, expected }
}

/// Builds the nested tuple whose leaves sit at the sorted basis paths in `values`; `level` levels are already
/// open. Modes that no path reaches are leaves without a value.
pub(crate) fn nest<V: Copy, T>(
    values: &[(Basis, V)],
    level: usize,
    leaf: &mut impl FnMut(&[u8], Option<V>) -> Tree<T>,
) -> Tree<T> {
    fn go<V: Copy, T>(
        values: &[(Basis, V)],
        level: usize,
        at: &mut Vec<u8>,
        leaf: &mut impl FnMut(&[u8], Option<V>) -> Tree<T>,
    ) -> Tree<T> {
        match values {
            [] => leaf(at, None),
            [(basis, value)] if basis.path().len() == level => leaf(at, Some(*value)),
            [.., (last, _)] => {
                let rank = last.path().get(level).map_or(0, |mode| mode + 1);
                let modes = (0..rank).map(|mode| {
                    let from = values.partition_point(|(basis, _)| basis.path().get(level) < Some(&mode));
                    let to = values.partition_point(|(basis, _)| basis.path().get(level) <= Some(&mode));
                    at.push(mode);
                    let tree = go(&values[from..to], level + 1, at, leaf);
                    at.pop();
                    tree
                });
                Tree::Tuple(modes.collect())
            }
        }
    }
    go(values, level, &mut Vec::new(), leaf)
}

/// Rearranging modes.
impl Layout {
    /// All leaves in one tuple; a single mode stays one.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// assert_eq!("(3,(4,5)):(8,(1,4))".parse::<Layout>()?.flatten().to_string(), "(3,4,5):(8,1,4)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn flatten(&self) -> Layout {
        match &self.tree {
            Tree::Leaf(_) => self.clone(),
            tree => {
                Layout { tree: Tree::Tuple(tree.leaves().map(|mode| Tree::Leaf(*mode)).collect()), ..*self }
            }
        }
    }

    /// Top-level modes `begin..end` as one nested mode.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// assert_eq!("(4,5,6):(1,4,20)".parse::<Layout>()?.group(0..2)?.to_string(), "((4,5),6):((1,4),20)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn group(&self, modes: std::ops::Range<usize>) -> Result<Layout> {
        if modes.start >= modes.end || modes.end > self.rank() {
            return Err(argument(
                "group",
                format!("modes {}..{} are not in 0..{} of {self}", modes.start, modes.end, self.rank()),
            ));
        }
        let mut all = self.tree.modes().to_vec();
        let grouped: Vec<_> = all.splice(modes.clone(), [Tree::Tuple(Vec::new())]).collect();
        all[modes.start] = Tree::Tuple(grouped);
        Ok(Layout { tree: Tree::Tuple(all), ..*self })
    }

    /// The given top-level modes, in the given order.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// assert_eq!("(4,2,8):(1,4,8)".parse::<Layout>()?.select(&[2, 0])?.to_string(), "(8,4):(8,1)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn select(&self, modes: &[usize]) -> Result<Layout> {
        Layout::tuple(modes.iter().map(|&mode| self.mode(mode)).collect::<Result<Vec<_>>>()?)
    }

    /// `self` with `mode` behind its top-level modes.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// let l: Layout = "(4,5):(1,4)".parse()?;
    /// assert_eq!(l.append(&"3:20".parse()?)?.to_string(), "(4,5,3):(1,4,20)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn append(&self, mode: &Layout) -> Result<Layout> {
        Layout::tuple(self.modes().chain([mode.clone()]))
    }

    /// `self` with `mode` before its top-level modes.
    pub fn prepend(&self, mode: &Layout) -> Result<Layout> {
        Layout::tuple([mode.clone()].into_iter().chain(self.modes()))
    }

    /// The modes under `_` in `coord`: what is left when the other coordinates are fixed.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// let l: Layout = "((2,4),3):((1,2),8)".parse()?;
    /// assert_eq!(l.slice(&"((_,0),_)".parse()?)?.to_string(), "(2,3):(1,8)");
    /// assert_eq!(l.slice_and_offset(&"((_,3),1)".parse()?)?.1, 14.into());
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn slice(&self, coord: &Coord) -> Result<Layout> {
        self.pick("slice", coord, Index::All)
    }

    /// The modes that are *not* under `_` in `coord`.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// let l: Layout = "(2,3,4):(1,2,6)".parse()?;
    /// assert_eq!(l.dice(&"(_,1,1)".parse()?)?.to_string(), "(3,4):(2,6)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn dice(&self, coord: &Coord) -> Result<Layout> {
        self.pick("dice", coord, Index::At(0))
    }

    /// [`Layout::slice`] together with the value at `coord`, where `_` counts as 0.
    pub fn slice_and_offset(&self, coord: &Coord) -> Result<(Layout, IntTuple)> {
        Ok((self.slice(coord)?, self.eval(coord)?))
    }

    fn pick(&self, op: &'static str, coord: &Coord, wanted: Index) -> Result<Layout> {
        fn go(
            op: &'static str,
            tree: &Tree<Mode>,
            coord: &Coord,
            wanted: Index,
            out: &mut Vec<Tree<Mode>>,
        ) -> Result<()> {
            match (tree, coord) {
                (_, Tree::Leaf(index)) => {
                    if std::mem::discriminant(index) == std::mem::discriminant(&wanted) {
                        out.push(tree.clone());
                    }
                    Ok(())
                }
                (Tree::Tuple(modes), Tree::Tuple(coords)) if modes.len() == coords.len() => {
                    modes.iter().zip(coords).try_for_each(|(mode, coord)| go(op, mode, coord, wanted, out))
                }
                (_, Tree::Tuple(coords)) => Err(coordinate_rank(op, tree, coord, coords.len())),
            }
        }
        let mut out = Vec::new();
        go(op, &self.tree, coord, wanted, &mut out)?;
        match coord {
            Tree::Leaf(_) => Layout::from_tree(Tree::unwrap_single(out)),
            Tree::Tuple(_) => Layout::from_tree(Tree::Tuple(out)),
        }
    }

    /// The same function on the coordinates of `shape`: `self` composed with the column-major layout of it.
    ///
    /// ```
    /// # use tilewright_layout::Layout;
    /// let l: Layout = "(8,4):(4,1)".parse()?;
    /// assert_eq!(l.with_shape((4, 8))?.to_string(), "(4,(2,4)):(4,(16,1))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn with_shape(&self, shape: impl Into<IntTuple>) -> Result<Layout> {
        self.compose(&Layout::column_major(shape)?)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape(), self.stride())
    }
}
