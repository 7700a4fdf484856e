use std::collections::HashMap;

use proptest::prelude::*;
use tilewright_ptx::Modifier;

use super::super::testing::{Random, nanoseconds};
use super::*;

fn spec<'a>(dims: &'a [u64], strides: &'a [u64], extents: [u32; 5]) -> Spec<'a> {
    Spec {
        data_type: DataType::Bf16,
        address: 0x7f00_0000_1000,
        dims,
        strides,
        access: Access::Tile { extents },
        element_strides: &[1; 5][..dims.len()],
        interleave: 0,
        swizzle: SwizzleMode::None,
        fill: OobFill::Zeros,
    }
}

/// Where each byte of a copy comes from, by its address in shared memory.
fn bytes_of(runs: &[Run]) -> HashMap<u32, Option<u64>> {
    let mut bytes = HashMap::new();
    for run in runs {
        for byte in 0..run.bytes {
            let global = run.global.map(|address| address + u64::from(byte));
            assert_eq!(bytes.insert(run.shared + byte, global), None, "written twice");
        }
    }
    bytes
}

/// The swizzle by its table: which piece of 16 bytes is where in each line of eight.
fn swizzled(mode: SwizzleMode, address: u32) -> u32 {
    let (line, piece) = (address / 128, address % 128 / 16);
    let other = match mode {
        SwizzleMode::None => piece,
        SwizzleMode::B32 => piece ^ (line % 2),
        SwizzleMode::B64 => piece ^ (line % 4),
        SwizzleMode::B128 => piece ^ (line % 8),
    };
    line * 128 + other * 16 + address % 16
}

/// A copy element by element.
fn naive(map: &TensorMap, coordinates: &[i32], shared: u32) -> HashMap<u32, Option<u64>> {
    let Access::Tile { extents } = map.access else { panic!("a tile") };
    let size = map.data_type.bytes();
    let mut bytes = HashMap::new();
    let mut number = 0;
    let total: u32 = (0..map.rank).map(|d| extents[d]).product();
    for index in 0..total {
        // The position in the box, innermost first; positions between the strides are not copied.
        let mut rest = index;
        let (mut inside, mut address, mut copied) = (true, i128::from(map.address), true);
        for d in 0..map.rank {
            let position = rest % extents[d];
            rest /= extents[d];
            copied &= d == 0 || position % map.element_strides[d] == 0;
            let at = i64::from(coordinates[d]) + i64::from(position);
            inside &= at >= 0 && at.cast_unsigned() < map.dims[d];
            let stride = if d == 0 { size.into() } else { map.strides[d - 1] };
            address += i128::from(at) * i128::from(stride);
        }
        if !copied {
            continue;
        }
        // With a swizzle, every row begins at a multiple of its span.
        let pitch = if map.swizzle == SwizzleMode::None { extents[0] * size } else { map.swizzle.span() };
        let place = shared + number / extents[0] * pitch + number % extents[0] * size;
        for byte in 0..size {
            let global = inside.then(|| u64::try_from(address).unwrap() + u64::from(byte));
            bytes.insert(swizzled(map.swizzle, place + byte), global);
        }
        number += 1;
    }
    bytes
}

