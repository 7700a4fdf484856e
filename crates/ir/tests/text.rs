//! The text form: what is printed can be read back, with nothing lost.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tilewright_ir::{Module, PrintOptions, parse, verify};

/// One function that has every kind of syntax: launch bounds, alignment, nested regions, all kinds of attributes, locations.
const EVERYTHING: &str = r#"func @everything threads(128,1,1) min_blocks(2) cluster(2,1,1) registers(168) (%x: ptr<global> align(16), %map: tensor_map, %n: u32) {
  %0 = special reg(tid.x) : u32 loc("src/lib.rs":3:5)
  %1 = const value(-7) : i32 loc("src/lib.rs":4:5 in "helper" at "src/lib.rs":9:1 in "outer" at "src/a \"b\".rs":1:1)
  %2 = const value(0.1) : f32
  %3 = const value(0x7fc00000) : f32
  %4 = const value(0x3c00) : f16
  %5 = const value(18446744073709551615) : u64
  %6 = cmp %0, %n cmp(lt) : bool
  %7 = if %6 : f32 then {
    %8 = add %2, %3 round(rz) flags(ftz sat) : f32
    yield %8
  } else {
    yield %2
  }
  %9 = const value(1) : u32
  %10, %11 = for %0, %n, %9, %7, %9 : f32, u32 do {
    (%12: u32, %13: f32, %14: u32)
    %15 = add %14, %12 : u32
    yield %13, %15
  }
  %16 = while %11 : u32 test {
    (%17: u32)
    %18 = cmp %17, %n cmp(ne) : bool
    condition %18, %17
  } do {
    (%19: u32)
    %20 = add %19, %9 : u32
    yield %20
  }
  wgmma_fence
  %21 = accumulator : acc<64xf32>
  %22 = acc_read %21 : 64xf32
  %23 = extract %22 index(5) : f32
  store %x, %23 order(release) scope(gpu)
  role text("loader") warps(0..4) registers(40) do {
    trace %16 text("n = {}\t\"{}\"")
  }
}
"#;

fn read(text: &str) -> Module {
    parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

#[test]
fn everything_round_trips() {
    let module = read(EVERYTHING);
    assert_eq!(verify(&module), []);
    let printed = module.to_string();
    assert_eq!(printed, EVERYTHING);
    assert_eq!(read(&printed), module);
}

#[test]
fn without_locations_the_text_is_the_same_wherever_the_code_stood() {
    let elsewhere = EVERYTHING.replace("src/lib.rs", "other.rs");
    let bare = |text: &str| read(text).to_text(PrintOptions { locations: false });
    assert_eq!(bare(EVERYTHING), bare(&elsewhere));
    assert!(!bare(EVERYTHING).contains("loc("));
    assert_ne!(read(EVERYTHING), read(&elsewhere), "with locations they differ");
}

#[test]
fn comments_and_blank_lines_are_ignored() {
    let text = "; head\nfunc @f (%n: u32) {\n\n  %0 = add %n, %n : u32 ; twice\n}\n; tail";
    assert_eq!(read(text), read("func @f (%n: u32) { %0 = add %n, %n : u32 }"));
}

#[test]
fn equality_sees_every_difference() {
    let base = read(EVERYTHING);
    for (from, to) in [
        ("cmp(lt)", "cmp(le)"),
        ("value(-7)", "value(-8)"),
        ("align(16)", "align(8)"),
        ("min_blocks(2)", "min_blocks(1)"),
        ("add %14, %12", "add %12, %14"),
        ("index(5)", "index(6)"),
        ("warps(0..4)", "warps(0..8)"),
        ("\"helper\"", "\"other\""),
        ("text(\"n", "text(\"m"),
    ] {
        let changed = EVERYTHING.replacen(from, to, 1);
        assert_ne!(changed, EVERYTHING, "{from} is not in the text");
        assert_ne!(read(&changed), base, "{from} -> {to}");
    }
}

#[test]
fn errors_say_where_what_and_what_instead() {
    let message = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(
        message("func @f (%n: u32) {\n  %0 = adt %n, %n : u32\n}"),
        "line 2, column 8: found `adt`, expected an op; near are add, abs, and, atomic, atomic_cas, active_mask, accumulator, \
         acc_read, acc_write, assert"
    );
    assert_eq!(
        message("func @f (%n: u32) {\n  %0 = add %m, %n : u32\n}"),
        "line 2, column 12: found `%m,`, expected a value that is defined above"
    );
    assert_eq!(message("func @f (%n: u33) {}"), "line 1, column 14: found `u33)`, expected a type");
    assert_eq!(
        message("func @f (%n: u32) {\n  %n = add %n, %n : u32\n}"),
        "line 3, column 1: found `}`, expected a name other than `%n`, which is taken"
    );
    assert_eq!(message("func @f (%n: u32) {"), "line 1, column 20: found the end, expected an op");
    assert!(
        message("func @f () { %0 = const value(x) : u32 }").contains("expected a value of that type, not x")
    );
    assert!(message("func @f () { %0 = cmp cmp(zz) : bool }").contains("another value of `cmp` than zz"));
}
