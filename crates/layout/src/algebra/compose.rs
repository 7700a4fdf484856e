//! Composition: `R(c) == A(B(c))`, returned only when that is proved.
//!
//! # The proof
//!
//! Write an index of `A` in the mixed radix of its (coalesced) extents; the last digit is unbounded because the
//! last mode goes on past the end. `A` is linear in the digits, so `A(x + y) == A(x) + A(y)` whenever adding `x`
//! and `y` carries nowhere. A mode `n:e` of `B` walks over the multiples of `e`. It is cut into pieces `m:e`,
//! `(n/m):(e*m)`, ... where `m` is how often `e` can be added before a digit overflows. Then one check remains, for
//! all pieces of all modes of `B` together: the sum over the pieces of `(m-1) * digit` stays below the extent in
//! every digit. If it does, no carry ever happens and the result is right at every coordinate.
//!
//! This accepts all that the usual divisibility rules accept, and more (`(8,8):(8,1) o 6:3`), and refuses what
//! they let through wrongly (`(4,6,8):(2,3,5) o 6:3`, cutlass issue 3177; `(6,2):(1,7) o (3,2):(2,3)`, issue 2955).
//!
//! A carry makes the result wrong unless several carries happen to cancel. So when the check fails and `B` has at
//! most `EXACT_LIMIT` coordinates, the question is decided by evaluating both sides everywhere; beyond that the
//! composition is refused. In debug builds every result within that limit is evaluated everywhere too.

use super::coalesce::coalesce_extended;
use crate::error::{LayoutError, Result, overflow};
use crate::int_tuple::{Coord, Index, ceil_div};
use crate::layout::{Layout, Mode};
use crate::stride::{Basis, Stride};
use crate::tiler::Tiler;
use crate::tree::Tree;

/// Up to this many coordinates a composition is decided by evaluation when the digit proof fails.
const EXACT_LIMIT: i64 = 1 << 16;

impl Layout {
    /// The layout `R` with `R(c) == self(b(c))` for every coordinate `c` of `b`.
    ///
    /// An error, with the reason, when no such layout exists (or, for more than 65536 coordinates, when it cannot
    /// be proved to exist). If `b` has basis strides, each of its modes is composed with the mode of `self` that
    /// the basis names.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let a: Layout = "(4,3):(3,1)".parse()?;
    /// assert_eq!(a.compose(&"6:2".parse()?)?.to_string(), "(2,3):(6,1)");
    ///
    /// let a: Layout = "(6,2):(1,7)".parse()?;
    /// let refused = a.compose(&"(3,2):(2,3)".parse()?).unwrap_err();
    /// assert!(refused.to_string().contains("carry"));
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn compose(&self, b: &Layout) -> Result<Layout> {
        let result = match compose_by_digits(self, b)? {
            Ok(result) => result,
            Err(reason) if b.size() <= EXACT_LIMIT && self.is_integral() => {
                compose_by_evaluation(self, b, &reason)?
            }
            Err(reason) => return Err(refusal(self, b, reason)),
        };
        debug_assert!(
            b.size() > EXACT_LIMIT || (0..b.size()).all(|i| agrees_at(self, b, &result, i)),
            "{self} o {b} gave {result}"
        );
        Ok(result)
    }

    /// Composes by mode where `tiler` is a tuple; modes of `self` that the tiler does not reach are dropped.
    ///
    /// ```
    /// use tilewright_layout::{Layout, Tiler};
    /// let a: Layout = "(12,(4,8)):(59,(13,1))".parse()?;
    /// let tiler: Tiler = "<3:4, 8:2>".parse()?;
    /// assert_eq!(a.compose_tiler(&tiler)?.to_string(), "(3,(2,4)):(236,(26,1))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn compose_tiler(&self, tiler: &Tiler) -> Result<Layout> {
        match tiler {
            Tiler::Keep => Ok(self.clone()),
            Tiler::Layout(b) => self.compose(b),
            Tiler::Modes(tilers) => {
                tiler.check_rank("compose", self)?;
                let modes = self.modes().zip(tilers).map(|(mode, tiler)| mode.compose_tiler(tiler));
                Layout::tuple(modes.collect::<Result<Vec<_>>>()?)
            }
        }
    }
}

/// What the digit proof yields, or why it fails.
type Proof<T> = std::result::Result<T, String>;

fn refusal(a: &Layout, b: &Layout, reason: String) -> LayoutError {
    LayoutError::Compose { a: a.to_string(), b: b.to_string(), reason }
}

