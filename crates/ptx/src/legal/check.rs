//! Modules judged by the table: what is wrong, and what version and target they need.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;

use super::form::{Need, forms_of};
use super::kind::Kind;
use super::matching::{Register, Scope, explain, match_form};
use crate::ast::{
    Attribute, Directive, Function, FunctionKind, Instruction, Item, Line, Module, Names, Operand, Registers,
    Space, Statement, StatementKind, Symbol, Variable, VectorLength,
};
use crate::target::{Specificity, Target, Version};
use crate::words::{Opcode, SpecialRegister, Type};

/// Something in a module that the assembler would refuse.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The line in the text that the module was read from; 0 if there is none, see [`Module::number_lines`].
    pub line: u32,
    /// The instruction or directive.
    pub text: String,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with an instruction or directive.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// The table has no rows for the opcode.
    NotCovered(Opcode),
    /// It is an instance of no form.
    Form {
        /// The form that it comes nearest to, in the notation of the table.
        nearest: String,
        /// What does not fit there.
        reason: String,
    },
    /// The module's version or target is too low.
    TooLow {
        /// Any of these would do.
        needs: Vec<Need>,
        /// What the module has.
        version: Version,
        /// What the module has.
        target: Target,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: `{}`: ", self.line, self.text)?;
        match &self.fault {
            Fault::NotCovered(opcode) => write!(f, "the table has no rows for `{opcode}`"),
            Fault::Form { nearest, reason } => write!(f, "{reason}; the nearest form is `{nearest}`"),
            Fault::TooLow { needs, version, target } => {
                f.write_str("needs ")?;
                for (i, need) in needs.iter().enumerate() {
                    write!(f, "{}{need}", if i > 0 { ", or " } else { "" })?;
                }
                write!(f, "; the module has .version {version} and .target {target}")
            }
        }
    }
}

/// What a module needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The lowest version.
    pub version: Version,
    /// The plainest target.
    pub target: Target,
}

/// Everything in a module that the assembler would refuse, as far as the table knows.
///
/// ```
/// let module = tilewright_ptx::parse(
///     ".version 7.0\n.target sm_80\n.entry k()\n{\n.reg .b64 %rd<2>;\ncp.async.bulk.commit_group;\nadd.u32 %rd1, %rd1, 1;\n}",
/// )?;
/// let problems: Vec<String> = tilewright_ptx::check(&module).iter().map(|problem| problem.to_string()).collect();
/// assert_eq!(problems, [
///     "line 6: `cp.async.bulk.commit_group;`: needs .version 8.0 and .target sm_90; \
///      the module has .version 7.0 and .target sm_80",
///     "line 7: `add.u32 %rd1, %rd1, 1;`: operand 1: a register of type b64 does not fit type u32; \
///      the nearest form is `add.T=u16|s16|u32|s32|u64|s64 =T, T, T`",
/// ]);
/// # Ok::<(), tilewright_ptx::PtxError>(())
/// ```
pub fn check(module: &Module) -> Vec<Problem> {
    let mut problems = Vec::new();
    if module.version < module.target.since() {
        let need = Need { version: module.target.since(), target: module.target };
        let text = format!(".target {}", module.target);
        problems.push(Problem { line: 0, text, fault: too_low(vec![need], module) });
    }
    survey(module, |line, subject, verdict| {
        let fault = match verdict {
            Ok(needs) if needs.iter().any(|need| need.is_met_by(module.version, module.target)) => return,
            Ok(needs) => too_low(needs, module),
            Err(fault) => fault,
        };
        problems.push(Problem { line: line.0, text: subject.text(&module.names), fault });
    });
    problems
}

fn too_low(needs: Vec<Need>, module: &Module) -> Fault {
    Fault::TooLow { needs, version: module.version, target: module.target }
}

