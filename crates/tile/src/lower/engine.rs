//! Factors that the copy engine brings, on Hopper: a warp of its own copies them to shared memory while the others multiply.
//!
//! The function is lowered twice. The *loader* keeps scalars, loops and the loads that run ahead; the *math* warps keep all else, and find the
//! tiles in a ring of buffers:
//!
//! ```text
//! loader:  wait until slot is empty; announce its bytes; start copies;  next slot
//! math:    wait until slot is full;  multiply from it (wgmma);          next slot; give the slot before back
//! ```
//!
//! Both sides go through the same loops, so both count slots alike. Two warpgroups may each have programs of their own ([`teams`](super::teams)),
//! and a warp to spare stores ([`storer`](super::storer)). Where a block has several programs, the loader goes through every other one from its
//! end, if it is nothing but a sum: sums of products are not rounded in any particular order.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::rc::Rc;

use tilewright_hardware::{Major, MatrixDescriptor, SwizzleMode, smem_tile};
use tilewright_ir::{
    Align, Bytes, Cmp, Element, FenceProxy, Flags, Op, OpData, Opcode, Rank, Region, Registers, Space,
    Special, Type, Value, Warps,
};

use super::assign::Box3;
use super::dot::{Lines, warpgroup_rows};
use super::layout::Layout;
use super::pipeline::{Form, Left, Outer, Product};
use super::{Lowering, Result};

const SHARED: Type = Type::Pointer(Space::Shared);

/// Slots in shared memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ring {
    pub(super) tiles: Value,
    pub(super) stages: u32,
    slot_bytes: u32,
    /// Where this side stands.
    pub(super) slot: Value,
    /// How loader and math tell each other, if there is a loader.
    signals: Option<Signals>,
}

/// Barriers of the slots, and the parity of the round that this side is in.
#[derive(Debug, Clone, Copy)]
struct Signals {
    full: Value,
    empty: Value,
    phase: Value,
}

impl Ring {
    /// A ring that the threads that multiply fill themselves.
    pub(super) fn of_threads(tiles: Value, (stages, slot_bytes): (u32, u32), slot: Value) -> Ring {
        Ring { tiles, stages, slot_bytes, slot, signals: None }
    }
}

/// Registers of threads that multiply and of those that load, if the latter are a warpgroup: together what a multiprocessor has.
const MATH_REGISTERS: u32 = 232;
const LOADER_REGISTERS: u32 = 40;

/// Warps beside so many that multiply, if so many blocks share a multiprocessor; one thread of them loads. A warpgroup where two multiply and
/// one block has a multiprocessor to itself, so that it can leave its registers to them: one warp more than eight would cost each thread a
/// quarter of its registers.
pub(super) fn loaders(math: u32, blocks: u32) -> u32 {
    if math == 8 && blocks == 1 { 4 } else { 1 }
}

