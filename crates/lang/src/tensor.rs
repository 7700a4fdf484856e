//! [`Shared`]: shared memory with a layout.
//!
//! A tile knows how coordinates become addresses: a CuTe layout, possibly behind a swizzle. Coordinates may be staged; what is
//! constant in them costs nothing, because the compiler folds it.

use std::fmt;

use tilewright_hardware::{HardwareError, Major, SwizzleMode, smem_tile};
use tilewright_ir::{Align, Attr, Bytes, Opcode, Space, Type, Value};
use tilewright_layout::{Composed, IntTuple, Layout, LayoutError, Map, Mode, Swizzle, Tree};

use crate::element::Element;
use crate::memory::{Ptr, SharedPtr};
use crate::trace;
use crate::value::{Operand, Val};

/// What can describe a tile: a layout, a swizzled layout, or the outcome of computing one.
pub trait IntoTile {
    /// The layout, or why there is none.
    fn into_tile(self) -> Result<Composed, String>;
}

impl IntoTile for Composed {
    fn into_tile(self) -> Result<Composed, String> {
        Ok(self)
    }
}

impl IntoTile for &Composed {
    fn into_tile(self) -> Result<Composed, String> {
        Ok(self.clone())
    }
}

impl IntoTile for Layout {
    fn into_tile(self) -> Result<Composed, String> {
        let identity = Swizzle::new(0, 0, 0).map_err(|e| e.to_string())?;
        Composed::new(identity, 0, self).map_err(|e| e.to_string())
    }
}

impl IntoTile for &Layout {
    fn into_tile(self) -> Result<Composed, String> {
        self.clone().into_tile()
    }
}

impl<L: IntoTile> IntoTile for Result<L, LayoutError> {
    fn into_tile(self) -> Result<Composed, String> {
        self.map_err(|e| e.to_string())?.into_tile()
    }
}

impl<L: IntoTile> IntoTile for Result<L, HardwareError> {
    fn into_tile(self) -> Result<Composed, String> {
        self.map_err(|e| e.to_string())?.into_tile()
    }
}

impl IntoTile for &str {
    fn into_tile(self) -> Result<Composed, String> {
        match self.parse::<Layout>() {
            Ok(layout) => layout.into_tile(),
            Err(_) => self.parse::<Composed>().map_err(|e| e.to_string()),
        }
    }
}

/// The tile `(rows, k)` with k contiguous that tensor cores and the copy engine share.
///
/// # Errors
/// When the swizzle does not divide the tile.
pub fn k_major<T: Element>(rows: u32, k: u32, swizzle: SwizzleMode) -> Result<Composed, HardwareError> {
    smem_tile(Major::K, rows, k, T::ELEMENT, swizzle)
}

/// The tile `(rows, k)` with rows contiguous that tensor cores and the copy engine share.
///
/// # Errors
/// When the swizzle does not divide the tile.
pub fn mn_major<T: Element>(rows: u32, k: u32, swizzle: SwizzleMode) -> Result<Composed, HardwareError> {
    smem_tile(Major::Mn, rows, k, T::ELEMENT, swizzle)
}

/// Coordinates of an element: one for each mode of the layout, staged or constant.
pub trait Coordinates {
    /// The coordinates.
    #[track_caller]
    fn coordinates(self) -> Vec<Val<u32>>;
}

impl<C: Operand<u32>, const N: usize> Coordinates for [C; N] {
    #[track_caller]
    fn coordinates(self) -> Vec<Val<u32>> {
        trace::here();
        self.into_iter().map(Operand::val).collect()
    }
}

macro_rules! tuple_coordinates {
    ($( ($($name:ident $i:tt),*) )*) => {$(
        impl<$($name: Operand<u32>),*> Coordinates for ($($name,)*) {
            #[track_caller]
            fn coordinates(self) -> Vec<Val<u32>> {
                vec![$( self.$i.val() ),*]
            }
        }
    )*};
}

tuple_coordinates! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

/// A tile in shared memory.
pub struct Shared<T> {
    ptr: SharedPtr<T>,
    /// Index of the layout in the kernel under construction; none after a mistake.
    layout: Option<usize>,
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Shared<T> {
        *self
    }
}

impl<T> Copy for Shared<T> {}

impl<T> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared {:?}", self.ptr)
    }
}

/// Several tiles of the same layout, one after the other: the buffers of a pipeline.
pub struct Ring<T> {
    first: Shared<T>,
    stages: u32,
    stride: u32,
}

impl<T> Clone for Ring<T> {
    fn clone(&self) -> Ring<T> {
        *self
    }
}

impl<T> Copy for Ring<T> {}

impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {:?}", self.stages, self.first)
    }
}

/// How far a layout reaches. A swizzle that permutes what lies below the end of its layout does not change that, which saves looking
/// at every element.
fn reach(layout: &Composed) -> Result<i64, String> {
    let plain = layout.layout().and_then(|inner| inner.cosize().ok());
    let permutes = |end: i64| {
        layout.outer().all(|(map, offset)| {
            matches!((map, offset), (Map::Swizzle(swizzle), Tree::Leaf(0)) if swizzle.permutes_below(end))
        })
    };
    match plain {
        Some(end) if permutes(end) => Ok(end),
        _ => layout.cosize().map_err(|e| e.to_string()),
    }
}

/// Bytes that a layout spans, and the alignment at which its swizzle starts afresh.
fn extent(layout: &Composed, bits: u32) -> Result<(u32, u32), String> {
    let elements = reach(layout)?;
    let bytes = elements.checked_mul(i64::from(bits)).map(|b| (b + 7) / 8);
    let bytes = bytes.and_then(|b| u32::try_from(b).ok()).filter(|&b| b <= 256 * 1024);
    let bytes =
        bytes.ok_or_else(|| format!("a tile of {elements} elements does not fit in shared memory"))?;
    let align = repeat(layout, bits).max(16);
    Ok((bytes, u32::try_from(align.min(1024)).unwrap_or(1024)))
}

/// Bytes after which the swizzle of a layout starts afresh; one if it has none.
fn repeat(layout: &Composed, bits: u32) -> i64 {
    let period = |map: &Map| match map {
        Map::Swizzle(s) if !s.is_identity() => {
            (1i64 << (s.base() + s.shift().abs() + s.bits()).clamp(0, 20)) * i64::from(bits) / 8
        }
        _ => 1,
    };
    layout.outer().map(|(map, _)| period(map)).fold(1, i64::max)
}

impl<T: Element> Shared<T> {
    /// Shared memory for one tile.
    ///
    /// ```
    /// use tilewright_lang::prelude::*;
    /// #[kernel(threads = 32)]
    /// fn scratch(out: Global<f32>) {
    ///     let tile = Shared::<f32>::new("(4,8):(8,1)");
    ///     let lane = thread_id(0);
    ///     tile.at((lane / 8, lane % 8)).store(1.0);
    ///     out.at(lane).store(tile.at((0u32, 0u32)).load());
    /// }
    /// scratch::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(layout: impl IntoTile) -> Shared<T> {
        Ring::new(1, layout).first
    }

    /// The pointer to the start of the tile.
    #[must_use]
    pub fn ptr(self) -> SharedPtr<T> {
        self.ptr
    }

    /// The layout; of a tile that could not be made, that of one element.
    #[must_use]
    #[allow(clippy::expect_used, reason = "not an input")]
    pub fn layout(self) -> Composed {
        self.known().unwrap_or_else(|| "1:1".into_tile().expect("one element has a layout"))
    }

    /// The layout, unless there was a mistake, which has been reported.
    pub(crate) fn known(self) -> Option<Composed> {
        self.layout.map(|layout| trace::with(|t| t.layouts[layout].clone()))
    }

    /// The same for functions that are compiled once for all types; the layout still counts elements of this one.
    pub(crate) fn bytewise(self) -> Shared<u8> {
        Shared { ptr: self.ptr.cast(), layout: self.layout }
    }

    /// Bytes of the tile.
    #[must_use]
    pub fn bytes(self) -> u32 {
        extent(&self.layout(), T::ELEMENT.bits()).map_or(0, |(bytes, _)| bytes)
    }

    /// The pointer to an element.
    #[must_use]
    #[track_caller]
    pub fn at(self, coordinates: impl Coordinates) -> SharedPtr<T> {
        let coordinates = coordinates.coordinates();
        match self.known() {
            Some(layout) => self.ptr.at(evaluate(&layout, &coordinates)),
            None => self.ptr,
        }
    }

    /// The same memory with another layout, which must fit.
    #[must_use]
    #[track_caller]
    pub fn view<U: Element>(self, layout: impl IntoTile) -> Shared<U> {
        trace::here();
        let room = self.layout.map(|_| self.bytes());
        Shared { ptr: self.ptr.cast(), layout: fitting(layout.into_tile(), U::ELEMENT.bits(), room) }
    }

    /// A tile inside of this one that starts `offset` bytes further: for memory that holds different things at different times. The
    /// layout must fit; that a staged offset leaves room for it is the caller's to see to.
    ///
    /// ```
    /// use tilewright_lang::prelude::*;
    /// #[kernel(threads = 64)]
    /// fn two_lives(out: Global<f32>) {
    ///     let memory = Shared::<u8>::new("512:1");
    ///     let numbers = memory.part::<f32>(warp_id() * 256, "(8,8):(8,1)");
    ///     numbers.at((lane_id() / 8, lane_id() % 8)).store(1.0);
    ///     out.at(thread_id(0)).store(numbers.at((lane_id() / 8, lane_id() % 8)).load());
    /// }
    /// two_lives::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn part<U: Element>(self, offset: impl Operand<u32>, layout: impl IntoTile) -> Shared<U> {
        let offset = offset.val();
        let part = self.view::<U>(layout);
        Shared { ptr: part.ptr.byte_add(offset), layout: part.layout }
    }
}

