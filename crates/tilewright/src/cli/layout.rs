//! `tilewright layout`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tilewright::layout::LayoutError;
use tilewright::layout::draw::{self, Colouring};
use tilewright::layout::expr::{self, FUNCTIONS, Value};

use super::{Failure, table, whole};

/// Options of `layout`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    tilewright layout 'compose((4,3):(3,1), 6:2)'\n  \
    tilewright layout 'logical_divide((9,(4,8)):(59,(13,1)), <3:3, (2,4):(1,8)>)'\n  \
    tilewright layout 'S<3,3,3> o 0 o (8,64):(64,1)' --svg tile.svg --bytes 2\n  \
    tilewright layout 'tv((4,8):(8,1), (2,2):(2,1))' --svg copy.svg\n  \
    tilewright layout --functions")]
pub(super) struct Options {
    /// The expression, in CuTe's notation
    #[arg(allow_hyphen_values = true, required_unless_present_any = ["batch", "functions"])]
    expression: Option<String>,

    /// Evaluate one expression a line of FILE (`-`: standard input), one result a line
    #[arg(long, value_name = "FILE", conflicts_with_all = ["expression", "svg", "functions"])]
    batch: Option<PathBuf>,

    /// Draw the result into FILE
    #[arg(long, value_name = "FILE", conflicts_with = "functions")]
    svg: Option<PathBuf>,

    /// What the colours of the picture mean
    #[arg(long, alias = "color", value_enum, default_value = "auto", requires = "svg")]
    colour: Colour,

    /// Bytes in one element, for colours by bank
    #[arg(long, value_name = "N", default_value_t = 4, requires = "svg", value_parser = clap::value_parser!(i64).range(1..=16))]
    bytes: i64,

    /// List the functions
    #[arg(long, conflicts_with = "expression")]
    functions: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Colour {
    /// By thread for thread-value layouts, by bank for swizzled ones, else by value
    Auto,
    /// Light to dark with the value
    Value,
    /// By bank of shared memory
    Bank,
}

/// A result as JSON.
#[derive(Serialize)]
struct Record<'a> {
    expression: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cosize: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl<'a> Record<'a> {
    fn new(expression: &'a str, result: &Result<Value, LayoutError>) -> Record<'a> {
        let mut record =
            Record { expression, kind: None, value: None, size: None, cosize: None, error: None };
        match result {
            Err(error) => record.error = Some(error.to_string()),
            Ok(value) => {
                record.kind = Some(value.kind());
                record.value = Some(value.to_string());
                (record.size, record.cosize) = match value {
                    Value::Layout(layout) => (Some(layout.size()), layout.cosize().ok()),
                    Value::Tv(tv) => (Some(tv.layout().size()), tv.layout().cosize().ok()),
                    Value::Composed(composed) => (composed.size().ok(), composed.cosize().ok()),
                    _ => (None, None),
                };
            }
        }
        record
    }
}

pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    if options.functions {
        return functions(options.json, out);
    }
    match (&options.batch, &options.expression) {
        (Some(path), _) => batch(path, options.json, out),
        (None, Some(expression)) => single(expression, options, out),
        (None, None) => Err(Failure::Input("give an expression, --batch FILE or --functions".into())),
    }
}

fn single(expression: &str, options: &Options, out: &mut dyn Write) -> Result<(), Failure> {
    let result = expr::evaluate(expression);
    if options.json {
        serde_json::to_writer(&mut *out, &Record::new(expression, &result))?;
        writeln!(out)?;
    }
    let value = result.map_err(Failure::input)?;
    if let Some(path) = &options.svg {
        let svg = picture(expression, &value, options).map_err(Failure::input)?;
        whole::write(path, svg)?;
    }
    if !options.json {
        writeln!(out, "{value}")?;
    }
    Ok(())
}

/// One result a line, in order; a line that fails prints its error and the run goes on.
fn batch(path: &Path, json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let mut input: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(path)
            .map_err(|error| Failure::Input(format!("reading {}: {error}", path.display())))?;
        Box::new(BufReader::new(file))
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        let read =
            input.read_until(b'\n', &mut line).map_err(|error| Failure::file("reading", path, &error))?;
        if read == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&line);
        let expression = text.trim_end_matches(['\n', '\r']);
        let result = expr::evaluate(expression);
        match (json, &result) {
            (true, _) => {
                serde_json::to_writer(&mut *out, &Record::new(expression, &result))?;
                writeln!(out)?;
            }
            (false, Ok(value)) => writeln!(out, "{value}")?,
            (false, Err(error)) => writeln!(out, "error: {error}")?,
        }
    }
}

fn picture(title: &str, value: &Value, options: &Options) -> Result<String, LayoutError> {
    let bank = Colouring::Bank { element_bytes: options.bytes };
    let colouring = match (options.colour, value) {
        (Colour::Bank, _) | (Colour::Auto, Value::Composed(_)) => bank,
        _ => Colouring::Value,
    };
    // The expression, and what it evaluates to unless that is the same.
    let shown = value.to_string();
    let title = if title == shown { shown } else { format!("{title}\n= {shown}") };
    match value {
        Value::Tv(tv) => draw::tv(&title, tv),
        Value::Layout(layout) => draw::layout(&title, layout, &layout.shape(), colouring),
        Value::Composed(composed) => draw::layout(&title, composed, &composed.shape()?, colouring),
        other => Err(LayoutError::Argument {
            op: "draw",
            reason: format!("the result is a {}, expected a layout", other.kind()),
        }),
    }
}

#[derive(Serialize)]
struct FunctionRecord {
    name: &'static str,
    parameters: &'static str,
    summary: &'static str,
}

fn functions(json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    if json {
        let records: Vec<FunctionRecord> = FUNCTIONS
            .iter()
            .map(|f| FunctionRecord { name: f.name, parameters: f.parameters, summary: f.summary })
            .collect();
        serde_json::to_writer_pretty(&mut *out, &records)?;
        return Ok(writeln!(out)?);
    }
    let mut rows = table(&["function", "result"]);
    for function in FUNCTIONS {
        rows.add_row([format!("{}({})", function.name, function.parameters), function.summary.to_string()]);
    }
    Ok(writeln!(out, "{rows}")?)
}
