//! Tiles in order along an axis.
//!
//! Elements become unsigned numbers in the same order, [keys](Sorted), which a bitonic network exchanges and puts in order: with `n` elements
//! along the axis, log2(n) * (log2(n) + 1) / 2 times each is compared with one other. Elements a power of two apart are neighbours of a
//! tile that is reshaped so, and what stands opposite is all of the two without oneself: `(a ^ b) ^ a`. So threads shuffle, or use registers
//! alone, wherever the layout allows.
//!
//! The order is total: -0 comes before 0, and a NaN is larger than all numbers. With places, equal elements stay in order.

use tilewright_ir::Cmp;

use super::elementwise::Tiles;
use super::value::{Tile, arange, axis_of};
use crate::element::{E4m3, E5m2, Element, Integer, Logic};
use crate::stage::compare;
use crate::trace;
use crate::value::{Val, select};

/// Elements that tiles can be sorted by: all integers and floats but those of 4 bits and of powers of two.
#[diagnostic::on_unimplemented(
    message = "tiles of `{Self}` cannot be sorted",
    note = "those of i8 to i64, u8 to u64, f16, bf16, f32, f64, E4m3 and E5m2 can; with places, those of up to 32 bits"
)]
pub trait Sorted: Element {
    /// Unsigned numbers for them.
    type Key: Integer + Logic;

    /// The largest of these.
    #[doc(hidden)]
    const LAST: Self::Key;

    /// A number that is larger where the element is.
    #[doc(hidden)]
    #[track_caller]
    fn key(x: Val<Self>) -> Val<Self::Key>;

    /// The element of a number.
    #[doc(hidden)]
    #[track_caller]
    fn of_key(key: Val<Self::Key>) -> Val<Self>;
}

/// Elements whose keys are those of a wider type.
macro_rules! sorted_as {
    ($( $ty:ty as $wide:ty: $key:ident; )*) => {$(
        #[diagnostic::do_not_recommend]
        impl Sorted for $ty {
            type Key = $key;
            const LAST: $key = $key::MAX;
            #[track_caller]
            fn key(x: Val<$ty>) -> Val<$key> {
                <$wide as Sorted>::key(x.cast::<$wide>())
            }
            #[track_caller]
            fn of_key(key: Val<$key>) -> Val<$ty> {
                <$wide as Sorted>::of_key(key).cast::<$ty>()
            }
        }
    )*};
}

/// Unsigned integers, which are their own keys; signed ones, which begin in the middle; and floats, of which the negative ones count down.
macro_rules! sorted {
    ($( $unsigned:ident, $signed:ident, $float:ident; )*) => {$(
        #[diagnostic::do_not_recommend]
        impl Sorted for $unsigned {
            type Key = $unsigned;
            const LAST: $unsigned = $unsigned::MAX;
            #[track_caller]
            fn key(x: Val<$unsigned>) -> Val<$unsigned> {
                x
            }
            #[track_caller]
            fn of_key(key: Val<$unsigned>) -> Val<$unsigned> {
                key
            }
        }

        #[diagnostic::do_not_recommend]
        impl Sorted for $signed {
            type Key = $unsigned;
            const LAST: $unsigned = $unsigned::MAX;
            #[track_caller]
            fn key(x: Val<$signed>) -> Val<$unsigned> {
                x.bitcast::<$unsigned>() ^ !($unsigned::MAX >> 1)
            }
            #[track_caller]
            fn of_key(key: Val<$unsigned>) -> Val<$signed> {
                (key ^ !($unsigned::MAX >> 1)).bitcast::<$signed>()
            }
        }

        #[diagnostic::do_not_recommend]
        impl Sorted for $float {
            type Key = $unsigned;
            const LAST: $unsigned = $unsigned::MAX;
            #[track_caller]
            fn key(x: Val<$float>) -> Val<$unsigned> {
                let bits = x.bitcast::<$unsigned>();
                let flips = (bits.bitcast::<$signed>() >> ($unsigned::BITS - 1)).bitcast::<$unsigned>();
                let key = bits ^ (flips | !($unsigned::MAX >> 1));
                // Whatever its sign is.
                select(compare(x, x, Cmp::Ne), $unsigned::MAX, key)
            }
            #[track_caller]
            fn of_key(key: Val<$unsigned>) -> Val<$float> {
                let flips = ((!key).bitcast::<$signed>() >> ($unsigned::BITS - 1)).bitcast::<$unsigned>();
                (key ^ (flips | !($unsigned::MAX >> 1))).bitcast::<$float>()
            }
        }
    )*};
}

