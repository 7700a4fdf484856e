//! From the syntax tree of a PTX module to ops that a machine executes.
//!
//! ```
//! use tilewright_sim::program::{Kind, Program};
//! let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry scale(.param .u64 data)\n{\n\
//!             .reg .b64 %rd<2>;\n.reg .f32 %f<3>;\nld.param.u64 %rd1, [data];\nld.global.f32 %f1, [%rd1];\n\
//!             mul.f32 %f2, %f1, 0f40000000;\nst.global.f32 [%rd1], %f2;\nret;\n}\n";
//! let program = Program::decode(&tilewright_ptx::parse(text)?, text)?;
//! let scale = &program.functions[program.entry("scale").ok_or("no such kernel")?];
//! assert_eq!((scale.param_bytes, scale.registers, scale.code.len()), (8, 3, 5));
//! assert!(matches!(scale.code[4].kind, Kind::Exit));
//! assert_eq!(scale.instruction_text(2), "mul.f32 %f2, %f1, 0f40000000;");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contract
//!
//! * Nothing in a module panics. What has no meaning at all (names that are not declared, variables without size) is a
//!   [`ProgramError`]; an instruction that cannot be executed is a [`Kind::Unsupported`] op where it stands.
//! * Most instructions are one [`Op`]. A few are several with the same guard and line: moves of vectors and 128-bit registers, and
//!   calls that pass registers for parameters in memory.
//! * Modifiers are read as far as they say what an instruction does; whether a combination is legal for the target is the business of
//!   [`tilewright_ptx::check`].

mod decode;
mod error;
mod flow;
mod function;
mod initial;
mod layout;
mod live;
mod op;
mod operand;
mod scope;
mod shared;
pub mod window;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use tilewright_hardware::{Arch, WARP};
use tilewright_ptx::{Module, Target, Type, Version};

pub use error::ProgramError;
pub use live::Role;
pub use op::*;

use function::Decoder;
use layout::Layout;

/// A decoded module.
#[derive(Clone, Debug)]
pub struct Program {
    /// Kernels and device functions that have a body.
    pub functions: Vec<Function>,
    /// Variables in global and constant memory.
    pub variables: Vec<ModuleVariable>,
    /// Source files by the number that `.loc` uses.
    pub files: BTreeMap<u32, String>,
    /// `.target`
    pub target: Target,
    /// `.version`
    pub version: Version,
    /// The lines of the text.
    pub text: Arc<[String]>,
}

impl Program {
    /// Decodes a module that was parsed from a text.
    pub fn decode(module: &Module, text: &str) -> Result<Program, ProgramError> {
        let text: Arc<[String]> = text.lines().map(str::to_owned).collect();
        let layout = Layout::new(module)?;
        let functions = (0..layout.functions.len())
            .map(|index| Decoder::function(&layout, index, Arc::clone(&text)))
            .collect::<Result<Vec<_>, _>>()?;
        let Layout { variables, files, .. } = layout;
        Ok(Program { functions, variables, files, target: module.target, version: module.version, text })
    }

    /// The index of a kernel.
    pub fn entry(&self, name: &str) -> Option<usize> {
        self.functions.iter().position(|function| function.entry && function.name == name)
    }

    /// The index of the function at an address.
    pub fn function_at(&self, address: u64) -> Option<u32> {
        window::function_index(address).filter(|index| (*index as usize) < self.functions.len())
    }
}

/// Where a [`ModuleVariable`] lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemorySpace {
    /// `.global`
    Global,
    /// `.const`
    Const,
}

/// A variable in global or constant memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleVariable {
    /// Name.
    pub name: String,
    /// Global or constant.
    pub space: MemorySpace,
    /// Address, in its space as well as generic.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// Alignment.
    pub align: u32,
    /// Initial bytes, as many as its size, with all addresses filled in.
    pub init: Vec<u8>,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name.
    pub name: String,
    /// Type of an element.
    pub ty: Type,
    /// Offset into the parameters of a kernel, or into the frame of another function.
    pub offset: u32,
    /// Size; 0 if it is a register.
    pub bytes: u32,
    /// Alignment.
    pub align: u32,
    /// The register, if it is one.
    pub register: Option<Reg>,
}

/// A variable in the frame of a function: `.local`, or `.param` for calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameVariable {
    /// Name.
    pub name: String,
    /// Offset into the frame.
    pub offset: u32,
    /// Size.
    pub bytes: u32,
}

