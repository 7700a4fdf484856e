//! What a launcher must know of a kernel: its parameters, what it does with them, and what it asks of the launch.
//!
//! ```
//! use tilewright_ptx::{Access, ParameterKind, PointerSpace, parse};
//!
//! let module = parse(
//!     ".version 8.0\n.target sm_80\n.address_size 64\n\
//!      .visible .entry copy(.param .u64 from, .param .u64 to, .param .u64 extra)\n.reqntid 128\n{\n\
//!      .reg .b64 %rd<5>;\n.reg .b32 %r<2>;\n\
//!      ld.param.u64 %rd1, [from];\nld.param.u64 %rd2, [to];\ncvta.to.global.u64 %rd3, %rd1;\n\
//!      ld.global.u32 %r1, [%rd3];\nst.global.u32 [%rd2], %r1;\nret;\n}\n",
//! )?;
//! let [copy] = &module.signatures()[..] else { panic!("one kernel") };
//! assert_eq!(copy.required_block, Some([128, 1, 1]));
//! assert_eq!(copy.parameters[0].kind, ParameterKind::Pointer(PointerSpace::Global));
//! let access: Vec<Access> = copy.parameters.iter().map(|parameter| parameter.access).collect();
//! assert_eq!(access, [Access::Read, Access::Write, Access::Unused]);
//! assert_eq!(copy.to_string().parse(), Ok(copy.clone()));
//! # Ok::<(), tilewright_ptx::PtxError>(())
//! ```
//!
//! # Contract
//!
//! * Memory that the kernel may write is never called [`Access::Read`] or [`Access::Unused`] in the parameter through
//!   which it is reached, and memory that it may read is never called [`Access::Write`]; where that cannot be told, the
//!   access is [`Access::Unknown`]. An access says nothing of memory that is reached through pointers *in* memory.
//! * [`Access::Unused`] means that no instruction names the parameter, so that any value may be passed.
//!
//! # Limits
//!
//! * A pointer that is stored, to shared memory, to the stack or as an argument of a call, too, is not followed: its
//!   access is unknown. So is that of a structure by value.
//! * A 64-bit parameter that is added to a pointer from memory without being scaled may be a pointer itself (and what is
//!   in memory an index), and so may one that is added to a parameter of which nothing else says that it is a pointer:
//!   [`ParameterKind::Either`].
//! * A pointer that is multiplied or shifted left (bits hidden above the address) is taken for a number.
//! * Parameters are taken for separate objects: an address of one that is moved into the next is not seen.

mod effect;
mod family;
mod flow;
mod names;
mod shared;
mod text;

use crate::ast::{Directive, Function, FunctionKind, Item, Module, Space, Variable};
use crate::words::{Class, Type};
use flow::Flow;
pub use text::{signatures_from_text, signatures_to_text};

