//! [`View`]: a tensor in memory, and the boxes of it that tiles are loaded from and stored to.

use tilewright_ir::{Attr, Cache, Cmp, Evict, Opcode, Operands, Type, Value};

use super::position::{Position, TileCoordinate};
use super::program::{grouped_order, program_id};
use super::value::{Tile, TileOperand, axis_of, grown, shape_of};
use crate::element::Element;
use crate::kernel::{Argument, declare, declare_memory};
use crate::memory::Global;
use crate::stage::{Carry, compare};
use crate::trace::{self, Partition, ViewParameter};
use crate::value::{Operand, Val, select};

/// A tensor of `R` dimensions in global memory: a pointer, how far it extends along each axis, and the distances of neighbours along
/// each axis in elements.
///
/// As a kernel parameter `x`, it is a pointer `x`, then `x_extent0`, ... (u32), then `x_stride0`, ... (i64). Extents are below 2^31.
/// Outermost axes come first; any strides will do, and what is promised of them ([`unit_stride`](View::unit_stride),
/// [`aligned`](View::aligned), [`stride_multiple`](View::stride_multiple)) lets accesses be wide.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
///
/// #[kernel]
/// fn transpose(x: View<f32, 2>, out: View<f32, 2>) {
///     let (i, j) = (program_id(0), program_id(1));
///     let tile = x.tile([64, 64]).block((i, j)).load();
///     out.tile([64, 64]).block((j, i)).store(tile.transpose());
/// }
///
/// let kernel = transpose::stage()?;
/// let names: Vec<&str> = kernel.parameters().map(|(name, ..)| name).collect();
/// assert_eq!(names[..5], ["x", "x_extent0", "x_extent1", "x_stride0", "x_stride1"]);
/// let out = &kernel.views()[1];
/// assert!(out.name == "out" && out.rank == 2 && out.writes && !out.reads);
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
pub struct View<T, const R: usize> {
    ptr: Global<T>,
    extents: [Val<u32>; R],
    strides: [Val<i64>; R],
}

impl<T, const R: usize> Clone for View<T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const R: usize> Copy for View<T, R> {}

impl<T, const R: usize> std::fmt::Debug for View<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?} {:?}", self.ptr, self.extents, self.strides)
    }
}

#[diagnostic::do_not_recommend]
impl<T, const R: usize> Carry for View<T, R> {
    fn values(&self, out: &mut Vec<Value>) {
        self.ptr.values(out);
        self.extents.values(out);
        self.strides.values(out);
    }
    fn replace(&mut self, from: &mut dyn Iterator<Item = Value>) {
        self.ptr.replace(from);
        self.extents.replace(from);
        self.strides.replace(from);
    }
}

impl<T: Element, const R: usize> Argument for View<T, R> {
    fn declare(name: &str) -> Self {
        let ty = Type::Pointer(tilewright_ir::Space::Global);
        let ptr = Global::of(declare_memory::<T>(name, ty, T::ELEMENT.bytes()));
        let extents = std::array::from_fn(|i| Val::of(declare(&format!("{name}_extent{i}"), Type::U32, 0)));
        let strides = std::array::from_fn(|i| Val::of(declare(&format!("{name}_stride{i}"), Type::I64, 0)));
        let parameter = ViewParameter {
            pointer: ptr.id,
            extents: extents.iter().map(|extent: &Val<u32>| extent.id).collect(),
            unit_strides: vec![false; R],
            partition: None,
        };
        trace::with(|t| t.views.push(parameter));
        View { ptr, extents, strides }
    }
}

