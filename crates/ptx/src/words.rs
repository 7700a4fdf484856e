//! The vocabulary of PTX: opcodes, modifiers, types and special registers, one list each.
//!
//! An instruction such as `cp.async.bulk.commit_group` is the [`Opcode`] `cp` followed by the [`Modifier`]s `async`,
//! `bulk` and `commit_group`: the opcode is the word before the first dot, everything behind a dot is a modifier. Matrix
//! shapes (`m64n256k16`) are one modifier with numbers in it; types are modifiers that carry a [`Type`].
//!
//! A word that stands in no list does not parse, so the lists hold the words of the whole instruction set, including
//! those of instructions for which the legality table has no rows.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::OnceLock;

/// Declares a `Copy` enum whose variants have a spelling.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($variant:ident $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the spelling below is the documentation")]
        pub enum $name { $(#[doc = concat!("`", $text, "`")] $variant,)* }

        impl $name {
            /// All of them, in the order of the list.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The spelling in PTX, without a dot.
            pub const fn text(self) -> &'static str {
                const TEXTS: &[&str] = &[$($text,)*];
                TEXTS[self as usize]
            }

            /// The one with this spelling.
            pub fn from_text(text: &str) -> Option<$name> {
                static INDEX: OnceLock<HashMap<&'static str, $name>> = OnceLock::new();
                lookup(&INDEX, $name::ALL, $name::text, text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}

fn lookup<T: Copy + Eq + Hash>(
    index: &OnceLock<HashMap<&'static str, T>>,
    all: &[T],
    spelling: fn(T) -> &'static str,
    text: &str,
) -> Option<T> {
    index.get_or_init(|| all.iter().map(|&word| (spelling(word), word)).collect()).get(text).copied()
}

words! {
    /// The first word of an instruction.
    Opcode {
        Abs "abs", Activemask "activemask", Add "add", Addc "addc", Alloca "alloca", And "and",
        Applypriority "applypriority", Atom "atom", Bar "bar", Barrier "barrier", Bfe "bfe", Bfi "bfi",
        Bfind "bfind", Bmsk "bmsk", Bra "bra", Brev "brev", Brkpt "brkpt", Brx "brx", Call "call", Clz "clz",
        Clusterlaunchcontrol "clusterlaunchcontrol", Cnot "cnot", Copysign "copysign", Cos "cos", Cp "cp",
        Createpolicy "createpolicy", Cvt "cvt", Cvta "cvta", Discard "discard", Div "div", Dp2a "dp2a", Dp4a "dp4a",
        Elect "elect", Ex2 "ex2", Exit "exit", Fence "fence", Fma "fma", Fns "fns", Getctarank "getctarank",
        Griddepcontrol "griddepcontrol", Isspacep "isspacep", Istypep "istypep", Ld "ld", Ldmatrix "ldmatrix",
        Ldu "ldu", Lg2 "lg2", Lop3 "lop3", Mad "mad", Mad24 "mad24", Madc "madc", Mapa "mapa", Match "match",
        Max "max", Mbarrier "mbarrier", Membar "membar", Min "min", Mma "mma", Mov "mov", Movmatrix "movmatrix",
        Mul "mul", Mul24 "mul24", Multimem "multimem", Nanosleep "nanosleep", Neg "neg", Not "not", Or "or",
        Pmevent "pmevent", Popc "popc", Prefetch "prefetch", Prefetchu "prefetchu", Prmt "prmt", Rcp "rcp",
        Red "red", Redux "redux", Rem "rem", Ret "ret", Rsqrt "rsqrt", Sad "sad", Selp "selp", Set "set",
        Setmaxnreg "setmaxnreg", Setp "setp", Shf "shf", Shfl "shfl", Shl "shl", Shr "shr", Sin "sin", Slct "slct",
        Sqrt "sqrt", St "st", Stackrestore "stackrestore", Stacksave "stacksave", Stmatrix "stmatrix", Sub "sub",
        Subc "subc", Suld "suld", Suq "suq", Sured "sured", Sust "sust", Szext "szext", Tanh "tanh",
        Tcgen05 "tcgen05", Tensormap "tensormap", Testp "testp", Tex "tex", Tld4 "tld4", Trap "trap", Txq "txq",
        Vabsdiff "vabsdiff", Vabsdiff2 "vabsdiff2", Vabsdiff4 "vabsdiff4", Vadd "vadd", Vadd2 "vadd2",
        Vadd4 "vadd4", Vavrg2 "vavrg2", Vavrg4 "vavrg4", Vmad "vmad", Vmax "vmax", Vmax2 "vmax2", Vmax4 "vmax4",
        Vmin "vmin", Vmin2 "vmin2", Vmin4 "vmin4", Vote "vote", Vset "vset", Vset2 "vset2", Vset4 "vset4",
        Vshl "vshl", Vshr "vshr", Vsub "vsub", Vsub2 "vsub2", Vsub4 "vsub4", Wgmma "wgmma", Wmma "wmma",
        Xor "xor",
    }
}

/// Declares [`Type`] with the size and the class of each, and one constant of [`Modifier`] each.
macro_rules! types {
    ($($variant:ident $constant:ident $text:literal $bits:literal $class:ident,)*) => {
        words! {
            /// The type of a register, variable, or instruction.
            Type { $($variant $text,)* }
        }

        impl Type {
            /// The size of a value, in bits. Types without values (`texref`) have size 64, that of their handle.
            pub const fn bits(self) -> u32 {
                match self { $(Type::$variant => $bits,)* }
            }

            /// What kind of value it is.
            pub const fn class(self) -> Class {
                match self { $(Type::$variant => Class::$class,)* }
            }
        }

        /// The types as modifiers.
        #[allow(missing_docs, reason = "one constant for each type, named like it")]
        impl Modifier {
            $(#[doc = concat!("`.", $text, "`")] pub const $constant: Modifier = Modifier::Type(Type::$variant);)*
        }
    };
}

/// The kinds of types that PTX keeps apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Untyped bits: agrees with every other class of the same size.
    Bits,
    /// Signed and unsigned integers, which agree with each other.
    Integer,
    /// `f16`, `f16x2`, `f32` and `f64`: the floating-point types that registers can have.
    Float,
    /// Formats that live in registers of untyped bits: `bf16`, `tf32`, 8-bit floats and smaller, packed types.
    Packed,
    /// Predicates.
    Predicate,
    /// Opaque handles: textures, samplers, surfaces.
    Opaque,
}

types! {
    B1 B1 "b1" 1 Bits, B8 B8 "b8" 8 Bits, B16 B16 "b16" 16 Bits, B32 B32 "b32" 32 Bits, B64 B64 "b64" 64 Bits,
    B128 B128 "b128" 128 Bits, B1024 B1024 "b1024" 1024 Bits,
    U2 U2 "u2" 2 Integer, U4 U4 "u4" 4 Integer, U8 U8 "u8" 8 Integer, U16 U16 "u16" 16 Integer,
    U32 U32 "u32" 32 Integer, U64 U64 "u64" 64 Integer,
    S2 S2 "s2" 2 Integer, S4 S4 "s4" 4 Integer, S8 S8 "s8" 8 Integer, S16 S16 "s16" 16 Integer,
    S32 S32 "s32" 32 Integer, S64 S64 "s64" 64 Integer,
    F16 F16 "f16" 16 Float, F16x2 F16X2 "f16x2" 32 Float, F32 F32 "f32" 32 Float, F64 F64 "f64" 64 Float,
    F32x2 F32X2 "f32x2" 64 Packed,
    Bf16 BF16 "bf16" 16 Packed, Bf16x2 BF16X2 "bf16x2" 32 Packed, Tf32 TF32 "tf32" 32 Packed,
    U16x2 U16X2 "u16x2" 32 Packed, S16x2 S16X2 "s16x2" 32 Packed, B16x2 B16X2 "b16x2" 32 Packed,
    U8x4 U8X4 "u8x4" 32 Packed, S8x4 S8X4 "s8x4" 32 Packed,
    E4m3 E4M3 "e4m3" 8 Packed, E4m3x2 E4M3X2 "e4m3x2" 16 Packed, E4m3x4 E4M3X4 "e4m3x4" 32 Packed,
    E5m2 E5M2 "e5m2" 8 Packed, E5m2x2 E5M2X2 "e5m2x2" 16 Packed, E5m2x4 E5M2X4 "e5m2x4" 32 Packed,
    E2m1 E2M1 "e2m1" 4 Packed, E2m1x2 E2M1X2 "e2m1x2" 8 Packed, E2m1x4 E2M1X4 "e2m1x4" 16 Packed,
    E2m3 E2M3 "e2m3" 6 Packed, E2m3x2 E2M3X2 "e2m3x2" 16 Packed, E2m3x4 E2M3X4 "e2m3x4" 32 Packed,
    E3m2 E3M2 "e3m2" 6 Packed, E3m2x2 E3M2X2 "e3m2x2" 16 Packed, E3m2x4 E3M2X4 "e3m2x4" 32 Packed,
    Ue8m0 UE8M0 "ue8m0" 8 Packed, Ue8m0x2 UE8M0X2 "ue8m0x2" 16 Packed, Ue4m3 UE4M3 "ue4m3" 8 Packed,
    S2f6x2 S2F6X2 "s2f6x2" 16 Packed,
    B8x16 B8X16 "b8x16" 128 Packed, B4x16 B4X16 "b4x16" 64 Packed, B4x16P64 B4X16_P64 "b4x16_p64" 128 Packed,
    B6x16P32 B6X16_P32 "b6x16_p32" 128 Packed, B6p2x16 B6P2X16 "b6p2x16" 128 Packed,
    Pred PRED "pred" 1 Predicate,
    Texref TEXREF "texref" 64 Opaque, Samplerref SAMPLERREF "samplerref" 64 Opaque,
    Surfref SURFREF "surfref" 64 Opaque,
}

/// A matrix shape, such as `m64n256k16`; `k` is 0 in shapes of two extents such as `m8n8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shape {
    /// Rows.
    pub m: u16,
    /// Columns.
    pub n: u16,
    /// Depth, 0 if the shape has none.
    pub k: u16,
}

impl Shape {
    /// Reads `m64n8k16` or `m8n8`.
    pub fn from_text(text: &str) -> Option<Shape> {
        fn number(text: &str) -> Option<u16> {
            let plain =
                !text.is_empty() && !text.starts_with('0') && text.bytes().all(|c| c.is_ascii_digit());
            if plain { text.parse().ok() } else { None }
        }
        let (m, rest) = text.strip_prefix('m')?.split_once('n')?;
        match rest.split_once('k') {
            Some((n, k)) => Some(Shape { m: number(m)?, n: number(n)?, k: number(k)? }),
            None => Some(Shape { m: number(m)?, n: number(rest)?, k: 0 }),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { m, n, k } = self;
        if *k == 0 { write!(f, "m{m}n{n}") } else { write!(f, "m{m}n{n}k{k}") }
    }
}

/// Declares [`Modifier`] around the list of its plain words.
macro_rules! modifiers {
    ($($variant:ident $text:literal,)*) => {
        /// One dotted word behind an opcode.
        ///
        /// ```
        /// use tilewright_ptx::{Modifier, Shape};
        /// assert_eq!(Modifier::from_text("shared::cta"), Some(Modifier::SharedCta));
        /// assert_eq!(Modifier::from_text("bf16x2"), Some(Modifier::BF16X2));
        /// assert_eq!(Modifier::from_text("m64n8k16"), Some(Modifier::Shape(Shape { m: 64, n: 8, k: 16 })));
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Modifier {
            /// A type, `.f32`.
            Type(Type),
            /// A matrix shape, `.m16n8k16`.
            Shape(Shape),
            $(#[doc = concat!("`.", $text, "`")] $variant,)*
        }

        impl Modifier {
            /// All but the types and the shapes.
            pub const PLAIN: &'static [Modifier] = &[$(Modifier::$variant,)*];

            /// The spelling without its dot; `None` for shapes, whose spelling is made of numbers.
            pub const fn text(self) -> Option<&'static str> {
                match self {
                    Modifier::Type(ty) => Some(ty.text()),
                    Modifier::Shape(_) => None,
                    $(Modifier::$variant => Some($text),)*
                }
            }
        }
    };
}

modifiers! {
    // Rounding, saturation, and other ways to compute.
    Rn "rn", Rna "rna", Rz "rz", Rm "rm", Rp "rp", Rni "rni", Rzi "rzi", Rmi "rmi", Rpi "rpi", Rs "rs",
    Ftz "ftz", Noftz "noftz", Sat "sat", Satfinite "satfinite", Relu "relu", Approx "approx", Full "full",
    Nan "NaN", Xorsign "xorsign", AbsModifier "abs", Oob "oob", Cc "cc", Wide "wide", Hi "hi", Lo "lo",
    ScaledN2Ue8m0 "scaled::n2::ue8m0", Pack "pack", Shiftamt "shiftamt", Clamp "clamp", Wrap "wrap",
    Left "l", Right "r", Shr7 "shr7", Shr15 "shr15", Po "po",
    // Comparisons and number classes. `.hi`, `.lo` and `.num` double as other words.
    Eq "eq", Ne "ne", Lt "lt", Le "le", Gt "gt", Ge "ge", Ls "ls", Hs "hs", Equ "equ", Neu "neu", Ltu "ltu",
    Leu "leu", Gtu "gtu", Geu "geu", Num "num", NanTest "nan", Finite "finite", Infinite "infinite",
    Number "number", Notanumber "notanumber", Normal "normal", Subnormal "subnormal",
    // Operations of atomics, reductions, votes, shuffles; `Op` tells them from the opcodes of the same name.
    AddOp "add", AndOp "and", OrOp "or", XorOp "xor", MinOp "min", MaxOp "max", Inc "inc", Dec "dec", Exch "exch",
    Cas "cas", PopcOp "popc", Ballot "ballot", Any "any", All "all", Uni "uni", Up "up", Down "down", Bfly "bfly",
    Idx "idx", Async "async", LdReduce "ld_reduce", RedOp "red", LdOp "ld", StOp "st", Reduce "reduce",
    // Byte permutations.
    F4e "f4e", B4e "b4e", Rc8 "rc8", Ecl "ecl", Ecr "ecr", Rc16 "rc16",
    // State spaces.
    Const "const", Global "global", Local "local", Param "param", ParamEntry "param::entry",
    ParamFunc "param::func", Shared "shared", SharedCta "shared::cta", SharedCluster "shared::cluster",
    Reg "reg", Tex "tex", To "to", Unified "unified",
    // Cache behaviour.
    Ca "ca", Cg "cg", Cs "cs", Lu "lu", Cv "cv", Wb "wb", Wt "wt", Nc "nc", L1 "L1", L2 "L2",
    L1EvictNormal "L1::evict_normal", L1EvictUnchanged "L1::evict_unchanged", L1EvictFirst "L1::evict_first",
    L1EvictLast "L1::evict_last", L1NoAllocate "L1::no_allocate", L2EvictNormal "L2::evict_normal",
    L2EvictFirst "L2::evict_first", L2EvictLast "L2::evict_last", L2EvictUnchanged "L2::evict_unchanged",
    L2CacheHint "L2::cache_hint", L2Prefetch64 "L2::64B", L2Prefetch128 "L2::128B", L2Prefetch256 "L2::256B",
    Fractional "fractional", Mask "mask", Range "range", Cvt "cvt", Tensormap "tensormap",
    // Memory model.
    Volatile "volatile", Weak "weak", Relaxed "relaxed", Acquire "acquire", Release "release", AcqRel "acq_rel",
    Sc "sc", Mmio "mmio", Cta "cta", Cluster "cluster", Gpu "gpu", Sys "sys", Gl "gl", Proxy "proxy",
    Alias "alias", AsyncGeneric "async::generic", TensormapGeneric "tensormap::generic",
    MbarrierInit "mbarrier_init", SyncRestrictCta "sync_restrict::shared::cta",
    SyncRestrictCluster "sync_restrict::shared::cluster", OpRestrict "op_restrict",
    // Vectors, repetitions, dimensions.
    V2 "v2", V4 "v4", V8 "v8", X1 "x1", X2 "x2", X4 "x4", X8 "x8", X16 "x16", X32 "x32", X64 "x64", X128 "x128",
    D1 "1d", D2 "2d", D3 "3d", D4 "4d", D5 "5d",
    // Barriers and synchronisation.
    Sync "sync", Aligned "aligned", Arrive "arrive", ArriveDrop "arrive_drop", NoComplete "noComplete",
    ExpectTx "expect_tx", CompleteTx "complete_tx", Init "init", Inval "inval", TestWait "test_wait",
    TryWait "try_wait", Parity "parity", PendingCount "pending_count", Wait "wait", Warp "warp",
    LaunchDependents "launch_dependents", Noinc "noinc",
    // Asynchronous copies.
    Bulk "bulk", BulkGroup "bulk_group", CommitGroup "commit_group", WaitGroup "wait_group", WaitAll "wait_all",
    Read "read", Mbarrier "mbarrier", MbarrierCompleteTx "mbarrier::complete_tx::bytes",
    MbarrierArriveOne "mbarrier::arrive::one", MulticastCluster "multicast::cluster",
    MulticastClusterAll "multicast::cluster::all", Tensor "tensor", Tile "tile", TileGather4 "tile::gather4",
    TileScatter4 "tile::scatter4", Im2col "im2col", Im2colW "im2col::w", Im2colW128 "im2col::w::128",
    Im2colNoOffs "im2col_no_offs", CpMask "cp_mask", IgnoreOob "ignore_oob", Prefetch "prefetch", Zfill "zfill",
    CtaGroup1 "cta_group::1", CtaGroup2 "cta_group::2",
    // Tensor maps.
    Replace "replace", CpFenceproxy "cp_fenceproxy", GlobalAddress "global_address", Rank "rank",
    BoxDim "box_dim", GlobalDim "global_dim", GlobalStride "global_stride", ElementStride "element_stride",
    Elemtype "elemtype", InterleaveLayout "interleave_layout", SwizzleMode "swizzle_mode",
    SwizzleAtomicity "swizzle_atomicity", FillMode "fill_mode",
    // Matrices.
    Row "row", Col "col", Trans "trans", Sp "sp", SpOrderedMetadata "sp::ordered_metadata", MmaAsync "mma_async",
    Fence "fence", Load "load", Store "store", MmaOp "mma", A "a", B "b", C "c", D "d", BlockScale "block_scale",
    KindMxf8f6f4 "kind::mxf8f6f4", KindMxf4 "kind::mxf4", KindMxf4nvf4 "kind::mxf4nvf4", KindF8f6f4 "kind::f8f6f4",
    KindF16 "kind::f16", KindTf32 "kind::tf32", KindI8 "kind::i8", ScaleVec1x "scale_vec::1X",
    ScaleVec2x "scale_vec::2X", ScaleVec4x "scale_vec::4X", Block16 "block16", Block32 "block32",
    AccF32 "acc::f32", AccF16 "acc::f16",
    // Tensor memory.
    Alloc "alloc", Dealloc "dealloc", RelinquishAllocPermit "relinquish_alloc_permit", Cp "cp", Shift "shift",
    Commit "commit", Ws "ws", WaitLd "wait::ld", WaitSt "wait::st", FenceBefore "fence::before_thread_sync",
    FenceAfter "fence::after_thread_sync", Pack16 "pack::16b", Unpack16 "unpack::16b", Ashift "ashift",
    T16x32bx2 "16x32bx2", T16x64b "16x64b", T16x128b "16x128b", T16x256b "16x256b", T32x32b "32x32b",
    T128x256b "128x256b", T128x128b "128x128b", T4x256b "4x256b", T64x128b "64x128b", T32x128b "32x128b",
    Warpx2_02_13 "warpx2::02_13", Warpx2_01_23 "warpx2::01_23", Warpx4 "warpx4",
    CollectorA "collector::a", CollectorAFill "collector::a::fill", CollectorAUse "collector::a::use",
    CollectorALastuse "collector::a::lastuse", CollectorADiscard "collector::a::discard",
    CollectorB0Fill "collector::b0::fill", CollectorB0Use "collector::b0::use",
    CollectorB0Lastuse "collector::b0::lastuse", CollectorB0Discard "collector::b0::discard",
    CollectorB1Fill "collector::b1::fill", CollectorB1Use "collector::b1::use",
    CollectorB1Lastuse "collector::b1::lastuse", CollectorB1Discard "collector::b1::discard",
    CollectorB2Fill "collector::b2::fill", CollectorB2Use "collector::b2::use",
    CollectorB2Lastuse "collector::b2::lastuse", CollectorB2Discard "collector::b2::discard",
    CollectorB3Fill "collector::b3::fill", CollectorB3Use "collector::b3::use",
    CollectorB3Lastuse "collector::b3::lastuse", CollectorB3Discard "collector::b3::discard",
    // Launch control of clusters.
    TryCancel "try_cancel", QueryCancel "query_cancel", IsCanceled "is_canceled", GetFirstCtaid "get_first_ctaid",
    GetFirstCtaidX "get_first_ctaid::x", GetFirstCtaidY "get_first_ctaid::y", GetFirstCtaidZ "get_first_ctaid::z",
    // Textures and surfaces.
    Level "level", Grad "grad", Base "base", A1d "a1d", A2d "a2d", Cube "cube", Acube "acube", Dms2 "2dms",
    A2dms "a2dms", Width "width", Height "height", Depth "depth", ChannelDataType "channel_data_type",
    ChannelOrder "channel_order", NormalizedCoords "normalized_coords", ArraySize "array_size",
    NumMipmapLevels "num_mipmap_levels", NumSamples "num_samples", FilterMode "filter_mode",
    AddrMode0 "addr_mode_0", AddrMode1 "addr_mode_1", AddrMode2 "addr_mode_2",
    ForceUnnormalizedCoords "force_unnormalized_coords", MemoryLayout "memory_layout", Trap "trap", Zero "zero",
    P "p", G "g",
}

impl Modifier {
    /// The modifier with this spelling, given without its dot.
    pub fn from_text(text: &str) -> Option<Modifier> {
        static INDEX: OnceLock<HashMap<&'static str, Modifier>> = OnceLock::new();
        let plain = lookup(&INDEX, Modifier::PLAIN, |word| word.text().unwrap_or_default(), text);
        plain
            .or_else(|| Type::from_text(text).map(Modifier::Type))
            .or_else(|| Shape::from_text(text).map(Modifier::Shape))
    }

    /// The type that it names, if it does.
    pub const fn ty(self) -> Option<Type> {
        match self {
            Modifier::Type(ty) => Some(ty),
            _ => None,
        }
    }

    /// The number in `v4`, `x2` or `3d`: how many elements, matrices or dimensions.
    pub const fn count(self) -> Option<usize> {
        Some(match self {
            Modifier::X1 | Modifier::D1 => 1,
            Modifier::V2 | Modifier::X2 | Modifier::D2 => 2,
            Modifier::D3 => 3,
            Modifier::V4 | Modifier::X4 | Modifier::D4 => 4,
            Modifier::D5 => 5,
            Modifier::V8 | Modifier::X8 => 8,
            Modifier::X16 => 16,
            Modifier::X32 => 32,
            Modifier::X64 => 64,
            Modifier::X128 => 128,
            _ => return None,
        })
    }
}

impl From<Type> for Modifier {
    fn from(ty: Type) -> Modifier {
        Modifier::Type(ty)
    }
}

impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Modifier::Shape(shape) => shape.fmt(f),
            other => f.write_str(other.text().unwrap_or_default()),
        }
    }
}

