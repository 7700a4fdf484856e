//! The meaning of the tile level: an interpreter that runs a kernel on host memory.
//!
//! It is the reference that compiled kernels are compared with, and what runs kernels where there is no GPU.
//!
//! ```
//! use tilewright_ir::{Constant, parse};
//! use tilewright_tile::interp::{Argument, Program};
//!
//! let module = parse(
//!     "func @double (%x: ptr<global>, %n: u32) {
//!        %0 = special reg(ctaid.x) : u32
//!        %1 = const value(4) : u32
//!        %2 = mul %0, %1 : u32
//!        %3 = bitcast %2 : i32
//!        %4 = const value(1) : i64
//!        %5 = const value(0.0) : f32
//!        %6 = tile_load %x, %3, %n, %4, %5 : tile<4xf32>
//!        %7 = map %6 : tile<4xf32> do {
//!          (%8: f32)
//!          %9 = add %8, %8 : f32
//!          yield %9
//!        }
//!        tile_store %x, %7, %3, %n, %4
//!      }",
//! )?;
//! let mut x: Vec<u8> = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let program = Program::new(&module.funcs[0])?;
//! program.run([2, 1, 1], &mut [Argument::Memory(&mut x), Argument::Scalar(Constant(5))])?;
//! // The sixth is beyond the extent of 5: not loaded, not stored.
//! assert_eq!(x[20..], 6f32.to_le_bytes());
//! assert_eq!(x[16..20], 10f32.to_le_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is defined here
//!
//! * Programs run one after the other, x fastest (see also [`Program::parallel`]). Nothing may depend on that: a GPU runs them in any order,
//!   and at the same time.
//! * Scalar ops mean what [`evaluate`](tilewright_passes::evaluate) says, with approximations taken as exact. 16-bit floats round after
//!   every op.
//! * Reductions and scans combine in the order of the index (with `reverse` from the last to the first, so that a reversed scan is a scan
//!   of the flipped tile); what was combined so far is the first argument. A GPU combines in another order, so that sums of floats differ
//!   in their last bits.
//! * Loads take the pad outside of a tensor, stores drop there. Gathers, scatters and atomics go in row-major order, and do not look at the
//!   distance of an element that is masked out.
//! * `dot` sums in f64, rounds once, then adds `c`.
//! * `poison` is zero. An integer divided by zero has all bits set, as quotient and as remainder.
//!
//! # Limits
//!
//! Elements of less than a byte are refused, and tiles that no chip has registers for. Every access is checked: outside of all buffers, misaligned or to read-only memory is an
//! error that names the op, its place in the source, the address and the buffer. A kernel that does not end is stopped by
//! [`Program::steps`].

mod access;
mod column;
mod dot;
mod exec;
mod memory;
mod scalar;
mod shape;

use std::fmt;

use rayon::prelude::*;
use tilewright_ir::{Constant, Element, Func, Loc, Module, Op, OpData, Opcode, Type, canonical, verify};

use exec::Stop;
pub use memory::Argument;
use memory::Memory;
use scalar::Fast;

use crate::lower::{LowerError, check_tiles};

/// A kernel, ready to run.
#[derive(Clone)]
pub struct Program {
    func: Func,
    steps: u64,
    parallel: bool,
    /// The loop of each op.
    fast: Vec<Fast>,
    /// Whether an op holds a loop, itself or in its regions.
    repeats: Vec<bool>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("func", &self.func.name)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

/// Where a run went wrong: the op, its place in the source, the program that executed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The name of the op.
    pub op: &'static str,
    /// `file:line:column`, if known.
    pub location: Option<String>,
    /// The id of the program.
    pub program: [u32; 3],
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.op)?;
        if let Some(location) = &self.location {
            write!(f, " at {location}")?;
        }
        let [x, y, z] = self.program;
        write!(f, " in program ({x}, {y}, {z})")
    }
}

