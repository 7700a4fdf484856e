//! The memory of a product, several times: a launch on one copy finds none of it in the cache if the others came between.

use tilewright::device::{Buffer, Device, DeviceError};
use tilewright::kernels::gemm::Problem;

use super::super::Failure;
use super::super::product::{bias_element, footprint};
use super::check::{Inputs, poison};
use super::data::Pattern;
use super::timing::broken;

/// Operands of one launch.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) a: Buffer<u8>,
    pub(super) b: Buffer<u8>,
    pub(super) d: Buffer<u8>,
}

/// All copies, and what they share.
#[derive(Debug)]
pub(super) struct Memory {
    copies: Vec<Copy>,
    pub(super) bias: Buffer<u8>,
}

/// The most copies: matrices so small that more would be needed do not fill a cache in one sample.
const MOST_COPIES: u64 = 4096;

/// Where copies begin: at multiples of this, which suits every access.
const ALIGNMENT: u64 = 256;

impl Memory {
    /// As many copies as wanted; or enough to fill the cache of the device three times, and at most a quarter of its free memory.
    pub(super) fn new(
        device: &Device,
        problem: &Problem,
        inputs: &Inputs,
        wanted: Option<u32>,
    ) -> Result<Memory, Failure> {
        let Problem { m, n, k, batch, types, .. } = *problem;
        let sizes = [(&problem.a, m, k, types.a), (&problem.b, k, n, types.b), (&problem.d, m, n, types.d)]
            .map(|(placement, rows, columns, element)| {
                footprint(placement, rows, columns, batch).saturating_mul(element.bytes().into())
            });
        let count = count(device, sizes.into_iter().fold(0, u64::saturating_add), wanted)?;
        let [a, b, d] = sizes;
        let a = several(device, Some(&inputs.a), a, count).map_err(broken)?;
        let b = several(device, Some(&inputs.b), b, count).map_err(broken)?;
        let d = several(device, None, d, count).map_err(broken)?;
        let copies = a.into_iter().zip(b).zip(d).map(|((a, b), d)| Copy { a, b, d }).collect();
        let bias = u64::from(n) * u64::from(bias_element(types.d).bytes());
        let mut bias = several(device, Some(&inputs.bias), bias, 1).map_err(broken)?;
        Ok(Memory { copies, bias: bias.swap_remove(0) })
    }

    /// How many there are.
    pub(super) fn copies(&self) -> usize {
        self.copies.len()
    }

    /// One of them; there is always one.
    pub(super) fn copy(&self, number: usize) -> &Copy {
        &self.copies[number % self.copies.len()]
    }

    /// Spoils the result of the first copy, so that whoever computes it must write it.
    pub(super) fn spoil(&self, problem: &Problem) -> Result<(), Failure> {
        self.copy(0).d.fill(poison(problem.types.d)).map_err(broken)
    }
}

/// So many buffers of so many bytes, with the same contents, in one allocation.
pub(super) fn several(
    device: &Device,
    contents: Option<&Pattern>,
    bytes: u64,
    count: u64,
) -> Result<Vec<Buffer<u8>>, DeviceError> {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    // An empty matrix has an address all the same.
    let step = bytes.max(1).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
    let all = size(step.saturating_mul(count));
    let memory = device.alloc::<u8>(all)?;
    if let Some(pattern) = contents {
        pattern.fill(&memory.slice(..size(bytes))?)?;
        let mut filled = size(step);
        while filled < all {
            let more = filled.min(all - filled);
            memory.slice(filled..filled + more)?.copy_from(&memory.slice(..more)?)?;
            filled += more;
        }
    }
    (0..count).map(|number| memory.slice(size(number * step)..size(number * step + bytes.max(1)))).collect()
}

/// How many copies of so many bytes: as many as wanted; or enough to fill the cache, of what is free.
pub(super) fn count(device: &Device, bytes: u64, wanted: Option<u32>) -> Result<u64, Failure> {
    let (cache, free) = match device.context() {
        Some(context) => (context.device().l2_bytes, context.memory().map_err(broken)?.0),
        None => (0, u64::MAX),
    };
    Ok(wanted.map_or_else(|| copies(bytes, cache, free), |wanted| u64::from(wanted.max(1))))
}

fn copies(bytes: u64, cache: u64, free: u64) -> u64 {
    let bytes = bytes.max(1);
    (3 * cache).div_ceil(bytes).min(free / 4 / bytes).clamp(1, MOST_COPIES)
}

#[cfg(test)]
mod tests {
    use tilewright::hardware::Element;

    use super::*;

    #[test]
    fn copies_fill_the_cache_but_not_the_memory() {
        const MIB: u64 = 1 << 20;
        assert_eq!(copies(32 * MIB, 60 * MIB, 100_000 * MIB), 6);
        assert_eq!(copies(1, 60 * MIB, 100_000 * MIB), MOST_COPIES);
        assert_eq!(copies(1000 * MIB, 60 * MIB, 100_000 * MIB), 1);
        assert_eq!(copies(32 * MIB, 60 * MIB, 300 * MIB), 2);
        assert_eq!(copies(32 * MIB, 60 * MIB, 0), 1);
        assert_eq!(copies(0, 0, 0), 1);
    }

    #[test]
    fn copies_have_the_same_contents_at_aligned_places() {
        let pattern = Pattern::new(Element::F32, 100, 3);
        let all = several(&Device::cpu(), Some(&pattern), 400, 5).unwrap();
        let first = all[0].to_vec().unwrap();
        assert_eq!(first.len(), 400);
        assert!(all.iter().all(|copy| copy.alignment() == 256 && copy.to_vec().unwrap() == first));
        assert_eq!(several(&Device::cpu(), None, 0, 2).unwrap().len(), 2);
    }
}
