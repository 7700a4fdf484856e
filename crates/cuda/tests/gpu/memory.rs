//! Kinds of memory: page-locked, managed, with padded rows, from pools, of peers.

use std::mem;

use libtest_mimic::{Failed, Trial};
use tilewright_cuda::{
    Advice, Buffer, Context, CudaError, Driver, HostRect, HostRectMut, LaunchConfig, Place, Pod, PoolOptions,
};

use crate::ensure;
use crate::launch::load;

const SAXPY: &str = include_str!("../../examples/kernels/saxpy.ptx");
const SPIN: &str = include_str!("../../examples/kernels/spin.ptx");

pub(crate) fn trials() -> Vec<Trial> {
    let one_device = Driver::load().and_then(|driver| driver.device_count()).is_ok_and(|count| count < 2);
    vec![
        Trial::test("memory::the_host_waits_for_devices", the_host_waits_for_devices),
        Trial::test("memory::a_view_of_the_host_keeps_graphs_away", a_view_of_the_host_keeps_graphs_away),
        Trial::test("memory::a_vec_is_locked_and_given_back", a_vec_is_locked_and_given_back),
        Trial::test("memory::pinned_outlives_its_owner", pinned_outlives_its_owner),
        Trial::test("memory::kernels_reach_memory_of_the_host", kernels_reach_memory_of_the_host),
        Trial::test("memory::managed_moves", managed_moves),
        Trial::test("memory::rectangles_are_copied", rectangles_are_copied),
        Trial::test("memory::rectangles_are_filled", rectangles_are_filled),
        Trial::test("memory::pools_keep_and_give_back", pools_keep_and_give_back),
        Trial::test("memory::pools_have_limits", pools_have_limits),
        Trial::test("memory::peers_reach_each_other", peers_reach_each_other).with_ignored_flag(one_device),
    ]
}

fn the_host_waits_for_devices() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let (a, b) = (context.stream()?, context.stream()?);
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let one = LaunchConfig::new(1, 1);
    let mut word = context.pinned::<u32>(1)?;
    let mut copy = a.alloc_zeroed::<u32>(1)?;
    ensure(word.read()?[..] == [0], "not zeroed")?;
    for round in 1..20u32 {
        // 2 ms until it is written, straight into the memory of the host.
        spin.launch(&a, &one, (&mut word, round, 2_000_000u32))?;
        ensure(word.read()?[..] == [round], "read before written")?;
        // A device still reads (for 2 ms it cannot begin); the host must not write before.
        spin.launch(&b, &one, (&mut copy, 0u32, 2_000_000u32))?;
        b.copy(&word, &mut copy)?;
        word.write()?[0] = 12345;
        ensure(a.download(&copy)? == [round], "written before read")?;
    }
    let uploaded = context.pinned_from(&[1u16, 2, 3])?;
    ensure(a.download(&uploaded)? == [1, 2, 3], "wrong contents")?;
    let mut combined = context.pinned_for_upload::<f32>(1000)?;
    combined.write()?.fill(2.5);
    ensure(a.download(&combined)? == [2.5; 1000], "wrong contents of write-combined memory")?;
    ensure(context.pinned::<f64>(0)?.read()?.is_empty(), "not empty")
}

fn a_view_of_the_host_keeps_graphs_away() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let from = stream.upload(&[7u32; 4])?;
    let mut to = context.pinned::<u32>(4)?;
    let writes = stream.capture(|| stream.copy(&from, &mut to))?.instantiate()?;
    let mut target = stream.alloc_zeroed::<u32>(4)?;
    let reads = stream.capture(|| stream.copy(&to, &mut target))?.instantiate()?;
    let busy = |result: Result<(), CudaError>| match result {
        Err(CudaError::HostBusy { .. }) => Ok(()),
        other => Err(Failed::from(format!("{other:?}"))),
    };
    writes.launch(&stream)?;
    {
        let view = to.read()?;
        let second = to.read()?;
        ensure(view[..] == [7; 4] && second[..] == [7; 4], "the graph was not waited for")?;
        drop(view);
        busy(writes.launch(&stream))?;
        reads.launch(&stream)?;
    }
    {
        let mut view = to.write()?;
        busy(writes.launch(&stream))?;
        busy(reads.launch(&stream))?;
        view.fill(1);
    }
    reads.launch(&stream)?;
    ensure(stream.download(&target)? == [1; 4], "the graph did not see what the host wrote")?;
    writes.launch(&stream)?;
    ensure(to.read()?[..] == [7; 4], "the graph did not write")?;
    // A view that is leaked keeps everybody away for good.
    mem::forget(to.write()?);
    busy(writes.launch(&stream))?;
    ensure(matches!(to.read(), Err(CudaError::HostBusy { .. })), "readable while written")
}

