//! Elements at places that the kernel computes: gather, scatter, atomics.

use tilewright_ir::{Attr, Cache, Cmp, Combine, Element as Kind, Evict, Opcode, Shape, Value};

use super::elementwise::apply;
use super::value::{Tile, TileOperand, common_shape, grown, shape_in_trace};
use super::view::View;
use crate::element::{Element, Integer, Logic, Number};
use crate::memory::Global;
use crate::stage::compare;
use crate::trace;
use crate::value::{Operand, Val, select};

/// Integers that say how many elements from a pointer something is: of 32 or 64 bits.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a distance in memory",
    note = "distances are tiles of i32, u32, i64 or u64, counted in elements"
)]
pub trait Distance: Integer {}

impl Distance for u32 {}
impl Distance for i32 {}
impl Distance for u64 {}
impl Distance for i64 {}

/// Integers that can number the elements along an axis of a view.
pub trait AxisIndex: Integer {
    /// The index in 64 bits, and whether it is below the extent and not negative.
    #[doc(hidden)]
    #[track_caller]
    fn place(index: Val<Self>, extent: Val<u32>) -> (Val<i64>, Val<bool>);
}

impl AxisIndex for u32 {
    #[track_caller]
    fn place(index: Val<u32>, extent: Val<u32>) -> (Val<i64>, Val<bool>) {
        (index.cast(), compare(index, extent, tilewright_ir::Cmp::Lt))
    }
}

impl AxisIndex for i32 {
    #[track_caller]
    fn place(index: Val<i32>, extent: Val<u32>) -> (Val<i64>, Val<bool>) {
        // As an unsigned number, a negative one is above all extents.
        (index.cast(), compare(index.bitcast::<u32>(), extent, tilewright_ir::Cmp::Lt))
    }
}

impl AxisIndex for i64 {
    #[track_caller]
    fn place(index: Val<i64>, extent: Val<u32>) -> (Val<i64>, Val<bool>) {
        (index, compare(index.bitcast::<u64>(), extent.cast::<u64>(), tilewright_ir::Cmp::Lt))
    }
}

/// Indices along one axis: a tile of `u32`, `i32` or `i64`, or one for all, staged or constant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot index an axis of a view",
    note = "indices are tiles or values of u32, i32 or i64, or a constant"
)]
pub trait TileIndex: Copy {
    #[doc(hidden)]
    #[track_caller]
    fn index_id(self) -> Value;
    /// As [`AxisIndex::place`].
    #[doc(hidden)]
    #[track_caller]
    fn place(index: Value, extent: Val<u32>) -> (Val<i64>, Val<bool>);
}

#[diagnostic::do_not_recommend]
impl<T: AxisIndex> TileIndex for Tile<T> {
    fn index_id(self) -> Value {
        self.id
    }
    #[track_caller]
    fn place(index: Value, extent: Val<u32>) -> (Val<i64>, Val<bool>) {
        T::place(Val::of(index), extent)
    }
}

#[diagnostic::do_not_recommend]
impl<T: AxisIndex> TileIndex for Val<T> {
    fn index_id(self) -> Value {
        self.id
    }
    #[track_caller]
    fn place(index: Value, extent: Val<u32>) -> (Val<i64>, Val<bool>) {
        T::place(Val::of(index), extent)
    }
}

macro_rules! constant_index {
    ($($ty:ty)*) => {$(
        #[diagnostic::do_not_recommend]
        impl TileIndex for $ty {
            #[track_caller]
            fn index_id(self) -> Value {
                self.val().id
            }
            #[track_caller]
            fn place(index: Value, extent: Val<u32>) -> (Val<i64>, Val<bool>) {
                <$ty as AxisIndex>::place(Val::of(index), extent)
            }
        }
    )*};
}

constant_index!(u32 i32);

/// Indices along all axes: a tuple of [`TileIndex`]es, outermost first; in one dimension one of them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say where in {R} dimensions",
    note = "give indices for each axis, as in `(rows, columns)`: tiles or values of u32, i32 or i64, or constants"
)]
pub trait TilePosition<const R: usize>: Copy {
    #[doc(hidden)]
    #[track_caller]
    fn index_ids(self) -> [Value; R];
    #[doc(hidden)]
    #[track_caller]
    fn places(indices: [Value; R], extents: [Val<u32>; R]) -> [(Val<i64>, Val<bool>); R];
}

#[diagnostic::do_not_recommend]
impl<I: TileIndex> TilePosition<1> for I {
    #[track_caller]
    fn index_ids(self) -> [Value; 1] {
        [self.index_id()]
    }
    #[track_caller]
    fn places(indices: [Value; 1], extents: [Val<u32>; 1]) -> [(Val<i64>, Val<bool>); 1] {
        [I::place(indices[0], extents[0])]
    }
}

