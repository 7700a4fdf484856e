//! From code to a module: compiled by the driver once, kept on disk, loaded.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tilewright_ptx::{
    Access, Item, Linkage, Opcode, Parameter, ParameterKind, Signature, Space, Specificity, Statement,
    StatementKind, Target, signatures_from_text, signatures_to_text,
};

use super::{Code, Image, Loaded, Module, Origin};
use crate::cache::{Entry, Key};
use crate::context::Context;
use crate::error::CudaError;
use crate::ffi::{self, module::LinkOptions};
use crate::pack::{Form, Pack, PackedKernelRef};
use crate::version::PtxVersion;

impl Context {
    /// Loads code.
    ///
    /// # Safety
    /// Whoever loads code vouches for it: its kernels must reach memory only through their arguments and within what these are given, as
    /// long as they are launched the way they are meant to be. A cubin must be what a compiler made. Everything that can be checked
    /// (number, size and kind of the arguments, who writes to what, the shape of the launch) is, so that launching is safe.
    ///
    /// # Errors
    /// If the code is for another device or a newer driver, or the driver refuses it.
    #[allow(unsafe_code)]
    pub unsafe fn load(&self, code: &Code<'_>) -> Result<Module, CudaError> {
        let module = match code.image {
            // SAFETY: the caller's.
            Image::Cubin(image) => unsafe {
                load_cubin(self, image, code.signatures.as_deref(), Origin::Given)
            },
            // SAFETY: the caller's.
            Image::Ptx(text) => unsafe { load_ptx(self, text, code) },
        };
        Ok(Module::new(module?))
    }

    /// Loads many pieces of code at once, on all cores; the results come in the order of the code.
    ///
    /// # Safety
    /// As for [`Context::load`].
    #[allow(unsafe_code)]
    pub unsafe fn load_all(&self, codes: &[Code<'_>]) -> Vec<Result<Module, CudaError>> {
        let slots: Vec<OnceLock<Result<Module, CudaError>>> = codes.iter().map(|_| OnceLock::new()).collect();
        let next = AtomicUsize::new(0);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(codes.len());
        let work = || {
            while let Some((code, slot)) = {
                let at = next.fetch_add(1, Ordering::Relaxed);
                codes.get(at).zip(slots.get(at))
            } {
                // SAFETY: the caller's.
                let _ = slot.set(unsafe { self.load(code) });
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| {
                scope.spawn(work);
            });
            work();
        });
        slots.into_iter().filter_map(OnceLock::into_inner).collect()
    }

    /// Loads a kernel of a [pack](Pack): its cubin for this device, with no compilation at all; else its PTX.
    ///
    /// # Safety
    /// As for [`Context::load`].
    ///
    /// # Errors
    /// If the pack has no such kernel for this device, or the driver refuses it.
    #[allow(unsafe_code)]
    pub unsafe fn load_packed(&self, pack: &Pack<'_>, name: &str) -> Result<Module, CudaError> {
        let Some(kernel) = pack.select(name, self.device().compute_capability) else {
            return Err(CudaError::NoKernel {
                name: format!("{name} for compute capability {}", self.device().compute_capability),
                known: pack.kernels().map(|kernel| format!("{} ({})", kernel.name, kernel.target)).collect(),
            });
        };
        // SAFETY: the caller's.
        unsafe { self.load_packed_kernel(kernel) }
    }

    /// Loads one kernel of a [pack](Pack), whichever way it was found.
    ///
    /// # Safety
    /// As for [`Context::load`].
    ///
    /// # Errors
    /// If the driver refuses it.
    #[allow(unsafe_code)]
    pub unsafe fn load_packed_kernel(&self, kernel: &PackedKernelRef<'_>) -> Result<Module, CudaError> {
        let broken = |found: String, expected| CudaError::Code { what: "a packed kernel", found, expected };
        let signatures = signatures_from_text(kernel.signatures).map_err(|error| {
            broken(error.to_string(), "signatures as `tilewright compile --pack` writes them")
        })?;
        let code = match kernel.form {
            Form::Cubin => Code::cubin(kernel.code),
            Form::Ptx => Code::ptx(
                std::str::from_utf8(kernel.code).map_err(|error| broken(error.to_string(), "PTX as text"))?,
            ),
        };
        // SAFETY: the caller's.
        unsafe { self.load(&code.with_signatures(signatures)) }
    }
}

/// # Safety
/// As for [`Context::load`].
#[allow(unsafe_code)]
unsafe fn load_cubin(
    context: &Context,
    image: &[u8],
    signatures: Option<&[Signature]>,
    origin: Origin,
) -> Result<Loaded, CudaError> {
    if !image.starts_with(b"\x7fELF") {
        let found = format!("{} bytes that do not begin with the mark of ELF", image.len());
        return Err(CudaError::Code {
            what: "a cubin",
            found,
            expected: "what a compiler made; PTX goes to `Code::ptx`",
        });
    }
    // SAFETY: the caller's.
    let raw = context.guard(unsafe { ffi::module::Module::load(context.raw().clone(), image) })?;
    let signatures = match signatures {
        Some(signatures) => signatures.to_vec(),
        None => ask(context, &raw)?,
    };
    Ok(Loaded { context: context.clone(), raw, signatures, origin })
}

