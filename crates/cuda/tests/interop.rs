//! Memory that changes hands, without a GPU.
//!
//! The driver is a double that runs work as late as it may and faults on memory that is used after it was freed.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tilewright_cuda::cudarc::driver::CudaContext;
use tilewright_cuda::interop::dlpack::{Export, Tensor};
use tilewright_cuda::{Buffer, Code, Context, CudaError, Kernel, LaunchConfig, Stream};
use tilewright_fake_driver::Fake;

/// Writes a word; the double knows it by its name.
fn poke(context: &Context) -> Kernel {
    let ptx = include_str!("../examples/kernels/spin.ptx").replace("spin", "poke");
    // SAFETY: it writes the words it is given.
    let module = unsafe { context.load(&Code::ptx(&ptx).without_cache()) }.unwrap();
    module.kernel("poke").unwrap()
}

#[test]
fn memory_goes_to_cudarc_and_back() {
    Fake::new().run("memory_goes_to_cudarc_and_back", |driver| {
        {
            let theirs = CudaContext::new(0).unwrap();
            let context = Context::from_cudarc(&theirs).unwrap();
            let stream = context.stream().unwrap();
            let (one, two) = (theirs.new_stream().unwrap(), theirs.new_stream().unwrap());
            let poke = poke(&context);
            for round in 0..10u32 {
                let mut slice = one.clone_htod(&[round; 100]).unwrap();
                two.memcpy_htod(&[round + 1; 100], &mut slice).unwrap();
                let mut buffer = Buffer::from_cudarc(slice).unwrap();
                assert_eq!(stream.download(&buffer).unwrap(), [round + 1; 100], "read before written");
                poke.launch(&stream, &LaunchConfig::new(1, 1), (&mut buffer, 77u32, 100u32)).unwrap();
                let slice = buffer.into_cudarc(&two).unwrap();
                assert_eq!(one.clone_dtoh(&slice).unwrap(), [77; 100], "cudarc read before it was written");
                let mut buffer = Buffer::from_cudarc(slice).unwrap();
                // Dropped with work pending: freed on cudarc's stream, after it.
                poke.launch(&stream, &LaunchConfig::new(1, 1), (&mut buffer, 1u32, 100u32)).unwrap();
            }
            let empty = stream.alloc::<u8>(0).unwrap().into_cudarc(&one).unwrap();
            assert!(empty.is_empty() && Buffer::from_cudarc(empty).unwrap().is_empty());
            let refused = |result: Result<_, CudaError>| {
                assert!(matches!(result, Err(CudaError::Handover { .. })), "{result:?}");
            };
            refused(context.alloc::<u32>(4).unwrap().into_cudarc(&one));
            let mut buffer = stream.alloc_zeroed::<u32>(4).unwrap();
            let graph = stream.capture(|| stream.fill(&mut buffer, 1)).unwrap();
            refused(buffer.into_cudarc(&one));
            drop(graph);
            let elsewhere = CudaContext::new(1).unwrap().default_stream();
            let wrong = stream.alloc::<u32>(4).unwrap().into_cudarc(&elsewhere);
            assert!(matches!(wrong, Err(CudaError::OtherDevice { .. })), "{wrong:?}");
            theirs.synchronize().unwrap();
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn memory_is_lent_by_cudarc() {
    Fake::new().run("memory_is_lent_by_cudarc", |driver| {
        let theirs = CudaContext::new(0).unwrap();
        let context = Context::from_cudarc(&theirs).unwrap();
        let stream = context.stream().unwrap();
        let poke = poke(&context);
        let (one, two) = (theirs.new_stream().unwrap(), theirs.new_stream().unwrap());
        let mut slice = one.alloc_zeros::<u32>(4).unwrap();
        for round in 1..10u32 {
            context
                .with_cudarc_mut(&mut slice.slice_mut(1..3), |part| {
                    poke.launch(&stream, &LaunchConfig::new(1, 1), (part, round, 2u32))
                })
                .unwrap()
                .unwrap();
            assert_eq!(two.clone_dtoh(&slice).unwrap(), [0, round, round, 0], "cudarc read too early");
            let mut copy = stream.alloc_zeroed::<u32>(2).unwrap();
            context.with_cudarc(&slice.slice(1..3), |part| stream.copy(part, &mut copy)).unwrap().unwrap();
            two.memcpy_htod(&[0; 4], &mut slice).unwrap();
            assert_eq!(stream.download(&copy).unwrap(), [round; 2], "cudarc wrote too early");
        }
        let mut target = stream.alloc_zeroed::<u32>(4).unwrap();
        let graph = context
            .with_cudarc(&slice.as_view(), |all| stream.capture(|| stream.copy(all, &mut target)))
            .unwrap()
            .and_then(|graph| graph.instantiate())
            .unwrap();
        assert!(matches!(graph.launch(&stream), Err(CudaError::Returned)));
        // Freed by cudarc while a read of ours is pending: after it.
        context.with_cudarc(&slice.as_view(), |all| stream.copy(all, &mut target)).unwrap().unwrap();
        drop(slice);
        stream.synchronize().unwrap();
        theirs.synchronize().unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let slice = one.alloc_zeros::<u32>(4).unwrap();
            let _ = context.with_cudarc(&slice.as_view(), |_| panic!("on purpose"));
        }));
        assert!(panicked.is_err());
        theirs.synchronize().unwrap();
        assert_eq!(driver.faults(), [""; 0]);
    });
}

#[test]
fn a_stream_is_shared_with_cudarc() {
    Fake::new().run("a_stream_is_shared_with_cudarc", |driver| {
        let theirs = CudaContext::new(0).unwrap();
        let raw = theirs.new_stream().unwrap();
        // SAFETY: nothing is captured here.
        let stream = unsafe { Stream::from_cudarc(&raw) }.unwrap();
        let mut word = stream.alloc_zeroed::<u32>(1).unwrap();
        poke(stream.context()).launch(&stream, &LaunchConfig::new(1, 1), (&mut word, 5u32, 1u32)).unwrap();
        let slice = word.into_cudarc(&raw).unwrap();
        drop(stream);
        assert_eq!(raw.clone_dtoh(&slice).unwrap(), [5]);
        // SAFETY: as above.
        let per_thread = unsafe { Stream::from_cudarc(&theirs.per_thread_stream()) };
        assert!(matches!(per_thread, Err(CudaError::Handover { .. })), "{per_thread:?}");
        assert_eq!(driver.faults(), [""; 0]);
    });
}

#[test]
fn tensors_go_around() {
    Fake::new().run("tensors_go_around", |driver| {
        {
            let context = Context::new(0).unwrap();
            let (stream, other) = (context.stream().unwrap(), context.stream().unwrap());
            let values: Vec<f32> = (0..24u8).map(f32::from).collect();
            let export = Export::new(stream.upload(&values).unwrap(), &[2, 3, 4]).unwrap();
            let raw = export.for_stream(&other).unwrap().into_raw().unwrap();
            // SAFETY: just made.
            let mut tensor = unsafe { Tensor::from_raw(&other, raw) }.unwrap();
            assert_eq!((tensor.shape(), tensor.strides()), (&[2, 3, 4][..], &[12, 4, 1][..]));
            assert_eq!(stream.download(tensor.as_slice::<f32>().unwrap()).unwrap(), values);
            stream.fill(tensor.as_mut_slice::<f32>().unwrap(), 1.5).unwrap();
            // Dropped with work of the consumer pending.
            drop(tensor);
            let word = stream.alloc_zeroed::<u32>(1).unwrap();
            let raw = Export::new(word, &[1]).unwrap().into_raw_unversioned().unwrap();
            // SAFETY: just made.
            let mut tensor = unsafe { Tensor::from_raw_unversioned(&stream, raw) }.unwrap();
            poke(&context)
                .launch(&other, &LaunchConfig::new(1, 1), (tensor.as_mut_slice::<u32>().unwrap(), 3u32, 1u32))
                .unwrap();
            assert_eq!(stream.download(tensor.as_slice::<u32>().unwrap()).unwrap(), [3]);
            let shared = stream.upload(&[1u16; 6]).unwrap();
            let export = Export::shared(&shared, &[2, 3]).unwrap();
            drop(shared);
            // SAFETY: just made.
            let mut tensor = unsafe { Tensor::from_raw(&stream, export.into_raw().unwrap()) }.unwrap();
            assert!(tensor.is_read_only() && tensor.as_mut_slice::<u16>().is_err());
            assert_eq!(stream.download(tensor.as_slice::<u16>().unwrap()).unwrap(), [1; 6]);
            // A tensor of another device is refused, and let go.
            let there = Context::new(1).unwrap().stream().unwrap();
            let raw = Export::new(there.upload(&[1u8]).unwrap(), &[1]).unwrap().into_raw().unwrap();
            // SAFETY: just made.
            let wrong = unsafe { Tensor::from_raw(&stream, raw) }.unwrap_err();
            assert!(wrong.to_string().contains("found one in CUDA device 1, expected one in CUDA device 0"));
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

/// What a library does that takes a stream and addresses.
fn foreign_copy(stream: &Stream, from: &Buffer<u32>, to: &mut Buffer<u32>) -> Result<(), CudaError> {
    use tilewright_cuda::cudarc::driver::sys;
    let (source, target, bytes) = (from.address(), to.address(), from.bytes());
    // SAFETY: copies between the memory of the arguments, on the stream that it is given.
    unsafe {
        stream.enqueue_foreign(&[from.into(), to.into()], |raw| {
            sys::cuMemcpyDtoDAsync_v2(target, source, bytes, raw).result().unwrap();
            Ok(())
        })
    }
}

#[test]
fn other_libraries_enqueue_in_order() {
    Fake::new().run("other_libraries_enqueue_in_order", |driver| {
        {
            let context = Context::new(0).unwrap();
            let (stream, other) = (context.stream().unwrap(), context.stream().unwrap());
            let poke = poke(&context);
            let mut from = stream.alloc_zeroed::<u32>(2).unwrap();
            let mut to = stream.alloc_zeroed::<u32>(2).unwrap();
            for round in 1..10u32 {
                poke.launch(&other, &LaunchConfig::new(1, 1), (&mut from, round, 2u32)).unwrap();
                foreign_copy(&stream, &from, &mut to).unwrap();
                // Too early, if the copy were not known to read it.
                poke.launch(&other, &LaunchConfig::new(1, 1), (&mut from, 0u32, 2u32)).unwrap();
                assert_eq!(other.download(&to).unwrap(), [round; 2]);
            }
            // In a graph, which keeps the memory.
            let graph = stream.capture(|| foreign_copy(&stream, &from, &mut to)).unwrap();
            drop(from);
            graph.instantiate().unwrap().launch(&stream).unwrap();
            assert_eq!(other.download(&to).unwrap(), [0; 2]);
            let elsewhere = Context::new(1).unwrap().stream().unwrap().upload(&[1u32, 2]).unwrap();
            let refused = foreign_copy(&stream, &elsewhere, &mut to);
            assert!(matches!(refused, Err(CudaError::OtherDevice { .. })), "{refused:?}");
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}
