//! Finds operations of a graph that use the same memory with nothing to say which comes first.
//!
//! Operations are swept in the order in which they were added, which is an order in which they could run: an operation can only name
//! earlier ones to come after. For every byte the sweep knows the last writer and the readers since. A reader must come after the writer,
//! a writer after the writer and the readers; by transitivity nothing else has to be looked at, so the number of pairs to prove grows with
//! the graph and not with its square. Most of them are dependencies that were given; the others are proven by reachability, for 64 earlier
//! operations at a time, so that a large graph takes little memory.
//!
//! Memory is told apart by address, so that one piece of memory under two owners is found, too.

use std::collections::BTreeMap;
use std::ops::Range;

use smallvec::SmallVec;

use crate::memory::order::Access;

/// What an operation does to a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touch {
    pub(super) range: Range<u64>,
    pub(super) access: Access,
}

/// An operation: those that it comes after, which are earlier ones, in ascending order, and what it touches.
pub(super) trait Ordered {
    fn after(&self) -> &[usize];
    fn touches(&self) -> impl Iterator<Item = Touch>;
}

/// Two operations, by number, with the number of the touch of each, and where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub(super) first: Toucher,
    pub(super) second: Toucher,
    pub(super) overlap: Range<u64>,
}

/// A touch of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Toucher {
    pub(super) operation: usize,
    pub(super) touch: usize,
}

/// The conflict that the earliest operation has with one before it, if any has one.
pub(super) fn find(operations: &[impl Ordered]) -> Option<Conflict> {
    let mut open = pairs(operations);
    open.retain(|pair| {
        operations[pair.second.operation].after().binary_search(&pair.first.operation).is_err()
    });
    open.sort_by_key(|pair| (pair.first, pair.second));
    let mut reach = vec![0u64; operations.len()];
    let unproven = open.chunk_by(|a, b| a.first.operation / 64 == b.first.operation / 64).flat_map(|pairs| {
        let base = pairs[0].first.operation / 64 * 64;
        let last = pairs.iter().map(|pair| pair.second.operation).max().unwrap_or(base);
        reaches(operations, base, last, &mut reach);
        let proven = |pair: &&Conflict| reach[pair.second.operation] & bit(base, pair.first.operation) != 0;
        pairs.iter().filter(|pair| !proven(pair)).cloned().collect::<SmallVec<[Conflict; 1]>>()
    });
    unproven.min_by_key(|pair| (pair.second, pair.first))
}

/// The bit of an operation among the 64 from `base` on.
fn bit(base: usize, operation: usize) -> u64 {
    operation.checked_sub(base).filter(|n| *n < 64).map_or(0, |n| 1 << n)
}

/// For the operations from `base` to `last`: which of the 64 from `base` on they come after.
fn reaches(operations: &[impl Ordered], base: usize, last: usize, reach: &mut [u64]) {
    for n in base..=last {
        let before = operations[n].after().iter().filter(|before| **before >= base);
        reach[n] = before.fold(0, |all, before| all | reach[*before] | bit(base, *before));
    }
}

/// Bytes with one history.
#[derive(Clone, Debug, Default)]
struct Segment {
    end: u64,
    writer: Option<Toucher>,
    /// Since the write.
    readers: SmallVec<[Toucher; 2]>,
}

