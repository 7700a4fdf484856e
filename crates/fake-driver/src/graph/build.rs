//! Graphs made and read by hand.

use std::ffi::{c_char, c_uint};
use std::fmt::Write;

use cudarc::driver::sys::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext,
    CUevent, CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType, CUkernelNodeAttrID,
    CUkernelNodeAttrValue, CUresult,
};

use crate::code::Shape;
use crate::entry::{Driver, Outcome, api, elements, put, text};
use crate::execution::{Action, Fill, Launch};
use crate::graph::Graph;
use crate::graph::node::type_of;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

impl Driver {
    /// # Safety
    /// `params` is as for `cuGraphAddKernelNode`.
    pub(crate) unsafe fn launch_of(&self, params: *const CUDA_KERNEL_NODE_PARAMS) -> Outcome<Launch> {
        // SAFETY: the caller gives parameters.
        let params = unsafe { params.as_ref() }.ok_or(INVALID)?;
        let shape = Shape {
            grid: [params.gridDimX, params.gridDimY, params.gridDimZ],
            block: [params.blockDimX, params.blockDimY, params.blockDimZ],
            shared: params.sharedMemBytes,
        };
        // SAFETY: they hold what a launch takes.
        let launch = unsafe { self.prepare(params.func, shape, params.kernelParams, params.extra)? };
        self.check(&launch)?;
        Ok(launch)
    }

    /// # Safety
    /// `node` is null or valid for writing, and there are `count` nodes to follow.
    unsafe fn add(
        &mut self,
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        action: Action,
    ) -> Outcome {
        // SAFETY: as this function's contract says.
        unsafe {
            let after = elements(after, count)?.into_iter().map(|before| before as usize).collect();
            let handle = self.add_node(graph as usize, after, action)?;
            put(node, handle as CUgraphNode)
        }
    }

    fn add_edge(&mut self, graph: usize, from: usize, to: usize) -> Outcome {
        let graph = self.graphs.get_mut(graph)?;
        let cyclic = graph.closure(&[from]).contains(&to);
        if cyclic || graph.node(from).is_none() {
            return Err(INVALID);
        }
        let node = graph.nodes.iter_mut().find(|node| node.handle == to).ok_or(INVALID)?;
        if node.after.contains(&from) {
            return Err(INVALID);
        }
        node.after.push(from);
        Ok(())
    }

    fn drawing(&self, graph: usize) -> Outcome<String> {
        let graph = self.graphs.get(graph)?;
        let mut dot = String::from("digraph dot {\n");
        for node in &graph.nodes {
            let (handle, label) = (node.handle, node.action.name());
            // Writing to a string cannot fail.
            let _ = writeln!(dot, "\"{handle:#x}\" [label=\"{label}\"];");
        }
        for (from, to) in graph.edges() {
            let _ = writeln!(dot, "\"{from:#x}\" -> \"{to:#x}\";");
        }
        dot.push_str("}\n");
        Ok(dot)
    }
}

/// Writes a list in the driver's way: with nowhere to write only its length is told, and room beyond it is zeroed.
///
/// # Safety
/// `count` is valid, and every list has room for as many as it says.
unsafe fn put_list<T: Copy>(lists: &[(*mut T, Vec<T>)], nothing: T, count: *mut usize) -> Outcome {
    let length = lists.first().map_or(0, |(_, items)| items.len());
    // SAFETY: as this function's contract says.
    unsafe {
        if count.is_null() {
            return Err(INVALID);
        }
        if lists.iter().all(|(to, _)| to.is_null()) {
            return put(count, length);
        }
        let room = *count;
        for (to, items) in lists {
            for at in 0..room {
                put(to.wrapping_add(at), items.get(at).copied().unwrap_or(nothing))?;
            }
        }
        put(count, length.min(room))
    }
}

