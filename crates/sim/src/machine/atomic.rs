//! `atom` and `red`.
//!
//! Atomics on shared memory happen at once. Those on global memory wait for the end of the round, when the clusters get their turn one
//! after the other: then their order is the same in every run.

use crate::check::{FindingKind, Kind as AccessKind};
use crate::memory::POISON;
use crate::number::{Combine, Lanes};
use crate::program::{Access, Kind, Src};
use tilewright_ptx::Type;

use super::access::{MOST, Spaces, low, number};
use super::cluster::{Cluster, Env, Stop, index};
use super::exec::{At, Flow, bits, set};
use super::report::Where;
use super::sync::{Place, shared_location};
use super::warp::{Wait, Warp};

impl Cluster {
    /// Executes an atomic; unless it is this cluster's turn, one that touches global memory waits for the end of the round.
    pub(crate) fn atomic(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        kind: &Kind,
        turn: bool,
    ) -> Result<Flow, Stop> {
        let Kind::Atomic { access, combine, dst, value, compare: compare_source } = kind else {
            return Ok(Flow::Next);
        };
        let addresses = self.addresses(env, warp, at, access.address, access.space);
        let spaces = Spaces::new(access.space, &addresses, at.lanes);
        if spaces.global != 0 && !turn {
            return Ok(Flow::Wait(Wait::Serial));
        }
        let element = access.ty.bits().div_ceil(8) as usize;
        let bytes = element * usize::from(access.count);
        let values: Vec<Lanes> = value.iter().map(|&src| self.lanes(env, warp, at, src)).collect();
        let compare = compare_source.map_or([0; 32], |src| self.lanes(env, warp, at, src));
        let wide = access.ty == Type::B128;
        let high = compare_source
            .and_then(|src| if let Src::Reg(low) = src { Some(Src::Reg(low + 1)) } else { None });
        let compare_high = high.filter(|_| wide).map_or([0; 32], |src| self.lanes(env, warp, at, src));
        let mut old = vec![[0u64; 32]; if wide { 2 } else { usize::from(access.count) }];
        if spaces.global != 0 {
            let at = At { lanes: spaces.global, ..at };
            if env.options.count {
                self.sites.global(at.op, &addresses, at.lanes, index(bytes), true);
            }
            for lane in bits(spaces.global) {
                let address = addresses[lane as usize];
                self.check_alignment(env, warp, at, lane, address, bytes, "global");
                let found = env.memory.find(address, bytes, warp.hint);
                let Some(found) = found.filter(|&found| !env.memory.get(found).constant) else {
                    self.out_of_bounds_global(env, warp, at, lane, address, bytes, "writes");
                    continue;
                };
                warp.hint = found;
                let mut buffer = [0; MOST];
                let place = &mut buffer[..bytes.min(MOST)];
                let written = self.overlay.read(env.memory, found, address, place);
                if env.options.check {
                    if !written {
                        self.uninitialised(env, warp, at, lane, "global", address, Some(found));
                    }
                    let at = At { lanes: 1 << lane, ..at };
                    self.log_global(env, warp, at, AccessKind::Atomic, access.strength, &addresses, bytes);
                }
                let before = number(place);
                let flushed = flush(access, *combine, place, lane, &values);
                let values = flushed.as_ref().unwrap_or(&values);
                let changed = update(
                    access,
                    *combine,
                    place,
                    lane,
                    values,
                    [compare[lane as usize], compare_high[lane as usize]],
                    &mut old,
                );
                if flushed.is_some() {
                    // The sum is flushed, what comes back is not.
                    place.copy_from_slice(&flushed_f32(number(place)).to_le_bytes()[..4]);
                    old[0][lane as usize] = before;
                }
                self.overlay.write(found, address, place);
                self.exchange(env, warp, at, lane, Place::Global(address), access.strength);
                match changed {
                    Some(changed) => self.progress += u64::from(changed),
                    None => return Err(self.no_combination(env, at, access)),
                }
            }
        }
        if spaces.shared != 0 {
            let offsets = spaces.shared_offsets(&addresses);
            let at = At { lanes: spaces.shared, ..at };
            if env.options.count {
                self.sites.shared(at.op, &offsets, at.lanes, index(bytes), true);
            }
            for lane in bits(spaces.shared) {
                let address = low(offsets[lane as usize]);
                let Some((block, offset)) =
                    self.shared_place(env, warp, at, access.space, lane, address, bytes, "writes")
                else {
                    for old in &mut old {
                        old[lane as usize] = number(&[POISON; 8]);
                    }
                    continue;
                };
                let from = offset as usize;
                if env.options.check {
                    if let Some(shadow) = &self.blocks[block].shadow
                        && shadow.first_uninitialised(from..from + bytes).is_some()
                    {
                        self.uninitialised(env, warp, at, lane, "shared", u64::from(offset), None);
                    }
                    self.check_shared(
                        env,
                        warp,
                        at,
                        lane,
                        block,
                        offset,
                        bytes,
                        AccessKind::Atomic,
                        access.strength,
                        None,
                    );
                }
                let place = &mut self.blocks[block].shared[from..from + bytes];
                let changed = update(
                    access,
                    *combine,
                    place,
                    lane,
                    &values,
                    [compare[lane as usize], compare_high[lane as usize]],
                    &mut old,
                );
                self.exchange(env, warp, at, lane, shared_location(address), access.strength);
                match changed {
                    Some(changed) => self.progress += u64::from(changed),
                    None => return Err(self.no_combination(env, at, access)),
                }
            }
        }
        for lane in bits(spaces.local | spaces.param) {
            let message = "atomic on memory that is neither global nor shared".to_owned();
            self.report(env, FindingKind::OutOfBounds, Where::thread(at, warp, lane), None, message, None);
        }
        if let Some(dst) = dst {
            for (&dst, old) in dst.iter().zip(&old) {
                set(warp, at, dst, old);
            }
        }
        warp.polled = Some(at.op);
        Ok(Flow::Next)
    }

