//! Tensors in buffers: what kernels of the tile level are launched with.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use tilewright_hardware::Element;

use super::value::{Memory, Passed, sealed};
use super::{Buffer, DeviceError, Item};

/// The most dimensions that a view of a kernel has.
pub(super) const RANK: usize = 5;

/// A tensor of `R` dimensions, one to five, in a [`Buffer`]: for a parameter that is a [`View`](crate::lang::tile::View). Outermost axes come
/// first; strides count elements.
///
/// Nothing is checked when a view is made: a [`Program`](super::Program) holds it against its parameter and the buffer at launch, and says
/// which argument is wrong.
///
/// ```
/// use tilewright::prelude::*;
/// let x = Device::cpu().upload(&[0.0f32; 6 * 10])?;
/// let whole = x.view([6, 10]);
/// let right = whole.slice(1, 8..)?; // the last two columns
/// assert_eq!((right.extents(), right.strides()), ([6, 2], [10, 1]));
/// assert_eq!(right.transpose().extents(), [2, 6]);
/// assert_eq!(x.strided([5, 10], [0, 1]).strides(), [0, 1]); // the same row five times, to read
/// let error = whole.slice(0, 3..7).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "a slice of a view: found 3 to 7 along axis 0, expected a range inside of [6, 10]"
/// );
/// # Ok::<(), tilewright::device::DeviceError>(())
/// ```
#[derive(Debug)]
pub struct BufferView<'a, T, const R: usize> {
    buffer: &'a Buffer<T>,
    /// Elements from the start of the buffer.
    first: u64,
    extents: [u64; R],
    strides: [u64; R],
}

impl<T, const R: usize> Clone for BufferView<'_, T, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const R: usize> Copy for BufferView<'_, T, R> {}

impl<T: Item> Buffer<T> {
    /// The elements as a tensor of these extents, rows one behind the other without gaps.
    #[must_use]
    pub fn view<const R: usize>(&self, extents: [usize; R]) -> BufferView<'_, T, R> {
        let mut strides = [1; R];
        for axis in (1..R).rev() {
            // Beyond 2^64 elements no buffer is large enough, which is found at launch.
            strides[axis - 1] = extents[axis].saturating_mul(strides[axis]);
        }
        self.strided(extents, strides)
    }

    /// The elements as a tensor with so many elements between neighbours along each axis. A stride of zero repeats: such a view can be read.
    #[must_use]
    pub fn strided<const R: usize>(&self, extents: [usize; R], strides: [usize; R]) -> BufferView<'_, T, R> {
        let wide = |numbers: [usize; R]| numbers.map(|number| number as u64);
        BufferView { buffer: self, first: 0, extents: wide(extents), strides: wide(strides) }
    }
}

impl<'a, T, const R: usize> BufferView<'a, T, R> {
    /// How far it extends along each axis.
    #[must_use]
    pub fn extents(&self) -> [u64; R] {
        self.extents
    }

    /// Elements between neighbours along each axis.
    #[must_use]
    pub fn strides(&self) -> [u64; R] {
        self.strides
    }

    /// The buffer that it is in.
    #[must_use]
    pub fn buffer(&self) -> &'a Buffer<T> {
        self.buffer
    }

    /// The same, so many elements further on in the buffer.
    pub(crate) fn beginning_at(self, elements: usize) -> Self {
        BufferView { first: self.first.saturating_add(elements as u64), ..self }
    }

    /// Some indices of an axis, in the same memory.
    ///
    /// # Errors
    /// If the view does not have them.
    pub fn slice(self, axis: usize, range: impl RangeBounds<usize>) -> Result<Self, DeviceError> {
        let extent =
            self.extents.get(axis).map_or(0, |&extent| usize::try_from(extent).unwrap_or(usize::MAX));
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => extent,
        };
        if axis >= R || start > end || end > extent {
            return Err(DeviceError::ViewSlice { axis, start, end, extents: self.extents.to_vec() });
        }
        let mut view = self;
        // A position beyond 2^64 is in no buffer, which is found at launch.
        view.first = view.first.saturating_add((start as u64).saturating_mul(self.strides[axis]));
        view.extents[axis] = (end - start) as u64;
        Ok(view)
    }

    /// The last two axes swapped. Nothing moves in memory; one dimension stays as it is.
    #[must_use]
    pub fn transpose(self) -> Self {
        let mut view = self;
        if R >= 2 {
            view.extents.swap(R - 2, R - 1);
            view.strides.swap(R - 2, R - 1);
        }
        view
    }
}

impl<T: Item, const R: usize> sealed::Pass for BufferView<'_, T, R> {
    fn pass(&self) -> Passed<'_> {
        const { assert!(R >= 1 && R <= RANK, "views have one to five dimensions") };
        let (mut extents, mut strides) = ([1; RANK], [0; RANK]);
        extents[..R].copy_from_slice(&self.extents);
        strides[..R].copy_from_slice(&self.strides);
        // Where a view is that has no elements does not matter, but must be inside of the buffer.
        let first = if self.extents.contains(&0) { 0 } else { self.first };
        Passed::View(Tensor {
            element: T::ELEMENT,
            memory: &self.buffer.memory,
            offset: self.buffer.offset,
            first,
            len: self.buffer.len as u64,
            rank: R,
            extents,
            strides,
        })
    }
}

/// A view as a launch sees it.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    pub(super) element: Element,
    pub(super) memory: &'a Arc<Memory>,
    /// Bytes of the memory before the buffer.
    pub(super) offset: usize,
    /// Elements of the buffer before the view.
    pub(super) first: u64,
    /// Elements of the buffer.
    pub(super) len: u64,
    pub(super) rank: usize,
    /// One behind the rank.
    pub(super) extents: [u64; RANK],
    /// Zero behind the rank.
    pub(super) strides: [u64; RANK],
}

impl Tensor<'_> {
    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        format!("a view of {}", self.shape())
    }

    /// Elements, extents and strides, for messages.
    pub(super) fn shape(&self) -> String {
        let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>();
        let (extents, strides) = (list(&self.extents[..self.rank]), list(&self.strides[..self.rank]));
        format!("{} {} with strides [{}]", self.element, extents.join("x"), strides.join(", "))
    }

    /// Whether it has no elements.
    pub(super) fn is_empty(&self) -> bool {
        self.extents.contains(&0)
    }

    /// Elements from the first to behind the last; none if that is no number of 64 bits.
    pub(super) fn reach(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        let steps = self.extents.iter().zip(&self.strides);
        steps
            .into_iter()
            .try_fold(1u64, |reach, (&extent, &stride)| reach.checked_add((extent - 1).checked_mul(stride)?))
    }

    /// Elements of the buffer that it needs; none if that is no number of 64 bits.
    pub(super) fn needed(&self) -> Option<u64> {
        self.reach()?.checked_add(self.first)
    }

    /// Bytes of the memory before the first element. The view is inside of its buffer.
    #[allow(clippy::cast_possible_truncation, reason = "inside of a buffer, whose length is a usize")]
    pub(super) fn start(&self) -> usize {
        self.offset + self.first as usize * self.element.bytes() as usize
    }

    /// Its address.
    pub(super) fn address(&self) -> u64 {
        self.memory.address() + self.start() as u64
    }
}
