//! Launches with more than a grid: blocks that wait for each other, clusters, kernels that begin early, large shared memory.

mod common;

use std::process::ExitCode;

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, LaunchConfig};

const CENTRE: &str = include_str!("kernels/centre.ptx");
const NEIGHBOURS: &str = include_str!("kernels/neighbours.ptx");
const RELAY: &str = include_str!("kernels/relay.ptx");
const REVERSE: &str = include_str!("kernels/reverse.ptx");

fn main() -> ExitCode {
    run(|context| {
        cooperative(context)?;
        large_shared_memory(context)?;
        if !context.device().clusters {
            println!("clusters and programmatic launches: not on this device");
            return Ok(());
        }
        cluster(context)?;
        programmatic(context)
    })
}

/// All blocks run at once, so they can meet in the middle of the kernel.
fn cooperative(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let centre = load(context, CENTRE)?.kernel("centre")?;
    let blocks = centre.blocks_per_multiprocessor(256, 0)? * context.device().multiprocessors;
    let n = blocks * 256 - 100;
    let numbers: Vec<u32> = (0..n).map(|i| i % 7).collect();
    let mut x = stream.upload(&numbers)?;
    let mut state = stream.alloc_zeroed::<u32>(2)?;
    let config = LaunchConfig::new(blocks, 256).cooperative();
    centre.launch(&stream, &config, (&mut x, &mut state, n))?;
    let sum = numbers.iter().fold(0u32, |sum, number| sum.wrapping_add(*number));
    let results = stream.download(&x)?;
    let right = |(result, number): (&u32, &u32)| *result == number.wrapping_mul(n).wrapping_sub(sum);
    expect(results.iter().zip(&numbers).all(right), "wrong results")?;
    println!("cooperative: {blocks} blocks met in the middle, the sum is {sum}");
    // One block more than there is room for would wait for ever; it is refused.
    let config = LaunchConfig::new(blocks + 1, 256).cooperative();
    let refused = centre.launch(&stream, &config, (&mut x, &mut state, n));
    println!("  one more: {}", refused.err().ok_or("accepted")?);
    Ok(())
}

/// Shared memory beyond what a device gives without asking is asked for.
fn large_shared_memory(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let reverse = load(context, REVERSE)?.kernel("reverse")?;
    let bytes = u32::try_from(context.device().shared_bytes_per_block)?;
    let n = bytes / 4;
    let mut data = stream.upload(&(0..n).collect::<Vec<u32>>())?;
    reverse.launch(&stream, &LaunchConfig::new(1, 1024).shared(bytes), (&mut data, n))?;
    let turned = stream.download(&data)?;
    expect(turned.iter().rev().copied().eq(0..n), "wrong order")?;
    println!("shared memory: {bytes} bytes for one block");
    Ok(())
}

/// Blocks of a cluster read each other's shared memory.
fn cluster(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let neighbours = load(context, NEIGHBOURS)?.kernel("neighbours")?;
    for size in [1, 2, 4, 8, 16] {
        let mut out = stream.alloc_zeroed::<u32>(32)?;
        neighbours.launch(&stream, &LaunchConfig::new(32, 32).cluster(size), (&mut out,))?;
        let expected = (0..32).map(|block| block / size * size + (block + 1) % size);
        expect(stream.download(&out)?.into_iter().eq(expected), "a block read from the wrong neighbour")?;
        println!("cluster of {size}: every block read its neighbour's shared memory");
    }
    Ok(())
}

/// The second kernel is on the device before the first has ended, and waits itself for what it needs.
fn programmatic(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let relay = load(context, RELAY)?;
    let (hand_over, take_over) = (relay.kernel("hand_over")?, relay.kernel("take_over")?);
    let n = 256;
    let mut data = stream.alloc_zeroed::<u32>(n as usize)?;
    let mut out = stream.alloc_zeroed::<u32>(n as usize)?;
    let (mut ended, mut began) = (stream.alloc_zeroed::<u64>(1)?, stream.alloc_zeroed::<u64>(1)?);
    for early in [false, true] {
        let config = LaunchConfig::new(1, n);
        let second = if early { config.programmatic() } else { config };
        hand_over.launch(&stream, &config, (&mut data, &mut ended, 41u32, 3_000_000u32, n))?;
        take_over.launch(&stream, &second, (&data, &mut out, &mut began, n))?;
        expect(stream.download(&out)?.iter().all(|value| *value == 42), "read before it was written")?;
        let (ended, began) = (stream.download(&ended)?[0], stream.download(&began)?[0]);
        let word = if early { "programmatic" } else { "plain" };
        let ahead = i128::from(ended) - i128::from(began);
        println!("{word}: the second kernel began {:.3} ms before the first ended", ahead as f64 * 1e-6);
        // Tools that look at every launch let kernels run one by one; so this is told, not demanded.
        if (ahead > 1_000_000) != early {
            println!("  not what was asked for: is a profiler or sanitizer watching?");
        }
    }
    Ok(())
}
