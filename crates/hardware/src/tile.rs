//! A shared-memory tile as a table of byte offsets, which the derivations of descriptors and boxes read.

use tilewright_layout::{Composed, Map, Swizzle, Tree};

use crate::element::Element;
use crate::error::{HardwareError, Result};
use crate::swizzle::{Major, SwizzleMode};

/// More elements than shared memory has bytes are refused before they are enumerated.
const MOST_ELEMENTS: i64 = 256 * 1024;

/// The byte offsets of a layout `(row, k) -> element index`.
pub(crate) struct ByteTile<'a> {
    layout: &'a Composed,
    engine: &'static str,
    pub(crate) element: Element,
    pub(crate) rows: i64,
    pub(crate) k: i64,
    offsets: Vec<i64>,
}

impl<'a> ByteTile<'a> {
    /// Evaluates the layout everywhere.
    pub(crate) fn new(engine: &'static str, layout: &'a Composed, element: Element) -> Result<ByteTile<'a>> {
        let mut tile = ByteTile { layout, engine, element, rows: 0, k: 0, offsets: Vec::new() };
        let shape = layout.shape()?;
        let Tree::Tuple(modes) = &shape else {
            return Err(tile.refuse(format!("its shape is {shape}, expected (rows,k)")));
        };
        let [rows, k] = &modes[..] else {
            return Err(tile.refuse(format!("it has {} modes, expected (rows,k)", modes.len())));
        };
        (tile.rows, tile.k) = (rows.product()?, k.product()?);
        if element.bits() < 8 {
            return Err(tile.refuse("expected elements of whole bytes"));
        }
        let size = layout.size()?;
        if size > MOST_ELEMENTS {
            return Err(tile.refuse(format!("{size} elements do not fit in shared memory")));
        }
        let bytes = i64::from(element.bytes());
        tile.offsets = match separable(layout, tile.rows, tile.k)? {
            Some(indices) => indices,
            None => (0..size).map(|index| layout.at(index)).collect::<std::result::Result<_, _>>()?,
        };
        for index in 0..tile.offsets.len() {
            let offset =
                tile.offsets[index].checked_mul(bytes).filter(|at| (0..=i64::from(u32::MAX)).contains(at));
            let Some(offset) = offset else {
                return Err(tile.refuse(format!("element {index} lies outside of shared memory")));
            };
            tile.offsets[index] = offset;
        }
        Ok(tile)
    }

    /// The error that says why the engine cannot use this tile.
    pub(crate) fn refuse(&self, reason: impl Into<String>) -> HardwareError {
        HardwareError::Unreadable {
            engine: self.engine,
            layout: self.layout.to_string(),
            element: self.element,
            reason: reason.into(),
        }
    }

    /// The swizzle that the layout is written with. Only for choosing which error to show: a function can be written in
    /// many ways.
    fn written(&self) -> Option<SwizzleMode> {
        let mut outer = self.layout.outer();
        let (Some((Map::Swizzle(swizzle), _)), None) = (outer.next(), outer.next()) else { return None };
        let same = |mode: &SwizzleMode| mode.for_element(self.element) == *swizzle;
        if swizzle.is_identity() { Some(SwizzleMode::None) } else { SwizzleMode::ALL.into_iter().find(same) }
    }

    /// Bytes of an element.
    pub(crate) fn bytes(&self) -> i64 {
        self.element.bytes().into()
    }

    /// The same tile as an engine with this swizzle counts it: before the exclusive-or, the contiguous mode first.
    pub(crate) fn view(&self, mode: SwizzleMode, major: Major) -> View<'_> {
        let (along, across) = match major {
            Major::K => (self.k, self.rows),
            Major::Mn => (self.rows, self.k),
        };
        View { tile: self, mode, swizzle: mode.bytes(), major, along, across }
    }
}

/// All element indices of a tile, rows fastest, if the layout is swizzles around an affine part. That part is a sum of what the row
/// and what k contribute, so it is evaluated once for each row and each k instead of once for each element.
fn separable(layout: &Composed, rows: i64, k: i64) -> Result<Option<Vec<i64>>> {
    let Some(inner) = layout.layout().filter(|inner| inner.is_integral() && inner.rank() == 2) else {
        return Ok(None);
    };
    let mut swizzles = Vec::new();
    for (map, offset) in layout.outer() {
        match (map, offset) {
            (Map::Swizzle(swizzle), Tree::Leaf(offset)) => swizzles.push((*swizzle, *offset)),
            _ => return Ok(None),
        }
    }
    let part = |mode: usize, extent: i64| -> Result<Vec<i64>> {
        let mode = inner.mode(mode)?;
        Ok((0..extent).map(|i| mode.at(i)).collect::<std::result::Result<_, _>>()?)
    };
    let (down, along) = (part(0, rows)?, part(1, k)?);
    let mut indices = Vec::with_capacity(down.len() * along.len());
    for x in along {
        for row in &down {
            let mut index = row + x;
            for (swizzle, offset) in swizzles.iter().rev() {
                index = swizzle.apply(index + offset)?;
            }
            indices.push(index);
        }
    }
    Ok(Some(indices))
}

/// Where a layout and the form that an engine wants part ways.
#[derive(Debug)]
pub(crate) struct Mismatch {
    /// Whether the layout is written with the swizzle of the form, then how many elements agreed.
    closeness: (bool, i64),
    pub(crate) reason: String,
}

impl Mismatch {
    /// The one that helps more: of equals, `self`.
    pub(crate) fn closest(self, other: Mismatch) -> Mismatch {
        if other.closeness > self.closeness { other } else { self }
    }

    /// What is said if there is nothing to try.
    pub(crate) fn nothing(reason: &str) -> Mismatch {
        Mismatch { closeness: (false, -1), reason: reason.into() }
    }
}

/// A tile under the assumption of a swizzle and of a contiguous mode.
pub(crate) struct View<'a> {
    tile: &'a ByteTile<'a>,
    pub(crate) mode: SwizzleMode,
    swizzle: Swizzle,
    pub(crate) major: Major,
    /// Extent of the mode that is contiguous.
    pub(crate) along: i64,
    /// Extent of the other mode.
    pub(crate) across: i64,
}

impl View<'_> {
    /// The mismatch after so many elements that agreed.
    pub(crate) fn mismatch(&self, matched: i64, what: impl std::fmt::Display) -> Mismatch {
        let closeness = (self.tile.written() == Some(self.mode), matched);
        Mismatch { closeness, reason: format!("as {} {}, {what}", self.mode, self.major) }
    }

    /// The byte offset before the swizzle, which undoes itself; `None` outside of the tile.
    pub(crate) fn at(&self, along: i64, across: i64) -> Option<i64> {
        if !(0..self.along).contains(&along) || !(0..self.across).contains(&across) {
            return None;
        }
        let (row, k) = match self.major {
            Major::K => (across, along),
            Major::Mn => (along, across),
        };
        let offset = self.tile.offsets.get(usize::try_from(row + self.tile.rows * k).ok()?)?;
        self.swizzle.apply(*offset).ok()
    }
}
