//! Warps, barriers, barrier objects and fences.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{
    Combine, FenceProxy, Flags, OpData, Opcode as Ir, Order, Scope, Shuffle, Space, Type, Value, Vote,
    Width as Lanes,
};
use tilewright_ptx::{Guard, Modifier as M, Modifiers, Opcode, Operand, Symbol};

use crate::emit::{Emitter, Lowered};
use crate::error::CodegenError;
use crate::memory::scope_modifier;
use crate::registers::{Width, Word, Words, arithmetic, shape};

impl Emitter<'_> {
    /// A value as 32-bit words: what crosses between lanes.
    fn exchange_words(&mut self, value: Value) -> Words {
        let words = self.words(value);
        let (width, _) = shape(self.func.ty(value));
        let mut out = Words::new();
        for word in words {
            match width {
                Width::B32 => out.push(word),
                Width::B64 => out.extend(self.split64(word)),
                _ => {
                    let half = if width == Width::Pred { self.as_byte(word) } else { word };
                    out.push(self.zero_extended(half));
                }
            }
        }
        out
    }

    fn zero_extended(&mut self, half: Word) -> Word {
        match half {
            Word::Imm(bits) => Word::Imm(bits & 0xffff),
            Word::Reg(register) => {
                let wide = self.new_reg(Width::B32);
                self.push(Opcode::Cvt, &[M::U32, M::U16], [wide.into(), register.into()]);
                Word::Reg(wide)
            }
        }
    }

    /// The inverse of [`Emitter::exchange_words`].
    fn exchanged(&mut self, words: &[Word], ty: Type) -> Words {
        match shape(ty).0 {
            Width::B32 => words.into(),
            Width::B64 => words.chunks(2).map(|pair| self.join64(pair)).collect(),
            width => words
                .iter()
                .map(|&word| {
                    let (half, word) = (self.new_reg(Width::B16), self.in_reg(word, Width::B32));
                    self.push(Opcode::Cvt, &[M::U16, M::U32], [half.into(), word.into()]);
                    if width == Width::Pred { self.as_predicate(Word::Reg(half)) } else { Word::Reg(half) }
                })
                .collect(),
        }
    }

    pub(crate) fn shuffle(&mut self, data: &OpData) -> Lowered {
        let [value, lane, mask] = data.operands[..] else { return Ok(()) };
        let mode = data.get::<Shuffle>().unwrap_or(Shuffle::Index);
        let segment = data.get::<Lanes>().map_or(32, |Lanes(width)| u32::from(width));
        if !segment.is_power_of_two() || segment > 32 {
            return Err(self.unsupported(format!(
                "splits the warp into segments of {segment} lanes; expected a power of two up to 32"
            )));
        }
        let (modifier, clamp) = match mode {
            Shuffle::Index => (M::Idx, 31),
            Shuffle::Up => (M::Up, 0),
            Shuffle::Down => (M::Down, 31),
            Shuffle::Butterfly => (M::Bfly, 31),
        };
        let control = (32 - segment) << 8 | clamp;
        let ty = self.func.ty(value);
        let words = self.exchange_words(value);
        let (lane, mask) = (self.u32_operand(lane), self.u32_operand(mask));
        let in_range =
            data.results.get(1).copied().filter(|&p| self.analysis.is_used(p)).map(|p| self.define_one(p));
        let direct = shape(ty).0 == Width::B32;
        let targets: SmallVec<[Symbol; 4]> = if direct {
            self.define(data.results[0])
        } else {
            (0..words.len()).map(|_| self.new_reg(Width::B32)).collect()
        };
        for (i, (to, word)) in targets.iter().zip(words).enumerate() {
            let from = self.in_reg(word, Width::B32);
            let to = match in_range.filter(|_| i == 0) {
                Some(predicate) => Operand::Pair(Some(*to), Some(predicate)),
                None => (*to).into(),
            };
            let operands = [to, from.into(), lane.clone(), control.into(), mask.clone()];
            self.push(Opcode::Shfl, &[M::Sync, modifier, M::B32], operands);
        }
        if !direct {
            let words: Words = targets.into_iter().map(Word::Reg).collect();
            let words = self.exchanged(&words, ty);
            self.finish(data, words);
        }
        Ok(())
    }

    pub(crate) fn vote(&mut self, data: &OpData) -> Lowered {
        let (mode, ty) = match data.get::<Vote>().unwrap_or(Vote::All) {
            Vote::All => (M::All, M::PRED),
            Vote::Any => (M::Any, M::PRED),
            Vote::Uniform => (M::Uni, M::PRED),
            Vote::Ballot => (M::Ballot, M::B32),
        };
        let expected = if ty == M::PRED { Type::BOOL } else { Type::U32 };
        let found = self.func.ty(data.results[0]);
        if found != expected {
            return Err(self.unsupported(format!("gives {expected} here, not {found}")));
        }
        let predicate = self.reg(data.operands[0]);
        let mask = self.u32_operand(data.operands[1]);
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Vote, &[M::Sync, mode, ty], [to.into(), predicate.into(), mask]);
        Ok(())
    }

    /// `match_any`, `match_all`
    pub(crate) fn match_lanes(&mut self, data: &OpData) -> Lowered {
        let value = data.operands[0];
        let (width, count) = shape(self.func.ty(value));
        let element = self.element(value);
        let ty = if width == Width::B64 { M::B64 } else { M::B32 };
        let word = match (width, count) {
            (Width::B64, 1) | (Width::B32, 1) => self.word(value),
            (Width::B32, 2) => {
                let words = self.words(value);
                self.join64(&words)
            }
            (Width::Pred, 1) => self.exchange_words(value)[0],
            _ => {
                let unsigned = if element.bits() <= 8 { Element::U8 } else { Element::U16 };
                let scalar = matches!(self.func.ty(value), Type::Scalar(_));
                let word = self.word(value);
                let word = if scalar { self.normal(word, unsigned) } else { word };
                self.zero_extended(word)
            }
        };
        let ty = if count == 2 { M::B64 } else { ty };
        let register = self.in_reg(word, if ty == M::B64 { Width::B64 } else { Width::B32 });
        let mask = self.u32_operand(data.operands[1]);
        let to = self.define_one(data.results[0]);
        if data.code == Ir::MatchAny {
            self.push(Opcode::Match, &[M::Any, M::Sync, ty], [to.into(), register.into(), mask]);
            return Ok(());
        }
        let all =
            data.results.get(1).copied().filter(|&p| self.analysis.is_used(p)).map(|p| self.define_one(p));
        let to = match all {
            Some(predicate) => Operand::Pair(Some(to), Some(predicate)),
            None => to.into(),
        };
        self.push(Opcode::Match, &[M::All, M::Sync, ty], [to, register.into(), mask]);
        Ok(())
    }

    pub(crate) fn redux(&mut self, data: &OpData) -> Lowered {
        let combine = data.get::<Combine>().unwrap_or(Combine::Add);
        let number: M = arithmetic(self.element(data.operands[0])).into();
        let (operation, ty) = match combine {
            Combine::Add => (M::AddOp, number),
            Combine::Min => (M::MinOp, number),
            Combine::Max => (M::MaxOp, number),
            Combine::And => (M::AndOp, M::B32),
            Combine::Or => (M::OrOp, M::B32),
            Combine::Xor => (M::XorOp, M::B32),
            other => {
                return Err(self.unsupported(format!(
                    "cannot combine by {}; expected add, min, max, and, or, xor",
                    other.name()
                )));
            }
        };
        let value = self.reg(data.operands[0]);
        let mask = self.u32_operand(data.operands[1]);
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Redux, &[M::Sync, operation, ty], [to.into(), value.into(), mask]);
        Ok(())
    }

    pub(crate) fn elect(&mut self, data: &OpData) -> Lowered {
        let mask = self.u32_operand(data.operands[0]);
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Elect, &[M::Sync], [Operand::Pair(None, Some(to)), mask]);
        Ok(())
    }

    pub(crate) fn active_mask(&mut self, data: &OpData) -> Lowered {
        let to = self.define_one(data.results[0]);
        self.push(Opcode::Activemask, &[M::B32], [to.into()]);
        Ok(())
    }

    pub(crate) fn warp_sync(&mut self, data: &OpData) -> Lowered {
        let mask = self.u32_operand(data.operands[0]);
        self.push(Opcode::Bar, &[M::Warp, M::Sync], [mask]);
        Ok(())
    }

    /// `barrier`, `barrier_arrive`, `barrier_reduce`
    pub(crate) fn barrier(&mut self, data: &OpData) -> Lowered {
        let aligned = data.flags().has(Flags::ALIGNED).then_some(M::Aligned);
        if data.code == Ir::BarrierReduce {
            return self.barrier_reduce(data, aligned);
        }
        let action = if data.code == Ir::Barrier { M::Sync } else { M::Arrive };
        let modifiers: Modifiers = [action].into_iter().chain(aligned).collect();
        let operands: SmallVec<[Operand; 2]> =
            data.operands.iter().map(|&value| self.u32_operand(value)).collect();
        self.push(Opcode::Barrier, &modifiers, operands);
        Ok(())
    }

    fn barrier_reduce(&mut self, data: &OpData, aligned: Option<M>) -> Lowered {
        let (operation, ty, expected) = match data.get::<Combine>().unwrap_or(Combine::And) {
            Combine::And => (M::AndOp, M::PRED, Type::BOOL),
            Combine::Or => (M::OrOp, M::PRED, Type::BOOL),
            Combine::Popc => (M::PopcOp, M::U32, Type::U32),
            other => {
                return Err(
                    self.unsupported(format!("cannot combine by {}; expected and, or, popc", other.name()))
                );
            }
        };
        let found = self.func.ty(data.results[0]);
        if found != expected {
            return Err(self.unsupported(format!("gives {expected} here, not {found}")));
        }
        let predicate = self.reg(data.operands[0]);
        let mut operands: SmallVec<[Operand; 4]> =
            data.operands[1..].iter().map(|&value| self.u32_operand(value)).collect();
        operands.push(predicate.into());
        operands.insert(0, self.define_one(data.results[0]).into());
        let modifiers: Modifiers = [M::RedOp, operation].into_iter().chain(aligned).chain([ty]).collect();
        self.push(Opcode::Barrier, &modifiers, operands);
        Ok(())
    }

    /// `cluster_arrive`, `cluster_wait`
    pub(crate) fn cluster_barrier(&mut self, data: &OpData) -> Lowered {
        let arrive = data.code == Ir::ClusterArrive;
        let order = match data.get::<Order>() {
            None => None,
            Some(Order::Release) if arrive => Some(M::Release),
            Some(Order::Relaxed) if arrive => Some(M::Relaxed),
            Some(Order::Acquire) if !arrive => Some(M::Acquire),
            Some(other) => return Err(self.unsupported(format!("cannot have order({})", other.name()))),
        };
        let action = if arrive { M::Arrive } else { M::Wait };
        let aligned = data.flags().has(Flags::ALIGNED).then_some(M::Aligned);
        let modifiers: Modifiers = [M::Cluster, action].into_iter().chain(order).chain(aligned).collect();
        self.push(Opcode::Barrier, &modifiers, []);
        Ok(())
    }

    /// `mbar_init`, `mbar_invalidate`, `mbar_expect` and the arrivals.
    pub(crate) fn barrier_object(&mut self, data: &OpData) -> Lowered {
        let space = barrier_space(self.space(data.operands[0]));
        let address = self.address(data.operands[0]);
        let number = data.operands.get(1).map(|&value| self.u32_operand(value));
        let order = self.object_order(data)?;
        let words: &[M] = match data.code {
            Ir::MbarInit => &[M::Init],
            Ir::MbarInvalidate => &[M::Inval],
            Ir::MbarExpect => &[M::ExpectTx],
            Ir::MbarArriveExpect => &[M::Arrive, M::ExpectTx],
            Ir::MbarArriveDrop => &[M::ArriveDrop],
            _ => &[M::Arrive],
        };
        let modifiers: Modifiers = words.iter().copied().chain(order).chain([space, M::B64]).collect();
        let returns = matches!(data.code, Ir::MbarArrive | Ir::MbarArriveExpect | Ir::MbarArriveDrop);
        let operands: SmallVec<[Operand; 3]> =
            returns.then_some(Operand::Sink).into_iter().chain([address]).chain(number).collect();
        self.push(Opcode::Mbarrier, &modifiers, operands);
        Ok(())
    }

    /// Order and scope of an op on a barrier object: none means the plain instruction.
    fn object_order(&self, data: &OpData) -> Result<Modifiers, CodegenError> {
        let waits = matches!(data.code, Ir::MbarTest | Ir::MbarWait);
        let order = match data.get::<Order>() {
            None if data.code == Ir::MbarExpect && data.get::<Scope>().is_some() => M::Relaxed,
            None if data.get::<Scope>().is_some() => {
                if waits {
                    M::Acquire
                } else {
                    M::Release
                }
            }
            None => return Ok(Modifiers::new()),
            Some(Order::Relaxed) => M::Relaxed,
            Some(Order::Release) if !waits => M::Release,
            Some(Order::Acquire) if waits => M::Acquire,
            Some(other) => return Err(self.unsupported(format!("cannot have order({})", other.name()))),
        };
        let scope = match data.get::<Scope>().unwrap_or(Scope::Block) {
            scope @ (Scope::Block | Scope::Cluster) => scope_modifier(scope),
            other => {
                return Err(
                    self.unsupported(format!("cannot have scope({}); cta and cluster exist", other.name()))
                );
            }
        };
        Ok(SmallVec::from_slice(&[order, scope]))
    }

    /// The instruction that asks whether a phase has completed.
    fn test_phase(&mut self, data: &OpData, may_suspend: bool, to: Symbol) -> Lowered {
        let order = self.object_order(data)?;
        let action = if may_suspend { M::TryWait } else { M::TestWait };
        let modifiers: Modifiers =
            [action, M::Parity].into_iter().chain(order).chain([M::Shared, M::B64]).collect();
        let address = self.address(data.operands[0]);
        let parity = self.u32_operand(data.operands[1]);
        self.push(Opcode::Mbarrier, &modifiers, [to.into(), address, parity]);
        Ok(())
    }

    pub(crate) fn mbar_test(&mut self, data: &OpData) -> Lowered {
        let to = self.define_one(data.results[0]);
        self.test_phase(data, data.flags().has(Flags::TRY), to)
    }

    /// A loop around the test; before Hopper it cannot suspend.
    pub(crate) fn mbar_wait(&mut self, data: &OpData) -> Lowered {
        let done = self.new_reg(Width::Pred);
        let again = self.new_label();
        self.label(again);
        self.test_phase(data, self.arch.number >= 90, done)?;
        self.branch(Some(Guard { negated: true, register: done }), false, again);
        Ok(())
    }

    pub(crate) fn fence(&mut self, data: &OpData) -> Lowered {
        let order = match data.get::<Order>().unwrap_or(Order::AcqRel) {
            Order::SeqCst => M::Sc,
            // The one-sided fences need newer chips; both sides together are never weaker.
            Order::AcqRel | Order::Acquire | Order::Release => M::AcqRel,
            other => {
                return Err(
                    self.unsupported(format!("cannot have order({}); acq_rel and sc exist", other.name()))
                );
            }
        };
        let scope = scope_modifier(data.get().unwrap_or(Scope::Gpu));
        self.push(Opcode::Fence, &[order, scope], []);
        Ok(())
    }

    pub(crate) fn fence_proxy(&mut self, data: &OpData) -> Lowered {
        let modifiers: &[M] = match data.get::<FenceProxy>().unwrap_or(FenceProxy::Async) {
            FenceProxy::Async => &[M::Proxy, M::Async],
            FenceProxy::AsyncGlobal => &[M::Proxy, M::Async, M::Global],
            FenceProxy::AsyncShared => &[M::Proxy, M::Async, M::SharedCta],
            FenceProxy::Alias => &[M::Proxy, M::Alias],
        };
        self.push(Opcode::Fence, modifiers, []);
        Ok(())
    }

    pub(crate) fn fence_mbar_init(&mut self) -> Lowered {
        self.push(Opcode::Fence, &[M::MbarrierInit, M::Release, M::Cluster], []);
        Ok(())
    }
}

/// Barrier objects in this block go by the oldest name of its memory, which every version of PTX has.
pub(crate) fn barrier_space(space: Space) -> M {
    if space == Space::Cluster { M::SharedCluster } else { M::Shared }
}

/// The operation of a reduction in memory; none for what only atomics and barriers do.
pub(crate) fn reduction(combine: Combine) -> Option<M> {
    Some(match combine {
        Combine::Add => M::AddOp,
        Combine::Min => M::MinOp,
        Combine::Max => M::MaxOp,
        Combine::And => M::AndOp,
        Combine::Or => M::OrOp,
        Combine::Xor => M::XorOp,
        Combine::Inc => M::Inc,
        Combine::Dec => M::Dec,
        Combine::Exchange | Combine::Popc => return None,
    })
}
