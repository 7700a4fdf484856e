//! Packs: compiled kernels in one run of bytes, for programs that carry theirs with `include_bytes!`.
//!
//! A pack holds kernels, each for one or more targets, as a cubin or as PTX, with what a launch must know. [`Pack::select`] finds
//! the one for a GPU: no compiler and, with a cubin, no JIT.
//!
//! A kernel is found by its name, or by what it was compiled from: its [source](PackedKernel::source), and of a kernel that was
//! compiled for certain arguments the [facts](PackedVariant) about these. What sources, facts and tensor maps are is known to who
//! compiles and launches; here they are a hash and text.
//!
//! ```text
//! magic 8 | version u32 | length of the pack u64 | number of kernels u64 | kernels | SHA-256 of all before
//! kernel: name, target, signatures, producer, code (each a u64 length and bytes) | form u8 | shared memory u32
//!         | overlaps u8 | block, cluster (each a u8, and three u32 where that is 1)
//!         | source (a u8, and 32 bytes where that is 1)
//!         | variant (a u8, and where that is 1 facts, maps, and a u8 with a u32 where that is 1: resident)
//! ```
//!
//! Numbers are little-endian and nothing is aligned. Reading copies nothing, trusts no length, and ends in a [`PackError`]
//! for anything but what [`PackBuilder::write`] wrote.

use std::fmt;

use thiserror::Error;
use tilewright_ptx::{Specificity, Target};

use crate::cache::Key;
use crate::cache::wire::{self, CHECKSUM, Reader};
use crate::device::ComputeCapability;

const MAGIC: &[u8; 8] = b"TWpack\r\n";
const VERSION: u32 = 2;
const HEADER: usize = 8 + 4 + 8 + 8;

/// What the code of a kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Form {
    /// PTX, which the driver compiles when it is loaded.
    Ptx,
    /// Machine code for one chip.
    Cubin,
}

impl Form {
    const fn code(self) -> u8 {
        match self {
            Form::Ptx => 0,
            Form::Cubin => 1,
        }
    }

    fn from_code(code: u8) -> Option<Form> {
        [Form::Ptx, Form::Cubin].into_iter().find(|form| form.code() == code)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Ptx => "PTX",
            Form::Cubin => "cubin",
        })
    }
}

/// A kernel that goes into a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedKernel {
    /// The name that it is asked for by; also that of its entry point.
    pub name: String,
    /// What it was compiled for.
    pub target: Target,
    /// What [`code`](PackedKernel::code) is.
    pub form: Form,
    /// The code.
    pub code: Vec<u8>,
    /// What the parameters are, as text.
    pub signatures: String,
    /// Bytes of dynamic shared memory that a launch must give.
    pub shared_dynamic: u32,
    /// Threads a block, where the kernel asks for a certain number.
    pub block: Option<[u32; 3]>,
    /// Blocks a cluster, where the kernel asks for a certain number.
    pub cluster: Option<[u32; 3]>,
    /// Whether it waits by itself for the kernels before it, so that a launch may let it start before they have ended.
    pub overlaps: bool,
    /// What made it, for people.
    pub producer: String,
    /// A hash of what it was compiled from, where it is to be found by that.
    pub source: Option<Key>,
    /// What it was compiled for, if not for any arguments; then it is not found by its name.
    pub variant: Option<PackedVariant>,
}

/// Arguments that a kernel in a pack was compiled for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackedVariant {
    /// What must be true of the arguments, as text.
    pub facts: String,
    /// Tensor maps that a launch makes and passes after all other arguments, as text.
    pub maps: String,
    /// Blocks on each multiprocessor that take turns at the work, if they do: a launch needs no more, and passes how many it would have
    /// after the maps.
    pub resident: Option<u32>,
}

/// A kernel in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedKernelRef<'a> {
    /// The name that it is asked for by; also that of its entry point.
    pub name: &'a str,
    /// What it was compiled for.
    pub target: Target,
    /// What [`code`](PackedKernelRef::code) is.
    pub form: Form,
    /// The code. It has no particular alignment, and PTX has no zero at its end.
    pub code: &'a [u8],
    /// What the parameters are, as text.
    pub signatures: &'a str,
    /// Bytes of dynamic shared memory that a launch must give.
    pub shared_dynamic: u32,
    /// Threads a block, where the kernel asks for a certain number.
    pub block: Option<[u32; 3]>,
    /// Blocks a cluster, where the kernel asks for a certain number.
    pub cluster: Option<[u32; 3]>,
    /// Whether it waits by itself for the kernels before it, so that a launch may let it start before they have ended.
    pub overlaps: bool,
    /// What made it, for people.
    pub producer: &'a str,
    /// A hash of what it was compiled from, where it is to be found by that.
    pub source: Option<Key>,
    /// What it was compiled for, if not for any arguments; then it is not found by its name.
    pub variant: Option<PackedVariantRef<'a>>,
}

