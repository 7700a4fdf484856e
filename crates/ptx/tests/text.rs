//! Text to tree and back: whatever a tree holds survives printing, and errors say where and what.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use proptest::sample::{Index, select};
use tilewright_ptx::{
    Address, Component, Directive, Function, FunctionKind, Guard, Immediate, Initializer, Inlined,
    Instruction, Item, Line, Linkage, Location, Modifier, Module, Names, Opcode, Operand, Pointer, PtxError,
    RegisterName, Registers, Shape, Space, SpecialRegister, Statement, StatementKind, Symbol, Target,
    TargetOption, Type, Variable, VectorLength, Version, forms, parse,
};

const HEAD: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n";

fn body(statements: &str) -> String {
    format!("{HEAD}.visible .entry k(.param .u64 p)\n{{\n{statements}\n}}\n")
}

fn first_instruction(text: &str) -> (Instruction, Module) {
    let module = parse(&body(text)).unwrap_or_else(|error| panic!("{text}: {error}"));
    let found = module.statements().find_map(|statement| match &statement.kind {
        StatementKind::Instruction(instruction) => Some(instruction.clone()),
        _ => None,
    });
    (found.expect(text), module)
}

#[test]
fn errors_say_where_what_was_found_and_what_was_expected() {
    let cases = [
        ("", "1:1: found the end of the text, expected `.version`, with which a module begins"),
        (".version x", "1:10: found `x`, expected a version such as `8.0`"),
        (".version 8.0\n.target gfx90", "2:9: found `gfx90`, expected a target such as `sm_80`, or `debug`"),
        (".version 8.0 .target debug", "1:27: found the end of the text, expected a target such as `sm_80`"),
    ];
    for (text, expected) in cases {
        assert_eq!(parse(text).unwrap_err().to_string(), expected);
    }
    let cases = [
        ("ad.u32 %r1, %r2;", "6:1: found `ad`, expected an instruction"),
        ("add.u33 %r1, %r2;", "6:4: found `.u33`, expected a modifier of PTX"),
        ("add.u32 %r1 %r2;", "6:13: found `%r2`, expected `,` or `;`"),
        ("add.u32 %r1, ;", "6:14: found `;`, expected an operand"),
        ("  ld.u32 %r1, [%r2;", "6:19: found `;`, expected `,`, `+` or `]`"),
        ("mov.f32 %f1, 0f3F80;", "6:14: found `0f3F80`, expected a number"),
        ("mov.u32 %r1, 99999999999999999999;", "6:14: found `99999999999999999999`, expected a number"),
        ("mov.u32 %r1, %r2.q;", "6:17: found `.q`, expected a component such as `.x`"),
        (".reg .b32 %r<-1>;", "6:14: found `-`, expected a number that is not negative"),
        (".reg %r;", "6:6: found `%r`, expected the type of a register"),
        (".shared .align 4 x;", "6:18: found `x`, expected a type such as `.u64`"),
        (".pragma nounroll;", "6:9: found `nounroll`, expected a string"),
        (".pragma \"nounroll;", "6:9: found a string without an end, expected `\"` on the same line"),
        ("/* ret;", "6:1: found a comment without an end, expected `*/`"),
        ("@%p1 .reg .b32 %r1;", "6:6: found `.reg`, expected an instruction"),
        ("mov.u32 %r1, é;", "6:14: found `\\u{e9}`, expected PTX, which is ASCII"),
        ("ret", "7:1: found `}`, expected an operand"),
        (".nonsense 3;", "6:1: found `.nonsense`, expected a declaration such as `.reg` or `.shared`"),
    ];
    for (text, expected) in cases {
        let error = parse(&body(text)).expect_err(text);
        assert_eq!(error.to_string(), expected, "{text}");
        assert!(matches!(error, PtxError::Syntax { .. }));
    }
}

#[test]
fn nesting_is_limited() {
    for (open, close) in [("{", "}"), ("mov.b32 %r1, {", "};")] {
        let text = body(&format!("{}{}", open.repeat(100_000), close.repeat(100_000)));
        assert!(parse(&text).is_err());
    }
    assert!(parse(&body(&format!("{}ret;{}", "{".repeat(60), "}".repeat(60)))).is_ok());
}

