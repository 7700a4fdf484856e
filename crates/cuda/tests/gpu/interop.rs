//! Memory that changes hands: cudarc and DLPack.
#![allow(unsafe_code)]

use libtest_mimic::{Failed, Trial};
use tilewright_cuda::cudarc::driver::CudaContext;
use tilewright_cuda::interop::dlpack::{DataType, Element, Export, Tensor};
use tilewright_cuda::{Buffer, Context, CudaError, LaunchConfig, Stream};

use crate::ensure;
use crate::launch::load;

const SPIN: &str = include_str!("../../examples/kernels/spin.ptx");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("interop::memory_comes_from_cudarc", memory_comes_from_cudarc),
        Trial::test("interop::memory_goes_to_cudarc", memory_goes_to_cudarc),
        Trial::test("interop::memory_is_lent_by_cudarc", memory_is_lent_by_cudarc),
        Trial::test("interop::a_stream_is_shared_with_cudarc", a_stream_is_shared_with_cudarc),
        Trial::test("interop::tensors_go_around", tensors_go_around),
        Trial::test("interop::tensors_are_described", tensors_are_described),
        Trial::test("interop::a_consumer_is_waited_for", a_consumer_is_waited_for),
    ]
}

fn memory_comes_from_cudarc() -> Result<(), Failed> {
    let theirs = CudaContext::new(0)?;
    let context = Context::from_cudarc(&theirs)?;
    ensure(context == Context::new(0)?, "another context")?;
    ensure(context.to_cudarc()?.cu_ctx() == theirs.cu_ctx(), "another context for cudarc")?;
    let own = CudaContext::new_non_primary(0, 0)?;
    ensure(Context::from_cudarc(&own).is_err(), "a context that is not primary was accepted")?;
    drop(own);
    let stream = context.stream()?;
    let (one, two) = (theirs.new_stream()?, theirs.new_stream()?);
    for round in 0..20u32 {
        let mut slice = one.clone_htod(&vec![round; 1 << 20])?;
        two.memcpy_htod(&vec![round + 1; 1 << 20], &mut slice)?;
        let mut buffer = Buffer::from_cudarc(slice)?;
        ensure(buffer.len() == 1 << 20, buffer.len())?;
        ensure(stream.download(&buffer)?.iter().all(|value| *value == round + 1), "read before written")?;
        stream.fill(&mut buffer, 9)?;
        // Freed on cudarc's stream, after the fill.
        drop(buffer);
    }
    Ok(one.synchronize()?)
}

fn memory_goes_to_cudarc() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let theirs = context.to_cudarc()?;
    let (one, two) = (theirs.new_stream()?, theirs.new_stream()?);
    for round in 0..20u32 {
        let mut word = stream.alloc_zeroed::<u32>(1)?;
        spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, round, 2_000_000u32))?;
        let slice = word.into_cudarc(&one)?;
        // A stream of cudarc's that this crate was told nothing of.
        ensure(two.clone_dtoh(&slice)? == [round], "cudarc read before it was written")?;
        drop(slice);
    }
    let refused = |result: Result<_, CudaError>| match result {
        Err(CudaError::Handover { .. }) => Ok(()),
        Err(other) => Err(Failed::from(other.to_string())),
        Ok(_) => Err(Failed::from("accepted")),
    };
    if theirs.has_async_alloc() {
        refused(context.alloc::<u32>(4)?.into_cudarc(&one))?;
    }
    let mut buffer = stream.alloc_zeroed::<u32>(4)?;
    let graph = stream.capture(|| stream.fill(&mut buffer, 1))?;
    refused(buffer.into_cudarc(&one))?;
    drop(graph);
    let empty = stream.alloc::<u8>(0)?.into_cudarc(&one)?;
    ensure(empty.is_empty() && Buffer::from_cudarc(empty)?.is_empty(), "not empty")
}

fn memory_is_lent_by_cudarc() -> Result<(), Failed> {
    let theirs = CudaContext::new(0)?;
    let context = Context::from_cudarc(&theirs)?;
    let stream = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let (one, two) = (theirs.new_stream()?, theirs.new_stream()?);
    let mut slice = one.alloc_zeros::<u32>(4)?;
    for round in 1..20u32 {
        context.with_cudarc_mut(&mut slice.slice_mut(1..3), |part| {
            spin.launch(&stream, &LaunchConfig::new(1, 1), (part, round, 2_000_000u32))
        })??;
        ensure(two.clone_dtoh(&slice)? == [0, round, 0, 0], "cudarc read before it was written")?;
        let seen = context.with_cudarc(&slice.slice(..2), |part| stream.download(part))??;
        ensure(seen == [0, round], format!("{seen:?}"))?;
    }
    // What outlives the loan is refused, not run.
    let mut target = stream.alloc_zeroed::<u32>(4)?;
    let graph = context
        .with_cudarc(&slice.as_view(), |all| stream.capture(|| stream.copy(all, &mut target)))??
        .instantiate()?;
    ensure(matches!(graph.launch(&stream), Err(CudaError::Returned)), "a graph ran on memory that went back")
}

