//! Control flow: branches, calls, and the end of threads.

use crate::SimError;
use crate::program::{Callee, Kind, Op, Passed, Pc, Src};

use super::cluster::{Cluster, Env, Stop, op_of};
use super::exec::{At, Flow, bits, merge_all, set};
use super::warp::{Frame, Wait, Warp};

impl Cluster {
    pub(crate) fn branch_table(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        index: Src,
        targets: &[Pc],
    ) -> Result<Flow, Stop> {
        let values = self.lanes(env, warp, at, index);
        let next = warp.paths[at.path].pc + 1;
        let mut rest = at.lanes;
        let all = warp.paths[at.path].lanes;
        // Lanes whose guard is false go on behind the branch.
        let mut places: Vec<(u32, Pc)> = vec![(all & !at.lanes, next)];
        while rest != 0 {
            let value = values[rest.trailing_zeros() as usize];
            let same =
                (0..32).filter(|&lane| values[lane] == value).fold(0u32, |mask, lane| mask | 1 << lane)
                    & rest;
            rest &= !same;
            match usize::try_from(value).ok().and_then(|value| targets.get(value)) {
                Some(&target) => places.push((same, target)),
                None => {
                    self.invalid(
                        env,
                        warp,
                        at,
                        same,
                        &format!("brx.idx with index {value}, but the table has {} targets", targets.len()),
                    );
                    return Err(Stop::Dead);
                }
            }
        }
        for (lanes, pc) in places.into_iter().filter(|&(lanes, _)| lanes != 0) {
            warp.split(at.path, lanes, pc);
        }
        merge_all(warp);
        Ok(Flow::Choose)
    }

    pub(crate) fn call(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        callee: &Callee,
        arguments: &[Passed],
        results: &[Passed],
    ) -> Result<Flow, Stop> {
        let next = warp.paths[at.path].pc + 1;
        match callee {
            Callee::Direct(function) => {
                let path = detach(warp, at, next);
                self.enter(env, warp, At { path, ..at }, *function, next, arguments)?;
                let _ = results;
                Ok(Flow::Choose)
            }
            Callee::Indirect { address, arguments, .. } => {
                let values = self.lanes(env, warp, at, *address);
                let others = warp.paths[at.path].lanes & !at.lanes;
                let mut rest = at.lanes;
                while rest != 0 {
                    let value = values[rest.trailing_zeros() as usize];
                    let same = (0..32)
                        .filter(|&lane| values[lane] == value)
                        .fold(0u32, |mask, lane| mask | 1 << lane)
                        & rest;
                    rest &= !same;
                    let Some(function) = env.program.function_at(value) else {
                        self.invalid(
                            env,
                            warp,
                            at,
                            same,
                            &format!("call of address {value:#x}, which is no function"),
                        );
                        return Err(Stop::Dead);
                    };
                    let target = &env.program.functions[function as usize];
                    let passed: Vec<Passed> = arguments
                        .iter()
                        .zip(&target.params)
                        .map(|(&(from, bytes), param)| Passed::Bytes {
                            from,
                            to: param.offset,
                            bytes: bytes.min(param.bytes),
                        })
                        .collect();
                    let path = warp.split(at.path, same, warp.paths[at.path].pc);
                    self.enter(env, warp, At { path, lanes: same, ..at }, function, next, &passed)?;
                }
                if others != 0 {
                    warp.paths[at.path].pc = next;
                }
                Ok(Flow::Choose)
            }
            Callee::Printf { format, arguments, result } => {
                self.print(env, warp, at, *format, *arguments, *result);
                Ok(Flow::Next)
            }
            Callee::AssertFail(offsets) => {
                self.assert_failed(env, warp, at, offsets);
                Err(Stop::Dead)
            }
            Callee::Malloc(..) | Callee::Free(_) => Ok(Flow::Wait(Wait::Serial)),
        }
    }

    /// Starts an activation of a function for a path.
    fn enter(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        function: u32,
        back: Pc,
        arguments: &[Passed],
    ) -> Result<(), Stop> {
        let target = &env.program.functions[function as usize];
        if target.code.is_empty() || warp.paths[at.path].frames.len() > 512 {
            let (caller, pc) = env.op_at(at.op);
            let what = if target.code.is_empty() {
                format!("call of `{}`, which has no body", target.name)
            } else {
                "recursion deeper than 512 calls".to_owned()
            };
            return Err(SimError::Unsupported { line: caller.lines[pc], what }.into());
        }
        let (registers, predicates) = warp.tops(|function| {
            let function = &env.program.functions[function as usize];
            (function.registers, function.predicates)
        });
        let local = warp.paths[at.path].frames.last().map_or(0, |frame| frame.top).next_multiple_of(16);
        let top = local.saturating_add(target.frame_bytes);
        let room = (registers + target.registers) as usize;
        if warp.registers.len() < room {
            warp.registers.resize(room, [0; 32]);
        }
        let room = (predicates + target.predicates) as usize;
        if warp.predicates.len() < room {
            warp.predicates.resize(room, 0);
        }
        self.pass(env, warp, at, arguments, at.frame, local, registers);
        let path = &mut warp.paths[at.path];
        path.frames.push(Frame { function, registers, predicates, local, top, back });
        path.pc = 0;
        Ok(())
    }

