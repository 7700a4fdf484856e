//! Loads that run ahead: which factors of matrix products in a loop are brought to shared memory before they are needed, and by whom.
//!
//! A load takes part if its tile is a factor of a `dot` in the same loop body and nothing else, its elements lie side by side along one
//! axis, in vectors of 16 bytes, and what is outside of the tensor counts as zero. Then one of two [`Mechanism`]s brings it:
//!
//! * the copy engine of Hopper, if the host can describe the tensor to it ([`engine`](super::engine));
//! * all threads with `cp.async`, if its place in memory follows from the loop's counter alone ([`copies`](super::copies)).
//!
//! A left factor of warpgroups that does not run ahead stays in registers, or in shared memory of its own ([`Left`]).
//! What all loads of one loop body bring is one *slot* of a ring. Whatever is refused leaves a remark at the author's line: what was
//! missing, and what to do. [`factors`](super::factors) asks these questions of one load; this file decides for a function.

use std::collections::HashMap;

use tilewright_hardware::{Arch, TensorMapSpec, TileBoxes, mma, occupancy};
use tilewright_ir::{Def, Element, Func, Loc, Op, OpData, Opcode, Region, Shape, Uses, Value};
use tilewright_layout::Composed;
use tilewright_passes::Alignment;

use super::dot::{self, Lines};
use super::engine::loaders;
use super::factors::{Analysis, is_written};
use super::outgoing::Outgoing;
use super::teams::TEAMS;

/// Threads of a warpgroup.
pub(super) const WARPGROUP: u32 = 128;

/// What barriers may need.
const BARRIERS: u32 = 2 * 1024;

/// Registers of a thread that multiplies, where its sums are small.
const REGISTERS: u32 = 128;

/// Why factors of many matrices stay behind.
const MANY: &str = "it is one of many matrices; let each program multiply one of each";

/// A tensor map that a launch must make: parameters that the kernel has beyond those of its author.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapParameter {
    /// The name of the parameter.
    pub name: String,
    /// The name of the parameter that points to the tensor.
    pub pointer: String,
    /// What the copies rely on.
    pub spec: TensorMapSpec,
    /// Extents of the tensor, innermost first.
    pub extents: Vec<Number>,
    /// Strides in elements, innermost first; the first is 1.
    pub strides: Vec<Number>,
}

/// A number that the host knows when it launches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Number {
    /// The argument of this name.
    Parameter(String),
    /// This.
    Constant(i64),
    /// As many as the memory behind the pointer has room for: an axis that the kernel indexes without asking how far it goes.
    All,
}

/// Who brings factors to shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mechanism {
    /// The copy engine, told by a warp of its own; warpgroups multiply.
    Engine,
    /// All threads, with `cp.async`; warps multiply.
    Threads,
}

impl Mechanism {
    /// What a chip has, the best first.
    pub(super) fn of(arch: Arch) -> &'static [Mechanism] {
        if arch.supports(Arch::SM_90A) {
            &[Mechanism::Engine, Mechanism::Threads]
        } else if arch.supports(Arch::SM_80) {
            &[Mechanism::Threads]
        } else {
            &[]
        }
    }

    /// Slots that a ring has at most: what hides the latency of memory, and no more.
    fn most_stages(self) -> u32 {
        match self {
            Mechanism::Engine => 8,
            Mechanism::Threads => 4,
        }
    }
}

/// One load that runs ahead.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    /// What the tensor core takes it for.
    pub(super) element: Element,
    /// Where it is in its slot, and how long, in bytes.
    pub(super) offset: u32,
    pub(super) bytes: u32,
    /// Axis of the load that is contiguous in memory.
    pub(super) fast: usize,
    pub(super) form: Form,
}

