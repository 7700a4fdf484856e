//! Sums and largest values of rows, of columns and of everything that an epilogue computes.
//!
//! The kernel of the product writes the values to scratch memory as the matrix they are; launches after it reduce that in a fixed order,
//! so that every run gives the same bits, whatever the schedule of the product is. This costs one write and one read of a matrix of f32,
//! and asks nothing of the kernel.
//!
//! A reduction sees the values as *slots*, one after the other, each with an element for every index of the result: the values of a row
//! are the column-major matrix's columns, those of a column the row-major matrix's rows.

use std::sync::Arc;

use tilewright_hardware::Element;
use tilewright_lang::prelude::*;

use super::expr::{Access, Expr, ExtraOperand, How, Shape};
use crate::gemm::GemmError;
use crate::gemm::problem::{Placement, Problem, Storage};
use crate::gemm::recipe::{Binding, KernelSource, Launch, Operand, Recipe};

/// Threads of a block: 32 warps of 32 lanes.
const WARPS: u32 = 32;

/// `out[batch][i]` is what `values[batch][slot][i]` make together over all slots. A warp takes neighbouring slots in order, and the
/// results of the warps are taken in order.
#[kernel(threads = 1024)]
fn reduce_slots<R: Number>(
    values: Global<R>,
    out: Global<R>,
    slots: Val<u32>,
    extent: Val<u32>,
    out_batch: Val<u64>,
    how: How,
) {
    let parts = Shared::<R>::new("(32,32):(32,1)");
    let (warp, lane, batch) = (warp_id(), lane_id(), block_id(1));
    let i = block_id(0) * 32u32 + lane;
    let share = div_ceil(slots, WARPS);
    let first = warp * share;
    let end = min(first + share, slots);
    let mut total = start::<R>(how);
    if i < extent {
        let origin = values.at(batch.mul_wide(slots) * extent.cast::<u64>());
        for slot in first..end {
            total = combine(how, total, origin.at(slot.mul_wide(extent) + i.cast::<u64>()).load());
        }
    }
    parts.at((warp, lane)).store(total);
    barrier();
    if warp == 0 && i < extent {
        let mut all = parts.at((0u32, lane)).load();
        for other in unroll(1..WARPS) {
            all = combine(how, all, parts.at((other, lane)).load());
        }
        out.at(batch.cast::<u64>() * out_batch + i.cast::<u64>()).store(all);
    }
}

/// `out` is what `values` make together, by one block.
#[kernel(threads = 1024)]
fn reduce_all<R: Number>(values: Global<R>, out: Global<R>, count: Val<u64>, how: How) {
    let parts = Shared::<R>::new("32:1");
    let (warp, lane) = (warp_id(), lane_id());
    let mut total = start::<R>(how);
    let mut index = thread_id(0).cast::<u64>();
    while index < count {
        total = combine(how, total, values.at(index).load());
        index += 1024u64;
    }
    let total = warp_reduce(total, |a, b| combine(how, a, b));
    if lane == 0 {
        parts.at([warp]).store(total);
    }
    barrier();
    if warp == 0 {
        let all = warp_reduce(parts.at([lane]).load(), |a, b| combine(how, a, b));
        if lane == 0 {
            out.store(all);
        }
    }
}

#[track_caller]
fn start<R: Number>(how: How) -> Val<R> {
    val(how.start()).cast()
}

#[track_caller]
fn combine<R: Number>(how: How, before: Val<R>, value: Val<R>) -> Val<R> {
    match how {
        How::Sum => before + value,
        How::Max => before.max(value),
        How::AbsMax => before.max(value.abs()),
    }
}

