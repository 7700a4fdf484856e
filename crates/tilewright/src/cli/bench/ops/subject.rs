//! Our side: who computes an op, and how it is made ready.
//!
//! [`all`] is the seam between this benchmark and the library: the first that takes a case computes it. An op that nobody takes on a
//! device has no time of ours, and its peers are measured all the same.

use tilewright::device::{Buffer, Device, DeviceKind};

use super::super::super::Failure;
use super::super::data::{decode, encode};
use super::super::timing::{Contestant, broken};
use super::case::{Case, Reading, Role, Tensor};
use super::library::Library;
use super::matmul::Matmul;
use super::memory::Memory;
use super::reference::{At, DROPPED, of_row};
use super::table::moves;

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
        Ok((case.op == &moves::COPY).then(|| Box::new(Copies(memory)) as Box<dyn Contestant>))
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
        let outputs = tensors.iter().filter(|tensor| tensor.is_output());
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

/// What the reference says, row by row, as results have it. It computes what it is compared with, so that a check of it is one of memory and
/// types only.
pub(super) fn reference_rows(case: &Case, at: At<'_>) -> Vec<Vec<f64>> {
    let outputs: Vec<Tensor> = case.tensors().into_iter().filter(Tensor::is_output).collect();
    let mut written: Vec<Vec<f64>> = Vec::new();
    for row in 0..outputs.first().map_or(0, |output| output.rows) {
        let expected = (case.op.rows)(case, at, row);
        written.resize(written.len().max(expected.len()), Vec::new());
        for ((output, expected_here), to) in outputs.iter().zip(&expected).zip(&mut written) {
            let values = expected_here.iter().map(|expected| expected.value);
            match output.role {
                Role::Output(Reading::Places) => to.extend(places(case, at, row, values)),
                Role::Output(Reading::Scaled(by)) => {
                    let scale = expected.get(by).and_then(|scales| scales.first()).map_or(1.0, |it| it.value);
                    to.extend(values.map(|value| value / scale));
                }
                Role::Output(Reading::Dropped) => to.extend(dropped(case, row, values)),
                _ => to.extend(values),
            }
        }
    }
    let columns: Vec<u32> = (0..case.columns).collect();
    let sums = (case.op.sums)(case, at, &columns);
    written.extend(sums.into_iter().map(|sums| sums.iter().map(|expected| expected.value).collect()));
    written
}

/// Where these are in a row of the first input, each place taken once.
#[allow(clippy::cast_precision_loss, reason = "columns are 32 bits")]
fn places(case: &Case, at: At<'_>, row: u32, values: impl Iterator<Item = f64>) -> Vec<f64> {
    let x = of_row(case, at, 0, row);
    let mut taken: Vec<usize> = Vec::new();
    for value in values {
        let is_it = |column: &usize| x[*column].total_cmp(&value).is_eq() && !taken.contains(column);
        taken.push((0..x.len()).find(is_it).unwrap_or(0));
    }
    taken.into_iter().map(|column| column as f64).collect()
}

/// Some of these made zero.
#[allow(clippy::cast_precision_loss, reason = "53 bits fit")]
fn dropped(case: &Case, row: u32, values: impl Iterator<Item = f64>) -> impl Iterator<Item = f64> {
    let first = u64::from(row) * u64::from(case.columns) + 1;
    (first..).zip(values).map(|(place, value)| {
        // A number of its own for each element, spread over all by a multiplication.
        let mixed = place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let dropped = (mixed >> 11) as f64 / (1u64 << 53) as f64 <= DROPPED;
        if dropped { 0.0 } else { value }
    })
}
