//! Matrices in global memory as a kernel sees them: their addresses, and their elements in the type that the kernel computes in.

use tilewright_hardware::Element;
use tilewright_lang::prelude::*;
use tilewright_lang::{Argument, Element as LangElement};

use super::problem::{Batching, Placement, Storage};
use super::recipe::{Binding, Operand};

/// Calls code with the Rust type of an element type that matrices have.
macro_rules! with_element {
    ($element:expr, $T:ident => $code:expr) => {
        match $element {
            Element::F16 => {
                type $T = f16;
                $code
            }
            Element::BF16 => {
                type $T = bf16;
                $code
            }
            Element::F64 => {
                type $T = f64;
                $code
            }
            Element::I32 => {
                type $T = i32;
                $code
            }
            Element::I8 => {
                type $T = i8;
                $code
            }
            Element::U8 => {
                type $T = u8;
                $code
            }
            Element::E4M3 => {
                type $T = E4m3;
                $code
            }
            Element::E5M2 => {
                type $T = E5m2;
                $code
            }
            _ => {
                type $T = f32;
                $code
            }
        }
    };
}
pub(super) use with_element;

/// Where a thread is: the first of some neighbours in a row of the product.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Member of the batch.
    pub batch: Val<u32>,
    /// Row of the product.
    pub row: Val<u32>,
    /// Column of the product.
    pub column: Val<u32>,
    /// Rows and columns that exist, if places may lie outside; nothing is read or written there.
    pub bounds: Option<(Val<u32>, Val<u32>)>,
}

impl Place {
    /// Whether the neighbour so many columns further exists.
    #[must_use]
    #[track_caller]
    pub fn inside(&self, further: u32) -> Val<bool> {
        match self.bounds {
            None => val(true),
            Some((rows, columns)) => both_below(self.row, rows, self.column + further, columns),
        }
    }
}

#[device]
fn both_below(row: Val<u32>, rows: Val<u32>, column: Val<u32>, columns: Val<u32>) -> Val<bool> {
    (row < rows) & (column < columns)
}

/// A matrix in global memory whose type and storage are known while staging.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlobalMatrix {
    origin: Global<u8>,
    leading: Val<u64>,
    batch_stride: Val<u64>,
    storage: Storage,
    batching: Batching,
    element: Element,
}

impl GlobalMatrix {
    /// Declares the parameters `name`, `name_leading` and `name_batch`.
    #[track_caller]
    pub(super) fn declare(
        name: &str,
        placement: &Placement,
        element: Element,
        batching: Batching,
    ) -> GlobalMatrix {
        GlobalMatrix {
            origin: Argument::declare(name),
            leading: Argument::declare(&format!("{name}_leading")),
            batch_stride: Argument::declare(&format!("{name}_batch")),
            storage: placement.storage,
            batching,
            element,
        }
    }

    /// What those parameters get.
    pub(super) fn bindings(name: &str, operand: Operand, placement: &Placement) -> [(String, Binding); 3] {
        [
            (name.to_owned(), Binding::Pointer(operand, 0)),
            (format!("{name}_leading"), Binding::U64(placement.leading)),
            (format!("{name}_batch"), Binding::U64(placement.batch_stride)),
        ]
    }

    /// Elements from one row (or column) to the next.
    pub(super) fn leading(&self) -> Val<u64> {
        self.leading
    }

    /// The type of its elements.
    pub(super) fn element(&self) -> Element {
        self.element
    }

    /// The address of an element.
    #[track_caller]
    pub(super) fn at(&self, batch: Val<u32>, row: Val<u32>, column: Val<u32>) -> Global<u8> {
        let (slow, fast) = match self.storage {
            Storage::RowMajor => (row, column),
            Storage::ColumnMajor => (column, row),
        };
        let inner = slow.cast::<u64>() * self.leading + fast.cast::<u64>();
        let bytes = u64::from(self.element.bytes());
        match self.batching {
            Batching::Strided => {
                self.origin.byte_add((batch.cast::<u64>() * self.batch_stride + inner) * bytes)
            }
            Batching::Pointers => {
                let origin = self.origin.cast::<u64>().at(batch).load();
                Global::<u8>::from_address(origin).byte_add(inner * bytes)
            }
        }
    }

    /// The element at a place, or zero outside of the matrix and where a guard does not hold.
    #[track_caller]
    pub(super) fn load<R: Number>(&self, place: &Place, further: u32, guard: Option<Val<bool>>) -> Val<R> {
        let at = self.at(place.batch, place.row, place.column + further);
        let condition = both(place.bounds.map(|_| place.inside(further)), guard);
        with_element!(self.element, T => load_converted::<T, R>(at, condition))
    }

    /// Neighbours in a row, all of them in the matrix, which lies so that one access takes them.
    #[track_caller]
    pub(super) fn load_run<R: Number>(&self, place: &Place, count: u32) -> Vec<Val<R>> {
        let at = self.at(place.batch, place.row, place.column);
        with_element!(self.element, T => at.cast::<T>().load_vector(count).cast::<R>().elements())
    }

    /// Stores neighbours in a row, all of them in the matrix, which lies so that one access takes them.
    #[track_caller]
    pub(super) fn store_run<R: Number>(&self, place: &Place, values: &[Val<R>]) {
        let at = self.at(place.batch, place.row, place.column);
        with_element!(self.element, T => {
            at.cast::<T>().store_vector(Vector::new(values.iter().map(|&value| narrow::<R, T>(value))));
        });
    }

    /// Stores an element at a place, if it lies in the matrix.
    #[track_caller]
    pub(super) fn store<R: Number>(&self, place: &Place, further: u32, value: Val<R>) {
        let at = self.at(place.batch, place.row, place.column + further);
        let inside = place.bounds.map(|_| place.inside(further));
        with_element!(self.element, T => store_converted::<T, R>(at, inside, value));
    }
}

/// Whether all conditions hold that there are.
#[track_caller]
pub(super) fn both(first: Option<Val<bool>>, second: Option<Val<bool>>) -> Option<Val<bool>> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first & second),
        (first, second) => first.or(second),
    }
}

/// An element, converted; zero where a condition does not hold.
#[track_caller]
pub(super) fn load_converted<T: LangElement, R: Number>(at: Global<u8>, inside: Option<Val<bool>>) -> Val<R> {
    let at = at.cast::<T>();
    match inside {
        None => at.load().cast(),
        Some(inside) => at.load_if(inside, zero::<T>()).cast(),
    }
}

#[track_caller]
fn store_converted<T: LangElement, R: Number>(at: Global<u8>, inside: Option<Val<bool>>, value: Val<R>) {
    let value = narrow::<R, T>(value);
    match inside {
        None => at.cast::<T>().store(value),
        Some(inside) => at.cast::<T>().store_if(inside, value),
    }
}

#[track_caller]
fn zero<T: LangElement>() -> Val<T> {
    val(0.0f32).cast()
}

/// Converts a result: to nearest, ties to even, and to the largest number instead of beyond it where the type has no infinity.
#[track_caller]
pub(super) fn narrow<R: Number, T: LangElement>(value: Val<R>) -> Val<T> {
    match T::ELEMENT {
        Element::I8 | Element::U8 | Element::I32 if R::ELEMENT.is_float() => {
            value.cast_rounded(Round::Nearest)
        }
        Element::I8 | Element::U8 => value.cast_saturating(),
        _ => value.cast(),
    }
}
