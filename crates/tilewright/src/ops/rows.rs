//! [`Rows`]: a matrix in the memory of a device, and whether an operator can take it.
//!
//! Contract of all operators, checked before anything runs:
//!
//! * every operand belongs to the device, and all of its elements lie inside of its buffer;
//! * elements of a result do not share memory with each other; an input may repeat itself (strides of zero broadcast);
//! * a result shares memory with an input only if it is exactly that input (same place, same strides, elements of the same size) and the
//!   operator says that it works in place; views of different columns of one matrix share none.

use std::fmt;
use std::ops::Range;

use super::Error;
use crate::device::{Buffer, BufferView, Device, Item, apart, is_injective};

/// A matrix in a buffer: rows that lie some elements apart.
///
/// ```
/// use tilewright::ops::Rows;
/// use tilewright::prelude::*;
///
/// let x = Device::cpu().upload(&[0.0f32; 60])?;
/// let all = Rows::new(&x, 6, 10); // without gaps
/// let right = all.columns(5..10); // the right half of every row
/// assert_eq!(right.extents(), (6, 5));
/// let padded = Rows::new(&x, 6, 7).stride(10); // rows of 7, 10 apart
/// assert_eq!(padded.to_string(), "6 x 7 with strides 10 and 1");
/// assert_eq!(all.transposed().to_string(), "10 x 6 with strides 1 and 10");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A buffer alone is one row of all its elements, so that vectors need no more than `&weights`.
pub struct Rows<'a, T> {
    buffer: &'a Buffer<T>,
    offset: usize,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    /// The first part that was asked for and is not there, to be told when it is used.
    missing: Option<Missing>,
}

/// What is no part of the matrix.
#[derive(Clone, Copy)]
enum Missing {
    /// A range of so many rows or columns.
    Range { what: &'static str, start: usize, end: usize, of: usize },
    /// Groups of so many columns.
    Groups(usize),
}

impl Missing {
    fn of(what: &'static str, range: &Range<usize>, of: usize) -> Option<Missing> {
        let inside = range.start <= range.end && range.end <= of;
        (!inside).then_some(Missing::Range { what, start: range.start, end: range.end, of })
    }

    /// Why the operand of this name is refused.
    fn refused(self, name: &'static str) -> Error {
        match self {
            Missing::Range { what, start, end, of } => Error::argument(
                name,
                format!("{what} {start}..{end}"),
                format!("a range of the {of} {what} that there are"),
                "check its ends",
            ),
            Missing::Groups(columns) => Error::argument(
                name,
                format!("groups of {columns}"),
                "whole groups in rows without gaps",
                "give a divisor of the columns, or copy the rows together",
            ),
        }
    }
}

impl<T> Clone for Rows<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rows<'_, T> {}

impl<T> fmt::Display for Rows<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rows { rows, columns, row_stride, column_stride, .. } = self;
        write!(f, "{rows} x {columns} with strides {row_stride} and {column_stride}")
    }
}

impl<T> fmt::Debug for Rows<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rows({self} from element {} of {:?})", self.offset, self.buffer)
    }
}

impl<'a, T: Item> From<&'a Buffer<T>> for Rows<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Rows<'a, T> {
        Rows::new(buffer, 1, buffer.len())
    }
}

impl<'a, T: Item> Rows<'a, T> {
    /// Rows without gaps, from the start of a buffer. Whether they lie inside of it is looked at when they are used.
    #[must_use]
    pub fn new(buffer: &'a Buffer<T>, rows: usize, columns: usize) -> Rows<'a, T> {
        Rows { buffer, offset: 0, rows, columns, row_stride: columns, column_stride: 1, missing: None }
    }

    /// So many elements further on in the buffer.
    #[must_use]
    pub fn offset(self, elements: usize) -> Rows<'a, T> {
        Rows { offset: self.offset.saturating_add(elements), ..self }
    }

