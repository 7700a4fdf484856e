//! Which places a region carries.

use super::{carried, refused};

/// The places carried by an `if` around `body`, with `let mut` for `x`, `y` and plain `p`, `q` in scope.
#[track_caller]
fn carries(body: &str, expected: &[&str]) {
    let function = format!("fn f(mut x: A, mut y: A, p: A, q: A) {{ if q {{ {body} }} }}");
    assert_eq!(carried(&function), expected, "{body}");
}

#[test]
fn every_way_to_assign_counts() {
    carries("x = 1;", &["x"]);
    carries("x += 1; x <<= 2;", &["x"]);
    carries("x.field.0 = 1;", &["x"]);
    carries("x[0].f[1] -= 1;", &["x"]);
    carries("g(&mut x);", &["x"]);
    carries("g(&mut x.field);", &["x"]);
    carries("g(&raw mut x);", &["x"]);
    carries("let ref mut z = x;", &["x"]);
    carries("match x { S { ref mut f } => {} }", &["x"]);
    carries("if let Some(ref mut z) = y {}", &["y"]);
    carries("g({ (x) = 1 });", &["x"]);
    carries("*x.first_mut() = 1;", &["x"]);
    carries("#[host] { x = 1; }", &["x"]);
    carries("#[host] { g(|| x = 1); }", &["x"]);
}

#[test]
fn destructuring_assigns_each_place() {
    carries("(x, y) = g();", &["x", "y"]);
    carries("[y, .., x] = g();", &["y", "x"]);
    carries("S { a: x, b: (y, _), .. } = g();", &["x", "y"]);
    carries("Some(x.0) = g();", &["x"]);
    carries("(_, ..) = g(x);", &[]);
}

#[test]
fn a_reference_that_is_passed_on_lends_what_it_points_at() {
    for body in ["g(z)", "x.method(0, z)", "g(1, h(z))"] {
        let function = format!("fn f(x: A, q: A, z: &mut A) {{ if q {{ {body}; }} }}");
        assert_eq!(carried(&function), ["*z"], "{body}");
    }
    assert_eq!(carried("fn f(q: A) { let z = &mut g(); if q { h(z); } }"), ["*z"]);
    // Not a `&mut` reference, not the reference itself, and not outside of the region.
    carries("g(x, p);", &[]);
    assert_eq!(carried("fn f(q: A, z: &mut A) { if q { g(z.0); } }"), [""; 0]);
    assert_eq!(carried("fn f(q: A) { if q { let z = &mut g(); h(z); } }"), [""; 0]);
}

#[test]
fn reading_does_not_count() {
    carries("g(x, &y, x.f, y[0], x == y);", &[]);
    carries("x.len(); y.iter().rev(); x.f.clone(); p.method(); p.f.method();", &[]);
}

#[test]
fn a_method_may_change_what_is_mutable() {
    carries("x.advance();", &["x"]);
    carries("y.ring[0].advance().twice();", &["y"]);
    carries("#[host] for v in x.iter_mut() { *v = 1; }", &["x"]);
    assert_eq!(carried("fn f(p: &mut A, q: A) { if q { p.advance(); } }"), ["*p"]);
    assert_eq!(carried("fn f(&mut self, q: A) { if q { self.advance(); } }"), ["*self"]);
    assert_eq!(carried("fn f(&self, q: A) { if q { self.read(); } }"), [""; 0]);
    assert_eq!(carried("fn f(q: A) { let p = &mut g(); if q { p.advance(); } }"), ["*p"]);
    assert_eq!(carried("fn f(q: A) { let mut p: &mut A = g(); if q { p.f = 1; } }"), ["*p"]);
    // Inside a closure it is taken for a read, which is what it mostly is.
    assert_eq!(refused("g(|| x.abs());"), []);
    assert_eq!(refused("g(|| *x.first_mut() = 1);").len(), 1);
}

#[test]
fn the_order_is_that_of_first_assignment() {
    carries("y = 1; x = 1; y = 2;", &["y", "x"]);
    carries("x = { y = 1; 2 };", &["y", "x"]);
}

#[test]
fn what_a_reference_points_at_is_carried() {
    carries("*p = 1;", &["*p"]);
    carries("**p = 1;", &["**p"]);
    carries("p.f = 1;", &["*p"]);
    carries("p[0] = 1;", &["*p"]);
    carries("(*p).f = 1;", &["*p"]);
    carries("*x = 1;", &["*x"]);
    carries("*p.handle() = 1;", &[]);
}

#[test]
fn a_receiver_is_carried_as_what_it_is() {
    assert_eq!(carried("fn f(&mut self, q: A) { if q { self.at = 1; } }"), ["*self"]);
    assert_eq!(carried("fn f(mut self, q: A) { if q { self.at = 1; } }"), ["self"]);
}

#[test]
fn inner_variables_are_not_carried() {
    carries("let mut z = 1; z = 2;", &[]);
    carries("let mut x = 1; x = 2;", &[]);
    carries("let (mut x, S { f: mut y, .. }) = g(); x = 2; y = 3;", &[]);
    carries("match g() { Some(mut x) => x = 1, mut y if y.is() => y = 2, _ => {} }", &[]);
    carries("if let [mut x, ..] = g() { x = 1; }", &[]);
    carries("while let mut x @ Some(_) = g() { x = 1; }", &[]);
    carries("g(|mut x: A| { x = 1; });", &[]);
    carries("#[host] for mut x in g() { x = 1; }", &[]);
    carries("fn inner(mut z: A) { let mut x = 1; x = 2; }", &[]);
}

#[test]
fn shadowing_ends_with_its_block() {
    carries("{ let mut x = 1; x = 2; } x = 3;", &["x"]);
    carries("let mut x = { x = 1; 2 }; x = 3;", &["x"]);
    carries("if let Some(mut x) = g() { x = 1; } else { x = 2; }", &["x"]);
    carries("let Some(mut x) = g() else { x = 1; panic!() }; x = 2;", &["x"]);
}

#[test]
fn names_that_are_not_variables_are_ignored() {
    carries("STATIC = 1; module::NAME = 2; g().f = 3;", &[]);
}

#[test]
fn loops_carry_what_condition_and_body_assign_but_not_what_their_head_does() {
    assert_eq!(carried("fn f(mut x: A, mut y: A) { while { x += 1; x } { y = x; } }"), ["x", "y"]);
    assert_eq!(carried("fn f(mut x: A, mut y: A) { for i in { x = 1; x } { y = i; } }"), ["y"]);
    assert_eq!(carried("fn f(mut x: A, mut y: A) { for x in y { x.f = 1; } }"), [""; 0]);
}

#[test]
fn a_region_in_a_closure_carries_the_variables_of_the_closure() {
    assert_eq!(carried("fn f(n: A) { g(|mut x| { for i in n { x = i; } x }); }"), ["x"]);
    assert_eq!(carried("fn f(n: A) { g(|| { let mut x = 1; for i in n { x = i; } x }); }"), ["x"]);
}

#[test]
fn a_variable_may_get_its_first_value_later_but_not_in_a_region() {
    assert_eq!(carried("fn f(q: A) { let mut z; z = 1; if q { z = 2; } }"), ["z"]);
    assert_eq!(carried("fn f(q: A) { if q { let z; z = 2; } }"), [""; 0]);
    let found = refused("let z; if n { z = 1; } else { z = 2; }");
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].0, "z");
    assert!(found[0].1.starts_with("this variable has no value before the staged region"));
}
