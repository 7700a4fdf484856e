//! [`Gemm`]: says which product is wanted, step by step.

use tilewright_hardware::Element;
use tilewright_kernels::gemm::epilogue::Epilogue;
use tilewright_kernels::gemm::{
    self, Accumulation, Algorithm, Batching, Candidate, GemmError, Placement, Problem, Storage, Types,
};

use super::arguments::matrices;
use super::plan::{Kernels, Method};
use super::{Arguments, Error, Plan, Workspace};
use crate::device::{Buffer, Device, DeviceKind, DynBuffer, Item};

/// No access of any kernel is wider than this, so that more alignment is worth nothing.
pub(super) const WIDEST: u32 = 16;

/// How a matrix lies in memory, as far as it was said.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    storage: Option<Storage>,
    leading: Option<usize>,
    batch_stride: Option<usize>,
    alignment: Option<u32>,
}

impl Said {
    /// As the other lies, where nothing was said. What says for itself where its lines are has members of its own too.
    fn like(self, other: Said) -> Said {
        let storage = self.storage.or(other.storage);
        let same = |said: Option<Storage>| said.unwrap_or(Storage::RowMajor);
        let lines =
            same(storage) == same(other.storage) && self.leading.is_none_or(|own| Some(own) == other.leading);
        let taken = if lines { other } else { Said::default() };
        Said {
            storage,
            leading: self.leading.or(taken.leading),
            batch_stride: self.batch_stride.or(taken.batch_stride),
            alignment: self.alignment.or(other.alignment),
        }
    }

    /// What was not said: row-major, without gaps, well aligned.
    fn placement(self, (rows, columns): (u32, u32)) -> Placement {
        let storage = self.storage.unwrap_or(Storage::RowMajor);
        let dense = Placement::dense(storage, rows as usize, columns as usize);
        let leading = self.leading.map_or(dense.leading, |leading| leading as u64);
        let lines = match storage {
            Storage::RowMajor => rows,
            Storage::ColumnMajor => columns,
        };
        let whole = leading.saturating_mul(u64::from(lines));
        Placement {
            storage,
            leading,
            batch_stride: self.batch_stride.map_or(whole, |stride| stride as u64),
            alignment: self.alignment.unwrap_or(WIDEST).min(WIDEST),
        }
    }
}

/// What the caller wants to be used.
#[derive(Clone, Debug)]
enum Choice {
    Best,
    Algorithm(Algorithm),
    Text(String),
}

/// A matrix product to be: `D = epilogue(A * B)` with A of m x k, B of k x n, D of m x n.
///
/// All matrices are row-major and without gaps, unless something else is said. What is said wrongly is found by
/// [`plan`](Gemm::plan), with a message that says what to do.
///
/// ```
/// use tilewright::gemm::Gemm;
/// use tilewright::prelude::*;
///
/// let device = Device::best();
/// let a = device.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?; // 2 x 3
/// let b = device.upload(&[1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0])?; // 3 x 2
/// let d = Gemm::new(2, 2, 3).run(&device, &a, &b)?;
/// assert_eq!(d.to_vec::<f32>()?, [4.0, 5.0, 10.0, 11.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Weights as most frameworks store them, one row for each output, are a column-major B: that is what tensor cores read fastest.
///
/// ```
/// use tilewright::gemm::{Arguments, Gemm, Storage};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let gemm = Gemm::new(8, 32, 16).element::<bf16>().b(Storage::ColumnMajor).batch(2);
/// let plan = gemm.plan(&device)?;
/// let a = device.upload(&[bf16::from_f32(0.5); 2 * 8 * 16])?;
/// let b = device.upload(&[bf16::from_f32(2.0); 2 * 16 * 32])?;
/// let d = device.alloc::<bf16>(2 * 8 * 32)?;
/// plan.run(&Arguments::new(&a, &b, &d))?;
/// assert!(d.to_vec()?.iter().all(|&x| x.to_f32() == 16.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gemm {
    extents: [usize; 3],
    types: Option<Types>,
    matrices: [Said; 4],
    batch: usize,
    batching: Batching,
    accumulation: Accumulation,
    epilogue: Epilogue,
    /// What addresses of the epilogue's operands are multiples of, where less than can be used.
    extras: Vec<(String, u32)>,
    choice: Choice,
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const D: usize = 3;