    /// With so many elements from one row to the next. Zero is the same row again and again, for inputs.
    #[must_use]
    pub fn stride(self, elements: usize) -> Rows<'a, T> {
        Rows { row_stride: elements, ..self }
    }

    /// With so many elements from one column to the next.
    #[must_use]
    pub fn column_stride(self, elements: usize) -> Rows<'a, T> {
        Rows { column_stride: elements, ..self }
    }

    /// Some of the columns of every row. Whether there are such is looked at when they are used.
    #[must_use]
    pub fn columns(self, range: Range<usize>) -> Rows<'a, T> {
        let missing = self.missing.or(Missing::of("columns", &range, self.columns));
        let columns = range.end.saturating_sub(range.start);
        Rows { columns, missing, ..self.offset(range.start.saturating_mul(self.column_stride)) }
    }

    /// Some of the rows. Whether there are such is looked at when they are used.
    #[must_use]
    pub fn rows(self, range: Range<usize>) -> Rows<'a, T> {
        let missing = self.missing.or(Missing::of("rows", &range, self.rows));
        let rows = range.end.saturating_sub(range.start);
        Rows { rows, missing, ..self.offset(range.start.saturating_mul(self.row_stride)) }
    }

    /// Groups of so many columns as rows of their own, in the same memory: what operators do to rows, they then do to heads of a token, or to
    /// blocks of numbers that share a scale. Rows must be whole groups, without a gap from one row to the next. Whether they are is
    /// looked at when they are used.
    ///
    /// ```
    /// use tilewright::ops::{Quantise, Rows};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::cpu();
    /// let (rows, columns, group) = (4, 512, 128);
    /// let x = device.upload(&vec![1.0f32; rows * columns])?;
    /// let (q, scales) = (device.alloc::<E4m3>(rows * columns)?, device.alloc::<f32>(rows * columns / group)?);
    /// let (x, q) = (Rows::new(&x, rows, columns), Rows::new(&q, rows, columns));
    /// assert_eq!(x.groups(group).extents(), (16, 128));
    /// Quantise::per_row().run(&device, x.groups(group), q.groups(group), &scales)?; // a scale for each 1 x 128
    ///
    /// let error = Quantise::per_row().run(&device, x.groups(100), q.groups(100), &scales).unwrap_err();
    /// assert!(error.to_string().starts_with("`x`: found groups of 100, expected whole groups in rows without gaps"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn groups(self, columns: usize) -> Rows<'a, T> {
        let whole = columns > 0 && self.columns.is_multiple_of(columns);
        let follow = self.rows <= 1 || self.row_stride == self.columns.saturating_mul(self.column_stride);
        if !whole || !follow {
            let missing = self.missing.or(Some(Missing::Groups(columns)));
            return Rows { columns, missing, ..self };
        }
        let rows = self.rows.saturating_mul(self.columns / columns);
        Rows { rows, columns, row_stride: columns.saturating_mul(self.column_stride), ..self }
    }

    /// Rows as columns and columns as rows, in the same memory.
    #[must_use]
    pub fn transposed(self) -> Rows<'a, T> {
        let Rows { rows, columns, row_stride, column_stride, .. } = self;
        Rows { rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride, ..self }
    }

    /// Rows and columns.
    #[must_use]
    pub fn extents(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Elements from one row to the next, and from one column to the next.
    #[must_use]
    pub fn strides(&self) -> (usize, usize) {
        (self.row_stride, self.column_stride)
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.columns == 0
    }

    /// A vector of so many elements as one column: it may have been given as a row or as a column.
    pub(super) fn as_column(self, elements: usize) -> Rows<'a, T> {
        if self.columns != 1 && self.rows == 1 && self.columns == elements { self.transposed() } else { self }
    }

    /// The same, as one row.
    pub(super) fn as_row(self, elements: usize) -> Rows<'a, T> {
        if self.rows != 1 && self.columns == 1 && self.rows == elements { self.transposed() } else { self }
    }

    /// All elements of a matrix without gaps as one row.
    pub(super) fn flat(self, elements: usize) -> Rows<'a, T> {
        Rows { rows: 1, columns: elements, row_stride: elements, ..self }
    }

    /// The same row for every one of so many, if there is only one.
    pub(super) fn broadcast_rows(self, rows: usize) -> Rows<'a, T> {
        if self.rows == 1 && rows != 1 { Rows { rows, row_stride: 0, ..self } } else { self }
    }

    /// The same column for every one of so many, if there is only one.
    pub(super) fn broadcast_columns(self, columns: usize) -> Rows<'a, T> {
        if self.columns == 1 && columns != 1 { Rows { columns, column_stride: 0, ..self } } else { self }
    }

    /// Elements from the first to behind the last; none if that is no number.
    fn span(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        let down = (self.rows - 1).checked_mul(self.row_stride)?;
        let right = (self.columns - 1).checked_mul(self.column_stride)?;
        down.checked_add(right)?.checked_add(1)
    }

    /// The part of the buffer from the first to the last element. Looked at before: it is there.
    pub(super) fn memory(&self) -> Result<Buffer<T>, Error> {
        let span = self.span().unwrap_or(usize::MAX);
        let start = if span == 0 { 0 } else { self.offset };
        Ok(self.buffer.slice(start..start.saturating_add(span))?)
    }

    /// What kernels take.
    pub(super) fn tensor(&self) -> BufferView<'a, T, 2> {
        let extents = [self.rows, self.columns];
        self.buffer.strided(extents, [self.row_stride, self.column_stride]).beginning_at(self.offset)
    }

    /// The same with rows of so many parts of this many columns each.
    pub(super) fn parts(&self, parts: usize, columns: usize) -> BufferView<'a, T, 3> {
        let strides = [self.row_stride, columns.saturating_mul(self.column_stride), self.column_stride];
        self.buffer.strided([self.rows, parts, columns], strides).beginning_at(self.offset)
    }

    fn place(&self, name: &'static str) -> Option<Place> {
        let width = T::ELEMENT.bytes() as usize;
        let address = self.buffer.address();
        let bytes = |elements: usize| u64::try_from(elements.checked_mul(width)?).ok();
        Some(Place {
            name,
            start: address.checked_add(bytes(self.offset)?)?,
            bytes: bytes(self.span()?)?,
            width: width as u64,
            extents: [self.rows as u64, self.columns as u64],
            strides: [self.row_stride as u64, self.column_stride as u64],
        })
    }
}

