//! Asynchronous copies, and tensor maps.

use tilewright_ptx::{Instruction, Modifier, Operand, Type};

use super::super::function::Decoder;
use super::super::op::{Address, Bulk, Kind, Order, Scope, Space, Src, TensorMode};
use super::super::operand::{Decoded, Fault, Value, spaces, strength};
use super::{because, combine};
use crate::tensor::tensor_map::Field;

/// Whether any of these modifiers is there.
fn any(i: &Instruction, modifiers: &[Modifier]) -> bool {
    modifiers.iter().any(|modifier| i.has(*modifier))
}

impl Decoder<'_> {
    pub(super) fn copy(&mut self, i: &Instruction) -> Decoded<Kind> {
        if !i.has(Modifier::Async) {
            return Err(Fault::Modifiers);
        }
        if i.has(Modifier::Bulk) {
            return if i.has(Modifier::Prefetch) { Ok(Kind::Nop) } else { self.bulk(i).map(Kind::Bulk) };
        }
        match i.operands.as_slice() {
            [] if i.has(Modifier::CommitGroup) => Ok(Kind::CpAsyncCommit),
            [] if i.has(Modifier::WaitAll) => Ok(Kind::CpAsyncWait { pending: 0, all: true }),
            [pending] if i.has(Modifier::WaitGroup) => {
                Ok(Kind::CpAsyncWait { pending: Self::number(pending)?, all: false })
            }
            [address] if i.has(Modifier::Mbarrier) && i.has(Modifier::Arrive) => {
                let (address, space) = self.address_in(address, spaces(i).next())?;
                Ok(Kind::CpAsyncMbarrier { address, space, noinc: i.has(Modifier::Noinc) })
            }
            [dst, src, bytes, rest @ ..] => self.cp_async(i, [dst, src, bytes], rest),
            _ => Err(Fault::Operands),
        }
    }

    fn cp_async(&mut self, i: &Instruction, fixed: [&Operand; 3], rest: &[Operand]) -> Decoded<Kind> {
        let [dst, src, bytes] = fixed;
        let (dst, src) = (self.address(dst)?.0, self.address(src)?.0);
        let bytes = Self::number(bytes)?;
        if !matches!(bytes, 4 | 8 | 16) {
            return Err(because("copies 4, 8 or 16 bytes"));
        }
        let rest =
            if i.has(Modifier::L2CacheHint) { rest.split_last().ok_or(Fault::Operands)?.1 } else { rest };
        let (mut read, mut ignore) = (None, None);
        match rest {
            [] => {}
            [Operand::Not(_)] => ignore = Some(self.pred_src(&rest[0])?),
            [Operand::Symbol(name)] if matches!(self.value(*name)?, Value::Predicate(_)) => {
                ignore = Some(self.pred_src(&rest[0])?);
            }
            [size] => read = Some(self.src(size, Type::U32)?),
            _ => return Err(Fault::Operands),
        }
        let bytes = u8::try_from(bytes).map_err(|_| Fault::Operands)?;
        Ok(Kind::CpAsync { dst, src, bytes, read, ignore })
    }

    fn bulk(&mut self, i: &Instruction) -> Decoded<Bulk> {
        match i.operands.as_slice() {
            [] if i.has(Modifier::CommitGroup) => return Ok(Bulk::Commit),
            [pending] if i.has(Modifier::WaitGroup) => {
                return Ok(Bulk::Wait { pending: Self::number(pending)?, read: i.has(Modifier::Read) });
            }
            _ => {}
        }
        let mut found = spaces(i);
        let (Some(to), Some(from)) = (found.next(), found.next()) else { return Err(Fault::Modifiers) };
        drop(found);
        if i.has(Modifier::Tensor) {
            return self.bulk_tensor(i, to);
        }
        let combine = if i.has(Modifier::Reduce) {
            Some((combine(i)?, i.types().next().ok_or(Fault::Modifiers)?))
        } else {
            None
        };
        let [dst, src, bytes, rest @ ..] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let (dst, src) = (self.address(dst)?.0, self.address(src)?.0);
        let bytes = self.src(bytes, Type::U32)?;
        match (to, from) {
            (Space::SharedCta | Space::SharedCluster, Space::Global) if combine.is_none() => {
                let [mbarrier, rest @ ..] = rest else { return Err(Fault::Operands) };
                let mbarrier = self.address(mbarrier)?.0;
                let multicast = self.multicast(i, rest)?;
                Ok(Bulk::Load { dst, dst_space: to, src, bytes, mbarrier, multicast })
            }
            (Space::SharedCluster, Space::SharedCta) => {
                let [mbarrier] = rest else { return Err(Fault::Operands) };
                Ok(Bulk::Push { dst, src, bytes, mbarrier: self.address(mbarrier)?.0, combine })
            }
            (Space::Global, Space::SharedCta) => {
                let mask = match (i.has(Modifier::CpMask), rest) {
                    (true, [.., mask]) => Some(self.src(mask, Type::U16)?),
                    (true, []) => return Err(Fault::Operands),
                    (false, _) => None,
                };
                Ok(Bulk::Store { dst, src, bytes, combine, mask })
            }
            _ => Err(Fault::Modifiers),
        }
    }

    /// The mask of blocks, which comes before the cache policy.
    fn multicast(&mut self, i: &Instruction, rest: &[Operand]) -> Decoded<Option<Src>> {
        if !i.has(Modifier::MulticastCluster) {
            return Ok(None);
        }
        self.src(rest.first().ok_or(Fault::Operands)?, Type::U16).map(Some)
    }

    fn bulk_tensor(&mut self, i: &Instruction, to: Space) -> Decoded<Bulk> {
        const BLACKWELL: &[Modifier] = &[
            Modifier::TileGather4,
            Modifier::TileScatter4,
            Modifier::Im2colW,
            Modifier::Im2colW128,
            Modifier::CtaGroup1,
            Modifier::CtaGroup2,
        ];
        if any(i, BLACKWELL) {
            return Err(because("is an instruction of Blackwell, which is not supported yet"));
        }
        let rank = i.modifiers.iter().find_map(|modifier| match modifier {
            Modifier::D1 | Modifier::D2 | Modifier::D3 | Modifier::D4 | Modifier::D5 => modifier.count(),
            _ => None,
        });
        let rank = rank.ok_or(Fault::Modifiers)?;
        if to == Space::Global {
            let [map, src, ..] = i.operands.as_slice() else { return Err(Fault::Operands) };
            let (map, coordinates) = self.tensor(map, rank)?;
            let src = self.address(src)?.0;
            let combine = if i.has(Modifier::Reduce) { Some(combine(i)?) } else { None };
            let mode = if any(i, &[Modifier::Im2col, Modifier::Im2colNoOffs]) {
                TensorMode::Im2col(Vec::new())
            } else {
                TensorMode::Tile
            };
            return Ok(Bulk::TensorStore { map, coordinates, src, combine, mode });
        }
        let [dst, map, mbarrier, rest @ ..] = i.operands.as_slice() else { return Err(Fault::Operands) };
        let (dst, mbarrier_operand) = (self.address(dst)?.0, mbarrier);
        let (map, coordinates) = self.tensor(map, rank)?;
        let mbarrier = self.address(mbarrier_operand)?.0;
        let (mode, rest) = if i.has(Modifier::Im2col) {
            let [offsets, rest @ ..] = rest else { return Err(Fault::Operands) };
            let offsets = self.srcs(offsets, Type::U16)?;
            if offsets.len() + 2 != rank {
                return Err(Fault::Operands);
            }
            (TensorMode::Im2col(offsets.to_vec()), rest)
        } else {
            (TensorMode::Tile, rest)
        };
        let multicast = self.multicast(i, rest)?;
        Ok(Bulk::TensorLoad { dst, dst_space: to, map, coordinates, mbarrier, multicast, mode })
    }

    /// `[map, {c0, c1}]`
    fn tensor(&mut self, operand: &Operand, rank: usize) -> Decoded<(Address, Vec<Src>)> {
        let Operand::Tuple(parts) = operand else { return Err(Fault::Operands) };
        let [map, coordinates] = parts.as_slice() else { return Err(Fault::Operands) };
        let map = self.generic_address(map)?;
        let coordinates = self.srcs(coordinates, Type::S32)?.to_vec();
        if coordinates.len() == rank { Ok((map, coordinates)) } else { Err(Fault::Operands) }
    }

    pub(super) fn tensormap(&mut self, i: &Instruction) -> Decoded<Kind> {
        if i.has(Modifier::CpFenceproxy) {
            let [dst, src, _size] = i.operands.as_slice() else { return Err(Fault::Operands) };
            let (dst, src) = (self.address(dst)?.0, self.address(src)?.0);
            return Ok(Kind::TensormapPublish {
                dst,
                src,
                strength: strength(i, Order::Release, Scope::Gpu),
            });
        }
        if !i.has(Modifier::Replace) {
            return Err(Fault::Modifiers);
        }
        let field = i.modifiers.iter().find_map(|modifier| Field::of(*modifier));
        let field = field.ok_or(Fault::Modifiers)?;
        let (address, ordinal, value) = match i.operands.as_slice() {
            [address, value] => (address, 0, value),
            [address, ordinal, value] => (address, Self::number(ordinal)?, value),
            _ => return Err(Fault::Operands),
        };
        let ty = i.types().last().ok_or(Fault::Modifiers)?;
        let (address, space) = self.address_in(address, spaces(i).next())?;
        let value = self.src(value, ty)?;
        Ok(Kind::TensormapReplace { address, space, field, ordinal, value })
    }
}
