//! Executable graphs: a copy of the nodes that can be launched.

use std::collections::BTreeMap;
use std::ffi::c_ulonglong;

use cudarc::driver::sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphInstantiateResult, CUgraphNode, CUresult, CUstream,
};

use crate::entry::{Driver, Outcome, api, put, put_if_wanted};
use crate::execution::{Action, Launch};
use crate::graph::Node;
use crate::graph::node::type_of;
use crate::state::Owned;

/// Free what a launch allocated and did not free when the next begins.
const AUTO_FREE: u64 = 1;
const KNOWN_FLAGS: u64 = AUTO_FREE | 2 | 8;

#[derive(Debug)]
pub(crate) struct Exec {
    device: usize,
    flags: u64,
    /// Under the handles that they have in the graph.
    nodes: Vec<Node>,
    objects: BTreeMap<usize, u32>,
    /// The end of its last launch; two launches never overlap.
    last: Option<u64>,
}

impl Owned for Exec {
    fn device(&self) -> usize {
        self.device
    }
}

impl Node {
    /// Other arguments for a kernel node, which keeps its attributes.
    pub(crate) fn set_launch(&mut self, launch: Launch) -> Outcome {
        let Action::Launch(old) = &mut self.action else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
        let (cluster, cooperative) = (old.cluster, old.cooperative);
        let attributes = std::mem::take(&mut old.attributes);
        **old = Launch { attributes, cluster, cooperative, ..launch };
        Ok(())
    }
}

impl Driver {
    fn instantiate(&mut self, graph: usize, flags: u64) -> Outcome<usize> {
        let entry = self.graphs.get(graph)?;
        if entry.capturing || flags & !KNOWN_FLAGS != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (device, nodes, objects) = (entry.device, entry.nodes.clone(), entry.objects.clone());
        self.retain_objects(&objects);
        let handle = self.handle();
        self.execs.insert(handle, Exec { device, flags, nodes, objects, last: None });
        Ok(handle)
    }

    fn launch_graph(&mut self, exec: usize, stream: CUstream) -> Outcome {
        let stream = self.stream(stream)?;
        let Exec { nodes, last, flags, .. } = self.execs.get(exec)?;
        let (nodes, last, flags) = (nodes.clone(), *last, *flags);
        if self.capture_of(stream)?.is_some() {
            return self.issue(stream, Action::Graph(nodes)).map(drop);
        }
        self.refuse_legacy_in_capture(stream)?;
        let mut after = self.order(stream)?;
        after.extend(last);
        let (device, id) = self.streams.get(stream).map(|stream| (stream.device, stream.id))?;
        if flags & AUTO_FREE != 0 {
            for base in self.left_allocated(&nodes) {
                after = vec![self.enqueue(device, id, after, Action::Free(base))];
            }
        }
        let ends = self.expand(device, id, &after, &nodes);
        let end = self.enqueue(device, id, ends, Action::Empty);
        self.streams.get_mut(stream)?.tail = Some(end);
        self.execs.get_mut(exec)?.last = Some(end);
        Ok(())
    }

    /// Memory of a graph that was allocated by a launch and is not freed.
    fn left_allocated(&self, nodes: &[Node]) -> Vec<u64> {
        let bases = nodes.iter().filter_map(|node| match node.action {
            Action::Allocate(base) => Some(base),
            _ => None,
        });
        let left = |base: &u64| {
            let range = self.memory.starting_at(*base);
            range.is_some_and(|range| range.allocation.is_some() && range.free.is_none())
        };
        bases.filter(left).collect()
    }

    /// Gives all nodes to the schedule behind `after`; returns what must be waited for.
    fn expand(&mut self, device: usize, stream: u64, after: &[u64], nodes: &[Node]) -> Vec<u64> {
        let mut done: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let mut ends = after.to_vec();
        let mut open: Vec<&Node> = nodes.iter().collect();
        while !open.is_empty() {
            let (ready, blocked): (Vec<&Node>, Vec<&Node>) =
                open.into_iter().partition(|node| node.after.iter().all(|before| done.contains_key(before)));
            for node in ready {
                let before: Vec<u64> = if node.after.is_empty() {
                    after.to_vec()
                } else {
                    node.after.iter().flat_map(|before| done[before].iter().copied()).collect()
                };
                let last = match &node.action {
                    Action::Graph(inner) => self.expand(device, stream, &before, inner),
                    action => vec![self.enqueue(device, stream, before, action.clone())],
                };
                ends.extend(&last);
                done.insert(node.handle, last);
            }
            open = blocked;
        }
        ends
    }

    /// Takes over the parameters of a graph of the same shape.
    fn update(&mut self, exec: usize, graph: usize) -> Outcome<CUgraphExecUpdateResult> {
        use CUgraphExecUpdateResult as R;
        let new = self.graphs.get(graph)?.nodes.clone();
        let exec = self.execs.get_mut(exec)?;
        let places = |nodes: &[Node]| -> Vec<Vec<usize>> {
            let place =
                |handle: usize| nodes.iter().position(|node| node.handle == handle).unwrap_or(usize::MAX);
            nodes.iter().map(|node| node.after.iter().map(|&before| place(before)).collect()).collect()
        };
        if places(&exec.nodes) != places(&new) {
            return Ok(R::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
        }
        if exec.nodes.iter().zip(&new).any(|(old, new)| type_of(&old.action) != type_of(&new.action)) {
            return Ok(R::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
        }
        for (old, new) in exec.nodes.iter_mut().zip(new) {
            old.action = new.action;
        }
        Ok(R::CU_GRAPH_EXEC_UPDATE_SUCCESS)
    }
}

api! {
    Context fn cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) |driver| {
        let handle = driver.instantiate(graph as usize, flags)?;
        put(exec, handle as CUgraphExec)
    }

    Context fn cuGraphInstantiateWithParams(
        exec: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) |driver| {
        let params = params.as_mut().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        params.hErrNode_out = std::ptr::null_mut();
        params.result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
        let handle = driver.instantiate(graph as usize, params.flags)?;
        params.result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS;
        put(exec, handle as CUgraphExec)
    }

    Release fn cuGraphExecDestroy(exec: CUgraphExec) |driver| {
        let exec = driver.execs.remove(exec as usize)?;
        driver.release_objects(exec.objects);
        Ok(())
    }

    Context fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) |driver| {
        driver.launch_graph(exec as usize, stream)
    }

    Context fn cuGraphUpload(exec: CUgraphExec, stream: CUstream) |driver| {
        driver.execs.get(exec as usize)?;
        let stream = driver.stream(stream)?;
        driver.refuse_capturing(stream)?;
        driver.issue(stream, Action::Empty).map(drop)
    }

    Context fn cuGraphExecUpdate_v2(
        exec: CUgraphExec,
        graph: CUgraph,
        info: *mut CUgraphExecUpdateResultInfo,
    ) |driver| {
        let result = driver.update(exec as usize, graph as usize)?;
        let none = std::ptr::null_mut();
        put_if_wanted(info, CUgraphExecUpdateResultInfo { result, errorNode: none, errorFromNode: none });
        if result == CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS {
            Ok(())
        } else {
            Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
        }
    }

    Context fn cuGraphExecKernelNodeSetParams_v2(
        exec: CUgraphExec,
        node: CUgraphNode,
        params: *const CUDA_KERNEL_NODE_PARAMS,
    ) |driver| {
        let launch = driver.launch_of(params)?;
        let nodes = &mut driver.execs.get_mut(exec as usize)?.nodes;
        let node = nodes.iter_mut().find(|entry| entry.handle == node as usize);
        node.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.set_launch(launch)
    }
}
