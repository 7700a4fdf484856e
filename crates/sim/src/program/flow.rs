//! Control flow: the order in which diverged paths run, and where they meet again.
//!
//! Lanes of a diverged warp run the path with the smallest [`Flow::order`] first and merge when they arrive at the same op. For that to
//! merge as early as possible, the order is topological wherever the graph has no cycles, and keeps the blocks of a loop together: what
//! a loop leads to comes behind all of its blocks, so that lanes that left early wait for the others. This is a weak topological order
//! in the sense of Bourdoncle, found by decomposing strongly connected components: the head of a component comes first, the rest is
//! decomposed again without it. Blocks that nothing leads to come last.
//!
//! `trap` and what the simulator cannot execute count as falling through: nothing runs behind them, and an assertion then does not
//! separate the paths around it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::op::{Kind, Op, Pc, PredSrc};

/// What the scheduler needs to know about the code of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    /// The place of each op in the scheduling order.
    pub(super) order: Vec<u32>,
    /// For each conditional branch, where its paths meet again at the latest; `None` if they need not, and for other ops.
    pub(super) post_dominator: Vec<Option<Pc>>,
}

impl Flow {
    /// Analyses the code of a function, which is entered at op 0.
    pub(super) fn new(code: &[Op]) -> Flow {
        let graph = Graph::new(code);
        let mut order = vec![0; code.len()];
        let mut next = 0;
        for block in weak_topological_order(&graph.successors) {
            for pc in graph.range(block) {
                order[pc] = next;
                next += 1;
            }
        }
        let dominators = post_dominators(&graph.successors, &graph.leaves);
        let mut post_dominator = vec![None; code.len()];
        for (block, dominator) in dominators.iter().enumerate() {
            let last = graph.range(block).end.saturating_sub(1);
            if is_conditional_branch(&code[last]) {
                post_dominator[last] = dominator.map(|block| graph.starts[block]);
            }
        }
        Flow { order, post_dominator }
    }
}

/// Whether some lanes may pass an op without doing it.
pub(super) fn is_guarded(op: &Op) -> bool {
    matches!(op.guard, Some(PredSrc::Reg { .. } | PredSrc::Imm(false)))
}

fn is_conditional_branch(op: &Op) -> bool {
    match &op.kind {
        Kind::Bra { .. } => is_guarded(op),
        Kind::Brx { .. } => true,
        _ => false,
    }
}

/// Basic blocks, numbered as in the text.
pub(super) struct Graph {
    /// The first op of each.
    pub(super) starts: Vec<Pc>,
    /// The blocks behind each, without repetition.
    pub(super) successors: Vec<Vec<usize>>,
    /// Blocks at whose end lanes may leave the function.
    leaves: Vec<bool>,
    len: usize,
}

impl Graph {
    pub(super) fn new(code: &[Op]) -> Graph {
        let mut leader = vec![false; code.len()];
        if let Some(first) = leader.first_mut() {
            *first = true;
        }
        let mut mark = |pc: usize| {
            if let Some(slot) = leader.get_mut(pc) {
                *slot = true;
            }
        };
        for (pc, op) in code.iter().enumerate() {
            match &op.kind {
                Kind::Bra { target, .. } => mark(*target as usize),
                Kind::Brx { targets, .. } => targets.iter().for_each(|target| mark(*target as usize)),
                Kind::Ret | Kind::Exit => {}
                _ => continue,
            }
            mark(pc + 1);
        }
        let mut starts = Vec::new();
        let mut block_of = Vec::with_capacity(code.len());
        for (pc, leads) in leader.iter().enumerate() {
            if *leads {
                starts.push(Pc::try_from(pc).unwrap_or(Pc::MAX));
            }
            block_of.push(starts.len() - 1);
        }
        let mut graph =
            Graph { successors: Vec::new(), leaves: vec![false; starts.len()], starts, len: code.len() };
        for block in 0..graph.starts.len() {
            let last = graph.range(block).end.saturating_sub(1);
            let op = &code[last];
            let (mut targets, falls): (Vec<usize>, bool) = match &op.kind {
                Kind::Bra { target, .. } => (vec![*target as usize], is_guarded(op)),
                Kind::Brx { targets, .. } => {
                    (targets.iter().map(|pc| *pc as usize).collect(), is_guarded(op))
                }
                Kind::Ret | Kind::Exit => {
                    graph.leaves[block] = true;
                    (Vec::new(), is_guarded(op))
                }
                _ => (Vec::new(), true),
            };
            if falls {
                targets.push(last + 1);
            }
            graph.leaves[block] |= targets.iter().any(|pc| *pc >= code.len());
            let mut found: Vec<usize> = targets.iter().filter_map(|pc| block_of.get(*pc).copied()).collect();
            found.sort_unstable();
            found.dedup();
            graph.successors.push(found);
        }
        graph
    }

