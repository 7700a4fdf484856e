//! The parameters of a program as its author wrote them, and what an argument must be.

use tilewright_ir::{Element, Opcode, Type};
use tilewright_lang::{Kernel, ViewInfo};

use super::super::Device;
use super::super::kernel::Needs;
use super::super::value::{Number, Passed};
use super::super::view::{RANK, Tensor};
use super::facts::{self, Key, POINTERS};

/// A parameter.
pub(super) struct Slot {
    pub(super) name: String,
    pub(super) kind: SlotKind,
    /// Where its facts are in a key, if they are looked at.
    pub(super) word: Option<usize>,
}

pub(super) enum SlotKind {
    /// What an argument must be, and what it must be a multiple of.
    One(Needs, u64),
    View(Box<ViewSlot>),
}

/// A parameter that is a view.
pub(super) struct ViewSlot {
    pub(super) info: ViewInfo,
    /// What the kernel relies on address, extents and strides to be multiples of.
    address: u64,
    extents: [u64; RANK],
    strides: [u64; RANK],
    /// The widest tile above 1 that the kernel loads or stores along each axis; 0 if there is none.
    pub(super) tiles: [u64; RANK],
}

/// Why an argument is refused.
pub(super) struct Wrong {
    pub(super) found: String,
    pub(super) expected: String,
}

fn wrong(found: impl Into<String>, expected: impl Into<String>) -> Result<(), Wrong> {
    Err(Wrong { found: found.into(), expected: expected.into() })
}

/// The parameters of a kernel.
pub(super) fn slots(kernel: &Kernel) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut parameters = kernel.parameters();
    let mut words = 0..POINTERS;
    while let Some((name, ty, align)) = parameters.next() {
        let kind = if let Some(info) = kernel.views().iter().find(|view| view.name == name) {
            let mut view = ViewSlot {
                info: info.clone(),
                address: multiple(align),
                extents: [1; RANK],
                strides: [1; RANK],
                tiles: tiles(kernel, name),
            };
            for promised in [&mut view.extents, &mut view.strides] {
                for (promised, (_, _, align)) in promised.iter_mut().zip(parameters.by_ref().take(info.rank))
                {
                    *promised = multiple(align);
                }
            }
            SlotKind::View(Box::new(view))
        } else {
            let needs = match Needs::of(ty, ty.bytes()) {
                Needs::Buffer(_) => Needs::Buffer(kernel.element(name)),
                needs => needs,
            };
            SlotKind::One(needs, multiple(align))
        };
        let word = if matches!(ty, Type::Pointer(_)) { words.next() } else { None };
        slots.push(Slot { name: name.to_owned(), kind, word });
    }
    slots
}

/// Parameters that nothing is promised of have an alignment of 0.
fn multiple(align: u32) -> u64 {
    u64::from(align.max(1))
}

/// The widest tiles that are loaded or stored along each axis of a view, as far as its extent is what ends them.
fn tiles(kernel: &Kernel, view: &str) -> [u64; RANK] {
    let func = kernel.func();
    let mut tiles = [0; RANK];
    let args = &func.region(func.body()).args;
    let extents: Vec<_> = (0..RANK).map(|axis| format!("{view}_extent{axis}")).collect();
    let extents: Vec<_> = extents
        .iter()
        .map(|extent| func.params.iter().position(|param| param.name == *extent).map(|at| args[at]))
        .collect();
    for op in func.walk() {
        let data = func.op(op);
        let (tile, first) = match data.code {
            Opcode::TileLoad => (data.results[0], 1),
            Opcode::TileStore => (data.operands[1], 2),
            _ => continue,
        };
        let Some(shape) = func.ty(tile).shape() else { continue };
        let ends = data.operands.iter().skip(first + shape.rank());
        for (&end, &width) in ends.zip(shape.extents()) {
            let axis = extents.iter().position(|&extent| extent == Some(end));
            if let Some(axis) = axis.filter(|_| width > 1) {
                tiles[axis] = tiles[axis].max(u64::from(width));
            }
        }
    }
    tiles
}

impl Slot {
    /// What an argument must be, for messages.
    pub(super) fn describe(&self) -> String {
        match &self.kind {
            SlotKind::One(needs, _) => needs.describe(),
            SlotKind::View(view) => {
                let example = ["n", "rows, columns", "a, b, c", "a, b, c, d", "a, b, c, d, e"];
                let example = example.get(view.info.rank.saturating_sub(1)).copied().unwrap_or("..");
                let (element, rank) = (view.info.element, view.info.rank);
                let dimensions = if rank == 1 { "dimension" } else { "dimensions" };
                format!("a view of {element} in {rank} {dimensions}, as in `buffer.view([{example}])`")
            }
        }
    }

