//! [`OPERATORS`]: each operator once, with nothing but extents and a type, for those who compile ahead of time.

use tilewright_hardware::Element;
use tilewright_lang::{bf16, f16};

use super::{
    Arg, CrossEntropy, CumulativeSum, Dropout, Error, FloatItem, Glu, LayerNorm, Quantise, Reduce, RmsNorm,
    Rope, Rows, Softmax, TopK, convert, dequantise, embedding, permute, transpose,
};
use crate::device::{Buffer, Device, Item};

/// An operator that can be [rehearsed](Operator::rehearse).
///
/// ```
/// use tilewright::device::Recorder;
/// use tilewright::hardware::{Arch, Element};
/// use tilewright::ops::OPERATORS;
///
/// // Softmax and its gradient, of rows of 1024 bf16, for an A100.
/// let softmax = OPERATORS.iter().find(|operator| operator.name == "softmax").ok_or("not there")?;
/// let recorder = Recorder::new(Arch::SM_80);
/// softmax.rehearse(recorder.device(), Element::BF16, 1024)?;
/// let names: Vec<String> = recorder.kernels().into_iter().map(|kernel| kernel.name).collect();
/// assert_eq!(names, ["softmax", "softmax_backward"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
pub struct Operator {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is done.
    pub summary: &'static str,
    /// With elements of f32, f16 and bf16.
    calls: [Call; 3],
}

type Call = fn(&Stage<'_>) -> Result<(), Error>;

const TYPES: [Element; 3] = [Element::F32, Element::F16, Element::BF16];

/// Rows of a rehearsal, at least: many, so that the kernel is that for many.
const ROWS: usize = 64;
/// As many rows as are looked at for how operators share long ones: with more, an H200 has enough to do whatever is shared.
const MOST_ROWS: usize = 1056;
/// Elements of a rehearsal, at least: with fewer, kernels take fewer rows at once.
const ELEMENTS: usize = 1024;

impl Operator {
    /// Does it on matrices with so many columns of a type, its gradient included where it has one: with a number of rows that is a multiple of
    /// 16 and with an odd one, because code can differ. What is in the matrices is not looked at and not set; on a device of a
    /// [`Recorder`](crate::device::Recorder), nothing runs.
    ///
    /// A pack made this way serves dense matrices with 1024 elements or more, of any number of rows, and the operator's plain settings, which
    /// [`summary`](Operator::summary) tells. For others the operator itself is called on the recorder's device; so are reductions of a few
    /// long rows and of whole matrices, which programs share by how many rows there are, in too many ways, and causal softmax of more than
    /// 65535 matrices.
    ///
    /// # Errors
    /// If there is no such type or no kernel for so many columns.
    pub fn rehearse(&self, device: &Device, element: Element, columns: usize) -> Result<(), Error> {
        let Some(at) = TYPES.iter().position(|known| *known == element) else {
            let found = element.to_string();
            return Err(Error::argument("the type", found, "f32, f16 or bf16", "convert to one of these"));
        };
        if columns == 0 {
            return Err(Error::argument("columns", "0", "at least 1", "give the length of rows"));
        }
        let rows = ELEMENTS.div_ceil(columns).next_multiple_of(ROWS);
        for rows in [rows, rows + 1] {
            (self.calls[at])(&Stage { device, rows, columns })?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Operator({})", self.name)
    }
}

macro_rules! operators {
    ($($name:literal, $call:ident, $summary:literal;)*) => {
        /// All operators but formulas of one's own ([`Elementwise`](super::Elementwise)).
        pub static OPERATORS: &[Operator] = &[$(Operator {
            name: $name,
            summary: $summary,
            calls: [$call::<f32>, $call::<f16>, $call::<bf16>],
        }),*];
    };
}

operators! {
    "softmax", softmax, "softmax, and its gradient";
    "log-softmax", log_softmax, "log-softmax, and its gradient";
    "causal-softmax", causal_softmax, "causal softmax, by queries and by positions, and the gradient of the first";
    "masked-softmax", masked_softmax, "softmax of what a mask shows, also causal, by queries and by positions";
    "cross-entropy", cross_entropy, "cross entropy of logits and indices (i64), and its gradient";
    "rmsnorm", rms_norm, "RMSNorm with weights, also of a sum and to i8, and its gradient";
    "layernorm", layer_norm, "LayerNorm with weights and biases, also of a sum, and its gradient";
    "rope", rope, "rotary position embedding, by rows and by positions, and back";
    "swiglu", swiglu, "SwiGLU, and its gradient";
    "geglu", geglu, "GeGLU, and its gradient";
    "reduce", reduce, "sums of rows and of all, in f32";
    "argmax", arg_max, "where the largest of each row is";
    "topk", top_k, "the 8 and the 64 largest of each row";
    "scan", scan, "cumulative sums of rows";
    "transpose", transposed, "transpose";
    "permute", permuted, "heads of tokens become tokens of heads";
    "embedding", embedded, "rows of a table, by indices of i32";
    "dropout", dropout, "dropout";
    "convert", converted, "from and to f32";
    "quantise", quantised, "to i8 with a scale for each row, or for all, and back";
}

/// Where a rehearsal takes place.
struct Stage<'a> {
    device: &'a Device,
    rows: usize,
    columns: usize,
}

impl Stage<'_> {
    fn alloc<T: Item>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Ok(self.device.alloc(len)?)
    }

    /// So many matrices.
    fn matrices<T: Item, const N: usize>(&self) -> Result<[Matrix<T>; N], Error> {
        let one = || {
            let (rows, columns) = (self.rows, self.columns);
            Ok::<_, Error>(Matrix { buffer: self.alloc(rows * columns)?, rows, columns })
        };
        let all = (0..N).map(|_| one()).collect::<Result<Vec<_>, _>>()?;
        // There are as many as asked for, so this is no error.
        all.try_into().map_err(|_| Error::no_kernel("so many matrices", self.device))
    }

    /// The same, and with other numbers of rows, for each choice that an operator makes by them. All are multiples of 16 if this one is,
    /// else odd if it is, but for a single row, which comes last: tensors of one row have code of their own.
    fn for_each_choice<C: PartialEq>(
        &self,
        choice: impl Fn(usize) -> C,
        call: impl Fn(&Stage<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let divisor = if self.rows.is_multiple_of(16) { 16 } else { 2 };
        let alike = |rows: &usize| rows.is_multiple_of(divisor) == self.rows.is_multiple_of(divisor);
        let enough = |rows: &usize| rows * self.columns >= ELEMENTS;
        let mut known = Vec::new();
        for rows in [self.rows].into_iter().chain(2..=MOST_ROWS).filter(alike).chain([1]).filter(enough) {
            let chosen = choice(rows);
            if !known.contains(&chosen) {
                known.push(chosen);
                call(&Stage { rows, ..*self })?;
            }
        }
        Ok(())
    }

    /// The numbers of a head: of usual size, if the columns are heads of such.
    fn head(&self) -> usize {
        [128, 64].into_iter().find(|head| self.columns.is_multiple_of(*head)).unwrap_or(self.columns)
    }
}

