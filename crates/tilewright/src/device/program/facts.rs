//! What is looked at to choose among variants: a few bits for each pointer, and extents that are compiled in.

use tilewright_tile::Fact;

use super::super::view::{RANK, Tensor};
use super::slot::{Slot, SlotKind};

/// Pointers whose facts are looked at.
pub(super) const POINTERS: usize = 16;
/// Extents that can be compiled in.
pub(super) const EXACT: usize = 8;

/// Bytes that one access can move.
const WIDE: u64 = 16;

/// The pointer is a multiple of 16 bytes.
const ALIGNED: u32 = 1;
// Two bits for each stride, then two for each extent.
const STRIDES: usize = 1;
const EXTENTS: usize = STRIDES + 2 * RANK;
/// A stride or an extent is a multiple of 16 bytes.
const MULTIPLE: u32 = 1;
/// A stride is 1; an extent is that of the tile.
const IS: u32 = 2;

/// All facts of a launch. Two launches with the same facts run the same code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) words: [u32; POINTERS],
    pub(super) exact: [u32; EXACT],
    /// Whether the grid has one row, and one layer.
    single: [bool; 2],
}

/// The ids of programs along the axes that `single` is about.
const SINGLE: [&str; 2] = ["ctaid.y", "ctaid.z"];

pub(super) fn of_pointer(address: u64) -> u32 {
    if address.is_multiple_of(WIDE) { ALIGNED } else { 0 }
}

pub(super) fn of_view(view: &Tensor<'_>, tiles: &[u64; RANK]) -> u32 {
    let wide = WIDE / u64::from(view.element.bytes());
    // Code for aligned tensors may copy through tensor maps, which know neither empty tensors nor all strides.
    let far = |&stride: &u64| stride.saturating_mul(u64::from(view.element.bytes())) >= 1 << 40;
    let mapped = !view.is_empty() && !view.strides.iter().any(far);
    let mut word = if mapped { of_pointer(view.address()) } else { 0 };
    for (axis, &tile) in tiles.iter().enumerate().take(view.rank) {
        let (extent, stride) = (view.extents[axis], view.strides[axis]);
        let of_stride = match stride {
            1 => IS,
            // Nor do they repeat.
            _ if stride > 0 && stride.is_multiple_of(wide) => MULTIPLE,
            _ => 0,
        };
        let of_extent = match extent {
            _ if tile == extent && extent > 0 => IS,
            _ if stride == 1 && extent.is_multiple_of(wide) => MULTIPLE,
            _ => 0,
        };
        word |= of_stride << (STRIDES + 2 * axis) | of_extent << (EXTENTS + 2 * axis);
    }
    word
}

impl Key {
    /// The same for a launch on this grid.
    pub(super) fn on_grid(mut self, [_, rows, layers]: [u32; 3]) -> Key {
        self.single = [rows == 1, layers == 1];
        self
    }

    /// The facts in words that the compiler takes.
    pub(super) fn facts(&self, slots: &[Slot], exact: &[(usize, usize)]) -> Vec<(String, Fact)> {
        let mut facts = Vec::new();
        for slot in slots {
            let Some(word) = slot.word.map(|word| self.words[word]) else { continue };
            let name = &slot.name;
            if word & ALIGNED != 0 {
                facts.push((name.clone(), Fact::MultipleOf(16)));
            }
            let SlotKind::View(view) = &slot.kind else { continue };
            let multiple = Fact::MultipleOf(16 / view.info.element.bytes());
            for axis in 0..view.info.rank {
                match word >> (EXTENTS + 2 * axis) & 3 {
                    MULTIPLE => facts.push((format!("{name}_extent{axis}"), multiple)),
                    IS => {
                        let tile = i64::try_from(view.tiles[axis]).unwrap_or(0);
                        facts.push((format!("{name}_extent{axis}"), Fact::Is(tile)));
                    }
                    _ => {}
                }
            }
            for axis in 0..view.info.rank {
                match word >> (STRIDES + 2 * axis) & 3 {
                    MULTIPLE => facts.push((format!("{name}_stride{axis}"), multiple)),
                    IS => facts.push((format!("{name}_stride{axis}"), Fact::Is(1))),
                    _ => {}
                }
            }
        }
        for (&number, &(slot, axis)) in self.exact.iter().zip(exact) {
            let name = format!("{}_extent{axis}", slots[slot].name);
            // One fact says it: that of a multiple would be weaker.
            facts.retain(|(known, _)| *known != name);
            facts.push((name, Fact::Is(i64::from(number))));
        }
        let single = SINGLE.iter().zip(self.single).filter(|(_, single)| *single);
        facts.extend(single.map(|(name, _)| ((*name).to_owned(), Fact::Is(0))));
        facts
    }
}
