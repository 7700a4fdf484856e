//! Copies that run while the thread goes on: `cp.async`, bulk copies, tensor copies.

use tilewright_lang::prelude::*;

use crate::{expect, lines};

#[kernel]
fn by_thread(x: Global<f32>, p: Val<bool>) {
    let tile = Shared::<f32>::new("64:1").ptr();
    copy_async(tile, x, 1);
    copy_async(tile, x, 2);
    copy_async(tile, x, 4);
    copy_async_if(p, tile, x, 4);
    copy_commit();
    copy_wait(1);
}

#[kernel(cluster = (2, 1, 1))]
fn bulk(x: Global<f32>, n: Val<u32>) {
    let tile = Shared::<f32>::new("64:1").ptr();
    let bar = Mbarrier::array(1, "bar");
    let policy = L2Policy::evict_first();
    bulk_load(tile, x, 256u32, bar, CopyOptions::new());
    bulk_load(tile, x, n, bar, CopyOptions::new().policy(policy));
    bulk_load(tile, x, n, bar, CopyOptions::new().multicast(3u16));
    bulk_load(tile, x, n, bar, CopyOptions::new().policy(policy).multicast(3u16));
    bulk_store(x, tile, n, None);
    bulk_store(x, tile, n, Some(policy));
    bulk_copy(tile.in_block(1u32), tile, 64u32, bar.in_block(1u32));
    store_async(tile.in_block(1u32), 1.5f32, bar.in_block(1u32));
    bulk_reduce(Combine::Add, x, tile, n);
    bulk_prefetch(x, n);
    bulk_commit();
    bulk_wait(0);
    bulk_wait_read(2);
}

#[kernel]
fn tiles(a: TensorMap<bf16>, b: TensorMap<bf16>, c: TensorMap<f32>, row: Val<u32>, k: Val<i32>) {
    let (k_tile, mn_tile) = (
        Shared::<bf16>::new(k_major::<bf16>(64, 128, SwizzleMode::B128)),
        Shared::<bf16>::new(mn_major::<bf16>(64, 32, SwizzleMode::B128)),
    );
    let plain = Shared::<f32>::new(k_major::<f32>(8, 4, SwizzleMode::None));
    let bar = Mbarrier::array(1, "bar");
    // 128 elements are two boxes of 128 bytes.
    a.load(row, k, k_tile, bar);
    b.load(row, -1, mn_tile, bar);
    c.load_with(0, 4u32, plain, bar, CopyOptions::new().multicast(1u16).policy(L2Policy::evict_last()));
    c.store(row, k, plain);
    c.reduce(Combine::Add, row, k, plain);
    a.prefetch_tile(row, k, k_tile);
    a.prefetch();
}

#[kernel]
fn boxes(m1: TensorMap<f32>, m3: TensorMap<f32>, m5: TensorMap<f32>, n: Val<i32>, o: Val<u16>) {
    let to = Shared::<f32>::new("1024:1").ptr();
    let bar = Mbarrier::array(1, "bar");
    let policy = L2Policy::evict_normal();
    for (map, rank) in [(m1, 1), (m3, 3), (m5, 5)] {
        map.load_box(to, bar, &vec![n; rank], CopyOptions::new());
        map.load_box(to, bar, &vec![n; rank], CopyOptions::new().multicast(1u16).policy(policy));
        map.store_box(to, &vec![n; rank], None);
        map.store_box(to, &vec![n; rank], Some(policy));
    }
    m3.load_im2col(to, bar, &[n; 3], &[o; 1], CopyOptions::new());
    m5.load_im2col(to, bar, &[n; 5], &[o; 3], CopyOptions::new().multicast(1u16).policy(policy));
    if let Ok(spec) = TensorMapSpec::new(tilewright_ir::Element::F32, &[8, 4, 2], SwizzleMode::None) {
        m3.describe(&spec);
    }
}

#[kernel]
fn edited(x: Global<f32>, storage: Global<u64>, n: Val<u32>) {
    let scratch = Shared::<u64>::new("16:1").ptr();
    let map = EditableMap::new(scratch);
    map.set_address(x);
    map.set_extent(0, n);
    map.set_stride(1, n.cast::<u64>() * 4);
    map.publish(storage);
    let tensor = EditableMap::acquire::<f32>(storage);
    tensor.load_box(scratch.cast(), Mbarrier::array(1, "bar"), &[val(0), val(1)], CopyOptions::new());
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [by_thread::stage(), bulk::stage(), tiles::stage(), boxes::stage(), edited::stage()]
        .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
        .into()
}

#[test]
fn copies_by_every_thread() {
    expect(
        &by_thread::stage().unwrap(),
        "
        func @by_thread (%x: ptr<global> align(4), %p: bool) {
          %0 = shared bytes(256) align(128) : ptr<shared>
          cp_async %0, %x bytes(4) cache(ca) prefetch(128)
          cp_async %0, %x bytes(8) cache(ca) prefetch(128)
          cp_async %0, %x bytes(16) cache(cg) prefetch(128)
          %1 = const value(16) : u32
          %2 = const value(0) : u32
          %3 = select %p, %1, %2 : u32
          cp_async %0, %x, %3 bytes(16) cache(cg) prefetch(128)
          cp_async_commit
          cp_async_wait count(1)
        }
        ",
    );
}