fn a_vec_is_locked_and_given_back() -> Result<(), Failed> {
    use tilewright_cuda::Pinned;
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let values: Vec<u64> = (0..100_000).collect();
    let (place, capacity) = (values.as_ptr(), values.capacity());
    let mut pinned = Pinned::from_vec(&context, values)?;
    let device = stream.upload(&vec![5u64; 100])?;
    ensure(stream.download(&pinned)?.iter().copied().eq(0..100_000), "wrong contents")?;
    stream.copy(&device, pinned.slice_mut(10..110)?)?;
    let back = pinned.into_vec()?;
    ensure(back.as_ptr() == place && back.capacity() == capacity, "another vector came back")?;
    ensure(back[9] == 9 && back[10..110] == [5; 100] && back[110] == 110, "wrong contents came back")?;
    // A graph that still uses it keeps it; the owner gets a copy.
    let mut pinned = Pinned::from_vec(&context, back)?;
    let graph = stream.capture(|| stream.copy(&device, pinned.slice_mut(..100)?))?.instantiate()?;
    graph.launch(&stream)?;
    let copy = pinned.into_vec()?;
    ensure(copy.as_ptr() != place && copy[..100] == [5; 100] && copy[110] == 110, "no copy")?;
    graph.launch(&stream)?;
    stream.synchronize()?;
    ensure(context.pinned_from(&[1u8, 2])?.into_vec()? == [1, 2], "wrong copy")?;
    ensure(Pinned::from_vec(&context, Vec::<f32>::new())?.into_vec()?.is_empty(), "not empty")
}

fn pinned_outlives_its_owner() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let spin = load(&context, SPIN)?.kernel("spin")?;
    let mut word = stream.alloc_zeroed::<u32>(1)?;
    let mut target = stream.alloc::<u32>(1 << 20)?;
    for round in 0..20 {
        let source = context.pinned_from(&vec![round; 1 << 20])?;
        spin.launch(&stream, &LaunchConfig::new(1, 1), (&mut word, 1u32, 1_000_000u32))?;
        stream.copy(&source, &mut target)?;
        drop(source);
        // If it were free by now, this would take its place.
        let other = context.pinned_from(&vec![u32::MAX; 1 << 20])?;
        ensure(stream.download(&target)?.iter().all(|value| *value == round), "freed too early")?;
        drop(other);
    }
    Ok(())
}

fn kernels_reach_memory_of_the_host() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let saxpy = load(&context, SAXPY)?.kernel("saxpy")?;
    let config = LaunchConfig::cover(1000, 256);
    let x = context.pinned_from(&[3.0f32; 1000])?;
    let mut y = context.pinned_from(&[1.0f32; 1000])?;
    saxpy.launch(&stream, &config, (2.0f32, &x, &mut y, 1000u32))?;
    ensure(y.read()?.iter().all(|value| *value == 7.0), "wrong result in page-locked memory")?;
    if !context.device().concurrent_managed {
        return ensure(context.managed::<f32>(1).is_err(), "managed memory without concurrent access");
    }
    let mut z = context.managed::<f32>(1000)?;
    z.write()?.fill(0.5);
    saxpy.launch(&stream, &config, (1.0f32, &y, &mut z, 1000u32))?;
    ensure(z.read()?.iter().all(|value| *value == 7.5), "wrong result in managed memory")
}

