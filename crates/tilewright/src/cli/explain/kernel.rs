//! One kernel: compiled with everything kept, and shown.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use imara_diff::{Algorithm, BasicLineDiffPrinter, InternedInput, UnifiedDiffConfig};
use serde::Serialize;
use tilewright::compiler::{Build, Compiler};
use tilewright::cuda::CacheFolder;
use tilewright::device::dense_facts;
use tilewright::hardware::{Arch, occupancy};
use tilewright::ir::Func;
use tilewright::lang::{Kernel, TensorMapSpec};
use tilewright::passes::RemarkKind;
use tilewright::tile::{Fact, specialise};
use tilewright_ptxas::{Assembler, AssemblerError, Report};

use super::super::{Failure, table, whole};
use super::{Options, Stage, columns, sass};

/// A kernel in one of its stages.
#[derive(Serialize)]
struct Form {
    stage: Stage,
    text: String,
}

#[derive(Serialize)]
pub(super) struct Explanation {
    kernel: String,
    arch: String,
    /// What is taken to be true of the arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    facts: Vec<String>,
    parameters: Vec<Parameter>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stages: Vec<Form>,
    threads: Option<u32>,
    staged_ops: usize,
    optimised_ops: usize,
    passes: Vec<Step>,
    remarks: Vec<Note>,
    ptx: Ptx,
    assembled: Option<Assembled>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    diffs: Vec<Diff>,
}

#[derive(Serialize)]
struct Parameter {
    name: String,
    #[serde(rename = "type")]
    ty: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensor_map: Option<String>,
}

#[derive(Serialize)]
struct Step {
    pass: String,
    changed: bool,
    ops: usize,
    microseconds: f64,
}

#[derive(Serialize)]
struct Note {
    pass: String,
    done: bool,
    location: Option<String>,
    message: String,
}

#[derive(Serialize)]
struct Ptx {
    version: String,
    target: String,
    instructions: usize,
    shared_bytes: u32,
    dynamic_shared_bytes: u32,
}

#[derive(Serialize)]
struct Assembled {
    registers: u32,
    spill_bytes: u32,
    stack_bytes: u32,
    remarks: Vec<String>,
    blocks_per_multiprocessor: u32,
    warps_per_multiprocessor: u32,
    limited_by: String,
}

#[derive(Serialize)]
struct Diff {
    pass: String,
    number: usize,
    text: String,
}

/// A kernel that has been compiled, and whatever tools there are to go on with.
pub(super) struct Compiled<'a> {
    name: &'a str,
    kernel: &'a Kernel,
    arch: Arch,
    facts: Vec<(String, Fact)>,
    func: Func,
    build: Build,
    assembler: Option<Assembler>,
    report: Option<Report>,
    disassembler: Option<PathBuf>,
}

