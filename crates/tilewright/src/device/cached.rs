//! Kernels of a device that are staged, compiled and loaded once, under keys of any type.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, PoisonError, RwLock};

use tilewright_cuda::KernelCache;

use super::DeviceError;

/// What can name a kernel in the cache of a device: anything that can be compared and sent to other threads.
pub trait CacheKey: Hash + Eq + Clone + Send + Sync + 'static {}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> CacheKey for K {}

/// One cache for each type of key and of what it names.
#[derive(Default)]
pub(super) struct Kernels {
    by_type: RwLock<HashMap<(TypeId, TypeId), Arc<dyn Any + Send + Sync>>>,
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kernels")
    }
}

impl Kernels {
    /// The kernel or program of this key, made if there is none.
    pub(super) fn get<K: CacheKey, V: Send + Sync + 'static>(
        &self,
        key: &K,
        make: impl FnOnce() -> Result<V, DeviceError>,
    ) -> Result<Arc<V>, DeviceError> {
        // Not under the lock: what is made may itself ask for a kernel.
        self.of::<K, V>().get_or_try_insert_with(key, make)
    }

    fn of<K: CacheKey, V: Send + Sync + 'static>(&self) -> Arc<KernelCache<K, V>> {
        let ty = (TypeId::of::<K>(), TypeId::of::<V>());
        let known = self.by_type.read().unwrap_or_else(PoisonError::into_inner).get(&ty).cloned();
        let cache = known.unwrap_or_else(|| {
            let mut all = self.by_type.write().unwrap_or_else(PoisonError::into_inner);
            all.entry(ty).or_insert_with(|| Arc::new(KernelCache::<K, V>::new())).clone()
        });
        // What lies under a type's name is of that type: it is put there two lines above, and nowhere else.
        cache.downcast().unwrap_or_default()
    }
}
