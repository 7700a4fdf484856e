//! Kinds of memory, without a GPU: who waits for whom, what lives how long, what is refused.
//!
//! The driver is a double that runs work as late as it may and faults on memory that is used after it was freed.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};

use tilewright_cuda::{
    Advice, Buffer, Code, Context, CudaError, HostRect, HostRectMut, Kernel, LaunchConfig, Pinned, Place,
    PoolOptions,
};
use tilewright_fake_driver::Fake;

/// Writes a word; the double knows it by its name.
fn poke(context: &Context) -> Kernel {
    let ptx = include_str!("../examples/kernels/spin.ptx").replace("spin", "poke");
    // SAFETY: it writes the words it is given.
    let module = unsafe { context.load(&Code::ptx(&ptx).without_cache()) }.unwrap();
    module.kernel("poke").unwrap()
}

#[test]
fn the_host_waits_for_devices() {
    Fake::new().run("the_host_waits_for_devices", |driver| {
        {
            let context = Context::new(0).unwrap();
            let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
            let poke = poke(&context);
            let mut word = context.pinned::<u32>(2).unwrap();
            let mut copy = a.alloc_zeroed::<u32>(2).unwrap();
            assert_eq!(word.read().unwrap()[..], [0, 0]);
            poke.launch(&a, &LaunchConfig::new(1, 1), (&mut word, 7u32, 2u32)).unwrap();
            assert_eq!(word.read().unwrap()[..], [7, 7], "read before written");
            b.copy(&word, &mut copy).unwrap();
            word.write().unwrap().fill(9);
            assert_eq!(a.download(&copy).unwrap(), [7, 7], "written before read");
            // Dropped with a copy pending that reads it.
            b.copy(&word, &mut copy).unwrap();
            drop(word);
            assert_eq!(a.download(&copy).unwrap(), [9, 9], "freed before read");
            let combined = context.pinned_for_upload::<u64>(3).unwrap();
            assert_eq!(a.download(&combined).unwrap(), [0; 3]);
            assert!(context.pinned::<u32>(usize::MAX).is_err());
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn a_view_of_the_host_keeps_graphs_away() {
    Fake::new().run("a_view_of_the_host_keeps_graphs_away", |driver| {
        let context = Context::new(0).unwrap();
        let stream = context.stream().unwrap();
        let from = stream.upload(&[7u32; 4]).unwrap();
        let mut to = context.pinned::<u32>(4).unwrap();
        let writes = stream.capture(|| stream.copy(&from, &mut to)).unwrap().instantiate().unwrap();
        let mut target = stream.alloc_zeroed::<u32>(4).unwrap();
        let reads = stream.capture(|| stream.copy(&to, &mut target)).unwrap().instantiate().unwrap();
        let busy = |result| assert!(matches!(result, Err(CudaError::HostBusy { .. })), "{result:?}");
        writes.launch(&stream).unwrap();
        {
            let (first, second) = (to.read().unwrap(), to.read().unwrap());
            assert_eq!(first[..], [7; 4], "the graph was not waited for");
            drop(first);
            busy(writes.launch(&stream));
            reads.launch(&stream).unwrap();
            assert_eq!(second[..], [7; 4]);
        }
        {
            let mut view = to.write().unwrap();
            busy(writes.launch(&stream));
            busy(reads.launch(&stream));
            view.fill(1);
        }
        reads.launch(&stream).unwrap();
        assert_eq!(stream.download(&target).unwrap(), [1; 4]);
        mem::forget(to.write().unwrap());
        busy(writes.launch(&stream));
        busy(to.read().map(drop));
        assert_eq!(driver.faults(), [""; 0]);
    });
}

/// A graph that another thread launches again and again never writes while the host looks.
#[test]
fn a_view_of_the_host_is_stable_beside_launching_threads() {
    Fake::new().eager().run("a_view_of_the_host_is_stable_beside_launching_threads", |_| {
        let context = Context::new(0).unwrap();
        let stream = context.stream().unwrap();
        let mut words = context.pinned::<u32>(64).unwrap();
        let ready = stream.capture(|| stream.fill(&mut words, 1)).unwrap().instantiate().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let launcher = scope.spawn(|| {
                let mut launched = 0;
                while !done.load(Ordering::Relaxed) || launched == 0 {
                    match ready.launch(&stream) {
                        Ok(()) => launched += 1,
                        Err(CudaError::HostBusy { .. }) => std::thread::yield_now(),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
            for round in 0..2000 {
                let mut view = words.write().unwrap();
                view.fill(round + 2);
                std::thread::yield_now();
                assert!(view.iter().all(|word| *word == round + 2), "written under the eyes of the host");
            }
            done.store(true, Ordering::Relaxed);
            launcher.join().unwrap();
        });
    });
}

#[test]
fn a_vec_is_locked_and_given_back() {
    Fake::new().run("a_vec_is_locked_and_given_back", |driver| {
        {
            let context = Context::new(0).unwrap();
            let stream = context.stream().unwrap();
            let mut values = Vec::with_capacity(2000);
            values.extend(0..1000u64);
            let (place, capacity) = (values.as_ptr(), values.capacity());
            let mut pinned = Pinned::from_vec(&context, values).unwrap();
            let fives = stream.upload(&[5u64; 10]).unwrap();
            stream.copy(&fives, pinned.slice_mut(10..20).unwrap()).unwrap();
            let back = pinned.into_vec().unwrap();
            assert_eq!((back.as_ptr(), back.capacity(), back.len()), (place, capacity, 1000));
            assert_eq!(back[9..21], [9, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 20]);
            let mut pinned = Pinned::from_vec(&context, back).unwrap();
            let graph = stream
                .capture(|| stream.copy(&fives, pinned.slice_mut(..10)?))
                .and_then(|graph| graph.instantiate())
                .unwrap();
            graph.launch(&stream).unwrap();
            let copy = pinned.into_vec().unwrap();
            assert_ne!(copy.as_ptr(), place, "the graph still uses it");
            assert_eq!(copy[..10], [5; 10]);
            graph.launch(&stream).unwrap();
            stream.synchronize().unwrap();
            // Dropped without being given back, with a copy pending.
            let mut pinned = Pinned::from_vec(&context, vec![0u64; 10]).unwrap();
            stream.copy(&fives, &mut pinned).unwrap();
            drop(pinned);
            assert_eq!(context.pinned_from(&[1u8, 2]).unwrap().into_vec().unwrap(), [1, 2]);
            assert!(Pinned::from_vec(&context, Vec::<f32>::new()).unwrap().into_vec().unwrap().is_empty());
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn a_vec_that_cannot_be_locked_is_an_error() {
    Fake::new().fail("cuMemHostRegister_v2", 0, 1).run("a_vec_that_cannot_be_locked_is_an_error", |driver| {
        let context = Context::new(0).unwrap();
        let error = Pinned::from_vec(&context, vec![1u8; 100]).unwrap_err();
        assert_eq!(error.code(), Some(1), "{error}");
        assert_eq!(driver.faults(), [""; 0]);
    });
}

#[test]
fn managed_memory_moves() {
    let names = ["cuMemPrefetchAsync_v2", "cuMemAdvise_v2"];
    // Also with a driver from before CUDA 12.2.
    for (missing, eager) in [(&names[..0], false), (&names[..], true)] {
        let fake = Fake::new().without(missing);
        let fake = if eager { fake.eager() } else { fake };
        fake.run("managed_memory_moves", |driver| {
            let context = Context::new(0).unwrap();
            let stream = context.stream().unwrap();
            let mut values = context.managed::<u32>(100).unwrap();
            assert_eq!(values.read().unwrap()[..], [0; 100]);
            for advice in [
                Advice::PreferredLocation(Some(Place::Device(&context))),
                Advice::AccessedBy(Place::Host, true),
                Advice::PreferredLocation(None),
                Advice::ReadMostly(true),
            ] {
                values.advise(advice).unwrap();
            }
            values.prefetch(&stream).unwrap();
            stream.fill(values.slice_mut(..50).unwrap(), 3).unwrap();
            values.prefetch_to_host(&stream).unwrap();
            assert_eq!(values.read().unwrap()[48..52], [3, 3, 0, 0]);
            values.write().unwrap()[0] = 8;
            assert_eq!(stream.download(values.slice(..2).unwrap()).unwrap(), [8, 3]);
            assert_eq!(driver.faults(), [""; 0]);
        });
    }
}

#[test]
fn rectangles_are_copied_and_filled() {
    Fake::new().run("rectangles_are_copied_and_filled", |driver| {
        let context = Context::new(0).unwrap();
        let (stream, other) = (context.stream().unwrap(), context.stream().unwrap());
        let values: Vec<u16> = (0..600).collect();
        let mut image = context.alloc_pitched::<u16>(20, 30).unwrap();
        stream.copy_2d(HostRect::new(&values, 30).unwrap(), &mut image).unwrap();
        assert_eq!(other.download_2d(&image).unwrap(), values);
        let mut picture = vec![0u16; 4 * 10];
        let target = HostRectMut::with_stride(&mut picture, 7, 10).unwrap();
        stream.copy_2d(image.rect(5..9, 20..27).unwrap(), target).unwrap();
        for (n, value) in picture.iter().enumerate() {
            let (row, column) = (n / 10, n % 10);
            let expected = if column < 7 { values[(row + 5) * 30 + column + 20] } else { 0 };
            assert_eq!(*value, expected, "row {row}, column {column}");
        }
        // Padded to dense to page-locked, each a part, each on another stream.
        let mut dense = stream.alloc_zeroed::<u16>(20 * 16).unwrap();
        let part = dense.as_mut_slice().as_rows(16).unwrap().rect(2..12, 3..13).unwrap();
        stream.copy_2d(image.rect(10..20, ..10).unwrap(), part).unwrap();
        let mut pinned = context.pinned::<u16>(100).unwrap();
        let from = dense.as_slice().as_rows(16).unwrap().rect(2..12, 3..13).unwrap();
        other.copy_2d(from, pinned.as_mut_slice().as_rows(10).unwrap()).unwrap();
        let found = pinned.read().unwrap().to_vec();
        assert!((0..100).all(|n| found[n] == values[(10 + n / 10) * 30 + n % 10]), "{found:?}");
        let narrow =
            stream.copy_2d(image.rect(..2, ..).unwrap(), HostRectMut::new(&mut picture, 10).unwrap());
        assert!(narrow.unwrap_err().to_string().contains("found 2 rows of 30, expected 4 rows of 10"));
        // Eight bytes whose halves differ, in tall and in wide rectangles.
        for (rows, columns) in [(9, 4), (4, 9)] {
            let mut long = context.alloc_pitched::<u64>(rows, columns).unwrap();
            stream.fill_2d(&mut long, u64::MAX).unwrap();
            stream.fill_2d(long.rect_mut(1.., 1..3).unwrap(), 0x0123_4567_89ab_cdef).unwrap();
            for (n, value) in stream.download_2d(&long).unwrap().into_iter().enumerate() {
                let inside = n / columns >= 1 && (1..3).contains(&(n % columns));
                assert_eq!(value, if inside { 0x0123_4567_89ab_cdef } else { u64::MAX });
            }
        }
        assert_eq!(driver.faults(), [""; 0]);
    });
}

#[test]
fn memory_outlives_its_pool() {
    Fake::new().memory(1 << 30).run("memory_outlives_its_pool", |driver| {
        {
            let context = Context::new(0).unwrap();
            let stream = context.stream().unwrap();
            let pool = context.pool(&PoolOptions { keep_bytes: 1 << 20, ..PoolOptions::default() }).unwrap();
            assert_eq!(pool.keep_bytes().unwrap(), 1 << 20);
            let mut buffer: Buffer<u32> = pool.alloc(&stream, 1000).unwrap();
            assert!(pool.usage().unwrap().used >= 4000);
            drop(pool);
            stream.fill(&mut buffer, 3).unwrap();
            assert_eq!(stream.download(&buffer).unwrap(), [3; 1000]);
            context.keep_freed_memory(123).unwrap();
            assert_eq!(context.default_pool().unwrap().keep_bytes().unwrap(), 123);
            let error = stream.alloc::<u8>(2 << 30).unwrap_err();
            assert!(
                matches!(error, CudaError::OutOfMemory { .. }) && error.remedy().contains("Context::trim")
            );
            context.trim().unwrap();
            assert!(
                context.pool(&PoolOptions::default()).unwrap().alloc::<u8>(&stream, 0).unwrap().is_empty()
            );
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn peers_reach_each_other() {
    Fake::new().run("peers_reach_each_other", |driver| {
        let (near, far) = (Context::new(0).unwrap(), Context::new(1).unwrap());
        let (here, there) = (near.stream().unwrap(), far.stream().unwrap());
        let source = there.upload(&[1u32, 2, 3, 4, 5, 6]).unwrap();
        let mut copy = here.alloc::<u32>(6).unwrap();
        here.copy(&source, &mut copy).unwrap();
        assert_eq!(here.download(&copy).unwrap(), [1, 2, 3, 4, 5, 6]);
        // Page-locked memory of one context, used by the other.
        let staging = near.pinned_from(&[9u32; 6]).unwrap();
        let mut target = there.alloc::<u32>(6).unwrap();
        there.copy(&staging, &mut target).unwrap();
        assert_eq!(there.download(&target).unwrap(), [9; 6]);
        // Rows from one device to the other.
        let columns = source.as_slice().as_rows(3).unwrap().rect(.., 1..).unwrap();
        let mut padded = near.alloc_pitched::<u32>(2, 2).unwrap();
        here.copy_2d(columns, &mut padded).unwrap();
        assert_eq!(here.download_2d(&padded).unwrap(), [2, 3, 5, 6]);
        // A kernel here writes memory of a pool there; access is given on the way.
        let mut words = there.alloc_zeroed::<u32>(2).unwrap();
        poke(&near).launch(&here, &LaunchConfig::new(1, 1), (&mut words, 5u32, 2u32)).unwrap();
        assert_eq!(there.download(&words).unwrap(), [5, 5]);
        let own = far.pool(&PoolOptions::default()).unwrap();
        own.share_with(&near).unwrap();
        let mut words = own.alloc::<u32>(&there, 1).unwrap();
        poke(&near).launch(&here, &LaunchConfig::new(1, 1), (&mut words, 6u32, 1u32)).unwrap();
        assert_eq!(there.download(&words).unwrap(), [6]);
        near.disable_peer_access(&far).unwrap();
        assert_eq!(driver.faults(), [""; 0]);
    });
}
