//! Random numbers, and the choices that cases are made of.

/// Random numbers (splitmix64). The same seed gives the same case, on every machine.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// Less than `end`, which is not zero.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap_or(0) % end
    }

    /// Once in so many times.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// From -1 to 1, with more bits than any type of the library but f64 has.
    pub(crate) fn real(&mut self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "53 bits")]
        let fraction = (self.next() >> 11) as f64;
        fraction / f64::from(1 << 26) / f64::from(1 << 26) - 1.0
    }

    /// An extent: now and then nothing or one; else as often small as large, and round, prime or anything.
    pub(crate) fn extent(&mut self, most: usize) -> usize {
        match self.below(20) {
            0 => return 0,
            1 => return 1,
            _ => {}
        }
        let bits = most.ilog2() as usize + 1;
        let wide = 2 + self.below(bits.max(3) - 1);
        let any = (1 + self.below(1 << wide)).clamp(1, most);
        match self.below(3) {
            0 => any,
            1 => any.next_multiple_of(self.pick(&[8, 16, 32])).min(most),
            _ => (2..=any).rev().find(|&n| is_prime(n)).unwrap_or(1),
        }
    }
}

fn is_prime(n: usize) -> bool {
    (2..).take_while(|i| i * i <= n).all(|i| !n.is_multiple_of(i))
}
