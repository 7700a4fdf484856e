//! Code on a device: PTX or cubin, the modules they become, and their kernels.
//!
//! PTX is compiled to a cubin by the driver's linker, once; the [cache on disk](crate::DiskCache) keeps it. A cubin is loaded as it is.

mod kernel;
mod load;

use std::borrow::Cow;
use std::ffi::CString;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytemuck::Pod;
use tilewright_ptx::Signature;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::memory::Buffer;
use crate::memory::allocation::{Allocation, Home};

pub use kernel::{Kernel, KernelAttributes};

/// What can be loaded: PTX text or a cubin, ours or anybody's, with the wishes of whoever loads it.
///
/// ```
/// use tilewright_cuda::Code;
/// let code = Code::ptx(".version 7.0 …").max_registers(128);
/// let image = Code::cubin(&[0x7f, b'E', b'L', b'F']);
/// # let _ = (code, image);
/// ```
#[derive(Clone, Debug)]
pub struct Code<'a> {
    image: Image<'a>,
    signatures: Option<Cow<'a, [Signature]>>,
    options: ffi::module::LinkOptions,
    cached: bool,
    whole: bool,
}

#[derive(Clone, Copy, Debug)]
enum Image<'a> {
    Ptx(&'a str),
    Cubin(&'a [u8]),
}

impl<'a> Code<'a> {
    /// PTX text.
    #[must_use]
    pub fn ptx(text: &'a str) -> Code<'a> {
        Code::new(Image::Ptx(text))
    }

    /// A cubin: machine code for one kind of device.
    #[must_use]
    pub fn cubin(image: &'a [u8]) -> Code<'a> {
        Code::new(Image::Cubin(image))
    }

    fn new(image: Image<'a>) -> Code<'a> {
        Code {
            image,
            signatures: None,
            options: ffi::module::LinkOptions::default(),
            cached: true,
            whole: false,
        }
    }

    /// With what is known of its kernels. PTX says it itself; of a cubin, the driver knows the sizes of the parameters only.
    #[must_use]
    pub fn with_signatures(self, signatures: impl Into<Cow<'a, [Signature]>>) -> Code<'a> {
        Code { signatures: Some(signatures.into()), ..self }
    }

    /// Compiled to use at most so many registers a thread.
    #[must_use]
    pub fn max_registers(mut self, registers: u32) -> Code<'a> {
        self.options.max_registers = Some(registers);
        self
    }

    /// Compiled with this much effort, 0 to 4; 4 unless said otherwise.
    #[must_use]
    pub fn optimisation(mut self, level: u32) -> Code<'a> {
        self.options.optimisation = Some(level.min(4));
        self
    }

    /// Compiled so that tools can tell the line of source.
    #[must_use]
    pub fn line_info(mut self) -> Code<'a> {
        self.options.line_info = true;
        self
    }

    /// Compiled by the driver as one whole, as it compiles PTX that it loads, instead of by its linker. The code can be better, because all
    /// addresses are known; but it cannot be kept in the cache on disk, and is compiled at every start (unless the driver's own cache has
    /// it). What the linker would compile wrongly is compiled like that by itself.
    #[must_use]
    pub fn as_a_whole(self) -> Code<'a> {
        Code { whole: true, ..self }
    }

    /// Neither looked for in the cache on disk nor put there.
    #[must_use]
    pub fn without_cache(self) -> Code<'a> {
        Code { cached: false, ..self }
    }
}

/// Where the machine code of a module came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It was given.
    Given,
    /// The driver compiled it, in that time.
    Compiled(Duration),
    /// It was in the cache on disk.
    Disk,
}

/// Loaded code. Clones are the same; it is unloaded when its last kernel, and graph with one of its kernels, is gone.
#[derive(Clone, Debug)]
pub struct Module {
    loaded: Arc<Loaded>,
    /// Other names of kernels, and what they are in the code.
    names: Arc<[(String, String)]>,
}

pub(crate) struct Loaded {
    context: Context,
    raw: ffi::module::Module,
    signatures: Vec<Signature>,
    origin: Origin,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.signatures.iter().map(|kernel| kernel.name.as_str()).collect();
        write!(f, "Module({})", names.join(", "))
    }
}

impl Module {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.loaded.context
    }

    /// Where its machine code came from.
    pub fn origin(&self) -> Origin {
        self.loaded.origin
    }

    /// What is known of its kernels. Empty for a cubin without signatures on a driver before CUDA 12.4.
    pub fn signatures(&self) -> &[Signature] {
        &self.loaded.signatures
    }

    /// A kernel by name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn kernel(&self, name: &str) -> Result<Kernel, CudaError> {
        let other = self.names.iter().find(|(other, _)| other == name);
        Kernel::new(&self.loaded, other.map_or(name, |(_, name)| name))
    }

    fn new(loaded: Loaded) -> Module {
        Module { loaded: Arc::new(loaded), names: Arc::default() }
    }

    /// With other names for kernels.
    #[cfg(feature = "nvrtc")]
    pub(crate) fn with_names(self, names: Vec<(String, String)>) -> Module {
        Module { names: names.into(), ..self }
    }

    /// The only kernel.
    ///
    /// # Errors
    /// If there are none, or several.
    pub fn only_kernel(&self) -> Result<Kernel, CudaError> {
        match self.signatures() {
            [only] => self.kernel(&only.name),
            several => Err(CudaError::NoKernel {
                name: "the only one".to_owned(),
                known: several.iter().map(|kernel| kernel.name.clone()).collect(),
            }),
        }
    }

    /// A global variable of the module as memory; it lives as long as what is returned.
    ///
    /// # Errors
    /// If there is none of that name, or its size is no multiple of that of the elements.
    pub fn global<T: Pod>(&self, name: &str) -> Result<Buffer<T>, CudaError> {
        let unknown =
            |found: String, expected: String| CudaError::Global { name: name.to_owned(), found, expected };
        let text = CString::new(name)
            .map_err(|_| unknown("a name with a zero byte".to_owned(), "a name".to_owned()))?;
        let (address, bytes) = match self.context().guard(self.loaded.raw.global(&text)) {
            Err(CudaError::Call { code: 500, .. }) => {
                return Err(unknown(
                    "no variable of that name".to_owned(),
                    "one that the module declares".to_owned(),
                ));
            }
            found => found?,
        };
        let size = size_of::<T>();
        if size == 0 || bytes % size != 0 {
            return Err(unknown(format!("{bytes} bytes"), format!("a multiple of {size} bytes")));
        }
        let owner = Home::Foreign(Some(Box::new(self.clone())));
        Ok(Buffer::over(Allocation::own(self.context(), address, bytes, owner), bytes / size))
    }
}
