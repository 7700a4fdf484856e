//! What the hardware sees of the configurations of each family: the bridge from configurations to the [model](super::model).

use tilewright_hardware::{Element, Gpu, TensorKind};

use super::factor::Side;
use super::model::{Band, Split, Streamed, Tiled, Unit, Work};
use super::problem::{Placement, Problem, Types};
use super::{ampere, gemv, hopper, simt};

/// Bytes that a thread loads at a time of a factor.
fn load(placement: &Placement, element: Element, batch: u32) -> u32 {
    let bytes = element.bytes();
    bytes * placement.vector(element, batch, 16 / bytes)
}

/// Blocks of so many threads, registers of a thread and bytes of shared memory that a multiprocessor holds.
fn resident(gpu: &Gpu, threads: u32, registers: u32, shared: u32) -> u32 {
    let limits = gpu.arch.limits();
    let by_registers = limits.registers_per_sm / (threads * registers).max(1);
    let by_shared = limits.shared_per_sm / (shared + limits.shared_reserved).max(1);
    by_registers.min(by_shared).min(limits.threads_per_sm / threads.max(1)).clamp(1, limits.blocks_per_sm)
}

/// The copy engine loads, a warpgroup multiplies 64 rows at a time, one block has a multiprocessor to itself.
pub(super) fn hopper(config: &hopper::Config, problem: &Problem, _: &Gpu) -> Work {
    Work::Tiled(Tiled {
        unit: Unit::Tensor(TensorKind::of(problem.types.a).unwrap_or_default()),
        tile: [config.m, config.n, (config.k_bytes / problem.types.a.bytes()).max(1)],
        slab: [64, config.n],
        cluster: [config.cluster.0, config.cluster.1],
        stages: config.stages.saturating_sub(1).max(1),
        resident: 1,
        split: match config.split {
            hopper::Split::None => Split::Whole,
            hopper::Split::Parts(parts) => Split::Parts(parts),
            hopper::Split::Stream => Split::Stream,
            hopper::Split::Assist => Split::Assist,
            hopper::Split::Joint(parts) => Split::Joint(parts),
        },
        overlapped: config.pace == hopper::Pace::PingPong,
        cooperates: config.pace == hopper::Pace::Cooperative && config.consumers > 1,
        band: match config.along {
            hopper::Along::M => Band::Rows(config.group * config.cluster.0),
            hopper::Along::N => Band::Columns(config.group * config.cluster.1),
        },
        load: [None; 2],
    })
}

/// Threads load, each warp multiplies its own part of the tile.
pub(super) fn ampere(config: &ampere::Config, problem: &Problem, gpu: &Gpu) -> Work {
    let (a, b) = (Types::in_memory(problem.types.a), Types::in_memory(problem.types.b));
    let warp = [config.m / config.warps_m.max(1), config.n / config.warps_n.max(1)];
    // Sums, two sets of fragments, addresses.
    let sums = warp[0] * warp[1] / 32 * problem.types.accumulate.bytes() / 4;
    let fragments = 2 * (warp[0] * a.bytes() + warp[1] * b.bytes()) * config.inner / 128;
    let shared = config.stages * config.k * (config.m * a.bytes() + config.n * b.bytes());
    let kind = TensorKind::of(problem.types.a).unwrap_or_default();
    Work::Tiled(Tiled {
        unit: Unit::Warps(kind),
        tile: [config.m, config.n, config.k],
        slab: warp,
        cluster: [1, 1],
        stages: config.stages.saturating_sub(1).max(1),
        resident: resident(gpu, config.threads(), (sums + fragments + 40).min(255), shared),
        split: if config.parts > 1 { Split::Parts(config.parts) } else { Split::Whole },
        overlapped: false,
        cooperates: false,
        band: Band::Rows(config.group),
        load: [Some(load(&problem.a, a, problem.batch)), Some(load(&problem.b, b, problem.batch))],
    })
}

/// Weights pass through a queue of each thread in shared memory, 16 bytes at a time.
pub(super) fn gemv(config: &gemv::Config, problem: &Problem, gpu: &Gpu) -> Work {
    let element = Types::in_memory(problem.types.b);
    let tensor = TensorKind::of(problem.types.b).filter(|_| element.bytes() <= 2 && problem.m > 1);
    let unit = tensor.map_or(Unit::Floats, Unit::Warps);
    // The conversion of a weight, and one multiplication for each row.
    let per_element = 1.0 + 1.0 / f64::from(problem.m.max(1));
    let Some(block) = config.block(problem, gpu) else {
        // No candidate, and slow if somebody asks all the same.
        let parts = config.parts;
        let (columns, steps, in_flight, resident) = (1, problem.k, 16, 1);
        return Work::Streamed(Streamed { unit, per_element, columns, parts, steps, in_flight, resident });
    };
    Work::Streamed(Streamed {
        unit,
        per_element,
        columns: block.columns,
        parts: config.parts,
        steps: block.steps,
        in_flight: block.queue / 16 * load(&problem.b, element, problem.batch),
        resident: resident(gpu, block.threads, block.registers, block.shared),
    })
}

/// The sums of a thread are in registers; a warp reads the rows and columns of its 4 x 8 threads for every step.
pub(super) fn simt(config: &simt::Config, problem: &Problem, gpu: &Gpu) -> Work {
    let element = Types::in_memory(problem.types.a);
    let sums = config.thread_m * config.thread_n * element.bytes() / 4;
    let fragments = 2 * (config.thread_m + config.thread_n) * element.bytes() / 4;
    Work::Tiled(Tiled {
        unit: if element.bytes() == 8 { Unit::Doubles } else { Unit::Floats },
        tile: [config.m, config.n, config.k],
        slab: [4 * config.thread_m, 8 * config.thread_n],
        cluster: [1, 1],
        // One tile is being used, and the next has arrived for most of that time.
        stages: config.stages.saturating_sub(2).max(1),
        resident: resident(gpu, config.threads(), sums + fragments + 32, config.shared_bytes(element)),
        split: if config.parts > 1 { Split::Parts(config.parts) } else { Split::Whole },
        overlapped: false,
        cooperates: false,
        band: Band::Rows(config.group),
        load: [Side::A, Side::B].map(|side| {
            // Copies that turn a factor take one element at a time.
            let turned = side.is_k_major(problem);
            Some(if turned { element.bytes() } else { load(side.placement(problem), element, problem.batch) })
        }),
    })
}
