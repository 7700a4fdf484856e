//! Faults and who is suspected, failures in every call, and what the messages say.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tilewright_cuda::{Code, Context, CudaError, LaunchConfig, StreamOptions};
use tilewright_fake_driver::Fake;

use crate::steps::STEPS;
use crate::{clean, context, kernel, load, one, under};

#[test]
fn a_fault_names_its_suspects() {
    under(&Fake::new(), |driver| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let [crash, idle, poke] = ["crash", "idle", "poke"].map(|name| kernel(&context, name));
        let mut memory = a.alloc_zeroed::<u32>(4).unwrap();
        // Known to have ended well.
        idle.launch(&a, &one(), ()).unwrap();
        a.synchronize().unwrap();
        poke.launch(&b, &LaunchConfig::new(2, 64), (&mut memory, 1u32, 4u32)).unwrap();
        crash.launch(&a, &LaunchConfig::new((3, 2), 32), ()).unwrap();
        let error = a.synchronize().unwrap_err();
        let CudaError::Fault(fault) = &error else { panic!("{error}") };
        assert_eq!((fault.code, fault.call, fault.forgotten), (700, "cuStreamSynchronize", 0));
        assert_eq!(
            error.to_string(),
            format!(
                "an earlier operation failed, cuStreamSynchronize heard of it: CUDA_ERROR_ILLEGAL_ADDRESS (700), an illegal \
                 memory access was encountered; 2 launches were pending, the latest: `crash` (3x2x1 blocks of 32x1x1, stream {}), \
                 `poke` (2x1x1 blocks of 64x1x1, stream {})",
                a.id(),
                b.id()
            )
        );
        assert!(error.remedy().contains("compute-sanitizer"));
        assert_eq!(context.fault().as_ref(), Some(fault));
        // Everything says so from now on.
        let after = [
            a.synchronize(),
            b.is_idle().map(drop),
            b.fill(&mut memory, 1),
            a.fill(&mut memory, 1),
            b.download(&memory).map(drop),
            a.upload(&[1u32]).map(drop),
            context.alloc::<u32>(1).map(drop),
            context.stream().map(drop),
            context.event().map(drop),
            a.record().map(drop),
            context.synchronize(),
            context.memory().map(drop),
            idle.launch(&a, &one(), ()),
            poke.launch(&b, &one(), (&mut memory, 1u32, 4u32)),
            load(&context).map(drop),
            a.capture(|| Ok::<(), CudaError>(())).map(drop),
            a.host_call(|| {}),
        ];
        for (n, result) in after.into_iter().enumerate() {
            let error = result.unwrap_err();
            assert!(matches!(&error, CudaError::ContextLost { first, .. } if first == fault), "{n}: {error}");
            assert!(error.is_sticky() && error.code() == Some(700), "{n}");
        }
        let lost = a.synchronize().unwrap_err().to_string();
        let begin = "cuStreamSynchronize: the context of this process is lost since an earlier fault; the fault was: an earlier";
        assert!(lost.starts_with(begin), "{lost}");
        // The other device is not concerned, and dropping is quiet.
        let other = crate::context_of(1).stream().unwrap();
        assert_eq!(other.download(&other.upload(&[1u32]).unwrap()).unwrap(), [1]);
        drop((memory, a, b, crash, idle, poke, other, context));
        assert_eq!(driver.live()["contexts"], 0);
        assert_eq!(driver.faults().len(), 1);
    });
}

#[test]
fn launches_of_streams_that_are_gone_are_suspects_too() {
    under(&Fake::new(), |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let number = stream.id();
        let [crash, idle] = ["crash", "idle"].map(|name| kernel(&context, name));
        idle.launch(&stream, &one(), ()).unwrap();
        crash.launch(&stream, &one(), ()).unwrap();
        drop(stream);
        let error = context.synchronize().unwrap_err();
        let CudaError::Fault(fault) = &error else { panic!("{error}") };
        let suspects: Vec<(&str, u64)> =
            fault.launches.iter().map(|launch| (&*launch.kernel, launch.stream)).collect();
        assert_eq!(suspects, [("idle", number), ("crash", number)]);
    });
}

