//! Memory: pointers of every space, loads and stores as told, atomics, tiles with layouts.

use tilewright_lang::prelude::*;
use tilewright_layout::{Composed, Layout, Swizzle};

use crate::{expect, lines};

/// Offsets into global memory are computed in 64 bits, those into shared memory in 32.
#[kernel]
fn indices(x: Global<f32>, a: Val<u32>, b: Val<i32>, c: Val<u64>, d: Val<i64>) {
    let shared = Shared::<f32>::new("16:1").ptr();
    x.at(a).store(0.0);
    x.at(b).store(1.0);
    x.at(c).store(2.0);
    x.at(d).store(3.0);
    x.at(5).store(4.0);
    x.at(-1).store(5.0);
    x.byte_add(a).store(6.0);
    shared.at(a).store(7.0);
    shared.at(c).store(8.0);
    shared.at(2).store(9.0);
}

/// Two elements of four bits share a byte.
#[kernel]
fn half_bytes(x: Global<E2m1>, i: Val<u32>, j: Val<u64>) {
    let shared = Shared::<E2m1>::new("64:1").ptr();
    let pair = x.at(i).load_vector(2);
    x.at(j).store_vector(pair);
    x.at(6).store_vector(pair);
    shared.at(i).store_vector(pair);
}

#[kernel(cluster = (2, 1, 1))]
fn spaces(x: Global<u32>, out: Global<u64>) {
    let tile = Shared::<u32>::new("32:1");
    let mine = local::<u32>(4);
    mine.at(thread_id(0) % 4).store(1u32);
    let other = tile.ptr().in_block(1u32);
    other.store(mine.load());
    x.generic().store(tile.ptr().generic().load());
    out.store(x.address());
    out.store(tile.ptr().address());
    let back = Global::<u32>::from_address(out.load());
    back.store(2u32);
}

#[kernel]
fn accesses(x: Global<f32>) {
    let first = L2Policy::evict_first();
    let last = L2Policy::evict_last();
    let usual = L2Policy::evict_normal();
    let access = Access::new;
    x.store_with(x.load_with(access().relaxed(Scope::Gpu)), access().relaxed(Scope::Block));
    x.store_with(x.load_with(access().acquire(Scope::System)), access().release(Scope::Cluster));
    x.store_with(x.load_with(access().volatile()), access().volatile());
    x.store_with(x.load_with(access().cache(Cache::ReadOnly)), access().cache(Cache::Streaming));
    x.store_with(
        x.load_with(access().evict(Evict::First).prefetch(Prefetch::B256)),
        access().evict(Evict::Last),
    );
    x.store_with(x.load_with(access().policy(first)), access().policy(last));
    let v = x.load_vector_with(4, access().policy(usual).cache(Cache::Global));
    x.store_vector_with(v, access().policy(first));
    x.prefetch(Level::L1);
    x.prefetch(Level::L2);
}

#[kernel]
fn conditional(x: Global<f32>, p: Val<bool>) {
    let one = x.load_if(p, 0.0);
    x.store_if(p, one);
    let four = x.load_vector_if(p, Vector::splat(1.0, 4));
    x.store_vector_if(p, four);
}

#[kernel]
fn atomics(x: Global<u32>, y: Global<f32>, n: Val<u32>) {
    let shared = Shared::<u32>::new("1:1").ptr();
    let mut seen = x.atomic_add(1u32);
    seen += x.exchange(n);
    seen += x.compare_exchange(0u32, n, Order::AcqRel, Scope::System);
    for op in
        [Combine::Min, Combine::Max, Combine::And, Combine::Or, Combine::Xor, Combine::Inc, Combine::Dec]
    {
        seen += shared.atomic(op, n, Order::Relaxed, Scope::Block);
    }
    x.reduce_add(seen);
    x.reduce(Combine::Max, n, Order::Release, Scope::Gpu);
    y.reduce_vector(Combine::Add, Vector::splat(1.0, 4), Order::Relaxed, Scope::Gpu);
}

