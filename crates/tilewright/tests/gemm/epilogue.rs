//! Epilogues alone: a kernel that applies one to a matrix of sums, against the host's.

use std::sync::Arc;

use tilewright::device::{Device, Options};
use tilewright::gemm::{Operands, Prepared};
use tilewright::hardware::Element;
use tilewright::kernels::gemm::epilogue::{
    Access, Epilogue, Expr, ExtraOperand, Formula, HostOperands, How, Lanes, Piece, Pieces, Place, Real,
    Reference, Shape, add_reductions, decode, encode, with_reductions,
};
use tilewright::kernels::gemm::{
    Binding, KernelSource, Launch, Operand, Placement, Problem, Recipe, Storage, Types,
};
use tilewright::lang::prelude::*;

/// Bytes of outputs before a run.
const POISON: u8 = 0xA5;

/// A warp takes 16 rows and eight runs of columns, in the order of a tensor core's result: the rows `lane / 4` and eight further, the
/// columns of run `lane % 4` and four further.
#[kernel(threads = 32)]
fn apply_epilogue<R: Number>(
    sums: Global<R>,
    out: Global<R>,
    rows: Val<u32>,
    columns: Val<u32>,
    problem: Problem,
    run: u32,
    bounded: bool,
    finishes: bool,
) {
    let mut epilogue = problem.epilogue.stage::<R>(&problem);
    let merged = problem.epilogue.columns_for_one();
    let (top, left) = (block_id(1) * 16u32, block_id(0) * (8 * run));
    let batch = block_id(2);
    let lane = lane_id();
    epilogue.begin();
    for right in unroll(0..2u32) {
        for down in unroll(0..2u32) {
            let row = top + lane / 4u32 + down * 8;
            let column = left + lane % 4u32 * run + right * (4 * run);
            let bounds = if bounded { Some((rows, columns)) } else { None };
            let place = Place { batch, row, column, bounds };
            let index = (batch * rows + row) * columns + column;
            let inside: Vec<Val<bool>> = (0..run).map(|i| place.inside(i)).collect();
            let mine = (0..run).map(|i| sums.at(index + i).load_if(inside[i as usize], R::ZERO));
            let results = epilogue.apply(place, Vector::new(mine), None);
            for (i, value) in (0u32..).zip(results.elements()) {
                let index = (batch * rows + row) * (columns / merged) + column / merged + i;
                out.at(index).store_if(inside[(i * merged) as usize], value);
            }
        }
    }
    if finishes {
        let piece = Piece { batch, across: block_id(0), down: block_id(1) };
        epilogue.finish(Lanes::FRAGMENT, piece);
    }
}

/// A problem whose sums are given.
struct Case {
    problem: Problem,
    /// Elements of a run.
    run: u32,
    alpha: f64,
    beta: f64,
    /// Largest error of a result, relative to it, and absolute where it is small.
    tolerance: f64,
    /// What elements of C are before anything is written there.
    c: f64,
    /// Whether the kernel finishes reductions.
    finishes: bool,
}

impl Case {
    fn new(m: u32, n: u32, types: Types, epilogue: impl Into<Epilogue>) -> Case {
        let epilogue = epilogue.into();
        let columns = n / epilogue.columns_for_one();
        let dense = Placement::dense(Storage::RowMajor, m as usize, columns as usize);
        let problem = Problem { epilogue, c: dense, d: dense, ..Problem::new(m, n, 1, types) };
        Case { problem, run: 2, alpha: 0.5, beta: -2.0, tolerance: 0.0, c: 3.0, finishes: false }
    }

    /// Checks both ways to reduce.
    fn check_reducing(self) {
        self.check();
        Case { finishes: true, ..self }.check();
    }

    fn check(&self) {
        match self.problem.epilogue.computes_in(&self.problem.types) {
            Element::F64 => self.check_in::<f64>(),
            _ => self.check_in::<f32>(),
        }
    }

    fn recipe<R: Number>(&self) -> Recipe {
        if self.finishes {
            let mut recipe = self.product::<R>(self.problem.clone());
            let [across, down, _] = recipe.launches[0].grid;
            add_reductions(&self.problem, Pieces { across, down }, &mut recipe);
            return recipe;
        }
        with_reductions(&self.problem, |problem| Ok(self.product::<R>(problem.clone()))).unwrap()
    }

