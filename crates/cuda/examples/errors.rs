//! Errors: what was found, what was expected, what to do; and a fault of a kernel, in a process of its own.

mod common;

use std::process::{Command, ExitCode};

use common::{Outcome, expect, load, run};
use tilewright_cuda::{Context, CudaError, LaunchConfig};

const SAXPY: &str = include_str!("kernels/saxpy.ptx");
const CRASH: &str = include_str!("kernels/crash.ptx");

/// The argument with which this program calls itself.
const CHILD: &str = "fault";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(CHILD) {
        return run(fault);
    }
    run(|context| {
        arguments(context)?;
        shapes(context)?;
        code(context)?;
        // A fault loses the context of its process, so it happens in another one.
        let child = Command::new(std::env::current_exe()?).arg(CHILD).output()?;
        print!("{}", String::from_utf8_lossy(&child.stdout));
        expect(child.status.success(), "the fault was not reported as it should be")
    })
}

/// Prints an error that must be one.
fn show<T>(result: Result<T, CudaError>) -> Outcome {
    let error = result.err().ok_or("accepted")?;
    println!("  {error}\n    -> {}", error.remedy());
    Ok(())
}

fn arguments(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    let config = LaunchConfig::new(1, 32);
    let x = stream.upload(&[1.0f32; 4])?;
    let mut y = stream.upload(&[1.0f32; 4])?;
    println!("arguments:");
    show(saxpy.launch(&stream, &config, (1.0f32, &x, &mut y)))?;
    show(saxpy.launch(&stream, &config, (1.0f64, &x, &mut y, 4u32)))?;
    show(saxpy.launch(&stream, &config, (1.0f32, &x, &y, 4u32)))?;
    show(saxpy.launch(&stream, &config, (1.0f32, 0x1000u64, &mut y, 4u32)))?;
    show(stream.copy(&x, y.slice_mut(..2)?))?;
    show(x.slice(3..9))?;
    // None of that reached the device.
    expect(stream.download(&y)? == [1.0; 4], "something was launched")
}

fn shapes(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    let x = stream.upload(&[1.0f32; 4])?;
    let mut y = stream.upload(&[1.0f32; 4])?;
    let mut launch = |config: LaunchConfig| saxpy.launch(&stream, &config, (1.0f32, &x, &mut y, 4u32));
    println!("shapes:");
    show(launch(LaunchConfig::new(1, 2048)))?;
    show(launch(LaunchConfig::new(0, 32)))?;
    show(launch(LaunchConfig::new(1, 32).shared(1 << 20)))?;
    show(launch(LaunchConfig::grid(1)))
}

fn code(context: &Context) -> Outcome {
    println!("code:");
    show(load(context, &SAXPY.replace("fma.rn.f32", "fma.rn.f33")))?;
    show(load(context, SAXPY)?.kernel("daxpy"))
}

/// The fault is reported where the host next waits, with the launches that may have caused it.
fn fault(context: &Context) -> Outcome {
    let stream = context.stream()?;
    let saxpy = load(context, SAXPY)?.kernel("saxpy")?;
    let crash = load(context, CRASH)?.kernel("crash")?;
    let x = stream.upload(&[1.0f32; 4])?;
    let mut y = stream.upload(&[1.0f32; 4])?;
    let config = LaunchConfig::new(1, 32);
    saxpy.launch(&stream, &config, (1.0f32, &x, &mut y, 4u32))?;
    stream.synchronize()?;
    crash.launch(&stream, &config, ())?;
    println!("a fault:");
    let error = stream.synchronize().err().ok_or("no fault")?;
    println!("  {error}\n    -> {}", error.remedy());
    let CudaError::Fault(fault) = error else { return Err("not reported as a fault".into()) };
    expect(fault.launches.iter().any(|launch| &*launch.kernel == "crash"), "the suspect is not named")?;
    println!("afterwards:");
    show(stream.upload(&[1.0f32; 4]))
}
