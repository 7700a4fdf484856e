//! The decoded instruction: what the machine executes.
//!
//! One [`Op`] a PTX instruction, with every name resolved: registers are indices into the warp's file, labels are indices into the
//! code, symbols are addresses. Decoding happens once a module; whatever depends on the launch (addresses of shared memory, special
//! registers) stays symbolic in [`Src`].

use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_ptx::{Note, SpecialRegister, Type};

use crate::number::{Carry, Combine, Map, Set, Test};
use crate::tensor::mma::Mma;
use crate::tensor::tensor_map::Field as TensorMapField;
use crate::tensor::wgmma::Wgmma;
use crate::tensor::wmma::Wmma;

/// Index of a register in its function's window of the register file.
pub type Reg = u32;

/// Index of a predicate in its function's window.
pub type Pred = u32;

/// Index of an op in the code of its function.
pub type Pc = u32;

/// Where a lane's value comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Src {
    /// A register.
    Reg(Reg),
    /// The same value in all lanes.
    Imm(u64),
    /// A special register.
    Special(SpecialRegister),
    /// The address, in the shared window of the executing block, of an offset into its shared memory.
    Shared(u32),
    /// The local address of an offset into the frame of the function.
    Frame(u32),
}

/// Where a predicate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PredSrc {
    /// A predicate register, possibly negated.
    Reg {
        /// Which.
        index: Pred,
        /// Whether it is read as its opposite.
        negated: bool,
    },
    /// The same in all lanes.
    Imm(bool),
}

/// State space of an access. Addresses of `SharedCta` and `SharedCluster` are 32-bit addresses in the shared window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// Decided by the address.
    Generic,
    /// Global memory, addresses as generic ones.
    Global,
    /// Constant memory, addresses as generic ones.
    Const,
    /// The shared memory of the executing block.
    SharedCta,
    /// The shared memory of any block of the cluster.
    SharedCluster,
    /// Private memory; an address is an offset from the thread's stack base.
    Local,
    /// The kernel's parameters; an address is an offset into them. Parameters of functions are [`Space::Local`].
    Param,
}

/// `base + offset`
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Address {
    /// Register, constant, or symbol.
    pub base: Src,
    /// Bytes added, wrapping in the width of the space.
    pub offset: i64,
}

/// Who takes part in the ordering of a strong operation.
pub use crate::check::Scope;

/// Memory order of a load, store, atomic or fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// An ordinary access.
    Weak,
    /// Strong without ordering others; `volatile` is this with system scope.
    Relaxed,
    /// A load, or the load of an atomic.
    Acquire,
    /// A store, or the store of an atomic.
    Release,
    /// Both.
    AcqRel,
    /// Sequentially consistent (fences).
    Sc,
}

/// How strong an access is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strength {
    /// Memory order.
    pub order: Order,
    /// Scope; of no meaning for weak accesses.
    pub scope: Scope,
}

/// Type and place of a load or store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// State space.
    pub space: Space,
    /// Address of the first element.
    pub address: Address,
    /// Type of an element.
    pub ty: Type,
    /// Elements, one after the other: 1, 2, 4 or 8.
    pub count: u8,
    /// Memory order.
    pub strength: Strength,
}

/// A barrier's operation over the threads of a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BarMode {
    /// Wait for all.
    Sync,
    /// Count and go on.
    Arrive,
    /// Wait, and count the true predicates.
    Popc(Reg, PredSrc),
    /// Wait, and conjoin.
    And(Pred, PredSrc),
    /// Wait, and disjoin.
    Or(Pred, PredSrc),
}

/// How `shfl` finds the source lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

/// What `vote` computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the modifiers")]
pub enum Vote {
    All(Pred),
    Any(Pred),
    Uni(Pred),
    Ballot(Reg),
}

/// Operations on mbarriers.
#[derive(Clone, Debug, PartialEq)]
pub enum Mbarrier {
    /// `init` with a count of arrivals.
    Init(Src),
    /// `inval`
    Inval,
    /// `arrive`, `arrive_drop`, with `expect_tx` or `noComplete`.
    Arrive {
        /// Where the state goes.
        state: Option<Reg>,
        /// Arrivals; 1 if not written.
        count: Option<Src>,
        /// Bytes to expect in addition.
        expect_tx: Option<Src>,
        /// `arrive_drop`
        drop: bool,
        /// `noComplete`
        no_complete: bool,
        /// Release or relaxed, and scope.
        strength: Strength,
    },
    /// `expect_tx` alone.
    ExpectTx(Src),
    /// `complete_tx` alone.
    CompleteTx(Src),
    /// `test_wait` and `try_wait`.
    Wait {
        /// Whether the phase is complete.
        done: Pred,
        /// Phase parity, or the state of an arrival.
        phase: Src,
        /// Whether `phase` is a parity.
        parity: bool,
        /// `try_wait`: may suspend the thread.
        suspend: bool,
        /// Acquire or relaxed, and scope.
        strength: Strength,
    },
}

