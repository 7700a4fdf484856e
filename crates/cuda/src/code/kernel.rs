//! A kernel: what is known of it, and how well it fits the device.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use cudarc::driver::sys::CUfunction_attribute as Attribute;
use tilewright_ptx::Signature;

use super::Loaded;
use crate::context::{Context, lock};
use crate::error::CudaError;
use crate::ffi::launch as occupancy;
use crate::ffi::module::Function;
use crate::launch::gate::Gate;
use crate::launch::{LaunchConfig, NOTHING, Name};
use crate::stream::Stream;

/// A kernel of a module, ready to be launched. Clones are the same kernel.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) module: Arc<Loaded>,
    pub(crate) function: Function,
    pub(crate) name: Arc<str>,
    pub(crate) signature: Signature,
    pub(crate) context: Context,
    /// What launches look at.
    pub(crate) gate: Gate,
    pub(crate) history_name: Name,
    pub(crate) attributes: KernelAttributes,
    /// Bytes of dynamic shared memory that the driver was asked to allow.
    pub(crate) opted_in: AtomicU32,
    opting_in: Mutex<()>,
    /// Whether the driver was asked to allow clusters of more than 8.
    pub(crate) large_clusters: AtomicBool,
}

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelAttributes {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block that the code declares.
    pub shared_bytes: u32,
    /// Bytes of local memory of a thread: stack and spilled registers.
    pub local_bytes: u32,
    /// Bytes of constant memory.
    pub constant_bytes: u32,
    /// The largest block that it can be launched with.
    pub threads_per_block: u32,
    /// The compute capability that it was compiled for, as 90.
    pub binary_version: u32,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({})", self.name())
    }
}

impl Kernel {
    pub(super) fn new(module: &Arc<Loaded>, name: &str) -> Result<Kernel, CudaError> {
        let context = &module.context;
        let known = || module.signatures.iter().map(|kernel| kernel.name.clone()).collect();
        let function = match context.guard(module.raw.function(name)) {
            // The driver knows of none, or the name is no text that it could be asked for.
            Err(CudaError::Call { code: 500, .. } | CudaError::NoKernel { .. }) => {
                return Err(CudaError::NoKernel { name: name.to_owned(), known: known() });
            }
            function => function?,
        };
        let Some(signature) = module.signatures.iter().find(|kernel| kernel.name == name) else {
            return Err(CudaError::Code {
                what: "the signature of a kernel in a cubin",
                found: format!("nothing known of `{name}`"),
                expected: "signatures (`Code::with_signatures`), or a driver of CUDA 12.4, which knows the sizes",
            });
        };
        let number =
            |attribute| context.guard(function.attribute(context.raw(), attribute)).map(i32::unsigned_abs);
        let attributes = KernelAttributes {
            registers: number(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            shared_bytes: number(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
            local_bytes: number(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            constant_bytes: number(Attribute::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?,
            threads_per_block: number(Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            binary_version: number(Attribute::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
        };
        let (threads, shared) = (attributes.threads_per_block, attributes.shared_bytes);
        let gate = Gate::new(signature, context.device(), threads, shared, size_of_val(&NOTHING));
        let name: Arc<str> = name.into();
        Ok(Kernel {
            inner: Arc::new(Inner {
                module: module.clone(),
                function,
                context: context.clone(),
                gate,
                history_name: Name::new(&name),
                name,
                signature: signature.clone(),
                attributes,
                opted_in: AtomicU32::new(0),
                opting_in: Mutex::default(),
                large_clusters: AtomicBool::new(false),
            }),
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Its context.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The driver's handle, for calls that this crate lacks. Whoever uses it must keep the kernel.
    pub fn raw_handle(&self) -> cudarc::driver::sys::CUfunction {
        self.inner.function.raw()
    }

    /// Its parameters, and what it asks of a launch.
    pub fn signature(&self) -> &Signature {
        &self.inner.signature
    }

    /// What it takes of a multiprocessor.
    pub fn attributes(&self) -> KernelAttributes {
        self.inner.attributes
    }

    /// Blocks of so many threads, each with so many bytes of dynamic shared memory, that run on a multiprocessor at once.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn blocks_per_multiprocessor(&self, threads: u32, shared: u32) -> Result<u32, CudaError> {
        self.opt_in(shared)?;
        let context = self.context();
        context.guard(occupancy::active_blocks(context.raw(), self.inner.function, threads, shared as usize))
    }

    /// The size of block that keeps the most threads running, no larger than `limit` (0 for none), and the least number of blocks that
    /// fills the device with it.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn best_block(&self, shared: u32, limit: u32) -> Result<(u32, u32), CudaError> {
        self.opt_in(shared)?;
        let context = self.context();
        context.guard(occupancy::best_block(context.raw(), self.inner.function, shared as usize, limit))
    }

    /// Clusters of this launch that run on the device at once.
    ///
    /// # Errors
    /// If the launch has no possible shape.
    pub fn active_clusters(&self, stream: &Stream, config: &LaunchConfig) -> Result<u32, CudaError> {
        let shape = self.shape(config)?;
        self.context().guard(occupancy::active_clusters(stream.raw(), self.inner.function, &shape))
    }

    /// The largest cluster that this launch could have.
    ///
    /// # Errors
    /// If the launch has no possible shape.
    pub fn largest_cluster(&self, stream: &Stream, config: &LaunchConfig) -> Result<u32, CudaError> {
        self.allow_large_clusters()?;
        let shape = self.shape(config)?;
        self.context().guard(occupancy::largest_cluster(stream.raw(), self.inner.function, &shape))
    }

    /// Bytes of dynamic shared memory that a block may have so that so many blocks run on a multiprocessor.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn available_shared(&self, blocks: u32, threads: u32) -> Result<usize, CudaError> {
        let context = self.context();
        context.guard(occupancy::available_shared(context.raw(), self.inner.function, blocks, threads))
    }

    /// Asks the driver to allow that much dynamic shared memory, if it was not asked before.
    #[inline]
    pub(crate) fn opt_in(&self, shared: u32) -> Result<(), CudaError> {
        let without = self.context().device().shared_bytes_without_opt_in;
        if u64::from(shared) + u64::from(self.inner.attributes.shared_bytes) <= without
            || shared <= self.inner.opted_in.load(Ordering::Acquire)
        {
            return Ok(());
        }
        // One after the other, so that what the driver allows only grows: others may be launching with what was allowed before.
        let _alone = lock(&self.inner.opting_in);
        if shared <= self.inner.opted_in.load(Ordering::Acquire) {
            return Ok(());
        }
        let value = i32::try_from(shared).unwrap_or(i32::MAX);
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let context = self.context();
        context.guard(self.inner.function.set_attribute(context.raw(), attribute, value))?;
        self.inner.opted_in.store(shared, Ordering::Release);
        Ok(())
    }

    /// Asks the driver to allow clusters of more than 8 blocks, if it was not asked before.
    pub(crate) fn allow_large_clusters(&self) -> Result<(), CudaError> {
        if self.inner.large_clusters.load(Ordering::Acquire) {
            return Ok(());
        }
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
        let context = self.context();
        context.guard(self.inner.function.set_attribute(context.raw(), attribute, 1))?;
        self.inner.large_clusters.store(true, Ordering::Release);
        Ok(())
    }
}