macro_rules! tuple_positions {
    ($( $rank:literal ($($name:ident $i:tt),*) )*) => {$(
        #[diagnostic::do_not_recommend]
        impl<$($name: TileIndex),*> TilePosition<$rank> for ($($name,)*) {
            #[track_caller]
            fn index_ids(self) -> [Value; $rank] {
                [$( self.$i.index_id() ),*]
            }
            #[track_caller]
            fn places(indices: [Value; $rank], extents: [Val<u32>; $rank]) -> [(Val<i64>, Val<bool>); $rank] {
                [$( $name::place(indices[$i], extents[$i]) ),*]
            }
        }
    )*};
}

tuple_positions! {
    1 (A 0)
    2 (A 0, B 1)
    3 (A 0, B 1, C 2)
    4 (A 0, B 1, C 2, D 3)
    5 (A 0, B 1, C 2, D 3, E 4)
}

/// Elements of memory, one for each element of a tile of places: [`View::points`] and [`Global::points`].
///
/// ```
/// use tilewright_lang::tile::prelude::*;
///
/// /// Rows of a table by number.
/// #[kernel]
/// fn embedding(table: View<bf16, 2>, ids: View<i64, 1>, out: View<bf16, 2>) {
///     let first = program_id(0) * 16u32;
///     let id = ids.tile([16]).at(first).load_or(-1);
///     let rows = table.points((id.unsqueeze(1), arange(256))).load(); // 16x256; zeros where there is no such row
///     out.tile([16, 256]).at((first, 0)).store(rows);
/// }
///
/// /// Counts of bytes.
/// #[kernel]
/// fn histogram(x: View<u8, 1>, n: Val<u32>, counts: Global<u32>) {
///     let place = x.tile([1024]).block(program_id(0));
///     let inside = place.positions(0) < n.cast::<i32>();
///     counts.points(place.load().cast::<u32>()).only(inside).atomic_add(1);
/// }
/// embedding::stage()?;
/// histogram::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
pub struct Points<T> {
    ptr: Global<T>,
    distances: Value,
    mask: Option<Value>,
    cache: Option<Cache>,
    evict: Option<Evict>,
}

impl<T> Clone for Points<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Points<T> {}

impl<T> std::fmt::Debug for Points<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} from {:?}", self.distances, self.ptr)
    }
}

impl<T: Element, const R: usize> View<T, R> {
    /// The elements at these indices, which broadcast against each other. What is outside of the view is neither loaded nor stored.
    #[must_use]
    #[track_caller]
    pub fn points<P: TilePosition<R>>(self, indices: P) -> Points<T> {
        trace::here();
        let ids = indices.index_ids();
        let (extents, strides) = self.bounds();
        let results = apply(&ids, |elements| {
            let places = P::places(std::array::from_fn(|i| elements[i]), extents);
            let terms = places.iter().zip(strides).map(|(&(index, inside), stride)| (index * stride, inside));
            match terms.reduce(|(a, b), (c, d)| (a + c, b & d)) {
                Some((distance, inside)) => vec![distance.id, inside.id],
                None => vec![0i64.val().id, true.val().id],
            }
        });
        let ptr = self.pointer();
        Points { ptr, distances: results[0], mask: Some(results[1]), cache: None, evict: None }
    }
}

impl<T: Element> Global<T> {
    /// The elements at these distances from here, counted in elements. Nothing is checked; [`only`](Points::only) leaves some out.
    #[must_use]
    #[track_caller]
    pub fn points<D: Distance>(self, distances: Tile<D>) -> Points<T> {
        Points { ptr: self, distances: distances.id, mask: None, cache: None, evict: None }
    }

    /// Loads the elements at these distances where the mask holds, and takes those of `other` elsewhere.
    #[must_use]
    #[track_caller]
    pub fn gather<D: Distance>(
        self,
        distances: Tile<D>,
        mask: impl TileOperand<bool>,
        other: impl TileOperand<T>,
    ) -> Tile<T> {
        self.points(distances).only(mask).load_or(other)
    }

    /// Stores elements at these distances where the mask holds. Where two go to the same place, one of them stays.
    #[track_caller]
    pub fn scatter<D: Distance>(
        self,
        distances: Tile<D>,
        mask: impl TileOperand<bool>,
        value: impl TileOperand<T>,
    ) {
        self.points(distances).only(mask).store(value);
    }
}

impl<T: Element> Points<T> {
    /// Only those where the mask holds as well.
    #[must_use]
    #[track_caller]
    pub fn only(self, mask: impl TileOperand<bool>) -> Points<T> {
        trace::here();
        let mask = mask.id();
        let both = match self.mask {
            Some(before) => {
                apply(&[before, mask], |x| vec![(Val::<bool>::of(x[0]) & Val::<bool>::of(x[1])).id])[0]
            }
            None => mask,
        };
        Points { mask: Some(both), ..self }
    }

