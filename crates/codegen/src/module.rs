//! From statements to a module: parameters, shared memory, launch bounds, version and target.

use std::collections::HashSet;

use tilewright_hardware::{Arch, Element};
use tilewright_ir::{Align, Bytes, Func, Op, Opcode as Ir, Space, Type, Value};
use tilewright_ptx::{
    self as ptx, Directive, Fault, Function, Item, Linkage, Modifier as M, Module, Opcode, Operand, Pointer,
    Registers, Statement, StatementKind, Symbol, Target, Variable, Version,
};

use crate::emit::Emitter;
use crate::error::CodegenError;
use crate::registers::{Width, Word, Words, exact, shape};
use crate::{Compiled, Options, Origin, ParamInfo, SharedMemory};

/// Up to this size shared memory is declared with the kernel; beyond it the launch must ask for it.
const STATIC_SHARED: u32 = 48 * 1024;
/// The alignment of shared memory of unknown size: what swizzled tiles need.
const DYNAMIC_ALIGN: u32 = 1024;
/// The newest version of PTX, for judging a module before its version is known.
const NEWEST: Version = Version::new(9, 1);
/// Bytes of a tensor map, and their alignment.
const MAP: (u32, u32) = (128, 64);

pub(crate) fn compile(func: &Func, options: &Options) -> Result<Compiled, CodegenError> {
    let refuse = |problem: String| CodegenError::Function { function: func.name.clone(), problem };
    if !func.results.is_empty() {
        return Err(refuse(
            "returns values, so it is no kernel; write results to memory, or inline it".to_owned(),
        ));
    }
    if !is_identifier(&func.name) {
        return Err(refuse(
            "has a name that PTX does not take; use letters, digits and `_`, a letter first".to_owned(),
        ));
    }
    let mut emitter = Emitter::new(func, options.arch, options.line_info);
    let entry = emitter.names.intern(&func.name);
    let mut taken: HashSet<String> = HashSet::from([func.name.clone()]);
    let (signature, params) = parameters(&mut emitter, &mut taken)?;
    load_parameters(&mut emitter, &params)?;
    let (shared, shared_variable) = shared_memory(&mut emitter, &mut taken)?;
    emitter.region(func.body())?;
    emitter.push(Opcode::Ret, &[], []);

    let variables: Vec<Variable> = params;
    let mut function = Function::entry(entry, variables);
    function.directives = directives(func);
    let mut body = declarations(&mut emitter);
    let declared = body.len();
    body.append(&mut emitter.body);
    function.body = Some(body);

    let mut items = Vec::new();
    if options.line_info {
        items.extend(func.locations.files().iter().zip(1..).map(|(path, index)| Item::File {
            index,
            path: path.replace('\\', "/").replace('"', "'"),
            stamp: None,
        }));
    }
    items.extend(shared_variable.map(Item::Variable));
    items.push(Item::Function(function));
    let mut module = Module {
        version: NEWEST,
        target: target(options.arch),
        options: Vec::new(),
        address_size: 64,
        names: std::mem::take(&mut emitter.names),
        items,
    };
    let origins = &emitter.origins;
    settle_target(&mut module, func, options, declared, origins)?;
    let printed = module.print();
    // The table knows every form that is emitted here; in release builds nobody pays for being told so.
    if cfg!(debug_assertions)
        && let Some(problem) = ptx::check(&module).into_iter().next()
    {
        return Err(CodegenError::Illegal { function: func.name.clone(), problem: problem.to_string() });
    }
    let lines = printed.lines.iter().skip(declared).zip(origins);
    let lines =
        lines.filter_map(|(&line, op)| op.map(|op| Origin { line, op, loc: func.op(op).loc })).collect();
    Ok(Compiled {
        text: printed.text,
        module,
        entry: func.name.clone(),
        shared,
        lines,
        signature,
        launch: func.launch,
        overlaps: func.waits_for_grids() && options.arch.number >= 90,
    })
}

/// The target that compiles for exactly this architecture.
fn target(arch: Arch) -> Target {
    let sm = u16::try_from(arch.number).unwrap_or(u16::MAX);
    if arch.specific { Target::arch(sm) } else { Target::plain(sm) }
}

/// Copies to several blocks at once are legal for a plain target, but the assembler advises against it: only the chip's own target is
/// sure to have them at full speed.
fn multicasts(module: &Module) -> bool {
    module.statements().any(|statement| match &statement.kind {
        StatementKind::Instruction(instruction) => instruction.has(M::MulticastCluster),
        _ => false,
    })
}

