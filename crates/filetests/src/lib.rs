//! Golden files: a `.tw` file is a test. Its first line says which:
//!
//! * `test roundtrip`: the rest, without comments at the start of a line, is verified IR exactly as the printer writes it.
//! * `test verify`: the verifier reports what `; error: message` at the ends of lines says, at those lines, and nothing else. Messages
//!   about no op in particular stand on the line of a `func`.
//! * `test pass NAME[,NAME]`: the passes (or the whole pipeline, `standard`) turn the IR into what follows the line `; expect`, as
//!   comments; remarks are listed there as `; remark: pass: message`.
//! * `test ptx ARCH`: the code generator turns the first function into the PTX that follows the line `; expect`, as comments.
//!
//! An unknown directive is a failure, never a test that passes. `BLESS=1 cargo test -p tilewright-filetests` writes what was
//! found into the files, for review in the diff.
//!
//! Limits: one op a line, and an empty `yield` is not written, so that messages find their line.

use tilewright_codegen::{CodegenError, compile};
use tilewright_hardware::{Arch, HardwareError};
use tilewright_ir::{Func, IrError, Module, Opcode, PrintOptions, parse, verify};
use tilewright_passes::{Options, Pass, PassError, Pipeline, RemarkKind};

/// Why a golden file could not be checked at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The first line is no directive.
    #[error(
        "the first line is {found:?}, expected `test roundtrip`, `test verify`, `test pass NAME[,NAME]` or `test ptx ARCH`"
    )]
    Directive {
        /// The line.
        found: String,
    },
    /// The text is not IR.
    #[error(transparent)]
    Ir(#[from] IrError),
    /// A pass does not exist or failed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// The chip of a `test ptx` does not exist.
    #[error(transparent)]
    Arch(#[from] HardwareError),
    /// The code generator contradicts itself.
    #[error("the PTX does not read back as the tree that it was printed from")]
    Ptx,
    /// The input of a pass is wrong already.
    #[error("the input breaks a rule: {message}")]
    Input {
        /// What the verifier says.
        message: String,
    },
    /// Ops and lines cannot be matched.
    #[error("function `{func}` has {ops} ops on {lines} lines, expected one a line")]
    Lines {
        /// The function.
        func: String,
        /// Ops in it.
        ops: usize,
        /// Lines that look like ops.
        lines: usize,
    },
}

/// What a file asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Directive {
    /// Text, parsed and printed, is the same text.
    Roundtrip,
    /// Messages of the verifier.
    Verify,
    /// Passes by name.
    Pass(Vec<String>),
    /// The PTX for a chip.
    Ptx(Arch),
}

impl std::str::FromStr for Directive {
    type Err = FileError;

    fn from_str(line: &str) -> Result<Directive, FileError> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["test", "roundtrip"] => Ok(Directive::Roundtrip),
            ["test", "verify"] => Ok(Directive::Verify),
            ["test", "pass", names] => Ok(Directive::Pass(names.split(',').map(str::to_owned).collect())),
            ["test", "ptx", arch] => Ok(Directive::Ptx(arch.parse()?)),
            _ => Err(FileError::Directive { found: line.to_owned() }),
        }
    }
}

const EXPECT: &str = "; expect";
const ERROR: &str = "; error: ";

/// The file as it would be if all expectations were what really happens. A test passes if that is the file itself.
///
/// ```
/// let file = "test pass dce\nfunc @f (%x: u32) {\n  %0 = add %x, %x : u32\n}\n; expect\n; func @f (%x: u32) {\n; }\n";
/// assert_eq!(tilewright_filetests::blessed(file)?, file);
/// # Ok::<(), tilewright_filetests::FileError>(())
/// ```
///
/// # Errors
/// [`FileError`] if the file makes no sense as a test.
pub fn blessed(file: &str) -> Result<String, FileError> {
    let first = file.lines().next().unwrap_or("");
    match first.parse()? {
        Directive::Roundtrip => roundtrip(file),
        Directive::Verify => verified(file),
        Directive::Pass(names) => passed(file, &names),
        Directive::Ptx(arch) => compiled(file, arch),
    }
}

/// The text without its first line, which the comment sign hides from the parser.
fn body(file: &str) -> String {
    format!("; {file}")
}

