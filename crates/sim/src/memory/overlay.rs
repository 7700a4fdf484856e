//! What a cluster has written to global memory since the last round.
//!
//! Clusters run in parallel against the memory as it was when the round began. Each keeps its own writes in pages of its own,
//! which only it sees; at the end of the round they are committed in a fixed order. So a run does not depend on how many cores
//! there are or who is faster, and no two threads ever touch the same byte.

use super::{GlobalMemory, NumberMap};

/// Bytes of a page: the alignment of allocations, so that a page never belongs to two.
const PAGE: usize = 256;

#[derive(Clone)]
struct Page {
    bytes: [u8; PAGE],
    dirty: [u64; PAGE / 64],
    allocation: usize,
}

/// The written pages.
#[derive(Default)]
pub(crate) struct Overlay {
    index: NumberMap<u64, u32>,
    pages: Vec<(u64, Box<Page>)>,
    /// The page used last, and where it is.
    last: (u64, u32),
}

impl Overlay {
    /// Whether nothing has been written.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    #[inline]
    fn page(&self, number: u64) -> Option<&Page> {
        if self.last.0 == number && !self.pages.is_empty() {
            return Some(&self.pages[self.last.1 as usize].1);
        }
        self.index.get(&number).map(|&at| &*self.pages[at as usize].1)
    }

    /// Copies bytes out of allocation `at`; whether all of them have been written.
    #[inline]
    pub(crate) fn read(&self, memory: &GlobalMemory, at: usize, address: u64, out: &mut [u8]) -> bool {
        let allocation = memory.get(at);
        let offset = usize_of(address - allocation.address);
        out.copy_from_slice(&allocation.bytes[offset..offset + out.len()]);
        let mut written = allocation.written.is_none() || allocation.is_written(offset, out.len());
        if !self.pages.is_empty() {
            let all = self.patch(address, out);
            written |= all;
            if !written {
                // Some bytes may come from the cluster, others from before.
                written = (0..out.len())
                    .all(|i| allocation.is_written(offset + i, 1) || self.is_dirty(address + i as u64));
            }
        }
        written
    }

    fn is_dirty(&self, address: u64) -> bool {
        let slot = usize_of(address % PAGE as u64);
        self.page(address / PAGE as u64).is_some_and(|page| page.dirty[slot / 64] >> (slot % 64) & 1 == 1)
    }

    /// Replaces what the cluster has written itself; whether that was all of it.
    fn patch(&self, address: u64, out: &mut [u8]) -> bool {
        let mut all = true;
        let mut done = 0;
        while done < out.len() {
            let from = address + done as u64;
            let slot = usize_of(from % PAGE as u64);
            let len = (out.len() - done).min(PAGE - slot);
            match self.page(from / PAGE as u64) {
                None => all = false,
                Some(page) => {
                    for i in 0..len {
                        if page.dirty[(slot + i) / 64] >> ((slot + i) % 64) & 1 == 1 {
                            out[done + i] = page.bytes[slot + i];
                        } else {
                            all = false;
                        }
                    }
                }
            }
            done += len;
        }
        all
    }

    /// Writes bytes into allocation `at`, privately.
    #[inline]
    pub(crate) fn write(&mut self, at: usize, address: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let from = address + done as u64;
            let (number, slot) = (from / PAGE as u64, usize_of(from % PAGE as u64));
            let len = (bytes.len() - done).min(PAGE - slot);
            let page = self.page_mut(number, at);
            page.bytes[slot..slot + len].copy_from_slice(&bytes[done..done + len]);
            for i in slot..slot + len {
                page.dirty[i / 64] |= 1 << (i % 64);
            }
            done += len;
        }
    }

    #[inline]
    fn page_mut(&mut self, number: u64, allocation: usize) -> &mut Page {
        if self.last.0 != number || self.pages.is_empty() {
            let pages = &mut self.pages;
            let at = *self.index.entry(number).or_insert_with(|| {
                let fresh = Page { bytes: [0; PAGE], dirty: [0; PAGE / 64], allocation };
                pages.push((number, Box::new(fresh)));
                u32::try_from(pages.len() - 1).unwrap_or(u32::MAX)
            });
            self.last = (number, at);
        }
        &mut self.pages[self.last.1 as usize].1
    }

    /// Moves everything into memory; whether any byte changed.
    pub(crate) fn commit(&mut self, memory: &mut GlobalMemory) -> bool {
        let mut changed = false;
        for (number, page) in self.pages.drain(..) {
            let allocation = memory.get_mut(page.allocation);
            if allocation.bytes.is_empty() {
                continue;
            }
            for (word, &dirty) in page.dirty.iter().enumerate() {
                if dirty == u64::MAX {
                    let offset =
                        usize_of((number * PAGE as u64).wrapping_sub(allocation.address)) + word * 64;
                    let new = &page.bytes[word * 64..word * 64 + 64];
                    changed |= allocation.bytes[offset..offset + 64] != *new;
                    allocation.bytes[offset..offset + 64].copy_from_slice(new);
                    allocation.mark_written(offset, 64);
                    continue;
                }
                let mut rest = dirty;
                while rest != 0 {
                    let slot = word * 64 + rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    let offset =
                        usize_of((number * PAGE as u64 + slot as u64).wrapping_sub(allocation.address));
                    changed |= allocation.bytes[offset] != page.bytes[slot];
                    allocation.bytes[offset] = page.bytes[slot];
                    allocation.mark_written(offset, 1);
                }
            }
        }
        self.index.clear();
        self.last = (0, 0);
        changed
    }
}

/// Offsets into allocations fit: an allocation is a `Vec`.
#[allow(clippy::cast_possible_truncation, reason = "the caller has checked that it lies inside a Vec")]
fn usize_of(offset: u64) -> usize {
    offset as usize
}
