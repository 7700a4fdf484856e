//! Nothing in a PTX file can crash the simulator: kernels of the corpus with statements taken out, doubled, exchanged or with other
//! numbers run to an end, an error or a finding, never to a panic and never for ever.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use proptest::prelude::*;
use tilewright_hardware::SwizzleMode;
use tilewright_ptx::Type;
use tilewright_sim::{Arg, Launch, Module, Options, Simulator, TensorMap};

/// Files with few lines, so that a change is likely to matter, of all themes.
const FILES: [&str; 9] = [
    "async_sm90",
    "atomics_sm90",
    "barriers_sm90",
    "control_sm80",
    "hopper_sm90",
    "memory_sm80",
    "tensor_sm80",
    "warp_sm80",
    "wgmma_sm90a",
];

fn text(file: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/corpus/ptx/{file}.ptx"));
    std::fs::read_to_string(path).unwrap()
}

/// One change of a text.
#[derive(Clone, Debug)]
enum Change {
    Delete(prop::sample::Index),
    Double(prop::sample::Index),
    Exchange(prop::sample::Index, prop::sample::Index),
    Digit(prop::sample::Index, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(Change::Delete),
        index().prop_map(Change::Double),
        (index(), index()).prop_map(|(a, b)| Change::Exchange(a, b)),
        (index(), b'0'..=b'9').prop_map(|(at, digit)| Change::Digit(at, digit)),
    ]
}

/// Applies changes to the statements of a text.
fn changed(text: &str, changes: &[Change]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let statements: Vec<usize> = (0..lines.len())
        .filter(|&i| lines[i].trim_end().ends_with(';') && lines[i].starts_with(['\t', ' ']))
        .collect();
    for change in changes {
        match change {
            Change::Delete(at) => lines[*at.get(&statements)].clear(),
            Change::Double(at) => {
                let line = &mut lines[*at.get(&statements)];
                *line = format!("{line}\n{line}");
            }
            Change::Exchange(a, b) => lines.swap(*a.get(&statements), *b.get(&statements)),
            Change::Digit(at, digit) => {
                let line = &mut lines[*at.get(&statements)];
                if let Some(place) = line.rfind(|c: char| c.is_ascii_digit()) {
                    line.replace_range(place..=place, &char::from(*digit).to_string());
                }
            }
        }
    }
    lines.join("\n")
}

/// Launches every kernel of a module with made-up arguments.
fn launch_all(text: &str, seed: u64, threads: u32, cluster: bool) {
    let Ok(module) = Module::parse(text) else { return };
    for entry in module.entries() {
        let options = Options { seed, threads: Some(1), count: true, ..Options::default() };
        let mut sim = Simulator::new(options.budget(20_000));
        let buffer = sim.upload(&vec![1u32; 4096]);
        let map =
            TensorMap::tiled(Type::F16, buffer.address(), &[64, 64], &[128], &[64, 16], SwizzleMode::B128)
                .unwrap();
        let arguments: Vec<Arg> = module
            .parameters(entry)
            .unwrap()
            .iter()
            .map(|parameter| match parameter.bytes {
                8 => Arg::Buffer(buffer),
                128 => Arg::TensorMap(map.clone()),
                bytes => Arg::Bytes(vec![3; bytes as usize]),
            })
            .collect();
        let block = module.required_block(entry).unwrap_or([threads, 1, 1]);
        let shape = module.required_cluster(entry).unwrap_or([if cluster { 2 } else { 1 }, 1, 1]);
        let grid = shape.map(|extent| extent * 2);
        let launch = Launch { grid, block, cluster: Some(shape), shared_bytes: 8192 };
        // Errors and findings are welcome.
        drop(sim.launch(&module, entry, &launch, &arguments));
    }
}

/// Few by default; `PROPTEST_CASES` asks for more.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(48)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn damaged_kernels_do_not_crash_the_simulator(
        file in prop::sample::select(FILES.to_vec()),
        changes in prop::collection::vec(change(), 0..40),
        seed in any::<u64>(),
        threads in prop::sample::select(vec![1u32, 31, 33, 128, 256]),
        cluster in any::<bool>(),
    ) {
        launch_all(&changed(&text(file), &changes), seed, threads, cluster);
    }
}
