//! Values of the interpreter: columns of bits.
//!
//! Every element of every type is 64 bits here, as the IR stores constants ([`canonical`](tilewright_ir::canonical)): one representation
//! for scalars, vectors, pointers and tiles, so that an op on a whole tile is one loop over words whatever its elements are.

use std::borrow::Cow;
use std::rc::Rc;

use smallvec::SmallVec;

/// The value of an IR value for all elements that are computed together.
#[derive(Debug, Clone)]
pub(super) enum Column {
    /// The same for all elements: the lanes of a scalar, vector or pointer.
    Same(SmallVec<[u64; 1]>),
    /// One after the other for each element; the lanes of an element stand together. A tile is such a column in row-major order.
    Each(Rc<Vec<u64>>),
}

impl Default for Column {
    fn default() -> Column {
        Column::Same(SmallVec::new())
    }
}

impl Column {
    /// A scalar.
    pub(super) fn one(bits: u64) -> Column {
        Column::Same(SmallVec::from_elem(bits, 1))
    }

    /// The words of a tile.
    pub(super) fn tile(words: Vec<u64>) -> Column {
        Column::Each(Rc::new(words))
    }

    /// Whether all elements have this value.
    pub(super) fn is_same(&self) -> bool {
        matches!(self, Column::Same(_))
    }

    /// All words.
    pub(super) fn words(&self) -> &[u64] {
        match self {
            Column::Same(words) => words,
            Column::Each(words) => words,
        }
    }

    /// The first word: the value of a scalar.
    pub(super) fn first(&self) -> u64 {
        self.words().first().copied().unwrap_or(0)
    }

    /// The lanes of an element.
    pub(super) fn lanes(&self, element: usize, lanes: usize) -> &[u64] {
        match self {
            Column::Same(words) => words,
            Column::Each(words) => &words[element * lanes..][..lanes],
        }
    }

    /// The words, repeated for each element of the other column if they are the same for all.
    fn words_beside(&self, other: &Column) -> Cow<'_, [u64]> {
        match (self, other) {
            (Column::Same(_), Column::Each(words)) => Cow::Owned(vec![self.first(); words.len()]),
            _ => Cow::Borrowed(self.words()),
        }
    }

    /// Other words in the place of these.
    fn with_words(&self, words: Vec<u64>) -> Column {
        match self {
            Column::Same(_) => Column::Same(SmallVec::from_vec(words)),
            Column::Each(_) => Column::tile(words),
        }
    }

    /// The value at one element, the same from there on.
    pub(super) fn at(&self, element: usize, lanes: usize) -> Column {
        Column::Same(SmallVec::from_slice(self.lanes(element, lanes)))
    }
}

// What follows is compiled for each of some two hundred functions. So each of them has one loop, and what all have in common is apart.

/// A function of one word, for all elements.
pub(super) fn zip1(a: &Column, f: impl Fn(u64) -> u64) -> Column {
    if let Column::Same(words) = a
        && let [word] = words[..]
    {
        return Column::one(f(word));
    }
    a.with_words(a.words().iter().map(|&a| f(a)).collect())
}

/// A function of two words, for all elements.
pub(super) fn zip2(a: &Column, b: &Column, f: impl Fn(u64, u64) -> u64) -> Column {
    if let (Column::Same(first), Column::Same(second)) = (a, b)
        && let ([first], [second]) = (&first[..], &second[..])
    {
        return Column::one(f(*first, *second));
    }
    let of = if a.is_same() { b } else { a };
    let (a, b) = (a.words_beside(b), b.words_beside(a));
    of.with_words(a.iter().zip(&*b).map(|(&a, &b)| f(a, b)).collect())
}

/// A function of three words, for all elements. Columns are scalars, or have one word an element.
pub(super) fn zip3(columns: [&Column; 3], f: impl Fn(u64, u64, u64) -> u64) -> Column {
    let [a, b, c] = columns;
    let Some(n) = columns.iter().filter(|c| !c.is_same()).map(|c| c.words().len()).max() else {
        return Column::one(f(a.first(), b.first(), c.first()));
    };
    if let (Column::Each(a), Column::Each(b), Column::Each(c)) = (a, b, c) {
        return Column::tile(a.iter().zip(&**b).zip(&**c).map(|((&a, &b), &c)| f(a, b, c)).collect());
    }
    let word = |column: &Column, i: usize| match column {
        Column::Same(words) => words.first().copied().unwrap_or(0),
        Column::Each(words) => words[i],
    };
    Column::tile((0..n).map(|i| f(word(a, i), word(b, i), word(c, i))).collect())
}
