//! Machines without a driver, without a device, with an old driver: error values with a remedy, never a panic.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use tilewright_cuda::{Context, CudaError, Driver};
use tilewright_fake_driver::{Fake, Inspector};

use crate::steps::STEPS;
use crate::{clean, under};

/// Set in a process that runs the steps and says how they went, one on each line.
const REPORT: &str = "TILEWRIGHT_RUNTIME_REPORT";

/// Runs one of these tests again with the variable set.
fn again(test: &str, prepare: impl FnOnce(&mut Command) -> tempfile::TempDir) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(REPORT, "1");
    let _folder = prepare(&mut command);
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {out}\n{err}", output.status);
    output
}

fn inside() -> bool {
    std::env::var_os(REPORT).is_some()
}

#[test]
fn no_driver() {
    if !inside() {
        // A library of that name that is none comes before whatever the machine has.
        again("absent::no_driver", |command| {
            let folder = tempfile::tempdir().unwrap();
            for name in ["cuda", "nvcuda"] {
                for file in cudarc_names(name) {
                    std::fs::write(folder.path().join(file), "no library").unwrap();
                }
            }
            command.env("LD_LIBRARY_PATH", folder.path());
            folder
        });
        return;
    }
    let expected = CudaError::NoDriver { library: "libcuda.so.1" };
    assert_eq!(
        expected.to_string(),
        "no NVIDIA driver: the library `libcuda.so.1` was not found or cannot be loaded"
    );
    assert_eq!(expected.remedy(), "install the NVIDIA driver, or go on without: work runs on the CPU");
    assert_eq!(Driver::load().map(drop), Err(expected.clone()));
    assert_eq!(Driver::installed_version().map(drop), Err(expected.clone()));
    assert_eq!(Context::new(0).map(drop), Err(expected.clone()));
    for (name, step) in STEPS {
        assert_eq!(step(), Err(expected.clone()), "{name}");
    }
}

/// The names that the driver is looked for by.
fn cudarc_names(name: &str) -> Vec<String> {
    tilewright_cuda::cudarc::get_lib_name_candidates(name)
}

#[test]
fn no_device() {
    under(&Fake::new().devices(0), |driver| {
        let error = Driver::load().unwrap_err();
        assert_eq!(
            error.to_string(),
            "cuInit failed: CUDA_ERROR_NO_DEVICE (100), no CUDA-capable device is detected"
        );
        assert_eq!(
            error.remedy(),
            "no GPU is visible; check CUDA_VISIBLE_DEVICES, the container's GPU option and `nvidia-smi`"
        );
        assert_eq!(Driver::installed_version().unwrap().to_string(), "13.0", "known all the same");
        for (name, step) in STEPS {
            assert_eq!(step(), Err(error.clone()), "{name}");
        }
        clean(driver);
    });
}

#[test]
fn a_driver_that_does_not_start() {
    under(&Fake::new(), |driver| {
        for code in [3, 34, 100, 803, 999] {
            driver.fail("cuInit", 1, code);
            let error = Context::new(0).map(drop).unwrap_err();
            assert_eq!(error.code(), Some(code));
            assert!(error.to_string().starts_with("cuInit failed: CUDA_ERROR_"), "{error}");
            assert!(!error.remedy().is_empty() && !error.is_sticky());
        }
        drop(Context::new(0).unwrap());
        clean(driver);
    });
}

#[test]
fn numbers_of_devices() {
    under(&Fake::new().devices(1), |driver| {
        let loaded = Driver::load().unwrap();
        assert_eq!(loaded.device_count(), Ok(1));
        for ordinal in [1, 2, u32::MAX] {
            let expected = CudaError::NoDevice { ordinal, count: 1 };
            assert_eq!(Context::new(ordinal).map(drop), Err(expected.clone()));
            assert_eq!(loaded.device(ordinal).map(drop), Err(expected.clone()));
            assert_eq!(
                expected.to_string(),
                format!("no device {ordinal}: found 1 device, expected a number below that")
            );
            assert_eq!(expected.remedy(), "check CUDA_VISIBLE_DEVICES and `nvidia-smi`");
        }
        clean(driver);
    });
}

