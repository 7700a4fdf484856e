//! Special registers, clocks, grids, and messages (see [`notes`](crate::notes)).

use tilewright_ir::{OpData, Special, Type};
use tilewright_ptx::{Guard, Modifier as M, Note, NoteKind, Opcode, SpecialRegister as S, Symbol};

use crate::emit::{Emitter, Lowered};
use crate::registers::{Width, shape};

/// The register, and whether it has 64 bits.
fn special_register(special: Special) -> (S, bool) {
    let register = match special {
        Special::TidX => S::TidX,
        Special::TidY => S::TidY,
        Special::TidZ => S::TidZ,
        Special::NtidX => S::NtidX,
        Special::NtidY => S::NtidY,
        Special::NtidZ => S::NtidZ,
        Special::CtaidX => S::CtaidX,
        Special::CtaidY => S::CtaidY,
        Special::CtaidZ => S::CtaidZ,
        Special::NctaidX => S::NctaidX,
        Special::NctaidY => S::NctaidY,
        Special::NctaidZ => S::NctaidZ,
        Special::LaneId => S::Laneid,
        Special::WarpId => S::Warpid,
        Special::SmId => S::Smid,
        Special::NsmId => S::Nsmid,
        Special::GridId => return (S::Gridid, true),
        Special::LanemaskEq => S::LanemaskEq,
        Special::LanemaskLt => S::LanemaskLt,
        Special::LanemaskLe => S::LanemaskLe,
        Special::LanemaskGt => S::LanemaskGt,
        Special::LanemaskGe => S::LanemaskGe,
        Special::ClusteridX => S::ClusteridX,
        Special::ClusteridY => S::ClusteridY,
        Special::ClusteridZ => S::ClusteridZ,
        Special::NclusteridX => S::NclusteridX,
        Special::NclusteridY => S::NclusteridY,
        Special::NclusteridZ => S::NclusteridZ,
        Special::ClusterCtaidX => S::ClusterCtaidX,
        Special::ClusterCtaidY => S::ClusterCtaidY,
        Special::ClusterCtaidZ => S::ClusterCtaidZ,
        Special::ClusterCtarank => S::ClusterCtarank,
        Special::ClusterNctarank => S::ClusterNctarank,
        Special::DynamicSmemSize => S::DynamicSmemSize,
        Special::TotalSmemSize => S::TotalSmemSize,
        Special::Clock => S::Clock,
        Special::Clock64 => return (S::Clock64, true),
        Special::GlobalTimer => return (S::Globaltimer, true),
    };
    (register, false)
}

impl Emitter<'_> {
    /// `special`, `clock`
    pub(crate) fn special(&mut self, data: &OpData) -> Lowered {
        let Some(special) = data.get::<Special>() else { return Ok(()) };
        let (register, wide) = special_register(special);
        let ty = self.func.ty(data.results[0]);
        let own = if wide { Width::B64 } else { Width::B32 };
        let move_type = if wide { M::U64 } else { M::U32 };
        let (width, _) = shape(ty);
        if !matches!(ty, Type::I32 | Type::U32 | Type::I64 | Type::U64) {
            return Err(self.unsupported(format!("gives 32 or 64 bits, not {ty}")));
        }
        let to = self.define_one(data.results[0]);
        if width == own {
            self.push(Opcode::Mov, &[move_type], [to.into(), register.into()]);
            return Ok(());
        }
        let read = self.new_reg(own);
        let target = if wide { M::U32 } else { M::U64 };
        self.push(Opcode::Mov, &[move_type], [read.into(), register.into()]);
        self.push(Opcode::Cvt, &[target, move_type], [to.into(), read.into()]);
        Ok(())
    }

    /// `grid_wait`, `grid_launch`: nothing where grids do not overlap.
    pub(crate) fn grid(&mut self, action: M) -> Lowered {
        if self.arch.number < 90 {
            return Ok(());
        }
        self.push(Opcode::Griddepcontrol, &[action], []);
        Ok(())
    }

    pub(crate) fn sleep(&mut self, data: &OpData) -> Lowered {
        let time = self.u32_operand(data.operands[0]);
        self.push(Opcode::Nanosleep, &[M::U32], [time]);
        Ok(())
    }

    pub(crate) fn trap(&mut self) -> Lowered {
        self.push(Opcode::Trap, &[], []);
        Ok(())
    }

    pub(crate) fn assert(&mut self, data: &OpData) -> Lowered {
        if self.constant(data.operands[0]) == Some(1) {
            return Ok(());
        }
        let condition = self.reg(data.operands[0]);
        let text = data.text().unwrap_or("").to_owned();
        self.note(&Note { kind: NoteKind::Assert, text, values: Vec::new() });
        self.guarded(Guard { negated: true, register: condition }, |this| this.push(Opcode::Trap, &[], []));
        Ok(())
    }

    pub(crate) fn trace(&mut self, data: &OpData) -> Lowered {
        let mut values = Vec::new();
        for &value in &data.operands {
            let ty = self.func.ty(value);
            let (width, _) = shape(ty);
            let words = self.words(value);
            let registers: Vec<Symbol> = words.into_iter().map(|word| self.in_reg(word, width)).collect();
            let names = registers.into_iter().map(|register| self.names.text(register).to_owned());
            values.push((ty.to_string(), names.collect()));
        }
        let text = data.text().unwrap_or("").to_owned();
        self.note(&Note { kind: NoteKind::Trace, text, values });
        Ok(())
    }
}
