//! Tensor cores: products of a warp and of a warpgroup, for each family of element types.

use tilewright_ir::Opcode;
use tilewright_lang::prelude::*;

use crate::{count, expect, lines};

#[kernel(threads = 32)]
fn warp<A: Element, B: Element, C: Number>(out: Global<C>, k: u32) {
    let mma = WarpMma::<A, B, C>::new((16, 8, k));
    assert_eq!(mma.shape(), (16, 8, k));
    let a = Shared::<A>::new(k_major::<A>(16, k, SwizzleMode::None));
    let b = Shared::<B>::new(k_major::<B>(8, k, SwizzleMode::None));
    let c = mma.multiply(mma.load_a(a, 0, 0), mma.load_b(b, 0, 0), mma.zero());
    c.for_each_run(|row, column, pair| out.at(row * 8 + column).store_vector(pair));
}

/// Elements of 64 bits have no matrix loads: each thread gathers its own.
#[kernel(threads = 32)]
fn warp_f64(x: Global<f64>, out: Global<f64>) {
    let mma = WarpMma::<f64, f64, f64>::new((8, 8, 4));
    let from = x.matrix(4u32);
    let a = mma.gather_a(|row, k, len| from.at(row, k).load_vector(len));
    let b = mma.gather_b(|row, k, len| from.at(row, k).load_vector(len));
    let c = mma.multiply(a, b, mma.zero()).map(|x| x * 2.0);
    assert_eq!(c.extents(), (8, 8));
    c.for_each_run(|row, column, pair| out.at(row * 8 + column).store_vector(pair));
}

#[kernel(threads = 32)]
fn warp_tiles() {
    let mma = WarpMma::<bf16, bf16, f32>::new((16, 8, 16));
    let a = Shared::<bf16>::new(mn_major::<bf16>(64, 32, SwizzleMode::B128));
    let b = Shared::<bf16>::new(k_major::<bf16>(16, 64, SwizzleMode::B128));
    let [b0, b1] = mma.load_b_pair(b, 0, 1);
    let left = mma.load_a(a, 1, 1);
    let c = mma.multiply(left, b0, mma.zero());
    let d = mma.multiply(left, b1, c);
    d.cast::<bf16>().store_matrix(Shared::new("(16,8):(8,1)"));
}

/// The depth of a step: 32 bytes.
fn depth<A: Element>() -> u32 {
    256 / A::ELEMENT.bits()
}

#[kernel(threads = 128)]
fn group<A: Element, B: Element, C: Number>(out: Global<C>, n: Val<u32>) {
    let a = Shared::<A>::new(k_major::<A>(64, 2 * depth::<A>(), SwizzleMode::B64));
    let b = Shared::<B>::new(k_major::<B>(16, 2 * depth::<A>(), SwizzleMode::B64));
    let sums = Accumulator::<C>::new(64, 16);
    for i in 0..n {
        sums.multiply(a, b, i > 0);
        sums.wait(1);
    }
    for part in sums.finish() {
        part.for_each_run(|row, column, pair| out.at(row * 16 + column).store_vector(pair));
    }
}

/// Rows contiguous in both tiles, several blocks of rows and of columns, and sums read on the way.
#[kernel(threads = 128)]
fn group_mn(out: Global<f32>) {
    let a = Shared::<bf16>::new(mn_major::<bf16>(128, 16, SwizzleMode::B128));
    let b = Shared::<bf16>::new(mn_major::<bf16>(512, 16, SwizzleMode::B128));
    let sums = Accumulator::<f32>::new(128, 512);
    sums.multiply(a, b, false);
    let halves: Vec<_> = sums.drain().into_iter().map(|part| part.map(|x| x * 0.5)).collect();
    sums.set(&halves);
    sums.multiply(a, b, true);
    out.store_vector(sums.finish()[0].values().slice(0, 4));
}

