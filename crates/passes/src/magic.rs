//! Division by a constant as multiplication: the numbers.
//!
//! For `n` bits and a divisor `d`, a multiplier `m` and a shift `s` with `m * d = 2^(n+s) + e` give `x / d = (x * m) >> (n+s)` for all
//! `x < 2^p` if `0 <= e <= 2^(n+s-p)`: the error `x * e` then stays below `2^(n+s)`, one unit of the quotient's last place over `d`.
//! Signed dividends have one bit less, and one more is added for negative ones, whose quotient was rounded down.

/// How to divide an unsigned number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsigned {
    /// `mul_hi(x >> before, multiplier) >> after`.
    Multiply { before: u32, multiplier: u64, after: u32 },
    /// The multiplier has a bit too many: with `t = mul_hi(x, multiplier)`, `(((x - t) >> 1) + t) >> after`.
    Add { multiplier: u64, after: u32 },
}

/// How to divide a signed number by a positive one: `q = mul_hi(x, multiplier)`, plus `x` if `add`, shifted right by `after`, plus one
/// if `x` is negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signed {
    /// As a signed number of the width.
    pub(crate) multiplier: i64,
    pub(crate) add: bool,
    pub(crate) after: u32,
}

/// The plan for `d >= 3`, no power of two, of `width` bits.
pub(crate) fn unsigned(width: u32, d: u64) -> Unsigned {
    let even = d.trailing_zeros();
    for before in [0, even] {
        if let Some((multiplier, after)) = multiplier(width, width - before, d >> before) {
            return Unsigned::Multiply { before, multiplier, after };
        }
    }
    // The multiplier 2^width + m always exists at the largest shift.
    let log = log_ceil(d);
    let m = ((1u128 << width) * ((1u128 << log) - u128::from(d))) / u128::from(d) + 1;
    Unsigned::Add { multiplier: low(m), after: log - 1 }
}

fn multiplier(width: u32, dividend_bits: u32, d: u64) -> Option<(u64, u32)> {
    for after in 0..log_ceil(d) {
        let power = 1u128 << (width + after);
        let m = power.div_ceil(u128::from(d));
        let error = m * u128::from(d) - power;
        if m < 1 << width && error <= 1 << (width + after - dividend_bits) {
            return Some((low(m), after));
        }
    }
    None
}

/// The plan for `d >= 3`, no power of two, of `width` bits.
pub(crate) fn signed(width: u32, d: u64) -> Signed {
    let mut after = 0;
    loop {
        let power = 1u128 << (width + after);
        let m = power / u128::from(d) + 1;
        let error = m * u128::from(d) - power;
        // At after = log2(d) the error, at most d, is small enough.
        if error < 1 << (after + 1) || after + 1 >= log_ceil(d) {
            let add = m >= 1 << (width - 1);
            let unused = 64 - width;
            return Signed { multiplier: (low(m) << unused).cast_signed() >> unused, add, after };
        }
        after += 1;
    }
}

/// The least `n` with `2^n >= d`.
fn log_ceil(d: u64) -> u32 {
    64 - (d - 1).leading_zeros()
}

/// A number that is known to fit.
fn low(m: u128) -> u64 {
    u64::try_from(m & u128::from(u64::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_unsigned_divisions_of_a_byte() {
        for d in (3u64..256).filter(|d| !d.is_power_of_two()) {
            let plan = unsigned(8, d);
            for x in 0u64..256 {
                let q = match plan {
                    Unsigned::Multiply { before, multiplier, after } => {
                        assert!(multiplier < 256);
                        (((x >> before) * multiplier) >> 8) >> after
                    }
                    Unsigned::Add { multiplier, after } => {
                        assert!(multiplier < 256);
                        let t = (x * multiplier) >> 8;
                        (((x - t) >> 1) + t) >> after
                    }
                };
                assert_eq!(q, x / d, "{x} / {d} by {plan:?}");
            }
        }
    }

    #[test]
    fn all_signed_divisions_of_a_byte() {
        for d in (3i64..128).filter(|d| !d.cast_unsigned().is_power_of_two()) {
            let plan = signed(8, d.cast_unsigned());
            assert!((-128..128).contains(&plan.multiplier));
            for x in -128i64..128 {
                let mut q = (x * plan.multiplier) >> 8;
                if plan.add {
                    q += x;
                }
                let q = (q >> plan.after) + i64::from(x < 0);
                assert_eq!(q, x / d, "{x} / {d} by {plan:?}");
            }
        }
    }

    #[test]
    fn wide_divisions_at_the_edges() {
        for d in [3u64, 5, 6, 7, 10, 641, 1_000_000_007, (1 << 32) - 1, (1 << 32) + 1, u64::MAX - 1, u64::MAX]
        {
            let edges = [
                0,
                1,
                d - 1,
                d,
                u64::MAX,
                u64::MAX - 1,
                (u64::MAX / d) * d,
                ((u64::MAX / d) * d).wrapping_sub(1),
            ];
            for x in edges {
                let high = |a: u64, b: u64| low((u128::from(a) * u128::from(b)) >> 64);
                let q = match unsigned(64, d) {
                    Unsigned::Multiply { before, multiplier, after } => {
                        high(x >> before, multiplier) >> after
                    }
                    Unsigned::Add { multiplier, after } => {
                        let t = high(x, multiplier);
                        (((x - t) >> 1) + t) >> after
                    }
                };
                assert_eq!(q, x / d, "{x} / {d}");
            }
        }
    }
}
