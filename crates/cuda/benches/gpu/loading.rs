//! From PTX to a kernel: by the driver's compiler, from the cache on disk, many at once.
//!
//! The cache's file is in the system's cache of files, as it is for a program that is started again.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::time::Instant;

use tilewright_compiler::Compiler;
use tilewright_cuda::{Code, ComputeCapability, Context, DiskCache, Module, Origin};
use tilewright_hardware::{Element, Gpu};
use tilewright_kernels::gemm::{Problem, Types, plan};

use crate::measure::{Bar, Entry, MILLISECONDS, Outcome, Settings, Turns, by_turns, times};
use crate::raw::RawModule;

/// Different pieces of code that are loaded at once.
const MANY: usize = 16;

pub(crate) fn run(context: &Context, settings: &Settings) -> Outcome<Vec<Entry>> {
    let gemm = Gemm::compile(context)?;
    let folder = tempfile::tempdir()?;
    let samples = settings.choose(9, 3);
    let raw = || gemm.load_raw();

    let mut fresh = 0;
    let miss = by_turns(
        samples,
        || {
            fresh += 1;
            context.set_cache(DiskCache::at(folder.path().join(format!("fresh-{fresh}"))));
            gemm.load(context, false)
        },
        raw,
    )?;
    context.set_cache(DiskCache::at(folder.path().join("warm")));
    gemm.load(context, false)?;
    let hit = by_turns(samples, || gemm.load(context, true), raw)?;
    context.set_cache(DiskCache::off());

    let name = gemm.name;
    let many = many(context, &gemm, settings.choose(3, 1))?;
    Ok(vec![
        times(format!("load: {name}, miss against the driver"), MILLISECONDS, miss, Bar::None),
        times(
            format!("load: {name}, disk hit against the driver"),
            MILLISECONDS,
            hit,
            Bar::Ratio(1.0 / 20.0),
        ),
        times(format!("load: {MANY} modules at once against one by one"), MILLISECONDS, many, Bar::None),
    ])
}

/// The kernel that the library multiplies 4096x4096x4096 with on this device.
struct Gemm {
    name: &'static str,
    ptx: String,
    raw_ptx: CString,
    entry: CString,
}

impl Gemm {
    fn compile(context: &Context) -> Outcome<Gemm> {
        let hopper = ComputeCapability { major: 9, minor: 0 };
        let (name, chip) = if context.device().compute_capability == hopper {
            ("gemm_hopper", "h200")
        } else {
            ("gemm_ampere", "a100")
        };
        let gpu = Gpu::named(chip).ok_or("the table of GPUs has no such chip")?;
        let problem = Problem::new(4096, 4096, 4096, Types::of(Element::BF16));
        let recipe = plan(&problem, gpu)?.algorithm.recipe(&problem, gpu)?;
        let launch = recipe.launches.first().ok_or("there is nothing to launch")?;
        let kernel = (launch.kernel.stage)()?;
        let code = Compiler::new(gpu.arch).compile(kernel.func())?.code;
        Ok(Gemm {
            name,
            raw_ptx: CString::new(code.text.as_str())?,
            entry: CString::new(code.entry.as_str())?,
            ptx: code.text,
        })
    }

    /// Seconds that the driver takes, asked directly. Its own cache is off.
    fn load_raw(&self) -> Outcome<f64> {
        let begin = Instant::now();
        let module = RawModule::compile(&self.raw_ptx, &self.entry)?;
        let seconds = begin.elapsed().as_secs_f64();
        drop(module);
        Ok(seconds)
    }

    /// Seconds that we take, to a kernel that can be launched.
    fn load(&self, context: &Context, from_disk: bool) -> Outcome<f64> {
        let begin = Instant::now();
        // SAFETY: the kernel of this project, which is not launched.
        let module = unsafe { context.load(&Code::ptx(&self.ptx)) }?;
        let kernel = module.only_kernel()?;
        let seconds = begin.elapsed().as_secs_f64();
        if (module.origin() == Origin::Disk) != from_disk {
            return Err(format!("{} came from {:?}", kernel.name(), module.origin()).into());
        }
        Ok(seconds)
    }
}

/// All at once against one after the other; nothing is cached.
fn many(context: &Context, gemm: &Gemm, samples: usize) -> Outcome<Turns> {
    let texts: Vec<String> = (0..MANY).map(|n| format!("{}\n// variant {n}\n", gemm.ptx)).collect();
    let codes: Vec<Code<'_>> = texts.iter().map(|text| Code::ptx(text).without_cache()).collect();
    // The driver puts off what it can, so kernels are asked for in the time that is measured.
    let complete = |modules: &[Module]| modules.iter().try_for_each(|module| module.only_kernel().map(drop));
    by_turns(
        samples,
        || {
            let begin = Instant::now();
            // SAFETY: kernels of this project, which are not launched.
            let modules: Result<Vec<Module>, _> = unsafe { context.load_all(&codes) }.into_iter().collect();
            let modules = modules?;
            complete(&modules)?;
            Ok(begin.elapsed().as_secs_f64())
        },
        || {
            let begin = Instant::now();
            // SAFETY: as above.
            let modules: Result<Vec<Module>, _> =
                codes.iter().map(|code| unsafe { context.load(code) }).collect();
            let modules = modules?;
            complete(&modules)?;
            Ok(begin.elapsed().as_secs_f64())
        },
    )
}