impl<T: Element, const R: usize> View<T, R> {
    /// A view of memory that a pointer leads to. Strides count elements. If it is stored to, each element lies apart from all others, as it
    /// does in views that are parameters; nobody checks it of this one.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    /// #[kernel]
    /// fn k(x: Global<f32>, n: Val<u32>) {
    ///     let x = View::new(x, [n, n], [n.cast::<i64>(), val(1)]);
    ///     x.tile([8, 8]).at((0, 0)).store(Tile::zeros([8, 8]));
    /// }
    /// k::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn new(pointer: Global<T>, extents: [impl Operand<u32>; R], strides: [impl Operand<i64>; R]) -> Self {
        trace::here();
        View { ptr: pointer, extents: extents.map(Operand::val), strides: strides.map(Operand::val) }
    }

    /// Extents and strides.
    pub(super) fn bounds(self) -> ([Val<u32>; R], [Val<i64>; R]) {
        (self.extents, self.strides)
    }

    /// The pointer to the first element.
    #[must_use]
    pub fn pointer(self) -> Global<T> {
        self.ptr
    }

    /// The extent along an axis.
    #[must_use]
    #[track_caller]
    pub fn extent(self, axis: i32) -> Val<u32> {
        match axis_of(axis, R) {
            Some(axis) => self.extents[axis],
            None => 1.val(),
        }
    }

    /// The distance of neighbours along an axis, in elements.
    #[must_use]
    #[track_caller]
    pub fn stride(self, axis: i32) -> Val<i64> {
        match axis_of(axis, R) {
            Some(axis) => self.strides[axis],
            None => 1.val(),
        }
    }

    /// A tile of these extents somewhere in the view: say where with [`at`](TileRef::at) or [`block`](TileRef::block).
    #[must_use]
    #[track_caller]
    pub fn tile(self, shape: [u32; R]) -> TileRef<T, R> {
        let shape = shape_of(&shape);
        TileRef { view: self, shape: std::array::from_fn(|i| shape.extents().get(i).copied().unwrap_or(1)) }
    }

    /// Loads one element, the same for the whole program; zero if the position is outside.
    #[must_use]
    #[track_caller]
    pub fn load_scalar(self, position: impl Position<R>) -> Val<T> {
        trace::here();
        let position = position.scaled([1; R]);
        let each = position.iter().zip(self.extents);
        let each = each.map(|(&i, extent)| compare(i.bitcast::<u32>(), extent, Cmp::Lt));
        let zero = Val::of(trace::constant(T::ELEMENT, 0));
        match each.reduce(|a, b| a & b) {
            Some(inside) => self.pointer_to(position).load_if(inside, zero),
            None => self.ptr.load(),
        }
    }

    /// The same of a position that is inside, which nothing checks: one outside reads memory that is not the view's.
    #[must_use]
    #[track_caller]
    pub fn load_scalar_unchecked(self, position: impl Position<R>) -> Val<T> {
        self.pointer_to(position).load()
    }

    /// Stores one element, the same for the whole program; nothing if the position is outside.
    #[track_caller]
    pub fn store_scalar(self, position: impl Position<R>, value: impl Operand<T>) {
        trace::here();
        let value = value.val();
        self.tile([1; R]).at(position).store(Tile::full(&[1; R][..], value));
    }

    #[track_caller]
    fn pointer_to(self, position: impl Position<R>) -> Global<T> {
        trace::here();
        let position = position.scaled([1; R]);
        let terms = position.iter().zip(&self.strides).map(|(&i, &stride)| i.cast::<i64>() * stride);
        match terms.reduce(|a, b| a + b) {
            Some(offset) => self.ptr.at(offset),
            None => self.ptr,
        }
    }

    /// The part from a position on: element 0 of the result is the one there, and it extends as far as this view does. The position must
    /// not be negative; beyond the end nothing is left.
    #[must_use]
    #[track_caller]
    pub fn shift(self, position: impl Position<R>) -> Self {
        trace::here();
        let ptr = self.pointer_to(position);
        let position = position.scaled([1; R]);
        let extents = std::array::from_fn(|i| {
            let start = position[i].bitcast::<u32>();
            self.extents[i] - start.min(self.extents[i])
        });
        View { ptr, extents, strides: self.strides }
    }

    /// `length` elements along an axis from `start` on; fewer where the view ends before. The start must not be negative.
    #[must_use]
    #[track_caller]
    pub fn slice(self, axis: i32, start: impl TileCoordinate, length: impl Operand<u32>) -> Self {
        trace::here();
        let length = length.val();
        let Some(axis) = axis_of(axis, R) else { return self };
        let start = start.scaled(1);
        let mut sliced = View { ptr: self.ptr.at(start.cast::<i64>() * self.strides[axis]), ..self };
        let left = self.extents[axis] - start.bitcast::<u32>().min(self.extents[axis]);
        sliced.extents[axis] = left.min(length);
        sliced
    }

    /// Axes in another order: axis `i` of the result is axis `order[i]` of this view. Nothing moves in memory.
    #[must_use]
    #[track_caller]
    pub fn permute(self, order: [i32; R]) -> Self {
        trace::here();
        let found: Vec<usize> = order.iter().filter_map(|&axis| axis_of(axis, R)).collect();
        if (0..R).any(|axis| !found.contains(&axis)) {
            trace::error(format!(
                "an order of axes {order:?} for a view of {R} dimensions; expected each axis once"
            ));
            return self;
        }
        View {
            ptr: self.ptr,
            extents: std::array::from_fn(|i| self.extents[found[i]]),
            strides: std::array::from_fn(|i| self.strides[found[i]]),
        }
    }

    /// Works on what is noted of this view, if it is a parameter as it was declared: whole, and with its axes in order.
    fn with_parameter<U>(self, work: impl FnOnce(&mut ViewParameter) -> U) -> Option<U> {
        let same = |view: &ViewParameter| {
            view.pointer == self.ptr.id
                && view.extents.iter().copied().eq(self.extents.map(|extent| extent.id))
        };
        trace::with(|t| t.views.iter_mut().find(|view| same(view)).map(work))
    }

    /// The tile that belongs to this program when the view is cut into tiles of these extents and each program gets one: along axis 0 the
    /// one with the number [`program_id`]`(0)`, along axis 1 that of `program_id(1)`, and so on. In more than three dimensions the last two
    /// axes have ids 1 and 2, and all before them share id 0.
    ///
    /// The host finds the partition in [`Kernel::views`](crate::Kernel::views), and knows how many programs to run. A view that is stored to
    /// through its partition is stored to nowhere else, which is checked here: each element of it is written by one program, and no two are
    /// in each other's way. What a program *reads* of a view that others write is up to the kernel. All partitions of one view have the same
    /// tile, and those of several views the same number of tiles at launch.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// #[kernel]
    /// fn add(x: View<f32, 2>, y: View<f32, 2>, out: View<f32, 2>) {
    ///     let [x, y] = [x, y].map(|view| view.partition([16, 128]).load());
    ///     out.partition([16, 128]).store(x + y);
    /// }
    ///
    /// let kernel = add::stage()?;
    /// assert_eq!(kernel.views()[2].partition, Some(vec![16, 128]));
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn partition(self, tile: [u32; R]) -> Place<T, R> {
        trace::here();
        // The axes that share id 0: all but the last two, and at least one.
        let shared = R.saturating_sub(2).max(1);
        let boxes = self.tile(tile);
        let mut index = [program_id(0); R];
        for axis in (1..shared).rev() {
            let blocks = self.extents[axis].div_ceil(boxes.shape[axis]);
            (index[axis], index[0]) = (index[0] % blocks, index[0] / blocks);
        }
        for (id, index) in (1..).zip(index.iter_mut().skip(shared)) {
            *index = program_id(id);
        }
        self.own(boxes, index)
    }

    /// Notes that a box is that of this program.
    #[track_caller]
    fn own(self, boxes: TileRef<T, R>, index: [Val<u32>; R]) -> Place<T, R> {
        let place = boxes.block(index);
        let starts = place.starts.map(|start| start.id).to_vec();
        let other = self.with_parameter(|view| {
            let partition = view
                .partition
                .get_or_insert_with(|| Partition { tile: boxes.shape.to_vec(), starts: Vec::new() });
            partition.starts.push(starts);
            (partition.tile != boxes.shape).then(|| partition.tile.clone())
        });
        match other {
            None => trace::error(
                "`partition` of a view that is no parameter; call it on the parameter itself, or use `tile` and `block`",
            ),
            Some(Some(other)) => trace::error(format!(
                "a partition into tiles of {:?}, and another of the same view into {other:?}; expected the same tiles",
                boxes.shape
            )),
            Some(None) => {}
        }
        place
    }

    /// Promises that this parameter's address is a multiple of `bytes`. The host checks it at launch.
    #[must_use]
    #[track_caller]
    pub fn aligned(self, bytes: u32) -> Self {
        View { ptr: self.ptr.aligned(bytes), ..self }
    }

    /// Promises that neighbours along an axis lie side by side in memory: a stride of 1. [`Kernel::views`](crate::Kernel::views) says so to
    /// the host, which checks it at launch.
    #[must_use]
    #[track_caller]
    pub fn unit_stride(self, axis: i32) -> Self {
        trace::here();
        let Some(axis) = axis_of(axis, R) else { return self };
        let known = self.with_parameter(|view| view.unit_strides[axis] = true);
        if known.is_none() {
            trace::error("`unit_stride` is a promise about a parameter; call it on the parameter itself");
            return self;
        }
        let mut view = self;
        view.strides[axis] = 1.val();
        view
    }

    /// Promises that the stride along an axis is a multiple of so many elements: rows that begin at multiples of 16 bytes can be read 16
    /// bytes at a time. The host checks it at launch.
    #[must_use]
    #[track_caller]
    pub fn stride_multiple(self, axis: i32, of: u32) -> Self {
        let Some(at) = axis_of(axis, R) else { return self };
        promise(self.strides[at].id, of, "stride_multiple");
        self
    }

    /// Promises that the extent along an axis is a multiple of a number. The host checks it at launch.
    #[must_use]
    #[track_caller]
    pub fn extent_multiple(self, axis: i32, of: u32) -> Self {
        let Some(at) = axis_of(axis, R) else { return self };
        promise(self.extents[at].id, of, "extent_multiple");
        self
    }
}

