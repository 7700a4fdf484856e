//! Device code of an epilogue.

use std::marker::PhantomData;

use tilewright_hardware::Element;
use tilewright_ir::Value;
use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Memo, mistake, same};

use super::expr::{Access, Expr, ExtraOperand, Shape};
use super::formula::Callable;
use super::partials::{Lanes, Partials, Piece};
use super::real::Fast;
use super::walk::{Grid, Machine, Walk};
use super::{Epilogue, Parameter};
use crate::gemm::matrix::{GlobalMatrix, Place, both, load_converted, with_element};
use crate::gemm::problem::{Batching, Problem};

/// Elements of a vector that stay in registers for their next use: the columns of a thread in one piece of a tile.
const REMEMBERED: usize = 16;

/// In which type and with which functions an epilogue computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arithmetic {
    /// Not at all.
    Nothing,
    /// In f32, with the fast forms of functions.
    Fast,
    /// In f32, with the accurate forms.
    Accurate,
    /// In f64.
    Double,
}

/// An epilogue inside of a kernel that is being staged. `R` is the type that it computes in: [`Epilogue::computes_in`].
///
/// A kernel
/// 1. calls [`Epilogue::stage`] at its start,
/// 2. calls [`begin`](Staged::begin) where it turns to another tile,
/// 3. calls [`apply`](Staged::apply) for every run of sums, converts what it gets (`narrow`), and stores it to D,
/// 4. calls [`finish`](Staged::finish) after the last run of each piece, and completes its recipe with
///    [`add_reductions`](super::add_reductions); unless it leaves that to [`with_reductions`](super::with_reductions).
///
/// Sums that are integers (of 8-bit products) are converted to `R` first.
#[derive(Debug)]
pub struct Staged<R> {
    result: Expr,
    arithmetic: Arithmetic,
    /// Columns of the product that make one of D.
    merged: u32,
    /// Whether D has integers, so that results are rounded to such.
    whole: bool,
    scalars: Vec<(String, Val<R>)>,
    operands: Vec<Declared<R>>,
    c: Option<GlobalMatrix>,
    /// Neighbours in a row of C that one access takes, at most.
    c_vector: u32,
}

/// Which element of a vector: of which member of the batch, if each has its own, and the index.
type Entry = (Option<Val<u32>>, Val<u32>);

/// An operand with its parameters.
#[derive(Debug)]
struct Declared<R> {
    operand: ExtraOperand,
    memory: Memory<R>,
    /// Elements that were loaded, by member of the batch and index.
    loaded: Memo<Entry, Val<R>>,
}

#[derive(Debug)]
enum Memory<R> {
    Matrix(GlobalMatrix),
    Vector { origin: Global<u8>, batch_stride: Option<Val<u64>> },
    Partials(Partials<R>),
}

impl Epilogue {
    /// Declares the run-time parameters of the epilogue; at the start of a kernel. [`Epilogue::bindings`] says what they get.
    ///
    /// `R` is what [`Epilogue::computes_in`] says; anything else is reported as a mistake of the kernel.
    #[must_use]
    #[track_caller]
    pub fn stage<R: Number>(&self, problem: &Problem) -> Staged<R> {
        let expected = self.computes_in(&problem.types);
        if R::ELEMENT != expected {
            mistake(format!("an epilogue that is staged for {}; it computes in {expected}", R::ELEMENT));
        }
        let wide = problem.types.d.bytes() >= 4 || self.stores_wide();
        let whole = problem.types.d.is_int() && expected != Element::I32;
        let arithmetic = match expected {
            Element::F64 => Arithmetic::Double,
            _ if self.is_identity() && !whole => Arithmetic::Nothing,
            _ if wide => Arithmetic::Accurate,
            _ => Arithmetic::Fast,
        };
        let (mut scalars, mut operands) = (Vec::new(), Vec::new());
        for parameter in self.parameters() {
            match parameter {
                Parameter::Scalar { parameter, name } => scalars.push((name, Argument::declare(&parameter))),
                Parameter::Operand { parameter, operand } => {
                    operands.push(Declared::new(&parameter, operand));
                }
            }
        }
        Staged {
            result: self.result().clone(),
            arithmetic,
            merged: self.columns_for_one(),
            whole,
            scalars,
            operands,
            c: self
                .reads_c()
                .then(|| GlobalMatrix::declare("c", &problem.c, problem.types.c, problem.batching)),
            c_vector: 1,
        }
    }
}

