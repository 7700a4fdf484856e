//! Packs: kernels compiled ahead of time, in one file.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use tilewright::compiler::Compiler;
use tilewright::cuda::{Pack, PackBuilder};
use tilewright::device::Recorder;
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::TESTED;
use tilewright::ops::{Error, OPERATORS, Operator};
use tilewright_ptxas::{Assembler, AssemblerError};

use super::super::{Failure, bytes, table, whole};
use super::{Cubin, choose, stage};

/// What is to go into a pack.
pub(super) struct Wishes<'a> {
    pub(super) kernels: &'a [String],
    pub(super) operators: Vec<&'static Operator>,
    /// Whether they are all, so that those which do not exist for some columns or type are left out.
    pub(super) all_operators: bool,
    pub(super) columns: &'a [usize],
    pub(super) types: &'a [Element],
    /// Whether kernels on tiles are compiled for any strides and alignment as well.
    pub(super) any_tensor: bool,
    /// All chips that the project is tested for if none.
    pub(super) archs: &'a [Arch],
    pub(super) cubin: Cubin,
}

/// The operators of these names.
pub(super) fn operators(names: &[String]) -> Result<Vec<&'static Operator>, Failure> {
    let mut found = Vec::new();
    for name in names {
        let before = found.len();
        found.extend(OPERATORS.iter().filter(|operator| name == "all" || name == operator.name));
        if found.len() == before {
            let known: Vec<&str> = OPERATORS.iter().map(|operator| operator.name).collect();
            let known = known.join(", ");
            return Err(Failure::input(format!(
                "no operator is named `{name}`; there are {known}, and `all`"
            )));
        }
    }
    Ok(found)
}

/// What was compiled for each chip.
struct Recorders<'a, C> {
    wishes: &'a Wishes<'a>,
    compiler: C,
    all: Vec<Recorder>,
}

impl<C: Fn(Arch) -> Compiler> Recorders<'_, C> {
    fn of(&mut self, arch: Arch) -> &Recorder {
        let at = self.all.iter().position(|recorder| recorder.device().arch() == arch).unwrap_or_else(|| {
            let recorder = Recorder::new(arch).with_compiler((self.compiler)(arch));
            self.all.push(if self.wishes.any_tensor { recorder.any_tensor() } else { recorder });
            self.all.len() - 1
        });
        &self.all[at]
    }
}

/// Compiles and writes a pack. Nothing is written unless all of it could be made.
pub(super) fn write(
    wishes: &Wishes<'_>,
    compiler: impl Fn(Arch) -> Compiler,
    path: &Path,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let assembler = assembler(wishes.cubin)?;
    let mut recorders = Recorders { wishes, compiler, all: Vec::new() };
    kernels(wishes, &mut recorders)?;
    let archs = if wishes.archs.is_empty() { &TESTED[..] } else { wishes.archs };
    let mut left_out = Vec::new();
    for operator in &wishes.operators {
        for &arch in archs {
            let device = recorders.of(arch).device();
            for (&element, &columns) in
                wishes.types.iter().flat_map(|ty| wishes.columns.iter().map(move |n| (ty, n)))
            {
                let Err(error) = operator.rehearse(device, element, columns) else { continue };
                let says = format!("{} of {columns} columns of {element}: {error}", operator.name);
                // Who asks for all wants those that there are; a type that none is for is a mistake.
                let absent = match &error {
                    Error::Argument { argument, .. } => argument != "the type",
                    error => matches!(error, Error::NoKernel { .. }),
                };
                if !(absent && wishes.all_operators) {
                    return Err(Failure::input(says));
                }
                if !left_out.contains(&says) {
                    left_out.push(says);
                }
            }
        }
    }
    let mut pack = PackBuilder::new();
    for recorder in &recorders.all {
        pack.extend(match &assembler {
            None => recorder.kernels(),
            Some(assembler) => {
                let assemble =
                    |text: &str, arch: Arch| Ok(assembler.assemble(text, &arch.to_string())?.cubin);
                let by = format!("ptxas {}", assembler.version());
                let all: Result<_, AssemblerError> = recorder.assembled(&by, assemble);
                all.map_err(|error| Failure::Machine(error.to_string()))?
            }
        });
    }
    let written = pack.write();
    whole::write(path, &written)?;
    let what = if assembler.is_some() { "PTX and machine code" } else { "PTX only: no assembler was used" };
    for operator in left_out {
        writeln!(out, "left out: {operator}")?;
    }
    Ok(writeln!(out, "{}: {}, {what}", path.display(), bytes(written.len() as u64))?)
}

/// Compiles the kernels of the registry.
fn kernels(
    wishes: &Wishes<'_>,
    recorders: &mut Recorders<'_, impl Fn(Arch) -> Compiler>,
) -> Result<(), Failure> {
    let mut packed: Vec<(String, &str)> = Vec::new();
    for name in wishes.kernels {
        let (entry, _) = choose(name, wishes.archs.first().copied())?;
        let kernel = stage(entry)?;
        // Kernels for threads are found by their entry points, which two configurations of one kernel share.
        let point = kernel.name();
        let other = packed.iter().find(|(known, other)| known == point && other != name);
        if let Some((_, other)) = other.filter(|_| !kernel.func().is_tile_level()) {
            let message = format!("`{other}` and `{name}` have the same entry point `{point}`");
            return Err(Failure::input(format!("{message}; use two packs")));
        }
        packed.push((point.to_owned(), name));
        let all: Vec<Arch> = entry.architectures().collect();
        for arch in if wishes.archs.is_empty() { &all } else { wishes.archs } {
            let (_, arch) = choose(name, Some(*arch))?;
            let added = recorders.of(arch).add(&kernel);
            added.map_err(|error| Failure::Machine(error.to_string()))?;
        }
    }
    Ok(())
}

fn assembler(cubin: Cubin) -> Result<Option<Assembler>, Failure> {
    match (cubin, Assembler::find()) {
        (Cubin::Never, _) | (Cubin::Auto, Err(_)) => Ok(None),
        (_, Ok(assembler)) => Ok(Some(assembler)),
        (Cubin::Always, Err(error)) => {
            let remedy = error.remedy();
            Err(Failure::Machine(format!("{error}; {remedy}, or leave out `--cubin` for a pack of PTX")))
        }
    }
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
    /// What must be true of its arguments, of a kernel on tiles.
    facts: Option<&'a str>,
    producer: &'a str,
}

/// Says what is in a pack.
pub(super) fn info(path: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let read = std::fs::read(path).map_err(|error| Failure::file("reading", path, &error))?;
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
            facts: kernel.variant.map(|variant| variant.facts),
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
    let for_arguments = |facts: Option<&str>| match facts {
        None => String::new(),
        Some("") => "any".to_owned(),
        // All of them are in the JSON.
        Some(facts) => format!("{} facts", facts.split(", ").count()),
    };
    let head = ["kernel", "form", "for", "size", "block", "cluster", "shared", "made by", "arguments"];
    let mut rows = table(&head);
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
            &for_arguments(kernel.facts),
        ]);
    }
    Ok(writeln!(out, "{rows}")?)
}
