//! The fake driver as a program sees it: through cudarc's bindings, in a process that has loaded it.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::{Gpu, PTX, check, code, kernel, poke, words};
use cudarc::driver::sys::{self, CUresult, CUstream};
use tilewright_fake_driver::Fake;

#[test]
fn nothing_but_the_version_comes_before_init() {
    Fake::new().run("nothing_but_the_version_comes_before_init", |driver| {
        let mut version = 0;
        // SAFETY: valid pointer.
        check(unsafe { sys::cuDriverGetVersion(&raw mut version) });
        assert_eq!(version, 13000);
        assert_eq!(driver.calls("cuDriverGetVersion"), 1);
        // SAFETY: valid pointer.
        assert_eq!(code(unsafe { sys::cuDeviceGetCount(&raw mut version) }), 3, "cuInit comes first");
    });
}

#[test]
fn devices_are_as_many_as_asked() {
    Fake::new().devices(3).run("devices_are_as_many_as_asked", |_| {
        let mut count = 0;
        // SAFETY: valid pointers.
        unsafe {
            check(sys::cuInit(0));
            check(sys::cuDeviceGetCount(&raw mut count));
            assert_eq!(count, 3);
            let mut name = [0; 8];
            check(sys::cuDeviceGetName(name.as_mut_ptr(), 8, 2));
            assert_eq!(name[7], 0);
            assert_eq!(code(sys::cuDeviceGet(&raw mut count, 3)), 101);
        }
    });
}

#[test]
fn no_device_is_an_error() {
    Fake::new().devices(0).run("no_device_is_an_error", |_| {
        // SAFETY: takes a number.
        assert_eq!(code(unsafe { sys::cuInit(0) }), 100);
    });
}

#[test]
fn nothing_runs_before_it_must() {
    Fake::new().run("nothing_runs_before_it_must", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let data = gpu.alloc(16);
        let module = gpu.load(PTX);
        poke(kernel(module, "poke"), stream, data, 7, 4);
        assert_eq!((driver.pending(), driver.launches().len()), (1, 0));
        assert_eq!(words(data, 4, stream), [7; 4], "a copy to pageable memory is done when it returns");
        let launches = driver.launches();
        assert_eq!(driver.pending(), 0);
        assert_eq!(
            (launches[0].name.as_str(), launches[0].grid, launches[0].block),
            ("poke", [2, 1, 1], [32, 1, 1])
        );
        assert_eq!(launches[0].params[..8], data.to_le_bytes());
        assert_eq!(launches[0].params[8..12], 7u32.to_le_bytes());
    });
}

#[test]
fn eager_work_runs_at_once() {
    Fake::new().eager().run("eager_work_runs_at_once", |driver| {
        let gpu = Gpu::new(0);
        let data = gpu.alloc(16);
        poke(kernel(gpu.load(PTX), "poke"), gpu.stream(), data, 7, 4);
        assert_eq!((driver.pending(), driver.launches().len()), (0, 1));
    });
}

#[test]
fn a_missing_dependency_gives_wrong_data() {
    Fake::new().run("a_missing_dependency_gives_wrong_data", |_| {
        let gpu = Gpu::new(0);
        let (first, second) = (gpu.stream(), gpu.stream());
        let (source, target) = (gpu.alloc(16), gpu.alloc(16));
        let module = gpu.load(PTX);
        poke(kernel(module, "poke"), first, source, 9, 4);
        // SAFETY: live device memory and streams.
        unsafe {
            check(sys::cuMemcpyDtoDAsync_v2(target, source, 16, second));
            check(sys::cuCtxSynchronize());
            assert_ne!(words(target, 4, second), [9; 4], "the youngest ready work runs first");

            poke(kernel(module, "poke"), first, source, 9, 4);
            let event = gpu.event();
            check(sys::cuEventRecord(event, first));
            check(sys::cuStreamWaitEvent(second, event, 0));
            check(sys::cuMemcpyDtoDAsync_v2(target, source, 16, second));
            check(sys::cuCtxSynchronize());
            assert_eq!(words(target, 4, second), [9; 4]);
        }
    });
}

