//! Attributes: what an op knows at compile time besides its operands.
//!
//! Each attribute has a type of its own ([`Cmp`], [`Count`], …), a kind, and a text `kind(value)`. An op stores kind and value in
//! one machine word ([`Attr`]), so that printing, parsing and comparing need no code per op; [`OpData::get`](crate::OpData::get)
//! gives the typed value back.

use std::fmt;

use tilewright_hardware::Element;

use crate::types::Shape;

/// A typed attribute and its encoding in a word.
pub trait Attribute: Copy + Sized {
    /// Which attribute this is.
    const KIND: AttrKind;
    /// The word that stands for this value.
    fn encode(self) -> u64;
    /// The value that the word stands for. Words come from [`Attribute::encode`] or from a parser that has checked them.
    fn decode(word: u64) -> Self;
}

/// An attribute of an op.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attr {
    /// Which attribute.
    pub kind: AttrKind,
    /// Its value.
    pub value: AttrValue,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AttrValue {
    /// Anything that fits in a word; the kind says how to read it.
    Word(u64),
    /// Names and messages.
    Text(Box<str>),
}

impl Attr {
    /// An attribute from its typed value.
    #[must_use]
    pub fn of<A: Attribute>(value: A) -> Attr {
        Attr { kind: A::KIND, value: AttrValue::Word(value.encode()) }
    }

    /// A name or a message.
    #[must_use]
    pub fn text(text: &str) -> Attr {
        Attr { kind: AttrKind::Text, value: AttrValue::Text(text.into()) }
    }

    pub(crate) fn parse(kind: AttrKind, text: &str) -> Option<Attr> {
        let value = if kind == AttrKind::Text {
            AttrValue::Text(unquote(text)?.into())
        } else {
            AttrValue::Word(kind.parse_word(text.trim())?)
        };
        Some(Attr { kind, value })
    }
}

impl<A: Attribute> From<A> for Attr {
    fn from(value: A) -> Attr {
        Attr::of(value)
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.kind.name())?;
        match &self.value {
            AttrValue::Word(word) => self.kind.write_word(*word, f)?,
            AttrValue::Text(text) => write!(f, "{text:?}")?,
        }
        f.write_str(")")
    }
}

/// Reads what `{:?}` of a string writes.
pub(crate) fn unquote(text: &str) -> Option<String> {
    let inner = text.trim().strip_prefix('"')?.strip_suffix('"')?;
    let mut out = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            'n' => out.push('\n'),
            't' => out.push('\t'),
            'r' => out.push('\r'),
            '0' => out.push('\0'),
            'u' => {
                let code: String = chars.by_ref().skip(1).take_while(|&c| c != '}').collect();
                out.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
            }
            other => out.push(other),
        }
    }
    Some(out)
}

