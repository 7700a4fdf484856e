//! What can go wrong, and what to do about it.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// Why the driver, a device or a call cannot do what was asked.
///
/// [`CudaError::remedy`] says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The driver library is not on this machine.
    #[error("no NVIDIA driver: the library `{library}` was not found or cannot be loaded")]
    NoDriver {
        /// The name that the loader looked for.
        library: &'static str,
    },
    /// The library was found, but a function is missing from it.
    #[error("the NVIDIA driver has no function `{symbol}`")]
    MissingSymbol {
        /// The function.
        symbol: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {name} ({code}), {text}")]
    Call {
        /// The function of the driver.
        call: &'static str,
        /// CUDA's number of the error.
        code: u32,
        /// CUDA's name of the error.
        name: String,
        /// CUDA's text for it.
        text: String,
    },
    /// There is no device of that number.
    #[error("no device {ordinal}: found {}, expected a number below that", devices(*.count))]
    NoDevice {
        /// What was asked for.
        ordinal: u32,
        /// How many there are.
        count: u32,
    },
    /// Something that ran earlier failed, and the context with it.
    #[error("{0}")]
    Fault(Arc<Fault>),
    /// The context was lost by an earlier fault; nothing works in it any more.
    #[error("{call}: the context of this process is lost since an earlier fault; the fault was: {first}")]
    ContextLost {
        /// The function of the driver that was called now.
        call: &'static str,
        /// What happened.
        first: Arc<Fault>,
    },
    /// A launch that the device refused.
    #[error("kernel `{kernel}` was not launched: {cause}")]
    Launch {
        /// The kernel.
        kernel: Arc<str>,
        /// The driver's reason.
        cause: Box<CudaError>,
    },
    /// A stream cannot have that priority.
    #[error("the priority of a stream: found {found}, expected {greatest} (greatest) to {least} (least)")]
    Priority {
        /// What was given.
        found: i32,
        /// The least there is.
        least: i32,
        /// The greatest there is.
        greatest: i32,
    },
    /// A launch has no possible shape.
    #[error("{what} of kernel `{kernel}`: found {found}, expected {expected}")]
    Config {
        /// The kernel.
        kernel: Arc<str>,
        /// What of the launch.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
    },
    /// The number of arguments is wrong.
    #[error("kernel `{kernel}` was given {found} arguments, expected {expected}: {parameters}")]
    ArgumentCount {
        /// The kernel.
        kernel: Arc<str>,
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
        kernel: Arc<str>,
        /// Position, from 1.
        number: usize,
        /// Name of the parameter.
        name: String,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
    },
    /// A module has no such kernel.
    #[error("no kernel `{name}`: found {}", if known.is_empty() { "none".to_owned() } else { known.join(", ") })]
    NoKernel {
        /// What was asked for.
        name: String,
        /// The kernels of the module.
        known: Vec<String>,
    },
    /// A module has no such variable, or one of another size.
    #[error("variable `{name}`: found {found}, expected {expected}")]
    Global {
        /// What was asked for.
        name: String,
        /// What there is.
        found: String,
        /// What was expected.
        expected: String,
    },
    /// Code that cannot be loaded on this device.
    #[error("{what}: found {found}, expected {expected}")]
    Code {
        /// What of the code.
        what: &'static str,
        /// What it is.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// The driver's compiler refused PTX.
    #[error("the driver did not compile the PTX: {cause}{}{log}", if log.is_empty() { "" } else { "\n" })]
    Compile {
        /// The driver's reason.
        cause: Box<CudaError>,
        /// Its log.
        log: String,
    },
    /// NVRTC is not on this machine.
    #[error("no NVRTC, the library that compiles CUDA C++: tried {}", tried.join(", "))]
    NoNvrtc {
        /// The names that were looked for.
        tried: Vec<String>,
    },
    /// NVRTC refused a program.
    #[error("{call} failed: {text} ({code}){}{log}", if log.is_empty() { "" } else { "\n" })]
    Nvrtc {
        /// The function of NVRTC.
        call: &'static str,
        /// NVRTC's number of the error.
        code: u32,
        /// NVRTC's text for it.
        text: String,
        /// The compiler's log.
        log: String,
    },
    /// More memory was asked for than there is.
    #[error("no room for {bytes} bytes: {free} of {total} bytes are free on device {device}")]
    OutOfMemory {
        /// What was asked for.
        bytes: u64,
        /// What the device has left.
        free: u64,
        /// What the device has.
        total: u64,
        /// The device.
        device: u32,
    },
    /// A length is wrong.
    #[error("{what}: found {found} elements, expected {expected}")]
    Length {
        /// Which.
        what: &'static str,
        /// What was given.
        found: usize,
        /// What would do.
        expected: usize,
    },
    /// A range that is not inside.
    #[error("found the range {start}..{end}, expected one within 0..{len}")]
    Range {
        /// First element.
        start: usize,
        /// One past the last.
        end: usize,
        /// Elements.
        len: usize,
    },
    /// Memory or streams of one device were given to another.
    #[error("{what}: found device {found}, expected device {expected}; copy the data there first")]
    OtherDevice {
        /// What was given.
        what: &'static str,
        /// Where it is.
        found: u32,
        /// Where it should be.
        expected: u32,
    },
    /// Not while a stream is being captured, or only then.
    #[error("{what}: the stream is {}being captured; {hint}", if *.capturing { "" } else { "not " })]
    Capture {
        /// What was asked for.
        what: &'static str,
        /// Whether it is.
        capturing: bool,
        /// What to do.
        hint: &'static str,
    },
    /// Host memory that the device would use is in use by the host.
    #[error("{what} is in use by the host; let go of what its `read` or `write` returned first")]
    HostBusy {
        /// Which memory.
        what: &'static str,
    },
    /// Memory that was borrowed from another library for a time has gone back to it.
    #[error(
        "memory that another library lent was used after it went back; found a graph or a tensor map that still names it"
    )]
    Returned,
    /// Memory of another library, or for one, that is not of the kind that can be handed over.
    #[error("{what}: found {found}, expected {expected}")]
    Handover {
        /// What of it.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        expected: String,
    },
    /// Rows and columns are wrong.
    #[error("{what}: found {found_rows} rows of {found_columns}, expected {rows} rows of {columns}")]
    Shape {
        /// Which.
        what: &'static str,
        /// Rows that were given.
        found_rows: usize,
        /// Columns that were given.
        found_columns: usize,
        /// Rows that would do.
        rows: usize,
        /// Columns that would do.
        columns: usize,
    },
    /// A tensor map breaks a rule of the copy engine.
    #[error("tensor map, {what}: found {found}, expected {expected}")]
    TensorMap {
        /// Which rule.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// A tensor map that the description of the hardware refuses.
    #[error(transparent)]
    Hardware(#[from] tilewright_hardware::HardwareError),
    /// The device cannot do this.
    #[error("device {device} cannot do this: {what}")]
    Unsupported {
        /// The device.
        device: u32,
        /// What it lacks.
        what: &'static str,
    },
    /// Two operations of a graph use the same memory, one writes, and nothing says which comes first.
    #[error(
        "{first} and {second} of a graph meet in {memory}, and neither comes before the other; give one of them as a dependency of \
         the other"
    )]
    GraphOrder {
        /// The operation that was added first, and what it does there.
        first: String,
        /// The other.
        second: String,
        /// Where they meet.
        memory: String,
    },
    /// Something that a graph does not take.
    #[error("{what}: found {found}, expected {expected}")]
    Graph {
        /// What was asked for.
        what: &'static str,
        /// What was given.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// A graph that is ready to run cannot become another one.
    #[error("the graph was not updated: {reason}{}", node.as_ref().map(|node| format!(", {node}")).unwrap_or_default())]
    GraphUpdate {
        /// Why.
        reason: &'static str,
        /// The node of the new graph that is the reason, if one is.
        node: Option<String>,
    },
    /// Peers that cannot reach each other.
    #[error(
        "device {from} cannot reach the memory of device {to}; copy through `Stream::copy`, which takes the long way"
    )]
    NoPeerAccess {
        /// Who wants to.
        from: u32,
        /// Whose memory.
        to: u32,
    },
}

