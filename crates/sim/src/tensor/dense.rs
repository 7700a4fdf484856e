//! Small dense products, compiled for the vector units of the computer they run on.

/// Compiles a function twice: for any processor, and for x86-64 processors with AVX2 and FMA, which it takes when they
/// are there. Everything that the body calls must be inlined, or it is not compiled for them.
///
/// The answers are the same: a fused multiply-add without an instruction for it is a library function.
macro_rules! accelerated {
    ($(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        $visibility fn $name($($argument: $type),*) {
            #[inline(always)]
            fn portable($($argument: $type),*) $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn vector($($argument: $type),*) {
                    portable($($argument),*);
                }
                if is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
                {
                    #[allow(unsafe_code, reason = "a function for a processor that has been looked at")]
                    // SAFETY: the function is safe but for the instructions it uses, which were just found.
                    unsafe { vector($($argument),*) };
                    return;
                }
            }
            portable($($argument),*);
        }
    };
}
pub(super) use accelerated;

/// Extents of a product: `rows` of the accumulator, a multiple of 4; `columns`, a multiple of 8; `depth` of the sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
}

/// Columns that are computed together; with four rows of them, the accumulators fill half of the registers.
const WIDTH: usize = 16;

/// `c(row, column) += sum over k of x(k, row) * y(k, column)`, in the order of k, each step one fused multiply-add.
///
/// All are stored by rows: `c` and `y` without gaps, `x` with `stride` elements from one k to the next.
#[inline(always)]
pub(super) fn multiply_inline(x: &[f32], stride: usize, y: &[f32], c: &mut [f32], extents: Extents) {
    let Extents { rows, columns, .. } = extents;
    for row in (0..rows).step_by(4) {
        let mut column = 0;
        while column + WIDTH <= columns {
            tile::<WIDTH>(x, stride, y, c, extents, (row, column));
            column += WIDTH;
        }
        if column < columns {
            tile::<8>(x, stride, y, c, extents, (row, column));
        }
    }
}

accelerated! {
    /// [`multiply_inline`] as a function of its own.
    pub(super) fn multiply(x: &[f32], stride: usize, y: &[f32], c: &mut [f32], extents: Extents) {
        multiply_inline(x, stride, y, c, extents);
    }
}

/// Four rows and `W` columns of a product, whose accumulators stay in registers.
#[inline(always)]
fn tile<const W: usize>(
    x: &[f32],
    stride: usize,
    y: &[f32],
    c: &mut [f32],
    Extents { columns, depth, .. }: Extents,
    (row, column): (usize, usize),
) {
    let mut sums = [[0f32; W]; 4];
    for (i, sum) in sums.iter_mut().enumerate() {
        if let Some(old) = c.get((row + i) * columns + column..).and_then(|c| c.first_chunk()) {
            *sum = *old;
        }
    }
    for k in 0..depth {
        let left = x.get(k * stride + row..).and_then(|x| x.first_chunk::<4>());
        let right = y.get(k * columns + column..).and_then(|y| y.first_chunk::<W>());
        let (Some(left), Some(right)) = (left, right) else { return };
        for (sum, factor) in sums.iter_mut().zip(left) {
            for (sum, other) in sum.iter_mut().zip(right) {
                *sum = factor.mul_add(*other, *sum);
            }
        }
    }
    for (i, sum) in sums.iter().enumerate() {
        if let Some(new) = c.get_mut((row + i) * columns + column..).and_then(|c| c.first_chunk_mut()) {
            *new = *sum;
        }
    }
}

accelerated! {
    /// [`multiply`] in double precision, rounded to nearest, for any extents.
    pub(super) fn multiply_f64(x: &[f64], y: &[f64], c: &mut [f64], extents: Extents) {
        let Extents { rows, columns, depth } = extents;
        for k in 0..depth {
            for (row, sums) in c.chunks_exact_mut(columns).take(rows).enumerate() {
                let factor = x[k * rows + row];
                for (sum, other) in sums.iter_mut().zip(&y[k * columns..][..columns]) {
                    *sum = factor.mul_add(*other, *sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_rounded_once_in_order() {
        let extents = Extents { rows: 8, columns: 24, depth: 7 };
        let number = |i: usize| ((i * 7919 % 1009) as f32 - 500.0) * 1.000_123;
        let x: Vec<f32> = (0..7 * 11).map(number).collect();
        let y: Vec<f32> = (0..7 * 24).map(|i| number(i + 31)).collect();
        let mut c: Vec<f32> = (0..8 * 24).map(|i| number(i + 77)).collect();
        let mut expected = c.clone();
        for row in 0..8 {
            for column in 0..24 {
                for k in 0..7 {
                    let sum = &mut expected[row * 24 + column];
                    *sum = x[k * 11 + row].mul_add(y[k * 24 + column], *sum);
                }
            }
        }
        let mut portable = c.clone();
        multiply(&x, 11, &y, &mut c, extents);
        assert_eq!(c, expected);
        // Here it is compiled for any processor.
        multiply_inline(&x, 11, &y, &mut portable, extents);
        assert_eq!(portable, expected);
    }

    #[test]
    fn short_slices_are_harmless() {
        let mut c = [1.0; 32];
        multiply(&[1.0; 3], 4, &[1.0; 5], &mut c, Extents { rows: 4, columns: 8, depth: 4 });
        assert_eq!(c, [1.0; 32]);
    }
}
