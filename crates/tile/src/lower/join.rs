//! Reductions that do not depend on each other become one, so that threads meet once for all of them.
//!
//! `x.sum(1)` and `(x * x).sum(1)` cost two exchanges and two waits where they are written, though one would do. The second goes to the place of
//! the first, with whatever pure it is computed from, if both go along the same axis of tiles that are held alike, and combine each by a single
//! op that does not care for order ([`each_by_one`]). What is combined is the same in the same order: results do not change.

use tilewright_ir::{Axis, Func, Op, Opcode, Region, Type, Value};

use super::assign::Classes;

/// The function with reductions joined; none if there are none to join.
pub(super) fn joined(func: &Func) -> Option<Func> {
    let mut result: Option<Func> = None;
    loop {
        let now = result.as_ref().unwrap_or(func);
        let classes = Classes::of(now);
        let regions = now.walk().into_iter().flat_map(|op| now.op(op).regions.to_vec());
        let mut regions = std::iter::once(now.body()).chain(regions);
        let Some((region, pair)) = regions.find_map(|region| Some((region, pair(now, &classes, region)?)))
        else {
            return result;
        };
        let mut next = now.clone();
        join(&mut next, region, &pair);
        result = Some(next);
    }
}

/// The ops that combine one element each of a reduction with its like, if nothing else is done.
pub(super) fn each_by_one(func: &Func, region: Region) -> Option<Vec<Op>> {
    let (args, ops) = (&func.region(region).args, &func.region(region).ops);
    let (&end, parts) = ops.split_last()?;
    let (first, second) = args.split_at(args.len() / 2);
    let yielded = &func.op(end).operands;
    let is_plain = |(i, &op): (usize, &Op)| {
        let data = func.op(op);
        let pair = [first[i], second[i]];
        data.regions.is_empty()
            && data.results.len() == 1
            && yielded[i] == data.results[0]
            && (data.operands[..] == pair || data.operands[..] == [pair[1], pair[0]])
    };
    let plain = parts.len() == first.len() && yielded.len() == first.len();
    (plain && parts.iter().enumerate().all(is_plain)).then(|| parts.to_vec())
}

/// Two reductions to join, and what has to move before the first.
struct Pair {
    first: Op,
    second: Op,
    moved: Vec<Op>,
}

fn pair(func: &Func, classes: &Classes, region: Region) -> Option<Pair> {
    let ops = &func.region(region).ops;
    let plain = |op: Op| {
        let data = func.op(op);
        (data.code == Opcode::TileReduce).then(|| each_by_one(func, data.regions[0])).flatten()
    };
    let alike = |a: Op, b: Op| {
        let (a, b) = (func.op(a), func.op(b));
        let held = |value: Value| (classes.find(value), func.ty(value).shape());
        a.get::<Axis>() == b.get::<Axis>() && held(a.operands[0]) == held(b.operands[0])
    };
    let reductions: Vec<usize> = (0..ops.len()).filter(|&i| plain(ops[i]).is_some()).collect();
    for (k, &i) in reductions.iter().enumerate() {
        for &j in reductions[k + 1..].iter().filter(|&&j| alike(ops[i], ops[j])) {
            if let Some(moved) = between(func, &ops[i..j], ops[j]) {
                return Some(Pair { first: ops[i], second: ops[j], moved });
            }
        }
    }
    None
}

/// What of these ops the last one is computed from, in order; none if that is the first of them, or something that must stay where it is.
fn between(func: &Func, ops: &[Op], last: Op) -> Option<Vec<Op>> {
    let uses = |user: Op, op: Op| {
        let mut inside = vec![user];
        func.op(user).regions.iter().for_each(|&region| func.walk_region(region, &mut inside));
        let results = &func.op(op).results;
        inside.iter().any(|&user| func.op(user).operands.iter().any(|value| results.contains(value)))
    };
    let mut needed = vec![last];
    for &op in ops.iter().rev() {
        if needed.iter().any(|&user| uses(user, op)) {
            needed.push((op != ops[0] && only_computes(func, op)).then_some(op)?);
        }
    }
    needed.reverse();
    needed.pop();
    Some(needed)
}

/// Whether neither the op nor anything inside of it does more than compute its results.
fn only_computes(func: &Func, op: Op) -> bool {
    let mut inside = vec![op];
    func.op(op).regions.iter().for_each(|&region| func.walk_region(region, &mut inside));
    inside.iter().map(|&op| func.op(op).info()).all(|info| {
        let effects = &info.effects;
        effects.accesses.is_empty() && !effects.orders && (!effects.control || info.is_terminator())
    })
}

fn join(func: &mut Func, region: Region, pair: &Pair) {
    let both = [pair.first, pair.second];
    let data = both.map(|op| func.op(op).clone());
    let operands: Vec<Value> = data.iter().flat_map(|data| data.operands.iter().copied()).collect();
    let types: Vec<Type> = data.iter().flat_map(|data| &data.results).map(|&value| func.ty(value)).collect();
    let op = func.new_op(Opcode::TileReduce, operands, data[0].attrs.to_vec(), types, data[0].loc);

    // First elements of both, then second ones.
    let own = func.new_region(op);
    let mut now: Vec<(Value, Value)> = Vec::new();
    for second in [false, true] {
        for data in &data {
            let args = func.region(data.regions[0]).args.clone();
            let (firsts, seconds) = args.split_at(data.operands.len());
            for &arg in if second { seconds } else { firsts } {
                let ty = func.ty(arg);
                now.push((arg, func.add_arg(own, ty)));
            }
        }
    }
    let (mut ops, mut yielded) = (Vec::new(), Vec::new());
    for data in &data {
        let mut inside = func.region(data.regions[0]).ops.clone();
        let end = inside.pop();
        yielded.extend(end.iter().flat_map(|&end| func.op(end).operands.to_vec()));
        ops.extend(inside);
    }
    ops.push(func.new_op(Opcode::Yield, yielded, [], [], data[0].loc));
    func.region_mut(own).ops = ops.into_iter().collect();

    let results = func.op(op).results.to_vec();
    now.extend(data.iter().flat_map(|data| data.results.iter().copied()).zip(results));
    let list = &mut func.region_mut(region).ops;
    list.retain(|op| *op != pair.second && !pair.moved.contains(op));
    if let Some(place) = list.iter().position(|&op| op == pair.first) {
        list.splice(place..=place, pair.moved.iter().copied().chain([op]));
    }
    func.replace_uses(|value| now.iter().find(|(old, _)| *old == value).map_or(value, |&(_, new)| new));
}
