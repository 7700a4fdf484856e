//! The structures of DLPack as they are in memory, and their way from and to owned descriptions.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::ptr;

use bytemuck::Pod;
use half::{bf16, f16};

use crate::error::CudaError;

/// The version of the structures; the minor number only says which codes there can be.
const VERSION: [u32; 2] = [1, 1];

/// Bit of the flags of a tensor that must not be written.
const READ_ONLY: u64 = 1;

/// Kind of device: the host.
const HOST: i32 = 1;
/// Kind of device: a CUDA device.
pub(super) const CUDA: i32 = 2;
/// Kind of device: managed memory.
pub(super) const CUDA_MANAGED: i32 = 13;

/// What an element is: DLPack's `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataType {
    /// The family: integers, floats and so on.
    pub code: u8,
    /// Bits of a lane.
    pub bits: u8,
    /// Lanes of a vector; 1 for numbers.
    pub lanes: u16,
}

/// The families that have a name here. The source of their numbers is `DLDataTypeCode` of `dlpack.h`, version 1.1.
const CODES: [(u8, &str); 13] = [
    (0, "int"),
    (1, "uint"),
    (2, "float"),
    (4, "bfloat"),
    (5, "complex"),
    (6, "bool"),
    (7, "float8_e3m4_"),
    (8, "float8_e4m3_"),
    (10, "float8_e4m3fn_"),
    (12, "float8_e5m2_"),
    (14, "float8_e8m0fnu_"),
    (15, "float6_e2m3fn_"),
    (17, "float4_e2m1fn_"),
];

impl DataType {
    /// Truth values, one byte each.
    pub const BOOL: DataType = DataType::number(6, 8);
    /// 8-bit floats with 4 bits of exponent, without infinities: e4m3 of the tensor cores.
    pub const FLOAT8_E4M3FN: DataType = DataType::number(10, 8);
    /// 8-bit floats with 5 bits of exponent: e5m2 of the tensor cores.
    pub const FLOAT8_E5M2: DataType = DataType::number(12, 8);
    /// 8-bit powers of two: the scales of block-scaled types.
    pub const FLOAT8_E8M0FNU: DataType = DataType::number(14, 8);

    const fn number(code: u8, bits: u8) -> DataType {
        DataType { code, bits, lanes: 1 }
    }

    /// Bytes of an element, where it has whole bytes and one lane.
    pub(super) fn bytes(self) -> Option<usize> {
        (self.lanes == 1 && self.bits > 0 && self.bits.is_multiple_of(8))
            .then_some(usize::from(self.bits) / 8)
    }

    /// Whether elements can be seen as this Rust type: the same, or bytes for what Rust has no type for.
    pub(super) fn can_be(self, rust: DataType) -> bool {
        let one_byte = self.lanes == 1 && self.bits == 8 && matches!(self.code, 6..=14);
        self == rust || one_byte && rust == u8::DATA_TYPE
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODES.iter().find(|(code, _)| *code == self.code) {
            Some((_, name)) => write!(f, "{name}{}", self.bits)?,
            None => write!(f, "code {} of {} bits", self.code, self.bits)?,
        }
        if self.lanes == 1 { Ok(()) } else { write!(f, "x{}", self.lanes) }
    }
}

/// A Rust type that DLPack has a name for. 8-bit floats and truth values, which any byte is not, are exchanged as `u8`.
pub trait Element: Pod {
    /// What DLPack calls it.
    const DATA_TYPE: DataType;
}

macro_rules! elements {
    ($($ty:ty: $code:literal),* $(,)?) => {$(
        impl Element for $ty {
            const DATA_TYPE: DataType = DataType::number($code, {
                #[allow(clippy::cast_possible_truncation, reason = "at most 64")]
                let bits = 8 * size_of::<$ty>() as u8;
                bits
            });
        }
    )*};
}

elements! {
    i8: 0, i16: 0, i32: 0, i64: 0, u8: 1, u16: 1, u32: 1, u64: 1, f16: 2, f32: 2, f64: 2, bf16: 4,
}

/// Where memory is: DLPack's `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawDevice {
    /// Kind of device.
    pub kind: i32,
    /// Its number.
    pub id: i32,
}

impl fmt::Display for RawDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            HOST => write!(f, "memory of the host"),
            CUDA => write!(f, "CUDA device {}", self.id),
            3 => write!(f, "page-locked memory of the host"),
            CUDA_MANAGED => write!(f, "managed memory"),
            kind => write!(f, "device {} of kind {kind}", self.id),
        }
    }
}

