//! What an operation does when it runs. The same actions are the nodes of graphs.

use std::ffi::c_void;

use serde::Serialize;

use crate::cublaslt::Product;
use crate::entry::Driver;
use crate::execution::Recorded;
use crate::execution::schedule::Operation;
use crate::graph::Node;
use crate::tensor_map;

/// Something to do on a device.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Nothing: a place in the order.
    Empty,
    Launch(Box<Launch>),
    Copy(Box<Copy>),
    Fill(Fill),
    Product(Box<Product>),
    Host {
        function: Option<unsafe extern "C" fn(*mut c_void)>,
        data: usize,
    },
    /// The memory that starts here becomes usable.
    Allocate(u64),
    /// The memory that starts here is gone.
    Free(u64),
    RecordEvent(usize),
    WaitEvent(usize),
    /// A graph as a node of a graph; never in the schedule itself.
    Graph(Vec<Node>),
}

/// A kernel with everything given at its launch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) cluster: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cooperative: bool,
    /// Number of every launch attribute and its first 16 bytes.
    pub(crate) attributes: Vec<(u32, [u8; 16])>,
    pub(crate) params: Vec<u8>,
    /// Offset and size of every parameter in `params`.
    #[serde(skip)]
    pub(crate) layout: Vec<(usize, usize)>,
    #[serde(skip)]
    pub(crate) function: usize,
}

impl Launch {
    fn parameter(&self, index: usize) -> &[u8] {
        self.layout.get(index).and_then(|&(at, size)| self.params.get(at..at + size)).unwrap_or_default()
    }

    fn number(&self, index: usize) -> u64 {
        let mut bytes = [0; 8];
        let given = self.parameter(index);
        let size = given.len().min(8);
        bytes[..size].copy_from_slice(&given[..size]);
        u64::from_le_bytes(bytes)
    }

    /// Parameters that may be addresses: those of 8 bytes, and the address in a tensor map.
    fn addresses(&self) -> impl Iterator<Item = u64> {
        (0..self.layout.len()).filter_map(|index| match self.parameter(index) {
            bytes if bytes.len() == 8 => Some(self.number(index)),
            bytes => tensor_map::address_in(bytes),
        })
    }
}

/// Which addresses an end of a copy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    Device,
}

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) place: Place,
    pub(crate) address: u64,
    /// Bytes from row to row.
    pub(crate) pitch: u64,
    /// Bytes from plane to plane.
    pub(crate) plane: u64,
}

impl Endpoint {
    pub(crate) fn line(place: Place, address: u64) -> Endpoint {
        Endpoint { place, address, pitch: 0, plane: 0 }
    }

    fn row(&self, y: u64, z: u64) -> u64 {
        self.address.wrapping_add(y.wrapping_mul(self.pitch)).wrapping_add(z.wrapping_mul(self.plane))
    }
}

/// A copy of a box of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Copy {
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    pub(crate) width: u64,
    pub(crate) height: u64,
    pub(crate) depth: u64,
    /// Between devices, so either may own the memory.
    pub(crate) across: bool,
    /// The source, row by row, when it was read before the copy ran.
    pub(crate) staged: Option<Vec<u8>>,
}

/// A memset of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fill {
    pub(crate) address: u64,
    pub(crate) pitch: u64,
    pub(crate) value: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub(crate) element: u64,
    /// Elements in a row.
    pub(crate) width: u64,
    pub(crate) height: u64,
}

impl Action {
    pub(crate) fn name(&self) -> &str {
        match self {
            Action::Empty => "nothing",
            Action::Launch(launch) => &launch.name,
            Action::Copy(_) => "a copy",
            Action::Fill(_) => "a memset",
            Action::Product(_) => "a product",
            Action::Host { .. } => "a host function",
            Action::Allocate(_) => "an allocation",
            Action::Free(_) => "a free",
            Action::RecordEvent(_) => "an event record",
            Action::WaitEvent(_) => "an event wait",
            Action::Graph(_) => "a graph",
        }
    }

    /// Addresses that it may use; some may be numbers that only look like addresses.
    pub(crate) fn touches(&self) -> Box<dyn Iterator<Item = u64> + '_> {
        match self {
            Action::Launch(launch) => Box::new(launch.addresses()),
            Action::Copy(copy) if copy.staged.is_some() => Box::new([copy.to.address].into_iter()),
            Action::Copy(copy) => Box::new([copy.from.address, copy.to.address].into_iter()),
            Action::Fill(fill) => Box::new([fill.address].into_iter()),
            Action::Product(product) => Box::new(product.touches()),
            _ => Box::new(std::iter::empty()),
        }
    }
}