#[kernel]
fn tiles(i: Val<u32>, j: Val<u32>) {
    Shared::<f32>::new("(4,8):(8,1)").at((i, j)).store(1.0);
    Shared::<f32>::new("(4,8):(8,1)").at([i, j]).store(2.0);
    // A mode of several levels is counted digit by digit.
    Shared::<f32>::new("((2,4),8):((1,16),2)").at((i, 3u32)).store(3.0);
    Shared::<f32>::new("S<2,0,3> o 0 o (8,4):(4,1)").at((i, j)).store(4.0);
    Shared::<f32>::new("S<2,0,-3> o 0 o 32:1").at([i]).store(5.0);
    Shared::<bf16>::new(k_major::<bf16>(64, 64, SwizzleMode::B128)).at((i, j)).store(bf16::ONE);
}

#[kernel]
fn rings(slot: Val<u32>, i: Val<u32>) {
    let ring = Ring::<f32>::new(3, "(4,4):(4,1)");
    assert_eq!(ring.stages(), 3);
    let tile = ring.at(slot);
    assert_eq!((tile.bytes(), tile.layout().to_string().as_str()), (64, "S<0,0,0> o 0 o (4,4):(4,1)"));
    tile.at((i, 0u32)).store(1.0);
    tile.view::<u64>("8:1").at([i]).store(2u64);
    tile.row_block(1u32, 2).at((i, 1u32)).store(3.0);
}

/// A tile can be described by text, by a layout, by a swizzled layout, and by the outcome of computing one.
#[kernel]
fn described() {
    let layout: Layout = "(4,4):(4,1)".parse().unwrap();
    let swizzled: Composed = "S<1,0,2> o 0 o (4,4):(4,1)".parse().unwrap();
    let tiles = [
        Shared::<f32>::new(&layout),
        Shared::new(layout.clone()),
        Shared::new(Layout::new((4, 4), (4, 1))),
        Shared::new(&swizzled),
        Shared::new(swizzled.clone()),
        Shared::new(Composed::new(Swizzle::new(1, 0, 2).unwrap(), 0, layout)),
    ];
    for (i, tile) in tiles.into_iter().enumerate() {
        assert_eq!(tile.layout() == swizzled, i > 2);
        tile.ptr().store(0.0);
    }
}

