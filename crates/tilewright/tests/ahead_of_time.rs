//! Kernels compiled ahead of time: what a recorder keeps is what the same program finds later, on a device that must not compile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;

use tilewright::cuda::{Form, Pack, PackBuilder, PackedKernel};
use tilewright::device::{
    Buffer, Device, DeviceError, DeviceKind, Fact, Recorder, Variant, available, dense_facts,
};
use tilewright::gemm::Gemm;
use tilewright::hardware::{Arch, Element};
use tilewright::kernels::examples::vector_add;
use tilewright::kernels::{find, ops as kernels};
use tilewright::lang::bf16;
use tilewright::lang::tile::prelude::*;
use tilewright::ops::{CrossEntropy, Error, FloatItem, OPERATORS, RmsNorm, Rows, Softmax, TopK, permute};

/// A simulator with the kernels that were recorded and no compiler.
fn equipped(kernels: impl IntoIterator<Item = PackedKernel>) -> Device {
    let device = Device::simulator();
    device.add_pack(pack(kernels));
    device.only_packed(true);
    device
}

fn pack(kernels: impl IntoIterator<Item = PackedKernel>) -> Pack<'static> {
    let bytes = kernels.into_iter().fold(PackBuilder::new(), PackBuilder::kernel).write();
    Pack::parse(bytes.leak()).unwrap()
}

/// What is recorded for a Hopper, which the simulator stands for, and an Ampere.
fn record(work: impl Fn(&Device)) -> Vec<PackedKernel> {
    let of = |arch| {
        let recorder = Recorder::new(arch);
        work(recorder.device());
        recorder.kernels()
    };
    [Arch::SM_80, Arch::SM_90A].map(of).concat()
}