    /// Copies arguments or results between frames.
    #[allow(clippy::too_many_arguments, reason = "two frames and what goes between them")]
    fn pass(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        passed: &[Passed],
        from_frame: u32,
        to_frame: u32,
        to_registers: u32,
    ) {
        for item in passed {
            match *item {
                Passed::Bytes { from, to, bytes } => {
                    for lane in bits(at.lanes) {
                        let mut buffer = vec![0; bytes as usize];
                        self.read_local(warp, lane, from_frame + from, &mut buffer);
                        self.write_local(warp, lane, to_frame + to, &buffer);
                    }
                }
                Passed::Register { from, to } => {
                    let value = self.lanes(env, warp, at, from);
                    set(warp, At { registers: to_registers, ..at }, to, &value);
                }
            }
        }
    }

    /// `ret` or `exit` of some lanes.
    pub(crate) fn leave(&mut self, env: &Env<'_>, warp: &mut Warp, at: At, exit: bool) {
        let next = warp.paths[at.path].pc + 1;
        let path = detach(warp, at, next);
        if exit {
            self.exit(env, at.block, warp, path);
        } else {
            self.exit_or_return(env, at.block, warp, path, at.lanes);
        }
    }

    /// Ends an activation: back to the caller, or the end of the threads.
    pub(crate) fn exit_or_return(
        &mut self,
        env: &Env<'_>,
        block: usize,
        warp: &mut Warp,
        path: usize,
        lanes: u32,
    ) {
        if warp.paths[path].frames.len() <= 1 {
            self.exit(env, block, warp, path);
            return;
        }
        let Some(callee) = warp.paths[path].frames.pop() else { return };
        warp.paths[path].pc = callee.back;
        let Some(caller) = warp.paths[path].frames.last().cloned() else { return };
        let function = &env.program.functions[caller.function as usize];
        let call = op_of(function, callee.back.wrapping_sub(1));
        if let Some(Op { kind: Kind::Call { callee: target, results, .. }, .. }) = call {
            let at = At {
                block,
                path,
                lanes,
                op: env.op_id(caller.function, callee.back.wrapping_sub(1)),
                registers: callee.registers,
                predicates: callee.predicates,
                frame: callee.local,
            };
            match target {
                Callee::Indirect { results, .. } => {
                    let returns = &env.program.functions[callee.function as usize].returns;
                    let passed: Vec<Passed> = results
                        .iter()
                        .zip(returns)
                        .map(|(&(to, bytes), value)| Passed::Bytes {
                            from: value.offset,
                            to,
                            bytes: bytes.min(value.bytes),
                        })
                        .collect();
                    self.pass(env, warp, at, &passed, callee.local, caller.local, caller.registers);
                }
                _ => self.pass(env, warp, at, results, callee.local, caller.local, caller.registers),
            }
        }
        merge_all(warp);
    }

    /// Ends threads.
    fn exit(&mut self, env: &Env<'_>, block: usize, warp: &mut Warp, path: usize) {
        let lanes = warp.paths[path].lanes;
        self.before_exit(env, block, warp, path);
        warp.live &= !lanes;
        warp.paths.swap_remove(path);
        self.progress += 1;
        let state = &mut self.blocks[block];
        state.live_threads -= lanes.count_ones();
        self.after_exit(env, block, warp);
    }
}

/// Takes the lanes that execute an op out of their path; those whose guard is false go on at `next`.
fn detach(warp: &mut Warp, at: At, next: Pc) -> usize {
    let pc = warp.paths[at.path].pc;
    let path = warp.split(at.path, at.lanes, pc);
    if path != at.path {
        warp.paths[at.path].pc = next;
    }
    path
}

pub(crate) fn branch(warp: &mut Warp, at: At, target: Pc) -> Flow {
    let next = warp.paths[at.path].pc + 1;
    let taken = warp.split(at.path, at.lanes, target);
    if taken != at.path {
        warp.paths[at.path].pc = next;
    }
    if warp.paths.len() > 1 {
        merge_all(warp);
    }
    Flow::Choose
}