/// Notes that an integer parameter is a multiple of a number.
#[track_caller]
fn promise(value: Value, of: u32, method: &str) {
    if of == 0 {
        trace::error("a multiple of 0; expected a multiple of at least 1");
        return;
    }
    let known = trace::with(|t| {
        let func = &mut t.builder.func;
        let position = func.region(func.body()).args.iter().position(|&arg| arg == value);
        if let Some(i) = position {
            func.params[i].align = func.params[i].align.max(of);
        }
        position.is_some()
    });
    if !known {
        trace::error(format!("`{method}` is a promise about a parameter; call it on the parameter itself"));
    }
}

/// Views of one dimension less.
macro_rules! fewer_dimensions {
    ($($rank:literal to $less:literal;)*) => {$(
        impl<T: Element> View<T, $rank> {
            /// The view at one index along an axis, which goes. At an index outside there is nothing: the first extent of the result is 0, so that
            /// tiles are padded when they are loaded, and dropped when they are stored.
            ///
            /// ```
            /// use tilewright_lang::tile::prelude::*;
            /// /// Each row minus the next one; the last one as it is.
            /// #[kernel]
            /// fn differences(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
            ///     let [own, next] = [0u32, 1].map(|ahead| x.row(program_id(0) + ahead).tile([columns]).at(0).load());
            ///     out.row(program_id(0)).tile([columns]).at(0).store(own - next);
            /// }
            /// differences::stage(128)?;
            /// # Ok::<(), tilewright_lang::Error>(())
            /// ```
            #[must_use]
            #[track_caller]
            pub fn select(self, axis: i32, index: impl TileCoordinate) -> View<T, $less> {
                trace::here();
                let index = index.scaled(1);
                let at = axis_of(axis, $rank).unwrap_or(0);
                let inside = compare(index.bitcast::<u32>(), self.extents[at], Cmp::Lt);
                let mut view = self.select_unchecked(axis, index);
                view.extents[0] = select(inside, view.extents[0], 0u32);
                view
            }

            /// The same for an index that is inside, which nothing checks: one outside reads and writes memory that is not the view's. Extents
            /// stay what they were, so that the copy engine of Hopper can load factors of products from it.
            #[must_use]
            #[track_caller]
            pub fn select_unchecked(self, axis: i32, index: impl TileCoordinate) -> View<T, $less> {
                trace::here();
                let index = index.scaled(1);
                let at = axis_of(axis, $rank).unwrap_or(0);
                let rest = |i: usize| if i < at { i } else { i + 1 };
                View {
                    ptr: self.ptr.at(index.cast::<i64>() * self.strides[at]),
                    extents: std::array::from_fn(|i| self.extents[rest(i)]),
                    strides: std::array::from_fn(|i| self.strides[rest(i)]),
                }
            }

            /// The view at one index of the first axis, which goes: a row of a matrix. Outside there is nothing, as in [`select`](View::select).
            #[must_use]
            #[track_caller]
            pub fn row(self, index: impl TileCoordinate) -> View<T, $less> {
                self.select(0, index)
            }

            /// The last two axes swapped. Nothing moves in memory.
            #[must_use]
            pub fn transpose(self) -> Self {
                let mut view = self;
                view.extents.swap($rank - 2, $rank - 1);
                view.strides.swap($rank - 2, $rank - 1);
                view
            }
        }
    )*};
}

