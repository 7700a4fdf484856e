//! Small kernels, each in a right version and in broken ones: the right one must be clean and compute what its file says, each broken
//! one must be found out, with the kind, the lines, the memory and the seed. `scenarios/script.rs` tells how the files are written.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_precision_loss)] // Small whole numbers.

use std::path::PathBuf;

use half::bf16;
use tilewright_hardware::{OobFill, SwizzleMode};
use tilewright_sim::tensor::tensor_map::{Access, DataType, Spec};
use tilewright_sim::{Arg, Buffer, Finding, Launch, Module, Options, Place, Simulator, TensorMap};

#[path = "scenarios/script.rs"]
mod script;

use script::{Element, Input, Memory, Ramp, Script, Variant};

const SEEDS: [u64; 5] = [0, 1, 2, 3, 77];

macro_rules! scenarios {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        #[test]
        fn every_file_is_a_scenario() {
            let known = [$(stringify!($name)),*];
            let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
            for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "ptx")) {
                let stem = file.file_stem().unwrap().to_str().unwrap();
                assert!(known.contains(&stem) || stem.starts_with("hopper_proof"), "{stem} is not in the list");
            }
        }
    };
}

scenarios! {
    atomics
    cluster_barrier_later_read
    cp_async_groups
    cp_async_mbarrier
    deadlocks
    divergent
    expect_tx
    fences
    flag
    generic_to_tma_store
    last_block
    last_word
    later_row
    look_back
    mbarrier_rules
    misaligned
    multicast
    named_barriers
    never_ends
    out_of_bounds
    paths_of_a_warp
    peers
    races_in_cluster
    races_in_global
    races_in_shared
    races_of_copies
    reader_generations
    resources
    roles
    sent_words
    skipped
    slot_of_another_block
    spin_lock
    together_again
    tma_load
    tma_store_coordinates
    tma_store_source_reused
    trap
    uninitialised
    wgmma
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn script(name: &str) -> Script {
    Script::parse(&std::fs::read_to_string(folder().join(format!("{name}.ptx"))).unwrap())
}

/// What a run leaves behind.
struct Outcome {
    findings: Vec<Finding>,
    contents: Vec<Vec<u8>>,
}

fn run(script: &Script, variant: Option<&str>, seed: u64, threads: usize) -> Outcome {
    let text = script.text(variant);
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{variant:?}: {error}"));
    let options = Options { seed, threads: Some(threads), ..Options::default() }.budget(script.budget);
    let mut sim = Simulator::new(options);
    let mut buffers: Vec<(&Memory, Buffer)> = Vec::new();
    let mut arguments = Vec::new();
    for input in &script.inputs {
        match input {
            Input::Memory(memory) => {
                let buffer = match memory.before {
                    Some(ramp) => sim.upload_bytes(&memory.name, &bytes(memory, ramp)),
                    None => sim.alloc_named(&memory.name, memory.count * size(memory.element)),
                };
                buffers.push((memory, buffer));
                if memory.passed {
                    arguments.push(Arg::Buffer(buffer));
                }
            }
            Input::Map { of, extents, tile } => {
                let (memory, buffer) = buffers.iter().find(|(memory, _)| memory.name == *of).unwrap();
                arguments.push(Arg::TensorMap(map(memory, *buffer, extents, tile)));
            }
            Input::Value(value) => arguments.push(Arg::U32(*value)),
        }
    }
    let launch = Launch {
        grid: [script.grid, 1, 1],
        block: [script.block, 1, 1],
        cluster: script.cluster.map(|blocks| [blocks, 1, 1]),
        shared_bytes: script.shared,
    };
    let entry = module.entries()[0].to_owned();
    let report = sim
        .launch(&module, &entry, &launch, &arguments)
        .unwrap_or_else(|error| panic!("{variant:?}: {error}"));
    let contents = buffers.iter().map(|(_, buffer)| sim.read(*buffer).unwrap()).collect();
    Outcome { findings: report.findings, contents }
}

fn size(element: Element) -> usize {
    match element {
        Element::U64 => 8,
        Element::U32 | Element::F32 => 4,
        Element::Bf16 => 2,
    }
}

fn bytes(memory: &Memory, ramp: Ramp) -> Vec<u8> {
    let value = |i: usize| ramp.scale * u32::try_from(i).unwrap() + ramp.offset;
    let encode = |value: u32| match memory.element {
        Element::U32 => value.to_le_bytes().to_vec(),
        Element::U64 => u64::from(value).to_le_bytes().to_vec(),
        Element::F32 => (value as f32).to_le_bytes().to_vec(),
        Element::Bf16 => bf16::from_f32(value as f32).to_le_bytes().to_vec(),
    };
    (0..memory.count).flat_map(|i| encode(value(i))).collect()
}

fn map(memory: &Memory, buffer: Buffer, extents: &[u32], tile: &[u32]) -> TensorMap {
    let data_type = match memory.element {
        Element::U32 => DataType::U32,
        Element::U64 => DataType::U64,
        Element::F32 => DataType::F32,
        Element::Bf16 => DataType::Bf16,
    };
    let dims: Vec<u64> = extents.iter().map(|&extent| u64::from(extent)).collect();
    let row = dims[0] * size(memory.element) as u64;
    let strides: Vec<u64> = (1..dims.len()).map(|d| row * dims[1..d].iter().product::<u64>()).collect();
    let mut shape = [1; 5];
    shape[..tile.len()].copy_from_slice(tile);
    TensorMap::new(&Spec {
        data_type,
        address: buffer.address(),
        dims: &dims,
        strides: &strides,
        access: Access::Tile { extents: shape },
        element_strides: &vec![1; dims.len()],
        interleave: 0,
        swizzle: SwizzleMode::None,
        fill: OobFill::Zeros,
    })
    .unwrap()
}

fn report(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{finding}\n")).collect()
}

/// Runs all versions of a scenario with all seeds.
fn check(name: &str) {
    let script = script(name);
    for seed in SEEDS {
        let outcome = run(&script, None, seed, 1);
        assert!(outcome.findings.is_empty(), "{name}, right, seed {seed}:\n{}", report(&outcome.findings));
        let memories = script
            .inputs
            .iter()
            .filter_map(|input| if let Input::Memory(m) = input { Some(m) } else { None });
        for (memory, found) in memories.zip(&outcome.contents) {
            if let Some(after) = memory.after {
                let expected = bytes(memory, after);
                let differ = found.iter().zip(&expected).position(|(x, y)| x != y);
                assert_eq!(differ, None, "{name}, right, seed {seed}: first wrong byte of {}", memory.name);
            }
        }
    }
    assert!(!script.variants.is_empty(), "{name} has no broken version");
    let mut missed = String::new();
    for variant in &script.variants {
        let found: Vec<String> =
            SEEDS.iter().filter_map(|&seed| found_out(&script, variant, seed).err()).collect();
        let enough = if variant.sometimes { found.len() < SEEDS.len() } else { found.is_empty() };
        if !enough {
            missed += &format!("{name}, variant {}: {}\n", variant.name, found[0]);
        }
    }
    assert!(missed.is_empty(), "{missed}");
}

/// Whether a run of a broken version says what is wrong, and says the same again.
fn found_out(script: &Script, variant: &Variant, seed: u64) -> Result<(), String> {
    let outcome = run(script, Some(&variant.name), seed, 1);
    let again = run(script, Some(&variant.name), seed, 2);
    if json(&outcome.findings) != json(&again.findings) || outcome.contents != again.contents {
        return Err(format!("seed {seed}: a second run with two threads differs"));
    }
    let (first, second) = (script.lines(&variant.name, '1'), script.lines(&variant.name, '2'));
    let fits = |finding: &Finding| {
        variant.kinds.contains(&finding.kind)
            && (first.is_empty() || first.contains(&finding.first.line))
            && (second.is_empty()
                || finding.second.as_ref().is_some_and(|place| second.contains(&place.line)))
            && variant.memory.as_ref().is_none_or(|name| finding.buffer.as_ref() == Some(name))
            && variant.contains.as_ref().is_none_or(|text| finding.message.contains(text.as_str()))
            && finding.seed == seed
            && !finding.fix.is_empty()
            && (!reads_a_copy(finding) || finding.fix.contains("cp.async.wait_group"))
    };
    if outcome.findings.iter().any(fits) {
        return Ok(());
    }
    Err(format!(
        "seed {seed}: expected {:?} {:?} in lines {first:?} and {second:?}, found\n{}",
        variant.kinds,
        variant.memory,
        report(&outcome.findings)
    ))
}

/// Whether something is read that a copy of a thread may still be writing: no barrier helps against that.
fn reads_a_copy(finding: &Finding) -> bool {
    let copied = |place: &Place| place.instruction.starts_with("cp.async.c");
    finding.message.contains("is read by") && finding.second.as_ref().is_some_and(copied)
}

fn json(findings: &[Finding]) -> String {
    serde_json::to_string(findings).unwrap()
}

/// Blocks that race, and warps that race: what comes out depends on the seed and on nothing else.
#[test]
fn the_seed_decides() {
    for (name, variant) in [("races_in_global", "write_write"), ("last_word", "unordered")] {
        let script = script(name);
        let mut outputs: Vec<Vec<Vec<u8>>> = Vec::new();
        for seed in 0..20 {
            let one = run(&script, Some(variant), seed, 1);
            let two = run(&script, Some(variant), seed, 2);
            assert_eq!(json(&one.findings), json(&two.findings), "{name}, seed {seed}");
            assert_eq!(one.contents, two.contents, "{name}, seed {seed}");
            outputs.push(one.contents);
        }
        outputs.sort();
        outputs.dedup();
        assert!(outputs.len() > 1, "{name}: 20 seeds give the same result");
    }
}
