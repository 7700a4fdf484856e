//! Pictures of results: for each product two bars, ours and the peer's, up to the chip's roofline.
//!
//! A panel shows the products of one type, layout and epilogue. Where their speeds are comparable, the axis is TFLOP/s and a mark shows
//! the roofline of each product; where they are not (a single row runs at memory speed, hundreds of times below a square), the axis is the
//! part of the roofline. Numbers stand beside the bars in either case. Many products are dots instead: a line for each set of shapes, and
//! a dot at the ratio of each product.
//!
//! The picture is one SVG without scripts; its colours follow the reader's light or dark preference, on a ground of its own.

use std::fmt::Write;

use super::super::shape::set_of;
use super::results::{Results, Row};
use super::statistics::geometric_mean;

pub(super) const WIDTH: f64 = 860.0;
/// Where bars begin, and how long the longest is.
pub(super) const LEFT: f64 = 190.0;
pub(super) const LENGTH: f64 = 430.0;
pub(super) const BAR: f64 = 9.0;
const PITCH: f64 = 28.0;
pub(super) const TITLE: f64 = 52.0;
pub(super) const PANEL_HEAD: f64 = 34.0;
pub(super) const PANEL_FOOT: f64 = 34.0;
pub(super) const EDGE: f64 = 20.0;

/// Speeds further apart than this have no common axis.
const COMPARABLE: f64 = 12.0;

/// More products than this are dots.
const MANY: usize = 12;
/// The ratios where the lines of dots begin and end; what lies outside is drawn at the end.
const DOTS: (f64, f64) = (0.5, 4.0);

/// Plain colours, and others for the dark: variables would be shorter, but few programs other than browsers know them.
const STYLE: &str = "\
.ground { fill: #ffffff; } text { fill: #1f2328; } .faint { fill: #656d76; } .line { stroke: #d8dee4; }
.dot { fill: #1a7f64; fill-opacity: 0.45; } .ours { fill: #1a7f64; } .peer { fill: #a8b1bb; } .roof { stroke: #bc4c00; stroke-width: 2; } .bold { font-weight: 600; }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; } text { fill: #e6edf3; } .faint { fill: #8d96a0; } .line { stroke: #30363d; }
.dot { fill: #3fb68f; } .ours { fill: #3fb68f; } .peer { fill: #6e7781; } .roof { stroke: #f0883e; }
}
";

/// The picture.
pub(super) fn draw(results: &Results) -> String {
    let panels = panels(&results.entries);
    let heights: Vec<f64> = panels.iter().map(Panel::height).collect();
    let height = TITLE + heights.iter().sum::<f64>() + EDGE;
    let peer = results.cublaslt.as_ref().map(|version| format!("cuBLASLt {version}"));
    let title = format!("Matrix products on {}", results.gpu);
    let mut svg = Svg::new(WIDTH, height, &title);
    svg.text(EDGE, 26.0, 15.0, "bold", "start", &title);
    let driver = results.driver.as_ref().map(|driver| format!("driver {driver}"));
    let failed = match results.entries.iter().filter(|row| row.failure.is_some()).count() {
        0 => None,
        1 => Some("1 product failed".to_owned()),
        n => Some(format!("{n} products failed")),
    };
    let ours = Some(format!("tilewright {}", results.tilewright));
    let facts = [ours, peer.clone(), driver, Some(results.date.clone()), failed];
    let facts = facts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    svg.text(EDGE, 44.0, 11.0, "faint", "start", &facts);
    svg.legend(peer.is_some(), panels.iter().any(Panel::has_roofline));
    let mut top = TITLE;
    for (panel, height) in panels.iter().zip(heights) {
        panel.draw(&mut svg, top);
        top += height;
    }
    svg.finish()
}

/// Products of one kind.
struct Panel<'a> {
    title: String,
    rows: Vec<&'a Row>,
}

/// Rows by type, layout and epilogue, in the order in which they come. Those without a time are left out.
fn panels(rows: &[Row]) -> Vec<Panel<'_>> {
    let mut panels: Vec<Panel<'_>> = Vec::new();
    for row in rows.iter().filter(|row| row.ours_us.is_some()) {
        let mut title = format!("{} {}", row.dtype, row.layout);
        if row.epilogue != "none" && !row.epilogue.is_empty() {
            title += &format!(", {}", row.epilogue);
        }
        match panels.iter_mut().find(|panel| panel.title == title) {
            Some(panel) => panel.rows.push(row),
            None => panels.push(Panel { title, rows: vec![row] }),
        }
    }
    panels
}

/// What the bars of a panel mean.
enum Axis {
    /// TFLOP/s up to a number.
    Rate(f64),
    /// Part of the roofline, up to a number.
    Part(f64),
}

