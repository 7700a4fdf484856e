//! One layout for each tile.
//!
//! Tiles that are computed element by element from each other share a layout, so that nothing moves between threads: they form a *class*
//! (union-find over `map`, scans, and what loops and branches carry). A class takes its layout from whoever cares most:
//!
//! 1. a matrix product that accumulates in it: the fragments of the tensor core;
//! 2. a larger class that it is broadcast to or reduced from: that layout without the axis;
//! 3. its loads and stores: neighbours in memory go to one register vector, then to neighbouring lanes;
//! 4. other tiles of the same elements (transposed, reshaped), or row-major order.
//!
//! Where an op needs another layout than its tile has, the lowering exchanges elements, and says so in a remark.

use std::collections::HashSet;
use std::rc::Rc;

use tilewright_hardware::Arch;
use tilewright_ir::{Axes, Axis, Constant, Element, Func, Op, OpData, Opcode, Shape, Type, Value};
use tilewright_passes::Alignment;

use super::dot;
use super::layout::{Layout, Team};
use super::pipeline::{Left, Pipeline};
use super::threads;

/// How a box of memory is best read or written: axes from the fastest to the slowest, and elements of one access.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) axes: Vec<usize>,
    pub(crate) vector: u32,
}

impl Order {
    /// The axis whose neighbours are neighbours in memory.
    pub(crate) fn fast(&self) -> usize {
        self.axes.first().copied().unwrap_or(0)
    }
}

/// The layouts of a function's tiles, and the threads they are made for.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) team: Team,
    classes: Classes,
    layouts: Vec<Option<Rc<Layout>>>,
}

impl Plan {
    /// The layout of a tile.
    pub(crate) fn layout(&self, value: Value) -> Option<Rc<Layout>> {
        self.layouts.get(self.classes.find(value)).cloned().flatten()
    }

    /// Decides for all tiles of a function.
    pub(crate) fn of(func: &Func, arch: Arch, align: &Alignment, pipeline: Option<&Pipeline>) -> Plan {
        let classes = Classes::of(func);
        let team = match pipeline {
            Some(pipeline) => Team { warps: pipeline.warps, blocks: 1 },
            None => threads::team(func, arch, align),
        };
        let mut plan = Plan { team, layouts: vec![None; func.value_count()], classes };
        plan.accumulators(func, arch, pipeline);
        let mut tiles: Vec<(Value, Shape)> =
            tiles(func).filter(|(value, _)| plan.classes.find(*value) == value.index()).collect();
        tiles.sort_by_key(|(value, shape)| (std::cmp::Reverse(shape.elements()), *value));
        for &(class, shape) in &tiles {
            if plan.layouts[class.index()].is_none() {
                let layout = plan
                    .derived_layout(func, class, Some(shape.elements()))
                    .or_else(|| plan.memory_layout(func, align, class, shape))
                    .or_else(|| plan.derived_layout(func, class, None))
                    .unwrap_or_else(|| {
                        let order: Vec<usize> = (0..shape.rank()).rev().collect();
                        Layout::blocked(shape, &order, 1, team)
                    });
                plan.layouts[class.index()] = Some(Rc::new(layout));
            }
        }
        plan
    }

    fn accumulators(&mut self, func: &Func, arch: Arch, pipeline: Option<&Pipeline>) {
        for op in func.walk() {
            let data = func.op(op);
            if data.code != Opcode::Dot {
                continue;
            }
            let layout = match pipeline.filter(|pipeline| pipeline.products.contains_key(&op)) {
                Some(pipeline) => {
                    func.ty(data.results[0]).shape().and_then(|s| dot::warpgroup_rows(s, pipeline.warps / 4))
                }
                None => dot::accumulator(func, data, arch, self.team),
            };
            if let Some(layout) = layout {
                self.layouts[self.classes.find(data.results[0])] = Some(Rc::new(layout));
            }
        }
        // Factors that are multiplied from registers, unless they are sums themselves.
        for product in pipeline.iter().flat_map(|pipeline| pipeline.products.values()) {
            if let Left::Registers(value) = product.left
                && let Some(shape) = func.ty(value).shape()
            {
                let layout = &mut self.layouts[self.classes.find(value)];
                if layout.is_none() {
                    *layout = dot::warpgroup_rows(shape, self.team.warps / 4).map(Rc::new);
                }
            }
        }
    }

