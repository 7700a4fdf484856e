//! Epilogues in the kernels of every family: what D, intermediate values and reductions must be follows from the host's epilogue.

use tilewright::device::{Device, Options};
use tilewright::gemm::{Operands, Prepared};
use tilewright::hardware::{Element, Gpu};
use tilewright::kernels::gemm::epilogue::{
    Access, Epilogue, ExtraOperand, HostOperands, Reference, decode, encode, with_reductions,
};
use tilewright::kernels::gemm::{
    GemmError, Operand, Placement, Problem, Recipe, Storage, Types, ampere, gemv, hopper, simt,
};

use super::epilogue::{bytes, numbers};
use Element::{BF16, E4M3, F16, F32, I8};

fn h200() -> &'static Gpu {
    Gpu::named("h200").unwrap()
}

/// Errors of results, relative, and absolute for small ones: what fast functions and sums in f32 may have.
const TOLERANCE: f64 = 1e-5;

/// A family with a small configuration.
type Family = fn(&Problem) -> Result<Recipe, GemmError>;

fn tensor_cores(problem: &Problem) -> Result<Recipe, GemmError> {
    let text = if problem.types.a == I8 {
        "ampere 64x32x64 w2x1 i32 s2 g2 p1"
    } else {
        "ampere 32x32x32 w2x2 i16 s3 g2 p1"
    };
    text.parse::<ampere::Config>()?.recipe(problem, h200())
}

fn cuda_cores(problem: &Problem) -> Result<Recipe, GemmError> {
    "simt 64x32x8 8x4 s3 g2 p1".parse::<simt::Config>()?.recipe(problem, h200())
}

fn few_rows(problem: &Problem) -> Result<Recipe, GemmError> {
    gemv::Config::candidates(problem, h200())[0].recipe(problem, h200())
}

fn warpgroups(problem: &Problem) -> Result<Recipe, GemmError> {
    "hopper 64x32x128B c1x1 s2 coop1 m2".parse::<hopper::Config>()?.recipe(problem, h200())
}

/// Where the numbers of a matrix in memory are.
fn at(placement: &Placement, row: usize, column: usize) -> u64 {
    let [row, column] = [row, column].map(|index| index as u64);
    match placement.storage {
        Storage::RowMajor => row * placement.leading + column,
        Storage::ColumnMajor => column * placement.leading + row,
    }
}

fn memory(placement: &Placement, rows: u32, columns: u32) -> u64 {
    at(placement, rows as usize - 1, columns as usize - 1) + 1
}

/// Runs a family's recipe, and with the rest of it where the epilogue reduces and the family leaves that to others.
fn check(family: Family, problem: &Problem) {
    let problem = Problem { epilogue: problem.epilogue.widened(problem, |_| 256), ..problem.clone() };
    check_recipe(&problem, &with_reductions(&problem, family).unwrap_or_else(|error| panic!("{error}")));
    if problem.epilogue.reduces() {
        check_recipe(&problem, &family(&problem).unwrap_or_else(|error| panic!("{error}")));
    }
}

