//! Instructions as ops, one file a group.

mod control;
mod copy;
mod matrix;
mod memory;
mod sync;
mod value;
mod warp;

use tilewright_ptx::{Instruction, Modifier, Opcode};

use super::function::Decoder;
use super::op::Kind;
use super::operand::{Decoded, Fault};
use crate::number::Combine;

impl<'a> Decoder<'a> {
    /// The op of an instruction; ops that come before it are emitted on the way, and those that come behind it are held back.
    pub(super) fn kind(&mut self, i: &'a Instruction) -> Decoded<Kind> {
        use Opcode as O;
        match i.opcode {
            O::Mov => self.mov(i),
            O::Selp => self.selp(i),
            O::Setp | O::Testp => self.test(i),
            O::Set => self.set(i),
            O::Cvta => self.cvta(i),
            O::Isspacep => self.isspacep(i),
            O::Mapa => self.mapa(i),
            O::Getctarank => self.getctarank(i),
            O::Createpolicy => self.createpolicy(i),

            O::Ld | O::Ldu => self.load(i),
            O::St => self.store(i),
            O::Atom | O::Red => self.atomic(i),
            O::Alloca | O::Stacksave | O::Stackrestore => self.stack(i),
            O::Prefetch | O::Prefetchu | O::Applypriority | O::Discard | O::Pmevent => Ok(Kind::Nop),

            O::Shfl => self.shfl(i),
            O::Vote => self.vote(i),
            O::Match => self.match_lanes(i),
            O::Redux => self.redux(i),
            O::Activemask => self.activemask(i),
            O::Elect => self.elect(i),

            O::Bar | O::Barrier => self.barrier(i),
            O::Fence | O::Membar => self.fence(i),
            O::Mbarrier => self.mbarrier(i),
            O::Griddepcontrol => Ok(Kind::GridDependency { wait: i.has(Modifier::Wait) }),

            O::Cp => self.copy(i),
            O::Tensormap => self.tensormap(i),

            O::Ldmatrix => self.ldmatrix(i),
            O::Stmatrix => self.stmatrix(i),
            O::Movmatrix => self.movmatrix(i),
            O::Mma => self.mma(i),
            O::Wmma => self.wmma(i),
            O::Wgmma => self.wgmma(i),
            O::Setmaxnreg => self.setmaxnreg(i),

            O::Bra => self.branch(i),
            O::Brx => self.indexed_branch(i),
            O::Call => self.call(i),
            O::Ret if self.entry => Ok(Kind::Exit),
            O::Ret => Ok(Kind::Ret),
            O::Exit => Ok(Kind::Exit),
            O::Trap => Ok(Kind::Trap),
            O::Brkpt => Ok(Kind::Brkpt),
            O::Nanosleep => Ok(Kind::Nanosleep),

            O::Tcgen05 | O::Clusterlaunchcontrol => {
                Err(because("is an instruction of Blackwell, which is not supported yet"))
            }
            O::Multimem => Err(because("needs several devices, which are not supported")),
            O::Tex | O::Tld4 | O::Txq | O::Istypep | O::Suld | O::Sust | O::Sured | O::Suq => {
                Err(because("is an instruction for textures or surfaces, which are not supported"))
            }
            opcode if opcode.text().starts_with('v') => {
                Err(because("is a video instruction, which are not supported"))
            }
            _ => self.arithmetic(i),
        }
    }
}

fn because(reason: &str) -> Fault {
    Fault::Because(reason.into())
}

/// What an atomic, a reduction or a reducing copy does to an element.
fn combine(i: &Instruction) -> Decoded<Combine> {
    i.modifiers.iter().find_map(|modifier| Combine::of(*modifier)).ok_or(Fault::Modifiers)
}