    /// From a class that this one is made of or turns into; with a number of elements, only from classes that have more.
    fn derived_layout(&self, func: &Func, class: Value, above: Option<u32>) -> Option<Layout> {
        func.walk().into_iter().find_map(|op| {
            let data = func.op(op);
            let pairs = data.operands.iter().copied().zip(data.results.iter().copied());
            pairs.filter(|&(from, to)| is_tile(func, from) && is_tile(func, to)).find_map(|(from, to)| {
                let forwards = self.classes.find(to) == class.index();
                if !forwards && self.classes.find(from) != class.index() {
                    return None;
                }
                let relative = self.layout(if forwards { from } else { to })?;
                if above.is_some_and(|n| relative.shape.elements() <= n) {
                    return None;
                }
                derived(func, data, &relative, forwards, func.ty(if forwards { to } else { from }).shape()?)
            })
        })
    }

    /// From the accesses to memory, those of loops first, then the largest.
    fn memory_layout(&self, func: &Func, align: &Alignment, class: Value, shape: Shape) -> Option<Layout> {
        let repeated = repeated(func);
        let accesses = func.walk().into_iter().filter_map(|op| {
            let tile = accessed(func.op(op))?;
            if self.classes.find(tile) != class.index() {
                return None;
            }
            let order = memory_order(func, align, func.op(op))?;
            Some(((repeated.contains(&op), func.ty(tile).bits()), order))
        });
        // The first of the largest, so that the choice does not depend on the order of equals. Scans take fewer steps with longer vectors.
        let scans = func.walk().into_iter().any(|op| func.op(op).code == Opcode::TileScan);
        let size = |(weight, order): &((bool, u32), Order)| (*weight, if scans { order.vector } else { 0 });
        let best = accesses.fold(None, |best: Option<((bool, u32), Order)>, next| match best {
            Some(best) if size(&best) >= size(&next) => Some(best),
            _ => Some(next),
        });
        best.map(|(_, order)| Layout::blocked(shape, &order.axes, order.vector, self.team))
    }
}

/// The layout of the result of an op that rearranges (`forwards`), or of its operand, from that of the other.
fn derived(func: &Func, data: &OpData, relative: &Layout, forwards: bool, shape: Shape) -> Option<Layout> {
    match (data.code, forwards) {
        (Opcode::TileReduce, true) => {
            data.get::<Axis>().map(|Axis(axis)| relative.without(usize::from(axis)))
        }
        (Opcode::Broadcast, false) => {
            let small = func.ty(data.operands[0]).shape()?;
            let grown =
                (0..shape.rank()).filter(|&a| small.extents()[a] == 1 && relative.shape.extents()[a] > 1);
            Some(grown.fold(relative.clone(), |layout, axis| layout.without(axis)))
        }
        (Opcode::Transpose, _) => {
            let axes = data.get::<Axes>()?;
            relative.transposed(if forwards { axes } else { axes.inverse() }.axes())
        }
        (Opcode::Reshape, _) => relative.reshaped(shape),
        _ => None,
    }
}

/// The ops inside of loops: what is moved there counts for more than what is moved once.
pub(crate) fn repeated(func: &Func) -> HashSet<Op> {
    let loops = func.walk().into_iter().map(|op| func.op(op));
    let mut inside = Vec::new();
    for data in loops.filter(|data| matches!(data.code, Opcode::For | Opcode::While)) {
        data.regions.iter().for_each(|&region| func.walk_region(region, &mut inside));
    }
    inside.into_iter().collect()
}

/// The tile that an op moves between memory and registers.
pub(crate) fn accessed(data: &OpData) -> Option<Value> {
    match data.code {
        Opcode::TileLoad => data.results.first().copied(),
        Opcode::TileStore => data.operands.get(1).copied(),
        _ => None,
    }
}

/// The parts of a box access: starts, extents and strides of all axes.
pub(crate) struct Box3<'a> {
    pub(crate) starts: &'a [Value],
    pub(crate) extents: &'a [Value],
    pub(crate) strides: &'a [Value],
}