#[test]
fn the_legacy_stream_follows_blocking_streams() {
    Fake::new().run("the_legacy_stream_follows_blocking_streams", |_| {
        let gpu = Gpu::new(0);
        let data = gpu.alloc(16);
        let poke_kernel = kernel(gpu.load(PTX), "poke");
        let mut blocking = null_mut();
        let mut found = [0u32; 4];
        // SAFETY: live device memory, streams and host buffers.
        unsafe {
            check(sys::cuStreamCreate(&raw mut blocking, 0));
            poke(poke_kernel, blocking, data, 1, 4);
            check(sys::cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), data, 16));
            assert_eq!(found, [1; 4]);
            check(sys::cuMemsetD32_v2(data, 2, 4));
            poke(poke_kernel, blocking, data, 3, 2);
            // Destroyed with work in it; the work still has to come first.
            check(sys::cuStreamDestroy_v2(blocking));
            check(sys::cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), data, 16));
            assert_eq!(found, [3, 3, 2, 2]);

            let other = gpu.stream();
            poke(poke_kernel, other, data, 4, 4);
            check(sys::cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), data, 16));
            assert_eq!(found, [3, 3, 2, 2], "a non-blocking stream is not waited for");
        }
    });
}

#[test]
fn pageable_memory_is_read_at_once_and_pinned_memory_late() {
    Fake::new().run("pageable_memory_is_read_at_once_and_pinned_memory_late", |_| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let (a, b) = (gpu.alloc(16), gpu.alloc(16));
        let mut pageable = [1u32; 4];
        let mut pinned: *mut c_void = null_mut();
        // SAFETY: live device and host memory.
        unsafe {
            check(sys::cuMemHostAlloc(&raw mut pinned, 16, 0));
            pinned.cast::<[u32; 4]>().write([1; 4]);
            check(sys::cuMemcpyHtoDAsync_v2(a, pageable.as_ptr().cast(), 16, stream));
            check(sys::cuMemcpyHtoDAsync_v2(b, pinned, 16, stream));
            pageable.fill(2);
            pinned.cast::<[u32; 4]>().write([2; 4]);
            assert_eq!(words(a, 4, stream), [1; 4]);
            assert_eq!(words(b, 4, stream), [2; 4]);
            assert_eq!(pageable, [2; 4]);
        }
    });
}

#[test]
fn pinned_memory_must_outlive_its_copies() {
    Fake::new().run("pinned_memory_must_outlive_its_copies", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let data = gpu.alloc(16);
        let mut pinned: *mut c_void = null_mut();
        // SAFETY: that the memory dies too early is what the driver must find.
        unsafe {
            check(sys::cuMemHostAlloc(&raw mut pinned, 16, 0));
            check(sys::cuMemcpyHtoDAsync_v2(data, pinned, 16, stream));
            check(sys::cuMemFreeHost(pinned));
            assert_eq!(code(sys::cuStreamSynchronize(stream)), 700);
        }
        assert!(driver.faults()[0].contains("freed host memory"), "{:?}", driver.faults());
    });
}

#[test]
fn a_lost_context_stays_lost_until_it_is_reset() {
    Fake::new().run("a_lost_context_stays_lost_until_it_is_reset", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let module = gpu.load(PTX);
        let crash = kernel(module, "crash");
        let mut address = 0;
        // SAFETY: valid handles and pointers.
        unsafe {
            check(sys::cuLaunchKernel(crash, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
            assert_eq!(code(sys::cuStreamSynchronize(stream)), 700);
            assert_eq!(code(sys::cuMemAlloc_v2(&raw mut address, 16)), 700);
            assert_eq!(code(sys::cuStreamDestroy_v2(stream)), 700, "released, and still told");
            assert_eq!(code(sys::cuStreamDestroy_v2(stream)), 700);
            assert_eq!(driver.live()["streams"], 0);
            let mut count = 0;
            check(sys::cuDeviceGetCount(&raw mut count));

            let other = Gpu::new(1);
            check(sys::cuMemAlloc_v2(&raw mut address, 16));
            drop(other);
            check(sys::cuDevicePrimaryCtxReset_v2(0));
            gpu.make_current();
            check(sys::cuMemAlloc_v2(&raw mut address, 16));
        }
        assert_eq!(driver.faults().len(), 1);
    });
}

/// Work that uses memory wrongly, given to a stream; then its synchronisation, which must tell.
fn loses_its_context(test: &str, reason: &str, misuse: impl FnOnce(&Gpu, CUstream, u64)) {
    Fake::new().run(test, |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        misuse(&gpu, stream, gpu.alloc(16));
        // SAFETY: valid handle.
        assert_eq!(code(unsafe { sys::cuStreamSynchronize(stream) }), 700);
        assert!(driver.faults()[0].contains(reason), "{:?}", driver.faults());
    });
}

