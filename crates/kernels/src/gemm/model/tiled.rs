//! How long a product by tiles takes.

use tilewright_hardware::Gpu;

use super::constants::{FIRST_LOAD, GPC};
use super::{Band, Constants, Counts, Model, Prediction, Split, Tiled, Traffic, Unit, chip, dram, l2};
use crate::gemm::epilogue::{ExtraOperand, Shape};
use crate::gemm::problem::{Placement, Problem, Types};

/// Bytes of a line of the cache.
const LINE: u32 = 128;

/// Who is asked says no more of an address than that it is a multiple of so many bytes, as kernels have no use for more. Allocators give multiples of
/// lines, and so do matrices within them as a rule.
const ALL_THAT_IS_SAID: u32 = 16;

/// How much longer a factor takes from L2 because some of its rows, of which a line is loaded at a time, do not begin with lines of the cache.
fn lines(placement: &Placement, bytes: u32, constants: &Constants) -> f64 {
    // Of rows that begin at multiples of so many bytes, each of the places in a line is as likely as any other.
    let address = if placement.alignment < ALL_THAT_IS_SAID { placement.alignment } else { LINE };
    let apart = (placement.leading * u64::from(bytes)) | u64::from(address) | u64::from(LINE);
    let begins = 1 << apart.trailing_zeros();
    let across = 1.0 - f64::from(begins) / f64::from(LINE);
    1.0 + (constants.across_lines - 1.0) * across
}

impl Tiled {
    /// Rows and columns of clusters that run in one GPC and are at the same step.
    fn of_a_gpc(&self, [rows, columns]: [u32; 2], cluster: f64) -> [f64; 2] {
        let [rows, columns] =
            [rows / self.cluster[0].max(1), columns / self.cluster[1].max(1)].map(f64::from);
        let clusters = (f64::from(GPC) / cluster).max(1.0);
        let fit = |band: u32, across: f64, along: f64| {
            let across = f64::from(band.max(1)).min(across).min(clusters).max(1.0);
            (across, (clusters / across).max(1.0).min(along).max(1.0))
        };
        match self.band {
            Band::Rows(high) => {
                let (high, wide) = fit(high / self.cluster[0].max(1), rows, columns);
                [high, wide]
            }
            Band::Columns(wide) => {
                let (wide, high) = fit(wide / self.cluster[1].max(1), columns, rows);
                [high, wide]
            }
        }
    }

