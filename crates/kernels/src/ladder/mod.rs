//! The ladder: one matrix product, written eleven times, each step one idea further than the one before.
//!
//! All steps compute `c = a * b^T` for row-major `a` (m, k) and `b` (n, k), both bf16, with sums in f32 and `c` (m, n) in bf16, so that
//! they can be held against each other. The chapter `docs/gemm.md` walks up the ladder; `tilewright bench ladder` runs it. Steps 7 and
//! 9 are the products of the language's tutorial, [`examples`].
//!
//! To stay short, the steps take extents that are multiples of their tiles and nothing else; [`gemm`](crate::gemm) has products for
//! everything.
//!
//! ```
//! use tilewright_kernels::ladder::{self, LADDER};
//!
//! assert!(LADDER.iter().map(|step| step.number).eq(1..=11));
//! let step = ladder::find("tensor").unwrap();
//! let recipe = step.recipe([256, 128, 64], 132)?;
//! assert_eq!(recipe.launches[0].grid, [1, 2, 1]);
//! let error = step.recipe([256, 100, 64], 132).unwrap_err();
//! assert_eq!(error.to_string(), "configuration ladder 6 (tensor): n is 100, expected a positive multiple of 128");
//! # Ok::<(), tilewright_kernels::gemm::GemmError>(())
//! ```

mod cluster;
mod naive;
mod patch;
mod persistent;
mod registers;
mod shared;
mod tensor;
mod vectors;
mod wgmma;

use std::sync::Arc;

use tilewright_hardware::Arch;

use crate::Entry;
use crate::examples::{self, GemmTile};
use crate::gemm::{Binding, GemmError, KernelSource, Launch, MapBinding, Operand, Recipe};

pub use cluster::ladder_cluster;
pub use naive::ladder_naive;
pub use patch::ladder_patch;
pub use persistent::ladder_persistent;
pub use registers::ladder_registers;
pub use shared::ladder_shared;
pub use tensor::ladder_tensor;
pub use vectors::ladder_vectors;
pub use wgmma::ladder_wgmma;

/// One product of the ladder.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// Its place, from 1.
    pub number: u32,
    /// Its name on the command line.
    pub name: &'static str,
    /// What is new, in one line.
    pub idea: &'static str,
    /// What one block computes at a time.
    pub tile: GemmTile,
    /// What its kernel takes.
    pub takes: Takes,
    /// The kernel.
    pub kernel: Entry,
}

/// The parameters of a step's kernel, and its grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Addresses `a`, `b`, `c`, and `n` and `k`; a block a tile.
    Pointers,
    /// Tensor maps `a`, `b`, `c`, and the number of `steps` along `k`; a block a tile.
    Maps,
    /// Tensor maps, and the `rows` and `columns` of what clusters of so many blocks compute at a time; as many blocks as the chip runs.
    Tiles {
        /// Blocks of a cluster, whose tiles lie one above the other.
        cluster: u32,
    },
}

const fn tile(m: u32, n: u32, k: u32, stages: u32) -> GemmTile {
    GemmTile { m, n, k, stages }
}

const TENSOR: GemmTile = tile(128, 128, 32, 1);
const ASYNC: GemmTile = tile(128, 128, 32, 4);
const WGMMA: GemmTile = tile(128, 128, 64, 2);
const SPECIALISED: GemmTile = tile(128, 256, 64, 3);

/// All steps, from the first.
pub static LADDER: &[Step] = &STEPS;

