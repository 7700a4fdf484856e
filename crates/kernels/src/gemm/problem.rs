//! [`Problem`]: which product is asked for. Extents, types, how the matrices lie in memory, what happens to the sums.
//!
//! A problem names no memory and holds no numbers that vary from call to call: those are operands of a run. Two problems that are
//! equal can share everything that was prepared for one of them.

use std::fmt;

use tilewright_hardware::Element;

use super::epilogue::Epilogue;
use super::{Footprint, GemmError};

/// Which index of a matrix is contiguous in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Storage {
    /// Elements of a row lie side by side.
    RowMajor,
    /// Elements of a column lie side by side.
    ColumnMajor,
}

impl Storage {
    /// How A and B lie by the two letters of BLAS, which sees columns: the first is `t` if A has k contiguous and `n` if it has m, the second is
    /// `n` if B has k contiguous and `t` if it has n. Nothing for other texts.
    ///
    /// ```
    /// use tilewright_kernels::gemm::Storage;
    ///
    /// assert_eq!(Storage::of_blas("tn"), Some((Storage::RowMajor, Storage::ColumnMajor)));
    /// assert_eq!(Storage::of_blas("cn"), None);
    /// ```
    #[must_use]
    pub fn of_blas(letters: &str) -> Option<(Storage, Storage)> {
        match letters {
            "tn" => Some((Storage::RowMajor, Storage::ColumnMajor)),
            "nn" => Some((Storage::ColumnMajor, Storage::ColumnMajor)),
            "tt" => Some((Storage::RowMajor, Storage::RowMajor)),
            "nt" => Some((Storage::ColumnMajor, Storage::RowMajor)),
            _ => None,
        }
    }

    /// That of the transposed matrix in the same memory.
    #[must_use]
    pub fn transposed(self) -> Storage {
        match self {
            Storage::RowMajor => Storage::ColumnMajor,
            Storage::ColumnMajor => Storage::RowMajor,
        }
    }
}

impl fmt::Display for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Storage::RowMajor => "row-major",
            Storage::ColumnMajor => "column-major",
        })
    }
}

/// How a matrix lies in memory.
///
/// ```
/// use tilewright_kernels::gemm::{Placement, Storage};
///
/// // The first 48 of 64 columns.
/// let part = Placement::dense(Storage::RowMajor, 100, 48).with_leading(64);
/// assert_eq!(part.transposed().storage, Storage::ColumnMajor);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Placement {
    /// Which index is contiguous.
    pub storage: Storage,
    /// Elements from one row (or column) to the next.
    pub leading: u64,
    /// Elements from one matrix of a batch to the next. Zero uses the same matrix for all.
    pub batch_stride: u64,
    /// Bytes that its address is known to be a multiple of: a power of two.
    pub alignment: u32,
}

impl Placement {
    /// Bytes that what a device allocates is a multiple of.
    pub const ALIGNED: u32 = 256;

    /// A matrix without gaps, at an address that suits every copy.
    #[must_use]
    pub fn dense(storage: Storage, rows: usize, columns: usize) -> Placement {
        let (rows, columns) = (rows as u64, columns as u64);
        let leading = match storage {
            Storage::RowMajor => columns,
            Storage::ColumnMajor => rows,
        };
        // What is more than a number is more than any memory: whoever takes such a stride refuses it.
        let batch_stride = rows.saturating_mul(columns);
        Placement { storage, leading: leading.max(1), batch_stride, alignment: Placement::ALIGNED }
    }

    /// The same with so many elements from one row (or column) to the next.
    #[must_use]
    pub fn with_leading(self, leading: usize) -> Placement {
        Placement { leading: leading as u64, ..self }
    }

    /// The same with so many elements from one matrix of a batch to the next. Zero uses the same matrix for all.
    #[must_use]
    pub fn with_batch_stride(self, batch_stride: usize) -> Placement {
        Placement { batch_stride: batch_stride as u64, ..self }
    }

    /// The transposed matrix in the same memory.
    #[must_use]
    pub fn transposed(self) -> Placement {
        Placement { storage: self.storage.transposed(), ..self }
    }

