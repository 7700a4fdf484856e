//! Plays tensor core and copy engine on addresses: what a derived descriptor reads, and where derived boxes write, is
//! what the layout of the tile says, for every element.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;

use tilewright_hardware::{
    Element, HardwareError, L2Promotion, Major, MatrixDescriptor, OobFill, SwizzleMode, TensorMapSpec,
    smem_tile,
};
use tilewright_layout::Composed;

const ELEMENTS: [Element; 5] = [Element::I8, Element::E4M3, Element::BF16, Element::F16, Element::TF32];

/// The start of a tile in shared memory; aligned for every swizzle.
const BASE: u32 = 5 * 1024;

fn xor(mode: SwizzleMode, address: u64) -> u64 {
    let bits = match mode {
        SwizzleMode::None => 0,
        SwizzleMode::B32 => 1,
        SwizzleMode::B64 => 3,
        SwizzleMode::B128 => 7,
    };
    address ^ (((address >> 7) & bits) << 4)
}

/// The address where wgmma reads element `(row, k)` of an operand, from the 64 bits of its descriptor alone.
fn wgmma_address(descriptor: u64, major: Major, row: u64, k: u64, element: u64) -> u64 {
    let field = |bit: u32| ((descriptor >> bit) & 0x3FFF) << 4;
    let (start, leading, stride) = (field(0), field(16), field(32));
    assert_eq!((descriptor >> 46) & 0xFFFF, 0, "base offset and reserved bits are zero");
    let mode = match descriptor >> 62 {
        0 => SwizzleMode::None,
        1 => SwizzleMode::B128,
        2 => SwizzleMode::B64,
        _ => SwizzleMode::B32,
    };
    let span = u64::from(mode.span());
    let inside = match (major, mode) {
        (Major::K, SwizzleMode::None) => {
            row % 8 * 16 + row / 8 * stride + k * element / 16 * leading + k * element % 16
        }
        (Major::K, _) => row % 8 * span + row / 8 * stride + k * element,
        (Major::Mn, SwizzleMode::None) => row % 8 * element + row / 8 * stride + k % 8 * 16 + k / 8 * leading,
        (Major::Mn, _) => {
            let panel = span / element;
            row % panel * element + row / panel * leading + k % 8 * span + k / 8 * stride
        }
    };
    xor(mode, start + inside)
}

fn at(tile: &Composed, rows: u64, row: u64, k: u64) -> u64 {
    u64::try_from(tile.at(i64::try_from(row + rows * k).unwrap()).unwrap()).unwrap()
}

fn check_descriptor(
    tile: &Composed,
    element: Element,
    rows: u32,
    instruction_rows: u32,
    k: u32,
) -> MatrixDescriptor {
    let d = MatrixDescriptor::for_operand(tile, element, instruction_rows).unwrap();
    let es = u64::from(element.bytes());
    let step = 32 / es;
    assert_eq!(d.row_offsets.len(), (rows / instruction_rows) as usize);
    assert_eq!(d.k_offsets.len() as u64, u64::from(k) / step);
    for (i, row_offset) in (0u64..).zip(&d.row_offsets) {
        for (j, k_offset) in (0u64..).zip(&d.k_offsets) {
            let word = d.encode(BASE + row_offset + k_offset);
            for row in 0..u64::from(instruction_rows) {
                for depth in 0..step {
                    let (r, kk) = (i * u64::from(instruction_rows) + row, j * step + depth);
                    let expected = u64::from(BASE) + at(tile, rows.into(), r, kk) * es;
                    let read = wgmma_address(word, d.major, row, depth, es);
                    assert_eq!(read, expected, "{tile} of {element}, element ({r},{kk})");
                }
            }
        }
    }
    d
}

