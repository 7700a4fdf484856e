//! Products by this computer's own instructions: the crate `gemm` multiplies, all cores take part.
//!
//! Factors become f32 (f64 stays what it is), which the 16-bit and 8-bit types do without loss; tf32 is rounded to ten bits of
//! mantissa first, as Hopper's copy engine does. Products of 8-bit integers are exact: f32 holds their sums over a few hundred steps
//! of k, and those are added as integers, which wrap around as on a GPU.
//!
//! Sums of floats are added in another order than on a GPU, so that results differ in the last bits.

use std::borrow::Cow;
use std::collections::HashMap;

use gemm::Parallelism;
use rayon::prelude::*;
use tilewright_hardware::Element;
use tilewright_kernels::gemm::epilogue::{
    Access, ExtraOperand, HostNumber, HostOperands, Reference, Shape, decode as get, encode as put,
};
use tilewright_kernels::gemm::{Batching, Problem, Storage, Types};
use tilewright_lang::{E4m3, E5m2, bf16, f16, nearest_bf16, nearest_f16};
use tilewright_sim::{SimError, Simulator};

use super::Error;
use super::arguments::{Arguments, Matrix, matrices};
use crate::device::{Device, DeviceError, DynBuffer};

/// Elements that one task converts.
const CHUNK: usize = 1 << 14;
/// Sums that go through an epilogue at a time.
const BLOCK: usize = 1 << 18;

/// Computes a product whose arguments were checked.
pub(super) fn run(device: &Device, problem: &Problem, arguments: &Arguments) -> Result<(), Error> {
    let work = |memory: &mut Simulator| run_in(memory, problem, arguments);
    device.with_memory(work).ok_or(DeviceError::OtherDevice)?
}

fn run_in(memory: &mut Simulator, problem: &Problem, arguments: &Arguments) -> Result<(), Error> {
    // Once for all members: what is read is written, if at all, only by D, at each place after that was read.
    let inputs = inputs(memory, problem, arguments)?;
    let operands = inputs.iter().fold(HostOperands::new(), |all, (name, bytes)| all.with(name, bytes));
    let scalars = problem.epilogue.scalars();
    let operands = scalars
        .iter()
        .fold(operands, |all, name| all.with_scalar(name, arguments.number(name).unwrap_or(0.0)));
    let reference = Reference::new(problem, &operands)?;
    begin_reductions(memory, problem, arguments)?;
    let mut totals = Totals::new(problem, arguments);
    for member in 0..problem.batch {
        let totals = &mut totals;
        let member = Member { memory, problem, arguments, reference: &reference, member, totals };
        match problem.types.accumulate {
            Element::F64 => member.floats::<f64>()?,
            Element::I32 => member.integers()?,
            _ => member.floats::<f32>()?,
        }
    }
    Ok(totals.write(memory).map_err(DeviceError::from)?)
}

/// The operands that the epilogue reads, by name.
fn inputs(
    memory: &Simulator,
    problem: &Problem,
    arguments: &Arguments,
) -> Result<Vec<(String, Vec<u8>)>, DeviceError> {
    let mut inputs = Vec::new();
    for operand in problem.epilogue.operands() {
        if let (Access::Read, Some(buffer)) = (operand.access, arguments.named(&operand.name)) {
            let place = memory.at(buffer.address(), index(buffer.bytes()))?;
            inputs.push((operand.name, memory.read(place)?));
        }
    }
    Ok(inputs)
}

/// Results of reductions before anything was added: those of each member, and the one of a whole batch, even of none.
fn begin_reductions(
    memory: &mut Simulator,
    problem: &Problem,
    arguments: &Arguments,
) -> Result<(), DeviceError> {
    for operand in problem.epilogue.operands() {
        let (Access::Reduce(how), Some(buffer)) = (operand.access, arguments.named(&operand.name)) else {
            continue;
        };
        let (rows, columns) = operand.extents(problem);
        let (members, rows, columns) = match operand.shape {
            Shape::PerRow => (problem.batch, rows, 1),
            Shape::PerColumn => (problem.batch, 1, columns),
            _ => (1, 1, 1),
        };
        for member in 0..members {
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                change(memory, &operand, buffer, operand.index(member, row, column), |_| how.start())?;
            }
        }
    }
    Ok(())
}

