//! Every call of cuBLASLt. The types are those of `cublasLt.h`: descriptors are opaque and made by the library, attributes are bytes whose
//! number the library checks, and results are numbers, whatever a version of it answers.
#![allow(unsafe_code, reason = "the C interface of the library")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr;

use crate::code::{LayoutAttribute, MatmulAttribute, PreferenceAttribute, SUCCESS};
use crate::error::CublasError;

type Opaque = *mut c_void;
type Destroy = unsafe extern "C" fn(Opaque) -> u32;
type SetAttribute = unsafe extern "C" fn(Opaque, u32, *const c_void, usize) -> u32;

/// `cublasLtMatmulAlgo_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Algo([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Choice {
    pub(crate) algo: Algo,
    pub(crate) workspace: usize,
    pub(crate) state: u32,
    pub(crate) waves: f32,
    reserved: [c_int; 4],
}

/// What the library knows of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Objects<'a> {
    pub(crate) handle: &'a Owned,
    pub(crate) descriptor: &'a Owned,
    /// Of A, B, C and D.
    pub(crate) layouts: &'a [Owned; 4],
}

/// Addresses of a product; zero where there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) c: u64,
    pub(crate) d: u64,
    pub(crate) workspace: u64,
    pub(crate) workspace_bytes: usize,
}

macro_rules! table {
    ($($field:ident: $symbol:literal, $ty:ty;)*) => {
        /// The functions; the library stays loaded to the end of the process.
        #[derive(Debug)]
        pub(crate) struct Table {
            $($field: $ty,)*
        }

        impl Table {
            fn read(library: &libloading::Library, name: &OsStr) -> Result<Table, CublasError> {
                Ok(Table {
                    $($field: {
                        // SAFETY: the types are those of the header, the same in all versions since 12.
                        let found = unsafe { library.get::<$ty>($symbol.as_bytes()) };
                        *found.map_err(|_| CublasError::MissingSymbol {
                            library: name.to_string_lossy().into_owned(),
                            symbol: $symbol,
                        })?
                    },)*
                })
            }
        }
    };
}

table! {
    version: "cublasLtGetVersion", unsafe extern "C" fn() -> usize;
    status_name: "cublasLtGetStatusName", unsafe extern "C" fn(u32) -> *const c_char;
    create: "cublasLtCreate", unsafe extern "C" fn(*mut Opaque) -> u32;
    destroy: "cublasLtDestroy", Destroy;
    layout_create: "cublasLtMatrixLayoutCreate", unsafe extern "C" fn(*mut Opaque, u32, u64, u64, i64) -> u32;
    layout_destroy: "cublasLtMatrixLayoutDestroy", Destroy;
    layout_set: "cublasLtMatrixLayoutSetAttribute", SetAttribute;
    matmul_create: "cublasLtMatmulDescCreate", unsafe extern "C" fn(*mut Opaque, u32, u32) -> u32;
    matmul_destroy: "cublasLtMatmulDescDestroy", Destroy;
    matmul_set: "cublasLtMatmulDescSetAttribute", SetAttribute;
    preference_create: "cublasLtMatmulPreferenceCreate", unsafe extern "C" fn(*mut Opaque) -> u32;
    preference_destroy: "cublasLtMatmulPreferenceDestroy", Destroy;
    preference_set: "cublasLtMatmulPreferenceSetAttribute", SetAttribute;
    heuristic: "cublasLtMatmulAlgoGetHeuristic", unsafe extern "C" fn(
        Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, Opaque, c_int, *mut Choice, *mut c_int,
    ) -> u32;
    algo_get: "cublasLtMatmulAlgoConfigGetAttribute",
        unsafe extern "C" fn(*const Algo, u32, *mut c_void, usize, *mut usize) -> u32;
    matmul: "cublasLtMatmul", unsafe extern "C" fn(
        Opaque, Opaque, *const c_void, Opaque, Opaque, Opaque, Opaque, *const c_void, Opaque, Opaque, Opaque, Opaque,
        *const Algo, Opaque, usize, Opaque,
    ) -> u32;
}

impl Table {
    /// The library of that name; none if there is no such library.
    pub(crate) fn open(name: &OsStr) -> Option<Result<Table, CublasError>> {
        // SAFETY: the library's initialisers are trusted, as every program that links with it trusts them.
        let library = unsafe { libloading::Library::new(name) }.ok()?;
        let table = Table::read(&library, name);
        // The functions must stay where they are.
        std::mem::forget(library);
        Some(table)
    }

    pub(crate) fn version(&self) -> usize {
        // SAFETY: takes nothing, answers a number.
        unsafe { (self.version)() }
    }

    /// The library's name of a status.
    pub(crate) fn status(&self, code: u32) -> String {
        // SAFETY: takes any number, answers with a static text or nothing.
        let text = unsafe { (self.status_name)(code) };
        if text.is_null() {
            return "unknown status".to_owned();
        }
        // SAFETY: as above; it ends with 0.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn check(&self, call: &'static str, code: u32) -> Result<(), CublasError> {
        match code {
            SUCCESS => Ok(()),
            code => Err(CublasError::Call { call, status: self.status(code), code }),
        }
    }

    /// Makes something of the library's.
    fn make(
        &self,
        call: &'static str,
        destroy: Destroy,
        create: impl FnOnce(*mut Opaque) -> u32,
    ) -> Result<Owned, CublasError> {
        let mut raw = ptr::null_mut();
        self.check(call, create(&raw mut raw))?;
        Ok(Owned { raw, destroy })
    }

    /// A handle for the current context.
    pub(crate) fn handle(&self) -> Result<Owned, CublasError> {
        // SAFETY: the pointer is valid for the call.
        self.make("cublasLtCreate", self.destroy, |raw| unsafe { (self.create)(raw) })
    }

