//! How long a kernel takes from Rust to PTX: staging, passes, code generation and printing.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use tilewright_compiler::Compiler;
use tilewright_hardware::Arch;
use tilewright_kernels::find;

fn compile(c: &mut Criterion) {
    for (name, arch) in
        [("vector_add", Arch::SM_80), ("gemm_ampere", Arch::SM_80), ("gemm_hopper", Arch::SM_90A)]
    {
        let entry = find(name).unwrap();
        let kernel = (entry.stage)().unwrap();
        let build = Compiler::new(arch).compile(kernel.func()).unwrap();
        let mut group = c.benchmark_group(name);
        group.bench_function("stage", |b| b.iter(entry.stage));
        group.bench_function("passes", |b| {
            b.iter(|| {
                let mut module = tilewright_ir::Module::from(kernel.func().clone());
                tilewright_passes::Pipeline::standard().run(&mut module).unwrap();
                module
            });
        });
        group.bench_function("codegen", |b| {
            b.iter(|| {
                tilewright_codegen::compile(&build.func, &tilewright_codegen::Options::new(arch)).unwrap()
            });
        });
        group.bench_function("whole", |b| {
            b.iter(|| Compiler::new(arch).compile((entry.stage)().unwrap().func()).unwrap());
        });
        group.finish();
    }
}

criterion_group!(benches, compile);
criterion_main!(benches);
