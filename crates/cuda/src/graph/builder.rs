//! Graphs that are built node by node.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use smallvec::SmallVec;

use super::conflict::{self, Ordered, Touch, Toucher};
use super::resources::Resources;
use super::{Graph, Node};
use crate::code::Kernel;
use crate::context::Context;
use crate::error::CudaError;
use crate::event::Event;
use crate::ffi;
use crate::ffi::graph::Fill;
use crate::ffi::memory::Word;
use crate::ffi::stream::Repeated;
use crate::launch::{Arg, Arguments, LaunchConfig};
use crate::memory::allocation::Allocation;
use crate::memory::copy::Pattern;
use crate::memory::order::Access;
use crate::memory::{SliceMut, Source, Target};

/// A graph in the making: operations, each with those that it comes after.
///
/// What has no dependency on each other may run at the same time, so here, unlike on streams and in captures, the author says what waits
/// for what. A dependency that is missing is found: [`GraphBuilder::finish`] refuses a graph in which two operations use the same bytes,
/// one of them writes, and neither comes before the other. What a kernel does through a raw address ([`Arg::address`]) is not seen.
///
/// ```no_run
/// # use tilewright_cuda::{Code, Context, CudaError, LaunchConfig};
/// # let saxpy_ptx = "";
/// let context = Context::new(0)?;
/// let stream = context.stream()?;
/// let (x, mut y) = (stream.alloc::<f32>(1000)?, stream.alloc::<f32>(1000)?);
/// let mut out = stream.alloc::<f32>(1000)?;
/// // SAFETY: `saxpy` touches x and y below n only.
/// let saxpy = unsafe { context.load(&Code::ptx(saxpy_ptx)) }?.kernel("saxpy")?;
///
/// let mut graph = context.graph()?;
/// let clear = graph.fill(&mut y, 0.0, &[])?;
/// let add = graph.kernel(&saxpy, &LaunchConfig::cover(1000, 256), (2.0f32, &x, &mut y, 1000u32), &[clear])?;
/// graph.copy(&y, &mut out, &[add])?; // without `add`: an error from `finish`
/// let ready = graph.finish()?.instantiate()?;
/// ready.launch(&stream)?;
/// # Ok::<(), CudaError>(())
/// ```
#[derive(Debug)]
pub struct GraphBuilder {
    context: Context,
    raw: ffi::graph::Graph,
    model: Model,
    /// Whether the driver refused a node: it may have part of it.
    refused: bool,
}

/// What is known of a graph that was built node by node.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// No other graph of the process has it.
    id: u64,
    operations: Vec<Operation>,
    /// What operations need beside memory and kernels.
    kept: Resources,
}

/// A node and what it does.
#[derive(Clone, Debug)]
struct Operation {
    raw: ffi::graph::Node,
    what: What,
    /// Ascending.
    after: SmallVec<[usize; 4]>,
    uses: SmallVec<[Use; 3]>,
}

#[derive(Clone, Debug)]
enum What {
    Kernel { kernel: Kernel, config: LaunchConfig },
    Copy,
    Fill,
    HostCall,
    Empty,
    Record,
    Wait,
    Graph,
}

/// Memory that an operation uses.
#[derive(Clone, Debug)]
struct Use {
    memory: Arc<Allocation>,
    /// Addresses.
    range: Range<u64>,
    access: Access,
    /// The number of the parameter, if the operation is a kernel.
    parameter: usize,
}

impl Ordered for Operation {
    fn after(&self) -> &[usize] {
        &self.after
    }

    fn touches(&self) -> impl Iterator<Item = Touch> {
        self.uses.iter().map(|used| Touch { range: used.range.clone(), access: used.access })
    }
}

impl Operation {
    /// What it is and does to some memory, for messages.
    fn describe(&self, number: usize, used: &Use) -> String {
        let does = match used.access {
            Access::Read => "reads",
            Access::Write => "writes",
        };
        let what = match &self.what {
            What::Kernel { kernel, .. } => {
                let parameter = &kernel.signature().parameters[used.parameter].name;
                format!("kernel `{}`, which {does} its `{parameter}`", kernel.name())
            }
            What::Copy => format!("a copy, which {does} it"),
            What::Fill => "a filling".to_owned(),
            What::Graph => format!("a graph, which {does} it"),
            What::HostCall | What::Empty | What::Record | What::Wait => "which uses no memory".to_owned(),
        };
        format!("node {number} ({what})")
    }
}