impl<T: Element> Ring<T> {
    /// Shared memory for `stages` tiles.
    #[must_use]
    #[track_caller]
    pub fn new(stages: u32, layout: impl IntoTile) -> Ring<T> {
        trace::here();
        let (ptr, layout, stride) = allocate(stages, layout.into_tile(), T::ELEMENT.bits());
        Ring { first: Shared { ptr: Ptr::of(ptr), layout }, stages, stride }
    }

    /// The number of tiles.
    #[must_use]
    pub fn stages(self) -> u32 {
        self.stages
    }

    /// Tile number `stage`.
    #[must_use]
    #[track_caller]
    pub fn at(self, stage: impl Operand<u32>) -> Shared<T> {
        let stage = stage.val();
        Shared { ptr: self.first.ptr.byte_add(stage * self.stride), layout: self.first.layout }
    }
}

/// Shared memory for `stages` tiles of such elements: the pointer, the index of the layout, and the bytes from tile to tile.
#[track_caller]
fn allocate(stages: u32, layout: Result<Composed, String>, bits: u32) -> (Value, Option<usize>, u32) {
    let layout = trace::check(layout);
    let known = layout.and_then(|l| trace::check(extent(&l, bits)).map(|e| (l, e)));
    let Some((layout, (bytes, align))) = known else {
        return (trace::poison(Type::Pointer(Space::Shared)), None, 0);
    };
    // The copy engine takes boxes at multiples of 128 bytes only; what is smaller is not worth the padding.
    let align = if bytes < 128 { align } else { align.max(128) };
    let stride = bytes.next_multiple_of(align);
    let total = stride.saturating_mul(stages.max(1));
    let attrs: [Attr; 2] = [Bytes(total).into(), Align(align).into()];
    (trace::value(Opcode::Shared, [], attrs, None), Some(intern(layout)), stride)
}

/// The index of a layout whose tile of such elements has to fit in so many bytes.
#[track_caller]
fn fitting(layout: Result<Composed, String>, bits: u32, room: Option<u32>) -> Option<usize> {
    let layout = trace::check(layout);
    let extent = layout.as_ref().and_then(|layout| trace::check(extent(layout, bits)));
    if let (Some((need, _)), Some(room)) = (extent, room)
        && need > room
    {
        trace::error(format!("a view of {need} bytes on a tile of {room}"));
    }
    layout.map(intern)
}

fn intern(layout: Composed) -> usize {
    trace::with(|t| match t.layouts.iter().position(|known| *known == layout) {
        Some(i) => i,
        None => {
            t.layouts.push(layout);
            t.layouts.len() - 1
        }
    })
}

/// The element index at staged coordinates.
#[track_caller]
fn evaluate(layout: &Composed, coordinates: &[Val<u32>]) -> Val<u32> {
    let Some(inner) = layout.layout() else {
        trace::error(format!("{layout} has no shape to index"));
        return 0u32.val();
    };
    let modes: Vec<Tree<Mode>> = match inner.tree() {
        Tree::Leaf(_) => vec![inner.tree().clone()],
        Tree::Tuple(modes) => modes.clone(),
    };
    if modes.len() != coordinates.len() {
        trace::error(format!(
            "{} coordinates for {layout}, which has {} modes",
            coordinates.len(),
            modes.len()
        ));
        return 0u32.val();
    }
    let mut index: Option<Val<u32>> = None;
    for (mode, &coordinate) in modes.iter().zip(coordinates) {
        let mut add = |term: Val<u32>| index = Some(index.map_or(term, |sum| sum + term));
        let leaves: Vec<&Mode> = mode.leaves().collect();
        let mut rest = coordinate;
        for (i, leaf) in leaves.iter().enumerate() {
            let (Ok(extent), Some(stride)) = (u32::try_from(leaf.extent), stride_of(leaf)) else {
                trace::error(format!("{layout} has a mode that cannot index shared memory"));
                return 0u32.val();
            };
            let last = i + 1 == leaves.len();
            let digit = if last { rest } else { rest % extent };
            if stride != 0 {
                add(digit * stride);
            }
            if !last {
                rest /= extent;
            }
        }
    }
    let mut index = index.unwrap_or_else(|| 0u32.val());
    let outer: Vec<(&Map, &IntTuple)> = layout.outer().collect();
    for (map, offset) in outer.into_iter().rev() {
        index = apply(map, offset, index);
    }
    index
}

