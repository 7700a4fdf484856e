//! Kernels for rows of any length, in short steps on a GPU or in the simulator, against the CPU: gradients, losses, masks, sums, ranks, 8 bits.

use tilewright::device::{Argument, Buffer, Device, Item};
use tilewright::kernels::ops::{self, Form, InParts};
use tilewright::lang::{Error as LangError, Kernel};
use tilewright::ops::{CrossEntropy, CumulativeSum, LayerNorm, Quantise, RmsNorm, Rows, Softmax, TopK};

use super::common::{Sample, machine, normals};

const ROWS: usize = 5;
const COLUMNS: usize = 200;
const WIDTH: u32 = 64;

/// A CPU, and what runs kernels, with the same numbers.
struct Both {
    cpu: Device,
    machine: Device,
}

impl Both {
    fn new() -> Both {
        Both { cpu: Device::cpu(), machine: machine() }
    }

    fn same<T: Item>(&self, values: &[T]) -> [Buffer<T>; 2] {
        [&self.cpu, &self.machine].map(|device| device.upload(values).unwrap())
    }

    /// A matrix with a special number in the second row.
    fn matrix(&self, seed: u64, special: f32) -> [Buffer<f32>; 2] {
        let mut values: Vec<f32> = normals(seed, ROWS * COLUMNS, 2.0).into_iter().map(f32::of).collect();
        values[COLUMNS + 77] = special;
        self.same(&values)
    }

    fn zeros(&self, count: usize) -> [Buffer<f32>; 2] {
        self.same(&vec![0.0; count])
    }

    fn launch(&self, programs: usize, kernel: Result<Kernel, LangError>, arguments: &[&dyn Argument]) {
        self.launch_grid([programs as u32, 1, 1], kernel, arguments);
    }

    fn launch_grid(&self, grid: [u32; 3], kernel: Result<Kernel, LangError>, arguments: &[&dyn Argument]) {
        let program = self.machine.program(&kernel.unwrap()).unwrap();
        program.launch(grid, arguments).unwrap().expect_clean().unwrap();
    }
}

fn rows<T: Item>(buffer: &Buffer<T>) -> Rows<'_, T> {
    Rows::new(buffer, buffer.len() / COLUMNS, COLUMNS)
}

#[track_caller]
fn near([want, found]: &[Buffer<f32>; 2], tolerance: f32) {
    let (want, found) = (want.to_vec().unwrap(), found.to_vec().unwrap());
    let right = |want: f32, found: f32| {
        let same = want == found || (want.is_nan() && found.is_nan());
        same || (want - found).abs() <= tolerance * (1.0 + want.abs())
    };
    let wrong = want.iter().zip(&found).position(|(want, found)| !right(*want, *found));
    assert_eq!(wrong.map(|at| (at, found[at], want[at])), None, "place, found, on the CPU");
}

const ALL: [usize; 2] = [ROWS, COLUMNS];
const FORMS: [Form; 2] = [Form::Probabilities, Form::Logarithms];

fn softmax<'a>(form: Form) -> Softmax<'a> {
    if form == Form::Logarithms { Softmax::new().log() } else { Softmax::new() }.scale(0.5)
}

#[test]
fn masked_softmax() {
    let both = Both::new();
    for form in FORMS {
        let ([x, sx], y) = (both.matrix(1, f32::NEG_INFINITY), both.matrix(2, 0.0));
        // Of the third row nothing counts.
        let mask: Vec<bool> = (0..ROWS * COLUMNS).map(|i| i % 3 != 0 && i / COLUMNS != 2).collect();
        let [mask, counts] = both.same(&mask);
        softmax(form).mask(rows(&mask)).run(&both.cpu, rows(&x), rows(&y[0])).unwrap();
        let kernel = ops::softmax_masked_long::stage::<f32, f32>(form, WIDTH);
        both.launch(ROWS, kernel, &[&sx.view(ALL), &counts.view(ALL), &y[1].view(ALL), &0.5f32]);
        near(&y, 1e-5);
    }
}

