//! Other compilers' PTX on every device: the example with Triton's, and what is said of arguments that do not fit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code, unreachable_pub)] // its `main` is not called
#[path = "../examples/triton_ptx.rs"]
mod triton_ptx;

use tilewright::device::{Device, available};

const PTX: &str = include_str!("../examples/triton/softmax.ptx");

#[test]
fn the_example_computes_what_it_should() {
    for device in available() {
        let difference = triton_ptx::compare(&device).unwrap();
        assert!(difference < 1e-7, "{difference} on {}", device.name());
    }
}

#[test]
fn rows_that_do_not_fit_are_refused() {
    let device = Device::cpu();
    let softmax = triton_ptx::Softmax::load(&device).unwrap();
    let x = device.alloc_zeroed::<f32>(3000).unwrap();
    let error = softmax.run(&x, &x, 1.0, 1500).unwrap_err();
    assert_eq!(
        error.to_string(),
        "found 3000 and 3000 elements in rows of 1500, expected as many of each, in rows of 1 to 1024"
    );
    assert!(softmax.run(&x, &x, 1.0, 1000).is_ok());
}

/// The PTX itself says which parameters are pointers and numbers, and which need not be given.
#[test]
fn arguments_are_held_against_the_ptx() {
    let device = Device::simulator();
    let kernel = device.load(PTX).unwrap().kernel("softmax").unwrap().with_shared(16);
    assert_eq!((kernel.block(), kernel.optional_parameters()), (Some([128, 1, 1]), &[8, 8][..]));
    let x = device.upload(&[1.0f32; 64]).unwrap();
    let columns = 64u32;
    kernel.launch(1, &[&x, &x, &1.0f32, &columns]).unwrap().expect_clean().unwrap();
    assert_eq!(x.to_vec().unwrap(), [1.0 / 64.0; 64]);
    // Scratch memory, for kernels that have some, is given as any other argument.
    kernel.launch(1, &[&x, &x, &1.0f32, &columns, &x, &0u64]).unwrap_err();
    kernel.launch(1, &[&x, &x, &1.0f32, &columns, &x, &x]).unwrap().expect_clean().unwrap();

    let says = |arguments: &[&dyn tilewright::device::Argument]| {
        kernel.launch(1, arguments).unwrap_err().to_string()
    };
    assert_eq!(
        says(&[&x, &x, &1.0f32]),
        "kernel `softmax` was given 3 arguments, expected 4: `softmax_param_0`, a buffer; `softmax_param_1`, a buffer; \
         `softmax_param_2`, a floating-point number of 4 bytes; `softmax_param_3`, an integer of 4 bytes"
    );
    let parameter = |number: usize| {
        format!("argument {number} of kernel `softmax` (parameter `softmax_param_{}`): ", number - 1)
    };
    assert_eq!(
        says(&[&x, &1u64, &1.0f32, &columns]),
        parameter(2) + "found a number of type u64, expected a buffer"
    );
    assert_eq!(
        says(&[&x, &x, &1u32, &columns]),
        parameter(3) + "found a number of type u32, expected a floating-point number of 4 bytes"
    );
    assert_eq!(
        says(&[&x, &x, &1.0f32, &64.0f32]),
        parameter(4) + "found a number of type f32, expected an integer of 4 bytes"
    );
    assert_eq!(
        says(&[&x, &x, &1.0f32, &64u64]),
        parameter(4) + "found a number of type u64, expected an integer of 4 bytes"
    );
}
