//! Which algorithm for which problem: all that are legal, in the order of their predicted times.

use tilewright_hardware::{Element, Gpu};

use super::GemmError;
use super::algorithm::{Algorithm, KernelConfig, seen, sides};
use super::epilogue::Epilogue;
use super::factor::Side;
use super::model::{Model, Prediction};
use super::problem::{Accumulation, Batching, Placement, Problem, Storage, Types};
use super::repack::{Contiguous, repack};

/// An algorithm that computes a problem, and what the model thinks of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// How long it takes, and why.
    pub predicted: Prediction,
}

/// Every algorithm that is worth trying, the best first. Never empty for a problem that makes sense.
///
/// # Errors
/// If the problem makes no sense, no kernel multiplies its types on this chip, or none can number its tiles.
pub fn candidates(problem: &Problem, gpu: &Gpu) -> Result<Vec<Candidate>, GemmError> {
    problem.check()?;
    let all = legal(problem, gpu);
    if all.is_empty() { Err(unknown(problem, gpu)) } else { Ok(all) }
}

/// The algorithms for a problem that makes sense.
fn legal(problem: &Problem, gpu: &Gpu) -> Vec<Candidate> {
    let mut all: Vec<Candidate> = Vec::new();
    for transposed in [false, true] {
        for (repack_a, repack_b, contiguous) in copies(problem, transposed) {
            if !affordable(problem, gpu, transposed, (repack_a, repack_b, contiguous)) {
                continue;
            }
            // Seen from the other side, some epilogues cannot be computed.
            let inner = seen(problem, transposed, (repack_a, repack_b), contiguous);
            if inner.check().is_err() {
                continue;
            }
            let as_it_lies = !repack_a && !repack_b;
            for kernel in KernelConfig::candidates(&inner, gpu) {
                if !as_it_lies && kernel.contiguous() != contiguous {
                    continue;
                }
                let algorithm = Algorithm { transposed, repack_a, repack_b, kernel };
                let predicted = algorithm.predict_by(&Model::FITTED, &inner, gpu);
                all.push(Candidate { algorithm, predicted });
            }
        }
    }
    // Equal times keep the order in which they were found, so that it is the same every time.
    all.sort_by(|x, y| x.predicted.seconds().total_cmp(&y.predicted.seconds()));
    all
}

/// The best of [`candidates`].
///
/// # Errors
/// As [`candidates`].
pub fn plan(problem: &Problem, gpu: &Gpu) -> Result<Candidate, GemmError> {
    let all = candidates(problem, gpu)?;
    all.into_iter().next().ok_or_else(|| unknown(problem, gpu))
}

/// Why nothing computes a problem that makes sense: its types, or that it is too large, if a small one of the same types is computed.
fn unknown(problem: &Problem, gpu: &Gpu) -> GemmError {
    if !legal(&Problem::new(64, 64, 64, problem.types), gpu).is_empty() {
        let Problem { m, n, k, batch, .. } = *problem;
        return GemmError::TooManyTiles { m, n, k, batch };
    }
    let Types { a, b, accumulate, d, .. } = problem.types;
    GemmError::Types {
        a: a.name(),
        b: b.name(),
        accumulate: accumulate.name(),
        d: d.name(),
        expected: format!(
            "on {} there are f16, bf16, tf32 and f32 (sums in f32), f64 (in f64), i8 and u8 (in i32){}",
            gpu.title,
            if gpu.arch.number >= 89 { ", e4m3 and e5m2 (in f32)" } else { "" }
        ),
    }
}

/// Which factors it may pay to copy first, and how copies lie: those that the fastest kernels cannot read as they are.
fn copies(problem: &Problem, transposed: bool) -> Vec<(bool, bool, Contiguous)> {
    let turned = if transposed { problem.transposed() } else { problem.clone() };
    let mut all = vec![(false, false, Contiguous::K)];
    for contiguous in [Contiguous::K, Contiguous::Rows] {
        let awkward = [Side::A, Side::B].map(|side| awkward(&turned, side, contiguous));
        let pairs = [(true, false), (false, true), (true, true)].into_iter();
        let some = pairs.filter(|&(a, b)| (awkward[0] || !a) && (awkward[1] || !b));
        all.extend(some.map(|(a, b)| (a, b, contiguous)));
    }
    all
}

