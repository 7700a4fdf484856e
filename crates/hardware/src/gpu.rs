//! [`Gpu`]: the chips that are sold, by their published peaks. Rooflines and cost models read this table.

use crate::{Arch, Element};

/// The types that tensor cores tell apart by speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TensorKind {
    /// f16 and bf16.
    #[default]
    F16,
    /// tf32.
    Tf32,
    /// e4m3 and e5m2.
    Fp8,
    /// Integers of 8 bits, and those of 4, which later chips run at the same speed.
    Int8,
    /// f64.
    F64,
    /// Single bits.
    B1,
}

impl TensorKind {
    /// Every kind, in the order of the enum.
    pub const ALL: [TensorKind; 6] = [
        TensorKind::F16,
        TensorKind::Tf32,
        TensorKind::Fp8,
        TensorKind::Int8,
        TensorKind::F64,
        TensorKind::B1,
    ];

    /// The kind that multiplies elements of this type; none if tensor cores do not.
    pub const fn of(element: Element) -> Option<TensorKind> {
        match element {
            Element::F16 | Element::BF16 => Some(TensorKind::F16),
            Element::TF32 => Some(TensorKind::Tf32),
            Element::E4M3 | Element::E5M2 => Some(TensorKind::Fp8),
            Element::I8 | Element::U8 => Some(TensorKind::Int8),
            Element::F64 => Some(TensorKind::F64),
            _ => None,
        }
    }

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            TensorKind::F16 => "f16/bf16",
            TensorKind::Tf32 => "tf32",
            TensorKind::Fp8 => "fp8",
            TensorKind::Int8 => "int8",
            TensorKind::F64 => "f64",
            TensorKind::B1 => "b1",
        }
    }
}

/// A GPU: its size and its peaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpu {
    /// The name on the command line.
    pub name: &'static str,
    /// The name on the box.
    pub title: &'static str,
    /// Its architecture.
    pub arch: Arch,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Clock in Hz under load, to which its published peaks refer.
    pub clock: f64,
    /// DRAM bytes a second.
    pub dram: f64,
    /// Bytes of DRAM.
    pub memory: u64,
    /// Bytes of the L2 cache.
    pub l2: u64,
    /// Lanes of f32 arithmetic a clock of a multiprocessor.
    pub float_lanes: u32,
    /// Lanes of f64 arithmetic, likewise.
    pub double_lanes: u32,
    /// Tensor operations (multiply-adds times two) a clock of a multiprocessor, dense, by the order of [`TensorKind::ALL`]; 0 where
    /// NVIDIA publishes none.
    pub tensor: [u32; 6],
}

/// Published peaks, each of which the row reproduces as `multiprocessors * clock * tensor rate`:
///
/// * H200, H100 SXM: 132 multiprocessors; 989 TFLOP/s bf16, 1979 fp8 and int8, 495 tf32 are those of 1.83 GHz; 4.8 and 3.35 TB/s
///   (data sheets). f64: 67 TFLOP/s at the boost clock of 1.98 GHz.
/// * A100 SXM 80 GB: 108 at 1.41 GHz; 312 TFLOP/s bf16, 156 tf32, 624 int8, 19.5 f64, 4992 single bits; 2039 GB/s (data sheet and
///   architecture white paper).
/// * L40S: 142 at 2.52 GHz; 362 TFLOP/s bf16, 183 tf32, 733 fp8 and int8; 864 GB/s (data sheet).
/// * L4: 58 at 2.04 GHz; 121 TFLOP/s bf16, 60 tf32, 242 fp8 and int8; 300 GB/s (data sheet).
/// * RTX 4090: 128 at 2.52 GHz; with f32 accumulators 165 TFLOP/s bf16, 82.6 tf32, 330 fp8; 660 int8; 1008 GB/s (Ada architecture
///   white paper, appendix). With f16 accumulators f16 and fp8 are twice as fast.
///
/// Memory is that of the name or the data sheet. L2: H200 60 MB as the driver says, the others by their data sheets. Lanes of f32 and f64 are from the table of arithmetic throughput in the CUDA C++ Programming Guide.
const GPUS: [Gpu; 6] = [
    Gpu {
        name: "h200",
        title: "H200 SXM",
        arch: Arch::SM_90A,
        multiprocessors: 132,
        clock: 1.83e9,
        dram: 4.8e12,
        memory: 141_000_000_000,
        l2: 60 << 20,
        float_lanes: 128,
        double_lanes: 64,
        tensor: [4096, 2048, 8192, 8192, 256, 0],
    },
    Gpu {
        name: "h100",
        title: "H100 SXM",
        arch: Arch::SM_90A,
        multiprocessors: 132,
        clock: 1.83e9,
        dram: 3.35e12,
        memory: 80_000_000_000,
        l2: 50 << 20,
        float_lanes: 128,
        double_lanes: 64,
        tensor: [4096, 2048, 8192, 8192, 256, 0],
    },
    Gpu {
        name: "a100",
        title: "A100 SXM 80 GB",
        arch: Arch::SM_80,
        multiprocessors: 108,
        clock: 1.41e9,
        dram: 2.039e12,
        memory: 80_000_000_000,
        l2: 40 << 20,
        float_lanes: 64,
        double_lanes: 32,
        tensor: [2048, 1024, 0, 4096, 128, 32768],
    },
    Gpu {
        name: "l40s",
        title: "L40S",
        arch: Arch::SM_89,
        multiprocessors: 142,
        clock: 2.52e9,
        dram: 864e9,
        memory: 48_000_000_000,
        l2: 96 << 20,
        float_lanes: 128,
        double_lanes: 2,
        tensor: [1024, 512, 2048, 2048, 0, 0],
    },
    Gpu {
        name: "l4",
        title: "L4",
        arch: Arch::SM_89,
        multiprocessors: 58,
        clock: 2.04e9,
        dram: 300e9,
        memory: 24_000_000_000,
        l2: 48 << 20,
        float_lanes: 128,
        double_lanes: 2,
        tensor: [1024, 512, 2048, 2048, 0, 0],
    },
    Gpu {
        name: "rtx4090",
        title: "GeForce RTX 4090",
        arch: Arch::SM_89,
        multiprocessors: 128,
        clock: 2.52e9,
        dram: 1.008e12,
        memory: 24_000_000_000,
        l2: 72 << 20,
        float_lanes: 128,
        double_lanes: 2,
        tensor: [512, 256, 1024, 2048, 0, 0],
    },
];

impl Gpu {
    /// Tensor operations a clock of a multiprocessor with this kind of elements; 0 where NVIDIA publishes none.
    pub const fn tensor_rate(&self, kind: TensorKind) -> u32 {
        self.tensor[kind as usize]
    }

    /// Every GPU of the table.
    pub const ALL: &'static [Gpu] = &GPUS;

    /// The GPU of that name, in any case, with or without blanks and hyphens.
    ///
    /// ```
    /// use tilewright_hardware::Gpu;
    /// assert_eq!(Gpu::named("RTX 4090").unwrap().multiprocessors, 128);
    /// assert!(Gpu::named("voodoo2").is_none());
    /// ```
    pub fn named(name: &str) -> Option<&'static Gpu> {
        let plain: String =
            name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        GPUS.iter().find(|gpu| gpu.name == plain)
    }
}