/// How a tile lies in shared memory.
#[derive(Debug, Clone)]
pub(super) enum Form {
    /// As the copy engine writes it and warpgroups read it, as `(row, k)`.
    Boxes { tile: Composed, boxes: TileBoxes, map: usize, outer: Option<Outer> },
    /// Line by line, along `fast`; whether that is the axis of k.
    Lines { lines: Lines, along_k: bool },
}

/// One more axis of a tensor, of which a load sees one index: a matrix of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Outer {
    pub(super) index: Value,
    pub(super) stride: Value,
}

/// A product of warpgroups, whose right factor the copy engine loads ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    pub(super) left: Left,
    pub(super) right: Op,
    pub(super) atom: &'static mma::Mma,
}

/// Where warpgroups take their left factor from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Shared memory: this load runs ahead, too.
    Ahead(Op),
    /// Registers, held like sums: what was computed, or loaded before the loop.
    Registers(Value),
    /// Shared memory of its own, written before the loop: what stays the same and would take too many registers.
    Kept(Value),
}

/// What a loop body loads ahead.
#[derive(Debug, Clone, Default)]
pub(super) struct Loads {
    /// The loads, in order.
    pub(super) loads: Vec<Op>,
    /// The scalars of the body that their places in memory follow from, in order.
    pub(super) scalars: Vec<Op>,
}

/// All of it for one function.
#[derive(Debug, Clone)]
pub(super) struct Pipeline {
    pub(super) mechanism: Mechanism,
    pub(super) loads: HashMap<Op, Staged>,
    pub(super) products: HashMap<Op, Product>,
    /// By loop body.
    pub(super) groups: HashMap<Region, Loads>,
    pub(super) maps: Vec<MapParameter>,
    pub(super) slot_bytes: u32,
    pub(super) stages: u32,
    /// Blocks that shall share a multiprocessor.
    pub(super) blocks: u32,
    /// Warps that multiply for one program, and how many teams of them have programs of their own.
    pub(super) warps: u32,
    pub(super) teams: u32,
    /// Shared memory that exchanges need beside the ring.
    scratch: u32,
    /// The store that goes through shared memory.
    pub(super) outgoing: Option<Outgoing>,
    /// What was refused, and why.
    pub(super) refused: Vec<(Loc, String)>,
}

/// Why something is not done: what was found, and what to do.
pub(super) type Refusal = String;

impl Pipeline {
    /// What a mechanism can load ahead in a function, with so much shared memory for exchanges.
    pub(super) fn of(
        func: &Func,
        arch: Arch,
        align: &Alignment,
        (mechanism, scratch): (Mechanism, u32),
    ) -> Pipeline {
        let mut found = Pipeline {
            mechanism,
            loads: HashMap::new(),
            products: HashMap::new(),
            groups: HashMap::new(),
            maps: Vec::new(),
            slot_bytes: 0,
            stages: 0,
            blocks: 1,
            warps: 0,
            teams: 1,
            scratch,
            outgoing: None,
            refused: Vec::new(),
        };
        let bodies = loop_bodies(func, func.body(), mechanism);
        let reached: Vec<Op> = bodies.iter().flat_map(|&body| func.region(body).ops.clone()).collect();
        for (op, around) in dots_in_loops(func, func.body(), (false, "a `for` loop")) {
            if !reached.contains(&op) {
                let why = format!(
                    "not loaded ahead: this stands in {around}; multiply in the body of a `for` loop"
                );
                found.refuse(func.op(op).loc, why);
            }
        }
        let has_dot = |&region: &Region| func.region(region).ops.iter().any(|&op| is_dot(func, op));
        if !bodies.iter().any(has_dot) {
            return found;
        }
        let analysis = Analysis { func, arch, align, uses: Uses::of(func) };
        for &body in bodies.iter().filter(|body| has_dot(body)) {
            match mechanism {
                Mechanism::Engine => found.for_engine(&analysis, body),
                Mechanism::Threads => found.for_threads(&analysis, body),
            }
        }
        if let Err(why) = found.fit(&analysis) {
            found.loads.clear();
            let first = bodies.iter().flat_map(|&body| &func.region(body).ops).find(|&&op| is_dot(func, op));
            found.refused.push((first.map_or(Loc::NONE, |&op| func.op(op).loc), why));
        }
        found
    }

