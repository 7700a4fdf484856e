//! The attributes `#[kernel]` and `#[device]`, and `#[derive(Carry)]`: what makes plain Rust build a kernel when it runs.
//!
//! A kernel is staged: its function runs once on the host, and the operations that it performs on staged values are
//! recorded instead of computed. Rust has no way to overload `if`, `while`, `for`, comparisons, `&&` and `||`, so the
//! attributes replace those by calls into the module `stage` of the language crate. There the *type* of a condition or
//! range decides: a `bool` or a range of host integers means now, a `Val` means at run time. Everything else (calls,
//! arithmetic, structs, generics, closures, `match`) is left to Rust.
//!
//! # Rules
//!
//! * `if`, `while` and `for` work on host and on staged values. Variables stay ordinary variables; those declared outside
//!   that an arm or a body assigns (`x = ..`, `x += ..`, `x.f = ..`, `x[i] = ..`, `*p = ..`, `(x, y) = ..`, `&mut x`,
//!   `f(p)` with a `&mut` reference, and `x.method()` on something mutable) are handed to the region, which carries their
//!   values in and out. They need a value before it.
//! * `a..b` and `a..=b` may have staged ends. Ranges of two literals and ranges that index are always host ranges.
//! * `< <= > >= == != && ||` work on host and on staged values, in any mixture that the language crate implements.
//! * `if let`, `while let`, chains with `let` and guards of `match` are host conditions and stay as they are; the blocks
//!   under them are rewritten.
//! * A closure may not assign a variable that it captures, for the closure may become a region of its own.
//! * Guard clauses leave a body early: `if done { ..; return; } rest` is `if done { .. } else { rest }`, in functions and closures, and so is
//!   `continue` in a loop.
//! * All other `return`s and `continue`s, `break`, `?`, `.await` and `loop` are refused: they would leave a region half recorded.
//! * `#[host]` on `if`, `for`, `while`, `loop`, `match`, a block or `let` leaves that code as it is. It may `break` and
//!   `return`, but a jump may not lead out to a loop that is not host code.
//! * Items inside the function and the arguments of macro calls are left as they are.
//!
//! # Limits
//!
//! * A host value that is moved in an arm of `if` is moved in a loop, as far as the borrow checker knows; `#[host]` helps.
//! * Assignments inside macro calls are not seen by the regions around them, nor are changes that a method makes to what
//!   a closure captured.
//! * The arms of `if` must have one type; a coercion that only the context asks for (`Box<dyn Trait>`) does not happen.
//!
//! Errors of one function are reported together, each at its token, and the function goes out with them, so that editors
//! keep working. Every generated call has the place of the token that it stands for, so that what the language crate
//! records and what rustc reports point into the kernel.

mod attr;
mod carry;
mod emit;
mod expand;
mod guard;
mod refuse;
mod rewrite;
mod scope;
mod signature;

use proc_macro::TokenStream;

/// Makes a kernel of a function.
///
/// The function stays, rewritten by the rules above, so that other kernels can call it. Beside it stands a type of the
/// same name with one function, `stage`, which takes the constant parameters and returns the staged kernel:
///
/// ```ignore (the language crate depends on this one)
/// /// y = a x + y
/// #[kernel(threads = block)]
/// fn axpy(x: Global<f32>, y: Global<f32>, a: Val<f32>, n: Val<u32>, block: u32) {
///     let i = block_id(0) * block + thread_id(0);
///     if i < n {
///         y.at(i).store(a.mul_add(x.at(i).load(), y.at(i).load()));
///     }
/// }
///
/// let kernel = axpy::stage(256)?;
/// ```
///
/// A parameter is a run-time argument if its type is `Val`, `Global`, `TensorMap` or `View`, or if it
/// carries `#[runtime]`. Any other, or one with `#[constant]`, is a constant: an ordinary Rust value, known when the kernel is
/// staged.
///
/// Options, all of them optional; expressions may use the constants:
///
/// | option | meaning |
/// | --- | --- |
/// | `threads = n` | threads of a block |
/// | `min_blocks = n` | blocks that must fit on a multiprocessor |
/// | `cluster = (x, y, z)` | blocks of a cluster |
/// | `max_registers = n` | registers of a thread |
/// | `name = "name"` | name of the entry point, instead of the function's |
/// | `crate = path` | where the language crate is, if the manifest does not name it |
#[proc_macro_attribute]
pub fn kernel(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand::kernel(attr.into(), &item.into()).into()
}

/// Makes a function, or a method, that kernels and other device functions may call.
///
/// The body is rewritten by the rules above. What it records knows the chain of calls that led to it. A function that only
/// computes with calls and operators, comparisons apart, works without the attribute.
///
/// The one option is `crate = path`, as for `#[kernel]`.
///
/// ```ignore (the language crate depends on this one)
/// #[device]
/// fn clamp(x: Val<i32>, low: i32, high: i32) -> Val<i32> {
///     let mut clamped = x;
///     if x < low {
///         clamped = val(low);
///     } else if x > high {
///         clamped = val(high);
///     }
///     clamped
/// }
/// ```
#[proc_macro_attribute]
pub fn device(attr: TokenStream, item: TokenStream) -> TokenStream {
    expand::device(attr.into(), &item.into()).into()
}

/// Lets values of a struct be assigned in run-time `if`s and loops, and be the value of an `if`.
///
/// All fields must be `Carry` themselves; those marked `#[host]` are left alone and must not change.
///
/// ```ignore (the language crate depends on this one)
/// #[derive(Clone, Copy, Carry)]
/// struct RunningMax {
///     value: Val<f32>,
///     position: Val<u32>,
///     #[host]
///     width: u32,
/// }
/// ```
#[proc_macro_derive(Carry, attributes(host))]
pub fn carry(item: TokenStream) -> TokenStream {
    carry::derive(item.into()).into()
}

#[cfg(test)]
mod tests;