#[test]
fn kernels_of_graphs_are_suspects_too() {
    under(&Fake::new(), |_| {
        let context = context();
        let (a, b) = (context.stream().unwrap(), context.stream().unwrap());
        let crash = kernel(&context, "crash");
        let graph = a.capture(|| crash.launch(&a, &one(), ())).unwrap();
        let exec = graph.instantiate().unwrap();
        context.synchronize().unwrap();
        exec.launch(&b).unwrap();
        let error = b.synchronize().unwrap_err();
        let CudaError::Fault(fault) = &error else { panic!("{error}") };
        assert!(!fault.launches.is_empty(), "{error}");
    });
}

#[test]
fn a_fault_remembers_the_latest_launches() {
    under(&Fake::new(), |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let [crash, idle] = ["crash", "idle"].map(|name| kernel(&context, name));
        crash.launch(&stream, &one(), ()).unwrap();
        for blocks in 1..100 {
            idle.launch(&stream, &LaunchConfig::new(blocks, 1), ()).unwrap();
        }
        let error = context.synchronize().unwrap_err();
        let CudaError::Fault(fault) = &error else { panic!("{error}") };
        assert_eq!((fault.launches.len(), fault.forgotten), (32, 68));
        assert!(error.to_string().contains("; 100 launches were pending, the latest: `idle` (99x1x1 blocks"));
    });
}

/// A failure in any call, with any code, is an error value or goes unnoticed: no panic, nothing used wrongly, and where it was
/// reported nothing is left behind.
#[test]
fn every_call_may_fail() {
    under(&Fake::new().patience(5), |driver| {
        let mut runs = 0;
        for (name, step) in STEPS {
            driver.reset();
            step().unwrap();
            let calls = driver.all_calls();
            for (function, count) in &calls {
                // A context that cannot be released is there until the process ends, and nothing can be told of what follows.
                if function == "cuDevicePrimaryCtxRelease_v2" {
                    continue;
                }
                // What is called again and again fails at the beginning and at the end.
                let times = (1..=*count).filter(|n| *n <= 4 || n + 2 > *count);
                // What may still be written to is kept for ever; where that is a module's variable, so is the context. It comes last.
                let codes: &[u32] = if *name == "variable" { &[1, 2] } else { &[1, 2, 700] };
                for (nth, code) in times.flat_map(|nth| codes.iter().map(move |code| (nth, *code))) {
                    driver.reset();
                    let before = driver.live();
                    driver.fail(function, nth, code);
                    let what = format!("{name}: {function} fails with {code} at call {nth}");
                    let outcome = catch_unwind(AssertUnwindSafe(step));
                    let Ok(outcome) = outcome else { panic!("{what}: panicked") };
                    runs += 1;
                    // With a lost context its memory goes, also from under what other devices do.
                    if code != 700 {
                        assert_eq!(driver.faults(), [""; 0], "{what}");
                    }
                    let after = driver.live();
                    assert!(after["contexts"] == 0 || *name == "variable", "{what}");
                    match outcome {
                        Err(error) => {
                            assert!(!error.to_string().is_empty() && !error.remedy().is_empty());
                            // In a lost context nothing can be freed, nor in the order of a stream whose capture did not end.
                            if code != 700 && function != "cuStreamEndCapture" {
                                assert_eq!(after, before, "{what}: {error}");
                            }
                        }
                        Ok(()) => {
                            let lost: usize = after.iter().map(|(kind, now)| now - before[kind]).sum();
                            assert!(lost <= 3 || code == 700, "{what}: {before:?} {after:?}");
                        }
                    }
                }
            }
        }
        assert!(runs > 1000, "{runs}");
    });
}

#[test]
fn no_room() {
    under(&Fake::new().memory(1 << 20), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let held = stream.alloc::<u8>(1 << 19).unwrap();
        let free = context.memory().unwrap().0;
        let expected = format!("no room for 1048576 bytes: {free} of 1048576 bytes are free on device 0");
        for refused in [
            stream.alloc::<u8>(1 << 20).map(drop),
            stream.alloc_zeroed::<u32>(1 << 18).map(drop),
            stream.upload(&vec![0u64; 1 << 17]).map(drop),
            context.alloc::<u8>(1 << 20).map(drop),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.code(), Some(2));
            assert!(error.remedy().starts_with("free buffers"));
        }
        // More than a number of bytes can say.
        let endless = stream.alloc::<u64>(usize::MAX / 4).unwrap_err();
        assert!(matches!(endless, CudaError::OutOfMemory { bytes: u64::MAX, .. }), "{endless}");
        drop(held);
        // There is room again when that has happened.
        stream.synchronize().unwrap();
        drop(stream.alloc::<u8>(1 << 19).unwrap());
        drop((stream, context));
        clean(driver);
    });
}

