//! Arrays of two dimensions with padded rows, and rectangles of any memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::launch::Arg;
use crate::memory::allocation::{Allocation, Home, explain};
use crate::memory::buffer::{Slice, SliceMut, bytes_of, inside};

/// An array of rows on a device, each padded so that all begin where the device reads fast. Freed on drop, after all operations on it.
///
/// As an argument of a kernel it is the address of the first row; the kernel also needs [`Pitched::pitch_bytes`].
///
/// ```no_run
/// use tilewright_cuda::{Context, HostRect};
/// let context = Context::new(0)?;
/// let stream = context.stream()?;
/// let mut image = context.alloc_pitched::<u8>(2, 3)?;
/// stream.copy_2d(HostRect::new(&[1, 2, 3, 4, 5, 6], 3)?, &mut image)?;
/// stream.fill_2d(image.rect_mut(.., 1..2)?, 0)?; // one column
/// assert_eq!(stream.download_2d(&image)?, [1, 0, 3, 4, 0, 6]);
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
pub struct Pitched<T> {
    memory: Arc<Allocation>,
    shape: Shape,
    ty: PhantomData<fn() -> T>,
}

/// Rows, columns, and bytes from row to row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) pitch: usize,
}

impl Shape {
    /// A part of it: its shape, and how many bytes it begins behind the whole.
    fn part<T>(
        self,
        rows: &impl RangeBounds<usize>,
        columns: &impl RangeBounds<usize>,
    ) -> Result<(usize, Shape), CudaError> {
        let (top, bottom) = inside(rows, self.rows)?;
        let (left, right) = inside(columns, self.columns)?;
        let start = top * self.pitch + left * size_of::<T>();
        Ok((start, Shape { rows: bottom - top, columns: right - left, pitch: self.pitch }))
    }

    /// Elements as rows of so many, without gaps.
    pub(crate) fn dense<T>(len: usize, columns: usize) -> Result<Shape, CudaError> {
        let rows = len.checked_div(columns).unwrap_or(0);
        if rows * columns != len {
            return Err(CudaError::Length {
                what: "the elements of whole rows",
                found: len,
                expected: rows * columns,
            });
        }
        Ok(Shape { rows, columns, pitch: columns * size_of::<T>() })
    }
}

impl<T> fmt::Debug for Pitched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { rows, columns, pitch } = self.shape;
        write!(f, "Pitched({rows} rows of {columns}, {pitch} bytes each, at {:#x})", self.memory.address())
    }
}

impl<T: Pod> Pitched<T> {
    /// Rows.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.shape.columns
    }

    /// Bytes from row to row.
    pub fn pitch_bytes(&self) -> usize {
        self.shape.pitch
    }

    /// The context it lives in.
    pub fn context(&self) -> &Context {
        self.memory.context()
    }

    /// The address of the first row.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// All of it, to be read.
    pub fn as_rect(&self) -> Rect<'_, T> {
        Rect { memory: &self.memory, start: 0, shape: self.shape, ty: PhantomData }
    }

    /// All of it, to be written.
    pub fn as_mut_rect(&mut self) -> RectMut<'_, T> {
        RectMut {
            whole: Rect { memory: &self.memory, start: 0, shape: self.shape, ty: PhantomData },
            exclusive: PhantomData,
        }
    }

    /// A part of it, to be read.
    ///
    /// # Errors
    /// If a range is not inside.
    pub fn rect(
        &self,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> Result<Rect<'_, T>, CudaError> {
        self.as_rect().rect(rows, columns)
    }

    /// A part of it, to be written.
    ///
    /// # Errors
    /// If a range is not inside.
    pub fn rect_mut(
        &mut self,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> Result<RectMut<'_, T>, CudaError> {
        self.as_mut_rect().rect(rows, columns)
    }

    /// The bytes of all rows with their padding, to be read.
    fn all_bytes(&self) -> Slice<'_, u8> {
        Slice::over(&self.memory, 0, self.memory.bytes())
    }
}