/// Matrices along either axis of the grid, of which the last is not whole, with programs of several rows that end within a matrix.
#[test]
fn causal_softmax_of_many_matrices() {
    let both = Both::new();
    let row = InParts::of(COLUMNS as u32, 4, true);
    let (queries, matrices) = (3u32, 2);
    assert!(row.rows > queries, "{row:?}");
    let two = InParts { rows: 2, ..row };
    for (row, turned) in [(row, false), (two, false), (two, true)] {
        let ([x, sx], y) = (both.matrix(1, f32::NEG_INFINITY), both.matrix(2, f32::NAN));
        softmax(Form::Probabilities).causal(queries as usize).run(&both.cpu, rows(&x), rows(&y[0])).unwrap();
        let groups = queries.div_ceil(row.rows);
        let grid = if turned { [matrices, groups, 1] } else { [groups, matrices, 1] };
        let kernel = ops::softmax_causal::stage::<f32, f32>(Form::Probabilities, false, turned, row);
        let arguments: &[&dyn Argument] = &[&sx.view(ALL), &y[1].view(ALL), &0.5f32, &queries, &0u32, &1u32];
        both.launch_grid(grid, kernel, arguments);
        near(&y, 1e-5);
    }
}

/// Of all columns and of those that a query sees, with NaN where none counts.
#[test]
fn gradients_of_softmax() {
    let both = Both::new();
    for form in FORMS {
        for causal in [false, true] {
            let ([x, _], dy, dx) = (both.matrix(1, 1.0), both.matrix(2, 2.0), both.matrix(3, f32::NAN));
            let settings = if causal { softmax(form).causal(2) } else { softmax(form) };
            settings.run(&both.cpu, rows(&x), rows(&x)).unwrap();
            let results = both.machine.upload(&x.to_vec().unwrap()).unwrap();
            settings.backward(&both.cpu, rows(&x), rows(&dy[0]), rows(&dx[0])).unwrap();
            let kernel = ops::softmax_backward_long::stage::<f32, f32>(form, causal, WIDTH);
            let arguments: &[&dyn Argument] =
                &[&results.view(ALL), &dy[1].view(ALL), &dx[1].view(ALL), &0.5f32, &2u32];
            both.launch(ROWS, kernel, arguments);
            near(&dx, 1e-5);
            // In place.
            let kernel = ops::softmax_backward_long::stage::<f32, f32>(form, causal, WIDTH);
            let arguments: &[&dyn Argument] =
                &[&results.view(ALL), &dy[1].view(ALL), &dy[1].view(ALL), &0.5f32, &2u32];
            both.launch(ROWS, kernel, arguments);
            let [want, _] = &dx;
            near(&[want.clone(), dy[1].clone()], 1e-5);
        }
    }
}

