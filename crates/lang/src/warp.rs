//! What the lanes of a warp do together: shuffles, votes, reductions.
//!
//! All lanes of the warp must come here together unless a mask says otherwise; the `_in` forms take the mask of lanes.

use tilewright_ir::{Combine, Opcode, Shuffle, Type, Value, Vote, Width};

use crate::element::{Element, Number, Word};
use crate::trace;
use crate::value::{Operand, Val};
use crate::vector::Vector;

/// All 32 lanes.
pub const ALL_LANES: u32 = 0xffff_ffff;

/// What can be passed between lanes: scalars and vectors of up to 64 bits.
pub trait Shuffled: Copy {
    /// The value inside.
    fn id(self) -> Value;
    /// The same type around another value.
    #[must_use]
    fn with_id(self, id: Value) -> Self;
}

impl<T> Shuffled for Val<T> {
    fn id(self) -> Value {
        self.id
    }
    fn with_id(self, id: Value) -> Val<T> {
        Val::of(id)
    }
}

impl<T: Element> Shuffled for Vector<T> {
    fn id(self) -> Value {
        self.id
    }
    fn with_id(self, id: Value) -> Vector<T> {
        Vector::of(id, self.len())
    }
}

#[track_caller]
fn shuffle<V: Shuffled>(
    mode: Shuffle,
    value: V,
    lane: impl Operand<u32>,
    mask: Value,
    width: u8,
) -> (V, Val<bool>) {
    let lane = lane.val();
    let mut attrs = vec![mode.into()];
    if width != 32 {
        if !matches!(width, 1 | 2 | 4 | 8 | 16) {
            trace::error(format!("a shuffle among {width} lanes; expected a power of two up to 32"));
        }
        attrs.push(Width(width).into());
    }
    let op = trace::push(Opcode::Shuffle, [value.id(), lane.id, mask], attrs, []);
    let results = trace::with(|t| t.builder.func.op(op).results.clone());
    (value.with_id(results[0]), Val::of(results[1]))
}

/// The value of lane `lane`.
#[must_use]
#[track_caller]
pub fn shuffle_index<V: Shuffled>(value: V, lane: impl Operand<u32>) -> V {
    shuffle(Shuffle::Index, value, lane, trace::u32_const(ALL_LANES), 32).0
}

/// The value of lane `lane`, the same for all: after this the compiler knows that it is uniform.
#[must_use]
#[track_caller]
pub fn broadcast<V: Shuffled>(value: V, lane: impl Operand<u32>) -> V {
    shuffle_index(value, lane)
}

/// The value of the lane whose number differs in the bits of `mask`.
#[must_use]
#[track_caller]
pub fn shuffle_xor<V: Shuffled>(value: V, mask: impl Operand<u32>) -> V {
    shuffle(Shuffle::Butterfly, value, mask, trace::u32_const(ALL_LANES), 32).0
}

/// The value of the lane `distance` before this one, and whether there is one.
#[must_use]
#[track_caller]
pub fn shuffle_up<V: Shuffled>(value: V, distance: impl Operand<u32>) -> (V, Val<bool>) {
    shuffle(Shuffle::Up, value, distance, trace::u32_const(ALL_LANES), 32)
}

/// The value of the lane `distance` after this one, and whether there is one.
#[must_use]
#[track_caller]
pub fn shuffle_down<V: Shuffled>(value: V, distance: impl Operand<u32>) -> (V, Val<bool>) {
    shuffle(Shuffle::Down, value, distance, trace::u32_const(ALL_LANES), 32)
}

/// A shuffle of any kind among segments of `width` lanes, by the lanes of `mask`.
#[must_use]
#[track_caller]
pub fn shuffle_in<V: Shuffled>(
    mode: Shuffle,
    value: V,
    lane: impl Operand<u32>,
    mask: impl Operand<u32>,
    width: u8,
) -> (V, Val<bool>) {
    let mask = mask.val();
    shuffle(mode, value, lane, mask.id, width)
}

