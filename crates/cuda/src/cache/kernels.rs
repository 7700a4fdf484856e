//! The cache of a process: what has been made is made once, whichever thread asks.
//!
//! A hit is a read lock, a hash and one reference counted up. A miss runs the maker outside all locks, so that different
//! keys are made at the same time; others that want the same key wait for it. A maker that fails or panics leaves no
//! trace: one of those who waited tries with its own maker.
//!
//! # Limits
//!
//! Two makers that each ask for the other's key from two threads wait for ever, as two locks taken in two orders would. A
//! maker that asks for its own key does not: it makes the inner value for itself.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::{self, ThreadId};

/// Values by key, each made once and shared.
///
/// ```
/// use tilewright_cuda::KernelCache;
///
/// let cache = KernelCache::<String, usize>::new();
/// let length = |text: &str| cache.get_or_try_insert_with(text, || Ok::<_, std::fmt::Error>(text.len()));
/// assert_eq!(*length("kernel")?, 6);
/// assert_eq!(*cache.get_or_try_insert_with("kernel", || Err("is there already"))?, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KernelCache<K, V> {
    slots: RwLock<HashMap<K, Slot<V>>>,
}

enum Slot<V> {
    Ready(Arc<V>),
    Making(Arc<Gate>),
}

/// What those wait at who want a value that is being made.
struct Gate {
    maker: ThreadId,
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn new() -> Gate {
        Gate { maker: thread::current().id(), open: Mutex::new(false), opened: Condvar::new() }
    }

    fn wait(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(open, |open| !*open));
    }

    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.opened.notify_all();
    }
}

/// Ends the making of a value, however the maker ends.
struct Making<'a, K: Hash + Eq + Borrow<Q>, V, Q: ?Sized + Hash + Eq> {
    cache: &'a KernelCache<K, V>,
    key: &'a Q,
    gate: Arc<Gate>,
}

impl<K: Hash + Eq + Borrow<Q>, V, Q: ?Sized + Hash + Eq> Making<'_, K, V, Q> {
    fn finish(self, value: &Arc<V>) {
        if let Some(slot) = self.cache.write().get_mut(self.key) {
            *slot = Slot::Ready(Arc::clone(value));
        }
    }
}

impl<K: Hash + Eq + Borrow<Q>, V, Q: ?Sized + Hash + Eq> Drop for Making<'_, K, V, Q> {
    fn drop(&mut self) {
        let mut slots = self.cache.write();
        // Only its own: after a finish and a clear, the key may already be in another thread's making.
        if matches!(slots.get(self.key), Some(Slot::Making(gate)) if Arc::ptr_eq(gate, &self.gate)) {
            slots.remove(self.key);
        }
        drop(slots);
        self.gate.open();
    }
}

impl<K: Hash + Eq, V> KernelCache<K, V> {
    /// An empty cache.
    pub fn new() -> KernelCache<K, V> {
        KernelCache { slots: RwLock::default() }
    }

    /// The value of the key; made now if there is none, and stored unless that fails.
    ///
    /// Of several callers with one key only one makes it. If it fails its caller gets the error, and the next in line
    /// tries.
    pub fn get_or_try_insert_with<Q, E>(
        &self,
        key: &Q,
        make: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        loop {
            let seen = match self.read().get(key) {
                Some(Slot::Ready(value)) => return Ok(Arc::clone(value)),
                Some(Slot::Making(gate)) => Some(Arc::clone(gate)),
                None => None,
            };
            match seen {
                Some(gate) if gate.maker == thread::current().id() => return make().map(Arc::new),
                Some(gate) => gate.wait(),
                None => {
                    if let Some(making) = self.begin(key) {
                        let value = Arc::new(make()?);
                        making.finish(&value);
                        return Ok(value);
                    }
                }
            }
        }
    }