/// A part of `A` that some modes of `B` walk over, and how far they reach together in each of its digits.
struct Outer {
    at: Basis,
    modes: Vec<Mode>,
    /// For each digit but the last: the sum of the largest digits of all pieces so far.
    reach: Vec<i64>,
    /// Sign of the steps seen so far; a negative index mirrors, so signs must not mix.
    negative: Option<bool>,
}

impl Outer {
    fn new(at: Basis, tree: &Tree<Mode>) -> Outer {
        let modes = coalesce_extended(tree);
        Outer { at, reach: vec![0; modes.len() - 1], modes, negative: None }
    }

    /// The pieces of `extent:step` seen through this part.
    fn pieces(&mut self, extent: i64, step: i64) -> Result<Proof<Tree<Mode>>> {
        let sign = step.signum();
        let mut rest = extent;
        let mut step = step.checked_abs().ok_or_else(|| overflow(format!("the stride {step}")))?;
        if rest > 1 && step != 0 && self.modes.len() > 1 {
            let negative = sign < 0;
            if *self.negative.get_or_insert(negative) != negative {
                return Ok(Err("steps of both signs walk over one mode".into()));
            }
        }
        let mut pieces: Vec<Tree<Mode>> = Vec::with_capacity(4);
        loop {
            let (run, value) = match self.run(step, rest) {
                Ok(Some(found)) => found,
                _ if rest == 1 => (1, Stride::ZERO), // a single position never takes the step
                Ok(None) => {
                    return Ok(Err(format!("a step of {step} goes along two basis elements at once")));
                }
                Err(overflow) => return Err(overflow),
            };
            if rest % run != 0 {
                let text = format!(
                    "a step of {step} fits {run} times before it carries, and {rest} is no multiple of that"
                );
                return Ok(Err(text));
            }
            pieces.push(Tree::Leaf(Mode { extent: run, stride: value.checked_mul(sign)? }));
            self.reserve(step, run)?;
            rest /= run;
            if rest == 1 {
                return Ok(Ok(Tree::unwrap_single(pieces)));
            }
            step = step.checked_mul(run).ok_or_else(|| overflow(format!("the step {run}*{step}")))?;
        }
    }

    /// How often (at most `limit` times) `step` can be added to 0 without a carry, and `A(step)`.
    fn run(&self, step: i64, limit: i64) -> Result<Option<(i64, Stride)>> {
        let mut run = limit;
        let mut value = Stride::ZERO;
        for (mode, digit, last) in self.digits(step) {
            if digit > 0 && !last {
                run = run.min(ceil_div(mode.extent, digit));
            }
            match value.checked_add(mode.stride.checked_mul(digit)?)? {
                Some(sum) => value = sum,
                None => return Ok(None),
            }
        }
        Ok(Some((run, value)))
    }

    /// Adds the largest digits of the piece `run:step` to the reach.
    fn reserve(&mut self, step: i64, run: i64) -> Result<()> {
        let mut rest = step;
        for (mode, reach) in self.modes.iter().zip(&mut self.reach) {
            let digit = rest % mode.extent;
            rest /= mode.extent;
            *reach = digit
                .checked_mul(run - 1)
                .and_then(|digits| reach.checked_add(digits))
                .ok_or_else(|| overflow("the sum of the steps"))?;
        }
        Ok(())
    }

    /// The digits of `index` with their modes; the flag marks the last, unbounded one.
    fn digits(&self, index: i64) -> impl Iterator<Item = (Mode, i64, bool)> + '_ {
        let mut rest = index;
        self.modes.iter().enumerate().map(move |(i, &mode)| {
            let last = i + 1 == self.modes.len();
            let digit = if last { rest } else { rest % mode.extent };
            rest /= mode.extent;
            (mode, digit, last)
        })
    }

    /// The reason why adding all pieces would carry, if it would.
    fn carry(&self) -> Option<String> {
        self.modes.iter().zip(&self.reach).find(|(mode, reach)| **reach >= mode.extent).map(|(mode, reach)| {
            format!(
                "the modes of the inner layout reach {reach} together in the mode {}:{}, and the carry into the next mode breaks linearity",
                mode.extent, mode.stride
            )
        })
    }
}