    /// What is done, loop by loop, for the author.
    pub(super) fn describe(&self, func: &Func) -> Vec<(Loc, String)> {
        let who = match self.mechanism {
            Mechanism::Engine => "the copy engine",
            Mechanism::Threads => "threads",
        };
        let mut groups: Vec<&Vec<Op>> = self.groups.values().map(|group| &group.loads).collect();
        groups.sort_unstable();
        let one = |loads: &&Vec<Op>| {
            let bytes: u32 = loads.iter().map(|op| self.loads[op].bytes).sum();
            let (verb, count) = (if self.mechanism == Mechanism::Engine { "s" } else { "" }, loads.len());
            let factors = if count == 1 { "factor" } else { "factors" };
            let turns = if self.teams > 1 { "; two programs take turns in a block" } else { "" };
            let what = format!(
                "{who} load{verb} this ahead: {count} {factors} of {bytes} bytes in a ring of {} slots{turns}",
                self.stages
            );
            (func.op(loads[0]).loc, what)
        };
        groups.iter().map(one).collect()
    }

    /// Whether there is nothing to load ahead.
    pub(super) fn is_empty(&self) -> bool {
        self.loads.is_empty()
    }

    /// Decides how many warps multiply, how many blocks share a multiprocessor, and how many slots each has.
    fn fit(&mut self, analysis: &Analysis<'_>) -> Result<(), Refusal> {
        if self.is_empty() {
            return Ok(());
        }
        // What exchanges need would have to be there for each team.
        if self.scratch == 0 && self.makes_teams(analysis.func) {
            let maps = self.maps.len();
            let done = self.fit_teams(analysis, TEAMS);
            if done.is_ok() && self.outgoing.is_some() && self.stages >= 3 {
                return Ok(());
            }
            self.maps.truncate(maps);
            self.outgoing = None;
        }
        self.fit_teams(analysis, 1)
    }

