//! No text may panic, whatever stands in it.

use std::fmt::Write as _;

use proptest::prelude::*;
use tilewright_ptx::{Modifier, Opcode, SpecialRegister};

use super::super::Program;
use super::{REGISTERS, files};

fn decode(text: &str) {
    let Ok(module) = tilewright_ptx::parse(text) else { return };
    if let Ok(program) = Program::decode(&module, text) {
        for function in &program.functions {
            let len = function.code.len();
            assert_eq!(
                (function.lines.len(), function.order.len(), function.post_dominator.len()),
                (len, len, len)
            );
            for (pc, op) in function.code.iter().enumerate() {
                let _ = function.instruction_text(u32::try_from(pc).unwrap());
                op.kind.for_each_register(|reg, _| assert!(reg < function.registers, "{:?}", op.kind));
            }
        }
    }
}

fn operand() -> impl Strategy<Value = String> {
    let names = [
        "%r1",
        "%r2",
        "%rd1",
        "%h1",
        "%f1",
        "%d1",
        "%p1",
        "%q1",
        "%v",
        "%v.y",
        "%w.x",
        "%w.w",
        "_",
        "p",
        "n",
        "s",
        "g",
        "c",
        "l",
        "x",
        "f",
        "T",
        "P",
        "L",
        "WARP_SZ",
        "0",
        "1",
        "-1",
        "16",
        "0f3F800000",
        "0d3FF0000000000000",
        "0xFFFFFFFFFFFFFFFF",
        "%r1|%p1",
        "_|%p1",
        "!%p1",
        "s+4",
        "g-4",
        "l+99999999999",
    ];
    let leaf = prop_oneof![
        20 => prop::sample::select(names.to_vec()).prop_map(str::to_owned),
        1 => prop::sample::select(SpecialRegister::ALL).prop_map(|special| special.text().to_owned()),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| {
        let list = prop::collection::vec(inner, 1..5).prop_map(|parts| parts.join(", "));
        prop_oneof![
            list.clone().prop_map(|list| format!("[{list}]")),
            list.clone().prop_map(|list| format!("{{{list}}}")),
            list.prop_map(|list| format!("({list})")),
        ]
    })
}

/// A statement of words that mostly do not belong together.
fn statement() -> impl Strategy<Value = String> {
    let opcode = prop::sample::select(Opcode::ALL);
    let plain = prop::sample::select(Modifier::PLAIN).prop_map(|modifier| modifier.to_string());
    let common = prop::sample::select(vec![
        "u32", "b32", "f32", "u64", "b64", "b128", "pred", "v2", "v4", "sync", "aligned", "shared", "global",
        "async", "bulk", "m16n8k16", "m8n8", "s8", "bf16", "f16x2",
    ]);
    let modifiers = prop::collection::vec(prop_oneof![plain, common.prop_map(str::to_owned)], 0..6);
    let operands = prop::collection::vec(operand(), 0..6);
    (any::<bool>(), opcode, modifiers, operands).prop_map(|(guard, opcode, modifiers, operands)| {
        let mut text = if guard { "@!%p1 ".to_owned() } else { String::new() };
        text.push_str(opcode.text());
        for modifier in modifiers {
            let _ = write!(text, ".{modifier}");
        }
        text + " " + &operands.join(", ") + ";\n"
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn soup_of_statements(statements in prop::collection::vec(statement(), 1..4)) {
        let body = statements.concat();
        decode(&format!(
            ".version 8.6\n.target sm_90a\n.global .u32 g;\n.const .u32 c;\n.extern .shared .b8 x[];\n\
             .func (.param .b32 o) f(.param .b32 a) {{ ret; }}\n\
             .entry k(.param .u64 p, .param .u32 n) {{\n{REGISTERS}.shared .u32 s; .local .u32 l;\n\
             T: .branchtargets L, T;\nP: .callprototype (.param .b32 _) _ (.param .b32 _);\nL:\n{body}}}\n"
        ));
    }

    #[test]
    fn mutated_files(file in any::<prop::sample::Index>(), edits in prop::collection::vec(
        (any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..4u8), 1..8)) {
        let texts = files::texts();
        let mut lines: Vec<&str> = texts[file.index(texts.len())].lines().collect();
        for (to, from, how) in edits {
            let (to, from) = (to.index(lines.len()), from.index(lines.len()));
            match how {
                0 => lines.swap(to, from),
                1 => lines[to] = lines[from],
                2 => lines[to] = "",
                _ => lines.insert(to, lines[from]),
            }
        }
        decode(&lines.join("\n"));
    }
}