/// A fault of something that ran asynchronously, with the launches that may have caused it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The call that heard of it first; it is not the cause.
    pub call: &'static str,
    /// CUDA's number of the error.
    pub code: u32,
    /// CUDA's name of the error.
    pub name: String,
    /// CUDA's text for it.
    pub text: String,
    /// Launches since the last time that their streams were known to be well, oldest first.
    pub launches: Vec<LaunchRecord>,
    /// How many more there were before these.
    pub forgotten: u64,
}

/// A launch that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchRecord {
    /// The kernel; or what a graph is.
    pub kernel: Arc<str>,
    /// Blocks; zeros for a graph.
    pub grid: [u32; 3],
    /// Threads of a block; zeros for a graph.
    pub block: [u32; 3],
    /// The number of the stream.
    pub stream: u64,
}

impl fmt::Display for LaunchRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([gx, gy, gz], [bx, by, bz]) = (self.grid, self.block);
        if self.block == [0; 3] {
            return write!(f, "{} (stream {})", self.kernel, self.stream);
        }
        write!(f, "`{}` ({gx}x{gy}x{gz} blocks of {bx}x{by}x{bz}, stream {})", self.kernel, self.stream)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an earlier operation failed, {} heard of it: {} ({}), {}",
            self.call, self.name, self.code, self.text
        )?;
        match self.launches.as_slice() {
            [] => write!(f, "; no launch was pending"),
            [one] if self.forgotten == 0 => write!(f, "; the launch pending then: {one}"),
            many => {
                write!(f, "; {} launches were pending, the latest:", many.len() as u64 + self.forgotten)?;
                for (i, launch) in many.iter().rev().take(8).enumerate() {
                    write!(f, "{} {launch}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
        }
    }
}

/// Codes after which nothing works in a context any more (CUDA driver API, `CUresult`: those whose text says that the process must be
/// terminated and relaunched).
const STICKY: [u32; 11] = [214, 220, 221, 700, 702, 710, 714, 715, 716, 717, 718];

/// Launch failure: sticky as well, kept apart because it also comes for launches that never began.
const LAUNCH_FAILED: u32 = 719;

pub(crate) fn is_sticky(code: u32) -> bool {
    code == LAUNCH_FAILED || STICKY.contains(&code)
}

impl CudaError {
    /// CUDA's number of the error, where it came from the driver.
    pub fn code(&self) -> Option<u32> {
        match self {
            CudaError::Call { code, .. } => Some(*code),
            CudaError::Fault(fault) => Some(fault.code),
            CudaError::ContextLost { first, .. } => Some(first.code),
            CudaError::Launch { cause, .. } | CudaError::Compile { cause, .. } => cause.code(),
            CudaError::OutOfMemory { .. } => Some(2),
            _ => None,
        }
    }

    /// Whether the context is of no use any more.
    pub fn is_sticky(&self) -> bool {
        matches!(self, CudaError::Fault(_) | CudaError::ContextLost { .. })
            || self.code().is_some_and(is_sticky)
    }

    /// What to do about it, in one sentence.
    pub fn remedy(&self) -> String {
        match self {
            CudaError::NoDriver { .. } => {
                "install the NVIDIA driver, or go on without: work runs on the CPU".into()
            }
            CudaError::MissingSymbol { .. } => {
                "update the driver; a stub library from a CUDA toolkit on the library path gives this too".into()
            }
            CudaError::Fault(_) | CudaError::ContextLost { .. } => {
                "run the suspected kernel in the simulator (`tilewright sim`) or under compute-sanitizer; this process must be \
                 restarted to use the device again"
                    .into()
            }
            CudaError::OutOfMemory { .. } => {
                "free buffers, use smaller ones, or let pools give back what they hold (`Context::trim`)".into()
            }
            CudaError::Compile { .. } => "the log names the line; update the driver if it does not know the instruction".into(),
            CudaError::Launch { cause, .. } => cause.remedy(),
            CudaError::NoNvrtc { .. } => {
                "install NVRTC (the toolkit, or the Python wheel `nvidia-cuda-nvrtc`) or name it with TILEWRIGHT_NVRTC".into()
            }
            CudaError::Nvrtc { .. } => "correct the program; the log names the line".into(),
            CudaError::GraphOrder { .. } => "add the dependency that the message names".into(),
            CudaError::GraphUpdate { .. } => "instantiate the new graph and launch that".into(),
            CudaError::NoDevice { .. } => "check CUDA_VISIBLE_DEVICES and `nvidia-smi`".into(),
            CudaError::Call { code, .. } => match code {
                34 => "a stub of the CUDA toolkit was loaded; remove its `stubs` folder from the library path".into(),
                100 => "no GPU is visible; check CUDA_VISIBLE_DEVICES, the container's GPU option and `nvidia-smi`".into(),
                209 | 300 => "this code is for another device; load PTX, or a cubin for this one".into(),
                222 => "the PTX is newer than the driver; update the driver".into(),
                701 => "the block needs more registers or shared memory than there are; use fewer threads".into(),
                802 | 803 | 999 => "driver and kernel module do not match or are not ready; reload the module or restart".into(),
                _ => "run `nvidia-smi`; if that fails too, the driver installation is at fault".into(),
            },
            _ => "correct the argument that the message names".into(),
        }
    }
}

fn devices(count: u32) -> String {
    match count {
        1 => "1 device".to_owned(),
        n => format!("{n} devices"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_latest_launches_first() {
        let launch = |kernel: &str| LaunchRecord {
            kernel: kernel.into(),
            grid: [2, 1, 1],
            block: [64, 1, 1],
            stream: 3,
        };
        let fault = |launches: Vec<LaunchRecord>, forgotten| Fault {
            call: "cuStreamSynchronize",
            code: 700,
            name: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
            text: "an illegal memory access was encountered".into(),
            launches,
            forgotten,
        };
        let one = fault(vec![launch("a")], 0).to_string();
        assert!(one.ends_with("; the launch pending then: `a` (2x1x1 blocks of 64x1x1, stream 3)"), "{one}");
        let two = fault(vec![launch("a"), launch("b")], 5).to_string();
        assert!(two.contains("; 7 launches were pending, the latest: `b` (2x"), "{two}");
        let graph = LaunchRecord { kernel: "a graph with kernel `a`".into(), block: [0; 3], ..launch("") };
        assert_eq!(graph.to_string(), "a graph with kernel `a` (stream 3)");
        assert!(fault(vec![], 0).to_string().ends_with("; no launch was pending"));
        assert!(CudaError::Fault(Arc::new(fault(vec![], 0))).is_sticky());
    }
}
