//! Whether machine code from the driver's linker, which can be kept on disk, runs as fast as what the driver compiles as a whole.
#![allow(unsafe_code)]

use half::bf16;
use tilewright_compiler::Compiler;
use tilewright_cuda::{Code, ComputeCapability, Context, Kernel, LaunchConfig, TensorMap};
use tilewright_hardware::Arch;
use tilewright_kernels::find;

use crate::measure::{Bar, Entry, MICROSECONDS, Outcome, Settings, by_turns, times};

/// The extents of the product, all the same.
const SIZE: u32 = 4096;
/// Launches between two events.
const LAUNCHES: u32 = 10;

pub(crate) fn run(context: &Context, settings: &Settings) -> Outcome<Vec<Entry>> {
    if context.device().compute_capability != (ComputeCapability { major: 9, minor: 0 }) {
        return Ok(Vec::new());
    }
    let staged = (find("gemm_hopper").ok_or("the registry has no such kernel")?.stage)()?;
    let code = Compiler::new(Arch::SM_90A).compile(staged.func())?.code;
    let load = |code: Code<'_>, entry: &str| -> Outcome<Kernel> {
        // SAFETY: the kernel touches the tensors of its maps only.
        Ok(unsafe { context.load(&code.without_cache()) }?.kernel(entry)?)
    };
    let linked = load(Code::ptx(&code.text), &code.entry)?;
    let whole = load(Code::ptx(&code.text).as_a_whole(), &code.entry)?;

    let stream = context.stream()?;
    let size = SIZE as usize;
    let mut state = 1u32;
    let values: Vec<bf16> = (0..size * size)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bf16::from_f32((state >> 8) as f32 / 8_388_608.0 - 1.0)
        })
        .collect();
    let (a, b) = (stream.upload(&values)?, stream.upload(&values)?);
    let mut c = stream.alloc_zeroed::<bf16>(size * size)?;
    let dims = [u64::from(SIZE); 2];
    let spec = |name: &str| staged.tensor_map(name).ok_or_else(|| format!("`{name}` is no tensor map"));
    let (on_a, on_b) = (TensorMap::new(spec("a")?, &a, &dims)?, TensorMap::new(spec("b")?, &b, &dims)?);
    let on_c = TensorMap::new(spec("c")?, &c, &dims)?.writable(&mut c)?;
    let config = LaunchConfig::grid((SIZE / 256, SIZE / 128)).shared(code.shared.dynamic);
    let (start, end) = (context.event()?, context.event()?);
    let time = |kernel: &Kernel| -> Outcome<f64> {
        start.record(&stream)?;
        for _ in 0..LAUNCHES {
            kernel.launch(&stream, &config, (&on_a, &on_b, &on_c, SIZE / 64))?;
        }
        end.record(&stream)?;
        end.synchronize()?;
        Ok(end.since(&start)?.as_secs_f64() / f64::from(LAUNCHES))
    };
    let run = by_turns(settings.choose(40, 5), || time(&linked), || time(&whole))?;
    Ok(vec![times("run: gemm_hopper 4096, linked code against whole", MICROSECONDS, run, Bar::None)])
}
