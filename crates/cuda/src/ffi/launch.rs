//! Launches and occupancy.

use std::ffi::{c_int, c_void};
use std::ptr;

use super::context::Context;
use super::module::Function;
use super::stream::Stream;
use super::{call, sys};
use crate::error::CudaError;

/// A launch as the driver takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) cooperative: bool,
    /// May begin before the kernel before it in the stream has ended.
    pub(crate) programmatic: bool,
    pub(crate) priority: Option<i32>,
}

impl Shape {
    #[inline]
    fn is_plain(&self) -> bool {
        self.cluster.is_none() && !self.cooperative && !self.programmatic && self.priority.is_none()
    }

    pub(super) fn attributes(&self) -> ([sys::CUlaunchAttribute; 4], u32) {
        use sys::CUlaunchAttributeID_enum as Id;
        let none = sys::CUlaunchAttribute {
            id: Id::CU_LAUNCH_ATTRIBUTE_IGNORE,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { pad: [0; 64] },
        };
        let mut attributes = [none; 4];
        let mut count = 0;
        let mut push = |id, set: &dyn Fn(&mut sys::CUlaunchAttributeValue)| {
            attributes[count].id = id;
            set(&mut attributes[count].value);
            count += 1;
        };
        if let Some([x, y, z]) = self.cluster {
            push(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &|value| {
                value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            });
        }
        if self.cooperative {
            push(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &|value| value.cooperative = 1);
        }
        if self.programmatic {
            push(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &|value| {
                value.programmaticStreamSerializationAllowed = 1;
            });
        }
        if let Some(priority) = self.priority {
            push(Id::CU_LAUNCH_ATTRIBUTE_PRIORITY, &|value| value.priority = priority);
        }
        #[allow(clippy::cast_possible_truncation, reason = "at most 4")]
        (attributes, count as u32)
    }

    fn config(
        &self,
        stream: sys::CUstream,
        attributes: &mut [sys::CUlaunchAttribute],
        count: u32,
    ) -> sys::CUlaunchConfig {
        sys::CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: count,
        }
    }
}

/// Enqueues a kernel. The driver copies the arguments before it returns.
///
/// # Safety
/// `arguments` has a pointer for every parameter of the kernel, each to as many bytes as the parameter has. The memory that the kernel
/// reaches is live until it has run, and what else uses it is ordered.
#[inline]
pub(crate) unsafe fn launch(
    stream: &Stream,
    function: Function,
    shape: &Shape,
    arguments: &mut [*mut c_void],
) -> Result<(), CudaError> {
    // SAFETY: the caller's; if it is called again, nothing was enqueued yet.
    in_context(stream, || unsafe { enqueue(stream, function, shape, arguments) })
}

/// Calls the driver in the context of the stream. What is launched and the stream belong to that context; it is almost always the
/// thread's, and if not, the driver says so and enqueues nothing. Then, and only then, it is worth the time to bind it.
#[inline]
pub(crate) fn in_context(
    stream: &Stream,
    mut enqueue: impl FnMut() -> Result<(), CudaError>,
) -> Result<(), CudaError> {
    const INVALID_CONTEXT: u32 = 201;
    const INVALID_HANDLE: u32 = 400;
    if stream.raw().is_null() {
        // The default stream is that of the thread's context, whichever that is.
        stream.context().bind()?;
    }
    match enqueue() {
        Err(CudaError::Call { code: INVALID_CONTEXT | INVALID_HANDLE, .. }) => {}
        launched => return launched,
    }
    stream.context().bind()?;
    enqueue()
}

/// # Safety
/// As for [`launch`].
#[inline]
unsafe fn enqueue(
    stream: &Stream,
    function: Function,
    shape: &Shape,
    arguments: &mut [*mut c_void],
) -> Result<(), CudaError> {
    let ([gx, gy, gz], [bx, by, bz]) = (shape.grid, shape.block);
    let (raw, arguments) = (function.raw(), arguments.as_mut_ptr());
    if shape.is_plain() {
        // SAFETY: the caller's.
        return unsafe {
            call!(cuLaunchKernel(
                raw,
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                shape.shared,
                stream.raw(),
                arguments,
                ptr::null_mut()
            ))
        };
    }
    let (mut attributes, count) = shape.attributes();
    let config = shape.config(stream.raw(), &mut attributes, count);
    // SAFETY: the caller's; the attributes live through the call.
    unsafe { call!(cuLaunchKernelEx(&raw const config, raw, arguments, ptr::null_mut())) }
}

/// Blocks of so many threads and bytes of dynamic shared memory that run on a multiprocessor at once.
pub(crate) fn active_blocks(
    context: &Context,
    function: Function,
    threads: u32,
    shared: usize,
) -> Result<u32, CudaError> {
    context.bind()?;
    let mut blocks: c_int = 0;
    let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
    // SAFETY: the pointer is valid for the call.
    unsafe {
        call!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function.raw(), threads, shared))
    }?;
    Ok(blocks.unsigned_abs())
}

/// The block size that gives the highest occupancy, and the smallest grid that reaches it.
pub(crate) fn best_block(
    context: &Context,
    function: Function,
    shared: usize,
    limit: u32,
) -> Result<(u32, u32), CudaError> {
    context.bind()?;
    let (mut grid, mut block): (c_int, c_int) = (0, 0);
    let limit = c_int::try_from(limit).unwrap_or(c_int::MAX);
    // SAFETY: the pointers are valid for the call; no function for shared memory by block size is given.
    unsafe {
        call!(cuOccupancyMaxPotentialBlockSize(
            &raw mut grid,
            &raw mut block,
            function.raw(),
            None,
            shared,
            limit
        ))
    }?;
    Ok((block.unsigned_abs(), grid.unsigned_abs()))
}