/// Where the elements of a matrix are: first and last in bytes, strides in elements.
#[derive(Clone, Copy, Debug)]
struct Place {
    name: &'static str,
    start: u64,
    bytes: u64,
    width: u64,
    extents: [u64; 2],
    strides: [u64; 2],
}

impl Place {
    /// Whether no two elements are the same memory.
    fn is_injective(&self) -> bool {
        if self.bytes == 0 {
            return true;
        }
        is_injective(self.extents.into_iter().zip(self.strides))
    }

    fn is_same(&self, other: &Place) -> bool {
        (self.start, self.width, self.extents, self.strides)
            == (other.start, other.width, other.extents, other.strides)
    }

    /// Whether they may have memory in common: no for different parts of one matrix, yes where it takes long to find out.
    fn overlaps(&self, other: &Place) -> bool {
        if self.bytes == 0
            || other.bytes == 0
            || self.start + self.bytes <= other.start
            || other.start + other.bytes <= self.start
        {
            return false;
        }
        let (first, second) = if self.start <= other.start { (self, other) } else { (other, self) };
        let distance = second.start - first.start;
        if first.width != second.width || !distance.is_multiple_of(first.width) {
            return true;
        }
        let axes = |place: &Place| (place.extents, place.strides);
        !apart(axes(first), axes(second), distance / first.width)
    }
}

const FOR_COLUMNS: &str = "one for each column of `x`";

/// The operands of one call, as they are looked at.
pub(super) struct Operands<'d> {
    device: &'d Device,
    inputs: Vec<Place>,
    results: Vec<Place>,
}

