//! Runs every golden file under `files/`.

use std::path::{Path, PathBuf};

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_filetests::blessed;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("files");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let mut trials: Vec<Trial> = files
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            Trial::test(name, move || check(&path, bless))
        })
        .collect();
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
