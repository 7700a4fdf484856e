//! The one address space of host and devices, and who may use which part of it.
//!
//! Device memory has addresses that mean nothing to the host and are never given out twice, so a stale or stray
//! address is always recognised. Pinned and managed memory has the addresses of real host memory; when freed it is
//! kept aside for a while, poisoned, for the same reason.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, VecDeque};

use cudarc::driver::sys::CUresult;

use crate::entry::{Driver, Outcome};

/// Device addresses start here, where no operating system puts host memory on its own.
const FIRST_DEVICE_ADDRESS: u64 = 0x3000_0000_0000;
const LAST_DEVICE_ADDRESS: u64 = 0x4000_0000_0000;
/// Allocations are multiples of this, with as much unused space behind each.
const GRANULARITY: u64 = 512;
/// Fresh memory, up to a size at which filling it would cost too much.
const FRESH: u8 = 0xCD;
const FRESH_LIMIT: usize = 64 << 20;
const FREED: u8 = 0xDD;
/// Alignment of what stands for device memory: the host's allocator gives so much without touching every page, so
/// that an allocation of many gigabytes costs nothing until it is used.
const ALIGN: usize = 16;
/// Alignment of pinned and managed memory.
const PAGE: usize = 4096;
/// How much freed host memory is kept aside.
const QUARANTINE: usize = 256 << 20;

/// Bytes on the host.
#[derive(Debug)]
struct Storage {
    start: usize,
    layout: Layout,
}

impl Storage {
    fn new(bytes: u64, align: usize, fill: Option<u8>) -> Option<Storage> {
        let layout = Layout::from_size_align(bytes.max(1) as usize, align).ok()?;
        // SAFETY: the layout is not of size 0.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        let storage = Storage { start: start as usize, layout };
        if let Some(fill) = fill.filter(|_| layout.size() <= FRESH_LIMIT) {
            storage.fill(fill);
        }
        Some(storage)
    }

    /// Memory with the contents of an allocation that nobody has written.
    fn fresh(bytes: u64, align: usize) -> Option<Storage> {
        Storage::new(bytes, align, Some(FRESH))
    }

    fn fill(&self, byte: u8) {
        // SAFETY: the storage owns these bytes, and only work of the one thread that holds the lock uses them.
        unsafe { std::ptr::write_bytes(self.start as *mut u8, byte, self.layout.size()) };
    }

    fn size(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start as *mut u8, self.layout) };
    }
}

/// What sort of memory a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Device,
    /// A variable of a module.
    Variable,
    Managed,
    Pinned,
    /// The caller's memory, pinned by `cuMemHostRegister`.
    Registered,
}

/// A live or reserved piece of the address space.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    pub(crate) kind: Kind,
    pub(crate) pool: Option<usize>,
    pub(crate) flags: u32,
    /// The operation that makes it usable.
    pub(crate) allocation: Option<u64>,
    /// The operation that frees it.
    pub(crate) free: Option<u64>,
    /// Belongs to a node of a graph, so its address comes to life at every launch.
    pub(crate) of_graph: bool,
    /// `None` while reserved, and for registered memory.
    storage: Option<Storage>,
}

impl Range {
    fn end(&self) -> u64 {
        self.base + self.bytes
    }

    fn usable(&self) -> bool {
        self.storage.is_some() || self.kind == Kind::Registered
    }

    fn at(&self, address: u64) -> *mut u8 {
        let start = self.storage.as_ref().map_or(self.base as usize, |storage| storage.start);
        (start + (address - self.base) as usize) as *mut u8
    }
}

#[derive(Debug)]
pub(crate) struct AddressSpace {
    ranges: BTreeMap<u64, Range>,
    next: u64,
    quarantine: VecDeque<Storage>,
    leaked_device: usize,
    leaked_host: usize,
    leaked_registered: usize,
}

impl Default for AddressSpace {
    fn default() -> Self {
        AddressSpace {
            ranges: BTreeMap::new(),
            next: FIRST_DEVICE_ADDRESS,
            quarantine: VecDeque::new(),
            leaked_device: 0,
            leaked_host: 0,
            leaked_registered: 0,
        }
    }
}

