//! Occupancy: how many blocks run at once, and what shape of launch fills the device.

mod common;

use std::process::ExitCode;

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, LaunchConfig};

const SAXPY: &str = include_str!("kernels/saxpy.ptx");
const REVERSE: &str = include_str!("kernels/reverse.ptx");
const NEIGHBOURS: &str = include_str!("kernels/neighbours.ptx");

fn main() -> ExitCode {
    run(|context| {
        threads(context)?;
        shared_memory(context)?;
        clusters(context)
    })
}

fn threads(context: &Context) -> Outcome {
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    println!("`saxpy`: {:?}", saxpy.attributes());
    for block in [32, 64, 128, 256, 512, 1024] {
        let blocks = saxpy.blocks_per_multiprocessor(block, 0)?;
        println!("  blocks of {block:4} threads: {blocks:2} on a multiprocessor, {} threads", blocks * block);
        expect(blocks > 0, "none fits")?;
    }
    let (block, grid) = saxpy.best_block(0, 0)?;
    println!("  best: blocks of {block} threads, at least {grid} of them");
    let full = saxpy.blocks_per_multiprocessor(block, 0)? * context.device().multiprocessors;
    expect(grid == full, "the least number of blocks is not what fills the device")?;

    // A launch with that shape.
    let stream = context.stream()?;
    let n = block * grid;
    let x = stream.upload(&vec![1.0f32; n as usize])?;
    let mut y = stream.alloc_zeroed::<f32>(n as usize)?;
    saxpy.launch(&stream, &LaunchConfig::new(grid, block), (3.0f32, &x, &mut y, n))?;
    expect(stream.download(&y)?.iter().all(|value| *value == 3.0), "wrong results")
}

fn shared_memory(context: &Context) -> Outcome {
    let reverse = load(context, REVERSE)?.kernel("reverse")?;
    println!("`reverse`, blocks of 256 threads:");
    let mut before = u32::MAX;
    let most = u32::try_from(context.device().shared_bytes_per_block)?;
    for bytes in [0, 16 << 10, 48 << 10, most] {
        let blocks = reverse.blocks_per_multiprocessor(256, bytes)?;
        println!("  {bytes:6} bytes of shared memory each: {blocks} on a multiprocessor");
        expect(blocks >= 1 && blocks <= before, "more shared memory, yet more blocks")?;
        before = blocks;
    }
    for blocks in [1, 2, 4] {
        println!(
            "  {blocks} on a multiprocessor: up to {} bytes each",
            reverse.available_shared(blocks, 256)?
        );
    }
    Ok(())
}

fn clusters(context: &Context) -> Outcome {
    if !context.device().clusters {
        println!("clusters: not on this device");
        return Ok(());
    }
    let stream = context.stream()?;
    let neighbours = load(context, NEIGHBOURS)?.kernel("neighbours")?;
    let largest = neighbours.largest_cluster(&stream, &LaunchConfig::new(16, 128))?;
    println!("`neighbours`, blocks of 128 threads: clusters of up to {largest} blocks");
    for cluster in [2, 4, 8] {
        let config = LaunchConfig::new(16, 128).cluster(cluster);
        let active = neighbours.active_clusters(&stream, &config)?;
        println!("  clusters of {cluster}: {active} run at once");
        expect(active > 0, "none fits")?;
    }
    expect(largest >= 8, "the largest cluster is smaller than what every such device has")
}
