//! Small programs, one for each thing that the runtime does: for drivers that lack a function or fail in one.

use tilewright_cuda::{
    Buffer, ByValue, Code, Context, CudaError, DiskCache, Driver, Event, Kernel, LaunchConfig, Limit, Stream,
    StreamOptions, TensorMap,
};
use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};

use crate::{load, one};

/// A program that leaves nothing behind, and what it is called.
pub(crate) type Step = (&'static str, fn() -> Result<(), CudaError>);

/// All of them.
pub(crate) const STEPS: &[Step] = &[
    ("driver", driver),
    ("context", || start().map(drop)),
    ("limits", limits),
    ("streams", streams),
    ("events", events),
    ("host call", host_call),
    ("copies", copies),
    ("fills", fills),
    ("memory at once", memory_at_once),
    ("page-locked memory", page_locked_memory),
    ("managed memory", managed_memory),
    ("two streams", two_streams),
    ("other device", other_device),
    ("peer access", peer_access),
    ("capture", capture),
    ("capture with drops", capture_with_drops),
    ("load", || load(&start()?.0).map(drop)),
    ("cubin", cubin),
    ("launch", launch),
    ("launch with attributes", launch_with_attributes),
    ("large shared memory", large_shared_memory),
    ("occupancy", occupancy),
    ("clusters", clusters),
    ("tensor map", tensor_map),
    ("variable", variable),
];

fn start() -> Result<(Context, Stream), CudaError> {
    let context = Context::new(0)?;
    context.set_cache(DiskCache::off());
    let stream = context.stream()?;
    Ok((context, stream))
}

fn driver() -> Result<(), CudaError> {
    let driver = Driver::load()?;
    let devices = driver.devices()?;
    assert_eq!(devices.len(), 2);
    devices[0].attribute(tilewright_cuda::DeviceAttribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE).map(drop)
}

fn limits() -> Result<(), CudaError> {
    let (context, _) = start()?;
    context.set_limit(Limit::CU_LIMIT_STACK_SIZE, 4096)?;
    assert_eq!(context.limit(Limit::CU_LIMIT_STACK_SIZE)?, 4096);
    context.memory().map(drop)
}

fn streams() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let urgent = context.stream_with(&StreamOptions { blocking: true, priority: -1 })?;
    assert_eq!(urgent.priority()?, -1);
    while !stream.is_idle()? {}
    stream.synchronize()?;
    context.synchronize()
}

fn events() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let (first, last): (Event, Event) = (context.event()?, context.event()?);
    first.record(&stream)?;
    last.record(&stream)?;
    context.stream()?.wait(&last)?;
    while !last.is_done()? {}
    last.synchronize()?;
    last.since(&first).map(drop)
}

fn host_call() -> Result<(), CudaError> {
    let (_, stream) = start()?;
    stream.host_call(|| {})?;
    stream.synchronize()
}

fn copies() -> Result<(), CudaError> {
    let (_, stream) = start()?;
    let from = stream.upload(&[1u32, 2, 3])?;
    let mut to = stream.alloc::<u32>(3)?;
    stream.copy(&from, &mut to)?;
    assert_eq!(stream.download(&to)?, [1, 2, 3]);
    Ok(())
}

fn fills() -> Result<(), CudaError> {
    let (_, stream) = start()?;
    let mut bytes = stream.alloc_zeroed::<u8>(16)?;
    stream.fill(&mut bytes, 1)?;
    stream.fill(bytes.slice_mut(..8)?.cast::<u16>()?, 2)?;
    stream.fill(bytes.slice_mut(..8)?.cast::<u32>()?, 3)?;
    stream.fill(bytes.slice_mut(..8)?.cast::<u64>()?, 4 << 32)?;
    assert_eq!(stream.download(&bytes)?[3..10], [0, 4, 0, 0, 0, 1, 1]);
    Ok(())
}

fn memory_at_once() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let mut memory = context.alloc::<u32>(4)?;
    stream.fill(&mut memory, 1)
}

fn page_locked_memory() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let from = context.pinned_from(&[1u32, 2, 3])?;
    let mut to = context.pinned::<u32>(3)?;
    let mut device = stream.alloc::<u32>(3)?;
    stream.copy(&from, &mut device)?;
    stream.copy(&device, &mut to)?;
    assert_eq!(to.read()?[..], [1, 2, 3]);
    Ok(())
}

fn managed_memory() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let mut memory = context.managed::<u32>(3)?;
    memory.write()?[0] = 7;
    stream.fill(memory.as_mut_slice().slice(1..)?, 8)?;
    assert_eq!(memory.read()?[..], [7, 8, 8]);
    Ok(())
}

fn two_streams() -> Result<(), CudaError> {
    let (context, a) = start()?;
    let b = context.stream()?;
    let mut memory = a.alloc_zeroed::<u32>(4)?;
    b.fill(&mut memory, 1)?;
    a.fill(memory.slice_mut(..1)?, 2)?;
    assert_eq!(b.download(&memory)?, [2, 1, 1, 1]);
    Ok(())
}

