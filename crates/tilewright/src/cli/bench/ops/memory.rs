//! The arrays of an op in the memory of a device, several times, and the numbers in them.

use tilewright::device::{Buffer, Device};

use super::super::super::Failure;
use super::super::check::poison;
use super::super::data::Pattern;
use super::super::memory::{count, several};
use super::super::timing::broken;
use super::case::{Case, Role, Tensor};

/// Everything that launches work on.
#[derive(Debug)]
pub(super) struct Memory {
    tensors: Vec<Tensor>,
    /// The numbers of the inputs; nothing for outputs.
    numbers: Vec<Option<Pattern>>,
    /// For each copy, a buffer for each array.
    copies: Vec<Vec<Buffer<u8>>>,
}

impl Memory {
    /// As many copies as wanted, or enough to fill the cache of the device three times.
    pub(super) fn new(
        device: &Device,
        case: &Case,
        seed: u64,
        wanted: Option<u32>,
    ) -> Result<Memory, Failure> {
        let tensors = case.tensors();
        let all = tensors.iter().map(Tensor::bytes).fold(0, u64::saturating_add);
        let count = count(device, all, wanted)?;
        let numbers: Vec<Option<Pattern>> = (seed..)
            .zip(&tensors)
            .map(|(seed, tensor)| match tensor.role {
                Role::Numbers => Some(Pattern::new(tensor.element, tensor.elements(), seed)),
                Role::Places(below) => Some(Pattern::places(below, tensor.elements(), seed)),
                Role::Computed(number) => {
                    let numbers = (0..tensor.elements()).map(|place| number(case, place));
                    Some(Pattern::of(tensor.element, numbers))
                }
                Role::Output(_) | Role::Sums => None,
            })
            .collect();
        let mut copies = vec![Vec::new(); usize::try_from(count).unwrap_or(1)];
        for (tensor, numbers) in tensors.iter().zip(&numbers) {
            let all = several(device, numbers.as_ref(), tensor.bytes(), count).map_err(broken)?;
            copies.iter_mut().zip(all).for_each(|(copy, buffer)| copy.push(buffer));
        }
        Ok(Memory { tensors, numbers, copies })
    }

    /// How many there are; at least one.
    pub(super) fn copies(&self) -> usize {
        self.copies.len()
    }

    /// The inputs of one of them.
    pub(super) fn inputs(&self, copy: usize) -> &[Buffer<u8>] {
        self.part(copy).0
    }

    /// The outputs of one of them.
    pub(super) fn outputs(&self, copy: usize) -> &[Buffer<u8>] {
        self.part(copy).1
    }

    fn part(&self, copy: usize) -> (&[Buffer<u8>], &[Buffer<u8>]) {
        let outputs = self.tensors.iter().filter(|tensor| tensor.is_output()).count();
        let copy = &self.copies[copy % self.copies.len()];
        copy.split_at(copy.len() - outputs)
    }

    /// A number of an input.
    pub(super) fn at(&self, input: usize, place: u64) -> f64 {
        self.numbers.get(input).and_then(Option::as_ref).map_or(f64::NAN, |numbers| numbers.at(place))
    }

    /// Spoils the outputs of the first copy, so that whoever computes them must write them.
    pub(super) fn spoil(&self) -> Result<(), Failure> {
        let outputs = self.tensors.iter().filter(|tensor| tensor.is_output());
        for (buffer, tensor) in self.outputs(0).iter().zip(outputs) {
            buffer.fill(poison(tensor.element)).map_err(broken)?;
        }
        Ok(())
    }
}
