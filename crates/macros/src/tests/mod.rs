//! The expansion as text: what each rule turns code into, what is refused and where.
//!
//! Blanks are ignored in comparisons, since token streams print them at will.

mod refusing;
mod rewriting;
mod scoping;
mod shapes;

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ItemFn;

use crate::attr::Options;
use crate::refuse::Refusals;
use crate::{expand, rewrite};

/// The body of `function` rewritten, with `t` for the language crate.
fn rewritten(function: &str) -> TokenStream {
    let mut function: ItemFn = syn::parse_str(function).unwrap();
    let mut refusals = Refusals::default();
    let options = Options::device(quote!(crate = t), &mut refusals);
    rewrite::body(&options.root, &function.sig, &mut function.block, &mut refusals);
    let errors: Vec<_> = refusals.into_errors().iter().map(ToString::to_string).collect();
    assert!(errors.is_empty(), "refused: {errors:?}");
    function.block.into_token_stream()
}

/// Asserts what a body becomes; the variables of `fn f(a, b, c, n, mut x, mut y)` are in scope.
#[track_caller]
fn becomes(body: &str, expected: &str) {
    let function = format!("fn f(a: A, b: A, c: A, n: A, mut x: A, mut y: A) {{ {body} }}");
    let expected = expected.replace("Some(__", "::core::option::Option::Some(__");
    let expected: TokenStream = format!("{{ {expected} }}").parse().unwrap();
    assert_eq!(blankless(&rewritten(&function)), blankless(&expected));
}

/// Asserts that a body is left alone, apart from the attribute `#[host]`.
#[track_caller]
fn stays(body: &str) {
    becomes(body, &body.replace("#[host]", ""));
}

/// The places that the outermost region of a body carries, in order.
fn carried(function: &str) -> Vec<String> {
    let text = blankless(&rewritten(function));
    let mut found = Vec::new();
    let mut rest = text.as_str();
    let method = if text.contains("__s.enter(&mut") { "__s.enter(&mut" } else { "__s.save(&" };
    while let Some(at) = rest.find(method) {
        rest = &rest[at + method.len()..];
        found.push(rest[..rest.find(')').unwrap()].to_string());
    }
    found
}

fn blankless(tokens: &TokenStream) -> String {
    tokens.to_string().split_whitespace().collect()
}

type Expander = fn(TokenStream, ItemFn, &mut Refusals) -> TokenStream;

/// Every refusal as (source text that it points at, message).
fn refused_by(expander: Expander, attr: &str, function: &str) -> Vec<(String, String)> {
    let mut refusals = Refusals::default();
    expander(attr.parse().unwrap(), syn::parse_str(function).unwrap(), &mut refusals);
    let errors = refusals.into_errors().into_iter();
    errors.map(|error| (error.span().source_text().unwrap_or_default(), error.to_string())).collect()
}

/// Every refusal in the body of a device function.
fn refused(body: &str) -> Vec<(String, String)> {
    refused_by(expand::try_device, "", &format!("fn f(n: A, mut x: A) {{ {body} }}"))
}

/// The source text under every identifier `name` of the stream.
fn located(tokens: TokenStream, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => found.extend(located(group.stream(), name)),
            TokenTree::Ident(ident) if ident == name => found.push(ident.span().source_text().unwrap()),
            _ => {}
        }
    }
    found
}
