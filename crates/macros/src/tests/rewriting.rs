//! Control flow, operators and ranges.

use super::{becomes, located, rewritten, stays};

#[test]
fn an_if_without_else_has_one_arm() {
    becomes(
        "if c { g(); }",
        "{ let mut __s = t::stage::branch(c);
           while let Some(__arm) = __s.arm() { let __value_of_if = if __arm { g(); }; __s.put(__value_of_if); }
           __s.finish() }",
    );
}

#[test]
fn an_if_carries_what_its_arms_assign_in_order_of_first_assignment() {
    becomes(
        "let z = if c { y = a; 1 } else { x = y; y = b; 2 };",
        "let z = { let mut __s = t::stage::branch(c);
           __s.save(&y); __s.save(&x);
           while let Some(__arm) = __s.arm() {
             let __value_of_if = if __arm { y = a; 1 } else { x = y; y = b; 2 };
             __s.put(__value_of_if);
             __s.leave(&mut y); __s.leave(&mut x);
           }
           __s.join(&mut y); __s.join(&mut x);
           __s.finish() };",
    );
}

#[test]
fn else_if_is_an_if_in_the_other_arm() {
    becomes(
        "if a { g() } else if b { x = n } else { h() }",
        "{ let mut __s = t::stage::branch(a);
           __s.save(&x);
           while let Some(__arm) = __s.arm() {
             let __value_of_if = if __arm { g() } else {
               let mut __s = t::stage::branch(b);
               __s.save(&x);
               while let Some(__arm) = __s.arm() {
                 let __value_of_if = if __arm { x = n } else { h() };
                 __s.put(__value_of_if);
                 __s.leave(&mut x);
               }
               __s.join(&mut x);
               __s.finish()
             };
             __s.put(__value_of_if);
             __s.leave(&mut x);
           }
           __s.join(&mut x);
           __s.finish() }",
    );
}

#[test]
fn a_while_asks_for_the_type_of_its_condition_first() {
    becomes(
        "while x < n { x += a; }",
        "{ let mut __s = t::stage::looping(t::stage::type_of(|| t::stage::lt(&x, &n)));
           __s.enter(&mut x);
           while __s.next() {
             let __c = t::stage::lt(&x, &n);
             __s.hold(&mut x);
             if !__s.test(__c) { break; }
             __s.pass(&mut x);
             { x += a; }
             __s.leave(&mut x);
           }
           __s.join(&mut x); }",
    );
}

#[test]
fn a_for_binds_its_pattern_inside() {
    becomes(
        "for (i, _) in a..n { x += i; }",
        "{ let mut __s = t::stage::each(t::stage::range(a, n));
           __s.enter(&mut x);
           while let Some(__i) = __s.next() {
             let (i, _) = __i;
             { x += i; }
             __s.leave(&mut x);
           }
           __s.join(&mut x); }",
    );
}

#[test]
fn regions_nest() {
    becomes(
        "for k in 0..n { if k { x = k; } }",
        "{ let mut __s = t::stage::each(t::stage::range(0, n));
           __s.enter(&mut x);
           while let Some(__i) = __s.next() {
             let k = __i;
             { { let mut __s = t::stage::branch(k);
                 __s.save(&x);
                 while let Some(__arm) = __s.arm() {
                   let __value_of_if = if __arm { x = k; };
                   __s.put(__value_of_if);
                   __s.leave(&mut x);
                 }
                 __s.join(&mut x);
                 __s.finish() } }
             __s.leave(&mut x);
           }
           __s.join(&mut x); }",
    );
}

#[test]
fn attributes_stay_on_what_replaces_the_statement() {
    becomes(
        "#[allow(unused)] for i in a {}",
        "#[allow(unused)] { let mut __s = t::stage::each(a);
           while let Some(__i) = __s.next() { let i = __i; {} } }",
    );
}

#[test]
fn labels_of_staged_loops_go_as_nothing_may_use_them() {
    becomes(
        "'outer: for i in a {}",
        "{ let mut __s = t::stage::each(a); while let Some(__i) = __s.next() { let i = __i; {} } }",
    );
}