#[test]
fn wgmma_reads_what_the_layout_says() {
    let mut seen = 0;
    for element in ELEMENTS {
        for mode in SwizzleMode::ALL {
            for major in [Major::K, Major::Mn] {
                for (rows, part) in
                    [(64, 64), (128, 64), (256, 64), (256, 256), (192, 192), (24, 24), (64, 8)]
                {
                    for k in [32, 64, 128] {
                        let Ok(tile) = smem_tile(major, rows, k, element, mode) else { continue };
                        if major == Major::Mn && element.bits() != 16 {
                            // Eight rows of bytes are half a piece, which no form has.
                            if part == 8 {
                                continue;
                            }
                            let error = MatrixDescriptor::for_operand(&tile, element, part).unwrap_err();
                            assert!(error.to_string().contains("16-bit"), "{error}");
                            continue;
                        }
                        let d = check_descriptor(&tile, element, rows, part, k);
                        assert_eq!((d.swizzle, d.major), (mode, major), "{tile}");
                        seen += 1;
                    }
                }
            }
        }
    }
    assert!(seen > 250, "{seen}");
}

#[test]
fn the_strides_are_the_documented_ones() {
    let strides = |major, rows, k, element, mode, part| {
        let tile = smem_tile(major, rows, k, element, mode).unwrap();
        let d = MatrixDescriptor::for_operand(&tile, element, part).unwrap();
        (d.leading_bytes, d.stride_bytes, d.k_offsets)
    };
    let bf16 = Element::BF16;
    // K-major: eight rows of the span, 32 bytes a step, a panel after the span.
    for (mode, stride) in [(SwizzleMode::B128, 1024), (SwizzleMode::B64, 512), (SwizzleMode::B32, 256)] {
        assert_eq!(strides(Major::K, 64, 64, bf16, mode, 64).1, stride);
    }
    assert_eq!(
        strides(Major::K, 64, 128, bf16, SwizzleMode::B128, 64).2,
        [0, 32, 64, 96, 8192, 8224, 8256, 8288]
    );
    assert_eq!(
        strides(Major::K, 64, 64, bf16, SwizzleMode::None, 64),
        (1024, 128, vec![0, 2048, 4096, 6144])
    );
    // MN-major: bf16, 64 deep, four panels of 64.
    let (leading, stride, steps) = strides(Major::Mn, 256, 64, bf16, SwizzleMode::B128, 256);
    assert_eq!((leading, stride, steps), (8192, 1024, vec![0, 2048, 4096, 6144]));
    assert_eq!(strides(Major::Mn, 64, 64, bf16, SwizzleMode::B64, 64).2, [0, 1024, 2048, 3072]);
    assert_eq!(strides(Major::Mn, 64, 64, bf16, SwizzleMode::B32, 64).2, [0, 512, 1024, 1536]);
    // Without a swizzle the roles are exchanged.
    let (leading, stride, _) = strides(Major::Mn, 64, 64, bf16, SwizzleMode::None, 64);
    assert_eq!((leading, stride), (128, 1024));
}

#[test]
fn a_layout_is_judged_by_what_it_does() {
    // The 128-byte swizzled tile with its rows cut in two, and a plain layout of core matrices in another order.
    let tile: Composed = "S<3,3,3> o 0 o ((8,8),(8,8)):((64,512),(1,8))".parse().unwrap();
    let d = check_descriptor(&tile, Element::BF16, 64, 64, 64);
    assert_eq!((d.swizzle, d.stride_bytes), (SwizzleMode::B128, 1024));
    let tile: Composed = "S<0,3,3> o 0 o ((8,8),(8,8)):((8,512),(1,64))".parse().unwrap();
    let d = check_descriptor(&tile, Element::BF16, 64, 64, 64);
    assert_eq!((d.swizzle, d.leading_bytes, d.stride_bytes), (SwizzleMode::None, 128, 1024));
    assert_eq!(d.k_offsets, [0, 256, 512, 768]);
    // A stage of a pipeline: the offset of the stage is part of where the rows start.
    let stages: Composed = "S<3,3,3> o 0 o (64,64,3):(64,1,4096)".parse().unwrap();
    let stage = stages.slice(&"(_,_,2)".parse().unwrap()).unwrap();
    let d = check_descriptor(&stage, Element::BF16, 64, 64, 64);
    assert_eq!(d.row_offsets, [16384]);
}

