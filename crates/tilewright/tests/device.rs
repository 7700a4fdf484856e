//! The vocabulary of devices, on every device of this machine: memory, loading, checked arguments; and what only the simulator finds.
//! The kernels of the registry are run by `devices.rs`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use tilewright::device::{DeviceError, DeviceKind, Options, available};
use tilewright::kernels::examples;
use tilewright::kernels::find;
use tilewright::prelude::*;
use tilewright::sim::FindingKind;

fn staged(name: &str) -> tilewright::lang::Kernel {
    (find(name).unwrap().stage)().unwrap()
}

/// The same kernel for other elements: the type of the buffers follows the type of the kernel.
#[test]
fn vector_add_of_halves_and_integers() {
    for device in available() {
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
}

#[test]
fn tensor_maps_are_held_against_the_signature() {
    for device in available().iter().filter(|device| device.arch() == Arch::SM_90A) {
        let staged = staged("gemm_hopper");
        let kernel = device.compile(&staged).unwrap();
        assert!(kernel.shared_bytes() > 48 * 1024);
        let x = device.alloc_zeroed::<bf16>(256 * 64).unwrap();
        let map = |name| device.tensor_map(staged.tensor_map(name).unwrap(), &x, &[64, 256]).unwrap();
        let (a, b, c) = (map("a"), map("b"), map("c"));
        assert_eq!(
            kernel.launch((1, 1), &[&b, &b, &c, &3u32]).unwrap_err().to_string(),
            "argument 1 of kernel `gemm_hopper` (parameter `a`): found a tensor map of bf16 in boxes of 64x256 with swizzle B128, \
             expected a tensor map of bf16 in boxes of 64x128 with swizzle B128"
        );
        let error = kernel.launch((1, 1), &[&a, &x, &c, &3u32]).unwrap_err();
        assert!(error.to_string().contains("found a buffer of bf16, expected a tensor map"), "{error}");
    }
}

#[test]
fn what_a_kernel_fixes_is_known() {
    for device in available() {
        let kernel = device.compile(&staged("vector_add")).unwrap();
        assert_eq!((kernel.block(), kernel.cluster(), kernel.shared_bytes()), (Some([256, 1, 1]), None, 0));
        assert!(kernel.device().kind() == device.kind() && kernel.name() == "vector_add");
    }
    let kernel = Device::cpu().compile(&staged("cluster_sum")).unwrap();
    assert_eq!(kernel.cluster(), Some([4, 1, 1]));
}

#[test]
fn memory_is_written_filled_and_copied() {
    for device in available() {
        let name = device.name();
        let x = device.alloc_zeroed::<f64>(5).unwrap();
        assert_eq!(x.to_vec().unwrap(), [0.0; 5], "{name}");
        x.write(&[1.0, -2.0, 3.0, f64::INFINITY, -0.5]).unwrap();
        let (same, y) = (x.clone(), device.alloc::<f64>(5).unwrap());
        y.copy_from(&x).unwrap();
        same.fill(0.25).unwrap();
        assert_eq!(x.to_vec().unwrap(), [0.25; 5], "{name}");
        assert_eq!(device.download(&y).unwrap(), [1.0, -2.0, 3.0, f64::INFINITY, -0.5], "{name}");
        // From another device, through the host.
        let elsewhere = Device::simulator().upload(&[9.0f64; 5]).unwrap();
        y.copy_from(&elsewhere).unwrap();
        assert_eq!(y.to_vec().unwrap(), [9.0; 5], "{name}");
        let [bytes, halves] = [device.alloc::<u8>(7).unwrap(), device.alloc::<u8>(7).unwrap()];
        bytes.fill(0xAB).unwrap();
        halves.copy_from(&bytes).unwrap();
        assert_eq!(halves.to_vec().unwrap(), [0xAB; 7], "{name}");
        let shorts = device.alloc::<bf16>(3).unwrap();
        shorts.fill(bf16::from_f32(1.5)).unwrap();
        assert_eq!(shorts.to_vec().unwrap(), [bf16::from_f32(1.5); 3], "{name}");
        let words = device.alloc::<i32>(3).unwrap();
        words.fill(-7).unwrap();
        assert_eq!(words.to_vec().unwrap(), [-7; 3], "{name}");
        let nothing = device.alloc::<u32>(0).unwrap();
        nothing.fill(1).unwrap();
        nothing.write(&[]).unwrap();
        assert!(nothing.is_empty() && nothing.to_vec().unwrap().is_empty());
        for error in [x.write(&[1.0]).unwrap_err(), x.copy_from(&device.alloc(6).unwrap()).unwrap_err()] {
            assert!(error.to_string().contains("expected 5"), "{error}");
        }
        device.synchronize().unwrap();
    }
}

/// A copy knows what was never written; what was filled or written counts as written.
#[test]
fn copies_do_not_hide_what_nobody_has_written() {
    let device = Device::simulator();
    let kernel = device.compile(&staged("vector_add")).unwrap();
    let (x, out) = (device.alloc::<f32>(8).unwrap(), device.alloc::<f32>(8).unwrap());
    x.copy_from(&device.alloc(8).unwrap()).unwrap();
    let report = kernel.launch(1, &[&x, &x, &out, &8u32]).unwrap();
    assert!(report.findings().iter().any(|finding| finding.kind == FindingKind::UninitialisedRead));
    x.fill(1.0).unwrap();
    kernel.launch(1, &[&x, &x, &out, &8u32]).unwrap().expect_clean().unwrap();
    assert_eq!(out.to_vec().unwrap(), [2.0; 8]);
}

#[test]
fn the_best_device_runs_and_all_are_available() {
    let best = Device::best();
    let kinds: Vec<DeviceKind> = available().iter().map(Device::kind).collect();
    assert_eq!(kinds[..2], [DeviceKind::Simulator, DeviceKind::Cpu]);
    assert_eq!(best.kind() == DeviceKind::Cpu, kinds.len() == 2 || best.arch() < Arch::SM_80);
    assert_eq!(best.context().is_some(), best.kind() == DeviceKind::Cuda);
    // The number of no GPU.
    let error = Device::cuda(u32::MAX).unwrap_err();
    assert!(matches!(error, DeviceError::Cuda(_)) && error.to_string().lines().count() == 1, "{error}");
}

/// Results without checks: a race is not looked for, what would end the kernel on a GPU is found.
#[test]
fn the_cpu_does_not_check_but_keeps_within_bounds() {
    let device = Device::cpu();
    let kernel = device.compile(&shift::stage().unwrap()).unwrap();
    let report = kernel.launch(1, &[&device.upload(&[1.0f32; 65]).unwrap()]).unwrap();
    assert!(report.findings().is_empty() && report.simulation().unwrap().thread_instructions > 0);
    let report = kernel.launch(1, &[&device.upload(&[1.0f32; 64]).unwrap()]).unwrap();
    assert_eq!(report.findings()[0].kind, FindingKind::OutOfBounds);
    assert_eq!(report.kernel(), "shift");
    assert!(report.expect_clean().is_err());
}

#[test]
fn a_cached_kernel_is_staged_once_for_each_key_and_device() {
    for device in available() {
        let mut staged = 0;
        let mut get = |block: u32| {
            let kernel = device.cached(&("vector_add", block), || {
                staged += 1;
                examples::vector_add::stage::<f32>(block)
            });
            (kernel.unwrap().block(), staged)
        };
        assert_eq!(get(64), (Some([64, 1, 1]), 1));
        assert_eq!(get(64), (Some([64, 1, 1]), 1));
        assert_eq!(get(128), (Some([128, 1, 1]), 2));
        assert_eq!(get(64), (Some([64, 1, 1]), 2));
        // A key of another type is another key; a kernel that fails is not kept.
        let failed = device.cached(&"vector_add", || examples::vector_add::stage::<f32>(0));
        assert!(failed.is_err());
        let kernel = device.cached(&"vector_add", || examples::vector_add::stage::<f32>(32)).unwrap();
        let (x, out) = (device.upload(&[1.0f32; 32]).unwrap(), device.alloc::<f32>(32).unwrap());
        kernel.launch(1, &[&x, &x, &out, &32u32]).unwrap().expect_clean().unwrap();
        assert_eq!(out.to_vec().unwrap(), [2.0; 32]);
    }
}

/// Threads share a device, its memory and its kernels; what each asked for happens in its order.
#[test]
fn threads_share_a_device() {
    for device in [Device::cpu(), Device::best()] {
        let run = |value: f32| {
            let kernel = device.cached(&"add", || examples::vector_add::stage::<f32>(64)).unwrap();
            let (x, sum) = (device.upload(&[value; 64]).unwrap(), device.alloc_zeroed::<f32>(64).unwrap());
            for _ in 0..10 {
                kernel.launch(1, &[&x, &sum, &sum, &64u32]).unwrap();
            }
            assert_eq!(sum.to_vec().unwrap(), [value * 10.0; 64]);
        };
        std::thread::scope(|scope| {
            (1..=4u8).for_each(|value| drop(scope.spawn(move || run(f32::from(value)))));
        });
    }
}

#[test]
fn arguments_are_held_against_the_signature() {
    for device in available() {
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
            (
                message(&[&x, &x, &x, &8i32]),
                &["argument 4", "`n`", "found a number of type i32", "of type u32"],
            ),
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
}

/// A build knows the types of its parameters, PTX text which are pointers, floating-point numbers and integers, and their sizes.
#[test]
fn what_is_loaded_without_its_source_is_checked_as_far_as_it_goes() {
    for device in available() {
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
            error.to_string().contains("found a number of type u64, expected an integer of 4 bytes"),
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
}

#[test]
fn tensor_maps_must_fit_their_buffer() {
    for device in available() {
        let spec =
            TensorMapSpec::new(tilewright::hardware::Element::F32, &[32, 8], SwizzleMode::B128).unwrap();
        let x = device.alloc::<f32>(32 * 8).unwrap();
        let words = device.alloc::<u32>(32 * 8).unwrap();
        for (error, part) in [
            (
                device.tensor_map(&spec, &x, &[32, 9]).unwrap_err(),
                "needs 1152 bytes, but the buffer has 1024",
            ),
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
    let kinds: Vec<FindingKind> = report.findings().iter().map(|finding| finding.kind).collect();
    assert!(kinds.contains(&FindingKind::Race) && kinds.contains(&FindingKind::OutOfBounds), "{kinds:?}");
    assert!(report.findings().iter().all(|finding| finding.seed == 3));
    let source = report.findings()[0].first.source.as_ref().unwrap();
    assert!(source.file.ends_with("device.rs"), "{source:?}");
    assert!(report.simulation().unwrap().counts.thread_instructions > 0);
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
    assert_eq!(report.findings()[0].kind, FindingKind::OutOfBounds);
}

#[test]
fn a_block_that_nobody_knows_is_asked_for() {
    for device in available() {
        let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n";
        let kernel = device.load(text).unwrap().kernel("idle").unwrap();
        let error = kernel.launch(1, &[]).unwrap_err();
        assert!(error.to_string().contains("`with_block`"), "{error}");
        kernel.with_block((8, 4)).launch((2, 2, 2), &[]).unwrap().expect_clean().unwrap();
    }
}
