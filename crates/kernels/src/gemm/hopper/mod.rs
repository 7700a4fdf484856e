//! Products on Hopper at the speed of its tensor cores: `wgmma` on tiles that the copy engine brings.
//!
//! | file | what it says |
//! | --- | --- |
//! | `plan` | what a configuration means for a problem: tiles, registers, shared memory, the way to D |
//! | `schedule` | which tile comes next, and which steps of k |
//! | `kernel` | the kernel |
//! | `factor` | how A and B get to shared memory |
//! | `result` | from sums to D: the epilogue |
//! | `sink` | the way of results to global memory |
//! | `order` | how sums lie in memory that others add to |
//! | `reduce` | tiles that several blocks compute together, by way of global memory |
//! | `join` | tiles that the blocks of a cluster compute together, by way of their shared memory |
//!
//! Contract: [`Config::check`] is the one predicate. What it allows can be staged, assembled without spills, and launched; what it
//! does not allow it explains. A and B must suit the copy engine (addresses and leading dimensions in multiples of 16 bytes) and have k
//! contiguous unless their elements have 16 bits; D may lie in any way.

mod config;
mod factor;
mod join;
mod kernel;
mod order;
mod plan;
mod reduce;
mod result;
mod schedule;
mod sink;

pub use config::{Along, Config, Pace, Split};

use std::sync::Arc;

use tilewright_hardware::{Arch, Element, Gpu, mma};
use tilewright_lang::prelude::{E4m3, E5m2, Tf32, bf16, f16};
use tilewright_lang::{Error, Kernel};

use self::factor::Side;
use self::plan::{Plan, SLAB};
use self::reduce::Workspace;
use self::result::Results;
use self::schedule::Numbers;
use super::GemmError;
use super::epilogue::add_reductions;
use super::problem::{Batching, Problem, Types};
use super::recipe::{KernelSource, Launch, MOST_BLOCKS, Recipe};

/// Kernels count tiles and steps in 32 bits, with room to step beyond the last.
const MOST_UNITS: u64 = 1 << 31;
/// Bytes of zeros that stand for A and B where there is no k.
const NOTHING: u64 = 256;

