//! Parameters and variables: where they lie, and what they start with.

use tilewright_hardware::Arch;

use super::super::{Kind, MemorySpace, Program, Space, Src, window};
use super::{kernel, module};

fn decoded(items: &str) -> Program {
    module(items).unwrap_or_else(|error| panic!("{error}\n{items}"))
}

fn bytes(items: &str) -> Vec<u8> {
    decoded(items).variables.remove(0).init
}

#[test]
fn kernel_parameters_are_packed() {
    let program = decoded(
        ".entry k(.param .u8 a, .param .u64 b, .param .align 64 .b8 c[128], .param .u16 d, .param .v4 .f32 e) {\n\
         .reg .b64 %rd<3>; .reg .b32 %r<3>;\nld.param.u64 %rd1, [b]; mov.b64 %rd2, c; ld.param.u32 %r1, [%rd2+4];\n\
         cvta.param.u64 %rd1, %rd2; ret; }",
    );
    let k = &program.functions[0];
    let places: Vec<_> = k.params.iter().map(|param| (param.offset, param.bytes, param.align)).collect();
    assert_eq!(places, [(0, 1, 1), (8, 8, 8), (64, 128, 64), (192, 2, 2), (208, 16, 16)]);
    assert_eq!(k.param_bytes, 224);
    let Kind::Load { access, .. } = &k.code[0].kind else { panic!() };
    assert_eq!((access.space, access.address.base), (Space::Param, Src::Imm(8)));
    assert_eq!(k.code[1].kind, Kind::Mov { dst: 1, src: Src::Imm(64) });
    let Kind::Load { access, .. } = &k.code[2].kind else { panic!() };
    assert_eq!((access.space, access.address.base, access.address.offset), (Space::Param, Src::Reg(1), 4));
    assert_eq!(k.code[3].kind, Kind::Cvta { dst: 0, src: Src::Reg(1), space: Space::Param, to_space: false });
}

#[test]
fn parameters_of_functions_are_local() {
    let program = decoded(
        ".func f(.param .align 8 .b8 a[16]) { .reg .b64 %rd<3>; .reg .b32 %r<2>; mov.b64 %rd1, a;\n\
         ld.param.u32 %r1, [%rd1+4]; ld.param.u32 %r1, [a+8]; cvta.param.u64 %rd2, a; ret; }",
    );
    let f = &program.functions[0];
    assert_eq!(f.code[0].kind, Kind::Mov { dst: 0, src: Src::Frame(0) });
    for (at, base) in [(1, Src::Reg(0)), (2, Src::Frame(0))] {
        let Kind::Load { access, .. } = &f.code[at].kind else { panic!() };
        assert_eq!((access.space, access.address.base), (Space::Local, base));
    }
    assert_eq!(
        f.code[3].kind,
        Kind::Cvta { dst: 2, src: Src::Frame(0), space: Space::Local, to_space: false }
    );
}

#[test]
fn locals_have_gaps() {
    let f = kernel(
        ".local .align 4 .b8 a[20]; .reg .b64 %rd<2>; { .local .align 64 .b8 b[8]; mov.u64 %rd1, b; }\n\
         st.local.u32 [a+16], 1; .local .u32 c; st.u32 [c], 2;",
    );
    let locals: Vec<_> = f.locals.iter().map(|local| (local.offset, local.bytes)).collect();
    assert_eq!(locals, [(0, 20), (64, 8), (96, 4)]);
    assert_eq!(f.frame_bytes, 128);
    assert_eq!(f.code[0].kind, Kind::Mov { dst: 0, src: Src::Frame(64) });
    let Kind::Store { access, .. } = &f.code[2].kind else { panic!() };
    assert_eq!((access.space, access.address.base), (Space::Local, Src::Frame(96)));
}

