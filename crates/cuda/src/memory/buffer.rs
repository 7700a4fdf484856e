//! Arrays in the memory of a device, and parts of them.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::CudaError;
use crate::memory::allocation::Allocation;
use crate::stream::Stream;

/// An array in the memory of a device; freed on drop, after all operations on it, on whatever stream they are.
///
/// `&Buffer` is what operations read from, `&mut Buffer` what they write to. Operations return before they are done: the borrow says
/// who may enqueue what, and the memory itself knows what must wait for what.
pub struct Buffer<T> {
    memory: Arc<Allocation>,
    len: usize,
    ty: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} elements at {:#x})", self.len, self.memory.address())
    }
}

impl<T: Pod> Buffer<T> {
    /// The memory must have room for so many.
    pub(crate) fn over(memory: Arc<Allocation>, len: usize) -> Buffer<T> {
        debug_assert!(len * size_of::<T>() <= memory.bytes());
        Buffer { memory, len, ty: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The context it lives in.
    pub fn context(&self) -> &Context {
        self.memory.context()
    }

    /// Its address on the device. Whoever uses it must keep the buffer, and order what is done.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// All of it, to be read.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice { memory: &self.memory, start: 0, len: self.len, ty: PhantomData }
    }

    /// All of it, to be written.
    pub fn as_mut_slice(&mut self) -> SliceMut<'_, T> {
        SliceMut {
            whole: Slice { memory: &self.memory, start: 0, len: self.len, ty: PhantomData },
            exclusive: PhantomData,
        }
    }

    /// All of it, to be written by one of several who share the buffer: for those who hand out clones of it and order what is done
    /// themselves.
    ///
    /// # Safety
    /// Until the operation that it is given to is enqueued, nobody enqueues another on this memory, unless to the same stream.
    #[allow(unsafe_code)]
    pub unsafe fn shared_mut(&self) -> SliceMut<'_, T> {
        SliceMut::over(self.as_slice())
    }

    /// A part of it, to be read.
    ///
    /// # Errors
    /// If the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>, CudaError> {
        self.as_slice().slice(range)
    }

    /// A part of it, to be written.
    ///
    /// # Errors
    /// If the range is not inside.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>, CudaError> {
        self.as_mut_slice().slice(range)
    }

    /// The same memory with elements of another type.
    ///
    /// # Errors
    /// Gives the buffer back if its bytes are no whole number of those elements.
    pub fn cast<U: Pod>(self) -> Result<Buffer<U>, Buffer<T>> {
        match count::<U>(self.bytes()) {
            Some(len) => Ok(Buffer { memory: self.memory, len, ty: PhantomData }),
            None => Err(self),
        }
    }

    pub(crate) fn into_memory(self) -> Arc<Allocation> {
        self.memory
    }
}

/// How many elements so many bytes are, if they are a whole number.
fn count<U>(bytes: usize) -> Option<usize> {
    match size_of::<U>() {
        0 => None,
        size => bytes.is_multiple_of(size).then_some(bytes / size),
    }
}

/// Elements in memory that a device can reach, to be read.
pub struct Slice<'a, T> {
    memory: &'a Arc<Allocation>,
    /// Bytes from the start of the allocation.
    start: usize,
    len: usize,
    ty: PhantomData<fn() -> T>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice<'_, T> {}

impl<T> fmt::Debug for Slice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} elements at {:#x})", self.len, self.memory.address() + self.start as u64)
    }
}

impl<'a, T: Pod> Slice<'a, T> {
    /// The memory must have room for so many from there.
    pub(crate) fn over(memory: &'a Arc<Allocation>, start: usize, len: usize) -> Slice<'a, T> {
        debug_assert!(start + len * size_of::<T>() <= memory.bytes());
        Slice { memory, start, len, ty: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The context it lives in.
    pub fn context(&self) -> &'a Context {
        self.memory.context()
    }

    /// Its address on the device.
    pub fn address(&self) -> u64 {
        self.memory.address() + self.start as u64
    }

    /// A part of it.
    ///
    /// # Errors
    /// If the range is not inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>, CudaError> {
        let (start, end) = inside(&range, self.len)?;
        let start_bytes = self.start + start * size_of::<T>();
        Ok(Slice { memory: self.memory, start: start_bytes, len: end - start, ty: PhantomData })
    }

    /// The first so many elements, and the rest.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn split_at(&self, at: usize) -> Result<(Slice<'a, T>, Slice<'a, T>), CudaError> {
        Ok((self.slice(..at)?, self.slice(at..)?))
    }

    /// The same memory with elements of another type.
    ///
    /// # Errors
    /// If its bytes are no whole number of those elements, or it does not begin at a multiple of their alignment.
    pub fn cast<U: Pod>(&self) -> Result<Slice<'a, U>, CudaError> {
        let aligned = self.address().is_multiple_of(align_of::<U>() as u64);
        match count::<U>(self.bytes()) {
            Some(len) if aligned => {
                Ok(Slice { memory: self.memory, start: self.start, len, ty: PhantomData })
            }
            _ => Err(CudaError::Length {
                what: "the bytes of a cast",
                found: self.bytes(),
                expected: self.bytes() / size_of::<U>().max(1) * size_of::<U>(),
            }),
        }
    }

    pub(crate) fn memory(&self) -> &'a Arc<Allocation> {
        self.memory
    }
}

/// Elements in memory that a device can reach, to be written.
pub struct SliceMut<'a, T> {
    whole: Slice<'a, T>,
    exclusive: PhantomData<&'a mut T>,
}

