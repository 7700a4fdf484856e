//! The body of a function: statements in order, with scopes, labels and source locations.

use std::sync::Arc;

use tilewright_ptx::{
    Directive, FunctionKind, Instruction, Location, Modifier, Note, Space as Declaration, Statement,
    StatementKind, Symbol, Variable,
};

use super::error::ProgramError;
use super::flow::{Flow, is_guarded};
use super::layout::{Frame, Layout, Signature, alignment, frame_error, is_static};
use super::live::live_registers;
use super::op::{Kind, Op, Pc, PredSrc, TraceNote};
use super::operand::{Fault, Value};
use super::scope::{Place, Scopes};
use super::{FrameVariable, Function, Limits, Source};

/// What is known while a function is decoded.
pub(super) struct Decoder<'a> {
    pub(super) layout: &'a Layout<'a>,
    /// Of the function in the layout.
    pub(super) index: usize,
    pub(super) entry: bool,
    pub(super) scopes: Scopes<'a>,
    pub(super) frame: Frame,
    locals: Vec<FrameVariable>,
    /// The next variable of the body that the layout has placed.
    statics: std::slice::Iter<'a, Place>,
    /// Jumps name labels by number until all places are known.
    label_places: Vec<Option<Pc>>,
    code: Vec<Op>,
    /// Ops that come behind the one of the current instruction.
    behind: Vec<Kind>,
    lines: Vec<u32>,
    sources: Vec<Option<Source>>,
    line: u32,
    location: Option<Source>,
    guard: Option<PredSrc>,
}

impl<'a> Decoder<'a> {
    /// Decodes one function.
    pub(super) fn function(
        layout: &'a Layout<'a>,
        index: usize,
        text: Arc<[String]>,
    ) -> Result<Function, ProgramError> {
        let function = layout.functions[index];
        let signature = &layout.signatures[index];
        let entry = function.kind == FunctionKind::Entry;
        let mut decoder = Decoder {
            layout,
            index,
            entry,
            scopes: Scopes::new(layout.names),
            frame: Frame::behind(if entry { 0 } else { signature.bytes }),
            locals: Vec::new(),
            statics: layout.bodies.get(index).map_or([].iter(), |places| places.iter()),
            label_places: Vec::new(),
            code: Vec::new(),
            behind: Vec::new(),
            lines: Vec::new(),
            sources: Vec::new(),
            line: function.line.0,
            location: None,
            guard: None,
        };
        decoder.declare_parameters(function, signature);
        let body = function.body.as_deref().unwrap_or_default();
        decoder.block(body)?;
        decoder.finish();
        let used = layout.shared.used.get(index).cloned().unwrap_or_default();
        let flow = Flow::new(&decoder.code);
        let register_bits = decoder.scopes.register_bits;
        Ok(Function {
            name: layout.names.text(function.name).into(),
            entry,
            params: signature.params.clone(),
            returns: signature.returns.clone(),
            param_bytes: if entry { signature.bytes } else { 0 },
            registers: u32::try_from(register_bits.len()).unwrap_or(u32::MAX),
            predicates: decoder.scopes.predicates,
            frame_bytes: decoder.frame.bytes(),
            locals: decoder.locals,
            shared: used.variables,
            dynamic: used.dynamic,
            shared_bytes: used.bytes,
            shared_end: used.end,
            limits: limits(&function.directives),
            live_registers: live_registers(&decoder.code, &register_bits),
            register_bits,
            code: decoder.code,
            lines: decoder.lines,
            sources: decoder.sources,
            order: flow.order,
            post_dominator: flow.post_dominator,
            text,
        })
    }

    fn declare_parameters(&mut self, function: &tilewright_ptx::Function, signature: &Signature) {
        let returns = function.returns.iter().zip(&signature.returns);
        for (variable, param) in returns.chain(function.params.iter().zip(&signature.params)) {
            if variable.space == Declaration::Reg {
                self.scopes.declare_parameter(variable);
            } else if self.entry {
                self.scopes.declare(variable.name, Place::Param(param.offset));
            } else {
                let (offset, bytes) = (param.offset, param.bytes);
                self.scopes.declare(variable.name, Place::Frame { offset, bytes });
                self.locals.push(FrameVariable { name: param.name.clone(), offset, bytes });
            }
        }
    }

