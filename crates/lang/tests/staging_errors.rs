//! Mistakes that staging reports: all of them at once, each with its place, the line of source and the calls that led there.
//!
//! Lines are counted from the line of the kernel's name, so that the reports stay the same when this file grows.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;

use tilewright_lang::Error;
use tilewright_lang::prelude::*;
use tilewright_lang::tile::prelude::*;

/// The report, with lines counted from the kernel and without the path of this file.
fn report(staged: Result<Kernel, Error>) -> String {
    let error = staged.expect_err("a kernel with a mistake");
    let name = format!("fn {}", error.kernel);
    let source = include_str!("staging_errors.rs");
    let first = 1 + i64::try_from(source.lines().position(|line| line.starts_with(&name)).unwrap()).unwrap();
    let mut parts = error.to_string();
    let mut out = String::new();
    while let Some((before, after)) = parts.split_once(&format!("{}:", file!())) {
        let (line, rest) = after.split_once(':').unwrap();
        let line: i64 = line.parse().unwrap();
        out += &format!("{before}line {:+}:", line - first);
        parts = rest.to_owned();
    }
    out + &parts
}

/// Compares a report with its text; indentation of lines of source does not matter.
#[track_caller]
fn expect(staged: fn() -> Result<Kernel, Error>, text: &str) {
    let squeeze = |text: &str| {
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.trim().lines().map(words).collect::<Vec<_>>()
    };
    let report = report(staged());
    assert!(squeeze(&report) == squeeze(text), "the kernel is\n{report}\nexpected\n{text}");
}

// ---- the rendered text -----------------------------------------------------------------------------------------------------------

#[kernel]
fn several(x: Global<f32>) {
    let v = x.load_vector(4);
    x.store(v.get(4));
    x.store_vector(v + Vector::splat(1.0, 2));
    x.at(thread_id(5)).store(0.0);
}

#[test]
fn all_mistakes_come_out_at_once() {
    expect(
        several::stage,
        "
        error: element 4 of a vector of 4
          --> line +2:15
           |     x.store(v.get(4));
        error: vectors of 4 and 2 elements
          --> line +3:20
           |     x.store_vector(v + Vector::splat(1.0, 2));
        error: axis 5; expected 0, 1 or 2 for x, y and z
          --> line +4:10
           |     x.at(thread_id(5)).store(0.0);
        error: kernel `several` was not staged: 3 errors
        ",
    );
}

#[test]
fn the_text_is_that_of_a_compiler() {
    let error = several::stage().unwrap_err();
    assert_eq!(error.kernel, "several");
    assert_eq!(error.diagnostics.len(), 3);
    let first = &error.diagnostics[0];
    assert!(first.location.as_ref().unwrap().starts_with(file!()));
    let text = first.to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "error: element 4 of a vector of 4");
    assert!(lines[1].starts_with("  --> "), "{text}");
}

#[device]
fn innermost(x: Vector<f32>) -> Val<f32> {
    x.get(7)
}

#[device]
fn between(x: Vector<f32>) -> Val<f32> {
    innermost(x) * 2.0
}

#[kernel]
fn in_helpers(x: Global<f32>) {
    let v = x.load_vector(4);
    x.store(between(v));
}

#[test]
fn a_mistake_in_a_helper_names_the_calls_that_led_to_it() {
    let error = in_helpers::stage().unwrap_err();
    assert_eq!(error.diagnostics.len(), 1);
    let notes = &error.diagnostics[0].notes;
    let lines = include_str!("staging_errors.rs").lines();
    let place = |text: &str| {
        let line = lines.clone().position(|line| line.contains(text)).unwrap();
        let column = lines.clone().nth(line).unwrap().find(text).unwrap();
        format!("{}:{}:{}", file!(), line + 1, column + 1)
    };
    assert_eq!(notes[0], format!("in `innermost`, called at {}", place("innermost(x) * 2.0")));
    assert_eq!(notes[1], format!("in `between`, called at {}", place("between(v));")));
    assert_eq!(notes.len(), 2);
}

// ---- values and regions ----------------------------------------------------------------------------------------------------------

#[kernel]
fn vectors(x: Global<f32>) {
    let v = x.load_vector(4);
    x.store_vector(v.with(4, 1.0));
    x.store_vector(v.slice(2, 3));
    x.store_vector(v.slice(0, 0));
    x.store_vector(v.mul_add(v, x.load_vector(8)));
    x.store(x.load_vector(0).sum());
    x.store_vector(x.load_vector(2000));
    x.store_vector(v.cast::<u8>().slice(0, 3).bitcast::<u16>().cast::<f32>());
    x.store(shuffle_xor(v, 1u32).get(0));
    x.store(x.load().bitcast::<f64>().cast::<f32>());
}

