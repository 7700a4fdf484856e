//! `cargo xtask gpu-pack`: builds what needs a GPU, strips and compresses it, and puts it in one folder with its runner.
//!
//! Limits: for the machine's own architecture and C library; the other machine's C library must not be older. What the programs read
//! must be in them (`include_str!`) or named as data in the table: one that names a path of this checkout is reported.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::cargo::{BuildTarget, Workspace};
use crate::runner;
use crate::targets::{self, Item};

/// More than this is slow to copy, and a sign of something that should not be in there.
const LARGE: u64 = 60 << 20;

/// What `gpu-pack` is told.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The folder to fill; what a pack had there before is removed [default: target/gpu-pack].
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// The profile to build with.
    #[arg(long, default_value = "release")]
    profile: String,
    /// Features to build with, as cargo takes them, such as tilewright-cuda/nvrtc.
    #[arg(long)]
    features: Option<String>,
    /// Only programs whose name contains this.
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Says what would be packed, and what each program proves; builds nothing.
    #[arg(long)]
    list: bool,
}

/// Does it.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let workspace = Workspace::load()?;
    let items = targets::select(&workspace.targets, options.only.as_deref())?;
    if options.list {
        for item in &items {
            println!("{:40} {}", item.name(), item.rule.proves);
        }
        return Ok(());
    }
    let programs = build(&workspace, &items, options)?;
    let out = options.out.clone().unwrap_or_else(|| workspace.target_folder.join("gpu-pack"));
    let mut total = 0;
    println!("{:40} {:>10} {:>10}", "program", "built", "packed");
    runner::prepare(&out)?;
    for item in &items {
        let program = programs.get(item.target).ok_or_else(|| Failure::NotBuilt(item.name()))?;
        let packed = runner::program_path(&out, item);
        let before = place(program, &packed)?;
        match item.rule.data {
            Some(data) => total += runner::copy_data(&out, &workspace.root, data)?,
            None => warn_of_paths(item, &packed, &workspace.root)?,
        }
        let after = compress(&packed)?;
        println!("{:40} {:>10} {:>10}", item.name(), mebibytes(before), mebibytes(after));
        total += after;
    }
    runner::write(&out, &items)?;
    println!("{} programs, {} in {}", items.len(), mebibytes(total), out.display());
    if total > LARGE {
        println!("warning: more than {}; pack fewer with --only", mebibytes(LARGE));
    }
    println!("copy the folder and run there: ./run.sh [--sanitize] [--bench]");
    Ok(())
}

/// Builds everything, one package after the other.
fn build(
    workspace: &Workspace,
    items: &[Item<'_>],
    options: &Options,
) -> Result<HashMap<BuildTarget, PathBuf>, Failure> {
    let mut packages: BTreeMap<&str, Vec<&BuildTarget>> = BTreeMap::new();
    for item in items {
        packages.entry(&item.target.package).or_default().push(item.target);
    }
    let mut programs = HashMap::new();
    for (package, targets) in packages {
        programs.extend(workspace.build(package, &targets, &options.profile, options.features.as_deref())?);
    }
    Ok(programs)
}

/// Copies a program without its symbols, where there is a `strip`; its size before that.
fn place(program: &Path, packed: &Path) -> Result<u64, Failure> {
    let before = fs::copy(program, packed).map_err(Failure::file(program))?;
    // Symbols are a convenience: without `strip`, or if it refuses, they travel along.
    let _ = Command::new("strip").arg(packed).stderr(Stdio::null()).status();
    Ok(before)
}

/// Compresses a program, which the runner undoes, where there is a `gzip`; its size in the pack.
fn compress(packed: &Path) -> Result<u64, Failure> {
    let done = Command::new("gzip").args(["-9", "-n", "-f"]).arg(packed).stderr(Stdio::null()).status();
    let path = if done.is_ok_and(|status| status.success()) {
        runner::compressed(packed)
    } else {
        packed.to_owned()
    };
    Ok(fs::metadata(&path).map_err(Failure::file(&path))?.len())
}

/// Says if a program will miss files.
fn warn_of_paths(item: &Item<'_>, packed: &Path, root: &Path) -> Result<(), Failure> {
    if mentions(packed, root)? {
        let name = item.name();
        println!(
            "warning: {name} names a path of this checkout; what it reads there will be missing: include it, or give its rule `data`"
        );
    }
    Ok(())
}

/// Whether a program has a path of the checkout in it, as `env!("CARGO_MANIFEST_DIR")` leaves one.
fn mentions(program: &Path, root: &Path) -> Result<bool, Failure> {
    let bytes = fs::read(program).map_err(Failure::file(program))?;
    let path = root.join("crates").to_string_lossy().into_owned();
    Ok(bytes.windows(path.len()).any(|window| window == path.as_bytes()))
}

fn mebibytes(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "for people")]
    let mebibytes = bytes as f64 / (1 << 20) as f64;
    format!("{mebibytes:.1} MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_copied_and_its_paths_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (program, packed) = (folder.path().join("program"), folder.path().join("packed"));
        fs::write(&program, "#!/bin/sh\ncat /checkout/crates/cuda/tests/data.txt\n").unwrap();
        // `strip` does not know scripts and leaves them.
        let before = place(&program, &packed).unwrap();
        assert_eq!(before, fs::metadata(&packed).unwrap().len());
        assert!(mentions(&packed, Path::new("/checkout")).unwrap());
        assert!(!mentions(&packed, Path::new("/elsewhere")).unwrap());
        let error = place(&folder.path().join("missing"), &packed).unwrap_err().to_string();
        assert!(error.contains("missing: "), "{error}");
    }
}