/// # Safety
/// As for [`Context::load`].
#[allow(unsafe_code)]
unsafe fn load_ptx(context: &Context, text: &str, code: &Code<'_>) -> Result<Loaded, CudaError> {
    let cache = (code.cached && !code.whole).then(|| context.cache());
    let key = cache.as_ref().map(|_| key(context, text, &code.options));
    if let (Some(cache), Some(key)) = (&cache, &key)
        && let Some(entry) = cache.get(key)
        && let Some(signatures) = entry.get("signatures").and_then(|text| signatures_from_text(text).ok())
    {
        // SAFETY: the caller's, and what the cache returns is what was put under this key.
        let loaded = unsafe { load_cubin(context, &entry.payload, Some(&signatures), Origin::Disk) };
        // A cubin that the driver does not take is as good as none.
        match loaded {
            Err(error) if !error.is_sticky() => {}
            loaded => return loaded,
        }
    }
    let (signatures, linkable) = read(context, text)?;
    let explain = |(cause, log)| match context.guard::<()>(Err(cause)) {
        Err(cause @ CudaError::Call { .. }) => CudaError::Compile { cause: Box::new(cause), log },
        // A fault of earlier work, or a driver without a linker: not the PTX's doing.
        Err(other) => other,
        Ok(()) => CudaError::MissingSymbol { symbol: "cuModuleLoadDataEx" },
    };
    let start = Instant::now();
    if code.whole || !linkable {
        // SAFETY: the caller's.
        let raw = unsafe { ffi::module::compile(context.raw(), text, &code.options) }.map_err(explain)?;
        let origin = Origin::Compiled(start.elapsed());
        return Ok(Loaded { context: context.clone(), raw, signatures, origin });
    }
    let cubin = ffi::module::link(context.raw(), text, &code.options).map_err(explain)?;
    let origin = Origin::Compiled(start.elapsed());
    if let (Some(cache), Some(key)) = (&cache, &key) {
        let names: Vec<&str> = signatures.iter().map(|kernel| kernel.name.as_str()).collect();
        let meta = [
            ("kernels", names.join(" ")),
            ("device", format!("sm_{}", sm(context))),
            ("driver", driver_build(context)),
            ("signatures", signatures_to_text(&signatures)),
        ];
        let meta = meta.map(|(name, value)| (name.to_owned(), value)).to_vec();
        // The cache is an extra: whatever it answers, the kernel is there.
        let _ = cache.put(key, &Entry { meta, payload: cubin.clone() });
    }
    // SAFETY: the caller's; the driver itself made the cubin.
    unsafe { load_cubin(context, &cubin, Some(&signatures), origin) }
}

/// Signatures of PTX, and whether the driver's linker can be trusted with it; refuses what the driver or the device cannot take with a
/// better reason than the driver's.
fn read(context: &Context, text: &str) -> Result<(Vec<Signature>, bool), CudaError> {
    let module = tilewright_ptx::parse(text).map_err(|error| CudaError::Code {
        what: "PTX",
        found: error.to_string(),
        expected: "PTX that this crate can read",
    })?;
    let version =
        PtxVersion { major: u32::from(module.version.major), minor: u32::from(module.version.minor) };
    if let Some(newest) = context.driver().ptx_version().filter(|newest| *newest < version) {
        return Err(CudaError::Code {
            what: "the version of the PTX",
            found: format!(
                "{version}, while the driver of CUDA {} takes up to {newest}",
                context.driver().version()
            ),
            expected: "PTX for this driver; update the driver, or compile for an older version",
        });
    }
    let chip = sm(context);
    let able = match module.target.specificity {
        Specificity::Plain => module.target.sm <= chip,
        Specificity::Family => module.target.sm <= chip && module.target.sm / 10 == chip / 10,
        Specificity::Arch => module.target.sm == chip,
    };
    if !able {
        return Err(CudaError::Code {
            what: "the target of the PTX",
            found: format!("{}, on a device that is {}", module.target, Target::plain(chip)),
            expected: "code for this device",
        });
    }
    let signatures = module.signatures();
    let linkable = is_linkable(&module, &signatures);
    Ok((signatures, linkable))
}

