//! The table of opcodes: what becomes of the bits of a pointer in each.
//!
//! Every opcode has a row, so that a new one is a decision, not an accident.

use crate::ast::Instruction;
use crate::words::{Class, Opcode};

/// How an instruction makes a register of its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It is one of them, or put together from their parts.
    Copy,
    /// Addition and what stands for it: at most one source can be the pointer.
    Sum,
    /// The first minus the second.
    Difference,
    /// Bits of them, from which a pointer can be put together again.
    Bits,
    /// Shifted left: a pointer becomes a number, but bits that were shifted right may return to their place.
    Left,
}

/// What an instruction does with the values of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Touches memory, or does more than the families below.
    Memory,
    /// Its result is made of the first so many sources; what follows them are amounts, lanes and selectors.
    Data(Mode, usize),
    /// Its result is a number plus the third source.
    Product,
    /// Its result is a number.
    Number,
    /// No result, and operands that are numbers, labels or predicates.
    Control,
}

/// The family of an instruction.
#[rustfmt::skip]
pub(super) fn family(instruction: &Instruction) -> Family {
    use Opcode as O;
    let float = instruction.types().any(|ty| matches!(ty.class(), Class::Float | Class::Packed));
    match instruction.opcode {
        O::Ld | O::Ldu | O::St | O::Atom | O::Red | O::Multimem | O::Prefetch | O::Prefetchu | O::Applypriority
        | O::Discard | O::Createpolicy | O::Cp | O::Tensormap | O::Fence | O::Mbarrier | O::Ldmatrix | O::Stmatrix
        | O::Wmma | O::Cvta | O::Call | O::Tcgen05 | O::Clusterlaunchcontrol | O::Alloca | O::Tex | O::Tld4 | O::Suld
        | O::Sust | O::Sured | O::Txq | O::Suq => Family::Memory,

        O::Add | O::Sub | O::Mad | O::Min | O::Max | O::Neg | O::Abs | O::Cvt if float => Family::Number,
        O::Add | O::Addc | O::And | O::Or => Family::Data(Mode::Sum, 2),
        O::Sub | O::Subc => Family::Data(Mode::Difference, 2),
        O::Mad | O::Madc | O::Mad24 => Family::Product,
        O::Mov | O::Cvt | O::Shfl | O::Mapa => Family::Data(Mode::Copy, 1),
        O::Selp | O::Slct | O::Min | O::Max | O::Prmt | O::Bfi | O::Shf => Family::Data(Mode::Copy, 2),
        O::Shl => Family::Data(Mode::Left, 1),
        O::Shr | O::Bfe | O::Brev | O::Szext | O::Neg | O::Not | O::Cnot | O::Abs | O::Redux | O::Movmatrix =>
            Family::Data(Mode::Bits, 1),
        O::Xor => Family::Data(Mode::Bits, 2),
        O::Lop3 | O::Vabsdiff | O::Vabsdiff2 | O::Vabsdiff4 | O::Vadd | O::Vadd2 | O::Vadd4 | O::Vavrg2 | O::Vavrg4
        | O::Vmad | O::Vmax | O::Vmax2 | O::Vmax4 | O::Vmin | O::Vmin2 | O::Vmin4 | O::Vset | O::Vset2 | O::Vset4
        | O::Vshl | O::Vshr | O::Vsub | O::Vsub2 | O::Vsub4 => Family::Data(Mode::Bits, 3),

        O::Activemask | O::Bfind | O::Bmsk | O::Clz | O::Copysign | O::Cos | O::Div | O::Dp2a | O::Dp4a | O::Elect
        | O::Ex2 | O::Fma | O::Fns | O::Getctarank | O::Isspacep | O::Istypep | O::Lg2 | O::Match | O::Mma | O::Mul
        | O::Mul24 | O::Popc | O::Rcp | O::Rem | O::Rsqrt | O::Sad | O::Set | O::Setp | O::Sin | O::Sqrt
        | O::Stacksave | O::Tanh | O::Testp | O::Vote | O::Wgmma => Family::Number,
        // Their first operand is a result in some forms, and a number in the others.
        O::Bar | O::Barrier => Family::Number,

        O::Bra | O::Brkpt | O::Brx | O::Exit | O::Griddepcontrol | O::Membar | O::Nanosleep | O::Pmevent | O::Ret
        | O::Setmaxnreg | O::Stackrestore | O::Trap => Family::Control,
    }
}
