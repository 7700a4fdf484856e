//! Page-locked memory of the host: what devices copy from and to without the host's help, and reach directly.
//!
//! There is no page-locking of memory that is only borrowed: if what holds the borrow were leaked, the memory could go while a device still
//! writes to it. A `Vec` can be given away for the time instead, see [`Pinned::from_vec`].

use std::any::Any;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::memory::allocation::{Allocation, Home, explain};
use crate::memory::buffer::bytes_of;
use crate::memory::host::{Shared, shared_array};

/// An array in page-locked memory of the host.
///
/// Copies between it and a device are asynchronous, and kernels can take it as an argument (over the bus, so for what is read or written
/// once). The host sees it through [`Pinned::read`] and [`Pinned::write`], which wait for what devices do with it.
///
/// ```no_run
/// # use tilewright_cuda::Context;
/// let context = Context::new(0)?;
/// let stream = context.stream()?;
/// let mut staging = context.pinned::<f32>(1 << 20)?;
/// staging.write()?.fill(1.0);
/// let mut device = stream.alloc::<f32>(1 << 20)?;
/// stream.copy(&staging, &mut device)?; // returns at once
/// stream.copy(&device, &mut staging)?;
/// assert!(staging.read()?.iter().all(|value| *value == 1.0)); // waits
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
pub struct Pinned<T> {
    shared: Shared<T>,
}

shared_array!(Pinned);

/// A `Vec` whose memory is page-locked; unlocked and freed on drop. No device may use it then.
struct Locked<T> {
    context: Arc<ffi::context::Context>,
    /// Null when the `Vec` was taken out.
    first: *mut T,
    len: usize,
    capacity: usize,
}

// SAFETY: it owns its elements, which are plain bytes, as a `Vec` does.
#[allow(unsafe_code)]
unsafe impl<T: Pod> Send for Locked<T> {}
// SAFETY: as above; nothing can be done with a reference to it.
#[allow(unsafe_code)]
unsafe impl<T: Pod> Sync for Locked<T> {}

impl<T> Locked<T> {
    /// Takes the `Vec` out, unlocked. What cannot be unlocked is never freed: the driver would go on to use its pages.
    #[allow(unsafe_code)]
    fn unlock(&mut self) -> Result<Vec<T>, CudaError> {
        let first = std::mem::replace(&mut self.first, std::ptr::null_mut());
        // SAFETY: locked once, unlocked once: here; no device uses it.
        unsafe { ffi::memory::unlock_host(&self.context, first.cast::<c_void>()) }?;
        // SAFETY: the parts of the `Vec` that it was made of.
        Ok(unsafe { Vec::from_raw_parts(first, self.len, self.capacity) })
    }
}

impl<T> Drop for Locked<T> {
    fn drop(&mut self) {
        if !self.first.is_null() {
            let _ = self.unlock();
        }
    }
}

impl<T: Pod> Pinned<T> {
    /// Page-locks the memory of a `Vec`. That takes about as long as to write it, so it is for memory that is used again and again;
    /// [`Pinned::into_vec`] gives it back.
    ///
    /// # Errors
    /// If the driver refuses; the `Vec` is dropped then.
    #[allow(unsafe_code)]
    pub fn from_vec(context: &Context, values: Vec<T>) -> Result<Pinned<T>, CudaError> {
        let (len, bytes) = (values.len(), values.len() * size_of::<T>());
        if bytes == 0 {
            return context.pinned(len);
        }
        let mut values = ManuallyDrop::new(values);
        let (first, capacity) = (values.as_mut_ptr(), values.capacity());
        let host = first.expose_provenance();
        // SAFETY: the memory is freed only by `Locked`, after it was unlocked.
        let locked = unsafe { ffi::memory::lock_host(context.raw(), first.cast::<c_void>(), bytes) };
        let address = match locked {
            Ok(address) => address,
            Err(error) => {
                drop(ManuallyDrop::into_inner(values));
                return context.guard(Err(error));
            }
        };
        let owner = Locked { context: context.raw().clone(), first, len, capacity };
        let home = Home::Foreign(Some(Box::new(owner)));
        let memory = Allocation::own_everywhere(context, address, bytes, home);
        // SAFETY: the elements of a `Vec` that nobody else has.
        let shared = unsafe { Shared::new(memory, host, len) }?;
        Ok(Pinned { shared })
    }

    /// The elements as a `Vec`, when all operations on them are done: the one that it was made of, or a copy if it was not made by
    /// [`Pinned::from_vec`] or a graph still uses it.
    ///
    /// # Errors
    /// If an operation on them failed.
    pub fn into_vec(mut self) -> Result<Vec<T>, CudaError> {
        if let Some(alone) = Arc::get_mut(&mut self.shared.memory)
            && let Home::Foreign(Some(owner)) = alone.home()
            && (&**owner as &dyn Any).is::<Locked<T>>()
            && let Home::Foreign(Some(owner)) = alone.disown(None)?
            && let Ok(mut locked) = owner.downcast::<Locked<T>>()
        {
            return self.shared.context().guard(locked.unlock());
        }
        Ok(self.read()?.to_vec())
    }
}

impl Context {
    /// Page-locked memory of the host, zeroed.
    ///
    /// # Errors
    /// If there is no room.
    pub fn pinned<T: Pod>(&self, len: usize) -> Result<Pinned<T>, CudaError> {
        self.pinned_with(len, false)
    }

    /// The same for memory that the host only writes, from front to back: copies to a device can be faster, but the host reads it very
    /// slowly.
    ///
    /// # Errors
    /// If there is no room.
    pub fn pinned_for_upload<T: Pod>(&self, len: usize) -> Result<Pinned<T>, CudaError> {
        self.pinned_with(len, true)
    }

    /// Page-locked memory of the host with a copy of this.
    ///
    /// # Errors
    /// If there is no room.
    pub fn pinned_from<T: Pod>(&self, values: &[T]) -> Result<Pinned<T>, CudaError> {
        let mut pinned = self.pinned(values.len())?;
        pinned.write()?.copy_from_slice(values);
        Ok(pinned)
    }

    #[allow(unsafe_code)]
    fn pinned_with<T: Pod>(&self, len: usize, write_combined: bool) -> Result<Pinned<T>, CudaError> {
        let bytes = bytes_of::<T>(self, len)?;
        let (memory, host) = if bytes == 0 {
            (Allocation::own(self, 0, 0, Home::Empty), 0)
        } else {
            let allocated = ffi::memory::allocate_host(self.raw(), bytes, write_combined);
            let (pointer, address) = explain(self, bytes, allocated)?;
            // SAFETY: so many bytes, new, nobody else's.
            unsafe { pointer.cast::<u8>().write_bytes(0, bytes) };
            let host = pointer.expose_provenance();
            (Allocation::own(self, address, bytes, Home::Host(host)), host)
        };
        // SAFETY: zeros are values of every `Pod`; the memory is new.
        let shared = unsafe { Shared::new(memory, host, len) }?;
        Ok(Pinned { shared })
    }
}
