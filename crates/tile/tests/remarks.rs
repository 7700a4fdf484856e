//! What the lowering tells the author: the line, what was missing, and what to do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use half::bf16;
use tilewright_hardware::Arch;
use tilewright_lang::Kernel;
use tilewright_lang::tile::prelude::*;
use tilewright_passes::{Remark, RemarkKind};
use tilewright_tile::{Fact, lower, specialise};

use common::facts;

/// The line of the first remark whose message has all these words.
fn line_of(remarks: &[Remark], kind: RemarkKind, words: &[&str]) -> u32 {
    let fits =
        |remark: &&Remark| remark.kind == kind && words.iter().all(|word| remark.message.contains(word));
    let found = remarks.iter().find(fits).unwrap_or_else(|| panic!("no remark of {words:?}: {remarks:#?}"));
    let location = found.location.as_ref().expect("a place");
    assert!(location.contains("remarks.rs"), "{location}");
    location.rsplit(':').nth(1).unwrap().parse().unwrap()
}

fn remarks(kernel: &Kernel, facts: &[(&str, Fact)], arch: Arch) -> Vec<Remark> {
    lower(&specialise(kernel.func(), facts), arch).unwrap().remarks
}

/// The same facts without those about a name.
fn without<'a>(facts: &'a [(String, Fact)], name: &str) -> Vec<(&'a str, Fact)> {
    facts.iter().filter(|(known, _)| known != name).map(|(known, fact)| (known.as_str(), *fact)).collect()
}

const LEFT: u32 = line!() + 7;
const RIGHT: u32 = LEFT + 1;

#[kernel]
fn product(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>) {
    let mut acc = Tile::<f32>::zeros([64, 64]);
    for step in 0..a.extent(1).div_ceil(64) {
        let left = a.tile([64, 64]).block((0, step)).load();
        let right = b.tile([64, 64]).block((step, 0)).load();
        acc = dot(left, right, acc);
    }
    c.tile([64, 64]).block((0, 0)).store(acc);
}

/// Without a fact about a factor, it is not loaded ahead, and its line says which fact that was.
#[test]
fn factors_that_are_not_loaded_ahead() {
    let kernel = product::stage().unwrap();
    let facts = facts(&["a", "b", "c"]);
    for (missing, words) in [
        ("b", ["pointer", "multiple of 16 bytes"]),
        ("b_stride1", ["stride of 1", "no axis"]),
        ("b_stride0", ["stride along axis 0", "multiple of 8"]),
    ] {
        let known = without(&facts, missing);
        for (arch, who) in [(Arch::SM_90A, "the copy engine does not"), (Arch::SM_80, "threads do not")] {
            let remarks = remarks(&kernel, &known, arch);
            let words = [who, words[0], words[1]];
            assert_eq!(line_of(&remarks, RemarkKind::Missed, &words), RIGHT, "{missing}");
        }
        // The other factor is no worse off where each is copied for itself.
        let ahead = ["threads load this ahead", "1 factor of"];
        assert_eq!(line_of(&remarks(&kernel, &known, Arch::SM_80), RemarkKind::Applied, &ahead), LEFT);
    }
    let all = without(&facts, "");
    for (arch, who) in [(Arch::SM_90A, "the copy engine loads"), (Arch::SM_80, "threads load")] {
        let remarks = remarks(&kernel, &all, arch);
        assert_eq!(line_of(&remarks, RemarkKind::Applied, &[who, "2 factors"]), LEFT);
        assert!(!remarks.iter().any(|remark| remark.message.contains("not load")), "{remarks:#?}");
    }
}

const OF_MANY: u32 = line!() + 7;

#[kernel]
fn products(a: View<bf16, 3>, c: View<f32, 3>) {
    let mut acc = Tile::<f32>::zeros([2, 64, 64]);
    for step in 0..a.extent(2).div_ceil(64) {
        let left = a.tile([2, 64, 64]).block((0, 0, step)).load();
        acc = dot(left, left, acc);
    }
    c.tile([2, 64, 64]).block((0, 0, 0)).store(acc);
}

#[test]
fn factors_of_many_matrices_are_not_loaded_ahead() {
    let kernel = products::stage().unwrap();
    for (arch, who) in [(Arch::SM_90A, "not multiplied by warpgroups"), (Arch::SM_80, "threads do not load")]
    {
        let words = [who, "one of many matrices", "let each program multiply one"];
        assert_eq!(line_of(&remarks(&kernel, &[], arch), RemarkKind::Missed, &words), OF_MANY);
    }
}

const READ_TWICE: u32 = line!() + 8;
const IN_A_BRANCH: u32 = READ_TWICE + 5;

#[kernel]
fn shapes_of_loops(a: View<bf16, 2>, b: View<bf16, 2>, c: View<f32, 2>, n: Val<u32>) {
    let mut acc = Tile::<f32>::zeros([64, 64]);
    let mut sum = Tile::<f32>::zeros([64, 64]);
    for step in 0..n {
        let both = a.tile([64, 64]).block((0, step)).load();
        let right = b.tile([64, 64]).block((step, 0)).load();
        acc = dot(both, right, acc);
        sum += both.cast::<f32>();
        if step > 3 {
            acc = dot(right, right, acc);
        }
    }
    c.tile([64, 64]).block((0, 0)).store(acc + sum);
}

