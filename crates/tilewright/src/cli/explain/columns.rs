//! Stages side by side: what became of each line of the author's source.
//!
//! Ops of the IR and lines of PTX know the place they come from, and the helpers in between; the line that counts is that of the kernel
//! itself. SASS is joined through PTX: the text that is assembled for it says for each instruction which line of PTX it is.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Write;

use tilewright::compiler::Build;
use tilewright::ir::{Func, Loc, Locations, Module, PrintOptions};

use super::super::Failure;
use super::super::markup::escape;

/// A line of the author's source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    file: String,
    line: u32,
}

/// A line of a stage, and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    text: String,
    place: Option<Place>,
}

/// A stage.
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) lines: Vec<Line>,
}

/// The IR, line by line.
pub(super) fn of_ir(func: &Func) -> Vec<Line> {
    let text = Module::from(func.clone()).to_text(PrintOptions { locations: true });
    // The ops whose regions are open.
    let mut around: Vec<Option<Place>> = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        let (text, own) = without_loc(line);
        let closed = if text.trim_start().starts_with('}') { around.pop().flatten() } else { None };
        let place = own.or(closed).or_else(|| around.last().cloned().flatten());
        if text.ends_with('{') {
            around.push(place.clone());
        }
        // The body of a function is indented by two.
        let text = text.strip_prefix("  ").unwrap_or(&text).to_owned();
        lines.push(Line { text, place });
    }
    lines
}

/// A line of IR without its `loc(..)`, and the last place in that, which is the kernel's own.
fn without_loc(line: &str) -> (String, Option<Place>) {
    let Some((before, rest)) = line.split_once(" loc(\"") else { return (line.to_owned(), None) };
    let mut quoted = true;
    let end = rest.char_indices().find(|&(_, c)| {
        quoted ^= c == '"';
        c == ')' && !quoted
    });
    let Some((end, _)) = end else { return (line.to_owned(), None) };
    let (places, after) = (format!("\"{}", &rest[..end]), &rest[end + 1..]);
    let last = places.rsplit(" at ").next().unwrap_or_default();
    let last = last.split(" in ").next().unwrap_or_default();
    let mut parts = last.rsplitn(3, ':').skip(1);
    let number = parts.next().and_then(|number| number.parse().ok());
    let file = parts.next().map(|file| file.trim_matches('"').replace("\\\\", "\\"));
    (format!("{before}{after}"), file.zip(number).map(|(file, line)| Place { file, line }))
}

/// The line of the kernel that led to a place.
fn author(locations: &Locations, loc: Loc) -> Option<Place> {
    let called = locations.chain(loc).filter_map(|(_, call)| call).last();
    called.or_else(|| locations.get(loc)).map(|at| Place { file: at.file.to_owned(), line: at.line })
}

/// The PTX, line by line.
pub(super) fn of_ptx(build: &Build) -> Vec<Line> {
    let place = |number: u32| author(&build.func.locations, build.code.origin(number)?.loc);
    let lines = (1..).zip(build.code.text.lines());
    lines.map(|(number, text)| Line { text: text.trim_start().to_owned(), place: place(number) }).collect()
}

/// The same PTX, with each instruction saying which line it is, for the assembler.
pub(super) fn numbered(ptx: &str) -> String {
    let mut out = String::with_capacity(2 * ptx.len());
    for (number, line) in (1..).zip(ptx.lines()) {
        if super::kernel::is_instruction(line) {
            let _ = writeln!(out, ".loc 1 {number} 1");
        }
        let _ = writeln!(out, "{line}");
        if line.starts_with(".address_size") {
            out.push_str(".file 1 \"kernel.ptx\"\n");
        }
    }
    out
}

/// What the disassembler says of code that was [numbered], line by line; instructions alone.
pub(super) fn of_sass(text: &str, ptx: &[Line]) -> Vec<Line> {
    let mut place = None;
    let mut lines = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((_, number)) = line.strip_prefix("//## File").and_then(|rest| rest.split_once(", line "))
        {
            let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
            let at = digits.parse::<usize>().ok().and_then(|number| ptx.get(number.checked_sub(1)?));
            place = at.and_then(|line| line.place.clone());
        } else if let Some((_, instruction)) = line.split_once("*/").filter(|_| line.starts_with("/*")) {
            // Behind the instruction may stand its bits.
            let instruction = instruction.split("/*").next().unwrap_or_default().trim();
            if !instruction.is_empty() {
                lines.push(Line { text: instruction.to_owned(), place: place.clone() });
            }
        } else if line.starts_with(".L_") && line.ends_with(':') {
            lines.push(Line { text: line.to_owned(), place: place.clone() });
        }
    }
    lines
}

/// What stands beside each other.
struct Row {
    head: String,
    source: String,
    cells: Vec<Vec<String>>,
}

