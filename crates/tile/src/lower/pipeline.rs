//! Loads that run ahead: on Hopper, a warp of its own copies the factors of matrix products to shared memory while the others multiply.
//!
//! A load takes part if its tile is a factor of a `dot` in the same loop body and nothing else, and the copy engine can fetch it: a parameter
//! as pointer, extents and strides that the host knows, a stride of one, and 16-byte alignment of everything else. The function is then lowered
//! twice. The *loader* keeps scalars, loops and these loads; the *math* warps keep all else, and find the tiles in a ring of buffers:
//!
//! ```text
//! loader:  wait until slot is empty; announce its bytes; start copies;  next slot
//! math:    wait until slot is full;  multiply from it (wgmma);          next slot; give the slot before back
//! ```
//!
//! What all loads of one loop body bring is one slot. Both sides go through the same loops, so both count slots alike.

use std::collections::{HashMap, HashSet};

use tilewright_hardware::{
    Arch, Group, Major, MatrixDescriptor, SwizzleMode, TensorMapSpec, TileBoxes, mma, smem_tile,
};
use tilewright_ir::{
    AccessKind, Align, Axes, Bytes, Cmp, Def, Element, Flags, Func, Op, OpData, Opcode, Rank, Region, Shape,
    Space, Special, Type, Uses, Value, Warps,
};
use tilewright_layout::Composed;
use tilewright_passes::Alignment;

use super::assign::{Box3, constant};
use super::outgoing::Outgoing;
use super::{Lowering, Result};

const SHARED: Type = Type::Pointer(Space::Shared);

/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;

/// Shared memory of a multiprocessor that its blocks can have, less what barriers and exchanges take.
const ROOM: u32 = (227 - 2) * 1024;

/// Slots that a ring has at most: what hides the latency of memory, and no more.
const MOST_STAGES: u32 = 8;

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
}

/// One load that runs ahead.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    /// Its tile in shared memory, as `(row, k)`.
    tile: Composed,
    boxes: TileBoxes,
    element: Element,
    /// Bytes from the start of the slot.
    offset: u32,
    /// Axis of the load that is contiguous in memory.
    fast: usize,
    map: usize,
}

/// A product whose factors are loaded ahead.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    pub(super) left: Op,
    pub(super) right: Op,
    pub(super) atom: &'static mma::Mma,
}

/// All of it for one function.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    pub(super) loads: HashMap<Op, Staged>,
    pub(super) products: HashMap<Op, Product>,
    /// Loop bodies with loads that run ahead, and the loads in order.
    groups: HashMap<Region, Vec<Op>>,
    pub(super) maps: Vec<MapParameter>,
    slot_bytes: u32,
    /// Warpgroups that multiply.
    pub(super) groups_of_math: u32,
    largest: u32,
    /// Shared memory that exchanges need beside the ring.
    scratch: u32,
    /// The store that goes through shared memory.
    pub(super) outgoing: Option<Outgoing>,
}

impl Pipeline {
    /// What can run ahead in a function on a chip, with so much shared memory for exchanges; none if nothing can.
    pub(super) fn of(func: &Func, arch: Arch, align: &Alignment, scratch: u32) -> Option<Pipeline> {
        let all = func.walk();
        let alone = |code: Opcode| !matches!(code, Opcode::Item | Opcode::GridWait | Opcode::GridLaunch);
        if !arch.supports(Arch::SM_90A)
            || func.launch.cluster.is_some()
            || all.iter().any(|&op| !alone(func.op(op).code))
        {
            return None;
        }
        let uses = Uses::of(func);
        let mut found = Pipeline { scratch, ..Pipeline::default() };
        for body in loop_bodies(func, func.body()) {
            found.body(func, arch, align, &uses, body);
        }
        let rows = |op: &Op| func.ty(func.op(*op).results[0]).shape().map_or(0, |s| s.extents()[0]);
        let least = found.products.keys().map(rows).min()?;
        // Sums of 64 columns and more for each thread leave no registers for a second block.
        found.groups_of_math = if least % 128 == 0 { 2 } else { 1 };
        let sums = |op: &Op| func.ty(func.op(*op).results[0]).shape().map_or(0, |s| s.elements());
        found.largest =
            found.products.keys().map(sums).max().unwrap_or(0) / (WARPGROUP * found.groups_of_math);
        let asked = func.launch.total_threads();
        let fits = asked.is_none_or(|threads| threads == WARPGROUP * found.groups_of_math);
        let shapes: Vec<Shape> =
            found.products.keys().filter_map(|op| func.ty(func.op(*op).results[0]).shape()).collect();
        let outgoing = Outgoing::of(func, align, |extents| shapes.iter().any(|s| s.extents() == extents));
        found.outgoing = outgoing.and_then(|outgoing| found.make_room(&outgoing));
        if let Some(mut outgoing) = found.outgoing.take() {
            outgoing.map = found.map(func, outgoing.op, 1, &outgoing.boxes.spec);
            found.outgoing = Some(outgoing);
        }
        (fits && found.largest <= 256 && found.stages() >= 2).then_some(found)
    }

