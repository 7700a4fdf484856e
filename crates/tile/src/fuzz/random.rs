//! A small generator of random numbers (SplitMix64), so that a seed means the same program everywhere and for ever.

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `limit`, which is not zero.
    pub(super) fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.bits() % u64::from(limit.max(1))).unwrap_or(0)
    }

    /// A number between both, which it can be.
    pub(super) fn between(&mut self, low: i32, high: i32) -> i32 {
        low.saturating_add_unsigned(self.below(low.abs_diff(high) + 1))
    }

    /// True once in `n` times.
    pub(super) fn once_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }

    /// One of several; there is at least one.
    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }

    /// A position among `count`.
    pub(super) fn index(&mut self, count: usize) -> usize {
        self.below(u32::try_from(count).unwrap_or(u32::MAX)) as usize
    }
}
