//! Capture and graphs, through cudarc's bindings, in a process that has loaded the fake driver.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod common;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use common::{Gpu, PTX, check, code, kernel, poke, words};
use cudarc::driver::sys::{self, CUgraph, CUgraphExec, CUgraphNode, CUstream, CUstreamCaptureMode as Mode};
use tilewright_fake_driver::Fake;

const GLOBAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;

fn begin(stream: CUstream, mode: Mode) {
    // SAFETY: valid handle.
    check(unsafe { sys::cuStreamBeginCapture_v2(stream, mode) });
}

/// The code of ending a capture, and the graph.
fn end(stream: CUstream) -> (u32, CUgraph) {
    let mut graph = null_mut();
    // SAFETY: valid handle and pointer.
    let result = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph) };
    (code(result), graph)
}

fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut exec = null_mut();
    // SAFETY: valid handle and pointer.
    check(unsafe { sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) });
    exec
}

fn launch(exec: CUgraphExec, stream: CUstream) {
    // SAFETY: valid handles.
    check(unsafe { sys::cuGraphLaunch(exec, stream) });
}

fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    // SAFETY: first the count, then room for as many.
    unsafe {
        check(sys::cuGraphGetNodes(graph, null_mut(), &raw mut count));
        let mut nodes = vec![null_mut(); count];
        check(sys::cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
        nodes
    }
}

#[test]
fn a_capture_records_and_its_launches_replay() {
    Fake::new().run("a_capture_records_and_its_launches_replay", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let (a, b) = (gpu.alloc(16), gpu.alloc(16));
        let poke_kernel = kernel(gpu.load(PTX), "poke");
        begin(stream, GLOBAL);
        poke(poke_kernel, stream, a, 6, 4);
        // SAFETY: live memory.
        check(unsafe { sys::cuMemcpyDtoDAsync_v2(b, a, 16, stream) });
        let (result, graph) = end(stream);
        assert_eq!((result, driver.pending()), (0, 0));
        // SAFETY: live memory and handles.
        unsafe {
            check(sys::cuMemsetD32Async(b, 0, 4, stream));
            assert_eq!(words(b, 4, stream), [0; 4], "capturing ran nothing");
            let exec = instantiate(graph);
            check(sys::cuGraphDestroy(graph));
            launch(exec, stream);
            assert_eq!(words(b, 4, stream), [6; 4]);
            launch(exec, stream);
            check(sys::cuStreamSynchronize(stream));
            assert_eq!(driver.launches().len(), 2);
            check(sys::cuGraphExecDestroy(exec));
        }
        let live = driver.live();
        assert_eq!((live["graphs"], live["execs"], live["captures"]), (0, 0, 0));
    });
}

#[test]
fn streams_fork_and_join_by_events() {
    Fake::new().run("streams_fork_and_join_by_events", |_| {
        let gpu = Gpu::new(0);
        let (first, second) = (gpu.stream(), gpu.stream());
        let data = gpu.alloc(16);
        let poke_kernel = kernel(gpu.load(PTX), "poke");
        let (fork, join) = (gpu.event(), gpu.event());
        let captured = |joined: bool| {
            begin(first, GLOBAL);
            poke(poke_kernel, first, data, 1, 4);
            // SAFETY: valid handles.
            unsafe {
                check(sys::cuEventRecord(fork, first));
                check(sys::cuStreamWaitEvent(second, fork, 0));
                poke(poke_kernel, second, data, 2, 2);
                if joined {
                    check(sys::cuEventRecord(join, second));
                    check(sys::cuStreamWaitEvent(first, join, 0));
                }
            }
            poke(poke_kernel, first, data, 3, 1);
            end(first)
        };
        let (result, graph) = captured(true);
        assert_eq!(result, 0);
        let exec = instantiate(graph);
        launch(exec, first);
        assert_eq!(words(data, 4, first), [3, 2, 1, 1]);
        assert_eq!(captured(false), (904, null_mut()));
        // Both streams are free again.
        poke(poke_kernel, second, data, 8, 4);
        assert_eq!(words(data, 4, second), [8; 4]);
    });
}