impl Axis {
    fn of(panel: &Panel<'_>) -> Axis {
        let rates = |us: fn(&Row) -> Option<f64>| {
            panel.rows.iter().filter_map(move |row| us(row).map(|us| row.rate(us))).filter(|rate| *rate > 0.0)
        };
        let ours = rates(|row| row.ours_us);
        let (low, high) =
            ours.fold((f64::INFINITY, 0.0f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        if panel.has_roofline() && high > COMPARABLE * low {
            let parts = panel.rows.iter().flat_map(|row| [row.ours_us, row.peer_us].map(|us| part(row, us?)));
            return Axis::Part(parts.flatten().fold(1.0, f64::max));
        }
        let all = rates(|row| row.peer_us).chain(rates(|row| row.roofline_us));
        Axis::Rate(all.fold(high, f64::max).max(f64::MIN_POSITIVE))
    }

    /// How long the bar of a time is, as a part of the longest.
    fn length(&self, row: &Row, us: f64) -> f64 {
        match self {
            Axis::Rate(most) => row.rate(us) / most,
            Axis::Part(most) => part(row, us).unwrap_or(0.0) / most,
        }
    }

    /// Marks of the axis: where, and what they say.
    fn ticks(&self) -> Vec<(f64, String)> {
        match self {
            Axis::Rate(most) => ticks(*most),
            Axis::Part(most) => ticks(most * 100.0),
        }
    }

    fn title(&self) -> &'static str {
        match self {
            Axis::Rate(_) => "TFLOP/s",
            Axis::Part(_) => "percent of the roofline",
        }
    }
}

/// The roofline's time as a part of this one.
fn part(row: &Row, us: f64) -> Option<f64> {
    row.roofline_us.map(|roofline| roofline / us)
}

/// Marks of an axis up to a number: where, as a part of it, and what they say.
pub(super) fn ticks(most: f64) -> Vec<(f64, String)> {
    let step = step(most);
    let mut ticks = Vec::new();
    let mut value = 0.0;
    while value <= most * 1.000_001 {
        ticks.push((value / most, short(value)));
        value += step;
    }
    ticks
}

/// A distance of marks such that there are four to nine: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    let power = 10f64.powf((most / 4.0).log10().floor());
    [5.0, 2.0].into_iter().find(|times| most / (power * times) >= 4.0).unwrap_or(1.0) * power
}

