//! What travels between the host and a kernel: numbers, buffers, tensor maps.

use std::borrow::Cow;
use std::sync::Arc;

use tilewright_hardware::{Element as Kind, TensorMapSpec};
use tilewright_lang::{E4m3, E5m2, Element, Tf32, Ue8m0, bf16, f16};

use super::gpu::GpuMemory;
use super::host::HostMemory;
use super::view::Tensor;
use super::{Buffer, TensorMap};

/// A number that buffers hold and kernels take: those of the kernel language with a whole number of bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no element of a buffer",
    note = "elements are bool, i8 to i64, u8 to u64, f16, bf16, f32, f64, Tf32, E4m3, E5m2 and Ue8m0; pairs of E2m1 travel as u8"
)]
pub trait Item: Element + sealed::Sealed {
    /// From its bits; those above its size are zero.
    fn from_bits(bits: u64) -> Self;
    /// The bytes of numbers, little-endian; those of most types where they are.
    #[doc(hidden)]
    fn encode(items: &[Self]) -> Cow<'_, [u8]>;
    /// Numbers from their bytes; those of an incomplete last one are left out.
    #[doc(hidden)]
    fn decode(bytes: &[u8]) -> Vec<Self>;
}

// Numbers travel as this computer holds them.
#[cfg(target_endian = "big")]
compile_error!("devices take numbers as they are in memory, which must be little-endian");

/// What a kernel can be launched with: a [`Buffer`], a number, a [`TensorMap`], or an array of bytes for a parameter that is a struct; a
/// [`Program`](super::Program) also with a [`BufferView`](super::BufferView).
pub trait Argument: sealed::Pass {}

impl<A: sealed::Pass> Argument for A {}

pub(super) mod sealed {
    /// Only this crate implements the traits: a device must know all that can reach it.
    pub trait Sealed {}

    pub trait Pass {
        #[doc(hidden)]
        fn pass(&self) -> super::Passed<'_>;
    }
}

/// Memory of a device, given back when nobody holds it any more.
#[derive(Debug)]
pub enum Memory {
    Host(HostMemory),
    Gpu(GpuMemory),
}

impl Memory {
    /// Its size.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Memory::Host(memory) => memory.place().bytes() as u64,
            Memory::Gpu(memory) => memory.bytes(),
        }
    }

    pub(super) fn address(&self) -> u64 {
        match self {
            Memory::Host(memory) => memory.address(),
            Memory::Gpu(memory) => memory.address(),
        }
    }
}

/// A tensor map as its device takes it.
#[derive(Clone, Debug)]
pub enum Map {
    Host(Box<tilewright_sim::TensorMap>),
    Gpu(Box<tilewright_cuda::TensorMap>),
}

/// A number with its type.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    element: Kind,
    bits: [u8; 8],
}

impl Number {
    pub(super) fn new<T: Item>(item: T) -> Number {
        Number { element: T::ELEMENT, bits: item.to_bits().to_le_bytes() }
    }

    /// A number of some type from another, if that type holds it.
    pub(super) fn converted(element: Kind, value: f64) -> Option<Number> {
        let number = match element {
            Kind::F64 => Number::new(value),
            #[allow(
                clippy::cast_possible_truncation,
                reason = "rounded to the nearest, as a float should be"
            )]
            Kind::F32 => Number::new(value as f32),
            #[allow(clippy::cast_possible_truncation, reason = "compared with the original")]
            Kind::I32 if f64::from(value as i32) == value => Number::new(value as i32),
            _ => return None,
        };
        Some(number)
    }

    pub(super) fn element(&self) -> Kind {
        self.element
    }

    /// The bits; those above its size are zero.
    pub(super) fn bits(&self) -> u64 {
        u64::from_le_bytes(self.bits)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bits[..self.element.bytes() as usize]
    }
}

/// An argument as a launch sees it.
#[derive(Clone, Copy, Debug)]
pub enum Passed<'a> {
    Number(Number),
    /// The elements, the memory, and how many bytes into it.
    Buffer(Kind, &'a Arc<Memory>, usize),
    Map(&'a TensorMapSpec, &'a Map, &'a Arc<Memory>),
    Bytes(&'a [u8]),
    /// A tensor, which a kernel of the tile level takes as a pointer and numbers.
    View(Tensor<'a>),
}

macro_rules! items {
    ($( $ty:ty, |$bits:ident| $value:expr $(, $raw:ty, |$item:ident| $inner:expr)?; )*) => {$(
        impl sealed::Sealed for $ty {}

        impl Item for $ty {
            #[allow(clippy::cast_possible_truncation, reason = "the bits above its size are not its own")]
            fn from_bits($bits: u64) -> $ty {
                $value
            }

            items!(@bytes $ty $(, $raw, |$item| $inner)?);
        }

        impl sealed::Pass for $ty {
            fn pass(&self) -> Passed<'_> {
                Passed::Number(Number::new(*self))
            }
        }
    )*};
    // Numbers of which any bits are valid: their bytes, at once.
    (@bytes $ty:ty) => {
        fn encode(items: &[$ty]) -> Cow<'_, [u8]> {
            Cow::Borrowed(bytemuck::cast_slice(items))
        }

        fn decode(bytes: &[u8]) -> Vec<$ty> {
            let whole = bytes.len() - bytes.len() % size_of::<$ty>();
            bytemuck::pod_collect_to_vec(&bytes[..whole])
        }
    };
    // Others by way of such a number.
    (@bytes $ty:ty, $raw:ty, |$item:ident| $inner:expr) => {
        fn encode(items: &[$ty]) -> Cow<'_, [u8]> {
            let raw: Vec<$raw> = items.iter().map(|$item| $inner).collect();
            Cow::Owned(bytemuck::pod_collect_to_vec(&raw))
        }

        fn decode(bytes: &[u8]) -> Vec<$ty> {
            <$raw as Item>::decode(bytes).into_iter().map(|raw| <$ty>::from_bits(raw.to_bits().into())).collect()
        }
    };
}