    /// Takes the making of a key, unless another thread has it or has done it.
    fn begin<'a, Q>(&'a self, key: &'a Q) -> Option<Making<'a, K, V, Q>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq + ToOwned<Owned = K>,
    {
        let gate = Arc::new(Gate::new());
        let owned = key.to_owned();
        let mut slots = self.write();
        if slots.contains_key(key) {
            return None;
        }
        slots.insert(owned, Slot::Making(Arc::clone(&gate)));
        drop(slots);
        Some(Making { cache: self, key, gate })
    }

    /// The value of the key, if it has been made.
    pub fn get<Q>(&self, key: &Q) -> Option<Arc<V>>
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        match self.read().get(key) {
            Some(Slot::Ready(value)) => Some(Arc::clone(value)),
            _ => None,
        }
    }

    /// Whether the value of the key has been made.
    pub fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: ?Sized + Hash + Eq,
    {
        matches!(self.read().get(key), Some(Slot::Ready(_)))
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.read().values().filter(|slot| matches!(slot, Slot::Ready(_))).count()
    }

    /// Whether there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets all values; those in use live on with their users, and those being made are kept.
    pub fn clear(&self) {
        let kept = |slots: &mut HashMap<K, Slot<V>>| {
            let (making, ready) =
                std::mem::take(slots).into_iter().partition(|(_, slot)| matches!(slot, Slot::Making(_)));
            *slots = making;
            ready
        };
        // Dropped outside the lock: unloading a kernel takes its time.
        let forgotten: HashMap<K, Slot<V>> = kept(&mut self.write());
        drop(forgotten);
    }

    /// A panic in somebody's `Hash` or `Eq` leaves a map that is still whole.
    fn read(&self) -> RwLockReadGuard<'_, HashMap<K, Slot<V>>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<K, Slot<V>>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq, V> Default for KernelCache<K, V> {
    fn default() -> KernelCache<K, V> {
        KernelCache::new()
    }
}