    fn product<R: Number>(&self, problem: Problem) -> Recipe {
        let (run, finishes) = (self.run, self.finishes);
        let bounded = !(problem.m.is_multiple_of(16) && problem.n.is_multiple_of(8 * run));
        let mut bindings = problem.epilogue.bindings(&problem);
        bindings.extend([
            ("sums".to_owned(), Binding::Pointer(Operand::A, 0)),
            ("out".to_owned(), Binding::Pointer(Operand::D, 0)),
            ("rows".to_owned(), Binding::U32(problem.m)),
            ("columns".to_owned(), Binding::U32(problem.n)),
        ]);
        let grid = [problem.n.div_ceil(8 * run), problem.m.div_ceil(16), problem.batch];
        let key = format!("test {} {:?} run {run} {bounded}", problem.epilogue, problem.types);
        let stage = Arc::new(move || apply_epilogue::stage::<R>(problem.clone(), run, bounded, finishes));
        let launches = vec![Launch::new(KernelSource { key, stage }, grid, bindings)];
        Recipe { launches, ..Recipe::default() }
    }

    fn check_in<R: Number>(&self) {
        let problem = &self.problem;
        problem.check().unwrap();
        let device = Device::simulator_with(Options::default());
        let merged = problem.epilogue.columns_for_one();
        let sums: Vec<f64> = numbers(1, u64::from(problem.batch * problem.m * problem.n)).collect();
        let out_count = sums.len() / merged as usize;
        let width = R::ELEMENT.bytes() as usize;
        let out = device.upload(&vec![POISON; out_count * width]).unwrap();
        let c = vec![self.c; out_count];
        let mut operands = Operands::new()
            .with(Operand::A, &device.upload(&bytes(R::ELEMENT, sums.iter().copied())).unwrap())
            .with(Operand::C, &device.upload(&bytes(problem.types.c, c.iter().copied())).unwrap())
            .with(Operand::D, &out)
            .with_scalar("alpha", self.alpha)
            .with_scalar("beta", self.beta);

        let extras: Vec<(ExtraOperand, Vec<u8>)> = problem
            .epilogue
            .operands()
            .into_iter()
            .zip(2..)
            .map(|(operand, salt)| {
                let count = operand.elements(problem);
                let memory = match operand.access {
                    Access::Read => bytes(operand.element, numbers(salt, count)),
                    _ => {
                        vec![POISON; usize::try_from(count).unwrap() * operand.element.bytes() as usize]
                    }
                };
                (operand, memory)
            })
            .collect();
        let mut given = HostOperands::new().with_scalar("alpha", self.alpha).with_scalar("beta", self.beta);
        let mut written = Vec::new();
        for (operand, memory) in &extras {
            let buffer = device.upload(memory).unwrap();
            operands = operands.with(Operand::Extra(operand.name.clone()), &buffer);
            match operand.access {
                Access::Read => given = given.with(&operand.name, memory),
                _ => written.push((operand, buffer, vec![None; memory.len()])),
            }
        }

        let recipe = self.recipe::<R>();
        let workspace = vec![POISON; usize::try_from(recipe.workspace.max(1)).unwrap()];
        operands = operands.with(Operand::Workspace, &device.upload(&workspace).unwrap());
        let prepared = Prepared::new(&device, &recipe, &operands).unwrap_or_else(|error| panic!("{error}"));
        for report in prepared.run().unwrap_or_else(|error| panic!("{error}")) {
            report.expect_clean().unwrap_or_else(|error| panic!("{error}"));
        }

        let reference = Reference::new(problem, &given).unwrap();
        let found = out.to_vec().unwrap();
        let (row_length, d_length) = (problem.n as usize, (problem.n / merged) as usize);
        for line in 0..problem.batch * problem.m {
            let start = line as usize * row_length;
            let d_start = line as usize * d_length;
            let expected = reference.row(
                (line / problem.m, line % problem.m, 0),
                &sums[start..start + row_length],
                &c[d_start..d_start + d_length],
                &mut |operand, index, value: f64| {
                    let (.., values) =
                        written.iter_mut().find(|(known, ..)| known.name == operand.name).unwrap();
                    let known = &mut values[usize::try_from(index).unwrap()];
                    *known = Some(match operand.access {
                        Access::Reduce(how) => how.combine(known.unwrap_or(how.start()), value),
                        _ => {
                            assert!(known.is_none(), "element {index} of {operand} is written twice");
                            value
                        }
                    });
                },
            );
            for (i, expected) in expected.into_iter().enumerate() {
                let value = decode(R::ELEMENT, &found, (d_start + i) as u64);
                self.compare(&format!("result {i} of line {line}"), value, expected, 0.0);
            }
        }
        for (operand, buffer, values) in written {
            let (found, width) = (buffer.to_vec().unwrap(), operand.element.bytes() as usize);
            for (i, expected) in values[..found.len() / width].iter().enumerate() {
                let what = format!("element {i} of {operand}");
                match *expected {
                    None => assert!(
                        found[i * width..(i + 1) * width].iter().all(|&byte| byte == POISON),
                        "{what}"
                    ),
                    Some(expected) => {
                        let mut rounded = vec![0; width];
                        encode(operand.element, &mut rounded, 0, expected);
                        let step = 0.5f64.powi(operand.element.mantissa_bits().unwrap().cast_signed());
                        let value = decode(operand.element, &found, i as u64);
                        self.compare(
                            &what,
                            value,
                            decode(operand.element, &rounded, 0),
                            step.min(self.tolerance * 1e9),
                        );
                    }
                }
            }
        }
    }