/// Which box of a tensor a TMA copy moves.
#[derive(Clone, Debug, PartialEq)]
pub enum TensorMode {
    /// A box at the coordinates.
    Tile,
    /// `im2col` with its offsets; empty for stores (`im2col_no_offs`).
    Im2col(Vec<Src>),
}

/// The bulk copies of the asynchronous proxy.
#[derive(Clone, Debug, PartialEq)]
pub enum Bulk {
    /// `cp.async.bulk.shared::{cta,cluster}.global`: bytes from global memory, completing on an mbarrier.
    Load {
        /// Address in shared memory.
        dst: Address,
        /// Space of `dst`.
        dst_space: Space,
        /// Address in global memory.
        src: Address,
        /// Multiple of 16.
        bytes: Src,
        /// Address of the mbarrier, in `dst_space`.
        mbarrier: Address,
        /// Blocks of the cluster that receive it.
        multicast: Option<Src>,
    },
    /// `cp.async.bulk.shared::cluster.shared::cta`: to the shared memory of a peer, completing on its mbarrier; `cp.reduce` with a
    /// combination.
    Push {
        /// Address in the cluster's shared memory.
        dst: Address,
        /// Address in the own shared memory.
        src: Address,
        /// Multiple of 16.
        bytes: Src,
        /// Address of the mbarrier in the cluster's shared memory.
        mbarrier: Address,
        /// For `cp.reduce.async.bulk`.
        combine: Option<(Combine, Type)>,
    },
    /// `st.async` and `red.async`: one to four elements to the shared memory of a peer, completing on its mbarrier.
    Element {
        /// Address in the cluster's shared memory.
        dst: Address,
        /// The elements.
        src: Sources,
        /// Type of an element.
        ty: Type,
        /// Address of the mbarrier in the cluster's shared memory.
        mbarrier: Address,
        /// For `red.async`.
        combine: Option<Combine>,
    },
    /// `cp.async.bulk.global.shared::cta`, `cp.reduce.async.bulk.global.shared::cta`: completing as a bulk group.
    Store {
        /// Address in global memory.
        dst: Address,
        /// Address in the own shared memory.
        src: Address,
        /// Multiple of 16.
        bytes: Src,
        /// For `cp.reduce.async.bulk`.
        combine: Option<(Combine, Type)>,
        /// For `.cp_mask`: one bit a byte of every 16.
        mask: Option<Src>,
    },
    /// `cp.async.bulk.tensor` from global to shared memory.
    TensorLoad {
        /// Address in shared memory.
        dst: Address,
        /// Space of `dst`.
        dst_space: Space,
        /// Generic address of the tensor map.
        map: Address,
        /// Innermost first.
        coordinates: Vec<Src>,
        /// Address of the mbarrier, in `dst_space`.
        mbarrier: Address,
        /// Blocks of the cluster that receive it.
        multicast: Option<Src>,
        /// Which box.
        mode: TensorMode,
    },
    /// `cp.async.bulk.tensor` and `cp.reduce.async.bulk.tensor` from shared to global memory.
    TensorStore {
        /// Generic address of the tensor map.
        map: Address,
        /// Innermost first.
        coordinates: Vec<Src>,
        /// Address in the own shared memory.
        src: Address,
        /// For `cp.reduce`.
        combine: Option<Combine>,
        /// Which box.
        mode: TensorMode,
    },
    /// `cp.async.bulk.commit_group`
    Commit,
    /// `cp.async.bulk.wait_group`
    Wait {
        /// Groups that may stay pending.
        pending: u32,
        /// Only the reads of the source must be done.
        read: bool,
    },
}

/// A fence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fence {
    /// `fence.{acq_rel,sc,acquire,release}`, `membar`.
    Thread(Strength),
    /// `fence.proxy.async` for all or one space.
    ProxyAsync(Option<Space>),
    /// `fence.proxy.alias` and other proxies that the simulator does not tell apart.
    ProxyOther,
    /// `fence.proxy.tensormap::generic.{acquire,release}`; an acquire names the map and its size.
    ProxyTensormap(Strength, Option<Address>),
    /// `fence.mbarrier_init.release.cluster`
    MbarrierInit,
}

/// The A operand of `wgmma`.
#[derive(Clone, Debug, PartialEq)]
pub enum WgmmaA {
    /// A matrix descriptor.
    Descriptor(Src),
    /// Four registers.
    Registers([Src; 4]),
}

