//! PTX that NVRTC, nvcc and Triton wrote: it is read, printed, read again, and found legal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use tilewright_ptx::{Module, check, parse, requirements};

fn files() -> Vec<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut files: Vec<PathBuf> = ["nvrtc", "nvcc", "triton"]
        .iter()
        .flat_map(|folder| std::fs::read_dir(data.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    files.sort();
    files
}

fn read(path: &Path) -> (String, Module) {
    let text = std::fs::read_to_string(path).unwrap();
    let module = parse(&text).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
    (text, module)
}

#[test]
fn it_is_read_and_survives_printing() {
    assert_eq!(files().len(), 10);
    for path in files() {
        let (_, module) = read(&path);
        let printed = module.to_string();
        let again = parse(&printed).unwrap_or_else(|error| panic!("{}: {error}\n{printed}", path.display()));
        assert!(again == module, "{} changed", path.display());
        assert_eq!(again.to_string(), printed);
    }
}

#[test]
fn it_is_legal_as_it_is_and_after_lowering() {
    for path in files() {
        let (_, mut module) = read(&path);
        assert_eq!(check(&module), [], "{}", path.display());
        let before = (module.version, module.target);
        let needed = module.lower_to_minimum();
        assert!(
            (needed.version, needed.target.sm) <= (before.0, before.1.sm),
            "{}: {needed:?}",
            path.display()
        );
        assert_eq!(check(&module), [], "{}: {needed:?}", path.display());
        assert_eq!(requirements(&module), needed);
    }
}

#[test]
fn lowering_finds_the_known_minimum() {
    let minimum = |name: &str| {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        let needed = requirements(&read(&data.join(name)).1);
        format!("{} {}", needed.version, needed.target)
    };
    assert_eq!(minimum("triton/matmul_sm80.ptx"), "7.0 sm_80");
    assert_eq!(minimum("triton/matmul_sm90.ptx"), "8.0 sm_90a");
    assert_eq!(minimum("triton/scaled_add_sm90.ptx"), "6.0 sm_50");
    // `cp.async` with a prefetch size, and `.loc` with `inlined_at`.
    assert_eq!(minimum("nvrtc/sm_80.ptx"), "7.4 sm_80");
}

#[test]
fn statements_know_their_lines() {
    for path in files() {
        let (text, module) = read(&path);
        let lines: Vec<&str> = text.lines().collect();
        let mut seen = 0;
        for statement in module.statements() {
            if let tilewright_ptx::StatementKind::Instruction(instruction) = &statement.kind {
                let line = lines[statement.line.0 as usize - 1];
                assert!(line.contains(instruction.opcode.text()), "{}: {line}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 10);
    }
}
