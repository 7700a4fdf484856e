//! Operators by kernels of the tile level, on GPU and simulator.
//!
//! The one place that knows how many programs there are. A kernel is staged once for each set of types, settings and shape of tile, and kept
//! with the device; the [`Program`](crate::device::Program) compiles it for what is true of its operands: where they are aligned, which stride
//! is 1, and that rows are exactly as long as the tile is wide.

use tilewright_hardware::{Arch, Element};
use tilewright_kernels::ops::{self as kernels, LONGEST, LONGEST_OF_CLUSTER, Tiling};
use tilewright_lang as lang;

use super::{Error, Rows};
use crate::device::{Argument, CacheKey, Device, DeviceKind, Temporary};

/// Elements that a program takes at least, where there are so many.
const ELEMENTS: usize = 1024;
/// Columns that a program takes of a row that is not held as a whole.
pub(super) const STEP: u32 = 4096;

/// What decides which kernel is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    name: &'static str,
    elements: [Option<Element>; 3],
    settings: [u32; 3],
    tiling: Tiling,
}

/// A kernel by its name, up to three types, up to three settings, and its tile.
pub(super) fn key<const E: usize, const S: usize>(
    name: &'static str,
    elements: &[Element; E],
    settings: &[u32; S],
    tiling: impl Into<Tiling>,
) -> Key {
    // What a key has no room for must not be left out: two kernels would pass for one.
    const { assert!(E <= 3 && S <= 3) };
    Key {
        name,
        elements: std::array::from_fn(|i| elements.get(i).copied()),
        settings: std::array::from_fn(|i| settings.get(i).copied().unwrap_or(0)),
        tiling: tiling.into(),
    }
}

/// The tile of a program that holds whole rows; nothing if rows are too long for the device.
pub(super) fn whole_rows(device: &Device, extents: (usize, usize)) -> Option<[u32; 2]> {
    tile_of_rows(longest(device), extents)
}

/// The same where a program is one block of threads on any chip, and holds rows of so many columns at most: for operators that are faster in steps
/// than in clusters, whose blocks wait for each other.
pub(super) fn rows_of_block(longest: u32, extents: (usize, usize)) -> Option<[u32; 2]> {
    tile_of_rows(longest, extents)
}

/// Whether a program that holds so many tiles at a time holds whole rows, and the shape of its tiles: those of rows, or else of steps.
pub(super) fn rows_or_steps(device: &Device, extents: (usize, usize), tiles: u32) -> (bool, [u32; 2]) {
    match tile_of_rows(longest(device) / tiles, extents) {
        Some(shape) => (true, shape),
        None => (false, [1, STEP]),
    }
}

fn longest(device: &Device) -> u32 {
    if device.arch().supports(Arch::SM_90) { LONGEST_OF_CLUSTER } else { LONGEST }
}

fn tile_of_rows(longest: u32, (rows, columns): (usize, usize)) -> Option<[u32; 2]> {
    let width = u32::try_from(columns.max(1)).ok().filter(|width| *width <= longest)?;
    let some = (ELEMENTS / columns.max(1)).clamp(1, rows.max(1).next_power_of_two());
    Some([u32::try_from(some).unwrap_or(1), width])
}

/// Tiles of programs that take a part of a matrix, whatever part.
pub(super) fn parts((rows, columns): (usize, usize)) -> Tiling {
    let width = u32::try_from(columns.max(1)).unwrap_or(STEP).min(STEP);
    let some = (ELEMENTS / width as usize).clamp(1, rows.max(1).next_power_of_two());
    Tiling::of([u32::try_from(some).unwrap_or(1), width], columns)
}

/// Programs for a matrix in tiles.
pub(super) fn programs(extents: (usize, usize), tiling: impl Into<Tiling>) -> [u32; 2] {
    tiling.into().programs(extents)
}

/// Launches so many programs of a kernel. The key says all that decides what is staged: name, types, settings, tile.
pub(super) fn launch(
    device: &Device,
    key: &impl CacheKey,
    programs: [u32; 2],
    arguments: &[&dyn Argument],
    stage: impl Fn() -> Result<lang::Kernel, lang::Error>,
) -> Result<(), Error> {
    // Not generic over what is staged: operators have over a hundred such closures, and all else is the same for them.
    launch_staged(device, key, programs, arguments, &stage)
}

fn launch_staged(
    device: &Device,
    key: &impl CacheKey,
    programs: [u32; 2],
    arguments: &[&dyn Argument],
    stage: &dyn Fn() -> Result<lang::Kernel, lang::Error>,
) -> Result<(), Error> {
    if programs.contains(&0) {
        return Ok(());
    }
    let program = device.cached_program(key, stage)?;
    let report = program.launch([programs[0], programs[1], 1], arguments)?;
    if device.kind() == DeviceKind::Simulator {
        report.expect_clean()?;
    }
    Ok(())
}

/// Programs that share the rows of a gradient of weights are always as many for rows of one length, so that sums are the same on every device: about
/// as many as an H200 has room for at a time, whose 132 multiprocessors hold so many elements each, and at least one for each. With more, what they
/// leave would take time: four rows of 16384 f32 for each multiprocessor are a tenth of what 8192 rows of gradients move in 16 bits.
const MULTIPROCESSORS: usize = 132;
const HELD: usize = 8192;

/// Sums over rows that programs left in parts of their own.
pub(super) struct Parts {
    buffer: Temporary<f32>,
    count: usize,
    columns: usize,
}

impl Parts {
    /// Room for the parts of a matrix.
    pub(super) fn new(device: &Device, (rows, columns): (usize, usize)) -> Result<Parts, Error> {
        let held = HELD / columns.clamp(1, HELD);
        let count = rows.min(MULTIPROCESSORS * held.clamp(1, 4));
        Ok(Parts { buffer: device.temporary(count * columns)?, count, columns })
    }

    /// A row for each program.
    pub(super) fn rows(&self) -> Rows<'_, f32> {
        Rows::new(&self.buffer, self.count, self.columns)
    }

    /// How many programs there are.
    pub(super) fn programs(&self) -> [u32; 2] {
        [u32::try_from(self.count).unwrap_or(u32::MAX), u32::from(self.columns > 0)]
    }

    /// Adds them up.
    pub(super) fn add_up(&self, device: &Device, sums: &Rows<'_, f32>) -> Result<(), Error> {
        // Few steps, each of lines of 128 bytes.
        let shape = [128, 32];
        let programs = [programs((1, self.columns), shape)[1], 1];
        let key = key("sum_columns", &[], &[], shape);
        launch(device, &key, programs, &[&self.rows().tensor(), &sums.tensor()], || {
            kernels::sum_columns::stage(shape)
        })
    }
}
