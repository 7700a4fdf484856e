//! What a kernel is launched with.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

use super::gate::Kinds;
use crate::memory::allocation::Allocation;
use crate::memory::{Buffer, Slice, SliceMut};
use crate::tensor_map::TensorMap;

/// An argument of a launch: a number, memory to read (`&Buffer`, [`Slice`]) or to write (`&mut Buffer`, [`SliceMut`]), a
/// [`TensorMap`], or a structure by value ([`ByValue`]).
#[derive(Debug)]
pub struct Arg<'a> {
    pub(super) value: Value,
    pub(super) kind: Kind<'a>,
}

/// The bytes of an argument, or where they are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Inline([u8; 8]),
    At(*const c_void),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind<'a> {
    Number {
        class: Class,
        bytes: usize,
    },
    Memory {
        memory: &'a Arc<Allocation>,
        bytes: usize,
        writable: bool,
    },
    /// An address that somebody vouches for.
    Address,
    Map(&'a TensorMap),
    Bytes {
        bytes: usize,
        lifetime: PhantomData<&'a ()>,
    },
}

/// What a number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Integer,
    Float,
    Brain,
}

impl<'a> Arg<'a> {
    /// A structure by value, as its bytes.
    #[must_use]
    pub fn bytes(bytes: &'a [u8]) -> Arg<'a> {
        let at = Value::At(bytes.as_ptr().cast::<c_void>());
        Arg { value: at, kind: Kind::Bytes { bytes: bytes.len(), lifetime: PhantomData } }
    }

    /// Whether it leads to memory that is not borrowed, and that somebody else may want.
    #[inline]
    pub(super) fn is_contested_map(&self) -> bool {
        matches!(self.kind, Kind::Map(map) if map.memory().is_contested())
    }

    /// The memory that it leads to.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&'a Arc<Allocation>> {
        match self.kind {
            Kind::Memory { memory, .. } => Some(memory),
            Kind::Map(map) => Some(map.memory()),
            Kind::Number { .. } | Kind::Address | Kind::Bytes { .. } => None,
        }
    }

    /// Whether that memory may be written.
    pub(crate) fn is_writable(&self) -> bool {
        match self.kind {
            Kind::Memory { writable, .. } => writable,
            Kind::Map(map) => map.is_writable(),
            Kind::Number { .. } | Kind::Address | Kind::Bytes { .. } => false,
        }
    }

    /// The addresses of that memory that a kernel may touch.
    pub(crate) fn range(&self) -> Range<u64> {
        match (self.kind, self.value) {
            (Kind::Memory { bytes, .. }, Value::Inline(address)) => {
                let start = u64::from_ne_bytes(address);
                start..start + bytes as u64
            }
            (Kind::Map(map), _) => map.range(),
            _ => 0..0,
        }
    }
}

impl Arg<'_> {
    /// Where the driver finds its bytes.
    #[inline]
    pub(super) fn pointer(&self) -> *mut c_void {
        match &self.value {
            Value::Inline(bytes) => bytes.as_ptr().cast_mut().cast::<c_void>(),
            Value::At(pointer) => pointer.cast_mut(),
        }
    }

    /// What it is.
    #[inline]
    pub(super) fn kinds(&self) -> Kinds {
        match self.kind {
            Kind::Number { class: Class::Integer, .. } => Kinds::INTEGER,
            Kind::Number { class: Class::Float, .. } => Kinds::FLOAT,
            Kind::Number { class: Class::Brain, .. } => Kinds::BRAIN,
            Kind::Memory { writable: false, .. } => Kinds::SOURCE,
            Kind::Memory { writable: true, .. } => Kinds::TARGET,
            Kind::Address => Kinds::ADDRESS,
            Kind::Map(map) if map.is_writable() => Kinds::WRITABLE_MAP,
            Kind::Map(_) => Kinds::MAP,
            Kind::Bytes { .. } => Kinds::BYTES,
        }
    }

    /// Bytes of the parameter that it fills.
    #[inline]
    pub(super) fn size(&self) -> usize {
        match self.kind {
            Kind::Number { bytes, .. } => bytes,
            Kind::Memory { .. } | Kind::Address => 8,
            Kind::Map(_) => 128,
            Kind::Bytes { bytes, .. } => bytes,
        }
    }

    /// The null pointer.
    #[must_use]
    pub fn null() -> Arg<'static> {
        Arg { value: Value::Inline([0; 8]), kind: Kind::Address }
    }

    /// An address of memory that this crate knows nothing of.
    ///
    /// # Safety
    /// The memory is live until the kernel has run, and what else uses it is ordered.
    #[allow(unsafe_code)]
    #[must_use]
    pub unsafe fn address(address: u64) -> Arg<'static> {
        Arg { value: Value::Inline(address.to_ne_bytes()), kind: Kind::Address }
    }

    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        match self.kind {
            Kind::Number { class: Class::Integer, bytes } => format!("an integer of {} bits", bytes * 8),
            Kind::Number { class: Class::Float, bytes } => {
                format!("a floating-point number of {} bits", bytes * 8)
            }
            Kind::Number { class: Class::Brain, .. } => "a bf16".to_owned(),
            Kind::Memory { writable: false, .. } => "memory to read".to_owned(),
            Kind::Memory { writable: true, .. } => "memory to write".to_owned(),
            Kind::Address => "an address".to_owned(),
            Kind::Map(_) => "a tensor map".to_owned(),
            Kind::Bytes { bytes, .. } => format!("a structure of {bytes} bytes"),
        }
    }
}