impl<'d> Operands<'d> {
    pub(super) fn on(device: &'d Device) -> Operands<'d> {
        Operands { device, inputs: Vec::new(), results: Vec::new() }
    }

    /// An operand that is read.
    pub(super) fn input<T: Item>(&mut self, name: &'static str, rows: &Rows<'_, T>) -> Result<(), Error> {
        let place = self.look(name, rows)?;
        self.inputs.push(place);
        Ok(())
    }

    /// A result that may be one of the inputs so far.
    pub(super) fn result<T: Item>(&mut self, name: &'static str, rows: &Rows<'_, T>) -> Result<(), Error> {
        self.written(name, rows, true)
    }

    /// A result in memory of its own.
    pub(super) fn apart<T: Item>(&mut self, name: &'static str, rows: &Rows<'_, T>) -> Result<(), Error> {
        self.written(name, rows, false)
    }

    /// An input with the extents of `x`.
    pub(super) fn input_like<T: Item, X: Item>(
        &mut self,
        name: &'static str,
        rows: &Rows<'_, T>,
        x: &Rows<'_, X>,
    ) -> Result<(), Error> {
        expect_extents(name, rows, x.extents(), "as `x` has")?;
        self.input(name, rows)
    }

    /// A result with the extents of `x`, which may be one of the inputs so far.
    pub(super) fn result_like<T: Item, X: Item>(
        &mut self,
        name: &'static str,
        rows: &Rows<'_, T>,
        x: &Rows<'_, X>,
    ) -> Result<(), Error> {
        expect_extents(name, rows, x.extents(), "as `x` has")?;
        self.result(name, rows)
    }

    /// An input with an element for each column of `x`, as a row, if there is such an input.
    pub(super) fn for_columns<'a, T: Item>(
        &mut self,
        name: &'static str,
        vector: Option<Rows<'a, T>>,
        columns: usize,
    ) -> Result<Option<Rows<'a, T>>, Error> {
        let Some(vector) = vector.map(|vector| vector.as_row(columns)) else { return Ok(None) };
        expect_extents(name, &vector, (1, columns), FOR_COLUMNS)?;
        self.input(name, &vector)?;
        Ok(Some(vector))
    }

    /// A result with an element for each column of `x`, as a row, in memory of its own.
    pub(super) fn of_columns<'a, T: Item>(
        &mut self,
        name: &'static str,
        vector: Rows<'a, T>,
        columns: usize,
    ) -> Result<Rows<'a, T>, Error> {
        let vector = vector.as_row(columns);
        expect_extents(name, &vector, (1, columns), FOR_COLUMNS)?;
        self.apart(name, &vector)?;
        Ok(vector)
    }

    fn written<T: Item>(
        &mut self,
        name: &'static str,
        rows: &Rows<'_, T>,
        in_place: bool,
    ) -> Result<(), Error> {
        let place = self.look(name, rows)?;
        if !place.is_injective() {
            let expected = "strides that give every element of a result memory of its own";
            return Err(Error::argument(
                name,
                rows.to_string(),
                expected,
                "use a stride of at least the columns",
            ));
        }
        for (other, is_input) in
            self.inputs.iter().map(|p| (p, true)).chain(self.results.iter().map(|p| (p, false)))
        {
            if place.overlaps(other) && !(is_input && in_place && place.is_same(other)) {
                let expected = if in_place && is_input {
                    "memory of its own or exactly the same"
                } else {
                    "memory of its own"
                };
                let found = format!("memory that it shares with `{}`", other.name);
                return Err(Error::argument(name, found, expected, "allocate another buffer"));
            }
        }
        self.results.push(place);
        Ok(())
    }

    fn look<T: Item>(&self, name: &'static str, rows: &Rows<'_, T>) -> Result<Place, Error> {
        if !rows.buffer.is_on(self.device) {
            let found = "a buffer of another device";
            return Err(Error::argument(name, found, "one of this", "upload the data here"));
        }
        if let Some(missing) = rows.missing {
            return Err(missing.refused(name));
        }
        let most = rows.rows.max(rows.columns);
        if u32::try_from(most).is_err() {
            return Err(Error::argument(
                name,
                rows.to_string(),
                "fewer than 2^32 rows and columns",
                "split it",
            ));
        }
        let end = rows.span().and_then(|span| span.checked_add(if span == 0 { 0 } else { rows.offset }));
        if end.is_none_or(|end| end > rows.buffer.len()) {
            let found = format!("{rows} from element {}", rows.offset);
            let expected = format!("at most the {} elements of its buffer", rows.buffer.len());
            return Err(Error::argument(name, found, expected, "check extents, strides and offset"));
        }
        rows.place(name).ok_or_else(|| {
            Error::argument(name, rows.to_string(), "fewer than 2^64 bytes", "check extents and strides")
        })
    }
}

