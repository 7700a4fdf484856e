//! The registry: every kernel by name, with a configuration that compiles, so that tools and tests can find it.

use tilewright_hardware::Arch;
use tilewright_lang::{Error, Kernel};

use crate::{examples, ladder, ops, tutorial};

/// A kernel in a fixed configuration.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// The name that tools use.
    pub name: &'static str,
    /// What it computes, in one line.
    pub summary: &'static str,
    /// The plainest chip that runs it.
    pub needs: Arch,
    /// Registers of a thread that it may use at most, on any chip it claims.
    pub registers: u32,
    /// Builds it.
    pub stage: fn() -> Result<Kernel, Error>,
}

impl Entry {
    /// The chips among those that the project is tested for that run it.
    pub fn architectures(&self) -> impl Iterator<Item = Arch> + '_ {
        TESTED.into_iter().filter(|arch| arch.supports(self.needs))
    }
}

/// The chips that kernels are compiled and assembled for in tests.
pub const TESTED: [Arch; 5] = [Arch::SM_80, Arch::SM_89, Arch::SM_90A, Arch::SM_100A, Arch::SM_120A];

/// All kernels: the examples, then the steps of the [ladder](ladder::LADDER).
pub static KERNELS: &[Entry] = &{
    let mut all = [EXAMPLES[0]; EXAMPLES.len() + ladder::STEPS.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < EXAMPLES.len() { EXAMPLES[i] } else { ladder::STEPS[i - EXAMPLES.len()].kernel };
        i += 1;
    }
    all
};

const EXAMPLES: [Entry; 4] = [
    Entry {
        name: "vector_add",
        summary: "out = x + y for f32, 256 threads a block",
        needs: Arch::SM_80,
        registers: 16,
        stage: || examples::vector_add::stage::<f32>(256),
    },
    Entry {
        name: "transpose",
        summary: "out = transpose of x for f32, tiles of 32 x 32",
        needs: Arch::SM_80,
        registers: 32,
        stage: examples::transpose::stage,
    },
    Entry {
        name: "block_sum",
        summary: "out += sum of x for f32, 8 warps a block",
        needs: Arch::SM_80,
        registers: 40,
        stage: || examples::block_sum::stage(8),
    },
    Entry {
        name: "cluster_sum",
        summary: "out += sum of x for f32, clusters of 4 blocks",
        needs: Arch::SM_90,
        registers: 40,
        stage: || examples::cluster_sum::stage(8, 4),
    },
];

/// All kernels that tools find, by the names that they find them by: those of [`KERNELS`], then the kernels on tiles, of the library as
/// `ops/softmax` and of the tutorial as `tutorial/softmax`.
pub fn named() -> impl Iterator<Item = (String, &'static Entry)> {
    let folder = |name: &'static str, entries: &'static [Entry]| {
        entries.iter().map(move |entry| (format!("{name}{}", entry.name), entry))
    };
    folder("", KERNELS).chain(folder("tutorial/", tutorial::TUTORIAL)).chain(folder("ops/", ops::OPERATORS))
}

/// The kernel of that name among those that are [`named`].
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    named().find(|(known, _)| known == name).map(|(_, entry)| entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_stages_under_its_own_name() {
        for entry in KERNELS {
            let kernel = (entry.stage)().unwrap_or_else(|error| panic!("{error}"));
            assert!(entry.name.starts_with(kernel.name()), "{} stages {}", entry.name, kernel.name());
        }
        for (name, entry) in named() {
            assert!(std::ptr::eq(find(&name).unwrap(), entry), "{name} is there twice");
        }
        for entry in tutorial::TUTORIAL {
            assert_eq!((entry.stage)().unwrap_or_else(|error| panic!("{error}")).name(), entry.name);
        }
    }
}
