//! Memory for what an operation needs in between, kept by a GPU from one call to the next.
//!
//! Work on a device follows in order, so that memory can go to the next operation as soon as all that uses it is enqueued. What is kept is not
//! given back before the device ends: a captured graph may still use it. Once an operation has run, it allocates nothing more, and can be
//! captured.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Buffer, Device, DeviceError, DeviceKind, DynBuffer, Item};

/// The least that is allocated, so that small needs share.
const LEAST: usize = 64 * 1024;

/// What nobody uses at the moment.
#[derive(Default)]
struct Pool(Mutex<Vec<Buffer<u8>>>);

impl Pool {
    fn with<R>(&self, work: impl FnOnce(&mut Vec<Buffer<u8>>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The smallest that is large enough.
    fn take(&self, bytes: usize) -> Option<Buffer<u8>> {
        self.with(|free| {
            let fits = (0..free.len()).filter(|&i| free[i].len() >= bytes);
            fits.min_by_key(|&i| free[i].len()).map(|i| free.swap_remove(i))
        })
    }
}

/// A buffer for the time of one call. What is in it is undefined.
pub(crate) struct Temporary<T> {
    buffer: Buffer<T>,
    /// Where it goes back to.
    kept: Option<(Arc<Pool>, Buffer<u8>)>,
}

impl<T> Deref for Temporary<T> {
    type Target = Buffer<T>;

    fn deref(&self) -> &Buffer<T> {
        &self.buffer
    }
}

impl<T> Drop for Temporary<T> {
    fn drop(&mut self) {
        if let Some((pool, whole)) = self.kept.take() {
            pool.with(|free| free.push(whole));
        }
    }
}

impl Device {
    /// Memory for so many elements, for as long as it takes to enqueue what uses it.
    pub(crate) fn temporary<T: Item>(&self, elements: usize) -> Result<Temporary<T>, DeviceError> {
        // Elsewhere fresh memory shows who reads what nobody wrote.
        if self.kind() != DeviceKind::Cuda {
            return Ok(Temporary { buffer: self.alloc(elements)?, kept: None });
        }
        let pool = self.shared.kernels.get(&"temporary", || Ok(Pool::default()))?;
        let bytes = elements.saturating_mul(T::ELEMENT.bytes() as usize);
        let whole = match pool.take(bytes) {
            Some(whole) => whole,
            None => self.alloc(bytes.max(LEAST).checked_next_power_of_two().unwrap_or(bytes))?,
        };
        let typed = DynBuffer::from(&whole).reinterpreted(T::ELEMENT).typed::<T>()?;
        Ok(Temporary { buffer: typed.slice(..elements)?, kept: Some((pool, whole)) })
    }
}