/// Whether an operand has these extents, and why it should.
pub(super) fn expect_extents<T: Item>(
    name: &'static str,
    rows: &Rows<'_, T>,
    (expected_rows, expected_columns): (usize, usize),
    why: impl fmt::Display,
) -> Result<(), Error> {
    let (found_rows, found_columns) = rows.extents();
    if (found_rows, found_columns) == (expected_rows, expected_columns) {
        return Ok(());
    }
    let found = format!("{found_rows} x {found_columns}");
    let expected = format!("{expected_rows} x {expected_columns}, {why}");
    Err(Error::argument(name, found, expected, "give a view of that shape"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With strides in bytes.
    fn place(start: u64, extents: (u64, u64), strides: (u64, u64)) -> Place {
        let bytes = (extents.0 - 1) * strides.0 + (extents.1 - 1) * strides.1 + 4;
        let (extents, strides) = ([extents.0, extents.1], [strides.0 / 4, strides.1 / 4]);
        Place { name: "x", start, bytes, width: 4, extents, strides }
    }

    #[test]
    fn columns_of_one_matrix_do_not_overlap() {
        let left = place(1000, (5, 3), (40, 4));
        let right = place(1012, (5, 7), (40, 4));
        assert!(!left.overlaps(&right) && !right.overlaps(&left));
        let wide = place(1008, (5, 7), (40, 4));
        assert!(left.overlaps(&wide) && wide.overlaps(&left));
        // The last columns reach into the next row.
        let beyond = place(1036, (4, 2), (40, 4));
        assert!(left.overlaps(&beyond) && beyond.overlaps(&left));
        assert!(!left.overlaps(&place(1200, (5, 3), (40, 4))));
    }

    /// The exact answer, by all addresses.
    #[test]
    fn nothing_that_overlaps_is_let_through() {
        let addresses = |p: &Place| {
            let rows = 0..p.extents[0];
            rows.flat_map(|i| (0..p.extents[1]).map(move |j| (i, j)))
                .map(|(i, j)| p.start + 4 * (i * p.strides[0] + j * p.strides[1]))
                .collect::<Vec<_>>()
        };
        let all: Vec<Place> =
            [(0, 3, 2, 16), (8, 3, 2, 16), (4, 2, 3, 16), (12, 4, 1, 16), (0, 2, 4, 12), (28, 1, 3, 16)]
                .into_iter()
                .map(|(start, rows, columns, pitch)| place(start, (rows, columns), (pitch, 4)))
                .collect();
        for a in &all {
            let (mine, unique) =
                (addresses(a), addresses(a).iter().collect::<std::collections::HashSet<_>>().len());
            assert_eq!(a.is_injective(), unique == mine.len(), "{a:?}");
            for b in &all {
                let shared = addresses(b).iter().any(|address| mine.contains(address));
                assert!(a.overlaps(b) || !shared, "{a:?} {b:?}");
            }
        }
        assert!(!place(0, (2, 4), (12, 4)).is_injective());
    }
}
