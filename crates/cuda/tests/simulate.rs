//! The kernels of the examples in the simulator: right results without a finding, in several orders of warps and blocks; and the one that
//! is meant to fault is found out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tilewright_sim::{Arg, Buffer, FindingKind, Launch, Module, Options, Report, Simulator};

const SEEDS: [u64; 3] = [1, 2, 77];

fn launch(grid: u32, block: u32) -> Launch {
    Launch { grid: [grid, 1, 1], block: [block, 1, 1], cluster: None, shared_bytes: 0 }
}

fn run(sim: &mut Simulator, ptx: &str, entry: &str, launch: &Launch, arguments: &[Arg]) -> Report {
    sim.launch(&Module::parse(ptx).unwrap(), entry, launch, arguments).unwrap()
}

fn expect_clean(report: &Report) {
    assert!(report.findings.is_empty(), "{}", report.findings[0].message);
}

fn words(sim: &mut Simulator, buffer: Buffer) -> Vec<u32> {
    sim.download(buffer).unwrap()
}

#[test]
fn saxpy() {
    for seed in SEEDS {
        let mut sim = Simulator::new(Options::with_seed(seed));
        let (x, y) = (sim.upload(&[3.0f32; 100]), sim.upload(&[1.0f32; 100]));
        let arguments = [Arg::F32(2.0), Arg::Buffer(x), Arg::Buffer(y), Arg::U32(100)];
        let ptx = include_str!("../examples/kernels/saxpy.ptx");
        expect_clean(&run(&mut sim, ptx, "saxpy", &launch(4, 32), &arguments));
        assert_eq!(sim.download::<f32>(y).unwrap(), [7.0; 100]);
    }
}

#[test]
fn spin() {
    let mut sim = Simulator::new(Options::with_seed(1));
    let word = sim.alloc(4);
    let arguments = [Arg::Buffer(word), Arg::U32(7), Arg::U32(100)];
    let ptx = include_str!("../examples/kernels/spin.ptx");
    expect_clean(&run(&mut sim, ptx, "spin", &launch(1, 1), &arguments));
    assert_eq!(words(&mut sim, word), [7]);
}

#[test]
fn reverse() {
    for seed in SEEDS {
        let mut sim = Simulator::new(Options::with_seed(seed));
        let data = sim.upload(&(0..200u32).collect::<Vec<_>>()[..]);
        let launch = Launch { shared_bytes: 800, ..launch(1, 64) };
        let ptx = include_str!("../examples/kernels/reverse.ptx");
        expect_clean(&run(&mut sim, ptx, "reverse", &launch, &[Arg::Buffer(data), Arg::U32(200)]));
        assert!(words(&mut sim, data).into_iter().eq((0..200).rev()));
    }
}

#[test]
fn neighbours() {
    for (seed, size) in SEEDS.into_iter().zip([1u32, 4, 8]) {
        let mut sim = Simulator::new(Options::with_seed(seed));
        let out = sim.alloc(64);
        let launch = Launch { cluster: Some([size, 1, 1]), ..launch(16, 32) };
        let ptx = include_str!("../examples/kernels/neighbours.ptx");
        expect_clean(&run(&mut sim, ptx, "neighbours", &launch, &[Arg::Buffer(out)]));
        let expected = (0..16).map(|block| block / size * size + (block + 1) % size);
        assert!(words(&mut sim, out).into_iter().eq(expected), "clusters of {size}");
    }
}

#[test]
fn centre() {
    for seed in SEEDS {
        let mut sim = Simulator::new(Options::with_seed(seed));
        let numbers: Vec<u32> = (0..500).map(|i| i % 7).collect();
        let (x, state) = (sim.upload(&numbers[..]), sim.upload(&[0u32; 2]));
        let arguments = [Arg::Buffer(x), Arg::Buffer(state), Arg::U32(500)];
        let ptx = include_str!("../examples/kernels/centre.ptx");
        expect_clean(&run(&mut sim, ptx, "centre", &launch(2, 256), &arguments));
        let sum: u32 = numbers.iter().sum();
        let expected = numbers.iter().map(|number| (number * 500).wrapping_sub(sum));
        assert!(words(&mut sim, x).into_iter().eq(expected));
    }
}

#[test]
fn relay() {
    for seed in SEEDS {
        let mut sim = Simulator::new(Options::with_seed(seed));
        let ptx = include_str!("../examples/kernels/relay.ptx");
        let (data, out, ended, began) = (sim.alloc(256), sim.alloc(256), sim.alloc(8), sim.alloc(8));
        let first = [Arg::Buffer(data), Arg::Buffer(ended), Arg::U32(41), Arg::U32(100), Arg::U32(64)];
        expect_clean(&run(&mut sim, ptx, "hand_over", &launch(1, 64), &first));
        let second = [Arg::Buffer(data), Arg::Buffer(out), Arg::Buffer(began), Arg::U32(64)];
        expect_clean(&run(&mut sim, ptx, "take_over", &launch(1, 64), &second));
        assert_eq!(words(&mut sim, out), [42; 64]);
    }
}

#[test]
fn crash_is_found() {
    let mut sim = Simulator::new(Options::with_seed(1));
    let report = run(&mut sim, include_str!("../examples/kernels/crash.ptx"), "crash", &launch(1, 1), &[]);
    assert!(
        report.findings.iter().any(|finding| finding.kind == FindingKind::OutOfBounds),
        "{:?}",
        report.findings
    );
}