#[test]
fn tiles_match_the_naive_copy() {
    let mut random = Random(9);
    let mut outside = 0;
    for round in 0..600 {
        let rank = 1 + round % 5;
        let data_type = DataType::ALL[random.bits() as usize % 13];
        let swizzle = SwizzleMode::ALL[random.bits() as usize % 4];
        let size = data_type.bytes();
        // Rows of 16 bytes up to the span of the swizzle.
        let pieces = if swizzle == SwizzleMode::None { 20 } else { swizzle.span() / 16 };
        let width = (1 + random.bits() % pieces) * 16 / size;
        let mut extents = [width.clamp(1, 256), 1, 1, 1, 1];
        let mut element_strides = [1; 5];
        for d in 1..rank {
            extents[d] = 1 + random.bits() % 6;
            element_strides[d] = 1 + random.bits() % 3;
        }
        let dims: Vec<u64> = (0..rank).map(|_| u64::from(1 + random.bits() % 40)).collect();
        let mut strides = Vec::new();
        let mut pitch = (dims[0] * u64::from(size)).next_multiple_of(16);
        for dim in &dims[1..] {
            pitch += 16 * u64::from(random.bits() % 3);
            strides.push(pitch);
            pitch *= dim;
        }
        let map = TensorMap::new(&Spec {
            data_type,
            swizzle,
            element_strides: &element_strides[..rank],
            ..spec(&dims, &strides, extents)
        })
        .unwrap();
        let coordinates: Vec<i32> = dims
            .iter()
            .zip(extents)
            .map(|(dim, extent)| {
                let extent = i32::try_from(extent).unwrap();
                random.between(-extent - 1, i32::try_from(*dim).unwrap() + 1)
            })
            .collect();
        let shared = 1024 + 128 * (random.bits() % 9);
        let runs = map.tile(&coordinates, shared).unwrap();
        let found = bytes_of(&runs);
        assert_eq!(found, naive(&map, &coordinates, shared), "{map:?} {coordinates:?}");
        assert_eq!(found.len(), map.box_bytes().unwrap() as usize);
        outside += found.values().filter(|global| global.is_none()).count();
        for pair in runs.windows(2) {
            let joined = pair[0].shared + pair[0].bytes == pair[1].shared
                && pair[0].global.map(|address| address + u64::from(pair[0].bytes)) == pair[1].global;
            assert!(!joined, "neighbours are one run");
        }
    }
    assert!(outside > 1000);
}

#[test]
fn the_extremes_of_coordinates() {
    let map = TensorMap::new(&spec(&[1 << 32, 1 << 32], &[(1 << 40) - 16], [64, 4, 1, 1, 1])).unwrap();
    for coordinates in [[i32::MIN, i32::MIN], [i32::MAX, i32::MAX], [i32::MIN, i32::MAX]] {
        let runs = map.tile(&coordinates, 1024).unwrap();
        assert_eq!(runs.iter().map(|run| run.bytes).sum::<u32>(), 512);
    }
    let runs = map.tile(&[i32::MIN, 0], 1024).unwrap();
    assert_eq!(runs, [Run { shared: 1024, global: None, bytes: 512 }]);
}

#[test]
fn a_swizzled_box_is_what_wgmma_reads() {
    // The tile of the crate that knows the hardware: 64 values of bf16 are a row of 128 bytes.
    let tile = tilewright_hardware::smem_tile(
        tilewright_hardware::Major::K,
        16,
        64,
        tilewright_hardware::Element::BF16,
        SwizzleMode::B128,
    )
    .unwrap();
    let map = TensorMap {
        swizzle: SwizzleMode::B128,
        ..TensorMap::new(&spec(&[64, 16], &[128], [64, 16, 1, 1, 1])).unwrap()
    };
    let bytes = bytes_of(&map.tile(&[0, 0], 2048).unwrap());
    for (row, k) in (0..16i64).flat_map(|row| (0..64i64).map(move |k| (row, k))) {
        let at = 2048 + 2 * u32::try_from(tile.at(row + 16 * k).unwrap()).unwrap();
        let global = map.address + u64::try_from(row * 128 + k * 2).unwrap();
        assert_eq!(bytes[&at], Some(global));
    }
}

fn image(rank: usize, pixels: u32, strides: &[u32], lower: [i32; 3], upper: [i32; 3]) -> TensorMap {
    // Channels 16, then up to three extents of space, then 3 images; f16.
    let dims: Vec<u64> = [16, 9, 5, 4].into_iter().take(rank - 1).chain([3]).collect();
    let mut pitches = Vec::new();
    let mut pitch = 32;
    for dim in &dims[1..] {
        pitches.push(pitch);
        pitch *= dim;
    }
    TensorMap::new(&Spec {
        data_type: DataType::F16,
        access: Access::Im2col { lower, upper, channels: 8, pixels },
        element_strides: strides,
        swizzle: SwizzleMode::B32,
        ..spec(&dims, &pitches, [1; 5])
    })
    .unwrap()
}

