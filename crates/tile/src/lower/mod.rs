//! From the tile level to threads.
//!
//! [`lower`] decides how many [`threads`] a program has, by what takes registers ([`pressure`]), and which of them holds which element of which
//! tile ([`assign`]), and then goes through the function once: scalars are copied, a tile becomes the registers of a thread that hold its
//! elements. Each family of ops has a file:
//!
//! * [`map`] for elements, [`combine`] and [`scan`] for what goes along an axis, several at once ([`join`]), [`rearrange`] for shapes, [`control`] for loops and branches;
//! * [`memory`] for what moves to and from global memory, [`touched`] for what must come before what there, [`fetch`], [`rounds`] and [`grids`] for when that may begin;
//! * [`dot`] for matrix products, whose sums may be [`outgoing`] by themselves. A [`pipeline`] loads their [`factors`] ahead, by the copy
//!   [`engine`] or by [`copies`] of all threads, for one program at a time or for [`teams`] that have their own; a [`storer`] takes what comes out;
//! * [`exchange`] moves elements between threads through shared memory and knows where barriers must be, [`cluster`] between blocks;
//! * [`sink`] puts what threads know of themselves to where it is needed.
//!
//! Contract: the result passes the verifier, has the same parameters, and does to memory what the interpreter does, but for the order in which
//! `tile_reduce` and `dot` combine. A program is one block, or with `cluster` a cluster of them along x: the grid is then that many times as
//! wide as there are programs.
//!
//! Limits: elements narrower than a byte do not exist here (but `bool`); a cluster lies along x.

mod assign;
mod cluster;
mod combine;
mod control;
mod copies;
mod dot;
mod engine;
mod exchange;
mod factors;
mod fetch;
mod grids;
mod join;
mod layout;
mod map;
mod memory;
mod outgoing;
mod pipeline;
mod positions;
mod pressure;
mod rearrange;
mod rounds;
mod scan;
mod sink;
mod storer;
mod teams;
mod threads;
mod touched;

use std::collections::HashMap;
use std::rc::Rc;

use tilewright_hardware::Arch;
use tilewright_ir::{
    AccessKind, Align, Attr, Builder, Bytes, Constant, Element, Func, Group, Loc, Op, OpData, Opcode, Region,
    Special, Type, Value, canonical,
};
use tilewright_passes::{Alignment, Context, Remark, RemarkKind};

use assign::Plan;
use cluster::Signals;
use engine::Ring;
use exchange::Scratch;
use layout::{Layout, Team};
use pipeline::{Mechanism, Pipeline};
use positions::Positions;
use touched::Touched;

pub use pipeline::{MapParameter, Number};

/// What a function of the tile level becomes.
#[derive(Debug, Clone)]
pub struct Lowered {
    /// The function, for threads.
    pub func: Func,
    /// Tensor maps that a launch must make and pass after the author's parameters, in this order.
    pub maps: Vec<MapParameter>,
    /// If programs take turns: of how many blocks on each multiprocessor. The launch needs no more than that, all along x, and passes the
    /// numbers of programs along x, y and z, each a `u32`, after the maps.
    pub resident: Option<u32>,
    /// What was done, and what could not be, with the author's line.
    pub remarks: Vec<Remark>,
}

/// Why a function of the tile level does not become code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LowerError {
    /// An op asks for what the chip, or this compiler, does not have.
    #[error("{}`{op}` {problem}", .location.as_ref().map(|at| format!("{at}: ")).unwrap_or_default())]
    Unsupported {
        /// The op.
        op: &'static str,
        /// What it asked for and what to do instead.
        problem: String,
        /// `file:line:column` in the Rust source, if known.
        location: Option<String>,
    },
    /// Threads hand each other more than their block has room for.
    #[error(
        "{}threads exchange elements of tiles here, through {found} bytes of shared memory in all, and a block of {arch} has {limit}; take smaller tiles",
        .location.as_ref().map(|at| format!("{at}: ")).unwrap_or_default()
    )]
    SharedMemory {
        /// Bytes that the block would need.
        found: u32,
        /// Bytes that it can have.
        limit: u32,
        /// The chip.
        arch: Arch,
        /// `file:line:column` of the largest exchange in the Rust source, if known.
        location: Option<String>,
    },
}