/// Arguments that a kernel in a pack was compiled for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackedVariantRef<'a> {
    /// What must be true of the arguments, as text.
    pub facts: &'a str,
    /// Tensor maps that a launch makes and passes after all other arguments, as text.
    pub maps: &'a str,
    /// Blocks on each multiprocessor that take turns at the work, if they do: a launch needs no more, and passes how many it would have
    /// after the maps.
    pub resident: Option<u32>,
}

/// Why bytes are not a pack.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PackError {
    /// Something else.
    #[error(
        "not a pack: begins with {found:?}, expected {MAGIC:?}; write it with `tilewright compile --pack`"
    )]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// Of another version of this library.
    #[error("pack of format {found}, expected {VERSION}; write it again with this version")]
    Version {
        /// The format.
        found: u32,
    },
    /// Cut off, or something behind it.
    #[error("pack of {found} bytes, expected {expected}; it was cut off or added to, write it again")]
    Length {
        /// Bytes given.
        found: u64,
        /// Bytes that the pack says it has, or the least that a pack has.
        expected: u64,
    },
    /// Not the bytes that were written.
    #[error("damaged pack: the checksum does not match; write it again")]
    Checksum,
    /// The bytes are as written, but not by us.
    #[error("kernel {index} of the pack has no sound {part}; write it again with this version")]
    Kernel {
        /// Which, from 0.
        index: u64,
        /// What cannot be read.
        part: &'static str,
    },
    /// More behind the last kernel.
    #[error("pack of {kernels} kernels with something behind the last; write it again with this version")]
    Trailing {
        /// How many kernels it says it has.
        kernels: u64,
    },
}

/// Collects kernels and writes them as a pack.
///
/// ```
/// use tilewright_cuda::{ComputeCapability, Form, Pack, PackBuilder, PackedKernel};
///
/// let kernel = |target: &str, form, code: &str| {
///     Ok::<_, Box<dyn std::error::Error>>(PackedKernel {
///         name: "gemm".into(),
///         target: target.parse()?,
///         form,
///         code: code.into(),
///         signatures: "gemm(u64)".into(),
///         shared_dynamic: 0,
///         block: Some([128, 1, 1]),
///         cluster: None,
///         overlaps: false,
///         producer: "tilewright".into(),
///         source: None,
///         variant: None,
///     })
/// };
/// let bytes = PackBuilder::new()
///     .kernel(kernel("sm_80", Form::Ptx, ".version 7.0")?)
///     .kernel(kernel("sm_90a", Form::Cubin, "machine code")?)
///     .write();
///
/// let pack = Pack::parse(&bytes)?;
/// let on = |major, minor| pack.select("gemm", ComputeCapability { major, minor }).map(|kernel| kernel.form);
/// assert_eq!(on(9, 0), Some(Form::Cubin));
/// assert_eq!(on(8, 9), Some(Form::Ptx));
/// assert_eq!(on(7, 5), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PackBuilder {
    kernels: Vec<PackedKernel>,
}

impl PackBuilder {
    /// An empty pack.
    pub fn new() -> PackBuilder {
        PackBuilder::default()
    }

    /// Adds a kernel, in place of one with the same name, target, form, source and variant.
    pub fn kernel(mut self, kernel: PackedKernel) -> PackBuilder {
        self.extend([kernel]);
        self
    }

    /// The pack: the same bytes for the same kernels in the same order.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        let length = bytes.len()..bytes.len() + 8;
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&(self.kernels.len() as u64).to_le_bytes());
        self.kernels.iter().for_each(|kernel| kernel.write(&mut bytes));
        let total = (bytes.len() + CHECKSUM) as u64;
        bytes[length].copy_from_slice(&total.to_le_bytes());
        wire::seal(&mut bytes);
        bytes
    }
}