    fn compare(&self, what: &str, value: f64, expected: f64, further: f64) {
        let allowed = (self.tolerance + further) * expected.abs() + self.tolerance;
        let close = (value - expected).abs() <= allowed || value.to_bits() == expected.to_bits();
        assert!(close, "{what} is {value}, expected {expected}; {}", self.problem.epilogue);
    }
}

/// Multiples of 1/8 from -4 to 4: exact in every type but the 8-bit floats, where they are rounded first.
pub(super) fn numbers(salt: u64, count: u64) -> impl Iterator<Item = f64> {
    (0..count).map(move |i| {
        let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ salt.wrapping_mul(0xD134_2543_DE82_EF95);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (f64::from(u32::try_from((mixed >> 33) % 65).unwrap()) - 32.0) / 8.0
    })
}

pub(super) fn bytes(element: Element, values: impl Iterator<Item = f64>) -> Vec<u8> {
    let values: Vec<f64> = values.collect();
    let mut memory = vec![0; values.len() * element.bytes() as usize];
    for (i, value) in (0u64..).zip(values) {
        encode(element, &mut memory, i, value);
    }
    memory
}

use Element::{BF16, E4M3, E5M2, F16, F32, F64, I8};

fn dense(m: u32, n: u32) -> Placement {
    Placement::dense(Storage::RowMajor, m as usize, n as usize)
}

#[test]
fn scalars_and_c() {
    Case::new(16, 16, Types::of(F32), Epilogue::linear()).check();
    Case::new(13, 11, Types::of(BF16), Epilogue::linear()).check();
    Case::new(13, 11, Types::of(F64), Epilogue::linear()).check();
    // Where beta is zero, C does not count.
    Case { beta: 0.0, c: f64::NAN, ..Case::new(13, 11, Types::of(F32), Epilogue::linear()) }.check();
    let column_major = Case::new(13, 11, Types::of(F16), Epilogue::linear());
    let c = Placement { leading: 13, storage: Storage::ColumnMajor, ..column_major.problem.c };
    Case { problem: Problem { c, ..column_major.problem }, ..column_major }.check();
}

#[test]
fn vectors_and_matrices_of_every_type() {
    for element in [BF16, F16, F32, F64, E4M3, E5M2] {
        let epilogue = Epilogue::new()
            .scale_rows("sa", element)
            .scale_columns("sb", element)
            .bias_per_row("left", element)
            .residual("x", element, dense(19, 10));
        Case::new(19, 10, Types::of(F32), epilogue).check();
    }
    let epilogue = Epilogue::new().scale("s").residual("x", BF16, dense(16, 64));
    Case { run: 8, ..Case::new(16, 64, Types::of(F32), epilogue.clone()) }.check();
    Case { run: 1, ..Case::new(16, 64, Types::of(F32), epilogue) }.check();
}

#[test]
fn every_batch_has_operands_of_its_own() {
    let x = Placement { leading: 21, batch_stride: 300, storage: Storage::ColumnMajor, alignment: 4 };
    let scale = Expr::from(ExtraOperand::new("scale", F32, Shape::PerRow).each_batch(20));
    let one = Expr::from(ExtraOperand::new("one", F32, Shape::One).each_batch(1));
    let epilogue =
        Epilogue::new().then(|sum| sum * scale + one).bias_per_column("shared", F32).residual("x", F32, x);
    let case = Case::new(19, 6, Types::of(F32), epilogue);
    Case { problem: Problem { batch: 3, ..case.problem }, ..case }.check();
}