/// Refuses tiles that the registers of the largest chip are too few for, as [`lower`] does: what runs elsewhere is held to the same.
pub(crate) fn check_tiles(func: &Func) -> Result<(), LowerError> {
    let joined = join::joined(func);
    let func = joined.as_ref().unwrap_or(func);
    let team = threads::team(func, Arch::SM_90A, &Alignment::of(func));
    pressure::check(func, team, &mut Context::default())
}

/// Lowers a function of the tile level for a chip.
///
/// ```
/// use tilewright_hardware::Arch;
/// use tilewright_ir::{parse, verify};
///
/// let module = parse(
///     "func @double (%x: ptr<global> align(16), %n: u32 align(8)) {
///        %0 = special reg(ctaid.x) : u32
///        %1 = const value(1024) : u32
///        %2 = mul %0, %1 : u32
///        %3 = bitcast %2 : i32
///        %4 = const value(1) : i64
///        %5 = const value(0) : f32
///        %6 = tile_load %x, %3, %n, %4, %5 : tile<1024xf32>
///        %7 = map %6 : tile<1024xf32> do {
///          (%8: f32)
///          %9 = add %8, %8 : f32
///          yield %9
///        }
///        tile_store %x, %7, %3, %n, %4
///      }",
/// )?;
/// let lowered = tilewright_tile::lower(&module.funcs[0], Arch::SM_90A)?;
/// assert!(verify(&lowered.func.clone().into()).is_empty());
/// assert_eq!(lowered.func.launch.threads, Some([64, 1, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// What has no code, with its place in the source.
pub fn lower(func: &Func, arch: Arch) -> Result<Lowered, LowerError> {
    let joined = join::joined(func);
    let func = joined.as_ref().unwrap_or(func);
    let align = Alignment::of(func);
    let mut context = Context::default();
    pressure::check(func, threads::team(func, arch, &align), &mut context)?;
    note_idle(func, &mut context);
    for &mechanism in Mechanism::of(arch) {
        // What exchanges need is known afterwards; what runs ahead gets the rest.
        let mut scratch = 0;
        for attempt in 0..3 {
            let pipeline = Pipeline::of(func, arch, &align, (mechanism, scratch));
            if attempt == 0 || pipeline.is_empty() {
                for (loc, why) in &pipeline.refused {
                    context.remark("tile", func, *loc, RemarkKind::Missed, why.clone());
                }
            }
            if pipeline.is_empty() {
                break;
            }
            let mut context = context.clone();
            for (loc, what) in pipeline.describe(func) {
                context.remark("tile", func, loc, RemarkKind::Applied, what);
            }
            let (lowered, used) = lower_with(func, arch, align.clone(), Some(pipeline), (scratch, context))?;
            let fits = shared_bytes(&lowered.func, &lowered.func.walk()) <= arch.limits().shared_per_block;
            if fits && (attempt == 2 || used <= scratch) {
                return Ok(lowered);
            }
            scratch = used;
        }
    }
    let (lowered, used) = lower_with(func, arch, align.clone(), None, (fetch::EXCHANGES, context.clone()))?;
    let has_begun = |&op: &Op| lowered.func.op(op).code == Opcode::CpAsync;
    if used <= fetch::EXCHANGES || !lowered.func.walk().iter().any(has_begun) {
        return fitting(lowered, arch);
    }
    // What begins before its place in the text gets what exchanges leave.
    fitting(lower_with(func, arch, align, None, (used, context))?.0, arch)
}

