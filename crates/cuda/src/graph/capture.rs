//! A capture under way: what a graph will need to keep.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::code::Loaded;
use crate::context::lock;
use crate::error::CudaError;
use crate::ffi::stream::Repeated;
use crate::memory::allocation::Allocation;
use crate::memory::order::{Access, Uses};
use crate::stream::Stream;

/// Everything that the nodes of a graph refer to, kept alive with it.
#[derive(Clone, Default)]
pub(crate) struct Resources {
    /// By address of the allocation's record.
    memory: HashMap<usize, (Arc<Allocation>, Access)>,
    modules: Vec<Arc<Loaded>>,
    functions: Vec<Arc<Repeated>>,
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} allocations, {} modules, {} functions",
            self.memory.len(),
            self.modules.len(),
            self.functions.len()
        )
    }
}

impl Resources {
    pub(crate) fn add_memory(&mut self, memory: &Arc<Allocation>, access: Access) {
        let key = Arc::as_ptr(memory).addr();
        let entry = self.memory.entry(key).or_insert_with(|| (memory.clone(), access));
        entry.1 = entry.1.max(access);
    }

    pub(crate) fn add_module(&mut self, module: &Arc<Loaded>) {
        if !self.modules.iter().any(|known| Arc::ptr_eq(known, module)) {
            self.modules.push(module.clone());
        }
    }

    pub(crate) fn add_function(&mut self, function: Arc<Repeated>) {
        self.functions.push(function);
    }

    /// Takes over what another graph needs.
    pub(crate) fn extend(&mut self, other: &Resources) {
        other.memory.values().for_each(|(memory, access)| self.add_memory(memory, *access));
        other.modules.iter().for_each(|module| self.add_module(module));
        self.functions.extend(other.functions.iter().cloned());
    }

    /// To be called before a graph with these resources is launched, or becomes part of another capture.
    pub(crate) fn before(&self, stream: &Stream) -> Result<(), CudaError> {
        if let Some(capture) = stream.current_capture() {
            lock(&capture.state).resources.extend(self);
        }
        self.memory.values().try_for_each(|(memory, access)| memory.before(stream, *access))
    }
}

/// A capture that has begun. Operations on its streams are not executed but become nodes.
pub(crate) struct Capture {
    over: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    resources: Resources,
    /// What the nodes do, in the same terms in which memory remembers live operations.
    uses: HashMap<usize, Uses<Stream>>,
    streams: Vec<Stream>,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Capture(over: {})", self.is_over())
    }
}

impl Capture {
    pub(crate) fn new() -> Arc<Capture> {
        Arc::new(Capture { over: AtomicBool::new(false), state: Mutex::default() })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn add_stream(&self, stream: &Stream) {
        lock(&self.state).streams.push(stream.clone());
    }

    pub(crate) fn add_module(&self, module: &Arc<Loaded>) {
        lock(&self.state).resources.add_module(module);
    }

    pub(crate) fn add_function(&self, function: Arc<Repeated>) {
        lock(&self.state).resources.add_function(function);
    }

    /// An operation is about to be captured: keeps its memory, and orders it after those it conflicts with.
    pub(crate) fn note(
        &self,
        memory: &Arc<Allocation>,
        stream: &Stream,
        access: Access,
    ) -> Result<(), CudaError> {
        let mut state = lock(&self.state);
        state.resources.add_memory(memory, access);
        let uses = state.uses.entry(Arc::as_ptr(memory).addr()).or_default();
        for other in uses.before(stream, access) {
            other.precede_in_capture(stream)?;
        }
        uses.enter(stream, access);
        Ok(())
    }

    /// Ends it: all streams are live again.
    pub(crate) fn finish(&self) -> Resources {
        self.over.store(true, Ordering::Release);
        let State { resources, uses: _, streams } = std::mem::take(&mut *lock(&self.state));
        streams.iter().for_each(Stream::leave_capture);
        resources
    }
}
