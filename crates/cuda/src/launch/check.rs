//! The checks of a launch: shape and arguments. No call to the driver on the way of a launch that is in order.

use std::sync::atomic::Ordering;

use tilewright_ptx::{Access, Class as PtxClass, Parameter, ParameterKind, PointerSpace};

use super::argument::Arg;
use super::config::LaunchConfig;
use crate::code::Kernel;
use crate::device::Device;
use crate::error::CudaError;
use crate::ffi::launch::Shape;

/// The largest cluster that all devices with clusters can run; more must be asked for.
const PORTABLE_CLUSTER: u32 = 8;

fn volume([x, y, z]: [u32; 3]) -> u64 {
    u64::from(x) * u64::from(y) * u64::from(z)
}

fn extents([x, y, z]: [u32; 3]) -> String {
    format!("{x}x{y}x{z}")
}

impl Kernel {
    /// The shape of a launch, if the kernel can have it.
    #[inline]
    pub(crate) fn shape(&self, config: &LaunchConfig) -> Result<Shape, CudaError> {
        if let Some(block) = config.block
            && self.inner.gate.passes(config, block, self.inner.opted_in.load(Ordering::Acquire))
        {
            return Ok(Shape {
                grid: config.grid,
                block,
                shared: config.shared,
                cluster: None,
                cooperative: false,
                programmatic: config.programmatic,
                priority: config.priority,
            });
        }
        self.closer_look(config)
    }

    /// The same for launches out of the ordinary.
    #[cold]
    fn closer_look(&self, config: &LaunchConfig) -> Result<Shape, CudaError> {
        let device = self.context().device();
        let signature = self.signature();
        let Some(block) = config.block.or(signature.required_block) else {
            return Err(self.wrong(
                "the block",
                "nothing".to_owned(),
                "the number of threads; the kernel does not fix it".to_owned(),
            ));
        };
        let cluster = config.cluster.or(signature.required_cluster);
        let shape = Shape {
            grid: config.grid,
            block,
            shared: config.shared,
            // The code itself says it; saying it again would take the slower way to the driver.
            cluster: if signature.required_cluster.is_some() { None } else { config.cluster },
            cooperative: config.cooperative,
            programmatic: config.programmatic,
            priority: config.priority,
        };
        let inside = |extents: [u32; 3], most: [u32; 3]| (0..3).all(|i| (1..=most[i]).contains(&extents[i]));
        let threads = volume(block);
        let fits = inside(config.grid, device.largest_grid)
            && inside(block, device.largest_block)
            && threads <= u64::from(self.inner.attributes.threads_per_block)
            && signature.required_block.is_none_or(|required| required == block)
            && signature.max_block.is_none_or(|most| threads <= volume(most))
            && u64::from(config.shared) + u64::from(self.inner.attributes.shared_bytes)
                <= device.shared_bytes_per_block;
        if !fits {
            return Err(self.explain(config, block, device));
        }
        if let Some(cluster) = cluster {
            self.check_cluster(config, cluster, device)?;
        }
        if config.cooperative {
            self.check_cooperative(config, threads, device)?;
        }
        self.opt_in(config.shared)?;
        Ok(shape)
    }

    /// What is wrong with a shape that does not fit.
    #[cold]
    fn explain(&self, config: &LaunchConfig, block: [u32; 3], device: &Device) -> CudaError {
        let inside = |extents: [u32; 3], most: [u32; 3]| (0..3).all(|i| (1..=most[i]).contains(&extents[i]));
        let signature = self.signature();
        if !inside(config.grid, device.largest_grid) {
            let most = format!("1x1x1 to {}", extents(device.largest_grid));
            return self.wrong("the grid", extents(config.grid), most);
        }
        if !inside(block, device.largest_block) {
            return self.wrong(
                "the block",
                extents(block),
                format!("1x1x1 to {}", extents(device.largest_block)),
            );
        }
        if let Some(required) = signature.required_block.filter(|required| *required != block) {
            return self.wrong(
                "the block",
                extents(block),
                format!("{}, which the kernel was compiled for", extents(required)),
            );
        }
        let threads = volume(block);
        let most = u64::from(self.inner.attributes.threads_per_block);
        if threads > most {
            let expected = format!(
                "at most {most} threads, with the {} registers of each",
                self.inner.attributes.registers
            );
            return self.wrong("the block", format!("{} = {threads} threads", extents(block)), expected);
        }
        if let Some(most) = signature.max_block.filter(|most| threads > volume(*most)) {
            let expected = format!("at most {} threads, which the kernel was compiled for", volume(most));
            return self.wrong("the block", format!("{} = {threads} threads", extents(block)), expected);
        }
        let fixed = self.inner.attributes.shared_bytes;
        let found = format!("{} bytes and {fixed} that the code declares", config.shared);
        self.wrong(
            "shared memory",
            found,
            format!("at most {} bytes together", device.shared_bytes_per_block),
        )
    }

