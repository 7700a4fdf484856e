//! The op table: everything that the compiler knows about an op, in one row.
//!
//! A row reads
//!
//! ```text
//! /// What it does.
//! Name "mnemonic" (operand classes) -> (results) [attributes] group, effects;
//! ```
//!
//! * An operand class is a [`Class`]: what types are accepted. `Same(i)` means the type of operand `i`, `Rest(c)` any number of
//!   further operands of class `c`, `Maybe(c)` one more or none.
//! * A result is a [`Out`]: a fixed type, the type of an operand, or `Given` by whoever builds the op.
//! * `+Kind` is an attribute that must be there, `?Kind` one that may be.
//! * The group is who executes the op together. Anything wider than a thread is *convergent*: it must not move into or out of
//!   control flow.
//! * Effects are `pure`, or the memory that operands lead to (`reads(0)`, `writes(1)`, `updates(0)`, with `async_` in front when
//!   the copy engine or the tensor core does it), or `orders`: memory accesses must not move across; or `control`.
//!
//! To add an op, add a row here and an arm in the code generator; the guide is `docs/add-an-op.md`.

use tilewright_hardware::Element;

use crate::attr::AttrKind;
use crate::types::{Space, Type};

/// What types an operand may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Any type.
    Any,
    /// Integers or floats, scalar or vector.
    Number,
    /// Integers, scalar or vector.
    Integer,
    /// Floats with arithmetic (f16, bf16, f32, f64), scalar or vector.
    Float,
    /// Integers or `bool`, scalar or vector.
    Logic,
    /// Scalars and vectors of at most 64 bits.
    Register,
    /// Any scalar.
    Scalar,
    /// Any vector.
    Vector,
    /// A scalar integer of 32 bits.
    Word,
    /// Exactly this type.
    Is(Type),
    /// The type of an earlier operand.
    Same(u8),
    /// Any pointer.
    Pointer,
    /// A pointer into this space.
    In(Space),
    /// A pointer to shared memory, of this block or of the cluster.
    SharedOrCluster,
    /// A 64-bit offset for 64-bit pointers, a 32-bit one for 32-bit pointers, in bytes; operand 0 is the pointer.
    Offset,
    /// A tensor map: a parameter, or a pointer to one in memory.
    Map,
    /// A matrix of a warpgroup multiplication: a descriptor (`u64`) or registers (a vector).
    MatrixOperand,
    /// An accumulator.
    Accumulator,
    /// Any tile.
    Tile,
    /// A tile of these elements.
    TileOf(Element),
    /// A tile of integers, 32 or 64 bits wide: distances from a pointer, in elements.
    Distances,
}

/// How operands line up with classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arity {
    /// One operand.
    One(Class),
    /// One or none.
    Maybe(Class),
    /// Any number; the last entry of a row.
    Rest(Class),
}

/// The type of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// The type of an operand.
    Like(u8),
    /// This type.
    Of(Type),
    /// What the builder says.
    Given,
    /// As many results as the builder says.
    GivenRest,
}

/// Who executes an op together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Each thread for itself.
    Thread,
    /// The threads of a warp.
    Warp,
    /// Four warps, the first a multiple of four.
    Warpgroup,
    /// The threads of a block.
    Block,
    /// The blocks of a cluster.
    Cluster,
    /// A program of the tile level: whatever threads it becomes, all of them together.
    Program,
}

/// Which unit touches memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proxy {
    /// Loads and stores.
    Generic,
    /// The copy engine and the tensor core.
    Async,
}

/// Read, write or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Reads and writes in one step.
    Update,
}

/// An access to the memory that an operand leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// The operand: a pointer, a tensor map, a descriptor or an accumulator.
    pub operand: u8,
    /// Read or write.
    pub kind: AccessKind,
    /// By which unit.
    pub proxy: Proxy,
}

/// What an op does besides computing results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effects {
    /// Accesses to memory.
    pub accesses: &'static [Access],
    /// Accesses must not move across this op.
    pub orders: bool,
    /// The op steers control flow, ends a region, or stops the program.
    pub control: bool,
}

/// One row of the table.
#[derive(Debug)]
pub struct OpInfo {
    /// The op.
    pub code: Opcode,
    /// The name in the text form.
    pub mnemonic: &'static str,
    /// What it does, for people.
    pub doc: &'static str,
    /// Classes of the operands.
    pub operands: &'static [Arity],
    /// Types of the results.
    pub results: &'static [Out],
    /// Attributes: kind, and whether it must be present.
    pub attrs: &'static [(AttrKind, bool)],
    /// Names of the regions that the op owns.
    pub regions: &'static [&'static str],
    /// Who executes it together.
    pub group: Group,
    /// What it does to memory.
    pub effects: Effects,
}

impl OpInfo {
    /// Results depend on operands alone and nothing else happens.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        self.effects.accesses.is_empty()
            && !self.effects.orders
            && !self.effects.control
            && self.regions.is_empty()
            && !self.is_convergent()
    }

    /// The op involves other threads, so it must not move into or out of control flow.
    #[must_use]
    pub fn is_convergent(&self) -> bool {
        self.group != Group::Thread
    }

    /// The op does nothing that anybody could see but its results: without users it can go.
    #[must_use]
    pub fn is_removable(&self) -> bool {
        !self.effects.orders
            && !self.effects.control
            && (self.regions.is_empty() || self.group == Group::Program)
            && self.effects.accesses.iter().all(|access| access.kind == AccessKind::Read)
    }

    /// The op ends a region.
    #[must_use]
    pub fn is_terminator(&self) -> bool {
        matches!(self.code, Opcode::Yield | Opcode::Condition | Opcode::Return)
    }
}