pub(crate) const STEPS: [Step; 11] = [
    Step {
        number: 1,
        name: "naive",
        idea: "one thread computes one element from global memory",
        tile: tile(32, 8, 1, 1),
        takes: Takes::Pointers,
        kernel: Entry {
            name: "ladder_naive",
            summary: "c = a * b^T for bf16, one thread an element",
            needs: Arch::SM_80,
            registers: 32,
            stage: ladder_naive::stage,
        },
    },
    Step {
        number: 2,
        name: "patch",
        idea: "a warp computes a patch, so that its lanes share what they load",
        tile: tile(16, 16, 1, 1),
        takes: Takes::Pointers,
        kernel: Entry {
            name: "ladder_patch",
            summary: "c = a * b^T for bf16, one thread an element, patches of 4 x 8 a warp",
            needs: Arch::SM_80,
            registers: 32,
            stage: ladder_patch::stage,
        },
    },
    Step {
        number: 3,
        name: "shared",
        idea: "a block fetches tiles into shared memory and uses each element 32 times",
        tile: tile(32, 32, 32, 1),
        takes: Takes::Pointers,
        kernel: Entry {
            name: "ladder_shared",
            summary: "c = a * b^T for bf16, tile 32 x 32 x 32 in shared memory",
            needs: Arch::SM_80,
            registers: 40,
            stage: ladder_shared::stage,
        },
    },
    Step {
        number: 4,
        name: "registers",
        idea: "a thread computes 8 x 8 elements and uses each element it reads 8 times",
        tile: tile(128, 128, 32, 1),
        takes: Takes::Pointers,
        kernel: Entry {
            name: "ladder_registers",
            summary: "c = a * b^T for bf16, tile 128 x 128 x 32, 8 x 8 elements a thread",
            needs: Arch::SM_80,
            registers: 128,
            stage: ladder_registers::stage,
        },
    },
    Step {
        number: 5,
        name: "vectors",
        idea: "16 bytes an access",
        tile: tile(128, 128, 32, 1),
        takes: Takes::Pointers,
        kernel: Entry {
            name: "ladder_vectors",
            summary: "c = a * b^T for bf16, tile 128 x 128 x 32, 8 x 8 elements a thread, 16 bytes an access",
            needs: Arch::SM_80,
            registers: 128,
            stage: ladder_vectors::stage,
        },
    },
    Step {
        number: 6,
        name: "tensor",
        idea: "tensor cores multiply fragments that warps load with ldmatrix",
        tile: TENSOR,
        takes: Takes::Pointers,
        kernel: Entry {
            name: "ladder_tensor",
            summary: "c = a * b^T for bf16, tile 128 x 128 x 32, mma.sync",
            needs: Arch::SM_80,
            registers: 255,
            stage: || ladder_tensor::stage(TENSOR),
        },
    },
    Step {
        number: 7,
        name: "async",
        idea: "asynchronous copies fill a ring of tiles some steps ahead",
        tile: ASYNC,
        takes: Takes::Pointers,
        kernel: Entry {
            name: "gemm_ampere",
            summary: "c = a * b^T for bf16, tile 128 x 128 x 32, mma.sync and cp.async",
            needs: Arch::SM_80,
            registers: 255,
            stage: || examples::gemm_ampere::stage(ASYNC),
        },
    },
    Step {
        number: 8,
        name: "wgmma",
        idea: "the copy engine moves whole tiles, a warpgroup multiplies from shared memory",
        tile: WGMMA,
        takes: Takes::Maps,
        kernel: Entry {
            name: "ladder_wgmma",
            summary: "c = a * b^T for bf16, tile 128 x 128 x 64, wgmma and TMA, one warpgroup",
            needs: Arch::SM_90A,
            registers: 168,
            stage: || ladder_wgmma::stage(WGMMA),
        },
    },
    Step {
        number: 9,
        name: "specialised",
        idea: "one warpgroup only loads, two only multiply, a pipeline between them",
        tile: SPECIALISED,
        takes: Takes::Maps,
        kernel: Entry {
            name: "gemm_hopper",
            summary: "c = a * b^T for bf16, tile 128 x 256 x 64, wgmma and TMA, warp-specialised",
            needs: Arch::SM_90A,
            registers: 168,
            stage: || examples::gemm_hopper::stage(SPECIALISED),
        },
    },
    Step {
        number: 10,
        name: "persistent",
        idea: "blocks stay and walk over tiles in L2's order, storing one while multiplying the next",
        tile: SPECIALISED,
        takes: Takes::Tiles { cluster: 1 },
        kernel: Entry {
            name: "ladder_persistent",
            summary: "c = a * b^T for bf16, tile 128 x 256 x 64, wgmma and TMA, persistent",
            needs: Arch::SM_90A,
            registers: 168,
            stage: || ladder_persistent::stage(SPECIALISED),
        },
    },
    Step {
        number: 11,
        name: "cluster",
        idea: "two blocks share a tile of b: each fetches half, the copy engine delivers to both",
        tile: SPECIALISED,
        takes: Takes::Tiles { cluster: 2 },
        kernel: Entry {
            name: "ladder_cluster",
            summary: "c = a * b^T for bf16, tile 128 x 256 x 64, wgmma and TMA, persistent, clusters of 2",
            needs: Arch::SM_90A,
            registers: 168,
            stage: || ladder_cluster::stage(SPECIALISED),
        },
    },
];

/// The step of that name, or of that number.
#[must_use]
pub fn find(name: &str) -> Option<&'static Step> {
    LADDER.iter().find(|step| step.name == name || step.number.to_string() == name)
}

impl Step {
    /// What m, n and k must be multiples of.
    #[must_use]
    pub fn multiples(&self) -> [u32; 3] {
        let cluster = match self.takes {
            Takes::Tiles { cluster } => cluster,
            Takes::Pointers | Takes::Maps => 1,
        };
        [self.tile.m * cluster, self.tile.n, self.tile.k]
    }

