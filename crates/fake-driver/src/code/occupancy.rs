//! Occupancy, from threads, blocks and shared memory. Registers never limit it here.

use std::ffi::{c_int, c_uint};

use cudarc::driver::sys::{CUfunction, CUlaunchConfig, CUoccupancyB2DSize, CUresult};

use crate::code::Function;
use crate::code::function::product;
use crate::code::launch::{attributes, shape_of};
use crate::device::limit;
use crate::entry::{Driver, Outcome, api, put};

impl Function {
    /// Blocks that fit on a multiprocessor at once.
    pub(crate) fn blocks_per_sm(&self, threads: u32, dynamic_shared: u32) -> u32 {
        if threads == 0 || threads > self.max_threads {
            return 0;
        }
        let by_threads = limit::THREADS_PER_SM / threads.next_multiple_of(32);
        let shared = self.static_shared.saturating_add(dynamic_shared);
        if shared > limit::SHARED_OPT_IN {
            return 0;
        }
        by_threads.min(limit::BLOCKS_PER_SM).min(limit::SHARED_PER_SM / (shared + limit::SHARED_RESERVED))
    }
}

impl Driver {
    fn blocks_per_sm(&self, function: CUfunction, threads: c_int, shared: usize) -> Outcome<c_int> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let threads = u32::try_from(threads).ok().filter(|&threads| threads > 0).ok_or(invalid)?;
        let shared = u32::try_from(shared).map_err(|_| invalid)?;
        Ok(self.functions.get(function as usize)?.blocks_per_sm(threads, shared) as c_int)
    }

    /// # Safety
    /// As `cuOccupancyMaxActiveClusters`.
    unsafe fn clusters(&self, function: CUfunction, config: *const CUlaunchConfig) -> Outcome<(u32, u32)> {
        // SAFETY: the caller gives a configuration.
        let config = unsafe { config.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let kernel = self.functions.get(function as usize)?;
        let shape = shape_of(config);
        let mut cluster = kernel.required_cluster.unwrap_or([1; 3]);
        // SAFETY: the caller gives a configuration.
        for (id, value) in unsafe { attributes(config)? } {
            if id == cudarc::driver::sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION as u32 {
                for (extent, word) in cluster.iter_mut().zip(value.chunks_exact(4)) {
                    *extent = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                }
            }
        }
        let blocks = product(cluster);
        if blocks == 0 || blocks > kernel.cluster_limit() {
            return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
        }
        let resident = kernel.blocks_per_sm(product(shape.block), shape.shared) * limit::SMS;
        let largest = if resident == 0 { 0 } else { kernel.cluster_limit() };
        Ok((resident / blocks, largest))
    }
}

api! {
    Context fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared: usize,
    ) |driver| {
        put(blocks, driver.blocks_per_sm(function, threads, shared)?)
    }

    Context fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        blocks: *mut c_int,
        function: CUfunction,
        threads: c_int,
        shared: usize,
        flags: c_uint,
    ) |driver| {
        if flags > 1 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        put(blocks, driver.blocks_per_sm(function, threads, shared)?)
    }

    Context fn cuOccupancyMaxPotentialBlockSize(
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared_of_block: CUoccupancyB2DSize,
        shared: usize,
        most: c_int,
    ) |driver| {
        let limit = driver.functions.get(function as usize)?.max_threads as c_int;
        let most = if most > 0 { most.min(limit) } else { limit };
        let mut best = (0, 0, 0);
        for threads in (32..=most).rev().step_by(32) {
            let shared = shared_of_block.map_or(shared, |of_block| of_block(threads));
            let blocks = driver.blocks_per_sm(function, threads, shared)?;
            if blocks * threads > best.0 {
                best = (blocks * threads, blocks, threads);
            }
        }
        put(grid, best.1 * limit::SMS as c_int)?;
        put(block, best.2)
    }

    Context fn cuOccupancyMaxActiveClusters(
        clusters: *mut c_int,
        function: CUfunction,
        config: *const CUlaunchConfig,
    ) |driver| {
        put(clusters, driver.clusters(function, config)?.0 as c_int)
    }

    Context fn cuOccupancyMaxPotentialClusterSize(
        blocks: *mut c_int,
        function: CUfunction,
        config: *const CUlaunchConfig,
    ) |driver| {
        put(blocks, driver.clusters(function, config)?.1 as c_int)
    }

    Context fn cuOccupancyAvailableDynamicSMemPerBlock(
        bytes: *mut usize,
        function: CUfunction,
        blocks: c_int,
        threads: c_int,
    ) |driver| {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        let kernel = driver.functions.get(function as usize)?;
        let blocks = u32::try_from(blocks).ok().filter(|&blocks| blocks > 0).ok_or(invalid)?;
        let threads = u32::try_from(threads).map_err(|_| invalid)?;
        if kernel.blocks_per_sm(threads, 0) < blocks {
            return Err(invalid);
        }
        let share = (limit::SHARED_PER_SM / blocks).saturating_sub(limit::SHARED_RESERVED).min(limit::SHARED_OPT_IN);
        put(bytes, share.saturating_sub(kernel.static_shared) as usize)
    }
}