/// Changes one element of an operand, and nothing beside it: what lies between its elements may belong to another.
fn change(
    memory: &mut Simulator,
    operand: &ExtraOperand,
    buffer: &DynBuffer,
    at: u64,
    to: impl FnOnce(f64) -> f64,
) -> Result<(), SimError> {
    let width = operand.element.bytes();
    let place = memory.at(buffer.address() + at * u64::from(width), width as usize)?;
    let value = to(get(operand.element, memory.bytes(place)?, 0));
    // No element is wider.
    let mut bytes = [0; 8];
    put(operand.element, &mut bytes, 0, value);
    memory.write(place, &bytes[..place.bytes()])
}

/// What is written beside D. Reductions are made in f64, since sums of many numbers would stop growing in fewer digits, and written when all
/// is added; before that only if there are so many that they would take too much room.
struct Totals<'a> {
    outputs: Vec<(ExtraOperand, &'a DynBuffer)>,
    /// By output and element.
    open: HashMap<(usize, u64), f64>,
}

impl<'a> Totals<'a> {
    fn new(problem: &Problem, arguments: &'a Arguments) -> Totals<'a> {
        let operands = problem.epilogue.operands().into_iter();
        let outputs = operands
            .filter(|operand| operand.access != Access::Read)
            .filter_map(|operand| arguments.named(&operand.name).map(|buffer| (operand, buffer)))
            .collect();
        Totals { outputs, open: HashMap::new() }
    }

    /// One more value for an element of an output.
    fn take(&mut self, memory: &mut Simulator, name: &str, at: u64, value: f64) -> Result<(), SimError> {
        let Some(index) = self.outputs.iter().position(|(operand, _)| operand.name == name) else {
            return Ok(());
        };
        let (operand, buffer) = &self.outputs[index];
        let Access::Reduce(how) = operand.access else {
            return change(memory, operand, buffer, at, |_| value);
        };
        let total = self.open.entry((index, at)).or_insert(how.start());
        *total = how.combine(*total, value);
        if self.open.len() > BLOCK { self.write(memory) } else { Ok(()) }
    }

    /// Adds what is there to what memory holds.
    fn write(&mut self, memory: &mut Simulator) -> Result<(), SimError> {
        for ((index, at), total) in self.open.drain() {
            let (operand, buffer) = &self.outputs[index];
            if let Access::Reduce(how) = operand.access {
                change(memory, operand, buffer, at, |before| how.combine(before, total))?;
            }
        }
        Ok(())
    }
}

/// A type that the CPU adds in.
trait Real: HostNumber + Copy + Send + Sync + Into<f64> + 'static {
    const ZERO: Self;
    const ONE: Self;
    /// The type of memory that needs no conversion.
    const OWN: Element;
    fn of(value: f64) -> Self;
    /// The numbers of a matrix.
    fn numbers(bytes: &[u8], element: Element) -> Cow<'_, [Self]>;
    /// The bytes of results: to nearest, and to the largest number instead of beyond it where the type has no infinity.
    fn encode(values: &[Self], element: Element) -> Cow<'_, [u8]>;
}