/// Tensor cores of Hopper read 16-bit types either way, others with k contiguous; the copy engine wants multiples of 16 bytes. CUDA cores
/// turn what has k contiguous element by element.
fn awkward(problem: &Problem, side: Side, contiguous: Contiguous) -> bool {
    let (placement, element) = (side.placement(problem), side.element(problem));
    let k_major = side.is_k_major(problem);
    match contiguous {
        Contiguous::K => {
            let readable = element.bytes() == 2 || k_major;
            !readable || !placement.suits_copy_engine(element, problem.batch)
        }
        Contiguous::Rows => matches!(element, Element::F32 | Element::F64) && k_major,
    }
}

/// Whether copies of factors are worth their memory: they take no more than twice what the matrices do, and both together no more than the
/// chip has. Only copies that are mostly padding take more, those of short lines: a row of one bf16 becomes eight. Kernels that need no
/// copies compute everything.
fn affordable(
    problem: &Problem,
    gpu: &Gpu,
    transposed: bool,
    (a, b, contiguous): (bool, bool, Contiguous),
) -> bool {
    let turned = if transposed { problem.transposed() } else { problem.clone() };
    // In floats, which do not overflow.
    let copies: f64 = sides(a, b).map(|side| repack(&turned, side, contiguous, 0).bytes as f64).sum();
    let matrices = in_memory(problem);
    copies == 0.0 || (copies <= 2.0 * matrices && copies + matrices <= gpu.memory as f64)
}

/// Bytes of A, B and D. What all members of a batch share is there once.
fn in_memory(problem: &Problem) -> f64 {
    let Problem { m, n, k, types, .. } = *problem;
    let of = |rows: u32, columns: u32, element: Element, placement: &Placement| {
        let shared = problem.batching == Batching::Strided && placement.batch_stride == 0;
        let members = if shared { 1 } else { problem.batch };
        [rows, columns, members, element.bytes()].into_iter().map(f64::from).product::<f64>()
    };
    of(m, k, types.a, &problem.a) + of(k, n, types.b, &problem.b) + of(m, n, types.d, &problem.d)
}

/// Problems that one algorithm suits: the key of a cache of plans.
///
/// Everything that decides whether an algorithm is legal is here exactly: types, storage, what alignment of addresses and distances
/// allows, the epilogue. Extents are rounded: exact up to 64, up to 2048 to multiples of 64, beyond to an eighth of the power of two
/// below. What is legal for one member of a class is legal for all but where a configuration depends on the exact extents (a split
/// into more parts than there are steps); whoever takes an algorithm out of a cache checks it once more, which costs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ShapeClass {
    extents: [u32; 4],
    types: Types,
    batching: Batching,
    accumulation: Accumulation,
    placements: [(Storage, u32, bool); 4],
    epilogue: Epilogue,
}

impl ShapeClass {
    /// The class of a problem.
    #[must_use]
    pub fn of(problem: &Problem) -> ShapeClass {
        let placement = |placement: &Placement, element: Element| {
            let bytes =
                element.bytes() * placement.vector(element, problem.batch, 16 / element.bytes().min(16));
            (placement.storage, bytes, problem.batch > 1 && placement.batch_stride == 0)
        };
        let types = problem.types;
        ShapeClass {
            extents: [problem.m, problem.n, problem.k, problem.batch].map(bucket),
            types,
            batching: problem.batching,
            accumulation: problem.accumulation,
            placements: [
                placement(&problem.a, types.a),
                placement(&problem.b, types.b),
                placement(&problem.c, types.c),
                placement(&problem.d, types.d),
            ],
            epilogue: problem.epilogue.clone(),
        }
    }
}

