//! The pass manager: which passes run in which order, checked, timed and recorded.
//!
//! Nothing here does I/O: dumps, times and remarks are data for whoever shows them.

use std::time::{Duration, Instant};

use tilewright_ir::{Module, PrintOptions, verify};

use crate::context::{Context, Remark};
use crate::{PassError, cse, dce, fold, inline, licm, range, strength, uniform, vectorize};

/// A pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pass {
    /// [`inline`].
    Inline,
    /// [`fold`].
    Fold,
    /// [`cse`].
    Cse,
    /// [`dce`].
    Dce,
    /// [`range`].
    Range,
    /// [`licm`].
    Licm,
    /// [`strength`].
    Strength,
    /// [`vectorize`].
    Vectorize,
    /// [`uniform`].
    Uniform,
}

impl Pass {
    /// All passes.
    pub const ALL: [Pass; 9] = [
        Pass::Inline,
        Pass::Fold,
        Pass::Cse,
        Pass::Dce,
        Pass::Range,
        Pass::Licm,
        Pass::Strength,
        Pass::Vectorize,
        Pass::Uniform,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Pass::Inline => inline::NAME,
            Pass::Fold => fold::NAME,
            Pass::Cse => cse::NAME,
            Pass::Dce => dce::NAME,
            Pass::Range => range::NAME,
            Pass::Licm => licm::NAME,
            Pass::Strength => strength::NAME,
            Pass::Vectorize => vectorize::NAME,
            Pass::Uniform => uniform::NAME,
        }
    }

    /// The pass of that name.
    ///
    /// # Errors
    /// [`PassError::UnknownPass`] if there is none.
    pub fn named(name: &str) -> Result<Pass, PassError> {
        Pass::ALL.into_iter().find(|pass| pass.name() == name).ok_or_else(|| PassError::UnknownPass {
            found: name.to_owned(),
            known: Pass::ALL.map(Pass::name).join(", "),
        })
    }

    /// Runs the pass on all functions of a module; true if anything changed.
    ///
    /// # Errors
    /// What [`inline::run`] reports; the others cannot fail.
    pub fn run(self, module: &mut Module, cx: &mut Context) -> Result<bool, PassError> {
        let run = match self {
            Pass::Inline => return inline::run(module),
            Pass::Fold => fold::run,
            Pass::Cse => cse::run,
            Pass::Dce => dce::run,
            Pass::Range => range::run,
            Pass::Licm => licm::run,
            Pass::Strength => strength::run,
            Pass::Vectorize => vectorize::run,
            Pass::Uniform => uniform::run,
        };
        Ok(module.funcs.iter_mut().fold(false, |changed, func| run(func, cx) | changed))
    }
}

/// What a pipeline records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Check the IR after every pass. On in debug builds.
    pub verify: bool,
    /// Keep the text after every pass.
    pub dump: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { verify: cfg!(debug_assertions), dump: false }
    }
}

/// The module after a pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// The pass; `input` for what the pipeline was given.
    pub pass: &'static str,
    /// Counts passes as they ran; 0 is the input.
    pub number: usize,
    /// Did the pass change anything?
    pub changed: bool,
    /// The text.
    pub text: String,
}

/// How long a pass took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// The pass.
    pub pass: &'static str,
    /// Time, without checks and dumps.
    pub time: Duration,
}

/// What a pipeline has to tell.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// What passes did and missed.
    pub remarks: Vec<Remark>,
    /// The texts, if asked for.
    pub dumps: Vec<Dump>,
    /// One entry for each run of a pass.
    pub timings: Vec<Timing>,
    /// Did anything change?
    pub changed: bool,
}

#[derive(Debug, Clone)]
enum Step {
    Once(Pass),
    /// Round after round until nothing changes, at most so often.
    Repeat(Vec<Pass>, usize),
}

/// Passes in order.
///
/// ```
/// use tilewright_ir::parse;
/// use tilewright_passes::{Options, Pass, Pipeline};
///
/// let mut module = parse("func @f (%p: ptr<global>, %x: u32) { %0 = add %x, %x : u32 %1 = add %x, %x : u32 store %p, %1 }")?;
/// let report = Pipeline::of(&[Pass::Cse, Pass::Dce]).with(Options { verify: true, dump: true }).run(&mut module)?;
/// assert_eq!(report.dumps.len(), 3);
/// assert!(report.dumps[1].changed && !report.dumps[2].changed);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pipeline {
    steps: Vec<Step>,
    options: Options,
}

impl Pipeline {
    /// The passes one after the other.
    #[must_use]
    pub fn of(passes: &[Pass]) -> Pipeline {
        Pipeline { steps: passes.iter().map(|&pass| Step::Once(pass)).collect(), options: Options::default() }
    }