fn unpacked(outcome: Result<(), Error>) -> String {
    match outcome {
        Err(Error::Device(error @ DeviceError::Unpacked { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// A row of numbers, its softmax and its norm, in a buffer each.
fn operators(device: &Device, rows: usize, columns: usize) -> Result<[Buffer<f32>; 2], Error> {
    let numbers: Vec<f32> = (0..rows * columns).map(|i| (i % 97) as f32 / 97.0).collect();
    let (x, weight) = (device.upload(&numbers)?, device.upload(&vec![2.0f32; columns])?);
    let (y, z) = (device.alloc_zeroed::<f32>(rows * columns)?, device.alloc_zeroed::<f32>(rows * columns)?);
    let x = Rows::new(&x, rows, columns);
    Softmax::new().run(device, x, Rows::new(&y, rows, columns))?;
    RmsNorm::new(1e-6).weight(&weight).run(device, x, Rows::new(&z, rows, columns))?;
    Ok([y, z])
}

#[track_caller]
fn close(found: &Buffer<f32>, expected: &Buffer<f32>) {
    for (found, expected) in found.to_vec().unwrap().iter().zip(expected.to_vec().unwrap()) {
        assert!((found - expected).abs() <= 1e-5 * expected.abs() + 1e-7, "{found} {expected}");
    }
}

#[test]
fn operators_run_from_a_pack_without_a_compiler() {
    let kernels = record(|device| drop(operators(device, 4, 1536).unwrap()));
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["softmax", "rms_norm", "softmax", "rms_norm"], "one of each for each chip");
    let device = equipped(kernels);
    // The number of rows is not compiled in.
    for rows in [4, 7] {
        let [y, z] = operators(&device, rows, 1536).unwrap();
        let expected = operators(&Device::cpu(), rows, 1536).unwrap();
        for (found, expected) in [y, z].iter().zip(&expected) {
            close(found, expected);
        }
    }
    // Rows of another length have another kernel, which is not there.
    let error = unpacked(operators(&device, 4, 1024).map(drop));
    assert!(
        error.starts_with("kernel `softmax` for sm_90a and arguments of which this is true: x is a "),
        "{error}"
    );
    assert!(error.contains("x_extent1 is 1024") && !error.contains('\n'), "{error}");
    // A device that may compile does.
    device.only_packed(false);
    operators(&device, 4, 1024).unwrap();
}

/// The operators and a product on tiles, as recorded for the very chip, on all devices that compile.
#[test]
fn what_was_recorded_runs_on_every_device() {
    for device in available().into_iter().filter(|device| device.kind() != DeviceKind::Cpu) {
        let recorder = Recorder::for_chip(device.chip());
        operators(recorder.device(), 64, 512).unwrap();
        multiply(recorder.device(), &staged(), (128, 64, 256)).unwrap();
        device.add_pack(pack(recorder.kernels()));
        device.only_packed(true);
        let (results, expected) = (operators(&device, 64, 512), operators(&Device::cpu(), 64, 512).unwrap());
        let product = multiply(&device, &staged(), (128, 64, 256));
        device.only_packed(false);
        for (found, expected) in results.unwrap().iter().zip(&expected) {
            close(found, expected);
        }
        let (c, variant) = product.unwrap();
        assert!(variant.packed().is_some());
        assert_eq!(c.to_vec().unwrap(), exact(128, 64, 256), "{}", device.name());
    }
}

#[kernel]
fn product(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>) {
    let (row, column) = (program_id(0), program_id(1));
    let mut sum = Tile::<f32>::zeros([64, 64]);
    for k in 0..a.extent(1).div_ceil(64) {
        sum = dot(a.tile([64, 64]).block((row, k)).load(), b.tile([64, 64]).block((k, column)).load(), sum);
    }
    c.partition([64, 64]).store(sum);
}

fn staged() -> Kernel {
    product::stage().unwrap()
}

/// Small whole numbers, so that sums are exact.
fn factors(m: usize, n: usize, k: usize) -> [Vec<bf16>; 2] {
    let whole = |i: usize, of: usize| bf16::from_f32((i % of) as f32 - (of / 2) as f32);
    [(0..m * k).map(|i| whole(i, 7)).collect(), (0..k * n).map(|i| whole(i, 5)).collect()]
}

fn exact(m: usize, n: usize, k: usize) -> Vec<f32> {
    let [left, right] = factors(m, n, k);
    let sum = |row: usize, column: usize| {
        (0..k).map(|i| left[row * k + i].to_f32() * right[i * n + column].to_f32()).sum()
    };
    (0..m * n).map(|at| sum(at / n, at % n)).collect()
}

/// A product, and the one variant that computed it.
fn multiply(
    device: &Device,
    kernel: &Kernel,
    (m, n, k): (usize, usize, usize),
) -> Result<(Buffer<f32>, Variant), DeviceError> {
    let [a, b] = factors(m, n, k);
    let (a, b, c) = (device.upload(&a)?, device.upload(&b)?, device.alloc_zeroed::<f32>(m * n)?);
    let program = device.program(kernel)?;
    program.run(&[&a.view([m, k]), &b.view([k, n]), &c.view([m, n])])?.expect_clean()?;
    let [variant] = <[_; 1]>::try_from(program.variants()).unwrap();
    Ok((c, variant))
}

/// Tensor maps are a part of what is packed: the launch makes them of the arguments.
#[test]
fn a_matrix_product_on_tiles_brings_its_tensor_maps() {
    let extents = (96, 80, 144);
    let kernels = record(|device| drop(multiply(device, &staged(), extents).unwrap()));
    let maps = |kernel: &PackedKernel| kernel.variant.as_ref().unwrap().maps.lines().count();
    assert_eq!(kernels.iter().map(maps).collect::<Vec<_>>(), [0, 3], "Hopper copies by its engine");

    let (c, variant) = multiply(&equipped(kernels.clone()), &staged(), extents).unwrap();
    assert_eq!(variant.maps().len(), 3);
    assert!(kernels[1].variant.as_ref().unwrap().resident.is_some(), "programs take turns");
    assert!(variant.build().is_none() && variant.remarks().is_empty());
    assert!(variant.packed().unwrap().starts_with("PTX for sm_90a by tilewright"), "{variant:?}");
    let (_, like) = multiply(&Device::simulator(), &staged(), extents).unwrap();
    assert!(like.packed().is_none() && like.build().is_some());
    assert_eq!((variant.threads(), variant.facts()), (like.threads(), like.facts()));
    assert_eq!(c.to_vec().unwrap(), exact(96, 80, 144));
}

#[kernel]
fn twice(x: View<f32, 2>) {
    let tile = x.partition([1, 64]);
    tile.store(tile.load() * 2.0);
}

/// A variant serves every launch of which its facts are true; of several, the one that uses most of them.
#[test]
fn facts_that_hold_are_enough() {
    let kernel = twice::stage().unwrap();
    let recorder = Recorder::new(Arch::SM_90A).any_tensor();
    recorder.add(&kernel).unwrap();
    let facts = |kernel: &PackedKernel| kernel.variant.clone().unwrap().facts;
    let kept: Vec<String> = recorder.kernels().iter().map(facts).collect();
    assert_eq!(
        kept,
        [
            "x is a multiple of 16, x_stride0 is a multiple of 4, x_extent1 is a multiple of 4, x_stride1 is 1",
            ""
        ]
    );
    assert!(dense_facts(&kernel).contains(&("x_stride1".to_owned(), Fact::Is(1))));

    let run = |device: &Device, (offset, stride): (usize, usize)| {
        let x = device.upload(&[1.0f32; 300]).unwrap();
        let program = device.program(&kernel).unwrap();
        let part = x.slice(offset..).unwrap();
        program.run(&[&part.strided([2, 60], [stride, 1])])?.expect_clean()?;
        assert_eq!(x.to_vec().unwrap().iter().filter(|x| **x == 2.0).count(), 120);
        Ok::<_, DeviceError>(program.variants()[0].to_string())
    };
    let device = equipped(recorder.kernels());
    assert_eq!(run(&device, (0, 60)).unwrap(), kept[0], "dense: the grid's facts are not needed");
    assert_eq!(run(&device, (0, 61)).unwrap(), "any arguments", "rows at odd places");
    assert_eq!(run(&device, (1, 60)).unwrap(), "any arguments", "a pointer at an odd place");
    // Without the second there is nothing for these.
    let device = equipped(recorder.kernels().into_iter().take(1));
    assert_eq!(run(&device, (0, 60)).unwrap(), kept[0]);
    assert!(matches!(run(&device, (1, 60)), Err(DeviceError::Unpacked { .. })));
}

/// Kernels for threads are found by what they are, and so are the plans of products.
#[test]
fn kernels_for_threads_and_products_are_recorded_too() {
    let work = |device: &Device| {
        let kernel = device.cached(&"add", || vector_add::stage::<f32>(64)).unwrap();
        let (x, out) = (device.upload(&[1.5f32; 100]).unwrap(), device.alloc_zeroed::<f32>(100).unwrap());
        kernel.launch(2, &[&x, &x, &out, &100u32]).unwrap().expect_clean().unwrap();
        let a = device.upload(&[0.5f32; 64 * 64]).unwrap();
        let c = Gemm::new(64, 64, 64).run(device, &a, &a).unwrap();
        (out, c.typed::<f32>().unwrap())
    };
    let device = equipped(record(|device| drop(work(device))));
    let (out, c) = work(&device);
    assert_eq!((out.to_vec().unwrap(), c.to_vec().unwrap()), (vec![3.0; 100], vec![16.0; 64 * 64]));
    // Another configuration is another kernel.
    let error = device.compile(&vector_add::stage::<f32>(128).unwrap()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `vector_add` for sm_90a is in no pack of the device, and nothing else was allowed: found one of that \
         name that is staged with other types or settings, expected a pack with it; do the same on a `Recorder` and write what it keeps"
    );
    // By name as well, because there is one of the name.
    assert!(device.load_packed(&pack(record(|device| drop(work(device)))), "vector_add").is_ok());
}

/// The registry's kernels are packed as they are.
#[test]
fn kernels_of_the_registry_are_found_again() {
    let recorder = Recorder::new(Arch::SM_90A);
    recorder.add(&(find("ops/softmax").unwrap().stage)().unwrap()).unwrap();
    let device = equipped(recorder.kernels());
    let staged =
        kernels::softmax::stage::<bf16, bf16>(kernels::Form::Probabilities, false, [1, 1536]).unwrap();
    let program = device.program(&staged).unwrap();
    let x = device.upload(&[bf16::ONE; 2 * 1536]).unwrap();
    let view = x.view([2, 1536]);
    program.launch(2, &[&view, &view, &1.0f32, &0u32]).unwrap().expect_clean().unwrap();
    assert!(x.to_vec().unwrap().iter().all(|x| (x.to_f32() * 1536.0 - 1.0).abs() < 0.01));
}

#[test]
fn a_recorder_runs_nothing_and_keeps_each_kernel_once() {
    let recorder = Recorder::new(Arch::SM_80);
    let device = recorder.device();
    assert_eq!((device.name(), device.arch(), device.chip().name), ("recorder", Arch::SM_80, "a100"));
    let kernel = twice::stage().unwrap();
    let x = device.upload(&[1.0f32; 128]).unwrap();
    for _ in 0..3 {
        let program = device.program(&kernel).unwrap();
        program.run(&[&x.view([2, 64])]).unwrap().expect_clean().unwrap();
    }
    assert_eq!(x.to_vec().unwrap(), [1.0; 128]);
    let kept = recorder.kernels();
    assert_eq!(kept.len(), 1);
    assert_eq!(
        kept[0].target.to_string(),
        "sm_80",
        "its memory is that of the chip, whatever the instructions need"
    );
    // An assembler adds machine code for the chip itself.
    let both = recorder.assembled("a test", |text, arch| {
        assert!(text.contains(".entry twice") && arch == Arch::SM_80);
        Ok::<_, ()>(b"\x7fELF".to_vec())
    });
    let both = both.unwrap();
    assert_eq!(both.iter().map(|kernel| kernel.form).collect::<Vec<_>>(), [Form::Ptx, Form::Cubin]);
    assert!(both[1].producer.ends_with(", a test") && both[1].code == b"\x7fELF");
    assert_eq!(recorder.assembled("nobody", |_, _| Err("no assembler")), Err("no assembler"));
    // The simulator takes the PTX.
    let device = equipped(both);
    let x = device.upload(&[1.0f32; 128]).unwrap();
    device.program(&kernel).unwrap().run(&[&x.view([2, 64])]).unwrap().expect_clean().unwrap();
    assert_eq!(x.to_vec().unwrap(), [2.0; 128]);
}

/// The table of operators leaves out no kernel of the library.
#[test]
fn every_kernel_of_the_operators_can_be_packed() {
    let mut reached = BTreeSet::new();
    for operator in OPERATORS {
        let recorder = Recorder::new(Arch::SM_80);
        // Several rows for a program, and one.
        for columns in [256, 1024] {
            operator.rehearse(recorder.device(), Element::BF16, columns).unwrap();
        }
        // Rows that no program can hold; some operators have no kernel for these.
        match operator.rehearse(recorder.device(), Element::F32, 131_072) {
            Ok(()) | Err(Error::NoKernel { .. }) => {}
            Err(error) => panic!("{}: {error}", operator.name),
        }
        reached.extend(recorder.kernels().into_iter().map(|kernel| kernel.name));
        // Rows that only a cluster can hold.
        let recorder = Recorder::new(Arch::SM_90A);
        if operator.name == "cross-entropy" {
            operator.rehearse(recorder.device(), Element::BF16, 32_768).unwrap();
        }
        reached.extend(recorder.kernels().into_iter().map(|kernel| kernel.name));
    }
    // It is for more of a row than rehearsals ask for.
    let unpacked = "top_k_long";
    for kernel in kernels::OPERATORS.iter().filter(|kernel| kernel.name != unpacked) {
        let name = (kernel.stage)().unwrap().name().to_owned();
        assert!(reached.contains(&name), "{name} is in no operator's rehearsal: {reached:?}");
    }
    let wrong = OPERATORS[0].rehearse(Recorder::new(Arch::SM_80).device(), Element::I32, 64);
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "`the type`: found i32, expected f32, f16 or bf16; convert to one of these"
    );
}

/// Operators that share long rows among more programs where there are fewer find what was rehearsed, whatever the number of rows.
#[test]
fn rehearsed_operators_have_kernels_for_any_number_of_rows() {
    fn launch<T: FloatItem>(device: &Device, name: &str, (rows, columns): (usize, usize)) {
        let [x, dx] = [(); 2].map(|()| device.alloc::<T>(rows * columns).unwrap());
        let x = Rows::new(&x, rows, columns);
        if name == "topk" {
            for k in [8, 64] {
                let (values, places) = (device.alloc(rows * k).unwrap(), device.alloc(rows * k).unwrap());
                let (values, places) = (Rows::new(&values, rows, k), Rows::new(&places, rows, k));
                TopK::new(k).run::<T>(device, x, values, places).unwrap();
            }
            return;
        }
        let (targets, losses) = (device.alloc::<i64>(rows).unwrap(), device.alloc::<f32>(rows).unwrap());
        CrossEntropy::new().run(device, x, &targets, &losses).unwrap();
        let dx = Rows::new(&dx, rows, columns);
        CrossEntropy::new().backward::<T, i64, T>(device, x, &targets, &losses, dx).unwrap();
    }
    const COLUMNS: usize = 40_000;
    for (name, element) in
        [("cross-entropy", Element::F32), ("cross-entropy", Element::BF16), ("topk", Element::BF16)]
    {
        let operator = OPERATORS.iter().find(|operator| operator.name == name).unwrap();
        let recorder = Recorder::new(Arch::SM_90A);
        operator.rehearse(recorder.device(), element, COLUMNS).unwrap();
        // Another one, which runs nothing either and may compile nothing.
        let equipped = Recorder::new(Arch::SM_90A);
        equipped.device().add_pack(pack(recorder.kernels()));
        equipped.device().only_packed(true);
        let launch = if element == Element::F32 { launch::<f32> } else { launch::<bf16> };
        for rows in [1, 2, 5, 16, 31, 64, 100, 113, 128, 240, 250, 300, 480, 500, 528, 900, 1040, 1047, 3000]
        {
            launch(equipped.device(), name, (rows, COLUMNS));
        }
    }
}

/// What was rehearsed is what operators ask for, with any number of rows.
#[test]
fn rehearsed_operators_need_no_compiler() {
    let recorder = Recorder::new(Arch::SM_90A);
    for operator in
        OPERATORS.iter().filter(|operator| ["softmax", "rmsnorm", "causal-softmax"].contains(&operator.name))
    {
        operator.rehearse(recorder.device(), Element::F32, 128).unwrap();
    }
    let device = equipped(recorder.kernels());
    for rows in [8, 9, 33, 100] {
        operators(&device, rows, 128).unwrap();
        let x = device.alloc_zeroed::<f32>(rows * 128).unwrap();
        let positions = device.upload(&vec![5i32; rows]).unwrap();
        let x = Rows::new(&x, rows, 128);
        Softmax::new().positions(&positions).run(&device, x, x).unwrap();
        Softmax::new().causal(rows).run(&device, x, x).unwrap();
        let dx = device.alloc_zeroed::<f32>(rows * 128).unwrap();
        Softmax::new().causal(rows).backward(&device, x, x, Rows::new(&dx, rows, 128)).unwrap();
    }
    let x = device.alloc_zeroed::<f32>(64 * 128).unwrap();
    let x = Rows::new(&x, 64, 128);
    unpacked(Softmax::new().log().run(&device, x, x));
}

/// Matrices of any number of queries, and a single token.
#[test]
fn rehearsed_operators_have_kernels_for_any_number_of_matrices() {
    for columns in [520, 1000, 4097] {
        let recorder = Recorder::new(Arch::SM_90A);
        for operator in
            OPERATORS.iter().filter(|operator| ["causal-softmax", "permute"].contains(&operator.name))
        {
            operator.rehearse(recorder.device(), Element::F32, columns).unwrap();
        }
        let equipped = Recorder::new(Arch::SM_90A);
        let device = equipped.device();
        device.add_pack(pack(recorder.kernels()));
        device.only_packed(true);
        for (rows, queries) in [(64, 64), (64, 128), (64, 32), (128, 64), (96, 32), (63, 21), (5, 1), (1, 1)]
        {
            let x = device.alloc::<f32>(rows * columns).unwrap();
            let x = Rows::new(&x, rows, columns);
            Softmax::new().causal(queries).run(device, x, x).unwrap();
        }
        for tokens in [1, 2, 33, 64] {
            let (x, y) = (
                device.alloc::<f32>(tokens * columns).unwrap(),
                device.alloc::<f32>(tokens * columns).unwrap(),
            );
            permute(device, &x, &[tokens, 1, columns], &[1, 0, 2], &y).unwrap();
        }
    }
}

/// With more matrices than a grid has room for along one axis, they are along the other, which is another kernel.
#[test]
fn very_many_causal_matrices_have_a_kernel_of_their_own() {
    let recorder = Recorder::new(Arch::SM_90A);
    let device = recorder.device();
    for rows in [100, 65_600] {
        let x = device.alloc::<f32>(rows * 520).unwrap();
        let x = Rows::new(&x, rows, 520);
        Softmax::new().causal(1).run(device, x, x).unwrap();
    }
    let kernels = recorder.kernels();
    assert_eq!(kernels.iter().map(|kernel| kernel.name.as_str()).collect::<Vec<_>>(), ["softmax_causal"; 2]);
    // `%ctaid.x` is the place along the rows of one, and that among the matrices of the other.
    assert_ne!(kernels[0].code, kernels[1].code);
}