    /// What is loaded or stored is used once: caches need not keep it.
    #[must_use]
    pub fn streaming(self) -> Points<T> {
        self.cache(Cache::Streaming)
    }

    /// Which caches to use.
    #[must_use]
    pub fn cache(self, cache: Cache) -> Points<T> {
        Points { cache: Some(cache), ..self }
    }

    /// How eagerly L1 gives the lines up.
    #[must_use]
    pub fn evict(self, evict: Evict) -> Points<T> {
        Points { evict: Some(evict), ..self }
    }

    fn attrs(self) -> impl Iterator<Item = Attr> {
        self.cache.map(Attr::from).into_iter().chain(self.evict.map(Attr::from))
    }

    /// Pointer, distances, mask and elements, the last three as tiles of one shape. That of the places is not changed by the elements
    /// of a store.
    #[track_caller]
    fn operands(self, value: Value, stored: bool) -> [Value; 4] {
        let mask = self.mask.unwrap_or_else(|| true.val().id);
        let mut tiles = [self.distances, mask, value];
        let places = common_shape(&mut tiles[..2]);
        let all = common_shape(&mut tiles);
        if stored
            && let (Some(places), Some(all)) = (places, all)
            && places != all
            && let Some(from) = shape_in_trace(value)
        {
            trace::error(format!("a tile of {from} stored to {places} places; only extents of 1 grow"));
        }
        // One place, if all are scalars.
        let shape = all.or_else(|| Shape::new(&[1]));
        let [distances, mask, value] = tiles.map(|tile| shape.map_or(tile, |shape| grown(tile, shape)));
        [self.ptr.id, distances, mask, value]
    }

    /// Loads the elements; what is left out is zero.
    #[must_use]
    #[track_caller]
    pub fn load(self) -> Tile<T> {
        trace::here();
        self.load_or(Val::of(trace::constant(T::ELEMENT, 0)))
    }

    /// Loads the elements; what is left out comes from `other`.
    #[must_use]
    #[track_caller]
    pub fn load_or(self, other: impl TileOperand<T>) -> Tile<T> {
        trace::here();
        let operands = self.operands(other.id(), false);
        Tile::of(trace::value(Opcode::Gather, operands, self.attrs(), None))
    }

    /// Stores elements. Where two go to the same place, one of them stays.
    #[track_caller]
    pub fn store(self, value: impl TileOperand<T>) {
        trace::here();
        let operands = self.operands(value.id(), true);
        trace::effect(Opcode::Scatter, operands, self.attrs());
    }

    /// Combines elements into memory, each in one step, and gives the values from before; where nothing was done, the elements
    /// themselves. Ordered with nothing: where it says that other memory is ready or free, [`fence`](crate::fence) goes before or after it.
    ///
    /// Elements are integers of 32 or 64 bits, for [`Combine::Add`] also f16, bf16 (from sm_90 on), f32 and f64, for [`Combine::Min`],
    /// [`Combine::Max`] and [`Combine::Exchange`] also f32 and f64.
    #[track_caller]
    pub fn atomic(self, op: Combine, value: impl TileOperand<T>) -> Tile<T> {
        trace::here();
        let element = T::ELEMENT;
        let words = matches!(element, Kind::F32 | Kind::F64);
        let fits = match op {
            Combine::Add => words || matches!(element, Kind::F16 | Kind::BF16),
            Combine::Min | Combine::Max | Combine::Exchange => words,
            _ => false,
        };
        if !(fits || element.is_int() && element.bits() >= 32) {
            let expected = match op {
                Combine::Add => "integers of 32 or 64 bits, f16, bf16, f32 or f64",
                Combine::Min | Combine::Max | Combine::Exchange => "integers of 32 or 64 bits, f32 or f64",
                _ => "integers of 32 or 64 bits",
            };
            let name = op.name();
            trace::error(format!(
                "an atomic `{name}` of {element}; expected {expected}, convert or reduce tiles before"
            ));
        }
        match (op, element) {
            (Combine::Min | Combine::Max, Kind::F32) => return self.extreme::<i32, u32>(op, value.id()),
            (Combine::Min | Combine::Max, Kind::F64) => return self.extreme::<i64, u64>(op, value.id()),
            _ => {}
        }
        let operands = self.operands(value.id(), true);
        Tile::of(trace::value(Opcode::TileAtomic, operands, [op.into()], None))
    }

    /// The same memory as elements of another type, as long as these.
    fn of<U>(self) -> Points<U> {
        let Points { ptr, distances, mask, cache, evict } = self;
        Points { ptr: Global::of(ptr.id), distances, mask, cache, evict }
    }

