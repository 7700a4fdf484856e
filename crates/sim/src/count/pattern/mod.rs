//! How the addresses of one warp fall on the banks of shared memory and on the sectors of global memory.
//!
//! Shared memory has 32 banks, each 4 bytes wide; a wavefront reads or writes one word of each. A request of up to 4 bytes a lane
//! is one phase of 32 lanes, one of 8 bytes two phases of half a warp, one of 16 bytes four phases of a quarter. A phase takes as
//! many wavefronts as the bank with most different words has; lanes at the same word share it. Phases are not merged, even where
//! two of them would fit into one wavefront, with one exception: a wide load in which neighbours ask for the same
//! ([`load_wavefronts`]). All of this was measured on an H200.
//!
//! Global memory moves in sectors of 32 bytes; a request costs the different ones that it touches.
//!
//! Addresses count as rounded down to the size of the access on the shared side, because a misaligned access is an error there;
//! on the global side an access that crosses a boundary touches both sectors.

/// Bytes of a sector.
pub const SECTOR: u64 = 32;
/// Bytes that one wavefront moves: all banks once.
pub const WAVEFRONT: u32 = 128;

/// Banks of shared memory.
const BANKS: u32 = 32;
/// log2 of the bytes of a bank.
const BANK_SHIFT: u32 = 2;

/// What a shared-memory request costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wavefronts {
    /// Wavefronts it takes.
    pub taken: u32,
    /// Wavefronts it would take without bank conflicts: its phases with a lane.
    pub ideal: u32,
}

/// What a global-memory request costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sectors {
    /// Sectors it touches.
    pub touched: u32,
    /// Sectors that would hold its bytes if they lay side by side; never more than it touches.
    pub ideal: u32,
}

/// Wavefronts of an access of `bytes` a lane (at most 128) by the lanes of the mask.
///
/// ```
/// use tilewright_sim::count::pattern::wavefronts;
/// let strided = |stride| std::array::from_fn(|lane| lane as u64 * stride);
/// assert_eq!(wavefronts(&strided(4), u32::MAX, 4).taken, 1);
/// assert_eq!(wavefronts(&strided(8), u32::MAX, 4).taken, 2);
/// assert_eq!(wavefronts(&strided(128), u32::MAX, 4).taken, 32);
/// assert_eq!(wavefronts(&strided(132), u32::MAX, 4).taken, 1);
/// assert_eq!(wavefronts(&strided(16), u32::MAX, 16).taken, 4);
/// ```
#[inline]
pub fn wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> Wavefronts {
    in_phases(addresses, lanes, bytes, 1)
}

/// The same for an ordinary load. With more than 4 bytes a lane it takes half as many phases if every active lane asks for the same
/// address as its neighbour (or, throughout the warp, as the one two lanes on), or that neighbour is not active.
///
/// ```
/// use tilewright_sim::count::pattern::{load_wavefronts, wavefronts};
/// let pairs = std::array::from_fn(|lane| (lane as u64 / 2) * 8);
/// assert_eq!((wavefronts(&pairs, u32::MAX, 8).taken, load_wavefronts(&pairs, u32::MAX, 8).taken), (2, 1));
/// ```
#[inline]
pub fn load_wavefronts(addresses: &[u64; 32], lanes: u32, bytes: u32) -> Wavefronts {
    let alike = |step: usize| {
        (0..32).all(|lane| {
            let other = lane ^ step;
            lanes >> lane & 1 == 0 || lanes >> other & 1 == 0 || addresses[lane] == addresses[other]
        })
    };
    let merged = bytes > 4 && (alike(1) || alike(2));
    in_phases(addresses, lanes, bytes, if merged { 2 } else { 1 })
}

#[inline]
fn in_phases(addresses: &[u64; 32], lanes: u32, bytes: u32, merged: u32) -> Wavefronts {
    if lanes == 0 || bytes == 0 {
        return Wavefronts::default();
    }
    let width = bytes.clamp(1 << BANK_SHIFT, WAVEFRONT).next_power_of_two();
    let phase_lanes = (WAVEFRONT / width * merged).min(BANKS);
    let phases = BANKS / phase_lanes;
    if lanes == u32::MAX
        && let Some(stride) = common_stride(addresses)
        && stride.is_multiple_of(u64::from(width))
    {
        // Pieces at a stride of 2^n times an odd number of pieces meet in every 2^n-th bank; at stride 0 they are one.
        let steps = stride / u64::from(width);
        let depth =
            if steps == 0 { 1 } else { 1 << steps.trailing_zeros().min(phase_lanes.trailing_zeros()) };
        return Wavefronts { taken: phases * depth, ideal: phases };
    }
    let shift = width.trailing_zeros();
    let phase_mask = u32::MAX >> (BANKS - phase_lanes);
    let mut cost = Wavefronts::default();
    for (phase, first) in
        addresses.chunks_exact(phase_lanes as usize).zip((0..BANKS).step_by(phase_lanes as usize))
    {
        let active = lanes >> first & phase_mask;
        if active != 0 {
            cost.ideal += 1;
            cost.taken += if different_banks(phase, active, shift) || one_row(phase, active) {
                1
            } else {
                deepest_bank(phase, active, shift)
            };
        }
    }
    cost
}

