//! Products of a warpgroup, with elements whose products are exact.

use tilewright_hardware::SwizzleMode;
use tilewright_sim::FindingKind::{
    AccumulatorInFlight, Deadlock, MissingProxyFence, NeverEnds, OverwrittenWhileRead, Race,
    UninitialisedRead, WrongExpectTx,
};
use tilewright_sim::tensor::tensor_map::DataType;

use crate::case::Case;
use crate::numbers::{Random, bfloats, halves, product};

const FILES: [&str; 2] = ["wgmma_sm90a", "wgmma_sm90a_lineinfo"];

pub(crate) fn cases() -> Vec<Case> {
    let mut random = Random::new(13);
    let case = |entry| Case::new(&FILES, entry);
    let mut cases = Vec::new();

    let (a, b) = (random.quarters(64 * 128), random.quarters(64 * 128));
    let by_hand = |entry| case(entry).block(128, 1).input(&halves(&a)).input(&halves(&b));
    let c = product(&a, |k, n| b[n * 128 + k], [64, 64, 128]);
    cases.push(by_hand("group_product").near::<f32>(&c, 0.0, 0.0).u32(128));
    let c = product(&a, |k, n| b[k * 64 + n], [64, 64, 128]);
    cases.push(by_hand("group_product_turned").near::<f32>(&c, 0.0, 0.0).u32(128));
    let bytes = 64 * 64 * 4;
    cases.push(by_hand("group_product_no_proxy_fence").poison(bytes).u32(128).finds(&[MissingProxyFence]));
    cases.push(
        by_hand("group_product_no_wait")
            .poison(bytes)
            .u32(128)
            .finds(&[AccumulatorInFlight, OverwrittenWhileRead]),
    );

    let c = product(&a[..1024], |k, n| b[n * 64 + k], [64, 64, 16]);
    let registers =
        case("group_product_registers").block(128, 1).input(&bfloats(&a[..1024])).input(&bfloats(&b[..4096]));
    cases.push(registers.near::<f32>(&c, 0.0, 0.0));

    let (m, n, k) = (128, 64, 384);
    let (a, b) = (random.quarters(m * k), random.quarters(n * k));
    let c = product(&a, |l, j| b[j * k + l], [m, n, k]);
    let loaded = |entry| {
        let case = case(entry).grid(1, 2).block(256, 1).shared(3 * 16384);
        let map = |case: Case, of: usize, rows: usize| {
            case.matrix_map(
                of,
                DataType::F16,
                [k as u64, rows as u64],
                k as u64 * 2,
                [64, 64],
                SwizzleMode::B128,
            )
        };
        let case = case.input(&halves(&a)).held().input(&halves(&b)).held();
        map(map(case, 0, m), 1, n)
    };
    let sizes = |case: Case| case.u32(n as u32).u32(k as u32);
    cases.push(sizes(loaded("pipelined_product").near::<f32>(&c, 0.0, 0.0)));
    let unready = [Race, UninitialisedRead, OverwrittenWhileRead];
    for (entry, kinds) in [
        ("pipelined_product_released_early", &[OverwrittenWhileRead, Race, AccumulatorInFlight][..]),
        ("pipelined_product_no_wait", &unready),
        ("pipelined_product_too_few_bytes", &[WrongExpectTx, Race, OverwrittenWhileRead]),
        ("pipelined_product_wrong_parity", &[Deadlock, NeverEnds]),
    ] {
        cases.push(sizes(loaded(entry).poison(m * n * 4)).finds(kinds));
    }
    cases
}
