//! What a launch that is in order looks at of its kernel, made once, in as few lines of cache as can be: the driver's own work for the
//! launch before has swept the caches, and 5 % of a launch is not much.

use smallvec::SmallVec;
use tilewright_ptx::{
    Access as Does, Class as PtxClass, Parameter, ParameterKind, PointerSpace, Signature, Type,
};

use super::argument::Arg;
use super::config::LaunchConfig;
use crate::device::Device;
use crate::memory::order::Access;

/// A set of kinds of arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kinds(u16);

impl Kinds {
    pub(super) const NONE: Kinds = Kinds(0);
    pub(super) const INTEGER: Kinds = Kinds(1);
    pub(super) const FLOAT: Kinds = Kinds(1 << 1);
    /// bf16
    pub(super) const BRAIN: Kinds = Kinds(1 << 2);
    /// Memory to read.
    pub(super) const SOURCE: Kinds = Kinds(1 << 3);
    /// Memory to write.
    pub(super) const TARGET: Kinds = Kinds(1 << 4);
    pub(super) const ADDRESS: Kinds = Kinds(1 << 5);
    /// A tensor map to load from.
    pub(super) const MAP: Kinds = Kinds(1 << 6);
    /// A tensor map to store to.
    pub(super) const WRITABLE_MAP: Kinds = Kinds(1 << 7);
    pub(super) const BYTES: Kinds = Kinds(1 << 8);
    const ALL: Kinds = Kinds((1 << 9) - 1);

    const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    #[inline]
    const fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }
}

/// The kinds of arguments that will do for a parameter, if the size is right.
fn accepted(parameter: &Parameter) -> Kinds {
    let writes = matches!(parameter.access, Does::Write | Does::ReadWrite);
    match parameter.kind {
        // Addresses inside of a block are numbers to the host.
        ParameterKind::Pointer(PointerSpace::Shared | PointerSpace::Local) => {
            Kinds::ADDRESS.or(Kinds::INTEGER)
        }
        ParameterKind::Pointer(_) => memory(writes),
        ParameterKind::Either(ty) => numbers(ty).or(Kinds::BYTES).or(memory(writes)),
        ParameterKind::Scalar(ty) => {
            // A pointer that the code does not follow looks like a number.
            let hidden =
                matches!(parameter.access, Does::Unknown | Does::Unused) && ty.class() != PtxClass::Float;
            numbers(ty).or(Kinds::BYTES).or(if hidden { memory(false) } else { Kinds::NONE })
        }
        ParameterKind::TensorMap => Kinds::WRITABLE_MAP.or(if writes { Kinds::NONE } else { Kinds::MAP }),
        ParameterKind::Bytes => Kinds::ALL,
    }
}

fn memory(writes: bool) -> Kinds {
    let source = if writes { Kinds::NONE } else { Kinds::SOURCE };
    Kinds::TARGET.or(Kinds::ADDRESS).or(source)
}

fn numbers(ty: Type) -> Kinds {
    match ty.class() {
        // Compilers declare halves as plain bits.
        PtxClass::Bits | PtxClass::Packed => Kinds::INTEGER.or(Kinds::FLOAT).or(Kinds::BRAIN),
        PtxClass::Integer | PtxClass::Opaque | PtxClass::Predicate => Kinds::INTEGER,
        PtxClass::Float => Kinds::FLOAT,
    }
}

/// A parameter.
#[derive(Clone, Copy, Debug)]
struct Slot {
    bytes: u32,
    accepts: Kinds,
    /// What the code does to the memory behind it, if it looks at it at all.
    access: Option<Access>,
}

/// A kernel, as a launch sees it.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Parameters without those at the end that may be left out.
    needed: usize,
    slots: SmallVec<[Slot; 16]>,
    largest_grid: [u32; 3],
    largest_block: [u32; 3],
    /// The most threads of a block; 0 if launches need a closer look.
    threads: u32,
    required_block: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory that need not be asked for.
    shared: u32,
}

impl Gate {
    pub(crate) fn new(
        signature: &Signature,
        device: &Device,
        threads: u32,
        static_shared: u32,
        room: usize,
    ) -> Gate {
        let slots = signature.parameters.iter().map(|parameter| Slot {
            bytes: parameter.bytes,
            accepts: accepted(parameter),
            access: match parameter.access {
                Does::Unused => None,
                Does::Read => Some(Access::Read),
                Does::Write | Does::ReadWrite | Does::Unknown => Some(Access::Write),
            },
        });
        let left_out =
            |parameter: &&Parameter| parameter.access == Does::Unused && parameter.bytes as usize <= room;
        let unused = signature.parameters.iter().rev().take_while(left_out).count();
        let closer_look = signature.required_cluster.is_some() || signature.max_block.is_some();
        let free = device.shared_bytes_without_opt_in.saturating_sub(u64::from(static_shared));
        Gate {
            needed: signature.parameters.len() - unused,
            slots: slots.collect(),
            largest_grid: device.largest_grid,
            largest_block: device.largest_block,
            threads: if closer_look { 0 } else { threads },
            required_block: signature.required_block,
            shared: u32::try_from(free).unwrap_or(u32::MAX),
        }
    }

    pub(crate) fn needed(&self) -> usize {
        self.needed
    }

    pub(crate) fn parameters(&self) -> usize {
        self.slots.len()
    }

    /// Whether a launch has a possible shape and asks for nothing out of the ordinary. `block` is its block, `opted_in` the bytes of dynamic
    /// shared memory that were asked for before.
    #[inline]
    pub(super) fn passes(&self, config: &LaunchConfig, block: [u32; 3], opted_in: u32) -> bool {
        // 0 becomes the largest number.
        let inside = |extents: [u32; 3], most: [u32; 3]| {
            (extents[0].wrapping_sub(1) < most[0])
                & (extents[1].wrapping_sub(1) < most[1])
                & (extents[2].wrapping_sub(1) < most[2])
        };
        let [x, y, z] = block;
        inside(config.grid, self.largest_grid)
            && inside(block, self.largest_block)
            && u64::from(x) * u64::from(y) * u64::from(z) <= u64::from(self.threads)
            && self.required_block.is_none_or(|required| required == block)
            && config.shared <= self.shared.max(opted_in)
            && config.cluster.is_none()
            && !config.cooperative
    }

    /// The number of the first argument that will not do; their number was checked.
    #[inline]
    pub(super) fn mismatch(&self, arguments: &[Arg<'_>]) -> Option<usize> {
        arguments.iter().zip(&self.slots).position(|(argument, slot)| {
            argument.size() != slot.bytes as usize || !slot.accepts.meets(argument.kinds())
        })
    }

    /// What the code does to the memory behind each parameter; none where it does not look.
    #[inline]
    pub(super) fn accesses(&self) -> impl Iterator<Item = Option<Access>> {
        self.slots.iter().map(|slot| slot.access)
    }
}
