//! The copy engine: tensors in global memory, copied box by box.
//!
//! A [`TensorMap`] is a kernel parameter. What its box and swizzle must be follows from the shared-memory tiles that the kernel
//! copies through it; the host reads that from [`Kernel::tensor_map`](crate::Kernel::tensor_map), so nobody writes it down twice.

use std::fmt;
use std::marker::PhantomData;

use tilewright_hardware::{Major, TensorMapSpec};
use tilewright_ir::{Attr, Combine, Element as Kind, Flags, Index, MapField, Opcode, Operands, Rank, Value};

use crate::barrier::Mbarrier;
use crate::element::Element;
use crate::memory::{Global, L2Policy, SharedPtr};
use crate::tensor::Shared;
use crate::trace;
use crate::value::{Operand, Val};

/// A tensor in global memory as the copy engine sees it.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel(threads = 128)]
/// fn fetch(x: TensorMap<bf16>, out: Global<bf16>) {
///     let tile = Shared::<bf16>::new(k_major::<bf16>(64, 64, SwizzleMode::B128));
///     let arrived = Mbarrier::array(1, "arrived");
///     if thread_id(0) == 0 {
///         arrived.init(1);
///         fence_barrier_init();
///         arrived.arrive_and_expect(tile.bytes());
///         x.load(block_id(0) * 64, 0, tile, arrived);
///     }
///     barrier();
///     arrived.wait(0);
///     out.at(thread_id(0)).store(tile.at((0u32, thread_id(0) % 64)).load());
/// }
/// let kernel = fetch::stage()?;
/// assert_eq!(kernel.tensor_map("x").map(|map| map.box_dims().to_vec()), Some(vec![64, 64]));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
pub struct TensorMap<T> {
    pub(crate) id: Value,
    ty: PhantomData<fn() -> T>,
}

impl<T> Clone for TensorMap<T> {
    fn clone(&self) -> TensorMap<T> {
        *self
    }
}

impl<T> Copy for TensorMap<T> {}

impl<T> fmt::Debug for TensorMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

/// A coordinate of a tensor: an integer of 32 bits, staged or constant. Negative ones lie outside and read as zero.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tensor coordinate",
    note = "coordinates are u32 or i32, staged or constant"
)]
pub trait Coordinate: Copy {
    /// The coordinate.
    #[track_caller]
    fn coordinate(self) -> Val<i32>;
}

#[diagnostic::do_not_recommend]
impl Coordinate for Val<i32> {
    fn coordinate(self) -> Val<i32> {
        self
    }
}

#[diagnostic::do_not_recommend]
impl Coordinate for Val<u32> {
    #[track_caller]
    fn coordinate(self) -> Val<i32> {
        self.bitcast()
    }
}

#[diagnostic::do_not_recommend]
impl Coordinate for i32 {
    #[track_caller]
    fn coordinate(self) -> Val<i32> {
        self.val()
    }
}

#[diagnostic::do_not_recommend]
impl Coordinate for u32 {
    #[track_caller]
    fn coordinate(self) -> Val<i32> {
        self.cast_signed().val()
    }
}

/// Options of a copy into shared memory.
#[derive(Debug, Clone, Copy, Default)]
pub struct CopyOptions {
    multicast: Option<Value>,
    policy: Option<L2Policy>,
}

impl CopyOptions {
    /// None.
    #[must_use]
    pub fn new() -> CopyOptions {
        CopyOptions::default()
    }

    /// Deliver to all blocks of the cluster whose bit is set, at the same place in each, and complete the barrier object of each.
    #[must_use]
    #[track_caller]
    pub fn multicast(self, blocks: impl Operand<u16>) -> CopyOptions {
        CopyOptions { multicast: Some(blocks.val().id), ..self }
    }

    /// Follow an L2 policy.
    #[must_use]
    pub fn policy(self, policy: L2Policy) -> CopyOptions {
        CopyOptions { policy: Some(policy), ..self }
    }

    pub(crate) fn flags(self) -> Flags {
        Flags::MULTICAST.when(self.multicast.is_some()).with(Flags::HINT.when(self.policy.is_some()))
    }

    pub(crate) fn operands(self) -> impl Iterator<Item = Value> {
        self.multicast.into_iter().chain(self.policy.map(|p| p.0))
    }
}

/// What an instruction of the copy engine takes: these, then the coordinates.
fn operands(first: &[Value], coordinates: &[Val<i32>]) -> Operands {
    first.iter().copied().chain(coordinates.iter().map(|c| c.id)).collect()
}