fn roundtrip(file: &str) -> Result<String, FileError> {
    let module = parse(&body(file))?;
    check_input(&module)?;
    let head: String = file
        .lines()
        .enumerate()
        .filter(|(i, l)| *i == 0 || l.starts_with(';'))
        .map(|(_, l)| format!("{l}\n"))
        .collect();
    let printed = module.to_string();
    // What was printed must also mean the same.
    let again = if parse(&printed)? == module {
        printed
    } else {
        "; the printed text means something else\n".to_owned()
    };
    Ok(head + &again)
}

fn check_input(module: &Module) -> Result<(), FileError> {
    match verify(module).into_iter().next() {
        None => Ok(()),
        Some(problem) => Err(FileError::Input { message: problem.message }),
    }
}

fn verified(file: &str) -> Result<String, FileError> {
    let bare: Vec<&str> =
        file.lines().map(|line| line.split(ERROR).next().unwrap_or("").trim_end()).collect();
    let mut module = parse(&body(&bare.join("\n")))?;
    let heads = locate(&mut module, &bare)?;
    let mut messages: Vec<Vec<String>> = vec![Vec::new(); bare.len()];
    // One function at a time, so that messages without a place find theirs; calls still see the whole module.
    for (i, &head) in heads.iter().enumerate() {
        let mut alone = module.clone();
        for (k, func) in alone.funcs.iter_mut().enumerate() {
            if k != i {
                hollow(func);
            }
        }
        for problem in verify(&alone) {
            let line = problem
                .location
                .as_deref()
                .and_then(|at| at.split(':').nth(1))
                .and_then(|n| n.parse::<usize>().ok());
            if let Some(found) = messages.get_mut(line.map_or(head, |n| n - 1)) {
                found.push(problem.message);
            }
        }
    }
    let mut out = String::new();
    for (line, found) in bare.iter().zip(messages) {
        out.push_str(line);
        for message in found {
            out.push_str(&format!(" {ERROR}{message}"));
        }
        out.push('\n');
    }
    Ok(out)
}

/// Keeps only the signature of a function, in a form that the verifier accepts.
fn hollow(func: &mut Func) {
    let results = func.results.clone();
    let mut ops = Vec::new();
    let mut values = Vec::new();
    for ty in results {
        let op = func.new_op(Opcode::Poison, [], [], [ty], tilewright_ir::Loc::NONE);
        values.extend(func.op(op).results.iter().copied());
        ops.push(op);
    }
    if !values.is_empty() {
        ops.push(func.new_op(Opcode::Return, values, [], [], tilewright_ir::Loc::NONE));
    }
    let region = func.body();
    func.region_mut(region).ops = ops;
}

/// Gives every op its line as place in the source; returns the lines of the functions.
fn locate(module: &mut Module, lines: &[&str]) -> Result<Vec<usize>, FileError> {
    let numbered = || lines.iter().enumerate().skip(1).map(|(i, line)| (i, line.trim_start()));
    let heads: Vec<usize> = numbered().filter(|(_, line)| line.starts_with("func")).map(|(i, _)| i).collect();
    for (k, func) in module.funcs.iter_mut().enumerate() {
        let end = heads.get(k + 1).copied().unwrap_or(lines.len());
        let own = |i: usize| heads.get(k).is_some_and(|&head| head < i) && i < end;
        let starts_op = |line: &str| !line.is_empty() && !line.starts_with([';', '}', '(']);
        let places: Vec<usize> =
            numbered().filter(|&(i, line)| own(i) && starts_op(line)).map(|(i, _)| i).collect();
        let written =
            |func: &Func, op| !(func.op(op).code == Opcode::Yield && func.op(op).operands.is_empty());
        let ops: Vec<_> = func.walk().into_iter().filter(|&op| written(func, op)).collect();
        if ops.len() != places.len() {
            return Err(FileError::Lines { func: func.name.clone(), ops: ops.len(), lines: places.len() });
        }
        for (op, place) in ops.into_iter().zip(places) {
            let line = u32::try_from(place + 1).unwrap_or(u32::MAX);
            let loc = func.locations.add("test", line, 1, tilewright_ir::Frame::KERNEL);
            func.op_mut(op).loc = loc;
        }
    }
    Ok(heads)
}

