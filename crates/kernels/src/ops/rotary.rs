//! Rotary position embedding.

use tilewright_lang::tile::prelude::*;

use super::Tiling;

/// Which numbers of a head are turned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pairs {
    /// Numbers of a head.
    pub head: u32,
    /// How many of them are turned, the first ones.
    pub rotary: u32,
    /// Whether neighbours are a pair; else one is from the first half, one from the second.
    pub interleaved: bool,
    /// Whether they are turned back.
    pub inverse: bool,
}

/// Heads of one token, as many as a tile is wide by a program, turned by the angles of its position. Axes are token, head, number; tiles are of
/// tokens and heads.
#[kernel]
pub fn rope<T: Float, U: Float>(
    x: View<T, 3>,
    cos: View<f32, 2>,
    sin: View<f32, 2>,
    y: View<U, 3>,
    pairs: Pairs,
    tiling: Tiling,
) {
    turn(x, cos, sin, y, tiling.place().0, pairs, tiling);
}

/// The same with a position for each token.
#[kernel]
pub fn rope_positions<T: Float, U: Float>(
    x: View<T, 3>,
    cos: View<f32, 2>,
    sin: View<f32, 2>,
    positions: View<i32, 2>,
    y: View<U, 3>,
    pairs: Pairs,
    tiling: Tiling,
) {
    let position = positions.load_scalar_unchecked((tiling.place().0, 0));
    // One that is negative is beyond all of them.
    let position = select(position < 0, cos.extent(0), position.cast::<u32>());
    turn(x, cos, sin, y, position, pairs, tiling);
}

#[device]
fn turn<T: Float, U: Float>(
    x: View<T, 3>,
    cos: View<f32, 2>,
    sin: View<f32, 2>,
    y: View<U, 3>,
    position: Val<u32>,
    pairs: Pairs,
    tiling: Tiling,
) {
    let [_, heads] = tiling.shape;
    let (token, group) = tiling.place();
    let group = group * heads;
    let half = pairs.rotary / 2;
    if half > 0 {
        let angles = |table: View<f32, 2>| {
            table.tile([1, half]).at((position, 0)).load_or(f32::NAN).reshape([1, 1, half])
        };
        let (cos, sin) = (angles(cos), angles(sin));
        let sin = if pairs.inverse { -sin } else { sin };
        let turned = |a: Tile<f32>, b: Tile<f32>| (a * cos - b * sin, a * sin + b * cos);
        if pairs.interleaved {
            let shape = [1, heads, pairs.rotary];
            let both = x.tile(shape).at((token, group, 0)).load().cast::<f32>();
            let (a, b) = both.reshape([1, heads, half, 2]).split();
            let (a, b) = turned(a, b);
            y.tile(shape).at((token, group, 0)).store(a.join(b).reshape(shape).cast());
        } else {
            let shape = [1, heads, half];
            let of = |first: u32| x.tile(shape).at((token, group, first)).load().cast::<f32>();
            let (a, b) = turned(of(0), of(half));
            y.tile(shape).at((token, group, 0)).store(a.cast());
            y.tile(shape).at((token, group, half)).store(b.cast());
        }
    }
    if pairs.rotary < pairs.head {
        let (shape, at) = ([1, heads, pairs.head - pairs.rotary], (token, group, pairs.rotary));
        y.tile(shape).at(at).store(x.tile(shape).at(at).load().cast::<f32>().cast());
    }
}
