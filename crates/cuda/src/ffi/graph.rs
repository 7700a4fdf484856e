//! Graphs: owned handles.

use std::ptr;
use std::sync::Arc;

use super::context::Context;
use super::stream::Stream;
use super::{Shared, call, sys};
use crate::error::CudaError;

/// A graph, destroyed on drop.
#[derive(Debug)]
pub(crate) struct Graph {
    context: Arc<Context>,
    raw: Shared<sys::CUgraph>,
}

impl Graph {
    pub(super) fn own(context: Arc<Context>, raw: sys::CUgraph) -> Graph {
        Graph { context, raw: Shared(raw) }
    }

    pub(crate) fn new(context: Arc<Context>) -> Result<Graph, CudaError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuGraphCreate(&raw mut raw, 0)) }?;
        Ok(Graph::own(context, raw))
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> sys::CUgraph {
        self.raw.0
    }

    pub(crate) fn instantiate(&self) -> Result<Exec, CudaError> {
        self.context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is valid for the call, the graph lives.
        unsafe { call!(cuGraphInstantiateWithFlags(&raw mut raw, self.raw.0, 0)) }?;
        Ok(Exec { context: self.context.clone(), raw: Shared(raw) })
    }

    /// Nodes of the graph.
    pub(crate) fn len(&self) -> Result<usize, CudaError> {
        self.context.bind()?;
        let mut count = 0;
        // SAFETY: with no room for nodes the driver only counts.
        unsafe { call!(cuGraphGetNodes(self.raw.0, ptr::null_mut(), &raw mut count)) }?;
        Ok(count)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; instantiated graphs do not depend on it.
        let _ = self.context.bind().and_then(|()| unsafe { call!(cuGraphDestroy(self.raw.0)) });
    }
}

/// An instantiated graph, destroyed on drop.
#[derive(Debug)]
pub(crate) struct Exec {
    context: Arc<Context>,
    raw: Shared<sys::CUgraphExec>,
}

impl Exec {
    pub(crate) fn raw(&self) -> sys::CUgraphExec {
        self.raw.0
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// # Safety
    /// All that its nodes reach is live until they have run, and what else uses it is ordered.
    pub(crate) unsafe fn launch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: the caller's.
        unsafe { call!(cuGraphLaunch(self.raw.0, stream.raw())) }
    }

    pub(crate) fn upload(&self, stream: &Stream) -> Result<(), CudaError> {
        self.context.bind()?;
        // SAFETY: both handles live.
        unsafe { call!(cuGraphUpload(self.raw.0, stream.raw())) }
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once; the driver lets a launch that is under way end.
        let _ = self.context.bind().and_then(|()| unsafe { call!(cuGraphExecDestroy(self.raw.0)) });
    }
}
