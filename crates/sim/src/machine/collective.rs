//! Instructions that the lanes of a warp execute together: shuffles, votes, matches, reductions, `bar.warp.sync`.

use crate::check::FindingKind;
use crate::number::Lanes;
use crate::program::{Kind, Op, Pc, Shuffle, Vote};

use super::cluster::{Cluster, Env};
use super::exec::{At, Flow, bits, merge_all, predicate, set, set_predicate};
use super::report::Where;
use super::warp::{Wait, Warp};

impl Cluster {
    /// Executes one when all lanes that take part have come.
    pub(crate) fn collective(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, kind: &Kind) -> Flow {
        let mask = match kind {
            Kind::Activemask { dst } => {
                set(warp, at, *dst, &[u64::from(at.lanes); 32]);
                return Flow::Next;
            }
            Kind::Shfl { mask, .. }
            | Kind::Vote { mask, .. }
            | Kind::Match { mask, .. }
            | Kind::Redux { mask, .. }
            | Kind::Elect { mask, .. }
            | Kind::WarpSync { mask } => self.lanes(env, warp, at, *mask),
            _ => return Flow::Next,
        };
        let first = at.lanes.trailing_zeros() as usize;
        let members = low_mask(mask[first]);
        if let Some(lane) = bits(at.lanes).find(|&lane| low_mask(mask[lane as usize]) >> lane & 1 == 0) {
            let message = format!(
                "executes it with the member mask {:#010x}, which does not contain its own lane {lane}",
                low_mask(mask[lane as usize])
            );
            self.report(
                env,
                FindingKind::DivergentAligned,
                Where::thread(at, warp, lane),
                None,
                message,
                None,
            );
        }
        // Lanes may name different groups, such as the halves of a warp: each group is on its own.
        let groups: Vec<u32> = {
            let mut rest = at.lanes;
            let mut groups = Vec::new();
            while rest != 0 {
                let value = low_mask(mask[rest.trailing_zeros() as usize]);
                let same = bits(rest)
                    .filter(|&lane| low_mask(mask[lane as usize]) == value)
                    .fold(0, |m, lane| m | 1 << lane);
                groups.push(same);
                rest &= !same;
            }
            groups
        };
        if let Kind::WarpSync { .. } = kind {
            return self.warp_sync(env, warp, at, members);
        }
        let missing = groups.iter().any(|&group| {
            let members = low_mask(mask[group.trailing_zeros() as usize]) & warp.live;
            members & !at.lanes != 0
        });
        if missing && !warp.paths[at.path].forced {
            return Flow::Wait(Wait::Converge { lanes: members, aligned: false });
        }
        warp.paths[at.path].forced = false;
        for group in groups {
            let members = low_mask(mask[group.trailing_zeros() as usize]) & at.lanes;
            self.together(env, warp, At { lanes: group, ..at }, kind, members);
        }
        Flow::Next
    }

    fn together(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, kind: &Kind, members: u32) {
        match kind {
            Kind::Shfl { mode, dst, p, a, b, c, .. } => {
                let (a, b, c) = (
                    self.lanes(env, warp, at, *a),
                    self.lanes(env, warp, at, *b),
                    self.lanes(env, warp, at, *c),
                );
                let (value, inside, sources) = shuffle(*mode, &a, &b, &c);
                // A lane that does not take part has no value to give.
                if let Some(lane) = bits(at.lanes)
                    .find(|&lane| inside >> lane & 1 == 1 && members >> sources[lane as usize] & 1 == 0)
                {
                    let message = format!(
                        "shuffles from lane {}, which does not execute the instruction",
                        sources[lane as usize]
                    );
                    self.report(
                        env,
                        FindingKind::DivergentAligned,
                        Where::thread(at, warp, lane),
                        None,
                        message,
                        None,
                    );
                }
                set(warp, at, *dst, &value);
                set_predicate(warp, at, *p, inside);
            }
            Kind::Vote { vote, a, .. } => {
                let votes = predicate(warp, at, *a) & members;
                let all = |yes: bool| if yes { u32::MAX } else { 0 };
                match *vote {
                    Vote::All(dst) => set_predicate(warp, at, Some(dst), all(votes == members)),
                    Vote::Any(dst) => set_predicate(warp, at, Some(dst), all(votes != 0)),
                    Vote::Uni(dst) => set_predicate(warp, at, Some(dst), all(votes == 0 || votes == members)),
                    Vote::Ballot(dst) => set(warp, at, dst, &[u64::from(votes); 32]),
                }
            }
            Kind::Match { all, dst, p, a, bits: width, .. } => {
                let mut value = self.lanes(env, warp, at, *a);
                if *width < 64 {
                    value = value.map(|lane| lane & ((1 << width) - 1));
                }
                let same: Lanes = std::array::from_fn(|lane| {
                    u64::from(
                        bits(members)
                            .filter(|&other| value[other as usize] == value[lane])
                            .fold(0u32, |m, l| m | 1 << l),
                    )
                });
                if *all {
                    let first = value[members.trailing_zeros().min(31) as usize];
                    let agree = bits(members).all(|lane| value[lane as usize] == first);
                    set(warp, at, *dst, &[if agree { u64::from(members) } else { 0 }; 32]);
                    set_predicate(warp, at, *p, if agree { u32::MAX } else { 0 });
                } else {
                    set(warp, at, *dst, &same);
                }
            }
            Kind::Redux { combine, ty, dst, a, .. } => {
                let value = self.lanes(env, warp, at, *a);
                let mut lanes = bits(members);
                let Some(first) = lanes.next() else { return };
                let total = lanes.fold(value[first as usize], |total, lane| {
                    combine.apply(*ty, total, value[lane as usize], 0).unwrap_or(total)
                });
                set(warp, at, *dst, &[total; 32]);
            }
            Kind::Elect { dst, p, .. } => {
                let leader = members.trailing_zeros().min(31);
                if let Some(dst) = dst {
                    set(warp, at, *dst, &[u64::from(leader); 32]);
                }
                set_predicate(warp, at, Some(*p), 1 << leader);
            }
            _ => {}
        }
    }

