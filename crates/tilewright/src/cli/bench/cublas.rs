//! cuBLASLt as a contestant: the same product on the same memory.

use tilewright::cuda::SliceMut;
use tilewright::device::{Buffer, Device, DynBuffer};
use tilewright::hardware::Element;
use tilewright::kernels::gemm::{Accumulation, Placement, Problem, Storage};
use tilewright_cublaslt::{
    self as cublaslt, Algorithm, Compute, CublasError, Description, Library, Matmul, Matrix, Operands,
};

use super::super::Failure;
use super::super::product::{Activation, Case};
use super::memory::Memory;
use super::timing::{Contestant, broken};

/// A product in the library's hands.
pub(super) struct Peer<'a> {
    matmul: Matmul,
    device: &'a Device,
    memory: &'a Memory,
    workspace: Buffer<u8>,
    bias: bool,
}

/// A product with one of the library's algorithms.
pub(super) struct Entrant<'a> {
    peer: &'a Peer<'a>,
    pub(super) algorithm: Algorithm,
}

impl<'a> Peer<'a> {
    /// Describes the product to the library, which may use so many bytes of scratch memory.
    pub(super) fn new(
        library: Library,
        device: &'a Device,
        case: &Case,
        problem: &Problem,
        memory: &'a Memory,
        workspace: usize,
    ) -> Result<Peer<'a>, Failure> {
        let Some(context) = device.context() else {
            return Err(Failure::Machine(format!("cuBLASLt needs a GPU, found {}", device.name())));
        };
        let description = Description { workspace, ..description(case, problem) };
        let matmul = Matmul::new(library, context, description)?;
        let workspace = device.alloc::<u8>(workspace).map_err(broken)?;
        Ok(Peer { matmul, device, memory, workspace, bias: case.finish.bias })
    }

    /// The algorithms that the library proposes, the one it would choose first.
    pub(super) fn entrants(&'a self, most: usize) -> Result<Vec<Entrant<'a>>, Failure> {
        let proposed = self.with_operands(0, |_, operands| self.matmul.algorithms(&operands, most))?;
        Ok(proposed.into_iter().map(|algorithm| Entrant { peer: self, algorithm }).collect())
    }

    fn with_operands<R>(
        &self,
        copy: usize,
        work: impl FnOnce(&tilewright::cuda::Stream, Operands<'_>) -> Result<R, CublasError>,
    ) -> Result<R, Failure> {
        let copy = self.memory.copy(copy);
        // In the library's view, which is of columns, D is transposed and the factors change places.
        let lent: [DynBuffer; 5] = [
            (&copy.b).into(),
            (&copy.a).into(),
            (&copy.d).into(),
            (&self.memory.bias).into(),
            (&self.workspace).into(),
        ];
        let lent = self.device.lend(&lent.each_ref(), |stream, slices| {
            let Ok([left, right, d, bias, workspace]) = <[SliceMut<'_, u8>; 5]>::try_from(slices) else {
                return Ok(None);
            };
            let mut operands = Operands::new(left.as_slice(), right.as_slice(), d, workspace);
            operands.bias = self.bias.then(|| bias.as_slice());
            work(stream, operands).map(Some)
        });
        let done = lent.map_err(broken)??;
        done.ok_or_else(|| Failure::Machine("cuBLASLt was not lent its memory".to_owned()))
    }
}

impl Contestant for Entrant<'_> {
    fn launch(&self, copy: usize) -> Result<(), Failure> {
        self.peer
            .with_operands(copy, |stream, operands| self.peer.matmul.run(stream, &self.algorithm, operands))
    }
}

impl From<CublasError> for Failure {
    fn from(error: CublasError) -> Failure {
        Failure::Machine(error.to_string())
    }
}

