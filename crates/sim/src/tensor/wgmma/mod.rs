//! `wgmma.mma_async`: matrix products of a warpgroup, with B and mostly also A in shared memory.
//!
//! An operand in shared memory is read through a 64-bit descriptor:
//!
//! | bits | field |
//! | --- | --- |
//! | 0-13 | start address, in units of 16 bytes |
//! | 16-29 | leading byte offset, likewise |
//! | 32-45 | stride byte offset, likewise |
//! | 49-51 | base offset: the 128-byte line, of eight, in which the pattern of the swizzle begins |
//! | 62-63 | swizzle: 0 none, 1 of 128 bytes, 2 of 64 bytes, 3 of 32 bytes |
//!
//! With `S` the span of the swizzle in bytes (16 without), byte `a` along the contiguous mode of line `l` of the other
//! mode is at `start + a % S + (a / S) * leading + (l % 8) * S + (l / 8) * stride`; MN-major without a swizzle
//! exchanges the two offsets. The swizzle is then an exclusive-or on the whole address in the block's window, as TMA
//! applies it, whatever address the tile starts at.
//!
//! This is the hot path of a simulated GEMM: operands are decoded into dense `f32` panels once, the accumulators of a
//! warp are gathered into rows, and the product runs over them in vector registers. The columns of each group of eight
//! are kept in the order of the registers (0, 2, 4, 6, 1, 3, 5, 7), so that gathering and scattering move whole runs.

use std::ops::Range;

use tilewright_hardware::SwizzleMode;
use tilewright_ptx::{Instruction, Modifier, Opcode, Shape};

use super::dense::{Extents, accelerated, multiply_inline};
use super::error::{Result, TensorError};
use super::format::{Accumulator, Format, decode, f16_bits, f32_bits, integer, with_decoder, word};
use crate::number::Lanes;

/// Rows of the accumulator: 16 for each warp.
const M: usize = 64;
/// Warps of a warpgroup.
const WARPS: usize = 4;
/// Bytes of k that an instruction reads.
const STEP: usize = 32;
/// Bytes that a swizzle moves as one.
const PIECE: usize = 16;

/// One form of `wgmma.mma_async`, decoded.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier as M, Opcode, Shape};
/// use tilewright_sim::tensor::wgmma::{A, Flags, Registers, Wgmma};
/// let shape = M::Shape(Shape { m: 64, n: 8, k: 16 });
/// let words = [M::MmaAsync, M::Sync, M::Aligned, shape, M::F32, M::BF16, M::BF16];
/// let wgmma = Wgmma::decode(&Instruction::new(Opcode::Wgmma, &words, [])).expect("Hopper has it");
///
/// // B is 8 rows of 32 bytes without a swizzle: two core matrices of 128 bytes, the second for the next 16 bytes of k.
/// let mut shared = vec![0; 2048];
/// shared[1024..1280].fill(0x3f);
/// let b = 1024 >> 4 | (128 >> 4) << 16;
/// assert_eq!(wgmma.reads_b(b, false)?, [1024..1280]);
///
/// let ones = [0x3f80_3f80; 32];
/// let mut files = [(); 4].map(|()| vec![[0; 32]; 4]);
/// let mut warps = files.iter_mut();
/// let mut d = [(); 4].map(|()| Registers::new(warps.next().expect("four"), &[0, 1, 2, 3]).expect("in the file"));
/// wgmma.apply(&A::Registers([[&ones; 4]; 4]), b, &shared, Flags::default(), &mut d)?;
/// // 16 times the number with all bytes 0x3f.
/// let expected = 16.0 * f32::from_bits(0x3f3f_0000);
/// assert_eq!(files[3][2][31], u64::from(expected.to_bits()));
/// # Ok::<(), tilewright_sim::tensor::TensorError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wgmma {
    n: usize,
    k: usize,
    a: Format,
    b: Format,
    d: Accumulator,
    saturate: bool,
}