/// Sectors of an access of `bytes` a lane (at most 32) by the lanes of the mask.
///
/// ```
/// use tilewright_sim::count::pattern::sectors;
/// let strided = |stride| std::array::from_fn(|lane| 4096 + lane as u64 * stride);
/// assert_eq!(sectors(&strided(4), u32::MAX, 4).touched, 4);
/// assert_eq!((sectors(&strided(8), u32::MAX, 4).touched, sectors(&strided(8), u32::MAX, 4).ideal), (8, 4));
/// assert_eq!(sectors(&strided(128), u32::MAX, 4).touched, 32);
/// assert_eq!(sectors(&strided(0), u32::MAX, 4).touched, 1);
/// ```
#[inline]
pub fn sectors(addresses: &[u64; 32], lanes: u32, bytes: u32) -> Sectors {
    if lanes == 0 || bytes == 0 {
        return Sectors::default();
    }
    let bytes = u64::from(bytes);
    let stride = common_stride(addresses).filter(|_| lanes == u32::MAX);
    let touched = match stride.map(|stride| stride.min(stride.wrapping_neg())) {
        // No sector between the first and the last byte is left out.
        Some(stride) if stride <= SECTOR => {
            let (first, last) = (addresses[0].min(addresses[31]), addresses[0].max(addresses[31]));
            let last = last.wrapping_add(bytes - 1);
            low_u32((last / SECTOR).wrapping_sub(first / SECTOR)).wrapping_add(1)
        }
        // Aligned pieces, each in a sector of its own.
        Some(stride)
            if bytes.is_power_of_two()
                && bytes <= SECTOR
                && (stride | addresses[0]).is_multiple_of(bytes) =>
        {
            32
        }
        _ => distinct_sectors(addresses, lanes, bytes),
    };
    let dense = low_u32((u64::from(lanes.count_ones()) * bytes).div_ceil(SECTOR));
    Sectors { touched, ideal: dense.min(touched) }
}

/// The distance from each lane to the next, if it is always the same, as in most code.
#[inline]
fn common_stride(addresses: &[u64; 32]) -> Option<u64> {
    let stride = addresses[1].wrapping_sub(addresses[0]);
    let mut difference = 0;
    let mut expected = addresses[0];
    for &address in addresses {
        difference |= address ^ expected;
        expected = expected.wrapping_add(stride);
    }
    (difference == 0).then_some(stride)
}

/// Whether no two active lanes meet in a bank.
#[inline]
fn different_banks(addresses: &[u64], active: u32, shift: u32) -> bool {
    let banks = WAVEFRONT >> shift;
    let (mut taken, mut met) = (0_u32, 0_u32);
    for (lane, address) in addresses.iter().enumerate() {
        let bank = (active >> lane & 1) << (low_u32(address >> shift) & (banks - 1));
        met |= taken & bank;
        taken |= bank;
    }
    met == 0
}

/// Whether all active lanes access the same 128 bytes: each bank is then asked for one word only.
#[inline]
fn one_row(addresses: &[u64], active: u32) -> bool {
    let base = addresses[active.trailing_zeros() as usize];
    let mut difference = 0;
    for (lane, address) in addresses.iter().enumerate() {
        let mask = u64::from(active >> lane & 1).wrapping_neg();
        difference |= (address ^ base) & mask;
    }
    difference < u64::from(WAVEFRONT)
}

/// The most different words that a bank of the phase is asked for. Pieces wider than a bank lie in as many neighbouring banks, so
/// that the pieces themselves act like words in fewer, wider banks.
fn deepest_bank(addresses: &[u64], active: u32, shift: u32) -> u32 {
    let banks = WAVEFRONT >> shift;
    let mut seen = Seen::default();
    let mut depth = [0_u8; BANKS as usize];
    let mut deepest = 1;
    let mut rest = active;
    while rest != 0 {
        let lane = rest.trailing_zeros();
        rest &= rest - 1;
        let piece = addresses[lane as usize] >> shift;
        if seen.insert(piece) {
            let bank = &mut depth[(low_u32(piece) & (banks - 1)) as usize];
            *bank += 1;
            deepest = deepest.max(*bank);
        }
    }
    u32::from(deepest)
}

fn distinct_sectors(addresses: &[u64; 32], lanes: u32, bytes: u64) -> u32 {
    // Lanes in order of address need no memory of what was seen, only the last sector.
    let mut last = addresses[lanes.trailing_zeros() as usize] / SECTOR;
    let (mut count, mut simple, mut rest) = (1, true, lanes);
    while rest != 0 {
        let address = addresses[rest.trailing_zeros() as usize];
        rest &= rest - 1;
        let sector = address / SECTOR;
        simple &= sector >= last && address % SECTOR + bytes <= SECTOR;
        count += u32::from(sector != last);
        last = sector;
    }
    if simple {
        return count;
    }
    let mut seen = Seen::default();
    let (mut count, mut rest) = (0, lanes);
    while rest != 0 {
        let address = addresses[rest.trailing_zeros() as usize];
        rest &= rest - 1;
        let (from, to) = (address / SECTOR, address.wrapping_add(bytes - 1) / SECTOR);
        count += u32::from(seen.insert(from));
        if to != from {
            count += u32::from(seen.insert(to));
        }
    }
    count
}

/// A set of at most 64 numbers: two for each lane of a warp.
struct Seen {
    slots: [u64; Seen::SLOTS],
    used: u64,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen { slots: [0; Seen::SLOTS], used: 0 }
    }
}

impl Seen {
    /// Twice what it holds unless accesses are misaligned, so that probing stays short.
    const SLOTS: usize = 64;

    /// Whether the number is new.
    #[inline]
    fn insert(&mut self, number: u64) -> bool {
        // Multiplying by the golden ratio spreads strides of powers of two, the usual ones.
        let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut slot = (hash >> 58) as usize;
        while self.used >> slot & 1 == 1 {
            if self.slots[slot] == number {
                return false;
            }
            slot = (slot + 1) % Seen::SLOTS;
        }
        self.used |= 1 << slot;
        self.slots[slot] = number;
        true
    }
}

/// The value where it is known to fit, as counts of sectors of a warp are.
#[inline]
fn low_u32(value: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
    let low = value as u32;
    low
}

#[cfg(test)]
mod tests;