/// DLPack's `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub struct RawTensor {
    /// The memory.
    pub data: *mut c_void,
    /// Where it is.
    pub device: RawDevice,
    /// Dimensions.
    pub dimensions: i32,
    /// What the elements are.
    pub data_type: DataType,
    /// Extents.
    pub shape: *mut i64,
    /// Elements from one to the next along each dimension; null for a dense tensor, the last dimension innermost.
    pub strides: *mut i64,
    /// Bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// DLPack's `DLManagedTensor`: the form before version 1.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensor {
    /// The tensor.
    pub tensor: RawTensor,
    /// Who it belongs to.
    pub manager: *mut c_void,
    /// Lets go of it.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// DLPack's `DLManagedTensorVersioned`: the form since version 1.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedTensorVersioned {
    /// Major and minor version.
    pub version: [u32; 2],
    /// Who it belongs to.
    pub manager: *mut c_void,
    /// Lets go of it.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    /// Bit 0: it must not be written.
    pub flags: u64,
    /// The tensor.
    pub tensor: RawTensor,
}

/// A tensor in words of our own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Description {
    pub(super) address: u64,
    pub(super) device: RawDevice,
    pub(super) data_type: DataType,
    pub(super) shape: Vec<usize>,
    /// In elements.
    pub(super) strides: Vec<usize>,
    pub(super) read_only: bool,
}

impl Description {
    /// Bytes from the first element to the end of the last; also that this, and the number of elements, are numbers.
    pub(super) fn bytes(&self) -> Option<usize> {
        let element = self.data_type.bytes()?;
        self.shape.iter().try_fold(element, |bytes, extent| bytes.checked_mul(*extent))?;
        if self.shape.contains(&0) {
            return Some(0);
        }
        let last =
            self.shape.iter().zip(&self.strides).try_fold(0usize, |at, (extent, stride)| {
                at.checked_add((extent - 1).checked_mul(*stride)?)
            })?;
        last.checked_add(1)?.checked_mul(element).filter(|bytes| *bytes <= isize::MAX as usize)
    }

    /// Whether elements lie one after another, the last dimension innermost.
    pub(super) fn is_dense(&self) -> bool {
        let dense = dense(&self.shape);
        self.shape.contains(&0)
            || (0..self.shape.len())
                .all(|n| self.shape[n] == 1 || Some(self.strides[n]) == dense.get(n).copied())
    }
}

/// Strides without gaps, the last dimension innermost.
pub(super) fn dense(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for n in (0..shape.len().saturating_sub(1)).rev() {
        strides[n] = strides[n + 1].saturating_mul(shape[n + 1]);
    }
    strides
}

/// What both forms have in common.
#[allow(unsafe_code)]
pub(super) trait Form: Sized + 'static {
    /// Makes one whose deleter frees the holder that `manager` will point to.
    fn make(tensor: RawTensor, read_only: bool) -> Self;
    /// Sets the fields that point into the holder.
    ///
    /// # Safety
    /// The pointer is valid, and nobody else uses it.
    unsafe fn point(this: *mut Self, manager: *mut c_void, shape: *mut i64, strides: *mut i64);
    /// # Safety
    /// What a producer made, of which only the fields that never change are looked at before the version is known to be ours.
    unsafe fn open(this: *const Self) -> Result<(*const RawTensor, bool), CudaError>;
    /// # Safety
    /// As for `open`; called once.
    unsafe fn delete(this: *mut Self);
}

#[allow(unsafe_code)]
impl Form for ManagedTensor {
    fn make(tensor: RawTensor, _read_only: bool) -> ManagedTensor {
        unsafe extern "C" fn deleter(this: *mut ManagedTensor) {
            // SAFETY: DLPack calls once, with what was handed out.
            unsafe { let_go(this, |this| this.manager) }
        }
        ManagedTensor { tensor, manager: ptr::null_mut(), deleter: Some(deleter) }
    }

    unsafe fn point(this: *mut ManagedTensor, manager: *mut c_void, shape: *mut i64, strides: *mut i64) {
        // SAFETY: the caller's.
        unsafe {
            (*this).manager = manager;
            (*this).tensor.shape = shape;
            (*this).tensor.strides = strides;
        }
    }