    fn fit_teams(&mut self, analysis: &Analysis<'_>, teams: u32) -> Result<(), Refusal> {
        self.teams = teams;
        let (func, arch) = (analysis.func, analysis.arch);
        let shape = |op: &Op| func.ty(func.op(*op).results[0]).shape();
        let asked = func.launch.total_threads();
        let mut sums: Vec<Op> = self.products.keys().copied().collect();
        match self.mechanism {
            Mechanism::Engine => {
                let halves = |op: &Op| shape(op).is_some_and(|s| s.extents()[0] % 128 == 0);
                self.warps = if teams == 1 && sums.iter().all(halves) { 8 } else { 4 };
                if asked.is_some_and(|threads| threads != 32 * self.warps) {
                    return Err(format!(
                        "not multiplied by warpgroups: the kernel asks for {} threads; ask for {} or leave it open",
                        asked.unwrap_or(0),
                        32 * self.warps
                    ));
                }
            }
            Mechanism::Threads => {
                self.warps = asked.map_or_else(|| dot::warps(func), |threads| threads.div_ceil(32));
                sums = func.walk().into_iter().filter(|&op| is_dot(func, op)).collect();
            }
        }
        let most = sums.iter().filter_map(shape).map(|s| s.elements()).max().unwrap_or(0) / (32 * self.warps);
        if self.mechanism == Mechanism::Engine && most > 2 * WARPGROUP {
            return Err(format!(
                "not multiplied by warpgroups: {most} sums for each thread do not fit its registers; take smaller tiles"
            ));
        }
        // Many sums leave no registers for a second block.
        let limits = arch.limits();
        let wanted = match self.mechanism {
            _ if most > 64 => 1,
            Mechanism::Engine => {
                let threads = 32 * (self.warps + 1);
                occupancy(arch, threads, self.registers(func), 0).blocks_per_sm.clamp(1, 2)
            }

            Mechanism::Threads => (limits.registers_per_sm / (REGISTERS * 32 * self.warps)).max(1),
        };
        let kept: u32 = self
            .products
            .values()
            .map(|product| match product.left {
                Left::Kept(value) => func.ty(value).bits() / 8,
                _ => 0,
            })
            .sum();
        let room = |this: &Pipeline| {
            let beside = this.scratch + kept + this.outgoing.as_ref().map_or(0, Outgoing::bytes);
            let slots = |blocks: u32| {
                let all = (limits.shared_per_block - BARRIERS) / blocks;
                all.saturating_sub(beside) / this.slot_bytes.max(1)
            };
            let blocks = (1..=wanted).rev().find(|&blocks| slots(blocks) >= 3).unwrap_or(1);
            (blocks, slots(blocks).min(this.mechanism.most_stages()))
        };
        if self.mechanism == Mechanism::Engine {
            let shapes: Vec<Shape> = sums.iter().filter_map(shape).collect();
            let is_product = |extents: &[u32]| shapes.iter().any(|s| s.extents() == extents);
            let outgoing = Outgoing::of(func, analysis.align, teams, is_product);
            let storer = teams == 1 && loaders(self.warps, wanted) > 1 && self.takes_turns(func);
            if let Some(mut outgoing) =
                outgoing.and_then(|outgoing| self.make_room((&outgoing, storer), room))
            {
                let spec = outgoing.boxes.spec.clone();
                outgoing.map = analysis.map(outgoing.op, &spec, (1, None), &mut self.maps);
                self.outgoing = Some(outgoing);
            }
        }
        let (blocks, stages) = room(self);
        (self.blocks, self.stages) = (blocks, stages);
        if stages < 2 {
            return Err(format!(
                "not loaded ahead: two times {} bytes of factors do not fit shared memory; take smaller tiles",
                self.slot_bytes
            ));
        }
        Ok(())
    }

    /// Gives a store as many panels as leave the ring what it needs. If there is a warp to spare that can store, that is three slots, so that
    /// there may be room for all panels and nobody who multiplies has to wait for one; if not, four slots, or three if there is no other
    /// way. With teams, which store while another multiplies, it is as many slots as the fewest panels leave.
    fn make_room(
        &mut self,
        (outgoing, storer): (&Outgoing, bool),
        room: impl Fn(&Pipeline) -> (u32, u32),
    ) -> Option<Outgoing> {
        let enough = outgoing.panels.min(2);
        let with = |slots: u32| {
            let by_storer = storer && slots == outgoing.panels;
            Outgoing { slots, by_storer, ..outgoing.clone() }
        };
        let ways: Vec<Outgoing> = outgoing.rings().filter(|slots| *slots >= enough).map(with).collect();
        if self.teams > 1 {
            self.outgoing = ways.last().cloned();
        }
        let most = room(self).1;
        let wanted = if self.teams > 1 { [most; 2] } else { [4, 3] };
        let mut leaves = |way: &Outgoing, stages: u32| {
            self.outgoing = Some(way.clone());
            room(self).1 >= stages.min(most)
        };
        let stored = ways.iter().find(|way| way.by_storer && leaves(way, 3));
        let found = stored
            .or_else(|| wanted.into_iter().find_map(|stages| ways.iter().find(|way| leaves(way, stages))));
        self.outgoing = None;
        found.cloned()
    }

    /// Whether programs may take turns in a block: each has as many products as the others, so that nobody waits for a long one.
    pub(super) fn takes_turns(&self, func: &Func) -> bool {
        let ahead = |op: Op| {
            let mut inside = Vec::new();
            func.op(op).regions.iter().for_each(|&region| func.walk_region(region, &mut inside));
            inside.iter().any(|op| self.loads.contains_key(op))
        };
        let loops = func.walk().into_iter().filter(|&op| func.op(op).code == Opcode::For && ahead(op));
        loops.into_iter().all(|op| func.op(op).operands[..3].iter().all(|&bound| is_common(func, bound)))
    }