/// Memory that the arguments of a kernel lead to.
fn uses(kernel: &Kernel, arguments: &[Arg<'_>]) -> SmallVec<[Use; 3]> {
    let used = kernel.uses(arguments);
    used.filter_map(|(argument, access, parameter)| {
        let memory = argument.memory()?.clone();
        Some(Use { memory, range: argument.range(), access, parameter })
    })
    .collect()
}

impl Model {
    fn operation(&self, node: Node) -> Result<&Operation, CudaError> {
        match self.operations.get(node.index) {
            Some(operation) if node.graph == self.id => Ok(operation),
            _ => Err(CudaError::Graph {
                what: "a node",
                found: format!("node {} of another graph", node.index),
                expected: "one that this graph gave",
            }),
        }
    }

    /// The kernel of a node, and how it is launched.
    pub(super) fn kernel(&self, node: Node) -> Result<(&Kernel, &LaunchConfig, ffi::graph::Node), CudaError> {
        let operation = self.operation(node)?;
        match &operation.what {
            What::Kernel { kernel, config } => Ok((kernel, config, operation.raw)),
            _ => Err(CudaError::Graph {
                what: "a node",
                found: format!("node {}, which launches no kernel", node.index),
                expected: "one that `GraphBuilder::kernel` gave",
            }),
        }
    }

    /// The same graph with another launch of the kernel of a node, if all is still in order.
    pub(super) fn with_launch(
        &self,
        node: Node,
        config: &LaunchConfig,
        arguments: &[Arg<'_>],
    ) -> Result<Model, CudaError> {
        let (kernel, _, _) = self.kernel(node)?;
        let kernel = kernel.clone();
        let mut model = self.clone();
        model.operations[node.index].uses = uses(&kernel, arguments);
        model.operations[node.index].what = What::Kernel { kernel, config: *config };
        model.check()?;
        Ok(model)
    }

    /// An error if two operations could race.
    fn check(&self) -> Result<(), CudaError> {
        let Some(conflict) = conflict::find(&self.operations) else { return Ok(()) };
        let used = |at: Toucher| &self.operations[at.operation].uses[at.touch];
        let describe = |at: Toucher| self.operations[at.operation].describe(at.operation, used(at));
        let memory = &used(conflict.first).memory;
        let from = conflict.overlap.start - memory.address();
        let to = conflict.overlap.end - memory.address();
        Err(CudaError::GraphOrder {
            first: describe(conflict.first),
            second: describe(conflict.second),
            memory: format!("bytes {from}..{to} of the {} bytes at {:#x}", memory.bytes(), memory.address()),
        })
    }

    /// Everything that the graph refers to.
    pub(super) fn resources(&self) -> Resources {
        let mut all = self.kept.clone();
        for operation in &self.operations {
            operation.uses.iter().for_each(|used| all.add_memory(&used.memory, used.access));
            if let What::Kernel { kernel, .. } = &operation.what {
                all.add_kernel(&kernel.inner.module, &kernel.inner.name);
            }
        }
        all
    }
}

impl Context {
    /// A graph to be built node by node.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn graph(&self) -> Result<GraphBuilder, CudaError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let raw = self.guard(ffi::graph::Graph::new(self.raw().clone()))?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let model = Model { id, operations: Vec::new(), kept: Resources::default() };
        Ok(GraphBuilder { context: self.clone(), raw, model, refused: false })
    }
}

impl GraphBuilder {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Adds a kernel. Everything is checked as for [`Kernel::launch`]. With [`LaunchConfig::programmatic`], it may begin before the kernels
    /// among `after` have ended.
    ///
    /// # Errors
    /// If arguments or shape are not what the kernel can be launched with, a node is of another graph, or the driver refuses.
    pub fn kernel<'a>(
        &mut self,
        kernel: &Kernel,
        config: &LaunchConfig,
        arguments: impl Arguments<'a>,
        after: &[Node],
    ) -> Result<Node, CudaError> {
        arguments.with(|arguments| self.kernel_with(kernel, config, arguments, after))
    }

    #[allow(unsafe_code)]
    fn kernel_with(
        &mut self,
        kernel: &Kernel,
        config: &LaunchConfig,
        arguments: &[Arg<'_>],
        after: &[Node],
    ) -> Result<Node, CudaError> {
        self.context.expect("the kernel", kernel.context())?;
        let (after, before) = self.resolve(after)?;
        let shape = kernel.shape(config)?;
        kernel.check(arguments)?;
        let is_kernel = |n: &usize| matches!(self.model.operations[*n].what, What::Kernel { .. });
        let kernels: SmallVec<[bool; 4]> = after.iter().map(is_kernel).collect();
        let mut pointers = kernel.pointers(arguments);
        let function = kernel.inner.function;
        // SAFETY: there is a pointer for every parameter, to as many bytes (checked). The graph keeps the memory and the kernel, and each launch
        // orders what it uses; that the kernel stays within is vouched for by who loaded it.
        let raw = unsafe { self.raw.add_kernel(&before, &kernels, function, &shape, &mut pointers) };
        self.refused |= raw.is_err();
        let raw = raw.map_err(|cause| kernel.refused(cause))?;
        let what = What::Kernel { kernel: kernel.clone(), config: *config };
        Ok(self.push(raw, what, after, uses(kernel, arguments)))
    }

    /// Adds a copy between memory that devices can reach; of the same length.
    ///
    /// # Errors
    /// If the lengths differ, ordinary host memory takes part, a node is of another graph, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn copy<'a, 'b, T: Pod>(
        &mut self,
        from: impl Into<Source<'a, T>>,
        to: impl Into<Target<'b, T>>,
        after: &[Node],
    ) -> Result<Node, CudaError> {
        let (Source::Memory(from), Target::Memory(to)) = (from.into(), to.into()) else {
            return Err(CudaError::Graph {
                what: "a copy in a graph",
                found: "ordinary host memory, which a graph cannot keep".to_owned(),
                expected: "memory of a device, or page-locked",
            });
        };
        if from.len() != to.len() {
            return Err(CudaError::Length {
                what: "the source of a copy",
                found: from.len(),
                expected: to.len(),
            });
        }
        if from.bytes() == 0 {
            return self.join(after);
        }
        let (after, before) = self.resolve(after)?;
        // SAFETY: the graph keeps the memory, and each launch orders what it uses.
        let raw = unsafe { self.raw.add_copy(&before, to.address(), from.address(), from.bytes()) };
        let raw = self.context.guard(raw)?;
        let used = |memory: &Arc<Allocation>, start: u64, access| {
            let range = start..start + from.bytes() as u64;
            Use { memory: memory.clone(), range, access, parameter: 0 }
        };
        let (read, write) = (
            used(from.memory(), from.address(), Access::Read),
            used(to.memory(), to.address(), Access::Write),
        );
        Ok(self.push(raw, What::Copy, after, SmallVec::from_iter([read, write])))
    }

    /// Adds the filling of elements of 1, 2, 4 or 8 bytes with a value.
    ///
    /// # Errors
    /// If elements have another size, a node is of another graph, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn fill<'a, T: Pod>(
        &mut self,
        to: impl Into<SliceMut<'a, T>>,
        value: T,
        after: &[Node],
    ) -> Result<Node, CudaError> {
        let to = to.into();
        let (at, count) = (to.address(), to.len());
        let pattern = Pattern::of(&value)?;
        if count == 0 {
            return self.join(after);
        }
        let (after, before) = self.resolve(after)?;
        let line =
            |value, word_bytes, columns| Fill { to: at, pitch: 0, value, word_bytes, columns, rows: 1 };
        let every_other = |to, value| Fill { to, pitch: 8, value, word_bytes: 4, columns: 1, rows: count };
        let fills: SmallVec<[Fill; 2]> = match pattern {
            Pattern::Word(Word::Byte(value)) => SmallVec::from_iter([line(value.into(), 1, count)]),
            Pattern::Word(Word::Half(value)) => SmallVec::from_iter([line(value.into(), 2, count)]),
            Pattern::Word(Word::Whole(value)) => SmallVec::from_iter([line(value, 4, count)]),
            Pattern::Halves([low, high]) if low == high => SmallVec::from_iter([line(low, 4, 2 * count)]),
            Pattern::Halves([low, high]) => {
                SmallVec::from_iter([every_other(at, low), every_other(at + 4, high)])
            }
        };
        let mut before = before;
        for fill in &fills {
            // SAFETY: as for a copy; elements begin at multiples of their size, or of 4 if they have 8 bytes.
            let raw = unsafe { self.raw.add_fill(&before, fill) };
            self.refused |= raw.is_err();
            let raw = self.context.guard(raw)?;
            // The second half of elements of 8 bytes comes after the first, so that the last node stands for both.
            before = SmallVec::from_iter([raw]);
        }
        let range = at..at + to.bytes() as u64;
        let used = Use { memory: to.memory().clone(), range, access: Access::Write, parameter: 0 };
        Ok(self.push(before[0], What::Fill, after, SmallVec::from_iter([used])))
    }

    /// Adds a call of a function on a thread of the driver, at every launch. The same rules as for [`Stream::host_call`](crate::Stream::host_call).
    ///
    /// # Errors
    /// If a node is of another graph, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn host_call(
        &mut self,
        function: impl Fn() + Send + Sync + 'static,
        after: &[Node],
    ) -> Result<Node, CudaError> {
        let (after, before) = self.resolve(after)?;
        let function = Arc::new(Repeated(Box::new(function)));
        // SAFETY: the graph keeps the function, and so does what it becomes.
        let raw = self.context.guard(unsafe { self.raw.add_host_call(&before, &function) })?;
        self.model.kept.add_function(&self.context, function);
        Ok(self.push(raw, What::HostCall, after, SmallVec::new()))
    }

    /// Adds a node that does nothing: it is after many, and many can be after it.
    ///
    /// # Errors
    /// If a node is of another graph, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn join(&mut self, after: &[Node]) -> Result<Node, CudaError> {
        let (after, before) = self.resolve(after)?;
        // SAFETY: the nodes are of this graph.
        let raw = self.context.guard(unsafe { self.raw.add_empty(&before) })?;
        Ok(self.push(raw, What::Empty, after, SmallVec::new()))
    }

    /// Adds a record of an event, at every launch.
    ///
    /// # Errors
    /// If the event is another device's, a node is of another graph, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn record(&mut self, event: &Event, after: &[Node]) -> Result<Node, CudaError> {
        self.context.expect("the event", event.context())?;
        let (after, before) = self.resolve(after)?;
        // SAFETY: the graph keeps the event.
        let raw = self.context.guard(unsafe { self.raw.add_record(&before, event.raw()) })?;
        self.model.kept.add_event(event.raw().clone());
        Ok(self.push(raw, What::Record, after, SmallVec::new()))
    }

    /// Adds a wait, at every launch, for what the event was last recorded for by then.
    ///
    /// # Errors
    /// If a node is of another graph, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn wait(&mut self, event: &Event, after: &[Node]) -> Result<Node, CudaError> {
        let (after, before) = self.resolve(after)?;
        // SAFETY: the graph keeps the event.
        let raw = self.context.guard(unsafe { self.raw.add_wait(&before, event.raw()) })?;
        self.model.kept.add_event(event.raw().clone());
        Ok(self.push(raw, What::Wait, after, SmallVec::new()))
    }

    /// Adds a copy of another graph as one node. It counts as using all of each piece of memory of which it uses some.
    ///
    /// # Errors
    /// If the graph is another device's, a node is of another graph, or the driver refuses.
    #[allow(unsafe_code)]
    pub fn graph(&mut self, graph: &Graph, after: &[Node]) -> Result<Node, CudaError> {
        self.context.expect("the graph", graph.context())?;
        let (after, before) = self.resolve(after)?;
        // SAFETY: this graph keeps what the other keeps. Another graph is finished, so it is not this one.
        let raw = self.context.guard(unsafe { self.raw.add_child(&before, graph.raw()) })?;
        let uses = graph.resources().memory().map(|(memory, access)| {
            let range = memory.address()..memory.address() + memory.bytes() as u64;
            Use { memory: memory.clone(), range, access, parameter: 0 }
        });
        let uses = uses.collect();
        self.model.kept.extend(graph.resources());
        Ok(self.push(raw, What::Graph, after, uses))
    }

    /// The graph, if no two operations could race.
    ///
    /// # Errors
    /// If two operations use the same bytes, one writes, and neither comes before the other; the message names both, and the memory. If the
    /// driver refused a kernel or a filling before.
    pub fn finish(self) -> Result<Graph, CudaError> {
        if self.refused {
            return Err(CudaError::Graph {
                what: "a graph",
                found: "one of which the driver refused an operation".to_owned(),
                expected: "one without errors; build it again",
            });
        }
        self.model.check()?;
        Ok(Graph::built(self.context, self.raw, self.model))
    }

    /// Numbers, ascending and once each, and handles of nodes of this graph.
    #[allow(clippy::type_complexity, reason = "two lists")]
    fn resolve(
        &self,
        nodes: &[Node],
    ) -> Result<(SmallVec<[usize; 4]>, SmallVec<[ffi::graph::Node; 4]>), CudaError> {
        let mut numbers: SmallVec<[usize; 4]> = SmallVec::new();
        for node in nodes {
            self.model.operation(*node)?;
            numbers.push(node.index);
        }
        numbers.sort_unstable();
        numbers.dedup();
        let handles = numbers.iter().map(|n| self.model.operations[*n].raw).collect();
        Ok((numbers, handles))
    }

    fn push(
        &mut self,
        raw: ffi::graph::Node,
        what: What,
        after: SmallVec<[usize; 4]>,
        uses: SmallVec<[Use; 3]>,
    ) -> Node {
        let index = self.model.operations.len();
        self.model.operations.push(Operation { raw, what, after, uses });
        Node { graph: self.model.id, index }
    }
}