#[test]
fn shared_variables_follow_each_other() {
    let program = decoded(
        ".shared .align 4 .b8 a[6];\n.shared .align 8 .b64 unused;\n.extern .shared .align 1024 .b8 x[];\n\
         .extern .shared .b8 y[];\n\
         .entry k() { .shared .align 16 .b8 b[100]; .reg .b64 %rd<3>; .reg .b32 %r<3>;\n\
         mov.u32 %r1, a; mov.u64 %rd1, b; mov.u32 %r2, b+4; mov.u32 %r1, x; mov.u32 %r2, y; cvta.shared.u64 %rd2, a;\n\
         ld.shared.u8 %r1, [a+3]; ld.u8 %r1, [a]; ret; }",
    );
    let k = &program.functions[0];
    let shared: Vec<_> = k.shared.iter().map(|v| (v.name.as_str(), v.offset, v.bytes)).collect();
    // 1024 + 6 bytes + 128 of gap, aligned to 16.
    assert_eq!(shared, [("a", 1024, 6), ("b", 1168, 100)]);
    let dynamic = k.dynamic.as_ref().unwrap();
    assert_eq!((dynamic.name.as_str(), dynamic.offset, dynamic.align), ("x", 2048, 1024));
    assert_eq!((k.shared_bytes, k.shared_end), (116, 2048));
    let sources: Vec<_> = k
        .code
        .iter()
        .filter_map(|op| match &op.kind {
            Kind::Mov { src, .. } | Kind::Cvta { src, .. } => Some(*src),
            Kind::Load { access, .. } => {
                assert_eq!(access.space, Space::SharedCta);
                Some(access.address.base)
            }
            _ => None,
        })
        .collect();
    assert_eq!(sources, [1024, 1168, 1172, 2048, 2048, 1024, 1024, 1024].map(Src::Shared));
}

#[test]
fn kernels_share_a_placement_only_through_functions() {
    let program = decoded(
        ".shared .b32 a[100];\n.shared .b32 b[100];\n\
         .func f() { .reg .b32 %r; mov.u32 %r, b; ret; }\n\
         .entry one() { .reg .b32 %r; mov.u32 %r, a; call f; ret; }\n\
         .entry two() { .reg .b32 %r; call f; mov.u32 %r, b; ret; }\n\
         .entry three() { .reg .b32 %r; mov.u32 %r, b; ret; }\n.entry four() { ret; }",
    );
    let offset = |function: usize, name: &str| {
        let shared = &program.functions[function].shared;
        shared.iter().find(|variable| variable.name == name).map(|variable| variable.offset)
    };
    assert_eq!((offset(0, "a"), offset(0, "b")), (None, Some(1552)));
    assert_eq!((offset(1, "a"), offset(1, "b")), (Some(1024), Some(1552)));
    assert_eq!((offset(2, "a"), offset(2, "b")), (None, Some(1552)));
    assert_eq!((offset(3, "a"), offset(3, "b")), (None, Some(1024)));
    assert_eq!((program.functions[2].shared_bytes, program.functions[1].shared_bytes), (400, 800));
    assert_eq!((program.functions[4].shared_end, program.functions[3].shared_end), (1024, 1424));
    assert_eq!(program.functions[3].code[0].kind, Kind::Mov { dst: 0, src: Src::Shared(1024) });
    assert_eq!(program.functions[2].code[1].kind, Kind::Mov { dst: 0, src: Src::Shared(1552) });
}

