//! `cp.async`: copies of 4, 8 or 16 bytes a thread from global to shared memory, awaited in groups or through an mbarrier.

use std::sync::Arc;

use crate::check::{Access as Checked, Epoch, Kind as AccessKind, Knowledge, Proxy};
use crate::number::Lanes;
use crate::program::{Address, Space};

use super::asynchronous::Work;
use super::cluster::{Cluster, Env, Stream, index};
use super::exec::{At, Flow, bits};
use super::report::Where;
use super::warp::{Wait, Warp};

impl Cluster {
    #[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
    pub(crate) fn cp_async(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        dst: Address,
        src: Address,
        bytes: usize,
        read: Option<Lanes>,
        ignore: u32,
    ) {
        let bytes = bytes.min(16);
        let dst = self.shared_addresses(env, warp, at, dst, Space::SharedCta);
        let src = self.addresses(env, warp, at, src, Space::Global);
        let mut amount = [0u8; 32];
        let mut good = 0u32;
        if env.options.count {
            self.sites.copied(at.op, u64::from(at.lanes.count_ones()) * bytes as u64, 0, 0);
            self.sites.global(at.op, &src, at.lanes, index(bytes), false);
        }
        for lane in bits(at.lanes) {
            let i = lane as usize;
            let wanted = read.map_or(bytes, |read| usize::try_from(read[i]).unwrap_or(bytes).min(bytes));
            let wanted = if ignore >> lane & 1 == 1 { 0 } else { wanted };
            amount[i] = u8::try_from(wanted).unwrap_or(16);
            let Some((block, offset)) =
                self.shared_place(env, warp, at, Space::SharedCta, lane, dst[i], bytes, "writes")
            else {
                continue;
            };
            if wanted > 0 {
                self.check_alignment(env, warp, at, lane, src[i], bytes, "global");
                if env.memory.find(src[i], wanted, warp.hint).is_none() {
                    self.out_of_bounds_global(env, warp, at, lane, src[i], wanted, "reads");
                    continue;
                }
            }
            good |= 1 << lane;
            if env.options.check {
                let group = warp.cp_async[i].committed + 1;
                let agent = self.stream_agent(at.block, warp.index, lane, Stream::CpAsync, env);
                let from = offset as usize;
                let access = Checked {
                    epoch: Epoch { agent, clock: group },
                    issuer: self.agent(at.block, warp.index, lane, env),
                    know: warp.clock.view(lane),
                    pc: at.op,
                    kind: AccessKind::Write,
                    strong: None,
                    proxy: Proxy::Generic,
                };
                let conflict = self.blocks[block]
                    .shadow
                    .as_mut()
                    .and_then(|shadow| shadow.access(from..from + bytes, &access));
                if let Some(conflict) = conflict {
                    self.conflict_shared(env, &conflict, block, Where::thread(at, warp, lane));
                }
                if wanted > 0 {
                    let epoch = Epoch { agent, clock: group };
                    self.log_ranges(
                        env,
                        warp,
                        at,
                        lane,
                        AccessKind::Read,
                        Proxy::Generic,
                        epoch,
                        vec![(src[i], index(wanted))],
                        None,
                    );
                }
            }
            warp.cp_async[i].open += 1;
        }
        // Lanes may be in different groups; they mostly are not.
        let mut rest = good;
        while rest != 0 {
            let group = warp.cp_async[rest.trailing_zeros() as usize].committed + 1;
            let lanes = bits(rest)
                .filter(|&lane| warp.cp_async[lane as usize].committed + 1 == group)
                .fold(0, |m, l| m | 1 << l);
            rest &= !lanes;
            let (dst, src) = (Box::new(dst), Box::new(src));
            self.start(Work::CpAsync {
                block: at.block,
                warp: warp.index,
                lanes,
                group,
                dst,
                src,
                bytes,
                read: amount,
            });
        }
    }

    pub(crate) fn cp_async_wait(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        pending: u32,
        all: bool,
    ) -> Flow {
        let wanted = |groups: super::warp::Groups| {
            if all { groups.committed + 1 } else { groups.committed.saturating_sub(pending) }
        };
        let busy = self.asyncs.iter().any(|work| match &work.work {
            Work::CpAsync { block, warp: w, lanes, group, .. } => {
                *block == at.block
                    && *w == warp.index
                    && bits(lanes & at.lanes).any(|lane| *group <= wanted(warp.cp_async[lane as usize]))
            }
            _ => false,
        });
        if busy {
            return Flow::Wait(Wait::CpAsync { pending, all });
        }
        if env.options.check {
            let slot = self.slot(self.blocks[at.block].rank, warp.index, Stream::CpAsync, env);
            for lane in bits(at.lanes) {
                let clock = wanted(warp.cp_async[lane as usize]);
                warp.clock.learn(1 << lane, slot, 1 << lane, clock, false);
            }
        }
        Flow::Next
    }

    pub(crate) fn cp_async_arrive(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        address: Address,
        space: Space,
        noinc: bool,
    ) {
        let addresses = self.shared_addresses(env, warp, at, address, space);
        for lane in bits(at.lanes) {
            let Some((block, offset)) = self.shared_place(
                env,
                warp,
                at,
                Space::SharedCta,
                lane,
                addresses[lane as usize],
                8,
                "uses the mbarrier in",
            ) else {
                continue;
            };
            if !self.live_mbarrier(env, warp, at, lane, block, offset) {
                continue;
            }
            if !noinc {
                self.one_more(block, offset);
            }
            let know = env.options.check.then(|| {
                let slot = self.slot(self.blocks[at.block].rank, warp.index, Stream::CpAsync, env);
                let mut know = Knowledge::new(self.id);
                know.learn(slot, 1 << lane, warp.cp_async[lane as usize].committed + 1, false);
                Arc::new(know)
            });
            self.start(Work::CpArrive {
                block: at.block,
                warp: warp.index,
                lane,
                mbarrier: (block, offset),
                know,
            });
        }
    }
}
