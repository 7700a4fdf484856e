//! The picture of ops: for each size a bar of ours and of each peer, up to the speed of a copy.
//!
//! A panel shows one op in one type, by one clock. Its axis is GB/s; of a product TFLOP/s; of calls, calls a millisecond.

use super::super::peer::Name;
use super::super::results::Results;
use super::super::svg::{BAR, EDGE, LEFT, LENGTH, PANEL_FOOT, PANEL_HEAD, Svg, TITLE, WIDTH, short, ticks};
use super::row::Row;

/// From one size to the next: three bars.
const PITCH: f64 = 3.0 * (BAR + 1.0) + 9.0;

/// The second peer's colour.
const STYLE: &str = "\
.other { fill: #7d8fd1; }
@media (prefers-color-scheme: dark) {
.other { fill: #5d6fb5; }
}
";

/// Who has bars: colour, name, and the time.
type Runner = (&'static str, &'static str, fn(&Row) -> Option<f64>);

const RUNNERS: [Runner; 3] = [
    ("ours", "tilewright", |row| row.ours_us),
    ("peer", "torch", |row| row.theirs(Name::Torch)?.us),
    ("other", "Triton", |row| row.theirs(Name::Triton)?.us),
];

/// The picture.
pub(in crate::cli::bench) fn draw(results: &Results<Row>) -> String {
    let panels = panels(&results.entries);
    let heights: Vec<f64> = panels.iter().map(Panel::height).collect();
    let title = format!("Ops on {}", results.gpu);
    let mut svg = Svg::new(WIDTH, TITLE + heights.iter().sum::<f64>() + EDGE, &title);
    svg.style(STYLE);
    svg.text(EDGE, 26.0, 15.0, "bold", "start", &title);
    let mut facts = vec![format!("tilewright {}", results.tilewright)];
    // The GPU is in the title.
    facts.extend(results.facts().into_iter().skip(1));
    facts.push(results.date.clone());
    svg.text(EDGE, 44.0, 11.0, "faint", "start", &facts.join(", "));
    let mut x = LEFT + 250.0;
    for (class, name, _) in
        RUNNERS.iter().filter(|(_, _, us)| results.entries.iter().any(|row| us(row).is_some()))
    {
        svg.key(x, class, name);
        x += 90.0;
    }
    if results.copy_gbps.is_some() {
        svg.line("roof", (x + 2.0, 16.0), (x + 2.0, 28.0));
        svg.text(x + 12.0, 26.0, 11.0, "", "start", "copy");
    }
    let mut top = TITLE;
    for (panel, height) in panels.iter().zip(heights) {
        panel.draw(&mut svg, top, results.copy_gbps);
        top += height;
    }
    svg.finish()
}

/// An op in one type.
struct Panel<'a> {
    title: String,
    rows: Vec<&'a Row>,
}

/// Rows by op, type and clock, in the order in which they come. Those without any time are left out.
fn panels(rows: &[Row]) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for row in rows.iter().filter(|row| RUNNERS.iter().any(|(_, _, us)| us(row).is_some())) {
        let host = if row.clock == "host" { ", with the host's part" } else { "" };
        let title = format!("{} {}{host}", row.op, row.dtype);
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.rows.push(row),
            None => panels.push(Panel { title, rows: vec![row] }),
        }
    }
    panels
}

/// What a bar of a row shows for a time.
fn speed(row: &Row, us: f64) -> f64 {
    // All are inverse to the time: what is known of one of the times gives the others.
    let of_one = |rate: Option<f64>, us: Option<f64>| Some(rate? * us?);
    let theirs = || Name::ALL.iter().find_map(|&name| row.theirs(name).and_then(|it| of_one(it.gbps, it.us)));
    let work = match (row.clock.as_str(), row.depth) {
        ("host", _) => Some(1e3),
        (_, Some(depth)) => Some(2e-6 * f64::from(row.rows) * f64::from(row.columns) * f64::from(depth)),
        _ => of_one(row.gbps, row.ours_us).or_else(theirs),
    };
    work.unwrap_or(0.0) / us
}

impl Panel<'_> {
    #[allow(clippy::cast_precision_loss, reason = "a few rows")]
    fn height(&self) -> f64 {
        PANEL_HEAD + PITCH * self.rows.len() as f64 + PANEL_FOOT
    }

    fn unit(&self) -> &'static str {
        match self.rows.first() {
            Some(row) if row.clock == "host" => "calls/ms",
            Some(row) if row.depth.is_some() => "TFLOP/s",
            _ => "GB/s",
        }
    }

    fn draw(&self, svg: &mut Svg, top: f64, copy: Option<f64>) {
        let copy = copy.filter(|_| self.unit() == "GB/s");
        let speeds =
            self.rows.iter().flat_map(|row| RUNNERS.map(|(_, _, us)| us(row).map(|us| speed(row, us))));
        let most = speeds.flatten().chain(copy).fold(f64::MIN_POSITIVE, f64::max);
        let (first, bottom) = (top + PANEL_HEAD, top + self.height() - PANEL_FOOT);
        svg.text(EDGE, top + 20.0, 13.0, "bold", "start", &self.title);
        for (place, label) in ticks(most) {
            let x = LEFT + LENGTH * place;
            svg.line("line", (x, first - 4.0), (x, bottom));
            svg.text(x, bottom + 14.0, 10.0, "faint", "middle", &label);
        }
        svg.text(LEFT, bottom + 28.0, 10.0, "faint", "start", self.unit());
        if let Some(copy) = copy {
            let x = LEFT + LENGTH * copy / most;
            svg.line("roof", (x, first - 4.0), (x, bottom));
        }
        let mut y = first;
        for row in &self.rows {
            self.draw_row(svg, row, most, y);
            y += PITCH;
        }
    }

    fn draw_row(&self, svg: &mut Svg, row: &Row, most: f64, top: f64) {
        let middle = top + 1.5 * BAR + 5.0;
        svg.text(LEFT - 10.0, middle, 11.0, "", "end", &row.size());
        let mut y = top;
        for (class, _, us) in RUNNERS {
            if let Some(us) = us(row) {
                svg.bar(class, y, speed(row, us) / most);
            }
            y += BAR + 1.0;
        }
        if let Some(us) = row.ours_us {
            let numbers = format!("{} {}", short(speed(row, us)), self.unit());
            svg.text(LEFT + LENGTH + 100.0, middle, 11.0, "faint", "end", &numbers);
        }
        let ratio = |name| row.theirs(name).and_then(|theirs| theirs.ratio);
        for (name, x, y) in [(Name::Torch, WIDTH - EDGE, -3.0), (Name::Triton, WIDTH - EDGE, 10.0)] {
            if let Some(ratio) = ratio(name) {
                svg.text(x, middle + y, 11.0, "bold", "end", &format!("{ratio:.2}× {}", name.as_str()));
            }
        }
    }
}
