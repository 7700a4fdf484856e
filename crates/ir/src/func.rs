//! Functions: arenas of values, ops and regions, addressed by small indices.
//!
//! Indices instead of references, because passes rewrite graphs with cycles of ownership (an op owns regions that own ops) and keep
//! dense tables beside them. Entries are never freed: an op that no region lists is dead and is not printed.

use std::fmt;

use smallvec::SmallVec;

use crate::attr::{Attr, AttrKind, AttrValue, Attribute, Flags};
use crate::loc::{Loc, Locations};
use crate::table::{Group, OpInfo, Opcode};
use crate::types::Type;

macro_rules! entity {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// The position in its arena.
            #[must_use]
            pub fn index(self) -> usize {
                self.0 as usize
            }

            fn at(index: usize) -> $name {
                // An arena of 2^32 entries would not fit in memory.
                $name(u32::try_from(index).unwrap_or(u32::MAX))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

entity! {
    /// A value: the result of an op or an argument of a region.
    Value, "%"
}
entity! {
    /// An op of a function.
    Op, "op"
}
entity! {
    /// A region: arguments and a list of ops, the last a terminator.
    Region, "region"
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Def {
    /// The result of an op, with its position.
    Result(Op, u32),
    /// The argument of a region, with its position. The arguments of the body are the parameters.
    Arg(Region, u32),
}

/// What is known of a value.
#[derive(Debug, Clone, Copy)]
pub struct ValueData {
    /// Its type.
    pub ty: Type,
    /// Where it comes from.
    pub def: Def,
}

/// The operands of an op: few, most of the time.
pub type Operands = SmallVec<[Value; 4]>;

/// The attributes of an op: fewer.
pub type Attrs = SmallVec<[Attr; 2]>;

/// What is known of an op.
#[derive(Debug, Clone)]
pub struct OpData {
    /// Which op.
    pub code: Opcode,
    /// What it takes.
    pub operands: Operands,
    /// What it knows at compile time.
    pub attrs: Attrs,
    /// What it gives.
    pub results: SmallVec<[Value; 1]>,
    /// The regions it owns.
    pub regions: SmallVec<[Region; 2]>,
    /// Where the user wrote it.
    pub loc: Loc,
}

impl OpData {
    /// The row of the table.
    #[must_use]
    pub fn info(&self) -> &'static OpInfo {
        self.code.info()
    }

    /// A typed attribute, if present.
    #[must_use]
    pub fn get<A: Attribute>(&self) -> Option<A> {
        self.attrs.iter().find(|attr| attr.kind == A::KIND).and_then(|attr| match attr.value {
            AttrValue::Word(word) => Some(A::decode(word)),
            AttrValue::Text(_) => None,
        })
    }

    /// The flags; none if the op has none.
    #[must_use]
    pub fn flags(&self) -> Flags {
        self.get::<Flags>().unwrap_or_default()
    }

    /// The name or message.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.attrs.iter().find(|attr| attr.kind == AttrKind::Text).and_then(|attr| match &attr.value {
            AttrValue::Text(text) => Some(&**text),
            AttrValue::Word(_) => None,
        })
    }

    /// Sets an attribute, in place of the one of the same kind. An empty set of flags is no attribute.
    pub fn set<A: Attribute>(&mut self, value: A) {
        self.attrs.retain(|attr| attr.kind != A::KIND);
        if A::KIND != AttrKind::Flags || value.encode() != 0 {
            self.attrs.push(Attr::of(value));
            self.sort_attrs();
        }
    }

    /// Puts attributes into the order of the table, so that equal ops look equal.
    pub(crate) fn sort_attrs(&mut self) {
        let order = self.info().attrs;
        self.attrs.sort_by_key(|attr| order.iter().position(|(kind, _)| *kind == attr.kind));
    }
}

/// What is known of a region.
#[derive(Debug, Clone, Default)]
pub struct RegionData {
    /// The values it takes.
    pub args: SmallVec<[Value; 4]>,
    /// Its ops in order.
    pub ops: Vec<Op>,
    /// The op that owns it; none for a body.
    pub parent: Option<Op>,
}

/// A parameter of a function. Its value is the argument of the body at the same position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What the caller promises: for pointers an alignment in bytes, for integers a number that they are a multiple of; 0 if nothing.
    pub align: u32,
}

/// How a kernel is launched, as far as it is fixed at compile time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Launch {
    /// Threads of a block in x, y, z.
    pub threads: Option<[u32; 3]>,
    /// Blocks that shall fit on a multiprocessor.
    pub min_blocks: Option<u32>,
    /// Blocks of a cluster in x, y, z.
    pub cluster: Option<[u32; 3]>,
    /// Registers of a thread at most.
    pub max_registers: Option<u32>,
}

impl Launch {
    /// All threads of a block, if fixed.
    #[must_use]
    pub fn total_threads(&self) -> Option<u32> {
        self.threads.map(|t| t.iter().fold(1, |n: u32, &extent| n.saturating_mul(extent)))
    }
}