/// A row for each line of the source that something came of, and one for the rest.
fn rows(columns: &[Column]) -> Vec<Row> {
    let mut by_place: BTreeMap<Option<&Place>, Vec<Vec<String>>> = BTreeMap::new();
    for (at, column) in columns.iter().enumerate() {
        let mut before: HashMap<Option<&Place>, usize> = HashMap::new();
        for (number, line) in column.lines.iter().enumerate().filter(|(_, line)| !line.text.is_empty()) {
            let place = line.place.as_ref();
            let cell = &mut by_place.entry(place).or_insert_with(|| vec![Vec::new(); columns.len()])[at];
            // What does not follow each other in the stage is not shown as if it did.
            if before.insert(place, number).is_some_and(|before| before + 1 != number) {
                cell.push("...".to_owned());
            }
            cell.push(line.text.clone());
        }
    }
    let mut files = HashMap::new();
    let rest = by_place.remove_entry(&None);
    let rows = by_place.into_iter().chain(rest).map(|(place, cells)| match place {
        None => Row {
            head: "of no line: parameters, and who each thread is".to_owned(),
            source: String::new(),
            cells,
        },
        Some(place) => Row {
            head: format!("{}:{}", place.file, place.line),
            source: files.entry(&place.file).or_insert_with(|| lines_of(&place.file)).line(place.line),
            cells,
        },
    });
    rows.collect()
}

/// The lines of a source file, if it is here.
struct Source(Vec<String>);

impl Source {
    fn line(&self, number: u32) -> String {
        let at = (number as usize).checked_sub(1).and_then(|at| self.0.get(at));
        at.map(|line| line.trim().to_owned()).unwrap_or_default()
    }
}

/// rustc knows files by their place in the workspace, and we may be somewhere inside of it.
fn lines_of(file: &str) -> Source {
    let here = std::env::current_dir().unwrap_or_default();
    let text = here.ancestors().find_map(|folder| std::fs::read_to_string(folder.join(file)).ok());
    Source(text.unwrap_or_default().lines().map(str::to_owned).collect())
}

/// Characters of a column, at least.
const NARROWEST: usize = 20;
const BETWEEN: &str = " │ ";

/// Writes the columns as text of a certain width.
pub(super) fn write_text(columns: &[Column], width: usize, out: &mut dyn Write) -> Result<(), Failure> {
    let between = BETWEEN.chars().count() * columns.len().saturating_sub(1);
    let width = (width.saturating_sub(between) / columns.len().max(1)).max(NARROWEST);
    let mut line = |cells: &[&str]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:width$}")).collect();
        writeln!(out, "{}", cells.join(BETWEEN).trim_end())
    };
    line(&columns.iter().map(|column| column.title).collect::<Vec<_>>())?;
    line(
        &columns
            .iter()
            .map(|_| "─".repeat(width))
            .collect::<Vec<_>>()
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>(),
    )?;
    for row in rows(columns) {
        line(&[])?;
        line(&[format!("{}  {}", row.head, row.source).trim_end()])?;
        let cells: Vec<Vec<String>> = row
            .cells
            .iter()
            .map(|cell| cell.iter().flat_map(|text| wrapped(text, width)).collect())
            .collect();
        for at in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            line(&cells.iter().map(|cell| cell.get(at).map_or("", String::as_str)).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

/// A line in pieces of a certain width, those after the first indented.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let indent = text.chars().take_while(|c| *c == ' ').count().min(width / 4) + 4;
    let mut pieces = Vec::new();
    let mut rest = text.replace('\t', " ");
    while rest.chars().count() > width {
        let end = rest.char_indices().nth(width).map_or(rest.len(), |(end, _)| end);
        let start = rest.len() - rest.trim_start().len();
        let space = rest[..end].rfind(' ').filter(|space| *space > start).unwrap_or(end);
        let tail = rest.split_off(space);
        pieces.push(rest);
        rest = format!("{:indent$}{}", "", tail.trim_start());
    }
    pieces.push(rest);
    pieces
}

/// The columns as a page of HTML that needs nothing else.
pub(super) fn page(title: &str, columns: &[Column]) -> String {
    let mut body = String::new();
    for row in rows(columns) {
        let (head, source, span) = (escape(&row.head), escape(&row.source), columns.len());
        let _ = writeln!(
            body,
            "<tr><th colspan=\"{span}\"><small>{head}</small> <code>{source}</code></th></tr>\n<tr>"
        );
        for cell in &row.cells {
            let _ = writeln!(body, "<td><pre>{}</pre></td>", escape(&cell.join("\n")));
        }
        body.push_str("</tr>\n");
    }
    let heads: String = columns.iter().map(|column| format!("<th>{}</th>", column.title)).collect();
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n</body>\n</html>\n"
    )
}

