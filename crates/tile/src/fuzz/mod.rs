//! Random kernels of the tile level, valid by construction.
//!
//! A [`Case`] is a kernel, its arguments and a grid, made from a seed, together with the rule by which its results are compared. What two
//! implementations may disagree on is kept out of it: no program reads what another one writes, no result depends on the order of
//! programs, on which NaN a NaN is, or on the order of a sum of floats, unless the sum is exact (small integers) or
//! the rule allows for it. Approximate values are tracked: they are stored with a tolerance and never compared or converted.
//!
//! ```
//! use tilewright_tile::fuzz::Case;
//!
//! let case = Case::new(7, 12);
//! let once = case.interpret()?;
//! assert_eq!(case.difference(&once, &case.interpret()?), None);
//! # Ok::<(), tilewright_tile::interp::InterpError>(())
//! ```
//!
//! A case that fails is made smaller by a smaller budget with the same seed: [`Case::smallest`].

mod control;
mod element;
mod memory;
mod product;
mod program;
mod random;

use tilewright_ir::{Constant, Element, Func};
use tilewright_passes::float;

use crate::interp::{Argument, InterpError, Program};

/// How a result is compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// Bit by bit; all NaNs are the same.
    Exact,
    /// As numbers.
    Near {
        /// What the difference may be in any case.
        absolute: f64,
        /// What it may be more, as a part of the expected number.
        relative: f64,
    },
}

/// An argument of a case.
#[derive(Debug, Clone, PartialEq)]
pub enum Given {
    /// A scalar.
    Scalar(Element, Constant),
    /// A buffer: what it holds before the run, and how it is compared after it.
    Buffer {
        /// Its elements.
        element: Element,
        /// Its contents.
        bytes: Vec<u8>,
        /// The rule.
        rule: Rule,
    },
}

/// A random kernel with everything that is needed to run it.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it was made from.
    pub seed: u64,
    /// How many statements it was allowed.
    pub budget: u32,
    /// The kernel.
    pub func: Func,
    /// The programs to run.
    pub grid: [u32; 3],
    /// An argument for each parameter.
    pub arguments: Vec<Given>,
    /// Whether programs read memory that they have written themselves.
    pub rereads: bool,
}

impl Case {
    /// The case of a seed, with about `budget` statements.
    #[must_use]
    pub fn new(seed: u64, budget: u32) -> Case {
        program::generate(seed, budget)
    }

    /// Runs the kernel in the interpreter; gives the contents of all buffers, in the order of the arguments.
    ///
    /// # Errors
    /// What the interpreter says. It should say nothing.
    pub fn interpret(&self) -> Result<Vec<Vec<u8>>, InterpError> {
        let mut buffers: Vec<Vec<u8>> = self.buffers().map(|(_, bytes, _)| bytes.to_vec()).collect();
        let mut memory = buffers.iter_mut();
        let mut arguments: Vec<Argument<'_>> = self
            .arguments
            .iter()
            .map(|given| match given {
                Given::Scalar(_, value) => Argument::Scalar(*value),
                Given::Buffer { .. } => Argument::Memory(memory.next().map_or(&mut [], Vec::as_mut_slice)),
            })
            .collect();
        Program::new(&self.func)?.run(self.grid, &mut arguments)?;
        Ok(buffers)
    }

    /// The buffers: elements, contents before the run, rule.
    pub fn buffers(&self) -> impl Iterator<Item = (Element, &[u8], Rule)> {
        self.arguments.iter().filter_map(|given| match given {
            Given::Scalar(..) => None,
            Given::Buffer { element, bytes, rule } => Some((*element, &bytes[..], *rule)),
        })
    }

    /// The first place in which buffers differ, in words; none if the rules hold.
    #[must_use]
    pub fn difference(&self, expected: &[Vec<u8>], found: &[Vec<u8>]) -> Option<String> {
        if expected.len() != found.len() {
            return Some(format!("{} buffers, expected {}", found.len(), expected.len()));
        }
        for (i, ((element, _, rule), (expected, found))) in
            self.buffers().zip(expected.iter().zip(found)).enumerate()
        {
            if expected.len() != found.len() {
                return Some(format!("buffer {i} has {} bytes, expected {}", found.len(), expected.len()));
            }
            let size = element.bytes() as usize;
            for (at, (a, b)) in expected.chunks(size).zip(found.chunks(size)).enumerate() {
                let (a, b) = (word(a), word(b));
                if !same(element, rule, a, b) {
                    let show = |bits: u64| {
                        float::decode(element, bits)
                            .map_or(format!("{bits:#x}"), |x| format!("{x} ({bits:#x})"))
                    };
                    return Some(format!(
                        "element {at} of buffer {i} ({element}) is {}, expected {}",
                        show(b),
                        show(a)
                    ));
                }
            }
        }
        None
    }

    /// The case with the smallest budget for this seed that `fails` still holds for; itself if there is none.
    #[must_use]
    pub fn smallest(self, mut fails: impl FnMut(&Case) -> bool) -> Case {
        let smaller = (1..self.budget).map(|budget| Case::new(self.seed, budget));
        smaller.into_iter().find(|case| fails(case)).unwrap_or(self)
    }
}

/// The bits of an element in memory.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

fn same(element: Element, rule: Rule, expected: u64, found: u64) -> bool {
    if expected == found {
        return true;
    }
    let (Some(a), Some(b)) = (float::decode(element, expected), float::decode(element, found)) else {
        return false;
    };
    match rule {
        Rule::Exact => a.is_nan() && b.is_nan(),
        Rule::Near { absolute, relative } => {
            a.is_nan() && b.is_nan() || a == b || (a - b).abs() <= absolute + relative * a.abs()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_tell_numbers_apart() {
        let bits = |x: f32| u64::from(x.to_bits());
        let near = Rule::Near { absolute: 0.1, relative: 0.01 };
        assert!(same(Element::F32, Rule::Exact, bits(f32::NAN), 0x7fff_ffff));
        assert!(!same(Element::F32, Rule::Exact, bits(0.0), bits(-0.0)));
        assert!(!same(Element::I32, Rule::Exact, 1, 2));
        assert!(same(Element::F32, near, bits(100.0), bits(101.0)));
        assert!(!same(Element::F32, near, bits(100.0), bits(101.5)));
        assert!(!same(Element::F32, near, bits(1.0), bits(f32::NAN)));
        assert!(same(Element::F32, near, bits(f32::INFINITY), bits(f32::INFINITY)));
    }

    #[test]
    fn a_difference_is_found_and_named() {
        let case = Case::new(3, 6);
        let expected = case.interpret().unwrap();
        let buffer = case.buffers().position(|(element, _, _)| element.is_int()).unwrap();
        let mut found = expected.clone();
        found[buffer][0] ^= 1;
        let text = case.difference(&expected, &found).unwrap();
        assert!(text.starts_with(&format!("element 0 of buffer {buffer}")), "{text}");
    }
}