impl<'a> Box3<'a> {
    pub(crate) fn of(data: &'a OpData, rank: usize) -> Box3<'a> {
        let first = if data.code == Opcode::TileLoad { 1 } else { 2 };
        let part = |i: usize| &data.operands[first + i * rank..first + (i + 1) * rank];
        Box3 { starts: part(0), extents: part(1), strides: part(2) }
    }
}

/// The bits of a constant.
pub(crate) fn constant(func: &Func, value: Value) -> Option<u64> {
    let data = func.op(func.def_op(value)?);
    (data.code == Opcode::Const).then(|| data.get::<Constant>().map(|Constant(bits)| bits)).flatten()
}

/// How the box of a load or store lies in memory.
pub(crate) fn memory_order(func: &Func, align: &Alignment, data: &OpData) -> Option<Order> {
    let Type::Tile(element, shape) = func.ty(accessed(data)?) else { return None };
    let parts = Box3::of(data, shape.rank());
    let unit = |axis: usize| constant(func, parts.strides[axis]) == Some(1);
    let wide = |axis: usize| shape.extents()[axis] > 1;
    let last = shape.rank() - 1;
    let fast =
        (0..shape.rank()).rev().find(|&a| unit(a) && wide(a)).or((0..shape.rank()).rev().find(|&a| unit(a)));
    let mut axes: Vec<usize> = vec![fast.unwrap_or(last)];
    axes.extend((0..shape.rank()).rev().filter(|&axis| axis != fast.unwrap_or(last)));
    let vector = fast.map_or(1, |fast| {
        let bytes = element.bits() / 8;
        if element.is_bool() || element.bits() % 8 != 0 {
            return 1;
        }
        let multiple = |value: Value, of: u32| align.at(value, 0).is_multiple_of(u64::from(of));
        let fits = |vector: u32| {
            let others = (0..shape.rank()).filter(|&a| a != fast);
            let still = |a: usize| !wide(a) && constant(func, parts.starts[a]) == Some(0);
            shape.extents()[fast] % vector == 0
                && multiple(data.operands[0], vector * bytes)
                && multiple(parts.starts[fast], vector)
                && multiple(parts.extents[fast], vector)
                && others.into_iter().all(|a| still(a) || multiple(parts.strides[a], vector))
        };
        [16, 8, 4, 2]
            .into_iter()
            .filter(|vector| vector * bytes <= 16)
            .find(|&vector| fits(vector))
            .unwrap_or(1)
    });
    Some(Order { axes, vector })
}

/// What would have to be known so that the box of a load or store moves in vectors of 16 bytes, for its author.
pub(crate) fn missing(func: &Func, align: &Alignment, data: &OpData) -> Vec<String> {
    let Some(Type::Tile(element, shape)) = accessed(data).map(|tile| func.ty(tile)) else {
        return Vec::new();
    };
    let parts = Box3::of(data, shape.rank());
    let name = |value: Value, what: String| match parameter(func, value) {
        Some(name) => format!("`{name}`"),
        None => what,
    };
    let axes = 0..shape.rank();
    let unit = |&axis: &usize| constant(func, parts.strides[axis]) == Some(1);
    let wide = |axis: usize| shape.extents()[axis] > 1;
    let Some(fast) = axes.clone().rev().find(|a| unit(a) && wide(*a)).or(axes.clone().rev().find(unit))
    else {
        return vec!["that a stride is 1".to_owned()];
    };
    let vector = 16 / bytes(element).max(1);
    let mut missing = Vec::new();
    if align.at(data.operands[0], 0) < 16 {
        let pointer = name(data.operands[0], "the pointer".to_owned());
        missing.push(format!("that {pointer} is a multiple of 16 bytes"));
    }
    let mut numbers = vec![
        (parts.starts[fast], format!("the start along axis {fast}")),
        (parts.extents[fast], format!("the extent along axis {fast}")),
    ];
    let moves = |axis: usize| wide(axis) || constant(func, parts.starts[axis]) != Some(0);
    numbers.extend(
        axes.filter(|&axis| axis != fast && moves(axis))
            .map(|axis| (parts.strides[axis], format!("the stride along axis {axis}"))),
    );
    for (value, what) in numbers {
        if !align.at(value, 0).is_multiple_of(u64::from(vector)) {
            missing.push(format!("that {} is a multiple of {vector}", name(value, what)));
        }
    }
    if !shape.extents()[fast].is_multiple_of(vector) {
        missing.push(format!("a tile whose extent along axis {fast} is a multiple of {vector}"));
    }
    missing
}

/// The name of the parameter that a value is, as it is or with another type.
pub(crate) fn parameter(func: &Func, value: Value) -> Option<&str> {
    let position = func.region(func.body()).args.iter().position(|&arg| arg == value);
    match position {
        Some(position) => func.params.get(position).map(|param| param.name.as_str()),
        None => {
            let data = func.op(func.def_op(value)?);
            matches!(data.code, Opcode::Cvt | Opcode::Bitcast)
                .then(|| parameter(func, data.operands[0]))
                .flatten()
        }
    }
}

fn is_tile(func: &Func, value: Value) -> bool {
    matches!(func.ty(value), Type::Tile(..))
}

/// All tiles of a function: results and arguments of regions.
pub(super) fn tiles(func: &Func) -> impl Iterator<Item = (Value, Shape)> + '_ {
    let of_op = |op: Op| {
        let data = func.op(op);
        let args = data.regions.iter().flat_map(|&region| func.region(region).args.iter());
        data.results.iter().chain(args).copied().collect::<Vec<_>>()
    };
    func.walk()
        .into_iter()
        .flat_map(of_op)
        .filter_map(|value| func.ty(value).shape().map(|shape| (value, shape)))
}