fn stride_of(mode: &Mode) -> Option<u32> {
    // A basis stride names a coordinate of a tensor, not a place in memory.
    mode.stride.along_basis().is_none().then(|| u32::try_from(mode.stride.value()).ok()).flatten()
}

/// `map(offset + index)`.
#[track_caller]
fn apply(map: &Map, offset: &IntTuple, index: Val<u32>) -> Val<u32> {
    let offset = match offset {
        Tree::Leaf(n) => u32::try_from(*n).ok(),
        Tree::Tuple(_) => None,
    };
    let (Some(offset), Map::Swizzle(swizzle)) = (offset, map) else {
        trace::error(format!(
            "{map} cannot be applied to a staged index; use a swizzle with a non-negative offset"
        ));
        return index;
    };
    let x = if offset == 0 { index } else { index + offset };
    if swizzle.is_identity() {
        return x;
    }
    let to_u32 = |n: i64| u32::try_from(n).unwrap_or(31).min(31);
    let (bits, base, shift) = (to_u32(swizzle.bits()), to_u32(swizzle.base()), to_u32(swizzle.shift().abs()));
    let mask = ((1u32 << bits) - 1) << base;
    // Bits from `base + shift` on are folded onto those from `base` on; a negative shift goes the other way.
    if swizzle.shift() > 0 { x ^ ((x >> shift) & mask) } else { x ^ ((x & mask) << shift) }
}

impl<T: Element> Shared<T> {
    /// Rows `block * rows .. (block + 1) * rows` as a tile of their own. The swizzle must repeat at that distance.
    #[must_use]
    #[track_caller]
    pub fn row_block(self, block: impl Operand<u32>, rows: u32) -> Shared<T> {
        let block = block.val();
        let Some(layout) = self.known() else { return self };
        match split_rows(&layout, rows, T::ELEMENT.bits()) {
            Ok((part, stride)) => {
                Shared { ptr: self.ptr.byte_add(block * stride), layout: Some(intern(part)) }
            }
            Err(reason) => {
                trace::error(reason);
                self
            }
        }
    }
}

/// The layout of the first `rows` rows of a tile, and the distance in bytes to the next as many.
fn split_rows(layout: &Composed, rows: u32, bits: u32) -> Result<(Composed, u32), String> {
    let refuse = |reason: &str| Err(format!("{layout} cannot be cut into blocks of {rows} rows: {reason}"));
    let size = i64::from(rows);
    let Some(Tree::Tuple(modes)) = layout.layout().map(Layout::tree) else { return refuse("it has no rows") };
    let all: i64 = modes.first().map_or(0, |m| m.leaves().map(|leaf| leaf.extent).product());
    if rows == 0 || all % size != 0 {
        return refuse(&format!("it has {all} rows"));
    }
    let tiler = layout.map_inner("row_block", |inner| {
        let first = inner.mode(0)?.compose(&Layout::new(size, 1)?)?;
        let rest = (1..inner.rank()).map(|i| inner.mode(i)).collect::<Result<Vec<_>, _>>()?;
        Layout::tuple(std::iter::once(first).chain(rest))
    });
    let part = tiler.map_err(|e| e.to_string())?;
    let offset = |row: i64| -> Result<i64, String> {
        match layout.eval(&tilewright_layout::Coord::from((row, 0i64))).map_err(|e| e.to_string())? {
            Tree::Leaf(n) => Ok(n * i64::from(bits) / 8),
            Tree::Tuple(_) => Err("its elements have no place in memory".to_owned()),
        }
    };
    let stride = if all == size { 0 } else { offset(size)? - offset(0)? };
    if (1..all / size).any(|block| offset(block * size).ok() != Some(block * stride)) {
        return refuse("the blocks do not lie at equal distances");
    }
    let repeat = repeat(layout, bits);
    if stride % repeat != 0 {
        return refuse(&format!("the swizzle repeats every {repeat} bytes, the blocks every {stride}"));
    }
    let Ok(stride) = u32::try_from(stride) else { return refuse("the distance is negative") };
    Ok((part, stride))
}
