//! Launches whose arguments are found by the names of parameters, and prepared once for many runs.
//!
//! Operators that choose among many kernels do not know the order of each one's parameters. They say what each name gets; numbers take
//! the type that the parameter has, and tensor maps the box that the kernel needs.

use std::fmt;
use std::sync::Arc;

use tilewright_hardware::Element;

use super::kernel::Needs;
use super::value::{Memory, Number, Passed};
use super::{Buffer, DeviceError, Dim3, Item, Kernel, Report, TensorMap};

/// A buffer whose type of elements is a value.
#[derive(Clone)]
pub struct DynBuffer {
    memory: Arc<Memory>,
    offset: usize,
    bytes: u64,
    element: Element,
}

impl fmt::Debug for DynBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DynBuffer({} bytes of {} at {:#x})", self.bytes, self.element, self.address())
    }
}

impl<T: Item> From<&Buffer<T>> for DynBuffer {
    fn from(buffer: &Buffer<T>) -> DynBuffer {
        let (memory, offset) = (buffer.memory.clone(), buffer.offset);
        DynBuffer { memory, offset, bytes: buffer.bytes(), element: T::ELEMENT }
    }
}

impl DynBuffer {
    /// The type of its elements.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// Bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Its address on the device.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address() + self.offset as u64
    }
}

/// What a parameter gets.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    U32(u32),
    U64(u64),
    /// A number in whatever type the parameter has.
    Number(f64),
    /// An address: so many bytes into a buffer.
    Pointer(DynBuffer, u64),
    /// A tensor so many bytes into a buffer: extents in elements, innermost first, and strides in bytes.
    Tensor {
        buffer: DynBuffer,
        offset: u64,
        dims: Vec<u64>,
        strides: Vec<u64>,
    },
}

/// An argument that is kept.
#[derive(Clone, Debug)]
enum Kept {
    Number(Number),
    Memory(Element, Arc<Memory>, usize),
    Map(TensorMap),
}

/// A launch with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct BoundLaunch {
    kernel: Kernel,
    grid: Dim3,
    arguments: Vec<Kept>,
}

impl BoundLaunch {
    /// Finds an argument for each parameter.
    pub(crate) fn new(
        kernel: Kernel,
        grid: [u32; 3],
        mut given: impl FnMut(&str) -> Option<Given>,
    ) -> Result<BoundLaunch, DeviceError> {
        let mut arguments = Vec::with_capacity(kernel.parameters().len());
        for (number, parameter) in (1..).zip(kernel.parameters()) {
            let refuse = |found: String| DeviceError::Argument {
                kernel: kernel.name().to_owned(),
                number,
                name: parameter.name.clone(),
                found,
                expected: parameter.needs.describe(),
            };
            let Some(value) = given(&parameter.name) else { return Err(refuse("nothing".to_owned())) };
            let kept = match (&parameter.needs, value) {
                (Needs::Number(Element::U32), Given::U32(n)) => Kept::Number(Number::new(n)),
                (Needs::Number(Element::U64), Given::U64(n)) => Kept::Number(Number::new(n)),
                (Needs::Number(element), Given::Number(n)) => {
                    let number = Number::converted(*element, n);
                    Kept::Number(number.ok_or_else(|| refuse(format!("the number {n}")))?)
                }
                (Needs::Buffer(element), Given::Pointer(buffer, offset)) => {
                    let inside = usize::try_from(offset).ok().filter(|_| offset <= buffer.bytes);
                    let offset =
                        inside.ok_or_else(|| refuse(format!("byte {offset} of {}", buffer.bytes)))?;
                    let element = element.unwrap_or(buffer.element);
                    Kept::Memory(element, buffer.memory, buffer.offset + offset)
                }
                (Needs::Map(Some(spec)), Given::Tensor { buffer, offset, dims, strides }) => {
                    let left = buffer.bytes.saturating_sub(offset);
                    let start = buffer.offset + usize::try_from(offset).unwrap_or(usize::MAX - buffer.offset);
                    let place = (&buffer.memory, start, left);
                    Kept::Map(kernel.device().map_memory(spec, place, &dims, &strides)?)
                }
                (_, other) => return Err(refuse(format!("{other:?}"))),
            };
            arguments.push(kept);
        }
        Ok(BoundLaunch { kernel, grid: grid.into(), arguments })
    }

    /// Launches it.
    pub(crate) fn launch(&self) -> Result<Report, DeviceError> {
        let passed: Vec<Passed<'_>> = self
            .arguments
            .iter()
            .map(|kept| match kept {
                Kept::Number(number) => Passed::Number(*number),
                Kept::Memory(element, memory, offset) => Passed::Buffer(*element, memory, *offset),
                Kept::Map(map) => Passed::Map(&map.spec, &map.map, &map.memory),
            })
            .collect();
        self.kernel.launch_passed(self.grid, &passed)
    }
}
