//! One op after the other: which code belongs to which op. The match is exhaustive, so an op cannot be forgotten.

use tilewright_ir::{Constant, Index, Op, Opcode as Ir};
use tilewright_ptx::Modifier as M;

use crate::CodegenError;
use crate::emit::{Emitter, Lowered};
use crate::registers::{Word, Words};

impl Emitter<'_> {
    pub(crate) fn op(&mut self, op: Op) -> Lowered {
        let func = self.func;
        let data = func.op(op);
        let index = || data.get::<Index>().unwrap_or(Index(0));
        match data.code {
            Ir::Const => {
                let Constant(bits) = data.get().unwrap_or(Constant(0));
                self.bind(data.results[0], Words::from_elem(Word::Imm(bits), 1));
                Ok(())
            }
            // Reads as zero, which takes no code.
            Ir::Poison => Ok(()),
            Ir::For => self.for_op(data),
            Ir::While => self.while_op(data),
            Ir::If => self.if_op(data),
            // Regions take care of roles and terminators.
            Ir::Role | Ir::Yield | Ir::Condition | Ir::Return => Ok(()),
            Ir::Call => Err(self.unsupported(format!(
                "of {:?} is still there; inline calls first",
                data.text().unwrap_or("")
            ))),

            Ir::Add | Ir::Sub | Ir::Mul => self.sum_or_product(data),
            Ir::MulHi => self.mul_hi(data),
            Ir::MulWide => self.mul_wide(data),
            Ir::Div => self.div(data),
            Ir::Rem => self.rem(data),
            Ir::Fma => self.fma(data),
            Ir::Neg | Ir::Abs => self.sign(data),
            Ir::Min | Ir::Max => self.extremum(data),
            Ir::CopySign => self.copysign(data),
            Ir::RoundInt => self.round_int(data),
            Ir::Rcp | Ir::Sqrt | Ir::Rsqrt | Ir::Sin | Ir::Cos | Ir::Ex2 | Ir::Lg2 | Ir::Tanh => {
                self.function(data)
            }

            Ir::And | Ir::Or | Ir::Xor | Ir::Not => self.logic(data),
            Ir::Shl | Ir::Shr => self.shift(data),
            Ir::FunnelShift => self.funnel_shift(data),
            Ir::Bfe | Ir::Bfi => self.bit_field(data),
            Ir::Prmt => self.prmt(data),
            Ir::Lop3 => self.lop3(data),
            Ir::Popc | Ir::Clz => self.count_bits(data),
            Ir::Brev => self.brev(data),
            Ir::Bfind => self.bfind(data),
            Ir::Dp4a | Ir::Dp2a => self.dot(data),
            Ir::Cmp => self.compare(data),
            Ir::Select => self.select(data),
            Ir::Cvt => self.convert(data),

            Ir::Bitcast => self.bitcast(data),
            Ir::Pack => self.pack(data),
            Ir::Extract => self.extract(data, index().0 as usize),
            Ir::Insert => self.insert(data, index()),
            Ir::Slice => self.slice(data, index()),
            Ir::Concat => self.concat(data),

            Ir::PtrAdd => self.ptr_add(data),
            Ir::PtrToInt | Ir::IntToPtr => self.reinterpret(data),
            Ir::CastSpace => self.cast_space(data),
            Ir::MapCluster => self.map_cluster(data),
            Ir::Shared => self.shared(op, data),
            Ir::Local => self.local(data),

            Ir::Load | Ir::LoadIf => self.load(data),
            Ir::Store | Ir::StoreIf => self.store(data),
            Ir::Prefetch => self.prefetch(data),
            Ir::MakePolicy => self.make_policy(data),
            Ir::Atomic | Ir::Reduce => self.atomic(data),
            Ir::AtomicCas => self.atomic_cas(data),

            Ir::Shuffle => self.shuffle(data),
            Ir::Vote => self.vote(data),
            Ir::MatchAny | Ir::MatchAll => self.match_lanes(data),
            Ir::Redux => self.redux(data),
            Ir::Elect => self.elect(data),
            Ir::ActiveMask => self.active_mask(data),
            Ir::WarpSync => self.warp_sync(data),

            Ir::Barrier | Ir::BarrierArrive | Ir::BarrierReduce => self.barrier(data),
            Ir::ClusterArrive | Ir::ClusterWait => self.cluster_barrier(data),
            Ir::MbarInit | Ir::MbarInvalidate | Ir::MbarExpect => self.barrier_object(data),
            Ir::MbarArrive | Ir::MbarArriveExpect | Ir::MbarArriveDrop => self.barrier_object(data),
            Ir::MbarTest => self.mbar_test(data),
            Ir::MbarWait => self.mbar_wait(data),
            Ir::Fence => self.fence(data),
            Ir::FenceProxy => self.fence_proxy(data),
            Ir::FenceMbarInit => self.fence_mbar_init(),

            Ir::CpAsync => self.cp_async(data),
            Ir::CpAsyncCommit => self.cp_async_commit(),
            Ir::CpAsyncWait => self.cp_async_wait(data),
            Ir::CpAsyncArrive => self.cp_async_arrive(data),
            Ir::BulkLoad | Ir::BulkStore | Ir::BulkCopy | Ir::BulkReduce => self.bulk(data),
            Ir::StoreAsync => self.store_async(data),
            Ir::BulkPrefetch => self.bulk_prefetch(data),
            Ir::BulkCommit => self.bulk_commit(),
            Ir::BulkWait => self.bulk_wait(data),
            Ir::TmaLoad | Ir::TmaStore | Ir::TmaReduce | Ir::TmaPrefetch => self.tensor_copy(data),
            Ir::MapPrefetch => self.map_prefetch(data),
            Ir::MapReplace => self.map_replace(data),
            Ir::MapPublish => self.map_publish(data),
            Ir::MapAcquire => self.map_acquire(data),

            Ir::LdMatrix | Ir::StMatrix => self.matrix_move(data),
            Ir::Mma => self.mma(data),
            Ir::MakeAccumulator => self.accumulator(data),
            Ir::WgmmaFence | Ir::WgmmaCommit => self.wgmma_order(data),
            Ir::Wgmma => self.wgmma(data),
            Ir::WgmmaWait => self.wgmma_wait(data),
            Ir::AccRead => self.acc_read(op, data),
            Ir::AccWrite => self.acc_write(data),
            Ir::Descriptor => self.descriptor(data),

            Ir::Splat
            | Ir::Iota
            | Ir::Broadcast
            | Ir::Reshape
            | Ir::Transpose
            | Ir::Cat
            | Ir::Take
            | Ir::Part
            | Ir::Item => Err(self.of_tiles()),
            Ir::Map | Ir::TileReduce | Ir::TileScan | Ir::Dot => Err(self.of_tiles()),
            Ir::TileLoad | Ir::TileStore | Ir::Gather | Ir::Scatter | Ir::TileAtomic | Ir::TileAtomicCas => {
                Err(self.of_tiles())
            }

            Ir::GridWait => self.grid(M::Wait),
            Ir::GridLaunch => self.grid(M::LaunchDependents),
            Ir::Special | Ir::Clock => self.special(data),
            Ir::Sleep => self.sleep(data),
            Ir::Trap => self.trap(),
            Ir::Assert => self.assert(data),
            Ir::Trace => self.trace(data),
        }
    }

    fn of_tiles(&self) -> CodegenError {
        self.unsupported("is of the tile level; lower the function to threads first")
    }
}
