//! Launches whose arguments are found by the names of parameters, and prepared once for many runs.
//!
//! Operators that choose among many kernels do not know the order of each one's parameters. They say what each name gets; numbers take
//! the type that the parameter has, and tensor maps the box that the kernel needs.

use std::fmt;
use std::sync::{Arc, Weak};

use tilewright_hardware::{Element, TensorMapSpec};

use super::kernel::Needs;
use super::value::{Map, Memory, Number, Passed};
use super::{Buffer, Device, DeviceError, Dim3, Item, Kernel, Report};

/// A buffer whose type of elements is a value. Clones are the same memory.
///
/// ```
/// use tilewright::device::{Device, DynBuffer};
/// let buffer = DynBuffer::from(&Device::cpu().upload(&[1.0f32, 2.0])?);
/// assert_eq!(buffer.to_vec::<f32>()?, [1.0, 2.0]);
/// let error = buffer.to_vec::<f64>().unwrap_err();
/// assert_eq!(error.to_string(), "a buffer of f32: found f64 asked for, expected f32");
/// # Ok::<(), tilewright::device::DeviceError>(())
/// ```
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

impl From<&DynBuffer> for DynBuffer {
    fn from(buffer: &DynBuffer) -> DynBuffer {
        buffer.clone()
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

    /// The same bytes as elements of another type.
    ///
    /// ```
    /// use tilewright::device::{Device, DynBuffer};
    /// use tilewright::hardware::Element;
    /// let bytes = DynBuffer::from(&Device::cpu().upload(&1.5f32.to_le_bytes())?);
    /// assert_eq!(bytes.reinterpreted(Element::F32).to_vec::<f32>()?, [1.5]);
    /// # Ok::<(), tilewright::device::DeviceError>(())
    /// ```
    #[must_use]
    pub fn reinterpreted(&self, element: Element) -> DynBuffer {
        DynBuffer { element, ..self.clone() }
    }

    /// What it is in, where it starts there, and its bytes.
    pub(super) fn place(&self) -> (&Memory, usize, usize) {
        (&self.memory, self.offset, usize::try_from(self.bytes).unwrap_or(usize::MAX))
    }

    /// Its address on the device.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address() + self.offset as u64
    }

    /// The largest power of two, up to 256, that its address is a multiple of.
    #[must_use]
    pub fn alignment(&self) -> u32 {
        alignment(self.address())
    }

    /// Whether it is memory of this device.
    #[must_use]
    pub fn is_on(&self, device: &Device) -> bool {
        device.owns(&self.memory)
    }

    /// The same memory with a type that the compiler knows.
    ///
    /// # Errors
    /// If its elements are of another type; f32 and tf32 are the same in memory.
    pub fn typed<T: Item>(&self) -> Result<Buffer<T>, DeviceError> {
        let in_memory = |element| if element == Element::TF32 { Element::F32 } else { element };
        if in_memory(self.element) != in_memory(T::ELEMENT) {
            return Err(DeviceError::Element { found: T::ELEMENT, expected: self.element });
        }
        let len = usize::try_from(self.bytes).unwrap_or(usize::MAX) / T::ELEMENT.bytes() as usize;
        Ok(Buffer::part(self.memory.clone(), self.offset, len))
    }

    /// The contents, when all that was asked of the device before is done.
    ///
    /// # Errors
    /// If its elements are of another type, or the device cannot be reached.
    pub fn to_vec<T: Item>(&self) -> Result<Vec<T>, DeviceError> {
        self.typed::<T>()?.to_vec()
    }

    /// Which memory it is, without keeping it.
    pub(crate) fn identity(&self) -> Identity {
        let (offset, bytes, element) = (self.offset, self.bytes, self.element);
        Identity { memory: Arc::downgrade(&self.memory), offset, bytes, element }
    }
}

/// The largest power of two, up to 256, that an address is a multiple of.
pub(super) fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}

/// A part of some memory that may be gone by now, and what it holds. Memory that comes later at the same address is not the same.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    memory: Weak<Memory>,
    offset: usize,
    bytes: u64,
    element: Element,
}

impl Identity {
    /// Whether this buffer is what was meant.
    pub(crate) fn is(&self, buffer: &DynBuffer) -> bool {
        (self.offset, self.bytes, self.element) == (buffer.offset, buffer.bytes, buffer.element)
            && std::ptr::eq(self.memory.as_ptr(), Arc::as_ptr(&buffer.memory))
    }

    /// Whether the memory is still there.
    pub(crate) fn lives(&self) -> bool {
        self.memory.strong_count() > 0
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
    /// A tensor so many bytes into a buffer: extents in elements, innermost first, and strides in bytes; and which extent of the box is
    /// smaller than the kernel says.
    Tensor {
        buffer: DynBuffer,
        offset: u64,
        dims: Vec<u64>,
        strides: Vec<u64>,
        shortened: Option<(usize, u32)>,
    },
}

/// An argument that is kept. The memory is not: who wants it to stay holds it.
#[derive(Clone, Debug)]
enum Kept {
    Number(Number),
    Memory(Element, Weak<Memory>, usize),
    Map(Arc<(TensorMapSpec, Map)>, Weak<Memory>),
}

/// A launch with its arguments, whose memory others hold.
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
                    Kept::Memory(element, Arc::downgrade(&buffer.memory), buffer.offset + offset)
                }
                (Needs::Map(Some(spec)), Given::Tensor { buffer, offset, dims, strides, shortened }) => {
                    let left = buffer.bytes.saturating_sub(offset);
                    let start = buffer.offset + usize::try_from(offset).unwrap_or(usize::MAX - buffer.offset);
                    let place = (&buffer.memory, start, left);
                    let own = shortened.map(|(dimension, extent)| spec.clone().shortened(dimension, extent));
                    let own = own.transpose()?;
                    let own = own.as_ref().unwrap_or(spec);
                    let map = kernel.device().map_memory(own, place, &dims, &strides)?;
                    Kept::Map(Arc::new((spec.clone(), map.map)), Arc::downgrade(&buffer.memory))
                }
                (_, other) => return Err(refuse(format!("{other:?}"))),
            };
            arguments.push(kept);
        }
        Ok(BoundLaunch { kernel, grid: grid.into(), arguments })
    }

    /// Launches it.
    pub(crate) fn launch(&self) -> Result<Report, DeviceError> {
        let memory = self.arguments.iter().map(|kept| match kept {
            Kept::Number(_) => Ok(None),
            Kept::Memory(_, memory, _) | Kept::Map(_, memory) => {
                memory.upgrade().map(Some).ok_or(DeviceError::Gone)
            }
        });
        let memory: Vec<Option<Arc<Memory>>> = memory.collect::<Result<_, _>>()?;
        let passed = self.arguments.iter().zip(&memory).filter_map(|(kept, memory)| {
            Some(match kept {
                Kept::Number(number) => Passed::Number(*number),
                Kept::Memory(element, _, offset) => Passed::Buffer(*element, memory.as_ref()?, *offset),
                Kept::Map(map, _) => Passed::Map(&map.0, &map.1, memory.as_ref()?),
            })
        });
        self.kernel.launch_passed(self.grid, &passed.collect::<Vec<_>>())
    }
}
