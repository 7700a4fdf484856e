//! The library's own operators as a subject: called as its users call them.

use std::any::Any;

use tilewright::device::{Buffer, Device, DeviceError, DynBuffer, Item};
use tilewright::hardware::Element;
use tilewright::lang::{E4m3, bf16, f16};
use tilewright::ops::{Error, Rows};

use super::super::super::Failure;
use super::super::timing::{Contestant, broken};
use super::case::{Case, Tensor};
use super::memory::Memory;
use super::subject::Subject;
use super::table::Function;

/// The operators of [`tilewright::ops`].
pub(super) struct Library;

impl Subject for Library {
    fn name(&self, _: &Device, _: &Case) -> String {
        "library".to_owned()
    }

    /// Nothing if the library does not have it on this device, which the first call says.
    fn prepare<'a>(
        &'a self,
        device: &Device,
        case: &'a Case,
        memory: &'a Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure> {
        let Some([f32, f16, bf16]) = case.op.calls else { return Ok(None) };
        let function = match case.element {
            Element::F16 => f16,
            Element::BF16 => bf16,
            _ => f32,
        };
        let tensors = case.tensors();
        let operands = |copy| {
            let buffers = memory.inputs(copy).iter().chain(memory.outputs(copy));
            buffers.zip(&tensors).map(|(buffer, tensor)| Operand::new(buffer, tensor)).collect()
        };
        let copies = (0..memory.copies()).map(operands).collect::<Result<_, _>>().map_err(broken)?;
        let calls = Calls { device: device.clone(), case, function, copies };
        match calls.call(0) {
            Ok(()) => Ok(Some(Box::new(calls))),
            Err(Error::NoKernel { .. }) => Ok(None),
            Err(error) => Err(Failure::Machine(error.to_string())),
        }
    }
}

/// An operator, with everything that its calls need.
struct Calls<'a> {
    device: Device,
    case: &'a Case,
    function: Function,
    /// The arrays of each copy.
    copies: Vec<Vec<Operand>>,
}

impl Calls<'_> {
    fn call(&self, copy: usize) -> Result<(), Error> {
        let operands = &self.copies[copy % self.copies.len()];
        (self.function)(&Call { device: &self.device, case: self.case, operands })
    }
}

impl Contestant for Calls<'_> {
    fn launch(&self, copy: usize) -> Result<(), Failure> {
        self.call(copy).map_err(|error| Failure::Machine(error.to_string()))
    }
}

/// What one call works on.
pub(super) struct Call<'a> {
    pub(super) device: &'a Device,
    pub(super) case: &'a Case,
    operands: &'a [Operand],
}

impl<'a> Call<'a> {
    /// An array, by its place in the [list](super::table::Op::tensors) of all.
    pub(super) fn rows<T: Item>(&self, place: usize) -> Result<Rows<'a, T>, Error> {
        let (buffer, operand) = self.operand(place)?;
        Ok(Rows::new(buffer, operand.rows, operand.columns))
    }

    /// The same, for what takes no rows.
    pub(super) fn buffer<T: Item>(&self, place: usize) -> Result<&'a Buffer<T>, Error> {
        Ok(self.operand(place)?.0)
    }

    fn operand<T: Item>(&self, place: usize) -> Result<(&'a Buffer<T>, &'a Operand), Error> {
        let operand = self.operands.get(place);
        let buffer = operand.and_then(|operand| operand.buffer.downcast_ref::<Buffer<T>>());
        buffer.zip(operand).ok_or_else(|| {
            let expected = operand.map_or(T::ELEMENT, |operand| operand.element);
            DeviceError::Element { found: T::ELEMENT, expected }.into()
        })
    }
}

/// An array, in a buffer of its own type: what it takes to find that out is no part of a call.
struct Operand {
    buffer: Box<dyn Any>,
    element: Element,
    rows: usize,
    columns: usize,
}

impl Operand {
    fn new(buffer: &Buffer<u8>, tensor: &Tensor) -> Result<Operand, DeviceError> {
        fn typed<T: Item>(buffer: &DynBuffer) -> Result<Box<dyn Any>, DeviceError> {
            Ok(Box::new(buffer.typed::<T>()?))
        }
        let bytes = DynBuffer::from(buffer).reinterpreted(tensor.element);
        let buffer = match tensor.element {
            Element::F16 => typed::<f16>(&bytes),
            Element::BF16 => typed::<bf16>(&bytes),
            Element::E4M3 => typed::<E4m3>(&bytes),
            Element::I8 => typed::<i8>(&bytes),
            Element::I32 => typed::<i32>(&bytes),
            Element::U32 => typed::<u32>(&bytes),
            Element::Bool => typed::<bool>(&bytes),
            _ => typed::<f32>(&bytes),
        }?;
        let (rows, columns) = (tensor.rows as usize, tensor.columns as usize);
        Ok(Operand { buffer, element: tensor.element, rows, columns })
    }
}