macro_rules! of_each_matrix {
    ($field:ident: $ty:ty, $doc:literal, $($method:ident = $matrix:ident,)*) => {$(
        #[doc = concat!($doc, " of ", stringify!($matrix), ".")]
        #[must_use]
        pub fn $method(mut self, $field: $ty) -> Gemm {
            self.matrices[$matrix].$field = Some($field);
            self
        }
    )*};
}

impl Gemm {
    /// A product of an m x k and a k x n matrix.
    #[must_use]
    pub fn new(m: usize, n: usize, k: usize) -> Gemm {
        Gemm {
            extents: [m, n, k],
            types: None,
            matrices: [Said::default(); 4],
            batch: 1,
            batching: Batching::Strided,
            accumulation: Accumulation::Fast,
            epilogue: Epilogue::identity(),
            extras: Vec::new(),
            choice: Choice::Best,
        }
    }

    /// With these types. [`run`](Gemm::run) can do without: it takes those of the factors.
    #[must_use]
    pub fn types(mut self, types: Types) -> Gemm {
        self.types = Some(types);
        self
    }

    /// With factors of this type, and sums and results as [`Types::of`] says.
    #[must_use]
    pub fn element<T: Item>(self) -> Gemm {
        self.types(Types::of(T::ELEMENT))
    }

    of_each_matrix! { storage: Storage, "Which index is contiguous in the memory", a = A, b = B, c = C, d = D, }

    of_each_matrix! {
        leading: usize, "Elements from one row (or column, if it is column-major) to the next",
        leading_a = A, leading_b = B, leading_c = C, leading_d = D,
    }

    of_each_matrix! {
        batch_stride: usize, "Elements from one member of the batch to the next (0: all use the same)",
        stride_a = A, stride_b = B, stride_c = C, stride_d = D,
    }

    of_each_matrix! {
        alignment: u32, "Bytes that the address is a multiple of, if fewer than 16 (in a batch of addresses, of every member)",
        alignment_a = A, alignment_b = B, alignment_c = C, alignment_d = D,
    }

    /// So many products at once, one after the other in memory unless strides say otherwise.
    #[must_use]
    pub fn batch(mut self, batch: usize) -> Gemm {
        self.batch = batch;
        self
    }

    /// Members of the batch lie anywhere: A, B, C and D are buffers of their addresses, as u64.
    #[must_use]
    pub fn pointers(mut self) -> Gemm {
        self.batching = Batching::Pointers;
        self
    }

    /// How sums of 8-bit floats are kept.
    #[must_use]
    pub fn accumulation(mut self, accumulation: Accumulation) -> Gemm {
        self.accumulation = accumulation;
        self
    }

    /// What happens to the sums on their way to D.
    #[must_use]
    pub fn epilogue(mut self, epilogue: Epilogue) -> Gemm {
        self.epilogue = epilogue;
        self
    }

    /// Bytes that the address of an operand of the epilogue is a multiple of, if fewer than 16.
    #[must_use]
    pub fn alignment_of(mut self, name: &str, alignment: u32) -> Gemm {
        self.extras.retain(|(known, _)| known != name);
        self.extras.push((name.to_owned(), alignment));
        self
    }

    /// By this algorithm, instead of the one that looks best. On the CPU its kernels are executed instruction by instruction.
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Gemm {
        self.choice = Choice::Algorithm(algorithm);
        self
    }

    /// By the algorithm of this text, as [`Algorithm`] is displayed.
    ///
    /// ```
    /// use tilewright::gemm::Gemm;
    /// use tilewright::prelude::*;
    ///
    /// let gemm = Gemm::new(64, 64, 48).element::<f32>().configuration("simt 64x64x16 4x4 s3 g8 p1");
    /// assert_eq!(gemm.plan(&Device::simulator())?.candidates().len(), 1);
    /// # Ok::<(), tilewright::gemm::Error>(())
    /// ```
    #[must_use]
    pub fn configuration(mut self, text: &str) -> Gemm {
        self.choice = Choice::Text(text.to_owned());
        self
    }

