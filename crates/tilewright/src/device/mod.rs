//! Devices: memory, modules and launches under names that do not depend on where a kernel runs.
//!
//! Today there is one device, the [simulator](crate::sim), which needs no GPU and checks what it runs. The names are those that a GPU
//! will have: everything that can fail there returns a `Result` here.
//!
//! ```
//! use tilewright::prelude::*;
//!
//! /// out = a * x + y
//! #[kernel(threads = 256)]
//! fn axpy(a: Val<f32>, x: Global<f32>, y: Global<f32>, out: Global<f32>, n: Val<u32>) {
//!     let i = block_id(0) * 256 + thread_id(0);
//!     if i < n {
//!         out.at(i).store(a.mul_add(x.at(i).load(), y.at(i).load()));
//!     }
//! }
//!
//! let device = Device::simulator();
//! let axpy = device.compile(&axpy::stage()?)?;
//! let (x, y) = (device.upload(&[1.0f32; 1000])?, device.upload(&[0.5f32; 1000])?);
//! let out = device.alloc::<f32>(1000)?;
//! // Block, cluster and shared memory are the kernel's own: only the grid is given.
//! axpy.launch(4, &[&2.0f32, &x, &y, &out, &1000u32])?.expect_clean()?;
//! assert_eq!(out.to_vec()?, [2.5; 1000]);
//!
//! // Arguments are held against what the author wrote.
//! let error = axpy.launch(4, &[&2.0f64, &x, &y, &out, &1000u32]).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "argument 1 of kernel `axpy` (parameter `a`): found a number of type f64, expected a number of type f32"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! PTX text of any origin is loaded the same way; what it does not say (the block, dynamic shared memory) is given:
//!
//! ```
//! use tilewright::prelude::*;
//!
//! let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
//!     .visible .entry mark(.param .u64 out)\n{\n\
//!     .reg .b64 %rd<4>;\n.reg .b32 %r<2>;\n\
//!     ld.param.u64 %rd1, [out];\ncvta.to.global.u64 %rd1, %rd1;\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd2, %r1, 4;\n\
//!     add.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r1;\nret;\n}\n";
//! let device = Device::simulator();
//! let out = device.alloc::<u32>(4)?;
//! device.load(text)?.kernel("mark")?.with_block(4).launch(1, &[&out])?.expect_clean()?;
//! assert_eq!(out.to_vec()?, [0, 1, 2, 3]);
//! # Ok::<(), tilewright::device::DeviceError>(())
//! ```
//!
//! # Contract
//!
//! * A kernel of this compiler is launched with its own block, cluster and shared memory; its arguments are checked by number and
//!   type. [`Device::compile`] and [`Device::compile_with`] know what pointers lead to and which boxes tensor maps must have.
//!   [`Device::load`] of a [`Build`](crate::compiler::Build) tells buffers, maps and numbers apart, and numbers by type, but not what
//!   pointers lead to; PTX text says the sizes of its parameters and no more.
//! * Memory lives as long as its [`Buffer`] or a [`TensorMap`] over it. It belongs to one device; an argument from another is refused.
//! * A launch returns when the kernel has ended. What the kernel does wrong is in the [`Report`], and becomes an error only
//!   with [`Report::expect_clean`].
//! * A device may be shared by threads; launches run one after the other.

mod error;
mod kernel;
mod value;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tilewright_compiler::Compiler;
use tilewright_hardware::{Arch, TensorMapSpec};
use tilewright_sim::tensor::tensor_map::{Access, DataType, Spec};
use tilewright_sim::{Simulator, TensorMap as SimulatedMap};

pub use error::DeviceError;
pub use kernel::{Code, Dim3, Kernel, Module, Report};
pub use tilewright_sim::Options;
use value::Memory;
pub use value::{Argument, Item};

/// Something that runs kernels. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    simulator: Arc<Mutex<Simulator>>,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("simulator", self.lock().options()).finish()
    }
}

impl Device {
    /// A simulator with all checks on.
    #[must_use]
    pub fn simulator() -> Device {
        Device::simulator_with(Options::default())
    }

