//! The laws of the algebra, by enumeration: over the vectors in `tests/data`, and over random layouts with stride 0, extents
//! of 1, non-powers of two and deep nesting.
//!
//! The laws are those that CuTe's C++ and CuTe IR suites check (coalesce, composition, complement, inverses, divides,
//! products, nullspace, distribute, swizzled slices), plus a complete oracle for when a composition exists.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

mod common;

use std::collections::BTreeSet;

use common::{composed, config, layouts, ordered_layouts, shapes};
use proptest::prelude::*;
use tilewright_layout::analysis::{is_injective, max_vector_width, same_function};
use tilewright_layout::{Coord, Index, IntTuple, Layout, LayoutError, TiledCopy, Tiler, Tree};

fn values(layout: &Layout) -> Vec<i64> {
    (0..layout.size()).map(|i| layout.at(i).unwrap()).collect()
}

fn set(layout: &Layout) -> BTreeSet<i64> {
    values(layout).into_iter().collect()
}

/// Whether the function `f` on `0..n` is a layout: tries every way to split `n`, not the longest run only.
fn is_layout(f: &[i64]) -> bool {
    let n = f.len();
    n == 1
        || (2..=n).filter(|m| n.is_multiple_of(*m)).any(|m| {
            let linear = (0..m).all(|k| f[k] == f[1] * i64::try_from(k).unwrap());
            let splits = (0..n).all(|k| f[k] == f[k % m] + f[k - k % m]);
            linear && splits && is_layout(&f.iter().copied().step_by(m).collect::<Vec<_>>())
        })
}

/// Whether `A o B` is a layout with the profile of `B`: a sum of one layout for each mode of `B`.
fn composition_exists(a: &Layout, b: &Layout) -> bool {
    let through = |i: i64| a.at(b.at(i).unwrap()).unwrap();
    let mut index = 1;
    let mut parts: Vec<Vec<i64>> = Vec::new();
    for extent in b.shape().leaves() {
        parts.push((0..*extent).map(|k| through(k * index)).collect());
        index *= extent;
    }
    let separable = (0..b.size()).all(|i| {
        let mut rest = i;
        let sum: i64 = parts
            .iter()
            .map(|part| {
                let n = i64::try_from(part.len()).unwrap();
                let value = part[usize::try_from(rest % n).unwrap()];
                rest /= n;
                value
            })
            .sum();
        sum == through(i)
    });
    separable && parts.iter().all(|part| is_layout(part))
}

type Law = Result<(), TestCaseError>;

/// Depth at most 1, same size, same function, and nothing left to merge.
fn coalesce_law(l: &Layout) -> Law {
    let c = l.coalesce();
    prop_assert!(c.depth() <= 1);
    prop_assert_eq!(values(&c), values(l));
    prop_assert_eq!(c.coalesce(), c);
    Ok(())
}

/// `R(c) == A(B(c))` on all of `B`'s domain with a compatible shape; refused only where no such layout exists.
fn compose_law(a: &Layout, b: &Layout) -> Law {
    match a.compose(b) {
        Ok(r) => {
            prop_assert!(b.shape().compatible(&r.shape()), "{} o {} = {}", a, b, r);
            for i in 0..b.size() {
                prop_assert_eq!(r.at(i).unwrap(), a.at(b.at(i).unwrap()).unwrap(), "{} o {} = {}", a, b, r);
            }
        }
        Err(error) => prop_assert!(!composition_exists(a, b), "{}", error),
    }
    Ok(())
}

