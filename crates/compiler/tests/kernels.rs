//! Every kernel of the registry, for every chip it claims, through the assembler: no spills, no remarks, registers within budget.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_compiler::Compiler;
use tilewright_hardware::Arch;
use tilewright_kernels::{Entry, KERNELS};
use tilewright_ptxas::{Assembler, AssemblerError};

fn main() -> ExitCode {
    let assembler = Assembler::find();
    if let (Err(problem), Ok("1")) =
        (&assembler, std::env::var(tilewright_ptxas::REQUIRE_VARIABLE).as_deref())
    {
        eprintln!("error: {problem}");
        return ExitCode::FAILURE;
    }
    let missing = assembler.is_err();
    let assembler: Option<&'static Assembler> = assembler.ok().map(|a| &*Box::leak(Box::new(a)));
    let mut trials = Vec::new();
    for entry in KERNELS {
        for arch in entry.architectures() {
            let name = format!("{}::{arch}", entry.name);
            let run = move || assembles(entry, arch, assembler.expect("not ignored"));
            trials.push(Trial::test(name, run).with_ignored_flag(missing));
        }
    }
    trials.push(Trial::test("refusals_point_at_rust", refusals_point_at_rust));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn assembles(entry: &Entry, arch: Arch, assembler: &Assembler) -> Result<(), Failed> {
    let kernel = (entry.stage)().map_err(|error| error.to_string())?;
    for line_info in [false, true] {
        let build =
            Compiler::new(arch).line_info(line_info).compile(kernel.func()).map_err(|e| e.to_string())?;
        let report = match assembler.assemble(&build.code.text, &arch.to_string()) {
            Ok(report) => report,
            Err(AssemblerError::Refused { message, .. }) => {
                let blame: Vec<String> = build.blame(&message).iter().map(ToString::to_string).collect();
                return Err(format!("{message}\n{}\n{}", blame.join("\n"), build.code.text).into());
            }
            Err(other) => return Err(other.to_string().into()),
        };
        let [used] = &report.entries[..] else {
            return Err(format!("{} entries", report.entries.len()).into());
        };
        if !report.remarks.is_empty() {
            return Err(format!("remarks: {:?}\n{}", report.remarks, build.code.text).into());
        }
        if used.spill_store_bytes + used.spill_load_bytes + used.stack_bytes > 0
            || used.registers > entry.registers
        {
            return Err(
                format!("{used:?}, allowed are {} registers and nothing else", entry.registers).into()
            );
        }
    }
    Ok(())
}

/// A message about a line of PTX becomes a message about the Rust that it came from.
fn refusals_point_at_rust() -> Result<(), Failed> {
    let kernel = (KERNELS[0].stage)().map_err(|error| error.to_string())?;
    let build = Compiler::new(Arch::SM_80).compile(kernel.func()).map_err(|e| e.to_string())?;
    let line = build.code.text.lines().position(|line| line.contains("add.rn.f32")).unwrap() + 1;
    let log = format!(
        "ptxas x.ptx, line {line}; error   : Arguments mismatch for instruction 'add'\nptxas fatal   : stop"
    );
    let [diagnostic] = &build.blame(&log)[..] else { return Err("expected one message".into()) };
    let location = diagnostic.location.as_deref().unwrap_or("");
    assert!(location.contains("elementwise.rs:"), "{diagnostic}");
    assert!(diagnostic.message.ends_with("Arguments mismatch for instruction 'add'"), "{diagnostic}");
    assert!(diagnostic.notes.iter().any(|note| note.contains("add.rn.f32")), "{diagnostic}");
    let reproducer = build.reproducer(&log);
    let again = tilewright_ir::parse(&reproducer).unwrap();
    assert_eq!(again.funcs[0], build.func, "the reproducer is IR that can be read back");
    Ok(())
}
