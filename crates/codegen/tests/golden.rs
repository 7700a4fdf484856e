//! The PTX of a few whole kernels, compared with files. `BLESS=1` writes the files anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use tilewright_codegen::{Options, compile};
use tilewright_hardware::Arch;
use tilewright_ir::{parse, verify};

#[test]
fn kernels_become_the_ptx_in_the_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("BLESS").is_some_and(|value| value == "1");
    let mut names: Vec<_> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tw"))
        .collect();
    names.sort();
    assert!(names.len() >= 7, "the inputs are missing");
    for path in names {
        let text = std::fs::read_to_string(&path).unwrap();
        let module = parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(verify(&module), [], "{}", path.display());
        let compiled = compile(&module.funcs[0], &Options::new(Arch::SM_90A)).unwrap();
        let again = compile(&module.funcs[0], &Options::new(Arch::SM_90A)).unwrap();
        assert_eq!(compiled.text, again.text, "the text is not stable");
        assert_eq!(tilewright_ptx::parse(&compiled.text).unwrap(), compiled.module, "text and tree differ");
        let expected = path.with_extension("ptx");
        if bless {
            std::fs::write(&expected, &compiled.text).unwrap();
        }
        let expected = std::fs::read_to_string(&expected).unwrap_or_default();
        assert!(
            compiled.text == expected,
            "{}: the PTX has changed; look at it and run with BLESS=1 if it is right\n{}",
            path.display(),
            compiled.text
        );
    }
}