/// Rows in memory that a device can reach, to be read.
pub struct Rect<'a, T> {
    memory: &'a Arc<Allocation>,
    /// Bytes from the start of the allocation.
    start: usize,
    shape: Shape,
    ty: PhantomData<fn() -> T>,
}

impl<T> Clone for Rect<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rect<'_, T> {}

impl<T> fmt::Debug for Rect<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { rows, columns, pitch } = self.shape;
        let address = self.memory.address() + self.start as u64;
        write!(f, "Rect({rows} rows of {columns}, {pitch} bytes apart, at {address:#x})")
    }
}

impl<'a, T: Pod> Rect<'a, T> {
    /// All rows must be inside of the allocation.
    pub(crate) fn over(memory: &'a Arc<Allocation>, start: usize, shape: Shape) -> Rect<'a, T> {
        Rect { memory, start, shape, ty: PhantomData }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.shape.columns
    }

    /// Bytes from row to row.
    pub fn pitch_bytes(&self) -> usize {
        self.shape.pitch
    }

    /// The context it lives in.
    pub fn context(&self) -> &'a Context {
        self.memory.context()
    }

    /// The address of its first element.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// A part of it.
    ///
    /// # Errors
    /// If a range is not inside.
    pub fn rect(
        &self,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> Result<Rect<'a, T>, CudaError> {
        let (start, shape) = self.shape.part::<T>(&rows, &columns)?;
        Ok(Rect { memory: self.memory, start: self.start + start, shape, ty: PhantomData })
    }

    pub(crate) fn memory(&self) -> &'a Arc<Allocation> {
        self.memory
    }

    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }
}

/// Rows in memory that a device can reach, to be written.
pub struct RectMut<'a, T> {
    whole: Rect<'a, T>,
    exclusive: PhantomData<&'a mut T>,
}

impl<T> fmt::Debug for RectMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, to be written", self.whole)
    }
}

impl<'a, T: Pod> RectMut<'a, T> {
    /// Nobody else may have a view of that memory.
    pub(crate) fn over(whole: Rect<'a, T>) -> RectMut<'a, T> {
        RectMut { whole, exclusive: PhantomData }
    }

    /// To be read, as long as this is not used.
    pub fn as_rect(&self) -> Rect<'_, T> {
        self.whole
    }

    /// The same for a shorter time.
    pub fn reborrow(&mut self) -> RectMut<'_, T> {
        RectMut { whole: self.whole, exclusive: PhantomData }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.whole.rows()
    }

    /// Elements of a row.
    pub fn columns(&self) -> usize {
        self.whole.columns()
    }

    /// A part of it.
    ///
    /// # Errors
    /// If a range is not inside.
    pub fn rect(
        self,
        rows: impl RangeBounds<usize>,
        columns: impl RangeBounds<usize>,
    ) -> Result<RectMut<'a, T>, CudaError> {
        Ok(RectMut { whole: self.whole.rect(rows, columns)?, exclusive: PhantomData })
    }

    /// The rows above a row, and the rest.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn split_at_row(self, row: usize) -> Result<(RectMut<'a, T>, RectMut<'a, T>), CudaError> {
        let (above, below) = (self.whole.rect(..row, ..)?, self.whole.rect(row.., ..)?);
        Ok((
            RectMut { whole: above, exclusive: PhantomData },
            RectMut { whole: below, exclusive: PhantomData },
        ))
    }
}

impl<'a, T: Pod> Slice<'a, T> {
    /// The same elements as rows of so many.
    ///
    /// # Errors
    /// If they are no whole number of rows.
    pub fn as_rows(&self, columns: usize) -> Result<Rect<'a, T>, CudaError> {
        let start = usize::try_from(self.address() - self.memory().address()).unwrap_or(usize::MAX);
        Ok(Rect::over(self.memory(), start, Shape::dense::<T>(self.len(), columns)?))
    }
}

