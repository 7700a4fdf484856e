//! Images that modules are made from: PTX as text, and the container that this driver's linker makes of it.
//!
//! A container looks like the beginning of an ELF file, then has its length, a checksum and the PTX texts. Real cubins
//! hold machine code, which nothing here can read: they are refused like damaged ones. `cuModuleLoadData` is not told
//! a length, so of an image that was cut short it sees whatever lies behind; the checksum then tells.

use cudarc::driver::sys::CUresult;
use tilewright_ptx::{Module, Version};

use crate::device::limit;

const MAGIC: &[u8] = b"\x7fELFfake";
/// Magic, length of the rest and checksum of the rest.
const HEADER: usize = MAGIC.len() + 16;
/// Far more than any kernel; a longer length is damage.
const LONGEST: u64 = 1 << 30;
/// PTX ISA that the driver's compiler knows.
const NEWEST: Version = Version::new(9, 0);

/// Why an image was refused, and what the log says.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: CUresult,
    pub(crate) log: String,
}

impl Refusal {
    fn damaged(log: &str) -> Refusal {
        Refusal { code: CUresult::CUDA_ERROR_INVALID_IMAGE, log: log.into() }
    }
}

/// The container of some PTX texts.
pub(crate) fn pack(texts: &[String]) -> Vec<u8> {
    let mut payload = Vec::new();
    for text in texts {
        payload.extend((text.len() as u64).to_le_bytes());
        payload.extend(text.as_bytes());
    }
    let mut image = MAGIC.to_vec();
    image.extend((payload.len() as u64).to_le_bytes());
    image.extend(checksum(&payload).to_le_bytes());
    image.extend(payload);
    image
}

/// The PTX texts of a container.
pub(crate) fn unpack(image: &[u8]) -> Result<Vec<String>, Refusal> {
    let number =
        |at: usize| -> Option<u64> { Some(u64::from_le_bytes(image.get(at..at + 8)?.try_into().ok()?)) };
    let short = || Refusal::damaged("the image is truncated");
    let (length, sum) = (number(MAGIC.len()).ok_or_else(short)?, number(MAGIC.len() + 8).ok_or_else(short)?);
    let mut rest = image.get(HEADER..HEADER + length as usize).ok_or_else(short)?;
    if checksum(rest) != sum {
        return Err(Refusal::damaged("the image is damaged"));
    }
    let mut texts = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let text = after.get(..u64::from_le_bytes(*length) as usize).ok_or_else(short)?;
        texts.push(String::from_utf8_lossy(text).into_owned());
        rest = &after[text.len()..];
    }
    Ok(texts)
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xCBF2_9CE4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// Reads an image of unknown length from memory, as `cuModuleLoadData` must.
///
/// # Safety
/// `image` points to a container or to text that ends with a zero. A container may be cut short.
pub(crate) unsafe fn read(image: *const u8) -> Result<Vec<String>, Refusal> {
    // SAFETY: text is read to its zero at most, and no container begins with one.
    let starts_with =
        |magic: &[u8]| magic.iter().enumerate().all(|(at, &byte)| unsafe { *image.add(at) } == byte);
    if starts_with(MAGIC) {
        let mut header = [0; HEADER];
        let short = || Refusal::damaged("the image is truncated");
        peek(image as u64, &mut header).ok_or_else(short)?;
        let length = header[MAGIC.len()..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if length > LONGEST {
            return Err(short());
        }
        let mut whole = vec![0; HEADER + length as usize];
        peek(image as u64, &mut whole).ok_or_else(short)?;
        return unpack(&whole);
    }
    if starts_with(b"\x7fELF") {
        return Err(Refusal::damaged("machine code cannot run here"));
    }
    // SAFETY: no container, so text that ends with a zero.
    let text = unsafe { std::ffi::CStr::from_ptr(image.cast()) };
    Ok(vec![text.to_string_lossy().into_owned()])
}

/// Copies memory that may not be there: the length in a truncated image points past what the caller has.
#[cfg(target_os = "linux")]
fn peek(address: u64, into: &mut [u8]) -> Option<()> {
    use std::os::unix::fs::FileExt;
    std::fs::File::open("/proc/self/mem").ok()?.read_exact_at(into, address).ok()
}

#[cfg(not(target_os = "linux"))]
fn peek(address: u64, into: &mut [u8]) -> Option<()> {
    // SAFETY: no way to ask here whether the memory is there, so truncated images must not be given.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, into.as_mut_ptr(), into.len()) };
    Some(())
}

/// Parses PTX as the driver's compiler would, with its errors.
pub(crate) fn compile(text: &str) -> Result<Module, Refusal> {
    // Without these words the driver does not take an image for PTX at all.
    if !text.contains(".version") {
        return Err(Refusal::damaged("the image is neither PTX nor a cubin"));
    }
    let refuse = |code, log: String| Refusal { code, log: format!("ptxas fatal   : {log}") };
    let module = tilewright_ptx::parse(text)
        .map_err(|error| refuse(CUresult::CUDA_ERROR_INVALID_PTX, error.to_string()))?;
    if module.version > NEWEST {
        let log = format!("Unsupported .version {}; current version is '{NEWEST}'", module.version);
        return Err(refuse(CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION, log));
    }
    let (major, minor) = limit::CAPABILITY;
    if u32::from(module.target.sm) > major * 10 + minor {
        let log = format!("{} cannot be compiled to sm_{major}{minor}", module.target);
        return Err(refuse(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, log));
    }
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_survive_and_damage_is_found() {
        let texts = vec!["one".to_string(), String::new(), "three".to_string()];
        let image = pack(&texts);
        assert_eq!(unpack(&image).unwrap(), texts);
        for length in 0..image.len() {
            assert_eq!(unpack(&image[..length]).unwrap_err().code, CUresult::CUDA_ERROR_INVALID_IMAGE);
        }
        for at in MAGIC.len()..image.len() {
            let mut damaged = image.clone();
            damaged[at] ^= 0x40;
            assert!(unpack(&damaged).is_err(), "byte {at}");
        }
    }
}
