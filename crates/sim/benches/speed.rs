//! How fast the simulator is: thread instructions a second on one core, without and with checks.
//!
//! `cargo bench -p tilewright-sim` prints one row a kernel. The kernels are those of the tests, larger: arithmetic, a stream through global
//! memory, a matrix product through shared memory, and a Hopper matrix product with TMA, mbarriers and wgmma.

use std::path::PathBuf;

use tilewright_hardware::SwizzleMode;
use tilewright_ptx::Type;
use tilewright_sim::{Arg, Launch, Module, Options, Report, SimError, Simulator, TensorMap};

/// Runs of each kernel, of which the fastest counts.
const RUNS: usize = 3;

/// A chain of integer and floating-point instructions in a loop, with nothing else.
const ARITHMETIC: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry arithmetic(.param .u64 out, .param .u32 rounds)
{
    .reg .b64 %rd<4>; .reg .b32 %r<10>; .reg .f32 %f<4>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [rounds];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mad.lo.u32 %r5, %r3, %r4, %r2;
    cvt.rn.f32.u32 %f1, %r5;
    mov.f32 %f2, 0f3F800000;
    mov.u32 %r6, 0;
LOOP:
    fma.rn.f32 %f2, %f2, %f1, 0f3F800000;
    add.u32 %r7, %r6, %r5;
    xor.b32 %r8, %r7, %r5;
    shl.b32 %r9, %r8, 3;
    mad.lo.u32 %r8, %r9, 5, %r7;
    mul.f32 %f3, %f2, %f1;
    add.f32 %f2, %f3, %f2;
    min.f32 %f2, %f2, 0f42000000;
    add.u32 %r6, %r6, 1;
    setp.lt.u32 %p1, %r6, %r1;
    @%p1 bra LOOP;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.f32 [%rd3], %f2;
    ret;
}
";

/// The text of a file of the tests.
fn text(path: &str) -> std::io::Result<String> {
    std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(path))
}

/// One kernel: prepares its memory and launches it.
type Kernel<'a> = dyn Fn(&mut Simulator) -> Result<Report, SimError> + 'a;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arithmetic = Module::parse(ARITHMETIC)?;
    let elementwise = Module::parse(&text("corpus/ptx/elementwise_sm80.ptx")?)?;
    let block = Module::parse(&text("corpus/ptx/block_sm80.ptx")?)?;
    let hopper = Module::parse(&text("scenarios/hopper_proof_cl1.ptx")?)?;
    let numbers: Vec<f32> = (0..1u16 << 14).cycle().take(1 << 20).map(f32::from).collect();
    let kernels: [(&str, Box<Kernel<'_>>); 4] = [
        (
            "arithmetic",
            Box::new(|sim| {
                let out = sim.alloc(64 * 256 * 4);
                sim.launch(
                    &arithmetic,
                    "arithmetic",
                    &Launch::new(64, 256),
                    &[Arg::Buffer(out), Arg::U32(1000)],
                )
            }),
        ),
        (
            "saxpy, 2^20 elements",
            Box::new(|sim| {
                let (x, y) = (sim.upload(&numbers), sim.upload(&numbers));
                let arguments = [Arg::F32(2.0), Arg::Buffer(x), Arg::Buffer(y), Arg::U32(1 << 20)];
                sim.launch(&elementwise, "saxpy", &Launch::new(4096, 256), &arguments)
            }),
        ),
        (
            "tiled f32 product, 256^3",
            Box::new(|sim| {
                let (a, b) = (sim.upload(&numbers[..1 << 16]), sim.upload(&numbers[..1 << 16]));
                let c = sim.alloc(4 << 16);
                let launch = Launch { grid: [16, 16, 1], block: [16, 16, 1], cluster: None, shared_bytes: 0 };
                let arguments = [Arg::Buffer(a), Arg::Buffer(b), Arg::Buffer(c), Arg::U32(256)];
                sim.launch(&block, "matmul", &launch, &arguments)
            }),
        ),
        ("Hopper bf16 product, 256^3", Box::new(|sim| hopper_product(sim, &hopper))),
    ];
    println!(
        "{:<28} {:>14} {:>12} {:>14} {:>12} {:>7}",
        "kernel", "instructions", "unchecked", "million/s", "checked", "factor"
    );
    for (name, kernel) in kernels {
        let best = |options: Options| -> Result<Report, SimError> {
            let mut best: Option<Report> = None;
            for _ in 0..RUNS {
                let report = kernel(&mut Simulator::new(options.clone()))?;
                if best.as_ref().is_none_or(|best| report.elapsed < best.elapsed) {
                    best = Some(report);
                }
            }
            best.ok_or(SimError::NoBuffer { address: 0 })
        };
        let plain = best(Options { threads: Some(1), ..Options::unchecked() })?;
        let checked = best(Options { threads: Some(1), ..Options::default() })?;
        let seconds = |report: &Report| report.elapsed.as_secs_f64();
        println!(
            "{name:<28} {:>14} {:>10.3} s {:>14.1} {:>10.3} s {:>6.1}x",
            plain.thread_instructions,
            seconds(&plain),
            plain.speed() / 1e6,
            seconds(&checked),
            seconds(&checked) / seconds(&plain)
        );
    }
    Ok(())
}

/// The product of `hopper_proof_cl1.ptx`, whose tiles are 128 x `N` x 64.
fn hopper_product(sim: &mut Simulator, module: &Module) -> Result<Report, SimError> {
    const SIZE: u32 = 256;
    let ones = vec![0x3F80u16; (SIZE * SIZE) as usize];
    let (a, b) = (sim.upload(&ones), sim.upload(&ones));
    let c = sim.alloc(2 * (SIZE * SIZE) as usize);
    let map = |buffer: tilewright_sim::Buffer, rows: u32| {
        let dims = [u64::from(SIZE), u64::from(SIZE)];
        TensorMap::tiled(
            Type::Bf16,
            buffer.address(),
            &dims,
            &[u64::from(2 * SIZE)],
            &[64, rows],
            SwizzleMode::B128,
        )
        .map(Arg::TensorMap)
    };
    let size = Arg::U32(SIZE);
    let arguments = [map(a, 128)?, map(b, TILE_N)?, map(c, 64)?, size.clone(), size.clone(), size];
    sim.launch(module, "gemm", &Launch::new(4, 384).shared(SHARED), &arguments)
}

/// Columns of a tile of the generated kernel.
const TILE_N: u32 = 64;
/// Its dynamic shared memory.
const SHARED: u32 = 66_592;