    /// Whether the kernel may write to what it leads to.
    pub(super) fn writes(&self) -> bool {
        match &self.kind {
            SlotKind::One(..) => true,
            SlotKind::View(view) => view.info.writes,
        }
    }

    /// Whether an argument is what the kernel relies on.
    pub(super) fn check(&self, device: &Device, passed: &Passed<'_>) -> Result<(), Wrong> {
        let fits = match (&self.kind, passed) {
            (SlotKind::One(needs, _), passed) => needs.takes(passed),
            (SlotKind::View(view), Passed::View(given)) => {
                view.info.rank == given.rank && same_in_memory(view.info.element, given.element)
            }
            (SlotKind::View(_), _) => false,
        };
        if !fits {
            return wrong(passed.describe(), self.describe());
        }
        if passed.memory().is_some_and(|memory| !device.owns(memory)) {
            let found = format!("{} of another device", passed.describe());
            return wrong(found, "memory of the device that the program runs on; upload the data there");
        }
        match (&self.kind, passed) {
            (SlotKind::View(view), Passed::View(given)) => view.check(given),
            (&SlotKind::One(_, of), Passed::Number(number)) if !magnitude(number).is_multiple_of(of) => {
                wrong(format!("the number {}", magnitude(number)), format!("a multiple of {of}"))
            }
            (&SlotKind::One(_, of), Passed::Buffer(_, memory, offset)) => {
                aligned(memory.address() + *offset as u64, of)
            }
            _ => Ok(()),
        }
    }

    /// Notes what is true of an argument that was checked.
    pub(super) fn note_facts(&self, passed: &Passed<'_>, key: &mut Key) {
        let Some(word) = self.word else { return };
        key.words[word] = match (&self.kind, passed) {
            (SlotKind::View(view), Passed::View(given)) => facts::of_view(given, &view.tiles),
            (_, Passed::Buffer(_, memory, offset)) => facts::of_pointer(memory.address() + *offset as u64),
            _ => 0,
        };
    }
}

impl ViewSlot {
    fn check(&self, given: &Tensor<'_>) -> Result<(), Wrong> {
        let numbers = (0..given.rank).map(|axis| (axis, given.extents[axis], given.strides[axis]));
        for (axis, extent, stride) in numbers {
            if extent > u64::from(i32::MAX.cast_unsigned()) {
                return wrong(
                    format!("an extent of {extent} along axis {axis}"),
                    "less than 2^31; split the tensor, or view it in more dimensions",
                );
            }
            if i64::try_from(stride).is_err() {
                return wrong(format!("a stride of {stride} along axis {axis}"), "less than 2^63");
            }
            if !extent.is_multiple_of(self.extents[axis]) {
                let expected = format!("a multiple of {}, which the kernel relies on", self.extents[axis]);
                return wrong(format!("an extent of {extent} along axis {axis}"), expected);
            }
            // Where there is one index only, or none, its stride is never used.
            if extent > 1 && self.info.unit_strides.get(axis) == Some(&true) && stride != 1 {
                let expected = "a stride of 1, which the kernel relies on; copy the data to a dense buffer";
                return wrong(format!("a stride of {stride} along axis {axis}"), expected);
            }
            if !stride.is_multiple_of(self.strides[axis]) {
                let expected = format!("a multiple of {}, which the kernel relies on", self.strides[axis]);
                return wrong(format!("a stride of {stride} along axis {axis}"), expected);
            }
        }
        match given.needed() {
            Some(needed) if needed <= given.len => {}
            needed => {
                let needed = needed.map_or_else(|| "more than 2^64".to_owned(), |needed| needed.to_string());
                return wrong(
                    format!("{}, which needs {needed} elements of the buffer", given.describe()),
                    format!("at most its {}; check extents and strides", given.len),
                );
            }
        }
        aligned(given.address(), self.address)
    }
}

fn aligned(address: u64, of: u64) -> Result<(), Wrong> {
    if address.is_multiple_of(of) {
        return Ok(());
    }
    let expected = format!("a multiple of {of}, which the kernel relies on; begin elsewhere in the buffer");
    wrong(format!("memory at address {address:#x}"), expected)
}

/// f32 and tf32 are the same in memory.
fn same_in_memory(a: Element, b: Element) -> bool {
    let in_memory = |element| if element == Element::TF32 { Element::F32 } else { element };
    in_memory(a) == in_memory(b)
}

/// The absolute value of an integer; 0 of anything else, which nothing is promised of.
fn magnitude(number: &Number) -> u64 {
    let element = number.element();
    if !element.is_int() {
        return 0;
    }
    let bits = tilewright_ir::canonical(element, number.bits());
    if element.is_signed() { bits.cast_signed().unsigned_abs() } else { bits }
}
