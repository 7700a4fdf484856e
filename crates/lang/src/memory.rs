//! Pointers, loads, stores and atomics.
//!
//! A [`Ptr`] knows what it points to and in which memory. Element indices may be 32 or 64 bits wide; offsets into global memory are
//! computed in 64 bits whatever the index is, so a large tensor cannot overflow them.

use std::fmt;
use std::marker::PhantomData;

use tilewright_ir::{
    Attr, Cache, Combine, Element as Kind, Evict, Level, Opcode, Operands, Order, Policy, Prefetch, Scope,
    Space, Type, Value,
};

use crate::element::{Element, Integer, Number};
use crate::stage::Carry;
use crate::trace;
use crate::value::{Operand, Val, Widen};
use crate::vector::{Vector, vector_type};

/// Address spaces as types.
pub mod space {
    use tilewright_ir::Space as Kind;

    /// An address space.
    pub trait Space: Copy + 'static {
        /// Which.
        const SPACE: Kind;
    }

    macro_rules! spaces {
        ($( $(#[$doc:meta])* $name:ident )*) => {$(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy)]
            pub enum $name {}
            impl Space for $name {
                const SPACE: Kind = Kind::$name;
            }
        )*};
    }

    spaces! {
        /// Device memory.
        Global
        /// Shared memory of this block.
        Shared
        /// Shared memory of any block of the cluster.
        Cluster
        /// Memory of one thread.
        Local
        /// Any of the above.
        Generic
    }
}

/// A pointer to elements of type `T` in the memory `S`.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel]
/// fn histogram(x: Global<u32>, bins: Global<u32>, n: Val<u32>) {
///     let i = block_id(0) * block_size(0) + thread_id(0);
///     if i < n {
///         bins.at(x.at(i).load() % 64).reduce_add(1);
///     }
/// }
/// assert!(histogram::stage()?.ir().contains("reduce"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
pub struct Ptr<T, S> {
    pub(crate) id: Value,
    ty: PhantomData<fn() -> (T, S)>,
}

/// A pointer to global memory: what a kernel takes as a parameter.
pub type Global<T> = Ptr<T, space::Global>;
/// A pointer to shared memory.
pub type SharedPtr<T> = Ptr<T, space::Shared>;
/// A pointer to shared memory of another block of the cluster.
pub type ClusterPtr<T> = Ptr<T, space::Cluster>;

impl<T, S> Clone for Ptr<T, S> {
    fn clone(&self) -> Ptr<T, S> {
        *self
    }
}

impl<T, S> Copy for Ptr<T, S> {}

impl<T, S> fmt::Debug for Ptr<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.id)
    }
}

#[diagnostic::do_not_recommend]
impl<T, S> Carry for Ptr<T, S> {
    fn values(&self, out: &mut Vec<Value>) {
        out.push(self.id);
    }
    fn replace(&mut self, from: &mut dyn Iterator<Item = Value>) {
        if let Some(id) = from.next() {
            self.id = id;
        }
    }
}

/// What can index memory: integers of 32 or 64 bits, staged or constant.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot index memory",
    note = "an index is an integer of 32 or 64 bits: u32, i32, u64 or i64, staged or constant"
)]
pub trait Index: Copy {
    /// The offset in bytes of element `self` of `bits` each, in the width of addresses of `space`.
    #[track_caller]
    fn byte_offset(self, bits: u32, space: Space) -> Value;
}

#[track_caller]
fn scale<T: Integer + Widen>(index: Val<T>, bits: u32, space: Space, size: impl Fn(u32) -> T) -> Value {
    match (space.bits(), bits) {
        (64, 4) => (index.cast::<i64>() >> 1u32).id,
        (_, 4) => (index >> 1u32).id,
        (64, _) => index.mul_wide(size(bits / 8)).id,
        _ => (index * size(bits / 8)).id,
    }
}

#[diagnostic::do_not_recommend]
impl Index for Val<u32> {
    #[track_caller]
    fn byte_offset(self, bits: u32, space: Space) -> Value {
        scale(self, bits, space, |n| n)
    }
}

