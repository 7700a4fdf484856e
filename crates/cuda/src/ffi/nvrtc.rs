//! NVRTC, loaded by name. cudarc's bindings know fewer names of the library and panic without it, so these few functions have a table
//! of their own; results are numbers, whatever the version of the library answers.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use crate::error::CudaError;

/// Names a copy of the library to use.
pub(crate) const NVRTC_VARIABLE: &str = "TILEWRIGHT_NVRTC";

type Program = *mut c_void;

/// The functions; the library stays loaded to the end of the process.
#[derive(Debug)]
pub(crate) struct Table {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> u32,
    error_string: unsafe extern "C" fn(u32) -> *const c_char,
    create: unsafe extern "C" fn(
        *mut Program,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> u32,
    destroy: unsafe extern "C" fn(*mut Program) -> u32,
    add_name: unsafe extern "C" fn(Program, *const c_char) -> u32,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> u32,
    log_size: unsafe extern "C" fn(Program, *mut usize) -> u32,
    log: unsafe extern "C" fn(Program, *mut c_char) -> u32,
    ptx_size: unsafe extern "C" fn(Program, *mut usize) -> u32,
    ptx: unsafe extern "C" fn(Program, *mut c_char) -> u32,
    lowered: unsafe extern "C" fn(Program, *const c_char, *mut *const c_char) -> u32,
}

/// Everything that goes into a compilation, ready for C.
pub(crate) struct Input<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) options: &'a [String],
    pub(crate) names: &'a [&'a str],
}

/// What comes out of it.
pub(crate) struct Output {
    pub(crate) ptx: String,
    pub(crate) log: String,
    /// For each of the names, the one in the PTX.
    pub(crate) lowered: Vec<String>,
}

/// The library, if it is there.
pub(crate) fn table() -> Result<&'static Table, CudaError> {
    static TABLE: OnceLock<Result<Table, CudaError>> = OnceLock::new();
    TABLE.get_or_init(find).as_ref().map_err(Clone::clone)
}

/// Where the library may be: where the user says, where the loader looks, where toolkits are.
fn candidates() -> Vec<OsString> {
    if let Some(named) = std::env::var_os(NVRTC_VARIABLE) {
        return vec![named];
    }
    let names: &[&str] = if cfg!(windows) {
        &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
    } else {
        &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
    };
    let toolkits = ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let folders: Vec<PathBuf> = toolkits.chain([PathBuf::from("/usr/local/cuda")]).collect();
    let in_folders = folders.iter().flat_map(|folder| {
        ["lib64", "bin"]
            .into_iter()
            .flat_map(move |sub| names.iter().map(move |name| folder.join(sub).join(name).into()))
    });
    names.iter().map(OsString::from).chain(in_folders).collect()
}

fn find() -> Result<Table, CudaError> {
    let tried = candidates();
    for name in &tried {
        // SAFETY: NVRTC's initialisers are trusted, as every program that links with it trusts them.
        if let Ok(library) = unsafe { Library::new(name) } {
            load_builtins(Path::new(name));
            return read(library);
        }
    }
    let tried = tried.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    Err(CudaError::NoNvrtc { tried })
}

/// NVRTC opens a second library by its bare name. Where the first is in a folder that the loader does not look into, the second is found
/// only if it is loaded already.
fn load_builtins(nvrtc: &Path) {
    let Some(entries) = nvrtc.parent().and_then(|folder| folder.read_dir().ok()) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with("libnvrtc-builtins.so") {
            // SAFETY: as for NVRTC itself.
            if let Ok(library) = unsafe { Library::new(entry.path()) } {
                std::mem::forget(library);
            }
        }
    }
}

fn read(library: Library) -> Result<Table, CudaError> {
    /// A function by its name.
    fn get<T: Copy>(library: &Library, symbol: &'static str) -> Result<T, CudaError> {
        // SAFETY: the types in `Table` are those of NVRTC's header, the same in all versions since 11.
        let found = unsafe { library.get::<T>(symbol.as_bytes()) };
        found.map(|function| *function).map_err(|_| CudaError::MissingSymbol { symbol })
    }
    let table = Table {
        version: get(&library, "nvrtcVersion")?,
        error_string: get(&library, "nvrtcGetErrorString")?,
        create: get(&library, "nvrtcCreateProgram")?,
        destroy: get(&library, "nvrtcDestroyProgram")?,
        add_name: get(&library, "nvrtcAddNameExpression")?,
        compile: get(&library, "nvrtcCompileProgram")?,
        log_size: get(&library, "nvrtcGetProgramLogSize")?,
        log: get(&library, "nvrtcGetProgramLog")?,
        ptx_size: get(&library, "nvrtcGetPTXSize")?,
        ptx: get(&library, "nvrtcGetPTX")?,
        lowered: get(&library, "nvrtcGetLoweredName")?,
    };
    // The functions must stay where they are.
    std::mem::forget(library);
    Ok(table)
}

