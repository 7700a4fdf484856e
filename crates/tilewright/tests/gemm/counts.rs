//! What kernels ask of the memories: banks of shared memory, sectors of global memory.

use Storage::{ColumnMajor, RowMajor};
use tilewright::device::{Device, Options};
use tilewright::gemm::{Operands, Prepared};
use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::{
    Contiguous, Launch, Operand, Placement, Problem, Recipe, Side, Storage, Types, gemv, repack, simt,
};
use tilewright_sim::Counts;
use tilewright_sim::count::SiteRow;

/// Runs a recipe on zeros with everything counted.
fn count(problem: &Problem, recipe: &Recipe) -> Counts {
    let device = Device::simulator_with(Options { count: true, ..Options::default() });
    let zeros = |elements: u32, element: Element| {
        device.upload(&vec![0u8; (elements * element.bytes()) as usize]).unwrap()
    };
    let types = problem.types;
    let (a, b) = (zeros(problem.m * problem.k, types.a), zeros(problem.k * problem.n, types.b));
    let d = zeros(problem.m * problem.n, types.d);
    let workspace = device.upload(&vec![0u8; usize::try_from(recipe.workspace).unwrap().max(1)]).unwrap();
    let operands = Operands::new()
        .with(Operand::A, &a)
        .with(Operand::B, &b)
        .with(Operand::D, &d)
        .with(Operand::Workspace, &workspace);
    let reports = Prepared::new(&device, recipe, &operands).unwrap().run().unwrap();
    reports[0].clone().expect_clean().unwrap().simulation().unwrap().counts.clone()
}

fn stored(m: u32, n: u32, k: u32, element: Element, a: Storage, b: Storage) -> Problem {
    let problem = Problem::new(m, n, k, Types::of(element));
    Problem {
        a: Placement::dense(a, m as usize, k as usize),
        b: Placement::dense(b, k as usize, n as usize),
        ..problem
    }
}

fn h200() -> &'static Gpu {
    Gpu::named("h200").unwrap()
}

/// Every access, for the message of a test that fails.
fn sites(counts: &Counts) -> String {
    let line = |site: &SiteRow| {
        format!(
            "{} x {}: {} conflicts, {} excess sectors\n",
            site.requests, site.instruction, site.bank_conflicts, site.excess_sectors
        )
    };
    counts.sites().iter().map(line).collect()
}

#[test]
fn the_cuda_cores_read_and_turn_factors_without_bank_conflicts() {
    let config: simt::Config = "simt 128x128x16 8x8 s3 g8 p1".parse().unwrap();
    for (a, b) in [(RowMajor, ColumnMajor), (ColumnMajor, RowMajor)] {
        let problem = stored(128, 128, 32, Element::F32, a, b);
        let counts = count(&problem, &config.recipe(&problem, h200()).unwrap());
        assert_eq!(counts.shared.conflicts, 0, "{}", sites(&counts));
    }
}

#[test]
fn copies_turn_factors_without_bank_conflicts() {
    for element in [Element::E4M3, Element::BF16, Element::F32, Element::F64] {
        let problem = stored(8, 128, 128, element, RowMajor, RowMajor);
        let copy = repack(&problem, Side::B, Contiguous::K, 0);
        let launches: Vec<Launch> = copy.launch.into_iter().collect();
        let counts = count(&problem, &Recipe { launches, workspace: copy.bytes, zeroed: 0 });
        assert_eq!(counts.shared.conflicts, 0, "{element}: {}", sites(&counts));
        let excess: u64 = counts.sites().iter().map(|site| site.excess_sectors).sum();
        assert_eq!(excess, 0, "{element}: {}", sites(&counts));
    }
}

#[test]
fn weights_stream_in_whole_sectors_and_without_bank_conflicts() {
    for b in [ColumnMajor, RowMajor] {
        let problem = stored(8, 128, 1024, Element::BF16, RowMajor, b);
        let config: gemv::Config = "gemv t1 w4 s4 p1".parse().unwrap();
        let counts = count(&problem, &config.recipe(&problem, h200()).unwrap());
        // What happens once for each step; the sums of the warps, which are put down and added once, may meet in a bank.
        let repeated = |site: &&SiteRow| site.requests > 100 || site.instruction.starts_with("cp.async");
        let stream = counts.sites().iter().filter(repeated);
        let waste: u64 = stream.map(|site| site.excess_sectors + site.bank_conflicts).sum();
        assert_eq!(waste, 0, "{}", sites(&counts));
    }
}
