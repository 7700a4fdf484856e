//! The memory of a run: the caller's buffers, each at an address of its own.
//!
//! Addresses are opaque: the high bits name a buffer, the low ones a byte of it, and no two buffers are near each other. So a pointer
//! that runs out of its buffer hits nothing, whatever it was added to, and every access is checked.

use tilewright_ir::{Constant, Element, canonical};

/// Bits of an address that count bytes of a buffer.
const SPAN: u32 = 40;

/// What a kernel is called with: one for each parameter.
#[derive(Debug)]
pub enum Argument<'a> {
    /// A scalar, as the IR stores constants: integers sign- or zero-extended, floats by their encoding.
    Scalar(Constant),
    /// A pointer to memory that the kernel may read and write.
    Memory(&'a mut [u8]),
    /// A pointer to memory that the kernel may only read.
    Shared(&'a [u8]),
    /// A pointer into the memory of another argument, so many bytes from its start.
    Within {
        /// The position of that argument.
        argument: usize,
        /// The distance in bytes.
        offset: u64,
    },
}

/// Why an access failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not inside any buffer.
    Outside,
    /// The address is no multiple of the element's size.
    Misaligned,
    /// It writes what may only be read.
    ReadOnly,
    /// It reads from a buffer that this program has written to, and whose new contents are kept apart.
    Reread,
}

/// Bytes that were written, in order: the buffer, the first byte, the contents.
pub(super) type Writes = Vec<(usize, usize, Vec<u8>)>;

/// A buffer with its address.
#[derive(Debug)]
struct Buffer<'a> {
    argument: usize,
    bytes: Bytes<'a>,
}

#[derive(Debug)]
enum Bytes<'a> {
    Mutable(&'a mut [u8]),
    Shared(&'a [u8]),
    /// What is written goes to the list of writes; whether there is something of this buffer.
    Apart(&'a [u8], bool),
}

impl Bytes<'_> {
    fn get(&self) -> &[u8] {
        match self {
            Bytes::Mutable(bytes) => bytes,
            Bytes::Shared(bytes) | Bytes::Apart(bytes, _) => bytes,
        }
    }
}

/// All buffers of a run.
#[derive(Debug, Default)]
pub(super) struct Memory<'a> {
    buffers: Vec<Buffer<'a>>,
    writes: Writes,
}

impl<'a> Memory<'a> {
    /// Adds the buffer of an argument; gives its address.
    pub(super) fn add(&mut self, argument: usize, given: &'a mut Argument<'_>) -> Option<u64> {
        let bytes = match given {
            Argument::Memory(bytes) => Bytes::Mutable(bytes),
            Argument::Shared(bytes) => Bytes::Shared(bytes),
            Argument::Scalar(_) | Argument::Within { .. } => return None,
        };
        self.buffers.push(Buffer { argument, bytes });
        Some((self.buffers.len() as u64) << SPAN)
    }

