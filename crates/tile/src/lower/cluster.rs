//! How the blocks of a program, a cluster, tell each other.
//!
//! Barriers of the cluster order everything that any thread has done, down to global memory, which takes about as long as an access to it. So
//! blocks that exchange a few words *send* them: the stores say at a barrier object of the block that gets them that they have arrived, and only
//! those who read them wait. Such a *signal* serves once; in loops, and for whole tiles, all blocks meet instead.

use std::ops::Range;

use tilewright_ir::{
    Align, Bytes, Cmp, Element, Flags, Func, Op, Opcode, Order, Region, Space, Special, Type, Value,
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

    /// Says that blocks are about to write to a piece of each other's memory: all of them run, and nobody reads there any more.
    pub(super) fn touch_remote(&mut self, piece: &Range<u32>) {
        self.await_others();
        if self.scratch.meets_remote(piece) {
            self.cluster_barrier();
        }
        self.scratch.use_by_others(piece);
    }

    /// A signal that nobody has used yet, if this is done once only.
    pub(super) fn signal(&mut self) -> Option<Value> {
        let signals = self.signals.filter(|signals| self.rounds == 0 && signals.used < signals.all)?;
        self.signals = Some(Signals { used: signals.used + 1, ..signals });
        Some(self.further(signals.base, 8 * signals.used))
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
    pub(super) fn send(&mut self, columns: &[Column], writes: Option<Value>, signal: Value, bytes: u32) {
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
        self.push(Opcode::MbarWait, [signal, zero], [], []);
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

/// Reductions and scans that are done once only.
fn exchanges(func: &Func, region: Region) -> u32 {
    let of = |&op: &Op| {
        let data = func.op(op);
        match data.code {
            Opcode::TileReduce | Opcode::TileScan => 1,
            Opcode::If => data.regions.iter().map(|&inner| exchanges(func, inner)).sum(),
            _ => 0,
        }
    };
    func.region(region).ops.iter().map(of).sum()
}
