//! Copies and filling, in the order of a stream.

use std::ffi::c_void;

use bytemuck::Pod;

use crate::error::CudaError;
use crate::ffi;
use crate::ffi::memory::Word;
use crate::memory::allocation::Allocation;
use crate::memory::buffer::{Buffer, Slice, SliceMut};
use crate::memory::order::Access;
use crate::stream::{Stream, Turn};

/// What a copy reads: memory that the device can reach, or an ordinary slice.
#[derive(Debug)]
pub enum Source<'a, T> {
    /// Of a device, or page-locked: the copy is asynchronous.
    Memory(Slice<'a, T>),
    /// Ordinary host memory: the copy is waited for.
    Host(&'a [T]),
}

/// What a copy writes.
#[derive(Debug)]
pub enum Target<'a, T> {
    /// Of a device, or page-locked: the copy is asynchronous.
    Memory(SliceMut<'a, T>),
    /// Ordinary host memory: the copy is waited for.
    Host(&'a mut [T]),
}

impl<T: Pod> Source<'_, T> {
    fn len(&self) -> usize {
        match self {
            Source::Memory(slice) => slice.len(),
            Source::Host(slice) => slice.len(),
        }
    }
}

impl<T: Pod> Target<'_, T> {
    fn len(&self) -> usize {
        match self {
            Target::Memory(slice) => slice.len(),
            Target::Host(slice) => slice.len(),
        }
    }
}

impl<'a, T: Pod> From<Slice<'a, T>> for Source<'a, T> {
    fn from(slice: Slice<'a, T>) -> Source<'a, T> {
        Source::Memory(slice)
    }
}

impl<'a, T: Pod> From<&'a Buffer<T>> for Source<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Source<'a, T> {
        Source::Memory(buffer.as_slice())
    }
}

impl<'a, T: Pod> From<&'a [T]> for Source<'a, T> {
    fn from(slice: &'a [T]) -> Source<'a, T> {
        Source::Host(slice)
    }
}

impl<'a, T: Pod> From<&'a Vec<T>> for Source<'a, T> {
    fn from(values: &'a Vec<T>) -> Source<'a, T> {
        Source::Host(values)
    }
}

impl<'a, T: Pod> From<SliceMut<'a, T>> for Target<'a, T> {
    fn from(slice: SliceMut<'a, T>) -> Target<'a, T> {
        Target::Memory(slice)
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for Target<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Target<'a, T> {
        Target::Memory(buffer.as_mut_slice())
    }
}

impl<'a, T: Pod> From<&'a mut [T]> for Target<'a, T> {
    fn from(slice: &'a mut [T]) -> Target<'a, T> {
        Target::Host(slice)
    }
}

impl<'a, T: Pod> From<&'a mut Vec<T>> for Target<'a, T> {
    fn from(values: &'a mut Vec<T>) -> Target<'a, T> {
        Target::Host(values)
    }
}

impl Stream {
    /// Copies all of `from` over all of `to`, wherever they are: host, page-locked host, this device, another. Between the host and
    /// a device it is a stream of that device.
    ///
    /// Returns at once, except where ordinary host memory takes part: that is waited for, so that it can go or change afterwards.
    ///
    /// ```no_run
    /// # use tilewright_cuda::Context;
    /// let context = Context::new(0)?;
    /// let stream = context.stream()?;
    /// let mut device = stream.alloc::<f32>(4)?;
    /// stream.copy(&[1.0f32, 2.0, 3.0, 4.0][..], &mut device)?;
    /// let mut half = [0.0; 2];
    /// stream.copy(device.slice(2..)?, &mut half[..])?;
    /// assert_eq!(half, [3.0, 4.0]);
    /// # Ok::<(), tilewright_cuda::CudaError>(())
    /// ```
    ///
    /// # Errors
    /// If the lengths differ, or memory that is copied from or to the host is another device's than the stream, or the stream is being captured
    /// and ordinary host memory takes part, or work on the stream failed.
    #[allow(unsafe_code)]
    pub fn copy<'a, 'b, T: Pod>(
        &self,
        from: impl Into<Source<'a, T>>,
        to: impl Into<Target<'b, T>>,
    ) -> Result<(), CudaError> {
        let (from, to) = (from.into(), to.into());
        if from.len() != to.len() {
            return Err(CudaError::Length {
                what: "the source of a copy",
                found: from.len(),
                expected: to.len(),
            });
        }
        let bytes = from.len() * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        match (from, to) {
            (Source::Memory(from), Target::Memory(to)) => {
                // Between devices the driver finds a way; from one to page-locked memory it is a stream of that device.
                if to.memory().is_everywhere() {
                    self.expect_reach("the source of a copy to page-locked memory", from.memory())?;
                } else if from.memory().is_everywhere() {
                    self.expect_reach("the target of a copy from page-locked memory", to.memory())?;
                }
                let turn = self.turn();
                from.memory().before(&turn, Access::Read)?;
                to.memory().before(&turn, Access::Write)?;
                let (to_at, from_at) = (to.address(), from.address());
                let (to_context, from_context) = (to.context(), from.context());
                // SAFETY: both ranges are inside of allocations that live until all operations on them are done; conflicting operations were
                // made to come before, and none can be enqueued while the slices are borrowed.
                self.context().guard(unsafe {
                    if to_context == self.context()
                        && from_context == self.context()
                        && !to.memory().is_everywhere()
                        && !from.memory().is_everywhere()
                    {
                        ffi::memory::on_device(self.raw(), to_at, from_at, bytes)
                    } else if self.reaches(from.memory()) && self.reaches(to.memory()) {
                        // The driver finds out by the addresses where they are, which takes it a little longer.
                        ffi::memory::copy(self.raw(), to_at, from_at, bytes)
                    } else {
                        let (to, from) = ((to_at, &**to_context.raw()), (from_at, &**from_context.raw()));
                        ffi::memory::between(self.raw(), to, from, bytes)
                    }
                })
            }
            (Source::Host(from), Target::Memory(to)) => {
                let turn = self.turn();
                turn.expect_live("copying from ordinary host memory")?;
                self.expect_reach("the target of a copy from ordinary host memory", to.memory())?;
                to.memory().before(&turn, Access::Write)?;
                // SAFETY: as above; the host's memory is borrowed until the copy is done.
                let copied = unsafe {
                    ffi::memory::to_device(self.raw(), to.address(), from.as_ptr().cast::<c_void>(), bytes)
                };
                self.finish_with(turn, copied)
            }
            (Source::Memory(from), Target::Host(to)) => {
                let turn = self.turn();
                turn.expect_live("copying to ordinary host memory")?;
                self.expect_reach("the source of a copy to ordinary host memory", from.memory())?;
                from.memory().before(&turn, Access::Read)?;
                // SAFETY: as above; any bytes are a `T`.
                let copied = unsafe {
                    ffi::memory::to_host(self.raw(), to.as_mut_ptr().cast::<c_void>(), from.address(), bytes)
                };
                self.finish_with(turn, copied)
            }
            (Source::Host(from), Target::Host(to)) => {
                to.copy_from_slice(from);
                Ok(())
            }
        }
    }

