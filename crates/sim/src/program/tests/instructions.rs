//! One instruction at a time, against the op that it must become.
//!
//! Registers are numbered in the order in which decoding meets them, mostly sources before destinations.

use smallvec::smallvec;
use tilewright_ptx::{SpecialRegister, Type};

use super::super::{
    Access, Address, BarMode, Bulk, Fence, Kind, Mbarrier, Order, PredSrc, Scope, Shuffle, Space, Src,
    Strength, TensorMode, Vote, WgmmaA, window,
};
use super::{op, ops};
use crate::number::Combine;

const WEAK: Strength = Strength { order: Order::Weak, scope: Scope::Cta };

fn strong(order: Order, scope: Scope) -> Strength {
    Strength { order, scope }
}

fn at(reg: u32, offset: i64) -> Address {
    Address { base: Src::Reg(reg), offset }
}

fn p(index: u32) -> PredSrc {
    PredSrc::Reg { index, negated: false }
}

fn not(index: u32) -> PredSrc {
    PredSrc::Reg { index, negated: true }
}

#[test]
fn values() {
    let Kind::Map { map, dst, src } = op("add.u32 %r1, %r2, -1;") else { panic!() };
    assert_eq!(
        (map.destination(), dst, src.as_slice()),
        (Type::U32, 1, &[Src::Reg(0), Src::Imm(0xFFFF_FFFF)][..])
    );
    let Kind::Map { src, .. } = op("fma.rn.f32 %f1, %f2, 0f40000000, %f1;") else { panic!() };
    assert_eq!(src.as_slice(), [Src::Reg(0), Src::Imm(0x4000_0000), Src::Reg(1)]);
    let Kind::Carry { dst, src, .. } = op("addc.cc.u32 %r1, %r1, 3;") else { panic!() };
    assert_eq!((dst, src.as_slice()), (0, &[Src::Reg(0), Src::Imm(3)][..]));
    let Kind::Map { src, .. } = op("lop3.b32 %r1, %r2, %r3, %r4, 0x96;") else { panic!() };
    assert_eq!(src.as_slice(), [Src::Reg(0), Src::Reg(1), Src::Reg(2), Src::Imm(0x96)]);
    let Kind::Lop3Test { dst, p: q, and, src, q: c, .. } =
        op("lop3.and.b32 _|%p1, %r2, %r3, %r4, 0x96, !%p2;")
    else {
        panic!()
    };
    assert_eq!((dst, q, and, src.len(), c), (None, 1, true, 4, not(0)));
    assert_eq!(
        op("selp.b32 %r1, 7, %r2, %p1;"),
        Kind::Select { dst: 1, a: Src::Imm(7), b: Src::Reg(0), c: p(0) }
    );
    let Kind::Set { dst, a, b, c, .. } = op("set.lt.and.u32.s32 %r1, %r2, -1, !%p1;") else { panic!() };
    assert_eq!((dst, a, b, c), (1, Src::Reg(0), Src::Imm(0xFFFF_FFFF), not(0)));
}

#[test]
fn conversions_fill_wider_registers() {
    for (text, width) in [
        ("cvt.s8.s32 %h1, %r1;", Type::S16),
        ("cvt.s16.s32 %rd1, %r1;", Type::S64),
        ("cvt.s8.s32 %r1, %r2;", Type::S32),
        ("cvt.u8.u32 %h1, %r1;", Type::U8),
        ("cvt.s32.s8 %r1, %h1;", Type::S32),
    ] {
        let Kind::Map { map, dst, src } = op(text) else { panic!() };
        assert_eq!((map.destination(), dst, src.as_slice()), (width, 1, &[Src::Reg(0)][..]), "{text}");
    }
}

