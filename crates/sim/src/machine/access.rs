//! Loads and stores of threads: every space, with the checks of one access.

use smallvec::SmallVec;
use tilewright_ptx::Type;

use crate::check::{Access as Checked, Epoch, FindingKind, Kind as AccessKind, Proxy, Scope};
use crate::memory::{POISON, window};
use crate::number::Lanes;
use crate::program::{Access, Order, Space, Src, Strength};

use super::cluster::{Cluster, Env, Stop, index};
use super::exec::{At, Flow, bits, set};
use super::report::Where;
use super::sync::{Addresses, Logged};
use super::warp::Warp;

/// Most bytes that one lane moves with one instruction.
pub(crate) const MOST: usize = 32;

/// The scope of an access for the checker; weak ones have none.
pub(crate) fn strong(strength: Strength) -> Option<Scope> {
    (strength.order != Order::Weak).then_some(strength.scope)
}

impl Cluster {
    /// `ld`
    pub(crate) fn load(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        dst: &SmallVec<[Option<u32>; 4]>,
        register_bits: u8,
    ) -> Result<Flow, Stop> {
        let element = access.ty.bits().div_ceil(8) as usize;
        let bytes = element * usize::from(access.count);
        let addresses = self.addresses(env, warp, at, access.address, access.space);
        let mut data = [[0u8; MOST]; 32];
        self.gather(env, warp, at, access, &addresses, bytes.min(MOST), &mut data);
        let signed = matches!(access.ty, Type::S8 | Type::S16 | Type::S32);
        for (i, &dst) in dst.iter().enumerate() {
            let Some(dst) = dst else { continue };
            let from = i * element;
            let mut value: Lanes = std::array::from_fn(|lane| number(&data[lane][from..from + element]));
            if signed {
                let shift = 64 - access.ty.bits();
                let width = 64 - u32::from(register_bits);
                for lane in &mut value {
                    let extended = (*lane << shift).cast_signed() >> shift;
                    *lane = extended.cast_unsigned() << width >> width;
                }
            }
            set(warp, at, dst, &value);
        }
        if strong(access.strength).is_some() {
            self.observe(env, warp, at, access, &addresses);
            warp.polled = Some(at.op);
        }
        Ok(Flow::Next)
    }