/// A function.
#[derive(Debug, Clone)]
pub struct Func {
    /// Its name.
    pub name: String,
    /// Its parameters.
    pub params: Vec<Param>,
    /// How it is launched.
    pub launch: Launch,
    /// Types of its results; a kernel has none.
    pub results: Vec<Type>,
    /// Places in the source.
    pub locations: Locations,
    values: Vec<ValueData>,
    ops: Vec<OpData>,
    regions: Vec<RegionData>,
}

impl Func {
    /// A function without parameters and ops.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Func {
        Func {
            name: name.into(),
            params: Vec::new(),
            launch: Launch::default(),
            results: Vec::new(),
            locations: Locations::default(),
            values: Vec::new(),
            ops: Vec::new(),
            regions: vec![RegionData::default()],
        }
    }

    /// The outermost region.
    #[must_use]
    pub fn body(&self) -> Region {
        Region(0)
    }

    /// Whether every thread waits for the grids that this one depends on (`grid_wait` in the outermost region), so that a launch may let
    /// it start before those have ended.
    #[must_use]
    pub fn waits_for_grids(&self) -> bool {
        self.region(self.body()).ops.iter().any(|&op| self.op(op).code == Opcode::GridWait)
    }

    /// Whether the function works on tiles: it says what a whole program does, and must be lowered to threads before it can run.
    #[must_use]
    pub fn is_tile_level(&self) -> bool {
        self.walk().into_iter().any(|op| self.op(op).info().group == Group::Program)
    }

    /// Adds a parameter.
    pub fn add_param(&mut self, name: impl Into<String>, ty: Type, align: u32) -> Value {
        self.params.push(Param { name: name.into(), align });
        self.add_arg(self.body(), ty)
    }

    /// Adds an argument to a region.
    pub fn add_arg(&mut self, region: Region, ty: Type) -> Value {
        let position = self.regions[region.index()].args.len();
        let value = self.new_value(ty, Def::Arg(region, u32::try_from(position).unwrap_or(u32::MAX)));
        self.regions[region.index()].args.push(value);
        value
    }

    /// Makes an op that no region lists yet, with fresh results of the given types.
    pub fn new_op(
        &mut self,
        code: Opcode,
        operands: impl IntoIterator<Item = Value>,
        attrs: impl IntoIterator<Item = Attr>,
        results: impl IntoIterator<Item = Type>,
        loc: Loc,
    ) -> Op {
        let results: SmallVec<[Type; 2]> = results.into_iter().collect();
        self.add_op(code, operands.into_iter().collect(), attrs.into_iter().collect(), &results, loc)
    }

    /// Apart from the conversions of `new_op`, so that it is compiled once.
    fn add_op(
        &mut self,
        code: Opcode,
        operands: Operands,
        mut attrs: Attrs,
        results: &[Type],
        loc: Loc,
    ) -> Op {
        let op = Op::at(self.ops.len());
        attrs.retain(|attr| attr.kind != AttrKind::Flags || attr.value != AttrValue::Word(0));
        let mut data =
            OpData { code, operands, attrs, results: SmallVec::new(), regions: SmallVec::new(), loc };
        if data.attrs.len() > 1 {
            data.sort_attrs();
        }
        for (i, &ty) in results.iter().enumerate() {
            data.results.push(self.new_value(ty, Def::Result(op, u32::try_from(i).unwrap_or(u32::MAX))));
        }
        self.ops.push(data);
        op
    }

    /// Makes an empty region owned by `op`.
    pub fn new_region(&mut self, op: Op) -> Region {
        let region = Region::at(self.regions.len());
        self.regions.push(RegionData { parent: Some(op), ..RegionData::default() });
        self.ops[op.index()].regions.push(region);
        region
    }

    /// Adds one more result to an op.
    pub fn add_result(&mut self, op: Op, ty: Type) -> Value {
        let position = self.ops[op.index()].results.len();
        let value = self.new_value(ty, Def::Result(op, u32::try_from(position).unwrap_or(u32::MAX)));
        self.ops[op.index()].results.push(value);
        value
    }

    fn new_value(&mut self, ty: Type, def: Def) -> Value {
        self.values.push(ValueData { ty, def });
        Value::at(self.values.len() - 1)
    }

    /// An op.
    #[must_use]
    pub fn op(&self, op: Op) -> &OpData {
        &self.ops[op.index()]
    }

    /// An op, to change.
    pub fn op_mut(&mut self, op: Op) -> &mut OpData {
        &mut self.ops[op.index()]
    }

    /// A region.
    #[must_use]
    pub fn region(&self, region: Region) -> &RegionData {
        &self.regions[region.index()]
    }

    /// A region, to change.
    pub fn region_mut(&mut self, region: Region) -> &mut RegionData {
        &mut self.regions[region.index()]
    }

    /// What is known of a value.
    #[must_use]
    pub fn value(&self, value: Value) -> &ValueData {
        &self.values[value.index()]
    }

    /// The type of a value.
    #[must_use]
    pub fn ty(&self, value: Value) -> Type {
        self.values[value.index()].ty
    }

    /// The op that defines a value, if an op does.
    #[must_use]
    pub fn def_op(&self, value: Value) -> Option<Op> {
        match self.values[value.index()].def {
            Def::Result(op, _) => Some(op),
            Def::Arg(..) => None,
        }
    }

    /// Number of values ever made: the size of a dense table over them.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.values.len()
    }

    /// Number of ops ever made.
    #[must_use]
    pub fn op_count(&self) -> usize {
        self.ops.len()
    }

    /// All live ops, each before the ops in its regions.
    #[must_use]
    pub fn walk(&self) -> Vec<Op> {
        let mut out = Vec::with_capacity(self.ops.len());
        self.walk_region(self.body(), &mut out);
        out
    }

    /// The ops of a region and of all regions inside, in order.
    pub fn walk_region(&self, region: Region, out: &mut Vec<Op>) {
        for &op in &self.region(region).ops {
            out.push(op);
            for &inner in &self.op(op).regions {
                self.walk_region(inner, out);
            }
        }
    }

    /// The last op of a region.
    #[must_use]
    pub fn terminator(&self, region: Region) -> Option<Op> {
        self.region(region).ops.last().copied().filter(|&op| self.op(op).info().is_terminator())
    }

    /// Replaces values wherever live ops use them. `to` gives the replacement, or the value itself.
    pub fn replace_uses(&mut self, mut to: impl FnMut(Value) -> Value) {
        for op in self.walk() {
            for operand in &mut self.ops[op.index()].operands {
                *operand = to(*operand);
            }
        }
    }
}