#[test]
fn predicates() {
    let Kind::Test { p: first, q, a, b, c, .. } = op("setp.lt.s32 %p1, %r1, 5;") else { panic!() };
    assert_eq!((first, q, a, b, c), (Some(0), None, Src::Reg(0), Src::Imm(5), PredSrc::Imm(true)));
    let Kind::Test { p: first, q, c, .. } = op("setp.eq.or.f32 %p1|%p2, %f1, %f2, !%p3;") else { panic!() };
    assert_eq!((first, q, c), (Some(1), Some(2), not(0)));
    let Kind::Test { p: first, a, .. } = op("testp.finite.f32 %p1, %f1;") else { panic!() };
    assert_eq!((first, a), (Some(0), Src::Reg(0)));
    // Bit a + 2 b.
    for (name, truth) in [("and", [0, 0, 0, 1]), ("or", [0, 1, 1, 1]), ("xor", [0, 1, 1, 0])] {
        let Kind::PredLogic { dst, table, a, b } = op(&format!("{name}.pred %p1, %p2, %p3;")) else {
            panic!()
        };
        assert_eq!((dst, a, b), (2, p(0), p(1)));
        assert!((0..4).all(|bit| table >> bit & 1 == truth[bit]), "{name}");
    }
    assert_eq!(op("not.pred %p1, %p2;"), Kind::MovPred { dst: 1, src: not(0) });
    assert_eq!(op("mov.pred %p1, %p2;"), Kind::MovPred { dst: 0, src: p(1) });
    assert_eq!(op("mov.pred %p1, 1;"), Kind::MovPred { dst: 0, src: PredSrc::Imm(true) });
    let Kind::Test { p: first, a, .. } = op("mov.pred %p1, %is_explicit_cluster;") else { panic!() };
    assert_eq!((first, a), (Some(0), Src::Special(SpecialRegister::IsExplicitCluster)));
}

#[test]
fn moves() {
    assert_eq!(op("mov.u32 %r1, %tid.x;"), Kind::Mov { dst: 0, src: Src::Special(SpecialRegister::TidX) });
    assert_eq!(
        op("mov.b64 %rd1, {%r1, 7};"),
        Kind::Pack { dst: 0, parts: smallvec![Src::Reg(1), Src::Imm(7)], bits: 32 }
    );
    assert_eq!(
        op("mov.b32 {%h1, _}, %r1;"),
        Kind::Unpack { dst: smallvec![Some(0), None], src: Src::Reg(1), bits: 16 }
    );
    let Kind::Unpack { dst, bits, .. } = op("mov.b64 {%h1, %h2, %h3, %h4}, %rd1;") else { panic!() };
    assert_eq!((dst.len(), bits), (4, 16));
    let special = ops("mov.v4.u32 %v, %ctaid;");
    let expected =
        [SpecialRegister::CtaidX, SpecialRegister::CtaidY, SpecialRegister::CtaidZ, SpecialRegister::CtaidW];
    let expected: Vec<_> =
        (0..).zip(expected).map(|(dst, special)| Kind::Mov { dst, src: Src::Special(special) }).collect();
    assert_eq!(special, expected);
    assert!(matches!(op("mov.v2.u32 {%r1, %r2}, {%r2, %r1};"), Kind::Unsupported(_)));
    assert_eq!(
        op("createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000;"),
        Kind::Mov { dst: 0, src: Src::Imm(0) }
    );
}

#[test]
fn addresses() {
    let cvta = |space, to_space| Kind::Cvta { dst: 1, src: Src::Reg(0), space, to_space };
    assert_eq!(op("cvta.global.u64 %rd1, %rd2;"), cvta(Space::Global, false));
    assert_eq!(op("cvta.to.shared.u64 %rd1, %rd2;"), cvta(Space::SharedCta, true));
    assert_eq!(
        op("isspacep.shared::cluster %p1, %rd1;"),
        Kind::Isspacep { dst: 0, src: Src::Reg(0), space: Space::SharedCluster }
    );
    assert_eq!(
        op("mapa.shared::cluster.u32 %r1, %r2, 3;"),
        Kind::Mapa { dst: 1, address: Src::Reg(0), rank: Src::Imm(3), generic: false }
    );
    assert_eq!(
        op("getctarank.u64 %r1, %rd1;"),
        Kind::Getctarank { dst: 1, address: Src::Reg(0), generic: true }
    );
}

