//! Matrices and vectors in memory: numbers where they belong, poison everywhere else, before and after a run.

use tilewright::device::{Device, DynBuffer, Item};
use tilewright::hardware::Element;
use tilewright::kernels::gemm::epilogue::{decode, encode};
use tilewright::kernels::gemm::{Storage, Types};
use tilewright::lang::{E4m3, E5m2, bf16, f16};

/// Between the numbers that are read: NaN as a float, so that whoever reads it is found out by the result.
const UNREADABLE: u8 = 0xff;
/// Where results go: no number that a product gives.
const UNWRITTEN: u8 = 0xa5;
/// Elements behind the last.
const MARGIN: usize = 37;

/// Where the elements of a matrix lie, as indices in a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Lies {
    pub(crate) storage: Storage,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) leading: usize,
    /// The first element of each member of the batch.
    pub(crate) starts: Vec<usize>,
}

impl Lies {
    pub(crate) fn at(&self, member: usize, row: usize, column: usize) -> usize {
        let (slow, fast) = match self.storage {
            Storage::RowMajor => (row, column),
            Storage::ColumnMajor => (column, row),
        };
        self.starts[member] + slow * self.leading + fast
    }

    /// Places of all elements.
    pub(crate) fn places(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let (members, rows, columns) = (self.starts.len(), self.rows, self.columns);
        (0..members).flat_map(move |member| {
            (0..rows).flat_map(move |row| (0..columns).map(move |column| (member, row, column)))
        })
    }

    /// Elements that a buffer must have, and some more.
    fn room(&self) -> usize {
        let lines = if self.storage == Storage::RowMajor { self.rows } else { self.columns };
        self.starts.iter().max().copied().unwrap_or(0) + lines * self.leading + MARGIN
    }
}

/// Numbers of one type as bytes.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    pub(crate) element: Element,
    bytes: Vec<u8>,
}

impl Contents {
    /// Room for results.
    pub(crate) fn unwritten(element: Element, len: usize) -> Contents {
        Contents { element, bytes: vec![UNWRITTEN; len * element.bytes() as usize] }
    }

    /// Room for inputs.
    pub(crate) fn unreadable(element: Element, len: usize) -> Contents {
        Contents { element, bytes: vec![UNREADABLE; len * element.bytes() as usize] }
    }

    /// A matrix of given numbers, as the type rounds them.
    pub(crate) fn matrix(element: Element, lies: &Lies, mut number: impl FnMut() -> f64) -> Contents {
        let mut contents = Contents::unreadable(element, lies.room());
        for (member, row, column) in lies.places() {
            contents.set(lies.at(member, row, column), number());
        }
        contents
    }

    /// Room for a matrix.
    pub(crate) fn room(element: Element, lies: &Lies) -> Contents {
        Contents::unwritten(element, lies.room())
    }

    pub(crate) fn set(&mut self, index: usize, value: f64) {
        encode(self.element, &mut self.bytes, index as u64, value);
    }

    pub(crate) fn get(&self, index: usize) -> f64 {
        decode(self.element, &self.bytes, index as u64)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.element.bytes() as usize
    }

    /// The first element that is not the same, of those that nobody may have written.
    pub(crate) fn touched(&self, after: &Contents, written: &[bool]) -> Option<usize> {
        let width = self.element.bytes() as usize;
        let pairs = self.bytes.chunks_exact(width).zip(after.bytes.chunks_exact(width));
        pairs.zip(written).position(|((before, after), written)| !written && before != after)
    }

    /// On a device, from the element `first` on.
    pub(crate) fn upload(&self, device: &Device, first: usize) -> Result<Uploaded, String> {
        struct Upload<'a>(&'a Device, &'a [u8], usize);
        impl Typed for Upload<'_> {
            type Output = Result<Uploaded, String>;
            fn of<T: Item>(self) -> Self::Output {
                let Upload(device, bytes, first) = self;
                let whole = device.upload(&items::<T>(bytes)).map_err(|error| error.to_string())?;
                let part = whole.slice(first..).map_err(|error| error.to_string())?;
                Ok(Uploaded { whole: (&whole).into(), part: (&part).into() })
            }
        }
        typed(self.element, Upload(device, &self.bytes, first))
    }
}

/// Contents on a device.
#[derive(Debug)]
pub(crate) struct Uploaded {
    pub(crate) whole: DynBuffer,
    /// From where the product is told.
    pub(crate) part: DynBuffer,
}

impl Uploaded {
    /// What is there now.
    pub(crate) fn download(&self) -> Result<Contents, String> {
        struct Download<'a>(&'a DynBuffer);
        impl Typed for Download<'_> {
            type Output = Result<Vec<u8>, String>;
            fn of<T: Item>(self) -> Self::Output {
                let width = T::ELEMENT.bytes() as usize;
                let items = self.0.to_vec::<T>().map_err(|error| error.to_string())?;
                Ok(items
                    .into_iter()
                    .flat_map(|item| item.to_bits().to_le_bytes().into_iter().take(width))
                    .collect())
            }
        }
        let element = self.whole.element();
        Ok(Contents { element, bytes: typed(element, Download(&self.whole))? })
    }
}

fn items<T: Item>(bytes: &[u8]) -> Vec<T> {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        T::from_bits(u64::from_le_bytes(word))
    };
    bytes.chunks_exact(T::ELEMENT.bytes() as usize).map(word).collect()
}

/// Something to do with a type that is a value.
trait Typed {
    type Output;
    fn of<T: Item>(self) -> Self::Output;
}

fn typed<W: Typed>(element: Element, work: W) -> W::Output {
    match Types::in_memory(element) {
        Element::F16 => work.of::<f16>(),
        Element::BF16 => work.of::<bf16>(),
        Element::F64 => work.of::<f64>(),
        Element::I32 => work.of::<i32>(),
        Element::I8 => work.of::<i8>(),
        Element::U8 => work.of::<u8>(),
        Element::E4M3 => work.of::<E4m3>(),
        Element::E5M2 => work.of::<E5m2>(),
        _ => work.of::<f32>(),
    }
}
