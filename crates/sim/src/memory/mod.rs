//! The memory that outlives a block: buffers, module variables, and the private view that a cluster has of them.
//!
//! Generic addresses are 64 bits. Windows keep the state spaces apart, so that an address alone tells where it points.

mod global;
mod overlay;
pub(crate) mod window;

pub(crate) use global::{Allocation, GlobalMemory, POISON};
pub(crate) use overlay::Overlay;

use std::hash::{BuildHasherDefault, Hasher};

/// A hasher for keys that are already numbers: one multiplication.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
}

/// A map from numbers.
pub(crate) type NumberMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<NumberHasher>>;
