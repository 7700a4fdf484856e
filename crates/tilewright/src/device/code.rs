//! Where the code of a kernel comes from: a pack, or the compiler.

use tilewright_compiler::{Build, CompileError, Compiler};
use tilewright_cuda::ComputeCapability;
use tilewright_ir::Module;
use tilewright_lang::Kernel;
use tilewright_passes::{Pass, Pipeline};
use tilewright_tile::{Fact, specialise};

use super::packed::{Facts, Found, facts_text};
use super::{Device, DeviceError};

/// Code, ready to be loaded.
pub(super) enum Made {
    Compiled(Box<Build>),
    Packed(Box<Found>),
}

impl Device {
    /// The code of a kernel: from a pack of this device, else by the compiler. `facts` is what is true of a launch, nothing of a kernel for
    /// threads. Who brings a compiler wants what that one makes.
    pub(super) fn make(
        &self,
        kernel: &Kernel,
        facts: Option<&Facts>,
        compiler: Compiler,
    ) -> Result<Made, DeviceError> {
        let shared = &self.shared;
        let own = compiler == self.compiler();
        if own
            && let Some(found) =
                shared.packs.find(kernel, facts, (self.capability(), self.context().is_some()))?
        {
            return Ok(Made::Packed(Box::new(found)));
        }
        if shared.packs.are_all() {
            return Err(DeviceError::Unpacked {
                kernel: kernel.name().to_owned(),
                arch: self.arch(),
                facts: facts_text(facts.unwrap_or_default()),
                found: shared.packs.nearest(kernel),
            });
        }
        let build = compile(kernel, facts, compiler)?;
        if let Some(recording) = shared.recording.as_ref().filter(|_| own) {
            recording.keep(kernel, facts, &build)?;
        }
        Ok(Made::Compiled(Box::new(build)))
    }

    /// Whether it runs what is launched.
    pub(super) fn runs(&self) -> bool {
        self.shared.recording.is_none()
    }

    /// What its packs are searched by.
    pub(super) fn capability(&self) -> ComputeCapability {
        let number = self.arch().number;
        let stands_for = ComputeCapability { major: number / 10, minor: number % 10 };
        self.context().map_or(stands_for, |context| context.device().compute_capability)
    }
}

/// Compiles a kernel, one on tiles for what is true of its arguments.
pub(super) fn compile(
    kernel: &Kernel,
    facts: Option<&Facts>,
    compiler: Compiler,
) -> Result<Build, CompileError> {
    let Some(facts) = facts else { return compiler.compile(kernel.func()) };
    let facts: Vec<_> = facts.iter().map(|(name, fact)| (name.as_str(), *fact)).collect();
    // What the facts decide is decided before tiles become code.
    let mut module = Module::from(specialise(kernel.func(), &facts));
    Pipeline::of(&[Pass::Fold]).run(&mut module)?;
    compiler.compile(&module.funcs[0])
}

/// What is true of the arguments of a kernel on tiles that are dense tensors at addresses and with rows of multiples of 16 bytes: what most
/// launches have in common, by the names of the parameters.
#[must_use]
pub fn dense_facts(kernel: &Kernel) -> Vec<(String, Fact)> {
    let mut facts = Vec::new();
    for view in kernel.views() {
        let name = &view.name;
        let wide = Fact::MultipleOf(16 / view.element.bytes().clamp(1, 16));
        facts.push((name.clone(), Fact::MultipleOf(16)));
        for axis in 0..view.rank {
            if axis + 1 == view.rank {
                facts.push((format!("{name}_extent{axis}"), wide));
                facts.push((format!("{name}_stride{axis}"), Fact::Is(1)));
            } else {
                facts.push((format!("{name}_stride{axis}"), wide));
            }
        }
    }
    facts
}
