//! Findings: text, JSON, counting, and an order that does not depend on who found what first.

use crate::check::{Finding, FindingKind, Findings, Hazard, Key, Place, Proxy, Source, likely_fix};

fn race(line: u32) -> Finding {
    let source = |line, column| Some(Source { file: "src/kernels/reduce.rs".into(), line, column });
    let hazard = Hazard::ReadAfterWrite;
    let mut finding = Finding::new(
        FindingKind::Race,
        hazard.message("shared memory `tile`+128", "thread (33,0,0)", "thread (0,0,0)"),
        Place {
            line,
            instruction: "ld.shared.f32 %f3, [%r9];".into(),
            source: source(41, 17),
            block: [0; 3],
            thread: Some([33, 0, 0]),
            action: "reads 4 bytes".into(),
        },
    );
    finding.second = Some(Place {
        line: 79,
        instruction: "st.shared.f32 [%r8], %f2;".into(),
        source: source(38, 9),
        block: [0; 3],
        thread: Some([0; 3]),
        action: String::new(),
    });
    finding.fix = likely_fix(FindingKind::Race, Some((hazard, Proxy::Generic, Proxy::Generic))).into();
    finding.seed = 7;
    finding
}

#[test]
fn the_report_reads_well() {
    let finding = Finding { count: 31, ..race(87).in_file("kernel.ptx") };
    let expected = "\
race: shared memory `tile`+128 is read by thread (33,0,0) while thread (0,0,0) may still be writing it
  --> kernel.ptx:87: ld.shared.f32 %f3, [%r9];                (src/kernels/reduce.rs:41:17) block (0,0,0) thread (33,0,0): reads 4 bytes
  --> kernel.ptx:79: st.shared.f32 [%r8], %f2;                (src/kernels/reduce.rs:38:9) block (0,0,0) thread (0,0,0)
  = seed 7; seen 31 times
  = help: put a barrier (bar.sync / __syncthreads) between the write and the read";
    assert_eq!(finding.to_string(), expected);
}

#[test]
fn json_is_snake_case_and_comes_back() {
    let finding = Finding { kind: FindingKind::OverwrittenWhileRead, ..race(87) };
    let json = serde_json::to_string(&finding).unwrap();
    assert!(json.contains(r#""kind":"overwritten_while_read""#), "{json}");
    assert_eq!(serde_json::from_str::<Finding>(&json).unwrap(), finding);
}

#[test]
fn every_kind_and_every_conflict_has_advice_of_its_own() {
    let mut seen = std::collections::BTreeSet::new();
    for &kind in FindingKind::ALL {
        assert!(seen.insert(likely_fix(kind, None)), "{kind}");
    }
    let proxies = [Proxy::Generic, Proxy::Async];
    for hazard in [Hazard::ReadAfterWrite, Hazard::WriteAfterRead, Hazard::WriteAfterWrite] {
        for (earlier, later) in proxies.into_iter().flat_map(|e| proxies.map(|l| (e, l))) {
            let fix = likely_fix(FindingKind::Race, Some((hazard, earlier, later)));
            // Where the earlier side is asynchronous and the later writes, who writes makes no difference.
            let same = earlier == Proxy::Async && later == Proxy::Async && hazard != Hazard::ReadAfterWrite;
            assert_eq!(seen.insert(fix), !same, "{hazard:?} {earlier:?} {later:?}");
        }
    }
}

#[test]
fn the_outcome_does_not_depend_on_the_collector() {
    // 400 distinct findings, each seen several times by different clusters, spread over collectors in three ways.
    let all: Vec<(Key, u32)> = (0..2000u32)
        .map(|i| (Key { round: u64::from(i * 7919 % 2000), cluster: i % 13, sequence: 0 }, i * 31 % 400))
        .collect();
    let gather = |collectors: usize, of: &dyn Fn(usize) -> usize| {
        let mut parts = vec![Findings::default(); collectors];
        for (i, &(key, line)) in all.iter().enumerate() {
            parts[of(i)]
                .record(key, FindingKind::Race, line, Some(79), || Finding { seed: key.round, ..race(line) });
        }
        let mut sum = Findings::default();
        parts.into_iter().rev().for_each(|part| sum.merge(part));
        assert_eq!((sum.distinct(), sum.total(), sum.is_empty()), (400, 2000, false));
        sum.into_sorted()
    };
    let one = gather(1, &|_| 0);
    assert_eq!(one.len(), Findings::LIMIT);
    assert!(one.is_sorted_by_key(|finding| finding.seed) && one.iter().all(|finding| finding.count == 5));
    assert_eq!(one, gather(3, &|i| i % 3));
    assert_eq!(one, gather(7, &|i| i / 300));
}

#[test]
fn pushing_counts_what_was_counted() {
    let mut findings = Findings::default();
    let key = |round| Key { round, cluster: 0, sequence: 0 };
    findings.push(key(2), Finding { count: 4, ..race(1) });
    findings.push(key(1), Finding { seed: 99, ..race(1) });
    findings.push(key(3), race(2));
    let list = findings.into_sorted();
    assert_eq!(
        list.iter().map(|f| (f.first.line, f.count, f.seed)).collect::<Vec<_>>(),
        [(1, 5, 99), (2, 1, 7)]
    );
}
