//! Plans, planners, scratch memory: what is kept, and what is looked at again.

use super::*;

#[test]
fn a_planner_keeps_plans_and_looks_at_addresses() {
    for device in available() {
        let planner = Planner::new(&device);
        assert!(planner.is_empty());
        let gemm = Gemm::new(3, 4, 5);
        let room = device.upload(&numbers(3 * 5 + 1, 1, f32::of)).unwrap();
        let b = device.upload(&numbers(5 * 4, 2, f32::of)).unwrap();
        let d = device.alloc::<f32>(3 * 4).unwrap();
        let mut results = Vec::new();
        for _ in 0..2 {
            for a in [room.slice(..15).unwrap(), room.slice(1..).unwrap()] {
                planner.run(&gemm, &Arguments::new(&a, &b, &d)).unwrap();
                results.push(d.to_vec().unwrap());
            }
        }
        assert_eq!(planner.len(), 2, "one for each alignment");
        assert_eq!(results[..2], results[2..]);
        assert_ne!(results[0], results[1]);
    }
}

#[test]
fn a_planner_prefers_what_it_is_told() {
    let device = Device::simulator();
    let planner = Planner::new(&device);
    let gemm = Gemm::new(40, 40, 40).element::<f32>();
    let chosen = planner.plan(&gemm).unwrap();
    let other = chosen
        .candidates()
        .iter()
        .map(|candidate| candidate.algorithm)
        .find(|&algorithm| Some(algorithm) != chosen.algorithm());
    let other = other.expect("more than one candidate");
    planner.prefer(&gemm, other).unwrap();
    assert_eq!(planner.plan(&gemm).unwrap().algorithm(), Some(other));
    let wrong: Algorithm = other.to_string().parse().unwrap();
    assert!(planner.prefer(&Gemm::new(40, 40, 40).element::<i8>(), wrong).is_err());
}

#[test]
fn a_plan_tells_numbers_apart_by_their_bits() {
    for device in available() {
        let plan =
            Gemm::new(2, 2, 2).element::<f32>().epilogue(Epilogue::new().alpha()).plan(&device).unwrap();
        let (ones, d) = (device.upload(&[1.0f32; 4]).unwrap(), device.alloc::<f32>(4).unwrap());
        for alpha in [0.0, -0.0, 0.0f64] {
            plan.run(&Arguments::new(&ones, &ones, &d).alpha(alpha)).unwrap();
            let signs = d.to_vec().unwrap().iter().map(|d| d.is_sign_negative()).collect::<Vec<_>>();
            assert_eq!(signs, [alpha.is_sign_negative(); 4], "{} on {}", alpha, device.name());
        }
    }
}

/// A configuration whose blocks share the steps of a tile, and so need scratch memory that starts with zeros.
const SPLIT: &str = "simt 64x64x16 4x4 s3 g8 p3";

#[test]
fn scratch_memory_is_shared_and_cleared() {
    let device = Device::simulator();
    let workspace = Workspace::new(&device);
    let plans: Vec<_> = [(64, 64, 48), (65, 64, 48)]
        .into_iter()
        .map(|(m, n, k)| Gemm::new(m, n, k).element::<f32>().configuration(SPLIT).plan(&device).unwrap())
        .collect();
    for round in 0..2 {
        for plan in &plans {
            assert!(plan.workspace_bytes() > 0);
            let m = plan.problem().m as usize;
            let a = device.upload(&vec![1.0f32; m * 48]).unwrap();
            let b = device.upload(&vec![0.5f32; 64 * 48]).unwrap();
            let d = device.alloc::<f32>(m * 64).unwrap();
            let arguments = Arguments::new(&a, &b, &d).workspace(&workspace);
            for _ in 0..=round {
                plan.run(&arguments).unwrap();
                assert_eq!(d.to_vec().unwrap(), vec![24.0; m * 64]);
            }
        }
    }
    assert_eq!(workspace.bytes(), plans[1].workspace_bytes());

    let small = Workspace::with_bytes(&device, 16).unwrap();
    let (a, d) = (device.upload(&[1.0f32; 64 * 48]).unwrap(), device.alloc::<f32>(64 * 64).unwrap());
    let arguments = Arguments::new(&a, &a, &d);
    let error = refusal(plans[0].run(&arguments.clone().workspace(&small)));
    assert!(error.starts_with("the workspace: found 16 bytes, expected at least "), "{error}");
    let other = Workspace::new(&Device::simulator());
    let error = refusal(plans[0].run(&arguments.workspace(&other)));
    assert!(error.starts_with("the workspace: found memory of another device"), "{error}");
}

