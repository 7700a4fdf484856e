//! What cannot be computed, and what is said of it.

use super::*;

#[test]
fn mistakes_in_the_description_are_explained() {
    let device = Device::cpu();
    let plan = |gemm: Gemm| refusal(gemm.plan(&device));
    let gemm = || Gemm::new(4, 6, 8).element::<f32>();
    assert_eq!(
        plan(Gemm::new(4, 6, 8)),
        "the types: found none, expected those of factors, sums and result; \
         give them with `element::<bf16>()` or `types(..)`"
    );
    assert_eq!(
        plan(gemm().leading_a(7)),
        "matrix A (4 x 8, row-major): the leading dimension is 7, expected at least 8"
    );
    assert_eq!(
        plan(gemm().batch(2).stride_d(23)),
        "matrix D: the batch stride is 23, expected one that keeps members apart, since they are written: 24, \
         or another at which no two share an element"
    );
    assert_eq!(
        plan(gemm().configuration("hoper 128x128")),
        "configuration hoper 128x128: the first word is `hoper`, expected the name of a family: \
         hopper, ampere, simt, gemv"
    );
    let simulator = Device::simulator_with(Options { chip: Some(Arch::SM_80), ..Options::default() });
    let warps = gemm().configuration("ampere 64x64x16 w2147483648x2 i8 s3 g1 p1");
    assert!(refusal(warps.plan(&simulator)).contains("4294967295 threads; a block has at most 1024"));
    assert_eq!(
        plan(Gemm::new(4, 7, 8).element::<f32>().epilogue(Epilogue::new().swiglu())),
        "the epilogue cannot be computed: it makes one column of 2, and n is 7; expected a multiple of 2"
    );
    assert!(plan(gemm().types(Types::of(Element::U64))).contains("there is no product of u64 and u64"));
    assert!(
        plan(Gemm::new(1 << 33, 1, 1).element::<f32>())
            .contains("m is 8589934592, expected at most 2147483392"),
        "{}",
        plan(Gemm::new(1 << 33, 1, 1).element::<f32>())
    );
}

#[test]
fn mistakes_in_the_arguments_are_explained() {
    for device in available() {
        let name = device.name().to_owned();
        let (a, b) = (device.upload(&[1.0f32; 32]).unwrap(), device.upload(&[1.0f32; 48]).unwrap());
        let d = device.alloc::<f32>(24).unwrap();
        let plan = Gemm::new(4, 6, 8).element::<f32>().plan(&device).unwrap();
        let run = |arguments: &Arguments| refusal(plan.run(arguments));

        assert_eq!(
            run(&Arguments::new(&a, &a, &d)),
            "B: found 32 elements, expected at least 48 (8 x 6, row-major, leading dimension 6); \
             check extents, storage and leading dimension"
        );
        let wrong = device.upload(&[0i32; 32]).unwrap();
        assert_eq!(
            run(&Arguments::new(&wrong, &b, &d)),
            "A: found a buffer of i32, expected a buffer of f32; \
             upload the data in that type, or plan with `types` that say otherwise"
        );
        let elsewhere = Device::cpu().upload(&[0.0f32; 32]).unwrap();
        assert_eq!(
            run(&Arguments::new(&elsewhere, &b, &d)),
            format!(
                "A: found memory of another device, expected memory of the device of the plan ({name}); \
                 upload the data there"
            )
        );
        assert_eq!(
            run(&Arguments::new(&a, &b, &a)),
            "D: found memory that overlaps A, expected memory apart from A; give D memory of its own"
        );
        assert_eq!(
            run(&Arguments::new(&a, &b, &d).c(&d)),
            "C: found a buffer, expected none; \
             the epilogue does not read C: plan with one that does, such as `Epilogue::linear()`"
        );
        assert_eq!(
            run(&Arguments::new(&a, &b, &d).alpha(2.0)),
            "the number `alpha`: found a value, expected one of the epilogue's numbers: none; \
             plan with an epilogue that has it, such as `Epilogue::linear()` for alpha and beta"
        );
        let larger = device.upload(&[1.0f32; 33]).unwrap();
        assert_eq!(
            run(&Arguments::new(&larger.slice(1..).unwrap(), &b, &d)),
            "A: found an address that is a multiple of 4 bytes, expected a multiple of 16, as planned; \
             plan with `alignment_a(4)`, or run with a `Planner`, which looks"
        );

        let linear = Gemm::new(4, 6, 8).element::<f32>().epilogue(Epilogue::linear()).plan(&device).unwrap();
        assert_eq!(
            refusal(linear.run(&Arguments::new(&a, &b, &d))),
            "C: found nothing, expected a buffer of f32 (4 x 6, row-major, leading dimension 6); \
             the epilogue reads C: give it with `Arguments::c`"
        );
        let both = device.upload(&[1.0f32; 32]).unwrap();
        assert!(
            refusal(
                linear
                    .run(&Arguments::new(&a, &b, &both.slice(..24).unwrap()).c(&both.slice(4..28).unwrap()))
            )
            .starts_with(
                "D: found memory that overlaps C, expected memory apart from C, or exactly that of C"
            ),
        );
        let pointers = Gemm::new(4, 6, 8).element::<f32>().batch(3).pointers().plan(&device).unwrap();
        assert_eq!(
            refusal(pointers.run(&Arguments::new(&a, &b, &d))),
            "A: found a buffer of f32, expected addresses as u64, one for each member of the batch; \
             leave out `pointers()` if the matrices lie at a fixed distance"
        );
        let list = device.upload(&[0u64; 2]).unwrap();
        assert_eq!(
            refusal(pointers.run(&Arguments::new(&list, &list, &list))),
            "A: found 2 addresses, expected 3, one for each member of the batch; give an address for each"
        );
        // And with the right arguments it still works.
        plan.run(&Arguments::new(&a, &b, &d)).unwrap();
        assert_eq!(d.to_vec().unwrap(), [8.0; 24]);
    }
}

