//! Laws of knowledge: joining is idempotent, commutative, associative and monotone.

use proptest::prelude::*;

use crate::check::{Agent, Epoch, Knowledge};

const CLUSTERS: [u32; 4] = [0, 1, 31, 40];
/// Lanes that learn on their own. Lane 3 is asked about, too: it stands for the rest, which learn only when all do.
const ALONE: u32 = 0x8000_0007;

fn epochs() -> impl Iterator<Item = Epoch> {
    CLUSTERS.into_iter().flat_map(|cluster| {
        (0..5).flat_map(move |slot| {
            [0, 1, 2, 3, 31].into_iter().flat_map(move |lane| {
                (1..6).map(move |clock| Epoch { agent: Agent { cluster, slot, block: 0, lane }, clock })
            })
        })
    })
}

/// All that can be asked of it.
fn answers(know: &Knowledge) -> Vec<(bool, bool)> {
    epochs().map(|epoch| (know.knows(epoch), know.knows_proxied(epoch))).collect()
}

/// Knowledge at a point of cluster `own` built from lessons in several clusters, with a proxy fence somewhere.
fn knowledge(own: u32) -> impl Strategy<Value = Knowledge> {
    let lanes = prop_oneof![Just(u32::MAX), any::<u32>().prop_map(|lanes| lanes & ALONE)];
    let lesson = (0..CLUSTERS.len(), 0..5u16, lanes, 0..6u32, any::<bool>());
    (prop::collection::vec(lesson, 0..12), 0..12usize).prop_map(move |(lessons, fence)| {
        let mut know = Knowledge::new(own);
        for (i, &(cluster, slot, lanes, clock, proxied)) in lessons.iter().enumerate() {
            let mut there = Knowledge::new(CLUSTERS[cluster]);
            there.learn(slot, lanes, clock, proxied);
            know.join(&there);
            if i == fence {
                know.proxy_fence();
            }
        }
        know
    })
}

fn joined(a: &Knowledge, b: &Knowledge) -> Knowledge {
    let mut sum = a.clone();
    sum.join(b);
    sum
}

proptest! {
    #[test]
    fn join_is_the_pointwise_maximum(a in knowledge(0), b in knowledge(1), c in knowledge(0)) {
        let sum = joined(&a, &b);
        let either: Vec<_> = answers(&a).into_iter().zip(answers(&b)).map(|(a, b)| (a.0 | b.0, a.1 | b.1)).collect();
        prop_assert_eq!(answers(&sum), either.clone());
        prop_assert_eq!(answers(&joined(&b, &a)), either);
        prop_assert_eq!(answers(&joined(&a, &a)), answers(&a));
        prop_assert_eq!(answers(&joined(&joined(&a, &b), &c)), answers(&joined(&a, &joined(&b, &c))));
    }

    #[test]
    fn includes_is_the_order_of_join(a in knowledge(0), b in knowledge(1)) {
        let sum = joined(&a, &b);
        prop_assert!(sum.includes(&a) && sum.includes(&b));
        let less = answers(&b).into_iter().zip(answers(&a)).all(|(b, a)| b.0 <= a.0 && b.1 <= a.1);
        prop_assert_eq!(a.includes(&b), less);
    }

    #[test]
    fn proxied_never_exceeds_ordered(a in knowledge(0), b in knowledge(40)) {
        let mut sum = joined(&a, &b);
        prop_assert!(answers(&sum).iter().all(|&(ordered, proxied)| ordered || !proxied));
        sum.proxy_fence();
        prop_assert!(answers(&sum).iter().all(|&(ordered, proxied)| ordered == proxied));
    }

    #[test]
    fn learning_raises_exactly_those_lanes(a in knowledge(0), slot in 0..5u16, lanes in any::<u32>(), clock in 1..6u32) {
        let mut more = a.clone();
        more.learn(slot, lanes, clock, false);
        for epoch in epochs() {
            let Agent { cluster, slot: of, lane, .. } = epoch.agent;
            let taught = cluster == 0 && of == slot && lanes >> lane & 1 == 1 && epoch.clock <= clock;
            prop_assert_eq!(more.knows(epoch), a.knows(epoch) || taught);
        }
        prop_assert!(more.knows_any_of(slot..slot + 1) || lanes == 0);
    }
}

#[test]
fn slots_are_found_by_range() {
    let mut know = Knowledge::new(3);
    know.learn(7, 1 << 4, 2, false);
    assert!(know.knows_any_of(7..8) && know.knows_any_of(0..100));
    assert!(!know.knows_any_of(0..7) && !know.knows_any_of(8..u16::MAX));
    #[allow(clippy::reversed_empty_ranges)]
    let backwards = 9..2;
    assert!(!know.knows_any_of(backwards));
}

#[test]
fn a_chain_of_blocks_shares_what_it_knows() {
    // Every block learns from its predecessor: each must know all before it, in time that is not quadratic in clocks.
    let mut last = Knowledge::new(0);
    for cluster in 0..2000 {
        let mut know = Knowledge::new(cluster);
        know.join(&last);
        know.learn(0, u32::MAX, 1, false);
        last = know;
    }
    let at = |cluster| Epoch { agent: Agent { cluster, slot: 0, block: 0, lane: 0 }, clock: 1 };
    assert!((0..2000).all(|cluster| last.knows(at(cluster))));
    assert!(!last.knows(at(2000)));
}
