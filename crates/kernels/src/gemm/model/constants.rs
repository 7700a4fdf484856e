//! The numbers of the model: what is known of chips beyond the table of [`Gpu`](tilewright_hardware::Gpu)s, and of how well kernels of a
//! kind use them.

/// What is known of chips beyond the table of [`Gpu`]s, and of how well kernels of a kind use them. Rates are for each multiprocessor and
/// clock. The test `model` of the front crate holds it against what was measured on an H200.
pub(super) struct Constants {
    /// Bytes between registers or tensor cores and shared memory: what its banks give.
    pub(super) shared: f64,
    /// Bytes from L2 to one multiprocessor while others rest, and to each of them if all ask; and what gets to each of them by way of its GPC, to
    /// which comes only once what several of its multiprocessors ask for.
    pub(super) l2: f64,
    pub(super) l2_of_chip: f64,
    pub(super) l2_of_gpc: f64,
    /// Bytes of results that a multiprocessor stores.
    pub(super) store: f64,
    /// Bytes that a multiprocessor reads and writes when it copies a matrix that stays in L2.
    pub(super) copy: f64,
    /// Part of the peak of DRAM that products reach.
    pub(super) dram: f64,
    /// What it costs if many blocks ask for the same part of the larger factor instead of sharing it in a cluster, as a part of its bytes:
    /// requests that meet on their way to DRAM are not always answered together.
    pub(super) asked_again: f64,
    /// The same if those who ask are clusters. Each keeps its own pace, since its blocks wait for each other, and gets away from the others.
    pub(super) asked_apart: f64,
    /// What it costs DRAM that blocks read the same again from L2, as a part of those bytes: both come the same way.
    pub(super) in_the_way: f64,
    /// Part of the peak of tensor cores that main loops reach if nothing else gets in their way, at the clocks that power allows in the long run.
    pub(super) tensor: f64,
    /// How much terms that happen at the same time get in each other's way: they add up as numbers raised to this power do.
    pub(super) contention: i32,
    /// Part of the multiprocessors that must ask for data to keep DRAM busy, in a first round of blocks and in a last one.
    pub(super) askers: f64,
    pub(super) late_askers: f64,
    /// Part of the rate of tensor cores that instructions of warps reach on Hopper, whose full rate takes those of warpgroups (published:
    /// about 62 %).
    pub(super) warps_on_hopper: f64,
    /// Part of the peak of f32 and f64 lanes that main loops reach; the rest are loads and addresses.
    pub(super) lanes: f64,
    /// Clocks that a load of a warp takes from multiplications of lanes (f32, 4096 cubed: both factors by 4 bytes cost 8 %).
    pub(super) load_turns: f64,
    /// Clocks from a request of memory to its arrival, under load.
    pub(super) latency: f64,
    /// Seconds from the end of one kernel to the first instruction of the next in a stream.
    pub(super) launch: f64,
    /// Seconds that clusters take to start together, and that their blocks wait for each other at the start and at the end.
    pub(super) cluster: f64,
    /// Instructions for each element of the result in the simplest epilogue: convert, stage, store.
    pub(super) epilogue: f64,
    /// Clocks for each element of the result and each vector that has an element for every column. A thread holds two rows and many
    /// columns: elements of a row are loaded once, those of columns again and again. Seen from the other side columns are rows.
    pub(super) vector: f64,
    /// Clocks until partial sums are known to be complete, and the bytes of them that a multiprocessor writes and reads.
    pub(super) partial_latency: f64,
    pub(super) partial_store: f64,
    pub(super) partial_load: f64,
    /// What is left of that where warpgroups take turns: one writes while another multiplies.
    pub(super) partial_in_turns: f64,
    /// Clocks that blocks of a cluster take to find each other, and the bytes of sums that one gets from the others.
    pub(super) joint_latency: f64,
    pub(super) joint: f64,
    /// How much longer main loops take whose blocks are at different steps of k: where a factor is not shared by blocks anyway; and where both
    /// are, so that blocks find less of each other's data in L2, if each loads for itself.
    pub(super) out_of_step: f64,
    pub(super) out_of_step_alone: f64,
    /// What is lost if clusters load, and as much again by the square of what they read over L2 (8192 x 8192 x 8192: 0.2 in all; 2048 x 4096 x
    /// 14336: 0.4).
    pub(super) out_of_step_in_clusters: f64,
    /// The same where tiles are begun by some blocks and finished by others.
    pub(super) assist: f64,
    /// Part of the L2 cache that one operand can count on.
    pub(super) l2_part: f64,
    /// How much longer loads from L2 take of rows that all lie across two lines of the cache.
    pub(super) across_lines: f64,
    /// How much longer it takes warpgroups to multiply one tile together than each its own.
    pub(super) cooperation: f64,
    /// Bytes through L1 that are loaded when they are needed and not before.
    pub(super) l1: f64,
    /// Of kernels that read one factor once: seconds of one step of k, whose rows are loaded when they are needed; and for each round of blocks,
    /// until the next has its first weights, and until a block has added to its sums those that others left.
    pub(super) step: f64,
    pub(super) round: f64,
    pub(super) shared_sums: f64,
}

