//! [`Algorithm`]: one way to compute a product, from end to end.
//!
//! A family of kernels computes what its own [`check`](Algorithm::check) allows. An algorithm widens that: it may look at the product
//! from the other side (`D^T = B^T * A^T`, in the same memory), and may copy a factor that the kernel cannot read into scratch memory
//! first, with k contiguous and rows at multiples of 16 bytes.
//!
//! Scratch memory: that of the family first, its zeroed part at the very start, then the copies.

use std::fmt;
use std::str::FromStr;

use tilewright_hardware::Gpu;

use super::epilogue::reductions_of_nothing;
use super::factor::Side;
use super::model::{Model, Prediction, Work};
use super::problem::Problem;
use super::recipe::{Binding, MapBinding, Operand, Recipe};
use super::repack::{Contiguous, repack};
use super::{GemmError, ampere, gemv, hopper, simt};

macro_rules! families {
    ($($(#[$doc:meta])* $name:ident = $module:ident,)*) => {
        /// A configuration of one of the families of kernels.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum KernelConfig {
            $($(#[$doc])* $name($module::Config),)*
        }

        impl KernelConfig {
            /// The names of the families, as texts of configurations begin.
            pub const FAMILIES: &'static [&'static str] = &[$(stringify!($module)),*];

            /// Whether the chip and the problem allow it.
            ///
            /// # Errors
            /// If they do not, with the reason.
            pub fn check(&self, problem: &Problem, gpu: &Gpu) -> Result<(), GemmError> {
                match self {
                    $(KernelConfig::$name(config) => config.check(problem, gpu),)*
                }
            }

            /// Launches for a problem that the kernels read as it is.
            ///
            /// # Errors
            /// If the chip or the problem does not allow it.
            pub fn recipe(&self, problem: &Problem, gpu: &Gpu) -> Result<Recipe, GemmError> {
                match self {
                    $(KernelConfig::$name(config) => config.recipe(problem, gpu),)*
                }
            }

            /// What is worth trying, of all families.
            #[must_use]
            pub fn candidates(problem: &Problem, gpu: &Gpu) -> Vec<KernelConfig> {
                let mut all = Vec::new();
                $(all.extend($module::Config::candidates(problem, gpu).into_iter().map(KernelConfig::$name));)*
                all
            }

            /// What the hardware sees of it.
            #[must_use]
            pub fn work(&self, problem: &Problem, gpu: &Gpu) -> Work {
                match self {
                    $(KernelConfig::$name(config) => super::work::$module(config, problem, gpu),)*
                }
            }
        }

        impl fmt::Display for KernelConfig {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(KernelConfig::$name(config) => config.fmt(f),)*
                }
            }
        }

        impl FromStr for KernelConfig {
            type Err = GemmError;

            fn from_str(text: &str) -> Result<KernelConfig, GemmError> {
                match text.split_whitespace().next() {
                    $(Some(stringify!($module)) => Ok(KernelConfig::$name(text.parse()?)),)*
                    first => Err(GemmError::Config {
                        config: text.to_owned(),
                        reason: format!(
                            "the first word is {}, expected the name of a family: {}",
                            first.map_or_else(|| "missing".to_owned(), |word| format!("`{word}`")),
                            KernelConfig::FAMILIES.join(", ")
                        ),
                    }),
                }
            }
        }
    };
}

families! {
    /// Tensor cores of Hopper, fed by the copy engine.
    Hopper = hopper,
    /// Tensor cores by instructions of warps: every chip from Ampere on.
    Ampere = ampere,
    /// f32 without tensor cores.
    Simt = simt,
    /// Few rows: one pass over the other factor.
    Gemv = gemv,
}

impl KernelConfig {
    /// How it likes factors to lie: copies of them do.
    #[must_use]
    pub fn contiguous(&self) -> Contiguous {
        match self {
            KernelConfig::Simt(_) => Contiguous::Rows,
            _ => Contiguous::K,
        }
    }
}

/// One way to compute a product.
///
/// Its text names everything, and is read back:
///
/// ```
/// use tilewright_hardware::{Element, Gpu};
/// use tilewright_kernels::gemm::{Algorithm, Problem, Types, candidates};
///
/// let problem = Problem::new(16, 4096, 4096, Types::of(Element::BF16));
/// for candidate in candidates(&problem, Gpu::named("h200").unwrap())? {
///     let text = candidate.algorithm.to_string();
///     assert_eq!(text.parse::<Algorithm>()?, candidate.algorithm, "{text}");
/// }
/// # Ok::<(), tilewright_kernels::gemm::GemmError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Algorithm {
    /// Whether the kernel computes `D^T = B^T * A^T`: rows and columns, A and B change places.
    pub transposed: bool,
    /// Whether what the kernel takes for A (after transposing) is copied first.
    pub repack_a: bool,
    /// Whether what the kernel takes for B is.
    pub repack_b: bool,
    /// The kernel.
    pub kernel: KernelConfig,
}

