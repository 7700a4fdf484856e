//! Products under a double of the library, which computes them on host memory and is as strict as the real one about what it is told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking
#![cfg(target_os = "linux")]

use tilewright_cublaslt::{
    Activation, Compute, CublasError, Description, Library, Matmul, Matrix, Operands, Order,
};
use tilewright_cuda::{Buffer, Context, SliceMut, Stream};
use tilewright_fake_driver::Fake;
use tilewright_hardware::Element;

fn numbers(count: usize, factor: usize) -> Vec<f32> {
    (0..count).map(|i| f32::from(u8::try_from(i * factor % 7).unwrap()) - 3.0).collect()
}

fn upload(stream: &Stream, values: &[f32]) -> Buffer<u8> {
    stream.upload(values).unwrap().cast().unwrap()
}

fn download(stream: &Stream, buffer: Buffer<u8>) -> Vec<f32> {
    stream.download(&buffer.cast::<f32>().unwrap()).unwrap()
}

/// A matrix in memory, by an index of its own.
struct Host {
    matrix: Matrix,
    values: Vec<f32>,
}

impl Host {
    fn new(matrix: Matrix, batch: usize, factor: usize) -> Host {
        let count = usize::try_from(matrix.batch_stride).unwrap() * batch;
        Host { matrix, values: numbers(count, factor) }
    }

    fn at(&self, member: u64, row: u64, column: u64, transposed: bool) -> f32 {
        let (row, column) = if transposed { (column, row) } else { (row, column) };
        self.values[place(&self.matrix, member, row, column)]
    }
}

fn place(matrix: &Matrix, member: u64, row: u64, column: u64) -> usize {
    let (fast, slow) = if matrix.order == Order::Rows { (column, row) } else { (row, column) };
    usize::try_from(member * matrix.batch_stride + slow * matrix.leading + fast).unwrap()
}

/// With gaps between columns and between members.
fn gappy(rows: u64, columns: u64) -> Matrix {
    let leading = rows + 2;
    Matrix { leading, batch_stride: leading * columns + 5, ..Matrix::dense(Element::F32, rows, columns) }
}

fn product(m: u64, n: u64, k: u64, transposed: (bool, bool)) -> Description {
    let a = if transposed.0 { gappy(k, m) } else { gappy(m, k) };
    let b = if transposed.1 { gappy(n, k) } else { gappy(k, n) };
    let mut description = Description::new(a, b, gappy(m, n), Compute::F32);
    (description.transposed_a, description.transposed_b) = transposed;
    description
}