    /// The same memory for a program that runs beside others: what it writes is kept apart.
    pub(super) fn apart(&self) -> Memory<'_> {
        let buffers = self.buffers.iter().map(|buffer| {
            let bytes = match &buffer.bytes {
                Bytes::Mutable(bytes) => Bytes::Apart(bytes, false),
                Bytes::Shared(bytes) | Bytes::Apart(bytes, _) => Bytes::Shared(bytes),
            };
            Buffer { argument: buffer.argument, bytes }
        });
        Memory { buffers: buffers.collect(), writes: Writes::new() }
    }

    /// What was kept apart.
    pub(super) fn into_writes(self) -> Writes {
        self.writes
    }

    /// Writes what was kept apart.
    pub(super) fn apply(&mut self, writes: Writes) {
        for (index, start, contents) in writes {
            if let Bytes::Mutable(bytes) = &mut self.buffers[index].bytes {
                bytes[start..start + contents.len()].copy_from_slice(&contents);
            }
        }
    }

    /// The buffer that an address names: the argument, and the distance from its start.
    pub(super) fn owner(&self, address: u64) -> Option<(usize, i64, usize)> {
        // A distance a little below zero belongs to the buffer above.
        let index = (address.wrapping_add(1 << (SPAN - 1)) >> SPAN).checked_sub(1)?;
        let buffer = self.buffers.get(usize::try_from(index).ok()?)?;
        let distance = address.wrapping_sub((index + 1) << SPAN).cast_signed();
        Some((buffer.argument, distance, buffer.bytes.get().len()))
    }

    fn place(&self, address: u64, bytes: usize) -> Option<(usize, usize)> {
        let index = usize::try_from(address >> SPAN).ok()?.checked_sub(1)?;
        let start = usize::try_from(address & ((1 << SPAN) - 1)).ok()?;
        let end = start.checked_add(bytes)?;
        (end <= self.buffers.get(index)?.bytes.get().len()).then_some((index, start))
    }

    /// Reads an element.
    pub(super) fn read(&self, element: Element, address: u64) -> Result<u64, Fault> {
        let bytes = element.bytes() as usize;
        let (index, start) = self.place(address, bytes).ok_or(Fault::Outside)?;
        if !start.is_multiple_of(bytes) {
            return Err(Fault::Misaligned);
        }
        if matches!(self.buffers[index].bytes, Bytes::Apart(_, true)) {
            return Err(Fault::Reread);
        }
        let slice = &self.buffers[index].bytes.get()[start..start + bytes];
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(slice);
        let bits = u64::from_le_bytes(word);
        Ok(if element.is_bool() { u64::from(bits != 0) } else { canonical(element, bits) })
    }

    /// Writes an element.
    pub(super) fn write(&mut self, element: Element, address: u64, bits: u64) -> Result<(), Fault> {
        let bytes = element.bytes() as usize;
        let (index, start) = self.place(address, bytes).ok_or(Fault::Outside)?;
        if !start.is_multiple_of(bytes) {
            return Err(Fault::Misaligned);
        }
        let contents = &bits.to_le_bytes()[..bytes];
        match &mut self.buffers[index].bytes {
            Bytes::Mutable(all) => all[start..start + bytes].copy_from_slice(contents),
            Bytes::Shared(_) => return Err(Fault::ReadOnly),
            Bytes::Apart(_, written) => {
                *written = true;
                match self.writes.last_mut() {
                    Some((last, first, run)) if *last == index && *first + run.len() == start => {
                        run.extend_from_slice(contents);
                    }
                    _ => self.writes.push((index, start, contents.to_vec())),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_access_is_inside_one_buffer() {
        let (mut a, b) = ([1u8, 2, 3, 4, 5, 6, 7, 0xff], [9u8; 4]);
        let mut arguments = [Argument::Memory(&mut a), Argument::Shared(&b)];
        let mut memory = Memory::default();
        let [first, second] = &mut arguments;
        let (first, second) = (memory.add(0, first).unwrap(), memory.add(1, second).unwrap());
        assert_eq!(memory.read(Element::U16, first + 2), Ok(0x0403));
        assert_eq!(memory.read(Element::I8, first + 7), Ok(u64::MAX));
        assert_eq!(memory.read(Element::U16, first + 1), Err(Fault::Misaligned));
        assert_eq!(memory.read(Element::U16, first + 8), Err(Fault::Outside));
        assert_eq!(memory.read(Element::U8, first.wrapping_sub(1)), Err(Fault::Outside));
        assert_eq!(memory.read(Element::U8, 0), Err(Fault::Outside));
        assert_eq!(memory.write(Element::U32, second, 0), Err(Fault::ReadOnly));
        assert_eq!(memory.write(Element::U32, first + 4, 0x0102_0304), Ok(()));
        assert_eq!(memory.owner(first + 8), Some((0, 8, 8)));
        assert_eq!(memory.owner(second - 4), Some((1, -4, 4)));
        assert_eq!(memory.owner(12), None);
        assert_eq!(a, [1, 2, 3, 4, 4, 3, 2, 1]);
    }
}
