//! Registers and labels in scopes.

use super::super::{Kind, Op, PredSrc, Src};
use super::{kernel, module, ops};

fn kinds(code: Vec<Op>) -> Vec<Kind> {
    code.into_iter().map(|op| op.kind).collect()
}

fn mov(dst: u32, src: u64) -> Kind {
    Kind::Mov { dst, src: Src::Imm(src) }
}

#[test]
fn inner_registers_hide_outer_ones() {
    let f = kernel(
        ".reg .b32 %r<3>, x;\nmov.u32 %r1, 1; mov.u32 x, 2;\n{ .reg .b64 %r<2>; mov.u64 %r1, 3; mov.u32 %r2, 4;\n\
         { .reg .b32 x; mov.u32 x, 5; } mov.u32 x, 6; }\nmov.u32 %r1, 7;",
    );
    assert_eq!(f.register_bits, [32, 32, 64, 32, 32]);
    assert_eq!(
        kinds(f.code),
        [mov(0, 1), mov(1, 2), mov(2, 3), mov(3, 4), mov(4, 5), mov(1, 6), mov(0, 7), Kind::Exit]
    );
}

#[test]
fn only_what_is_used_takes_room() {
    let f = kernel(".reg .b32 %r<4000000000>; .reg .pred %p<9>; mov.u32 %r3999999999, 1; @%p7 bra L; L:");
    assert_eq!((f.registers, f.predicates), (1, 1));
}

#[test]
fn prefixes_may_end_in_digits() {
    let f = kernel(".reg .b32 %r1<3>; .reg .b64 %r<2>; mov.u32 %r12, 1; mov.u64 %r1, 2; mov.u32 %r10, 3;");
    assert_eq!(f.register_bits, [32, 64, 32]);
}

#[test]
fn vectors_and_wide_registers_are_consecutive() {
    let code = ops("mov.b128 %q1, {%rd1, %rd2}; mov.u32 %r1, %v.z; mov.b128 %q2, %q1; mov.u64 %rd1, %w.y;");
    assert_eq!(
        code,
        [
            Kind::Pack { dst: 0, parts: [Src::Reg(2), Src::Reg(3)].into_iter().collect(), bits: 64 },
            Kind::Mov { dst: 8, src: Src::Reg(6) },
            Kind::Mov { dst: 9, src: Src::Reg(0) },
            Kind::Mov { dst: 10, src: Src::Reg(1) },
            Kind::Mov { dst: 2, src: Src::Reg(12) },
        ]
    );
}

#[test]
fn labels_belong_to_their_block() {
    let wait = "{ .reg .pred p; W: bra.uni W; @p bra END; }";
    let f = kernel(&format!("{wait} {wait} END: bra W; W: ret;"));
    let bra = |target, uniform| Kind::Bra { target, uniform };
    assert_eq!(f.code[1].guard, Some(PredSrc::Reg { index: 0, negated: false }));
    assert_eq!(
        kinds(f.code),
        [bra(0, true), bra(4, false), bra(2, true), bra(4, false), bra(5, false), Kind::Exit]
    );
    assert_eq!(f.predicates, 2);
}

#[test]
fn unknown_names_are_errors() {
    let error = |body: &str| module(&format!(".entry k() {{\n{body}\n}}")).unwrap_err().to_string();
    for (body, name) in [
        (".reg .b32 %r<2>; mov.u32 %r1, %r2;", "%r2"),
        (".reg .b32 %r<20>; mov.u32 %r1, %r02;", "%r02"),
        ("{ .reg .b32 x; } { .reg .b32 y; mov.u32 y, x; }", "x"),
        ("bra NOWHERE;", "NOWHERE"),
        ("@%p ret;", "%p"),
        ("{ L: ret; } bra L;", "L"),
        ("call f;", "f"),
        (".param .b32 a; call f, (a, b);", "b"),
    ] {
        if name == "f" {
            // A function that is not there is said when it is called.
            assert!(module(&format!(".entry k() {{\n{body}\n}}")).is_ok());
            continue;
        }
        let expected = format!("line 5: `{name}` is not declared here");
        assert!(error(body).starts_with(&expected), "{body}: {}", error(body));
    }
    assert!(error("L: L: ret;").contains("`L` is defined a second time"));
    let twice = module(".func f() { ret; }\n.func f() { ret; }").unwrap_err().to_string();
    assert!(twice.starts_with("line 5: `f` is defined a second time"), "{twice}");
}
