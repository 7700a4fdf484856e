//! The linker: checks PTX and packs it. Also the log buffers, which it shares with loading.

use std::ffi::{c_char, c_uint, c_void};

use cudarc::driver::sys::{CUjit_option, CUjitInputType, CUlinkState, CUresult};

use crate::code::image;
use crate::entry::{Outcome, api, elements, put};
use crate::state::Owned;

/// One of the caller's buffers for text.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    start: usize,
    bytes: usize,
    /// Where the caller reads how much was written.
    written: usize,
}

impl Buffer {
    /// # Safety
    /// The buffer and its size are what the caller said.
    unsafe fn write(self, text: &str) {
        if self.start == 0 || self.bytes == 0 {
            return;
        }
        let kept = &text.as_bytes()[..text.len().min(self.bytes - 1)];
        // SAFETY: `kept` and its zero fit into the buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(kept.as_ptr(), self.start as *mut u8, kept.len());
            (self.start as *mut u8).add(kept.len()).write(0);
            (self.written as *mut usize).write_unaligned(kept.len());
        }
    }
}

/// Where errors and remarks of the compiler go.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Log {
    info: Buffer,
    error: Buffer,
}

impl Log {
    /// # Safety
    /// There are `count` options with as many values.
    pub(crate) unsafe fn from_options(
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> Outcome<Log> {
        let mut log = Log::default();
        // SAFETY: as this function's contract says. Options are read as numbers, since there may be newer ones.
        let (numbers, contents) =
            unsafe { (elements(options.cast::<u32>(), count as usize)?, elements(values, count as usize)?) };
        for (at, (option, value)) in numbers.into_iter().zip(contents).enumerate() {
            let buffer = match option {
                3 | 4 => &mut log.info,
                5 | 6 => &mut log.error,
                _ => continue,
            };
            if option % 2 == 1 {
                buffer.start = value as usize;
            } else {
                // The size is a 32-bit number in the place of a pointer.
                buffer.bytes = value as usize & 0xFFFF_FFFF;
                buffer.written = values.wrapping_add(at) as usize;
            }
        }
        Ok(log)
    }

    /// # Safety
    /// The caller's buffers still exist.
    pub(crate) unsafe fn write(&self, info: &str, error: &str) {
        // SAFETY: as this function's contract says.
        unsafe {
            self.info.write(info);
            self.error.write(error);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Link {
    device: usize,
    log: Log,
    texts: Vec<String>,
    /// What `cuLinkComplete` made; the caller has a pointer to it.
    image: Option<Box<[u8]>>,
}

impl Owned for Link {
    fn device(&self) -> usize {
        self.device
    }
}

api! {
    Context fn cuLinkCreate_v2(
        count: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        state: *mut CUlinkState,
    ) |driver| {
        let log = Log::from_options(count, options, values)?;
        let device = driver.current()?;
        let handle = driver.handle();
        put(state, handle as CUlinkState)?;
        driver.links.insert(handle, Link { device, log, texts: Vec::new(), image: None });
        Ok(())
    }

    Context fn cuLinkAddData_v2(
        state: CUlinkState,
        kind: CUjitInputType,
        data: *mut c_void,
        bytes: usize,
        _name: *const c_char,
        _count: c_uint,
        _options: *mut CUjit_option,
        _values: *mut *mut c_void,
    ) |driver| {
        let link = driver.links.get_mut(state as usize)?;
        if link.image.is_some() {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let data = elements(data.cast::<u8>(), bytes)?;
        let added = match kind {
            CUjitInputType::CU_JIT_INPUT_PTX => {
                let text = String::from_utf8_lossy(&data).trim_end_matches('\0').to_string();
                image::compile(&text).map(|_| vec![text])
            }
            CUjitInputType::CU_JIT_INPUT_CUBIN => image::unpack(&data),
            _ => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        };
        match added {
            Ok(texts) => {
                link.texts.extend(texts);
                Ok(())
            }
            Err(refusal) => {
                link.log.write("", &refusal.log);
                Err(refusal.code)
            }
        }
    }

    Context fn cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, bytes: *mut usize) |driver| {
        let link = driver.links.get_mut(state as usize)?;
        if link.texts.is_empty() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        link.log.write("ptxas info    : 0 bytes gmem\n", "");
        let texts = &link.texts;
        let packed = link.image.get_or_insert_with(|| image::pack(texts).into_boxed_slice());
        put(image, packed.as_mut_ptr().cast())?;
        put(bytes, packed.len())
    }

    Release fn cuLinkDestroy(state: CUlinkState) |driver| {
        driver.links.remove(state as usize).map(drop)
    }
}
