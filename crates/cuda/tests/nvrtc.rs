//! CUDA C++ through NVRTC. Ignored, visibly, where the library is missing; `TILEWRIGHT_REQUIRE_NVRTC=1` makes that a failure. No GPU is
//! needed: compiling is not running. What needs one is in the test `gpu`.

use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use tilewright_cuda::{Access, CudaError, CudaSource, ParameterKind, PointerSpace, nvrtc_version};

const SCALE: &str = r#"
#include "factor.h"
template <class T> __global__ void scale(T* x, const T* by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by[i] * FACTOR;
}
"#;

fn main() {
    let required = std::env::var_os("TILEWRIGHT_REQUIRE_NVRTC").is_some_and(|value| value == "1");
    let ignored = nvrtc_version().is_err() && !required;
    let trials = vec![
        Trial::test("a_template_is_compiled", a_template_is_compiled).with_ignored_flag(ignored),
        Trial::test("mistakes_come_with_the_log", mistakes_come_with_the_log).with_ignored_flag(ignored),
        Trial::test("without_the_library_it_says_so", without_the_library_it_says_so),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn ensure(condition: bool, what: impl std::fmt::Display) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(what.to_string().into()) }
}

fn a_template_is_compiled() -> Result<(), Failed> {
    let source = CudaSource::new("scale.cu", SCALE)
        .header("factor.h", "#define FACTOR 2")
        .kernel("scale<float>")
        .kernel("scale<double>");
    let compiled = source.compile("compute_80")?;
    let name = compiled.lowered_name("scale<float>").ok_or("no name")?;
    ensure(compiled.lowered_name("scale<half>").is_none(), "a name that was not asked for")?;
    let signatures = compiled.signatures()?;
    let scale = signatures.iter().find(|kernel| kernel.name == name).ok_or("no such kernel")?;
    let [x, by, n] = &scale.parameters[..] else { return Err(scale.to_string().into()) };
    ensure(x.kind == ParameterKind::Pointer(PointerSpace::Global) && x.access == Access::ReadWrite, x)?;
    ensure(by.access == Access::Read, by)?;
    ensure(matches!(n.kind, ParameterKind::Scalar(_)) && n.bytes == 4, n)
}

fn mistakes_come_with_the_log() -> Result<(), Failed> {
    let error = match CudaSource::new("wrong.cu", "__global__ void f(int* x) { x = missing; }")
        .compile("compute_80")
    {
        Err(error @ CudaError::Nvrtc { .. }) => error.to_string(),
        other => return Err(format!("{other:?}").into()),
    };
    ensure(error.contains("wrong.cu(1): error: identifier \"missing\" is undefined"), &error)?;
    let error =
        CudaSource::new("a.cu", "").compile("compute_1").map(|_| ()).err().ok_or("accepted")?.to_string();
    ensure(error.starts_with("nvrtcCompileProgram failed: NVRTC_ERROR_INVALID_OPTION (5)"), &error)?;
    let error = CudaSource::new("a.cu", "a\0b")
        .compile("compute_80")
        .map(|_| ())
        .err()
        .ok_or("accepted")?
        .to_string();
    ensure(error.contains("a zero byte inside of it"), error)
}

/// The library is looked for once a process, so another one is told to look elsewhere.
fn without_the_library_it_says_so() -> Result<(), Failed> {
    const CHILD: &str = "TILEWRIGHT_TEST_NO_NVRTC";
    if std::env::var_os(CHILD).is_none() {
        let output = Command::new(std::env::current_exe()?)
            .args(["--exact", "without_the_library_it_says_so"])
            .env(CHILD, "1")
            .env("TILEWRIGHT_NVRTC", "/nowhere/libnvrtc.so")
            .output()?;
        return ensure(output.status.success(), String::from_utf8_lossy(&output.stdout));
    }
    let error = nvrtc_version().err().ok_or("found")?;
    ensure(error.to_string().ends_with("compiles CUDA C++: tried /nowhere/libnvrtc.so"), &error)?;
    ensure(error.remedy().contains("TILEWRIGHT_NVRTC"), error.remedy())
}
