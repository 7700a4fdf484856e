//! [`Recipe`]: the launches that compute a product, with everything but the memory.
//!
//! Kernels are named by a key and staged when somebody needs them; arguments are bound to parameters *by name*. Whoever has a device
//! (a GPU, the simulator) puts in the memory and launches: this crate knows no driver.

use std::fmt;
use std::sync::Arc;

use tilewright_lang::{Error, Kernel};

/// Blocks of a grid along its first axis, at most.
pub(super) const MOST_BLOCKS: u64 = 0x7fff_ffff;

/// Memory that a product takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The left factor, or the addresses of the left factors.
    A,
    /// The right factor.
    B,
    /// The matrix that is added.
    C,
    /// The result.
    D,
    /// Scratch memory, [`Recipe::workspace`] bytes, at a multiple of 256 bytes.
    Workspace,
    /// An operand of the epilogue, by name.
    Extra(String),
}

/// What a parameter of a kernel gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Binding {
    /// A number that is known.
    U32(u32),
    /// A number that is known.
    U64(u64),
    /// A number of the run, by name: f32, or f64 if the product accumulates so.
    Scalar(String),
    /// An address: so many bytes into an operand.
    Pointer(Operand, u64),
    /// A tensor in an operand as the copy engine sees it.
    Map(MapBinding),
}

/// A tensor as the copy engine sees it. Its box is the kernel's own ([`Kernel::tensor_map`]), perhaps shortened.
#[derive(Clone, Debug, PartialEq)]
pub struct MapBinding {
    /// The memory.
    pub operand: Operand,
    /// Where in it, in bytes.
    pub offset: u64,
    /// Extents in elements, innermost first.
    pub dims: Vec<u64>,
    /// Bytes between neighbours of each dimension but the innermost.
    pub strides: Vec<u64>,
    /// A dimension in which the box is smaller than the kernel's, and its extent there.
    pub shortened: Option<(usize, u32)>,
}

/// A function that stages a kernel.
pub type Stage = Arc<dyn Fn() -> Result<Kernel, Error> + Send + Sync>;

/// A kernel that is staged on demand.
#[derive(Clone)]
pub struct KernelSource {
    /// Everything that decides what is staged, as text: equal keys stage equal kernels.
    pub key: String,
    /// Stages it.
    pub stage: Stage,
}

impl fmt::Debug for KernelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

/// One launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The kernel.
    pub kernel: KernelSource,
    /// Blocks.
    pub grid: [u32; 3],
    /// Whether it pays to let it begin while the launch before it ends. Its kernel waits before it touches what others write.
    pub overlaps: bool,
    /// What its parameters get, by name, in any order.
    pub bindings: Vec<(String, Binding)>,
}

impl Launch {
    /// A launch that begins as early as its kernel allows.
    #[must_use]
    pub fn new(kernel: KernelSource, grid: [u32; 3], bindings: Vec<(String, Binding)>) -> Launch {
        Launch { kernel, grid, overlaps: true, bindings }
    }
}

/// The launches of a product, in order.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// What to launch. Nothing if nothing is written: results without elements.
    pub launches: Vec<Launch>,
    /// Bytes of scratch memory. Every run may find anything there.
    pub workspace: u64,
    /// Leading bytes of the workspace that must be zero before the first run. Every run leaves them so.
    pub zeroed: u64,
}
