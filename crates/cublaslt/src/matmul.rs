//! [`Matmul`]: a product that the library is ready to compute.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use tilewright_cuda::{Arg, Context, Slice, SliceMut, Stream};

use crate::code::{
    ALGORITHM_WORDS, INVALID_VALUE, LayoutAttribute, MatmulAttribute, NOT_SUPPORTED, PreferenceAttribute,
    SUCCESS, data_type, operation,
};
use crate::description::{Description, Matrix};
use crate::error::CublasError;
use crate::ffi::{Addresses, Algo, Objects, Owned};
use crate::library::Library;

/// An algorithm that the library proposes for a product.
#[derive(Clone, Debug, PartialEq)]
pub struct Algorithm {
    algo: Algo,
    workspace: usize,
    waves: f32,
    words: String,
    /// What it was proposed for.
    description: Description,
}

impl Algorithm {
    /// Bytes of scratch memory that it needs.
    #[must_use]
    pub fn workspace(&self) -> usize {
        self.workspace
    }

    /// How often its blocks fill the GPU, by the library's estimate.
    #[must_use]
    pub fn waves(&self) -> f32 {
        self.waves
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

/// The memory and the numbers of one run. What the description does not mention is not looked at.
#[derive(Debug)]
pub struct Operands<'a> {
    /// Left factor.
    pub a: Slice<'a, u8>,
    /// Right factor.
    pub b: Slice<'a, u8>,
    /// The matrix that is added; D itself if there is none.
    pub c: Option<Slice<'a, u8>>,
    /// Result.
    pub d: SliceMut<'a, u8>,
    /// The bias.
    pub bias: Option<Slice<'a, u8>>,
    /// Factors of A.
    pub scale_a: Option<Slice<'a, u8>>,
    /// Factors of B.
    pub scale_b: Option<Slice<'a, u8>>,
    /// The factor of D.
    pub scale_d: Option<Slice<'a, u8>>,
    /// Scratch memory.
    pub workspace: SliceMut<'a, u8>,
    /// Factor of the product.
    pub alpha: f64,
    /// Factor of C.
    pub beta: f64,
}

impl<'a> Operands<'a> {
    /// Of `D = A * B`.
    #[must_use]
    pub fn new(
        a: Slice<'a, u8>,
        b: Slice<'a, u8>,
        d: SliceMut<'a, u8>,
        workspace: SliceMut<'a, u8>,
    ) -> Operands<'a> {
        let (alpha, beta) = (1.0, 0.0);
        Operands {
            a,
            b,
            c: None,
            d,
            bias: None,
            scale_a: None,
            scale_b: None,
            scale_d: None,
            workspace,
            alpha,
            beta,
        }
    }

    /// Bytes of each, in the order of [`Description::bytes`].
    fn bytes(&self) -> [usize; 8] {
        let optional = |slice: &Option<Slice<'_, u8>>| slice.as_ref().map_or(0, Slice::bytes);
        let c = self.c.as_ref().map_or(self.d.bytes(), Slice::bytes);
        [
            self.a.bytes(),
            self.b.bytes(),
            c,
            self.d.bytes(),
            optional(&self.bias),
            optional(&self.scale_a),
            optional(&self.scale_b),
            optional(&self.scale_d),
        ]
    }

    fn c_address(&self) -> u64 {
        self.c.as_ref().map_or(self.d.address(), Slice::address)
    }

    /// Attributes that hold addresses.
    fn pointers(&self) -> [(MatmulAttribute, &Option<Slice<'a, u8>>); 4] {
        [
            (MatmulAttribute::BiasPointer, &self.bias),
            (MatmulAttribute::ScalePointerA, &self.scale_a),
            (MatmulAttribute::ScalePointerB, &self.scale_b),
            (MatmulAttribute::ScalePointerD, &self.scale_d),
        ]
    }
}

/// A product that the library is ready to compute on a GPU.
///
/// ```no_run
/// use tilewright_cublaslt::{Compute, Description, Library, Matmul, Matrix, Operands};
/// use tilewright_cuda::Context;
/// use tilewright_hardware::Element;
///
/// let stream = Context::new(0)?.stream()?;
/// let matrix = Matrix::dense(Element::F32, 64, 64);
/// let matmul = Matmul::new(Library::load()?, stream.context(), Description::new(matrix, matrix, matrix, Compute::F32))?;
/// let (a, b) = (stream.alloc_zeroed::<u8>(64 * 64 * 4)?, stream.alloc_zeroed::<u8>(64 * 64 * 4)?);
/// let (mut d, mut workspace) = (stream.alloc::<u8>(64 * 64 * 4)?, stream.alloc::<u8>(32 << 20)?);
/// let operands = Operands::new(a.as_slice(), b.as_slice(), d.as_mut_slice(), workspace.as_mut_slice());
/// let algorithms = matmul.algorithms(&operands, 8)?;
/// println!("the first of {}: {}", algorithms.len(), algorithms[0]);
/// matmul.run(&stream, &algorithms[0], operands)?;
/// # Ok::<(), tilewright_cublaslt::CublasError>(())
/// ```
#[derive(Debug)]
pub struct Matmul {
    library: Library,
    context: Context,
    handle: Owned,
    description: Description,
    layouts: [Owned; 4],
    /// The addresses of bias and factors change with every run.
    descriptor: Mutex<Owned>,
}

impl Matmul {
    /// Describes a product to the library.
    ///
    /// # Errors
    /// If the description makes no sense, or the library refuses it.
    pub fn new(library: Library, context: &Context, description: Description) -> Result<Matmul, CublasError> {
        description.check()?;
        context.make_current()?;
        let handle = library.table.handle()?;
        let layouts = layouts(library, &description)?;
        let descriptor = Mutex::new(descriptor(library, &description)?);
        Ok(Matmul { library, context: context.clone(), handle, description, layouts, descriptor })
    }