    pub(crate) fn layout(
        &self,
        data_type: u32,
        rows: u64,
        columns: u64,
        leading: i64,
    ) -> Result<Owned, CublasError> {
        // SAFETY: the pointer is valid for the call.
        let create = |raw| unsafe { (self.layout_create)(raw, data_type, rows, columns, leading) };
        self.make("cublasLtMatrixLayoutCreate", self.layout_destroy, create)
    }

    pub(crate) fn set_layout(
        &self,
        layout: &mut Owned,
        attribute: LayoutAttribute,
        value: &[u8],
    ) -> Result<(), CublasError> {
        // SAFETY: the descriptor lives; the library reads as many bytes as we say, and refuses another number.
        let code =
            unsafe { (self.layout_set)(layout.raw, attribute as u32, value.as_ptr().cast(), value.len()) };
        self.check("cublasLtMatrixLayoutSetAttribute", code)
    }

    pub(crate) fn matmul_descriptor(&self, compute: u32, scale: u32) -> Result<Owned, CublasError> {
        // SAFETY: the pointer is valid for the call.
        let create = |raw| unsafe { (self.matmul_create)(raw, compute, scale) };
        self.make("cublasLtMatmulDescCreate", self.matmul_destroy, create)
    }

    pub(crate) fn set_matmul(
        &self,
        descriptor: &mut Owned,
        attribute: MatmulAttribute,
        value: &[u8],
    ) -> Result<(), CublasError> {
        // SAFETY: as for `set_layout`.
        let code = unsafe {
            (self.matmul_set)(descriptor.raw, attribute as u32, value.as_ptr().cast(), value.len())
        };
        self.check("cublasLtMatmulDescSetAttribute", code)
    }

    pub(crate) fn preference(&self) -> Result<Owned, CublasError> {
        // SAFETY: the pointer is valid for the call.
        let create = |raw| unsafe { (self.preference_create)(raw) };
        self.make("cublasLtMatmulPreferenceCreate", self.preference_destroy, create)
    }

    pub(crate) fn set_preference(
        &self,
        preference: &mut Owned,
        attribute: PreferenceAttribute,
        value: &[u8],
    ) -> Result<(), CublasError> {
        // SAFETY: as for `set_layout`.
        let code = unsafe {
            (self.preference_set)(preference.raw, attribute as u32, value.as_ptr().cast(), value.len())
        };
        self.check("cublasLtMatmulPreferenceSetAttribute", code)
    }

    /// At most so many algorithms for the current context, best first by the library's estimate; the status if there is none.
    pub(crate) fn heuristic(
        &self,
        objects: Objects<'_>,
        preference: &Owned,
        most: usize,
    ) -> Result<Vec<Choice>, u32> {
        let mut choices = vec![Choice::default(); most.max(1)];
        let room = c_int::try_from(choices.len()).unwrap_or(c_int::MAX);
        let mut found: c_int = 0;
        let [a, b, c, d] = objects.layouts.each_ref().map(|layout| layout.raw);
        // SAFETY: all descriptors live, and there is room for as many results as we say.
        let code = unsafe {
            (self.heuristic)(
                objects.handle.raw,
                objects.descriptor.raw,
                a,
                b,
                c,
                d,
                preference.raw,
                room,
                choices.as_mut_ptr(),
                &raw mut found,
            )
        };
        if code != SUCCESS {
            return Err(code);
        }
        choices.truncate(usize::try_from(found).unwrap_or(0));
        Ok(choices)
    }

    /// A number of an algorithm's configuration; none if this version of the library does not have it.
    pub(crate) fn configuration(&self, algo: &Algo, attribute: u32, bytes: usize) -> Option<u32> {
        let (mut value, mut written) = ([0u8; 4], 0usize);
        let room = bytes.min(value.len());
        // SAFETY: there is room for as many bytes as we say.
        let code =
            unsafe { (self.algo_get)(algo, attribute, value.as_mut_ptr().cast(), room, &raw mut written) };
        (code == SUCCESS).then(|| u32::from_le_bytes(value))
    }

    /// Enqueues a product.
    ///
    /// # Safety
    /// The addresses lead to memory of the current context that has the extents of the layouts and lives until the work is done, and
    /// `alpha` and `beta` have the type of the descriptor's scale.
    pub(crate) unsafe fn matmul(
        &self,
        objects: Objects<'_>,
        addresses: &Addresses,
        (alpha, beta): (&[u8; 8], &[u8; 8]),
        algo: &Algo,
        stream: *mut c_void,
    ) -> Result<(), CublasError> {
        let at = |address: u64| ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0));
        let [a, b, c, d] = objects.layouts.each_ref().map(|layout| layout.raw);
        // SAFETY: the caller's; alpha and beta are read before the call returns.
        let code = unsafe {
            (self.matmul)(
                objects.handle.raw,
                objects.descriptor.raw,
                alpha.as_ptr().cast(),
                at(addresses.a),
                a,
                at(addresses.b),
                b,
                beta.as_ptr().cast(),
                at(addresses.c),
                c,
                at(addresses.d),
                d,
                algo,
                at(addresses.workspace),
                addresses.workspace_bytes,
                stream,
            )
        };
        self.check("cublasLtMatmul", code)
    }
}

/// Something of the library's, destroyed once.
pub(crate) struct Owned {
    raw: Opaque,
    destroy: Destroy,
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owned({:p})", self.raw)
    }
}

// SAFETY: descriptors are plain memory that belongs to no thread, and the library's handle may be used by several threads at once.
unsafe impl Send for Owned {}
// SAFETY: as above; what changes a descriptor takes it by `&mut`.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}