    /// `bar.warp.sync`: lanes may come from different places.
    fn warp_sync(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, members: u32) -> Flow {
        let wait = Wait::WarpSync { lanes: members };
        let waiting =
            warp.paths.iter().filter(|path| path.wait == wait).fold(0, |lanes, path| lanes | path.lanes);
        let here = waiting | at.lanes;
        if members & warp.live & !here != 0 {
            return Flow::Wait(wait);
        }
        if env.options.check {
            warp.clock.sync(here & members);
        }
        for path in warp.paths.iter_mut().filter(|path| path.wait == wait) {
            path.wait = Wait::None;
            path.pc += 1;
        }
        // From here they go on together, unless they came from different instructions.
        warp.paths[at.path].pc += 1;
        merge_all(warp);
        Flow::Choose
    }

    /// After lanes have exited: those that wait for them try again.
    pub(crate) fn retry_collectives(&mut self, env: &Env<'_>, warp: &mut Warp) {
        for path in &mut warp.paths {
            if matches!(path.wait, Wait::Converge { .. }) {
                path.wait = Wait::None;
            }
        }
        let waits: Vec<Wait> = warp.paths.iter().map(|path| path.wait.clone()).collect();
        for wait in waits {
            let Wait::WarpSync { lanes } = wait else { continue };
            let here =
                warp.paths.iter().filter(|path| path.wait == wait).fold(0, |lanes, path| lanes | path.lanes);
            if here != 0 && lanes & warp.live & !here == 0 {
                if env.options.check {
                    warp.clock.sync(here);
                }
                for path in warp.paths.iter_mut().filter(|path| path.wait == wait) {
                    path.wait = Wait::None;
                    path.pc += 1;
                }
            }
        }
        merge_all(warp);
    }

    /// Whether an `.aligned` instruction has the whole warp together; otherwise how to wait for it.
    pub(crate) fn gathered(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, aligned: bool) -> Option<Flow> {
        if aligned && at.lanes != warp.live && !warp.paths[at.path].forced {
            self.report_skipped(env, warp, at);
            return Some(Flow::Wait(Wait::Converge { lanes: warp.live, aligned: true }));
        }
        warp.paths[at.path].forced = false;
        None
    }

