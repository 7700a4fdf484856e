//! What was compiled of a program: a few variants, the least recently used of which goes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tilewright_compiler::Build;
use tilewright_cuda::PackedKernelRef;
use tilewright_hardware::TensorMapSpec;
use tilewright_passes::Remark;
use tilewright_tile::{Fact, MapParameter, Number};

use super::super::code::Made;
use super::super::kernel::Body;
use super::super::packed::facts_text;
use super::super::{Device, DeviceError};
use super::facts::Key;

/// Variants that are kept.
const KEPT: usize = 32;

/// A program as it was compiled, or found in a [pack](super::super::Device::add_pack), for arguments of which certain facts hold. Printed, it
/// is the facts.
#[derive(Clone, Debug)]
pub struct Variant {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    facts: Vec<(String, Fact)>,
    block: Option<[u32; 3]>,
    cluster: Option<[u32; 3]>,
    maps: Vec<MapParameter>,
    /// If programs take turns: of how many blocks on each multiprocessor.
    resident: Option<u32>,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Compiled(Box<Build>),
    /// In words.
    Packed(String),
}

impl Variant {
    /// `facts` are those of the launch; a pack may know fewer of them.
    pub(super) fn new(facts: Vec<(String, Fact)>, made: Made) -> Variant {
        let shared = match made {
            Made::Compiled(build) => Shared {
                facts,
                block: build.code.launch.threads,
                cluster: build.code.launch.cluster,
                maps: build.maps.clone(),
                resident: build.resident,
                origin: Origin::Compiled(build),
            },
            Made::Packed(found) => {
                let PackedKernelRef { form, target, producer, block, cluster, .. } = found.kernel;
                let origin = Origin::Packed(format!("{form} for {target} by {producer}"));
                let (facts, maps, resident) = (found.facts, found.maps, found.resident);
                Shared { facts, block, cluster, maps, resident, origin }
            }
        };
        Variant { shared: Arc::new(shared) }
    }

    /// What holds of the arguments, by the name of the parameter: `x` is the pointer of a view `x`, `x_extent0` and `x_stride0` its
    /// numbers. `ctaid.y` and `ctaid.z` are the ids of programs along the second and third axis of the grid.
    #[must_use]
    pub fn facts(&self) -> &[(String, Fact)] {
        &self.shared.facts
    }

    /// The code and how it came about; nothing if it comes from a pack.
    #[must_use]
    pub fn build(&self) -> Option<&Build> {
        match &self.shared.origin {
            Origin::Compiled(build) => Some(build),
            Origin::Packed(_) => None,
        }
    }

    /// If it comes from a pack, what that has: machine code or PTX, for which target, by whom.
    #[must_use]
    pub fn packed(&self) -> Option<&str> {
        match &self.shared.origin {
            Origin::Compiled(_) => None,
            Origin::Packed(words) => Some(words),
        }
    }

    /// Threads of each block of a program.
    #[must_use]
    pub fn threads(&self) -> Option<u32> {
        self.shared.block.map(|block| block.iter().product())
    }

    /// The blocks of a program, if it has more than one.
    #[must_use]
    pub fn cluster(&self) -> Option<[u32; 3]> {
        self.shared.cluster
    }

    /// The tensor maps that a launch makes for it.
    #[must_use]
    pub fn maps(&self) -> &[MapParameter] {
        &self.shared.maps
    }

    /// What the compiler did, and what it missed, with the author's line; packs keep none of it.
    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        self.build().map_or(&[], |build| &build.report.remarks)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.facts().is_empty() {
            return f.write_str("any arguments");
        }
        f.write_str(&facts_text(self.facts()))
    }
}

/// A tensor map that a variant takes, with parameters by their number.
pub(super) struct MapPlan {
    pub(super) spec: TensorMapSpec,
    pub(super) pointer: usize,
    /// Innermost first.
    pub(super) extents: Vec<Source>,
    /// Elements between neighbours along all axes but the innermost.
    pub(super) strides: Vec<Source>,
}

/// Where a number of a tensor map comes from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Parameter(usize),
    Constant(u64),
    /// As many as the memory has room for.
    All,
}

impl MapPlan {
    /// None if a name is not that of a parameter, which the compiler does not do.
    fn new(map: &MapParameter, names: &[&str]) -> Option<MapPlan> {
        let position = |name: &str| names.iter().position(|known| *known == name);
        let source = |number: &Number| match number {
            Number::Parameter(name) => position(name).map(Source::Parameter),
            Number::Constant(number) => Some(Source::Constant(number.cast_unsigned())),
            Number::All => Some(Source::All),
        };
        Some(MapPlan {
            spec: map.spec.clone(),
            pointer: position(&map.pointer)?,
            extents: map.extents.iter().map(source).collect::<Option<_>>()?,
            strides: map.strides.iter().skip(1).map(source).collect::<Option<_>>()?,
        })
    }
}

/// A variant, loaded.
pub(super) struct Entry {
    key: Key,
    /// Where it is loaded; nowhere if this computer interprets the kernel.
    pub(super) body: Option<Body>,
    pub(super) variant: Variant,
    /// The tensor maps that it takes after all other arguments.
    pub(super) maps: Vec<MapPlan>,
    /// If programs take turns, the most blocks that the device runs at once.
    pub(super) resident: Option<u32>,
    /// When it was last asked for.
    used: AtomicU64,
}

impl Entry {
    /// `names` are those of the kernel's parameters, in their order.
    pub(super) fn new(
        device: &Device,
        key: Key,
        body: Option<Body>,
        variant: Variant,
        names: &[&str],
    ) -> Entry {
        let maps = variant.maps().iter().filter_map(|map| MapPlan::new(map, names)).collect();
        let resident = variant.shared.resident.map(|blocks| blocks * device.chip().multiprocessors);
        Entry { key, body, variant, maps, resident, used: AtomicU64::new(0) }
    }
}

#[derive(Default)]
pub(super) struct Variants {
    /// In the order in which they were made. Few, so that looking at all is faster than hashing.
    entries: RwLock<Vec<Arc<Entry>>>,
    clock: AtomicU64,
    /// Held by who makes one, so that nobody makes it twice.
    making: Mutex<()>,
}

impl Variants {
    /// The variant for these facts, made if there is none.
    pub(super) fn get(
        &self,
        key: &Key,
        make: impl FnOnce() -> Result<Entry, DeviceError>,
    ) -> Result<Arc<Entry>, DeviceError> {
        if let Some(entry) = self.find(key) {
            return Ok(entry);
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = self.find(key) {
            return Ok(entry);
        }
        let entry = Arc::new(make()?);
        entry.used.store(self.now(), Ordering::Relaxed);
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= KEPT {
            let oldest = (0..entries.len()).min_by_key(|&i| entries[i].used.load(Ordering::Relaxed));
            oldest.map(|oldest| entries.remove(oldest));
        }
        entries.push(entry.clone());
        Ok(entry)
    }

    fn find(&self, key: &Key) -> Option<Arc<Entry>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.iter().find(|entry| entry.key == *key)?;
        entry.used.store(self.now(), Ordering::Relaxed);
        Some(entry.clone())
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn all(&self) -> Vec<Variant> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.iter().map(|entry| entry.variant.clone()).collect()
    }
}
