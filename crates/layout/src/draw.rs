//! Pictures of layouts as SVG, the way people draw them on a whiteboard: a grid with the coordinates on its edges and
//! the value in each cell.
//!
//! Mode 0 runs down, mode 1 to the right; further modes are appended to mode 1, a single mode is one row. Cells are
//! coloured by value, by shared-memory bank, or, for thread-value layouts, by thread.

use std::fmt::Write as _;

use crate::analysis::{BANK_BYTES, BANKS, Function, bank_of};
use crate::error::{LayoutError, Result};
use crate::int_tuple::IntTuple;
use crate::tv::TvLayout;

/// The largest picture, in cells.
pub const CELL_LIMIT: i64 = 128 * 128;

/// What the colour of a cell means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colouring {
    /// Light to dark with the value: shows the order in memory.
    Value,
    /// One hue for each bank of shared memory.
    Bank {
        /// Bytes in one element of the layout.
        element_bytes: i64,
    },
}

/// Draws a layout on the grid of `shape`. The title may have several lines.
///
/// ```
/// use tilewright_layout::{Composed, draw};
/// let smem: Composed = "S<3,3,3> o 0 o (8,64):(64,1)".parse()?;
/// let svg = draw::layout(&smem.to_string(), &smem, &smem.shape()?, draw::Colouring::Bank { element_bytes: 2 })?;
/// assert!(svg.starts_with("<svg"));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn layout(title: &str, f: &impl Function, shape: &IntTuple, colouring: Colouring) -> Result<String> {
    let (rows, columns) = grid(shape)?;
    let mut values = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            values.push(f.value(row + rows * column)?);
        }
    }
    let (low, high) = values.iter().fold((i64::MAX, i64::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
    let cell = |value: i64| {
        let colour = match colouring {
            Colouring::Value => ramp(value, low, high),
            Colouring::Bank { element_bytes } => {
                let bank = bank_of(value.saturating_mul(element_bytes).div_euclid(BANK_BYTES));
                hue(360 * bank / BANKS)
            }
        };
        Cell { lines: vec![value.to_string()], colour }
    };
    let caption = match colouring {
        Colouring::Value => "colour: value".to_string(),
        Colouring::Bank { element_bytes } => {
            format!("colour: bank of shared memory, {element_bytes}-byte elements")
        }
    };
    Ok(Picture { title, caption, rows, columns, cells: values.into_iter().map(cell).collect() }.svg())
}

/// Draws which thread holds which element of the tile, and as which of its values.
///
/// ```
/// use tilewright_layout::{TvLayout, draw};
/// let c = TvLayout::new("((4,8),(2,2)):((32,1),(16,8))".parse()?, (16, 8))?;
/// assert!(draw::tv("accumulator", &c)?.contains("T31"));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn tv(title: &str, tv: &TvLayout) -> Result<String> {
    let (rows, columns) = grid(tv.tile())?;
    if tv.layout().size() > CELL_LIMIT {
        return Err(LayoutError::TooLarge { op: "draw", size: tv.layout().size(), limit: CELL_LIMIT });
    }
    let count = usize::try_from(rows * columns).unwrap_or(0);
    let mut cells: Vec<Cell> =
        (0..count).map(|_| Cell { lines: Vec::new(), colour: "#ffffff".into() }).collect();
    // Backwards, so that the lowest thread of a shared element is the one that stays.
    for thread in (0..tv.threads()).rev() {
        for value in (0..tv.values()).rev() {
            let index = tv.index(thread, value)?;
            let (row, column) = (index % rows, index / rows);
            let at = usize::try_from(row * columns + column).unwrap_or(0);
            cells[at] =
                Cell { lines: vec![format!("T{thread}"), format!("V{value}")], colour: thread_hue(thread) };
        }
    }
    let caption = format!("{} threads, {} values each; colour: thread", tv.threads(), tv.values());
    Ok(Picture { title, caption, rows, columns, cells }.svg())
}

/// Rows and columns of the picture of a shape.
fn grid(shape: &IntTuple) -> Result<(i64, i64)> {
    // The product of all extents bounds those below; it also refuses a shape that no layout can have.
    let cells = shape.product()?;
    if let Some(&extent) = shape.leaves().find(|extent| **extent < 1) {
        return Err(LayoutError::Extent { extent, shape: shape.to_string() });
    }
    if cells > CELL_LIMIT {
        return Err(LayoutError::TooLarge { op: "draw", size: cells, limit: CELL_LIMIT });
    }
    let rows = match shape.modes() {
        [] | [_] => 1,
        [rows, ..] => rows.product()?,
    };
    let columns = cells / rows;
    Ok((rows, columns))
}