    /// Whether operations of this stream may use the memory without asking its device.
    fn reaches(&self, memory: &Allocation) -> bool {
        memory.is_everywhere() || memory.context() == self.context()
    }

    /// An error unless they may.
    fn expect_reach(&self, what: &'static str, memory: &Allocation) -> Result<(), CudaError> {
        if self.reaches(memory) { Ok(()) } else { self.context().expect(what, memory.context()) }
    }

    /// A copy that ordinary host memory takes part in is over when the stream is done.
    fn finish_with(&self, turn: Turn<'_>, copied: Result<(), CudaError>) -> Result<(), CudaError> {
        drop(turn);
        self.context().guard(copied)?;
        self.synchronize()
    }

    /// Writes the value to all elements of 1, 2, 4 or 8 bytes.
    ///
    /// ```no_run
    /// # use tilewright_cuda::Context;
    /// let context = Context::new(0)?;
    /// let stream = context.stream()?;
    /// let mut halves = stream.alloc::<f64>(3)?;
    /// stream.fill(&mut halves, 0.5)?;
    /// assert_eq!(stream.download(&halves)?, [0.5; 3]);
    /// # Ok::<(), tilewright_cuda::CudaError>(())
    /// ```
    ///
    /// # Errors
    /// If elements have another size, or the memory is another device's than the stream.
    #[allow(unsafe_code)]
    pub fn fill<'a, T: Pod>(&self, to: impl Into<SliceMut<'a, T>>, value: T) -> Result<(), CudaError> {
        let to = to.into();
        let (at, count) = (to.address(), to.len());
        self.expect_reach("memory to fill", to.memory())?;
        let pattern = Pattern::of(&value)?;
        if count == 0 {
            return Ok(());
        }
        let turn = self.turn();
        to.memory().before(&turn, Access::Write)?;
        // SAFETY: inside of an allocation that lives until all operations on it are done; conflicting operations were made to come before.
        // Elements begin at multiples of their size, those of 8 bytes so at multiples of 4.
        let filled = unsafe {
            match pattern {
                Pattern::Word(word) => ffi::memory::fill(self.raw(), at, word, count),
                Pattern::Halves([low, high]) => ffi::memory::fill_strided(self.raw(), at, 8, low, count)
                    .and_then(|()| ffi::memory::fill_strided(self.raw(), at + 4, 8, high, count)),
            }
        };
        self.context().guard(filled)
    }
}

/// A value as the driver fills memory with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    Word(Word),
    /// 8 bytes, in the order of memory: in two goes.
    Halves([u32; 2]),
}

impl Pattern {
    pub(crate) fn of<T: Pod>(value: &T) -> Result<Pattern, CudaError> {
        match *bytemuck::bytes_of(value) {
            [byte] => Ok(Pattern::Word(Word::Byte(byte))),
            [a, b] => Ok(Pattern::Word(Word::Half(u16::from_ne_bytes([a, b])))),
            [a, b, c, d] => Ok(Pattern::Word(Word::Whole(u32::from_ne_bytes([a, b, c, d])))),
            [a, b, c, d, e, f, g, h] => {
                Ok(Pattern::Halves([[a, b, c, d], [e, f, g, h]].map(u32::from_ne_bytes)))
            }
            ref other => Err(CudaError::Length {
                what: "the bytes of the value to fill with",
                found: other.len(),
                expected: 8,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_words_in_the_order_of_memory() {
        assert_eq!(Pattern::of(&7u8), Ok(Pattern::Word(Word::Byte(7))));
        assert_eq!(Pattern::of(&-1i16), Ok(Pattern::Word(Word::Half(0xffff))));
        assert_eq!(Pattern::of(&1.0f32), Ok(Pattern::Word(Word::Whole(0x3f80_0000))));
        let two = [1u32, 2];
        assert_eq!(Pattern::of(&two), Ok(Pattern::Halves(two)));
        assert!(Pattern::of(&[0u8; 3]).is_err_and(|error| error.to_string().contains("found 3 elements")));
    }
}
