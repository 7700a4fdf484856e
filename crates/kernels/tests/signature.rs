//! The compiler's own PTX says what each kernel of the registry does with its parameters.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use tilewright_compiler::Compiler;
use tilewright_kernels::KERNELS;
use tilewright_ptx::{Signature, parse};

/// A product through pointers: a, b, c, n, k.
const POINTERS: &[&str] = &[
    "pointer:global read",
    "pointer:global read",
    "pointer:global write",
    "scalar:u32 read",
    "scalar:u32 read",
];

/// A product through tensor maps: a, b, c, steps.
const MAPS: &[&str] = &["tensor-map read", "tensor-map read", "tensor-map write", "scalar:u32 read"];

/// The same with rows and columns of tiles.
const TILES: &[&str] = &[
    "tensor-map read",
    "tensor-map read",
    "tensor-map write",
    "scalar:u32 read",
    "scalar:u32 read",
    "scalar:u32 read",
];

/// Kind and access of every parameter, the same on every chip.
const EXPECTED: &[(&str, &[&str])] = &[
    (
        "vector_add",
        &["pointer:global read", "pointer:global read", "pointer:global write", "scalar:u32 read"],
    ),
    ("transpose", &["pointer:global read", "pointer:global write", "scalar:u32 read", "scalar:u32 read"]),
    ("block_sum", &["pointer:global read", "pointer:global read-write", "scalar:u32 read"]),
    ("cluster_sum", &["pointer:global read", "pointer:global read-write", "scalar:u32 read"]),
    ("ladder_naive", POINTERS),
    ("ladder_patch", POINTERS),
    ("ladder_shared", POINTERS),
    ("ladder_registers", POINTERS),
    ("ladder_vectors", POINTERS),
    ("ladder_tensor", POINTERS),
    ("gemm_ampere", POINTERS),
    ("ladder_wgmma", MAPS),
    ("gemm_hopper", MAPS),
    ("ladder_persistent", TILES),
    ("ladder_cluster", TILES),
];

#[test]
fn every_kernel_has_the_signature_of_its_source() {
    assert_eq!(KERNELS.len(), EXPECTED.len(), "a kernel of the registry has no expectation here");
    for (entry, (name, expected)) in KERNELS.iter().zip(EXPECTED) {
        assert_eq!(entry.name, *name);
        let kernel = (entry.stage)().unwrap();
        for arch in entry.architectures() {
            let code = Compiler::new(arch).compile(kernel.func()).unwrap().code;
            let signatures = parse(&code.text).unwrap().signatures();
            let [signature] = &signatures[..] else { panic!("{name}: {} kernels", signatures.len()) };
            let found: Vec<String> =
                signature.parameters.iter().map(|p| format!("{} {}", p.kind, p.access)).collect();
            assert_eq!(found, *expected, "{name} for {arch}: {signature}");
            let sizes: Vec<_> = signature.parameters.iter().map(|p| (&p.name, p.bytes, p.align)).collect();
            let passed: Vec<_> = code.signature.iter().map(|p| (&p.name, p.bytes, p.align)).collect();
            assert_eq!(sizes, passed, "{name} for {arch}");
            assert_eq!(signature.required_block, code.launch.threads, "{name} for {arch}");
            assert_eq!(signature.shared_bytes, code.shared.fixed, "{name} for {arch}");
            assert_eq!(signature.dynamic_shared, code.shared.dynamic > 0, "{name} for {arch}");
            assert_eq!(signature.to_string().parse::<Signature>().as_ref(), Ok(signature));
        }
    }
}
