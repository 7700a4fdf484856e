//! Where the values stand that are made early.
//!
//! The lowering makes what threads know of themselves (positions, addresses in shared memory) before everything else, so that any op can
//! use it. [`sink`] moves what only one piece of code needs to its first use there, unless that is in a loop: nothing is computed more often
//! than before, and what comes after a loop takes no registers while the loop runs.
//!
//! [`finish_one_by_one`] does so for what is computed with sums after the last loop of a program: tile by tile, as it is lowered, each step of
//! it would hold as many registers as the sums do.

use std::collections::{HashMap, HashSet};

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

/// Puts pure ops behind the last loop of a region right before the first op that needs them and has an effect: an element is computed when it
/// is stored. What nobody needs is left out.
pub(super) fn finish_one_by_one(func: &mut Func, region: Region) {
    let ops = func.region(region).ops.clone();
    let Some(last) = ops.iter().rposition(|&op| func.op(op).code == Opcode::For) else { return };
    let (before, after) = ops.split_at(last + 1);
    let free: HashSet<Op> = after.iter().copied().filter(|&op| func.op(op).info().is_pure()).collect();
    let mut placed: HashSet<Op> = HashSet::new();
    let mut all = before.to_vec();
    for &op in after.iter().filter(|op| !free.contains(op)) {
        let mut inside = vec![op];
        func.op(op).regions.iter().for_each(|&inner| func.walk_region(inner, &mut inside));
        let needed = inside.iter().flat_map(|&user| func.op(user).operands.iter().copied());
        let made_by = |value: Value| func.def_op(value).filter(|op| free.contains(op));
        // What an op needs comes off the stack, and is placed, before the op does for the second time.
        let mut stack: Vec<(Op, bool)> = needed.filter_map(made_by).map(|op| (op, false)).collect();
        stack.reverse();
        while let Some((next, ready)) = stack.pop() {
            if ready {
                all.push(next);
            } else if placed.insert(next) {
                stack.push((next, true));
                stack.extend(
                    func.op(next).operands.iter().rev().filter_map(|&v| made_by(v)).map(|op| (op, false)),
                );
            }
        }
        all.push(op);
    }
    func.region_mut(region).ops = all;
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
