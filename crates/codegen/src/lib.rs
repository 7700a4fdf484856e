//! From the IR to PTX.
//!
//! [`compile`] takes a function that is optimised, verified and free of calls, and gives PTX as a tree and as text, with what a
//! launcher must know: the layout of the parameters, shared memory, launch bounds; and what a debugger must know: which line
//! comes from which op.
//!
//! ```
//! use tilewright_codegen::{Options, compile};
//! use tilewright_hardware::Arch;
//!
//! let module = tilewright_ir::parse(
//!     "func @twice (%x: ptr<global>, %n: u32) {
//!        %0 = special reg(tid.x) : u32
//!        %1 = cmp %0, %n cmp(lt) : bool
//!        if %1 then {
//!          %2 = const value(4) : u32
//!          %3 = mul_wide %0, %2 : u64
//!          %4 = ptr_add %x, %3 : ptr<global>
//!          %5 = load %4 : f32
//!          %6 = add %5, %5 : f32
//!          store %4, %6
//!        } else {
//!        }
//!      }",
//! )?;
//! let compiled = compile(&module.funcs[0], &Options::new(Arch::SM_90A))?;
//! assert!(compiled.text.contains("add.rn.f32"));
//! assert_eq!(compiled.signature[1].offset, 8);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contract
//!
//! * Every op of the IR has code, or an error that says what to do instead; nothing is dropped silently. `trace` costs nothing
//!   on a GPU: it becomes a label, see [`Note`](tilewright_ptx::Note).
//! * The text is a function of the IR and the options alone: registers and labels are numbered in the order of their definition.
//! * `.version` is the lowest and `.target` the plainest that the instructions allow, so that the code runs on as many drivers
//!   and chips as it can (with multicast copies, the chip's own target); see [`Options::exact_target`].
//! * Limits: code of one function; no calls, no textures. Pointers are assumed to be aligned to the size of what is accessed
//!   through them, up to 16 bytes.

mod analysis;
mod arith;
mod async_copy;
mod bits;
mod control;
mod convert;
mod emit;
mod error;
mod lower;
mod matrix;
mod memory;
mod module;
mod pointers;
mod registers;
mod sync;
mod system;
mod values;

use tilewright_hardware::Arch;
use tilewright_ir::{Func, Launch, Loc, Op, Type};

pub use error::CodegenError;

/// How to compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The architecture that the code must run on. It decides which instructions are used.
    pub arch: Arch,
    /// Whether the text says which line of Rust each instruction comes from (`.loc`).
    pub line_info: bool,
    /// Whether `.target` is `arch` itself, even where a plainer one would do.
    pub exact_target: bool,
}

impl Options {
    /// For an architecture, without line information, for the plainest target.
    #[must_use]
    pub fn new(arch: Arch) -> Options {
        Options { arch, line_info: false, exact_target: false }
    }
}

/// A compiled kernel.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// The PTX as a tree.
    pub module: tilewright_ptx::Module,
    /// The PTX as text.
    pub text: String,
    /// The name of the kernel in the text.
    pub entry: String,
    /// Shared memory of a block.
    pub shared: SharedMemory,
    /// Where lines of the text come from, in ascending order.
    pub lines: Vec<Origin>,
    /// The parameters in order.
    pub signature: Vec<ParamInfo>,
    /// How the kernel is launched, as far as it is fixed.
    pub launch: Launch,
    /// Whether it waits by itself for the kernels before it, so that a launch may let it start before they have ended.
    pub overlaps: bool,
}

impl Compiled {
    /// Where a line of the text (from 1) comes from.
    ///
    /// ```
    /// # use tilewright_codegen::{Options, compile};
    /// let module = tilewright_ir::parse("func @k () {\n  trap loc(\"src/lib.rs\":3:5)\n}")?;
    /// let compiled = compile(&module.funcs[0], &Options::new(tilewright_hardware::Arch::SM_80))?;
    /// let line = compiled.text.lines().position(|line| line.contains("trap")).unwrap_or_default() + 1;
    /// let origin = compiled.origin(line as u32).ok_or("no op")?;
    /// assert_eq!(module.funcs[0].locations.get(origin.loc).map(|at| at.line), Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn origin(&self, line: u32) -> Option<Origin> {
        let at = self.lines.binary_search_by_key(&line, |origin| origin.line).ok()?;
        self.lines.get(at).copied()
    }
}

/// Where a line of PTX comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The line in the text, from 1.
    pub line: u32,
    /// The op.
    pub op: Op,
    /// The place of the op in the source.
    pub loc: Loc,
}

/// The shared memory of a block: declared in the kernel, or asked for at launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SharedMemory {
    /// Bytes that the kernel declares.
    pub fixed: u32,
    /// Bytes that the launch must ask for.
    pub dynamic: u32,
    /// The alignment of the whole.
    pub align: u32,
}

/// A parameter as the launcher must pass it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamInfo {
    /// Its name in the source.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// Where it lies in the buffer of parameters.
    pub offset: u32,
    /// Its size.
    pub bytes: u32,
    /// Its alignment.
    pub align: u32,
}

/// Compiles a kernel. `func` is correct ([`tilewright_ir::verify`]) and contains no calls.
///
/// # Errors
/// If an op has no instruction for its types or attributes, or the code needs more than [`Options::arch`] has.
pub fn compile(func: &Func, options: &Options) -> Result<Compiled, CodegenError> {
    module::compile(func, options)
}