/// The composition by the digit proof.
fn compose_by_digits(a: &Layout, b: &Layout) -> Result<Proof<Layout>> {
    let mut outers: Vec<Outer> = Vec::with_capacity(2);
    let mut reason = None;
    let tree = b.tree().try_graft(&mut |mode| {
        let (step, at) = (mode.stride.value(), mode.stride.along_basis());
        if step == 0 || reason.is_some() {
            return Ok(Tree::Leaf(Mode { extent: mode.extent, stride: Stride::ZERO }));
        }
        let outer = match outers.iter().position(|outer| outer.at == at) {
            Some(known) => &mut outers[known],
            None => {
                let part = part_at(a, at).ok_or_else(|| {
                    refusal(a, b, format!("the stride {} names a mode that {a} does not have", mode.stride))
                })?;
                outers.push(Outer::new(at, part));
                let last = outers.len() - 1;
                &mut outers[last]
            }
        };
        match outer.pieces(mode.extent, step)? {
            Ok(pieces) => Ok(pieces),
            Err(text) => {
                reason = Some(text);
                Ok(Tree::Leaf(*mode))
            }
        }
    })?;
    match reason.or_else(|| outers.iter().find_map(Outer::carry)) {
        Some(reason) => Ok(Err(reason)),
        None => Layout::from_tree(tree).map(Ok),
    }
}

/// The part of `a` that the basis names.
fn part_at(a: &Layout, at: Basis) -> Option<&Tree<Mode>> {
    at.path().iter().try_fold(a.tree(), |tree, &mode| match tree {
        Tree::Leaf(_) => None,
        Tree::Tuple(modes) => modes.get(usize::from(mode)),
    })
}

/// The composition by evaluating both sides at every coordinate of `b`.
fn compose_by_evaluation(a: &Layout, b: &Layout, reason: &str) -> Result<Layout> {
    let tree = b.tree().try_graft(&mut |mode| {
        let single = Layout::from_tree(Tree::Leaf(*mode))?;
        let values = (0..mode.extent).map(|i| value_through(a, &single, i)).collect::<Result<Vec<_>>>()?;
        factor(&values).ok_or_else(|| refusal(a, b, reason.into()))
    })?;
    let result = Layout::from_tree(tree)?;
    for i in 0..b.size() {
        let (found, expected) = (result.at(i)?, value_through(a, b, i)?);
        if found != expected {
            let at = b.shape().coordinate(i);
            return Err(refusal(a, b, format!("{reason}; at {at} the value is {expected}, not {found}")));
        }
    }
    Ok(result)
}

/// `A(B(i))`.
fn value_through(a: &Layout, b: &Layout, i: i64) -> Result<i64> {
    if b.is_integral() {
        return a.at(b.at(i)?);
    }
    // Coordinates may be shorter than the rank of `a`: what they do not reach is 0.
    let coord = Coord::from(b.eval(&Tree::Leaf(Index::At(i)))?);
    match a.eval(&padded(&coord, a.tree()))? {
        Tree::Leaf(value) => Ok(value),
        Tree::Tuple(_) => Err(refusal(a, b, "the values are coordinates".into())),
    }
}

fn padded(coord: &Coord, tree: &Tree<Mode>) -> Coord {
    match (coord, tree) {
        (Tree::Tuple(coords), Tree::Tuple(modes)) => Tree::Tuple(
            modes
                .iter()
                .enumerate()
                .map(|(i, mode)| coords.get(i).map_or(Tree::Leaf(Index::At(0)), |coord| padded(coord, mode)))
                .collect(),
        ),
        _ => coord.clone(),
    }
}

/// Whether `result` is right at index `i`; values that are coordinates are left to the proof.
fn agrees_at(a: &Layout, b: &Layout, result: &Layout, i: i64) -> bool {
    !a.is_integral() || result.at(i) == value_through(a, b, i)
}

/// The modes of the function `i -> values[i]`, if it is a layout: the longest linear run, then the runs of its
/// multiples. A coalesced layout has exactly these runs, so nothing is missed.
fn factor(values: &[i64]) -> Option<Tree<Mode>> {
    let mut modes = Vec::new();
    let mut step = 1;
    while step < values.len() {
        let stride = values[step];
        let multiples = values.iter().step_by(step);
        let run =
            (0i64..).zip(multiples).take_while(|(k, value)| k.checked_mul(stride) == Some(**value)).count();
        if !(values.len() / step).is_multiple_of(run) {
            return None;
        }
        modes.push(Tree::Leaf(Mode::new(i64::try_from(run).ok()?, stride)));
        step *= run;
    }
    match modes.is_empty() {
        true => Some(Tree::Leaf(Mode::new(1, 0))),
        false => Some(Tree::unwrap_single(modes)),
    }
}