#[test]
fn loads_and_stores() {
    let access = |space, ty, count, strength| Access { space, address: at(0, 4), ty, count, strength };
    assert_eq!(
        op("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f32 {%f1, _}, [%rd1+4], %rd2;"),
        Kind::Load {
            access: access(Space::Global, Type::F32, 2, WEAK),
            dst: smallvec![Some(1), None],
            bits: 32
        }
    );
    assert_eq!(
        op("ld.s8 %r1, [%rd1+4];"),
        Kind::Load { access: access(Space::Generic, Type::S8, 1, WEAK), dst: smallvec![Some(1)], bits: 32 }
    );
    let Kind::Load { dst, .. } = op("ld.global.v4.u32 %v, [%rd1];") else { panic!() };
    assert_eq!(dst.as_slice(), [Some(1), Some(2), Some(3), Some(4)]);
    let Kind::Load { access: wide, dst, .. } = op("ld.global.b128 %q1, [%rd1];") else { panic!() };
    assert_eq!((wide.ty, wide.count, dst.as_slice()), (Type::B64, 2, &[Some(1), Some(2)][..]));
    let Kind::Load { access: absolute, .. } = op("ld.shared.u32 %r1, [64];") else { panic!() };
    assert_eq!(absolute.address, Address { base: Src::Imm(64), offset: 0 });
    for (words, strength) in [
        ("volatile", strong(Order::Relaxed, Scope::Sys)),
        ("relaxed.cta", strong(Order::Relaxed, Scope::Cta)),
        ("acquire.gpu", strong(Order::Acquire, Scope::Gpu)),
        ("mmio.relaxed.sys", strong(Order::Relaxed, Scope::Sys)),
        ("weak", WEAK),
    ] {
        let Kind::Load { access, .. } = op(&format!("ld.{words}.global.u32 %r1, [%rd1];")) else { panic!() };
        assert_eq!(access.strength, strength, "{words}");
    }
    assert_eq!(
        op("st.release.cluster.shared::cluster.u32 [%r1+4], 5;"),
        Kind::Store {
            access: access(Space::SharedCluster, Type::U32, 1, strong(Order::Release, Scope::Cluster)),
            src: smallvec![Src::Imm(5)],
        }
    );
    let Kind::Store { src, .. } = op("st.global.v4.f32 [%rd1], {%f1, 0f3F800000, %f1, %f2};") else {
        panic!()
    };
    assert_eq!(src.as_slice(), [Src::Reg(1), Src::Imm(0x3F80_0000), Src::Reg(1), Src::Reg(2)]);
    let Kind::Store { access, src } = op("st.shared.b128 [%r1], %q1;") else { panic!() };
    assert_eq!((access.ty, access.count, src.as_slice()), (Type::B64, 2, &[Src::Reg(1), Src::Reg(2)][..]));
    assert_eq!(op("prefetch.global.L2 [%rd1];"), Kind::Nop);
    assert_eq!(op("discard.global.L2 [%rd1], 128;"), Kind::Nop);
    assert_eq!(
        ops("stacksave.u64 %rd1; alloca.u64 %rd2, 16; stackrestore.u64 %rd1;"),
        [
            Kind::StackSave { dst: 0 },
            Kind::Alloca { dst: 1, bytes: Src::Imm(16) },
            Kind::StackRestore { src: Src::Reg(0) },
        ]
    );
}

#[test]
fn atomics() {
    let Kind::Atomic { access, combine, dst, value, compare } = op("atom.global.add.u32 %r1, [%rd1+4], 1;")
    else {
        panic!()
    };
    assert_eq!((access.address, access.space, access.count), (at(0, 4), Space::Global, 1));
    assert_eq!(access.strength, strong(Order::Relaxed, Scope::Gpu));
    assert_eq!(
        (combine, dst, value.as_slice(), compare),
        (Combine::Add, Some(smallvec![1]), &[Src::Imm(1)][..], None)
    );
    let Kind::Atomic { access, combine, value, compare, .. } =
        op("atom.acq_rel.sys.cas.b64 %rd1, [%rd2], %rd3, %rd4;")
    else {
        panic!()
    };
    assert_eq!((access.strength, combine), (strong(Order::AcqRel, Scope::Sys), Combine::Cas));
    assert_eq!((value.as_slice(), compare), (&[Src::Reg(1)][..], Some(Src::Reg(2))));
    let Kind::Atomic { dst, value, .. } =
        op("red.relaxed.gpu.global.add.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};")
    else {
        panic!()
    };
    assert_eq!((dst, value.len()), (None, 4));
    let Kind::Atomic { dst, .. } = op("atom.shared.exch.b32 _, [%r1], 1;") else { panic!() };
    assert_eq!(dst, None);
    let Kind::Atomic { access, dst, value, compare, .. } = op("atom.cas.b128 %q1, [%rd1], %q2, %q3;") else {
        panic!()
    };
    assert_eq!((access.ty, access.count), (Type::B128, 1));
    assert_eq!(value.as_slice(), [Src::Reg(1), Src::Reg(2)]);
    assert_eq!((compare, dst), (Some(Src::Reg(3)), Some(smallvec![5, 6])));
}