/// Runs a recipe, and compares everything that it writes.
fn check_recipe(problem: &Problem, recipe: &Recipe) {
    let &Problem { m, n, k, types, .. } = problem;
    let device = Device::simulator_with(Options::default());
    let columns = n / problem.epilogue.columns_for_one();
    let filled = |element, placement: &Placement, rows, columns, salt| {
        bytes(element, numbers(salt, memory(placement, rows, columns)))
    };
    let a = filled(types.a, &problem.a, m, k, 1);
    let b = filled(types.b, &problem.b, k, n, 2);
    let c = filled(types.c, &problem.c, m, columns, 3);
    let d = device
        .alloc::<u8>(usize::try_from(memory(&problem.d, m, columns)).unwrap() * types.d.bytes() as usize);
    let d = d.unwrap();
    let workspace = vec![0u8; usize::try_from(recipe.workspace.max(1)).unwrap()];
    let upload = |bytes: &[u8]| device.upload(bytes).unwrap();
    let mut operands = Operands::new()
        .with(Operand::A, &upload(&a))
        .with(Operand::B, &upload(&b))
        .with(Operand::C, &upload(&c))
        .with(Operand::D, &d)
        .with(Operand::Workspace, &upload(&workspace))
        .with_scalar("alpha", 0.5)
        .with_scalar("beta", -2.0);
    let extras: Vec<(ExtraOperand, Vec<u8>)> = (4..)
        .zip(problem.epilogue.operands())
        .map(|(salt, operand)| {
            let memory = bytes(operand.element, numbers(salt, operand.elements(problem)));
            (operand, memory)
        })
        .collect();
    let mut given = HostOperands::new().with_scalar("alpha", 0.5).with_scalar("beta", -2.0);
    let mut written = Vec::new();
    for (operand, memory) in &extras {
        let buffer = upload(memory);
        operands = operands.with(Operand::Extra(operand.name.clone()), &buffer);
        match operand.access {
            Access::Read => given = given.with(&operand.name, memory),
            _ => written.push((operand, buffer, vec![None; memory.len()])),
        }
    }
    let prepared = Prepared::new(&device, recipe, &operands).unwrap_or_else(|error| panic!("{error}"));
    for report in prepared.run().unwrap_or_else(|error| panic!("{error}")) {
        report.expect_clean().unwrap_or_else(|error| panic!("{error}"));
    }

    let compare = |what: String, element: Element, found: f64, expected: f64| {
        // A value near the middle of two elements may become either.
        let error = TOLERANCE * (1.0 + expected.abs());
        let [low, high] = [expected - error, expected + error].map(|value| {
            let mut memory = [0; 8];
            encode(element, &mut memory, 0, value);
            decode(element, &memory, 0)
        });
        let right = (low..=high).contains(&found);
        assert!(right, "{what} is {found}, expected {low} to {high}; {}", problem.epilogue);
    };
    let reference = Reference::new(problem, &given).unwrap();
    let found = d.to_vec().unwrap();
    for row in 0..m as usize {
        let sum = |column| -> f64 {
            let product = |i| {
                decode(types.a, &a, at(&problem.a, row, i)) * decode(types.b, &b, at(&problem.b, i, column))
            };
            (0..k as usize).map(product).sum()
        };
        let sums: Vec<f64> = (0..n as usize).map(sum).collect();
        let c: Vec<f64> =
            (0..columns as usize).map(|column| decode(types.c, &c, at(&problem.c, row, column))).collect();
        let place = (0, u32::try_from(row).unwrap(), 0);
        let results = reference.row(place, &sums, &c, &mut |operand, index, value: f64| {
            let (.., values) = written.iter_mut().find(|(known, ..)| known.name == operand.name).unwrap();
            let known = &mut values[usize::try_from(index).unwrap()];
            *known = Some(match operand.access {
                Access::Reduce(how) => how.combine(known.unwrap_or(how.start()), value),
                _ => value,
            });
        });
        for (column, expected) in results.into_iter().enumerate() {
            let value = decode(types.d, &found, at(&problem.d, row, column));
            compare(format!("D at ({row}, {column})"), types.d, value, expected);
        }
    }
    for (operand, buffer, values) in written {
        let found = buffer.to_vec().unwrap();
        for (i, expected) in (0u64..).zip(values) {
            if let Some(expected) = expected {
                let value = decode(operand.element, &found, i);
                compare(format!("element {i} of {operand}"), operand.element, value, expected);
            }
        }
    }
}

/// A problem whose C and D are as narrow as the epilogue makes them.
fn problem(m: u32, n: u32, k: u32, types: Types, d: Storage, epilogue: Epilogue) -> Problem {
    let columns = n / epilogue.columns_for_one();
    let c = Placement::dense(Storage::RowMajor, m as usize, columns as usize);
    Problem {
        epilogue,
        c,
        d: Placement::dense(d, m as usize, columns as usize),
        ..Problem::new(m, n, k, types)
    }
}

/// The epilogues that every family must compute, for a product of these extents.
fn epilogues(m: u32, n: u32) -> Vec<Epilogue> {
    let dense = |storage| Placement::dense(storage, m as usize, n as usize);
    let (rows, columns) = (dense(Storage::RowMajor), dense(Storage::ColumnMajor));
    vec![
        Epilogue::linear().bias_per_column("bias", BF16).gelu(),
        Epilogue::new().scale_rows("sa", F32).scale_columns("sb", F32).scale("s").residual("x", F16, columns),
        Epilogue::new()
            .alpha()
            .store("before", F32, rows)
            .row_sums("sums")
            .relu()
            .column_max("largest")
            .amax("amax"),
        Epilogue::new().bias_per_column("bias", F32).swiglu().beta_c(),
    ]
}