#[test]
fn numbers_are_read_in_every_notation() {
    let cases = [
        ("12", Immediate::Int(12)),
        ("-12", Immediate::Int(-12)),
        ("0x1F", Immediate::Int(31)),
        ("017", Immediate::Int(15)),
        ("0b101", Immediate::Int(5)),
        ("12U", Immediate::Unsigned(12)),
        ("0xFFFFFFFFFFFFFFFF", Immediate::Unsigned(u64::MAX)),
        ("-9223372036854775808", Immediate::Int(i64::MIN)),
        ("0f3F800000", Immediate::F32(0x3F80_0000)),
        ("0d3FF0000000000000", Immediate::F64(0x3FF0_0000_0000_0000)),
        ("1.5", Immediate::F64(1.5f64.to_bits())),
        ("-2.5e-3", Immediate::F64((-2.5e-3f64).to_bits())),
        ("WARP_SZ", Immediate::WarpSize),
    ];
    for (text, expected) in cases {
        let (instruction, module) = first_instruction(&format!("mov.b64 %rd1, {text};"));
        assert_eq!(instruction.operands[1], Operand::Immediate(expected), "{text}");
        assert_eq!(parse(&module.to_string()).unwrap(), module, "{text}");
    }
}

#[test]
fn operands_of_every_shape_are_read() {
    let shapes = [
        ("mov.u32 %r1, %tid.x;", 1, Operand::Special(SpecialRegister::TidX)),
        ("mov.u32 %r1, %laneid;", 1, Operand::Special(SpecialRegister::Laneid)),
        ("mov.u32 %r1, %envreg31;", 1, Operand::Special(SpecialRegister::Envreg31)),
        ("ld.u32 %r1, [16];", 1, Operand::Address(Address { base: None, offset: 16 })),
        ("elect.sync _|%p1, -1;", 1, Operand::Immediate(Immediate::Int(-1))),
        ("mov.b32 {_, %h1}, %r1;", 1, Operand::Symbol(Symbol(3))),
    ];
    for (text, at, expected) in shapes {
        assert_eq!(first_instruction(text).0.operands[at], expected, "{text}");
    }
    let (instruction, module) = first_instruction("ld.global.f32 %f1, [%rd1+-4];");
    let base = module.names.get("%rd1");
    assert_eq!(instruction.operands[1], Operand::Address(Address { base, offset: -4 }));
    assert_eq!(instruction.display(&module.names).to_string(), "ld.global.f32 %f1, [%rd1+-4];");
    for text in [
        "@!%p2 bra.uni $L1;",
        "add.f32 %v.x, %v.y, %v.w;",
        "setp.lt.and.s32 %p1|%p2, %r1, 5, !%p3;",
        "mov.u64 %rd1, table+8;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd1, %rd2, %p1, 1, 1, 0, 0;",
        "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [texture, sampler, {%f4, %f5}];",
        "call.uni (result), function, (first, second);",
        "call (result), %rd1, (first), prototype;",
        "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r3];",
        "barrier.cluster.arrive.release.aligned;",
    ] {
        let (instruction, module) = first_instruction(text);
        assert_eq!(instruction.display(&module.names).to_string(), text);
    }
}

#[test]
fn declarations_and_directives_survive() {
    let text = "\
.version 8.7
.target sm_90a, debug
.address_size 64
.file 1 \"kernel.cu\", 1700000000, 1234
.pragma \"nounroll\";
.extern .shared .align 16 .b8 dynamic[];
.visible .global .attribute(.managed) .align 4 .u32 counter = 7;
.const .align 8 .b8 table[2][3] = {{1, 2, 3}, {255U, 5}};
.global .align 8 .u64 pointers[3] = {counter, generic(counter)+4, 255(counter)};
.global .v4 .f32 vector = {0f3F800000, 0d3FF0000000000000};
.weak .func (.param .b32 result) callee(
	.param .b32 first,
	.reg .b64 %second
)
.noreturn
;
.visible .entry kernel(
	.param .u64 .ptr .global .align 16 data,
	.param .align 64 .b8 map[128]
)
.maxntid 128, 1, 1
.minnctapersm 1
.reqnctapercluster 2, 1, 1
{
	.reg .b32 %r<10>;
	.reg .v4 .f32 %v, %w;
	.local .align 4 .b8 stack[16];
	.loc 1 5 3, function_name $name+12, inlined_at 1 10 2
	.pragma \"nounroll\";
	{
		.param .b32 argument;
		st.param.b32 [argument], %r1;
	inner:
		ret;
	}
targets:
	.branchtargets a, b;
	brx.idx %r1, targets;
prototype:
	.callprototype (.param .b32 _) _ (.param .b64 _) .noreturn;
functions:
	.calltargets callee;
	ret;
}
.alias other, callee;
.section .debug_str
{
text:
.b8 1, 2
}
";
    let module = parse(text).unwrap();
    let printed = module.to_string();
    let squeeze =
        |text: &str| text.lines().filter(|line| !line.is_empty()).map(str::to_string).collect::<Vec<_>>();
    assert_eq!(squeeze(&printed), squeeze(text));
    assert_eq!(parse(&printed).unwrap(), module);
}