#[test]
fn transposed_epilogues_take_the_same_memory() {
    let x = Placement { leading: 12, ..dense(9, 11) };
    let epilogue = Epilogue::new().scale_rows("sa", F32).bias_per_column("b", F32).residual("x", F32, x);
    let (m, n) = (9, 11);
    Case::new(m, n, Types::of(F32), epilogue.clone()).check();
    let there = Case::new(n, m, Types::of(F32), epilogue.transposed());
    assert_eq!(there.problem.epilogue.operands()[1].shape, Shape::PerRow);
    there.check();
}

/// Softplus, by functions that every kind of number has.
struct Softplus;
impl Formula for Softplus {
    fn name(&self) -> String {
        "softplus".to_owned()
    }
    fn apply<R: Real>(&self, x: &[R]) -> R {
        R::choose(x[0].less(R::of(20.0)), (x[0].exp() + R::of(1.0)).ln(), x[0])
    }
}

#[test]
fn functions_agree_with_the_host() {
    let bias = || Epilogue::new().bias_per_column("bias", BF16);
    for (types, tolerance) in [(Types::of(F32), 1e-6), (Types::of(BF16), 2e-6)] {
        for epilogue in [
            bias().gelu(),
            bias().gelu_tanh(),
            bias().silu(),
            bias().sigmoid(),
            bias().tanh(),
            bias().relu(),
            bias().map(Softplus),
            bias().then(|x| x.erf() * 2.0 - 1.0),
            bias().then(|x| x.square().sqrt() / (Expr::scalar("alpha") + 1.0)),
            bias().then(|x| -x.abs().max(0.25).recip().min(3.0)),
        ] {
            Case { tolerance, ..Case::new(16, 16, types, epilogue) }.check();
        }
    }
}

#[test]
fn intermediate_values_are_stored_as_they_are() {
    for element in [F32, BF16, F16, E4M3] {
        let wide = Placement { leading: 18, ..dense(13, 15) };
        let epilogue = Epilogue::linear().store("pre", element, wide).relu();
        Case::new(13, 15, Types::of(F32), epilogue).check();
    }
    // Runs that one access takes, and columns.
    Case::new(16, 32, Types::of(F32), Epilogue::new().alpha().store("pre", F32, dense(16, 32))).check();
    let across = Placement::dense(Storage::ColumnMajor, 13, 15);
    Case::new(13, 15, Types::of(F32), Epilogue::new().store("pre", F32, across).alpha()).check();
}

#[test]
fn pairs_of_columns_become_one() {
    for (m, n, run) in [(16, 16, 2), (13, 22, 2), (16, 32, 4)] {
        let epilogue = Epilogue::new()
            .bias_per_column("bias", F32)
            .store("pre", F32, dense(m, n))
            .swiglu()
            .bias_per_column("after", BF16)
            .beta_c();
        let case = Case::new(m, n, Types::of(BF16), epilogue);
        Case { run, tolerance: 2e-6, ..case }.check();
    }
}

#[test]
fn rows_columns_and_everything_are_reduced() {
    // The numbers are multiples of 1/16 here: sums are exact in any order.
    let epilogue = || Epilogue::new().alpha().row_sums("rows").column_max("columns").amax("largest");
    for (m, n) in [(16, 16), (37, 70), (1, 5), (70, 3)] {
        Case::new(m, n, Types::of(F32), epilogue().relu().column_sums("c").row_max("r")).check_reducing();
    }
    let many = Case::new(5, 6, Types::of(F32), epilogue());
    let reduced = |name, shape, stride| ExtraOperand::new(name, F64, shape).each_batch(stride);
    let batched = Expr::Sum
        .reduce(reduced("rows", Shape::PerRow, 7), How::Sum)
        .reduce(reduced("columns", Shape::PerColumn, 6), How::Max)
        .reduce(reduced("all", Shape::One, 0), How::Sum);
    let problem = Problem { batch: 3, types: Types::of(F64), epilogue: batched.into(), ..many.problem };
    Case { problem, ..many }.check_reducing();
    // Before two columns become one, and after.
    let pairs =
        Epilogue::new().row_sums("gates").column_max("gates_columns").swiglu().row_sums("rows").amax("a");
    Case { tolerance: 1e-5, ..Case::new(13, 22, Types::of(BF16), pairs) }.check_reducing();
}