/// Nothing is allocated for what cannot be run anyway.
#[test]
fn memory_is_for_products_whose_arguments_are_right() {
    for device in available() {
        let gemm = Gemm::new(64, 64, 1 << 14).element::<bf16>();
        let text = "hopper 64x64x64B c1x1 s4 coop1 m1 split8";
        let algorithm = if device.kind() == DeviceKind::Cpu { gemm } else { gemm.configuration(text) };
        let plan = algorithm.plan(&device).unwrap();
        let few = device.alloc::<bf16>(4).unwrap();
        let workspace = Workspace::new(&device);
        let found = refusal(plan.run(&Arguments::new(&few, &few, &few).workspace(&workspace)));
        assert!(found.starts_with("A: found 4 elements, expected at least 1048576"), "{found}");
        assert_eq!(workspace.bytes(), 0);
        assert!(plan.workspace_bytes() > 0 || device.kind() == DeviceKind::Cpu);
    }
    let device = Device::cpu();
    let list = device.upload(&[0u64]).unwrap();
    let plan = Gemm::new(1 << 22, 1 << 22, 0).element::<f32>().pointers().plan(&device).unwrap();
    let found = refusal(plan.run(&Arguments::new(&list, &list, &list)));
    assert!(found.contains("0x0"), "{found}");
}