    /// The ops of a block.
    pub(super) fn range(&self, block: usize) -> std::ops::Range<usize> {
        let end = self.starts.get(block + 1).map_or(self.len, |pc| *pc as usize);
        self.starts[block] as usize..end
    }
}

/// All blocks in a weak topological order; block 0 is the entry.
fn weak_topological_order(successors: &[Vec<usize>]) -> Vec<usize> {
    let mut order = Vec::with_capacity(successors.len());
    if successors.is_empty() {
        return order;
    }
    let reached = reachable(successors, 0);
    let (live, dead): (Vec<usize>, Vec<usize>) = (0..successors.len()).partition(|block| reached[*block]);
    let mut predecessors = vec![Vec::new(); successors.len()];
    for (from, targets) in successors.iter().enumerate().filter(|(from, _)| reached[*from]) {
        targets.iter().for_each(|to| predecessors[*to].push(from));
    }
    // Which of the sets below a block is in now.
    let mut member = vec![0usize; successors.len()];
    let mut sets = 0;
    let mut scratch = vec![Visit::default(); successors.len()];
    // A block to give out, or a set to decompose; the last comes first.
    enum Work {
        Give(usize),
        Decompose(Vec<usize>),
    }
    let mut work = vec![Work::Decompose(live)];
    while let Some(item) = work.pop() {
        let blocks = match item {
            Work::Give(block) => {
                order.push(block);
                continue;
            }
            Work::Decompose(blocks) => blocks,
        };
        sets += 1;
        blocks.iter().for_each(|block| member[*block] = sets);
        let inside = |block: &usize| member[*block] == sets;
        let mut parts = Vec::new();
        for component in components(&blocks, successors, inside, &mut scratch) {
            let head = component[0];
            if component.len() == 1 {
                parts.push(Work::Give(head));
                continue;
            }
            let in_component = |block: &usize| component.binary_search(block).is_ok();
            // A cycle is entered at its head. If there are several entries, the first in the text is as good as any.
            let entered =
                |block: &usize| *block == 0 || predecessors[*block].iter().any(|from| !in_component(from));
            let head = component.iter().copied().find(entered).unwrap_or(head);
            parts.push(Work::Give(head));
            parts.push(Work::Decompose(component.into_iter().filter(|block| *block != head).collect()));
        }
        work.extend(parts.into_iter().rev());
    }
    order.extend(dead);
    order
}

fn reachable(successors: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut reached = vec![false; successors.len()];
    let mut stack = vec![from];
    while let Some(block) = stack.pop() {
        if !std::mem::replace(&mut reached[block], true) {
            stack.extend(successors[block].iter().filter(|to| !reached[**to]));
        }
    }
    reached
}

/// What Tarjan's algorithm knows of a block; index 0 is a block that it has not seen.
#[derive(Clone, Copy, Default)]
struct Visit {
    index: usize,
    low: usize,
    open: bool,
    component: usize,
}

/// The strongly connected components of a part of the graph in topological order, those that come first in the text first where there
/// is a choice. The blocks are sorted, and so is each component. `scratch` has one entry for each block of the graph.
fn components(
    blocks: &[usize],
    successors: &[Vec<usize>],
    inside: impl Fn(&usize) -> bool,
    scratch: &mut [Visit],
) -> Vec<Vec<usize>> {
    let count = tarjan(blocks, successors, &inside, scratch);
    let component = |block: &usize| scratch[*block].component;
    let mut members = vec![Vec::new(); count];
    blocks.iter().for_each(|block| members[component(block)].push(*block));
    let mut waiting = vec![0usize; count];
    let mut edges = vec![Vec::new(); count];
    for block in blocks {
        for to in successors[*block].iter().filter(|to| inside(to)) {
            let (from, to) = (component(block), component(to));
            if from != to {
                edges[from].push(to);
                waiting[to] += 1;
            }
        }
    }
    let mut ready: BinaryHeap<Reverse<(usize, usize)>> =
        (0..count).filter(|at| waiting[*at] == 0).map(|at| Reverse((members[at][0], at))).collect();
    let mut sorted = Vec::with_capacity(count);
    while let Some(Reverse((_, at))) = ready.pop() {
        for to in &edges[at] {
            waiting[*to] -= 1;
            if waiting[*to] == 0 {
                ready.push(Reverse((members[*to][0], *to)));
            }
        }
        sorted.push(std::mem::take(&mut members[at]));
    }
    sorted
}