struct Cell {
    lines: Vec<String>,
    colour: String,
}

struct Picture<'a> {
    title: &'a str,
    caption: String,
    rows: i64,
    columns: i64,
    /// Row by row.
    cells: Vec<Cell>,
}

impl Picture<'_> {
    fn svg(&self) -> String {
        const CELL: i64 = 36;
        const EDGE: i64 = 30;
        const LINE: i64 = 18;
        let lines: Vec<&str> = self.title.lines().collect();
        // A text wider than the grid widens the picture: about 8.2 units a character of the title, 6 of the caption.
        let width_of = |text: &str, tenths: i64| {
            i64::try_from(text.chars().count()).unwrap_or(0) * tenths / 10 + 2 * EDGE
        };
        let text_width =
            lines.iter().map(|line| width_of(line, 82)).fold(width_of(&self.caption, 60), i64::max);
        let width = (EDGE + self.columns * CELL + 10).max(text_width);
        let head = LINE * (1 + i64::try_from(lines.len()).unwrap_or(1)) + 16;
        let height = head + EDGE + self.rows * CELL + 10;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"ui-monospace, Menlo, Consolas, monospace\" text-anchor=\"middle\">\n\
             <title>{}</title>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
            escape(self.title),
        );
        let texts = lines.iter().map(|line| (*line, "font-size=\"13\" font-weight=\"bold\""));
        let caption = (self.caption.as_str(), "font-size=\"10\" fill=\"#666666\"");
        for (y, (text, style)) in (1..).map(|line| 4 + line * LINE).zip(texts.chain([caption])) {
            let _ = writeln!(
                svg,
                "<text x=\"{EDGE}\" y=\"{y}\" {style} text-anchor=\"start\">{}</text>",
                escape(text)
            );
        }
        // Writing to a string cannot fail.
        for column in 0..self.columns {
            let x = EDGE + column * CELL + CELL / 2;
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{}\" font-size=\"10\" fill=\"#666666\">{column}</text>",
                head + 20
            );
        }
        for row in 0..self.rows {
            let y = head + EDGE + row * CELL + CELL / 2 + 4;
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{y}\" font-size=\"10\" fill=\"#666666\">{row}</text>",
                EDGE / 2
            );
        }
        let mut cells = self.cells.iter();
        for row in 0..self.rows {
            for (column, cell) in (0..self.columns).zip(cells.by_ref()) {
                let (x, y) = (EDGE + column * CELL, head + EDGE + row * CELL);
                let _ = writeln!(
                    svg,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{CELL}\" height=\"{CELL}\" fill=\"{}\" stroke=\"#555555\" stroke-width=\"0.6\"/>",
                    cell.colour
                );
                let lines = i64::try_from(cell.lines.len()).unwrap_or(0);
                for (i, line) in (0i64..).zip(&cell.lines) {
                    // Long numbers get smaller so that they stay inside the cell.
                    let size = if line.len() > 5 { 8 } else { 11 };
                    let y = y + CELL / 2 + 4 - 7 * (lines - 1) + 14 * i;
                    let _ = writeln!(
                        svg,
                        "<text x=\"{}\" y=\"{y}\" font-size=\"{size}\">{line}</text>",
                        x + CELL / 2
                    );
                }
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Light blue for the lowest value, a stronger one for the highest; black text stays readable on both.
fn ramp(value: i64, low: i64, high: i64) -> String {
    let range = i128::from(high) - i128::from(low);
    let share = if range == 0 { 0 } else { (i128::from(value) - i128::from(low)) * 100 / range };
    format!("hsl(210, 70%, {}%)", 96 - share * 36 / 100)
}

fn hue(degrees: usize) -> String {
    format!("hsl({degrees}, 75%, 76%)")
}

/// The golden angle keeps neighbouring threads apart however many there are.
fn thread_hue(thread: i64) -> String {
    format!("hsl({}, 70%, {}%)", thread.rem_euclid(3600) * 1375 / 10 % 360, 72 + 6 * (thread % 3))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn shapes_that_cannot_be_drawn_are_refused() {
        let l: Layout = "4:1".parse().unwrap();
        let huge = i64::MAX;
        for shape in [
            IntTuple::from((huge, huge)),
            (2, huge, huge).into(),
            (0, 4).into(),
            (-1, -4).into(),
            20000.into(),
        ] {
            assert!(layout("", &l, &shape, Colouring::Value).is_err(), "{shape}");
        }
        assert!(layout("", &l, &IntTuple::from((2, (1, 2))), Colouring::Value).is_ok());
    }
}