/// All pixels of the bounding boxes in order, then those from the first that is asked for.
#[test]
fn im2col_walks_the_bounding_box() {
    for (rank, steps) in
        [(3, [1, 2, 1]), (4, [1, 1, 1]), (4, [2, 1, 1]), (4, [2, 3, 1]), (5, [1, 1, 1]), (5, [3, 2, 1])]
    {
        let spatial = rank - 2;
        let (lower, upper) = ([-1, -1, 0], [-1, 0, -1]);
        let strides: Vec<u32> = [1].into_iter().chain(steps.into_iter().take(spatial)).chain([1]).collect();
        let offsets: Vec<u16> = [2, 1, 1].into_iter().take(spatial).collect();
        let map = image(rank, 40, &strides, lower, upper);
        let range = |d: usize| {
            let size = i64::try_from(map.dims[d + 1]).unwrap();
            (i64::from(lower[d])..size + i64::from(upper[d])).step_by(steps[d] as usize)
        };
        let one = || vec![0i64];
        let axis = |d: usize| if d < spatial { range(d).collect::<Vec<_>>() } else { one() };
        let mut pixels = Vec::new();
        for n in 0..6i64 {
            for z in axis(2) {
                for y in axis(1) {
                    pixels.extend(axis(0).into_iter().map(|x| (x, y, z, n)));
                }
            }
        }
        // Begin with the fourth pixel of the second row of the first image, or of what there is.
        let begin = 3.min(axis(0).len() - 1) + if spatial > 1 { axis(0).len() } else { 0 };
        let (x, y, z, _) = pixels[begin];
        let mut coordinates = vec![4];
        coordinates.extend([x, y, z].into_iter().take(spatial).map(|at| i32::try_from(at).unwrap()));
        coordinates.push(0);
        let found = bytes_of(&map.im2col(&coordinates, &offsets, 1024).unwrap());
        assert_eq!(found.len(), 40 * 16);
        assert_eq!(map.box_bytes().unwrap(), 40 * 16);
        for (number, (x, y, z, n)) in pixels.iter().skip(begin).take(40).enumerate() {
            let tap = |d: usize| i64::from(offsets.get(d).copied().unwrap_or(0));
            let place = [x + tap(0), y + tap(1), z + tap(2)];
            let size = |d: usize| i64::try_from(map.dims[d]).unwrap();
            let inside = (0..spatial).all(|d| (0..size(d + 1)).contains(&place[d])) && *n < 3;
            for channel in 0..8i64 {
                let mut address = i64::try_from(map.address).unwrap() + (4 + channel) * 2;
                for (at, stride) in place.iter().zip(&map.strides).take(spatial) {
                    address += at * i64::try_from(*stride).unwrap();
                }
                address += n * i64::try_from(map.strides[spatial]).unwrap();
                let at = swizzled(SwizzleMode::B32, 1024 + u32::try_from(number).unwrap() * 32)
                    + u32::try_from(channel).unwrap() * 2;
                let expected = inside.then(|| u64::try_from(address).unwrap());
                assert_eq!(found[&at], expected, "rank {rank} pixel {number} {place:?} of {n}");
            }
        }
    }
    let map = image(4, 8, &[1; 4], [0; 3], [0; 3]);
    assert!(map.tile(&[0; 4], 1024).is_err() && map.im2col(&[0; 4], &[0], 1024).is_err());
    assert!(map.im2col(&[0; 4], &[256, 0], 1024).unwrap_err().to_string().contains("im2col offset 0 of 256"));
}

#[test]
fn the_rules_of_the_driver_are_named() {
    let good = spec(&[64, 64], &[128], [64, 8, 1, 1, 1]);
    assert!(TensorMap::new(&good).is_ok());
    let message = |spec: Spec<'_>| TensorMap::new(&spec).unwrap_err().to_string();
    assert!(message(Spec { address: 8, ..good }).contains("global address 0x8"));
    assert!(message(Spec { dims: &[0, 64], ..good }).contains("global dimension 0 of 0"));
    assert!(message(Spec { dims: &[64, (1 << 32) + 1], ..good }).contains("global dimension 1"));
    assert!(message(Spec { strides: &[8], ..good }).contains("global stride 0 of 8"));
    assert!(message(Spec { strides: &[1 << 40], ..good }).contains("global stride 0"));
    assert!(message(Spec { strides: &[], ..good }).contains("rank 2 with 0 strides"));
    assert!(message(Spec { dims: &[], strides: &[], element_strides: &[], ..good }).contains("rank 0"));
    assert!(message(Spec { element_strides: &[1, 9], ..good }).contains("element stride 1 of 9"));
    assert!(message(Spec { interleave: 1, ..good }).contains("interleave layout 1"));
    let tile = |extents| Access::Tile { extents };
    assert!(message(Spec { access: tile([64, 257, 1, 1, 1]), ..good }).contains("box dimension 1 of 257"));
    assert!(message(Spec { access: tile([4, 8, 1, 1, 1]), ..good }).contains("rows have 8 bytes"));
    assert!(message(Spec { swizzle: SwizzleMode::B64, ..good }).contains("at most 64"));
    let nan = Spec { fill: OobFill::Nan, data_type: DataType::U16, ..good };
    assert!(message(nan).contains("fill mode NaN for U16"));
    let pixels = Access::Im2col { lower: [0; 3], upper: [0; 3], channels: 8, pixels: 8 };
    assert!(message(Spec { access: pixels, ..good }).contains("rank 2, expected 3 to 5"));
    let huge = Spec { access: tile([256; 5]), ..spec(&[256; 5], &[512; 4], [256; 5]) };
    assert!(
        TensorMap::new(&huge)
            .unwrap()
            .tile(&[0; 5], 1024)
            .unwrap_err()
            .to_string()
            .contains("fits in shared memory")
    );
    let map = TensorMap::new(&good).unwrap();
    assert!(map.tile(&[0], 1024).unwrap_err().to_string().contains("expected 1, as"));
    assert!(map.tile(&[0, 0], 1040).unwrap_err().to_string().contains("0x410"));
    assert!(map.tile(&[0, 0], u32::MAX - 127).is_err());
}

