//! [`Vector`]: several elements of one thread, side by side in registers.

use std::fmt;
use std::marker::PhantomData;
use std::ops;

use tilewright_ir::{Attr, Element as Kind, Flags, Index, Opcode, Operands, Type, Value};

use crate::element::{Element, Number};
use crate::stage::Carry;
use crate::trace;
use crate::value::{Operand, Val};

/// Elements of one thread, packed into registers. Its length is fixed while staging.
///
/// Vectors are what wide loads and stores, tensor-core fragments and packed arithmetic work on. Small floats are packed: eight
/// `bf16` take four registers, and `+` on them is four instructions.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel]
/// fn halve(x: Global<bf16>) {
///     let at = x.aligned(16).at(thread_id(0) * 8);
///     let v = at.load_vector(8); // one 16-byte load
///     at.store_vector(v * Vector::splat(bf16::from_f32(0.5), 8));
/// }
/// assert!(halve::stage()?.ir().contains(" : 8xbf16"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
pub struct Vector<T> {
    pub(crate) id: Value,
    len: u32,
    ty: PhantomData<fn() -> T>,
}

impl<T> Clone for Vector<T> {
    fn clone(&self) -> Vector<T> {
        *self
    }
}

impl<T> Copy for Vector<T> {}

impl<T> fmt::Debug for Vector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ({} elements)", self.id, self.len)
    }
}

#[diagnostic::do_not_recommend]
impl<T> Carry for Vector<T> {
    fn values(&self, out: &mut Vec<Value>) {
        out.push(self.id);
    }
    fn replace(&mut self, from: &mut dyn Iterator<Item = Value>) {
        if let Some(id) = from.next() {
            self.id = id;
        }
    }
}

/// The vector type of so many elements; reports lengths that no register file holds.
#[track_caller]
pub(crate) fn vector_type<T: Element>(len: u32) -> Type {
    vector_of(T::ELEMENT, len)
}

#[track_caller]
pub(crate) fn vector_of(element: Kind, len: u32) -> Type {
    match u16::try_from(len) {
        Ok(n) if n > 0 && n <= 1024 => Type::Vector(element, n),
        _ => {
            trace::error(format!("a vector of {len} elements; expected 1 to 1024"));
            Type::Vector(element, 1)
        }
    }
}

/// What a vector is made of. There are hundreds of iterators over it: one by one is the least code for each of them.
#[derive(Default)]
struct Parts {
    ids: Operands,
    len: u32,
}

impl Parts {
    #[inline(never)]
    fn push(&mut self, id: Value, len: u32) {
        self.ids.push(id);
        self.len = self.len.saturating_add(len);
    }

    #[track_caller]
    fn join<T: Element>(self, code: Opcode) -> Vector<T> {
        let ty = vector_type::<T>(self.len);
        Vector::of(trace::value(code, self.ids, [], ty), ty.lanes())
    }
}

/// An element of a vector of `len`.
#[track_caller]
fn extract(vector: Value, len: u32, i: u32, element: Kind) -> Value {
    if i >= len {
        trace::error(format!("element {i} of a vector of {len}"));
        return trace::poison(Type::Scalar(element));
    }
    trace::value(Opcode::Extract, [vector], [Index(i).into()], Type::Scalar(element))
}

/// `len` of a vector's elements from `start` on, if it has them.
#[track_caller]
fn slice(vector: Value, all: u32, start: u32, len: u32, element: Kind) -> Option<Value> {
    if len == 0 || start.checked_add(len).is_none_or(|end| end > all) {
        trace::error(format!("{len} elements from {start} on, of a vector of {all}"));
        return None;
    }
    Some(trace::value(Opcode::Slice, [vector], [Index(start).into()], vector_of(element, len)))
}

impl<T: Element> Vector<T> {
    pub(crate) fn of(id: Value, len: u32) -> Vector<T> {
        Vector { id, len, ty: PhantomData }
    }

    /// A vector of these elements.
    #[track_caller]
    pub fn new<R: Operand<T>>(elements: impl IntoIterator<Item = R>) -> Vector<T> {
        trace::here();
        let (mut parts, id) = (Parts::default(), |element: R| element.val().id);
        for element in elements {
            parts.push(id(element), 1);
        }
        parts.join(Opcode::Pack)
    }

    /// `len` times the same element.
    #[track_caller]
    pub fn splat(element: impl Operand<T>, len: u32) -> Vector<T> {
        let element = element.val();
        Vector::new((0..len).map(|_| element))
    }

