//! Barriers of blocks and clusters, fences, mbarriers.

use tilewright_ptx::{Instruction, Modifier, Opcode, Operand, Type};

use super::super::function::Decoder;
use super::super::op::{BarMode, Fence, Kind, Mbarrier, Order, Scope, Space, Strength};
use super::super::operand::{Decoded, Fault, order, scope, spaces, strength};

impl Decoder<'_> {
    pub(super) fn barrier(&mut self, i: &Instruction) -> Decoded<Kind> {
        if i.has(Modifier::Warp) {
            let [mask] = i.operands.as_slice() else { return Err(Fault::Operands) };
            return Ok(Kind::WarpSync { mask: self.src(mask, Type::B32)? });
        }
        // `bar` is short for `barrier.aligned`.
        let aligned = i.opcode == Opcode::Bar || i.has(Modifier::Aligned);
        if i.has(Modifier::Cluster) {
            if !i.operands.is_empty() {
                return Err(Fault::Operands);
            }
            let relaxed = i.has(Modifier::Relaxed);
            return match (i.has(Modifier::Arrive), i.has(Modifier::Wait)) {
                (true, false) => Ok(Kind::ClusterArrive { release: !relaxed, aligned }),
                (false, true) => Ok(Kind::ClusterWait { acquire: !relaxed, aligned }),
                _ => Err(Fault::Modifiers),
            };
        }
        if i.has(Modifier::RedOp) {
            return self.reducing_barrier(i, aligned);
        }
        let mode = match (i.has(Modifier::Sync), i.has(Modifier::Arrive)) {
            (true, false) => BarMode::Sync,
            (false, true) => BarMode::Arrive,
            _ => return Err(Fault::Modifiers),
        };
        let (id, threads) = match i.operands.as_slice() {
            [id] if mode == BarMode::Sync => (id, None),
            [id, threads] => (id, Some(threads)),
            _ => return Err(Fault::Operands),
        };
        let id = self.src(id, Type::U32)?;
        let threads = threads.map(|threads| self.src(threads, Type::U32)).transpose()?;
        Ok(Kind::Bar { id, threads, mode, aligned })
    }

    fn reducing_barrier(&mut self, i: &Instruction, aligned: bool) -> Decoded<Kind> {
        let (d, id, threads, c) = match i.operands.as_slice() {
            [d, id, c] => (d, id, None, c),
            [d, id, threads, c] => (d, id, Some(threads), c),
            _ => return Err(Fault::Operands),
        };
        let id = self.src(id, Type::U32)?;
        let threads = threads.map(|threads| self.src(threads, Type::U32)).transpose()?;
        let c = self.pred_src(c)?;
        let mode = if i.has(Modifier::PopcOp) {
            BarMode::Popc(self.dst(d)?, c)
        } else if i.has(Modifier::AndOp) {
            BarMode::And(self.pred_dst(d)?, c)
        } else if i.has(Modifier::OrOp) {
            BarMode::Or(self.pred_dst(d)?, c)
        } else {
            return Err(Fault::Modifiers);
        };
        Ok(Kind::Bar { id, threads, mode, aligned })
    }

    pub(super) fn fence(&mut self, i: &Instruction) -> Decoded<Kind> {
        if i.has(Modifier::MbarrierInit) {
            return Ok(Kind::Fence(Fence::MbarrierInit));
        }
        if i.has(Modifier::TensormapGeneric) {
            let strength = Strength {
                order: order(i).ok_or(Fault::Modifiers)?,
                scope: scope(i).ok_or(Fault::Modifiers)?,
            };
            let map = match i.operands.as_slice() {
                [] => None,
                [address, _size] => Some(self.generic_address(address)?),
                _ => return Err(Fault::Operands),
            };
            return Ok(Kind::Fence(Fence::ProxyTensormap(strength, map)));
        }
        if !i.operands.is_empty() {
            return Err(Fault::Operands);
        }
        if i.has(Modifier::AsyncGeneric) {
            let space =
                if i.has(Modifier::SyncRestrictCta) { Space::SharedCta } else { Space::SharedCluster };
            return Ok(Kind::Fence(Fence::ProxyAsync(Some(space))));
        }
        if i.has(Modifier::Proxy) {
            let async_proxy = i.has(Modifier::Async);
            return Ok(Kind::Fence(if async_proxy {
                Fence::ProxyAsync(spaces(i).next())
            } else {
                Fence::ProxyOther
            }));
        }
        let order_default = if i.opcode == Opcode::Membar { Order::Sc } else { Order::AcqRel };
        let scope = scope(i).ok_or(Fault::Modifiers)?;
        Ok(Kind::Fence(Fence::Thread(strength(i, order_default, scope))))
    }

    pub(super) fn mbarrier(&mut self, i: &Instruction) -> Decoded<Kind> {
        let operands = i.operands.as_slice();
        if i.has(Modifier::PendingCount) {
            let [d, state] = operands else { return Err(Fault::Operands) };
            let state = self.src(state, Type::B64)?;
            return Ok(Kind::MbarrierPending { dst: self.dst(d)?, state });
        }
        let place = operands.iter().position(|operand| matches!(operand, Operand::Address(_)));
        let place = place.ok_or(Fault::Operands)?;
        let (results, values) = (&operands[..place], &operands[place + 1..]);
        let (address, space) = self.address_in(&operands[place], spaces(i).next())?;
        let has = |modifier| i.has(modifier);
        let op = if has(Modifier::Arrive) || has(Modifier::ArriveDrop) {
            self.arrival(i, results, values)?
        } else {
            match (results, values) {
                ([], [count]) if has(Modifier::Init) => Mbarrier::Init(self.src(count, Type::U32)?),
                ([], []) if has(Modifier::Inval) => Mbarrier::Inval,
                ([], [bytes]) if has(Modifier::ExpectTx) => Mbarrier::ExpectTx(self.src(bytes, Type::U32)?),
                ([], [bytes]) if has(Modifier::CompleteTx) => {
                    Mbarrier::CompleteTx(self.src(bytes, Type::U32)?)
                }
                ([done], [phase, hint @ ..]) if has(Modifier::TestWait) || has(Modifier::TryWait) => {
                    let suspend = has(Modifier::TryWait);
                    if hint.len() > usize::from(suspend) {
                        return Err(Fault::Operands);
                    }
                    let parity = has(Modifier::Parity);
                    let phase = self.src(phase, if parity { Type::U32 } else { Type::B64 })?;
                    let done = self.pred_dst(done)?;
                    Mbarrier::Wait {
                        done,
                        phase,
                        parity,
                        suspend,
                        strength: strength(i, Order::Acquire, Scope::Cta),
                    }
                }
                _ => return Err(Fault::Operands),
            }
        };
        Ok(Kind::Mbarrier { op, address, space })
    }

    fn arrival(&mut self, i: &Instruction, results: &[Operand], values: &[Operand]) -> Decoded<Mbarrier> {
        let state = match results {
            [] => None,
            [state] => self.dst_or_sink(state)?,
            _ => return Err(Fault::Operands),
        };
        let value = match values {
            [] => None,
            [value] => Some(self.src(value, Type::U32)?),
            _ => return Err(Fault::Operands),
        };
        let expects = i.has(Modifier::ExpectTx);
        if expects && value.is_none() {
            return Err(Fault::Operands);
        }
        Ok(Mbarrier::Arrive {
            state,
            count: value.filter(|_| !expects),
            expect_tx: value.filter(|_| expects),
            drop: i.has(Modifier::ArriveDrop),
            no_complete: i.has(Modifier::NoComplete),
            strength: strength(i, Order::Release, Scope::Cta),
        })
    }
}