    fn block(&mut self, statements: &'a [Statement]) -> Result<(), ProgramError> {
        self.scopes.enter(statements);
        self.label_places.resize(self.scopes.labels as usize, None);
        for statement in statements {
            self.line = statement.line.0;
            match &statement.kind {
                StatementKind::Label(name) => self.place_label(*name)?,
                StatementKind::Registers(registers) => self.scopes.declare_registers(registers),
                StatementKind::Variable(variable) => self.variable(variable)?,
                StatementKind::Block(inner) => self.block(inner)?,
                StatementKind::Location(Location { file, line, column, .. }) => {
                    self.location = Some(Source { file: *file, line: *line, column: *column });
                }
                StatementKind::Instruction(instruction) => self.instruction(instruction)?,
                StatementKind::Pragma(_)
                | StatementKind::BranchTargets(_)
                | StatementKind::CallTargets(_)
                | StatementKind::CallPrototype { .. } => {}
            }
        }
        self.scopes.leave();
        Ok(())
    }

    fn place_label(&mut self, name: Symbol) -> Result<(), ProgramError> {
        let here = self.here();
        if let Some(label) = self.scopes.label(name)
            && let Some(place) = self.label_places.get_mut(label.id as usize)
            && place.replace(here).is_some()
        {
            return Err(ProgramError::Twice { line: self.line, name: self.layout.names.text(name).into() });
        }
        if let Some(note) = Note::from_label(self.layout.names.text(name)) {
            let registers = note.values.iter().map(|(_, registers)| self.note_registers(registers)).collect();
            self.guard = None;
            self.emit(Kind::Note(Arc::new(TraceNote { note, registers })));
        }
        Ok(())
    }

