//! [`Footprint`]: which part of the memory an operand takes, and whether that meets another's.
//!
//! An operand is lines of neighbours: so many at a fixed distance are a matrix, and so many of these at another distance a batch.
//! Whether members of a batch overlap is decided exactly; whether two operands do is decided exactly where their lines lie at the same
//! distance (or one of them has a single line), and otherwise by what lies between their first and last element.

use super::problem::{Placement, Storage};

/// Members of two batches that are held against each other one by one; with more, what lies between first and last decides.
const MOST_PAIRS: u64 = 1 << 16;

/// Lines of neighbours at two distances. The unit is the caller's: elements, or bytes for operands of different types.
///
/// ```
/// use tilewright_kernels::gemm::{Footprint, Placement, Storage};
///
/// // Two heads of four columns, side by side in a matrix with eight.
/// let heads = Placement { leading: 8, batch_stride: 4, ..Placement::dense(Storage::RowMajor, 5, 4) };
/// let heads = Footprint::of_matrix(&heads, (5, 4), 2);
/// assert_eq!(heads.extent(), Some(5 * 8));
/// assert!(!heads.members_overlap());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Neighbours in a line.
    pub line: u64,
    /// Lines of a member.
    pub lines: u64,
    /// From one line to the next, at least as long as a line.
    pub pitch: u64,
    /// Members of the batch.
    pub members: u64,
    /// From one member to the next.
    pub stride: u64,
}

impl Footprint {
    /// Of a matrix of so many rows and columns, in elements.
    #[must_use]
    pub fn of_matrix(placement: &Placement, (rows, columns): (u32, u32), batch: u32) -> Footprint {
        let (lines, line) = match placement.storage {
            Storage::RowMajor => (rows, columns),
            Storage::ColumnMajor => (columns, rows),
        };
        Footprint {
            line: line.into(),
            lines: lines.into(),
            pitch: placement.leading,
            members: batch.into(),
            stride: placement.batch_stride,
        }
    }

    /// Of so many neighbours for each member of a batch.
    #[must_use]
    pub fn of_vector(len: u32, batch: u32, stride: u64) -> Footprint {
        let line = u64::from(len);
        Footprint { line, lines: 1, pitch: line, members: batch.into(), stride }
    }

    /// Whether it is no memory at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line == 0 || self.lines == 0 || self.members == 0
    }

    /// From the first to the end of the last, if that is a number.
    #[must_use]
    pub fn extent(&self) -> Option<u64> {
        if self.is_empty() {
            return Some(0);
        }
        let one = (self.lines - 1).checked_mul(self.pitch)?.checked_add(self.line)?;
        (self.members - 1).checked_mul(self.stride)?.checked_add(one)
    }

    /// The same in smaller units, so many of which make one, if that is a number. Distances to where nothing follows do not matter.
    #[must_use]
    pub fn scaled(self, by: u32) -> Option<Footprint> {
        let by = u64::from(by);
        let line = self.line.checked_mul(by)?;
        Some(Footprint {
            line,
            pitch: if self.lines > 1 { self.pitch.checked_mul(by)? } else { line },
            stride: if self.members > 1 { self.stride.checked_mul(by)? } else { 0 },
            ..self
        })
    }

    /// Whether two members share an element.
    #[must_use]
    pub fn members_overlap(&self) -> bool {
        if self.is_empty() || self.members == 1 {
            return false;
        }
        let (line, pitch, stride) = (i128::from(self.line), i128::from(self.pitch), i128::from(self.stride));
        if stride == 0 || pitch < line {
            return true;
        }
        // Lines of two members that are `j` apart meet if `j * stride` is less than a line away from a multiple of the pitch, among
        // those up to the last line; beyond it nothing can meet.
        let reach = i128::from(self.lines - 1) * pitch + line - 1;
        let apart = (reach / stride).min(i128::from(self.members - 1));
        if apart == 0 || 2 * line > pitch {
            return apart > 0;
        }
        // Of `j` from 1 on, those for which `(j * stride + line - 1) % pitch < 2 * line - 1`.
        let quotients = |offset| floor_sum(apart, pitch, stride, stride + offset);
        quotients(line - 1) - quotients(pitch - line) + apart > 0
    }

    /// What a batch stride should be, for messages.
    pub(super) fn apart(&self) -> String {
        let size = self.lines.saturating_mul(self.pitch);
        format!(
            "one that keeps members apart, since they are written: {size}, or another at which no two share an element"
        )
    }

    /// Whether it shares a part of the memory with another that starts at another address, as far as that is decided exactly.
    #[must_use]
    pub fn meets(self, at: u64, other: Footprint, other_at: u64) -> bool {
        let (Some(extent), Some(other_extent)) = (self.extent(), other.extent()) else { return true };
        if extent == 0 || other_extent == 0 {
            return false;
        }
        let (start, other_start) = (i128::from(at), i128::from(other_at));
        if start + i128::from(extent) <= other_start || other_start + i128::from(other_extent) <= start {
            return false;
        }
        let (x, y) = (self.simplified(), other.simplified());
        let pitch = match (x.lines, y.lines) {
            (1, _) => y.pitch,
            (_, 1) => x.pitch,
            _ if x.pitch == y.pitch => x.pitch,
            _ => return true,
        };
        let lines = (i128::from(x.lines) - 1, i128::from(y.lines) - 1);
        // Some line of x at `shift` from the first of y begins less than its own length before, or less than the other's after one of y.
        let meet = |shift: i128| {
            let (pitch, before, after) =
                (i128::from(pitch.max(1)), i128::from(x.line) - 1, i128::from(y.line) - 1);
            let first =
                (-before - shift).div_euclid(pitch) + i128::from((-before - shift).rem_euclid(pitch) != 0);
            let last = (after - shift).div_euclid(pitch);
            first.max(-lines.1) <= last.min(lines.0)
        };
        let (x_stride, y_stride) = (i128::from(x.stride), i128::from(y.stride));
        let (mine, theirs) = (i128::from(x.members), i128::from(y.members));
        let shift = start - other_start;
        if mine == 1 || theirs == 1 || x_stride == y_stride {
            let stride = if mine == 1 { y_stride } else { x_stride };
            return mine + theirs > i128::from(MOST_PAIRS)
                || (1 - theirs..mine).any(|apart| meet(shift + apart * stride));
        }
        mine * theirs > i128::from(MOST_PAIRS)
            || (0..mine).any(|i| (0..theirs).any(|j| meet(shift + i * x_stride - j * y_stride)))
    }

    /// The same memory with as few lines and members as it takes.
    fn simplified(self) -> Footprint {
        let mut simple = self;
        if simple.lines > 1 && simple.pitch == simple.line {
            simple.line *= simple.lines;
            simple.lines = 1;
        }
        if simple.stride == 0 {
            simple.members = 1;
        }
        if simple.lines == 1 && simple.members > 1 && simple.stride == simple.line {
            simple.line *= simple.members;
            simple.members = 1;
        }
        simple
    }
}

