//! What takes registers: the largest tile, and what there is beside it.
//!
//! The number of threads and their registers are chosen before anything is lowered, by what the function says. These are the questions that are
//! asked of it; answers are estimates, since the assembler has the last word.

use tilewright_ir::{Func, Op, Opcode, Type, Value};
use tilewright_passes::{Context, RemarkKind};

use super::assign::{accessed, bytes, is_free};
use super::join::each_by_one;
use super::layout::Team;
use super::{LowerError, Result};

/// What a multiprocessor has for all threads, and the most that one of them gets.
const REGISTERS: u32 = 65536;
const REGISTERS_OF_THREAD: u32 = 255;

/// The most that a thread holds of a tile, in registers or not. Each element is code of its own: beyond this, compiling takes minutes, and
/// what comes out lives in memory.
const WORDS_OF_THREAD: u32 = 4096;

/// Says which tile is more than the registers of its threads hold, or refuses it.
pub(super) fn check(func: &Func, team: Team, context: &mut Context) -> Result<()> {
    let threads = 32 * team.warps;
    let words = |value: Value| match func.ty(value) {
        Type::Tile(element, shape) if !is_free(func, value) => {
            shape.elements().div_ceil(threads * team.blocks).saturating_mul(bytes(element).div_ceil(4))
        }
        _ => 0,
    };
    let made = |op: Op| func.op(op).results.iter().map(move |&value| (op, value));
    // The first of the largest.
    let largest = func.walk().into_iter().flat_map(made).map(|(op, value)| (op, value, words(value)));
    let Some((op, value, words)) = largest.reduce(|a, b| if b.2 > a.2 { b } else { a }) else {
        return Ok(());
    };
    let (data, ty) = (func.op(op), func.ty(value));
    let registers = (REGISTERS / threads).min(REGISTERS_OF_THREAD);
    if words > WORDS_OF_THREAD {
        return Err(LowerError::Unsupported {
            op: data.info().mnemonic,
            problem: format!(
                "makes a {ty}, {words} registers of each of {threads} threads, which have {registers}; take smaller tiles, one after the other in a loop or by more programs"
            ),
            location: func.locations.get(data.loc).map(|at| at.to_string()),
        });
    }
    if words > registers {
        let message = format!(
            "this {ty} is {words} registers of each of {threads} threads, which have {registers}: much of it will be in memory; smaller tiles, in a loop or by more programs, are faster"
        );
        context.remark("tile", func, data.loc, RemarkKind::Missed, message);
    }
    Ok(())
}

/// Bytes that a loop keeps for each element of its largest tiles, which have more than half of so many elements: what it carries, what it uses
/// from before, and what it loads, halves as the f32 that they are computed with. Of the loop that keeps most; zero if none carries such a tile.
pub(super) fn kept_by_loops(func: &Func, elements: u32) -> u32 {
    func.walk().into_iter().map(|op| kept_by(func, op, elements)).max().unwrap_or(0)
}

fn kept_by(func: &Func, op: Op, elements: u32) -> u32 {
    let data = func.op(op);
    let is_loop = matches!(data.code, Opcode::For | Opcode::While);
    let of = |value: Value| match func.ty(value) {
        Type::Tile(element, _) if is_wide(func, value, elements) => bytes(element).max(4),
        _ => 0,
    };
    let carried: u32 = data.results.iter().map(|&value| of(value)).sum();
    if !is_loop || carried == 0 {
        return 0;
    }
    let mut inside = Vec::new();
    data.regions.iter().for_each(|&region| func.walk_region(region, &mut inside));
    let is_older = |value: Value| func.def_op(value).is_some_and(|by| !inside.contains(&by));
    let mut used: Vec<Value> = inside.iter().flat_map(|&op| func.op(op).operands.iter().copied()).collect();
    used.retain(|&value| is_older(value) && !is_free(func, value));
    used.sort_unstable();
    used.dedup();
    let loads = inside.iter().map(|&op| func.op(op)).filter(|data| data.code == Opcode::TileLoad);
    carried + used.into_iter().chain(loads.filter_map(accessed)).map(of).sum::<u32>()
}

/// How many tiles are read and written where several are written and nothing is combined: all that leads to them is there at once. Else none.
pub(super) fn fan_out(func: &Func, elements: u32) -> usize {
    let ops = func.walk();
    let combines = |op: &Op| matches!(func.op(*op).code, Opcode::TileReduce | Opcode::TileScan | Opcode::Dot);
    if ops.iter().any(combines) {
        return 0;
    }
    let count = |code: Opcode| {
        let accesses = ops.iter().map(|&op| func.op(op)).filter(|data| data.code == code);
        accesses.filter_map(accessed).filter(|&tile| is_wide(func, tile, elements)).count()
    };
    match (count(Opcode::TileLoad), count(Opcode::TileStore)) {
        (_, 0 | 1) => 0,
        (loads, stores) => loads + stores,
    }
}

/// Whether elements are combined together with others that decide for them, such as numbers with their places.
pub(super) fn finds_places(func: &Func) -> bool {
    let mut all = func.walk().into_iter().map(|op| func.op(op));
    all.any(|data| {
        data.code == Opcode::TileReduce
            && data.operands.len() > 1
            && each_by_one(func, data.regions[0]).is_none()
    })
}

/// Whether all that is read and written are elements of two bytes.
pub(super) fn moves_halves(func: &Func) -> bool {
    let mut tiles = func.walk().into_iter().filter_map(|op| accessed(func.op(op)));
    tiles.all(|tile| func.ty(tile).element().is_some_and(|element| bytes(element) == 2))
}

fn is_wide(func: &Func, tile: Value, elements: u32) -> bool {
    func.ty(tile).shape().is_some_and(|shape| shape.elements() > elements / 2)
}