#[diagnostic::do_not_recommend]
impl Index for Val<i32> {
    #[track_caller]
    fn byte_offset(self, bits: u32, space: Space) -> Value {
        scale(self, bits, space, u32::cast_signed)
    }
}

macro_rules! wide_index {
    ($($ty:ty => $narrow:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl Index for Val<$ty> {
            #[track_caller]
            fn byte_offset(self, bits: u32, space: Space) -> Value {
                let bytes = if bits == 4 { self >> 1u32 } else { self * <$ty>::from(bits / 8) };
                if space.bits() == 64 { bytes.id } else { bytes.cast::<$narrow>().id }
            }
        }
    )*};
}

wide_index!(u64 => u32, i64 => i32);

macro_rules! constant_index {
    ($($ty:ty),*) => {$(
        #[diagnostic::do_not_recommend]
        impl Index for $ty {
            #[track_caller]
            fn byte_offset(self, bits: u32, space: Space) -> Value {
                let bytes = i128::from(self) * i128::from(bits) / 8;
                let (kind, name, least, most) = match space.bits() {
                    64 => (Kind::I64, "global", i64::MIN, i64::MAX),
                    _ => (Kind::I32, "shared", i32::MIN.into(), i32::MAX.into()),
                };
                let offset = i64::try_from(bytes).ok().filter(|bytes| (least..=most).contains(bytes));
                if offset.is_none() {
                    trace::error(format!("an offset of {bytes} bytes into {name} memory"));
                }
                trace::constant(kind, offset.unwrap_or(0).cast_unsigned())
            }
        }
    )*};
}

constant_index!(u32, i32, u64, i64);

/// How a load or store goes about it: ordering, caches, prefetch. The default is an ordinary access.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel]
/// fn peek(flag: Global<u32>, out: Global<u32>) {
///     let seen = flag.load_with(Access::new().acquire(Scope::Gpu));
///     out.store_with(seen, Access::new().cache(Cache::Streaming));
/// }
/// assert!(peek::stage()?.ir().contains("order(acquire) scope(gpu)"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Access {
    order: Option<(Order, Option<Scope>)>,
    cache: Option<Cache>,
    evict: Option<Evict>,
    prefetch: Option<Prefetch>,
    policy: Option<L2Policy>,
}

/// An L2 policy, to give to the accesses that should follow it.
#[derive(Debug, Clone, Copy)]
pub struct L2Policy(pub(crate) Value);

impl L2Policy {
    /// Lines that go first when L2 is full: data that is read once.
    #[track_caller]
    #[must_use]
    pub fn evict_first() -> L2Policy {
        L2Policy(trace::value(Opcode::MakePolicy, [], [Policy::First.into()], None))
    }

    /// Lines that stay as long as possible: data that many blocks read.
    #[track_caller]
    #[must_use]
    pub fn evict_last() -> L2Policy {
        L2Policy(trace::value(Opcode::MakePolicy, [], [Policy::Last.into()], None))
    }

    /// The usual order.
    #[track_caller]
    #[must_use]
    pub fn evict_normal() -> L2Policy {
        L2Policy(trace::value(Opcode::MakePolicy, [], [Policy::Normal.into()], None))
    }
}

impl Access {
    /// An ordinary access.
    #[must_use]
    pub fn new() -> Access {
        Access::default()
    }

    /// Cannot be torn, and is ordered with nothing.
    #[must_use]
    pub fn relaxed(self, scope: Scope) -> Access {
        Access { order: Some((Order::Relaxed, Some(scope))), ..self }
    }

    /// A load that sees what was written before the release that it reads.
    #[must_use]
    pub fn acquire(self, scope: Scope) -> Access {
        Access { order: Some((Order::Acquire, Some(scope))), ..self }
    }

    /// A store that publishes what was written before it.
    #[must_use]
    pub fn release(self, scope: Scope) -> Access {
        Access { order: Some((Order::Release, Some(scope))), ..self }
    }

    /// Is neither removed nor combined with others.
    #[must_use]
    pub fn volatile(self) -> Access {
        Access { order: Some((Order::Volatile, None)), ..self }
    }

