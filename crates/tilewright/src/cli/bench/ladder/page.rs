//! The tables of the ladder, on the terminal and in the chapter.

use super::Results;

pub(super) const COUNTED: &str = "Work for each 1000 multiply-adds: instructions of warps, bytes of global memory in whole sectors as if \
    no cache held any, clocks of shared memory and those of them that bank conflicts cost. The limit is the part of a multiprocessor \
    that is busy longest, and the speed if it never waited and nothing else did.";
pub(super) const MEASURED: &str = "Medians; the gain is that over the step before.";

/// The line before the table that results go into.
fn mark(results: &Results) -> &'static str {
    if results.times.is_empty() { "<!-- ladder counts -->" } else { "<!-- ladder times -->" }
}

/// The chapter with the table of these results; the mark, if it is not there.
pub(super) fn replaced(text: &str, results: &Results) -> Result<String, &'static str> {
    let mark = mark(results);
    let (before, rest) = text.split_once(&format!("{mark}\n")).ok_or(mark)?;
    let (_, after) = rest.split_once("<!-- end -->\n").ok_or(mark)?;
    Ok(format!("{before}{mark}\n{}<!-- end -->\n{after}", markdown(results)))
}

fn markdown(results: &Results) -> String {
    let (header, rows) = rows(results);
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let names = line(header.iter().map(|&name| name.to_owned()).collect());
    let rule = line(header.iter().map(|_| "---".to_owned()).collect());
    let body: String = rows.into_iter().map(line).collect();
    let place = format!("{}, {}", extents(results.shape), results.gpu);
    let place = if results.times.is_empty() { place } else { format!("{place}, {}", results.date) };
    format!("\n{names}{rule}{body}\n{place}. {}\n\n", results.what)
}

/// Header and cells.
pub(super) fn rows(results: &Results) -> (Vec<&'static str>, Vec<Vec<String>>) {
    if results.times.is_empty() {
        let header = vec![
            "step",
            "",
            "instructions",
            "global bytes",
            "shared clocks",
            "conflicts",
            "limit",
            "TFLOP/s at most",
        ];
        let row = |row: &tilewright::ladder::Counted| {
            vec![
                row.number.to_string(),
                row.name.to_owned(),
                digits(row.instructions),
                digits(row.global_bytes),
                digits(row.shared_clocks),
                digits(row.conflicts),
                row.bound.to_owned(),
                digits(row.at_most),
            ]
        };
        return (header, results.counts.iter().map(row).collect());
    }
    let mut before = None;
    let mut rows = Vec::new();
    for row in &results.times {
        let gain = before.map_or(String::new(), |before: f64| format!("{:.2}x", before / row.microseconds));
        before = Some(row.microseconds);
        rows.push(vec![
            row.number.to_string(),
            row.name.clone(),
            digits(row.microseconds),
            digits(row.teraflops),
            gain,
        ]);
    }
    (vec!["step", "", "us", "TFLOP/s", "gain"], rows)
}

/// A product as people write it.
pub(super) fn extents(shape: [u32; 3]) -> String {
    shape.map(|extent| extent.to_string()).join("x")
}

/// Three digits that mean something.
pub(super) fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v if v >= 1.0 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use tilewright::ladder::Measured;

    use super::*;

    fn results() -> Results {
        let time = |number, microseconds| Measured {
            number,
            name: format!("step{number}"),
            microseconds,
            percentiles: [microseconds; 2],
            teraflops: 1000.0 / microseconds,
        };
        Results {
            what: MEASURED.to_owned(),
            gpu: "a chip".to_owned(),
            driver: None,
            date: "2026-01-31".to_owned(),
            command: String::new(),
            shape: [64, 32, 16],
            times: vec![time(1, 500.0), time(2, 125.0)],
            counts: Vec::new(),
        }
    }

    #[test]
    fn tables_go_between_their_marks() {
        let text = "before\n<!-- ladder times -->\nold\n<!-- end -->\nafter\n";
        let new = replaced(text, &results()).unwrap();
        let table = "\n| step |  | us | TFLOP/s | gain |\n| --- | --- | --- | --- | --- |\n| 1 | step1 | 500 | 2.00 |  |\n\
            | 2 | step2 | 125 | 8.00 | 4.00x |\n\n64x32x16, a chip, 2026-01-31. Medians; the gain is that over the step before.\n\n";
        assert_eq!(new, format!("before\n<!-- ladder times -->\n{table}<!-- end -->\nafter\n"));
        assert_eq!(replaced(&new, &results()).unwrap(), new, "a second time changes nothing");
        assert_eq!(replaced("no marks", &results()), Err("<!-- ladder times -->"));
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!([0.0, 0.01234, 1.0, 12.345, 989.4].map(digits), ["0", "0.012", "1.00", "12.3", "989"]);
    }
}