/// The recipe of a product whose epilogue may reduce, from a recipe for one that does not: `recipe_of` is called with the problem with
/// every reduction replaced by a matrix that is written, and the launches that reduce it follow.
///
/// # Errors
/// Those of `recipe_of`, and of [`Epilogue::check`](super::Epilogue::check).
pub fn with_reductions(
    problem: &Problem,
    recipe_of: impl FnOnce(&Problem) -> Result<Recipe, GemmError>,
) -> Result<Recipe, GemmError> {
    problem.epilogue.check(problem)?;
    let reductions: Vec<ExtraOperand> =
        problem.epilogue.operands().into_iter().filter(|operand| operand.how().is_some()).collect();
    if reductions.is_empty() {
        return recipe_of(problem);
    }
    let expr = problem.epilogue.result().replace_reductions(&|name| {
        let operand = reductions.iter().find(|operand| operand.name == name)?;
        Some(operand.scratch(problem))
    });
    let mut recipe = recipe_of(&Problem { epilogue: expr.into(), ..problem.clone() })?;
    if recipe.launches.is_empty() {
        return Ok(recipe);
    }
    for operand in &reductions {
        let offset = recipe.workspace.next_multiple_of(256);
        let values = operand.scratch(problem).elements(problem) * u64::from(operand.element.bytes());
        recipe.workspace = offset + values;
        let scratch = Operand::Extra(operand.name.clone());
        for binding in recipe.launches.iter_mut().flat_map(|launch| &mut launch.bindings) {
            if let Binding::Pointer(memory, start) = &mut binding.1
                && *memory == scratch
            {
                (*memory, *start) = (Operand::Workspace, offset + *start);
            }
        }
        operand.append_launches(problem, offset, &mut recipe);
    }
    Ok(recipe)
}

impl Expr {
    /// The same with other operands in place of those that reduce.
    fn replace_reductions(&self, replace: &impl Fn(&str) -> Option<ExtraOperand>) -> Expr {
        let of = |expr: &Expr| Box::new(expr.replace_reductions(replace));
        match self {
            Expr::Sum | Expr::C | Expr::Scalar(_) | Expr::Constant(_) | Expr::Read(_) => self.clone(),
            Expr::Weighted(name, x) => Expr::Weighted(name.clone(), of(x)),
            Expr::Unary(function, x) => Expr::Unary(*function, of(x)),
            Expr::Binary(function, x, y) => Expr::Binary(*function, of(x), of(y)),
            Expr::User(function, inputs) => {
                Expr::User(function.clone(), inputs.iter().map(|x| x.replace_reductions(replace)).collect())
            }
            Expr::Pick(pick, x) => Expr::Pick(*pick, of(x)),
            Expr::Store(operand, x) => {
                Expr::Store(replace(&operand.name).unwrap_or_else(|| operand.clone()), of(x))
            }
        }
    }
}

impl ExtraOperand {
    fn how(&self) -> Option<How> {
        match self.access {
            Access::Reduce(how) => Some(how),
            _ => None,
        }
    }

    /// The matrix of the values that it reduces, so that neighbours in memory belong to different results.
    fn scratch(&self, problem: &Problem) -> ExtraOperand {
        let (rows, columns) = self.extents(problem);
        let storage = match self.shape {
            Shape::PerRow => Storage::ColumnMajor,
            _ => Storage::RowMajor,
        };
        let shape = Shape::Matrix(Placement::dense(storage, rows, columns));
        ExtraOperand { shape, batch_stride: 0, access: Access::Write, ..self.clone() }
    }

    /// Reduces the values at `offset` of the workspace.
    fn append_launches(&self, problem: &Problem, offset: u64, recipe: &mut Recipe) {
        let Some(how) = self.how() else { return };
        let (rows, columns) = self.extents(problem);
        let (slots, extent) = match self.shape {
            Shape::PerRow => (columns, rows),
            _ => (rows, columns),
        };
        let values = Binding::Pointer(Operand::Workspace, offset);
        let result = Binding::Pointer(Operand::Extra(self.name.clone()), 0);
        // One number is made of the results of the columns, which would be too many for a block.
        let between = recipe.workspace.next_multiple_of(256);
        let (out, stride) = match self.shape {
            Shape::One => (Binding::Pointer(Operand::Workspace, between), u64::from(extent)),
            _ => (result.clone(), self.batch_stride),
        };
        let named = |bindings: Vec<(&str, Binding)>| {
            bindings.into_iter().map(|(name, binding)| (name.to_owned(), binding)).collect()
        };
        recipe.launches.push(Launch {
            kernel: self.kernel("slots", how),
            grid: [extent.div_ceil(32), problem.batch, 1],
            bindings: named(vec![
                ("values", values),
                ("out", out.clone()),
                ("slots", Binding::U32(slots)),
                ("extent", Binding::U32(extent)),
                ("out_batch", Binding::U64(stride)),
            ]),
        });
        if self.shape == Shape::One {
            let count = u64::from(problem.batch) * u64::from(extent);
            recipe.workspace = between + count * u64::from(self.element.bytes());
            recipe.launches.push(Launch {
                kernel: self.kernel("all", how),
                grid: [1, 1, 1],
                bindings: named(vec![("values", out), ("out", result), ("count", Binding::U64(count))]),
            });
        }
    }

