//! Where the variables in shared memory lie.
//!
//! A kernel's variables follow each other in the order of declaration, with a gap behind each so that an overrun hits nothing; dynamic
//! shared memory comes last. Two kernels may place the same variable differently, unless both reach a function that uses shared
//! memory: that function's code has one address for it, so such kernels form a group with one placement. (Placing all variables of a
//! module one behind the other would be simpler, but matrix descriptors reach 256 KiB only.)

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use tilewright_ptx::{
    Function, FunctionKind, Instruction, Names, Opcode, Operand, Statement, StatementKind, Symbol,
};

use super::error::ProgramError;
use super::{DynamicShared, SharedVariable, window};

/// Bytes behind a variable that belong to none.
const GAP: u64 = 128;
/// Offsets have 24 bits; the rank of the block is above them.
const LIMIT: u64 = 1 << 24;

/// A declaration of shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Declared {
    pub(super) name: Symbol,
    /// The function in whose body it stands.
    pub(super) owner: Option<usize>,
    /// `None` for dynamic shared memory.
    pub(super) bytes: Option<u64>,
    pub(super) align: u32,
    pub(super) line: u32,
}

/// The shared memory of a function and all that it reaches.
#[derive(Clone, Debug, Default)]
pub(super) struct Used {
    pub(super) variables: Vec<SharedVariable>,
    pub(super) dynamic: Option<DynamicShared>,
    /// Sum of the sizes, without the gaps.
    pub(super) bytes: u32,
    /// Where the variables end, or dynamic shared memory begins.
    pub(super) end: u32,
}

/// The shared memory of all functions.
#[derive(Default)]
pub(super) struct SharedLayout {
    /// The group of each function.
    group: Vec<usize>,
    /// The offset of each variable of the group.
    offsets: Vec<BTreeMap<usize, u32>>,
    /// What each function uses.
    pub(super) used: Vec<Used>,
}

impl SharedLayout {
    pub(super) fn new(
        functions: &[&Function],
        index: &HashMap<Symbol, u32>,
        declared: &[Declared],
        names: &Names,
    ) -> Result<SharedLayout, ProgramError> {
        let mentions: Vec<Mentions> = functions
            .iter()
            .map(|function| Mentions::of(function.body.as_deref().unwrap_or_default()))
            .collect();
        let direct: Vec<BTreeSet<usize>> = mentions
            .iter()
            .enumerate()
            .map(|(function, mentions)| {
                let visible = declared.iter().enumerate().filter(|(_, variable)| {
                    variable.owner.is_none_or(|owner| owner == function)
                        && mentions.symbols.contains(&variable.name)
                });
                visible.map(|(id, _)| id).collect()
            })
            .collect();
        let reach: Vec<BTreeSet<usize>> =
            (0..functions.len()).map(|from| reach(from, &mentions, index, functions)).collect();

        let mut group: Vec<usize> = (0..functions.len()).collect();
        for (from, reached) in reach.iter().enumerate() {
            for to in reached.iter().filter(|to| !direct[**to].is_empty()) {
                let (a, b) = (group[from], group[*to]);
                group.iter_mut().filter(|other| **other == b).for_each(|other| *other = a);
            }
        }

        let uses = |function: usize| reach[function].iter().flat_map(|to| direct[*to].iter().copied());
        let mut members = vec![BTreeSet::new(); functions.len()];
        for (function, number) in group.iter().enumerate() {
            members[*number].extend(uses(function));
        }
        let groups = members.iter().map(|ids| placed(ids, declared, names)).collect::<Result<Vec<_>, _>>()?;
        let (offsets, ends): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
        let mut layout = SharedLayout { offsets, used: Vec::new(), group };
        for function in 0..functions.len() {
            let ids: BTreeSet<usize> = uses(function).collect();
            let mut used = Used { end: ends[layout.group[function]], ..Used::default() };
            for id in ids {
                let (variable, offset) = (&declared[id], layout.offset(function, id));
                let name = names.text(variable.name).to_owned();
                match variable.bytes {
                    Some(bytes) => {
                        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                        used.bytes = used.bytes.next_multiple_of(variable.align).saturating_add(bytes);
                        used.variables.push(SharedVariable { name, offset, bytes, align: variable.align });
                    }
                    None => {
                        let dynamic = used.dynamic.get_or_insert(DynamicShared { name, offset, align: 16 });
                        dynamic.align = dynamic.align.max(variable.align);
                    }
                }
            }
            layout.used.push(used);
        }
        Ok(layout)
    }