words! {
    /// A register that the machine fills in, with the component where it has some.
    SpecialRegister {
        TidX "%tid.x", TidY "%tid.y", TidZ "%tid.z", TidW "%tid.w", NtidX "%ntid.x", NtidY "%ntid.y",
        NtidZ "%ntid.z", NtidW "%ntid.w", CtaidX "%ctaid.x", CtaidY "%ctaid.y", CtaidZ "%ctaid.z",
        CtaidW "%ctaid.w", NctaidX "%nctaid.x", NctaidY "%nctaid.y", NctaidZ "%nctaid.z",
        NctaidW "%nctaid.w", ClusteridX "%clusterid.x", ClusteridY "%clusterid.y",
        ClusteridZ "%clusterid.z", ClusteridW "%clusterid.w", NclusteridX "%nclusterid.x",
        NclusteridY "%nclusterid.y", NclusteridZ "%nclusterid.z", NclusteridW "%nclusterid.w",
        ClusterCtaidX "%cluster_ctaid.x", ClusterCtaidY "%cluster_ctaid.y",
        ClusterCtaidZ "%cluster_ctaid.z", ClusterCtaidW "%cluster_ctaid.w",
        ClusterNctaidX "%cluster_nctaid.x", ClusterNctaidY "%cluster_nctaid.y",
        ClusterNctaidZ "%cluster_nctaid.z", ClusterNctaidW "%cluster_nctaid.w", Tid "%tid",
        Ntid "%ntid", Ctaid "%ctaid", Nctaid "%nctaid", Clusterid "%clusterid",
        Nclusterid "%nclusterid", ClusterCtaid "%cluster_ctaid", ClusterNctaid "%cluster_nctaid",
        ClusterCtarank "%cluster_ctarank", ClusterNctarank "%cluster_nctarank",
        IsExplicitCluster "%is_explicit_cluster", Laneid "%laneid", Warpid "%warpid",
        Nwarpid "%nwarpid", Smid "%smid", Nsmid "%nsmid", Gridid "%gridid", LanemaskEq "%lanemask_eq",
        LanemaskLe "%lanemask_le", LanemaskLt "%lanemask_lt", LanemaskGe "%lanemask_ge",
        LanemaskGt "%lanemask_gt", Clock "%clock", ClockHi "%clock_hi", Clock64 "%clock64",
        Globaltimer "%globaltimer", GlobaltimerLo "%globaltimer_lo", GlobaltimerHi "%globaltimer_hi",
        ReservedSmemOffsetBegin "%reserved_smem_offset_begin",
        ReservedSmemOffsetEnd "%reserved_smem_offset_end",
        ReservedSmemOffsetCap "%reserved_smem_offset_cap",
        ReservedSmemOffset0 "%reserved_smem_offset_0", ReservedSmemOffset1 "%reserved_smem_offset_1",
        TotalSmemSize "%total_smem_size", AggrSmemSize "%aggr_smem_size",
        DynamicSmemSize "%dynamic_smem_size", CurrentGraphExec "%current_graph_exec", Pm0 "%pm0",
        Pm1 "%pm1", Pm2 "%pm2", Pm3 "%pm3", Pm4 "%pm4", Pm5 "%pm5", Pm6 "%pm6", Pm7 "%pm7",
        Pm0Wide "%pm0_64", Pm1Wide "%pm1_64", Pm2Wide "%pm2_64", Pm3Wide "%pm3_64", Pm4Wide "%pm4_64",
        Pm5Wide "%pm5_64", Pm6Wide "%pm6_64", Pm7Wide "%pm7_64", Envreg0 "%envreg0", Envreg1 "%envreg1",
        Envreg2 "%envreg2", Envreg3 "%envreg3", Envreg4 "%envreg4", Envreg5 "%envreg5",
        Envreg6 "%envreg6", Envreg7 "%envreg7", Envreg8 "%envreg8", Envreg9 "%envreg9",
        Envreg10 "%envreg10", Envreg11 "%envreg11", Envreg12 "%envreg12", Envreg13 "%envreg13",
        Envreg14 "%envreg14", Envreg15 "%envreg15", Envreg16 "%envreg16", Envreg17 "%envreg17",
        Envreg18 "%envreg18", Envreg19 "%envreg19", Envreg20 "%envreg20", Envreg21 "%envreg21",
        Envreg22 "%envreg22", Envreg23 "%envreg23", Envreg24 "%envreg24", Envreg25 "%envreg25",
        Envreg26 "%envreg26", Envreg27 "%envreg27", Envreg28 "%envreg28", Envreg29 "%envreg29",
        Envreg30 "%envreg30", Envreg31 "%envreg31",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_and_no_spelling_stands_twice() {
        for &opcode in Opcode::ALL {
            assert_eq!(Opcode::from_text(opcode.text()), Some(opcode));
        }
        for &modifier in Modifier::PLAIN {
            assert_eq!(Modifier::from_text(&modifier.to_string()), Some(modifier));
            assert_eq!(Type::from_text(&modifier.to_string()), None);
        }
        for &ty in Type::ALL {
            assert_eq!(Modifier::from_text(ty.text()), Some(Modifier::Type(ty)));
        }
        for &register in SpecialRegister::ALL {
            assert_eq!(SpecialRegister::from_text(register.text()), Some(register));
        }
    }

    #[test]
    fn shapes_are_numbers() {
        for text in ["m64n256k16", "m8n8", "m16n8k8"] {
            assert_eq!(Shape::from_text(text).map(|shape| shape.to_string()).as_deref(), Some(text));
        }
        for text in ["m64", "m64n", "mnk", "m08n8", "m8n8k", "m8n8k0", "n8m8", "m99999n8"] {
            assert_eq!(Shape::from_text(text), None, "{text}");
        }
    }
}