#[test]
fn bulk_copies() {
    expect(
        &bulk::stage().unwrap(),
        r#"
        func @bulk cluster(2,1,1) (%x: ptr<global> align(4), %n: u32) {
          %0 = shared bytes(256) align(128) : ptr<shared>
          %1 = shared bytes(8) align(8) text("bar") : ptr<shared>
          %2 = make_policy policy(evict_first) : u64
          %3 = const value(256) : u32
          bulk_load %0, %x, %3, %1
          bulk_load %0, %x, %n, %1, %2 flags(hint)
          %4 = const value(3) : u16
          bulk_load %0, %x, %n, %1, %4 flags(multicast)
          %5 = const value(3) : u16
          bulk_load %0, %x, %n, %1, %5, %2 flags(multicast hint)
          bulk_store %x, %0, %n
          bulk_store %x, %0, %n, %2 flags(hint)
          %6 = const value(1) : u32
          %7 = map_cluster %0, %6 : ptr<cluster>
          %8 = const value(1) : u32
          %9 = map_cluster %1, %8 : ptr<cluster>
          %10 = const value(64) : u32
          bulk_copy %7, %0, %10, %9
          %11 = const value(1) : u32
          %12 = map_cluster %0, %11 : ptr<cluster>
          %13 = const value(1) : u32
          %14 = map_cluster %1, %13 : ptr<cluster>
          %15 = const value(1.5) : f32
          store_async %12, %15, %14
          bulk_reduce %x, %0, %n op(add) element(f32)
          bulk_prefetch %x, %n
          bulk_commit
          bulk_wait count(0)
          bulk_wait count(2) flags(read)
        }
        "#,
    );
}

#[test]
fn tiles_are_copied_box_by_box() {
    let kernel = tiles::stage().unwrap();
    expect(
        &kernel,
        r#"
        func @tiles (%a: tensor_map, %b: tensor_map, %c: tensor_map, %row: u32, %k: i32) {
          %0 = shared bytes(16384) align(1024) : ptr<shared>
          %1 = shared bytes(4096) align(1024) : ptr<shared>
          %2 = shared bytes(128) align(128) : ptr<shared>
          %3 = shared bytes(8) align(8) text("bar") : ptr<shared>
          %4 = bitcast %row : i32
          %5 = const value(8192) : i32
          %6 = ptr_add %0, %5 : ptr<shared>
          %7 = const value(64) : i32
          %8 = add %k, %7 : i32
          tma_load %0, %a, %3, %k, %4 rank(2)
          tma_load %6, %a, %3, %8, %4 rank(2)
          %9 = bitcast %row : i32
          %10 = const value(-1) : i32
          tma_load %1, %b, %3, %9, %10 rank(2)
          %11 = const value(1) : u16
          %12 = make_policy policy(evict_last) : u64
          %13 = const value(0) : i32
          %14 = const value(4) : i32
          tma_load %2, %c, %3, %14, %13, %11, %12 rank(2) flags(multicast hint)
          %15 = bitcast %row : i32
          tma_store %c, %2, %k, %15 rank(2)
          %16 = bitcast %row : i32
          tma_reduce %c, %2, %k, %16 rank(2) op(add)
          %17 = bitcast %row : i32
          %18 = const value(8192) : i32
          %19 = ptr_add %0, %18 : ptr<shared>
          %20 = const value(64) : i32
          %21 = add %k, %20 : i32
          tma_prefetch %a, %k, %17 rank(2)
          tma_prefetch %a, %21, %17 rank(2)
          map_prefetch %a
        }
        "#,
    );
    let describe =
        |name| kernel.tensor_map(name).map(|s| format!("{:?} {}", s.box_dims(), s.swizzle())).unwrap();
    assert_eq!(
        vec![describe("a"), describe("b"), describe("c")],
        ["[64, 64] 128-byte swizzled", "[64, 32] 128-byte swizzled", "[4, 8] unswizzled"]
    );
}

#[test]
fn boxes_have_any_rank() {
    let kernel = boxes::stage().unwrap();
    assert_eq!(
        lines(&kernel, "tma_load"),
        [
            "tma_load rank(1)",
            "tma_load rank(1) flags(multicast hint)",
            "tma_load rank(3)",
            "tma_load rank(3) flags(multicast hint)",
            "tma_load rank(5)",
            "tma_load rank(5) flags(multicast hint)",
            "tma_load rank(3) flags(im2col)",
            "tma_load rank(5) flags(multicast hint im2col)"
        ]
    );
    assert_eq!(
        lines(&kernel, "tma_store"),
        [
            "tma_store rank(1)",
            "tma_store rank(1) flags(hint)",
            "tma_store rank(3)",
            "tma_store rank(3) flags(hint)",
            "tma_store rank(5)",
            "tma_store rank(5) flags(hint)"
        ]
    );
    assert_eq!(kernel.tensor_map("m3").map(TensorMapSpec::rank), Some(3));
    assert_eq!(kernel.tensor_map("m1"), None);
}

#[test]
fn tensor_maps_can_be_edited() {
    expect(
        &edited::stage().unwrap(),
        r#"
        func @edited (%x: ptr<global> align(4), %storage: ptr<global> align(8), %n: u32) {
          %0 = shared bytes(128) align(128) : ptr<shared>
          %1 = ptr_to_int %x : u64
          map_replace %0, %1 field(global_address)
          map_replace %0, %n field(global_dim) index(0)
          %2 = cvt %n : u64
          %3 = const value(4) : u64
          %4 = mul %2, %3 : u64
          map_replace %0, %4 field(global_stride) index(0)
          map_publish %storage, %0
          map_acquire %storage
          %5 = shared bytes(8) align(8) text("bar") : ptr<shared>
          %6 = const value(0) : i32
          %7 = const value(1) : i32
          tma_load %0, %storage, %5, %6, %7 rank(2)
        }
        "#,
    );
}