/// Whether a step goes on without a function: it names or cleans up. What cannot be cleaned up stays until the process ends.
fn can_do_without(function: &str, step: &str) -> bool {
    let ends = ["Destroy", "Free", "Release", "Unload", "cuGetError", "cuDeviceGetUuid"];
    ends.iter().any(|end| function.contains(end))
        || match function {
            // To unload a module, what was launched of it must be over.
            "cuCtxSynchronize" => step != "streams",
            // To free memory that was allocated at once, or to let go of a variable.
            "cuStreamSynchronize" => ["memory at once", "variable"].contains(&step),
            // To free memory of a stream that is being captured, on another.
            "cuStreamWaitEvent" => step == "capture with drops",
            _ => false,
        }
}

/// What a step says when a function is missing.
fn failure(function: &str, step: &str) -> String {
    match (function, step) {
        (function, step) if can_do_without(function, step) => "done".to_owned(),
        // Before CUDA 12.4 the driver cannot say what is in a cubin.
        ("cuModuleGetFunctionCount" | "cuModuleEnumerateFunctions" | "cuFuncGetName", "cubin") => {
            "other: the signature of a kernel in a cubin: found nothing known of `idle`, expected signatures \
             (`Code::with_signatures`), or a driver of CUDA 12.4, which knows the sizes"
                .to_owned()
        }
        (function, _) => format!("lacks {function}"),
    }
}

#[test]
fn an_old_driver_fails_where_it_must() {
    const TEST: &str = "absent::an_old_driver_fails_where_it_must";
    if inside() {
        let driver = Inspector::attach().unwrap();
        for (name, step) in STEPS {
            driver.reset();
            // A thread of its own, so that no context is current.
            let outcome = match std::thread::spawn(step).join().unwrap() {
                Ok(()) => "done".to_owned(),
                Err(CudaError::MissingSymbol { symbol }) => format!("lacks {symbol}"),
                Err(CudaError::Launch { cause, .. }) => match *cause {
                    CudaError::MissingSymbol { symbol } => format!("lacks {symbol}"),
                    other => format!("other: {other}"),
                },
                Err(other) => format!("other: {other}"),
            };
            let calls: Vec<String> = driver.all_calls().into_keys().collect();
            println!("\nSTEP|{name}|{outcome}|{}", calls.join(" "));
        }
        return;
    }
    let run = |missing: &[&'static str]| -> BTreeMap<String, (String, BTreeSet<String>)> {
        let output = again(TEST, |command| Fake::new().without(missing).prepare(command).unwrap());
        let text = String::from_utf8(output.stdout).unwrap();
        let steps = text.lines().filter_map(|line| line.strip_prefix("STEP|"));
        let steps = steps.map(|line| line.split('|').map(str::to_owned).collect::<Vec<_>>());
        steps
            .map(|parts| {
                let [name, outcome, calls] = <[String; 3]>::try_from(parts).unwrap();
                (name, (outcome, calls.split(' ').map(str::to_owned).collect()))
            })
            .collect()
    };
    let new = run(&[]);
    assert_eq!(new.len(), STEPS.len());
    assert!(new.values().all(|(outcome, _)| outcome == "done"), "{new:?}");
    let functions: BTreeSet<&String> = new.values().flat_map(|(_, calls)| calls).collect();
    let mut wrong = Vec::new();
    for function in functions {
        // The names live as long as the process, as those of a test's source would.
        let hidden: &'static str = function.clone().leak();
        for (name, (outcome, _)) in run(&[hidden]) {
            let expected =
                if new[&name].1.contains(hidden) { failure(hidden, &name) } else { "done".to_owned() };
            if outcome != expected {
                wrong.push(format!("without {hidden}: {name} is `{outcome}`, expected `{expected}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let missing = CudaError::MissingSymbol { symbol: "cuLaunchKernelEx" };
    assert_eq!(missing.to_string(), "the NVIDIA driver has no function `cuLaunchKernelEx`");
    assert!(missing.remedy().starts_with("update the driver"));
}
