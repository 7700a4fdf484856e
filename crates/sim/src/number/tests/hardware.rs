//! Every instruction against an H200.
//!
//! `hardware.txt` holds one line an instruction: its spelling, and a hash of what the hardware made of [`COUNT`] tuples of
//! sources. The values are made here, from edges and random bits, so the recording needs no copy of them.
//!
//! To record anew: [`write_kernels`] writes the kernels, `ptxas -arch=sm_90` assembles them, each is launched with one block
//! of [`COUNT`] threads, the address of its block of sources and that of its results; the results of all, in order, are
//! the file `results.bin`, of which [`compare_raw`] makes `hardware.txt`. Approximations differ in their digits; they are
//! left out, and tested elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rayon::prelude::*;
use tilewright_ptx::{Modifier, Names, Opcode, Symbol, Target, Type, forms};

use super::super::{Carry, Lanes, Map, Set, Test};
use super::values::{Random, specials};
use super::*;

/// Tuples of sources for each instruction.
const COUNT: usize = 1024;

/// What an instruction decodes to.
enum Decoded {
    Map(Map),
    Carry(Carry),
    Test(Test),
    Set(Set),
}

impl Decoded {
    fn of(instruction: &Instruction) -> Option<Decoded> {
        let found = [
            Map::decode(instruction).map(Decoded::Map),
            Carry::decode(instruction).map(Decoded::Carry),
            Test::decode(instruction).map(Decoded::Test),
            Set::decode(instruction).map(Decoded::Set),
        ];
        let mut found = found.into_iter().flatten();
        let first = found.next();
        assert!(found.next().is_none(), "{instruction:?} decodes as two things");
        first
    }

    fn sources(&self) -> &[Type] {
        match self {
            Decoded::Map(map) => map.sources(),
            Decoded::Carry(carry) => carry.sources(),
            Decoded::Test(test) => test.sources(),
            Decoded::Set(set) => set.sources(),
        }
    }
}

/// An instruction and what is to be known of it besides its modifiers.
struct Case {
    text: String,
    instruction: Instruction,
    decoded: Decoded,
    /// The table of a `lop3`.
    table: Option<u8>,
}

fn spelling(instruction: &Instruction) -> String {
    let mut text = instruction.opcode.to_string();
    for word in &instruction.modifiers {
        write!(text, ".{word}").unwrap();
    }
    text
}

/// The opcodes of which every form up to sm_90 must decode.
const ARITHMETIC: &[Opcode] = &[
    Opcode::Abs,
    Opcode::Add,
    Opcode::Addc,
    Opcode::And,
    Opcode::Bfe,
    Opcode::Bfi,
    Opcode::Bfind,
    Opcode::Bmsk,
    Opcode::Brev,
    Opcode::Clz,
    Opcode::Cnot,
    Opcode::Copysign,
    Opcode::Cos,
    Opcode::Cvt,
    Opcode::Div,
    Opcode::Dp2a,
    Opcode::Dp4a,
    Opcode::Ex2,
    Opcode::Fma,
    Opcode::Fns,
    Opcode::Lg2,
    Opcode::Lop3,
    Opcode::Mad,
    Opcode::Mad24,
    Opcode::Madc,
    Opcode::Max,
    Opcode::Min,
    Opcode::Mul,
    Opcode::Mul24,
    Opcode::Neg,
    Opcode::Not,
    Opcode::Or,
    Opcode::Popc,
    Opcode::Prmt,
    Opcode::Rcp,
    Opcode::Rem,
    Opcode::Rsqrt,
    Opcode::Sad,
    Opcode::Set,
    Opcode::Setp,
    Opcode::Shf,
    Opcode::Shl,
    Opcode::Shr,
    Opcode::Sin,
    Opcode::Slct,
    Opcode::Sqrt,
    Opcode::Sub,
    Opcode::Subc,
    Opcode::Szext,
    Opcode::Tanh,
    Opcode::Testp,
    Opcode::Xor,
];

