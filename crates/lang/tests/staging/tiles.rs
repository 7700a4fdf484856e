//! Kernels of the tile level.

use tilewright_ir::{Constant, Opcode};
use tilewright_lang::tile::prelude::*;
use tilewright_passes::interp::Interpreter;

use crate::{count, expect, lines};

#[kernel]
fn softmax(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
    let row = program_id(0);
    let x = x.tile([1, columns]).at((row, 0)).load_or(f32::NEG_INFINITY);
    let e = (x - x.max(1)).exp2_fast();
    out.tile([1, columns]).at((row, 0)).store(e / e.sum(1));
}

#[kernel]
fn matmul(a: View<bf16, 2>, b: View<bf16, 2>, c: View<bf16, 2>, m: u32, n: u32, k: u32) {
    let (i, j) = (program_id(0), program_id(1));
    let mut acc = Tile::<f32>::zeros([m, n]);
    for step in 0..a.extent(1).div_ceil(k) {
        acc = dot(a.tile([m, k]).block((i, step)).load(), b.tile([k, n]).block((step, j)).load(), acc);
    }
    c.tile([m, n]).block((i, j)).store(acc.cast());
}

/// Every operator with tiles, values and constants on either side.
#[kernel]
fn operators(x: View<f32, 1>, n: Val<u32>, s: Val<f32>, conditions: View<bool, 1>) {
    let place = x.tile([8]).at(0);
    let x = place.load();
    let mut sum = 1.0 - x * s + s * x / 2.0 - (s - x);
    sum += 1.0;
    sum -= x;
    sum *= s;
    sum /= x;
    place.store(-sum);

    let i = arange(8);
    let mut bits = (7 & i) | (i ^ n) | (n & i) | (!i << 2u32) | (i >> i) | (1 % (i + 1));
    bits &= 5;
    bits |= i;
    bits ^= n;
    bits %= 3;
    bits <<= 1u32;
    bits >>= i;
    let mut mask = (bits < 4) & (bits <= i) & (n > bits) & (4 >= bits);
    mask = mask | (bits == n) & (bits != i) & (3 == i) ^ !mask;
    conditions.tile([8]).at([0u32]).store(mask & true);
}

/// Extents of 1 grow and missing axes are added, for operators as for functions of several tiles.
#[kernel]
fn broadcasts(x: View<f32, 2>, row: View<f32, 1>, column: View<f32, 2>) {
    let place = x.tile([4, 8]).at((0, 0));
    let row = row.tile([8]).at(0).load();
    let column = column.tile([4, 1]).at((0, 0)).load();
    let outer = row * column;
    assert_eq!(outer.shape().extents(), [4, 8]);
    assert_eq!((outer.rank(), outer.extent(0), outer.extent(-1)), (2, 4, 8));
    place.store(select(outer > 0.0, row, column).mul_add(column, 1.0).clamp(row, 9.0).pow(column));
    place.streaming().store(row);
    place.store(0.0);
    place.evict(Evict::First).store(row.broadcast_to([4, 8]));
}

/// Any code on single elements, with control flow.
#[kernel]
fn elements(x: View<f32, 1>, k: View<u32, 1>, n: Val<u32>) {
    let v = x.tile([64]).at(0).load();
    let (low, steps) = (v, arange(64)).map(|(v, i)| {
        let (mut low, mut steps) = (v, i);
        while low > 1.0 {
            low *= 0.5;
            steps += 1;
        }
        if steps > n {
            low = low.sin();
        }
        (low, steps)
    });
    x.tile([64]).at(0).store(low);
    k.tile([64]).at(0).store(steps);
}