#[test]
fn mistakes_in_the_operands_of_epilogues_are_explained() {
    let device = Device::cpu();
    let (a, b) = (device.upload(&[1.0f32; 32]).unwrap(), device.upload(&[1.0f32; 48]).unwrap());
    let d = device.alloc::<f32>(24).unwrap();
    let epilogue = Epilogue::new().bias_per_column("bias", Element::F32).row_sums("sums");
    let gemm = Gemm::new(4, 6, 8).element::<f32>().epilogue(epilogue);
    let plan = gemm.plan(&device).unwrap();
    let (bias, sums) = (device.upload(&[1.0f32; 6]).unwrap(), device.alloc::<f32>(4).unwrap());
    let base = Arguments::new(&a, &b, &d);
    let run = |arguments: Arguments| refusal(plan.run(&arguments));
    assert_eq!(
        run(base.clone().extra("sums", &sums)),
        "operand `bias`: found nothing, expected 6 elements of f32; give it with `Arguments::extra(\"bias\", &buffer)`"
    );
    assert_eq!(
        run(base.clone().extra("sums", &sums).extra("bias", &bias.slice(1..).unwrap())),
        "operand `bias`: found 5 elements, expected at least 6; \
         check the extents of the product and the shape in the epilogue"
    );
    assert_eq!(
        run(base.clone().extra("sums", &sums).extra("bias", &device.upload(&[0u32; 6]).unwrap())),
        "operand `bias`: found a buffer of u32, expected a buffer of f32; \
         upload the data in that type, or say otherwise in the epilogue"
    );
    assert_eq!(
        run(base.clone().extra("sums", &sums).extra("bias", &bias).extra("bais", &bias)),
        "operand `bais`: found a buffer, expected one of the epilogue's operands: sums, bias; \
         check the name, or plan with an epilogue that has it"
    );
    assert_eq!(
        run(base.clone().extra("sums", &bias).extra("bias", &bias)),
        "operand `sums`: found memory that overlaps operand `bias`, \
         expected memory apart, since it is written; give it memory of its own"
    );
    // Six elements are read in pairs, which must lie so.
    let larger = device.upload(&[1.0f32; 7]).unwrap();
    let odd = base.clone().extra("sums", &sums).extra("bias", &larger.slice(1..).unwrap());
    assert_eq!(
        run(odd.clone()),
        "operand `bias`: found an address that is a multiple of 4 bytes, expected a multiple of 8, as planned; \
         plan with `alignment_of(\"bias\", 4)`, or run with a `Planner`, which looks"
    );
    Planner::new(&device).run(&gemm, &odd).unwrap();
    assert_eq!(sums.to_vec().unwrap(), [54.0; 4]);
    sums.fill(0.0).unwrap();
    gemm.alignment_of("bias", 4).plan(&device).unwrap().run(&odd).unwrap();
    plan.run(&base.extra("sums", &sums).extra("bias", &bias)).unwrap();
    assert_eq!(sums.to_vec().unwrap(), [54.0; 4]);
}

#[test]
fn every_device_takes_the_same_types() {
    use Element::{BF16, E4M3, F16, F32, I16, I64, TF32, U8, U16, U32, U64};
    let bf16 = Types::of(BF16);
    let refused = [
        Types { b: F16, ..bf16 },
        Types { a: F32, ..bf16 },
        Types { b: E4M3, ..bf16 },
        Types { b: TF32, ..bf16 },
        Types { accumulate: F16, ..Types::of(F16) },
        Types { accumulate: Element::F64, ..bf16 },
        Types { accumulate: F32, ..Types::of(U8) },
        Types { c: U64, ..bf16 },
        bf16.with_result(U16),
        bf16.with_result(U32),
        bf16.with_result(U64),
        bf16.with_result(I16),
        bf16.with_result(I64),
        Types::of(U64),
    ];
    for types in refused {
        let message = |device: &Device| {
            let gemm = Gemm::new(16, 16, 16).types(types).epilogue(Epilogue::linear());
            refusal(gemm.plan(device))
        };
        let first = message(&Device::cpu());
        assert!(first.contains("f16, bf16, f32, f64, e4m3, e5m2, i8, u8 or i32"), "{types:?}: {first}");
        for device in available() {
            assert_eq!(message(&device), first, "{}", device.name());
        }
    }
    // Nobody looks at a C that is not read.
    Gemm::new(16, 16, 16).types(Types { c: U64, ..bf16 }).plan(&Device::cpu()).unwrap();
}