/// The largest extent of those that count as the same.
fn bucket(extent: u32) -> u32 {
    match extent {
        0..=64 => extent,
        65..=2048 => extent.next_multiple_of(64),
        _ => {
            let eighth = 1 << (extent.ilog2() - 3);
            extent.div_ceil(eighth).saturating_mul(eighth)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str) -> &'static Gpu {
        Gpu::named(name).unwrap()
    }

    fn bf16(m: u32, n: u32, k: u32) -> Problem {
        Problem::new(m, n, k, Types::of(Element::BF16))
    }

    fn best(problem: &Problem) -> Candidate {
        plan(problem, gpu("h200")).unwrap()
    }

    /// Blocks of the last launch, which is the product itself.
    fn blocks(problem: &Problem, candidate: &Candidate) -> u32 {
        let recipe = candidate.algorithm.recipe(problem, gpu("h200")).unwrap();
        recipe.launches.last().unwrap().grid.into_iter().product()
    }

    #[test]
    fn large_squares_get_large_tiles() {
        for n in [4096, 8192, 16384] {
            let candidate = best(&bf16(n, n, n));
            let KernelConfig::Hopper(config) = candidate.algorithm.kernel else { panic!("{candidate:?}") };
            assert!(config.m * config.n >= 128 * 128, "{}", candidate.algorithm);
            assert_eq!(candidate.predicted.binding().name, "tensor cores");
        }
    }

    #[test]
    fn few_rows_keep_the_whole_chip_busy() {
        for (m, n, k) in [(1, 4096, 4096), (16, 4096, 4096), (16, 6144, 4096), (64, 8192, 8192)] {
            let problem = bf16(m, n, k);
            let candidate = best(&problem);
            let streams = matches!(candidate.algorithm.kernel, KernelConfig::Gemv(_));
            assert!(streams || candidate.algorithm.transposed, "{m}: {}", candidate.algorithm);
            assert!(blocks(&problem, &candidate) >= 96, "{m}: {}", candidate.algorithm);
        }
    }

    #[test]
    fn large_factors_are_turned_for_the_cuda_cores() {
        let f32 = |n: u32| best(&Problem::new(n, n, n, Types::of(Element::F32))).algorithm;
        let large = f32(4096);
        assert!(
            matches!(large.kernel, KernelConfig::Simt(_)) && (large.repack_a || large.repack_b),
            "{large}"
        );
        let small = f32(512);
        assert!(!small.repack_a && !small.repack_b, "{small}");
    }

    #[test]
    fn large_matrices_that_the_copy_engine_cannot_read_are_copied_first() {
        let mut problem = bf16(8192, 8192, 8192);
        problem.a.leading += 1;
        let candidate = best(&problem);
        assert!(candidate.algorithm.repack_a ^ candidate.algorithm.repack_b, "{}", candidate.algorithm);
        assert!(matches!(candidate.algorithm.kernel, KernelConfig::Hopper(_)));
        // One that is read once is not worth it.
        let mut problem = bf16(1, 8192, 8192);
        problem.b.leading += 1;
        let candidate = best(&problem);
        assert!(!candidate.algorithm.repack_a && !candidate.algorithm.repack_b, "{}", candidate.algorithm);
    }

    #[test]
    fn eight_bit_factors_get_k_contiguous() {
        let mut problem = Problem::new(4096, 4096, 4096, Types::of(Element::E4M3));
        problem.b = Placement::dense(Storage::RowMajor, 4096, 4096);
        let candidate = best(&problem);
        assert!(matches!(candidate.algorithm.kernel, KernelConfig::Hopper(_)), "{}", candidate.algorithm);
        assert!(candidate.algorithm.repack_a || candidate.algorithm.repack_b, "{}", candidate.algorithm);
    }

    /// Problems of all kinds: two for each type.
    fn problems(elements: &[Element]) -> Vec<Problem> {
        let mut all = Vec::new();
        for (i, &element) in elements.iter().enumerate() {
            let (m, n, k) = [(1, 1, 1), (3, 1000, 0), (16, 4097, 129), (300, 200, 4096)][i % 4];
            let awkward = Problem {
                a: Placement::dense(Storage::ColumnMajor, m as usize, k as usize),
                b: Placement {
                    leading: u64::from(n) + 3,
                    alignment: element.bytes(),
                    batch_stride: 0,
                    ..Placement::dense(Storage::RowMajor, k as usize, n as usize)
                },
                d: Placement::dense(Storage::ColumnMajor, m as usize, n as usize),
                batch: 3,
                batching: if i % 2 == 0 { Batching::Pointers } else { Batching::Strided },
                ..Problem::new(m, n, k, Types::of(element))
            };
            all.extend([Problem::new(300, 200, 4096, Types::of(element)), awkward]);
        }
        all
    }

    const ALL: [Element; 8] = [
        Element::F16,
        Element::BF16,
        Element::TF32,
        Element::F32,
        Element::F64,
        Element::I8,
        Element::U8,
        Element::E4M3,
    ];

    #[test]
    fn there_is_an_algorithm_for_everything_and_each_is_legal() {
        let chips: [(&str, &[Element]); 3] = [("h200", &ALL), ("a100", &ALL[..7]), ("rtx4090", &ALL[5..])];
        for (name, elements) in chips {
            let chip = gpu(name);
            for problem in problems(elements) {
                let all =
                    candidates(&problem, chip).unwrap_or_else(|error| panic!("{name}: {problem:?}: {error}"));
                assert!(all.is_sorted_by(|x, y| x.predicted.seconds() <= y.predicted.seconds()));
                for candidate in all.iter().take(3) {
                    let algorithm = candidate.algorithm;
                    let recipe = algorithm.recipe(&problem, chip);
                    let recipe = recipe.unwrap_or_else(|error| panic!("{algorithm}: {problem:?}: {error}"));
                    assert!(!recipe.launches.is_empty() && recipe.zeroed <= recipe.workspace);
                    assert_eq!(algorithm.to_string().parse::<Algorithm>().unwrap(), algorithm);
                }
            }
        }
    }

    #[test]
    fn types_that_nobody_multiplies_are_refused() {
        for (name, element) in [("a100", Element::E4M3), ("h200", Element::U64)] {
            let error =
                plan(&Problem::new(64, 64, 64, Types::of(element)), gpu(name)).unwrap_err().to_string();
            assert!(error.starts_with(&format!("there is no product of {element} and {element}")), "{error}");
        }
    }

    #[test]
    fn what_is_too_large_is_not_blamed_on_its_types() {
        let most = 2_147_483_392;
        for problem in [bf16(most, most, most), Problem { batch: most, ..bf16(300, 300, 300) }] {
            let error = plan(&problem, gpu("h200")).unwrap_err().to_string();
            assert!(error.contains("compute it in parts") && error.contains("2147483392"), "{error}");
        }
        let nothing = best(&bf16(0, 0, 0)).predicted.seconds();
        assert!(nothing.is_sign_positive(), "{nothing}");
    }

    #[test]
    fn results_without_elements_need_no_launch() {
        for problem in [bf16(0, 5, 5), bf16(5, 0, 5)] {
            let candidate = best(&problem);
            let recipe = candidate.algorithm.recipe(&problem, gpu("h200")).unwrap();
            assert!(recipe.launches.is_empty());
        }
    }

    #[test]
    fn copies_of_factors_are_no_larger_than_worth_it_and_fit_into_the_memory() {
        // Copies of rows of one element would be eight times as large as the factors.
        for (m, n) in [(0x7fff_ff00, 1), (1, 0x7fff_ff00), (100_000, 1)] {
            for gpu in Gpu::ALL {
                let problem = bf16(m, n, 1);
                for candidate in candidates(&problem, gpu).unwrap() {
                    let recipe = candidate.algorithm.recipe(&problem, gpu).unwrap();
                    assert!(
                        u128::from(recipe.workspace) <= 8 * u128::from(m.max(n)),
                        "{m} x {n} on {}: {} takes {}",
                        gpu.name,
                        candidate.algorithm,
                        recipe.workspace
                    );
                }
            }
        }
        // A factor of 60 GB and its copy fit into an H200, and not into an H100.
        let large = bf16(200_001, 1000, 150_001);
        let is_copied =
            |Algorithm { transposed, repack_a, repack_b, .. }| if transposed { repack_b } else { repack_a };
        let copied = |name| candidates(&large, gpu(name)).unwrap().iter().any(|c| is_copied(c.algorithm));
        assert_eq!((copied("h200"), copied("h100")), (true, false));
    }

    #[test]
    fn extents_up_to_the_largest_are_planned() {
        let extents = [0u32, 1, 9, 100, 0x4000_0000, 0x7fff_fefb, 0x7fff_ff00];
        let types = [Element::BF16, Element::E4M3, Element::I8, Element::F32, Element::F64];
        let mut planned = 0;
        for (i, &m) in extents.iter().enumerate() {
            for (j, &n) in extents.iter().enumerate() {
                for (l, &k) in extents.iter().enumerate() {
                    // All types and batches, by turns.
                    let element = types[(i + j + l) % types.len()];
                    let batch = [1, 3, 0, 100_000, 0x7fff_ff00][(i + 2 * j + 3 * l) % 5];
                    let mut problem = Problem { batch, ..Problem::new(m, n, k, Types::of(element)) };
                    if (i + j) % 2 == 1 {
                        (problem.a, problem.b) = (
                            Placement::dense(Storage::ColumnMajor, m as usize, k as usize),
                            Placement::dense(Storage::RowMajor, k as usize, n as usize),
                        );
                    }
                    if l % 2 == 1 && element != Element::F64 {
                        let reduced = Epilogue::linear().row_sums("r").column_max("c").amax("x");
                        problem.epilogue = reduced.fitted(&problem);
                    }
                    match candidates(&problem, gpu("h200")) {
                        Ok(all) => {
                            planned += 1;
                            for candidate in [&all[0], &all[all.len() / 2], &all[all.len() - 1]] {
                                candidate.algorithm.recipe(&problem, gpu("h200")).unwrap();
                            }
                        }
                        Err(error) => assert!(
                            matches!(
                                error,
                                GemmError::TooManyTiles { .. }
                                    | GemmError::Matrix { what: "the batch stride", .. }
                            ),
                            "{m} x {n} x {k}, {batch}: {error}"
                        ),
                    }
                    // Whoever asks for copies gets their size, or the largest number.
                    let copied: Algorithm =
                        "ampere 128x16x32 w4x1 i16 s4 g8 p1 repackA repackB".parse().unwrap();
                    let _ = copied.recipe(&problem, gpu("h200"));
                }
            }
        }
        assert!(planned > 100, "{planned}");
    }

    #[test]
    fn what_suits_one_of_a_class_suits_all() {
        let (mut pairs, mut refused) = (0, 0);
        for problem in problems(&ALL) {
            let algorithm = best(&problem).algorithm;
            for (dm, dn, dk) in [(1, 0, 0), (0, 7, 0), (0, 0, 5), (15, 40, 100)] {
                let mut other = problem.clone();
                (other.m, other.n, other.k) = (problem.m + dm, problem.n + dn, problem.k.saturating_sub(dk));
                // Leading dimensions with the same alignment, large enough for both.
                for placement in [&mut other.a, &mut other.b, &mut other.c, &mut other.d] {
                    placement.leading += 4096;
                    placement.batch_stride = placement.batch_stride.min(1) * placement.leading * 8192;
                }
                if ShapeClass::of(&problem) == ShapeClass::of(&other) {
                    pairs += 1;
                    refused += usize::from(algorithm.check(&other, gpu("h200")).is_err());
                }
            }
        }
        assert!(pairs >= 16, "{pairs}");
        assert_eq!(refused, 0);
    }

    #[test]
    fn classes_tell_apart_what_kernels_do() {
        let base = bf16(128, 128, 128);
        let differs = |change: &dyn Fn(&mut Problem)| {
            let mut other = base.clone();
            change(&mut other);
            ShapeClass::of(&other) != ShapeClass::of(&base)
        };
        assert!(differs(&|p| p.a.alignment = 2));
        assert!(differs(&|p| p.b.leading = 129));
        assert!(differs(&|p| p.d.storage = Storage::ColumnMajor));
        assert!(differs(&|p| p.m = 129));
        assert!(differs(&|p| p.epilogue = Epilogue::linear()));
        assert!(!differs(&|p| p.m = 127));
        assert!(!differs(&|p| p.b.leading = 136));
        assert!([65, 127, 128].iter().all(|&n| bucket(n) == 128) && bucket(2049) == 2304 && bucket(64) == 64);
        assert!(bucket(u32::MAX) == u32::MAX);
    }
}