    /// Products of a loop body whose sums stay in the accumulator from one iteration to the next: position among what the loop carries, by op.
    pub(super) fn in_place(&self, func: &Func, data: &OpData) -> HashMap<usize, Op> {
        let body = data.regions[0];
        let uses = Uses::of(func);
        let args = &func.region(body).args;
        let end = func.terminator(body).map(|end| func.op(end).operands.to_vec()).unwrap_or_default();
        let mut found = HashMap::new();
        for &op in func.region(body).ops.iter().filter(|op| self.products.contains_key(op)) {
            let inner = func.op(op);
            let carried = args.iter().skip(1).position(|arg| *arg == inner.operands[2]);
            if let Some(i) = carried
                && end.get(i) == Some(&inner.results[0])
                && uses.count(inner.operands[2]) == 1
                && uses.count(inner.results[0]) == 1
            {
                found.insert(i, op);
            }
        }
        found
    }

    /// Registers that a thread of a warpgroup needs: sums and factors of the loop that has most of them, and what computes with them.
    fn registers(&self, func: &Func) -> u32 {
        let threads = 32 * self.warps;
        let elements = |value: Value| func.ty(value).shape().map_or(0, |shape| shape.elements()) / threads;
        let of_body = |body: &Region| {
            let ops = func.region(*body).ops.iter();
            let products =
                ops.filter_map(|op| self.products.get(op).map(|p| (func.op(*op).results[0], p.left)));
            let each = products.map(|(sums, left)| match left {
                Left::Ahead(_) => (elements(sums), 32),
                Left::Kept(_) => (elements(sums), 64),
                Left::Registers(factor) => (elements(sums) + elements(factor) / 2, 64),
            });
            let (held, others): (Vec<u32>, Vec<u32>) = each.unzip();
            held.iter().sum::<u32>() + others.into_iter().max().unwrap_or(0)
        };
        self.groups.keys().map(of_body).max().unwrap_or(0)
    }

    fn refuse(&mut self, loc: Loc, message: String) {
        self.refused.push((loc, message));
    }