/// Three digits; of small numbers, as processors reach of a TFLOP/s, two and the power of ten.
pub(super) fn short(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

impl Panel<'_> {
    fn has_roofline(&self) -> bool {
        self.rows.iter().all(|row| row.roofline_us.is_some())
    }

    #[allow(clippy::cast_precision_loss, reason = "some hundred rows")]
    fn height(&self) -> f64 {
        let lines = self.sets().map_or(self.rows.len(), |sets| sets.len());
        PANEL_HEAD + PITCH * lines as f64 + PANEL_FOOT
    }

    /// Ratios by the set of the shape, if there are too many products for bars.
    fn sets(&self) -> Option<Vec<(&'static str, Vec<f64>)>> {
        if self.rows.len() <= MANY {
            return None;
        }
        let mut sets: Vec<(&'static str, Vec<f64>)> = Vec::new();
        for row in &self.rows {
            let (name, ratio) = (set_of(&row.shape).unwrap_or("others"), row.ratio?);
            match sets.iter_mut().find(|(known, _)| *known == name) {
                Some((_, ratios)) => ratios.push(ratio),
                None => sets.push((name, vec![ratio])),
            }
        }
        Some(sets)
    }

    /// A line of dots for each set.
    fn draw_dots(&self, svg: &mut Svg, top: f64, sets: &[(&'static str, Vec<f64>)]) {
        let (low, high) = DOTS;
        let x = |ratio: f64| LEFT + LENGTH * (ratio.clamp(low, high) / low).ln() / (high / low).ln();
        let (first, bottom) = (top + PANEL_HEAD, top + self.height() - PANEL_FOOT);
        svg.text(EDGE, top + 20.0, 13.0, "bold", "start", &self.title);
        for ratio in [0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0] {
            let class = if ratio == 1.0 { "roof" } else { "line" };
            svg.line(class, (x(ratio), first - 4.0), (x(ratio), bottom));
            svg.text(x(ratio), bottom + 14.0, 10.0, "faint", "middle", &short(ratio));
        }
        svg.text(
            LEFT,
            bottom + 28.0,
            10.0,
            "faint",
            "start",
            "the peer's time over ours, a dot for each product",
        );
        let mut y = first + PITCH / 2.0 - 2.0;
        for (name, ratios) in sets {
            svg.text(LEFT - 10.0, y + 4.0, 12.0, "", "end", &format!("{name} ({})", ratios.len()));
            ratios.iter().for_each(|ratio| svg.dot(x(*ratio), y));
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            if let Some(mean) = geometric_mean(ratios.iter().copied()) {
                let text = format!("mean {mean:.3}, least {least:.3}");
                svg.text(WIDTH - EDGE, y + 4.0, 12.0, "bold", "end", &text);
            }
            y += PITCH;
        }
    }

    fn draw(&self, svg: &mut Svg, top: f64) {
        if let Some(sets) = self.sets() {
            return self.draw_dots(svg, top, &sets);
        }
        let axis = Axis::of(self);
        let bottom = top + self.height() - PANEL_FOOT;
        let first = top + PANEL_HEAD;
        svg.text(EDGE, top + 20.0, 13.0, "bold", "start", &self.title);
        if let Some(mean) = geometric_mean(self.rows.iter().filter_map(|row| row.ratio)) {
            let mean = format!("geometric mean of the ratios {mean:.3}");
            svg.text(WIDTH - EDGE, top + 20.0, 11.0, "faint", "end", &mean);
        }
        for (place, label) in axis.ticks() {
            let x = LEFT + LENGTH * place;
            svg.line("line", (x, first - 4.0), (x, bottom));
            svg.text(x, bottom + 14.0, 10.0, "faint", "middle", &label);
        }
        svg.text(LEFT, bottom + 28.0, 10.0, "faint", "start", axis.title());
        let mut y = first;
        for row in &self.rows {
            svg.row(row, &axis, y);
            y += PITCH;
        }
    }
}

/// A picture that grows.
pub(super) struct Svg {
    text: String,
}

// Writing to a string cannot fail.
impl Svg {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Svg {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif\" role=\"img\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n<rect class=\"ground\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>",
            escape(title)
        );
        Svg { text }
    }

    pub(super) fn text(&mut self, x: f64, y: f64, size: f64, class: &str, anchor: &str, text: &str) {
        let _ = writeln!(
            self.text,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    fn dot(&mut self, x: f64, y: f64) {
        let _ = writeln!(self.text, "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>");
    }

    pub(super) fn bar(&mut self, class: &str, y: f64, length: f64) {
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"1\"/>",
            (LENGTH * length).max(1.0)
        );
    }

    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.text,
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        );
    }

    /// One product: its name, its bars, its numbers.
    fn row(&mut self, row: &Row, axis: &Axis, y: f64) {
        let Some(ours) = row.ours_us else { return };
        let middle = y + BAR + 4.0;
        self.text(LEFT - 10.0, middle, 11.0, "", "end", &row.shape.to_string());
        self.bar("ours", y, axis.length(row, ours));
        if let Some(peer) = row.peer_us {
            self.bar("peer", y + BAR + 1.0, axis.length(row, peer));
        }
        if let (Axis::Rate(_), Some(roofline)) = (axis, row.roofline_us) {
            let x = LEFT + LENGTH * axis.length(row, roofline);
            self.line("roof", (x, y - 1.0), (x, y + 2.0 * BAR + 2.0));
        }
        let rate = row.rate(ours);
        let numbers = match row.gbps {
            Some(gbps) if row.memory_bound == Some(true) => format!("{} GB/s", short(gbps)),
            _ => format!("{} TFLOP/s", short(rate)),
        };
        self.text(LEFT + LENGTH + 100.0, middle, 11.0, "faint", "end", &numbers);
        if let Some(ratio) = row.ratio {
            self.text(LEFT + LENGTH + 165.0, middle, 12.0, "bold", "end", &format!("{ratio:.2}×"));
        }
        if let Some(ratio) = row.ratio_best {
            self.text(WIDTH - EDGE, middle, 10.0, "faint", "end", &format!("{ratio:.2}×"));
        }
    }

    /// What a colour means, in the line of the title.
    pub(super) fn key(&mut self, x: f64, class: &str, words: &str) {
        let _ = writeln!(
            self.text,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"17\" width=\"10\" height=\"10\" rx=\"1\"/>"
        );
        self.text(x + 15.0, 26.0, 11.0, "", "start", words);
    }

    /// More rules for classes.
    pub(super) fn style(&mut self, rules: &str) {
        let _ = writeln!(self.text, "<style>\n{rules}</style>");
    }

    /// Under the title, at the right.
    fn legend(&mut self, peer: bool, roofline: bool) {
        let mut x = LEFT + 250.0;
        self.key(x, "ours", "tilewright");
        x += 90.0;
        if peer {
            self.key(x, "peer", "cuBLASLt");
            x += 85.0;
        }
        if roofline {
            self.line("roof", (x + 2.0, 16.0), (x + 2.0, 28.0));
            self.text(x + 12.0, 26.0, 11.0, "", "start", "roofline");
        }
        if peer {
            let words = "ratio of times: its own choice, its best";
            self.text(WIDTH - EDGE, 44.0, 10.0, "faint", "end", words);
        }
    }

    pub(super) fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