#[test]
fn freed_memory_is_not_there() {
    loses_its_context("freed_memory_is_not_there", "no live memory", |_, stream, data| {
        // SAFETY: that the address is wrong is what the driver must find.
        unsafe {
            check(sys::cuMemFree_v2(data));
            check(sys::cuMemsetD8Async(data, 0, 16, stream));
        }
    });
}

#[test]
fn allocations_have_an_end() {
    loses_its_context("allocations_have_an_end", "leave their allocation", |_, stream, data| {
        // SAFETY: that the address is wrong is what the driver must find.
        check(unsafe { sys::cuMemsetD8Async(data + 1, 0, 16, stream) });
    });
}

#[test]
fn arguments_must_be_alive_when_the_kernel_runs() {
    loses_its_context("arguments_must_be_alive_when_the_kernel_runs", "freed", |gpu, stream, data| {
        poke(kernel(gpu.load(PTX), "other"), stream, data, 0, 0);
        // SAFETY: that the kernel still uses it is what the driver must find.
        check(unsafe { sys::cuMemFree_v2(data) });
    });
}

#[test]
fn memory_belongs_to_a_device() {
    Fake::new().run("memory_belongs_to_a_device", |driver| {
        let data = std::mem::ManuallyDrop::new(Gpu::new(0)).alloc(16);
        let other = Gpu::new(1);
        // SAFETY: that the address is of another device is what the driver must find.
        unsafe {
            check(sys::cuMemsetD8Async(data, 0, 16, other.stream()));
            assert_eq!(code(sys::cuCtxSynchronize()), 700);
        }
        assert!(driver.faults()[0].contains("belongs to device 0"), "{:?}", driver.faults());
    });
}

#[test]
fn peer_access_opens_memory_of_the_other_device() {
    Fake::new().run("peer_access_opens_memory_of_the_other_device", |_| {
        let first = Gpu::new(0);
        let data = first.alloc(16);
        let second = Gpu::new(1);
        let stream = second.stream();
        // SAFETY: valid handles; live memory.
        unsafe {
            check(sys::cuCtxEnablePeerAccess(first.context, 0));
            assert_eq!(code(sys::cuCtxEnablePeerAccess(first.context, 0)), 704);
            check(sys::cuMemsetD32Async(data, 5, 4, stream));
            check(sys::cuStreamSynchronize(stream));
            let copy = second.alloc(16);
            check(sys::cuMemcpyPeerAsync(copy, second.context, data, first.context, 16, stream));
            assert_eq!(words(copy, 4, stream), [5; 4]);
        }
    });
}

#[test]
fn stream_ordered_memory_must_be_ordered() {
    Fake::new().run("stream_ordered_memory_must_be_ordered", |driver| {
        let gpu = Gpu::new(0);
        let (first, second) = (gpu.stream(), gpu.stream());
        let mut data = 0;
        // SAFETY: valid handles; what is wrong with the order is what the driver must find.
        unsafe {
            // Right: the second stream waits, and the free waits for the second stream.
            check(sys::cuMemAllocAsync(&raw mut data, 16, first));
            let (ready, used) = (gpu.event(), gpu.event());
            check(sys::cuEventRecord(ready, first));
            check(sys::cuStreamWaitEvent(second, ready, 0));
            check(sys::cuMemsetD32Async(data, 3, 4, second));
            check(sys::cuEventRecord(used, second));
            check(sys::cuStreamWaitEvent(first, used, 0));
            check(sys::cuMemFreeAsync(data, first));
            assert_eq!(driver.live()["device_memory"], 0);
            check(sys::cuCtxSynchronize());

            // Wrong: the free does not follow the use.
            check(sys::cuMemAllocAsync(&raw mut data, 16, first));
            check(sys::cuStreamSynchronize(first));
            check(sys::cuMemsetD32Async(data, 3, 4, second));
            check(sys::cuMemFreeAsync(data, first));
            check(sys::cuStreamSynchronize(second));
            assert_eq!(code(sys::cuStreamSynchronize(first)), 700);
        }
        assert!(driver.faults()[0].contains("without following operation"), "{:?}", driver.faults());
    });
}