    /// The number of elements.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(self) -> u32 {
        self.len
    }

    /// Element `i`.
    #[must_use]
    #[track_caller]
    pub fn get(self, i: u32) -> Val<T> {
        Val::of(extract(self.id, self.len, i, T::ELEMENT))
    }

    /// The vector with element `i` replaced.
    #[must_use]
    #[track_caller]
    pub fn with(self, i: u32, element: impl Operand<T>) -> Vector<T> {
        let element = element.val();
        if i >= self.len {
            trace::error(format!("element {i} of a vector of {}", self.len));
            return self;
        }
        Vector::of(trace::value(Opcode::Insert, [self.id, element.id], [Index(i).into()], None), self.len)
    }

    /// All elements.
    #[track_caller]
    pub fn elements(self) -> Vec<Val<T>> {
        let mut elements = Vec::with_capacity(self.len as usize);
        for i in 0..self.len {
            elements.push(self.get(i));
        }
        elements
    }

    /// `len` elements from `start` on.
    #[must_use]
    #[track_caller]
    pub fn slice(self, start: u32, len: u32) -> Vector<T> {
        slice(self.id, self.len, start, len, T::ELEMENT).map_or(self, |id| Vector::of(id, len))
    }

    /// The vectors end to end.
    #[track_caller]
    pub fn concat(parts: impl IntoIterator<Item = Vector<T>>) -> Vector<T> {
        let mut all = Parts::default();
        for part in parts {
            all.push(part.id, part.len);
        }
        all.join(Opcode::Concat)
    }

    /// Applies a function to each element.
    #[track_caller]
    pub fn map<U: Element>(self, f: impl FnMut(Val<T>) -> Val<U>) -> Vector<U> {
        Vector::new(self.elements().into_iter().map(f))
    }

    /// Converts each element; see [`Val::cast`]. Pairs of small floats are converted together.
    #[must_use]
    #[track_caller]
    pub fn cast<U: Element>(self) -> Vector<U> {
        if T::ELEMENT == U::ELEMENT {
            return Vector::of(self.id, self.len);
        }
        Vector::of(trace::value(Opcode::Cvt, [self.id], [], vector_type::<U>(self.len)), self.len)
    }

    /// Converts each element; negative values become zero.
    #[must_use]
    #[track_caller]
    pub fn cast_relu<U: Element>(self) -> Vector<U> {
        let ty = vector_type::<U>(self.len);
        Vector::of(trace::value(Opcode::Cvt, [self.id], [Flags::RELU.into()], ty), self.len)
    }

    /// The same bits as elements of another size.
    #[must_use]
    #[track_caller]
    pub fn bitcast<U: Element>(self) -> Vector<U> {
        let bits = self.len * T::ELEMENT.bits();
        if !bits.is_multiple_of(U::ELEMENT.bits()) {
            trace::error(format!("{bits} bits are not a whole number of {}", U::ELEMENT));
        }
        let len = (bits / U::ELEMENT.bits()).max(1);
        Vector::of(trace::value(Opcode::Bitcast, [self.id], [], vector_type::<U>(len)), len)
    }

    #[track_caller]
    fn zip(self, code: Opcode, other: Vector<T>, attrs: impl IntoIterator<Item = Attr>) -> Vector<T> {
        if self.len != other.len {
            trace::error(format!("vectors of {} and {} elements", self.len, other.len));
            return self;
        }
        Vector::of(trace::value(code, [self.id, other.id], attrs, None), self.len)
    }
}

impl<T: Number> Vector<T> {
    /// `self * b + c`, each rounded once.
    #[must_use]
    #[track_caller]
    pub fn mul_add(self, b: Vector<T>, c: Vector<T>) -> Vector<T> {
        if self.len != b.len || self.len != c.len {
            trace::error(format!("vectors of {}, {} and {} elements", self.len, b.len, c.len));
            return self;
        }
        Vector::of(trace::value(Opcode::Fma, [self.id, b.id, c.id], [], None), self.len)
    }

    /// The smaller of each pair.
    #[must_use]
    #[track_caller]
    pub fn min(self, other: Vector<T>) -> Vector<T> {
        self.zip(Opcode::Min, other, [])
    }

    /// The larger of each pair.
    #[must_use]
    #[track_caller]
    pub fn max(self, other: Vector<T>) -> Vector<T> {
        self.zip(Opcode::Max, other, [])
    }

    /// The sum of the elements, from the first to the last.
    #[must_use]
    #[track_caller]
    pub fn sum(self) -> Val<T> {
        let elements = self.elements();
        let first = elements[0];
        elements[1..].iter().fold(first, |sum, &e| sum + e)
    }
}

macro_rules! operators {
    ($( $trait:ident $method:ident $code:ident; )*) => {$(
        impl<T: Number> ops::$trait for Vector<T> {
            type Output = Vector<T>;
            #[track_caller]
            fn $method(self, rhs: Vector<T>) -> Vector<T> {
                self.zip(Opcode::$code, rhs, [])
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
}