#[test]
fn lines_are_known_and_do_not_count() {
    let text = body("// comment\nadd.u32 %r1, %r2, 3;\n\n/* two\nlines */ ret;");
    let mut module = parse(&text).unwrap();
    let lines: Vec<u32> = module.statements().map(|statement| statement.line.0).collect();
    assert_eq!(lines, [7, 10]);
    let read = module.clone();
    module.number_lines();
    assert_eq!(module, read);
    let printed = module.print();
    for (index, statement) in module.statements().enumerate() {
        assert_eq!(printed.lines[index], statement.line.0);
        assert_eq!(printed.statement_at(statement.line.0), Some(index));
    }
    let line = printed.text.lines().nth(printed.lines[1] as usize - 1);
    assert_eq!(line, Some("\tret;"));
}

#[test]
fn modules_differ_by_names_and_structure_only() {
    let a = parse(&body("add.u32 %r1, %r2, %r2;")).unwrap();
    assert_eq!(a, parse(&body("add.u32\t%r1,%r2 , %r2 ; // same")).unwrap());
    for other in ["add.u32 %r1, %r2, %r1;", "add.u32 %r3, %r2, %r2;", "add.s32 %r1, %r2, %r2;", ""] {
        assert_ne!(a, parse(&body(other)).unwrap(), "{other}");
    }
}

/// What random modules are made from.
struct Material {
    names: Names,
    symbols: Vec<Symbol>,
    instructions: Vec<Instruction>,
}

fn material() -> Material {
    let mut names = Names::default();
    let symbols =
        ["%r1", "%rd7", "$L__BB0_1", "_under", "x", "%p_0", "variable$1"].map(|text| names.intern(text));
    let mut instructions: Vec<Instruction> = Vec::new();
    for form in forms() {
        instructions.extend(form.samples(&mut names).into_iter().map(|sample| sample.instruction));
    }
    Material { names, symbols: symbols.to_vec(), instructions }
}

fn symbol() -> impl Strategy<Value = Symbol> {
    (0..7u32).prop_map(Symbol)
}

fn immediate() -> impl Strategy<Value = Immediate> {
    prop_oneof![
        any::<i64>().prop_map(Immediate::Int),
        any::<u64>().prop_map(Immediate::Unsigned),
        any::<u32>().prop_map(Immediate::F32),
        any::<u64>().prop_map(Immediate::F64),
        Just(Immediate::WarpSize),
    ]
}

fn operand() -> impl Strategy<Value = Operand> {
    let leaf = prop_oneof![
        symbol().prop_map(Operand::Symbol),
        (symbol(), select(vec![Component::X, Component::W, Component::R, Component::B3, Component::H1]))
            .prop_map(|(symbol, component)| Operand::Element(symbol, component)),
        (symbol(), any::<i64>().prop_filter("zero is no offset", |offset| *offset != 0))
            .prop_map(|(symbol, offset)| Operand::Offset(symbol, offset)),
        select(SpecialRegister::ALL.to_vec()).prop_map(Operand::Special),
        immediate().prop_map(Operand::Immediate),
        (proptest::option::of(symbol()), any::<i64>())
            .prop_map(|(base, offset)| Operand::Address(Address { base, offset })),
        symbol().prop_map(Operand::Not),
        (proptest::option::of(symbol()), proptest::option::of(symbol()))
            .prop_map(|(first, second)| Operand::Pair(first, second)),
        Just(Operand::Sink),
    ];
    leaf.prop_recursive(2, 12, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Operand::List),
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Operand::Group),
            proptest::collection::vec(inner, 2..4).prop_map(Operand::Tuple),
        ]
    })
}