/// Every instruction of the table up to sm_90, with all combinations of its modifiers.
fn instructions() -> BTreeMap<String, Instruction> {
    let mut found = BTreeMap::new();
    let mut names = Names::default();
    for form in forms().iter().filter(|form| ARITHMETIC.contains(&form.opcode())) {
        let words = form.text().split_whitespace().next().unwrap_or_default();
        let mut path: Vec<(usize, usize)> = Vec::new();
        // Counts through all decisions about modifiers, which come before those about operands.
        let modifiers = words.matches(['{', '|']).count();
        loop {
            let mut at = 0;
            let sample = form.sample(&mut names, &mut |options| {
                if at == path.len() {
                    path.push((0, options));
                }
                at += 1;
                path[at - 1].0
            });
            let plain = |target: Target| Target::plain(90).includes(target);
            if let Some(sample) = sample.filter(|sample| sample.needs.iter().any(|need| plain(need.target))) {
                found.entry(spelling(&sample.instruction)).or_insert(sample.instruction);
            }
            path.truncate(at.min(modifiers));
            while path.last().is_some_and(|(choice, options)| choice + 1 == *options) {
                path.pop();
            }
            match path.last_mut() {
                Some((choice, _)) => *choice += 1,
                None => break,
            }
        }
    }
    found
}

/// The cases of a recording, by their spelling; `lop3` has one for each of a few tables.
fn spellings() -> Vec<String> {
    let tables = ["96", "e8", "ca", "80", "fe", "1a", "40", "0f"];
    let mut found = Vec::new();
    for (text, instruction) in instructions() {
        // Predicate logic is done elsewhere; the last take registers of 8 bits, which nothing loads.
        let tiny = instruction.has(Modifier::BF16) && instruction.types().any(|ty| ty.bits() == 8);
        match instruction.opcode {
            _ if instruction.has(Modifier::PRED) || tiny => {}
            Opcode::Lop3 => found.extend(tables.iter().map(|table| format!("{text}#{table}"))),
            _ => found.push(text),
        }
    }
    found
}

fn case(text: &str) -> Case {
    let (spelling, table) = text.split_once('#').unwrap_or((text, ""));
    let instruction = instruction(spelling);
    let decoded = Decoded::of(&instruction).unwrap_or_else(|| panic!("{text} does not decode"));
    Case { text: text.into(), instruction, decoded, table: u8::from_str_radix(table, 16).ok() }
}

/// What `hardware.txt` says.
fn recorded() -> BTreeMap<&'static str, u64> {
    include_str!("hardware.txt")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(text, hash)| (text, u64::from_str_radix(hash, 16).unwrap()))
        .collect()
}

impl Case {
    /// The values of the sources; the fifth list is the predicate or the carry.
    fn values(&self) -> [Vec<u64>; 5] {
        let mut random = Random(self.decoded.sources().iter().fold(7, |seed, ty| seed * 64 + *ty as u64));
        let sources = self.decoded.sources();
        let counts = match self.instruction.opcode {
            Opcode::Shl | Opcode::Shr | Opcode::Szext => 1..2,
            Opcode::Bfe | Opcode::Fns => 1..3,
            Opcode::Bmsk => 0..2,
            Opcode::Bfi => 2..4,
            Opcode::Shf => 2..3,
            _ => 9..9,
        };
        std::array::from_fn(|source| {
            let special = sources.get(source).map_or_else(Vec::new, |ty| specials(*ty));
            let many = special.len();
            (0..COUNT)
                .map(|at| match (sources.get(source), self.table) {
                    (Some(_), Some(table)) if source == 3 => u64::from(table),
                    // The manual defines `fns` for these only.
                    (Some(_), _) if self.instruction.opcode == Opcode::Fns && source == 1 => {
                        random.next() % 32
                    }
                    (Some(_), _) if counts.contains(&source) => random.amount(),
                    // Each with each, and the third with some of them.
                    (Some(_), _) if at < many * many => {
                        special[[at, at / many, at * 7 / 3, at][source] % many]
                    }
                    (Some(ty), _) => random.value(*ty),
                    _ => random.next(),
                })
                .collect()
        })
    }

