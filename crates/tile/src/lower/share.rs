//! Factors that two neighbouring programs share: on Hopper, blocks that come in pairs, a cluster each, bring a factor that both need once.
//!
//! Where programs take turns, the blocks of a pair have programs `p` and `p ^ 1` at the same time. The order of programs is the author's
//! arithmetic, so whether the two want the same box of a tensor is found out while they run: the loader computes the place of a load for its
//! own program and, from the other's number, for its neighbour. Both come to the same answer. If it is yes, each copies one half to both:
//!
//! ```text
//! loader:  wait until both blocks have the slot empty; announce all bytes;  same place ? half of the boxes, to both : all boxes
//! math:    wait until the slot is full;  multiply;                          give the slot back to both loaders
//! ```
//!
//! Contract: programs take turns, so both blocks go through the same rounds, and what they announce is the same with or without sharing. The
//! last program of an odd number has no neighbour: its block gives slots back to itself twice, and shares nothing.
//!
//! Limits: pairs only; what a loop carries or what is read from memory is not computed for a neighbour, so loads that are placed by it are
//! each block's own.

use std::collections::{HashMap, HashSet};

use tilewright_hardware::{TensorMapSpec, TileBox, TileBoxes};
use tilewright_ir::{Cmp, Def, Element, Flags, Func, Group, Op, OpData, Opcode, Space, Special, Type, Value};

use super::Lowering;
use super::assign::Box3;
use super::layout::Holder;
use super::pipeline::{Form, Left, MapParameter, Outer, Pipeline, Staged};

/// Blocks of a cluster that share.
pub(super) const BLOCKS: u32 = 2;

/// Sums of a program from which on it shares factors: with so many, one block has a multiprocessor to itself, and a round takes longer than
/// it takes a neighbour to say that a slot is empty.
const SUMS: u32 = 128 * 256;

/// Rows after which every swizzle repeats: where a box may be cut.
const PATTERN: u32 = 8;

/// What neighbours may share.
#[derive(Debug, Clone)]
pub(super) struct Sharing {
    /// Loads whose place both can tell, with the scalars by which it may be another one.
    pub(super) loads: HashMap<Op, Vec<Value>>,
    /// Ops of which those are made.
    mirrored: HashSet<Op>,
}

impl Sharing {
    /// Whether it is worth a try, and with which loads: a large product, both of whose factors are loaded ahead in turns.
    pub(super) fn of(func: &Func, pipeline: &Pipeline) -> Option<Sharing> {
        let sums = |op: &Op| func.ty(func.op(*op).results[0]).shape().map_or(0, |shape| shape.elements());
        let of_memory =
            pipeline.products.iter().filter(|(op, _)| sums(op) >= SUMS).filter_map(|(_, product)| {
                let Left::Ahead(left) = product.left else { return None };
                Some([left, product.right])
            });
        let large: Vec<Op> = of_memory.flatten().collect();
        let alone = pipeline.blocks == 1 && func.launch.min_blocks.is_none_or(|blocks| blocks == 1);
        if large.is_empty() || !alone || !pipeline.takes_turns(func) {
            return None;
        }
        let mut found = Sharing { loads: HashMap::new(), mirrored: HashSet::new() };
        for (&op, staged) in &pipeline.loads {
            let places = places(func.op(op), staged);
            let mut known = HashMap::new();
            let different: Option<Vec<bool>> =
                places.iter().map(|&place| differs(func, place, &mut known)).collect();
            if let Some(different) = different.filter(|_| can_halve(staged)) {
                let compared = places.into_iter().zip(different).filter(|(_, differs)| *differs);
                found.loads.insert(op, compared.map(|(place, _)| place).collect());
                found.mirrored.extend(known.into_iter().filter(|(_, differs)| *differs).map(|(op, _)| op));
            }
        }
        large.iter().any(|op| found.loads.contains_key(op)).then_some(found)
    }

    /// Cuts boxes where a tile that may be shared has no even number of them.
    pub(super) fn cut(&self, loads: &mut HashMap<Op, Staged>, maps: &mut [MapParameter]) {
        let odd = loads.iter().filter(|(op, _)| self.loads.contains_key(op));
        let odd: HashSet<usize> = odd.filter_map(|(_, staged)| is_odd(staged)).collect();
        for staged in loads.values_mut() {
            if let Form::Boxes { boxes, map, .. } = &mut staged.form
                && odd.contains(map)
                && let Some(spec) = halved(&boxes.spec)
            {
                *boxes = cut(boxes, spec);
            }
        }
        for map in odd {
            if let Some(spec) = halved(&maps[map].spec) {
                maps[map].spec = spec;
            }
        }
    }
}

/// What tells where in its tensor a load is: starts, and the index along one more axis.
fn places(data: &OpData, staged: &Staged) -> Vec<Value> {
    let outer = match staged.form {
        Form::Boxes { outer, .. } => outer.map(|Outer { index, .. }| index),
        Form::Lines { .. } => None,
    };
    Box3::of(data, 2).starts.iter().copied().chain(outer).collect()
}

