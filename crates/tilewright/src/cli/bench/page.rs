//! Results in a page of the documentation: a line for each kind of product, between two marks.

use std::path::Path;

use super::super::shape::set_of;
use super::results::{Results, Row};
use super::statistics::geometric_mean;

/// The line before the place that results go into.
pub(super) const MARK: &str = "<!-- gemm results -->";
/// The line behind the results.
pub(super) const END: &str = "<!-- end -->";

/// A page with these results and a picture of them; nothing if the page has no place for them.
pub(super) fn replaced(text: &str, results: &Results, picture: &Path) -> Option<String> {
    between(text, MARK, &markdown(results, picture))
}

/// A page with something else between a mark and its end; nothing if these are not there.
pub(super) fn between(text: &str, mark: &str, new: &str) -> Option<String> {
    let (before, rest) = text.split_once(&format!("{mark}\n"))?;
    let (_, after) = rest.split_once(&format!("{END}\n"))?;
    Some(format!("{before}{mark}\n{new}{END}\n{after}"))
}

fn markdown(results: &Results, picture: &Path) -> String {
    let mut text =
        "\n| type | layout | epilogue | products | TFLOP/s | ratio, mean | ratio, least |\n| --- | --- | --- | --- | --- | --- | --- |\n"
            .to_owned();
    let mut groups: Vec<(Group<'_>, Vec<&Row>)> = Vec::new();
    for row in results.entries.iter().filter(|row| row.ours_us.is_some()) {
        let group = Group::of(row);
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, rows)) => rows.push(row),
            None => groups.push((group, vec![row])),
        }
    }
    for (group, rows) in &groups {
        text += &group.line(rows);
    }
    text += &format!(
        "\n{}, {}. {} Above 1 ours is faster; the mean is geometric.\n",
        results.facts().join(", "),
        results.date,
        results.what
    );
    let failed = results.entries.iter().filter(|row| row.failure.is_some()).count();
    if failed > 0 {
        text += &format!("\n**{failed} products failed.**\n");
    }
    text + &format!("\n![Matrix products on {}]({})\n\n", results.gpu, picture.display())
}

/// Products that share a line.
#[derive(PartialEq)]
struct Group<'a> {
    dtype: &'a str,
    layout: &'a str,
    epilogue: &'a str,
    kind: &'static str,
}

impl<'a> Group<'a> {
    fn of(row: &'a Row) -> Group<'a> {
        let kind = set_of(&row.shape).unwrap_or("others");
        Group { dtype: &row.dtype, layout: &row.layout, epilogue: &row.epilogue, kind }
    }

    fn line(&self, rows: &[&Row]) -> String {
        let rates = || rows.iter().filter_map(|row| row.tflops);
        let ratios = || rows.iter().filter_map(|row| row.ratio);
        let range = |low: f64, high: f64| match (low, high) {
            (low, high) if low > high => "-".to_owned(),
            (low, high) if format!("{low:.0}") == format!("{high:.0}") => format!("{high:.0}"),
            (low, high) => format!("{low:.0} to {high:.0}"),
        };
        let (least, most) = (rates().fold(f64::INFINITY, f64::min), rates().fold(0.0, f64::max));
        let mean = geometric_mean(ratios());
        let worst = ratios().reduce(f64::min);
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3}"));
        format!(
            "| {} | {} | {} | {} ({}) | {} | {} | {} |\n",
            self.dtype,
            self.layout,
            self.epilogue,
            self.kind,
            rows.len(),
            range(least, most),
            number(mean),
            number(worst)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(shape: &str, us: Option<f64>, ratio: Option<f64>) -> Row {
        let shape = shape.parse().unwrap();
        let names = |text: &str| text.to_owned();
        let row = Row {
            shape,
            dtype: names("bf16"),
            layout: names("tn"),
            epilogue: names("none"),
            ..Row::default()
        };
        let failure = us.is_none().then(|| names("no memory"));
        Row { ours_us: us, tflops: us.map(|us| row.rate(us)), ratio, failure, ..row }
    }

    #[test]
    fn kinds_of_products_have_a_line_each() {
        let results = Results {
            what: "Times.".to_owned(),
            gpu: "a chip".to_owned(),
            driver: Some("1.2".to_owned()),
            cublaslt: None,
            torch: None,
            triton: None,
            copy_gbps: None,
            tilewright: String::new(),
            date: "2000-02-29".to_owned(),
            command: String::new(),
            complete: true,
            entries: vec![
                row("1024x1024x1024", Some(10.0), Some(2.0)),
                row("2048x2048x2048", Some(40.0), Some(0.5)),
                row("16x4096x4096", Some(4.0), None),
                row("1000x500x1000", Some(1.0), Some(1.25)),
                row("4096x4096x4096", None, None),
            ],
        };
        let page = format!("before\n{MARK}\nold\n{END}\nafter\n");
        let new = replaced(&page, &results, Path::new("x.svg")).unwrap();
        let table = "| bf16 | tn | none | squares (2) | 215 to 429 | 1.000 | 0.500 |\n\
                     | bf16 | tn | none | llama (1) | 134 | - | - |\n\
                     | bf16 | tn | none | others (1) | 1000 | 1.250 | 1.250 |\n\n\
                     a chip, driver 1.2, 2000-02-29. Times. Above 1 ours is faster; the mean is geometric.\n\n\
                     **1 products failed.**\n\n![Matrix products on a chip](x.svg)\n\n<!-- end -->\nafter\n";
        assert!(
            new.starts_with("before\n<!-- gemm results -->\n\n| type |") && new.ends_with(table),
            "{new}"
        );
        assert_eq!(
            replaced(&new, &results, Path::new("x.svg")).unwrap(),
            new,
            "a second time changes nothing"
        );
        assert_eq!(replaced("no marks", &results, Path::new("x.svg")), None);
    }
}