/// Whether the driver's linker does what the code says (seen with CUDA 13.0).
///
/// It puts dynamic shared memory behind the static at a multiple of 16 bytes, whatever its alignment (nvlink does the same), so the two must
/// not meet where more is asked for. And it ignores `setmaxnreg`, because functions of other modules could be called: what a warp was
/// meant to hold in registers would go to memory.
fn is_linkable(module: &tilewright_ptx::Module, signatures: &[Signature]) -> bool {
    const LINKER: u32 = 16;
    let demanding = module.items.iter().any(|item| {
        matches!(item, Item::Variable(variable)
            if variable.space == Space::Shared
                && variable.linkage == Some(Linkage::Extern)
                && variable.align.is_some_and(|align| align > LINKER))
    });
    let placed =
        !demanding || signatures.iter().all(|kernel| kernel.shared_bytes == 0 || !kernel.dynamic_shared);
    let bodies = module.items.iter().filter_map(|item| match item {
        Item::Function(function) => function.body.as_deref(),
        _ => None,
    });
    placed && !bodies.into_iter().any(deals_out_registers)
}

/// Whether warps give registers to others.
fn deals_out_registers(statements: &[Statement]) -> bool {
    statements.iter().any(|statement| match &statement.kind {
        StatementKind::Instruction(instruction) => instruction.opcode == Opcode::Setmaxnreg,
        StatementKind::Block(inner) => deals_out_registers(inner),
        _ => false,
    })
}

/// The number in `sm_90`.
fn sm(context: &Context) -> u16 {
    let chip = context.device().compute_capability;
    u16::try_from(chip.major * 10 + chip.minor).unwrap_or(u16::MAX)
}

/// By which rules signatures are made: another number for other rules, so that nothing is launched by what older ones said.
const RULES: &str = "2";

/// Everything that the machine code and the signatures depend on, and nothing else.
fn key(context: &Context, text: &str, options: &LinkOptions) -> Key {
    let LinkOptions { max_registers, optimisation, line_info, debug } = options;
    Key::builder()
        .field("ptx", text)
        .field("device", sm(context).to_le_bytes())
        .field("driver", driver_build(context))
        .field("rules", RULES)
        .field("options", format!("{max_registers:?} {optimisation:?} {line_info} {debug}"))
        .finish()
}

/// The driver as exactly as it can be told: its compiler may change between builds of the same CUDA version.
fn driver_build(context: &Context) -> String {
    static BUILD: OnceLock<Option<String>> = OnceLock::new();
    let build = BUILD.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
        text.lines().next().map(str::to_owned)
    });
    format!("CUDA {} {}", context.driver().version(), build.as_deref().unwrap_or_default())
        .trim_end()
        .to_owned()
}

/// What the driver knows of the kernels of a cubin: sizes. Nothing before CUDA 12.4.
fn ask(context: &Context, module: &ffi::module::Module) -> Result<Vec<Signature>, CudaError> {
    let names = match context.guard(module.functions()) {
        Err(CudaError::MissingSymbol { .. }) => return Ok(Vec::new()),
        names => names?,
    };
    names
        .into_iter()
        .map(|name| {
            let parameters = context.guard(module.function(&name)?.parameters(context.raw()))?;
            let parameters = parameters.into_iter().enumerate().map(|(n, (_, bytes))| Parameter {
                name: format!("parameter_{n}"),
                bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
                align: 1,
                kind: ParameterKind::Bytes,
                access: Access::Unknown,
            });
            Ok(Signature {
                name,
                parameters: parameters.collect(),
                required_block: None,
                max_block: None,
                required_cluster: None,
                max_cluster: None,
                shared_bytes: 0,
                dynamic_shared: false,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_linkable;

    #[test]
    fn dynamic_shared_memory_behind_static_must_not_ask_for_much_alignment() {
        let linkable = |align: u32, fixed: &str| {
            let text = format!(
                ".version 8.0\n.target sm_90\n.address_size 64\n.extern .shared .align {align} .b8 stages[];\n\
                 .visible .entry k()\n{{\n.reg .b32 %r<3>;\n{fixed}mov.u32 %r2, stages;\nret;\n}}\n"
            );
            let module = tilewright_ptx::parse(&text).unwrap();
            is_linkable(&module, &module.signatures())
        };
        let barriers = ".shared .align 8 .b8 full[24];\nmov.u32 %r1, full;\n";
        assert!(linkable(1024, ""));
        assert!(linkable(16, barriers));
        assert!(!linkable(128, barriers));
    }

    #[test]
    fn registers_that_warps_give_away_must_not_be_lost() {
        let linkable = |body: &str| {
            let head = ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n";
            let module = tilewright_ptx::parse(&format!("{head}{{\n{body}ret;\n}}\n")).unwrap();
            is_linkable(&module, &module.signatures())
        };
        assert!(linkable(""));
        assert!(!linkable("setmaxnreg.inc.sync.aligned.u32 232;\n"));
        assert!(!linkable("{\nsetmaxnreg.dec.sync.aligned.u32 40;\n}\n"));
    }
}
