//! Work that another library (cuBLAS, cuDNN, NCCL) enqueues on a stream of this crate, on memory of this crate.

use crate::error::CudaError;
use crate::ffi::sys::CUstream;
use crate::launch::Arg;
use crate::memory::order::Access;
use crate::stream::Stream;

impl Stream {
    /// Lets `work` call a library that enqueues on this stream, with the context bound to the thread. What it enqueues comes after
    /// conflicting operations on the memory, of whatever stream, and those that follow come after it; the memory lives until it is done.
    /// On a stream that is being captured it becomes part of the graph, which keeps the memory.
    ///
    /// Memory to read is given as `&Buffer` or [`Slice`](crate::Slice), memory to write as `&mut Buffer` or [`SliceMut`](crate::SliceMut);
    /// other arguments mean nothing here.
    ///
    /// ```no_run
    /// # use tilewright_cuda::{Context, CudaError};
    /// let stream = Context::new(0)?.stream()?;
    /// let (x, mut y) = (stream.upload(&[1.0f32; 8])?, stream.alloc::<f32>(8)?);
    /// let (from, to) = (x.address(), y.address());
    /// // SAFETY: reads `x`, writes `y`, on that stream.
    /// unsafe {
    ///     stream.enqueue_foreign(&[(&x).into(), (&mut y).into()], |stream| {
    ///         // some_library_copy(to, from, 8, stream)
    ///         # let _ = (to, from, stream);
    ///         Ok::<(), CudaError>(())
    ///     })?;
    /// }
    /// # Ok::<(), CudaError>(())
    /// ```
    ///
    /// # Safety
    /// What `work` enqueues goes to this stream, reads no memory but that of the arguments and what the library itself owns, and writes
    /// none but that of the writable ones. `work` calls nothing of this crate that uses this stream.
    ///
    /// # Errors
    /// What `work` returns; or if the memory is another device's, or the driver refuses.
    #[allow(unsafe_code)]
    pub unsafe fn enqueue_foreign<R, E: From<CudaError>>(
        &self,
        memory: &[Arg<'_>],
        work: impl FnOnce(CUstream) -> Result<R, E>,
    ) -> Result<R, E> {
        let turn = self.turn();
        for argument in memory {
            let Some(memory) = argument.memory() else { continue };
            if !memory.is_everywhere() {
                self.context().expect("memory for another library", memory.context())?;
            }
            let access = if argument.is_writable() { Access::Write } else { Access::Read };
            memory.before(&turn, access)?;
        }
        self.context().make_current()?;
        work(self.raw_handle())
    }
}
