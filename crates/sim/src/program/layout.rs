//! Where everything of a module lies that is not an instruction: functions, parameters, variables.
//!
//! Made before any function is decoded, since calls need the parameters of functions further down, and code the addresses of variables.

use std::collections::{BTreeMap, HashMap};

use tilewright_ptx::{
    Function, FunctionKind, Item, Linkage, Module, Names, Space, Statement, StatementKind, Symbol, Type,
    Variable,
};

use super::error::ProgramError;
use super::scope::{Entity, Place, Scopes};
use super::shared::{Declared, SharedLayout};
use super::{MemorySpace, ModuleVariable, Param, initial, window};

/// The most bytes that the parameters of a kernel, or the frame of a function, may take.
const FRAME_LIMIT: u64 = 1 << 24;
/// The most bytes that all `.global` or all `.const` variables may take.
const MEMORY_LIMIT: u64 = 1 << 32;
/// Bytes between two variables in global or constant memory, and their least alignment.
const MEMORY_GAP: u64 = 256;
/// Bytes between two variables of a frame, and their least alignment.
const FRAME_GAP: u32 = 16;

/// Parameters of a function and where they lie: packed for kernels, in the frame for other functions.
#[derive(Clone, Debug, Default)]
pub(super) struct Signature {
    pub(super) params: Vec<Param>,
    pub(super) returns: Vec<Param>,
    /// Where the parameters end.
    pub(super) bytes: u32,
}

/// Everything that functions refer to.
pub(super) struct Layout<'a> {
    pub(super) names: &'a Names,
    /// Functions with a body.
    pub(super) functions: Vec<&'a Function>,
    /// By name, aliases included.
    pub(super) index: HashMap<Symbol, u32>,
    pub(super) signatures: Vec<Signature>,
    /// What a name stands for at module scope.
    pub(super) places: HashMap<Symbol, Place>,
    /// The variables that the body of each function declares in memory that is not its own, in order.
    pub(super) bodies: Vec<Vec<Place>>,
    pub(super) variables: Vec<ModuleVariable>,
    pub(super) files: BTreeMap<u32, String>,
    pub(super) shared: SharedLayout,
}

