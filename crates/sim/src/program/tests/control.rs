//! Labels, calls, notes, places.

use super::super::{Callee, Kind, Op, Passed, PredSrc, Source, Space, Src, window};
use super::{kernel, module, ops, unsupported};

#[test]
fn returns_of_kernels_are_exits_and_the_end_is_one() {
    let f = kernel(".reg .pred %p; @%p ret; @!%p exit; bra L; L:");
    let guard = |negated| Some(PredSrc::Reg { index: 0, negated });
    assert_eq!(
        f.code,
        [
            Op { guard: guard(false), kind: Kind::Exit },
            Op { guard: guard(true), kind: Kind::Exit },
            Op { guard: None, kind: Kind::Bra { target: 3, uniform: false } },
            Op { guard: None, kind: Kind::Exit },
        ]
    );
    let program = module(".func f() { ret; }\n.func g() { .reg .pred %p; @%p ret; }").unwrap();
    assert_eq!(program.functions[0].code.len(), 1);
    assert_eq!(program.functions[0].code[0].kind, Kind::Ret);
    assert_eq!(program.functions[1].code[1], Op { guard: None, kind: Kind::Ret });
    assert!(!program.functions[0].entry && program.entry("f").is_none());
}

#[test]
fn plain_control() {
    assert_eq!(
        ops("trap; brkpt; nanosleep.u32 20; griddepcontrol.wait; griddepcontrol.launch_dependents;"),
        [
            Kind::Trap,
            Kind::Brkpt,
            Kind::Nanosleep,
            Kind::GridDependency { wait: true },
            Kind::GridDependency { wait: false },
        ]
    );
}

#[test]
fn notes_stand_where_their_labels_do() {
    let f = kernel(
        ".reg .b32 %r<3>; .reg .pred %p;\nmov.u32 %r1, 1;\n$trace0$x_20_7B_7D$$u32$r1$$u32$nowhere:\n\
         @%p bra $OK;\n$assert1$bad:\ntrap;\n$OK: ret;",
    );
    let Kind::Note(trace) = &f.code[1].kind else { panic!("{:?}", f.code) };
    assert_eq!((trace.note.text.as_str(), &trace.registers), ("x {}", &vec![vec![0], vec![]]));
    let Kind::Note(assertion) = &f.code[3].kind else { panic!("{:?}", f.code) };
    assert_eq!(assertion.note.kind, tilewright_ptx::NoteKind::Assert);
    assert_eq!(f.code[2].kind, Kind::Bra { target: 5, uniform: false });
    assert_eq!(f.code[4].kind, Kind::Trap);
}

#[test]
fn places_come_from_lines_and_locations() {
    let program = module(
        ".file 1 \"a.cu\"\n.visible .entry k()\n{\n.reg .b32 %r<3>;\nmov.u32 %r1, 1; // one\n.loc 1 7 3\n\
         mov.u32 %r2,\n\t2;\n.loc 1 9 1, function_name x+4, inlined_at 1 7 5\nret;\n}\n",
    )
    .unwrap();
    let f = &program.functions[0];
    assert_eq!(program.files.get(&1).map(String::as_str), Some("a.cu"));
    assert_eq!(f.lines, [8, 10, 13]);
    let place = |line, column| Some(Source { file: 1, line, column });
    assert_eq!(f.sources, [None, place(7, 3), place(9, 1)]);
    assert_eq!(f.instruction_text(0), "mov.u32 %r1, 1;");
    assert_eq!(f.instruction_text(1), "mov.u32 %r2, 2;");
    assert_eq!(f.instruction_text(99), "");
}

#[test]
fn calls_pass_bytes_from_frame_to_frame() {
    let program = module(
        ".func (.param .b32 out) f(.param .b64 a, .param .align 8 .b8 b[12]) { ret; }\n\
         .visible .entry k() {\n.reg .b32 %r<3>;\n{ .param .b64 x; .param .align 8 .b8 y[12]; .param .b32 z;\n\
         st.param.b64 [x], 5; st.param.b32 [y+8], 6; call.uni (z), f, (x, y); ld.param.b32 %r1, [z]; }\nret; }",
    )
    .unwrap();
    let (f, k) = (&program.functions[0], &program.functions[1]);
    let offsets: Vec<_> =
        f.returns.iter().chain(&f.params).map(|param| (param.offset, param.bytes)).collect();
    assert_eq!(offsets, [(0, 4), (32, 8), (64, 12)]);
    assert_eq!(f.frame_bytes % 16, 0);
    let locals: Vec<_> =
        k.locals.iter().map(|local| (local.name.as_str(), local.offset, local.bytes)).collect();
    assert_eq!(locals, [("x", 0, 8), ("y", 32, 12), ("z", 64, 4)]);
    let Kind::Store { access, src } = &k.code[1].kind else { panic!("{:?}", k.code) };
    assert_eq!((access.space, access.address.base, access.address.offset), (Space::Local, Src::Frame(32), 8));
    assert_eq!(src.as_slice(), [Src::Imm(6)]);
    assert_eq!(
        k.code[2].kind,
        Kind::Call {
            callee: Callee::Direct(0),
            arguments: vec![
                Passed::Bytes { from: 0, to: 32, bytes: 8 },
                Passed::Bytes { from: 32, to: 64, bytes: 12 },
            ],
            results: vec![Passed::Bytes { from: 0, to: 64, bytes: 4 }],
        }
    );
}