macro_rules! attributes {
    (
        choices { $( $(#[$cdoc:meta])* $choice:ident $cname:literal { $( $(#[$vdoc:meta])* $variant:ident $vname:literal ),* $(,)? } )* }
        numbers { $( $(#[$ndoc:meta])* $number:ident $nname:literal ($inner:ty) )* }
        others { $( $(#[$odoc:meta])* $other:ident $oname:literal )* }
    ) => {
        /// Which attribute an [`Attr`] is.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AttrKind {
            $( #[doc = concat!("[`", stringify!($choice), "`].")] $choice, )*
            $( #[doc = concat!("[`", stringify!($number), "`].")] $number, )*
            $( $(#[$odoc])* $other, )*
        }

        impl AttrKind {
            /// All kinds.
            pub const ALL: &[AttrKind] = &[$(AttrKind::$choice,)* $(AttrKind::$number,)* $(AttrKind::$other,)*];

            /// The name in the text form.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $( AttrKind::$choice => $cname, )*
                    $( AttrKind::$number => $nname, )*
                    $( AttrKind::$other => $oname, )*
                }
            }

            fn write_word(self, word: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $( AttrKind::$choice => f.write_str($choice::decode(word).name()), )*
                    $( AttrKind::$number => write!(f, "{}", $number::decode(word).0), )*
                    AttrKind::Value => write!(f, "{}", word.cast_signed()),
                    AttrKind::Flags => write!(f, "{}", Flags::decode(word)),
                    AttrKind::Mma => write!(f, "{}", Mma::decode(word)),
                    AttrKind::Warps => { let w = Warps::decode(word); write!(f, "{}..{}", w.start, w.end) }
                    AttrKind::Axes => write!(f, "{}", Axes::decode(word)),
                    AttrKind::Element => write!(f, "{}", Element::decode(word)),
                    AttrKind::Text => Ok(()),
                }
            }

            fn parse_word(self, text: &str) -> Option<u64> {
                match self {
                    $( AttrKind::$choice => $choice::ALL.iter().find(|v| v.name() == text).map(|v| v.encode()), )*
                    $( AttrKind::$number => text.parse::<$inner>().ok().map(|n| $number(n).encode()), )*
                    AttrKind::Value => {
                        text.parse::<i64>().map(i64::cast_unsigned).or_else(|_| text.parse::<u64>()).ok()
                    }
                    AttrKind::Flags => text.parse::<Flags>().ok().map(Flags::encode),
                    AttrKind::Mma => text.parse::<Mma>().ok().map(Mma::encode),
                    AttrKind::Warps => {
                        let (start, end) = text.split_once("..")?;
                        Some(Warps { start: start.parse().ok()?, end: end.parse().ok()? }.encode())
                    }
                    AttrKind::Axes => text.parse::<Axes>().ok().map(Axes::encode),
                    AttrKind::Element => text.parse::<Element>().ok().map(Attribute::encode),
                    AttrKind::Text => None,
                }
            }
        }

        $(
            $(#[$cdoc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub enum $choice { $( $(#[$vdoc])* #[doc = concat!("Written `", $vname, "`.")] $variant, )* }

            impl $choice {
                /// All values.
                pub const ALL: &[$choice] = &[$($choice::$variant,)*];

                /// The name in the text form.
                #[must_use]
                pub fn name(self) -> &'static str {
                    match self { $( $choice::$variant => $vname, )* }
                }
            }

            impl Attribute for $choice {
                const KIND: AttrKind = AttrKind::$choice;
                fn encode(self) -> u64 { self as u64 }
                fn decode(word: u64) -> $choice {
                    usize::try_from(word).ok().and_then(|i| $choice::ALL.get(i)).copied().unwrap_or($choice::ALL[0])
                }
            }
        )*

        $(
            $(#[$ndoc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub struct $number(pub $inner);

            impl Attribute for $number {
                const KIND: AttrKind = AttrKind::$number;
                fn encode(self) -> u64 { u64::from(self.0) }
                #[allow(clippy::cast_possible_truncation, reason = "the word was made by encode")]
                fn decode(word: u64) -> $number { $number(word as $inner) }
            }
        )*
    };
}

attributes! {
    choices {
        /// A comparison. On floats all but `ne` are false when an operand is NaN.
        Cmp "cmp" { Eq "eq", Ne "ne", Lt "lt", Le "le", Gt "gt", Ge "ge" }
        /// How a result that is not representable is rounded.
        Round "round" {
            /// To nearest, ties to even.
            Nearest "rn",
            /// Towards zero.
            Zero "rz",
            /// Towards minus infinity.
            Down "rm",
            /// Towards plus infinity.
            Up "rp",
            /// To nearest, ties away from zero.
            Away "rna",
        }
        /// A register that the hardware keeps.
        Special "reg" {
            TidX "tid.x", TidY "tid.y", TidZ "tid.z",
            NtidX "ntid.x", NtidY "ntid.y", NtidZ "ntid.z",
            CtaidX "ctaid.x", CtaidY "ctaid.y", CtaidZ "ctaid.z",
            NctaidX "nctaid.x", NctaidY "nctaid.y", NctaidZ "nctaid.z",
            LaneId "laneid", WarpId "warpid", SmId "smid", NsmId "nsmid", GridId "gridid",
            LanemaskEq "lanemask_eq", LanemaskLt "lanemask_lt", LanemaskLe "lanemask_le",
            LanemaskGt "lanemask_gt", LanemaskGe "lanemask_ge",
            ClusteridX "clusterid.x", ClusteridY "clusterid.y", ClusteridZ "clusterid.z",
            NclusteridX "nclusterid.x", NclusteridY "nclusterid.y", NclusteridZ "nclusterid.z",
            ClusterCtaidX "cluster_ctaid.x", ClusterCtaidY "cluster_ctaid.y", ClusterCtaidZ "cluster_ctaid.z",
            ClusterCtarank "cluster_ctarank", ClusterNctarank "cluster_nctarank",
            DynamicSmemSize "dynamic_smem_size", TotalSmemSize "total_smem_size",
            Clock "clock", Clock64 "clock64", GlobalTimer "globaltimer",
        }
        /// Which caches an access uses.
        Cache "cache" {
            /// All levels.
            All "ca",
            /// L2 only.
            Global "cg",
            /// Likely used once.
            Streaming "cs",
            /// Last use.
            LastUse "lu",
            /// Do not cache, fetch again.
            Volatile "cv",
            /// Write back at all levels.
            WriteBack "wb",
            /// Write through.
            WriteThrough "wt",
            /// Through the read-only path: nobody writes this memory while the kernel runs.
            ReadOnly "nc",
        }
        /// How eagerly L1 gives a line up.
        Evict "evict" {
            Normal "evict_normal", First "evict_first", Last "evict_last", Unchanged "evict_unchanged", NoAllocate "no_allocate",
        }
        /// How many bytes an access fetches into L2 along with its own.
        Prefetch "prefetch" { B64 "64", B128 "128", B256 "256" }
        /// A cache level.
        Level "level" { L1 "l1", L2 "l2" }
        /// What an L2 policy asks for.
        Policy "policy" { First "evict_first", Last "evict_last", Normal "evict_normal", Unchanged "evict_unchanged" }
        /// Memory order of an access or a fence.
        Order "order" {
            Weak "weak", Volatile "volatile", Relaxed "relaxed", Acquire "acquire", Release "release", AcqRel "acq_rel", SeqCst "sc",
        }
        /// The threads among which an order holds.
        Scope "scope" { Block "cta", Cluster "cluster", Gpu "gpu", System "sys" }
        /// What an atomic or a reduction does.
        Combine "op" {
            Add "add", Min "min", Max "max", And "and", Or "or", Xor "xor", Exchange "exch", Inc "inc", Dec "dec", Popc "popc",
        }
        /// Where a shuffle takes its value from.
        Shuffle "mode" { Index "idx", Up "up", Down "down", Butterfly "bfly" }
        /// What a vote answers.
        Vote "vote" { All "all", Any "any", Uniform "uni", Ballot "ballot" }
        /// Direction of a funnel shift, and what amounts over 31 mean.
        Funnel "funnel" { LeftWrap "l.wrap", LeftClamp "l.clamp", RightWrap "r.wrap", RightClamp "r.clamp" }
        /// Special modes of a byte permutation.
        Permute "permute" { F4e "f4e", B4e "b4e", Rc8 "rc8", Ecl "ecl", Ecr "ecr", Rc16 "rc16" }
        /// Which accesses a proxy fence orders with generic ones.
        FenceProxy "proxy" {
            /// The copy engine and the tensor core, on all memory.
            Async "async",
            /// The same, on global memory.
            AsyncGlobal "async.global",
            /// The same, on shared memory of this block.
            AsyncShared "async.shared",
            /// Several addresses of one memory.
            Alias "alias",
        }
        /// Which field of a tensor map is replaced.
        MapField "field" {
            GlobalAddress "global_address", Rank "rank", BoxDim "box_dim", GlobalDim "global_dim", GlobalStride "global_stride",
            ElementStride "element_stride", Element "elemtype", Interleave "interleave_layout", Swizzle "swizzle_mode",
            Fill "fill_mode",
        }
        /// Which half of a 16-bit pair a dot product takes.
        Half "half" { Low "lo", High "hi" }
    }
    numbers {
        /// How many.
        Count "count" (u32)
        /// A size in bytes.
        Bytes "bytes" (u32)
        /// An alignment in bytes.
        Align "align" (u32)
        /// A position among elements or operands.
        Index "index" (u32)
        /// The truth table of a three-input logic op.
        Lut "lut" (u8)
        /// A bit pattern.
        Bits "bits" (u64)
        /// The number of dimensions of a tensor access.
        Rank "rank" (u8)
        /// Registers of one thread.
        Registers "registers" (u32)
        /// The lanes that a shuffle treats as one segment.
        Width "width" (u8)
        /// A dimension of a tile, counted from the outermost.
        Axis "axis" (u8)
    }
    others {
        /// The value of a constant: the bits of its element, zero- or sign-extended.
        Value "value"
        /// [`Flags`].
        Flags "flags"
        /// [`Mma`].
        Mma "mma"
        /// [`Warps`].
        Warps "warps"
        /// [`Axes`].
        Axes "axes"
        /// An element type.
        Element "element"
        /// A name or a message.
        Text "text"
    }
}

/// The bits of a constant. How they are read depends on the type of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Constant(pub u64);

impl Attribute for Constant {
    const KIND: AttrKind = AttrKind::Value;
    fn encode(self) -> u64 {
        self.0
    }
    fn decode(word: u64) -> Constant {
        Constant(word)
    }
}

impl Attribute for Element {
    const KIND: AttrKind = AttrKind::Element;
    fn encode(self) -> u64 {
        Element::ALL.iter().position(|&e| e == self).map_or(0, |i| i as u64)
    }
    fn decode(word: u64) -> Element {
        usize::try_from(word).ok().and_then(|i| Element::ALL.get(i)).copied().unwrap_or(Element::Bool)
    }
}

/// A set of switches. Which of them an op understands is checked by the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u32);

macro_rules! flags {
    ($( $(#[$doc:meta])* $name:ident = $bit:literal $text:literal )*) => {
        impl Flags {
            $( $(#[$doc])* pub const $name: Flags = Flags(1 << $bit); )*
            const NAMES: &[(Flags, &str)] = &[$((Flags::$name, $text)),*];
        }
    };
}

flags! {
    /// Subnormal inputs and results are zero.
    FTZ = 0 "ftz"
    /// Clamp to the range of the type; for float arithmetic to [0, 1].
    SAT = 1 "sat"
    /// Clamp to the largest finite value.
    SATFINITE = 2 "satfinite"
    /// Negative results are zero.
    RELU = 3 "relu"
    /// A NaN operand makes the result NaN.
    NAN = 4 "nan"
    /// The quick hardware approximation.
    APPROX = 5 "approx"
    /// A quick division with a wider range than `approx`.
    FULL = 6 "full"
    /// The sign is the xor of the signs, the value comes from the absolute values.
    XORSIGN_ABS = 7 "xorsign_abs"
    /// All threads of the warp execute this together.
    ALIGNED = 8 "aligned"
    /// The matrix is transposed on the way.
    TRANS = 9 "trans"
    /// Operand A is stored with its rows contiguous (MN-major).
    TRANS_A = 10 "trans_a"
    /// Operand B is stored with its columns contiguous (MN-major).
    TRANS_B = 11 "trans_b"
    /// Operand A is negated.
    NEG_A = 12 "neg_a"
    /// Operand B is negated.
    NEG_B = 13 "neg_b"
    /// Delivered to several blocks of the cluster.
    MULTICAST = 14 "multicast"
    /// An L2 policy follows as the last operand.
    HINT = 15 "hint"
    /// Convolution addressing: pixels are gathered while copying.
    IM2COL = 16 "im2col"
    /// Only the reads of the source must have finished.
    READ = 17 "read"
    /// The arrival does not count against the expected number.
    NOINC = 18 "noinc"
    /// The hardware may suspend the thread for a while.
    TRY = 19 "try"
    /// All threads of the warp take the same way.
    UNIFORM = 20 "uniform"
    /// Give the position as a shift amount that brings the bit to the top.
    SHIFT_AMOUNT = 21 "shiftamt"
    /// From the last element to the first.
    REVERSE = 22 "reverse"
    /// Factors may be rounded to tf32 on the way into the tensor core.
    TF32 = 23 "tf32"
}

impl Flags {
    /// No switch.
    pub const NONE: Flags = Flags(0);

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// The set if `on`, else nothing.
    #[must_use]
    pub const fn when(self, on: bool) -> Flags {
        if on { self } else { Flags::NONE }
    }

    /// Without the other set.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Does the set contain all of `other`?
    #[must_use]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is the set empty?
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Attribute for Flags {
    const KIND: AttrKind = AttrKind::Flags;
    fn encode(self) -> u64 {
        u64::from(self.0)
    }
    #[allow(clippy::cast_possible_truncation, reason = "the word was made by encode")]
    fn decode(word: u64) -> Flags {
        Flags(word as u32)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (flag, name) in Flags::NAMES {
            if self.has(*flag) {
                if !first {
                    f.write_str(" ")?;
                }
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Flags {
    type Err = ();

    fn from_str(text: &str) -> Result<Flags, ()> {
        text.split_whitespace().try_fold(Flags::NONE, |set, word| {
            Flags::NAMES.iter().find(|(_, name)| *name == word).map(|(flag, _)| set.with(*flag)).ok_or(())
        })
    }
}

/// The identity of a tensor-core instruction: shape and element types. What its operands look like is in
/// `tilewright_hardware`. Written `m16n8k16.f32.bf16.bf16`: accumulator, A, B.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mma {
    /// Rows of A and C.
    pub m: u16,
    /// Columns of B and C.
    pub n: u16,
    /// Columns of A, rows of B.
    pub k: u16,
    /// Element of the accumulator.
    pub c: Element,
    /// Element of A.
    pub a: Element,
    /// Element of B.
    pub b: Element,
}

impl Attribute for Mma {
    const KIND: AttrKind = AttrKind::Mma;
    fn encode(self) -> u64 {
        let shape = u64::from(self.m) | u64::from(self.n) << 12 | u64::from(self.k) << 24;
        shape | self.c.encode() << 36 | self.a.encode() << 44 | self.b.encode() << 52
    }
    fn decode(word: u64) -> Mma {
        let field = |shift: u32, bits: u32| (word >> shift) & ((1 << bits) - 1);
        let dim = |shift| u16::try_from(field(shift, 12)).unwrap_or(0);
        Mma {
            m: dim(0),
            n: dim(12),
            k: dim(24),
            c: Element::decode(field(36, 8)),
            a: Element::decode(field(44, 8)),
            b: Element::decode(field(52, 8)),
        }
    }
}

impl fmt::Display for Mma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}n{}k{}.{}.{}.{}", self.m, self.n, self.k, self.c, self.a, self.b)
    }
}

impl std::str::FromStr for Mma {
    type Err = ();

    fn from_str(text: &str) -> Result<Mma, ()> {
        let mut parts = text.split('.');
        let shape = parts.next().and_then(|s| s.strip_prefix('m')).ok_or(())?;
        let (m, rest) = shape.split_once('n').ok_or(())?;
        let (n, k) = rest.split_once('k').ok_or(())?;
        let mut element = || parts.next().and_then(|s| s.parse::<Element>().ok()).ok_or(());
        let (c, a, b) = (element()?, element()?, element()?);
        let dim = |s: &str| s.parse::<u16>().ok().filter(|&d| d < 4096).ok_or(());
        Ok(Mma { m: dim(m)?, n: dim(n)?, k: dim(k)?, c, a, b })
    }
}

/// The warps of a block that take on a role: `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Warps {
    /// The first warp.
    pub start: u16,
    /// One past the last.
    pub end: u16,
}

impl Attribute for Warps {
    const KIND: AttrKind = AttrKind::Warps;
    fn encode(self) -> u64 {
        u64::from(self.start) | u64::from(self.end) << 16
    }
    fn decode(word: u64) -> Warps {
        let half = |shift: u32| u16::try_from((word >> shift) & 0xffff).unwrap_or(0);
        Warps { start: half(0), end: half(16) }
    }
}

/// Which axis of its operand each axis of a result is. Written `1,0`.
///
/// ```
/// use tilewright_ir::Axes;
/// let transpose = Axes::new(&[1, 0]).expect("a permutation");
/// assert_eq!((transpose.to_string(), transpose.inverse()), ("1,0".to_owned(), transpose));
/// assert!(Axes::new(&[0, 0]).is_none());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Axes {
    rank: u8,
    axes: [u8; Shape::MAX_RANK],
}

impl Axes {
    /// The permutation; none if an axis is missing.
    #[must_use]
    pub fn new(axes: &[u8]) -> Option<Axes> {
        let rank = u8::try_from(axes.len()).ok().filter(|_| axes.len() <= Shape::MAX_RANK)?;
        let mut all = [0; Shape::MAX_RANK];
        all[..axes.len()].copy_from_slice(axes);
        (0..rank).all(|axis| axes.contains(&axis)).then_some(Axes { rank, axes: all })
    }

    /// The axes of the operand, in the order of the result.
    #[must_use]
    pub fn axes(&self) -> &[u8] {
        &self.axes[..usize::from(self.rank)]
    }

    /// The permutation that undoes this one.
    #[must_use]
    pub fn inverse(&self) -> Axes {
        let mut inverse = *self;
        for (to, from) in (0u8..).zip(self.axes()) {
            inverse.axes[usize::from(*from)] = to;
        }
        inverse
    }
}

impl Attribute for Axes {
    const KIND: AttrKind = AttrKind::Axes;
    fn encode(self) -> u64 {
        self.axes().iter().rev().fold(1, |word, &axis| word << 8 | u64::from(axis))
    }
    fn decode(word: u64) -> Axes {
        let mut axes = Axes { rank: 0, axes: [0; Shape::MAX_RANK] };
        let mut rest = word;
        while rest > 1 && usize::from(axes.rank) < Shape::MAX_RANK {
            axes.axes[usize::from(axes.rank)] = u8::try_from(rest & 0xff).unwrap_or(0);
            axes.rank += 1;
            rest >>= 8;
        }
        axes
    }
}

impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, axis) in self.axes().iter().enumerate() {
            write!(f, "{}{axis}", if i > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Axes {
    type Err = ();

    fn from_str(text: &str) -> Result<Axes, ()> {
        let axes: Vec<u8> =
            text.split(',').map(|a| a.trim().parse().map_err(|_| ())).collect::<Result<_, _>>()?;
        Axes::new(&axes).ok_or(())
    }
}