impl<'a, T: Pod> SliceMut<'a, T> {
    /// The same elements as rows of so many.
    ///
    /// # Errors
    /// If they are no whole number of rows.
    pub fn as_rows(self, columns: usize) -> Result<RectMut<'a, T>, CudaError> {
        let memory = self.memory();
        let start = usize::try_from(self.address() - memory.address()).unwrap_or(usize::MAX);
        let whole = Rect::over(memory, start, Shape::dense::<T>(self.len(), columns)?);
        Ok(RectMut { whole, exclusive: PhantomData })
    }
}

impl<'a, T: Pod> From<&'a Pitched<T>> for Rect<'a, T> {
    fn from(pitched: &'a Pitched<T>) -> Self {
        pitched.as_rect()
    }
}

impl<'a, T: Pod> From<&'a mut Pitched<T>> for RectMut<'a, T> {
    fn from(pitched: &'a mut Pitched<T>) -> Self {
        pitched.as_mut_rect()
    }
}

impl<'a, T: Pod> From<&'a Pitched<T>> for Arg<'a> {
    fn from(pitched: &'a Pitched<T>) -> Self {
        pitched.all_bytes().into()
    }
}

impl<'a, T: Pod> From<&'a mut Pitched<T>> for Arg<'a> {
    fn from(pitched: &'a mut Pitched<T>) -> Self {
        SliceMut::over(pitched.all_bytes()).into()
    }
}

impl Context {
    /// Rows with unspecified contents, padded as the device likes it; there when the function returns.
    ///
    /// # Errors
    /// If there is no room.
    pub fn alloc_pitched<T: Pod>(&self, rows: usize, columns: usize) -> Result<Pitched<T>, CudaError> {
        let width = bytes_of::<T>(self, columns)?;
        // Also that the bytes of all rows are a number.
        let total = bytes_of::<T>(self, rows.saturating_mul(columns))?;
        if total == 0 {
            let memory = Allocation::own(self, 0, 0, Home::Empty);
            return Ok(Pitched { memory, shape: Shape { rows, columns, pitch: width }, ty: PhantomData });
        }
        // The largest access of a thread that must not straddle rows; the driver knows 4, 8 and 16.
        let element = match size_of::<T>() {
            0..=4 => 4,
            5..=8 => 8,
            _ => 16,
        };
        let allocated = ffi::memory::allocate_pitched(self.raw(), width, rows, element);
        let (address, pitch) = explain(self, total, allocated)?;
        let memory = Allocation::own(self, address, pitch.saturating_mul(rows), Home::Device);
        Ok(Pitched { memory, shape: Shape { rows, columns, pitch }, ty: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_where_they_should() {
        let whole = Shape { rows: 10, columns: 6, pitch: 512 };
        let part = |rows, columns| Shape { rows, columns, pitch: 512 };
        assert_eq!(whole.part::<f32>(&(2..5), &(1..)), Ok((2 * 512 + 4, part(3, 5))));
        assert_eq!(whole.part::<f64>(&(..), &(..=2)), Ok((0, part(10, 3))));
        assert_eq!(whole.part::<u8>(&(10..), &(6..)), Ok((10 * 512 + 6, part(0, 0))));
        assert_eq!(whole.part::<u8>(&(..11), &(..)), Err(CudaError::Range { start: 0, end: 11, len: 10 }));
        assert!(whole.part::<u8>(&(..), &(3..8)).is_err());
    }

    #[test]
    fn elements_are_whole_rows_or_an_error() {
        assert_eq!(Shape::dense::<u16>(12, 4), Ok(Shape { rows: 3, columns: 4, pitch: 8 }));
        assert_eq!(Shape::dense::<u16>(0, 4), Ok(Shape { rows: 0, columns: 4, pitch: 8 }));
        assert_eq!(Shape::dense::<u16>(0, 0), Ok(Shape { rows: 0, columns: 0, pitch: 0 }));
        assert!(Shape::dense::<u16>(13, 4).is_err());
        assert!(Shape::dense::<u16>(1, 0).is_err());
    }
}