    /// The registers that a note names, or none if one is unknown.
    fn note_registers(&mut self, names: &[String]) -> Vec<u32> {
        let registers = names.iter().map(|name| {
            let name = self.layout.names.get(name)?;
            match self.value(name) {
                Ok(Value::Register(register)) if register.lanes == 1 && register.bits <= 64 => {
                    Some(register.first)
                }
                _ => None,
            }
        });
        registers.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    fn variable(&mut self, variable: &Variable) -> Result<(), ProgramError> {
        if is_static(variable) {
            let place = self.statics.next().copied().unwrap_or(Place::Elsewhere);
            self.scopes.declare(variable.name, place);
            return Ok(());
        }
        if variable.space == Declaration::Reg {
            self.scopes.declare_parameter(variable);
            return Ok(());
        }
        let align = alignment(variable, self.layout.names)?;
        let offset = variable.bytes().and_then(|bytes| Some((self.frame.reserve(bytes, align)?, bytes)));
        let Some((offset, bytes)) = offset else { return Err(frame_error(variable, self.layout.names)) };
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.scopes.declare(variable.name, Place::Frame { offset, bytes });
        self.locals.push(FrameVariable { name: self.layout.names.text(variable.name).into(), offset, bytes });
        Ok(())
    }

    fn instruction(&mut self, instruction: &'a Instruction) -> Result<(), ProgramError> {
        let start = self.code.len();
        let decoded = self.guarded(instruction).and_then(|guard| {
            self.guard = guard;
            self.kind(instruction)
        });
        match decoded {
            Ok(kind) => self.emit(kind),
            Err(Fault::Undeclared(name)) => {
                return Err(ProgramError::Undeclared {
                    line: self.line,
                    name: self.layout.names.text(name).into(),
                });
            }
            Err(Fault::Undefined(name)) => {
                return Err(ProgramError::Undefined {
                    line: self.line,
                    name: self.layout.names.text(name).into(),
                });
            }
            Err(fault) => {
                self.truncate(start);
                self.behind.clear();
                let name = mnemonic(instruction);
                self.emit(Kind::Unsupported(match fault {
                    Fault::Because(reason) => format!("`{name}` {reason}"),
                    Fault::Modifiers => format!("`{name}` has modifiers that are not supported"),
                    _ => format!("`{name}` does not take these operands"),
                }));
            }
        }
        for kind in std::mem::take(&mut self.behind) {
            self.emit(kind);
        }
        Ok(())
    }

    fn guarded(&mut self, instruction: &Instruction) -> Result<Option<PredSrc>, Fault> {
        self.guard = None;
        let Some(guard) = instruction.guard else { return Ok(None) };
        Ok(Some(PredSrc::Reg { index: self.pred(guard.register)?, negated: guard.negated }))
    }

    /// Appends an op with the guard and the place of the current instruction.
    pub(super) fn emit(&mut self, kind: Kind) {
        self.code.push(Op { guard: self.guard, kind });
        self.lines.push(self.line);
        self.sources.push(self.location);
    }

    /// Appends an op behind that of the current instruction.
    pub(super) fn emit_behind(&mut self, kind: Kind) {
        self.behind.push(kind);
    }

    /// Room in the frame for a value that a call passes.
    pub(super) fn temporary(&mut self, bytes: u32) -> Option<u32> {
        let offset = self.frame.reserve(u64::from(bytes), 16)?;
        self.locals.push(FrameVariable { name: "(call)".into(), offset, bytes });
        Some(offset)
    }

    fn truncate(&mut self, len: usize) {
        self.code.truncate(len);
        self.lines.truncate(len);
        self.sources.truncate(len);
    }

    /// The number of the op that comes next.
    fn here(&self) -> Pc {
        Pc::try_from(self.code.len()).unwrap_or(Pc::MAX)
    }

    /// The way out at the end, and places for labels.
    fn finish(&mut self) {
        let ends = |op: &Op| {
            !is_guarded(op) && matches!(op.kind, Kind::Ret | Kind::Exit | Kind::Bra { .. } | Kind::Brx { .. })
        };
        let end = self.here();
        let labelled = self.label_places.contains(&Some(end));
        if labelled || !self.code.last().is_some_and(ends) {
            self.guard = None;
            self.emit(if self.entry { Kind::Exit } else { Kind::Ret });
        }
        let place = |label: &mut Pc| {
            *label = self.label_places.get(*label as usize).copied().flatten().unwrap_or(end);
        };
        for op in &mut self.code {
            match &mut op.kind {
                Kind::Bra { target, .. } => place(target),
                Kind::Brx { targets, .. } => targets.iter_mut().for_each(place),
                _ => {}
            }
        }
    }
}

/// Opcode and modifiers as written.
pub(super) fn mnemonic(instruction: &Instruction) -> String {
    let mut name = instruction.opcode.text().to_owned();
    for modifier in &instruction.modifiers {
        name.push('.');
        match modifier {
            Modifier::Shape(shape) => name.push_str(&shape.to_string()),
            other => name.push_str(other.text().unwrap_or_default()),
        }
    }
    name
}

fn limits(directives: &[Directive]) -> Limits {
    let mut limits = Limits::default();
    for directive in directives {
        match directive {
            Directive::RequiredThreads(extents) => limits.required_threads = Some(*extents),
            Directive::MaxThreads(extents) => limits.max_threads = Some(*extents),
            Directive::RequiredCluster(extents) => limits.required_cluster = Some(*extents),
            Directive::ExplicitCluster => limits.explicit_cluster = true,
            Directive::MaxClusterRank(rank) => limits.max_cluster_rank = Some(*rank),
            Directive::MaxRegisters(count) => limits.max_registers = Some(*count),
            Directive::MinBlocks(count) => limits.min_blocks = Some(*count),
            Directive::MaxBlocks(_)
            | Directive::BlocksAreClusters
            | Directive::NoReturn
            | Directive::AbiPreserve(_)
            | Directive::AbiPreserveControl(_)
            | Directive::Pragma(_) => {}
        }
    }
    limits
}