/// Targets that are columns, one that is none, and one to ignore.
#[test]
fn cross_entropy_and_its_gradient() {
    let both = Both::new();
    let ([x, sx], losses) = (both.matrix(1, f32::NEG_INFINITY), both.zeros(ROWS));
    let [targets, chosen] = both.same(&[0i64, 77, 199, -100, 200]);
    let [given, given_too] = both.same(&[0.5f32, 1.0, -2.0, 3.0, 1.0]);
    let loss = CrossEntropy::new().z_loss(0.01);
    let column = [ROWS, 1];
    // One step of several tiles and a rest; less than a step, by a cluster.
    let step = InParts { rows: 1, parts: 2, width: WIDTH, threads: 32, blocks: 1 };
    let shared = InParts { rows: 1, parts: 2, width: 2 * WIDTH, threads: 32, blocks: 2 };
    for (smoothing, step) in [(0.0f32, step), (0.1, step), (0.0, shared), (0.1, shared)] {
        let loss = loss.smoothing(smoothing);
        loss.run(&both.cpu, rows(&x), &targets, &losses[0]).unwrap();
        let kernel = ops::cross_entropy_long::stage::<f32, i64>(smoothing != 0.0, true, step);
        let arguments: &[&dyn Argument] =
            &[&sx.view(ALL), &chosen.view(column), &losses[1].view(column), &-100i64, &smoothing, &0.01f32];
        both.launch(ROWS, kernel, arguments);
        near(&losses, 1e-5);

        // One long step, which is not full, or two that are shorter, or all of the row at once; at last in place.
        let dx = both.matrix(3, f32::NAN);
        loss.backward(&both.cpu, rows(&x), &targets, &given, rows(&dx[0])).unwrap();
        let shorter = InParts { width: step.width / 2, ..step };
        let all = InParts { parts: (COLUMNS as u32).div_ceil(shorter.width), ..shorter };
        let in_steps = |step| ops::cross_entropy_backward_long::stage::<f32, i64, f32>(step);
        let in_parts = |row| ops::cross_entropy_backward_in_parts::stage::<f32, i64, f32>(row);
        for (kernel, in_place) in [
            (in_steps(step), false),
            (in_steps(shorter), false),
            (in_parts(all), false),
            (in_steps(shorter), true),
            (in_parts(all), true),
        ] {
            let [_, copy] = both.matrix(1, f32::NEG_INFINITY);
            let (x, to) = if in_place { (&copy, &copy) } else { (&sx, &dx[1]) };
            let arguments: &[&dyn Argument] = &[
                &x.view(ALL),
                &chosen.view(column),
                &given_too.view(column),
                &to.view(ALL),
                &-100i64,
                &smoothing,
                &0.01f32,
            ];
            both.launch(ROWS, kernel, arguments);
            near(&[dx[0].clone(), to.clone()], 1e-5);
        }
    }
}

/// Two programs for five rows, so that each adds up several.
#[test]
fn gradients_of_norms() {
    let both = Both::new();
    let ([x, sx], [dy, sdy]) = (both.matrix(1, 1.0), both.matrix(2, 2.0));
    let [weight, sweight] = both.same(&x.to_vec().unwrap()[..COLUMNS]);
    let (dx, dw, db) = (both.matrix(3, 0.0), both.zeros(COLUMNS), both.zeros(COLUMNS));
    let (parts, more) = (both.zeros(2 * COLUMNS), both.zeros(2 * COLUMNS));
    let (shared, row) = ([2, COLUMNS], [1, COLUMNS]);
    // What is in the parts before must not matter.
    parts[1].fill(f32::NAN).unwrap();
    let add_up = |parts: &Buffer<f32>, sums: &Buffer<f32>| {
        let all = parts.to_vec().unwrap();
        let sums_of: Vec<f32> = (0..COLUMNS).map(|j| all[j] + all[COLUMNS + j]).collect();
        sums.write(&sums_of).unwrap();
    };

    let norm = RmsNorm::new(1e-5).weight(&weight).offset(1.0);
    norm.backward(&both.cpu, rows(&x), rows(&dy), rows(&dx[0]), &dw[0]).unwrap();
    let kernel = ops::rms_norm_backward_long::stage::<f32, f32, f32>(true, WIDTH);
    let arguments: &[&dyn Argument] = &[
        &sx.view(ALL),
        &sdy.view(ALL),
        &sweight.view(row),
        &dx[1].view(ALL),
        &parts[1].view(shared),
        &1e-5f32,
        &1.0f32,
    ];
    both.launch(2, kernel, arguments);
    add_up(&parts[1], &dw[1]);
    near(&dx, 1e-4);
    near(&dw, 1e-4);

    let norm = LayerNorm::new(1e-5).weight(&weight);
    norm.backward(&both.cpu, rows(&x), rows(&dy), rows(&dx[0]), &dw[0], &db[0]).unwrap();
    let kernel = ops::layer_norm_backward_long::stage::<f32, f32, f32>(true, WIDTH);
    let arguments: &[&dyn Argument] = &[
        &sx.view(ALL),
        &sdy.view(ALL),
        &sweight.view(row),
        // In place.
        &sx.view(ALL),
        &parts[1].view(shared),
        &more[1].view(shared),
        &1e-5f32,
    ];
    both.launch(2, kernel, arguments);
    add_up(&parts[1], &dw[1]);
    add_up(&more[1], &db[1]);
    near(&[dx[0].clone(), sx], 1e-4);
    near(&dw, 1e-4);
    near(&db, 1e-4);
}

