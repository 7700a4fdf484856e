//! Accesses to global memory, and which of them threads must meet between.
//!
//! What a program stores it must see when it loads, though other threads did it, and what it reads before it writes it must not see. Through one
//! view all is in the order of the text. Of two views that may be the very same one (a kernel that works in place), what is read through
//! one comes before what is written through the other further down in the text; that a round of a loop reads what a later one writes is excluded by the
//! contract of launches. Threads that come back to their own elements need not wait for each other.

use std::rc::Rc;

use tilewright_ir::{Def, Func, Op, Value};

use super::Lowering;
use super::assign::constant;
use super::layout::Layout;

/// An access to global memory: whose, whether it writes, and what it is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Touched {
    /// The pointer it started from; none if nobody knows.
    pub(super) root: Option<Value>,
    pub(super) writes: bool,
    /// The box, if each of its elements belongs to one thread; none for anything else.
    pub(super) place: Option<Place>,
    /// Whether it comes before in the text, and not only in an earlier round of a loop.
    pub(super) in_text: bool,
    /// The store that does it, if no two rounds of a loop have different threads store to one place.
    pub(super) by: Option<Op>,
}

/// A box of a tensor, and who holds which of its elements.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) pointer: Value,
    pub(super) starts: Vec<Start>,
    pub(super) extents: Vec<Value>,
    pub(super) strides: Vec<Value>,
    pub(super) layout: Rc<Layout>,
    /// Of an element.
    pub(super) bytes: u32,
}

/// Where a box starts along an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Start {
    At(i64),
    Computed(Value),
}

impl Place {
    /// Whether two boxes of one view share no index along some axis, and so no memory: elements of a view that is written lie apart.
    fn is_beside(&self, other: &Place) -> bool {
        let extents = |place: &Place| place.layout.shape.extents().to_vec();
        let ends = extents(self).into_iter().zip(extents(other));
        let mut axes = self.starts.iter().zip(&other.starts).zip(ends);
        axes.any(|(starts, (own, others))| match starts {
            (Start::At(a), Start::At(b)) => a + i64::from(own) <= *b || b + i64::from(others) <= *a,
            _ => false,
        })
    }

    /// Whether threads hold the same elements of both boxes, or the boxes share none, if the two parameters that their pointers come from are the
    /// very same view.
    fn is_harmless_in_place(&self, later: &Place, lowering: &Lowering<'_>, roots: (Value, Value)) -> bool {
        let held_alike = self.layout == later.layout && self.bytes == later.bytes;
        let corresponds = |&(a, b): &(Value, Value)| corresponds(lowering.source, (a, b), roots, DEPTH);
        let as_many_axes = self.strides.len() == later.strides.len();
        let mut shape =
            std::iter::once((self.pointer, later.pointer)).chain(pairs(&self.strides, &later.strides));
        let starts = self.starts.iter().zip(&later.starts).zip(self.layout.shape.extents());
        let starts_alike = { starts }.all(|(starts, &extent)| match starts {
            (Start::Computed(a), Start::Computed(b)) => corresponds(&(*a, *b)),
            // What all programs read, and the place of one: it starts at zero, too, or beyond.
            (Start::At(0), Start::Computed(b)) => lowering.align.at(*b, 0) >= extent.into(),
            (a, b) => a == b,
        });
        as_many_axes
            && shape.all(|pair| corresponds(&pair))
            && (held_alike && starts_alike || self.is_beside(later))
    }
}

impl Touched {
    /// Whether threads must meet between this access and a later one.
    fn meets(&self, later: &Touched, lowering: &Lowering<'_>) -> bool {
        let places = self.place.as_ref().zip(later.place.as_ref());
        match (self.root, later.root) {
            (Some(own), Some(other)) if own != other => {
                let in_place = self.in_text && !self.writes && later.writes;
                in_place
                    && !places.is_some_and(|(place, later)| {
                        place.is_harmless_in_place(later, lowering, (own, other))
                    })
            }
            _ => {
                let again = later.place.is_some() && self.by.is_some() && self.by == later.by;
                let one_view =
                    |own: &Place, later: &Place| own.pointer == later.pointer && own.strides == later.strides;
                let harmless = again
                    || places.is_some_and(|(own, later)| {
                        own == later || one_view(own, later) && own.is_beside(later)
                    });
                (self.writes || later.writes) && !harmless
            }
        }
    }
}

impl Lowering<'_> {
    /// Says that global memory is about to be read or written: what a program stores it must see when it loads, though other threads did it.
    pub(super) fn touch_global(&mut self, access: Touched) {
        self.come_to(&access);
        self.scratch.global.push(access);
    }

    /// Threads meet if what they did to global memory so far must come before this access.
    pub(super) fn come_to(&mut self, access: &Touched) {
        if self.scratch.global.iter().any(|before| before.meets(access, self)) {
            self.meet();
        }
    }
}

/// How far back what two numbers are computed from is compared.
const DEPTH: u32 = 12;

/// Whether two values are the same number if two parameters are the very same view: they are computed alike, one from the extents and strides of
/// the one where the other is from those of the other.
fn corresponds(func: &Func, (a, b): (Value, Value), roots: (Value, Value), depth: u32) -> bool {
    if a == b || constant(func, a).is_some_and(|bits| constant(func, b) == Some(bits)) {
        return true;
    }
    match (func.value(a).def, func.value(b).def) {
        (Def::Arg(..), Def::Arg(..)) => {
            part_of(func, a, roots.0).is_some_and(|part| part_of(func, b, roots.1) == Some(part))
        }
        (Def::Result(one, i), Def::Result(other, j)) if depth > 0 => {
            let (one, other) = (func.op(one), func.op(other));
            i == j
                && one.code == other.code
                && one.attrs == other.attrs
                && one.info().is_pure()
                && one.regions.is_empty()
                && one.operands.len() == other.operands.len()
                && pairs(&one.operands, &other.operands).all(|pair| corresponds(func, pair, roots, depth - 1))
        }
        _ => false,
    }
}

/// Which part of a view a parameter is, and the rank of the view: its extents, and then its strides, follow its pointer, under its name.
fn part_of(func: &Func, value: Value, root: Value) -> Option<(usize, usize)> {
    let position = |value: Value| match func.value(value).def {
        Def::Arg(region, i) => (region == func.body()).then_some(i as usize),
        Def::Result(..) => None,
    };
    let root = position(root)?;
    let part = position(value)?.checked_sub(root)?;
    let own = |i: usize, what: &str, axis: usize| {
        func.params
            .get(root + i)
            .is_some_and(|found| found.name == format!("{}_{what}{axis}", func.params[root].name))
    };
    let rank = (0..).take_while(|&axis| own(1 + axis, "extent", axis)).count();
    (part <= rank || part <= 2 * rank && own(part, "stride", part - rank - 1)).then_some((part, rank))
}

fn pairs<'a>(a: &'a [Value], b: &'a [Value]) -> impl Iterator<Item = (Value, Value)> + 'a {
    a.iter().copied().zip(b.iter().copied())
}