/// Tiles that share a layout.
#[derive(Debug)]
pub(super) struct Classes(Vec<usize>);

impl Classes {
    pub(super) fn of(func: &Func) -> Classes {
        let mut classes = Classes((0..func.value_count()).collect());
        for op in func.walk() {
            let data = func.op(op);
            let yielded = |region: usize| {
                let end = func.terminator(data.regions[region]);
                end.map(|end| func.op(end).operands.to_vec()).unwrap_or_default()
            };
            let args = |region: usize| func.region(data.regions[region]).args.to_vec();
            match data.code {
                Opcode::Map | Opcode::TileScan => {
                    let all: Vec<Value> = data.operands.iter().chain(&data.results).copied().collect();
                    classes.join_all(func, &all);
                }
                Opcode::TileReduce => {
                    classes.join_all(func, &data.operands);
                    classes.join_all(func, &data.results);
                }
                Opcode::Gather | Opcode::Scatter | Opcode::TileAtomic | Opcode::TileAtomicCas => {
                    let all: Vec<Value> = data.operands[1..].iter().chain(&data.results).copied().collect();
                    classes.join_all(func, &all);
                }
                Opcode::Take => classes.join(func, data.operands[1], data.results[0]),
                Opcode::Dot => classes.join(func, data.operands[2], data.results[0]),
                Opcode::For => {
                    let lists = [
                        data.operands[3..].to_vec(),
                        args(0)[1..].to_vec(),
                        yielded(0),
                        data.results.to_vec(),
                    ];
                    classes.join_lists(func, &lists);
                }
                Opcode::While => {
                    let lists = [data.operands.to_vec(), args(0), yielded(1)];
                    classes.join_lists(func, &lists);
                    let passed = yielded(0).split_first().map(|(_, rest)| rest.to_vec()).unwrap_or_default();
                    classes.join_lists(func, &[passed, args(1), data.results.to_vec()]);
                }
                Opcode::If => classes.join_lists(func, &[yielded(0), yielded(1), data.results.to_vec()]),
                _ => {}
            }
        }
        classes
    }

    pub(super) fn find(&self, value: Value) -> usize {
        let mut at = value.index();
        while self.0[at] != at {
            at = self.0[at];
        }
        at
    }

    fn join(&mut self, func: &Func, a: Value, b: Value) {
        // What any thread can make for itself takes part in no class: each use makes it anew.
        if is_free(func, a) || is_free(func, b) {
            return;
        }
        let (a, b) = (self.find(a), self.find(b));
        let (low, high) = (a.min(b), a.max(b));
        self.0[high] = low;
    }

    /// Joins the tiles at the same position of all lists.
    fn join_lists(&mut self, func: &Func, lists: &[Vec<Value>]) {
        for i in 0..lists.iter().map(Vec::len).min().unwrap_or(0) {
            let tiles: Vec<Value> = lists.iter().map(|list| list[i]).filter(|&v| is_tile(func, v)).collect();
            self.join_all(func, &tiles);
        }
    }

    fn join_all(&mut self, func: &Func, values: &[Value]) {
        let mut others = values.iter().filter(|&&value| !is_free(func, value));
        if let Some(&first) = others.next() {
            others.for_each(|&other| self.join(func, first, other));
        }
    }
}

/// Whether every thread can make any element of the tile for itself.
pub(crate) fn is_free(func: &Func, value: Value) -> bool {
    func.def_op(value)
        .is_some_and(|op| matches!(func.op(op).code, Opcode::Splat | Opcode::Iota | Opcode::Poison))
}

/// Whether a scalar of this element has a place in shared memory of its own.
pub(crate) fn bytes(element: Element) -> u32 {
    element.bits().div_ceil(8)
}
