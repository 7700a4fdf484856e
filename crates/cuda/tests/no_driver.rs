//! Without a driver everything is an error value, never a panic.

use tilewright_cuda::{CudaError, Driver};

#[test]
fn loading_never_panics_and_errors_have_remedies() {
    if let Err(error) = Driver::load() {
        assert!(!error.to_string().contains('\n'));
        assert!(!error.remedy().is_empty());
    }
}

#[test]
fn messages_name_the_call_and_the_remedy() {
    let missing = CudaError::NoDriver { library: "libcuda.so.1" };
    assert!(missing.to_string().starts_with("no NVIDIA driver: the library `libcuda.so.1` was not found"));
    let none = CudaError::Call {
        call: "cuInit",
        code: 100,
        name: "CUDA_ERROR_NO_DEVICE".into(),
        text: "no CUDA-capable device is detected".into(),
    };
    assert!(none.to_string().starts_with("cuInit failed: CUDA_ERROR_NO_DEVICE (100)"));
    assert!(none.remedy().contains("CUDA_VISIBLE_DEVICES"));
}