#[test]
fn norms_in_8_bits() {
    let both = Both::new();
    for adding in [false, true] {
        for special in [1.0, f32::NAN, f32::INFINITY] {
            let ([x, sx], [residual, sresidual]) = (both.matrix(1, special), both.matrix(2, 0.0));
            let (scales, q) = (both.zeros(ROWS), both.same(&vec![0i8; ROWS * COLUMNS]));
            let norm = RmsNorm::new(1e-5);
            let (x_rows, q_rows) = (rows(&x), rows(&q[0]));
            match adding {
                false => norm.quantise(&both.cpu, x_rows, q_rows, &scales[0]).unwrap(),
                true => norm
                    .quantise_adding(&both.cpu, x_rows, rows(&residual), x_rows, q_rows, &scales[0])
                    .unwrap(),
            }
            let kernel = ops::rms_norm_quantised_long::stage::<f32, f32, i8>(adding, false, WIDTH);
            let from = sx.view(ALL);
            let arguments: &[&dyn Argument] = &[
                &from,
                &sresidual.view(ALL),
                // Nobody reads these weights.
                &from,
                &from,
                &q[1].view(ALL),
                &scales[1].view([ROWS, 1]),
                &1e-5f32,
                &0.0f32,
                &127.0f32,
            ];
            both.launch(ROWS, kernel, arguments);
            near(&scales, 1e-5);
            near(&[x, sx.clone()], 0.0);
            let [want, found] = q.map(|q| q.to_vec().unwrap());
            assert!(want.iter().zip(&found).all(|(want, found)| want.abs_diff(*found) <= 1));
        }
    }
}

/// All four ways, in place.
#[test]
fn cumulative_sums() {
    let both = Both::new();
    for (exclusive, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
        let x = both.matrix(1, f32::NAN);
        let scan = if exclusive { CumulativeSum::new().exclusive() } else { CumulativeSum::new() };
        let scan = if reverse { scan.reverse() } else { scan };
        scan.run(&both.cpu, rows(&x[0]), rows(&x[0])).unwrap();
        let kernel = ops::cumulative_sum_long::stage::<f32, f32>(exclusive, reverse, WIDTH);
        both.launch(ROWS, kernel, &[&x[1].view(ALL), &x[1].view(ALL)]);
        near(&x, 1e-4);
    }
}

/// Equal numbers, NaN first, the first of equal ones before the others.
#[test]
fn largest_in_order() {
    let both = Both::new();
    let mut values: Vec<f32> = (0..ROWS * COLUMNS).map(|i| (i * 37 % 23) as f32 - 11.0).collect();
    values[COLUMNS + 130] = f32::NAN;
    let ([x, sx], (found, places)) =
        (both.same(&values), (both.zeros(ROWS * 9), both.same(&[0u32; ROWS * 9])));
    for smallest in [false, true] {
        let top = if smallest { TopK::new(9).smallest() } else { TopK::new(9) };
        let (kept, indices) = (Rows::new(&found[0], ROWS, 9), Rows::new(&places[0], ROWS, 9));
        top.run(&both.cpu, rows(&x), kept, indices).unwrap();
        let kernel = ops::top_k_long::stage::<f32>(9, smallest, WIDTH);
        let few = [ROWS, 9];
        both.launch(ROWS, kernel, &[&sx.view(ALL), &found[1].view(few), &places[1].view(few)]);
        near(&found, 0.0);
        assert_eq!(places[0].to_vec().unwrap(), places[1].to_vec().unwrap());
    }
}