impl<R: Number> Declared<R> {
    #[track_caller]
    fn new(parameter: &str, operand: ExtraOperand) -> Declared<R> {
        let memory = match (operand.access, operand.shape) {
            (Access::Reduce(how), _) => Memory::Partials(Partials::declare(parameter, &operand, how)),
            (_, Shape::Matrix(placement)) => Memory::Matrix(GlobalMatrix::declare(
                parameter,
                &placement,
                operand.element,
                Batching::Strided,
            )),
            _ => Memory::Vector {
                origin: Argument::declare(parameter),
                batch_stride: (operand.batch_stride != 0)
                    .then(|| Argument::declare(&format!("{parameter}_batch"))),
            },
        };
        Declared { operand, memory, loaded: Memo::new(REMEMBERED) }
    }

    #[track_caller]
    fn read(&mut self, place: &Place, guard: Option<Val<bool>>, count: u32) -> Vec<Val<R>> {
        let width = self.operand.access_width(count, place.bounds.is_some());
        let starts = (0..count).step_by(width as usize);
        match self.memory {
            Memory::Partials(_) => vec![val(R::ZERO); count as usize],
            Memory::Matrix(matrix) => starts.flat_map(|i| matrix.load_run(place, i, width, guard)).collect(),
            Memory::Vector { origin, batch_stride } => {
                let bytes = u64::from(self.operand.element.bytes());
                let member = batch_stride.map(|stride| (place.batch, stride));
                let origin =
                    member.map_or(origin, |(b, stride)| origin.byte_add(b.cast::<u64>() * stride * bytes));
                let batch = member.map(|(batch, _)| batch);
                match self.operand.shape {
                    Shape::PerColumn => {
                        let mut values = Vec::new();
                        for i in starts {
                            let column = further(place.column, i);
                            let inside = place.bounds.map(|(_, columns)| below(column, columns));
                            values.extend(self.elements(origin, (batch, column), width, inside, guard));
                        }
                        values
                    }
                    Shape::PerRow => {
                        let inside = place.bounds.map(|(rows, _)| below(place.row, rows));
                        vec![self.elements(origin, (batch, place.row), 1, inside, guard)[0]; count as usize]
                    }
                    _ => vec![self.elements(origin, (batch, val(0)), 1, None, guard)[0]; count as usize],
                }
            }
        }
    }

    /// Neighbouring elements of a vector, in one access unless they are in registers already.
    #[track_caller]
    fn elements(
        &mut self,
        origin: Global<u8>,
        (batch, index): Entry,
        count: u32,
        inside: Option<Val<bool>>,
        guard: Option<Val<bool>>,
    ) -> Vec<Val<R>> {
        let same_batch = |known: Option<Val<u32>>| match (known, batch) {
            (Some(known), Some(batch)) => same(known, batch),
            _ => true,
        };
        let keys: Vec<Val<u32>> = (0..count).map(|i| further(index, i)).collect();
        // What was loaded without the guard is right with it, but not the other way round.
        let known = keys
            .iter()
            .map(|&key| self.loaded.find(|&(of, known)| same(known, key) && same_batch(of)))
            .collect::<Option<Vec<_>>>();
        if let Some(known) = known {
            return known;
        }
        let element = self.operand.element;
        let at = with_element!(element, T => origin.cast::<T>().at(index).cast::<u8>());
        let values = load_converted(element, at, count, both(inside, guard));
        if guard.is_none() {
            for (key, &value) in keys.into_iter().zip(&values) {
                self.loaded.insert((batch, key), value);
            }
        }
        values
    }
}

/// So many columns further.
#[track_caller]
fn further(column: Val<u32>, by: u32) -> Val<u32> {
    if by == 0 { column } else { column + by }
}

#[device]
fn below(index: Val<u32>, extent: Val<u32>) -> Val<bool> {
    index < extent
}

impl<R: Number> Staged<R> {
    /// Reads runs of C in one access where places have no bounds. `vector` is [`Epilogue::c_vector`], which is then part of the kernel's
    /// key; without this call C is read element by element.
    #[must_use]
    pub fn with_c_vector(mut self, vector: u32) -> Staged<R> {
        self.c_vector = vector;
        self
    }

