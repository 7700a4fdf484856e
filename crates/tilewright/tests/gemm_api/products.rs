//! Results: of every type, wherever matrices lie.

use super::*;

/// A product of dense row-major matrices on every device, exactly.
fn multiplies<T: Sample, R: Sample>(m: usize, n: usize, k: usize) {
    let (a, b) = (numbers(m * k, 1, T::of), numbers(k * n, 2, T::of));
    let sum = |row: usize, column: usize| -> f64 {
        (0..k).map(|i| a[row * k + i].value() * b[i * n + column].value()).sum()
    };
    let expected: Vec<f64> = (0..m * n).map(|i| sum(i / n, i % n)).collect();
    for device in available() {
        let (a, b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let d = Gemm::new(m, n, k).run(&device, &a, &b).unwrap_or_else(|error| panic!("{error}"));
        let found: Vec<f64> = d.to_vec::<R>().unwrap().into_iter().map(Sample::value).collect();
        assert_eq!(found, expected, "{} on {}", T::ELEMENT, device.name());
    }
}

#[test]
fn every_type_is_multiplied_on_every_device() {
    multiplies::<f32, f32>(5, 7, 9);
    multiplies::<f64, f64>(7, 5, 9);
    multiplies::<f16, f16>(5, 7, 9);
    multiplies::<bf16, bf16>(17, 9, 33);
    multiplies::<Tf32, f32>(5, 7, 9);
    multiplies::<i8, i32>(9, 5, 33);
    multiplies::<u8, i32>(9, 5, 33);
}

#[test]
fn nothing_times_nothing_and_sums_of_nothing() {
    multiplies::<f32, f32>(0, 3, 3);
    multiplies::<f32, f32>(3, 0, 3);
    multiplies::<f32, f32>(3, 4, 0);
    multiplies::<i8, i32>(3, 4, 0);
}

/// One case of storages and gaps: `alpha * A * B + beta * C` in batches.
fn lies(device: &Device, storages: [Storage; 4], gap: usize, batch: usize) {
    const EXTENTS: [usize; 3] = [6, 5, 7];
    let [m, n, k] = EXTENTS;
    let shapes = [(m, k), (k, n), (m, n), (m, n)];
    let line = |i: usize| match storages[i] {
        Storage::RowMajor => (shapes[i].0, shapes[i].1),
        Storage::ColumnMajor => (shapes[i].1, shapes[i].0),
    };
    let leading = |i: usize| line(i).1 + gap;
    let stride = |i: usize| line(i).0 * leading(i) + gap;
    let len = |i: usize| batch * stride(i);
    let data: Vec<Vec<f32>> = (0..4).map(|i| numbers(len(i), i, f32::of)).collect();
    let [sa, sb, sc, sd] = storages;
    let gemm = Gemm::new(m, n, k)
        .element::<f32>()
        .a(sa)
        .b(sb)
        .c(sc)
        .d(sd)
        .leading_a(leading(0))
        .leading_b(leading(1))
        .leading_c(leading(2))
        .leading_d(leading(3))
        .batch(batch)
        .stride_a(stride(0))
        .stride_b(stride(1))
        .stride_c(stride(2))
        .stride_d(stride(3))
        .epilogue(Epilogue::linear());
    let buffers: Vec<_> = data.iter().map(|data| device.upload(data).unwrap()).collect();
    let [a, b, c, d] = &buffers[..] else { panic!() };
    gemm.plan(device).unwrap().run(&Arguments::new(a, b, d).c(c).alpha(2.0).beta(-1.0)).unwrap();
    let mut expected = data[3].clone();
    for member in 0..batch {
        let value =
            |i: usize, row, column| data[i][member * stride(i) + at(storages[i], leading(i), row, column)];
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let sum: f32 = (0..k).map(|i| value(0, row, i) * value(1, i, column)).sum();
            expected[member * stride(3) + at(sd, leading(3), row, column)] =
                2.0 * sum - value(2, row, column);
        }
    }
    assert_eq!(d.to_vec().unwrap(), expected, "{storages:?}, gap {gap}, batch {batch} on {}", device.name());
}

