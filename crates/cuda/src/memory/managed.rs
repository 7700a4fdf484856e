//! Managed memory: one address for host and devices, pages that move to who uses them.
//!
//! Only for devices where host and device may use managed memory at the same time ([`Device::concurrent_managed`](crate::Device)). On the
//! others the host faults on *any* managed memory while *any* kernel runs, which no borrow of one array can exclude; [`Pinned`](crate::Pinned)
//! does what can be done there.

use bytemuck::Pod;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::ffi::memory::Location;
use crate::ffi::sys::CUmem_advise_enum as Raw;
use crate::memory::allocation::{Allocation, Home, explain};
use crate::memory::buffer::bytes_of;
use crate::memory::host::{Shared, shared_array};
use crate::memory::order::Access;
use crate::stream::Stream;

/// An array in memory that moves between host and devices by itself.
///
/// The host sees it through [`Managed::read`] and [`Managed::write`], which wait for what devices do with it; kernels and copies take it
/// like a [`Buffer`](crate::Buffer). It can be larger than the memory of the device.
///
/// ```no_run
/// # use tilewright_cuda::Context;
/// let context = Context::new(0)?;
/// let stream = context.stream()?;
/// let mut values = context.managed::<u32>(1 << 20)?;
/// values.write()?.iter_mut().zip(0..).for_each(|(value, n)| *value = n);
/// values.prefetch(&stream)?; // or else it moves page by page when it is used
/// stream.fill(values.slice_mut(..10)?, 7)?;
/// assert_eq!(values.read()?[8..12], [7, 7, 10, 11]);
/// # Ok::<(), tilewright_cuda::CudaError>(())
/// ```
pub struct Managed<T> {
    shared: Shared<T>,
}

shared_array!(Managed);

/// How managed memory will be used: a hint that changes where pages are, never what is in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice<'a> {
    /// Read by many and seldom written: everybody gets a copy. Or no longer.
    ReadMostly(bool),
    /// Where pages should stay, if anywhere.
    PreferredLocation(Option<Place<'a>>),
    /// Who should always have it mapped, so that reaching it never faults. Or no longer.
    AccessedBy(Place<'a>, bool),
}

/// Where managed memory can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// The memory of the host.
    Host,
    /// The memory of a device.
    Device(&'a Context),
}

impl Place<'_> {
    fn location(self) -> Location {
        match self {
            Place::Host => Location::Host,
            Place::Device(context) => Location::Device(context.raw().device()),
        }
    }
}

impl Advice<'_> {
    /// The driver's name for it, and where; where none is needed, any place will do.
    fn parts(self) -> (Raw, Location) {
        match self {
            Advice::ReadMostly(true) => (Raw::CU_MEM_ADVISE_SET_READ_MOSTLY, Location::Host),
            Advice::ReadMostly(false) => (Raw::CU_MEM_ADVISE_UNSET_READ_MOSTLY, Location::Host),
            Advice::PreferredLocation(Some(place)) => {
                (Raw::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place.location())
            }
            Advice::PreferredLocation(None) => (Raw::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, Location::Host),
            Advice::AccessedBy(place, true) => (Raw::CU_MEM_ADVISE_SET_ACCESSED_BY, place.location()),
            Advice::AccessedBy(place, false) => (Raw::CU_MEM_ADVISE_UNSET_ACCESSED_BY, place.location()),
        }
    }
}

impl<T: Pod> Managed<T> {
    /// Moves it to the device of the stream, in the order of the stream.
    ///
    /// # Errors
    /// If the stream is being captured, or the driver refuses.
    pub fn prefetch(&self, stream: &Stream) -> Result<(), CudaError> {
        self.prefetch_to(stream, Place::Device(stream.context()))
    }

    /// Moves it to the host, in the order of the stream.
    ///
    /// # Errors
    /// If the stream is being captured, or the driver refuses.
    pub fn prefetch_to_host(&self, stream: &Stream) -> Result<(), CudaError> {
        self.prefetch_to(stream, Place::Host)
    }

    #[allow(unsafe_code)]
    fn prefetch_to(&self, stream: &Stream, place: Place<'_>) -> Result<(), CudaError> {
        let turn = stream.turn();
        turn.expect_live("moving managed memory")?;
        if self.bytes() == 0 {
            return Ok(());
        }
        // Moving changes no value: it goes along with those who read.
        self.shared.memory.before(&turn, Access::Read)?;
        // SAFETY: all of a managed allocation, which lives until all operations on it are done.
        let moved =
            unsafe { ffi::memory::prefetch(stream.raw(), self.address(), self.bytes(), place.location()) };
        stream.context().guard(moved)
    }

    /// Says how it will be used.
    ///
    /// # Errors
    /// If the driver refuses.
    #[allow(unsafe_code)]
    pub fn advise(&self, advice: Advice<'_>) -> Result<(), CudaError> {
        if self.bytes() == 0 {
            return Ok(());
        }
        let (what, place) = advice.parts();
        // SAFETY: all of a live managed allocation.
        let said =
            unsafe { ffi::memory::advise(self.context().raw(), self.address(), self.bytes(), what, place) };
        self.context().guard(said)
    }
}

impl Context {
    /// Memory that moves between host and devices by itself, zeroed (on the host).
    ///
    /// # Errors
    /// If there is no room, or the device cannot share managed memory with the host while kernels run.
    #[allow(unsafe_code)]
    pub fn managed<T: Pod>(&self, len: usize) -> Result<Managed<T>, CudaError> {
        if !self.device().concurrent_managed {
            return Err(CudaError::Unsupported {
                device: self.ordinal(),
                what: "managed memory that host and device may use at the same time; use `Context::pinned`",
            });
        }
        let bytes = bytes_of::<T>(self, len)?;
        let (memory, host) = if bytes == 0 {
            (Allocation::own(self, 0, 0, Home::Empty), 0)
        } else {
            let address = explain(self, bytes, ffi::memory::allocate_managed(self.raw(), bytes))?;
            let memory = Allocation::own_everywhere(self, address, bytes, Home::Device);
            let host = usize::try_from(address).unwrap_or_default();
            // SAFETY: so many bytes, new, nobody else's; the host finds them by the same address.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(host).write_bytes(0, bytes) };
            (memory, host)
        };
        // SAFETY: zeros are values of every `Pod`; the memory is new.
        let shared = unsafe { Shared::new(memory, host, len) }?;
        Ok(Managed { shared })
    }
}