impl<'a> Compiled<'a> {
    pub(super) fn new(
        name: &'a str,
        kernel: &'a Kernel,
        arch: Arch,
        options: &Options,
    ) -> Result<Compiled<'a>, Failure> {
        let facts = if options.any_tensor { Vec::new() } else { dense_facts(kernel) };
        let known: Vec<(&str, Fact)> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
        let func = specialise(kernel.func(), &known);
        let build = Compiler::new(arch).dumps(true).compile(&func);
        let build = build.map_err(|error| Failure::Machine(error.to_string()))?;
        let assembler = Assembler::find().ok();
        let report = assembler
            .as_ref()
            .map(|assembler| assemble(assembler, &build, &build.code.text, arch))
            .transpose()?;
        let disassembler = assembler.as_ref().and_then(|assembler| sass::find(assembler.path()));
        Ok(Compiled { name, kernel, arch, facts, func, build, assembler, report, disassembler })
    }

    /// Shows stages and nothing else: one after the other, or side by side.
    pub(super) fn show_stages(&self, options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
        if options.side_by_side || options.html.is_some() {
            return self.side_by_side(options, out);
        }
        write_stages(&self.stages(options)?, options.stage.len() > 1, out)
    }

    /// Everything there is to say.
    pub(super) fn explanation(&self, options: &Options) -> Result<Explanation, Failure> {
        let Compiled { kernel, arch, func, build, .. } = self;
        let describe =
            |map: &TensorMapSpec| format!("box {:?} of {}, {}", map.box_dims(), map.element(), map.swizzle());
        let written = kernel.parameters().map(|(name, ty, _)| Parameter {
            name: name.to_owned(),
            ty: ty.to_string(),
            tensor_map: kernel.tensor_map(name).map(describe),
        });
        // Those that the compiler has added for copies of tiles; the launch makes them.
        let added = build.maps.iter().map(|map| Parameter {
            name: map.name.clone(),
            ty: format!("tensor map of `{}`", map.pointer),
            tensor_map: Some(describe(&map.spec)),
        });
        let text = &build.code.text;
        Ok(Explanation {
            kernel: self.name.to_owned(),
            arch: arch.to_string(),
            facts: self.facts.iter().map(|(name, fact)| says(name, *fact)).collect(),
            parameters: written.chain(added).collect(),
            stages: self.stages(options)?,
            threads: build.code.launch.total_threads(),
            staged_ops: count_ops(&func.to_string()),
            optimised_ops: count_ops(&build.func.to_string()),
            passes: steps(build),
            remarks: remarks(build),
            ptx: Ptx {
                version: directive(text, ".version"),
                target: directive(text, ".target"),
                instructions: text.lines().filter(|line| is_instruction(line)).count(),
                shared_bytes: build.code.shared.fixed,
                dynamic_shared_bytes: build.code.shared.dynamic,
            },
            assembled: self.report.as_ref().and_then(|report| assembled(report, build, *arch)),
            diffs: options.diff.as_deref().map(|pass| diffs(build, pass)).unwrap_or_default(),
        })
    }

    /// The stages that were asked for, or that come by themselves.
    fn stages(&self, options: &Options) -> Result<Vec<Form>, Failure> {
        self.chosen(options, |stage| {
            let text = match (stage, &self.disassembler, &self.report) {
                (Stage::Tile, ..) => self.func.to_string(),
                (Stage::Threads, ..) => self.build.func.to_string(),
                (Stage::Ptx, ..) => self.build.code.text.clone(),
                (Stage::Sass, Some(program), Some(report)) => {
                    sass::disassemble(program, &report.cubin, &["-c"])?
                }
                (Stage::Sass, ..) => return Ok(None),
            };
            Ok(Some(Form { stage, text }))
        })
    }

    /// The stages that were asked for, made by `make`, which has no SASS where the machine lacks a tool. If none were asked for, all that there
    /// are; of kernels for threads none, unless they are to stand side by side.
    fn chosen<T>(
        &self,
        options: &Options,
        make: impl Fn(Stage) -> Result<Option<T>, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let all = [Stage::Tile, Stage::Threads, Stage::Ptx, Stage::Sass];
        let asked = !options.stage.is_empty();
        let wanted = match (asked, self.func.is_tile_level()) {
            (true, _) => &options.stage[..],
            (false, true) => &all[..],
            (false, false) if options.side_by_side || options.html.is_some() => &all[1..],
            (false, false) => &[],
        };
        let mut forms = Vec::new();
        for &stage in wanted {
            if stage == Stage::Tile && !self.func.is_tile_level() {
                let kernel = self.name;
                return Err(Failure::input(format!(
                    "`{kernel}` is written for threads and has no stage `tile`; use threads, ptx or sass"
                )));
            }
            match make(stage)? {
                Some(form) => forms.push(form),
                None if asked => {
                    let (assembler, disassembler) = (tilewright_ptxas::VARIABLE, sass::remedy());
                    return Err(Failure::Machine(format!(
                        "no SASS without ptxas and nvdisasm: `pip install nvidia-cuda-nvcc` and set {assembler}, {disassembler}"
                    )));
                }
                None => {}
            }
        }
        Ok(forms)
    }

    /// Writes the stages side by side.
    fn side_by_side(&self, options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
        let Compiled { arch, func, build, .. } = self;
        let columns = self.chosen(options, |stage| {
            let lines = match stage {
                Stage::Tile => Some(columns::of_ir(func)),
                Stage::Threads => Some(columns::of_ir(&build.func)),
                Stage::Ptx => Some(columns::of_ptx(build)),
                Stage::Sass => self.machine_code(&columns::of_ptx(build))?,
            };
            Ok(lines.map(|lines| columns::Column { title: stage.title(), lines }))
        })?;
        let title = format!("{} for {arch}", self.name);
        if let Some(path) = &options.html {
            let page = columns::page(&title, &columns);
            whole::write(path, page)?;
            return Ok(writeln!(out, "{}: {title}, {} stages side by side", path.display(), columns.len())?);
        }
        let terminal = || table(&[]).width().map(usize::from);
        writeln!(out, "{title}\n")?;
        columns::write_text(&columns, options.width.or_else(terminal).unwrap_or(WIDE), out)
    }

    /// The SASS, joined with the PTX, or nothing where the machine lacks a tool.
    fn machine_code(&self, ptx: &[columns::Line]) -> Result<Option<Vec<columns::Line>>, Failure> {
        let (Some(assembler), Some(disassembler)) = (&self.assembler, &self.disassembler) else {
            return Ok(None);
        };
        let numbered = columns::numbered(&self.build.code.text);
        let report = assemble(assembler, &self.build, &numbered, self.arch)?;
        let text = sass::disassemble(disassembler, &report.cubin, &["-c", "-g"])?;
        Ok(Some(columns::of_sass(&text, ptx)))
    }
}