/// Increasing, disjoint from `L` but for 0, large enough, not larger than whole copies of `L` need, and nothing is left
/// for a complement of both; complementing twice more gives the same, where more than one copy is left.
fn complement_law(l: &Layout, target: i64) -> Law {
    let r = l.complement_in(target).unwrap();
    let both = Layout::tuple([l.clone(), r.clone()]).unwrap();
    prop_assert!(both.cosize().unwrap() >= target, "{} in {} = {}", l, target, r);
    // Where the copies repeat: the end of the last mode, which may lie past the last value.
    let ends = l.tree().leaves().filter(|m| m.extent > 1).map(|m| m.extent * m.stride.value());
    let block = ends.max().unwrap_or(1).max(l.cosize().unwrap());
    prop_assert!(r.cosize().unwrap() <= (target + block - 1) / block * block);
    prop_assert!(values(&r).windows(2).all(|pair| pair[0] < pair[1]));
    prop_assert_eq!(set(l).intersection(&set(&r)).copied().collect::<Vec<_>>(), vec![0]);
    prop_assert!(r.size() >= target / l.filter().size());
    prop_assert_eq!(both.complement().unwrap().size(), 1, "{} in {} = {}", l, target, r);
    if r.size() > 1 {
        let twice = r.complement_in(l.cosize().unwrap()).unwrap().complement_in(target).unwrap();
        prop_assert_eq!(twice, r, "of {} in {}", l, target);
    }
    Ok(())
}

/// `L(R(i)) == i` on all of `R`.
fn right_inverse_law(l: &Layout) -> Law {
    let inverse = l.right_inverse().unwrap();
    for i in 0..inverse.size() {
        prop_assert_eq!(l.at(inverse.at(i).unwrap()).unwrap(), i, "{} of {}", inverse, l);
    }
    Ok(())
}

/// `L(R(L(i))) == L(i)`, and `R(L(i)) == i` for injective layouts.
fn left_inverse_law(l: &Layout) -> Law {
    let Ok(inverse) = l.left_inverse() else { return Ok(()) };
    let injective = is_injective(l).unwrap();
    for i in 0..l.size() {
        let back = inverse.at(l.at(i).unwrap()).unwrap();
        prop_assert_eq!(l.at(back).unwrap(), l.at(i).unwrap(), "{} of {}", inverse, l);
        prop_assert!(!injective || back == i);
    }
    Ok(())
}

/// Rank 2, `R(i,0) == A(B(i))`, and every element of `A` appears where tile and rest fill the domain.
fn divide_law(a: &Layout, b: &Layout) -> Law {
    let Ok(r) = a.logical_divide(&Tiler::from(b)) else { return Ok(()) };
    prop_assert_eq!(r.rank(), 2);
    let tile = r.mode(0).unwrap();
    prop_assert!(b.shape().compatible(&tile.shape()));
    for i in 0..b.size() {
        prop_assert_eq!(tile.at(i).unwrap(), a.at(b.at(i).unwrap()).unwrap());
    }
    let both = Layout::tuple([b.clone(), b.complement_in(a.coalesce().shape()).unwrap()]).unwrap();
    let reached = set(&both);
    if (0..a.size()).all(|i| reached.contains(&i)) {
        prop_assert!(set(a).is_subset(&set(&r)));
    }
    Ok(())
}

/// Rank 2, the block first, copies of the tiler's shape, all disjoint.
fn product_law(a: &Layout, b: &Layout) -> Law {
    let Ok(r) = a.logical_product(&Tiler::from(b)) else { return Ok(()) };
    prop_assert_eq!(r.rank(), 2);
    prop_assert_eq!(r.mode(0).unwrap(), a.clone());
    let copies = r.mode(1).unwrap();
    prop_assert!(b.shape().compatible(&copies.shape()));
    prop_assert_eq!(set(&copies).len(), set(b).len());
    prop_assert_eq!(set(&r).len(), set(a).len() * set(b).len());
    if a.depth() > 0 && b.depth() > 0 {
        prop_assert_eq!(set(&a.blocked_product(b).unwrap()), set(&r));
        prop_assert_eq!(set(&a.raked_product(b).unwrap()), set(&r));
    }
    Ok(())
}

/// `L(K(i)) == 0`, and the size is what `filter` removes.
fn nullspace_law(l: &Layout) -> Law {
    let k = l.nullspace().unwrap();
    prop_assert!(values(&k).into_iter().all(|i| l.at(i).unwrap() == 0));
    prop_assert_eq!(k.size() * l.filter().size(), l.size());
    Ok(())
}