    /// Products of warpgroups, whose right factor the copy engine fetches; the left one, too, unless it comes from registers.
    fn for_engine(&mut self, analysis: &Analysis<'_>, body: Region) {
        let func = analysis.func;
        let alone = |code: Opcode| {
            !matches!(code, Opcode::Item | Opcode::GridWait | Opcode::GridLaunch | Opcode::Fence)
        };
        // Whoever loads ahead reads single numbers as well, such as places and counts.
        let all = func.walk();
        let reads = |op: &&Op| matches!(func.op(**op).code, Opcode::Load | Opcode::LoadIf);
        let changes = all.iter().filter(reads).any(|&op| is_written(func, op, &all));
        let mut products = Vec::new();
        for &op in func.region(body).ops.iter().filter(|&&op| is_dot(func, op)) {
            let data = func.op(op);
            let refused = if dot::is_batched(func, data) {
                Some(MANY.to_owned())
            } else if func.launch.cluster.is_some() {
                Some("the kernel asks for a cluster".to_owned())
            } else if changes {
                Some("the program writes numbers where it reads some, and those that load ahead would come before".to_owned())
            } else if let Some(&other) = func.walk().iter().find(|&&op| !alone(func.op(op).code)) {
                let name = func.op(other).info().mnemonic;
                Some(format!("`{name}` is for all threads, and those that load ahead do not come there"))
            } else {
                None
            };
            if let Some(why) = refused {
                self.refuse(data.loc, format!("not multiplied by warpgroups: {why}"));
                continue;
            }
            let Some(atom) = analysis.warpgroup_atom(data) else {
                let [a, b] = [0, 1].map(|i| func.ty(data.operands[i]));
                self.refuse(
                    data.loc,
                    format!(
                        "not multiplied by warpgroups: they have no instruction for {a} by {b}; rows in multiples of 64 and columns of 8 up to 256 have one"
                    ),
                );
                continue;
            };
            // Sides as `(row of the tile in shared memory, k)`: axis of k in the operand.
            let sides = [(0, 1, atom.a, 64), (1, 0, atom.b, atom.shape.n)];
            let found = sides.map(|(operand, k_axis, element, rows)| {
                analysis.for_engine(body, data.operands[operand], (k_axis, element, rows))
            });
            // Only elements of 16 bits lie in the registers of a factor as in those of sums.
            let held = (atom.a.bits() == 16).then(|| analysis.held(body, data.operands[0]));
            for (found, side) in found.iter().zip([held, None]) {
                match found {
                    // What is no load of this loop is well kept in registers.
                    Err((Loc::NONE, _)) if side.is_some() => {}
                    Err((loc, why)) => self.refuse(
                        if *loc == Loc::NONE { data.loc } else { *loc },
                        format!("the copy engine does not load this factor ahead: {why}"),
                    ),
                    Ok(_) => {}
                }
            }
            let [left, right] = found;
            let Ok((right, of_b)) = right else { continue };
            let (left, of_a) = match (left, held) {
                (Ok((load, staged)), _) => (Left::Ahead(load), Some((load, staged))),
                (Err(_), Some(held)) => (held, None),
                (Err(_), None) => continue,
            };
            let factors: Vec<(Op, Staged)> = of_a.into_iter().chain([(right, of_b)]).collect();
            products.push((op, Product { left, right, atom }, factors));
        }
        let loads =
            products.iter().flat_map(|(op, _, factors)| factors.iter().map(|(load, _)| load).chain([op]));
        if let Some(between) = parted(func, body, loads) {
            let why = "products around this loop are not multiplied by warpgroups: their factors would come in another order; load them after it";
            return self.refuse(func.op(between).loc, why.to_owned());
        }
        for (op, product, factors) in products {
            self.products.insert(op, product);
            for (load, mut staged) in factors {
                if let Form::Boxes { boxes, map, outer, .. } = &mut staged.form {
                    *map = analysis.map(load, &boxes.spec, (staged.fast, *outer), &mut self.maps);
                }
                self.add(body, load, staged);
            }
        }
        // The order of the program, in which whoever loads comes to them.
        if let Some(group) = self.groups.get_mut(&body) {
            group.loads.sort_by_key(|op| func.region(body).ops.iter().position(|other| other == op));
        }
    }

    /// Factors of products of warps that threads copy.
    fn for_threads(&mut self, analysis: &Analysis<'_>, body: Region) {
        let func = analysis.func;
        let mut inner = Vec::new();
        func.walk_region(body, &mut inner);
        let is_loop = |op: &&Op| matches!(func.op(**op).code, Opcode::For | Opcode::While);
        let nested = inner.iter().filter(is_loop).any(|&op| has_products(func, op));
        let waits = inner.iter().any(|&op| func.op(op).code == Opcode::GridWait);
        for &op in func.region(body).ops.iter().filter(|&&op| is_dot(func, op)) {
            let data = func.op(op);
            let Some(atom) = dot::atom(func, data, analysis.arch).filter(|_| func.launch.cluster.is_none())
            else {
                continue;
            };
            for (operand, k_axis, element) in [(0, 1, atom.a), (1, 0, atom.b)] {
                let found = if dot::is_batched(func, data) {
                    Err((Loc::NONE, MANY.to_owned()))
                } else if nested {
                    Err((Loc::NONE, "a loop inside of this one multiplies, too, and has the ring".to_owned()))
                } else if waits {
                    Err((Loc::NONE, "the loop waits for other grids; wait before it".to_owned()))
                } else {
                    analysis.for_threads(body, data.operands[operand], k_axis, element)
                };
                match found {
                    Ok((load, staged, scalars)) => {
                        self.add(body, load, staged);
                        let group = self.groups.entry(body).or_default();
                        group.scalars.extend(scalars);
                        group.scalars.sort_unstable();
                        group.scalars.dedup();
                        let order = &func.region(body).ops;
                        group.scalars.sort_by_key(|op| order.iter().position(|other| other == op));
                    }
                    Err((loc, why)) => self.refuse(
                        if loc == Loc::NONE { data.loc } else { loc },
                        format!("threads do not load this factor ahead: {why}"),
                    ),
                }
            }
        }
    }

