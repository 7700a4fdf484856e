//! Images, the linker, launch checks and tensor maps, through cudarc's bindings, under the fake driver.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;

use common::{Gpu, PTX, check, code, kernel, poke, words};
use cudarc::driver::sys::{
    self, CUfunction_attribute as Attribute, CUjit_option as Option_, CUlaunchAttributeID as Id,
};
use tilewright_fake_driver::Fake;

/// Links PTX; the code, the image, and the log of errors.
fn link(ptx: &str) -> (u32, Vec<u8>, String) {
    let mut log = vec![0u8; 256];
    let mut options = [Option_::CU_JIT_ERROR_LOG_BUFFER, Option_::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), 256 as *mut c_void];
    let text = CString::new(ptx).unwrap();
    let (mut state, mut image, mut bytes) = (null_mut(), null_mut(), 0);
    let kind = sys::CUjitInputType::CU_JIT_INPUT_PTX;
    // SAFETY: valid pointers, and buffers of the sizes given.
    unsafe {
        check(sys::cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state));
        let data = text.as_ptr().cast_mut().cast();
        let length = ptx.len() + 1;
        let added =
            sys::cuLinkAddData_v2(state, kind, data, length, c"x".as_ptr(), 0, null_mut(), null_mut());
        let mut found = Vec::new();
        if code(added) == 0 {
            check(sys::cuLinkComplete(state, &raw mut image, &raw mut bytes));
            found = std::slice::from_raw_parts(image.cast::<u8>(), bytes).to_vec();
        }
        check(sys::cuLinkDestroy(state));
        let log = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap().to_string();
        (code(added), found, log)
    }
}

fn load(image: &[u8]) -> (u32, sys::CUmodule) {
    let mut module = null_mut();
    // SAFETY: an image, perhaps cut short, which the driver must survive.
    let result = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
    (code(result), module)
}

#[test]
fn linked_images_load_and_damaged_ones_do_not() {
    Fake::new().run("linked_images_load_and_damaged_ones_do_not", |driver| {
        let gpu = Gpu::new(0);
        let (result, image, log) = link(PTX);
        assert_eq!((result, log.as_str()), (0, ""));
        let (result, module) = load(&image);
        assert_eq!(result, 0);
        let (stream, data) = (gpu.stream(), gpu.alloc(16));
        poke(kernel(module, "poke"), stream, data, 3, 4);
        assert_eq!(words(data, 4, stream), [3; 4]);
        for length in [image.len() - 1, image.len() / 2, 20] {
            // No length is given to the driver: it sees what lies behind.
            let mut short = image.clone();
            short[length..].fill(0);
            assert_eq!(load(&short).0, 200, "{length} bytes");
        }
        let mut damaged = image.clone();
        damaged[40] ^= 1;
        assert_eq!(load(&damaged).0, 200);
        assert_eq!(load(b"\x7fELF\x02\x01\x01\0\0\0").0, 200);
        assert_eq!((driver.live()["links"], driver.live()["modules"]), (0, 1));
    });
}

#[test]
fn bad_ptx_is_refused_with_a_log() {
    Fake::new().run("bad_ptx_is_refused_with_a_log", |_| {
        let _gpu = Gpu::new(0);
        let (result, _, log) = link(".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry oops( {");
        assert_eq!(result, 218);
        assert!(log.starts_with("ptxas fatal"), "{log}");
        assert_eq!(link(&PTX.replace("8.0", "9.9")).0, 222);
        assert_eq!(link(&PTX.replace("sm_90", "sm_100")).0, 209);
        assert_eq!(load(b"no code at all\0").0, 200);
    });
}

#[test]
fn launches_are_checked() {
    Fake::new().run("launches_are_checked", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let function = kernel(gpu.load(PTX), "crash");
        // SAFETY: valid handles; the kernel takes no arguments.
        let launch = |grid: [u32; 3], block: [u32; 3], shared: u32| unsafe {
            let ([x, y, z], [a, b, c]) = (grid, block);
            code(sys::cuLaunchKernel(function, x, y, z, a, b, c, shared, stream, null_mut(), null_mut()))
        };
        assert_eq!(launch([1; 3], [1025, 1, 1], 0), 1);
        assert_eq!(launch([1; 3], [32, 32, 2], 0), 1);
        assert_eq!(launch([1; 3], [1, 1, 65], 0), 1);
        assert_eq!(launch([1, 65536, 1], [1; 3], 0), 1);
        assert_eq!(launch([0, 1, 1], [1; 3], 0), 1);
        assert_eq!(launch([1; 3], [1; 3], 49153), 1);
        let shared = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: valid handles.
        unsafe {
            assert_eq!(code(sys::cuFuncSetAttribute(function, shared, 232_449)), 1);
            check(sys::cuFuncSetAttribute(function, shared, 232_448));
        }
        assert_eq!(launch([1; 3], [1; 3], 232_448), 0);
        let poke_kernel = kernel(gpu.load(PTX), "poke");
        // SAFETY: that the arguments are missing is what the driver must find.
        let missing =
            unsafe { sys::cuLaunchKernel(poke_kernel, 1, 1, 1, 1, 1, 1, 0, stream, null_mut(), null_mut()) };
        assert_eq!(code(missing), 1);
        assert_eq!(driver.pending(), 1, "only the legal launch was queued");
    });
}