    /// Which caches to use.
    #[must_use]
    pub fn cache(self, cache: Cache) -> Access {
        Access { cache: Some(cache), ..self }
    }

    /// How eagerly L1 gives the line up.
    #[must_use]
    pub fn evict(self, evict: Evict) -> Access {
        Access { evict: Some(evict), ..self }
    }

    /// Fetch so many bytes into L2 along with the load.
    #[must_use]
    pub fn prefetch(self, bytes: Prefetch) -> Access {
        Access { prefetch: Some(bytes), ..self }
    }

    /// Follow an L2 policy.
    #[must_use]
    pub fn policy(self, policy: L2Policy) -> Access {
        Access { policy: Some(policy), ..self }
    }

    fn attrs(self) -> Vec<Attr> {
        let mut attrs = Vec::new();
        if let Some((order, scope)) = self.order {
            attrs.push(order.into());
            attrs.extend(scope.map(Attr::from));
        }
        attrs.extend(self.cache.map(Attr::from));
        attrs.extend(self.evict.map(Attr::from));
        attrs.extend(self.prefetch.map(Attr::from));
        attrs
    }
}

impl<T, S> Ptr<T, S> {
    pub(crate) fn of(id: Value) -> Ptr<T, S> {
        Ptr { id, ty: PhantomData }
    }
}

impl<T: Element, S: space::Space> Ptr<T, S> {
    /// The pointer to element `index`, counted from here.
    #[must_use]
    #[track_caller]
    pub fn at(self, index: impl Index) -> Ptr<T, S> {
        let offset = index.byte_offset(T::ELEMENT.bits(), S::SPACE);
        Ptr::of(trace::value(Opcode::PtrAdd, [self.id, offset], [], None))
    }

    /// The pointer so many bytes further.
    #[must_use]
    #[track_caller]
    pub fn byte_add(self, bytes: impl Index) -> Ptr<T, S> {
        let offset = bytes.byte_offset(8, S::SPACE);
        Ptr::of(trace::value(Opcode::PtrAdd, [self.id, offset], [], None))
    }

    /// The same address, seen as elements of another type.
    #[must_use]
    pub fn cast<U: Element>(self) -> Ptr<U, S> {
        Ptr::of(self.id)
    }

    /// The address as a number of 64 bits.
    #[must_use]
    #[track_caller]
    pub fn address(self) -> Val<u64> {
        let width = if S::SPACE.bits() == 64 { Kind::U64 } else { Kind::U32 };
        let id = trace::value(Opcode::PtrToInt, [self.id], [], Type::Scalar(width));
        if width == Kind::U64 { Val::of(id) } else { Val::<u32>::of(id).cast() }
    }

    /// The pointer with this address: the opposite of [`address`](Ptr::address), for pointers that the kernel finds in memory.
    #[must_use]
    #[track_caller]
    pub fn from_address(address: impl Operand<u64>) -> Ptr<T, S> {
        let address = address.val();
        let bits = if S::SPACE.bits() == 64 { address.id } else { address.cast::<u32>().id };
        Ptr::of(trace::value(Opcode::IntToPtr, [bits], [], Type::Pointer(S::SPACE)))
    }

    /// The same memory through a generic address.
    #[must_use]
    #[track_caller]
    pub fn generic(self) -> Ptr<T, space::Generic> {
        Ptr::of(trace::value(Opcode::CastSpace, [self.id], [], Type::Pointer(Space::Generic)))
    }

    /// Loads one element.
    #[must_use]
    #[track_caller]
    pub fn load(self) -> Val<T> {
        self.load_with(Access::new())
    }

    /// Loads one element, as told.
    #[must_use]
    #[track_caller]
    pub fn load_with(self, access: Access) -> Val<T> {
        Val::of(self.load_as(Type::Scalar(T::ELEMENT), access))
    }

    /// Loads `len` consecutive elements in one access. The address must be a multiple of their size.
    #[must_use]
    #[track_caller]
    pub fn load_vector(self, len: u32) -> Vector<T> {
        self.load_vector_with(len, Access::new())
    }

