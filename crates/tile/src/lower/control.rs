//! Loops and branches: what they carry, tile by tile, and what changes for loads that run ahead and products that stay where they are.

use std::collections::{HashMap, HashSet};

use tilewright_ir::{AccessKind, Cmp, Count, Func, Op, OpData, Opcode, Region, Type, Value};

use super::assign::{Box3, accessed};
use super::exchange::State;
use super::factors::root;
use super::touched::Touched;
use super::{Held, Lowering, Result, Turn};

impl Lowering<'_> {
    /// The registers that stand for a value when a loop or branch hands it on, in the layout of `like`.
    pub(super) fn flatten(&mut self, value: Value, like: Value) -> Vec<Value> {
        match self.source.ty(like).shape() {
            None => vec![self.scalar(value)],
            Some(_) => {
                let layout = self.layout(like);
                self.tile_in(value, &layout).registers
            }
        }
    }

    fn flatten_all(&mut self, values: &[Value], like: &[Value]) -> Vec<Value> {
        values.iter().zip(like).flat_map(|(&value, &like)| self.flatten(value, like)).collect()
    }

    /// The types of the registers that stand for values.
    fn flat_types(&self, values: &[Value]) -> Vec<Type> {
        let one = |&value: &Value| match self.source.ty(value) {
            Type::Tile(element, _) => vec![Type::Scalar(element); self.layout(value).count()],
            ty => vec![ty],
        };
        values.iter().flat_map(one).collect()
    }

    /// Values of the source stand for these registers from now on.
    fn adopt(&mut self, values: &[Value], registers: &[Value]) {
        let mut rest = registers;
        for &value in values {
            if self.source.ty(value).shape().is_some() {
                let layout = self.layout(value);
                let (own, others) = rest.split_at(layout.count());
                self.hold_tile(value, layout, own.to_vec());
                rest = others;
            } else if let Some((&own, others)) = rest.split_first() {
                self.hold(value, Held::Scalar(own));
                rest = others;
            }
        }
    }

    /// Gives a region its arguments, which stand for those of a region of the source.
    fn arguments(&mut self, from: Region, to: Region) {
        let args = self.carried(&self.source.region(from).args);
        let types = self.flat_types(&args);
        let own: Vec<Value> = types.into_iter().map(|ty| self.builder.func.add_arg(to, ty)).collect();
        self.adopt(&args, &own);
    }

    fn end_of(&self, region: Region) -> Vec<Value> {
        let end = self.source.terminator(region);
        end.map(|end| self.source.op(end).operands.to_vec()).unwrap_or_default()
    }

    /// Positions among what a loop or branch carries that are carried as values here: the loader carries scalars only, and sums in an
    /// accumulator stay where they are.
    fn kept(&self, values: &[Value], places: &HashMap<usize, Op>) -> Vec<usize> {
        let is_kept = |&i: &usize| {
            !(places.contains_key(&i) || self.loads && self.source.ty(values[i]).shape().is_some())
        };
        (0..values.len()).filter(is_kept).collect()
    }

    pub(super) fn for_loop(&mut self, data: &OpData) -> Result<()> {
        let body = data.regions[0];
        self.await_others();
        let loc = self.loc;
        let copied = self.copied(body).or_else(|| self.own_rounds(body));
        self.loc = loc;
        if let Some(rounds) = &copied {
            self.start_rounds(data, rounds);
        }
        let ahead = copied.is_some() || self.specialises && self.runs_ahead(body);
        if ahead && !self.loads {
            self.keep_factors(body);
        }
        let places = if ahead && !self.loads { self.in_place(data) } else { HashMap::new() };
        let all = self.source.region(body).args[1..].to_vec();
        let kept = self.kept(&all, &places);
        let pick = |values: &[Value]| kept.iter().map(|&i| values[i]).collect::<Vec<Value>>();
        let carried = pick(&all);
        self.start_sums(&places);
        self.await_turn(body);

        let products = if ahead && !self.loads { self.products_of(body).len() } else { 0 };
        // A slot is given back one round later, while the next multiplication runs, if no sum has to be looked at before and no loop inside
        // takes slots in the meantime.
        let deferred = products > 0
            && products == places.len()
            && self.all_from_memory(body)
            && !self.runs_ahead_inside(body);
        let mut operands: Vec<Value> = data.operands[..3].iter().map(|&v| self.scalar(v)).collect();
        let (low, high, step) = (operands[0], operands[1], operands[2]);
        operands.extend(self.flatten_all(&pick(&data.operands[3..]), &carried));
        let mut types = self.flat_types(&pick(&data.results));
        let own = types.len();
        let ring = if ahead { self.ring_values() } else { Vec::new() };
        let last_slot = ring.first().copied().filter(|_| deferred);
        let round = self.counts_rounds(body).then(|| self.u32(0));
        types.extend(ring.iter().chain(&last_slot).chain(&round).map(|_| Type::U32));
        operands.extend(ring.iter().copied().chain(last_slot).chain(round));
        let op = self.push(Opcode::For, operands, data.attrs.to_vec(), types);
        let before = self.enter_loop(data);
        self.rounds += 1;
        let outer = (self.turn, self.round);
        self.fill(op, |this, region| {
            let counter = this.source.region(body).args[0];
            let counter_ty = this.source.ty(counter);
            let number = this.builder.func.add_arg(region, counter_ty);
            let walked = if ahead { this.walked(data, number, [low, high, step]) } else { number };
            this.hold(counter, Held::Scalar(walked));
            let flat = this.flat_types(&carried);
            let values: Vec<Value> =
                flat.into_iter().map(|ty| this.builder.func.add_arg(region, ty)).collect();
            this.adopt(&carried, &values);
            let mut last = None;
            if ahead {
                let own: Vec<Value> =
                    ring.iter().map(|_| this.builder.func.add_arg(region, Type::U32)).collect();
                this.set_ring(&own);
                last = deferred.then(|| this.builder.func.add_arg(region, Type::U32));
            }
            this.round = round.map(|_| this.builder.func.add_arg(region, Type::U32));
            let round = this.round;
            if let Some(rounds) = &copied {
                this.enter_round(data, rounds, number);
            }
            if products > 0 {
                let again = this.value(Opcode::Cmp, [number, low], [Cmp::Ne.into()], Type::BOOL);
                this.turn = Some(Turn { left: products, all: products, again: Some(again), last });
            }
            let slot = this.ring.map(|ring| ring.slot);
            this.region(body)?;
            let end = this.end_of(body);
            let mut out = this.flatten_all(&pick(&end), &carried);
            if copied.is_some() {
                this.next_slot();
            }
            if ahead {
                out.extend(this.ring_values());
                out.extend(slot.filter(|_| deferred));
            }
            if let Some(round) = round {
                let one = this.u32(1);
                out.push(this.binary(Opcode::Add, round, one));
            }
            Ok(out)
        })?;
        (self.turn, self.round) = outer;
        self.rounds -= 1;
        self.leave_loop(before);
        let results = self.builder.func.op(op).results.to_vec();
        self.adopt(&pick(&data.results), &results[..own]);
        if ahead {
            self.set_ring(&results[own..own + ring.len()]);
        }
        self.hand_over(body);
        if products > 0 {
            let any = self.value(Opcode::Cmp, [low, high], [Cmp::Lt.into()], Type::BOOL);
            self.push(Opcode::WgmmaWait, [], [Count(0).into()], []);
            if deferred {
                self.release(results[own + ring.len()], Some(any));
            }
            self.end_sums(data, &places, any);
        }
        Ok(())
    }

    /// What was under way before a loop; a round of it may follow another.
    fn enter_loop(&mut self, data: &OpData) -> State {
        self.enter_loop_of(&data.regions)
    }

    pub(super) fn enter_loop_of(&mut self, regions: &[Region]) -> State {
        let before = self.scratch.state();
        let mut ops = Vec::new();
        regions.iter().for_each(|&region| self.source.walk_region(region, &mut ops));
        let inside: HashSet<Value> = made_in(self.source, regions, &ops);
        let touched = ops.into_iter().filter_map(|op| {
            let data = self.source.op(op);
            let access = data.info().effects.accesses.first()?;
            let root = self.root(data.operands[0]);
            let by = Some(op).filter(|_| own_in_all_rounds(self.source, op, &inside));
            Some(Touched { root, writes: access.kind != AccessKind::Read, place: None, in_text: false, by })
        });
        let touched = touched.collect();
        self.scratch.enter_loop(touched);
        before
    }

    /// The body may have run or not.
    pub(super) fn leave_loop(&mut self, before: State) {
        let after = self.scratch.state();
        self.scratch.join(vec![before, after]);
    }

    /// The parameter that a pointer was made from, if it is known.
    pub(super) fn root(&self, pointer: Value) -> Option<Value> {
        root(self.source, pointer)
    }

    pub(super) fn while_loop(&mut self, data: &OpData) -> Result<()> {
        self.await_others();
        let (test, body) = (data.regions[0], data.regions[1]);
        let carried = self.carried(&self.source.region(test).args);
        let passed = self.carried(&self.source.region(body).args);
        let operands = self.carried(&data.operands);
        let operands = self.flatten_all(&operands, &carried);
        let types = self.flat_types(&self.carried(&data.results));
        let op = self.push(Opcode::While, operands, data.attrs.to_vec(), types);
        self.enter_loop(data);
        self.rounds += 1;
        let outer = self.round.take();
        let region = self.builder.open(op);
        self.arguments(test, region);
        self.region(test)?;
        let end = self.end_of(test);
        let condition = self.scalar(end[0]);
        let mut operands = vec![condition];
        operands.extend(self.flatten_all(&self.carried(&end[1..]), &passed));
        self.push(Opcode::Condition, operands, [], []);
        self.builder.close();
        // The loop ends after a test, which comes before all of the body or after all of it.
        let tested = self.scratch.state();
        self.fill(op, |this, region| {
            this.arguments(body, region);
            this.region(body)?;
            let end = this.carried(&this.end_of(body));
            Ok(this.flatten_all(&end, &carried))
        })?;
        self.leave_loop(tested);
        self.rounds -= 1;
        self.round = outer;
        let results = self.builder.func.op(op).results.to_vec();
        self.adopt(&self.carried(&data.results), &results);
        Ok(())
    }

    /// What of these values is carried as a value here.
    fn carried(&self, values: &[Value]) -> Vec<Value> {
        self.kept(values, &HashMap::new()).into_iter().map(|i| values[i]).collect()
    }

    pub(super) fn branch(&mut self, data: &OpData) -> Result<()> {
        self.await_others();
        let condition = self.scalar(data.operands[0]);
        let kept = self.carried(&data.results);
        let types = self.flat_types(&kept);
        let op = self.push(Opcode::If, [condition], data.attrs.to_vec(), types);
        let before = self.scratch.state();
        // Not every round comes by here.
        let outer = self.round.take();
        let mut after = Vec::new();
        for &way in &data.regions {
            self.scratch.restore(before.clone());
            self.fill(op, |this, _| {
                this.region(way)?;
                let end = this.carried(&this.end_of(way));
                Ok(this.flatten_all(&end, &kept))
            })?;
            after.push(self.scratch.state());
        }
        self.scratch.join(after);
        self.round = outer;
        let results = self.builder.func.op(op).results.to_vec();
        self.adopt(&kept, &results);
        Ok(())
    }
}