#[test]
fn matrices_may_lie_anyhow() {
    use Storage::{ColumnMajor as C, RowMajor as R};
    for device in available() {
        for (storages, gap, batch) in
            [([R, R, R, R], 0, 1), ([C, R, C, R], 3, 1), ([R, C, R, C], 1, 2), ([C, C, C, C], 0, 3)]
        {
            lies(&device, storages, gap, batch);
        }
    }
}

#[test]
fn members_of_a_batch_may_lie_anywhere() {
    for device in available() {
        let (m, n, k, batch) = (3, 4, 5, 3);
        let member = |salt: usize, len: usize| device.upload(&numbers(len, salt, f32::of)).unwrap();
        let a: Vec<_> = (0..batch).map(|i| member(i, m * k)).collect();
        let b: Vec<_> = (0..batch).map(|i| member(10 + i, k * n)).collect();
        let d: Vec<_> = (0..batch).map(|_| device.alloc::<f32>(m * n).unwrap()).collect();
        let list = |members: &[tilewright::device::Buffer<f32>]| {
            let list: Vec<u64> = members.iter().map(|member| DynBuffer::from(member).address()).collect();
            device.upload(&list).unwrap()
        };
        let (lists_a, lists_b, lists_d) = (list(&a), list(&b), list(&d));
        let gemm = Gemm::new(m, n, k).element::<f32>().batch(batch).pointers();
        gemm.plan(&device).unwrap().run(&Arguments::new(&lists_a, &lists_b, &lists_d)).unwrap();
        for i in 0..batch {
            let alone = Gemm::new(m, n, k).run(&device, &a[i], &b[i]).unwrap();
            assert_eq!(d[i].to_vec().unwrap(), alone.to_vec::<f32>().unwrap(), "{}", device.name());
        }
    }
}

