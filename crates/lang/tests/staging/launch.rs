//! What the launch must know, who a thread is, roles, and looking inside.

use tilewright_lang::prelude::*;

use crate::{expect, lines};

#[kernel(threads = (16, 4, 2), min_blocks = 2, cluster = (2, 1, 1), max_registers = 64, name = "entry")]
fn bounds(x: Global<f32>, n: Val<u32>, m: TensorMap<bf16>, flag: Val<bool>) {
    let wide = x.aligned(16).aligned(8);
    if flag {
        wide.at(n).store(1.0);
    }
    m.prefetch();
}

#[kernel(threads = (8, 4))]
fn two_axes() {
    barrier();
}

#[kernel(threads = 32 * warps, cluster = (blocks, 1, 1))]
fn computed(warps: u32, blocks: u32) {
    cluster_barrier();
}

#[kernel]
fn registers(out: Global<u32>) {
    let axes = [thread_id, block_size, block_id, grid_size, cluster_id, cluster_grid_size, block_in_cluster];
    for f in axes {
        for axis in 0..3 {
            out.store(f(axis));
        }
    }
    let singles = [
        lane_id,
        sm_id,
        cluster_rank,
        cluster_size,
        lane_mask_eq,
        lane_mask_lt,
        lane_mask_le,
        lane_mask_gt,
        lane_mask_ge,
    ];
    for f in singles {
        out.store(f());
    }
}

#[kernel]
fn derived(out: Global<u32>, times: Global<u64>) {
    out.store(warp_id());
    out.store(warpgroup_id());
    times.store(global_timer() - clock());
}

#[kernel(threads = 384)]
fn roles(out: Global<u32>) {
    let loader = Role { name: "loader", warps: 0..4, registers: Some(40) };
    let math = Role { name: "math", warps: 4..12, registers: Some(232) };
    role(&loader, || out.store(1u32));
    role(&math, || {
        if thread_id(0) == 128 {
            out.store(2u32);
        }
    });
}

#[kernel(threads = 96)]
fn plain_roles(out: Global<u32>) {
    role(&Role { name: "one", warps: 0..1, registers: None }, || out.store(1u32));
    role(&Role { name: "rest", warps: 1..3, registers: None }, || out.store(2u32));
}

#[kernel]
fn inside(n: Val<u32>, x: Val<f32>) {
    print("n is {} and x is {}", &[&n, &x]);
    print("nothing to see", &[]);
    assert_with(n > 0, "n must be \"positive\"");
    sleep(100);
    if n == 7 {
        trap();
    }
}

pub(crate) fn kernels() -> Vec<Kernel> {
    [
        bounds::stage(),
        two_axes::stage(),
        computed::stage(4, 2),
        registers::stage(),
        derived::stage(),
        roles::stage(),
        plain_roles::stage(),
        inside::stage(),
    ]
    .map(|kernel| kernel.unwrap_or_else(|error| panic!("{error}")))
    .into()
}

#[test]
fn launch_bounds_and_parameters_are_part_of_the_kernel() {
    let kernel = bounds::stage().unwrap();
    assert_eq!(kernel.name(), "entry");
    let launch = kernel.launch();
    assert_eq!(launch.threads, Some([16, 4, 2]));
    assert_eq!(launch.total_threads(), Some(128));
    assert_eq!(
        (launch.min_blocks, launch.cluster, launch.max_registers),
        (Some(2), Some([2, 1, 1]), Some(64))
    );
    let parameters = kernel.parameters().map(|(name, ty, align)| format!("{name}: {ty} {align}"));
    assert_eq!(
        parameters.collect::<Vec<_>>(),
        ["x: ptr<global> 16", "n: u32 0", "m: tensor_map 0", "flag: bool 0"]
    );
    // Nothing is copied through the map, so nothing is known of it.
    assert_eq!(kernel.tensor_map("m"), None);
    assert_eq!(two_axes::stage().unwrap().launch().threads, Some([8, 4, 1]));
    let computed = computed::stage(4, 2).unwrap().launch();
    assert_eq!((computed.threads, computed.cluster), (Some([128, 1, 1]), Some([2, 1, 1])));
}

