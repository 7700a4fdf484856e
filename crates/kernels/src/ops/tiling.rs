//! Which tile of a matrix a program takes, where programs take parts of rows.

use tilewright_lang::tile::prelude::*;

/// Programs along the second axis of a grid, at most.
const MOST_ALONG_Y: usize = 65535;

/// Tiles of a matrix, and along which axis of the grid they are numbered: rows along the first, which has room for 2^31, and columns along
/// the second, or the other way round if it is `turned`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Rows and columns of a tile.
    pub shape: [u32; 2],
    /// Whether tiles of one row are numbered along the first axis.
    pub turned: bool,
}

impl Tiling {
    /// Tiles of a shape for a matrix of any number of rows and these columns.
    #[must_use]
    pub fn of(shape: [u32; 2], columns: usize) -> Tiling {
        Tiling { shape, turned: columns.div_ceil(shape[1].max(1) as usize) > MOST_ALONG_Y }
    }

    /// Programs along the two axes for a matrix.
    #[must_use]
    pub fn programs(self, (rows, columns): (usize, usize)) -> [u32; 2] {
        let ceil = |n: usize, by: u32| u32::try_from(n.div_ceil(by.max(1) as usize)).unwrap_or(u32::MAX);
        let [down, right] = [ceil(rows, self.shape[0]), ceil(columns, self.shape[1])];
        if self.turned { [right, down] } else { [down, right] }
    }

    /// The row and the column of this program's tile, counted in tiles.
    #[track_caller]
    pub(super) fn place(self) -> (Val<u32>, Val<u32>) {
        if self.turned { (program_id(1), program_id(0)) } else { (program_id(0), program_id(1)) }
    }

    /// This program's tile of a matrix.
    #[track_caller]
    pub(super) fn mine<T: Element>(self, view: View<T, 2>) -> Place<T, 2> {
        view.tile(self.shape).block(self.place())
    }
}

/// Rows along the first axis.
impl From<[u32; 2]> for Tiling {
    fn from(shape: [u32; 2]) -> Tiling {
        Tiling { shape, turned: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_rows_are_numbered_along_the_axis_with_room() {
        let columns = 1 << 28;
        let flat = Tiling::of([1, 4096], columns);
        assert_eq!(flat.programs((1, columns)), [65536, 1]);
        // The last row that fits the second axis keeps it.
        let fits = Tiling::of([1, 4096], columns - 4096);
        assert_eq!(fits.programs((3, columns - 4096)), [3, 65535]);
        let most = (1 << 31) - 1;
        assert_eq!(Tiling::of([32, 32], most).programs((33, most)), [1 << 26, 2]);
        assert_eq!(Tiling::of([1024, 1], 1).programs((most, 1)), [1 << 21, 1]);
    }
}
