//! How the blocks of a program, a cluster, tell each other.
//!
//! Barriers of the cluster order everything that any thread has done, down to global memory, which takes about as long as an access to it. So
//! blocks that exchange a few words *send* them: the stores say at a barrier object of the block that gets them that they have arrived, and only
//! those who read them wait. For whole tiles, and in loops inside of loops or branches, all blocks meet instead.
//!
//! In a loop, rounds take turns with two such *signals*, and with two places for what is sent. A block that sends in a round has all of the round
//! before, and so knows that the others have sent in that one, and that they have read what was sent two rounds before: a block's threads meet
//! between what they read in one round and what one of them sends in the next.

use std::ops::Range;

use tilewright_ir::{
    Align, Bytes, Cmp, Element, FenceProxy, Flags, Func, Op, Opcode, Order, Region, Space, Special, Type,
    Value,
};

use super::Lowering;

const SHARED: Type = Type::Pointer(Space::Shared);
const CLUSTER: Type = Type::Pointer(Space::Cluster);

/// Barrier objects of which each counts the bytes of one exchange.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signals {
    base: Value,
    used: u32,
    all: u32,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Signal {
    at: Value,
    /// Of how often it has served before.
    parity: Value,
    /// Which of two places for what is sent has its turn, in a loop.
    pub(super) turn: Option<Value>,
}

/// Values that threads leave side by side for others: where the first one goes in this block, and how many bytes they are apart.
pub(super) struct Column {
    pub(super) place: Value,
    pub(super) step: u32,
    pub(super) values: Vec<Value>,
}

