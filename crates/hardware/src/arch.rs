//! [`Arch`]: which chip code is for, what a multiprocessor of it holds, and how many blocks fit.
//!
//! The number of multiprocessors and the clock belong to a device, not to an architecture, and are not here.

use std::fmt;
use std::str::FromStr;

use crate::error::HardwareError;

/// A compute architecture: `sm_90`, or `sm_90a` with the instructions that only this very chip has.
///
/// ```
/// use tilewright_hardware::Arch;
/// let hopper: Arch = "sm_90a".parse()?;
/// assert_eq!(hopper, Arch::SM_90A);
/// assert!(hopper.supports(Arch::SM_80) && hopper.supports(Arch::SM_90A));
/// assert!(!Arch::SM_90.supports(Arch::SM_90A) && !Arch::SM_100A.supports(Arch::SM_90A));
/// # Ok::<(), tilewright_hardware::HardwareError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arch {
    /// Major version times ten plus minor version: 80, 86, 89, 90, 100, 103, 120.
    pub number: u32,
    /// Whether instructions of exactly this chip are included: the suffix `a`.
    pub specific: bool,
}

/// What one multiprocessor of an architecture holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Most bytes of shared memory of a block, with the opt-in for dynamic shared memory.
    pub shared_per_block: u32,
    /// Bytes of shared memory of a multiprocessor; each resident block takes [`Limits::shared_reserved`] more.
    pub shared_per_sm: u32,
    /// Bytes of shared memory that the system takes from each resident block.
    pub shared_reserved: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_sm: u32,
    /// Most resident threads of a multiprocessor.
    pub threads_per_sm: u32,
    /// Most resident blocks of a multiprocessor.
    pub blocks_per_sm: u32,
    /// Most threads of a block.
    pub threads_per_block: u32,
    /// Most registers of a thread.
    pub max_registers_per_thread: u32,
}

/// Threads of a warp.
pub const WARP: u32 = 32;
/// Threads of a warpgroup, the unit that issues wgmma.
pub const WARPGROUP: u32 = 128;

const KIB: u32 = 1024;
/// Registers are handed to warps in pieces of this many.
const REGISTER_UNIT: u32 = 256;
/// Shared memory is handed to blocks in pieces of this many bytes.
const SHARED_UNIT: u32 = 128;
/// A multiprocessor is four partitions with a quarter of the registers each; a warp lives in one of them.
const PARTITIONS: u32 = 4;

/// (number, KiB of shared memory, threads, blocks): of one multiprocessor. Everything else is the same for all.
const CHIPS: [(u32, u32, u32, u32); 10] = [
    (80, 164, 2048, 32),
    (86, 100, 1536, 16),
    (87, 164, 1536, 16),
    (89, 100, 1536, 24),
    (90, 228, 2048, 32),
    (100, 228, 2048, 32),
    (103, 228, 2048, 32),
    (110, 228, 1536, 24),
    (120, 100, 1536, 24),
    (121, 100, 1536, 24),
];

impl Arch {
    /// Ampere: A100.
    pub const SM_80: Arch = Arch { number: 80, specific: false };
    /// Ampere: GeForce 30, A10, A40.
    pub const SM_86: Arch = Arch { number: 86, specific: false };
    /// Ada: GeForce 40, L4, L40.
    pub const SM_89: Arch = Arch { number: 89, specific: false };
    /// Hopper, what later chips keep: TMA, clusters, stmatrix.
    pub const SM_90: Arch = Arch { number: 90, specific: false };
    /// Hopper with everything: H100, H200; wgmma.
    pub const SM_90A: Arch = Arch { number: 90, specific: true };
    /// Blackwell for data centres: B200.
    pub const SM_100A: Arch = Arch { number: 100, specific: true };
    /// Blackwell for workstations: GeForce 50, RTX PRO.
    pub const SM_120A: Arch = Arch { number: 120, specific: true };

