//! Structured control flow: loops, branches, roles.
//!
//! # Where carried values live
//!
//! A loop keeps each carried value in registers that the results share; `yield` copies the next values into them, all at once,
//! so that values may change places. A value that only the `yield` reads is computed right into those registers if the value of
//! this round is not read any more: then nothing is copied.
//!
//! # Counting
//!
//! `for` tests once before the loop and then at the bottom. The test must be right up to the ends of the counter's type, where
//! `i + step` would wrap. With step 1, `i + 1 <= limit` cannot wrap. With a constant limit and step the sum may be known to fit.
//! Otherwise the test is `limit - i > step`, unsigned: as `i < limit` inside the loop, the difference is exact in as many bits as
//! the type has, signed or not.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{Flags, Op, OpData, Opcode as Ir, Region, Registers, Type, Value, Warps};
use tilewright_ptx::{self as ptx, Guard, Modifier as M, Opcode, Operand, SpecialRegister, Symbol};

use crate::emit::{Emitter, Lowered, Place, immediate};
use crate::error::CodegenError;
use crate::registers::{Width, Word, Words, arithmetic, element_width, shape};

/// Registers of a multiprocessor.
const REGISTERS: u32 = 65536;
/// An arm of at most this many instructions runs under a guard instead of behind a branch.
const GUARDED_OPS: usize = 3;

