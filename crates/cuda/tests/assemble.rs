//! The kernels of the examples through the real assembler. Ignored, visibly, where there is none; `TILEWRIGHT_REQUIRE_PTXAS=1` makes
//! that a failure.

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kernels");
    let trials = files(&folder).into_iter().map(|path| {
        let name = path.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Trial::test(format!("assemble::{name}"), move || assemble(&path)).with_ignored_flag(ignored)
    });
    let mut trials: Vec<Trial> = trials.collect();
    let found = trials.len();
    trials.push(Trial::test("there_are_kernels", move || {
        if found == 0 { Err(format!("no kernels in {}", folder.display()).into()) } else { Ok(()) }
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The PTX files of a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let ptx = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "ptx");
    entries.map(|entry| entry.path()).filter(ptx).collect()
}

/// Assembles a file for the devices of today that it is for, without spills.
fn assemble(path: &Path) -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    let ptx = std::fs::read_to_string(path)?;
    let least = ptx.lines().find_map(|line| line.strip_prefix(".target sm_"));
    let least: u32 = least.ok_or("no target")?.trim_end_matches(['a', 'f']).parse()?;
    for (arch, number) in [("sm_80", 80), ("sm_90a", 90), ("sm_120a", 120)] {
        if number < least {
            continue;
        }
        let report = assembler.assemble(&ptx, arch)?;
        if report.entries.is_empty() {
            return Err(format!("no kernel for {arch}").into());
        }
        if let Some(entry) = report.entries.iter().find(|entry| entry.spill_store_bytes > 0) {
            return Err(format!("{} spills for {arch}", entry.name).into());
        }
    }
    Ok(())
}