/// Why a kernel did not run, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InterpError {
    /// The verifier has objections.
    #[error("kernel {name:?} breaks the rules of the IR: {}", .problems.join("; "))]
    Invalid {
        /// The kernel.
        name: String,
        /// What the verifier says.
        problems: Vec<String>,
    },
    /// An op, or an op on this type, that the interpreter does not know.
    #[error(
        "`{op}`{} of kernel {name:?} cannot be interpreted; only ops of tiles, scalar code and control flow on elements of whole bytes can",
        .location.as_ref().map_or(String::new(), |at| format!(" at {at}"))
    )]
    Unsupported {
        /// The kernel.
        name: String,
        /// The op.
        op: &'static str,
        /// `file:line:column`, if known.
        location: Option<String>,
    },
    /// A tile that is too large for every chip. The interpreter would have the memory, and take hours.
    #[error("kernel {name:?}: {why}")]
    TooLarge {
        /// The kernel.
        name: String,
        /// What the compiler says.
        why: LowerError,
    },
    /// The number of arguments is not that of the parameters.
    #[error("kernel {name:?} takes {expected} arguments, {found} were given")]
    Count {
        /// The kernel.
        name: String,
        /// How many it takes.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// An argument does not fit its parameter.
    #[error("argument {index} ({parameter:?}) of kernel {name:?} is {found}, expected {expected}")]
    Argument {
        /// The kernel.
        name: String,
        /// The position.
        index: usize,
        /// The name of the parameter.
        parameter: String,
        /// What was given.
        found: String,
        /// What the parameter takes.
        expected: String,
    },
    /// An access that hits no buffer, or not at a multiple of its size, or writes what may only be read.
    #[error("{site} {verb} {bytes} bytes at {address:#x}, {problem}")]
    Access {
        /// Which op.
        site: Site,
        /// "reads" or "writes".
        verb: &'static str,
        /// The size of the access.
        bytes: u32,
        /// The address.
        address: u64,
        /// What is wrong, with the buffer that is nearest.
        problem: String,
    },
    /// An assertion failed.
    #[error("{site} failed: {message}")]
    Stopped {
        /// Which op.
        site: Site,
        /// Its text.
        message: String,
    },
    /// Too many steps.
    #[error(
        "{site} was reached after {limit} steps, which is taken for a loop without end; a kernel that is meant to run that long takes a GPU, \
         or the interpreter by itself with `interp::Program::steps`"
    )]
    Endless {
        /// Which op.
        site: Site,
        /// The limit.
        limit: u64,
    },
}

impl Program {
    /// Prepares a kernel of the tile level.
    ///
    /// # Errors
    /// [`InterpError::Invalid`] if the verifier has objections, [`InterpError::Unsupported`] if it holds an op that cannot be interpreted,
    /// [`InterpError::TooLarge`] if a tile is more than any chip has registers for.
    pub fn new(func: &Func) -> Result<Program, InterpError> {
        let module = Module::from(func.clone());
        let problems: Vec<String> = verify(&module).into_iter().map(|problem| problem.message).collect();
        if !problems.is_empty() {
            return Err(InterpError::Invalid { name: func.name.clone(), problems });
        }
        let mut program = Program {
            func: func.clone(),
            steps: 100_000_000,
            parallel: false,
            fast: vec![Fast::None; func.op_count()],
            repeats: vec![false; func.op_count()],
        };
        for op in func.walk() {
            let data = func.op(op);
            if !known(func, data) {
                return Err(program.unsupported(data));
            }
            program.fast[op.index()] = scalar::fast(func, data);
            program.repeats[op.index()] = repeats(func, op);
        }
        check_tiles(func).map_err(|why| InterpError::TooLarge { name: func.name.clone(), why })?;
        Ok(program)
    }

    /// The same with another limit: how many ops one program may execute, where an op on many elements counts more.
    #[must_use]
    pub fn steps(self, steps: u64) -> Program {
        Program { steps, ..self }
    }