    /// Another piece begins: nothing that was loaded for the last one is kept.
    #[track_caller]
    pub fn begin(&mut self) {
        if self.is_unfinished() {
            mistake(UNFINISHED);
        }
        for operand in &mut self.operands {
            operand.loaded.clear();
        }
    }

    /// A piece ends: writes what its values make together, if the epilogue [reduces](Epilogue::reduces). All lanes of the warp come here
    /// together, each having applied the epilogue to its part of the piece.
    #[track_caller]
    pub fn finish(&mut self, lanes: Lanes, piece: Piece) {
        for operand in &mut self.operands {
            if let Memory::Partials(partials) = &mut operand.memory {
                partials.finish(lanes, piece);
            }
        }
    }

    /// The results for neighbours in a row, given their sums, and the elements of C if the kernel has them already.
    ///
    /// `place` is that of the first sum in the product; its column is a multiple of the number of sums, if that is a power of two.
    /// There are as many results as sums (and elements of C), or one for [`columns_for_one`](Epilogue::columns_for_one) of them: then
    /// the first of them belongs to column `place.column / columns_for_one` of D. For a D of integers they are whole numbers,
    /// so that every conversion is right.
    #[must_use]
    #[track_caller]
    pub fn apply(&mut self, place: Place, sums: Vector<R>, c: Option<Vector<R>>) -> Vector<R> {
        if !sums.len().is_multiple_of(self.merged) {
            mistake(format!("a run of {} sums; expected a multiple of {}", sums.len(), self.merged));
            return sums;
        }
        match self.arithmetic {
            Arithmetic::Nothing => sums,
            Arithmetic::Fast => self.compute::<Fast>(place, sums, c),
            Arithmetic::Accurate => self.compute::<Val<f32>>(place, sums, c),
            Arithmetic::Double => self.compute::<Val<f64>>(place, sums, c),
        }
    }

    #[track_caller]
    fn compute<N: OnDevice>(&mut self, place: Place, sums: Vector<R>, c: Option<Vector<R>>) -> Vector<R> {
        let merged = self.merged;
        let on_d = if merged == 1 {
            place
        } else {
            let bounds = place.bounds.map(|(rows, columns)| (rows, columns / merged));
            Place { column: place.column / merged, bounds, ..place }
        };
        let numbers = sums.elements().into_iter().map(N::read).collect();
        // Taken out for the walk, which also needs the rest of `self`.
        let result = std::mem::replace(&mut self.result, Expr::Sum);
        let whole = self.whole;
        let machine =
            OnPlace { staged: self, product: place, on_d, c, guards: Vec::new(), kind: PhantomData };
        let results = Walk::new(machine, numbers, merged as usize).run(&result);
        self.result = result;
        let finish = |x: N| if whole { x.round_even() } else { x };
        Vector::new(results.into_iter().map(|x| finish(x).write::<R>()))
    }
}

const UNFINISHED: &str = "values that are reduced were not finished: this kernel must call `finish`, or get its problem from `with_reductions`";

impl<R> Staged<R> {
    fn is_unfinished(&self) -> bool {
        self.operands
            .iter()
            .any(|operand| matches!(&operand.memory, Memory::Partials(values) if !values.is_empty()))
    }
}

/// Nothing of it changes when the kernel runs, so it can be used inside of `if`s and loops. What is being reduced does change, and
/// [`Staged::finish`] reports it if it has been left behind in one.
impl<R> Carry for Staged<R> {
    fn values(&self, _out: &mut Vec<Value>) {}
    fn replace(&mut self, _from: &mut dyn Iterator<Item = Value>) {}
}

/// A kernel that leaves out reductions must not go unnoticed.
impl<R> Drop for Staged<R> {
    fn drop(&mut self) {
        if self.is_unfinished() && !std::thread::panicking() {
            mistake(UNFINISHED);
        }
    }
}

/// Numbers that are staged.
trait OnDevice: Callable<Truth = Val<bool>> {
    #[track_caller]
    fn read<R: Number>(value: Val<R>) -> Self;
    #[track_caller]
    fn write<R: Number>(self) -> Val<R>;
    #[track_caller]
    fn is_nonzero(self) -> Val<bool>;
}

#[device]
fn differs<T: Number>(x: Val<T>, y: Val<T>) -> Val<bool> {
    x != y
}

