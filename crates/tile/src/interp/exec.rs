//! One program: regions, control flow, and the ops that own regions.
//!
//! A region that computes single elements runs once for all elements of a tile, op by op on whole columns. Where elements go different
//! ways, an `if` runs both of them and takes from each what belongs to it (nothing there has effects); if that would repeat a loop that not
//! all elements are in, the region runs again from the start, element by element.

use tilewright_ir::{Axes, Axis, Flags, Index, Op, OpData, Opcode, Region, Shape, Special, Type, Value};

use super::column::Column;
use super::memory::Memory;
use super::scalar::{self, Fast, width};
use super::{InterpError, Program, Site, dot, shape};

/// Why a region was left early.
pub(super) enum Stop {
    /// Elements would have to go different ways.
    Diverged,
    /// The program reads what it has written, which it cannot while others run beside it.
    Reread,
    /// An error.
    Error(Box<InterpError>),
}

impl From<InterpError> for Stop {
    fn from(error: InterpError) -> Stop {
        Stop::Error(Box::new(error))
    }
}

/// One program of the grid.
pub(super) struct Machine<'p, 'm, 'a> {
    pub(super) program: &'p Program,
    pub(super) memory: &'m mut Memory<'a>,
    id: [u32; 3],
    grid: [u32; 3],
    values: Vec<Column>,
    steps: u64,
}

/// Whether an op that is not pure is executed here.
pub(super) fn handles(code: Opcode) -> bool {
    use Opcode as O;
    matches!(
        code,
        O::If
            | O::For
            | O::While
            | O::Yield
            | O::Condition
            | O::Return
            | O::Load
            | O::LoadIf
            | O::Assert
            | O::BulkPrefetch
            | O::GridWait
            | O::GridLaunch
            | O::Fence
            | O::Splat
            | O::Iota
            | O::Broadcast
            | O::Reshape
            | O::Transpose
            | O::Cat
            | O::Part
            | O::Take
            | O::Item
            | O::Map
            | O::TileReduce
            | O::TileScan
            | O::Dot
            | O::TileLoad
            | O::TileStore
            | O::Gather
            | O::Scatter
            | O::TileAtomic
            | O::TileAtomicCas
    )
}

/// Runs a program.
pub(super) fn run(
    program: &Program,
    memory: &mut Memory<'_>,
    id: [u32; 3],
    grid: [u32; 3],
    arguments: &[u64],
) -> Result<(), Stop> {
    let func = &program.func;
    let mut machine = Machine {
        program,
        memory,
        id,
        grid,
        values: vec![Column::default(); func.value_count()],
        steps: program.steps,
    };
    for (&param, &bits) in func.region(func.body()).args.iter().zip(arguments) {
        machine.set(param, Column::one(bits));
    }
    match machine.region(func.body(), 1) {
        // Only regions of `map` and the like compute several elements, and these catch it.
        Ok(_) | Err(Stop::Diverged) => Ok(()),
        Err(stop) => Err(stop),
    }
}

