//! Barriers, fences, barrier objects and pipelines.

use tilewright_ir::Opcode;
use tilewright_lang::prelude::*;

use crate::{count, expect, lines};

#[kernel(threads = 128, cluster = (2, 1, 1))]
fn barriers(p: Val<bool>, flags: Global<bool>, out: Global<u32>) {
    barrier();
    NamedBarrier::new(1u32, 64).wait();
    NamedBarrier::new(warp_id(), 96).arrive();
    flags.store(barrier_all(p));
    flags.store(barrier_any(p));
    out.store(barrier_count(p));
    cluster_barrier();
    cluster_arrive_relaxed();
    cluster_wait();
}

#[kernel]
fn fences() {
    fence(Order::AcqRel, Scope::Gpu);
    fence(Order::SeqCst, Scope::System);
    fence_async();
    for proxy in [FenceProxy::Async, FenceProxy::AsyncGlobal, FenceProxy::Alias] {
        fence_proxy(proxy);
    }
    fence_barrier_init();
    grid_wait();
    grid_launch_dependents();
}

#[kernel(cluster = (2, 1, 1))]
fn objects(n: Val<u32>, flags: Global<bool>) {
    let bar = Mbarrier::array(4, "ready").at(n);
    bar.init(3u32);
    bar.arrive();
    bar.arrive_many(2u32);
    bar.arrive_and_drop();
    bar.expect(64u32);
    bar.arrive_and_expect(n);
    bar.arrive_after_copies();
    flags.store(bar.test(0u32));
    flags.store(bar.try_wait(n));
    bar.wait(1u32);
    bar.wait_cluster(n & 1);
    let other = bar.in_block(1u32);
    other.arrive();
    other.arrive_release();
    other.arrive_and_expect(128u32);
    bar.invalidate();
    let placed: Mbarrier = Shared::<u64>::new("1:1").ptr().into();
    placed.init(1u32);
}

#[kernel(threads = 64, cluster = (2, 1, 1))]
fn pipelined(x: Global<f32>, n: Val<u32>) {
    let ring = Ring::<f32>::new(2, "32:1");
    let pipe = Pipeline::new(2, 1);
    barrier();
    role(&Role { name: "fill", warps: 0..1, registers: None }, || {
        let mut slot = pipe.producer();
        for i in 0..n {
            let full = pipe.acquire(slot, 128u32);
            bulk_load(ring.at(slot.index).ptr(), x.at(i * 32), 128u32, full, CopyOptions::new());
            slot = slot.next();
        }
    });
    role(&Role { name: "use", warps: 1..2, registers: None }, || {
        let mut slot = pipe.consumer();
        for _ in 0..n {
            pipe.wait(slot);
            pipe.release(slot);
            pipe.release_in_block(slot, 1u32);
            slot = slot.next();
        }
    });
}

#[kernel(threads = 32)]
fn skipping(n: Val<u32>) {
    let pipe = Pipeline::new(3, 1);
    barrier();
    pipe.wait(pipe.consumer().skip(n));
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [barriers::stage(), fences::stage(), objects::stage(), pipelined::stage(), skipping::stage()]
        .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
        .into()
}