impl Opcode {
    /// The row of this op.
    #[must_use]
    pub fn info(self) -> &'static OpInfo {
        &TABLE[self as usize]
    }

    /// The op of that name.
    #[must_use]
    pub fn from_mnemonic(mnemonic: &str) -> Option<Opcode> {
        TABLE.iter().find(|row| row.mnemonic == mnemonic).map(|row| row.code)
    }
}

impl Class {
    /// Does the class accept `ty`? `earlier` are the types of all operands.
    #[must_use]
    pub fn accepts(self, ty: Type, earlier: &[Type]) -> bool {
        let element = match ty {
            Type::Scalar(element) | Type::Vector(element, _) => Some(element),
            _ => None,
        };
        match self {
            Class::Any => true,
            Class::Number => element.is_some_and(|e| e.is_int() || computes(e)),
            Class::Integer => element.is_some_and(Element::is_int),
            Class::Float => element.is_some_and(computes),
            Class::Logic => element.is_some_and(|e| e.is_int() || e.is_bool()),
            Class::Register => element.is_some() && ty.bits() <= 64,
            Class::Scalar => matches!(ty, Type::Scalar(_)),
            Class::Vector => matches!(ty, Type::Vector(..)),
            Class::Word => matches!(ty, Type::U32 | Type::I32),
            Class::Is(expected) => ty == expected,
            Class::Same(i) => earlier.get(usize::from(i)) == Some(&ty),
            Class::Pointer => matches!(ty, Type::Pointer(_)),
            Class::In(space) => ty == Type::Pointer(space),
            Class::SharedOrCluster => matches!(ty, Type::Pointer(Space::Shared | Space::Cluster)),
            Class::Offset => match earlier.first().and_then(|t| t.space()).map(Space::bits) {
                Some(64) => matches!(ty, Type::I64 | Type::U64),
                Some(32) => matches!(ty, Type::I32 | Type::U32),
                _ => false,
            },
            Class::Map => matches!(ty, Type::TensorMap | Type::Pointer(Space::Global | Space::Generic)),
            Class::MatrixOperand => matches!(ty, Type::U64 | Type::Vector(..)),
            Class::Accumulator => matches!(ty, Type::Accumulator(..)),
            Class::Tile => matches!(ty, Type::Tile(..)),
            Class::TileOf(expected) => matches!(ty, Type::Tile(element, _) if element == expected),
            Class::Distances => {
                matches!(ty, Type::Tile(Element::I32 | Element::U32 | Element::I64 | Element::U64, _))
            }
        }
    }

    /// The class in words, for messages.
    #[must_use]
    pub fn describe(self, earlier: &[Type]) -> String {
        match self {
            Class::Any => "any type".to_owned(),
            Class::Number => "integers or floats".to_owned(),
            Class::Integer => "integers".to_owned(),
            Class::Float => "f16, bf16, f32 or f64".to_owned(),
            Class::Logic => "integers or bool".to_owned(),
            Class::Register => "a scalar or vector of at most 64 bits".to_owned(),
            Class::Scalar => "a scalar".to_owned(),
            Class::Vector => "a vector".to_owned(),
            Class::Word => "u32 or i32".to_owned(),
            Class::Is(ty) => ty.to_string(),
            Class::Same(i) => match earlier.get(usize::from(i)) {
                Some(ty) => format!("{ty}, the type of operand {i}"),
                None => format!("the type of operand {i}"),
            },
            Class::Pointer => "a pointer".to_owned(),
            Class::In(space) => format!("ptr<{space}>"),
            Class::SharedOrCluster => "ptr<shared> or ptr<cluster>".to_owned(),
            Class::Offset => match earlier.first().and_then(|t| t.space()).map(Space::bits) {
                Some(64) => "i64 or u64, since the pointer has 64 bits".to_owned(),
                _ => "i32 or u32, since the pointer has 32 bits".to_owned(),
            },
            Class::Map => "tensor_map, or a pointer to one in global memory".to_owned(),
            Class::MatrixOperand => "a descriptor (u64) or a vector of registers".to_owned(),
            Class::Accumulator => "an accumulator".to_owned(),
            Class::Tile => "a tile".to_owned(),
            Class::TileOf(element) => format!("a tile of {element}"),
            Class::Distances => "a tile of i32, u32, i64 or u64".to_owned(),
        }
    }
}

/// Floats that arithmetic is defined on; the others only convert.
fn computes(element: Element) -> bool {
    matches!(element, Element::F16 | Element::BF16 | Element::F32 | Element::F64)
}

const fn access(operand: u8, kind: AccessKind, proxy: Proxy) -> Access {
    Access { operand, kind, proxy }
}

macro_rules! effects {
    (@ [$($done:expr),*] $orders:literal $control:literal) => {
        Effects { accesses: &[$($done),*], orders: $orders, control: $control }
    };
    (@ [$($done:expr),*] $orders:literal $control:literal pure $($rest:tt)*) => {
        effects!(@ [$($done),*] $orders $control $($rest)*)
    };
    (@ [$($done:expr),*] $orders:literal $control:literal orders $($rest:tt)*) => {
        effects!(@ [$($done),*] true $control $($rest)*)
    };
    (@ [$($done:expr),*] $orders:literal $control:literal control $($rest:tt)*) => {
        effects!(@ [$($done),*] $orders true $($rest)*)
    };
    (@ [$($done:expr),*] $orders:literal $control:literal $what:ident ($i:literal) $($rest:tt)*) => {
        effects!(@ [$($done,)* access!($what $i)] $orders $control $($rest)*)
    };
}