fn modifier() -> impl Strategy<Value = Modifier> {
    prop_oneof![
        select(Modifier::PLAIN.to_vec()),
        select(Type::ALL.to_vec()).prop_map(Modifier::Type),
        (1..300u16, 1..300u16, 0..300u16).prop_map(|(m, n, k)| Modifier::Shape(Shape { m, n, k })),
    ]
}

fn instruction(material: &'static Material) -> impl Strategy<Value = Instruction> {
    let guard = || proptest::option::of((any::<bool>(), symbol()));
    let made = (
        select(Opcode::ALL.to_vec()),
        proptest::collection::vec(modifier(), 0..10),
        proptest::collection::vec(operand(), 0..6),
    )
        .prop_map(|(opcode, modifiers, operands)| Instruction::new(opcode, &modifiers, operands));
    let sampled = any::<Index>().prop_map(|index| index.get(&material.instructions).clone());
    (guard(), prop_oneof![made, sampled]).prop_map(|(guard, mut instruction)| {
        instruction.guard = guard.map(|(negated, register)| Guard { negated, register });
        instruction
    })
}

fn initializer() -> impl Strategy<Value = Initializer> {
    let leaf = prop_oneof![
        immediate().prop_map(Initializer::Value),
        (any::<bool>(), proptest::option::of(any::<u64>()), symbol(), any::<i64>()).prop_map(
            |(generic, mask, symbol, offset)| Initializer::Address { generic, mask, symbol, offset }
        ),
    ];
    leaf.prop_recursive(2, 8, 4, |inner| proptest::collection::vec(inner, 0..4).prop_map(Initializer::List))
}

fn variable(spaces: Vec<Space>) -> impl Strategy<Value = Variable> {
    let linkage = proptest::option::of(select(vec![Linkage::Visible, Linkage::Extern, Linkage::Weak]));
    let vector = proptest::option::of(select(vec![VectorLength::V2, VectorLength::V4]));
    let dims = proptest::collection::vec(proptest::option::of(1..1000u64), 0..3);
    let storage = (proptest::option::of(1..256u32), vector, dims, proptest::option::of(initializer()));
    (select(spaces), select(Type::ALL.to_vec()), symbol(), linkage, storage).prop_map(
        |(space, ty, name, linkage, (align, vector, dims, initializer))| Variable {
            linkage,
            align,
            vector,
            dims,
            initializer,
            ..Variable::new(space, ty, name)
        },
    )
}

fn parameter() -> impl Strategy<Value = Variable> {
    let pointer =
        (proptest::option::of(select(vec![Space::Global, Space::Shared])), proptest::option::of(1..64u32))
            .prop_map(|(space, align)| Pointer { space, align });
    (variable(vec![Space::Param, Space::Reg]), proptest::option::of(pointer))
        .prop_map(|(variable, pointer)| Variable { linkage: None, initializer: None, pointer, ..variable })
}

fn statement(material: &'static Material) -> impl Strategy<Value = Statement> {
    let inlined = (symbol(), any::<u32>(), 0..9u32, 0..9u32, 0..9u32).prop_map(
        |(function, offset, file, line, column)| Inlined {
            function,
            offset: offset.into(),
            file,
            line,
            column,
        },
    );
    let location = (0..9u32, 0..99u32, 0..99u32, proptest::option::of(inlined))
        .prop_map(|(file, line, column, inlined)| Location { file, line, column, inlined });
    let name =
        (symbol(), proptest::option::of(any::<u32>())).prop_map(|(name, count)| RegisterName { name, count });
    let registers = (select(Type::ALL.to_vec()), proptest::collection::vec(name, 1..4))
        .prop_map(|(ty, names)| Registers { vector: None, ty, names });
    let symbols = || proptest::collection::vec(symbol(), 1..4);
    let prototype =
        (proptest::collection::vec(parameter(), 0..2), proptest::collection::vec(parameter(), 0..3))
            .prop_map(|(returns, params)| StatementKind::CallPrototype {
                returns,
                params,
                directives: vec![Directive::NoReturn],
            });
    let leaf = prop_oneof![
        8 => instruction(material).prop_map(StatementKind::Instruction),
        1 => symbol().prop_map(StatementKind::Label),
        1 => registers.prop_map(StatementKind::Registers),
        1 => variable(vec![Space::Shared, Space::Local, Space::Param]).prop_map(StatementKind::Variable),
        1 => location.prop_map(StatementKind::Location),
        1 => Just(StatementKind::Pragma(vec!["nounroll".into(), "with \\\"quotes\\\"".into()])),
        1 => symbols().prop_map(StatementKind::BranchTargets),
        1 => symbols().prop_map(StatementKind::CallTargets),
        1 => prototype,
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        proptest::collection::vec(inner, 0..4).prop_map(|kinds| {
            let line = Line::default();
            StatementKind::Block(kinds.into_iter().map(|kind| Statement { line, kind }).collect())
        })
    })
    .prop_map(|kind| Statement { line: Line::default(), kind })
}

