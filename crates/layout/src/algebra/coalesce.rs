//! Coalesce: the same function with as few modes as possible.

use crate::error::{LayoutError, Result};
use crate::int_tuple::IntTuple;
use crate::layout::{Layout, Mode};
use crate::tree::Tree;

impl Layout {
    /// The same function on indices, flat and with as few modes as possible.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let l: Layout = "((2,2),(2,2)):((1,4),(8,32))".parse()?;
    /// assert_eq!(l.coalesce().to_string(), "(2,4,2):(1,4,32)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn coalesce(&self) -> Layout {
        let mut modes: Vec<Mode> = Vec::new();
        let mut last = None;
        for &mode in self.tree().leaves() {
            last = Some(mode);
            if mode.extent != 1 {
                push_merged(&mut modes, mode);
            }
        }
        let tree = match (modes.is_empty(), last) {
            (true, Some(only)) => Tree::Leaf(only), // all extents are 1: keep the last stride, as CuTe IR does
            (true, None) => Tree::Tuple(Vec::new()),
            (false, _) => Tree::unwrap_single(modes.into_iter().map(Tree::Leaf).collect()),
        };
        Layout::part(&tree)
    }

    /// Coalesces at the leaves of `profile`: its tuples are walked down mode by mode, modes that it does not
    /// mention stay as they are.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let l: Layout = "(2,(1,6)):(1,(6,2))".parse()?;
    /// assert_eq!(l.coalesce().to_string(), "12:1");
    /// assert_eq!(l.coalesce_by(&(1, 1).into())?.to_string(), "(2,6):(1,2)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn coalesce_by(&self, profile: &IntTuple) -> Result<Layout> {
        let Tree::Tuple(profiles) = profile else {
            return Ok(self.coalesce());
        };
        if profiles.len() > self.rank() {
            return Err(LayoutError::Rank {
                op: "coalesce",
                what: format!("profile {profile}"),
                found: profiles.len(),
                expected: format!("at most {}, the rank of {self}", self.rank()),
            });
        }
        let by_mode = self.modes().enumerate().map(|(i, mode)| match profiles.get(i) {
            Some(profile) => mode.coalesce_by(profile),
            None => Ok(mode),
        });
        Layout::tuple(by_mode.collect::<Result<Vec<_>>>()?)
    }

    /// Removes what does not change the set of values: modes of stride 0 and of extent 1.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!("(2,4,1):(1,0,5)".parse::<Layout>()?.filter().to_string(), "2:1");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn filter(&self) -> Layout {
        let kept = self.tree().leaves().filter(|mode| mode.stride.value() != 0 && mode.extent != 1);
        let mut modes = Vec::new();
        for &mode in kept {
            push_merged(&mut modes, mode);
        }
        if modes.is_empty() {
            modes.push(Mode::new(1, 0));
        }
        Layout::part(&Tree::unwrap_single(modes.into_iter().map(Tree::Leaf).collect()))
    }
}

/// The flat modes of `tree` that give the same function on *all* indices, past the end included.
///
/// Unlike [`Layout::coalesce`] this keeps a last mode of extent 1, because the last mode goes on for ever: beyond
/// its domain `(4,1):(1,0)` is 0 and `4:1` is not. Never empty.
pub(super) fn coalesce_extended(tree: &Tree<Mode>) -> Vec<Mode> {
    let mut modes: Vec<Mode> = Vec::with_capacity(8);
    let mut last = Mode::new(1, 0);
    // Push each mode when the next one is seen, so that the last one can be told apart.
    let mut pending = None;
    for &mode in tree.leaves() {
        if let Some(previous) = pending.replace(mode)
            && previous.extent != 1
        {
            push_merged(&mut modes, previous);
        }
        last = mode;
    }
    push_merged(&mut modes, last);
    modes
}

/// Appends a mode, or lengthens the one before it where that goes on at the right stride.
fn push_merged(modes: &mut Vec<Mode>, mode: Mode) {
    if let Some(top) = modes.last_mut()
        && top.stride.checked_mul(top.extent).is_ok_and(|next| next == mode.stride)
    {
        top.extent *= mode.extent; // cannot overflow: the size of the layout bounds it
    } else {
        modes.push(mode);
    }
}