impl Emitter<'_> {
    /// The ops of a region, up to its terminator.
    pub(crate) fn region(&mut self, region: Region) -> Lowered {
        let func = self.func;
        let ops = &func.region(region).ops;
        let mut next = 0;
        while let Some(&op) = ops.get(next) {
            if func.op(op).code == Ir::Role {
                let count = ops[next..].iter().take_while(|&&op| func.op(op).code == Ir::Role).count();
                self.roles(&ops[next..next + count])?;
                next += count;
                continue;
            }
            if !func.op(op).info().is_terminator() {
                self.enter(op);
                self.op(op)?;
            }
            next += 1;
        }
        Ok(())
    }

    /// A region whose constants end with it.
    fn scoped_region(&mut self, region: Region) -> Lowered {
        let scope = self.open_scope();
        let result = self.region(region);
        self.close_scope(scope);
        result
    }

    /// Copies what a region hands over into the registers that expect it.
    fn hand_over(&mut self, values: &[Value], targets: &[Words]) {
        let mut moves: [Vec<(Symbol, Word)>; 5] = Default::default();
        for (&value, target) in values.iter().zip(targets) {
            let (width, _) = shape(self.func.ty(value));
            let words = self.words(value);
            for (to, from) in target.iter().zip(words) {
                if let Word::Reg(to) = *to {
                    moves[width as usize].push((to, from));
                }
            }
        }
        for width in Width::ALL {
            self.parallel_move(width, &moves[width as usize]);
        }
    }

    /// What the terminator of a region hands over.
    fn handed(&self, region: Region) -> SmallVec<[Value; 4]> {
        self.func
            .terminator(region)
            .map(|op| self.func.op(op).operands.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Registers for results, or those that somebody wants them in.
    fn result_words(&mut self, results: &[Value]) -> Vec<Words> {
        results.iter().map(|&result| self.define(result).into_iter().map(Word::Reg).collect()).collect()
    }

    /// Lets yielded values be computed into `targets` where that is safe; `carried` are the values of this round.
    fn want_yielded(
        &mut self,
        region: Region,
        yielded: &[Value],
        targets: &[Words],
        carried: Option<&[Value]>,
    ) {
        for (i, &value) in yielded.iter().enumerate() {
            let before = carried.map(|carried| carried[i]);
            if self.analysis.can_write_early(self.func, region, value, before) {
                self.want(value, targets[i].clone());
            }
        }
    }

    /// An accumulator is a place, not a value: handing it over would copy its registers.
    fn no_accumulators(&self, data: &OpData) -> Lowered {
        let is_place = |&value: &Value| matches!(self.func.ty(value), Type::Accumulator(..));
        if data.operands.iter().chain(&data.results).any(is_place) {
            return Err(self.unsupported("cannot carry an accumulator; make it outside and use it inside"));
        }
        Ok(())
    }

    pub(crate) fn if_op(&mut self, data: &OpData) -> Lowered {
        self.no_accumulators(data)?;
        let (then, other) = (data.regions[0], data.regions[1]);
        let uniform = data.flags().has(Flags::UNIFORM);
        if let Some(bits) = self.constant(data.operands[0]) {
            let taken = if bits & 1 == 1 { then } else { other };
            let targets = self.result_words(&data.results);
            self.arm(taken, &targets)?;
            return Ok(());
        }
        let condition = self.reg(data.operands[0]);
        let guard = |negated| Guard { negated, register: condition };
        if data.results.is_empty() {
            let (empty_then, empty_other) = (self.is_empty(then), self.is_empty(other));
            let alone = match (empty_then, empty_other) {
                (true, true) => return Ok(()),
                (false, true) => Some((then, false)),
                (true, false) => Some((other, true)),
                (false, false) => None,
            };
            if let Some((region, negated)) = alone {
                if self.fits_guard(region) {
                    return self.guarded(guard(negated), |this| this.region(region));
                }
                let end = self.new_label();
                self.branch(Some(guard(!negated)), uniform, end);
                self.scoped_region(region)?;
                self.label(end);
                return Ok(());
            }
        }
        let targets = self.result_words(&data.results);
        let (otherwise, end) = (self.new_label(), self.new_label());
        self.branch(Some(guard(true)), uniform, otherwise);
        self.arm(then, &targets)?;
        self.branch(None, true, end);
        self.label(otherwise);
        self.arm(other, &targets)?;
        self.label(end);
        Ok(())
    }

    fn arm(&mut self, region: Region, targets: &[Words]) -> Lowered {
        let yielded = self.handed(region);
        self.want_yielded(region, &yielded, targets, None);
        let scope = self.open_scope();
        self.region(region)?;
        self.hand_over(&yielded, targets);
        self.close_scope(scope);
        Ok(())
    }

    fn is_empty(&self, region: Region) -> bool {
        self.func.region(region).ops.iter().all(|&op| self.func.op(op).info().is_terminator())
    }

    /// Is the region a few instructions that can each run under a predicate?
    fn fits_guard(&self, region: Region) -> bool {
        let mut count = 0;
        self.func.region(region).ops.iter().all(|&op| {
            let data = self.func.op(op);
            match data.code {
                Ir::Yield | Ir::Const => true,
                Ir::PtrAdd => {
                    self.func.def_op(data.operands[1]).is_some_and(|by| self.func.op(by).code == Ir::Const)
                }
                code => {
                    count += 1;
                    guardable(code) && count <= GUARDED_OPS
                }
            }
        })
    }

    pub(crate) fn for_op(&mut self, data: &OpData) -> Lowered {
        self.no_accumulators(data)?;
        let body = data.regions[0];
        let [lo, hi, step] = [0, 1, 2].map(|i| data.operands[i]);
        let element = self.element(lo);
        let ty = arithmetic(element);
        let width = element_width(element);
        let known = [lo, hi, step].map(|value| self.constant(value));
        let uniform = data.flags().has(Flags::UNIFORM);
        let [from, limit, by] = [lo, hi, step].map(|value| {
            let word = self.word(value);
            self.normal(word, element)
        });
        let targets_before = data.operands[3..].to_vec();
        let runs = match (known[0], known[1]) {
            (Some(lo), Some(hi)) => Some(below(element, lo, hi)),
            _ => None,
        };
        if runs == Some(false) {
            for (&result, &init) in data.results.iter().zip(&targets_before) {
                let words = self.words(init);
                self.copy_result(result, &words);
            }
            return Ok(());
        }
        let counter = self.new_reg(width);
        let skip = match runs {
            Some(_) => None,
            None => {
                let none = self.new_reg(Width::Pred);
                let (from, limit) = (self.operand(from, ty), self.operand(limit, ty));
                self.push(Opcode::Setp, &[M::Ge, ty.into()], [none.into(), from, limit]);
                Some(none)
            }
        };
        let carried = self.result_words(&data.results);
        self.copy(width, counter, from);
        self.hand_over(&targets_before, &carried);
        let (start, end) = (self.new_label(), self.new_label());
        if let Some(none) = skip {
            self.branch(Some(Guard { negated: false, register: none }), uniform, end);
        }
        let args: SmallVec<[Value; 4]> = self.func.region(body).args.iter().copied().collect();
        self.bind(args[0], SmallVec::from_elem(Word::Reg(counter), 1));
        for (&arg, words) in args[1..].iter().zip(&carried) {
            self.bind(arg, words.clone());
        }
        let yielded = self.handed(body);
        self.want_yielded(body, &yielded, &carried, Some(&args[1..]));
        self.label(start);
        let scope = self.open_scope();
        self.region(body)?;
        self.hand_over(&yielded, &carried);
        self.close_scope(scope);
        let again = self.advance(element, counter, limit, by, known);
        self.branch(Some(Guard { negated: false, register: again }), uniform, start);
        if skip.is_some() {
            self.label(end);
        }
        Ok(())
    }

    /// Counts on, and says whether there is another round.
    fn advance(
        &mut self,
        element: Element,
        counter: Symbol,
        limit: Word,
        by: Word,
        known: [Option<u64>; 3],
    ) -> Symbol {
        let ty = arithmetic(element);
        let width = element_width(element);
        let again = self.new_reg(Width::Pred);
        let (limit, by) = (self.operand(limit, ty), self.operand(by, ty));
        if cannot_wrap(element, known) {
            self.push(Opcode::Add, &[ty.into()], [counter.into(), counter.into(), by]);
            self.push(Opcode::Setp, &[M::Lt, ty.into()], [again.into(), counter.into(), limit]);
            return again;
        }
        let unsigned = match width {
            Width::B16 => ptx::Type::U16,
            Width::B32 => ptx::Type::U32,
            _ => ptx::Type::U64,
        };
        let left = self.new_reg(width);
        self.push(Opcode::Sub, &[ty.into()], [left.into(), limit, counter.into()]);
        let left =
            if element.bits() == 8 { self.normal(Word::Reg(left), Element::U8) } else { Word::Reg(left) };
        let left = self.operand(left, unsigned);
        // As an unsigned number the step is what it is: it is positive.
        let by_unsigned = match known[2] {
            Some(bits) => immediate(unsigned, bits),
            None => by.clone(),
        };
        self.push(Opcode::Setp, &[M::Gt, unsigned.into()], [again.into(), left, by_unsigned]);
        self.push(Opcode::Add, &[ty.into()], [counter.into(), counter.into(), by]);
        again
    }

    /// The second region and the results take over the registers of what `condition` passes on.
    pub(crate) fn while_op(&mut self, data: &OpData) -> Lowered {
        self.no_accumulators(data)?;
        let (test, body) = (data.regions[0], data.regions[1]);
        let uniform = data.flags().has(Flags::UNIFORM);
        let args: SmallVec<[Value; 4]> = self.func.region(test).args.iter().copied().collect();
        let carried: Vec<Words> = args.iter().map(|&arg| self.new_words(self.func.ty(arg))).collect();
        self.hand_over(&data.operands, &carried);
        for (&arg, words) in args.iter().zip(&carried) {
            self.bind(arg, words.clone());
        }
        let (start, end) = (self.new_label(), self.new_label());
        self.label(start);
        let scope = self.open_scope();
        self.region(test)?;
        let passed = self.handed(test);
        let Some((&condition, passed)) = passed.split_first() else { return Ok(()) };
        let condition = self.reg(condition);
        let places: SmallVec<[Place; 4]> = passed.iter().map(|&value| self.place(value)).collect();
        let body_args: SmallVec<[Value; 4]> = self.func.region(body).args.iter().copied().collect();
        for ((&arg, &result), place) in body_args.iter().zip(&data.results).zip(places) {
            self.bind_place(arg, place.clone());
            self.bind_place(result, place);
        }
        self.branch(Some(Guard { negated: true, register: condition }), uniform, end);
        let yielded = self.handed(body);
        self.want_yielded(body, &yielded, &carried, Some(&args));
        self.region(body)?;
        self.hand_over(&yielded, &carried);
        self.close_scope(scope);
        self.branch(None, true, start);
        self.label(end);
        Ok(())
    }

    /// Consecutive roles: one chain of branches on the warp index.
    fn roles(&mut self, roles: &[Op]) -> Lowered {
        let func = self.func;
        if let Some(&first) = roles.first() {
            self.enter(first);
        }
        let warp = self.warp_index();
        let warps_in_block = func.launch.total_threads().map(|threads| threads.div_ceil(32));
        let end = self.new_label();
        let mut covered = 0;
        for (i, &op) in roles.iter().enumerate() {
            self.enter(op);
            let data = func.op(op);
            let Some(Warps { start, end: stop }) = data.get::<Warps>() else { continue };
            let (start, stop) = (u32::from(start), u32::from(stop));
            let last = i + 1 == roles.len();
            // Roles in the order of their warps need one comparison each, and the last one none.
            let in_order = start == covered;
            let next = if last { end } else { self.new_label() };
            if !(last && in_order && warps_in_block == Some(stop)) {
                let outside = self.new_reg(Width::Pred);
                if in_order {
                    self.push(Opcode::Setp, &[M::Ge, M::U32], [outside.into(), warp.into(), stop.into()]);
                } else {
                    let from_start = self.new_reg(Width::B32);
                    self.push(Opcode::Sub, &[M::U32], [from_start.into(), warp.into(), start.into()]);
                    let count = stop.saturating_sub(start);
                    self.push(
                        Opcode::Setp,
                        &[M::Ge, M::U32],
                        [outside.into(), from_start.into(), count.into()],
                    );
                }
                self.branch(Some(Guard { negated: false, register: outside }), true, next);
            }
            covered = if in_order { stop } else { u32::MAX };
            if let Some(Registers(count)) = data.get() {
                self.set_registers(count)?;
            }
            self.scoped_region(data.regions[0])?;
            if !last {
                self.branch(None, true, end);
                self.label(next);
            }
        }
        self.label(end);
        Ok(())
    }

    fn set_registers(&mut self, count: u32) -> Lowered {
        let entry = self.entry_registers()?;
        let direction = match count.cmp(&entry) {
            std::cmp::Ordering::Less => M::Dec,
            std::cmp::Ordering::Equal => return Ok(()),
            std::cmp::Ordering::Greater => M::Inc,
        };
        self.push(Opcode::Setmaxnreg, &[direction, M::Sync, M::Aligned, M::U32], [count.into()]);
        Ok(())
    }

    /// Registers that a thread has when the kernel starts: what the multiprocessor has for each, in steps of 8.
    fn entry_registers(&self) -> Result<u32, CodegenError> {
        let launch = &self.func.launch;
        if let Some(registers) = launch.max_registers {
            return Ok(registers.next_multiple_of(8));
        }
        let Some(threads) = launch.total_threads().filter(|&threads| threads > 0) else {
            return Err(self.unsupported(
                "with registers(...) needs a kernel with a fixed number of threads; set threads(...)",
            ));
        };
        Ok((REGISTERS / (threads * launch.min_blocks.unwrap_or(1).max(1)) / 8 * 8).min(256))
    }

    /// The index of this warp in the block, the same register for all roles, and known to be the same in all lanes.
    fn warp_index(&mut self) -> Symbol {
        if let Some(index) = self.warp_index {
            return index;
        }
        let thread = self.new_reg(Width::B32);
        self.push(Opcode::Mov, &[M::U32], [thread.into(), SpecialRegister::TidX.into()]);
        let mut linear = thread;
        let [x, y, z] = self.func.launch.threads.unwrap_or([0, 0, 0]);
        // Only blocks of more than one row number their threads by more than x.
        if self.func.launch.threads.is_none() || y > 1 || z > 1 {
            let rows = [
                (SpecialRegister::TidZ, y, SpecialRegister::NtidY),
                (SpecialRegister::TidY, x, SpecialRegister::NtidX),
            ];
            let mut sum: Option<Symbol> = None;
            for (position, extent, extent_register) in rows {
                let mut at = self.new_reg(Width::B32);
                self.push(Opcode::Mov, &[M::U32], [at.into(), position.into()]);
                if let Some(sum) = sum {
                    let both = self.new_reg(Width::B32);
                    self.push(Opcode::Add, &[M::U32], [both.into(), sum.into(), at.into()]);
                    at = both;
                }
                let extent: Operand = if extent > 0 {
                    extent.into()
                } else {
                    let value = self.new_reg(Width::B32);
                    self.push(Opcode::Mov, &[M::U32], [value.into(), extent_register.into()]);
                    value.into()
                };
                let scaled = self.new_reg(Width::B32);
                self.push(Opcode::Mul, &[M::Lo, M::U32], [scaled.into(), at.into(), extent]);
                sum = Some(scaled);
            }
            if let Some(sum) = sum {
                linear = self.new_reg(Width::B32);
                self.push(Opcode::Add, &[M::U32], [linear.into(), sum.into(), thread.into()]);
            }
        }
        let (own, index) = (self.new_reg(Width::B32), self.new_reg(Width::B32));
        self.push(Opcode::Shr, &[M::U32], [own.into(), linear.into(), 5.into()]);
        let all = immediate(ptx::Type::U32, 0xffff_ffff);
        self.push(
            Opcode::Shfl,
            &[M::Sync, M::Idx, M::B32],
            [index.into(), own.into(), 0.into(), 31.into(), all],
        );
        self.warp_index = Some(index);
        index
    }
}

/// Is `lo < hi` for constants of an element?
fn below(element: Element, lo: u64, hi: u64) -> bool {
    if element.is_signed() { lo.cast_signed() < hi.cast_signed() } else { lo < hi }
}

/// Is `counter + step` known to stay in range for every counter below the limit?
fn cannot_wrap(element: Element, [_, limit, step]: [Option<u64>; 3]) -> bool {
    let Some(step) = step else { return false };
    if step == 1 {
        return true;
    }
    let Some(limit) = limit else { return false };
    let bits = element.bits();
    let (limit, step, max) = if element.is_signed() {
        (i128::from(limit.cast_signed()), i128::from(step.cast_signed()), (1_i128 << (bits - 1)) - 1)
    } else {
        (i128::from(limit), i128::from(step), (1_i128 << bits) - 1)
    };
    step > 0 && limit - 1 + step <= max
}

/// Ops without results whose code is plain instructions.
fn guardable(code: Ir) -> bool {
    matches!(
        code,
        Ir::Store
            | Ir::Reduce
            | Ir::Prefetch
            | Ir::MbarInit
            | Ir::MbarInvalidate
            | Ir::MbarExpect
            | Ir::MbarArrive
            | Ir::MbarArriveExpect
            | Ir::MbarArriveDrop
            | Ir::Fence
            | Ir::FenceProxy
            | Ir::FenceMbarInit
            | Ir::CpAsync
            | Ir::CpAsyncCommit
            | Ir::CpAsyncArrive
            | Ir::BulkLoad
            | Ir::BulkStore
            | Ir::BulkCopy
            | Ir::StoreAsync
            | Ir::BulkReduce
            | Ir::BulkPrefetch
            | Ir::BulkCommit
            | Ir::BulkWait
            | Ir::TmaLoad
            | Ir::TmaStore
            | Ir::TmaReduce
            | Ir::TmaPrefetch
            | Ir::MapPrefetch
            | Ir::GridLaunch
            | Ir::Trap
    )
}
