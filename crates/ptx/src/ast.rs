//! The syntax tree: what a PTX module is made of.
//!
//! Names are interned: a [`Symbol`] is an index into the [`Names`] of its module and means nothing outside it. Two
//! modules are equal when they have the same structure and the same spelling of every name; the numbering of symbols
//! and the [`Line`]s of statements do not take part.
//!
//! The tree holds any PTX that is well formed, legal or not; [`check`](crate::check) tells which it is.

use std::collections::HashMap;

use smallvec::SmallVec;

use crate::target::{Target, TargetOption, Version};
use crate::words::{Modifier, Opcode, SpecialRegister, Type};

/// An interned name: register, label, variable or function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol(pub u32);

/// The names of a module, each spelled once.
///
/// ```
/// let mut names = tilewright_ptx::Names::default();
/// let r1 = names.intern("%r1");
/// assert_eq!(names.numbered("%r", 1), r1);
/// assert_eq!(names.text(r1), "%r1");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Names {
    pub(crate) texts: Vec<Box<str>>,
    index: HashMap<Box<str>, Symbol>,
}

impl Names {
    /// The symbol of a name; the first call with a name makes it.
    pub fn intern(&mut self, text: &str) -> Symbol {
        if let Some(&symbol) = self.index.get(text) {
            return symbol;
        }
        // 2^32 names need more memory than the text that could name them.
        let symbol = Symbol(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.texts.push(text.into());
        self.index.insert(text.into(), symbol);
        symbol
    }

    /// The symbol of `prefix` followed by a number: register 7 of `.reg .b32 %r<8>` is `numbered("%r", 7)`.
    pub fn numbered(&mut self, prefix: &str, number: u32) -> Symbol {
        self.intern(&format!("{prefix}{number}"))
    }

    /// The symbol of a name that is already there.
    pub fn get(&self, text: &str) -> Option<Symbol> {
        self.index.get(text).copied()
    }

    /// The spelling of a symbol of this module; a symbol of another module may have none, shown as `<unknown>`.
    pub fn text(&self, symbol: Symbol) -> &str {
        self.texts.get(symbol.0 as usize).map_or("<unknown>", |text| text)
    }

    /// How many names there are; symbols are numbered from 0 to one less.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}

/// The line of a statement in the text it was read from or printed to, from 1; 0 when there is no text yet.
///
/// Any two lines are equal, so that they do not take part in comparing trees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line(pub u32);

impl PartialEq for Line {
    fn eq(&self, _: &Line) -> bool {
        true
    }
}

impl Eq for Line {}

/// A PTX module.
///
/// ```
/// let text = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";
/// let module = tilewright_ptx::parse(text)?;
/// assert_eq!(module.target.to_string(), "sm_80");
/// assert_eq!(tilewright_ptx::parse(&module.to_string())?, module);
/// # Ok::<(), tilewright_ptx::PtxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Module {
    /// `.version`
    pub version: Version,
    /// `.target`
    pub target: Target,
    /// What follows the target, such as `debug`.
    pub options: Vec<TargetOption>,
    /// `.address_size`, 32 or 64.
    pub address_size: u32,
    /// The spelling of every symbol.
    pub names: Names,
    /// Variables, functions and the rest, in order.
    pub items: Vec<Item>,
}

/// Something at the top level of a module.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A variable.
    Variable(Variable),
    /// A kernel or device function, defined or declared.
    Function(Function),
    /// `.file index "path" [, timestamp, size]`
    File {
        /// The number that `.loc` uses.
        index: u32,
        /// The path, as written between the quotes.
        path: String,
        /// Time stamp and size in bytes.
        stamp: Option<(u64, u64)>,
    },
    /// `.section`: debug data, kept as it is.
    Section {
        /// The name, with its dot.
        name: String,
        /// Everything between the braces.
        text: String,
    },
    /// `.pragma` with its strings.
    Pragma(Vec<String>),
    /// `.alias`
    Alias {
        /// The new name.
        alias: Symbol,
        /// The function it stands for.
        aliasee: Symbol,
    },
}

/// Who can see a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak`
    Weak,
    /// `.common`
    Common,
}

