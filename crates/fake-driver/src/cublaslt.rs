//! The few functions of cuBLASLt that this project calls, exported by the same library: a program that is told to load cuBLASLt from it
//! finds a double that computes products of f32 and bf16, in the order of their streams, and knows two algorithms for each.
//!
//! What it checks is what the real library does: sizes of attributes, a current context, memory that lives. What it does not know is
//! refused with the real library's numbers.

use std::ffi::{c_char, c_int, c_void};

use cudarc::driver::sys::{CUresult, CUstream};

use crate::entry::{Driver, Scope, enter};
use crate::execution::Action;

const SUCCESS: u32 = 0;
const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 7;
const EXECUTION_FAILED: u32 = 13;
const NOT_SUPPORTED: u32 = 15;

/// Bytes of scratch memory that the algorithms need.
const WORKSPACES: [u64; 2] = [256, 0];
/// `cudaDataType_t`.
const F32: u32 = 0;
const BF16: u32 = 14;

/// A matrix as its descriptor says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    element: u32,
    rows: u64,
    columns: u64,
    leading: u64,
    by_rows: bool,
    batch: u64,
    stride: u64,
}

impl Layout {
    fn width(&self) -> u64 {
        if self.element == BF16 { 2 } else { 4 }
    }

    /// Bytes from the start to an element of a member of the batch.
    fn offset(&self, member: u64, row: u64, column: u64) -> u64 {
        let (fast, slow) = if self.by_rows { (column, row) } else { (row, column) };
        (member * self.stride + slow * self.leading + fast) * self.width()
    }
}

/// The rest of a product as its descriptor says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Descriptor {
    transposed: [bool; 2],
    epilogue: u32,
    bias: u64,
    bias_element: u32,
}

/// A product that was enqueued.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    descriptor: Descriptor,
    layouts: [Layout; 4],
    addresses: [u64; 4],
    alpha: f32,
    beta: f32,
}

impl Product {
    pub(crate) fn touches(&self) -> impl Iterator<Item = u64> + use<> {
        let bias = (self.descriptor.epilogue & 4 != 0).then_some(self.descriptor.bias);
        self.addresses.into_iter().chain(bias)
    }
}

impl Driver {
    pub(crate) fn perform_product(&mut self, device: usize, product: &Product) -> Result<(), String> {
        let Product { descriptor, layouts: [a, b, c, d], addresses: [at_a, at_b, at_c, at_d], alpha, beta } =
            product;
        let read = |address: u64, element: u32| -> Result<f32, String> {
            let bytes = if element == BF16 { 2 } else { 4 };
            let place = self.memory_of(device, address, bytes)?;
            // SAFETY: `memory_of` gave a live range of so many bytes.
            Ok(unsafe {
                match element {
                    BF16 => f32::from_bits(u32::from(place.cast::<u16>().read_unaligned()) << 16),
                    _ => place.cast::<f32>().read_unaligned(),
                }
            })
        };
        let factor = |layout: &Layout, at: u64, transposed: bool, member, row, column| {
            let (row, column) = if transposed { (column, row) } else { (row, column) };
            read(at + layout.offset(member, row, column), layout.element)
        };
        let depth = if descriptor.transposed[0] { a.rows } else { a.columns };
        for member in 0..d.batch {
            for (row, column) in (0..d.columns).flat_map(|column| (0..d.rows).map(move |row| (row, column))) {
                let mut sum = 0.0;
                for k in 0..depth {
                    sum += factor(a, *at_a, descriptor.transposed[0], member, row, k)?
                        * factor(b, *at_b, descriptor.transposed[1], member, k, column)?;
                }
                sum *= alpha;
                if *beta != 0.0 {
                    sum += beta * read(at_c + c.offset(member, row, column), c.element)?;
                }
                if descriptor.epilogue & 4 != 0 {
                    let width = if descriptor.bias_element == BF16 { 2 } else { 4 };
                    sum += read(descriptor.bias + row * width, descriptor.bias_element)?;
                }
                if descriptor.epilogue & 2 != 0 {
                    sum = sum.max(0.0);
                }
                let place = self.memory_of(device, at_d + d.offset(member, row, column), d.width())?;
                // SAFETY: as above.
                unsafe {
                    match d.element {
                        BF16 => place.cast::<u16>().write_unaligned(to_bf16(sum)),
                        _ => place.cast::<f32>().write_unaligned(sum),
                    }
                }
            }
        }
        Ok(())
    }
}

/// Rounded to the nearest, to even if there are two. Of numbers.
fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// A value of exactly this size.
unsafe fn value<const BYTES: usize>(at: *const c_void, bytes: usize) -> Option<[u8; BYTES]> {
    // SAFETY: the caller vouches for as many bytes as it says.
    (bytes == BYTES && !at.is_null()).then(|| unsafe { at.cast::<[u8; BYTES]>().read_unaligned() })
}

