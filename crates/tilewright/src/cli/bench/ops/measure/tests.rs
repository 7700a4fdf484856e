//! Ops of this computer, right and wrong, without and with peers that are scripts.

use std::time::Duration;

use super::super::case::Role;
use super::super::reference::{At, DROPPED};
use super::super::subject::{Processor, all, reference_rows};
use super::super::table::{ALL, Op, exponentials, gated, moves, norms, order, quantised};
use super::*;

fn case(op: &'static Op, element: Element, rows: u32, columns: u32) -> Case {
    let depth = if op.product { 9 } else { 0 };
    let k = if op == &order::TOPK { 3 } else { 0 };
    // Rows of whole heads.
    let columns =
        if op == &moves::ROPE || op == &moves::PERMUTE { columns.next_multiple_of(128) } else { columns };
    Case { op, element, rows, columns, depth, k, clock: Kind::Device }
}

fn bench(subjects: Vec<Box<dyn Subject>>) -> Bench {
    Bench {
        device: Device::cpu(),
        subjects,
        peers: Vec::new(),
        effort: Effort { rounds: 1, sample: Duration::ZERO },
        copies: Some(2),
        seed: 7,
        check: true,
        copy_gbps: Some(100.0),
    }
}

/// Ours computed by this function.
fn measured(case: &Case, compute: impl Fn(&Case, At<'_>) -> Vec<Vec<f64>> + 'static) -> Row {
    bench(vec![Box::new(Processor::new("a test", compute))]).measure(case)
}

#[test]
fn every_op_is_right_in_every_type() {
    for op in ALL {
        for element in [Element::F32, Element::F16, Element::BF16] {
            for (rows, columns) in [(1, 3), (5, 33), (40, 7)] {
                let row = bench(all(None)).measure(&case(op, element, rows, columns));
                assert_eq!(row.failure, None, "{} {element} {rows}x{columns}", op.name);
                assert!(row.ours_us > Some(0.0) && row.gbps > Some(0.0) && row.error < Some(1.0), "{row:?}");
                assert!(row.compared > Some(0), "{row:?}");
                let who = match op.name {
                    "copy" => "runtime",
                    "matmul-tile" if element == Element::F32 => "processor, in f64",
                    "matmul-tile" => "tiles 128x192x64",
                    _ => "library",
                };
                assert_eq!(row.subject.as_deref(), Some(who));
                assert_eq!(row.of_copy.is_some(), !op.product);
                assert_eq!(row.tflops.is_some(), op.product);
            }
        }
    }
}

/// Numbers that f16 has few digits for, or none, are rounded as well as they can be.
#[test]
fn small_parts_are_right_in_f16() {
    let row = bench(all(None)).measure(&case(&exponentials::SOFTMAX, Element::F16, 3, 5000));
    assert_eq!((row.failure, row.compared), (None, Some(15_000)));
}

/// The kernels of the library, whose arithmetic is in f32, are within what the reference allows them.
#[test]
fn kernels_are_right_in_the_simulator() {
    for op in ALL.iter().filter(|op| op.calls.is_some()) {
        for (element, rows, columns) in [(Element::F32, 5, 300), (Element::BF16, 3, 1000)] {
            let case = case(op, element, rows, columns);
            let mut bench = Bench { device: Device::simulator(), copies: Some(1), ..bench(all(None)) };
            let row = bench.measure(&case);
            assert_eq!(row.failure, None, "{} {element}", op.name);
            assert_eq!(row.subject.as_deref(), Some("library"), "{}", op.name);
        }
    }
}

/// Every element of every output counts.
#[test]
fn all_that_is_written_is_compared() {
    for op in ALL {
        let case = case(op, Element::F32, 6, 17);
        let outputs: u64 = case.tensors().iter().filter(|it| it.is_output()).map(Tensor::elements).sum();
        let row = bench(all(None)).measure(&case);
        let compared = row.compared.unwrap() as u64;
        // Who can tell what dropout drops?
        assert!(if *op == &moves::DROPOUT { compared < outputs } else { compared == outputs }, "{row:?}");
    }
}

#[test]
fn what_is_wrong_is_found_in_every_output_of_every_op() {
    for op in ALL {
        for element in [Element::F32, Element::BF16] {
            let case = case(op, element, 6, 17);
            let outputs: Vec<Tensor> = case.tensors().into_iter().filter(Tensor::is_output).collect();
            for (output, tensor) in outputs.into_iter().enumerate() {
                // An element that is off by a little more than its rounding explains: of integers by one.
                let step = match tensor.element {
                    Element::F32 => 0.001,
                    Element::BF16 => 0.01,
                    _ => 0.1,
                };
                let whole = matches!(tensor.element, Element::U32 | Element::I8);
                let off = move |value: f64| match whole {
                    true if value > 15.0 => value - 1.0,
                    true => value + 1.0,
                    false => value * (1.0 + step) + step * value.signum(),
                };
                for last in [true, false] {
                    let row = measured(&case, move |case, at| {
                        let mut outputs = reference_rows(case, at);
                        let mut all: Vec<&mut f64> =
                            outputs[output].iter_mut().filter(|it| **it != 0.0).collect();
                        let place = if last { all.len() - 1 } else { all.len() / 2 };
                        *all[place] = off(*all[place]);
                        outputs
                    });
                    let failure = row
                        .failure
                        .unwrap_or_else(|| panic!("{} {}: nothing was found", op.name, tensor.name));
                    let marks = [
                        "the result is wrong: element (",
                        &format!("the result is wrong: {}, element (", tensor.name),
                    ];
                    // A scale that is wrong may be found in what it scales.
                    let named = tensor.name == "scales" || marks.iter().any(|mark| failure.starts_with(mark));
                    assert!(named, "{}: {failure}", op.name);
                }
                // What nobody wrote.
                let row = measured(&case, move |case, at| {
                    let mut outputs = reference_rows(case, at);
                    outputs[output].pop();
                    outputs
                });
                assert!(row.failure.is_some(), "{} {}: an element is missing", op.name, tensor.name);
            }
        }
    }
}

#[test]
fn places_must_lead_to_values_and_dropout_must_drop() {
    let row = measured(&case(&order::TOPK, Element::F32, 6, 17), |case, at| {
        let mut outputs = reference_rows(case, at);
        outputs[1][4] = (outputs[1][4] + 1.0) % 17.0;
        outputs
    });
    let failure = row.failure.unwrap();
    assert!(failure.starts_with("the result is wrong: places, element (1, 1) is "), "{failure}");
    // Of equal numbers each is meant once.
    let many = Case { k: 200, ..case(&order::TOPK, Element::BF16, 1, 2000) };
    let row = measured(&many, |case, at| {
        let mut outputs = reference_rows(case, at);
        let first = outputs[0].windows(2).position(|pair| pair[0] == pair[1]).unwrap();
        outputs[1][first + 1] = outputs[1][first];
        outputs
    });
    let failure = row.failure.unwrap();
    assert!(failure.ends_with(" of row 0 is there twice"), "{failure}");
    let row = measured(&case(&moves::DROPOUT, Element::F32, 64, 64), |case, at| {
        vec![(0..case.elements()).map(|place| at(0, place) / (1.0 - DROPPED)).collect()]
    });
    assert_eq!(
        row.failure.unwrap(),
        "the result is wrong: found 0.000 of the elements dropped, expected 0.5"
    );
}

/// A scale that is wrong is found though what the row stands for is right.
#[test]
fn quantised_rows_have_the_right_scale() {
    for op in [&quantised::RMSNORM_QUANTISE_E4M3, &quantised::QUANTISE_E4M3, &quantised::QUANTISE_I8] {
        let row = measured(&case(op, Element::F32, 6, 17), |case, at| {
            let mut outputs = reference_rows(case, at);
            outputs[0].iter_mut().for_each(|q| *q /= 2.0);
            outputs[1].iter_mut().for_each(|scale| *scale *= 2.0);
            outputs
        });
        let failure = row.failure.unwrap();
        assert!(failure.contains("scales, element (0, 0)") || op == &quantised::QUANTISE_I8, "{failure}");
    }
}

/// Of large matrices some rows and columns are compared, and a row that is missing in a sum over all is found.
#[test]
fn a_sum_over_many_rows_misses_none() {
    let mut case = case(&norms::RMSNORM_BACKWARD, Element::F32, 70_000, 64);
    assert!(case.elements() > 1 << 22);
    let right = bench(all(None)).measure(&case);
    assert_eq!((right.failure, right.compared), (None, Some(32 * 64 + 32)));
    case.rows = 5000;
    let wrong = measured(&case, |case, at| {
        let mut outputs = reference_rows(case, at);
        let missing = Case { rows: case.rows - 1, ..*case };
        outputs[1] = reference_rows(&missing, at).swap_remove(1);
        outputs
    });
    let failure = wrong.failure.unwrap();
    assert!(failure.starts_with("the result is wrong: dw, element (0, "), "{failure}");
}

/// The formulas, against numbers that were worked out by hand, gradients by differences.
#[test]
fn the_reference_computes_what_the_names_say() {
    let x = [1.0, 2.0, 3.0, 4.0, 4.0, 3.0, 2.0, 1.0];
    let weights = [1.0, 2.0, 1.0, 0.5];
    let at = |input: usize, place: u64| {
        let place = usize::try_from(place).unwrap();
        if input == 0 { x[place] } else { weights[place % 4] }
    };
    let rows = |op, row| -> Vec<Vec<f64>> {
        let case = Case { depth: 4, ..case(op, Element::F32, 2, 4) };
        let expected = (case.op.rows)(&case, &at, row).into_iter();
        expected.map(|row| row.into_iter().map(|expected| expected.value).collect()).collect()
    };
    let row = |op, number| rows(op, number).swap_remove(0);
    let sums = |op| -> Vec<Vec<f64>> {
        let case = case(op, Element::F32, 2, 4);
        let expected = (case.op.sums)(&case, &at, &[0, 3]).into_iter();
        expected.map(|row| row.into_iter().map(|expected| expected.value).collect()).collect()
    };
    let close = |found: Vec<f64>, expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}, {expected:?}");
    };
    close(row(&exponentials::SOFTMAX, 0), &[0.0321, 0.0871, 0.2369, 0.6439]);
    close(row(&exponentials::LOG_SOFTMAX, 0), &[-3.4402, -2.4402, -1.4402, -0.4402]);
    // The second to last row of a square sees three columns.
    close(row(&exponentials::CAUSAL_SOFTMAX, 0), &[0.0900, 0.2447, 0.6652, 0.0]);
    // Everything that is not zero shows.
    close(row(&exponentials::MASKED_SOFTMAX, 0), &[0.0321, 0.0871, 0.2369, 0.6439]);
    // The targets are columns 1 and 2, the gradients of the losses 1 and 2.
    close(row(&exponentials::CROSS_ENTROPY, 0), &[2.4402]);
    close(row(&exponentials::CROSS_ENTROPY, 1), &[2.4402]);
    close(row(&exponentials::CROSS_ENTROPY_BACKWARD, 0), &[0.0321, -0.9129, 0.2369, 0.6439]);
    // The sum of the products is 10.
    close(row(&exponentials::SOFTMAX_BACKWARD, 0), &[-9.0, -16.0, -27.0, -38.0]);
    close(row(&exponentials::LOG_SOFTMAX_BACKWARD, 0), &[-11.23227, -31.25075, -89.38492, -245.19168]);
    close(row(&norms::RMSNORM, 0), &[0.3651, 1.4606, 1.0954, 0.7303]);
    close(row(&norms::LAYERNORM, 0), &[-0.3416, 1.1056, 1.4472, 1.1708]);
    let both = rows(&norms::ADD_RMSNORM, 0);
    close(both[0].clone(), &[2.0, 4.0, 4.0, 4.5]);
    close(both[1].clone(), &[0.5333, 2.1333, 1.0667, 0.6]);
    let both = rows(&norms::ADD_LAYERNORM, 0);
    close(both[0].clone(), &[2.0, 4.0, 4.0, 4.5]);
    close(both[1].clone(), &[-0.6924, 2.7811, 1.3906, 0.9557]);
    let both = rows(&quantised::RMSNORM_QUANTISE_I8, 0);
    close(both[1].clone(), &[1.4606 / 127.0]);
    close(row(&norms::RMSNORM_BACKWARD, 0), &[0.20692, 1.14413, -0.10954, -0.54164]);
    close(row(&norms::LAYERNORM_BACKWARD, 0), &[-1.20747, 1.94537, -0.26833, -0.46958]);
    close(sums(&norms::RMSNORM_BACKWARD).swap_remove(0), &[1.82574, 0.91287]);
    let both = sums(&norms::LAYERNORM_BACKWARD);
    close(both[0].clone(), &[0.00000, 0.00000]);
    close(both[1].clone(), &[2.0, 1.0]);
    close(row(&gated::SWIGLU, 0), &[0.7311, 3.5232, 2.8577, 1.9640]);
    close(row(&gated::GEGLU, 0), &[0.8413, 3.9090, 2.9960, 1.9999]);
    let both = rows(&gated::GEGLU_BACKWARD, 0);
    close(both[0].clone(), &[1.08332, 4.34093, 1.01195, 0.25013]);
    close(both[1].clone(), &[0.8413, 3.9090, 2.9960, 1.9999]);
    close(row(&gated::BIAS_GELU, 0), &[1.9545, 3.9999, 3.9999, 4.5]);
    let both = rows(&gated::SWIGLU_BACKWARD, 0);
    close(both[0].clone(), &[0.92767, 4.36314, 1.08810, 0.26317]);
    close(both[1].clone(), &[0.7311, 3.5232, 2.8577, 1.9640]);
    close(row(&order::REDUCE, 1), &[10.0]);
    close(row(&order::SCAN, 1), &[4.0, 7.0, 9.0, 10.0]);
    close(row(&order::TOPK, 0), &[4.0, 3.0, 2.0]);
    close(row(&order::ARGMAX, 1), &[4.0]);
    close(row(&moves::COPY, 1), &x[4..]);
    close(row(&moves::CONVERT, 1), &x[4..]);
    close(row(&moves::TRANSPOSE, 1), &[2.0, 3.0]);
    close(row(&moves::DROPOUT, 1), &[8.0, 6.0, 4.0, 2.0]);
    close(row(&quantised::DEQUANTISE_I8, 1), &[8.0, 6.0, 4.0, 2.0]);
    close(rows(&quantised::QUANTISE_E4M3, 1).swap_remove(1), &[4.0 / 448.0]);
}