    /// The product as the kernels' side describes it.
    ///
    /// # Errors
    /// If no types were given, or extents, strides or the epilogue contradict each other.
    pub fn problem(&self) -> Result<Problem, Error> {
        let types = self.types.ok_or_else(|| {
            let remedy = "give them with `element::<bf16>()` or `types(..)`";
            Error::argument("the types", "none", "those of factors, sums and result", remedy)
        })?;
        let extent = |what, found: usize| {
            let large =
                GemmError::TooLarge { what, found: found as u64, limit: Problem::LARGEST_EXTENT.into() };
            u32::try_from(found).map_err(|_| large)
        };
        let [m, n, k] = self.extents;
        let (m, n, k) = (extent("m", m)?, extent("n", n)?, extent("k", k)?);
        let columns = n / self.epilogue.columns_for_one();
        let [a, b, c, d] = self.matrices;
        let c = c.like(d);
        let mut problem = Problem {
            m,
            n,
            k,
            batch: extent("the batch", self.batch)?,
            batching: self.batching,
            types,
            accumulation: self.accumulation,
            a: a.placement((m, k)),
            b: b.placement((k, n)),
            c: c.placement((m, columns)),
            d: d.placement((m, columns)),
            epilogue: self.epilogue.clone(),
        };
        problem.epilogue = self.epilogue.fitted(&problem);
        problem.check()?;
        self.check_alignments()?;
        problem.epilogue = problem.epilogue.widened(&problem, |operand| {
            let said = self.extras.iter().find(|(name, _)| *name == operand.name);
            said.map_or(Placement::ALIGNED, |&(_, alignment)| alignment)
        });
        Ok(problem)
    }

    /// Whether what was said of the addresses of operands is about operands of the epilogue, and possible.
    fn check_alignments(&self) -> Result<(), Error> {
        let operands = self.epilogue.operands();
        for (name, alignment) in &self.extras {
            let argument = format!("the alignment of operand `{name}`");
            if !operands.iter().any(|operand| operand.name == *name) {
                let known: Vec<&str> = operands.iter().map(|operand| operand.name.as_str()).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let expected = format!("one of the epilogue's operands: {known}");
                return Err(Error::argument(argument, "no such operand", expected, "check the name"));
            }
            if !alignment.is_power_of_two() {
                let remedy = "say which power of two the address is a multiple of";
                return Err(Error::argument(argument, alignment.to_string(), "a power of two", remedy));
            }
        }
        Ok(())
    }

    /// Decides how to compute it on a device.
    ///
    /// # Errors
    /// If the description makes no sense ([`problem`](Gemm::problem)), or nothing on the device computes it.
    pub fn plan(&self, device: &Device) -> Result<Plan, Error> {
        self.plan_sharing(device, &Workspace::new(device), None)
    }

    /// The same with a workspace that others use too, and perhaps an algorithm that is known to be good.
    pub(super) fn plan_sharing(
        &self,
        device: &Device,
        workspace: &Workspace,
        known: Option<Algorithm>,
    ) -> Result<Plan, Error> {
        let problem = self.problem()?;
        let most = workspace.most();
        let fits = |algorithm: &Algorithm| {
            let recipe = algorithm.recipe(&problem, &device.chip());
            recipe.is_ok_and(|recipe| most.is_none_or(|most| recipe.workspace <= most))
        };
        let explicit = match &self.choice {
            Choice::Best => known.filter(|algorithm| most.is_none() || fits(algorithm)),
            Choice::Algorithm(algorithm) => Some(*algorithm),
            Choice::Text(text) => Some(text.parse()?),
        };
        let method = match (explicit, device.kind()) {
            (None, DeviceKind::Cpu) => Method::Cpu,
            (explicit, _) => Method::Kernels(choose(device, &problem, explicit, most)?),
        };
        Ok(Plan::new(device, problem, method, workspace.clone()))
    }

    /// Plans, allocates D, and computes it. For products that are computed more than once, [`plan`](Gemm::plan) or a
    /// [`Planner`](super::Planner).
    ///
    /// # Errors
    /// As [`plan`](Gemm::plan) and [`Plan::run`]; and if the epilogue needs more than A and B.
    pub fn run(
        &self,
        device: &Device,
        a: impl Into<DynBuffer>,
        b: impl Into<DynBuffer>,
    ) -> Result<DynBuffer, Error> {
        let (a, b) = (a.into(), b.into());
        let gemm = self.typed_by(&a, &b);
        if gemm.batching == Batching::Pointers {
            let remedy = "allocate them and use `plan`";
            return Err(Error::argument("D", "nothing", "addresses of the members of the batch", remedy));
        }
        let problem = gemm.problem()?;
        let [.., d, _] = matrices(&problem);
        let elements = d.footprint(problem.batch).and_then(|elements| usize::try_from(elements).ok());
        let d = alloc(device, problem.types.d, elements.unwrap_or(usize::MAX))?;
        let arguments = Arguments::new(a, b, d);
        gemm.aligned_to(&arguments).plan(device)?.run(&arguments)?;
        Ok(arguments.d)
    }