/// The lowest version and the plainest target that have everything the module uses.
///
/// Where no plain target will do, the module's own target stays if it does; otherwise it is the one with the lowest
/// version. What fits no form needs nothing; [`check`] reports it. Where no target has everything, the module's own
/// version and target are the answer.
pub fn requirements(module: &Module) -> Requirement {
    let mut all: HashSet<Vec<Need>> = HashSet::new();
    survey(module, |_, _, verdict| {
        all.extend(verdict.ok());
    });
    let version_on = |target: Target| {
        all.iter().try_fold(target.since().max(Need::BASE.version), |version, needs| {
            let enough =
                needs.iter().filter(|need| target.includes(need.target)).map(|need| need.version).min()?;
            Some(version.max(enough))
        })
    };
    let mut candidates =
        Target::all().filter_map(|target| Some(Requirement { version: version_on(target)?, target }));
    let own = version_on(module.target).map(|version| Requirement { version, target: module.target });
    match candidates.next() {
        Some(first) if first.target.specificity == Specificity::Plain => first,
        first => own
            .or_else(|| first.into_iter().chain(candidates).min_by_key(|candidate| candidate.version))
            .unwrap_or(Requirement { version: module.version, target: module.target }),
    }
}

impl Module {
    /// Sets the version and target to what [`requirements`] finds, so that as many drivers and chips as possible take
    /// the module.
    pub fn lower_to_minimum(&mut self) -> Requirement {
        let requirement = requirements(self);
        (self.version, self.target) = (requirement.version, requirement.target);
        requirement
    }
}

/// What a verdict is about.
enum Subject<'a> {
    Instruction(&'a Instruction),
    Other(&'static str),
}

impl Subject<'_> {
    fn text(&self, names: &Names) -> String {
        match self {
            Subject::Instruction(instruction) => instruction.display(names).to_string(),
            Subject::Other(text) => (*text).to_string(),
        }
    }
}

