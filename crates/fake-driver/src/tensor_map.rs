//! Tensor maps: the driver's checks, and an encoding of this driver's own.
//!
//! The 128 bytes begin with a mark and the global address, so that a launch can tell whether the tensor still exists.
//! The rest is not the hardware's encoding.

use std::ffi::{c_int, c_void};

use cudarc::driver::sys::{
    CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, cuuint32_t, cuuint64_t,
};

use crate::entry::{Outcome, api, elements};

const MARK: u64 = 0x7061_6D5F_656B_6166;

/// The global address in a parameter that is a tensor map.
pub(crate) fn address_in(parameter: &[u8]) -> Option<u64> {
    let (mark, rest) = parameter.split_first_chunk::<8>()?;
    let (address, _) = rest.split_first_chunk::<8>()?;
    (parameter.len() == size_of::<CUtensorMap>() && u64::from_le_bytes(*mark) == MARK)
        .then(|| u64::from_le_bytes(*address))
}

/// Bytes of an element. The packed types count a byte, which is what 16 of them fill at least.
fn element_bytes(ty: CUtensorMapDataType) -> u64 {
    use CUtensorMapDataType::*;
    match ty {
        CU_TENSOR_MAP_DATA_TYPE_UINT16
        | CU_TENSOR_MAP_DATA_TYPE_FLOAT16
        | CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 => 2,
        CU_TENSOR_MAP_DATA_TYPE_UINT32
        | CU_TENSOR_MAP_DATA_TYPE_INT32
        | CU_TENSOR_MAP_DATA_TYPE_FLOAT32
        | CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ
        | CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
        | CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ => 4,
        CU_TENSOR_MAP_DATA_TYPE_UINT64 | CU_TENSOR_MAP_DATA_TYPE_INT64 | CU_TENSOR_MAP_DATA_TYPE_FLOAT64 => 8,
        _ => 1,
    }
}

/// What both kinds of map have.
struct Tensor {
    ty: CUtensorMapDataType,
    address: u64,
    dims: Vec<u64>,
    strides: Vec<u64>,
    element_strides: Vec<u32>,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
}

impl Tensor {
    fn is_legal(&self) -> bool {
        use CUtensorMapInterleave::*;
        use CUtensorMapSwizzle::*;
        let rank = self.dims.len();
        let aligned = if self.interleave == CU_TENSOR_MAP_INTERLEAVE_32B { 32 } else { 16 };
        let interleaved = self.interleave != CU_TENSOR_MAP_INTERLEAVE_NONE;
        (1..=5).contains(&rank)
            && (!interleaved || rank >= 3)
            && self.address != 0
            && self.address.is_multiple_of(aligned)
            && self.dims.iter().all(|dim| (1..=1 << 32).contains(dim))
            && self.strides.iter().all(|stride| stride % aligned == 0 && *stride < 1 << 40)
            && self.element_strides.iter().all(|stride| (1..=8).contains(stride))
            && (self.interleave != CU_TENSOR_MAP_INTERLEAVE_32B || self.swizzle == CU_TENSOR_MAP_SWIZZLE_32B)
    }

    /// Whether the bytes of a row of a box fit the swizzle and the hardware's granularity.
    fn fits(&self, inner: u64) -> bool {
        use CUtensorMapSwizzle::*;
        let bytes = inner * element_bytes(self.ty);
        let widest = match self.swizzle {
            CU_TENSOR_MAP_SWIZZLE_NONE => u64::MAX,
            CU_TENSOR_MAP_SWIZZLE_32B => 32,
            CU_TENSOR_MAP_SWIZZLE_64B => 64,
            _ => 128,
        };
        self.interleave != CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE
            || (bytes.is_multiple_of(16) && bytes <= widest)
    }

    /// # Safety
    /// `map` is null or valid for writing.
    unsafe fn encode(&self, map: *mut CUtensorMap, rest: &[u32]) -> Outcome {
        if map.is_null() || !(map as usize).is_multiple_of(64) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut opaque = [0; 16];
        opaque[0] = MARK;
        opaque[1] = self.address;
        let words = [self.ty as u32, self.interleave as u32, self.swizzle as u32].into_iter();
        let words = words.chain(rest.iter().copied()).chain(self.dims.iter().map(|&dim| dim as u32));
        let words: Vec<u32> = words.chain(self.strides.iter().map(|&stride| (stride / 16) as u32)).collect();
        for (slot, pair) in opaque[2..].iter_mut().zip(words.chunks(2)) {
            *slot = u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(0)) << 32;
        }
        // SAFETY: not null, so valid by this function's contract.
        unsafe { map.write(CUtensorMap { opaque }) };
        Ok(())
    }
}

/// # Safety
/// As `cuTensorMapEncodeTiled`.
unsafe fn tensor(
    (ty, rank, address): (CUtensorMapDataType, u32, *mut c_void),
    (dims, strides, element_strides): (*const u64, *const u64, *const u32),
    (interleave, swizzle): (CUtensorMapInterleave, CUtensorMapSwizzle),
) -> Outcome<Tensor> {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let rank = rank as usize;
    if !(1..=5).contains(&rank) {
        return Err(invalid);
    }
    // SAFETY: the caller gives as many extents as the rank says, and one stride less.
    let (dims, strides, element_strides) =
        unsafe { (elements(dims, rank)?, elements(strides, rank - 1)?, elements(element_strides, rank)?) };
    let tensor = Tensor { ty, address: address as u64, dims, strides, element_strides, interleave, swizzle };
    if tensor.is_legal() { Ok(tensor) } else { Err(invalid) }
}

api! {
    Always fn cuTensorMapEncodeTiled(
        map: *mut CUtensorMap,
        ty: CUtensorMapDataType,
        rank: cuuint32_t,
        address: *mut c_void,
        dims: *const cuuint64_t,
        strides: *const cuuint64_t,
        boxes: *const cuuint32_t,
        element_strides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        promotion: CUtensorMapL2promotion,
        fill: CUtensorMapFloatOOBfill,
    ) |_| {
        let tensor = tensor((ty, rank, address), (dims, strides, element_strides), (interleave, swizzle))?;
        let boxes = elements(boxes, rank as usize)?;
        if boxes.iter().any(|extent| !(1..=256).contains(extent)) || !tensor.fits(boxes[0].into()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut rest = vec![promotion as u32, fill as u32];
        rest.extend(boxes);
        tensor.encode(map, &rest)
    }

    Always fn cuTensorMapEncodeIm2col(
        map: *mut CUtensorMap,
        ty: CUtensorMapDataType,
        rank: cuuint32_t,
        address: *mut c_void,
        dims: *const cuuint64_t,
        strides: *const cuuint64_t,
        lower: *const c_int,
        upper: *const c_int,
        channels: cuuint32_t,
        pixels: cuuint32_t,
        element_strides: *const cuuint32_t,
        interleave: CUtensorMapInterleave,
        swizzle: CUtensorMapSwizzle,
        promotion: CUtensorMapL2promotion,
        fill: CUtensorMapFloatOOBfill,
    ) |_| {
        let tensor = tensor((ty, rank, address), (dims, strides, element_strides), (interleave, swizzle))?;
        if rank < 3 || !(1..=256).contains(&channels) || !(1..=1024).contains(&pixels) || !tensor.fits(channels.into()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let corners = [elements(lower, rank as usize - 2)?, elements(upper, rank as usize - 2)?].concat();
        let mut rest = vec![promotion as u32, fill as u32, channels, pixels];
        rest.extend(corners.into_iter().map(|corner| corner as u32));
        tensor.encode(map, &rest)
    }
}
