//! Kernels together with what makes their factors readable: the product from the other side, copies in scratch memory.

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
    problem.a = Placement { leading: u64::from(m) + 1, ..Placement::dense(Storage::ColumnMajor, m, k) };
    problem.b = Placement { leading: u64::from(n) + 3, ..Placement::dense(Storage::RowMajor, k, n) };
    problem
}

#[test]
fn copies_and_the_other_side_change_nothing() {
    for words in ["", "swap", "repackA", "swap repackB", "swap repackA repackB"] {
        for kernel in ["simt 32x64x16 4x4 s2 g8 p1", "simt 32x64x16 4x4 s2 g8 p2"] {
            let problem = awkward(Element::F32, (37, 21, 45));
            let algorithm: Algorithm = format!("{kernel} {words}").parse().unwrap();
            Case::new(problem.clone()).check(&algorithm.recipe(&problem, h200()).unwrap());
        }
    }
}

#[test]
fn members_of_a_batch_are_copied_too() {
    let mut problem = awkward(Element::F32, (9, 10, 11));
    problem.batch = 3;
    problem.a.batch_stride = problem.a.leading * 11 + 5;
    problem.b.batch_stride = 0;
    problem.d.batch_stride = 101;
    let algorithm: Algorithm = "simt 32x64x16 4x4 s2 g8 p1 repackA repackB".parse().unwrap();
    Case::new(problem.clone()).check(&algorithm.recipe(&problem, h200()).unwrap());
}

/// The best candidate of each family, for a product of every type in a bad layout, and with another epilogue for one of them.
#[test]
fn what_is_planned_is_right() {
    let elements = [
        Element::F16,
        Element::BF16,
        Element::TF32,
        Element::F32,
        Element::F64,
        Element::I8,
        Element::U8,
        Element::E4M3,
        Element::E5M2,
    ];
    for (i, element) in (0u32..).zip(elements) {
        let problems = [awkward(element, (9 + i, 70, 33)), Problem::new(70, 9 + i, 40, Types::of(element))];
        for mut problem in problems {
            if element == Element::BF16 {
                problem.epilogue = Epilogue::linear();
            }
            let all = candidates(&problem, h200()).unwrap();
            let mut families = Vec::new();
            for candidate in all {
                let family = std::mem::discriminant(&candidate.algorithm.kernel);
                if families.contains(&family) {
                    continue;
                }
                families.push(family);
                println!("{element}: {}", candidate.algorithm);
                let recipe = candidate.algorithm.recipe(&problem, h200()).unwrap();
                let case = Case { alpha: 2.0, beta: -1.0, ..Case::new(problem.clone()) };
                case.check(&recipe);
            }
        }
    }
}
