//! Kernels on tiles for learning: those that everybody writes first, in the order of the chapter `docs/tiles.md`, which shows
//! them; one is shown by `docs/triton.md`, stage by stage.
//!
//! Each says what one program does to its tiles; views may have any extents and strides, and what reaches beyond them is padded or dropped.
//! The tests of the front crate run all of them on the simulator and on the CPU.

mod add;
mod flash;
mod norm;
mod product;
mod random;
mod rows;

pub use add::vector_add;
pub use flash::attention;
pub use norm::{column_sums, layer_norm, layer_norm_backward};
pub use product::matmul;
pub use random::dropout;
pub use rows::{normalise, softmax};

use tilewright_hardware::Arch;
use tilewright_lang::{Error, Kernel};

use crate::Entry;

const fn entry(name: &'static str, summary: &'static str, stage: fn() -> Result<Kernel, Error>) -> Entry {
    Entry { name, summary, needs: Arch::SM_80, registers: 255, stage }
}

/// A configuration of each kernel, in the order of the chapter.
pub static TUTORIAL: &[Entry] = &[
    entry("vector_add", "out = x + y for f32, tiles of 1024", || vector_add::stage(1024)),
    entry("softmax", "softmax of rows of up to 1024 f32", || softmax::stage(1024)),
    entry("normalise", "rows of up to 128 f32 by their sums, for `docs/triton.md`", || normalise::stage(128)),
    entry("matmul", "c = a * b for bf16, tiles of 128 x 256, 64 deep", || {
        matmul::stage(false, [128, 256, 64])
    }),
    entry("dropout", "dropout of f32, tiles of 1024", || dropout::stage(1024)),
    entry("layer_norm", "LayerNorm of rows of up to 1024 f32", || layer_norm::stage(1024)),
    entry(
        "layer_norm_backward",
        "the gradients of LayerNorm of rows of up to 1024 f32, 16 rows a program",
        || layer_norm_backward::stage(16, 1024),
    ),
    entry("column_sums", "sums of columns of f32, tiles of 32 x 128", || column_sums::stage([32, 128])),
    entry("attention", "causal attention of heads of 64 bf16, 64 rows by 64 columns", || {
        attention::stage(true, [64, 64], 64)
    }),
];
