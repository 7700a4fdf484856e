//! Memory of others for us.

use std::sync::Arc;

use super::abi::{
    CUDA, CUDA_MANAGED, DataType, Description, Element, Form, ManagedTensor, ManagedTensorVersioned, refused,
    take,
};
use crate::context::Context;
use crate::error::CudaError;
use crate::memory::allocation::{Allocation, Home};
use crate::memory::order::Access;
use crate::memory::{Rect, RectMut, Shape, Slice, SliceMut};
use crate::stream::Stream;

/// A tensor of another library. It is let go when all operations on it are done, after this and all graphs that use it are dropped.
#[derive(Debug)]
pub struct Tensor {
    memory: Arc<Allocation>,
    description: Description,
}

impl Tensor {
    /// Takes over a tensor in the form of DLPack 1, for the device of the stream. In case of an error it has been let go.
    ///
    /// # Errors
    /// If it is not in memory of that device, or not of elements of whole bytes.
    ///
    /// # Safety
    /// A producer made it and hands it over here. What the producer did with the memory comes before what is enqueued on the stream from
    /// now on, and nobody else uses it out of order. It may be let go on any thread.
    #[allow(unsafe_code)]
    pub unsafe fn from_raw(stream: &Stream, raw: *mut ManagedTensorVersioned) -> Result<Tensor, CudaError> {
        // SAFETY: the caller's.
        unsafe { Tensor::take(stream, raw) }
    }

    /// Takes over a tensor in the form before DLPack 1, for the device of the stream. In case of an error it has been let go.
    ///
    /// # Errors
    /// As [`Tensor::from_raw`].
    ///
    /// # Safety
    /// As for [`Tensor::from_raw`].
    #[allow(unsafe_code)]
    pub unsafe fn from_raw_unversioned(
        stream: &Stream,
        raw: *mut ManagedTensor,
    ) -> Result<Tensor, CudaError> {
        // SAFETY: the caller's.
        unsafe { Tensor::take(stream, raw) }
    }

    /// # Safety
    /// As for [`Tensor::from_raw`].
    #[allow(unsafe_code)]
    unsafe fn take<F: Form>(stream: &Stream, raw: *mut F) -> Result<Tensor, CudaError> {
        let context = stream.context();
        // SAFETY: the caller's.
        let (description, owner) = unsafe { take(raw) }?;
        let turn = stream.turn();
        turn.expect_live("taking memory over")?;
        let bytes = expect_reachable(&description, context.ordinal())?;
        let home = Home::Foreign(Some(Box::new(owner)));
        let memory = if description.device.kind == CUDA_MANAGED {
            Allocation::own_everywhere(context, description.address, bytes, home)
        } else {
            Allocation::own(context, description.address, bytes, home)
        };
        // Other streams wait for this one, which the producer's work precedes.
        memory.before(&turn, Access::Write)?;
        Ok(Tensor { memory, description })
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.description.shape
    }

    /// Elements from one to the next along each dimension.
    pub fn strides(&self) -> &[usize] {
        &self.description.strides
    }

    /// What the elements are.
    pub fn data_type(&self) -> DataType {
        self.description.data_type
    }

    /// Whether elements lie one after another, the last dimension innermost.
    pub fn is_dense(&self) -> bool {
        self.description.is_dense()
    }

    /// Whether the producer asks that it is not written.
    pub fn is_read_only(&self) -> bool {
        self.description.read_only
    }

    /// The context it is used in.
    pub fn context(&self) -> &Context {
        self.memory.context()
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.description.address
    }

    /// All elements of a dense tensor, to be read.
    ///
    /// # Errors
    /// If they are of another type, or the tensor is not dense.
    pub fn as_slice<T: Element>(&self) -> Result<Slice<'_, T>, CudaError> {
        expect_type::<T>(&self.description)?;
        if !self.is_dense() {
            return Err(refused(
                "the strides of a tensor",
                format!("{:?} for the shape {:?}", self.strides(), self.shape()),
                "those of a dense tensor; make it contiguous first".to_owned(),
            ));
        }
        Ok(Slice::over(&self.memory, 0, self.memory.bytes() / size_of::<T>()))
    }

    /// All elements of a dense tensor, to be written.
    ///
    /// # Errors
    /// If they are of another type, or the tensor is not dense or read-only.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<SliceMut<'_, T>, CudaError> {
        self.expect_writable()?;
        Ok(SliceMut::over(self.as_slice()?))
    }

    /// A matrix whose rows may have gaps between them, to be read.
    ///
    /// # Errors
    /// If elements are of another type, or it is no matrix whose rows lie one after another.
    pub fn as_rect<T: Element>(&self) -> Result<Rect<'_, T>, CudaError> {
        expect_type::<T>(&self.description)?;
        Ok(Rect::over(&self.memory, 0, rows(&self.description)?))
    }

    /// A matrix whose rows may have gaps between them, to be written.
    ///
    /// # Errors
    /// If elements are of another type, or it is no matrix whose rows lie one after another, or read-only.
    pub fn as_mut_rect<T: Element>(&mut self) -> Result<RectMut<'_, T>, CudaError> {
        self.expect_writable()?;
        Ok(RectMut::over(self.as_rect()?))
    }

    fn expect_writable(&self) -> Result<(), CudaError> {
        if !self.is_read_only() {
            return Ok(());
        }
        Err(refused(
            "a tensor to write",
            "one that its producer made read-only".to_owned(),
            "another".to_owned(),
        ))
    }
}