/// Methods of `Val` as methods of `Tile`.
#[kernel]
fn methods<T: Float>(x: View<T, 1>, k: View<u32, 1>) {
    let x = x.tile([16]);
    let v = x.at(0).load();
    let rounded = [v.round_even(), v.floor(), v.ceil(), v.trunc(), v.abs(), v.relu()];
    for (i, tile) in (1u32..).zip(rounded) {
        x.block(i).store(tile.copysign(v).maximum(v).minimum(T::ONE).fmax(T::ZERO).fmin(v));
    }
    let i = v.cast_saturating::<u32>();
    let wide = i.mul_wide(3).cast::<u32>() + i.mul_hi(i).count_ones() + i.leading_zeros().reverse_bits();
    let odd =
        wide.div_ceil(2) + v.is_nan().cast::<u32>() + v.cast_rounded::<f32>(Round::Nearest).bitcast::<u32>();
    k.tile([16]).at(0).store(odd);
}

#[kernel]
fn functions(x: View<f32, 1>, h: View<bf16, 1>) {
    let x = x.tile([16]).at(0);
    let h = h.tile([16]).at(0);
    let v = x.load();
    x.store(
        v.exp() + v.log_fast() + v.gelu() + v.silu_fast() + v.tanh() + v.rsqrt() + v.recip_fast().pow(2.0),
    );
    h.store(h.load().sigmoid().sqrt());
}

#[kernel]
fn reductions(x: View<i32, 2>, out: View<i32, 1>, flags: View<bool, 2>) {
    let x = x.tile([4, 8]).at((0, 0)).load();
    let sums = x.sum(0) + x.product(1) + x.max(-1) + x.min(-2);
    let all = sums.sum_all() + x.max_all() - x.min_all() * x.product_all();
    out.store_scalar(0, all);
    let (value, place) = x.max_with_place(1);
    out.store_scalar(1, value.sum_all() + place.cast::<i32>().sum_all());
    out.store_scalar(2, x.argmin(0).cast::<i32>().max_all());
    let positive = x > 0;
    flags.tile([4, 8]).at((0, 0)).store(positive.any(0) & positive.all(1) & (positive.count(1) > 3));
    if positive.any_all() | positive.all_all() {
        out.store_scalar(3, x.part(0, 3..4).part(1, 7..8).item());
    }
}

/// The largest first, NaN before all numbers: floats compare in another way than integers.
#[kernel]
fn places(x: View<f32, 1>, out: View<u32, 1>) {
    let x = x.tile([8]).at(0).load();
    out.tile([1]).at(0).store(x.argmax(0));
}

#[kernel]
fn scans(x: View<f32, 2>) {
    let place = x.tile([4, 8]).at((0, 0));
    let x = place.load();
    let sums = x.cumsum(1) + x.cumsum_reverse(1) + x.cumprod(0) + x.cumprod_reverse(0);
    let extremes = x.cummax(1) + x.cummax_reverse(1) + x.cummin(0) + x.cummin_reverse(0);
    // A linear recurrence: y = a y + b, as a composition of affine functions.
    let (_, y) = (sums, extremes).scan(1, |(a, b), (c, d)| (a * c, c.mul_add(b, d)));
    let (_, z) = (sums, y).scan_reverse(1, |(a, b), (c, d)| (a * c, c.mul_add(b, d)));
    place.store(z);
}

#[kernel]
fn shapes(x: View<f32, 2>, y: View<f32, 3>) {
    let place = x.tile([4, 8]).at((0, 0));
    let x = place.load();
    let (even, odd) = x.reshape([4, 4, 2]).split();
    assert_eq!(even.shape().extents(), [4, 4]);
    place.store(odd.join(even).reshape([4, 8]));
    let (left, right) = x.halves(1);
    place.store(right.cat(left, 1).transpose().permute([-1, 0]));
    place.store(x.flip(1));
    let three = x.unsqueeze(0).squeeze(0).unsqueeze(-1);
    y.tile([4, 8, 1]).at((0, 0, 0)).store(three.transpose().transpose());
}

