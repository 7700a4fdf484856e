//! What the examples share: a device or a reason why not, kernels, and checks of what comes out.
//!
//! An example ends with 0 if all is well, 1 if something came out wrong, 2 if there is no device.
#![allow(dead_code, reason = "every example uses another part")]

use std::error::Error;
use std::process::ExitCode;

use tilewright_cuda::{Code, Context, CudaError, Module};

/// What an example returns.
pub(crate) type Outcome = Result<(), Box<dyn Error>>;

/// Runs an example on the first device.
pub(crate) fn run(example: impl FnOnce(&Context) -> Outcome) -> ExitCode {
    let context = match Context::new(0) {
        Ok(context) => context,
        Err(problem) => {
            println!("no device: {problem}\n{}", problem.remedy());
            return ExitCode::from(2);
        }
    };
    let device = context.device();
    println!("on {} (compute capability {})", device.name, device.compute_capability);
    match example(&context) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            println!("wrong: {problem}");
            if let Some(problem) = problem.downcast_ref::<CudaError>() {
                println!("{}", problem.remedy());
            }
            ExitCode::FAILURE
        }
    }
}

/// Loads a kernel file of the folder `kernels`.
#[allow(unsafe_code)]
pub(crate) fn load(context: &Context, ptx: &str) -> Result<Module, CudaError> {
    // SAFETY: these kernels touch what they are given, up to the lengths that they are given; all callers give true lengths.
    unsafe { context.load(&Code::ptx(ptx)) }
}

/// An error unless the condition holds.
pub(crate) fn expect(condition: bool, what: &str) -> Outcome {
    if condition { Ok(()) } else { Err(what.into()) }
}