#[test]
fn vectors_are_checked() {
    expect(
        vectors::stage,
        "
        error: element 4 of a vector of 4
          --> line +2:22
           |     x.store_vector(v.with(4, 1.0));
        error: 3 elements from 2 on, of a vector of 4
          --> line +3:22
           |     x.store_vector(v.slice(2, 3));
        error: 0 elements from 0 on, of a vector of 4
          --> line +4:22
           |     x.store_vector(v.slice(0, 0));
        error: vectors of 4, 4 and 8 elements
          --> line +5:22
           |     x.store_vector(v.mul_add(v, x.load_vector(8)));
        error: a vector of 0 elements; expected 1 to 1024
          --> line +6:15
           |     x.store(x.load_vector(0).sum());
        error: a vector of 2000 elements; expected 1 to 1024
          --> line +7:22
           |     x.store_vector(x.load_vector(2000));
        error: 24 bits are not a whole number of u16
          --> line +8:47
           |     x.store_vector(v.cast::<u8>().slice(0, 3).bitcast::<u16>().cast::<f32>());
        error: `bitcast` from 3xu8 (24 bits) to 1xu16 (16 bits) changes the size
          --> line +8:47
           |     x.store_vector(v.cast::<u8>().slice(0, 3).bitcast::<u16>().cast::<f32>());
        error: operand 0 of `shuffle` is 4xf32, expected a scalar or vector of at most 64 bits
          --> line +9:13
           |     x.store(shuffle_xor(v, 1u32).get(0));
        error: `bitcast` from f32 (32 bits) to f64 (64 bits) changes the size
          --> line +10:22
           |     x.store(x.load().bitcast::<f64>().cast::<f32>());
        error: kernel `vectors` was not staged: 10 errors
        ",
    );
}

#[kernel]
fn leaked(n: Val<u32>, out: Global<u32>) {
    let cell = Cell::new(n);
    if n > 1 {
        cell.set(n + 1);
    }
    out.store(cell.get());
    let mut late: Box<dyn Fn() -> Val<u32>> = Box::new(move || n);
    #[host]
    {
        let hidden = &mut late;
        role(&Role { name: "all", warps: 0..1, registers: None }, || {
            let inside = n * 2;
            *hidden = Box::new(move || inside);
        });
    }
    out.store(late());
}

#[test]
fn a_value_cannot_leave_its_region_unseen() {
    expect(
        leaked::stage,
        "
        error: operand 1 of `store` is used before it is defined, or outside the region that defines it
          --> line +5:9
           |     out.store(cell.get());
        error: operand 1 of `store` is used before it is defined, or outside the region that defines it
          --> line +15:9
           |     out.store(late());
        error: kernel `leaked` was not staged: 2 errors
        ",
    );
}

#[kernel]
fn lengths(n: Val<u32>, out: Global<u32>) {
    let mut list = vec![n];
    if n > 1 {
        list.push(n + 1);
    }
    let mut other = vec![n];
    for i in 0..n {
        other.push(i);
    }
    let mut third = vec![n];
    while third[0] > 3 {
        third = vec![third[0], n];
    }
    let width = if n > 2 { out.load_vector(2) } else { out.load_vector(4) };
    out.store_vector(width);
}

