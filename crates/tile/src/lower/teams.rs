//! Two programs of a product in one block, on Hopper: each warpgroup has programs of its own, and while one stores what it has summed up the
//! other multiplies.
//!
//! Programs are dealt out in turns. The [loader](super::engine) goes through all of them in order, and one ring holds the factors of all; a
//! warpgroup takes the slots of its own programs and passes over those of the other's, which are as many in every program:
//!
//! ```text
//! loader:       factors of 0 | factors of 1 | factors of 2 | ...
//! warpgroup 0:  multiply 0   | store 0      | multiply 2   | ...
//! warpgroup 1:               | multiply 1   | store 1      | ...
//! ```
//!
//! Nobody may wait for a slot before all slots of the programs before are full: the barrier of a slot tells odd rounds from even ones, and no
//! more. So warpgroups hand the turn over when they have taken their last slot, with a named barrier.
//!
//! Contract: all loops with factors have bounds that are the same for all programs, so that slots can be counted before there is a program.
//! Nothing is shared by the warpgroups but the ring: what goes through shared memory otherwise keeps them together.

use tilewright_ir::{Cmp, Flags, Func, Op, OpData, Opcode, Region, Shuffle, Special, Type, Value};

use super::pipeline::{Left, Mechanism, Pipeline, WARPGROUP};
use super::{Lowering, Result};

/// Warpgroups with programs of their own.
pub(super) const TEAMS: u32 = 2;

/// Sums of a thread if one warpgroup has a program to itself. With fewer, two blocks share a multiprocessor, which is as good; with more,
/// nothing is left to compute addresses and results with.
const SUMS: std::ops::RangeInclusive<u32> = 65..=128;

/// Elements of one tile that a thread may load beside its sums.
const BESIDE: u32 = 32;

/// The first named barrier by which the threads of a team wait for each other, the first by which teams take turns, and the first that is left.
const TOGETHER: u32 = 1;
const TURNS: u32 = TOGETHER + TEAMS;
pub(super) const OTHER_BARRIERS: u32 = TURNS + TEAMS;

/// Where a warpgroup stands among those with programs of their own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    /// Its number.
    team: Value,
    /// Whether a program of the other comes before the one that it is at, and whether one comes after.
    after: Value,
    before: Value,
}

impl Pipeline {
    /// Whether two warpgroups can each have programs of their own: all programs multiply equally often, from shared memory, one warpgroup
    /// has registers for all sums, and they stay where they are.
    pub(super) fn makes_teams(&self, func: &Func) -> bool {
        let own = |value: &Value| func.ty(*value).shape().map_or(0, |shape| shape.elements()) / WARPGROUP;
        let sums = self.products.keys().map(|&op| own(&func.op(op).results[0])).sum();
        let from_memory = self.products.values().all(|product| matches!(product.left, Left::Ahead(_)));
        let ops = func.walk();
        let loops: Vec<&OpData> =
            ops.iter().map(|&op| func.op(op)).filter(|data| data.code == Opcode::For).collect();
        let in_place: usize = loops.iter().map(|data| self.in_place(func, data).len()).sum();
        let counts = |data: &&OpData| func.ty(data.operands[0]).bits() >= 32;
        let small = |op: &Op| {
            let loads = matches!(func.op(*op).code, Opcode::TileLoad | Opcode::Gather);
            !loads
                || self.loads.contains_key(op)
                || func.op(*op).results.iter().all(|tile| own(tile) <= BESIDE)
        };
        self.mechanism == Mechanism::Engine
            && func.launch.total_threads().is_none()
            && SUMS.contains(&sums)
            && from_memory
            && in_place == self.products.len()
            && loops.iter().all(counts)
            && ops.iter().all(small)
            && self.takes_turns(func)
    }
}

