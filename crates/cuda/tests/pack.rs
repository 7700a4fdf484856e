//! Packs: what goes in comes out, the right kernel is chosen, and no damaged byte is ever believed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use sha2::{Digest, Sha256};
use tilewright_cuda::{
    ComputeCapability, Form, Key, Pack, PackBuilder, PackError, PackedKernel, PackedKernelRef, PackedVariant,
};

fn kernel(name: &str, target: &str, form: Form) -> PackedKernel {
    PackedKernel {
        name: name.into(),
        target: target.parse().unwrap(),
        form,
        code: format!("{form} of {name} for {target}").into(),
        signatures: format!("{name}(u64, u32)"),
        shared_dynamic: 1 << 16,
        block: Some([128, 2, 1]),
        cluster: None,
        overlaps: false,
        producer: "tilewright 0.1".into(),
        source: None,
        variant: None,
    }
}

fn pack(kernels: impl IntoIterator<Item = PackedKernel>) -> Vec<u8> {
    kernels.into_iter().fold(PackBuilder::new(), PackBuilder::kernel).write()
}

fn owned(kernel: &PackedKernelRef<'_>) -> PackedKernel {
    PackedKernel {
        name: kernel.name.into(),
        target: kernel.target,
        form: kernel.form,
        code: kernel.code.into(),
        signatures: kernel.signatures.into(),
        shared_dynamic: kernel.shared_dynamic,
        block: kernel.block,
        cluster: kernel.cluster,
        overlaps: kernel.overlaps,
        producer: kernel.producer.into(),
        source: kernel.source,
        variant: kernel.variant.map(|variant| PackedVariant {
            facts: variant.facts.into(),
            maps: variant.maps.into(),
            resident: variant.resident,
        }),
    }
}

/// The bytes with another checksum, as a careless or hostile writer would make them.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 32;
    let checksum = Sha256::digest(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum);
    bytes
}

#[test]
fn the_best_kernel_for_each_chip_is_chosen() {
    use Form::{Cubin, Ptx};
    const ALL: &[(&str, Form)] = &[
        ("sm_80", Cubin),
        ("sm_86", Cubin),
        ("sm_90", Cubin),
        ("sm_90a", Cubin),
        ("sm_100f", Cubin),
        ("sm_75", Ptx),
        ("sm_80", Ptx),
        ("sm_90a", Ptx),
        ("sm_100f", Ptx),
        ("sm_120a", Ptx),
    ];
    // What is in the pack, the chip, and what it gets.
    type Case = (&'static [(&'static str, Form)], (u32, u32), Option<(&'static str, Form)>);
    let cases: &[Case] = &[
        (ALL, (8, 0), Some(("sm_80", Cubin))),
        (ALL, (8, 6), Some(("sm_86", Cubin))),
        (ALL, (8, 9), Some(("sm_86", Cubin))),
        (ALL, (9, 0), Some(("sm_90a", Cubin))),
        (ALL, (7, 5), Some(("sm_75", Ptx))),
        (ALL, (7, 0), None),
        (ALL, (10, 0), Some(("sm_100f", Cubin))),
        // A family's cubin is for its own chip only, its PTX for the later ones too.
        (ALL, (10, 3), Some(("sm_100f", Ptx))),
        (ALL, (12, 0), Some(("sm_120a", Ptx))),
        // An `a` target does not run on the next chip; older plain PTX does.
        (ALL, (12, 1), Some(("sm_80", Ptx))),
        (&[("sm_90a", Cubin), ("sm_90a", Ptx)], (9, 1), None),
        (&[("sm_90a", Cubin), ("sm_90a", Ptx)], (10, 0), None),
        (&[("sm_90", Cubin), ("sm_80", Ptx)], (10, 0), Some(("sm_80", Ptx))),
        (&[("sm_89", Cubin)], (8, 6), None),
        (&[("sm_89", Ptx)], (8, 6), None),
        (&[("sm_103f", Ptx)], (10, 0), None),
        (&[("sm_100f", Ptx)], (12, 0), None),
        (&[("sm_90", Ptx), ("sm_90a", Ptx)], (9, 0), Some(("sm_90a", Ptx))),
        (&[("sm_90", Cubin), ("sm_90a", Ptx)], (9, 0), Some(("sm_90", Cubin))),
        (&[], (9, 0), None),
        (ALL, (u32::MAX, 0), None),
    ];
    for &(kernels, (major, minor), expected) in cases {
        let other = kernel("other", "sm_50", Ptx);
        let bytes = pack(kernels.iter().map(|&(target, form)| kernel("gemm", target, form)).chain([other]));
        let pack = Pack::parse(&bytes).unwrap();
        let chosen = pack.select("gemm", ComputeCapability { major, minor });
        let chosen = chosen.map(|kernel| (kernel.name, kernel.target.to_string(), kernel.form));
        let expected = expected.map(|(target, form)| ("gemm", target.to_string(), form));
        assert_eq!(chosen, expected, "{kernels:?} on {major}.{minor}");
    }
}