/// Calls `f` with everything that needs more than the base, or that fits nowhere.
fn survey(module: &Module, mut f: impl FnMut(Line, Subject<'_>, Result<Vec<Need>, Fault>)) {
    for item in &module.items {
        match item {
            Item::Variable(variable) => survey_variable(variable, &mut f),
            Item::Function(function) => survey_function(module, function, &mut f),
            Item::Alias { .. } => {
                f(Line::default(), Subject::Other(".alias"), Ok(vec![Need::plain(6, 3, 50)]));
            }
            Item::File { .. } | Item::Section { .. } | Item::Pragma(_) => {}
        }
    }
}

fn survey_variable(variable: &Variable, f: &mut impl FnMut(Line, Subject<'_>, Result<Vec<Need>, Fault>)) {
    if variable.ty == Type::B128 {
        f(variable.line, Subject::Other(".b128"), Ok(vec![Need::plain(8, 3, 70)]));
    }
    if variable.attributes.iter().any(|attribute| matches!(attribute, Attribute::Unified(..))) {
        f(variable.line, Subject::Other(".unified"), Ok(vec![Need::plain(9, 0, 90)]));
    }
}

/// Larger parameter spaces than this need more than the base.
const SMALL_PARAMETER_SPACE: u64 = 4352;

fn survey_function(
    module: &Module,
    function: &Function,
    f: &mut impl FnMut(Line, Subject<'_>, Result<Vec<Need>, Fault>),
) {
    for directive in &function.directives {
        let (text, need) = match directive {
            Directive::RequiredCluster(_) => (".reqnctapercluster", Need::plain(7, 8, 90)),
            Directive::ExplicitCluster => (".explicitcluster", Need::plain(7, 8, 90)),
            Directive::MaxClusterRank(_) => (".maxclusterrank", Need::plain(7, 8, 90)),
            Directive::BlocksAreClusters => (".blocksareclusters", Need::plain(9, 0, 90)),
            Directive::NoReturn => (".noreturn", Need::plain(6, 4, 50)),
            Directive::AbiPreserve(_) => (".abi_preserve", Need::plain(9, 0, 80)),
            Directive::AbiPreserveControl(_) => (".abi_preserve_control", Need::plain(9, 0, 80)),
            Directive::MaxThreads(_)
            | Directive::RequiredThreads(_)
            | Directive::MinBlocks(_)
            | Directive::MaxBlocks(_)
            | Directive::MaxRegisters(_)
            | Directive::Pragma(_) => continue,
        };
        f(function.line, Subject::Other(text), Ok(vec![need]));
    }
    if function.kind == FunctionKind::Entry && parameter_bytes(&function.params) > SMALL_PARAMETER_SPACE {
        let subject = Subject::Other("more than 4352 bytes of parameters");
        f(function.line, subject, Ok(vec![Need::plain(8, 1, 70)]));
    }
    let mut scope = FunctionScope::new(&module.names);
    for param in function.params.iter().chain(&function.returns) {
        scope.declare_variable(param);
        survey_variable(param, f);
    }
    survey_statements(function.body.as_deref().unwrap_or_default(), &mut scope, f);
}

/// The size of the parameter space: each parameter at a multiple of its alignment.
fn parameter_bytes(params: &[Variable]) -> u64 {
    params.iter().fold(0, |end, param| {
        let align = param.align.map_or_else(|| u64::from(param.ty.bits().div_ceil(8)), u64::from).max(1);
        end.next_multiple_of(align) + param.bytes().unwrap_or(0)
    })
}

fn survey_statements<'a>(
    statements: &'a [Statement],
    scope: &mut FunctionScope<'a>,
    f: &mut impl FnMut(Line, Subject<'_>, Result<Vec<Need>, Fault>),
) {
    for statement in statements {
        match &statement.kind {
            StatementKind::Registers(registers) => {
                scope.declare(registers);
                if registers.ty == Type::B128 {
                    f(statement.line, Subject::Other(".reg .b128"), Ok(vec![Need::plain(8, 3, 70)]));
                }
            }
            StatementKind::Variable(variable) => survey_variable(variable, f),
            StatementKind::Block(inner) => {
                scope.open();
                survey_statements(inner, scope, f);
                scope.close();
            }
            StatementKind::Location(location) if location.inlined.is_some() => {
                f(statement.line, Subject::Other(".loc with inlined_at"), Ok(vec![Need::plain(7, 2, 50)]));
            }
            StatementKind::Instruction(instruction) => {
                let subject = Subject::Instruction(instruction);
                if let Err(fault) = guard(instruction, scope) {
                    f(statement.line, Subject::Instruction(instruction), Err(fault));
                }
                f(statement.line, subject, scope.verdict(instruction));
                for need in instruction.operands.iter().filter_map(special_need) {
                    f(statement.line, Subject::Instruction(instruction), Ok(vec![need]));
                }
            }
            _ => {}
        }
    }
}

fn guard(instruction: &Instruction, scope: &FunctionScope<'_>) -> Result<(), Fault> {
    match instruction.guard.map(|guard| (guard.register, scope.register(guard.register))) {
        None | Some((_, Some((Type::Pred, 1)))) => Ok(()),
        Some((register, _)) => Err(Fault::Form {
            nearest: "@p".into(),
            reason: format!("the guard `{}` is not a predicate register", scope.names.text(register)),
        }),
    }
}

/// What an instruction needs, by all forms that it is an instance of.
pub(crate) fn judge(instruction: &Instruction, scope: &impl Scope) -> Result<Vec<Need>, Fault> {
    let forms = || forms_of(instruction.opcode);
    let mut needs: Vec<Need> =
        forms().filter_map(|form| match_form(form, instruction, scope)).flatten().collect();
    if !needs.is_empty() {
        needs.sort();
        needs.dedup();
        return Ok(needs);
    }
    let explained = forms().map(|form| (form, explain(form, instruction, scope)));
    // The first of the nearest: `max_by_key` would take the last.
    let nearest =
        explained.reduce(|best, other| if best.1.progress < other.1.progress { other } else { best });
    Err(match nearest {
        Some((form, mismatch)) => Fault::Form { nearest: form.text.clone(), reason: mismatch.reason },
        None => Fault::NotCovered(instruction.opcode),
    })
}

/// What a special register needs beyond the base.
fn special_need(operand: &Operand) -> Option<Need> {
    use SpecialRegister as S;
    let Operand::Special(register) = operand else { return None };
    Some(match register {
        S::Clusterid | S::ClusteridX | S::ClusteridY | S::ClusteridZ | S::ClusteridW => Need::plain(7, 8, 90),
        S::Nclusterid | S::NclusteridX | S::NclusteridY | S::NclusteridZ | S::NclusteridW => {
            Need::plain(7, 8, 90)
        }
        S::ClusterCtaid | S::ClusterCtaidX | S::ClusterCtaidY | S::ClusterCtaidZ | S::ClusterCtaidW => {
            Need::plain(7, 8, 90)
        }
        S::ClusterNctaid | S::ClusterNctaidX | S::ClusterNctaidY | S::ClusterNctaidZ | S::ClusterNctaidW => {
            Need::plain(7, 8, 90)
        }
        S::ClusterCtarank | S::ClusterNctarank | S::IsExplicitCluster => Need::plain(7, 8, 90),
        S::AggrSmemSize => Need::plain(8, 1, 90),
        S::ReservedSmemOffsetBegin
        | S::ReservedSmemOffsetEnd
        | S::ReservedSmemOffsetCap
        | S::ReservedSmemOffset0
        | S::ReservedSmemOffset1 => Need::plain(7, 6, 80),
        S::CurrentGraphExec => Need::plain(8, 0, 50),
        _ => return None,
    })
}

/// The registers that a statement can see.
struct FunctionScope<'a> {
    names: &'a Names,
    /// Innermost last.
    blocks: Vec<Block<'a>>,
    /// Answers for names seen since the last declaration or end of a block, by the number of the symbol.
    known: RefCell<Vec<Option<Register>>>,
    /// What instructions need of which one has been judged.
    judged: HashMap<Kind, Vec<Need>>,
}

#[derive(Default)]
struct Block<'a> {
    named: HashMap<Symbol, (Type, usize)>,
    /// `%r<8>`: the prefix, and how many.
    counted: HashMap<&'a str, (Type, usize, u32)>,
}

impl<'a> FunctionScope<'a> {
    fn new(names: &'a Names) -> FunctionScope<'a> {
        FunctionScope {
            names,
            blocks: vec![Block::default()],
            known: RefCell::new(vec![None; names.len()]),
            judged: HashMap::new(),
        }
    }

    /// What an instruction needs, or why it is none.
    fn verdict(&mut self, instruction: &Instruction) -> Result<Vec<Need>, Fault> {
        let kind = Kind::of(instruction, self);
        if let Some(needs) = self.judged.get(&kind) {
            return Ok(needs.clone());
        }
        let needs = judge(instruction, self)?;
        self.judged.insert(kind, needs.clone());
        Ok(needs)
    }

    fn forget(&mut self) {
        self.known.borrow_mut().fill(None);
    }

    fn open(&mut self) {
        self.blocks.push(Block::default());
    }

    fn close(&mut self) {
        self.blocks.pop();
        self.forget();
    }

    fn declare(&mut self, registers: &Registers) {
        self.forget();
        let length = registers.vector.map_or(1, length);
        let Some(block) = self.blocks.last_mut() else { return };
        for register in &registers.names {
            match register.count {
                Some(count) => {
                    block.counted.insert(self.names.text(register.name), (registers.ty, length, count));
                }
                None => {
                    block.named.insert(register.name, (registers.ty, length));
                }
            }
        }
    }

    fn declare_variable(&mut self, variable: &Variable) {
        if variable.space == Space::Reg
            && let Some(block) = self.blocks.last_mut()
        {
            block.named.insert(variable.name, (variable.ty, variable.vector.map_or(1, length)));
        }
    }

    fn look_up(&self, symbol: Symbol) -> Register {
        let text = self.names.text(symbol);
        let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
        self.blocks.iter().rev().find_map(|block| {
            let named = block.named.get(&symbol).copied();
            named.or_else(|| {
                (text.len() - digits..text.len()).find_map(|at| {
                    let (prefix, number) = text.split_at(at);
                    let canonical = number == "0" || !number.starts_with('0');
                    let (ty, length, count) = block.counted.get(prefix)?;
                    (canonical && number.parse::<u32>().is_ok_and(|number| number < *count))
                        .then_some((*ty, *length))
                })
            })
        })
    }
}

fn length(vector: VectorLength) -> usize {
    match vector {
        VectorLength::V2 => 2,
        VectorLength::V4 => 4,
    }
}

impl Scope for FunctionScope<'_> {
    fn register(&self, symbol: Symbol) -> Register {
        let mut known = self.known.borrow_mut();
        match known.get_mut(symbol.0 as usize) {
            Some(answer) => *answer.get_or_insert_with(|| self.look_up(symbol)),
            None => self.look_up(symbol),
        }
    }

    fn names(&self) -> &Names {
        self.names
    }
}