/// Gives a new object to the caller.
unsafe fn give<T>(to: *mut *mut T, object: T) -> u32 {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller vouches for its pointer.
    unsafe { to.write(Box::into_raw(Box::new(object))) };
    SUCCESS
}

/// Takes an object back.
unsafe fn take<T>(object: *mut T) -> u32 {
    if object.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller gives back what `give` gave, once.
    drop(unsafe { Box::from_raw(object) });
    SUCCESS
}

macro_rules! exported {
    ($(fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $result:ty $body:block)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of cuBLASLt.")]
        ///
        /// # Safety
        /// Every pointer is what cuBLASLt asks for.
        #[allow(unreachable_pub, reason = "reached by its symbol")]
        #[allow(clippy::too_many_arguments, non_snake_case, reason = "given by cuBLASLt")]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> $result {
            // SAFETY: the caller vouches for its pointers, as every caller of the library does.
            #[allow(unused_unsafe, reason = "some bodies follow no pointer")]
            unsafe { $body }
        }
    )* };
}

exported! {
    fn cublasLtGetVersion() -> usize {
        130_000
    }

    fn cublasLtGetStatusName(status: u32) -> *const c_char {
        let name = match status {
            SUCCESS => c"CUBLAS_STATUS_SUCCESS",
            NOT_INITIALIZED => c"CUBLAS_STATUS_NOT_INITIALIZED",
            INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE",
            EXECUTION_FAILED => c"CUBLAS_STATUS_EXECUTION_FAILED",
            NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED",
            _ => return std::ptr::null(),
        };
        name.as_ptr()
    }

    fn cublasLtCreate(handle: *mut *mut u64) -> u32 {
        match enter("cublasLtCreate", Scope::Context, |_| Ok(())) {
            CUresult::CUDA_SUCCESS => give(handle, 0),
            _ => NOT_INITIALIZED,
        }
    }

    fn cublasLtDestroy(handle: *mut u64) -> u32 {
        take(handle)
    }

    fn cublasLtMatrixLayoutCreate(layout: *mut *mut Layout, element: u32, rows: u64, columns: u64, leading: i64) -> u32 {
        let Ok(leading) = u64::try_from(leading) else { return INVALID_VALUE };
        give(layout, Layout { element, rows, columns, leading, by_rows: false, batch: 1, stride: 0 })
    }

    fn cublasLtMatrixLayoutDestroy(layout: *mut Layout) -> u32 {
        take(layout)
    }

    fn cublasLtMatrixLayoutSetAttribute(layout: *mut Layout, attribute: u32, at: *const c_void, bytes: usize) -> u32 {
        let Some(layout) = layout.as_mut() else { return INVALID_VALUE };
        let done = match attribute {
            1 => value(at, bytes).map(|order| layout.by_rows = i32::from_ne_bytes(order) == 1),
            5 => value(at, bytes).map(|count| layout.batch = u64::from(i32::from_ne_bytes(count).unsigned_abs())),
            6 => value(at, bytes).map(|stride| layout.stride = i64::from_ne_bytes(stride).unsigned_abs()),
            _ => None,
        };
        done.map_or(INVALID_VALUE, |()| SUCCESS)
    }

    fn cublasLtMatmulDescCreate(descriptor: *mut *mut Descriptor, _compute: u32, _scale: u32) -> u32 {
        give(descriptor, Descriptor { epilogue: 1, ..Descriptor::default() })
    }

    fn cublasLtMatmulDescDestroy(descriptor: *mut Descriptor) -> u32 {
        take(descriptor)
    }

    fn cublasLtMatmulDescSetAttribute(descriptor: *mut Descriptor, attribute: u32, at: *const c_void, bytes: usize) -> u32 {
        let Some(descriptor) = descriptor.as_mut() else { return INVALID_VALUE };
        let transposed = |operation: [u8; 4]| i32::from_ne_bytes(operation) != 0;
        let done = match attribute {
            3 => value(at, bytes).map(|operation| descriptor.transposed[0] = transposed(operation)),
            4 => value(at, bytes).map(|operation| descriptor.transposed[1] = transposed(operation)),
            7 => value(at, bytes).map(|epilogue| descriptor.epilogue = u32::from_ne_bytes(epilogue)),
            8 => value(at, bytes).map(|bias| descriptor.bias = u64::from_ne_bytes(bias)),
            26 => value(at, bytes).map(|element| descriptor.bias_element = u32::from_ne_bytes(element)),
            17 | 18 | 20 => value::<8>(at, bytes).map(drop),
            25 => value::<1>(at, bytes).map(drop),
            31 | 32 => value::<4>(at, bytes).map(drop),
            _ => None,
        };
        done.map_or(INVALID_VALUE, |()| SUCCESS)
    }

    fn cublasLtMatmulPreferenceCreate(preference: *mut *mut u64) -> u32 {
        give(preference, 0)
    }

    fn cublasLtMatmulPreferenceDestroy(preference: *mut u64) -> u32 {
        take(preference)
    }

    fn cublasLtMatmulPreferenceSetAttribute(preference: *mut u64, attribute: u32, at: *const c_void, bytes: usize) -> u32 {
        let Some(workspace) = preference.as_mut() else { return INVALID_VALUE };
        let done = match attribute {
            1 => value(at, bytes).map(|bytes| *workspace = u64::from_ne_bytes(bytes)),
            5..=8 => value::<4>(at, bytes).map(drop),
            _ => None,
        };
        done.map_or(INVALID_VALUE, |()| SUCCESS)
    }

    fn cublasLtMatmulAlgoGetHeuristic(
        _handle: *mut u64,
        descriptor: *const Descriptor,
        a: *const Layout,
        b: *const Layout,
        c: *const Layout,
        d: *const Layout,
        preference: *const u64,
        most: c_int,
        results: *mut [u64; 12],
        found: *mut c_int,
    ) -> u32 {
        let layouts = [a.as_ref(), b.as_ref(), c.as_ref(), d.as_ref()];
        let (Some(descriptor), Some(found)) = (descriptor.as_ref(), found.as_mut()) else { return INVALID_VALUE };
        let known = layouts.iter().all(|layout| layout.is_some_and(|layout| [F32, BF16].contains(&layout.element)));
        *found = 0;
        if most < 1 {
            return INVALID_VALUE;
        }
        // GELU is beyond a double.
        if !known || descriptor.epilogue & 32 != 0 {
            return NOT_SUPPORTED;
        }
        let room = preference.as_ref().copied().unwrap_or(0);
        for (number, &workspace) in (1u64..).zip(&WORKSPACES) {
            if workspace > room || *found == most {
                continue;
            }
            // An algorithm of 64 bytes, the workspace, a status that is 0 and a number of waves, and what is reserved.
            let mut result = [0; 12];
            result[0] = number;
            result[8] = workspace;
            results.add(found.unsigned_abs() as usize).write_unaligned(result);
            *found += 1;
        }
        SUCCESS
    }

    fn cublasLtMatmulAlgoConfigGetAttribute(
        algorithm: *const u64,
        attribute: u32,
        at: *mut c_void,
        bytes: usize,
        written: *mut usize,
    ) -> u32 {
        if attribute != 0 || bytes != 4 || at.is_null() || algorithm.is_null() {
            return INVALID_VALUE;
        }
        at.cast::<u32>().write_unaligned(algorithm.read_unaligned() as u32);
        if !written.is_null() {
            written.write(4);
        }
        SUCCESS
    }

    fn cublasLtMatmul(
        handle: *mut u64,
        descriptor: *const Descriptor,
        alpha: *const f32,
        a: u64,
        a_layout: *const Layout,
        b: u64,
        b_layout: *const Layout,
        beta: *const f32,
        c: u64,
        c_layout: *const Layout,
        d: u64,
        d_layout: *const Layout,
        algorithm: *const u64,
        workspace: u64,
        workspace_bytes: usize,
        stream: CUstream,
    ) -> u32 {
        let layouts = [a_layout.as_ref(), b_layout.as_ref(), c_layout.as_ref(), d_layout.as_ref()];
        let [Some(a_layout), Some(b_layout), Some(c_layout), Some(d_layout)] = layouts else { return INVALID_VALUE };
        let (Some(descriptor), Some(alpha), Some(beta)) = (descriptor.as_ref(), alpha.as_ref(), beta.as_ref()) else {
            return INVALID_VALUE;
        };
        let needed = algorithm.as_ref().and_then(|&number| WORKSPACES.get((number as usize).wrapping_sub(1)));
        let has_room = needed.is_some_and(|&needed| {
            needed == 0 || workspace != 0 && workspace_bytes as u64 >= needed
        });
        if handle.is_null() || !has_room {
            return INVALID_VALUE;
        }
        let product = Product {
            descriptor: *descriptor,
            layouts: [*a_layout, *b_layout, *c_layout, *d_layout],
            addresses: [a, b, c, d],
            alpha: *alpha,
            beta: *beta,
        };
        let issued = enter("cublasLtMatmul", Scope::Context, |driver| {
            let stream = driver.stream(stream)?;
            driver.issue(stream, Action::Product(Box::new(product))).map(drop)
        });
        if issued == CUresult::CUDA_SUCCESS { SUCCESS } else { EXECUTION_FAILED }
    }
}
