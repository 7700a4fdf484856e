//! Copies and filling of rectangles, in the order of a stream.

use std::ffi::c_void;

use bytemuck::Pod;

use crate::error::CudaError;
use crate::ffi;
use crate::ffi::memory::Place;
use crate::memory::copy::Pattern;
use crate::memory::order::Access;
use crate::memory::pitched::{Pitched, Rect, RectMut, Shape};
use crate::stream::Stream;

/// Rows in ordinary host memory, to be read.
///
/// ```
/// use tilewright_cuda::HostRect;
/// let picture = [1, 2, 3, 0, 4, 5, 6];
/// let rows = HostRect::with_stride(&picture, 3, 4)?; // rows of 3, beginning every 4
/// assert_eq!(rows.rows(), 2);
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HostRect<'a, T> {
    values: &'a [T],
    shape: Shape,
}

/// Rows in ordinary host memory, to be written.
#[derive(Debug)]
pub struct HostRectMut<'a, T> {
    values: &'a mut [T],
    shape: Shape,
}

/// Rows of so many, beginning every `stride`; the last may end with its last element.
fn strided<T>(len: usize, columns: usize, stride: usize) -> Result<Shape, CudaError> {
    if stride < columns {
        return Err(CudaError::Length { what: "elements from row to row", found: stride, expected: columns });
    }
    let rows = match (len.checked_sub(columns), stride) {
        (Some(rest), 1..) => rest / stride + 1,
        _ => 0,
    };
    let used = rows.saturating_sub(1) * stride + if rows == 0 { 0 } else { columns };
    // Padding behind the last row is fine, half a row is not.
    if len - used > stride - columns {
        return Err(CudaError::Length { what: "the elements of whole rows", found: len, expected: used });
    }
    Ok(Shape { rows, columns, pitch: stride * size_of::<T>() })
}