/// Kernels that the copy engine feeds: one warp asks for tiles, warpgroups multiply them, and neither takes the other's turns. So what happens
/// at the same time hardly gets in each other's way, and limits are those of the hardware.
///
/// Fitted to some 6300 times on an H200 (56 shapes of Llama's layers, 176 other shapes, 9 squares; about 28 configurations each), such that
/// configurations of one shape come out in the order that was measured. That says nothing of `launch`, which all of them have: it is what products of
/// up to 16 rows took longer than the rest of the model says. `dram` and `l2_part` were left as they were; `out_of_step_alone`,
/// `out_of_step_in_clusters` and `vector` were set by single comparisons on the same chip: what streams lose differs from run to run
/// (8192 cubed of tf32: 2930 us in one and 3900 us in another), and the fit saw too little of it. A time also depends on the power that was drawn before, by 15 % where samples take
/// 1 ms (256 x 28672 x 4096: 92 us by 9 samples of 1 ms, 107 us by as many of 5 ms, whatever the order of tiles); these took 4 ms.
pub(super) const ENGINE: Constants = Constants {
    shared: 128.0,
    l2: 116.0,
    l2_of_chip: 62.6,
    l2_of_gpc: 44.2,
    store: 19.4,
    copy: 20.0,
    dram: 0.95,
    asked_again: 0.612,
    asked_apart: 1.4,
    in_the_way: 0.0666,
    tensor: 0.725,
    contention: 15,
    askers: 0.819,
    late_askers: 0.857,
    warps_on_hopper: 0.62,
    lanes: 0.78,
    load_turns: 1.2,
    latency: 2751.0,
    launch: 0.54e-6,
    cluster: 1.54e-6,
    epilogue: 6.95,
    vector: 0.04,
    partial_latency: 2278.0,
    partial_store: 8.65,
    partial_load: 17.6,
    partial_in_turns: 0.651,
    joint_latency: 225.0,
    joint: 4.34,
    out_of_step: 1.13,
    out_of_step_alone: 2.9,
    out_of_step_in_clusters: 0.30,
    assist: 1.17,
    l2_part: 0.6,
    across_lines: 2.32,
    cooperation: 1.01,
    l1: 14.0,
    step: 0.40e-6,
    round: 0.2e-6,
    shared_sums: 1.15e-6,
};

/// Kernels whose threads load what they multiply: instructions for one are turns that the other does not get.
///
/// Set by comparisons of single products on an H200, and published numbers. Products of up to 10 us take 3 us longer than they would by the rest
/// (217 of them), which is in `launch`.
pub(super) const THREADS: Constants = Constants {
    shared: 240.0,
    l2: 83.0,
    l2_of_chip: f64::INFINITY,
    l2_of_gpc: f64::INFINITY,
    store: 20.0,
    copy: 20.0,
    dram: 0.87,
    asked_again: 0.4,
    asked_apart: 0.4,
    in_the_way: 0.0,
    tensor: 0.81,
    contention: 4,
    askers: 0.72,
    late_askers: 0.8,
    warps_on_hopper: 0.62,
    lanes: 0.78,
    load_turns: 1.2,
    latency: 1440.0,
    launch: 3.6e-6,
    cluster: 0.57e-6,
    epilogue: 5.0,
    vector: 0.0,
    partial_latency: 2300.0,
    partial_store: 9.8,
    partial_load: 33.0,
    partial_in_turns: 1.0,
    joint_latency: 450.0,
    joint: 12.0,
    out_of_step: 1.12,
    out_of_step_alone: 2.0,
    out_of_step_in_clusters: 0.1,
    assist: 1.05,
    l2_part: 0.6,
    across_lines: 3.0,
    cooperation: 1.02,
    l1: 14.0,
    step: 0.40e-6,
    round: 0.2e-6,
    shared_sums: 1.15e-6,
};

/// Kernels that read one factor once, straight to where it is multiplied, on Hopper. Elsewhere nothing was measured, and they are like others
/// whose threads load.
///
/// Fitted to 125 times on an H200 (24 products of 1 to 16 rows), from which predictions are 11 % off, and such that these kernels are chosen where
/// they were faster than those that the engine feeds. Large products come out up to a fifth too slow, where the engine is as fast anyway.
pub(super) const STREAMED: Constants =
    Constants { dram: 0.90, contention: 2, askers: 0.3, launch: 0.56e-6, ..THREADS };

/// Multiprocessors that get from L2 only once what several of them ask for at a time. They are those of a GPC, which has 16 or 18; they are not
/// always at the same step, so it is as if there were fewer.
pub(super) const GPC: u32 = 12;
/// Part of the latency that the first load has: nothing else is under way.
pub(super) const FIRST_LOAD: f64 = 0.8;
