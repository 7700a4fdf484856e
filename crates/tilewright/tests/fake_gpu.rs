//! A GPU as a device of the library, without a GPU: under the fake driver, which orders and checks everything and runs a few kernels
//! that it knows by name. That kernels compute what they should on a GPU is for `devices.rs` on a machine that has one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking
#![cfg(target_os = "linux")]

use std::collections::HashSet;
use std::time::Duration;

use tilewright::cuda::{CudaError, DiskCache, Form, Pack, PackBuilder, PackedKernel};
use tilewright::device::{DeviceError, DeviceKind, DynBuffer, Recorder, available};
use tilewright::gemm::{Arguments, Gemm};
use tilewright::hardware::Element;
use tilewright::kernels::gemm::{Algorithm, Storage, Types};
use tilewright::kernels::ladder::LADDER;
use tilewright::kernels::{examples, find};
use tilewright::ladder::Workbench;
use tilewright::prelude::*;
use tilewright_fake_driver::Fake;

/// Kernels that the fake driver runs.
const KNOWN: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry poke(.param .u64 to, .param .u32 value, .param .u32 count)
{
    .reg .b64 %rd<2>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u32 %r1, [value];
    ld.param.u32 %r2, [count];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry copy_words(.param .u64 to, .param .u64 from, .param .u32 count)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [to];
    ld.param.u64 %rd2, [from];
    ld.param.u32 %r2, [count];
    ld.global.u32 %r1, [%rd2];
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry crash()
{
    ret;
}
";

/// The first GPU, with nothing kept on disk.
fn gpu() -> Device {
    let device = Device::cuda(0).unwrap();
    device.context().unwrap().set_cache(DiskCache::off());
    device
}

fn known(device: &Device, name: &str) -> tilewright::device::Kernel {
    device.load(KNOWN).unwrap().kernel(name).unwrap().with_block(32)
}

fn staged(name: &str) -> tilewright::lang::Kernel {
    (find(name).unwrap().stage)().unwrap()
}

#[test]
fn gpus_are_found_and_shared() {
    Fake::new().run("gpus_are_found_and_shared", |driver| {
        let best = Device::best();
        assert_eq!((best.kind(), best.arch()), (DeviceKind::Cuda, Arch::SM_90A));
        assert_eq!(best.name(), best.context().unwrap().device().name);
        let kinds: Vec<DeviceKind> = available().iter().map(Device::kind).collect();
        assert_eq!(kinds, [DeviceKind::Simulator, DeviceKind::Cpu, DeviceKind::Cuda, DeviceKind::Cuda]);
        // Who asks for the same GPU gets the same device: memory of one is memory of the other.
        let x = best.upload(&[1u32, 2]).unwrap();
        assert_eq!(gpu().download(&x).unwrap(), [1, 2]);
        assert!(matches!(Device::cuda(1).unwrap().download(&x), Err(DeviceError::OtherDevice)));
        assert!(matches!(Device::cuda(2), Err(DeviceError::Cuda(CudaError::NoDevice { .. }))));
        drop((best, x));
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn memory_of_a_gpu() {
    Fake::new().run("memory_of_a_gpu", |driver| {
        let device = gpu();
        let x = device.alloc_zeroed::<f64>(5).unwrap();
        assert_eq!(x.to_vec().unwrap(), [0.0; 5]);
        x.write(&[1.0, -2.0, 3.0, 4.0, -0.5]).unwrap();
        let (same, y) = (x.clone(), device.alloc::<f64>(5).unwrap());
        y.copy_from(&x).unwrap();
        same.fill(0.25).unwrap();
        assert_eq!(
            (x.to_vec().unwrap(), y.to_vec().unwrap()),
            (vec![0.25; 5], vec![1.0, -2.0, 3.0, 4.0, -0.5])
        );
        for other in [Device::cpu(), Device::cuda(1).unwrap()] {
            let there = other.alloc::<f64>(5).unwrap();
            there.copy_from(&y).unwrap();
            same.copy_from(&there).unwrap();
            assert_eq!(x.to_vec().unwrap(), y.to_vec().unwrap());
        }
        let (bytes, halves) = (device.alloc::<u8>(3).unwrap(), device.alloc::<bf16>(3).unwrap());
        bytes.fill(9).unwrap();
        halves.fill(bf16::from_f32(1.5)).unwrap();
        assert_eq!(
            (bytes.to_vec().unwrap(), halves.to_vec().unwrap()),
            (vec![9; 3], vec![bf16::from_f32(1.5); 3])
        );
        let nothing = device.alloc::<u64>(0).unwrap();
        nothing.fill(1).unwrap();
        assert!(nothing.to_vec().unwrap().is_empty());
        assert!(matches!(device.alloc::<f64>(usize::MAX), Err(DeviceError::Memory { .. })));
        let error = device.alloc::<u8>(1 << 50).unwrap_err();
        assert!(error.to_string().contains("no room for 1125899906842624 bytes"), "{error}");
        drop((x, same, y, bytes, halves, nothing, device));
        assert_eq!((driver.leaks(), driver.faults()), (vec![], vec![]));
    });
}

#[test]
fn launches_are_enqueued_in_order() {
    Fake::new().run("launches_are_enqueued_in_order", |driver| {
        let device = gpu();
        let (poke, copy) = (known(&device, "poke"), known(&device, "copy_words"));
        let (x, y) = (device.alloc_zeroed::<u32>(4).unwrap(), device.alloc::<u32>(4).unwrap());
        let report = poke.launch(1, &[&x, &7u32, &3u32]).unwrap();
        assert!(driver.pending() > 0 && driver.launches().is_empty(), "the launch was waited for");
        assert!(report.simulation().is_none() && report.findings().is_empty());
        copy.launch((2, 1), &[&y, &x, &4u32]).unwrap();
        // The same memory twice, and a structure by its bytes.
        copy.launch(1, &[&x, &x, &4u32.to_le_bytes()]).unwrap();
        poke.launch(1, &[&x, &9u32, &1u32]).unwrap().expect_clean().unwrap();
        assert_eq!(driver.pending(), 0);
        assert_eq!((x.to_vec().unwrap(), y.to_vec().unwrap()), (vec![9, 7, 7, 0], vec![7, 7, 7, 0]));
        // Memory that nobody holds any more lives until the kernels that use it are done.
        let late = device.alloc_zeroed::<u32>(4).unwrap();
        poke.launch(1, &[&late, &5u32, &4u32]).unwrap();
        copy.launch(1, &[&y, &late, &4u32]).unwrap();
        drop(late);
        assert_eq!(y.to_vec().unwrap(), [5; 4]);
        device.synchronize().unwrap();
        assert_eq!(driver.faults(), [""; 0]);
        drop((poke, copy, x, y, report, device));
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn arguments_are_refused_as_everywhere() {
    Fake::new().run("arguments_are_refused_as_everywhere", |driver| {
        let message = |device: &Device, arguments: &[&dyn tilewright::device::Argument]| {
            let kernel = device.compile(&staged("vector_add")).unwrap();
            kernel.launch(1, arguments).unwrap_err().to_string()
        };
        for (device, other) in [(gpu(), Device::cpu()), (Device::cpu(), gpu())] {
            let (x, there) = (device.upload(&[1.0f32; 8]).unwrap(), other.upload(&[1.0f32; 8]).unwrap());
            let words = device.upload(&[1u32; 8]).unwrap();
            assert!(message(&device, &[&x, &x, &x]).contains("was given 3 arguments, expected 4"));
            assert!(
                message(&device, &[&x, &words, &x, &8u32])
                    .contains("found a buffer of u32, expected a buffer of f32")
            );
            assert!(message(&device, &[&x, &there, &x, &8u32]).contains("of another device"));
            assert!(message(&device, &[&x, &x, &x, &8i32]).contains("expected a number of type u32"));
            let spec =
                TensorMapSpec::new(tilewright::hardware::Element::F32, &[8], SwizzleMode::None).unwrap();
            assert!(matches!(device.tensor_map(&spec, &there, &[8]), Err(DeviceError::OtherDevice)));
            let error = device.load(KNOWN).unwrap().kernel("no_such").unwrap_err().to_string();
            assert!(error.contains("`no_such`") && error.contains("poke"), "{error}");
            assert!(device.load("nonsense").is_err());
        }
        // The PTX says that it is a pointer, and a GPU would follow it.
        let (device, number) = (gpu(), 4096u64);
        let error = known(&device, "poke").launch(1, &[&number, &7u32, &1u32]).unwrap_err();
        assert!(error.to_string().contains("argument 1 of kernel `poke`"), "{error}");
        device.synchronize().unwrap();
        assert_eq!((driver.launches().len(), driver.faults()), (0, vec![]));
    });
}

#[test]
fn a_launch_has_the_shape_that_the_kernel_asks_for() {
    Fake::new().run("a_launch_has_the_shape_that_the_kernel_asks_for", |driver| {
        let device = gpu();
        let (x, out) = (device.upload(&[1.0f32; 100]).unwrap(), device.alloc_zeroed::<f32>(1).unwrap());
        let sum = device.compile(&staged("cluster_sum")).unwrap();
        assert_eq!(sum.cluster(), Some([4, 1, 1]));
        sum.launch(8, &[&x, &out, &100u32]).unwrap();
        let error = sum.launch(6, &[&x, &out, &100u32]).unwrap_err();
        assert!(error.to_string().contains("expected a multiple of the cluster"), "{error}");

        let product = staged("gemm_hopper");
        let kernel = device.compile(&product).unwrap();
        let (a, b, c) = (
            device.alloc_zeroed::<bf16>(128 * 64).unwrap(),
            device.alloc_zeroed::<bf16>(256 * 64).unwrap(),
            device.alloc_zeroed::<bf16>(128 * 256).unwrap(),
        );
        let map = |name, buffer, dims: [u64; 2]| {
            device.tensor_map(product.tensor_map(name).unwrap(), buffer, &dims).unwrap()
        };
        let maps = (map("a", &a, [64, 128]), map("b", &b, [64, 256]), map("c", &c, [256, 128]));
        // Maps keep their memory.
        drop((a, b, c));
        kernel.launch((1, 1), &[&maps.0, &maps.1, &maps.2, &1u32]).unwrap().expect_clean().unwrap();
        let launches = driver.launches();
        assert_eq!(launches.len(), 2);
        assert_eq!((launches[0].grid, launches[0].block), ([8, 1, 1], [256, 1, 1]));
        assert_eq!((launches[1].block, launches[1].shared), ([384, 1, 1], kernel.shared_bytes()));
        assert_eq!(driver.faults(), [""; 0]);
    });
}

#[test]
fn a_fault_is_reported_when_somebody_waits() {
    Fake::new().run("a_fault_is_reported_when_somebody_waits", |_| {
        let device = gpu();
        let x = device.upload(&[1u32]).unwrap();
        let report = known(&device, "crash").launch(1, &[]).unwrap();
        let error = report.expect_clean().unwrap_err();
        assert!(matches!(&error, DeviceError::Cuda(CudaError::Fault(_))), "{error}");
        assert!(error.to_string().contains("`crash`"), "{error}");
        assert!(matches!(x.to_vec(), Err(DeviceError::Cuda(CudaError::ContextLost { .. }))));
    });
}

#[test]
fn kernels_are_loaded_once() {
    Fake::new().run("kernels_are_loaded_once", |driver| {
        let device = gpu();
        let get =
            || device.cached(&("vector_add", 64u32), || examples::vector_add::stage::<f32>(64)).unwrap();
        let first = get();
        let loads = driver.calls("cuModuleLoadDataEx") + driver.calls("cuModuleLoadData");
        std::thread::scope(|scope| {
            (0..4).for_each(|_| drop(scope.spawn(|| assert_eq!(get().block(), Some([64, 1, 1])))));
        });
        assert_eq!(driver.calls("cuModuleLoadDataEx") + driver.calls("cuModuleLoadData"), loads);
        // The cache of a device goes with the device.
        drop((first, device));
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn a_pack_brings_what_its_launch_needs() {
    Fake::new().run("a_pack_brings_what_its_launch_needs", |driver| {
        let packed = PackedKernel {
            name: "poke".to_owned(),
            target: "sm_80".parse().unwrap(),
            form: Form::Ptx,
            code: KNOWN.into(),
            signatures: tilewright::ptx::signatures_to_text(
                &tilewright::ptx::parse(KNOWN).unwrap().signatures(),
            ),
            shared_dynamic: 60_000,
            block: Some([96, 1, 1]),
            cluster: None,
            overlaps: false,
            producer: "a test".to_owned(),
            source: None,
            variant: None,
        };
        let bytes = PackBuilder::new().kernel(packed).write();
        let pack = Pack::parse(&bytes).unwrap();
        let device = gpu();
        let kernel = device.load_packed(&pack, "poke").unwrap();
        assert_eq!((kernel.block(), kernel.shared_bytes()), (Some([96, 1, 1]), 60_000));
        let x = device.alloc_zeroed::<u32>(2).unwrap();
        kernel.launch(1, &[&x, &3u32, &2u32]).unwrap().expect_clean().unwrap();
        assert_eq!(x.to_vec().unwrap(), [3, 3]);
        assert_eq!((driver.launches()[0].block, driver.launches()[0].shared), ([96, 1, 1], 60_000));
        assert!(device.load_packed(&pack, "no_such").is_err());
    });
}

/// Every step of the ladder gets through the driver with its arguments, and is timed by events: those of the fake count operations.
#[test]
fn the_ladder_is_timed() {
    Fake::new().run("the_ladder_is_timed", |driver| {
        let device = gpu();
        let bench = Workbench::new(&device, [256, 256, 64], 0).unwrap();
        for step in LADDER {
            let measured = bench.measure(step, Duration::ZERO).unwrap();
            assert!(measured.microseconds > 0.0 && measured.number == step.number, "{measured:?}");
            // Nothing has computed anything here, and that is noticed.
            let error = bench.run(step).unwrap_err().to_string();
            assert!(error.contains("c[0, 0] is NaN"), "{}: {error}", step.name);
        }
        assert_eq!(driver.faults(), [""; 0]);
    });
}

/// A GPU's launches are checked against the PTX, which does not say what is an address and what a number. Products of all families pass,
/// also those that find their matrices by lists of addresses: where elements are bytes, leading dimensions are added to addresses from
/// memory as they are, and look like addresses themselves.
#[test]
fn products_of_every_family_are_launched() {
    Fake::new().run("products_of_every_family_are_launched", |driver| {
        let device = gpu();
        let (storages, mut tried) = ([Storage::RowMajor, Storage::ColumnMajor], HashSet::new());
        for element in [Element::I8, Element::E4M3, Element::BF16, Element::F32, Element::F64] {
            let types = Types::of(element);
            let room = |element: Element| {
                let bytes = device.alloc_zeroed::<u8>(1 << 16).unwrap();
                DynBuffer::from(&bytes).reinterpreted(Types::in_memory(element))
            };
            let (a, b, d) = (room(types.a), room(types.b), room(types.d));
            let list = |of: &DynBuffer| {
                DynBuffer::from(&device.upload(&[of.address(), of.address() + 8192]).unwrap())
            };
            let lists = Arguments::new(list(&a), list(&b), list(&d));
            let buffers = Arguments::new(a, b, d);
            for (n, pointers) in (0..8).flat_map(|n| [(n, false), (n, true)]) {
                let storage = |bit: usize| storages[n >> bit & 1];
                let gemm = Gemm::new(12, 40, 33).types(types).batch(2);
                let gemm = gemm.a(storage(0)).b(storage(1)).d(storage(2)).leading_a(49).leading_b(64);
                let (gemm, arguments) = if pointers { (gemm.pointers(), &lists) } else { (gemm, &buffers) };
                let plan = gemm.plan(&device).unwrap();
                let mut seen = HashSet::new();
                for Algorithm { transposed, repack_a, repack_b, kernel } in
                    plan.candidates().iter().map(|candidate| candidate.algorithm)
                {
                    let text = kernel.to_string();
                    let family = text.split(' ').next().unwrap_or_default().to_owned();
                    tried.insert((family.clone(), pointers));
                    if seen.insert((family, transposed, repack_a, repack_b)) {
                        let algorithm = Algorithm { transposed, repack_a, repack_b, kernel };
                        let plan = gemm.clone().algorithm(algorithm).plan(&device).unwrap();
                        plan.run(arguments).unwrap_or_else(|error| {
                            panic!("{element}, {n}, by addresses: {pointers}, {algorithm}: {error}")
                        });
                    }
                }
            }
        }
        device.synchronize().unwrap();
        assert_eq!(driver.faults(), [""; 0]);
        for family in ["ampere", "simt", "gemv"] {
            assert!(tried.contains(&(family.to_owned(), true)), "{family}: {tried:?}");
        }
        assert!(tried.contains(&("hopper".to_owned(), false)), "{tried:?}");
    });
}

mod programs {
    use tilewright::lang::tile::prelude::*;

    #[kernel]
    pub(super) fn add(x: View<f32, 2>, y: View<f32, 2>, out: View<f32, 2>) {
        let [x, y] = [x, y].map(|view| view.partition([4, 128]).load());
        out.partition([4, 128]).store(x + y);
    }

    #[kernel]
    pub(super) fn product(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>) {
        let own = c.partition([64, 64]);
        let mut acc = Tile::<f32>::zeros([64, 64]);
        for step in 0..a.extent(1).div_ceil(64) {
            let left = a.tile([64, 64]).at((own.start(0), step * 64)).load();
            acc = dot(left, b.tile([64, 64]).at((step * 64, own.start(1))).load(), acc);
        }
        own.store(acc);
    }

    /// A row that takes a cluster of blocks.
    #[kernel]
    pub(super) fn long_rows(x: View<f32, 2>, out: View<f32, 2>, columns: u32) {
        let row = x.partition([1, columns]).load();
        out.partition([1, columns]).store(row / row.sum(1));
    }
}

/// A pack that a GPU was given is all that it needs; machine code comes first.
#[test]
fn packed_programs_are_launched_without_a_compiler() {
    Fake::new().run("packed_programs_are_launched_without_a_compiler", |driver| {
        let device = gpu();
        let recorder = Recorder::for_chip(device.chip());
        let work = |device: &Device| {
            let product = device.program(&programs::product::stage().unwrap())?;
            let (a, b) = (device.upload(&[bf16::ONE; 64 * 128])?, device.alloc_zeroed::<f32>(64 * 64)?);
            product.run(&[&a.view([64, 128]), &a.view([128, 64]), &b.view([64, 64])])?;
            let rows = device.program(&programs::long_rows::stage(131_072).unwrap())?;
            let long = device.alloc_zeroed::<f32>(2 * 131_072)?;
            rows.run(&[&long.view([2, 131_072]), &long.view([2, 131_072])])?.expect_clean()?;
            Ok::<_, DeviceError>([product, rows].map(|program| program.variants()[0].clone()))
        };
        let [product, rows] = work(recorder.device()).unwrap();
        device.only_packed(true);
        let error = work(&device).unwrap_err();
        assert!(matches!(error, DeviceError::Unpacked { .. }), "{error}");
        assert!(driver.launches().is_empty());

        let bytes = recorder.kernels().into_iter().fold(PackBuilder::new(), PackBuilder::kernel).write();
        device.add_pack(Pack::parse(bytes.leak()).unwrap());
        let [packed_product, packed_rows] = work(&device).unwrap();
        let launches = driver.launches();
        assert_eq!(launches.len(), 2);
        for (launch, (packed, recorded)) in
            launches.iter().zip([(packed_product, product), (packed_rows, rows)])
        {
            assert!(packed.packed().is_some_and(|words| words.starts_with("PTX for sm_90")), "{packed:?}");
            assert_eq!((packed.facts(), packed.maps()), (recorded.facts(), recorded.maps()));
            assert_eq!(Some(launch.block[0]), recorded.threads());
        }
    });
}

#[test]
fn programs_are_launched_in_the_shape_they_were_compiled_for() {
    Fake::new().run("programs_are_launched_in_the_shape_they_were_compiled_for", |driver| {
        let device = gpu();
        let add = device.program(&programs::add::stage().unwrap()).unwrap();
        let x = device.upload(&[1.0f32; 12 * 200]).unwrap();
        let view = x.view([12, 200]);
        for _ in 0..3 {
            add.run(&[&view, &view, &view]).unwrap();
        }
        assert_eq!(add.variants().len(), 1);
        let threads = add.variants()[0].threads().unwrap();

        let product = device.program(&programs::product::stage().unwrap()).unwrap();
        let (a, b) =
            (device.upload(&[bf16::ONE; 64 * 128]).unwrap(), device.alloc_zeroed::<f32>(64 * 64).unwrap());
        let arguments = (a.view([64, 128]), a.view([128, 64]), b.view([64, 64]));
        product.run(&[&arguments.0, &arguments.1, &arguments.2]).unwrap();
        assert_eq!(product.variants()[0].maps().len(), 3);

        let rows = device.program(&programs::long_rows::stage(131_072).unwrap()).unwrap();
        let long = device.alloc_zeroed::<f32>(2 * 131_072).unwrap();
        let view = long.view([2, 131_072]);
        rows.run(&[&view, &view]).unwrap().expect_clean().unwrap();
        let [blocks, ..] = rows.variants()[0].cluster().unwrap();

        let launches = driver.launches();
        let shapes: Vec<_> = launches.iter().map(|launch| (launch.grid, launch.block)).collect();
        assert_eq!(shapes[..3], [([3, 2, 1], [threads, 1, 1]); 3]);
        assert_eq!(shapes[3].0, [1, 1, 1]);
        assert_eq!(shapes[4].0, [2 * blocks, 1, 1]);
        drop((x, a, b, long, add, product, rows, device));
        assert_eq!((driver.leaks(), driver.faults()), (vec![], vec![]));
    });
}