#[test]
fn a_blank_map_is_filled_in_field_by_field() {
    let mut map = TensorMap::decode(&[0; 128]).unwrap();
    assert!(map.tile(&[0], 1024).is_err());
    let fields = [
        (Field::GlobalAddress, 0, 0x7f00_0000_1000),
        (Field::SwizzleMode, 0, 3),
        (Field::Rank, 0, 1),
        (Field::BoxDim, 0, 64),
        (Field::BoxDim, 1, 8),
        (Field::GlobalDim, 0, 4096),
        (Field::GlobalDim, 1, 100),
        (Field::GlobalStride, 0, 8192),
        (Field::ElementStride, 0, 1),
        (Field::ElementStride, 1, 1),
        (Field::Elemtype, 0, 10),
        (Field::InterleaveLayout, 0, 0),
        (Field::FillMode, 0, 1),
    ];
    for (field, ordinal, value) in fields {
        map.replace(field, ordinal, value).unwrap();
        // Every step goes through memory.
        map = TensorMap::decode(&map.encode()).unwrap();
    }
    let whole = TensorMap::new(&Spec {
        swizzle: SwizzleMode::B128,
        fill: OobFill::Nan,
        ..spec(&[4096, 100], &[8192], [64, 8, 1, 1, 1])
    })
    .unwrap();
    assert_eq!(map.tile(&[32, 96], 1024).unwrap(), whole.tile(&[32, 96], 1024).unwrap());
    assert_eq!((map.data_type(), map.element_type(), map.fill_bits()), (DataType::Bf16, Type::Bf16, 0x7ff7));
    for (field, ordinal, value) in [
        (Field::Rank, 0, 5),
        (Field::BoxDim, 5, 1),
        (Field::BoxDim, 0, 257),
        (Field::GlobalStride, 4, 16),
        (Field::GlobalStride, 0, 1 << 40),
        (Field::GlobalDim, 0, u64::MAX),
        (Field::ElementStride, 0, 9),
        (Field::Elemtype, 0, 13),
        (Field::InterleaveLayout, 0, 1),
        (Field::SwizzleMode, 0, 4),
        (Field::FillMode, 0, 2),
    ] {
        assert!(map.replace(field, ordinal, value).is_err(), "{field:?} {ordinal} {value}");
    }
    assert_eq!(map, TensorMap::decode(&map.encode()).unwrap());
}

#[test]
fn types_have_the_numbers_of_both_sides() {
    use DataType::{Bf16, F16, F32, F32Ftz, F64, S32, S64, Tf32, Tf32Ftz, U8, U16, U32, U64};
    let driver = [U8, U16, U32, S32, U64, S64, F16, F32, F64, Bf16, F32Ftz, Tf32, Tf32Ftz];
    let ptx = [U8, U16, U32, S32, U64, S64, F16, F32, F32Ftz, F64, Bf16, Tf32, Tf32Ftz];
    for (code, (driver, ptx)) in (0..).zip(driver.into_iter().zip(ptx)) {
        assert_eq!(DataType::from_driver(code), Ok(driver));
        assert_eq!(DataType::from_ptx(code.into()), Ok(ptx));
        assert_eq!(driver as u32, code);
        assert_eq!(driver.bytes(), driver.element_type().bits() / 8);
    }
    assert!(DataType::from_driver(13).is_err() && DataType::from_ptx(13).is_err());
    assert_eq!(Field::of(Modifier::GlobalStride), Some(Field::GlobalStride));
    assert_eq!(Field::of(Modifier::Sync), None);
}

