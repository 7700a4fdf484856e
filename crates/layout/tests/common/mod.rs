//! Random layouts for the property tests.
#![allow(dead_code)] // each test file uses its own part

use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use tilewright_layout::{Composed, IntTuple, Layout, Stride, StrideTuple, Swizzle, Tree};

/// `PROPTEST_CASES` cases, or as many as keep the suite quick.
pub(crate) fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(1000),
        max_local_rejects: u32::MAX,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

/// Shapes of up to three levels with extents 1 to 6, non-powers of two and extents of 1 among them, and at most
/// `limit` coordinates.
pub(crate) fn shapes(limit: i64) -> impl Strategy<Value = IntTuple> {
    let leaf = prop_oneof![4 => 1i64..=4, 1 => 5i64..=6, 1 => Just(8i64)].prop_map(Tree::Leaf);
    leaf.prop_recursive(3, 8, 3, |inner| prop::collection::vec(inner, 1..=3).prop_map(Tree::Tuple))
        .prop_filter("too large", move |shape| shape.product().is_ok_and(|size| size <= limit))
}

/// Any strides: small, zero, or compact in a random order of the modes with gaps.
pub(crate) fn layouts(limit: i64) -> impl Strategy<Value = Layout> {
    prop_oneof![
        (shapes(limit), prop::collection::vec(prop_oneof![3 => 0i64..=4, 2 => 5i64..=40], 32)).prop_map(
            |(shape, strides)| {
                let mut next = strides.into_iter().cycle();
                let stride: StrideTuple = shape.map(&mut |_| Stride::from(next.next().unwrap()));
                Layout::new(shape, stride).unwrap()
            }
        ),
        ordered_layouts(limit),
    ]
}

/// Injective layouts whose modes, sorted by stride, nest: compact in a random order, with random gaps.
pub(crate) fn ordered_layouts(limit: i64) -> impl Strategy<Value = Layout> {
    (shapes(limit), prop::collection::vec((any::<u8>(), prop_oneof![4 => Just(1i64), 1 => 2i64..=3]), 32))
        .prop_map(|(shape, keys)| {
            let extents: Vec<i64> = shape.leaves().copied().collect();
            let mut order: Vec<usize> = (0..extents.len()).collect();
            order.sort_by_key(|&i| keys[i % keys.len()].0);
            let mut strides = vec![0; extents.len()];
            let mut current = 1;
            for i in order {
                current *= keys[i % keys.len()].1;
                strides[i] = current;
                current *= extents[i];
            }
            let mut next = strides.into_iter();
            let stride: StrideTuple = shape.map(&mut |_| Stride::from(next.next().unwrap()));
            Layout::new(shape, stride).unwrap()
        })
}

/// Swizzles that act within small layouts.
pub(crate) fn swizzles() -> impl Strategy<Value = Swizzle> {
    (0i64..=3, 0i64..=4, 0i64..=2, any::<bool>()).prop_map(|(bits, base, extra, up)| {
        let shift = bits + extra;
        Swizzle::new(bits, base, if up { shift } else { -shift }).unwrap()
    })
}

/// A swizzle around an offset and a layout.
pub(crate) fn composed(limit: i64) -> impl Strategy<Value = Composed> {
    (swizzles(), 0i64..64, layouts(limit))
        .prop_map(|(swizzle, offset, layout)| Composed::new(swizzle, offset, layout).unwrap())
}
