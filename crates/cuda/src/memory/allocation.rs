//! A piece of memory with everything that must happen before it may go.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi;
use crate::memory::order::{Access, Order};
use crate::stream::{Stream, Turn};

/// Memory that a device can reach. Shared by its owner, by graphs that use it and by tensor maps; freed with the last of them, after all
/// operations on it.
// What every launch looks at comes first, in one line of cache.
#[repr(C)]
pub(crate) struct Allocation {
    context: Context,
    order: Order,
    address: u64,
    bytes: usize,
    /// Whether all devices and the host reach it by this address.
    everywhere: bool,
    home: Home,
}

/// Where memory came from, and so how it goes.
pub(crate) enum Home {
    /// There is none.
    Empty,
    /// Freed in the order of a stream.
    Stream(Stream),
    /// Freed when all operations on it are done.
    Device,
    /// Page-locked memory of the host, at this address there.
    Host(usize),
    /// Lent by somebody else, who sees to the order when it goes back.
    Lent,
    /// Somebody else's; its owner goes when all operations on it are done.
    Foreign(Option<Box<dyn Any + Send + Sync>>),
}

impl fmt::Debug for Allocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x}", self.bytes, self.address)
    }
}

impl Allocation {
    /// Takes over memory: it will be freed as its home says.
    pub(crate) fn own(context: &Context, address: u64, bytes: usize, home: Home) -> Arc<Allocation> {
        let everywhere = matches!(home, Home::Host(_));
        let (context, order) = (context.clone(), Order::default());
        Arc::new(Allocation { context, address, bytes, home, everywhere, order })
    }

    /// The same for memory that all devices reach.
    pub(crate) fn own_everywhere(
        context: &Context,
        address: u64,
        bytes: usize,
        home: Home,
    ) -> Arc<Allocation> {
        let (context, order) = (context.clone(), Order::default());
        Arc::new(Allocation { context, address, bytes, home, everywhere: true, order })
    }

    /// Memory in the order of a stream.
    pub(crate) fn in_order(stream: &Stream, bytes: usize) -> Result<Arc<Allocation>, CudaError> {
        if !stream.context().device().memory_pools {
            stream.expect_live("allocating memory")?;
            return Allocation::at_once(stream.context(), bytes);
        }
        Allocation::in_order_with(stream, bytes, |stream| ffi::memory::allocate_async(stream, bytes))
    }

    /// Memory in the order of a stream, from where `allocate` takes it.
    pub(crate) fn in_order_with(
        stream: &Stream,
        bytes: usize,
        allocate: impl FnOnce(&ffi::stream::Stream) -> Result<u64, CudaError>,
    ) -> Result<Arc<Allocation>, CudaError> {
        let context = stream.context();
        let turn = stream.turn();
        turn.expect_live("allocating memory")?;
        if bytes == 0 {
            return Ok(Allocation::own(context, 0, 0, Home::Empty));
        }
        let address = explain(context, bytes, allocate(stream.raw()))?;
        let memory = Allocation::own(context, address, bytes, Home::Stream(stream.clone()));
        // Other streams must not use it before it is there.
        memory.order.before(stream, Access::Write)?;
        Ok(memory)
    }

    /// Memory that is there when the function returns.
    pub(crate) fn at_once(context: &Context, bytes: usize) -> Result<Arc<Allocation>, CudaError> {
        if bytes == 0 {
            return Ok(Allocation::own(context, 0, 0, Home::Empty));
        }
        let address = explain(context, bytes, ffi::memory::allocate(context.raw(), bytes))?;
        Ok(Allocation::own(context, address, bytes, Home::Device))
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    /// Whether all devices reach it.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.everywhere
    }

    /// Whether somebody may want it for himself between the ordering of an operation and its enqueueing: the host, or whom it was borrowed
    /// from.
    #[inline]
    pub(crate) fn is_contested(&self) -> bool {
        self.everywhere || matches!(self.home, Home::Lent)
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// Lets go of the memory without freeing it, once all operations on it are done or, where a stream is given, come before what is
    /// enqueued there from now on. Who holds it alone can do that.
    pub(crate) fn disown(&mut self, to: Option<&ffi::stream::Stream>) -> Result<Home, CudaError> {
        for user in self.order.streams() {
            match to {
                Some(stream) => user.precede(stream)?,
                None => user.finish()?,
            }
        }
        Ok(std::mem::replace(&mut self.home, Home::Empty))
    }

    /// To be called before an operation on it is enqueued, by those who hold off conflicting operations until it is.
    #[inline]
    pub(crate) fn before(self: &Arc<Allocation>, turn: &Turn<'_>, access: Access) -> Result<(), CudaError> {
        match turn.capture() {
            None => self.order.before(turn.stream(), access),
            Some(capture) => capture.note(self, turn.stream(), access),
        }
    }

    /// Frees; an error leaves the memory to the end of the process.
    #[allow(unsafe_code)]
    fn release(&mut self) -> Result<(), CudaError> {
        let users = self.order.streams();
        match &mut self.home {
            Home::Empty | Home::Lent => Ok(()),
            Home::Stream(home) => home.free(self.address, &users),
            Home::Device => {
                users.iter().try_for_each(Stream::finish)?;
                // SAFETY: allocated at once, freed once: here; all operations on it are done.
                unsafe { ffi::memory::free(self.context.raw(), self.address) }
            }
            Home::Host(pointer) => {
                users.iter().try_for_each(Stream::finish)?;
                let pointer = std::ptr::with_exposed_provenance_mut::<c_void>(*pointer);
                // SAFETY: allocated as host memory, freed once: here; all operations on it are done.
                unsafe { ffi::memory::free_host(self.context.raw(), pointer) }
            }
            Home::Foreign(owner) => {
                let done = users.iter().try_for_each(Stream::finish);
                let owner = owner.take();
                if done.is_err() {
                    // Something may still write there.
                    std::mem::forget(owner);
                }
                done
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Only a lost context or a driver that shuts down refuse, and then nothing can be freed.
        let _ = self.release();
    }
}

/// Says how much there is when there is not enough.
pub(crate) fn explain<T>(
    context: &Context,
    bytes: usize,
    result: Result<T, CudaError>,
) -> Result<T, CudaError> {
    match result {
        Err(CudaError::Call { code: 2, .. }) => {
            let (free, total) = context.memory()?;
            Err(CudaError::OutOfMemory { bytes: bytes as u64, free, total, device: context.ordinal() })
        }
        other => context.guard(other),
    }
}