    fn no_combination(&self, env: &Env<'_>, at: At, access: &Access) -> Stop {
        let (function, pc) = env.op_at(at.op);
        let what = format!("this atomic on type {}", access.ty.text());
        crate::SimError::Unsupported { line: function.lines[pc], what }.into()
    }
}

/// `atom.add.f32` on global memory flushes subnormals, unlike that on shared memory: the values without them, and memory likewise.
fn flush(
    access: &Access,
    combine: Combine,
    place: &mut [u8],
    lane: u32,
    values: &[Lanes],
) -> Option<Vec<Lanes>> {
    if access.ty != Type::F32 || combine != Combine::Add || access.count != 1 {
        return None;
    }
    let old = flushed_f32(number(place));
    place.copy_from_slice(&old.to_le_bytes()[..4]);
    let mut values = values.to_vec();
    for value in &mut values {
        value[lane as usize] = flushed_f32(value[lane as usize]);
    }
    Some(values)
}

/// A single-precision number, zero if it is subnormal.
pub(crate) fn flushed_f32(bits: u64) -> u64 {
    if bits & 0x7F80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// Combines one lane's values into memory; whether that changed anything, or `None` if there is no such operation.
fn update(
    access: &Access,
    combine: Combine,
    place: &mut [u8],
    lane: u32,
    values: &[Lanes],
    compare: [u64; 2],
    old: &mut [Lanes],
) -> Option<bool> {
    if access.ty == Type::B128 {
        return update_wide(combine, place, lane, values, compare, old);
    }
    let element = access.ty.bits().div_ceil(8) as usize;
    let mut changed = false;
    for (i, slot) in place.chunks_exact_mut(element).enumerate() {
        let before = number(slot);
        let value = values.get(i).map_or(0, |values| values[lane as usize]);
        let after = combine.apply(access.ty, before, value, compare[0])?;
        if let Some(old) = old.get_mut(i) {
            old[lane as usize] = before;
        }
        changed |= before != after;
        slot.copy_from_slice(&after.to_le_bytes()[..element.min(8)]);
    }
    Some(changed)
}

/// The same for 128 bits, which are exchanged or compared as one.
fn update_wide(
    combine: Combine,
    place: &mut [u8],
    lane: u32,
    values: &[Lanes],
    compare: [u64; 2],
    old: &mut [Lanes],
) -> Option<bool> {
    let before = [number(&place[..8]), number(&place[8..16])];
    let value = [0, 1].map(|half: usize| values.get(half).map_or(0, |values| values[lane as usize]));
    let after = match combine {
        Combine::Exch => value,
        Combine::Cas if before == compare => value,
        Combine::Cas => before,
        _ => return None,
    };
    for half in 0..2 {
        old[half][lane as usize] = before[half];
        place[half * 8..half * 8 + 8].copy_from_slice(&after[half].to_le_bytes());
    }
    Some(before != after)
}
