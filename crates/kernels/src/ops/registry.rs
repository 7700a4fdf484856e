//! Kernels of this folder in configurations that compile, so that tests can find them.

use tilewright_hardware::Arch;
use tilewright_lang::{Error, Kernel, bf16};

use super::{
    Activation, Form, InParts, Kind, Pairs, Tiling, arg_of_ranks, arg_rows, arg_steps, convert,
    cross_entropy, cross_entropy_backward, cross_entropy_backward_in_parts, cross_entropy_backward_long,
    cross_entropy_long, cumulative_sum, cumulative_sum_long, dequantise, dropout, embedding, glu,
    glu_backward, layer_norm, layer_norm_adding, layer_norm_adding_long, layer_norm_backward,
    layer_norm_backward_long, layer_norm_long, permute, quantise_by, quantise_rows, reduce_rows,
    reduce_steps, rms_norm, rms_norm_adding, rms_norm_adding_long, rms_norm_backward, rms_norm_backward_long,
    rms_norm_long, rms_norm_quantised, rms_norm_quantised_long, rope, rope_positions, scale_of, softmax,
    softmax_backward, softmax_backward_long, softmax_causal, softmax_long, softmax_masked,
    softmax_masked_causal, softmax_masked_long, softmax_masked_positions, softmax_positions,
    softmax_positions_long, softmax_to_position, sum_columns, top_k, top_k_at_last, top_k_long,
    top_k_of_parts, top_k_of_ranks, top_k_sorted, transpose,
};
use crate::Entry;

const fn entry(name: &'static str, summary: &'static str, stage: fn() -> Result<Kernel, Error>) -> Entry {
    Entry { name, summary, needs: Arch::SM_80, registers: 255, stage }
}

const fn tiles(shape: [u32; 2]) -> Tiling {
    Tiling { shape, turned: false }
}

