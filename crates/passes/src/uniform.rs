//! `uniform`: which values are the same in all threads of a warp, and which control flow therefore does not split it.
//!
//! ```text
//! %0 = special reg(ctaid.x) : u32              %0 = special reg(ctaid.x) : u32
//! %1 = cmp %0, %n cmp(lt) : bool         →     %1 = cmp %0, %n cmp(lt) : bool
//! if %1 then { ... } else { ... }              if %1 flags(uniform) then { ... } else { ... }
//! ```
//!
//! Uniform are parameters, constants, the numbers of blocks; loads from uniform addresses of memory that nobody writes (constant
//! memory, or `cache(nc)`); votes and reductions over a uniform mask; a shuffle from a uniform lane of the whole warp; and what is
//! computed from those. The number of the warp counts when it is taken from `tid.x` in a way that can be seen: `tid.x >> 5`, `tid.x /
//! 64`, `tid.x & ~31`, in blocks whose warps lie along x. What an `if` or a loop hands out is uniform only if its control is; inside
//! them nothing changes, for the threads that are there are there together.
//!
//! [`Uniformity`] answers for single values; the pass marks `if`, `for` and `while`. A flag that is there already is never removed:
//! it is the author's promise.
//!
//! Limits: sums with `tid.x` before the shift are not seen through; results of atomics and plain loads never count.

use tilewright_ir::{
    Cache, Flags, Func, Group, Op, OpData, Opcode, Region, Shuffle, Space, Special, Type, Value, Width,
};

use crate::context::Context;
use crate::rewrite::{constant, definition};

/// The name of the pass.
pub const NAME: &str = "uniform";

/// Marks uniform control flow; true if anything changed.
pub fn run(func: &mut Func, _cx: &mut Context) -> bool {
    let regions: Vec<Op> = func.walk().into_iter().filter(|&op| !func.op(op).regions.is_empty()).collect();
    if regions.is_empty() {
        return false;
    }
    let analysis = Uniformity::of(func);
    let mut changed = false;
    for op in regions {
        if analysis.is_uniform_control(func, op) {
            let flags = func.op(op).flags();
            if !flags.has(Flags::UNIFORM) {
                func.op_mut(op).set(flags.with(Flags::UNIFORM));
                changed = true;
            }
        }
    }
    changed
}

/// The values of a function that are the same in all threads of a warp that are active where the value is defined.
///
/// ```
/// use tilewright_ir::parse;
/// use tilewright_passes::Uniformity;
///
/// let module = parse(
///     "func @f threads(128,1,1) (%n: u32) {
///        %0 = special reg(tid.x) : u32
///        %1 = const value(5) : u32
///        %2 = shr %0, %1 : u32
///        trace %0, %2 text(\"{} {}\")
///      }",
/// )?;
/// let func = &module.funcs[0];
/// let uniform = Uniformity::of(func);
/// let trace = func.walk().into_iter().next_back().map(|op| func.op(op).operands.clone());
/// let answers: Vec<bool> = trace.unwrap_or_default().iter().map(|&v| uniform.is_uniform(v)).collect();
/// assert_eq!(answers, [false, true]);
/// # Ok::<(), tilewright_ir::IrError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Uniformity {
    varying: Vec<bool>,
}

impl Uniformity {
    /// Analyses a function.
    #[must_use]
    pub fn of(func: &Func) -> Uniformity {
        let along_x = func.launch.threads.is_some_and(|[x, y, z]| (y == 1 && z == 1) || x % 32 == 0);
        let whole_rows = func.launch.threads.is_some_and(|[x, ..]| x % 32 == 0);
        let mut analysis =
            Analysis { func, along_x, whole_rows, varying: vec![false; func.value_count()], changed: true };
        // From the assumption that everything is uniform down to what can be kept; loops make more than one round needed.
        while std::mem::replace(&mut analysis.changed, false) {
            analysis.region(func.body());
        }
        Uniformity { varying: analysis.varying }
    }