/// Bytes of a tensor that the device can reach.
fn expect_reachable(description: &Description, ordinal: u32) -> Result<usize, CudaError> {
    let there = match description.device.kind {
        CUDA => u32::try_from(description.device.id) == Ok(ordinal),
        CUDA_MANAGED => true,
        _ => false,
    };
    if !there {
        return Err(refused(
            "a tensor",
            format!("one in {}", description.device),
            format!("one in CUDA device {ordinal}; copy it there first"),
        ));
    }
    let bytes = description.bytes().unwrap_or(0);
    let element = description.data_type.bytes().unwrap_or(1) as u64;
    if bytes > 0 && (description.address == 0 || !description.address.is_multiple_of(element)) {
        return Err(refused(
            "the address of a tensor",
            format!("{:#x}", description.address),
            format!("a multiple of {element}"),
        ));
    }
    Ok(bytes)
}

fn expect_type<T: Element>(description: &Description) -> Result<(), CudaError> {
    if description.data_type.can_be(T::DATA_TYPE) && description.data_type.bytes() == Some(size_of::<T>()) {
        return Ok(());
    }
    Err(refused("the elements of a tensor", description.data_type.to_string(), T::DATA_TYPE.to_string()))
}

/// A matrix as rows.
fn rows(description: &Description) -> Result<Shape, CudaError> {
    if let ([rows, columns], [stride, inner]) = (&*description.shape, &*description.strides)
        && (*inner == 1 || *columns <= 1)
        && (stride >= columns || *rows <= 1)
        && let Some(element) = description.data_type.bytes()
    {
        return Ok(Shape { rows: *rows, columns: *columns, pitch: stride.max(columns) * element });
    }
    Err(refused(
        "a matrix of rows",
        format!("the shape {:?} with strides {:?}", description.shape, description.strides),
        "two dimensions, the last with stride 1, and rows that do not overlap".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::abi::RawDevice;
    use super::*;

    fn tensor(kind: i32, id: i32) -> Description {
        Description {
            address: 0x7f00_0000_0004,
            device: RawDevice { kind, id },
            data_type: f32::DATA_TYPE,
            shape: vec![4, 3],
            strides: vec![8, 1],
            read_only: false,
        }
    }

    #[test]
    fn only_memory_of_the_device_is_taken() {
        assert_eq!(expect_reachable(&tensor(CUDA, 1), 1), Ok(4 * (3 * 8 + 3)));
        assert_eq!(expect_reachable(&tensor(CUDA_MANAGED, 0), 1), Ok(4 * (3 * 8 + 3)));
        let says = |description: Description, text: &str| {
            let message = expect_reachable(&description, 0).unwrap_err().to_string();
            assert!(message.contains(text), "{message}");
        };
        says(tensor(CUDA, 1), "found one in CUDA device 1, expected one in CUDA device 0");
        says(tensor(1, 0), "found one in memory of the host");
        says(tensor(3, 0), "page-locked memory of the host");
        says(tensor(10, 0), "device 0 of kind 10");
        says(Description { address: 0x7002, ..tensor(CUDA, 0) }, "found 0x7002, expected a multiple of 4");
        says(Description { address: 0, ..tensor(CUDA, 0) }, "found 0x0");
        let empty = Description { address: 0, shape: vec![0], strides: vec![1], ..tensor(CUDA, 0) };
        assert_eq!(expect_reachable(&empty, 0), Ok(0));
    }

    #[test]
    fn matrices_become_rows() {
        assert_eq!(rows(&tensor(CUDA, 0)), Ok(Shape { rows: 4, columns: 3, pitch: 32 }));
        let with = |shape: [usize; 2], strides: [usize; 2]| Description {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            ..tensor(CUDA, 0)
        };
        assert_eq!(rows(&with([1, 5], [0, 1])), Ok(Shape { rows: 1, columns: 5, pitch: 20 }));
        assert!(rows(&with([4, 3], [1, 4])).is_err());
        assert!(rows(&with([4, 3], [0, 1])).is_err());
        assert!(rows(&Description { shape: vec![4], strides: vec![1], ..tensor(CUDA, 0) }).is_err());
    }

    #[test]
    fn types_must_match() {
        assert_eq!(expect_type::<f32>(&tensor(CUDA, 0)), Ok(()));
        let message = expect_type::<i32>(&tensor(CUDA, 0)).unwrap_err().to_string();
        assert_eq!(message, "the elements of a tensor: found float32, expected int32");
        let bytes = Description { data_type: DataType::FLOAT8_E4M3FN, ..tensor(CUDA, 0) };
        assert_eq!(expect_type::<u8>(&bytes), Ok(()));
    }
}
