//! Graphs: work that is described once and launched many times.
//!
//! | file | what |
//! | --- | --- |
//! | `capture.rs` | graphs of what is done on streams |
//! | `builder.rs` | graphs built node by node |
//! | `conflict.rs` | whether operations of a graph could race |
//! | `exec.rs` | graphs that are ready to run |
//! | `resources.rs` | what graphs keep, and what a launch waits for |

mod builder;
mod capture;
mod conflict;
mod exec;
mod resources;

use std::collections::HashMap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::stream::Stream;
use builder::Model;
use resources::{Launchable, Resources};

pub use builder::GraphBuilder;
pub(crate) use capture::Capture;
pub use exec::GraphExec;

/// Work as a graph of operations, not yet ready to run; see [`Stream::capture`] and [`GraphBuilder`]. It keeps what its operations need.
///
/// It can be used by several threads; the driver wants them one after the other, and they wait.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    raw: Arc<ffi::graph::Graph>,
    resources: Resources,
    /// If it was built node by node.
    model: Option<Arc<Model>>,
}

/// An operation of a graph that was built node by node; only that graph knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    graph: u64,
    index: usize,
}

impl Node {
    /// Its number: in the order in which nodes were added, from 0; errors name it.
    pub fn number(&self) -> usize {
        self.index
    }
}

/// What a node of a graph is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeKind {
    /// A kernel; its name if the driver tells it (CUDA 12.3).
    Kernel(Option<String>),
    /// A copy.
    Copy,
    /// A filling of memory.
    Fill,
    /// A call of a function.
    HostCall,
    /// A graph.
    Graph,
    /// Nothing; for dependencies.
    Empty,
    /// A wait for an event.
    Wait,
    /// A record of an event.
    Record,
    /// Something else, by the driver's number.
    Other(u32),
}

impl std::fmt::Display for NodeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NodeKind::Kernel(Some(name)) => write!(f, "kernel `{name}`"),
            NodeKind::Kernel(None) => f.write_str("a kernel"),
            NodeKind::Copy => f.write_str("a copy"),
            NodeKind::Fill => f.write_str("a filling"),
            NodeKind::HostCall => f.write_str("a call of a function"),
            NodeKind::Graph => f.write_str("a graph"),
            NodeKind::Empty => f.write_str("nothing"),
            NodeKind::Wait => f.write_str("a wait for an event"),
            NodeKind::Record => f.write_str("a record of an event"),
            NodeKind::Other(number) => write!(f, "something of kind {number}"),
        }
    }
}

/// How a graph is made ready to run.
#[derive(Clone, Debug, Default)]
pub struct InstantiateOptions {
    /// Kernels run with the priorities of their launches, or of the streams they were captured on, rather than with that of the stream
    /// that the graph is launched on.
    pub node_priorities: bool,
    /// Sends it to the device on this stream, ahead of the first launch.
    pub upload: Option<Stream>,
}

impl Graph {
    fn captured(context: Context, raw: ffi::graph::Graph, resources: Resources) -> Graph {
        Graph { context, raw: Arc::new(raw), resources, model: None }
    }

    fn built(context: Context, raw: ffi::graph::Graph, model: Model) -> Graph {
        let resources = model.resources();
        Graph { context, raw: Arc::new(raw), resources, model: Some(Arc::new(model)) }
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// How many nodes it has.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn node_count(&self) -> Result<usize, CudaError> {
        Ok(self.context.guard(self.raw.nodes())?.len())
    }

    /// What its nodes are, in the driver's order.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn nodes(&self) -> Result<Vec<NodeKind>, CudaError> {
        self.context.guard(self.raw.nodes())?.into_iter().map(|node| self.kind(node)).collect()
    }

    /// Its dependencies, as numbers of [`Graph::nodes`]: the node before, the node after.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn edges(&self) -> Result<Vec<(usize, usize)>, CudaError> {
        let nodes = self.context.guard(self.raw.nodes())?;
        let numbers: HashMap<ffi::graph::Node, usize> = nodes.into_iter().zip(0..).collect();
        let edges = self.context.guard(self.raw.edges())?;
        Ok(edges.iter().filter_map(|(from, to)| Some((*numbers.get(from)?, *numbers.get(to)?))).collect())
    }

    /// A drawing of it in the language of Graphviz.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn dot(&self) -> Result<String, CudaError> {
        Ok(dot(&self.nodes()?, &self.edges()?))
    }

    /// Writes a drawing of it, with all that the driver knows, to a file in the language of Graphviz.
    ///
    /// # Errors
    /// If the driver cannot write there.
    pub fn write_dot(&self, path: impl AsRef<Path>) -> Result<(), CudaError> {
        let path = path.as_ref();
        let text = path.to_str().and_then(|path| CString::new(path).ok());
        let text = text.ok_or_else(|| CudaError::Graph {
            what: "the file for a drawing",
            found: path.display().to_string(),
            expected: "a path that is UTF-8 without zero bytes",
        })?;
        self.context.guard(self.raw.write_dot(&text))
    }

    /// Makes it ready to run.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn instantiate(&self) -> Result<GraphExec, CudaError> {
        self.instantiate_with(&InstantiateOptions::default())
    }

    /// Makes it ready to run.
    ///
    /// # Errors
    /// If the stream is another device's, or the driver refuses.
    pub fn instantiate_with(&self, options: &InstantiateOptions) -> Result<GraphExec, CudaError> {
        let raw = self.context.guard(self.raw.instantiate(options.node_priorities))?;
        let exec = GraphExec::new(self, raw);
        if let Some(stream) = &options.upload {
            exec.upload(stream)?;
        }
        Ok(exec)
    }

    #[allow(unsafe_code)]
    fn kind(&self, node: ffi::graph::Node) -> Result<NodeKind, CudaError> {
        // SAFETY: only called with nodes of this graph, whose nodes are never removed.
        let number = self.context.guard(unsafe { self.raw.kind(node) })?;
        Ok(match number {
            // SAFETY: as above.
            0 => NodeKind::Kernel(unsafe { self.raw.kernel_name(node) }),
            1 => NodeKind::Copy,
            2 => NodeKind::Fill,
            3 => NodeKind::HostCall,
            4 => NodeKind::Graph,
            5 => NodeKind::Empty,
            6 => NodeKind::Wait,
            7 => NodeKind::Record,
            other => NodeKind::Other(other),
        })
    }

    fn raw(&self) -> &ffi::graph::Graph {
        &self.raw
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }
}

/// A drawing of nodes and edges.
fn dot(nodes: &[NodeKind], edges: &[(usize, usize)]) -> String {
    let mut text = String::from("digraph {\n");
    // Writing to a string does not fail.
    for (n, kind) in nodes.iter().enumerate() {
        let shape = if matches!(kind, NodeKind::Kernel(_)) { "box" } else { "ellipse" };
        let label = kind.to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(text, "  n{n} [shape={shape}, label=\"{n}: {label}\"];");
    }
    for (from, to) in edges {
        let _ = writeln!(text, "  n{from} -> n{to};");
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_are_what_graphviz_reads() {
        let nodes = [NodeKind::Fill, NodeKind::Kernel(Some("a\"b\\".to_owned())), NodeKind::Other(13)];
        let expected = r#"digraph {
  n0 [shape=ellipse, label="0: a filling"];
  n1 [shape=box, label="1: kernel `a\"b\\`"];
  n2 [shape=ellipse, label="2: something of kind 13"];
  n0 -> n1;
  n1 -> n2;
}
"#;
        assert_eq!(dot(&nodes, &[(0, 1), (1, 2)]), expected);
    }
}