#[test]
fn kernels_that_forget_to_finish_are_told() {
    let problem = Problem { epilogue: Epilogue::new().amax("a"), ..Problem::new(16, 16, 1, Types::of(F32)) };
    let error = apply_epilogue::stage::<f32>(problem, 2, false, false).unwrap_err().to_string();
    assert!(error.contains("values that are reduced were not finished"), "{error}");
}

/// Applies an epilogue inside of an `if`, and finishes it outside.
#[kernel(threads = 32)]
fn finish_too_late(problem: Problem) {
    let mut epilogue = problem.epilogue.stage::<f32>(&problem);
    let place = Place { batch: block_id(2), row: lane_id(), column: val(0), bounds: None };
    if lane_id() < 16 {
        let results = epilogue.apply(place, Vector::new([val(1.0f32), val(2.0)]), None);
        assert_with(results.get(0) == 1.0, "the result is the sum");
    }
    epilogue.finish(Lanes::FRAGMENT, Piece { batch: block_id(2), across: block_id(0), down: block_id(1) });
}

#[test]
fn values_that_do_not_exist_any_more_are_not_reduced() {
    let problem = Problem { epilogue: Epilogue::new().amax("a"), ..Problem::new(16, 16, 1, Types::of(F32)) };
    let error = finish_too_late::stage(problem).unwrap_err().to_string();
    assert!(error.contains("inside of another `if` or loop"), "{error}");
}

#[test]
fn results_for_integers_are_whole() {
    let types = Types { d: I8, c: F32, ..Types::of(I8) };
    let epilogue = Epilogue::new().scale_rows("sa", F32).scale_columns("sb", F32);
    Case::new(13, 12, types, epilogue).check();
}

#[test]
fn elements_of_vectors_are_loaded_once() {
    let loads = |epilogue: Epilogue| {
        let case = Case::new(16, 16, Types::of(F32), epilogue);
        let kernel = apply_epilogue::stage::<f32>(case.problem, 2, false, false).unwrap();
        kernel.ir().matches("load ").count()
    };
    let without = loads(Epilogue::identity());
    // A thread has two rows and four columns.
    assert_eq!(loads(Epilogue::new().scale_rows("s", F32)) - without, 2);
    assert_eq!(loads(Epilogue::new().bias_per_column("b", F32)) - without, 4);
    assert_eq!(
        loads(Epilogue::new().scale("s").bias_per_column("b", F32).scale_columns("b", F32)) - without,
        5
    );
    // One access for the two elements of a run.
    assert_eq!(loads(Epilogue::new().residual("x", BF16, dense(16, 16))) - without, 4);
}

#[test]
fn wide_operands_take_fewer_accesses_and_give_the_same() {
    for (m, n, run) in [(16, 16, 2), (13, 20, 4), (13, 24, 8), (5, 2, 2)] {
        let bias = Expr::from(ExtraOperand::new("batched", F16, Shape::PerColumn).each_batch(64));
        let epilogue = Epilogue::linear()
            .bias_per_column("bias", BF16)
            .then(|x| x + bias)
            .residual("x", BF16, dense(m, n))
            .store("pre", F16, Placement { leading: 32, batch_stride: 512, ..dense(m, n) });
        let narrow = Case { run, ..Case::new(m, n, Types::of(F32), epilogue) };
        let narrow = Case { problem: Problem { batch: 2, ..narrow.problem }, ..narrow };
        let epilogue = narrow.problem.epilogue.widened(&narrow.problem, |_| 256);
        let wide = Case { problem: Problem { epilogue, ..narrow.problem.clone() }, ..narrow };
        wide.check();
        let count = |problem: &Problem| {
            let ir = apply_epilogue::stage::<f32>(problem.clone(), run, true, false).unwrap();
            ir.ir().matches("load_if").count()
        };
        assert!(count(&wide.problem) < count(&narrow.problem));
    }
}

#[test]
fn kernels_that_stage_for_the_wrong_type_are_told() {
    let problem = Problem { epilogue: Epilogue::new().alpha(), ..Problem::new(16, 16, 1, Types::of(I8)) };
    let error = apply_epilogue::stage::<i32>(problem, 2, false, false).unwrap_err().to_string();
    assert!(error.contains("an epilogue that is staged for i32; it computes in f32"), "{error}");
}