/// What is passed to, or back from, a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Passed {
    /// Bytes from frame to frame.
    Bytes {
        /// Offset in the frame of the giver (the caller for an argument, the callee for a result).
        from: u32,
        /// Offset in the frame of the taker.
        to: u32,
        /// How many.
        bytes: u32,
    },
    /// A register parameter.
    Register {
        /// Value in the giver.
        from: Src,
        /// Register of the taker.
        to: Reg,
    },
}

/// Whom a call reaches.
#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    /// A function of the module, by index.
    Direct(u32),
    /// A function by its address; arguments are copied by position from the caller's frame: (offset, bytes) of each, likewise results.
    Indirect {
        /// The address.
        address: Src,
        /// Arguments in the caller's frame.
        arguments: Vec<(u32, u32)>,
        /// Results in the caller's frame.
        results: Vec<(u32, u32)>,
    },
    /// `vprintf(format, arguments)`: frame offsets of the two 64-bit parameters and of the 32-bit result.
    Printf {
        /// Of the format's address.
        format: u32,
        /// Of the address of the arguments.
        arguments: u32,
        /// Of the result.
        result: Option<u32>,
    },
    /// `__assertfail(message, file, line, function, charSize)`: frame offsets of the first four.
    AssertFail([u32; 4]),
    /// `malloc`: frame offsets of size and result.
    Malloc(u32, u32),
    /// `free`: frame offset of the address.
    Free(u32),
}

/// An instruction with its guard.
#[derive(Clone, Debug)]
pub struct Op {
    /// Runs only in lanes where this holds.
    pub guard: Option<PredSrc>,
    /// What it does.
    pub kind: Kind,
}

/// Up to four sources without allocation.
pub type Sources = SmallVec<[Src; 4]>;

/// What an op does.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named like the operands of the instructions")]
pub enum Kind {
    // Values.
    Map {
        map: Map,
        dst: Reg,
        src: Sources,
    },
    Carry {
        carry: Carry,
        dst: Reg,
        src: Sources,
    },
    Set {
        set: Set,
        dst: Reg,
        a: Src,
        b: Src,
        c: PredSrc,
    },
    Test {
        test: Test,
        p: Option<Pred>,
        q: Option<Pred>,
        a: Src,
        b: Src,
        c: PredSrc,
    },
    /// `lop3.BoolOp.b32 d|p, a, b, c, lut, q`: the value, and whether it is not zero combined with `q`.
    Lop3Test {
        map: Map,
        dst: Option<Reg>,
        p: Pred,
        and: bool,
        src: Sources,
        q: PredSrc,
    },
    Mov {
        dst: Reg,
        src: Src,
    },
    MovPred {
        dst: Pred,
        src: PredSrc,
    },
    /// `and.pred` and so on: bit `a + 2 b` of the table.
    PredLogic {
        dst: Pred,
        table: u8,
        a: PredSrc,
        b: PredSrc,
    },
    Select {
        dst: Reg,
        a: Src,
        b: Src,
        c: PredSrc,
    },
    /// `mov.b64 d, {a, b}`: parts of `bits` each, low first; 128-bit registers are two consecutive ones.
    Pack {
        dst: Reg,
        parts: Sources,
        bits: u8,
    },
    /// `mov.b64 {a, b}, s`
    Unpack {
        dst: SmallVec<[Option<Reg>; 4]>,
        src: Src,
        bits: u8,
    },
    Cvta {
        dst: Reg,
        src: Src,
        space: Space,
        to_space: bool,
    },
    Isspacep {
        dst: Pred,
        src: Src,
        space: Space,
    },
    Mapa {
        dst: Reg,
        address: Src,
        rank: Src,
        generic: bool,
    },
    Getctarank {
        dst: Reg,
        address: Src,
        generic: bool,
    },

    // Memory. Loaded values are extended to `bits` of the register, with the sign if the type has one.
    Load {
        access: Access,
        dst: SmallVec<[Option<Reg>; 4]>,
        bits: u8,
    },
    Store {
        access: Access,
        src: Sources,
    },
    /// `atom` and `red`; vectors (`.v2.f32`) combine element by element. With type `b128` the access has one element, `dst` and
    /// `value` hold its two halves, low first, and `compare` names the low register of two consecutive ones.
    Atomic {
        access: Access,
        combine: Combine,
        dst: Option<SmallVec<[Reg; 4]>>,
        value: Sources,
        compare: Option<Src>,
    },
    /// `prefetch`, `discard`, `createpolicy` and others without a result that matters: nothing.
    Nop,
    Alloca {
        dst: Reg,
        bytes: Src,
    },
    StackSave {
        dst: Reg,
    },
    StackRestore {
        src: Src,
    },