#[test]
fn barriers_of_block_and_cluster() {
    expect(&barriers::stage().unwrap(), "
        func @barriers threads(128,1,1) cluster(2,1,1) (%p: bool, %flags: ptr<global> align(1), %out: ptr<global> align(4)) {
          %0 = const value(0) : u32
          barrier %0 flags(aligned)
          %1 = const value(1) : u32
          %2 = const value(64) : u32
          barrier %1, %2 flags(aligned)
          %3 = special reg(tid.x) : u32
          %4 = const value(5) : u32
          %5 = shr %3, %4 : u32
          %6 = const value(4294967295) : u32
          %7 = const value(0) : u32
          %8, %9 = shuffle %5, %7, %6 mode(idx) : u32, bool
          %10 = const value(96) : u32
          barrier_arrive %8, %10 flags(aligned)
          %11 = const value(0) : u32
          %12 = barrier_reduce %p, %11 op(and) flags(aligned) : bool
          store %flags, %12
          %13 = const value(0) : u32
          %14 = barrier_reduce %p, %13 op(or) flags(aligned) : bool
          store %flags, %14
          %15 = const value(0) : u32
          %16 = barrier_reduce %p, %15 op(popc) flags(aligned) : u32
          store %out, %16
          cluster_arrive flags(aligned)
          cluster_wait flags(aligned)
          cluster_arrive order(relaxed) flags(aligned)
          cluster_wait flags(aligned)
        }
        ");
}

#[test]
fn fences_name_what_they_order() {
    expect(
        &fences::stage().unwrap(),
        "
        func @fences () {
          fence order(acq_rel) scope(gpu)
          fence order(sc) scope(sys)
          fence_proxy proxy(async.shared)
          fence_proxy proxy(async)
          fence_proxy proxy(async.global)
          fence_proxy proxy(alias)
          fence_mbar_init
          grid_wait
          grid_launch
        }
        ",
    );
}

#[test]
fn barrier_objects() {
    expect(
        &objects::stage().unwrap(),
        r#"
        func @objects cluster(2,1,1) (%n: u32, %flags: ptr<global> align(1)) {
          %0 = shared bytes(32) align(8) text("ready") : ptr<shared>
          %1 = const value(8) : u32
          %2 = mul %n, %1 : u32
          %3 = ptr_add %0, %2 : ptr<shared>
          %4 = const value(3) : u32
          mbar_init %3, %4
          mbar_arrive %3
          %5 = const value(2) : u32
          mbar_arrive %3, %5
          mbar_arrive_drop %3
          %6 = const value(64) : u32
          mbar_expect %3, %6
          mbar_arrive_expect %3, %n
          cp_async_arrive %3 flags(noinc)
          %7 = const value(0) : u32
          %8 = mbar_test %3, %7 : bool
          store %flags, %8
          %9 = mbar_test %3, %n flags(try) : bool
          store %flags, %9
          %10 = const value(1) : u32
          mbar_wait %3, %10
          %11 = const value(1) : u32
          %12 = and %n, %11 : u32
          mbar_wait %3, %12 order(acquire) scope(cluster)
          %13 = const value(1) : u32
          %14 = map_cluster %3, %13 : ptr<cluster>
          mbar_arrive %14
          mbar_arrive %14 order(release) scope(cluster)
          %15 = const value(128) : u32
          mbar_arrive_expect %14, %15
          mbar_invalidate %3
          %16 = shared bytes(16) align(16) : ptr<shared>
          %17 = const value(1) : u32
          mbar_init %16, %17
        }
        "#,
    );
}

#[test]
fn a_pipeline_has_two_barrier_objects_a_slot_and_flips_its_phase_when_it_wraps() {
    let kernel = pipelined::stage().unwrap();
    assert_eq!(count(&kernel, Opcode::MbarInit), 4);
    assert_eq!(
        lines(&kernel, "shared"),
        [
            "shared bytes(256) align(128) : ptr<shared>",
            "shared bytes(16) align(8) text(\"full\") : ptr<shared>",
            "shared bytes(16) align(8) text(\"empty\") : ptr<shared>"
        ]
    );
    expect(
        &kernel,
        r#"
        func @pipelined threads(64,1,1) cluster(2,1,1) (%x: ptr<global> align(4), %n: u32) {
          %0 = shared bytes(256) align(128) : ptr<shared>
          %1 = shared bytes(16) align(8) text("full") : ptr<shared>
          %2 = shared bytes(16) align(8) text("empty") : ptr<shared>
          %3 = special reg(tid.x) : u32
          %4 = const value(0) : u32
          %5 = cmp %3, %4 cmp(eq) : bool
          if %5 then {
            %6 = const value(0) : u32
            %7 = const value(8) : u32
            %8 = mul %6, %7 : u32
            %9 = ptr_add %1, %8 : ptr<shared>
            %10 = const value(1) : u32
            mbar_init %9, %10
            %11 = const value(0) : u32
            %12 = const value(8) : u32
            %13 = mul %11, %12 : u32
            %14 = ptr_add %2, %13 : ptr<shared>
            %15 = const value(1) : u32
            mbar_init %14, %15
            %16 = const value(1) : u32
            %17 = const value(8) : u32
            %18 = mul %16, %17 : u32
            %19 = ptr_add %1, %18 : ptr<shared>
            %20 = const value(1) : u32
            mbar_init %19, %20
            %21 = const value(1) : u32
            %22 = const value(8) : u32
            %23 = mul %21, %22 : u32
            %24 = ptr_add %2, %23 : ptr<shared>
            %25 = const value(1) : u32
            mbar_init %24, %25
            fence_mbar_init
          } else {
          }
          %26 = const value(0) : u32
          barrier %26 flags(aligned)
          role text("fill") warps(0..1) do {
            %27 = const value(0) : u32
            %28 = const value(1) : u32
            %29 = const value(0) : u32
            %30 = const value(1) : u32
            %31, %32 = for %29, %n, %30, %27, %28 : u32, u32 do {
              (%33: u32, %34: u32, %35: u32)
              %36 = const value(8) : u32
              %37 = mul %34, %36 : u32
              %38 = ptr_add %2, %37 : ptr<shared>
              mbar_wait %38, %35
              %39 = const value(8) : u32
              %40 = mul %34, %39 : u32
              %41 = ptr_add %1, %40 : ptr<shared>
              %42 = const value(128) : u32
              mbar_arrive_expect %41, %42
              %43 = const value(128) : u32
              %44 = mul %34, %43 : u32
              %45 = const value(1) : u32
              %46 = mul %44, %45 : u32
              %47 = ptr_add %0, %46 : ptr<shared>
              %48 = const value(32) : u32
              %49 = mul %33, %48 : u32
              %50 = const value(4) : u32
              %51 = mul_wide %49, %50 : u64
              %52 = ptr_add %x, %51 : ptr<global>
              %53 = const value(128) : u32
              bulk_load %47, %52, %53, %41
              %54 = const value(1) : u32
              %55 = add %34, %54 : u32
              %56 = const value(2) : u32
              %57 = cmp %55, %56 cmp(eq) : bool
              %58 = const value(0) : u32
              %59 = select %57, %58, %55 : u32
              %60 = const value(1) : u32
              %61 = xor %35, %60 : u32
              %62 = select %57, %61, %35 : u32
              yield %59, %62
            }
          }
          role text("use") warps(1..2) do {
            %63 = const value(0) : u32
            %64 = const value(0) : u32
            %65 = const value(0) : u32
            %66 = const value(1) : u32
            %67, %68 = for %65, %n, %66, %63, %64 : u32, u32 do {
              (%69: u32, %70: u32, %71: u32)
              %72 = const value(8) : u32
              %73 = mul %70, %72 : u32
              %74 = ptr_add %1, %73 : ptr<shared>
              mbar_wait %74, %71
              %75 = const value(8) : u32
              %76 = mul %70, %75 : u32
              %77 = ptr_add %2, %76 : ptr<shared>
              mbar_arrive %77
              %78 = const value(8) : u32
              %79 = mul %70, %78 : u32
              %80 = ptr_add %2, %79 : ptr<shared>
              %81 = const value(1) : u32
              %82 = map_cluster %80, %81 : ptr<cluster>
              mbar_arrive %82
              %83 = const value(1) : u32
              %84 = add %70, %83 : u32
              %85 = const value(2) : u32
              %86 = cmp %84, %85 cmp(eq) : bool
              %87 = const value(0) : u32
              %88 = select %86, %87, %84 : u32
              %89 = const value(1) : u32
              %90 = xor %71, %89 : u32
              %91 = select %86, %90, %71 : u32
              yield %88, %91
            }
          }
        }
        "#,
    );
}

#[test]
fn slots_that_are_left_out_count_rounds() {
    let kernel = skipping::stage().unwrap();
    // The place is what is left of the ring, and the parity is that of the rounds.
    for code in [Opcode::Rem, Opcode::Div, Opcode::And, Opcode::Xor] {
        assert_eq!(count(&kernel, code), 1, "{code:?} in {}", kernel.ir());
    }
}