prop_compose! {
    fn any_map()(
        rank in 1usize..=5,
        kind in 0usize..13,
        address in 0u64..1 << 48,
        dims in prop::array::uniform5(1u64..=1 << 32),
        strides in prop::array::uniform4(0u64..1 << 36),
        extents in prop::array::uniform5(1u32..=256),
        steps in prop::array::uniform5(1u32..=8),
        lower in prop::array::uniform3(-16i32..16),
        upper in prop::array::uniform3(-16i32..16),
        pixels in 1u32..=1024,
        im2col in any::<bool>(),
        swizzle in 0usize..4,
    ) -> Option<TensorMap> {
        let data_type = DataType::ALL[kind];
        let mode = SwizzleMode::ALL[swizzle];
        let limit = if mode == SwizzleMode::None { 256 } else { mode.span() / data_type.bytes() };
        let per = (16 / data_type.bytes()).max(1);
        let inner = (extents[0].min(limit) / per * per).max(per);
        let access = match im2col && rank >= 3 {
            true => Access::Im2col { lower, upper, channels: inner, pixels },
            false => Access::Tile { extents: [inner, extents[1], extents[2], extents[3], extents[4]] },
        };
        TensorMap::new(&Spec {
            data_type,
            address: address & !15,
            dims: &dims[..rank],
            strides: &strides.map(|stride| stride & !15)[..rank - 1],
            access,
            element_strides: &steps[..rank],
            interleave: 0,
            swizzle: mode,
            fill: OobFill::Zeros,
        })
        .ok()
    }
}

proptest! {
    #[test]
    fn maps_are_read_back(map in any_map()) {
        let map = map.expect("made by the rules");
        prop_assert_eq!(TensorMap::decode(&map.encode()), Ok(map));
    }

    #[test]
    fn a_changed_bit_is_noticed(map in any_map(), bit in 0usize..1024) {
        let mut bytes = map.expect("made by the rules").encode();
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(TensorMap::decode(&bytes).is_err());
    }

    /// Even with the right checksum, whatever is in the fields gives an error or a box.
    #[test]
    fn garbage_is_harmless(
        bytes in prop::collection::vec(any::<u8>(), 128),
        mild in any::<bool>(),
        coordinates in prop::collection::vec(any::<i32>(), 1..6),
        offsets in prop::collection::vec(any::<u16>(), 0..4),
    ) {
        let mut bytes: [u8; 128] = bytes.try_into().unwrap();
        bytes[1] |= 1;
        prop_assert!(TensorMap::decode(&bytes).is_err());
        bytes[..4].copy_from_slice(&super::encoding::MAGIC.to_le_bytes());
        if mild {
            bytes[4] %= 2;
            bytes[5] %= 13;
            bytes[6] = bytes[6] % 5 + 1;
            bytes[7] %= 4;
            bytes[8] %= 2;
            // A box that is small enough to walk.
            bytes[79..].fill(0);
            bytes[79] = 16;
            (1..5).for_each(|d| bytes[79 + 2 * d] = 2);
        }
        let checksum = super::encoding::checksum(&bytes);
        bytes[120..].copy_from_slice(&checksum.to_le_bytes());
        if let Ok(map) = TensorMap::decode(&bytes) {
            let _ = map.tile(&coordinates, 1024);
            let _ = map.im2col(&coordinates, &offsets, 1024);
        }
    }
}

/// `cargo test --release -p tilewright-sim tile_speed -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn tile_speed() {
    for swizzle in [SwizzleMode::None, SwizzleMode::B128] {
        let map =
            TensorMap::new(&Spec { swizzle, ..spec(&[4096, 4096], &[8192], [64, 128, 1, 1, 1]) }).unwrap();
        let time = nanoseconds(|| {
            std::hint::black_box(map.tile(&[64, 32], 2048).unwrap());
        });
        println!("box of 16 KiB, {swizzle}: {time:.0} ns");
    }
}
