//! `tile_scan`: every element combined with all before it along an axis.
//!
//! A thread's registers along the axis come in *runs* of neighbours; runs of lanes follow each other, those of warps too, and then the next
//! run of every thread begins; what a block of a cluster has follows all of the block before. So: scan each run, scan the sums of runs over lanes
//! (`shfl.up`), leave the sums of warps in shared memory, send the sums of blocks to all blocks, and put what stands before each run in front of
//! it. A layout of another order is exchanged for one of this order first, in which every block has the whole tile.

use std::rc::Rc;

use tilewright_ir::{Axis, Cmp, Flags, OpData, Opcode, Shuffle, Type, Value};

use super::combine::{Combiner, Item};
use super::layout::{Digit, Holder, LANES, Layout, Team};
use super::{Held, Lowering, Tile};

/// How a layout runs along an axis.
struct Course {
    /// The lane digit along the axis: its weight and extent.
    lanes: Option<(u32, Digit)>,
    /// The warp digit along the axis.
    warps: Option<(u32, Digit)>,
    /// The block digit along the axis.
    blocks: Option<(u32, Digit)>,
    /// Registers of a run.
    run: usize,
}

impl Course {
    /// None if registers, lanes and warps do not follow each other in this order.
    fn of(layout: &Layout, axis: usize) -> Option<Course> {
        let along = |holder: Holder| {
            let own = layout.thread_digits().filter(move |(h, _, d)| *h == holder && d.axis == Some(axis));
            own.map(|(_, weight, digit)| (weight, digit)).collect::<Vec<_>>()
        };
        let (lanes, warps, blocks) = (along(Holder::Lane), along(Holder::Warp), along(Holder::Block));
        if lanes.len() > 1 || warps.len() > 1 || blocks.len() > 1 {
            return None;
        }
        let (lanes, warps) = (lanes.first().copied(), warps.first().copied());
        let span = |d: Option<(u32, Digit)>| d.map(|(_, d)| (d.stride, d.stride * d.extent));
        let inner = span(lanes).or(span(warps));
        let registers = layout.registers.iter().filter(|d| d.axis == Some(axis));
        let (low, high): (Vec<&Digit>, Vec<&Digit>) =
            registers.partition(|d| inner.is_none_or(|(start, _)| d.stride * d.extent <= start));
        let run: u32 = low.iter().map(|d| d.extent).product();
        // Runs are dense, lanes start where a run ends, warps where the lanes end, and everything else comes after.
        let mut end = run;
        let mut dense = true;
        for digit in [lanes, warps].into_iter().flatten() {
            dense &= digit.1.stride == end;
            end *= digit.1.extent;
        }
        dense &= high.iter().all(|d| d.stride >= end);
        // Blocks come after everything that a thread holds.
        let reach = high.iter().map(|d| d.stride * d.extent).max().unwrap_or(end);
        dense &= blocks.iter().all(|(_, d)| d.stride >= reach);
        dense.then_some(Course { lanes, warps, blocks: blocks.first().copied(), run: run as usize })
    }
}