fn a_stream_is_shared_with_cudarc() -> Result<(), Failed> {
    let theirs = CudaContext::new(0)?;
    let raw = theirs.new_stream()?;
    // SAFETY: nothing is captured here.
    let stream = unsafe { Stream::from_cudarc(&raw) }?;
    let spin = load(stream.context(), SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, 5u32, 5_000_000u32))?;
    let slice = word.into_cudarc(&raw)?;
    drop(stream);
    ensure(raw.clone_dtoh(&slice)? == [5], "out of order")?;
    // SAFETY: as above.
    let per_thread = unsafe { Stream::from_cudarc(&theirs.per_thread_stream()) };
    ensure(per_thread.is_err(), "the stream of a thread was accepted")
}

fn tensors_go_around() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (stream, other) = (context.stream()?, context.stream()?);
    let values: Vec<f32> = (0..24u8).map(f32::from).collect();
    let export = Export::new(stream.upload(&values)?, &[2, 3, 4])?.for_stream(&other)?;
    // SAFETY: just made.
    let mut tensor = unsafe { Tensor::from_raw(&other, export.into_raw()?) }?;
    ensure(tensor.shape() == [2, 3, 4] && tensor.strides() == [12, 4, 1], format!("{tensor:?}"))?;
    ensure(tensor.data_type() == f32::DATA_TYPE && tensor.is_dense(), "wrong type")?;
    ensure(stream.download(tensor.as_slice::<f32>()?)? == values, "wrong contents")?;
    stream.fill(tensor.as_mut_slice::<f32>()?, 1.5)?;
    ensure(other.download(tensor.as_slice::<f32>()?)? == [1.5; 24], "not written")?;
    ensure(tensor.as_slice::<i32>().is_err(), "floats as integers")?;
    drop(tensor);
    // The form before DLPack 1, without a stream.
    let raw = Export::new(stream.upload(&values)?, &[4, 6])?.into_raw_unversioned()?;
    // SAFETY: just made.
    let tensor = unsafe { Tensor::from_raw_unversioned(&stream, raw) }?;
    ensure(stream.download(tensor.as_slice::<f32>()?)? == values, "wrong contents")
}

fn tensors_are_described() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let bytes = stream.upload(&[7u8; 64])?;
    ensure(Export::shared(&bytes, &[65]).is_err(), "more elements than there are")?;
    let export = Export::shared(&bytes, &[8, 8])?.with_type(DataType::FLOAT8_E4M3FN)?;
    ensure(export.into_raw_unversioned().is_err(), "shared memory without saying so")?;
    let export = Export::shared(&bytes, &[8, 8])?.with_type(DataType::FLOAT8_E4M3FN)?;
    // SAFETY: just made.
    let mut tensor = unsafe { Tensor::from_raw(&stream, export.into_raw()?) }?;
    ensure(tensor.data_type() == DataType::FLOAT8_E4M3FN && tensor.is_read_only(), "wrong description")?;
    ensure(stream.download(tensor.as_slice::<u8>()?)? == [7; 64], "wrong contents")?;
    ensure(tensor.as_mut_slice::<u8>().is_err(), "read-only memory to write")?;
    ensure(Export::shared(&bytes, &[8, 8])?.with_type(u16::DATA_TYPE).is_err(), "another size")?;
    // A transposed matrix is not dense, and its rows do not lie one after another; half of each row does.
    let numbers = stream.upload(&[1u16, 2, 3, 4, 5, 6])?;
    let export = Export::shared(&numbers, &[2, 3])?;
    ensure(export.with_strides(&[3, 2]).is_err(), "strides that lead outside")?;
    let export = Export::shared(&numbers, &[2, 3])?.with_strides(&[1, 2])?;
    // SAFETY: just made.
    let tensor = unsafe { Tensor::from_raw(&stream, export.into_raw()?) }?;
    ensure(tensor.as_slice::<u16>().is_err() && tensor.as_rect::<u16>().is_err(), "dense")?;
    // SAFETY: just made.
    let tensor = unsafe { Tensor::from_raw(&stream, Export::shared(&numbers, &[3, 2])?.into_raw()?) }?;
    let rect = tensor.as_rect::<u16>()?.rect(.., 1..)?;
    ensure(stream.download_2d(rect)? == [2, 4, 6], "wrong column")?;
    let pinned = context.pinned::<u8>(4)?;
    ensure(Export::shared(&pinned, &[4]).is_err(), "memory of the host as memory of the device")
}

fn a_consumer_is_waited_for() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (ours, theirs) = (context.stream()?, context.stream()?);
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    for round in 0..20u32 {
        for with_stream in [true, false] {
            let export = Export::new(ours.alloc_zeroed::<u32>(1)?, &[1])?;
            let export = if with_stream { export.for_stream(&theirs)? } else { export };
            let raw = export.into_raw()?;
            // SAFETY: just made; the consumer's own view of the memory is the tensor's.
            let mut tensor = unsafe { Tensor::from_raw(&theirs, raw) }?;
            spin.launch(&theirs, &one, (tensor.as_mut_slice::<u32>()?, 0xdead_beefu32, 1_000_000u32))?;
            drop(tensor);
            // If the memory were free by now, this would get it.
            let mut next = ours.alloc::<u32>(1)?;
            ours.fill(&mut next, round)?;
            theirs.synchronize()?;
            ensure(ours.download(&next)? == [round], "memory was given away while in use")?;
        }
    }
    Ok(())
}
