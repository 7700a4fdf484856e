//! Loads and stores of threads: every space, with the checks of one access.

use smallvec::{SmallVec, smallvec};
use tilewright_ptx::Type;

use crate::check::{
    Access as Checked, Conflict, Epoch, FindingKind, Hazard, Kind as AccessKind, Proxy, Scope,
};
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

/// The elements of an access, each in all lanes.
type Values = SmallVec<[Lanes; 4]>;

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
        let addresses = self.addresses(env, warp, at, access.address, access.space);
        if let [dst] = dst[..] {
            let mut value = [0; 32];
            self.gather(env, warp, at, access, &addresses, std::slice::from_mut(&mut value));
            loaded(warp, at, access.ty, dst, &mut value, register_bits);
        } else {
            let mut values: Values = smallvec![[0; 32]; usize::from(access.count)];
            self.gather(env, warp, at, access, &addresses, &mut values);
            for (value, &dst) in values.iter_mut().zip(dst) {
                loaded(warp, at, access.ty, dst, value, register_bits);
            }
        }
        if strong(access.strength).is_some() {
            self.observe(env, warp, at, access, &addresses);
            warp.polled = Some(at.op);
        }
        Ok(Flow::Next)
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
        let addresses = self.addresses(env, warp, at, access.address, access.space);
        if let [src] = *src {
            let value = self.lanes(env, warp, at, src);
            self.scatter(env, warp, at, access, &addresses, std::slice::from_ref(&value));
        } else {
            let values: Values = src.iter().map(|&src| self.lanes(env, warp, at, src)).collect();
            self.scatter(env, warp, at, access, &addresses, &values);
        }
        if strong(access.strength).is_some() {
            self.publish(env, warp, at, access, &addresses);
        }
        Ok(Flow::Next)
    }

    /// Reads the elements of all lanes, with checks and counts.
    pub(crate) fn gather(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        out: &mut [Lanes],
    ) {
        match access.ty.bits() {
            8 => self.gather_sized::<1>(env, warp, at, access, addresses, out),
            16 => self.gather_sized::<2>(env, warp, at, access, addresses, out),
            32 => self.gather_sized::<4>(env, warp, at, access, addresses, out),
            _ => self.gather_sized::<8>(env, warp, at, access, addresses, out),
        }
    }

    /// Writes the elements of all lanes, with checks and counts.
    pub(crate) fn scatter(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        values: &[Lanes],
    ) {
        match access.ty.bits() {
            8 => self.scatter_sized::<1>(env, warp, at, access, addresses, values),
            16 => self.scatter_sized::<2>(env, warp, at, access, addresses, values),
            32 => self.scatter_sized::<4>(env, warp, at, access, addresses, values),
            _ => self.scatter_sized::<8>(env, warp, at, access, addresses, values),
        }
    }

    fn gather_sized<const E: usize>(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        out: &mut [Lanes],
    ) {
        let bytes = E * out.len();
        let spaces = Spaces::new(access.space, addresses, at.lanes);
        if spaces.global != 0 {
            self.gather_global::<E>(env, warp, At { lanes: spaces.global, ..at }, access, addresses, out);
        }
        if spaces.shared != 0 {
            let offsets = spaces.shared_offsets(addresses);
            self.gather_shared::<E>(env, warp, At { lanes: spaces.shared, ..at }, access, &offsets, out);
        }
        for lane in bits(spaces.local) {
            let offset = spaces.small(addresses[lane as usize]);
            let mut buffer = [0; MOST];
            self.check_alignment(env, warp, at, lane, offset, bytes, "local");
            if env.options.check && !self.local_inside(env, warp, at, offset, bytes) {
                self.out_of_bounds_local(env, warp, at, lane, offset, bytes);
            }
            let place = &mut buffer[..bytes.min(MOST)];
            let written = self.read_local(warp, lane, u32::try_from(offset).unwrap_or(u32::MAX), place);
            unpack::<E>(out, lane, place);
            if !written && env.options.check {
                self.uninitialised(env, warp, at, lane, "local", offset, None);
            }
        }
        for lane in bits(spaces.param) {
            let offset = spaces.small(addresses[lane as usize]);
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            match from.checked_add(bytes).and_then(|to| env.params.get(from..to)) {
                Some(params) => unpack::<E>(out, lane, params),
                None => {
                    let message = format!(
                        "reads {bytes} bytes at offset {offset} of the parameters, which have {}",
                        env.params.len()
                    );
                    self.report(
                        env,
                        FindingKind::OutOfBounds,
                        Where::thread(at, warp, lane),
                        None,
                        message,
                        None,
                    );
                }
            }
        }
    }

    fn gather_global<const E: usize>(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        out: &mut [Lanes],
    ) {
        let bytes = E * out.len();
        if env.options.count {
            self.sites.global(at.op, addresses, at.lanes, index(bytes), false);
        }
        let unit = bytes.next_power_of_two() as u64 - 1;
        let mut hint = warp.hint;
        let mut good = at.lanes;
        for lane in bits(at.lanes) {
            let address = addresses[lane as usize];
            if address & unit != 0 {
                self.check_alignment(env, warp, at, lane, address, bytes, "global");
            }
            let Some(found) = env.memory.find(address, bytes, hint) else {
                unpack::<E>(out, lane, &[POISON; MOST][..bytes.min(MOST)]);
                good &= !(1 << lane);
                self.out_of_bounds_global(env, warp, at, lane, address, bytes, "reads");
                continue;
            };
            hint = found;
            let allocation = env.memory.get(found);
            if self.overlay.is_empty() && allocation.written.is_none() {
                let from = usize::try_from(address - allocation.address).unwrap_or(0);
                unpack::<E>(out, lane, &allocation.bytes[from..from + bytes]);
                continue;
            }
            let mut buffer = [0; MOST];
            let place = &mut buffer[..bytes.min(MOST)];
            let written = self.overlay.read(env.memory, found, address, place);
            unpack::<E>(out, lane, place);
            if !written && env.options.check {
                self.uninitialised(env, warp, at, lane, "global", address, Some(found));
            }
        }
        warp.hint = hint;
        if env.options.check && access.space != Space::Const && good != 0 {
            self.log_global(
                env,
                warp,
                At { lanes: good, ..at },
                AccessKind::Read,
                access.strength,
                addresses,
                bytes,
            );
        }
    }

    fn gather_shared<const E: usize>(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        offsets: &Lanes,
        out: &mut [Lanes],
    ) {
        let bytes = E * out.len();
        if env.options.count {
            self.sites.shared(at.op, offsets, at.lanes, index(bytes), false);
        }
        let (places, good) = self.own_places(env, at, offsets, bytes);
        let block = &self.blocks[at.block];
        for lane in bits(good) {
            let from = places[lane as usize] as usize;
            unpack::<E>(out, lane, &block.shared[from..from + bytes]);
        }
        if env.options.check && good != 0 {
            self.check_own(
                env,
                warp,
                At { lanes: good, ..at },
                &places,
                bytes,
                AccessKind::Read,
                access.strength,
                0,
            );
        }
        for lane in bits(at.lanes & !good) {
            let address = low(offsets[lane as usize]);
            let Some((block, offset)) =
                self.shared_place(env, warp, at, access.space, lane, address, bytes, "reads")
            else {
                unpack::<E>(out, lane, &[POISON; MOST][..bytes.min(MOST)]);
                continue;
            };
            let from = offset as usize;
            unpack::<E>(out, lane, &self.blocks[block].shared[from..from + bytes]);
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
                    AccessKind::Read,
                    access.strength,
                    None,
                );
            }
        }
    }

    /// Offsets of the lanes whose access lies in one variable of the own block and is aligned: the ordinary case.
    #[inline]
    fn own_places(&self, env: &Env<'_>, at: At, offsets: &Lanes, bytes: usize) -> ([u32; 32], u32) {
        let base = self.blocks[at.block].rank << window::BLOCK_SHIFT;
        let places: [u32; 32] = std::array::from_fn(|lane| low(offsets[lane]).wrapping_sub(base));
        let first = places[at.lanes.trailing_zeros().min(31) as usize];
        let Some(region) = env.shared.find(first, 1) else { return (places, 0) };
        let (start, end) = (region.start, region.end);
        let unit = index(bytes.next_power_of_two().min(16)) - 1;
        let len = index(bytes);
        let mut good = 0;
        for (lane, &place) in places.iter().enumerate() {
            let inside = place >= start && place < end && end - place >= len && place & unit == 0;
            good |= u32::from(inside) << lane;
        }
        (places, good & at.lanes)
    }

    /// Checks and records the accesses of lanes to the own block's memory; `same` are lanes whose store changes nothing.
    #[allow(clippy::too_many_arguments, reason = "one access of a warp")]
    fn check_own(
        &mut self,
        env: &Env<'_>,
        warp: &Warp,
        at: At,
        places: &[u32; 32],
        bytes: usize,
        kind: AccessKind,
        strength: Strength,
        same: u32,
    ) {
        let agent = self.agent(at.block, warp.index, 0, env);
        let mut conflicts: SmallVec<[(u32, Conflict); 1]> = SmallVec::new();
        let mut blank = None;
        let Some(shadow) = &mut self.blocks[at.block].shadow else { return };
        let groups = if kind == AccessKind::Read { groups(at.lanes, places) } else { SmallVec::new() };
        if kind == AccessKind::Read {
            let (least, most) = groups
                .iter()
                .fold((u32::MAX, 0), |(least, most), &(_, place)| (least.min(place), most.max(place)));
            // Mostly all of the memory in question has been written.
            if shadow.first_uninitialised(least as usize..most as usize + bytes).is_some() {
                blank = groups.iter().find_map(|&(lanes, place)| {
                    let from = place as usize;
                    shadow
                        .first_uninitialised(from..from + bytes)
                        .map(|first| (lanes.trailing_zeros(), first))
                });
            }
        }
        for (lanes, know) in warp.clock.views() {
            let access = Checked {
                epoch: Epoch { agent, clock: warp.clock.clock() },
                issuer: agent,
                know,
                pc: at.op,
                kind,
                strong: strong(strength),
                proxy: Proxy::Generic,
            };
            let mut found = |lane, conflict| conflicts.push((lane, conflict));
            if kind == AccessKind::Read {
                shadow.read_groups(&groups, lanes, bytes, &access, &mut found);
            } else {
                shadow.access_lanes(
                    lanes & at.lanes,
                    bytes,
                    |lane| places[lane as usize] as usize,
                    &access,
                    &mut found,
                );
            }
        }
        if let Some((lane, first)) = blank {
            self.uninitialised(env, warp, at, lane, "shared", first as u64, None);
        }
        for (lane, conflict) in conflicts {
            let harmless = same >> lane & 1 == 1 && conflict.hazard == Hazard::WriteAfterWrite;
            if !harmless {
                self.conflict_shared(env, &conflict, at.block, Where::thread(at, warp, lane));
            }
        }
    }

    fn scatter_sized<const E: usize>(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        values: &[Lanes],
    ) {
        let bytes = E * values.len();
        let spaces = Spaces::new(access.space, addresses, at.lanes);
        if spaces.global != 0 {
            self.scatter_global::<E>(env, warp, At { lanes: spaces.global, ..at }, access, addresses, values);
        }
        if spaces.shared != 0 {
            let offsets = spaces.shared_offsets(addresses);
            self.scatter_shared::<E>(env, warp, At { lanes: spaces.shared, ..at }, access, &offsets, values);
        }
        for lane in bits(spaces.local) {
            let offset = spaces.small(addresses[lane as usize]);
            self.check_alignment(env, warp, at, lane, offset, bytes, "local");
            if !self.local_inside(env, warp, at, offset, bytes) {
                self.out_of_bounds_local(env, warp, at, lane, offset, bytes);
                continue;
            }
            let data = pack::<E>(values, lane);
            self.write_local(warp, lane, u32::try_from(offset).unwrap_or(u32::MAX), &data[..bytes.min(MOST)]);
        }
        for lane in bits(spaces.param) {
            let message = "writes to the parameters of the kernel, which are constant".to_owned();
            self.report(env, FindingKind::OutOfBounds, Where::thread(at, warp, lane), None, message, None);
        }
    }

    fn scatter_global<const E: usize>(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        addresses: &Lanes,
        values: &[Lanes],
    ) {
        let bytes = E * values.len();
        if env.options.count {
            self.sites.global(at.op, addresses, at.lanes, index(bytes), true);
        }
        let unit = bytes.next_power_of_two() as u64 - 1;
        let mut hint = warp.hint;
        let mut good = at.lanes;
        for lane in bits(at.lanes) {
            let address = addresses[lane as usize];
            if address & unit != 0 {
                self.check_alignment(env, warp, at, lane, address, bytes, "global");
            }
            match env.memory.find(address, bytes, hint) {
                Some(found) if !env.memory.get(found).constant => {
                    hint = found;
                    let data = pack::<E>(values, lane);
                    self.overlay.write(found, address, &data[..bytes.min(MOST)]);
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
            let distinct = distinct_stores(good, addresses, values);
            self.log_global(
                env,
                warp,
                At { lanes: distinct, ..at },
                AccessKind::Write,
                access.strength,
                addresses,
                bytes,
            );
        }
    }

    fn scatter_shared<const E: usize>(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        access: &Access,
        offsets: &Lanes,
        values: &[Lanes],
    ) {
        let bytes = E * values.len();
        if env.options.count {
            self.sites.shared(at.op, offsets, at.lanes, index(bytes), true);
        }
        let (places, good) = self.own_places(env, at, offsets, bytes);
        let mut same = 0;
        let shared = &mut self.blocks[at.block].shared;
        for lane in bits(good) {
            let from = places[lane as usize] as usize;
            let data = pack::<E>(values, lane);
            let (place, data) = (&mut shared[from..from + bytes], &data[..bytes.min(MOST)]);
            if *place == *data {
                same |= 1 << lane;
            } else {
                place.copy_from_slice(data);
            }
        }
        if env.options.check && good != 0 {
            self.check_own(
                env,
                warp,
                At { lanes: good, ..at },
                &places,
                bytes,
                AccessKind::Write,
                access.strength,
                same,
            );
        }
        for lane in bits(at.lanes & !good) {
            let address = low(offsets[lane as usize]);
            let Some((block, offset)) =
                self.shared_place(env, warp, at, access.space, lane, address, bytes, "writes")
            else {
                continue;
            };
            let from = offset as usize;
            let data = pack::<E>(values, lane);
            let new = &data[..bytes.min(MOST)];
            if env.options.check {
                let same = self.blocks[block].shared[from..from + bytes] == *new;
                let kind = AccessKind::Write;
                self.check_shared(
                    env,
                    warp,
                    at,
                    lane,
                    block,
                    offset,
                    bytes,
                    kind,
                    access.strength,
                    Some(same),
                );
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
        let place = self.shared_place_of_copy(env, warp, at, space, lane, address, bytes, action)?;
        if place.0 != self.blocks[at.block].rank as usize {
            self.visit(env, warp, at, lane, place.0);
        }
        Some(place)
    }

    /// The same for a copy, which touches the memory later, and not as this thread.
    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    pub(crate) fn shared_place_of_copy(
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
        if !(address as usize).is_multiple_of(bytes.next_power_of_two().min(16)) {
            self.check_alignment(env, warp, at, lane, u64::from(address), bytes, "shared");
        }
        if rank != own {
            self.check_peer(env, warp, at, lane, rank as usize, action);
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
            let harmless = same == Some(true) && conflict.hazard == Hazard::WriteAfterWrite;
            if !harmless {
                self.conflict_shared(env, &conflict, block, Where::thread(at, warp, lane));
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
        let lanes =
            if kind == AccessKind::Read { ends_of_runs(at.lanes, |lane| addresses[lane]) } else { at.lanes };
        let addresses = Addresses::new(addresses, lanes);
        self.log.push(Logged {
            op: at.op,
            block: at.block,
            warp: warp.index,
            lanes,
            parts: addresses.parts(lanes),
            addresses,
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
        let Some(frame) = warp.paths[at.path].frames.iter().rfind(|frame| u64::from(frame.local) <= offset)
        else {
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
        let mut spaces =
            Spaces { generic: space == Space::Generic, global: 0, shared: 0, local: 0, param: 0 };
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

/// Lanes without those that store the same values to the same address as the one before.
fn distinct_stores(lanes: u32, addresses: &Lanes, values: &[Lanes]) -> u32 {
    let mut distinct = lanes;
    let mut last: Option<usize> = None;
    for lane in bits(lanes) {
        let lane = lane as usize;
        let repeats = last.is_some_and(|last| {
            addresses[last] == addresses[lane] && values.iter().all(|value| value[last] == value[lane])
        });
        if repeats {
            distinct &= !(1 << lane);
        } else {
            last = Some(lane);
        }
    }
    distinct
}

/// Lanes that read the same place, as far as they are neighbours or half a warp apart: which, and where.
#[inline]
fn groups(lanes: u32, places: &[u32; 32]) -> SmallVec<[(u32, u32); 32]> {
    let mut same = 0;
    for lane in 0..31 {
        same |= u32::from(places[lane] == places[lane + 1]) << lane;
    }
    let halves = lanes == u32::MAX && places[..16] == places[16..];
    let (width, copies) = if halves { (16, 0x1_0001) } else { (32, 1u64) };
    let below = |lane: u32| (1u64 << lane.min(width)) - 1;
    // A run begins where a lane does not read what the one before it reads.
    let mut starts = u64::from(lanes & !((same & lanes) << 1)) & below(32);
    let mut groups = SmallVec::new();
    while starts != 0 {
        let first = starts.trailing_zeros();
        starts &= starts - 1;
        let run = below(starts.trailing_zeros()) & !below(first) & u64::from(lanes);
        groups.push((low(run * copies), places[first as usize]));
    }
    groups
}

/// Of lanes next to each other that read the same place, the first and the last: whoever conflicts with one of them conflicts with one
/// of these two, unless it is ordered after both and not after those in between.
#[inline]
pub(crate) fn ends_of_runs(lanes: u32, place: impl Fn(usize) -> u64) -> u32 {
    let mut same = 0;
    for lane in 0..31 {
        same |= u32::from(place(lane) == place(lane + 1)) << lane;
    }
    same &= lanes & lanes >> 1;
    lanes & !(same & same << 1)
}

/// Puts a loaded value into its register, extended.
#[inline]
fn loaded(warp: &mut Warp, at: At, ty: Type, dst: Option<u32>, value: &mut Lanes, register_bits: u8) {
    let Some(dst) = dst else { return };
    if matches!(ty, Type::S8 | Type::S16 | Type::S32) {
        let shift = 64 - ty.bits();
        let width = 64 - u32::from(register_bits);
        for lane in value.iter_mut() {
            let extended = (*lane << shift).cast_signed() >> shift;
            *lane = extended.cast_unsigned() << width >> width;
        }
    }
    set(warp, at, dst, value);
}

/// The elements of a lane out of its bytes.
#[inline]
fn unpack<const E: usize>(out: &mut [Lanes], lane: u32, bytes: &[u8]) {
    for (value, element) in out.iter_mut().zip(bytes.chunks_exact(E)) {
        let mut word = [0; 8];
        word[..E].copy_from_slice(element);
        value[lane as usize] = u64::from_le_bytes(word);
    }
}

/// The bytes of a lane's elements.
#[inline]
fn pack<const E: usize>(values: &[Lanes], lane: u32) -> [u8; MOST] {
    let mut bytes = [0; MOST];
    for (place, value) in bytes.chunks_exact_mut(E).zip(values) {
        place.copy_from_slice(&value[lane as usize].to_le_bytes()[..E]);
    }
    bytes
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