/// How often each value is used by live ops.
#[derive(Debug, Clone)]
pub struct Uses(Vec<u32>);

impl Uses {
    /// Counts.
    #[must_use]
    pub fn of(func: &Func) -> Uses {
        let mut counts = vec![0; func.value_count()];
        for op in func.walk() {
            for operand in &func.op(op).operands {
                counts[operand.index()] += 1;
            }
        }
        Uses(counts)
    }

    /// The number of uses of a value.
    #[must_use]
    pub fn count(&self, value: Value) -> u32 {
        self.0.get(value.index()).copied().unwrap_or(0)
    }
}

/// Functions that belong together: a kernel and what it calls. The kernel comes first.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// The functions.
    pub funcs: Vec<Func>,
}

impl Module {
    /// The function of that name.
    #[must_use]
    pub fn func(&self, name: &str) -> Option<&Func> {
        self.funcs.iter().find(|func| func.name == name)
    }
}

impl From<Func> for Module {
    fn from(func: Func) -> Module {
        Module { funcs: vec![func] }
    }
}

/// Functions are equal when they have the same structure; numbering in the arenas, dead ops and the order in which places were
/// entered do not matter.
impl PartialEq for Func {
    fn eq(&self, other: &Func) -> bool {
        let mut same = Comparison { a: self, b: other, pairs: vec![None; self.value_count()] };
        self.name == other.name
            && self.params == other.params
            && self.launch == other.launch
            && self.results == other.results
            && same.regions(self.body(), other.body())
    }
}

impl PartialEq for Module {
    fn eq(&self, other: &Module) -> bool {
        self.funcs == other.funcs
    }
}

struct Comparison<'a> {
    a: &'a Func,
    b: &'a Func,
    pairs: Vec<Option<Value>>,
}

impl Comparison<'_> {
    fn bind(&mut self, a: &[Value], b: &[Value]) -> bool {
        a.len() == b.len()
            && a.iter().zip(b).all(|(&x, &y)| {
                self.pairs[x.index()] = Some(y);
                self.a.ty(x) == self.b.ty(y)
            })
    }

    fn regions(&mut self, ra: Region, rb: Region) -> bool {
        let (a, b) = (self.a.region(ra), self.b.region(rb));
        self.bind(&a.args, &b.args)
            && a.ops.len() == b.ops.len()
            && a.ops.iter().zip(&b.ops).all(|(&x, &y)| self.ops(x, y))
    }

    fn ops(&mut self, oa: Op, ob: Op) -> bool {
        let (a, b) = (self.a.op(oa), self.b.op(ob));
        a.code == b.code
            && a.attrs == b.attrs
            && a.operands.len() == b.operands.len()
            && a.operands.iter().zip(&b.operands).all(|(x, &y)| self.pairs[x.index()] == Some(y))
            && a.regions.len() == b.regions.len()
            && a.regions.iter().zip(&b.regions).all(|(&x, &y)| self.regions(x, y))
            && self.bind(&a.results, &b.results)
            && self.a.locations.get(a.loc).map(|l| (l.file, l.line, l.column))
                == self.b.locations.get(b.loc).map(|l| (l.file, l.line, l.column))
            && self.a.locations.chain(a.loc).eq(self.b.locations.chain(b.loc))
    }
}
