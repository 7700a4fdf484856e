//! The simulator as a device of the library: kernels of ours with right results, and arguments that do not fit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use tilewright::device::{DeviceError, Options};
use tilewright::kernels::examples::{self, GemmTile};
use tilewright::kernels::find;
use tilewright::prelude::*;
use tilewright::sim::FindingKind;

/// Whole numbers that differ from neighbour to neighbour, small enough that sums of products are exact.
fn numbers(len: usize, factor: usize) -> impl Iterator<Item = f32> {
    (0..len).map(move |i| f32::from(u8::try_from(i * factor % 17).unwrap()) - 8.0)
}

fn staged(name: &str) -> tilewright::lang::Kernel {
    (find(name).unwrap().stage)().unwrap()
}

#[test]
fn vector_add() {
    let device = Device::simulator();
    let kernel = device.compile(&staged("vector_add")).unwrap();
    assert_eq!((kernel.block(), kernel.cluster(), kernel.shared_bytes()), (Some([256, 1, 1]), None, 0));
    let (x, y): (Vec<f32>, Vec<f32>) = (numbers(1000, 3).collect(), numbers(1000, 5).collect());
    let out = device.alloc::<f32>(1000).unwrap();
    let report = kernel
        .launch(4, &[&device.upload(&x).unwrap(), &device.upload(&y).unwrap(), &out, &1000u32])
        .unwrap()
        .expect_clean()
        .unwrap();
    assert!(report.thread_instructions > 1000);
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
    assert_eq!(device.download(&out).unwrap(), expected);
}

/// The same kernel for other elements: the type of the buffers follows the type of the kernel.
#[test]
fn vector_add_of_halves_and_integers() {
    let device = Device::simulator();
    let kernel = device.compile(&examples::vector_add::stage::<f16>(64).unwrap()).unwrap();
    let x = device.upload(&[f16::from_f32(1.5); 100]).unwrap();
    let out = device.alloc::<f16>(100).unwrap();
    kernel.launch(2, &[&x, &x, &out, &100u32]).unwrap().expect_clean().unwrap();
    assert_eq!(out.to_vec().unwrap(), [f16::from_f32(3.0); 100]);

    let kernel = device.compile(&examples::vector_add::stage::<i64>(64).unwrap()).unwrap();
    let x = device.upload(&[i64::MIN / 2; 100]).unwrap();
    let out = device.alloc::<i64>(100).unwrap();
    kernel.launch(2, &[&x, &x, &out, &100u32]).unwrap().expect_clean().unwrap();
    assert_eq!(out.to_vec().unwrap(), [i64::MIN; 100]);
}

#[test]
fn transpose() {
    const ROWS: u32 = 50;
    const COLUMNS: u32 = 70;
    let device = Device::simulator();
    let kernel = device.compile(&staged("transpose")).unwrap();
    let len = (ROWS * COLUMNS) as usize;
    let x: Vec<u32> = (0..ROWS * COLUMNS).collect();
    let x: Vec<f32> = x.into_iter().map(|i| f32::from(u16::try_from(i).unwrap())).collect();
    let out = device.alloc::<f32>(len).unwrap();
    let grid = (COLUMNS.div_ceil(32), ROWS.div_ceil(32));
    kernel
        .launch(grid, &[&device.upload(&x).unwrap(), &out, &ROWS, &COLUMNS])
        .unwrap()
        .expect_clean()
        .unwrap();
    let (rows, columns) = (ROWS as usize, COLUMNS as usize);
    let expected: Vec<f32> = (0..len).map(|i| x[i % rows * columns + i / rows]).collect();
    assert_eq!(out.to_vec().unwrap(), expected);
}

