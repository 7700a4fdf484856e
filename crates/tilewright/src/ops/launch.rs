//! Operators by kernels of the tile level, on GPU and simulator.
//!
//! The one place that knows how [`Rows`] become arguments and how many programs there are. A kernel is staged and compiled once for each
//! set of types, settings and shape of tile, and kept with the device.

use tilewright_hardware::Element;
use tilewright_kernels::ops::LONGEST;
use tilewright_lang as lang;

use super::{Error, Rows};
use crate::device::{Argument, CacheKey, Device, DeviceKind, Item};

/// Elements that a program takes at least, where there are so many.
const ELEMENTS: usize = 1024;
/// Columns that a program takes of a row that is not held as a whole.
pub(super) const STEP: u32 = 4096;

/// What decides which kernel is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    name: &'static str,
    elements: [Option<Element>; 3],
    settings: [u32; 2],
    shape: [u32; 2],
}

/// A kernel by its name, up to three types, up to two settings, and its tile.
pub(super) fn key(name: &'static str, elements: &[Element], settings: &[u32], shape: [u32; 2]) -> Key {
    let element = |i: usize| elements.get(i).copied();
    let setting = |i: usize| settings.get(i).copied().unwrap_or(0);
    Key { name, elements: [element(0), element(1), element(2)], settings: [setting(0), setting(1)], shape }
}

/// The tile of a program that holds whole rows; nothing if rows are too long.
pub(super) fn whole_rows((rows, columns): (usize, usize)) -> Option<[u32; 2]> {
    let width = u32::try_from(columns.max(1)).ok().filter(|width| *width <= LONGEST)?;
    let some = (ELEMENTS / columns.max(1)).clamp(1, rows.max(1).next_power_of_two());
    Some([u32::try_from(some).unwrap_or(1), width])
}

/// The tile of a program that takes a part of a matrix, whatever part.
pub(super) fn parts((rows, columns): (usize, usize)) -> [u32; 2] {
    let width = u32::try_from(columns.max(1)).unwrap_or(STEP).min(STEP);
    let some = (ELEMENTS / width as usize).clamp(1, rows.max(1).next_power_of_two());
    [u32::try_from(some).unwrap_or(1), width]
}

/// Programs for a matrix in tiles.
pub(super) fn programs((rows, columns): (usize, usize), [height, width]: [u32; 2]) -> [u32; 2] {
    let ceil = |n: usize, by: u32| u32::try_from(n.div_ceil(by as usize)).unwrap_or(u32::MAX);
    [ceil(rows, height), ceil(columns, width)]
}

/// The arguments of a launch, in the order of the kernel's parameters.
#[derive(Default)]
pub(super) struct Launch {
    arguments: Vec<Box<dyn Argument>>,
}

impl Launch {
    pub(super) fn new() -> Launch {
        Launch::default()
    }

    /// A matrix: where it begins, its extents, its strides.
    pub(super) fn view<T: Item>(mut self, rows: &Rows<'_, T>) -> Result<Launch, Error> {
        let ((count, columns), (down, right)) = (rows.extents(), rows.strides());
        self.arguments.push(Box::new(rows.memory()?));
        for extent in [count, columns] {
            // Looked at before: it is below 2^32.
            self.arguments.push(Box::new(u32::try_from(extent).unwrap_or(u32::MAX)));
        }
        for stride in [down, right] {
            self.arguments.push(Box::new(i64::try_from(stride).unwrap_or(i64::MAX)));
        }
        Ok(self)
    }

    pub(super) fn number<T: Item + Argument>(mut self, number: T) -> Launch {
        self.arguments.push(Box::new(number));
        self
    }

    /// Launches so many programs of a kernel. The key says all that decides what is staged: name, types, settings, tile.
    pub(super) fn run(
        self,
        device: &Device,
        key: &impl CacheKey,
        programs: [u32; 2],
        stage: impl FnOnce() -> Result<lang::Kernel, lang::Error>,
    ) -> Result<(), Error> {
        if programs.contains(&0) {
            return Ok(());
        }
        let kernel = device.cached(key, stage)?;
        let arguments: Vec<&dyn Argument> = self.arguments.iter().map(|argument| &**argument).collect();
        // A program may be a cluster of blocks.
        let blocks = kernel.cluster().map_or(1, |[x, ..]| x);
        let report = kernel.launch([programs[0] * blocks, programs[1], 1], &arguments)?;
        if device.kind() == DeviceKind::Simulator {
            report.expect_clean()?;
        }
        Ok(())
    }
}