#[kernel]
fn matrices(x: Global<f32>, rows: Val<u32>, columns: Val<u32>) {
    let matrix = x.matrix(columns);
    matrix.at(rows, 3u32).store(matrix.at(1u32, columns).load());
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [
        indices::stage(),
        half_bytes::stage(),
        spaces::stage(),
        accesses::stage(),
        conditional::stage(),
        atomics::stage(),
        tiles::stage(),
        rings::stage(),
        described::stage(),
        matrices::stage(),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

#[test]
fn offsets_have_the_width_of_their_space() {
    expect(
        &indices::stage().unwrap(),
        "
        func @indices (%x: ptr<global> align(4), %a: u32, %b: i32, %c: u64, %d: i64) {
          %0 = shared bytes(64) align(16) : ptr<shared>
          %1 = const value(4) : u32
          %2 = mul_wide %a, %1 : u64
          %3 = ptr_add %x, %2 : ptr<global>
          %4 = const value(0.0) : f32
          store %3, %4
          %5 = const value(4) : i32
          %6 = mul_wide %b, %5 : i64
          %7 = ptr_add %x, %6 : ptr<global>
          %8 = const value(1.0) : f32
          store %7, %8
          %9 = const value(4) : u64
          %10 = mul %c, %9 : u64
          %11 = ptr_add %x, %10 : ptr<global>
          %12 = const value(2.0) : f32
          store %11, %12
          %13 = const value(4) : i64
          %14 = mul %d, %13 : i64
          %15 = ptr_add %x, %14 : ptr<global>
          %16 = const value(3.0) : f32
          store %15, %16
          %17 = const value(20) : i64
          %18 = ptr_add %x, %17 : ptr<global>
          %19 = const value(4.0) : f32
          store %18, %19
          %20 = const value(-4) : i64
          %21 = ptr_add %x, %20 : ptr<global>
          %22 = const value(5.0) : f32
          store %21, %22
          %23 = const value(1) : u32
          %24 = mul_wide %a, %23 : u64
          %25 = ptr_add %x, %24 : ptr<global>
          %26 = const value(6.0) : f32
          store %25, %26
          %27 = const value(4) : u32
          %28 = mul %a, %27 : u32
          %29 = ptr_add %0, %28 : ptr<shared>
          %30 = const value(7.0) : f32
          store %29, %30
          %31 = const value(4) : u64
          %32 = mul %c, %31 : u64
          %33 = cvt %32 : u32
          %34 = ptr_add %0, %33 : ptr<shared>
          %35 = const value(8.0) : f32
          store %34, %35
          %36 = const value(8) : i32
          %37 = ptr_add %0, %36 : ptr<shared>
          %38 = const value(9.0) : f32
          store %37, %38
        }
        ",
    );
    expect(
        &half_bytes::stage().unwrap(),
        "
        func @half_bytes (%x: ptr<global> align(1), %i: u32, %j: u64) {
          %0 = shared bytes(32) align(16) : ptr<shared>
          %1 = cvt %i : i64
          %2 = const value(1) : u32
          %3 = shr %1, %2 : i64
          %4 = ptr_add %x, %3 : ptr<global>
          %5 = load %4 : 2xe2m1
          %6 = const value(1) : u32
          %7 = shr %j, %6 : u64
          %8 = ptr_add %x, %7 : ptr<global>
          store %8, %5
          %9 = const value(3) : i64
          %10 = ptr_add %x, %9 : ptr<global>
          store %10, %5
          %11 = const value(1) : u32
          %12 = shr %i, %11 : u32
          %13 = ptr_add %0, %12 : ptr<shared>
          store %13, %5
        }
        ",
    );
}

#[test]
fn pointers_of_every_space() {
    expect(
        &spaces::stage().unwrap(),
        "
        func @spaces cluster(2,1,1) (%x: ptr<global> align(4), %out: ptr<global> align(8)) {
          %0 = shared bytes(128) align(128) : ptr<shared>
          %1 = local bytes(16) align(16) : ptr<local>
          %2 = special reg(tid.x) : u32
          %3 = const value(4) : u32
          %4 = rem %2, %3 : u32
          %5 = const value(4) : u32
          %6 = mul_wide %4, %5 : u64
          %7 = ptr_add %1, %6 : ptr<local>
          %8 = const value(1) : u32
          store %7, %8
          %9 = const value(1) : u32
          %10 = map_cluster %0, %9 : ptr<cluster>
          %11 = load %1 : u32
          store %10, %11
          %12 = cast_space %x : ptr<generic>
          %13 = cast_space %0 : ptr<generic>
          %14 = load %13 : u32
          store %12, %14
          %15 = ptr_to_int %x : u64
          store %out, %15
          %16 = ptr_to_int %0 : u32
          %17 = cvt %16 : u64
          store %out, %17
          %18 = load %out : u64
          %19 = int_to_ptr %18 : ptr<global>
          %20 = const value(2) : u32
          store %19, %20
        }
        ",
    );
}

#[test]
fn accesses_do_as_they_are_told() {
    let kernel = accesses::stage().unwrap();
    assert_eq!(
        lines(&kernel, "load"),
        [
            "load order(relaxed) scope(gpu) : f32",
            "load order(acquire) scope(sys) : f32",
            "load order(volatile) : f32",
            "load cache(nc) : f32",
            "load evict(evict_first) prefetch(256) : f32",
            "load : f32",
            "load cache(cg) : 4xf32"
        ]
    );
    assert_eq!(
        lines(&kernel, "store"),
        [
            "store order(relaxed) scope(cta)",
            "store order(release) scope(cluster)",
            "store order(volatile)",
            "store cache(cs)",
            "store evict(evict_last)",
            "store",
            "store"
        ]
    );
    assert_eq!(
        lines(&kernel, "make_policy"),
        [
            "make_policy policy(evict_first) : u64",
            "make_policy policy(evict_last) : u64",
            "make_policy policy(evict_normal) : u64"
        ]
    );
    assert_eq!(lines(&kernel, "prefetch"), ["prefetch level(l1)", "prefetch level(l2)"]);
}

#[test]
fn conditional_accesses() {
    expect(
        &conditional::stage().unwrap(),
        "
        func @conditional (%x: ptr<global> align(4), %p: bool) {
          %0 = const value(0.0) : f32
          %1 = load_if %x, %p, %0 : f32
          store_if %x, %1, %p
          %2 = const value(1.0) : f32
          %3 = pack %2, %2, %2, %2 : 4xf32
          %4 = load_if %x, %p, %3 : 4xf32
          store_if %x, %4, %p
        }
        ",
    );
}

#[test]
fn atomics_combine_in_order_and_scope() {
    let kernel = atomics::stage().unwrap();
    assert_eq!(
        lines(&kernel, "atomic"),
        [
            "atomic op(add) order(relaxed) scope(gpu) : u32",
            "atomic op(exch) order(relaxed) scope(gpu) : u32",
            "atomic op(min) order(relaxed) scope(cta) : u32",
            "atomic op(max) order(relaxed) scope(cta) : u32",
            "atomic op(and) order(relaxed) scope(cta) : u32",
            "atomic op(or) order(relaxed) scope(cta) : u32",
            "atomic op(xor) order(relaxed) scope(cta) : u32",
            "atomic op(inc) order(relaxed) scope(cta) : u32",
            "atomic op(dec) order(relaxed) scope(cta) : u32"
        ]
    );
    assert_eq!(lines(&kernel, "atomic_cas"), ["atomic_cas order(acq_rel) scope(sys) : u32"]);
    assert_eq!(
        lines(&kernel, "reduce"),
        [
            "reduce op(add) order(relaxed) scope(gpu)",
            "reduce op(max) order(release) scope(gpu)",
            "reduce op(add) order(relaxed) scope(gpu)"
        ]
    );
}

#[test]
fn layouts_become_arithmetic() {
    expect(
        &tiles::stage().unwrap(),
        "
        func @tiles (%i: u32, %j: u32) {
          %0 = shared bytes(128) align(128) : ptr<shared>
          %1 = const value(8) : u32
          %2 = mul %i, %1 : u32
          %3 = const value(1) : u32
          %4 = mul %j, %3 : u32
          %5 = add %2, %4 : u32
          %6 = const value(4) : u32
          %7 = mul %5, %6 : u32
          %8 = ptr_add %0, %7 : ptr<shared>
          %9 = const value(1.0) : f32
          store %8, %9
          %10 = shared bytes(128) align(128) : ptr<shared>
          %11 = const value(8) : u32
          %12 = mul %i, %11 : u32
          %13 = const value(1) : u32
          %14 = mul %j, %13 : u32
          %15 = add %12, %14 : u32
          %16 = const value(4) : u32
          %17 = mul %15, %16 : u32
          %18 = ptr_add %10, %17 : ptr<shared>
          %19 = const value(2.0) : f32
          store %18, %19
          %20 = shared bytes(256) align(128) : ptr<shared>
          %21 = const value(3) : u32
          %22 = const value(2) : u32
          %23 = rem %i, %22 : u32
          %24 = const value(1) : u32
          %25 = mul %23, %24 : u32
          %26 = const value(2) : u32
          %27 = div %i, %26 : u32
          %28 = const value(16) : u32
          %29 = mul %27, %28 : u32
          %30 = add %25, %29 : u32
          %31 = const value(2) : u32
          %32 = mul %21, %31 : u32
          %33 = add %30, %32 : u32
          %34 = const value(4) : u32
          %35 = mul %33, %34 : u32
          %36 = ptr_add %20, %35 : ptr<shared>
          %37 = const value(3.0) : f32
          store %36, %37
          %38 = shared bytes(128) align(128) : ptr<shared>
          %39 = const value(4) : u32
          %40 = mul %i, %39 : u32
          %41 = const value(1) : u32
          %42 = mul %j, %41 : u32
          %43 = add %40, %42 : u32
          %44 = const value(3) : u32
          %45 = shr %43, %44 : u32
          %46 = const value(3) : u32
          %47 = and %45, %46 : u32
          %48 = xor %43, %47 : u32
          %49 = const value(4) : u32
          %50 = mul %48, %49 : u32
          %51 = ptr_add %38, %50 : ptr<shared>
          %52 = const value(4.0) : f32
          store %51, %52
          %53 = shared bytes(128) align(128) : ptr<shared>
          %54 = const value(1) : u32
          %55 = mul %i, %54 : u32
          %56 = const value(3) : u32
          %57 = and %55, %56 : u32
          %58 = const value(3) : u32
          %59 = shl %57, %58 : u32
          %60 = xor %55, %59 : u32
          %61 = const value(4) : u32
          %62 = mul %60, %61 : u32
          %63 = ptr_add %53, %62 : ptr<shared>
          %64 = const value(5.0) : f32
          store %63, %64
          %65 = shared bytes(8192) align(1024) : ptr<shared>
          %66 = const value(64) : u32
          %67 = mul %i, %66 : u32
          %68 = const value(1) : u32
          %69 = mul %j, %68 : u32
          %70 = add %67, %69 : u32
          %71 = const value(3) : u32
          %72 = shr %70, %71 : u32
          %73 = const value(56) : u32
          %74 = and %72, %73 : u32
          %75 = xor %70, %74 : u32
          %76 = const value(2) : u32
          %77 = mul %75, %76 : u32
          %78 = ptr_add %65, %77 : ptr<shared>
          %79 = const value(0x3f80) : bf16
          store %78, %79
        }
        ",
    );
}

#[test]
fn rings_views_and_blocks_of_rows() {
    expect(
        &rings::stage().unwrap(),
        "
        func @rings (%slot: u32, %i: u32) {
          %0 = shared bytes(192) align(16) : ptr<shared>
          %1 = const value(64) : u32
          %2 = mul %slot, %1 : u32
          %3 = const value(1) : u32
          %4 = mul %2, %3 : u32
          %5 = ptr_add %0, %4 : ptr<shared>
          %6 = const value(0) : u32
          %7 = const value(4) : u32
          %8 = mul %i, %7 : u32
          %9 = const value(1) : u32
          %10 = mul %6, %9 : u32
          %11 = add %8, %10 : u32
          %12 = const value(4) : u32
          %13 = mul %11, %12 : u32
          %14 = ptr_add %5, %13 : ptr<shared>
          %15 = const value(1.0) : f32
          store %14, %15
          %16 = const value(1) : u32
          %17 = mul %i, %16 : u32
          %18 = const value(8) : u32
          %19 = mul %17, %18 : u32
          %20 = ptr_add %5, %19 : ptr<shared>
          %21 = const value(2) : u64
          store %20, %21
          %22 = const value(1) : u32
          %23 = const value(32) : u32
          %24 = mul %22, %23 : u32
          %25 = const value(1) : u32
          %26 = mul %24, %25 : u32
          %27 = ptr_add %5, %26 : ptr<shared>
          %28 = const value(1) : u32
          %29 = const value(4) : u32
          %30 = mul %i, %29 : u32
          %31 = const value(1) : u32
          %32 = mul %28, %31 : u32
          %33 = add %30, %32 : u32
          %34 = const value(4) : u32
          %35 = mul %33, %34 : u32
          %36 = ptr_add %27, %35 : ptr<shared>
          %37 = const value(3.0) : f32
          store %36, %37
        }
        ",
    );
}

#[test]
fn tiles_are_described_in_many_ways() {
    let shared = lines(&described::stage().unwrap(), "shared");
    assert_eq!(shared[..3], ["shared bytes(64) align(16) : ptr<shared>"; 3]);
    // This swizzle repeats every 8 elements.
    assert_eq!(shared[3..], ["shared bytes(64) align(32) : ptr<shared>"; 3]);
}

/// Padding is there to keep rows off the banks of others: it puts them at any distance.
#[kernel]
fn padded(i: Val<u32>) {
    let row = Shared::<f32>::new("(32,32):(33,1)").row_block(i, 1);
    row.at((0, 5)).store(1.0);
}

#[test]
fn a_tile_without_a_swizzle_can_be_cut_anywhere() {
    let kernel = padded::stage().unwrap();
    assert_eq!(lines(&kernel, "const").first().map(String::as_str), Some("const value(132) : u32"));
}

#[test]
fn matrices_multiply_their_stride_in_64_bits() {
    expect(
        &matrices::stage().unwrap(),
        "
        func @matrices (%x: ptr<global> align(4), %rows: u32, %columns: u32) {
          %0 = const value(3) : u32
          %1 = mul_wide %rows, %columns : u64
          %2 = cvt %0 : u64
          %3 = add %1, %2 : u64
          %4 = const value(4) : u64
          %5 = mul %3, %4 : u64
          %6 = ptr_add %x, %5 : ptr<global>
          %7 = const value(1) : u32
          %8 = mul_wide %7, %columns : u64
          %9 = cvt %columns : u64
          %10 = add %8, %9 : u64
          %11 = const value(4) : u64
          %12 = mul %10, %11 : u64
          %13 = ptr_add %x, %12 : ptr<global>
          %14 = load %13 : f32
          store %6, %14
        }
        ",
    );
}
