//! What rustc says about kernels that do not compile.
//!
//! The words are the compiler's as much as ours and change with it, so other versions than [`COMPILER`] ignore this test, visibly.
//! Regenerate with `TRYBUILD=overwrite`, then read what changed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Trial};

/// The version of rustc whose words are in `ui/*.stderr`.
const COMPILER: &str = "rustc 1.95.";

fn main() -> ExitCode {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output().expect("the compiler of this test");
    let other = !version.stdout.starts_with(COMPILER.as_bytes());
    let run = || {
        trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
        Ok(())
    };
    let trial = Trial::test("mistakes_in_kernels_are_explained", run).with_ignored_flag(other);
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