#[test]
fn layouts_that_wgmma_cannot_read() {
    let error = |text: &str, element, rows| {
        let layout: Composed = text.parse().unwrap();
        MatrixDescriptor::for_operand(&layout, element, rows).unwrap_err().to_string()
    };
    let bf16 = Element::BF16;
    // Rows without a swizzle, padded rows, the swizzle of another type, a tile off the pattern.
    assert!(error("S<0,3,3> o 0 o (64,64):(64,1)", bf16, 64).contains("element"));
    assert!(error("S<0,3,3> o 0 o (64,64):(72,1)", bf16, 64).contains("element"));
    let message = error("S<3,4,3> o 0 o (64,64):(64,1)", bf16, 64);
    assert!(message.contains("must lie at byte") && !message.contains('\n'), "{message}");
    let message = error("S<3,3,3> o 64 o (64,64):(64,1)", bf16, 64);
    assert!(message.contains("not in the first row"), "{message}");
    assert!(error("S<3,3,3> o 0 o (64,64):(64,1)", bf16, 48).contains("48 at a time"));
    assert!(error("S<3,3,3> o 0 o (64,8):(64,1)", bf16, 64).contains("16 bytes"));
    assert!(error("S<3,3,3> o 0 o (64,64):(64,1)", Element::F64, 64).contains("8, 16 or 32 bits"));
    assert!(error("S<3,3,3> o 0 o (64,64):(64,1)", Element::E2M1, 64).contains("whole bytes"));
    assert!(error("S<3,3,3> o 0 o (64,64,2):(64,1,4096)", bf16, 64).contains("3 modes"));
    assert!(error("S<3,3,3> o 0 o (8192,64):(64,1)", bf16, 64).contains("do not fit"));
}

/// Carries out the boxes: from element `(row, k)` to the byte that TMA writes it to.
fn tma_writes(tile: &Composed, element: Element) -> (HashMap<(u64, u64), u64>, usize) {
    let plan = TensorMapSpec::for_tile(tile, element).unwrap();
    let (spec, es) = (&plan.spec, u64::from(element.bytes()));
    let [width, height] = spec.box_dims() else { panic!("two dimensions") };
    let mut written = HashMap::new();
    for part in &plan.boxes {
        assert_eq!(part.offset % spec.swizzle().alignment(), 0);
        let mut address = u64::from(BASE + part.offset);
        for y in 0..u64::from(*height) {
            for x in 0..u64::from(*width) {
                let (inner, outer) = (u64::from(part.coordinates[0]) + x, u64::from(part.coordinates[1]) + y);
                let (row, k) = if plan.major == Major::K { (outer, inner) } else { (inner, outer) };
                let before = written.insert((row, k), xor(spec.swizzle(), address));
                assert_eq!(before, None, "element ({row},{k}) is written twice");
                address += es;
            }
        }
        assert_eq!(address - u64::from(BASE + part.offset), spec.bytes());
    }
    (written, plan.boxes.len())
}

#[test]
fn tma_writes_what_the_layout_says() {
    for element in ELEMENTS.into_iter().chain([Element::F64]) {
        for mode in SwizzleMode::ALL {
            for major in [Major::K, Major::Mn] {
                for (rows, k) in [(128, 64), (256, 128), (64, 256), (8, 64), (512, 16)] {
                    let Ok(tile) = smem_tile(major, rows, k, element, mode) else { continue };
                    let (written, boxes) = tma_writes(&tile, element);
                    assert_eq!(written.len(), (rows * k) as usize);
                    for ((row, depth), address) in written {
                        let expected = at(&tile, rows.into(), row, depth) * u64::from(element.bytes());
                        assert_eq!(address, u64::from(BASE) + expected, "{tile} of {element}");
                    }
                    let (along, across) = if major == Major::K { (k, rows) } else { (rows, k) };
                    let panels = along * element.bytes() / mode.span();
                    // Panels of an unswizzled tile with one panel are one contiguous piece: fewer boxes are possible.
                    assert!(
                        boxes <= (panels * across.div_ceil(256)) as usize,
                        "{tile} of {element}: {boxes}"
                    );
                    if mode != SwizzleMode::None {
                        assert_eq!(boxes, (panels * across.div_ceil(256)) as usize, "{tile} of {element}");
                    }
                }
            }
        }
    }
}

