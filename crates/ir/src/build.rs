//! Appending ops to a function, region by region.

use smallvec::SmallVec;

use crate::Element;
use crate::attr::{Attr, Constant};
use crate::func::{Attrs, Func, Op, Operands, Region, Value};
use crate::loc::Loc;
use crate::table::{Opcode, Out};
use crate::types::Type;

/// A function under construction and the place where the next op goes.
///
/// ```
/// use tilewright_ir::{Builder, Func, Loc, Opcode, Special, Type};
///
/// let mut b = Builder::new(Func::new("empty"));
/// let tid = b.value(Opcode::Special, [], [Special::TidX.into()], Some(Type::U32), Loc::NONE);
/// let one = b.constant(Type::U32, 1, Loc::NONE);
/// b.value(Opcode::Add, [tid, one], [], None, Loc::NONE);
/// let func = b.finish();
/// assert_eq!(func.walk().len(), 3);
/// ```
///
/// The builder does not check; [`verify`](crate::verify) does, and reports everything at once.
#[derive(Debug)]
pub struct Builder {
    /// The function.
    pub func: Func,
    stack: Vec<Region>,
}

impl Builder {
    /// Appends to the body of `func`.
    #[must_use]
    pub fn new(func: Func) -> Builder {
        let body = func.body();
        Builder { func, stack: vec![body] }
    }

    /// The function, as far as it is built.
    #[must_use]
    pub fn finish(self) -> Func {
        self.func
    }

    /// The region that ops are appended to.
    #[must_use]
    pub fn region(&self) -> Region {
        self.stack.last().copied().unwrap_or_else(|| self.func.body())
    }

    /// Whether ops still go to a region or to one inside of it.
    #[must_use]
    pub fn is_open(&self, region: Region) -> bool {
        self.stack.contains(&region)
    }

    /// How many regions are open, the body included.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.stack.len()
    }

    /// From now on ops go to a new region of `op`.
    pub fn open(&mut self, op: Op) -> Region {
        let region = self.func.new_region(op);
        self.stack.push(region);
        region
    }

    /// Back to the region around.
    pub fn close(&mut self) {
        if self.stack.len() > 1 {
            self.stack.pop();
        }
    }

    /// Appends an op. `given` are the types of those results that the table leaves open.
    pub fn push(
        &mut self,
        code: Opcode,
        operands: impl IntoIterator<Item = Value>,
        attrs: impl IntoIterator<Item = Attr>,
        given: impl IntoIterator<Item = Type>,
        loc: Loc,
    ) -> Op {
        self.append(
            code,
            operands.into_iter().collect(),
            attrs.into_iter().collect(),
            &given.into_iter().collect::<SmallVec<[Type; 2]>>(),
            loc,
        )
    }

    /// Apart from the conversions of `push`, so that it is compiled once.
    fn append(&mut self, code: Opcode, operands: Operands, attrs: Attrs, given: &[Type], loc: Loc) -> Op {
        let mut given = given.iter().copied();
        let mut results: SmallVec<[Type; 2]> = SmallVec::new();
        for out in code.info().results {
            match *out {
                Out::Like(i) => results.extend(operands.get(usize::from(i)).map(|&v| self.func.ty(v))),
                Out::Of(ty) => results.push(ty),
                Out::Given => results.extend(given.next()),
                Out::GivenRest => results.extend(given.by_ref()),
            }
        }
        let op = self.func.new_op(code, operands, attrs, results, loc);
        let region = self.region();
        self.func.region_mut(region).ops.push(op);
        op
    }

    /// Appends an op and returns its first result.
    ///
    /// # Panics
    /// If the op has no result: a mistake in the caller.
    #[allow(clippy::panic, reason = "an op without results has no value; the caller chose the op")]
    pub fn value(
        &mut self,
        code: Opcode,
        operands: impl IntoIterator<Item = Value>,
        attrs: impl IntoIterator<Item = Attr>,
        given: Option<Type>,
        loc: Loc,
    ) -> Value {
        let op = self.push(code, operands, attrs, given, loc);
        match self.func.op(op).results.first() {
            Some(&value) => value,
            None => panic!("`{}` has no result", code.info().mnemonic),
        }
    }

    /// Appends a constant of the given bits.
    pub fn constant(&mut self, ty: Type, bits: u64, loc: Loc) -> Value {
        self.value(Opcode::Const, [], [Constant(bits).into()], Some(ty), loc)
    }

    /// Appends an integer constant; negative numbers are sign-extended to 64 bits.
    pub fn int(&mut self, element: Element, value: i64, loc: Loc) -> Value {
        self.constant(Type::Scalar(element), value.cast_unsigned(), loc)
    }
}
