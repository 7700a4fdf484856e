//! Graphs: owned handles, their nodes, and graphs that are ready to run.
//!
//! The driver does not let two threads use one graph at once, not even to look at it; so each handle has a lock. A graph that is ready to
//! run has one, too: launches of it come one after the other anyway.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use super::context::Context;
use super::event::Event;
use super::launch::{Shape, in_context};
use super::module::Function;
use super::stream::{Repeated, Stream, run_repeated};
use super::{Shared, call, sys};
use crate::context::lock;
use crate::error::CudaError;

/// A graph, destroyed on drop.
#[derive(Debug)]
pub(crate) struct Graph {
    context: Arc<Context>,
    raw: Mutex<Shared<sys::CUgraph>>,
}

/// A node; valid as long as its graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node(Shared<sys::CUgraphNode>);

/// Memory to be filled with a word: `rows` words, `pitch` bytes from one to the next, or (with one row) `columns` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) to: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) word_bytes: u32,
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// Why a graph that is ready to run cannot become another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    /// The driver's `CUgraphExecUpdateResult`.
    pub(crate) reason: u32,
    pub(crate) node: Option<Node>,
}

/// `CUgraphExecUpdateResultInfo` with a number in place of an enumeration that newer drivers may extend.
#[repr(C)]
struct UpdateInfo {
    result: u32,
    node: sys::CUgraphNode,
    from: sys::CUgraphNode,
}

/// The handles of nodes as the driver takes them.
fn handles(nodes: &[Node]) -> Vec<sys::CUgraphNode> {
    nodes.iter().map(|node| node.0.0).collect()
}

impl Graph {
    pub(super) fn own(context: Arc<Context>, raw: sys::CUgraph) -> Graph {
        Graph { context, raw: Mutex::new(Shared(raw)) }
    }

