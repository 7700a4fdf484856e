//! Ops that move elements and compute nothing, as lists of where each element of the result comes from.

use tilewright_ir::Shape;

/// The distance between neighbours along each axis, in row-major order.
fn strides(shape: Shape) -> [usize; Shape::MAX_RANK] {
    let mut strides = [0; Shape::MAX_RANK];
    let mut next = 1;
    for (axis, &extent) in shape.extents().iter().enumerate().rev() {
        strides[axis] = next;
        next *= extent as usize;
    }
    strides
}

/// Calls `visit` with a position for every element of `shape` in row-major order; the position moves by `strides[axis]` along an axis.
fn walk(shape: Shape, strides: &[usize], mut visit: impl FnMut(usize)) {
    let extents = shape.extents();
    let mut at = [0u32; Shape::MAX_RANK];
    let mut position = 0;
    for _ in 0..shape.elements() {
        visit(position);
        for axis in (0..extents.len()).rev() {
            at[axis] += 1;
            position += strides[axis];
            if at[axis] < extents[axis] {
                break;
            }
            position -= strides[axis] * extents[axis] as usize;
            at[axis] = 0;
        }
    }
}

/// Repeats along axes of extent 1.
pub(super) fn broadcast(words: &[u64], from: Shape, to: Shape) -> Vec<u64> {
    let mut steps = strides(from);
    for (step, &extent) in steps.iter_mut().zip(from.extents()) {
        if extent == 1 {
            *step = 0;
        }
    }
    let mut out = Vec::with_capacity(words.len());
    walk(to, &steps, |i| out.push(words[i]));
    out
}

/// Axis `i` of the result is axis `axes[i]` of the operand.
pub(super) fn transpose(words: &[u64], from: Shape, to: Shape, axes: &[u8]) -> Vec<u64> {
    let original = strides(from);
    let mut steps = [0; Shape::MAX_RANK];
    for (step, &axis) in steps.iter_mut().zip(axes) {
        *step = original[usize::from(axis)];
    }
    let mut out = Vec::with_capacity(words.len());
    walk(to, &steps, |i| out.push(words[i]));
    out
}

/// How a shape looks from one axis: what is outside of it, its extent, what is inside.
pub(super) fn around(shape: Shape, axis: usize) -> (usize, usize, usize) {
    let product = |extents: &[u32]| extents.iter().map(|&e| e as usize).product();
    let extents = shape.extents();
    (product(&extents[..axis]), extents[axis] as usize, product(&extents[axis + 1..]))
}

/// One tile after the other along an axis.
pub(super) fn cat(a: (&[u64], Shape), b: (&[u64], Shape), axis: usize) -> Vec<u64> {
    let (outer, first, inner) = around(a.1, axis);
    let (_, second, _) = around(b.1, axis);
    let mut out = Vec::with_capacity(a.0.len() + b.0.len());
    for i in 0..outer {
        out.extend_from_slice(&a.0[i * first * inner..][..first * inner]);
        out.extend_from_slice(&b.0[i * second * inner..][..second * inner]);
    }
    out
}

/// `count` slices of a tile from `start` on along an axis.
pub(super) fn part(words: &[u64], from: Shape, axis: usize, start: usize, count: usize) -> Vec<u64> {
    let (outer, extent, inner) = around(from, axis);
    let slices = (0..outer).flat_map(|i| &words[(i * extent + start) * inner..][..count * inner]);
    slices.copied().collect()
}

/// The elements at indices along an axis, zero where there is none.
pub(super) fn take(words: &[u64], from: Shape, indices: &[u64], axis: usize) -> Vec<u64> {
    let (outer, extent, inner) = around(from, axis);
    let of_one = indices.len() / outer;
    let each = indices.iter().enumerate();
    let found = each.map(|(i, &index)| {
        let index = usize::try_from(index).ok().filter(|&index| index < extent)?;
        Some(words[(i / of_one * extent + index) * inner + i % inner])
    });
    found.map(Option::unwrap_or_default).collect()
}

/// The position of each element along an axis.
pub(super) fn iota(shape: Shape, axis: usize) -> Vec<u64> {
    let (outer, extent, inner) = around(shape, axis);
    let slices = (0..outer).flat_map(|_| 0..extent as u64);
    slices.flat_map(|i| std::iter::repeat_n(i, inner)).collect()
}

/// The coordinates of every element, in row-major order.
pub(super) fn coordinates(shape: Shape, mut visit: impl FnMut(&[u32]) -> bool) {
    let extents = shape.extents();
    let mut at = [0u32; Shape::MAX_RANK];
    for _ in 0..shape.elements() {
        if !visit(&at[..extents.len()]) {
            return;
        }
        for axis in (0..extents.len()).rev() {
            at[axis] += 1;
            if at[axis] < extents[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(extents: &[u32]) -> Shape {
        Shape::new(extents).unwrap()
    }

    #[test]
    fn elements_go_where_they_should() {
        let six: Vec<u64> = (0..6).collect();
        assert_eq!(transpose(&six, shape(&[2, 3]), shape(&[3, 2]), &[1, 0]), [0, 3, 1, 4, 2, 5]);
        assert_eq!(broadcast(&[7, 8], shape(&[2, 1]), shape(&[2, 3])), [7, 7, 7, 8, 8, 8]);
        assert_eq!(broadcast(&[7, 8, 9], shape(&[1, 3]), shape(&[2, 3])), [7, 8, 9, 7, 8, 9]);
        assert_eq!(cat((&six, shape(&[2, 3])), (&[9, 8], shape(&[2, 1])), 1), [0, 1, 2, 9, 3, 4, 5, 8]);
        assert_eq!(part(&six, shape(&[2, 3]), 1, 1, 2), [1, 2, 4, 5]);
        assert_eq!(part(&six, shape(&[2, 3]), 0, 1, 1), [3, 4, 5]);
        assert_eq!(take(&six, shape(&[2, 3]), &[2, 0, 9, 1], 1), [2, 0, 0, 4]);
        assert_eq!(take(&six, shape(&[2, 3]), &[1, 0, 1, 0, 2, 1, 0, 0, 1], 0), [3, 1, 5, 0, 0, 5, 0, 1, 5]);
        assert_eq!(iota(shape(&[2, 2, 2]), 1), [0, 0, 1, 1, 0, 0, 1, 1]);
        let turned =
            transpose(&(0..24).collect::<Vec<_>>(), shape(&[2, 3, 4]), shape(&[4, 2, 3]), &[2, 0, 1]);
        assert_eq!(turned[..7], [0, 4, 8, 12, 16, 20, 1]);
    }
}