/// The pairs that must be ordered, which are enough for all that must be.
fn pairs(operations: &[impl Ordered]) -> Vec<Conflict> {
    let mut segments: BTreeMap<u64, Segment> = BTreeMap::new();
    let mut pairs: Vec<Conflict> = Vec::new();
    for (operation, ordered) in operations.iter().enumerate() {
        for (touch, Touch { range, access }) in ordered.touches().enumerate() {
            if range.is_empty() {
                continue;
            }
            let second = Toucher { operation, touch };
            split(&mut segments, range.start);
            split(&mut segments, range.end);
            for (start, segment) in segments.range(range.clone()) {
                let readers = segment.readers.iter().filter(|_| access == Access::Write);
                let others = segment.writer.iter().chain(readers);
                for first in others.filter(|first| first.operation != operation) {
                    pairs.push(Conflict { first: *first, second, overlap: *start..segment.end });
                }
            }
            match access {
                Access::Read => read(&mut segments, &range, second),
                Access::Write => {
                    let inside: SmallVec<[u64; 4]> =
                        segments.range(range.clone()).map(|(start, _)| *start).collect();
                    inside.iter().for_each(|start| drop(segments.remove(start)));
                    let written = Segment { end: range.end, writer: Some(second), readers: SmallVec::new() };
                    segments.insert(range.start, written);
                }
            }
        }
    }
    pairs
}

/// Makes a segment that goes over `at` end there, and another begin.
fn split(segments: &mut BTreeMap<u64, Segment>, at: u64) {
    if let Some((_, segment)) = segments.range_mut(..at).next_back()
        && segment.end > at
    {
        let rest = segment.clone();
        segment.end = at;
        segments.insert(at, rest);
    }
}

