//! Our side: who computes an op, and how it is made ready.
//!
//! [`all`] is the seam between this benchmark and the library: the first that takes a case computes it. An op that nobody takes on a
//! device has no time of ours, and its peers are measured all the same.

use tilewright::device::{Buffer, Device, DeviceKind};

use super::super::super::Failure;
use super::super::data::{decode, encode};
use super::super::timing::{Contestant, broken};
use super::case::{Case, DROPPED, Op, Role};
use super::library::Library;
use super::matmul::Matmul;
use super::memory::Memory;
use super::reference::{self, At};

/// Something that computes ops.
pub(super) trait Subject {
    /// Who it is, for the table: by what it computes a case on a device.
    fn name(&self, device: &Device, case: &Case) -> String;

    /// Makes all ready that launches on the copies need; nothing, if it does not compute this on such a device.
    fn prepare<'a>(
        &'a self,
        device: &Device,
        case: &'a Case,
        memory: &'a Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure>;
}

/// Everybody of ours, in the order in which they are asked; the product with this tile, if there is one.
pub(super) fn all(tile: Option<[u32; 3]>) -> Vec<Box<dyn Subject>> {
    vec![
        Box::new(Runtime),
        Box::new(Library),
        Box::new(Matmul { tile }),
        Box::new(Processor::new("processor, in f64", reference_rows)),
    ]
}

/// Copies inside of a device, by the runtime.
struct Runtime;

impl Subject for Runtime {
    fn name(&self, _: &Device, _: &Case) -> String {
        "runtime".to_owned()
    }

    fn prepare<'a>(
        &'a self,
        _: &Device,
        case: &'a Case,
        memory: &'a Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure> {
        struct Copies<'a>(&'a Memory);
        impl Contestant for Copies<'_> {
            fn launch(&self, copy: usize) -> Result<(), Failure> {
                match (self.0.inputs(copy), self.0.outputs(copy)) {
                    ([from], [to]) => to.copy_from(from).map_err(broken),
                    _ => Ok(()),
                }
            }
        }
        Ok((case.op == Op::Copy).then(|| Box::new(Copies(memory)) as Box<dyn Contestant>))
    }
}

/// Computes all outputs of a case from its inputs.
type Compute = dyn Fn(&Case, At<'_>) -> Vec<Vec<f64>>;

/// A function on this computer, between reading the inputs and rounding the outputs.
pub(super) struct Processor {
    name: &'static str,
    compute: Box<Compute>,
}

impl Processor {
    pub(super) fn new(
        name: &'static str,
        compute: impl Fn(&Case, At<'_>) -> Vec<Vec<f64>> + 'static,
    ) -> Processor {
        Processor { name, compute: Box::new(compute) }
    }
}

impl Subject for Processor {
    fn name(&self, _: &Device, _: &Case) -> String {
        self.name.to_owned()
    }

    fn prepare<'a>(
        &'a self,
        device: &Device,
        case: &'a Case,
        memory: &'a Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure> {
        if device.kind() != DeviceKind::Cpu {
            return Ok(None);
        }
        Ok(Some(Box::new(OnProcessor { compute: &self.compute, case, memory })))
    }
}

struct OnProcessor<'a> {
    compute: &'a Compute,
    case: &'a Case,
    memory: &'a Memory,
}

impl Contestant for OnProcessor<'_> {
    fn launch(&self, copy: usize) -> Result<(), Failure> {
        let tensors = self.case.tensors();
        let inputs = self.memory.inputs(copy).iter().zip(&tensors).map(|(buffer, tensor)| {
            let bytes = buffer.to_vec().map_err(broken)?;
            let numbers = bytes.chunks(tensor.element.bytes() as usize);
            Ok(numbers.map(|bytes| decode(tensor.element, bytes)).collect::<Vec<f64>>())
        });
        let inputs = inputs.collect::<Result<Vec<_>, Failure>>()?;
        let at = |input: usize, place: u64| {
            let place = usize::try_from(place).unwrap_or(usize::MAX);
            inputs.get(input).and_then(|numbers| numbers.get(place)).copied().unwrap_or(f64::NAN)
        };
        let outputs = tensors.iter().filter(|tensor| tensor.role == Role::Output);
        for ((buffer, tensor), numbers) in
            self.memory.outputs(copy).iter().zip(outputs).zip((self.compute)(self.case, &at))
        {
            let bytes: Vec<u8> = numbers.iter().flat_map(|&number| encode(tensor.element, number)).collect();
            write(buffer, &bytes)?;
        }
        Ok(())
    }
}

fn write(buffer: &Buffer<u8>, bytes: &[u8]) -> Result<(), Failure> {
    buffer.slice(..bytes.len().min(buffer.len())).and_then(|part| part.write(bytes)).map_err(broken)
}

/// What the reference says, row by row. It computes what it is compared with, so that a check of it is one of memory and types only.
pub(super) fn reference_rows(case: &Case, at: At<'_>) -> Vec<Vec<f64>> {
    let columns = u64::from(case.columns);
    let rows = (0..case.rows).map(|row| (row, reference::row(case, at, row)));
    let mut outputs = vec![Vec::new(); if case.op == Op::TopK { 2 } else { 1 }];
    for (row, expected) in rows {
        let values = expected.iter().map(|expected| expected.value);
        // The places of these, each taken once.
        let mut taken: Vec<u64> = Vec::new();
        let mut place = |value: f64| {
            let is_it = |column: &u64| {
                at(0, u64::from(row) * columns + column).total_cmp(&value).is_eq() && !taken.contains(column)
            };
            let found = (0..columns).find(is_it).unwrap_or(0);
            taken.push(found);
            found
        };
        #[allow(clippy::cast_precision_loss, reason = "columns are 32 bits")]
        match case.op {
            Op::ArgMax => outputs[0].extend(values.map(|value| place(value) as f64)),
            Op::TopK => {
                outputs[1].extend(values.clone().map(|value| place(value) as f64));
                outputs[0].extend(values);
            }
            Op::Dropout => {
                // A number of its own for each element, spread over all by a multiplication.
                let kept = |(column, value): (u64, f64)| {
                    let mixed = (u64::from(row) * columns + column + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let dropped = (mixed >> 11) as f64 / (1u64 << 53) as f64 <= DROPPED;
                    if dropped { 0.0 } else { value }
                };
                outputs[0].extend((0..).zip(values).map(kept));
            }
            _ => outputs[0].extend(values),
        }
    }
    outputs
}
