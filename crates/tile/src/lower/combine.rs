//! `tile_reduce`: what stands along an axis becomes one element.
//!
//! First each thread combines its own registers, as a tree, or adds products as it multiplies them; then lanes combine by exchanging with a
//! partner (`shfl.bfly`), so that all of them have the result; then warps leave theirs in shared memory and everybody combines all; last, blocks
//! of a cluster do the same in each other's shared memory. The result lies in all threads along the axis, ready to be broadcast.

use std::collections::HashMap;

use tilewright_ir::{
    Axis, Cmp, Element, Flags, Index, Op, OpData, Opcode, Region, Shuffle, Space, Type, Value,
};

use super::assign::bytes;
use super::cluster::{Column, word};
use super::join::each_by_one;
use super::layout::{Digit, Holder, Layout};
use super::{Held, Lowering, Tile};

/// Elements that are combined together, and whether they exist: none if they certainly do.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) values: Vec<Value>,
    pub(super) valid: Option<Value>,
}

/// What combines two items.
pub(super) struct Combiner {
    region: Region,
    once: HashMap<Value, Value>,
    pub(super) elements: Vec<Element>,
    /// What combines with anything to the same thing, where that is known.
    pub(super) identity: Option<Vec<Value>>,
}

impl Lowering<'_> {
    pub(super) fn combiner(&mut self, data: &OpData) -> Combiner {
        let region = data.regions[0];
        let once = self.invariant(region);
        let elements: Vec<Element> = data.operands.iter().map(|&v| self.element(v)).collect();
        let identity = self.identity(region, &elements);
        Combiner { region, once, elements, identity }
    }

    fn identity(&mut self, region: Region, elements: &[Element]) -> Option<Vec<Value>> {
        let parts = each_by_one(self.source, region)?.into_iter().zip(elements);
        let bits = parts.map(|(op, &element)| Some((element, identity_bits(self.source.op(op), element)?)));
        let bits = bits.collect::<Option<Vec<_>>>()?;
        Some(bits.into_iter().map(|(element, bits)| self.constant(Type::Scalar(element), bits)).collect())
    }

    /// Both items combined, `a` standing before `b`.
    pub(super) fn merge(&mut self, with: &Combiner, a: &Item, b: &Item) -> Item {
        let arguments: Vec<Value> = a.values.iter().chain(&b.values).copied().collect();
        let both = self.inline(with.region, &arguments, &with.once);
        let choose = |this: &mut Self, condition: Value, yes: &[Value], no: &[Value]| -> Vec<Value> {
            let pairs = yes.iter().zip(no);
            pairs
                .map(|(&yes, &no)| {
                    let ty = this.builder.func.ty(yes);
                    this.value(Opcode::Select, [condition, yes, no], [], ty)
                })
                .collect()
        };
        match (a.valid, b.valid) {
            (None, None) => Item { values: both, valid: None },
            (None, Some(valid)) => Item { values: choose(self, valid, &both, &a.values), valid: None },
            (Some(valid), None) => Item { values: choose(self, valid, &both, &b.values), valid: None },
            (Some(first), Some(second)) => {
                let values = choose(self, second, &both, &a.values);
                let values = choose(self, first, &values, &b.values);
                Item { values, valid: Some(self.binary(Opcode::Or, first, second)) }
            }
        }
    }

    /// The item where it is valid, else what changes nothing, if that is known.
    pub(super) fn filled(&mut self, with: &Combiner, item: Item) -> Item {
        match (item.valid, &with.identity) {
            (Some(valid), Some(identity)) => {
                let pairs: Vec<(Value, Value)> =
                    item.values.into_iter().zip(identity.iter().copied()).collect();
                let values = pairs
                    .into_iter()
                    .map(|(value, none)| {
                        let ty = self.builder.func.ty(value);
                        self.value(Opcode::Select, [valid, value, none], [], ty)
                    })
                    .collect();
                Item { values, valid: None }
            }
            _ => item,
        }
    }

    /// Whether a register stands inside of the tile along one axis; none if all do.
    pub(super) fn inside_along(&mut self, layout: &Layout, axis: usize, offset: u32) -> Option<Value> {
        let mut only = vec![0; layout.shape.rank()];
        only[axis] = offset;
        // Other axes count as whole: what stands outside there is nobody's concern.
        let others = (0..layout.shape.rank()).filter(|&a| a != axis);
        let narrowed = others.fold(layout.clone(), |layout, other| layout.without(other));
        self.is_inside(&narrowed, &only)
    }

    /// Registers that differ only along an axis, in the order of positions; by the register of the layout without it.
    pub(super) fn lines(&mut self, layout: &Layout, axis: usize) -> Vec<Vec<usize>> {
        let rest = layout.without(axis);
        let mut lines: Vec<Vec<(u32, usize)>> = vec![Vec::new(); rest.count()];
        let targets: HashMap<Vec<u32>, usize> = rest.offsets().into_iter().zip(0..).collect();
        for (register, mut offset) in layout.offsets().into_iter().enumerate() {
            let at = std::mem::take(&mut offset[axis]);
            if let Some(&line) = targets.get(&offset) {
                lines[line].push((at, register));
            }
        }
        let sorted = lines.into_iter().map(|mut line| {
            line.sort_unstable();
            line.into_iter().map(|(_, register)| register).collect()
        });
        sorted.collect()
    }

    pub(super) fn reduce(&mut self, data: &OpData) {
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let mut tiles = self.operands_together(data);
        let with = self.combiner(data);
        // An op that commutes may combine in any order; of a region one knows only that it is associative.
        let run = if with.identity.is_some() { usize::MAX } else { self.in_order(data, &mut tiles, axis) };
        let layout = tiles[0].layout.clone();
        let only_here = self.used_once(&data.operands);
        let mut items = Vec::new();
        let mut runs = 1;
        for line in self.lines(&layout, axis) {
            let parts = line.chunks(run.min(line.len())).map(<[usize]>::to_vec).collect::<Vec<_>>();
            runs = parts.len();
            for part in parts {
                items.push(self.combined(&with, &tiles, &only_here, axis, part));
            }
        }
        let items = self.across_lanes(&with, &layout, axis, items);
        let items = self.across(Holder::Warp, &with, &layout, axis, items);
        let items = items.chunks(runs).map(<[Item]>::to_vec).collect::<Vec<_>>();
        let items = items.into_iter().map(|line| self.tree(&with, line)).collect();
        let items = self.across(Holder::Block, &with, &layout, axis, items);
        let rest = std::rc::Rc::new(layout.without(axis));
        for (i, &result) in data.results.iter().enumerate() {
            let registers = items.iter().map(|item| item.values[i]).collect();
            self.hold(result, Held::Tile(Tile { layout: rest.clone(), registers }));
        }
    }

    /// The registers of a run, combined.
    fn combined(
        &mut self,
        with: &Combiner,
        tiles: &[Tile],
        only_here: &[bool],
        axis: usize,
        run: Vec<usize>,
    ) -> Item {
        let layout = tiles[0].layout.clone();
        let items: Vec<Item> = run
            .into_iter()
            .map(|register| {
                let values = tiles.iter().map(|tile| tile.registers[register]).collect();
                let valid = self.inside_along(&layout, axis, layout.offset(register)[axis]);
                self.filled(with, Item { values, valid })
            })
            .collect();
        self.products(with, &items, only_here).unwrap_or_else(|| self.tree(with, items))
    }

    /// Sums of products, which take one op an element and are rounded once for it: each product is added as it is multiplied, to one of a few sums,
    /// so that none waits for the one before. Products that others use as well are there already, and their factors need not be kept for it. None if
    /// nothing is such a sum.
    fn products(&mut self, with: &Combiner, items: &[Item], only_here: &[bool]) -> Option<Item> {
        const SUMS: usize = 4;
        let ops = each_by_one(self.source, with.region).filter(|_| with.identity.is_some())?;
        let column = |i: usize| items.iter().map(|item| item.values[i]).collect::<Vec<Value>>();
        let columns: Vec<Vec<Value>> = (0..ops.len()).map(column).collect();
        let factors: Vec<Option<Vec<[Value; 2]>>> =
            (ops.iter().zip(&columns).zip(&with.elements).zip(only_here))
                .map(|(((&op, column), &element), &only_here)| {
                    let sums = self.source.op(op).code == Opcode::Add && self.source.op(op).attrs.is_empty();
                    let wide = matches!(element, Element::F32 | Element::F64);
                    let each = column.iter().map(|&value| self.factors_of(value));
                    each.collect::<Option<Vec<_>>>().filter(|_| only_here && sums && wide)
                })
                .collect();
        let exist = items.iter().all(|item| item.valid.is_none());
        if !exist || items.len() <= SUMS || factors.iter().all(Option::is_none) {
            return None;
        }
        let mut values = Vec::with_capacity(ops.len());
        for ((&op, mut column), factors) in ops.iter().zip(columns).zip(factors) {
            let (data, ty) = (self.source.op(op), self.builder.func.ty(column[0]));
            if let Some(factors) = factors {
                let rest = factors.into_iter().enumerate().skip(SUMS);
                for (i, [a, b]) in rest {
                    column[i % SUMS] = self.value(Opcode::Fma, [a, b, column[i % SUMS]], [], ty);
                }
                column.truncate(SUMS);
            }
            while column.len() > 1 {
                let pairs = column.chunks(2).map(|pair| match *pair {
                    [a, b] => self.value(data.code, [a, b], data.attrs.to_vec(), ty),
                    _ => pair[0],
                });
                column = pairs.collect();
            }
            values.push(column[0]);
        }
        Some(Item { values, valid: None })
    }

    /// Which of these values of the kernel have one user.
    fn used_once(&self, values: &[Value]) -> Vec<bool> {
        let ops = self.source.walk();
        let uses = |value: &Value| {
            let of =
                |op: &Op| self.source.op(*op).operands.iter().filter(|operand| *operand == value).count();
            ops.iter().map(of).sum::<usize>()
        };
        values.iter().map(|value| uses(value) == 1).collect()
    }

    /// What a value is the product of, if it is one.
    fn factors_of(&self, value: Value) -> Option<[Value; 2]> {
        let data = self.builder.func.op(self.builder.func.def_op(value)?);
        let is_plain = data.code == Opcode::Mul && data.attrs.is_empty();
        is_plain.then(|| [data.operands[0], data.operands[1]])
    }

    /// All items combined in their order, neighbours first.
    fn tree(&mut self, with: &Combiner, mut items: Vec<Item>) -> Item {
        while items.len() > 1 {
            items = items
                .chunks(2)
                .map(|pair| match pair {
                    [a, b] => self.merge(with, a, b),
                    _ => pair[0].clone(),
                })
                .collect();
        }
        items.swap_remove(0)
    }

    /// The operands of an op in one layout.
    pub(super) fn operands_together(&mut self, data: &OpData) -> Vec<Tile> {
        let held = data.operands.iter().find_map(|&value| self.held_layout(value));
        let layout = held.unwrap_or_else(|| self.layout(data.operands[0]));
        data.operands.iter().map(|&value| self.tile_in(value, &layout)).collect()
    }

    fn across_lanes(&mut self, with: &Combiner, layout: &Layout, axis: usize, items: Vec<Item>) -> Vec<Item> {
        let digits = layout.thread_digits().filter(|(h, _, d)| *h == Holder::Lane && d.axis == Some(axis));
        let digits: Vec<(u32, Digit)> = digits.map(|(_, weight, digit)| (weight, digit)).collect();
        let mut items = items;
        for (weight, digit) in digits {
            for step in 0..digit.extent.trailing_zeros() {
                let distance = weight << step;
                items = items.into_iter().map(|item| self.with_partner(with, &item, distance)).collect();
            }
        }
        items
    }

    fn with_partner(&mut self, with: &Combiner, item: &Item, distance: u32) -> Item {
        let other = self.shuffled(item, Shuffle::Butterfly, distance);
        if with.identity.is_some() {
            return self.merge(with, item, &other);
        }
        // Both partners must come to the same: who stands first goes first.
        let lane = self.number(Holder::Lane);
        let (bit, zero) = (self.u32(distance), self.u32(0));
        let masked = self.binary(Opcode::And, lane, bit);
        let first = self.value(Opcode::Cmp, [masked, zero], [Cmp::Eq.into()], Type::BOOL);
        let mut pick = |a: Value, b: Value| {
            let ty = self.builder.func.ty(a);
            self.value(Opcode::Select, [first, a, b], [], ty)
        };
        let mut pick_all = |a: &Item, b: &Item| Item {
            values: a.values.iter().zip(&b.values).map(|(&a, &b)| pick(a, b)).collect(),
            valid: a.valid.zip(b.valid).map(|(a, b)| pick(a, b)),
        };
        let (low, high) = (pick_all(item, &other), pick_all(&other, item));
        self.merge(with, &low, &high)
    }

    /// The item of another lane.
    pub(super) fn shuffled(&mut self, item: &Item, mode: Shuffle, distance: u32) -> Item {
        let distance = self.u32(distance);
        self.shuffled_by(item, mode, distance)
    }

    pub(super) fn shuffled_by(&mut self, item: &Item, mode: Shuffle, distance: Value) -> Item {
        let all = self.u32(u32::MAX);
        let mut other = |value: Value| {
            let ty = self.builder.func.ty(value);
            let op = self.push(Opcode::Shuffle, [value, distance, all], [mode.into()], [ty, Type::BOOL]);
            self.builder.func.op(op).results[0]
        };
        Item { values: item.values.iter().map(|&v| other(v)).collect(), valid: item.valid.map(other) }
    }

    fn across(
        &mut self,
        holder: Holder,
        with: &Combiner,
        layout: &Layout,
        axis: usize,
        items: Vec<Item>,
    ) -> Vec<Item> {
        let all = self.of_all(holder, with, layout, axis, &items);
        all.map_or(items, |all| all.into_iter().map(|line| self.tree(with, line)).collect())
    }

    /// For each item those of all warps of the block or all blocks of the program along the axis, in their order; none if no other one has any.
    pub(super) fn of_all(
        &mut self,
        holder: Holder,
        with: &Combiner,
        layout: &Layout,
        axis: usize,
        items: &[Item],
    ) -> Option<Vec<Vec<Item>>> {
        let along = count_along(layout, holder, axis);
        if along == 1 {
            return None;
        }
        let blocks = holder == Holder::Block;
        let within: &[Holder] = if blocks { &[Holder::Lane, Holder::Warp] } else { &[Holder::Lane] };
        let all: &[Holder] = if blocks { &Holder::ALL } else { &[Holder::Lane, Holder::Warp] };
        let index = self.index_along(layout, holder, axis);
        let line = self.line_index(layout, axis, all);
        let writes = self.speaks(layout, axis, within, all);
        let lines = line_count(layout, axis, all);
        // The warps have left theirs for each other, and met for that.
        let met = blocks && count_along(layout, Holder::Warp, axis) > 1;
        Some(self.in_memory(with, items, &Meeting { along, index, line, lines, writes, blocks, met }))
    }

    /// Everybody leaves its items and reads those of all.
    fn in_memory(&mut self, with: &Combiner, items: &[Item], at: &Meeting) -> Vec<Vec<Item>> {
        let signal = if at.blocks { self.signal(at.met) } else { None };
        let flags = items.iter().all(|item| item.valid.is_some()).then_some(Element::Bool);
        let elements: Vec<Element> = with.elements.iter().copied().chain(flags).collect();
        let left_as = |element: Element| if signal.is_some() { word(element) } else { element };
        let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let room = |element: Element| at.lines * count * at.along * bytes(left_as(element));
        let starts: Vec<u32> = elements
            .iter()
            .scan(0, |end, &element| {
                let start = *end;
                *end += room(element).next_multiple_of(16);
                Some(start)
            })
            .collect();
        // One piece for all: a barrier that one of several needs would forget that those before it are about to be written.
        let end = elements.last().zip(starts.last()).map_or(0, |(&element, start)| start + room(element));
        let turn = signal.and_then(|signal| signal.turn);
        let (piece, base) = match turn {
            Some(turn) => (None, self.place_of_turn(turn, end)),
            None => {
                let (piece, base) = self.scratch(end);
                (Some(piece), base)
            }
        };
        let (mut lines, mut columns) = (Vec::new(), Vec::new());
        for (i, (&element, &start)) in elements.iter().zip(&starts).enumerate() {
            let size = bytes(left_as(element));
            let base = self.further(base, start);
            let (stride, size_value) = (self.u32(count * at.along * size), self.u32(size));
            let line = self.binary(Opcode::Mul, at.line, stride);
            let own = self.value(Opcode::PtrAdd, [base, line], [], Type::Pointer(Space::Shared));
            let column = self.binary(Opcode::Mul, at.index, size_value);
            let place = self.value(Opcode::PtrAdd, [own, column], [], Type::Pointer(Space::Shared));
            let values = items.iter().map(|item| item.values.get(i).copied().or(item.valid));
            let values: Vec<Value> = values.flatten().collect();
            let values = match signal {
                Some(_) => values.into_iter().map(|value| self.as_word(value, element)).collect(),
                None => values,
            };
            columns.push(Column { place, step: at.along * size, values });
            lines.push(own);
        }
        match &piece {
            Some(piece) if at.blocks => self.touch_remote(piece),
            Some(piece) => self.touch(piece, true),
            None => {}
        }
        match signal {
            Some(signal) => {
                let all = elements.iter().map(|&element| room(element)).sum();
                self.send(&columns, at.writes, signal, all);
            }
            None if at.blocks => {
                self.leave_everywhere(&columns, at.writes);
                self.cluster_barrier();
            }
            None => self.leave_here(&columns, at.writes),
        }
        if let Some(piece) = &piece {
            self.touch(piece, false);
        }
        let mut read: Vec<Vec<Vec<Value>>> = Vec::new();
        for (&element, &own) in elements.iter().zip(&lines) {
            let each = (0..count).map(|i| {
                let start = self.further(own, i * at.along * bytes(left_as(element)));
                let line = self.read_line(start, left_as(element), at.along);
                match signal {
                    Some(_) => line.into_iter().map(|value| self.of_word(value, element)).collect(),
                    None => line,
                }
            });
            read.push(each.collect());
        }
        (0..items.len())
            .map(|i| {
                (0..at.along as usize)
                    .map(|k| {
                        let values = read[..with.elements.len()].iter().map(|column| column[i][k]).collect();
                        Item { values, valid: flags.map(|_| read[with.elements.len()][i][k]) }
                    })
                    .collect()
            })
            .collect()
    }

    /// Elements side by side in shared memory, in the widest accesses that their alignment allows.
    pub(super) fn read_line(&mut self, start: Value, element: Element, count: u32) -> Vec<Value> {
        let size = bytes(element);
        // Lines follow each other from an aligned start, so what divides their length aligns them all.
        let fits = |vector: &u32| count.is_multiple_of(*vector) && vector * size <= 16 && !element.is_bool();
        let vector = [4, 2].into_iter().find(fits).unwrap_or(1);
        let mut out = Vec::with_capacity(count as usize);
        for first in (0..count).step_by(vector as usize) {
            let address = self.further(start, first * size);
            if vector == 1 {
                out.push(self.value(Opcode::Load, [address], [], Type::Scalar(element)));
                continue;
            }
            let ty = Type::Vector(element, u16::try_from(vector).unwrap_or(1));
            let all = self.value(Opcode::Load, [address], [], ty);
            for i in 0..vector {
                out.push(self.value(Opcode::Extract, [all], [Index(i).into()], Type::Scalar(element)));
            }
        }
        out
    }

    /// The position of this thread's holder along an axis, counted without gaps.
    pub(super) fn index_along(&mut self, layout: &Layout, holder: Holder, axis: usize) -> Value {
        let own = layout.thread_digits().filter(|(h, _, d)| *h == holder && d.axis == Some(axis));
        let own: Vec<(u32, Digit)> = own.map(|(_, weight, digit)| (weight, digit)).collect();
        self.mixed(layout, own.into_iter().map(|(weight, digit)| (holder, weight, digit)).collect())
    }

    /// Which line across an axis this thread is part of: a number below [`line_count`].
    pub(super) fn line_index(&mut self, layout: &Layout, axis: usize, holders: &[Holder]) -> Value {
        let own = layout
            .thread_digits()
            .filter(|(h, _, d)| holders.contains(h) && d.axis.is_some_and(|a| a != axis));
        let own = own.collect();
        self.mixed(layout, own)
    }

    /// Digits as one number, the first fastest.
    fn mixed(&mut self, layout: &Layout, digits: Vec<(Holder, u32, Digit)>) -> Value {
        let mut weight = 1;
        let mut sum = self.u32(0);
        for (holder, own, digit) in digits {
            let value = self.digit(holder, own, digit, layout.digits(holder));
            let times = self.u32(weight);
            let moved = self.early(Opcode::Mul, [value, times], [], Type::U32);
            sum = self.early(Opcode::Add, [sum, moved], [], Type::U32);
            weight *= digit.extent;
        }
        sum
    }

    /// Whether this thread speaks for those that differ in the digits of `along` along the axis, and for the copies among `all`.
    pub(super) fn speaks(
        &mut self,
        layout: &Layout,
        axis: usize,
        along: &[Holder],
        all: &[Holder],
    ) -> Option<Value> {
        let silent = |(holder, _, digit): &(Holder, u32, Digit)| match digit.axis {
            None => digit.extent > 1 && all.contains(holder),
            Some(own) => own == axis && along.contains(holder),
        };
        let digits: Vec<_> = layout.thread_digits().filter(silent).collect();
        self.are_zero(layout, &digits)
    }
}