#[test]
fn warps() {
    let all = Src::Imm(0xFFFF_FFFF);
    assert_eq!(
        op("shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 0x1f, -1;"),
        Kind::Shfl {
            mode: Shuffle::Bfly,
            dst: 1,
            p: Some(0),
            a: Src::Reg(0),
            b: Src::Imm(16),
            c: Src::Imm(31),
            mask: all
        }
    );
    let Kind::Shfl { mode, p: q, mask, .. } = op("shfl.down.b32 %r1, %r2, 16, 31;") else { panic!() };
    assert_eq!((mode, q, mask), (Shuffle::Down, None, all));
    assert_eq!(
        op("vote.sync.ballot.b32 %r1, !%p1, %r2;"),
        Kind::Vote { vote: Vote::Ballot(1), a: not(0), mask: Src::Reg(0) }
    );
    assert_eq!(op("vote.all.pred %p1, %p2;"), Kind::Vote { vote: Vote::All(1), a: p(0), mask: all });
    assert_eq!(
        op("match.all.sync.b64 %r1|%p1, %rd1, -1;"),
        Kind::Match { all: true, dst: 1, p: Some(0), a: Src::Reg(0), bits: 64, mask: all }
    );
    let Kind::Match { all: every, bits, .. } = op("match.any.sync.b32 %r1, %r2, -1;") else { panic!() };
    assert_eq!((every, bits), (false, 32));
    assert_eq!(
        op("redux.sync.max.s32 %r1, %r2, -1;"),
        Kind::Redux { combine: Combine::Max, ty: Type::S32, dst: 1, a: Src::Reg(0), mask: all }
    );
    assert_eq!(op("activemask.b32 %r1;"), Kind::Activemask { dst: 0 });
    assert_eq!(op("elect.sync _|%p1, -1;"), Kind::Elect { dst: None, p: 0, mask: all });
    assert_eq!(op("bar.warp.sync 15;"), Kind::WarpSync { mask: Src::Imm(15) });
}

#[test]
fn barriers() {
    let bar = |threads, mode, aligned| Kind::Bar { id: Src::Imm(1), threads, mode, aligned };
    assert_eq!(op("bar.sync 1;"), bar(None, BarMode::Sync, true));
    assert_eq!(op("barrier.sync 1, 64;"), bar(Some(Src::Imm(64)), BarMode::Sync, false));
    assert_eq!(op("barrier.cta.arrive.aligned 1, 64;"), bar(Some(Src::Imm(64)), BarMode::Arrive, true));
    assert_eq!(op("bar.red.popc.u32 %r1, 1, !%p1;"), bar(None, BarMode::Popc(0, not(0)), true));
    assert_eq!(op("bar.red.and.pred %p1, 1, 64, %p2;"), bar(Some(Src::Imm(64)), BarMode::And(1, p(0)), true));
    assert_eq!(op("barrier.red.or.pred %p1, 1, %p2;"), bar(None, BarMode::Or(1, p(0)), false));
    assert_eq!(op("barrier.cluster.arrive;"), Kind::ClusterArrive { release: true, aligned: false });
    assert_eq!(
        op("barrier.cluster.arrive.relaxed.aligned;"),
        Kind::ClusterArrive { release: false, aligned: true }
    );
    assert_eq!(
        op("barrier.cluster.wait.acquire.aligned;"),
        Kind::ClusterWait { acquire: true, aligned: true }
    );
}

#[test]
fn fences() {
    let thread = |order, scope| Fence::Thread(strong(order, scope));
    for (text, fence) in [
        ("fence.acq_rel.gpu", thread(Order::AcqRel, Scope::Gpu)),
        ("fence.sc.cta", thread(Order::Sc, Scope::Cta)),
        ("fence.cluster", thread(Order::AcqRel, Scope::Cluster)),
        ("membar.gl", thread(Order::Sc, Scope::Gpu)),
        ("membar.sys", thread(Order::Sc, Scope::Sys)),
        ("fence.proxy.async", Fence::ProxyAsync(None)),
        ("fence.proxy.async.shared::cta", Fence::ProxyAsync(Some(Space::SharedCta))),
        ("fence.proxy.async.global", Fence::ProxyAsync(Some(Space::Global))),
        ("fence.proxy.alias", Fence::ProxyOther),
        ("fence.mbarrier_init.release.cluster", Fence::MbarrierInit),
        (
            "fence.proxy.tensormap::generic.release.gpu",
            Fence::ProxyTensormap(strong(Order::Release, Scope::Gpu), None),
        ),
        (
            "fence.proxy.tensormap::generic.acquire.sys [%rd1], 128",
            Fence::ProxyTensormap(strong(Order::Acquire, Scope::Sys), Some(at(0, 0))),
        ),
    ] {
        assert_eq!(op(&format!("{text};")), Kind::Fence(fence), "{text}");
    }
}

