//! Every kernel of an operator becomes PTX for every chip.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tilewright_compiler::Compiler;
use tilewright_kernels::ops::OPERATORS;
use tilewright_ptx::parse;

#[test]
fn every_operator_compiles_for_every_chip() {
    for entry in OPERATORS {
        let kernel = (entry.stage)().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(entry.name, kernel.name());
        assert!(kernel.func().is_tile_level(), "{}", entry.name);
        for arch in entry.architectures() {
            let build = Compiler::new(arch).compile(kernel.func());
            let build = build.unwrap_or_else(|error| panic!("{} for {arch}: {error}", entry.name));
            let signatures = parse(&build.code.text).unwrap().signatures();
            assert_eq!(signatures.len(), 1, "{} for {arch}", entry.name);
        }
    }
}