/// Each as [`PackBuilder::kernel`] adds it.
impl Extend<PackedKernel> for PackBuilder {
    fn extend<I: IntoIterator<Item = PackedKernel>>(&mut self, kernels: I) {
        for kernel in kernels {
            match self.kernels.iter_mut().find(|other| other.is_instead_of(&kernel)) {
                Some(other) => *other = kernel,
                None => self.kernels.push(kernel),
            }
        }
    }
}

impl PackedKernel {
    /// Whether the two would be found by the same question.
    fn is_instead_of(&self, other: &PackedKernel) -> bool {
        let facts = |kernel: &PackedKernel| kernel.variant.as_ref().map(|variant| variant.facts.clone());
        (&self.name, self.target, self.form, self.source)
            == (&other.name, other.target, other.form, other.source)
            && facts(self) == facts(other)
    }

    fn write(&self, to: &mut Vec<u8>) {
        let target = self.target.to_string();
        for text in [&self.name, &target, &self.signatures, &self.producer] {
            wire::put_field(to, text.as_bytes());
        }
        wire::put_field(to, &self.code);
        to.push(self.form.code());
        to.extend_from_slice(&self.shared_dynamic.to_le_bytes());
        to.push(u8::from(self.overlaps));
        for extent in [self.block, self.cluster] {
            to.push(u8::from(extent.is_some()));
            to.extend(extent.iter().flatten().flat_map(|size| size.to_le_bytes()));
        }
        to.push(u8::from(self.source.is_some()));
        to.extend(self.source.iter().flat_map(Key::bytes));
        to.push(u8::from(self.variant.is_some()));
        for text in self.variant.iter().flat_map(|variant| [&variant.facts, &variant.maps]) {
            wire::put_field(to, text.as_bytes());
        }
        if let Some(PackedVariant { resident, .. }) = &self.variant {
            to.push(u8::from(resident.is_some()));
            to.extend(resident.iter().flat_map(|blocks| blocks.to_le_bytes()));
        }
    }
}

impl<'a> PackedKernelRef<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<PackedKernelRef<'a>, &'static str> {
        let name = reader.text().ok_or("name")?;
        let target = reader.text().and_then(|text| text.parse().ok()).ok_or("target")?;
        let signatures = reader.text().ok_or("signatures")?;
        let producer = reader.text().ok_or("producer")?;
        let code = reader.field().ok_or("code")?;
        let form = reader.u8().and_then(Form::from_code).ok_or("form")?;
        let shared_dynamic = reader.u32().ok_or("size of shared memory")?;
        let overlaps = read_flag(reader).ok_or("mark of overlaps")?;
        let block = read_extent(reader).ok_or("block")?;
        let cluster = read_extent(reader).ok_or("cluster")?;
        let source = read_if(reader, |reader| reader.array().map(Key::from_bytes)).ok_or("source")?;
        let variant = |reader: &mut Reader<'a>| {
            let (facts, maps) = (reader.text()?, reader.text()?);
            Some(PackedVariantRef { facts, maps, resident: read_if(reader, Reader::u32)? })
        };
        let variant = read_if(reader, variant).ok_or("variant")?;
        Ok(PackedKernelRef {
            name,
            target,
            form,
            code,
            signatures,
            shared_dynamic,
            block,
            cluster,
            overlaps,
            producer,
            source,
            variant,
        })
    }

    fn is_named(&self, name: &str) -> bool {
        self.name == name && self.variant.is_none()
    }

    /// How well it suits a chip, the larger the better; `None` where it does not run there.
    fn rank(&self, chip: ComputeCapability) -> Option<(Place, Specificity, u16)> {
        let chip = chip.major.checked_mul(10)?.checked_add(chip.minor)?;
        let own = u32::from(self.target.sm);
        let family = own / 10 == chip / 10 && own <= chip;
        let specificity = self.target.specificity;
        let place = match (self.form, specificity) {
            (Form::Cubin, _) if own == chip => Place::Exact,
            (Form::Cubin, Specificity::Plain) if family => Place::Near,
            (Form::Ptx, Specificity::Plain) if own <= chip => Place::Compiled,
            (Form::Ptx, Specificity::Family) if family => Place::Compiled,
            (Form::Ptx, Specificity::Arch) if own == chip => Place::Compiled,
            _ => return None,
        };
        Some((place, specificity, self.target.sm))
    }
}

/// What a chip is offered, the best last.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// PTX, compiled when it is loaded.
    Compiled,
    /// A cubin of an earlier chip of the same generation.
    Near,
    /// A cubin of this chip.
    Exact,
}