    /// The same with programs side by side, on all cores. What a program stores is then kept apart until all of its neighbours have run, and
    /// is written in the order of the programs; so programs that read what others store, which is a race on a GPU, may see less of it. A
    /// kernel that has atomics, or whose programs read from buffers that they have stored to, runs one program after the other all the same.
    #[must_use]
    pub fn parallel(self, parallel: bool) -> Program {
        Program { parallel, ..self }
    }

    /// The kernel.
    #[must_use]
    pub fn func(&self) -> &Func {
        &self.func
    }

    /// Runs a program for each place of a grid, with one argument for each parameter. Arguments after those must be memory; no parameter
    /// is theirs, but others can point [into](Argument::Within) them.
    ///
    /// # Errors
    /// If arguments do not fit, or a program goes wrong. What was stored until then stays.
    pub fn run(&self, grid: [u32; 3], arguments: &mut [Argument<'_>]) -> Result<(), InterpError> {
        let params = self.func.region(self.func.body()).args.clone();
        if params.len() > arguments.len() {
            return Err(InterpError::Count {
                name: self.func.name.clone(),
                expected: params.len(),
                found: arguments.len(),
            });
        }
        let given_count = arguments.len();
        let mut memory = Memory::default();
        let mut words = vec![0; arguments.len()];
        let mut bases = vec![None; arguments.len()];
        let mut within: Vec<(usize, usize, u64)> = Vec::new();
        for (i, given) in arguments.iter_mut().enumerate() {
            if i >= params.len() {
                // Messages name the parameter that leads there.
                let named = within.iter().find(|&&(_, argument, _)| argument == i).map(|&(named, ..)| named);
                bases[i] = named.and_then(|named| memory.add(named, given));
                if bases[i].is_none() {
                    return Err(InterpError::Count {
                        name: self.func.name.clone(),
                        expected: params.len(),
                        found: given_count,
                    });
                }
                continue;
            }
            let promise = u64::from(self.func.params[i].align.max(1));
            match (self.func.ty(params[i]), &*given) {
                (Type::Scalar(element), &Argument::Scalar(Constant(bits))) => {
                    if canonical(element, bits) != bits {
                        return Err(self.argument(i, format!("{bits:#x}"), format!("the bits of {element}")));
                    }
                    if element.is_int() && !magnitude(element, bits).is_multiple_of(promise) {
                        let signed = element.is_signed();
                        let found = if signed { bits.cast_signed().to_string() } else { bits.to_string() };
                        return Err(self.argument(i, found, format!("a multiple of {promise}")));
                    }
                    words[i] = bits;
                }
                (Type::Pointer(_), &Argument::Within { argument, offset }) => {
                    if !offset.is_multiple_of(promise) {
                        let found = format!("{offset} bytes into argument {argument}");
                        return Err(self.argument(
                            i,
                            found,
                            format!("an offset that is a multiple of {promise}"),
                        ));
                    }
                    within.push((i, argument, offset));
                }
                (Type::Pointer(_), Argument::Memory(_) | Argument::Shared(_)) => {
                    bases[i] = memory.add(i, given);
                    words[i] = bases[i].unwrap_or(0);
                }
                (Type::Scalar(element), _) => {
                    return Err(self.argument(i, "memory".to_owned(), format!("a scalar of {element}")));
                }
                (Type::Pointer(_), _) => {
                    return Err(self.argument(i, "a scalar".to_owned(), "memory".to_owned()));
                }
                (ty, _) => {
                    let expected = "a scalar or a pointer as the type of the parameter".to_owned();
                    return Err(self.argument(i, format!("for a parameter of type {ty}"), expected));
                }
            }
        }
        for (i, argument, offset) in within {
            let Some(base) = bases.get(argument).copied().flatten() else {
                let found = format!("an offset into argument {argument}");
                return Err(self.argument(i, found, "an offset into an argument that is memory".to_owned()));
            };
            words[i] = base.wrapping_add(offset);
        }
        let is_atomic = |op: Op| matches!(self.func.op(op).code, Opcode::TileAtomic | Opcode::TileAtomicCas);
        let atomics = self.func.walk().into_iter().any(is_atomic);
        self.programs(grid, &mut memory, &words, self.parallel && !atomics)
    }

    /// Runs all programs, x fastest.
    fn programs(
        &self,
        grid: [u32; 3],
        memory: &mut Memory<'_>,
        words: &[u64],
        mut parallel: bool,
    ) -> Result<(), InterpError> {
        let [columns, rows, layers] = grid.map(u64::from);
        let count = columns * rows * layers;
        // Below what a grid can be, so that nothing is lost.
        let id = |i: u64| {
            [i % columns, i / columns % rows, i / columns / rows]
                .map(|n| u32::try_from(n).unwrap_or(u32::MAX))
        };
        let mut next = 0;
        while next < count {
            let end = if parallel { count.min(next + NEIGHBOURS) } else { next + 1 };
            if parallel {
                let shared = &*memory;
                let run = |i: u64| {
                    let mut own = shared.apart();
                    let outcome = exec::run(self, &mut own, id(i), grid, words);
                    (own.into_writes(), outcome)
                };
                let outcomes: Vec<_> = (next..end).into_par_iter().map(run).collect();
                if outcomes.iter().any(|(_, outcome)| matches!(outcome, Err(Stop::Reread))) {
                    parallel = false;
                    continue;
                }
                for (writes, outcome) in outcomes {
                    memory.apply(writes);
                    outcome.or_else(finish)?;
                }
            } else {
                exec::run(self, memory, id(next), grid, words).or_else(finish)?;
            }
            next = end;
        }
        Ok(())
    }

    fn argument(&self, index: usize, found: String, expected: String) -> InterpError {
        let parameter = self.func.params[index].name.clone();
        InterpError::Argument { name: self.func.name.clone(), index, parameter, found, expected }
    }

    fn location(&self, loc: Loc) -> Option<String> {
        self.func.locations.get(loc).map(|at| at.to_string())
    }

    fn unsupported(&self, data: &OpData) -> InterpError {
        InterpError::Unsupported {
            name: self.func.name.clone(),
            op: data.info().mnemonic,
            location: self.location(data.loc),
        }
    }
}

/// How many programs run side by side before what they have stored is written; always the same, so that results are.
const NEIGHBOURS: u64 = 256;

/// What a program that stopped has to say.
fn finish(stop: Stop) -> Result<(), InterpError> {
    match stop {
        Stop::Error(error) => Err(*error),
        // Both are caught where they can happen.
        Stop::Diverged | Stop::Reread => Ok(()),
    }
}

/// The absolute value of an integer.
fn magnitude(element: Element, bits: u64) -> u64 {
    if element.is_signed() { bits.cast_signed().unsigned_abs() } else { bits }
}

/// Whether the interpreter has a meaning for an op. What it computes with is known only when it runs.
fn known(func: &Func, data: &OpData) -> bool {
    let whole = |ty: Type| ty.element().is_none_or(|element| element.is_bool() || element.bits() >= 8);
    let types = data.operands.iter().chain(&data.results).map(|&value| func.ty(value));
    let code = data.code;
    let threads = matches!(code, Opcode::MapCluster | Opcode::Descriptor);
    types.into_iter().all(whole) && !threads && (data.info().is_pure() || exec::handles(code))
}

/// Whether an op repeats something.
fn repeats(func: &Func, op: Op) -> bool {
    let data = func.op(op);
    let inside = data.regions.iter().flat_map(|&region| &func.region(region).ops);
    matches!(data.code, Opcode::For | Opcode::While) || inside.into_iter().any(|&op| repeats(func, op))
}
