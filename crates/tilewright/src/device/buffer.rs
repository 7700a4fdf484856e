//! Arrays and tensors in the memory of a device.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tilewright_hardware::TensorMapSpec;

use super::value::{self, Map, Memory};
use super::{DeviceError, Item};

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
    pub(super) len: usize,
    ty: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} elements at {:#x})", self.len, self.memory.address())
    }
}

impl<T: Item> Buffer<T> {
    pub(super) fn over(memory: Memory, len: usize) -> Buffer<T> {
        Buffer { memory: Arc::new(memory), len, ty: PhantomData }
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
        self.memory.bytes() as u64
    }

    /// The contents, when all that was asked of the device before is done.
    ///
    /// # Errors
    /// If the device cannot be reached, or a kernel before has ended in a fault.
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let bytes = match &*self.memory {
            Memory::Host(memory) => memory.read()?,
            Memory::Gpu(memory) => memory.read()?,
        };
        Ok(value::decode(&bytes))
    }

    /// Replaces the contents, all of them.
    ///
    /// # Errors
    /// If there are more or fewer elements than the buffer has.
    pub fn write(&self, data: &[T]) -> Result<(), DeviceError> {
        self.expect_len(data.len())?;
        let bytes = value::encode(data);
        match &*self.memory {
            Memory::Host(memory) => Ok(memory.write(&bytes)?),
            Memory::Gpu(memory) => memory.write(&bytes),
        }
    }

    /// Gives every element this value.
    ///
    /// # Errors
    /// If the device cannot be reached.
    pub fn fill(&self, value: T) -> Result<(), DeviceError> {
        let element = value::encode(&[value]);
        match &*self.memory {
            Memory::Host(memory) => Ok(memory.write(&element.repeat(self.len))?),
            Memory::Gpu(memory) => memory.fill(&element),
        }
    }

    /// Replaces the contents by those of another buffer: on the same device without passing through the host, else through it.
    ///
    /// # Errors
    /// If the other buffer has more or fewer elements.
    pub fn copy_from(&self, from: &Buffer<T>) -> Result<(), DeviceError> {
        self.expect_len(from.len)?;
        match (&*self.memory, &*from.memory) {
            (Memory::Host(to), Memory::Host(from)) if Arc::ptr_eq(to.host(), from.host()) => {
                Ok(to.copy_from(from)?)
            }
            (Memory::Gpu(to), Memory::Gpu(from)) if Arc::ptr_eq(to.gpu(), from.gpu()) => to.copy_from(from),
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
