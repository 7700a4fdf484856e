//! The items that `#[kernel]` and `#[device]` expand to.

use proc_macro2::TokenStream;

use super::{blankless, located};
use crate::expand;

fn kernel(attr: &str, item: &str) -> TokenStream {
    expand::kernel(attr.parse().unwrap(), &item.parse().unwrap())
}

#[track_caller]
fn assert_same(found: &TokenStream, expected: &str) {
    assert_eq!(blankless(found), blankless(&expected.parse().unwrap()));
}

#[test]
fn a_kernel_becomes_a_function_and_a_type_that_stages_it() {
    let found = kernel(
        "threads = c.threads, cluster = (2, 1, 1), name = \"other\"",
        "/// Doc.
         #[inline] #[cfg(all())]
         pub fn k<'a, T: Elem, const N: usize>(mut x: lang::Val<T>, #[constant] y: Val<T>, c: Config, #[runtime] z: My<'a>) where T: Copy { g(x) }",
    );
    assert_same(
        &found,
        "#[allow(clippy::too_many_arguments, clippy::needless_pass_by_value)]
         #[doc = \" Doc.\"]
         #[inline] #[cfg(all())]
         pub fn k<'a, T: Elem, const N: usize>(mut x: lang::Val<T>, y: Val<T>, c: Config, z: My<'a>) where T: Copy {
             ::tilewright_lang::stage::launch::threads(c.threads);
             ::tilewright_lang::stage::launch::cluster(2, 1, 1);
             g(x)
         }

         #[cfg(all())]
         #[doc = \" The kernel [`k`](fn@k) as something to stage.\"]
         #[allow(non_camel_case_types, dead_code)]
         pub struct k {}

         #[cfg(all())]
         impl k {
             #[doc = r\" Stages the kernel for these constants.\"]
             #[doc = r\"\"]
             #[doc = r\" # Errors\"]
             #[doc = r\"\"]
             #[doc = r\" What staging refused, with its place in the source of the kernel.\"]
             #[track_caller]
             #[allow(
                 dead_code,
                 non_snake_case,
                 clippy::too_many_arguments,
                 clippy::type_complexity,
                 clippy::extra_unused_lifetimes,
                 clippy::extra_unused_type_parameters
             )]
             pub fn stage<'a, T: Elem, const N: usize>(y: Val<T>, c: Config)
                 -> ::core::result::Result<::tilewright_lang::Kernel, ::tilewright_lang::Error>
             where T: Copy
             {
                 ::tilewright_lang::stage::assert_constant::<Val<T> >();
                 ::tilewright_lang::stage::assert_constant::<Config>();
                 ::tilewright_lang::stage::kernel(\"other\", move || {
                     let x = ::tilewright_lang::stage::argument::<lang::Val<T> >(\"x\");
                     let z = ::tilewright_lang::stage::argument::<My<'a> >(\"z\");
                     k::<T, N>(x, y, c, z);
                 })
             }
         }",
    );
}

#[test]
fn the_language_types_are_run_time_arguments() {
    for ty in ["Val<f32>", "Global<f32>", "TensorMap", "(Val<f32>)"] {
        let text = blankless(&kernel("", &format!("fn k(x: {ty}) {{}}")));
        assert!(text.contains("fnstage()"), "{text}");
    }
    for ty in ["u32", "&str", "Option<Val<f32>>", "[Val<f32>; 2]", "Val::Inner"] {
        let text = blankless(&kernel("", &format!("fn k(x: {ty}) {{}}")));
        assert!(text.contains("fnstage(x:"), "{text}");
    }
}

#[test]
fn the_crate_option_moves_every_path() {
    let found = kernel("crate = front::lang, threads = 3", "fn k(x: Val<u8>, n: u8) { if n < 3 {} }");
    let text = blankless(&found);
    assert!(!text.contains("tilewright_lang"), "{text}");
    for path in
        ["front::lang::stage::branch(", "front::lang::stage::launch::threads(3)", "front::lang::Kernel"]
    {
        assert!(text.contains(path), "{text}");
    }
    // The path goes where the calls are: the first token of a call is the place that it reports.
    assert!(located(found, "front").iter().all(|text| text != "front"));
}

#[test]
fn errors_of_parameter_types_point_at_the_type() {
    let found = kernel("", "fn k(x: Val<u8>, n: Config) {}");
    assert_eq!(located(found.clone(), "argument"), ["Val<u8>"]);
    assert_eq!(located(found, "assert_constant"), ["Config"]);
}

#[test]
fn a_device_function_runs_its_body_in_a_frame() {
    let found = expand::device(
        TokenStream::new(),
        &"/// Doc.
          pub(crate) fn f<T>(mut x: Val<T>) -> Val<T> where T: Copy { if x { x = g(); } x }"
            .parse()
            .unwrap(),
    );
    assert_same(
        &found,
        "#[track_caller]
         #[doc = \" Doc.\"]
         pub(crate) fn f<T>(mut x: Val<T>) -> Val<T> where T: Copy {
             fn __once<R>(body: impl FnOnce() -> R) -> R { body() }
             let __frame = ::tilewright_lang::stage::frame(\"f\");
             __once(move || -> Val<T> {
                 {
                     let mut __s = ::tilewright_lang::stage::branch(x);
                     __s.save(&x);
                     while let ::core::option::Option::Some(__arm) = __s.arm() {
                         let __value_of_if = if __arm { x = g(); };
                         __s.put(__value_of_if);
                         __s.leave(&mut x);
                     }
                     __s.join(&mut x);
                     __s.finish()
                 }
                 x
             })
         }",
    );
}

#[test]
fn a_device_function_may_hide_its_result() {
    let found = expand::device(TokenStream::new(), &"fn f() -> impl Fn() { g }".parse().unwrap());
    assert!(blankless(&found).ends_with("__once(move||{g})}"), "{found}");
}

#[test]
fn raw_names_lose_their_prefix_in_texts() {
    let text = blankless(&kernel("", "fn r#loop(r#type: Val<u8>) {}"));
    assert!(text.contains("stage::kernel(\"loop\","), "{text}");
    assert!(text.contains("letr#type=::tilewright_lang::stage::argument::<Val<u8>>(\"type\");"), "{text}");
    let found = expand::device(TokenStream::new(), &"fn r#loop() {}".parse().unwrap());
    assert!(blankless(&found).contains("stage::frame(\"loop\")"), "{found}");
}
