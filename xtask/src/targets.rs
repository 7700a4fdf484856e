//! Which programs go to a machine with a GPU.
//!
//! One table of rules; for each target of the workspace the first rule that fits decides, and what no rule fits stays here. So a new
//! test called `gpu`, or a new example of the runtime, travels without anybody thinking of it.

use std::fmt;

use crate::Failure;
use crate::cargo::{BuildTarget, Kind};

/// A check of NVIDIA's compute-sanitizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Memcheck,
    Racecheck,
    Initcheck,
    Synccheck,
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tool::Memcheck => "memcheck",
            Tool::Racecheck => "racecheck",
            Tool::Initcheck => "initcheck",
            Tool::Synccheck => "synccheck",
        })
    }
}

const EVERY_TOOL: &[Tool] = &[Tool::Memcheck, Tool::Racecheck, Tool::Initcheck, Tool::Synccheck];

/// Files that travel with a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data {
    pub(crate) variable: &'static str,
    pub(crate) folder: &'static str,
}

/// What is to be done with some targets. `*` stands for every package or name.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) package: &'static str,
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    /// What the program is called with. A benchmark is given `--json FILE` besides.
    pub(crate) arguments: &'static [&'static str],
    /// Seconds after which it counts as failed; ten times as many under a sanitizer.
    pub(crate) seconds: u32,
    pub(crate) sanitizers: &'static [Tool],
    /// Tests of it that launch from several threads at once. racecheck loses track of such launches, says so, and counts it as a hazard; so
    /// it does not run them. Their kernels must have other tests, which it does run.
    pub(crate) threaded: &'static [&'static str],
    /// A folder of the checkout that it reads, and the environment variable by which it is told where that is.
    pub(crate) data: Option<Data>,
    pub(crate) proves: &'static str,
}

/// The table.
pub(crate) static RULES: &[Rule] = &[
    Rule {
        package: "tilewright-cuda",
        kind: Kind::Test,
        name: "leaks",
        arguments: &[],
        seconds: 300,
        // Ten thousand cycles of everything take hours under a sanitizer, and the other tests have the same objects.
        sanitizers: &[],
        threaded: &[],
        data: None,
        proves: "10,000 cycles of every resource leave nothing behind",
    },
    Rule {
        package: "tilewright-cuda",
        kind: Kind::Test,
        name: "corpus",
        arguments: &[],
        seconds: 300,
        sanitizers: EVERY_TOOL,
        threaded: &[],
        data: Some(Data { variable: "TILEWRIGHT_CORPUS", folder: "crates/sim/tests/corpus/ptx" }),
        proves: "kernels of other compilers run as the simulator says",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "devices",
        arguments: &[],
        seconds: 120,
        sanitizers: EVERY_TOOL,
        threaded: &[],
        data: None,
        proves: "the library's kernels compute the same on GPU, CPU and simulator",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "device",
        arguments: &[],
        seconds: 120,
        sanitizers: &[Tool::Memcheck],
        threaded: &[],
        data: None,
        proves: "the vocabulary of devices means the same on all",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "ahead_of_time",
        arguments: &["on_every_device"],
        seconds: 120,
        sanitizers: &[Tool::Memcheck],
        threaded: &[],
        data: None,
        proves: "what was recorded for a GPU runs on it without a compiler",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "ops",
        arguments: &["devices::", "in_place::", "margins::", "steps::"],
        seconds: 300,
        sanitizers: EVERY_TOOL,
        threaded: &[],
        data: None,
        proves: "operators compute the same on GPU and CPU, for dense rows and others",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "program",
        arguments: &[],
        seconds: 300,
        sanitizers: EVERY_TOOL,
        threaded: &[],
        data: None,
        proves: "programs on tiles, as users write them, mean the same on GPU, CPU and simulator",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "gemm",
        arguments: &[],
        seconds: 540,
        sanitizers: EVERY_TOOL,
        threaded: &[],
        data: None,
        proves: "every family of matrix products computes the same on GPU and simulator",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "gemm_api",
        arguments: &[],
        seconds: 300,
        sanitizers: &[Tool::Memcheck],
        threaded: &[],
        data: None,
        proves: "matrix products by their public names mean the same on GPU, CPU and simulator",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Test,
        name: "gemm_sweep",
        // What runs without a GPU has run where this was packed.
        arguments: &["cuda-"],
        seconds: 540,
        // Memory beyond the ends of matrices is what random products are for; the other checks would take hours.
        sanitizers: &[Tool::Memcheck],
        threaded: &[],
        data: None,
        proves: "hundreds of random matrix products are as close to the exact ones as their types allow",
    },
    Rule {
        package: "*",
        kind: Kind::Test,
        name: "gpu",
        arguments: &[],
        seconds: 300,
        sanitizers: EVERY_TOOL,
        threaded: &["graph::sixteen_threads", "launch::sixteen_threads"],
        data: None,
        proves: "what is promised holds on a real GPU",
    },
    Rule {
        package: "tilewright-cuda",
        kind: Kind::Example,
        name: "*",
        arguments: &[],
        seconds: 120,
        sanitizers: EVERY_TOOL,
        threaded: &[],
        data: None,
        proves: "the example computes what it says",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Example,
        name: "triton_ptx",
        arguments: &[],
        seconds: 60,
        sanitizers: EVERY_TOOL,
        threaded: &[],
        data: None,
        proves: "a kernel of Triton's computes what it should without Python",
    },
    Rule {
        package: "*",
        kind: Kind::Bench,
        name: "gpu",
        arguments: &[],
        seconds: 540,
        sanitizers: &[],
        threaded: &[],
        data: None,
        proves: "the bars of speed are met",
    },
    Rule {
        package: "tilewright",
        kind: Kind::Bin,
        name: "tilewright",
        arguments: &["doctor"],
        seconds: 60,
        sanitizers: &[],
        threaded: &[],
        data: None,
        proves: "the program finds driver and GPU",
    },
];