    /// Whether code that needs `other` runs on a chip that is `self`.
    ///
    /// Plain architectures run on everything newer; specific ones only on themselves.
    pub fn supports(self, other: Arch) -> bool {
        if other.specific { self == other } else { self.number >= other.number }
    }

    /// What a multiprocessor holds. A chip that is not in the table counts as the one listed before it.
    pub fn limits(self) -> Limits {
        let known = CHIPS.iter().rev().find(|chip| chip.0 <= self.number);
        let (_, shared_kib, threads_per_sm, blocks_per_sm) = *known.unwrap_or(&CHIPS[0]);
        Limits {
            shared_per_block: (shared_kib - 1) * KIB,
            shared_per_sm: shared_kib * KIB,
            shared_reserved: KIB,
            registers_per_sm: 64 * KIB,
            threads_per_sm,
            blocks_per_sm,
            threads_per_block: 1024,
            max_registers_per_thread: 255,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("sm_{}{}", self.number, if self.specific { "a" } else { "" }))
    }
}

impl FromStr for Arch {
    type Err = HardwareError;

    fn from_str(text: &str) -> Result<Arch, HardwareError> {
        let error = || HardwareError::UnknownArch { found: text.into() };
        let digits = text.strip_prefix("sm_").ok_or_else(error)?;
        let (digits, specific) = digits.strip_suffix('a').map_or((digits, false), |digits| (digits, true));
        let chip = CHIPS.iter().find(|chip| chip.0.to_string() == digits).ok_or_else(error)?;
        // Chips before Hopper have no instructions of their own.
        if specific && chip.0 < Arch::SM_90A.number {
            return Err(error());
        }
        Ok(Arch { number: chip.0, specific })
    }
}

/// Every architecture number that can be named in text.
pub(crate) fn known_numbers() -> impl Iterator<Item = u32> {
    CHIPS.iter().map(|chip| chip.0)
}

/// What keeps more blocks from being resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limiter {
    /// The number of blocks itself.
    Blocks,
    /// Resident threads, or the threads of one block.
    Threads,
    /// Registers.
    Registers,
    /// Shared memory.
    SharedMemory,
}

/// How many blocks are resident on a multiprocessor at once; see [`occupancy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Occupancy {
    /// Resident blocks; 0 if the block cannot be launched at all.
    pub blocks_per_sm: u32,
    /// Resident warps.
    pub warps: u32,
    /// What keeps one more block out.
    pub limited_by: Limiter,
}