/// The copies that a tile of such elements takes: where in shared memory, and which coordinates, innermost first. Notes what the map must be.
#[track_caller]
fn boxes(
    map: Value,
    (row, k): (Val<i32>, Val<i32>),
    tile: Shared<u8>,
    element: Kind,
) -> Vec<(SharedPtr<u8>, Vec<Val<i32>>)> {
    let Some(layout) = tile.known() else { return Vec::new() };
    let Some(plan) = trace::check(TensorMapSpec::for_tile(&layout, element)) else {
        return Vec::new();
    };
    note(map, &plan.spec);
    let origin = match plan.major {
        Major::K => [k, row],
        Major::Mn => [row, k],
    };
    let place = |start: Val<i32>, offset: u32| if offset == 0 { start } else { start + offset.cast_signed() };
    let one = |b: &tilewright_hardware::TileBox| {
        let ptr = if b.offset == 0 { tile.ptr() } else { tile.ptr().byte_add(b.offset) };
        (ptr, vec![place(origin[0], b.coordinates[0]), place(origin[1], b.coordinates[1])])
    };
    plan.boxes.iter().map(one).collect()
}

/// Notes what a map must be, and reports other uses.
#[track_caller]
fn note(map: Value, spec: &TensorMapSpec) {
    let clash = trace::with(|t| match t.maps.iter().find(|(id, _)| *id == map) {
        None => {
            t.maps.push((map, spec.clone()));
            None
        }
        Some((_, known)) => (known != spec).then(|| known.clone()),
    });
    if let Some(known) = clash {
        trace::error(format!(
            "this tensor map is used with boxes {:?} {} and {:?} {}; one map has one box: pass the tensor twice",
            known.box_dims(),
            known.swizzle(),
            spec.box_dims(),
            spec.swizzle()
        ));
    }
}

impl<T: Element> TensorMap<T> {
    pub(crate) fn of(id: Value) -> TensorMap<T> {
        TensorMap { id, ty: PhantomData }
    }

    /// A tensor map in global memory, after [`acquire`](EditableMap::acquire).
    #[must_use]
    pub fn in_memory(at: Global<u64>) -> TensorMap<T> {
        TensorMap::of(at.id)
    }

    /// Starts to fill a tile from the tensor; `barrier` counts the bytes. By one thread. `row` and `k` are where the tile starts in
    /// the tensor.
    #[track_caller]
    pub fn load(self, row: impl Coordinate, k: impl Coordinate, tile: Shared<T>, barrier: Mbarrier) {
        self.load_with(row, k, tile, barrier, CopyOptions::new());
    }

    /// Starts to fill a tile from the tensor, as told.
    #[track_caller]
    pub fn load_with(
        self,
        row: impl Coordinate,
        k: impl Coordinate,
        tile: Shared<T>,
        barrier: Mbarrier,
        options: CopyOptions,
    ) {
        for (ptr, at) in self.boxes(row.coordinate(), k.coordinate(), tile) {
            self.load_box(ptr, barrier, &at, options);
        }
    }

    /// Starts to copy a tile to the tensor; coordinates must not be negative (what lies beyond the other end is dropped). By one thread, after [`fence_async`](crate::fence_async) and a barrier.
    #[track_caller]
    pub fn store(self, row: impl Coordinate, k: impl Coordinate, tile: Shared<T>) {
        for (ptr, at) in self.boxes(row.coordinate(), k.coordinate(), tile) {
            self.store_box(ptr, &at, None);
        }
    }

    /// Starts to combine a tile into the tensor, element by element.
    #[track_caller]
    pub fn reduce(self, op: Combine, row: impl Coordinate, k: impl Coordinate, tile: Shared<T>) {
        for (ptr, at) in self.boxes(row.coordinate(), k.coordinate(), tile) {
            self.reduce_box(op, ptr, &at);
        }
    }

    /// Brings the boxes of a tile into L2.
    #[track_caller]
    pub fn prefetch_tile(self, row: impl Coordinate, k: impl Coordinate, tile: Shared<T>) {
        for (_, at) in self.boxes(row.coordinate(), k.coordinate(), tile) {
            self.prefetch_box(&at);
        }
    }

    /// The copies that a tile takes: where in shared memory, and which coordinates, innermost first. Notes what the map must be.
    #[track_caller]
    fn boxes(self, row: Val<i32>, k: Val<i32>, tile: Shared<T>) -> Vec<(SharedPtr<T>, Vec<Val<i32>>)> {
        let boxes = boxes(self.id, (row, k), tile.bytewise(), T::ELEMENT);
        boxes.into_iter().map(|(ptr, at)| (ptr.cast(), at)).collect()
    }

    /// Starts to copy one box of any rank: `coordinates` innermost first. What the box is, [`describe`](TensorMap::describe) must say.
    #[track_caller]
    pub fn load_box(
        self,
        to: SharedPtr<T>,
        barrier: Mbarrier,
        coordinates: &[Val<i32>],
        options: CopyOptions,
    ) {
        let attrs = [self.rank(coordinates), options.flags().into()];
        let mut ids = operands(&[to.id, self.id, barrier.ptr.id], coordinates);
        ids.extend(options.operands());
        trace::effect(Opcode::TmaLoad, ids, attrs);
    }

