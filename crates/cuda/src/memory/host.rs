//! Views of the host of memory that devices reach as well.
//!
//! A view waits for the operations of devices that conflict with it. Who wants to enqueue another one meanwhile needs the borrow that the
//! view holds; a graph or a tensor map, which need none, are refused until the view is dropped. A view that is leaked keeps them away for
//! good, so nothing depends on its being dropped.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use bytemuck::Pod;

use crate::context::Context;
use crate::error::CudaError;
use crate::memory::allocation::Allocation;
use crate::memory::order::Access;

/// An array that the host finds at `first` and devices at the allocation's address.
pub(crate) struct Shared<T> {
    pub(crate) memory: Arc<Allocation>,
    first: NonNull<T>,
    pub(crate) len: usize,
}

// SAFETY: values are plain bytes that any thread could make out of nothing, and references to them are only given out by views that borrow
// as `&[T]` and `&mut [T]` do.
#[allow(unsafe_code)]
unsafe impl<T: Pod> Send for Shared<T> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<T: Pod> Sync for Shared<T> {}

impl<T: Pod> Shared<T> {
    /// # Safety
    /// `host` is where the host finds the bytes of the allocation, which are initialised, and of which this becomes the only user.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn new(
        memory: Arc<Allocation>,
        host: usize,
        len: usize,
    ) -> Result<Shared<T>, CudaError> {
        let first = NonNull::new(std::ptr::with_exposed_provenance_mut::<T>(host));
        match first {
            _ if len * size_of::<T>() == 0 => Ok(Shared { memory, first: NonNull::dangling(), len }),
            Some(first) if first.is_aligned() => Ok(Shared { memory, first, len }),
            _ => Err(CudaError::Unsupported {
                device: memory.context().ordinal(),
                what: "host memory aligned as the type of the elements wants it",
            }),
        }
    }

    pub(crate) fn read(&self) -> Result<HostRef<'_, T>, CudaError> {
        self.memory.order().enter_host(Access::Read)?;
        Ok(HostRef { shared: self })
    }

    pub(crate) fn write(&mut self) -> Result<HostMut<'_, T>, CudaError> {
        self.memory.order().enter_host(Access::Write)?;
        Ok(HostMut { shared: self })
    }

    pub(crate) fn context(&self) -> &Context {
        self.memory.context()
    }
}

/// What the host reads; devices can read at the same time, but not write.
#[must_use = "graphs that write this memory are refused until it is dropped"]
pub struct HostRef<'a, T> {
    shared: &'a Shared<T>,
}

impl<T> Deref for HostRef<'_, T> {
    type Target = [T];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        // SAFETY: initialised, aligned, so many; the view waited for those who write, and keeps others away as long as it lives.
        unsafe { std::slice::from_raw_parts(self.shared.first.as_ptr(), self.shared.len) }
    }
}

impl<T> Drop for HostRef<'_, T> {
    fn drop(&mut self) {
        self.shared.memory.order().leave_host();
    }
}

impl<T: fmt::Debug> fmt::Debug for HostRef<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// What the host writes; no device can use it meanwhile.
#[must_use = "graphs that use this memory are refused until it is dropped"]
pub struct HostMut<'a, T> {
    shared: &'a mut Shared<T>,
}

impl<T> Deref for HostMut<'_, T> {
    type Target = [T];

    #[allow(unsafe_code)]
    fn deref(&self) -> &[T] {
        // SAFETY: initialised, aligned, so many; the view waited for all others, and keeps them away as long as it lives.
        unsafe { std::slice::from_raw_parts(self.shared.first.as_ptr(), self.shared.len) }
    }
}

impl<T> DerefMut for HostMut<'_, T> {
    #[allow(unsafe_code)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.shared.first.as_ptr(), self.shared.len) }
    }
}

impl<T> Drop for HostMut<'_, T> {
    fn drop(&mut self) {
        self.shared.memory.order().leave_host();
    }
}