#[test]
fn the_result_may_take_the_place_of_what_is_added() {
    for device in available() {
        let (a, b) = (device.upload(&[1.0f32; 6]).unwrap(), device.upload(&[2.0f32; 6]).unwrap());
        let c = device.upload(&[1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let plan = Gemm::new(2, 2, 3).element::<f32>().epilogue(Epilogue::linear()).plan(&device).unwrap();
        plan.run(&Arguments::new(&a, &b, &c).c(&c).beta(1.0)).unwrap();
        assert_eq!(c.to_vec().unwrap(), [7.0, 8.0, 9.0, 10.0], "{}", device.name());
    }
}

#[test]
fn sums_of_bytes_are_exact_however_long() {
    let device = Device::cpu();
    let k = 3000;
    for (a, b, expected) in [(-128i8, -128i8, 16384 * 3000), (-128, 127, -16256 * 3000)] {
        let (a, b) = (device.upload(&vec![a; k]).unwrap(), device.upload(&vec![b; 2 * k]).unwrap());
        let d = Gemm::new(1, 2, k).run(&device, &a, &b).unwrap();
        assert_eq!(d.to_vec::<i32>().unwrap(), [expected; 2]);
    }
    let ones = device.upload(&vec![255u8; k]).unwrap();
    let d = Gemm::new(1, 1, k).run(&device, &ones, &ones).unwrap();
    assert_eq!(d.to_vec::<i32>().unwrap(), [65025 * 3000]);
    // Odd sums, which f32 does not have beyond 2^24.
    let mut odd = vec![127i8; k];
    odd[0] = 126;
    let d = Gemm::new(1, 1, k).run(
        &device,
        &device.upload(&odd).unwrap(),
        &device.upload(&vec![127i8; k]).unwrap(),
    );
    assert_eq!(d.unwrap().to_vec::<i32>().unwrap(), [127 * 127 * 3000 - 127]);
}

#[test]
fn a_large_product_is_right_on_the_cpu() {
    let device = Device::cpu();
    let (m, n, k) = (129, 257, 300);
    let (a, b) = (numbers(m * k, 1, bf16::of), numbers(k * n, 2, bf16::of));
    let types = Types::of(Element::BF16).with_result(Element::F32);
    let gemm = Gemm::new(m, n, k).types(types);
    let d = gemm.run(&device, &device.upload(&a).unwrap(), &device.upload(&b).unwrap()).unwrap();
    let d = d.to_vec::<f32>().unwrap();
    for (row, column) in [(0, 0), (128, 256), (64, 100), (1, 255)] {
        let sum: f64 = (0..k).map(|i| a[row * k + i].value() * b[i * n + column].value()).sum();
        assert_eq!(f64::from(d[row * n + column]), sum);
    }
}

#[test]
fn what_is_added_lies_as_the_result_does() {
    for device in available() {
        let (a, b) = (device.upload(&[1.0f32; 2]).unwrap(), device.upload(&[1.0f32; 2]).unwrap());
        let gemm = Gemm::new(2, 2, 1).element::<f32>().epilogue(Epilogue::linear());
        // Lines and members with gaps, in place.
        let y: Vec<f32> = (0u8..9).map(f32::from).collect();
        let d = device.upload(&y).unwrap();
        let gaps = gemm.clone().leading_d(5).alignment_d(4);
        gaps.plan(&device).unwrap().run(&Arguments::new(&a, &b, &d).c(&d).beta(1.0)).unwrap();
        assert_eq!(d.to_vec().unwrap(), [1.0, 2.0, 2.0, 3.0, 4.0, 6.0, 7.0, 7.0, 8.0], "{}", device.name());

        let c = device.upload(&(0u8..14).map(f32::from).collect::<Vec<_>>()).unwrap();
        let d = device.upload(&[-1.0f32; 14]).unwrap();
        let members = gemm.clone().batch(2).stride_a(0).stride_b(0).leading_d(4).stride_d(8);
        let plan = members.plan(&device).unwrap();
        plan.run(&Arguments::new(&a, &b, &d).c(&c).beta(1.0)).unwrap();
        let expected = [1.0, 2.0, -1.0, -1.0, 5.0, 6.0, -1.0, -1.0, 9.0, 10.0, -1.0, -1.0, 13.0, 14.0];
        assert_eq!(d.to_vec().unwrap(), expected, "{}", device.name());

        // What C says of itself counts.
        let plan = gemm.leading_d(4).c(Storage::ColumnMajor).plan(&device).unwrap();
        let d = device.upload(&[-1.0f32; 6]).unwrap();
        plan.run(&Arguments::new(&a, &b, &d).c(&c).beta(1.0)).unwrap();
        assert_eq!(d.to_vec().unwrap(), [1.0, 3.0, -1.0, -1.0, 2.0, 4.0], "{}", device.name());
        let error = refusal(plan.run(&Arguments::new(&a, &b, &d).c(&d).beta(1.0)));
        assert!(error.contains("same type, storage, leading dimension and batch stride"), "{error}");
    }
}

#[test]
fn every_factor_has_results_of_every_type() {
    use Element::{BF16, E4M3, E5M2, F16, F32, F64, I8, I32, TF32, U8};
    let device = Device::simulator();
    let zeros = |element: Element| {
        let bytes = device.upload(&[0u8; 16 * 8]).unwrap();
        DynBuffer::from(&bytes).reinterpreted(element)
    };
    for factors in [BF16, TF32, F64, I8, E5M2] {
        for result in [F16, BF16, F32, TF32, F64, E4M3, E5M2, I8, U8, I32] {
            for epilogue in [Epilogue::identity(), Epilogue::linear()] {
                let types = Types::of(factors).with_result(result);
                let plan = Gemm::new(2, 4, 4).types(types).epilogue(epilogue.clone()).plan(&device).unwrap();
                let in_memory = |element| zeros(Types::in_memory(element));
                let arguments = Arguments::new(in_memory(factors), in_memory(factors), in_memory(result));
                let arguments = if epilogue.reads_c() { arguments.c(in_memory(result)) } else { arguments };
                plan.run(&arguments).unwrap_or_else(|error| panic!("{types:?}: {error}"));
            }
        }
    }
}

#[test]
fn members_may_lie_side_by_side() {
    for device in available() {
        let (tokens, k) = (3, 2);
        let a = device.upload(&[1.0f32; 2 * 6]).unwrap();
        let b: Vec<f32> = (0u8..16).map(f32::from).collect();
        let d = device.alloc::<f32>(tokens * 8).unwrap();
        let gemm = Gemm::new(tokens, 4, k).element::<f32>().batch(2).leading_d(8).stride_d(4);
        let plan = gemm.clone().plan(&device).unwrap();
        plan.run(&Arguments::new(&a, &device.upload(&b).unwrap(), &d)).unwrap();
        let row = [4.0, 6.0, 8.0, 10.0, 20.0, 22.0, 24.0, 26.0];
        assert_eq!(d.to_vec().unwrap(), row.repeat(tokens), "{}", device.name());
        let error = refusal(gemm.clone().stride_d(3).plan(&device));
        assert!(error.starts_with("matrix D: the batch stride is 3, expected one that keeps"), "{error}");
        // A factor beside its results, both of them heads of one wide matrix.
        let wide = device.upload(&[1.0f32; 3 * 8]).unwrap();
        let gemm = Gemm::new(tokens, 2, 2)
            .element::<f32>()
            .batch(2)
            .leading_a(8)
            .stride_a(2)
            .leading_d(8)
            .stride_d(2);
        let weights = device.upload(&[2.0f32; 8]).unwrap();
        let run = |from: usize| {
            let part = wide.slice(from..).unwrap();
            gemm.clone().alignment_d(4).plan(&device).unwrap().run(&Arguments::new(&wide, &weights, &part))
        };
        run(4).unwrap();
        let row = [1.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0, 4.0];
        assert_eq!(wide.to_vec().unwrap(), row.repeat(tokens), "{}", device.name());
        assert!(refusal(run(3)).starts_with("D: found memory that overlaps A, expected memory apart from A"));
    }
}

#[test]
fn parts_of_one_large_matrix_do_not_overlap() {
    let device = Device::cpu();
    // Columns 0 to 2 are A, columns 2 to 4 are D.
    let whole = device.upload(&[1.0f32; 4 * 4]).unwrap();
    let b = device.upload(&[3.0f32; 4]).unwrap();
    let gemm = Gemm::new(4, 2, 2).leading_a(4).leading_d(4);
    let planner = Planner::new(&device);
    planner.run(&gemm, &Arguments::new(&whole, &b, &whole.slice(2..).unwrap())).unwrap();
    assert_eq!(whole.to_vec().unwrap(), [1.0, 1.0, 6.0, 6.0].repeat(4));
    let error = planner.run(&gemm, &Arguments::new(&whole, &b, &whole.slice(1..).unwrap()));
    assert!(refusal(error).starts_with("D: found memory that overlaps A"));
}

#[test]
fn every_chip_reads_and_writes_eight_bit_floats() {
    let (m, n, k) = (19, 24, 17);
    let types = Types { c: Element::E5M2, ..Types::of(Element::BF16).with_result(Element::E4M3) };
    let epilogue = Epilogue::linear()
        .bias_per_column("bias", Element::E4M3)
        .store("before", Element::E5M2, Placement::dense(Storage::RowMajor, m, n))
        .amax("largest");
    let gemm = Gemm::new(m, n, k).types(types).epilogue(epilogue);
    let on = |device: &Device| {
        let (a, b) = (numbers(m * k, 1, bf16::of), numbers(k * n, 2, bf16::of));
        let (c, bias) = (numbers(m * n, 3, E5m2::from_f64), numbers(n, 4, E4m3::from_f64));
        let (a, b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let (c, bias) = (device.upload(&c).unwrap(), device.upload(&bias).unwrap());
        let (d, before) = (device.alloc::<E4m3>(m * n).unwrap(), device.alloc::<E5m2>(m * n).unwrap());
        let largest = device.alloc::<f32>(1).unwrap();
        let arguments = Arguments::new(&a, &b, &d).c(&c).alpha(0.75).beta(-2.0);
        let arguments = arguments.extra("bias", &bias).extra("before", &before).extra("largest", &largest);
        gemm.plan(device).unwrap().run(&arguments).unwrap_or_else(|error| panic!("{error}"));
        (d.to_vec().unwrap(), before.to_vec().unwrap(), largest.to_vec().unwrap())
    };
    let expected = on(&Device::cpu());
    for chip in [Arch::SM_80, Arch::SM_86, Arch::SM_89, Arch::SM_90A, Arch::SM_120A] {
        let device = Device::simulator_with(Options { chip: Some(chip), ..Options::default() });
        assert_eq!(on(&device), expected, "{chip}");
    }
}

#[test]
fn the_simulator_plans_for_the_chip_that_it_is() {
    let gemm = Gemm::new(64, 64, 64).element::<bf16>();
    for (chip, family) in [(Arch::SM_80, "ampere"), (Arch::SM_89, "ampere"), (Arch::SM_90A, "hopper")] {
        let device = Device::simulator_with(Options { chip: Some(chip), ..Options::default() });
        let algorithm = gemm.plan(&device).unwrap().algorithm().unwrap().to_string();
        assert!(algorithm.starts_with(family), "{chip}: {algorithm}");
        let ones = device.upload(&[bf16::from_f32(1.0); 64 * 64]).unwrap();
        let d = gemm.run(&device, &ones, &ones).unwrap().to_vec::<bf16>().unwrap();
        assert!(d.iter().all(|d| d.to_f32() == 64.0), "{chip}");
    }
    let ampere = Device::simulator_with(Options { chip: Some(Arch::SM_80), ..Options::default() });
    let hopper = gemm.configuration("hopper 128x256x128B c2x1 s4 coop2 m8").plan(&ampere).unwrap_err();
    assert!(hopper.to_string().contains("sm_90a"), "{hopper}");
}

/// Numbers beside the middle of two results go to the nearer one, and of two to the even one, whoever converts them, in D and elsewhere.
#[test]
fn results_are_the_nearest_on_every_device() {
    use Element::{BF16, F16, F64};
    for device in available() {
        for (element, digits) in [(BF16, 8), (F16, 11)] {
            let tie = 2f64.powi(-digits);
            // The middle between 1 and the next number, and a little to both sides.
            for (value, up) in
                [(1.0 + tie, false), (1.0 + tie + 2f64.powi(-30), true), (1.0 + tie - 2f64.powi(-30), false)]
            {
                let (a, b) = (device.upload(&[value]).unwrap(), device.upload(&[1.0f64]).unwrap());
                let bits = match (element, up) {
                    (BF16, _) => 0x3f80 + u16::from(up),
                    _ => 0x3c00 + u16::from(up),
                };
                let d = Gemm::new(1, 1, 1).types(Types::of(F64).with_result(element)).run(&device, &a, &b);
                let d = d.unwrap();
                let found = match element {
                    BF16 => d.to_vec::<bf16>().unwrap()[0].to_bits(),
                    _ => d.to_vec::<f16>().unwrap()[0].to_bits(),
                };
                assert_eq!(found, bits, "{value} as {element} on {}", device.name());
            }
            // The same of f32, stored beside D.
            let value = 1.0 + 2f32.powi(-digits) + 2f32.powi(-22);
            let (a, b) = (device.upload(&[value]).unwrap(), device.upload(&[1.0f32]).unwrap());
            let store = Epilogue::new().store("aux", element, Placement::dense(Storage::RowMajor, 1, 1));
            let plan = Gemm::new(1, 1, 1).element::<f32>().epilogue(store).plan(&device).unwrap();
            let (d, aux) = (device.alloc::<f32>(1).unwrap(), device.alloc::<u16>(1).unwrap());
            let aux = DynBuffer::from(&aux).reinterpreted(element);
            plan.run(&Arguments::new(&a, &b, &d).extra("aux", &aux)).unwrap();
            let found = aux.reinterpreted(Element::U16).to_vec::<u16>().unwrap()[0];
            assert_eq!(
                found,
                if element == BF16 { 0x3f81 } else { 0x3c01 },
                "{element} on {}",
                device.name()
            );
        }
    }
}

/// Factors of tf32 lose digits; what is added to their sums is f32.
#[test]
fn only_factors_are_rounded_to_tf32() {
    use Element::{F32, TF32};
    for device in available() {
        let zero = device.upload(&[0.0f32]).unwrap();
        let c = device.upload(&[1.0 + f32::EPSILON]).unwrap();
        for d in [F32, TF32] {
            let types = Types { c: TF32, d, ..Types::of(TF32) };
            let gemm = Gemm::new(1, 1, 1).types(types).epilogue(Epilogue::linear());
            let out = device.alloc::<f32>(1).unwrap();
            let arguments = Arguments::new(&zero, &zero, &out).c(&c).scalar("alpha", 1.0).scalar("beta", 1.0);
            gemm.plan(&device).unwrap().run(&arguments).unwrap();
            assert_eq!(out.to_vec().unwrap(), [1.0 + f32::EPSILON], "{}", device.name());
        }
    }
}
