//! The kernels of the registry on a device, and a broken one that the simulator must find out.

use std::time::Instant;

use half::bf16;
use tilewright::device::{Argument, Device, DeviceError, DeviceKind, Dim3, Kernel, Report};
use tilewright::kernels::find;
use tilewright::sim::FindingKind;

use super::Step;

/// The report, how many values were compared, and whether all were right.
type Outcome = Result<(Report, u64, bool), Box<dyn std::error::Error>>;
type Run = fn(&Device) -> Outcome;

/// The kernels that the device can run, one after the other: each must be clean and every element right.
pub(super) fn step(device: &Device) -> Step {
    let runs: [(&'static str, Run); 6] = [
        ("vector_add", vector_add),
        ("transpose", transpose),
        ("block_sum", |device| sum(device, "block_sum", 3)),
        ("cluster_sum", |device| sum(device, "cluster_sum", 8)),
        ("gemm_ampere", gemm_ampere),
        ("gemm_hopper", gemm_hopper),
    ];
    let able = |name: &str| find(name).is_some_and(|entry| device.arch().supports(entry.needs));
    let runs: Vec<(&str, Run)> = runs.into_iter().filter(|(name, _)| able(name)).collect();
    let simulated = device.kind() == DeviceKind::Simulator;
    let place = if simulated { "in the simulator".to_owned() } else { format!("on {}", device.name()) };
    let what = format!("{} example kernels {place}", runs.len());
    let (start, mut instructions, mut compared) = (Instant::now(), 0, 0);
    for (name, run) in runs {
        let wrong = match run(device) {
            Ok((report, count, right)) => {
                compared += count;
                instructions += report.simulation().map_or(0, |run| run.thread_instructions);
                match (report.findings().first(), right) {
                    (Some(finding), _) => finding.to_string(),
                    (None, false) => "the result is wrong".to_owned(),
                    (None, true) => continue,
                }
            }
            Err(error) => error.to_string(),
        };
        return Step { what, result: format!("{name}: {wrong}"), compared, ok: false };
    }
    let milliseconds = start.elapsed().as_secs_f64() * 1e3;
    let result = if simulated {
        format!("{instructions} thread instructions in {milliseconds:.0} ms, no findings")
    } else {
        format!("compiled, loaded, run and compared in {milliseconds:.0} ms")
    };
    Step { what, result, compared, ok: true }
}

fn staged(name: &str) -> Result<tilewright::lang::Kernel, Box<dyn std::error::Error>> {
    let entry = find(name).ok_or_else(|| format!("no kernel is named `{name}`"))?;
    Ok((entry.stage)()?)
}

fn kernel(device: &Device, name: &str) -> Result<Kernel, Box<dyn std::error::Error>> {
    Ok(device.compile(&staged(name)?)?)
}

/// Whole numbers from -8 to 8, so that all sums below are exact.
fn numbers(len: u16, factor: u32) -> Vec<f32> {
    (0..len).map(|i| f32::from(u8::try_from(u32::from(i) * factor % 17).unwrap_or(0)) - 8.0).collect()
}

fn vector_add(device: &Device) -> Outcome {
    let (x, y) = (numbers(1000, 3), numbers(1000, 5));
    let out = device.alloc::<f32>(1000)?;
    let arguments: [&dyn Argument; 4] = [&device.upload(&x)?, &device.upload(&y)?, &out, &1000_u32];
    let report = kernel(device, "vector_add")?.launch(4, &arguments)?;
    let right = out.to_vec()?.iter().zip(x.iter().zip(&y)).all(|(sum, (x, y))| *sum == x + y);
    Ok((report, 1000, right))
}

fn transpose(device: &Device) -> Outcome {
    let (rows, columns) = (50, 70);
    let x: Vec<f32> = (0..3500_u16).map(f32::from).collect();
    let out = device.alloc::<f32>(x.len())?;
    let arguments: [&dyn Argument; 4] = [&device.upload(&x)?, &out, &50_u32, &70_u32];
    let report = kernel(device, "transpose")?.launch((3, 2), &arguments)?;
    let found = out.to_vec()?;
    let right = (0..rows * columns).all(|i| found[i] == x[i % rows * columns + i / rows]);
    Ok((report, 3500, right))
}

fn sum(device: &Device, name: &str, blocks: u32) -> Outcome {
    let x = numbers(10_001, 3);
    let out = device.upload(&[0.0_f32])?;
    let report = kernel(device, name)?.launch(blocks, &[&device.upload(&x)?, &out, &10_001_u32])?;
    Ok((report, 1, out.to_vec()? == [x.iter().sum::<f32>()]))
}

/// A product of 128 rows and 256 columns.
struct Product {
    depth: usize,
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Product {
    fn new(depth: u16) -> Product {
        Product { depth: depth.into(), a: numbers(128 * depth, 5), b: numbers(256 * depth, 3) }
    }

    fn operands(&self) -> [Vec<bf16>; 2] {
        [&self.a, &self.b].map(|values| values.iter().map(|&value| bf16::from_f32(value)).collect())
    }

    /// Against plain sums, rounded once.
    fn is(&self, found: &[bf16]) -> bool {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        let rows = self.a.chunks(self.depth);
        let mut expected = rows.flat_map(|a| self.b.chunks(self.depth).map(move |b| dot(a, b)));
        found.iter().all(|value| expected.next().map(bf16::from_f32) == Some(*value))
    }
}

const ELEMENTS: usize = 128 * 256;

fn gemm_ampere(device: &Device) -> Outcome {
    let product = Product::new(96);
    let ([a, b], c) = (product.operands(), device.alloc::<bf16>(ELEMENTS)?);
    let arguments: [&dyn Argument; 5] = [&device.upload(&a)?, &device.upload(&b)?, &c, &256_u32, &96_u32];
    let report = kernel(device, "gemm_ampere")?.launch((2, 1), &arguments)?;
    Ok((report, ELEMENTS as u64, product.is(&c.to_vec()?)))
}

fn gemm_hopper(device: &Device) -> Outcome {
    let product = Product::new(192);
    let ([a, b], c) = (product.operands(), device.alloc::<bf16>(ELEMENTS)?);
    let (a, b) = (device.upload(&a)?, device.upload(&b)?);
    let staged = staged("gemm_hopper")?;
    let map = |name: &str, buffer, dims: [u64; 2]| {
        let spec = staged.tensor_map(name).ok_or_else(|| format!("`{name}` is no tensor map"))?;
        Ok::<_, Box<dyn std::error::Error>>(device.tensor_map(spec, buffer, &dims)?)
    };
    let (a, b, c_map) = (map("a", &a, [192, 128])?, map("b", &b, [192, 256])?, map("c", &c, [256, 128])?);
    let report = device.compile(&staged)?.launch(1, &[&a, &b, &c_map, &3_u32])?;
    Ok((report, ELEMENTS as u64, product.is(&c.to_vec()?)))
}

/// Warps exchange words of shared memory; with the barrier between the two that is right, without it a race.
fn exchange(barrier: &str) -> Result<Report, DeviceError> {
    let text = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry exchange(.param .u64 out)\n{{\n\
         .shared .align 4 .b8 tile[256];\n.reg .b32 %r<7>;\n.reg .b64 %rd<4>;\n\
         mov.u32 %r1, %tid.x;\nmov.u32 %r2, tile;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\n\
         st.shared.u32 [%r4], %r1;\n{barrier}\nxor.b32 %r5, %r3, 128;\nadd.s32 %r5, %r2, %r5;\n\
         ld.shared.u32 %r6, [%r5];\nld.param.u64 %rd1, [out];\nmul.wide.u32 %rd2, %r1, 4;\n\
         add.s64 %rd3, %rd1, %rd2;\nst.global.u32 [%rd3], %r6;\nret;\n}}\n"
    );
    let device = Device::simulator();
    let out = device.alloc::<u32>(64)?;
    device.load(&text)?.kernel("exchange")?.with_block(Dim3([64, 1, 1])).launch(1, &[&out])
}

/// A checker that never finds anything would pass all steps above.
pub(super) fn race() -> Step {
    let what = "a missing barrier, simulated".to_owned();
    let (with, without) = match (exchange("bar.sync 0;"), exchange("")) {
        (Ok(with), Ok(without)) => (with, without),
        (Err(error), _) | (_, Err(error)) => {
            return Step { what, result: error.to_string(), compared: 0, ok: false };
        }
    };
    let found = without.findings().iter().find(|finding| finding.kind == FindingKind::Race);
    let ok = with.findings().is_empty() && found.is_some();
    let result = found.map_or("not found".to_owned(), |found| {
        let second = found.second.as_ref().map_or("", |place| &place.instruction);
        format!("race between `{}` and `{second}`", found.first.instruction)
    });
    Step { what, result, compared: 2, ok }
}
