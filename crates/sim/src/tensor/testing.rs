//! What the tests of this module share.

use tilewright_ptx::{Instruction, Modifier, Names, Need, Opcode, Sample, Target, Version, forms};

use super::format::{Accumulator, Format};
use crate::number::Lanes;

/// The instruction with this opcode and these modifiers, without operands.
pub(super) fn instruction(text: &str) -> Instruction {
    let mut words = text.split('.');
    let opcode = Opcode::from_text(words.next().unwrap()).unwrap();
    let modifiers: Vec<Modifier> = words.map(|word| Modifier::from_text(word).unwrap()).collect();
    Instruction::new(opcode, &modifiers, [])
}

/// Every form of an opcode that Hopper has, with each of its words at least once.
pub(super) fn samples(opcode: Opcode) -> Vec<Instruction> {
    let (newest, hopper) = (Version::new(9, 1), Target::arch(90));
    let mut names = Names::default();
    let of_opcode = forms().iter().filter(|form| form.opcode() == opcode);
    let samples = of_opcode.flat_map(|form| form.samples(&mut names)).collect::<Vec<Sample>>();
    let met = |needs: &[Need]| needs.iter().any(|need| need.is_met_by(newest, hopper));
    samples.into_iter().filter(|sample| met(&sample.needs)).map(|sample| sample.instruction).collect()
}

/// Numbers that look random.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as u32
    }

    /// From `low` up to and including `high`.
    pub(super) fn between(&mut self, low: i32, high: i32) -> i32 {
        low + i32::try_from(self.bits() % u32::try_from(high - low + 1).unwrap()).unwrap()
    }

    /// An integer that a format has.
    pub(super) fn element(&mut self, format: Format) -> i32 {
        match format {
            Format::B1 => self.between(0, 1),
            Format::U8 | Format::U4 => self.between(0, 4),
            _ => self.between(-4, 4),
        }
    }
}

/// The bits of an integer from -4 to 4 in a format.
pub(super) fn encode(format: Format, value: i32) -> u64 {
    let float = value as f32;
    let small = |codes: [u64; 5]| codes[value.unsigned_abs() as usize] | if value < 0 { 0x80 } else { 0 };
    match format {
        Format::F16 => half::f16::from_f32(float).to_bits().into(),
        Format::Bf16 => half::bf16::from_f32(float).to_bits().into(),
        // The low bits must not matter.
        Format::Tf32 => u64::from(float.to_bits() | 0x1fff),
        Format::F64 => f64::from(value).to_bits(),
        Format::E4m3 => small([0, 0x38, 0x40, 0x44, 0x48]),
        Format::E5m2 => small([0, 0x3c, 0x40, 0x42, 0x44]),
        Format::S8 | Format::U8 => u64::from(value.to_le_bytes()[0]),
        Format::S4 | Format::U4 => u64::from(value.to_le_bytes()[0] & 0xf),
        Format::B1 => u64::from(value != 0),
    }
}

/// The bits of an integer in an accumulator.
pub(super) fn encode_accumulator(accumulator: Accumulator, value: i32) -> u64 {
    match accumulator {
        Accumulator::F16 => half::f16::from_f32(value as f32).to_bits().into(),
        Accumulator::F32 => (value as f32).to_bits().into(),
        Accumulator::F64 => f64::from(value).to_bits(),
        Accumulator::S32 => value.cast_unsigned().into(),
    }
}

/// Element `index` of a lane, of `bits` bits each.
pub(super) fn element(registers: &[Lanes], bits: usize, lane: usize, index: usize) -> u64 {
    let per = (32 / bits).max(1);
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    registers[index / per][lane] >> (index % per * bits) & mask
}

/// Puts an element of a lane in its register, which must be zero there.
pub(super) fn put(registers: &mut [Lanes], bits: usize, lane: usize, index: usize, value: u64) {
    let per = (32 / bits).max(1);
    registers[index / per][lane] |= value << (index % per * bits);
}

/// The size of an accumulator.
pub(super) fn bits(accumulator: Accumulator) -> usize {
    match accumulator {
        Accumulator::F16 => 16,
        Accumulator::F32 | Accumulator::S32 => 32,
        Accumulator::F64 => 64,
    }
}

/// Nanoseconds of one call: the best of many short batches, which others on the computer disturb least.
pub(super) fn nanoseconds(mut call: impl FnMut()) -> f64 {
    let batch = |call: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        (0..20).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / 20.0
    };
    (0..500).map(|_| batch(&mut call)).fold(f64::INFINITY, f64::min)
}