/// Width of a page that no terminal shows.
const WIDE: usize = 160;

fn says(name: &str, fact: Fact) -> String {
    match fact {
        Fact::Is(number) => format!("{name} is {number}"),
        Fact::MultipleOf(of) => format!("{name} is a multiple of {of}"),
    }
}

fn write_stages(stages: &[Form], titles: bool, out: &mut dyn Write) -> Result<(), Failure> {
    for (i, Form { stage, text }) in stages.iter().enumerate() {
        if titles {
            writeln!(out, "{}--- {} ---", if i > 0 { "\n" } else { "" }, stage.title())?;
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

fn steps(build: &Build) -> Vec<Step> {
    let timings = &build.report.timings;
    let dumps = build.report.dumps.iter().skip(1);
    let step = |(dump, timing): (&tilewright::passes::Dump, &tilewright::passes::Timing)| Step {
        pass: dump.pass.to_owned(),
        changed: dump.changed,
        ops: count_ops(&dump.text),
        microseconds: timing.time.as_secs_f64() * 1e6,
    };
    dumps.zip(timings).map(step).collect()
}

/// Ops in the text of a function: lines that are neither braces nor arguments nor heads.
fn count_ops(text: &str) -> usize {
    let is_op = |line: &&str| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with(['}', '(']) && !line.starts_with("func ")
    };
    text.lines().filter(is_op).count()
}

fn remarks(build: &Build) -> Vec<Note> {
    let mut seen = BTreeMap::new();
    for remark in &build.report.remarks {
        let note = Note {
            pass: remark.pass.to_owned(),
            done: remark.kind == RemarkKind::Applied,
            location: remark.location.clone(),
            message: remark.message.clone(),
        };
        // Passes run several times and repeat themselves.
        seen.entry((remark.pass, remark.location.clone(), remark.message.clone())).or_insert(note);
    }
    seen.into_values().collect()
}

pub(super) fn is_instruction(line: &str) -> bool {
    let line = line.trim();
    line.ends_with(';') && !line.starts_with('.') && line != "};"
}

fn directive(text: &str, name: &str) -> String {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name));
    line.unwrap_or_default().trim().to_owned()
}

/// Asks the assembler. That it refuses our PTX is our fault: the report says where, and a reproducer is left behind.
fn assemble(assembler: &Assembler, build: &Build, text: &str, arch: Arch) -> Result<Report, Failure> {
    match assembler.assemble(text, &arch.to_string()) {
        Ok(report) => Ok(report),
        Err(AssemblerError::Refused { message, .. }) => Err(refused(build, &message)),
        Err(error) => Err(Failure::Machine(error.to_string())),
    }
}

/// What the assembler says, and what follows for the blocks that run at once.
fn assembled(report: &Report, build: &Build, arch: Arch) -> Option<Assembled> {
    let entry = report.entries.first()?;
    let threads = build.code.launch.total_threads().unwrap_or(0);
    let shared = build.code.shared.fixed + build.code.shared.dynamic;
    let occupied = occupancy(arch, threads, entry.registers, shared);
    Some(Assembled {
        registers: entry.registers,
        spill_bytes: entry.spill_store_bytes + entry.spill_load_bytes,
        stack_bytes: entry.stack_bytes,
        remarks: report.remarks.clone(),
        blocks_per_multiprocessor: occupied.blocks_per_sm,
        warps_per_multiprocessor: occupied.warps,
        limited_by: format!("{:?}", occupied.limited_by).to_lowercase(),
    })
}

/// The assembler's complaint in terms of the Rust source, and where the reproducer is.
fn refused(build: &Build, log: &str) -> Failure {
    let mut message: String =
        build.blame(log).iter().map(|diagnostic| format!("{diagnostic}\n")).collect::<Vec<_>>().concat();
    if message.is_empty() {
        message = format!("the assembler refused generated code: {log}\n");
    }
    let folder = CacheFolder::locate().map(|folder| folder.path().to_path_buf());
    let path = folder.unwrap_or_else(std::env::temp_dir).join(format!("{}.reproducer.tw", build.func.name));
    let written = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    match written.and_then(|()| std::fs::write(&path, build.reproducer(log))) {
        Ok(()) => Failure::Machine(format!("{message}reproducer: {}", path.display())),
        Err(error) => Failure::Machine(format!("{message}the reproducer could not be written: {error}")),
    }
}