/// Where A is.
#[derive(Clone, Copy, Debug)]
pub enum A<'a> {
    /// In shared memory.
    Descriptor(u64),
    /// In four registers of each warp.
    Registers([[&'a Lanes; 4]; WARPS]),
}

/// The flags of an instruction, from its predicate and its immediates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Whether the old accumulator is added.
    pub accumulate: bool,
    /// Whether A is negated.
    pub negate_a: bool,
    /// Whether B is negated.
    pub negate_b: bool,
    /// Whether m instead of k is contiguous in A; in shared memory and with 16-bit types only.
    pub transpose_a: bool,
    /// Whether n instead of k is contiguous in B; with 16-bit types only.
    pub transpose_b: bool,
}

/// Some registers of a warp, in the order of an operand list.
#[derive(Debug)]
pub struct Registers<'a> {
    file: &'a mut [Lanes],
    list: &'a [u32],
}

impl<'a> Registers<'a> {
    /// The registers of a file that a list names; `None` if the file is too small.
    pub fn new(file: &'a mut [Lanes], list: &'a [u32]) -> Option<Registers<'a>> {
        list.iter().all(|index| (*index as usize) < file.len()).then_some(Registers { file, list })
    }

    #[inline(always)]
    fn at(&mut self, index: usize) -> &mut Lanes {
        &mut self.file[self.list[index] as usize]
    }
}

/// A descriptor, taken apart.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    start: usize,
    leading: usize,
    stride: usize,
    base: usize,
    swizzle: SwizzleMode,
}

impl Descriptor {
    fn new(operand: char, descriptor: u64) -> Result<Descriptor> {
        const RESERVED: u64 = 0x3ff1_c000_c000_c000;
        if descriptor & RESERVED != 0 {
            let bits = (0..64).filter(|bit| descriptor & RESERVED & 1 << bit != 0);
            let bits = bits.map(|bit| bit.to_string()).collect::<Vec<_>>().join(", ");
            return Err(TensorError::Descriptor {
                operand,
                descriptor,
                found: format!("ones in the reserved bits {bits}"),
                expected: "zeros in bits 14-15, 30-31, 46-48 and 52-61".into(),
            });
        }
        let bytes = |from: u32| (descriptor >> from & 0x3fff) as usize * PIECE;
        let swizzle = match descriptor >> 62 {
            0 => SwizzleMode::None,
            1 => SwizzleMode::B128,
            2 => SwizzleMode::B64,
            _ => SwizzleMode::B32,
        };
        let base = (descriptor >> 49 & 7) as usize;
        Ok(Descriptor { start: bytes(0), leading: bytes(16), stride: bytes(32), base, swizzle })
    }

    /// An address after the swizzle.
    #[inline(always)]
    fn swizzled(&self, address: usize) -> usize {
        let lines = (1 << self.swizzle as usize) - 1;
        address ^ ((address >> 7).wrapping_sub(self.base) & lines) << 4
    }
}

/// An operand in shared memory: `lines` lines of `width` bytes each, read in pieces of 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Walk {
    descriptor: Descriptor,
    lines: usize,
    width: usize,
    panel: usize,
    group: usize,
}

impl Walk {
    /// Of `rows` rows, m or n, with k contiguous or, transposed, the rows.
    fn new(operand: char, bits: u64, rows: usize, depth: usize, transposed: bool) -> Result<Walk> {
        let descriptor = Descriptor::new(operand, bits)?;
        let (lines, width) = if transposed { (depth, 2 * rows) } else { (rows, STEP) };
        let span = descriptor.swizzle.span() as usize;
        let inside = descriptor.start % span;
        if descriptor.swizzle != SwizzleMode::None && inside + width.min(span) > span {
            return Err(TensorError::Descriptor {
                operand,
                descriptor: bits,
                found: format!("start address {:#x}, {inside} bytes into a row of {span}", descriptor.start),
                expected: format!("an address from which {} bytes are left in the row", width.min(span)),
            });
        }
        let exchanged = transposed && descriptor.swizzle == SwizzleMode::None;
        let (panel, group) = match exchanged {
            false => (descriptor.leading, descriptor.stride),
            true => (descriptor.stride, descriptor.leading),
        };
        Ok(Walk { descriptor, lines, width, panel, group })
    }