fn function(material: &'static Material) -> impl Strategy<Value = Function> {
    let extents = || (1..99u32, 1..99u32, 1..99u32).prop_map(|(x, y, z)| [x, y, z]);
    let directive = prop_oneof![
        extents().prop_map(Directive::MaxThreads),
        extents().prop_map(Directive::RequiredThreads),
        extents().prop_map(Directive::RequiredCluster),
        any::<u32>().prop_map(Directive::MaxRegisters),
        any::<u32>().prop_map(Directive::MinBlocks),
        Just(Directive::ExplicitCluster),
        Just(Directive::Pragma(vec!["x".into()])),
    ];
    let params = || proptest::collection::vec(parameter(), 0..4);
    let kind = select(vec![FunctionKind::Entry, FunctionKind::Func]);
    let body = proptest::option::of(proptest::collection::vec(statement(material), 0..12));
    (kind, symbol(), params(), params(), proptest::collection::vec(directive, 0..3), body).prop_map(
        |(kind, name, returns, params, directives, body)| Function {
            line: Line::default(),
            linkage: Some(Linkage::Visible),
            kind,
            returns: if kind == FunctionKind::Func { returns } else { Vec::new() },
            name,
            params,
            directives,
            body,
        },
    )
}

fn module() -> impl Strategy<Value = Module> {
    static MATERIAL: std::sync::OnceLock<Material> = std::sync::OnceLock::new();
    let material = MATERIAL.get_or_init(material);
    assert!(material.symbols.iter().enumerate().all(|(i, symbol)| symbol.0 as usize == i));
    let item = prop_oneof![
        3 => function(material).prop_map(Item::Function),
        1 => variable(vec![Space::Global, Space::Const, Space::Shared]).prop_map(Item::Variable),
        1 => (symbol(), symbol()).prop_map(|(alias, aliasee)| Item::Alias { alias, aliasee }),
        1 => (0..9u32, proptest::option::of((any::<u64>(), any::<u64>())))
            .prop_map(|(index, stamp)| Item::File { index, path: "a b.cu".into(), stamp }),
        1 => Just(Item::Section { name: ".debug_abbrev".into(), text: "\n.b8 1\nlabel:\n.b8 2\n".into() }),
    ];
    let target = select(Target::all().collect::<Vec<_>>());
    let options =
        proptest::collection::vec(select(vec![TargetOption::Debug, TargetOption::TexmodeUnified]), 0..2);
    (0..10u8, 0..10u8, target, options, proptest::collection::vec(item, 0..4)).prop_map(
        move |(major, minor, target, options, items)| Module {
            version: Version::new(major, minor),
            target,
            options,
            address_size: 64,
            names: material.names.clone(),
            items,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printing_and_reading_gives_the_same_tree(module in module()) {
        let printed = module.print();
        let again = parse(&printed.text).map_err(|error| TestCaseError::fail(format!("{error}\n{}", printed.text)))?;
        prop_assert!(again == module, "{}", printed.text);
        prop_assert_eq!(&again.to_string(), &printed.text);
        let lines: Vec<u32> = again.statements().map(|statement| statement.line.0).collect();
        prop_assert_eq!(lines, printed.lines);
    }

    #[test]
    fn no_text_panics(text in "[ -~\n]{0,200}", cut in 0..2000usize) {
        let _ = parse(&text);
        let _ = parse(&body(&text));
        let whole = body("@!%p1 mad.lo.u32 %r1, {%v.x, _}, [a+4, {1, 2}], !p|q; .loc 1 2 3 .reg .b32 %r<5>;");
        let _ = parse(&whole[..cut.min(whole.len())]);
    }
}
