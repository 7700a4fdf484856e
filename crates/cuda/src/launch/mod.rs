//! Launches, checked against what the kernel is before the driver sees them.

mod argument;
mod check;
mod config;
pub(crate) mod gate;
mod history;

use std::ffi::c_void;

use smallvec::SmallVec;

use crate::code::Kernel;
use crate::error::CudaError;
use crate::ffi;
use crate::memory::order::{Access, enqueueing};
use crate::stream::Stream;

pub use argument::{Arg, Arguments, ByValue};
pub use config::{Dim3, LaunchConfig};
pub(crate) use history::{History, Name, Pending};

/// What a parameter that was left out, because the code never reads it, is given.
pub(crate) static NOTHING: [u64; 512] = [0; 512];

impl Kernel {
    /// Enqueues the kernel.
    ///
    /// Number, size and kind of the arguments are checked against the kernel's parameters, and that memory which it writes is given as
    /// `&mut`; parameters at the end that the code never reads can be left out. Memory that other streams use is waited for. Dynamic
    /// shared memory beyond what the device gives without asking is asked for.
    ///
    /// ```no_run
    /// # use tilewright_cuda::{Code, Context, LaunchConfig};
    /// # let saxpy_ptx = "";
    /// let context = Context::new(0)?;
    /// let stream = context.stream()?;
    /// let x = stream.upload(&[1.0f32; 1000])?;
    /// let mut y = stream.upload(&[2.0f32; 1000])?;
    /// // SAFETY: `saxpy` touches x and y below n only.
    /// let saxpy = unsafe { context.load(&Code::ptx(saxpy_ptx)) }?.kernel("saxpy")?;
    /// saxpy.launch(&stream, &LaunchConfig::cover(1000, 256), (3.0f32, &x, &mut y, 1000u32))?;
    /// # Ok::<(), tilewright_cuda::CudaError>(())
    /// ```
    ///
    /// # Errors
    /// If arguments or shape are not what the kernel can be launched with, or the driver refuses.
    #[inline]
    pub fn launch<'a>(
        &self,
        stream: &Stream,
        config: &LaunchConfig,
        arguments: impl Arguments<'a>,
    ) -> Result<(), CudaError> {
        arguments.with(|arguments| self.launch_with(stream, config, arguments))
    }

    #[allow(unsafe_code)]
    fn launch_with(
        &self,
        stream: &Stream,
        config: &LaunchConfig,
        arguments: &[Arg<'_>],
    ) -> Result<(), CudaError> {
        let context = self.context();
        context.expect("the stream", stream.context())?;
        let shape = self.shape(config)?;
        self.check(arguments)?;
        let turn = stream.turn();
        // A map holds no borrow of its memory.
        let _host_waits = arguments.iter().any(Arg::is_contested_map).then(enqueueing);
        for (argument, access, _) in self.uses(arguments) {
            if let Some(memory) = argument.memory() {
                memory.before(&turn, access)?;
            }
        }
        let mut pointers = self.pointers(arguments);
        // SAFETY: there is a pointer for every parameter, to as many bytes (checked). Memory in the arguments lives until all operations on
        // it are done, and conflicting operations were made to come before; that the kernel stays within is vouched for by who loaded it.
        let launched =
            unsafe { ffi::launch::launch(stream.raw(), self.inner.function, &shape, &mut pointers) };
        match launched {
            Ok(()) => {
                match turn.capture() {
                    None => stream.note_launch(self.inner.history_name, shape.grid, shape.block),
                    Some(capture) => capture.with_resources(|resources| {
                        resources.add_kernel(&self.inner.module, &self.inner.name);
                    }),
                }
                Ok(())
            }
            Err(cause) => Err(self.refused(cause)),
        }
    }

    /// The arguments that the code looks at, with what it does to the memory behind them and their numbers. They were checked.
    #[inline]
    pub(crate) fn uses<'l, 'a>(
        &'l self,
        arguments: &'l [Arg<'a>],
    ) -> impl Iterator<Item = (&'l Arg<'a>, Access, usize)> {
        let accesses = self.inner.gate.accesses();
        arguments
            .iter()
            .zip(accesses)
            .enumerate()
            .filter_map(|(n, (argument, access))| Some((argument, access?, n)))
    }

    /// What the driver takes: a pointer for every parameter, to as many bytes. The arguments were checked, and live as long as this is used.
    #[inline]
    pub(crate) fn pointers(&self, arguments: &[Arg<'_>]) -> SmallVec<[*mut c_void; 16]> {
        let count = self.inner.gate.parameters();
        let nothing = NOTHING.as_ptr().cast_mut().cast::<c_void>();
        let mut pointers = if count <= 16 {
            SmallVec::from_buf_and_len([nothing; 16], count)
        } else {
            SmallVec::from_vec(vec![nothing; count])
        };
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = argument.pointer();
        }
        pointers
    }

    #[cold]
    pub(crate) fn refused(&self, cause: CudaError) -> CudaError {
        match self.context().guard::<()>(Err(cause)) {
            Err(cause) if !cause.is_sticky() => {
                CudaError::Launch { kernel: self.inner.name.clone(), cause: Box::new(cause) }
            }
            Err(fault) => fault,
            Ok(()) => CudaError::MissingSymbol { symbol: "cuLaunchKernel" },
        }
    }
}
