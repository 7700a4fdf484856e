//! What the attributes refuse: one table of reasons, and the list of those found in one function.
//!
//! Staging runs the body once and must see every region end where it began, so nothing may jump out of it. All errors of
//! a function are reported together, each at the token that causes it.

use proc_macro2::{Span, TokenStream};
use syn::{Block, Error, Expr, Stmt};

/// Why a piece of a kernel is refused. The text of each is one line: what was found, and what to write instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Break,
    Continue,
    Return,
    Try,
    Await,
    Async,
    Loop,
    HostJump,
    HostPlace,
    Captured,
    CapturedByOperand,
    Uninitialised,
    Receiver,
    AsyncFn,
    ConstFn,
    UnsafeFn,
    ExternFn,
    Variadic,
    Returns,
    ImplTrait,
    ParameterPattern,
    ParameterName,
    ParameterKind,
}

impl Refusal {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Break => {
                "`break` cannot leave a staged loop; make the loop condition false, or guard the rest of the body with `if`"
            }
            Self::Continue => {
                "`continue` can skip the rest of a staged loop only from an `if` without `else` in its body; guard the rest of the body with `if`"
            }
            Self::Return => {
                "`return` can leave a staged body only from an `if` without `else` in it, and no loop; wrap the rest in `if`"
            }
            Self::Try => {
                "`?` cannot leave a staged body early; staging collects errors, so pass a valid value"
            }
            Self::Await => "`.await` has no meaning in a kernel; staging runs to the end in one go",
            Self::Async => "`async` has no meaning in a kernel; staging runs to the end in one go",
            Self::Loop => "`loop` has no condition that could end it at run time; use `while condition`",
            Self::HostJump => {
                "this jump leaves the `#[host]` code for a staged loop; put `#[host]` on the loop itself, or guard the rest with `if`"
            }
            Self::HostPlace => {
                "`#[host]` goes on `if`, `for`, `while`, `loop`, `match`, a block or `let`; wrap this in `#[host] { .. }`"
            }
            Self::Captured => {
                "captured state cannot leave a staged region, and this variable is declared outside the closure; return the value from the closure"
            }
            Self::CapturedByOperand => {
                "captured state cannot leave a staged region, and the right side of `&&` and `||` is one; assign before the condition"
            }
            Self::Uninitialised => {
                "this variable has no value before the staged region that assigns it; give it one where it is declared, as in `let x = if ..`"
            }
            Self::Receiver => {
                "a kernel has no `self`; make it a free function and take what it needs as parameters"
            }
            Self::AsyncFn => "a staged function cannot be `async`; remove it",
            Self::ConstFn => {
                "a staged function cannot be `const`, because it builds code when called; remove it"
            }
            Self::UnsafeFn => "a kernel cannot be `unsafe`; use `unsafe` blocks in its body",
            Self::ExternFn => "a staged function cannot have an ABI; remove it",
            Self::Variadic => "a staged function cannot be variadic; list its parameters",
            Self::Returns => "a kernel returns nothing; store the result through a parameter",
            Self::ImplTrait => {
                "a kernel cannot take `impl Trait`, because its callers must name the type; use a generic parameter"
            }
            Self::ParameterPattern => {
                "a kernel's parameter must be a plain name, since arguments are named after it"
            }
            Self::ParameterName => "a parameter cannot have the name of its kernel; rename one of them",
            Self::ParameterKind => "a parameter is either `#[runtime]` or `#[constant]`; remove one of them",
        }
    }
}

/// The errors found so far, in source order of discovery.
#[derive(Default)]
pub(crate) struct Refusals {
    errors: Vec<Error>,
    /// They stand in the body already.
    placed: bool,
}

impl Refusals {
    pub(crate) fn add(&mut self, at: Span, why: Refusal) {
        self.errors.push(Error::new(at, why.message()));
    }

    pub(crate) fn error(&mut self, error: Error) {
        self.errors.push(error);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Puts the errors into a body. There they keep rustc from looking for further ones that follow from them: what it does not
    /// type it does not borrow-check.
    pub(crate) fn place_in(&mut self, block: &mut Block) {
        let errors = self.errors.iter().map(Error::to_compile_error);
        block.stmts.splice(..0, errors.map(|error| Stmt::Expr(Expr::Verbatim(error), None)));
        self.placed = true;
    }

    /// One `compile_error!` for each that has not been placed.
    pub(crate) fn to_compile_errors(&self) -> TokenStream {
        let left = if self.placed { &[] } else { &self.errors[..] };
        left.iter().map(Error::to_compile_error).collect()
    }

    #[cfg(test)]
    pub(crate) fn into_errors(self) -> Vec<Error> {
        self.errors
    }
}