fn diffs(build: &Build, pass: &str) -> Vec<Diff> {
    let dumps = &build.report.dumps;
    let changed =
        dumps.windows(2).filter(|pair| pair[1].changed && (pass.is_empty() || pair[1].pass == pass));
    let diff = |pair: &[tilewright::passes::Dump]| Diff {
        pass: pair[1].pass.to_owned(),
        number: pair[1].number,
        text: diff_of_lines(&pair[0].text, &pair[1].text),
    };
    changed.map(diff).collect()
}

/// What has changed, with two lines around it.
fn diff_of_lines(before: &str, after: &str) -> String {
    let lines = InternedInput::new(before, after);
    let mut changes = imara_diff::Diff::compute(Algorithm::Histogram, &lines);
    changes.postprocess_lines(&lines);
    let mut config = UnifiedDiffConfig::default();
    config.context_len(2);
    changes.unified_diff(&BasicLineDiffPrinter(&lines.interner), config, &lines).to_string()
}

impl Explanation {
    /// As tables.
    pub(super) fn write(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let e = self;
        let threads = e.threads.map_or("any number of".to_owned(), |n| n.to_string());
        writeln!(out, "{} for {}, {threads} threads a block\n", e.kernel, e.arch)?;
        let mut parameters = table(&["parameter", "type", "tensor map"]);
        for p in &e.parameters {
            parameters.add_row([p.name.as_str(), &p.ty, p.tensor_map.as_deref().unwrap_or("")]);
        }
        writeln!(out, "{parameters}\n")?;
        if !e.facts.is_empty() {
            writeln!(out, "compiled for arguments of which this is true: {}\n", e.facts.join(", "))?;
        }
        if !e.stages.is_empty() {
            write_stages(&e.stages, true, out)?;
            if e.stages.iter().all(|form| form.stage != Stage::Sass) {
                writeln!(out, "\nno SASS without ptxas and nvdisasm: {}", sass::remedy())?;
            }
            writeln!(out)?;
        }

        let mut stages = table(&["stage", "changed", "ops", "time"]);
        stages.add_row(["staged", "", &e.staged_ops.to_string(), ""]);
        for step in &e.passes {
            let changed = if step.changed { "yes" } else { "" };
            stages.add_row([
                step.pass.as_str(),
                changed,
                &step.ops.to_string(),
                &format!("{:.0} us", step.microseconds),
            ]);
        }
        let instructions = format!("{} instructions", e.ptx.instructions);
        stages.add_row(["ptx", "", &instructions, ""]);
        writeln!(out, "{stages}\n")?;

        if !e.remarks.is_empty() {
            let mut remarks = table(&["pass", "", "where", "remark"]);
            for r in &e.remarks {
                let done = if r.done { "done" } else { "missed" };
                remarks.add_row([r.pass.as_str(), done, r.location.as_deref().unwrap_or(""), &r.message]);
            }
            writeln!(out, "{remarks}\n")?;
        }

        let mut result = table(&["result", ""]);
        result.add_row(["PTX".to_owned(), format!("version {}, target {}", e.ptx.version, e.ptx.target)]);
        let shared = match (e.ptx.shared_bytes, e.ptx.dynamic_shared_bytes) {
            (0, 0) => "none".to_owned(),
            (fixed, 0) => format!("{fixed} bytes"),
            (fixed, dynamic) => format!("{} bytes, {dynamic} of them asked for at launch", fixed + dynamic),
        };
        result.add_row(["shared memory".to_owned(), shared]);
        match &e.assembled {
            None => {
                let how = format!(
                    "no assembler; `pip install nvidia-cuda-nvcc` and set {}",
                    tilewright_ptxas::VARIABLE
                );
                result.add_row(["registers".to_owned(), how]);
            }
            Some(a) => {
                result.add_row(["registers".to_owned(), a.registers.to_string()]);
                result.add_row([
                    "spills, stack".to_owned(),
                    format!("{} bytes, {} bytes", a.spill_bytes, a.stack_bytes),
                ]);
                let occupied = format!(
                    "{} blocks, {} warps a multiprocessor, limited by {}",
                    a.blocks_per_multiprocessor, a.warps_per_multiprocessor, a.limited_by
                );
                result.add_row(["occupancy".to_owned(), occupied]);
                for remark in &a.remarks {
                    result.add_row(["assembler".to_owned(), remark.clone()]);
                }
            }
        }
        writeln!(out, "{result}")?;
        for diff in &e.diffs {
            writeln!(out, "\n{} {}\n{}", diff.number, diff.pass, diff.text)?;
        }
        Ok(())
    }
}
