//! Sums and largest values of rows, of columns and of everything that an epilogue computes.
//!
//! Either the kernel of the product [finishes](super::Staged::finish) what the values of each warp make together and writes that to
//! scratch memory ([`add_reductions`]), or it writes the values as the matrix they are, which asks nothing of it but costs one
//! write and one read of a matrix of f32 ([`with_reductions`]). Launches after it reduce that in a fixed order, so that every run gives
//! the same bits, whatever the schedule of the product is.
//!
//! A reduction sees the values as *slots*, one after the other, each with an element for every index of the result: parts of the columns
//! for results of rows, parts of the rows for results of columns.

use std::sync::Arc;

use tilewright_hardware::Element;
use tilewright_lang::prelude::*;

use super::expr::{Access, ExtraOperand, How, Shape};
use super::partials::{combine, start};
use super::{Epilogue, Parameter};
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
    overlap_grids();
    let parts = Shared::<R>::new("(32,32):(32,1)");
    let (warp, lane) = (warp_id(), lane_id());
    // Along one axis of the grid: the others have no room for large batches.
    let blocks = div_ceil(extent, 32u32);
    let (batch, i) = (block_id(0) / blocks, block_id(0) % blocks * 32u32 + lane);
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
    overlap_grids();
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

/// Into how many pieces the warps of a kernel divide the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Parts of the columns.
    pub across: u32,
    /// Parts of the rows.
    pub down: u32,
}

/// Values in scratch memory: `[batch][slot][index]`.
struct Slots {
    offset: u64,
    count: u32,
    extent: u32,
}

/// Space for so many elements for each member of a batch at the end of the workspace.
fn reserve(recipe: &mut Recipe, problem: &Problem, elements: u64, element: Element) -> u64 {
    // What is more than a number is more than any device has: the run says so.
    let offset = recipe.workspace.checked_next_multiple_of(256).unwrap_or(u64::MAX);
    let bytes = u64::from(problem.batch).saturating_mul(elements).saturating_mul(element.bytes().into());
    recipe.workspace = offset.saturating_add(bytes);
    offset
}

fn named(bindings: Vec<(&str, Binding)>) -> Vec<(String, Binding)> {
    bindings.into_iter().map(|(name, binding)| (name.to_owned(), binding)).collect()
}

impl Epilogue {
    /// The operands that get what many values make together, with the names of their parameters.
    fn reductions(&self) -> Vec<(String, ExtraOperand, How)> {
        let reductions = self.parameters().into_iter().filter_map(|parameter| match parameter {
            Parameter::Operand { parameter, operand } => match operand.access {
                Access::Reduce(how) => Some((parameter, operand, how)),
                _ => None,
            },
            Parameter::Scalar { .. } => None,
        });
        reductions.collect()
    }
}

/// Completes the recipe of a product whose kernel, the last launch, calls [`finish`](super::Staged::finish) for each of so many pieces:
/// adds the missing bindings, scratch memory, and the launches that reduce it. Does nothing for epilogues that do not
/// [reduce](Epilogue::reduces).
pub fn add_reductions(problem: &Problem, pieces: Pieces, recipe: &mut Recipe) {
    if recipe.launches.is_empty() {
        return;
    }
    let product = recipe.launches.len() - 1;
    for (parameter, operand, how) in problem.epilogue.reductions() {
        let (rows, columns) = operand.extents(problem);
        let (count, extent) = match operand.shape {
            Shape::PerRow => (pieces.across, rows),
            Shape::PerColumn => (pieces.down, columns),
            _ => (pieces.down, pieces.across),
        };
        let elements = u64::from(count) * u64::from(extent);
        let offset = reserve(recipe, problem, elements, operand.element);
        recipe.launches[product].bindings.extend([
            (parameter.clone(), Binding::Pointer(Operand::Workspace, offset)),
            (format!("{parameter}_slots"), Binding::U32(count)),
            (format!("{parameter}_extent"), Binding::U32(extent)),
        ]);
        recipe.launches.push(if operand.shape == Shape::One {
            operand.reduce_all(how, offset, elements.saturating_mul(problem.batch.into()))
        } else {
            let slots = Slots { offset, count, extent };
            operand.reduce_slots(problem, how, &slots, operand.result(), operand.batch_stride)
        });
    }
}