/// Says so if nothing that a function computes leaves it.
fn note_idle(func: &Func, context: &mut Context) {
    let ops = func.walk();
    let acts = |&op: &Op| {
        let data = func.op(op);
        let writes = data.info().effects.accesses.iter().any(|access| access.kind != AccessKind::Read);
        writes || data.code == Opcode::Assert
    };
    // The last with a place in the source, which a terminator may not have.
    let last = ops.iter().rev().map(|&op| func.op(op).loc).find(|&loc| func.locations.get(loc).is_some());
    if let Some(loc) = last.filter(|_| !ops.iter().any(acts)) {
        let what = "the kernel ends here and has stored nothing, so what it computes is dropped";
        context.remark("tile", func, loc, RemarkKind::Missed, what.to_owned());
    }
}

/// What was lowered, if a block has the shared memory for it.
fn fitting(lowered: Lowered, arch: Arch) -> Result<Lowered> {
    let func = &lowered.func;
    let mut pieces: Vec<(u32, u32, Loc)> = shared(func, &func.walk()).collect();
    // As they will lie: the most aligned first.
    pieces.sort_by_key(|&(_, align, _)| std::cmp::Reverse(align));
    let place = |end: u32, &(bytes, align, _): &(u32, u32, Loc)| {
        end.checked_next_multiple_of(align).and_then(|start| start.checked_add(bytes)).unwrap_or(u32::MAX)
    };
    let (found, limit) = (pieces.iter().fold(0, place), arch.limits().shared_per_block);
    if found <= limit {
        return Ok(lowered);
    }
    let largest = pieces.iter().max_by_key(|(bytes, ..)| *bytes);
    let location = largest.and_then(|&(.., loc)| func.locations.get(loc)).map(|at| at.to_string());
    Err(LowerError::SharedMemory { found, limit, arch, location })
}

/// The shared memory that ops of a function reserve: bytes, alignment, and the place in the source that needs it.
fn shared(func: &Func, ops: &[Op]) -> impl Iterator<Item = (u32, u32, Loc)> {
    let ops = ops.iter().map(|&op| func.op(op)).filter(|data| data.code == Opcode::Shared);
    ops.map(|data| {
        let (Bytes(bytes), Align(align)) = (data.get().unwrap_or(Bytes(0)), data.get().unwrap_or(Align(1)));
        (bytes, align.max(1), data.loc)
    })
}

/// Shared memory that ops of a function reserve, with what alignment may cost.
fn shared_bytes(func: &Func, ops: &[Op]) -> u32 {
    shared(func, ops).map(|(bytes, align, _)| bytes.next_multiple_of(align.max(16))).sum()
}