#[test]
fn mbarriers() {
    let on = |op, space| Kind::Mbarrier { op, address: at(0, 8), space };
    assert_eq!(op("mbarrier.init.shared.b64 [%r1+8], 3;"), on(Mbarrier::Init(Src::Imm(3)), Space::SharedCta));
    assert_eq!(op("mbarrier.inval.b64 [%rd1+8];"), on(Mbarrier::Inval, Space::Generic));
    let arrive = Mbarrier::Arrive {
        state: None,
        count: None,
        expect_tx: None,
        drop: false,
        no_complete: false,
        strength: strong(Order::Release, Scope::Cta),
    };
    assert_eq!(op("mbarrier.arrive.shared::cta.b64 _, [%r1+8];"), on(arrive, Space::SharedCta));
    let Kind::Mbarrier { op: Mbarrier::Arrive { state, count, expect_tx, strength, .. }, space, .. } =
        op("mbarrier.arrive.expect_tx.relaxed.cluster.shared::cluster.b64 _, [%r1], %r2;")
    else {
        panic!()
    };
    assert_eq!((state, count, expect_tx, space), (None, None, Some(Src::Reg(1)), Space::SharedCluster));
    assert_eq!(strength, strong(Order::Relaxed, Scope::Cluster));
    let Kind::Mbarrier { op: Mbarrier::Arrive { state, count, drop, no_complete, .. }, .. } =
        op("mbarrier.arrive_drop.noComplete.shared.b64 %rd1, [%r1], 2;")
    else {
        panic!()
    };
    assert_eq!((state, count, drop, no_complete), (Some(1), Some(Src::Imm(2)), true, true));
    assert_eq!(
        op("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1+8], 64;"),
        on(Mbarrier::ExpectTx(Src::Imm(64)), Space::SharedCta)
    );
    let wait = |parity, suspend, scope| Mbarrier::Wait {
        done: 0,
        phase: Src::Reg(1),
        parity,
        suspend,
        strength: strong(Order::Acquire, scope),
    };
    assert_eq!(
        op("mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1+8], %r2, 1000;"),
        on(wait(true, true, Scope::Cluster), Space::SharedCta)
    );
    assert_eq!(
        op("mbarrier.test_wait.shared.b64 %p1, [%r1+8], %rd1;"),
        on(wait(false, false, Scope::Cta), Space::SharedCta)
    );
    assert_eq!(
        op("mbarrier.pending_count.b64 %r1, %rd1;"),
        Kind::MbarrierPending { dst: 1, state: Src::Reg(0) }
    );
}

#[test]
fn asynchronous_copies() {
    let copy = |bytes, read, ignore| Kind::CpAsync { dst: at(0, 0), src: at(1, 16), bytes, read, ignore };
    assert_eq!(op("cp.async.cg.shared.global [%r1], [%rd1+16], 16;"), copy(16, None, None));
    assert_eq!(
        op("cp.async.ca.shared.global.L2::cache_hint.L2::128B [%r1], [%rd1+16], 8, %r2, %rd2;"),
        copy(8, Some(Src::Reg(2)), None)
    );
    assert_eq!(op("cp.async.ca.shared.global [%r1], [%rd1+16], 4, !%p1;"), copy(4, None, Some(not(0))));
    assert_eq!(op("cp.async.ca.shared.global [%r1], [%rd1+16], 4, %p1;"), copy(4, None, Some(p(0))));
    assert!(matches!(op("cp.async.ca.shared.global [%r1], [%rd1], 5;"), Kind::Unsupported(_)));
    assert_eq!(op("cp.async.commit_group;"), Kind::CpAsyncCommit);
    assert_eq!(op("cp.async.wait_group 2;"), Kind::CpAsyncWait { pending: 2, all: false });
    assert_eq!(op("cp.async.wait_all;"), Kind::CpAsyncWait { pending: 0, all: true });
    assert_eq!(
        op("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];"),
        Kind::CpAsyncMbarrier { address: at(0, 0), space: Space::SharedCta, noinc: true }
    );
}