/// Evenly divides the domain, strictly increasing.
fn distribute_law(l: &Layout, n: i64) -> Law {
    let d = l.distribute(n).unwrap();
    prop_assert!(d.size() <= n && n % d.size() == 0 && l.size() % d.size() == 0);
    prop_assert!(values(&d).windows(2).all(|pair| pair[0] < pair[1]));
    prop_assert!(d.cosize().unwrap() <= l.size());
    Ok(())
}

/// The arguments of a call in a data file, where all of them are plain layouts of moderate size.
fn plain_arguments(call: &str) -> Option<(&str, Vec<Layout>)> {
    let (name, rest) = call.split_once('(')?;
    let (mut depth, mut pieces) = (0, vec![String::new()]);
    for c in rest.strip_suffix(')')?.chars() {
        match c {
            '(' | '<' => depth += 1,
            ')' | '>' => depth -= 1,
            _ => {}
        }
        if c == ',' && depth == 0 { pieces.push(String::new()) } else { pieces.last_mut()?.push(c) }
    }
    let layouts: Vec<Layout> = pieces.iter().map(|piece| piece.trim().parse().ok()).collect::<Option<_>>()?;
    let plain = |l: &Layout| {
        let forward = l.tree().leaves().all(|mode| mode.stride.value() >= 0);
        l.is_integral() && forward && l.size() <= 1 << 15
    };
    layouts.iter().all(plain).then_some((name, layouts))
}

