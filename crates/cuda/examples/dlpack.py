"""Hands tensors between PyTorch and Rust without copies.

cargo build --release --example dlpack
python3 crates/cuda/examples/dlpack.py target/release/examples/libdlpack.so

Exits with 2 where PyTorch or a GPU is missing, with 1 where a result is wrong.
"""

import ctypes
import sys

OLD, NEW = b"dltensor", b"dltensor_versioned"

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_IsValid.restype = ctypes.c_int
api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

# A capsule keeps the pointer to its name, so the text must stay.
USED = {OLD: b"used_dltensor", NEW: b"used_dltensor_versioned"}


def call(function, *arguments):
    """Calls a function of the library; its message is raised."""
    message = ctypes.create_string_buffer(512)
    if function(*arguments, message, ctypes.c_size_t(len(message))) != 0:
        raise RuntimeError(message.value.decode())


def numbers(library, rows, columns, form):
    """A matrix that Rust made, as a capsule for PyTorch."""
    make = library.tilewright_numbers if form == NEW else library.tilewright_numbers_unversioned
    tensor = ctypes.c_void_p()
    call(make, ctypes.c_size_t(rows), ctypes.c_size_t(columns), ctypes.byref(tensor))
    return api.PyCapsule_New(tensor, form, None)


def double(library, capsule):
    """Gives a tensor of PyTorch to Rust, which doubles it in place."""
    form = NEW if api.PyCapsule_IsValid(capsule, NEW) else OLD
    tensor = ctypes.c_void_p(api.PyCapsule_GetPointer(capsule, form))
    # From here on the tensor is Rust's, and PyTorch must not let it go a second time.
    api.PyCapsule_SetName(capsule, USED[form])
    function = library.tilewright_double if form == NEW else library.tilewright_double_unversioned
    call(function, tensor)


def main():
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed")
        return 2
    if not torch.cuda.is_available():
        print("PyTorch finds no GPU")
        return 2
    library = ctypes.CDLL(sys.argv[1])

    for form in (OLD, NEW):
        try:
            tensor = torch.utils.dlpack.from_dlpack(numbers(library, 3, 4, form))
        except RuntimeError as error:
            if form == NEW and "dltensor" in str(error):
                print("this PyTorch takes only the form before DLPack 1")
                continue
            raise
        expected = torch.arange(12, dtype=torch.float32, device="cuda").reshape(3, 4)
        if not torch.equal(tensor, expected):
            print(f"from Rust: found {tensor}")
            return 1
        print(f"from Rust ({form.decode()}): {tuple(tensor.shape)} {tensor.dtype} at {tensor.data_ptr():#x}")
        tensor += 1
        del tensor  # frees the memory in Rust

    ours = torch.ones(1000, 1000, device="cuda")
    ours *= 21
    torch.cuda.current_stream().synchronize()
    address = ours.data_ptr()
    double(library, torch.utils.dlpack.to_dlpack(ours))
    if not bool((ours == 42).all()) or ours.data_ptr() != address:
        print(f"doubled by Rust: found {ours}")
        return 1
    print(f"doubled by Rust in place at {address:#x}")

    try:
        double(library, torch.utils.dlpack.to_dlpack(torch.ones(3)))
    except RuntimeError as error:
        print(f"refused, as it should be: {error}")
    else:
        print("a tensor on the host was accepted")
        return 1
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
