//! Copies from device to device. With one GPU it says so, and copies inside of that.
//!
//! `cargo run --release --example peer_copies`

use std::error::Error;
use std::process::ExitCode;

use tilewright_cuda::{Context, CudaError, Driver, HostRect};

const LEN: usize = 64 << 20;

fn main() -> ExitCode {
    let contexts = match contexts() {
        Ok(contexts) => contexts,
        Err(problem) => {
            eprintln!("{problem}\n{}", problem.remedy());
            return ExitCode::from(2);
        }
    };
    if contexts.len() == 1 {
        println!("one GPU: the copies stay inside of it");
    }
    let pairs = contexts.iter().flat_map(|from| contexts.iter().map(move |to| (from, to)));
    for (from, to) in pairs.filter(|(from, to)| contexts.len() == 1 || from != to) {
        if let Err(problem) = copy(from, to) {
            eprintln!("from device {} to device {}: {problem}", from.ordinal(), to.ordinal());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn contexts() -> Result<Vec<Context>, CudaError> {
    (0..Driver::load()?.device_count()?).map(Context::new).collect()
}

fn copy(from: &Context, to: &Context) -> Result<(), Box<dyn Error>> {
    let way = match from.device().can_access(to.device())? {
        _ if from == to => "its own memory",
        true => "directly",
        false => "through the host",
    };
    let (source_stream, stream) = (from.stream()?, to.stream()?);
    let mut source = source_stream.alloc::<u32>(LEN)?;
    source_stream.fill(&mut source, 1)?;
    source_stream.copy(&[7u32, 8, 9][..], source.slice_mut(LEN - 3..)?)?;
    let mut target = stream.alloc_zeroed::<u32>(LEN)?;
    // The target's stream waits for the fill on the source's, without being told.
    let (start, end) = (to.event()?, to.event()?);
    stream.copy(&source, &mut target)?;
    start.record(&stream)?;
    for _ in 0..10 {
        stream.copy(&source, &mut target)?;
    }
    end.record(&stream)?;
    let tail = stream.download(target.slice(LEN - 4..)?)?;
    if tail != [1, 7, 8, 9] {
        return Err(format!("found {tail:?}, expected [1, 7, 8, 9]").into());
    }
    let rate = (10 * LEN * 4) as f64 / end.since(&start)?.as_secs_f64().max(1e-9) * 1e-9;
    println!("device {} to device {} ({way}): {rate:.1} GB/s", from.ordinal(), to.ordinal());
    // Rows of a picture there, columns cut out of it here.
    let mut picture = from.alloc_pitched::<u32>(2, 3)?;
    source_stream.copy_2d(HostRect::new(&[1, 2, 3, 4, 5, 6], 3)?, &mut picture)?;
    let mut cut = to.alloc_pitched::<u32>(2, 2)?;
    stream.copy_2d(picture.rect(.., 1..)?, &mut cut)?;
    let cut = stream.download_2d(&cut)?;
    if cut == [2, 3, 5, 6] { Ok(()) } else { Err(format!("columns: found {cut:?}").into()) }
}