    /// What this module makes of them.
    fn results(&self) -> Vec<u64> {
        let values = self.values();
        let mut out = Vec::new();
        for at in (0..COUNT).step_by(32) {
            let lanes: [Lanes; 4] =
                std::array::from_fn(|source| std::array::from_fn(|lane| values[source][at + lane]));
            let src = [&lanes[0], &lanes[1], &lanes[2], &lanes[3]];
            let extra = (0..32).fold(0, |mask, lane| mask | ((values[4][at + lane] & 1) as u32) << lane);
            let bit = |mask: u32, lane: usize| u64::from(mask >> lane & 1);
            match &self.decoded {
                Decoded::Map(map) => {
                    let bits = map.destination().bits();
                    let result = map.clone().into_register(bits.max(16)).apply(src);
                    out.extend((0..32).map(|lane| {
                        let set = (map.logic())
                            .map_or(0, |logic| logic.apply(u32::from(result[lane] != 0), extra >> lane & 1));
                        result[lane] | u64::from(set) << 32
                    }));
                }
                Decoded::Carry(carry) => {
                    let (result, mask) = carry.apply(src, extra);
                    out.extend((0..32).map(|lane| result[lane] ^ bit(mask, lane).wrapping_mul(MARK)));
                }
                Decoded::Test(test) => {
                    let (p, q) = test.apply(src[0], src[1], extra);
                    let one = !self.has_second();
                    out.extend((0..32).map(|lane| bit(p, lane) | if one { 0 } else { bit(q, lane) << 1 }));
                }
                Decoded::Set(set) => out.extend(set.apply(src[0], src[1], extra)),
            }
        }
        out
    }

    fn approximate(&self) -> bool {
        self.instruction.has(Modifier::Approx) || self.instruction.has(Modifier::Full)
    }

    /// Whether a test has a second predicate.
    fn has_second(&self) -> bool {
        let single = self.instruction.has(Modifier::F16) || self.instruction.has(Modifier::BF16);
        self.instruction.opcode == Opcode::Setp && !single
    }
}

/// What is flipped in a result where there is a carry.
const MARK: u64 = 0x9e37_79b9_7f4a_7c15;

fn hash(values: &[u64]) -> u64 {
    values.iter().fold(0xcbf2_9ce4_8422_2325, |hash, value| {
        (hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    })
}

fn register_of(ty: Type) -> &'static str {
    match ty.bits() {
        64 => "b64",
        8 | 16 => "b16",
        _ => "b32",
    }
}