    /// What it computes.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// At most so many algorithms for operands with the alignment of these, best first by the library's estimate.
    ///
    /// # Errors
    /// If the library has none, or the operands do not fit.
    pub fn algorithms(&self, operands: &Operands<'_>, most: usize) -> Result<Vec<Algorithm>, CublasError> {
        self.check(operands)?;
        self.context.make_current()?;
        let table = self.library.table;
        let mut preference = table.preference()?;
        let workspace = self.description.workspace.min(operands.workspace.bytes());
        table.set_preference(&mut preference, PreferenceAttribute::Workspace, &workspace.to_ne_bytes())?;
        for (attribute, address) in [
            (PreferenceAttribute::AlignmentA, operands.a.address()),
            (PreferenceAttribute::AlignmentB, operands.b.address()),
            (PreferenceAttribute::AlignmentC, operands.c_address()),
            (PreferenceAttribute::AlignmentD, operands.d.address()),
        ] {
            let alignment = 1u32 << address.trailing_zeros().min(8);
            table.set_preference(&mut preference, attribute, &alignment.to_ne_bytes())?;
        }
        let mut descriptor = self.descriptor.lock().unwrap_or_else(PoisonError::into_inner);
        self.point(&mut descriptor, operands)?;
        let found = table.heuristic(self.objects(&descriptor), &preference, most);
        let none = |code: u32| match code {
            SUCCESS | NOT_SUPPORTED | INVALID_VALUE => {
                CublasError::NoAlgorithm { status: table.status(code) }
            }
            code => {
                CublasError::Call { call: "cublasLtMatmulAlgoGetHeuristic", status: table.status(code), code }
            }
        };
        let usable = found.map_err(none)?.into_iter().filter(|choice| choice.state == SUCCESS);
        let algorithms: Vec<Algorithm> = usable
            .map(|choice| Algorithm {
                algo: choice.algo,
                workspace: choice.workspace,
                waves: choice.waves,
                words: self.words(&choice.algo),
                description: self.description.clone(),
            })
            .collect();
        if algorithms.is_empty() { Err(none(NOT_SUPPORTED)) } else { Ok(algorithms) }
    }

    fn words(&self, algo: &Algo) -> String {
        let word = |(attribute, name, bytes): &(u32, &str, usize)| {
            let value = self.library.table.configuration(algo, *attribute, *bytes)?;
            Some(format!("{name} {value}"))
        };
        ALGORITHM_WORDS.iter().filter_map(word).collect::<Vec<_>>().join(" ")
    }

    /// Enqueues it.
    ///
    /// # Errors
    /// If the operands do not fit, the algorithm is another product's, or library or driver refuse.
    #[allow(unsafe_code)]
    pub fn run(
        &self,
        stream: &Stream,
        algorithm: &Algorithm,
        operands: Operands<'_>,
    ) -> Result<(), CublasError> {
        self.check(&operands)?;
        if algorithm.description != self.description {
            return Err(CublasError::Argument {
                what: "the algorithm",
                found: "one of another product".to_owned(),
                expected: "one that this product proposed".to_owned(),
            });
        }
        if operands.workspace.bytes() < algorithm.workspace {
            return Err(CublasError::Argument {
                what: "the workspace",
                found: format!("{} bytes", operands.workspace.bytes()),
                expected: format!("at least {}", algorithm.workspace),
            });
        }
        let addresses = Addresses {
            a: operands.a.address(),
            b: operands.b.address(),
            c: operands.c_address(),
            d: operands.d.address(),
            workspace: operands.workspace.address(),
            workspace_bytes: operands.workspace.bytes(),
        };
        let compute = self.description.compute;
        let (alpha, beta) = (compute.number(operands.alpha), compute.number(operands.beta));
        let mut descriptor = self.descriptor.lock().unwrap_or_else(PoisonError::into_inner);
        self.point(&mut descriptor, &operands)?;
        let Operands { a, b, c, d, bias, scale_a, scale_b, scale_d, workspace, .. } = operands;
        let read = [Some(a), Some(b), c, bias, scale_a, scale_b, scale_d].into_iter().flatten();
        let memory: Vec<Arg<'_>> = read.map(Arg::from).chain([d.into(), workspace.into()]).collect();
        let objects = self.objects(&descriptor);
        // SAFETY: the library reads and writes the memory of the operands, which is as large as the description says (checked), on the
        // stream that it is given.
        unsafe {
            stream.enqueue_foreign(&memory, |raw| {
                self.library.table.matmul(objects, &addresses, (&alpha, &beta), &algorithm.algo, raw.cast())
            })
        }
    }