#[test]
fn sums_by_blocks_and_by_clusters() {
    let device = Device::simulator();
    let x: Vec<f32> = numbers(10_001, 3).collect();
    let buffer = device.upload(&x).unwrap();
    for (name, blocks) in [("block_sum", 3), ("cluster_sum", 8)] {
        let kernel = device.compile(&staged(name)).unwrap();
        let out = device.upload(&[100.0f32]).unwrap();
        kernel.launch(blocks, &[&buffer, &out, &10_001u32]).unwrap().expect_clean().unwrap();
        assert_eq!(out.to_vec().unwrap(), [100.0 + x.iter().sum::<f32>()], "{name}");
    }
    assert_eq!(device.compile(&staged("cluster_sum")).unwrap().cluster(), Some([4, 1, 1]));
}

/// `a * b^T`, rows times rows, rounded once.
fn product(a: &[f32], b: &[f32], depth: usize) -> Vec<bf16> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    a.chunks(depth).flat_map(|a| b.chunks(depth).map(move |b| bf16::from_f32(dot(a, b)))).collect()
}

fn rounded(values: &[f32]) -> Vec<bf16> {
    values.iter().map(|&value| bf16::from_f32(value)).collect()
}

#[test]
fn gemm_ampere() {
    let (m, n, k) = (128, 256, 96);
    let device = Device::simulator();
    let tile = GemmTile { m: 128, n: 128, k: 32, stages: 2 };
    let staged = examples::gemm_ampere::stage(tile).unwrap();
    let kernel = device.compile_with(&staged, Compiler::new(Arch::SM_80)).unwrap();
    let (a, b): (Vec<f32>, Vec<f32>) = (numbers(m * k, 5).collect(), numbers(n * k, 3).collect());
    let c = device.alloc::<bf16>(m * n).unwrap();
    let [a_there, b_there] = [&a, &b].map(|values| device.upload(&rounded(values)).unwrap());
    kernel.launch((2, 1), &[&a_there, &b_there, &c, &256u32, &96u32]).unwrap().expect_clean().unwrap();
    assert_eq!(c.to_vec().unwrap(), product(&a, &b, k));
}

#[test]
fn gemm_hopper() {
    let (m, n, k) = (128, 256, 192);
    let device = Device::simulator();
    let staged = staged("gemm_hopper");
    let kernel = device.compile(&staged).unwrap();
    assert!(kernel.shared_bytes() > 48 * 1024);
    let (a, b): (Vec<f32>, Vec<f32>) = (numbers(m * k, 5).collect(), numbers(n * k, 3).collect());
    let c = device.alloc::<bf16>(m * n).unwrap();
    let [a_there, b_there] = [&a, &b].map(|values| device.upload(&rounded(values)).unwrap());
    let map = |name, buffer, dims: [usize; 2]| {
        device
            .tensor_map(staged.tensor_map(name).unwrap(), buffer, &dims.map(|extent| extent as u64))
            .unwrap()
    };
    let maps = (map("a", &a_there, [k, m]), map("b", &b_there, [k, n]), map("c", &c, [n, m]));
    kernel.launch((1, 1), &[&maps.0, &maps.1, &maps.2, &3u32]).unwrap().expect_clean().unwrap();
    assert_eq!(c.to_vec().unwrap(), product(&a, &b, k));

    // The map of another parameter has another box.
    let error = kernel.launch((1, 1), &[&maps.1, &maps.1, &maps.2, &3u32]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "argument 1 of kernel `gemm_hopper` (parameter `a`): found a tensor map of bf16 in boxes of 64x256 with swizzle B128, \
         expected a tensor map of bf16 in boxes of 64x128 with swizzle B128"
    );
    let error = kernel.launch((1, 1), &[&a_there, &maps.1, &maps.2, &3u32]).unwrap_err();
    assert!(error.to_string().contains("found a buffer of bf16, expected a tensor map"), "{error}");
}

