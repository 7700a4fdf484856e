//! Matrix products.
//!
//! Products and sums of floats are computed in f64 in the order of `k`, the sum is rounded once to the type of `c` and then added to it.
//! A tensor core sums in another order and with fewer bits, so results agree exactly only where every partial sum is representable, as
//! with small integers. `tf32` is permission to round and not a duty: factors are taken as they are. Integers wrap.

use tilewright_ir::{Element, Opcode, Round};
use tilewright_passes::float;

use super::scalar::step;

/// `a * b + c` of m x k, k x n and m x n elements.
pub(super) fn dot(
    (a, a_element): (&[u64], Element),
    (b, b_element): (&[u64], Element),
    (c, c_element): (&[u64], Element),
    [m, n, k]: [usize; 3],
) -> Option<Vec<u64>> {
    let mut out = Vec::with_capacity(m * n);
    if c_element.is_int() {
        for row in 0..m {
            let mut sums: Vec<u64> = c[row * n..][..n].to_vec();
            for (i, &x) in a[row * k..][..k].iter().enumerate() {
                for (sum, &y) in sums.iter_mut().zip(&b[i * n..][..n]) {
                    *sum = sum.wrapping_add(x.wrapping_mul(y));
                }
            }
            out.extend(sums.into_iter().map(|sum| tilewright_ir::canonical(c_element, sum)));
        }
        return Some(out);
    }
    let numbers = |words: &[u64], element| {
        words.iter().map(|&w| float::decode(element, w)).collect::<Option<Vec<f64>>>()
    };
    let (a, b) = (numbers(a, a_element)?, numbers(b, b_element)?);
    for row in 0..m {
        let mut sums = vec![0f64; n];
        for (i, &x) in a[row * k..][..k].iter().enumerate() {
            for (sum, &y) in sums.iter_mut().zip(&b[i * n..][..n]) {
                *sum += x * y;
            }
        }
        for (sum, &c) in sums.into_iter().zip(&c[row * n..][..n]) {
            let rounded = float::encode(c_element, sum, Round::Nearest, false)?;
            out.push(step(Opcode::Add, c_element, rounded, c)?);
        }
    }
    Some(out)
}