struct Matrix<T: Item> {
    buffer: Buffer<T>,
    rows: usize,
    columns: usize,
}

impl<'a, T: Item> From<&'a Matrix<T>> for Rows<'a, T> {
    fn from(matrix: &'a Matrix<T>) -> Rows<'a, T> {
        Rows::new(&matrix.buffer, matrix.rows, matrix.columns)
    }
}

/// What has no kernel for rows as long as these is left out.
fn if_any(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(Error::NoKernel { .. }) => Ok(()),
        outcome => outcome,
    }
}

fn softmax<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y, dx] = on.matrices::<T, 3>()?;
    Softmax::new().run(on.device, &x, &y)?;
    if_any(Softmax::new().backward(on.device, &y, &x, &dx))
}

fn log_softmax<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y, dx] = on.matrices::<T, 3>()?;
    Softmax::new().log().run(on.device, &x, &y)?;
    if_any(Softmax::new().log().backward(on.device, &y, &x, &dx))
}

fn causal_softmax<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y, dx] = on.matrices::<T, 3>()?;
    let positions = on.alloc(on.rows)?;
    // One matrix, and many.
    let causal = Softmax::new().causal(on.rows);
    causal.run(on.device, &x, &y)?;
    Softmax::new().causal(1).run(on.device, &x, &y)?;
    Softmax::new().positions(&positions).run(on.device, &x, &y)?;
    if_any(causal.backward(on.device, &y, &x, &dx))
}

fn masked_softmax<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y] = on.matrices::<T, 2>()?;
    let ([mask], positions) = (on.matrices::<bool, 1>()?, on.alloc(on.rows)?);
    let row = on.alloc::<bool>(on.columns)?;
    // A mask for each row, or one for all.
    for masked in [Softmax::new().mask(&mask), Softmax::new().mask(Rows::new(&row, 1, on.columns))] {
        for softmax in [masked, masked.causal(on.rows), masked.positions(&positions)] {
            softmax.run(on.device, &x, &y)?;
        }
    }
    Ok(())
}

fn cross_entropy<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let (device, loss) = (on.device, CrossEntropy::new());
    let losses_by = |rows| loss.losses_by(device, T::ELEMENT, (rows, on.columns));
    on.for_each_choice(losses_by, |on| {
        let ([x], targets, losses) = (on.matrices::<T, 1>()?, on.alloc::<i64>(on.rows)?, on.alloc(on.rows)?);
        loss.run(device, &x, &targets, &losses)
    })?;
    let gradient_by = |rows| loss.gradient_by(device, T::ELEMENT, (rows, on.columns));
    on.for_each_choice(gradient_by, |on| {
        let ([x, dx], targets, losses) =
            (on.matrices::<T, 2>()?, on.alloc::<i64>(on.rows)?, on.alloc(on.rows)?);
        loss.backward(device, &x, &targets, &losses, &dx)
    })
}

