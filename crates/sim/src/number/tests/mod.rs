//! Tests of the arithmetic, each against something that was not written here: the hardware's recorded results, a
//! software implementation of IEEE 754, wide integers, models bit by bit, or tables of the PTX manual.

mod hardware;
mod oracle;
mod special;
mod speed;
mod values;

use tilewright_ptx::{Instruction, Modifier, Opcode};

use super::{Lanes, Map};

/// The instruction with this spelling, without operands: `add.rn.f32`.
fn instruction(text: &str) -> Instruction {
    let mut words = text.split('.');
    let opcode = Opcode::from_text(words.next().unwrap()).unwrap();
    // `setp` spells its comparison and its operator like opcodes, which the words keep apart.
    let modifiers: Vec<Modifier> = words.map(|word| Modifier::from_text(word).unwrap()).collect();
    Instruction::new(opcode, &modifiers, [])
}

/// The lanes that an instruction makes of the same values in all lanes.
fn run(text: &str, values: &[u64]) -> u64 {
    let map = Map::decode(&instruction(text)).unwrap_or_else(|| panic!("{text} does not decode"));
    let lanes: [Lanes; 4] = std::array::from_fn(|at| [values.get(at).copied().unwrap_or(0); 32]);
    map.apply([&lanes[0], &lanes[1], &lanes[2], &lanes[3]])[31]
}
