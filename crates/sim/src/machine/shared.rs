//! Where the variables of a block lie in its shared memory.

use crate::program::Function;

/// A variable in shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    /// What reports call it.
    pub(crate) name: String,
    /// First byte.
    pub(crate) start: u32,
    /// Byte behind the last.
    pub(crate) end: u32,
}

/// The variables of a launch, by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedMap {
    regions: Vec<Region>,
    /// Bytes of the window in use.
    pub(crate) end: u32,
}

impl SharedMap {
    /// The static variables of a kernel, and its dynamic ones with the size of the launch.
    pub(crate) fn new(kernel: &Function, dynamic_bytes: u32) -> SharedMap {
        let mut regions: Vec<Region> = kernel
            .shared
            .iter()
            .map(|variable| Region {
                name: variable.name.clone(),
                start: variable.offset,
                end: variable.offset + variable.bytes,
            })
            .collect();
        let start = kernel.dynamic.as_ref().map_or(kernel.shared_end, |dynamic| dynamic.offset);
        if dynamic_bytes > 0 {
            let name = kernel.dynamic.as_ref().map_or("dynamic shared memory", |dynamic| &dynamic.name);
            regions.push(Region { name: name.to_owned(), start, end: start.saturating_add(dynamic_bytes) });
        }
        let end = regions.iter().map(|region| region.end).max().unwrap_or(0);
        regions.sort_by_key(|region| region.start);
        SharedMap { regions, end }
    }

    /// The variable that holds `len` bytes from an offset on.
    #[inline]
    pub(crate) fn find(&self, offset: u32, len: u32) -> Option<&Region> {
        self.regions
            .iter()
            .find(|region| offset >= region.start && offset < region.end && len <= region.end - offset)
    }

    /// The variable nearest below an offset, for messages.
    pub(crate) fn nearest(&self, offset: u32) -> Option<&Region> {
        self.regions.iter().rfind(|region| region.start <= offset)
    }
}
