//! The picture of the ladder: one bar a step, on a logarithmic scale, since the last is thousands of times as fast as the first.

use std::fmt::Write;

use super::{Results, page};

const LEFT: f64 = 130.0;
const WIDTH: f64 = 560.0;
const ROW: f64 = 26.0;
const TOP: f64 = 46.0;

/// The picture as SVG, readable on a light and on a dark page.
pub(super) fn svg(results: &Results) -> String {
    let bars: Vec<(String, f64)> = match &results.times[..] {
        [] => {
            results.counts.iter().map(|row| (format!("{} {}", row.number, row.name), row.at_most)).collect()
        }
        times => times.iter().map(|row| (format!("{} {}", row.number, row.name), row.teraflops)).collect(),
    };
    let least = bars.iter().map(|bar| bar.1.log10()).fold(f64::INFINITY, f64::min).floor();
    let most = bars.iter().map(|bar| bar.1.log10()).fold(f64::NEG_INFINITY, f64::max).ceil();
    let x = |value: f64| LEFT + (value.log10() - least) / (most - least).max(1.0) * WIDTH;
    #[allow(clippy::cast_precision_loss, reason = "a few bars")]
    let bottom = TOP + ROW * bars.len() as f64;

    let what = if results.times.is_empty() { "TFLOP/s at most" } else { "TFLOP/s" };
    let title = format!("{what}, {}, {}", page::extents(results.shape), results.gpu);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <style>\n.ink {{ fill: #1f2328 }} .line {{ stroke: #8c959f; stroke-width: 0.6 }} .bar {{ fill: #2f6fde }}\n\
         @media (prefers-color-scheme: dark) {{ .ink {{ fill: #e6edf3 }} .bar {{ fill: #6ca0ff }} }}\n</style>\n\
         <text class=\"ink\" x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{}</text>\n",
        LEFT + WIDTH + 70.0,
        bottom + 14.0,
        escaped(&title)
    );
    let mut decade = least;
    while decade <= most {
        let (at, value) = (x(10f64.powf(decade)), 10f64.powf(decade));
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "<line class=\"line\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>"
        );
        let _ = writeln!(
            text,
            "<text class=\"ink\" x=\"{at:.1}\" y=\"38\" text-anchor=\"middle\" font-size=\"11\">{value}</text>"
        );
        decade += 1.0;
    }
    let mut y = TOP + 4.0;
    for (name, value) in &bars {
        let (end, middle) = (x(*value), y + 13.0);
        let name = escaped(name);
        let _ = writeln!(
            text,
            "<text class=\"ink\" x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>",
            LEFT - 8.0
        );
        let _ = writeln!(
            text,
            "<rect class=\"bar\" x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"18\" rx=\"2\"/>",
            (end - LEFT).max(1.0)
        );
        let _ = writeln!(
            text,
            "<text class=\"ink\" x=\"{:.1}\" y=\"{middle}\">{}</text>",
            end + 6.0,
            page::digits(*value)
        );
        y += ROW;
    }
    text + "</svg>\n"
}

/// Names of GPUs and steps contain nothing special, but files that are read may.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