impl Lowering<'_> {
    /// Teams of a block, each with programs of its own.
    pub(super) fn teams(&self) -> u32 {
        self.pipeline.as_ref().map_or(1, |pipeline| pipeline.teams)
    }

    /// Lowers the programs of this warpgroup. Those of the block are number `first` and every `apart` below `all`, dealt out in turns.
    pub(super) fn own_programs(&mut self, [first, all, apart]: [Value; 3]) -> Result<()> {
        let (seven, zero, everybody) = (self.u32(7), self.u32(0), self.u32(u32::MAX));
        // From one lane, so that the assembler sees that it is the same in a warp: descriptors are to lie in uniform registers.
        let thread = self.value(Opcode::Special, [], [Special::TidX.into()], Type::U32);
        let group = self.binary(Opcode::Shr, thread, seven);
        let shuffle = self.push(
            Opcode::Shuffle,
            [group, zero, everybody],
            [Shuffle::Index.into()],
            [Type::U32, Type::BOOL],
        );
        let team = self.builder.func.op(shuffle).results[0];
        self.panels = self.panels.map(|panels| self.panels_of(panels, team));
        let slots = self.slots_in(self.source.body());
        let passed = self.binary(Opcode::Mul, team, slots);
        self.pass(passed);
        let teams = self.u32(TEAMS);
        let further = self.binary(Opcode::Mul, team, apart);
        let own = self.binary(Opcode::Add, first, further);
        let step = self.binary(Opcode::Mul, apart, teams);
        self.programs_from([own, all, step], |this, number| {
            let next = this.binary(Opcode::Add, number, apart);
            this.standing = Some(Standing {
                team,
                after: this.value(Opcode::Cmp, [number, first], [Cmp::Ne.into()], Type::BOOL),
                before: this.value(Opcode::Cmp, [next, all], [Cmp::Lt.into()], Type::BOOL),
            });
            this.region(this.source.body())?;
            this.pass(slots);
            Ok(())
        })?;
        self.standing = None;
        Ok(())
    }

    /// Passes over so many slots.
    fn pass(&mut self, slots: Value) {
        let Some(ring) = self.ring else { return };
        let (stages, one) = (self.u32(ring.stages), self.u32(1));
        let place = self.ring_values();
        let Some((&slot, phase)) = place.split_first() else { return };
        let end = self.binary(Opcode::Add, slot, slots);
        let slot = self.binary(Opcode::Rem, end, stages);
        let rounds = self.binary(Opcode::Div, end, stages);
        let odd = self.binary(Opcode::And, rounds, one);
        let mut values = vec![slot];
        values.extend(phase.iter().map(|&phase| self.binary(Opcode::Xor, phase, odd)));
        self.set_ring(&values);
    }

    /// Slots that one run of a region takes.
    fn slots_in(&mut self, region: Region) -> Value {
        let source = self.source;
        let own = self.pipeline.as_ref().is_some_and(|pipeline| pipeline.groups.contains_key(&region));
        let mut all = self.u32(u32::from(own));
        for &op in &source.region(region).ops {
            let data = source.op(op);
            if data.code == Opcode::For && self.runs_ahead(data.regions[0]) {
                let (rounds, each) = (self.rounds_of(data), self.slots_in(data.regions[0]));
                let slots = self.binary(Opcode::Mul, rounds, each);
                all = self.binary(Opcode::Add, all, slots);
            }
        }
        all
    }

    /// Rounds of a loop whose bounds all programs share.
    fn rounds_of(&mut self, data: &OpData) -> Value {
        let [low, high, step] = [0, 1, 2].map(|i| self.common(data.operands[i]));
        let any = self.value(Opcode::Cmp, [low, high], [Cmp::Lt.into()], Type::BOOL);
        let steps = self.steps_to_last([low, high, step]);
        let ty = self.builder.func.ty(steps);
        let one = self.constant(ty, 1);
        let rounds = self.binary(Opcode::Add, steps, one);
        let rounds = if ty == Type::U64 { self.value(Opcode::Cvt, [rounds], [], Type::U32) } else { rounds };
        let zero = self.u32(0);
        self.value(Opcode::Select, [any, rounds, zero], [], Type::U32)
    }

    /// Steps from the first round of a loop to its last, without a sign: so it is right however far apart the bounds are. If there is a round.
    pub(super) fn steps_to_last(&mut self, bounds: [Value; 3]) -> Value {
        let wide = self.builder.func.ty(bounds[0]).bits() > 32;
        let ty = if wide { Type::U64 } else { Type::U32 };
        let [low, high, step] = bounds.map(|number| self.with_type(number, ty));
        let one = self.constant(ty, 1);
        let distance = self.binary(Opcode::Sub, high, low);
        let before = self.binary(Opcode::Sub, distance, one);
        self.binary(Opcode::Div, before, step)
    }

    /// The same bits as a number of another type.
    pub(super) fn with_type(&mut self, number: Value, ty: Type) -> Value {
        let own = self.builder.func.ty(number);
        if own == ty { number } else { self.value(Opcode::Bitcast, [number], [], ty) }
    }

    /// A number that all programs share, before there is one.
    fn common(&mut self, value: Value) -> Value {
        let source = self.source;
        if self.held[value.index()].is_none()
            && let Some(op) = source.def_op(value)
        {
            let data = source.op(op);
            data.operands.iter().for_each(|&operand| {
                self.common(operand);
            });
            self.copy(data);
        }
        self.scalar(value)
    }

    /// Whether a loop is the first of a program that multiplies, and whether it is the last.
    fn ends(&self, body: Region) -> (bool, bool) {
        let ops = &self.source.region(self.source.body()).ops;
        let loops = ops.iter().map(|&op| self.source.op(op)).filter(|data| data.code == Opcode::For);
        let ahead: Vec<Region> =
            loops.map(|data| data.regions[0]).filter(|&region| self.runs_ahead(region)).collect();
        (ahead.first() == Some(&body), ahead.last() == Some(&body))
    }

    /// Before the first loop of a program: waits until the other warpgroup has taken all slots of the program before.
    pub(super) fn await_turn(&mut self, body: Region) {
        if let Some(own) = self.standing.filter(|_| self.ends(body).0) {
            self.at_turn(Opcode::Barrier, own.team, own.after);
        }
    }

    /// After the last loop of a program: the other warpgroup goes on.
    pub(super) fn hand_over(&mut self, body: Region) {
        if let Some(own) = self.standing.filter(|_| self.ends(body).1) {
            let one = self.u32(1);
            let other = self.binary(Opcode::Xor, own.team, one);
            self.at_turn(Opcode::BarrierArrive, other, own.before);
        }
    }

    fn at_turn(&mut self, code: Opcode, team: Value, condition: Value) {
        let (turns, threads) = (self.u32(TURNS), self.u32(TEAMS * WARPGROUP));
        self.only_if(Some(condition), |this| {
            let id = this.binary(Opcode::Add, team, turns);
            this.push(code, [id, threads], [Flags::ALIGNED.into()], []);
        });
    }

    /// The named barrier of the threads that have a program together.
    pub(super) fn own_barrier(&mut self) -> Value {
        let first = self.u32(TOGETHER);
        match self.standing {
            Some(own) => self.binary(Opcode::Add, own.team, first),
            None => first,
        }
    }
}