/// With loads that run ahead, or without, and so much shared memory for exchanges; and how much they took.
fn lower_with(
    func: &Func,
    arch: Arch,
    align: Alignment,
    pipeline: Option<Pipeline>,
    (exchanges, context): (u32, Context),
) -> Result<(Lowered, u32), LowerError> {
    let plan = Plan::of(func, arch, &align, pipeline.as_ref());
    let specialises = pipeline.as_ref().is_some_and(|pipeline| pipeline.mechanism == Mechanism::Engine);
    let mut target = Func::new(func.name.clone());
    target.launch = func.launch;
    let beside = |p: &Pipeline| engine::loaders(p.teams * p.warps, p.blocks);
    let loaders = pipeline.as_ref().filter(|_| specialises).map_or(0, beside);
    let teams = pipeline.as_ref().map_or(1, |pipeline| pipeline.teams);
    target.launch.threads = Some([(teams * plan.team.warps + loaders) * 32, 1, 1]);
    let blocks = pipeline.as_ref().map_or_else(|| threads::resident(&plan, func), |pipeline| pipeline.blocks);
    target.launch.min_blocks = func.launch.min_blocks.or(Some(blocks));
    target.launch.cluster = (plan.team.blocks > 1).then_some([plan.team.blocks, 1, 1]);
    target.locations = func.locations.clone();
    let resident = pipeline.as_ref().filter(|p| specialises && p.takes_turns(func)).map(|_| blocks);
    let mut lowering = Lowering {
        source: func,
        arch,
        align,
        plan,
        builder: Builder::new(target),
        prologue: Vec::new(),
        constants: HashMap::new(),
        positions: Positions::default(),
        scratch: Scratch::default(),
        signals: None,
        round: None,
        held: vec![None; func.value_count()],
        specialises,
        pipeline,
        map_values: Vec::new(),
        panels: None,
        programs: None,
        program: None,
        standing: None,
        turns: Vec::new(),
        backwards: None,
        ring: None,
        fetched: HashMap::new(),
        begun: 0,
        own: HashMap::new(),
        exchanges,
        loads: false,
        turn: None,
        handed_out: false,
        stores: false,
        rounds: 0,
        kept: HashMap::new(),
        places: HashMap::new(),
        loc: Loc::NONE,
        context,
    };
    for (param, &value) in func.params.iter().zip(&func.region(func.body()).args) {
        let own = lowering.builder.func.add_param(param.name.clone(), func.ty(value), param.align);
        lowering.held[value.index()] = Some(Held::Scalar(own));
    }
    for map in lowering.pipeline.iter().flat_map(|pipeline| pipeline.maps.clone()).collect::<Vec<_>>() {
        let value = lowering.builder.func.add_param(map.name, Type::TensorMap, 0);
        lowering.map_values.push(value);
    }
    lowering.programs =
        resident.map(|_| PROGRAMS.map(|name| lowering.builder.func.add_param(name, Type::U32, 0)));
    if lowering.specialises {
        lowering.specialised()?;
    } else {
        lowering.announce();
        lowering.overlap();
        lowering.region(func.body())?;
        lowering.await_others();
    }
    let scratch = lowering.scratch.size();
    Ok((Lowered { resident, ..lowering.finish() }, scratch))
}

/// The names of the parameters that say how many programs there are.
const PROGRAMS: [&str; 3] = ["programs_x", "programs_y", "programs_z"];

/// The ops of a region in the order in which they are lowered: what is computed from positions and scalars alone comes right before its
/// first use. Made where it is written, a mask would take registers while a product runs that it has nothing to do with.
fn order(func: &Func, region: Region) -> Vec<Op> {
    let ops = &func.region(region).ops;
    let mut free: Vec<Op> = Vec::new();
    for &op in ops {
        let data = func.op(op);
        let is_free = |&value: &Value| {
            assign::is_free(func, value) || func.def_op(value).is_some_and(|made_by| free.contains(&made_by))
        };
        if data.code == Opcode::Map && data.operands.iter().all(is_free) {
            free.push(op);
        }
    }
    let mut ordered: Vec<Op> = Vec::with_capacity(ops.len());
    // Backwards, so that users stand before what they use.
    for &op in ops.iter().rev() {
        let uses = |user: &Op| {
            let mut inside = vec![*user];
            func.op(*user).regions.iter().for_each(|&inner| func.walk_region(inner, &mut inside));
            let results = &func.op(op).results;
            inside.iter().any(|&user| func.op(user).operands.iter().any(|value| results.contains(value)))
        };
        let place = if free.contains(&op) { ordered.iter().rposition(uses) } else { None };
        ordered.insert(place.map_or(ordered.len(), |user| user + 1), op);
    }
    ordered.reverse();
    ordered
}

/// What stands for a value of the tile level.
#[derive(Debug, Clone)]
enum Held {
    /// A scalar.
    Scalar(Value),
    /// A tile whose elements are all this.
    Splat(Value),
    /// A tile whose elements are their position along an axis.
    Iota(usize),
    /// Another tile whose elements are converted wherever they are used: halves as f32.
    Widened(Value),
    /// The registers of a thread.
    Tile(Tile),
}

/// A tile, as a thread sees it.
#[derive(Debug, Clone)]
struct Tile {
    layout: Rc<Layout>,
    registers: Vec<Value>,
}