impl AddressSpace {
    /// The range that holds an address.
    pub(crate) fn range_of(&self, address: u64) -> Option<&Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end()).then_some(range)
    }

    pub(crate) fn base_of(&self, address: u64) -> Option<u64> {
        self.range_of(address).map(|range| range.base)
    }

    /// The range that starts at an address.
    pub(crate) fn starting_at(&self, address: u64) -> Option<&Range> {
        self.ranges.get(&address)
    }

    pub(crate) fn allocation_queued(&mut self, base: u64, operation: u64) {
        if let Some(range) = self.ranges.get_mut(&base) {
            range.allocation = Some(operation);
            range.free = None;
        }
    }

    pub(crate) fn free_queued(&mut self, base: u64, operation: u64) {
        if let Some(range) = self.ranges.get_mut(&base) {
            range.free = Some(operation);
        }
    }

    fn is_device_address(address: u64) -> bool {
        (FIRST_DEVICE_ADDRESS..LAST_DEVICE_ADDRESS).contains(&address)
    }

    fn quarantined(&self, address: u64) -> bool {
        let address = address as usize;
        self.quarantine.iter().any(|old| (old.start..old.start + old.size()).contains(&address))
    }

    /// Whether an address can be a live one. Numbers that are no address at all pass.
    pub(crate) fn alive(&self, address: u64) -> Result<(), String> {
        match self.range_of(address) {
            Some(range) if range.usable() => Ok(()),
            Some(_) => Err(format!("{address:#x} is freed or not yet allocated")),
            // A pointer just behind an allocation is legal as long as nobody follows it.
            None if self.range_of(address.wrapping_sub(1)).is_some() => Ok(()),
            None if AddressSpace::is_device_address(address) => {
                Err(format!("{address:#x} is freed or was never allocated"))
            }
            None if self.quarantined(address) => Err(format!("{address:#x} is freed host memory")),
            None => Ok(()),
        }
    }

    /// The host address of live memory of any device.
    pub(crate) fn anywhere(&self, address: u64, bytes: u64) -> Result<*mut u8, String> {
        self.live(address, bytes).map(|range| range.at(address))
    }

    fn live(&self, address: u64, bytes: u64) -> Result<&Range, String> {
        let range = self.range_of(address).ok_or_else(|| format!("{address:#x} is no live memory"))?;
        if !range.usable() {
            return Err(format!("{address:#x} is freed or not yet allocated"));
        }
        let end = address.checked_add(bytes).filter(|&end| end <= range.end());
        end.ok_or_else(|| {
            let (base, size) = (range.base, range.bytes);
            format!("{bytes} bytes at {address:#x} leave their allocation of {size} bytes at {base:#x}")
        })?;
        Ok(range)
    }

    /// The address of host memory: pinned memory must be live, any other is the caller's business.
    pub(crate) fn host(&self, address: u64, bytes: u64) -> Result<*mut u8, String> {
        match self.range_of(address) {
            Some(range) if range.kind == Kind::Device => {
                Err(format!("{address:#x} is device memory, not host memory"))
            }
            Some(_) => self.anywhere(address, bytes),
            None => self.alive(address).map(|()| address as *mut u8),
        }
    }

    /// Whether the driver knows this host memory, so that it can be used when a copy runs.
    pub(crate) fn is_pinned(&self, address: u64) -> bool {
        self.range_of(address).is_some() || self.quarantined(address)
    }

    fn count(&self, wanted: impl Fn(Kind) -> bool) -> usize {
        self.ranges
            .values()
            .filter(|range| wanted(range.kind) && !range.of_graph && range.free.is_none())
            .count()
    }

    /// Allocations that the caller has yet to free; one whose free is queued is not counted.
    pub(crate) fn live_device(&self) -> usize {
        self.leaked_device + self.count(|kind| matches!(kind, Kind::Device | Kind::Managed))
    }

    pub(crate) fn live_host(&self) -> usize {
        self.leaked_host + self.count(|kind| kind == Kind::Pinned)
    }

    pub(crate) fn live_registered(&self) -> usize {
        self.leaked_registered + self.count(|kind| kind == Kind::Registered)
    }

    /// Drops the memory of a context that ends; returns pools and the bytes that they get back.
    pub(crate) fn end_context(&mut self, device: usize) -> Vec<(usize, u64)> {
        let before = (self.live_device(), self.live_host(), self.live_registered());
        (self.leaked_device, self.leaked_host, self.leaked_registered) = (0, 0, 0);
        let gone: Vec<u64> =
            self.ranges.values().filter(|range| range.device == device).map(|range| range.base).collect();
        let gone: Vec<Range> = gone.into_iter().filter_map(|base| self.discard(base)).collect();
        self.leaked_device = before.0 - self.live_device();
        self.leaked_host = before.1 - self.live_host();
        self.leaked_registered = before.2 - self.live_registered();
        gone.iter().filter_map(|range| Some((range.pool?, range.bytes))).collect()
    }

    /// Removes a range. Host memory stays readable for a while, full of poison.
    fn discard(&mut self, base: u64) -> Option<Range> {
        let mut range = self.ranges.remove(&base)?;
        if let Some(storage) = range.storage.take_if(|_| matches!(range.kind, Kind::Pinned | Kind::Managed)) {
            storage.fill(FREED);
            self.quarantine.push_back(storage);
            while self.quarantine.iter().map(Storage::size).sum::<usize>() > QUARANTINE {
                self.quarantine.pop_front();
            }
        }
        Some(range)
    }

    /// Adds memory that is the caller's.
    pub(crate) fn register(&mut self, device: usize, base: u64, bytes: u64, flags: u32) -> Outcome {
        let overlaps =
            self.ranges.range(..base + bytes).next_back().is_some_and(|(_, range)| range.end() > base);
        if overlaps {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        let range = Range { flags, ..Range::reserved(base, bytes, device, Kind::Registered) };
        self.ranges.insert(base, range);
        Ok(())
    }

    /// Removes memory that is the caller's.
    pub(crate) fn unregister(&mut self, base: u64) -> Outcome {
        match self.ranges.get(&base) {
            Some(range) if range.kind == Kind::Registered => {
                self.ranges.remove(&base);
                Ok(())
            }
            _ => Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
        }
    }
}