impl<T: fmt::Debug> fmt::Debug for HostMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// What arrays that host and devices share have in common: their size, both sides' views, and being source, target and argument.
macro_rules! shared_array {
    ($name:ident) => {
        impl<T> std::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let (len, address) = (self.shared.len, self.shared.memory.address());
                write!(f, "{}({len} elements at {address:#x})", stringify!($name))
            }
        }

        impl<T: bytemuck::Pod> $name<T> {
            /// Elements.
            pub fn len(&self) -> usize {
                self.shared.len
            }

            /// Whether there are none.
            pub fn is_empty(&self) -> bool {
                self.shared.len == 0
            }

            /// Bytes.
            pub fn bytes(&self) -> usize {
                self.shared.len * size_of::<T>()
            }

            /// The context it was made in.
            pub fn context(&self) -> &$crate::Context {
                self.shared.context()
            }

            /// Where devices find it.
            pub fn address(&self) -> u64 {
                self.shared.memory.address()
            }

            /// For the host to read: waits for operations that write it, and keeps away graphs that do until it is dropped.
            ///
            /// # Errors
            /// If what is waited for failed.
            pub fn read(&self) -> Result<$crate::HostRef<'_, T>, $crate::CudaError> {
                self.shared.read()
            }

            /// For the host to write: waits for all operations on it, and keeps away graphs that use it until it is dropped.
            ///
            /// # Errors
            /// If what is waited for failed, or an earlier view was leaked.
            pub fn write(&mut self) -> Result<$crate::HostMut<'_, T>, $crate::CudaError> {
                self.shared.write()
            }

            /// For devices to read.
            pub fn as_slice(&self) -> $crate::Slice<'_, T> {
                $crate::Slice::over(&self.shared.memory, 0, self.shared.len)
            }

            /// For devices to write.
            pub fn as_mut_slice(&mut self) -> $crate::SliceMut<'_, T> {
                $crate::SliceMut::over($crate::Slice::over(&self.shared.memory, 0, self.shared.len))
            }

            /// A part of it, for devices to read.
            ///
            /// # Errors
            /// If the range is not inside.
            pub fn slice(
                &self,
                range: impl std::ops::RangeBounds<usize>,
            ) -> Result<$crate::Slice<'_, T>, $crate::CudaError> {
                self.as_slice().slice(range)
            }

            /// A part of it, for devices to write.
            ///
            /// # Errors
            /// If the range is not inside.
            pub fn slice_mut(
                &mut self,
                range: impl std::ops::RangeBounds<usize>,
            ) -> Result<$crate::SliceMut<'_, T>, $crate::CudaError> {
                self.as_mut_slice().slice(range)
            }
        }

        impl<'a, T: bytemuck::Pod> From<&'a $name<T>> for $crate::Slice<'a, T> {
            fn from(array: &'a $name<T>) -> Self {
                array.as_slice()
            }
        }

        impl<'a, T: bytemuck::Pod> From<&'a mut $name<T>> for $crate::SliceMut<'a, T> {
            fn from(array: &'a mut $name<T>) -> Self {
                array.as_mut_slice()
            }
        }

        impl<'a, T: bytemuck::Pod> From<&'a $name<T>> for $crate::Source<'a, T> {
            fn from(array: &'a $name<T>) -> Self {
                array.as_slice().into()
            }
        }

        impl<'a, T: bytemuck::Pod> From<&'a mut $name<T>> for $crate::Target<'a, T> {
            fn from(array: &'a mut $name<T>) -> Self {
                array.as_mut_slice().into()
            }
        }

        impl<'a, T: bytemuck::Pod> From<&'a $name<T>> for $crate::Arg<'a> {
            fn from(array: &'a $name<T>) -> Self {
                array.as_slice().into()
            }
        }

        impl<'a, T: bytemuck::Pod> From<&'a mut $name<T>> for $crate::Arg<'a> {
            fn from(array: &'a mut $name<T>) -> Self {
                array.as_mut_slice().into()
            }
        }
    };
}
pub(crate) use shared_array;