    unsafe fn open(this: *const ManagedTensor) -> Result<(*const RawTensor, bool), CudaError> {
        // SAFETY: the caller's.
        Ok((unsafe { &raw const (*this).tensor }, false))
    }

    unsafe fn delete(this: *mut ManagedTensor) {
        // SAFETY: the caller's.
        if let Some(deleter) = unsafe { (*this).deleter } {
            // SAFETY: the caller's.
            unsafe { deleter(this) }
        }
    }
}

#[allow(unsafe_code)]
impl Form for ManagedTensorVersioned {
    fn make(tensor: RawTensor, read_only: bool) -> ManagedTensorVersioned {
        unsafe extern "C" fn deleter(this: *mut ManagedTensorVersioned) {
            // SAFETY: DLPack calls once, with what was handed out.
            unsafe { let_go(this, |this| this.manager) }
        }
        let flags = if read_only { READ_ONLY } else { 0 };
        let manager = ptr::null_mut();
        ManagedTensorVersioned { version: VERSION, manager, deleter: Some(deleter), flags, tensor }
    }

    unsafe fn point(
        this: *mut ManagedTensorVersioned,
        manager: *mut c_void,
        shape: *mut i64,
        strides: *mut i64,
    ) {
        // SAFETY: the caller's.
        unsafe {
            (*this).manager = manager;
            (*this).tensor.shape = shape;
            (*this).tensor.strides = strides;
        }
    }

    unsafe fn open(this: *const ManagedTensorVersioned) -> Result<(*const RawTensor, bool), CudaError> {
        // SAFETY: the caller's; the version is the first field in all of them.
        let [major, minor] = unsafe { (*this).version };
        if major != VERSION[0] {
            return Err(refused(
                "the version of a tensor",
                format!("{major}.{minor}"),
                format!("{}.x", VERSION[0]),
            ));
        }
        // SAFETY: the caller's, and the version is ours.
        Ok(unsafe { (&raw const (*this).tensor, (*this).flags & READ_ONLY != 0) })
    }

    unsafe fn delete(this: *mut ManagedTensorVersioned) {
        // SAFETY: the caller's; the deleter is where it is in all versions.
        if let Some(deleter) = unsafe { (*this).deleter } {
            // SAFETY: the caller's.
            unsafe { deleter(this) }
        }
    }
}

/// What a tensor that we hand out points to.
struct Holder<F> {
    form: F,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Dropped when the consumer lets go.
    owner: Box<dyn Any + Send>,
}

/// Frees a holder.
///
/// # Safety
/// `form` is what [`hand_out`] returned, for the first time.
#[allow(unsafe_code)]
unsafe fn let_go<F>(form: *mut F, manager: impl FnOnce(&F) -> *mut c_void) {
    if form.is_null() {
        return;
    }
    // SAFETY: the caller's: a holder with this form in it, made by `Box::into_raw`.
    let holder = unsafe { Box::from_raw(manager(&*form).cast::<Holder<F>>()) };
    drop(holder.owner);
}

/// Makes a tensor for a consumer, who must call its deleter.
#[allow(unsafe_code)]
pub(super) fn hand_out<F: Form>(
    description: &Description,
    owner: Box<dyn Any + Send>,
) -> Result<*mut F, CudaError> {
    let number = |value: &usize| i64::try_from(*value);
    let numbers = |values: &[usize]| values.iter().map(number).collect::<Result<Vec<i64>, _>>();
    let count = i32::try_from(description.shape.len());
    let (Ok(shape), Ok(strides), Ok(dimensions)) =
        (numbers(&description.shape), numbers(&description.strides), count)
    else {
        return Err(refused(
            "the shape of a tensor",
            format!("{:?}", description.shape),
            "64-bit numbers".to_owned(),
        ));
    };
    let tensor = RawTensor {
        data: ptr::without_provenance_mut(usize::try_from(description.address).unwrap_or(0)),
        device: description.device,
        dimensions,
        data_type: description.data_type,
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let form = F::make(tensor, description.read_only);
    let holder = Box::into_raw(Box::new(Holder { form, shape, strides, owner }));
    // SAFETY: the holder was just made, and nobody else has it; its arrays stay where they are when it moves.
    unsafe {
        let (shape, strides) = ((*holder).shape.as_mut_ptr(), (*holder).strides.as_mut_ptr());
        let form = &raw mut (*holder).form;
        F::point(form, holder.cast::<c_void>(), shape, strides);
        Ok(form)
    }
}

/// A tensor that was taken over from a producer; let go on drop.
pub(super) struct Taken<F: Form>(*mut F);

// SAFETY: who takes a tensor over vouches that it may be let go on any thread; nothing else is done with it.
#[allow(unsafe_code)]
unsafe impl<F: Form> Send for Taken<F> {}
// SAFETY: as above.
#[allow(unsafe_code)]
unsafe impl<F: Form> Sync for Taken<F> {}

impl<F: Form> Drop for Taken<F> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: taken over once, let go once.
        unsafe { F::delete(self.0) }
    }
}