impl Lowering<'_> {
    /// Lowers the function for a warp that loads and for warps that multiply.
    pub(super) fn specialised(&mut self) -> Result<()> {
        let Some(pipeline) = &self.pipeline else { return Ok(()) };
        let (stages, slot_bytes) = (pipeline.stages, pipeline.slot_bytes);
        let math = pipeline.teams * pipeline.warps;
        let (loaders, alone) = (loaders(math, pipeline.blocks), pipeline.blocks == 1);
        let shared = |this: &mut Self, bytes: u32, align: u32| {
            this.early(Opcode::Shared, [], [Bytes(bytes).into(), Align(align).into()], SHARED)
        };
        let tiles = shared(self, stages * slot_bytes, 1024);
        let (full, empty) = (shared(self, 8 * stages, 8), shared(self, 8 * stages, 8));
        self.panels = self.panels();
        self.barriers(full, empty, stages);
        // Blocks that begin early take the places that are free: of small ones, some multiprocessors would get two and others none.
        if alone {
            self.overlap();
        }
        let (zero, one) = (self.u32(0), self.u32(1));
        let signals = Signals { full, empty, phase: zero };
        let ring = Ring { tiles, stages, slot_bytes, slot: zero, signals: Some(signals) };
        // A fresh barrier counts as completed with parity 1: the first round of the loader does not wait.
        let ahead = Ring { signals: Some(Signals { phase: one, ..signals }), ..ring };
        let parameters = self.held.clone();
        let registers = |registers: u32| (loaders > 1).then_some(registers);

        self.ring = Some(ring);
        self.role(("math", 0..math), registers(MATH_REGISTERS), |this| {
            this.all_programs()?;
            this.end_copies();
            Ok(())
        })?;
        self.loads = true;
        self.role(("loader", math..math + loaders), registers(LOADER_REGISTERS), |this| {
            let all = this.u32(u32::MAX);
            let elected = this.value(Opcode::Elect, [all], [], Type::BOOL);
            let thread = this.value(Opcode::Special, [], [Special::TidX.into()], Type::U32);
            let (five, first, second) = (this.u32(5), this.u32(math), this.u32(math + 1));
            let warp = this.binary(Opcode::Shr, thread, five);
            let first = this.value(Opcode::Cmp, [warp, first], [Cmp::Eq.into()], Type::BOOL);
            let one = if loaders > 1 { this.binary(Opcode::And, elected, first) } else { elected };
            (this.ring, this.held) = (Some(ahead), parameters.clone());
            this.only_where(one, Self::all_programs)?;
            if this.handed_out {
                let second = this.value(Opcode::Cmp, [warp, second], [Cmp::Eq.into()], Type::BOOL);
                (this.ring, this.held) = (None, parameters);
                this.only_where(second, Self::store_programs)?;
            }
            Ok(())
        })
    }

    /// What some warps do, each thread of them with so many registers if that is not as many as all have.
    fn role(
        &mut self,
        (name, warps): (&str, Range<u32>),
        registers: Option<u32>,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let [start, end] = [warps.start, warps.end].map(|warp| u16::try_from(warp).unwrap_or(0));
        let mut attrs = vec![tilewright_ir::Attr::text(name), Warps { start, end }.into()];
        attrs.extend(registers.map(|registers| Registers(registers).into()));
        let op = self.push(Opcode::Role, [], attrs, []);
        self.fill(op, |this, _| body(this).map(|()| Vec::new()))
    }

    /// The program of this block; or one after the other, with what the next one needs on its way while the one before stores.
    pub(super) fn all_programs(&mut self) -> Result<()> {
        let body = self.source.body();
        let Some(programs) = self.programs else { return self.region(body) };
        let special =
            |this: &mut Self, which: Special| this.value(Opcode::Special, [], [which.into()], Type::U32);
        let (first, apart) = (special(self, Special::CtaidX), special(self, Special::NctaidX));
        let [width, height, depth] = programs;
        let layer = self.binary(Opcode::Mul, width, height);
        let all = self.binary(Opcode::Mul, layer, depth);
        if self.teams() > 1 && !self.loads {
            return self.own_programs([first, all, apart]);
        }
        self.programs_from([first, all, apart], |this, _| this.region(body))
    }

    /// A loop over the numbers of programs; `program` does what is to be done for each.
    pub(super) fn programs_from(
        &mut self,
        bounds: [Value; 3],
        program: impl FnOnce(&mut Self, Value) -> Result<()>,
    ) -> Result<()> {
        let body = self.source.body();
        let Some([width, height, _]) = self.programs else { return Ok(()) };
        let apart = bounds[2];
        let layer = self.binary(Opcode::Mul, width, height);
        let ring = self.ring_values();
        let types = vec![Type::U32; ring.len()];
        let op = self.push(Opcode::For, bounds.into_iter().chain(ring), [], types.clone());
        self.turns.push(op);
        let before = self.enter_loop_of(&[body]);
        self.fill(op, |this, region| {
            let number = this.builder.func.add_arg(region, Type::U32);
            let ring: Vec<Value> = types.iter().map(|&ty| this.builder.func.add_arg(region, ty)).collect();
            this.set_ring(&ring);
            if this.loads {
                let (turn, one) = (this.binary(Opcode::Div, number, apart), this.u32(1));
                let odd = this.binary(Opcode::And, turn, one);
                this.backwards = Some(this.value(Opcode::Cmp, [odd, one], [Cmp::Eq.into()], Type::BOOL));
            }
            let row = this.binary(Opcode::Div, number, width);
            this.program = Some([
                this.binary(Opcode::Rem, number, width),
                this.binary(Opcode::Rem, row, height),
                this.binary(Opcode::Div, number, layer),
            ]);
            program(this, number)?;
            Ok(this.ring_values())
        })?;
        self.program = None;
        self.backwards = None;
        self.leave_loop(before);
        Ok(())
    }

    /// The loader: what a loop counts as when its counter is `number`. In every other program sums are added up from the last factors to the
    /// first: what the program before has read last is what L2 still holds. Not with a counter of 8 or 16 bits, which nobody computes with.
    pub(super) fn walked(&mut self, data: &OpData, number: Value, [low, high, step]: [Value; 3]) -> Value {
        let ty = self.builder.func.ty(number);
        let turns = ty.bits() >= 32 && self.only_sums(data);
        let Some(backwards) = self.backwards.filter(|_| turns) else { return number };
        let steps = self.steps_to_last([low, high, step]);
        let steps = self.with_type(steps, ty);
        let way = self.binary(Opcode::Mul, steps, step);
        let last = self.binary(Opcode::Add, low, way);
        let gone = self.binary(Opcode::Sub, number, low);
        let from_end = self.binary(Opcode::Sub, last, gone);
        self.value(Opcode::Select, [backwards, from_end, number], [], ty)
    }

    /// Whether a loop does nothing but add up products of what is loaded ahead, so that it may go through them in any order.
    fn only_sums(&self, data: &OpData) -> bool {
        let func = self.source;
        let sums = self.in_place(data);
        let is_part = |&op: &Op| {
            let data = func.op(op);
            let scalars = data.results.iter().all(|&result| func.ty(result).shape().is_none());
            self.staged(op).is_some()
                || sums.values().any(|&product| product == op)
                || matches!(data.code, Opcode::Yield | Opcode::Transpose)
                || scalars && data.info().is_pure()
        };
        sums.len() == data.results.len() && func.region(data.regions[0]).ops.iter().all(is_part)
    }

    /// One thread makes the barriers, and all wait for it.
    fn barriers(&mut self, full: Value, empty: Value, stages: u32) {
        let thread = self.early(Opcode::Special, [], [tilewright_ir::Special::TidX.into()], Type::U32);
        let (zero, one, consumers) = (self.u32(0), self.u32(1), self.u32(self.team().warps / 4));
        let first = self.early(Opcode::Cmp, [thread, zero], [Cmp::Eq.into()], Type::BOOL);
        self.only_if(Some(first), |this| {
            for stage in 0..stages {
                let (full, empty) = (this.further(full, 8 * stage), this.further(empty, 8 * stage));
                this.push(Opcode::MbarInit, [full, one], [], []);
                this.push(Opcode::MbarInit, [empty, consumers], [], []);
            }
            this.push(Opcode::FenceMbarInit, [], [], []);
        });
        self.push(Opcode::Barrier, [zero], [Flags::ALIGNED.into()], []);
    }

    fn barrier_at(&mut self, barriers: Value, slot: Value) -> Value {
        let eight = self.u32(8);
        let offset = self.binary(Opcode::Mul, slot, eight);
        self.value(Opcode::PtrAdd, [barriers, offset], [], SHARED)
    }

    pub(super) fn slot_at(&mut self, ring: &Ring, slot: Value, offset: u32) -> Value {
        let bytes = self.u32(ring.slot_bytes);
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
        let signals = ring.signals.map(|signals| {
            let turned = self.binary(Opcode::Xor, signals.phase, one);
            let phase = self.value(Opcode::Select, [wraps, turned, signals.phase], [], Type::U32);
            Signals { phase, ..signals }
        });
        self.ring = Some(Ring { slot, signals, ..ring });
    }

    /// Whether a region, or one inside it, has loads that run ahead.
    pub(super) fn runs_ahead(&self, region: Region) -> bool {
        let mut ops = Vec::new();
        self.source.walk_region(region, &mut ops);
        ops.iter().any(|&op| self.staged(op).is_some())
    }

    /// Whether a loop inside of a body runs ahead.
    pub(super) fn runs_ahead_inside(&self, body: Region) -> bool {
        let mut inside = self.source.region(body).ops.iter().flat_map(|&op| &self.source.op(op).regions);
        inside.any(|&region| self.runs_ahead(region))
    }

    /// The loader: waits for room, and starts the copies of a load; the first of a body announces the bytes of all.
    pub(super) fn start_copy(&mut self, op: Op, data: &OpData) {
        let (Some(ring), Some(staged)) = (self.ring, self.staged(op).cloned()) else { return };
        let (Some(signals), Form::Boxes { boxes, map, outer, .. }) = (ring.signals, staged.form) else {
            return;
        };
        let mut groups = self.pipeline.iter().flat_map(|pipeline| pipeline.groups.values());
        let group = groups.find(|group| group.loads.contains(&op));
        let group = group.map(|group| group.loads.clone()).unwrap_or_default();
        let full = self.barrier_at(signals.full, ring.slot);
        if group.first() == Some(&op) {
            let empty = self.barrier_at(signals.empty, ring.slot);
            self.push(Opcode::MbarWait, [empty, signals.phase], [], []);
            let bytes: u32 = group.iter().filter_map(|&op| self.staged(op)).map(|staged| staged.bytes).sum();
            let bytes = self.u32(bytes);
            self.push(Opcode::MbarArriveExpect, [full, bytes], [], []);
        }
        let parts = Box3::of(data, 2);
        let starts =
            [parts.starts[staged.fast], parts.starts[1 - staged.fast]].map(|start| self.scalar(start));
        let tile = self.slot_at(&ring, ring.slot, staged.offset);
        let map = self.map_values[map];
        let outer = outer.map(|Outer { index, .. }| self.scalar(index));
        for part in &boxes.boxes {
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
            operands.extend(outer);
            let rank = if outer.is_some() { 3 } else { 2 };
            self.push(Opcode::TmaLoad, operands, [Rank(rank).into()], []);
        }
        if group.last() == Some(&op) {
            self.next_slot();
        }
    }

    /// Starts `place += a * b` from the slot (where `add` does not hold, `place = a * b`), and closes the group of multiplications.
    pub(super) fn multiply_staged(&mut self, product: Product, places: &[Value], add: Option<Value>) {
        let (Some(ring), Some(right)) = (self.ring, self.staged(product.right).cloned()) else { return };
        let Form::Boxes { tile, .. } = &right.form else { return };
        let atom = product.atom;
        // It was made when the load was found to be one that runs ahead.
        let Ok(of_b) = MatrixDescriptor::for_operand(tile, right.element, atom.shape.n) else { return };
        let Some((left, turned)) = self.left_of(product, places.len(), of_b.k_offsets.len()) else { return };
        let b = self.slot_at(&ring, ring.slot, right.offset);
        let b = self.descriptor(b, &of_b);
        let flags = Flags::TRANS_A.when(turned).with(Flags::TRANS_B.when(of_b.major == Major::Mn));
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
        for (i, (of_a, &deep)) in left.iter().zip(&of_b.k_offsets).enumerate() {
            let add = add.filter(|_| i == 0).unwrap_or(yes);
            let right = self.advanced(b, deep);
            for (&place, &left) in places.iter().zip(of_a) {
                self.push(Opcode::Wgmma, [place, left, right, add], [id.into(), flags.into()], []);
            }
        }
        self.push(Opcode::WgmmaCommit, [], [], []);
    }

    /// The left factor of a product: for every step along k what each of so many blocks of rows multiplies by, and whether that is turned.
    fn left_of(&mut self, product: Product, rows: usize, steps: usize) -> Option<(Vec<Vec<Value>>, bool)> {
        match product.left {
            Left::Ahead(_) | Left::Kept(_) => {
                let (at, form) = match product.left {
                    Left::Kept(value) => (*self.kept.get(&value)?, self.kept_form(value)?),
                    Left::Ahead(load) => {
                        let (ring, left) = (self.ring?, self.staged(load)?.clone());
                        let Form::Boxes { tile, .. } = &left.form else { return None };
                        let form = MatrixDescriptor::for_operand(tile, left.element, 64).ok()?;
                        (self.slot_at(&ring, ring.slot, left.offset), form)
                    }
                    Left::Registers(_) => return None,
                };
                // Each warpgroup has its own rows.
                let group = self.warpgroup();
                let step = self.u32(form.row_offsets.get(rows).copied().unwrap_or(0));
                let distance = self.early(Opcode::Mul, [group, step], [], Type::U32);
                let at = self.value(Opcode::PtrAdd, [at, distance], [], SHARED);
                let first = self.descriptor(at, &form);
                let all = form.k_offsets.iter().map(|&deep| {
                    form.row_offsets[..rows].iter().map(|&row| self.advanced(first, row + deep)).collect()
                });
                Some((all.collect(), form.major == Major::Mn))
            }
            Left::Registers(value) => {
                let layout = warpgroup_rows(self.shape(value), self.team().warps / 4)?;
                let tile = self.tile_in(value, &Rc::new(layout));
                let each = tile.registers.len() / (rows * steps);
                let ty = Type::Vector(product.atom.a, u16::try_from(each).ok()?);
                let all = (0..steps).map(|step| {
                    let of_row = |row: usize| (row * steps + step) * each;
                    let parts: Vec<Vec<Value>> =
                        (0..rows).map(|row| tile.registers[of_row(row)..][..each].to_vec()).collect();
                    parts.into_iter().map(|part| self.packed(part, ty)).collect()
                });
                Some((all.collect(), false))
            }
        }
    }

    /// How a factor lies in shared memory that is kept there: rows of 128 bytes, as many columns at a time as that is.
    fn kept_form(&self, value: Value) -> Option<MatrixDescriptor> {
        let (shape, element) = (self.shape(value), self.element(value));
        let [rows, depth] = shape.extents() else { return None };
        let tile = smem_tile(Major::K, *rows, *depth, element, SwizzleMode::B128).ok()?;
        MatrixDescriptor::for_operand(&tile, element, 64).ok()
    }

    /// Leaves the left factors that stay the same while a loop runs in shared memory, for the tensor cores.
    pub(super) fn keep_factors(&mut self, body: Region) {
        let here = self.products_of(body);
        let products = self.pipeline.iter().flat_map(|pipeline| &pipeline.products);
        let kept =
            products.filter(|(op, _)| here.contains(op)).filter_map(|(_, product)| match product.left {
                Left::Kept(value) => Some(value),
                _ => None,
            });
        let mut kept: Vec<Value> = kept.collect();
        kept.sort_unstable();
        kept.dedup();
        if kept.is_empty() {
            return;
        }
        if self.rounds > 0
            || self.programs.is_some()
            || kept.iter().any(|value| self.kept.contains_key(value))
        {
            // Others may still multiply by what was there before.
            self.block_barrier();
        }
        for value in kept {
            self.keep(value);
        }
        self.push(Opcode::FenceProxy, [], [FenceProxy::AsyncShared.into()], []);
        self.block_barrier();
    }

    fn keep(&mut self, value: Value) {
        let (shape, element) = (self.shape(value), self.element(value));
        let (size, rows) = (super::assign::bytes(element), shape.extents()[0]);
        let (vector, lines) = (16 / size, Lines::swizzled(128));
        let base = match self.kept.get(&value) {
            Some(&base) => base,
            None => {
                let bytes = shape.elements() * size;
                let base = self.early(Opcode::Shared, [], [Bytes(bytes).into(), Align(1024).into()], SHARED);
                self.kept.insert(value, base);
                base
            }
        };
        let layout = Rc::new(Layout::blocked(shape, &[1, 0], vector, self.team()));
        let tile = self.tile_in(value, &layout);
        let (line, along) = (self.base(&layout, 0), self.base(&layout, 1));
        let writer = self.is_first(&layout);
        for first in (0..tile.registers.len()).step_by(vector as usize) {
            let offset = layout.offset(first);
            // Which 128 bytes of the row, and which unit of them.
            let (further, shift) = (self.u32(offset[1]), self.u32(vector.trailing_zeros()));
            let column = self.early(Opcode::Add, [along, further], [], Type::U32);
            let unit = self.early(Opcode::Shr, [column, shift], [], Type::U32);
            let (three, seven, panel) = (self.u32(3), self.u32(7), self.u32(128 * rows));
            let (across, within) = (
                self.early(Opcode::Shr, [unit, three], [], Type::U32),
                self.early(Opcode::And, [unit, seven], [], Type::U32),
            );
            let distance = self.early(Opcode::Mul, [across, panel], [], Type::U32);
            let start = self.value(Opcode::PtrAdd, [base, distance], [], SHARED);
            let address = self.unit_address(start, lines, (line, offset[0]), (within, 0));
            let parts = tile.registers[first..][..vector as usize].to_vec();
            let whole = self.value(
                Opcode::Pack,
                parts,
                [],
                Type::Vector(element, u16::try_from(vector).unwrap_or(1)),
            );
            let inside = self.is_inside(&layout, &offset);
            match self.both(writer, inside) {
                None => self.push(Opcode::Store, [address, whole], [], []),
                Some(here) => self.push(Opcode::StoreIf, [address, whole, here], [], []),
            };
        }
    }

    /// A vector of halves; those that were narrowed one by one are narrowed in pairs.
    pub(super) fn packed(&mut self, parts: Vec<Value>, ty: Type) -> Value {
        let func = &self.builder.func;
        let wide = |&part: &Value| {
            let data = func.op(func.def_op(part)?);
            let plain = data.code == Opcode::Cvt && data.attrs.is_empty();
            data.operands.first().copied().filter(|&from| plain && func.ty(from) == Type::F32)
        };
        let Some(wide) = parts.iter().map(wide).collect::<Option<Vec<Value>>>() else {
            return self.value(Opcode::Pack, parts, [], ty);
        };
        let element = ty.element().unwrap_or(Element::BF16);
        let pairs: Vec<Value> = wide
            .chunks(2)
            .map(|pair| {
                let both = self.value(Opcode::Pack, pair.to_vec(), [], Type::Vector(Element::F32, 2));
                self.value(Opcode::Cvt, [both], [], Type::Vector(element, 2))
            })
            .collect();
        self.value(Opcode::Concat, pairs, [], ty)
    }

    fn descriptor(&mut self, at: Value, form: &MatrixDescriptor) -> Value {
        let bits = tilewright_ir::Bits(form.encode_high());
        self.value(Opcode::Descriptor, [at], [bits.into()], Type::U64)
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
        let Some(signals) = ring.signals else { return };
        let full = self.barrier_at(signals.full, ring.slot);
        self.push(Opcode::MbarWait, [full, signals.phase], [], []);
    }

    /// Math: gives a slot back, one thread for each warpgroup, where `condition` holds.
    pub(super) fn release(&mut self, slot: Value, condition: Option<Value>) {
        let Some(signals) = self.ring.and_then(|ring| ring.signals) else { return };
        let lane = self.number(super::layout::Holder::Lane);
        let warp = self.number(super::layout::Holder::Warp);
        let (three, zero) = (self.u32(3), self.u32(0));
        let of_group = self.early(Opcode::And, [warp, three], [], Type::U32);
        let either = self.early(Opcode::Or, [lane, of_group], [], Type::U32);
        let first = self.early(Opcode::Cmp, [either, zero], [Cmp::Eq.into()], Type::BOOL);
        let here = self.both(Some(first), condition);
        self.only_if(here, |this| {
            let empty = this.barrier_at(signals.empty, slot);
            this.push(Opcode::MbarArrive, [empty], [], []);
        });
    }

    /// Where the ring stands, to be carried by a loop: the slot, and with signals the phase.
    pub(super) fn ring_values(&self) -> Vec<Value> {
        let values = |ring: Ring| {
            std::iter::once(ring.slot).chain(ring.signals.map(|signals| signals.phase)).collect()
        };
        self.ring.map(values).unwrap_or_default()
    }

    pub(super) fn set_ring(&mut self, values: &[Value]) {
        let Some((&slot, rest)) = values.split_first() else { return };
        self.ring = self.ring.map(|ring| {
            let signals =
                ring.signals.zip(rest.first()).map(|(signals, &phase)| Signals { phase, ..signals });
            Ring { slot, signals, ..ring }
        });
    }

    /// Products of a loop body whose sums stay in the accumulator from one iteration to the next: position among what the loop carries, by op.
    pub(super) fn in_place(&self, data: &OpData) -> HashMap<usize, Op> {
        self.pipeline.as_ref().map(|pipeline| pipeline.in_place(self.source, data)).unwrap_or_default()
    }

    /// The products in a loop body, without those in loops inside of it.
    pub(super) fn products_of(&self, body: Region) -> HashSet<Op> {
        self.source.region(body).ops.iter().copied().filter(|&op| self.is_product(op)).collect()
    }

    /// Whether all products of a loop body read both factors from shared memory.
    pub(super) fn all_from_memory(&self, body: Region) -> bool {
        let products = self.pipeline.iter().flat_map(|pipeline| &pipeline.products);
        let here = self.products_of(body);
        products.filter(|(op, _)| here.contains(op)).all(|(_, p)| !matches!(p.left, Left::Registers(_)))
    }

    /// Whether warpgroups multiply here.
    fn is_product(&self, op: Op) -> bool {
        self.pipeline.as_ref().is_some_and(|pipeline| pipeline.products.contains_key(&op))
    }
}
