//! Arguments, dispatch and errors; one module a command.

mod bench;
mod cache;
mod compile;
mod demo;
mod doctor;
mod explain;
mod layout;
mod machine;
mod markup;
mod npy;
mod product;
mod shape;
mod sim;
mod whole;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use comfy_table::{Table, presets};

/// GPU kernels in Rust without a toolchain.
#[derive(Debug, Parser)]
#[command(name = "tilewright", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Describe the machine, multiply matrices on its best device, check and time them, and run a kernel of each layer (the default)
    Demo(demo::Options),
    /// Say what this machine has: driver, GPUs, assembler, cache; and what to do about what is missing
    Doctor(doctor::Options),
    /// Measure matrix products beside cuBLASLt, ops beside torch and Triton, the ladder; draw what was measured
    Bench(bench::Options),
    /// List, clear or verify the compiled kernels that are kept on disk
    Cache(cache::Options),
    /// Compile a kernel of the registry to IR or PTX, or kernels and operators into a pack
    Compile(compile::Options),
    /// Show what becomes of a kernel: stages, one after the other or side by side, what each pass did, registers, occupancy
    Explain(explain::Options),
    /// Evaluate expressions of the layout algebra, or draw layouts
    Layout(layout::Options),
    /// Run a kernel in PTX on the CPU: check it for races and deadlocks, count what a profiler would
    Sim(sim::Options),
}

/// Why a command ended early.
#[derive(Debug)]
enum Failure {
    /// The input was wrong: exit code 2.
    Input(String),
    /// The machine failed us: exit code 1.
    Machine(String),
    /// A kernel has faults: exit code 2.
    Findings(String),
    /// Standard output was closed, for example by `head`: not an error of ours.
    Closed,
}

impl Failure {
    fn input(error: impl Display) -> Failure {
        Failure::Input(error.to_string())
    }

    /// What went wrong, in one line.
    fn message(&self) -> &str {
        match self {
            Failure::Input(message) | Failure::Machine(message) | Failure::Findings(message) => message,
            Failure::Closed => "standard output is closed",
        }
    }

    fn file(doing: &str, path: &Path, error: &io::Error) -> Failure {
        // Temporary files say what they are called, which nobody asked for.
        let cause = error.get_ref().and_then(|inner| inner.source()?.downcast_ref());
        let error = cause.unwrap_or(error);
        Failure::Machine(format!("{doing} {}: {error}", path.display()))
    }
}

/// Errors of writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::Closed,
            _ => Failure::Machine(format!("writing the output: {error}")),
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

/// Runs the program with these arguments, the first being its name.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let first = arguments.get(1).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let outcome = match Arguments::try_parse_from(&arguments) {
        Ok(arguments) => dispatch(arguments.command.unwrap_or(Command::Demo(demo::Options::default()))),
        // Help and version are not errors.
        Err(help) if !help.use_stderr() => {
            let (text, mut out) = (help.render(), io::stdout());
            let shown = if out.is_terminal() { text.ansi().to_string() } else { text.to_string() };
            write!(out, "{shown}").map_err(Failure::from)
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(Failure::Input(missing_command(&first)))
        }
        Err(error) => {
            let message = one_line(&error.to_string(), &help_of(&arguments));
            // Exit code 2 of `sim` is kept for findings.
            Err(if first == "sim" { Failure::Machine(message) } else { Failure::Input(message) })
        }
    };
    let (code, message) = match outcome {
        Ok(()) | Err(Failure::Closed) => return ExitCode::SUCCESS,
        Err(Failure::Machine(message)) => (1, message),
        Err(Failure::Input(message) | Failure::Findings(message)) => (2, message),
    };
    // Nothing more can be done if standard error is closed as well.
    let _ = writeln!(io::stderr(), "error: {message}");
    ExitCode::from(code)
}

fn dispatch(command: Command) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    match command {
        Command::Demo(options) => demo::run(&options, &mut out),
        Command::Doctor(options) => doctor::run(&options, &mut out),
        Command::Bench(options) => bench::run(&options, &mut out),
        Command::Cache(options) => cache::run(&options, &mut out),
        Command::Compile(options) => compile::run(&options, &mut out),
        Command::Explain(options) => explain::run(&options, &mut out),
        Command::Layout(options) => layout::run(&options, &mut out),
        Command::Sim(options) => sim::run(&options, &mut out),
    }?;
    Ok(out.flush()?)
}

/// What to say to whoever names a command that has commands, and none of these: by itself clap only says what it is for.
fn missing_command(name: &str) -> String {
    let all = Arguments::command();
    let inner = all.find_subcommand(name).unwrap_or(&all).get_subcommands();
    let names: Vec<&str> = inner.map(clap::Command::get_name).filter(|name| *name != "help").collect();
    format!("`{name}` takes a command, and none was given; expected one of {}", names.join(", "))
}

/// Where the options stand of what the user meant to call: the commands that the arguments begin with.
fn help_of(arguments: &[OsString]) -> String {
    let all = Arguments::command();
    let (mut found, mut text) = (&all, all.get_name().to_owned());
    for argument in arguments.iter().skip(1) {
        let Some(inner) = found.find_subcommand(argument) else { break };
        text = format!("{text} {}", inner.get_name());
        found = inner;
    }
    text + " --help"
}

/// The first paragraph of a message as one line, without the word `error:`.
fn one_line(message: &str, help: &str) -> String {
    let paragraph: Vec<&str> = message.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let text = paragraph.join(" ");
    format!("{}; see `{help}`", text.strip_prefix("error: ").unwrap_or(&text))
}

/// A table in the house style.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY).set_header(header);
    table
}

/// Bytes as people say them.
#[allow(clippy::cast_precision_loss)] // only shown with one digit
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!([0, 1023, 1024, 150_754_820_096].map(bytes), ["0 B", "1023 B", "1.0 KiB", "140.4 GiB"]);
    }

    #[test]
    fn messages_become_one_line() {
        let message =
            "error: the following required arguments were not provided:\n  <X>\n\nUsage: tilewright";
        let line = "the following required arguments were not provided: <X>; see `tilewright --help`";
        assert_eq!(one_line(message, "tilewright --help"), line);
    }
}