impl OnDevice for Fast {
    fn read<R: Number>(value: Val<R>) -> Fast {
        Fast(value.cast())
    }
    fn write<R: Number>(self) -> Val<R> {
        self.0.cast()
    }
    fn is_nonzero(self) -> Val<bool> {
        differs(self.0, val(0.0))
    }
}

macro_rules! on_device {
    ($($ty:ty),*) => {$(
        impl OnDevice for Val<$ty> {
            fn read<R: Number>(value: Val<R>) -> Val<$ty> {
                value.cast()
            }
            fn write<R: Number>(self) -> Val<R> {
                self.cast()
            }
            fn is_nonzero(self) -> Val<bool> {
                differs(self, val(0.0))
            }
        }
    )*};
}
on_device!(f32, f64);

/// A run in a kernel.
struct OnPlace<'s, R, N> {
    staged: &'s mut Staged<R>,
    product: Place,
    on_d: Place,
    c: Option<Vector<R>>,
    /// Whether the factors around here are not zero, each with those before it.
    guards: Vec<Val<bool>>,
    kind: PhantomData<N>,
}

impl<R: Number, N> OnPlace<'_, R, N> {
    fn place(&self, grid: Grid) -> Place {
        match grid {
            Grid::Product => self.product,
            Grid::Result => self.on_d,
        }
    }

    fn operand(&mut self, operand: &ExtraOperand) -> Option<&mut Declared<R>> {
        self.staged.operands.iter_mut().find(|declared| declared.operand.name == operand.name)
    }
}

impl<R: Number, N: OnDevice> Machine for OnPlace<'_, R, N> {
    type Number = N;

    #[track_caller]
    fn scalar(&mut self, name: &str) -> N {
        let known = self.staged.scalars.iter().find(|(known, _)| known == name);
        N::read(known.map_or(val(R::ZERO), |&(_, value)| value))
    }

    #[track_caller]
    fn c(&mut self, count: usize) -> Vec<N> {
        let (place, guard) = (self.on_d, self.guards.last().copied());
        match (self.c, self.staged.c) {
            (Some(c), _) => c.elements().into_iter().map(N::read).collect(),
            (None, Some(c)) => {
                let most = if place.bounds.is_none() { self.staged.c_vector } else { 1 };
                let width = most.min(1 << count.trailing_zeros());
                let starts = (0..to_u32(count)).step_by(width as usize);
                starts.flat_map(|i| c.load_run::<R>(&place, i, width, guard)).map(N::read).collect()
            }
            (None, None) => vec![N::of(0.0); count],
        }
    }

    #[track_caller]
    fn read(&mut self, operand: &ExtraOperand, grid: Grid, count: usize) -> Vec<N> {
        let (place, guard) = (self.place(grid), self.guards.last().copied());
        let Some(declared) = self.operand(operand) else { return vec![N::of(0.0); count] };
        declared.read(&place, guard, to_u32(count)).into_iter().map(N::read).collect()
    }

    #[track_caller]
    fn store(&mut self, operand: &ExtraOperand, grid: Grid, values: &[N]) {
        let place = self.place(grid);
        let Some(declared) = self.operand(operand) else { return };
        let values: Vec<Val<R>> = values.iter().map(|value| value.write()).collect();
        let matrix = match &mut declared.memory {
            Memory::Partials(partials) => return partials.add(&place, &values),
            Memory::Matrix(matrix) => *matrix,
            Memory::Vector { .. } => return,
        };
        let width = declared.operand.access_width(to_u32(values.len()), place.bounds.is_some());
        for (i, values) in (0u32..).step_by(width as usize).zip(values.chunks(width as usize)) {
            match values {
                [value] => matrix.store(&place, i, *value),
                several => matrix.store_run(&place, i, several),
            }
        }
    }

    #[track_caller]
    fn enter(&mut self, factor: N) {
        let guard = both(self.guards.last().copied(), Some(factor.is_nonzero()));
        self.guards.extend(guard);
    }

    #[track_caller]
    fn leave(&mut self, factor: N, values: Vec<N>) -> Vec<N> {
        self.guards.pop();
        let holds = factor.is_nonzero();
        values.into_iter().map(|x| N::choose(holds, factor * x, N::of(0.0))).collect()
    }
}

fn to_u32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
