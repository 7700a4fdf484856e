//! What a launch costs the host.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr;

use tilewright_cuda::cudarc::driver::sys;
use tilewright_cuda::{Code, Context, CudaError, Kernel, LaunchConfig};

use crate::measure::{Bar, Entry, NANOSECONDS, Outcome, Settings, by_turns, seconds_each, times};
use crate::raw::ok;

pub(crate) const SAXPY: &str = include_str!("../../examples/kernels/saxpy.ptx");
pub(crate) const EMPTY: &str = "
.version 7.0
.target sm_52
.address_size 64
.visible .entry empty(.param .u32 number)
{
    ret;
}
";

/// Launches of one sample. The driver's queue holds about a thousand; a full one would make the host wait for the device.
const BATCH: usize = 500;

const THREADS: u32 = 128;

/// Loads the only kernel of a text of this benchmark.
pub(crate) fn kernel(context: &Context, ptx: &str) -> Result<Kernel, CudaError> {
    // SAFETY: the kernels of this benchmark stay within what they are given.
    unsafe { context.load(&Code::ptx(ptx).without_cache()) }?.only_kernel()
}

pub(crate) fn run(context: &Context, settings: &Settings) -> Outcome<Vec<Entry>> {
    let stream = context.stream()?;
    let config = LaunchConfig::new(1, THREADS);
    let samples = settings.choose(400, 40);
    let handle = stream.raw_handle();

    let empty = kernel(context, EMPTY)?;
    let one = by_turns(
        samples,
        || {
            stream.synchronize()?;
            seconds_each(BATCH, || Ok(empty.launch(&stream, &config, (7u32,))?))
        },
        || {
            stream.synchronize()?;
            let function = empty.raw_handle();
            seconds_each(BATCH, || {
                let mut number = 7u32;
                // SAFETY: the kernel has one parameter of 4 bytes.
                unsafe { launch(function, handle, &mut [(&raw mut number).cast::<c_void>()]) }
            })
        },
    )?;

    let saxpy = kernel(context, SAXPY)?;
    let x = stream.alloc_zeroed::<f32>(THREADS as usize)?;
    let mut y = stream.alloc_zeroed::<f32>(THREADS as usize)?;
    let addresses = (x.address(), y.address());
    let four = by_turns(
        samples,
        || {
            stream.synchronize()?;
            seconds_each(BATCH, || Ok(saxpy.launch(&stream, &config, (2.0f32, &x, &mut y, THREADS))?))
        },
        || {
            stream.synchronize()?;
            let function = saxpy.raw_handle();
            seconds_each(BATCH, || {
                let (mut a, (mut x, mut y), mut n) = (2.0f32, addresses, THREADS);
                let mut arguments = [
                    (&raw mut a).cast::<c_void>(),
                    (&raw mut x).cast::<c_void>(),
                    (&raw mut y).cast::<c_void>(),
                    (&raw mut n).cast::<c_void>(),
                ];
                // SAFETY: the parameters of the kernel; the buffers outlive the loop and are as long as n says.
                unsafe { launch(function, handle, &mut arguments) }
            })
        },
    )?;
    stream.synchronize()?;
    Ok(vec![
        times("launch: host cost, 1 argument", NANOSECONDS, one, Bar::Ratio(1.05)),
        times("launch: host cost, 4 arguments", NANOSECONDS, four, Bar::Ratio(1.05)),
    ])
}

/// # Safety
/// A pointer for each parameter, to as many bytes as it has; what the kernel reaches is live until it has run.
#[inline]
unsafe fn launch(
    function: sys::CUfunction,
    stream: sys::CUstream,
    arguments: &mut [*mut c_void],
) -> Outcome<()> {
    let arguments = arguments.as_mut_ptr();
    // SAFETY: the caller's.
    ok(unsafe {
        sys::cuLaunchKernel(function, 1, 1, 1, THREADS, 1, 1, 0, stream, arguments, ptr::null_mut())
    })
}