#[test]
fn memory_is_not_there_before_its_allocation() {
    Fake::new().run("memory_is_not_there_before_its_allocation", |driver| {
        let gpu = Gpu::new(0);
        let (first, second) = (gpu.stream(), gpu.stream());
        let mut data = 0;
        // SAFETY: valid handles; what is wrong with the order is what the driver must find.
        unsafe {
            check(sys::cuMemAllocAsync(&raw mut data, 16, first));
            check(sys::cuMemsetD32Async(data, 3, 4, second));
            assert_eq!(code(sys::cuStreamSynchronize(second)), 700);
        }
        assert!(driver.faults()[0].contains("without following its allocation"), "{:?}", driver.faults());
    });
}

#[test]
fn modules_must_outlive_their_launches() {
    Fake::new().run("modules_must_outlive_their_launches", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let module = gpu.load(PTX);
        poke(kernel(module, "poke"), stream, gpu.alloc(16), 0, 1);
        // SAFETY: valid handles.
        unsafe {
            check(sys::cuModuleUnload(module));
            assert_eq!(code(sys::cuStreamSynchronize(stream)), 700);
        }
        assert!(driver.faults()[0].contains("unloaded"));
    });
}

#[test]
fn failures_can_be_ordered() {
    Fake::new().fail("cuMemAlloc_v2", 2, 2).run("failures_can_be_ordered", |driver| {
        let gpu = Gpu::new(0);
        let mut address = 0;
        // SAFETY: valid pointers.
        let mut alloc = || code(unsafe { sys::cuMemAlloc_v2(&raw mut address, 16) });
        assert_eq!([alloc(), alloc(), alloc()], [0, 2, 0]);
        driver.fail("cuMemAlloc_v2", 1, 201);
        assert_eq!([alloc(), alloc()], [201, 0]);
        driver.fail("cuMemAlloc_v2", 0, 2);
        assert_eq!([alloc(), alloc()], [2, 2]);
        driver.reset();
        assert_eq!(alloc(), 0);
        driver.fail("cuMemAlloc_v2", 1, 700);
        assert_eq!([alloc(), alloc()], [700, 700], "a lost context stays lost");
        drop(gpu);
    });
}

#[test]
fn memory_runs_out() {
    Fake::new().memory(1 << 20).run("memory_runs_out", |_| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let first = gpu.alloc(1 << 19);
        let (mut second, mut free, mut total) = (0, 0, 0);
        // SAFETY: valid pointers.
        unsafe {
            assert_eq!(code(sys::cuMemAllocAsync(&raw mut second, (1 << 19) + 1, stream)), 2);
            check(sys::cuMemGetInfo_v2(&raw mut free, &raw mut total));
            assert_eq!((free, total), (1 << 19, 1 << 20));
            check(sys::cuMemFree_v2(first));
            check(sys::cuMemAllocAsync(&raw mut second, 1 << 20, stream));
        }
    });
}

#[test]
fn memory_costs_nothing_until_it_is_used() {
    Fake::new().run("memory_costs_nothing_until_it_is_used", |_| {
        let gpu = Gpu::new(0);
        let (data, stream) = (gpu.alloc(2 << 30), gpu.stream());
        // SAFETY: live memory.
        check(unsafe { sys::cuMemsetD32Async(data + (1 << 30), 4, 1, stream) });
        assert_eq!(words(data + (1 << 30), 2, stream), [4, 0]);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kilobytes < 1 << 20, "{kilobytes} kB are resident");
    });
}

#[test]
fn leaks_are_counted_even_when_the_context_goes() {
    Fake::new().run("leaks_are_counted_even_when_the_context_goes", |driver| {
        let gpu = Gpu::new(0);
        assert_eq!(driver.leaks(), ["contexts: 1"]);
        gpu.stream();
        gpu.event();
        gpu.alloc(16);
        drop(gpu);
        assert_eq!(driver.leaks(), ["device_memory: 1", "events: 1", "streams: 1"]);
    });
}

