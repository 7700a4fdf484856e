//! Every vector in `tests/data/*.txt`, as text or as function. The files say where the vectors come from.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::path::Path;

use tilewright_layout::{LayoutError, expr};

/// One line of a data file.
struct Vector<'a> {
    expression: &'a str,
    /// Equal as text, or only as a function.
    exact: bool,
    expected: &'a str,
}

fn vectors(text: &str) -> Vec<Vector<'_>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let vector = |line: &'static str| -> Vector<'static> {
        for (arrow, exact) in [(" => ", true), (" ~> ", false)] {
            if let Some((expression, expected)) = line.rsplit_once(arrow) {
                return Vector { expression, exact, expected };
            }
        }
        panic!("no arrow in {line:?}")
    };
    lines.map(|line| vector(Box::leak(line.to_string().into_boxed_str()))).collect()
}

fn check(vector: &Vector<'_>) -> Result<(), String> {
    let Vector { expression, exact, expected } = vector;
    match expr::evaluate(expression) {
        Err(_) if *expected == "error" => Ok(()),
        Err(error) => Err(format!("{expression}: expected {expected}, found {error}")),
        Ok(value) if *exact && value.to_string() == *expected => Ok(()),
        Ok(value) if !exact && same(&value.to_string(), expected) == Ok(true) => Ok(()),
        Ok(value) => Err(format!("{expression}: expected {expected}, found {value}")),
    }
}

fn same(a: &str, b: &str) -> Result<bool, LayoutError> {
    expr::evaluate(&format!("same({a}, {b})")).map(|value| value.to_string() == "true")
}

fn run(file: &str, least: usize) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let vectors = vectors(&text);
    assert!(vectors.len() >= least, "{file} has only {} vectors", vectors.len());
    let failures: Vec<String> = vectors.iter().filter_map(|vector| check(vector).err()).collect();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), vectors.len(), failures.join("\n"));
}

#[test]
fn pycute() {
    run("pycute.txt", 84);
}

#[test]
fn cute() {
    run("cute.txt", 110);
}

/// pycute's integer-tuple vectors.
#[test]
fn int_tuples() -> Result<(), LayoutError> {
    use tilewright_layout::IntTuple;
    let t = |text: &str| text.parse::<IntTuple>();
    for (tuple, product) in [("2", 2), ("(3,2)", 6), ("((2,3),4)", 24)] {
        assert_eq!(t(tuple)?.product()?, product);
    }
    for (a, b, product) in [("2", "3", 6), ("(1,2)", "(3,2)", 7), ("((2,3),4)", "((2,1),2)", 15)] {
        assert_eq!(t(a)?.inner_product(&t(b)?)?, product);
    }
    for (shape, divisor, quotient) in [
        ("(3,4)", 6, "(1,2)"),
        ("(3,4)", 12, "(1,1)"),
        ("(3,4)", 36, "(1,1)"),
        ("((3,4),6)", 36, "((1,1),2)"),
        ("(6,(3,4))", 36, "(1,(1,2))"),
    ] {
        assert_eq!(t(shape)?.shape_div(divisor)?, t(quotient)?, "{shape} / {divisor}");
    }
    for (shape, strides) in [
        ("2", "1"),
        ("(3,2)", "(1,3)"),
        ("(3,2,4)", "(1,3,6)"),
        ("((2,3),4)", "((1,2),6)"),
        ("((2,3),(2,1,2),(5,2,1))", "((1,2),(6,12,12),(24,120,240))"),
    ] {
        assert_eq!(t(shape)?.prefix_product()?, t(strides)?);
    }
    Ok(())
}