    /// Is a value the same in all threads of the warp?
    #[must_use]
    pub fn is_uniform(&self, value: Value) -> bool {
        self.varying.get(value.index()).is_some_and(|&varies| !varies)
    }

    /// Do all threads of the warp take the same way through an `if`, `for` or `while`?
    #[must_use]
    pub fn is_uniform_control(&self, func: &Func, op: Op) -> bool {
        let data = func.op(op);
        match data.code {
            Opcode::If => self.is_uniform(data.operands[0]),
            Opcode::For => data.operands[..3].iter().all(|&v| self.is_uniform(v)),
            Opcode::While => condition(func, data).is_some_and(|v| self.is_uniform(v)),
            _ => false,
        }
    }
}

/// What decides whether a `while` goes on.
fn condition(func: &Func, data: &OpData) -> Option<Value> {
    func.terminator(*data.regions.first()?).and_then(|end| func.op(end).operands.first().copied())
}

struct Analysis<'a> {
    func: &'a Func,
    /// Threads of a warp have consecutive `tid.x`, starting at a multiple of 32.
    along_x: bool,
    /// Threads of a warp have the same `tid.y` and `tid.z`.
    whole_rows: bool,
    varying: Vec<bool>,
    changed: bool,
}

impl Analysis<'_> {
    fn varies(&self, value: Value) -> bool {
        self.varying[value.index()]
    }

    fn set(&mut self, value: Value, varies: bool) {
        if varies && !self.varying[value.index()] {
            self.varying[value.index()] = true;
            self.changed = true;
        }
    }

    fn region(&mut self, region: Region) {
        let func = self.func;
        for &op in &func.region(region).ops {
            self.op(func.op(op));
        }
    }

    fn handed_over(&self, region: Region) -> &[Value] {
        self.func.terminator(region).map_or(&[], |end| &self.func.op(end).operands)
    }

    fn op(&mut self, data: &OpData) {
        match data.code {
            Opcode::If => self.fork(data),
            Opcode::For => self.count(data),
            Opcode::While => self.repeat(data),
            Opcode::Role => self.region(data.regions[0]),
            // Threads have different elements of a tile.
            _ if data.info().group == Group::Program => {
                for &region in &data.regions {
                    self.func.region(region).args.iter().for_each(|&arg| self.set(arg, true));
                    self.region(region);
                }
            }
            _ => {
                if let [first, more @ ..] = &data.results[..] {
                    let varies = self.result_varies(data);
                    self.set(*first, varies);
                    let more_vary = varies || (data.code == Opcode::Shuffle && !self.is_broadcast(data));
                    for &result in more {
                        self.set(result, more_vary);
                    }
                }
            }
        }
    }

    fn fork(&mut self, data: &OpData) {
        for &arm in &data.regions {
            self.region(arm);
        }
        let splits = self.varies(data.operands[0]);
        for (i, &result) in data.results.iter().enumerate() {
            let either =
                data.regions.iter().any(|&arm| self.handed_over(arm).get(i).is_some_and(|&v| self.varies(v)));
            self.set(result, splits || either);
        }
    }

    fn count(&mut self, data: &OpData) {
        let func = self.func;
        let body = data.regions[0];
        let args = &func.region(body).args;
        let (lower, upper, step) = (data.operands[0], data.operands[1], data.operands[2]);
        let splits = [lower, upper, step].into_iter().any(|v| self.varies(v));
        self.set(args[0], self.varies(lower) || self.varies(step));
        for (&arg, &init) in args[1..].iter().zip(&data.operands[3..]) {
            self.set(arg, self.varies(init));
        }
        self.region(body);
        for (i, &arg) in args[1..].iter().enumerate() {
            let next = self.handed_over(body).get(i).copied();
            self.set(arg, next.is_some_and(|v| self.varies(v)));
            self.set(data.results[i], splits || self.varies(arg));
        }
    }

    fn repeat(&mut self, data: &OpData) {
        let func = self.func;
        let (test, body) = (data.regions[0], data.regions[1]);
        let args = &func.region(test).args;
        for (&arg, &init) in args.iter().zip(&data.operands) {
            self.set(arg, self.varies(init));
        }
        self.region(test);
        let splits = condition(func, data).is_none_or(|v| self.varies(v));
        let passed = func.terminator(test).map_or(&[][..], |end| &func.op(end).operands);
        for (i, &inner) in func.region(body).args.iter().enumerate() {
            let varies = passed.get(i + 1).is_none_or(|&v| self.varies(v));
            self.set(inner, varies);
            self.set(data.results[i], splits || varies);
        }
        self.region(body);
        for (i, &arg) in args.iter().enumerate() {
            let next = self.handed_over(body).get(i).copied();
            self.set(arg, next.is_none_or(|v| self.varies(v)));
        }
    }

    fn result_varies(&self, data: &OpData) -> bool {
        let any = || data.operands.iter().any(|&v| self.varies(v));
        match data.code {
            Opcode::Special => self.register_varies(data),
            Opcode::Load | Opcode::LoadIf => {
                let constant = self.func.ty(data.operands[0]) == Type::Pointer(Space::Constant);
                let read_only = constant || data.get::<Cache>() == Some(Cache::ReadOnly);
                !read_only || any()
            }
            Opcode::Shared => false,
            // The same answer for everybody in the mask.
            Opcode::Vote | Opcode::Redux | Opcode::MatchAll => self.varies(data.operands[1]),
            Opcode::BarrierReduce => false,
            // Only the value: a lane at the edge learns something else than its neighbours.
            Opcode::Shuffle => !self.is_broadcast(data) && any(),
            Opcode::Shr | Opcode::Div | Opcode::And | Opcode::Bfe if self.is_warp_number(data) => false,
            _ if data.info().is_pure() => any(),
            _ => true,
        }
    }

    /// A shuffle by which one lane, the same for all, speaks to the whole warp.
    fn is_broadcast(&self, data: &OpData) -> bool {
        let whole = data.get::<Width>().is_none_or(|Width(n)| n == 32);
        let lane_and_mask = self.varies(data.operands[1]) || self.varies(data.operands[2]);
        data.get::<Shuffle>() == Some(Shuffle::Index) && whole && !lane_and_mask
    }

    fn register_varies(&self, data: &OpData) -> bool {
        match data.get::<Special>() {
            Some(Special::TidY | Special::TidZ) => !self.whole_rows,
            Some(
                Special::TidX
                | Special::LaneId
                | Special::LanemaskEq
                | Special::LanemaskLt
                | Special::LanemaskLe
                | Special::LanemaskGt
                | Special::LanemaskGe
                | Special::Clock
                | Special::Clock64
                | Special::GlobalTimer,
            )
            | None => true,
            Some(_) => false,
        }
    }

    /// `tid.x` with the lane cut off.
    fn is_warp_number(&self, data: &OpData) -> bool {
        let known = |i: usize| data.operands.get(i).and_then(|&v| constant(self.func, v));
        let cuts = match (data.code, known(1)) {
            (Opcode::Shr, Some(n)) => n >= 5,
            (Opcode::Div, Some(n)) => n != 0 && n % 32 == 0,
            (Opcode::And, Some(mask)) => mask & 31 == 0,
            (Opcode::Bfe, Some(from)) => from & 0xff >= 5 && known(2).is_some(),
            _ => false,
        };
        cuts && self.along_x && data.operands.first().is_some_and(|&v| self.is_tid(v))
    }

    fn is_tid(&self, value: Value) -> bool {
        let Some(data) = definition(self.func, value) else { return false };
        match data.code {
            Opcode::Special => data.get::<Special>() == Some(Special::TidX),
            // A block has at most 1024 threads, so 16 bits and more keep the number.
            Opcode::Cvt | Opcode::Bitcast => {
                let wide = self.func.ty(value).element().is_some_and(|e| e.is_int() && e.bits() >= 16);
                wide && self.is_tid(data.operands[0])
            }
            _ => false,
        }
    }
}