    /// What a kernel goes through on its way to the code generator.
    #[must_use]
    pub fn standard() -> Pipeline {
        let tidy = || Step::Repeat(vec![Pass::Fold, Pass::Cse, Pass::Dce], 3);
        let steps = vec![
            Step::Once(Pass::Inline),
            tidy(),
            Step::Once(Pass::Range),
            Step::Once(Pass::Licm),
            Step::Once(Pass::Strength),
            tidy(),
            Step::Once(Pass::Vectorize),
            tidy(),
            Step::Once(Pass::Uniform),
        ];
        Pipeline { steps, options: Options::default() }
    }

    /// With other options.
    #[must_use]
    pub fn with(mut self, options: Options) -> Pipeline {
        self.options = options;
        self
    }

    /// Runs the passes.
    ///
    /// # Errors
    /// [`PassError::Broken`] with a reproducer if a pass leaves IR behind that the verifier refuses (the pass `input` if the module was
    /// wrong to begin with); what [`Pass::run`] reports.
    pub fn run(&self, module: &mut Module) -> Result<Report, PassError> {
        let mut run =
            Run { module, options: self.options, cx: Context::default(), report: Report::default() };
        if self.options.verify {
            check("input", run.module, run.module)?;
        }
        if self.options.dump {
            run.dump("input", false);
        }
        // Tidying up after a pass that did nothing is in vain.
        let mut dirty = true;
        for step in &self.steps {
            match step {
                Step::Once(pass) => dirty |= run.pass(*pass)?,
                Step::Repeat(passes, most) => {
                    for _ in 0..*most {
                        if !std::mem::replace(&mut dirty, false) {
                            break;
                        }
                        for &pass in passes {
                            dirty |= run.pass(pass)?;
                        }
                    }
                }
            }
        }
        let Run { cx, mut report, .. } = run;
        report.remarks = cx.remarks;
        Ok(report)
    }
}

struct Run<'a> {
    module: &'a mut Module,
    options: Options,
    cx: Context,
    report: Report,
}

impl Run<'_> {
    fn pass(&mut self, pass: Pass) -> Result<bool, PassError> {
        let before = self.options.verify.then(|| self.module.clone());
        let start = Instant::now();
        let changed = pass.run(self.module, &mut self.cx)?;
        self.report.timings.push(Timing { pass: pass.name(), time: start.elapsed() });
        self.report.changed |= changed;
        if let Some(before) = before {
            check(pass.name(), self.module, &before)?;
        }
        if self.options.dump {
            self.dump(pass.name(), changed);
        }
        Ok(changed)
    }

    fn dump(&mut self, pass: &'static str, changed: bool) {
        let text = self.module.to_text(PrintOptions { locations: false });
        self.report.dumps.push(Dump { pass, number: self.report.dumps.len(), changed, text });
    }
}

/// Holds a pass to the rules of the IR.
fn check(pass: &'static str, module: &Module, before: &Module) -> Result<(), PassError> {
    let problems = verify(module);
    if problems.is_empty() {
        return Ok(());
    }
    let diagnostics = problems.into_iter().map(|problem| match problem.location {
        Some(at) => format!("{} ({at})", problem.message),
        None => problem.message,
    });
    Err(PassError::Broken { pass, diagnostics: diagnostics.collect(), reproducer: before.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_ir::parse;

    #[test]
    fn broken_ir_names_the_pass_and_keeps_the_input() {
        let good = parse("func @f (%x: u32) { %0 = add %x, %x : u32 }").unwrap();
        let bad = parse("func @f (%x: u32) { %0 = add %x, %x : u64 }").unwrap();
        let error = check("fold", &bad, &good).unwrap_err();
        assert!(
            error.to_string().starts_with("pass `fold` broke the IR: result 0 of `add` is u64, expected u32"),
            "{error}"
        );
        let PassError::Broken { reproducer, .. } = error else { panic!() };
        assert_eq!(parse(&reproducer).unwrap(), good);
    }

    #[test]
    fn wrong_input_is_not_blamed_on_a_pass() {
        let mut bad = parse("func @f (%x: u32) { %0 = add %x, %x : u64 }").unwrap();
        let error =
            Pipeline::standard().with(Options { verify: true, dump: false }).run(&mut bad).unwrap_err();
        assert!(matches!(error, PassError::Broken { pass: "input", .. }), "{error}");
    }

    #[test]
    fn the_standard_pipeline_ends_when_nothing_changes() {
        let mut module = parse("func @f (%p: ptr<global>, %x: u32) { store %p, %x }").unwrap();
        let report = Pipeline::standard().run(&mut module).unwrap();
        assert!(!report.changed);
        let passes: Vec<&str> = report.timings.iter().map(|timing| timing.pass).collect();
        assert_eq!(
            passes,
            ["inline", "fold", "cse", "dce", "range", "licm", "strength", "vectorize", "uniform"]
        );
    }

    #[test]
    fn names_are_those_of_the_files() {
        for pass in Pass::ALL {
            assert_eq!(Pass::named(pass.name()), Ok(pass));
        }
        assert!(Pass::named("unroll").unwrap_err().to_string().contains("known are inline, fold"));
    }
}