sorted! {
    u32, i32, f32;
    u64, i64, f64;
}

sorted_as! {
    u8 as u32: u32;
    u16 as u32: u32;
    i8 as i32: u32;
    i16 as i32: u32;
    half::f16 as f32: u32;
    half::bf16 as f32: u32;
    E4m3 as f32: u32;
    E5m2 as f32: u32;
}

impl<T: Sorted> Tile<T> {
    /// In ascending order along an axis. A NaN is larger than all numbers.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// /// The median of each row of 127 numbers.
    /// #[kernel]
    /// fn median(x: View<f32, 2>, y: View<f32, 2>) {
    ///     let sorted = x.partition([1, 127]).load().sort(1);
    ///     y.partition([1, 1]).store(sorted.part(1, 63..64));
    /// }
    /// median::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn sort(self, axis: i32) -> Tile<T> {
        trace::here();
        in_order(self.map(|x| T::key(x)), axis, T::LAST).map(|key| T::of_key(key))
    }

    /// In descending order along an axis. A NaN is larger than all numbers.
    #[must_use]
    #[track_caller]
    pub fn sort_descending(self, axis: i32) -> Tile<T> {
        trace::here();
        in_order(self.map(|x| !T::key(x)), axis, T::LAST).map(|key| T::of_key(!key))
    }
}

impl<T: Sorted<Key = u32>> Tile<T> {
    /// In ascending order along an axis, and where each was before. Equal elements stay in order; a NaN is larger than all numbers.
    #[must_use]
    #[track_caller]
    pub fn sort_with_places(self, axis: i32) -> (Tile<T>, Tile<u32>) {
        trace::here();
        let (keys, places) = in_order_with_places(self.map(|x| T::key(x)), axis);
        (keys.map(|key| T::of_key(key)), places)
    }

    /// In descending order along an axis, and where each was before. Equal elements stay in order; a NaN is larger than all numbers.
    #[must_use]
    #[track_caller]
    pub fn sort_descending_with_places(self, axis: i32) -> (Tile<T>, Tile<u32>) {
        trace::here();
        let (keys, places) = in_order_with_places(self.map(|x| !T::key(x)), axis);
        (keys.map(|key| T::of_key(!key)), places)
    }

    /// The places that would put an axis into ascending order. Equal elements stay in order; a NaN is larger than all numbers.
    #[must_use]
    #[track_caller]
    pub fn argsort(self, axis: i32) -> Tile<u32> {
        self.sort_with_places(axis).1
    }

    /// The `k` largest along an axis, in descending order, and their places; of equal ones the first. A NaN is larger than all numbers.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// /// The eight experts of each token, of 256.
    /// #[kernel]
    /// fn route(scores: View<f32, 2>, weights: View<f32, 2>, experts: View<u32, 2>) {
    ///     let (best, places) = scores.tile([4, 256]).block((program_id(0), 0)).load().top_k(8, 1);
    ///     weights.partition([4, 8]).store(best);
    ///     experts.partition([4, 8]).store(places);
    /// }
    /// route::stage()?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn top_k(self, k: u32, axis: i32) -> (Tile<T>, Tile<u32>) {
        trace::here();
        let (elements, places) = self.sort_descending_with_places(axis);
        (elements.part(axis, 0..k), places.part(axis, 0..k))
    }
}