fn read_flag(reader: &mut Reader<'_>) -> Option<bool> {
    match reader.u8()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// What follows a mark that says whether it follows.
fn read_if<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Option<Option<T>> {
    if read_flag(reader)? { read(reader).map(Some) } else { Some(None) }
}

fn read_extent(reader: &mut Reader<'_>) -> Option<Option<[u32; 3]>> {
    read_if(reader, |reader| Some([reader.u32()?, reader.u32()?, reader.u32()?]))
}

/// Compiled kernels, read in place.
///
/// ```no_run
/// # const BYTES: &[u8] = &[];
/// # use tilewright_cuda::Pack;
/// // const BYTES: &[u8] = include_bytes!("kernels.pack");
/// let pack = Pack::parse(BYTES)?;
/// for kernel in pack.kernels() {
///     println!("{}: {} for {}, {} bytes", kernel.name, kernel.form, kernel.target, kernel.code.len());
/// }
/// # Ok::<(), tilewright_cuda::PackError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pack<'a> {
    kernels: Vec<PackedKernelRef<'a>>,
}

impl<'a> Pack<'a> {
    /// Reads a pack. The whole of it is checked, so that what is found in it is what was written.
    pub fn parse(bytes: &'a [u8]) -> Result<Pack<'a>, PackError> {
        let found = bytes.len() as u64;
        let mut reader = Reader::new(bytes);
        if !bytes.starts_with(MAGIC) {
            return Err(PackError::Magic { found: bytes[..bytes.len().min(MAGIC.len())].to_vec() });
        }
        let least = PackError::Length { found, expected: (HEADER + CHECKSUM) as u64 };
        let mut header = || Some((reader.array::<8>()?, reader.u32()?, reader.u64()?, reader.u64()?));
        let (_, version, expected, count) = header().ok_or(least)?;
        if version != VERSION {
            return Err(PackError::Version { found: version });
        }
        if found != expected {
            return Err(PackError::Length { found, expected });
        }
        let content = wire::unseal(bytes).ok_or(PackError::Checksum)?;
        let mut reader = Reader::new(content.get(HEADER..).ok_or(PackError::Checksum)?);
        // Not reserved by the count, which a hostile pack can set as it likes.
        let mut kernels = Vec::new();
        for index in 0..count {
            let kernel = PackedKernelRef::read(&mut reader);
            kernels.push(kernel.map_err(|part| PackError::Kernel { index, part })?);
        }
        if !reader.is_empty() {
            return Err(PackError::Trailing { kernels: count });
        }
        Ok(Pack { kernels })
    }

    /// Every kernel, as added.
    pub fn kernels(&self) -> impl ExactSizeIterator<Item = &PackedKernelRef<'a>> {
        self.kernels.iter()
    }

    /// The kernel of this name that suits the GPU best, if one runs there: a cubin of exactly that chip, else a cubin of
    /// an earlier chip of the same generation (plain targets only), else PTX that the chip can take. Of two alike, the one
    /// that may use more of the chip: `sm_90a` before `sm_90`, and `sm_86` before `sm_80`.
    ///
    /// Kernels for certain arguments are not found by name, nor is any where kernels of several sources share it.
    pub fn select(&self, name: &str, chip: ComputeCapability) -> Option<&PackedKernelRef<'a>> {
        self.select_by(chip, self.named(name))
    }

    /// A wish for [`Pack::select_by`]: the kernel of this name, if it is the only one of the name.
    pub fn named<'n>(&self, name: &'n str) -> impl Fn(&PackedKernelRef<'_>) -> Option<()> + use<'n> {
        let mut sources =
            self.kernels.iter().filter(|kernel| kernel.is_named(name)).map(|kernel| kernel.source);
        let first = sources.next();
        let clear = sources.all(|source| Some(source) == first);
        move |kernel| (clear && kernel.is_named(name)).then_some(())
    }

    /// The kernel that is wished for most among those that run on the GPU; of several alike, the one that suits it best, as
    /// [`Pack::select`] says. A wish of nothing leaves a kernel out.
    pub fn select_by<W: Ord>(
        &self,
        chip: ComputeCapability,
        wish: impl Fn(&PackedKernelRef<'a>) -> Option<W>,
    ) -> Option<&PackedKernelRef<'a>> {
        let ranked =
            self.kernels.iter().filter_map(|kernel| Some((wish(kernel)?, kernel.rank(chip)?, kernel)));
        ranked.max_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1))).map(|(.., kernel)| kernel)
    }
}