/// A in registers: what a warp loads for its 16 rows is its part of the 64.
#[kernel(threads = 128)]
fn group_registers(out: Global<f32>) {
    let mma = WarpMma::<bf16, bf16, f32>::new((16, 8, 16));
    let a = Shared::<bf16>::new(k_major::<bf16>(64, 32, SwizzleMode::B64));
    let b = Shared::<bf16>::new(k_major::<bf16>(8, 32, SwizzleMode::B64));
    let mine = a.row_block(warp_id() % 4, 16);
    let left: Vec<_> = (0..2).map(|k| mma.load_a(mine, 0, k)).collect();
    let sums = Accumulator::<f32>::new(64, 8);
    sums.multiply_registers(&[left], b, false);
    out.store_vector(sums.finish()[0].values());
}

#[kernel(threads = 128)]
fn stored() {
    let sums = Accumulator::<f16>::new(64, 16);
    let tile = Shared::<f16>::new(k_major::<f16>(64, 16, SwizzleMode::B32));
    sums.multiply(tile, Shared::<f16>::new(k_major::<f16>(16, 16, SwizzleMode::B32)), false);
    sums.finish()[0].store_matrix(tile);
}

/// Some columns of the sums, to a part of a tile with columns contiguous and with rows contiguous.
#[kernel(threads = 128)]
fn stored_in_parts(out: Global<f32>, row: Val<u32>, column: Val<u32>) {
    let sums = Accumulator::<f32>::new(64, 64);
    let a = Shared::<bf16>::new(k_major::<bf16>(64, 64, SwizzleMode::B128));
    sums.multiply(a, a, false);
    let all = sums.finish()[0];
    let half = all.columns(32, 32);
    assert_eq!((half.extents(), half.values().len()), ((64, 32), 16));
    half.cast::<bf16>().store_matrix_at(Shared::new(k_major::<bf16>(64, 64, SwizzleMode::B128)), 0, 32);
    // Three groups of eight columns: a store of four matrices and one of two.
    let three = Shared::new(mn_major::<bf16>(64, 24, SwizzleMode::B128));
    all.columns(8, 24).cast::<bf16>().store_matrix(three);
    all.columns(56, 8).for_each_run_from((row, column), |row, column, pair| {
        out.matrix(64).at(row, column).store_vector(pair);
    });
}

