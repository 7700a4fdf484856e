//! Facts about arguments, made part of a kernel.
//!
//! A kernel is staged once for all tensors; what is known of the tensors of a launch (a stride of one, an aligned pointer, an extent that
//! is a multiple of eight) lets the compiler use wide accesses and leave out checks. [`specialise`] writes such facts into a copy.

use std::collections::HashMap;

use tilewright_ir::{Constant, Element, Func, Loc, Opcode, Special, Type, Value, canonical};

/// What is known of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// An integer is this number.
    Is(i64),
    /// An integer is a multiple of this; a pointer is aligned to so many bytes.
    MultipleOf(u32),
}

/// A copy of a function in which facts about parameters hold, by their names. Parameters stay, so that arguments are passed as before; what
/// is not a parameter, or not an integer or pointer, is left alone. Special registers have facts too, by the name that the text gives them:
/// `ctaid.y` is 0 where the grid has one row.
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
/// let module = parse("func @k () {\n  %0 = special reg(ctaid.y) : u32\n  %1 = special reg(ctaid.x) : u32\n}")?;
/// let func = specialise(&module.funcs[0], &[("ctaid.y", Fact::Is(0))]);
/// assert_eq!(
///     func.to_string(),
///     "func @k () {\n  %0 = const value(0) : u32\n  %1 = special reg(ctaid.x) : u32\n}\n"
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
        let Some(position) = out.params.iter().position(|param| param.name == name) else {
            if let Fact::Is(number) = fact {
                fix_special(&mut out, name, number);
            }
            continue;
        };
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

/// Puts a number in place of a special register.
fn fix_special(func: &mut Func, name: &str, number: i64) {
    for op in func.walk() {
        let data = func.op_mut(op);
        if data.code == Opcode::Special && data.get::<Special>().is_some_and(|special| special.name() == name)
        {
            data.code = Opcode::Const;
            data.attrs.clear();
            data.set(Constant(canonical(Element::U32, number.cast_unsigned())));
        }
    }
}

fn is_countable(ty: Type) -> bool {
    matches!(ty, Type::Pointer(_)) || ty.lanes() == 1 && ty.element().is_some_and(Element::is_int)
}
