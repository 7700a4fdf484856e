//! Where the values stand that are made early.
//!
//! The lowering makes what threads know of themselves (positions, addresses in shared memory) before everything else, so that any op can
//! use it. [`sink`] moves what only one piece of code needs to its first use there, unless that is in a loop: nothing is computed more often
//! than before, and what comes after a loop takes no registers while the loop runs.

use std::collections::HashMap;

use tilewright_ir::{Func, Op, Opcode, Region, Value};

/// A place in a function: before op number `index` of a region.
type Place = (Region, usize);

/// Who uses a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Users {
    /// Ops of one region that is in no loop, the first of them here.
    From(Place),
    /// Others as well.
    Anywhere,
}

/// Puts early ops, which stand in no region yet, into a function. Loops that do `turns` of a whole program count as none.
pub(super) fn sink(func: &mut Func, early: Vec<Op>, turns: &[Op]) {
    let mut users = HashMap::new();
    collect(func, func.body(), (false, turns), &mut users);
    let mut sunk: HashMap<Region, Vec<(usize, Op)>> = HashMap::new();
    let mut kept = Vec::new();
    // Backwards: users come before what they use.
    for op in early.into_iter().rev() {
        let data = func.op(op);
        let stays = matches!(data.code, Opcode::Const | Opcode::Shared);
        let place = data.results.first().and_then(|result| users.get(result).copied());
        match place {
            Some(Users::From(place)) if !stays => {
                data.operands.iter().for_each(|&operand| note(&mut users, operand, Some(place)));
                sunk.entry(place.0).or_default().push((place.1, op));
            }
            _ => {
                data.operands.iter().for_each(|&operand| note(&mut users, operand, None));
                kept.push(op);
            }
        }
    }
    for (region, mut ops) in sunk {
        ops.reverse();
        // Stable, so that ops for the same place keep their order.
        ops.sort_by_key(|&(index, _)| index);
        let mut rest = ops.into_iter().peekable();
        let mut all = Vec::new();
        for (i, op) in std::mem::take(&mut func.region_mut(region).ops).into_iter().enumerate() {
            while let Some((_, early)) = rest.next_if(|&(index, _)| index == i) {
                all.push(early);
            }
            all.push(op);
        }
        func.region_mut(region).ops = all;
    }
    kept.reverse();
    let body = func.body();
    func.region_mut(body).ops.splice(0..0, kept);
}

fn note(users: &mut HashMap<Value, Users>, value: Value, place: Option<Place>) {
    let joined = match (users.get(&value), place) {
        (None, Some(place)) => Users::From(place),
        (Some(Users::From(known)), Some(place)) if known.0 == place.0 => {
            Users::From((place.0, known.1.min(place.1)))
        }
        _ => Users::Anywhere,
    };
    users.insert(value, joined);
}

fn collect(func: &Func, region: Region, (in_loop, turns): (bool, &[Op]), users: &mut HashMap<Value, Users>) {
    for (i, &op) in func.region(region).ops.iter().enumerate() {
        let data = func.op(op);
        let place = (!in_loop).then_some((region, i));
        data.operands.iter().for_each(|&operand| note(users, operand, place));
        let repeats = matches!(data.code, Opcode::For | Opcode::While) && !turns.contains(&op);
        let inside = (in_loop || repeats, turns);
        data.regions.iter().for_each(|&inner| collect(func, inner, inside, users));
    }
}
