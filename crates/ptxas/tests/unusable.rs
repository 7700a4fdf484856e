//! Things that are not an assembler.

use std::path::Path;

use tilewright_ptxas::{Assembler, AssemblerError};

#[test]
fn a_missing_program_and_a_wrong_one_are_errors() {
    for path in ["/nonexistent/ptxas", "/bin/true", "/bin/ls", "/"] {
        let error = Assembler::at(Path::new(path)).expect_err(path);
        assert!(matches!(error, AssemblerError::Unusable { .. }), "{path}: {error}");
        assert!(!error.to_string().contains('\n'));
    }
}
