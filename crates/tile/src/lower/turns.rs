//! Programs that take turns: fewer blocks (or clusters of them) than programs, each of which runs one after the other.
//!
//! Programs have no order among each other, so that nothing of global memory needs a barrier between two turns; what they exchange in shared
//! memory does. The launch passes how many programs there are; a block begins with the program of its own number and goes on in steps of the
//! number of blocks.

use tilewright_ir::{Opcode, Special, Type, Value};

use super::{Lowering, Result};

/// Which programs a block runs: from the first, every so many, of all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    pub(super) first: Value,
    pub(super) apart: Value,
    pub(super) all: Value,
    /// Programs along x and y, and of one layer.
    width: Value,
    height: Value,
    layer: Value,
}

impl Lowering<'_> {
    /// The programs of this block; none if each has its own.
    pub(super) fn queue(&mut self) -> Option<Queue> {
        let [width, height, depth] = self.programs?;
        let (own, of) = match self.team().blocks {
            1 => (Special::CtaidX, Special::NctaidX),
            _ => (Special::ClusteridX, Special::NclusteridX),
        };
        let [first, apart] =
            [own, of].map(|which| self.value(Opcode::Special, [], [which.into()], Type::U32));
        let layer = self.binary(Opcode::Mul, width, height);
        let all = self.binary(Opcode::Mul, layer, depth);
        Some(Queue { first, apart, all, width, height, layer })
    }

    /// The program of a number, along x, y and z.
    pub(super) fn numbered(&mut self, queue: &Queue, number: Value) -> [Value; 3] {
        let row = self.binary(Opcode::Div, number, queue.width);
        [
            self.binary(Opcode::Rem, number, queue.width),
            self.binary(Opcode::Rem, row, queue.height),
            self.binary(Opcode::Div, number, queue.layer),
        ]
    }

    /// Runs all programs of the queue. A turn takes the number of its program and what the one before it hands on, each a `u32`.
    pub(super) fn take_turns(
        &mut self,
        queue: &Queue,
        carried: &[Value],
        turn: impl FnOnce(&mut Self, Value, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<()> {
        let operands = [queue.first, queue.all, queue.apart].into_iter().chain(carried.iter().copied());
        let types = vec![Type::U32; carried.len()];
        let op = self.push(Opcode::For, operands, [], types.clone());
        self.turns.push(op);
        let before = self.scratch.state();
        self.scratch.enter_loop(Vec::new());
        self.fill(op, |this, region| {
            let number = this.builder.func.add_arg(region, Type::U32);
            let carried: Vec<Value> = types.iter().map(|&ty| this.builder.func.add_arg(region, ty)).collect();
            this.program = Some(this.numbered(queue, number));
            turn(this, number, &carried)
        })?;
        self.program = None;
        self.leave_loop(before);
        Ok(())
    }
}