#[test]
fn products_are_computed_in_order() {
    Fake::new().with_cublaslt().run("products_are_computed_in_order", |driver| {
        {
            let context = Context::new(0).unwrap();
            let (stream, other) = (context.stream().unwrap(), context.stream().unwrap());
            let library = Library::load().unwrap();
            assert_eq!(library.version(), "13.0.0");
            for transposed in [(false, false), (true, false), (false, true), (true, true)] {
                let description = Description {
                    batch: 2,
                    bias: true,
                    activation: Activation::Relu,
                    ..product(3, 4, 5, transposed)
                };
                let (a, b) = (Host::new(description.a, 2, 3), Host::new(description.b, 2, 5));
                let bias = numbers(3, 2);
                let matmul = Matmul::new(library, &context, description.clone()).unwrap();
                // Inputs come from another stream; what runs too early finds nothing.
                let (left, right) = (upload(&other, &a.values), upload(&other, &b.values));
                let bias_memory = upload(&other, &bias);
                let poison = vec![f32::MAX; usize::try_from(description.d.batch_stride).unwrap() * 2];
                let mut d = upload(&other, &poison);
                let mut workspace = stream.alloc::<u8>(1024).unwrap();
                let mut operands = Operands::new(
                    left.as_slice(),
                    right.as_slice(),
                    d.as_mut_slice(),
                    workspace.as_mut_slice(),
                );
                operands.bias = Some(bias_memory.as_slice());
                operands.alpha = 2.0;
                let algorithms = matmul.algorithms(&operands, 8).unwrap();
                let words: Vec<String> = algorithms.iter().map(ToString::to_string).collect();
                assert_eq!(words, ["algo 1", "algo 2"]);
                assert_eq!(algorithms[0].workspace(), 256);
                matmul.run(&stream, &algorithms[1], operands).unwrap();
                // Memory goes while the product is pending; it must not.
                drop((left, right, bias_memory, workspace));
                let found = download(&other, d);
                let mut expected = poison;
                for (member, row, column) in (0..2)
                    .flat_map(|z| (0..3).flat_map(move |row| (0..4).map(move |column| (z, row, column))))
                {
                    let step = |k| a.at(member, row, k, transposed.0) * b.at(member, k, column, transposed.1);
                    let sum = (0..5).map(step).sum::<f32>() * 2.0 + bias[usize::try_from(row).unwrap()];
                    expected[place(&description.d, member, row, column)] = sum.max(0.0);
                }
                assert_eq!(found, expected, "{transposed:?}");
            }
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

#[test]
fn a_product_becomes_part_of_a_graph() {
    Fake::new().with_cublaslt().run("a_product_becomes_part_of_a_graph", |driver| {
        {
            let context = Context::new(0).unwrap();
            let stream = context.stream().unwrap();
            let matrix = Matrix { order: Order::Rows, ..Matrix::dense(Element::F32, 2, 2) };
            let description = Description::new(matrix, matrix, matrix, Compute::F32);
            let matmul = Matmul::new(Library::load().unwrap(), &context, description).unwrap();
            let (a, b) = (upload(&stream, &[1.0, 2.0, 3.0, 4.0]), upload(&stream, &[1.0, 0.0, 1.0, 1.0]));
            let (mut d, mut workspace) = (upload(&stream, &[0.0; 4]), stream.alloc::<u8>(256).unwrap());
            let graph = stream.capture(|| {
                let operands =
                    Operands::new(a.as_slice(), b.as_slice(), d.as_mut_slice(), workspace.as_mut_slice());
                let first = matmul.algorithms(&operands, 1)?.remove(0);
                matmul.run(&stream, &first, operands)
            });
            let ready = graph.unwrap().instantiate().unwrap();
            drop((a, b, workspace));
            ready.launch(&stream).unwrap();
            assert_eq!(download(&stream, d), [3.0, 2.0, 7.0, 4.0]);
        }
        assert_eq!(driver.faults(), [""; 0]);
        assert_eq!(driver.leaks(), [""; 0]);
    });
}

/// The square of what is in memory.
fn good<'a>(memory: &'a Buffer<u8>, d: SliceMut<'a, u8>, workspace: SliceMut<'a, u8>) -> Operands<'a> {
    Operands::new(memory.as_slice(), memory.as_slice(), d, workspace)
}

#[test]
fn what_does_not_fit_is_refused_before_the_library_sees_it() {
    Fake::new().with_cublaslt().run("what_does_not_fit_is_refused_before_the_library_sees_it", |driver| {
        let context = Context::new(0).unwrap();
        let stream = context.stream().unwrap();
        let library = Library::load().unwrap();
        let matrix = Matrix::dense(Element::F32, 4, 4);
        let plain = Description::new(matrix, matrix, matrix, Compute::F32);
        let matmul = Matmul::new(library, &context, plain.clone()).unwrap();
        let memory = stream.alloc_zeroed::<u8>(64).unwrap();
        let (mut d, mut workspace) =
            (stream.alloc_zeroed::<u8>(64).unwrap(), stream.alloc::<u8>(256).unwrap());
        let short = memory.slice(..63).unwrap();
        let operands = Operands::new(memory.as_slice(), short, d.as_mut_slice(), workspace.as_mut_slice());
        let refused = |result: Result<Vec<_>, CublasError>| result.unwrap_err().to_string();
        assert_eq!(
            refused(matmul.algorithms(&operands, 1)),
            "memory of B: found 63 bytes, expected at least 64"
        );

        let algorithms =
            matmul.algorithms(&good(&memory, d.as_mut_slice(), workspace.as_mut_slice()), 1).unwrap();
        let little = workspace.slice_mut(..255).unwrap();
        let error = matmul.run(&stream, &algorithms[0], good(&memory, d.as_mut_slice(), little)).unwrap_err();
        assert_eq!(error.to_string(), "the workspace: found 255 bytes, expected at least 256");

        let with_bias = Description { bias: true, ..plain.clone() };
        let biased = Matmul::new(library, &context, with_bias).unwrap();
        let error = refused(biased.algorithms(&good(&memory, d.as_mut_slice(), workspace.as_mut_slice()), 1));
        assert_eq!(error, "the bias: found 0 bytes, expected at least 16");

        let other = Matmul::new(library, &context, Description { workspace: 1, ..plain.clone() }).unwrap();
        let error =
            other.run(&stream, &algorithms[0], good(&memory, d.as_mut_slice(), workspace.as_mut_slice()));
        assert!(error.unwrap_err().to_string().starts_with("the algorithm: found one of another product"));

        // What it describes, but does not compute.
        let gelu = Description { activation: Activation::Gelu, ..plain };
        let gelu = Matmul::new(library, &context, gelu).unwrap();
        let error =
            gelu.algorithms(&good(&memory, d.as_mut_slice(), workspace.as_mut_slice()), 1).unwrap_err();
        assert!(
            error.is_unsupported() && error.to_string().contains("CUBLAS_STATUS_NOT_SUPPORTED"),
            "{error}"
        );
        assert_eq!(driver.faults(), [""; 0]);
    });
}