#[test]
fn comparisons_borrow_their_operands() {
    for (operator, method) in
        [("<", "lt"), ("<=", "le"), (">", "gt"), (">=", "ge"), ("==", "eq"), ("!=", "ne")]
    {
        becomes(&format!("g(a {operator} b)"), &format!("g(t::stage::{method}(&a, &b))"));
    }
}

#[test]
fn operands_get_parentheses_where_a_borrow_needs_them() {
    becomes("g(a + 1 < b * 2)", "g(t::stage::lt(&(a + 1), &(b * 2)))");
    becomes("g((a + 1) < -b)", "g(t::stage::lt(&(a + 1), &(-b)))");
    becomes("g(*a == (b as u8))", "g(t::stage::eq(&*a, &(b as u8)))");
    becomes("g(a.len() == v[0].0)", "g(t::stage::eq(&a.len(), &v[0].0))");
    becomes("g((a < b) == c)", "g(t::stage::eq(&t::stage::lt(&a, &b), &c))");
}

#[test]
fn logic_defers_its_right_side_and_drops_needless_parentheses() {
    becomes(
        "g((a < b) && (b == c) || !c)",
        "g(t::stage::or(
            t::stage::and(t::stage::lt(&a, &b), || t::stage::eq(&b, &c)),
            || !c))",
    );
}

#[test]
fn literals_stay() {
    stays("g(1 < 2, -1 == (1), \"a\" != \"b\");");
    stays("g(0..4, -1..=4, 0u8..(9));");
}

#[test]
fn ranges_become_calls() {
    becomes("g(a..b, 0..=n)", "g(t::stage::range(a, b), t::stage::range_inclusive(0, n))");
    becomes("g((a + 1)..(b))", "g(t::stage::range(a + 1, b))");
    becomes("Role { warps: a..b }", "Role { warps: t::stage::range(a, b) }");
}

#[test]
fn ranges_that_index_or_lack_an_end_stay() {
    stays("g(&v[a..b], &v[(a..=b)], a.., ..b, ..=b, ..);");
    becomes("v[h(a..b)..c]", "v[h(t::stage::range(a, b))..c]");
}

#[test]
fn patterns_and_constants_stay() {
    stays("match a { 0..=9 => g(), MIN..MAX => h(), _ => {} }");
    stays("let v = [0; if N < 3 { N } else { 3 }];");
    stays("let v = const { N < 3 };");
    stays("g::<{ N < 3 }>(0 as [u8; if N < 3 { 1 } else { 2 }]);");
}

#[test]
fn conditions_with_let_stay_but_not_their_blocks() {
    becomes(
        "if let Some(i) = a && i < n { g(i < n) } else { g(a < b) }",
        "if let Some(i) = a && i < n { g(t::stage::lt(&i, &n)) }
         else { g(t::stage::lt(&a, &b)) }",
    );
    becomes(
        "while let Some(i) = a.pop(b < c) { g(i == n) }",
        "while let Some(i) = a.pop(b < c) { g(t::stage::eq(&i, &n)) }",
    );
}

#[test]
fn a_staged_arm_may_follow_a_let() {
    becomes(
        "if let Some(i) = a { g(i) } else if b { h() }",
        "if let Some(i) = a { g(i) } else {
           let mut __s = t::stage::branch(b);
           while let Some(__arm) = __s.arm() { let __value_of_if = if __arm { h() }; __s.put(__value_of_if); }
           __s.finish() }",
    );
    becomes(
        "if b { h() } else if let Some(i) = a { g(i) }",
        "{ let mut __s = t::stage::branch(b);
           while let Some(__arm) = __s.arm() {
             let __value_of_if = if __arm { h() } else if let Some(i) = a { g(i) };
             __s.put(__value_of_if);
           }
           __s.finish() }",
    );
}

#[test]
fn a_match_stays_with_its_guards_but_not_its_arms() {
    becomes(
        "match a < b { i if i < n => g(i < n), _ => {} }",
        "match t::stage::lt(&a, &b) { i if i < n => g(t::stage::lt(&i, &n)), _ => {} }",
    );
}

