//! Tensors as the copy engine sees them.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;
use tilewright_hardware::{L2Promotion, OobFill, SwizzleMode, TensorMapSpec};
use tilewright_layout::Layout;

use crate::context::Context;
use crate::error::CudaError;
use crate::ffi::launch::{EncodedMap, TiledMap, encode_tiled};
use crate::memory::allocation::Allocation;
use crate::memory::{Slice, SliceMut};

/// A tensor in global memory as the copy engine sees it: an argument of kernels that load or store boxes of it. It keeps the memory.
///
/// Made from memory to read it can only be loaded from; made from memory to write ([`TensorMap::writable`]) it can be stored to.
#[derive(Clone)]
pub struct TensorMap {
    encoded: EncodedMap,
    memory: Arc<Allocation>,
    /// The addresses that it was made over.
    range: Range<u64>,
    spec: TensorMapSpec,
    dims: Vec<u64>,
    writable: bool,
}

impl fmt::Debug for TensorMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TensorMap({:?} of {}, boxes of {:?})",
            self.dims,
            self.spec.element(),
            self.spec.box_dims()
        )
    }
}

impl TensorMap {
    /// A tensor without gaps that kernels load from; extents innermost first.
    ///
    /// ```no_run
    /// # use tilewright_cuda::{Context, TensorMap};
    /// use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};
    /// let stream = Context::new(0)?.stream()?;
    /// let matrix = stream.alloc::<u16>(4096 * 512)?; // 4096 rows of 512
    /// let spec = TensorMapSpec::new(Element::BF16, &[64, 128], SwizzleMode::B128)?;
    /// let map = TensorMap::new(&spec, &matrix, &[512, 4096])?;
    /// # Ok::<(), tilewright_cuda::CudaError>(())
    /// ```
    ///
    /// # Errors
    /// If the copy engine cannot address such a tensor, or it is not inside of the memory.
    pub fn new<'a, T: Pod>(
        spec: &TensorMapSpec,
        memory: impl Into<Slice<'a, T>>,
        dims: &[u64],
    ) -> Result<TensorMap, CudaError> {
        TensorMap::strided(spec, memory, dims, &dense(spec, dims))
    }

    /// A tensor with gaps that kernels load from; extents innermost first, strides in bytes, without the innermost.
    ///
    /// # Errors
    /// As [`TensorMap::new`].
    pub fn strided<'a, T: Pod>(
        spec: &TensorMapSpec,
        memory: impl Into<Slice<'a, T>>,
        dims: &[u64],
        strides: &[u64],
    ) -> Result<TensorMap, CudaError> {
        let memory = memory.into();
        inside(spec, memory.bytes(), dims, strides)?;
        spec.check_tensor(memory.address(), dims, strides)?;
        let encoded = encode_tiled(&TiledMap {
            data_type: spec.data_type(),
            address: memory.address(),
            dims,
            strides,
            boxes: spec.box_dims(),
            element_strides: spec.element_strides(),
            swizzle: match spec.swizzle() {
                SwizzleMode::None => 0,
                SwizzleMode::B32 => 1,
                SwizzleMode::B64 => 2,
                SwizzleMode::B128 => 3,
            },
            l2_promotion: match spec.l2_promotion() {
                L2Promotion::None => 0,
                L2Promotion::B64 => 1,
                L2Promotion::B128 => 2,
                L2Promotion::B256 => 3,
            },
            fill_nan: spec.oob_fill() == OobFill::Nan,
        });
        Ok(TensorMap {
            encoded: memory.context().guard(encoded)?,
            memory: memory.memory().clone(),
            range: memory.address()..memory.address() + memory.bytes() as u64,
            spec: spec.clone(),
            dims: dims.to_vec(),
            writable: false,
        })
    }

    /// A tensor that lies in memory as a layout says, strides in elements; its modes are taken in the order of their strides, so that
    /// row-major and column-major matrices both work.
    ///
    /// # Errors
    /// If no mode has stride 1, a stride is negative or not a number, or as [`TensorMap::new`].
    pub fn of_layout<'a, T: Pod>(
        spec: &TensorMapSpec,
        memory: impl Into<Slice<'a, T>>,
        layout: &Layout,
    ) -> Result<TensorMap, CudaError> {
        let (dims, strides) = modes(spec, layout)?;
        TensorMap::strided(spec, memory, &dims, &strides)
    }

    /// The same for kernels that also store to it.
    ///
    /// # Errors
    /// If the memory is another than that of the map.
    pub fn writable<'a, T: Pod>(self, memory: impl Into<SliceMut<'a, T>>) -> Result<TensorMap, CudaError> {
        let memory = memory.into();
        if !Arc::ptr_eq(&self.memory, memory.memory()) {
            return Err(CudaError::TensorMap {
                what: "the memory to write to",
                found: "other memory".to_owned(),
                expected: "the memory that the map was made for",
            });
        }
        Ok(TensorMap { writable: true, ..self })
    }

    /// All but the tensor.
    pub fn spec(&self) -> &TensorMapSpec {
        &self.spec
    }

    /// Extents of the tensor, innermost first.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// The context it lives in.
    pub fn context(&self) -> &Context {
        self.memory.context()
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    pub(crate) fn memory(&self) -> &Arc<Allocation> {
        &self.memory
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn pointer(&self) -> *const c_void {
        self.encoded.0.as_ptr().cast::<c_void>()
    }
}

/// Strides of a tensor without gaps.
fn dense(spec: &TensorMapSpec, dims: &[u64]) -> Vec<u64> {
    let mut stride = u64::from(spec.element().bytes());
    let mut strides = Vec::new();
    for extent in dims.iter().take(dims.len().saturating_sub(1)) {
        stride = stride.saturating_mul(*extent);
        strides.push(stride);
    }
    strides
}

/// Extents and strides in bytes of a layout, innermost first.
fn modes(spec: &TensorMapSpec, layout: &Layout) -> Result<(Vec<u64>, Vec<u64>), CudaError> {
    let refused =
        |found: String, expected| CudaError::TensorMap { what: "the layout of the tensor", found, expected };
    let flat = layout.flatten();
    let mut modes = Vec::new();
    for mode in flat.modes() {
        let (Ok(stride), size) = (if mode.size() > 1 { mode.at(1) } else { Ok(0) }, mode.size()) else {
            return Err(refused(layout.to_string(), "strides that are numbers"));
        };
        let (Ok(extent), Ok(stride)) = (u64::try_from(size), u64::try_from(stride)) else {
            return Err(refused(layout.to_string(), "strides of 0 or more"));
        };
        modes.push((stride, extent));
    }
    // A mode of extent 1 has no stride of its own; the copy engine wants one, and the largest is out of everybody's way.
    modes.sort_by_key(|&(stride, extent)| (extent == 1, stride));
    if modes.first().is_none_or(|&(stride, extent)| stride != 1 && extent != 1) {
        return Err(refused(layout.to_string(), "a mode with stride 1"));
    }
    let width = u64::from(spec.element().bytes());
    let mut strides = Vec::new();
    for window in modes.windows(2) {
        let (below, (stride, extent)) = (window[0], window[1]);
        let elements = if extent == 1 {
            // Behind the mode below it, rounded up to the 16 bytes that strides must be multiples of.
            let end = below.0.max(1).saturating_mul(below.1).saturating_mul(width);
            strides.last().copied().unwrap_or(0).max(end.div_ceil(16).saturating_mul(16))
        } else {
            stride.saturating_mul(width)
        };
        strides.push(elements);
    }
    Ok((modes.into_iter().map(|(_, extent)| extent).collect(), strides))
}

/// An error unless the tensor ends inside of so many bytes.
fn inside(spec: &TensorMapSpec, bytes: usize, dims: &[u64], strides: &[u64]) -> Result<(), CudaError> {
    let width = u64::from(spec.element().bytes());
    // The last element's last byte.
    let steps = std::iter::once(width).chain(strides.iter().copied());
    let end = dims.iter().zip(steps).try_fold(width, |end, (extent, stride)| {
        end.checked_add(extent.checked_sub(1)?.checked_mul(stride)?)
    });
    if end.is_some_and(|end| end <= bytes as u64) {
        return Ok(());
    }
    let end = end.map_or_else(|| "no number of 64 bits".to_owned(), |end| format!("{end}"));
    Err(CudaError::TensorMap {
        what: "bytes of the tensor",
        found: format!("{end} for extents {dims:?} and strides {strides:?}, in memory of {bytes} bytes"),
        expected: "no more than the memory has",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_hardware::Element;

    fn spec() -> TensorMapSpec {
        TensorMapSpec::new(Element::BF16, &[64, 32], SwizzleMode::B128).unwrap()
    }

    #[test]
    fn layouts_give_extents_and_strides_innermost_first() {
        let of = |text: &str| modes(&spec(), &text.parse().unwrap());
        assert_eq!(of("(100,512):(512,1)"), Ok((vec![512, 100], vec![1024])));
        assert_eq!(of("(512,100):(1,512)"), Ok((vec![512, 100], vec![1024])));
        assert_eq!(of("(4,(100,512)):(65536,(600,1))"), Ok((vec![512, 100, 4], vec![1200, 131_072])));
        assert_eq!(of("(512,1):(1,0)"), Ok((vec![512, 1], vec![1024])));
        assert!(of("(512,100):(2,1024)").unwrap_err().to_string().contains("a mode with stride 1"));
    }

    #[test]
    fn tensors_must_end_inside() {
        let check = |bytes, dims: &[u64], strides: &[u64]| inside(&spec(), bytes, dims, strides);
        assert_eq!(check(1024 * 100, &[512, 100], &[1024]), Ok(()));
        assert!(check(1024 * 100 - 1, &[512, 100], &[1024]).is_err());
        // The gap after the last row need not be there.
        assert_eq!(check(2048 * 99 + 1024, &[512, 100], &[2048]), Ok(()));
        assert!(check(usize::MAX, &[512, u64::MAX], &[1024]).is_err());
        assert!(check(1024, &[0, 1], &[1024]).is_err());
    }
}