impl Table {
    fn check(&self, call: &'static str, code: u32) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: takes any number, answers with a static text.
        let text = unsafe { (self.error_string)(code) };
        let text = if text.is_null() {
            "unknown error".to_owned()
        } else {
            // SAFETY: as above; it ends with 0.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        Err(CudaError::Nvrtc { call, code, text, log: String::new() })
    }

    /// Major and minor.
    pub(crate) fn version(&self) -> Result<(u32, u32), CudaError> {
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: the pointers are valid for the call.
        self.check("nvrtcVersion", unsafe { (self.version)(&raw mut major, &raw mut minor) })?;
        Ok((major.unsigned_abs(), minor.unsigned_abs()))
    }

    pub(crate) fn compile(&self, input: &Input<'_>) -> Result<Output, CudaError> {
        let text = c_text("the text of the program", input.text)?;
        let name = c_text("the name of the program", input.name)?;
        let c_texts = |what: &'static str, texts: &mut dyn Iterator<Item = &str>| {
            texts.map(|text| c_text(what, text)).collect::<Result<Vec<CString>, CudaError>>()
        };
        let header_names = c_texts("the name of a header", &mut input.headers.iter().map(|header| header.0))?;
        let header_texts = c_texts("the text of a header", &mut input.headers.iter().map(|header| header.1))?;
        let options = c_texts("an option", &mut input.options.iter().map(String::as_str))?;
        let names = c_texts("the name of a kernel", &mut input.names.iter().copied())?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let count = |texts: &[CString]| c_int::try_from(texts.len()).unwrap_or(c_int::MAX);
        let mut program: Program = ptr::null_mut();
        // SAFETY: as many texts as we say, all of them alive during the call.
        self.check("nvrtcCreateProgram", unsafe {
            (self.create)(
                &raw mut program,
                text.as_ptr(),
                name.as_ptr(),
                count(&header_texts),
                pointers(&header_texts).as_ptr(),
                pointers(&header_names).as_ptr(),
            )
        })?;
        let compiled = (|| {
            for name in &names {
                // SAFETY: the program lives.
                self.check("nvrtcAddNameExpression", unsafe { (self.add_name)(program, name.as_ptr()) })?;
            }
            // SAFETY: as many options as we say.
            let done = unsafe { (self.compile)(program, count(&options), pointers(&options).as_ptr()) };
            let log = self.text(program, "nvrtcGetProgramLog", self.log_size, self.log).unwrap_or_default();
            if let Err(CudaError::Nvrtc { call, code, text, .. }) = self.check("nvrtcCompileProgram", done) {
                return Err(CudaError::Nvrtc { call, code, text, log });
            }
            let ptx = self.text(program, "nvrtcGetPTX", self.ptx_size, self.ptx)?;
            let lowered =
                names.iter().map(|name| self.lowered_name(program, name)).collect::<Result<_, _>>()?;
            Ok(Output { ptx, log, lowered })
        })();
        // SAFETY: created once, destroyed once.
        let _ = unsafe { (self.destroy)(&raw mut program) };
        compiled
    }

    /// A text that the program has, by the functions for its size and for itself.
    fn text(
        &self,
        program: Program,
        call: &'static str,
        size: unsafe extern "C" fn(Program, *mut usize) -> u32,
        get: unsafe extern "C" fn(Program, *mut c_char) -> u32,
    ) -> Result<String, CudaError> {
        let mut bytes = 0;
        // SAFETY: the program lives, the pointer is valid for the call.
        self.check(call, unsafe { size(program, &raw mut bytes) })?;
        let mut text = vec![0u8; bytes];
        // SAFETY: there is as much room as the library asked for.
        self.check(call, unsafe { get(program, text.as_mut_ptr().cast::<c_char>()) })?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    fn lowered_name(&self, program: Program, name: &CStr) -> Result<String, CudaError> {
        let mut lowered = ptr::null();
        // SAFETY: the program lives, the pointer is valid for the call.
        self.check("nvrtcGetLoweredName", unsafe {
            (self.lowered)(program, name.as_ptr(), &raw mut lowered)
        })?;
        // SAFETY: the program's text, which ends with 0.
        Ok(unsafe { CStr::from_ptr(lowered) }.to_string_lossy().into_owned())
    }
}

fn c_text(what: &'static str, text: &str) -> Result<CString, CudaError> {
    CString::new(text).map_err(|_| CudaError::Code {
        what,
        found: "a zero byte inside of it".to_owned(),
        expected: "text without",
    })
}
