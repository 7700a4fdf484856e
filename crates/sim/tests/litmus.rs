//! Small kernels whose results were recorded on a Hopper GPU run in the simulator and must give the same bits: tensor
//! maps, matrix descriptors and fragments, barriers in memory, instructions of a warp, counters. `litmus/README.txt` tells
//! how kernels and recordings are made.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use half::{bf16, f16};
use libtest_mimic::{Arguments, Trial};
use serde::Deserialize;
use tilewright_hardware::{OobFill, SwizzleMode};
use tilewright_sim::tensor::tensor_map::{Access, DataType, Spec};
use tilewright_sim::{Arg, Buffer, Counts, Launch, Module, Options, Simulator, TensorMap};

const SEEDS: [u64; 2] = [1, 42];
/// What buffers of results hold at first.
const FILL: u8 = 0xcd;

#[derive(Deserialize)]
struct Case {
    /// Its first part is the name of the module.
    name: String,
    entry: String,
    #[serde(default = "one_block")]
    grid: [u32; 3],
    #[serde(default = "one_warp")]
    block: [u32; 3],
    cluster: Option<[u32; 3]>,
    #[serde(default)]
    shared: u32,
    /// Whether to compare what is counted.
    #[serde(default)]
    counters: bool,
    /// PTX forbids what is done although the GPU lets it pass: a finding is as good as the same result.
    #[serde(default)]
    undefined: bool,
    args: Vec<Input>,
}

impl Case {
    fn module(&self) -> &str {
        self.name.split('/').next().unwrap_or_default()
    }
}

fn one_block() -> [u32; 3] {
    [1; 3]
}

fn one_warp() -> [u32; 3] {
    [32, 1, 1]
}

/// An argument: one of the fields says which kind.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    out: Option<usize>,
    numbers: Option<String>,
    #[serde(default)]
    count: usize,
    #[serde(default)]
    seed: u32,
    /// Compared afterwards, as results are.
    #[serde(default)]
    keep: bool,
    /// Memory behind a tensor map, no argument itself.
    #[serde(default)]
    hidden: bool,
    words: Option<Vec<u32>>,
    u16: Option<u16>,
    u32: Option<u32>,
    u64: Option<u64>,
    map: Option<Map>,
}

#[derive(Deserialize)]
struct Map {
    of: usize,
    r#type: u32,
    dims: Vec<u64>,
    strides: Vec<u64>,
    r#box: Option<Vec<u32>>,
    #[serde(default)]
    lower: Vec<i32>,
    #[serde(default)]
    upper: Vec<i32>,
    #[serde(default)]
    channels: u32,
    #[serde(default)]
    pixels: u32,
    /// All 1 if left out.
    steps: Option<Vec<u32>>,
    #[serde(default)]
    swizzle: u8,
    #[serde(default)]
    fill: u8,
}

#[derive(Deserialize)]
struct Recording {
    cases: HashMap<String, Recorded>,
}

#[derive(Clone, Deserialize)]
struct Recorded {
    results: Option<Vec<String>>,
    error: Option<String>,
    counters: Option<BTreeMap<String, u64>>,
}