#[test]
fn calls_through_registers_reach_all_functions() {
    let program = decoded(
        ".shared .b32 a;\n.shared .b32 b;\n.func f() { .reg .b32 %r; mov.u32 %r, b; ret; }\n\
         .entry other() { .reg .b32 %r; mov.u32 %r, a; ret; }\n\
         .entry k(.param .u64 p) { .reg .b64 %rd; ld.param.u64 %rd, [p]; P: .callprototype _ (); call %rd, (), P; }",
    );
    let names = |function: usize| {
        program.functions[function].shared.iter().map(|v| v.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!((names(1), names(2)), (vec!["a"], vec!["b"]));
}

#[test]
fn variables_in_global_and_constant_memory() {
    let program = decoded(
        ".global .u32 a = 7;\n.const .align 4 .b8 c[300];\n.global .align 512 .b8 d[10];\n.const .f32 e = 0f3F800000;\n\
         .entry k() { .global .u16 inner = 3; .reg .b64 %rd<3>; .reg .b32 %r<3>; mov.u64 %rd1, d+2;\n\
         ld.const.u32 %r1, [c+4]; ld.global.u32 %r1, [a]; mov.u64 %rd2, inner; atom.add.u32 %r2, [a], 1; ret; }",
    );
    let places: Vec<_> =
        program.variables.iter().map(|v| (v.name.as_str(), v.space, v.address, v.bytes)).collect();
    assert_eq!(
        places,
        [
            ("a", MemorySpace::Global, window::GLOBAL, 4),
            ("c", MemorySpace::Const, window::CONST, 300),
            ("d", MemorySpace::Global, window::GLOBAL + 512, 10),
            ("e", MemorySpace::Const, window::CONST + 768, 4),
            ("inner", MemorySpace::Global, window::GLOBAL + 1024, 2),
        ]
    );
    assert_eq!(program.variables[3].init, 1f32.to_le_bytes());
    let code = &program.functions[0].code;
    assert_eq!(code[0].kind, Kind::Mov { dst: 0, src: Src::Imm(window::GLOBAL + 514) });
    let Kind::Load { access, .. } = &code[1].kind else { panic!() };
    assert_eq!((access.space, access.address.base), (Space::Const, Src::Imm(window::CONST)));
    assert_eq!(code[3].kind, Kind::Mov { dst: 2, src: Src::Imm(window::GLOBAL + 1024) });
    let Kind::Atomic { access, .. } = &code[4].kind else { panic!() };
    assert_eq!(access.space, Space::Global);
}

#[test]
fn initial_values() {
    assert_eq!(bytes(".global .b8 s[6] = {104, 105, 255};"), [104, 105, 255, 0, 0, 0]);
    assert_eq!(bytes(".global .b8 s[] = {1, 2, 3};"), [1, 2, 3]);
    assert_eq!(bytes(".global .u16 x[2][2] = {{1}, {2, 3}};"), [1, 0, 0, 0, 2, 0, 3, 0]);
    assert_eq!(bytes(".global .u16 x[2][2] = {1, 2, 3};"), [1, 0, 2, 0, 3, 0, 0, 0]);
    assert_eq!(bytes(".global .v2 .u8 x[2] = {{1, 2}, {3}};"), [1, 2, 3, 0]);
    assert_eq!(bytes(".global .s32 x = -2;"), (-2i32).to_le_bytes());
    assert_eq!(bytes(".global .f64 x = 0d3FF8000000000000;"), 1.5f64.to_le_bytes());
    // Also of what is declared later, with offsets, and byte by byte.
    let y = window::GLOBAL + 512;
    assert_eq!(
        bytes(".global .u64 x[2] = {0, generic(y)+4};\n.global .u32 y[9];")[8..],
        (y + 4).to_le_bytes()
    );
    assert_eq!(bytes(".global .b8 x[2] = {0xFF(y), 0xFF00(y)};\n.global .u32 y;"), [0, 2]);
    let function = window::function_address(1).to_le_bytes();
    assert_eq!(bytes(".func f() { ret; }\n.func g() { ret; }\n.global .u64 x = g;"), function);
}

#[test]
fn what_cannot_be_is_an_error() {
    let error = |items: &str| module(items).unwrap_err().to_string();
    for (items, expected) in [
        (".global .u32 x[2] = {1, 2, 3};", "has 3 values where 2 have room"),
        (".global .u64 x = y;\n.shared .u32 y;", "address of something that has none"),
        (".global .u32 x = {{1}};", "nests lists deeper"),
        (".global .b8 x[0xFFFFFFFFFFFFFFFF];", "has no size that fits"),
        (".global .b64 x[0x4000000000000000];", "has no size that fits"),
        (".global .b8 x[];", "has no size that fits"),
        (".shared .b8 x[20000000];\n.entry k() { .reg .b32 %r; mov.u32 %r, x; }", "has no size that fits"),
        (".entry k(.param .b8 x[99999999]) { ret; }", "has no size that fits"),
        (".entry k() { .local .b8 x[99999999]; ret; }", "has no size that fits"),
        (".global .align 3 .b8 x;", "has alignment 3"),
        (".entry k() { .local .align 0 .b8 x; ret; }", "has alignment 0"),
        (".global .u32 x;\n.global .u32 x;", "line 5: `x` is defined a second time"),
        (
            ".extern .global .u32 x;\n.entry k() { .reg .b64 %r; mov.u64 %r, x; }",
            "line 5: `x` is declared but not defined",
        ),
    ] {
        assert!(error(items).contains(expected), "{items}: {}", error(items));
    }
    decoded(".extern .global .u32 x;\n.entry k() { ret; }");
    let program = decoded(".extern .global .u32 x;\n.global .u32 x = 5;\n.extern .global .u32 x;");
    assert_eq!(program.variables.len(), 1);
}

#[test]
fn limits_of_launches() {
    let program = decoded(
        ".entry k() .reqntid 32, 2 .maxntid 128 .minnctapersm 2 .maxnreg 64 .reqnctapercluster 2 .explicitcluster \
         { ret; }",
    );
    let limits = &program.functions[0].limits;
    assert_eq!(limits.required_threads, Some([32, 2, 1]));
    assert_eq!(limits.max_threads, Some([128, 1, 1]));
    assert_eq!(limits.required_cluster, Some([2, 1, 1]));
    assert_eq!((limits.min_blocks, limits.max_registers, limits.explicit_cluster), (Some(2), Some(64), true));
}

#[test]
fn the_assembler_keeps_to_the_registers_that_directives_leave() {
    let used = |directives: &str| {
        let mut program = decoded(&format!(".entry k() {directives} {{ ret; }}"));
        program.functions[0].live_registers = 500;
        program.functions[0].assembled_registers(Arch::SM_90A)
    };
    for (directives, expected) in [
        ("", 255),
        (".reqntid 128", 255),
        (".reqntid 384", 168),
        (".maxntid 32, 12", 168),
        // Thirteen warps are four in one of the partitions.
        (".reqntid 416", 128),
        (".reqntid 1024", 64),
        (".reqntid 128 .minnctapersm 4", 128),
        (".reqntid 384 .maxnreg 40", 40),
    ] {
        assert_eq!(used(directives), expected, "{directives}");
    }
}

#[test]
fn live_registers_are_counted_at_the_fullest_place() {
    let live = |body: &str| kernel(&format!("{}{body}", super::REGISTERS)).live_registers;
    assert_eq!(live("mov.u32 %r1, 1; mov.u32 %r2, 2; add.u32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3;"), 4);
    // The same with reuse: the sum takes the place of an operand.
    assert_eq!(live("mov.u32 %r1, 1; add.u32 %r1, %r1, 1; add.u32 %r1, %r1, 1;"), 1);
    assert_eq!(live("mov.u64 %rd1, 1; mov.u32 %r1, 2; st.global.u32 [%rd1], %r1;"), 3);
    // A value that the loop reads stays alive all around it; so does what a guarded write may leave.
    let around = "mov.u32 %r1, 1; L: mov.u32 %r2, 2; mov.u32 %r3, %r2; @%p1 bra L; mov.u32 %r4, %r1;";
    assert_eq!(live(around), 2);
    assert_eq!(live("mov.u32 %r1, 1; mov.u32 %r2, 1; @%p1 mov.u32 %r1, %r2; mov.u32 %r3, %r1;"), 2);
    assert_eq!(live("mov.u32 %r1, 1; mov.u32 %r2, 1; mov.u32 %r1, %r2; mov.u32 %r3, %r1;"), 1);
}