    /// Loads `len` consecutive elements in one access, as told.
    #[must_use]
    #[track_caller]
    pub fn load_vector_with(self, len: u32, access: Access) -> Vector<T> {
        let ty = vector_type::<T>(len);
        Vector::of(self.load_as(ty, access), ty.lanes())
    }

    #[track_caller]
    fn load_as(self, ty: Type, access: Access) -> Value {
        let operands: Operands = [self.id].into_iter().chain(access.policy.map(|p| p.0)).collect();
        trace::value(Opcode::Load, operands, access.attrs(), ty)
    }

    /// Loads one element if the condition holds; otherwise gives `other`, and memory is not touched.
    #[must_use]
    #[track_caller]
    pub fn load_if(self, condition: Val<bool>, other: impl Operand<T>) -> Val<T> {
        let other = other.val();
        Val::of(trace::value(Opcode::LoadIf, [self.id, condition.id, other.id], [], None))
    }

    /// Loads consecutive elements, as many as `other` has, if the condition holds; otherwise gives `other`.
    #[must_use]
    #[track_caller]
    pub fn load_vector_if(self, condition: Val<bool>, other: Vector<T>) -> Vector<T> {
        let id = trace::value(Opcode::LoadIf, [self.id, condition.id, other.id], [], None);
        Vector::of(id, other.len())
    }

    /// Stores one element.
    #[track_caller]
    pub fn store(self, value: impl Operand<T>) {
        self.store_with(value, Access::new());
    }

    /// Stores one element, as told.
    #[track_caller]
    pub fn store_with(self, value: impl Operand<T>, access: Access) {
        self.store_value(value.val().id, access);
    }

    /// Stores consecutive elements in one access. The address must be a multiple of their size.
    #[track_caller]
    pub fn store_vector(self, value: Vector<T>) {
        self.store_vector_with(value, Access::new());
    }

    /// Stores consecutive elements in one access, as told.
    #[track_caller]
    pub fn store_vector_with(self, value: Vector<T>, access: Access) {
        self.store_value(value.id, access);
    }

    #[track_caller]
    fn store_value(self, value: Value, access: Access) {
        let operands: Operands = [self.id, value].into_iter().chain(access.policy.map(|p| p.0)).collect();
        trace::effect(Opcode::Store, operands, access.attrs());
    }

    /// Stores one element if the condition holds.
    #[track_caller]
    pub fn store_if(self, condition: Val<bool>, value: impl Operand<T>) {
        let value = value.val();
        trace::effect(Opcode::StoreIf, [self.id, value.id, condition.id], []);
    }

    /// Stores consecutive elements if the condition holds.
    #[track_caller]
    pub fn store_vector_if(self, condition: Val<bool>, value: Vector<T>) {
        trace::effect(Opcode::StoreIf, [self.id, value.id, condition.id], []);
    }

    /// Swaps in a value and gives the one from before.
    #[track_caller]
    pub fn exchange(self, value: impl Operand<T>) -> Val<T> {
        self.atomic(Combine::Exchange, value, Order::Relaxed, Scope::Gpu)
    }

    /// Stores `new` if memory holds `expected`; gives the value from before.
    #[track_caller]
    pub fn compare_exchange(
        self,
        expected: impl Operand<T>,
        new: impl Operand<T>,
        order: Order,
        scope: Scope,
    ) -> Val<T> {
        let (expected, new) = (expected.val(), new.val());
        let operands = [self.id, expected.id, new.id];
        Val::of(trace::value(Opcode::AtomicCas, operands, [order.into(), scope.into()], None))
    }

    /// Combines a value into memory in one step and gives the one from before.
    #[track_caller]
    pub fn atomic(self, op: Combine, value: impl Operand<T>, order: Order, scope: Scope) -> Val<T> {
        let value = value.val();
        let attrs = [op.into(), order.into(), scope.into()];
        Val::of(trace::value(Opcode::Atomic, [self.id, value.id], attrs, None))
    }