/// The recipe of a product whose epilogue may reduce, from a recipe for one that does not: `recipe_of` is called with the problem with
/// every reduction replaced by a matrix that is written, and the launches that reduce it follow. For kernels that do not
/// [finish](super::Staged::finish) reductions.
///
/// # Errors
/// Those of `recipe_of`, and of [`Epilogue::check`].
pub fn with_reductions(
    problem: &Problem,
    recipe_of: impl FnOnce(&Problem) -> Result<Recipe, GemmError>,
) -> Result<Recipe, GemmError> {
    problem.epilogue.check(problem)?;
    let reductions = problem.epilogue.reductions();
    if reductions.is_empty() {
        return recipe_of(problem);
    }
    let scratch = |operand: &ExtraOperand| {
        let reduction = reductions.iter().find(|(_, reduction, _)| reduction.name == operand.name);
        reduction.map_or_else(|| operand.clone(), |(_, reduction, _)| reduction.scratch(problem))
    };
    let expr = problem.epilogue.result().with_parts(&scratch, &|pick| *pick);
    let mut recipe = recipe_of(&Problem { epilogue: expr.into(), ..problem.clone() })?;
    if recipe.launches.is_empty() {
        return Ok(recipe);
    }
    for (_, operand, how) in &reductions {
        let (rows, columns) = operand.extents(problem);
        let (count, extent) = match operand.shape {
            Shape::PerRow => (columns, rows),
            _ => (rows, columns),
        };
        let offset = reserve(&mut recipe, problem, u64::from(rows) * u64::from(columns), operand.element);
        let scratch = Operand::Extra(operand.name.clone());
        for binding in recipe.launches.iter_mut().flat_map(|launch| &mut launch.bindings) {
            if let Binding::Pointer(memory, start) = &mut binding.1
                && *memory == scratch
            {
                (*memory, *start) = (Operand::Workspace, offset + *start);
            }
        }
        let slots = Slots { offset, count, extent };
        if operand.shape == Shape::One {
            // First the columns: all places are too many for one block.
            let between = reserve(&mut recipe, problem, u64::from(extent), operand.element);
            let out = Binding::Pointer(Operand::Workspace, between);
            recipe.launches.push(operand.reduce_slots(problem, *how, &slots, out, u64::from(extent)));
            let all = u64::from(problem.batch) * u64::from(extent);
            recipe.launches.push(operand.reduce_all(*how, between, all));
        } else {
            let (out, stride) = (operand.result(), operand.batch_stride);
            recipe.launches.push(operand.reduce_slots(problem, *how, &slots, out, stride));
        }
    }
    Ok(recipe)
}

/// The launches for a product without elements: results of reductions get what no values make together, everything else has no
/// elements either.
pub(in crate::gemm) fn reductions_of_nothing(problem: &Problem) -> Recipe {
    let launch = |(_, operand, how): (String, ExtraOperand, How)| {
        let (rows, columns) = operand.extents(problem);
        // No value is read, so any memory will do for them.
        let mut launch = match operand.shape {
            Shape::One => operand.reduce_all(how, 0, 0),
            shape => {
                let extent = if shape == Shape::PerRow { rows } else { columns };
                let slots = Slots { offset: 0, count: 0, extent };
                operand.reduce_slots(problem, how, &slots, operand.result(), operand.batch_stride)
            }
        };
        for (_, binding) in launch.bindings.iter_mut().filter(|(name, _)| name == "values") {
            *binding = operand.result();
        }
        launch
    };
    let launches = problem.epilogue.reductions().into_iter().map(launch);
    Recipe { launches: launches.filter(|launch| !launch.grid.contains(&0)).collect(), ..Recipe::default() }
}