/// Clusters of this launch that run on the device at once.
pub(crate) fn active_clusters(stream: &Stream, function: Function, shape: &Shape) -> Result<u32, CudaError> {
    stream.context().bind()?;
    let (mut attributes, count) = shape.attributes();
    let config = shape.config(stream.raw(), &mut attributes, count);
    let mut clusters: c_int = 0;
    // SAFETY: the pointers are valid for the call.
    unsafe { call!(cuOccupancyMaxActiveClusters(&raw mut clusters, function.raw(), &raw const config)) }?;
    Ok(clusters.unsigned_abs())
}

/// The largest cluster that this launch could have.
pub(crate) fn largest_cluster(stream: &Stream, function: Function, shape: &Shape) -> Result<u32, CudaError> {
    stream.context().bind()?;
    let (mut attributes, count) = shape.attributes();
    let config = shape.config(stream.raw(), &mut attributes, count);
    let mut size: c_int = 0;
    // SAFETY: the pointers are valid for the call.
    unsafe { call!(cuOccupancyMaxPotentialClusterSize(&raw mut size, function.raw(), &raw const config)) }?;
    Ok(size.unsigned_abs())
}

/// Bytes of dynamic shared memory that a block may have so that so many blocks run on a multiprocessor.
pub(crate) fn available_shared(
    context: &Context,
    function: Function,
    blocks: u32,
    threads: u32,
) -> Result<usize, CudaError> {
    context.bind()?;
    let mut bytes = 0;
    let (blocks, threads) =
        (c_int::try_from(blocks).unwrap_or(c_int::MAX), c_int::try_from(threads).unwrap_or(c_int::MAX));
    // SAFETY: the pointer is valid for the call.
    unsafe {
        call!(cuOccupancyAvailableDynamicSMemPerBlock(&raw mut bytes, function.raw(), blocks, threads))
    }?;
    Ok(bytes)
}

/// A tensor map for boxes of a tensor; the driver checks what was checked before, too.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct EncodedMap(pub(crate) [u64; 16]);

/// What the driver's encoder takes; ranks are the lengths of the slices.
pub(crate) struct TiledMap<'a> {
    pub(crate) data_type: u32,
    pub(crate) address: u64,
    pub(crate) dims: &'a [u64],
    /// Bytes, without the innermost.
    pub(crate) strides: &'a [u64],
    pub(crate) boxes: &'a [u32],
    pub(crate) element_strides: &'a [u32],
    pub(crate) swizzle: u32,
    pub(crate) l2_promotion: u32,
    pub(crate) fill_nan: bool,
}

/// Encodes a tensor map. The address is only written into it, not read through.
pub(crate) fn encode_tiled(map: &TiledMap<'_>) -> Result<EncodedMap, CudaError> {
    use sys::{
        CUtensorMapDataType as Type, CUtensorMapFloatOOBfill as Fill, CUtensorMapInterleave as Interleave,
        CUtensorMapL2promotion as L2, CUtensorMapSwizzle as Swizzle,
    };
    let refused = |what, found: String, expected| CudaError::TensorMap { what, found, expected };
    let types = [
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        Type::CU_TENSOR_MAP_DATA_TYPE_INT64,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
        Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
    ];
    let swizzles = [
        Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    ];
    let promotions = [
        L2::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        L2::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        L2::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        L2::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    ];
    fn pick<T: Copy>(table: &[T], number: u32) -> Option<T> {
        table.get(number as usize).copied()
    }
    let rank = map.dims.len();
    if !(1..=5).contains(&rank)
        || map.boxes.len() != rank
        || map.element_strides.len() != rank
        || map.strides.len() + 1 != rank
    {
        let found = format!(
            "{rank} extents, {} strides, {} box extents, {} element strides",
            map.strides.len(),
            map.boxes.len(),
            map.element_strides.len()
        );
        return Err(refused("ranks", found, "1 to 5 extents, one stride less, and as many of the others"));
    }
    let (Some(data_type), Some(swizzle), Some(promotion)) =
        (pick(&types, map.data_type), pick(&swizzles, map.swizzle), pick(&promotions, map.l2_promotion))
    else {
        let found =
            format!("type {}, swizzle {}, promotion {}", map.data_type, map.swizzle, map.l2_promotion);
        return Err(refused("the numbers of type, swizzle and promotion", found, "those of the driver"));
    };
    let fill = if map.fill_nan {
        Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
    } else {
        Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    };
    let mut encoded = EncodedMap([0; 16]);
    #[allow(clippy::cast_possible_truncation, reason = "at most 5")]
    // SAFETY: the arrays are as long as the rank says, checked above; the result has the size and alignment of a `CUtensorMap`; the address
    // is not read through.
    unsafe {
        call!(cuTensorMapEncodeTiled(
            (&raw mut encoded).cast::<sys::CUtensorMap>(),
            data_type,
            rank as u32,
            ptr::without_provenance_mut(map.address as usize),
            map.dims.as_ptr(),
            map.strides.as_ptr(),
            map.boxes.as_ptr(),
            map.element_strides.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            promotion,
            fill,
        ))
    }?;
    Ok(encoded)
}
