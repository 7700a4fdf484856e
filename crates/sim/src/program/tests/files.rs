//! Whole files of several compilers.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::super::Program;
use super::unsupported;

/// All PTX files below a folder, sorted; none if it does not exist.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn corpus() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = files(&here.join("../ptx/tests/data"));
    assert!(found.len() > 5, "the files of the parser's tests are missing");
    found.extend(files(&here.join("tests/corpus/ptx")));
    found
}

/// The texts of the smaller files.
pub(super) fn texts() -> &'static [String] {
    static TEXTS: OnceLock<Vec<String>> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let texts = corpus().into_iter().map(|path| std::fs::read_to_string(path).unwrap());
        texts.filter(|text| text.len() < 60_000).collect()
    })
}

#[test]
fn every_instruction_of_the_corpus_decodes() {
    let mut missing = Vec::new();
    for path in corpus() {
        let text = std::fs::read_to_string(&path).unwrap();
        let module = tilewright_ptx::parse(&text).unwrap();
        let program =
            Program::decode(&module, &text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for function in &program.functions {
            assert!(!function.code.is_empty());
            assert_eq!(function.lines.len(), function.code.len());
            assert_eq!(function.sources.len(), function.code.len());
            let mut order = function.order.clone();
            order.sort_unstable();
            assert!(order.iter().zip(0..).all(|(a, b)| *a == b), "the order is a permutation");
            assert!(function.live_registers <= 2 * function.registers);
        }
        missing.extend(unsupported(&program).into_iter().map(|what| format!("{}: {what}", path.display())));
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}
