//! Text: what is printed reads back as the same value, and no text whatever panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

mod common;

use common::{composed, config, layouts, shapes, swizzles};
use proptest::prelude::*;
use tilewright_layout::expr::{self, FUNCTIONS, Value};
use tilewright_layout::{
    Composed, Coord, Index, IntTuple, Layout, LayoutError, Stride, StrideTuple, Swizzle, Tiler, Tree,
};

fn tilers() -> impl Strategy<Value = Tiler> {
    let leaf = prop_oneof![Just(Tiler::Keep), layouts(50).prop_map(Tiler::Layout)];
    leaf.prop_recursive(2, 6, 3, |inner| prop::collection::vec(inner, 1..=3).prop_map(Tiler::Modes))
}

fn coords() -> impl Strategy<Value = Coord> {
    let leaf = prop_oneof![Just(Index::All), any::<i64>().prop_map(Index::At)].prop_map(Tree::Leaf);
    leaf.prop_recursive(3, 8, 3, |inner| prop::collection::vec(inner, 0..=3).prop_map(Tree::Tuple))
}

/// Layouts whose strides are basis elements of distinct coordinates.
fn basis_layouts() -> impl Strategy<Value = Layout> {
    (shapes(100), any::<[bool; 16]>(), -5i64..50).prop_map(|(shape, nested, factor)| {
        let mut mode = 0;
        let stride: StrideTuple = shape.map(&mut |_| {
            mode += 1;
            let path: &[usize] = if nested[mode % 16] { &[mode, 1] } else { &[mode] };
            Stride::basis(factor, path).unwrap()
        });
        Layout::new(shape, stride).unwrap()
    })
}

/// A layout of coordinates, around an offset and a layout whose values are such coordinates.
fn composed_coordinates() -> impl Strategy<Value = String> {
    (shapes(60), -2i64..5).prop_map(|(shape, offset)| {
        let shape = Tree::Tuple(shape.into_modes());
        let outer = Layout::row_major(&shape).unwrap();
        let inner = Layout::identity(&shape).unwrap();
        format!("{outer} o {} o {inner}", shape.map(&mut |_| offset))
    })
}