impl Machine<'_, '_, '_> {
    pub(super) fn get(&self, value: Value) -> Column {
        self.values[value.index()].clone()
    }

    /// A scalar.
    pub(super) fn scalar(&self, value: Value) -> u64 {
        self.values[value.index()].first()
    }

    pub(super) fn set(&mut self, value: Value, column: Column) {
        self.values[value.index()] = column;
    }

    pub(super) fn ty(&self, value: Value) -> Type {
        self.program.func.ty(value)
    }

    /// The shape of a tile.
    pub(super) fn shape(&self, data: &OpData, value: Value) -> Result<Shape, InterpError> {
        self.ty(value).shape().ok_or_else(|| self.program.unsupported(data))
    }

    pub(super) fn site(&self, data: &OpData) -> Site {
        Site { op: data.info().mnemonic, location: self.program.location(data.loc), program: self.id }
    }

    fn bind(&mut self, targets: &[Value], columns: Vec<Column>) {
        for (&target, column) in targets.iter().zip(columns) {
            self.set(target, column);
        }
    }

    /// Executes a region for `n` elements; gives what its terminator hands over.
    fn region(&mut self, region: Region, n: usize) -> Result<Vec<Column>, Stop> {
        let func = &self.program.func;
        for &op in &func.region(region).ops {
            let data = func.op(op);
            if data.info().is_terminator() {
                return Ok(data.operands.iter().map(|&v| self.get(v)).collect());
            }
            self.spend(data, 1 + n as u64 / 256)?;
            self.op(op, data, n)?;
        }
        Ok(Vec::new())
    }

    fn spend(&mut self, data: &OpData, steps: u64) -> Result<(), InterpError> {
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err(InterpError::Endless { site: self.site(data), limit: self.program.steps }),
        }
    }

    fn op(&mut self, op: Op, data: &OpData, n: usize) -> Result<(), Stop> {
        match data.code {
            Opcode::If => self.branch(op, data, n)?,
            Opcode::For => self.count(data, n)?,
            Opcode::While => self.repeat(data, n)?,
            Opcode::Special => {
                let bits = self.special(data)?;
                self.set(data.results[0], Column::one(bits));
            }
            Opcode::Assert => {
                if self.scalar(data.operands[0]) == 0 {
                    let message = data.text().unwrap_or("").to_owned();
                    return Err(InterpError::Stopped { site: self.site(data), message }.into());
                }
            }
            // Programs run one after another where they change what others read, and see all that was done before.
            Opcode::BulkPrefetch | Opcode::GridWait | Opcode::GridLaunch | Opcode::Fence => {}
            Opcode::Load | Opcode::LoadIf => self.load(data)?,
            Opcode::TileLoad => self.tile_load(data)?,
            Opcode::TileStore => self.tile_store(data)?,
            Opcode::Gather => self.gather(data)?,
            Opcode::Scatter => self.scatter(data)?,
            Opcode::TileAtomic => self.atomic(data)?,
            Opcode::TileAtomicCas => self.atomic_cas(data)?,
            Opcode::Map => {
                let n = self.shape(data, data.results[0])?.elements() as usize;
                let arguments: Vec<Column> = data.operands.iter().map(|&v| self.get(v)).collect();
                let columns = self.apply(data.regions[0], &arguments, n)?;
                self.bind(&data.results, columns);
            }
            Opcode::TileReduce | Opcode::TileScan => self.combine(data)?,
            Opcode::Poison if self.ty(data.results[0]).shape().is_some() => {
                let n = self.shape(data, data.results[0])?.elements() as usize;
                self.set(data.results[0], Column::tile(vec![0; n]));
            }
            Opcode::Splat
            | Opcode::Iota
            | Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Transpose
            | Opcode::Cat
            | Opcode::Part
            | Opcode::Take
            | Opcode::Item
            | Opcode::Dot => {
                let column = self.move_elements(data)?;
                self.set(data.results[0], column);
            }
            _ => {
                let (func, values) = (&self.program.func, &self.values);
                let operand = |i: usize| values[data.operands[i].index()].clone();
                let column = scalar::compute(func, data, self.program.fast[op.index()], n, operand)
                    .map_err(|scalar::NoMeaning| self.program.unsupported(data))?;
                self.set(data.results[0], column);
            }
        }
        Ok(())
    }

    fn special(&self, data: &OpData) -> Result<u64, InterpError> {
        Ok(u64::from(match data.get::<Special>() {
            Some(Special::CtaidX) => self.id[0],
            Some(Special::CtaidY) => self.id[1],
            Some(Special::CtaidZ) => self.id[2],
            Some(Special::NctaidX) => self.grid[0],
            Some(Special::NctaidY) => self.grid[1],
            Some(Special::NctaidZ) => self.grid[2],
            _ => return Err(self.program.unsupported(data)),
        }))
    }

    /// A scalar that decides about the way all elements go.
    fn decision(column: &Column, n: usize) -> Result<u64, Stop> {
        if column.is_same() || n == 1 { Ok(column.first()) } else { Err(Stop::Diverged) }
    }

    fn branch(&mut self, op: Op, data: &OpData, n: usize) -> Result<(), Stop> {
        let condition = self.get(data.operands[0]);
        let columns = match Machine::decision(&condition, n) {
            Ok(holds) => self.region(data.regions[usize::from(holds == 0)], n)?,
            Err(_) if self.program.repeats[op.index()] => return Err(Stop::Diverged),
            Err(_) => {
                let taken = self.region(data.regions[0], n)?;
                let other = self.region(data.regions[1], n)?;
                let pairs = taken.iter().zip(&other).zip(&data.results);
                pairs.map(|((a, b), &result)| merge(&condition, a, b, n, width(self.ty(result)))).collect()
            }
        };
        self.bind(&data.results, columns);
        Ok(())
    }

    fn count(&mut self, data: &OpData, n: usize) -> Result<(), Stop> {
        let func = &self.program.func;
        let element = self.ty(data.operands[0]).element();
        let signed = element.is_some_and(tilewright_ir::Element::is_signed);
        let mut bounds = [0i128; 3];
        for (bound, &operand) in bounds.iter_mut().zip(&data.operands) {
            let bits = Machine::decision(&self.values[operand.index()], n)?;
            *bound = if signed { i128::from(bits.cast_signed()) } else { i128::from(bits) };
        }
        let [mut counter, upper, step] = bounds;
        let mut carried: Vec<Column> = data.operands[3..].iter().map(|&v| self.get(v)).collect();
        let args = &func.region(data.regions[0]).args;
        while counter < upper {
            self.spend(data, 1)?;
            // The bits of an i128 between those of an i64 and a u64.
            let bits = u64::try_from(counter & i128::from(u64::MAX)).unwrap_or(0);
            self.set(args[0], Column::one(bits));
            self.bind(&args[1..], carried);
            carried = self.region(data.regions[0], n)?;
            counter += step;
        }
        self.bind(&data.results, carried);
        Ok(())
    }

    fn repeat(&mut self, data: &OpData, n: usize) -> Result<(), Stop> {
        let func = &self.program.func;
        let mut carried: Vec<Column> = data.operands.iter().map(|&v| self.get(v)).collect();
        loop {
            self.spend(data, 1)?;
            self.bind(&func.region(data.regions[0]).args, carried);
            let mut passed = self.region(data.regions[0], n)?;
            let goes_on = Machine::decision(&passed.remove(0), n)?;
            if goes_on == 0 {
                self.bind(&data.results, passed);
                return Ok(());
            }
            self.bind(&func.region(data.regions[1]).args, passed);
            carried = self.region(data.regions[1], n)?;
        }
    }

    /// Computes elements: for each of `n` the region takes one of each argument. Gives columns of `n` elements.
    fn apply(&mut self, region: Region, arguments: &[Column], n: usize) -> Result<Vec<Column>, Stop> {
        let func = &self.program.func;
        let args = &func.region(region).args;
        self.bind(args, arguments.to_vec());
        match self.region(region, n) {
            Ok(columns) => Ok(columns.into_iter().map(|column| spread(column, n)).collect()),
            Err(Stop::Diverged) => {
                let mut words: Vec<Vec<u64>> = Vec::new();
                for element in 0..n {
                    self.bind(args, arguments.iter().map(|column| column.at(element, 1)).collect());
                    let columns = self.region(region, 1)?;
                    words.resize(columns.len(), Vec::new());
                    for (words, column) in words.iter_mut().zip(&columns) {
                        words.push(column.first());
                    }
                }
                Ok(words.into_iter().map(Column::tile).collect())
            }
            Err(error) => Err(error),
        }
    }

    /// The loop of a region that does nothing but combine its two arguments with one op.
    fn combining(&self, region: Region) -> Option<fn(u64, u64) -> u64> {
        let func = &self.program.func;
        let region = func.region(region);
        let [op, end] = region.ops[..] else { return None };
        let direct =
            func.op(op).operands[..] == region.args[..] && func.op(end).operands == func.op(op).results;
        match self.program.fast[op.index()] {
            Fast::Two(one, _) if direct => Some(one),
            _ => None,
        }
    }

    fn combine(&mut self, data: &OpData) -> Result<(), Stop> {
        let whole = self.shape(data, data.operands[0])?;
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let (outer, extent, inner) = shape::around(whole, axis);
        let scan = data.code == Opcode::TileScan;
        let reverse = data.flags().has(Flags::REVERSE);
        let order = |step: usize| if reverse { extent - 1 - step } else { step };
        if let Some(combine) = self.combining(data.regions[0]) {
            self.spend(data, 1 + u64::from(whole.elements()) / 64)?;
            let words = self.get(data.operands[0]);
            let words = words.words();
            let mut all = if scan { words.to_vec() } else { Vec::with_capacity(outer * inner) };
            for o in 0..outer {
                for i in 0..inner {
                    let at = |step: usize| (o * extent + order(step)) * inner + i;
                    let mut sum = words[at(0)];
                    for step in 1..extent {
                        sum = combine(sum, words[at(step)]);
                        if scan {
                            all[at(step)] = sum;
                        }
                    }
                    if !scan {
                        all.push(sum);
                    }
                }
            }
            self.set(data.results[0], Column::tile(all));
            return Ok(());
        }
        let operands: Vec<Column> = data.operands.iter().map(|&v| self.get(v)).collect();
        let slices = |step: usize| {
            operands
                .iter()
                .map(move |column| Column::tile(shape::part(column.words(), whole, axis, order(step), 1)))
        };
        let mut sums: Vec<Column> = slices(0).collect();
        let mut all: Vec<Vec<u64>> = operands.iter().map(|column| column.words().to_vec()).collect();
        for step in 1..extent {
            let arguments: Vec<Column> = sums.into_iter().chain(slices(step)).collect();
            sums = self.apply(data.regions[0], &arguments, outer * inner)?;
            if scan {
                for (all, sum) in all.iter_mut().zip(&sums) {
                    for (o, line) in sum.words().chunks(inner).enumerate() {
                        all[(o * extent + order(step)) * inner..][..inner].copy_from_slice(line);
                    }
                }
            }
        }
        let columns = if scan { all.into_iter().map(Column::tile).collect() } else { sums };
        self.bind(&data.results, columns);
        Ok(())
    }

    fn move_elements(&self, data: &OpData) -> Result<Column, InterpError> {
        let to = self.ty(data.results[0]);
        let first = data.operands.first().map(|&v| self.get(v)).unwrap_or_default();
        let axis = data.get::<Axis>().map_or(0, |Axis(axis)| usize::from(axis));
        let refuse = || self.program.unsupported(data);
        if data.code == Opcode::Item {
            return Ok(Column::one(first.first()));
        }
        let to = to.shape().ok_or_else(refuse)?;
        let from = |i: usize| self.shape(data, data.operands[i]);
        let words = match data.code {
            Opcode::Reshape => return Ok(first),
            Opcode::Splat => vec![first.first(); to.elements() as usize],
            Opcode::Iota => shape::iota(to, axis),
            Opcode::Broadcast => shape::broadcast(first.words(), from(0)?, to),
            Opcode::Transpose => {
                let axes = data.get::<Axes>().ok_or_else(refuse)?;
                shape::transpose(first.words(), from(0)?, to, axes.axes())
            }
            Opcode::Cat => {
                let second = self.get(data.operands[1]);
                shape::cat((first.words(), from(0)?), (second.words(), from(1)?), axis)
            }
            Opcode::Part => {
                let start = data.get::<Index>().map_or(0, |Index(start)| start as usize);
                let (_, count, _) = shape::around(to, axis);
                shape::part(first.words(), from(0)?, axis, start, count)
            }
            Opcode::Take => {
                let indices = self.get(data.operands[1]);
                shape::take(first.words(), from(0)?, indices.words(), axis)
            }
            _ => self.dot(data)?,
        };
        Ok(Column::tile(words))
    }

    fn dot(&self, data: &OpData) -> Result<Vec<u64>, InterpError> {
        let refuse = || self.program.unsupported(data);
        let [a, b, c] = [0, 1, 2].map(|i| self.get(data.operands[i]));
        let element = |i: usize| self.ty(data.operands[i]).element().ok_or_else(refuse);
        let (left, right) = (self.shape(data, data.operands[0])?, self.shape(data, data.operands[1])?);
        let ([many @ .., m, k], [.., n]) = (left.extents(), right.extents()) else { return Err(refuse()) };
        let [m, n, k] = [m, n, k].map(|&extent| extent as usize);
        let (left, right, sums) = (element(0)?, element(1)?, element(2)?);
        let matrices = many.iter().product::<u32>() as usize;
        let mut out = Vec::with_capacity(matrices * m * n);
        for i in 0..matrices {
            let product = dot::dot(
                (&a.words()[i * m * k..][..m * k], left),
                (&b.words()[i * k * n..][..k * n], right),
                (&c.words()[i * m * n..][..m * n], sums),
                [m, n, k],
            );
            out.extend(product.ok_or_else(refuse)?);
        }
        Ok(out)
    }
}

/// A column with a word for each element.
fn spread(column: Column, n: usize) -> Column {
    match column {
        Column::Same(words) => Column::tile(vec![words.first().copied().unwrap_or(0); n]),
        each @ Column::Each(_) => each,
    }
}

/// From `a` what belongs to elements for which the condition holds, from `b` the others.
fn merge(condition: &Column, a: &Column, b: &Column, n: usize, lanes: usize) -> Column {
    let element =
        |i: usize| if condition.lanes(i, 1)[0] == 0 { b.lanes(i, lanes) } else { a.lanes(i, lanes) };
    Column::tile((0..n).flat_map(element).copied().collect())
}
