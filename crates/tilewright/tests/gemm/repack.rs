//! Copies of factors with k contiguous, or their rows.

use tilewright::device::{Device, DynBuffer};
use tilewright::gemm::{Operands, Prepared};
use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::{
    Batching, Contiguous, Operand, Placement, Problem, Recipe, Repacked, Side, Storage, Types, repack, simt,
};

use super::common::Case;

/// Bytes that differ from neighbour to neighbour along both directions.
fn pattern(i: usize) -> u8 {
    u8::try_from((i * 37 + i / 251) % 255).unwrap() + 1
}

/// Copies a factor both ways in the simulator, and compares every element and all padding.
fn check(problem: &Problem, side: Side) {
    for contiguous in [Contiguous::K, Contiguous::Rows] {
        check_copy(problem, side, contiguous);
    }
}

fn check_copy(problem: &Problem, side: Side, contiguous: Contiguous) {
    let copy = repack(problem, side, contiguous, 40);
    let bytes = side.element(problem).bytes() as usize;
    let (rows, k) = (side.rows(problem) as usize, problem.k as usize);
    let from = *side.placement(problem);
    let (leading, stride) =
        (usize::try_from(from.leading).unwrap(), usize::try_from(from.batch_stride).unwrap());
    let straight = from.storage == side.k_major();
    let members = problem.batch as usize;
    let index = |member: usize, row: usize, step: usize| {
        member * stride + if straight { row * leading + step } else { step * leading + row }
    };
    let count = index(members - 1, rows - 1, k - 1) + 1;
    let source: Vec<u8> = (0..count * bytes).map(pattern).collect();

    let device = Device::simulator();
    let memory = device.upload(&source).unwrap();
    let operand: DynBuffer = match problem.batching {
        Batching::Strided => (&memory).into(),
        Batching::Pointers => {
            let first = DynBuffer::from(&memory).address();
            let table: Vec<u64> = (0..members).map(|i| first + (i * stride * bytes) as u64).collect();
            (&device.upload(&table).unwrap()).into()
        }
    };
    let size = usize::try_from(copy.bytes).unwrap() + 40;
    let workspace = device.upload(&vec![0xEEu8; size]).unwrap();
    let operands = Operands::new().with(side.operand(), operand).with(Operand::Workspace, &workspace);
    let recipe = Recipe { launches: copy.launch.clone().into_iter().collect(), ..Recipe::default() };
    for report in Prepared::new(&device, &recipe, &operands).unwrap().run().unwrap() {
        report.expect_clean().unwrap_or_else(|error| panic!("{error}\n{problem:?}"));
    }

    let found = workspace.to_vec().unwrap();
    assert_eq!(copy.offset, 256, "the copy starts at a multiple of 256 bytes");
    assert!(found[..256].iter().all(|&byte| byte == 0xEE), "what comes before is not its own");
    let base = DynBuffer::from(&workspace).address();
    let (pitch, step) = (
        usize::try_from(copy.placement.leading).unwrap(),
        usize::try_from(copy.placement.batch_stride).unwrap(),
    );
    assert_eq!(pitch * bytes % 16, 0);
    for member in 0..members {
        let first = match problem.batching {
            Batching::Strided => 256 + member * step * bytes,
            Batching::Pointers => {
                let entry = found[256 + member * 8..][..8].try_into().unwrap();
                usize::try_from(u64::from_le_bytes(entry) - base).unwrap()
            }
        };
        let (lines, length) = if contiguous == Contiguous::K { (rows, k) } else { (k, rows) };
        for line in 0..lines {
            for i in 0..pitch {
                let at = first + (line * pitch + i) * bytes;
                let (row, step) = if contiguous == Contiguous::K { (line, i) } else { (i, line) };
                let expected: Vec<u8> = if i < length {
                    source[index(member, row, step) * bytes..][..bytes].to_vec()
                } else {
                    vec![0; bytes]
                };
                assert_eq!(
                    found[at..at + bytes],
                    expected,
                    "{contiguous:?}: member {member}, row {row}, step {step}; {problem:?}"
                );
            }
        }
    }
}