/// A variable of fixed size in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedVariable {
    /// Name.
    pub name: String,
    /// Offset into the shared memory of the block.
    pub offset: u32,
    /// Size.
    pub bytes: u32,
    /// Alignment.
    pub align: u32,
}

/// Dynamic shared memory: `.extern .shared x[]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicShared {
    /// The first of its names.
    pub name: String,
    /// Offset into the shared memory of the block.
    pub offset: u32,
    /// Alignment.
    pub align: u32,
}

/// A place in a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Key of [`Program::files`].
    pub file: u32,
    /// Line.
    pub line: u32,
    /// Column.
    pub column: u32,
}

/// What the directives of a function demand of launches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// `.reqntid`
    pub required_threads: Option<[u32; 3]>,
    /// `.maxntid`
    pub max_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`
    pub required_cluster: Option<[u32; 3]>,
    /// `.explicitcluster`
    pub explicit_cluster: bool,
    /// `.maxclusterrank`
    pub max_cluster_rank: Option<u32>,
    /// `.maxnreg`
    pub max_registers: Option<u32>,
    /// `.minnctapersm`
    pub min_blocks: Option<u32>,
}

/// A decoded kernel or device function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Name.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Parameters.
    pub params: Vec<Param>,
    /// Return values; kernels have none.
    pub returns: Vec<Param>,
    /// Bytes of the parameters of a kernel; 0 for other functions.
    pub param_bytes: u32,
    /// Registers in its window.
    pub registers: u32,
    /// Bits of each register, at most 64.
    pub register_bits: Vec<u8>,
    /// Predicates in its window.
    pub predicates: u32,
    /// Bytes of its frame, a multiple of 16.
    pub frame_bytes: u32,
    /// What lies in its frame, parameters included.
    pub locals: Vec<FrameVariable>,
    /// Variables in shared memory that it, or what it calls, uses.
    pub shared: Vec<SharedVariable>,
    /// Dynamic shared memory, if it or what it calls uses it.
    pub dynamic: Option<DynamicShared>,
    /// Bytes of the shared variables as hardware packs them.
    pub shared_bytes: u32,
    /// Where dynamic shared memory begins, or the variables end if there is none: how much a block needs at least.
    pub shared_end: u32,
    /// What it demands of launches.
    pub limits: Limits,
    /// Registers of 32 bits that are alive at the same time, at most; an estimate of what the assembler would use.
    pub live_registers: u32,
    /// The ops.
    pub code: Vec<Op>,
    /// The line of each op in the text.
    pub lines: Vec<u32>,
    /// The place of each op in the sources; where code was inlined, the place inside the inlined function.
    pub sources: Vec<Option<Source>>,
    /// The place of each op in the scheduling order: lanes of a diverged warp run the path with the smallest first.
    pub order: Vec<u32>,
    /// For each conditional branch, where its paths meet again at the latest; `None` if they need not, and for other ops.
    pub post_dominator: Vec<Option<Pc>>,
    text: Arc<[String]>,
}

impl Function {
    /// Registers of a thread when the assembler is done, about: it keeps to what the directives leave, and spills.
    pub fn assembled_registers(&self, arch: Arch) -> u32 {
        let most = arch.limits().max_registers_per_thread;
        let Limits { required_threads, max_threads, max_registers, min_blocks, .. } = &self.limits;
        let fits = required_threads.or(*max_threads).map_or(most, |block| {
            let threads =
                block.iter().copied().fold(1, u32::saturating_mul).min(arch.limits().threads_per_block);
            // Warps are dealt to four partitions, and registers to warps in units of eight for each thread.
            let threads =
                threads.max(1).next_multiple_of(4 * WARP).saturating_mul(min_blocks.unwrap_or(1).max(1));
            arch.limits().registers_per_sm / threads / 8 * 8
        });
        self.live_registers.min(max_registers.unwrap_or(most)).min(fits.max(8)).min(most)
    }

    /// The text of the statement that an op comes from, without comments and in one line.
    pub fn instruction_text(&self, pc: Pc) -> String {
        /// Longer statements are cut.
        const MOST_LINES: usize = 12;
        let first = self.lines.get(pc as usize).map_or(0, |line| *line as usize);
        let mut shown = String::new();
        for line in
            self.text.iter().skip(first.saturating_sub(1)).take(if first == 0 { 0 } else { MOST_LINES })
        {
            let code = line.split("//").next().unwrap_or_default();
            for word in code.split_whitespace() {
                if !shown.is_empty() {
                    shown.push(' ');
                }
                shown.push_str(word);
            }
            if code.contains([';', ':']) {
                break;
            }
        }
        shown
    }
}