/// A configuration of each kernel: rows of 1536, or of what it is for.
pub static OPERATORS: &[Entry] = &[
    entry("softmax", "softmax of rows of 1536 bf16", || {
        softmax::stage::<bf16, bf16>(Form::Probabilities, false, [1, 1536])
    }),
    entry("softmax_causal", "causal softmax of rows of 4096 bf16", || {
        softmax_causal::stage::<bf16, bf16>(Form::Probabilities, false, false, InParts::of(4096, 2, false))
    }),
    entry("softmax_to_position", "causal log-softmax of rows of 1000 f32, with positions", || {
        softmax_to_position::stage::<f32, f32>(Form::Logarithms, false, InParts::of(1000, 4, false))
    }),
    entry("softmax_positions", "causal log-softmax of rows of 100 f32, 8 at a time", || {
        softmax_positions::stage::<f32, f32>(Form::Logarithms, [8, 100])
    }),
    entry("softmax_masked", "masked softmax of rows of 33 f32, 31 at a time", || {
        softmax_masked::stage::<f32, f32>(Form::Probabilities, [31, 33])
    }),
    entry("softmax_long", "softmax of rows of any length of bf16", || {
        softmax_long::stage::<bf16, bf16>(Form::Probabilities, false, 4096)
    }),
    entry("softmax_positions_long", "causal softmax of rows of any length of f32", || {
        softmax_positions_long::stage::<f32, f32>(Form::Probabilities, 4096)
    }),
    entry("softmax_masked_long", "masked softmax of rows of any length of f32", || {
        softmax_masked_long::stage::<f32, f32>(Form::Probabilities, 4096)
    }),
    entry(
        "softmax_masked_causal",
        "causal softmax of what a mask shows, of rows of any length of bf16",
        || softmax_masked_causal::stage::<bf16, bf16>(Form::Probabilities, 4096),
    ),
    entry("softmax_masked_positions", "log-softmax up to a position of what a mask shows, of f32", || {
        softmax_masked_positions::stage::<f32, f32>(Form::Logarithms, 1000)
    }),
    entry("softmax_backward_long", "the gradient of causal softmax of rows of any length of bf16", || {
        softmax_backward_long::stage::<bf16, bf16>(Form::Probabilities, true, 4096)
    }),
    entry("softmax_backward", "the gradient of softmax of rows of 1536 bf16", || {
        softmax_backward::stage::<bf16, bf16>(Form::Probabilities, false, [1, 1536])
    }),
    entry("cross_entropy", "cross entropy of rows of 8192 bf16", || {
        cross_entropy::stage::<bf16, i64>(true, true, [1, 8192])
    }),
    entry("cross_entropy_long", "cross entropy of rows of any length of bf16", || {
        cross_entropy_long::stage::<bf16, i64>(true, true, InParts::of_steps((1024, 128_256), 2, true, false))
    }),
    entry(
        "cross_entropy_backward_long",
        "the gradient of cross entropy of rows of any length of bf16",
        || {
            cross_entropy_backward_long::stage::<bf16, i64, bf16>(InParts::of_steps_twice(
                1024, 32768, 2, false,
            ))
        },
    ),
    entry(
        "cross_entropy_backward_in_parts",
        "the gradient of cross entropy of rows of 32768 bf16, as they are without clusters",
        || cross_entropy_backward_in_parts::stage::<bf16, i64, bf16>(InParts::of(32768, 2, false)),
    ),
    entry("cross_entropy_backward", "the gradient of cross entropy of rows of 8192 bf16", || {
        cross_entropy_backward::stage::<bf16, i64, bf16>([1, 8192])
    }),
    entry("rms_norm", "RMSNorm of rows of 4096 bf16", || {
        rms_norm::stage::<bf16, bf16, bf16>(true, [1, 4096])
    }),
    entry("rms_norm_adding", "RMSNorm of sums in rows of 4096 bf16", || {
        rms_norm_adding::stage::<bf16, f32, bf16>(true, [1, 4096])
    }),
    entry("layer_norm", "LayerNorm of rows of 1536 f32", || {
        layer_norm::stage::<f32, f32, f32>(true, true, [1, 1536])
    }),
    entry("rms_norm_long", "RMSNorm of rows of any length of bf16", || {
        rms_norm_long::stage::<bf16, bf16, bf16>(true, 4096)
    }),
    entry("rms_norm_adding_long", "RMSNorm of sums in rows of any length of bf16", || {
        rms_norm_adding_long::stage::<bf16, f32, bf16>(true, 4096)
    }),
    entry("rms_norm_backward", "the gradient of RMSNorm of rows of 4096 bf16", || {
        rms_norm_backward::stage::<bf16, f32, bf16>(true, 4096)
    }),
    entry("rms_norm_quantised", "RMSNorm of sums in rows of 4096 bf16 as i8", || {
        rms_norm_quantised::stage::<bf16, bf16, i8>(true, true, [1, 4096])
    }),
    entry("rms_norm_quantised_long", "RMSNorm of rows of any length of bf16 as i8", || {
        rms_norm_quantised_long::stage::<bf16, bf16, i8>(false, true, 4096)
    }),
    entry("rms_norm_backward_long", "the gradient of RMSNorm of rows of any length of bf16", || {
        rms_norm_backward_long::stage::<bf16, f32, bf16>(true, 4096)
    }),
    entry("layer_norm_backward_long", "the gradient of LayerNorm of rows of any length of f32", || {
        layer_norm_backward_long::stage::<f32, f32, f32>(true, 4096)
    }),
    entry("layer_norm_long", "LayerNorm of rows of any length of f32", || {
        layer_norm_long::stage::<f32, f32, f32>(true, true, 4096)
    }),
    entry("layer_norm_adding", "LayerNorm of sums in rows of 4096 bf16", || {
        layer_norm_adding::stage::<bf16, f32, bf16>(true, true, [1, 4096])
    }),
    entry("layer_norm_adding_long", "LayerNorm of sums in rows of any length of bf16", || {
        layer_norm_adding_long::stage::<bf16, f32, bf16>(true, true, 4096)
    }),
    entry("layer_norm_backward", "the gradient of LayerNorm of rows of 1536 f32", || {
        layer_norm_backward::stage::<f32, f32, f32>(true, 1536)
    }),
    entry("sum_columns", "sums of columns of f32", || sum_columns::stage([128, 32])),
    entry("glu", "SwiGLU of bf16", || glu::stage::<bf16, bf16>(Activation::Silu, tiles([1, 4096]))),
    entry("glu_backward", "the gradient of SwiGLU of bf16", || {
        glu_backward::stage::<bf16, bf16>(Activation::Silu, tiles([1, 4096]))
    }),
    entry("reduce_rows", "sums of rows of 4096 bf16", || {
        reduce_rows::stage::<bf16, f32>(Kind::Sum, [1, 4096])
    }),
    entry("reduce_steps", "sums of rows of any length of f32", || {
        reduce_steps::stage::<f32, f32>(Kind::Sum, 4096)
    }),
    entry("arg_rows", "the column of the largest in rows of 1000 f32", || {
        arg_rows::stage::<f32>(false, [1, 1000])
    }),
    entry("arg_steps", "the rank of the largest in rows of any length of f32", || {
        arg_steps::stage::<f32>(false, 4096)
    }),
    entry("arg_of_ranks", "the columns of the highest of 1024 ranks", || arg_of_ranks::stage([1, 1024])),
    entry("top_k", "the 8 largest of rows of 256 f32", || top_k::stage::<f32>(8, false, [4, 256])),
    entry("top_k_sorted", "the 100 largest of rows of 1000 f32", || {
        top_k_sorted::stage::<f32>(100, false, [1, 1000])
    }),
    entry("top_k_of_parts", "the ranks of the 50 largest of 4096 bf16 of a long row", || {
        top_k_of_parts::stage::<bf16>(50, false, 4096)
    }),
    entry("top_k_of_ranks", "the 50 highest of 2048 of many ranks", || top_k_of_ranks::stage(50, 16, 2048)),
    entry("top_k_at_last", "the 50 largest of rows of bf16, of which the highest ranks are known", || {
        top_k_at_last::stage::<bf16>(50, 128)
    }),
    entry("cumulative_sum", "cumulative sums of rows of 1536 f32", || {
        cumulative_sum::stage::<f32, f32>(false, false, [1, 1536])
    }),
    entry("top_k_long", "the 1000 largest of rows of any length of f32", || {
        top_k_long::stage::<f32>(1000, false, 4096)
    }),
    entry("cumulative_sum_long", "cumulative sums of rows of any length of f32", || {
        cumulative_sum_long::stage::<f32, f32>(true, true, 4096)
    }),
    entry("transpose", "transpose of bf16, tiles of 32 x 32", || transpose::stage::<bf16>(tiles([32, 32]))),
    entry("permute", "bf16 of heads and tokens in another order", || permute::stage::<bf16>([1, 8, 8, 64])),
    entry("rope", "rotary position embedding of bf16", || {
        let pairs = Pairs { head: 128, rotary: 128, interleaved: false, inverse: false };
        rope::stage::<bf16, bf16>(pairs, [1, 32].into())
    }),
    entry("rope_positions", "rotary position embedding of bf16, neighbours, half of each head", || {
        let pairs = Pairs { head: 128, rotary: 64, interleaved: true, inverse: false };
        rope_positions::stage::<bf16, bf16>(pairs, [1, 8].into())
    }),
    entry("embedding", "rows of a table of bf16 by index", || {
        embedding::stage::<bf16, i32>(tiles([1, 4096]))
    }),
    entry("convert", "bf16 from f32", || convert::stage::<f32, bf16>(tiles([1, 4096]))),
    entry("quantise_rows", "i8 from rows of 4096 bf16", || quantise_rows::stage::<bf16, i8>([1, 4096])),
    entry("quantise_by", "i8 from bf16", || quantise_by::stage::<bf16, i8>(true, tiles([1, 4096]))),
    entry("scale_of", "the scale of a tensor", || scale_of::stage(1)),
    entry("dequantise", "bf16 from i8", || dequantise::stage::<i8, bf16>(tiles([1, 4096]))),
    entry("dropout", "dropout of bf16", || dropout::stage::<bf16, bf16>(tiles([1, 1024]))),
];
