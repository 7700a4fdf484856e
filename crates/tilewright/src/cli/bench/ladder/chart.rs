//! The picture of the ladder: one bar a step, on a logarithmic scale, since the last is thousands of times as fast as the first.

use super::super::svg::{BAR, EDGE, LEFT, LENGTH, PANEL_FOOT, PANEL_HEAD, Svg, TITLE, WIDTH};
use super::{Results, page};

/// From one step to the next.
const PITCH: f64 = 22.0;

/// A step: its speed, and what stands at the end of its line.
struct Step {
    name: String,
    teraflops: f64,
    note: String,
}

/// What was measured, with the gain over the step before; or what was counted, with what binds.
fn steps(results: &Results) -> Vec<Step> {
    let counted = results.counts.iter().map(|row| Step {
        name: format!("{} {}", row.number, row.name),
        teraflops: row.at_most,
        note: row.bound.to_owned(),
    });
    let times = &results.times;
    let measured = times.iter().enumerate().map(|(i, row)| Step {
        name: format!("{} {}", row.number, row.name),
        teraflops: row.teraflops,
        note: match i.checked_sub(1).map(|before| &times[before]) {
            Some(before) => format!("{:.2}×", before.microseconds / row.microseconds),
            None => String::new(),
        },
    });
    if times.is_empty() { counted.collect() } else { measured.collect() }
}

/// The picture as SVG.
pub(super) fn draw(results: &Results) -> String {
    let steps = steps(results);
    let (least, most) = steps.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), step| {
        let decade = step.teraflops.log10();
        (least.min(decade.floor()), most.max(decade.ceil()))
    });
    let place = |teraflops: f64| (teraflops.log10() - least) / (most - least).max(1.0);

    let (what, notes) = match results.times.is_empty() {
        true => ("TFLOP/s at most", "what binds"),
        false => ("TFLOP/s", "gain over the step before"),
    };
    let title = format!("A matrix product in steps on {}", results.gpu);
    let first = TITLE + PANEL_HEAD;
    #[allow(clippy::cast_precision_loss, reason = "a few steps")]
    let bottom = first + PITCH * steps.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + PANEL_FOOT + EDGE, &title);
    svg.text(EDGE, 26.0, 15.0, "bold", "start", &title);
    let facts = format!("{}, {}", page::extents(results.shape), results.date);
    svg.text(EDGE, 44.0, 11.0, "faint", "start", &facts);
    svg.text(WIDTH - EDGE, first - 12.0, 10.0, "faint", "end", notes);

    let mut decade = least;
    while decade <= most {
        let value = 10f64.powf(decade);
        let x = LEFT + LENGTH * place(value);
        svg.line("line", (x, first - 4.0), (x, bottom));
        svg.text(x, bottom + 14.0, 10.0, "faint", "middle", &value.to_string());
        decade += 1.0;
    }
    svg.text(LEFT, bottom + 28.0, 10.0, "faint", "start", what);
    let mut y = first;
    for step in &steps {
        let foot = y + BAR;
        svg.text(LEFT - 10.0, foot, 11.0, "", "end", &step.name);
        svg.bar("ours", y, place(step.teraflops));
        let speed = format!("{} TFLOP/s", page::digits(step.teraflops));
        svg.text(LEFT + LENGTH + 100.0, foot, 11.0, "faint", "end", &speed);
        svg.text(WIDTH - EDGE, foot, 11.0, "bold", "end", &step.note);
        y += PITCH;
    }
    svg.finish()
}
