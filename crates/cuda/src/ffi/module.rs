//! Modules, functions, and the driver's linker.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use super::context::Context;
use super::{Shared, call, sys};
use crate::error::CudaError;

/// Loaded code, unloaded on drop.
#[derive(Debug)]
pub(crate) struct Module {
    context: Arc<Context>,
    raw: Shared<sys::CUmodule>,
}

/// A kernel of a module; valid as long as the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(pub(super) Shared<sys::CUfunction>);

impl Module {
    /// Loads a cubin, or PTX that ends with a 0.
    ///
    /// # Safety
    /// The image is what a compiler made: the driver does not check a cubin. Code is trusted from here on.
    pub(crate) unsafe fn load(context: Arc<Context>, image: &[u8]) -> Result<Module, CudaError> {
        context.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointers are valid for the call; the image is the caller's responsibility.
        unsafe { call!(cuModuleLoadData(&raw mut raw, image.as_ptr().cast::<c_void>())) }?;
        Ok(Module { context, raw: Shared(raw) })
    }

    pub(crate) fn function(&self, name: &str) -> Result<Function, CudaError> {
        self.context.bind()?;
        let name = CString::new(name)
            .map_err(|_| CudaError::NoKernel { name: name.to_owned(), known: Vec::new() })?;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointers are valid for the call.
        unsafe { call!(cuModuleGetFunction(&raw mut raw, self.raw.0, name.as_ptr())) }?;
        Ok(Function(Shared(raw)))
    }

    /// The names of all kernels; needs CUDA 12.4.
    pub(crate) fn functions(&self) -> Result<Vec<String>, CudaError> {
        self.context.bind()?;
        let mut count = 0;
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuModuleGetFunctionCount(&raw mut count, self.raw.0)) }?;
        let mut functions = vec![ptr::null_mut(); count as usize];
        // SAFETY: there is room for as many as we say.
        unsafe { call!(cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, self.raw.0)) }?;
        functions.into_iter().map(|raw| Function(Shared(raw)).name()).collect()
    }

    /// Address and size of a global variable.
    pub(crate) fn global(&self, name: &CStr) -> Result<(u64, usize), CudaError> {
        self.context.bind()?;
        let (mut address, mut bytes) = (0, 0);
        // SAFETY: the pointers are valid for the call.
        unsafe { call!(cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, self.raw.0, name.as_ptr())) }?;
        Ok((address, bytes))
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.unload(self.raw);
    }
}

impl Function {
    pub(crate) fn raw(self) -> sys::CUfunction {
        self.0.0
    }

