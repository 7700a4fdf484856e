//! The simulator as a device: modules, buffers, launches.

use std::time::{Duration, Instant};

use half::{bf16, f16};
use tilewright_hardware::Arch;

use crate::SimError;
use crate::check::{Finding, FindingKind};
use crate::count::{Counts, LaunchFacts, OpClass, OpInfo};
use crate::machine::{self, Geometry};
use crate::memory::{Allocation, GlobalMemory, POISON};
use crate::program::{Function, MemorySpace, Program};
use crate::tensor::tensor_map::TensorMap;

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides the interleaving of warps and the delay of asynchronous work.
    pub seed: u64,
    /// Whether to look for races and the rest that needs memory of the past. What ends a kernel on hardware is found in any case.
    pub check: bool,
    /// Whether to count.
    pub count: bool,
    /// Threads of this computer to use; all if not given.
    pub threads: Option<usize>,
    /// Instructions of warps after which a kernel does not seem to end.
    pub budget: u64,
    /// The same for a single warp.
    pub warp_budget: u64,
    /// Multiprocessors of the simulated chip.
    pub multiprocessors: u32,
    /// The simulated chip; if not given, the oldest that the code is for. Code for an older chip may use all that a newer one has:
    ///
    /// ```
    /// use tilewright_hardware::Arch;
    /// use tilewright_sim::{Launch, Module, Options, Simulator};
    ///
    /// let module = Module::parse(".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry idle()\n{\nret;\n}\n")?;
    /// let launch = Launch::new(1, 32).shared(200 << 10);
    /// let findings = |chip| {
    ///     let mut simulator = Simulator::new(Options { chip, ..Options::default() });
    ///     Ok::<_, tilewright_sim::SimError>(simulator.launch(&module, "idle", &launch, &[])?.findings.len())
    /// };
    /// assert_eq!((findings(None)?, findings(Some(Arch::SM_90))?), (1, 0));
    /// # Ok::<(), tilewright_sim::SimError>(())
    /// ```
    pub chip: Option<Arch>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            seed: 0,
            check: true,
            count: false,
            threads: None,
            budget: 1_000_000_000,
            warp_budget: 30_000_000,
            multiprocessors: 132,
            chip: None,
        }
    }
}

impl Options {
    /// The default with another seed.
    #[must_use]
    pub fn with_seed(seed: u64) -> Options {
        Options { seed, ..Options::default() }
    }

    /// Without checks: for speed.
    #[must_use]
    pub fn unchecked() -> Options {
        Options { check: false, ..Options::default() }
    }

    /// With another budget of warp instructions, for all warps together and for each.
    #[must_use]
    pub fn budget(self, budget: u64) -> Options {
        Options { budget, warp_budget: budget, ..self }
    }
}

/// A PTX module, ready to run.
#[derive(Clone, Debug)]
pub struct Module {
    program: Program,
}

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name.
    pub name: String,
    /// Size.
    pub bytes: u32,
    /// Alignment.
    pub align: u32,
}

impl Module {
    /// Reads PTX text.
    pub fn parse(text: &str) -> Result<Module, SimError> {
        let module = tilewright_ptx::parse(text)?;
        Ok(Module { program: Program::decode(&module, text)? })
    }

    /// The names of its kernels.
    pub fn entries(&self) -> Vec<&str> {
        self.program
            .functions
            .iter()
            .filter(|function| function.entry)
            .map(|function| &*function.name)
            .collect()
    }

    /// The parameters of a kernel.
    pub fn parameters(&self, entry: &str) -> Option<Vec<Parameter>> {
        let function = &self.program.functions[self.program.entry(entry)?];
        let parameter = |param: &crate::program::Param| Parameter {
            name: param.name.clone(),
            bytes: param.bytes,
            align: param.align,
        };
        Some(function.params.iter().map(parameter).collect())
    }