/// The kernel that runs a case: thread `i` reads tuple `i`.
fn kernel(case: &Case, number: usize) -> String {
    let mut names = Names::default();
    let mut body = String::new();
    let sources = case.decoded.sources();
    let mut operands: Vec<tilewright_ptx::Operand> = Vec::new();
    let destination = match &case.decoded {
        Decoded::Map(map) => Some(map.destination()),
        Decoded::Carry(carry) => Some(carry.destination()),
        Decoded::Set(set) => Some(set.destination()),
        Decoded::Test(_) => None,
    };
    let symbol = |names: &mut Names, text: &str| -> Symbol { names.intern(text) };
    let logic = match &case.decoded {
        Decoded::Map(map) => map.logic(),
        Decoded::Test(test) => test.logic(),
        Decoded::Set(set) => set.logic(),
        Decoded::Carry(_) => None,
    };
    match (destination, &case.decoded) {
        (Some(_), Decoded::Map(map)) if map.logic().is_some() => {
            operands.push(tilewright_ptx::Operand::Pair(
                Some(symbol(&mut names, "%d")),
                Some(symbol(&mut names, "%p")),
            ));
        }
        (Some(_), _) => operands.push(symbol(&mut names, "%d").into()),
        (None, _) if case.has_second() => {
            operands.push(tilewright_ptx::Operand::Pair(
                Some(symbol(&mut names, "%p")),
                Some(symbol(&mut names, "%q")),
            ));
        }
        (None, _) => operands.push(symbol(&mut names, "%p").into()),
    }
    for (at, ty) in sources.iter().enumerate() {
        if at == 3
            && let Some(table) = case.table
        {
            operands.push(i32::from(table).into());
            continue;
        }
        let register = register_of(*ty);
        writeln!(body, ".reg .{register} %s{at};\nld.global.u64 %t, [%in+{}];", at * COUNT * 8).unwrap();
        writeln!(
            body,
            "{}",
            match register {
                "b64" => format!("mov.b64 %s{at}, %t;"),
                "b32" => format!("cvt.u32.u64 %s{at}, %t;"),
                _ => format!("cvt.u16.u64 %s{at}, %t;"),
            }
        )
        .unwrap();
        operands.push(symbol(&mut names, &format!("%s{at}")).into());
    }
    writeln!(body, "ld.global.u64 %t, [%in+{}];\nand.b64 %t, %t, 1;", 4 * COUNT * 8).unwrap();
    writeln!(body, "setp.ne.u64 %c, %t, 0;\ncvt.u32.u64 %carry, %t;").unwrap();
    if logic.is_some() {
        operands.push(symbol(&mut names, "%c").into());
    }
    let minus = matches!(case.instruction.opcode, Opcode::Sub | Opcode::Subc);
    if let Decoded::Carry(_) = case.decoded {
        // Puts the carry, or the borrow, into the flag.
        writeln!(
            body,
            "{}",
            if minus { "sub.cc.u32 %x, 0, %carry;" } else { "add.cc.u32 %x, %carry, 0xffffffff;" }
        )
        .unwrap();
    }
    let instruction = Instruction::new(case.instruction.opcode, &case.instruction.modifiers, operands);
    writeln!(body, "{}", instruction.display(&names)).unwrap();
    match (&case.decoded, destination) {
        (Decoded::Test(_), _) => {
            writeln!(body, "selp.u64 %t, 1, 0, %p;").unwrap();
            if case.has_second() {
                writeln!(body, "selp.u64 %u, 2, 0, %q;\nor.b64 %t, %t, %u;").unwrap();
            }
        }
        (_, Some(ty)) => {
            writeln!(
                body,
                "{}",
                match register_of(ty) {
                    "b64" => "mov.b64 %t, %d;",
                    "b32" => "cvt.u64.u32 %t, %d;",
                    _ => "cvt.u64.u16 %t, %d;",
                }
            )
            .unwrap();
            if let Decoded::Carry(_) = case.decoded {
                let read = if minus { "subc.u32 %x, 0, 0;\nneg.s32 %x, %x;" } else { "addc.u32 %x, 0, 0;" };
                writeln!(
                    body,
                    "{read}\ncvt.u64.u32 %u, %x;\nmul.lo.u64 %u, %u, {};\nxor.b64 %t, %t, %u;",
                    MARK.cast_signed()
                )
                .unwrap();
            } else if logic.is_some() && case.instruction.opcode == Opcode::Lop3 {
                writeln!(body, "selp.u64 %u, 0x100000000, 0, %p;\nor.b64 %t, %t, %u;").unwrap();
            }
        }
        _ => {}
    }
    let result = destination.map_or(String::new(), |ty| format!(".reg .{} %d;\n", register_of(ty)));
    format!(
        "// {}\n.visible .entry k{number}(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .b64 %in, %out, %t, %u;\n.reg .b32 %i, %x, %carry;\n.reg .pred %p, %q, %c;\n{result}\
         ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %i, %tid.x;\n\
         mad.wide.u32 %in, %i, 8, %in;\nmad.wide.u32 %out, %i, 8, %out;\n{body}st.global.u64 [%out], %t;\nret;\n}}\n",
        case.text
    )
}

#[test]
fn all_instructions_agree_with_the_recording() {
    let recorded: Vec<(&str, u64)> = recorded().into_iter().collect();
    assert_eq!(recorded.len(), 4663);
    let wrong: Vec<&str> = recorded
        .par_iter()
        .filter(|(text, theirs)| hash(&case(text).results()) != *theirs)
        .map(|(text, _)| *text)
        .collect();
    assert_eq!(wrong, Vec::<&str>::new());
}