#[test]
fn arguments_are_held_against_the_signature() {
    let device = Device::simulator();
    let kernel = device.compile(&staged("vector_add")).unwrap();
    let x = device.upload(&[1.0f32; 8]).unwrap();
    let words = device.upload(&[1u32; 8]).unwrap();
    let elsewhere = Device::simulator().upload(&[1.0f32; 8]).unwrap();
    let message = |arguments: &[&dyn tilewright::device::Argument]| {
        kernel.launch(1, arguments).unwrap_err().to_string()
    };
    for (found, parts) in [
        (
            message(&[&x, &x, &x]),
            &["given 3 arguments", "expected 4", "`x`, a buffer of f32", "`n`, a number of type u32"][..],
        ),
        (
            message(&[&x, &words, &x, &8u32]),
            &["argument 2", "`y`", "found a buffer of u32", "expected a buffer of f32"],
        ),
        (message(&[&x, &x, &x, &8i32]), &["argument 4", "`n`", "found a number of type i32", "of type u32"]),
        (
            message(&[&x, &x, &7u64, &8u32]),
            &["argument 3", "`out`", "found a number of type u64", "a buffer of f32"],
        ),
        (message(&[&x, &x, &x, &x]), &["argument 4", "found a buffer of f32", "a number of type u32"]),
        (message(&[&x, &elsewhere, &x, &8u32]), &["argument 2", "another device"]),
    ] {
        for part in parts {
            assert!(found.contains(part), "{part}: {found}");
        }
    }
    let error = kernel.clone().with_block(128).launch(1, &[&x, &x, &x, &8u32]).unwrap_err();
    assert!(error.to_string().contains("found [128, 1, 1], expected [256, 1, 1]"), "{error}");
    assert!(matches!(device.download(&elsewhere), Err(DeviceError::OtherDevice)));
    assert!(matches!(device.alloc::<f64>(usize::MAX), Err(DeviceError::Memory { .. })));
}

/// A build knows the types of its parameters, PTX text their sizes.
#[test]
fn what_is_loaded_without_its_source_is_checked_as_far_as_it_goes() {
    let device = Device::simulator();
    let build = Compiler::new(Arch::SM_80).compile(staged("vector_add").func()).unwrap();
    let (x, out) = (device.upload(&[1.0f32; 8]).unwrap(), device.alloc::<f32>(8).unwrap());
    let kernel = device.load(&build).unwrap().kernel("vector_add").unwrap();
    let error = kernel.launch(1, &[&x, &8u64, &out, &8u32]).unwrap_err();
    assert!(error.to_string().contains("found a number of type u64, expected a buffer"), "{error}");
    let error = kernel.launch(1, &[&x, &x, &out, &8i32]).unwrap_err();
    assert!(
        error.to_string().contains("found a number of type i32, expected a number of type u32"),
        "{error}"
    );
    kernel.launch(1, &[&x, &x, &out, &8u32]).unwrap().expect_clean().unwrap();

    let module = device.load(&build.code.text).unwrap();
    assert_eq!(module.kernels(), ["vector_add"]);
    let kernel = module.kernel("vector_add").unwrap();
    let error = kernel.launch(1, &[&x, &x, &out, &8u64]).unwrap_err();
    assert!(
        error.to_string().contains("found a number of type u64, expected an argument of 4 bytes"),
        "{error}"
    );
    kernel.launch(1, &[&x, &x, &out, &8u32.to_le_bytes()]).unwrap().expect_clean().unwrap();
    assert_eq!(out.to_vec().unwrap(), [2.0; 8]);

    let error = module.kernel("vector_sub").unwrap_err();
    assert!(
        error.to_string().contains("`vector_sub`") && error.to_string().contains("vector_add"),
        "{error}"
    );
    assert!(device.load("nonsense").is_err());
}

