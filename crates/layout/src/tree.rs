//! Nested tuples: a leaf, or a tuple of further nested tuples.
//!
//! One type serves shapes (`Tree<i64>`), strides (`Tree<Stride>`), coordinates (`Tree<Index>`) and layouts
//! (`Tree<Mode>`), so that nesting is handled once. `4` and `(4)` are different trees, as in CuTe: the first is
//! a leaf, the second a tuple of one.

use std::fmt;

/// A leaf or a tuple of trees.
///
/// ```
/// use tilewright_layout::{IntTuple, Tree};
/// let t: IntTuple = ((2, 3), 4).into();
/// assert_eq!(t.to_string(), "((2,3),4)");
/// assert_eq!((t.rank(), t.depth(), t.leaves().count()), (2, 2, 3));
/// assert_eq!(t.modes()[1], Tree::Leaf(4));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tree<T> {
    /// A single value.
    Leaf(T),
    /// A tuple, possibly of one element or of none.
    Tuple(Vec<Tree<T>>),
}

impl<T> Tree<T> {
    /// The top-level modes. A leaf is its own only mode.
    pub fn modes(&self) -> &[Tree<T>] {
        match self {
            Tree::Leaf(_) => std::slice::from_ref(self),
            Tree::Tuple(modes) => modes,
        }
    }

    /// The top-level modes, by value. A leaf is its own only mode.
    pub fn into_modes(self) -> Vec<Tree<T>> {
        match self {
            Tree::Leaf(_) => vec![self],
            Tree::Tuple(modes) => modes,
        }
    }

    /// Number of top-level modes; 1 for a leaf.
    pub fn rank(&self) -> usize {
        self.modes().len()
    }

    /// Nesting depth; 0 for a leaf.
    pub fn depth(&self) -> usize {
        match self {
            Tree::Leaf(_) => 0,
            Tree::Tuple(modes) => 1 + modes.iter().map(Tree::depth).max().unwrap_or(0),
        }
    }

    /// True for a leaf.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Tree::Leaf(_))
    }

    /// The leaves from left to right.
    pub fn leaves(&self) -> Leaves<'_, T> {
        Leaves { stack: vec![std::slice::from_ref(self).iter()] }
    }

    /// Calls `visit` on the leaves from left to right. Allocates nothing, unlike [`Tree::leaves`].
    pub fn visit<E>(&self, visit: &mut impl FnMut(&T) -> Result<(), E>) -> Result<(), E> {
        match self {
            Tree::Leaf(value) => visit(value),
            Tree::Tuple(modes) => modes.iter().try_for_each(|mode| mode.visit(visit)),
        }
    }

    /// The same nesting with every leaf replaced by `f(leaf)`.
    pub fn map<U>(&self, f: &mut impl FnMut(&T) -> U) -> Tree<U> {
        match self {
            Tree::Leaf(value) => Tree::Leaf(f(value)),
            Tree::Tuple(modes) => Tree::Tuple(modes.iter().map(|mode| mode.map(f)).collect()),
        }
    }

    /// Every leaf replaced by the tree `f(leaf)`; stops at the first error.
    pub fn try_graft<U, E>(&self, f: &mut impl FnMut(&T) -> Result<Tree<U>, E>) -> Result<Tree<U>, E> {
        match self {
            Tree::Leaf(value) => f(value),
            Tree::Tuple(modes) => {
                Ok(Tree::Tuple(modes.iter().map(|mode| mode.try_graft(f)).collect::<Result<_, E>>()?))
            }
        }
    }

    /// Whether both trees are nested in the same way.
    pub fn congruent<U>(&self, other: &Tree<U>) -> bool {
        match (self, other) {
            (Tree::Leaf(_), Tree::Leaf(_)) => true,
            (Tree::Tuple(a), Tree::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.congruent(b))
            }
            _ => false,
        }
    }

    /// Pairs the leaves of two trees; `None` unless they are congruent.
    pub fn zip<U: Clone>(&self, other: &Tree<U>) -> Option<Tree<(T, U)>>
    where
        T: Clone,
    {
        match (self, other) {
            (Tree::Leaf(a), Tree::Leaf(b)) => Some(Tree::Leaf((a.clone(), b.clone()))),
            (Tree::Tuple(a), Tree::Tuple(b)) if a.len() == b.len() => {
                a.iter().zip(b).map(|(a, b)| a.zip(b)).collect::<Option<_>>().map(Tree::Tuple)
            }
            _ => None,
        }
    }

    /// A single element stands for itself, everything else becomes a tuple.
    pub(crate) fn unwrap_single(mut modes: Vec<Tree<T>>) -> Tree<T> {
        match (modes.len(), modes.pop()) {
            (1, Some(only)) => only,
            (_, None) => Tree::Tuple(modes),
            (_, Some(last)) => {
                modes.push(last);
                Tree::Tuple(modes)
            }
        }
    }
}

/// Iterator over the leaves of a [`Tree`].
#[derive(Clone, Debug)]
pub struct Leaves<'a, T> {
    stack: Vec<std::slice::Iter<'a, Tree<T>>>,
}

impl<'a, T> Iterator for Leaves<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        while let Some(top) = self.stack.last_mut() {
            match top.next() {
                None => {
                    self.stack.pop();
                }
                Some(Tree::Leaf(value)) => return Some(value),
                Some(Tree::Tuple(modes)) => self.stack.push(modes.iter()),
            }
        }
        None
    }
}

impl<T: fmt::Display> fmt::Display for Tree<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tree::Leaf(value) => value.fmt(f),
            Tree::Tuple(modes) => {
                f.write_str("(")?;
                for (i, mode) in modes.iter().enumerate() {
                    if i > 0 {
                        f.write_str(",")?;
                    }
                    mode.fmt(f)?;
                }
                f.write_str(")")
            }
        }
    }
}

/// Lets Rust integers, tuples, arrays and vectors be written where a tree is expected.
macro_rules! from_scalars {
    ($leaf:ty: $($scalar:ty),+) => {$(
        impl From<$scalar> for Tree<$leaf> {
            fn from(value: $scalar) -> Self {
                Tree::Leaf(value.into())
            }
        }
    )+};
}
pub(crate) use from_scalars;

from_scalars!(i64: i32, i64, u32);

impl<T, U: Into<Tree<T>>, const N: usize> From<[U; N]> for Tree<T> {
    fn from(modes: [U; N]) -> Self {
        Tree::Tuple(modes.into_iter().map(Into::into).collect())
    }
}

impl<T> From<&Tree<T>> for Tree<T>
where
    T: Clone,
{
    fn from(tree: &Tree<T>) -> Self {
        tree.clone()
    }
}

macro_rules! from_tuples {
    ($($($name:ident)+;)+) => {$(
        impl<T, $($name: Into<Tree<T>>),+> From<($($name,)+)> for Tree<T> {
            fn from(tuple: ($($name,)+)) -> Self {
                #[allow(non_snake_case)]
                let ($($name,)+) = tuple;
                Tree::Tuple(vec![$($name.into()),+])
            }
        }
    )+};
}

from_tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
}
