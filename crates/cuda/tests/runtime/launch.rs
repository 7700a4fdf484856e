//! Launches: what is refused and in which words, and that the driver gets exactly what was given.

use half::{bf16, f16};
use tilewright_cuda::{Arg, Buffer, ByValue, Code, CudaError, Kernel, LaunchConfig, Stream, TensorMap};
use tilewright_fake_driver::Fake;
use tilewright_hardware::{Element, SwizzleMode, TensorMapSpec};

use crate::{clean, context, kernel, one, under};

/// What arguments are made of.
struct Stock {
    read: Buffer<u32>,
    written: Buffer<u32>,
    /// For the argument under test.
    spare: Buffer<u32>,
    map: TensorMap,
}

impl Stock {
    fn new(stream: &Stream) -> Stock {
        let tensor = stream.alloc_zeroed::<u16>(64 * 32).unwrap();
        let spec = TensorMapSpec::new(Element::BF16, &[64, 32], SwizzleMode::B128).unwrap();
        Stock {
            read: stream.alloc_zeroed(4).unwrap(),
            written: stream.alloc_zeroed(4).unwrap(),
            spare: stream.alloc_zeroed(4).unwrap(),
            map: TensorMap::new(&spec, &tensor, &[64, 32]).unwrap(),
        }
    }

    /// Arguments that `kinds` takes, but for one that is what `found` names.
    fn launch(&mut self, kinds: &Kernel, stream: &Stream, at: usize, found: &str) -> Result<(), CudaError> {
        let Stock { read, written, spare, map } = self;
        let (record, bytes) = ([1u32, 2, 3], [0u8; 128]);
        let (four, eight) = ([1.0f32], [1.0f64]);
        let mut arguments: Vec<Arg<'_>> = vec![
            (&*read).into(),
            written.into(),
            5u32.into(),
            6u64.into(),
            7.0f32.into(),
            8.0f64.into(),
            9u16.into(),
            10u8.into(),
            ByValue(&record).into(),
            (&*map).into(),
        ];
        arguments[at] = match found {
            "&buffer" => (&*spare).into(),
            "&mut buffer" => spare.into(),
            "null" => Arg::null(),
            "u8" => 1u8.into(),
            "bool" => true.into(),
            "u16" => 1u16.into(),
            "i32" => 1i32.into(),
            "u32" => 1u32.into(),
            "i64" => 1i64.into(),
            "usize" => 1usize.into(),
            "f16" => f16::ONE.into(),
            "bf16" => bf16::ONE.into(),
            "f32" => 1.0f32.into(),
            "f64" => 1.0f64.into(),
            "4 bytes" => ByValue(&four).into(),
            "8 bytes" => ByValue(&eight).into(),
            "12 bytes" => ByValue(&record).into(),
            "128 bytes" => ByValue(&bytes).into(),
            "map" => (&*map).into(),
            other => panic!("{other}"),
        };
        kinds.launch(stream, &one(), arguments.as_slice())
    }
}

const FOUND: [&str; 19] = [
    "&buffer",
    "&mut buffer",
    "null",
    "u8",
    "bool",
    "u16",
    "i32",
    "u32",
    "i64",
    "usize",
    "f16",
    "bf16",
    "f32",
    "f64",
    "4 bytes",
    "8 bytes",
    "12 bytes",
    "128 bytes",
    "map",
];

/// Parameters of `kinds`, what each takes, and what it says it needs.
const TAKES: [(&str, &[&str], &str); 10] = [
    ("read", &["&buffer", "&mut buffer", "null"], "memory"),
    ("written", &["&mut buffer", "null"], "memory to write (`&mut`)"),
    ("word", &["i32", "u32", "4 bytes"], "an integer of 32 bits"),
    ("long", &["i64", "usize", "8 bytes"], "an integer of 64 bits"),
    ("single", &["f32", "4 bytes"], "a floating-point number of 32 bits"),
    ("double", &["f64", "8 bytes"], "a floating-point number of 64 bits"),
    ("half", &["u16", "f16", "bf16"], "16 bits"),
    ("byte", &["u8", "bool"], "an integer of 8 bits"),
    ("record", &["12 bytes"], "an argument of 12 bytes"),
    ("map", &["map"], "a tensor map"),
];