/// Whether another program may have another number here; nothing if that cannot be told from the number of the program. Loads stand in
/// counted loops of as many rounds for all programs: counters are the same. `known` is what is known of ops so far.
fn differs(func: &Func, value: Value, known: &mut HashMap<Op, bool>) -> Option<bool> {
    let op = match func.value(value).def {
        Def::Arg(region, i) => return (region == func.body() || i == 0).then_some(false),
        Def::Result(op, _) => op,
    };
    if let Some(&differs) = known.get(&op) {
        return Some(differs);
    }
    let data = func.op(op);
    let differs = match data.get::<Special>() {
        Some(special) if axis(special).is_some() => true,
        Some(Special::NctaidX | Special::NctaidY | Special::NctaidZ) => false,
        Some(_) => return None,
        None if !data.info().is_pure() || !data.regions.is_empty() => return None,
        None if data.info().group == Group::Program => return None,
        None => {
            let operands = data.operands.iter().map(|&operand| differs(func, operand, known));
            operands.collect::<Option<Vec<bool>>>()?.contains(&true)
        }
    };
    known.insert(op, differs);
    Some(differs)
}

/// Which number of the program this is.
fn axis(special: Special) -> Option<usize> {
    [Special::CtaidX, Special::CtaidY, Special::CtaidZ].iter().position(|&of_axis| of_axis == special)
}

/// The map of a tile that has an odd number of boxes.
fn is_odd(staged: &Staged) -> Option<usize> {
    match &staged.form {
        Form::Boxes { boxes, map, .. } => (boxes.boxes.len() % 2 == 1).then_some(*map),
        Form::Lines { .. } => None,
    }
}

fn can_halve(staged: &Staged) -> bool {
    match &staged.form {
        Form::Boxes { boxes, .. } => is_odd(staged).is_none() || halved(&boxes.spec).is_some(),
        Form::Lines { .. } => false,
    }
}

/// The same for boxes of half as many rows.
fn halved(spec: &TensorMapSpec) -> Option<TensorMapSpec> {
    let mut extents = spec.box_dims().to_vec();
    let rows = extents.get_mut(1).filter(|rows| rows.is_multiple_of(2 * PATTERN))?;
    *rows /= 2;
    TensorMapSpec::new(spec.element(), &extents, spec.swizzle()).ok()
}

fn cut(boxes: &TileBoxes, spec: TensorMapSpec) -> TileBoxes {
    let (bytes, rows) = (u32::try_from(spec.bytes()).unwrap_or(0), spec.box_dims()[1]);
    let halves = |part: &TileBox| {
        let [across, down] = part.coordinates;
        [0, 1].map(|i| TileBox { offset: part.offset + i * bytes, coordinates: [across, down + i * rows] })
    };
    TileBoxes { spec, major: boxes.major, boxes: boxes.boxes.iter().flat_map(halves).collect() }
}

/// The other program of a pair, in a turn of the loader.
#[derive(Debug, Clone)]
pub(super) struct Neighbour {
    program: [Value; 3],
    /// Whether there is one.
    exists: Value,
    /// What it has where this program has a scalar of the source.
    values: HashMap<Value, Value>,
}

/// What the copies of a load have in common: where the tile begins in shared memory, the map, the barrier, and where it begins in the tensor.
#[derive(Debug, Clone)]
pub(super) struct Copies {
    pub(super) tile: Value,
    pub(super) map: Value,
    pub(super) full: Value,
    pub(super) starts: [Value; 2],
    pub(super) outer: Option<Value>,
}