    /// The launch that computes a product of these extents `[m, n, k]` on a chip of so many multiprocessors. `a`, `b` and `c` are the
    /// operands A, B and D of the [`Recipe`].
    ///
    /// # Errors
    /// If an extent is no multiple of the tile's.
    pub fn recipe(&self, [m, n, k]: [u32; 3], multiprocessors: u32) -> Result<Recipe, GemmError> {
        let multiples = self.multiples();
        for ((name, extent), multiple) in [("m", m), ("n", n), ("k", k)].into_iter().zip(multiples) {
            if extent == 0 || !extent.is_multiple_of(multiple) || extent > i32::MAX.cast_unsigned() {
                let reason = format!("{name} is {extent}, expected a positive multiple of {multiple}");
                return Err(GemmError::Config {
                    config: format!("ladder {} ({})", self.number, self.name),
                    reason,
                });
            }
        }
        let [rows, columns, steps] = [m / multiples[0], n / multiples[1], k / multiples[2]];
        let grid = match self.takes {
            Takes::Pointers | Takes::Maps => [columns, rows, 1],
            Takes::Tiles { cluster } => {
                let clusters = u64::from(rows) * u64::from(columns);
                let room = (multiprocessors / cluster).max(1);
                [u32::try_from(clusters).map_or(room, |clusters| clusters.min(room)) * cluster, 1, 1]
            }
        };
        let matrix = |operand: Operand, rows: u32, columns: u32| match self.takes {
            Takes::Pointers => Binding::Pointer(operand, 0),
            Takes::Maps | Takes::Tiles { .. } => Binding::Map(MapBinding {
                operand,
                offset: 0,
                dims: vec![columns.into(), rows.into()],
                strides: vec![u64::from(columns) * 2],
                shortened: None,
            }),
        };
        let numbers = [("n", n), ("k", k), ("rows", rows), ("columns", columns), ("steps", steps)];
        let bindings = [
            ("a", matrix(Operand::A, m, k)),
            ("b", matrix(Operand::B, n, k)),
            ("c", matrix(Operand::D, m, n)),
        ];
        let bindings = bindings.into_iter().chain(numbers.map(|(name, number)| (name, Binding::U32(number))));
        let launch = Launch::new(
            KernelSource { key: self.kernel.name.to_owned(), stage: Arc::new(self.kernel.stage) },
            grid,
            bindings.map(|(name, binding)| (name.to_owned(), binding)).collect(),
        );
        Ok(Recipe { launches: vec![launch], workspace: 0, zeroed: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_complete() {
        for (step, number) in LADDER.iter().zip(1u32..) {
            assert_eq!(step.number, number);
            assert!(std::ptr::eq(find(step.name).unwrap(), step), "{} is there twice", step.name);
            assert!(std::ptr::eq(find(&number.to_string()).unwrap(), step));
            let entry = crate::find(step.kernel.name).unwrap();
            assert_eq!(entry.summary, step.kernel.summary, "{} in the registry", step.name);
            assert!(!step.idea.ends_with('.') && step.idea.len() < 100, "{}", step.idea);
        }
    }

    /// Chips are never left behind: who can run a step can run all before it.
    #[test]
    fn steps_need_newer_and_newer_chips() {
        for pair in LADDER.windows(2) {
            assert!(pair[1].kernel.needs.supports(pair[0].kernel.needs), "{}", pair[1].name);
        }
    }

    /// Every parameter of every kernel is bound, and the copy engine's boxes are within the tile that the table claims.
    #[test]
    fn recipes_bind_every_parameter() {
        for step in LADDER {
            let kernel = (step.kernel.stage)().unwrap();
            let recipe = step.recipe(step.multiples(), 132).unwrap();
            let [launch] = &recipe.launches[..] else { panic!("{}: one launch", step.name) };
            for (parameter, ..) in kernel.parameters() {
                let bound = launch.bindings.iter().find(|(name, _)| name == parameter);
                let (_, binding) = bound.unwrap_or_else(|| panic!("{}: {parameter} is not bound", step.name));
                let spec = kernel.tensor_map(parameter);
                assert_eq!(matches!(binding, Binding::Map(_)), spec.is_some(), "{}: {parameter}", step.name);
                if let Some(spec) = spec {
                    let rows = if parameter == "b" { step.tile.n } else { step.tile.m };
                    assert!(
                        spec.box_dims()[1] <= rows && spec.box_dims()[0] == 64,
                        "{}: {spec:?}",
                        step.name
                    );
                }
            }
        }
    }

    #[test]
    fn persistent_blocks_are_as_many_as_fit() {
        let grid = |name: &str, size, multiprocessors| {
            find(name).unwrap().recipe(size, multiprocessors).unwrap().launches[0].grid
        };
        assert_eq!(grid("persistent", [1024, 1024, 64], 132), [32, 1, 1]);
        assert_eq!(grid("persistent", [8192, 8192, 64], 132), [132, 1, 1]);
        assert_eq!(grid("cluster", [8192, 8192, 64], 131), [130, 1, 1]);
        assert_eq!(grid("cluster", [256, 256, 64], 1), [2, 1, 1]);
    }
}