#[test]
fn queries_make_progress() {
    Fake::new().run("queries_make_progress", |_| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let (start, end) = (gpu.event(), gpu.event());
        let mut time = 0.0;
        // SAFETY: valid handles and pointers.
        unsafe {
            check(sys::cuEventRecord(start, stream));
            check(sys::cuMemsetD8Async(gpu.alloc(16), 0, 16, stream));
            check(sys::cuEventRecord(end, stream));
            assert_eq!(code(sys::cuEventElapsedTime(&raw mut time, start, end)), 600);
            assert_eq!(code(sys::cuEventQuery(end)), 600);
            check(sys::cuEventQuery(end));
            check(sys::cuStreamQuery(stream));
            check(sys::cuEventElapsedTime(&raw mut time, start, end));
        }
        assert!(time > 0.0);
    });
}

#[test]
fn host_functions_run_by_themselves_and_may_not_call_the_driver() {
    Fake::new().patience(10).run("host_functions_run_by_themselves_and_may_not_call_the_driver", |_| {
        type Answer = std::sync::mpsc::Sender<CUresult>;
        unsafe extern "C" fn answer(data: *mut c_void) {
            // SAFETY: the box that was given with the function, which runs once.
            let sender = unsafe { Box::from_raw(data.cast::<Answer>()) };
            // SAFETY: takes nothing.
            sender.send(unsafe { sys::cuCtxSynchronize() }).unwrap();
        }
        let gpu = Gpu::new(0);
        let (sender, receiver) = std::sync::mpsc::channel();
        let data = Box::into_raw(Box::<Answer>::new(sender));
        // SAFETY: the function takes this box.
        check(unsafe { sys::cuLaunchHostFunc(gpu.stream(), Some(answer), data.cast()) });
        let seen = receiver.recv_timeout(std::time::Duration::from_secs(20)).unwrap();
        assert_eq!(seen, CUresult::CUDA_ERROR_NOT_PERMITTED);
    });
}

#[test]
fn old_drivers_lack_functions() {
    Fake::new().without(&["cuLaunchKernelEx", "cuMemAllocAsync"]).run("old_drivers_lack_functions", |_| {
        // SAFETY: only looked up.
        let has = |name: &str| unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_ok() };
        assert!(has("cuLaunchKernel") && has("cuMemAlloc_v2") && has("cuMemAllocFromPoolAsync"));
        assert!(!has("cuLaunchKernelEx") && !has("cuMemAllocAsync"));
    });
}

#[test]
fn another_device_tells_of_its_own_loss() {
    Fake::new().run("another_device_tells_of_its_own_loss", |_| {
        let first = Gpu::new(0);
        let second = Gpu::new(1);
        let stream = second.stream();
        let crash = kernel(second.load(PTX), "crash");
        // SAFETY: valid handles.
        unsafe {
            check(sys::cuLaunchKernel(crash, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()));
            first.make_current();
            assert_eq!(code(sys::cuStreamSynchronize(stream)), 700);
            assert_eq!(code(sys::cuStreamQuery(stream)), 700);
            check(sys::cuCtxSynchronize());
        }
    });
}