impl<T> fmt::Debug for SliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, to be written", self.whole)
    }
}

impl<'a, T: Pod> SliceMut<'a, T> {
    /// Nobody else may have a view of that memory.
    pub(crate) fn over(whole: Slice<'a, T>) -> SliceMut<'a, T> {
        SliceMut { whole, exclusive: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.whole.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.whole.len == 0
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.whole.bytes()
    }

    /// The context it lives in.
    pub fn context(&self) -> &'a Context {
        self.whole.context()
    }

    /// Its address on the device.
    pub fn address(&self) -> u64 {
        self.whole.address()
    }

    /// To be read, as long as this is not used.
    pub fn as_slice(&self) -> Slice<'_, T> {
        self.whole
    }

    /// The same for a shorter time.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        SliceMut { whole: self.whole, exclusive: PhantomData }
    }

    /// A part of it.
    ///
    /// # Errors
    /// If the range is not inside.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<SliceMut<'a, T>, CudaError> {
        Ok(SliceMut { whole: self.whole.slice(range)?, exclusive: PhantomData })
    }

    /// The first so many elements, and the rest.
    ///
    /// # Errors
    /// If there are not so many.
    pub fn split_at(self, at: usize) -> Result<(SliceMut<'a, T>, SliceMut<'a, T>), CudaError> {
        let (left, right) = self.whole.split_at(at)?;
        Ok((
            SliceMut { whole: left, exclusive: PhantomData },
            SliceMut { whole: right, exclusive: PhantomData },
        ))
    }

    /// The same memory with elements of another type.
    ///
    /// # Errors
    /// As [`Slice::cast`].
    pub fn cast<U: Pod>(self) -> Result<SliceMut<'a, U>, CudaError> {
        Ok(SliceMut { whole: self.whole.cast()?, exclusive: PhantomData })
    }

    pub(crate) fn memory(&self) -> &'a Arc<Allocation> {
        self.whole.memory
    }
}

impl<'a, T: Pod> From<&'a Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Slice<'a, T> {
        buffer.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> SliceMut<'a, T> {
        buffer.as_mut_slice()
    }
}

/// A range as numbers, if it is inside.
pub(crate) fn inside(range: &impl RangeBounds<usize>, len: usize) -> Result<(usize, usize), CudaError> {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&start) => start.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.saturating_add(1),
        Bound::Excluded(&end) => end,
        Bound::Unbounded => len,
    };
    if start <= end && end <= len { Ok((start, end)) } else { Err(CudaError::Range { start, end, len }) }
}

impl Stream {
    /// An array with unspecified contents, in the order of the stream.
    ///
    /// # Errors
    /// If there is no room, or the stream is being captured.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>, CudaError> {
        Ok(Buffer::over(Allocation::in_order(self, bytes_of::<T>(self.context(), len)?)?, len))
    }

    /// An array of zeros.
    ///
    /// # Errors
    /// If there is no room, or the stream is being captured.
    pub fn alloc_zeroed<T: Pod>(&self, len: usize) -> Result<Buffer<T>, CudaError> {
        let mut buffer = self.alloc::<T>(len)?;
        self.fill(buffer.as_mut_slice().cast::<u8>()?, 0)?;
        Ok(buffer)
    }

    /// An array with a copy of this.
    ///
    /// # Errors
    /// If there is no room, or the stream is being captured.
    pub fn upload<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>, CudaError> {
        let mut buffer = self.alloc(values.len())?;
        self.copy(values, &mut buffer)?;
        Ok(buffer)
    }

    /// A copy of this on the host; waits for it.
    ///
    /// # Errors
    /// If any work on the stream failed, or the stream is being captured.
    pub fn download<'a, T: Pod>(&self, from: impl Into<Slice<'a, T>>) -> Result<Vec<T>, CudaError> {
        let from = from.into();
        let mut values = vec![T::zeroed(); from.len()];
        self.copy(from, values.as_mut_slice())?;
        Ok(values)
    }
}

impl Context {
    /// An array with unspecified contents that is there when the function returns. [`Stream::alloc`] is faster, and what is freed by one
    /// is reused by the other only through the driver.
    ///
    /// # Errors
    /// If there is no room.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>, CudaError> {
        Ok(Buffer::over(Allocation::at_once(self, bytes_of::<T>(self, len)?)?, len))
    }
}

/// Bytes of so many elements, if that is a number.
pub(crate) fn bytes_of<T>(context: &Context, len: usize) -> Result<usize, CudaError> {
    let room = |bytes: &usize| *bytes <= isize::MAX as usize;
    match len.checked_mul(size_of::<T>()).filter(room) {
        Some(bytes) => Ok(bytes),
        None => {
            let (free, total) = context.memory()?;
            Err(CudaError::OutOfMemory { bytes: u64::MAX, free, total, device: context.ordinal() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert_eq!(inside(&(..), 4), Ok((0, 4)));
        assert_eq!(inside(&(1..=2), 4), Ok((1, 3)));
        assert_eq!(inside(&(4..), 4), Ok((4, 4)));
        assert_eq!(inside(&(2..5), 4), Err(CudaError::Range { start: 2, end: 5, len: 4 }));
        assert_eq!(inside(&(0..=usize::MAX), 4), Err(CudaError::Range { start: 0, end: usize::MAX, len: 4 }));
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = inside(&(3..1), 4);
        assert!(backwards.is_err());
    }
}
