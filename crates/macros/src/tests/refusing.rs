//! What is refused, at which token, in which words.

use super::{refused, refused_by};
use crate::expand::{self, try_device, try_kernel};
use crate::refuse::Refusal;

#[track_caller]
fn refuses(body: &str, token: &str, why: Refusal) {
    assert_eq!(refused(body), [(token.to_string(), why.message().to_string())], "{body}");
}

#[test]
fn jumps_are_refused_at_their_token() {
    refuses("for i in n { break; }", "break", Refusal::Break);
    refuses("for i in n { continue; g(); }", "continue", Refusal::Continue);
    refuses("for i in n { if i { if n { continue; } g(); } g(); }", "continue", Refusal::Continue);
    refuses("'a: for i in n { for j in n { if j { continue 'a; } g(); } }", "continue", Refusal::Continue);
    refuses("'a: { break 'a; }", "break", Refusal::Break);
    refuses("if n { return; } else { g(); } g();", "return", Refusal::Return);
    refuses("if n { if x { return; } g(); } g();", "return", Refusal::Return);
    refuses("for i in n { if i { return; } g(); }", "return", Refusal::Return);
    refuses("return; g();", "return", Refusal::Return);
    refuses("g(|| return 3);", "return", Refusal::Return);
    refuses("g(n)?;", "?", Refusal::Try);
    refuses("if let Some(i) = g()? {}", "?", Refusal::Try);
    refuses("match n { i if g(i)? => {} _ => {} }", "?", Refusal::Try);
    refuses("n.await;", "await", Refusal::Await);
    refuses("g(async { n.await });", "async", Refusal::Async);
    refuses("g(async || n);", "async", Refusal::Async);
    refuses("loop { g(); }", "loop", Refusal::Loop);
}

#[test]
fn the_messages_name_the_idiom() {
    for (why, idiom) in [
        (Refusal::Break, "make the loop condition false, or guard the rest of the body with `if`"),
        (Refusal::Continue, "guard the rest of the body with `if`"),
        (Refusal::Return, "wrap the rest in `if`"),
        (Refusal::Try, "staging collects errors, so pass a valid value"),
        (Refusal::Loop, "use `while condition`"),
        (Refusal::Captured, "return the value from the closure"),
    ] {
        assert!(why.message().ends_with(idiom), "{}", why.message());
    }
}

#[test]
fn all_refusals_are_reported() {
    let tokens: Vec<_> =
        refused("loop { if n { break; } g()?; } return; g();").into_iter().map(|found| found.0).collect();
    assert_eq!(tokens, ["loop", "break", "?", "return"]);
}

#[test]
fn closures_may_not_assign_what_they_capture() {
    refuses("g(|| x = n);", "x", Refusal::Captured);
    refuses("g(move |i| { x += i; });", "x", Refusal::Captured);
    refuses("g(|| { if n { x.f = 1; } });", "x", Refusal::Captured);
    refuses("g(|| h(&mut x));", "x", Refusal::Captured);
    refuses("g(|| { let mut z = 1; h(|| z = 2); });", "z", Refusal::Captured);
    assert_eq!(refused("g(|| { let mut x = 1; x = 2; x });"), []);
}

#[test]
fn the_right_side_of_logic_may_not_assign() {
    refuses("if n && { x = n; n } {}", "x", Refusal::CapturedByOperand);
    refuses("g(n || { x = n; n });", "x", Refusal::CapturedByOperand);
    assert_eq!(refused("g({ x = n; n } || n);"), []);
}

#[test]
fn host_code_may_jump_within_itself_only() {
    refuses("for i in n { #[host] if i { break; } }", "break", Refusal::HostJump);
    refuses("while let Some(i) = n { #[host] { continue; } }", "continue", Refusal::HostJump);
    refuses("'a: for i in n { #[host] for j in i { break 'a; } }", "break", Refusal::HostJump);
    assert_eq!(refused("#[host] 'a: for i in n { for j in i { continue 'a; } }"), []);
}

#[test]
fn host_on_half_a_statement_is_refused() {
    // Rust binds the attribute to `x` alone.
    refuses("#[host] x = n;", "#", Refusal::HostPlace);
    refuses("#[host] g(n);", "#", Refusal::HostPlace);
}