type Result<T, E = LowerError> = std::result::Result<T, E>;

struct Lowering<'a> {
    source: &'a Func,
    arch: Arch,
    align: Alignment,
    plan: Plan,
    builder: Builder,
    /// Ops that stand before all others: constants, and what threads know of themselves.
    prologue: Vec<Op>,
    constants: HashMap<(Type, u64), Value>,
    positions: Positions,
    scratch: Scratch,
    /// How the blocks of a cluster tell each other what they sent.
    signals: Option<Signals>,
    held: Vec<Option<Held>>,
    /// Loads that run ahead, and whether a warp of its own makes them; the maps that it copies through.
    pipeline: Option<Pipeline>,
    specialises: bool,
    map_values: Vec<Value>,
    /// Shared memory for tiles on their way out.
    panels: Option<Value>,
    /// If programs take turns: how many there are, and whose turn it is.
    programs: Option<[Value; 3]>,
    program: Option<[Value; 3]>,
    /// If warpgroups have programs of their own: which one this is.
    standing: Option<teams::Standing>,
    /// The loops in which they do.
    turns: Vec<Op>,
    /// Whether the loader is at a program that it goes through from its end.
    backwards: Option<Value>,
    ring: Option<Ring>,
    /// Loads that have begun before their place in the text, how many there were, and what exchanges need of shared memory.
    fetched: HashMap<Op, fetch::Fetched>,
    begun: u32,
    /// Loads of a loop that begin rounds before.
    own: HashMap<Op, rounds::Own>,
    exchanges: u32,
    /// Whether this is the code of that warp.
    loads: bool,
    /// The iteration of a loop whose factors are loaded ahead.
    turn: Option<Turn>,
    /// Whether what is stored is left to a warp that stores, and whether this is its code.
    handed_out: bool,
    stores: bool,
    /// Loops around what is being lowered.
    rounds: u32,
    /// Which round of a loop this is, if they are counted and this is no branch in it.
    round: Option<Value>,
    /// Left factors that stay in shared memory while a loop runs.
    kept: HashMap<Value, Value>,
    /// The accumulators of products whose sums stay there while a loop runs.
    places: HashMap<Op, Vec<Value>>,
    loc: Loc,
    context: Context,
}

/// One round of a loop whose factors are loaded ahead.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Products that are still to come, of how many.
    left: usize,
    all: usize,
    /// Whether there was a round before.
    again: Option<Value>,
    /// If all sums stay in accumulators: the slot of that round, which is given back in this one.
    last: Option<Value>,
}