#[kernel]
fn views(x: View<f32, 3>, y: View<f32, 2>, p: Global<f32>, n: Val<u32>, start: Val<i32>) {
    let x = x.aligned(16).unit_stride(2).stride_multiple(1, 4).extent_multiple(-1, 8);
    let matrix = x.row(program_id(2)).transpose().shift((start, 1)).slice(0, 2u32, n);
    let first = x.select(2, 0).permute([1, 0]).load_scalar((0, start));
    let mut own = View::new(p, [n, n], [n.cast::<i64>(), val(1)]);
    for i in 0..y.tile([16, 1]).blocks(0) {
        y.tile([16, 1]).block((i, 0)).store(own.tile([16, 1]).block([i, i]).load() + first);
        own = own.shift((1, 0));
    }
    let place = matrix.tile([8, 8]).at((-1, 3usize));
    let inside = place.positions(0) <= place.positions(1);
    place.store(select(inside, place.load(), y.stride(0).cast::<f32>() + y.pointer().load()));
}

#[kernel]
fn points(table: View<bf16, 2>, ids: View<i64, 1>, out: View<bf16, 2>, p: Global<u32>) {
    let first = program_id(0) * 16u32;
    let id = ids.tile([16]).at(first).load_or(-1).unsqueeze(1);
    let rows = table.points((id, arange(32))).only(id != 3).streaming().load();
    out.points((arange(16).unsqueeze(1), Tile::iota(0, [32]).cast::<i32>())).store(rows);
    out.points((0, first)).evict(Evict::Last).store(bf16::ONE);
    let i = arange(16);
    let old = p.points(i).atomic_add(i) + p.points(i.cast::<i64>()).only(i < 9).atomic_max(2);
    let _ = p.points(old).atomic_min(i);
    let _ = p.points(old).atomic_and(p.gather(i, i > 2, 0));
    let _ = p.points(old).atomic_or(i);
    let _ = p.points(old).atomic_xor(1);
    let free = p.points(old).atomic_cas(0, i);
    let _ = p.points(old).atomic_exchange(free);
    p.scatter(i, true, 7);
}

#[kernel]
fn random(out: View<f32, 1>, words: View<u32, 1>, seed: Val<u64>) {
    let i = arange(32);
    let [a, b, c, d] = uniform4(seed, i.cast::<u64>());
    out.tile([32]).at(0).store(a + b + c + d + uniform(seed, i));
    let [a, b, c, d] = philox4(1, i);
    words.tile([32]).at(0).store(a ^ b ^ c ^ d ^ philox(seed, i));
}

#[kernel]
fn orders(out: View<u32, 1>) {
    let (i, j) = swizzle2d(program_id(0), program_id(1), num_programs(0), num_programs(1), 8);
    out.store_scalar(i, j);
}

/// Tiles chosen by a run-time `if`, and a loop over tiles by a condition.
#[kernel]
fn control(x: View<f32, 1>, flag: Val<bool>) {
    let place = x.tile([128]).block(program_id(0));
    let mut x = place.load();
    let shift = if flag { x.exp2_fast() } else { x };
    while x.max_all() > 1.0 {
        x = x * 0.5 - shift;
    }
    place.store(x);
}