#[test]
fn functions_that_cannot_be_staged_are_refused() {
    for (function, token, why) in [
        ("const fn k() {}", "const", Refusal::ConstFn),
        ("async fn k() {}", "async", Refusal::AsyncFn),
        ("extern \"C\" fn k() {}", "extern", Refusal::ExternFn),
        ("fn k(x: A, ...) {}", ".", Refusal::Variadic),
    ] {
        let expected = [(token.to_string(), why.message().to_string())];
        assert_eq!(refused_by(try_kernel, "", function), expected, "{function}");
        assert_eq!(refused_by(try_device, "", function), expected, "{function}");
    }
}

#[test]
fn kernels_have_plain_parameters_and_no_result() {
    for (function, token, why) in [
        ("unsafe fn k() {}", "unsafe", Refusal::UnsafeFn),
        ("fn k(&self) {}", "self", Refusal::Receiver),
        ("fn k() -> u8 { 3 }", "u8", Refusal::Returns),
        ("fn k(f: Vec<impl Fn()>) {}", "impl", Refusal::ImplTrait),
        ("fn k(ref x: A) {}", "ref", Refusal::ParameterPattern),
        ("fn k(_: A) {}", "_", Refusal::ParameterPattern),
        ("fn k(k: A) {}", "k", Refusal::ParameterName),
        ("fn k(#[runtime] #[constant] x: A) {}", "#", Refusal::ParameterKind),
    ] {
        let found = refused_by(try_kernel, "", function);
        assert_eq!(found.len(), 1, "{function}");
        assert!(found[0].0.starts_with(token), "{function}: {found:?}");
        assert_eq!(found[0].1, why.message());
    }
    assert_eq!(refused_by(try_kernel, "", "fn k(mut x: A) -> () {}"), []);
    assert_eq!(refused_by(try_device, "", "unsafe fn f(&self, (a, _): A, g: impl Fn()) -> u8 { 3 }"), []);
}

#[test]
fn options_are_checked() {
    for (attr, message) in [
        (
            "thread = 3",
            "unknown option `thread`; the options are `threads`, `min_blocks`, `cluster`, `max_registers`, `name`, `crate`",
        ),
        ("threads = 3, threads = 4", "option `threads` is given twice; remove one"),
        ("cluster = 2", "a cluster has three extents; write `cluster = (x, y, z)`"),
        ("name = 3", "expected string literal"),
        ("threads", "expected `=`"),
        ("threads = 3 min_blocks = 2", "expected `,`"),
    ] {
        let found = refused_by(try_kernel, attr, "fn k() {}");
        assert_eq!(found.iter().map(|found| found.1.as_str()).collect::<Vec<_>>(), [message], "{attr}");
    }
    let found = refused_by(try_device, "threads = 3", "fn f() {}");
    assert_eq!(
        found,
        [("threads".to_string(), "unknown option `threads`; the options are `crate`".to_string())]
    );
}

#[test]
fn errors_come_with_the_function() {
    let item = "#[doc = \"d\"] fn k(#[runtime] x: A) { if x < 3 { g()?; } #[host] if true { g(); } }";
    let text = expand::kernel("".parse().unwrap(), &item.parse().unwrap()).to_string();
    assert_eq!(text.matches("compile_error").count(), 1);
    assert!(text.contains("stage :: lt") && text.contains("struct k"), "{text}");
}

#[test]
fn errors_in_a_signature_come_with_the_function_as_written() {
    let item = "#[doc = \"d\"] fn k(#[runtime] x: A) -> B { if x < 3 { g()?; } #[host] if true { g(); } }";
    let text = expand::kernel("".parse().unwrap(), &item.parse().unwrap()).to_string();
    let blankless: String = text.split_whitespace().collect();
    assert!(
        blankless.starts_with("#[doc=\"d\"]fnk(x:A)->B{ifx<3{g()?;}iftrue{g();}}::core::compile_error!{"),
        "{blankless}"
    );
    assert_eq!(text.matches("compile_error").count(), 2);
    assert!(!text.contains("struct"));
}

#[test]
fn what_is_not_a_function_goes_out_as_it_came() {
    let text = expand::device("".parse().unwrap(), &"struct S;".parse().unwrap()).to_string();
    assert!(text.starts_with("struct S ;"), "{text}");
    assert!(text.contains("compile_error"), "{text}");
}