#[test]
fn adding_again_replaces() {
    let mut second = kernel("a", "sm_80", Form::Ptx);
    second.code = b"second".to_vec();
    let bytes = pack([kernel("a", "sm_80", Form::Ptx), kernel("a", "sm_80", Form::Cubin), second.clone()]);
    let parsed = Pack::parse(&bytes).unwrap();
    assert_eq!(parsed.kernels().len(), 2);
    assert_eq!(parsed.kernels().next().map(owned), Some(second));
}

#[test]
fn variants_are_found_by_wishes_and_not_by_name() {
    let chip = ComputeCapability { major: 9, minor: 0 };
    let source = |text: &str| Some(Key::builder().field("source", text).finish());
    let variant = |target: &str, facts: &str| PackedKernel {
        source: source("softmax"),
        variant: Some(PackedVariant { facts: facts.into(), ..PackedVariant::default() }),
        ..kernel("softmax", target, Form::Ptx)
    };
    let bytes = pack([
        variant("sm_80", "x is 1"),
        variant("sm_90", "x is 1"),
        variant("sm_90a", "x is 1"),
        variant("sm_80", "x is 12"),
        variant("sm_100", "x is 123"),
        variant("sm_80", "x is 12"),
    ]);
    let pack_of_variants = Pack::parse(&bytes).unwrap();
    assert_eq!(pack_of_variants.kernels().len(), 5, "the last is in place of one before");
    assert_eq!(pack_of_variants.select("softmax", chip), None);
    let wished = |wish: &dyn Fn(&PackedKernelRef<'_>) -> Option<usize>| {
        let found = pack_of_variants.select_by(chip, wish)?;
        Some((found.target.to_string(), found.variant?.facts))
    };
    let longest = |kernel: &PackedKernelRef<'_>| Some(kernel.variant?.facts.len());
    assert_eq!(
        wished(&longest),
        Some(("sm_80".into(), "x is 12")),
        "what does not run on the chip is left out"
    );
    let same = |kernel: &PackedKernelRef<'_>| kernel.variant.filter(|v| v.facts == "x is 1").map(|_| 0);
    assert_eq!(wished(&same), Some(("sm_90a".into(), "x is 1")), "of kernels alike, the one for the chip");
    assert_eq!(wished(&|_| None), None);

    // Two sources under one name: asking by name would be asking for either.
    let two = |other: &str| {
        let of = |from: &str, target| PackedKernel { source: source(from), ..kernel("a", target, Form::Ptx) };
        let bytes = pack([of("one", "sm_80"), of(other, "sm_90")]);
        Pack::parse(&bytes).unwrap().select("a", chip).map(|kernel| kernel.target.to_string())
    };
    assert_eq!(two("one"), Some("sm_90".to_owned()));
    assert_eq!(two("another"), None);
}

#[test]
fn errors_say_what_was_found() {
    let bytes = pack([kernel("a", "sm_80", Form::Ptx)]);
    let error = |bytes: &[u8]| Pack::parse(bytes).unwrap_err();
    assert_eq!(error(b"\x7fELF"), PackError::Magic { found: b"\x7fELF".to_vec() });
    assert_eq!(error(&[]), PackError::Magic { found: Vec::new() });
    assert_eq!(error(&bytes[..10]), PackError::Length { found: 10, expected: 60 });
    let length = bytes.len() as u64;
    assert_eq!(error(&bytes[..100]), PackError::Length { found: 100, expected: length });
    assert_eq!(
        error(&[&bytes[..], b"\n"].concat()),
        PackError::Length { found: length + 1, expected: length }
    );
    let mut later = bytes.clone();
    later[8] = 9;
    assert_eq!(error(&later), PackError::Version { found: 9 });
    let mut flipped = bytes.clone();
    flipped[80] ^= 1;
    assert_eq!(error(&flipped), PackError::Checksum);
    for message in
        [error(b"x"), error(&bytes[..99]), error(&later), error(&flipped)].map(|error| error.to_string())
    {
        assert!(!message.contains('\n') && message.contains("write it"), "{message}");
    }
}