/// Takes a tensor over from a producer. In case of an error it has been let go.
///
/// # Safety
/// What a producer made, handed over here, and that may be let go on any thread.
#[allow(unsafe_code)]
pub(super) unsafe fn take<F: Form>(raw: *mut F) -> Result<(Description, Taken<F>), CudaError> {
    if raw.is_null() {
        return Err(refused("a tensor", "a null pointer".to_owned(), "a tensor".to_owned()));
    }
    let taken = Taken(raw);
    // SAFETY: the caller's.
    let (tensor, read_only) = unsafe { F::open(raw) }?;
    // SAFETY: the caller's.
    let description = unsafe { describe(&*tensor, read_only) }?;
    Ok((description, taken))
}

/// # Safety
/// What a producer made: `shape` and `strides` (or null) point to as many numbers as there are dimensions.
#[allow(unsafe_code)]
unsafe fn describe(tensor: &RawTensor, read_only: bool) -> Result<Description, CudaError> {
    let wrong = |what, found: String, expected: &str| refused(what, found, expected.to_owned());
    let Ok(dimensions) = usize::try_from(tensor.dimensions) else {
        return Err(wrong("the dimensions of a tensor", tensor.dimensions.to_string(), "0 or more"));
    };
    let numbers = |what, first: *const i64| {
        let values = if dimensions == 0 || first.is_null() {
            &[][..]
        } else {
            // SAFETY: the caller's.
            unsafe { std::slice::from_raw_parts(first, dimensions) }
        };
        let numbers: Result<Vec<usize>, _> = values.iter().map(|value| usize::try_from(*value)).collect();
        numbers.map_err(|_| wrong(what, format!("{values:?}"), "numbers of 0 or more"))
    };
    if dimensions > 0 && tensor.shape.is_null() {
        return Err(wrong("the shape of a tensor", "a null pointer".to_owned(), "its extents"));
    }
    if tensor.data_type.bytes().is_none() {
        let found = tensor.data_type.to_string();
        return Err(wrong("the elements of a tensor", found, "one lane of whole bytes"));
    }
    let shape = numbers("the shape of a tensor", tensor.shape)?;
    let strides = match tensor.strides.is_null() {
        true => dense(&shape),
        false => numbers("the strides of a tensor", tensor.strides)?,
    };
    let address = (tensor.data.addr() as u64).checked_add(tensor.byte_offset);
    let (device, data_type) = (tensor.device, tensor.data_type);
    let description =
        Description { address: address.unwrap_or(0), device, data_type, shape, strides, read_only };
    if address.is_none() || description.bytes().is_none() {
        let found = format!("{:?} by {:?}", description.shape, description.strides);
        return Err(wrong("the shape of a tensor", found, "one that memory has room for"));
    }
    Ok(description)
}