/// Numbers where they are, if they lie so that they can be read there.
fn borrowed<T: bytemuck::AnyBitPattern + bytemuck::NoUninit>(bytes: &[u8]) -> Cow<'_, [T]> {
    bytemuck::try_cast_slice(bytes).map_or_else(|_| bytemuck::pod_collect_to_vec(bytes).into(), Cow::Borrowed)
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const OWN: Element = Element::F32;

    #[allow(clippy::cast_possible_truncation, reason = "rounded to the nearest")]
    fn of(value: f64) -> f32 {
        value as f32
    }

    fn numbers(bytes: &[u8], element: Element) -> Cow<'_, [f32]> {
        match element {
            Element::F32 => return borrowed(bytes),
            Element::TF32 => converted(bytes, |x: f32| {
                // To the nearest; of two, to the even one. Infinity stays, and the payload of a NaN does not matter.
                let bits = x.to_bits();
                if x.is_finite() { f32::from_bits((bits + 0xfff + (bits >> 13 & 1)) & !0x1fff) } else { x }
            }),
            Element::BF16 => converted(bytes, bf16::to_f32),
            Element::F16 => converted(bytes, f16::to_f32),
            Element::I8 => converted(bytes, |x: i8| f32::from(x)),
            Element::U8 => converted(bytes, |x: u8| f32::from(x)),
            Element::F64 => converted(bytes, f32::of),
            #[allow(clippy::cast_precision_loss, reason = "rounded to the nearest")]
            Element::I32 => converted(bytes, |x: i32| x as f32),
            Element::E4M3 => small(bytes, |bits| E4m3(bits).to_f32()),
            Element::E5M2 => small(bytes, |bits| E5m2(bits).to_f32()),
            _ => Vec::new(),
        }
        .into()
    }

    fn encode(values: &[f32], element: Element) -> Cow<'_, [u8]> {
        match element {
            Element::BF16 => bytes(values, bf16::from_f32).into(),
            Element::F16 => bytes(values, f16::from_f32).into(),
            Element::F32 | Element::TF32 => Cow::Borrowed(bytemuck::cast_slice(values)),
            other => bytes_of(values, other).into(),
        }
    }
}

/// Numbers of which there are 256, by a table.
fn small(bytes: &[u8], value: impl Fn(u8) -> f32) -> Vec<f32> {
    let table: Vec<f32> = (0..=u8::MAX).map(value).collect();
    converted(bytes, |bits: u8| table[usize::from(bits)])
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const OWN: Element = Element::F64;

    fn of(value: f64) -> f64 {
        value
    }

    fn numbers(bytes: &[u8], element: Element) -> Cow<'_, [f64]> {
        match element {
            Element::F64 => borrowed(bytes),
            Element::I32 => converted(bytes, |x: i32| f64::from(x)).into(),
            other => f32::numbers(bytes, other).iter().map(|&x| f64::from(x)).collect(),
        }
    }

    fn encode(values: &[f64], element: Element) -> Cow<'_, [u8]> {
        match element {
            Element::F64 => Cow::Borrowed(bytemuck::cast_slice(values)),
            other => bytes_of(values, other).into(),
        }
    }
}

/// Converts elements, all cores together.
fn converted<T: bytemuck::AnyBitPattern + Send + Sync, R: Real>(
    bytes: &[u8],
    convert: impl Fn(T) -> R + Send + Sync,
) -> Vec<R> {
    let width = size_of::<T>();
    let mut out = vec![R::ZERO; bytes.len() / width];
    out.par_chunks_mut(CHUNK).zip(bytes.par_chunks(CHUNK * width)).for_each(|(out, bytes)| {
        for (out, item) in out.iter_mut().zip(bytes.chunks_exact(width)) {
            *out = convert(bytemuck::pod_read_unaligned(item));
        }
    });
    out
}

/// A matrix of one member of a batch: numbers, and how far it is to the next row and to the next column.
struct Numbers<'m, R: Clone> {
    all: Cow<'m, [R]>,
    row: usize,
    column: usize,
}

impl<'m, R: Real> Numbers<'m, R> {
    /// Lines of a matrix, so many elements apart.
    fn new(all: Cow<'m, [R]>, storage: Storage, apart: usize) -> Numbers<'m, R> {
        let (row, column) = match storage {
            Storage::RowMajor => (apart, 1),
            Storage::ColumnMajor => (1, apart),
        };
        Numbers { all, row, column }
    }

    fn at(&self, row: usize, column: usize) -> R {
        self.all.get(row * self.row + column * self.column).copied().unwrap_or(R::ZERO)
    }
}

/// One product of a batch.
struct Member<'a, 't> {
    memory: &'a mut Simulator,
    problem: &'a Problem,
    arguments: &'a Arguments,
    reference: &'a Reference<'a>,
    member: u32,
    totals: &'a mut Totals<'t>,
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

impl Member<'_, '_> {
    /// Where a matrix of this member begins.
    fn address(&self, matrix: &Matrix<'_>, buffer: &DynBuffer) -> Result<u64, SimError> {
        match self.problem.batching {
            Batching::Strided => {
                // Members were found to lie in the buffer; the first does, whatever the stride is.
                let stride = matrix.placement.batch_stride.wrapping_mul(matrix.element.bytes().into());
                Ok(buffer.address().wrapping_add(u64::from(self.member).wrapping_mul(stride)))
            }
            Batching::Pointers => {
                let entry = self.memory.at(buffer.address() + 8 * u64::from(self.member), 8)?;
                Ok(bytemuck::pod_read_unaligned(self.memory.bytes(entry)?))
            }
        }
    }