/// Where partial results meet.
struct Meeting {
    /// How many there are for each line, and which of them this thread's is.
    along: u32,
    index: Value,
    /// Which line this thread is part of, of how many.
    line: Value,
    lines: u32,
    writes: Option<Value>,
    blocks: bool,
    /// Whether the threads of a block have met for it before.
    met: bool,
}

fn count_along(layout: &Layout, holder: Holder, axis: usize) -> u32 {
    layout.digits(holder).iter().filter(|digit| digit.axis == Some(axis)).map(|digit| digit.extent).product()
}

/// How many lines across an axis the digits of these holders tell apart.
fn line_count(layout: &Layout, axis: usize, holders: &[Holder]) -> u32 {
    let own =
        layout.thread_digits().filter(|(h, _, d)| holders.contains(h) && d.axis.is_some_and(|a| a != axis));
    own.map(|(.., digit)| digit.extent).product()
}

/// The bits of what changes nothing when combined by an op.
fn identity_bits(data: &OpData, element: Element) -> Option<u64> {
    let width = element.bits();
    let ones = if width >= 64 { u64::MAX } else { (1 << width) - 1 };
    let signed_min = tilewright_ir::canonical(element, 1 << (width - 1));
    let float = !element.is_int() && !element.is_bool();
    let (infinity, one): (u64, u64) = match element {
        Element::F16 => (0x7c00, 0x3c00),
        Element::BF16 => (0x7f80, 0x3f80),
        Element::F32 => (0x7f80_0000, 0x3f80_0000),
        Element::F64 => (0x7ff0_0000_0000_0000, 0x3ff0_0000_0000_0000),
        _ if float => return None,
        _ => (0, 1),
    };
    let negative = |bits: u64| bits | 1 << (width - 1);
    // Unless NaN wins, it loses against everything: not even an infinity would leave it alone.
    let quiet = infinity | (infinity & infinity.wrapping_neg()) >> 1;
    let nan_loses = !data.flags().has(Flags::NAN);
    Some(match data.code {
        // Minus zero, so that the sum of minus zeros stays one.
        Opcode::Add if float => negative(0),
        Opcode::Add | Opcode::Or | Opcode::Xor => 0,
        Opcode::Mul => one,
        Opcode::And => tilewright_ir::canonical(element, ones),
        Opcode::Max | Opcode::Min if float && nan_loses => quiet,
        Opcode::Max if float => negative(infinity),
        Opcode::Min if float => infinity,
        Opcode::Max if element.is_signed() => signed_min,
        Opcode::Max => 0,
        Opcode::Min if element.is_signed() => ones >> 1,
        Opcode::Min => ones,
        _ => return None,
    })
}
