//! The library's own operators as a subject: called as its users call them.

use tilewright::device::{Buffer, Device, DeviceError, DynBuffer};
use tilewright::hardware::Element;
use tilewright::lang::{bf16, f16};
use tilewright::ops::{
    Arg, CumulativeSum, Dropout, Error, FloatItem, LayerNorm, Reduce, RmsNorm, Rows, Softmax, TopK, embedding,
};

use super::super::super::Failure;
use super::super::timing::{Contestant, broken};
use super::case::{Case, DROPPED, EPS, Op, VOCABULARY};
use super::memory::Memory;
use super::subject::Subject;

/// The operators of [`tilewright::ops`].
pub(super) struct Library;

impl Subject for Library {
    fn name(&self, _: &Device, _: &Case) -> String {
        "library".to_owned()
    }

    fn prepare<'a>(
        &'a self,
        device: &Device,
        case: &'a Case,
        memory: &'a Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure> {
        match case.element {
            Element::F16 => Calls::<f16>::prepare(device, case, memory),
            Element::BF16 => Calls::<bf16>::prepare(device, case, memory),
            _ => Calls::<f32>::prepare(device, case, memory),
        }
    }
}

/// An operator on elements of one type, with everything that its calls need.
struct Calls<'a, T> {
    device: Device,
    case: &'a Case,
    copies: Vec<Copy<T>>,
    /// The last column that each row of a causal softmax sees.
    positions: Buffer<i32>,
}

/// The arrays of one copy.
struct Copy<T> {
    /// Those of numbers, inputs first.
    numbers: Vec<Buffer<T>>,
    /// Rows to look up.
    rows: Buffer<i32>,
    /// Places that are found.
    places: Buffer<u32>,
}

impl<T: FloatItem> Copy<T> {
    fn new(device: &Device, case: &Case, memory: &Memory, copy: usize) -> Result<Copy<T>, DeviceError> {
        let buffers = memory.inputs(copy).iter().chain(memory.outputs(copy));
        let (mut rows, mut places) = (device.alloc(0)?, device.alloc(0)?);
        let mut numbers = Vec::new();
        for (place, (buffer, tensor)) in buffers.zip(case.tensors()).enumerate() {
            let buffer = DynBuffer::from(buffer);
            match tensor.element {
                Element::I32 if place == 0 => rows = buffer.reinterpreted(Element::I32).typed()?,
                Element::I32 => places = buffer.reinterpreted(Element::U32).typed()?,
                element => numbers.push(buffer.reinterpreted(element).typed()?),
            }
        }
        Ok(Copy { numbers, rows, places })
    }
}

impl<'a, T: FloatItem> Calls<'a, T> {
    /// Nothing if the library does not have it on this device, which the first call says.
    fn prepare(
        device: &Device,
        case: &'a Case,
        memory: &Memory,
    ) -> Result<Option<Box<dyn Contestant + 'a>>, Failure>
    where
        T: 'a,
    {
        if matches!(case.op, Op::Copy | Op::MatmulTile) {
            return Ok(None);
        }
        let copies = (0..memory.copies()).map(|copy| Copy::new(device, case, memory, copy));
        let position = |row| i32::try_from(case.valid(row) - 1).unwrap_or(i32::MAX);
        let positions: Vec<i32> = match case.op {
            Op::CausalSoftmax => (0..case.rows).map(position).collect(),
            _ => Vec::new(),
        };
        let calls = Calls::<T> {
            device: device.clone(),
            case,
            copies: copies.collect::<Result<_, _>>().map_err(broken)?,
            positions: device.upload(&positions).map_err(broken)?,
        };
        match calls.call(0) {
            Ok(()) => Ok(Some(Box::new(calls))),
            Err(Error::NoKernel { .. }) => Ok(None),
            Err(error) => Err(Failure::Machine(error.to_string())),
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "constants that f32 holds well enough")]
    fn call(&self, copy: usize) -> Result<(), Error> {
        let Case { op, rows, columns, k, .. } = *self.case;
        let (device, copy) = (&self.device, &self.copies[copy % self.copies.len()]);
        let (rows, columns, k) = (rows as usize, columns as usize, k as usize);
        let all = |buffer| Rows::new(buffer, rows, columns);
        match (op, &copy.numbers[..]) {
            (Op::Softmax, [x, y]) => Softmax::new().run(device, all(x), all(y)),
            (Op::CausalSoftmax, [x, y]) if rows.is_multiple_of(rows.min(columns)) => {
                Softmax::new().causal(rows.min(columns)).run(device, all(x), all(y))
            }
            (Op::CausalSoftmax, [x, y]) => {
                Softmax::new().positions(&self.positions).run(device, all(x), all(y))
            }
            (Op::RmsNorm, [x, w, y]) => RmsNorm::new(EPS as f32).weight(w).run(device, all(x), all(y)),
            (Op::LayerNorm, [x, w, b, y]) => {
                LayerNorm::new(EPS as f32).affine(w, b).run(device, all(x), all(y))
            }
            (Op::Reduce, [x, y]) => Reduce::Sum.rows(device, all(x), y),
            (Op::Scan, [x, y]) => CumulativeSum::new().run(device, all(x), all(y)),
            (Op::TopK, [x, y]) => {
                TopK::new(k).run(device, all(x), Rows::new(y, rows, k), Rows::new(&copy.places, rows, k))
            }
            (Op::ArgMax, [x]) => Arg::Max.rows(device, all(x), &copy.places),
            (Op::Embedding, [table, y]) => {
                embedding(device, Rows::new(table, VOCABULARY as usize, columns), &copy.rows, all(y))
            }
            (Op::Dropout, [x, y]) => Dropout::new(DROPPED as f32, 1).run(device, all(x), all(y)),
            _ => Ok(()),
        }
    }
}

impl<T: FloatItem> Contestant for Calls<'_, T> {
    fn launch(&self, copy: usize) -> Result<(), Failure> {
        self.call(copy).map_err(|error| Failure::Machine(error.to_string()))
    }
}
