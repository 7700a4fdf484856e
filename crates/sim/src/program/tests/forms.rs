//! Every form of the table of legal instructions.

use std::collections::BTreeSet;

use tilewright_ptx::{
    Function, Item, Module, Names, Opcode, Registers, Space, Statement, StatementKind, Target, Type,
    Variable, Version, forms,
};

use super::super::{Kind, Program};

/// Forms of Hopper and before that are not executed, by the begin of their text in the table.
const NOT_SUPPORTED: &[&str] = &["multimem"];

/// A module with the instruction between the declarations that samples refer to.
fn around(names: &Names, instruction: &tilewright_ptx::Instruction) -> Module {
    let mut names = names.clone();
    let types = Type::ALL.iter().filter(|ty| ty.bits() <= 128);
    let mut body: Vec<Statement> =
        types.map(|&ty| Registers::counted(ty, names.intern(&format!("%{ty}_")), 400).into()).collect();
    body.push(Registers::named(Type::B64, [names.intern("%b64_address")]).into());
    body.push(Registers::named(Type::B32, [names.intern("%b32_address")]).into());
    body.push(
        StatementKind::Variable(Variable::new(Space::Param, Type::B64, names.intern("argument"))).into(),
    );
    body.push(StatementKind::Instruction(instruction.clone()).into());
    body.push(StatementKind::Label(names.intern("sample_label")).into());
    let parameter = Variable::new(Space::Param, Type::B64, names.intern("parameter"));
    let entry = Function { body: Some(body), ..Function::entry(names.intern("k"), vec![parameter]) };
    let variables = [(Space::Global, "variable"), (Space::Shared, "shared_variable")]
        .map(|(space, name)| Item::Variable(Variable::new(space, Type::B64, names.intern(name))));
    Module {
        version: Version::new(9, 0),
        target: Target::arch(90),
        options: Vec::new(),
        address_size: 64,
        names,
        items: variables.into_iter().chain([Item::Function(entry)]).collect(),
    }
}

#[test]
fn every_form_of_hopper_decodes() {
    let mut names = Names::default();
    let mut checked = BTreeSet::new();
    let mut missing = BTreeSet::new();
    for form in forms() {
        for sample in form.samples(&mut names) {
            let met = |need: &tilewright_ptx::Need| need.is_met_by(Version::new(9, 0), Target::arch(90));
            if !sample.needs.iter().any(met) {
                continue;
            }
            let module = around(&names, &sample.instruction);
            let program = Program::decode(&module, "").unwrap();
            checked.insert(form.opcode());
            for op in &program.functions[0].code {
                if let Kind::Unsupported(what) = &op.kind {
                    missing.insert(format!("{what}   ({})", form.text()));
                }
            }
        }
    }
    missing.retain(|what| !NOT_SUPPORTED.iter().any(|known| what.starts_with(&format!("`{known}"))));
    assert!(missing.is_empty(), "{}", missing.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(checked.len() > 90 && checked.contains(&Opcode::Wgmma), "{checked:?}");
}