macro_rules! access {
    (reads $i:literal) => {
        access($i, AccessKind::Read, Proxy::Generic)
    };
    (writes $i:literal) => {
        access($i, AccessKind::Write, Proxy::Generic)
    };
    (updates $i:literal) => {
        access($i, AccessKind::Update, Proxy::Generic)
    };
    (async_reads $i:literal) => {
        access($i, AccessKind::Read, Proxy::Async)
    };
    (async_writes $i:literal) => {
        access($i, AccessKind::Write, Proxy::Async)
    };
    (async_updates $i:literal) => {
        access($i, AccessKind::Update, Proxy::Async)
    };
}

macro_rules! operand {
    (Rest $class:expr) => {
        Arity::Rest($class)
    };
    (Maybe $class:expr) => {
        Arity::Maybe($class)
    };
    ($class:expr) => {
        Arity::One($class)
    };
}

macro_rules! required {
    (+) => {
        true
    };
    (?) => {
        false
    };
}

macro_rules! ops {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident $mnemonic:literal ( $( $($class:ident)+ $(($arg:expr))? ),* ) -> ( $($out:expr),* )
        [ $( $need:tt $attr:ident ),* ] $( {$($region:literal),+} )? $group:ident, $($effect:ident $(($i:literal))?)+ ;
    )*) => {
        /// An op. The documentation of each is its row in [`table`](crate::table).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Opcode { $( $(#[doc = $doc])+ $name, )* }

        /// All ops, in the order of [`Opcode`].
        pub static TABLE: &[OpInfo] = {
            use Class::*;
            use Out::*;
            &[$(
                OpInfo {
                    code: Opcode::$name,
                    mnemonic: $mnemonic,
                    doc: concat!($($doc),+),
                    operands: &[$( ops!(@operand $($class)+ $(($arg))?) ),*],
                    results: &[$($out),*],
                    attrs: &[$( (AttrKind::$attr, required!($need)) ),*],
                    regions: &[$($($region),+)?],
                    group: Group::$group,
                    effects: effects!(@ [] false false $($effect $(($i))?)+),
                },
            )*]
        };
    };
    (@operand Rest $class:ident $(($arg:expr))?) => { operand!(Rest ops!(@class $class $(($arg))?)) };
    (@operand Maybe $class:ident $(($arg:expr))?) => { operand!(Maybe ops!(@class $class $(($arg))?)) };
    (@operand $class:ident $(($arg:expr))?) => { operand!(ops!(@class $class $(($arg))?)) };
    (@class $class:ident) => { $class };
    (@class $class:ident ($arg:expr)) => { $class($arg) };
}

const BOOL: Type = Type::BOOL;
const U32: Type = Type::U32;
const U64: Type = Type::U64;
const SHARED: Type = Type::Pointer(Space::Shared);
const CLUSTER: Type = Type::Pointer(Space::Cluster);