    /// The block that a kernel must be launched with, if it says so.
    pub fn required_block(&self, entry: &str) -> Option<[u32; 3]> {
        self.program.functions[self.program.entry(entry)?].limits.required_threads
    }

    /// The cluster that a kernel must be launched with, if it says so.
    pub fn required_cluster(&self, entry: &str) -> Option<[u32; 3]> {
        self.program.functions[self.program.entry(entry)?].limits.required_cluster
    }

    /// The decoded program.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

/// The shape of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Blocks of a cluster; the kernel's own if not given.
    pub cluster: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
}

impl Launch {
    /// Blocks and threads along one axis.
    pub fn new(blocks: u32, threads: u32) -> Launch {
        Launch { grid: [blocks, 1, 1], block: [threads, 1, 1], cluster: None, shared_bytes: 0 }
    }

    /// With dynamic shared memory.
    #[must_use]
    pub fn shared(self, bytes: u32) -> Launch {
        Launch { shared_bytes: bytes, ..self }
    }

    /// With clusters of so many blocks.
    #[must_use]
    pub fn cluster(self, cluster: [u32; 3]) -> Launch {
        Launch { cluster: Some(cluster), ..self }
    }
}

/// Memory of a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    address: u64,
    bytes: usize,
}

impl Buffer {
    /// Its address on the device: that of a whole buffer is a multiple of 256.
    pub fn address(self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// `bytes` bytes of it from `offset` on, to read, write and copy; none if it has not as many.
    pub fn part(self, offset: usize, bytes: usize) -> Option<Buffer> {
        let end = offset.checked_add(bytes)?;
        (end <= self.bytes).then_some(Buffer { address: self.address + offset as u64, bytes })
    }
}

/// An argument of a kernel.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub enum Arg {
    /// The address of a buffer.
    Buffer(Buffer),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    /// Anything else, such as a struct.
    Bytes(Vec<u8>),
    /// A tensor map, passed by value.
    TensorMap(TensorMap),
}

impl Arg {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Arg::Buffer(buffer) => buffer.address.to_le_bytes().to_vec(),
            Arg::U32(value) => value.to_le_bytes().to_vec(),
            Arg::I32(value) => value.to_le_bytes().to_vec(),
            Arg::U64(value) => value.to_le_bytes().to_vec(),
            Arg::I64(value) => value.to_le_bytes().to_vec(),
            Arg::F32(value) => value.to_le_bytes().to_vec(),
            Arg::F64(value) => value.to_le_bytes().to_vec(),
            Arg::Bytes(bytes) => bytes.clone(),
            Arg::TensorMap(map) => map.encode().to_vec(),
        }
    }
}

/// What a run has shown.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// What the kernel does wrong; empty is good.
    pub findings: Vec<Finding>,
    /// Counts, all zero unless they were asked for.
    pub counts: Counts,
    /// What the kernel printed.
    pub output: String,
    /// The seed, to run it again.
    pub seed: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Instructions of single threads.
    pub thread_instructions: u64,
    /// Instructions of warps.
    pub warp_instructions: u64,
}