impl<'a> Layout<'a> {
    pub(super) fn new(module: &'a Module) -> Result<Layout<'a>, ProgramError> {
        let mut layout = Layout {
            names: &module.names,
            functions: Vec::new(),
            index: HashMap::new(),
            signatures: Vec::new(),
            places: HashMap::new(),
            bodies: Vec::new(),
            variables: Vec::new(),
            files: BTreeMap::new(),
            shared: SharedLayout::default(),
        };
        layout.collect_functions(module)?;
        let mut memory = Memory::default();
        let mut shared = Vec::new();
        for item in &module.items {
            match item {
                Item::Variable(variable) => {
                    let place = layout.place(variable, None, &mut memory, &mut shared)?;
                    layout.declare(variable, place)?;
                }
                Item::Function(function) if function.body.is_some() => {
                    let owner = layout.bodies.len();
                    let mut places = Vec::new();
                    let body = function.body.as_deref().unwrap_or_default();
                    for variable in body_variables(body) {
                        places.push(layout.place(variable, Some(owner), &mut memory, &mut shared)?);
                    }
                    layout.bodies.push(places);
                }
                Item::File { index, path, .. } => {
                    layout.files.insert(*index, path.clone());
                }
                _ => {}
            }
        }
        for (variable, index) in memory.initial {
            let Some(value) = &variable.initializer else { continue };
            let places = &layout.places;
            let address_of = |symbol| match places.get(&symbol) {
                Some(Place::Memory { address, .. }) => Some(*address),
                _ => None,
            };
            let bytes = &mut layout.variables[index].init;
            initial::fill(variable, value, bytes, &address_of).map_err(|problem| {
                ProgramError::Initializer {
                    line: variable.line.0,
                    name: module.names.text(variable.name).into(),
                    problem,
                }
            })?;
        }
        layout.shared = SharedLayout::new(&layout.functions, &layout.index, &shared, layout.names)?;
        Ok(layout)
    }

    fn collect_functions(&mut self, module: &'a Module) -> Result<(), ProgramError> {
        for item in &module.items {
            let Item::Function(function) = item else { continue };
            if function.body.is_none() {
                continue;
            }
            let index = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
            if self.index.insert(function.name, index).is_some() {
                return Err(ProgramError::Twice {
                    line: function.line.0,
                    name: self.names.text(function.name).into(),
                });
            }
            self.functions.push(function);
            self.signatures.push(signature(function, self.names)?);
        }
        for item in &module.items {
            if let Item::Alias { alias, aliasee } = item
                && let Some(&index) = self.index.get(aliasee)
            {
                self.index.entry(*alias).or_insert(index);
            }
        }
        for (name, index) in &self.index {
            let place = Place::Memory { address: window::function_address(*index), constant: false };
            self.places.insert(*name, place);
        }
        Ok(())
    }

    fn declare(&mut self, variable: &Variable, place: Place) -> Result<(), ProgramError> {
        match (self.places.get(&variable.name), place) {
            (None | Some(Place::Elsewhere), _) => {
                self.places.insert(variable.name, place);
            }
            (Some(_), Place::Elsewhere) => {}
            // Declarations of the same dynamic shared memory; `.weak` and `.common` may come again.
            (Some(Place::Shared(_)), Place::Shared(_)) => {}
            _ if matches!(variable.linkage, Some(Linkage::Weak | Linkage::Common | Linkage::Extern)) => {}
            _ => {
                let name = self.names.text(variable.name).into();
                return Err(ProgramError::Twice { line: variable.line.0, name });
            }
        }
        Ok(())
    }

    /// Places a variable that is not private to a thread.
    fn place(
        &mut self,
        variable: &'a Variable,
        owner: Option<usize>,
        memory: &mut Memory<'a>,
        shared: &mut Vec<Declared>,
    ) -> Result<Place, ProgramError> {
        let align = alignment(variable, self.names)?;
        match variable.space {
            Space::Shared => {
                let open = variable.linkage == Some(Linkage::Extern) || variable.dims.contains(&None);
                let bytes = if open { None } else { variable.bytes() };
                if !open && bytes.is_none() {
                    return Err(size_error(variable, self.names, FRAME_LIMIT));
                }
                shared.push(Declared { name: variable.name, owner, bytes, align, line: variable.line.0 });
                Ok(Place::Shared(shared.len() - 1))
            }
            Space::Global | Space::Const if variable.linkage == Some(Linkage::Extern) => Ok(Place::Elsewhere),
            Space::Global | Space::Const => {
                let constant = variable.space == Space::Const;
                let mut sized = variable.clone();
                if let (Some(open @ None), Some(value)) = (sized.dims.first_mut(), &variable.initializer) {
                    *open = Some(initial::open_extent(value));
                }
                let bytes = sized.bytes().and_then(|bytes| memory.reserve(constant, bytes, align));
                let Some((address, bytes)) = bytes else {
                    return Err(size_error(variable, self.names, MEMORY_LIMIT));
                };
                memory.initial.push((variable, self.variables.len()));
                self.variables.push(ModuleVariable {
                    name: self.names.text(variable.name).into(),
                    space: if constant { MemorySpace::Const } else { MemorySpace::Global },
                    address,
                    bytes: bytes as u64,
                    align,
                    init: vec![0; bytes],
                });
                Ok(Place::Memory { address, constant })
            }
            _ => Ok(Place::Elsewhere),
        }
    }
}

/// Whether the body of a function only names a variable that lies in the memory of the module.
pub(super) fn is_static(variable: &Variable) -> bool {
    matches!(variable.space, Space::Shared | Space::Global | Space::Const | Space::Tex)
}

/// The variables in a body that lie in the memory of the module, in the order in which decoding meets them.
fn body_variables(body: &[Statement]) -> Vec<&Variable> {
    let mut found = Vec::new();
    for statement in body {
        match &statement.kind {
            StatementKind::Variable(variable) if is_static(variable) => found.push(variable),
            StatementKind::Block(inner) => found.extend(body_variables(inner)),
            _ => {}
        }
    }
    found
}

/// How far global and constant memory are filled.
#[derive(Default)]
struct Memory<'a> {
    ends: [u64; 2],
    /// Variables and their indices in the list, to be filled when all addresses are known.
    initial: Vec<(&'a Variable, usize)>,
}

impl Memory<'_> {
    fn reserve(&mut self, constant: bool, bytes: u64, align: u32) -> Option<(u64, usize)> {
        let end = &mut self.ends[usize::from(constant)];
        let start = end.checked_next_multiple_of(u64::from(align).max(MEMORY_GAP))?;
        *end = start.checked_add(bytes)?.checked_add(MEMORY_GAP)?;
        if *end > MEMORY_LIMIT {
            return None;
        }
        let window = if constant { window::CONST } else { window::GLOBAL };
        Some((window + start, usize::try_from(bytes).ok()?))
    }
}