#[test]
fn bulk_copies() {
    let done = "mbarrier::complete_tx::bytes";
    assert_eq!(
        op(&format!(
            "cp.async.bulk.shared::cluster.global.{done}.multicast::cluster.L2::cache_hint [%r1], [%rd1], %r2, [%r3], %h1, %rd2;"
        )),
        Kind::Bulk(Bulk::Load {
            dst: at(0, 0),
            dst_space: Space::SharedCluster,
            src: at(1, 0),
            bytes: Src::Reg(2),
            mbarrier: at(3, 0),
            multicast: Some(Src::Reg(4)),
        })
    );
    assert_eq!(
        op(&format!(
            "cp.reduce.async.bulk.shared::cluster.shared::cta.{done}.add.u32 [%r1], [%r2], 16, [%r3];"
        )),
        Kind::Bulk(Bulk::Push {
            dst: at(0, 0),
            src: at(1, 0),
            bytes: Src::Imm(16),
            mbarrier: at(2, 0),
            combine: Some((Combine::Add, Type::U32)),
        })
    );
    assert_eq!(
        op("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%rd1], [%r1], 32;"),
        Kind::Bulk(Bulk::Store {
            dst: at(0, 0),
            src: at(1, 0),
            bytes: Src::Imm(32),
            combine: Some((Combine::Add, Type::Bf16)),
            mask: None,
        })
    );
    assert_eq!(op("cp.async.bulk.commit_group;"), Kind::Bulk(Bulk::Commit));
    assert_eq!(op("cp.async.bulk.wait_group.read 1;"), Kind::Bulk(Bulk::Wait { pending: 1, read: true }));
    assert_eq!(op("cp.async.bulk.prefetch.L2.global [%rd1], 64;"), Kind::Nop);
}

#[test]
fn tensor_copies() {
    let done = "mbarrier::complete_tx::bytes";
    let map = Address { base: Src::Imm(window::PARAM), offset: 0 };
    assert_eq!(
        op(&format!(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.{done} [%r1], [p, {{%r2, 64}}], [%r3];"
        )),
        Kind::Bulk(Bulk::TensorLoad {
            dst: at(0, 0),
            dst_space: Space::SharedCluster,
            map,
            coordinates: vec![Src::Reg(1), Src::Imm(64)],
            mbarrier: at(2, 0),
            multicast: None,
            mode: TensorMode::Tile,
        })
    );
    let Kind::Bulk(Bulk::TensorLoad { mode, multicast, .. }) = op(&format!(
        "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.{done}.multicast::cluster [%r1], [%rd1, {{%r2, %r2, %r2}}], [%r3], {{%h1}}, %h2;"
    )) else {
        panic!()
    };
    assert_eq!((mode, multicast), (TensorMode::Im2col(vec![Src::Reg(4)]), Some(Src::Reg(5))));
    let Kind::Bulk(Bulk::TensorStore { map, coordinates, src, combine, mode }) =
        op("cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%rd1, {%r1}], [%r2];")
    else {
        panic!()
    };
    assert_eq!((map, coordinates, src), (at(0, 0), vec![Src::Reg(1)], at(2, 0)));
    assert_eq!((combine, mode), (Some(Combine::Add), TensorMode::Tile));
    let wrong = op("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2];");
    assert!(matches!(wrong, Kind::Unsupported(_)), "two coordinates are missing one");
    let Kind::TensormapReplace { address, space, ordinal, value, .. } =
        op("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r1], 2, %r2;")
    else {
        panic!()
    };
    assert_eq!((address, space, ordinal, value), (at(0, 0), Space::SharedCta, 2, Src::Reg(1)));
    assert_eq!(
        op(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r1], 128;"
        ),
        Kind::TensormapPublish { dst: at(0, 0), src: at(1, 0), strength: strong(Order::Release, Scope::Gpu) }
    );
}

