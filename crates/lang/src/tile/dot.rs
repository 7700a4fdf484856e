//! Matrix products of tiles.

use half::{bf16, f16};
use tilewright_ir::{Flags, Opcode, Shape};

use super::value::Tile;
use crate::element::{E4m3, E5m2, Element};
use crate::trace;

/// What a tile of this type can be multiplied with, and the type of the sums.
#[diagnostic::on_unimplemented(
    message = "there is no `dot` of `{Self}` and `{B}` with sums of `{C}`",
    note = "known are f16, bf16 and f32 factors (the same twice), and E4m3 or E5m2, all with f32 sums, f16, E4m3 and E5m2 with f16 sums, too; f64; i8 or u8 with i32 sums"
)]
pub trait Factor<B, C>: Element {}

macro_rules! factors {
    ($( $a:ty, $b:ty => $c:ty; )*) => {$( impl Factor<$b, $c> for $a {} )*};
}

factors! {
    f16, f16 => f32;
    f16, f16 => f16;
    bf16, bf16 => f32;
    f32, f32 => f32;
    E4m3, E4m3 => f32;
    E4m3, E5m2 => f32;
    E5m2, E4m3 => f32;
    E5m2, E5m2 => f32;
    E4m3, E4m3 => f16;
    E4m3, E5m2 => f16;
    E5m2, E4m3 => f16;
    E5m2, E5m2 => f16;
    f64, f64 => f64;
    i8, i8 => i32;
    i8, u8 => i32;
    u8, i8 => i32;
    u8, u8 => i32;
}

/// The matrix product `a * b + acc`, of m x k, k x n and m x n elements.
///
/// Tiles of more than two axes are many matrices, of which each is multiplied with its counterpart: b x m x k, b x k x n and b x m x n
/// elements. Their factors are not loaded ahead in loops; where one program can do with one matrix of each, that is faster.
///
/// Products are exact and summed in the type of `acc`, in an order that the compiler chooses: a loop that does nothing but add them up may run
/// from its end. f32 factors are not rounded; with [`dot_tf32`] they may be. Sums in f16 take half of the registers, and on chips for
/// graphics half of the time; they overflow beyond 65504, and each is rounded to 11 bits as often as something is added.
///
/// ```
/// use tilewright_lang::tile::prelude::*;
///
/// /// The square of a matrix of 64 x 64, in one go.
/// #[kernel]
/// fn square(x: View<bf16, 2>, y: View<f32, 2>) {
///     let x = x.tile([64, 64]).at((0, 0)).load();
///     y.tile([64, 64]).at((0, 0)).store(dot(x, x, Tile::zeros([64, 64])));
/// }
/// assert!(square::stage()?.ir().contains("dot"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[must_use]
#[track_caller]
pub fn dot<A: Factor<B, C>, B: Element, C: Element>(a: Tile<A>, b: Tile<B>, acc: Tile<C>) -> Tile<C> {
    product(a, b, acc, Flags::NONE)
}

/// [`dot`] of f32 factors that may be rounded to the 10-bit mantissas of tf32, as the tensor cores read them.
#[must_use]
#[track_caller]
pub fn dot_tf32(a: Tile<f32>, b: Tile<f32>, acc: Tile<f32>) -> Tile<f32> {
    product(a, b, acc, Flags::TF32)
}

#[track_caller]
fn product<A: Element, B: Element, C: Element>(
    a: Tile<A>,
    b: Tile<B>,
    acc: Tile<C>,
    flags: Flags,
) -> Tile<C> {
    let (x, y, z) = (a.shape(), b.shape(), acc.shape());
    let fits = match (x.extents(), y.extents(), z.extents()) {
        ([of_a @ .., m, k], [of_b @ .., l, n], [of_acc @ .., rows, columns]) => {
            of_a == of_acc && of_b == of_acc && m == rows && k == l && n == columns
        }
        _ => false,
    };
    if !fits {
        trace::error(format!(
            "`dot` of {x} and {y} elements onto {z}; expected m x k, k x n and m x n, after the same axes where there are more"
        ));
        return acc;
    }
    // The IR counts matrices along one axis.
    if z.rank() > 3 {
        let flat = |shape: Shape| {
            let (many, matrix) = shape.extents().split_at(shape.rank() - 2);
            [many.iter().product(), matrix[0], matrix[1]]
        };
        let (a, b, flat_acc) = (a.reshape(flat(x)), b.reshape(flat(y)), acc.reshape(flat(z)));
        return product(a, b, flat_acc, flags).reshape(z.extents());
    }
    let attrs = (flags != Flags::NONE).then(|| flags.into());
    Tile::of(trace::value(Opcode::Dot, [a.id, b.id, acc.id], attrs, None))
}
