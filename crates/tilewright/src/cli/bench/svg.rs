//! What all pictures of benchmarks are drawn on: one look, one column of names, one of bars, one of numbers.
//!
//! A picture is one SVG without scripts; its colours follow the reader's light or dark preference, on a ground of its own.

use std::fmt::Write;

use super::super::markup::escape;

pub(super) const WIDTH: f64 = 860.0;
/// Where bars begin, and how long the longest is.
pub(super) const LEFT: f64 = 190.0;
pub(super) const LENGTH: f64 = 430.0;
pub(super) const BAR: f64 = 9.0;
pub(super) const TITLE: f64 = 52.0;
pub(super) const PANEL_HEAD: f64 = 34.0;
pub(super) const PANEL_FOOT: f64 = 34.0;
pub(super) const EDGE: f64 = 20.0;

/// Plain colours, and others for the dark: variables would be shorter, but few programs other than browsers know them.
const STYLE: &str = "\
.ground { fill: #ffffff; } text { fill: #1f2328; } .faint { fill: #656d76; } .line { stroke: #d8dee4; }
.dot { fill: #1a7f64; fill-opacity: 0.45; } .ours { fill: #1a7f64; } .peer { fill: #a8b1bb; } .roof { stroke: #bc4c00; stroke-width: 2; } .bold { font-weight: 600; }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; } text { fill: #e6edf3; } .faint { fill: #8d96a0; } .line { stroke: #30363d; }
.dot { fill: #3fb68f; } .ours { fill: #3fb68f; } .peer { fill: #6e7781; } .roof { stroke: #f0883e; }
}
";

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

    pub(super) fn dot(&mut self, x: f64, y: f64) {
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

    pub(super) fn finish(mut self) -> String {
        self.text += "</svg>\n";
        self.text
    }
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
