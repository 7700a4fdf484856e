//! Kernels and their attributes.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};

use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule, CUresult};
use tilewright_ptx::{Directive, Item, Module, Space, Statement, StatementKind, Variable};

use crate::device::limit;
use crate::entry::{Outcome, api, put, put_if_wanted};
use crate::state::Owned;

/// What every kernel is said to use.
const REGISTERS: i32 = 32;

#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) device: usize,
    pub(crate) module: usize,
    pub(crate) name: String,
    text: CString,
    /// Offset and size of every parameter.
    pub(crate) layout: Vec<(usize, usize)>,
    pub(crate) static_shared: u32,
    pub(crate) max_threads: u32,
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) required_cluster: Option<[u32; 3]>,
    ptx_version: i32,
    settings: BTreeMap<u32, i32>,
}

/// Shared variables among statements, with a size.
fn shared_bytes(statements: &[Statement]) -> u64 {
    let sizes = statements.iter().map(|statement| match &statement.kind {
        StatementKind::Variable(variable) => shared_size(variable),
        StatementKind::Block(inner) => shared_bytes(inner),
        _ => 0,
    });
    sizes.sum()
}

fn shared_size(variable: &Variable) -> u64 {
    if variable.space == Space::Shared { variable.bytes().unwrap_or(0) } else { 0 }
}

impl Function {
    /// The kernels of a module.
    pub(crate) fn of(ptx: &Module, device: usize, module: usize) -> Vec<Function> {
        let outside: u64 =
            ptx.items.iter().map(|item| if let Item::Variable(v) = item { shared_size(v) } else { 0 }).sum();
        let kernels = ptx.items.iter().filter_map(|item| match item {
            Item::Function(function) if function.kind == tilewright_ptx::FunctionKind::Entry => {
                Some(function)
            }
            _ => None,
        });
        kernels
            .filter_map(|kernel| {
                let body = kernel.body.as_ref()?;
                let name = ptx.names.text(kernel.name).to_string();
                let mut at = 0;
                let layout = kernel.params.iter().map(|param| {
                    let size = param.bytes().unwrap_or(0) as usize;
                    let element = (param.ty.bits().div_ceil(8) as usize).max(1);
                    at = usize::next_multiple_of(
                        at,
                        param.align.map_or(element, |align| align.max(1) as usize),
                    );
                    let offset = at;
                    at += size;
                    (offset, size)
                });
                let layout = layout.collect();
                let mut function = Function {
                    device,
                    module,
                    text: CString::new(name.clone()).unwrap_or_default(),
                    name,
                    layout,
                    static_shared: u32::try_from(outside + shared_bytes(body)).unwrap_or(u32::MAX),
                    max_threads: limit::THREADS_PER_BLOCK,
                    required_block: None,
                    required_cluster: None,
                    ptx_version: i32::from(ptx.version.major) * 10 + i32::from(ptx.version.minor),
                    settings: BTreeMap::new(),
                };
                for directive in &kernel.directives {
                    match *directive {
                        Directive::MaxThreads(block) => {
                            function.max_threads = product(block).min(limit::THREADS_PER_BLOCK);
                        }
                        Directive::RequiredThreads(block) => {
                            function.required_block = Some(block);
                            function.max_threads = product(block).min(limit::THREADS_PER_BLOCK);
                        }
                        Directive::RequiredCluster(cluster) => function.required_cluster = Some(cluster),
                        _ => {}
                    }
                }
                Some(function)
            })
            .collect()
    }

    /// Dynamic shared memory that a launch may ask for.
    pub(crate) fn dynamic_limit(&self) -> u32 {
        let set = self
            .settings
            .get(&(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as u32));
        set.map_or(limit::SHARED.saturating_sub(self.static_shared), |&bytes| bytes as u32)
    }

    pub(crate) fn cluster_limit(&self) -> u32 {
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        let allowed = self.settings.get(&(attribute as u32)).is_some_and(|&set| set != 0);
        if allowed { limit::CLUSTER_NON_PORTABLE } else { limit::CLUSTER }
    }

    fn attribute(&self, attribute: CUfunction_attribute) -> Outcome<i32> {
        use CUfunction_attribute::*;
        let cluster = |axis: usize| self.required_cluster.map_or(0, |cluster| cluster[axis] as i32);
        Ok(match attribute {
            CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => self.max_threads as i32,
            CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES => self.static_shared as i32,
            CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES
            | CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
            | CU_FUNC_ATTRIBUTE_CACHE_MODE_CA => 0,
            CU_FUNC_ATTRIBUTE_NUM_REGS => REGISTERS,
            CU_FUNC_ATTRIBUTE_PTX_VERSION => self.ptx_version,
            CU_FUNC_ATTRIBUTE_BINARY_VERSION => (limit::CAPABILITY.0 * 10 + limit::CAPABILITY.1) as i32,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => self.dynamic_limit() as i32,
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
                self.settings.get(&(attribute as u32)).copied().unwrap_or(-1)
            }
            CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET => i32::from(self.required_cluster.is_some()),
            CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => cluster(0),
            CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => cluster(1),
            CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => cluster(2),
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            | CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {
                self.settings.get(&(attribute as u32)).copied().unwrap_or(0)
            }
            CU_FUNC_ATTRIBUTE_MAX => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        })
    }

    fn set(&mut self, attribute: CUfunction_attribute, value: i32) -> Outcome {
        use CUfunction_attribute::*;
        let room = limit::SHARED_OPT_IN.saturating_sub(self.static_shared) as i32;
        let legal = match attribute {
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => (0..=room).contains(&value),
            CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => (-1..=100).contains(&value),
            CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => (0..=1).contains(&value),
            CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => (0..=2).contains(&value),
            _ => false,
        };
        if !legal {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.settings.insert(attribute as u32, value);
        Ok(())
    }
}

/// Threads of a block, or blocks of a cluster.
pub(crate) fn product(extents: [u32; 3]) -> u32 {
    extents.iter().fold(1, |product, &extent| product.saturating_mul(extent))
}

impl Owned for Function {
    fn device(&self) -> usize {
        self.device
    }
}

api! {
    Driver fn cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction) |driver| {
        put(value, driver.functions.get(function as usize)?.attribute(attribute)?)
    }

    Driver fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) |driver| {
        driver.functions.get_mut(function as usize)?.set(attribute, value)
    }

    Driver fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) |driver| {
        put(name, driver.functions.get(function as usize)?.text.as_ptr())
    }

    Driver fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction) |driver| {
        put(module, driver.functions.get(function as usize)?.module as CUmodule)
    }

    Driver fn cuFuncLoad(function: CUfunction) |driver| {
        driver.functions.get(function as usize).map(drop)
    }

    Driver fn cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize) |driver| {
        let layout = &driver.functions.get(function as usize)?.layout;
        let &(at, bytes) = layout.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        put(offset, at)?;
        put_if_wanted(size, bytes);
        Ok(())
    }
}