/// Values that are made in a loop: results of its ops, and arguments of its regions and of those inside of it.
fn made_in(func: &Func, regions: &[Region], ops: &[Op]) -> HashSet<Value> {
    let inner = ops.iter().flat_map(|&op| &func.op(op).regions);
    let args = regions.iter().chain(inner).flat_map(|&region| func.region(region).args.iter().copied());
    args.chain(ops.iter().flat_map(|&op| func.op(op).results.iter().copied())).collect()
}

/// Whether the boxes that a store writes in two rounds of a loop are the same or have nothing in common: if only places along axes of extent 1
/// change. Threads then store to what only they have stored to before.
fn own_in_all_rounds(func: &Func, op: Op, inside: &HashSet<Value>) -> bool {
    let data = func.op(op);
    let tile = accessed(data).filter(|_| data.code == Opcode::TileStore);
    let Some(shape) = tile.and_then(|tile| func.ty(tile).shape()) else { return false };
    let parts = Box3::of(data, shape.rank());
    let stays = |&value: &Value| is_same_in_all_rounds(func, value, inside);
    let mut starts = parts.starts.iter().zip(shape.extents());
    stays(&data.operands[0])
        && parts.extents.iter().chain(parts.strides).all(stays)
        && starts.all(|(start, &extent)| extent == 1 || stays(start))
}

/// Whether a value is made outside of a loop, or computed in it from nothing but such values.
fn is_same_in_all_rounds(func: &Func, value: Value, inside: &HashSet<Value>) -> bool {
    let is_pure = |op: &Op| func.op(*op).info().is_pure() && func.op(*op).regions.is_empty();
    !inside.contains(&value)
        || func.def_op(value).filter(is_pure).is_some_and(|op| {
            func.op(op).operands.iter().all(|&operand| is_same_in_all_rounds(func, operand, inside))
        })
}