/// Two tokens with two heads become two heads with two tokens.
#[test]
fn the_reference_moves_whole_heads() {
    let case = case(&moves::PERMUTE, Element::F32, 2, 256);
    let at = |_: usize, place: u64| f64::from(u32::try_from(place).unwrap());
    let first = |row| (case.op.rows)(&case, &at, row)[0].iter().map(|it| it.value).next().unwrap();
    assert_eq!([0, 1, 2, 3].map(first), [0.0, 256.0, 128.0, 384.0]);
}

/// A head of which all numbers are 1, at position 3: pairs are turned from (1, 1).
#[test]
fn the_reference_turns_pairs_by_their_angle() {
    let case = case(&moves::ROPE, Element::F32, 5, 128);
    let tables = case.tensors();
    let at = |input: usize, place: u64| match tables[input].role {
        Role::Computed(number) => number(&case, place),
        _ => 1.0,
    };
    let row = (case.op.rows)(&case, &at, 3).swap_remove(0);
    let (sin, cos) = 3f64.sin_cos();
    assert!((row[0].value - (cos - sin)).abs() < 1e-12 && (row[64].value - (sin + cos)).abs() < 1e-12);
    // The second pair turns by 10000^(-1/64) for each position.
    let (sin, cos) = (3.0 * 10_000f64.powf(-1.0 / 64.0)).sin_cos();
    assert!((row[1].value - (cos - sin)).abs() < 1e-12 && (row[65].value - (sin + cos)).abs() < 1e-12);
}

#[test]
fn peers_may_be_off_by_what_their_types_explain() {
    let error = |op, element| bearable(&case(op, element, 2, 2));
    assert_eq!(error(&exponentials::SOFTMAX, Element::F32), 1e-3);
    assert_eq!(error(&exponentials::SOFTMAX, Element::BF16), 1e-2);
    // Losses and gradients of weights are f32 here, not there.
    assert_eq!(error(&exponentials::CROSS_ENTROPY, Element::BF16), 1e-2);
    assert_eq!(error(&moves::CONVERT, Element::F32), 1e-2, "to bf16");
    assert_eq!(error(&quantised::QUANTISE_E4M3, Element::F32), 1e-3);
}

#[test]
fn without_ours_there_is_a_row_all_the_same() {
    let row = bench(Vec::new()).measure(&case(&exponentials::SOFTMAX, Element::F32, 2, 2));
    assert_eq!((row.ours_us, row.subject, row.failure, row.torch), (None, None, None, None));
}