fn managed_moves() -> Result<(), Failed> {
    let context = Context::new(0)?;
    if !context.device().concurrent_managed {
        return Ok(());
    }
    let stream = context.stream()?;
    let mut values = context.managed::<u32>(1 << 20)?;
    ensure(values.read()?.iter().all(|value| *value == 0), "not zeroed")?;
    for advice in [
        Advice::PreferredLocation(Some(Place::Device(&context))),
        Advice::AccessedBy(Place::Host, true),
        Advice::AccessedBy(Place::Host, false),
        Advice::PreferredLocation(Some(Place::Host)),
        Advice::PreferredLocation(None),
        Advice::ReadMostly(true),
        Advice::ReadMostly(false),
    ] {
        values.advise(advice)?;
    }
    for round in 1..5 {
        values.prefetch(&stream)?;
        stream.fill(&mut values, round)?;
        values.prefetch_to_host(&stream)?;
        ensure(values.read()?.iter().all(|value| *value == round), "wrong after moving")?;
        values.write()?[7] = 99;
        ensure(stream.download(values.slice(6..9)?)? == [round, 99, round], "what the host wrote is gone")?;
    }
    Ok(())
}

fn rectangles_are_copied() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let (rows, columns) = (37, 101);
    let values: Vec<u16> = (0..rows * columns).map(|n| u16::try_from(n).unwrap_or(0)).collect();
    let at = |row: usize, column: usize| values[row * columns + column];
    let mut image = context.alloc_pitched::<u16>(rows, columns)?;
    ensure(image.pitch_bytes() >= 2 * columns, image.pitch_bytes())?;
    stream.copy_2d(HostRect::new(&values, columns)?, &mut image)?;
    ensure(stream.download_2d(&image)? == values, "wrong after the way there and back")?;
    // A part into a host picture with wider rows.
    let mut picture = vec![0u16; 4 * 10];
    stream.copy_2d(image.rect(5..9, 90..97)?, HostRectMut::with_stride(&mut picture, 7, 10)?)?;
    for (n, value) in picture.iter().enumerate() {
        let (row, column) = (n / 10, n % 10);
        let expected = if column < 7 { at(row + 5, column + 90) } else { 0 };
        ensure(*value == expected, format!("row {row}, column {column}: {value}"))?;
    }
    // Padded to dense to page-locked, each a part.
    let mut dense = stream.alloc_zeroed::<u16>(20 * 16)?;
    let part = dense.as_mut_slice().as_rows(16)?.rect(2..12, 3..13)?;
    stream.copy_2d(image.rect(10..20, ..10)?, part)?;
    let mut pinned = context.pinned::<u16>(10 * 10)?;
    let from = dense.as_slice().as_rows(16)?.rect(2..12, 3..13)?;
    stream.copy_2d(from, pinned.as_mut_slice().as_rows(10)?)?;
    let found = pinned.read()?;
    ensure((0..100).all(|n| found[n] == at(10 + n / 10, n % 10)), "wrong after two copies")?;
    let wrong = stream.copy_2d(image.rect(..2, ..)?, HostRectMut::new(&mut picture, 10)?);
    ensure(
        wrong.is_err_and(|error| error.to_string().contains("found 2 rows of 101, expected 4 rows of 10")),
        "a copy of other rows was accepted",
    )?;
    let empty = context.alloc_pitched::<f32>(0, 5)?;
    ensure(stream.download_2d(&empty)?.is_empty(), "not empty")
}

fn rectangles_are_filled() -> Result<(), Failed> {
    fn check<T: Pod + PartialEq>(rows: usize, columns: usize, before: T, value: T) -> Result<(), Failed> {
        let context = Context::new(0)?;
        let stream = context.stream()?;
        let mut image = context.alloc_pitched::<T>(rows, columns)?;
        stream.fill_2d(&mut image, before)?;
        stream.fill_2d(image.rect_mut(1..rows - 1, 2..columns - 1)?, value)?;
        let found = stream.download_2d(&image)?;
        for (n, found) in found.iter().enumerate() {
            let (row, column) = (n / columns, n % columns);
            let inside = (1..rows - 1).contains(&row) && (2..columns - 1).contains(&column);
            ensure(
                *found == if inside { value } else { before },
                format!("{} bytes: row {row}, column {column}", size_of::<T>()),
            )?;
        }
        Ok(())
    }
    check(9, 30, 1u8, 2)?;
    check(9, 30, 1u16, 0xabcd)?;
    check(9, 30, 1.0f32, 2.0)?;
    check(9, 30, 1.0f64, 2.0)?;
    check(30, 9, 0x1234_5678_9abc_def0u64, 0x0fed_cba9_8765_4321)?;
    check(30, 9, 0u64, u64::MAX)
}

