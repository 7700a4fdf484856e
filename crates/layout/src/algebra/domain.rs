//! Subsets of the domain as layouts of indices: what maps to 0, and even distributions.

use crate::error::{Result, argument};
use crate::layout::{Layout, Mode};

impl Layout {
    /// The layout `K` of indices that `self` maps to 0 because their modes have stride 0.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!("(2,4,8):(2,0,32)".parse::<Layout>()?.nullspace()?.to_string(), "4:2");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn nullspace(&self) -> Result<Layout> {
        let kept = self.indexed_modes().filter(|(_, mode)| mode.stride.value() == 0);
        let modes: Vec<Mode> = kept.map(|(index, mode)| Mode::new(mode.extent, index)).collect();
        Layout::from_modes(if modes.is_empty() { vec![Mode::new(1, 0)] } else { modes })
    }

    /// Spreads `n` indices evenly over the domain: a layout of at most `n` indices that divides the domain, each
    /// mode taking the share that divides it.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let l: Layout = "(15,14):(1,30)".parse()?;
    /// assert_eq!(l.distribute(6)?.to_string(), "(3,2):(1,15)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn distribute(&self, n: i64) -> Result<Layout> {
        if n < 1 {
            return Err(argument("distribute", format!("the number of indices is {n}, expected at least 1")));
        }
        let mut rest = n;
        let modes = self.indexed_modes().map(|(index, mode)| {
            let share = gcd(mode.extent, rest);
            rest /= share;
            Mode::new(share, index)
        });
        Ok(Layout::from_modes(modes.collect())?.coalesce())
    }

    /// The leaves with the index at which each begins to move.
    fn indexed_modes(&self) -> impl Iterator<Item = (i64, &Mode)> {
        self.tree().leaves().scan(1i64, |index, mode| {
            let at = *index;
            *index *= mode.extent; // cannot overflow: the size of the layout bounds it
            Some((at, mode))
        })
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
