//! Where in the user's source an op comes from.
//!
//! A [`Loc`] is an index into a function's [`Locations`]: file, line and column, and the frame (a `#[device]` helper or an inlined
//! function) in which that place was executed. Frames form a chain up to the kernel, so that a message can show how one got there.

use std::collections::HashMap;
use std::fmt;

/// A place in the source; [`Loc::NONE`] if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Loc(pub u32);

impl Loc {
    /// No place.
    pub const NONE: Loc = Loc(0);
}

/// A helper that was being executed; [`Frame::KERNEL`] is the kernel itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Frame(pub u32);

impl Frame {
    /// Not in any helper.
    pub const KERNEL: Frame = Frame(0);
}

/// A file, a line, a column, and the frame around them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location<'a> {
    /// Path of the file as rustc knows it.
    pub file: &'a str,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// The helper that was being executed.
    pub frame: Frame,
}

impl fmt::Display for Location<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Entry {
    file: u32,
    line: u32,
    column: u32,
    frame: Frame,
}

/// The places and frames of a function.
#[derive(Debug, Clone, Default)]
pub struct Locations {
    files: Vec<String>,
    entries: Vec<Entry>,
    frames: Vec<(String, Loc)>,
    known: HashMap<Entry, Loc>,
}

impl Locations {
    /// Enters a place.
    pub fn add(&mut self, file: &str, line: u32, column: u32, frame: Frame) -> Loc {
        // Places of one kernel come from few files, the most recent one first.
        let file = match self.files.iter().rposition(|known| known == file) {
            Some(i) => i,
            None => {
                self.files.push(file.to_owned());
                self.files.len() - 1
            }
        };
        let entry = Entry { file: index(file), line, column, frame };
        let entries = &mut self.entries;
        *self.known.entry(entry).or_insert_with(|| {
            entries.push(entry);
            Loc(index(entries.len()))
        })
    }

    /// Enters the call of a helper.
    pub fn add_frame(&mut self, name: &str, call: Loc) -> Frame {
        self.frames.push((name.to_owned(), call));
        Frame(index(self.frames.len()))
    }

    /// The place that a location stands for.
    #[must_use]
    pub fn get(&self, loc: Loc) -> Option<Location<'_>> {
        let entry = self.entries.get((loc.0 as usize).checked_sub(1)?)?;
        let file = self.files.get(entry.file as usize)?;
        Some(Location { file, line: entry.line, column: entry.column, frame: entry.frame })
    }

    /// Name of a helper and the place that called it.
    #[must_use]
    pub fn frame(&self, frame: Frame) -> Option<(&str, Loc)> {
        self.frames.get((frame.0 as usize).checked_sub(1)?).map(|(name, loc)| (name.as_str(), *loc))
    }

    /// The calls around a place, innermost first: name of the helper, and where it was called.
    pub fn chain(&self, loc: Loc) -> impl Iterator<Item = (&str, Option<Location<'_>>)> {
        let mut frame = self.get(loc).map_or(Frame::KERNEL, |at| at.frame);
        std::iter::from_fn(move || {
            let (name, call) = self.frame(frame)?;
            let at = self.get(call);
            frame = at.map_or(Frame::KERNEL, |at| at.frame);
            Some((name, at))
        })
    }

    /// The files, in the order in which they were met.
    #[must_use]
    pub fn files(&self) -> &[String] {
        &self.files
    }

    /// The location's file as an index into [`Locations::files`].
    #[must_use]
    pub fn file_index(&self, loc: Loc) -> Option<u32> {
        self.entries.get((loc.0 as usize).checked_sub(1)?).map(|entry| entry.file)
    }

    /// The frames, in the order in which they were entered: name and call.
    pub fn frames(&self) -> impl Iterator<Item = (Frame, &str, Loc)> {
        self.frames.iter().enumerate().map(|(i, (name, loc))| (Frame(index(i + 1)), name.as_str(), *loc))
    }

    /// Enters a place of another function as seen through a call at `call`.
    pub fn import(
        &mut self,
        other: &Locations,
        loc: Loc,
        frames: &mut HashMap<Frame, Frame>,
        outer: Frame,
    ) -> Loc {
        let Some(at) = other.get(loc) else { return Loc::NONE };
        let frame = self.import_frame(other, at.frame, frames, outer);
        self.add(at.file, at.line, at.column, frame)
    }

    fn import_frame(
        &mut self,
        other: &Locations,
        frame: Frame,
        frames: &mut HashMap<Frame, Frame>,
        outer: Frame,
    ) -> Frame {
        let Some((name, call)) = other.frame(frame) else { return outer };
        if let Some(&known) = frames.get(&frame) {
            return known;
        }
        let call = self.import(other, call, frames, outer);
        let new = self.add_frame(name, call);
        frames.insert(frame, new);
        new
    }
}

fn index(i: usize) -> u32 {
    u32::try_from(i).unwrap_or(u32::MAX)
}
