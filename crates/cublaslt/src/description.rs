//! [`Description`]: a product in the terms of cuBLASLt, and whether it makes sense.

use tilewright_hardware::Element;

use crate::code::{self, Activation, Compute, Order, Scaling};
use crate::error::CublasError;

/// A matrix as it lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Type of its elements; [`Element::TF32`] is memory of f32.
    pub element: Element,
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Elements from one column (or row) to the next.
    pub leading: u64,
    /// What is contiguous.
    pub order: Order,
    /// Elements from one matrix of a batch to the next.
    pub batch_stride: u64,
}

impl Matrix {
    /// A column-major matrix without gaps.
    #[must_use]
    pub fn dense(element: Element, rows: u64, columns: u64) -> Matrix {
        let batch_stride = rows.saturating_mul(columns);
        Matrix { element, rows, columns, leading: rows, order: Order::Columns, batch_stride }
    }

    /// The same with gaps between columns (or rows).
    #[must_use]
    pub fn with_leading(self, leading: u64) -> Matrix {
        Matrix { leading, ..self }
    }

    /// Elements that are contiguous, and how many such lines there are.
    fn lines(&self) -> (u64, u64) {
        match self.order {
            Order::Columns => (self.rows, self.columns),
            Order::Rows => (self.columns, self.rows),
        }
    }

    /// Bytes from the first to the last element of a batch; none if that is no number.
    pub(crate) fn bytes(&self, batch: u32) -> Option<u64> {
        let (contiguous, lines) = self.lines();
        if contiguous == 0 || lines == 0 || batch == 0 {
            return Some(0);
        }
        let one = self.leading.checked_mul(lines - 1)?.checked_add(contiguous)?;
        let all = self.batch_stride.checked_mul(u64::from(batch) - 1)?.checked_add(one)?;
        all.checked_mul(u64::from(self.element.bytes()))
    }

    fn check(&self, what: &'static str) -> Result<(), CublasError> {
        if code::data_type(self.element).is_none() {
            return Err(CublasError::Type { what, found: self.element });
        }
        let (contiguous, _) = self.lines();
        if self.leading < contiguous.max(1) || i64::try_from(self.leading).is_err() {
            return Err(CublasError::Argument {
                what,
                found: format!("a leading dimension of {}", self.leading),
                expected: format!("at least {}", contiguous.max(1)),
            });
        }
        Ok(())
    }
}

/// `D = activation(alpha * op(A) * op(B) + beta * C + bias)`, with C in the place of D, or read from elsewhere.
///
/// The bias has an element for each row of D, of D's type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Description {
    /// Left factor.
    pub a: Matrix,
    /// Right factor.
    pub b: Matrix,
    /// The matrix that is added.
    pub c: Matrix,
    /// Result.
    pub d: Matrix,
    /// Whether A is transposed.
    pub transposed_a: bool,
    /// Whether B is transposed.
    pub transposed_b: bool,
    /// Products that are computed at once.
    pub batch: u32,
    /// How sums are computed.
    pub compute: Compute,
    /// Whether a bias is added.
    pub bias: bool,
    /// What is applied at the end.
    pub activation: Activation,
    /// Factors of A, in memory.
    pub scale_a: Option<Scaling>,
    /// Factors of B, in memory.
    pub scale_b: Option<Scaling>,
    /// One factor of an 8-bit D, in memory.
    pub scale_d: bool,
    /// Whether sums of 8-bit floats stay in the tensor core.
    pub fast_accumulation: bool,
    /// Bytes of scratch memory that an algorithm may ask for.
    pub workspace: usize,
}

impl Description {
    /// `D = A * B`, with 32 MiB of scratch memory (what NVIDIA advises for Hopper).
    #[must_use]
    pub fn new(a: Matrix, b: Matrix, d: Matrix, compute: Compute) -> Description {
        // Products with an 8-bit float as result take a C of 16 bits.
        let c = match d.element {
            Element::E4M3 | Element::E5M2 => Matrix { element: Element::BF16, ..d },
            _ => d,
        };
        Description {
            a,
            b,
            c,
            d,
            transposed_a: false,
            transposed_b: false,
            batch: 1,
            compute,
            bias: false,
            activation: Activation::None,
            scale_a: None,
            scale_b: None,
            scale_d: false,
            fast_accumulation: false,
            workspace: 32 << 20,
        }
    }

    /// With A transposed.
    #[must_use]
    pub fn transpose_a(self) -> Description {
        Description { transposed_a: true, ..self }
    }

    /// With B transposed.
    #[must_use]
    pub fn transpose_b(self) -> Description {
        Description { transposed_b: true, ..self }
    }

