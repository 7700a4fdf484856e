//! [`FlatLayout`]: a flat layout of known rank that lives in constants and costs nothing at run time.

use crate::error::Result;
use crate::layout::Layout;
use crate::tree::Tree;

/// A flat layout of rank `R`, evaluated in `const` context.
///
/// For tile shapes and shared-memory maps that are fixed when the program is compiled. Everything that rearranges
/// modes is on [`Layout`]; convert with [`FlatLayout::to_layout`].
///
/// ```
/// use tilewright_layout::FlatLayout;
/// const TILE: FlatLayout<2> = FlatLayout::row_major([128, 64]).unwrap();
/// const LAST: i64 = TILE.eval([127, 63]).unwrap();
/// assert_eq!((LAST, TILE.size(), TILE.cosize()), (8191, 8192, 8192));
/// assert_eq!(TILE.to_layout()?.to_string(), "(128,64):(64,1)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlatLayout<const R: usize> {
    shape: [i64; R],
    stride: [i64; R],
    size: i64,
    cosize: i64,
}

impl<const R: usize> FlatLayout<R> {
    /// The layout `shape:stride`; `None` if an extent is below 1, or if size or codomain do not fit in 64 bits.
    pub const fn new(shape: [i64; R], stride: [i64; R]) -> Option<Self> {
        let (mut size, mut cosize, mut i) = (1i64, 1i64, 0);
        while i < R {
            if shape[i] < 1 || stride[i] == i64::MIN {
                return None;
            }
            size = match size.checked_mul(shape[i]) {
                Some(size) => size,
                None => return None,
            };
            cosize = match stride[i].abs().checked_mul(shape[i] - 1) {
                Some(reach) => match cosize.checked_add(reach) {
                    Some(cosize) => cosize,
                    None => return None,
                },
                None => return None,
            };
            i += 1;
        }
        Some(FlatLayout { shape, stride, size, cosize })
    }

    /// The compact layout with the first mode fastest.
    pub const fn column_major(shape: [i64; R]) -> Option<Self> {
        Self::compact(shape, false)
    }

    /// The compact layout with the last mode fastest.
    pub const fn row_major(shape: [i64; R]) -> Option<Self> {
        Self::compact(shape, true)
    }

    const fn compact(shape: [i64; R], last_fastest: bool) -> Option<Self> {
        let (mut stride, mut current, mut step) = ([0; R], 1i64, 0);
        while step < R {
            let mode = if last_fastest { R - 1 - step } else { step };
            stride[mode] = current;
            current = match current.checked_mul(shape[mode]) {
                Some(next) => next,
                None => return None,
            };
            step += 1;
        }
        Self::new(shape, stride)
    }

    /// The extents.
    pub const fn shape(&self) -> [i64; R] {
        self.shape
    }

    /// The strides.
    pub const fn stride(&self) -> [i64; R] {
        self.stride
    }

    /// Number of coordinates.
    pub const fn size(&self) -> i64 {
        self.size
    }

    /// Extent of the codomain.
    pub const fn cosize(&self) -> i64 {
        self.cosize
    }

    /// The value at a coordinate; `None` if it does not fit in 64 bits.
    pub const fn eval(&self, coord: [i64; R]) -> Option<i64> {
        let (mut value, mut i) = (0i64, 0);
        while i < R {
            value = match self.stride[i].checked_mul(coord[i]) {
                Some(term) => match value.checked_add(term) {
                    Some(value) => value,
                    None => return None,
                },
                None => return None,
            };
            i += 1;
        }
        Some(value)
    }

    /// The value at an index, first mode fastest, the last mode going on past the end, as [`Layout::at`].
    pub const fn at(&self, index: i64) -> Option<i64> {
        let (mut coord, mut rest, mut i) = ([0; R], index, 0);
        while i < R {
            coord[i] = if i + 1 == R { rest } else { rest % self.shape[i] };
            rest /= self.shape[i];
            i += 1;
        }
        self.eval(coord)
    }

    /// The same layout with all the algebra.
    pub fn to_layout(&self) -> Result<Layout> {
        let tuple = |values: [i64; R]| Tree::Tuple(values.into_iter().map(Tree::Leaf).collect());
        Layout::new(tuple(self.shape), crate::StrideTuple::from(tuple(self.stride)))
    }
}