    /// Where the piece at byte `a` of line `line` begins.
    #[inline(always)]
    fn address(&self, line: usize, a: usize) -> usize {
        let span = self.descriptor.swizzle.span() as usize;
        let linear = self.descriptor.start
            + a % span
            + a / span * self.panel
            + line % 8 * span
            + line / 8 * self.group;
        self.descriptor.swizzled(linear)
    }

    /// Whether the operand lies in shared memory of so many bytes.
    fn check(&self, operand: char, bits: u64, size: usize) -> Result<()> {
        let pieces = (0..self.lines).flat_map(|line| (0..self.width).step_by(PIECE).map(move |a| (line, a)));
        let last = pieces.map(|(line, a)| self.address(line, a)).max().unwrap_or(0) + PIECE;
        if last <= size {
            return Ok(());
        }
        Err(TensorError::Descriptor {
            operand,
            descriptor: bits,
            found: format!("bytes up to {last:#x}"),
            expected: format!("addresses inside the {size:#x} bytes of shared memory"),
        })
    }

    /// The bytes that are read, in order and merged.
    fn reads(&self) -> Vec<Range<u32>> {
        let pieces = (0..self.lines).flat_map(|line| (0..self.width).step_by(PIECE).map(move |a| (line, a)));
        let mut starts: Vec<usize> = pieces.map(|(line, a)| self.address(line, a)).collect();
        starts.sort_unstable();
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for start in starts {
            // Sums of a few fields of 18 bits, far below 2^32.
            let bound = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
            let (start, end) = (bound(start), bound(start + PIECE));
            match ranges.last_mut() {
                Some(last) if last.end >= start => last.end = last.end.max(end),
                _ => ranges.push(start..end),
            }
        }
        ranges
    }
}

impl Wgmma {
    /// The form of an instruction; `None` if it is not a dense `wgmma.mma_async` of sm_90a.
    pub fn decode(instruction: &Instruction) -> Option<Wgmma> {
        if instruction.opcode != Opcode::Wgmma {
            return None;
        }
        let (mut asynchronous, mut shape, mut saturate, mut logic, mut popc) =
            (false, None, false, false, false);
        for modifier in &instruction.modifiers {
            match modifier {
                Modifier::MmaAsync => asynchronous = true,
                Modifier::Sync | Modifier::Aligned | Modifier::Type(_) => {}
                Modifier::Shape(found) => shape = Some(*found),
                Modifier::Satfinite => saturate = true,
                Modifier::AndOp => logic = true,
                Modifier::PopcOp => popc = true,
                _ => return None,
            }
        }
        let mut types = instruction.types();
        let (Some(d), Some(a), Some(b), None) = (types.next(), types.next(), types.next(), types.next())
        else {
            return None;
        };
        let (d, a, b) = (Accumulator::of(d)?, Format::of(a)?, Format::of(b)?);
        let Shape { m: 64, n, k } = shape? else { return None };
        let pair = match a {
            Format::F16 | Format::Bf16 | Format::Tf32 | Format::B1 => a == b,
            Format::E4m3 | Format::E5m2 => matches!(b, Format::E4m3 | Format::E5m2),
            Format::S8 | Format::U8 => matches!(b, Format::S8 | Format::U8),
            Format::F64 | Format::S4 | Format::U4 => false,
        };
        let accumulator = match d {
            Accumulator::F32 => !a.is_integer(),
            Accumulator::F16 => matches!(a, Format::F16 | Format::E4m3 | Format::E5m2),
            Accumulator::S32 => a.is_integer(),
            Accumulator::F64 => false,
        };
        let columns = (8..=256).contains(&n) && n % 8 == 0 && (!a.is_integer() || n <= 32 || n % 16 == 0);
        let bits = a == Format::B1;
        let known = asynchronous
            && pair
            && accumulator
            && columns
            && usize::from(k) * a.bits() == 8 * STEP
            && (bits, bits) == (logic, popc)
            && (!saturate || matches!(a, Format::S8 | Format::U8));
        known.then_some(Wgmma { n: n.into(), k: k.into(), a, b, d, saturate })
    }