    fn kernel(&self, which: &'static str, how: How) -> KernelSource {
        let double = self.element == Element::F64;
        let stage = move || match (which, double) {
            ("all", false) => reduce_all::stage::<f32>(how),
            ("all", true) => reduce_all::stage::<f64>(how),
            (_, false) => reduce_slots::stage::<f32>(how),
            (_, true) => reduce_slots::stage::<f64>(how),
        };
        KernelSource { key: format!("reduce {which} {how} {}", self.element), stage: Arc::new(stage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::epilogue::Epilogue;
    use crate::gemm::problem::Types;

    #[test]
    fn values_go_through_scratch_memory() {
        let epilogue = Epilogue::new().alpha().row_sums("rows").relu().amax("largest");
        let problem = Problem { epilogue, batch: 1, ..Problem::new(100, 50, 8, Types::of(Element::BF16)) };
        let recipe = with_reductions(&problem, |plain| {
            assert_eq!(
                plain.epilogue.to_string(),
                "store([matrix largest:f32 row-major w2], relu(store([matrix rows:f32 column-major w1], ($alpha * sum))))"
            );
            let kernel = KernelSource { key: "product".to_owned(), stage: Arc::new(|| reduce_all::stage::<f32>(How::Sum)) };
            let launch = Launch { kernel, grid: [1, 1, 1], bindings: plain.epilogue.bindings(plain) };
            Ok(Recipe { launches: vec![launch], workspace: 1000, zeroed: 4 })
        })
        .unwrap();
        let keys: Vec<&str> = recipe.launches.iter().map(|launch| launch.kernel.key.as_str()).collect();
        assert_eq!(
            keys,
            ["product", "reduce slots absmax f32", "reduce all absmax f32", "reduce slots sum f32"]
        );
        // After the product's own 1000 bytes: the values for the largest and its 50 columns, then those of the rows.
        let largest = 1024;
        let between = (largest + 100 * 50 * 4u64).next_multiple_of(256);
        let rows = (between + 50 * 4).next_multiple_of(256);
        assert_eq!((recipe.workspace, recipe.zeroed), (rows + 100 * 50 * 4, 4));
        let pointers = |launch: &Launch| -> Vec<Binding> {
            let bindings = launch.bindings.iter().map(|(_, binding)| binding.clone());
            bindings.filter(|binding| matches!(binding, Binding::Pointer(..))).collect()
        };
        let workspace = |offset| Binding::Pointer(Operand::Workspace, offset);
        let extra = |name: &str| Binding::Pointer(Operand::Extra(name.to_owned()), 0);
        assert_eq!(pointers(&recipe.launches[0]), [workspace(largest), workspace(rows)]);
        assert_eq!(pointers(&recipe.launches[1]), [workspace(largest), workspace(between)]);
        assert_eq!(pointers(&recipe.launches[2]), [workspace(between), extra("largest")]);
        assert_eq!(pointers(&recipe.launches[3]), [workspace(rows), extra("rows")]);
    }

    #[test]
    fn products_without_reductions_or_elements_stay_as_they_are() {
        let problem = Problem::new(4, 4, 4, Types::of(Element::BF16));
        let workspace = |problem: &Problem| {
            with_reductions(problem, |_| Ok(Recipe { workspace: 7, ..Recipe::default() })).unwrap().workspace
        };
        assert_eq!(workspace(&problem), 7);
        assert_eq!(workspace(&Problem { m: 0, epilogue: Epilogue::new().row_sums("s"), ..problem }), 7);
    }
}