    pub(super) fn predict(&self, model: &Model, problem: &Problem, gpu: &Gpu) -> Prediction {
        let engine = self.load == [None; 2];
        let constants = if engine { &model.engine } else { &model.threads };
        let [bm, bn, bk] = self.tile;
        let width = |element| f64::from(Types::in_memory(element).bytes());
        let (a_bytes, b_bytes) = (width(problem.types.a), width(problem.types.b));
        // Blocks of a cluster that have no tile of their own go through the motions all the same.
        let count = |extent: u32, tile: u32, sharing: u32| {
            extent.div_ceil(tile.max(1)).next_multiple_of(sharing.max(1))
        };
        let (rows, columns) = (count(problem.m, bm, self.cluster[0]), count(problem.n, bn, self.cluster[1]));
        let tiles = f64::from(rows) * f64::from(columns) * f64::from(problem.batch);
        let steps = f64::from(problem.k.div_ceil(bk.max(1)));

        // Who works: clusters take whole groups of multiprocessors.
        let joint = match self.split {
            Split::Joint(parts) => parts.max(1),
            _ => 1,
        };
        let cluster = (self.cluster[0] * self.cluster[1]).max(1) * joint;
        let workers = f64::from((gpu.multiprocessors / cluster * cluster).max(1));
        let (units, steps_of_one) = match self.split {
            Split::Whole => (tiles, steps),
            Split::Parts(parts) | Split::Joint(parts) => {
                (tiles * f64::from(parts), (steps / f64::from(parts)).ceil())
            }
            Split::Stream | Split::Assist => {
                let units = (workers * f64::from(self.resident)).min(tiles * steps).max(1.0);
                (units, (tiles * steps / units).ceil())
            }
        };
        let busiest = (units / workers).ceil();
        let busiest_steps = busiest * steps_of_one;
        // Of streams, whole tiles come after those that are dealt out, and all blocks are at the same step again.
        let in_step = match self.split {
            Split::Stream => ((tiles / workers).floor() - 1.0).max(0.0) * steps,
            Split::Assist => (tiles / workers).floor() * steps,
            _ => busiest_steps,
        };
        let lost = match ((rows / self.cluster[0].max(1)).min(columns / self.cluster[1].max(1)), cluster) {
            (..=1, _) => constants.out_of_step,
            _ if self.split == Split::Assist => constants.assist,
            (_, 1) => constants.out_of_step_alone,
            _ => {
                // What blocks that run at the same time read, whichever step of k each is at.
                let (high, wide) = match self.band {
                    Band::Rows(high) => (f64::from(high.min(rows)), workers / f64::from(high.min(rows))),
                    Band::Columns(wide) => {
                        (workers / f64::from(wide.min(columns)), f64::from(wide.min(columns)))
                    }
                };
                let read = f64::from(problem.k)
                    * (high.min(rows.into()) * f64::from(bm) * a_bytes
                        + wide.min(columns.into()) * f64::from(bn) * b_bytes);
                1.0 + constants.out_of_step_in_clusters * (1.0 + (read / l2(gpu)).powi(2))
            }
        };
        let paced_steps = in_step + (busiest_steps - in_step) * lost;
        let clocks = |clocks: f64| clocks / gpu.clock;

        // One step of a tile.
        let [m, n, k] = self.tile.map(f64::from);
        let multiply = 2.0 * m * n * k / self.unit.rate(gpu, constants);
        let slabs = (m / f64::from(self.slab[0])).max(1.0) * (n / f64::from(self.slab[1])).max(1.0);
        let reads = slabs * k * (f64::from(self.slab[0]) * a_bytes + f64::from(self.slab[1]) * b_bytes);
        let writes = k * (m * a_bytes + n * b_bytes);
        let shared = (reads + writes) / constants.shared;
        // A cluster of neighbours in m shares B, one of neighbours in n shares A.
        let fetched_a = k * m * a_bytes / f64::from(self.cluster[1]);
        let fetched_b = k * n * b_bytes / f64::from(self.cluster[0]);
        let bytes = |element| Types::in_memory(element).bytes();
        let lines_a = lines(&problem.a, bytes(problem.types.a), constants);
        let lines_b = lines(&problem.b, bytes(problem.types.b), constants);
        let from_l2 = fetched_a * lines_a + fetched_b * lines_b;
        // With one tile each there is nothing to take turns for.
        let pace = if self.cooperates && units > workers { constants.cooperation } else { 1.0 };
        let under_way = f64::from(self.stages.max(1)) * busiest.min(f64::from(self.resident.max(1)));
        let load = |bytes: f64, load: Option<u32>| {
            // Loads narrower than 4 bytes pass through registers: addresses, bounds, load, merge, store; and somebody waits for them.
            load.map_or(0.0, |wide| bytes / (32.0 * f64::from(wide)) * if wide < 4 { 24.0 } else { 1.0 })
        };
        let instructions = load(k * m * a_bytes, self.load[0]) + load(k * n * b_bytes, self.load[1]);
        // Loads take the turns of multiplications that are instructions of lanes themselves.
        let multiply = match self.unit {
            Unit::Floats | Unit::Doubles => multiply + constants.load_turns * instructions,
            Unit::Tensor(_) | Unit::Warps(_) => multiply,
        };

        // Beyond the tile.
        let traffic = Traffic::of(problem);
        let (bands, whole) = match self.band {
            Band::Rows(high) => (rows.div_ceil(high.max(1)), traffic.b),
            Band::Columns(wide) => (columns.div_ceil(wide.max(1)), traffic.a),
        };
        let room = l2(gpu) * constants.l2_part;
        let missing = (whole - room).max(0.0);
        // Neighbours that need the same part of the larger factor at the same time, and do not share it.
        let (larger, readers, sharing) = if traffic.a > traffic.b {
            (traffic.a, columns, self.cluster[1])
        } else {
            (traffic.b, rows, self.cluster[0])
        };
        let apart = (1.0 - f64::from(sharing) / f64::from(readers.max(1))).max(0.0);
        let again = apart * larger * if cluster > 1 { constants.asked_apart } else { constants.asked_again };
        // Rows that do not exist are not loaded.
        let depth = f64::from(problem.batch) * steps * k;
        let loaded_a = depth * f64::from(problem.m) * f64::from(columns / self.cluster[1]) * a_bytes;
        let loaded_b = depth * f64::from(problem.n) * f64::from(rows / self.cluster[0]) * b_bytes;
        let in_the_way = constants.in_the_way * (loaded_a + loaded_b - traffic.a - traffic.b).max(0.0);
        let read = traffic.a + traffic.b + (f64::from(bands) - 1.0) * missing + again + in_the_way;
        // Rounds that keep all busy, and the last one.
        let last = units % workers;
        let bytes = (read + traffic.results) / units;
        let late = if last < units { constants.late_askers } else { constants.askers };
        let dram = bytes * (units - last) / dram(gpu, constants, workers, constants.askers)
            + if last > 0.0 { bytes * last / dram(gpu, constants, last, late) } else { 0.0 };

        // The end of a tile.
        let d_bytes = width(problem.types.d);
        let c_bytes = if problem.epilogue.reads_c() { width(problem.types.c) } else { 0.0 };
        let elements = m * n / f64::from(joint);
        let finish = elements * (d_bytes + c_bytes) / constants.store
            + elements * constants.epilogue / f64::from(gpu.float_lanes.max(1));
        let tiles_of_one = (tiles / workers).ceil();
        // While results are stored nothing is multiplied, unless that overlaps; but the engine goes on with loads for the next tile. Only
        // the last has nothing after it.
        let (storing, exposed) = match (self.overlapped, engine) {
            (true, _) => (0.0, finish),
            (false, true) => ((tiles_of_one - 1.0) * finish, finish),
            (false, false) => (0.0, tiles_of_one * finish),
        };
        let along_columns = |operand: &ExtraOperand| operand.shape == Shape::PerColumn;
        let vectors = problem.epilogue.operands().iter().filter(|operand| along_columns(operand)).count();
        #[allow(clippy::cast_precision_loss, reason = "a few")]
        let vectors = tiles_of_one * elements * constants.vector * vectors as f64;
        // Partial sums are written by all, and the last of each tile reads them all.
        let partial = elements * width(problem.types.accumulate);
        let reduction = match self.split {
            Split::Whole | Split::Parts(1) | Split::Joint(1) => 0.0,
            // Every block gets its columns from all others.
            Split::Joint(parts) => constants.joint_latency + f64::from(parts - 1) * partial / constants.joint,
            Split::Parts(parts) => {
                constants.partial_latency
                    + busiest * partial / constants.partial_store
                    + tiles_of_one * f64::from(parts) * partial / constants.partial_load
            }
            Split::Stream => {
                let parts = (units / tiles).ceil() + 1.0;
                // If whole tiles come after, nobody waits for it, and some of it happens while others multiply.
                let hidden = tiles > workers;
                let latency = if hidden { 0.0 } else { constants.partial_latency };
                let moved =
                    2.0 * partial / constants.partial_store + parts * partial / constants.partial_load;
                latency + moved * if self.overlapped { constants.partial_in_turns } else { 1.0 }
            }
            // Main loops are long enough to hide it all.
            Split::Assist => 0.0,
        };

        let slower = pace * paced_steps / busiest_steps.max(1.0);
        let all_from_l2 =
            slower * (loaded_a * lines_a + loaded_b * lines_b) / chip(gpu, constants.l2_of_chip);
        let [high, wide] = self.of_a_gpc([rows, columns], f64::from(cluster));
        // Who streams is at a step of its own, and shares with nobody.
        let alone = match self.split {
            Split::Stream => (busiest_steps - in_step) / busiest_steps.max(1.0),
            _ => 0.0,
        };
        let shared_by = |neighbours: f64| (1.0 - alone) / neighbours + alone;
        let of_gpcs =
            tiles * steps * (fetched_a * lines_a * shared_by(wide) + fetched_b * lines_b * shared_by(high));
        let of_gpcs = slower * of_gpcs / chip(gpu, constants.l2_of_gpc);
        let multiplying = match self.unit {
            Unit::Tensor(_) | Unit::Warps(_) => "tensor cores",
            Unit::Floats | Unit::Doubles => "arithmetic",
        };
        Prediction::of(constants)
            .with(Counts::Together, multiplying, clocks(pace * paced_steps * multiply + storing))
            .with(Counts::Together, "shared memory", clocks(busiest_steps * shared))
            .with(Counts::Together, "loads from L2", clocks(pace * paced_steps * from_l2 / constants.l2))
            .with(Counts::Together, "loads of all from L2", all_from_l2)
            .with(Counts::Together, "loads of GPCs from L2", of_gpcs)
            .with(Counts::Together, "load instructions", clocks(busiest_steps * instructions))
            .with(Counts::Together, "latency of loads", clocks(busiest_steps * constants.latency / under_way))
            .with(Counts::Together, "DRAM", dram)
            .with(Counts::Added, "first load", clocks(FIRST_LOAD * constants.latency))
            .with(Counts::Added, "cluster", if cluster > joint { constants.cluster } else { 0.0 })
            .with(Counts::Added, "epilogue", clocks(exposed))
            .with(Counts::Added, "vectors of the epilogue", clocks(vectors))
            .with(Counts::Added, "reduction of partial sums", clocks(reduction))
            .with(Counts::Added, "launch", constants.launch)
    }
}