    /// Reports lanes that have gone round an `.aligned` instruction: they stand where this path will come, and cannot come back. Lanes
    /// that are about to exit are left alone: to return early is common, and the hardware does not wait for them.
    fn report_skipped(&mut self, env: &Env<'_>, warp: &Warp, at: At) {
        let here = &warp.paths[at.path];
        let Some(frame) = here.frames.last() else { return };
        let code = &env.program.functions[frame.function as usize].code;
        let gone = |pc: Pc| {
            let leaves = code
                .get(pc as usize)
                .is_none_or(|op| op.guard.is_none() && matches!(op.kind, Kind::Ret | Kind::Exit));
            !leaves && reaches(code, here.pc, pc) && !reaches(code, pc, here.pc)
        };
        let beside = here.lanes != at.lanes && gone(here.pc + 1);
        let elsewhere = warp.paths.iter().enumerate().find(|(i, other)| {
            *i != at.path && other.frames == here.frames && other.pc != here.pc && gone(other.pc)
        });
        if !beside && elsewhere.is_none() {
            return;
        }
        let missing = warp.live & !at.lanes;
        let second = elsewhere.map(|(_, other)| {
            let lane = other.lanes.trailing_zeros().min(31);
            Where::op(env.op_id(frame.function, other.pc), at.block, (warp.index, lane))
        });
        let lane = at.lanes.trailing_zeros().min(31);
        let message = format!(
            "lanes {:#010x} of the warp execute it without lanes {missing:#010x}, which have gone round it",
            at.lanes
        );
        self.report(env, FindingKind::DivergentAligned, Where::thread(at, warp, lane), second, message, None);
    }
}

/// Whether a path behind one op can come to another.
fn reaches(code: &[Op], from: Pc, to: Pc) -> bool {
    let mut seen = vec![false; code.len()];
    let mut next = vec![from];
    let mut first = true;
    while let Some(pc) = next.pop() {
        let Some(op) = code.get(pc as usize) else { continue };
        if pc == to && !first {
            return true;
        }
        if std::mem::replace(&mut seen[pc as usize], true) && !first {
            continue;
        }
        first = false;
        let falls = match &op.kind {
            Kind::Bra { target, .. } => {
                next.push(*target);
                op.guard.is_some()
            }
            Kind::Brx { targets, .. } => {
                next.extend(targets);
                op.guard.is_some()
            }
            Kind::Ret | Kind::Exit => op.guard.is_some(),
            _ => true,
        };
        if falls {
            next.push(pc + 1);
        }
    }
    false
}

/// The values, where the source lies inside the segment, and the source lanes (PTX ISA, `shfl.sync`).
fn shuffle(mode: Shuffle, a: &Lanes, b: &Lanes, c: &Lanes) -> (Lanes, u32, [u32; 32]) {
    let mut value = *a;
    let mut inside = 0;
    let mut sources = [0; 32];
    for lane in 0..32u32 {
        let (b, c) = (low_mask(b[lane as usize]) & 31, low_mask(c[lane as usize]));
        let (clamp, segment) = (c & 31, c >> 8 & 31);
        let most = (lane & segment) | (clamp & !segment);
        let least = lane & segment;
        let (source, ok) = match mode {
            Shuffle::Up => {
                let source = lane.wrapping_sub(b);
                (source, source.cast_signed() >= most.cast_signed())
            }
            Shuffle::Down => (lane + b, lane + b <= most),
            Shuffle::Bfly => (lane ^ b, lane ^ b <= most),
            Shuffle::Idx => {
                let source = least | (b & !segment);
                (source, source <= most)
            }
        };
        let source = if ok { source & 31 } else { lane };
        sources[lane as usize] = source;
        inside |= u32::from(ok) << lane;
        value[lane as usize] = a[source as usize] & u64::from(u32::MAX);
    }
    (value, inside, sources)
}

/// A 32-bit mask in a register.
#[allow(clippy::cast_possible_truncation, reason = "masks have 32 bits")]
fn low_mask(value: u64) -> u32 {
    value as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_follow_the_formulas_of_the_instruction_set() {
        let a: Lanes = std::array::from_fn(|lane| 100 + lane as u64);
        let all = |value: u64| [value; 32];
        // __shfl_up_sync(mask, a, 1): clamp 0, whole warp.
        let (value, inside, _) = shuffle(Shuffle::Up, &a, &all(1), &all(0));
        assert_eq!((value[0], value[1], value[31], inside), (100, 100, 130, !1));
        // __shfl_down_sync(mask, a, 4, 16): segments of 16, clamp 31.
        let (value, inside, _) = shuffle(Shuffle::Down, &a, &all(4), &all(0x101F));
        assert_eq!((value[0], value[11], value[12], value[16], value[28]), (104, 115, 112, 120, 128));
        assert_eq!(inside, 0x0FFF_0FFF);
        // __shfl_xor_sync
        let (value, inside, _) = shuffle(Shuffle::Bfly, &a, &all(16), &all(31));
        assert_eq!((value[0], value[16], inside), (116, 100, u32::MAX));
        // __shfl_sync(mask, a, 9, 8): lane 1 of each segment of 8.
        let (value, _, _) = shuffle(Shuffle::Idx, &a, &all(9), &all(0x181F));
        assert_eq!((value[0], value[8], value[31]), (101, 109, 125));
    }
}
