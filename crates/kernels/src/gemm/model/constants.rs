//! The numbers of the model: what is known of chips beyond the table of [`Gpu`](tilewright_hardware::Gpu)s, and of how well kernels of a
//! kind use them.

/// The struct, and its fields by name for those who fit them.
macro_rules! constants {
    ($(#[$of:meta])* pub struct Constants { $( $(#[$doc:meta])* $name:ident, )* }) => {
        $(#[$of])*
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Constants {
            $( $(#[$doc])* pub $name: f64, )*
        }

        impl Constants {
            /// The names of all.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// The constant of that name.
            #[must_use]
            pub fn get(&self, name: &str) -> Option<f64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)*
                    _ => None,
                }
            }

            /// Changes the constant of that name; whether there is one.
            pub fn set(&mut self, name: &str, value: f64) -> bool {
                match name {
                    $(stringify!($name) => self.$name = value,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

constants! {
    /// What is known of chips beyond the table of [`Gpu`](tilewright_hardware::Gpu)s, and of how well kernels of a kind use them. Rates are for each multiprocessor and
    /// clock. The test `model` of the front crate holds it against what was measured on an H200.
    pub struct Constants {
        /// Bytes between registers or tensor cores and shared memory: what its banks give.
        shared,
        /// Bytes from L2 to one multiprocessor while others rest.
        l2,
        /// The same to each of them if all ask.
        l2_of_chip,
        /// What gets to each of them by way of its GPC, to which comes only once what several of its multiprocessors ask for.
        l2_of_gpc,
        /// Bytes of results that a multiprocessor stores.
        store,
        /// Bytes that a multiprocessor reads and writes when it copies a matrix that stays in L2.
        copy,
        /// Part of the peak of DRAM that products reach.
        dram,
        /// What it costs if many blocks ask for the same part of the larger factor instead of sharing it in a cluster, as a part of its bytes:
        /// requests that meet on their way to DRAM are not always answered together.
        asked_again,
        /// The same if those who ask are clusters. Each keeps its own pace, since its blocks wait for each other, and gets away from the others.
        asked_apart,
        /// What it costs DRAM that blocks read the same again from L2, as a part of those bytes: both come the same way.
        in_the_way,
        /// Part of the peak of tensor cores that main loops reach if nothing else gets in their way, at the clocks that power allows in the long run.
        tensor,
        /// How much terms that happen at the same time get in each other's way: they add up as numbers raised to this power do. Whole.
        contention,
        /// Part of the multiprocessors that must ask for data to keep DRAM busy, in a first round of blocks.
        askers,
        /// The same in a last round.
        late_askers,
        /// Part of the rate of tensor cores that instructions of warps reach on Hopper, whose full rate takes those of warpgroups (published:
        /// about 62 %).
        warps_on_hopper,
        /// Part of the peak of f32 and f64 lanes that main loops reach; the rest are loads and addresses.
        lanes,
        /// Clocks that a load of a warp takes from multiplications of lanes (f32, 4096 cubed: both factors by 4 bytes cost 8 %).
        load_turns,
        /// Clocks from a request of memory to its arrival, under load.
        latency,
        /// Seconds from the end of one kernel to the first instruction of the next in a stream.
        launch,
        /// Seconds that clusters take to start together, and that their blocks wait for each other at the start and at the end.
        cluster,
        /// Instructions for each element of the result in the simplest epilogue: convert, stage, store.
        epilogue,
        /// Clocks for each element of the result and each vector that has an element for every column. A thread holds two rows and many
        /// columns: elements of a row are loaded once, those of columns again and again. Seen from the other side columns are rows.
        vector,
        /// Clocks until partial sums are known to be complete.
        partial_latency,
        /// Bytes of partial sums that a multiprocessor writes.
        partial_store,
        /// Bytes of partial sums that a multiprocessor reads.
        partial_load,
        /// What is left of that where warpgroups take turns: one writes while another multiplies.
        partial_in_turns,
        /// Clocks that blocks of a cluster take to find each other.
        joint_latency,
        /// Bytes of sums that a block gets from others of its cluster.
        joint,
        /// How much longer main loops take whose blocks are at different steps of k, where a factor is not shared by blocks anyway.
        out_of_step,
        /// The same where both are, so that blocks find less of each other's data in L2, if each loads for itself.
        out_of_step_alone,
        /// What is lost then if clusters load, and as much again by the square of what they read over L2 (8192 x 8192 x 8192: 0.2 in all; 2048 x 4096 x
        /// 14336: 0.4).
        out_of_step_in_clusters,
        /// The same where tiles are begun by some blocks and finished by others.
        assist,
        /// Part of the L2 cache that one operand can count on.
        l2_part,
        /// How much longer loads from L2 take of rows that all lie across two lines of the cache.
        across_lines,
        /// How much longer it takes warpgroups to multiply one tile together than each its own.
        cooperation,
        /// Bytes through L1 that are loaded when they are needed and not before.
        l1,
        /// Of kernels that read one factor once: seconds of one step of k, whose rows are loaded when they are needed.
        step,
        /// Of the same: seconds from one round of blocks until the next has its first weights.
        round,
        /// Of the same: seconds, in each round, until a block has added to its sums those that others left.
        shared_sums,
    }
}

/// Kernels that the copy engine feeds: one warp asks for tiles, warpgroups multiply them, and neither takes the other's turns. So what happens
/// at the same time hardly gets in each other's way, and limits are those of the hardware.
///
/// Fitted to some 6600 times on an H200 (56 shapes of Llama's layers, 176 other shapes, 9 squares; about 28 configurations each), such that
/// configurations of one shape come out in the order that was measured. That says nothing of `launch`, which all of them have: it is what products of
/// up to 16 rows took longer than the rest of the model says. `dram` and `l2_part` were left as they were; `out_of_step_alone`,
/// `out_of_step_in_clusters` and `vector` were set by single comparisons on the same chip: what streams lose differs from run to run
/// (8192 cubed of tf32: 2930 us in one and 3900 us in another), and the fit saw too little of it. A time also depends on the power that was drawn before, by 15 % where samples take
/// 1 ms (256 x 28672 x 4096: 92 us by 9 samples of 1 ms, 107 us by as many of 5 ms, whatever the order of tiles); these took 4 ms.
const ENGINE: Constants = Constants {
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
    contention: 15.0,
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
const THREADS: Constants = Constants {
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
    contention: 4.0,
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
const STREAMED: Constants =
    Constants { dram: 0.90, contention: 2.0, askers: 0.3, launch: 0.56e-6, ..THREADS };

/// The constants of all kinds of kernels.
///
/// ```
/// use tilewright_hardware::{Element, Gpu};
/// use tilewright_kernels::gemm::model::Model;
/// use tilewright_kernels::gemm::{Problem, Types, plan};
///
/// let (gpu, problem) = (Gpu::named("h200").unwrap(), Problem::new(8192, 8192, 8192, Types::of(Element::BF16)));
/// let best = plan(&problem, gpu)?.algorithm;
/// // What if memory and tensor cores were as they are, but launches took no time?
/// let mut model = Model::FITTED;
/// model.engine.launch = 0.0;
/// let seen = best.seen(&problem);
/// assert!(best.predict_by(&model, &seen, gpu).seconds() < best.predict(&problem, gpu)?.seconds());
/// # Ok::<(), tilewright_kernels::gemm::GemmError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// Of kernels that the copy engine feeds.
    pub engine: Constants,
    /// Of kernels whose threads load what they multiply.
    pub threads: Constants,
    /// Of kernels that read one factor once, on Hopper.
    pub streamed: Constants,
}

impl Model {
    /// What plans are made with. The example `fit_model` of this crate holds it against times that were measured, and fits it.
    pub const FITTED: Model = Model { engine: ENGINE, threads: THREADS, streamed: STREAMED };
}

/// Multiprocessors that get from L2 only once what several of them ask for at a time. They are those of a GPC, which has 16 or 18; they are not
/// always at the same step, so it is as if there were fewer.
pub(super) const GPC: u32 = 12;
/// Part of the latency that the first load has: nothing else is under way.
pub(super) const FIRST_LOAD: f64 = 0.8;
