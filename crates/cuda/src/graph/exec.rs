//! Graphs that are ready to run.

use std::sync::Arc;

use super::builder::Model;
use super::{Graph, Launchable, Node};
use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::ffi::graph::Refusal;
use crate::launch::{Arg, Arguments, LaunchConfig};
use crate::stream::Stream;

/// A graph that is ready to run, again and again. It keeps what its operations need.
///
/// It can be launched from any number of threads, on any streams. It never runs at the same time as itself: the driver lets a launch
/// wait for the one before. For runs at the same time, instantiate the graph several times.
///
/// Dropping it does not wait for launches that are under way, unless it calls functions of the host: these must not go before.
#[derive(Debug)]
pub struct GraphExec {
    context: Context,
    raw: ffi::graph::Exec,
    resources: Launchable,
    /// What it was made of: the driver names nodes by it.
    origin: Arc<ffi::graph::Graph>,
    /// What its nodes do, if they can be changed one by one.
    model: Option<Arc<Model>>,
    /// Whether it does something else than its origin.
    changed: bool,
}

impl GraphExec {
    pub(super) fn new(graph: &Graph, raw: ffi::graph::Exec) -> GraphExec {
        GraphExec {
            context: graph.context.clone(),
            raw,
            resources: Launchable::new(graph.resources.clone()),
            origin: graph.raw.clone(),
            model: graph.model.clone(),
            changed: false,
        }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The driver's handle, for calls that this crate lacks. Whoever uses it must keep the graph, and order what is done.
    pub fn raw_handle(&self) -> ffi::sys::CUgraphExec {
        self.raw.raw()
    }

    /// Runs it once, in the order of the stream. It waits for other streams' operations on the memory that it uses. On a stream that is
    /// being captured it becomes one node.
    ///
    /// # Errors
    /// If the stream is another device's, the host looks at memory that it uses, or the driver refuses; on a stream that is being captured,
    /// if it was changed since it was instantiated.
    #[allow(unsafe_code)]
    pub fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.expect("the stream", stream.context())?;
        if self.changed {
            // The driver does not say whether the node would do what the origin does, or what this does now.
            stream.expect_live("a graph that was changed since it was instantiated")?;
        }
        self.resources.launch(stream, || {
            // SAFETY: the resources of all nodes live until all operations on them are done, and were ordered.
            self.context.guard(unsafe { self.raw.launch(stream.raw()) })
        })
    }

    /// Sends it to the device ahead of the first launch.
    ///
    /// # Errors
    /// If the stream is another device's, or the driver refuses.
    pub fn upload(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.expect("the stream", stream.context())?;
        self.context.guard(self.raw.upload(stream.raw()))
    }

    /// Makes it do what another graph does from the next launch on, which costs less than to instantiate that: it must have the same nodes
    /// with the same dependencies, added in the same order, but arguments, shapes, addresses and sizes may be others.
    ///
    /// Launches that are under way do what they did; memory that only they use lives until they are done.
    ///
    /// ```no_run
    /// # use tilewright_cuda::{Context, CudaError};
    /// # let context = Context::new(0)?;
    /// # let stream = context.stream()?;
    /// # let mut data = stream.alloc::<u32>(3)?;
    /// let mut step = |value| stream.capture(|| stream.fill(&mut data, value));
    /// let mut ready = step(1u32)?.instantiate()?;
    /// ready.launch(&stream)?;
    /// ready.update(&step(2)?)?;
    /// ready.launch(&stream)?;
    /// # Ok::<(), CudaError>(())
    /// ```
    ///
    /// # Errors
    /// If the graph is another device's, or is of another shape; it is then what it was.
    pub fn update(&mut self, graph: &Graph) -> Result<(), CudaError> {
        self.context.expect("the graph", graph.context())?;
        if let Some(refusal) = self.context.guard(self.raw.update(&graph.raw))? {
            return Err(explain(graph, refusal));
        }
        self.resources = Launchable::new(graph.resources.clone());
        // Which node of the one graph became which of the other is known to the driver only.
        let same = Arc::ptr_eq(&self.origin, &graph.raw);
        self.model = graph.model.clone().filter(|_| same);
        self.changed = !same;
        Ok(())
    }