impl Copy {
    /// Reads a source in host memory now, as the driver does when that memory is not pinned.
    ///
    /// # Safety
    /// The source is readable host memory.
    pub(crate) unsafe fn stage(&mut self) {
        let mut bytes = Vec::with_capacity((self.width * self.height * self.depth) as usize);
        for (y, z) in self.rows() {
            let row = self.from.row(y, z) as *const u8;
            // SAFETY: the caller promised a readable source.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(row, self.width as usize) });
        }
        self.staged = Some(bytes);
    }

    fn rows(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let (width, height, depth) = (self.width, self.height, self.depth);
        (0..depth).flat_map(move |z| (0..height).map(move |y| (y, z))).filter(move |_| width > 0)
    }
}

impl Driver {
    pub(crate) fn perform(&mut self, id: u64, operation: &Operation) -> Result<(), String> {
        let device = operation.device;
        match &operation.action {
            Action::Launch(launch) => self.perform_launch(device, operation.stream, launch),
            Action::Copy(copy) => self.perform_copy(device, copy),
            Action::Fill(fill) => self.perform_fill(device, *fill),
            Action::Product(product) => self.perform_product(device, product),
            Action::Allocate(base) => self.perform_allocation(*base),
            Action::Free(base) => self.perform_free(*base),
            Action::RecordEvent(event) => {
                let now = self.schedule.clock;
                if let Ok(event) = self.events.get_mut(*event)
                    && event.recorded == Recorded::By(id)
                {
                    event.time = Some(now);
                }
                Ok(())
            }
            Action::Empty | Action::Host { .. } | Action::WaitEvent(_) | Action::Graph(_) => Ok(()),
        }
    }

    fn perform_launch(&mut self, device: usize, stream: u64, launch: &Launch) -> Result<(), String> {
        if self.functions.get(launch.function).is_err() {
            return Err("its module was unloaded before it ran".into());
        }
        self.record.launched(device, stream, launch);
        for address in launch.addresses() {
            self.memory.alive(address)?;
        }
        match launch.name.as_str() {
            "crash" => Err("it is the kernel that crashes".into()),
            "poke" => {
                let (address, value, width) = (launch.number(0), launch.number(1) as u32, launch.number(2));
                self.perform_fill(device, Fill { address, pitch: 0, value, element: 4, width, height: 1 })
            }
            "copy_words" => {
                let to = Endpoint::line(Place::Device, launch.number(0));
                let from = Endpoint::line(Place::Device, launch.number(1));
                let width = 4 * launch.number(2);
                let copy = Copy { from, to, width, height: 1, depth: 1, across: false, staged: None };
                self.perform_copy(device, &copy)
            }
            _ => Ok(()),
        }
    }

    /// The host address behind one row of an end of a copy.
    fn host_row(&self, device: usize, end: &Endpoint, row: u64, copy: &Copy) -> Result<*mut u8, String> {
        match end.place {
            Place::Host => self.memory.host(row, copy.width),
            Place::Device if copy.across => self.memory.anywhere(row, copy.width),
            Place::Device => self.memory_of(device, row, copy.width),
        }
    }

    fn perform_copy(&mut self, device: usize, copy: &Copy) -> Result<(), String> {
        let mut staged =
            copy.staged.iter().flat_map(|bytes| bytes.chunks_exact((copy.width as usize).max(1)));
        for (y, z) in copy.rows() {
            let to = self.host_row(device, &copy.to, copy.to.row(y, z), copy)?;
            let from = match staged.next() {
                Some(row) => row.as_ptr(),
                None => self.host_row(device, &copy.from, copy.from.row(y, z), copy)?,
            };
            // SAFETY: registered ranges hold both ends; unregistered host memory is the caller's promise.
            unsafe { std::ptr::copy(from, to, copy.width as usize) };
        }
        Ok(())
    }

    fn perform_fill(&mut self, device: usize, fill: Fill) -> Result<(), String> {
        let Fill { address, pitch, value, element, width, height } = fill;
        let pattern = &value.to_le_bytes()[..element as usize];
        for y in 0..height {
            let bytes = width.checked_mul(element).ok_or("its size overflows")?;
            let row = self.memory_of(device, address.wrapping_add(y.wrapping_mul(pitch)), bytes)?;
            for (offset, &byte) in (0..bytes as usize).zip(pattern.iter().cycle()) {
                // SAFETY: `memory_of` gave a live range of `bytes` bytes.
                unsafe { row.add(offset).write(byte) };
            }
        }
        Ok(())
    }
}