fewer_dimensions! {
    2 to 1;
    3 to 2;
    4 to 3;
    5 to 4;
}

impl<T: Element> View<T, 2> {
    /// Like [`partition`](View::partition), but programs go over the tiles [`group` rows at a time](grouped_order): those that run together
    /// share rows and columns of the factors of a product. [`Place::start`] says which tile a program has.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// #[kernel]
    /// fn matmul(a: View<bf16, 2>, b: View<bf16, 2>, c: View<bf16, 2>, m: u32, n: u32, k: u32) {
    ///     let own = c.partition_grouped([m, n], 8);
    ///     let mut acc = Tile::<f32>::zeros([m, n]);
    ///     for step in 0..a.extent(1).div_ceil(k) {
    ///         let a = a.tile([m, k]).at((own.start(0), step * k)).load();
    ///         acc = dot(a, b.tile([k, n]).at((step * k, own.start(1))).load(), acc);
    ///     }
    ///     own.store(acc.cast());
    /// }
    /// matmul::stage(128, 128, 64)?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn partition_grouped(self, tile: [u32; 2], group: u32) -> Place<T, 2> {
        trace::here();
        let boxes = self.tile(tile);
        let (rows, columns) = (boxes.blocks(0), boxes.blocks(1));
        // Programs begin in the order of their first id.
        let index = program_id(1) * rows + program_id(0);
        let (i, j) = grouped_order(index, rows, columns, group);
        self.own(boxes, [i, j])
    }
}

