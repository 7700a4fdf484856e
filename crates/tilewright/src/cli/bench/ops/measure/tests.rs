//! Ops of this computer, right and wrong, without and with peers that are scripts.

use tilewright::hardware::Element;

use super::super::case::DROPPED;
use super::super::reference::At;
use super::super::subject::{Processor, all, reference_rows};
use super::*;

const OPS: [Op; 12] = [
    Op::Softmax,
    Op::CausalSoftmax,
    Op::RmsNorm,
    Op::LayerNorm,
    Op::Reduce,
    Op::Scan,
    Op::TopK,
    Op::ArgMax,
    Op::Embedding,
    Op::Dropout,
    Op::MatmulTile,
    Op::Copy,
];

fn case(op: Op, element: Element, rows: u32, columns: u32) -> Case {
    let depth = if op == Op::MatmulTile { 9 } else { 0 };
    let k = if op == Op::TopK { 3 } else { 0 };
    Case { op, element, rows, columns, depth, k, clock: Kind::Device }
}

fn bench(subjects: Vec<Box<dyn Subject>>) -> Bench {
    Bench {
        device: Device::cpu(),
        subjects,
        peers: Vec::new(),
        effort: effort(1, 0),
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
    for op in OPS {
        for element in [Element::F32, Element::F16, Element::BF16] {
            for (rows, columns) in [(1, 3), (5, 33), (40, 7)] {
                let row = bench(all(None)).measure(&case(op, element, rows, columns));
                assert_eq!(row.failure, None, "{} {element} {rows}x{columns}", op.name());
                assert!(row.ours_us > Some(0.0) && row.gbps > Some(0.0) && row.error < Some(1.0), "{row:?}");
                assert!(row.compared > Some(0), "{row:?}");
                let who = match op {
                    Op::Copy => "runtime",
                    Op::MatmulTile if element == Element::F32 => "processor, in f64",
                    Op::MatmulTile => "tiles 128x192x64",
                    _ => "library",
                };
                assert_eq!(row.subject.as_deref(), Some(who));
                assert_eq!(row.of_copy.is_some(), op != Op::MatmulTile);
                assert_eq!(row.tflops.is_some(), op == Op::MatmulTile);
            }
        }
    }
}

#[test]
fn what_is_wrong_is_found_in_every_op() {
    for op in OPS {
        let case = case(op, Element::F32, 6, 17);
        // The last element of the first output is off by a little: of places by one.
        let row = measured(&case, |case, at| {
            let mut outputs = reference_rows(case, at);
            let last = outputs[0].iter_mut().rev().find(|value| **value != 0.0).unwrap();
            *last = if case.op == Op::ArgMax { (*last + 1.0) % 17.0 } else { *last * 1.001 + 0.001 };
            outputs
        });
        let failure = row.failure.unwrap_or_else(|| panic!("{}: nothing was found", op.name()));
        assert!(failure.starts_with("the result is wrong: element ("), "{failure}");
        // What nobody wrote.
        let row = measured(&case, |case, at| {
            let mut outputs = reference_rows(case, at);
            outputs.iter_mut().for_each(|output| output.truncate(output.len() - 1));
            outputs
        });
        assert!(row.failure.is_some(), "{}: an element is missing", op.name());
    }
}

#[test]
fn places_must_lead_to_values_and_dropout_must_drop() {
    let row = measured(&case(Op::TopK, Element::F32, 6, 17), |case, at| {
        let mut outputs = reference_rows(case, at);
        outputs[1][4] = (outputs[1][4] + 1.0) % 17.0;
        outputs
    });
    assert_eq!(row.failure.unwrap(), "the result is wrong: place 1 of row 1 does not lead to its value");
    let row = measured(&case(Op::Dropout, Element::F32, 64, 64), |case, at| {
        vec![(0..case.elements()).map(|place| at(0, place) / (1.0 - DROPPED)).collect()]
    });
    assert_eq!(
        row.failure.unwrap(),
        "the result is wrong: found 0.000 of the elements dropped, expected 0.5"
    );
}

/// The formulas, against numbers that were worked out by hand.
#[test]
fn the_reference_computes_what_the_names_say() {
    let x = [1.0, 2.0, 3.0, 4.0, 4.0, 3.0, 2.0, 1.0];
    let weights = [1.0, 2.0, 1.0, 0.5];
    let at = |input: usize, place: u64| {
        let place = usize::try_from(place).unwrap();
        if input == 0 { x[place] } else { weights[place] }
    };
    let row = |op, row| -> Vec<f64> {
        let case = Case { depth: 4, ..case(op, Element::F32, 2, 4) };
        reference::row(&case, &at, row).iter().map(|expected| expected.value).collect()
    };
    let close = |found: Vec<f64>, expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}, {expected:?}");
    };
    close(row(Op::Softmax, 0), &[0.0321, 0.0871, 0.2369, 0.6439]);
    // The second to last row of a square sees three columns.
    close(row(Op::CausalSoftmax, 0), &[0.0900, 0.2447, 0.6652, 0.0]);
    close(row(Op::RmsNorm, 0), &[0.3651, 1.4606, 1.0954, 0.7303]);
    close(row(Op::LayerNorm, 0), &[-0.3416, 1.1056, 1.4472, 1.1708]);
    close(row(Op::Reduce, 1), &[10.0]);
    close(row(Op::Scan, 1), &[4.0, 7.0, 9.0, 10.0]);
    close(row(Op::TopK, 0), &[4.0, 3.0, 2.0]);
    close(row(Op::ArgMax, 1), &[4.0]);
    close(row(Op::Copy, 1), &x[4..]);
    close(row(Op::Dropout, 1), &[8.0, 6.0, 4.0, 2.0]);
}

#[test]
fn without_ours_there_is_a_row_all_the_same() {
    let row = bench(Vec::new()).measure(&case(Op::Softmax, Element::F32, 2, 2));
    assert_eq!((row.ours_us, row.subject, row.failure, row.torch), (None, None, None, None));
}