/// Combines a value over all lanes; every lane gets the result. `f` must be associative and commutative.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel(threads = 32)]
/// fn product(x: Global<f32>) {
///     let all = warp_reduce(x.at(lane_id()).load(), |a, b| a * b);
///     if lane_id() == 0 {
///         x.store(all);
///     }
/// }
/// assert_eq!(product::stage()?.ir().matches("shuffle").count(), 5);
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[track_caller]
pub fn warp_reduce<V: Shuffled>(value: V, f: impl Fn(V, V) -> V) -> V {
    warp_reduce_among(value, 32, f)
}

/// Combines a value over segments of `width` lanes; every lane of a segment gets its result.
#[track_caller]
pub fn warp_reduce_among<V: Shuffled>(value: V, width: u32, f: impl Fn(V, V) -> V) -> V {
    let mut total = value;
    let mut step = width / 2;
    while step > 0 {
        total = f(total, shuffle_xor(total, step));
        step /= 2;
    }
    total
}

/// The sum over all lanes.
#[must_use]
#[track_caller]
pub fn warp_sum<T: Number>(value: Val<T>) -> Val<T> {
    warp_reduce(value, |a, b| a + b)
}

/// The largest over all lanes.
#[must_use]
#[track_caller]
pub fn warp_max<T: Number>(value: Val<T>) -> Val<T> {
    warp_reduce(value, |a, b| a.max(b))
}

#[track_caller]
fn vote(how: Vote, predicate: Val<bool>, ty: Type) -> Value {
    let mask = trace::u32_const(ALL_LANES);
    trace::value(Opcode::Vote, [predicate.id, mask], [how.into()], ty)
}

/// Does it hold in all lanes?
#[must_use]
#[track_caller]
pub fn vote_all(predicate: Val<bool>) -> Val<bool> {
    Val::of(vote(Vote::All, predicate, Type::BOOL))
}

/// Does it hold in any lane?
#[must_use]
#[track_caller]
pub fn vote_any(predicate: Val<bool>) -> Val<bool> {
    Val::of(vote(Vote::Any, predicate, Type::BOOL))
}

/// Is it the same in all lanes?
#[must_use]
#[track_caller]
pub fn vote_uniform(predicate: Val<bool>) -> Val<bool> {
    Val::of(vote(Vote::Uniform, predicate, Type::BOOL))
}

/// The bits of the lanes where it holds.
#[must_use]
#[track_caller]
pub fn ballot(predicate: Val<bool>) -> Val<u32> {
    Val::of(vote(Vote::Ballot, predicate, Type::U32))
}

/// The bits of the lanes that hold the same value as this one.
#[must_use]
#[track_caller]
pub fn match_any<T: Element>(value: Val<T>) -> Val<u32> {
    let mask = trace::u32_const(ALL_LANES);
    Val::of(trace::value(Opcode::MatchAny, [value.id, mask], [], None))
}

/// Whether all lanes hold the same value.
#[must_use]
#[track_caller]
pub fn match_all<T: Element>(value: Val<T>) -> Val<bool> {
    let mask = trace::u32_const(ALL_LANES);
    let op = trace::push(Opcode::MatchAll, [value.id, mask], [], []);
    Val::of(trace::with(|t| t.builder.func.op(op).results[1]))
}

/// Combines an integer over all lanes in one instruction.
#[must_use]
#[track_caller]
pub fn redux<T: Word>(op: Combine, value: Val<T>) -> Val<T> {
    let mask = trace::u32_const(ALL_LANES);
    Val::of(trace::value(Opcode::Redux, [value.id, mask], [op.into()], None))
}

/// True in one lane of the warp, the same each time. For work that one thread issues.
#[must_use]
#[track_caller]
pub fn elect() -> Val<bool> {
    let mask = trace::u32_const(ALL_LANES);
    Val::of(trace::value(Opcode::Elect, [mask], [], None))
}

/// The bits of the lanes that are here.
#[must_use]
#[track_caller]
pub fn active_mask() -> Val<u32> {
    Val::of(trace::value(Opcode::ActiveMask, [], [], None))
}

/// Waits for all lanes of the warp, and orders their accesses to memory.
#[track_caller]
pub fn warp_barrier() {
    let mask = trace::u32_const(ALL_LANES);
    trace::effect(Opcode::WarpSync, [mask], []);
}