/// What stands in the way in the kernel itself.
#[test]
fn kernels_that_load_nothing_ahead() {
    let kernel = shapes_of_loops::stage().unwrap();
    let facts = facts(&["a", "b", "c"]);
    let remarks = remarks(&kernel, &without(&facts, ""), Arch::SM_80);
    assert_eq!(line_of(&remarks, RemarkKind::Missed, &["used by another op", "a second time"]), READ_TWICE);
    assert_eq!(line_of(&remarks, RemarkKind::Missed, &["an `if`", "`for` loop"]), IN_A_BRANCH);
}

const LOAD: u32 = line!() + 4;

#[kernel]
fn rows(x: View<f32, 2>, out: View<f32, 2>) {
    let tile = x.partition([4, 256]).load();
    out.partition([4, 256]).store(tile + 1.0);
}

/// An access in small pieces says which number or pointer it would have to know more of.
#[test]
fn accesses_that_are_not_vectors() {
    let kernel = rows::stage().unwrap();
    let mut facts = facts(&["x", "out"]);
    facts.extend(["x", "out"].map(|view| (format!("{view}_extent1"), Fact::MultipleOf(4))));
    for (missing, what) in [
        ("x", "`x` is a multiple of 16 bytes"),
        ("x_stride0", "`x_stride0` is a multiple of 4"),
        ("x_extent1", "`x_extent1` is a multiple of 4"),
        ("x_stride1", "a stride is 1"),
    ] {
        let remarks = remarks(&kernel, &without(&facts, missing), Arch::SM_80);
        assert_eq!(line_of(&remarks, RemarkKind::Missed, &["accesses of 4 bytes", what]), LOAD, "{missing}");
    }
    assert_eq!(remarks(&kernel, &without(&facts, ""), Arch::SM_80), []);
}

const TURNED: u32 = line!() + 8;

#[kernel]
fn turns(x: View<f32, 2>, out: View<f32, 2>, n: Val<u32>) {
    let mut sum = Tile::<f32>::zeros([64, 64]);
    let fixed = x.tile([64, 64]).block((0, 0)).load();
    for step in 0..n {
        let tile = x.tile([64, 64]).block((0, step)).load();
        sum += tile * fixed.transpose();
    }
    out.tile([64, 64]).block((0, 0)).store(sum);
}

/// A tile that moves between threads in every round.
#[test]
fn exchanges_in_loops() {
    let facts = facts(&["x", "out"]);
    let remarks = remarks(&turns::stage().unwrap(), &without(&facts, ""), Arch::SM_80);
    let words = ["64x64", "through shared memory in every round", "before the loop"];
    assert_eq!(line_of(&remarks, RemarkKind::Missed, &words), TURNED);
}

const LARGE: u32 = line!() + 5;
const TRANSPOSED: u32 = LARGE + 1;

#[kernel]
fn transposed(x: View<f32, 2>, out: View<f32, 2>, m: u32, n: u32) {
    let tile = x.tile([m, n]).at((0, 0)).load();
    out.tile([n, m]).at((0, 0)).store(tile.transpose());
}

/// A tile that threads have no registers for says so, and one that is far beyond is refused before anybody tries.
#[test]
fn tiles_that_are_too_large_for_registers() {
    let of = |m: u32, n: u32| lower(transposed::stage(m, n).unwrap().func(), Arch::SM_80);
    let words = ["tile<1x131072xf32>", "128 registers", "1024 threads, which have 64", "smaller tiles"];
    assert_eq!(line_of(&of(1, 131_072).unwrap().remarks, RemarkKind::Missed, &words), LARGE);
    assert!(!of(1, 65_536).unwrap().remarks.iter().any(|remark| remark.message.contains("registers")));
    // Up to the largest that can be written.
    for (n, registers) in [(8192, 32_768), (1 << 19, 1 << 21)] {
        let error = of(4096, n).unwrap_err().to_string();
        let expected = format!(
            "remarks.rs:{LARGE}:42: `tile_load` makes a tile<4096x{n}xf32>, {registers} registers of each of 1024 threads, which have 64; \
             take smaller tiles, one after the other in a loop or by more programs"
        );
        assert!(error.ends_with(&expected), "{error}");
    }
}

/// What does not fit into shared memory is refused with the line that needs it, the numbers, and what to do.
#[test]
fn exchanges_that_are_too_large() {
    for (arch, limit) in [(Arch::SM_80, 166_912), (Arch::SM_90A, 232_448)] {
        let error = lower(transposed::stage(256, 256).unwrap().func(), arch).unwrap_err().to_string();
        let expected = format!(
            "remarks.rs:{TRANSPOSED}:33: threads exchange elements of tiles here, through 270352 bytes of shared memory in all, \
             and a block of {arch} has {limit}; take smaller tiles"
        );
        assert!(error.ends_with(&expected), "{error}");
    }
    assert!(lower(transposed::stage(128, 256).unwrap().func(), Arch::SM_80).is_ok());
}

const FORGOTTEN: u32 = line!() + 5;

#[kernel]
fn stores_nothing(x: View<f32, 1>, out: View<f32, 1>) {
    let _ = out.partition([64]);
    let _ = x.partition([64]).load() + 1.0;
}

/// A kernel without a store is a mistake more often than not.
#[test]
fn results_that_go_nowhere() {
    let remarks = remarks(&stores_nothing::stage().unwrap(), &[], Arch::SM_80);
    assert_eq!(line_of(&remarks, RemarkKind::Missed, &["has stored nothing"]), FORGOTTEN);
}