fn rms_norm<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, residual, sum, y] = on.matrices::<T, 4>()?;
    let ([quantised], scales) = (on.matrices::<i8, 1>()?, on.alloc(on.rows)?);
    let (weight, gradient) = (on.alloc::<T>(on.columns)?, on.alloc(on.columns)?);
    let norm = RmsNorm::new(1e-6).weight(&weight);
    norm.run(on.device, &x, &y)?;
    norm.run_adding(on.device, &x, &residual, &sum, &y)?;
    if_any(norm.quantise(on.device, &x, &quantised, &scales))?;
    if_any(norm.quantise_adding(on.device, &x, &residual, &sum, &quantised, &scales))?;
    if_any(norm.backward(on.device, &x, &residual, &y, &gradient))
}

fn layer_norm<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, dy, sum, y] = on.matrices::<T, 4>()?;
    let (weight, bias) = (on.alloc::<T>(on.columns)?, on.alloc::<T>(on.columns)?);
    let (dw, db) = (on.alloc(on.columns)?, on.alloc(on.columns)?);
    let norm = LayerNorm::new(1e-6).affine(&weight, &bias);
    norm.run(on.device, &x, &y)?;
    norm.run_adding(on.device, &x, &dy, &sum, &y)?;
    if_any(norm.backward(on.device, &x, &dy, &y, &dw, &db))
}

fn rope<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y] = on.matrices::<T, 2>()?;
    let pairs = on.head() / 2;
    let (cos, sin) = (on.alloc(on.rows * pairs)?, on.alloc(on.rows * pairs)?);
    let [cos, sin] = [&cos, &sin].map(|table| Rows::new(table, on.rows, pairs));
    let positions = on.alloc(on.rows)?;
    let rope = Rope::new(on.head());
    for rope in [rope, rope.inverse(), rope.positions(&positions), rope.positions(&positions).inverse()] {
        rope.run(on.device, &x, cos, sin, &y)?;
    }
    Ok(())
}

fn glu<T: FloatItem>(on: &Stage<'_>, glu: &Glu) -> Result<(), Error> {
    let [gate, up, dy, y, dup] = on.matrices::<T, 5>()?;
    glu.run(on.device, &gate, &up, &y)?;
    glu.backward(on.device, &gate, &up, &dy, &y, &dup)
}

fn swiglu<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    glu::<T>(on, &Glu::swiglu())
}

fn geglu<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    glu::<T>(on, &Glu::geglu())
}

fn reduce<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x] = on.matrices::<T, 1>()?;
    let (sums, sum) = (on.alloc::<f32>(on.rows)?, on.alloc::<f32>(1)?);
    Reduce::Sum.rows(on.device, &x, &sums)?;
    Reduce::Sum.all(on.device, &x, &sum)
}

fn arg_max<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let ([x], places) = (on.matrices::<T, 1>()?, on.alloc(on.rows)?);
    Arg::Max.rows(on.device, &x, &places)
}

fn top_k<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    for k in [8, 64].map(|k| on.columns.min(k)) {
        let top = TopK::new(k);
        on.for_each_choice(
            |rows| top.by(on.device, (rows, on.columns)),
            |on| {
                let [x] = on.matrices::<T, 1>()?;
                let (values, places) = (on.alloc(on.rows * k)?, on.alloc(on.rows * k)?);
                let (values, places) = (Rows::new(&values, on.rows, k), Rows::new(&places, on.rows, k));
                top.run(on.device, &x, values, places)
            },
        )?;
    }
    Ok(())
}

fn scan<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y] = on.matrices::<T, 2>()?;
    CumulativeSum::new().run(on.device, &x, &y)
}

fn transposed<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y] = on.matrices::<T, 2>()?;
    transpose(on.device, &x, Rows::new(&y.buffer, on.columns, on.rows))
}

fn permuted<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y] = on.matrices::<T, 2>()?;
    let heads = on.columns / on.head();
    // A single token has code of its own.
    for rows in [on.rows, 1] {
        let (x, y) = (x.buffer.slice(..rows * on.columns)?, y.buffer.slice(..rows * on.columns)?);
        permute(on.device, &x, &[rows, heads, on.head()], &[1, 0, 2], &y)?;
    }
    Ok(())
}

fn embedded<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let ([table, y], indices) = (on.matrices::<T, 2>()?, on.alloc::<i32>(on.rows)?);
    embedding(on.device, &table, &indices, &y)
}

fn dropout<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let [x, y] = on.matrices::<T, 2>()?;
    Dropout::new(0.5, 1).run(on.device, &x, &y)
}

fn converted<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let ([x], [y]) = (on.matrices::<T, 1>()?, on.matrices::<f32, 1>()?);
    convert(on.device, &x, &y)?;
    convert(on.device, &y, &x)
}

fn quantised<T: FloatItem>(on: &Stage<'_>) -> Result<(), Error> {
    let ([x], [q]) = (on.matrices::<T, 1>()?, on.matrices::<i8, 1>()?);
    let (scales, scale) = (on.alloc(on.rows)?, on.alloc(1)?);
    if_any(Quantise::per_row().run(on.device, &x, &q, &scales))?;
    Quantise::per_tensor().run(on.device, &x, &q, &scale)?;
    dequantise(on.device, &q, &scales, &x)?;
    dequantise(on.device, &q, &scale, &x)
}