/// Lowers version and target to what the module needs; an error if that is more than was asked for.
fn settle_target(
    module: &mut Module,
    func: &Func,
    options: &Options,
    declared: usize,
    origins: &[Option<Op>],
) -> Result<(), CodegenError> {
    let own = module.target;
    let need = ptx::requirements(module);
    (module.version, module.target) = (need.version, need.target);
    if own.includes(need.target) && need.version < NEWEST {
        if options.exact_target || multicasts(module) {
            module.target = own;
            module.version = need.version.max(own.since());
        }
        return Ok(());
    }
    (module.version, module.target) = (NEWEST, own);
    module.number_lines();
    let problem = ptx::check(module).into_iter().find_map(|problem| match problem.fault {
        Fault::TooLow { needs, .. } => Some((problem.line, problem.text, needs)),
        _ => None,
    });
    let Some((line, instruction, needs)) = problem else {
        (module.version, module.target) = (need.version, own);
        return Ok(());
    };
    let at = module.statements().position(|statement| statement.line.0 == line);
    let op = at.and_then(|at| at.checked_sub(declared)).and_then(|at| origins.get(at).copied().flatten());
    let location = op.and_then(|op| func.locations.get(func.op(op).loc)).map(|at| at.to_string());
    let needs: Vec<String> = needs.iter().map(|need| need.target.to_string()).collect();
    Err(CodegenError::Arch { instruction, needs: needs.join(" or "), arch: options.arch, location })
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && name.len() > usize::from(name.starts_with(['_', '$']))
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$')
}

/// A name of its own, as close to the wanted one as possible.
fn unique(taken: &mut HashSet<String>, wanted: &str, fallback: &str) -> String {
    let mut name = if is_identifier(wanted) { wanted.to_owned() } else { fallback.to_owned() };
    while !taken.insert(name.clone()) {
        name.push('_');
    }
    name
}

/// What the caller passes, and how PTX declares it.
fn parameters(
    emitter: &mut Emitter<'_>,
    taken: &mut HashSet<String>,
) -> Result<(Vec<ParamInfo>, Vec<Variable>), CodegenError> {
    let func = emitter.func;
    let mut offset = 0_u32;
    let mut signature = Vec::new();
    let mut variables = Vec::new();
    for (i, (param, &value)) in func.params.iter().zip(&func.region(func.body()).args).enumerate() {
        let ty = func.ty(value);
        let (bytes, align) = match ty {
            Type::TensorMap => MAP,
            Type::Accumulator(..) | Type::Vector(Element::Bool, _) => {
                let problem = format!("takes `{}` as {ty}, which cannot be passed to a kernel", param.name);
                return Err(CodegenError::Function { function: func.name.clone(), problem });
            }
            _ => (ty.bytes(), ty.bytes().next_power_of_two().min(16)),
        };
        offset = offset.next_multiple_of(align);
        signature.push(ParamInfo { name: param.name.clone(), ty, offset, bytes, align });
        offset += bytes;
        let name = unique(taken, &param.name, &format!("param{i}"));
        let name = emitter.names.intern(&name);
        variables.push(match ty {
            Type::Pointer(space) => {
                let space = match space {
                    Space::Global => Some(ptx::Space::Global),
                    Space::Shared | Space::Cluster => Some(ptx::Space::Shared),
                    Space::Local => Some(ptx::Space::Local),
                    Space::Constant => Some(ptx::Space::Const),
                    Space::Generic => None,
                };
                let align = if param.align > 0 { param.align } else { 1 };
                let scalar = if bytes == 4 { ptx::Type::U32 } else { ptx::Type::U64 };
                let mut variable = Variable::new(ptx::Space::Param, scalar, name);
                variable.pointer = Some(Pointer { space, align: Some(align) });
                variable
            }
            Type::Scalar(Element::Bool) => Variable::new(ptx::Space::Param, ptx::Type::U8, name),
            Type::Scalar(element) => {
                let scalar = match element {
                    _ if element.bits() <= 8 && !element.is_int() => ptx::Type::B8,
                    Element::F16 | Element::BF16 => ptx::Type::B16,
                    _ => exact(element),
                };
                Variable::new(ptx::Space::Param, scalar, name)
            }
            _ => Variable::array(ptx::Space::Param, align, ptx::Type::B8, name, Some(u64::from(bytes))),
        });
    }
    Ok((signature, variables))
}

/// Loads the parameters that are used.
fn load_parameters(emitter: &mut Emitter<'_>, params: &[Variable]) -> Result<(), CodegenError> {
    let func = emitter.func;
    for (&value, variable) in func.region(func.body()).args.iter().zip(params) {
        if emitter.analysis.is_used(value) {
            load_parameter(emitter, value, variable.name);
        }
    }
    Ok(())
}

