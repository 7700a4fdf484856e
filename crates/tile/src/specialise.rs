//! Facts about arguments, made part of a kernel.
//!
//! A kernel is staged once for all tensors; what is known of the tensors of a launch (a stride of one, an aligned pointer, an extent that
//! is a multiple of eight) lets the compiler use wide accesses and leave out checks. [`specialise`] writes such facts into a copy.

use std::collections::HashMap;

use tilewright_ir::{Constant, Element, Func, Loc, Opcode, Type, Value, canonical};

/// What is known of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// An integer is this number.
    Is(i64),
    /// An integer is a multiple of this; a pointer is aligned to so many bytes.
    MultipleOf(u32),
}

/// A copy of a function in which facts about parameters hold, by their names. Parameters stay, so that arguments are passed as before; what
/// is not a parameter, or not an integer or pointer, is left alone.
///
/// ```
/// use tilewright_ir::parse;
/// use tilewright_tile::{Fact, specialise};
///
/// let module = parse("func @k (%x: ptr<global>, %n: u32) {\n  %0 = add %n, %n : u32\n}")?;
/// let func = specialise(&module.funcs[0], &[("x", Fact::MultipleOf(16)), ("n", Fact::Is(64))]);
/// assert_eq!(
///     func.to_string(),
///     "func @k (%x: ptr<global> align(16), %n: u32) {\n  %0 = const value(64) : u32\n  %1 = add %0, %0 : u32\n}\n"
/// );
/// # Ok::<(), tilewright_ir::IrError>(())
/// ```
#[must_use]
pub fn specialise(func: &Func, facts: &[(&str, Fact)]) -> Func {
    let mut out = func.clone();
    let args = out.region(out.body()).args.clone();
    let mut known: HashMap<Value, Value> = HashMap::new();
    let mut constants = Vec::new();
    for &(name, fact) in facts {
        let Some(position) = out.params.iter().position(|param| param.name == name) else { continue };
        let value = args[position];
        match (fact, out.ty(value)) {
            (Fact::Is(number), ty @ Type::Scalar(element)) if element.is_int() => {
                let bits = Constant(canonical(element, number.cast_unsigned()));
                let op = out.new_op(Opcode::Const, [], [bits.into()], [ty], Loc::NONE);
                known.insert(value, out.op(op).results[0]);
                constants.push(op);
            }
            (Fact::MultipleOf(of), ty) if of > 0 && is_countable(ty) => {
                let align = &mut out.params[position].align;
                *align = (*align).max(of);
            }
            _ => {}
        }
    }
    out.replace_uses(|value| known.get(&value).copied().unwrap_or(value));
    let body = out.body();
    out.region_mut(body).ops.splice(0..0, constants);
    out
}

fn is_countable(ty: Type) -> bool {
    matches!(ty, Type::Pointer(_)) || ty.lanes() == 1 && ty.element().is_some_and(Element::is_int)
}