#[test]
fn matrices() {
    assert_eq!(
        op("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%r1, %r2}, [%r3+32];"),
        Kind::Ldmatrix {
            dst: smallvec![1, 2],
            address: at(0, 32),
            space: Space::SharedCta,
            transposed: true
        }
    );
    assert_eq!(
        op("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r1], {%r2};"),
        Kind::Stmatrix {
            address: at(0, 0),
            space: Space::SharedCta,
            src: smallvec![Src::Reg(1)],
            transposed: false
        }
    );
    assert_eq!(
        op("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;"),
        Kind::Movmatrix { dst: 1, src: Src::Reg(0) }
    );
    let Kind::Mma { d, a, b, c, sparse, .. } = op(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f1,%f2,%f3,%f4};",
    ) else {
        panic!()
    };
    assert_eq!((d.len(), a.len(), b.len(), c.len(), sparse), (4, 4, 2, 4, None));
    assert_eq!(c, d.into_iter().map(Src::Reg).collect::<Vec<_>>());
    let Kind::WmmaLoad { dst, address, space, stride, .. } =
        op("wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {%r1,%r2,%r3,%r4}, [%r5], 16;")
    else {
        panic!()
    };
    assert_eq!((dst.len(), address, space, stride), (4, at(0, 0), Space::SharedCta, Some(Src::Imm(16))));
    assert_eq!(
        op("setmaxnreg.inc.sync.aligned.u32 232;"),
        Kind::Setmaxnreg { increase: true, registers: 232 }
    );
}

#[test]
fn warpgroups() {
    let list = |kind: &str, count: u32| {
        let names: Vec<String> = (1..=count).map(|i| format!("%{kind}{i}")).collect();
        format!("{{{}}}", names.join(","))
    };
    let wgmma = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16";
    let Kind::Wgmma { d, a, b, scale_d, negate_a, negate_b, transpose_a, transpose_b, .. } =
        op(&format!("{wgmma} {}, %rd1, %rd2, %p1, 1, -1, 0, 1;", list("f", 4)))
    else {
        panic!()
    };
    assert_eq!((d, a, b), (vec![0, 1, 2, 3], WgmmaA::Descriptor(Src::Reg(4)), Src::Reg(5)));
    assert_eq!((scale_d, negate_a, negate_b, transpose_a, transpose_b), (p(0), false, true, false, true));
    let Kind::Wgmma { a, scale_d, transpose_b, .. } =
        op(&format!("{wgmma} {}, {}, %rd2, 0, 1, 1, 1;", list("f", 4), list("r", 4)))
    else {
        panic!()
    };
    assert_eq!(a, WgmmaA::Registers([4, 5, 6, 7].map(Src::Reg)));
    assert_eq!((scale_d, transpose_b), (PredSrc::Imm(false), true));
    let wrong = op(&format!("{wgmma} {}, %rd1, %rd2, 1, 2, 1, 0, 0;", list("f", 4)));
    assert!(matches!(&wrong, Kind::Unsupported(what) if what.contains("scales by 1 or -1")), "{wrong:?}");
    assert_eq!(
        ops("wgmma.fence.sync.aligned; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;"),
        [Kind::WgmmaFence, Kind::WgmmaCommit, Kind::WgmmaWait { pending: 1 }]
    );
}

#[test]
fn what_is_not_supported_says_why() {
    for (text, why) in [
        ("tcgen05.wait::ld.sync.aligned;", "Blackwell"),
        ("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f1, %f2}];", "textures"),
        ("vadd.s32.s32.s32 %r1, %r2, %r3;", "video"),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], 1;", "with an mbarrier only"),
        ("multimem.red.add.u32 [%rd1], 1;", "several devices"),
        ("mul.wide.u32 %r1, %r2, %r3;", "does not take these operands"),
        ("ld.global.u64 %r1, [%rd1];", "does not take these operands"),
        ("add.u32 %r1, %r2;", "does not take these operands"),
        ("ld.global.v4.u32 {%r1, %r2}, [%rd1];", "does not take these operands"),
        ("ld.global.u32 %r1, %r2;", "does not take these operands"),
        ("mov.u32 %r1, %p1;", "does not take these operands"),
        ("add.pred %p1, %p1, %p1;", "modifiers"),
        ("redux.sync.add.f32 %f1, %f2, -1;", "modifiers"),
    ] {
        let Kind::Unsupported(what) = op(text) else { panic!("{text}: {:?}", op(text)) };
        assert!(what.contains(why), "{text}: {what}");
    }
}
