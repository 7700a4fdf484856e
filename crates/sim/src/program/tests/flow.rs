//! Order and post-dominators.

use super::super::flow::Flow;
use super::super::{Function, Kind};
use super::kernel;

/// The body with a predicate; ops are found by the constants that they move.
fn flow(body: &str) -> Function {
    kernel(&format!(".reg .pred %p; .reg .b32 %r;\n{body}"))
}

/// Where the mark `mov %r, number` stands.
fn mark(function: &Function, number: u64) -> usize {
    let is_mark =
        |kind: &Kind| matches!(kind, Kind::Mov { src, .. } if *src == super::super::Src::Imm(number));
    function.code.iter().position(|op| is_mark(&op.kind)).unwrap()
}

fn order(function: &Function, number: u64) -> u32 {
    function.order[mark(function, number)]
}

/// Marks in scheduling order.
fn sequence(function: &Function, marks: std::ops::Range<u64>) -> Vec<u64> {
    let mut found: Vec<u64> = marks.collect();
    found.sort_by_key(|number| order(function, *number));
    found
}

/// The mark at which the paths of the branch before a mark meet.
fn meeting(function: &Function, branch_behind: u64) -> Option<usize> {
    let branch = (mark(function, branch_behind)..)
        .find(|pc| matches!(function.code[*pc].kind, Kind::Bra { .. } | Kind::Brx { .. }));
    function.post_dominator[branch.unwrap()].map(|pc| pc as usize)
}

#[test]
fn a_diamond_meets_behind_both_sides() {
    let f = flow(
        "mov.u32 %r, 1; @%p bra ELSE; mov.u32 %r, 2; bra END; ELSE: mov.u32 %r, 3; END: mov.u32 %r, 4; ret;",
    );
    assert_eq!(sequence(&f, 1..5), [1, 2, 3, 4]);
    assert_eq!(meeting(&f, 1), Some(mark(&f, 4)));
}

#[test]
fn blocks_moved_out_of_line_run_before_the_join() {
    // The else side stands behind the return, as compilers put unlikely code.
    let f = flow(
        "mov.u32 %r, 1; @%p bra COLD; mov.u32 %r, 2; JOIN: mov.u32 %r, 3; ret; COLD: mov.u32 %r, 4; bra JOIN;",
    );
    assert_eq!(sequence(&f, 1..5), [1, 2, 4, 3]);
    assert_eq!(meeting(&f, 1), Some(mark(&f, 3)));
}

#[test]
fn exits_come_behind_the_whole_loop() {
    // Two ways out of the loop, both written inside it.
    let f = flow(
        "mov.u32 %r, 1; HEAD: mov.u32 %r, 2; @%p bra OUT; mov.u32 %r, 3; @%p bra AGAIN; \
         OUT: mov.u32 %r, 4; bra END; AGAIN: mov.u32 %r, 5; @%p bra HEAD; END: mov.u32 %r, 6; ret;",
    );
    assert_eq!(sequence(&f, 1..7), [1, 2, 3, 5, 4, 6]);
    assert_eq!(meeting(&f, 5), Some(mark(&f, 6)));
    assert_eq!(meeting(&f, 2), Some(mark(&f, 6)), "one leaves past the other's way out");
}

#[test]
fn nested_loops_stay_together() {
    let f = flow(
        "OUTER: mov.u32 %r, 1; INNER: mov.u32 %r, 2; @%p bra LATCH; mov.u32 %r, 3; @%p bra AFTER; \
         LATCH: mov.u32 %r, 4; @%p bra INNER; AFTER: mov.u32 %r, 5; @%p bra OUTER; mov.u32 %r, 6; ret;",
    );
    assert_eq!(sequence(&f, 1..7), [1, 2, 3, 4, 5, 6]);
    assert_eq!(meeting(&f, 4), Some(mark(&f, 5)));
    assert_eq!(meeting(&f, 5), Some(mark(&f, 6)));
    assert_eq!(meeting(&f, 3), Some(mark(&f, 5)));
}

#[test]
fn irreducible_cycles_have_an_order() {
    // A and B jump to each other, and both are entered from outside.
    let f = flow(
        "mov.u32 %r, 1; @%p bra B; A: mov.u32 %r, 2; @%p bra END; B: mov.u32 %r, 3; @%p bra A; \
         END: mov.u32 %r, 4; ret;",
    );
    assert_eq!(sequence(&f, 1..5), [1, 2, 3, 4]);
    assert_eq!(meeting(&f, 1), Some(mark(&f, 4)), "B may leave without A and A without B");
    assert_eq!(meeting(&f, 2), Some(mark(&f, 4)));
}

#[test]
fn endless_loops_and_dead_code() {
    let f =
        flow("mov.u32 %r, 1; @%p bra END; L: mov.u32 %r, 2; bra L; mov.u32 %r, 3; END: mov.u32 %r, 4; ret;");
    assert_eq!(meeting(&f, 1), Some(mark(&f, 4)), "only one way leads out");
    assert_eq!(meeting(&f, 2), None);
    assert!(order(&f, 3) > order(&f, 4), "dead code comes last");
}

#[test]
fn a_guarded_return_is_a_way_out() {
    let f = flow("mov.u32 %r, 1; @%p bra SKIP; mov.u32 %r, 2; @%p ret; SKIP: mov.u32 %r, 3; ret;");
    assert_eq!(meeting(&f, 1), None, "some lanes never arrive at the join");
    let f = flow("mov.u32 %r, 1; @%p bra SKIP; mov.u32 %r, 2; trap; SKIP: mov.u32 %r, 3; ret;");
    assert_eq!(meeting(&f, 1), Some(mark(&f, 3)), "a trap ends everything, so it separates nothing");
}

#[test]
fn indexed_branches_meet() {
    let f = flow(
        "T: .branchtargets A, B, A; mov.u32 %r, 1; brx.idx %r, T; A: mov.u32 %r, 2; bra END; \
         B: mov.u32 %r, 3; END: mov.u32 %r, 4; ret;",
    );
    assert_eq!(sequence(&f, 1..5), [1, 2, 3, 4]);
    assert_eq!(meeting(&f, 1), Some(mark(&f, 4)));
    let targets = f.code.iter().find_map(|op| match &op.kind {
        Kind::Brx { targets, .. } => Some(targets.clone()),
        _ => None,
    });
    let [a, b] = [2, 3].map(|number| u32::try_from(mark(&f, number)).unwrap());
    assert_eq!(targets, Some(vec![a, b, a]));
}

#[test]
fn long_and_deep_code_needs_no_stack() {
    // 1000 nested loops and as many diamonds.
    let mut body = String::new();
    for i in 0..1000 {
        body.push_str(&format!("L{i}: @%p bra M{i}; mov.u32 %r, 1; M{i}:\n"));
    }
    for i in (0..1000).rev() {
        body.push_str(&format!("@%p bra L{i};\n"));
    }
    let f = flow(&body);
    assert_eq!(f.order.first(), Some(&0));
    assert_eq!(f.order.len(), f.code.len());
    assert!(f.order.windows(2).all(|pair| pair[0] < pair[1]), "the text is already in order");
}

#[test]
fn no_code_has_no_order() {
    assert_eq!(Flow::new(&[]), Flow::default());
}