impl Tile<u32> {
    /// How many elements are 0, 1, and so on up to `bins - 1`, in one dimension. Others are not counted: what is to be left out can be
    /// `u32::MAX`.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// /// How often each digit of 4 bits occurs in 1024 numbers, a row for each program.
    /// #[kernel]
    /// fn digits(x: View<u32, 1>, counts: View<u32, 2>, shift: u32) {
    ///     let x = x.tile([1024]).block(program_id(0)).load();
    ///     counts.partition([1, 16]).store(((x >> shift) & 15u32).histogram(16).unsqueeze(0));
    /// }
    /// digits::stage(8)?;
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn histogram(self, bins: u32) -> Tile<u32> {
        trace::here();
        let n = self.shape().elements();
        let Some(bounds) = bins.checked_add(1).filter(|_| bins > 0) else {
            trace::error(format!("a histogram of {bins} bins; expected at least 1"));
            return self;
        };
        let sorted = self.reshape([n]).sort(0);
        // How many are below each number, by halving.
        let number = arange(bounds);
        let mut below = Tile::<u32>::zeros([bounds]);
        for step in (0..=n.ilog2()).rev().map(|bit| 1 << bit) {
            let last = below + (step - 1);
            below = (below, last, sorted.take(last, 0), number).map(|(below, last, found, number)| {
                let more = compare(last, n, Cmp::Lt) & compare(found, number, Cmp::Lt);
                select(more, below + step, below)
            });
        }
        below.part(0, 1..bounds) - below.part(0, 0..bins)
    }
}

/// Keys above their places, so that no two are equal.
#[track_caller]
fn in_order_with_places(keys: Tile<u32>, axis: i32) -> (Tile<u32>, Tile<u32>) {
    let places = Tile::iota(axis, keys.shape());
    let both = (keys, places).map(|(key, place)| (key.cast::<u64>() << 32u32) | place.cast::<u64>());
    let both = in_order(both, axis, u64::MAX);
    both.map(|both| ((both >> 32u32).cast::<u32>(), both.cast::<u32>()))
}

/// Numbers in ascending order along an axis; `last` is none of them that anybody would miss.
#[track_caller]
fn in_order<K: Integer + Logic>(keys: Tile<K>, axis: i32, last: K) -> Tile<K> {
    let shape = keys.shape();
    let Some(axis) = axis_of(axis, shape.rank()) else { return keys };
    let (before, rest) = shape.extents().split_at(axis);
    let (outer, n, inner) = (before.iter().product(), rest[0], rest[1..].iter().product());
    // A network for powers of two. What comes last stays there, and goes again.
    let all: u32 = n.next_power_of_two();
    let mut keys = keys.reshape([outer, n, inner]);
    if all > n {
        keys = keys.cat(Tile::full([outer, all - n, inner], last), 1);
    }
    for size in 1..=all.ilog2() {
        for step in (0..size).rev() {
            keys = exchange([outer, all, inner], keys, (size, step));
        }
    }
    keys.reshape([outer, all, inner]).part(1, 0..n).reshape(shape)
}

/// Puts every two elements 2^step apart in order: ascending and descending in turns, by runs of 2^size elements, so that two runs together rise
/// and fall; the last one, of all elements, ascends.
#[track_caller]
fn exchange<K: Integer + Logic>(
    [outer, n, inner]: [u32; 3],
    keys: Tile<K>,
    (size, step): (u32, u32),
) -> Tile<K> {
    let pairs = [outer * (n >> (step + 1)), 2, inner << step];
    let keys = keys.reshape(pairs);
    let both = keys.reduce(1, |a: Val<K>, b: Val<K>| a ^ b);
    let second = Tile::iota(1, pairs);
    let larger =
        if n >> size > 1 { second ^ ((Tile::iota(0, pairs) >> (size - step - 1)) & 1u32) } else { second };
    (keys, both.broadcast_to(pairs), larger).map(|(own, both, larger)| {
        let other = both ^ own;
        select(compare(larger, 0u32, Cmp::Ne), own.max(other), own.min(other))
    })
}