impl Report {
    /// Instructions of single threads in a second.
    pub fn speed(&self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
        let count = self.thread_instructions as f64;
        count / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// A number that buffers hold.
pub trait Sample: Copy + sealed::Sealed {
    /// Bytes of one.
    const BYTES: usize;
    /// Its bytes, little-endian.
    fn write(self, out: &mut Vec<u8>);
    /// From its bytes.
    fn read(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! samples {
    ($($ty:ty)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Sample for $ty {
            const BYTES: usize = size_of::<$ty>();
            fn write(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$ty>()];
                own.copy_from_slice(&bytes[..size_of::<$ty>()]);
                <$ty>::from_le_bytes(own)
            }
        }
    )*};
}

samples!(f32 f64 u8 i8 u16 i16 u32 i32 u64 i64 f16 bf16);

/// A device with memory, made of nothing but this computer.
#[derive(Debug, Default)]
pub struct Simulator {
    options: Options,
    memory: GlobalMemory,
    named: usize,
}

impl Simulator {
    /// A device without buffers.
    pub fn new(options: Options) -> Simulator {
        Simulator { options, memory: GlobalMemory::default(), named: 0 }
    }

    /// How it runs.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes how it runs.
    pub fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    fn next_name(&mut self) -> String {
        self.named += 1;
        format!("buffer {}", self.named - 1)
    }

    /// A buffer with contents.
    pub fn upload<T: Sample>(&mut self, data: &[T]) -> Buffer {
        let mut bytes = Vec::with_capacity(data.len() * T::BYTES);
        data.iter().for_each(|&value| value.write(&mut bytes));
        let name = self.next_name();
        self.upload_bytes(&name, &bytes)
    }

    /// A buffer with contents and a name for reports.
    pub fn upload_bytes(&mut self, name: &str, bytes: &[u8]) -> Buffer {
        let address = self.memory.allocate(name.to_owned(), bytes.to_vec(), true);
        Buffer { address, bytes: bytes.len() }
    }

    /// A buffer of bytes that are here already.
    pub fn upload_owned(&mut self, bytes: Vec<u8>) -> Buffer {
        let (name, len) = (self.next_name(), bytes.len());
        Buffer { address: self.memory.allocate(name, bytes, true), bytes: len }
    }

    /// A buffer that nobody has written, filled with poison.
    pub fn alloc(&mut self, bytes: usize) -> Buffer {
        let name = self.next_name();
        self.alloc_named(&name, bytes)
    }

    /// The same with a name for reports.
    pub fn alloc_named(&mut self, name: &str, bytes: usize) -> Buffer {
        let address = self.memory.allocate(name.to_owned(), vec![POISON; bytes], false);
        Buffer { address, bytes }
    }

    /// Gives a buffer up; accesses to it are out of bounds from now on.
    pub fn free(&mut self, buffer: Buffer) -> Result<(), SimError> {
        self.memory.remove(buffer.address).map(|_| ()).ok_or(SimError::NoBuffer { address: buffer.address })
    }

    /// The bytes of a buffer.
    pub fn read(&self, buffer: Buffer) -> Result<Vec<u8>, SimError> {
        Ok(self.bytes(buffer)?.to_vec())
    }

    /// The bytes of a buffer where they are.
    pub fn bytes(&self, buffer: Buffer) -> Result<&[u8], SimError> {
        let (index, offset) = self.locate(buffer)?;
        Ok(&self.memory.get(index).bytes[offset..offset + buffer.bytes])
    }

    /// The memory at an address, which may be anywhere in a buffer, such as one that a kernel would find in a table.
    ///
    /// ```
    /// use tilewright_sim::{Options, Simulator};
    ///
    /// let mut sim = Simulator::new(Options::default());
    /// let x = sim.upload(&[1u8, 2, 3]);
    /// assert_eq!(sim.bytes(sim.at(x.address() + 1, 2)?)?, [2, 3]);
    /// assert!(sim.at(x.address() + 1, 3).is_err());
    /// # Ok::<(), tilewright_sim::SimError>(())
    /// ```
    pub fn at(&self, address: u64, bytes: usize) -> Result<Buffer, SimError> {
        let buffer = Buffer { address, bytes };
        self.locate(buffer).map(|_| buffer)
    }

    /// Which allocation a buffer is a part of, and where in it.
    fn locate(&self, buffer: Buffer) -> Result<(usize, usize), SimError> {
        let gone = || SimError::NoBuffer { address: buffer.address };
        let index = self.memory.find(buffer.address, buffer.bytes, 0).ok_or_else(gone)?;
        let offset = usize::try_from(buffer.address - self.memory.get(index).address).map_err(|_| gone())?;
        Ok((index, offset))
    }

    /// Replaces the bytes of a buffer, all of them; they count as written.
    ///
    /// ```
    /// use tilewright_sim::{Options, Simulator};
    ///
    /// let mut sim = Simulator::new(Options::default());
    /// let (x, y) = (sim.upload(&[1u8, 2, 3]), sim.alloc(3));
    /// sim.copy(x, y)?;
    /// sim.write(x, &[4, 5, 6])?;
    /// assert_eq!((sim.read(x)?, sim.read(y)?), (vec![4, 5, 6], vec![1, 2, 3]));
    /// assert!(sim.write(x, &[0; 2]).is_err());
    /// # Ok::<(), tilewright_sim::SimError>(())
    /// ```
    pub fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), SimError> {
        let (offset, memory) = self.overwrite(buffer, bytes)?;
        memory.mark_written(offset, bytes.len());
        Ok(())
    }

    /// Copies a buffer over another of the same size. What nobody has written in the one counts as not written in the other.
    pub fn copy(&mut self, from: Buffer, to: Buffer) -> Result<(), SimError> {
        let (index, offset) = self.locate(from)?;
        let source = self.memory.get(index);
        let written: Vec<bool> = (offset..offset + from.bytes).map(|i| source.is_written(i, 1)).collect();
        let bytes = source.bytes[offset..offset + from.bytes].to_vec();
        let (offset, memory) = self.overwrite(to, &bytes)?;
        memory.set_written(offset, bytes.len(), |i| written[i]);
        Ok(())
    }

    /// Puts bytes into a buffer, and says where in which allocation.
    fn overwrite(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(usize, &mut Allocation), SimError> {
        if bytes.len() != buffer.bytes {
            return Err(SimError::Length { found: bytes.len(), expected: buffer.bytes });
        }
        let (index, offset) = self.locate(buffer)?;
        let memory = self.memory.get_mut(index);
        memory.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok((offset, memory))
    }

    /// The contents of a buffer.
    pub fn download<T: Sample>(&self, buffer: Buffer) -> Result<Vec<T>, SimError> {
        let bytes = self.read(buffer)?;
        if bytes.len() % T::BYTES != 0 {
            return Err(SimError::ElementSize { bytes: bytes.len(), element: T::BYTES });
        }
        Ok(bytes.chunks_exact(T::BYTES).map(T::read).collect())
    }

    /// The bytes of a variable of a module in global memory, after a launch.
    pub fn variable(&self, module: &Module, name: &str) -> Option<Vec<u8>> {
        let variable = module.program.variables.iter().find(|variable| variable.name == name)?;
        self.memory.at(variable.address).map(|found| found.bytes.clone())
    }

    /// Runs a kernel to its end.
    ///
    /// Module variables have their initial values at each launch.
    pub fn launch(
        &mut self,
        module: &Module,
        entry: &str,
        launch: &Launch,
        arguments: &[Arg],
    ) -> Result<Report, SimError> {
        let program = &module.program;
        let index = program.entry(entry).ok_or_else(|| SimError::NoKernel {
            name: entry.to_owned(),
            known: if module.entries().is_empty() { "none".to_owned() } else { module.entries().join(", ") },
        })?;
        let kernel = &program.functions[index];
        let params = pack(kernel, arguments)?;
        let geometry = self.geometry(program, kernel, launch)?;
        let started = Instant::now();
        let refused = self.refuse(program, kernel, launch, &geometry);
        if !refused.is_empty() {
            return Ok(Report {
                findings: refused,
                counts: Counts::default(),
                output: String::new(),
                seed: self.options.seed,
                elapsed: started.elapsed(),
                thread_instructions: 0,
                warp_instructions: 0,
            });
        }
        for variable in &program.variables {
            self.memory.insert(Allocation {
                name: variable.name.clone(),
                address: variable.address,
                bytes: variable.init.clone(),
                written: None,
                constant: variable.space == MemorySpace::Const,
            });
        }
        let outcome = machine::run(program, index, &geometry, &params, &mut self.memory, &self.options)?;
        let counts = if self.options.count {
            Counts::new(&outcome.sites, ops(program), facts(program, kernel, launch, &geometry))
        } else {
            Counts::default()
        };
        Ok(Report {
            findings: outcome.findings,
            counts,
            output: outcome.output,
            seed: self.options.seed,
            elapsed: started.elapsed(),
            thread_instructions: outcome.thread_ops,
            warp_instructions: outcome.warp_ops,
        })
    }

    fn geometry(&self, program: &Program, kernel: &Function, launch: &Launch) -> Result<Geometry, SimError> {
        let positive = |what: &'static str, extents: [u32; 3], limits: [u32; 3]| {
            let fits = extents.iter().zip(limits).all(|(&extent, limit)| (1..=limit).contains(&extent));
            if fits {
                Ok(())
            } else {
                let expected = format!("every extent must be at least 1 and at most {limits:?}");
                Err(SimError::Geometry { what, found: extents, expected })
            }
        };
        positive("the grid", launch.grid, [i32::MAX.cast_unsigned(), 65_535, 65_535])?;
        positive("the block", launch.block, [1024, 1024, 64])?;
        let cluster = launch.cluster.or(kernel.limits.required_cluster).unwrap_or([1; 3]);
        positive("the cluster", cluster, [16, 16, 16])?;
        if launch.grid.iter().zip(cluster).any(|(&grid, cluster)| grid % cluster != 0) {
            let expected = format!("it must be a multiple of the cluster {cluster:?} along each axis");
            return Err(SimError::Geometry { what: "the grid", found: launch.grid, expected });
        }
        if let (Some(given), Some(required)) = (launch.cluster, kernel.limits.required_cluster)
            && given != required
        {
            let expected = format!("the kernel requires {required:?}");
            return Err(SimError::Geometry { what: "the cluster", found: given, expected });
        }
        let arch = self.chip(program);
        let threads: u32 = launch.block.iter().product::<u32>().min(1024);
        let blocks = cluster.iter().product();
        let multiprocessors = self.options.multiprocessors.max(1);
        let shared = kernel.shared_bytes.saturating_add(launch.shared_bytes);
        Ok(Geometry {
            grid: launch.grid,
            block: launch.block,
            cluster,
            explicit_cluster: launch.cluster.is_some() || kernel.limits.required_cluster.is_some(),
            static_shared: kernel.shared_bytes,
            dynamic_shared: launch.shared_bytes,
            multiprocessors,
            register_file: arch.limits().registers_per_sm,
            max_registers: kernel.limits.max_registers,
            capacity: machine::capacity(
                arch,
                threads,
                kernel.assembled_registers(arch),
                shared,
                blocks,
                multiprocessors,
            ),
            ops: program.functions.iter().map(|function| function.code.len()).sum(),
        })
    }

    /// The chip that a program runs on: none older than the one that it is for.
    fn chip(&self, program: &Program) -> Arch {
        let target = arch_of(program);
        self.options.chip.filter(|chip| chip.number >= target.number).unwrap_or(target)
    }

    /// What the driver would refuse.
    fn refuse(
        &self,
        program: &Program,
        kernel: &Function,
        launch: &Launch,
        geometry: &Geometry,
    ) -> Vec<Finding> {
        let chip = self.chip(program);
        let limits = chip.limits();
        let threads = launch.block.iter().map(|&extent| u64::from(extent)).product::<u64>();
        let shared = u64::from(kernel.shared_bytes) + u64::from(launch.shared_bytes);
        let mut reasons: Vec<(String, &str)> = Vec::new();
        let smaller = "use smaller tiles, fewer stages or fewer threads";
        if threads > u64::from(limits.threads_per_block) {
            reasons.push((
                format!(
                    "the block has {threads} threads, but at most {} are possible",
                    limits.threads_per_block
                ),
                smaller,
            ));
        }
        if kernel.shared_bytes > 48 * 1024 {
            let reason = format!(
                "the kernel declares {} bytes of static shared memory, but at most 49152 are possible",
                kernel.shared_bytes
            );
            reasons.push((reason, "use dynamic shared memory (.extern .shared), which can be larger"));
        }
        if shared > u64::from(limits.shared_per_block) {
            let reason = format!(
                "the block needs {shared} bytes of shared memory ({} static, {} dynamic), but a block on {} has at most {}",
                kernel.shared_bytes, launch.shared_bytes, chip, limits.shared_per_block
            );
            reasons.push((reason, smaller));
        }
        if let Some(required) = kernel.limits.required_threads.filter(|&required| required != launch.block) {
            let reason = format!(
                "the kernel requires blocks of {required:?} threads (.reqntid), but the launch has {:?}",
                launch.block
            );
            reasons.push((reason, "launch it with the block that it requires"));
        }
        if let Some(most) = kernel
            .limits
            .max_threads
            .map(|most| most.iter().map(|&extent| u64::from(extent)).product::<u64>())
            && threads > most
        {
            let reason = format!(
                "the kernel allows at most {most} threads in a block (.maxntid), but the launch has {threads}"
            );
            reasons.push((reason, "launch it with smaller blocks"));
        }
        if geometry.cluster_blocks() > 16 {
            let reason = format!(
                "the cluster has {} blocks, but at most 8 are portable and 16 possible",
                geometry.cluster_blocks()
            );
            reasons.push((reason, "use smaller clusters"));
        }
        let line = kernel.lines.first().copied().unwrap_or(0);
        reasons
            .into_iter()
            .map(|(reason, fix)| {
                machine::refused(FindingKind::ResourcesExceeded, reason, fix, line, self.options.seed)
            })
            .collect()
    }
}

/// The chip that a program is for.
fn arch_of(program: &Program) -> Arch {
    Arch { number: u32::from(program.target.sm), specific: false }
}

/// The bytes of the parameters.
fn pack(kernel: &Function, arguments: &[Arg]) -> Result<Vec<u8>, SimError> {
    if arguments.len() != kernel.params.len() {
        return Err(SimError::ArgumentCount {
            kernel: kernel.name.clone(),
            expected: kernel.params.len(),
            found: arguments.len(),
        });
    }
    let mut params = vec![0; kernel.param_bytes as usize];
    for (index, (param, argument)) in kernel.params.iter().zip(arguments).enumerate() {
        let bytes = argument.bytes();
        if bytes.len() != param.bytes as usize {
            return Err(SimError::ArgumentSize {
                kernel: kernel.name.clone(),
                index,
                name: param.name.clone(),
                found: bytes.len(),
                expected: param.bytes as usize,
            });
        }
        let from = param.offset as usize;
        params[from..from + bytes.len()].copy_from_slice(&bytes);
    }
    Ok(params)
}

fn ops(program: &Program) -> impl Iterator<Item = OpInfo> + '_ {
    program.functions.iter().flat_map(move |function| {
        (0..function.code.len()).map(move |pc| {
            let text = function.instruction_text(u32::try_from(pc).unwrap_or(0));
            let source = function.sources[pc].map(|source| {
                (program.files.get(&source.file).cloned().unwrap_or_default(), source.line, source.column)
            });
            OpInfo { line: function.lines[pc], class: OpClass::of(&text), text, source }
        })
    })
}

fn facts(program: &Program, kernel: &Function, launch: &Launch, geometry: &Geometry) -> LaunchFacts {
    let target = arch_of(program);
    LaunchFacts {
        grid: launch.grid,
        block: launch.block,
        cluster: geometry.explicit_cluster.then_some(geometry.cluster),
        static_shared_bytes: kernel.shared_bytes,
        dynamic_shared_bytes: launch.shared_bytes,
        registers: kernel.assembled_registers(target.max(Arch::SM_80)),
        target,
    }
}