#[test]
fn what_is_written_overlaps_nothing_that_is_read() {
    for device in available() {
        let arena = device.upload(&[1.0f32; 64]).unwrap();
        let part = |from: usize, len: usize| arena.slice(from..from + len).unwrap();
        let (a, b) = (device.upload(&[1.0f32; 8]).unwrap(), device.upload(&[1.0f32; 8]).unwrap());
        let d = part(0, 16);
        let run = |epilogue: Epilogue, name: &str, extra: &tilewright::device::Buffer<f32>| {
            let plan = Gemm::new(4, 4, 2).element::<f32>().epilogue(epilogue).plan(&device).unwrap();
            plan.run(&Arguments::new(&a, &b, &d).extra(name, extra))
        };
        let bias = || Epilogue::new().bias_per_column("t", Element::F32);
        assert_eq!(
            refusal(run(bias(), "t", &part(4, 4))),
            "D: found memory that overlaps operand `t`, expected memory apart from operand `t`; give D memory of its own"
        );
        run(bias(), "t", &part(16, 4)).unwrap();
        let residual = |storage| Epilogue::new().residual("x", Element::F32, Placement::dense(storage, 4, 4));
        assert!(refusal(run(residual(Storage::ColumnMajor), "x", &d)).starts_with(
            "D: found memory that overlaps operand `x`, expected memory apart from operand `x`, or exactly"
        ));
        // Exactly in place each element is read before it is written.
        run(residual(Storage::RowMajor), "x", &d).unwrap();
        assert_eq!(d.to_vec().unwrap(), [5.0; 16], "{}", device.name());
        // Only what is used counts, not the buffer that it is in.
        run(Epilogue::new().amax("m"), "m", &part(32, 1)).unwrap();
        run(Epilogue::new().amax("m"), "m", &part(16, 32)).unwrap();
        let error = refusal(run(Epilogue::new().amax("m"), "m", &part(12, 1)));
        assert!(error.starts_with("operand `m`: found memory that overlaps D, expected"), "{error}");
        let store = Epilogue::new().store("p", Element::F32, Placement::dense(Storage::RowMajor, 4, 4));
        let plan = Gemm::new(4, 4, 2).element::<f32>().epilogue(store).plan(&device).unwrap();
        let error = refusal(plan.run(&Arguments::new(&part(36, 8), &b, &d).extra("p", &part(28, 16))));
        assert!(error.starts_with("operand `p`: found memory that overlaps A, expected"), "{error}");
    }
}

#[test]
fn distances_beyond_all_memory_are_refused_or_do_not_matter() {
    for device in available() {
        let (a, b) = (device.upload(&[1.0f32; 4]).unwrap(), device.upload(&[1.0f32; 4]).unwrap());
        let gemm = Gemm::new(2, 2, 2).element::<f32>();
        let strides = gemm.clone().stride_a(usize::MAX).stride_b(usize::MAX).stride_d(usize::MAX);
        let d = strides.run(&device, &a, &b).unwrap();
        assert_eq!(d.to_vec::<f32>().unwrap(), [2.0; 4]);
        let error = refusal(strides.batch(2).run(&device, &a, &b));
        assert_eq!(
            error,
            "matrix A (2 x 2, row-major): the batch stride is 18446744073709551615, expected at most 1152921504606846976; \
             copy it to where its elements lie closer together"
        );
        // Extents that do not fit are refused as well, not cut to what would.
        let vast = Placement::dense(Storage::ColumnMajor, (1 << 40) + 2, usize::MAX);
        let error =
            refusal(gemm.clone().epilogue(Epilogue::new().residual("x", Element::F32, vast)).plan(&device));
        let start =
            "operand `x` (2 x 2, column-major): the leading dimension is 1099511627778, expected at most";
        assert!(error.starts_with(start), "{error}");
        let far = Placement::dense(Storage::RowMajor, 2, 2).with_leading(usize::MAX);
        for epilogue in
            [Epilogue::new().residual("x", Element::F32, far), Epilogue::new().store("x", Element::F32, far)]
        {
            let error = refusal(gemm.clone().epilogue(epilogue).plan(&device));
            let start =
                "operand `x` (2 x 2, row-major): the leading dimension is 18446744073709551615, expected";
            assert!(error.starts_with(start), "{error}");
        }
        for stride in [1 << 59, 1 << 60, usize::MAX] {
            let operand = ExtraOperand::new("t", Element::F64, Shape::PerRow).each_batch(stride);
            let gemm = gemm.clone().batch(20).stride_a(0).stride_b(0);
            let plan = gemm.epilogue((Expr::Sum + operand).into()).plan(&device);
            let t = device.upload(&[1.0f64; 64]).unwrap();
            let d = device.alloc::<f32>(80).unwrap();
            let error = plan.and_then(|plan| plan.run(&Arguments::new(&a, &b, &d).extra("t", &t)));
            let error = refusal(error);
            let large = "operand `t`: the batch stride is 18446744073709551615, expected at most";
            let small = "operand `t`: found 64 elements";
            assert!(error.starts_with(if stride == usize::MAX { large } else { small }), "{error}");
        }
    }
}