#[test]
fn every_register_has_a_function() {
    assert_eq!(
        lines(&registers::stage().unwrap(), "special"),
        [
            "special reg(tid.x) : u32",
            "special reg(tid.y) : u32",
            "special reg(tid.z) : u32",
            "special reg(ntid.x) : u32",
            "special reg(ntid.y) : u32",
            "special reg(ntid.z) : u32",
            "special reg(ctaid.x) : u32",
            "special reg(ctaid.y) : u32",
            "special reg(ctaid.z) : u32",
            "special reg(nctaid.x) : u32",
            "special reg(nctaid.y) : u32",
            "special reg(nctaid.z) : u32",
            "special reg(clusterid.x) : u32",
            "special reg(clusterid.y) : u32",
            "special reg(clusterid.z) : u32",
            "special reg(nclusterid.x) : u32",
            "special reg(nclusterid.y) : u32",
            "special reg(nclusterid.z) : u32",
            "special reg(cluster_ctaid.x) : u32",
            "special reg(cluster_ctaid.y) : u32",
            "special reg(cluster_ctaid.z) : u32",
            "special reg(laneid) : u32",
            "special reg(smid) : u32",
            "special reg(cluster_ctarank) : u32",
            "special reg(cluster_nctarank) : u32",
            "special reg(lanemask_eq) : u32",
            "special reg(lanemask_lt) : u32",
            "special reg(lanemask_le) : u32",
            "special reg(lanemask_gt) : u32",
            "special reg(lanemask_ge) : u32"
        ]
    );
}

#[test]
fn warp_numbers_are_broadcast_and_clocks_are_read() {
    expect(
        &derived::stage().unwrap(),
        "
        func @derived (%out: ptr<global> align(4), %times: ptr<global> align(8)) {
          %0 = special reg(tid.x) : u32
          %1 = const value(5) : u32
          %2 = shr %0, %1 : u32
          %3 = const value(4294967295) : u32
          %4 = const value(0) : u32
          %5, %6 = shuffle %2, %4, %3 mode(idx) : u32, bool
          store %out, %5
          %7 = special reg(tid.x) : u32
          %8 = const value(7) : u32
          %9 = shr %7, %8 : u32
          %10 = const value(4294967295) : u32
          %11 = const value(0) : u32
          %12, %13 = shuffle %9, %11, %10 mode(idx) : u32, bool
          store %out, %12
          %14 = clock reg(globaltimer) : u64
          %15 = clock reg(clock64) : u64
          %16 = sub %14, %15 : u64
          store %times, %16
        }
        ",
    );
}

#[test]
fn roles_name_their_warps_and_registers() {
    expect(
        &roles::stage().unwrap(),
        r#"
        func @roles threads(384,1,1) (%out: ptr<global> align(4)) {
          role text("loader") warps(0..4) registers(40) do {
            %0 = const value(1) : u32
            store %out, %0
          }
          role text("math") warps(4..12) registers(232) do {
            %1 = special reg(tid.x) : u32
            %2 = const value(128) : u32
            %3 = cmp %1, %2 cmp(eq) : bool
            if %3 then {
              %4 = const value(2) : u32
              store %out, %4
            } else {
            }
          }
        }
        "#,
    );
    assert_eq!(
        lines(&plain_roles::stage().unwrap(), "role"),
        ["role text(\"one\") warps(0..1) do {", "role text(\"rest\") warps(1..3) do {"]
    );
}

#[test]
fn traces_assertions_and_traps() {
    expect(
        &inside::stage().unwrap(),
        r#"
        func @inside (%n: u32, %x: f32) {
          trace %n, %x text("n is {} and x is {}")
          trace text("nothing to see")
          %0 = const value(0) : u32
          %1 = cmp %n, %0 cmp(gt) : bool
          assert %1 text("n must be \"positive\"")
          %2 = const value(100) : u32
          sleep %2
          %3 = const value(7) : u32
          %4 = cmp %n, %3 cmp(eq) : bool
          if %4 then {
            trap
          } else {
          }
        }
        "#,
    );
}