/// A box of certain extents somewhere in a view: [`View::tile`].
pub struct TileRef<T, const R: usize> {
    view: View<T, R>,
    shape: [u32; R],
}

impl<T, const R: usize> Clone for TileRef<T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const R: usize> Copy for TileRef<T, R> {}

impl<T, const R: usize> std::fmt::Debug for TileRef<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} of {:?}", self.shape, self.view)
    }
}

impl<T: Element, const R: usize> TileRef<T, R> {
    /// The box whose first element is at this position. It may begin before the view, or end beyond it.
    #[must_use]
    #[track_caller]
    pub fn at(self, position: impl Position<R>) -> Place<T, R> {
        let starts = position.scaled([1; R]);
        Place { view: self.view, shape: self.shape, starts, cache: None, evict: None }
    }

    /// The box with this number along each axis when the view is cut into boxes of these extents.
    #[must_use]
    #[track_caller]
    pub fn block(self, index: impl Position<R>) -> Place<T, R> {
        let starts = index.scaled(self.shape);
        Place { view: self.view, shape: self.shape, starts, cache: None, evict: None }
    }

    /// How many such boxes the view is cut into along an axis; the last may reach beyond it.
    #[must_use]
    #[track_caller]
    pub fn blocks(self, axis: i32) -> Val<u32> {
        match axis_of(axis, R) {
            Some(axis) => self.view.extents[axis].div_ceil(self.shape[axis]),
            None => 1.val(),
        }
    }
}

/// A box of a view at a certain place, to load or to store.
pub struct Place<T, const R: usize> {
    view: View<T, R>,
    shape: [u32; R],
    starts: [Val<i32>; R],
    cache: Option<Cache>,
    evict: Option<Evict>,
}

impl<T, const R: usize> Clone for Place<T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const R: usize> Copy for Place<T, R> {}

impl<T, const R: usize> std::fmt::Debug for Place<T, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {:?} of {:?}", self.shape, self.starts, self.view)
    }
}

impl<T: Element, const R: usize> Place<T, R> {
    /// What is loaded or stored is used once: caches need not keep it.
    #[must_use]
    pub fn streaming(self) -> Self {
        self.cache(Cache::Streaming)
    }

    /// Which caches to use.
    #[must_use]
    pub fn cache(self, cache: Cache) -> Self {
        Place { cache: Some(cache), ..self }
    }

    /// How eagerly L1 gives the lines up.
    #[must_use]
    pub fn evict(self, evict: Evict) -> Self {
        Place { evict: Some(evict), ..self }
    }

    fn attrs(self) -> impl Iterator<Item = Attr> {
        self.cache.map(Attr::from).into_iter().chain(self.evict.map(Attr::from))
    }

    /// Starts, extents and strides, as the ops take them.
    fn push_bounds(self, operands: &mut Operands) {
        self.starts.iter().for_each(|start| operands.push(start.id));
        self.view.extents.iter().for_each(|extent| operands.push(extent.id));
        self.view.strides.iter().for_each(|stride| operands.push(stride.id));
    }

    /// Loads the tile; elements outside of the view are zero.
    #[must_use]
    #[track_caller]
    pub fn load(self) -> Tile<T> {
        trace::here();
        self.load_or(Val::of(trace::constant(T::ELEMENT, 0)))
    }