    /// The smaller or larger of floats, by their bits: those of numbers without a sign grow as integers with one do, those of others shrink as
    /// integers without one grow. NaN is made the one of either sign that wins.
    #[track_caller]
    fn extreme<S: Number, U: Number>(self, op: Combine, value: Value) -> Tile<T> {
        let [_, distances, mask, value] = self.operands(value, true);
        let (opposite, winner) = match op {
            Combine::Min => (Combine::Max, u64::MAX),
            // The largest with the sign bit clear, a NaN.
            _ => (Combine::Min, u64::MAX >> (65 - T::ELEMENT.bits())),
        };
        let found = apply(&[value], |x| {
            let x = Val::<T>::of(x[0]);
            let winner = Val::<S>::of(trace::constant(S::ELEMENT, winner));
            let bits = select(compare(x, x, Cmp::Ne), winner, x.bitcast::<S>());
            vec![bits.id, compare(bits, Val::of(trace::constant(S::ELEMENT, 0)), Cmp::Lt).id]
        });
        let (bits, below) = (Tile::<S>::of(found[0]), Tile::<bool>::of(found[1]));
        let places = Points { distances, mask: Some(mask), ..self };
        let before = places.of::<S>().only(!below).atomic(op, bits);
        let before_others = places.of::<U>().only(below).atomic(opposite, bits.bitcast::<U>());
        let both = apply(&[below.id, before.id, before_others.id], |x| {
            let (yes, no) = (Val::<U>::of(x[2]).bitcast::<T>(), Val::<S>::of(x[1]).bitcast::<T>());
            vec![select(Val::<bool>::of(x[0]), yes, no).id]
        });
        Tile::of(both[0])
    }

    /// Puts elements into memory, each in one step, and gives the values from before; where nothing was done, the elements themselves. Of 32 or
    /// 64 bits.
    #[track_caller]
    pub fn atomic_exchange(self, value: impl TileOperand<T>) -> Tile<T> {
        self.atomic(Combine::Exchange, value)
    }

    /// Puts elements into memory where the bits of `expected` are there, each in one step, and gives the values from before: what was expected
    /// where it succeeded. Where nothing was tried, the elements themselves. Of 32 or 64 bits.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// /// Whoever comes first to a free place takes it.
    /// #[kernel]
    /// fn claim(wanted: View<u32, 1>, owners: Global<u32>, won: View<u32, 1>) {
    ///     let place = wanted.tile([128]).block(program_id(0)).load();
    ///     let me = arange(128) + program_id(0) * 128 + 1;
    ///     let before = owners.points(place).atomic_cas(0, me);
    ///     won.tile([128]).block(program_id(0)).store((before == 0).cast::<u32>());
    /// }
    /// claim::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[track_caller]
    pub fn atomic_cas(self, expected: impl TileOperand<T>, value: impl TileOperand<T>) -> Tile<T> {
        trace::here();
        let element = T::ELEMENT;
        if !matches!(element.bits(), 32 | 64) {
            trace::error(format!("an atomic `cas` of {element}; expected elements of 32 or 64 bits"));
        }
        let [ptr, distances, mask, value] = self.operands(value.id(), true);
        let expected = shape_in_trace(distances).map_or(expected.id(), |shape| grown(expected.id(), shape));
        Tile::of(trace::value(Opcode::TileAtomicCas, [ptr, distances, mask, expected, value], [], None))
    }
}

macro_rules! atomics {
    ($bound:ident: $( $(#[$doc:meta])* $name:ident $op:ident; )*) => {
        impl<T: $bound> Points<T> {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(self, value: impl TileOperand<T>) -> Tile<T> {
                self.atomic(Combine::$op, value)
            }
        )*}
    };
}

atomics! { Number:
    /// Adds to memory; gives the values from before. Of integers of 32 or 64 bits, f16, bf16, f32 and f64.
    atomic_add Add;
    /// Leaves the smaller in memory; gives the values from before. Of integers of 32 or 64 bits, f32 and f64, where NaN of an element stays.
    atomic_min Min;
    /// Leaves the larger in memory; gives the values from before. Of integers of 32 or 64 bits, f32 and f64, where NaN of an element stays.
    atomic_max Max;
}

atomics! { Logic:
    /// Leaves the bits that both have in memory; gives the values from before. Of integers of 32 or 64 bits.
    atomic_and And;
    /// Leaves the bits that either has in memory; gives the values from before. Of integers of 32 or 64 bits.
    atomic_or Or;
    /// Leaves the bits that one of both has in memory; gives the values from before. Of integers of 32 or 64 bits.
    atomic_xor Xor;
}