fn other_device() -> Result<(), CudaError> {
    let (_, here) = start()?;
    let there = Context::new(1)?.stream()?;
    let from = here.upload(&[1u32, 2])?;
    let mut to = there.alloc::<u32>(2)?;
    here.copy(&from, &mut to)?;
    assert_eq!(there.download(&to)?, [1, 2]);
    Ok(())
}

fn peer_access() -> Result<(), CudaError> {
    let (here, _) = start()?;
    let there = Context::new(1)?;
    here.enable_peer_access(&there)?;
    here.enable_peer_access(&there)?;
    here.disable_peer_access(&there)
}

fn capture() -> Result<(), CudaError> {
    let (context, a) = start()?;
    let b = context.stream()?;
    let mut memory = a.alloc_zeroed::<u32>(4)?;
    let graph = a.capture(|| {
        a.fill(&mut memory, 1)?;
        b.wait_for(&a)?;
        b.fill(memory.slice_mut(1..)?, 2)?;
        a.host_call_in_graph(|| {})?;
        a.wait_for(&b)
    })?;
    assert_eq!(graph.node_count()?, 3);
    let exec = graph.instantiate()?;
    exec.upload(&b)?;
    exec.launch(&b)?;
    assert_eq!(a.download(&memory)?, [1, 2, 2, 2]);
    Ok(())
}

fn capture_with_drops() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let (mut kept, mut gone) = (stream.alloc_zeroed::<u32>(4)?, Some(stream.alloc_zeroed::<u32>(4)?));
    let mut module = Some(load(&context)?);
    let graph = stream.capture(|| {
        drop((gone.take(), module.take()));
        context.synchronize()?;
        stream.fill(&mut kept, 1)
    })?;
    graph.instantiate()?.launch(&stream)
}

#[allow(unsafe_code)]
fn cubin() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let folder = tempfile::tempdir().unwrap();
    context.set_cache(DiskCache::at(folder.path()));
    load(&context)?;
    let cache = context.cache();
    let Some(entry) = cache.list().first().and_then(|info| cache.get(&info.key)) else {
        panic!("nothing was cached")
    };
    // SAFETY: what the driver made of kernels that stay within their arguments.
    let module = unsafe { context.load(&Code::cubin(&entry.payload)) }?;
    module.kernel("idle")?.launch(&stream, &one(), ())?;
    stream.synchronize()
}

fn variable() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let mut counter = load(&context)?.global::<u32>("counter")?;
    stream.fill(&mut counter, 3)
}

fn poke(context: &Context) -> Result<Kernel, CudaError> {
    load(context)?.kernel("poke")
}

fn launch() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let mut memory = stream.alloc::<u32>(4)?;
    poke(&context)?.launch(&stream, &one(), (&mut memory, 1u32, 4u32))?;
    assert_eq!(stream.download(&memory)?, [1; 4]);
    Ok(())
}

fn launch_with_attributes() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let mut memory: Buffer<u32> = stream.alloc(4)?;
    let poke = poke(&context)?;
    poke.launch(&stream, &one().cooperative(), (&mut memory, 1u32, 4u32))?;
    poke.launch(&stream, &LaunchConfig::new(16, 1).cluster(16), (&mut memory, 1u32, 4u32))?;
    stream.synchronize()
}

fn large_shared_memory() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    load(&context)?.kernel("idle")?.launch(&stream, &one().shared(100 << 10), ())?;
    stream.synchronize()
}

fn occupancy() -> Result<(), CudaError> {
    let (context, _) = start()?;
    let idle = load(&context)?.kernel("idle")?;
    idle.blocks_per_multiprocessor(128, 0)?;
    idle.best_block(0, 0)?;
    idle.available_shared(1, 128).map(drop)
}

fn clusters() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let idle = load(&context)?.kernel("idle")?;
    idle.active_clusters(&stream, &LaunchConfig::new(16, 128).cluster(2))?;
    idle.largest_cluster(&stream, &LaunchConfig::new(16, 128)).map(drop)
}

fn tensor_map() -> Result<(), CudaError> {
    let (context, stream) = start()?;
    let kinds = load(&context)?.kernel("kinds")?;
    let tensor = stream.alloc_zeroed::<u16>(64 * 32)?;
    let spec = TensorMapSpec::new(Element::BF16, &[64, 32], SwizzleMode::B128)?;
    let map = TensorMap::new(&spec, &tensor, &[64, 32])?;
    let (read, mut written) = (stream.alloc_zeroed::<u32>(1)?, stream.alloc_zeroed::<u32>(1)?);
    let record = [0u32; 3];
    let numbers = (1u32, 2u64, 3.0f32, 4.0f64, 5u16, 6u8);
    let (word, long, single, double, half, byte) = numbers;
    kinds.launch(
        &stream,
        &one(),
        (&read, &mut written, word, long, single, double, half, byte, ByValue(&record), &map),
    )?;
    stream.synchronize()
}
