//! The machine: processor, driver, GPUs, assembler, cache, and what is wrong with them.

use serde::Serialize;
use tilewright::cuda::{
    CACHE_SIZE_VARIABLE, CACHE_VARIABLE, CacheFolder, Device, DiskCache, Driver, PtxVersion,
};
use tilewright_ptxas::Assembler;

/// All that is known about the machine. The field names are the JSON of `doctor --json`.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    pub(super) tilewright: &'static str,
    pub(super) system: String,
    pub(super) processor: Processor,
    pub(super) driver: Option<DriverFacts>,
    pub(super) gpus: Vec<Gpu>,
    pub(super) assembler: Option<AssemblerFacts>,
    pub(super) cache: Option<CacheFacts>,
    pub(super) problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
pub(super) struct Processor {
    pub(super) name: Option<String>,
    pub(super) threads: usize,
    pub(super) memory_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct DriverFacts {
    pub(super) cuda: String,
    pub(super) ptx: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Gpu {
    pub(super) ordinal: u32,
    pub(super) name: String,
    pub(super) compute_capability: String,
    pub(super) architecture: &'static str,
    pub(super) memory_bytes: u64,
    pub(super) multiprocessors: u32,
    pub(super) shared_bytes_per_block: u64,
    pub(super) l2_bytes: u64,
    pub(super) clock_mhz: u32,
    /// What a pack must hold machine code for so that nothing is compiled on this GPU.
    pub(super) cubin: String,
}

#[derive(Debug, Serialize)]
pub(super) struct AssemblerFacts {
    pub(super) path: String,
    pub(super) version: String,
}

#[derive(Debug, Serialize)]
pub(super) struct CacheFacts {
    pub(super) path: String,
    pub(super) files: u64,
    pub(super) bytes: u64,
    pub(super) entries: usize,
    pub(super) cap_bytes: u64,
}

/// Something that is missing or broken.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    /// What it is about.
    pub(super) part: &'static str,
    /// What was found.
    pub(super) found: String,
    /// What to do.
    pub(super) remedy: String,
}

impl Machine {
    /// Looks at everything; what fails becomes a problem.
    pub(super) fn look() -> Machine {
        let mut problems = Vec::new();
        let driver =
            Driver::load().map_err(|error| problems.push(problem("driver", &error, error.remedy()))).ok();
        let devices = driver.map_or_else(Vec::new, |driver| {
            driver.devices().unwrap_or_else(|error| {
                problems.push(problem("GPU", &error, error.remedy()));
                Vec::new()
            })
        });
        let assembler = Assembler::find()
            .map_err(|error| problems.push(problem("assembler", &error, error.remedy())))
            .ok();
        Machine {
            tilewright: env!("CARGO_PKG_VERSION"),
            system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
            processor: Processor::look(),
            // A driver that cannot be used, because no GPU is visible for example, is still there.
            driver: Driver::installed_version().ok().map(|version| DriverFacts {
                cuda: version.to_string(),
                ptx: PtxVersion::newest_for(version).map(|ptx| ptx.to_string()),
            }),
            gpus: devices.into_iter().map(Gpu::from).collect(),
            assembler: assembler.map(|assembler| AssemblerFacts {
                path: assembler.path().display().to_string(),
                version: assembler.version().to_string(),
            }),
            cache: cache(&mut problems),
            problems,
        }
    }
}

fn problem(part: &'static str, found: &dyn std::fmt::Display, remedy: String) -> Problem {
    Problem { part, found: found.to_string(), remedy }
}

fn cache(problems: &mut Vec<Problem>) -> Option<CacheFacts> {
    let remedy =
        format!("set {CACHE_VARIABLE} to a folder that can be written; kernels are compiled again meanwhile");
    let Some(folder) = CacheFolder::locate() else {
        problems.push(problem("cache", &"turned off, or no home folder", remedy));
        return None;
    };
    let path = folder.path().display().to_string();
    let cache = DiskCache::from_environment();
    // A size that cannot be read is noticed when the cache is opened, a folder of somebody else when it is looked at.
    let setting = cache.stats().last_error;
    let distrust = cache.check().err().map(|problem| format!("{path}: {problem}"));
    let usage = folder.check_writable().and_then(|()| folder.usage());
    let failure = usage.as_ref().err().map(|error| format!("{path}: {error}"));
    problems.extend(failure.map(|found| problem("cache", &found, remedy.clone())));
    problems.extend(distrust.map(|found| problem("cache", &found, remedy)));
    let remedy = format!("set {CACHE_SIZE_VARIABLE} to a size such as 512M or 2G");
    problems.extend(setting.map(|found| problem("cache", &found, remedy)));
    let usage = usage.unwrap_or_default();
    Some(CacheFacts {
        path,
        files: usage.files,
        bytes: usage.bytes,
        entries: cache.list().len(),
        cap_bytes: cache.cap(),
    })
}

impl From<Device> for Gpu {
    fn from(device: Device) -> Self {
        Gpu {
            ordinal: device.ordinal,
            name: device.name,
            compute_capability: device.compute_capability.to_string(),
            architecture: device.compute_capability.architecture(),
            memory_bytes: device.memory_bytes,
            multiprocessors: device.multiprocessors,
            shared_bytes_per_block: device.shared_bytes_per_block,
            l2_bytes: device.l2_bytes,
            clock_mhz: device.clock_khz / 1000,
            cubin: {
                let chip = device.compute_capability;
                format!("sm_{}{}", chip.major, chip.minor)
            },
        }
    }
}

impl Processor {
    fn look() -> Processor {
        // Linux says both in text files; elsewhere the name and the memory stay unknown.
        let field = |file: &str, key: &str| {
            let text = std::fs::read_to_string(file).ok()?;
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let memory =
            field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        Processor {
            name: field("/proc/cpuinfo", "model name"),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory.map(|kibibytes| kibibytes * 1024),
        }
    }

    pub(super) fn describe(&self) -> String {
        let name = self.name.as_deref().unwrap_or("unknown processor");
        let memory = self.memory_bytes.map_or(String::new(), |memory| format!(", {}", super::bytes(memory)));
        format!("{name}, {} threads{memory}", self.threads)
    }
}
