//! The legality table against the real assembler, and foreign PTX after printing. Ignored, visibly, where there is no
//! assembler; `TILEWRIGHT_REQUIRE_PTXAS=1` makes that a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_ptx::{
    Modifier, Names, Need, Opcode, Operand, Sample, Specificity, Symbol, Target, Type, Version, check, forms,
    parse,
};
use tilewright_ptxas::{Assembler, AssemblerError, REQUIRE_VARIABLE};

const ARCHITECTURES: [&str; 5] = ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"];

fn main() {
    let required = std::env::var_os(REQUIRE_VARIABLE).is_some_and(|value| value == "1");
    let ignored = Assembler::find().is_err() && !required;
    let mut trials = vec![
        Trial::test("a_lower_version_is_refused", a_lower_version_is_refused),
        Trial::test("a_lower_target_is_refused", a_lower_target_is_refused),
        Trial::test("targets_came_with_their_versions", targets_came_with_their_versions),
        Trial::test("directives_need_what_is_claimed", directives_need_what_is_claimed),
        Trial::test("foreign_ptx_assembles_after_printing", foreign_ptx_assembles_after_printing),
    ];
    for arch in ARCHITECTURES {
        trials.push(Trial::test(format!("samples_assemble_for_{arch}"), move || samples_assemble(arch)));
    }
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// How many samples with random decisions are made of a row.
const RANDOM_SAMPLES: usize = 16;

/// A generator of numbers that are the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % count
    }
}

/// A sample with the row it comes from.
#[derive(Clone)]
struct Case {
    row: &'static str,
    form: usize,
    sample: Sample,
    text: String,
}

/// All cases with their names, made once for all trials.
fn cases() -> &'static (Names, Vec<Case>) {
    static CASES: OnceLock<(Names, Vec<Case>)> = OnceLock::new();
    CASES.get_or_init(|| {
        let mut names = Names::default();
        let cases = make_cases(&mut names);
        (names, cases)
    })
}

fn make_cases(names: &mut Names) -> Vec<Case> {
    let mut seen = HashSet::new();
    let mut cases = Vec::new();
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    for (i, form) in forms().iter().enumerate() {
        // What each choice does alone, and what they do together.
        let together =
            (0..RANDOM_SAMPLES).filter_map(|_| form.sample(names, &mut |count| random.below(count)));
        let together: Vec<Sample> = together.collect();
        for sample in form.samples(names).into_iter().chain(together) {
            // Without a call before it, this one crashes ptxas 13.0.
            if sample.instruction.opcode == Opcode::Ld && sample.instruction.has(Modifier::ParamFunc) {
                continue;
            }
            let text = sample.instruction.display(names).to_string();
            if seen.insert((i, text.clone())) {
                cases.push(Case { row: form.text(), form: i, sample, text });
            }
        }
    }
    cases
}

/// A module with one kernel for each row, and the case on each line that has one.
fn module<'a>(
    cases: &[&'a Case],
    names: &Names,
    version: Version,
    target: Target,
) -> (String, BTreeMap<usize, &'a Case>) {
    let mut text = format!(".version {version}\n.target {target}\n.address_size 64\n");
    text.push_str(".global .align 16 .b8 variable[256];\n.shared .align 16 .b8 shared_variable[256];\n");
    let mut lines = BTreeMap::new();
    let (mut newlines, mut counted) = (0, 0);
    let mut rows: BTreeMap<usize, Vec<&Case>> = BTreeMap::new();
    for &case in cases {
        rows.entry(case.form).or_default().push(case);
    }
    for (row, cases) in rows {
        let mut registers: BTreeSet<Symbol> = BTreeSet::new();
        for case in &cases {
            for operand in &case.sample.instruction.operands {
                symbols(operand, &mut registers);
            }
        }
        writeln!(text, ".visible .entry k{row}(.param .align 16 .b8 parameter[256]) {{").unwrap();
        writeln!(text, ".param .align 16 .b8 argument[256];").unwrap();
        for name in registers.iter().map(|symbol| names.text(*symbol)).filter(|name| name.starts_with('%')) {
            let ty = name[1..].split('_').next().unwrap();
            assert!(Type::from_text(ty).is_some(), "{name}");
            writeln!(text, ".reg .{ty} {name};").unwrap();
        }
        for case in cases {
            writeln!(text, "{}", case.text).unwrap();
            newlines += text[counted..].matches('\n').count();
            counted = text.len();
            lines.insert(newlines, case);
        }
        text.push_str("sample_label: ret;\n}\n");
    }
    (text, lines)
}

