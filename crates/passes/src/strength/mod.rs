//! `strength`: expensive ops become cheap ones.
//!
//! (a) Products, quotients and remainders by a constant: powers of two become shifts and masks (signed quotients still round towards
//! zero), other divisors a multiplication by a reciprocal; a float divided by a power of two is multiplied by its inverse.
//!
//! ```text
//! %0 = const value(10) : u32           %0 = const value(3435973837) : u32
//! %1 = div %n, %0 : u32          →     %1 = mul_hi %n, %0 : u32
//!                                      %2 = const value(3) : u32
//!                                      %3 = shr %1, %2 : u32
//! ```
//!
//! (b) An address that a `for` computes from its counter becomes a pointer that advances each round.
//!
//! ```text
//! for %lo, %hi, %one do {                    %0 = mul_wide %lo, %four : u64
//!   (%i: u32)                                %1 = ptr_add %x, %0 : ptr<global>
//!   %0 = mul_wide %i, %four : u64            %2 = mul_wide %one, %four : u64
//!   %1 = ptr_add %x, %0 : ptr<global>   →    %3 = for %lo, %hi, %one, %1 : ptr<global> do {
//!   %2 = load %1 : f32                         (%i: u32, %p: ptr<global>)
//!   ...                                        %4 = load %p : f32
//! }                                            ...
//!                                              %5 = ptr_add %p, %2 : ptr<global>
//!                                              yield %5
//!                                            }
//! ```
//!
//! Why (b) is right: a `for` never wraps its counter, so in round `n` it *is* `lo + n * step`, as numbers. Offsets are computed modulo
//! 2^w, w the width of an address. The counter enters the offset only by ops that keep its value (`mul_wide`, a conversion to
//! w bits) or that are the same modulo 2^w (it has w bits already, or is cut to w); from there on only sums, differences,
//! products with invariants and shifts follow, all modulo 2^w. So the offset of round `n` is that of `lo` plus `n` times the
//! increment, modulo 2^w. A sum or product of the 32-bit counter *before* it is widened may wrap, and is left alone.
//!
//! (b) is done when the offset serves nothing but such addresses, for at most 8 pointers of a loop; each is reported in a
//! remark.
//!
//! Limits: no vectors; a product by a constant that is no power of two stays; addresses inside an `if` of the loop, and in a
//! `while`, stay.

mod addresses;
mod divide;

use tilewright_ir::Func;

use crate::context::Context;

/// The name of the pass.
pub const NAME: &str = "strength";

/// Runs the pass; true if anything changed.
pub fn run(func: &mut Func, cx: &mut Context) -> bool {
    let divided = divide::run(func);
    addresses::run(func, cx) || divided
}