    /// Columns of B and of the accumulator.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Depth of the sum.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Operations of the tensor cores, a multiply-add being two.
    pub fn operations(&self) -> u64 {
        2 * (M * self.n * self.k) as u64
    }

    /// The types of A and B.
    pub fn factors(&self) -> (Format, Format) {
        (self.a, self.b)
    }

    /// The type of the accumulator.
    pub fn accumulator(&self) -> Accumulator {
        self.d
    }

    /// Registers of the accumulator in each lane.
    pub fn registers(&self) -> usize {
        self.n / 2 / self.d.per_register()
    }

    /// Whether operands in shared memory may be transposed, so that the instruction has immediates for it.
    pub fn is_transposable(&self) -> bool {
        self.a.bits() == 16
    }

    /// The bytes of shared memory that an A with this descriptor is read from.
    pub fn reads_a(&self, descriptor: u64, transposed: bool) -> Result<Vec<Range<u32>>> {
        self.check_transposed('A', transposed)?;
        Ok(Walk::new('A', descriptor, M, self.k, transposed)?.reads())
    }

    /// The bytes of shared memory that a B with this descriptor is read from.
    pub fn reads_b(&self, descriptor: u64, transposed: bool) -> Result<Vec<Range<u32>>> {
        self.check_transposed('B', transposed)?;
        Ok(Walk::new('B', descriptor, self.n, self.k, transposed)?.reads())
    }

    fn check_transposed(&self, operand: char, transposed: bool) -> Result<()> {
        if !transposed || self.is_transposable() {
            return Ok(());
        }
        Err(TensorError::Operands {
            found: format!("a transposed {operand} of type {:?}", self.a),
            expected: "16-bit elements, or k contiguous in shared memory".into(),
        })
    }