#[test]
fn a_plan_says_what_it_does() {
    let device = Device::simulator();
    let plan = Gemm::new(64, 64, 48).element::<f32>().configuration(SPLIT).plan(&device).unwrap();
    assert_eq!(plan.algorithm().unwrap().to_string(), SPLIT);
    assert_eq!(plan.candidates().len(), 1);
    let text = plan.explain();
    for part in ["64 x 64 x 48", SPLIT, "launch", "in all", "scratch memory", "TFLOP/s"] {
        assert!(text.contains(part), "{part} in:\n{text}");
    }
    let free = Gemm::new(64, 64, 48).element::<f32>().plan(&device).unwrap();
    assert!(free.candidates().len() > 1 && free.explain().contains("or: "), "{}", free.explain());
    let cpu = Gemm::new(64, 64, 48).element::<f32>().plan(&Device::cpu()).unwrap();
    assert!(cpu.algorithm().is_none() && cpu.explain().contains("processor"));
    assert_eq!((cpu.workspace_bytes(), cpu.deterministic()), (0, true));
}

#[test]
fn an_algorithm_runs_where_it_is_told_to() {
    // The CPU executes kernels too, if it must.
    for device in [Device::cpu(), Device::simulator()] {
        let gemm = Gemm::new(20, 30, 40).configuration(SPLIT);
        let (a, b) = (numbers(20 * 40, 1, f32::of), numbers(40 * 30, 2, f32::of));
        let (a, b) = (device.upload(&a).unwrap(), device.upload(&b).unwrap());
        let by_kernel = gemm.run(&device, &a, &b).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(by_kernel, Gemm::new(20, 30, 40).run(&device, &a, &b).unwrap().to_vec::<f32>().unwrap());
    }
}

#[test]
fn threads_may_share_a_plan() {
    let device = Device::simulator();
    let plan = Gemm::new(16, 16, 48).element::<f32>().configuration(SPLIT).plan(&device).unwrap();
    std::thread::scope(|scope| {
        for value in [1.0f32, 2.0, 3.0] {
            let (plan, device) = (&plan, &device);
            scope.spawn(move || {
                let a = device.upload(&[value; 16 * 48]).unwrap();
                let b = device.upload(&[1.0f32; 48 * 16]).unwrap();
                let d = device.alloc::<f32>(16 * 16).unwrap();
                for _ in 0..3 {
                    plan.run(&Arguments::new(&a, &b, &d)).unwrap();
                    assert_eq!(d.to_vec().unwrap(), [48.0 * value; 256]);
                }
            });
        }
    });
}

/// Threads of rayon's take up other tasks while they wait, and a task may want what the one beneath it holds.
#[test]
fn tasks_of_rayon_may_share_a_planner() {
    let (done, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
        for device in [Device::cpu(), Device::simulator()] {
            let planner = Planner::new(&device);
            // Of so many rows that all cores take part, and on the simulator with scratch memory that is shared.
            let rows = if device.kind() == DeviceKind::Cpu { 300 } else { 3 };
            let gemm = |i| Gemm::new(rows + i, 33, 200).epilogue(Epilogue::new().relu());
            let product = |i: usize| {
                let a = device.upload(&vec![1.0f32; (rows + i) * 200]).unwrap();
                let b = device.upload(&vec![0.5f32; 200 * 33]).unwrap();
                let d = device.alloc::<f32>((rows + i) * 33).unwrap();
                planner.run(&gemm(i), &Arguments::new(&a, &b, &d)).unwrap();
                assert_eq!(d.to_vec().unwrap(), vec![100.0; (rows + i) * 33]);
            };
            pool.scope(|scope| {
                (0..40).for_each(|i| scope.spawn(move |_| product(i % 8)));
            });
        }
        done.send(()).unwrap();
    });
    end.recv_timeout(std::time::Duration::from_secs(120)).expect("the tasks wait for each other");
}

#[test]
fn a_second_run_looks_at_names_and_types_again() {
    for device in available() {
        let epilogue = Epilogue::new().scale_columns("s", Element::F32).bias_per_column("t", Element::F32);
        let plan = Gemm::new(2, 2, 1).element::<f32>().epilogue(epilogue).plan(&device).unwrap();
        let (a, b) = (device.upload(&[3.0f32; 2]).unwrap(), device.upload(&[1.0f32; 2]).unwrap());
        let (p, q) = (device.upload(&[2.0f32; 2]).unwrap(), device.upload(&[10.0f32; 2]).unwrap());
        let d = device.alloc::<f32>(4).unwrap();
        let base = || Arguments::new(&a, &b, &d);
        for _ in 0..2 {
            plan.run(&base().extra("s", &p).extra("t", &q)).unwrap();
            assert_eq!(d.to_vec().unwrap(), [16.0; 4], "{}", device.name());
            plan.run(&base().extra("t", &p).extra("s", &q)).unwrap();
            assert_eq!(d.to_vec().unwrap(), [32.0; 4], "{}", device.name());
            plan.run(&base().extra("s", &q).extra("t", &p)).unwrap();
            assert_eq!(d.to_vec().unwrap(), [32.0; 4], "{}", device.name());
            plan.run(&base().extra("t", &q).extra("s", &q)).unwrap();
            assert_eq!(d.to_vec().unwrap(), [40.0; 4], "{}", device.name());
        }
        let error = refusal(plan.run(&base().extra("scale", &p).extra("t", &q)));
        assert!(error.starts_with("operand `s`: found nothing"), "{error}");
        let whole = DynBuffer::from(&p).reinterpreted(Element::I32);
        let error = refusal(plan.run(&base().extra("s", &whole).extra("t", &q)));
        assert!(error.starts_with("operand `s`: found a buffer of i32, expected a buffer of f32"), "{error}");
        let whole = DynBuffer::from(&a).reinterpreted(Element::I32);
        let error = refusal(plan.run(&Arguments::new(&whole, &b, &d).extra("s", &p).extra("t", &q)));
        assert!(error.starts_with("A: found a buffer of i32"), "{error}");
    }
}