    /// Combines a value into memory; cheaper than [`Ptr::atomic`], since nothing comes back.
    #[track_caller]
    pub fn reduce(self, op: Combine, value: impl Operand<T>, order: Order, scope: Scope) {
        let value = value.val();
        trace::effect(Opcode::Reduce, [self.id, value.id], [op.into(), order.into(), scope.into()]);
    }

    /// Combines consecutive elements into memory in one instruction.
    #[track_caller]
    pub fn reduce_vector(self, op: Combine, value: Vector<T>, order: Order, scope: Scope) {
        trace::effect(Opcode::Reduce, [self.id, value.id], [op.into(), order.into(), scope.into()]);
    }

    /// Brings the line into a cache.
    #[track_caller]
    pub fn prefetch(self, level: Level) {
        trace::effect(Opcode::Prefetch, [self.id], [level.into()]);
    }
}

impl<T: Number, S: space::Space> Ptr<T, S> {
    /// Adds to memory in one step; gives the value from before. Ordered with nothing.
    #[track_caller]
    pub fn atomic_add(self, value: impl Operand<T>) -> Val<T> {
        self.atomic(Combine::Add, value, Order::Relaxed, Scope::Gpu)
    }

    /// Adds to memory in one step. Ordered with nothing.
    #[track_caller]
    pub fn reduce_add(self, value: impl Operand<T>) {
        self.reduce(Combine::Add, value, Order::Relaxed, Scope::Gpu);
    }
}

impl<T: Element> Global<T> {
    /// Promises that this parameter's address is a multiple of `bytes`, so that accesses can be merged. The host checks it at launch.
    #[track_caller]
    pub fn aligned(self, bytes: u32) -> Global<T> {
        if !bytes.is_power_of_two() {
            trace::error(format!("an alignment of {bytes} bytes; expected a power of two"));
            return self;
        }
        let known = trace::with(|t| {
            let func = &mut t.builder.func;
            let position = func.region(func.body()).args.iter().position(|&arg| arg == self.id);
            if let Some(i) = position {
                func.params[i].align = func.params[i].align.max(bytes);
            }
            position.is_some()
        });
        if !known {
            trace::error("`aligned` is a promise about a parameter; call it on the parameter itself");
        }
        self
    }
}

/// A matrix in global memory: rows at a fixed distance, elements of a row side by side.
#[derive(Debug)]
pub struct Matrix<T> {
    origin: Global<T>,
    stride: Val<u32>,
}

impl<T> Clone for Matrix<T> {
    fn clone(&self) -> Matrix<T> {
        *self
    }
}

impl<T> Copy for Matrix<T> {}

impl<T: Element> Matrix<T> {
    /// The pointer to an element. The offset is computed in 64 bits.
    #[must_use]
    #[track_caller]
    pub fn at(self, row: impl Operand<u32>, column: impl Operand<u32>) -> Global<T> {
        let (row, column) = (row.val(), column.val());
        self.origin.at(row.mul_wide(self.stride) + column.cast::<u64>())
    }
}

impl<T: Element> Global<T> {
    /// The memory from here on as a matrix whose rows are `stride` elements apart.
    #[must_use]
    #[track_caller]
    pub fn matrix(self, stride: impl Operand<u32>) -> Matrix<T> {
        Matrix { origin: self, stride: stride.val() }
    }
}

impl<T: Element> SharedPtr<T> {
    /// The address of the same variable in block `rank` of the cluster.
    #[must_use]
    #[track_caller]
    pub fn in_block(self, rank: impl Operand<u32>) -> ClusterPtr<T> {
        let rank = rank.val();
        Ptr::of(trace::value(Opcode::MapCluster, [self.id, rank.id], [], None))
    }
}

/// Memory of one thread, for arrays that are indexed at run time. Slow: prefer registers and [`unroll`](crate::unroll).
#[must_use]
#[track_caller]
pub fn local<T: Element>(len: u32) -> Ptr<T, space::Local> {
    use tilewright_ir::{Align, Bytes};
    let bytes = Bytes(len.saturating_mul(T::ELEMENT.bits()).div_ceil(8));
    let align = Align(16);
    Ptr::of(trace::value(Opcode::Local, [], [bytes.into(), align.into()], None))
}