/// Rows that are too long for a program, by the operators themselves.
#[test]
fn long_rows_of_operators() {
    let columns = 33_001;
    let mut values: Vec<f32> = normals(7, 2 * columns, 1.0).into_iter().map(f32::of).collect();
    values[columns + 30_000] = 9.0;
    let [cpu, simulated] = [Device::cpu(), machine()].map(|device| {
        let x = device.upload(&values).unwrap();
        let x = Rows::new(&x, 2, columns);
        let sums = device.alloc::<f32>(2 * columns).unwrap();
        CumulativeSum::new().run(&device, x, Rows::new(&sums, 2, columns)).unwrap();
        let (kept, places) = (device.alloc::<f32>(6).unwrap(), device.alloc::<u32>(6).unwrap());
        TopK::new(3).run(&device, x, Rows::new(&kept, 2, 3), Rows::new(&places, 2, 3)).unwrap();
        // Longer than a cluster holds.
        let (long, q) = (device.upload(&values.repeat(4)).unwrap(), device.alloc::<i8>(8 * columns).unwrap());
        let scales = device.alloc::<f32>(1).unwrap();
        Quantise::per_row().run(&device, &long, &q, &scales).unwrap();
        (
            sums,
            kept.to_vec().unwrap(),
            places.to_vec().unwrap(),
            q.to_vec().unwrap(),
            scales.to_vec().unwrap(),
        )
    });
    assert_eq!((&cpu.1, &cpu.2, &cpu.3, &cpu.4), (&simulated.1, &simulated.2, &simulated.3, &simulated.4));
    near(&[cpu.0, simulated.0], 2e-3);
}

/// Kernels that take parts of rows do the same whichever axis of the grid has the tiles of a row: very long rows have them along the first.
#[test]
fn tiles_of_a_row_along_either_axis() {
    let machine = machine();
    let x = machine
        .upload(&normals(3, ROWS * COLUMNS, 2.0).into_iter().map(f32::of).collect::<Vec<_>>())
        .unwrap();
    let up = machine
        .upload(&normals(4, ROWS * COLUMNS, 2.0).into_iter().map(f32::of).collect::<Vec<_>>())
        .unwrap();
    let scales = machine.upload(&[0.1f32, 0.2, 0.3, 0.4, 0.5]).unwrap();
    let indices = machine.upload(&[4i32, 0, -1, 2, 7]).unwrap();
    let of = |turned: bool| {
        let tiling = ops::Tiling { shape: [2, WIDTH], turned };
        let single = ops::Tiling { shape: [1, WIDTH], turned };
        let (x, up, column) = (x.view(ALL), up.view(ALL), [ROWS, 1]);
        let launch = |tiling: ops::Tiling, kernel: Result<Kernel, LangError>, arguments: &[&dyn Argument]| {
            let [first, second] = tiling.programs((ROWS, COLUMNS));
            let program = machine.program(&kernel.unwrap()).unwrap();
            program.launch([first, second, 1], arguments).unwrap().expect_clean().unwrap();
        };
        let y = [(); 5].map(|()| machine.alloc_zeroed::<f32>(ROWS * COLUMNS).unwrap());
        let [glu, embedded, dropped, back, turned] = &y;
        let q = machine.alloc_zeroed::<i8>(ROWS * COLUMNS).unwrap();
        launch(
            tiling,
            ops::glu::stage::<f32, f32>(ops::Activation::Silu, tiling),
            &[&x, &up, &glu.view(ALL)],
        );
        let kernel = ops::embedding::stage::<f32, i32>(single);
        launch(single, kernel, &[&x, &indices.view(column), &embedded.view(ALL)]);
        let kernel = ops::dropout::stage::<f32, f32>(tiling);
        launch(tiling, kernel, &[&x, &dropped.view(ALL), &2.0f32, &(1u64 << 31), &3u64, &4u64]);
        let kernel = ops::quantise_by::stage::<f32, i8>(false, tiling);
        launch(tiling, kernel, &[&x, &scales.view(column), &q.view(ALL), &127.0f32]);
        let kernel = ops::dequantise::stage::<i8, f32>(tiling);
        launch(tiling, kernel, &[&q.view(ALL), &scales.view(column), &back.view(ALL)]);
        launch(tiling, ops::transpose::stage::<f32>(tiling), &[&x, &turned.view([COLUMNS, ROWS])]);
        y.map(|y| y.to_vec().unwrap())
    };
    let (usual, other) = (of(false), of(true));
    assert!(usual.iter().all(|y| y.iter().any(|y| *y != 0.0)));
    assert_eq!(usual, other);
}