fn main() {
    let folder = folder();
    let read =
        |name: &str| std::fs::read_to_string(folder.join(name)).expect("the files of this test are readable");
    let cases: Vec<Case> =
        serde_json::from_str(&read("cases.json")).expect("cases.json is as make.py writes it");
    let mut recording: Recording =
        serde_json::from_str(&read("recorded.json")).expect("recorded.json is as record.py writes it");
    let modules: Arc<HashMap<String, OnceLock<Result<Module, String>>>> =
        Arc::new(cases.iter().map(|case| (case.module().to_owned(), OnceLock::new())).collect());
    let mut trials = Vec::new();
    for case in cases {
        let recorded = recording.cases.remove(&case.name);
        let modules = modules.clone();
        trials.push(Trial::test(case.name.clone(), move || {
            let recorded = recorded.ok_or("there is no recording: run record.py")?;
            let module = modules[case.module()].get_or_init(|| parse(case.module())).as_ref()?;
            SEEDS.iter().try_for_each(|&seed| {
                check(&case, module, &recorded, seed).map_err(|e| format!("seed {seed}: {e}").into())
            })
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/litmus")
}

fn parse(name: &str) -> Result<Module, String> {
    let path = folder().join(format!("ptx/{name}.ptx"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Module::parse(&text).map_err(|e| format!("{name}.ptx does not parse: {e}"))
}

/// Runs a case and compares it with what the GPU did.
fn check(case: &Case, module: &Module, recorded: &Recorded, seed: u64) -> Result<(), String> {
    // The kernels for counters read memory that nobody wrote.
    let options = Options { check: !case.counters, count: case.counters, ..Options::with_seed(seed) };
    let mut sim = Simulator::new(options);
    let (mut buffers, mut arguments, mut compared) = (Vec::new(), Vec::new(), Vec::new());
    for input in &case.args {
        let (buffer, argument) = match prepare(&mut sim, &buffers, input) {
            Ok(prepared) => prepared,
            Err(_) if recorded.error.as_deref() == Some("refused") => return Ok(()),
            Err(error) => return Err(format!("the tensor map is refused: {error}")),
        };
        if let Some(buffer) = buffer.filter(|_| input.out.is_some() || input.keep) {
            compared.push(buffer);
        }
        buffers.push(buffer);
        if !input.hidden {
            arguments.push(argument);
        }
    }
    let launch =
        Launch { grid: case.grid, block: case.block, cluster: case.cluster, shared_bytes: case.shared };
    let report = sim.launch(module, &case.entry, &launch, &arguments).map_err(|e| format!("refused: {e}"))?;
    if let Some(error) = &recorded.error {
        return match report.findings.first() {
            Some(_) => Ok(()),
            None => Err(format!("no finding, but the GPU says {error}")),
        };
    }
    if let Some(finding) = report.findings.first() {
        if case.undefined {
            return Ok(());
        }
        return Err(format!(
            "the GPU has no objection, but here is a finding: {:?}: {}",
            finding.kind, finding.message
        ));
    }
    let results = recorded.results.as_ref().ok_or("the recording has neither results nor an error")?;
    if results.len() != compared.len() {
        return Err(format!("{} buffers recorded, {} here: run record.py", results.len(), compared.len()));
    }
    for (index, (buffer, expected)) in compared.iter().zip(results).enumerate() {
        let bytes = sim.read(*buffer).map_err(|e| e.to_string())?;
        if let Ok(folder) = std::env::var("TILEWRIGHT_LITMUS_DUMP") {
            let path = Path::new(&folder).join(format!("{}.{index}", case.name));
            std::fs::create_dir_all(path.parent().expect("a folder")).map_err(|e| e.to_string())?;
            std::fs::write(path, &bytes).map_err(|e| e.to_string())?;
        }
        compare(&bytes, expected).map_err(|e| format!("buffer {index}: {e}"))?;
    }
    match &recorded.counters {
        Some(counters) => count(counters, &report.counts),
        None => Ok(()),
    }
}

/// Against words in hexadecimal or, of much, hashes of pieces.
fn compare(bytes: &[u8], expected: &str) -> Result<(), String> {
    let Some(hashes) = expected.strip_prefix('#') else {
        let found: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let wanted: Vec<&str> =
            expected.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or("")).collect();
        return match (0..found.len().max(wanted.len()))
            .find(|&at| found.get(at).map(String::as_str) != wanted.get(at).copied())
        {
            Some(at) => {
                let word = at / 4 * 4;
                let end = (word + 4).min(found.len());
                let here = found.get(word..end).map(<[String]>::concat).unwrap_or_default();
                let there = wanted.get(word..end).map(<[&str]>::concat).unwrap_or_default();
                Err(format!("word {} is {here} (bytes in order), the GPU has {there}", at / 4))
            }
            None => Ok(()),
        };
    };
    for (index, piece) in bytes.chunks(512).enumerate() {
        let hash = piece
            .iter()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        if hashes.get(8 * index..8 * index + 8) != Some(&format!("{hash:08x}")) {
            return Err(format!(
                "bytes {} to {} differ from the GPU's",
                512 * index,
                512 * index + piece.len()
            ));
        }
    }
    if hashes.len() == 8 * bytes.len().div_ceil(512) {
        Ok(())
    } else {
        Err("another size than recorded".into())
    }
}

/// The counters of the GPU against those of the simulator.
fn count(counters: &BTreeMap<String, u64>, counts: &Counts) -> Result<(), String> {
    let gpu = |parts: &[&str]| {
        parts.iter().map(|name| counters.get(&format!("l1tex__{name}.sum")).copied().unwrap_or(0)).sum()
    };
    let pairs: [(&str, u64, u64); 4] = [
        (
            "wavefronts of shared memory",
            counts.shared.wavefronts,
            gpu(&["data_pipe_lsu_wavefronts_mem_shared_op_ld", "data_pipe_lsu_wavefronts_mem_shared_op_st"]),
        ),
        (
            "bank conflicts",
            counts.shared.conflicts,
            gpu(&[
                "data_bank_conflicts_pipe_lsu_mem_shared_op_ld",
                "data_bank_conflicts_pipe_lsu_mem_shared_op_st",
            ]),
        ),
        ("sectors read", counts.global_reads.sectors, gpu(&["t_sectors_pipe_lsu_mem_global_op_ld"])),
        ("sectors written", counts.global_writes.sectors, gpu(&["t_sectors_pipe_lsu_mem_global_op_st"])),
    ];
    match pairs.into_iter().find(|(_, here, there)| here != there) {
        Some((what, here, there)) => Err(format!("{here} {what}, the GPU has {there}")),
        None => Ok(()),
    }
}

/// The buffer behind an argument, where it has one, and the argument.
fn prepare(
    sim: &mut Simulator,
    buffers: &[Option<Buffer>],
    input: &Input,
) -> Result<(Option<Buffer>, Arg), String> {
    let bytes = if let Some(bytes) = input.out {
        Some(vec![FILL; bytes])
    } else if let Some(words) = &input.words {
        Some(words.iter().flat_map(|word| word.to_le_bytes()).collect())
    } else {
        input.numbers.as_ref().map(|kind| numbers(kind, input.count, input.seed))
    };
    if let Some(bytes) = bytes {
        let buffer = sim.upload(bytes.as_slice());
        return Ok((Some(buffer), Arg::Buffer(buffer)));
    }
    let argument = if let Some(value) = input.u16 {
        Arg::Bytes(value.to_le_bytes().to_vec())
    } else if let Some(value) = input.u32 {
        Arg::U32(value)
    } else if let Some(value) = input.u64 {
        Arg::U64(value)
    } else {
        let map = input.map.as_ref().ok_or("an argument of no kind")?;
        let address = buffers[map.of].expect("refers to a buffer").address();
        Arg::TensorMap(map.make(address)?)
    };
    Ok((None, argument))
}

impl Map {
    fn make(&self, address: u64) -> Result<TensorMap, String> {
        let corner = |from: &[i32]| {
            let mut corner = [0; 3];
            corner[..from.len()].copy_from_slice(from);
            corner
        };
        let access = match &self.r#box {
            Some(tile) => {
                let mut extents = [1; 5];
                extents[..tile.len()].copy_from_slice(tile);
                Access::Tile { extents }
            }
            None => Access::Im2col {
                lower: corner(&self.lower),
                upper: corner(&self.upper),
                channels: self.channels,
                pixels: self.pixels,
            },
        };
        let swizzle = SwizzleMode::ALL.into_iter().find(|mode| mode.tma_code() == u32::from(self.swizzle));
        let map = TensorMap::new(&Spec {
            data_type: DataType::from_driver(self.r#type).map_err(|e| e.to_string())?,
            address,
            dims: &self.dims,
            strides: &self.strides,
            access,
            element_strides: self.steps.as_deref().unwrap_or(&[1; 5][..self.dims.len()]),
            interleave: 0,
            swizzle: swizzle.ok_or("no such swizzle")?,
            fill: if self.fill == 0 { OobFill::Zeros } else { OobFill::Nan },
        });
        map.map_err(|e| e.to_string())
    }
}

/// The inputs of `inputs.py`.
fn numbers(kind: &str, count: usize, seed: u32) -> Vec<u8> {
    const E4M3: [u8; 9] = [0x00, 0x38, 0x40, 0x44, 0x48, 0x4a, 0x4c, 0x4e, 0x50];
    const E5M2: [u8; 9] = [0x00, 0x3c, 0x40, 0x42, 0x44, 0x45, 0x46, 0x47, 0x48];
    const PAIRS: [u32; 6] = [0x4, 0x8, 0xc, 0x9, 0xd, 0xe];
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state
    };
    let mut out = Vec::new();
    for _ in 0..count {
        let [.., top] = next().to_le_bytes();
        let small = (top & 15).cast_signed() - 8;
        let short =
            |table: &[u8; 9]| table[usize::from(small.unsigned_abs())] | if small < 0 { 0x80 } else { 0 };
        match kind {
            "bytes" => out.push(top),
            "s8" => out.push(small.cast_unsigned()),
            "u8" => out.push(top & 15),
            "e4m3" => out.push(short(&E4M3)),
            "e5m2" => out.push(short(&E5M2)),
            "f16" => out.extend(f16::from_f32(small.into()).to_le_bytes()),
            "bf16" => out.extend(bf16::from_f32(small.into()).to_le_bytes()),
            "f32" => out.extend(f32::from(small).to_le_bytes()),
            "f64" => out.extend(f64::from(small).to_le_bytes()),
            "s32" => out.extend(i32::from(small).to_le_bytes()),
            "edge" if top & 1 == 1 => out.extend((0x7fff_ffff - u32::from(top)).to_le_bytes()),
            "edge" => out.extend((0x8000_0000 + u32::from(top)).to_le_bytes()),
            "pairs" | "halves" => {
                let word = (0..8).fold(0, |word, nibble| {
                    let random = next();
                    let index = match kind {
                        "pairs" => PAIRS[(random >> 24) as usize % 6],
                        _ => [0x4, 0xe][(random >> 31) as usize],
                    };
                    word | index << (4 * nibble)
                });
                out.extend(word.to_le_bytes());
            }
            _ => panic!("inputs.py has kind {kind}"),
        }
    }
    out
}
