//! A warp that stores, on Hopper: what leaves by the copy engine is written by the warps that multiply, and from there on is not their concern.
//!
//! Half of the panels of a tile have room of their own. The other half goes to the slot of the program's last factors, which those who have
//! multiplied by them lend, and which this warp gives back to the loader:
//!
//! ```text
//! math:    panels are free? | write to panels | all have done with the slot? | write to it | next program
//! storer:  say that panels are free | send panels when written | send slot when written | wait until all is read; give the slot back
//! ```
//!
//! Nobody who multiplies waits for the engine, or computes where a tile begins in memory: that takes divisions, hundreds of cycles in which the
//! tensor cores would have nothing to do. Warpgroups wait for each other once only, in the middle: the first to have multiplied writes half of
//! its results while the others still multiply, and begins with the next program while they write.
//!
//! Contract: programs take turns, so that slots can be counted ([`teams`](super::teams)), and the loader has a warpgroup, of which this is the
//! second warp. Every program stores, once.

use tilewright_ir::{Cmp, Flags, OpData, Opcode, Special, Type, Value};
use tilewright_passes::RemarkKind;

use super::outgoing::{Outgoing, Part};
use super::{Lowering, Result};

/// Named barriers: the panels are written, the slot is, and from the third on, for each warpgroup, panels are free.
const WRITTEN: [u32; 2] = [5, 6];
const FREE: u32 = 7;

impl Lowering<'_> {
    /// Math: leaves a tile to the warp that stores it; whether it could.
    pub(super) fn hand_out(&mut self, out: &Outgoing, panels: Value, (value, vector): (Value, u32)) -> bool {
        let Some(((slot, _), ring)) = self.lent.take().zip(self.ring) else { return false };
        let slot = self.slot_at(&ring, slot, 0);
        let writer = self.writer(value, vector);
        let (group, free) = (self.warpgroup(), self.u32(FREE));
        let free = self.early(Opcode::Add, [group, free], [], Type::U32);
        self.meet_storer(Opcode::Barrier, free, 4);
        let [first, second] = halves(out, slot, panels);
        self.write_part(out, &writer, &first);
        self.written(WRITTEN[0]);
        self.block_barrier();
        self.write_part(out, &writer, &second);
        self.written(WRITTEN[1]);
        self.handed_out = true;
        self.remark(RemarkKind::Applied, "stored by a warp of its own, while the others multiply".to_owned());
        true
    }

    /// The warp that stores: goes through all programs.
    pub(super) fn store_programs(&mut self) -> Result<()> {
        let (bounds, slots) = (self.bounds_of_programs(), self.slots_in(self.source.body()));
        self.stores = Some(slots);
        self.programs_from(bounds, |this, _| {
            this.region(this.source.body())?;
            this.pass(slots);
            Ok(())
        })?;
        self.stores = None;
        Ok(())
    }

    /// The warp that stores: sends what the others have written, of a program that has taken so many slots.
    pub(super) fn send_out(&mut self, data: &OpData, slots: Value) {
        let outgoing = self.pipeline.as_ref().and_then(|pipeline| pipeline.outgoing.clone());
        let (Some(out), Some(panels), Some(ring)) = (outgoing, self.panels, self.ring) else { return };
        let (zero, one, stages) = (self.u32(0), self.u32(1), self.u32(ring.stages));
        let any = self.value(Opcode::Cmp, [slots, zero], [Cmp::Ne.into()], Type::BOOL);
        let taken = self.binary(Opcode::Max, slots, one);
        let end = self.binary(Opcode::Add, ring.slot, taken);
        let last = self.binary(Opcode::Sub, end, one);
        let last = self.binary(Opcode::Rem, last, stages);
        let slot = self.slot_at(&ring, last, 0);
        let starts = self.starts_of(data);
        let lane = self.value(Opcode::Special, [], [Special::LaneId.into()], Type::U32);
        let first = self.value(Opcode::Cmp, [lane, zero], [Cmp::Eq.into()], Type::BOOL);

        for group in 0..self.team().warps / 4 {
            let free = self.u32(FREE + group);
            self.meet_storer(Opcode::BarrierArrive, free, 4);
        }
        for (part, written) in halves(&out, slot, panels).iter().zip(WRITTEN) {
            let written = self.u32(written);
            self.meet_storer(Opcode::Barrier, written, self.team().warps);
            self.only_if(Some(first), |this| this.send_part(&out, starts, part));
        }
        self.only_if(Some(first), |this| {
            this.await_reads(0);
            this.only_if(Some(any), |this| this.release_for_all(last));
        });
    }

    /// Math: says that a part is written.
    fn written(&mut self, barrier: u32) {
        let barrier = self.u32(barrier);
        self.meet_storer(Opcode::BarrierArrive, barrier, self.team().warps);
    }

    /// What so many warps that multiply and the one that stores do at a barrier.
    fn meet_storer(&mut self, code: Opcode, barrier: Value, warps: u32) {
        let threads = self.u32(32 * (warps + 1));
        self.push(code, [barrier, threads], [Flags::ALIGNED.into()], []);
    }
}

/// What goes to the panels, and what to the slot.
fn halves(out: &Outgoing, slot: Value, panels: Value) -> [Part; 2] {
    [
        Part { panels: 0..out.slots, base: panels, offset: 0 },
        Part { panels: out.slots..out.panels, base: slot, offset: 0 },
    ]
}