    /// Loads the tile; elements outside of the view are `pad`.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    /// /// For any type of elements, in f32.
    /// #[kernel]
    /// fn row_max<T: Float>(x: View<T, 2>, out: View<T, 1>, columns: u32) {
    ///     let row = program_id(0);
    ///     let x = x.tile([1, columns]).at((row, 0)).load_or(val(f32::NEG_INFINITY).cast()).cast::<f32>();
    ///     out.store_scalar(row, x.max_all().cast());
    /// }
    /// assert!(row_max::stage::<bf16>(512)?.ir().contains("tile<1x512xbf16>"));
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn load_or(self, pad: impl Operand<T>) -> Tile<T> {
        trace::here();
        let pad = pad.val();
        let ty = Tile::<T>::ty(shape_of(&self.shape));
        let mut operands = Operands::from_slice(&[self.view.ptr.id]);
        self.push_bounds(&mut operands);
        operands.push(pad.id);
        Tile::of(trace::value(Opcode::TileLoad, operands, self.attrs(), ty))
    }

    /// Asks for the box, one row of neighbours in memory, to be brought to the cache that all programs share: for the program that loads it
    /// a little later. Nothing is asked for where the view ends or its elements have gaps; where alignment is unknown nothing happens.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    /// #[kernel]
    /// fn double(x: View<f32, 2>, y: View<f32, 2>, columns: u32, ahead: u32) {
    ///     let row = program_id(0);
    ///     x.tile([1, columns]).at((row + ahead, 0)).prefetch();
    ///     let x = x.tile([1, columns]).at((row, 0)).load();
    ///     y.tile([1, columns]).at((row, 0)).store(x + x);
    /// }
    /// assert!(double::stage(65536, 64)?.ir().contains("bulk_prefetch"));
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[track_caller]
    pub fn prefetch(self) {
        trace::here();
        // Of no dimensions: reported where the box was made.
        let Some(last) = R.checked_sub(1) else { return };
        if self.shape[..last].iter().any(|&extent| extent != 1) {
            trace::error(format!(
                "a prefetch of {:?}; expected one row, all extents but the last 1",
                self.shape
            ));
            return;
        }
        let (start, shape) = (self.starts[last], i32::try_from(self.shape[last]).unwrap_or(i32::MAX));
        let count = (self.view.extents[last].cast::<i32>() - start).min(shape).max(0);
        let mut inside = compare(self.view.strides[last], 1i64, Cmp::Eq) & compare(start, 0, Cmp::Ge);
        let mut at = start.cast::<i64>();
        for axis in 0..last {
            inside &= compare(self.starts[axis].bitcast::<u32>(), self.view.extents[axis], Cmp::Lt);
            at += self.starts[axis].cast::<i64>() * self.view.strides[axis];
        }
        let bytes = select(inside, count.bitcast::<u32>() * T::ELEMENT.bytes(), 0u32);
        trace::effect(Opcode::BulkPrefetch, [self.view.ptr.at(at).id, bytes.id], []);
    }

    /// Stores a tile, broadcast to the box; elements outside of the view are dropped.
    #[track_caller]
    pub fn store(self, tile: impl TileOperand<T>) {
        trace::here();
        let (to, value) = (shape_of(&self.shape), tile.id());
        let from = trace::with(|t| t.ty(value)).shape();
        if let Some(from) = from
            && from.broadcast(&to) != Some(to)
        {
            trace::error(format!("a tile of {from} stored to a box of {to}; only extents of 1 grow"));
            return;
        }
        let value = grown(value, to);
        let mut operands = Operands::from_slice(&[self.view.ptr.id, value]);
        self.push_bounds(&mut operands);
        trace::effect(Opcode::TileStore, operands, self.attrs());
    }

    /// Where the box starts along an axis, counted from the start of the view.
    #[must_use]
    #[track_caller]
    pub fn start(self, axis: i32) -> Val<i32> {
        match axis_of(axis, R) {
            Some(axis) => self.starts[axis],
            None => 0.val(),
        }
    }

    /// Where the elements of the box are, for masks: the position of each element along an axis, counted from the start of the view.
    #[must_use]
    #[track_caller]
    pub fn positions(self, axis: i32) -> Tile<i32> {
        trace::here();
        let Some(at) = axis_of(axis, R) else { return Tile::poison(shape_of(&self.shape)) };
        let mut shape = [1; R];
        shape[at] = self.shape[at];
        Tile::iota(axis, &shape[..]).cast::<i32>() + self.starts[at]
    }
}
