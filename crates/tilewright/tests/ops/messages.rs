//! What is said when operands do not fit together; and that nothing is written then.

use tilewright::device::Device;
use tilewright::kernels::gemm::epilogue::Binary;
use tilewright::ops::{
    Arg, CrossEntropy, Dropout, Elementwise, Error, Glu, LayerNorm, Quantise, Reduce, RmsNorm, Rope, Rows,
    Softmax, TopK, embedding, permute, transpose,
};

fn says(result: Result<(), Error>, expected: &str) {
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[test]
fn operands_that_do_not_fit_are_named() {
    let device = Device::cpu();
    let x = device.upload(&[1.0f32; 12]).unwrap();
    let y = device.upload(&[0.0f32; 12]).unwrap();
    let n = device.upload(&[0u32; 12]).unwrap();
    let (a, b) = (Rows::new(&x, 3, 4), Rows::new(&y, 3, 4));
    let softmax = Softmax::new();

    says(
        softmax.run(&device, Rows::new(&x, 4, 4), b),
        "`x`: found 4 x 4 with strides 4 and 1 from element 0, expected at most the 12 elements of its buffer; check extents, strides and offset",
    );
    says(
        softmax.run(&device, a.offset(1), b),
        "`x`: found 3 x 4 with strides 4 and 1 from element 1, expected at most the 12 elements of its buffer; check extents, strides and offset",
    );
    says(
        softmax.run(&device, a.stride(usize::MAX), b),
        "`x`: found 3 x 4 with strides 18446744073709551615 and 1 from element 0, expected at most the 12 elements of its buffer; check extents, strides and offset",
    );
    says(
        softmax.run(&device, a, b.columns(1..4)),
        "`y`: found 3 x 3, expected 3 x 4, as `x` has; give a view of that shape",
    );
    says(
        softmax.run(&device, a, b.stride(3)),
        "`y`: found 3 x 4 with strides 3 and 1, expected strides that give every element of a result memory of its own; use a stride of at least the columns",
    );
    says(
        softmax.run(&device, a.rows(0..2), a.rows(1..3)),
        "`y`: found memory that it shares with `x`, expected memory of its own or exactly the same; allocate another buffer",
    );
    says(
        transpose(&device, Rows::new(&x, 3, 3), Rows::new(&x, 3, 3)),
        "`y`: found memory that it shares with `x`, expected memory of its own; allocate another buffer",
    );
    let other = Device::cpu();
    says(
        softmax.run(&other, a, b),
        "`x`: found a buffer of another device, expected one of this; upload the data here",
    );
    let positions = device.upload(&[0i32; 2]).unwrap();
    says(
        softmax.positions(&positions).run(&device, a, b),
        "`positions`: found 1 x 2, expected 3 x 1, one for each row of `x`; give a view of that shape",
    );
    says(
        RmsNorm::new(0.0).weight(&x).run(&device, a, b),
        "`weight`: found 1 x 12, expected 1 x 4, one for each column of `x`; give a view of that shape",
    );
    says(
        LayerNorm::new(0.0).affine(a.rows(0..1), b).run(&device, a, b),
        "`bias`: found 3 x 4, expected 1 x 4, one for each column of `x`; give a view of that shape",
    );
    says(
        CrossEntropy::new().smoothing(2.0).run(&device, a, Rows::new(&n, 3, 1), Rows::new(&y, 3, 1)),
        "`smoothing`: found 2, expected a number from 0 to 1; give a part of the target",
    );
    says(
        TopK::new(5).run(&device, a, b, Rows::new(&n, 3, 4)),
        "`k`: found 5, expected at most 4, the columns of `x`; ask for fewer",
    );
    says(
        Rope::new(3).run(&device, a, a, a, b),
        "`x`: found 4 columns, expected rows of whole heads, of 3 numbers each; give the size of a head",
    );
    says(
        Rope::new(4).rotary(3).run(&device, a, a, a, b),
        "`rotary`: found 3, expected an even number up to 4, the size of a head; give whole pairs",
    );
    says(
        Dropout::new(1.5, 0).run(&device, a, b),
        "`p`: found 1.5, expected a probability; give a number from 0 to 1",
    );
    says(
        Elementwise::new(Binary::Add).run(&device, &[a], b),
        "`inputs`: found 1, expected 2, as `add` takes; give one for each number",
    );
    says(
        permute(&device, &x, &[3, 4], &[0, 0], &y),
        "`axes`: found [0, 0], expected each axis of [3, 4] once, four at most; name every axis",
    );
    says(
        permute(&device, &x, &[3, 5], &[1, 0], &y),
        "`x`: found 12 elements, expected 15, as [3, 5] has; give a slice of the buffer",
    );
    says(
        embedding(&device, a, Rows::new(&n, 2, 1), b),
        "`indices`: found 2 x 1, expected 3 x 1, one for each row of `y`; give a view of that shape",
    );
    says(
        Quantise::per_tensor().run(
            &device,
            a,
            Rows::new(&device.upload(&[0i8; 12]).unwrap(), 3, 4),
            Rows::new(&y, 3, 1),
        ),
        "`scales`: found 3 x 1, expected 1 x 1, one for all; give a view of that shape",
    );
    says(
        Reduce::Sum.all(&device, a, b),
        "`result`: found 3 x 4, expected 1 x 1, one for all; give a view of that shape",
    );
    says(
        Arg::Max.rows(&device, a, Rows::new(&n, 3, 2)),
        "`indices`: found 3 x 2, expected 3 x 1, one for each row of `x`; give a view of that shape",
    );
    assert_eq!((x.to_vec().unwrap(), y.to_vec().unwrap()), (vec![1.0; 12], vec![0.0; 12]));
}

#[test]
fn halves_of_one_matrix_are_apart() {
    let device = Device::cpu();
    let x = device.upload(&[1.0f32; 24]).unwrap();
    let both = Rows::new(&x, 3, 8);
    Softmax::new().run(&device, both.columns(0..4), both.columns(4..8)).unwrap();
    let expected: Vec<f32> = (0..24).map(|i| if i % 8 < 4 { 1.0 } else { 0.25 }).collect();
    assert_eq!(x.to_vec().unwrap(), expected);
    let found = Softmax::new().run(&device, both.columns(0..4), both.columns(3..7)).unwrap_err();
    assert!(found.to_string().contains("shares with `x`"));
}

#[test]
fn parts_that_a_matrix_does_not_have_are_refused() {
    let device = Device::cpu();
    let (x, y) = (device.upload(&[1.0f32; 40]).unwrap(), device.alloc::<f32>(40).unwrap());
    let (a, b) = (Rows::new(&x, 4, 10), Rows::new(&y, 4, 10));
    let softmax = Softmax::new();
    says(
        softmax.run(&device, a.rows(0..3).columns(5..15), b.rows(0..3)),
        "`x`: found columns 5..15, expected a range of the 10 columns that there are; check its ends",
    );
    #[allow(clippy::reversed_empty_ranges)]
    let none = 7..3;
    says(
        softmax.run(&device, a.columns(none.clone()), b.columns(0..0)),
        "`x`: found columns 7..3, expected a range of the 10 columns that there are; check its ends",
    );
    says(
        softmax.run(
            &device,
            a.columns(0..5),
            Rows::new(&y, 4, 5).stride(8).rows(1..5).transposed().transposed(),
        ),
        "`y`: found rows 1..5, expected a range of the 4 rows that there are; check its ends",
    );
    // The first is named, whatever is made of it.
    says(
        softmax.run(&device, a.rows(3..8).columns(none), b),
        "`x`: found rows 3..8, expected a range of the 4 rows that there are; check its ends",
    );
    softmax.run(&device, a.columns(10..10), b.columns(3..3)).unwrap();
}

#[test]
fn parts_of_one_matrix_do_not_share_memory_turned_or_not() {
    for device in [Device::cpu(), Device::simulator()] {
        let x = device.upload(&[0.5f32; 5 * 6]).unwrap();
        let all = Rows::new(&x, 5, 6);
        let [gate, up, y] = [0..2, 2..4, 4..6].map(|columns| all.columns(columns));
        Glu::swiglu().run(&device, gate, up, y).unwrap();
        Glu::swiglu().run(&device, gate.transposed(), up.transposed(), y.transposed()).unwrap();
        let wide = all.columns(3..6).transposed();
        let error =
            Glu::swiglu().run(&device, all.columns(0..3).transposed(), wide, all.columns(1..4).transposed());
        says(
            error,
            "`y`: found memory that it shares with `gate`, expected memory of its own or exactly the same; allocate another buffer",
        );
    }
}

/// What there is no kernel for is said; nothing is computed by half.
#[test]
fn what_has_no_kernel_is_named() {
    let device = Device::simulator();
    let x = device.upload(&[1.0f32; 4098]).unwrap();
    let angle = device.upload(&[0.0f32]).unwrap();
    let error = Rope::new(4098).rotary(2).run(&device, &x, &angle, &angle, &x).unwrap_err().to_string();
    assert!(error.contains("RoPE of so large heads"), "{error}");
}

/// Groups of columns are rows, if they follow each other at one distance.
#[test]
fn groups_that_a_matrix_does_not_have_are_refused() {
    let device = Device::cpu();
    let x = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]).unwrap();
    let sums = device.alloc::<f32>(4).unwrap();
    let all = Rows::new(&x, 2, 4);
    Reduce::Sum.rows(&device, all.groups(2), &sums).unwrap();
    assert_eq!(sums.to_vec().unwrap(), [3.0, 7.0, 11.0, 15.0]);
    // Every second column of one row.
    let odd = Rows::new(&x, 1, 4).offset(1).column_stride(2);
    Reduce::Sum.rows(&device, odd.groups(2), &sums.slice(0..2).unwrap()).unwrap();
    assert_eq!(sums.to_vec().unwrap()[..2], [6.0, 14.0]);
    let message = "expected whole groups in rows without gaps; give a divisor of the columns, or copy the rows together";
    for (x, group) in [(all, 3), (all, 0), (all.columns(0..2), 2), (all.columns(0..2).columns(0..2), 1)] {
        says(
            Reduce::Sum.rows(&device, x.groups(group), &sums),
            &format!("`x`: found groups of {group}, {message}"),
        );
    }
    // The first mistake is told.
    says(
        Reduce::Sum.rows(&device, all.rows(1..3).groups(3), &sums),
        "`x`: found rows 1..3, expected a range of the 2 rows that there are; check its ends",
    );
    let nothing = Rows::new(&x, 0, 4).groups(2);
    assert_eq!(nothing.extents(), (0, 2));
}

/// Views that repeat elements are matrices of any size, and the CPU needs memory for them.
#[test]
fn more_than_there_is_memory_for_is_refused() {
    let device = Device::cpu();
    let (x, sum) = (device.upload(&[1.0f32]).unwrap(), device.alloc::<f32>(1).unwrap());
    let all = Rows::new(&x, 1 << 31, 1 << 31).stride(0).column_stride(0);
    says(
        Reduce::Sum.all(&device, all, &sum),
        "`a view`: found 2147483648 x 2147483648 elements, expected as many as fit into the memory of this computer; take fewer rows at a time",
    );
}