    fn read<R: Real>(&self, matrix: &Matrix<'_>, buffer: &DynBuffer) -> Result<Numbers<'_, R>, SimError> {
        if u64::from(matrix.line()) != matrix.placement.leading && matrix.element != R::OWN {
            return self.read_lines(matrix, buffer);
        }
        let all = R::numbers(self.bytes(matrix, buffer)?, matrix.element);
        Ok(Numbers::new(all, matrix.placement.storage, index(matrix.placement.leading)))
    }

    /// Nothing but the lines of a matrix: what lies between them may be much more, and is somebody else's.
    fn read_lines<R: Real>(
        &self,
        matrix: &Matrix<'_>,
        buffer: &DynBuffer,
    ) -> Result<Numbers<'static, R>, SimError> {
        let bytes = self.bytes(matrix, buffer)?;
        let width = matrix.element.bytes() as usize;
        let (line, pitch) = (index(matrix.line().into()), index(matrix.placement.leading));
        let mut lines = Vec::new();
        bytes.chunks(pitch * width).for_each(|from| lines.extend_from_slice(&from[..line * width]));
        let all = R::numbers(&lines, matrix.element).into_owned();
        Ok(Numbers::new(all.into(), matrix.placement.storage, line))
    }

    /// The memory of a matrix of this member, from its first element to its last.
    fn bytes(&self, matrix: &Matrix<'_>, buffer: &DynBuffer) -> Result<&[u8], SimError> {
        let elements = matrix.footprint(1).unwrap_or(u64::MAX);
        if elements == 0 {
            return Ok(&[]);
        }
        let bytes = index(elements.saturating_mul(u64::from(matrix.element.bytes())));
        self.memory.bytes(self.memory.at(self.address(matrix, buffer)?, bytes)?)
    }

    fn factors<R: Real>(&self) -> Result<(Numbers<'_, R>, Numbers<'_, R>), SimError> {
        let [a, b, ..] = matrices(self.problem);
        Ok((self.read(&a, &self.arguments.a)?, self.read(&b, &self.arguments.b)?))
    }

    fn floats<R: Real>(self) -> Result<(), Error> {
        let (a, b) = self.factors::<R>().map_err(DeviceError::from)?;
        let (rows, columns, depth) = self.extents();
        let mut sums = self.room::<R>()?;
        multiply(&mut sums, (rows, columns, 0..depth), &a, &b);
        self.finish(&sums)
    }

    /// Sums of products of 8-bit integers, exactly.
    fn integers(self) -> Result<(), Error> {
        let (a, b) = self.factors::<f32>().map_err(DeviceError::from)?;
        let (rows, columns, depth) = self.extents();
        let largest = |element| if element == Element::U8 { 255 } else { 128 };
        let steps = (1 << 24) / (largest(self.problem.types.a) * largest(self.problem.types.b));
        let mut part = self.room::<f32>()?;
        let mut sums = vec![0i32; part.all.len()];
        for start in (0..depth).step_by(steps) {
            multiply(&mut part, (rows, columns, start..depth.min(start + steps)), &a, &b);
            sums.par_chunks_mut(CHUNK).zip(part.all.par_chunks(CHUNK)).for_each(|(sums, parts)| {
                for (sum, &part) in sums.iter_mut().zip(parts) {
                    #[allow(clippy::cast_possible_truncation, reason = "a whole number below 2^24")]
                    let part = part as i32;
                    *sum = sum.wrapping_add(part);
                }
            });
        }
        let (row, column) = (part.row, part.column);
        if self.problem.epilogue.is_identity() && self.problem.types.d == Element::I32 {
            return Ok(self.store(&bytemuck::pod_collect_to_vec(&sums)).map_err(DeviceError::from)?);
        }
        // Epilogues compute in f32, as on a GPU.
        #[allow(clippy::cast_precision_loss, reason = "rounded to the nearest")]
        let all: Vec<f32> = sums.iter().map(|&sum| sum as f32).collect();
        self.finish(&Numbers { all: all.into(), row, column })
    }