#[test]
fn every_argument_for_every_parameter() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let kinds = kernel(&context, "kinds");
        let mut stock = Stock::new(&stream);
        let mut wrong = Vec::new();
        for (at, (name, takes, expected)) in TAKES.into_iter().enumerate() {
            for found in FOUND {
                let launched = stock.launch(&kinds, &stream, at, found);
                if launched.is_ok() != takes.contains(&found) {
                    wrong.push(format!("{name} with {found}: {launched:?}"));
                }
                if let Err(error) = launched {
                    let text = error.to_string();
                    let begin = format!("argument {} of kernel `kinds` (parameter `{name}`): found ", at + 1);
                    assert!(text.starts_with(&begin), "{text}");
                    assert!(text.ends_with(&format!(", expected {expected}")), "{text}");
                    assert_eq!(error.remedy(), "correct the argument that the message names");
                }
            }
        }
        assert_eq!(wrong, [""; 0]);
        // What was refused never came to the driver.
        let accepted: usize = TAKES.iter().map(|(_, takes, _)| takes.len()).sum();
        assert_eq!(driver.calls("cuLaunchKernel"), accepted as u64);
        drop((stock, kinds, stream, context));
        clean(driver);
    });
}

/// Finds its memory by an address in memory, to which it adds parameters: indices of bytes, or pointers to which it adds an index.
const LISTED: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry listed(.param .u64 list, .param .u64 near, .param .u64 far)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [list];
    ld.param.u64 %rd2, [near];
    ld.param.u64 %rd3, [far];
    ld.global.u64 %rd4, [%rd1];
    add.s64 %rd5, %rd4, %rd2;
    add.s64 %rd6, %rd4, %rd3;
    ld.global.u8 %r1, [%rd5];
    st.global.u8 [%rd6], %r1;
    ret;
}
";

#[test]
fn what_may_be_an_index_or_a_pointer_takes_both() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        #[allow(unsafe_code)]
        // SAFETY: the driver only checks and records it.
        let module = unsafe { context.load(&Code::ptx(LISTED)) }.unwrap();
        let listed = module.only_kernel().unwrap();
        let list = stream.alloc_zeroed::<u64>(1).unwrap();
        let (x, mut y) = (stream.alloc_zeroed::<u8>(8).unwrap(), stream.alloc_zeroed::<u8>(8).unwrap());
        let launch = |near: Arg<'_>, far: Arg<'_>| {
            listed.launch(&stream, &one(), [(&list).into(), near, far].as_slice()).map_err(|e| e.to_string())
        };
        let bytes = 5u64.to_ne_bytes();
        for number in [5u64.into(), 5i64.into(), Arg::bytes(&bytes)] {
            launch(number, 5u64.into()).unwrap();
        }
        launch((&x).into(), Arg::bytes(&bytes)).unwrap();
        launch(5u64.into(), (&mut y).into()).unwrap();
        // Memory must be such that it may be written, if it is.
        let error = launch(5u64.into(), (&x).into()).unwrap_err();
        assert!(
            error.ends_with(
                "found memory to read, expected an integer of 64 bits, or memory to write (`&mut`)"
            ),
            "{error}"
        );
        let error = launch(5.0f64.into(), 5u64.into()).unwrap_err();
        assert!(error.ends_with("expected an integer of 64 bits, or memory"), "{error}");
        stream.synchronize().unwrap();
        assert_eq!(driver.launches().len(), 5);
        drop((x, y, list, listed, module, stream, context));
        clean(driver);
    });
}

#[test]
fn arguments_are_counted() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let poke = kernel(&context, "poke");
        let mut memory = stream.alloc_zeroed::<u32>(4).unwrap();
        let text = |launched: Result<(), CudaError>| launched.unwrap_err().to_string();
        assert_eq!(
            text(poke.launch(&stream, &one(), (&mut memory, 1u32))),
            "kernel `poke` was given 2 arguments, expected 3: `to`, memory to write (`&mut`); `value`, an integer of 32 bits; \
             `count`, an integer of 32 bits"
        );
        assert!(
            text(poke.launch(&stream, &one(), (&mut memory, 1u32, 4u32, 4u32)))
                .contains("given 4 arguments, expected 3")
        );
        assert_eq!(
            text(kernel(&context, "idle").launch(&stream, &one(), (1u32,))),
            "kernel `idle` was given 1 arguments, expected 0: it has no parameters"
        );
        // Parameters at the end that the code never reads may be left out, one by one.
        let trailing = kernel(&context, "trailing");
        trailing.launch(&stream, &one(), (&mut memory, 3u32)).unwrap();
        trailing.launch(&stream, &one(), (&mut memory, 3u32, Arg::null())).unwrap();
        trailing.launch(&stream, &one(), (&mut memory, 3u32, 0u64, 0u64)).unwrap();
        assert!(
            text(trailing.launch(&stream, &one(), (&mut memory,))).contains("given 1 arguments, expected 2")
        );
        stream.synchronize().unwrap();
        let launches = driver.launches();
        assert_eq!(launches.len(), 3);
        for launch in &launches {
            let expected =
                [&memory.address().to_le_bytes()[..], &3u32.to_le_bytes(), &[0; 4], &[0; 16]].concat();
            assert_eq!(launch.params, expected);
        }
    });
}