    // Threads of a warp.
    Shfl {
        mode: Shuffle,
        dst: Reg,
        p: Option<Pred>,
        a: Src,
        b: Src,
        c: Src,
        mask: Src,
    },
    Vote {
        vote: Vote,
        a: PredSrc,
        mask: Src,
    },
    /// `match.any` / `match.all`, whose predicate tells whether all agree.
    Match {
        all: bool,
        dst: Reg,
        p: Option<Pred>,
        a: Src,
        bits: u8,
        mask: Src,
    },
    Redux {
        combine: Combine,
        ty: Type,
        dst: Reg,
        a: Src,
        mask: Src,
    },
    Activemask {
        dst: Reg,
    },
    Elect {
        dst: Option<Reg>,
        p: Pred,
        mask: Src,
    },
    WarpSync {
        mask: Src,
    },

    // Threads of a block and a cluster. `aligned`: the whole warp must execute it together.
    Bar {
        id: Src,
        threads: Option<Src>,
        mode: BarMode,
        aligned: bool,
    },
    ClusterArrive {
        release: bool,
        aligned: bool,
    },
    ClusterWait {
        acquire: bool,
        aligned: bool,
    },
    Fence(Fence),
    Mbarrier {
        op: Mbarrier,
        address: Address,
        space: Space,
    },
    MbarrierPending {
        dst: Reg,
        state: Src,
    },

    // Asynchronous copies.
    /// `cp.async`: `bytes` are written, of which `read` come from global memory and the rest are zero.
    CpAsync {
        dst: Address,
        src: Address,
        bytes: u8,
        read: Option<Src>,
        ignore: Option<PredSrc>,
    },
    CpAsyncCommit,
    /// At most this many groups stay pending; `cp.async.wait_all` also waits for what is not committed.
    CpAsyncWait {
        pending: u32,
        all: bool,
    },
    CpAsyncMbarrier {
        address: Address,
        space: Space,
        noinc: bool,
    },
    Bulk(Bulk),
    TensormapReplace {
        address: Address,
        space: Space,
        field: TensorMapField,
        ordinal: u32,
        value: Src,
    },
    /// `tensormap.cp_fenceproxy`: 128 bytes from shared to global memory, and a release.
    TensormapPublish {
        dst: Address,
        src: Address,
        strength: Strength,
    },

    // Matrices.
    Ldmatrix {
        dst: SmallVec<[Reg; 4]>,
        address: Address,
        space: Space,
        transposed: bool,
    },
    Stmatrix {
        address: Address,
        space: Space,
        src: Sources,
        transposed: bool,
    },
    Movmatrix {
        dst: Reg,
        src: Src,
    },
    Mma {
        mma: Mma,
        d: Vec<Reg>,
        a: Vec<Src>,
        b: Vec<Src>,
        c: Vec<Src>,
        sparse: Option<(Src, u32)>,
    },
    WmmaLoad {
        wmma: Wmma,
        dst: Vec<Reg>,
        address: Address,
        space: Space,
        stride: Option<Src>,
    },
    WmmaStore {
        wmma: Wmma,
        address: Address,
        space: Space,
        src: Vec<Src>,
        stride: Option<Src>,
    },
    WmmaMma {
        wmma: Wmma,
        d: Vec<Reg>,
        a: Vec<Src>,
        b: Vec<Src>,
        c: Vec<Src>,
    },
    Wgmma {
        wgmma: Wgmma,
        d: Vec<Reg>,
        a: WgmmaA,
        b: Src,
        scale_d: PredSrc,
        negate_a: bool,
        negate_b: bool,
        transpose_a: bool,
        transpose_b: bool,
    },
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        pending: u32,
    },
    Setmaxnreg {
        increase: bool,
        registers: u32,
    },

    // Control.
    Bra {
        target: Pc,
        uniform: bool,
    },
    Brx {
        index: Src,
        targets: Vec<Pc>,
    },
    Call {
        callee: Callee,
        arguments: Vec<Passed>,
        results: Vec<Passed>,
    },
    Ret,
    Exit,
    /// `trap`; with the message of an assertion if one stands before it.
    Trap,
    Brkpt,
    Nanosleep,
    /// `griddepcontrol.wait` (true) or `launch_dependents`.
    GridDependency {
        wait: bool,
    },
    /// A label that carries a message: a trace, or the message of the next `trap`.
    Note(Arc<TraceNote>),
    /// What the simulator cannot execute, said when it is reached.
    Unsupported(String),
}

/// A message of the kernel with the registers that it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceNote {
    /// What it says.
    pub note: Note,
    /// The registers of each value; empty where a name is unknown.
    pub registers: Vec<Vec<Reg>>,
}