/// A state space in which variables are declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// `.reg`
    Reg,
    /// `.const`
    Const,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.shared`
    Shared,
    /// `.tex`
    Tex,
}

/// The length of a vector type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VectorLength {
    /// `.v2`
    V2,
    /// `.v4`
    V4,
}

/// `.attribute(...)` of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// `.managed`
    Managed,
    /// `.unified(high, low)`
    Unified(u64, u64),
}

/// A variable, parameter, or register parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Where it stands in the text.
    pub line: Line,
    /// Visibility.
    pub linkage: Option<Linkage>,
    /// State space.
    pub space: Space,
    /// Attributes.
    pub attributes: Vec<Attribute>,
    /// `.align`, in bytes.
    pub align: Option<u32>,
    /// Length of a vector type.
    pub vector: Option<VectorLength>,
    /// Type of an element.
    pub ty: Type,
    /// `.ptr`, of kernel parameters.
    pub pointer: Option<Pointer>,
    /// Name.
    pub name: Symbol,
    /// Array extents, outermost first; `None` for `[]`.
    pub dims: Vec<Option<u64>>,
    /// Initial value.
    pub initializer: Option<Initializer>,
}

impl Variable {
    /// A scalar without any attribute.
    pub fn new(space: Space, ty: Type, name: Symbol) -> Variable {
        Variable {
            line: Line::default(),
            linkage: None,
            space,
            attributes: Vec::new(),
            align: None,
            vector: None,
            ty,
            pointer: None,
            name,
            dims: Vec::new(),
            initializer: None,
        }
    }

    /// An array of one dimension; `None` leaves the extent open, as for dynamic shared memory.
    pub fn array(space: Space, align: u32, ty: Type, name: Symbol, extent: Option<u64>) -> Variable {
        Variable { align: Some(align), dims: vec![extent], ..Variable::new(space, ty, name) }
    }

    /// With visibility.
    #[must_use]
    pub fn with_linkage(self, linkage: Linkage) -> Variable {
        Variable { linkage: Some(linkage), ..self }
    }

    /// Size in bytes; `None` while an extent is open.
    pub fn bytes(&self) -> Option<u64> {
        let lanes = self.vector.map_or(1, |vector| match vector {
            VectorLength::V2 => 2,
            VectorLength::V4 => 4,
        });
        let element = u64::from(self.ty.bits().div_ceil(8)) * lanes;
        self.dims.iter().try_fold(element, |size, extent| size.checked_mul((*extent)?))
    }
}

/// `.ptr{.space}{.align n}` of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The space that it points to.
    pub space: Option<Space>,
    /// The alignment of what it points to.
    pub align: Option<u32>,
}

/// The initial value of a variable.
#[derive(Clone, Debug, PartialEq)]
pub enum Initializer {
    /// A number.
    Value(Immediate),
    /// The address of a variable or function.
    Address {
        /// Written `generic(symbol)`.
        generic: bool,
        /// Written `mask(symbol)`: only the bits of the mask, shifted down.
        mask: Option<u64>,
        /// Whose address.
        symbol: Symbol,
        /// What is added to it.
        offset: i64,
    },
    /// `{ ... }`
    List(Vec<Initializer>),
}

/// Kernel or device function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`: a device function.
    Func,
}

/// A kernel or device function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Where it stands in the text.
    pub line: Line,
    /// Visibility.
    pub linkage: Option<Linkage>,
    /// Kernel or device function.
    pub kind: FunctionKind,
    /// Return values of a device function.
    pub returns: Vec<Variable>,
    /// Name.
    pub name: Symbol,
    /// Parameters.
    pub params: Vec<Variable>,
    /// What follows the parameters.
    pub directives: Vec<Directive>,
    /// The statements; `None` in a declaration.
    pub body: Option<Vec<Statement>>,
}

impl Function {
    /// A visible kernel with parameters and an empty body.
    pub fn entry(name: Symbol, params: Vec<Variable>) -> Function {
        Function {
            line: Line::default(),
            linkage: Some(Linkage::Visible),
            kind: FunctionKind::Entry,
            returns: Vec::new(),
            name,
            params,
            directives: Vec::new(),
            body: Some(Vec::new()),
        }
    }
}

/// What stands between the parameters of a function and its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directive {
    /// `.maxntid`; missing extents are 1.
    MaxThreads([u32; 3]),
    /// `.reqntid`; missing extents are 1.
    RequiredThreads([u32; 3]),
    /// `.minnctapersm`
    MinBlocks(u32),
    /// `.maxnctapersm`
    MaxBlocks(u32),
    /// `.maxnreg`
    MaxRegisters(u32),
    /// `.reqnctapercluster`; missing extents are 1.
    RequiredCluster([u32; 3]),
    /// `.explicitcluster`
    ExplicitCluster,
    /// `.maxclusterrank`
    MaxClusterRank(u32),
    /// `.blocksareclusters`
    BlocksAreClusters,
    /// `.noreturn`
    NoReturn,
    /// `.abi_preserve`
    AbiPreserve(u32),
    /// `.abi_preserve_control`
    AbiPreserveControl(u32),
    /// `.pragma` with its strings.
    Pragma(Vec<String>),
}

/// A statement with its line.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Where it stands in the text.
    pub line: Line,
    /// What it is.
    pub kind: StatementKind,
}