#[test]
fn regions_cannot_change_how_many_values_there_are() {
    expect(lengths::stage, "
        error: the number of staged values in a variable changes here, from 1 to 2; only control flow of the host can do that
          --> line +2:5
           |     if n > 1 {
        error: the number of staged values in a variable changes here, from 1 to 2; only control flow of the host can do that
          --> line +6:5
           |     for i in 0..n {
        error: the number of staged values in a variable changes here, from 1 to 2; only control flow of the host can do that
          --> line +10:5
           |     while third[0] > 3 {
        error: the arms of this `if` give 2xu32 and 4xu32; both must give the same type
          --> line +13:17
           |     let width = if n > 2 { out.load_vector(2) } else { out.load_vector(4) };
        error: kernel `lengths` was not staged: 4 errors
        ");
}

#[kernel]
fn inside(n: Val<u32>, x: Val<f32>) {
    print("{} and {}", &[&n]);
    print("nothing", &[&x]);
}

#[test]
fn a_format_has_a_place_for_each_value() {
    expect(
        inside::stage,
        r#"
        error: the format "{} and {}" has 2 places for 1 values
          --> line +1:5
           |     print("{} and {}", &[&n]);
        error: the format "nothing" has 0 places for 1 values
          --> line +2:5
           |     print("nothing", &[&x]);
        error: kernel `inside` was not staged: 2 errors
        "#,
    );
}

// ---- launch ----------------------------------------------------------------------------------------------------------------------

#[kernel(threads = 2000, cluster = (32, 1, 1))]
fn bounds() {
    barrier();
}

#[kernel(threads = 0)]
fn nobody() {
    barrier();
}

#[test]
fn launch_bounds_have_limits() {
    expect(
        bounds::stage,
        "
        error: a block of 2000 threads; expected 1 to 1024
          --> line -1:10
           | #[kernel(threads = 2000, cluster = (32, 1, 1))]
        error: a cluster of 32 blocks; expected 1 to 8, or 16 where the chip allows it
          --> line -1:26
           | #[kernel(threads = 2000, cluster = (32, 1, 1))]
        error: kernel `bounds` was not staged: 2 errors
        ",
    );
    expect(
        nobody::stage,
        "
        error: a block of 0 threads; expected 1 to 1024
          --> line -1:10
           | #[kernel(threads = 0)]
        error: kernel `nobody` was not staged: 1 error
        ",
    );
}

#[kernel(threads = 100)]
fn part_of_a_warp(x: View<f32, 1>, out: View<f32, 1>) {
    out.partition([64]).store(x.partition([64]).load());
}

#[test]
fn programs_have_whole_warps() {
    expect(
        part_of_a_warp::stage,
        "
        error: a program of 100 threads; a kernel on tiles has whole warps, expected a multiple of 32
          --> line +1:9
           |     out.partition([64]).store(x.partition([64]).load());
        error: kernel `part_of_a_warp` was not staged: 1 error
        ",
    );
}

#[kernel(threads = 256)]
fn overlapping(out: Global<u32>) {
    role(&Role { name: "a", warps: 0..4, registers: Some(240) }, || out.store(1u32));
    role(&Role { name: "b", warps: 2..8, registers: Some(100) }, || out.store(2u32));
    role(&Role { name: "c", warps: 8..12, registers: None }, || out.store(3u32));
    role(&Role { name: "d", warps: 9..9, registers: None }, || {
        role(&Role { name: "e", warps: 0..1, registers: None }, || out.store(4u32));
    });
}

#[kernel(threads = 384)]
fn greedy(out: Global<u32>) {
    role(&Role { name: "a", warps: 0..4, registers: Some(168) }, || out.store(1u32));
    role(&Role { name: "b", warps: 4..12, registers: Some(240) }, || out.store(2u32));
}

#[test]
fn roles_divide_the_block_and_its_registers() {
    expect(
        overlapping::stage,
        r#"
        error: roles "a" and "b" share warps
          --> line +2:5
           |     role(&Role { name: "b", warps: 2..8, registers: Some(100) }, || out.store(2u32));
        error: role "b" sets its registers, so it must be whole warpgroups: warps 2..8 are not
          --> line +2:5
           |     role(&Role { name: "b", warps: 2..8, registers: Some(100) }, || out.store(2u32));
        error: role "b" asks for 100 registers, expected a multiple of 8 from 24 to 256
          --> line +2:5
           |     role(&Role { name: "b", warps: 2..8, registers: Some(100) }, || out.store(2u32));
        error: role "c" takes warps 8..12 of a block with 8 warps
          --> line +3:5
           |     role(&Role { name: "c", warps: 8..12, registers: None }, || out.store(3u32));
        error: role "d" takes warps 9..9 of a block with 8 warps
          --> line +4:5
           |     role(&Role { name: "d", warps: 9..9, registers: None }, || {
        error: roles "c" and "d" share warps
          --> line +4:5
           |     role(&Role { name: "d", warps: 9..9, registers: None }, || {
        error: `role` stands inside another region; roles divide the whole block, so put it at the top of the kernel
          --> line +5:9
           |         role(&Role { name: "e", warps: 0..1, registers: None }, || out.store(4u32));
        error: kernel `overlapping` was not staged: 7 errors
        "#,
    );
    expect(
        greedy::stage,
        r#"
        error: the roles ask for 82944 registers, a multiprocessor has 65536
          --> line +2:5
           |     role(&Role { name: "b", warps: 4..12, registers: Some(240) }, || out.store(2u32));
        error: kernel `greedy` was not staged: 1 error
        "#,
    );
}

// ---- memory ----------------------------------------------------------------------------------------------------------------------

#[kernel]
fn alignment(x: Global<f32>) {
    let further = x.at(4);
    further.aligned(16).store(1.0);
    x.aligned(12).store(2.0);
}

#[test]
fn alignment_is_a_promise_about_a_parameter() {
    expect(
        alignment::stage,
        "
        error: `aligned` is a promise about a parameter; call it on the parameter itself
          --> line +2:13
           |     further.aligned(16).store(1.0);
        error: an alignment of 12 bytes; expected a power of two
          --> line +3:7
           |     x.aligned(12).store(2.0);
        error: kernel `alignment` was not staged: 2 errors
        ",
    );
}

#[kernel]
fn tiles(i: Val<u32>) {
    let tile = Shared::<f32>::new("(4,8):(8,1)");
    tile.view::<u64>("32:1").at([i]).store(1u64);
    tile.at([i]).store(1.0);
    tile.row_block(0u32, 3).at((i, i)).store(2.0);
    // One report each: what follows from a tile that cannot be made is not worth telling.
    Shared::<f32>::new("(512,512):(1,512)").at((i, i)).store(3.0);
    Shared::<f32>::new("(4,8:(8,1)").row_block(i, 2).at((i, i)).store(4.0);
    Shared::<bf16>::new(k_major::<bf16>(64, 24, SwizzleMode::B128)).view::<u8>("64:1").at([i]).store(0u8);
    let swizzled = Shared::<bf16>::new(k_major::<bf16>(64, 64, SwizzleMode::B128));
    swizzled.row_block(i, 4).at((i, i)).store(bf16::ONE);
}

#[test]
fn tiles_are_checked() {
    expect(
        tiles::stage,
        r#"
        error: a view of 256 bytes on a tile of 128
          --> line +2:10
           |     tile.view::<u64>("32:1").at([i]).store(1u64);
        error: 1 coordinates for S<0,0,0> o 0 o (4,8):(8,1), which has 2 modes
          --> line +3:10
           |     tile.at([i]).store(1.0);
        error: S<0,0,0> o 0 o (4,8):(8,1) cannot be cut into blocks of 3 rows: it has 4 rows
          --> line +4:10
           |     tile.row_block(0u32, 3).at((i, i)).store(2.0);
        error: a tile of 262144 elements does not fit in shared memory
          --> line +6:5
           |     Shared::<f32>::new("(512,512):(1,512)").at((i, i)).store(3.0);
        error: cannot read `(4,8:(8,1)` at column 5: found `:`, expected `,` or `)`
          --> line +7:5
           |     Shared::<f32>::new("(4,8:(8,1)").row_block(i, 2).at((i, i)).store(4.0);
        error: no 128-byte swizzled K-major tile of 64x24 bf16: k must be a multiple of 64, 128 bytes; or choose another swizzle
          --> line +8:5
           |     Shared::<bf16>::new(k_major::<bf16>(64, 24, SwizzleMode::B128)).view::<u8>("64:1").at([i]).store(0u8);
        error: S<3,3,3> o 0 o (64,64):(64,1) cannot be cut into blocks of 4 rows: the blocks do not lie at equal distances
          --> line +10:14
           |     swizzled.row_block(i, 4).at((i, i)).store(bf16::ONE);
        error: kernel `tiles` was not staged: 7 errors
        "#,
    );
}

#[kernel]
fn sizes(x: Global<f32>, p: Val<bool>, n: Val<u32>) {
    let to = Shared::<f32>::new("64:1").ptr();
    copy_async(to, x, 3);
    copy_async_if(p, to, x, 8);
    NamedBarrier::new(1u32, 48).wait();
    let (y, _) = shuffle_in(Shuffle::Up, n, 1u32, ALL_LANES, 12);
    x.at(y).store(to.at(i32::MAX).load());
}

#[test]
fn sizes_are_checked() {
    expect(
        sizes::stage,
        "
        error: an asynchronous copy of 12 bytes; expected 4, 8 or 16
          --> line +2:5
           |     copy_async(to, x, 3);
        error: an asynchronous copy of 32 bytes; expected 4, 8 or 16
          --> line +3:5
           |     copy_async_if(p, to, x, 8);
        error: a barrier of 48 threads; expected a multiple of 32 up to 1024
          --> line +4:5
           |     NamedBarrier::new(1u32, 48).wait();
        error: a shuffle among 12 lanes; expected a power of two up to 32
          --> line +5:18
           |     let (y, _) = shuffle_in(Shuffle::Up, n, 1u32, ALL_LANES, 12);
        error: an offset of 8589934588 bytes into shared memory
          --> line +6:22
           |     x.at(y).store(to.at(i32::MAX).load());
        error: kernel `sizes` was not staged: 5 errors
        ",
    );
}

// ---- copies ----------------------------------------------------------------------------------------------------------------------

#[kernel]
fn boxes(m: TensorMap<bf16>, n: Val<i32>, row: Val<u32>) {
    let bar = Mbarrier::array(1, "bar");
    let wide = Shared::<bf16>::new(k_major::<bf16>(64, 64, SwizzleMode::B128));
    let narrow = Shared::<bf16>::new(k_major::<bf16>(64, 32, SwizzleMode::B64));
    m.load(row, 0, wide, bar);
    m.load(row, 0, narrow, bar);
    m.load(row, 0, Shared::new("(8,8):(9,1)"), bar);
    m.load_box(wide.ptr(), bar, &[n; 6], CopyOptions::new());
    m.load_im2col(wide.ptr(), bar, &[n; 4], &[], CopyOptions::new());
    EditableMap::new(wide.ptr().cast()).set_stride(0, 16u64);
}

#[test]
fn a_tensor_map_has_one_box() {
    expect(
        boxes::stage,
        r#"
        error: this tensor map is used with boxes [64, 64] 128-byte swizzled and [32, 64] 64-byte swizzled; one map has one box: pass the tensor twice
          --> line +5:7
           |     m.load(row, 0, narrow, bar);
        error: TMA cannot address the tile S<0,0,0> o 0 o (8,8):(9,1) of bf16: as unswizzled K-major, a box starts at byte 18, expected a multiple of 128; `smem_tile` builds tiles that fit
          --> line +6:7
           |     m.load(row, 0, Shared::new("(8,8):(9,1)"), bar);
        error: dimension 0 of a tensor map is contiguous; set the stride of 1 and up
          --> line +9:41
           |     EditableMap::new(wide.ptr().cast()).set_stride(0, 16u64);
        error: `tma_load` has rank 6, expected 1 to 5, with im2col 3 to 5
          --> line +7:7
           |     m.load_box(wide.ptr(), bar, &[n; 6], CopyOptions::new());
        error: `tma_load` of rank 4 with flags(im2col) takes i32, i32, i32, i32, u16, u16 after its first 3 operands, found i32, i32, i32, i32
          --> line +8:7
           |     m.load_im2col(wide.ptr(), bar, &[n; 4], &[], CopyOptions::new());
        error: kernel `boxes` was not staged: 5 errors
        "#,
    );
}

// ---- tensor cores ----------------------------------------------------------------------------------------------------------------

#[kernel(threads = 128)]
fn accumulators() {
    let a = Shared::<bf16>::new(k_major::<bf16>(64, 64, SwizzleMode::B128));
    let b = Shared::<bf16>::new(k_major::<bf16>(16, 64, SwizzleMode::B128));
    let sums = Accumulator::<f32>::new(64, 16);
    sums.multiply(Shared::<bf16>::new("(64,64):(72,1)"), b, true);
    sums.multiply(a, Shared::<bf16>::new(k_major::<bf16>(32, 64, SwizzleMode::B128)), true);
    sums.multiply(a, Shared::<bf16>::new(k_major::<bf16>(16, 32, SwizzleMode::B64)), true);
    sums.multiply(Shared::<bf16>::new(k_major::<bf16>(128, 64, SwizzleMode::B128)), b, true);
    sums.multiply(a, Shared::<f16>::new(k_major::<f16>(16, 64, SwizzleMode::B128)), true);
    sums.multiply_registers::<bf16, bf16>(&[], b, true);
    sums.set(&[]);
    let fp8 = Accumulator::<f32>::new(64, 64);
    fp8.multiply(
        Shared::<E4m3>::new(k_major::<E4m3>(64, 32, SwizzleMode::B32)),
        Shared::<E4m3>::new(mn_major::<E4m3>(64, 32, SwizzleMode::B64)),
        false,
    );
}

#[kernel(threads = 128)]
fn no_such_accumulator() {
    let odd = Accumulator::<f32>::new(48, 12);
    odd.wait(0);
    let sums = Accumulator::<f64>::new(64, 8).finish();
    assert!(sums.is_empty());
    let sums = Accumulator::<f32>::new(64, 16).finish()[0];
    assert_eq!(sums.columns(8, 16).extents(), sums.extents());
}

#[test]
fn warpgroup_products_are_checked() {
    expect(
        accumulators::stage,
        r#"
        error: wgmma cannot address the tile S<0,0,0> o 0 o (64,64):(72,1) of bf16: as unswizzled K-major, element (1,0) must lie at byte 16 before the swizzle, not 144; `smem_tile` builds tiles that fit
          --> line +4:10
           |     sums.multiply(Shared::<bf16>::new("(64,64):(72,1)"), b, true);
        error: B has 32 columns and 4 steps of k; expected 16 and 4, those of the accumulator and of A
          --> line +5:10
           |     sums.multiply(a, Shared::<bf16>::new(k_major::<bf16>(32, 64, SwizzleMode::B128)), true);
        error: B has 16 columns and 2 steps of k; expected 16 and 4, those of the accumulator and of A
          --> line +6:10
           |     sums.multiply(a, Shared::<bf16>::new(k_major::<bf16>(16, 32, SwizzleMode::B64)), true);
        error: A has 128 rows, the accumulator 64
          --> line +7:10
           |     sums.multiply(Shared::<bf16>::new(k_major::<bf16>(128, 64, SwizzleMode::B128)), b, true);
        error: no tensor-core instruction computes bf16 * f16 + f32 as m64n16k16; nearest are f16 * f16 + f32, bf16 * bf16 + f32
          --> line +8:10
           |     sums.multiply(a, Shared::<f16>::new(k_major::<f16>(16, 64, SwizzleMode::B128)), true);
        error: A has fragments for 0 rows, the accumulator 64
          --> line +9:10
           |     sums.multiply_registers::<bf16, bf16>(&[], b, true);
        error: 0 fragments for an accumulator of 1
          --> line +10:10
           |     sums.set(&[]);
        error: wgmma cannot address the tile S<2,4,3> o 0 o (64,32):(1,64) of e4m3: it is 64-byte swizzled MN-major, which wgmma reads only with 16-bit elements; `smem_tile` builds tiles that fit
          --> line +12:9
           |     fp8.multiply(
        error: kernel `accumulators` was not staged: 8 errors
        "#,
    );
    expect(
        no_such_accumulator::stage,
        "
        error: an accumulator of 48 times 12; expected multiples of 64 and 8
          --> line +1:15
           |     let odd = Accumulator::<f32>::new(48, 12);
        error: no warpgroup multiplication accumulates 8 columns of f64
          --> line +3:47
           |     let sums = Accumulator::<f64>::new(64, 8).finish();
        error: columns 8 to 24 of a fragment of 16; expected multiples of 8 in the sums of a warpgroup
          --> line +6:21
           |     assert_eq!(sums.columns(8, 16).extents(), sums.extents());
        error: kernel `no_such_accumulator` was not staged: 3 errors
        ",
    );
}

#[kernel(threads = 32)]
fn warp_products(x: Global<f32>) {
    let none = WarpMma::<bf16, bf16, f32>::new((16, 16, 16));
    let wide = WarpMma::<bf16, bf16, f32>::new((64, 8, 16));
    assert_eq!((none.shape(), wide.shape()), ((1, 1, 1), (1, 1, 1)));
    let mma = WarpMma::<bf16, bf16, f32>::new((16, 8, 16));
    let loaded = mma.load_a(Shared::new("(16,16):(17,2)"), 0, 0);
    let gathered = mma.gather_b(|_, _, _| Vector::splat(bf16::ONE, 4));
    let c = mma.multiply(loaded, gathered, mma.zero());
    x.store_vector(c.with_values(x.load_vector(2)).values());
    let double = WarpMma::<f64, f64, f64>::new((8, 8, 4));
    let f64s = double.load_a(Shared::new("(8,4):(4,1)"), 0, 0);
    x.store(f64s.values().get(0).cast());
}

#[test]
fn warp_products_are_checked() {
    expect(
        warp_products::stage,
        r#"
        error: no tensor-core instruction computes bf16 * bf16 + f32 as m16n16k16; these types have m16n8k8, m16n8k16, m64n256k16 (and every n from 8 to 256 in steps of 8 for m64)
          --> line +1:16
           |     let none = WarpMma::<bf16, bf16, f32>::new((16, 16, 16));
        error: wgmma.m64n8k16.f32.bf16.bf16 belongs to a warpgroup; use Accumulator
          --> line +2:16
           |     let wide = WarpMma::<bf16, bf16, f32>::new((64, 8, 16));
        error: S<0,0,0> o 0 o (16,16):(17,2) has no contiguous mode, so matrices cannot be moved from or to it
          --> line +5:22
           |     let loaded = mma.load_a(Shared::new("(16,16):(17,2)"), 0, 0);
        error: 4 elements for a run of 2 of a fragment
          --> line +6:24
           |     let gathered = mma.gather_b(|_, _, _| Vector::splat(bf16::ONE, 4));
        error: a fragment of 4 elements, given 2
          --> line +8:22
           |     x.store_vector(c.with_values(x.load_vector(2)).values());
        error: ldmatrix and stmatrix cannot move the fragment ((4,8),((1,1,1),1)):((8,1),((8,8,32),8)) of f64: expected elements of 8, 16 or 32 bits
          --> line +10:23
           |     let f64s = double.load_a(Shared::new("(8,4):(4,1)"), 0, 0);
        error: kernel `warp_products` was not staged: 6 errors
        "#,
    );
}

// ---- outside of staging ----------------------------------------------------------------------------------------------------------

#[test]
#[should_panic(expected = "kernel values exist only while a kernel is being staged")]
fn values_outside_of_a_kernel_are_a_mistake_in_the_program() {
    let _ = val(1u32);
}

#[kernel]
fn panics(fail: bool) {
    barrier();
    assert!(!fail, "the host code of this kernel panics");
}

#[kernel]
fn within(out: Global<u32>) {
    out.store(1u32);
    let other = several::stage().unwrap_err();
    assert_eq!(other.diagnostics.len(), 3);
    out.store(2u32);
}

#[test]
fn panics_pass_through_and_kernels_can_be_staged_within_kernels() {
    let panic = std::panic::catch_unwind(|| panics::stage(true)).unwrap_err();
    assert!(panic.downcast_ref::<&str>().unwrap().contains("panics"));
    assert!(panics::stage(false).is_ok());
    let kernel = within::stage().unwrap();
    assert_eq!(kernel.ir().matches("store").count(), 2);
}

// ---- tiles -----------------------------------------------------------------------------------------------------------------------

#[kernel]
fn misfits(x: View<f32, 2>) {
    let a = x.tile([4, 8]).at((0, 0)).load();
    let b = Tile::zeros([4, 4]);
    let c = a + b;
    x.tile([4, 4]).at((0, 0)).store(c.exp());
    let mut sum = a.sum(1);
    sum += a;
    x.store_scalar((0, 0), sum.item());
    x.tile([4, 8]).at((0, 0)).store(a.map(|x| x * 2.0) - select(a > 0.0, b, sum));
}

#[test]
fn tiles_that_do_not_fit_are_named_with_their_line() {
    expect(
        misfits::stage,
        "
        error: tiles of 4x8 and 4x4 elements: extents must be equal, or one of them 1; `unsqueeze` adds an axis
          --> line +3:13
           |     let c = a + b;
        error: a tile of 4x8 stored to a box of 4x4; only extents of 1 grow
          --> line +4:31
           |     x.tile([4, 4]).at((0, 0)).store(c.exp());
        error: a tile of 4x1 elements cannot become one of 4x8 by an assignment with an operator
          --> line +6:5
           |     sum += a;
        error: `item` of a tile of 4x1 elements; expected one, reduce it first
          --> line +7:32
           |     x.store_scalar((0, 0), sum.item());
        error: tiles of 4x8 and 4x4 elements: extents must be equal, or one of them 1; `unsqueeze` adds an axis
          --> line +8:58
           |     x.tile([4, 8]).at((0, 0)).store(a.map(|x| x * 2.0) - select(a > 0.0, b, sum));
        error: kernel `misfits` was not staged: 5 errors
        ",
    );
}

#[kernel]
fn misshapen(x: View<f32, 2>, p: Global<f32>) {
    let _ = Tile::<f32>::zeros([4, 0]);
    let _ = Tile::<f32>::ones([1, 1, 1, 1, 1, 1]);
    let _ = Tile::iota(1, [8]);
    let a = x.tile([4, 8]).at((0, u32::MAX)).load();
    let _ = a.reshape([5, 8]);
    let _ = a.permute([0, 0]);
    let _ = a.permute([0, 1, 2]);
    let _ = arange(4).transpose();
    let _ = a.broadcast_to([8, 8]);
    let _ = a.squeeze(0);
    let _ = a.unsqueeze(4);
    let _ = a.cat(a.transpose(), 0);
    let _ = a.split();
    let _ = a.part(0, 3..5);
    let _ = a.part(0, 0..3).halves(0);
    let _ = a.sum(2);
    let _ = a.argmax(-3);
    let _ = a.item();
    let _ = dot(a, a, a);
    p.points(arange(8)).store(a.part(0, 0..1).transpose());
    let _ = x.extent(2);
    let _ = x.permute([1, 1]);
    let _ = x.row(0).unit_stride(0).shift(1).stride_multiple(0, 4).aligned(3);
    let _ = grouped_order(0, 1, 1, 0);
}

#[kernel]
fn without_axes(x: View<f32, 0>) {
    x.tile([]).at([0u32; 0]).prefetch();
}

/// A view of no dimensions has no tiles, which is said, whatever is asked of them.
#[test]
fn tiles_of_no_dimensions_are_reported() {
    expect(
        without_axes::stage,
        "
        error: a tile of no extents; expected 1 to 5 extents of at least 1, and at most 2^31 elements
          --> line +1:7
           |     x.tile([]).at([0u32; 0]).prefetch();
        error: kernel `without_axes` was not staged: 1 error
        ",
    );
}

#[kernel]
fn misplaced(x: View<f32, 2>, p: Global<u8>, q: Global<f64>, h: Global<f16>) {
    let _ = x.tile([4, 8]).at((0, 0)).load();
    let _ = x.tile([0, 8]);
    let _ = p.points(arange(8)).atomic_add(1);
    let _ = h.points(arange(8)).atomic_max(f16::ONE);
    let _ = p.points(arange(8)).atomic_cas(1, 2);
    let _ = q.points(arange(8)).atomic_add(1.0);
    let _ = x.tile([4, 8]).at((0, 0)).load().cast::<f16>();
}

#[test]
fn mistakes_are_reported_where_they_are_made_not_in_the_line_before() {
    expect(
        misplaced::stage,
        "
        error: a tile of 0 x 8; expected 1 to 5 extents of at least 1, and at most 2^31 elements
          --> line +2:15
           |     let _ = x.tile([0, 8]);
        error: an atomic `add` of u8; expected integers of 32 or 64 bits, f16, bf16, f32 or f64, convert or reduce tiles before
          --> line +3:33
           |     let _ = p.points(arange(8)).atomic_add(1);
        error: an atomic `max` of f16; expected integers of 32 or 64 bits, f32 or f64, convert or reduce tiles before
          --> line +4:33
           |     let _ = h.points(arange(8)).atomic_max(f16::ONE);
        error: an atomic `cas` of u8; expected elements of 32 or 64 bits
          --> line +5:33
           |     let _ = p.points(arange(8)).atomic_cas(1, 2);
        error: kernel `misplaced` was not staged: 4 errors
        ",
    );
}

#[test]
fn shapes_that_do_not_exist_are_refused_one_by_one() {
    expect(
        misshapen::stage,
        "
        error: a tile of 4 x 0; expected 1 to 5 extents of at least 1, and at most 2^31 elements
          --> line +1:13
           |     let _ = Tile::<f32>::zeros([4, 0]);
        error: a tile of 1 x 1 x 1 x 1 x 1 x 1; expected 1 to 5 extents of at least 1, and at most 2^31 elements
          --> line +2:13
           |     let _ = Tile::<f32>::ones([1, 1, 1, 1, 1, 1]);
        error: axis 1 of 1 dimension; expected -1 to 0
          --> line +3:13
           |     let _ = Tile::iota(1, [8]);
        error: position 4294967295 of an axis; positions are below 2^31
          --> line +4:28
           |     let a = x.tile([4, 8]).at((0, u32::MAX)).load();
        error: a tile of 4x8 has 32 elements, and 5x8 are 40; both must be equal
          --> line +5:15
           |     let _ = a.reshape([5, 8]);
        error: an order of axes [0, 0] for a tile of 4x8; expected each axis once
          --> line +6:15
           |     let _ = a.permute([0, 0]);
        error: axis 2 of 2 dimensions; expected -2 to 1
          --> line +7:15
           |     let _ = a.permute([0, 1, 2]);
        error: a tile of one dimension has no second axis to swap; `unsqueeze` adds one
          --> line +8:23
           |     let _ = arange(4).transpose();
        error: a tile of 4x8 cannot be broadcast to 8x8: only extents of 1 grow
          --> line +9:15
           |     let _ = a.broadcast_to([8, 8]);
        error: axis 0 of a tile of 4x8 cannot go; expected an extent of 1, and another axis besides
          --> line +10:15
           |     let _ = a.squeeze(0);
        error: axis 4 of 3 dimensions; expected -3 to 2
          --> line +11:15
           |     let _ = a.unsqueeze(4);
        error: tiles of 4x8 and 8x4 along axis 0; all other extents must be equal
          --> line +12:15
           |     let _ = a.cat(a.transpose(), 0);
        error: `split` of a tile of 4x8; expected two dimensions or more, the last with extent 2; `halves` cuts any axis
          --> line +13:15
           |     let _ = a.split();
        error: elements 3..5 of an extent of 4; expected some of those that exist
          --> line +14:15
           |     let _ = a.part(0, 3..5);
        error: halves of an extent of 3; expected an even one
          --> line +15:29
           |     let _ = a.part(0, 0..3).halves(0);
        error: axis 2 of 2 dimensions; expected -2 to 1
          --> line +16:15
           |     let _ = a.sum(2);
        error: axis -3 of 2 dimensions; expected -2 to 1
          --> line +17:15
           |     let _ = a.argmax(-3);
        error: `item` of a tile of 4x8 elements; expected one, reduce it first
          --> line +18:15
           |     let _ = a.item();
        error: `dot` of 4x8 and 4x8 elements onto 4x8; expected m x k, k x n and m x n, after the same axes where there are more
          --> line +19:13
           |     let _ = dot(a, a, a);
        error: a tile of 8x1 stored to 8 places; only extents of 1 grow
          --> line +20:25
           |     p.points(arange(8)).store(a.part(0, 0..1).transpose());
        error: axis 2 of 2 dimensions; expected -2 to 1
          --> line +21:15
           |     let _ = x.extent(2);
        error: an order of axes [1, 1] for a view of 2 dimensions; expected each axis once
          --> line +22:15
           |     let _ = x.permute([1, 1]);
        error: `unit_stride` is a promise about a parameter; call it on the parameter itself
          --> line +23:22
           |     let _ = x.row(0).unit_stride(0).shift(1).stride_multiple(0, 4).aligned(3);
        error: an alignment of 3 bytes; expected a power of two
          --> line +23:68
           |     let _ = x.row(0).unit_stride(0).shift(1).stride_multiple(0, 4).aligned(3);
        error: groups of 0 rows; expected at least 1
          --> line +24:13
           |     let _ = grouped_order(0, 1, 1, 0);
        error: kernel `misshapen` was not staged: 25 errors
        ",
    );
}

#[kernel]
fn growing(x: View<f32, 1>, n: Val<u32>) {
    let mut a = x.tile([8]).at(0).load();
    let mut b = a;
    for _ in 0..n {
        a = a.sum(0);
    }
    while b.max_all() > 1.0 {
        b = b.unsqueeze(0);
    }
    let c = if n > 3 { a } else { a.part(0, 0..1) };
    x.tile([8]).at(0).store(a + b + c);
}

#[test]
fn what_a_loop_carries_keeps_its_shape() {
    expect(
        growing::stage,
        "
        error: a variable that this loop carries is tile<8xf32> at the start of a round and tile<1xf32> at its end; its shape must stay
          --> line +3:5
           |     for _ in 0..n {
        error: a variable that this loop carries is tile<8xf32> at the start of a round and tile<1x8xf32> at its end; its shape must stay
          --> line +6:5
           |     while b.max_all() > 1.0 {
        error: the arms of this `if` give tile<8xf32> and tile<1xf32>; both must give the same type
          --> line +9:13
           |     let c = if n > 3 { a } else { a.part(0, 0..1) };
        error: kernel `growing` was not staged: 3 errors
        ",
    );
}

#[kernel]
fn threads(x: View<f32, 1>) {
    let mut a = x.tile([8]).at(0).load();
    a += a.map(|v| v + x.load_scalar(0));
    a += a.map(|v| v * a.max(0).item());
    barrier();
    x.tile([8]).at(thread_id(0)).store(a);
}

#[test]
fn what_threads_do_does_not_exist_beside_tiles() {
    expect(
        threads::stage,
        "
        error: `barrier` is for threads, and this kernel works on tiles: a program has no threads to name, only ids of programs
          --> line +4:5
           |     barrier();
        error: `special` is for threads, and this kernel works on tiles: a program has no threads to name, only ids of programs
          --> line +5:20
           |     x.tile([8]).at(thread_id(0)).store(a);
        error: `load_if` stands in a region that computes single elements, where only arithmetic can be
          --> line +2:26
           |     a += a.map(|v| v + x.load_scalar(0));
        error: `tile_reduce` stands in a region that computes single elements, where only arithmetic can be
          --> line +3:26
           |     a += a.map(|v| v * a.max(0).item());
        error: `item` stands in a region that computes single elements, where only arithmetic can be
          --> line +3:33
           |     a += a.map(|v| v * a.max(0).item());
        error: kernel `threads` was not staged: 5 errors
        ",
    );
}

#[kernel]
fn no_such_elements(x: View<f32, 2>) {
    let a = x.tile([4, 8]).at((0, 0)).load();
    let _ = a.take(Tile::iota(1, [3, 8]), 1);
    let _ = a.take(arange(8), 1);
    let _ = a.take(Tile::iota(1, [4, 8]), 2);
    let _ = a.flip(2);
    let _ = a.interleave(a.transpose());
    let _ = a.cast::<u32>().histogram(0);
    // Indices for all rows.
    x.tile([4, 3]).at((0, 0)).store(a.take(Tile::iota(1, [1, 3]), 1));
}

#[test]
fn indices_that_do_not_fit_are_named_with_their_line() {
    expect(
        no_such_elements::stage,
        "
        error: elements of a tile of 4x8 at indices of 3x8 along axis 1; expected as many axes, and equal extents or 1 along all others
          --> line +2:15
           |     let _ = a.take(Tile::iota(1, [3, 8]), 1);
        error: elements of a tile of 4x8 at indices of 8 along axis 1; expected as many axes, and equal extents or 1 along all others
          --> line +3:15
           |     let _ = a.take(arange(8), 1);
        error: axis 2 of 2 dimensions; expected -2 to 1
          --> line +4:15
           |     let _ = a.take(Tile::iota(1, [4, 8]), 2);
        error: axis 2 of 2 dimensions; expected -2 to 1
          --> line +5:15
           |     let _ = a.flip(2);
        error: tiles of 4x8x1 and 8x4x1 along axis -1; all other extents must be equal
          --> line +6:15
           |     let _ = a.interleave(a.transpose());
        error: a histogram of 0 bins; expected at least 1
          --> line +7:29
           |     let _ = a.cast::<u32>().histogram(0);
        error: kernel `no_such_elements` was not staged: 6 errors
        ",
    );
}