fn symbols(operand: &Operand, found: &mut BTreeSet<Symbol>) {
    match operand {
        Operand::Symbol(symbol) | Operand::Not(symbol) => {
            found.insert(*symbol);
        }
        Operand::Pair(first, second) => found.extend(first.iter().chain(second)),
        Operand::Address(address) => found.extend(address.base),
        Operand::List(parts) | Operand::Tuple(parts) => parts.iter().for_each(|part| symbols(part, found)),
        _ => {}
    }
}

/// Which cases the assembler refuses, with what it says.
fn refused<'a>(
    cases: &[&'a Case],
    names: &Names,
    version: Version,
    target: Target,
    arch: &str,
) -> Result<Vec<(&'a Case, String)>, Failed> {
    let assembler = Assembler::find()?;
    let mut left: Vec<&'a Case> = cases.to_vec();
    let mut refused: Vec<(&'a Case, String)> = Vec::new();
    while !left.is_empty() {
        let (text, lines) = module(&left, names, version, target);
        let message = match assembler.assemble(&text, arch) {
            Ok(_) => break,
            Err(AssemblerError::Refused { message, .. }) => message,
            Err(other) => return Err(other.into()),
        };
        let before = left.len();
        for report in message.lines() {
            let number =
                report.split("line ").nth(1).and_then(|rest| rest.split(';').next()?.parse::<usize>().ok());
            let Some(case) = number.and_then(|number| lines.get(&number)) else { continue };
            if report.contains("error") || report.contains("fatal") {
                let known = left.iter().position(|other| std::ptr::eq(*other, *case));
                if let Some(at) = known {
                    left.remove(at);
                    refused.push((case, report.to_string()));
                }
            }
        }
        // An assembler that crashed names no line: look for the culprits one by one.
        if left.len() == before {
            if let [only] = left[..] {
                refused.push((only, format!("no line is named in `{message}`")));
                break;
            }
            for half in left.chunks(before.div_ceil(2)) {
                refused.extend(self::refused(half, names, version, target, arch)?);
            }
            break;
        }
    }
    Ok(refused)
}

fn report(problems: &BTreeSet<String>) -> Result<(), Failed> {
    if problems.is_empty() {
        return Ok(());
    }
    let text: Vec<&str> = problems.iter().map(String::as_str).collect();
    Err(format!("{} problems\n{}", text.len(), text.join("\n")).into())
}

/// The cases by a need that this architecture can meet.
fn by_need(cases: &[Case], arch: Option<Target>) -> BTreeMap<Need, Vec<&Case>> {
    let mut groups: BTreeMap<Need, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        for &need in &case.sample.needs {
            if arch.is_none_or(|arch| arch.includes(need.target)) {
                let version = need.version.max(need.target.since());
                groups.entry(Need { version, ..need }).or_default().push(case);
            }
        }
    }
    groups
}

fn samples_assemble(arch: &str) -> Result<(), Failed> {
    let (names, cases) = cases();
    let mut problems = BTreeSet::new();
    for (need, cases) in by_need(cases, Some(arch.parse()?)) {
        for (case, message) in refused(&cases, names, need.version, need.target, arch)? {
            problems.insert(format!("{}\n    {}\n    {need}: {message}", case.row, case.text));
        }
    }
    report(&problems)
}

fn a_lower_version_is_refused() -> Result<(), Failed> {
    let (names, cases) = cases();
    let mut problems = BTreeSet::new();
    for (need, cases) in by_need(cases, None) {
        let Some(version) = need.version.previous().filter(|&version| version >= need.target.since()) else {
            continue;
        };
        let arch = architecture(need.target);
        let found = refused(&cases, names, version, need.target, &arch)?;
        for case in &cases {
            let better = case.sample.needs.iter().any(|other| other.is_met_by(version, need.target));
            if case.sample.enforced && !better && !found.iter().any(|(other, _)| std::ptr::eq(*other, *case))
            {
                problems.insert(format!("{}\n    {}\n    {need}: {version} is enough", case.row, case.text));
            }
        }
    }
    report(&problems)
}

fn a_lower_target_is_refused() -> Result<(), Failed> {
    let (names, cases) = cases();
    let mut problems = BTreeSet::new();
    for (need, cases) in by_need(cases, None) {
        let lower = match need.target.specificity {
            Specificity::Plain => Target::all()
                .filter(|target| target.specificity == Specificity::Plain && target.sm < need.target.sm)
                .filter(|target| target.since() <= need.version)
                .last(),
            _ => Some(Target::plain(need.target.sm)),
        };
        let Some(lower) = lower.filter(|lower| lower.sm >= 50) else { continue };
        let version = need.version.max(lower.since());
        let found = refused(&cases, names, version, lower, &architecture(lower))?;
        for case in &cases {
            let better = case.sample.needs.iter().any(|other| other.is_met_by(version, lower));
            if case.sample.enforced && !better && !found.iter().any(|(other, _)| std::ptr::eq(*other, *case))
            {
                problems.insert(format!("{}\n    {}\n    {need}: {lower} is enough", case.row, case.text));
            }
        }
    }
    report(&problems)
}