impl<T: Into<StatementKind>> From<T> for Statement {
    fn from(kind: T) -> Statement {
        Statement { line: Line::default(), kind: kind.into() }
    }
}

/// What a statement is.
#[derive(Clone, Debug, PartialEq)]
pub enum StatementKind {
    /// `name:`
    Label(Symbol),
    /// `.reg`
    Registers(Registers),
    /// A variable in `.shared`, `.local`, `.const`, `.global` or `.param`.
    Variable(Variable),
    /// `{ ... }`
    Block(Vec<Statement>),
    /// `.loc`
    Location(Location),
    /// `.pragma` with its strings.
    Pragma(Vec<String>),
    /// `.branchtargets`; the label before it is its name.
    BranchTargets(Vec<Symbol>),
    /// `.calltargets`; the label before it is its name.
    CallTargets(Vec<Symbol>),
    /// `.callprototype`; the label before it is its name.
    CallPrototype {
        /// Return values; names are `_`.
        returns: Vec<Variable>,
        /// Parameters; names are `_`.
        params: Vec<Variable>,
        /// `.noreturn` and the like.
        directives: Vec<Directive>,
    },
    /// An instruction.
    Instruction(Instruction),
}

impl From<Instruction> for StatementKind {
    fn from(instruction: Instruction) -> StatementKind {
        StatementKind::Instruction(instruction)
    }
}

impl From<Registers> for StatementKind {
    fn from(registers: Registers) -> StatementKind {
        StatementKind::Registers(registers)
    }
}

impl From<Variable> for StatementKind {
    fn from(variable: Variable) -> StatementKind {
        StatementKind::Variable(variable)
    }
}

/// `.reg .type names;`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Length of a vector type.
    pub vector: Option<VectorLength>,
    /// Type of an element.
    pub ty: Type,
    /// The registers.
    pub names: Vec<RegisterName>,
}

impl Registers {
    /// `.reg .type prefix<count>`, which declares `prefix0` and those behind it.
    pub fn counted(ty: Type, prefix: Symbol, count: u32) -> Registers {
        Registers { vector: None, ty, names: vec![RegisterName { name: prefix, count: Some(count) }] }
    }

    /// `.reg .type a, b, c`
    pub fn named(ty: Type, names: impl IntoIterator<Item = Symbol>) -> Registers {
        let names = names.into_iter().map(|name| RegisterName { name, count: None }).collect();
        Registers { vector: None, ty, names }
    }
}

/// A name in a `.reg` declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterName {
    /// The name, or the prefix of the names.
    pub name: Symbol,
    /// With `name<count>`, how many.
    pub count: Option<u32>,
}

/// `.loc`: a line of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The index of a `.file`.
    pub file: u32,
    /// Line in it.
    pub line: u32,
    /// Column in it.
    pub column: u32,
    /// Where the code was inlined, if it was.
    pub inlined: Option<Inlined>,
}

/// `function_name label+offset, inlined_at file line column`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlined {
    /// The label of the function's name in the debug strings.
    pub function: Symbol,
    /// Offset from that label.
    pub offset: u64,
    /// The index of a `.file`.
    pub file: u32,
    /// Line in it.
    pub line: u32,
    /// Column in it.
    pub column: u32,
}

/// `@p` or `@!p` before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Whether the instruction runs where the predicate is false.
    pub negated: bool,
    /// The predicate.
    pub register: Symbol,
}

/// The modifiers of an instruction; up to eight without allocation.
pub type Modifiers = SmallVec<[Modifier; 8]>;

/// The operands of an instruction; up to four without allocation.
pub type Operands = SmallVec<[Operand; 4]>;

/// An instruction.
///
/// ```
/// use tilewright_ptx::{Instruction, Modifier, Names, Opcode};
/// let mut names = Names::default();
/// let (d, a) = (names.intern("%f2"), names.intern("%f1"));
/// let add = Instruction::new(Opcode::Add, &[Modifier::Rn, Modifier::F32], [d.into(), a.into(), 1.0f32.into()]);
/// assert_eq!(add.display(&names).to_string(), "add.rn.f32 %f2, %f1, 0f3F800000;");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The predicate under which it runs.
    pub guard: Option<Guard>,
    /// The first word.
    pub opcode: Opcode,
    /// The dotted words behind it.
    pub modifiers: Modifiers,
    /// The operands.
    pub operands: Operands,
}

impl Instruction {
    /// An instruction without guard.
    pub fn new(
        opcode: Opcode,
        modifiers: &[Modifier],
        operands: impl IntoIterator<Item = Operand>,
    ) -> Instruction {
        let operands = operands.into_iter().collect();
        Instruction { guard: None, opcode, modifiers: Modifiers::from_slice(modifiers), operands }
    }