    /// Whether lines and members are so close that kernels can index them. The matrix is named as `matrix` says.
    pub(super) fn check_distances(&self, batch: u32, matrix: impl Fn() -> String) -> Result<(), GemmError> {
        check_distance("the leading dimension", self.leading, LARGEST_LEADING, &matrix)?;
        // Nobody looks at the stride of a single matrix.
        check_distance(
            "the batch stride",
            if batch > 1 { self.batch_stride } else { 0 },
            LARGEST_STRIDE,
            matrix,
        )
    }

    /// Whether the copy engine can read and write it: address, rows and batches start at multiples of 16 bytes.
    #[must_use]
    pub fn suits_copy_engine(&self, element: Element, batch: u32) -> bool {
        let bytes = u64::from(element.bytes());
        let whole = |elements: u64| (elements * bytes).is_multiple_of(16);
        self.alignment >= 16 && whole(self.leading) && (batch <= 1 || whole(self.batch_stride))
    }

    /// Elements that a vector access at the start of any row (and any multiple of as many elements further) may take, at most `most`.
    #[must_use]
    pub fn vector(&self, element: Element, batch: u32, most: u32) -> u32 {
        let mut elements = most.max(1);
        let fits = |n: u32| {
            let n = u64::from(n);
            let strides =
                self.leading.is_multiple_of(n) && (batch <= 1 || self.batch_stride.is_multiple_of(n));
            strides && u64::from(self.alignment).is_multiple_of(n * u64::from(element.bytes()))
        };
        while elements > 1 && !fits(elements) {
            elements /= 2;
        }
        elements
    }
}

/// Whether what is so many elements apart is not too far for kernels.
pub(super) fn check_distance(
    what: &'static str,
    found: u64,
    limit: u64,
    matrix: impl Fn() -> String,
) -> Result<(), GemmError> {
    if found <= limit {
        return Ok(());
    }
    let expected = format!("at most {limit}; copy it to where its elements lie closer together");
    Err(GemmError::Matrix { matrix: matrix(), what, found, expected })
}

/// The types of a product.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::Types;
///
/// let types = Types::of(Element::BF16).with_result(Element::F32);
/// assert_eq!((types.a, types.accumulate, types.d), (Element::BF16, Element::F32, Element::F32));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Types {
    /// Left factor. [`Element::TF32`] is memory of f32 that tensor cores multiply with ten bits of mantissa.
    pub a: Element,
    /// Right factor.
    pub b: Element,
    /// Sums: f32, f64 or i32.
    pub accumulate: Element,
    /// The matrix that is added.
    pub c: Element,
    /// Result.
    pub d: Element,
}

impl Types {
    /// Factors and result of one type, sums in the type that suits it: i32 for 8-bit integers (whose result is i32), f64 for f64, else
    /// f32. Results of 8-bit floats are bf16, results of tf32 are f32.
    #[must_use]
    pub fn of(element: Element) -> Types {
        let (accumulate, d) = match element {
            Element::I8 | Element::U8 => (Element::I32, Element::I32),
            Element::F64 => (Element::F64, Element::F64),
            Element::E4M3 | Element::E5M2 => (Element::F32, Element::BF16),
            Element::TF32 | Element::F32 => (Element::F32, Element::F32),
            other => (Element::F32, other),
        };
        Types { a: element, b: element, accumulate, c: d, d }
    }

    /// The same with another type of result (and of the matrix that is added).
    #[must_use]
    pub fn with_result(self, d: Element) -> Types {
        Types { c: d, d, ..self }
    }