impl ExtraOperand {
    /// The matrix of the values that it reduces, so that neighbours in memory belong to different results.
    fn scratch(&self, problem: &Problem) -> ExtraOperand {
        let (rows, columns) = self.extents(problem);
        let storage = match self.shape {
            Shape::PerRow => Storage::ColumnMajor,
            _ => Storage::RowMajor,
        };
        let shape = Shape::Matrix(Placement::dense(storage, rows as usize, columns as usize));
        let scratch = ExtraOperand { shape, batch_stride: 0, access: Access::Write, ..self.clone() };
        ExtraOperand { width: scratch.widest(problem, 256), ..scratch }
    }

    /// Reduces the values at `offset` of the workspace to its results, or to `out` of them.
    fn reduce_slots(&self, problem: &Problem, how: How, slots: &Slots, out: Binding, stride: u64) -> Launch {
        // So many results are more than any memory has: the launch says so.
        let blocks = slots.extent.div_ceil(32).saturating_mul(problem.batch);
        Launch::new(
            self.kernel("slots", how),
            [blocks, 1, 1],
            named(vec![
                ("values", Binding::Pointer(Operand::Workspace, slots.offset)),
                ("out", out),
                ("slots", Binding::U32(slots.count)),
                ("extent", Binding::U32(slots.extent)),
                ("out_batch", Binding::U64(stride)),
            ]),
        )
    }

    /// Reduces so many values at `offset` of the workspace to one.
    fn reduce_all(&self, how: How, offset: u64, count: u64) -> Launch {
        Launch::new(
            self.kernel("all", how),
            [1, 1, 1],
            named(vec![
                ("values", Binding::Pointer(Operand::Workspace, offset)),
                ("out", self.result()),
                ("count", Binding::U64(count)),
            ]),
        )
    }

    fn result(&self) -> Binding {
        Binding::Pointer(Operand::Extra(self.name.clone()), 0)
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
    use crate::gemm::problem::Types;

    #[test]
    fn batches_of_any_size_are_numbered_along_the_axis_with_room() {
        for epilogue in
            [Epilogue::new().row_sums("s"), Epilogue::new().column_max("s"), Epilogue::new().amax("s")]
        {
            let plain =
                Problem { epilogue, batch: 100_000, ..Problem::new(40, 70, 8, Types::of(Element::BF16)) };
            let problem = Problem { epilogue: plain.epilogue.fitted(&plain), ..plain };
            let recipe = with_reductions(&problem, |_| {
                let stage = Arc::new(|| reduce_all::stage::<f32>(How::Sum));
                let kernel = KernelSource { key: "product".to_owned(), stage };
                Ok(Recipe { launches: vec![Launch::new(kernel, [1, 1, 1], Vec::new())], ..Recipe::default() })
            })
            .unwrap();
            assert!(recipe.launches.len() > 1);
            for launch in recipe.launches {
                let [_, y, z] = launch.grid;
                assert!(y <= 65535 && z <= 65535, "{:?}", launch.grid);
            }
        }
    }

    #[test]
    fn values_go_through_scratch_memory() {
        let epilogue = Epilogue::new().alpha().row_sums("rows").relu().amax("largest");
        let problem = Problem { epilogue, batch: 1, ..Problem::new(100, 50, 8, Types::of(Element::BF16)) };
        let recipe = with_reductions(&problem, |plain| {
            assert_eq!(
                plain.epilogue.to_string(),
                "store([matrix largest:f32 row-major v2 w2], relu(store([matrix rows:f32 column-major v4 w4], ($alpha * sum))))"
            );
            let kernel = KernelSource { key: "product".to_owned(), stage: Arc::new(|| reduce_all::stage::<f32>(How::Sum)) };
            let launch = Launch::new(kernel, [1, 1, 1], plain.epilogue.bindings(plain));
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