    /// The same where `predicate` is true.
    #[must_use]
    pub fn when(self, predicate: Symbol) -> Instruction {
        Instruction { guard: Some(Guard { negated: false, register: predicate }), ..self }
    }

    /// The same where `predicate` is false.
    #[must_use]
    pub fn unless(self, predicate: Symbol) -> Instruction {
        Instruction { guard: Some(Guard { negated: true, register: predicate }), ..self }
    }

    /// Whether it has a modifier.
    pub fn has(&self, modifier: Modifier) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// The types among the modifiers, in order: `cvt.rn.f16.f32` has `f16` and `f32`.
    pub fn types(&self) -> impl Iterator<Item = Type> + '_ {
        self.modifiers.iter().filter_map(|modifier| modifier.ty())
    }
}

/// A component of a vector register, or a part of a register of a video instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the components are their own names")]
pub enum Component {
    X,
    Y,
    Z,
    W,
    R,
    G,
    B,
    A,
    B0,
    B1,
    B2,
    B3,
    H0,
    H1,
}

/// An operand.
///
/// Numbers, symbols and special registers convert into it; [`Operand::address`], [`Operand::list`] and
/// [`Operand::tensor`] make the rest.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, label, variable or function.
    Symbol(Symbol),
    /// A component of a vector register: `%v.x`.
    Element(Symbol, Component),
    /// The address of a variable plus an offset: `table+8`.
    Offset(Symbol, i64),
    /// A special register.
    Special(SpecialRegister),
    /// A number.
    Immediate(Immediate),
    /// `[base+offset]`
    Address(Address),
    /// `[a, b, {c, d}]`: tensor map with coordinates, texture with sampler and coordinates.
    Tuple(Vec<Operand>),
    /// `{a, b, _}`
    List(Vec<Operand>),
    /// `!p`
    Not(Symbol),
    /// `p|q`; `None` is `_`.
    Pair(Option<Symbol>, Option<Symbol>),
    /// `_`
    Sink,
    /// `(a, b)` of a call.
    Group(Vec<Operand>),
}

impl Operand {
    /// `[base]`
    pub fn address(base: Symbol) -> Operand {
        Operand::Address(Address { base: Some(base), offset: 0 })
    }

    /// `[base+offset]`
    pub fn address_at(base: Symbol, offset: i64) -> Operand {
        Operand::Address(Address { base: Some(base), offset })
    }

    /// `{a, b, c}` of registers.
    pub fn list(registers: impl IntoIterator<Item = Symbol>) -> Operand {
        Operand::List(registers.into_iter().map(Operand::Symbol).collect())
    }

    /// `[map, {c0, c1}]`
    pub fn tensor(map: Symbol, coordinates: impl IntoIterator<Item = Symbol>) -> Operand {
        Operand::Tuple(vec![Operand::Symbol(map), Operand::list(coordinates)])
    }
}

impl From<Symbol> for Operand {
    fn from(symbol: Symbol) -> Operand {
        Operand::Symbol(symbol)
    }
}

impl From<SpecialRegister> for Operand {
    fn from(register: SpecialRegister) -> Operand {
        Operand::Special(register)
    }
}

impl From<Immediate> for Operand {
    fn from(immediate: Immediate) -> Operand {
        Operand::Immediate(immediate)
    }
}

impl From<i64> for Operand {
    fn from(value: i64) -> Operand {
        Operand::Immediate(Immediate::Int(value))
    }
}

impl From<i32> for Operand {
    fn from(value: i32) -> Operand {
        Operand::Immediate(Immediate::Int(i64::from(value)))
    }
}

impl From<u32> for Operand {
    fn from(value: u32) -> Operand {
        Operand::Immediate(Immediate::Int(i64::from(value)))
    }
}

impl From<f32> for Operand {
    fn from(value: f32) -> Operand {
        Operand::Immediate(Immediate::F32(value.to_bits()))
    }
}

impl From<f64> for Operand {
    fn from(value: f64) -> Operand {
        Operand::Immediate(Immediate::F64(value.to_bits()))
    }
}

/// `[base+offset]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Register or variable; without it the offset is the address.
    pub base: Option<Symbol>,
    /// Bytes.
    pub offset: i64,
}

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Immediate {
    /// An integer; printed in decimal, however it was written.
    Int(i64),
    /// An integer with suffix `U`, or one too large for 63 bits.
    Unsigned(u64),
    /// The bits of a single-precision number, `0f3F800000`.
    F32(u32),
    /// The bits of a double-precision number, `0d3FF0000000000000`; decimal fractions become this.
    F64(u64),
    /// `WARP_SZ`
    WarpSize,
}