    /// Reads the bytes of all lanes, with checks and counts.
    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    pub(crate) fn gather(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        bytes: usize,
        data: &mut [[u8; MOST]; 32],
    ) {
        let spaces = Spaces::new(access.space, addresses, at.lanes);
        if spaces.global != 0 {
            self.gather_global(env, warp, At { lanes: spaces.global, ..at }, access, addresses, bytes, data);
        }
        if spaces.shared != 0 {
            let offsets = spaces.shared_offsets(addresses);
            self.gather_shared(env, warp, At { lanes: spaces.shared, ..at }, access, &offsets, bytes, data);
        }
        for lane in bits(spaces.local) {
            let offset = spaces.small(addresses[lane as usize]);
            let buffer = &mut data[lane as usize][..bytes];
            self.check_alignment(env, warp, at, lane, offset, bytes, "local");
            if env.options.check && !self.local_inside(env, warp, at, offset, bytes) {
                self.out_of_bounds_local(env, warp, at, lane, offset, bytes);
            }
            let written = self.read_local(warp, lane, u32::try_from(offset).unwrap_or(u32::MAX), buffer);
            if !written && env.options.check {
                self.uninitialised(env, warp, at, lane, "local", offset, None);
            }
        }
        for lane in bits(spaces.param) {
            let offset = spaces.small(addresses[lane as usize]);
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            match from.checked_add(bytes).and_then(|to| env.params.get(from..to)) {
                Some(params) => data[lane as usize][..bytes].copy_from_slice(params),
                None => {
                    let message = format!("reads {bytes} bytes at offset {offset} of the parameters, which have {}", env.params.len());
                    self.report(env, FindingKind::OutOfBounds, Where::thread(at, warp, lane), None, message, None);
                }
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    fn gather_global(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        bytes: usize,
        data: &mut [[u8; MOST]; 32],
    ) {
        if env.options.count {
            self.sites.global(at.op, addresses, at.lanes, index(bytes), false);
        }
        let mut hint = warp.hint;
        let mut good = at.lanes;
        for lane in bits(at.lanes) {
            let address = addresses[lane as usize];
            if address % bytes.next_power_of_two() as u64 != 0 {
                self.check_alignment(env, warp, at, lane, address, bytes, "global");
            }
            let buffer = &mut data[lane as usize][..bytes];
            let Some(found) = env.memory.find(address, bytes, hint) else {
                buffer.fill(POISON);
                good &= !(1 << lane);
                self.out_of_bounds_global(env, warp, at, lane, address, bytes, "reads");
                continue;
            };
            hint = found;
            let written = self.overlay.read(env.memory, found, address, buffer);
            if !written && env.options.check {
                self.uninitialised(env, warp, at, lane, "global", address, Some(found));
            }
        }
        warp.hint = hint;
        if env.options.check && access.space != Space::Const && good != 0 {
            self.log_global(env, warp, At { lanes: good, ..at }, AccessKind::Read, access.strength, addresses, bytes);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    fn gather_shared(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        offsets: &Lanes,
        bytes: usize,
        data: &mut [[u8; MOST]; 32],
    ) {
        if env.options.count {
            self.sites.shared(at.op, offsets, at.lanes, index(bytes), false);
        }
        for lane in bits(at.lanes) {
            let address = low(offsets[lane as usize]);
            let Some((block, offset)) = self.shared_place(env, warp, at, access.space, lane, address, bytes, "reads") else {
                data[lane as usize][..bytes].fill(POISON);
                continue;
            };
            let from = offset as usize;
            data[lane as usize][..bytes].copy_from_slice(&self.blocks[block].shared[from..from + bytes]);
            if env.options.check {
                if let Some(shadow) = &self.blocks[block].shadow
                    && shadow.first_uninitialised(from..from + bytes).is_some()
                {
                    self.uninitialised(env, warp, at, lane, "shared", u64::from(offset), None);
                }
                let kind = AccessKind::Read;
                self.check_shared(env, warp, at, lane, block, offset, bytes, kind, access.strength, None);
            }
        }
    }

    /// `st`
    pub(crate) fn store(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        src: &[Src],
    ) -> Result<Flow, Stop> {
        let element = access.ty.bits().div_ceil(8) as usize;
        let bytes = (element * usize::from(access.count)).min(MOST);
        let addresses = self.addresses(env, warp, at, access.address, access.space);
        let mut data = [[0u8; MOST]; 32];
        for (i, &src) in src.iter().enumerate() {
            let mut spare = [0; 32];
            let value = self.get(env, warp, at, src, &mut spare);
            for lane in 0..32 {
                let from = i * element;
                if from + element <= MOST {
                    data[lane][from..from + element].copy_from_slice(&value[lane].to_le_bytes()[..element.min(8)]);
                }
            }
        }
        self.scatter(env, warp, at, access, &addresses, bytes, &data);
        if strong(access.strength).is_some() {
            self.publish(env, warp, at, access, &addresses);
        }
        Ok(Flow::Next)
    }

    /// Writes the bytes of all lanes, with checks and counts.
    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    pub(crate) fn scatter(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        bytes: usize,
        data: &[[u8; MOST]; 32],
    ) {
        let spaces = Spaces::new(access.space, addresses, at.lanes);
        if spaces.global != 0 {
            self.scatter_global(env, warp, At { lanes: spaces.global, ..at }, access, addresses, bytes, data);
        }
        if spaces.shared != 0 {
            let offsets = spaces.shared_offsets(addresses);
            self.scatter_shared(env, warp, At { lanes: spaces.shared, ..at }, access, &offsets, bytes, data);
        }
        for lane in bits(spaces.local) {
            let offset = spaces.small(addresses[lane as usize]);
            self.check_alignment(env, warp, at, lane, offset, bytes, "local");
            if !self.local_inside(env, warp, at, offset, bytes) {
                self.out_of_bounds_local(env, warp, at, lane, offset, bytes);
                continue;
            }
            self.write_local(warp, lane, u32::try_from(offset).unwrap_or(u32::MAX), &data[lane as usize][..bytes]);
        }
        for lane in bits(spaces.param) {
            let message = "writes to the parameters of the kernel, which are constant".to_owned();
            self.report(env, FindingKind::OutOfBounds, Where::thread(at, warp, lane), None, message, None);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    fn scatter_global(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        bytes: usize,
        data: &[[u8; MOST]; 32],
    ) {
        if env.options.count {
            self.sites.global(at.op, addresses, at.lanes, index(bytes), true);
        }
        let mut hint = warp.hint;
        let mut good = at.lanes;
        for lane in bits(at.lanes) {
            let address = addresses[lane as usize];
            if address % bytes.next_power_of_two() as u64 != 0 {
                self.check_alignment(env, warp, at, lane, address, bytes, "global");
            }
            match env.memory.find(address, bytes, hint) {
                Some(found) if !env.memory.get(found).constant => {
                    hint = found;
                    self.overlay.write(found, address, &data[lane as usize][..bytes]);
                }
                _ => {
                    good &= !(1 << lane);
                    self.out_of_bounds_global(env, warp, at, lane, address, bytes, "writes");
                }
            }
        }
        warp.hint = hint;
        if env.options.check && good != 0 {
            // Lanes that store the same value to the same place do no harm.
            let distinct = distinct_stores(good, addresses, bytes, data);
            self.log_global(env, warp, At { lanes: distinct, ..at }, AccessKind::Write, access.strength, addresses, bytes);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    fn scatter_shared(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        offsets: &Lanes,
        bytes: usize,
        data: &[[u8; MOST]; 32],
    ) {
        if env.options.count {
            self.sites.shared(at.op, offsets, at.lanes, index(bytes), true);
        }
        for lane in bits(at.lanes) {
            let address = low(offsets[lane as usize]);
            let Some((block, offset)) = self.shared_place(env, warp, at, access.space, lane, address, bytes, "writes") else {
                continue;
            };
            let from = offset as usize;
            let new = &data[lane as usize][..bytes];
            if env.options.check {
                let same = self.blocks[block].shared[from..from + bytes] == *new;
                let kind = AccessKind::Write;
                self.check_shared(env, warp, at, lane, block, offset, bytes, kind, access.strength, Some(same));
            }
            self.blocks[block].shared[from..from + bytes].copy_from_slice(new);
        }
    }

    /// Block and offset of an access to shared memory; `None` after a report.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn shared_place(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        space: Space,
        lane: u32,
        address: u32,
        bytes: usize,
        action: &str,
    ) -> Option<(usize, u32)> {
        let rank = address >> window::BLOCK_SHIFT;
        let offset = address & ((1 << window::BLOCK_SHIFT) - 1);
        let own = self.blocks[at.block].rank;
        let foreign = rank != own && space == Space::SharedCta;
        if foreign || rank as usize >= self.blocks.len() || env.shared.find(offset, index(bytes)).is_none() {
            self.out_of_bounds_shared(env, warp, at, lane, address, bytes, action);
            return None;
        }
        if address as usize % bytes.next_power_of_two().min(16) != 0 {
            self.check_alignment(env, warp, at, lane, u64::from(address), bytes, "shared");
        }
        if rank != own {
            self.visit(env, warp, at, lane, rank as usize, action);
        }
        Some((rank as usize, offset))
    }

    /// Checks and records one access of a thread to shared memory. `same` tells that a store does not change anything.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn check_shared(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        lane: u32,
        block: usize,
        offset: u32,
        bytes: usize,
        kind: AccessKind,
        strength: Strength,
        same: Option<bool>,
    ) {
        let agent = self.agent(at.block, warp.index, lane, env);
        let from = offset as usize;
        let access = Checked {
            epoch: Epoch { agent, clock: warp.clock.clock() },
            issuer: agent,
            know: warp.clock.view(lane),
            pc: at.op,
            kind,
            strong: strong(strength),
            proxy: Proxy::Generic,
        };
        let Some(shadow) = &mut self.blocks[block].shadow else { return };
        if let Some(conflict) = shadow.access(from..from + bytes, &access) {
            let harmless = same == Some(true) && conflict.hazard == crate::check::Hazard::WriteAfterWrite;
            if !harmless {
                self.conflict_shared(env, &conflict, block, Where::thread(at, warp, lane), kind, bytes);
            }
        }
    }

    /// Notes an access to global memory for the end of the round.
    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    pub(crate) fn log_global(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        kind: AccessKind,
        strength: Strength,
        addresses: &Lanes,
        bytes: usize,
    ) {
        let agent = self.agent(at.block, warp.index, 0, env);
        self.log.push(Logged {
            op: at.op,
            block: at.block,
            warp: warp.index,
            lanes: at.lanes,
            addresses: Addresses::new(addresses, at.lanes),
            bytes: index(bytes),
            kind,
            strong: strong(strength),
            proxy: Proxy::Generic,
            epoch: Epoch { agent, clock: warp.clock.clock() },
            issuer: agent,
            views: warp.clock.views().map(|(lanes, know)| (lanes, know.clone())).collect(),
        });
    }

    /// Copies bytes out of a lane's local memory; whether any of them had been written. Beyond its end they are poison.
    pub(crate) fn read_local(&self, warp: &Warp, lane: u32, offset: u32, out: &mut [u8]) -> bool {
        out.fill(POISON);
        let Some((bytes, written)) = warp.local.get(lane as usize) else { return false };
        let from = offset as usize;
        let len = out.len().min(bytes.len().saturating_sub(from));
        if len == 0 {
            return false;
        }
        out[..len].copy_from_slice(&bytes[from..from + len]);
        written[from..from + len].contains(&true)
    }

    /// Writes bytes into a lane's local memory, which grows as needed.
    pub(crate) fn write_local(&self, warp: &mut Warp, lane: u32, offset: u32, data: &[u8]) {
        if warp.local.is_empty() {
            warp.local = vec![(Vec::new(), Vec::new()); 32];
        }
        let from = offset as usize;
        let to = from + data.len();
        let (bytes, written) = &mut warp.local[lane as usize];
        if bytes.len() < to {
            bytes.resize(to.next_multiple_of(64), POISON);
            written.resize(bytes.len(), false);
        }
        bytes[from..to].copy_from_slice(data);
        written[from..to].fill(true);
    }

    /// Whether an access lies in the frames of the path.
    fn local_inside(&self, env: &Env<'_>, warp: &Warp, at: At, offset: u64, bytes: usize) -> bool {
        let Some(frame) = warp.paths[at.path].frames.iter().rfind(|frame| u64::from(frame.local) <= offset) else {
            return false;
        };
        let end = offset.saturating_add(bytes as u64);
        if end > u64::from(frame.top) {
            return false;
        }
        let function = &env.program.functions[frame.function as usize];
        let inner = offset - u64::from(frame.local);
        // Behind the variables of the function is what `alloca` gave.
        inner >= u64::from(function.frame_bytes)
            || function.locals.iter().any(|variable| {
                inner >= u64::from(variable.offset)
                    && inner + bytes as u64 <= u64::from(variable.offset) + u64::from(variable.bytes)
            })
    }
}

/// Which lanes of an access go where.
pub(crate) struct Spaces {
    generic: bool,
    pub(crate) global: u32,
    pub(crate) shared: u32,
    pub(crate) local: u32,
    pub(crate) param: u32,
}

impl Spaces {
    pub(crate) fn new(space: Space, addresses: &Lanes, lanes: u32) -> Spaces {
        let mut spaces = Spaces { generic: space == Space::Generic, global: 0, shared: 0, local: 0, param: 0 };
        match space {
            Space::Global | Space::Const => spaces.global = lanes,
            Space::SharedCta | Space::SharedCluster => spaces.shared = lanes,
            Space::Local => spaces.local = lanes,
            Space::Param => spaces.param = lanes,
            Space::Generic => {
                for lane in bits(lanes) {
                    let bit = 1 << lane;
                    match window::resolve(addresses[lane as usize]).0 {
                        Space::SharedCluster | Space::SharedCta => spaces.shared |= bit,
                        Space::Local => spaces.local |= bit,
                        Space::Param => spaces.param |= bit,
                        Space::Global | Space::Const | Space::Generic => spaces.global |= bit,
                    }
                }
            }
        }
        spaces
    }

    /// Addresses in the shared window.
    pub(crate) fn shared_offsets(&self, addresses: &Lanes) -> Lanes {
        if self.generic { addresses.map(|address| address.wrapping_sub(window::SHARED)) } else { *addresses }
    }

    /// An address in the local or parameter window.
    pub(crate) fn small(&self, address: u64) -> u64 {
        if self.generic { window::resolve(address).1 } else { address }
    }
}

/// Lanes without those that store the same bytes to the same address as an earlier one.
fn distinct_stores(lanes: u32, addresses: &Lanes, bytes: usize, data: &[[u8; MOST]; 32]) -> u32 {
    let mut distinct = lanes;
    let mut last: Option<u32> = None;
    for lane in bits(lanes) {
        let previous = last.filter(|&previous| addresses[previous as usize] == addresses[lane as usize]);
        if previous.is_some_and(|previous| data[previous as usize][..bytes] == data[lane as usize][..bytes]) {
            distinct &= !(1 << lane);
        } else {
            last = Some(lane);
        }
    }
    distinct
}

/// Little-endian bytes as a number.
#[inline]
pub(crate) fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len().min(8)].copy_from_slice(&bytes[..bytes.len().min(8)]);
    u64::from_le_bytes(word)
}

/// The low half of an address in the shared window.
#[allow(clippy::cast_possible_truncation, reason = "addresses of the shared window have 32 bits")]
pub(crate) fn low(address: u64) -> u32 {
    address as u32
}
