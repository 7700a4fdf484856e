//! Modules. Their variables start as zero, whatever value the PTX gives them.
//!
//! A module must outlive its launches: one that runs after `cuModuleUnload` fails. The documentation of that function
//! promises no wait.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_uint, c_void};

use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUjit_option, CUmodule, CUresult};
use tilewright_ptx::{Item, Space};

use crate::code::Function;
use crate::code::image::{self, Refusal};
use crate::code::link::Log;
use crate::entry::{Driver, Outcome, api, put, put_if_wanted, text};
use crate::memory::Kind;
use crate::state::Owned;

#[derive(Debug)]
pub(crate) struct Module {
    device: usize,
    /// Kernels by name.
    kernels: BTreeMap<String, usize>,
    /// Address and size of every variable.
    variables: BTreeMap<String, (u64, u64)>,
}

impl Owned for Module {
    fn device(&self) -> usize {
        self.device
    }
}

impl Driver {
    fn load(&mut self, texts: &[String]) -> Result<usize, Refusal> {
        let internal = |code| Refusal { code, log: String::new() };
        let device = self.current().map_err(internal)?;
        let parsed = texts.iter().map(|text| image::compile(text)).collect::<Result<Vec<_>, _>>()?;
        let handle = self.handle();
        let mut module = Module { device, kernels: BTreeMap::new(), variables: BTreeMap::new() };
        for ptx in &parsed {
            for item in &ptx.items {
                let Item::Variable(variable) = item else { continue };
                let bytes = variable.bytes().unwrap_or(0);
                if matches!(variable.space, Space::Global | Space::Const) && bytes > 0 {
                    let address = self.allocate(device, bytes, Kind::Variable).map_err(internal)?;
                    module.variables.insert(ptx.names.text(variable.name).into(), (address, bytes));
                }
            }
            for function in Function::of(ptx, device, handle) {
                let kernel = self.handle();
                module.kernels.insert(function.name.clone(), kernel);
                self.functions.insert(kernel, function);
            }
        }
        self.modules.insert(handle, module);
        Ok(handle)
    }

    /// # Safety
    /// As `cuModuleLoadDataEx`.
    unsafe fn load_image(&mut self, image: *const c_void, log: &Log) -> Outcome<usize> {
        if image.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gives an image, and log buffers of the sizes it says.
        unsafe {
            let loaded = image::read(image.cast()).and_then(|texts| self.load(&texts));
            log.write("", loaded.as_ref().err().map_or("", |refusal| &refusal.log));
            loaded.map_err(|refusal| refusal.code)
        }
    }
}

api! {
    Context fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) |driver| {
        let handle = driver.load_image(image, &Log::default())?;
        put(module, handle as CUmodule)
    }

    Context fn cuModuleLoadDataEx(
        module: *mut CUmodule,
        image: *const c_void,
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) |driver| {
        let log = Log::from_options(count, options, values)?;
        let handle = driver.load_image(image, &log)?;
        put(module, handle as CUmodule)
    }

    Release fn cuModuleUnload(module: CUmodule) |driver| {
        let module = driver.modules.remove(module as usize)?;
        for kernel in module.kernels.into_values() {
            driver.functions.remove(kernel)?;
        }
        for (address, _) in module.variables.into_values() {
            driver.release(address);
        }
        Ok(())
    }

    Context fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) |driver| {
        let name = text(name)?;
        let kernel = driver.modules.get(module as usize)?.kernels.get(&name).copied();
        put(function, kernel.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)? as CUfunction)
    }

    Context fn cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) |driver| {
        put(count, driver.modules.get(module as usize)?.kernels.len() as c_uint)
    }

    Context fn cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule) |driver| {
        let kernels = driver.modules.get(module as usize)?.kernels.values();
        for (at, &kernel) in kernels.take(count as usize).enumerate() {
            put(functions.wrapping_add(at), kernel as CUfunction)?;
        }
        Ok(())
    }

    Context fn cuModuleGetGlobal_v2(
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: CUmodule,
        name: *const c_char,
    ) |driver| {
        let name = text(name)?;
        let found = driver.modules.get(module as usize)?.variables.get(&name).copied();
        let (at, size) = found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        put_if_wanted(address, at);
        put_if_wanted(bytes, size as usize);
        Ok(())
    }
}