ops! {
    // ---- Structure ----------------------------------------------------------------------------------------------------

    /// A constant. Floats are given by the bits of their encoding.
    Const "const" () -> (Given) [+Value] Thread, pure;
    /// A value that nobody may depend on.
    Poison "poison" () -> (Given) [] Thread, pure;
    /// Counts from operand 0 while below operand 1, by operand 2. The body takes the counter and the carried values (operands from 3) and
    /// yields their next ones; the results are the last.
    For "for" (Integer, Same(0), Same(0), Rest Any) -> (GivenRest) [?Flags] {"do"} Thread, control;
    /// Repeats. The first region takes the carried values and ends in `condition`; the second takes what `condition` passes on, and
    /// yields the next carried values.
    While "while" (Rest Any) -> (GivenRest) [?Flags] {"test", "do"} Thread, control;
    /// Takes one of two ways; both yield the results.
    If "if" (Is(BOOL)) -> (GivenRest) [?Flags] {"then", "else"} Thread, control;
    /// Code for some warps of the block, with its own number of registers.
    Role "role" () -> () [+Text, +Warps, ?Registers] {"do"} Thread, control;
    /// Ends a region and hands values to the op that owns it.
    Yield "yield" (Rest Any) -> () [] Thread, control;
    /// Ends the first region of a `while`: goes on if operand 0 holds, and passes the other operands on.
    Condition "condition" (Is(BOOL), Rest Any) -> () [] Thread, control;
    /// Calls a function of the module; the text is its name.
    Call "call" (Rest Any) -> (GivenRest) [+Text] Thread, control;
    /// Ends a function that gives results.
    Return "return" (Rest Any) -> () [] Thread, control;

    // ---- Arithmetic ---------------------------------------------------------------------------------------------------

    /// Sum. Integers wrap.
    Add "add" (Number, Same(0)) -> (Like(0)) [?Round, ?Flags] Thread, pure;
    /// Difference. Integers wrap.
    Sub "sub" (Number, Same(0)) -> (Like(0)) [?Round, ?Flags] Thread, pure;
    /// Product; of integers the low half.
    Mul "mul" (Number, Same(0)) -> (Like(0)) [?Round, ?Flags] Thread, pure;
    /// The high half of an integer product.
    MulHi "mul_hi" (Integer, Same(0)) -> (Like(0)) [] Thread, pure;
    /// The whole product of two integers, twice as wide.
    MulWide "mul_wide" (Integer, Same(0)) -> (Given) [] Thread, pure;
    /// Quotient. Integers towards zero, all bits set for a zero divisor; floats as IEEE asks unless a flag allows less.
    Div "div" (Number, Same(0)) -> (Like(0)) [?Round, ?Flags] Thread, pure;
    /// Remainder with the sign of the dividend; all bits set for a zero divisor.
    Rem "rem" (Integer, Same(0)) -> (Like(0)) [] Thread, pure;
    /// `a * b + c`, rounded once. Integers wrap.
    Fma "fma" (Number, Same(0), Same(0)) -> (Like(0)) [?Round, ?Flags] Thread, pure;
    /// Negation.
    Neg "neg" (Number) -> (Like(0)) [?Flags] Thread, pure;
    /// Absolute value.
    Abs "abs" (Number) -> (Like(0)) [?Flags] Thread, pure;
    /// The smaller; a number rather than NaN unless the flag says otherwise.
    Min "min" (Number, Same(0)) -> (Like(0)) [?Flags] Thread, pure;
    /// The larger; a number rather than NaN unless the flag says otherwise.
    Max "max" (Number, Same(0)) -> (Like(0)) [?Flags] Thread, pure;
    /// Operand 0 with the sign of operand 1.
    CopySign "copysign" (Float, Same(0)) -> (Like(0)) [] Thread, pure;
    /// Rounds to an integral value.
    RoundInt "round_int" (Float) -> (Like(0)) [+Round, ?Flags] Thread, pure;

    /// One over.
    Rcp "rcp" (Float) -> (Like(0)) [?Round, ?Flags] Thread, pure;
    /// Square root.
    Sqrt "sqrt" (Float) -> (Like(0)) [?Round, ?Flags] Thread, pure;
    /// One over the square root, approximately.
    Rsqrt "rsqrt" (Float) -> (Like(0)) [?Flags] Thread, pure;
    /// Sine, approximately, for small arguments.
    Sin "sin" (Float) -> (Like(0)) [?Flags] Thread, pure;
    /// Cosine, approximately, for small arguments.
    Cos "cos" (Float) -> (Like(0)) [?Flags] Thread, pure;
    /// Two to the power, approximately.
    Ex2 "ex2" (Float) -> (Like(0)) [?Flags] Thread, pure;
    /// Logarithm to base two, approximately.
    Lg2 "lg2" (Float) -> (Like(0)) [?Flags] Thread, pure;
    /// Hyperbolic tangent, approximately.
    Tanh "tanh" (Float) -> (Like(0)) [] Thread, pure;

    // ---- Bits ---------------------------------------------------------------------------------------------------------

    /// Bitwise and.
    And "and" (Logic, Same(0)) -> (Like(0)) [] Thread, pure;
    /// Bitwise or.
    Or "or" (Logic, Same(0)) -> (Like(0)) [] Thread, pure;
    /// Bitwise exclusive or.
    Xor "xor" (Logic, Same(0)) -> (Like(0)) [] Thread, pure;
    /// Bitwise complement.
    Not "not" (Logic) -> (Like(0)) [] Thread, pure;
    /// Shift left; by the width or more gives 0.
    Shl "shl" (Integer, Is(U32)) -> (Like(0)) [] Thread, pure;
    /// Shift right, filling with the sign if the type has one; by the width or more gives only that.
    Shr "shr" (Integer, Is(U32)) -> (Like(0)) [] Thread, pure;
    /// A 32-bit window of a 64-bit value: low word, high word, amount.
    FunnelShift "funnel_shift" (Is(U32), Is(U32), Is(U32)) -> (Of(U32)) [+Funnel] Thread, pure;
    /// Bit field: value, position, length.
    Bfe "bfe" (Integer, Is(U32), Is(U32)) -> (Like(0)) [] Thread, pure;
    /// Inserts a bit field: field, base, position, length.
    Bfi "bfi" (Integer, Same(0), Is(U32), Is(U32)) -> (Like(0)) [] Thread, pure;
    /// Picks four of the eight bytes of two words: low, high, selector.
    Prmt "prmt" (Is(U32), Is(U32), Is(U32)) -> (Of(U32)) [?Permute] Thread, pure;
    /// Any function of three bits, bit by bit, by its truth table.
    Lop3 "lop3" (Is(U32), Is(U32), Is(U32)) -> (Of(U32)) [+Lut] Thread, pure;
    /// Number of ones.
    Popc "popc" (Integer) -> (Of(U32)) [] Thread, pure;
    /// Number of leading zeros.
    Clz "clz" (Integer) -> (Of(U32)) [] Thread, pure;
    /// Bits in reverse order.
    Brev "brev" (Integer) -> (Like(0)) [] Thread, pure;
    /// Position of the highest bit that is not a sign bit; all ones if there is none.
    Bfind "bfind" (Integer) -> (Of(U32)) [?Flags] Thread, pure;
    /// Four products of bytes, summed onto operand 2. The signs of the bytes are those of operands 0 and 1.
    Dp4a "dp4a" (Word, Word, Word) -> (Like(2)) [] Thread, pure;
    /// Two products of 16-bit by 8-bit values, summed onto operand 2.
    Dp2a "dp2a" (Word, Word, Word) -> (Like(2)) [+Half] Thread, pure;

    /// Comparison.
    Cmp "cmp" (Scalar, Same(0)) -> (Of(BOOL)) [+Cmp, ?Flags] Thread, pure;
    /// Operand 1 if operand 0 holds, else operand 2.
    Select "select" (Is(BOOL), Any, Same(1)) -> (Like(1)) [] Thread, pure;

    // ---- Conversions and vectors ----------------------------------------------------------------------------------------

    /// Converts the value to another element type, element by element. Floats to integers round towards zero unless told otherwise;
    /// anything to floats rounds to nearest.
    Cvt "cvt" (Any) -> (Given) [?Round, ?Flags] Thread, pure;
    /// The same bits as another type of the same size.
    Bitcast "bitcast" (Any) -> (Given) [] Thread, pure;
    /// A vector of scalars.
    Pack "pack" (Rest Scalar) -> (Given) [] Thread, pure;
    /// One element of a vector.
    Extract "extract" (Vector) -> (Given) [+Index] Thread, pure;
    /// A vector with one element replaced.
    Insert "insert" (Vector, Scalar) -> (Like(0)) [+Index] Thread, pure;
    /// Consecutive elements of a vector, from an index on.
    Slice "slice" (Vector) -> (Given) [+Index] Thread, pure;
    /// Vectors end to end.
    Concat "concat" (Rest Vector) -> (Given) [] Thread, pure;

    // ---- Addresses ----------------------------------------------------------------------------------------------------

    /// A pointer so many bytes further.
    PtrAdd "ptr_add" (Pointer, Offset) -> (Like(0)) [] Thread, pure;
    /// A pointer as the integer of its width.
    PtrToInt "ptr_to_int" (Pointer) -> (Given) [] Thread, pure;
    /// An integer as a pointer.
    IntToPtr "int_to_ptr" (Integer) -> (Given) [] Thread, pure;
    /// The same memory through another space.
    CastSpace "cast_space" (Pointer) -> (Given) [] Thread, pure;
    /// The address of this block's shared variable in another block of the cluster.
    MapCluster "map_cluster" (In(Space::Shared), Is(U32)) -> (Of(CLUSTER)) [] Thread, pure;
    /// Shared memory of the block, for the whole life of the kernel.
    Shared "shared" () -> (Of(SHARED)) [+Bytes, +Align, ?Text] Thread, control;
    /// Memory of one thread that can be indexed at run time.
    Local "local" () -> (Of(Type::Pointer(Space::Local))) [+Bytes, +Align] Thread, control;

    // ---- Memory -------------------------------------------------------------------------------------------------------

    /// Loads.
    Load "load" (Pointer, Maybe Is(U64)) -> (Given) [?Order, ?Scope, ?Cache, ?Evict, ?Prefetch] Thread, reads(0);
    /// Loads if operand 1 holds; otherwise the result is operand 2 and memory is not touched.
    LoadIf "load_if" (Pointer, Is(BOOL), Any, Maybe Is(U64)) -> (Like(2)) [?Order, ?Scope, ?Cache, ?Evict, ?Prefetch] Thread, reads(0);
    /// Stores operand 1.
    Store "store" (Pointer, Any, Maybe Is(U64)) -> () [?Order, ?Scope, ?Cache, ?Evict] Thread, writes(0);
    /// Stores operand 1 if operand 2 holds.
    StoreIf "store_if" (Pointer, Any, Is(BOOL), Maybe Is(U64)) -> () [?Order, ?Scope, ?Cache, ?Evict] Thread, writes(0);
    /// Brings a line into a cache.
    Prefetch "prefetch" (Pointer) -> () [+Level, ?Evict] Thread, orders;
    /// An L2 policy for the accesses that take one.
    MakePolicy "make_policy" () -> (Of(U64)) [+Policy] Thread, pure;
    /// Combines operand 1 into memory in one step and gives the value from before.
    Atomic "atomic" (Pointer, Register) -> (Like(1)) [+Combine, ?Order, ?Scope] Thread, updates(0);
    /// Stores operand 2 if memory holds operand 1; gives the value from before.
    AtomicCas "atomic_cas" (Pointer, Register, Same(1)) -> (Like(1)) [?Order, ?Scope] Thread, updates(0);
    /// Combines operand 1 into memory and gives nothing back.
    Reduce "reduce" (Pointer, Any) -> () [+Combine, ?Order, ?Scope] Thread, updates(0);

    // ---- Warps --------------------------------------------------------------------------------------------------------

    /// The value of another lane, and whether that lane was in range: value, lane or distance, mask of lanes that take part.
    Shuffle "shuffle" (Register, Is(U32), Is(U32)) -> (Like(0), Of(BOOL)) [+Shuffle, ?Width] Warp, pure;
    /// Asks all lanes of the mask about a predicate.
    Vote "vote" (Is(BOOL), Is(U32)) -> (Given) [+Vote] Warp, pure;
    /// The lanes of the mask that hold the same value.
    MatchAny "match_any" (Register, Is(U32)) -> (Of(U32)) [] Warp, pure;
    /// The mask if all its lanes hold the same value, else 0; and whether they do.
    MatchAll "match_all" (Register, Is(U32)) -> (Of(U32), Of(BOOL)) [] Warp, pure;
    /// Combines a value over the lanes of the mask.
    Redux "redux" (Word, Is(U32)) -> (Like(0)) [+Combine] Warp, pure;
    /// True in one lane of the mask, the same each time.
    Elect "elect" (Is(U32)) -> (Of(BOOL)) [] Warp, pure;
    /// The lanes that are here.
    ActiveMask "active_mask" () -> (Of(U32)) [] Warp, orders;
    /// Waits for the lanes of the mask, and orders their memory accesses.
    WarpSync "warp_sync" (Is(U32)) -> () [] Warp, orders;

    // ---- Barriers -----------------------------------------------------------------------------------------------------

    /// Waits at a barrier of the block: its number, and how many threads take part (default all).
    Barrier "barrier" (Is(U32), Maybe Is(U32)) -> () [?Flags] Block, orders;
    /// Arrives at a barrier of the block without waiting: its number, and how many threads take part.
    BarrierArrive "barrier_arrive" (Is(U32), Is(U32)) -> () [?Flags] Block, orders;
    /// Waits like `barrier`, and combines a predicate over the threads: predicate, number, count.
    BarrierReduce "barrier_reduce" (Is(BOOL), Is(U32), Maybe Is(U32)) -> (Given) [+Combine, ?Flags] Block, orders;
    /// Arrives at the barrier of the cluster.
    ClusterArrive "cluster_arrive" () -> () [?Order, ?Flags] Cluster, orders;
    /// Waits at the barrier of the cluster.
    ClusterWait "cluster_wait" () -> () [?Order, ?Flags] Cluster, orders;

    /// Makes a barrier object in shared memory that a number of arrivals complete.
    MbarInit "mbar_init" (In(Space::Shared), Is(U32)) -> () [] Thread, writes(0) orders;
    /// Ends a barrier object, so that its memory can serve other purposes.
    MbarInvalidate "mbar_invalidate" (In(Space::Shared)) -> () [] Thread, writes(0) orders;
    /// Adds bytes to what the current phase waits for.
    MbarExpect "mbar_expect" (SharedOrCluster, Is(U32)) -> () [?Scope] Thread, updates(0) orders;
    /// Arrives, here or in another block of the cluster; operand 1 is how often (default once).
    MbarArrive "mbar_arrive" (SharedOrCluster, Maybe Is(U32)) -> () [?Order, ?Scope] Thread, updates(0) orders;
    /// Adds bytes to what the current phase waits for, and arrives.
    MbarArriveExpect "mbar_arrive_expect" (SharedOrCluster, Is(U32)) -> () [?Order, ?Scope] Thread, updates(0) orders;
    /// Arrives, and takes part in no later phase.
    MbarArriveDrop "mbar_arrive_drop" (SharedOrCluster) -> () [?Order, ?Scope] Thread, updates(0) orders;
    /// Has the phase of this parity completed?
    MbarTest "mbar_test" (In(Space::Shared), Is(U32)) -> (Of(BOOL)) [?Order, ?Scope, ?Flags] Thread, reads(0) orders;
    /// Waits until the phase of this parity has completed.
    MbarWait "mbar_wait" (In(Space::Shared), Is(U32)) -> () [?Order, ?Scope] Thread, reads(0) orders;

    /// Orders memory accesses of this thread.
    Fence "fence" () -> () [+Order, +Scope] Thread, orders;
    /// Orders generic accesses with those of other units.
    FenceProxy "fence_proxy" () -> () [+FenceProxy] Thread, orders;
    /// Makes barrier objects known to the cluster and the copy engine.
    FenceMbarInit "fence_mbar_init" () -> () [] Thread, orders;

    // ---- Asynchronous copies --------------------------------------------------------------------------------------------

    /// Starts a copy of 4, 8 or 16 bytes from global to shared memory. Operand 2, if there, is how many bytes are read; the rest is zero.
    CpAsync "cp_async" (In(Space::Shared), In(Space::Global), Maybe Is(U32)) -> () [+Bytes, ?Cache, ?Prefetch] Thread, writes(0) reads(1);
    /// Closes a group of copies.
    CpAsyncCommit "cp_async_commit" () -> () [] Thread, orders;
    /// Waits until at most so many groups are under way.
    CpAsyncWait "cp_async_wait" () -> () [+Count] Thread, orders;
    /// Arrives at a barrier object when this thread's copies are done.
    CpAsyncArrive "cp_async_arrive" (In(Space::Shared)) -> () [?Flags] Thread, updates(0) orders;

    /// Starts a copy to shared memory: destination, source, bytes, barrier object; with `multicast` a mask of blocks; with `hint` a policy.
    BulkLoad "bulk_load" (SharedOrCluster, In(Space::Global), Is(U32), SharedOrCluster, Rest Any) -> () [?Flags] Thread, async_writes(0) async_reads(1) updates(3);
    /// Starts a copy to global memory: destination, source, bytes; with `hint` a policy.
    BulkStore "bulk_store" (In(Space::Global), In(Space::Shared), Is(U32), Maybe Is(U64)) -> () [?Flags] Thread, async_writes(0) async_reads(1);
    /// Starts a copy to another block's shared memory: destination, source, bytes, barrier object there.
    BulkCopy "bulk_copy" (In(Space::Cluster), In(Space::Shared), Is(U32), In(Space::Cluster)) -> () [] Thread, async_writes(0) async_reads(1) updates(3);
    /// Starts to store 4, 8 or 16 bytes to another block's shared memory: destination, value, barrier object there.
    StoreAsync "store_async" (In(Space::Cluster), Any, In(Space::Cluster)) -> () [] Thread, async_writes(0) updates(2);
    /// Starts to combine shared memory into global memory: destination, source, bytes; with `hint` a policy.
    BulkReduce "bulk_reduce" (In(Space::Global), In(Space::Shared), Is(U32), Maybe Is(U64)) -> () [+Combine, +Element, ?Flags] Thread, async_updates(0) async_reads(1);
    /// Brings bytes into L2.
    BulkPrefetch "bulk_prefetch" (In(Space::Global), Is(U32)) -> () [] Thread, orders;
    /// Closes a group of bulk copies.
    BulkCommit "bulk_commit" () -> () [] Thread, orders;
    /// Waits until at most so many groups are under way; with `read`, until their sources have been read.
    BulkWait "bulk_wait" () -> () [+Count, ?Flags] Thread, orders;

    /// Starts a copy of a box of a tensor: destination, map, barrier object, coordinates innermost first; with `im2col` two fewer offsets; with
    /// `multicast` a mask; with `hint` a policy.
    TmaLoad "tma_load" (SharedOrCluster, Map, SharedOrCluster, Rest Any) -> () [+Rank, ?Flags] Thread, async_writes(0) async_reads(1) updates(2);
    /// Starts a copy of shared memory to a box of a tensor: map, source, coordinates; with `hint` a policy.
    TmaStore "tma_store" (Map, In(Space::Shared), Rest Any) -> () [+Rank, ?Flags] Thread, async_writes(0) async_reads(1);
    /// Starts to combine shared memory into a box of a tensor.
    TmaReduce "tma_reduce" (Map, In(Space::Shared), Rest Any) -> () [+Rank, +Combine, ?Flags] Thread, async_updates(0) async_reads(1);
    /// Brings a box of a tensor into L2.
    TmaPrefetch "tma_prefetch" (Map, Rest Any) -> () [+Rank, ?Flags] Thread, orders;
    /// Brings a tensor map into its cache.
    MapPrefetch "map_prefetch" (Map) -> () [] Thread, orders;
    /// Replaces a field of a tensor map in memory; the index says which dimension.
    MapReplace "map_replace" (Pointer, Register) -> () [+MapField, ?Index] Thread, updates(0) orders;
    /// Publishes a tensor map: copies it from shared to global memory, so that `map_acquire` makes it usable.
    MapPublish "map_publish" (In(Space::Global), In(Space::Shared)) -> () [] Warp, writes(0) reads(1) orders;
    /// Makes a published tensor map usable by this thread's copies.
    MapAcquire "map_acquire" (In(Space::Global)) -> () [] Thread, orders;

    // ---- Tensor cores ---------------------------------------------------------------------------------------------------

    /// Loads 8x8 matrices of 16-bit elements: each lane gives the address of a row.
    LdMatrix "ldmatrix" (In(Space::Shared)) -> (Given) [+Count, ?Flags] Warp, reads(0);
    /// Stores 8x8 matrices of 16-bit elements.
    StMatrix "stmatrix" (In(Space::Shared), Vector) -> () [+Count, ?Flags] Warp, writes(0);
    /// A warp's matrix product: `a * b + c`.
    Mma "mma" (Vector, Vector, Vector) -> (Like(2)) [+Mma, ?Flags] Warp, pure;

    /// The registers that a warpgroup accumulates in. Their contents are undefined.
    MakeAccumulator "accumulator" () -> (Given) [] Warpgroup, control;
    /// Orders register accesses before the multiplications that follow.
    WgmmaFence "wgmma_fence" () -> () [] Warpgroup, orders;
    /// Starts a multiplication: accumulator, A (descriptor or registers), B (descriptor), whether to add to what is there.
    Wgmma "wgmma" (Accumulator, MatrixOperand, Is(U64), Is(BOOL)) -> () [+Mma, ?Flags] Warpgroup, async_updates(0) async_reads(1) async_reads(2);
    /// Closes a group of multiplications.
    WgmmaCommit "wgmma_commit" () -> () [] Warpgroup, orders;
    /// Waits until at most so many groups are under way.
    WgmmaWait "wgmma_wait" () -> () [+Count] Warpgroup, orders;
    /// The elements of an accumulator that nothing is in flight on.
    AccRead "acc_read" (Accumulator) -> (Given) [] Warpgroup, reads(0);
    /// Sets the elements of an accumulator.
    AccWrite "acc_write" (Accumulator, Vector) -> () [] Warpgroup, writes(0);
    /// The descriptor of a matrix in shared memory: the address joined with constant bits.
    Descriptor "descriptor" (In(Space::Shared)) -> (Of(U64)) [+Bits] Thread, pure;

    // ---- Tiles: what a whole program does together --------------------------------------------------------------------------

    /// A tile whose elements are all the same.
    Splat "splat" (Scalar) -> (Given) [] Program, pure;
    /// A tile of u32 whose elements are their position along an axis.
    Iota "iota" () -> (Given) [+Axis] Program, pure;
    /// A tile of the same rank in which extents of 1 have grown by repetition.
    Broadcast "broadcast" (Tile) -> (Given) [] Program, pure;
    /// The same elements in row-major order, with other extents.
    Reshape "reshape" (Tile) -> (Given) [] Program, pure;
    /// The same elements with axes in another order.
    Transpose "transpose" (Tile) -> (Given) [+Axes] Program, pure;
    /// Two tiles, one after the other along an axis.
    Cat "cat" (Tile, Tile) -> (Given) [+Axis] Program, pure;
    /// The elements of a tile from an index on along an axis.
    Part "part" (Tile) -> (Given) [+Axis, +Index] Program, pure;
    /// The elements of a tile at indices along an axis, zero where there is none: the tile, and indices with the extents of the result, which are
    /// those of the tile along all other axes.
    Take "take" (Tile, TileOf(Element::U32)) -> (Given) [+Axis] Program, pure;
    /// The only element of a tile.
    Item "item" (Tile) -> (Given) [] Program, pure;
    /// Elements computed from the elements at the same position. The region takes one of each tile and yields one of each result; it sees
    /// values from outside, and holds nothing but ops of one thread without effects on memory.
    Map "map" (Rest Tile) -> (GivenRest) [] {"do"} Program, pure;
    /// Combines the elements along an axis, whose extent becomes 1. The region takes one element of each tile twice, yields one of each,
    /// and is associative; elements keep their order, and how they are grouped is open.
    TileReduce "tile_reduce" (Rest Tile) -> (GivenRest) [+Axis] {"do"} Program, pure;
    /// Combines each element with all before it along an axis (with `reverse` all after it). The region is that of `tile_reduce`; its first
    /// arguments are those that come first.
    TileScan "tile_scan" (Rest Tile) -> (GivenRest) [+Axis, ?Flags] {"do"} Program, pure;
    /// A matrix product: `a * b + c`, of m x k, k x n and m x n elements; or of as many matrices each, along a first axis. With `tf32`, f32
    /// factors may be rounded to that.
    Dot "dot" (Tile, Tile, Tile) -> (Like(2)) [?Flags] Program, pure;
    /// Loads a box of a tensor: pointer, then for every axis where the box starts (i32), how far the tensor extends (u32) and its stride in
    /// elements (i64): all starts, all extents, all strides; last, the element to take outside of the tensor.
    TileLoad "tile_load" (In(Space::Global), Rest Any) -> (Given) [?Cache, ?Evict] Program, reads(0);
    /// Stores a tile to a box of a tensor: pointer, tile, then starts, extents and strides as in `tile_load`. Elements outside are dropped.
    TileStore "tile_store" (In(Space::Global), Tile, Rest Any) -> () [?Cache, ?Evict] Program, writes(0);
    /// Loads an element at each distance from a pointer: pointer, distances, which of them to load, what to take for the others.
    Gather "gather" (In(Space::Global), Distances, TileOf(Element::Bool), Tile) -> (Like(3)) [?Cache, ?Evict] Program, reads(0);
    /// Stores an element at each distance from a pointer: pointer, distances, which of them to store, elements. Where two go to the same
    /// place, one of them stays.
    Scatter "scatter" (In(Space::Global), Distances, TileOf(Element::Bool), Tile) -> () [?Cache, ?Evict] Program, writes(0);
    /// Combines an element into memory at each distance from a pointer, in one step each, and gives the values from before (the elements
    /// themselves where nothing was done): pointer, distances, which of them, elements.
    TileAtomic "tile_atomic" (In(Space::Global), Distances, TileOf(Element::Bool), Tile) -> (Like(3)) [+Combine] Program, updates(0);
    /// Replaces an element in memory at each distance from a pointer if its bits are those that are expected, in one step each, and gives the
    /// values from before (the new elements where nothing was done): pointer, distances, which of them, expected and new elements.
    TileAtomicCas "tile_atomic_cas" (In(Space::Global), Distances, TileOf(Element::Bool), Tile, Same(3)) -> (Like(3)) [] Program, updates(0);

    // ---- The rest ---------------------------------------------------------------------------------------------------------

    /// Waits for the grids that this one depends on.
    GridWait "grid_wait" () -> () [] Thread, orders;
    /// Lets dependent grids start.
    GridLaunch "grid_launch" () -> () [] Thread, orders;
    /// A register that the hardware keeps and that does not change while the kernel runs.
    Special "special" () -> (Given) [+Special] Thread, pure;
    /// A register that the hardware keeps and that changes: clocks.
    Clock "clock" () -> (Given) [+Special] Thread, orders;
    /// Sleeps for about so many nanoseconds.
    Sleep "sleep" (Is(U32)) -> () [] Thread, orders;
    /// Stops the grid with an error.
    Trap "trap" () -> () [] Thread, control;
    /// Stops the grid with an error unless operand 0 holds; the text is the message.
    Assert "assert" (Is(BOOL)) -> () [+Text] Thread, control;
    /// Reports values to a simulator; does nothing on a GPU. The text holds one `{}` a value.
    Trace "trace" (Rest Any) -> () [+Text] Thread, control;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_at_their_opcode() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(row.code as usize, i, "{}", row.mnemonic);
            assert_eq!(Opcode::from_mnemonic(row.mnemonic), Some(row.code), "{} is not unique", row.mnemonic);
            assert!(!row.doc.trim().is_empty());
        }
    }

    #[test]
    fn rest_comes_last_and_effects_name_operands() {
        for row in TABLE {
            for (i, operand) in row.operands.iter().enumerate() {
                if matches!(operand, Arity::Rest(_)) {
                    assert_eq!(i + 1, row.operands.len(), "{}", row.mnemonic);
                }
            }
            for access in row.effects.accesses {
                assert!(usize::from(access.operand) < row.operands.len(), "{}", row.mnemonic);
            }
        }
    }
}