impl Rule {
    fn fits(&self, target: &BuildTarget) -> bool {
        let same = |pattern: &str, text: &str| pattern == "*" || pattern == text;
        same(self.package, &target.package) && self.kind == target.kind && same(self.name, &target.name)
    }

    /// Whether the rule is for one target that must exist.
    fn is_exact(&self) -> bool {
        self.package != "*" && self.name != "*"
    }
}

/// A program that travels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    pub(crate) target: &'a BuildTarget,
    pub(crate) rule: &'static Rule,
}

impl Item<'_> {
    /// Its name in the pack, which is the name of its file.
    pub(crate) fn name(&self) -> String {
        let BuildTarget { package, kind, name } = self.target;
        if package == name { format!("{kind}.{name}") } else { format!("{package}.{kind}.{name}") }
    }
}

/// The programs among these targets that travel and whose names contain `only`, in the order of the table.
///
/// # Errors
/// If the table names a target that is not there, or nothing is left.
pub(crate) fn select<'a>(targets: &'a [BuildTarget], only: Option<&str>) -> Result<Vec<Item<'a>>, Failure> {
    let stale = RULES.iter().find(|rule| rule.is_exact() && !targets.iter().any(|target| rule.fits(target)));
    if let Some(rule) = stale {
        return Err(Failure::Stale(format!("the {} `{}` of {}", rule.kind, rule.name, rule.package)));
    }
    let mut items: Vec<(usize, Item<'a>)> = targets
        .iter()
        .filter_map(|target| {
            let (row, rule) = RULES.iter().enumerate().find(|(_, rule)| rule.fits(target))?;
            Some((row, Item { target, rule }))
        })
        .collect();
    items.sort_by_key(|(row, item)| (*row, item.name()));
    let all: Vec<Item<'a>> = items.into_iter().map(|(_, item)| item).collect();
    let Some(pattern) = only else { return Ok(all) };
    let known = all.iter().map(Item::name).collect::<Vec<_>>().join(", ");
    let kept: Vec<Item<'a>> = all.into_iter().filter(|item| item.name().contains(pattern)).collect();
    if kept.is_empty() {
        return Err(Failure::NoMatch { pattern: pattern.to_owned(), known });
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo;

    fn target(package: &str, kind: Kind, name: &str) -> BuildTarget {
        BuildTarget { package: package.to_owned(), kind, name: name.to_owned() }
    }

    /// What the rules demand, and more.
    fn workspace() -> Vec<BuildTarget> {
        vec![
            target("tilewright", Kind::Bin, "tilewright"),
            target("tilewright", Kind::Example, "triton_ptx"),
            target("tilewright", Kind::Test, "ahead_of_time"),
            target("tilewright", Kind::Test, "cli"),
            target("tilewright", Kind::Test, "device"),
            target("tilewright", Kind::Test, "devices"),
            target("tilewright", Kind::Test, "gemm"),
            target("tilewright", Kind::Test, "gemm_api"),
            target("tilewright", Kind::Test, "gemm_sweep"),
            target("tilewright", Kind::Test, "ops"),
            target("tilewright", Kind::Test, "program"),
            target("tilewright-cuda", Kind::Example, "graphs"),
            target("tilewright-cuda", Kind::Bench, "gpu"),
            target("tilewright-cuda", Kind::Test, "corpus"),
            target("tilewright-cuda", Kind::Test, "gpu"),
            target("tilewright-cuda", Kind::Test, "leaks"),
            target("tilewright-sim", Kind::Example, "trace"),
        ]
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_the_rest_stays() {
        let targets = workspace();
        let items = select(&targets, None).unwrap();
        let names: Vec<String> = items.iter().map(Item::name).collect();
        assert_eq!(
            names,
            [
                "tilewright-cuda.test.leaks",
                "tilewright-cuda.test.corpus",
                "tilewright.test.devices",
                "tilewright.test.device",
                "tilewright.test.ahead_of_time",
                "tilewright.test.ops",
                "tilewright.test.program",
                "tilewright.test.gemm",
                "tilewright.test.gemm_api",
                "tilewright.test.gemm_sweep",
                "tilewright-cuda.test.gpu",
                "tilewright-cuda.example.graphs",
                "tilewright.example.triton_ptx",
                "tilewright-cuda.bench.gpu",
                "bin.tilewright",
            ]
        );
        assert_eq!(items[0].rule.sanitizers, []);
        assert_eq!(items[1].rule.sanitizers, EVERY_TOOL);
    }

    #[test]
    fn a_pattern_chooses_and_one_that_fits_nothing_is_an_error() {
        let targets = workspace();
        assert_eq!(select(&targets, Some("test")).unwrap().len(), 11);
        let error = select(&targets, Some("nvlink")).unwrap_err().to_string();
        assert!(error.starts_with("no program for a GPU matches `nvlink`; there are: "), "{error}");
    }

    #[test]
    fn a_row_for_nothing_is_an_error() {
        let targets: Vec<BuildTarget> = workspace().into_iter().filter(|t| t.name != "leaks").collect();
        let error = select(&targets, None).unwrap_err().to_string();
        assert!(error.contains("the test `leaks` of tilewright-cuda"), "{error}");
    }

    /// The table against this workspace: no row is stale, and each does something.
    #[test]
    fn every_row_finds_something_here() {
        let workspace = cargo::Workspace::load().unwrap();
        let items = select(&workspace.targets, None).unwrap();
        for rule in RULES.iter().filter(|rule| rule.kind != Kind::Example) {
            assert!(items.iter().any(|item| std::ptr::eq(item.rule, rule)), "{rule:?}");
        }
        for data in RULES.iter().filter_map(|rule| rule.data) {
            assert!(workspace.root.join(data.folder).is_dir(), "{data:?}");
        }
    }

    /// A name that no test has would leave nothing out, silently.
    #[test]
    fn tests_with_threads_are_there() {
        let root = cargo::Workspace::load().unwrap().root;
        for rule in RULES {
            assert!(rule.threaded.is_empty() || rule.kind == Kind::Test, "{rule:?}");
        }
        let tests = root.join("crates/cuda/tests/gpu");
        let rule = RULES.iter().find(|rule| rule.kind == Kind::Test && rule.name == "gpu").unwrap();
        for name in rule.threaded {
            let (module, _) = name.split_once("::").unwrap();
            let text = std::fs::read_to_string(tests.join(module).with_extension("rs")).unwrap();
            assert!(text.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