#[test]
fn a_pack_with_a_right_checksum_and_wrong_parts_is_refused() {
    let bytes = pack([kernel("a", "sm_80", Form::Ptx)]);
    let change = |at: usize, to: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + to.len()].copy_from_slice(to);
        Pack::parse(&resealed(bytes)).map(|pack| pack.kernels().len())
    };
    // The count, and the length of the first name, which follow the header's magic, version and length.
    assert_eq!(change(20, &u64::MAX.to_le_bytes()), Err(PackError::Kernel { index: 1, part: "name" }));
    assert_eq!(change(20, &0u64.to_le_bytes()), Err(PackError::Trailing { kernels: 0 }));
    assert_eq!(change(28, &u64::MAX.to_le_bytes()), Err(PackError::Kernel { index: 0, part: "name" }));
    assert_eq!(change(36, b"\xff"), Err(PackError::Kernel { index: 0, part: "name" }));
    let target = bytes.windows(5).position(|window| window == b"sm_80").unwrap();
    assert_eq!(change(target, b"sm-80"), Err(PackError::Kernel { index: 0, part: "target" }));
    // Behind the code: form, shared memory, no overlaps, block with three sizes, no cluster, no source, no variant, checksum.
    let end = bytes.len() - 32;
    let part = |part| Err(PackError::Kernel { index: 0, part });
    assert_eq!(change(end - 1, &[2]), part("variant"));
    assert_eq!(change(end - 1, &[1]), part("variant"));
    assert_eq!(change(end - 2, &[1]), part("source"));
    assert_eq!(change(end - 3, &[2]), part("cluster"));
    assert_eq!(change(end - 16, &[7]), part("block"));
    assert_eq!(change(end - 17, &[2]), part("mark of overlaps"));
    assert_eq!(change(end - 22, &[2]), part("form"));
    assert_eq!(change(end - 22, &[1]), Ok(1));
}

fn any_kernel() -> impl Strategy<Value = PackedKernel> {
    let extent = || proptest::option::of(any::<[u32; 3]>());
    let target = prop_oneof!["sm_[1-9][0-9]{1,2}[af]?", Just("sm_90a".to_string())];
    let texts = (".{0,12}", target, ".{0,40}", ".{0,12}");
    let code = proptest::collection::vec(any::<u8>(), 0..200);
    let source =
        proptest::option::of(".{0,4}".prop_map(|text| Key::builder().field("source", text).finish()));
    let variant = proptest::option::of((".{0,20}", ".{0,20}", proptest::option::of(any::<u32>())));
    let variant = variant
        .prop_map(|texts| texts.map(|(facts, maps, resident)| PackedVariant { facts, maps, resident }));
    let flags = (any::<bool>(), any::<bool>());
    (texts, flags, code, any::<u32>(), extent(), extent(), source, variant).prop_map(
        |(texts, (cubin, overlaps), code, shared_dynamic, block, cluster, source, variant)| {
            let (name, target, signatures, producer) = texts;
            PackedKernel {
                name,
                target: target.parse().unwrap(),
                form: if cubin { Form::Cubin } else { Form::Ptx },
                code,
                signatures,
                shared_dynamic,
                block,
                cluster,
                overlaps,
                producer,
                source,
                variant,
            }
        },
    )
}

fn distinct(kernels: Vec<PackedKernel>) -> Vec<PackedKernel> {
    let mut seen = std::collections::HashSet::new();
    kernels
        .into_iter()
        .filter(|kernel| {
            let facts = kernel.variant.as_ref().map(|variant| variant.facts.clone());
            seen.insert((kernel.name.clone(), kernel.target, kernel.form, kernel.source, facts))
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_in_comes_out(kernels in proptest::collection::vec(any_kernel(), 0..6), shift in 0usize..16) {
        let kernels = distinct(kernels);
        let bytes = pack(kernels.clone());
        // At any alignment.
        let moved = [vec![0; shift], bytes].concat();
        let parsed = Pack::parse(&moved[shift..]).unwrap();
        prop_assert_eq!(parsed.kernels().map(owned).collect::<Vec<_>>(), kernels);
    }

    #[test]
    fn a_damaged_pack_is_refused(
        kernels in proptest::collection::vec(any_kernel(), 0..4),
        at in any::<proptest::sample::Index>(),
        bit in 0u8..8,
    ) {
        let bytes = pack(kernels);
        prop_assert!(Pack::parse(&bytes).is_ok());
        prop_assert!(Pack::parse(&bytes[..at.index(bytes.len())]).is_err());
        let mut flipped = bytes.clone();
        flipped[at.index(bytes.len())] ^= 1 << bit;
        prop_assert!(Pack::parse(&flipped).is_err());
        // With a checksum made to fit, what is read is never more than the bytes hold, and nothing panics.
        if let Ok(parsed) = Pack::parse(&resealed(flipped)) {
            let code: usize = parsed.kernels().map(|kernel| kernel.code.len()).sum();
            prop_assert!(code < bytes.len());
        }
    }

    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(Pack::parse(&bytes).is_err());
        let with_magic = [&b"TWpack\r\n\x02\0\0\0"[..], &(bytes.len() as u64 + 20).to_le_bytes(), &bytes].concat();
        prop_assert!(Pack::parse(&with_magic).is_err());
        if bytes.len() >= 40 {
            // A sound frame around anything at all: no panic; to be accepted it would have to be a pack.
            let _ = Pack::parse(&resealed(with_magic));
        }
    }
}