    fn extents(&self) -> (usize, usize, usize) {
        (self.problem.m as usize, self.problem.n as usize, self.problem.k as usize)
    }

    /// Room for the sums, without gaps: in the order of D if they are all, else by rows, which is how epilogues go. None for a D that is not
    /// there, as behind an address in a list, which nobody has looked at yet.
    fn room<R: Real>(&self) -> Result<Numbers<'static, R>, Error> {
        let [_, _, d, _] = matrices(self.problem);
        self.bytes(&d, &self.arguments.d).map_err(DeviceError::from)?;
        let (rows, columns, _) = self.extents();
        let by_columns =
            self.problem.epilogue.is_identity() && self.problem.d.storage == Storage::ColumnMajor;
        let (row, column) = if by_columns { (1, rows) } else { (columns, 1) };
        Ok(Numbers { all: vec![R::ZERO; rows * columns].into(), row, column })
    }

    /// From sums to D.
    fn finish<R: Real>(mut self, sums: &Numbers<'_, R>) -> Result<(), Error> {
        let d = self.problem.types.d;
        if self.problem.epilogue.is_identity() {
            return Ok(self.store(&R::encode(&sums.all, d)).map_err(DeviceError::from)?);
        }
        let results = self.apply(sums)?;
        Ok(self.store(&R::encode(&results, d)).map_err(DeviceError::from)?)
    }

    /// The epilogue: what goes to D, in its order. What goes elsewhere is there when this returns.
    fn apply<R: Real>(&mut self, sums: &Numbers<'_, R>) -> Result<Vec<R>, Error> {
        let (problem, arguments, reference, member) =
            (self.problem, self.arguments, self.reference, self.member);
        let [_, _, d, c] = matrices(problem);
        // Only factors are rounded to tf32.
        let c = Matrix { element: Types::in_memory(c.element), ..c };
        let given = arguments.c.as_ref().filter(|_| problem.epilogue.reads_c());
        // A copy, since memory is written while it is read.
        let c =
            given.map(|buffer| self.read_lines::<R>(&c, buffer)).transpose().map_err(DeviceError::from)?;
        let (rows, columns, wide) = (d.rows as usize, d.columns as usize, problem.n as usize);
        let row = |row: u32| {
            let i = row as usize;
            let c: Vec<R> = c.iter().flat_map(|c| (0..columns).map(|column| c.at(i, column))).collect();
            let mut written: Vec<(String, u64, R)> = Vec::new();
            let mut write = |operand: &ExtraOperand, at: u64, value: R| {
                written.push((operand.name.clone(), at, value));
            };
            (reference.row((member, row, 0), &sums.all[i * wide..][..wide], &c, &mut write), written)
        };
        let mut results = vec![R::ZERO; rows * columns];
        // Some rows at a time, so that what is written elsewhere is not all held at once.
        let some = u32::try_from(BLOCK / wide.max(1)).unwrap_or(u32::MAX).max(1);
        for first in (0..d.rows).step_by(some as usize) {
            let last = d.rows.min(first.saturating_add(some));
            let done: Vec<_> = (first..last).into_par_iter().map(row).collect();
            for (row, (values, written)) in (first as usize..).zip(done) {
                match problem.d.storage {
                    Storage::RowMajor => results[row * columns..][..columns].copy_from_slice(&values),
                    Storage::ColumnMajor => {
                        results
                            .iter_mut()
                            .skip(row)
                            .step_by(rows)
                            .zip(values)
                            .for_each(|(to, value)| *to = value);
                    }
                }
                for (name, at, value) in written {
                    self.totals.take(self.memory, &name, at, value.into()).map_err(DeviceError::from)?;
                }
            }
        }
        Ok(results)
    }