#[test]
fn plain_tiles_and_tiles_that_tma_cannot_write() {
    let plan = |text: &str, element| TensorMapSpec::for_tile(&text.parse().unwrap(), element);
    let row_major = plan("S<0,3,3> o 0 o (128,256):(256,1)", Element::F32).unwrap();
    assert_eq!((row_major.spec.box_dims(), row_major.boxes.len()), (&[256, 128][..], 1));
    let column_major = plan("S<0,3,3> o 0 o (64,32):(1,64)", Element::F32).unwrap();
    assert_eq!((column_major.major, column_major.spec.box_dims()), (Major::Mn, &[64, 32][..]));
    // Rows longer than a box: one row at a time, in two pieces.
    let long = plan("S<0,3,3> o 0 o (4,512):(512,1)", Element::F32).unwrap();
    assert_eq!((long.spec.box_dims(), long.boxes.len()), (&[256, 1][..], 8));
    assert_eq!((long.boxes[3].offset, long.boxes[3].coordinates), (3072, [256, 1]));

    let refused = |text: &str| plan(text, Element::BF16).unwrap_err().to_string();
    // Padded by 16 bytes: no box starts at a multiple of 128.
    let message = refused("S<0,3,3> o 0 o (64,64):(72,1)");
    assert!(message.contains("multiple of 128"), "{message}");
    let message = refused("S<3,4,3> o 0 o (64,64):(64,1)");
    assert!(message.starts_with("TMA cannot address"), "{message}");
    assert!(refused("S<3,3,3> o 64 o (64,64):(64,1)").contains("multiple of 1024"));
    assert!(refused("S<0,3,3> o 0 o (64,4):(4,1)").starts_with("TMA cannot address"));
}

#[test]
fn the_rules_of_tensor_maps() {
    let map = |element, dims: &[u32], swizzle| TensorMapSpec::new(element, dims, swizzle);
    let wrong = |result: Result<TensorMapSpec, HardwareError>, text: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(text) && !message.contains('\n'), "{message}");
    };
    let bf16 = Element::BF16;
    wrong(map(bf16, &[], SwizzleMode::None), "1 to 5");
    wrong(map(bf16, &[8; 6], SwizzleMode::None), "1 to 5");
    wrong(map(bf16, &[64, 257], SwizzleMode::B128), "1 to 256");
    wrong(map(bf16, &[64, 0], SwizzleMode::B128), "1 to 256");
    wrong(map(bf16, &[4, 8], SwizzleMode::None), "multiple of 16");
    wrong(map(bf16, &[32, 8], SwizzleMode::B32), "at most 32 bytes");
    wrong(map(Element::E2M1, &[32, 8], SwizzleMode::None), "u8");
    let good = map(bf16, &[64, 256, 2], SwizzleMode::B128).unwrap();
    assert_eq!((good.rank(), good.bytes()), (3, 65536));
    wrong(good.clone().with_element_strides(&[1, 2]), "as the box");
    wrong(good.clone().with_element_strides(&[1, 9, 1]), "1 to 8");
    assert_eq!(good.clone().with_element_strides(&[1, 3, 1]).unwrap().bytes(), 64 * 86 * 2 * 2);
    wrong(map(Element::E4M3, &[64], SwizzleMode::None).unwrap().with_oob_fill(OobFill::Nan), "f16");
    let full = good.with_oob_fill(OobFill::Nan).unwrap().with_l2_promotion(L2Promotion::B256);
    assert_eq!((full.oob_fill().code(), full.l2_promotion().code(), full.swizzle().tma_code()), (1, 3, 3));

    let map = map(bf16, &[64, 64], SwizzleMode::B128).unwrap();
    assert!(map.check_tensor(256, &[1 << 32, 7], &[16]).is_ok());
    for (address, dims, strides) in [
        (8, &[64, 64][..], &[128][..]),
        (0, &[64, 64, 1], &[128]),
        (0, &[64, 0], &[128]),
        (0, &[(1 << 32) + 1, 1], &[128]),
        (0, &[64, 64], &[120]),
        (0, &[64, 64], &[1 << 40]),
    ] {
        assert!(map.check_tensor(address, dims, strides).is_err(), "{address} {dims:?} {strides:?}");
    }
}