    /// The offset of a variable as a function sees it.
    pub(super) fn offset(&self, function: usize, id: usize) -> u32 {
        let offsets = self.group.get(function).and_then(|group| self.offsets.get(*group));
        offsets.and_then(|offsets| offsets.get(&id)).copied().unwrap_or(window::RESERVED_SHARED)
    }
}

/// Offsets of some variables, and the end of all but the dynamic ones.
fn placed(
    ids: &BTreeSet<usize>,
    declared: &[Declared],
    names: &Names,
) -> Result<(BTreeMap<usize, u32>, u32), ProgramError> {
    let mut offsets = BTreeMap::new();
    let mut end = u64::from(window::RESERVED_SHARED);
    let mut next = end;
    let mut dynamic_align = 16;
    for id in ids {
        let variable = &declared[*id];
        let Some(bytes) = variable.bytes else {
            dynamic_align = dynamic_align.max(variable.align);
            continue;
        };
        let start = next.next_multiple_of(u64::from(variable.align));
        let stop = start.checked_add(bytes).filter(|stop| *stop <= LIMIT - (1 << 17));
        let (Some(stop), Ok(offset)) = (stop, u32::try_from(start)) else {
            let name = names.text(variable.name).into();
            return Err(ProgramError::Size { line: variable.line, name, limit: LIMIT - (1 << 17) });
        };
        offsets.insert(*id, offset);
        (end, next) = (stop, stop + GAP);
    }
    let dynamic = next.next_multiple_of(u64::from(dynamic_align));
    let dynamic_offset = u32::try_from(dynamic).unwrap_or(u32::MAX);
    let mut has_dynamic = false;
    for id in ids.iter().filter(|id| declared[**id].bytes.is_none()) {
        offsets.insert(*id, dynamic_offset);
        has_dynamic = true;
    }
    Ok((offsets, if has_dynamic { dynamic_offset } else { u32::try_from(end).unwrap_or(u32::MAX) }))
}

/// The functions that a function may run, itself included. Kernels are only launched.
fn reach(
    from: usize,
    mentions: &[Mentions],
    index: &HashMap<Symbol, u32>,
    functions: &[&Function],
) -> BTreeSet<usize> {
    let mut reached = BTreeSet::from([from]);
    let mut work = vec![from];
    while let Some(function) = work.pop() {
        let mentioned = &mentions[function];
        let named =
            mentioned.symbols.iter().filter_map(|symbol| index.get(symbol)).map(|index| *index as usize);
        // A call through a register may reach any function.
        let any = if mentioned.indirect { 0..functions.len() } else { 0..0 };
        for to in named.chain(any).filter(|to| functions[*to].kind == FunctionKind::Func) {
            if reached.insert(to) {
                work.push(to);
            }
        }
    }
    reached
}

/// The symbols in the operands of a function.
#[derive(Default)]
struct Mentions {
    symbols: HashSet<Symbol>,
    indirect: bool,
}

impl Mentions {
    fn of(body: &[Statement]) -> Mentions {
        let mut mentions = Mentions::default();
        mentions.statements(body);
        mentions
    }

    fn statements(&mut self, body: &[Statement]) {
        for statement in body {
            match &statement.kind {
                StatementKind::Block(inner) => self.statements(inner),
                StatementKind::CallTargets(functions) => self.symbols.extend(functions),
                StatementKind::Instruction(instruction) => self.instruction(instruction),
                _ => {}
            }
        }
    }

    fn instruction(&mut self, instruction: &Instruction) {
        instruction.operands.iter().for_each(|operand| self.operand(operand));
        // A direct call has no fourth operand: prototypes and lists of targets stand there.
        self.indirect |= instruction.opcode == Opcode::Call
            && matches!(instruction.operands.last(), Some(Operand::Symbol(_)))
            && instruction.operands.len() > 1;
    }

    fn operand(&mut self, operand: &Operand) {
        match operand {
            Operand::Symbol(symbol) | Operand::Offset(symbol, _) => {
                self.symbols.insert(*symbol);
            }
            Operand::Address(address) => self.symbols.extend(address.base),
            Operand::Tuple(parts) | Operand::List(parts) | Operand::Group(parts) => {
                parts.iter().for_each(|part| self.operand(part));
            }
            _ => {}
        }
    }
}
