//! Initial values of variables as bytes.
//!
//! Nested lists follow the extents of the array and the vector; a list of plain numbers fills what is below it element by element.
//! What is not given is zero.

use tilewright_ptx::{Initializer, Symbol, Variable, VectorLength};

use crate::number::immediate;

/// Writes the initial value of a variable into its bytes, which are zero; `Err` says what is wrong.
pub(super) fn fill(
    variable: &Variable,
    value: &Initializer,
    bytes: &mut [u8],
    address_of: &dyn Fn(Symbol) -> Option<u64>,
) -> Result<(), String> {
    let mut extents: Vec<Option<u64>> = variable.dims.clone();
    extents.extend(match variable.vector {
        None => None,
        Some(VectorLength::V2) => Some(Some(2)),
        Some(VectorLength::V4) => Some(Some(4)),
    });
    Filler { variable, element: element_bytes(variable), address_of }.fill(value, &extents, bytes)
}

/// The extent that an open array gets from its initial value.
pub(super) fn open_extent(value: &Initializer) -> u64 {
    match value {
        Initializer::List(items) => items.len() as u64,
        _ => 1,
    }
}

fn element_bytes(variable: &Variable) -> usize {
    variable.ty.bits().div_ceil(8) as usize
}

struct Filler<'a> {
    variable: &'a Variable,
    element: usize,
    address_of: &'a dyn Fn(Symbol) -> Option<u64>,
}

impl Filler<'_> {
    fn fill(&self, value: &Initializer, extents: &[Option<u64>], bytes: &mut [u8]) -> Result<(), String> {
        let items = match value {
            Initializer::List(items) => items,
            Initializer::Value(number) => return self.put(immediate(*number, self.variable.ty), bytes),
            Initializer::Address { mask, symbol, offset, .. } => {
                let Some(address) = (self.address_of)(*symbol) else {
                    return Err("is the address of something that has none; expected a global variable, a constant or a \
                                function"
                        .into());
                };
                let address = address.wrapping_add_signed(*offset);
                let shown = |mask: u64| (address & mask).checked_shr(mask.trailing_zeros()).unwrap_or(0);
                return self.put(mask.map_or(address, shown), bytes);
            }
        };
        if extents.is_empty() {
            return Err("nests lists deeper than the array has extents; remove braces".into());
        }
        let nested = items.iter().any(|item| matches!(item, Initializer::List(_)));
        let inner = extents.get(1..).unwrap_or_default();
        let part = if nested {
            // Only the first extent can be open.
            inner
                .iter()
                .try_fold(self.element, |size, extent| size.checked_mul(usize::try_from((*extent)?).ok()?))
        } else {
            Some(self.element)
        };
        let Some(part) = part.filter(|part| *part > 0) else {
            return Err("is a list for an array without a size; give all extents but the first".into());
        };
        let room = bytes.len() / part;
        if items.len() > room {
            return Err(format!("has {} values where {room} have room; remove some", items.len()));
        }
        bytes.chunks_exact_mut(part).zip(items).try_for_each(|(bytes, item)| self.fill(item, inner, bytes))
    }

    fn put(&self, bits: u64, bytes: &mut [u8]) -> Result<(), String> {
        let Some(target) = bytes.get_mut(..self.element.min(8)) else {
            return Err("has more values than have room; remove some".into());
        };
        target.copy_from_slice(&bits.to_le_bytes()[..target.len()]);
        Ok(())
    }
}