/// The PTX that a `test ptx` file expects, with the chip that it is for; `None` for other files and for expected errors.
#[must_use]
pub fn expected_ptx(file: &str) -> Option<(Arch, String)> {
    let Ok(Directive::Ptx(arch)) = file.lines().next()?.parse() else { return None };
    let lines = file.lines().skip_while(|line| line.trim_end() != EXPECT).skip(1);
    let text: String = lines.map(|line| line.strip_prefix("; ").unwrap_or("").to_owned() + "\n").collect();
    (!text.starts_with("error:")).then_some((arch, text))
}

/// What stands before the expectation.
fn input(file: &str) -> String {
    file.lines().take_while(|line| line.trim_end() != EXPECT).map(|line| format!("{line}\n")).collect()
}

fn compiled(file: &str, arch: Arch) -> Result<String, FileError> {
    let input = input(file);
    let module = parse(&body(&input))?;
    check_input(&module)?;
    let func = module
        .funcs
        .first()
        .ok_or_else(|| FileError::Input { message: "there is no function".to_owned() })?;
    let text = match compile(func, &tilewright_codegen::Options::new(arch)) {
        Ok(code) if tilewright_ptx::parse(&code.text).is_ok_and(|read| read == code.module) => code.text,
        Ok(_) => return Err(FileError::Ptx),
        Err(error @ CodegenError::Illegal { .. }) => {
            return Err(FileError::Input { message: error.to_string() });
        }
        Err(error) => format!("error: {error}"),
    };
    let expected = text.lines().map(|line| format!("; {line}").trim_end().to_owned() + "\n");
    Ok(format!("{input}{EXPECT}\n{}", expected.collect::<String>()))
}

fn passed(file: &str, names: &[String]) -> Result<String, FileError> {
    let input = input(file);
    let mut module = parse(&body(&input))?;
    check_input(&module)?;
    let pipeline = match names {
        [name] if name == "standard" => Pipeline::standard(),
        _ => Pipeline::of(&names.iter().map(|name| Pass::named(name)).collect::<Result<Vec<_>, _>>()?),
    };
    let mut out = input;
    out.push_str(EXPECT);
    out.push('\n');
    match pipeline.with(Options { verify: true, dump: false }).run(&mut module) {
        Ok(report) => {
            let locations = module.funcs.iter().any(|func| !func.locations.files().is_empty());
            for line in module.to_text(PrintOptions { locations }).lines() {
                out.push_str(format!("; {line}").trim_end());
                out.push('\n');
            }
            for remark in report.remarks {
                let kind = match remark.kind {
                    RemarkKind::Applied => "",
                    RemarkKind::Missed => "missed: ",
                };
                out.push_str(&format!("; remark: {}: {kind}{}\n", remark.pass, remark.message));
            }
        }
        Err(error @ PassError::Broken { .. }) => return Err(error.into()),
        // Errors that users can cause are expectations too.
        Err(error) => out.push_str(&format!("; error: {error}\n")),
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_directives_and_passes_fail() {
        for file in ["", "test", "test lower\n", "test pass\n", "func @f () {\n}\n"] {
            assert!(matches!(blessed(file), Err(FileError::Directive { .. })), "{file:?}");
        }
        let error = blessed("test pass unroll\nfunc @f () {\n}\n").unwrap_err();
        assert!(error.to_string().contains("pass \"unroll\" is unknown"), "{error}");
    }

    #[test]
    fn wrong_expectations_are_seen() {
        let file = "test verify\nfunc @f (%x: u32) {\n  %0 = add %x, %x : u64\n}\n";
        let blessed = blessed(file).unwrap();
        assert!(
            blessed.contains("%0 = add %x, %x : u64 ; error: result 0 of `add` is u64, expected u32\n"),
            "{blessed}"
        );
        let stale =
            "test verify\nfunc @f (%x: u32) {\n  %0 = add %x, %x : u32 ; error: nothing is wrong\n}\n";
        assert_ne!(super::blessed(stale).unwrap(), stale);
    }

    #[test]
    fn the_verifier_counts_regions() {
        // The text form cannot say this.
        let mut module = parse("func @f (%c: bool) {\n  if %c then {\n  } else {\n  }\n}\n").unwrap();
        let func = &mut module.funcs[0];
        let op = func.walk()[0];
        func.op_mut(op).regions.pop();
        assert_eq!(verify(&module)[0].message, "`if` has 1 regions, expected 2");
    }
}