    /// Gives a store as many panels as leave the ring what it needs: four slots, or three if there is no other way.
    fn make_room(&mut self, outgoing: &Outgoing) -> Option<Outgoing> {
        let most = self.stages();
        let wanted = [most.min(4), most.min(3)];
        let enough = outgoing.panels.min(2);
        let ways = wanted.into_iter().flat_map(|stages| outgoing.rings().map(move |slots| (stages, slots)));
        let found = ways.filter(|(_, slots)| *slots >= enough).find_map(|(stages, slots)| {
            self.outgoing = Some(Outgoing { slots, ..outgoing.clone() });
            (self.stages() >= stages).then(|| self.outgoing.clone()).flatten()
        });
        self.outgoing = None;
        found
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

    fn body(&mut self, func: &Func, arch: Arch, align: &Alignment, uses: &Uses, body: Region) {
        for &op in &func.region(body).ops {
            let data = func.op(op);
            if data.code != Opcode::Dot {
                continue;
            }
            let Some(atom) = warpgroup_atom(func, data, arch) else { continue };
            // Sides as `(row of the tile in shared memory, k)`: axis of k in the operand.
            let sides = [(0, 1, atom.a, 64), (1, 0, atom.b, atom.shape.n)];
            let found: Option<Vec<(Op, Staged)>> = sides
                .into_iter()
                .map(|(operand, k_axis, element, rows)| {
                    let (load, k_axis) = factor(func, uses, body, data.operands[operand], k_axis)?;
                    Some((load, self.staged(func, align, load, (k_axis, element, rows))?))
                })
                .collect();
            if let Some(found) = found {
                let product = Product { left: found[0].0, right: found[1].0, atom };
                for (load, mut staged) in found {
                    let group = self.groups.entry(body).or_default();
                    let used: u32 = group.iter().map(|op| self.loads[op].bytes()).sum();
                    staged.offset = used;
                    group.push(load);
                    self.slot_bytes = self.slot_bytes.max(used + staged.bytes());
                    staged.map = self.map(func, load, staged.fast, &staged.boxes.spec);
                    self.loads.insert(load, staged);
                }
                self.products.insert(op, product);
            }
        }
    }

    /// How a load would be staged, if it can be.
    fn staged(
        &self,
        func: &Func,
        align: &Alignment,
        load: Op,
        (k_axis, element, rows): (usize, Element, u32),
    ) -> Option<Staged> {
        let data = func.op(load);
        let shape = func.ty(data.results[0]).shape()?;
        let parts = Box3::of(data, shape.rank());
        let pad = data.operands.last()?;
        let bytes = element.bits() / 8;
        let fast = (0..2).rev().find(|&axis| constant(func, parts.strides[axis]) == Some(1))?;
        let slow = 1 - fast;
        let aligned = align.at(data.operands[0], 0) >= 16
            && (align.at(parts.strides[slow], 0) * u64::from(bytes)).is_multiple_of(16);
        let body = &func.region(func.body()).args;
        let is_parameter = |value: &Value| body.contains(value);
        // What the program itself writes may be there only later.
        let written = func.walk().into_iter().any(|op| {
            let other = func.op(op);
            let writes = other.info().effects.accesses.iter().any(|access| access.kind != AccessKind::Read);
            writes && other.operands.first().is_some_and(|p| *p == data.operands[0] || !is_parameter(p))
        });
        let padded = constant(func, *pad).is_some_and(|bits| bits == 0);
        if shape.rank() != 2 || !aligned || written || !padded || !from_host(func, data) {
            return None;
        }
        let major = if fast == k_axis { Major::K } else { Major::Mn };
        let extents = shape.extents();
        let (tile_rows, depth) = (extents[1 - k_axis], extents[k_axis]);
        let modes = [SwizzleMode::B128, SwizzleMode::B64, SwizzleMode::B32];
        modes.into_iter().find_map(|mode| {
            let tile = smem_tile(major, tile_rows, depth, element, mode).ok()?;
            MatrixDescriptor::for_operand(&tile, element, rows).ok()?;
            let boxes = TensorMapSpec::for_tile(&tile, element).ok()?;
            (boxes.major == major).then_some(Staged { tile, boxes, element, offset: 0, fast, map: 0 })
        })
    }

    /// The map for a load or store: one for all that need the same.
    fn map(&mut self, func: &Func, op: Op, fast: usize, spec: &TensorMapSpec) -> usize {
        let data = func.op(op);
        let parts = Box3::of(data, 2);
        let args = &func.region(func.body()).args;
        let name = |value: Value| {
            let position = args.iter().position(|&arg| arg == value)?;
            func.params.get(position).map(|param| param.name.clone())
        };
        let number = |value: Value| match name(value) {
            Some(name) => Number::Parameter(name),
            None => Number::Constant(constant(func, value).unwrap_or(0).cast_signed()),
        };
        let inner_first = [fast, 1 - fast];
        let pointer = name(data.operands[0]).unwrap_or_default();
        let wanted = MapParameter {
            name: format!("{pointer}_map{}", self.maps.len()),
            pointer,
            spec: spec.clone(),
            extents: inner_first.iter().map(|&axis| number(parts.extents[axis])).collect(),
            strides: inner_first.iter().map(|&axis| number(parts.strides[axis])).collect(),
        };
        let same = |map: &MapParameter| MapParameter { name: wanted.name.clone(), ..map.clone() } == wanted;
        self.maps.iter().position(same).unwrap_or_else(|| {
            self.maps.push(wanted.clone());
            self.maps.len() - 1
        })
    }

    /// Blocks that share a multiprocessor: two, if sums and tiles leave room, so that one multiplies while the other stores.
    pub(super) fn blocks(&self) -> u32 {
        if self.largest <= 64 && ROOM / 2 >= 3 * self.slot_bytes + self.beside() { 2 } else { 1 }
    }

    fn stages(&self) -> u32 {
        ((ROOM / self.blocks()).saturating_sub(self.beside()) / self.slot_bytes.max(1)).min(MOST_STAGES)
    }

    /// Shared memory that is not for the ring.
    fn beside(&self) -> u32 {
        self.scratch + self.outgoing.as_ref().map_or(0, Outgoing::bytes)
    }
}

impl Staged {
    fn bytes(&self) -> u32 {
        u32::try_from(self.boxes.spec.bytes()).unwrap_or(u32::MAX)
            * u32::try_from(self.boxes.boxes.len()).unwrap_or(1)
    }
}

/// Whether the host can make a tensor map for a box: it knows the pointer, all extents and all strides.
pub(super) fn from_host(func: &Func, data: &OpData) -> bool {
    let parameters = &func.region(func.body()).args;
    let known = |value: &Value| parameters.contains(value) || constant(func, *value).is_some();
    let parts = Box3::of(data, 2);
    parameters.contains(&data.operands[0]) && parts.extents.iter().chain(parts.strides).all(known)
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

/// Bodies of counted loops that stand in nothing but counted loops.
fn loop_bodies(func: &Func, region: Region) -> Vec<Region> {
    let loops = func.region(region).ops.iter().filter(|&&op| func.op(op).code == Opcode::For);
    loops
        .flat_map(|&op| {
            let body = func.op(op).regions[0];
            [vec![body], loop_bodies(func, body)].concat()
        })
        .collect()
}

/// The load behind a factor, and which of its axes is k: the factor itself, or its transpose.
fn factor(func: &Func, uses: &Uses, body: Region, operand: Value, k_axis: usize) -> Option<(Op, usize)> {
    let op =
        func.def_op(operand).filter(|op| func.region(body).ops.contains(op) && uses.count(operand) == 1)?;
    let data = func.op(op);
    match data.code {
        Opcode::TileLoad => Some((op, k_axis)),
        Opcode::Transpose if data.get::<Axes>()?.axes() == [1, 0] => {
            factor(func, uses, body, data.operands[0], 1 - k_axis)
        }
        _ => None,
    }
}

fn warpgroup_atom(func: &Func, data: &OpData, arch: Arch) -> Option<&'static mma::Mma> {
    let element = |i: usize| func.ty(data.operands[i]).element();
    let factor = |e: Element| match e {
        Element::F32 if data.flags().has(Flags::TF32) => Some(Element::TF32),
        Element::F32 | Element::F64 => None,
        other => Some(other),
    };
    let (a, b, c) = (factor(element(0)?)?, factor(element(1)?)?, element(2)?);
    let sums = func.ty(data.results[0]).shape()?;
    let (m, n) = (sums.extents()[0], sums.extents()[1]);
    let k = func.ty(data.operands[0]).shape()?.extents()[1];
    let atom = mma::best(arch, Group::Warpgroup, a, b, c, (m, n, k)).ok()?;
    (atom.shape.n == n).then_some(atom)
}

/// Slots in shared memory and their barriers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    tiles: Value,
    full: Value,
    empty: Value,
    stages: u32,
    /// Where this side stands: the slot, and the parity of its round.
    pub(super) slot: Value,
    pub(super) phase: Value,
}

