//! Divides: a layout cut into tiles, arranged in four ways.

use crate::error::{Result, argument};
use crate::layout::{Layout, Mode};
use crate::tiler::Tiler;
use crate::tree::Tree;

impl Layout {
    /// Cuts the domain into tiles: mode 0 of the result is one tile, mode 1 counts the tiles. A tiler by mode cuts
    /// each mode and leaves them in place.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler};
    /// let l: Layout = "(9,(4,8)):(59,(13,1))".parse()?;
    /// let tiler: Tiler = "<3:3, (2,4):(1,8)>".parse()?;
    /// assert_eq!(l.logical_divide(&tiler)?.to_string(), "((3,3),((2,4),(2,2))):((177,59),((13,2),(26,1)))");
    /// assert_eq!(l.zipped_divide(&tiler)?.to_string(), "((3,(2,4)),(3,(2,2))):((177,(13,2)),(59,(26,1)))");
    /// assert_eq!(l.tiled_divide(&tiler)?.to_string(), "((3,(2,4)),3,(2,2)):((177,(13,2)),59,(26,1))");
    /// assert_eq!(l.flat_divide(&tiler)?.to_string(), "(3,(2,4),3,(2,2)):(177,(13,2),59,(26,1))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn logical_divide(&self, tiler: &Tiler) -> Result<Layout> {
        by_mode("logical_divide", self, tiler, &|layout, tile| {
            // A tile with basis strides names modes of the layout; otherwise only the size matters.
            let codomain = if tile.is_integral() { layout.coalesce().shape() } else { layout.shape() };
            layout.compose(&Layout::tuple([tile.clone(), tile.complement_in(codomain)?])?)
        })
    }

    /// [`Layout::logical_divide`] with all tile modes gathered in mode 0 and all others in mode 1.
    pub fn zipped_divide(&self, tiler: &Tiler) -> Result<Layout> {
        unzip("zipped_divide", &self.logical_divide(tiler)?, tiler)
    }

    /// [`Layout::zipped_divide`] with mode 1 unpacked: `(tile, rest, rest, ...)`.
    pub fn tiled_divide(&self, tiler: &Tiler) -> Result<Layout> {
        self.zipped_divide(tiler)?.unpack(false)
    }

    /// [`Layout::zipped_divide`] with both modes unpacked: `(tile, tile, ..., rest, rest, ...)`.
    pub fn flat_divide(&self, tiler: &Tiler) -> Result<Layout> {
        self.zipped_divide(tiler)?.unpack(true)
    }

    /// `(A,(B,C,...))` as `(A,B,C,...)`, and mode 0 likewise where `first` is set.
    pub(super) fn unpack(&self, first: bool) -> Result<Layout> {
        let (head, rest) = (self.mode(0)?, self.mode(1)?);
        let head: Vec<Layout> = if first { head.modes().collect() } else { vec![head] };
        Layout::tuple(head.into_iter().chain(rest.modes()))
    }
}

/// Applies `op` with the layouts of a tiler, mode by mode; modes beyond the tiler stay as they are.
pub(super) fn by_mode(
    name: &'static str,
    layout: &Layout,
    tiler: &Tiler,
    op: &dyn Fn(&Layout, &Layout) -> Result<Layout>,
) -> Result<Layout> {
    match tiler {
        Tiler::Keep => Ok(layout.clone()),
        Tiler::Layout(tile) => op(layout, tile),
        Tiler::Modes(tilers) => {
            tiler.check_rank(name, layout)?;
            let modes = layout.modes().enumerate().map(|(i, mode)| match tilers.get(i) {
                Some(tiler) => by_mode(name, &mode, tiler, op),
                None => Ok(mode),
            });
            Layout::tuple(modes.collect::<Result<Vec<_>>>()?)
        }
    }
}

/// Turns `((a,x),(b,y),z)` into `((a,b),(x,y,z))`, guided by the nesting of the tiler.
pub(super) fn unzip(op: &'static str, layout: &Layout, tiler: &Tiler) -> Result<Layout> {
    fn go(op: &'static str, tree: &Tree<Mode>, tiler: &Tiler) -> Result<(Tree<Mode>, Tree<Mode>)> {
        let modes = tree.modes();
        match tiler {
            Tiler::Modes(tilers) => {
                let mut tile = Vec::with_capacity(tilers.len());
                let mut rest = Vec::with_capacity(modes.len());
                for (mode, tiler) in modes.iter().zip(tilers) {
                    let (first, second) = go(op, mode, tiler)?;
                    tile.push(first);
                    rest.push(second);
                }
                rest.extend(modes.iter().skip(tilers.len()).cloned());
                Ok((Tree::Tuple(tile), Tree::Tuple(rest)))
            }
            _ => match modes {
                [first, second] => Ok((first.clone(), second.clone())),
                _ => Err(argument(
                    op,
                    format!("a mode of rank {} under `_` cannot be split into tile and rest", modes.len()),
                )),
            },
        }
    }
    let (tile, rest) = go(op, layout.tree(), tiler)?;
    Layout::from_tree(Tree::Tuple(vec![tile, rest]))
}