/// Numbers the strongly connected components of a part of the graph and says how many there are. Tarjan's algorithm, without recursion
/// since a kernel may be one long path.
fn tarjan(
    blocks: &[usize],
    successors: &[Vec<usize>],
    inside: &impl Fn(&usize) -> bool,
    scratch: &mut [Visit],
) -> usize {
    blocks.iter().for_each(|block| scratch[*block] = Visit::default());
    let (mut visits, mut count) = (0, 0);
    let mut open = Vec::new();
    for root in blocks {
        if scratch[*root].index > 0 {
            continue;
        }
        // A block and how many of its successors are done.
        let mut path = vec![(*root, 0)];
        while let Some((block, done)) = path.last_mut() {
            let block = *block;
            if scratch[block].index == 0 {
                visits += 1;
                scratch[block] = Visit { index: visits, low: visits, open: true, component: 0 };
                open.push(block);
            }
            if let Some(skipped) = successors[block][*done..].iter().position(inside) {
                let to = successors[block][*done + skipped];
                *done += skipped + 1;
                if scratch[to].index == 0 {
                    path.push((to, 0));
                } else if scratch[to].open {
                    scratch[block].low = scratch[block].low.min(scratch[to].index);
                }
                continue;
            }
            path.pop();
            let Visit { index, low, .. } = scratch[block];
            if let Some((parent, _)) = path.last() {
                scratch[*parent].low = scratch[*parent].low.min(low);
            }
            if low == index {
                while let Some(member) = open.pop() {
                    (scratch[member].open, scratch[member].component) = (false, count);
                    if member == block {
                        break;
                    }
                }
                count += 1;
            }
        }
    }
    count
}

/// The immediate post-dominator of each block; `None` where that is the way out, or where no way leads out.
///
/// The iteration of Cooper, Harvey and Kennedy on the reversed graph, with one exit added behind all blocks that leave.
fn post_dominators(successors: &[Vec<usize>], leaves: &[bool]) -> Vec<Option<usize>> {
    let exit = successors.len();
    let mut reversed = vec![Vec::new(); exit + 1];
    for (from, targets) in successors.iter().enumerate() {
        targets.iter().for_each(|to| reversed[*to].push(from));
        if leaves[from] {
            reversed[exit].push(from);
        }
    }
    // Blocks in the order in which a depth-first walk from the exit is done with them.
    let mut rank = vec![None; exit + 1];
    let mut finished = Vec::new();
    let mut seen = vec![false; exit + 1];
    seen[exit] = true;
    let mut path = vec![(exit, 0)];
    while let Some((block, done)) = path.last_mut() {
        if let Some(&next) = reversed[*block].get(*done) {
            *done += 1;
            if !std::mem::replace(&mut seen[next], true) {
                path.push((next, 0));
            }
        } else {
            rank[*block] = Some(finished.len());
            finished.push(*block);
            path.pop();
        }
    }
    let mut dominator: Vec<Option<usize>> = vec![None; exit + 1];
    dominator[exit] = Some(exit);
    let meet = |dominator: &[Option<usize>], mut a: usize, mut b: usize| {
        while a != b {
            let behind = if rank[a] < rank[b] { &mut a } else { &mut b };
            *behind = dominator[*behind].unwrap_or(exit);
        }
        a
    };
    let mut changed = true;
    while changed {
        changed = false;
        for &block in finished.iter().rev().filter(|block| **block != exit) {
            let ways = successors[block].iter().copied().chain(leaves[block].then_some(exit));
            let mut found: Option<usize> = None;
            for way in ways.filter(|way| dominator[*way].is_some()) {
                found = Some(found.map_or(way, |so_far| meet(&dominator, so_far, way)));
            }
            if found.is_some() && dominator[block] != found {
                dominator[block] = found;
                changed = true;
            }
        }
    }
    dominator.truncate(exit);
    dominator.into_iter().map(|block| block.filter(|block| *block != exit)).collect()
}