#[test]
fn clusters_and_cooperative_launches_are_checked_and_recorded() {
    Fake::new().run("clusters_and_cooperative_launches_are_checked_and_recorded", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let text = PTX.replace("crash", "quiet");
        let function = kernel(gpu.load(&text), "quiet");
        // SAFETY: plain numbers and a union of plain bytes.
        let launch = |grid: u32, cluster: u32| unsafe {
            let mut attribute: sys::CUlaunchAttribute = std::mem::zeroed();
            attribute.id = Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
            attribute.value.clusterDim =
                sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: cluster, y: 1, z: 1 };
            let config = sys::CUlaunchConfig {
                gridDimX: grid,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 64,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: stream,
                attrs: &raw mut attribute,
                numAttrs: 1,
            };
            code(sys::cuLaunchKernelEx(&raw const config, function, null_mut(), null_mut()))
        };
        assert_eq!((launch(8, 4), launch(6, 4), launch(16, 16)), (0, 1, 912));
        // SAFETY: valid handles.
        unsafe {
            check(sys::cuFuncSetAttribute(
                function,
                Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
                1,
            ));
            assert_eq!(launch(16, 16), 0);
            let mut blocks = 0;
            check(sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, 1024, 0));
            assert_eq!(blocks, 2);
            let cooperative = |grid: u32| {
                code(sys::cuLaunchCooperativeKernel(function, grid, 1, 1, 1024, 1, 1, 0, stream, null_mut()))
            };
            assert_eq!((cooperative(264), cooperative(265)), (0, 720));
            check(sys::cuStreamSynchronize(stream));
        }
        let launches = driver.launches();
        assert_eq!(launches.iter().map(|launch| launch.cluster[0]).collect::<Vec<_>>(), [4, 16, 1]);
        assert_eq!(launches[0].attributes[0].0, 4);
        assert!(launches[2].cooperative);
    });
}

#[test]
fn variables_of_modules_are_memory() {
    Fake::new().run("variables_of_modules_are_memory", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let module = gpu.load(PTX);
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: valid handles and pointers.
        unsafe {
            check(sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, c"counter".as_ptr()));
            assert_eq!((bytes, words(address, 1, stream)[0]), (4, 0));
            check(sys::cuMemsetD32Async(address, 11, 1, stream));
            assert_eq!(words(address, 1, stream), [11]);
            assert_eq!(driver.live()["device_memory"], 0, "not the caller's to free");
            assert_eq!(code(sys::cuMemFree_v2(address)), 1);
            check(sys::cuModuleUnload(module));
            check(sys::cuMemsetD32Async(address, 11, 1, stream));
            assert_eq!(code(sys::cuStreamSynchronize(stream)), 700);
        }
    });
}

#[test]
fn tensor_maps_are_checked_and_keep_their_tensor() {
    Fake::new().run("tensor_maps_are_checked_and_keep_their_tensor", |_| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let data = gpu.alloc(64 * 64 * 2);
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let mut encode = |address: u64, stride: u64, inner: u32| {
            let (dims, strides, boxes, steps) = ([64u64, 64], [stride], [inner, 64], [1u32, 1]);
            // SAFETY: as many numbers as the rank says.
            code(unsafe {
                sys::cuTensorMapEncodeTiled(
                    &raw mut map,
                    sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                    2,
                    address as *mut c_void,
                    dims.as_ptr(),
                    strides.as_ptr(),
                    boxes.as_ptr(),
                    steps.as_ptr(),
                    sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                    sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
                    sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
                    sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
                )
            })
        };
        assert_eq!(encode(data + 8, 128, 64), 1, "address of 8 bytes");
        assert_eq!(encode(data, 120, 64), 1, "stride of 8 bytes");
        assert_eq!(encode(data, 128, 65), 1, "row not of 16 bytes");
        assert_eq!(encode(data, 128, 72), 1, "row longer than the swizzle");
        assert_eq!(encode(data, 128, 64), 0);
        let ptx = ".version 8.0\n.target sm_90\n.address_size 64\n\
                   .visible .entry tiled(.param .align 64 .b8 map[128]) { ret; }\n";
        let function = kernel(gpu.load(ptx), "tiled");
        let mut params: [*mut c_void; 1] = [(&raw mut map).cast()];
        // SAFETY: one argument; that the tensor dies too early is what the driver must find.
        unsafe {
            for expected in [0, 700] {
                let params = params.as_mut_ptr();
                check(sys::cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut()));
                if expected != 0 {
                    check(sys::cuMemFree_v2(data));
                }
                assert_eq!(code(sys::cuStreamSynchronize(stream)), expected);
            }
        }
    });
}

/// Rows of pitched memory go both ways, and what lies between them stays.
#[test]
fn copies_of_rows() {
    Fake::new().run("copies_of_rows", |_| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let (mut address, mut pitch) = (0, 0);
        let (host, mut back) = ([1u32, 2, 3, 4, 5, 6], [0u32; 6]);
        // SAFETY: valid pointers, and room for the rows.
        unsafe {
            check(sys::cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 12, 2, 4));
            assert_eq!(pitch, 512);
            check(sys::cuMemsetD32Async(address, 9, 256, stream));
            let mut copy = sys::CUDA_MEMCPY2D {
                srcXInBytes: 0,
                srcY: 0,
                srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
                srcHost: host.as_ptr().cast(),
                srcDevice: 0,
                srcArray: null_mut(),
                srcPitch: 12,
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
                dstHost: null_mut(),
                dstDevice: address,
                dstArray: null_mut(),
                dstPitch: pitch,
                WidthInBytes: 12,
                Height: 2,
            };
            check(sys::cuMemcpy2DAsync_v2(&raw const copy, stream));
            assert_eq!(words(address + 8, 2, stream), [3, 9]);
            assert_eq!(words(address + 512, 4, stream), [4, 5, 6, 9]);
            copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
            (copy.srcDevice, copy.srcPitch) = (address, pitch);
            (copy.dstHost, copy.dstPitch) = (back.as_mut_ptr().cast(), 12);
            check(sys::cuMemcpy2D_v2(&raw const copy));
        }
        assert_eq!(back, host);
    });
}
