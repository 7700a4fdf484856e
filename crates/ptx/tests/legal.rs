//! Modules judged by the table.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tilewright_ptx::{
    Fault, Function, Instruction, Item, Module, Names, Problem, Registers, Statement, Target, Type, Version,
    check, forms, parse, requirements,
};

const REGISTERS: &str =
    ".reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n.reg .pred %p<9>;\n.reg .b16 %h<9>;";

fn module(head: &str, statements: &str) -> Module {
    let text = format!(
        "{head}\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n{REGISTERS}\n{statements}\n}}\n"
    );
    parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn problems(statements: &str) -> Vec<Problem> {
    check(&module(".version 9.0\n.target sm_90a", statements))
}

fn needed(statements: &str) -> String {
    let needed = requirements(&module(".version 9.0\n.target sm_90a", statements));
    format!("{} {}", needed.version, needed.target)
}

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("add.sat.u32 %r1, %r2, %r3;", "`.sat` does not fit"),
        ("add.f32 %f1, %f2;", "operand 3 is missing"),
        ("add.f32 %f1, %f2, %f3, %f4;", "4 operands are given, 3 fit"),
        ("add.f32 %f1, %f2, 1;", "operand 3: this constant does not fit type f32"),
        ("add.u32 %f1, %r1, %r1;", "operand 1: a register of type f32 does not fit type u32"),
        ("add.u32 %r1, %r1, %r9;", "operand 3: `%r9` is not a declared register"),
        ("add.u32 %r1, %r01, %r2;", "operand 2: `%r01` is not a declared register"),
        ("add.u32 7, %r1, %r2;", "operand 1: expected a register of type u32"),
        ("add.u32 %r1, %tid.x, %r2;", "operand 2: expected a register of type u32"),
        ("ld.global.v4.f32 {%f1, %f2}, [%rd1];", "operand 1: 2 elements are given, 4 fit"),
        ("ld.global.v4.b64 {%rd1, %rd2, %rd3}, [%rd1];", "operand 1: a vector has more than 128 bits"),
        ("ld.global.f32 %f1, %rd1;", "operand 2: expected an address"),
        ("ld.global.f32 %f1, [%f2];", "operand 2: expected an address in an integer register"),
        ("lop3.b32 %r1, %r2, %r3, %r4, 256;", "operand 5: expected another constant"),
        ("setp.eq.f32 %r1, %f1, %f2;", "operand 1: a register of type b32 does not fit type pred"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 8;", "operand 3: expected another constant"),
        ("mul.lo %r1, %r2, %r3;", "a modifier is missing"),
        (
            "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f1}, %rd1, %rd1, %p1, 1, 1, 0, 0;",
            "`.m64n12k16` does not fit",
        ),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3}, %rd1, %rd1, %p1, 1, 1, 0, 0;",
            "operand 1: 3 elements are given, 4 fit",
        ),
        ("mov.u64 %rd1, %tid.x;", "operand 2: expected a special register of this size"),
        ("elect.sync %r1, -1;", "operand 1: a predicate behind `|` is missing"),
        ("@%r1 ret;", "the guard `%r1` is not a predicate register"),
    ];
    for (text, expected) in cases {
        let found = problems(text);
        let [Problem { line, text: shown, fault: Fault::Form { reason, .. } }] = &found[..] else {
            panic!("{text}: {found:?}")
        };
        assert_eq!((reason.as_str(), shown.as_str(), *line), (expected, text, 11), "{text}");
    }
}

#[test]
fn all_problems_are_listed() {
    let statements =
        "add.rn.u32 %r1, %r1, 1;\nsetmaxnreg.dec.sync.aligned.u32 24;\nmov.u32 %r1, %cluster_ctarank;";
    let found = check(&module(".version 7.0\n.target sm_80", statements));
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].contains("`.rn` does not fit; the nearest form is `add"), "{}", texts[0]);
    assert!(
        texts[1].contains("needs .version 8.0 and .target sm_90a, or .version 8.6 and .target sm_100a"),
        "{}",
        texts[1]
    );
    assert!(
        texts[2].contains("needs .version 7.8 and .target sm_90; the module has .version 7.0"),
        "{}",
        texts[2]
    );
}

#[test]
fn modifiers_may_come_in_any_order_behind_the_name_of_the_operation() {
    for text in [
        "atom.global.gpu.acq_rel.add.u32 %r1, [%rd1], %r2;",
        "atom.global.add.u32.gpu %r1, [%rd1], %r2;",
        "ld.global.acquire.gpu.b32 %r1, [%rd1];",
        "add.ftz.rn.f32 %f1, %f1, %f1;",
        "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.s8 {%r1, %r2, %r3, %r4}, %rd1, %rd2, 1;",
    ] {
        assert_eq!(problems(text), [], "{text}");
    }
    for text in [
        "mbarrier.arrive.shared.expect_tx.b64 _, [%rd1], %r1;",
        "cvt.s32.rn.f32 %r1, %f1;",
        "cp.bulk.async.commit_group;",
    ] {
        assert_eq!(problems(text).len(), 1, "{text}");
    }
}

