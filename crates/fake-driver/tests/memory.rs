//! Pools, pinned, registered and managed memory, and what addresses say, under the fake driver.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(target_os = "linux")]

mod common;

use std::ffi::c_void;
use std::ptr::null_mut;

use common::{Gpu, check, code, words};
use cudarc::driver::sys::{self, CUmemPool_attribute as PoolAttribute, CUpointer_attribute as Attribute};
use tilewright_fake_driver::Fake;

/// An attribute of an address, of at most 8 bytes.
fn attribute(attribute: Attribute, address: u64) -> (u32, u64) {
    let mut value = 0u64;
    // SAFETY: no attribute asked for here has more bytes.
    let result = unsafe { sys::cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
    (code(result), value)
}

fn pool_bytes(pool: sys::CUmemoryPool, attribute: PoolAttribute) -> u64 {
    let mut value = 0u64;
    // SAFETY: the attributes asked for here have 8 bytes.
    check(unsafe { sys::cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) });
    value
}

#[test]
fn pools_have_limits_and_accounts() {
    Fake::new().run("pools_have_limits_and_accounts", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let (mut pool, mut first, mut second) = (null_mut(), 0, 0);
        // SAFETY: plain numbers, for which zero is "nothing"; then valid pointers and handles.
        unsafe {
            let mut properties: sys::CUmemPoolProps = std::mem::zeroed();
            properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
            properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
            properties.maxSize = 4096;
            check(sys::cuMemPoolCreate(&raw mut pool, &raw const properties));
            check(sys::cuMemAllocFromPoolAsync(&raw mut first, 4000, pool, stream));
            assert_eq!(code(sys::cuMemAllocFromPoolAsync(&raw mut second, 100, pool, stream)), 2);
            assert_eq!(pool_bytes(pool, PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4000);
            assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, first), (0, pool as u64));
            check(sys::cuMemFreeAsync(first, stream));
            assert_eq!(code(sys::cuMemFreeAsync(first, stream)), 1, "freed twice");
            check(sys::cuStreamSynchronize(stream));
            assert_eq!(pool_bytes(pool, PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
            assert_eq!(pool_bytes(pool, PoolAttribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4000);
            let mut threshold = 1u64 << 20;
            let release = PoolAttribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            check(sys::cuMemPoolSetAttribute(pool, release, (&raw mut threshold).cast()));
            assert_eq!(pool_bytes(pool, release), 1 << 20);
            check(sys::cuMemPoolDestroy(pool));
            assert_eq!(code(sys::cuMemPoolDestroy(pool)), 400);
        }
        assert_eq!(driver.live()["pools"], 0);
    });
}

#[test]
fn pools_open_their_memory_to_other_devices() {
    Fake::new().run("pools_open_their_memory_to_other_devices", |_| {
        let first = Gpu::new(0);
        let (mut pool, mut data) = (null_mut(), 0);
        let stream = first.stream();
        let access = sys::CUmemAccessDesc {
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: 1,
            },
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: valid pointers and handles.
        unsafe {
            check(sys::cuDeviceGetDefaultMemPool(&raw mut pool, 0));
            check(sys::cuMemPoolSetAccess(pool, &raw const access, 1));
            check(sys::cuMemAllocAsync(&raw mut data, 16, stream));
            check(sys::cuStreamSynchronize(stream));
            let second = Gpu::new(1);
            let other = second.stream();
            check(sys::cuMemsetD32Async(data, 2, 4, other));
            assert_eq!(words(data, 4, other), [2; 4]);
        }
    });
}

#[test]
fn fresh_and_freed_memory_look_like_it() {
    Fake::new().run("fresh_and_freed_memory_look_like_it", |driver| {
        let gpu = Gpu::new(0);
        let data = gpu.alloc(8);
        assert_eq!(words(data, 2, gpu.stream()), [0xCDCD_CDCD; 2]);
        let mut pinned: *mut c_void = null_mut();
        // SAFETY: the driver keeps freed host memory aside, so it can still be read here.
        unsafe {
            check(sys::cuMemHostAlloc(&raw mut pinned, 4, 0));
            assert_eq!(driver.live()["host_memory"], 1);
            check(sys::cuMemFreeHost(pinned));
            assert_eq!(*pinned.cast::<u32>(), 0xDDDD_DDDD);
            assert_eq!(code(sys::cuMemFreeHost(pinned)), 1, "freed twice");
            check(sys::cuMemFree_v2(data));
            assert_eq!(code(sys::cuMemFree_v2(data)), 1, "freed twice");
        }
        assert_ne!(gpu.alloc(8), data, "addresses are not given out again");
    });
}

#[test]
fn managed_memory_is_shared() {
    Fake::new().run("managed_memory_is_shared", |_| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let mut data = 0;
        // SAFETY: valid pointers; managed memory is host memory too.
        unsafe {
            check(sys::cuMemAllocManaged(&raw mut data, 16, 1));
            check(sys::cuMemsetD32Async(data, 7, 4, stream));
            check(sys::cuMemPrefetchAsync(data, 16, 0, stream));
            assert_eq!(code(sys::cuMemPrefetchAsync(data, 17, 0, stream)), 1);
            check(sys::cuStreamSynchronize(stream));
            assert_eq!(*(data as *const [u32; 4]), [7; 4]);
            assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, data), (0, 1));
            check(sys::cuMemFree_v2(data));
        }
    });
}

#[test]
fn registered_memory_is_pinned_until_it_is_not() {
    Fake::new().run("registered_memory_is_pinned_until_it_is_not", |driver| {
        let gpu = Gpu::new(0);
        let stream = gpu.stream();
        let data = gpu.alloc(16);
        let mut host = vec![1u32; 4];
        let start: *mut c_void = host.as_mut_ptr().cast();
        // SAFETY: valid pointers; the host memory outlives all copies.
        unsafe {
            check(sys::cuMemHostRegister_v2(start, 16, 0));
            assert_eq!(code(sys::cuMemHostRegister_v2(start.add(8), 16, 0)), 712);
            assert_eq!(driver.live()["registered_memory"], 1);
            check(sys::cuMemcpyHtoDAsync_v2(data, start, 16, stream));
            start.cast::<[u32; 4]>().write([2; 4]);
            assert_eq!(words(data, 4, stream), [2; 4], "read when the copy ran");
            check(sys::cuMemHostUnregister(start));
            assert_eq!(code(sys::cuMemHostUnregister(start)), 713);
            check(sys::cuMemcpyHtoDAsync_v2(data, start, 16, stream));
            start.cast::<[u32; 4]>().write([3; 4]);
            assert_eq!(words(data, 4, stream), [2; 4], "read when the call was made");
        }
        assert_eq!(host, [3; 4]);
    });
}

#[test]
fn addresses_tell_what_they_are() {
    Fake::new().run("addresses_tell_what_they_are", |_| {
        let first = Gpu::new(0);
        let second = Gpu::new(1);
        let data = second.alloc(100);
        assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, data + 50), (0, 1));
        assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, data + 50), (0, data));
        assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, data + 50), (0, 100));
        assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data), (0, 2));
        assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, data), (0, second.context as u64));
        assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data + 100).0, 1);
        let local = 0u32;
        assert_eq!(attribute(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw const local) as u64).0, 1);
        drop(first);
    });
}