impl Lowering<'_> {
    fn finish(mut self) -> Lowered {
        self.place_scratch();
        if self.teams() > 1 {
            // One warpgroup has twice the sums that two have, and registers for little else.
            for &turns in &self.turns {
                let body = self.builder.func.op(turns).regions[0];
                sink::finish_one_by_one(&mut self.builder.func, body);
            }
        }
        sink::sink(&mut self.builder.func, self.prologue, &self.turns);
        let maps = self.pipeline.map(|pipeline| pipeline.maps).unwrap_or_default();
        Lowered { func: self.builder.finish(), maps, resident: None, remarks: self.context.remarks }
    }

    fn team(&self) -> Team {
        self.plan.team
    }

    /// Ops of a region in order; the terminator is the caller's.
    fn region(&mut self, region: Region) -> Result<()> {
        let source = self.source;
        let ops = order(source, region);
        let waits = |op: &Op| matches!(source.op(*op).code, Opcode::TileReduce | Opcode::TileScan);
        let first_wait = ops.iter().position(waits).filter(|_| region == source.body());
        for (i, &op) in ops.iter().enumerate() {
            let data = source.op(op);
            if first_wait == Some(i) {
                self.fetch(&ops[i..]);
            }
            self.loc = data.loc;
            if !data.info().is_terminator() {
                if self.loads { self.loader_op(op, data)? } else { self.op(op, data)? }
            }
        }
        Ok(())
    }

    /// What a warp that loads ahead or stores does: scalars, loops, and the copies.
    fn loader_op(&mut self, op: Op, data: &OpData) -> Result<()> {
        let scalars = data.results.iter().any(|&result| self.source.ty(result).shape().is_none());
        let ahead = data.regions.iter().any(|&region| self.runs_ahead(region));
        match data.code {
            Opcode::TileStore if self.stores && self.is_outgoing(op) => self.send_out(data),
            Opcode::TileLoad if self.stores => {}
            Opcode::TileLoad => self.start_copy(op, data),
            Opcode::For if ahead && !self.stores || scalars => self.for_loop(data)?,
            Opcode::While if scalars => self.while_loop(data)?,
            Opcode::If if scalars => self.branch(data)?,
            Opcode::For | Opcode::While | Opcode::If | Opcode::Assert | Opcode::BulkPrefetch => {}
            _ if data.info().group == Group::Program => {}
            _ => self.copy(data),
        }
        Ok(())
    }

    fn op(&mut self, op: Op, data: &OpData) -> Result<()> {
        if self.staged(op).is_some() {
            return Ok(());
        }
        match data.code {
            Opcode::Splat => {
                let value = self.scalar(data.operands[0]);
                self.hold(data.results[0], Held::Splat(value));
            }
            Opcode::Iota => {
                let axis = data.get().map_or(0, |tilewright_ir::Axis(axis)| usize::from(axis));
                self.hold(data.results[0], Held::Iota(axis));
            }
            Opcode::Poison => self.poison(data.results[0]),
            Opcode::Broadcast => self.broadcast(data),
            Opcode::Reshape => self.reshape(data),
            Opcode::Transpose if self.is_staged(data.operands[0]) => {}
            Opcode::Transpose => self.transpose(data),
            Opcode::Cat => self.cat(data),
            Opcode::Part => self.part(data),
            Opcode::Take => self.take(data),
            Opcode::Item => self.item(data),
            Opcode::Map => self.map(data),
            Opcode::TileReduce => self.reduce(data),
            Opcode::TileScan => self.scan(data),
            Opcode::Dot => self.dot(op, data),
            Opcode::TileLoad if self.pick_fetched(op, data) || self.pick_own(op, data) => {}
            Opcode::TileLoad => self.load(data)?,
            Opcode::TileStore if self.copy_out(op, data) => {}
            Opcode::TileStore => self.store(op, data)?,
            Opcode::Gather => self.gather(data),
            Opcode::Scatter => self.scatter(data),
            Opcode::TileAtomic | Opcode::TileAtomicCas => self.atomic(data)?,
            Opcode::BulkPrefetch => self.prefetch(data),
            Opcode::Fence => self.fence(data),
            Opcode::For => self.for_loop(data)?,
            Opcode::While => self.while_loop(data)?,
            Opcode::If => self.branch(data)?,
            _ => self.copy(data),
        }
        Ok(())
    }

    /// An op on scalars stays what it is, but for the number of the program: programs may be clusters.
    fn copy(&mut self, data: &OpData) {
        if matches!(data.code, Opcode::Load | Opcode::LoadIf) && !self.loads {
            let root = self.root(data.operands[0]);
            self.touch_global(Touched { root, writes: false, place: None, in_text: true, by: None });
        }
        let in_turn = data.get::<Special>().and_then(|special| {
            let (numbers, axis) = match special {
                Special::CtaidX => (self.program, 0),
                Special::CtaidY => (self.program, 1),
                Special::CtaidZ => (self.program, 2),
                Special::NctaidX => (self.programs, 0),
                Special::NctaidY => (self.programs, 1),
                Special::NctaidZ => (self.programs, 2),
                _ => return None,
            };
            numbers.map(|numbers| numbers[axis])
        });
        if let Some(own) = in_turn {
            self.hold(data.results[0], Held::Scalar(own));
            return;
        }
        let mut attrs = data.attrs.to_vec();
        if self.team().blocks > 1
            && let Some(special) = data.get::<Special>()
        {
            let of_cluster = match special {
                Special::CtaidX => Special::ClusteridX,
                Special::NctaidX => Special::NclusteridX,
                other => other,
            };
            attrs = vec![of_cluster.into()];
        }
        let operands: Vec<Value> = data.operands.iter().map(|&v| self.scalar(v)).collect();
        let types: Vec<Type> = data.results.iter().map(|&v| self.source.ty(v)).collect();
        if data.code == Opcode::Const {
            let bits = data.get().map_or(0, |Constant(bits)| bits);
            let value = self.constant(types[0], bits);
            self.hold(data.results[0], Held::Scalar(value));
            return;
        }
        let op = self.push(data.code, operands, attrs, types);
        for (i, &result) in data.results.iter().enumerate() {
            let own = self.builder.func.op(op).results[i];
            self.hold(result, Held::Scalar(own));
        }
    }

    // ---- Values --------------------------------------------------------------------------------------------------------

    fn hold(&mut self, value: Value, held: Held) {
        self.held[value.index()] = Some(held);
    }

    fn hold_tile(&mut self, value: Value, layout: Rc<Layout>, registers: Vec<Value>) {
        self.hold(value, Held::Tile(Tile { layout, registers }));
    }

    /// What stands for a scalar of the source.
    fn scalar(&mut self, value: Value) -> Value {
        match self.held[value.index()] {
            Some(Held::Scalar(own)) => own,
            // The verifier has seen that every value is defined and of its type.
            _ => self.constant(Type::U32, 0),
        }
    }

    /// The layout that was chosen for a tile.
    fn layout(&self, value: Value) -> Rc<Layout> {
        let shape = self.shape(value);
        self.plan.layout(value).unwrap_or_else(|| {
            let order: Vec<usize> = (0..shape.rank()).rev().collect();
            Rc::new(Layout::blocked(shape, &order, 1, self.plan.team))
        })
    }

    fn shape(&self, value: Value) -> tilewright_ir::Shape {
        // A scalar never comes here; a shape of one element stands for it if it did.
        self.source
            .ty(value)
            .shape()
            .or_else(|| tilewright_ir::Shape::new(&[1]))
            .unwrap_or_else(|| unreachable!())
    }

    fn element(&self, value: Value) -> Element {
        self.source.ty(value).element().unwrap_or(Element::U32)
    }

    /// The layout that a tile is held in, if it is in registers.
    fn held_layout(&self, value: Value) -> Option<Rc<Layout>> {
        match &self.held[value.index()] {
            Some(Held::Tile(tile)) => Some(tile.layout.clone()),
            Some(Held::Widened(narrow)) => self.held_layout(*narrow),
            _ => None,
        }
    }

    /// The registers of a tile in its own layout.
    fn tile(&mut self, value: Value) -> Tile {
        let layout = self.held_layout(value).unwrap_or_else(|| self.layout(value));
        self.tile_in(value, &layout)
    }

    /// The registers of a tile in a layout, exchanged between threads if need be.
    fn tile_in(&mut self, value: Value, layout: &Rc<Layout>) -> Tile {
        let registers = match self.held[value.index()].clone() {
            Some(Held::Tile(tile)) => return self.convert(tile, layout, self.element(value)),
            Some(Held::Splat(one)) => vec![one; layout.count()],
            Some(Held::Iota(axis)) => self.coordinates(layout, axis),
            Some(Held::Widened(narrow)) => {
                let ty = Type::Scalar(self.element(value));
                let narrow = self.tile_in(narrow, layout).registers;
                narrow.into_iter().map(|half| self.value(Opcode::Cvt, [half], [], ty)).collect()
            }
            Some(Held::Scalar(_)) | None => {
                let zero = self.constant(Type::Scalar(self.element(value)), 0);
                vec![zero; layout.count()]
            }
        };
        Tile { layout: layout.clone(), registers }
    }

    fn poison(&mut self, value: Value) {
        let ty = self.source.ty(value);
        let zero = self.constant(ty.element().map_or(ty, Type::Scalar), 0);
        let held = if ty.shape().is_some() { Held::Splat(zero) } else { Held::Scalar(zero) };
        self.hold(value, held);
    }

    // ---- Emitting ------------------------------------------------------------------------------------------------------

    fn push(
        &mut self,
        code: Opcode,
        operands: impl IntoIterator<Item = Value>,
        attrs: impl IntoIterator<Item = Attr>,
        results: impl IntoIterator<Item = Type>,
    ) -> Op {
        let op = self.builder.func.new_op(code, operands, attrs, results, self.loc);
        let region = self.builder.region();
        self.builder.func.region_mut(region).ops.push(op);
        op
    }

    /// Appends an op with one result.
    fn value(
        &mut self,
        code: Opcode,
        operands: impl IntoIterator<Item = Value>,
        attrs: impl IntoIterator<Item = Attr>,
        ty: Type,
    ) -> Value {
        let op = self.push(code, operands, attrs, [ty]);
        self.builder.func.op(op).results[0]
    }

    fn binary(&mut self, code: Opcode, a: Value, b: Value) -> Value {
        let ty = self.builder.func.ty(a);
        self.value(code, [a, b], [], ty)
    }

    /// A value that is made before everything else, out of values of that kind only.
    fn early(
        &mut self,
        code: Opcode,
        operands: impl IntoIterator<Item = Value>,
        attrs: impl IntoIterator<Item = Attr>,
        ty: Type,
    ) -> Value {
        let op = self.builder.func.new_op(code, operands, attrs, [ty], Loc::NONE);
        self.prologue.push(op);
        self.builder.func.op(op).results[0]
    }

    fn constant(&mut self, ty: Type, bits: u64) -> Value {
        if let Some(&known) = self.constants.get(&(ty, bits)) {
            return known;
        }
        let value = self.early(Opcode::Const, [], [Constant(bits).into()], ty);
        self.constants.insert((ty, bits), value);
        value
    }

    fn u32(&mut self, value: u32) -> Value {
        self.constant(Type::U32, u64::from(value))
    }

    fn i64(&mut self, value: i64) -> Value {
        self.constant(Type::I64, canonical(Element::I64, value.cast_unsigned()))
    }

    /// Opens a region of `op`, fills it, and ends it with what `body` returns.
    fn fill(&mut self, op: Op, body: impl FnOnce(&mut Self, Region) -> Result<Vec<Value>>) -> Result<()> {
        let region = self.builder.open(op);
        let end = body(self, region)?;
        self.push(Opcode::Yield, end, [], []);
        self.builder.close();
        Ok(())
    }

    /// What is done where a condition holds.
    fn only_where(&mut self, condition: Value, what: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let op = self.push(Opcode::If, [condition], [], []);
        self.fill(op, |this, _| what(this).map(|()| Vec::new()))?;
        self.fill(op, |_, _| Ok(Vec::new()))
    }

    /// The same of what has no errors; everywhere if there is no condition.
    fn only_if(&mut self, condition: Option<Value>, what: impl FnOnce(&mut Self)) {
        let Some(condition) = condition else { return what(self) };
        // Nothing in there can fail.
        let _ = self.only_where(condition, |this| {
            what(this);
            Ok(())
        });
    }

    fn remark(&mut self, kind: RemarkKind, message: String) {
        let source = self.source;
        self.context.remark("tile", source, self.loc, kind, message);
    }

    fn unsupported(&self, data: &OpData, problem: impl Into<String>) -> LowerError {
        let location = self.source.locations.get(data.loc).map(|at| at.to_string());
        LowerError::Unsupported { op: data.info().mnemonic, problem: problem.into(), location }
    }
}
