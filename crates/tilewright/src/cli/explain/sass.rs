//! SASS, the GPU's own instructions: from the cubin of the assembler, by NVIDIA's disassembler, where a machine has one.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::Failure;

/// Names the disassembler to use.
pub(super) const VARIABLE: &str = "TILEWRIGHT_NVDISASM";

/// The disassembler: named by [`VARIABLE`], beside the assembler, on `PATH`, or in the toolkit of `CUDA_HOME` or `CUDA_PATH`.
pub(super) fn find(assembler: &Path) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()) {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(std::env::var_os);
    let name = if cfg!(windows) { "nvdisasm.exe" } else { "nvdisasm" };
    let beside = assembler.parent().map(Path::to_path_buf);
    beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(toolkits.map(|toolkit| Path::new(&toolkit).join("bin")))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The text of the code in a cubin. `-c` leaves out data, `-g` says which line of the PTX instructions come from.
pub(super) fn disassemble(disassembler: &Path, cubin: &[u8], flags: &[&str]) -> Result<String, Failure> {
    let folder = tempfile::tempdir().map_err(|error| Failure::Machine(error.to_string()))?;
    let file = folder.path().join("kernel.cubin");
    std::fs::write(&file, cubin).map_err(|error| Failure::file("writing", &file, &error))?;
    let output = Command::new(disassembler)
        .args(flags)
        .arg(&file)
        .output()
        .map_err(|error| Failure::file("running", disassembler, &error))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        let line = log.lines().next().unwrap_or("no message").to_owned();
        return Err(Failure::Machine(format!("{} failed: {line}", disassembler.display())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What to do where there is none.
pub(super) fn remedy() -> String {
    format!("`pip install nvidia-cuda-nvdisasm` and set {VARIABLE} to the nvdisasm in it")
}