    /// A simulator that runs in a certain way: with a seed, without checks, with counts.
    ///
    /// ```
    /// use tilewright::device::{Device, Options};
    /// let device = Device::simulator_with(Options { seed: 7, count: true, ..Options::default() });
    /// # let _ = device;
    /// ```
    #[must_use]
    pub fn simulator_with(options: Options) -> Device {
        Device { simulator: Arc::new(Mutex::new(Simulator::new(options))) }
    }

    /// The chip that [`compile`](Device::compile) compiles for. The simulator stands for a Hopper.
    #[must_use]
    pub fn arch(&self) -> Arch {
        Arch::SM_90A
    }

    /// New memory with these contents.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn upload<T: Item>(&self, data: &[T]) -> Result<Buffer<T>, DeviceError> {
        let mut bytes = Vec::with_capacity(data.len() * T::ELEMENT.bytes() as usize);
        data.iter().for_each(|&item| value::write(item, &mut bytes));
        let memory = self.lock().upload(&bytes);
        Ok(self.buffer(memory, data.len()))
    }

    /// New memory for so many elements, which nobody has written yet. The simulator reports whoever reads them first.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn alloc<T: Item>(&self, len: usize) -> Result<Buffer<T>, DeviceError> {
        let fits = |bytes: &usize| Vec::<u8>::new().try_reserve_exact(*bytes).is_ok();
        let bytes = len.checked_mul(T::ELEMENT.bytes() as usize).filter(fits);
        let bytes = bytes.ok_or(DeviceError::Memory { len, element: T::ELEMENT })?;
        let memory = self.lock().alloc(bytes);
        Ok(self.buffer(memory, len))
    }

    /// The contents of memory of this device; the same as [`Buffer::to_vec`].
    ///
    /// # Errors
    /// If the memory belongs to another device.
    pub fn download<T: Item>(&self, buffer: &Buffer<T>) -> Result<Vec<T>, DeviceError> {
        if !self.owns(&buffer.memory) {
            return Err(DeviceError::OtherDevice);
        }
        buffer.to_vec()
    }

    /// Loads code: a [`Build`](crate::compiler::Build), a [`Compiled`](crate::codegen::Compiled) kernel, or PTX text.
    ///
    /// # Errors
    /// If the text is no PTX, or uses what the device does not have.
    pub fn load<C: Code + ?Sized>(&self, code: &C) -> Result<Module, DeviceError> {
        Module::load(self, code)
    }

    /// Compiles a staged kernel for this device and loads it. Reports name lines of the Rust source.
    ///
    /// # Errors
    /// If the chip cannot do what the kernel asks for.
    pub fn compile(&self, kernel: &tilewright_lang::Kernel) -> Result<Kernel, DeviceError> {
        self.compile_with(kernel, Compiler::new(self.arch()).line_info(true))
    }

    /// The same with a compiler of your own: for another chip, without passes.
    ///
    /// # Errors
    /// If the chip cannot do what the kernel asks for.
    pub fn compile_with(
        &self,
        kernel: &tilewright_lang::Kernel,
        compiler: Compiler,
    ) -> Result<Kernel, DeviceError> {
        let build = compiler.compile(kernel.func())?;
        Kernel::staged(self, kernel, &build.code)
    }

    /// A tensor map over a buffer: `dims` are the extents of the tensor in elements, *innermost first*, without gaps between rows.
    /// The specification is the kernel's own ([`lang::Kernel::tensor_map`](crate::lang::Kernel::tensor_map)), or made by hand.
    ///
    /// ```
    /// use tilewright::hardware::{Element, SwizzleMode, TensorMapSpec};
    /// use tilewright::prelude::*;
    ///
    /// let device = Device::simulator();
    /// let x = device.upload(&[0.0f32; 64 * 32])?;
    /// let spec = TensorMapSpec::new(Element::F32, &[32, 64], SwizzleMode::B128)?;
    /// let map = device.tensor_map(&spec, &x, &[32, 64])?;
    /// assert_eq!(map.dims(), [32, 64]);
    ///
    /// let error = device.tensor_map(&spec, &x, &[32, 65]).unwrap_err();
    /// assert!(error.to_string().contains("needs 8320 bytes, but the buffer has 8192"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the copy engine cannot address such a tensor, or the buffer has another type or is too small.
    pub fn tensor_map<T: Item>(
        &self,
        spec: &TensorMapSpec,
        buffer: &Buffer<T>,
        dims: &[u64],
    ) -> Result<TensorMap, DeviceError> {
        if !self.owns(&buffer.memory) {
            return Err(DeviceError::OtherDevice);
        }
        if spec.element() != T::ELEMENT {
            return Err(DeviceError::MapElement { found: T::ELEMENT, expected: spec.element() });
        }
        let width = u64::from(spec.element().bytes());
        let needed = dims.iter().try_fold(width, |bytes, &extent| bytes.checked_mul(extent));
        let found = buffer.bytes();
        match needed {
            Some(needed) if needed <= found => {}
            _ => return Err(DeviceError::MapBounds { dims: dims.to_vec(), needed, found }),
        }
        let map = simulated_map(spec, buffer.memory.place.address(), dims)?;
        Ok(TensorMap { map, spec: spec.clone(), dims: dims.to_vec(), memory: buffer.memory.clone() })
    }

    fn buffer<T>(&self, place: tilewright_sim::Buffer, len: usize) -> Buffer<T> {
        let memory = Arc::new(Memory { device: self.clone(), place });
        Buffer { memory, len, ty: PhantomData }
    }

    fn owns(&self, memory: &Memory) -> bool {
        Arc::ptr_eq(&self.simulator, &memory.device.simulator)
    }

    fn lock(&self) -> MutexGuard<'_, Simulator> {
        // A panic elsewhere leaves the memory as it was.
        self.simulator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tensor map as the simulator takes it, for those who use [`sim`](crate::sim) without a [`Device`]: extents innermost first, without