    /// Gives the kernel of a node other arguments from the next launch on. Everything is checked as for
    /// [`GraphBuilder::kernel`](crate::GraphBuilder::kernel), also that no other node is in the way of the new memory.
    ///
    /// # Errors
    /// If the graph was captured or updated from another one, or the node is not one of it or no kernel; if the arguments are not what the
    /// kernel needs; if another operation of the graph uses the same memory and neither comes before the other.
    pub fn set_kernel_arguments<'a>(
        &mut self,
        node: Node,
        arguments: impl Arguments<'a>,
    ) -> Result<(), CudaError> {
        let (_, config, _) = self.changeable()?.kernel(node)?;
        let config = *config;
        arguments.with(|arguments| self.set_kernel_with(node, &config, arguments))
    }

    /// As [`GraphExec::set_kernel_arguments`], also with another grid, block and amount of shared memory.
    ///
    /// # Errors
    /// As there; and if the configuration differs from the node's in anything else.
    pub fn set_kernel<'a>(
        &mut self,
        node: Node,
        config: &LaunchConfig,
        arguments: impl Arguments<'a>,
    ) -> Result<(), CudaError> {
        arguments.with(|arguments| self.set_kernel_with(node, config, arguments))
    }

    #[allow(unsafe_code)]
    fn set_kernel_with(
        &mut self,
        node: Node,
        config: &LaunchConfig,
        arguments: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        let model = self.changeable()?.clone();
        let (kernel, known, raw) = model.kernel(node)?;
        if !config.differs_in_size_only(known) {
            return Err(CudaError::Graph {
                what: "another launch for the kernel of a node",
                found: format!("{config:?}"),
                expected: "the same cluster, cooperation, programmatic launch and priority as before",
            });
        }
        let shape = kernel.shape(config)?;
        kernel.check(arguments)?;
        let changed = model.with_launch(node, config, arguments)?;
        let mut pointers = kernel.pointers(arguments);
        // SAFETY: as when the node was added; the origin keeps the node.
        let set = unsafe { self.raw.set_kernel(raw, kernel.inner.function, &shape, &mut pointers) };
        set.map_err(|cause| kernel.refused(cause))?;
        self.resources = Launchable::new(changed.resources());
        self.model = Some(Arc::new(changed));
        self.changed = true;
        Ok(())
    }

    fn changeable(&self) -> Result<&Arc<Model>, CudaError> {
        self.model.as_ref().ok_or_else(|| CudaError::Graph {
            what: "other arguments for one node",
            found: "a graph that was captured, or updated from another one".to_owned(),
            expected: "one that was built node by node; use `update`",
        })
    }
}

/// Why a graph cannot take the place of one that is ready to run.
#[cold]
fn explain(graph: &Graph, refusal: Refusal) -> CudaError {
    let node = refusal.node.and_then(|node| {
        let number = graph.raw.nodes().ok()?.iter().position(|other| *other == node)?;
        Some(format!("node {number} ({})", graph.kind(node).ok()?))
    });
    CudaError::GraphUpdate { reason: reason(refusal.reason), node }
}

/// The driver's `CUgraphExecUpdateResult` in words.
fn reason(number: u32) -> &'static str {
    match number {
        2 => "it has other nodes or other dependencies",
        3 => "a node is of another kind",
        4 => "a kernel is another one, which this driver does not allow",
        5 => {
            "a node has parameters that cannot be changed, such as the direction of a copy or the number of dimensions of a filling"
        }
        6 => "a node is of a kind that cannot be changed",
        7 => "a kernel is another one in a way that cannot be changed",
        8 => "a kernel is launched with other attributes, such as a cluster or a cooperative launch",
        _ => "the driver gave no reason",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_of_the_driver_has_words() {
        let words: std::collections::HashSet<&str> = (2..=8).map(reason).collect();
        assert_eq!(words.len(), 7);
        assert!(!words.contains(reason(1)));
    }

    #[test]
    fn graphs_go_between_threads() {
        fn shared<T: Send + Sync>() {}
        shared::<Graph>();
        shared::<GraphExec>();
        shared::<crate::GraphBuilder>();
    }
}
