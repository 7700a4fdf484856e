//! [`Workspace`]: scratch memory that several products share, one after the other.
//!
//! Some kernels want the start of their scratch memory to be zero, and leave it so. A workspace remembers who was the last to use it,
//! and clears that part whenever somebody else comes. It is locked while the launches of one product are enqueued, so that those of
//! another thread do not come in between.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tilewright_kernels::gemm::Recipe;

use super::Error;
use crate::device::{Buffer, Device, DynBuffer};

/// Who uses a workspace: a number for each set of launches in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User(u64);

impl User {
    pub(super) fn new() -> User {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        User(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Scratch memory of a device. Clones are the same memory; plans that share one save memory and run one after the other.
///
/// ```
/// use tilewright::gemm::Workspace;
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// assert_eq!(Workspace::new(&device).bytes(), 0); // grows when somebody needs it
/// assert_eq!(Workspace::with_bytes(&device, 1 << 20)?.bytes(), 1 << 20); // never grows
/// # Ok::<(), tilewright::gemm::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Workspace {
    device: Device,
    grows: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    buffer: Option<Buffer<u8>>,
    user: Option<User>,
}

impl Workspace {
    /// One that grows as far as it must.
    #[must_use]
    pub fn new(device: &Device) -> Workspace {
        Workspace { device: device.clone(), grows: true, state: Arc::default() }
    }

    /// One of a size that stays: at least [`Plan::workspace_bytes`](super::Plan::workspace_bytes) of whoever uses it.
    ///
    /// # Errors
    /// If the device has not enough memory.
    pub fn with_bytes(device: &Device, bytes: usize) -> Result<Workspace, Error> {
        let buffer = if bytes == 0 { None } else { Some(device.alloc(bytes)?) };
        let state = Arc::new(Mutex::new(State { buffer, user: None }));
        Ok(Workspace { device: device.clone(), grows: false, state })
    }

    /// Bytes that it has now.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().buffer.as_ref().map_or(0, Buffer::bytes)
    }

    /// Bytes that it has at most; none if it grows.
    pub(super) fn most(&self) -> Option<u64> {
        (!self.grows).then(|| self.bytes())
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whatever a panic has left undone, the next user clears what must be clear.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The memory for the launches of a recipe, cleared where it must be, until the guard goes.
    pub(super) fn take(&self, user: User, recipe: &Recipe) -> Result<Taken<'_>, Error> {
        let mut state = self.lock();
        let found = state.buffer.as_ref().map_or(0, Buffer::bytes);
        if found < recipe.workspace {
            if !self.grows {
                return Err(Error::argument(
                    "the workspace",
                    format!("{found} bytes"),
                    format!("at least {}", recipe.workspace),
                    "`Plan::workspace_bytes` says how many; `Workspace::new` makes one that grows",
                ));
            }
            // The old memory first: on a full device there may not be room for both.
            *state = State::default();
            let bytes = usize::try_from(recipe.workspace).unwrap_or(usize::MAX);
            let buffer = self.device.alloc(bytes).map_err(|error| {
                Error::argument(
                    "the workspace",
                    format!("no room for {bytes} bytes ({error})"),
                    "memory for sums or copies of factors",
                    "free some, or plan with a `Planner` whose workspace has a size that stays",
                )
            })?;
            state.buffer = Some(buffer);
        }
        // Until all launches are enqueued, nobody can rely on anything.
        let stranger = state.user.take() != Some(user);
        if let Some(buffer) = state.buffer.as_ref().filter(|_| stranger && recipe.zeroed > 0) {
            buffer.slice(..usize::try_from(recipe.zeroed).unwrap_or(usize::MAX))?.fill(0)?;
        }
        Ok(Taken { state, user })
    }
}

/// A workspace that is locked.
pub(super) struct Taken<'a> {
    state: MutexGuard<'a, State>,
    user: User,
}

impl Taken<'_> {
    pub(super) fn buffer(&self) -> Option<DynBuffer> {
        self.state.buffer.as_ref().map(DynBuffer::from)
    }

    /// All launches are enqueued: the start of the memory will be clear again.
    pub(super) fn done(mut self) {
        self.state.user = Some(self.user);
    }
}