/// How many blocks of `threads` threads fit on a multiprocessor, with `registers` registers a thread and
/// `shared_bytes` bytes of shared memory a block.
///
/// ```
/// use tilewright_hardware::{Arch, Limiter, occupancy};
/// let o = occupancy(Arch::SM_90A, 256, 128, 64 * 1024);
/// assert_eq!((o.blocks_per_sm, o.warps, o.limited_by), (2, 16, Limiter::Registers));
/// assert_eq!(occupancy(Arch::SM_86, 128, 32, 100 * 1024).blocks_per_sm, 0);
/// ```
pub fn occupancy(arch: Arch, threads: u32, registers: u32, shared_bytes: u32) -> Occupancy {
    let limits = arch.limits();
    let warps = threads.div_ceil(WARP).max(1);
    let by_threads = match (1..=limits.threads_per_block).contains(&threads) {
        true => limits.threads_per_sm / (warps * WARP),
        false => 0,
    };
    let by_registers = match registers <= limits.max_registers_per_thread {
        true => {
            let per_warp = (registers.max(1) * WARP).next_multiple_of(REGISTER_UNIT);
            let warps_per_partition = limits.registers_per_sm / PARTITIONS / per_warp;
            warps_per_partition * PARTITIONS / warps
        }
        false => 0,
    };
    let by_shared = match shared_bytes <= limits.shared_per_block {
        true => limits.shared_per_sm / (shared_bytes + limits.shared_reserved).next_multiple_of(SHARED_UNIT),
        false => 0,
    };
    // On a tie the resource named last is the scarcer one to free; blocks come first so that they lose ties.
    let candidates = [
        (limits.blocks_per_sm, Limiter::Blocks),
        (by_threads, Limiter::Threads),
        (by_shared, Limiter::SharedMemory),
        (by_registers, Limiter::Registers),
    ];
    let (blocks_per_sm, limited_by) =
        candidates.into_iter().rev().min_by_key(|(blocks, _)| *blocks).unwrap_or((0, Limiter::Blocks));
    Occupancy { blocks_per_sm, warps: blocks_per_sm * warps, limited_by }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_refuses() {
        for arch in
            [Arch::SM_80, Arch::SM_86, Arch::SM_89, Arch::SM_90, Arch::SM_90A, Arch::SM_100A, Arch::SM_120A]
        {
            assert_eq!(arch.to_string().parse::<Arch>().unwrap(), arch);
        }
        for text in ["sm90", "sm_", "sm_80a", "sm_91", "sm_090", "sm_100f", "90a", "sm_90aa"] {
            let message = text.parse::<Arch>().unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("sm_90a"), "{message}");
        }
    }

    #[test]
    fn support_is_a_partial_order() {
        let all = ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_103a", "sm_120a"]
            .map(|text| text.parse::<Arch>().unwrap());
        for a in all {
            assert!(a.supports(a));
            for b in all {
                assert_eq!(a.supports(b), if b.specific { a == b } else { a.number >= b.number });
                assert!(a == b || !(a.supports(b) && b.supports(a)), "{a} {b}");
                for c in all {
                    assert!(!(a.supports(b) && b.supports(c)) || a.supports(c), "{a} {b} {c}");
                }
            }
        }
    }

    #[test]
    fn limits_of_the_chips() {
        let shared = |text: &str| text.parse::<Arch>().unwrap().limits().shared_per_block / KIB;
        assert_eq!(
            ["sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"].map(shared),
            [163, 99, 99, 227, 227, 99]
        );
        assert_eq!(Arch::SM_90A.limits().shared_per_block, 232_448);
    }

    #[test]
    fn occupancy_by_each_limit() {
        let check = |arch, threads, registers, shared, blocks, limiter| {
            let o = occupancy(arch, threads, registers, shared);
            assert_eq!((o.blocks_per_sm, o.limited_by), (blocks, limiter), "{threads} {registers} {shared}");
            assert_eq!(o.warps, blocks * u32::div_ceil(threads, WARP));
        };
        check(Arch::SM_90A, 32, 16, 0, 32, Limiter::Blocks);
        check(Arch::SM_90A, 1024, 32, 0, 2, Limiter::Registers);
        check(Arch::SM_86, 1024, 32, 0, 1, Limiter::Threads);
        check(Arch::SM_90A, 384, 168, 200 * KIB, 1, Limiter::Registers);
        check(Arch::SM_90A, 128, 32, 227 * KIB, 1, Limiter::SharedMemory);
        // 113 KiB and the reserved one are half of 228.
        check(Arch::SM_90A, 128, 32, 113 * KIB, 2, Limiter::SharedMemory);
        check(Arch::SM_90A, 128, 32, 113 * KIB + 1, 1, Limiter::SharedMemory);
        // 65 registers are allocated as 72: 2304 a warp, 7 warps in a partition of 16384.
        check(Arch::SM_80, 128, 65, 0, 7, Limiter::Registers);
        check(Arch::SM_80, 128, 64, 0, 8, Limiter::Registers);
        check(Arch::SM_90A, 2048, 32, 0, 0, Limiter::Threads);
        check(Arch::SM_90A, 128, 256, 0, 0, Limiter::Registers);
        check(Arch::SM_90A, 128, 32, 228 * KIB, 0, Limiter::SharedMemory);
    }
}