/// Pieces of the notation in any order: far more often almost right than random characters are.
fn token_soup() -> impl Strategy<Value = String> {
    let names: Vec<String> = FUNCTIONS.iter().map(|f| f.name.to_string()).collect();
    let pieces = prop_oneof![
        Just("(".to_string()),
        Just(")".into()),
        Just(",".into()),
        Just(":".into()),
        Just("<".into()),
        Just(">".into()),
        Just("[".into()),
        Just("]".into()),
        Just(";".into()),
        Just("@".into()),
        Just("_".into()),
        Just(" o ".into()),
        Just("S<".into()),
        Just("S<3,4,3>".into()),
        Just("4:1".into()),
        Just("(4,3):(3,1)".into()),
        Just("(2,(3,4)):(1,(2,6))".into()),
        Just("?".into()),
        Just("-".into()),
        Just("9223372036854775807".into()),
        Just("-9223372036854775808".into()),
        Just("0".into()),
        Just("1@0".into()),
        Just("é".into()),
        any::<i8>().prop_map(|n| n.to_string()),
        prop::sample::select(names).prop_map(|name| format!("{name}(")),
    ];
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

/// Well-formed calls with arguments that may or may not fit.
fn calls() -> impl Strategy<Value = String> {
    let names: Vec<&str> = FUNCTIONS.iter().map(|f| f.name).collect();
    let argument = prop_oneof![
        layouts(200).prop_map(|v| v.to_string()),
        basis_layouts().prop_map(|v| v.to_string()),
        composed(200).prop_map(|v| v.to_string()),
        composed_coordinates(),
        tilers().prop_map(|v| v.to_string()),
        coords().prop_map(|v| v.to_string()),
        shapes(200).prop_map(|v| v.to_string()),
        (-2i64..20).prop_map(|v| v.to_string()),
        swizzles().prop_map(|v| v.to_string()),
    ];
    argument.prop_recursive(3, 12, 3, move |inner| {
        (prop::sample::select(names.clone()), prop::collection::vec(inner, 1..=3))
            .prop_map(|(name, arguments)| format!("{name}({})", arguments.join(", ")))
    })
}

/// Evaluates; a value must print as text that evaluates to itself, an error as one line.
fn survives(text: &str) -> Result<(), TestCaseError> {
    match expr::evaluate(text) {
        Ok(Value::Bool(_)) => {}
        // A thread-value layout prints as the layout alone.
        Ok(Value::Tv(tv)) => prop_assert!(expr::evaluate(&tv.to_string()).is_ok()),
        Ok(value) => prop_assert_eq!(expr::evaluate(&value.to_string()).unwrap(), value),
        Err(error) => {
            let line = error.to_string();
            prop_assert!(!line.is_empty() && !line.contains('\n'));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn layouts_round_trip(l in layouts(400)) {
        prop_assert_eq!(l.to_string().parse::<Layout>().unwrap(), l);
    }

    #[test]
    fn basis_layouts_round_trip(l in basis_layouts()) {
        prop_assert_eq!(l.to_string().parse::<Layout>().unwrap(), l);
    }

    #[test]
    fn shapes_round_trip(s in shapes(10_000)) {
        prop_assert_eq!(s.to_string().parse::<IntTuple>().unwrap(), s);
    }

    #[test]
    fn coordinates_round_trip(c in coords()) {
        prop_assert_eq!(c.to_string().parse::<Coord>().unwrap(), c);
    }

    #[test]
    fn tilers_round_trip(t in tilers()) {
        prop_assert_eq!(t.to_string().parse::<Tiler>().unwrap(), t);
    }

    #[test]
    fn swizzles_round_trip(s in swizzles()) {
        prop_assert_eq!(s.to_string().parse::<Swizzle>().unwrap(), s);
    }

    #[test]
    fn composed_layouts_round_trip(c in composed(200)) {
        prop_assert_eq!(c.to_string().parse::<Composed>().unwrap(), c);
    }

    #[test]
    fn no_token_soup_panics(text in token_soup()) {
        survives(&text)?;
    }

    #[test]
    fn no_string_panics(text in ".{0,60}") {
        survives(&text)?;
    }

    #[test]
    fn no_call_panics(text in calls()) {
        survives(&text)?;
    }
}

#[test]
fn white_space_is_free() -> Result<(), LayoutError> {
    let spaced = expr::evaluate(" compose ( ( 4 , 3 ) : ( 3 , 1 ) , 6 : 2 ) ")?;
    assert_eq!(spaced.to_string(), "(2,3):(6,1)");
    Ok(())
}

#[test]
fn errors_name_what_and_where() {
    let message = |text: &str| expr::evaluate(text).unwrap_err().to_string();
    assert_eq!(
        message("compose((4,3):(3,1), 6:2"),
        "cannot read `compose((4,3):(3,1), 6:2` at column 25: found the end, expected `,` or `)`"
    );
    assert_eq!(
        message("size((2,0):(1,2))"),
        "extent 0 in shape (2,0) is not positive; every extent must be at least 1"
    );
    assert_eq!(
        message("size((2,3):(1,2,4))"),
        "shape (2,3) and stride (1,2,4) are not congruent; both must be nested in the same way"
    );
    assert_eq!(
        message("eval((4,8):(1,4), (1,2,3))"),
        "eval: coordinate (1,2,3) has rank 3, expected 2 for shape (4,8), or an integer"
    );
    assert_eq!(
        message("compose((4,6,8):(2,3,5), 6:3)"),
        "compose: (4,6,8):(2,3,5) o 6:3 is not a layout: a step of 6 fits 2 times before it carries, and 3 is no multiple of that"
    );
    assert_eq!(
        message("compose((6,2):(1,7), (3,2):(2,3))"),
        "compose: (6,2):(1,7) o (3,2):(2,3) is not a layout: the modes of the inner layout reach 7 together in the mode 6:1, \
         and the carry into the next mode breaks linearity; at (2,1) the value is 8, not 7"
    );
    assert!(message("foo(4:1)").contains("unknown function `foo`"));
    assert!(message("eval(S<4,0,2>, 1)").contains("the masks overlap"));
    assert!(message("complement((2,4):(1,1))").contains("not injective"));
}

#[test]
fn nesting_is_limited() {
    let deep = |n: usize| format!("{}4{}", "(".repeat(n), ")".repeat(n));
    assert!(expr::evaluate(&deep(60)).is_ok());
    for n in [65, 100_000] {
        assert!(expr::evaluate(&deep(n)).unwrap_err().to_string().contains("nesting"));
    }
    assert!(expr::evaluate(&"size(".repeat(100_000)).is_err());
    assert!(expr::evaluate(&"<".repeat(100_000)).is_err());
}

/// Numbers next to the end of 64 bits: right, or an error that says why.
#[test]
fn numbers_at_the_edge_are_right_or_refused() {
    for (text, value) in [
        ("cosize((2):(9223372036854775805))", "9223372036854775806"),
        ("cosize((2):(9223372036854775806))", "9223372036854775807"),
        ("eval((2,2):(1,2), -9223372036854775808)", "-9223372036854775808"),
        ("eval(S<3,4,3>, 9223372036854775807)", "9223372036854775695"),
        ("complement(4:2305843009213693951, 2)", "2305843009213693951:1"),
        ("right_inverse((2147483648,4294967295):(1,2147483648))", "9223372034707292160:1"),
    ] {
        assert_eq!(expr::evaluate(text).map(|found| found.to_string()).as_deref(), Ok(value), "{text}");
    }
    for (text, reason) in [
        ("cosize((2):(9223372036854775807))", "64 bits"),
        ("cosize((2,2):(4611686018427387903,4611686018427387904))", "64 bits"),
        ("eval((4,4):(1,4611686018427387904), 1000000)", "64 bits"),
        ("eval(2:3, -9223372036854775808)", "64 bits"),
        ("eval(2:3, 9223372036854775807)", "64 bits"),
        ("eval(S<3,4,3>, -1)", "negative"),
        ("size((3037000500,3037000500,2):(0,0,0))", "64 bits"),
        ("compose(4:4611686018427387904, 4:4)", "64 bits"),
        ("compose(2:4611686018427387904, 4:1)", "64 bits"),
        ("compose((2,2):(1,4611686018427387904), 4:4611686018427387904)", "64 bits"),
        ("complement(4:1, 9223372036854775807)", "64 bits"),
        ("logical_product(4:1, 4611686018427387904:1)", "64 bits"),
        ("downcast(4611686018427387904:1, 4)", "64 bits"),
        ("upcast(4:1, 0)", "the factor is 0"),
        ("banks(1000000000:1, 4)", "too many"),
        ("banks(32:1, 3)", "3 bytes"),
        ("banks(32:1, 16, 2)", "multiple of 16"),
        ("compose((2,2):(1,3), (9223372036854775807):(1))", "carries"),
        ("tile_to_shape(4:1, 9223372036854775807)", "64 bits"),
    ] {
        let error = expr::evaluate(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}
