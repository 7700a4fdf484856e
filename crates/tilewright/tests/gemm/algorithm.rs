//! Kernels together with what makes their factors readable: the product from the other side, copies in scratch memory.

use tilewright::device::Device;
use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::epilogue::Epilogue;
use tilewright::kernels::gemm::{Algorithm, Placement, Problem, Storage, Types, candidates};

use crate::common::Case;

fn h200() -> &'static Gpu {
    Gpu::named("h200").unwrap()
}

/// A product whose factors lie badly: the other way round, with gaps that suit nobody.
fn awkward(element: Element, (m, n, k): (u32, u32, u32)) -> Problem {
    let mut problem = Problem::new(m, n, k, Types::of(element));
    problem.a = Placement {
        leading: u64::from(m) + 1,
        ..Placement::dense(Storage::ColumnMajor, m as usize, k as usize)
    };
    problem.b = Placement {
        leading: u64::from(n) + 3,
        ..Placement::dense(Storage::RowMajor, k as usize, n as usize)
    };
    problem
}

#[test]
fn copies_and_the_other_side_change_nothing() {
    let problem = awkward(Element::F32, (37, 21, 45));
    for (parts, words) in [(1, ""), (2, "swap"), (1, "repackA"), (2, "swap repackB"), (2, "repackA repackB")]
    {
        let algorithm: Algorithm = format!("simt 32x64x16 4x4 s3 g8 p{parts} {words}").parse().unwrap();
        Case::new(problem.clone()).check(&algorithm.recipe(&problem, h200()).unwrap());
    }
}

#[test]
fn members_of_a_batch_are_copied_too() {
    let mut problem = awkward(Element::F32, (9, 10, 11));
    problem.batch = 3;
    problem.a.batch_stride = problem.a.leading * 11 + 5;
    problem.b.batch_stride = 0;
    problem.d.batch_stride = 101;
    let algorithm: Algorithm = "simt 32x64x16 4x4 s3 g8 p1 repackA repackB".parse().unwrap();
    Case::new(problem.clone()).check(&algorithm.recipe(&problem, h200()).unwrap());
}

/// The best candidate of each family for products of several types, half of them in a bad layout.
#[test]
fn what_is_planned_is_right() {
    let device = Device::simulator();
    let dense = |element, (m, n, k)| Problem::new(m, n, k, Types::of(element));
    let linear = Problem { epilogue: Epilogue::linear(), ..dense(Element::BF16, (70, 9, 40)) };
    let problems = [
        awkward(Element::F16, (9, 70, 33)),
        awkward(Element::E4M3, (20, 70, 33)),
        awkward(Element::TF32, (9, 70, 33)),
        dense(Element::I8, (20, 70, 48)),
        dense(Element::F64, (12, 30, 20)),
        linear,
    ];
    for problem in problems {
        let mut families = Vec::new();
        for candidate in candidates(&problem, h200()).unwrap() {
            let family = std::mem::discriminant(&candidate.algorithm.kernel);
            if families.contains(&family) {
                continue;
            }
            families.push(family);
            println!("{}: {}", problem.types.a, candidate.algorithm);
            let recipe = candidate.algorithm.recipe(&problem, h200()).unwrap();
            let case = Case { alpha: 2.0, beta: -1.0, ..Case::new(problem.clone()) };
            case.check_on(&device, &recipe, 0);
        }
    }
}
