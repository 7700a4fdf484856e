//! The tile level: text form and rules.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tilewright_ir::{parse, verify};

/// A row of softmax: load, reduce, map, store.
const SOFTMAX: &str = "
func @softmax (%x: ptr<global> align(16), %rows: u32, %columns: u32, %stride: i64, %out: ptr<global> align(16)) {
  %0 = special reg(ctaid.x) : u32
  %1 = bitcast %0 : i32
  %2 = const value(0) : i32
  %3 = const value(1) : i64
  %4 = const value(0xff800000) : f32
  %5 = tile_load %x, %1, %2, %rows, %columns, %stride, %3, %4 : tile<1x1024xf32>
  %6 = tile_reduce %5 axis(1) : tile<1x1xf32> do {
    (%7: f32, %8: f32)
    %9 = max %7, %8 : f32
    yield %9
  }
  %10 = broadcast %6 : tile<1x1024xf32>
  %11 = map %5, %10 : tile<1x1024xf32> do {
    (%12: f32, %13: f32)
    %14 = sub %12, %13 : f32
    %15 = ex2 %14 : f32
    yield %15
  }
  tile_store %out, %11, %1, %2, %rows, %columns, %stride, %3
}
";

fn problems(body: &str) -> Vec<String> {
    let text = format!(
        "func @k (%p: ptr<global>, %a: u32, %f: f32) {{
           %x = splat %f : tile<4x8xf32>
           {body}
         }}"
    );
    let module = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&module).iter().map(|problem| problem.message.clone()).collect()
}

#[test]
fn text_is_exact() {
    let module = parse(SOFTMAX).expect("a kernel");
    assert_eq!(verify(&module), []);
    assert_eq!(parse(&module.to_string()).expect("the same"), module);
    assert!(module.funcs[0].is_tile_level());
}

#[test]
fn what_is_right_passes() {
    for body in [
        "%1 = iota axis(1) : tile<4x8xu32>",
        "%1 = transpose %x axes(1,0) : tile<8x4xf32>",
        "%1 = reshape %x : tile<2x2x8xf32>",
        "%1 = cat %x, %x axis(0) : tile<8x8xf32>",
        "%1 = part %x axis(1) index(6) : tile<4x2xf32>",
        "%1 = iota axis(0) : tile<4x3xu32>
         %2 = take %x, %1 axis(1) : tile<4x3xf32>",
        "%1 = part %x axis(1) index(7) : tile<4x1xf32>
         %2 = broadcast %1 : tile<4x8xf32>",
        "%1 = part %x axis(1) index(7) : tile<4x1xf32>
         %2 = part %1 axis(0) index(3) : tile<1x1xf32>
         %3 = item %2 : f32
         %4 = add %3, %f : f32",
        "%1 = transpose %x axes(1,0) : tile<8x4xf32>
         %2 = splat %f : tile<4x4xf32>
         %3 = dot %x, %1, %2 flags(tf32) : tile<4x4xf32>",
        "%1 = tile_scan %x axis(0) flags(reverse) : tile<4x8xf32> do {
           (%2: f32, %3: f32)
           %4 = add %2, %3 : f32
           yield %4
         }",
        "%1 = iota axis(0) : tile<4x8xu32>
         %2 = map %1 : tile<4x8xbool> do {
           (%3: u32)
           %4 = cmp %3, %a cmp(lt) : bool
           yield %4
         }
         %5 = gather %p, %1, %2, %x : tile<4x8xf32>
         scatter %p, %1, %2, %5
         %6 = tile_atomic %p, %1, %2, %5 op(add) : tile<4x8xf32>
         %7 = tile_atomic_cas %p, %1, %2, %5, %6 : tile<4x8xf32>",
        "%1 = const value(1) : u32
         %2 = for %1, %a, %1, %x : tile<4x8xf32> do {
           (%3: u32, %4: tile<4x8xf32>)
           yield %4
         }",
    ] {
        assert_eq!(problems(body), Vec::<String>::new(), "{body}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (body, expected) in [
        ("%1 = iota axis(2) : tile<4x8xu32>", "`iota` of nothing does not give tile<4x8xu32>"),
        ("%1 = iota axis(0) : tile<4x8xf32>", "`iota` of nothing does not give tile<4x8xf32>"),
        (
            "%1 = transpose %x axes(1,0) : tile<4x8xf32>",
            "`transpose` of tile<4x8xf32> does not give tile<4x8xf32>",
        ),
        ("%1 = reshape %x : tile<4x4xf32>", "`reshape` of tile<4x8xf32> does not give tile<4x4xf32>"),
        ("%1 = broadcast %x : tile<8x8xf32>", "`broadcast` of tile<4x8xf32> does not give tile<8x8xf32>"),
        (
            "%1 = cat %x, %x axis(0) : tile<4x16xf32>",
            "`cat` of tile<4x8xf32>, tile<4x8xf32> does not give tile<4x16xf32>",
        ),
        (
            "%1 = part %x axis(1) index(7) : tile<4x2xf32>",
            "`part` of tile<4x8xf32> does not give tile<4x2xf32>",
        ),
        (
            "%1 = iota axis(0) : tile<4x3xu32>
             %2 = take %x, %1 axis(0) : tile<4x3xf32>",
            "`take` of tile<4x8xf32>, tile<4x3xu32> does not give tile<4x3xf32>",
        ),
        (
            "%1 = iota axis(0) : tile<4x3xu32>
             %2 = take %x, %1 axis(1) : tile<4x8xf32>",
            "`take` of tile<4x8xf32>, tile<4x3xu32> does not give tile<4x8xf32>",
        ),
        ("%1 = item %x : f32", "`item` of tile<4x8xf32> does not give f32"),
        (
            "%1 = add %x, %x : tile<4x8xf32>",
            "operand 0 of `add` is tile<4x8xf32>, expected integers or floats",
        ),
        ("%1 = cvt %x : tile<4x8xf16>", "`cvt` takes elements of tiles one by one: put it into a `map`"),
        (
            "%1 = dot %x, %x, %x : tile<4x8xf32>",
            "`dot` takes m x k, k x n and m x n elements, or b x m x k, b x k x n and b x m x n, found",
        ),
        ("%1 = special reg(tid.x) : u32", "`special` is for threads"),
        ("%1 = shared bytes(16) align(16) : ptr<shared>", "`shared` is for threads"),
        (
            "%1 = map %x : tile<4x4xf32> do {
               (%2: f32)
               yield %2
             }",
            "all of them are tiles of one shape",
        ),
        (
            "%1 = map %x : tile<4x8xf32> do {
               (%2: f32)
               %3 = load %p : f32
               yield %3
             }",
            "`load` stands in a region that computes single elements",
        ),
        (
            "%1 = tile_reduce %x axis(1) : tile<4xf32> do {
               (%2: f32, %3: f32)
               yield %2
             }",
            "expected tile<4x1xf32>",
        ),
        (
            "%1 = tile_load %p, %f : tile<4x8xf32>",
            "takes i32, i32, u32, u32, i64, i64, f32 after its first 1",
        ),
        (
            "%1 = iota axis(0) : tile<4x4xu32>
             %2 = splat %f : tile<4x8xbool>
             scatter %p, %1, %2, %x",
            "all tiles have one shape",
        ),
    ] {
        let found = problems(body);
        assert!(found.iter().any(|problem| problem.contains(expected)), "{body}\nfound {found:#?}");
    }
}
