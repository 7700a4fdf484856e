//! What a device cannot do, or was asked wrongly.

use tilewright_compiler::CompileError;
use tilewright_cuda::CudaError;
use tilewright_hardware::{Arch, Element, HardwareError};
use tilewright_sim::{Finding, SimError};
use tilewright_tile::interp::InterpError;

/// Why a device refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The simulator cannot run it.
    #[error(transparent)]
    Simulator(#[from] SimError),
    /// The driver or the GPU refuses, or a kernel on it has ended in a fault.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// The kernel cannot be staged.
    #[error(transparent)]
    Stage(#[from] tilewright_lang::Error),
    /// The kernel does not compile for this device.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A tensor map breaks a rule of the hardware.
    #[error(transparent)]
    Hardware(#[from] HardwareError),
    /// The number of arguments is wrong.
    #[error("kernel `{kernel}` was given {found} arguments, expected {expected}: {parameters}")]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// Arguments.
        found: usize,
        /// Parameters.
        expected: usize,
        /// What the parameters are.
        parameters: String,
    },
    /// An argument is not what its parameter needs.
    #[error(
        "argument {number} of kernel `{kernel}` (parameter `{name}`): found {found}, expected {expected}"
    )]
    Argument {
        /// The kernel.
        kernel: String,
        /// Position, from 1.
        number: usize,
        /// Name of the parameter.
        name: String,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
    },
    /// A kernel of the tile level where one for threads belongs.
    #[error(
        "kernel `{kernel}` works on tiles: found `Device::compile` or `cached`, expected `Device::program` or `cached_program`"
    )]
    TileKernel {
        /// The kernel.
        kernel: String,
    },
    /// A kernel for threads where one of the tile level belongs.
    #[error(
        "kernel `{kernel}` has no tiles: found `Device::program` or `cached_program`, expected `Device::compile` or `cached`"
    )]
    ThreadKernel {
        /// The kernel.
        kernel: String,
    },
    /// A program on the CPU went wrong.
    #[error(transparent)]
    Interpreter(#[from] InterpError),
    /// Two views of a launch share elements of which some are written.
    #[error(
        "arguments `{written}` and `{other}` of kernel `{kernel}` overlap in memory: found {found}, expected views that share no element, \
         or for a kernel in place the very same view twice, once to read and once to write"
    )]
    Overlap {
        /// The kernel.
        kernel: String,
        /// The parameter that is written.
        written: String,
        /// The parameter that overlaps it.
        other: String,
        /// The two views.
        found: String,
    },
    /// A grid that is not known, or cannot be.
    #[error("the grid of kernel `{kernel}`: found {found}, expected {expected}")]
    Grid {
        /// The kernel.
        kernel: String,
        /// What was found.
        found: String,
        /// What would do.
        expected: String,
    },
    /// An axis of a view that a kernel does not have.
    #[error("axis {axis} of view `{view}` of kernel `{kernel}`: found no such axis, expected one of {known}")]
    NoAxis {
        /// The kernel.
        kernel: String,
        /// The view.
        view: String,
        /// The axis.
        axis: usize,
        /// What views there are.
        known: String,
    },
    /// A part of a view that it does not have.
    #[error(
        "a slice of a view: found {start} to {end} along axis {axis}, expected a range inside of {extents:?}"
    )]
    ViewSlice {
        /// The axis.
        axis: usize,
        /// The first index.
        start: usize,
        /// Behind the last.
        end: usize,
        /// Extents of the view.
        extents: Vec<u64>,
    },
    /// The block is not known.
    #[error("kernel `{kernel}` does not say how many threads a block has; give the number with `with_block`")]
    NoBlock {
        /// The kernel.
        kernel: String,
    },
    /// The block or cluster is not the one that the kernel was compiled for.
    #[error(
        "{what} of kernel `{kernel}`: found {found:?}, expected {expected:?}, which the kernel was compiled for"
    )]
    Fixed {
        /// The kernel.
        kernel: String,
        /// Block or cluster.
        what: &'static str,
        /// What was given.
        found: [u32; 3],
        /// What the kernel fixes.
        expected: [u32; 3],
    },
    /// Something that only a GPU can do.
    #[error("found {device}, expected a GPU; `Device::cuda` opens one")]
    NoGpu {
        /// What the device is.
        device: String,
    },
    /// Memory of one device was given to another.
    #[error("found a buffer of another device, expected one of this; upload the data here")]
    OtherDevice,
    /// A buffer whose elements are of another type than asked for.
    #[error("a buffer of {expected}: found {found} asked for, expected {expected}")]
    Element {
        /// What was asked for.
        found: Element,
        /// What the buffer has.
        expected: Element,
    },
    /// Memory that a prepared launch needs and that nobody holds any more.
    #[error("found memory that was given up, expected it to be held until the launch")]
    Gone,
    /// Contents that do not fill their buffer exactly.
    #[error("contents of a buffer: found {found} elements, expected {expected}, as many as the buffer has")]
    Length {
        /// What was given.
        found: usize,
        /// Elements of the buffer.
        expected: usize,
    },
    /// A part of a buffer that it does not have.
    #[error("a slice of a buffer: found elements {start} to {end}, expected a range inside of its {len}")]
    Slice {
        /// The first element.
        start: usize,
        /// Behind the last.
        end: usize,
        /// Elements of the buffer.
        len: usize,
    },
    /// A pack that has no code for this device.
    #[error(
        "nothing for {arch} under the name `{name}` in the pack: found {}, expected one of these",
        list(known)
    )]
    NotPacked {
        /// What was asked for.
        name: String,
        /// The chip.
        arch: Arch,
        /// What the pack has.
        known: Vec<String>,
    },
    /// A packed kernel that cannot be read.
    #[error("packed kernel `{name}`: found {found}, expected {expected}")]
    Packed {
        /// The kernel.
        name: String,
        /// What is wrong.
        found: String,
        /// What should be there.
        expected: &'static str,
    },
    /// A kernel that would have to be compiled, on a device that must not.
    #[error(
        "kernel `{kernel}` for {arch}{} is in no pack of the device, and nothing else was allowed: found {found}, expected a pack \
         with it; do the same on a `Recorder` and write what it keeps",
        of(facts)
    )]
    Unpacked {
        /// The kernel.
        kernel: String,
        /// The chip.
        arch: Arch,
        /// What is true of its arguments.
        facts: String,
        /// What packs have that comes nearest.
        found: &'static str,
    },
    /// More memory than can be.
    #[error("found {len} elements of type {element}, expected what fits into the memory of the device")]
    Memory {
        /// Elements.
        len: usize,
        /// Their type.
        element: Element,
    },
    /// A tensor map over a buffer of another type.
    #[error("the tensor map: found a buffer of {found}, expected {expected}, as the specification says")]
    MapElement {
        /// Of the buffer.
        found: Element,
        /// Of the specification.
        expected: Element,
    },
    /// A tensor map over more than the buffer has.
    #[error(
        "the tensor map: a tensor of {dims:?} needs {} bytes, but the buffer has {found}",
        .needed.map_or_else(|| "more than 2^64".to_owned(), |bytes| bytes.to_string())
    )]
    MapBounds {
        /// Extents.
        dims: Vec<u64>,
        /// Bytes of the tensor; none if that is no number of 64 bits.
        needed: Option<u64>,
        /// Bytes of the buffer.
        found: u64,
    },
    /// A run that should have been clean was not.
    #[error("{} in kernel `{kernel}`; the first: {}", count(findings), first(findings))]
    Findings {
        /// The kernel.
        kernel: String,
        /// What was found.
        findings: Vec<Finding>,
    },
}

fn of(facts: &str) -> String {
    if facts.is_empty() { String::new() } else { format!(" and arguments of which this is true: {facts}") }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "no kernels".to_owned() } else { names.join(", ") }
}

fn count(findings: &[Finding]) -> String {
    match findings.len() {
        1 => "1 finding".to_owned(),
        n => format!("{n} findings"),
    }
}

/// The first finding on one line.
fn first(findings: &[Finding]) -> String {
    let Some(finding) = findings.first() else { return "none".to_owned() };
    let place = match &finding.first.source {
        Some(source) => format!("{}:{}:{}", source.file, source.line, source.column),
        None => format!("line {} of the PTX", finding.first.line),
    };
    format!("{}: {} ({place})", finding.kind, finding.message)
}