/// The frame of a function while it is laid out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    end: u32,
}

impl Frame {
    /// A frame whose first bytes are taken.
    pub(super) fn behind(bytes: u32) -> Frame {
        Frame { end: bytes }
    }

    /// Takes room for a variable; `None` if the frame becomes absurdly large.
    pub(super) fn reserve(&mut self, bytes: u64, align: u32) -> Option<u32> {
        let start = u64::from(self.end).next_multiple_of(u64::from(align.max(FRAME_GAP)));
        let end = start.checked_add(bytes)?.checked_next_multiple_of(u64::from(FRAME_GAP))?;
        let end = end.checked_add(u64::from(FRAME_GAP)).filter(|end| *end <= FRAME_LIMIT)?;
        self.end = u32::try_from(end).ok()?;
        u32::try_from(start).ok()
    }

    /// The size so far.
    pub(super) fn bytes(self) -> u32 {
        self.end
    }
}

/// The error for a variable of the frame that has no size.
pub(super) fn frame_error(variable: &Variable, names: &Names) -> ProgramError {
    size_error(variable, names, FRAME_LIMIT)
}

fn size_error(variable: &Variable, names: &Names, limit: u64) -> ProgramError {
    ProgramError::Size { line: variable.line.0, name: names.text(variable.name).into(), limit }
}

/// The alignment of a variable: as written, else that of its type.
pub(super) fn alignment(variable: &Variable, names: &Names) -> Result<u32, ProgramError> {
    let natural = Variable { dims: Vec::new(), ..Variable::new(variable.space, variable.ty, variable.name) };
    let natural = Variable { vector: variable.vector, ..natural }.bytes().unwrap_or(1);
    let natural = u32::try_from(natural).unwrap_or(16).clamp(1, 16).next_power_of_two();
    match variable.align {
        None => Ok(natural),
        Some(align) if align.is_power_of_two() && align <= 1 << 16 => Ok(align),
        Some(align) => Err(ProgramError::Alignment {
            line: variable.line.0,
            name: names.text(variable.name).into(),
            align,
        }),
    }
}

/// Places the parameters of a function.
fn signature(function: &Function, names: &Names) -> Result<Signature, ProgramError> {
    let entry = function.kind == FunctionKind::Entry;
    let mut registers = Scopes::new(names);
    let mut frame = Frame::behind(0);
    let mut packed = 0u64;
    let mut place = |variable: &Variable| {
        let align = alignment(variable, names)?;
        let fail = || frame_error(variable, names);
        let mut param = Param {
            name: names.text(variable.name).into(),
            ty: variable.ty,
            offset: 0,
            bytes: 0,
            align,
            register: None,
        };
        if variable.space == Space::Reg {
            if let Some(Entity::Register(register)) = registers.declare_parameter(variable) {
                param.register = Some(register.first);
            }
            return Ok(param);
        }
        let bytes = variable.bytes().filter(|bytes| *bytes <= FRAME_LIMIT).ok_or_else(fail)?;
        param.bytes = u32::try_from(bytes).map_err(|_| fail())?;
        param.offset = if entry {
            packed = packed.next_multiple_of(u64::from(align));
            let offset = packed;
            packed += bytes;
            u32::try_from(offset).ok().filter(|_| packed <= FRAME_LIMIT).ok_or_else(fail)?
        } else {
            frame.reserve(bytes, align).ok_or_else(fail)?
        };
        Ok(param)
    };
    let returns = function.returns.iter().map(&mut place).collect::<Result<Vec<_>, _>>()?;
    let params = function.params.iter().map(&mut place).collect::<Result<Vec<_>, _>>()?;
    let bytes = if entry { u32::try_from(packed).unwrap_or(u32::MAX) } else { frame.bytes() };
    Ok(Signature { params, returns, bytes })
}

/// Whether a parameter is a predicate, which calls cannot pass.
pub(super) fn is_predicate(param: &Param) -> bool {
    param.ty == Type::Pred
}