#[test]
fn captures_are_isolated_and_invalidated() {
    Fake::new().run("captures_are_isolated_and_invalidated", |_| {
        let gpu = Gpu::new(0);
        let (stream, other) = (gpu.stream(), gpu.stream());
        let outside = gpu.event();
        let mut address = 0;
        let data = gpu.alloc(16);
        // SAFETY: valid handles and pointers.
        unsafe {
            check(sys::cuEventRecord(outside, other));
            begin(stream, GLOBAL);
            assert_eq!(code(sys::cuStreamWaitEvent(stream, outside, 0)), 905);
            assert_eq!(code(sys::cuMemsetD8Async(data, 0, 16, stream)), 901);
            assert_eq!(end(stream).0, 901);

            begin(stream, GLOBAL);
            assert_eq!(code(sys::cuStreamSynchronize(stream)), 900);
            assert_eq!(end(stream).0, 901);

            begin(stream, GLOBAL);
            assert_eq!(code(sys::cuMemAlloc_v2(&raw mut address, 16)), 900);
            assert_eq!(end(stream).0, 901);

            begin(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED);
            check(sys::cuMemAlloc_v2(&raw mut address, 16));
            assert_eq!(end(stream).0, 0);

            begin(stream, GLOBAL);
            let inside = gpu.event();
            check(sys::cuEventRecord(inside, stream));
            assert_eq!(code(sys::cuEventSynchronize(inside)), 900);
            assert_eq!(end(stream).0, 901);
            assert_eq!(code(sys::cuEventSynchronize(inside)), 907);

            let mut blocking = null_mut();
            check(sys::cuStreamCreate(&raw mut blocking, 0));
            begin(blocking, GLOBAL);
            assert_eq!(code(sys::cuMemsetD8_v2(data, 0, 16)), 906);
            assert_eq!(end(blocking).0, 901);

            begin(stream, GLOBAL);
            begin(other, GLOBAL);
            let theirs = gpu.event();
            check(sys::cuEventRecord(theirs, other));
            assert_eq!(code(sys::cuStreamWaitEvent(stream, theirs, 0)), 902);
            assert_eq!((end(stream).0, end(other).0), (901, 901));
            assert_eq!(code(sys::cuStreamBeginCapture_v2(null_mut(), GLOBAL)), 900);
            assert_eq!(end(stream).0, 401);
        }
    });
}

#[test]
fn another_thread_cannot_end_a_capture() {
    Fake::new().run("another_thread_cannot_end_a_capture", |_| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        begin(stream, GLOBAL);
        let (stream_number, context_number) = (stream as usize, gpu.context as usize);
        let elsewhere = std::thread::spawn(move || {
            // SAFETY: valid handle.
            check(unsafe { sys::cuCtxSetCurrent(context_number as sys::CUcontext) });
            end(stream_number as CUstream).0
        });
        assert_eq!(elsewhere.join().unwrap(), 908);
        assert_eq!(end(stream).0, 0);
    });
}

#[test]
fn memory_allocated_in_a_capture_belongs_to_the_graph() {
    Fake::new().run("memory_allocated_in_a_capture_belongs_to_the_graph", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let data = gpu.alloc(16);
        let mut scratch = 0;
        begin(stream, GLOBAL);
        // SAFETY: valid handles and pointers.
        unsafe {
            check(sys::cuMemAllocAsync(&raw mut scratch, 16, stream));
            check(sys::cuMemsetD32Async(scratch, 4, 4, stream));
            check(sys::cuMemcpyDtoDAsync_v2(data, scratch, 16, stream));
            check(sys::cuMemFreeAsync(scratch, stream));
            let exec = instantiate(end(stream).1);
            for _ in 0..3 {
                launch(exec, stream);
            }
            assert_eq!(words(data, 4, stream), [4; 4]);
            assert_eq!(driver.live()["device_memory"], 1);
            check(sys::cuMemsetD32Async(scratch, 4, 4, stream));
            assert_eq!(code(sys::cuStreamSynchronize(stream)), 700, "only the graph may use it");
        }
    });
}