#[test]
fn calls_pass_registers() {
    let program = module(
        ".func (.reg .b32 out) f(.reg .b32 a, .reg .b64 b) { mov.u32 out, a; ret; }\n\
         .func (.param .b32 out) g(.param .b32 a) { ret; }\n\
         .visible .entry k() {\n.reg .b32 %r<3>; .reg .pred %p;\nmov.u32 %r1, 1;\ncall (%r2), f, (%r1, 7);\n\
         @%p call (%r2), g, (%r1);\nret; }",
    )
    .unwrap();
    let k = &program.functions[2];
    assert_eq!(
        k.code[1].kind,
        Kind::Call {
            callee: Callee::Direct(0),
            arguments: vec![
                Passed::Register { from: Src::Reg(0), to: 1 },
                Passed::Register { from: Src::Imm(7), to: 2 },
            ],
            results: vec![Passed::Register { from: Src::Reg(0), to: 1 }],
        }
    );
    // A register for a parameter in memory goes through the frame, under the same guard.
    let guard = Some(PredSrc::Reg { index: 0, negated: false });
    assert!(k.code[2..5].iter().all(|op| op.guard == guard));
    assert!(matches!(&k.code[2].kind, Kind::Store { access, .. } if access.address.base == Src::Frame(0)));
    assert!(matches!(&k.code[4].kind, Kind::Load { access, .. } if access.address.base == Src::Frame(32)));
    assert_eq!(
        k.code[3].kind,
        Kind::Call {
            callee: Callee::Direct(1),
            arguments: vec![Passed::Bytes { from: 0, to: 32, bytes: 4 }],
            results: vec![Passed::Bytes { from: 0, to: 32, bytes: 4 }],
        }
    );
    assert_eq!(program.functions[0].code[0].kind, Kind::Mov { dst: 0, src: Src::Reg(1) });
}

#[test]
fn indirect_calls_go_by_position() {
    let program = module(
        ".func (.param .b32 out) f(.param .b64 a) { ret; }\n.alias h, f;\n\
         .visible .entry k() {\n.reg .b64 %rd<3>; .param .b64 x; .param .b32 z;\nmov.u64 %rd1, f;\n\
         P: .callprototype (.param .b32 _) _ (.param .b64 _);\ncall (z), %rd1, (x), P;\n\
         T: .calltargets f;\ncall (z), %rd1, (x), T;\ncall (z), h, (x);\ncall (z), %rd1, (x);\nret; }",
    )
    .unwrap();
    let code = &program.functions[1].code;
    assert_eq!(code[0].kind, Kind::Mov { dst: 0, src: Src::Imm(window::function_address(0)) });
    assert_eq!(program.function_at(window::function_address(0)), Some(0));
    assert_eq!(program.function_at(window::function_address(2)), None);
    let callee = Callee::Indirect { address: Src::Reg(0), arguments: vec![(0, 8)], results: vec![(32, 4)] };
    let call = Kind::Call { callee, arguments: vec![], results: vec![] };
    assert_eq!((&code[1].kind, &code[2].kind), (&call, &call));
    assert!(matches!(&code[3].kind, Kind::Call { callee: Callee::Direct(0), .. }));
    assert!(matches!(&code[4].kind, Kind::Unsupported(what) if what.contains("callprototype")));
}

#[test]
fn functions_of_the_driver() {
    let program = module(
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n\
         .extern .func (.param .b64 r) malloc(.param .b64 s);\n.extern .func free(.param .b64 a);\n\
         .extern .func other();\n\
         .visible .entry k() {\n.param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;\n\
         call.uni (c), vprintf, (a, b); call.uni __assertfail, (a, b, c, d, e); call.uni (b), malloc, (a);\n\
         call.uni free, (a); call.uni other; ret; }",
    )
    .unwrap();
    let callees: Vec<_> = program.functions[0]
        .code
        .iter()
        .filter_map(|op| match &op.kind {
            Kind::Call { callee, .. } => Some(callee.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(
        callees,
        [
            Callee::Printf { format: 0, arguments: 32, result: Some(64) },
            Callee::AssertFail([0, 32, 64, 96]),
            Callee::Malloc(0, 32),
            Callee::Free(0),
        ]
    );
    assert_eq!(unsupported(&program), ["12: `call.uni` of undefined function `other`"]);
}