    /// Whether it makes sense. That the library has a kernel for it is another question.
    ///
    /// # Errors
    /// If extents contradict each other, lines of a matrix overlap, or a type is unknown to the library.
    pub fn check(&self) -> Result<(), CublasError> {
        let all =
            [("matrix A", &self.a), ("matrix B", &self.b), ("matrix C", &self.c), ("matrix D", &self.d)];
        all.into_iter().try_for_each(|(what, matrix)| matrix.check(what))?;
        let seen = |matrix: &Matrix, transposed: bool| match transposed {
            false => (matrix.rows, matrix.columns),
            true => (matrix.columns, matrix.rows),
        };
        let ((m, k), (inner, n)) = (seen(&self.a, self.transposed_a), seen(&self.b, self.transposed_b));
        let extents = |(rows, columns)| format!("{rows} x {columns}");
        let same = |what, found: (u64, u64), expected: (u64, u64)| match found == expected {
            true => Ok(()),
            false => Err(CublasError::Argument { what, found: extents(found), expected: extents(expected) }),
        };
        same("op(B)", (inner, n), (k, n))?;
        same("matrix C", seen(&self.c, false), (m, n))?;
        same("matrix D", seen(&self.d, false), (m, n))?;
        if self.batch == 0 || i32::try_from(self.batch).is_err() {
            return Err(CublasError::Argument {
                what: "the batch",
                found: self.batch.to_string(),
                expected: "1 to 2147483647".to_owned(),
            });
        }
        Ok(())
    }

    /// Bytes of each operand: A, B, C, D, bias, factors of A, B and D.
    pub(crate) fn bytes(&self) -> [(&'static str, u64); 8] {
        let matrix = |matrix: &Matrix| matrix.bytes(self.batch).unwrap_or(u64::MAX);
        let scales = |scaling: Option<Scaling>, extent: u64| match scaling {
            None => 0,
            Some(Scaling::Tensor) => 4,
            Some(Scaling::OuterVector) => extent.saturating_mul(4),
        };
        let bias = if self.bias { self.d.rows.saturating_mul(u64::from(self.d.element.bytes())) } else { 0 };
        [
            ("memory of A", matrix(&self.a)),
            ("memory of B", matrix(&self.b)),
            ("memory of C", matrix(&self.c)),
            ("memory of D", matrix(&self.d)),
            ("the bias", bias),
            ("factors of A", scales(self.scale_a, self.d.rows)),
            ("factors of B", scales(self.scale_b, self.d.columns)),
            ("the factor of D", if self.scale_d { 4 } else { 0 }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn product(m: u64, n: u64, k: u64) -> Description {
        let matrix = |rows, columns| Matrix::dense(Element::BF16, rows, columns);
        Description::new(matrix(k, m), matrix(k, n), matrix(m, n), Compute::F32).transpose_a()
    }

    fn refusal(description: &Description) -> String {
        description.check().unwrap_err().to_string()
    }

    #[test]
    fn extents_are_held_against_each_other() {
        product(4, 5, 6).check().unwrap();
        let mut wrong = product(4, 5, 6);
        wrong.b.rows = 7;
        wrong.b.leading = 7;
        assert_eq!(refusal(&wrong), "op(B): found 7 x 5, expected 6 x 5");
        let mut wrong = product(4, 5, 6);
        wrong.transposed_a = false;
        assert_eq!(refusal(&wrong), "op(B): found 6 x 5, expected 4 x 5");
        let mut wrong = product(4, 5, 6);
        wrong.d.leading = 3;
        assert_eq!(refusal(&wrong), "matrix D: found a leading dimension of 3, expected at least 4");
        let mut wrong = product(4, 5, 6);
        wrong.batch = 0;
        assert!(refusal(&wrong).starts_with("the batch: found 0"));
        let mut wrong = product(4, 5, 6);
        wrong.a.element = Element::U64;
        assert!(refusal(&wrong).starts_with("matrix A: found elements of u64"));
    }

    #[test]
    fn memory_ends_with_the_last_element() {
        let matrix = Matrix::dense(Element::F32, 3, 4).with_leading(10);
        assert_eq!(matrix.bytes(1), Some((3 * 10 + 3) * 4));
        assert_eq!(Matrix { batch_stride: 100, ..matrix }.bytes(2), Some((100 + 33) * 4));
        assert_eq!(Matrix { order: Order::Rows, ..matrix }.bytes(1), Some((2 * 10 + 4) * 4));
        assert_eq!(Matrix { rows: 0, ..matrix }.bytes(1), Some(0));
        assert_eq!(Matrix { leading: u64::MAX, ..matrix }.bytes(1), None);
    }

    #[test]
    fn operands_that_are_not_used_need_no_memory() {
        let mut description = product(4, 5, 6);
        let extra = |description: &Description| {
            description.bytes()[4..].iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>()
        };
        assert_eq!(extra(&description), [0; 4]);
        description.bias = true;
        description.scale_a = Some(Scaling::OuterVector);
        description.scale_b = Some(Scaling::Tensor);
        assert_eq!(extra(&description), [8, 16, 4, 0]);
    }
}