fn check_all(family: Family, (m, n, k): (u32, u32, u32), types: Types) {
    for storage in [Storage::RowMajor, Storage::ColumnMajor] {
        for epilogue in epilogues(m, n) {
            check(family, &problem(m, n, k, types, storage, epilogue));
        }
    }
}

#[test]
fn on_tensor_cores() {
    check_all(tensor_cores, (40, 38, 40), Types::of(BF16));
    check_all(tensor_cores, (32, 32, 32), Types::of(F16).with_result(F32));
}

#[test]
fn pairs_of_few_columns_on_warpgroups() {
    // Four columns of results are fewer than the swizzle of a staged tile repeats after.
    let narrow: Family =
        |problem| "hopper 64x8x64B c1x1 s2 coop1 m2".parse::<hopper::Config>()?.recipe(problem, h200());
    for storage in [Storage::RowMajor, Storage::ColumnMajor] {
        let types = Types::of(F16).with_result(F32);
        check(narrow, &problem(72, 12, 40, types, storage, Epilogue::new().swiglu()));
    }
}

#[test]
fn on_warpgroups() {
    check_all(warpgroups, (40, 38, 40), Types::of(BF16));
    check_all(warpgroups, (72, 48, 40), Types::of(F16).with_result(F32));
    let paces: [Family; 3] = [
        |problem| "hopper 64x16x64B c1x1 s2 ping2 m2".parse::<hopper::Config>()?.recipe(problem, h200()),
        |problem| "hopper 128x32x64B c2x1 s2 coop1 m2".parse::<hopper::Config>()?.recipe(problem, h200()),
        |problem| {
            "hopper 64x16x64B c1x1 s2 coop1 m2 split2".parse::<hopper::Config>()?.recipe(problem, h200())
        },
    ];
    for family in paces {
        for epilogue in epilogues(72, 48) {
            check(family, &problem(72, 48, 40, Types::of(BF16), Storage::RowMajor, epilogue));
        }
    }
}

#[test]
fn on_cuda_cores() {
    check_all(cuda_cores, (33, 38, 9), Types::of(F32));
}

#[test]
fn with_few_rows() {
    check_all(few_rows, (1, 48, 64), Types::of(BF16));
    check_all(few_rows, (7, 38, 72), Types::of(BF16));
}

#[test]
fn where_blocks_share_the_steps_of_k() {
    let parts: [Family; 2] = [
        |problem| "simt 64x32x8 8x4 s3 g2 p2".parse::<simt::Config>()?.recipe(problem, h200()),
        |problem| "gemv t1 w2 s3 p2".parse::<gemv::Config>()?.recipe(problem, h200()),
    ];
    for family in parts {
        for epilogue in epilogues(5, 38) {
            let problem = problem(5, 38, 70, Types::of(F32), Storage::RowMajor, epilogue);
            check(family, &problem);
            // The recipe of a family reduces by itself, too.
            let reduces = problem.epilogue.reduces();
            assert_eq!(family(&problem).unwrap().launches.len() > 1, reduces, "{}", problem.epilogue);
        }
    }
}

#[test]
fn results_of_eight_bits() {
    let quantised = || Epilogue::new().scale("s").amax("amax");
    for family in [tensor_cores, warpgroups] {
        let types = Types::of(BF16).with_result(E4M3);
        check(family, &problem(40, 48, 40, types, Storage::RowMajor, quantised()));
    }
    let types = Types { c: F32, ..Types::of(I8).with_result(I8) };
    let scales = Epilogue::new().scale_rows("sa", F32).scale_columns("sb", F32);
    for family in [tensor_cores, warpgroups] {
        check(family, &problem(40, 48, 64, types, Storage::RowMajor, scales.clone()));
    }
}

#[test]
fn transposed_products() {
    for epilogue in epilogues(38, 40).into_iter().take(3) {
        let problem = problem(38, 40, 40, Types::of(BF16), Storage::RowMajor, epilogue);
        check(tensor_cores, &problem.transposed());
        check(warpgroups, &problem.transposed());
    }
    let pairs =
        problem(38, 40, 40, Types::of(BF16), Storage::RowMajor, Epilogue::new().swiglu()).transposed();
    let error = tensor_cores(&pairs).unwrap_err().to_string();
    assert!(error.contains("it makes one column of two, and the product is transposed"), "{error}");
}