impl Lowering<'_> {
    /// What neighbours share, if blocks come in pairs.
    pub(super) fn sharing(&self) -> Option<&Sharing> {
        self.pipeline.as_ref()?.sharing.as_ref()
    }

    /// The number of the program in the other block of this pair, and whether there is one: else it is this one again, so that nothing is
    /// computed of a program that does not exist.
    pub(super) fn neighbour_of(&mut self, number: Value, all: Value) -> (Value, Value) {
        let one = self.u32(1);
        let other = self.binary(Opcode::Xor, number, one);
        let exists = self.value(Opcode::Cmp, [other, all], [Cmp::Lt.into()], Type::BOOL);
        (self.value(Opcode::Select, [exists, other, number], [], Type::U32), exists)
    }

    /// The loader: from here on places are computed for the neighbour, too.
    pub(super) fn meet(&mut self, program: [Value; 3], exists: Value) {
        self.neighbour = Some(Neighbour { program, exists, values: HashMap::new() });
    }

    /// Math: where slots are given back. The first two threads of a warpgroup do that, one to each block, or both to their own.
    pub(super) fn empty_of_pair(&mut self, empty: Value, exists: Value) -> Value {
        let (lane, own) = (self.number(Holder::Lane), self.number(Holder::Block));
        let one = self.u32(1);
        let each = self.early(Opcode::And, [lane, one], [], Type::U32);
        let block = self.value(Opcode::Select, [exists, each, own], [], Type::U32);
        self.value(Opcode::MapCluster, [empty, block], [], Type::Pointer(Space::Cluster))
    }

    /// All threads of both blocks wait for each other, at the beginning for barriers, at the end for what the other still sends.
    pub(super) fn pair_barrier(&mut self) {
        self.push(Opcode::ClusterArrive, [], [Flags::ALIGNED.into()], []);
        self.push(Opcode::ClusterWait, [], [Flags::ALIGNED.into()], []);
    }

    /// The loader: computes for the neighbour what was just computed for this program, if places follow from it.
    pub(super) fn mirror(&mut self, op: Op, data: &OpData) {
        if !self.sharing().is_some_and(|sharing| sharing.mirrored.contains(&op)) {
            return;
        }
        let Some(neighbour) = self.neighbour.clone() else { return };
        let own = match data.get::<Special>().and_then(axis) {
            Some(axis) => vec![neighbour.program[axis]],
            None => {
                let values = data.operands.iter();
                let operands: Vec<Value> = values
                    .map(|v| neighbour.values.get(v).copied().unwrap_or_else(|| self.scalar(*v)))
                    .collect();
                let types: Vec<Type> = data.results.iter().map(|&v| self.source.ty(v)).collect();
                let op = self.push(data.code, operands, data.attrs.to_vec(), types);
                self.builder.func.op(op).results.to_vec()
            }
        };
        if let Some(neighbour) = &mut self.neighbour {
            neighbour.values.extend(data.results.iter().copied().zip(own));
        }
    }

    /// The loader: whether the neighbour loads the same in this round; nothing if it is known not to.
    fn is_shared(&mut self, op: Op) -> Option<Value> {
        let compared = self.sharing()?.loads.get(&op)?.clone();
        let neighbour = self.neighbour.clone()?;
        let mut same = neighbour.exists;
        for value in compared {
            let (own, other) = (self.scalar(value), *neighbour.values.get(&value)?);
            let equal = self.value(Opcode::Cmp, [own, other], [Cmp::Eq.into()], Type::BOOL);
            same = self.binary(Opcode::And, same, equal);
        }
        Some(same)
    }

    /// The loader: copies the boxes of a load, or where the neighbour loads the same, one half of them to both.
    pub(super) fn copy_boxes(&mut self, op: Op, copies: &Copies, boxes: &[TileBox]) {
        let Some(same) = self.is_shared(op) else { return self.copy_all(copies, boxes) };
        let (first, second) = boxes.split_at(boxes.len() / 2);
        let branch = self.push(Opcode::If, [same], [], []);
        let _ = self.fill(branch, |this, _| {
            for (a, b) in first.iter().zip(second) {
                let offset = this.by_block(Type::U32, a.offset, b.offset);
                let to = this.value(Opcode::PtrAdd, [copies.tile, offset], [], Type::Pointer(Space::Shared));
                let at = [0, 1].map(|axis| {
                    let further = this.by_block(Type::I32, a.coordinates[axis], b.coordinates[axis]);
                    this.binary(Opcode::Add, copies.starts[axis], further)
                });
                this.copy_box(copies, (to, at), true);
            }
            Ok(Vec::new())
        });
        let _ = self.fill(branch, |this, _| {
            this.copy_all(copies, boxes);
            Ok(Vec::new())
        });
    }

    fn copy_all(&mut self, copies: &Copies, boxes: &[TileBox]) {
        for part in boxes {
            let to = self.further(copies.tile, part.offset);
            let mut at = copies.starts;
            for (start, offset) in at.iter_mut().zip(part.coordinates).filter(|(_, offset)| *offset > 0) {
                let offset = self.constant(Type::I32, u64::from(offset));
                *start = self.binary(Opcode::Add, *start, offset);
            }
            self.copy_box(copies, (to, at), false);
        }
    }

    fn copy_box(&mut self, copies: &Copies, (to, at): (Value, [Value; 2]), to_both: bool) {
        let mut operands = vec![to, copies.map, copies.full];
        operands.extend(at.into_iter().chain(copies.outer));
        let rank = tilewright_ir::Rank(if copies.outer.is_some() { 3 } else { 2 });
        let mut attrs = vec![rank.into()];
        if to_both {
            operands.push(self.constant(Type::Scalar(Element::U16), (1 << BLOCKS) - 1));
            attrs.push(Flags::MULTICAST.into());
        }
        self.push(Opcode::TmaLoad, operands, attrs, []);
    }

    /// A number that is one in the first block of a pair and another one in the second.
    fn by_block(&mut self, ty: Type, first: u32, second: u32) -> Value {
        let [first, second] = [first, second].map(|number| self.constant(ty, u64::from(number)));
        if first == second {
            return first;
        }
        let (rank, zero) = (self.number(Holder::Block), self.u32(0));
        let is_first = self.early(Opcode::Cmp, [rank, zero], [Cmp::Eq.into()], Type::BOOL);
        self.early(Opcode::Select, [is_first, first, second], [], ty)
    }
}