items! {
    bool, |bits| bits != 0, u8, |item| u8::from(*item);
    u8, |bits| bits as u8;
    i8, |bits| (bits as u8).cast_signed();
    u16, |bits| bits as u16;
    i16, |bits| (bits as u16).cast_signed();
    u32, |bits| bits as u32;
    i32, |bits| (bits as u32).cast_signed();
    u64, |bits| bits;
    i64, |bits| bits.cast_signed();
    f16, |bits| f16::from_bits(bits as u16);
    bf16, |bits| bf16::from_bits(bits as u16);
    f32, |bits| f32::from_bits(bits as u32);
    f64, |bits| f64::from_bits(bits);
    Tf32, |bits| Tf32(f32::from_bits(bits as u32)), f32, |item| item.0;
    E4m3, |bits| E4m3(bits as u8), u8, |item| item.0;
    E5m2, |bits| E5m2(bits as u8), u8, |item| item.0;
    Ue8m0, |bits| Ue8m0(bits as u8), u8, |item| item.0;
}

impl<T: Item> sealed::Pass for Buffer<T> {
    fn pass(&self) -> Passed<'_> {
        Passed::Buffer(T::ELEMENT, &self.memory, self.offset)
    }
}

impl sealed::Pass for TensorMap {
    fn pass(&self) -> Passed<'_> {
        Passed::Map(&self.spec, &self.map, &self.memory)
    }
}

impl<const N: usize> sealed::Pass for [u8; N] {
    fn pass(&self) -> Passed<'_> {
        Passed::Bytes(self)
    }
}

impl Passed<'_> {
    /// What it is, for messages.
    pub(super) fn describe(&self) -> String {
        match self {
            Passed::Number(number) => format!("a number of type {}", number.element),
            Passed::Buffer(element, ..) => format!("a buffer of {element}"),
            Passed::Map(spec, ..) => format!("a tensor map {}", boxes(spec)),
            Passed::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Passed::View(view) => view.describe(),
        }
    }

    /// Bytes of the parameter that it fills.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Passed::Number(number) => number.bytes().len(),
            Passed::Buffer(..) => 8,
            Passed::Map(..) => 128,
            Passed::Bytes(bytes) => bytes.len(),
            // Several parameters.
            Passed::View(_) => usize::MAX,
        }
    }

    /// The memory behind it.
    pub(super) fn memory(&self) -> Option<&Arc<Memory>> {
        match self {
            Passed::Buffer(_, memory, _)
            | Passed::Map(_, _, memory)
            | Passed::View(Tensor { memory, .. }) => Some(memory),
            Passed::Number(..) | Passed::Bytes(_) => None,
        }
    }
}

/// A specification in a few words.
pub(super) fn boxes(spec: &TensorMapSpec) -> String {
    let extents: Vec<String> = spec.box_dims().iter().map(u32::to_string).collect();
    format!("of {} in boxes of {} with swizzle {:?}", spec.element(), extents.join("x"), spec.swizzle())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<T: Item + std::fmt::Debug>(item: T) {
        let both = [item, item];
        let bytes = T::encode(&both);
        assert_eq!(bytes.len(), 2 * T::ELEMENT.bytes() as usize);
        assert_eq!(T::decode(&bytes), [item, item]);
        // What is left of an incomplete number is no number.
        assert_eq!(T::decode(&bytes[..bytes.len() - 1]).len(), 1);
        assert_eq!(Number::new(item).bytes(), &bytes[..bytes.len() / 2]);
    }

    #[test]
    fn numbers_survive_the_way_there_and_back() {
        [false, true].into_iter().for_each(survives);
        [i8::MIN, -1, 0, i8::MAX].into_iter().for_each(survives);
        [i16::MIN, -1, i16::MAX].into_iter().for_each(survives);
        [i32::MIN, -1, i32::MAX].into_iter().for_each(survives);
        [i64::MIN, -1, i64::MAX].into_iter().for_each(survives);
        survives(u8::MAX);
        survives(u16::MAX);
        survives(u32::MAX);
        survives(u64::MAX);
        [f32::MIN, -0.0, f32::INFINITY].into_iter().for_each(survives);
        [f64::MIN, f64::EPSILON].into_iter().for_each(survives);
        survives(f16::from_f32(-1.5));
        survives(bf16::from_f32(-1.5));
        survives(Tf32(0.25));
        survives(E4m3(0x81));
        survives(E5m2(0x7f));
        survives(Ue8m0(255));
    }
}