    /// Puts the elements of D, which lie in its order, where they belong.
    fn store(self, bytes: &[u8]) -> Result<(), SimError> {
        let [_, _, d, _] = matrices(self.problem);
        if bytes.is_empty() {
            return Ok(());
        }
        let address = self.address(&d, &self.arguments.d)?;
        let width = u64::from(d.element.bytes());
        let (line, pitch) = (u64::from(d.line()) * width, d.placement.leading * width);
        let piece = if line == pitch { bytes.len() } else { index(line) };
        for (i, line) in (0..).zip(bytes.chunks(piece)) {
            let place = self.memory.at(address + i * pitch, line.len())?;
            self.memory.write(place, line)?;
        }
        Ok(())
    }
}

/// `sums = A * B` over some steps of k.
#[allow(unsafe_code)]
fn multiply<R: Real>(
    sums: &mut Numbers<'_, R>,
    (rows, columns, steps): (usize, usize, std::ops::Range<usize>),
    a: &Numbers<'_, R>,
    b: &Numbers<'_, R>,
) {
    let depth = steps.len();
    if rows == 0 || columns == 0 || depth == 0 {
        sums.all.to_mut().fill(R::ZERO);
        return;
    }
    let last =
        |numbers: &Numbers<'_, R>, row: usize, column: usize| row * numbers.row + column * numbers.column;
    assert!(last(sums, rows - 1, columns - 1) < sums.all.len());
    assert!(
        last(a, rows - 1, steps.end - 1) < a.all.len() && last(b, steps.end - 1, columns - 1) < b.all.len()
    );
    let step = usize::cast_signed;
    let (from_a, from_b) = (&a.all[steps.start * a.column..], &b.all[steps.start * b.row..]);
    // SAFETY: the last element of each matrix, and so every one, lies in its slice, as was just looked at; no element of the sums is
    // another's, since one of their strides is 1 and the other the length of a line; and nobody else has the sums.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            sums.all.to_mut().as_mut_ptr(),
            step(sums.column),
            step(sums.row),
            false,
            from_a.as_ptr(),
            step(a.column),
            step(a.row),
            from_b.as_ptr(),
            step(b.column),
            step(b.row),
            R::ZERO,
            R::ONE,
            false,
            false,
            false,
            Parallelism::Rayon(0),
        );
    }
}

/// Results in any type.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rounded, and saturated")]
fn bytes_of<R: Real>(values: &[R], element: Element) -> Vec<u8> {
    match element {
        Element::F64 => bytes(values, R::into),
        Element::BF16 => bytes(values, |x| nearest_bf16(x.into())),
        Element::F16 => bytes(values, |x| nearest_f16(x.into())),
        Element::I32 => bytes(values, |x| x.into().round_ties_even() as i32),
        Element::I8 => bytes(values, |x| x.into().round_ties_even() as i8),
        Element::U8 => bytes(values, |x| x.into().round_ties_even() as u8),
        Element::E4M3 => bytes(values, |x| E4m3::from_f64(x.into()).0),
        Element::E5M2 => bytes(values, |x| E5m2::from_f64(x.into()).0),
        _ => bytes(values, |x| x.into() as f32),
    }
}

/// Converts results, all cores together.
fn bytes<R: Real, T: bytemuck::NoUninit + Send>(
    values: &[R],
    convert: impl Fn(R) -> T + Send + Sync,
) -> Vec<u8> {
    let mut out = vec![0u8; values.len() * size_of::<T>()];
    out.par_chunks_mut(CHUNK * size_of::<T>()).zip(values.par_chunks(CHUNK)).for_each(|(out, values)| {
        for (out, &value) in out.chunks_exact_mut(size_of::<T>()).zip(values) {
            out.copy_from_slice(bytemuck::bytes_of(&convert(value)));
        }
    });
    out
}
