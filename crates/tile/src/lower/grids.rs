//! Grids that overlap: one begins while the one before it ends.

use tilewright_ir::{Op, OpData, Opcode};

use super::{Lowering, assign};

impl Lowering<'_> {
    /// Lets the grid begin while the one before it ends, and the next one while this one does, unless its author says when: what it takes
    /// to start a grid is otherwise time in which memory has nothing to do.
    pub(super) fn overlap(&mut self) {
        let up_to_author =
            |op: &Op| matches!(self.source.op(*op).code, Opcode::GridWait | Opcode::GridLaunch);
        let ops = self.source.walk();
        if !ops.iter().any(up_to_author) && self.is_worth_waiting(&ops) {
            self.push(Opcode::GridLaunch, [], [], []);
            self.push(Opcode::GridWait, [], [], []);
        }
    }

    /// Whether a block has enough to do that it does not matter how long it takes to begin one that waits: 0.16 us on an H200 for each of a
    /// multiprocessor's, in which it moves 5 KB.
    fn is_worth_waiting(&self, ops: &[Op]) -> bool {
        let moved = |data: &OpData| assign::accessed(data).map_or(0, |tile| self.source.ty(tile).bits() / 8);
        let all: u32 = ops.iter().map(|&op| moved(self.source.op(op))).sum();
        let loops = |op: &Op| matches!(self.source.op(*op).code, Opcode::For | Opcode::While);
        all / self.team().blocks >= WORTH_WAITING || ops.iter().any(loops)
    }
}

/// Bytes that a block reads and writes at least if it waits for grids before it.
const WORTH_WAITING: u32 = 8 << 10;
