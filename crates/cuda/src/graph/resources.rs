//! What the nodes of a graph refer to.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::code::Loaded;
use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::ffi::stream::Repeated;
use crate::launch::Name;
use crate::memory::allocation::{Allocation, Home};
use crate::memory::order::{Access, enqueueing};
use crate::stream::Stream;

/// Kernels of a graph that are named when something goes wrong.
const NAMED: usize = 4;

/// Everything that the nodes of a graph refer to, kept alive with it.
#[derive(Clone, Default)]
pub(crate) struct Resources {
    /// By address of the allocation's record.
    memory: HashMap<usize, (Arc<Allocation>, Access)>,
    modules: Vec<Arc<Loaded>>,
    events: Vec<Arc<ffi::event::Event>>,
    kernels: usize,
    named: SmallVec<[Arc<str>; NAMED]>,
}

impl fmt::Debug for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} allocations, {} modules, {} events, {} kernels",
            self.memory.len(),
            self.modules.len(),
            self.events.len(),
            self.kernels
        )
    }
}

impl Resources {
    pub(crate) fn add_memory(&mut self, memory: &Arc<Allocation>, access: Access) {
        let key = Arc::as_ptr(memory).addr();
        let entry = self.memory.entry(key).or_insert_with(|| (memory.clone(), access));
        entry.1 = entry.1.max(access);
    }

    pub(crate) fn add_kernel(&mut self, module: &Arc<Loaded>, name: &Arc<str>) {
        self.add_module(module);
        self.kernels += 1;
        self.add_name(name);
    }

    fn add_module(&mut self, module: &Arc<Loaded>) {
        if !self.modules.iter().any(|known| Arc::ptr_eq(known, module)) {
            self.modules.push(module.clone());
        }
    }

    fn add_name(&mut self, name: &Arc<str>) {
        if self.named.len() < NAMED && !self.named.contains(name) {
            self.named.push(name.clone());
        }
    }

    /// Keeps a function until the graph is gone and all its launches are done, as memory is kept: it is the owner of an empty piece.
    pub(crate) fn add_function(&mut self, context: &Context, function: Arc<Repeated>) {
        let home = Home::Foreign(Some(Box::new(function)));
        self.add_memory(&Allocation::own(context, 0, 0, home), Access::Read);
    }

    pub(crate) fn add_event(&mut self, event: Arc<ffi::event::Event>) {
        self.events.push(event);
    }

    /// Takes over what another graph needs.
    pub(crate) fn extend(&mut self, other: &Resources) {
        other.memory.values().for_each(|(memory, access)| self.add_memory(memory, *access));
        self.extend_but_memory(other);
    }

    fn extend_but_memory(&mut self, other: &Resources) {
        other.modules.iter().for_each(|module| self.add_module(module));
        self.events.extend(other.events.iter().cloned());
        self.kernels += other.kernels;
        other.named.iter().for_each(|name| self.add_name(name));
    }

    /// All memory.
    pub(crate) fn memory(&self) -> impl Iterator<Item = (&Arc<Allocation>, Access)> {
        self.memory.values().map(|(memory, access)| (memory, *access))
    }

    /// What a launch is called in the message about a fault.
    fn title(&self) -> Arc<str> {
        let names: Vec<String> = self.named.iter().map(|name| format!("`{name}`")).collect();
        let more = if self.named.len() == NAMED { ", …" } else { "" };
        match self.kernels {
            0 => "a graph without kernels".into(),
            1 => format!("a graph with kernel {}", names.join(", ")).into(),
            n => format!("a graph with {n} kernels ({}{more})", names.join(", ")).into(),
        }
    }
}

/// Resources in the form in which a launch goes over them.
#[derive(Debug)]
pub(crate) struct Launchable {
    /// Looking at each is one comparison when the stream is the same as before.
    memory: Box<[(Arc<Allocation>, Access)]>,
    all: Resources,
    title: Name,
    /// Whether the host or somebody else may want some of the memory.
    contested: bool,
}

impl Launchable {
    pub(crate) fn new(all: Resources) -> Launchable {
        let title = Name::new(&all.title());
        let memory: Box<[_]> = all.memory.values().cloned().collect();
        let contested = memory.iter().any(|(memory, _)| memory.is_contested());
        Launchable { memory, all, title, contested }
    }

    /// Orders a launch, and makes it.
    pub(crate) fn launch(
        &self,
        stream: &Stream,
        launch: impl FnOnce() -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let turn = stream.turn();
        if let Some(capture) = turn.capture() {
            capture.with_resources(|resources| resources.extend_but_memory(&self.all));
            self.memory.iter().try_for_each(|(memory, access)| capture.note(memory, stream, *access))?;
            return launch();
        }
        let _host_waits = self.contested.then(enqueueing);
        self.memory.iter().try_for_each(|(memory, access)| memory.order().before(stream, *access))?;
        launch()?;
        stream.note_launch(self.title, [0; 3], [0; 3]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_named_by_its_kernels() {
        let with = |kernels: usize, names: &[&str]| {
            let mut resources = Resources { kernels, ..Resources::default() };
            names.iter().for_each(|name| resources.add_name(&Arc::from(*name)));
            resources.title()
        };
        assert_eq!(&*with(0, &[]), "a graph without kernels");
        assert_eq!(&*with(1, &["a"]), "a graph with kernel `a`");
        assert_eq!(&*with(3, &["a", "b", "a"]), "a graph with 3 kernels (`a`, `b`)");
        assert_eq!(&*with(9, &["a", "b", "c", "d", "e"]), "a graph with 9 kernels (`a`, `b`, `c`, `d`, …)");
    }
}