#[kernel]
fn products(a: View<f32, 2>, b: View<i8, 2>, out: View<i32, 2>) {
    let a = a.tile([16, 16]).at((0, 0));
    a.store(dot_tf32(a.load(), a.load(), dot(a.load(), a.load().transpose(), Tile::ones([16, 16]))));
    let b = b.tile([16, 32]).at((0, 0)).load();
    out.tile([16, 16]).at((0, 0)).store(dot(b, b.transpose(), Tile::full([16, 16], 3)));
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [
        softmax::stage(1000),
        matmul::stage(64, 32, 16),
        operators::stage(),
        broadcasts::stage(),
        elements::stage(),
        methods::stage::<f32>(),
        methods::stage::<f16>(),
        functions::stage(),
        reductions::stage(),
        places::stage(),
        scans::stage(),
        shapes::stage(),
        views::stage(),
        points::stage(),
        random::stage(),
        orders::stage(),
        control::stage(),
        products::stage(),
    ]
    .map(|staged| staged.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

#[test]
fn a_row_is_loaded_reduced_and_stored() {
    expect(
        &softmax::stage(1000).unwrap(),
        "
        func @softmax (%x: ptr<global> align(4), %x_extent0: u32, %x_extent1: u32, %x_stride0: i64, %x_stride1: i64, %out: ptr<global> align(4), %out_extent0: u32, %out_extent1: u32, %out_stride0: i64, %out_stride1: i64) {
          %0 = special reg(ctaid.x) : u32
          %1 = bitcast %0 : i32
          %2 = const value(0) : i32
          %3 = const value(0xff800000) : f32
          %4 = tile_load %x, %1, %2, %x_extent0, %x_extent1, %x_stride0, %x_stride1, %3 : tile<1x1000xf32>
          %5 = tile_reduce %4 axis(1) : tile<1x1xf32> do {
            (%6: f32, %7: f32)
            %8 = max %6, %7 flags(nan) : f32
            yield %8
          }
          %9 = broadcast %5 : tile<1x1000xf32>
          %10 = map %4, %9 : tile<1x1000xf32> do {
            (%11: f32, %12: f32)
            %13 = sub %11, %12 : f32
            yield %13
          }
          %14 = map %10 : tile<1x1000xf32> do {
            (%15: f32)
            %16 = ex2 %15 flags(ftz approx) : f32
            yield %16
          }
          %17 = bitcast %0 : i32
          %18 = const value(0) : i32
          %19 = tile_reduce %14 axis(1) : tile<1x1xf32> do {
            (%20: f32, %21: f32)
            %22 = add %20, %21 : f32
            yield %22
          }
          %23 = broadcast %19 : tile<1x1000xf32>
          %24 = map %14, %23 : tile<1x1000xf32> do {
            (%25: f32, %26: f32)
            %27 = div %25, %26 : f32
            yield %27
          }
          tile_store %out, %24, %17, %18, %out_extent0, %out_extent1, %out_stride0, %out_stride1
        }
        ",
    );
}

#[test]
fn a_loop_carries_the_tile_of_sums() {
    expect(
        &matmul::stage(64, 32, 16).unwrap(),
        "
        func @matmul (%a: ptr<global> align(2), %a_extent0: u32, %a_extent1: u32, %a_stride0: i64, %a_stride1: i64, %b: ptr<global> align(2), %b_extent0: u32, %b_extent1: u32, %b_stride0: i64, %b_stride1: i64, %c: ptr<global> align(2), %c_extent0: u32, %c_extent1: u32, %c_stride0: i64, %c_stride1: i64) {
          %0 = special reg(ctaid.x) : u32
          %1 = special reg(ctaid.y) : u32
          %2 = const value(0.0) : f32
          %3 = splat %2 : tile<64x32xf32>
          %4 = const value(16) : u32
          %5 = add %a_extent1, %4 : u32
          %6 = const value(1) : u32
          %7 = sub %5, %6 : u32
          %8 = div %7, %4 : u32
          %9 = const value(0) : u32
          %10 = const value(1) : u32
          %11 = for %9, %8, %10, %3 : tile<64x32xf32> do {
            (%12: u32, %13: tile<64x32xf32>)
            %14 = const value(64) : u32
            %15 = mul %0, %14 : u32
            %16 = bitcast %15 : i32
            %17 = const value(16) : u32
            %18 = mul %12, %17 : u32
            %19 = bitcast %18 : i32
            %20 = const value(0x0) : bf16
            %21 = tile_load %a, %16, %19, %a_extent0, %a_extent1, %a_stride0, %a_stride1, %20 : tile<64x16xbf16>
            %22 = const value(16) : u32
            %23 = mul %12, %22 : u32
            %24 = bitcast %23 : i32
            %25 = const value(32) : u32
            %26 = mul %1, %25 : u32
            %27 = bitcast %26 : i32
            %28 = const value(0x0) : bf16
            %29 = tile_load %b, %24, %27, %b_extent0, %b_extent1, %b_stride0, %b_stride1, %28 : tile<16x32xbf16>
            %30 = dot %21, %29, %13 : tile<64x32xf32>
            yield %30
          }
          %31 = const value(64) : u32
          %32 = mul %0, %31 : u32
          %33 = bitcast %32 : i32
          %34 = const value(32) : u32
          %35 = mul %1, %34 : u32
          %36 = bitcast %35 : i32
          %37 = map %11 : tile<64x32xbf16> do {
            (%38: f32)
            %39 = cvt %38 : bf16
            yield %39
          }
          tile_store %c, %37, %33, %36, %c_extent0, %c_extent1, %c_stride0, %c_stride1
        }
        ",
    );
}

#[test]
fn the_place_of_the_largest_is_the_first_among_equals() {
    expect(
        &places::stage().unwrap(),
        "
        func @places (%x: ptr<global> align(4), %x_extent0: u32, %x_stride0: i64, %out: ptr<global> align(4), %out_extent0: u32, %out_stride0: i64) {
          %0 = const value(0) : i32
          %1 = const value(0.0) : f32
          %2 = tile_load %x, %0, %x_extent0, %x_stride0, %1 : tile<8xf32>
          %3 = const value(0) : i32
          %4 = iota axis(0) : tile<8xu32>
          %5, %6 = tile_reduce %2, %4 axis(0) : tile<1xf32>, tile<1xu32> do {
            (%7: f32, %8: u32, %9: f32, %10: u32)
            %11 = cmp %9, %7 cmp(gt) : bool
            %12 = cmp %9, %9 cmp(ne) : bool
            %13 = cmp %7, %7 cmp(eq) : bool
            %14 = and %12, %13 : bool
            %15 = or %11, %14 : bool
            %16 = cmp %7, %9 cmp(gt) : bool
            %17 = cmp %7, %7 cmp(ne) : bool
            %18 = cmp %9, %9 cmp(eq) : bool
            %19 = and %17, %18 : bool
            %20 = or %16, %19 : bool
            %21 = not %20 : bool
            %22 = cmp %10, %8 cmp(lt) : bool
            %23 = and %21, %22 : bool
            %24 = or %15, %23 : bool
            %25 = select %24, %9, %7 : f32
            %26 = select %24, %10, %8 : u32
            yield %25, %26
          }
          tile_store %out, %6, %3, %out_extent0, %out_stride0
        }
        ",
    );
}

#[test]
fn shapes_broadcast_as_in_numpy() {
    let kernel = broadcasts::stage().unwrap();
    assert!(lines(&kernel, "map").iter().all(|line| line.starts_with("map : tile<4x8x")), "{}", kernel.ir());
    assert!(lines(&kernel, "reshape").iter().all(|line| line == "reshape : tile<1x8xf32>"));
    assert_eq!(
        lines(&kernel, "tile_store"),
        ["tile_store", "tile_store cache(cs)", "tile_store", "tile_store evict(evict_first)"]
    );
}

#[test]
fn operators_are_one_map_each_and_scalars_stay_scalars() {
    let kernel = operators::stage().unwrap();
    let (func, mut operands) = (kernel.func(), Vec::new());
    for op in func.walk() {
        let data = func.op(op);
        if data.code == Opcode::Map {
            operands.push(data.operands.len());
            assert_eq!(func.region(data.regions[0]).ops.len(), 2, "one op and its yield");
        }
    }
    // 7 of the sum, 4 by assignment, the sign; 13 of the bits, 6 by assignment; 7 and 8 of the mask, and the last `&`.
    assert_eq!(operands.len(), 12 + 19 + 16);
    assert!(operands.iter().all(|n| (1..=2).contains(n)));
    assert_eq!((count(&kernel, Opcode::Splat), count(&kernel, Opcode::Broadcast)), (0, 0));
}

#[test]
fn code_on_elements_may_branch_and_loop() {
    let kernel = elements::stage().unwrap();
    assert_eq!(lines(&kernel, "map"), ["map : tile<64xf32>, tile<64xu32> do {"]);
    assert_eq!(lines(&kernel, "while"), ["while : f32, u32 test {"]);
}

#[test]
fn reductions_keep_their_axis() {
    let kernel = reductions::stage().unwrap();
    let found = lines(&kernel, "tile_reduce");
    assert_eq!(
        found[..4],
        [
            "tile_reduce axis(0) : tile<1x8xi32> do {",
            "tile_reduce axis(1) : tile<4x1xi32> do {",
            "tile_reduce axis(1) : tile<4x1xi32> do {",
            "tile_reduce axis(0) : tile<1x8xi32> do {",
        ]
    );
    assert!(found.contains(&"tile_reduce axis(1) : tile<4x1xi32>, tile<4x1xu32> do {".to_owned()));
    // Integers have no NaN to propagate.
    assert!(lines(&kernel, "max").iter().all(|line| line == "max : i32"));
    assert_eq!(lines(&kernel, "item").last().unwrap(), "item : i32");
}

#[test]
fn scans_go_both_ways() {
    let found = lines(&scans::stage().unwrap(), "tile_scan");
    let reverse =
        |line: &&String| line.contains("axis(1) flags(reverse)") || line.contains("axis(0) flags(reverse)");
    assert_eq!((found.len(), found.iter().filter(reverse).count()), (10, 5));
    assert_eq!(found[8], "tile_scan axis(1) : tile<4x8xf32>, tile<4x8xf32> do {");
}

#[test]
fn shapes_change_without_their_elements() {
    let kernel = shapes::stage().unwrap();
    assert_eq!(
        lines(&kernel, "part"),
        [
            "part axis(2) index(0) : tile<4x4x1xf32>",
            "part axis(2) index(1) : tile<4x4x1xf32>",
            "part axis(1) index(0) : tile<4x4xf32>",
            "part axis(1) index(4) : tile<4x4xf32>",
        ]
    );
    assert_eq!(lines(&kernel, "cat"), ["cat axis(2) : tile<4x4x2xf32>", "cat axis(1) : tile<4x8xf32>"]);
    assert_eq!(
        lines(&kernel, "transpose"),
        [
            "transpose axes(1,0) : tile<8x4xf32>",
            "transpose axes(1,0) : tile<4x8xf32>",
            "transpose axes(0,2,1) : tile<4x1x8xf32>",
            "transpose axes(0,2,1) : tile<4x8x1xf32>",
        ]
    );
}

#[test]
fn a_view_is_a_pointer_extents_and_strides() {
    let kernel = views::stage().unwrap();
    let parameters: Vec<(&str, String, u32)> =
        kernel.parameters().map(|(name, ty, align)| (name, ty.to_string(), align)).collect();
    let expected = [
        ("x", "ptr<global>", 16),
        ("x_extent0", "u32", 0),
        ("x_extent1", "u32", 0),
        ("x_extent2", "u32", 8),
        ("x_stride0", "i64", 0),
        ("x_stride1", "i64", 4),
        ("x_stride2", "i64", 0),
        ("y", "ptr<global>", 4),
    ];
    assert_eq!(parameters[..8], expected.map(|(name, ty, align)| (name, ty.to_owned(), align)));
    assert_eq!(kernel.element("y"), Some(f32::ELEMENT));
}

#[test]
fn a_kernel_says_what_it_does_to_its_views() {
    let uses = |kernel: &Kernel| -> Vec<(String, bool, bool)> {
        kernel.views().iter().map(|view| (view.name.clone(), view.reads, view.writes)).collect()
    };
    let of = |name: &str, reads: bool, writes: bool| (name.to_owned(), reads, writes);
    assert_eq!(
        uses(&matmul::stage(16, 16, 16).unwrap()),
        [of("a", true, false), of("b", true, false), of("c", false, true)]
    );
    // Through parts of views.
    let kernel = views::stage().unwrap();
    assert_eq!(uses(&kernel), [of("x", true, true), of("y", true, true)]);
    let x = &kernel.views()[0];
    assert_eq!((x.element, x.rank, &x.unit_strides[..]), (f32::ELEMENT, 3, &[false, false, true][..]));
    assert_eq!(
        uses(&points::stage().unwrap()),
        [of("table", true, false), of("ids", true, false), of("out", false, true)]
    );
    assert_eq!(
        uses(&carried::stage().unwrap()),
        [of("x", true, false), of("y", false, true), of("z", false, false)]
    );
    assert_eq!(uses(&counted::stage().unwrap()), [of("x", true, true), of("y", true, true)]);
}

/// Views that loops and `if`s hand on.
#[kernel]
fn carried(x: View<f32, 1>, y: View<f32, 1>, z: View<f32, 1>, flag: Val<bool>) {
    let (mut from, mut to) = (x, y);
    for _ in 0..z.extent(0) {
        from = from.shift(4);
        if flag {
            to = to.shift(4);
        }
        to.tile([4]).at(0).store(from.tile([4]).at(0).load());
    }
}

/// Memory that is changed in place, and a pointer that becomes a number.
#[kernel]
fn counted(x: View<u32, 1>, y: View<u64, 1>) {
    let _ = x.points(arange(4)).atomic_add(1);
    let _ = x.tile([4]).at(0).load().cast::<u64>() + y.pointer().address();
}

#[test]
fn gathers_know_the_bounds_of_a_view() {
    let kernel = points::stage().unwrap();
    assert_eq!(lines(&kernel, "gather"), ["gather cache(cs) : tile<16x32xbf16>", "gather : tile<16xu32>"]);
    assert_eq!(lines(&kernel, "scatter"), ["scatter", "scatter evict(evict_last)", "scatter"]);
    let ops = ["add", "max", "min", "and", "or", "xor", "exch"]
        .map(|op| format!("tile_atomic op({op}) : tile<16xu32>"));
    assert_eq!(lines(&kernel, "tile_atomic"), ops);
    assert_eq!(lines(&kernel, "tile_atomic_cas"), ["tile_atomic_cas : tile<16xu32>"]);
}

#[test]
fn tiles_leave_branches_and_loops() {
    let kernel = control::stage().unwrap();
    assert_eq!(lines(&kernel, "if"), ["if : tile<128xf32> then {"]);
    assert_eq!(lines(&kernel, "while"), ["while : tile<128xf32> test {"]);
}

#[test]
fn products_say_how_precise_they_are() {
    assert_eq!(
        lines(&products::stage().unwrap(), "dot"),
        ["dot : tile<16x16xf32>", "dot flags(tf32) : tile<16x16xf32>", "dot : tile<16x16xi32>"]
    );
}

/// Runs a kernel of one thread whose only pointer is its first parameter, and gives the words that it stored.
fn run(kernel: &Kernel, words: usize, arguments: &[u64]) -> Vec<u32> {
    let mut interpreter = Interpreter { memory: vec![0; 4 * words], ..Interpreter::default() };
    let arguments: Vec<Constant> =
        std::iter::once(0).chain(arguments.iter().copied()).map(Constant).collect();
    interpreter.run(kernel.func(), &arguments).unwrap();
    interpreter.memory.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[kernel]
fn philox_words(out: Global<u32>, counter: Val<u64>, more: Val<u64>, key: Val<u64>) {
    let words = |x: Val<u64>| [x.cast::<u32>(), (x >> 32u32).cast::<u32>()];
    let ([a, b], [c, d]) = (words(counter), words(more));
    for (i, word) in (0u32..).zip(philox4x32([a, b, c, d], words(key))) {
        out.at(i).store(word);
    }
}

/// The vectors of the authors of Philox.
#[test]
fn philox_gives_the_known_answers() {
    let kernel = philox_words::stage().unwrap();
    for (counter, more, key, expected) in [
        (0, 0, 0, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        (u64::MAX, u64::MAX, u64::MAX, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            0x85a3_08d3_243f_6a88,
            0x0370_7344_1319_8a2e,
            0x299f_31d0_a409_3822,
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ] {
        assert_eq!(run(&kernel, 4, &[counter, more, key]), expected);
    }
}

#[kernel]
fn order(out: Global<u32>, index: Val<u32>, rows: Val<u32>, columns: Val<u32>, group: u32) {
    let (i, j) = grouped_order(index, rows, columns, group);
    out.store(i);
    out.at(1).store(j);
}

#[test]
fn groups_of_rows_visit_every_block_once() {
    let kernel = order::stage(4).unwrap();
    for (rows, columns) in [(1, 1), (4, 3), (7, 5), (9, 2), (3, 8)] {
        let mut seen = Vec::new();
        for index in 0..rows * columns {
            let place = run(&kernel, 2, &[index, rows, columns]);
            // Within a group, down the rows first.
            let height = (rows - index / (columns * 4) * 4).min(4);
            assert_eq!(u64::from(place[0]) % 4, index % (columns * 4) % height);
            seen.push(place);
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len() as u64, rows * columns);
        assert!(seen.iter().all(|place| u64::from(place[0]) < rows && u64::from(place[1]) < columns));
    }
}

#[kernel]
fn shared(x: View<f32, 2>, out: View<f32, 2>, deep: View<u32, 4>) {
    let tile = x.partition([8, 32]).load();
    // Asked for twice: the same tile.
    out.partition([8, 32]).store(tile);
    out.unit_stride(1).partition([8, 32]).store(tile + 1f32);
    deep.partition([1, 2, 4, 8]).store(0u32);
}

#[test]
fn partitions_are_known_to_the_host() {
    let kernel = shared::stage().unwrap();
    let views = kernel.views();
    assert_eq!(views[1].partition, Some(vec![8, 32]));
    assert_eq!(views[0].grid(&[17, 32]), Some([3, 1, 1]));
    assert_eq!(views[0].grid(&[17]), None);
    assert_eq!(views[0].grid(&[0, 5]), Some([0, 1, 1]));
    assert_eq!(views[0].grid(&[1 << 36, 5]), None);
    // The axes before the last two share an id.
    assert_eq!(views[2].grid(&[3, 5, 9, 17]), Some([9, 3, 3]));
    assert_eq!(matmul::stage(16, 16, 16).unwrap().views()[2].partition, None);
    assert_eq!(matmul::stage(16, 16, 16).unwrap().views()[2].grid(&[16, 16]), None);
}

fn messages(staged: Result<Kernel, Error>) -> Vec<String> {
    staged.unwrap_err().diagnostics.into_iter().map(|diagnostic| diagnostic.message).collect()
}

#[kernel]
fn two_partitions(x: View<f32, 2>) {
    x.partition([8, 32]).store(0f32);
    x.partition([8, 16]).store(0f32);
    x.transpose().partition([8, 32]).store(0f32);
    x.row(0).partition([8]).store(0f32);
}

#[kernel]
fn stray_tile(x: View<f32, 2>) {
    x.partition([8, 32]).store(0f32);
    x.tile([8, 32]).block((program_id(0), program_id(1))).store(1f32);
}

#[kernel]
fn stray_row(x: View<f32, 2>) {
    let own = x.partition([8, 32]).load();
    x.row(3).tile([32]).at(0).store(own.sum(0).squeeze(0));
}

#[kernel]
fn stray_points(x: View<u32, 1>) {
    x.partition([32]).store(0u32);
    let _ = x.points(arange(32)).atomic_add(1u32);
}

#[test]
fn a_program_stores_to_its_own_tile_only() {
    let parameter = "`partition` of a view that is no parameter; call it on the parameter itself, or use `tile` and `block`";
    assert_eq!(
        messages(two_partitions::stage()),
        [
            "a partition into tiles of [8, 16], and another of the same view into [8, 32]; expected the same tiles",
            parameter,
            parameter
        ]
    );
    for staged in [stray_tile::stage(), stray_row::stage(), stray_points::stage()] {
        assert_eq!(
            messages(staged),
            [
                "`x` is stored to outside of its partition; store to the tile of `partition` only, or do not partition the view"
            ]
        );
    }
}