#[test]
fn threads_share_the_driver() {
    Fake::new().run("threads_share_the_driver", |driver| {
        let gpu = Gpu::new(0);
        let context = gpu.context as usize;
        let workers: Vec<_> = (1..=8u32)
            .map(|number| {
                std::thread::spawn(move || {
                    // SAFETY: the context outlives the thread.
                    check(unsafe { sys::cuCtxSetCurrent(context as sys::CUcontext) });
                    let gpu = std::mem::ManuallyDrop::new(Gpu::new(0));
                    let (stream, data) = (gpu.stream(), gpu.alloc(64));
                    let function = kernel(gpu.load(PTX), "poke");
                    for round in 0..50 {
                        poke(function, stream, data, number * 100 + round, 16);
                        assert_eq!(words(data, 16, stream), [number * 100 + round; 16]);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(driver.launches().len(), 400);
    });
}

/// What the runtime may look up. cudarc stops the process over a missing function, so a gap must show here.
#[test]
fn the_functions_of_the_runtime_are_there() {
    const NAMES: &str = "\
        cuInit cuDriverGetVersion cuGetErrorName cuGetErrorString cuGetProcAddress_v2 \
        cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetUuid_v2 cuDeviceTotalMem_v2 cuDeviceGetAttribute \
        cuDeviceCanAccessPeer cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 \
        cuDevicePrimaryCtxGetState cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool \
        cuCtxGetCurrent cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxGetDevice cuCtxSynchronize \
        cuCtxGetStreamPriorityRange cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuCtxGetLimit cuCtxSetLimit \
        cuMemGetInfo_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync \
        cuMemAllocPitch_v2 cuMemAllocManaged cuMemHostAlloc cuMemFreeHost cuMemHostGetDevicePointer_v2 \
        cuMemHostRegister_v2 cuMemHostUnregister cuMemPoolCreate cuMemPoolDestroy cuMemPoolSetAttribute \
        cuMemPoolGetAttribute cuMemPoolTrimTo cuMemPoolSetAccess cuMemcpy cuMemcpyAsync cuMemcpyHtoD_v2 \
        cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeer \
        cuMemcpyPeerAsync cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuMemcpy3DPeerAsync cuMemsetD8_v2 cuMemsetD16_v2 \
        cuMemsetD32_v2 cuMemsetD8Async cuMemsetD16Async cuMemsetD32Async cuMemsetD2D8_v2 cuMemsetD2D16_v2 \
        cuMemsetD2D32_v2 cuMemsetD2D8Async cuMemsetD2D16Async cuMemsetD2D32Async cuMemPrefetchAsync \
        cuMemPrefetchAsync_v2 cuMemAdvise cuMemAdvise_v2 cuPointerGetAttribute cuPointerGetAttributes \
        cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamSynchronize cuStreamQuery \
        cuStreamWaitEvent cuStreamGetPriority cuStreamGetFlags cuStreamGetId cuStreamGetCtx \
        cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing cuStreamGetCaptureInfo_v2 \
        cuStreamGetCaptureInfo_v3 cuThreadExchangeStreamCaptureMode cuLaunchHostFunc cuEventCreate \
        cuEventDestroy_v2 cuEventRecord cuEventRecordWithFlags cuEventQuery cuEventSynchronize cuEventElapsedTime \
        cuEventElapsedTime_v2 cuModuleLoadData cuModuleLoadDataEx cuModuleUnload cuModuleGetFunction \
        cuModuleGetFunctionCount cuModuleEnumerateFunctions cuModuleGetGlobal_v2 cuFuncGetAttribute \
        cuFuncSetAttribute cuFuncGetName cuFuncGetParamInfo cuLinkCreate_v2 cuLinkAddData_v2 cuLinkComplete \
        cuLinkDestroy cuLaunchKernel cuLaunchKernelEx cuLaunchCooperativeKernel \
        cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags \
        cuOccupancyMaxPotentialBlockSize cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialClusterSize \
        cuOccupancyAvailableDynamicSMemPerBlock cuTensorMapEncodeTiled cuTensorMapEncodeIm2col cuGraphCreate \
        cuGraphDestroy cuGraphClone cuGraphAddKernelNode_v2 cuGraphAddMemcpyNode cuGraphAddMemsetNode \
        cuGraphAddHostNode cuGraphAddEmptyNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode \
        cuGraphAddChildGraphNode cuGraphAddDependencies cuGraphAddDependencies_v2 cuGraphInstantiateWithFlags \
        cuGraphInstantiateWithParams cuGraphExecDestroy cuGraphLaunch cuGraphUpload cuGraphExecUpdate_v2 \
        cuGraphGetNodes cuGraphGetEdges cuGraphNodeGetType cuGraphKernelNodeGetParams_v2 \
        cuGraphKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams_v2 cuGraphKernelNodeSetAttribute \
        cuGraphDebugDotPrint cuUserObjectCreate cuUserObjectRetain cuUserObjectRelease cuGraphRetainUserObject \
        cuGraphReleaseUserObject";
    Fake::new().run("the_functions_of_the_runtime_are_there", |_| {
        // SAFETY: only looked up.
        let has = |name: &&str| unsafe { sys::culib().get::<*const ()>(name.as_bytes()).is_ok() };
        let missing: Vec<&str> = NAMES.split_whitespace().filter(|name| !has(name)).collect();
        assert_eq!(missing, [""; 0]);
    });
}
