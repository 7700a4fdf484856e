//! For helpers that remember what they have staged: whether two values are the same computation, and whether a value that was staged
//! before can be used at the place that is being staged now.
//!
//! The compiler finds equal computations by itself, but it does not repeat a load in place of another: memory may have changed. Who
//! knows that it has not, remembers the loaded value in a [`Memo`].

use tilewright_ir::{Def, Func, Region, Value};

use crate::trace;
use crate::value::Val;

/// How far [`same`] looks into the computation of a value. Indices are short sums.
const DEPTH: u32 = 12;

/// Whether two values are surely equal: computed in the same way from the same values, without any memory.
///
/// ```
/// use tilewright_lang::prelude::*;
/// use tilewright_lang::same;
/// #[kernel]
/// fn k(x: Global<f32>) {
///     let row = || thread_id(0) / 4u32 + 8u32;
///     assert!(same(row(), row()) && !same(row(), thread_id(0)));
///     // What memory holds may change in between.
///     assert!(!same(x.load(), x.load()));
/// }
/// k::stage()?;
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[must_use]
pub fn same<T>(a: Val<T>, b: Val<T>) -> bool {
    trace::with(|t| same_values(&t.builder.func, a.id, b.id, DEPTH))
}

fn same_values(func: &Func, a: Value, b: Value, depth: u32) -> bool {
    if a == b {
        return true;
    }
    let (Def::Result(x, i), Def::Result(y, j)) = (func.value(a).def, func.value(b).def) else { return false };
    let (x, y) = (func.op(x), func.op(y));
    depth > 0
        && i == j
        && x.code == y.code
        && x.info().is_pure()
        && x.regions.is_empty()
        && func.ty(a) == func.ty(b)
        && x.attrs == y.attrs
        && x.operands.len() == y.operands.len()
        && x.operands.iter().zip(&y.operands).all(|(&a, &b)| same_values(func, a, b, depth - 1))
}

/// A place of the kernel that is being staged, as far as it matters for the use of values: inside of which `if`s and loops it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inside(Region);

impl Inside {
    /// Where the next operation goes.
    #[must_use]
    pub fn here() -> Inside {
        Inside(trace::with(|t| t.builder.region()))
    }

    /// Whether what was staged there can be used here: the `if` or the loop has not ended.
    #[must_use]
    pub fn is_open(self) -> bool {
        trace::with(|t| t.builder.is_open(self.0))
    }
}

/// Staged values by what they are of. It forgets those that cannot be used any more because the `if` or the loop that staged them has
/// ended, and beyond its capacity the one that was used longest ago: what is remembered occupies registers.
#[derive(Debug)]
pub struct Memo<K, V> {
    /// Used last comes last.
    entries: Vec<(Inside, K, V)>,
    capacity: usize,
}

impl<K, V: Copy> Memo<K, V> {
    /// Remembers nothing yet, and never more than `capacity` values.
    #[must_use]
    pub fn new(capacity: usize) -> Memo<K, V> {
        Memo { entries: Vec::new(), capacity }
    }

    /// The value of a key that `is` says yes to, if it can be used here.
    pub fn find(&mut self, is: impl Fn(&K) -> bool) -> Option<V> {
        self.entries.retain(|(place, ..)| place.is_open());
        let found = self.entries.iter().rposition(|(_, key, _)| is(key))?;
        let entry = self.entries.remove(found);
        let value = entry.2;
        self.entries.push(entry);
        Some(value)
    }

    /// Remembers a value that has just been staged.
    pub fn insert(&mut self, key: K, value: V) {
        if self.capacity == 0 {
            return;
        }
        if self.entries.len() == self.capacity {
            self.entries.remove(0);
        }
        self.entries.push((Inside::here(), key, value));
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
    }
}

/// Reports a mistake in the kernel that is being staged, at the caller's place: for libraries of kernels. Staging goes on, and fails
/// at its end with this message among others.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel]
/// fn k(width: u32) {
///     if width > 4 {
///         tilewright_lang::mistake(format!("a width of {width}; expected at most 4"));
///     }
/// }
/// assert!(k::stage(8).unwrap_err().to_string().contains("expected at most 4"));
/// ```
#[track_caller]
pub fn mistake(message: impl Into<String>) {
    trace::error(message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;

    /// Stages a kernel that remembers loads of `x[i]`, and returns the number of loads in it.
    fn loads(capacity: usize, body: impl Fn(&mut dyn FnMut(Val<u32>))) -> usize {
        let kernel = crate::kernel::stage("k", || {
            let x: Global<f32> = Argument::declare("x");
            let mut memo = Memo::new(capacity);
            body(&mut |index| {
                if memo.find(|&known| same(known, index)).is_none() {
                    memo.insert(index, x.at(index).load());
                }
            });
        });
        kernel.unwrap().ir().matches(" load ").count()
    }

    #[device]
    fn in_first_thread(mut f: impl FnMut()) {
        if thread_id(0) == 0 {
            f();
        }
    }

    #[test]
    fn what_was_staged_is_found_where_it_can_be_used() {
        let index = || thread_id(0) + 1u32;
        assert_eq!(
            loads(4, |load| {
                load(index());
                load(index());
                load(thread_id(0));
            }),
            2
        );
        // A value from inside of an `if` does not exist after it, one from before exists inside.
        assert_eq!(
            loads(4, |load| {
                in_first_thread(|| load(index()));
                load(index());
                in_first_thread(|| load(index()));
            }),
            2
        );
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten_first() {
        assert_eq!(
            loads(2, |load| {
                for i in [0u32, 1, 0, 2, 0, 1] {
                    load(thread_id(0) + i);
                }
            }),
            4
        );
        assert_eq!(loads(0, |load| (0..3).for_each(|_| load(thread_id(0)))), 3);
    }
}
