//! Packs: kernels compiled ahead of time, in one file.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use tilewright::compiler::Compiler;
use tilewright::cuda::{Form, Pack, PackBuilder, PackedKernel};
use tilewright::hardware::Arch;
use tilewright::ptx::{Target, signatures_to_text};
use tilewright_ptxas::Assembler;

use super::super::{Failure, bytes, table};
use super::{Cubin, build, choose};

/// What is to go into a pack.
pub(super) struct Wishes<'a> {
    pub(super) kernels: &'a [String],
    /// All chips that the project is tested for if none.
    pub(super) archs: &'a [Arch],
    pub(super) cubin: Cubin,
}

/// Compiles and writes a pack. Nothing is written unless all of it could be made.
pub(super) fn write(
    wishes: &Wishes<'_>,
    compiler: impl Fn(Arch) -> Compiler,
    path: &Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let assembler = assembler(wishes.cubin)?;
    let mut pack = PackBuilder::new();
    let mut packed: Vec<(String, &str)> = Vec::new();
    for name in wishes.kernels {
        let (entry, _) = choose(name, wishes.archs.first().copied())?;
        let all: Vec<Arch> = entry.architectures().collect();
        for arch in if wishes.archs.is_empty() { &all } else { wishes.archs } {
            let (entry, arch) = choose(name, Some(*arch))?;
            let (_, build) = build(entry, compiler(arch))?;
            let code = build.code;
            // Kernels are found by their entry points, which two configurations of one kernel share.
            if let Some((_, other)) =
                packed.iter().find(|(point, other)| *point == code.entry && other != name)
            {
                let message = format!("`{other}` and `{name}` have the same entry point `{}`", code.entry);
                return Err(Failure::input(format!("{message}; use two packs")));
            }
            packed.push((code.entry.clone(), name));
            let mut kernel = PackedKernel {
                name: code.entry.clone(),
                target: code.module.target,
                form: Form::Ptx,
                code: code.text.clone().into_bytes(),
                signatures: signatures_to_text(&code.module.signatures()),
                shared_dynamic: code.shared.dynamic,
                block: code.launch.threads,
                cluster: code.launch.cluster,
                producer: format!("tilewright {}", env!("CARGO_PKG_VERSION")),
            };
            pack = pack.kernel(kernel.clone());
            if let Some(assembler) = &assembler {
                let made = assembler.assemble(&code.text, &arch.to_string());
                kernel.code = made.map_err(|error| Failure::Machine(error.to_string()))?.cubin;
                kernel.target = target(arch)?;
                kernel.form = Form::Cubin;
                kernel.producer = format!("{}, ptxas {}", kernel.producer, assembler.version());
                pack = pack.kernel(kernel);
            }
        }
    }
    let written = pack.write();
    fs::write(path, &written).map_err(|error| Failure::file("writing", path, &error))?;
    let what = if assembler.is_some() { "PTX and machine code" } else { "PTX only: no assembler was used" };
    Ok(writeln!(out, "{}: {}, {what}", path.display(), bytes(written.len() as u64))?)
}

fn assembler(cubin: Cubin) -> Result<Option<Assembler>, Failure> {
    match (cubin, Assembler::find()) {
        (Cubin::Never, _) | (Cubin::Auto, Err(_)) => Ok(None),
        (_, Ok(assembler)) => Ok(Some(assembler)),
        (Cubin::Always, Err(error)) => Err(Failure::Machine(format!("{error}; {}", error.remedy()))),
    }
}

fn target(arch: Arch) -> Result<Target, Failure> {
    arch.to_string().parse().map_err(|error| Failure::Machine(format!("{arch}: {error}")))
}

/// A kernel of a pack, as JSON.
#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    form: String,
    target: String,
    bytes: usize,
    block: Option<[u32; 3]>,
    cluster: Option<[u32; 3]>,
    shared_bytes: u32,
    producer: &'a str,
}

/// Says what is in a pack.
pub(super) fn info(path: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let read = fs::read(path).map_err(|error| Failure::file("reading", path, &error))?;
    let pack = Pack::parse(&read).map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
    let kernels: Vec<Listed<'_>> = pack
        .kernels()
        .map(|kernel| Listed {
            name: kernel.name,
            form: kernel.form.to_string(),
            target: kernel.target.to_string(),
            bytes: kernel.code.len(),
            block: kernel.block,
            cluster: kernel.cluster,
            shared_bytes: kernel.shared_dynamic,
            producer: kernel.producer,
        })
        .collect();
    if json {
        serde_json::to_writer_pretty(&mut *out, &kernels)?;
        return Ok(writeln!(out)?);
    }
    let extents = |extents: Option<[u32; 3]>| {
        extents.map_or_else(|| "any".to_owned(), |[x, y, z]| format!("{x}x{y}x{z}"))
    };
    let mut rows = table(&["kernel", "form", "for", "size", "block", "cluster", "shared", "made by"]);
    for kernel in &kernels {
        rows.add_row([
            kernel.name,
            &kernel.form,
            &kernel.target,
            &bytes(kernel.bytes as u64),
            &extents(kernel.block),
            &kernel.cluster.map_or_else(|| "none".to_owned(), |cluster| extents(Some(cluster))),
            &bytes(kernel.shared_bytes.into()),
            kernel.producer,
        ]);
    }
    Ok(writeln!(out, "{rows}")?)
}