impl Range {
    fn reserved(base: u64, bytes: u64, device: usize, kind: Kind) -> Range {
        Range {
            base,
            bytes,
            device,
            kind,
            pool: None,
            flags: 0,
            allocation: None,
            free: None,
            of_graph: false,
            storage: None,
        }
    }
}

impl Driver {
    /// The host address of live memory that a device may use.
    pub(crate) fn memory_of(&self, device: usize, address: u64, bytes: u64) -> Result<*mut u8, String> {
        let range = self.memory.live(address, bytes)?;
        let pool_allows = |pool: usize| self.pools.get(pool).is_ok_and(|pool| pool.access.contains(&device));
        // Memory of a pool is reached by those whom the pool lets, whatever contexts allow each other.
        let allowed = range.device == device
            || !matches!(range.kind, Kind::Device | Kind::Variable)
            || range.pool.map_or_else(|| self.devices[device].peers.contains(&range.device), pool_allows);
        if !allowed {
            let owner = range.device;
            return Err(format!(
                "{address:#x} belongs to device {owner}, to which device {device} has no access"
            ));
        }
        Ok(range.at(address))
    }

    /// Device addresses without memory behind them yet; their bytes count from now on.
    pub(crate) fn reserve(
        &mut self,
        device: usize,
        bytes: u64,
        pool: Option<usize>,
        of_graph: bool,
    ) -> Outcome<u64> {
        if bytes == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let rounded =
            bytes.checked_next_multiple_of(GRANULARITY).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        let used = self.devices[device].used.checked_add(bytes).filter(|&used| used <= self.config.memory);
        let used = used.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
        if let Some(pool) = pool {
            self.pools.get_mut(pool)?.charge(bytes)?;
        }
        self.devices[device].used = used;
        let base = self.memory.next;
        self.memory.next += rounded + GRANULARITY;
        let range = Range { pool, of_graph, ..Range::reserved(base, bytes, device, Kind::Device) };
        self.memory.ranges.insert(base, range);
        Ok(base)
    }

    fn refund(&mut self, device: usize, bytes: u64, pool: Option<usize>) {
        self.devices[device].used = self.devices[device].used.saturating_sub(bytes);
        if let Some(pool) = pool.and_then(|pool| self.pools.get_mut(pool).ok()) {
            pool.used = pool.used.saturating_sub(bytes);
        }
    }

    /// Memory that can be used at once.
    pub(crate) fn allocate(&mut self, device: usize, bytes: u64, kind: Kind) -> Outcome<u64> {
        if bytes == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        if matches!(kind, Kind::Device | Kind::Variable) {
            let base = self.reserve(device, bytes, None, false)?;
            // Variables without a value are zero, by the rules of PTX.
            let storage = if kind == Kind::Device {
                Storage::fresh(bytes, ALIGN)
            } else {
                Storage::new(bytes, ALIGN, None)
            };
            let Some(storage) = storage else {
                self.release(base);
                return Err(out_of_memory);
            };
            if let Some(range) = self.memory.ranges.get_mut(&base) {
                range.storage = Some(storage);
                range.kind = kind;
            }
            return Ok(base);
        }
        let storage = Storage::fresh(bytes, PAGE).ok_or(out_of_memory)?;
        let base = storage.start as u64;
        let range = Range { storage: Some(storage), ..Range::reserved(base, bytes, device, kind) };
        self.memory.ranges.insert(base, range);
        Ok(base)
    }

    /// Ends an allocation, whatever it was.
    pub(crate) fn release(&mut self, base: u64) {
        if let Some(range) = self.memory.discard(base)
            && matches!(range.kind, Kind::Device | Kind::Variable)
            && range.device < self.devices.len()
        {
            self.refund(range.device, range.bytes, range.pool);
        }
    }

    pub(crate) fn perform_allocation(&mut self, base: u64) -> Result<(), String> {
        let range = self.memory.ranges.get_mut(&base).ok_or("its memory is gone")?;
        if range.of_graph && range.storage.is_some() {
            return Err(format!("the graph was launched again before its memory at {base:#x} was freed"));
        }
        range.storage = Some(Storage::fresh(range.bytes, ALIGN).ok_or("the host has no memory left")?);
        Ok(())
    }

    pub(crate) fn perform_free(&mut self, base: u64) -> Result<(), String> {
        let range = self.memory.ranges.get_mut(&base).ok_or("its memory is gone")?;
        if range.storage.is_none() {
            return Err(format!("{base:#x} is freed or not yet allocated"));
        }
        if range.of_graph {
            range.storage = None;
        } else {
            self.release(base);
        }
        Ok(())
    }
}