impl Config {
    /// Whether it can compute a problem on a GPU.
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self, problem: &Problem, gpu: &Gpu) -> Result<(), GemmError> {
        problem.check()?;
        let refuse = |reason: String| Err(GemmError::Config { config: self.to_string(), reason });
        if !gpu.arch.supports(Arch::SM_90A) {
            return refuse(format!("it needs sm_90a, and {} is {}", gpu.title, gpu.arch));
        }
        if problem.batching == Batching::Pointers {
            return refuse("it takes members of a batch at a fixed distance, not by address".to_owned());
        }
        let Types { a, b, accumulate, .. } = problem.types;
        if let Err(reason) = self.shape() {
            return refuse(reason);
        }
        if let Err(error) = mma::find(a, b, accumulate, (SLAB, self.n, 256 / a.bits())) {
            return refuse(error.to_string());
        }
        let (k_major_a, k_major_b) = problem.k_major();
        let factors = [("A", &problem.a, a, k_major_a), ("B", &problem.b, b, k_major_b)];
        for (name, placement, element, k_major) in factors {
            let in_memory = Types::in_memory(element);
            if !placement.suits_copy_engine(in_memory, problem.batch) {
                return refuse(format!(
                    "matrix {name} does not start its rows at multiples of 16 bytes; copy it to memory where it does"
                ));
            }
            if !k_major && element.bits() != 16 {
                return refuse(format!(
                    "matrix {name} of {element} must have k contiguous; transpose it first"
                ));
            }
            if problem.batch > 1 && placement.batch_stride.saturating_mul(element.bytes().into()) >= 1 << 40 {
                return refuse(format!(
                    "the members of {name} are further apart than the copy engine reaches"
                ));
            }
        }

        let plan = Plan::new(self, problem);
        for tile in [plan.tile_a(), plan.tile_b()] {
            if let Err(error) = tile {
                return refuse(error.to_string());
            }
        }
        if plan.promoted && self.k_bytes != 128 {
            return refuse("promoted sums need steps of 128 bytes".to_owned());
        }
        let (sums, most) = (plan.sum_registers(), plan.most_sum_registers());
        if sums > most {
            return refuse(format!("sums take {sums} registers of a thread, and {most} are there for them"));
        }
        let (free, needed) = (plan.free_registers(), plan.result_registers());
        if free < needed {
            return refuse(format!(
                "sums leave {free} registers of a thread, and this epilogue takes {needed}"
            ));
        }
        let (shared, limit) = (plan.shared_bytes(), gpu.arch.limits().shared_per_block);
        if shared > limit {
            return refuse(format!("it takes {shared} bytes of shared memory, and a block has {limit}"));
        }
        let numbers = Numbers::new(&plan, gpu.multiprocessors);
        let units = match self.split {
            Split::None => numbers.tiles,
            Split::Parts(parts) | Split::Joint(parts) if u64::from(parts) > numbers.steps => {
                return refuse(format!("k has {} steps, fewer than parts", numbers.steps));
            }
            Split::Parts(parts) | Split::Joint(parts) => numbers.tiles.saturating_mul(parts.into()),
            Split::Stream | Split::Assist => numbers.tiles.saturating_mul(numbers.steps),
        };
        if units >= MOST_UNITS {
            return refuse(format!("there are {units} units of work, and {MOST_UNITS} are too many"));
        }
        let blocks = numbers.blocks(self);
        if blocks > MOST_BLOCKS {
            return refuse(format!("there are {blocks} blocks, and a grid has {MOST_BLOCKS} at most"));
        }
        Ok(())
    }

    /// The launch that computes a problem on a GPU.
    ///
    /// # Errors
    /// If [`check`](Config::check) says so.
    pub fn recipe(&self, problem: &Problem, gpu: &Gpu) -> Result<Recipe, GemmError> {
        self.check(problem, gpu)?;
        if problem.m == 0 || problem.n == 0 || problem.batch == 0 {
            return Ok(Recipe::default());
        }
        let plan = Plan::new(self, problem);
        let numbers = Numbers::new(&plan, gpu.multiprocessors);
        let workspace = Workspace::new(&plan, &numbers);
        let zeros = if problem.k == 0 { NOTHING } else { 0 };

        let mut bindings = factor::bindings(&plan, Side::A);
        bindings.extend(factor::bindings(&plan, Side::B));
        bindings.extend(numbers.bindings());
        bindings.extend(workspace.bindings(zeros));
        bindings.extend(Results::<f32>::bindings(&plan));

        let blocks = numbers.blocks(self);
        let pieces = Results::<f32>::pieces(&plan, &numbers);
        // Blocks that begin early take the places that are free: where the launch before leaves many, some multiprocessors would get two
        // and others none (measured: 25 % slower).
        let overlaps = config::fills(blocks, gpu) && plan.fills_multiprocessor(gpu);
        let plan = if overlaps { plan.early(&numbers) } else { plan };
        let kernel = KernelSource { key: plan.key(), stage: Arc::new(move || stage(&plan)) };
        let grid = [u32::try_from(blocks).unwrap_or(u32::MAX), 1, 1];
        let mut recipe = Recipe {
            launches: vec![Launch { overlaps, ..Launch::new(kernel, grid, bindings) }],
            workspace: zeros + workspace.counters + workspace.sums,
            zeroed: zeros + workspace.counters,
        };
        add_reductions(problem, pieces, &mut recipe);
        Ok(recipe)
    }
}

/// Stages the kernel of a plan.
fn stage(plan: &Plan) -> Result<Kernel, Error> {
    let types = plan.problem.types;
    let whole = plan.problem.epilogue.computes_in(&types) == Element::I32;
    macro_rules! stage_as {
        ($a:ty, $b:ty, i32) => {
            if whole {
                kernel::stage::<$a, $b, i32, i32>(plan)
            } else {
                kernel::stage::<$a, $b, i32, f32>(plan)
            }
        };
        ($a:ty, $b:ty, $c:ty) => {
            kernel::stage::<$a, $b, $c, f32>(plan)
        };
    }
    match (types.a, types.b) {
        (Element::F16, _) => stage_as!(f16, f16, f32),
        (Element::TF32, _) => stage_as!(Tf32, Tf32, f32),
        (Element::E4M3, Element::E4M3) => stage_as!(E4m3, E4m3, f32),
        (Element::E4M3, _) => stage_as!(E4m3, E5m2, f32),
        (Element::E5M2, Element::E4M3) => stage_as!(E5m2, E4m3, f32),
        (Element::E5M2, _) => stage_as!(E5m2, E5m2, f32),
        (Element::I8, Element::I8) => stage_as!(i8, i8, i32),
        (Element::I8, _) => stage_as!(i8, u8, i32),
        (Element::U8, Element::I8) => stage_as!(u8, i8, i32),
        (Element::U8, _) => stage_as!(u8, u8, i32),
        _ => stage_as!(bf16, bf16, f32),
    }
}