impl<K: Hash + Eq, V> fmt::Debug for KernelCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelCache").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    const THREADS: usize = 16;

    fn on_all_threads(work: impl Fn(usize) + Sync) {
        let start = Barrier::new(THREADS);
        thread::scope(|scope| {
            for index in 0..THREADS {
                let (work, start) = (&work, &start);
                scope.spawn(move || {
                    start.wait();
                    work(index);
                });
            }
        });
    }

    #[test]
    fn sixteen_threads_make_each_value_once() {
        const ROUNDS: usize = 300;
        let cache = KernelCache::<usize, usize>::new();
        let made = AtomicUsize::new(0);
        let together = Barrier::new(THREADS);
        on_all_threads(|_| {
            for key in 0..ROUNDS {
                // All ask at once, so that some see nothing and yet come second.
                together.wait();
                let value = cache.get_or_try_insert_with(&key, || {
                    made.fetch_add(1, Ordering::Relaxed);
                    thread::yield_now();
                    Ok::<_, Infallible>(key * 3)
                });
                assert_eq!(*value.unwrap(), key * 3);
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), ROUNDS);
        assert_eq!(cache.len(), ROUNDS);
    }

    #[test]
    fn different_keys_are_made_at_the_same_time() {
        // Each maker waits until all are at work: one lock around them would never let them meet.
        let cache = KernelCache::<usize, ()>::new();
        let all = Barrier::new(THREADS);
        on_all_threads(|index| {
            let made = cache.get_or_try_insert_with(&index, || {
                all.wait();
                Ok::<_, Infallible>(())
            });
            made.unwrap();
        });
        assert_eq!(cache.len(), THREADS);
    }

    #[test]
    fn after_a_failure_the_next_in_line_tries() {
        let cache = KernelCache::<String, usize>::new();
        let tries = AtomicUsize::new(0);
        let failures = AtomicUsize::new(0);
        on_all_threads(|_| {
            let outcome = cache.get_or_try_insert_with("kernel", || {
                thread::sleep(Duration::from_millis(2));
                match tries.fetch_add(1, Ordering::Relaxed) {
                    attempt @ 0..5 => Err(attempt),
                    attempt => Ok(attempt),
                }
            });
            match outcome {
                Ok(value) => assert_eq!(*value, 5),
                Err(_) => drop(failures.fetch_add(1, Ordering::Relaxed)),
            }
        });
        assert_eq!((tries.into_inner(), failures.into_inner()), (6, 5));
        assert!(cache.contains("kernel"));
    }

    #[test]
    fn after_a_panic_the_next_in_line_tries() {
        let cache = KernelCache::<String, usize>::new();
        let tries = AtomicUsize::new(0);
        let panics = AtomicUsize::new(0);
        on_all_threads(|_| {
            let ask = || {
                cache.get_or_try_insert_with("kernel", || {
                    thread::sleep(Duration::from_millis(2));
                    if tries.fetch_add(1, Ordering::Relaxed) < 3 {
                        std::panic::resume_unwind(Box::new("the maker gave up"));
                    }
                    Ok::<_, Infallible>(7)
                })
            };
            match catch_unwind(AssertUnwindSafe(ask)) {
                Ok(value) => assert_eq!(*value.unwrap(), 7),
                Err(_) => drop(panics.fetch_add(1, Ordering::Relaxed)),
            }
        });
        assert_eq!((tries.into_inner(), panics.into_inner()), (4, 3));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_maker_may_ask_for_other_keys_and_for_its_own() {
        let cache = KernelCache::<u32, u32>::new();
        let outer = cache.get_or_try_insert_with(&1, || {
            let other = cache.get_or_try_insert_with(&2, || Ok::<_, Infallible>(20))?;
            let own = cache.get_or_try_insert_with(&1, || Ok::<_, Infallible>(1))?;
            Ok::<_, Infallible>(*other + *own)
        });
        assert_eq!(*outer.unwrap(), 21);
        assert_eq!((cache.get(&1).as_deref(), cache.get(&2).as_deref()), (Some(&21), Some(&20)));
    }

    #[test]
    fn clearing_forgets_values_but_not_those_in_use_or_in_the_making() {
        let cache = KernelCache::<u32, u32>::new();
        let held = cache.get_or_try_insert_with(&1, || Ok::<_, Infallible>(10)).unwrap();
        let made = cache.get_or_try_insert_with(&2, || {
            cache.clear();
            assert!(cache.is_empty() && !cache.contains(&1) && cache.get(&2).is_none());
            Ok::<_, Infallible>(20)
        });
        assert_eq!((*held, *made.unwrap()), (10, 20));
        assert!(cache.contains(&2));
    }

    #[test]
    fn a_hit_does_not_copy_the_key() {
        #[derive(Hash, PartialEq, Eq)]
        struct Name(u32);
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        impl Clone for Name {
            fn clone(&self) -> Name {
                COPIES.fetch_add(1, Ordering::Relaxed);
                Name(self.0)
            }
        }
        let cache = KernelCache::<Name, u32>::new();
        for _ in 0..10 {
            cache.get_or_try_insert_with(&Name(1), || Ok::<_, Infallible>(1)).unwrap();
        }
        assert_eq!(COPIES.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_hit_is_well_under_a_microsecond() {
        let cache = KernelCache::<(usize, u64), usize>::new();
        for key in 0..1000 {
            cache.get_or_try_insert_with(&(key, 1), || Ok::<_, Infallible>(key)).unwrap();
        }
        // The fastest of many short runs: what the code costs, not what else the machine does.
        let run = |_| {
            let start = Instant::now();
            for key in 0..1000 {
                let value = cache.get_or_try_insert_with(&(key, 1), || Err("made again"));
                assert_eq!(*value.unwrap(), key);
            }
            start.elapsed() / 1000
        };
        let hit = (0..200).map(run).min().unwrap();
        println!("a hit takes {hit:?}");
        assert!(hit < Duration::from_micros(1), "{hit:?}");
    }
}
