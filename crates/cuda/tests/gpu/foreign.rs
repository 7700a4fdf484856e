//! Other compilers' code: Triton's PTX with its extra parameters, CUDA C++ through NVRTC.

use libtest_mimic::{Failed, Trial};
use tilewright_cuda::{Access, Context, LaunchConfig};

use crate::ensure;
use crate::launch::load;

/// One block a row of at most 256 columns; compiled by Triton 3.9, which adds two pointers to scratch memory that the code never reads.
const SOFTMAX: &str = include_str!("../../../sim/tests/corpus/ptx/triton_softmax_sm80.ptx");

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("foreign::triton_parameters_can_be_left_out", triton_parameters_can_be_left_out),
        #[cfg(feature = "nvrtc")]
        Trial::test("foreign::cuda_cpp_is_compiled_once", nvrtc::cuda_cpp_is_compiled_once),
    ]
}

fn triton_parameters_can_be_left_out() -> Result<(), Failed> {
    let context = Context::new(0)?;
    let stream = context.stream()?;
    let module = load(&context, SOFTMAX)?;
    let softmax = module.kernel("softmax")?;
    let access: Vec<Access> =
        softmax.signature().parameters.iter().map(|parameter| parameter.access).collect();
    ensure(
        access == [Access::Read, Access::Write, Access::Read, Access::Unused, Access::Unused],
        format!("{access:?}"),
    )?;
    let (rows, columns) = (5u32, 200u32);
    let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 37 % 101) as f32) * 0.05).collect();
    let input = stream.upload(&x)?;
    let mut output = stream.alloc::<f32>(x.len())?;
    stream.fill(&mut output, f32::NAN)?;
    let config = LaunchConfig::grid(rows).shared(1024);
    softmax.launch(&stream, &config, (&input, &mut output, columns))?;
    let output = stream.download(&output)?;
    for (row, out) in x.chunks(columns as usize).zip(output.chunks(columns as usize)) {
        let sum: f64 = row.iter().map(|value| f64::from(*value).exp()).sum();
        let close =
            row.iter().zip(out).all(|(x, y)| (f64::from(*x).exp() / sum - f64::from(*y)).abs() < 1e-6);
        ensure(close, "not a softmax")?;
    }
    // Too few is too few all the same.
    let error = softmax.launch(&stream, &config, (&input,)).err().ok_or("accepted")?;
    ensure(error.to_string().contains("was given 1 arguments, expected 3"), error)
}

#[cfg(feature = "nvrtc")]
mod nvrtc {
    use super::{Context, Failed, LaunchConfig, ensure};
    use tilewright_cuda::{CudaSource, DiskCache, Origin};

    #[allow(unsafe_code)]
    pub(super) fn cuda_cpp_is_compiled_once() -> Result<(), Failed> {
        let context = Context::new(0)?;
        let stream = context.stream()?;
        let text = "template <class T> __global__ void scale(T* x, T by, int n) {
            int i = blockIdx.x * blockDim.x + threadIdx.x;
            if (i < n) x[i] *= by;
        }";
        let source = CudaSource::new("scale.cu", text).kernel("scale<float>").kernel("scale<int>");
        let _alone = crate::CACHE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let folder = tempfile::tempdir()?;
        context.set_cache(DiskCache::at(folder.path().join("cache")));
        // SAFETY: the kernel touches x below n only.
        let load = || unsafe { context.load_cuda(&source) };
        let (first, second) = (load(), load());
        let stats = context.cache().stats();
        context.set_cache(DiskCache::off());
        let (first, second) = (first?, second?);
        ensure(
            matches!(first.origin(), Origin::Compiled(_)) && second.origin() == Origin::Disk,
            "not cached",
        )?;
        // The PTX and the cubin, both found the second time.
        ensure(stats.hits == 2, format!("{stats:?}"))?;
        let mut x = stream.upload(&[1.0f32, 2.0, 3.0])?;
        second.kernel("scale<float>")?.launch(&stream, &LaunchConfig::new(1, 32), (&mut x, 4.0f32, 3i32))?;
        ensure(stream.download(&x)? == [4.0, 8.0, 12.0], "wrong result")?;
        let error = second.kernel("scale<double>").map(|_| ()).err().ok_or("found")?;
        ensure(error.to_string().starts_with("no kernel `scale<double>`: found _Z"), error)
    }
}
