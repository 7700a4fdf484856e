//! Functions of the thread number that are known as tables, as staged arithmetic.
//!
//! Atoms say which thread holds or addresses what as layouts. Such a function of the thread number is linear over bits: its value is
//! the exclusive or of one constant for each bit that is set. So a table over the threads of a group becomes a few shifts, masks
//! and multiplications, swizzles included. A table that is not linear is refused.

use crate::trace;
use crate::value::{Operand, Val};

/// The staged value of `table[thread]`; the table has a power of two of entries.
#[track_caller]
pub(crate) fn thread_map(thread: Val<u32>, table: &[u32]) -> Val<u32> {
    let Some(weights) = linear(table) else {
        trace::error(
            "what a thread addresses is not linear in the bits of its number; choose another layout for this tile",
        );
        return 0u32.val();
    };
    // Runs of bits whose weights double are one field: (thread >> start) & mask, times the weight of its first bit.
    let mut total: Option<Val<u32>> = None;
    let mut start = 0;
    while start < weights.len() {
        let weight = weights[start];
        let mut end = start + 1;
        while end < weights.len() && u64::from(weights[end]) == u64::from(weight) << (end - start) {
            end += 1;
        }
        if weight != 0 {
            let shift = u32::try_from(start).unwrap_or(0);
            let shifted = if start == 0 { thread } else { thread >> shift };
            let field = shifted & ((1u32 << (end - start)) - 1);
            let term = field * weight;
            total = Some(total.map_or(term, |t| t ^ term));
        }
        start = end;
    }
    match (total, table[0]) {
        (None, base) => base.val(),
        (Some(total), 0) => total,
        (Some(total), base) => total ^ base,
    }
}

/// The constants of the bits, if the table is linear.
fn linear(table: &[u32]) -> Option<Vec<u32>> {
    if !table.len().is_power_of_two() {
        return None;
    }
    let bits = table.len().trailing_zeros();
    let weights: Vec<u32> = (0..bits).map(|b| table[1 << b] ^ table[0]).collect();
    let value =
        |t: usize| (0..bits).filter(|b| t >> b & 1 == 1).fold(table[0], |x, b| x ^ weights[b as usize]);
    (0..table.len()).all(|t| value(t) == table[t]).then_some(weights)
}

/// Several tables over the same threads that differ little: the first is computed, and others follow from it where they can.
#[derive(Debug)]
pub(crate) struct ThreadMaps {
    thread: Val<u32>,
    first: Val<u32>,
    table: Vec<u32>,
}

impl ThreadMaps {
    /// Computes the first table.
    #[track_caller]
    pub(crate) fn new(thread: Val<u32>, table: Vec<u32>) -> ThreadMaps {
        ThreadMaps { thread, first: thread_map(thread, &table), table }
    }

    /// Another table, as a staged value and a constant to add to it. Equal staged parts are found by the compiler, so a group of
    /// addresses costs a few registers and immediate offsets.
    #[track_caller]
    pub(crate) fn at(&self, table: &[u32]) -> (Val<u32>, u32) {
        let flip = table[0] ^ self.table[0];
        if table.iter().zip(&self.table).all(|(a, b)| a ^ b == flip) {
            // Bits that no thread sets can be added as well as flipped, and adding is free in an address.
            let used = self.table.iter().fold(0, |bits, entry| bits | entry);
            let (flipped, added) = (flip & used, flip & !used);
            let staged = if flipped == 0 { self.first } else { self.first ^ flipped };
            return (staged, added);
        }
        if let Some(step) = table[0].checked_sub(self.table[0])
            && table.iter().zip(&self.table).all(|(a, b)| a.checked_sub(*b) == Some(step))
        {
            return (self.first, step);
        }
        // Nothing in common: the last matrices of a fragment may be fewer than the first, for example.
        (thread_map(self.thread, table), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_with_a_constant_for_each_bit_are_linear() {
        let table = |f: fn(u32) -> u32| (0..32).map(f).collect::<Vec<u32>>();
        assert_eq!(linear(&table(|t| t / 4 + 8 * (t % 4))), Some(vec![8, 16, 1, 2, 4]));
        // The 128-byte swizzle: row t % 8, with the chunk number flipped by the row.
        assert_eq!(
            linear(&table(|t| (t % 8) * 128 + (((t / 8) ^ (t % 8)) << 4))),
            Some(vec![144, 288, 576, 16, 32])
        );
        assert_eq!(linear(&table(|t| t * t)), None);
        assert_eq!(linear(&[0, 1, 2]), None);
    }
}