    fn add(&mut self, body: Region, load: Op, mut staged: Staged) {
        let group = self.groups.entry(body).or_default();
        let used: u32 = group.loads.iter().map(|op| self.loads[op].bytes).sum();
        staged.offset = used;
        group.loads.push(load);
        self.slot_bytes = self.slot_bytes.max(used + staged.bytes);
        self.loads.insert(load, staged);
    }
}

fn is_dot(func: &Func, op: Op) -> bool {
    func.op(op).code == Opcode::Dot
}

/// Whether products stand in the regions of an op.
fn has_products(func: &Func, op: Op) -> bool {
    let mut inner = Vec::new();
    func.op(op).regions.iter().for_each(|&region| func.walk_region(region, &mut inner));
    inner.into_iter().any(|op| is_dot(func, op))
}

/// A loop with products between the first and the last of some loads and products of a body, if there is one: whoever multiplies would take
/// slots of the ring in another order than they are filled.
fn parted<'a>(func: &Func, body: Region, loads: impl Iterator<Item = &'a Op>) -> Option<Op> {
    let ops = &func.region(body).ops;
    let mut places: Vec<usize> = loads.filter_map(|op| ops.iter().position(|other| other == op)).collect();
    places.sort_unstable();
    ops[*places.first()?..*places.last()?].iter().copied().find(|&op| has_products(func, op))
}

/// Whether a number is the same for all programs, as far as one can tell from the ops that make it.
fn is_common(func: &Func, value: Value) -> bool {
    match func.value(value).def {
        Def::Arg(region, _) => region == func.body(),
        Def::Result(op, _) => {
            let data = func.op(op);
            let plain = data.info().effects.accesses.is_empty() && data.regions.is_empty();
            plain && data.code != Opcode::Special && data.operands.iter().all(|&v| is_common(func, v))
        }
    }
}

/// All products in loops, with what stands around each: anything but `for` loops first. `around` is whether that is in a loop, and what.
fn dots_in_loops(func: &Func, region: Region, around: (bool, &'static str)) -> Vec<(Op, &'static str)> {
    let mut found = Vec::new();
    for &op in &func.region(region).ops {
        let data = func.op(op);
        if data.code == Opcode::Dot && around.0 {
            found.push((op, around.1));
        }
        let inside = match data.code {
            Opcode::For => (true, around.1),
            Opcode::While => (true, "a `while` loop"),
            Opcode::If => (around.0, "an `if`"),
            _ => continue,
        };
        data.regions.iter().for_each(|&inner| found.extend(dots_in_loops(func, inner, inside)));
    }
    found
}

/// Bodies of counted loops. A loader goes through no tests of tiles: for it, they stand in nothing but counted loops.
fn loop_bodies(func: &Func, region: Region, mechanism: Mechanism) -> Vec<Region> {
    let mut found = Vec::new();
    for &op in &func.region(region).ops {
        let data = func.op(op);
        let is_for = data.code == Opcode::For;
        let passes =
            is_for || mechanism == Mechanism::Threads && matches!(data.code, Opcode::While | Opcode::If);
        for &inner in data.regions.iter().filter(|_| passes) {
            found.extend(is_for.then_some(inner));
            found.extend(loop_bodies(func, inner, mechanism));
        }
    }
    found
}
