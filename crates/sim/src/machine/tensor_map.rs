//! Tensor maps in memory: read by TMA, changed by `tensormap.replace`, published by `tensormap.cp_fenceproxy`.

use tilewright_ptx::Type;

use crate::check::{FindingKind, Scope};
use crate::program::{Access, Address, Order, Space, Src, Strength};
use crate::tensor::TensorMap;

use super::access::number;
use super::cluster::{Cluster, Env};
use super::exec::At;
use super::report::Where;
use super::warp::Warp;

impl Cluster {
    /// The tensor map at a generic address.
    pub(crate) fn tensor_map(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        address: Address,
    ) -> Option<TensorMap> {
        let address = self.addresses(env, warp, at, address, Space::Generic)[lane as usize];
        if !address.is_multiple_of(64) {
            self.check_unit(env, warp, at, lane, address, 64, "tensor map");
        }
        let bytes = self.map_bytes(env, warp, At { lanes: 1 << lane, ..at }, lane, Space::Generic, address);
        match TensorMap::decode(&bytes) {
            Ok(map) => Some(map),
            Err(error) => {
                let message = format!("uses a tensor map that is none: {error}");
                self.report(
                    env,
                    FindingKind::InvalidInstruction,
                    Where::thread(at, warp, lane),
                    None,
                    message,
                    None,
                );
                None
            }
        }
    }

    fn map_bytes(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        space: Space,
        address: u64,
    ) -> [u8; 128] {
        let mut bytes = [0; 128];
        for (i, piece) in bytes.chunks_exact_mut(16).enumerate() {
            let mut words = [[0; 32]; 2];
            self.gather(env, warp, at, &piece_access(space), &[address + i as u64 * 16; 32], &mut words);
            piece[..8].copy_from_slice(&words[0][lane as usize].to_le_bytes());
            piece[8..].copy_from_slice(&words[1][lane as usize].to_le_bytes());
        }
        bytes
    }

    #[allow(clippy::too_many_arguments, reason = "the operands of the instruction")]
    pub(crate) fn change_map(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        lane: u32,
        address: Address,
        space: Space,
        change: impl FnOnce(&mut TensorMap) -> Result<(), crate::tensor::TensorError>,
    ) {
        let address = self.addresses(env, warp, at, address, space)[lane as usize];
        let one = At { lanes: 1 << lane, ..at };
        let bytes = self.map_bytes(env, warp, one, lane, space, address);
        let changed = TensorMap::decode(&bytes).and_then(|mut map| change(&mut map).map(|()| map.encode()));
        match changed {
            Ok(bytes) => self.write_map(env, warp, one, space, address, &bytes),
            Err(error) => {
                let message = format!("tensormap.replace: {error}");
                self.report(
                    env,
                    FindingKind::InvalidInstruction,
                    Where::thread(at, warp, lane),
                    None,
                    message,
                    None,
                );
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "one access of a lane")]
    fn write_map(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        space: Space,
        address: u64,
        bytes: &[u8; 128],
    ) {
        for (i, piece) in bytes.chunks_exact(16).enumerate() {
            let words = [[number(&piece[..8]); 32], [number(&piece[8..]); 32]];
            self.scatter(env, warp, at, &piece_access(space), &[address + i as u64 * 16; 32], &words);
        }
    }

    /// `tensormap.cp_fenceproxy`: the warp copies the map and releases it.
    pub(crate) fn publish_map(
        &mut self,
        env: &Env<'_>,
        warp: &mut Warp,
        at: At,
        dst: Address,
        src: Address,
        strength: Strength,
    ) {
        let lane = at.lanes.trailing_zeros().min(31);
        let one = At { lanes: 1 << lane, ..at };
        let src = u64::from(self.shared_addresses(env, warp, at, src, Space::SharedCta)[lane as usize]);
        let dst = self.addresses(env, warp, at, dst, Space::Global)[lane as usize];
        if env.options.check {
            warp.clock.sync(at.lanes);
        }
        let bytes = self.map_bytes(env, warp, one, lane, Space::SharedCta, src);
        self.write_map(env, warp, one, Space::Global, dst, &bytes);
        let access = Access {
            strength: Strength { order: Order::Release, ..strength },
            ..piece_access(Space::Global)
        };
        self.publish(env, warp, one, &access, &[dst; 32]);
    }
}

/// An access to 16 bytes of a tensor map.
fn piece_access(space: Space) -> Access {
    Access {
        space,
        address: Address { base: Src::Imm(0), offset: 0 },
        ty: Type::B64,
        count: 2,
        strength: Strength { order: Order::Weak, scope: Scope::Cta },
    }
}