    fn check_cluster(
        &self,
        config: &LaunchConfig,
        cluster: [u32; 3],
        device: &Device,
    ) -> Result<(), CudaError> {
        let signature = self.signature();
        let found = || extents(cluster);
        if !device.clusters {
            let expected =
                "no cluster: only devices of compute capability 9.0 and newer have them".to_owned();
            return Err(self.wrong("the cluster", found(), expected));
        }
        if let Some(required) = signature.required_cluster.filter(|required| *required != cluster) {
            return Err(self.wrong(
                "the cluster",
                found(),
                format!("{}, which the kernel was compiled for", extents(required)),
            ));
        }
        let blocks = volume(cluster);
        let most = signature.max_cluster.unwrap_or(16).min(16);
        if blocks == 0 || blocks > u64::from(most) {
            return Err(self.wrong(
                "the cluster",
                format!("{} = {blocks} blocks", found()),
                format!("1 to {most} blocks"),
            ));
        }
        if (0..3).any(|i| !config.grid[i].is_multiple_of(cluster[i])) {
            let expected = format!("a multiple of the cluster, {}", found());
            return Err(self.wrong("the grid", extents(config.grid), expected));
        }
        if blocks > u64::from(PORTABLE_CLUSTER) {
            self.allow_large_clusters()?;
        }
        Ok(())
    }

    fn check_cooperative(
        &self,
        config: &LaunchConfig,
        threads: u64,
        device: &Device,
    ) -> Result<(), CudaError> {
        if !device.cooperative {
            return Err(CudaError::Unsupported { device: device.ordinal, what: "cooperative launches" });
        }
        let each =
            self.blocks_per_multiprocessor(u32::try_from(threads).unwrap_or(u32::MAX), config.shared)?;
        let room = u64::from(each) * u64::from(device.multiprocessors);
        if volume(config.grid) > room {
            let expected =
                format!("at most {room} blocks, which is what runs at once ({each} on each multiprocessor)");
            return Err(self.wrong("the grid of a cooperative launch", extents(config.grid), expected));
        }
        Ok(())
    }

    #[cold]
    fn wrong(&self, what: &'static str, found: String, expected: String) -> CudaError {
        CudaError::Config { kernel: self.inner.name.clone(), what, found, expected }
    }

    /// Compares arguments with parameters.
    #[inline]
    pub(crate) fn check(&self, arguments: &[Arg<'_>]) -> Result<(), CudaError> {
        let gate = &self.inner.gate;
        if arguments.len() < gate.needed() || arguments.len() > gate.parameters() {
            return Err(self.miscounted(arguments.len()));
        }
        if let Some(n) = gate.mismatch(arguments) {
            return Err(self.mismatch(n, &arguments[n], &self.inner.signature.parameters[n]));
        }
        for memory in arguments.iter().filter_map(Arg::memory) {
            if memory.context() != self.context() && !memory.is_everywhere() {
                self.reach(memory.context())?;
            }
        }
        Ok(())
    }

    /// Memory of another device can be reached if access was enabled; the driver would fault otherwise.
    #[cold]
    fn reach(&self, other: &crate::Context) -> Result<(), CudaError> {
        self.context().enable_peer_access(other)
    }

    #[cold]
    fn miscounted(&self, found: usize) -> CudaError {
        let parameters = &self.inner.signature.parameters;
        let described: Vec<String> = parameters
            .iter()
            .map(|parameter| format!("`{}`, {}", parameter.name, describe(parameter)))
            .collect();
        let described =
            if described.is_empty() { "it has no parameters".to_owned() } else { described.join("; ") };
        CudaError::ArgumentCount {
            kernel: self.inner.name.clone(),
            found,
            expected: if found > parameters.len() { parameters.len() } else { self.inner.gate.needed() },
            parameters: described,
        }
    }

    #[cold]
    fn mismatch(&self, n: usize, argument: &Arg<'_>, parameter: &Parameter) -> CudaError {
        CudaError::Argument {
            kernel: self.inner.name.clone(),
            number: n + 1,
            name: parameter.name.clone(),
            found: argument.describe(),
            expected: describe(parameter),
        }
    }
}

/// Whether the kernel writes to the memory behind a parameter.
fn writes(access: Access) -> bool {
    matches!(access, Access::Write | Access::ReadWrite)
}

/// What a parameter needs, for messages.
fn describe(parameter: &Parameter) -> String {
    let bytes = parameter.bytes;
    match parameter.kind {
        ParameterKind::Pointer(PointerSpace::Shared | PointerSpace::Local) => {
            format!("an address inside of a block, a number of {bytes} bytes")
        }
        ParameterKind::Pointer(_) if writes(parameter.access) => "memory to write (`&mut`)".to_owned(),
        ParameterKind::Pointer(_) => "memory".to_owned(),
        ParameterKind::Either(_) if writes(parameter.access) => {
            format!("an integer of {} bits, or memory to write (`&mut`)", bytes * 8)
        }
        ParameterKind::Either(_) => format!("an integer of {} bits, or memory", bytes * 8),
        ParameterKind::Scalar(ty) if ty.class() == PtxClass::Float => {
            format!("a floating-point number of {} bits", bytes * 8)
        }
        ParameterKind::Scalar(ty) if ty.class() == PtxClass::Bits => format!("{} bits", bytes * 8),
        ParameterKind::Scalar(_) => format!("an integer of {} bits", bytes * 8),
        ParameterKind::TensorMap if writes(parameter.access) => "a writable tensor map".to_owned(),
        ParameterKind::TensorMap => "a tensor map".to_owned(),
        ParameterKind::Bytes => format!("an argument of {bytes} bytes"),
    }
}