/// A structure that a kernel takes by value.
///
/// ```
/// use tilewright_cuda::{Arg, ByValue};
/// let extents = [3u32, 4, 5];
/// let argument = Arg::from(ByValue(&extents));
/// # let _ = argument;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ByValue<'a, T>(pub &'a T);

impl<'a, T: Pod> From<ByValue<'a, T>> for Arg<'a> {
    fn from(ByValue(value): ByValue<'a, T>) -> Arg<'a> {
        Arg::bytes(bytemuck::bytes_of(value))
    }
}

/// Numbers, with what they are.
macro_rules! numbers {
    ($($ty:ty: $class:ident),* $(,)?) => {$(
        impl From<$ty> for Arg<'_> {
            #[inline]
            fn from(value: $ty) -> Self {
                let mut inline = <[u8; 8]>::zeroed();
                let bytes = value.to_ne_bytes();
                inline[..bytes.len()].copy_from_slice(&bytes);
                Arg { value: Value::Inline(inline), kind: Kind::Number { class: Class::$class, bytes: size_of::<$ty>() } }
            }
        }
    )*};
}

numbers! {
    u8: Integer, i8: Integer, u16: Integer, i16: Integer, u32: Integer, i32: Integer, u64: Integer, i64: Integer,
    usize: Integer, isize: Integer, f16: Float, bf16: Brain, f32: Float, f64: Float,
}

impl From<bool> for Arg<'_> {
    fn from(value: bool) -> Self {
        Arg::from(u8::from(value))
    }
}

impl<'a, T: Pod> From<Slice<'a, T>> for Arg<'a> {
    #[inline]
    fn from(slice: Slice<'a, T>) -> Arg<'a> {
        let kind = Kind::Memory { memory: slice.memory(), bytes: slice.bytes(), writable: false };
        Arg { value: Value::Inline(slice.address().to_ne_bytes()), kind }
    }
}

impl<'a, T: Pod> From<SliceMut<'a, T>> for Arg<'a> {
    #[inline]
    fn from(slice: SliceMut<'a, T>) -> Arg<'a> {
        let kind = Kind::Memory { memory: slice.memory(), bytes: slice.bytes(), writable: true };
        Arg { value: Value::Inline(slice.address().to_ne_bytes()), kind }
    }
}

impl<'a, T: Pod> From<&'a Buffer<T>> for Arg<'a> {
    #[inline]
    fn from(buffer: &'a Buffer<T>) -> Arg<'a> {
        buffer.as_slice().into()
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for Arg<'a> {
    #[inline]
    fn from(buffer: &'a mut Buffer<T>) -> Arg<'a> {
        buffer.as_mut_slice().into()
    }
}

impl<'a> From<&'a TensorMap> for Arg<'a> {
    #[inline]
    fn from(map: &'a TensorMap) -> Arg<'a> {
        Arg { value: Value::At(map.pointer()), kind: Kind::Map(map) }
    }
}

/// Arguments of a launch: a tuple of what [`Arg`] can be made of, or a slice of [`Arg`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` are no arguments of a kernel",
    note = "arguments are a tuple of numbers, `&Buffer`, `&mut Buffer`, slices of them, `&TensorMap` or `ByValue`; one argument is `(x,)`"
)]
pub trait Arguments<'a> {
    /// Gives them to `launch`.
    fn with<R>(self, launch: impl FnOnce(&[Arg<'a>]) -> R) -> R;
}

impl<'a> Arguments<'a> for &[Arg<'a>] {
    fn with<R>(self, launch: impl FnOnce(&[Arg<'a>]) -> R) -> R {
        launch(self)
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<'a, $($name: Into<Arg<'a>>),*> Arguments<'a> for ($($name,)*) {
            #[inline]
            #[allow(non_snake_case, reason = "values are named like their types")]
            fn with<R>(self, launch: impl FnOnce(&[Arg<'a>]) -> R) -> R {
                let ($($name,)*) = self;
                launch(&[$($name.into()),*])
            }
        }
    )*};
}

tuples! {
    () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L) (A B C D E F G H I J K L M)
    (A B C D E F G H I J K L M N) (A B C D E F G H I J K L M N O) (A B C D E F G H I J K L M N O P)
    (A B C D E F G H I J K L M N O P Q) (A B C D E F G H I J K L M N O P Q S) (A B C D E F G H I J K L M N O P Q S T)
    (A B C D E F G H I J K L M N O P Q S T U)
}
