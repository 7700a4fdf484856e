//! Everything the driver knows, in one place behind one lock.
//!
//! Handles are numbers that are never used twice, so a handle of something destroyed is always recognised.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cudarc::driver::sys::CUresult;

use crate::code::{Function, Link, Module};
use crate::entry::Outcome;
use crate::execution::{Event, Schedule, Stream};
use crate::graph::{Capture, Exec, Graph, UserObject};
use crate::inspect::Record;
use crate::memory::{AddressSpace, Pool};

/// What the environment asks for; see the crate's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) devices: usize,
    pub(crate) memory: u64,
    pub(crate) lazy: bool,
    /// After this time a host function runs although nobody has synchronised.
    pub(crate) patience: Duration,
}

impl Config {
    fn from_environment() -> Config {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.trim().parse::<u64>().ok());
        Config {
            devices: number("FAKE_CUDA_DEVICES").unwrap_or(2) as usize,
            // About what an H200 has.
            memory: number("FAKE_CUDA_MEMORY").unwrap_or(150_109_880_320),
            lazy: number("FAKE_CUDA_LAZY") != Some(0),
            patience: Duration::from_millis(number("FAKE_CUDA_PATIENCE_MS").unwrap_or(100)),
        }
    }
}

/// A device with its primary context, the only context it has.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// How often the context was retained; at 0 there is none.
    pub(crate) retained: usize,
    pub(crate) sticky: Option<CUresult>,
    /// Devices whose memory the context may use.
    pub(crate) peers: BTreeSet<usize>,
    pub(crate) limits: BTreeMap<u32, usize>,
    /// Bytes allocated.
    pub(crate) used: u64,
    pub(crate) default_pool: usize,
    pub(crate) pool: usize,
    pub(crate) legacy_stream: usize,
    /// Last operations of destroyed streams that the legacy stream still has to wait for.
    pub(crate) orphans: Vec<u64>,
}

/// Something that belongs to a context and goes away with it.
pub(crate) trait Owned {
    fn device(&self) -> usize;
    /// Whether the caller must destroy it.
    fn counted(&self) -> bool {
        true
    }
}

/// The live objects of one kind.
#[derive(Debug)]
pub(crate) struct Table<T> {
    entries: BTreeMap<usize, T>,
    /// Objects that were never destroyed before their context was.
    leaked: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { entries: BTreeMap::new(), leaked: 0 }
    }
}

impl<T: Owned> Table<T> {
    pub(crate) fn insert(&mut self, handle: usize, value: T) {
        self.entries.insert(handle, value);
    }

    pub(crate) fn get(&self, handle: usize) -> Outcome<&T> {
        self.entries.get(&handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Outcome<&mut T> {
        self.entries.get_mut(&handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Outcome<T> {
        self.entries.remove(&handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.entries.iter().map(|(&handle, value)| (handle, value))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.entries.iter_mut().map(|(&handle, value)| (handle, value))
    }

    /// Objects that the caller has not destroyed.
    pub(crate) fn live(&self) -> usize {
        self.leaked + self.entries.values().filter(|value| value.counted()).count()
    }

    /// Drops what belongs to a context that ends.
    fn end_context(&mut self, device: usize) {
        let before = self.live();
        self.entries.retain(|_, value| value.device() != device);
        self.leaked = 0;
        self.leaked = before - self.live();
    }
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) initialised: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) memory: AddressSpace,
    pub(crate) schedule: Schedule,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) modules: Table<Module>,
    pub(crate) functions: Table<Function>,
    pub(crate) links: Table<Link>,
    pub(crate) pools: Table<Pool>,
    pub(crate) graphs: Table<Graph>,
    pub(crate) execs: Table<Exec>,
    pub(crate) user_objects: Table<UserObject>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) record: Record,
    next_handle: usize,
}

/// Context handles: far from all others, the same each time the context is made again.
const CONTEXTS: usize = 0x0C0D_0000;

impl State {
    pub(crate) fn from_environment() -> State {
        State {
            config: Config::from_environment(),
            initialised: false,
            devices: Vec::new(),
            memory: AddressSpace::default(),
            schedule: Schedule::default(),
            streams: Table::default(),
            events: Table::default(),
            modules: Table::default(),
            functions: Table::default(),
            links: Table::default(),
            pools: Table::default(),
            graphs: Table::default(),
            execs: Table::default(),
            user_objects: Table::default(),
            captures: BTreeMap::new(),
            record: Record::from_environment(),
            next_handle: 0x0F00_0000,
        }
    }

    /// A handle that nothing else has or had.
    pub(crate) fn handle(&mut self) -> usize {
        self.next_handle += 0x40;
        self.next_handle
    }

    pub(crate) fn context_of_device(device: usize) -> usize {
        CONTEXTS + 0x100 * (device + 1)
    }

    pub(crate) fn device_of_context(&self, handle: usize) -> Outcome<usize> {
        (0..self.devices.len())
            .find(|&device| State::context_of_device(device) == handle)
            .ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// The index of a device that exists.
    pub(crate) fn ordinal(&self, device: i32) -> Outcome<usize> {
        usize::try_from(device)
            .ok()
            .filter(|&device| device < self.devices.len())
            .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
    }

    /// Ends a context: what was not destroyed is lost and counts as leaked.
    pub(crate) fn end_context(&mut self, device: usize) {
        self.schedule.end_context(device);
        self.captures.retain(|_, capture| capture.device != device);
        self.streams.end_context(device);
        self.events.end_context(device);
        self.modules.end_context(device);
        self.functions.end_context(device);
        self.links.end_context(device);
        self.graphs.end_context(device);
        self.execs.end_context(device);
        for (pool, bytes) in self.memory.end_context(device) {
            if let Ok(pool) = self.pools.get_mut(pool) {
                pool.used = pool.used.saturating_sub(bytes);
            }
        }
        let Device { default_pool, pool, .. } = self.devices[device];
        self.devices[device] = Device { default_pool, pool, ..Device::default() };
    }

    /// Makes the devices, each with the memory pool that it has from the beginning.
    pub(crate) fn initialise(&mut self) -> Outcome {
        if self.config.devices == 0 {
            return Err(CUresult::CUDA_ERROR_NO_DEVICE);
        }
        for device in self.devices.len()..self.config.devices {
            let pool = self.handle();
            self.pools.insert(pool, Pool::default_of(device));
            self.devices.push(Device { default_pool: pool, pool, ..Device::default() });
        }
        self.initialised = true;
        Ok(())
    }

    /// Makes the legacy stream, which a context has from the beginning.
    pub(crate) fn begin_context(&mut self, device: usize) {
        let legacy = self.handle();
        self.streams.insert(legacy, Stream::implicit(device, legacy as u64));
        self.devices[device].legacy_stream = legacy;
    }

    /// The number of objects of every kind that the caller has yet to destroy.
    pub(crate) fn live(&self) -> BTreeMap<&'static str, usize> {
        BTreeMap::from([
            ("contexts", self.devices.iter().map(|device| device.retained).sum()),
            ("streams", self.streams.live()),
            ("events", self.events.live()),
            ("modules", self.modules.live()),
            ("links", self.links.live()),
            ("pools", self.pools.live()),
            ("graphs", self.graphs.live()),
            ("execs", self.execs.live()),
            ("user_objects", self.user_objects.live()),
            ("captures", self.captures.len()),
            ("device_memory", self.memory.live_device()),
            ("host_memory", self.memory.live_host()),
            ("registered_memory", self.memory.live_registered()),
        ])
    }
}
