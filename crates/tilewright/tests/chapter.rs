//! The examples of `docs/simulator.md`: what it calls broken is found, what it calls right is clean.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

use std::collections::BTreeSet;

use tilewright::device::{Argument, Options};
use tilewright::prelude::*;
use tilewright::sim::FindingKind;

const CHAPTER: &str = include_str!("../../../docs/simulator.md");

/// A block of code: the words behind the fence, and the text.
struct Example {
    words: Vec<&'static str>,
    text: String,
}

impl Example {
    fn value(&self, key: &str) -> Option<&'static str> {
        self.words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix(':'))
    }

    fn number(&self, key: &str, otherwise: u32) -> u32 {
        self.value(key).map_or(otherwise, |text| text.parse().unwrap())
    }
}

fn examples() -> Vec<Example> {
    let mut examples = Vec::new();
    let mut open: Option<Example> = None;
    for line in CHAPTER.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(words), None) => {
                open = Some(Example { words: words.split_whitespace().collect(), text: String::new() });
            }
            (Some(_), Some(_)) => examples.extend(open.take()),
            (None, Some(example)) => example.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    examples
}

/// Runs the lines of an example inside the frame that the chapter shows.
fn run(frame: &str, example: &Example) -> Vec<FindingKind> {
    assert!(frame.contains("// ..."), "the frame has a place for the example");
    let text = frame.replace("// ...", &example.text);
    let device = Device::simulator_with(Options::default().budget(100_000));
    let blocks = example.number("cluster", 1);
    let block = example.number("threads", 64);
    let kernel =
        device.load(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).kernel("example").unwrap();
    let mut kernel = kernel.with_block(block).with_shared(example.number("smem", 0));
    if blocks > 1 {
        kernel = kernel.with_cluster(blocks);
    }
    let numbers: Vec<u32> = (0..64).collect();
    let (input, output) = (device.upload(&numbers).unwrap(), device.alloc::<u32>(64).unwrap());
    let arguments: [&dyn Argument; 2] = [&input, &output];
    let report = kernel.launch(blocks, &arguments).unwrap_or_else(|error| panic!("{error}\n{text}"));
    for finding in report.findings() {
        println!("{finding}\n");
    }
    report.findings().iter().map(|finding| finding.kind).collect()
}

#[test]
fn every_kind_of_finding_is_shown_broken_and_right() {
    let examples = examples();
    let frame = examples.iter().find(|example| example.words.contains(&"frame")).expect("a frame");
    // Its example is Rust, and a documentation test.
    let mut shown = BTreeSet::from([FindingKind::AssertFailed]);
    for example in &examples {
        if let Some(name) = example.value("broken") {
            let found = run(&frame.text, example);
            let kind = FindingKind::ALL.iter().find(|kind| kind.to_string().replace(' ', "-") == name);
            let kind = kind.unwrap_or_else(|| panic!("no kind is named {name}"));
            assert!(found.contains(kind), "{name}: found {found:?} in\n{}", example.text);
            shown.insert(*kind);
        } else if example.words.contains(&"right") {
            let found = run(&frame.text, example);
            assert!(found.is_empty(), "found {found:?} in\n{}", example.text);
        }
    }
    let missing: Vec<&FindingKind> = FindingKind::ALL.iter().filter(|kind| !shown.contains(kind)).collect();
    assert!(missing.is_empty(), "no example of {missing:?}");
}