/// `D^T = B^T * A^T`: what BLAS, which sees columns, takes for a row-major D.
fn description(case: &Case, problem: &Problem) -> Description {
    let seen = problem.transposed();
    let matrix = |placement: &Placement, element: Element, rows: u32, columns: u32| {
        let (rows, columns) = match placement.storage {
            Storage::ColumnMajor => (rows, columns),
            Storage::RowMajor => (columns, rows),
        };
        let dense = Matrix::dense(element, rows.into(), columns.into());
        Matrix { leading: placement.leading, batch_stride: placement.batch_stride, ..dense }
    };
    let compute = match (seen.types.a, seen.types.accumulate) {
        (Element::TF32, _) => Compute::Tf32,
        (_, Element::F64) => Compute::F64,
        (_, Element::I32) => Compute::I32,
        _ => Compute::F32,
    };
    let a = matrix(&seen.a, seen.types.a, seen.m, seen.k);
    let b = matrix(&seen.b, seen.types.b, seen.k, seen.n);
    let d = matrix(&seen.d, seen.types.d, seen.m, seen.n);
    Description {
        transposed_a: seen.a.storage == Storage::RowMajor,
        transposed_b: seen.b.storage == Storage::RowMajor,
        batch: seen.batch.max(1),
        bias: case.finish.bias,
        activation: match case.finish.activation {
            Activation::None => cublaslt::Activation::None,
            Activation::Relu => cublaslt::Activation::Relu,
            Activation::Gelu => cublaslt::Activation::Gelu,
        },
        fast_accumulation: matches!(seen.types.a, Element::E4M3 | Element::E5M2)
            && seen.accumulation == Accumulation::Fast,
        ..Description::new(a, b, d, compute)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::check::{Inputs, check};
    use super::super::timing::{Effort, race};
    use super::*;

    fn described(shape: &str, layout: &str, element: Element) -> Description {
        let case = Case {
            shape: shape.parse().unwrap(),
            element,
            layout: layout.parse().unwrap(),
            finish: "none".parse().unwrap(),
        };
        description(&case, &case.problem().unwrap())
    }

    #[test]
    fn the_library_sees_the_transposed_product_in_the_same_memory() {
        // What the letters promise: the library gets B^T first, so its own letters are ours read backwards and flipped.
        for (layout, transposed) in
            [("tn", (true, false)), ("nn", (true, true)), ("tt", (false, false)), ("nt", (false, true))]
        {
            let found = described("8x16x32*3+5", layout, Element::BF16);
            found.check().unwrap();
            assert_eq!((found.transposed_a, found.transposed_b), transposed, "{layout}");
            assert_eq!((found.d.rows, found.d.columns, found.d.leading, found.batch), (16, 8, 21, 3));
            assert_eq!(found.d.batch_stride, 8 * 21);
        }
    }

    /// Everything but the library itself: letters, gaps, batches and bias, through the memory of a device to the verdict.
    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_library_computes_is_what_was_asked_for() {
        use tilewright_fake_driver::Fake;

        let name = "cli::bench::cublas::tests::what_the_library_computes_is_what_was_asked_for";
        Fake::new().with_cublaslt().run(name, |driver| {
            let device = Device::cuda(0).unwrap();
            // One of the two algorithms needs scratch memory.
            for (shape, layout, element, finish, workspace, proposed) in [
                ("5x7x9", "tn", Element::F32, "none", 1 << 20, 2),
                ("5x7x9*2+3", "nn", Element::F32, "bias", 256, 2),
                ("4x3x8*3+1", "tt", Element::BF16, "none", 1 << 20, 2),
                ("6x5x4+2", "nt", Element::BF16, "bias+relu", 0, 1),
                ("3x2x1", "tn", Element::F32, "relu", 255, 1),
            ] {
                let case = Case {
                    shape: shape.parse().unwrap(),
                    element,
                    layout: layout.parse().unwrap(),
                    finish: finish.parse().unwrap(),
                };
                let problem = case.problem().unwrap();
                let inputs = Inputs::new(&problem, 5);
                let memory = Memory::new(&device, &problem, &inputs, Some(3)).unwrap();
                let library = Library::load().unwrap();
                let peer = Peer::new(library, &device, &case, &problem, &memory, workspace).unwrap();
                let entrants = peer.entrants(8).unwrap();
                assert_eq!(entrants.len(), proposed);
                memory.spoil(&problem).unwrap();
                entrants[proposed - 1].launch(0).unwrap();
                let verdict = check(&case, &problem, &inputs, &memory.copy(0).d).unwrap();
                assert_eq!(verdict.wrong, None, "{shape} {layout}");
                assert!(verdict.compared > 0);
                // By turns, in graphs, with events: what a GPU would do, at whatever speed.
                let contestants: Vec<&dyn Contestant> = entrants.iter().map(|entrant| entrant as _).collect();
                let effort = Effort { rounds: 2, sample: Duration::from_nanos(1) };
                let times = race(&device, &contestants, memory.copies(), effort).unwrap();
                assert!(times.iter().all(|times| times.len() == 2));
            }
            assert_eq!(driver.faults(), [""; 0]);
        });
    }

    #[test]
    fn types_choose_the_arithmetic() {
        for (element, compute, fast, result) in [
            (Element::BF16, Compute::F32, false, Element::BF16),
            (Element::TF32, Compute::Tf32, false, Element::F32),
            (Element::F32, Compute::F32, false, Element::F32),
            (Element::F64, Compute::F64, false, Element::F64),
            (Element::I8, Compute::I32, false, Element::I32),
            (Element::E4M3, Compute::F32, true, Element::BF16),
        ] {
            let found = described("8x16x32", "tn", element);
            found.check().unwrap();
            assert_eq!((found.compute, found.fast_accumulation, found.d.element), (compute, fast, result));
        }
    }
}
