"""Barriers in memory: what a thread sees of their phases and counts."""
from common import Module, numbers


class Bar:
    """Puts what one thread sees of a barrier."""

    def __init__(self, k, at):
        self.k, self.at = k, at

    def init(self, count):
        self.k(f"mbarrier.init.shared::cta.b64 [{self.at}], {count};")

    def state(self, op, *operands):
        """An operation that gives a state; puts the pending count of it."""
        s, n = self.k.new("rd"), self.k.new("r")
        self.k(f"mbarrier.{op}.b64 {s}, [{self.at}]{''.join(', ' + str(x) for x in operands)};")
        self.k(f"mbarrier.pending_count.b64 {n}, {s};")
        self.k.put(n)
        return s

    def tests(self, *states):
        for parity in (0, 1):
            p = self.k.new("p")
            self.k(f"mbarrier.test_wait.parity.shared::cta.b64 {p}, [{self.at}], {parity};")
            self.k.put_pred(p)
        for s in states:
            p = self.k.new("p")
            self.k(f"mbarrier.test_wait.shared::cta.b64 {p}, [{self.at}], {s};")
            self.k.put_pred(p)

    def tries(self, *states):
        """With a time after which to give up."""
        for parity in (0, 1):
            p = self.k.new("p")
            self.k(f"mbarrier.try_wait.parity.shared::cta.b64 {p}, [{self.at}], {parity}, 100;")
            self.k.put_pred(p)
        for s in states:
            p = self.k.new("p")
            self.k(f"mbarrier.try_wait.shared::cta.b64 {p}, [{self.at}], {s}, 100;")
            self.k.put_pred(p)

    def poll(self, parity):
        """Until the phase is over, but not for ever; puts whether."""
        k = self.k
        n, p, q = k.new("r"), k.new("p"), k.new("p")
        head, end = k.label(), k.label()
        k(f"mov.u32 {n}, 0;\n{head}:\nmbarrier.test_wait.parity.shared::cta.b64 {p}, [{self.at}], {parity};\n@{p} bra {end};")
        k(f"add.u32 {n}, {n}, 1;\nsetp.lt.u32 {q}, {n}, 4000;\n@{q} bra {head};\n{end}:")
        k.put_pred(p)


def start(k):
    k(".reg .b32 %bar;\nmov.u32 %bar, smem;")
    return Bar(k, "%bar")


def one(m, name, body, params=("out",), args=("out",), threads=1, **more):
    k = m.kernel(name, list(params))
    body(k, start(k))
    m.case(name, name, list(args), block=[threads, 1, 1], shared=1024, **more)