    /// With the types of the factors, if none were given.
    pub(super) fn typed_by(&self, a: &DynBuffer, b: &DynBuffer) -> Gemm {
        let gemm = self.clone();
        match self.types {
            Some(_) => gemm,
            // Addresses do not say what lies there: whoever plans asks for types.
            None if self.batching == Batching::Pointers => gemm,
            None => gemm.types(Types { b: b.element(), ..Types::of(a.element()) }),
        }
    }

    /// With what the addresses of these buffers are multiples of, unless less was said.
    pub(super) fn aligned_to(&self, arguments: &Arguments) -> Gemm {
        let mut gemm = self.clone();
        if self.batching == Batching::Strided {
            let buffers = [Some(&arguments.a), Some(&arguments.b), arguments.c.as_ref(), Some(&arguments.d)];
            for (said, buffer) in gemm.matrices.iter_mut().zip(buffers) {
                if let Some(buffer) = buffer {
                    let found = buffer.alignment().min(WIDEST);
                    said.alignment = Some(said.alignment.map_or(found, |said| said.min(found)));
                }
            }
        }
        let operands = self.epilogue.operands();
        for (name, buffer) in &arguments.extras {
            let found = buffer.alignment();
            // A name that is none of the epilogue's is refused when it runs.
            if found >= WIDEST || !operands.iter().any(|operand| operand.name == *name) {
                continue;
            }
            match gemm.extras.iter_mut().find(|(known, _)| known == name) {
                Some((_, said)) => *said = found.min(*said),
                None => gemm.extras.push((name.clone(), found)),
            }
        }
        gemm
    }

    /// Whether the caller leaves the choice of the algorithm.
    pub(super) fn is_free(&self) -> bool {
        matches!(self.choice, Choice::Best)
    }
}

/// An algorithm with its launches: the given one, or the first that takes no more scratch memory than there is; if none does, the first.
fn choose(
    device: &Device,
    problem: &Problem,
    explicit: Option<Algorithm>,
    most: Option<u64>,
) -> Result<Kernels, Error> {
    let chip = device.chip();
    let candidates = match explicit {
        Some(algorithm) => {
            vec![Candidate { algorithm, predicted: algorithm.predict(problem, &chip)? }]
        }
        None => gemm::candidates(problem, &chip)?,
    };
    let Some(chosen) = candidates.first().cloned() else {
        return Err(GemmError::Kernel("there is no candidate".to_owned()).into());
    };
    let recipe = chosen.algorithm.recipe(problem, &chip)?;
    if let Some(most) = most.filter(|most| recipe.workspace > *most) {
        for candidate in &candidates[1..] {
            let recipe = candidate.algorithm.recipe(problem, &chip)?;
            if recipe.workspace <= most {
                return Ok(Kernels { chosen: candidate.clone(), recipe, candidates });
            }
        }
    }
    Ok(Kernels { chosen, recipe, candidates })
}

/// Memory for elements whose type is a value.
fn alloc(device: &Device, element: Element, len: usize) -> Result<DynBuffer, Error> {
    use tilewright_lang::{E4m3, E5m2, bf16, f16};
    fn of<T: Item>(buffer: Result<Buffer<T>, crate::device::DeviceError>) -> Result<DynBuffer, Error> {
        Ok(DynBuffer::from(&buffer?))
    }
    match element {
        Element::F16 => of(device.alloc::<f16>(len)),
        Element::BF16 => of(device.alloc::<bf16>(len)),
        Element::F64 => of(device.alloc::<f64>(len)),
        Element::I32 => of(device.alloc::<i32>(len)),
        Element::I8 => of(device.alloc::<i8>(len)),
        Element::U8 => of(device.alloc::<u8>(len)),
        Element::E4M3 => of(device.alloc::<E4m3>(len)),
        Element::E5M2 => of(device.alloc::<E5m2>(len)),
        _ => of(device.alloc::<f32>(len)),
    }
}
