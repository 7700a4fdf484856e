//! Every kernel of the registry, compiled for every chip that it claims and that the simulator knows, runs in the simulator: right
//! against a reference in f64, and without a finding, under several seeds.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{Case, Product};
use tilewright_hardware::Arch;
use tilewright_kernels::{Entry, KERNELS, find};
use tilewright_sim::Options;

/// The kernel of the registry with inputs.
fn case(entry: &Entry, arch: Arch) -> Case {
    let kernel = (entry.stage)().unwrap();
    match entry.name {
        "vector_add" => common::vector_add(&kernel, arch),
        "transpose" => common::transpose(&kernel, arch),
        "block_sum" => common::sum("block_sum", &kernel, arch, 3),
        "cluster_sum" => common::sum("cluster_sum", &kernel, arch, 8),
        "gemm_ampere" => {
            let size = Product { m: 128, n: 256, k: 192 };
            common::product_by_pointers("gemm_ampere", &kernel, arch, (128, 128), size)
        }
        "gemm_hopper" => {
            let size = Product { m: 128, n: 256, k: 320 };
            common::product_by_maps("gemm_hopper", &kernel, arch, (128, 256, 64), size)
        }
        other => panic!("{other} is in the registry, but has no inputs here"),
    }
}

fn simulate(name: &str) {
    let entry = find(name).unwrap();
    // Later chips execute the same code; the oldest one and Hopper differ in what the compiler may use.
    for arch in entry.architectures().filter(|arch| [Arch::SM_80, Arch::SM_90A].contains(arch)) {
        let case = case(entry, arch);
        for seed in [0, 1, 99] {
            let outcome = case.run(&case.text, Options::with_seed(seed)).unwrap();
            let found: String =
                outcome.report.findings.iter().map(|finding| format!("{finding}\n")).collect();
            assert!(found.is_empty(), "{name} for {arch}, seed {seed}:\n{found}");
            assert_eq!(outcome.wrong, None, "{name} for {arch}, seed {seed}");
        }
    }
}

macro_rules! kernels {
    ($($name:ident)*) => {
        $(#[test] fn $name() { simulate(stringify!($name)); })*

        #[test]
        fn every_kernel_is_simulated() {
            let names: Vec<&str> = KERNELS.iter().map(|entry| entry.name).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

kernels! { vector_add transpose block_sum cluster_sum gemm_ampere gemm_hopper }