#[test]
fn a_fixed_workspace_enters_the_choice() {
    let device = Device::simulator();
    let gemm = Gemm::new(32, 64, 1024).element::<f32>();
    // Left alone, it would take more.
    assert!(gemm.plan(&device).unwrap().workspace_bytes() > 1024);
    let (a, b) = (device.upload(&[1.0f32; 32 * 1024]).unwrap(), device.upload(&[1.0f32; 64 * 1024]).unwrap());
    for bytes in [0, 1024] {
        let workspace = Workspace::with_bytes(&device, bytes).unwrap();
        let planner = Planner::new(&device).with_workspace(&workspace);
        let plan = planner.plan(&gemm).unwrap();
        assert!(plan.workspace_bytes() <= bytes as u64);
        let d = device.alloc::<f32>(32 * 64).unwrap();
        planner.run(&gemm, &Arguments::new(&a, &b, &d)).unwrap();
        assert_eq!(d.to_vec().unwrap(), [1024.0; 32 * 64]);
        // What was measured to be best for the class takes too much; what the caller insists on is an error.
        let greedy = gemm.plan(&device).unwrap().algorithm().unwrap();
        planner.prefer(&gemm, greedy).unwrap();
        planner.run(&gemm, &Arguments::new(&a, &b, &d)).unwrap();
        let error = planner.run(&gemm.clone().algorithm(greedy), &Arguments::new(&a, &b, &d));
        assert!(
            refusal(error).starts_with(&format!("the workspace: found {bytes} bytes, expected at least "))
        );
    }
    let growing = Planner::new(&device).with_workspace(&Workspace::new(&device));
    assert!(growing.plan(&gemm).unwrap().workspace_bytes() > 1024);
}

/// More tiles in a group than there are tiles, up to the largest number: as many as there are.
#[test]
fn groups_may_be_larger_than_everything() {
    let device = Device::cpu();
    for (n, configuration) in [
        (64, "ampere 32x32x32 w1x1 i16 s3 g2147483648 p1"),
        (96, "ampere 32x32x32 w1x1 i16 s3 g1431655766 p1"),
        (96, "hopper 64x32x64B c1x1 s2 coop1 m65536"),
        (96, "hopper 64x32x64B c1x1 s2 coop1 n65536"),
    ] {
        let (a, b) = (device.upload(&[bf16::ONE; 64 * 32]).unwrap(), device.upload(&vec![bf16::ONE; 32 * n]));
        let gemm = Gemm::new(64, n, 32).b(Storage::ColumnMajor).configuration(configuration);
        let d = gemm.run(&device, &a, &b.unwrap()).unwrap();
        assert!(d.to_vec::<bf16>().unwrap().iter().all(|d| d.to_f32() == 32.0), "{configuration}");
    }
}

/// A grid has room for so many blocks: what needs more is refused, not cut off.
#[test]
fn more_blocks_than_a_grid_has_are_refused() {
    let device = Device::simulator();
    let gemm = Gemm::new(1, 16, 8).b(Storage::ColumnMajor).element::<bf16>().batch(1 << 30);
    let gemm = gemm.configuration("hopper 64x16x32B c2x1 s2 coop1 m1 once");
    let error = refusal(gemm.plan(&device));
    assert!(error.contains("2147483648 blocks, and a grid has 2147483647 at most"), "{error}");
}

/// What was planned with other scratch memory is planned again.
#[test]
fn planners_with_less_workspace_plan_again() {
    let device = Device::simulator();
    let gemm = Gemm::new(32, 64, 4096).element::<f32>();
    let planner = Planner::new(&device);
    assert!(planner.plan(&gemm).unwrap().workspace_bytes() > 0);
    let planner = planner.with_workspace(&Workspace::with_bytes(&device, 0).unwrap());
    assert_eq!(planner.plan(&gemm).unwrap().workspace_bytes(), 0);
}
