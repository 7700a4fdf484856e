//! Copies that go on while the program does: `cp.async`, bulk copies, tensor copies, and tensor maps.

use smallvec::SmallVec;
use tilewright_hardware::Element;
use tilewright_ir::{
    Bytes, Cache, Combine, Count, Flags, Index, MapField, OpData, Opcode as Ir, Prefetch, Rank, Space, Value,
};
use tilewright_ptx::{self as ptx, Modifier as M, Modifiers, Opcode, Operand};

use crate::emit::{Emitter, Lowered};
use crate::error::CodegenError;
use crate::memory::{prefetch_size, with_vector};
use crate::registers::{Word, arithmetic, shape};
use crate::sync::reduction;

/// Bytes of a tensor map.
const MAP_BYTES: i64 = 128;

/// The operands of a copy that its flags ask for, behind the ones that it always has.
struct Extras {
    offsets: Option<Operand>,
    mask: Option<Operand>,
    policy: Option<Operand>,
}

impl Emitter<'_> {
    /// 16 bytes go past L1 unless told otherwise; fewer can only go through it.
    pub(crate) fn cp_async(&mut self, data: &OpData) -> Lowered {
        let Bytes(bytes) = data.get().unwrap_or(Bytes(16));
        let cache = match (data.get::<Cache>(), bytes) {
            (Some(Cache::All), 4 | 8 | 16) | (None, 4 | 8) => M::Ca,
            (Some(Cache::Global) | None, 16) => M::Cg,
            (cache, _) => {
                let cache = cache.map_or("none", Cache::name);
                return Err(self.unsupported(format!(
                    "copies 4, 8 or 16 bytes with cache(ca) or 16 with cache(cg), not {bytes} with {cache}"
                )));
            }
        };
        let prefetch = data.get::<Prefetch>().map(prefetch_size);
        let modifiers: Modifiers =
            [M::Async, cache, M::Shared, M::Global].into_iter().chain(prefetch).collect();
        let (to, from) = (self.address(data.operands[0]), self.address(data.operands[1]));
        let read = data.operands.get(2).map(|&value| self.u32_operand(value));
        let operands: SmallVec<[Operand; 4]> = [to, from, bytes.into()].into_iter().chain(read).collect();
        self.push(Opcode::Cp, &modifiers, operands);
        Ok(())
    }

    pub(crate) fn cp_async_commit(&mut self) -> Lowered {
        self.push(Opcode::Cp, &[M::Async, M::CommitGroup], []);
        Ok(())
    }

    pub(crate) fn cp_async_wait(&mut self, data: &OpData) -> Lowered {
        let Count(count) = data.get().unwrap_or(Count(0));
        self.push(Opcode::Cp, &[M::Async, M::WaitGroup], [count.into()]);
        Ok(())
    }

    pub(crate) fn cp_async_arrive(&mut self, data: &OpData) -> Lowered {
        let noinc = data.flags().has(Flags::NOINC).then_some(M::Noinc);
        let modifiers: Modifiers =
            [M::Async, M::Mbarrier, M::Arrive].into_iter().chain(noinc).chain([M::Shared, M::B64]).collect();
        let address = self.address(data.operands[0]);
        self.push(Opcode::Cp, &modifiers, [address]);
        Ok(())
    }

    /// What follows the fixed operands: offsets of im2col, mask of blocks, policy.
    fn extras(&mut self, data: &OpData, values: &[Value]) -> Extras {
        let flags = data.flags();
        let mut rest = values;
        let mut last = |on: bool| {
            let (value, before) = rest.split_last()?;
            if on {
                rest = before;
                Some(*value)
            } else {
                None
            }
        };
        let policy = last(flags.has(Flags::HINT));
        let mask = last(flags.has(Flags::MULTICAST));
        let offsets: Vec<Operand> = rest.iter().map(|&value| self.reg(value).into()).collect();
        Extras {
            offsets: if offsets.is_empty() { None } else { Some(Operand::List(offsets)) },
            mask: mask.map(|value| self.scalar_or_immediate(value)),
            policy: policy.map(|value| self.reg(value).into()),
        }
    }

    /// `bulk_load`, `bulk_store`, `bulk_copy`, `bulk_reduce`
    pub(crate) fn bulk(&mut self, data: &OpData) -> Lowered {
        let (to, from) = (self.address(data.operands[0]), self.address(data.operands[1]));
        let bytes = self.u32_operand(data.operands[2]);
        let mut operands: SmallVec<[Operand; 8]> = SmallVec::from_vec(vec![to, from, bytes]);
        let barrier = matches!(data.code, Ir::BulkLoad | Ir::BulkCopy);
        if barrier {
            operands.push(self.address(data.operands[3]));
        }
        let extra = self.extras(data, &data.operands[if barrier { 4 } else { 3 }..]);
        // A policy of a store needs no flag: the operand is there or it is not.
        let extra = match (&extra.policy, data.code, data.operands.get(3)) {
            (None, Ir::BulkStore | Ir::BulkReduce, Some(&policy)) => {
                Extras { offsets: None, mask: None, policy: Some(self.reg(policy).into()) }
            }
            _ => extra,
        };
        let hint = extra.policy.is_some().then_some(M::L2CacheHint);
        let multicast = extra.mask.is_some().then_some(M::MulticastCluster);
        let mut modifiers = Modifiers::new();
        match data.code {
            Ir::BulkLoad => {
                modifiers.extend([M::Async, M::Bulk, M::SharedCluster, M::Global, M::MbarrierCompleteTx]);
            }
            Ir::BulkCopy => {
                modifiers.extend([M::Async, M::Bulk, M::SharedCluster, M::SharedCta, M::MbarrierCompleteTx]);
            }
            Ir::BulkStore => modifiers.extend([M::Async, M::Bulk, M::Global, M::SharedCta, M::BulkGroup]),
            _ => modifiers.extend([M::Reduce, M::Async, M::Bulk, M::Global, M::SharedCta, M::BulkGroup]),
        }
        modifiers.extend(multicast);
        modifiers.extend(hint);
        if data.code == Ir::BulkReduce {
            let element = data.get::<Element>().unwrap_or(Element::F32);
            self.bulk_reduction(data, element, &mut modifiers)?;
        }
        operands.extend(extra.mask);
        operands.extend(extra.policy);
        self.push(Opcode::Cp, &modifiers, operands);
        Ok(())
    }

    /// `store_async`
    pub(crate) fn store_async(&mut self, data: &OpData) -> Lowered {
        let (to, barrier) = (self.address(data.operands[0]), self.address(data.operands[2]));
        let (width, _) = shape(self.func.ty(data.operands[1]));
        let words = self.words(data.operands[1]);
        let registers: Vec<_> = words.into_iter().map(|word| self.in_reg(word, width)).collect();
        let what = [M::Async, M::SharedCluster, M::MbarrierCompleteTx];
        let modifiers = with_vector(&what, registers.len(), width.bits_type());
        let value = if registers.len() == 1 { registers[0].into() } else { Operand::list(registers) };
        self.push(Opcode::St, &modifiers, [to, value, barrier]);
        Ok(())
    }

    fn bulk_reduction(&self, data: &OpData, element: Element, out: &mut Modifiers) -> Lowered {
        let combine = data.get::<Combine>().unwrap_or(Combine::Add);
        let Some(operation) = reduction(combine) else {
            return Err(self.unsupported(format!("cannot combine by {}", combine.name())));
        };
        out.push(operation);
        let bitwise = matches!(combine, Combine::And | Combine::Or | Combine::Xor);
        let ty = match element {
            _ if bitwise => {
                if element.bits() == 64 {
                    ptx::Type::B64
                } else {
                    ptx::Type::B32
                }
            }
            // Sums of signed and unsigned 64-bit integers have the same bits; only one of them has a name.
            Element::I64 if combine == Combine::Add => ptx::Type::U64,
            _ => arithmetic(element),
        };
        if combine == Combine::Add && matches!(element, Element::F16 | Element::BF16) {
            out.push(M::Noftz);
        }
        out.push(ty.into());
        Ok(())
    }

    pub(crate) fn bulk_prefetch(&mut self, data: &OpData) -> Lowered {
        let address = self.address(data.operands[0]);
        let bytes = self.u32_operand(data.operands[1]);
        self.push(Opcode::Cp, &[M::Async, M::Bulk, M::Prefetch, M::L2, M::Global], [address, bytes]);
        Ok(())
    }

    pub(crate) fn bulk_commit(&mut self) -> Lowered {
        self.push(Opcode::Cp, &[M::Async, M::Bulk, M::CommitGroup], []);
        Ok(())
    }

    pub(crate) fn bulk_wait(&mut self, data: &OpData) -> Lowered {
        let Count(count) = data.get().unwrap_or(Count(0));
        let read = data.flags().has(Flags::READ).then_some(M::Read);
        let modifiers: Modifiers = [M::Async, M::Bulk, M::WaitGroup].into_iter().chain(read).collect();
        self.push(Opcode::Cp, &modifiers, [count.into()]);
        Ok(())
    }

    /// `tma_load`, `tma_store`, `tma_reduce`, `tma_prefetch`
    pub(crate) fn tensor_copy(&mut self, data: &OpData) -> Lowered {
        let Rank(rank) = data.get().unwrap_or(Rank(1));
        let dimensions = [M::D1, M::D2, M::D3, M::D4, M::D5][usize::from(rank.clamp(1, 5)) - 1];
        let im2col = data.flags().has(Flags::IM2COL);
        let (map, fixed) = match data.code {
            Ir::TmaLoad => (data.operands[1], 3),
            Ir::TmaPrefetch => (data.operands[0], 1),
            _ => (data.operands[0], 2),
        };
        let map = self.tensor_map(map);
        let (coordinates, rest) = data.operands[fixed..].split_at(usize::from(rank));
        let coordinates: Vec<Operand> =
            coordinates.iter().map(|&value| self.scalar(value, ptx::Type::S32)).collect();
        let tensor = Operand::Tuple(vec![map.into(), Operand::List(coordinates)]);
        let extra = self.extras(data, rest);
        let hint = extra.policy.is_some().then_some(M::L2CacheHint);
        let mut modifiers = Modifiers::new();
        let mut operands: SmallVec<[Operand; 6]> = SmallVec::new();
        match data.code {
            Ir::TmaLoad => {
                modifiers.extend([M::Async, M::Bulk, M::Tensor, dimensions, M::SharedCluster, M::Global]);
                modifiers.extend(im2col.then_some(M::Im2col));
                modifiers.push(M::MbarrierCompleteTx);
                modifiers.extend(extra.mask.is_some().then_some(M::MulticastCluster));
                operands.extend([self.address(data.operands[0]), tensor, self.address(data.operands[2])]);
            }
            Ir::TmaPrefetch => {
                modifiers.extend([M::Async, M::Bulk, M::Prefetch, M::Tensor, dimensions, M::L2, M::Global]);
                modifiers.extend(im2col.then_some(M::Im2col));
                operands.push(tensor);
            }
            code => {
                if code == Ir::TmaReduce {
                    modifiers.push(M::Reduce);
                }
                modifiers.extend([M::Async, M::Bulk, M::Tensor, dimensions, M::Global, M::SharedCta]);
                if code == Ir::TmaReduce {
                    let combine = data.get::<Combine>().unwrap_or(Combine::Add);
                    let operation = reduction(combine);
                    modifiers.push(
                        operation.ok_or_else(|| {
                            self.unsupported(format!("cannot combine by {}", combine.name()))
                        })?,
                    );
                }
                modifiers.extend(im2col.then_some(M::Im2colNoOffs));
                modifiers.push(M::BulkGroup);
                operands.extend([tensor, self.address(data.operands[1])]);
            }
        }
        modifiers.extend(hint);
        operands.extend(extra.offsets);
        operands.extend(extra.mask);
        operands.extend(extra.policy);
        self.push(Opcode::Cp, &modifiers, operands);
        Ok(())
    }

    pub(crate) fn map_prefetch(&mut self, data: &OpData) -> Lowered {
        let map = self.tensor_map(data.operands[0]);
        self.push(Opcode::Prefetch, &[M::Tensormap], [Operand::address(map)]);
        Ok(())
    }

    pub(crate) fn map_replace(&mut self, data: &OpData) -> Lowered {
        let space = match self.space(data.operands[0]) {
            Space::Global => Some(M::Global),
            Space::Shared => Some(M::SharedCta),
            Space::Generic => None,
            other => {
                return Err(self.unsupported(format!(
                    "of a tensor map in {other} memory; it must lie in shared or global memory"
                )));
            }
        };
        let field = data.get::<MapField>().unwrap_or(MapField::Rank);
        let (name, ty, needs_index, constant) = match field {
            MapField::GlobalAddress => (M::GlobalAddress, ptx::Type::B64, false, false),
            MapField::Rank => (M::Rank, ptx::Type::B32, false, false),
            MapField::BoxDim => (M::BoxDim, ptx::Type::B32, true, false),
            MapField::GlobalDim => (M::GlobalDim, ptx::Type::B32, true, false),
            MapField::GlobalStride => (M::GlobalStride, ptx::Type::B64, true, false),
            MapField::ElementStride => (M::ElementStride, ptx::Type::B32, true, false),
            MapField::Element => (M::Elemtype, ptx::Type::B32, false, true),
            MapField::Interleave => (M::InterleaveLayout, ptx::Type::B32, false, true),
            MapField::Swizzle => (M::SwizzleMode, ptx::Type::B32, false, true),
            MapField::Fill => (M::FillMode, ptx::Type::B32, false, true),
        };
        let index = data.get::<Index>();
        if needs_index != index.is_some() {
            let want = if needs_index { "needs index(...)" } else { "takes no index" };
            return Err(self.unsupported(format!("of {} {want}", field.name())));
        }
        let found = self.func.ty(data.operands[1]);
        if found.bits() != ty.bits() {
            return Err(self.unsupported(format!(
                "of {} takes {} bits, not {found}",
                field.name(),
                ty.bits()
            )));
        }
        let value =
            if constant { self.known(data.operands[1], field.name())? } else { self.word(data.operands[1]) };
        let address = self.address(data.operands[0]);
        let value = self.operand(value, ty);
        let modifiers: Modifiers =
            [M::Replace, M::Tile, name].into_iter().chain(space).chain([M::B1024, ty.into()]).collect();
        let index = index.map(|Index(i)| i.into());
        let operands: SmallVec<[Operand; 3]> = [address].into_iter().chain(index).chain([value]).collect();
        self.push(Opcode::Tensormap, &modifiers, operands);
        Ok(())
    }

    /// A constant word of an op that must be known at compile time.
    fn known(&self, value: Value, what: &str) -> Result<Word, CodegenError> {
        self.constant(value)
            .map(Word::Imm)
            .ok_or_else(|| self.unsupported(format!("needs {what} as a constant")))
    }

    pub(crate) fn map_publish(&mut self, data: &OpData) -> Lowered {
        let (to, from) = (self.address(data.operands[0]), self.address(data.operands[1]));
        let modifiers = [
            M::CpFenceproxy,
            M::Global,
            M::SharedCta,
            M::TensormapGeneric,
            M::Release,
            M::Gpu,
            M::Sync,
            M::Aligned,
        ];
        self.push(Opcode::Tensormap, &modifiers, [to, from, MAP_BYTES.into()]);
        Ok(())
    }

    pub(crate) fn map_acquire(&mut self, data: &OpData) -> Lowered {
        let map = self.tensor_map(data.operands[0]);
        let modifiers = [M::Proxy, M::TensormapGeneric, M::Acquire, M::Gpu];
        self.push(Opcode::Fence, &modifiers, [Operand::address(map), MAP_BYTES.into()]);
        Ok(())
    }
}
