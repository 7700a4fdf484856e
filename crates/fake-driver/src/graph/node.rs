//! What a graph is.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_void;

use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUcontext, CUfunction, CUgraphNodeType, CUresult};

use crate::entry::{Driver, Outcome};
use crate::execution::{Action, Launch};
use crate::state::{Owned, State};

/// A node: something to do, and the nodes of the same graph that come first.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) after: Vec<usize>,
    pub(crate) action: Action,
}

/// Nodes in the order they were added, in which none comes before one it follows, save by `cuGraphAddDependencies`.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) device: usize,
    pub(crate) nodes: Vec<Node>,
    /// Still being captured, so not the caller's to destroy.
    pub(crate) capturing: bool,
    /// How often the graph holds each user object.
    pub(crate) objects: BTreeMap<usize, u32>,
    /// Arguments that `cuGraphKernelNodeGetParams` gave pointers to, by node.
    arguments: BTreeMap<usize, Arguments>,
}

/// The arguments of a kernel in the form that a launch takes: pointers, as numbers, into the bytes next to them.
#[derive(Debug)]
struct Arguments {
    pointers: Box<[usize]>,
    _bytes: Box<[u8]>,
}

impl Graph {
    pub(crate) fn new(device: usize, capturing: bool) -> Graph {
        Graph { device, nodes: Vec::new(), capturing, objects: BTreeMap::new(), arguments: BTreeMap::new() }
    }

    pub(crate) fn node(&self, handle: usize) -> Option<&Node> {
        self.nodes.iter().find(|node| node.handle == handle)
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = (usize, usize)> {
        self.nodes.iter().flat_map(|node| node.after.iter().map(|&before| (before, node.handle)))
    }

    /// Everything that nodes follow, and they themselves.
    pub(crate) fn closure(&self, of: &[usize]) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = of.to_vec();
        while let Some(handle) = open.pop() {
            if found.insert(handle) {
                open.extend(self.node(handle).map(|node| node.after.clone()).unwrap_or_default());
            }
        }
        found
    }

    /// The parameters of a kernel node; pointers in them are good until they are asked for again.
    pub(crate) fn kernel(&mut self, handle: usize) -> Outcome<CUDA_KERNEL_NODE_PARAMS> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let Some(Action::Launch(launch)) = self.node(handle).map(|node| &node.action) else {
            return Err(invalid);
        };
        let launch: Launch = (**launch).clone();
        let mut bytes = launch.params.into_boxed_slice();
        let start = bytes.as_mut_ptr();
        let pointers = launch.layout.iter().map(|&(at, _)| start.wrapping_add(at) as usize).collect();
        self.arguments.insert(handle, Arguments { pointers, _bytes: bytes });
        let arguments = self.arguments.get_mut(&handle).ok_or(invalid)?;
        let [grid_x, grid_y, grid_z] = launch.grid;
        let [block_x, block_y, block_z] = launch.block;
        Ok(CUDA_KERNEL_NODE_PARAMS {
            func: launch.function as CUfunction,
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: launch.shared,
            kernelParams: arguments.pointers.as_mut_ptr().cast::<*mut c_void>(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: State::context_of_device(self.device) as CUcontext,
        })
    }
}

impl Owned for Graph {
    fn device(&self) -> usize {
        self.device
    }

    fn counted(&self) -> bool {
        !self.capturing
    }
}

/// The driver's word for an action.
pub(crate) fn type_of(action: &Action) -> CUgraphNodeType {
    match action {
        Action::Launch(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
        Action::Copy(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
        Action::Product(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
        Action::Fill(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
        Action::Host { .. } => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
        Action::Graph(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
        Action::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
        Action::WaitEvent(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        Action::RecordEvent(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        Action::Allocate(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        Action::Free(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE,
    }
}

impl Driver {
    /// The graph that has a node.
    pub(crate) fn graph_of(&self, node: usize) -> Outcome<usize> {
        let found = self.graphs.iter().find(|(_, graph)| graph.node(node).is_some());
        found.map(|(handle, _)| handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// Adds a node behind others of the graph.
    pub(crate) fn add_node(&mut self, graph: usize, after: Vec<usize>, action: Action) -> Outcome<usize> {
        let handle = self.handle();
        let graph = self.graphs.get_mut(graph)?;
        if after.iter().any(|&before| graph.node(before).is_none()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        graph.nodes.push(Node { handle, after, action });
        Ok(handle)
    }

    /// A copy of a graph's nodes under new handles.
    pub(crate) fn copy_nodes(&mut self, graph: usize) -> Outcome<Vec<Node>> {
        let mut nodes = self.graphs.get(graph)?.nodes.clone();
        let renamed: BTreeMap<usize, usize> = nodes.iter().map(|node| (node.handle, self.handle())).collect();
        for node in &mut nodes {
            node.handle = renamed[&node.handle];
            node.after.iter_mut().for_each(|before| *before = renamed[before]);
        }
        Ok(nodes)
    }
}