impl Lowering<'_> {
    /// Exchanges tiles for a layout that runs along an axis in order, if theirs does not; gives the registers of a run.
    pub(super) fn in_order(&mut self, data: &OpData, tiles: &mut Vec<Tile>, axis: usize) -> usize {
        if Course::of(&tiles[0].layout, axis).is_none() {
            self.put_in_order(data, tiles, axis);
        }
        Course::of(&tiles[0].layout, axis).map_or(1, |course| course.run)
    }

    fn put_in_order(&mut self, data: &OpData, tiles: &mut Vec<Tile>, axis: usize) {
        let layout = Rc::new(ordered(tiles[0].layout.shape, axis, self.team()));
        let elements: Vec<_> = data.operands.iter().map(|&v| self.element(v)).collect();
        let each = std::mem::take(tiles).into_iter().zip(elements);
        *tiles = each.map(|(tile, element)| self.convert(tile, &layout, element)).collect();
    }

    pub(super) fn scan(&mut self, data: &OpData) {
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let reverse = data.flags().has(Flags::REVERSE);
        let mut tiles = self.operands_together(data);
        if Course::of(&tiles[0].layout, axis).is_none() {
            self.put_in_order(data, &mut tiles, axis);
        }
        let layout = tiles[0].layout.clone();
        // They are in order now.
        let Some(course) = Course::of(&layout, axis) else { return };
        let with = self.combiner(data);
        let lines = self.lines(&layout, axis);
        let mut results: Vec<Vec<Value>> = tiles.iter().map(|tile| tile.registers.clone()).collect();
        // The sums of all lines meet in shared memory at once.
        let mut scanned: Vec<Vec<Vec<Item>>> = Vec::new();
        for line in &lines {
            let items: Vec<Item> = line
                .iter()
                .map(|&register| {
                    let values = tiles.iter().map(|tile| tile.registers[register]).collect();
                    // Behind the end stands nothing that elements before it could see, unless the scan comes from there.
                    let offset = layout.offset(register)[axis];
                    let valid = if reverse { self.inside_along(&layout, axis, offset) } else { None };
                    self.filled(&with, Item { values, valid })
                })
                .collect();
            let mut runs: Vec<Vec<Item>> = items.chunks(course.run).map(<[Item]>::to_vec).collect();
            if reverse {
                runs.reverse();
                runs.iter_mut().for_each(|run| run.reverse());
            }
            for run in &mut runs {
                for i in 1..run.len() {
                    run[i] = self.merge(&with, &run[i - 1].clone(), &run[i].clone());
                }
            }
            scanned.push(runs);
        }
        let fronts = self.fronts(&with, &layout, axis, &course, &scanned, reverse);
        for ((line, runs), fronts) in lines.iter().zip(scanned).zip(fronts) {
            let mut order: Vec<usize> = line.clone();
            if reverse {
                order.reverse();
            }
            let mut registers = order.into_iter();
            for (run, front) in runs.into_iter().zip(fronts) {
                for item in run {
                    let item = match &front {
                        None => item,
                        Some(front) => self.merge(&with, front, &item),
                    };
                    if let Some(register) = registers.next() {
                        results.iter_mut().zip(item.values).for_each(|(list, value)| list[register] = value);
                    }
                }
            }
        }
        for (&result, registers) in data.results.iter().zip(results) {
            self.hold(result, Held::Tile(Tile { layout: layout.clone(), registers }));
        }
    }

    /// For every line and run, what stands before it; none before the very first.
    fn fronts(
        &mut self,
        with: &Combiner,
        layout: &Layout,
        axis: usize,
        course: &Course,
        scanned: &[Vec<Vec<Item>>],
        reverse: bool,
    ) -> Vec<Vec<Option<Item>>> {
        let sum = |run: &Vec<Item>| run.last().cloned();
        let mut of_lanes: Vec<Vec<Option<Item>>> = Vec::new();
        let mut sums: Vec<Vec<Item>> = Vec::new();
        for runs in scanned {
            let totals: Vec<Item> = runs.iter().filter_map(sum).collect();
            match course.lanes {
                None => {
                    of_lanes.push(vec![None; totals.len()]);
                    sums.push(totals);
                }
                Some((weight, digit)) => {
                    let pairs = totals
                        .into_iter()
                        .map(|item| self.lanes_before(with, layout, (weight, digit), item, reverse));
                    let (fronts, all): (Vec<Item>, Vec<Item>) = pairs.collect::<Vec<_>>().into_iter().unzip();
                    of_lanes.push(fronts.into_iter().map(Some).collect());
                    sums.push(all);
                }
            }
        }
        let (of_warps, sums) = self.warps_before(with, layout, axis, course, &sums, reverse);
        let of_blocks = self.blocks_before(with, layout, axis, course, &sums, reverse);
        let mut out = Vec::new();
        for ((lanes, warps), block) in of_lanes.into_iter().zip(of_warps).zip(of_blocks) {
            let each = lanes.into_iter().zip(warps);
            let merged = each.map(|(lane, warp)| {
                let inside = self.one_after_other(with, warp, lane);
                self.one_after_other(with, block.clone(), inside)
            });
            out.push(merged.collect());
        }
        out
    }

    /// Both of two items that may be missing, combined.
    fn one_after_other(&mut self, with: &Combiner, a: Option<Item>, b: Option<Item>) -> Option<Item> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.merge(with, &a, &b)),
            (one, other) => one.or(other),
        }
    }

    /// For every line, what the blocks before this one have, from what each has by itself.
    fn blocks_before(
        &mut self,
        with: &Combiner,
        layout: &Layout,
        axis: usize,
        course: &Course,
        sums: &[Item],
        reverse: bool,
    ) -> Vec<Option<Item>> {
        let (Some((weight, digit)), Some(all)) =
            (course.blocks, self.of_all(Holder::Block, with, layout, axis, sums))
        else {
            return vec![None; sums.len()];
        };
        let position = self.digit(Holder::Block, weight, digit, layout.digits(Holder::Block));
        let each = all.into_iter().map(|mut items| {
            if reverse {
                items.reverse();
            }
            // Nothing comes after the last one.
            items.pop();
            let mut before = None;
            for (k, item) in (0..digit.extent).zip(items) {
                let number = if reverse { digit.extent - 1 - k } else { k };
                let counted = self.if_before(with, &item, number, position, reverse);
                before = self.one_after_other(with, before, Some(counted));
            }
            before
        });
        each.collect()
    }

    /// The item of the warp or block of a number, if it comes before the one at this thread's position.
    fn if_before(
        &mut self,
        with: &Combiner,
        item: &Item,
        number: u32,
        position: Value,
        reverse: bool,
    ) -> Item {
        let number = self.u32(number);
        let how = if reverse { Cmp::Gt } else { Cmp::Lt };
        let counts = self.early(Opcode::Cmp, [number, position], [how.into()], Type::BOOL);
        let valid = self.both(Some(counts), item.valid);
        self.filled(with, Item { values: item.values.clone(), valid })
    }

    /// What the lanes before this one have, and what all lanes have together.
    fn lanes_before(
        &mut self,
        with: &Combiner,
        layout: &Layout,
        (weight, digit): (u32, Digit),
        own: Item,
        reverse: bool,
    ) -> (Item, Item) {
        let position = self.digit(Holder::Lane, weight, digit, layout.digits(Holder::Lane));
        let mode = if reverse { Shuffle::Down } else { Shuffle::Up };
        let has = |this: &mut Self, distance: u32| {
            let (limit, how) = if reverse { (digit.extent - distance, Cmp::Lt) } else { (distance, Cmp::Ge) };
            let limit = this.u32(limit);
            this.early(Opcode::Cmp, [position, limit], [how.into()], Type::BOOL)
        };
        let from = |this: &mut Self, item: &Item, distance: u32| {
            let other = this.shuffled(item, mode, distance * weight);
            let there = has(this, distance);
            let valid = this.both(Some(there), other.valid);
            this.filled(with, Item { values: other.values, valid })
        };
        let mut total = own;
        let mut distance = 1;
        while distance < digit.extent {
            let other = from(self, &total, distance);
            total = self.merge(with, &other, &total);
            distance *= 2;
        }
        let before = from(self, &total, 1);
        // The last lane on the way has the sum of all.
        let lane = self.number(Holder::Lane);
        let last = if reverse { 0 } else { digit.extent - 1 };
        let (last, weight_value) = (self.u32(last), self.u32(weight));
        let away = self.early(Opcode::Sub, [last, position], [], Type::U32);
        let away = self.early(Opcode::Mul, [away, weight_value], [], Type::U32);
        let source = self.early(Opcode::Add, [lane, away], [], Type::U32);
        let all = self.shuffled_by(&total, Shuffle::Index, source);
        (before, all)
    }

    /// For every line and run, what the warps before this one have in that run, and everybody in the runs before it; and what all of them have in
    /// each line.
    fn warps_before(
        &mut self,
        with: &Combiner,
        layout: &Layout,
        axis: usize,
        course: &Course,
        sums: &[Vec<Item>],
        reverse: bool,
    ) -> (Vec<Vec<Option<Item>>>, Vec<Item>) {
        let mut totals = Vec::with_capacity(sums.len());
        let Some((weight, digit)) = course.warps else {
            let lines = sums.iter().map(|runs| {
                let mut front: Option<Item> = None;
                let mut out = Vec::with_capacity(runs.len());
                for item in runs {
                    out.push(front.clone());
                    front = self.one_after_other(with, front, Some(item.clone()));
                }
                totals.extend(front);
                out
            });
            return (lines.collect(), totals);
        };
        let warps = digit.extent;
        let position = self.digit(Holder::Warp, weight, digit, layout.digits(Holder::Warp));
        let items: Vec<Item> = sums.iter().flatten().cloned().collect();
        let mut read = self.of_all(Holder::Warp, with, layout, axis, &items).unwrap_or_default().into_iter();
        let mut out = Vec::new();
        for runs in sums {
            let mut front: Option<Item> = None;
            let mut fronts = Vec::with_capacity(runs.len());
            for mut items in read.by_ref().take(runs.len()) {
                if reverse {
                    items.reverse();
                }
                let mut own = front.clone();
                for (k, item) in (0u32..).zip(&items) {
                    // Only warps that come before this one count.
                    let number = if reverse { warps - 1 - k } else { k };
                    let counted = self.if_before(with, item, number, position, reverse);
                    own = self.one_after_other(with, own, Some(counted));
                    front = self.one_after_other(with, front, Some(item.clone()));
                }
                fronts.push(own);
            }
            totals.extend(front);
            out.push(fronts);
        }
        (out, totals)
    }
}

/// A layout that runs along an axis in order, the same in every block.
fn ordered(shape: tilewright_ir::Shape, axis: usize, team: Team) -> Layout {
    let mut order = vec![axis];
    order.extend((0..shape.rank()).rev().filter(|&a| a != axis));
    let one = Layout::blocked(shape, &order, 1, Team { blocks: 1, ..team });
    if team.blocks == 1 {
        return one;
    }
    let [lanes, warps] = [Holder::Lane, Holder::Warp].map(|h| one.digits(h).to_vec());
    let copies = vec![Digit { axis: None, extent: team.blocks, stride: 0 }];
    let registers = one.registers.clone();
    debug_assert!(lanes.iter().map(|d| d.extent).product::<u32>() == LANES);
    Layout::of(shape, registers, [lanes, warps, copies])
}