#[test]
fn the_driver_gets_the_bytes_that_were_given() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let kinds = kernel(&context, "kinds");
        let mut stock = Stock::new(&stream);
        let record = [0x1111_1111u32, 0x2222_2222, 0x3333_3333];
        let Stock { read, written, map, .. } = &mut stock;
        let part = read.slice(2..).unwrap();
        let at = part.address();
        let to = written.address();
        let config = LaunchConfig::new((2, 3, 4), (32, 2)).shared(1000);
        let numbers = (0x0102_0304u32, u64::MAX - 1, -1.5f32, 2.5f64, f16::from_f32(0.5), 0xABu8);
        let (word, long, single, double, half, byte) = numbers;
        kinds
            .launch(
                &stream,
                &config,
                (part, written, word, long, single, double, half, byte, ByValue(&record), &*map),
            )
            .unwrap();
        stream.synchronize().unwrap();
        let [launch] = <[_; 1]>::try_from(driver.launches()).unwrap();
        assert_eq!((launch.grid, launch.block, launch.cluster), ([2, 3, 4], [32, 2, 1], [1, 1, 1]));
        assert_eq!((launch.shared, launch.cooperative, launch.device), (1000, false, 0));
        // Offsets by the rules of C: 0, 8, 16, 24, 32, 40, 48, 50, 52, 64.
        let mut expected = [0; 192];
        let mut put = |at: usize, bytes: &[u8]| expected[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &at.to_le_bytes());
        put(8, &to.to_le_bytes());
        put(16, &word.to_le_bytes());
        put(24, &long.to_le_bytes());
        put(32, &single.to_le_bytes());
        put(40, &double.to_le_bytes());
        put(48, &half.to_le_bytes());
        put(50, &[byte]);
        record.iter().enumerate().for_each(|(n, value)| put(52 + 4 * n, &value.to_le_bytes()));
        assert_eq!(launch.params[..64], expected[..64]);
        assert_eq!(launch.params.len(), 192);
        assert_ne!(launch.params[64..], [0; 128], "the tensor map");
    });
}

#[test]
fn shapes_are_checked() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let names = ["idle", "fixed", "clustered"];
        let [idle, fixed, clustered] = names.map(|name| kernel(&context, name));
        let refused = |kernel: &Kernel, config: LaunchConfig, expected: &str| {
            let error = kernel.launch(&stream, &config, ()).unwrap_err();
            assert!(matches!(error, CudaError::Config { .. }));
            assert_eq!(error.to_string(), expected);
        };
        let new = |grid: u32, block: u32| LaunchConfig::new(grid, block);
        let whole_grid = "1x1x1 to 2147483647x65535x65535";
        refused(&idle, new(0, 32), &format!("the grid of kernel `idle`: found 0x1x1, expected {whole_grid}"));
        refused(
            &idle,
            LaunchConfig::new((1, 65536), 1),
            &format!("the grid of kernel `idle`: found 1x65536x1, expected {whole_grid}"),
        );
        refused(&idle, new(1, 0), "the block of kernel `idle`: found 0x1x1, expected 1x1x1 to 1024x1024x64");
        refused(
            &idle,
            LaunchConfig::new(1, (1, 1, 65)),
            "the block of kernel `idle`: found 1x1x65, expected 1x1x1 to 1024x1024x64",
        );
        refused(
            &idle,
            LaunchConfig::new(1, (1024, 2)),
            "the block of kernel `idle`: found 1024x2x1 = 2048 threads, expected at most 1024 threads, with the 32 registers of each",
        );
        refused(
            &idle,
            LaunchConfig::grid(1),
            "the block of kernel `idle`: found nothing, expected the number of threads; the kernel does not fix it",
        );
        refused(
            &idle,
            new(1, 32).shared((227 << 10) + 1),
            "shared memory of kernel `idle`: found 232449 bytes and 0 that the code declares, expected at most 232448 bytes \
             together",
        );
        refused(
            &fixed,
            new(1, 128),
            "the block of kernel `fixed`: found 128x1x1, expected 64x2x1, which the kernel was compiled for",
        );
        refused(
            &idle,
            new(8, 32).cluster(3),
            "the grid of kernel `idle`: found 8x1x1, expected a multiple of the cluster, 3x1x1",
        );
        refused(
            &idle,
            new(0x20, 32).cluster(32),
            "the cluster of kernel `idle`: found 32x1x1 = 32 blocks, expected 1 to 16 blocks",
        );
        refused(
            &idle,
            new(8, 32).cluster(0),
            "the cluster of kernel `idle`: found 0x1x1 = 0 blocks, expected 1 to 16 blocks",
        );
        refused(
            &clustered,
            new(8, 32).cluster(4),
            "the cluster of kernel `clustered`: found 4x1x1, expected 2x1x1, which the kernel was compiled for",
        );
        refused(
            &clustered,
            new(3, 32),
            "the grid of kernel `clustered`: found 3x1x1, expected a multiple of the cluster, 2x1x1",
        );
        // 132 multiprocessors with 2 blocks of 1024 threads each.
        refused(
            &idle,
            new(265, 1024).cooperative(),
            "the grid of a cooperative launch of kernel `idle`: found 265x1x1, expected at most 264 blocks, which is what runs \
             at once (2 on each multiprocessor)",
        );
        assert_eq!(driver.calls("cuLaunchKernel") + driver.calls("cuLaunchKernelEx"), 0);
        let accepted = [
            (&fixed, LaunchConfig::grid(1)),
            (&fixed, LaunchConfig::new(1, (64, 2))),
            (&clustered, new(4, 32)),
            (&clustered, new(4, 32).cluster(2)),
            (&idle, new(264, 1024).cooperative()),
            (&idle, new(0x7fff_ffff, 1)),
            (&idle, LaunchConfig::new((1, 1, 65535), (1, 1, 64))),
            (&idle, new(1, 32).shared(227 << 10)),
            (&idle, new(4, 32).cluster((2, 1, 1)).priority(-1).programmatic()),
        ];
        for (kernel, config) in &accepted {
            kernel.launch(&stream, config, ()).unwrap();
        }
        stream.synchronize().unwrap();
        let launches = driver.launches();
        assert_eq!(launches.len(), accepted.len());
        assert_eq!(
            launches.iter().map(|launch| launch.cluster[0]).collect::<Vec<_>>(),
            [1, 1, 2, 2, 1, 1, 1, 1, 2]
        );
        assert!(launches[4].cooperative);
        // Cluster, programmatic stream serialisation, priority: CUlaunchAttributeID 4, 6 and 8.
        let ids: Vec<u32> = launches[8].attributes.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [4, 6, 8]);
    });
}