/// The words after the kernel's own.
const SWAP: &str = "swap";
const REPACK_A: &str = "repackA";
const REPACK_B: &str = "repackB";

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kernel)?;
        for (said, word) in [(self.transposed, SWAP), (self.repack_a, REPACK_A), (self.repack_b, REPACK_B)] {
            if said {
                write!(f, " {word}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Algorithm {
    type Err = GemmError;

    fn from_str(text: &str) -> Result<Algorithm, GemmError> {
        let (ours, kernel): (Vec<&str>, Vec<&str>) =
            text.split_whitespace().partition(|word| [SWAP, REPACK_A, REPACK_B].contains(word));
        if kernel.is_empty() && !ours.is_empty() {
            let families = KernelConfig::FAMILIES.join(", ");
            return Err(GemmError::Config {
                config: text.to_owned(),
                reason: format!("it names no kernel, expected one of a family before it: {families}"),
            });
        }
        Ok(Algorithm {
            transposed: ours.contains(&SWAP),
            repack_a: ours.contains(&REPACK_A),
            repack_b: ours.contains(&REPACK_B),
            kernel: kernel.join(" ").parse()?,
        })
    }
}

impl From<KernelConfig> for Algorithm {
    fn from(kernel: KernelConfig) -> Algorithm {
        Algorithm { transposed: false, repack_a: false, repack_b: false, kernel }
    }
}

impl Algorithm {
    /// Whether the chip and the problem allow it.
    ///
    /// # Errors
    /// If they do not, with the reason.
    pub fn check(&self, problem: &Problem, gpu: &Gpu) -> Result<(), GemmError> {
        problem.check()?;
        self.kernel.check(&self.seen(problem), gpu)
    }

    /// The launches for a problem: copies first, then the kernel.
    ///
    /// # Errors
    /// If the chip or the problem does not allow it.
    pub fn recipe(&self, problem: &Problem, gpu: &Gpu) -> Result<Recipe, GemmError> {
        problem.check()?;
        let seen = self.seen(problem);
        let mut recipe = self.kernel.recipe(&seen, gpu)?;
        if recipe.launches.is_empty() {
            return Ok(reductions_of_nothing(problem));
        }
        // Each copy is of the factor as it lies, whatever becomes of the other.
        let turned = if self.transposed { problem.transposed() } else { problem.clone() };
        let mut copies = Vec::new();
        for side in self.copied() {
            let copy = repack(&turned, side, self.kernel.contiguous(), recipe.workspace);
            if copy.bytes == 0 {
                // Without k there is nothing to copy, and nobody reads a factor.
                continue;
            }
            recipe.workspace = recipe.workspace.saturating_add(copy.bytes);
            recipe.launches = recipe.launches.into_iter().map(|launch| copy.redirect(launch)).collect();
            copies.extend(copy.launch);
        }
        copies.append(&mut recipe.launches);
        if self.transposed {
            for (_, binding) in copies.iter_mut().flat_map(|launch| &mut launch.bindings) {
                exchange(binding);
            }
        }
        recipe.launches = copies;
        Ok(recipe)
    }

    /// How long it takes, and why.
    ///
    /// # Errors
    /// As [`Algorithm::check`].
    pub fn predict(&self, problem: &Problem, gpu: &Gpu) -> Result<Prediction, GemmError> {
        self.check(problem, gpu)?;
        Ok(self.predict_by(&Model::FITTED, &self.seen(problem), gpu))
    }

    /// The same with other constants, for a problem as the kernel [sees](Algorithm::seen) it, unchecked.
    #[must_use]
    pub fn predict_by(&self, model: &Model, seen: &Problem, gpu: &Gpu) -> Prediction {
        let mut predicted = model.predict(&self.kernel.work(seen, gpu), seen, gpu);
        let size = |rows: u32, columns: u32, bytes: u32| {
            f64::from(rows) * f64::from(columns) * f64::from(bytes) * f64::from(seen.batch)
        };
        if self.repack_a {
            let bytes = 2.0 * size(seen.m, seen.k, seen.types.a.bytes());
            predicted = predicted.after_copy(model, gpu, "copy of A", bytes);
        }
        if self.repack_b {
            let bytes = 2.0 * size(seen.k, seen.n, seen.types.b.bytes());
            predicted = predicted.after_copy(model, gpu, "copy of B", bytes);
        }
        predicted
    }

    /// Whether every run with the same numbers gives the same bits. All kernels add in an order that does not depend on who is first.
    #[must_use]
    pub fn deterministic(&self) -> bool {
        true
    }

    /// The problem as the kernel sees it: transposed, with factors that were copied, if the algorithm does so.
    #[must_use]
    pub fn seen(&self, problem: &Problem) -> Problem {
        seen(problem, self.transposed, (self.repack_a, self.repack_b), self.kernel.contiguous())
    }

    /// The factors that are copied.
    fn copied(&self) -> impl Iterator<Item = Side> {
        sides(self.repack_a, self.repack_b)
    }
}

pub(super) fn sides(a: bool, b: bool) -> impl Iterator<Item = Side> {
    [(a, Side::A), (b, Side::B)].into_iter().filter(|side| side.0).map(|(_, side)| side)
}

/// A problem as a kernel sees it.
pub(super) fn seen(
    problem: &Problem,
    transposed: bool,
    (repack_a, repack_b): (bool, bool),
    contiguous: Contiguous,
) -> Problem {
    let turned = if transposed { problem.transposed() } else { problem.clone() };
    let copied = |problem: Problem, side| repack(&problem, side, contiguous, 0).replace(&problem);
    sides(repack_a, repack_b).fold(turned, copied)
}

/// Has a kernel read the other factor.
fn exchange(binding: &mut Binding) {
    let (Binding::Pointer(operand, _) | Binding::Map(MapBinding { operand, .. })) = binding else { return };
    *operand = match operand {
        Operand::A => Operand::B,
        Operand::B => Operand::A,
        _ => return,
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Storage, Types};
    use tilewright_hardware::Element;

    const KERNEL: &str = "simt 64x64x16 4x4 s3 g8 p3";

    fn h200() -> &'static Gpu {
        Gpu::named("h200").unwrap()
    }

    #[test]
    fn factors_without_elements_take_no_workspace() {
        let problem = Problem::new(47, 33, 0, Types::of(Element::F64));
        let algorithm: Algorithm = "simt 64x64x16 4x4 s3 g8 p1 repackA repackB".parse().unwrap();
        let recipe = algorithm.recipe(&problem, h200()).unwrap();
        assert_eq!(recipe.workspace, 0);
        let bindings = recipe.launches.iter().flat_map(|launch| &launch.bindings);
        let factors = bindings.filter(|(name, _)| name == "a" || name == "b");
        assert!(factors.clone().count() > 0);
        for (name, binding) in factors {
            assert!(matches!(binding, Binding::Pointer(Operand::A | Operand::B, _)), "{name}: {binding:?}");
        }
    }

    #[test]
    fn texts_are_read_back() {
        for words in ["", " swap", " repackA", " repackB", " swap repackA repackB"] {
            let text = format!("{KERNEL}{words}");
            let algorithm: Algorithm = text.parse().unwrap();
            assert_eq!(algorithm.to_string(), text);
        }
        let error = "".parse::<Algorithm>().unwrap_err().to_string();
        assert!(
            error.contains("the first word is missing, expected the name of a family: hopper, "),
            "{error}"
        );
    }

    #[test]
    fn scratch_memory_begins_with_zeros_and_has_room_for_all() {
        let mut problem = Problem::new(100, 90, 80, Types::of(Element::F32));
        problem.b.storage = Storage::RowMajor;
        problem.b.leading = 91;
        let plain: Algorithm = KERNEL.parse().unwrap();
        let without = plain.recipe(&problem, h200()).unwrap();
        let both = Algorithm { repack_a: true, repack_b: true, ..plain }.recipe(&problem, h200()).unwrap();
        assert!(without.zeroed > 0);
        assert_eq!((both.zeroed, both.launches.len()), (without.zeroed, without.launches.len() + 2));
        assert!(both.workspace >= without.workspace + 4 * (100 + 90) * 80);

        // The copies read A and B, and the product reads neither.
        let reads = |launch: &crate::gemm::Launch, wanted: &Operand| {
            launch.bindings.iter().any(|(_, binding)| match binding {
                Binding::Pointer(operand, _) | Binding::Map(MapBinding { operand, .. }) => operand == wanted,
                _ => false,
            })
        };
        assert!(reads(&both.launches[0], &Operand::A) && reads(&both.launches[1], &Operand::B));
        assert!(
            both.launches[2..]
                .iter()
                .all(|launch| !reads(launch, &Operand::A) && !reads(launch, &Operand::B))
        );

        // Seen from the other side, what is copied first is B.
        let turned =
            Algorithm { transposed: true, repack_a: true, ..plain }.recipe(&problem, h200()).unwrap();
        assert!(reads(&turned.launches[0], &Operand::B) && !reads(&turned.launches[0], &Operand::A));
        assert!(reads(&turned.launches[1], &Operand::A) && !reads(&turned.launches[1], &Operand::B));
    }
}
