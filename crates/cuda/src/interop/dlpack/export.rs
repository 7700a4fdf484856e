//! Memory of ours for others.

use std::any::Any;
use std::sync::Arc;

use super::abi::{
    CUDA, DataType, Description, Element, Form, ManagedTensor, ManagedTensorVersioned, RawDevice, dense,
    hand_out, refused,
};
use crate::error::CudaError;
use crate::memory::allocation::Allocation;
use crate::memory::order::Access;
use crate::memory::{Buffer, Slice};
use crate::stream::Stream;

/// A tensor on its way to another library.
///
/// What was given away whole ([`Export::new`]) is the consumer's alone; what was shared ([`Export::shared`]) both read, and it is marked as
/// read-only.
#[derive(Debug)]
pub struct Export {
    memory: Arc<Allocation>,
    description: Description,
    /// Whether the consumer works on a stream that the memory knows of.
    ordered: bool,
}

/// What the consumer's tensor keeps.
struct Kept {
    memory: Option<Arc<Allocation>>,
    ordered: bool,
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else { return };
        // Nothing is known of what the consumer did with it, so wait for everything. If that is not possible, the memory stays.
        if !self.ordered && memory.context().synchronize().is_err() {
            std::mem::forget(memory);
        }
    }
}

impl Export {
    /// Gives a buffer away as a dense tensor of this shape, the last dimension innermost.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn new<T: Element>(buffer: Buffer<T>, shape: &[usize]) -> Result<Export, CudaError> {
        let export = Export::of(buffer.as_slice(), shape, false);
        // Only the tensor has it from here on.
        drop(buffer);
        export
    }

    /// Shares memory, to be read by the consumer, as a dense tensor of this shape, the last dimension innermost. Who writes it afterwards
    /// must see to the order.
    ///
    /// # Errors
    /// If the shape has another number of elements.
    pub fn shared<'a, T: Element>(
        memory: impl Into<Slice<'a, T>>,
        shape: &[usize],
    ) -> Result<Export, CudaError> {
        Export::of(memory.into(), shape, true)
    }

    fn of<T: Element>(slice: Slice<'_, T>, shape: &[usize], read_only: bool) -> Result<Export, CudaError> {
        let elements = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
        if elements != Some(slice.len()) {
            return Err(refused(
                "the shape of a tensor",
                format!("{shape:?}"),
                format!("one of {} elements", slice.len()),
            ));
        }
        if slice.memory().is_everywhere() {
            return Err(refused(
                "memory for another library",
                "memory that the host sees too".to_owned(),
                "memory of a device".to_owned(),
            ));
        }
        let id = i32::try_from(slice.context().ordinal()).unwrap_or(i32::MAX);
        Ok(Export {
            memory: slice.memory().clone(),
            description: Description {
                address: slice.address(),
                device: RawDevice { kind: CUDA, id },
                data_type: T::DATA_TYPE,
                shape: shape.to_vec(),
                strides: dense(shape),
                read_only,
            },
            ordered: false,
        })
    }

    /// Says what the elements are, for those that Rust has no type for, such as [`DataType::FLOAT8_E4M3FN`].
    ///
    /// # Errors
    /// If elements of that type have another size.
    pub fn with_type(mut self, data_type: DataType) -> Result<Export, CudaError> {
        if data_type.bytes() != self.description.data_type.bytes() {
            return Err(refused(
                "the type of the elements",
                data_type.to_string(),
                format!("one of as many bits as {}", self.description.data_type),
            ));
        }
        self.description.data_type = data_type;
        Ok(self)
    }

    /// Other strides, in elements.
    ///
    /// # Errors
    /// If there are not as many as dimensions, or they lead outside of the memory.
    pub fn with_strides(mut self, strides: &[usize]) -> Result<Export, CudaError> {
        let room = self.description.bytes();
        self.description.strides = strides.to_vec();
        let fits = strides.len() == self.description.shape.len()
            && self.description.bytes().is_some_and(|bytes| Some(bytes) <= room);
        if fits {
            return Ok(self);
        }
        Err(refused(
            "the strides of a tensor",
            format!("{strides:?}"),
            format!("{} that stay inside of the memory", self.description.shape.len()),
        ))
    }

    /// The consumer works on this stream: it is made to wait for all pending operations on the memory, and the memory is freed after what
    /// is on the stream when the consumer lets go.
    ///
    /// # Errors
    /// If the stream is another device's, or the driver refuses.
    pub fn for_stream(mut self, stream: &Stream) -> Result<Export, CudaError> {
        self.memory.context().expect("the stream", stream.context())?;
        let turn = stream.turn();
        turn.expect_live("handing memory over")?;
        self.memory.before(&turn, Access::Write)?;
        drop(turn);
        self.ordered = true;
        Ok(self)
    }

    /// The tensor in the form of DLPack 1. The consumer must call its deleter, once, on any thread.
    ///
    /// # Errors
    /// If an operation on the memory failed, which is waited for unless [`Export::for_stream`] was used.
    pub fn into_raw(self) -> Result<*mut ManagedTensorVersioned, CudaError> {
        self.hand_out()
    }

    /// The tensor in the form before DLPack 1. The consumer must call its deleter, once, on any thread. This form cannot say that memory
    /// is read-only.
    ///
    /// # Errors
    /// If the memory is shared, or as [`Export::into_raw`].
    pub fn into_raw_unversioned(self) -> Result<*mut ManagedTensor, CudaError> {
        if self.description.read_only {
            return Err(refused(
                "a tensor in the form before DLPack 1",
                "shared memory".to_owned(),
                "memory that is given away: this form cannot say that memory is read-only".to_owned(),
            ));
        }
        self.hand_out()
    }

    fn hand_out<F: Form>(self) -> Result<*mut F, CudaError> {
        if !self.ordered {
            self.memory.order().streams().iter().try_for_each(Stream::finish)?;
        }
        let kept: Box<dyn Any + Send> = Box::new(Kept { memory: Some(self.memory), ordered: self.ordered });
        hand_out(&self.description, kept)
    }
}
