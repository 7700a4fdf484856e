//! Every op in every form, judged by the assembler. Ignored, visibly, where there is none.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod snippets;

use std::collections::{BTreeMap, BTreeSet};

use libtest_mimic::{Arguments, Failed, Trial};
use snippets::Snippet;
use tilewright_codegen::{Compiled, Options, compile};
use tilewright_hardware::Arch;
use tilewright_ir::{Group, Opcode, parse, table::TABLE, verify};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let mut trials: Vec<Trial> = snippets::ALL
        .iter()
        .map(|&arch| {
            Trial::test(format!("snippets_for_{arch}"), move || assembles(arch)).with_ignored_flag(ignored)
        })
        .collect();
    trials.push(Trial::test("no_op_is_missing", no_op_is_missing));
    trials.push(Trial::test("what_is_too_new_is_refused", what_is_too_new_is_refused));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn build(snippet: &Snippet, arch: Arch) -> Result<Compiled, String> {
    let module =
        parse(&snippet.text).map_err(|error| format!("{}: {error}\n{}", snippet.name, snippet.text))?;
    let problems = verify(&module);
    if let Some(problem) = problems.first() {
        return Err(format!("{}: {problem}\n{}", snippet.name, snippet.text));
    }
    compile(&module.funcs[0], &Options::new(arch)).map_err(|error| format!("{}: {error}", snippet.name))
}

/// Functions with the same version and target go to the assembler together.
fn assembles(arch: Arch) -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    let mut batches: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    let mut failures = Vec::new();
    for (i, snippet) in
        snippets::all().iter().enumerate().filter(|(_, snippet)| snippet.archs.contains(&arch))
    {
        match build(snippet, arch) {
            Err(error) => failures.push(error),
            Ok(compiled) => {
                let problems = tilewright_ptx::check(&compiled.module);
                if let Some(problem) = problems.first() {
                    failures.push(format!("{}: {problem}", snippet.name));
                }
                let (head, body) = split(&compiled.text);
                let body = body.replace(" smem", &format!(" smem{i}"));
                batches.entry(head).or_default().push((snippet.name.clone(), body));
            }
        }
    }
    for (head, functions) in batches {
        let text: String =
            std::iter::once(head.as_str()).chain(functions.iter().map(|(_, body)| body.as_str())).collect();
        match assembler.assemble(&text, &arch.to_string()) {
            Ok(report) => {
                failures.extend(report.remarks.iter().map(|remark| format!("{head}: {remark}")));
                let spilled = report
                    .entries
                    .iter()
                    .filter(|entry| entry.spill_store_bytes + entry.spill_load_bytes > 0);
                failures.extend(spilled.map(|entry| format!("{} spills", entry.name)));
            }
            // One by one, to name the culprits.
            Err(_) => {
                for (name, body) in functions {
                    if let Err(error) = assembler.assemble(&format!("{head}{body}"), &arch.to_string()) {
                        failures.push(format!("{name}: {error}\n{body}"));
                    }
                }
            }
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = failures.iter().take(40).cloned().collect();
    Err(format!("{} failures on {arch}\n{}", failures.len(), shown.join("\n")).into())
}

/// Version, target and address size; and the rest.
fn split(text: &str) -> (String, String) {
    let (head, body): (Vec<&str>, Vec<&str>) = text
        .lines()
        .partition(|line| [".version", ".target", ".address_size"].iter().any(|word| line.starts_with(word)));
    (head.join("\n") + "\n", body.join("\n") + "\n")
}

fn no_op_is_missing() -> Result<(), Failed> {
    let mut seen: BTreeSet<Opcode> = BTreeSet::new();
    for snippet in snippets::all() {
        let module =
            parse(&snippet.text).map_err(|error| format!("{}: {error}\n{}", snippet.name, snippet.text))?;
        let func = &module.funcs[0];
        seen.extend(func.walk().into_iter().map(|op| func.op(op).code));
    }
    // Calls are inlined before; that they are refused is tested with the errors.
    seen.insert(Opcode::Call);
    // Tiles become threads before, too.
    let ours = TABLE.iter().filter(|row| row.group != Group::Program);
    let missing: Vec<&str> = ours.filter(|row| !seen.contains(&row.code)).map(|row| row.mnemonic).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("no snippet has {}", missing.join(", ")).into()) }
}

/// A snippet that does not claim sm_80 must be refused there, with the name of what it needs.
fn what_is_too_new_is_refused() -> Result<(), Failed> {
    let mut failures = Vec::new();
    for snippet in snippets::all().iter().filter(|snippet| !snippet.archs.contains(&Arch::SM_80)) {
        match build(snippet, Arch::SM_80) {
            Ok(compiled) => failures.push(format!("{}: compiles for sm_80\n{}", snippet.name, compiled.text)),
            Err(error) if error.contains("needs sm_") || error.contains("bytes of sm_80") => {}
            Err(error) => failures.push(error),
        }
    }
    if failures.is_empty() {
        Ok(())
    } else {
        Err(format!("{} failures\n{}", failures.len(), failures.join("\n")).into())
    }
}
