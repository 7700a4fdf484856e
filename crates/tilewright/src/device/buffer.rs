//! Arrays and tensors in the memory of a device.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use tilewright_hardware::TensorMapSpec;

use super::bound::alignment;
use super::value::{Map, Memory};
use super::{Device, DeviceError, Item};

/// An array in the memory of a device. Clones are the same memory.
///
/// ```
/// use tilewright::prelude::*;
/// let device = Device::simulator();
/// let x = device.upload(&[1u32, 2, 3])?;
/// let y = device.alloc_zeroed::<u32>(3)?;
/// y.copy_from(&x)?;
/// x.fill(7)?;
/// assert_eq!((x.to_vec()?, y.to_vec()?), (vec![7, 7, 7], vec![1, 2, 3]));
/// x.write(&[4, 5, 6])?;
/// assert_eq!(x.to_vec()?, [4, 5, 6]);
/// # Ok::<(), tilewright::device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Buffer<T> {
    pub(super) memory: Arc<Memory>,
    /// Bytes from the start of the memory.
    pub(super) offset: usize,
    pub(super) len: usize,
    ty: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} elements at {:#x})", self.len, self.memory.address() + self.offset as u64)
    }
}

impl<T: Item> Buffer<T> {
    pub(super) fn over(memory: Memory, len: usize) -> Buffer<T> {
        Buffer::part(Arc::new(memory), 0, len)
    }

    /// Its address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address() + self.offset as u64
    }

    /// Whether it is memory of this device.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        device.owns(&self.memory)
    }

    /// So many elements, which are there, so many bytes into some memory.
    pub(super) fn part(memory: Arc<Memory>, offset: usize, len: usize) -> Buffer<T> {
        Buffer { memory, offset, len, ty: PhantomData }
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.width() as u64
    }

    fn width(&self) -> usize {
        self.len * T::ELEMENT.bytes() as usize
    }

    /// The largest power of two, up to 256, that its address is a multiple of.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        alignment(self.memory.address() + self.offset as u64)
    }

    /// Some of the elements, in the same memory.
    ///
    /// ```
    /// use tilewright::prelude::*;
    /// let x = Device::cpu().upload(&[1u32, 2, 3, 4])?;
    /// let middle = x.slice(1..3)?;
    /// middle.fill(0)?;
    /// assert_eq!(x.to_vec()?, [1, 0, 0, 4]);
    /// let error = x.slice(2..5).unwrap_err();
    /// assert_eq!(error.to_string(), "a slice of a buffer: found elements 2 to 5, expected a range inside of its 4");
    /// # Ok::<(), tilewright::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// If the buffer does not have them.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Buffer<T>, DeviceError> {
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => self.len,
        };
        if start > end || end > self.len {
            return Err(DeviceError::Slice { start, end, len: self.len });
        }
        let offset = self.offset + start * T::ELEMENT.bytes() as usize;
        Ok(Buffer::part(self.memory.clone(), offset, end - start))
    }

    /// The contents, when all that was asked of the device before is done.
    ///
    /// # Errors
    /// If the device cannot be reached, or a kernel before has ended in a fault.
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let bytes = match &*self.memory {
            Memory::Host(memory) => memory.read(self.offset, self.width())?,
            Memory::Gpu(memory) => memory.read(self.offset, self.width())?,
        };
        Ok(T::decode(&bytes))
    }

    /// Replaces the contents, all of them.
    ///
    /// ```
    /// let device = tilewright::device::Device::best();
    /// let buffer = device.alloc::<f32>(2)?;
    /// buffer.write(&[1.0, 2.0])?;
    /// let error = buffer.write(&[1.0]).unwrap_err();
    /// assert_eq!(error.to_string(), "contents of a buffer: found 1 elements, expected 2, as many as the buffer has");
    /// assert_eq!(buffer.to_vec()?, [1.0, 2.0]);
    /// # Ok::<(), tilewright::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// If there are more or fewer elements than the buffer has.
    pub fn write(&self, data: &[T]) -> Result<(), DeviceError> {
        self.expect_len(data.len())?;
        let bytes = T::encode(data);
        match &*self.memory {
            Memory::Host(memory) => Ok(memory.write(self.offset, &bytes)?),
            Memory::Gpu(memory) => memory.write(self.offset, &bytes),
        }
    }

    /// Gives every element this value.
    ///
    /// ```
    /// let device = tilewright::device::Device::best();
    /// let buffer = device.upload(&[1, 2, 3, 4])?;
    /// buffer.slice(1..3)?.fill(0)?;
    /// assert_eq!(buffer.to_vec()?, [1, 0, 0, 4]);
    /// # Ok::<(), tilewright::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// If the device cannot be reached.
    pub fn fill(&self, value: T) -> Result<(), DeviceError> {
        let value = [value];
        let element = T::encode(&value);
        match &*self.memory {
            Memory::Host(memory) => Ok(memory.write(self.offset, &element.repeat(self.len))?),
            Memory::Gpu(memory) => memory.fill(self.offset, self.width(), &element),
        }
    }

    /// Replaces the contents by those of another buffer: on the same device without passing through the host, else through it.
    ///
    /// ```
    /// use tilewright::device::Device;
    ///
    /// let (best, cpu) = (Device::best(), Device::cpu());
    /// let (from, to) = (best.upload(&[1.0f32, 2.0])?, cpu.alloc::<f32>(2)?);
    /// to.copy_from(&from)?;
    /// assert_eq!(to.to_vec()?, [1.0, 2.0]);
    /// # Ok::<(), tilewright::device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// If the other buffer has more or fewer elements.
    pub fn copy_from(&self, from: &Buffer<T>) -> Result<(), DeviceError> {
        self.expect_len(from.len)?;
        match (&*self.memory, &*from.memory) {
            (Memory::Host(to), Memory::Host(source)) if Arc::ptr_eq(to.host(), source.host()) => {
                Ok(to.copy_from(self.offset, source, from.offset, self.width())?)
            }
            (Memory::Gpu(to), Memory::Gpu(source)) if Arc::ptr_eq(to.gpu(), source.gpu()) => {
                to.copy_from(self.offset, source, from.offset, self.width())
            }
            _ => self.write(&from.to_vec()?),
        }
    }

    fn expect_len(&self, found: usize) -> Result<(), DeviceError> {
        if found == self.len { Ok(()) } else { Err(DeviceError::Length { found, expected: self.len }) }
    }
}

/// A tensor in the memory of a device as the copy engine sees it; made by [`Device::tensor_map`](super::Device::tensor_map). It keeps
/// the memory alive.
#[derive(Clone, Debug)]
pub struct TensorMap {
    pub(super) map: Map,
    pub(super) spec: TensorMapSpec,
    pub(super) dims: Vec<u64>,
    pub(super) memory: Arc<Memory>,
}

impl TensorMap {
    /// All but the tensor.
    #[must_use]
    pub fn spec(&self) -> &TensorMapSpec {
        &self.spec
    }

    /// Extents of the tensor, innermost first.
    #[must_use]
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }
}