/// Adds a reader to all of a range, whose ends are ends of segments where there are segments.
fn read(segments: &mut BTreeMap<u64, Segment>, range: &Range<u64>, reader: Toucher) {
    let mut gaps: SmallVec<[Range<u64>; 2]> = SmallVec::new();
    let mut at = range.start;
    for (start, segment) in segments.range_mut(range.clone()) {
        if at < *start {
            gaps.push(at..*start);
        }
        segment.readers.push(reader);
        at = segment.end;
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    for gap in gaps {
        let readers = std::iter::once(reader).collect();
        segments.insert(gap.start, Segment { end: gap.end, writer: None, readers });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    struct Plain {
        after: Vec<usize>,
        touches: Vec<Touch>,
    }

    impl Ordered for Plain {
        fn after(&self) -> &[usize] {
            &self.after
        }

        fn touches(&self) -> impl Iterator<Item = Touch> {
            self.touches.iter().cloned()
        }
    }

    fn node(after: &[usize], touches: &[(Range<u64>, Access)]) -> Plain {
        let touches =
            touches.iter().map(|(range, access)| Touch { range: range.clone(), access: *access }).collect();
        Plain { after: after.to_vec(), touches }
    }

    fn met(first: usize, second: usize, overlap: Range<u64>) -> Option<Conflict> {
        let toucher = |operation| Toucher { operation, touch: 0 };
        Some(Conflict { first: toucher(first), second: toucher(second), overlap })
    }

    use Access::{Read, Write};

    #[test]
    fn a_missing_dependency_is_found() {
        let write = node(&[], &[(0..8, Write)]);
        assert_eq!(find(&[write.clone(), node(&[], &[(4..12, Read)])]), met(0, 1, 4..8));
        assert_eq!(find(&[write.clone(), node(&[0], &[(4..12, Read)])]), None);
        assert_eq!(find(&[write.clone(), node(&[], &[(8..12, Write)])]), None);
        assert_eq!(find(&[node(&[], &[(0..8, Read)]), node(&[], &[(0..8, Read)])]), None);
        assert_eq!(find(&[node(&[], &[(0..8, Read)]), node(&[], &[(0..1, Write)])]), met(0, 1, 0..1));
        assert_eq!(find(&[] as &[Plain]), None);
    }

    #[test]
    fn what_comes_after_indirectly_is_in_order() {
        let diamond = [
            node(&[], &[(0..8, Write)]),
            node(&[0], &[]),
            node(&[0], &[(0..8, Read)]),
            node(&[1, 2], &[(0..8, Write)]),
        ];
        assert_eq!(find(&diamond), None);
        let mut broken = diamond.to_vec();
        broken[3].after = vec![1];
        // The writer at the top is before it, the reader is not.
        assert_eq!(find(&broken), met(2, 3, 0..8));
    }

    #[test]
    fn parts_of_a_write_keep_their_own_history() {
        let graph = [
            node(&[], &[(0..100, Write)]),
            node(&[0], &[(20..40, Write)]),
            node(&[0], &[(40..60, Write)]),
            node(&[1], &[(0..40, Read)]),
            node(&[1], &[(39..41, Read)]),
        ];
        assert_eq!(find(&graph[..4]), None);
        assert_eq!(find(&graph), met(2, 4, 40..41));
    }

    #[test]
    fn a_long_chain_and_a_wide_fan_are_quick() {
        let chain: Vec<Plain> = (0..50_000usize)
            .map(|n| node(&n.checked_sub(1).map_or(vec![], |n| vec![n]), &[(0..8, Write)]))
            .collect();
        assert_eq!(find(&chain), None);
        let mut fan = vec![node(&[], &[(0..1 << 20, Write)])];
        fan.extend((0..20_000u64).map(|n| node(&[0], &[(n * 8..n * 8 + 8, Write)])));
        let all: Vec<usize> = (1..fan.len()).collect();
        fan.push(node(&all, &[(0..1 << 20, Read)]));
        assert_eq!(find(&fan), None);
        fan.push(node(&[77], &[(0..8, Write)]));
        assert_eq!(find(&fan).map(|conflict| conflict.second.operation), Some(20_002));
    }

    /// The definition: all pairs, and a path from one to the other.
    fn by_definition(operations: &[Plain]) -> bool {
        let mut before: Vec<Vec<bool>> = Vec::new();
        for operation in operations {
            let mut mine = vec![false; operations.len()];
            for &earlier in &operation.after {
                mine[earlier] = true;
                before[earlier].iter().enumerate().for_each(|(n, is)| mine[n] |= is);
            }
            before.push(mine);
        }
        let meet = |a: &Touch, b: &Touch| {
            (a.access == Write || b.access == Write)
                && a.range.start.max(b.range.start) < a.range.end.min(b.range.end)
        };
        (0..operations.len()).any(|b| {
            (0..b).filter(|a| !before[b][*a]).any(|a| {
                operations[a].touches.iter().any(|x| operations[b].touches.iter().any(|y| meet(x, y)))
            })
        })
    }

    fn graphs(nodes: usize) -> impl Strategy<Value = Vec<Plain>> {
        let touch = (0..24u64, 0..10u64, prop::bool::ANY).prop_map(|(start, bytes, writes)| Touch {
            range: start..start + bytes,
            access: if writes { Write } else { Read },
        });
        let one = (prop::collection::vec(0..1000usize, 0..4), prop::collection::vec(touch, 0..3));
        prop::collection::vec(one, 0..nodes).prop_map(|nodes| {
            let plain = |(n, (after, touches)): (usize, (Vec<usize>, Vec<Touch>))| {
                let earlier = after.into_iter().filter(|_| n > 0).map(|a| n - 1 - a % n.min(5));
                let after: std::collections::BTreeSet<usize> = earlier.collect();
                Plain { after: after.into_iter().collect(), touches }
            };
            nodes.into_iter().enumerate().map(plain).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn small_graphs_as_by_definition(graph in graphs(9)) {
            prop_assert_eq!(find(&graph).is_some(), by_definition(&graph));
        }

        #[test]
        fn what_is_found_is_a_conflict(graph in graphs(150)) {
            let found = find(&graph);
            prop_assert_eq!(found.is_some(), by_definition(&graph));
            if let Some(Conflict { first, second, overlap }) = found {
                let touch = |toucher: Toucher| &graph[toucher.operation].touches[toucher.touch];
                let (a, b) = (touch(first), touch(second));
                prop_assert!(a.access == Write || b.access == Write);
                prop_assert!(!overlap.is_empty());
                for touch in [a, b] {
                    prop_assert!(touch.range.start <= overlap.start && overlap.end <= touch.range.end);
                }
            }
        }
    }
}