#[test]
fn messages() {
    under(&Fake::new(), |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let mut memory = stream.alloc_zeroed::<u32>(4).unwrap();
        let module = load(&context).unwrap();
        let says = |result: Result<(), CudaError>, expected: &str| {
            assert_eq!(result.unwrap_err().to_string(), expected);
        };
        says(
            context.stream_with(&StreamOptions { blocking: false, priority: 1 }).map(drop),
            "the priority of a stream: found 1, expected -5 (greatest) to 0 (least)",
        );
        says(memory.slice(2..5).map(drop), "found the range 2..5, expected one within 0..4");
        says(memory.slice_mut(5..).map(drop), "found the range 5..4, expected one within 0..4");
        says(memory.as_slice().split_at(5).map(drop), "found the range 0..5, expected one within 0..4");
        says(stream.copy(&[1u32; 3][..], &mut memory), "the source of a copy: found 3 elements, expected 4");
        says(
            stream.fill(memory.as_mut_slice().cast::<[u8; 16]>().unwrap(), [0; 16]),
            "the bytes of the value to fill with: found 16 elements, expected 8",
        );
        says(
            module.kernel("none").map(drop),
            "no kernel `none`: found poke, copy_words, crash, idle, kinds, trailing, fixed, clustered",
        );
        says(
            module.kernel("a\0b").map(drop),
            "no kernel `a\0b`: found poke, copy_words, crash, idle, kinds, trailing, fixed, clustered",
        );
        says(
            module.only_kernel().map(drop),
            "no kernel `the only one`: found poke, copy_words, crash, idle, kinds, trailing, fixed, clustered",
        );
        says(
            module.global::<u32>("none").map(drop),
            "variable `none`: found no variable of that name, expected one that the module declares",
        );
        says(
            module.global::<[u8; 3]>("counter").map(drop),
            "variable `counter`: found 16 bytes, expected a multiple of 3 bytes",
        );
    });
}

#[allow(unsafe_code)]
fn refused(context: &Context, code: &Code<'_>) -> CudaError {
    // SAFETY: it is not loaded.
    unsafe { context.load(code) }.unwrap_err()
}

#[test]
fn code_that_cannot_be_loaded() {
    under(&Fake::new(), |driver| {
        let context = context();
        let text = |head: &str| format!("{head}\n.address_size 64\n.visible .entry idle() {{ ret; }}\n");
        let says =
            |code: &Code<'_>, expected: &str| assert_eq!(refused(&context, code).to_string(), expected);
        says(
            &Code::ptx(&text(".version 9.9\n.target sm_90")),
            "the version of the PTX: found 9.9, while the driver of CUDA 13.0 takes up to 9.0, expected PTX for this driver; \
             update the driver, or compile for an older version",
        );
        for target in ["sm_100", "sm_100a", "sm_89a", "sm_103f"] {
            let expected = format!(
                "the target of the PTX: found {target}, on a device that is sm_90, expected code for this device"
            );
            says(&Code::ptx(&text(&format!(".version 9.0\n.target {target}"))), &expected);
        }
        says(
            &Code::cubin(b"text"),
            "a cubin: found 4 bytes that do not begin with the mark of ELF, expected what a compiler made; PTX goes to `Code::ptx`",
        );
        let damaged = refused(&context, &Code::cubin(b"\x7fELF and nothing that this device knows"));
        assert_eq!(damaged.code(), Some(200));
        for garbage in ["", "garbage", ".version 8.0\n.target sm_90\n.visible .entry idle( { ret; }", "\0"] {
            let error = refused(&context, &Code::ptx(garbage));
            assert!(matches!(error, CudaError::Code { what: "PTX", .. }), "{error}");
        }
        let good = text(".version 8.0\n.target sm_90");
        let zero = refused(&context, &Code::ptx(&format!("{good}//\0\n")));
        assert!(matches!(zero, CudaError::Code { what: "PTX", .. }), "{zero}");
        // What only the driver's compiler finds comes with its log.
        driver.fail("cuLinkAddData_v2", 1, 218);
        let error = refused(&context, &Code::ptx(&good));
        assert!(matches!(error, CudaError::Compile { .. }));
        assert!(
            error.to_string().starts_with(
                "the driver did not compile the PTX: cuLinkAddData_v2 failed: CUDA_ERROR_INVALID_PTX (218)"
            ),
            "{error}"
        );
        drop(context);
        clean(driver);
    });
}