fn load_parameter(emitter: &mut Emitter<'_>, value: Value, name: Symbol) {
    let ty = emitter.func.ty(value);
    if ty == Type::TensorMap {
        let generic = emitter.define_one(value);
        emitter.push(Opcode::Mov, &[M::B64], [generic.into(), Operand::Symbol(name)]);
        emitter.push(Opcode::Cvta, &[M::Param, M::U64], [generic.into(), generic.into()]);
        return;
    }
    let (width, _) = shape(ty);
    if width == Width::Pred {
        let byte = emitter.new_reg(Width::B16);
        emitter.push(Opcode::Ld, &[M::Param, M::U8], [byte.into(), Operand::address(name)]);
        let predicate = emitter.as_predicate(Word::Reg(byte));
        emitter.bind(value, Words::from_elem(predicate, 1));
        return;
    }
    let memory = if ty.bits() <= 8 { M::B8 } else { width.modifier() };
    let bytes: i64 = match width {
        Width::B64 => 8,
        Width::B32 => 4,
        _ => 2,
    };
    for (register, i) in emitter.define(value).into_iter().zip(0_i64..) {
        emitter.push(
            Opcode::Ld,
            &[M::Param, memory],
            [register.into(), Operand::address_at(name, i * bytes)],
        );
    }
}

/// Lays all shared variables out in one block, the most aligned first.
fn shared_memory(
    emitter: &mut Emitter<'_>,
    taken: &mut HashSet<String>,
) -> Result<(SharedMemory, Option<Variable>), CodegenError> {
    let func = emitter.func;
    let mut variables: Vec<(Op, u32, u32)> = Vec::new();
    for op in func.walk() {
        let data = func.op(op);
        if data.code == Ir::Shared {
            let (Bytes(bytes), Align(align)) =
                (data.get().unwrap_or(Bytes(0)), data.get().unwrap_or(Align(1)));
            if !align.is_power_of_two() {
                emitter.enter(op);
                return Err(emitter.unsupported(format!("has align({align}), expected a power of two")));
            }
            variables.push((op, bytes, align));
        }
    }
    let Some(align) = variables.iter().map(|(_, _, align)| *align).max() else {
        return Ok((SharedMemory::default(), None));
    };
    // A stable sort: variables of the same alignment stay in the order of the program.
    variables.sort_by_key(|(_, _, align)| std::cmp::Reverse(*align));
    let mut end = 0_u32;
    for (op, bytes, align) in variables {
        let start = u64::from(end).next_multiple_of(u64::from(align));
        let stop = u32::try_from(start + u64::from(bytes)).ok();
        let limit = emitter.arch.limits().shared_per_block;
        let Some(stop) = stop.filter(|&stop| stop <= limit) else {
            emitter.enter(op);
            let arch = emitter.arch;
            return Err(emitter.unsupported(format!(
                "brings the block to more than the {limit} bytes of {arch}; use fewer stages or smaller tiles"
            )));
        };
        emitter.shared.insert(op, stop - bytes);
        end = stop;
    }
    let name = unique(taken, "smem", "smem");
    let name = emitter.names.intern(&name);
    let base = emitter.new_reg(Width::B32);
    emitter.push(Opcode::Mov, &[M::U32], [base.into(), Operand::Symbol(name)]);
    emitter.shared_base = Some(base);
    Ok(if end <= STATIC_SHARED {
        let variable = Variable::array(ptx::Space::Shared, align, ptx::Type::B8, name, Some(u64::from(end)));
        (SharedMemory { fixed: end, dynamic: 0, align }, Some(variable))
    } else {
        let align = align.max(DYNAMIC_ALIGN);
        let variable = Variable::array(ptx::Space::Shared, align, ptx::Type::B8, name, None);
        (SharedMemory { fixed: 0, dynamic: end, align }, Some(variable.with_linkage(Linkage::Extern)))
    })
}

fn directives(func: &Func) -> Vec<Directive> {
    let launch = &func.launch;
    let mut out = Vec::new();
    out.extend(launch.threads.map(Directive::RequiredThreads));
    // The assembler ignores register counts of roles unless it knows how many registers the kernel starts with.
    let sets_registers = func
        .region(func.body())
        .ops
        .iter()
        .any(|&op| func.op(op).get::<tilewright_ir::Registers>().is_some());
    let min_blocks = launch.min_blocks.or((sets_registers && launch.max_registers.is_none()).then_some(1));
    out.extend(min_blocks.map(Directive::MinBlocks));
    out.extend(launch.max_registers.map(Directive::MaxRegisters));
    if let Some(cluster) = launch.cluster {
        out.extend([Directive::ExplicitCluster, Directive::RequiredCluster(cluster)]);
    }
    out
}

fn declarations(emitter: &mut Emitter<'_>) -> Vec<Statement> {
    let mut out = Vec::new();
    for width in Width::ALL {
        let count = emitter.counts[width as usize];
        if count > 0 {
            let prefix = emitter.names.intern(width.prefix());
            out.push(Registers::counted(width.bits_type(), prefix, count).into());
        }
    }
    out.extend(emitter.locals.drain(..).map(Statement::from));
    out
}