#[test]
fn every_arithmetic_form_up_to_sm_90_decodes_and_is_recorded() {
    let recorded = recorded();
    let (mut unknown, mut missing) = (Vec::new(), Vec::new());
    for (text, instruction) in instructions() {
        if Decoded::of(&instruction).is_none() {
            unknown.push(text);
        } else if !(instruction.has(Modifier::Approx) || instruction.has(Modifier::Full)) {
            let line = if instruction.opcode == Opcode::Lop3 { format!("{text}#96") } else { text };
            missing.extend((!recorded.contains_key(&line[..])).then_some(line));
        }
    }
    // Predicate logic is done elsewhere; nothing else is missing.
    assert_eq!(unknown, ["and.pred", "not.pred", "or.pred", "xor.pred"]);
    missing.retain(|text| !(text.contains("bf16") && (text.contains("s8") || text.contains("u8"))));
    assert_eq!(missing, Vec::<String>::new());
}

/// Writes what a recording needs into a folder: kernels (one block of [`COUNT`] threads each), their sources, the list.
#[test]
#[ignore = "makes the kernels from which hardware.txt is recorded; name a folder in TILEWRIGHT_RECORDING"]
fn write_kernels() {
    let folder =
        std::path::PathBuf::from(std::env::var("TILEWRIGHT_RECORDING").expect("a folder to write into"));
    let cases: Vec<Case> = spellings().iter().map(|text| case(text)).collect();
    let (mut list, mut bytes) = (String::new(), Vec::new());
    // Instructions with the same types share their sources.
    let mut blocks: BTreeMap<u64, usize> = BTreeMap::new();
    for case in &cases {
        let values = case.values();
        let next = blocks.len();
        let block = *blocks.entry(hash(&values.concat())).or_insert_with(|| {
            bytes.extend(values.iter().flatten().flat_map(|value| value.to_le_bytes()));
            next
        });
        writeln!(list, "{} {block}", case.text).unwrap();
    }
    for (part, chunk) in cases.chunks(cases.len().div_ceil(16)).enumerate() {
        let mut text = String::from(".version 8.6\n.target sm_90\n.address_size 64\n");
        let first = part * cases.len().div_ceil(16);
        for (at, case) in chunk.iter().enumerate() {
            text.push_str(&kernel(case, first + at));
        }
        std::fs::write(folder.join(format!("part{part}.ptx")), text).unwrap();
    }
    std::fs::write(folder.join("list.txt"), list).unwrap();
    std::fs::write(folder.join("sources.bin"), bytes).unwrap();
}

/// Compares with raw results, number by number: for finding out what a difference is.
#[test]
#[ignore = "needs the raw results of a recording in TILEWRIGHT_RECORDING; writes hardware.txt there"]
fn compare_raw() {
    let folder = std::path::PathBuf::from(std::env::var("TILEWRIGHT_RECORDING").expect("a folder to read"));
    let raw = std::fs::read(folder.join("results.bin")).unwrap();
    let raw: Vec<u64> =
        raw.chunks_exact(8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).collect();
    let mut recorded = String::new();
    let cases: Vec<Case> = spellings().iter().map(|text| case(text)).collect();
    for (number, case) in cases.iter().enumerate() {
        let theirs = &raw[number * COUNT..][..COUNT];
        if !case.approximate() {
            writeln!(recorded, "{} {:016x}", case.text, hash(theirs)).unwrap();
        }
        let ours = case.results();
        let wrong: Vec<usize> = (0..COUNT).filter(|&at| ours[at] != theirs[at]).collect();
        if !wrong.is_empty() {
            let values = case.values();
            println!("{} differs in {} of {COUNT}", case.text, wrong.len());
            for &at in wrong.iter().take(3) {
                let sources: Vec<String> =
                    (0..case.decoded.sources().len()).map(|i| format!("{:x}", values[i][at])).collect();
                println!("    {} -> {:x}, here {:x}", sources.join(" "), theirs[at], ours[at]);
            }
        }
    }
    std::fs::write(folder.join("hardware.txt"), recorded).unwrap();
}