    fn objects<'a>(&'a self, descriptor: &'a Owned) -> Objects<'a> {
        Objects { handle: &self.handle, descriptor, layouts: &self.layouts }
    }

    /// Holds memory against the description.
    fn check(&self, operands: &Operands<'_>) -> Result<(), CublasError> {
        for ((what, needed), found) in self.description.bytes().into_iter().zip(operands.bytes()) {
            if (found as u64) < needed {
                return Err(CublasError::Argument {
                    what,
                    found: format!("{found} bytes"),
                    expected: format!("at least {needed}"),
                });
            }
        }
        Ok(())
    }

    /// Puts the addresses of bias and factors into the descriptor.
    fn point(&self, descriptor: &mut Owned, operands: &Operands<'_>) -> Result<(), CublasError> {
        let table = self.library.table;
        let wanted = [
            self.description.bias,
            self.description.scale_a.is_some(),
            self.description.scale_b.is_some(),
            self.description.scale_d,
        ];
        for ((attribute, slice), _) in
            operands.pointers().into_iter().zip(wanted).filter(|(_, wanted)| *wanted)
        {
            let address = slice.as_ref().map_or(0, Slice::address);
            table.set_matmul(descriptor, attribute, &address.to_ne_bytes())?;
        }
        Ok(())
    }
}

/// Descriptors of A, B, C and D.
pub(crate) fn layouts(library: Library, description: &Description) -> Result<[Owned; 4], CublasError> {
    let table = library.table;
    let layout = |what: &'static str, matrix: &Matrix| {
        let element = data_type(matrix.element).ok_or(CublasError::Type { what, found: matrix.element })?;
        let leading = i64::try_from(matrix.leading).unwrap_or(i64::MAX);
        let mut layout = table.layout(element, matrix.rows, matrix.columns, leading)?;
        let stride = i64::try_from(matrix.batch_stride).unwrap_or(i64::MAX);
        let count = i32::try_from(description.batch).unwrap_or(i32::MAX);
        table.set_layout(&mut layout, LayoutAttribute::Order, &matrix.order.code().to_ne_bytes())?;
        table.set_layout(&mut layout, LayoutAttribute::BatchCount, &count.to_ne_bytes())?;
        table.set_layout(&mut layout, LayoutAttribute::BatchStride, &stride.to_ne_bytes())?;
        Ok::<Owned, CublasError>(layout)
    };
    Ok([
        layout("matrix A", &description.a)?,
        layout("matrix B", &description.b)?,
        layout("matrix C", &description.c)?,
        layout("matrix D", &description.d)?,
    ])
}

/// All of the operation's descriptor but addresses.
pub(crate) fn descriptor(library: Library, description: &Description) -> Result<Owned, CublasError> {
    let table = library.table;
    let scale = data_type(description.compute.scale()).unwrap_or_default();
    let mut made = table.matmul_descriptor(description.compute.code(), scale)?;
    let mut set = |attribute, value: &[u8]| table.set_matmul(&mut made, attribute, value);
    set(MatmulAttribute::TransposeA, &operation(description.transposed_a).to_ne_bytes())?;
    set(MatmulAttribute::TransposeB, &operation(description.transposed_b).to_ne_bytes())?;
    let epilogue = description.activation.code(description.bias);
    set(MatmulAttribute::Epilogue, &epilogue.to_ne_bytes())?;
    if description.bias {
        let element = data_type(description.d.element).unwrap_or_default();
        set(MatmulAttribute::BiasType, &element.to_ne_bytes())?;
    }
    if description.fast_accumulation {
        set(MatmulAttribute::FastAccumulation, &1i8.to_ne_bytes())?;
    }
    for (attribute, scaling) in [
        (MatmulAttribute::ScaleModeA, description.scale_a),
        (MatmulAttribute::ScaleModeB, description.scale_b),
    ] {
        // The default; older versions of the library have no such attribute.
        if let Some(scaling) = scaling.filter(|scaling| scaling.code() != 0) {
            set(attribute, &scaling.code().to_ne_bytes())?;
        }
    }
    Ok(made)
}