fn pools_keep_and_give_back() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let bytes = 64 << 20;
    let pool = context.pool(&PoolOptions::default())?;
    drop(pool.alloc::<u8>(&stream, bytes)?);
    stream.synchronize()?;
    ensure(pool.usage()?.reserved == 0, format!("kept without being asked: {:?}", pool.usage()?))?;
    pool.set_keep_bytes(u64::MAX)?;
    ensure(pool.keep_bytes()? == u64::MAX, "not set")?;
    let buffer = pool.alloc::<u8>(&stream, bytes)?;
    let usage = pool.usage()?;
    ensure(usage.used >= bytes as u64 && usage.reserved >= usage.used, format!("{usage:?}"))?;
    drop(buffer);
    stream.synchronize()?;
    let usage = pool.usage()?;
    ensure(usage.used == 0 && usage.reserved >= bytes as u64, format!("{usage:?}"))?;
    pool.trim(0)?;
    pool.reset_peaks()?;
    let usage = pool.usage()?;
    ensure(usage.reserved == 0 && usage.used_peak == 0 && usage.reserved_peak == 0, format!("{usage:?}"))?;
    // Memory outlives the pool that it is from.
    let mut buffer: Buffer<u32> = pool.alloc(&stream, 1000)?;
    drop(pool);
    stream.fill(&mut buffer, 3)?;
    ensure(stream.download(&buffer)? == [3; 1000], "the pool took its memory along")?;
    let default = context.default_pool()?;
    let before = default.keep_bytes()?;
    context.keep_freed_memory(bytes as u64)?;
    ensure(default.keep_bytes()? == bytes as u64, "not set")?;
    context.keep_freed_memory(before)?;
    context.trim()?;
    Ok(())
}

fn pools_have_limits() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let options = PoolOptions { max_bytes: Some(64 << 20), ..PoolOptions::default() };
    let pool = match context.pool(&options) {
        Err(CudaError::Unsupported { .. }) => return Ok(()),
        other => other?,
    };
    let first = pool.alloc::<u8>(&stream, 16 << 20)?;
    let second = pool.alloc::<u8>(&stream, 256 << 20);
    ensure(matches!(second, Err(CudaError::OutOfMemory { .. })), format!("beyond the limit: {second:?}"))?;
    drop(first);
    Ok(stream.synchronize()?)
}

fn peers_reach_each_other() -> Result<(), Failed> {
    let (near, far) = (Context::new(0)?, Context::new(1)?);
    let (here, there) = (near.stream()?, far.stream()?);
    let values: Vec<f32> = (0..50_000u16).map(f32::from).collect();
    let source = there.upload(&values)?;
    let mut copy = here.alloc::<f32>(values.len())?;
    here.copy(&source, &mut copy)?;
    ensure(here.download(&copy)? == values, "wrong after the copy")?;
    let staging = near.pinned_from(&values)?;
    let mut target = there.alloc::<f32>(values.len())?;
    there.copy(&staging, &mut target)?;
    ensure(there.download(&target)? == values, "wrong after the copy from the other's page-locked memory")?;
    let saxpy = load(&near, SAXPY)?.kernel("saxpy")?;
    let size = u32::try_from(values.len())?;
    let launched = saxpy.launch(&here, &LaunchConfig::cover(size, 256), (1.0f32, &source, &mut copy, size));
    match near.device().can_access(far.device())? {
        true => {
            launched?;
            let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
            ensure(here.download(&copy)? == doubled, "wrong result with memory of a peer")
        }
        false => ensure(matches!(launched, Err(CudaError::NoPeerAccess { .. })), "reached without a way"),
    }
}