#[test]
fn more_shared_memory_and_larger_clusters_are_asked_for_once() {
    under(&Fake::new(), |driver| {
        let context = context();
        let stream = context.stream().unwrap();
        let idle = kernel(&context, "idle");
        let asked = || driver.calls("cuFuncSetAttribute");
        let launch = |config: LaunchConfig| idle.launch(&stream, &config, ()).unwrap();
        (0..10).for_each(|_| launch(LaunchConfig::new(1, 32).shared(48 << 10)));
        assert_eq!(asked(), 0);
        (0..10).for_each(|_| launch(LaunchConfig::new(1, 32).shared(100 << 10)));
        (0..10).for_each(|_| launch(LaunchConfig::new(1, 32).shared(64 << 10)));
        assert_eq!(asked(), 1);
        (0..10).for_each(|_| launch(LaunchConfig::new(1, 32).shared(200 << 10)));
        assert_eq!(asked(), 2);
        (0..10).for_each(|_| launch(LaunchConfig::new(16, 32).cluster(8)));
        assert_eq!(asked(), 2);
        (0..10).for_each(|_| launch(LaunchConfig::new(16, 32).cluster(16)));
        assert_eq!(asked(), 3);
        stream.synchronize().unwrap();
        assert_eq!(driver.launches().len(), 60);
    });
}

#[test]
fn how_well_a_kernel_fits() {
    under(&Fake::new(), |_| {
        let context = context();
        let stream = context.stream().unwrap();
        let idle = kernel(&context, "idle");
        assert_eq!(idle.blocks_per_multiprocessor(1024, 0).unwrap(), 2);
        assert_eq!(idle.blocks_per_multiprocessor(32, 200 << 10).unwrap(), 1);
        let (block, grid) = idle.best_block(0, 512).unwrap();
        assert!(block <= 512 && grid >= 132, "{block} {grid}");
        let config = LaunchConfig::new(16, 128).cluster(2);
        assert!(idle.active_clusters(&stream, &config).unwrap() > 0);
        assert!(idle.largest_cluster(&stream, &LaunchConfig::new(16, 128)).unwrap() >= 8);
        assert!(idle.available_shared(2, 128).unwrap() >= 100 << 10);
        let attributes = idle.attributes();
        assert_eq!(
            (attributes.registers, attributes.threads_per_block, attributes.binary_version),
            (32, 1024, 90)
        );
    });
}
