//! Launches: the checks that the driver makes, and the copy of the arguments.

use std::ffi::{c_uint, c_void};

use cudarc::driver::sys::{CUfunction, CUlaunchAttributeID, CUlaunchConfig, CUresult, CUstream};

use crate::code::function::product;
use crate::device::limit;
use crate::entry::{Driver, Outcome, api, elements};
use crate::execution::{Action, Launch};

/// Grid, block and shared memory, as every launch gives them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// What `extra` is made of.
const END: usize = 0;
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;

/// Copies arguments into one buffer, laid out as the kernel declares them.
///
/// # Safety
/// `params` and `extra` are as for `cuLaunchKernel` of a kernel with this layout.
unsafe fn arguments(
    layout: &[(usize, usize)],
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Outcome<Vec<u8>> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let total = layout.last().map_or(0, |&(at, size)| at + size);
    let mut bytes = vec![0; total];
    if !params.is_null() && !extra.is_null() {
        return Err(invalid);
    }
    if !extra.is_null() {
        let (mut start, mut size) = (std::ptr::null_mut::<c_void>(), 0);
        for at in (0..).step_by(2) {
            // SAFETY: the list of pairs goes on until its end marker.
            let (key, value) = unsafe { (*extra.add(at) as usize, extra.add(at + 1)) };
            match key {
                END => break,
                // SAFETY: a pair has two entries.
                BUFFER_POINTER => start = unsafe { *value },
                // SAFETY: a pair has two entries, the second a pointer to the size.
                BUFFER_SIZE => size = unsafe { *(*value).cast::<usize>() },
                _ => return Err(invalid),
            }
        }
        if size < total {
            return Err(invalid);
        }
        // SAFETY: the caller's buffer has this size.
        let given = unsafe { elements(start.cast::<u8>(), size)? };
        bytes.copy_from_slice(&given[..total]);
        return Ok(bytes);
    }
    // SAFETY: one pointer for every parameter.
    for (&(at, size), param) in layout.iter().zip(unsafe { elements(params, layout.len())? }) {
        // SAFETY: each points to its argument.
        bytes[at..at + size].copy_from_slice(&unsafe { elements(param.cast::<u8>(), size)? });
    }
    Ok(bytes)
}

impl Driver {
    /// A launch that the driver would accept.
    ///
    /// # Safety
    /// `params` and `extra` are as for `cuLaunchKernel`.
    pub(crate) unsafe fn prepare(
        &self,
        function: CUfunction,
        shape: Shape,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Outcome<Launch> {
        let kernel = self.functions.get(function as usize)?;
        let Shape { grid, block, shared } = shape;
        let within = |extents: [u32; 3], limits: [u32; 3]| {
            extents.iter().zip(limits).all(|(&extent, limit)| (1..=limit).contains(&extent))
        };
        if !within(grid, limit::GRID)
            || !within(block, limit::BLOCK)
            || product(block) > kernel.max_threads
            || kernel.required_block.is_some_and(|required| required != block)
            || shared > kernel.dynamic_limit()
        {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: as this function's contract says.
        let params = unsafe { arguments(&kernel.layout, params, extra)? };
        Ok(Launch {
            name: kernel.name.clone(),
            grid,
            block,
            cluster: kernel.required_cluster.unwrap_or([1; 3]),
            shared,
            cooperative: false,
            attributes: Vec::new(),
            params,
            layout: kernel.layout.clone(),
            function: function as usize,
        })
    }

    /// Applies an attribute of a launch or of a kernel node.
    pub(crate) fn apply(&self, launch: &mut Launch, id: u32, value: [u8; 64]) -> Outcome {
        let word = |at: usize| u32::from_le_bytes([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        if id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION as u32 {
            let cluster = [word(0), word(4), word(8)];
            let required = self.functions.get(launch.function)?.required_cluster;
            if required.is_some_and(|required| required != cluster) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            launch.cluster = cluster;
        }
        if id == CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE as u32 {
            launch.cooperative = word(0) != 0;
        }
        let mut kept = [0; 16];
        kept.copy_from_slice(&value[..16]);
        launch.attributes.push((id, kept));
        Ok(())
    }

    /// The checks that need all attributes.
    pub(crate) fn check(&self, launch: &Launch) -> Outcome {
        let kernel = self.functions.get(launch.function)?;
        let blocks = product(launch.cluster);
        if blocks == 0 || launch.grid.iter().zip(launch.cluster).any(|(&grid, cluster)| grid % cluster != 0) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if blocks > kernel.cluster_limit() {
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        let resident =
            u64::from(kernel.blocks_per_sm(product(launch.block), launch.shared)) * u64::from(limit::SMS);
        let wanted: u64 = launch.grid.iter().map(|&extent| u64::from(extent)).product();
        if launch.cooperative && wanted > resident {
            return Err(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
        }
        Ok(())
    }

    fn launch(&mut self, launch: Launch, stream: CUstream) -> Outcome {
        self.check(&launch)?;
        let stream = self.stream(stream)?;
        let device = self.functions.get(launch.function)?.device;
        if self.streams.get(stream)?.device != device || self.current()? != device {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        self.issue(stream, Action::Launch(Box::new(launch))).map(drop)
    }
}

/// The attributes of a launch, as number and bytes.
///
/// # Safety
/// As `cuLaunchKernelEx`.
pub(crate) unsafe fn attributes(config: &CUlaunchConfig) -> Outcome<Vec<(u32, [u8; 64])>> {
    // SAFETY: there are as many attributes as the configuration says. The number may be newer than the bindings, so
    // it is read as one; all bytes of a value are initialised, being a union over plain bytes.
    unsafe {
        (0..config.numAttrs as usize)
            .map(|at| {
                if config.attrs.is_null() {
                    return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
                }
                let attribute = config.attrs.add(at);
                let id = (&raw const (*attribute).id).cast::<u32>().read();
                Ok((id, (&raw const (*attribute).value).cast::<[u8; 64]>().read()))
            })
            .collect()
    }
}

pub(crate) fn shape_of(config: &CUlaunchConfig) -> Shape {
    Shape {
        grid: [config.gridDimX, config.gridDimY, config.gridDimZ],
        block: [config.blockDimX, config.blockDimY, config.blockDimZ],
        shared: config.sharedMemBytes,
    }
}

api! {
    Context fn cuLaunchKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) |driver| {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        let launch = driver.prepare(function, shape, params, extra)?;
        driver.launch(launch, stream)
    }

    Context fn cuLaunchKernelEx(
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) |driver| {
        let config = config.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mut launch = driver.prepare(function, shape_of(config), params, extra)?;
        for (id, value) in attributes(config)? {
            driver.apply(&mut launch, id, value)?;
        }
        driver.launch(launch, config.hStream)
    }

    Context fn cuLaunchCooperativeKernel(
        function: CUfunction,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: CUstream,
        params: *mut *mut c_void,
    ) |driver| {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z], shared };
        let mut launch = driver.prepare(function, shape, params, std::ptr::null_mut())?;
        launch.cooperative = true;
        driver.launch(launch, stream)
    }
}
