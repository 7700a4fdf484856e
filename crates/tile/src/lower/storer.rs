//! A warp that stores, on Hopper: what leaves by the copy engine is written to shared memory by the warps that multiply, and from there on is
//! not their concern.
//!
//! ```text
//! math:    panels are free? | write to them; say so | next program
//! storer:  say that panels are free | when they are written, send them | wait until they are read
//! ```
//!
//! Nobody who multiplies waits for the engine, or computes where a tile begins in memory: that takes divisions, hundreds of cycles in which the
//! tensor cores would have nothing to do. Nor do warpgroups wait for each other: the first to have multiplied writes while the others still
//! multiply, and begins with the next program while they write.
//!
//! Contract: programs take turns, and the loader has a warpgroup, of which this is the second warp. There is room for all panels. Every program
//! stores, once.

use tilewright_ir::{Cmp, Flags, OpData, Opcode, Special, Type, Value};
use tilewright_passes::RemarkKind;

use super::outgoing::Outgoing;
use super::teams::OTHER_BARRIERS;
use super::{Lowering, Result};

/// Named barriers: panels are written; and from the second on, for each warpgroup, they are free.
const WRITTEN: u32 = OTHER_BARRIERS;
const FREE: u32 = WRITTEN + 1;

impl Lowering<'_> {
    /// Math: leaves a tile to the warp that stores it.
    pub(super) fn hand_out(&mut self, out: &Outgoing, (value, vector): (Value, u32)) {
        let writer = self.writer(value, vector);
        let (group, free) = (self.warpgroup(), self.u32(FREE));
        let free = self.early(Opcode::Add, [group, free], [], Type::U32);
        self.meet_storer(Opcode::Barrier, free, 4);
        self.write_panels(out, &writer, 0..out.panels);
        let written = self.u32(WRITTEN);
        self.meet_storer(Opcode::BarrierArrive, written, self.team().warps);
        self.handed_out = true;
        self.remark(RemarkKind::Applied, "stored by a warp of its own, while the others multiply".to_owned());
    }

    /// The warp that stores: goes through all programs.
    pub(super) fn store_programs(&mut self) -> Result<()> {
        self.stores = true;
        self.all_programs()
    }

    /// The warp that stores: sends what the others have written.
    pub(super) fn send_out(&mut self, data: &OpData) {
        let outgoing = self.pipeline.as_ref().and_then(|pipeline| pipeline.outgoing.clone());
        let Some(out) = outgoing else { return };
        let starts = self.starts_of(data);
        let (lane, zero) =
            (self.value(Opcode::Special, [], [Special::LaneId.into()], Type::U32), self.u32(0));
        let first = self.value(Opcode::Cmp, [lane, zero], [Cmp::Eq.into()], Type::BOOL);
        for group in 0..self.team().warps / 4 {
            let free = self.u32(FREE + group);
            self.meet_storer(Opcode::BarrierArrive, free, 4);
        }
        let written = self.u32(WRITTEN);
        self.meet_storer(Opcode::Barrier, written, self.team().warps);
        self.only_if(Some(first), |this| {
            this.send_panels(&out, starts, 0..out.panels);
            this.await_reads(0);
        });
    }

    /// What so many warps that multiply and the one that stores do at a barrier.
    fn meet_storer(&mut self, code: Opcode, barrier: Value, warps: u32) {
        let threads = self.u32(32 * (warps + 1));
        self.push(code, [barrier, threads], [Flags::ALIGNED.into()], []);
    }
}