/// A kernel as a launcher sees it; see the head of the [module](self).
///
/// The text of [`Display`](std::fmt::Display) has a line for the kernel and one for each parameter, and parses back:
///
/// ```
/// let text = "kernel scale block 256,1,1 max-block - cluster - max-cluster - shared 0 dynamic 0\n\
///             param data 8 8 pointer:global read-write\n\
///             param factor 4 4 scalar:f32 read\n";
/// let signature: tilewright_ptx::Signature = text.parse()?;
/// assert_eq!(signature.to_string(), text);
/// # Ok::<(), tilewright_ptx::PtxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name of the kernel.
    pub name: String,
    /// The parameters, in order.
    pub parameters: Vec<Parameter>,
    /// `.reqntid`: the block must have these extents.
    pub required_block: Option<[u32; 3]>,
    /// `.maxntid`: the block must not have more threads than the product of these.
    pub max_block: Option<[u32; 3]>,
    /// `.reqnctapercluster`: the cluster must have these extents.
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`: the cluster must not have more blocks.
    pub max_cluster: Option<u32>,
    /// Bytes of static shared memory that the kernel and the functions it may call refer to.
    pub shared_bytes: u32,
    /// Whether they refer to shared memory whose size the launch decides.
    pub dynamic_shared: bool,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u32,
    /// Its alignment, in bytes.
    pub align: u32,
    /// What it is.
    pub kind: ParameterKind,
    /// What the kernel does with it, or with the memory it points to.
    pub access: Access,
}

/// What a parameter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParameterKind {
    /// A value of the declared type that is never used as an address. One of the size of an address may still be a
    /// pointer if its access is [`Access::Unknown`] or [`Access::Unused`].
    Scalar(Type),
    /// Declared as a pointer, or used as an address by itself.
    Pointer(PointerSpace),
    /// A value of the declared type that is used as an address together with something else that may be the pointer: an
    /// index, or the pointer. The access is to the memory behind it, should it be the pointer.
    Either(Type),
    /// 128 bytes that are used as a tensor map.
    TensorMap,
    /// Any other array: a structure by value.
    Bytes,
}

/// Where a pointer points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PointerSpace {
    /// Global memory.
    Global,
    /// Shared memory.
    Shared,
    /// Local memory.
    Local,
    /// Constant memory.
    Const,
    /// Any of them, or not known.
    Generic,
}

/// What a kernel does with the memory behind a pointer or a tensor map; numbers are read, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// No instruction names the parameter.
    Unused,
    /// Reads at most; a pointer that is only compared counts here.
    Read,
    /// Writes, and does not read.
    Write,
    /// Reads and writes, or does both at once as atomic operations do.
    ReadWrite,
    /// The value goes where it is not followed: anything may happen.
    Unknown,
}

impl Access {
    /// Whether the memory may be changed.
    #[must_use]
    pub const fn may_write(self) -> bool {
        matches!(self, Access::Write | Access::ReadWrite | Access::Unknown)
    }

    /// Whether the memory, or the number, may be read.
    #[must_use]
    pub const fn may_read(self) -> bool {
        matches!(self, Access::Read | Access::ReadWrite | Access::Unknown)
    }
}

impl Module {
    /// The signatures of all kernels, in order; see [`Signature`].
    #[must_use]
    pub fn signatures(&self) -> Vec<Signature> {
        let kernels = self.items.iter().filter_map(|item| match item {
            Item::Function(function) if function.kind == FunctionKind::Entry => Some(function),
            _ => None,
        });
        kernels.map(|kernel| signature(self, kernel)).collect()
    }
}

fn signature(module: &Module, kernel: &Function) -> Signature {
    let shared = shared::of(module, kernel);
    let mut signature = Signature {
        name: module.names.text(kernel.name).to_owned(),
        parameters: parameters(module, kernel),
        required_block: None,
        max_block: None,
        required_cluster: None,
        max_cluster: None,
        shared_bytes: shared.bytes,
        dynamic_shared: shared.dynamic,
    };
    for directive in &kernel.directives {
        match directive {
            Directive::RequiredThreads(extents) => signature.required_block = Some(*extents),
            Directive::MaxThreads(extents) => signature.max_block = Some(*extents),
            Directive::RequiredCluster(extents) => signature.required_cluster = Some(*extents),
            Directive::MaxClusterRank(blocks) => signature.max_cluster = Some(*blocks),
            _ => {}
        }
    }
    signature
}

fn parameters(module: &Module, kernel: &Function) -> Vec<Parameter> {
    let flow = Flow::of(module, kernel);
    let facts = flow.facts();
    let judged = kernel.params.iter().zip(facts).map(|(declared, facts)| {
        let (kind, access) = judge(declared, &facts);
        Parameter {
            name: module.names.text(declared.name).to_owned(),
            bytes: declared.bytes().and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(u32::MAX),
            align: declared.align.unwrap_or_else(|| declared.ty.bits().div_ceil(8).max(1)),
            kind,
            access,
        }
    });
    judged.collect()
}

/// What the body of a kernel does with a parameter.
#[derive(Clone, Debug, Default)]
struct Facts {
    /// An instruction names it.
    named: bool,
    /// It is declared as a pointer, or used as an address with nothing beside it that could be the pointer.
    points: bool,
    /// Its value is used as an address, in these spaces, or may be.
    address: Vec<PointerSpace>,
    /// The memory it points to is read or written.
    memory: Touch,
    /// Its own bytes are a tensor map through which memory is read or written.
    tensor: Option<Touch>,
    /// Its value goes where it is not followed.
    escapes: bool,
}

/// Reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Touch {
    read: bool,
    write: bool,
}

impl Touch {
    const READ: Touch = Touch { read: true, write: false };
    const WRITE: Touch = Touch { read: false, write: true };
    const BOTH: Touch = Touch { read: true, write: true };

    fn add(&mut self, other: Touch) {
        self.read |= other.read;
        self.write |= other.write;
    }

    fn access(self) -> Access {
        match (self.read, self.write) {
            (true, true) => Access::ReadWrite,
            (false, true) => Access::Write,
            (_, false) => Access::Read,
        }
    }
}

/// Whether a parameter can hold a pointer: anything of the size of an address that is not a number by its type.
fn may_point(declared: &Variable, address_size: u32) -> bool {
    let number = !matches!(declared.ty.class(), Class::Bits | Class::Integer);
    declared.pointer.is_some() || (plain(declared) && !number && declared.ty.bits() == address_size)
}

/// Neither array nor vector.
fn plain(declared: &Variable) -> bool {
    declared.dims.is_empty() && declared.vector.is_none()
}

fn judge(declared: &Variable, facts: &Facts) -> (ParameterKind, Access) {
    let known = |access: Access| match (facts.named, facts.escapes) {
        (false, _) => Access::Unused,
        (true, true) => Access::Unknown,
        (true, false) => access,
    };
    if facts.points {
        return (ParameterKind::Pointer(space(declared, &facts.address)), known(facts.memory.access()));
    }
    if !facts.address.is_empty() {
        return (ParameterKind::Either(declared.ty), known(facts.memory.access()));
    }
    if plain(declared) {
        // What an opaque handle stands for is not followed.
        let access = if declared.ty.class() == Class::Opaque { Access::Unknown } else { Access::Read };
        return (ParameterKind::Scalar(declared.ty), known(access));
    }
    match facts.tensor {
        Some(touch) if declared.bytes() == Some(128) => (ParameterKind::TensorMap, known(touch.access())),
        _ => (ParameterKind::Bytes, known(Access::Unknown)),
    }
}

fn space(declared: &Variable, used: &[PointerSpace]) -> PointerSpace {
    let declared = declared.pointer.and_then(|pointer| pointer.space);
    match (declared, used) {
        (Some(Space::Global), _) => PointerSpace::Global,
        (Some(Space::Shared), _) => PointerSpace::Shared,
        (Some(Space::Local), _) => PointerSpace::Local,
        (Some(Space::Const), _) => PointerSpace::Const,
        (_, [first, rest @ ..]) if rest.iter().all(|other| other == first) => *first,
        _ => PointerSpace::Generic,
    }
}