impl<'a, T: Pod> HostRect<'a, T> {
    /// All elements as rows of so many.
    ///
    /// # Errors
    /// If they are no whole number of rows.
    pub fn new(values: &'a [T], columns: usize) -> Result<HostRect<'a, T>, CudaError> {
        HostRect::with_stride(values, columns, columns)
    }

    /// Rows of so many elements that begin every `stride` elements.
    ///
    /// # Errors
    /// If they overlap, or the last row is not whole.
    pub fn with_stride(values: &'a [T], columns: usize, stride: usize) -> Result<HostRect<'a, T>, CudaError> {
        Ok(HostRect { values, shape: strided::<T>(values.len(), columns, stride)? })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.shape.columns
    }
}

impl<'a, T: Pod> HostRectMut<'a, T> {
    /// All elements as rows of so many.
    ///
    /// # Errors
    /// If they are no whole number of rows.
    pub fn new(values: &'a mut [T], columns: usize) -> Result<HostRectMut<'a, T>, CudaError> {
        HostRectMut::with_stride(values, columns, columns)
    }

    /// Rows of so many elements that begin every `stride` elements.
    ///
    /// # Errors
    /// If they overlap, or the last row is not whole.
    pub fn with_stride(
        values: &'a mut [T],
        columns: usize,
        stride: usize,
    ) -> Result<HostRectMut<'a, T>, CudaError> {
        let shape = strided::<T>(values.len(), columns, stride)?;
        Ok(HostRectMut { values, shape })
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.shape.columns
    }
}

/// What a copy of rows reads.
#[derive(Debug)]
pub enum Source2d<'a, T> {
    /// Of a device, or page-locked: the copy is asynchronous.
    Memory(Rect<'a, T>),
    /// Ordinary host memory: the copy is waited for.
    Host(HostRect<'a, T>),
}

/// What a copy of rows writes.
#[derive(Debug)]
pub enum Target2d<'a, T> {
    /// Of a device, or page-locked: the copy is asynchronous.
    Memory(RectMut<'a, T>),
    /// Ordinary host memory: the copy is waited for.
    Host(HostRectMut<'a, T>),
}

impl<T: Pod> Source2d<'_, T> {
    fn shape(&self) -> Shape {
        match self {
            Source2d::Memory(rect) => rect.shape(),
            Source2d::Host(rect) => rect.shape,
        }
    }
}

impl<T: Pod> Target2d<'_, T> {
    fn shape(&self) -> Shape {
        match self {
            Target2d::Memory(rect) => rect.as_rect().shape(),
            Target2d::Host(rect) => rect.shape,
        }
    }
}

macro_rules! sides {
    ($side:ident: $($from:ty => $variant:ident by $method:ident),* $(,)?) => {$(
        impl<'a, T: Pod> From<$from> for $side<'a, T> {
            fn from(rows: $from) -> Self {
                $side::$variant(rows.$method())
            }
        }
    )*};
}

sides!(Source2d: &'a Pitched<T> => Memory by into, Rect<'a, T> => Memory by into, HostRect<'a, T> => Host by into);
sides!(Target2d: &'a mut Pitched<T> => Memory by into, RectMut<'a, T> => Memory by into, HostRectMut<'a, T> => Host by into);

impl Stream {
    /// Copies all rows of `from` over all rows of `to`, wherever they are: host, page-locked host, this device, another; see [`Pitched`],
    /// [`Slice::as_rows`](crate::Slice::as_rows), [`HostRect`].
    ///
    /// Returns at once, except where ordinary host memory takes part: that is waited for.
    ///
    /// # Errors
    /// If rows and columns differ, or the stream is being captured and ordinary host memory takes part, or work on the stream failed.
    #[allow(unsafe_code)]
    pub fn copy_2d<'a, 'b, T: Pod>(
        &self,
        from: impl Into<Source2d<'a, T>>,
        to: impl Into<Target2d<'b, T>>,
    ) -> Result<(), CudaError> {
        let (from, to) = (from.into(), to.into());
        let (from_shape, to_shape) = (from.shape(), to.shape());
        let Shape { rows, columns, .. } = to_shape;
        if (from_shape.rows, from_shape.columns) != (rows, columns) {
            return Err(CudaError::Shape {
                what: "the source of a copy",
                found_rows: from_shape.rows,
                found_columns: from_shape.columns,
                rows,
                columns,
            });
        }
        let width = columns * size_of::<T>();
        if rows * width == 0 {
            return Ok(());
        }
        let waited_for = matches!(from, Source2d::Host(_)) || matches!(to, Target2d::Host(_));
        let turn = self.turn();
        if waited_for {
            turn.expect_live("copying from or to ordinary host memory")?;
        }
        if let Source2d::Memory(rect) = &from {
            rect.memory().before(&turn, Access::Read)?;
        }
        if let Target2d::Memory(rect) = &to {
            rect.as_rect().memory().before(&turn, Access::Write)?;
        }
        if let (Source2d::Memory(from), Target2d::Memory(to)) = (&from, &to)
            && let to = to.as_rect()
            && from.context() != to.context()
            && !from.memory().is_everywhere()
            && !to.memory().is_everywhere()
        {
            let to = (to.address(), to_shape.pitch, &**to.context().raw());
            let from = (from.address(), from_shape.pitch, &**from.context().raw());
            // SAFETY: as below.
            let copied = unsafe { ffi::memory::copy_rows_between(self.raw(), to, from, width, rows) };
            return self.context().guard(copied);
        }
        let from = match from {
            Source2d::Memory(rect) => Place::Memory(rect.address()),
            // The driver does not write to what it copies from.
            Source2d::Host(rect) => Place::Host(rect.values.as_ptr().cast_mut().cast::<c_void>()),
        };
        let to = match to {
            Target2d::Memory(rect) => Place::Memory(rect.as_rect().address()),
            Target2d::Host(rect) => Place::Host(rect.values.as_mut_ptr().cast::<c_void>()),
        };
        let (to, from) = ((to, to_shape.pitch), (from, from_shape.pitch));
        // SAFETY: all rows are inside of allocations that live until all operations on them are done, or of host memory that is borrowed
        // until the copy is; conflicting operations were made to come before, and none can be enqueued while all is borrowed. Any bytes
        // are a `T`.
        let copied = unsafe { ffi::memory::copy_rows(self.raw(), to, from, width, rows) };
        drop(turn);
        self.context().guard(copied)?;
        if waited_for { self.synchronize() } else { Ok(()) }
    }

    /// A copy of all rows on the host, without gaps; waits for it.
    ///
    /// # Errors
    /// If any work on the stream failed, or the stream is being captured.
    pub fn download_2d<'a, T: Pod>(&self, from: impl Into<Rect<'a, T>>) -> Result<Vec<T>, CudaError> {
        let from = from.into();
        let mut values = vec![T::zeroed(); from.rows() * from.columns()];
        if !values.is_empty() {
            self.copy_2d(from, HostRectMut::new(&mut values, from.columns())?)?;
        }
        Ok(values)
    }

    /// Writes the value to all elements, of 1, 2, 4 or 8 bytes, of all rows.
    ///
    /// # Errors
    /// If elements have another size.
    #[allow(unsafe_code)]
    pub fn fill_2d<'a, T: Pod>(&self, to: impl Into<RectMut<'a, T>>, value: T) -> Result<(), CudaError> {
        let to = to.into();
        let rect = to.as_rect();
        let (at, Shape { rows, columns, pitch }) = (rect.address(), rect.shape());
        let pattern = Pattern::of(&value)?;
        if rows * columns == 0 {
            return Ok(());
        }
        let turn = self.turn();
        rect.memory().before(&turn, Access::Write)?;
        let raw = self.raw();
        // SAFETY: all rows are inside of an allocation that lives until all operations on it are done; conflicting operations were made to
        // come before. Elements begin at multiples of their size, those of 8 bytes so at multiples of 4.
        let filled = unsafe {
            match pattern {
                Pattern::Word(word) => ffi::memory::fill_rows(raw, (at, pitch), word, columns, rows),
                Pattern::Halves([low, high]) if low == high => {
                    let word = ffi::memory::Word::Whole(low);
                    ffi::memory::fill_rows(raw, (at, pitch), word, 2 * columns, rows)
                }
                // The driver fills one row or one column of halves in one go: whichever are fewer.
                Pattern::Halves(halves) => {
                    let (lines, between, step, each) = if rows <= columns {
                        (rows, pitch, size_of::<T>(), columns)
                    } else {
                        (columns, size_of::<T>(), pitch, rows)
                    };
                    (0..lines).try_for_each(|line| {
                        let first = at + (line * between) as u64;
                        ffi::memory::fill_strided(raw, first, step, halves[0], each)?;
                        ffi::memory::fill_strided(raw, first + 4, step, halves[1], each)
                    })
                }
            }
        };
        self.context().guard(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_gaps_are_counted() {
        let rows = |len, columns, stride| strided::<u16>(len, columns, stride).map(|shape| shape.rows);
        assert_eq!(rows(12, 4, 4), Ok(3));
        // The padding of the last row may be missing, or there, or in part.
        for len in 7..=8 {
            assert_eq!(rows(len, 3, 4), Ok(2), "{len}");
        }
        assert_eq!(rows(0, 3, 4), Ok(0));
        assert!(rows(10, 3, 4).is_err());
        assert!(rows(2, 3, 4).is_err());
        assert!(rows(12, 5, 4).is_err());
        assert_eq!(strided::<u16>(12, 4, 6).map(|shape| shape.pitch), Ok(12));
    }
}
