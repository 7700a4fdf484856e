//! That no view of a launch is written through another, and none has an element twice that is written.
//!
//! Errs on the safe side: views of different strides in the same range of memory count as overlapping.

use std::sync::Arc;

use super::super::value::Passed;
use super::super::view::{RANK, Tensor};
use super::slot::{Slot, SlotKind};

/// Two arguments that share elements, of which the first is written; they may be the same.
pub(super) struct Shared {
    pub(super) written: usize,
    pub(super) other: usize,
    pub(super) found: String,
}

/// Checks all views of a launch. Each is inside of its buffer.
pub(super) fn check(slots: &[Slot], passed: &[Passed<'_>]) -> Result<(), Shared> {
    let view = |i: usize| match (&slots[i].kind, &passed[i]) {
        (SlotKind::View(slot), Passed::View(given)) if !given.is_empty() => Some((&slot.info, given)),
        _ => None,
    };
    for written in 0..slots.len() {
        let Some((info, given)) = view(written).filter(|(info, _)| info.writes) else { continue };
        if !is_injective(given.extents.into_iter().zip(given.strides)) {
            let found = format!("{}, which has elements twice", given.describe());
            return Err(Shared { written, other: written, found });
        }
        for other in (0..slots.len()).filter(|&other| other != written) {
            let Some((of_other, second)) = view(other) else { continue };
            // Two that are written are looked at once.
            if of_other.writes && other < written || !overlap(given, second) {
                continue;
            }
            let in_place = info.writes != of_other.writes && is_same(given, second);
            if !in_place {
                let place = |view: &Tensor<'_>| format!("{} from byte {} on", view.shape(), view.start());
                let found = format!("{} and {}", place(given), place(second));
                return Err(Shared { written, other, found });
            }
        }
    }
    Ok(())
}

/// Whether every element has its own place, as it is if each stride is longer than all that lies within.
pub(crate) fn is_injective(axes: impl Iterator<Item = (u64, u64)>) -> bool {
    let mut sorted = [(0, 1); RANK];
    for (to, (extent, stride)) in sorted.iter_mut().zip(axes.filter(|&(extent, _)| extent > 1)) {
        *to = (stride, extent);
    }
    sorted.sort_unstable();
    let mut reach = 1u64;
    sorted.iter().filter(|&&(_, extent)| extent > 1).all(|&(stride, extent)| {
        let fits = stride >= reach;
        reach = reach.saturating_add((extent - 1).saturating_mul(stride));
        fits
    })
}

fn is_same(a: &Tensor<'_>, b: &Tensor<'_>) -> bool {
    // Another type of the same width is read and written in the same places.
    let shape =
        |view: &Tensor<'_>| (view.element.bytes(), view.rank, view.start(), view.extents, view.strides);
    shape(a) == shape(b)
}

/// Whether two views with elements may share some.
fn overlap(a: &Tensor<'_>, b: &Tensor<'_>) -> bool {
    if !Arc::ptr_eq(a.memory, b.memory) {
        return false;
    }
    let bytes =
        |view: &Tensor<'_>| view.reach().unwrap_or(u64::MAX).saturating_mul(u64::from(view.element.bytes()));
    let (a, b) = if a.start() <= b.start() { (a, b) } else { (b, a) };
    let distance = (b.start() - a.start()) as u64;
    if distance >= bytes(a) {
        return false;
    }
    let width = u64::from(a.element.bytes());
    if a.element != b.element || a.rank != b.rank || !distance.is_multiple_of(width) {
        return true;
    }
    !apart((a.extents, a.strides), (b.extents, b.strides), distance / width)
}

/// Extents, and strides in elements.
type Axes<const N: usize> = ([u64; N], [u64; N]);

/// Whether two views of one tensor, neither of them empty, are different parts of it: columns beside columns, say. The second begins so many
/// elements after the first.
pub(crate) fn apart<const N: usize>(a: Axes<N>, b: Axes<N>, distance: u64) -> bool {
    // The axes that matter to either, with the stride that both have: longest first.
    let mut axes = [(0, 1, 1); N];
    for (axis, of_both) in axes.iter_mut().enumerate() {
        let (first, second) = (a.0[axis], b.0[axis]);
        *of_both = match (first > 1, second > 1) {
            (true, true) if a.1[axis] != b.1[axis] => return false,
            (true, _) => (a.1[axis], first, second),
            (false, true) => (b.1[axis], first, second),
            (false, false) => (0, 1, 1),
        };
    }
    axes.sort_unstable_by(|x, y| y.cmp(x));
    let strides = axes.iter().map(|&(stride, ..)| stride);
    let common = strides.fold(0, gcd);
    if common > 1 && !distance.is_multiple_of(common) {
        return true;
    }
    // How far the second begins along each axis.
    let (mut left, mut steps) = (distance, [0; N]);
    for (step, &(stride, ..)) in steps.iter_mut().zip(&axes).filter(|(_, axis)| axis.0 > 0) {
        (*step, left) = (left / stride, left % stride);
    }
    // If each place in the box around both is one element, they share an element only where they share indices along all axes.
    let around =
        axes.iter().zip(&steps).map(|(&(stride, a, b), &step)| (a.max(b.saturating_add(step)), stride));
    left == 0 && is_injective(around) && axes.iter().zip(&steps).any(|(&(_, a, _), &step)| step >= a)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::{Buffer, Device};
    use super::*;

    fn places(view: &Tensor<'_>) -> Vec<u64> {
        let mut all = vec![view.first];
        for (&extent, &stride) in view.extents.iter().zip(&view.strides) {
            all = all.iter().flat_map(|&at| (0..extent).map(move |i| at + i * stride)).collect();
        }
        all
    }

    fn with<R>(
        buffer: &Buffer<f32>,
        (first, extents, strides): ([usize; 2], [usize; 2], [usize; 2]),
        work: impl FnOnce(&Tensor<'_>) -> R,
    ) -> R {
        let part = buffer.slice(first[0] * strides[0] + first[1] * strides[1]..).unwrap();
        let view = part.strided(extents, strides);
        let Passed::View(mut tensor) = super::super::super::value::sealed::Pass::pass(&view) else {
            panic!("a view")
        };
        // Counted from the start of the whole buffer.
        tensor.first = (tensor.offset / 4) as u64;
        tensor.offset = 0;
        work(&tensor)
    }

    #[test]
    fn overlaps_are_those_of_the_places() {
        let buffer = Device::cpu().alloc::<f32>(400).unwrap();
        let mut found = [0; 2];
        for strides in [[10, 1], [1, 10], [20, 2], [12, 3], [3, 7]] {
            for (i, j) in (0..5).flat_map(|i| (0..5).map(move |j| (i, j))) {
                for extents in [[1, 1], [3, 2], [2, 3], [4, 1], [1, 4], [5, 5]] {
                    with(&buffer, ([1, 1], [3, 3], strides), |a| {
                        with(&buffer, ([i, j], extents, strides), |b| {
                            let all: HashSet<u64> = places(a).into_iter().collect();
                            let shared = places(b).iter().any(|at| all.contains(at));
                            let told = overlap(a, b);
                            assert_eq!(told, overlap(b, a));
                            assert!(told || !shared, "{a:?} {b:?}");
                            // Only strides that are not nested are told to overlap where they do not.
                            assert!(told == shared || strides == [3, 7], "{a:?} {b:?}");
                            found[usize::from(told)] += 1;
                        });
                    });
                }
            }
        }
        assert!(found[0] > 100 && found[1] > 100, "{found:?}");
    }

    #[test]
    fn elements_that_come_twice_are_found() {
        let injective = |axes: &[(u64, u64)]| is_injective(axes.iter().copied());
        assert!(
            injective(&[(4, 10), (10, 1)]) && injective(&[(10, 1), (4, 10)]) && injective(&[(1, 0), (3, 1)])
        );
        assert!(!injective(&[(4, 9), (10, 1)]) && !injective(&[(2, 0), (3, 1)]));
        assert!(injective(&[(u64::MAX, 1), (2, u64::MAX)]));
    }
}