/// The sum of `(a * i + b) / m` over `i` below `n`, rounded down each; `n`, `a`, `b` not negative, `m` positive.
fn floor_sum(n: i128, m: i128, a: i128, b: i128) -> i128 {
    if n == 0 {
        return 0;
    }
    let whole = (n - 1) * n / 2 * (a / m) + n * (b / m);
    let (a, b) = (a % m, b % m);
    let last = a * n + b;
    // Points below a line counted by columns are those counted by rows: Euclid's algorithm.
    if last < m { whole } else { whole + floor_sum(last / m, a, m, last % m) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where every element lies.
    fn elements(of: &Footprint) -> Vec<u64> {
        let mut all = Vec::new();
        for member in 0..of.members {
            for line in 0..of.lines {
                all.extend((0..of.line).map(|i| member * of.stride + line * of.pitch + i));
            }
        }
        all
    }

    fn some() -> Vec<Footprint> {
        let mut all = Vec::new();
        for (line, lines) in [(1, 1), (1, 4), (2, 3), (3, 2), (0, 3), (4, 1)] {
            for gap in [0, 1, 3, 6] {
                for (members, stride) in
                    [(1, 0), (2, 0), (2, 1), (3, 2), (3, 3), (2, 4), (4, 5), (5, 7), (3, 9), (2, 24), (0, 5)]
                {
                    all.push(Footprint { line, lines, pitch: line + gap, members, stride });
                }
            }
        }
        all
    }

    #[test]
    fn members_overlap_where_elements_do() {
        for footprint in some() {
            let mut all = elements(&footprint);
            assert_eq!(
                footprint.extent(),
                Some(all.iter().max().map_or(0, |last| last + 1)),
                "{footprint:?}"
            );
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(footprint.members_overlap(), all.len() < count, "{footprint:?}");
        }
    }

    #[test]
    fn operands_meet_where_elements_do() {
        let (mut exact, mut careful) = (0, 0);
        for x in some() {
            for y in some() {
                for (at, other) in [(0, 0), (2, 0), (0, 3), (11, 4)] {
                    let there: Vec<u64> = elements(&y).into_iter().map(|i| i + other).collect();
                    let shared = elements(&x).into_iter().any(|i| there.contains(&(i + at)));
                    let found = x.meets(at, y, other);
                    assert!(found || !shared, "{x:?} at {at}, {y:?} at {other}");
                    if x.pitch == y.pitch || x.lines == 1 || y.lines == 1 {
                        assert_eq!(found, shared, "{x:?} at {at}, {y:?} at {other}");
                        exact += 1;
                    }
                    careful += u32::from(found && !shared);
                }
            }
        }
        assert!(exact > 1000 && careful > 0, "{exact} {careful}");
    }

    #[test]
    fn nothing_overflows_and_large_batches_take_no_time() {
        let heads = Footprint { line: 1, lines: 1 << 30, pitch: 1 << 31, members: 1 << 31, stride: 1 };
        assert!(!heads.members_overlap());
        assert!(!Footprint { stride: 3, ..heads }.members_overlap());
        assert!(Footprint { stride: 6, ..heads }.members_overlap());
        let far = Footprint { stride: u64::MAX, ..heads };
        assert!(far.extent().is_none() && !far.members_overlap() && far.meets(5, far, 5));
        assert!(heads.scaled(8).is_some() && far.scaled(2).is_none());
    }
}