pub(super) fn refused(what: &'static str, found: String, expected: String) -> CudaError {
    CudaError::Handover { what, found, expected }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn description() -> Description {
        Description {
            address: 0x7000,
            device: RawDevice { kind: CUDA, id: 0 },
            data_type: f32::DATA_TYPE,
            shape: vec![2, 3],
            strides: vec![3, 1],
            read_only: true,
        }
    }

    /// Hands a tensor out, changes it, and takes it back; counts how often it was let go.
    #[allow(unsafe_code)]
    fn around<F: Form>(change: impl FnOnce(&mut F)) -> (Result<Description, CudaError>, usize) {
        let gone = Arc::new(AtomicUsize::new(0));
        let raw = hand_out::<F>(&description(), Box::new(Counted(gone.clone()))).unwrap();
        // SAFETY: just made.
        let taken = unsafe {
            change(&mut *raw);
            take(raw)
        };
        let taken = taken.map(|(description, taken)| {
            assert_eq!(gone.load(Ordering::SeqCst), 0);
            drop(taken);
            description
        });
        (taken, gone.load(Ordering::SeqCst))
    }

    #[test]
    fn sizes_are_those_of_the_header() {
        // On the 64-bit machines that CUDA runs on.
        assert_eq!(size_of::<RawTensor>(), 48);
        assert_eq!(size_of::<ManagedTensor>(), 64);
        assert_eq!(size_of::<ManagedTensorVersioned>(), 80);
        assert_eq!(std::mem::offset_of!(ManagedTensorVersioned, flags), 24);
        assert_eq!(std::mem::offset_of!(RawTensor, byte_offset), 40);
    }

    #[test]
    fn both_forms_go_around_and_are_let_go_once() {
        assert_eq!(around::<ManagedTensorVersioned>(|_| {}), (Ok(description()), 1));
        // The old form cannot say that it is read-only.
        assert_eq!(
            around::<ManagedTensor>(|_| {}),
            (Ok(Description { read_only: false, ..description() }), 1)
        );
    }

    #[test]
    fn without_strides_it_is_dense_and_offsets_count() {
        let (taken, _) = around::<ManagedTensor>(|managed| {
            managed.tensor.strides = ptr::null_mut();
            managed.tensor.byte_offset = 256;
        });
        assert_eq!(taken.unwrap().address, 0x7100);
        let (taken, _) = around::<ManagedTensor>(|managed| managed.tensor.dimensions = 0);
        assert_eq!(taken.unwrap().bytes(), Some(4));
    }

    #[test]
    fn what_is_refused_is_let_go() {
        let says = |(taken, gone): (Result<Description, CudaError>, usize), text: &str| {
            let message = taken.unwrap_err().to_string();
            assert!(message.contains(text), "{message}");
            assert_eq!(gone, 1);
        };
        says(around::<ManagedTensorVersioned>(|managed| managed.version = [2, 0]), "found 2.0, expected 1.x");
        says(around::<ManagedTensor>(|managed| managed.tensor.dimensions = -1), "found -1");
        says(around::<ManagedTensor>(|managed| managed.tensor.data_type.lanes = 4), "found float32x4");
        says(
            around::<ManagedTensor>(|managed| managed.tensor.data_type = DataType::number(17, 4)),
            "found float4_e2m1fn_4",
        );
        says(around::<ManagedTensor>(|managed| managed.tensor.shape = ptr::null_mut()), "a null pointer");
        let mut numbers = [-1i64, 1];
        let first = numbers.as_mut_ptr();
        says(around::<ManagedTensor>(|managed| managed.tensor.strides = first), "[-1, 1]");
        let mut large = [i64::MAX, i64::MAX];
        let first = large.as_mut_ptr();
        says(around::<ManagedTensor>(|managed| managed.tensor.shape = first), "room for");
    }

    #[test]
    fn bytes_reach_to_the_last_element() {
        let with = |shape: &[usize], strides: &[usize]| Description {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            ..description()
        };
        assert_eq!(with(&[2, 3], &[10, 1]).bytes(), Some(4 * 13));
        assert_eq!(with(&[2, 0], &[10, 1]).bytes(), Some(0));
        assert_eq!(with(&[5], &[0]).bytes(), Some(4));
        assert_eq!(with(&[usize::MAX, 2], &[1, 1]).bytes(), None);
        assert!(with(&[2, 1, 3], &[3, 77, 1]).is_dense());
        assert!(with(&[0, 9], &[1, 1]).is_dense());
        assert!(!with(&[2, 3], &[1, 2]).is_dense());
        assert!(with(&[], &[]).is_dense());
    }

    #[test]
    fn types_have_their_names_and_bytes_stand_for_what_rust_has_not() {
        assert_eq!(f16::DATA_TYPE.to_string(), "float16");
        assert_eq!(bf16::DATA_TYPE, DataType { code: 4, bits: 16, lanes: 1 });
        assert_eq!(u64::DATA_TYPE.to_string(), "uint64");
        assert_eq!(DataType::FLOAT8_E4M3FN.to_string(), "float8_e4m3fn_8");
        assert!(DataType::FLOAT8_E5M2.can_be(u8::DATA_TYPE) && DataType::BOOL.can_be(u8::DATA_TYPE));
        assert!(!i8::DATA_TYPE.can_be(u8::DATA_TYPE) && !f16::DATA_TYPE.can_be(bf16::DATA_TYPE));
    }
}