#[test]
fn graphs_are_built_read_and_changed_by_hand() {
    Fake::new().run("graphs_are_built_read_and_changed_by_hand", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let function = kernel(gpu.load(PTX), "poke");
        let (mut to, mut five, mut four) = (gpu.alloc(16), 5u32, 4u32);
        let (mut two, mut six, mut seven) = (2u32, 6u32, 7u32);
        let mut arguments: [*mut c_void; 3] =
            [(&raw mut to).cast(), (&raw mut five).cast(), (&raw mut four).cast()];
        let mut params = sys::CUDA_KERNEL_NODE_PARAMS {
            func: function,
            gridDimX: 1,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: 32,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            kernelParams: arguments.as_mut_ptr(),
            extra: null_mut(),
            kern: null_mut(),
            ctx: null_mut(),
        };
        let zero =
            sys::CUDA_MEMSET_NODE_PARAMS { dst: to, pitch: 0, value: 9, elementSize: 4, width: 4, height: 1 };
        let (mut graph, mut first, mut second, mut third) = (null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: valid handles and pointers throughout.
        unsafe {
            check(sys::cuGraphCreate(&raw mut graph, 0));
            check(sys::cuGraphAddMemsetNode(&raw mut first, graph, null(), 0, &raw const zero, gpu.context));
            check(sys::cuGraphAddKernelNode_v2(
                &raw mut second,
                graph,
                &raw const first,
                1,
                &raw const params,
            ));
            check(sys::cuGraphAddEmptyNode(&raw mut third, graph, null(), 0));
            check(sys::cuGraphAddDependencies(graph, &raw const second, &raw const third, 1));
            assert_eq!(
                code(sys::cuGraphAddDependencies(graph, &raw const third, &raw const first, 1)),
                1,
                "a circle"
            );
            assert_eq!(nodes(graph), [first, second, third]);
            let mut edges = 0;
            check(sys::cuGraphGetEdges(graph, null_mut(), null_mut(), &raw mut edges));
            assert_eq!(edges, 2);

            let exec = instantiate(graph);
            launch(exec, stream);
            assert_eq!(words(to, 4, stream), [5; 4]);

            // Arguments in the graph, read back, changed in the graph, taken over by the executable.
            let mut read = params;
            check(sys::cuGraphKernelNodeGetParams_v2(second, &raw mut read));
            assert_eq!((read.func, *(*read.kernelParams.add(1)).cast::<u32>()), (function, 5));
            params.kernelParams.add(1).write((&raw mut six).cast());
            params.kernelParams.add(2).write((&raw mut two).cast());
            check(sys::cuGraphKernelNodeSetParams_v2(second, &raw const params));
            launch(exec, stream);
            assert_eq!(words(to, 4, stream), [5; 4], "the executable is a copy");
            let mut info = std::mem::zeroed();
            check(sys::cuGraphExecUpdate_v2(exec, graph, &raw mut info));
            launch(exec, stream);
            assert_eq!(words(to, 4, stream), [6, 6, 9, 9]);

            // Arguments of the executable alone.
            params.kernelParams.add(1).write((&raw mut seven).cast());
            check(sys::cuGraphExecKernelNodeSetParams_v2(exec, second, &raw const params));
            params.blockDimX = 2048;
            assert_eq!(code(sys::cuGraphExecKernelNodeSetParams_v2(exec, second, &raw const params)), 1);
            launch(exec, stream);
            assert_eq!(words(to, 4, stream), [7, 7, 9, 9]);

            let mut clone = null_mut();
            check(sys::cuGraphClone(&raw mut clone, graph));
            let mut extra = null_mut();
            check(sys::cuGraphAddEmptyNode(&raw mut extra, clone, null(), 0));
            assert_eq!(code(sys::cuGraphExecUpdate_v2(exec, clone, &raw mut info)), 910);
            assert_eq!(info.result as u32, 2, "another topology");
        }
        assert_eq!(driver.live()["graphs"], 2);
    });
}

#[test]
fn a_graph_inside_a_graph_and_host_nodes() {
    Fake::new().run("a_graph_inside_a_graph_and_host_nodes", |_| {
        unsafe extern "C" fn count(data: *mut c_void) {
            // SAFETY: the counter given with the function outlives its launches.
            unsafe { *data.cast::<u32>() += 1 };
        }
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let mut counter = 0u32;
        let (mut inner, mut outer, mut host, mut child) = (null_mut(), null_mut(), null_mut(), null_mut());
        let params = sys::CUDA_HOST_NODE_PARAMS { fn_: Some(count), userData: (&raw mut counter).cast() };
        // SAFETY: valid handles and pointers throughout.
        unsafe {
            check(sys::cuGraphCreate(&raw mut inner, 0));
            check(sys::cuGraphCreate(&raw mut outer, 0));
            check(sys::cuGraphAddHostNode(&raw mut host, inner, null(), 0, &raw const params));
            check(sys::cuGraphAddChildGraphNode(&raw mut child, outer, null(), 0, inner));
            check(sys::cuGraphAddHostNode(&raw mut host, outer, &raw const child, 1, &raw const params));
            launch(instantiate(outer), stream);
            check(sys::cuStreamSynchronize(stream));
        }
        assert_eq!(counter, 2);
    });
}

#[test]
fn user_objects_live_as_long_as_their_graphs() {
    Fake::new().run("user_objects_live_as_long_as_their_graphs", |driver| {
        unsafe extern "C" fn destroyed(data: *mut c_void) {
            // SAFETY: the flag given with the object outlives it.
            unsafe { *data.cast::<bool>() = true };
        }
        let _gpu = Gpu::new(0);
        let mut flag = false;
        let (mut graph, mut object) = (null_mut(), null_mut());
        // SAFETY: valid handles and pointers throughout.
        unsafe {
            check(sys::cuGraphCreate(&raw mut graph, 0));
            check(sys::cuUserObjectCreate(&raw mut object, (&raw mut flag).cast(), Some(destroyed), 1, 1));
            check(sys::cuGraphRetainUserObject(graph, object, 1, 1));
            let exec = instantiate(graph);
            check(sys::cuGraphDestroy(graph));
            assert!(!flag);
            check(sys::cuGraphExecDestroy(exec));
        }
        assert!(flag);
        assert_eq!(driver.live()["user_objects"], 0);
    });
}