    /// Starts to copy pixels as a convolution needs them: coordinates innermost first, then the offsets within the filter.
    #[track_caller]
    pub fn load_im2col(
        self,
        to: SharedPtr<T>,
        barrier: Mbarrier,
        coordinates: &[Val<i32>],
        offsets: &[Val<u16>],
        options: CopyOptions,
    ) {
        let attrs = [self.rank(coordinates), options.flags().with(Flags::IM2COL).into()];
        let mut ids = operands(&[to.id, self.id, barrier.ptr.id], coordinates);
        ids.extend(offsets.iter().map(|o| o.id));
        ids.extend(options.operands());
        trace::effect(Opcode::TmaLoad, ids, attrs);
    }

    /// Starts to copy one box of any rank to the tensor.
    #[track_caller]
    pub fn store_box(self, from: SharedPtr<T>, coordinates: &[Val<i32>], policy: Option<L2Policy>) {
        let attrs = [self.rank(coordinates), Flags::HINT.when(policy.is_some()).into()];
        let mut ids = operands(&[self.id, from.id], coordinates);
        ids.extend(policy.map(|p| p.0));
        trace::effect(Opcode::TmaStore, ids, attrs);
    }

    /// Starts to combine one box of any rank into the tensor.
    #[track_caller]
    pub fn reduce_box(self, op: Combine, from: SharedPtr<T>, coordinates: &[Val<i32>]) {
        let ids = operands(&[self.id, from.id], coordinates);
        trace::effect(Opcode::TmaReduce, ids, [self.rank(coordinates), op.into()]);
    }

    /// Brings one box of any rank into L2.
    #[track_caller]
    pub fn prefetch_box(self, coordinates: &[Val<i32>]) {
        let ids = operands(&[self.id], coordinates);
        trace::effect(Opcode::TmaPrefetch, ids, [self.rank(coordinates)]);
    }

    #[track_caller]
    fn rank(self, coordinates: &[Val<i32>]) -> Attr {
        Rank(u8::try_from(coordinates.len()).unwrap_or(u8::MAX)).into()
    }

    /// Says what the map describes, for copies by box; tiles say it themselves.
    #[track_caller]
    pub fn describe(self, spec: &TensorMapSpec) {
        note(self.id, spec);
    }

    /// Brings the map itself into its cache; call it early.
    #[track_caller]
    pub fn prefetch(self) {
        trace::effect(Opcode::MapPrefetch, [self.id], []);
    }
}

/// A tensor map in shared memory (128 bytes, 128-byte aligned) that a thread edits before the copy engine uses it.
#[derive(Debug, Clone, Copy)]
pub struct EditableMap(SharedPtr<u64>);

impl EditableMap {
    /// The map at this address.
    #[must_use]
    pub fn new(at: SharedPtr<u64>) -> EditableMap {
        EditableMap(at)
    }

    /// Another tensor.
    #[track_caller]
    pub fn set_address<T: Element>(self, tensor: Global<T>) {
        let address = tensor.address();
        trace::effect(Opcode::MapReplace, [self.0.id, address.id], [MapField::GlobalAddress.into()]);
    }

    /// Another extent of a dimension, in elements.
    #[track_caller]
    pub fn set_extent(self, dimension: u32, extent: impl Operand<u32>) {
        let extent = extent.val();
        let attrs = [MapField::GlobalDim.into(), Index(dimension).into()];
        trace::effect(Opcode::MapReplace, [self.0.id, extent.id], attrs);
    }

    /// Another stride of a dimension, in bytes. Dimension 0 is contiguous and has none; 1 is the first that has.
    #[track_caller]
    pub fn set_stride(self, dimension: u32, bytes: impl Operand<u64>) {
        let bytes = bytes.val();
        if dimension == 0 {
            trace::error("dimension 0 of a tensor map is contiguous; set the stride of 1 and up");
        }
        let attrs = [MapField::GlobalStride.into(), Index(dimension.saturating_sub(1)).into()];
        trace::effect(Opcode::MapReplace, [self.0.id, bytes.id], attrs);
    }

    /// Publishes the map to global memory. By a whole warp; users [`acquire`](EditableMap::acquire) it there.
    #[track_caller]
    pub fn publish(self, to: Global<u64>) {
        trace::effect(Opcode::MapPublish, [to.id, self.0.id], []);
    }

    /// Makes a published map usable by this thread.
    #[must_use]
    #[track_caller]
    pub fn acquire<T: Element>(at: Global<u64>) -> TensorMap<T> {
        trace::effect(Opcode::MapAcquire, [at.id], []);
        TensorMap::in_memory(at)
    }
}
