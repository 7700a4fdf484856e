//! Buffers and module variables.
//!
//! Allocations lie apart from each other, so that an access that leaves one is noticed. Each remembers which of its bytes have
//! been written, unless it came with contents.

use super::window::BUFFERS;

/// Distance between the end of a buffer and the start of the next: an index that is off by less is noticed.
const GAP: u64 = 1 << 16;

/// The value of bytes that nobody has written: signalling NaNs as floats, absurd as indices.
pub(crate) const POISON: u8 = 0xA5;

/// One buffer or module variable.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    /// What reports call it.
    pub(crate) name: String,
    /// Generic address of the first byte.
    pub(crate) address: u64,
    /// The contents.
    pub(crate) bytes: Vec<u8>,
    /// One bit a byte that has been written; `None` when all have.
    pub(crate) written: Option<Vec<u64>>,
    /// Constant memory: stores are faults.
    pub(crate) constant: bool,
}

impl Allocation {
    /// Whether `len` bytes from `offset` on have all been written.
    pub(crate) fn is_written(&self, offset: usize, len: usize) -> bool {
        self.written
            .as_ref()
            .is_none_or(|bits| (offset..offset + len).all(|i| bits[i / 64] >> (i % 64) & 1 == 1))
    }

    /// Notes that `len` bytes from `offset` on have been written.
    pub(crate) fn mark_written(&mut self, offset: usize, len: usize) {
        if let Some(bits) = &mut self.written {
            // Whole words in one go: matrices are large.
            let (end, mut i) = (offset + len, offset);
            while i < end {
                let (from, to) = (i % 64, (end - i / 64 * 64).min(64));
                bits[i / 64] |= (u64::MAX << from) & (u64::MAX >> (64 - to));
                i = i / 64 * 64 + to;
            }
        }
    }
}

impl Allocation {
    /// Says of each of `len` bytes from `offset` on whether it has been written.
    pub(crate) fn set_written(&mut self, offset: usize, len: usize, written: impl Fn(usize) -> bool) {
        if self.written.is_none() && (0..len).all(&written) {
            return;
        }
        let all = vec![u64::MAX; self.bytes.len().div_ceil(64)];
        let bits = self.written.get_or_insert(all);
        for i in 0..len {
            let (word, bit) = ((offset + i) / 64, 1 << ((offset + i) % 64));
            bits[word] = if written(i) { bits[word] | bit } else { bits[word] & !bit };
        }
    }
}

/// All of them, by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct GlobalMemory {
    allocations: Vec<Allocation>,
    next: u64,
}

impl GlobalMemory {
    /// A new buffer behind all others, aligned to 256 bytes as the driver aligns them.
    pub(crate) fn allocate(&mut self, name: String, bytes: Vec<u8>, written: bool) -> u64 {
        let address = self.next.max(BUFFERS);
        self.next = (address + bytes.len() as u64 + GAP).next_multiple_of(256);
        let written = (!written).then(|| vec![0; bytes.len().div_ceil(64)]);
        self.insert(Allocation { name, address, bytes, written, constant: false });
        address
    }

    /// An allocation at a given address that overlaps no other; one at the same address is replaced.
    pub(crate) fn insert(&mut self, allocation: Allocation) {
        let at = self.allocations.partition_point(|other| other.address < allocation.address);
        match self.allocations.get_mut(at) {
            Some(other) if other.address == allocation.address => *other = allocation,
            _ => self.allocations.insert(at, allocation),
        }
    }

    /// Removes the allocation that starts at an address.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Allocation> {
        let at = self.allocations.iter().position(|allocation| allocation.address == address)?;
        Some(self.allocations.remove(at))
    }

    /// Takes the bytes of the allocation that starts at an address, which stays where it is, so that the others keep their numbers.
    pub(crate) fn empty(&mut self, address: u64) {
        if let Some(allocation) = self.allocations.iter_mut().find(|allocation| allocation.address == address)
        {
            allocation.bytes = Vec::new();
            allocation.written = None;
            allocation.name.push_str(" (freed)");
        }
    }

    /// The index of the allocation that holds `len` bytes from an address on; `hint` is tried first.
    #[inline]
    pub(crate) fn find(&self, address: u64, len: usize, hint: usize) -> Option<usize> {
        let inside = |allocation: &Allocation| {
            let offset = address.wrapping_sub(allocation.address);
            offset.checked_add(len as u64).is_some_and(|end| end <= allocation.bytes.len() as u64)
        };
        if self.allocations.get(hint).is_some_and(inside) {
            return Some(hint);
        }
        let at =
            self.allocations.partition_point(|allocation| allocation.address <= address).checked_sub(1)?;
        inside(&self.allocations[at]).then_some(at)
    }

    /// The allocation nearest below or around an address, for messages.
    pub(crate) fn nearest(&self, address: u64) -> Option<&Allocation> {
        let at = self.allocations.partition_point(|allocation| allocation.address <= address);
        self.allocations.get(at.checked_sub(1)?)
    }

    /// By index.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> &Allocation {
        &self.allocations[index]
    }

    /// By index, to change it.
    pub(crate) fn get_mut(&mut self, index: usize) -> &mut Allocation {
        &mut self.allocations[index]
    }

    /// The allocation that starts at an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Allocation> {
        self.allocations.iter().find(|allocation| allocation.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_marked_one_by_one_wherever_words_begin() {
        for (offset, len) in
            [(0, 0), (0, 1), (3, 5), (0, 64), (60, 8), (63, 1), (64, 64), (1, 190), (130, 62)]
        {
            let mut memory = GlobalMemory::default();
            let address = memory.allocate("x".to_owned(), vec![0; 192], false);
            let index = memory.find(address, 1, 0).unwrap();
            memory.get_mut(index).mark_written(offset, len);
            let marked = (0..192).filter(|&i| memory.get(index).is_written(i, 1));
            assert_eq!(marked.collect::<Vec<_>>(), (offset..offset + len).collect::<Vec<_>>());
        }
    }
}