    /// Whether there are kernels for them. This is the one table of types: the CPU computes exactly these too. Chips may have fewer.
    ///
    /// ```
    /// use tilewright_hardware::Element::{BF16, F16, F32, U64};
    /// use tilewright_kernels::gemm::Types;
    ///
    /// assert!(Types::of(BF16).with_result(F32).check(true).is_ok());
    /// assert!(Types { b: F16, ..Types::of(BF16) }.check(true).is_err());
    /// assert!(Types { c: U64, ..Types::of(BF16) }.check(true).is_err());
    /// ```
    ///
    /// # Errors
    /// If there are none. The type of C counts only where it is read.
    pub fn check(&self, reads_c: bool) -> Result<(), GemmError> {
        use Element::{BF16, E4M3, E5M2, F16, F32, F64, I8, I32, TF32, U8};
        let Types { a, b, accumulate, c, d } = *self;
        let factors = match (a, b) {
            (F16, F16) | (BF16, BF16) | (F32 | TF32, F32 | TF32) | (E4M3 | E5M2, E4M3 | E5M2) => Some(F32),
            (F64, F64) => Some(F64),
            (I8 | U8, I8 | U8) => Some(I32),
            _ => None,
        };
        let result = |element| matches!(element, F16 | BF16 | F32 | TF32 | F64 | E4M3 | E5M2 | I8 | U8 | I32);
        if factors != Some(accumulate) || !result(d) {
            return Err(GemmError::Types {
                a: a.name(),
                b: b.name(),
                accumulate: accumulate.name(),
                d: d.name(),
                expected: format!(
                    "factors are f16 or bf16 both, f32 or tf32, e4m3 or e5m2 (sums in f32), f64 (in f64), i8 or u8 (in i32); \
                     results are {RESULTS}"
                ),
            });
        }
        if reads_c && !result(c) {
            return Err(GemmError::Elements { matrix: "C", found: c.name(), expected: RESULTS });
        }
        Ok(())
    }

    /// As memory holds them: tf32 is f32 there.
    #[must_use]
    pub fn in_memory(element: Element) -> Element {
        if element == Element::TF32 { Element::F32 } else { element }
    }
}

/// How sums of 8-bit floats are kept. The tensor cores of Hopper add them with fewer bits than f32 has.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::{Accumulation, Problem, Types};
///
/// let problem = Problem::new(64, 64, 4096, Types::of(Element::E4M3));
/// assert_eq!(problem.accumulation, Accumulation::Fast);
/// let exact = Problem { accumulation: Accumulation::Promoted, ..problem };
/// assert!(exact.check().is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Accumulation {
    /// In the tensor core, from first to last.
    #[default]
    Fast,
    /// Every 128 steps of k added to sums in f32.
    Promoted,
}

/// One matrix for each member of a batch: at a fixed distance, or wherever a list of addresses says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Batching {
    /// By [`Placement::batch_stride`].
    #[default]
    Strided,
    /// The operands A, B, C and D are arrays of addresses, one for each member.
    Pointers,
}

/// `D = epilogue(A * B)`, and what is known about its matrices before any memory is.
///
/// A is (m, k), B is (k, n), C and D are (m, n) as far as the [`epilogue`](Epilogue) leaves the extents alone.
///
/// ```
/// use tilewright_hardware::Element;
/// use tilewright_kernels::gemm::{Problem, Types};
///
/// let problem = Problem { batch: 2, ..Problem::new(64, 32, 16, Types::of(Element::BF16)) };
/// assert!(problem.check().is_ok());
/// assert_eq!(problem.flops(), 2.0 * 2.0 * 64.0 * 32.0 * 16.0);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Products that are computed at once, each with matrices of its own.
    pub batch: u32,
    /// How the matrices of a batch are found.
    pub batching: Batching,
    /// Types.
    pub types: Types,
    /// How sums of 8-bit floats are kept.
    pub accumulation: Accumulation,
    /// The left factor.
    pub a: Placement,
    /// The right factor.
    pub b: Placement,
    /// The matrix that the epilogue adds, if it does.
    pub c: Placement,
    /// The result.
    pub d: Placement,
    /// What happens to the sums on their way to D.
    pub epilogue: Epilogue,
}

/// The types of C and D, for messages.
const RESULTS: &str = "f16, bf16, f32, f64, e4m3, e5m2, i8, u8 or i32";
/// No memory reaches further, and so many elements in bytes are still a number.
pub(super) const LARGEST_STRIDE: u64 = 1 << 60;
/// Lines of a matrix are closer.
pub(super) const LARGEST_LEADING: u64 = (1 << 32) - 1;

impl Problem {
    /// The largest m, n, k and batch: coordinates of the copy engine are signed and have 32 bits.
    pub const LARGEST_EXTENT: u32 = 0x7fff_ff00;

    /// `D = A * B` for dense matrices: A row-major, B column-major (both with k contiguous, what tensor cores like best), D row-major.
    #[must_use]
    pub fn new(m: u32, n: u32, k: u32, types: Types) -> Problem {
        let d = Placement::dense(Storage::RowMajor, m as usize, n as usize);
        Problem {
            m,
            n,
            k,
            batch: 1,
            batching: Batching::Strided,
            types,
            accumulation: Accumulation::Fast,
            a: Placement::dense(Storage::RowMajor, m as usize, k as usize),
            b: Placement::dense(Storage::ColumnMajor, k as usize, n as usize),
            c: d,
            d,
            epilogue: Epilogue::identity(),
        }
    }