#[test]
fn what_was_not_understood_is_said() {
    let device = Device::cpu();
    let addresses = device.upload(&[0u64; 2]).unwrap();
    let arguments = Arguments::new(&addresses, &addresses, &addresses);
    let error = refusal(Planner::new(&device).run(&Gemm::new(4, 4, 4).batch(2).pointers(), &arguments));
    assert!(
        error.starts_with("the types: found none, expected those of factors, sums and result; give"),
        "{error}"
    );
    let gemm = Gemm::new(4, 4, 4).element::<f32>();
    assert_eq!(
        refusal(gemm.clone().configuration("swap").plan(&device)),
        "configuration swap: it names no kernel, expected one of a family before it: hopper, ampere, simt, gemv"
    );
    let most = u32::MAX;
    let beyond = format!("simt {most}x{most}x{most} {most}x{most} s{most} g{most} p{most}");
    assert!(refusal(gemm.clone().configuration(&beyond).plan(&device)).contains("powers of two"));
    let beyond = format!("simt 64x64x16 {0}x{0} s2 g1 p1", 1u32 << 31);
    let error = refusal(gemm.clone().configuration(&beyond).plan(&device));
    assert!(error.contains("at most 128 in all"), "{error}");
    let dense = Placement::dense(Storage::RowMajor, 4, 4);
    let gemm =
        gemm.epilogue(Epilogue::new().bias_per_column("b", Element::F32).residual("x", Element::F32, dense));
    let aligned = |name: &str, bytes: u32| refusal(gemm.clone().alignment_of(name, bytes).plan(&device));
    assert_eq!(
        aligned("unknown", 4),
        "the alignment of operand `unknown`: found no such operand, expected one of the epilogue's operands: b, x; \
         check the name"
    );
    for bytes in [0, 3] {
        let expected = format!("the alignment of operand `b`: found {bytes}, expected a power of two; ");
        assert!(aligned("b", bytes).starts_with(&expected), "{}", aligned("b", bytes));
    }
    gemm.alignment_of("b", 4).alignment_of("x", 4).plan(&device).unwrap();
}

/// More than addresses are multiples of was promised, of vectors and matrices: whoever sees the addresses goes by these.
#[test]
fn planners_look_at_the_addresses_of_all_operands() {
    for device in available() {
        let values: Vec<f32> = (0..17u8).map(f32::from).collect();
        let (ones, odd) = (device.upload(&[1.0f32; 16]).unwrap(), device.upload(&values).unwrap());
        let odd = odd.slice(1..).unwrap();
        let dense = Placement::dense(Storage::RowMajor, 4, 4);
        let epilogue = Epilogue::new().bias_per_column("b", Element::F32).residual("x", Element::F32, dense);
        let gemm = Gemm::new(4, 4, 4).element::<f32>().epilogue(epilogue).alignment_of("b", 16);
        let d = device.alloc::<f32>(16).unwrap();
        let arguments = Arguments::new(&ones, &ones, &d).extra("b", &odd).extra("x", &odd);
        Planner::new(&device).run(&gemm, &arguments).unwrap();
        let expected: Vec<f32> = (0..16).map(|i| 4.0 + values[1 + i % 4] + values[1 + i]).collect();
        assert_eq!(d.to_vec().unwrap(), expected);
        let error = refusal(gemm.alignment_of("b", 4).plan(&device).unwrap().run(&arguments));
        assert_eq!(
            error,
            "operand `x`: found an address that is a multiple of 4 bytes, expected a multiple of 16, as planned; \
             plan with `alignment_of(\"x\", 4)`, or run with a `Planner`, which looks"
        );
    }
}