fn warp_kernels() -> Vec<Kernel> {
    [
        warp::stage::<f16, f16, f16>(8),
        warp::stage::<f16, f16, f32>(16),
        warp::stage::<bf16, bf16, f32>(16),
        warp::stage::<Tf32, Tf32, f32>(8),
        warp::stage::<i8, i8, i32>(16),
        warp::stage::<i8, u8, i32>(32),
        warp::stage::<u8, u8, i32>(32),
        warp::stage::<E4m3, E4m3, f32>(32),
        warp::stage::<E5m2, E4m3, f16>(32),
        warp_f64::stage(),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

fn group_kernels() -> Vec<Kernel> {
    [
        group::stage::<f16, f16, f16>(),
        group::stage::<f16, f16, f32>(),
        group::stage::<bf16, bf16, f32>(),
        group::stage::<Tf32, Tf32, f32>(),
        group::stage::<E4m3, E5m2, f32>(),
        group::stage::<E5m2, E5m2, f16>(),
        group::stage::<i8, i8, i32>(),
        group::stage::<u8, i8, i32>(),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

pub(crate) fn kernels() -> Vec<Kernel> {
    let others = [
        warp_tiles::stage(),
        group_mn::stage(),
        group_registers::stage(),
        stored::stage(),
        stored_in_parts::stage(),
    ];
    let others = others.map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")));
    warp_kernels().into_iter().chain(group_kernels()).chain(others).collect()
}

#[test]
fn a_warp_multiplies_every_family_of_types() {
    let products: Vec<String> = warp_kernels().iter().flat_map(|kernel| lines(kernel, "mma")).collect();
    assert_eq!(
        products,
        [
            "mma mma(m16n8k8.f16.f16.f16) : 4xf16",
            "mma mma(m16n8k16.f32.f16.f16) : 4xf32",
            "mma mma(m16n8k16.f32.bf16.bf16) : 4xf32",
            "mma mma(m16n8k8.f32.tf32.tf32) : 4xf32",
            "mma mma(m16n8k16.i32.i8.i8) : 4xi32",
            "mma mma(m16n8k32.i32.i8.u8) : 4xi32",
            "mma mma(m16n8k32.i32.u8.u8) : 4xi32",
            "mma mma(m16n8k32.f32.e4m3.e4m3) : 4xf32",
            "mma mma(m16n8k32.f16.e5m2.e4m3) : 4xf16",
            "mma mma(m8n8k4.f64.f64.f64) : 2xf64"
        ]
    );
    expect(
        &warp_f64::stage().unwrap(),
        "
        func @warp_f64 threads(32,1,1) (%x: ptr<global> align(8), %out: ptr<global> align(8)) {
          %0 = const value(4) : u32
          %1 = special reg(laneid) : u32
          %2 = const value(2) : u32
          %3 = shr %1, %2 : u32
          %4 = const value(7) : u32
          %5 = and %3, %4 : u32
          %6 = const value(1) : u32
          %7 = mul %5, %6 : u32
          %8 = const value(3) : u32
          %9 = and %1, %8 : u32
          %10 = const value(1) : u32
          %11 = mul %9, %10 : u32
          %12 = mul_wide %7, %0 : u64
          %13 = cvt %11 : u64
          %14 = add %12, %13 : u64
          %15 = const value(8) : u64
          %16 = mul %14, %15 : u64
          %17 = ptr_add %x, %16 : ptr<global>
          %18 = load %17 : 1xf64
          %19 = concat %18 : 1xf64
          %20 = special reg(laneid) : u32
          %21 = const value(2) : u32
          %22 = shr %20, %21 : u32
          %23 = const value(7) : u32
          %24 = and %22, %23 : u32
          %25 = const value(1) : u32
          %26 = mul %24, %25 : u32
          %27 = const value(3) : u32
          %28 = and %20, %27 : u32
          %29 = const value(1) : u32
          %30 = mul %28, %29 : u32
          %31 = mul_wide %26, %0 : u64
          %32 = cvt %30 : u64
          %33 = add %31, %32 : u64
          %34 = const value(8) : u64
          %35 = mul %33, %34 : u64
          %36 = ptr_add %x, %35 : ptr<global>
          %37 = load %36 : 1xf64
          %38 = concat %37 : 1xf64
          %39 = const value(0.0) : f64
          %40 = pack %39, %39 : 2xf64
          %41 = mma %19, %38, %40 mma(m8n8k4.f64.f64.f64) : 2xf64
          %42 = extract %41 index(0) : f64
          %43 = extract %41 index(1) : f64
          %44 = const value(2.0) : f64
          %45 = mul %42, %44 : f64
          %46 = const value(2.0) : f64
          %47 = mul %43, %46 : f64
          %48 = pack %45, %47 : 2xf64
          %49 = special reg(laneid) : u32
          %50 = const value(2) : u32
          %51 = shr %49, %50 : u32
          %52 = const value(7) : u32
          %53 = and %51, %52 : u32
          %54 = const value(1) : u32
          %55 = mul %53, %54 : u32
          %56 = const value(3) : u32
          %57 = and %49, %56 : u32
          %58 = const value(2) : u32
          %59 = mul %57, %58 : u32
          %60 = slice %48 index(0) : 2xf64
          %61 = const value(8) : u32
          %62 = mul %55, %61 : u32
          %63 = add %62, %59 : u32
          %64 = const value(8) : u32
          %65 = mul_wide %63, %64 : u64
          %66 = ptr_add %out, %65 : ptr<global>
          store %66, %60
        }
        ",
    );
}

#[test]
fn matrices_are_loaded_in_both_orders() {
    let kernel = warp_tiles::stage().unwrap();
    assert_eq!(
        lines(&kernel, "ldmatrix"),
        ["ldmatrix count(4) : 8xbf16", "ldmatrix count(4) flags(trans) : 8xbf16"]
    );
    assert_eq!(lines(&kernel, "stmatrix"), ["stmatrix count(2)"]);
}

#[test]
fn a_warpgroup_multiplies_every_family_of_types() {
    let kernels = group_kernels();
    let products: Vec<String> = kernels.iter().map(|kernel| lines(kernel, "wgmma")[0].clone()).collect();
    assert_eq!(
        products,
        [
            "wgmma mma(m64n16k16.f16.f16.f16)",
            "wgmma mma(m64n16k16.f32.f16.f16)",
            "wgmma mma(m64n16k16.f32.bf16.bf16)",
            "wgmma mma(m64n16k8.f32.tf32.tf32)",
            "wgmma mma(m64n16k32.f32.e4m3.e5m2)",
            "wgmma mma(m64n16k32.f16.e5m2.e5m2)",
            "wgmma mma(m64n16k32.i32.i8.i8)",
            "wgmma mma(m64n16k32.i32.u8.i8)"
        ]
    );
    for kernel in &kernels {
        // Two steps of k, one fence and one group; all but the first step add.
        assert_eq!(count(kernel, Opcode::Wgmma), 2, "{}", kernel.ir());
        assert_eq!((count(kernel, Opcode::WgmmaFence), count(kernel, Opcode::WgmmaCommit)), (1, 1));
        assert_eq!(lines(kernel, "wgmma_wait"), ["wgmma_wait count(1)", "wgmma_wait count(0)"]);
    }
}

#[test]
fn a_warpgroup_reads_tiles_with_rows_contiguous() {
    let kernel = group_mn::stage().unwrap();
    assert_eq!(count(&kernel, Opcode::MakeAccumulator), 4);
    assert_eq!((count(&kernel, Opcode::AccRead), count(&kernel, Opcode::AccWrite)), (8, 4));
    assert_eq!(
        lines(&kernel, "wgmma"),
        [
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)",
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)",
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)",
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)",
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)",
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)",
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)",
            "wgmma mma(m64n256k16.f32.bf16.bf16) flags(trans_a trans_b)"
        ]
    );
    assert_eq!(
        lines(&kernel, "descriptor"),
        [
            "descriptor bits(4611686293305360384) : u64",
            "descriptor bits(4611686293313683456) : u64",
            "descriptor bits(4611686293305360384) : u64",
            "descriptor bits(4611686293313683456) : u64"
        ]
    );
}