#[test]
fn everything_nested_is_reached() {
    becomes(
        "let Some(z) = g(a < b) else { h(b < c) };",
        "let Some(z) = g(t::stage::lt(&a, &b)) else { h(t::stage::lt(&b, &c)) };",
    );
    becomes("g(|i| i < n)", "g(|i| t::stage::lt(&i, &n))");
    becomes("unsafe { g(a < b) }", "unsafe { g(t::stage::lt(&a, &b)) }");
    becomes("S { f: [a < b], ..(b < c) }", "S { f: [t::stage::lt(&a, &b)], ..(t::stage::lt(&b, &c)) }");
    becomes("x[g(a < b)] = n", "x[g(t::stage::lt(&a, &b))] = n");
}

#[test]
fn items_and_macro_calls_stay() {
    stays("fn inner(v: A) -> A { if v < w { return v; } loop {} }");
    stays("assert!(a < b); let z = vec![a < b];");
}

#[test]
fn host_code_stays() {
    stays("#[host] if a < b { x = a; }");
    stays("#[host] for i in a..b { if i < n { break; } else { continue; } }");
    stays("#[host] while a < b { loop { break; } }");
    stays("#[host] match a < b { _ => g(a && b) }");
    stays("#[host] { g(a < b)?; return; }");
    stays("#[host] let z = a < b || c;");
    stays("#[host] loop { 'inner: { break 'inner; } #[host] { break; } }");
    stays("#[host] println!();");
    becomes("#[host] { g(a < b) } h(a < b)", "{ g(a < b) } h(t::stage::lt(&a, &b))");
}

#[test]
fn calls_point_at_the_tokens_that_they_stand_for() {
    let tokens = rewritten("fn f(mut x: A) { if a <= b && c { x = 1; } while d {} for i in e..=g {} }");
    for (name, text) in [
        ("branch", "if"),
        ("arm", "if"),
        ("save", "if"),
        ("finish", "if"),
        ("le", "<="),
        ("and", "&&"),
        ("looping", "while"),
        ("type_of", "d"),
        ("test", "while"),
        ("each", "for"),
        ("range_inclusive", "..="),
    ] {
        let found = located(tokens.clone(), name);
        assert!(!found.is_empty(), "{name} is missing");
        // Without the compiler's help a span covers one token, which for an operator is its first character.
        assert!(found.iter().all(|found| text.starts_with(found.as_str())), "{name}: {found:?}");
    }
}

/// Asserts that two bodies become the same.
#[track_caller]
fn equal(body: &str, other: &str) {
    let both = [body, other].map(|body| {
        let function = format!("fn f(a: A, b: A, c: A, n: A, mut x: A, mut y: A) -> A {{ {body} }}");
        super::blankless(&rewritten(&function))
    });
    assert_eq!(both[0], both[1]);
}

#[test]
fn guard_clauses_have_the_rest_in_the_other_arm() {
    equal("if a { g(); return; } x = n; h(x);", "if a { g(); } else { x = n; h(x); }");
    equal("g(); if a { return b; } if c { return x; } y", "g(); if a { b } else { if c { x } else { y } }");
    equal("if let Some(i) = a { return i; } b", "if let Some(i) = a { i } else { b }");
    equal(
        "if a { if b { return x; } g(); return y; } h()",
        "if a { if b { x } else { g(); y } } else { h() }",
    );
    equal(
        "if a { return b; } else if c { return x; } else { return y; }",
        "if a { b } else if c { x } else { y }",
    );
    equal("let z = g(|i| { if i { return a; } b }); z", "let z = g(|i| { if i { a } else { b } }); z");
    equal("g(); return a;", "g(); a");
    equal("if a { return; };", "if a {}");
}

#[test]
fn guard_clauses_of_loops_skip_the_rest_of_a_round() {
    equal(
        "for i in n { if a { g(); continue; } x = i; } x",
        "for i in n { if a { g(); } else { x = i; } } x",
    );
    equal("while a { if b { continue; } h(); }", "while a { if b {} else { h(); } }");
    equal(
        "for i in n { for j in n { if j { continue; } g(); } if i { continue; } h(); }",
        "for i in n { for j in n { if j {} else { g(); } } if i {} else { h(); } }",
    );
}

#[test]
fn guard_clauses_of_host_code_stay() {
    stays("#[host] if a { return; } g();");
    stays("#[host] for i in n { if i { continue; } g(); }");
    stays("#[host] let z = { if a { return; } b }; g(z);");
}