fn problem(element: Element, b: Storage, leading: u64) -> Problem {
    let problem = Problem::new(8, 70, 83, Types::of(element));
    Problem { b: Placement { leading, ..Placement::dense(b, 83, 70) }, ..problem }
}

#[test]
fn factors_of_every_size_are_transposed() {
    for element in [Element::E4M3, Element::BF16, Element::F32, Element::F64] {
        check(&problem(element, Storage::RowMajor, 80), Side::B);
    }
}

#[test]
fn factors_of_every_size_are_aligned() {
    for element in [Element::I8, Element::F16, Element::TF32, Element::F64] {
        check(&problem(element, Storage::ColumnMajor, 85), Side::B);
    }
}

#[test]
fn accesses_are_as_wide_as_the_source_allows() {
    for (element, leading, alignment, width) in [
        (Element::E4M3, 96, 256, 16),
        (Element::E4M3, 100, 256, 4),
        (Element::BF16, 96, 8, 4),
        (Element::BF16, 97, 256, 1),
    ] {
        let mut problem = Problem::new(96, 8, 64, Types::of(element));
        problem.a = Placement { leading, alignment, ..Placement::dense(Storage::ColumnMajor, 96, 64) };
        let launch = repack(&problem, Side::A, Contiguous::K, 0).launch.unwrap();
        assert!(launch.kernel.key.contains(&format!(" w{width} ")), "{}", launch.kernel.key);
        check(&problem, Side::A);
    }
}

#[test]
fn batches_by_stride_and_by_pointers() {
    for batching in [Batching::Strided, Batching::Pointers] {
        for storage in [Storage::RowMajor, Storage::ColumnMajor] {
            let mut problem = problem(Element::BF16, storage, 90);
            (problem.batch, problem.batching, problem.b.batch_stride) = (3, batching, 90 * 83 + 1);
            check(&problem, Side::B);
        }
    }
}

#[test]
fn a_factor_that_all_members_share_is_copied_once() {
    let mut problem = problem(Element::BF16, Storage::RowMajor, 70);
    (problem.batch, problem.b.batch_stride) = (5, 0);
    let copy = repack(&problem, Side::B, Contiguous::K, 0);
    assert_eq!((copy.placement.batch_stride, copy.bytes), (0, 70 * 88 * 2));
}

#[test]
fn a_product_reads_the_copies() {
    for (batching, contiguous) in [
        (Batching::Strided, Contiguous::K),
        (Batching::Strided, Contiguous::Rows),
        (Batching::Pointers, Contiguous::K),
        (Batching::Pointers, Contiguous::Rows),
    ] {
        reads_the_copies(13, batching, contiguous);
        // Of nothing there are copies too, and lists of where they are.
        reads_the_copies(0, batching, contiguous);
    }
}

fn reads_the_copies(k: u32, batching: Batching, contiguous: Contiguous) {
    let mut problem = Problem::new(20, 30, k, Types::of(Element::F32));
    (problem.batch, problem.batching) = (2, batching);
    problem.b = Placement::dense(Storage::RowMajor, k as usize, 30);
    let a = repack(&problem, Side::A, contiguous, 0);
    let b = repack(&problem, Side::B, contiguous, a.bytes);
    let copied = b.replace(&a.replace(&problem));
    let config: simt::Config = "simt 64x32x8 8x4 s3 g2 p1".parse().unwrap();
    let inner = config.recipe(&copied, Gpu::named("h200").unwrap()).unwrap();
    let redirect = |launch| Repacked::redirect(&b, a.redirect(launch));
    let copies = [a.launch.clone(), b.launch.clone()].into_iter().flatten();
    let launches = copies.chain(inner.launches.into_iter().map(redirect)).collect();
    let workspace = a.bytes + b.bytes;
    Case::new(problem).check(&Recipe { launches, workspace, zeroed: 0 });
}

#[test]
fn empty_factors_need_no_copy() {
    let copy = repack(&Problem::new(0, 3, 4, Types::of(Element::BF16)), Side::A, Contiguous::K, 0);
    assert!(copy.launch.is_none() && copy.bytes == 0);
}
