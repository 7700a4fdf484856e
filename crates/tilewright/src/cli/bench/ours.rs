//! Our own contestants: algorithms of the library on every copy of the operands.

use std::collections::HashSet;

use tilewright::device::{Buffer, Device, DeviceKind, DynBuffer};
use tilewright::gemm::{Arguments, Gemm, Operands, Plan, Prepared};
use tilewright::kernels::gemm::{Algorithm, Operand, Problem, Recipe, Types, candidates};

use super::super::Failure;
use super::super::product::{BIAS, bias_element};
use super::memory::Memory;
use super::timing::{Contestant, broken};

/// Which algorithms take part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'a> {
    /// These, if any.
    pub(super) algorithms: &'a [Algorithm],
    /// So many of those that the model likes best.
    pub(super) most: usize,
    /// And the best of so many kinds that are not among them.
    pub(super) kinds: usize,
}

impl Choice<'_> {
    /// Those of a list that take part, which has the best first.
    fn of(&self, all: impl IntoIterator<Item = Algorithm>) -> Vec<Algorithm> {
        let mut all = all.into_iter();
        let mut chosen: Vec<Algorithm> = all.by_ref().take(self.most).collect();
        let mut known: HashSet<String> = chosen.iter().map(kind).collect();
        chosen.extend(all.filter(|algorithm| known.insert(kind(algorithm))).take(self.kinds));
        chosen
    }
}

/// What an algorithm is without its details: tile, cluster, who multiplies, how k is divided. Stages and the order of tiles are details.
fn kind(algorithm: &Algorithm) -> String {
    let text = algorithm.to_string();
    let is_detail = |word: &&str| {
        let (letter, number) = word.split_at(1);
        "smng".contains(letter) && number.parse::<u32>().is_ok()
    };
    text.split(' ').filter(|word| !is_detail(word)).collect::<Vec<_>>().join(" ")
}

/// A product with one of our algorithms.
pub(super) struct Ours {
    name: String,
    predicted: Option<f64>,
    way: Way,
}

/// How it runs.
enum Way {
    /// Kernels, prepared on every copy.
    Kernels(Vec<Prepared>),
    /// The processor's own instructions.
    Processor(Box<Plan>, Vec<Arguments>),
}

impl Ours {
    /// Those that take part, the model's favourite first.
    pub(super) fn choose(
        device: &Device,
        problem: &Problem,
        memory: &Memory,
        choice: Choice<'_>,
    ) -> Result<Vec<Ours>, Failure> {
        let chip = device.chip();
        let algorithms: Vec<Algorithm> = match choice.algorithms {
            [] if device.kind() == DeviceKind::Cpu => {
                return Ok(vec![Ours::on_processor(device, problem, memory)?]);
            }
            [] => {
                let all = candidates(problem, &chip).map_err(Failure::input)?;
                choice.of(all.into_iter().map(|candidate| candidate.algorithm))
            }
            some => some.to_vec(),
        };
        let ours = algorithms.into_iter().map(|algorithm| {
            let recipe = algorithm.recipe(problem, &chip).map_err(Failure::input)?;
            let predicted = algorithm.predict(problem, &chip).ok().map(|prediction| prediction.seconds());
            let name = algorithm.to_string();
            Ok(Ours { name, predicted, way: Ours::with_kernels(device, &recipe, memory)? })
        });
        ours.collect()
    }

    fn with_kernels(device: &Device, recipe: &Recipe, memory: &Memory) -> Result<Way, Failure> {
        let bytes = usize::try_from(recipe.workspace).unwrap_or(usize::MAX);
        let workspace = device.alloc_zeroed::<u8>(bytes.max(1)).map_err(broken)?;
        let prepared = (0..memory.copies()).map(|number| {
            let copy = memory.copy(number);
            let operands = Operands::new()
                .with(Operand::A, &copy.a)
                .with(Operand::B, &copy.b)
                .with(Operand::D, &copy.d)
                .with(Operand::Extra(BIAS.to_owned()), &memory.bias)
                .with(Operand::Workspace, &workspace);
            Prepared::new(device, recipe, &operands).map_err(broken)
        });
        prepared.collect::<Result<_, _>>().map(Way::Kernels)
    }

    fn on_processor(device: &Device, problem: &Problem, memory: &Memory) -> Result<Ours, Failure> {
        let Problem { m, n, k, batch, types, .. } = *problem;
        let size = |elements: u64| usize::try_from(elements).unwrap_or(usize::MAX);
        let (a, b, d) = (problem.a, problem.b, problem.d);
        let gemm = Gemm::new(m as usize, n as usize, k as usize)
            .types(types)
            .batch(batch as usize)
            .epilogue(problem.epilogue.clone());
        let gemm = gemm.a(a.storage).leading_a(size(a.leading)).stride_a(size(a.batch_stride));
        let gemm = gemm.b(b.storage).leading_b(size(b.leading)).stride_b(size(b.batch_stride));
        let gemm = gemm.d(d.storage).leading_d(size(d.leading)).stride_d(size(d.batch_stride));
        let plan = gemm.plan(device).map_err(Failure::input)?;
        let typed =
            |buffer: &Buffer<u8>, element| DynBuffer::from(buffer).reinterpreted(Types::in_memory(element));
        let arguments = (0..memory.copies()).map(|number| {
            let copy = memory.copy(number);
            let arguments =
                Arguments::new(typed(&copy.a, types.a), typed(&copy.b, types.b), typed(&copy.d, types.d));
            let names = problem.epilogue.operands().into_iter().map(|operand| operand.name);
            names.fold(arguments, |arguments, name| {
                arguments.extra(&name, typed(&memory.bias, bias_element(types.d)))
            })
        });
        let arguments = arguments.collect();
        Ok(Ours {
            name: "the processor's instructions".to_owned(),
            predicted: None,
            way: Way::Processor(Box::new(plan), arguments),
        })
    }

    /// The algorithm, as text.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Seconds that it takes, as far as the model knows.
    pub(super) fn predicted(&self) -> Option<f64> {
        self.predicted
    }
}

impl Contestant for Ours {
    fn launch(&self, copy: usize) -> Result<(), Failure> {
        match &self.way {
            Way::Kernels(prepared) => match prepared.get(copy) {
                Some(prepared) => prepared.run().map(drop).map_err(broken),
                None => Ok(()),
            },
            Way::Processor(plan, arguments) => match arguments.get(copy) {
                Some(arguments) => plan.run(arguments).map_err(|error| Failure::Machine(error.to_string())),
                None => Ok(()),
            },
        }
    }
}