#[test]
fn a_version_too_low_for_the_target_is_a_problem() {
    let found = check(&module(".version 7.8\n.target sm_90a", "ret;"));
    assert_eq!(
        found[0].to_string(),
        "line 0: `.target sm_90a`: needs .version 8.0 and .target sm_90a; \
         the module has .version 7.8 and .target sm_90a"
    );
}

#[test]
fn the_lowest_version_and_the_plainest_target_are_found() {
    let cases = [
        ("add.f32 %f1, %f2, %f3;", "6.0 sm_50"),
        ("fma.rn.bf16 %h1, %h2, %h3, %h4;", "7.0 sm_80"),
        ("add.bf16 %h1, %h2, %h3;", "7.8 sm_90"),
        ("ld.global.L2::128B.f32 %f1, [%rd1];", "7.4 sm_75"),
        ("ld.global.L2::cache_hint.f32 %f1, [%rd1], %rd2;", "7.4 sm_80"),
        ("cp.async.bulk.commit_group;", "8.0 sm_90"),
        ("wgmma.fence.sync.aligned;", "8.0 sm_90a"),
        ("setmaxnreg.inc.sync.aligned.u32 240;", "8.0 sm_90a"),
        // On sm_89 it came later than on sm_90; the plainer target wins.
        ("cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;", "8.1 sm_89"),
        ("cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2; add.bf16 %h1, %h2, %h3;", "7.8 sm_90"),
        ("mov.u32 %r1, %cluster_ctarank;", "7.8 sm_90"),
        (".reg .b128 %q; mov.b128 %q, {%rd1, %rd2};", "8.3 sm_70"),
        ("{ .reg .b16 %r<3>; fma.rn.bf16 %r1, %r2, %r2, %r1; }", "7.0 sm_80"),
        (".loc 1 2 3, function_name x, inlined_at 1 2 3", "7.2 sm_50"),
    ];
    for (text, expected) in cases {
        assert_eq!(needed(text), expected, "{text}");
        assert_eq!(problems(text), [], "{text}");
    }
    // An architecture-specific module keeps its own target where that is needed at all.
    let mut own = module(".version 9.0\n.target sm_120a", "setmaxnreg.inc.sync.aligned.u32 240;");
    let lowered = own.lower_to_minimum();
    assert_eq!((lowered.version, lowered.target), (Version::new(8, 7), Target::arch(120)));
}

#[test]
fn directives_and_parameters_raise_the_minimum() {
    let minimum = |text: &str| {
        let needed = requirements(&parse(&format!(".version 9.0\n.target sm_90a\n{text}")).unwrap());
        format!("{} {}", needed.version, needed.target)
    };
    assert_eq!(minimum(".entry k() { ret; }"), "6.0 sm_50");
    assert_eq!(minimum(".entry k() .reqnctapercluster 2, 1, 1 { ret; }"), "7.8 sm_90");
    assert_eq!(minimum(".entry k() .maxclusterrank 8 { ret; }"), "7.8 sm_90");
    assert_eq!(minimum(".entry k(.param .align 8 .b8 a[4352]) { ret; }"), "6.0 sm_50");
    assert_eq!(minimum(".entry k(.param .u8 b, .param .align 8 .b8 a[4352]) { ret; }"), "8.1 sm_70");
    assert_eq!(minimum(".global .b128 wide;"), "8.3 sm_70");
}

#[test]
fn samples_are_legal_with_what_they_need_and_not_with_less() {
    let mut names = Names::default();
    let mut count = 0;
    for form in forms() {
        for sample in form.samples(&mut names) {
            let mut module = around(sample.instruction, &names);
            for need in &sample.needs {
                (module.version, module.target) = (need.version.max(need.target.since()), need.target);
                assert_eq!(check(&module), [], "{}", form.text());
            }
            (module.version, module.target) = (Version::new(5, 0), Target::plain(50));
            let faults: Vec<Fault> = check(&module).into_iter().map(|problem| problem.fault).collect();
            assert!(matches!(&faults[..], [.., Fault::TooLow { .. }]), "{}: {faults:?}", form.text());
            count += 1;
        }
    }
    assert!(count > 4000, "{count}");
}

/// A module with a sample in it; the registers of samples carry their type in their name.
fn around(instruction: Instruction, names: &Names) -> Module {
    let mut names = names.clone();
    // A register of 128 bits has a need of its own.
    let uses_b128 = instruction.display(&names).to_string().contains("%b128_");
    let types = Type::ALL.iter().filter(|ty| **ty != Type::B128 || uses_b128);
    let registers = types.map(|&ty| Registers::counted(ty, names.intern(&format!("%{ty}_")), 200));
    let mut body: Vec<Statement> = registers.map(Statement::from).collect();
    let address = names.intern("%b64_address");
    body.push(Registers::named(Type::B64, [address]).into());
    let address = names.intern("%b32_address");
    body.push(Registers::named(Type::B32, [address]).into());
    body.push(instruction.into());
    let kernel = names.intern("kernel");
    let function = Function { body: Some(body), ..Function::entry(kernel, Vec::new()) };
    Module {
        version: Version::new(9, 0),
        target: Target::plain(50),
        options: Vec::new(),
        address_size: 64,
        names,
        items: vec![Item::Function(function)],
    }
}