#[test]
fn a_warpgroup_takes_a_from_registers() {
    let kernel = group_registers::stage().unwrap();
    assert_eq!(lines(&kernel, "wgmma").len(), 2);
    expect(
        &kernel,
        "
        func @group_registers threads(128,1,1) (%out: ptr<global> align(4)) {
          %0 = shared bytes(4096) align(512) : ptr<shared>
          %1 = shared bytes(512) align(512) : ptr<shared>
          %2 = special reg(tid.x) : u32
          %3 = const value(5) : u32
          %4 = shr %2, %3 : u32
          %5 = const value(4294967295) : u32
          %6 = const value(0) : u32
          %7, %8 = shuffle %4, %6, %5 mode(idx) : u32, bool
          %9 = const value(4) : u32
          %10 = rem %7, %9 : u32
          %11 = const value(1024) : u32
          %12 = mul %10, %11 : u32
          %13 = const value(1) : u32
          %14 = mul %12, %13 : u32
          %15 = ptr_add %0, %14 : ptr<shared>
          %16 = special reg(laneid) : u32
          %17 = const value(1) : u32
          %18 = and %16, %17 : u32
          %19 = const value(64) : u32
          %20 = mul %18, %19 : u32
          %21 = const value(1) : u32
          %22 = shr %16, %21 : u32
          %23 = const value(3) : u32
          %24 = and %22, %23 : u32
          %25 = const value(144) : u32
          %26 = mul %24, %25 : u32
          %27 = xor %20, %26 : u32
          %28 = const value(3) : u32
          %29 = shr %16, %28 : u32
          %30 = const value(1) : u32
          %31 = and %29, %30 : u32
          %32 = const value(512) : u32
          %33 = mul %31, %32 : u32
          %34 = xor %27, %33 : u32
          %35 = const value(4) : u32
          %36 = shr %16, %35 : u32
          %37 = const value(1) : u32
          %38 = and %36, %37 : u32
          %39 = const value(16) : u32
          %40 = mul %38, %39 : u32
          %41 = xor %34, %40 : u32
          %42 = const value(1) : u32
          %43 = mul %41, %42 : u32
          %44 = ptr_add %15, %43 : ptr<shared>
          %45 = ldmatrix %44 count(4) : 8xbf16
          %46 = special reg(laneid) : u32
          %47 = const value(1) : u32
          %48 = and %46, %47 : u32
          %49 = const value(64) : u32
          %50 = mul %48, %49 : u32
          %51 = const value(1) : u32
          %52 = shr %46, %51 : u32
          %53 = const value(3) : u32
          %54 = and %52, %53 : u32
          %55 = const value(144) : u32
          %56 = mul %54, %55 : u32
          %57 = xor %50, %56 : u32
          %58 = const value(3) : u32
          %59 = shr %46, %58 : u32
          %60 = const value(1) : u32
          %61 = and %59, %60 : u32
          %62 = const value(512) : u32
          %63 = mul %61, %62 : u32
          %64 = xor %57, %63 : u32
          %65 = const value(4) : u32
          %66 = shr %46, %65 : u32
          %67 = const value(1) : u32
          %68 = and %66, %67 : u32
          %69 = const value(16) : u32
          %70 = mul %68, %69 : u32
          %71 = xor %64, %70 : u32
          %72 = const value(32) : u32
          %73 = xor %71, %72 : u32
          %74 = const value(1) : u32
          %75 = mul %73, %74 : u32
          %76 = ptr_add %15, %75 : ptr<shared>
          %77 = ldmatrix %76 count(4) : 8xbf16
          %78 = accumulator : acc<4xf32>
          %79 = const value(0) : bool
          %80 = descriptor %1 bits(9223372041149808640) : u64
          wgmma_fence
          wgmma %78, %45, %80, %79 mma(m64n8k16.f32.bf16.bf16)
          %81 = const value(1) : bool
          %82 = const value(2) : u64
          %83 = add %80, %82 : u64
          wgmma %78, %77, %83, %81 mma(m64n8k16.f32.bf16.bf16)
          wgmma_commit
          wgmma_wait count(0)
          %84 = acc_read %78 : 4xf32
          store %out, %84
        }
        ",
    );
}

#[test]
fn results_are_stored_as_matrices() {
    let kernel = stored::stage().unwrap();
    assert_eq!(lines(&kernel, "stmatrix"), ["stmatrix count(4)"]);
}

#[test]
fn parts_of_sums_are_stored_in_parts_of_tiles() {
    let kernel = stored_in_parts::stage().unwrap();
    assert_eq!(
        lines(&kernel, "stmatrix"),
        [
            "stmatrix count(4)",
            "stmatrix count(4)",
            "stmatrix count(4) flags(trans)",
            "stmatrix count(2) flags(trans)"
        ]
    );
    // Sums by their columns, and of these what one instruction stores.
    let slices = [
        "index(16) : 16xf32",
        "index(0) : 8xbf16",
        "index(8) : 8xbf16",
        "index(4) : 12xf32",
        "index(0) : 8xbf16",
        "index(8) : 4xbf16",
        "index(28) : 4xf32",
        "index(0) : 2xf32",
        "index(2) : 2xf32",
    ];
    assert_eq!(lines(&kernel, "slice"), slices.map(|slice| format!("slice {slice}")));
    assert_eq!(lines(&kernel, "store"), ["store", "store"]);
}