    /// Multiplies, and writes the accumulators in `d`, one list of [`registers`](Wgmma::registers) registers for each
    /// warp. `shared` is the block's shared memory from address 0 of its window.
    ///
    /// Nothing is written if there is an error.
    pub fn apply(
        &self,
        a: &A<'_>,
        b: u64,
        shared: &[u8],
        flags: Flags,
        d: &mut [Registers<'_>; WARPS],
    ) -> Result<()> {
        if let Some(short) = d.iter().find(|registers| registers.list.len() != self.registers()) {
            return Err(TensorError::Operands {
                found: format!("{} accumulator registers", short.list.len()),
                expected: format!("{} with n {}", self.registers(), self.n),
            });
        }
        self.check_transposed('B', flags.transpose_b)?;
        let walk = Walk::new('B', b, self.n, self.k, flags.transpose_b)?;
        walk.check('B', b, shared.len())?;
        let mut left = vec![0f32; M * self.k];
        match *a {
            A::Descriptor(bits) => {
                self.check_transposed('A', flags.transpose_a)?;
                let walk = Walk::new('A', bits, M, self.k, flags.transpose_a)?;
                walk.check('A', bits, shared.len())?;
                panel(self.a, &walk, shared, flags.transpose_a, false, &mut left);
            }
            A::Registers(_) if flags.transpose_a => {
                return Err(TensorError::Operands {
                    found: "a transposed A in registers".into(),
                    expected: "A in shared memory, or not transposed".into(),
                });
            }
            A::Registers(warps) => {
                for (warp, registers) in warps.iter().enumerate() {
                    with_decoder!(self.a, fragment(registers, warp, &mut left));
                }
            }
        }
        let mut right = vec![0f32; self.n * self.k];
        panel(self.b, &walk, shared, flags.transpose_b, true, &mut right);
        if flags.negate_a != flags.negate_b {
            left.iter_mut().for_each(|value| *value = -*value);
        }
        let mut sums = vec![0f32; 16 * self.n];
        for (warp, registers) in d.iter_mut().enumerate() {
            let left = &left[16 * warp..];
            match self.d {
                Accumulator::F32 => warp_f32(registers, left, &right, &mut sums, self.k, flags.accumulate),
                Accumulator::F16 => warp_f16(registers, left, &right, &mut sums, self.k, flags.accumulate),
                _ => {
                    let saturate = self.saturate;
                    warp_s32(registers, left, &right, &mut sums, self.k, flags.accumulate, saturate);
                }
            }
        }
        Ok(())
    }
}

/// Where column `column` of a group of eight is kept: the even ones first.
#[inline(always)]
const fn kept(column: usize) -> usize {
    column / 8 * 8 + column % 2 * 4 + column % 8 / 2
}

/// The bits of the elements of a piece of 16 bytes, in order.
#[inline(always)]
fn elements<const BITS: usize>(piece: &[u8; PIECE], mut each: impl FnMut(usize, f32)) {
    for (index, bytes) in piece.as_chunks::<4>().0.iter().enumerate() {
        let word = u32::from_le_bytes(*bytes);
        for part in 0..32 / BITS {
            let bits = word >> (part * BITS) & (u32::MAX >> (32 - BITS));
            each(index * (32 / BITS) + part, f32::from_bits(bits));
        }
    }
}

accelerated! {
    /// Decodes an operand in shared memory into a panel stored by k. `reorder` keeps rows as [`kept`] says.
    fn panel(format: Format, walk: &Walk, shared: &[u8], transposed: bool, reorder: bool, out: &mut [f32]) {
        with_decoder!(format, lines(walk, shared, transposed, reorder, out));
    }
}

/// [`panel`] of elements of `BITS` bits: their bits one by one, and then the numbers in one go over neighbours.
#[inline(always)]
fn lines<const BITS: usize>(
    walk: &Walk,
    shared: &[u8],
    transposed: bool,
    reorder: bool,
    out: &mut [f32],
    decode: impl Fn(u32) -> f32,
) {
    let per = PIECE * 8 / BITS;
    let rows = if transposed { walk.width / 2 } else { walk.lines };
    let place = |row: usize| if reorder { kept(row) } else { row };
    for line in 0..walk.lines {
        for a in (0..walk.width).step_by(PIECE) {
            let Some(piece) = shared.get(walk.address(line, a)..).and_then(|rest| rest.first_chunk()) else {
                return;
            };
            let first = a / PIECE * per;
            match transposed {
                // A piece is 8 rows of one k, the first a multiple of 8.
                true => {
                    let out = &mut out[line * rows + first..][..8];
                    elements::<BITS>(piece, |i, value| out[place(i)] = value);
                }
                false => {
                    let out = &mut out[place(line)..];
                    elements::<BITS>(piece, |i, value| out[(first + i) * rows] = value);
                }
            }
        }
    }
    out.iter_mut().for_each(|value| *value = decode(value.to_bits()));
}

/// Decodes A from the registers of a warp.
#[inline]
fn fragment<const BITS: usize>(
    registers: &[&Lanes; 4],
    warp: usize,
    out: &mut [f32],
    decode: impl Fn(u32) -> f32,
) {
    let per = 32 / BITS;
    for (index, register) in registers.iter().enumerate() {
        for (lane, value) in register.iter().enumerate() {
            let row = 16 * warp + lane / 4 + 8 * (index % 2);
            for part in 0..per {
                let k = per * (lane % 4) + part + 4 * per * (index / 2);
                let bits = word(*value) >> (part * BITS) & (u32::MAX >> (32 - BITS));
                out[k * M + row] = decode(bits);
            }
        }
    }
}

/// Calls `each(register, half, lanes, sums)` for every four columns of a row that a warp has in a register, or in a
/// half of one: the lanes of a quad, and the sums of those columns.
#[inline(always)]
fn quads(
    registers: &mut Registers<'_>,
    sums: &mut [f32],
    halves: usize,
    mut each: impl FnMut(usize, &mut [u64; 4], &mut [f32; 4]),
) {
    let n = sums.len() / 16;
    for (group, below, odd) in
        (0..n / 8).flat_map(|group| [(group, 0, 0), (group, 0, 1), (group, 1, 0), (group, 1, 1)])
    {
        let (register, half) = match halves {
            1 => (4 * group + 2 * below + odd, 0),
            _ => (2 * group + below, odd),
        };
        let rows = sums[8 * below * n..].chunks_exact_mut(n);
        for (lanes, sums) in registers.at(register).as_chunks_mut::<4>().0.iter_mut().zip(rows) {
            if let Some(sums) = sums[8 * group + 4 * odd..].first_chunk_mut() {
                each(half, lanes, sums);
            }
        }
    }
}

accelerated! {
    fn warp_f32(
        registers: &mut Registers<'_>,
        left: &[f32],
        right: &[f32],
        sums: &mut [f32],
        depth: usize,
        accumulate: bool,
    ) {
        match accumulate {
            true => quads(registers, sums, 1, |_, old, sums| *sums = old.map(|old| f32::from_bits(word(old)))),
            false => sums.fill(0.0),
        }
        multiply_inline(left, M, right, sums, Extents { rows: 16, columns: sums.len() / 16, depth });
        quads(registers, sums, 1, |_, new, sums| *new = sums.map(|sum| f32_bits(sum).into()));
    }
}

accelerated! {
    fn warp_f16(
        registers: &mut Registers<'_>,
        left: &[f32],
        right: &[f32],
        sums: &mut [f32],
        depth: usize,
        accumulate: bool,
    ) {
        match accumulate {
            true => {
                // The bits first, and then the numbers in one go over neighbours.
                quads(registers, sums, 2, |half, old, sums| {
                    *sums = old.map(|old| f32::from_bits(word(old) >> (16 * half) & 0xffff));
                });
                sums.iter_mut().for_each(|sum| *sum = decode::f16(sum.to_bits()));
            }
            false => sums.fill(0.0),
        }
        multiply_inline(left, M, right, sums, Extents { rows: 16, columns: sums.len() / 16, depth });
        sums.iter_mut().for_each(|sum| *sum = f32::from_bits(f16_bits(*sum)));
        quads(registers, sums, 2, |half, new, sums| {
            for (new, sum) in new.iter_mut().zip(sums) {
                let bits = u64::from(sum.to_bits());
                *new = if half == 0 { bits } else { *new | bits << 16 };
            }
        });
    }
}

accelerated! {
    fn warp_s32(
        registers: &mut Registers<'_>,
        left: &[f32],
        right: &[f32],
        sums: &mut [f32],
        depth: usize,
        accumulate: bool,
        saturate: bool,
    ) {
        sums.fill(0.0);
        multiply_inline(left, M, right, sums, Extents { rows: 16, columns: sums.len() / 16, depth });
        quads(registers, sums, 1, |_, new, sums| {
            for (new, sum) in new.iter_mut().zip(sums) {
                let old = if accumulate { word(*new).cast_signed() } else { 0 };
                let dot = integer(*sum);
                let sum = if saturate { old.saturating_add(dot) } else { old.wrapping_add(dot) };
                *new = u64::from(sum.cast_unsigned());
            }
        });
    }
}

#[cfg(test)]
mod tests;