#[test]
fn tensor_maps_must_fit_their_buffer() {
    let device = Device::simulator();
    let spec = TensorMapSpec::new(tilewright::hardware::Element::F32, &[32, 8], SwizzleMode::B128).unwrap();
    let x = device.alloc::<f32>(32 * 8).unwrap();
    let words = device.alloc::<u32>(32 * 8).unwrap();
    for (error, part) in [
        (device.tensor_map(&spec, &x, &[32, 9]).unwrap_err(), "needs 1152 bytes, but the buffer has 1024"),
        (device.tensor_map(&spec, &x, &[u64::MAX, 9]).unwrap_err(), "more than 2^64 bytes"),
        (device.tensor_map(&spec, &x, &[30, 8]).unwrap_err(), "stride"),
        (device.tensor_map(&spec, &x, &[32]).unwrap_err(), "1 extents"),
        (device.tensor_map(&spec, &words, &[32, 8]).unwrap_err(), "found a buffer of u32, expected f32"),
        (Device::simulator().tensor_map(&spec, &x, &[32, 8]).unwrap_err(), "another device"),
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    // A map keeps its memory.
    let map = device.tensor_map(&spec, &x, &[32, 8]).unwrap();
    drop(x);
    assert_eq!(map.dims(), [32, 8]);
}

/// Threads read what their neighbours write.
#[kernel(threads = 64)]
fn shift(x: Global<f32>) {
    let i = thread_id(0);
    let next = x.at(i + 1).load();
    x.at(i).store(next);
}

#[test]
fn findings_are_errors_only_if_asked() {
    let device = Device::simulator_with(Options { seed: 3, count: true, ..Options::default() });
    let kernel = device.compile(&shift::stage().unwrap()).unwrap();
    let x = device.upload(&[1.0f32; 64]).unwrap();
    let report = kernel.launch(1, &[&x]).unwrap();
    let kinds: Vec<FindingKind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&FindingKind::Race) && kinds.contains(&FindingKind::OutOfBounds), "{kinds:?}");
    assert!(report.findings.iter().all(|finding| finding.seed == 3));
    let source = report.findings[0].first.source.as_ref().unwrap();
    assert!(source.file.ends_with("device.rs"), "{source:?}");
    assert!(report.counts.thread_instructions > 0);
    let error = report.expect_clean().unwrap_err();
    assert!(error.to_string().contains("findings in kernel `shift`; the first: "), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    assert!(matches!(error, DeviceError::Findings { findings, .. } if findings.len() == kinds.len()));
}

/// What nobody holds any more is no memory: a pointer that was kept finds nothing.
#[test]
fn memory_ends_with_its_buffer() {
    let device = Device::simulator();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry read(.param .u64 a, .param .u64 b)\n{\n\
        .reg .b64 %rd<3>;\n.reg .b32 %r<2>;\nld.param.u64 %rd1, [a];\nld.param.u64 %rd2, [b];\nld.global.u64 %rd1, [%rd1];\n\
        ld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd2], %r1;\nret;\n}\n";
    let kernel = device.load(text).unwrap().kernel("read").unwrap().with_block(1);
    let data = device.upload(&[7u32]).unwrap();
    let address: u64 = format!("{data:?}")
        .split_once("0x")
        .map(|(_, hex)| u64::from_str_radix(hex.trim_end_matches(')'), 16).unwrap())
        .unwrap();
    let (pointer, out) = (device.upload(&[address]).unwrap(), device.alloc::<u32>(1).unwrap());
    kernel.launch(1, &[&pointer, &out]).unwrap().expect_clean().unwrap();
    assert_eq!(out.to_vec().unwrap(), [7]);
    drop(data);
    let report = kernel.launch(1, &[&pointer, &out]).unwrap();
    assert_eq!(report.findings[0].kind, FindingKind::OutOfBounds);
}

#[test]
fn a_block_that_nobody_knows_is_asked_for() {
    let device = Device::simulator();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n";
    let kernel = device.load(text).unwrap().kernel("idle").unwrap();
    let error = kernel.launch(1, &[]).unwrap_err();
    assert!(error.to_string().contains("`with_block`"), "{error}");
    kernel.with_block((8, 4)).launch((2, 2, 2), &[]).unwrap().expect_clean().unwrap();
}