    /// The same product seen from the other side: `D^T = B^T * A^T`, in the same memory.
    #[must_use]
    pub fn transposed(&self) -> Problem {
        Problem {
            m: self.n,
            n: self.m,
            types: Types { a: self.types.b, b: self.types.a, ..self.types },
            a: self.b.transposed(),
            b: self.a.transposed(),
            c: self.c.transposed(),
            d: self.d.transposed(),
            epilogue: self.epilogue.transposed(),
            ..self.clone()
        }
    }

    /// Whether A and B have k contiguous.
    #[must_use]
    pub fn k_major(&self) -> (bool, bool) {
        (self.a.storage == Storage::RowMajor, self.b.storage == Storage::ColumnMajor)
    }

    /// Multiplications and additions.
    #[must_use]
    pub fn flops(&self) -> f64 {
        2.0 * f64::from(self.batch) * f64::from(self.m) * f64::from(self.n) * f64::from(self.k)
    }

    /// Bytes of A, B and D, each once.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        let matrix = |rows: u32, columns: u32, element: Element| {
            f64::from(rows) * f64::from(columns) * f64::from(element.bytes())
        };
        let one = matrix(self.m, self.k, self.types.a)
            + matrix(self.k, self.n, self.types.b)
            + matrix(self.m, self.n, self.types.d);
        f64::from(self.batch) * one
    }

    /// Whether the description makes sense.
    ///
    /// # Errors
    /// If there are no kernels for the types, an extent is beyond what kernels index, rows of a matrix or members of D overlap, or the
    /// epilogue cannot be computed.
    pub fn check(&self) -> Result<(), GemmError> {
        for (what, found) in [("m", self.m), ("n", self.n), ("k", self.k), ("the batch", self.batch)] {
            if found > Problem::LARGEST_EXTENT {
                let (found, limit) = (u64::from(found), u64::from(Problem::LARGEST_EXTENT));
                return Err(GemmError::TooLarge { what, found, limit });
            }
        }
        self.types.check(self.epilogue.reads_c())?;
        self.epilogue.check(self)?;
        let result_columns = self.n / self.epilogue.columns_for_one();
        if !self.n.is_multiple_of(self.epilogue.columns_for_one()) {
            return Err(GemmError::Epilogue {
                reason: format!(
                    "it makes one column of {each}, and n is {}; expected a multiple of {each}",
                    self.n,
                    each = self.epilogue.columns_for_one(),
                ),
            });
        }
        let all = [
            ("A", &self.a, self.m, self.k),
            ("B", &self.b, self.k, self.n),
            ("C", &self.c, self.m, result_columns),
            ("D", &self.d, self.m, result_columns),
        ];
        for (name, placement, rows, columns) in all {
            if name == "C" && !self.epilogue.reads_c() {
                continue;
            }
            let contiguous = match placement.storage {
                Storage::RowMajor => columns,
                Storage::ColumnMajor => rows,
            };
            let matrix = || format!("matrix {name} ({rows} x {columns}, {})", placement.storage);
            if placement.leading < u64::from(contiguous.max(1)) {
                return Err(GemmError::Matrix {
                    matrix: matrix(),
                    what: "the leading dimension",
                    found: placement.leading,
                    expected: format!("at least {}", contiguous.max(1)),
                });
            }
            placement.check_distances(self.batch, matrix)?;
            if !placement.alignment.is_power_of_two() {
                return Err(GemmError::Matrix {
                    matrix: matrix(),
                    what: "the alignment",
                    found: u64::from(placement.alignment),
                    expected: "a power of two".to_owned(),
                });
            }
        }
        let footprint = Footprint::of_matrix(&self.d, (self.m, result_columns), self.batch);
        if self.batching == Batching::Strided && footprint.members_overlap() {
            return Err(GemmError::Matrix {
                matrix: "matrix D".to_owned(),
                what: "the batch stride",
                found: self.d.batch_stride,
                expected: footprint.apart(),
            });
        }
        Ok(())
    }
}