#[test]
fn laws_hold_on_the_vectors() {
    let mut checked = 0;
    for data in [include_str!("data/pycute.txt"), include_str!("data/cute.txt")] {
        for line in data.lines().filter(|line| !line.starts_with('#')) {
            let Some((call, _)) = line.split_once(" => ").or_else(|| line.split_once(" ~> ")) else {
                continue;
            };
            let Some((name, arguments)) = plain_arguments(call) else { continue };
            let law = match (name, &arguments[..]) {
                ("coalesce", [l]) => coalesce_law(l),
                ("complement", [l]) if l.complement().is_ok() => complement_law(l, 1),
                ("left_inverse", [l]) => left_inverse_law(l),
                ("right_inverse", [l]) => right_inverse_law(l),
                ("compose", [a, b]) => compose_law(a, b),
                ("logical_divide", [a, b]) => divide_law(a, b),
                ("logical_product", [a, b]) => product_law(a, b),
                _ => continue,
            };
            // Laws of a single layout hold for every argument, whatever the vector is about.
            let general = arguments.iter().try_for_each(|l| {
                coalesce_law(l)?;
                right_inverse_law(l)?;
                left_inverse_law(l)?;
                nullspace_law(l)?;
                distribute_law(l, 6)
            });
            law.and(general).unwrap_or_else(|error| panic!("{line}: {error}"));
            checked += 1;
        }
    }
    assert!(checked >= 100, "only {checked} vectors checked");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn coalesce_keeps_the_function(l in layouts(400)) {
        coalesce_law(&l)?;
    }

    #[test]
    fn coalesce_by_profile_keeps_modes(l in layouts(400)) {
        let profile = Tree::Tuple(vec![Tree::Leaf(1); l.rank()]);
        let c = l.coalesce_by(&profile).unwrap();
        prop_assert_eq!(c.rank(), l.rank());
        for (a, b) in c.modes().zip(l.modes()) {
            prop_assert_eq!(a.size(), b.size());
        }
        prop_assert_eq!(values(&c), values(&l));
    }

    #[test]
    fn every_coordinate_form_gives_the_same_value(l in layouts(400)) {
        for i in 0..l.size() {
            let nested = l.eval(&Coord::from(l.shape().coordinate(i))).unwrap();
            prop_assert_eq!(nested, Tree::Leaf(l.at(i).unwrap()));
        }
        prop_assert_eq!(l.flatten().coalesce(), l.coalesce());
        prop_assert_eq!(l.cosize().unwrap(), 1 + values(&l).into_iter().max().unwrap());
    }

    #[test]
    fn composition_is_right_and_complete(a in layouts(200), b in layouts(100)) {
        compose_law(&a, &b)?;
    }

    #[test]
    fn composition_with_nested_tiles_is_right_and_complete(a in ordered_layouts(400), b in ordered_layouts(100)) {
        compose_law(&a, &b)?;
    }

    #[test]
    fn complement_fills_the_rest(l in ordered_layouts(200), target in 1i64..300) {
        complement_law(&l, target)?;
    }

    #[test]
    fn complement_refuses_what_is_not_injective(l in layouts(200)) {
        if !is_injective(&l.filter()).unwrap() {
            prop_assert!(matches!(l.complement(), Err(LayoutError::Complement { .. })), "{}", l);
        }
    }

    #[test]
    fn right_inverse_undoes_from_the_right(l in layouts(400)) {
        right_inverse_law(&l)?;
    }

    #[test]
    fn left_inverse_undoes_from_the_left(l in layouts(400)) {
        left_inverse_law(&l)?;
    }

    #[test]
    fn left_inverse_exists_for_nested_modes(l in ordered_layouts(400)) {
        prop_assert!(l.left_inverse().is_ok(), "{}", l);
        left_inverse_law(&l)?;
    }

    #[test]
    fn compact_layouts_are_inverted_wholly(shape in shapes(200)) {
        for l in [Layout::column_major(&shape).unwrap(), Layout::row_major(&shape).unwrap()] {
            prop_assert_eq!(l.right_inverse().unwrap().size(), l.size());
            prop_assert!(same_function(&l.left_inverse().unwrap(), &l.right_inverse().unwrap()).unwrap());
        }
    }

    #[test]
    fn divide_gives_tiles_and_all_elements(a in layouts(200), b in ordered_layouts(24)) {
        divide_law(&a, &b)?;
    }

    #[test]
    fn product_repeats_the_block(a in ordered_layouts(60), b in layouts(40)) {
        product_law(&a, &b)?;
    }

    #[test]
    fn nullspace_maps_to_zero(l in layouts(400)) {
        nullspace_law(&l)?;
    }

    #[test]
    fn distribute_divides_the_domain(l in layouts(400), n in 1i64..40) {
        distribute_law(&l, n)?;
    }

    #[test]
    fn divides_by_mode_agree(a in layouts(300), m in 1i64..5, n in 1i64..5) {
        let tiler = Tiler::shape(Tree::Tuple([m, n].into_iter().take(a.rank()).map(Tree::Leaf).collect())).unwrap();
        let Ok(logical) = a.logical_divide(&tiler) else { return Ok(()) };
        let zipped = a.zipped_divide(&tiler).unwrap();
        prop_assert_eq!(zipped.rank(), 2);
        prop_assert_eq!(zipped.size(), logical.size());
        prop_assert_eq!(set(&zipped), set(&logical));
        prop_assert_eq!(values(&a.tiled_divide(&tiler).unwrap()), values(&zipped));
        prop_assert_eq!(values(&a.flat_divide(&tiler).unwrap()), values(&zipped));
    }

    #[test]
    fn recast_there_and_back(l in ordered_layouts(200), n in prop_oneof![Just(2i64), Just(4), Just(3)]) {
        if let Ok(down) = l.downcast(n) {
            prop_assert_eq!(down.size(), l.size() * n);
            prop_assert_eq!(set(&down), set(&l).into_iter().flat_map(|v| v * n..(v + 1) * n).collect::<BTreeSet<_>>());
            prop_assert!(same_function(&down.upcast(n).unwrap(), &l).unwrap());
        }
    }

    #[test]
    fn slices_and_dices_make_the_whole(l in layouts(400), keep in any::<[bool; 3]>()) {
        let index = |i: usize, at: i64| if keep[i % 3] { Index::All } else { Index::At(at) };
        let extents: Vec<i64> = l.modes().map(|m| m.size()).collect();
        let coord: Coord = match l.depth() {
            0 => Tree::Leaf(index(0, extents[0] - 1)),
            _ => Tree::Tuple(extents.iter().enumerate().map(|(i, e)| Tree::Leaf(index(i, e - 1))).collect()),
        };
        let (slice, offset) = l.slice_and_offset(&coord).unwrap();
        prop_assert_eq!(slice.size() * l.dice(&coord).unwrap().size(), l.size());
        let Tree::Leaf(offset) = offset else { panic!("integer layout") };
        let expected: Vec<i64> = (0..l.size())
            .filter(|i| {
                let mut rest = *i;
                extents.iter().enumerate().all(|(mode, e)| {
                    let at = rest % e;
                    rest /= e;
                    keep[mode % 3] || at == e - 1
                })
            })
            .map(|i| l.at(i).unwrap() - offset)
            .collect();
        prop_assert_eq!(values(&slice), expected);
    }

    #[test]
    fn slicing_a_swizzled_layout_equals_indexing_it(c in composed(200)) {
        let layout = c.layout().unwrap().clone();
        let Tree::Tuple(modes) = layout.shape() else { return Ok(()) };
        let first = modes[0].product().unwrap();
        for at in 0..first {
            let mut coord = vec![Tree::Leaf(Index::All); modes.len()];
            coord[0] = Tree::Leaf(Index::At(at));
            let slice = c.slice(&Tree::Tuple(coord)).unwrap();
            for rest in 0..slice.size().unwrap() {
                prop_assert_eq!(slice.at(rest).unwrap(), c.at(at + first * rest).unwrap());
            }
        }
    }

    #[test]
    fn swizzles_are_involutions(c in composed(100)) {
        let sw = match c.outer().next().unwrap().0 {
            tilewright_layout::Map::Swizzle(sw) => *sw,
            tilewright_layout::Map::Layout(_) => unreachable!(),
        };
        for v in 0..2048 {
            prop_assert_eq!(sw.apply(sw.apply(v).unwrap()).unwrap(), v);
        }
        for end in [1i64, 7, 8, 64, 96, 1024] {
            let closed = (0..end).all(|v| sw.apply(v).unwrap() < end);
            prop_assert!(!sw.permutes_below(end) || closed, "{} below {}", sw, end);
        }
        let swizzled = tilewright_layout::Composed::new(sw, 0, c.layout().unwrap().clone()).unwrap();
        if let Ok(inverse) = swizzled.left_inverse() {
            for i in 0..swizzled.size().unwrap() {
                let value = swizzled.at(i).unwrap();
                prop_assert_eq!(swizzled.at(inverse.at(value).unwrap()).unwrap(), value);
            }
        }
    }

    #[test]
    fn tiled_copies_own_every_element_once(
        tm in 1i64..5, tn in 1i64..5, vm in 1i64..4, vn in 1i64..4, row_major in any::<[bool; 2]>()
    ) {
        let grid = |m: i64, n: i64, row: bool| if row { Layout::row_major((m, n)) } else { Layout::column_major((m, n)) };
        let (threads, per_thread) = (grid(tm, tn, row_major[0]).unwrap(), grid(vm, vn, row_major[1]).unwrap());
        let copy = TiledCopy::new(&threads, &per_thread, 1).unwrap();
        let tv = copy.tv();
        prop_assert_eq!(tv.tile(), &IntTuple::from((tm * vm, tn * vn)));
        prop_assert!(tv.is_partition().unwrap());
        for thread in 0..tv.threads() {
            for value in 0..tv.values() {
                let at = tv.coordinate(thread, value).unwrap();
                prop_assert_eq!(tv.owner(&at).unwrap(), Some((thread, value)));
            }
        }
        let memory = Layout::row_major(tv.tile()).unwrap();
        let partitioned = tv.partition(&memory).unwrap();
        prop_assert_eq!(set(&partitioned).len() as i64, memory.size());
    }

    #[test]
    fn vector_width_is_exact(l in layouts(200)) {
        let width = max_vector_width(&l, 16).unwrap();
        let fits = |w: i64| l.size() % w == 0 && (0..l.size()).all(|i| {
            let first = l.at(i - i % w).unwrap();
            first % w == 0 && l.at(i).unwrap() == first + i % w
        });
        prop_assert!(fits(width) && (width == 16 || !fits(width * 2)));
    }
}