api! {
    Context fn cuGraphCreate(graph: *mut CUgraph, flags: c_uint) |driver| {
        if flags != 0 {
            return Err(INVALID);
        }
        let device = driver.current()?;
        let handle = driver.handle();
        put(graph, handle as CUgraph)?;
        driver.graphs.insert(handle, Graph::new(device, false));
        Ok(())
    }

    Release fn cuGraphDestroy(graph: CUgraph) |driver| {
        if driver.graphs.get(graph as usize)?.capturing {
            return Err(INVALID);
        }
        let graph = driver.graphs.remove(graph as usize)?;
        driver.release_objects(graph.objects);
        Ok(())
    }

    Context fn cuGraphClone(clone: *mut CUgraph, graph: CUgraph) |driver| {
        let nodes = driver.copy_nodes(graph as usize)?;
        let original = driver.graphs.get(graph as usize)?;
        let (device, objects) = (original.device, original.objects.clone());
        driver.retain_objects(&objects);
        let handle = driver.handle();
        put(clone, handle as CUgraph)?;
        let mut copy = Graph::new(device, false);
        (copy.nodes, copy.objects) = (nodes, objects);
        driver.graphs.insert(handle, copy);
        Ok(())
    }

    Context fn cuGraphAddKernelNode_v2(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) |driver| {
        let launch = driver.launch_of(params)?;
        driver.add(node, graph, after, count, Action::Launch(Box::new(launch)))
    }

    Context fn cuGraphAddMemcpyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_MEMCPY3D,
        context: CUcontext,
    ) |driver| {
        driver.device_of_context(context as usize)?;
        let copy = driver.boxes(params.as_ref().ok_or(INVALID)?)?;
        driver.add(node, graph, after, count, Action::Copy(Box::new(copy)))
    }

    Context fn cuGraphAddMemsetNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_MEMSET_NODE_PARAMS,
        context: CUcontext,
    ) |driver| {
        driver.device_of_context(context as usize)?;
        let params = params.as_ref().ok_or(INVALID)?;
        if !matches!(params.elementSize, 1 | 2 | 4) {
            return Err(INVALID);
        }
        let fill = Fill {
            address: params.dst,
            pitch: params.pitch as u64,
            value: params.value,
            element: params.elementSize.into(),
            width: params.width as u64,
            height: params.height as u64,
        };
        driver.add(node, graph, after, count, Action::Fill(fill))
    }

    Context fn cuGraphAddHostNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        params: *const CUDA_HOST_NODE_PARAMS,
    ) |driver| {
        let params = params.as_ref().filter(|params| params.fn_.is_some()).ok_or(INVALID)?;
        let action = Action::Host { function: params.fn_, data: params.userData as usize };
        driver.add(node, graph, after, count, action)
    }

    Context fn cuGraphAddEmptyNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
    ) |driver| {
        driver.add(node, graph, after, count, Action::Empty)
    }

    Context fn cuGraphAddEventRecordNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) |driver| {
        driver.events.get(event as usize)?;
        driver.add(node, graph, after, count, Action::RecordEvent(event as usize))
    }

    Context fn cuGraphAddEventWaitNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        event: CUevent,
    ) |driver| {
        driver.events.get(event as usize)?;
        driver.add(node, graph, after, count, Action::WaitEvent(event as usize))
    }

    Context fn cuGraphAddChildGraphNode(
        node: *mut CUgraphNode,
        graph: CUgraph,
        after: *const CUgraphNode,
        count: usize,
        child: CUgraph,
    ) |driver| {
        let nodes = driver.copy_nodes(child as usize)?;
        driver.add(node, graph, after, count, Action::Graph(nodes))
    }

    Context fn cuGraphAddDependencies(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
    ) |driver| {
        for (from, to) in elements(from, count)?.into_iter().zip(elements(to, count)?) {
            driver.add_edge(graph as usize, from as usize, to as usize)?;
        }
        Ok(())
    }

    Context fn cuGraphAddDependencies_v2(
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        _edges: *const CUgraphEdgeData,
        count: usize,
    ) |driver| {
        for (from, to) in elements(from, count)?.into_iter().zip(elements(to, count)?) {
            driver.add_edge(graph as usize, from as usize, to as usize)?;
        }
        Ok(())
    }

    Context fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) |driver| {
        let all = driver.graphs.get(graph as usize)?.nodes.iter().map(|node| node.handle as CUgraphNode).collect();
        put_list(&[(nodes, all)], std::ptr::null_mut(), count)
    }

    Context fn cuGraphGetEdges(
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        count: *mut usize,
    ) |driver| {
        let edges = driver.graphs.get(graph as usize)?.edges();
        let (starts, ends) = edges.map(|(from, to)| (from as CUgraphNode, to as CUgraphNode)).unzip();
        put_list(&[(from, starts), (to, ends)], std::ptr::null_mut(), count)
    }

    Context fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut CUgraphNodeType) |driver| {
        let graph = driver.graph_of(node as usize)?;
        let node = driver.graphs.get(graph)?.node(node as usize).ok_or(INVALID)?;
        put(kind, type_of(&node.action))
    }

    Context fn cuGraphKernelNodeGetParams_v2(node: CUgraphNode, params: *mut CUDA_KERNEL_NODE_PARAMS) |driver| {
        let graph = driver.graph_of(node as usize)?;
        put(params, driver.graphs.get_mut(graph)?.kernel(node as usize)?)
    }

    Context fn cuGraphKernelNodeSetParams_v2(node: CUgraphNode, params: *const CUDA_KERNEL_NODE_PARAMS) |driver| {
        let launch = driver.launch_of(params)?;
        let graph = driver.graph_of(node as usize)?;
        let nodes = &mut driver.graphs.get_mut(graph)?.nodes;
        let node = nodes.iter_mut().find(|entry| entry.handle == node as usize).ok_or(INVALID)?;
        node.set_launch(launch)
    }

    Context fn cuGraphKernelNodeSetAttribute(
        node: CUgraphNode,
        attribute: CUkernelNodeAttrID,
        value: *const CUkernelNodeAttrValue,
    ) |driver| {
        if value.is_null() {
            return Err(INVALID);
        }
        let bytes = value.cast::<[u8; 64]>().read();
        let graph = driver.graph_of(node as usize)?;
        let entry = driver.graphs.get(graph)?.node(node as usize).ok_or(INVALID)?;
        let Action::Launch(launch) = &entry.action else { return Err(INVALID) };
        let mut launch = launch.clone();
        launch.attributes.retain(|&(id, _)| id != attribute as u32);
        driver.apply(&mut launch, attribute as u32, bytes)?;
        driver.check(&launch)?;
        let nodes = &mut driver.graphs.get_mut(graph)?.nodes;
        let entry = nodes.iter_mut().find(|entry| entry.handle == node as usize).ok_or(INVALID)?;
        entry.action = Action::Launch(launch);
        Ok(())
    }

    Context fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, _flags: c_uint) |driver| {
        let (path, drawing) = (text(path)?, driver.drawing(graph as usize)?);
        std::fs::write(path, drawing).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
    }
}
