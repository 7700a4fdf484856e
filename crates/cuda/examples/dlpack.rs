//! A library that hands tensors to Python and takes them from there without copies: what `dlpack.py` loads.
//!
//! `cargo build --release --example dlpack && python3 crates/cuda/examples/dlpack.py target/release/examples/libdlpack.so`
#![allow(unsafe_code)]

use std::ffi::c_char;
use std::sync::OnceLock;

use tilewright_cuda::interop::dlpack::{Export, ManagedTensor, ManagedTensorVersioned, Tensor};
use tilewright_cuda::{Code, Context, CudaError, Kernel, LaunchConfig, Stream};

const SAXPY: &str = include_str!("kernels/saxpy.ptx");

/// What the functions below need, made once.
struct Library {
    stream: Stream,
    saxpy: Kernel,
}

fn library() -> Result<&'static Library, CudaError> {
    static LIBRARY: OnceLock<Result<Library, CudaError>> = OnceLock::new();
    let made = LIBRARY.get_or_init(|| {
        let context = Context::new(0)?;
        // SAFETY: `saxpy` touches x and y below n only.
        let saxpy = unsafe { context.load(&Code::ptx(SAXPY)) }?.kernel("saxpy")?;
        Ok(Library { stream: context.stream()?, saxpy })
    });
    made.as_ref().map_err(Clone::clone)
}

/// 0, or 1 after the message was put where the caller has room for `room` bytes.
fn answer(result: Result<(), CudaError>, message: *mut c_char, room: usize) -> i32 {
    let Err(error) = result else { return 0 };
    let text = error.to_string();
    let text = &text.as_bytes()[..text.len().min(room.saturating_sub(1))];
    if !message.is_null() && room > 0 {
        // SAFETY: the caller has room for so many bytes.
        unsafe {
            message.copy_from_nonoverlapping(text.as_ptr().cast::<c_char>(), text.len());
            *message.add(text.len()) = 0;
        }
    }
    1
}

/// A matrix with the numbers 0, 1, 2 and so on, ready when the function returns.
fn numbers(rows: usize, columns: usize) -> Result<Export, CudaError> {
    let values: Vec<f32> = (0..rows * columns).map(|n| n as f32).collect();
    Export::new(library()?.stream.upload(&values)?, &[rows, columns])
}

/// Doubles all elements of a tensor in place; done when the function returns.
fn double(mut tensor: Tensor) -> Result<(), CudaError> {
    let Library { stream, saxpy } = library()?;
    let len = tensor.as_slice::<f32>()?.len();
    let mut copy = stream.alloc::<f32>(len)?;
    stream.copy(tensor.as_slice::<f32>()?, &mut copy)?;
    let size = u32::try_from(len).unwrap_or(u32::MAX);
    let config = LaunchConfig::cover(size, 256);
    saxpy.launch(stream, &config, (1.0f32, &copy, tensor.as_mut_slice::<f32>()?, size))?;
    stream.synchronize()
}

/// Makes a matrix of numbers, in the form of DLPack 1.
///
/// # Safety
/// `tensor` can be written, and so can `room` bytes at `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_numbers(
    rows: usize,
    columns: usize,
    tensor: *mut *mut ManagedTensorVersioned,
    message: *mut c_char,
    room: usize,
) -> i32 {
    let made = numbers(rows, columns).and_then(Export::into_raw);
    // SAFETY: the caller's.
    answer(made.map(|raw| unsafe { *tensor = raw }), message, room)
}

/// Makes a matrix of numbers, in the form before DLPack 1.
///
/// # Safety
/// As for [`tilewright_numbers`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_numbers_unversioned(
    rows: usize,
    columns: usize,
    tensor: *mut *mut ManagedTensor,
    message: *mut c_char,
    room: usize,
) -> i32 {
    let made = numbers(rows, columns).and_then(Export::into_raw_unversioned);
    // SAFETY: the caller's.
    answer(made.map(|raw| unsafe { *tensor = raw }), message, room)
}

/// Doubles a tensor, given in the form before DLPack 1, and lets it go.
///
/// # Safety
/// The tensor is handed over, its producer is done with it, and `room` bytes can be written at `message`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_double_unversioned(
    tensor: *mut ManagedTensor,
    message: *mut c_char,
    room: usize,
) -> i32 {
    let doubled = library().and_then(|library| {
        // SAFETY: the caller's.
        double(unsafe { Tensor::from_raw_unversioned(&library.stream, tensor) }?)
    });
    answer(doubled, message, room)
}

/// Doubles a tensor, given in the form of DLPack 1, and lets it go.
///
/// # Safety
/// As for [`tilewright_double_unversioned`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tilewright_double(
    tensor: *mut ManagedTensorVersioned,
    message: *mut c_char,
    room: usize,
) -> i32 {
    let doubled = library().and_then(|library| {
        // SAFETY: the caller's.
        double(unsafe { Tensor::from_raw(&library.stream, tensor) }?)
    });
    answer(doubled, message, room)
}