def make():
    m = Module("sync")

    def rounds(k, b):
        b.init(2)
        states = []
        b.tests()
        b.tries()
        for _ in range(3):
            states.append(b.state("arrive.shared::cta"))
            b.tests(*states[-3:])
            states.append(b.state("arrive.shared::cta"))
            b.tests(*states[-2:])
            b.tries(*states[-2:])

    one(m, "rounds", rounds)

    def old(k, b):
        b.init(1)
        first = b.state("arrive.shared::cta")
        for _ in range(4):
            b.tests(first)
            b.state("arrive.shared::cta")

    # A state of an earlier phase than the last.
    one(m, "old_state", old, undefined=True)

    def counts(k, b):
        b.init(10)
        for n in (1, 3, 2):
            b.tests(b.state("arrive.shared::cta", n))
        b.tests(b.state("arrive.noComplete.shared::cta", 2))
        b.tests(b.state("arrive.shared::cta", 2))
        b.tests(b.state("arrive.shared::cta", 10))
        b.state("arrive.shared::cta", 9)

    one(m, "counts", counts)

    def drops(k, b):
        b.init(4)
        b.tests(b.state("arrive_drop.shared::cta"))
        b.tests(b.state("arrive.shared::cta", 3))
        # Three from here on.
        b.tests(b.state("arrive.shared::cta", 2))
        b.tests(b.state("arrive_drop.shared::cta"))
        b.tests(b.state("arrive.shared::cta"))
        b.tests(b.state("arrive.shared::cta"))
        b.tests(b.state("arrive_drop.noComplete.shared::cta", 1))
        b.tests(b.state("arrive.shared::cta"))
        b.tests(b.state("arrive.shared::cta"))

    one(m, "drops", drops)

    def transactions(k, b):
        b.init(1)
        k("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 64;")
        b.tests(b.state("arrive.shared::cta"))
        k("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 48;")
        b.tests()
        k("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 16;")
        b.tests()
        b.tests(b.state("arrive.expect_tx.shared::cta", 32))
        k("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 32;")
        b.tests()
        # Bytes that come before they are announced.
        k("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 128;")
        b.tests()
        k("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 128;")
        b.tests()
        b.tests(b.state("arrive.shared::cta"))
        b.tests(b.state("arrive.expect_tx.shared::cta", 0))
        b.tests(b.state("arrive_drop.expect_tx.shared::cta", 16))
        k("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 16;")
        b.tests()

    one(m, "transactions", transactions)

    def announced(before):
        def body(k, b):
            b.init(1)
            k("fence.mbarrier_init.release.cluster;\nfence.proxy.async;")
            word = k.new("r")
            copy = (f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+128], [%src], 256, [%bar];")
            if before:
                k("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 256;")
            k(copy)
            if not before:
                k("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 256;")
            b.state("arrive.shared::cta")
            b.poll(0)
            b.tests()
            for at in (128, 380):
                k(f"ld.shared.b32 {word}, [smem+{at}];")
                k.put(word)
            # A second round of the same barrier.
            b.state("arrive.expect_tx.shared::cta", 16)
            k("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [smem+512], [%src], 16, [%bar];")
            b.poll(1)
            b.tests()
        return body

    one(m, "announced_before", announced(True), ("out", "src"), ("out", numbers("bytes", 256, 61)))
    one(m, "announced_after", announced(False), ("out", "src"), ("out", numbers("bytes", 256, 61)))

    def copies(noinc, count):
        def body(k, b):
            b.init(count)
            word = k.new("r")
            k("cp.async.ca.shared.global [smem+128], [%src], 16;\ncp.async.cg.shared.global [smem+144], [%src+16], 16;")
            k("cp.async.ca.shared.global [smem+160], [%src+32], 8, 3;\ncp.async.ca.shared.global [smem+168], [%src+40], 4, 0;")
            k(f"cp.async.mbarrier.arrive{'.noinc' if noinc else ''}.shared::cta.b64 [%bar];\ncp.async.wait_all;")
            if noinc and count == 1:
                b.poll(0)
                b.tests()
            else:
                # When the arrival of the copies happens is not defined, so that the count here is not put.
                k("mbarrier.arrive.shared::cta.b64 _, [%bar];")
                b.poll(0)
                b.tests()
                b.state("arrive.shared::cta", count)
                b.tests()
            for at in range(128, 172, 4):
                k(f"ld.shared.b32 {word}, [smem+{at}];")
                k.put(word)
        return body

    one(m, "copies_noinc1", copies(True, 1), ("out", "src"), ("out", numbers("bytes", 256, 61)))
    one(m, "copies_inc1", copies(False, 1), ("out", "src"), ("out", numbers("bytes", 256, 61)))
    one(m, "copies_noinc2", copies(True, 2), ("out", "src"), ("out", numbers("bytes", 256, 61)))

    def inval(k, b):
        b.init(3)
        b.state("arrive.shared::cta")
        k("mbarrier.inval.shared::cta.b64 [%bar];")
        b.init(2)
        b.tests(b.state("arrive.shared::cta"))

    one(m, "inval", inval)

    def most(k, b):
        b.init((1 << 20) - 1)
        b.tests(b.state("arrive.shared::cta", 5))
        b.state("arrive.shared::cta", (1 << 20) - 6)
        b.tests()
        k("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%bar], 1048575;")
        b.tests(b.state("arrive.shared::cta", (1 << 20) - 1))
        k("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%bar], 1048575;")
        b.tests()

    one(m, "most", most)

    def lanes(k, b):
        """A whole warp arrives; lanes of a second one do."""
        t, p, q, s = k.new("r"), k.new("p"), k.new("p"), k.new("rd")
        k(f"mov.u32 {t}, %tid.x;\nsetp.eq.u32 {p}, {t}, 0;\n@{p} mbarrier.init.shared::cta.b64 [%bar], 40;\nbar.sync 0;")
        k(f"setp.lt.u32 {q}, {t}, 40;\n@{q} mbarrier.arrive.shared::cta.b64 {s}, [%bar];")
        b.poll(0)
        k("bar.sync 0;")
        b.tests()

    one(m, "lanes", lanes, threads=64)
    # Arrival at a barrier of a peer.
    k = m.kernel("remote")
    b = start(k)
    rank, far, p, other = k.new("r"), k.new("r"), k.new("p"), k.new("r")
    b.init(3)
    k("fence.mbarrier_init.release.cluster;\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    k(f"mov.u32 {rank}, %cluster_ctarank;\nxor.b32 {other}, {rank}, 1;\nmapa.shared::cluster.u32 {far}, %bar, {other};")
    k(f"mbarrier.arrive.release.cluster.shared::cluster.b64 _, [{far}];")
    k(f"mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [{far}], 8;")
    value = k.new("rd")
    k(f"mov.b64 {value}, 0x1122334455667788;\nst.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [{far}+64], {value}, [{far}];")
    k("mbarrier.arrive.shared::cta.b64 _, [%bar];")
    b.poll(0)
    b.tests()
    low, high = k.new("r", 2)
    k(f"ld.shared.b32 {low}, [%bar+64];\nld.shared.b32 {high}, [%bar+68];")
    k.put(low)
    k.put(high)
    k("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;")
    m.case("remote", "remote", ["out"], grid=[2, 1, 1], block=[1, 1, 1], cluster=[2, 1, 1], shared=1024)
    return [m]