const STYLE: &str = "body{font-family:sans-serif}table{border-collapse:collapse}td,th{vertical-align:top;text-align:left;\
    border:1px solid #ccc;padding:.3em .6em}tbody th{background:#eef}thead th{position:sticky;top:0;background:#fff}\
    pre{margin:0;font-size:12px}";

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: u32) -> Option<Place> {
        Some(Place { file: "src/lib.rs".to_owned(), line })
    }

    fn line(text: &str, place: Option<Place>) -> Line {
        Line { text: text.to_owned(), place }
    }

    #[test]
    fn ops_belong_to_the_line_of_the_kernel() {
        let text = "func @k (%n: u32) {\n  %0 = const value(1) : u32\n  \
            if %c loc(\"src/lib.rs\":3:5) then {\n    %1 = add %n, %n : u32 loc(\"src/a (b).rs\":9:1 in \"helper\" at \"src/lib.rs\":4:2)\n    \
            %2 = add %n, %n : u32\n  }\n}";
        assert_eq!(without_loc(text.lines().nth(2).unwrap()), ("  if %c then {".to_owned(), at(3)));
        assert_eq!(
            without_loc(text.lines().nth(3).unwrap()),
            ("    %1 = add %n, %n : u32".to_owned(), at(4))
        );
        let module = tilewright::ir::parse(
            "func @k (%n: u32) {\n  %0 = const value(1) : u32\n  %1 = cmp %n, %0 cmp(lt) : bool\n  \
             if %1 loc(\"src/lib.rs\":3:5) then {\n    trap loc(\"src/a.rs\":9:1 in \"helper\" at \"src/lib.rs\":4:2)\n    trap\n  } else {\n  }\n}",
        );
        let lines = of_ir(&module.unwrap().funcs[0]);
        let places: Vec<_> = lines.iter().map(|line| (line.text.trim(), line.place.clone())).collect();
        assert_eq!(
            places[1..],
            [
                ("%0 = const value(1) : u32", None),
                ("%1 = cmp %n, %0 cmp(lt) : bool", None),
                ("if %1 then {", at(3)),
                ("trap", at(4)),
                ("trap", at(3)),
                ("} else {", at(3)),
                ("}", at(3)),
                ("}", None),
            ]
        );
    }

    #[test]
    fn sass_is_joined_through_the_ptx() {
        let text =
            ".version 8.0\n.address_size 64\n.visible .entry k()\n{\n\tmov.u32 %r1, %tid.x;\n\tret;\n}\n";
        let numbered = numbered(text);
        assert_eq!(
            numbered,
            ".version 8.0\n.address_size 64\n.file 1 \"kernel.ptx\"\n.visible .entry k()\n{\n\
             .loc 1 5 1\n\tmov.u32 %r1, %tid.x;\n.loc 1 6 1\n\tret;\n}\n"
        );
        let ptx: Vec<Line> = (1..=7).map(|number| line("", at(number * 10))).collect();
        let sass = "\t.section .text\nk:\n.text.k:\n        /*0000*/   LDC R1, c[0x0][0x28] ;\n\
            \t//## File \"kernel.ptx\", line 5\n        /*0010*/   S2R R0, SR_TID.X ;  /* 0x1 */\n                    /* 0x2 */\n\
            .L_x_1:\n\t//## File \"kernel.ptx\", line 6 inlined\n        /*0020*/   EXIT ;\n";
        assert_eq!(
            of_sass(sass, &ptx),
            [
                line("LDC R1, c[0x0][0x28] ;", None),
                line("S2R R0, SR_TID.X ;", at(50)),
                line(".L_x_1:", at(50)),
                line("EXIT ;", at(60)),
            ]
        );
    }

    #[test]
    fn lines_of_one_place_stand_beside_each_other() {
        let columns = [
            Column {
                title: "one",
                lines: vec![line("a", at(2)), line("b", at(1)), line("c", at(2)), line("d", None)],
            },
            Column { title: "two", lines: vec![line("a word that is too long to fit", at(2))] },
        ];
        let mut out = Vec::new();
        write_text(&columns, 43, &mut out).unwrap();
        let edge = "─".repeat(20);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            format!(
                "one                  │ two\n{edge} │ {edge}\n\nsrc/lib.rs:1{}\nb                    │\n\n\
                 src/lib.rs:2{}\na                    │ a word that is too\n...                  │     long to fit\nc                    │\n\n\
                 of no line: parameters, and who each thread is\nd                    │\n",
                source(1),
                source(2)
            )
        );
        let page = page("a < b", &columns);
        assert!(page.contains("<title>a &lt; b</title>") && page.contains("<pre>a\n...\nc</pre>"), "{page}");
    }

    /// This crate has a file of that name.
    fn source(number: u32) -> String {
        format!("  {}", lines_of("src/lib.rs").line(number)).trim_end().to_owned()
    }

    #[test]
    fn long_words_are_cut() {
        assert_eq!(wrapped("aaaabbbbcccc", 8), ["aaaabbbb", "    cccc"]);
        assert_eq!(wrapped("  aa bb cc", 8), ["  aa bb", "      cc"]);
        assert_eq!(wrapped("", 8), [""]);
    }
}