impl Lowering<'_> {
    /// Lowers the function for a warp that loads and for warps that multiply.
    pub(super) fn specialised(&mut self) -> Result<()> {
        let stages = self.pipeline.stages();
        let math = 4 * self.pipeline.groups_of_math;
        let shared = |this: &mut Self, bytes: u32, align: u32| {
            this.early(Opcode::Shared, [], [Bytes(bytes).into(), Align(align).into()], SHARED)
        };
        let tiles = shared(self, stages * self.pipeline.slot_bytes, 1024);
        let (full, empty) = (shared(self, 8 * stages, 8), shared(self, 8 * stages, 8));
        self.panels = self.panels();
        self.barriers(full, empty, stages);
        let (zero, one) = (self.u32(0), self.u32(1));
        let ring = Ring { tiles, full, empty, stages, slot: zero, phase: zero };
        let role = |first: u32, end: u32| Warps {
            start: u16::try_from(first).unwrap_or(0),
            end: u16::try_from(end).unwrap_or(0),
        };
        // A fresh barrier counts as completed with parity 1: the first round of the loader does not wait.
        for (name, warps, ring, loads) in [
            ("math", role(0, math), ring, false),
            ("loader", role(math, math + 1), Ring { phase: one, ..ring }, true),
        ] {
            self.ring = Some(ring);
            self.loads = loads;
            let op = self.push(Opcode::Role, [], [tilewright_ir::Attr::text(name), warps.into()], []);
            self.fill(op, |this, _| {
                if !loads {
                    this.all_programs()?;
                    this.end_copies();
                    return Ok(Vec::new());
                }
                let all = this.u32(u32::MAX);
                let elected = this.value(Opcode::Elect, [all], [], Type::BOOL);
                let only = this.push(Opcode::If, [elected], [], []);
                this.fill(only, |this, _| this.all_programs().map(|()| Vec::new()))?;
                this.fill(only, |_, _| Ok(Vec::new()))?;
                Ok(Vec::new())
            })?;
        }
        Ok(())
    }

    /// The program of this block; or one after the other, with what the next one needs on its way while the one before stores.
    fn all_programs(&mut self) -> Result<()> {
        let body = self.source.body();
        let (Some(programs), Some([slot, phase])) = (self.programs, self.ring_values()) else {
            return self.region(body);
        };
        let special =
            |this: &mut Self, which: Special| this.value(Opcode::Special, [], [which.into()], Type::U32);
        let (first, apart) = (special(self, Special::CtaidX), special(self, Special::NctaidX));
        let [width, height, depth] = programs;
        let layer = self.binary(Opcode::Mul, width, height);
        let all = self.binary(Opcode::Mul, layer, depth);
        let op = self.push(Opcode::For, [first, all, apart, slot, phase], [], [Type::U32; 2]);
        let before = self.enter_loop_of(&[body]);
        self.fill(op, |this, region| {
            let [number, slot, phase] = [Type::U32; 3].map(|ty| this.builder.func.add_arg(region, ty));
            this.set_ring([slot, phase]);
            let row = this.binary(Opcode::Div, number, width);
            this.program = Some([
                this.binary(Opcode::Rem, number, width),
                this.binary(Opcode::Rem, row, height),
                this.binary(Opcode::Div, number, layer),
            ]);
            this.region(body)?;
            Ok(this.ring_values().into_iter().flatten().collect())
        })?;
        self.program = None;
        self.leave_loop(before);
        Ok(())
    }

    /// One thread makes the barriers, and all wait for it.
    fn barriers(&mut self, full: Value, empty: Value, stages: u32) {
        let thread = self.early(Opcode::Special, [], [tilewright_ir::Special::TidX.into()], Type::U32);
        let (zero, one, consumers) = (self.u32(0), self.u32(1), self.u32(self.pipeline.groups_of_math));
        let first = self.early(Opcode::Cmp, [thread, zero], [Cmp::Eq.into()], Type::BOOL);
        let op = self.push(Opcode::If, [first], [], []);
        let _ = self.fill(op, |this, _| {
            for stage in 0..stages {
                let (full, empty) = (this.further(full, 8 * stage), this.further(empty, 8 * stage));
                this.push(Opcode::MbarInit, [full, one], [], []);
                this.push(Opcode::MbarInit, [empty, consumers], [], []);
            }
            this.push(Opcode::FenceMbarInit, [], [], []);
            Ok(Vec::new())
        });
        let _ = self.fill(op, |_, _| Ok(Vec::new()));
        self.push(Opcode::Barrier, [zero], [Flags::ALIGNED.into()], []);
    }

    fn barrier_at(&mut self, barriers: Value, slot: Value) -> Value {
        let eight = self.u32(8);
        let offset = self.binary(Opcode::Mul, slot, eight);
        self.value(Opcode::PtrAdd, [barriers, offset], [], SHARED)
    }

    fn slot_at(&mut self, ring: &Ring, slot: Value, offset: u32) -> Value {
        let bytes = self.u32(self.pipeline.slot_bytes);
        let distance = self.binary(Opcode::Mul, slot, bytes);
        let start = self.value(Opcode::PtrAdd, [ring.tiles, distance], [], SHARED);
        self.further(start, offset)
    }

    /// Moves on to the position after this one.
    pub(super) fn next_slot(&mut self) {
        let Some(ring) = self.ring else { return };
        let (one, end, zero) = (self.u32(1), self.u32(ring.stages), self.u32(0));
        let next = self.binary(Opcode::Add, ring.slot, one);
        let wraps = self.value(Opcode::Cmp, [next, end], [Cmp::Eq.into()], Type::BOOL);
        let slot = self.value(Opcode::Select, [wraps, zero, next], [], Type::U32);
        let turned = self.binary(Opcode::Xor, ring.phase, one);
        let phase = self.value(Opcode::Select, [wraps, turned, ring.phase], [], Type::U32);
        self.ring = Some(Ring { slot, phase, ..ring });
    }

    /// Whether a region, or one inside it, has loads that run ahead.
    pub(super) fn runs_ahead(&self, region: Region) -> bool {
        let mut ops = Vec::new();
        self.source.walk_region(region, &mut ops);
        ops.iter().any(|op| self.pipeline.loads.contains_key(op))
    }

    /// The loader: waits for room, and starts the copies of a load; the first of a body announces the bytes of all.
    pub(super) fn start_copy(&mut self, op: Op, data: &OpData) {
        let (Some(ring), Some(staged)) = (self.ring, self.pipeline.loads.get(&op).cloned()) else { return };
        let group =
            self.pipeline.groups.values().find(|group| group.contains(&op)).cloned().unwrap_or_default();
        let full = self.barrier_at(ring.full, ring.slot);
        if group.first() == Some(&op) {
            let empty = self.barrier_at(ring.empty, ring.slot);
            self.push(Opcode::MbarWait, [empty, ring.phase], [], []);
            let bytes: u32 = group.iter().map(|op| self.pipeline.loads[op].bytes()).sum();
            let bytes = self.u32(bytes);
            self.push(Opcode::MbarArriveExpect, [full, bytes], [], []);
        }
        let parts = Box3::of(data, 2);
        let starts =
            [parts.starts[staged.fast], parts.starts[1 - staged.fast]].map(|start| self.scalar(start));
        let tile = self.slot_at(&ring, ring.slot, staged.offset);
        let map = self.map_values[staged.map];
        for part in &staged.boxes.boxes {
            let to = self.further(tile, part.offset);
            let mut operands = vec![to, map, full];
            for (start, offset) in starts.into_iter().zip(part.coordinates) {
                let offset_value = self.constant(Type::I32, u64::from(offset));
                operands.push(if offset == 0 {
                    start
                } else {
                    self.binary(Opcode::Add, start, offset_value)
                });
            }
            self.push(Opcode::TmaLoad, operands, [Rank(2).into()], []);
        }
        if group.last() == Some(&op) {
            self.next_slot();
        }
    }

    /// Starts `place += a * b` from the slot (without `add`, `place = a * b`), and closes the group of multiplications.
    pub(super) fn multiply_staged(&mut self, product: Product, places: &[Value], add: Option<Value>) {
        let Some(ring) = self.ring else { return };
        let (left, right) =
            (self.pipeline.loads[&product.left].clone(), self.pipeline.loads[&product.right].clone());
        let atom = product.atom;
        let forms = (
            MatrixDescriptor::for_operand(&left.tile, left.element, 64),
            MatrixDescriptor::for_operand(&right.tile, right.element, atom.shape.n),
        );
        // Both were made when the load was found to be one that runs ahead.
        let (Ok(of_a), Ok(of_b)) = forms else { return };
        let (a, b) =
            (self.slot_at(&ring, ring.slot, left.offset), self.slot_at(&ring, ring.slot, right.offset));
        let descriptor = |this: &mut Self, at: Value, form: &MatrixDescriptor| {
            this.value(Opcode::Descriptor, [at], [tilewright_ir::Bits(form.encode_high()).into()], Type::U64)
        };
        let rows = u32::try_from(places.len()).unwrap_or(1);
        let a = {
            // Each warpgroup has its own rows.
            let group = self.warpgroup();
            let step = of_a.row_offsets.get(rows as usize).copied().unwrap_or(0);
            let step = self.u32(step);
            let distance = self.early(Opcode::Mul, [group, step], [], Type::U32);
            self.value(Opcode::PtrAdd, [a, distance], [], SHARED)
        };
        let (a, b) = (descriptor(self, a, &of_a), descriptor(self, b, &of_b));
        let flags =
            Flags::TRANS_A.when(of_a.major == Major::Mn).with(Flags::TRANS_B.when(of_b.major == Major::Mn));
        let id = tilewright_ir::Mma {
            m: 64,
            n: u16::try_from(atom.shape.n).unwrap_or(0),
            k: u16::try_from(atom.shape.k).unwrap_or(0),
            c: atom.c,
            a: atom.a,
            b: atom.b,
        };
        let yes = self.constant(Type::BOOL, 1);
        self.push(Opcode::WgmmaFence, [], [], []);
        for (i, (&deep_a, &deep_b)) in of_a.k_offsets.iter().zip(&of_b.k_offsets).enumerate() {
            let add = add.filter(|_| i == 0).unwrap_or(yes);
            let right = self.advanced(b, deep_b);
            for (row, &place) in places.iter().enumerate() {
                let left = self.advanced(a, of_a.row_offsets[row] + deep_a);
                self.push(Opcode::Wgmma, [place, left, right, add], [id.into(), flags.into()], []);
            }
        }
        self.push(Opcode::WgmmaCommit, [], [], []);
    }

    fn advanced(&mut self, descriptor: Value, bytes: u32) -> Value {
        if bytes == 0 {
            return descriptor;
        }
        let units = self.constant(Type::U64, u64::from(bytes / 16));
        self.binary(Opcode::Add, descriptor, units)
    }

    /// The number of this thread's warpgroup.
    pub(super) fn warpgroup(&mut self) -> Value {
        let warp = self.number(super::layout::Holder::Warp);
        let two = self.u32(2);
        self.early(Opcode::Shr, [warp, two], [], Type::U32)
    }

    /// Math: waits until the slot is full.
    pub(super) fn wait_full(&mut self) {
        let Some(ring) = self.ring else { return };
        let full = self.barrier_at(ring.full, ring.slot);
        self.push(Opcode::MbarWait, [full, ring.phase], [], []);
    }

    /// Math: gives a slot back, one thread for each warpgroup, where `condition` holds.
    pub(super) fn release(&mut self, slot: Value, condition: Option<Value>) {
        let Some(ring) = self.ring else { return };
        let lane = self.number(super::layout::Holder::Lane);
        let warp = self.number(super::layout::Holder::Warp);
        let (three, zero) = (self.u32(3), self.u32(0));
        let of_group = self.early(Opcode::And, [warp, three], [], Type::U32);
        let either = self.early(Opcode::Or, [lane, of_group], [], Type::U32);
        let first = self.early(Opcode::Cmp, [either, zero], [Cmp::Eq.into()], Type::BOOL);
        let Some(here) = self.both(Some(first), condition) else { return };
        let op = self.push(Opcode::If, [here], [], []);
        let _ = self.fill(op, |this, _| {
            let empty = this.barrier_at(ring.empty, slot);
            this.push(Opcode::MbarArrive, [empty], [], []);
            Ok(Vec::new())
        });
        let _ = self.fill(op, |_, _| Ok(Vec::new()));
    }

    /// Where the ring stands, to be carried by a loop.
    pub(super) fn ring_values(&self) -> Option<[Value; 2]> {
        self.ring.map(|ring| [ring.slot, ring.phase])
    }

    pub(super) fn set_ring(&mut self, [slot, phase]: [Value; 2]) {
        self.ring = self.ring.map(|ring| Ring { slot, phase, ..ring });
    }

    /// Products of a loop body whose sums stay in the accumulator from one iteration to the next: position among what the loop carries, by op.
    pub(super) fn in_place(&self, data: &OpData) -> HashMap<usize, Op> {
        let func = self.source;
        let body = data.regions[0];
        let uses = Uses::of(func);
        let args = &func.region(body).args;
        let end = func.terminator(body).map(|end| func.op(end).operands.to_vec()).unwrap_or_default();
        let mut found = HashMap::new();
        for &op in &func.region(body).ops {
            let inner = func.op(op);
            if !self.pipeline.products.contains_key(&op) {
                continue;
            }
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

    /// The products in a loop body, without those in loops inside of it.
    pub(super) fn products_of(&self, body: Region) -> HashSet<Op> {
        self.source
            .region(body)
            .ops
            .iter()
            .copied()
            .filter(|op| self.pipeline.products.contains_key(op))
            .collect()
    }
}