impl Lowering<'_> {
    /// Makes the signals, and tells the other blocks of the program that this one runs, so that they can write to its memory.
    pub(super) fn announce(&mut self) {
        if self.team().blocks == 1 {
            return;
        }
        let all = exchanges(self.source, self.source.body());
        if all > 0 {
            // In front of all else, which what is aligned most is: compute-sanitizer takes what most warps pass over here for writes to other
            // places, and nothing lies before these.
            let base = self.early(Opcode::Shared, [], [Bytes(8 * all).into(), Align(128).into()], SHARED);
            let thread = self.early(Opcode::Special, [], [Special::TidX.into()], Type::U32);
            let (limit, eight, one) = (self.u32(all), self.u32(8), self.u32(1));
            let makes = self.value(Opcode::Cmp, [thread, limit], [Cmp::Lt.into()], Type::BOOL);
            self.only_if(Some(makes), |this| {
                let offset = this.binary(Opcode::Mul, thread, eight);
                let signal = this.value(Opcode::PtrAdd, [base, offset], [], SHARED);
                this.push(Opcode::MbarInit, [signal, one], [], []);
                this.push(Opcode::FenceMbarInit, [], [], []);
            });
            self.signals = Some(Signals { base, used: 0, all });
        }
        self.push(Opcode::ClusterArrive, [], [Order::Relaxed.into(), Flags::ALIGNED.into()], []);
        self.scratch.announced = true;
    }

    /// Waits until all blocks of the program run: before the first way into a loop or branch, at the latest, so that it is done once.
    pub(super) fn await_others(&mut self) {
        if std::mem::take(&mut self.scratch.announced) {
            self.push(Opcode::ClusterWait, [], [Order::Acquire.into(), Flags::ALIGNED.into()], []);
        }
    }

    /// All blocks of the program meet.
    pub(super) fn cluster_barrier(&mut self) {
        self.await_others();
        self.push(Opcode::ClusterArrive, [], [Order::Release.into(), Flags::ALIGNED.into()], []);
        self.push(Opcode::ClusterWait, [], [Order::Acquire.into(), Flags::ALIGNED.into()], []);
        self.scratch.all_met();
    }

    /// Says that blocks are about to write to a piece of each other's memory: all of them run, nobody reads there any more, and what threads
    /// have stored there comes before what is sent there.
    pub(super) fn touch_remote(&mut self, piece: &Range<u32>) {
        self.await_others();
        if self.scratch.meets_remote(piece) {
            self.push(Opcode::FenceProxy, [], [FenceProxy::AsyncShared.into()], []);
            self.cluster_barrier();
            self.scratch.all_known();
        }
        self.scratch.use_by_others(piece);
    }

    /// A signal for an exchange that is done once, or once in every round of a loop whose rounds are counted: then the threads of a block must meet
    /// in it before one of them sends.
    pub(super) fn signal(&mut self, threads_meet: bool) -> Option<Signal> {
        let round = self.round.filter(|_| threads_meet);
        let many = match (self.rounds, round) {
            (0, _) => 1,
            (_, Some(_)) => 2,
            _ => return None,
        };
        let signals = self.signals.filter(|signals| signals.used + many <= signals.all)?;
        self.signals = Some(Signals { used: signals.used + many, ..signals });
        let first = self.further(signals.base, 8 * signals.used);
        let Some(round) = round else {
            return Some(Signal { at: first, parity: self.u32(0), turn: None });
        };
        let (one, eight) = (self.u32(1), self.u32(8));
        let turn = self.binary(Opcode::And, round, one);
        let distance = self.binary(Opcode::Mul, turn, eight);
        let at = self.value(Opcode::PtrAdd, [first, distance], [], SHARED);
        let times = self.binary(Opcode::Shr, round, one);
        Some(Signal { at, parity: self.binary(Opcode::And, times, one), turn: Some(turn) })
    }

    /// Memory of its own for what is sent with a signal that has two places for it: the place whose turn it is.
    pub(super) fn place_of_turn(&mut self, turn: Value, bytes: u32) -> Value {
        let bytes = bytes.next_multiple_of(16);
        let both = self.early(Opcode::Shared, [], [Bytes(2 * bytes).into(), Align(16).into()], SHARED);
        let bytes = self.u32(bytes);
        let distance = self.binary(Opcode::Mul, turn, bytes);
        self.value(Opcode::PtrAdd, [both, distance], [], SHARED)
    }

    /// Whether the rounds of a loop are counted, for signals in it.
    pub(super) fn counts_rounds(&self, body: Region) -> bool {
        self.signals.is_some() && self.rounds == 0 && of_region(self.source, body) > 0
    }

    /// Leaves values in this block, for threads that meet at its barrier.
    pub(super) fn leave_here(&mut self, columns: &[Column], writes: Option<Value>) {
        for column in columns {
            self.leave_at(column.place, column, writes);
        }
    }

    /// Leaves values in all blocks, for threads that meet at the barrier of the cluster.
    pub(super) fn leave_everywhere(&mut self, columns: &[Column], writes: Option<Value>) {
        for block in 0..self.team().blocks {
            let block = self.u32(block);
            for column in columns {
                let there = self.value(Opcode::MapCluster, [column.place, block], [], CLUSTER);
                self.leave_at(there, column, writes);
            }
        }
    }

    fn leave_at(&mut self, place: Value, column: &Column, writes: Option<Value>) {
        for (i, &value) in (0u32..).zip(&column.values) {
            let address = self.further(place, i * column.step);
            match writes {
                None => self.push(Opcode::Store, [address, value], [], []),
                Some(here) => self.push(Opcode::StoreIf, [address, value, here], [], []),
            };
        }
    }

    /// Sends values of whole words to all blocks, and waits for what they send: so many bytes.
    pub(super) fn send(&mut self, columns: &[Column], writes: Option<Value>, signal: Signal, bytes: u32) {
        let Signal { at: signal, parity, .. } = signal;
        let thread = self.early(Opcode::Special, [], [Special::TidX.into()], Type::U32);
        let (zero, bytes) = (self.u32(0), self.u32(bytes));
        let first = self.value(Opcode::Cmp, [thread, zero], [Cmp::Eq.into()], Type::BOOL);
        self.only_if(Some(first), |this| {
            this.push(Opcode::MbarArriveExpect, [signal, bytes], [], []);
        });
        self.only_if(writes, |this| {
            for block in 0..this.team().blocks {
                let block = this.u32(block);
                let signal = this.value(Opcode::MapCluster, [signal, block], [], CLUSTER);
                for column in columns {
                    let there = this.value(Opcode::MapCluster, [column.place, block], [], CLUSTER);
                    for (i, &value) in (0u32..).zip(&column.values) {
                        let address = this.further(there, i * column.step);
                        this.push(Opcode::StoreAsync, [address, value, signal], [], []);
                    }
                }
            }
        });
        self.push(Opcode::MbarWait, [signal, parity], [], []);
    }

    /// An element as a word that can be sent.
    pub(super) fn as_word(&mut self, value: Value, element: Element) -> Value {
        let (zero, one) = (self.u32(0), self.u32(1));
        match word(element) {
            same if same == element => value,
            _ if element.is_bool() => self.value(Opcode::Select, [value, one, zero], [], Type::U32),
            _ => {
                let bits = self.value(Opcode::Bitcast, [value], [], Type::Scalar(small(element)));
                self.value(Opcode::Cvt, [bits], [], Type::U32)
            }
        }
    }

    /// What a word was before it was sent.
    pub(super) fn of_word(&mut self, value: Value, element: Element) -> Value {
        let zero = self.u32(0);
        match word(element) {
            same if same == element => value,
            _ if element.is_bool() => self.value(Opcode::Cmp, [value, zero], [Cmp::Ne.into()], Type::BOOL),
            _ => {
                let bits = self.value(Opcode::Cvt, [value], [], Type::Scalar(small(element)));
                self.value(Opcode::Bitcast, [bits], [], Type::Scalar(element))
            }
        }
    }
}

/// What an element is sent as: itself, if that is a word or two.
pub(super) fn word(element: Element) -> Element {
    if element.is_bool() || element.bits() < 32 { Element::U32 } else { element }
}

/// The integer that has the bits of a small element.
fn small(element: Element) -> Element {
    if element.bits() > 8 { Element::U16 } else { Element::U8 }
}

/// Signals of reductions and scans that are done once, and of those that are done once in every round of a loop.
fn exchanges(func: &Func, region: Region) -> u32 {
    let of = |&op: &Op| {
        let data = func.op(op);
        match data.code {
            Opcode::If => data.regions.iter().map(|&inner| exchanges(func, inner)).sum(),
            Opcode::For => 2 * of_region(func, data.regions[0]),
            _ => 0,
        }
    };
    of_region(func, region) + func.region(region).ops.iter().map(of).sum::<u32>()
}

/// Reductions and scans that stand in a region, and not in a loop or branch in it.
fn of_region(func: &Func, region: Region) -> u32 {
    let exchanges = |op: &&Op| matches!(func.op(**op).code, Opcode::TileReduce | Opcode::TileScan);
    u32::try_from(func.region(region).ops.iter().filter(exchanges).count()).unwrap_or(0)
}