/// An architecture of this assembler on which code for the target can be assembled.
fn architecture(target: Target) -> String {
    match target {
        Target { specificity: Specificity::Plain, sm } if sm < 75 => "sm_75".into(),
        Target { specificity: Specificity::Plain | Specificity::Family, sm: 101 } => "sm_110".into(),
        other => other.to_string(),
    }
}

fn targets_came_with_their_versions() -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    let mut problems = BTreeSet::new();
    // This assembler knows sm_101 by its later name only.
    for target in Target::all().filter(|target| *target != Target::arch(101)) {
        let text = |version| format!(".version {version}\n.target {target}\n.entry k() {{ ret; }}\n");
        let arch = architecture(target);
        if let Err(error) = assembler.assemble(&text(target.since()), &arch) {
            problems.insert(format!("{target} {}: {error}", target.since()));
        }
        // Documented for 9.0, taken earlier.
        let enforced = target != Target::plain(88);
        if let Some(lower) = target.since().previous().filter(|_| enforced)
            && assembler.assemble(&text(lower), &arch).is_ok()
        {
            problems.insert(format!("{target} is there in {lower}"));
        }
    }
    report(&problems)
}

/// What raises the minimum other than instructions.
fn directives_need_what_is_claimed() -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    let mut problems = BTreeSet::new();
    for text in [
        ".visible .entry k() .reqnctapercluster 2, 1, 1 { ret; }",
        ".visible .entry k() .explicitcluster { ret; }",
        ".visible .entry k() .maxclusterrank 8 { ret; }",
        ".visible .entry k() .reqntid 32 .reqnctapercluster 2 .blocksareclusters { ret; }",
        ".visible .entry k(.param .align 8 .b8 a[4353]) { ret; }",
        ".func f() .noreturn { trap; }\n.visible .entry k() { ret; }",
        ".visible .func f() { ret; }\n.visible .func g();\n.alias g, f;\n.visible .entry k() { ret; }",
        ".visible .entry k() { .reg .b128 %q<2>; ret; }",
        ".visible .entry k() { .reg .u32 %r; mov.u32 %r, %cluster_ctarank; ret; }",
        ".visible .entry k() { .reg .u32 %r; mov.u32 %r, %clusterid.x; ret; }",
        ".visible .entry k() { .reg .u32 %r; mov.u32 %r, %cluster_nctaid.z; ret; }",
        ".visible .entry k() { .reg .pred %p; mov.pred %p, %is_explicit_cluster; ret; }",
        ".visible .entry k() { .reg .u32 %r; mov.u32 %r, %aggr_smem_size; ret; }",
        ".visible .entry k() { .reg .u32 %r; mov.u32 %r, %reserved_smem_offset_begin; ret; }",
        ".visible .entry k() { .reg .u64 %r; mov.u64 %r, %current_graph_exec; ret; }",
    ] {
        let mut module = parse(&format!(".version 9.0\n.target sm_90a\n{text}"))?;
        let needed = module.lower_to_minimum();
        let found = check(&module);
        if !found.is_empty() {
            problems.insert(format!("{text}: {found:?}"));
        }
        let arch = architecture(needed.target);
        if let Err(error) = assembler.assemble(&module.to_string(), &arch) {
            problems.insert(format!("{text}: {error}"));
        }
        if let Some(lower) = needed.version.previous() {
            module.version = lower;
            if assembler.assemble(&module.to_string(), &arch).is_ok() {
                problems.insert(format!("{text}: {lower} is enough"));
            }
        } else {
            problems.insert(format!("{text}: nothing is needed"));
        }
    }
    report(&problems)
}

fn foreign_ptx_assembles_after_printing() -> Result<(), Failed> {
    let assembler = Assembler::find()?;
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for folder in ["nvrtc", "nvcc", "triton"] {
        for entry in std::fs::read_dir(data.join(folder))? {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "ptx") {
                continue;
            }
            let mut module = parse(&std::fs::read_to_string(&path)?)?;
            let arch = module.target.to_string();
            let original = assembler.assemble(&module.to_string(), &arch)?;
            assert!(!original.entries.is_empty(), "{}", path.display());
            module.lower_to_minimum();
            let lowered = assembler.assemble(&module.to_string(), &arch)?;
            assert_eq!(lowered.entries.len(), original.entries.len());
            assert_eq!(check(&module), [], "{}", path.display());
        }
    }
    Ok(())
}