    pub(crate) fn new(context: Arc<Context>) -> Result<Graph, CudaError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuGraphCreate(&raw mut raw, 0)) }?;
        Ok(Graph::own(context, raw))
    }

    /// Calls something that adds a node after others.
    fn add(
        &self,
        after: &[Node],
        call: impl FnOnce(
            *mut sys::CUgraphNode,
            sys::CUgraph,
            *const sys::CUgraphNode,
            usize,
        ) -> Result<(), CudaError>,
    ) -> Result<Node, CudaError> {
        self.context.bind()?;
        let after = handles(after);
        let raw = lock(&self.raw);
        let mut node = ptr::null_mut();
        call(&raw mut node, raw.0, after.as_ptr(), after.len())?;
        Ok(Node(Shared(node)))
    }

    /// Adds a kernel. Of a launch that is programmatic, the kernels among `after` need not have ended when it begins.
    ///
    /// # Safety
    /// As for [`super::launch::launch`]; the nodes are of this graph. `kernels` says which of `after` are kernels.
    pub(crate) unsafe fn add_kernel(
        &self,
        after: &[Node],
        kernels: &[bool],
        function: Function,
        shape: &Shape,
        arguments: &mut [*mut c_void],
    ) -> Result<Node, CudaError> {
        let params = kernel_params(function, shape, arguments);
        let direct = if shape.programmatic { &[] } else { after };
        let node = self.add(direct, |node, graph, after, count| {
            // SAFETY: the caller's; the driver copies the arguments.
            unsafe { call!(cuGraphAddKernelNode_v2(node, graph, after, count, &raw const params)) }
        })?;
        if shape.programmatic {
            self.connect(after, kernels, node)?;
        }
        // How it comes after others is said by the edges, not by an attribute.
        let (attributes, count) = Shape { programmatic: false, ..*shape }.attributes();
        let _exclusive = lock(&self.raw);
        for attribute in attributes.iter().take(count as usize) {
            // SAFETY: a kernel node of this graph, and a value of the kind that the attribute has.
            unsafe {
                call!(cuGraphKernelNodeSetAttribute(node.0.0, attribute.id, &raw const attribute.value))
            }?;
        }
        Ok(node)
    }

    /// Lets `node` begin when the kernels among `after` allow it, and the others have ended.
    fn connect(&self, after: &[Node], kernels: &[bool], node: Node) -> Result<(), CudaError> {
        if after.is_empty() {
            return Ok(());
        }
        let from = handles(after);
        let to = vec![node.0.0; after.len()];
        let edge = |kernel: &bool| {
            let (from_port, type_) = if *kernel { (1, 1) } else { (0, 0) };
            sys::CUgraphEdgeData { from_port, to_port: 0, type_, reserved: [0; 5] }
        };
        let edges: Vec<sys::CUgraphEdgeData> = kernels.iter().map(edge).collect();
        let raw = lock(&self.raw);
        // SAFETY: the arrays have one entry for each edge, between nodes of this graph.
        unsafe {
            call!(cuGraphAddDependencies_v2(raw.0, from.as_ptr(), to.as_ptr(), edges.as_ptr(), from.len()))
        }
    }

    /// Adds a copy between any two places that the driver knows.
    ///
    /// # Safety
    /// As for [`super::memory::copy`]; the nodes are of this graph.
    pub(crate) unsafe fn add_copy(
        &self,
        after: &[Node],
        to: u64,
        from: u64,
        bytes: usize,
    ) -> Result<Node, CudaError> {
        let unified = sys::CUmemorytype_enum::CU_MEMORYTYPE_UNIFIED;
        let params = sys::CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: unified,
            srcHost: ptr::null(),
            srcDevice: from,
            srcArray: ptr::null_mut(),
            reserved0: ptr::null_mut(),
            srcPitch: bytes,
            srcHeight: 1,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: unified,
            dstHost: ptr::null_mut(),
            dstDevice: to,
            dstArray: ptr::null_mut(),
            reserved1: ptr::null_mut(),
            dstPitch: bytes,
            dstHeight: 1,
            WidthInBytes: bytes,
            Height: 1,
            Depth: 1,
        };
        self.add(after, |node, graph, after, count| {
            // SAFETY: the caller's.
            unsafe {
                call!(cuGraphAddMemcpyNode(node, graph, after, count, &raw const params, self.context.raw()))
            }
        })
    }

    /// Adds a filling.
    ///
    /// # Safety
    /// As for [`super::memory::fill`]; the nodes are of this graph.
    pub(crate) unsafe fn add_fill(&self, after: &[Node], fill: &Fill) -> Result<Node, CudaError> {
        let params = sys::CUDA_MEMSET_NODE_PARAMS {
            dst: fill.to,
            pitch: fill.pitch,
            value: fill.value,
            elementSize: fill.word_bytes,
            width: fill.columns,
            height: fill.rows,
        };
        self.add(after, |node, graph, after, count| {
            // SAFETY: the caller's.
            unsafe {
                call!(cuGraphAddMemsetNode(node, graph, after, count, &raw const params, self.context.raw()))
            }
        })
    }

    /// Adds a call of a function.
    ///
    /// # Safety
    /// `function` outlives the graph and everything that it becomes; the nodes are of this graph.
    pub(crate) unsafe fn add_host_call(
        &self,
        after: &[Node],
        function: &Arc<Repeated>,
    ) -> Result<Node, CudaError> {
        let params = sys::CUDA_HOST_NODE_PARAMS {
            fn_: Some(run_repeated),
            userData: Arc::as_ptr(function).cast_mut().cast::<c_void>(),
        };
        self.add(after, |node, graph, after, count| {
            // SAFETY: the caller's.
            unsafe { call!(cuGraphAddHostNode(node, graph, after, count, &raw const params)) }
        })
    }

    /// Adds a node that does nothing.
    ///
    /// # Safety
    /// The nodes are of this graph; so it is for the functions that follow.
    pub(crate) unsafe fn add_empty(&self, after: &[Node]) -> Result<Node, CudaError> {
        self.add(after, |node, graph, after, count| {
            // SAFETY: the caller's.
            unsafe { call!(cuGraphAddEmptyNode(node, graph, after, count)) }
        })
    }

    /// # Safety
    /// The event outlives the graph and everything that it becomes.
    pub(crate) unsafe fn add_record(&self, after: &[Node], event: &Event) -> Result<Node, CudaError> {
        self.add(after, |node, graph, after, count| {
            // SAFETY: the caller's.
            unsafe { call!(cuGraphAddEventRecordNode(node, graph, after, count, event.raw())) }
        })
    }

    /// # Safety
    /// As for [`Graph::add_record`].
    pub(crate) unsafe fn add_wait(&self, after: &[Node], event: &Event) -> Result<Node, CudaError> {
        self.add(after, |node, graph, after, count| {
            // SAFETY: the caller's.
            unsafe { call!(cuGraphAddEventWaitNode(node, graph, after, count, event.raw())) }
        })
    }

    /// Adds a copy of another graph as one node.
    ///
    /// # Safety
    /// What the other graph's nodes reach outlives this one; `self` is not `child`.
    pub(crate) unsafe fn add_child(&self, after: &[Node], child: &Graph) -> Result<Node, CudaError> {
        let child = lock(&child.raw);
        self.add(after, |node, graph, after, count| {
            // SAFETY: the caller's.
            unsafe { call!(cuGraphAddChildGraphNode(node, graph, after, count, child.0)) }
        })
    }

    /// Makes it ready to run; `priorities`: with those of the nodes rather than that of the stream it is launched on.
    pub(crate) fn instantiate(&self, priorities: bool) -> Result<Exec, CudaError> {
        use sys::CUgraphInstantiate_flags_enum as Flag;
        self.context.bind()?;
        let flags =
            if priorities { u64::from(Flag::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0) } else { 0 };
        let graph = lock(&self.raw);
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call, the graph lives.
        unsafe { call!(cuGraphInstantiateWithFlags(&raw mut raw, graph.0, flags)) }?;
        Ok(Exec { context: self.context.clone(), raw: Mutex::new(Shared(raw)) })
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> Result<Vec<Node>, CudaError> {
        self.context.bind()?;
        let raw = lock(&self.raw);
        let mut count = 0;
        // SAFETY: with no room for nodes the driver only counts.
        unsafe { call!(cuGraphGetNodes(raw.0, ptr::null_mut(), &raw mut count)) }?;
        let mut nodes = vec![ptr::null_mut(); count];
        if count > 0 {
            // SAFETY: there is room for so many, and the lock keeps it so many.
            unsafe { call!(cuGraphGetNodes(raw.0, nodes.as_mut_ptr(), &raw mut count)) }?;
        }
        Ok(nodes.into_iter().map(|node| Node(Shared(node))).collect())
    }

    /// All dependencies: the node before, the node after.
    pub(crate) fn edges(&self) -> Result<Vec<(Node, Node)>, CudaError> {
        self.context.bind()?;
        let raw = lock(&self.raw);
        let mut count = 0;
        // The older function refuses graphs with programmatic dependencies.
        let with_data = super::has("cuGraphGetEdges_v2");
        // SAFETY: with no room for edges the driver only counts.
        unsafe {
            if with_data {
                call!(cuGraphGetEdges_v2(
                    raw.0,
                    ptr::null_mut(),
                    ptr::null_mut(),
                    ptr::null_mut(),
                    &raw mut count
                ))
            } else {
                call!(cuGraphGetEdges(raw.0, ptr::null_mut(), ptr::null_mut(), &raw mut count))
            }
        }?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
        let plain = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let mut data = vec![plain; count];
        let (from_at, to_at) = (from.as_mut_ptr(), to.as_mut_ptr());
        // SAFETY: there is room for so many, and the lock keeps it so many.
        unsafe {
            if with_data {
                call!(cuGraphGetEdges_v2(raw.0, from_at, to_at, data.as_mut_ptr(), &raw mut count))
            } else {
                call!(cuGraphGetEdges(raw.0, from_at, to_at, &raw mut count))
            }
        }?;
        Ok(from.into_iter().zip(to).map(|(from, to)| (Node(Shared(from)), Node(Shared(to)))).collect())
    }

    /// The driver's number of the kind of a node (`CUgraphNodeType`).
    ///
    /// # Safety
    /// The node is of this graph; so it is for [`Graph::kernel_name`].
    pub(crate) unsafe fn kind(&self, node: Node) -> Result<u32, CudaError> {
        self.context.bind()?;
        let _exclusive = lock(&self.raw);
        let mut kind = 0u32;
        // SAFETY: the pointer is to as many bytes as the enumeration has; a number that it does not have stays a number.
        unsafe { call!(cuGraphNodeGetType(node.0.0, (&raw mut kind).cast::<sys::CUgraphNodeType>())) }?;
        Ok(kind)
    }

    /// The name of the kernel of a kernel node, where the driver tells it (CUDA 12.3).
    ///
    /// # Safety
    /// As for [`Graph::kind`].
    pub(crate) unsafe fn kernel_name(&self, node: Node) -> Option<String> {
        self.context.bind().ok()?;
        let _exclusive = lock(&self.raw);
        let mut params = sys::CUDA_KERNEL_NODE_PARAMS {
            func: ptr::null_mut(),
            gridDimX: 0,
            gridDimY: 0,
            gridDimZ: 0,
            blockDimX: 0,
            blockDimY: 0,
            blockDimZ: 0,
            sharedMemBytes: 0,
            kernelParams: ptr::null_mut(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        let mut name = ptr::null();
        // SAFETY: the pointers are valid for the calls; the driver answers with a function or a kernel, and the name lives as long as its
        // module.
        unsafe {
            call!(cuGraphKernelNodeGetParams_v2(node.0.0, &raw mut params)).ok()?;
            if params.func.is_null() {
                call!(cuKernelGetName(&raw mut name, params.kern)).ok()?;
            } else {
                call!(cuFuncGetName(&raw mut name, params.func)).ok()?;
            }
            (!name.is_null()).then(|| CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }

    /// Writes all that the driver knows of it to a file, in the language of Graphviz.
    pub(crate) fn write_dot(&self, path: &CStr) -> Result<(), CudaError> {
        use sys::CUgraphDebugDot_flags_enum as Flag;
        self.context.bind()?;
        let raw = lock(&self.raw);
        let flags = Flag::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE as u32;
        // SAFETY: the text ends with 0.
        unsafe { call!(cuGraphDebugDotPrint(raw.0, path.as_ptr(), flags)) }
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let raw = lock(&self.raw);
        // SAFETY: created once, destroyed once; graphs that were made ready to run do not depend on it.
        let _ = self.context.bind().and_then(|()| unsafe { call!(cuGraphDestroy(raw.0)) });
    }
}

/// A kernel with its arguments as the driver takes it for a node.
fn kernel_params(
    function: Function,
    shape: &Shape,
    arguments: &mut [*mut c_void],
) -> sys::CUDA_KERNEL_NODE_PARAMS {
    let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: function.raw(),
        gridDimX: gx,
        gridDimY: gy,
        gridDimZ: gz,
        blockDimX: bx,
        blockDimY: by,
        blockDimZ: bz,
        sharedMemBytes: shape.shared,
        kernelParams: arguments.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}

/// A graph that is ready to run, destroyed on drop.
#[derive(Debug)]
pub(crate) struct Exec {
    context: Arc<Context>,
    raw: Mutex<Shared<sys::CUgraphExec>>,
}

impl Exec {
    pub(crate) fn raw(&self) -> sys::CUgraphExec {
        lock(&self.raw).0
    }

    /// # Safety
    /// All that its nodes reach is live until they have run, and what else uses it is ordered.
    pub(crate) unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        let raw = lock(&self.raw);
        // SAFETY: the caller's; if it is called again, nothing was launched yet.
        in_context(stream, || unsafe { call!(cuGraphLaunch(raw.0, stream.raw())) })
    }

    pub(crate) fn upload(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.bind()?;
        let raw = lock(&self.raw);
        // SAFETY: both handles live.
        unsafe { call!(cuGraphUpload(raw.0, stream.raw())) }
    }

    /// Makes it do what `graph` does, if that has the same shape; `Ok(Some(_))` if it has not, and nothing was changed.
    pub(crate) fn update(&self, graph: &Graph) -> Result<Option<Refusal>, CudaError> {
        self.context.bind()?;
        let raw = lock(&self.raw);
        let graph = lock(&graph.raw);
        let mut info = UpdateInfo { result: 0, node: ptr::null_mut(), from: ptr::null_mut() };
        let at = (&raw mut info).cast::<sys::CUgraphExecUpdateResultInfo>();
        // SAFETY: the pointer is to a structure of that layout.
        match unsafe { call!(cuGraphExecUpdate_v2(raw.0, graph.0, at)) } {
            Ok(()) => Ok(None),
            // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
            Err(CudaError::Call { code: 910, .. }) => {
                let node = (!info.node.is_null()).then_some(Node(Shared(info.node)));
                Ok(Some(Refusal { reason: info.result, node }))
            }
            Err(error) => Err(error),
        }
    }

    /// Gives a kernel node other arguments and another shape for launches from now on.
    ///
    /// # Safety
    /// As for [`Graph::add_kernel`]; the node is a kernel of the graph that this was made of, and that graph lives.
    pub(crate) unsafe fn set_kernel(
        &self,
        node: Node,
        function: Function,
        shape: &Shape,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        self.context.bind()?;
        let params = kernel_params(function, shape, arguments);
        let raw = lock(&self.raw);
        // SAFETY: the caller's; the driver copies the arguments.
        unsafe { call!(cuGraphExecKernelNodeSetParams_v2(raw.0, node.0.0, &raw const params)) }
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        let raw = lock(&self.raw);
        // SAFETY: created once, destroyed once; the driver lets a launch that is under way end.
        let _ = self.context.bind().and_then(|()| unsafe { call!(cuGraphExecDestroy(raw.0)) });
    }
}
