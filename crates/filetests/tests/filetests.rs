//! Runs every golden file under `files/`. The PTX in them is also assembled, where this machine has an assembler: no spills, and no
//! remark that multiplications were serialised.

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_filetests::{blessed, expected_ptx};
use tilewright_ptxas::{Assembler, REQUIRE_VARIABLE};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let ptx_files: Vec<PathBuf> =
        files.iter().filter(|path| path.starts_with(root.join("ptx"))).cloned().collect();
    let mut trials: Vec<Trial> = files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            Trial::test(name, move || check(&path, bless))
        })
        .collect();
    let missing =
        Assembler::find().is_err() && std::env::var_os(REQUIRE_VARIABLE).is_none_or(|value| value != "1");
    for path in ptx_files {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        trials.push(
            Trial::test(format!("assemble/{name}"), move || assemble(&path)).with_ignored_flag(missing),
        );
    }
    let count = trials.len();
    trials.push(Trial::test("there_are_files", move || {
        if count > 0 { Ok(()) } else { Err("no golden file found".into()) }
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "tw") {
            files.push(path);
        }
    }
}

fn check(path: &Path, bless: bool) -> Result<(), Failed> {
    let file = std::fs::read_to_string(path)?;
    let found = blessed(&file)?;
    if found == file {
        return Ok(());
    }
    if bless {
        std::fs::write(path, found)?;
        return Ok(());
    }
    Err(format!("{}\nBLESS=1 accepts what was found", difference(&file, &found)).into())
}

fn assemble(path: &Path) -> Result<(), Failed> {
    let Some((arch, ptx)) = expected_ptx(&std::fs::read_to_string(path)?) else { return Ok(()) };
    let report = Assembler::find()?.assemble(&ptx, &arch.to_string())?;
    let spills = report.entries.iter().any(|entry| entry.spill_store_bytes + entry.spill_load_bytes > 0);
    if report.entries.is_empty() || spills || !report.remarks.is_empty() {
        return Err(format!("spills: {spills}, remarks: {:?}", report.remarks).into());
    }
    Ok(())
}

/// The lines that differ, with what was expected and what was found.
fn difference(expected: &str, found: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let same_end =
        old[start..].iter().rev().zip(new[start..].iter().rev()).take_while(|(a, b)| a == b).count();
    let show =
        |sign: char, lines: &[&str]| lines.iter().map(|line| format!("{sign} {line}\n")).collect::<String>();
    format!(
        "from line {}:\n{}{}",
        start + 1,
        show('-', &old[start..old.len() - same_end]),
        show('+', &new[start..new.len() - same_end])
    )
}