/// gaps.
///
/// # Errors
/// If the copy engine cannot address such a tensor.
pub fn simulated_map(spec: &TensorMapSpec, address: u64, dims: &[u64]) -> Result<SimulatedMap, DeviceError> {
    let mut strides = Vec::new();
    let mut stride = u64::from(spec.element().bytes());
    for extent in dims.iter().take(dims.len().saturating_sub(1)) {
        stride = stride.saturating_mul(*extent);
        strides.push(stride);
    }
    spec.check_tensor(address, dims, &strides)?;
    let mut extents = [1; 5];
    extents.iter_mut().zip(spec.box_dims()).for_each(|(extent, given)| *extent = *given);
    let data_type = DataType::from_driver(spec.data_type()).map_err(tilewright_sim::SimError::from)?;
    let whole = Spec {
        data_type,
        address,
        dims,
        strides: &strides,
        access: Access::Tile { extents },
        element_strides: spec.element_strides(),
        interleave: 0,
        swizzle: spec.swizzle(),
        fill: spec.oob_fill(),
    };
    Ok(SimulatedMap::new(&whole).map_err(tilewright_sim::SimError::from)?)
}

/// An array in the memory of a device. Clones are the same memory.
#[derive(Clone)]
pub struct Buffer<T> {
    memory: Arc<Memory>,
    len: usize,
    ty: PhantomData<fn() -> T>,
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} elements at {:#x})", self.len, self.memory.place.address())
    }
}

impl<T: Item> Buffer<T> {
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
        self.memory.place.bytes() as u64
    }

    /// The contents.
    ///
    /// # Errors
    /// If the device cannot be reached.
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let bytes = self.memory.device.lock().read(self.memory.place)?;
        Ok(bytes.chunks_exact(T::ELEMENT.bytes() as usize).map(value::read).collect())
    }
}

/// A tensor in the memory of a device as the copy engine sees it; made by [`Device::tensor_map`]. It keeps the memory alive.
#[derive(Clone, Debug)]
pub struct TensorMap {
    map: SimulatedMap,
    spec: TensorMapSpec,
    dims: Vec<u64>,
    memory: Arc<Memory>,
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