    fn name(self) -> Result<String, CudaError> {
        let mut name: *const c_char = ptr::null();
        // SAFETY: the pointer is valid for the call.
        unsafe { call!(cuFuncGetName(&raw mut name, self.0.0)) }?;
        // SAFETY: the driver's text, which lives as long as the module and ends with 0.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// A number that the driver knows of the kernel.
    pub(crate) fn attribute(
        self,
        context: &Context,
        attribute: sys::CUfunction_attribute,
    ) -> Result<i32, CudaError> {
        context.bind()?;
        let mut value: c_int = 0;
        // SAFETY: the pointer is valid for the call; the module lives, or the caller would not have the function.
        unsafe { call!(cuFuncGetAttribute(&raw mut value, attribute, self.0.0)) }?;
        Ok(value)
    }

    pub(crate) fn set_attribute(
        self,
        context: &Context,
        attribute: sys::CUfunction_attribute,
        value: i32,
    ) -> Result<(), CudaError> {
        context.bind()?;
        // SAFETY: as above; the driver checks the value.
        unsafe { call!(cuFuncSetAttribute(self.0.0, attribute, value)) }
    }

    /// Offsets and sizes of the parameters; needs CUDA 12.4.
    pub(crate) fn parameters(self, context: &Context) -> Result<Vec<(usize, usize)>, CudaError> {
        context.bind()?;
        let mut found = Vec::new();
        loop {
            let (mut offset, mut bytes) = (0, 0);
            // SAFETY: the pointers are valid for the call; the driver answers 1 for a number past the last.
            match unsafe { call!(cuFuncGetParamInfo(self.0.0, found.len(), &raw mut offset, &raw mut bytes)) }
            {
                Ok(()) => found.push((offset, bytes)),
                Err(CudaError::Call { code: 1, .. }) => return Ok(found),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the driver's compiler is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LinkOptions {
    pub(crate) max_registers: Option<u32>,
    pub(crate) optimisation: Option<u32>,
    pub(crate) line_info: bool,
    pub(crate) debug: bool,
}

/// The options and the log of a compilation, as the driver takes them: numbers by value, disguised as pointers.
struct Wishes {
    log: Vec<u8>,
    keys: Vec<sys::CUjit_option>,
    values: Vec<*mut c_void>,
}

impl Wishes {
    fn new(options: &LinkOptions) -> Wishes {
        use sys::CUjit_option_enum as Opt;
        const LOG: u32 = 16 << 10;
        fn number(value: u32) -> *mut c_void {
            ptr::without_provenance_mut(value as usize)
        }
        let mut log = vec![0u8; LOG as usize];
        let mut keys = vec![Opt::CU_JIT_ERROR_LOG_BUFFER, Opt::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        let mut values = vec![log.as_mut_ptr().cast::<c_void>(), number(LOG)];
        let settings = [
            (Opt::CU_JIT_MAX_REGISTERS, options.max_registers),
            (Opt::CU_JIT_OPTIMIZATION_LEVEL, options.optimisation),
            (Opt::CU_JIT_GENERATE_LINE_INFO, options.line_info.then_some(1)),
            (Opt::CU_JIT_GENERATE_DEBUG_INFO, options.debug.then_some(1)),
        ];
        for (key, value) in settings {
            if let Some(value) = value {
                keys.push(key);
                values.push(number(value));
            }
        }
        Wishes { log, keys, values }
    }

    #[allow(clippy::cast_possible_truncation, reason = "a handful")]
    fn count(&self) -> u32 {
        self.keys.len() as u32
    }

    /// What the driver wrote about it.
    fn log(&self) -> String {
        let end = self.log.iter().position(|&byte| byte == 0).unwrap_or(self.log.len());
        String::from_utf8_lossy(&self.log[..end]).trim().to_owned()
    }
}

/// PTX as the driver takes it.
fn text(ptx: &str) -> Result<CString, (CudaError, String)> {
    CString::new(ptx).map_err(|_| {
        let found = "a zero byte inside the text".to_owned();
        (CudaError::Code { what: "PTX", found, expected: "text" }, String::new())
    })
}

/// Compiles PTX and loads it, in one: what it was compiled to stays with the driver. The error is the driver's, with its log.
///
/// # Safety
/// As for [`Module::load`].
pub(crate) unsafe fn compile(
    context: &Arc<Context>,
    ptx: &str,
    options: &LinkOptions,
) -> Result<Module, (CudaError, String)> {
    context.bind().map_err(|error| (error, String::new()))?;
    let text = text(ptx)?;
    let mut wishes = Wishes::new(options);
    let mut raw = ptr::null_mut();
    let (keys, values) = (wishes.keys.as_mut_ptr(), wishes.values.as_mut_ptr());
    let image = text.as_ptr().cast::<c_void>();
    // SAFETY: as many options as we say; the log and the text, which ends with 0, outlive the call. The code is the caller's.
    match unsafe { call!(cuModuleLoadDataEx(&raw mut raw, image, wishes.count(), keys, values)) } {
        Ok(()) => Ok(Module { context: context.clone(), raw: Shared(raw) }),
        Err(error) => Err((error, wishes.log())),
    }
}

/// Compiles PTX to a cubin for the device of the context. The error is the driver's, with its log.
///
/// The linker compiles as for a larger program: addresses of shared memory are known to it only when it links, and it places dynamic shared
/// memory at a multiple of 16 bytes whatever alignment the PTX asks for.
pub(crate) fn link(
    context: &Context,
    ptx: &str,
    options: &LinkOptions,
) -> Result<Vec<u8>, (CudaError, String)> {
    let silent = |error| (error, String::new());
    context.bind().map_err(silent)?;
    let text = text(ptx)?;
    let mut wishes = Wishes::new(options);
    let mut state = ptr::null_mut();
    let (keys, values) = (wishes.keys.as_mut_ptr(), wishes.values.as_mut_ptr());
    // SAFETY: as many options as we say; the log outlives the linker.
    unsafe { call!(cuLinkCreate_v2(wishes.count(), keys, values, &raw mut state)) }.map_err(silent)?;
    let linked = (|| {
        let bytes = text.as_bytes_with_nul();
        let ptx = sys::CUjitInputType_enum::CU_JIT_INPUT_PTX;
        let data = bytes.as_ptr().cast_mut().cast::<c_void>();
        let name = c"kernel.ptx".as_ptr();
        // SAFETY: the driver reads so many bytes, the last of them 0, and does not write.
        unsafe {
            call!(cuLinkAddData_v2(state, ptx, data, bytes.len(), name, 0, ptr::null_mut(), ptr::null_mut()))
        }?;
        let (mut cubin, mut size) = (ptr::null_mut(), 0);
        // SAFETY: the pointers are valid for the call.
        unsafe { call!(cuLinkComplete(state, &raw mut cubin, &raw mut size)) }?;
        // SAFETY: the driver's image, which lives until the linker is destroyed.
        Ok(unsafe { std::slice::from_raw_parts(cubin.cast::<u8>(), size) }.to_vec())
    })();
    // SAFETY: created once, destroyed once.
    let _ = unsafe { call!(cuLinkDestroy(state)) };
    linked.map_err(|error| (error, wishes.log()))
}
