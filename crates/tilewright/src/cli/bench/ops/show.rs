//! The tables of ops: on the terminal, and in a page of the documentation.

use std::io::Write;
use std::path::Path;

use super::super::super::{Failure, table};
use super::super::gemm::{digits, number};
use super::super::page;
use super::super::peer::Name;
use super::super::results::Results;
use super::super::statistics::geometric_mean;
use super::row::Row;

/// The line before the place that results go into.
pub(in crate::cli::bench) const MARK: &str = "<!-- ops results -->";

/// A mean over rows, with its name.
type Mean = (&'static str, fn(&Row) -> Option<f64>);

/// What the rows are summed up by.
const MEANS: [Mean; 3] = [
    ("of the speed of a copy", |row| row.of_copy),
    ("of torch's time over ours", |row| row.torch.as_ref()?.ratio),
    ("of Triton's time over ours", |row| row.triton.as_ref()?.ratio),
];

const HEADER: [&str; 12] =
    ["op", "type", "size", "us", "GB/s", "of copy", "torch us", "ratio", "triton us", "ratio", "error", "by"];

/// The same cells for the terminal and for pages.
fn cells(row: &Row) -> [String; 12] {
    let peer = |name: Name| {
        let theirs = row.theirs(name);
        let failed = theirs.is_some_and(|theirs| theirs.failure.is_some());
        let us = if failed { "failed".to_owned() } else { number(theirs.and_then(|theirs| theirs.us), 2) };
        [us, number(theirs.and_then(|theirs| theirs.ratio), 3)]
    };
    let ([torch, torch_ratio], [triton, triton_ratio]) = (peer(Name::Torch), peer(Name::Triton));
    let rate = row.tflops.map(|tflops| format!("{} TFLOP/s", digits(Some(tflops))));
    let by = row.failure.as_ref().map(|failure| format!("failed: {failure}")).or_else(|| row.subject.clone());
    [
        row.op.clone(),
        row.dtype.clone(),
        row.size(),
        number(row.ours_us, 2),
        rate.unwrap_or_else(|| digits(row.gbps)),
        number(row.of_copy, 3),
        torch,
        torch_ratio,
        triton,
        triton_ratio,
        number(row.error, 3),
        by.unwrap_or_else(|| "-".to_owned()),
    ]
}

/// On the terminal.
pub(super) fn write(rows: &[Row], out: &mut dyn Write) -> Result<(), Failure> {
    let mut shown = table(&HEADER);
    for row in rows {
        shown.add_row(cells(row));
    }
    writeln!(out, "{shown}")?;
    for (name, pick) in MEANS {
        if let Some(mean) = geometric_mean(rows.iter().filter_map(pick)) {
            writeln!(out, "geometric mean {name}: {mean:.3}")?;
        }
    }
    for (row, name) in rows.iter().flat_map(|row| Name::ALL.map(|name| (row, name))) {
        let failure = row.theirs(name).and_then(|theirs| theirs.failure.as_ref());
        if let Some(failure) = failure {
            writeln!(out, "{} {} {}: {failure}", row.op, row.dtype, row.size())?;
        }
    }
    Ok(())
}

/// A page with these results and a picture of them; nothing if the page has no place for them.
pub(in crate::cli::bench) fn replaced(text: &str, results: &Results<Row>, picture: &Path) -> Option<String> {
    page::between(text, MARK, &markdown(results, picture))
}

fn markdown(results: &Results<Row>, picture: &Path) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text =
        format!("\n{}{}", line(&HEADER.map(str::to_owned)), line(&HEADER.map(|_| "---".to_owned())));
    text.extend(results.entries.iter().map(|row| line(&cells(row).map(|cell| cell.replace('|', "\\|")))));
    text += &format!("\n{}, {}. {}\n", results.facts().join(", "), results.date, results.what);
    let means = MEANS.iter().filter_map(|(name, pick)| {
        geometric_mean(results.entries.iter().filter_map(pick)).map(|mean| format!("{name} {mean:.3}"))
    });
    let means = means.collect::<Vec<_>>().join(", ");
    if !means.is_empty() {
        text += &format!("Geometric means: {means}.\n");
    }
    text + &format!("\n![Ops on {}]({})\n\n", results.gpu, picture.display())
}
