//! The rules of the IR, checked. All violations of a module are reported, not only the first.
//!
//! 1. Operands are as many as the row of the table says, and of the classes it names.
//! 2. Results are as many as the row says, and of the types it fixes.
//! 3. Attributes are those of the row; the required ones are there; none twice.
//! 4. A value is defined before its use, in the same region or one around it.
//! 5. A region owned by an op ends in `yield` (the first of a `while` in `condition`), which stands nowhere else.
//! 6. What regions take and yield agrees with the op that owns them, in number and type.
//! 7. Vectors have at least one element and fit in whole bytes; conversions, packs and slices add up; a bitcast keeps the size.
//! 8. Roles stand at the top of a function, their warps are disjoint, lie within the block, and with register counts they are whole
//!    warpgroups (four warps) whose registers fit the multiprocessor.
//! 9. Tensor accesses have as many operands as rank, im2col, multicast and hint ask for; what is stored asynchronously has 4, 8 or 16 bytes.
//! 10. Matrix products exist: the shape and types are in the hardware's table, and fragments have its sizes.
//! 11. Calls name a function of the module and agree with its signature; functions end in `return` if they have results.
//! 12. Constants fit their type.
//! 13. An accumulator is a place: `accumulator` makes it, and it cannot be carried by loops, chosen by `if` or `select`, passed or returned.
//! 14. Votes give `bool`, a ballot `u32`; barriers that reduce give `bool`, or `u32` if they count. Alignments are powers of two.
//! 15. Nothing reaches global memory before a `grid_wait` in the outermost region: who waits may have been started early.
//! 16. Tiles: shapes and elements agree, only ops of a program touch them, and what stands beside those is the same for the whole program
//!     ([`tile`]).
//!
//! Not checked here: whether a target has an instruction (the PTX legality table does that), and races, deadlocks and the like (the
//! simulator does).

mod tile;

use tilewright_hardware::mma::{self as atoms, Group, Operand};

use crate::Element;
use crate::attr::{Align, Combine, Count, Flags, Index, Mma, Rank, Registers, Vote, Warps};
use crate::diagnostic::Diagnostic;
use crate::func::{Func, Module, Op, OpData, Region, Value};
use crate::loc::Loc;
use crate::table::{Arity, Opcode, Out};
use crate::types::{Space, Type};

/// Checks a module; an empty list means that it is correct.
#[must_use]
pub fn verify(module: &Module) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    for func in &module.funcs {
        let mut verifier = Verifier {
            module,
            func,
            visible: vec![false; func.value_count()],
            problems: &mut problems,
            loc: Loc::NONE,
        };
        verifier.func();
    }
    problems
}

struct Verifier<'a> {
    module: &'a Module,
    func: &'a Func,
    visible: Vec<bool>,
    problems: &'a mut Vec<Diagnostic>,
    loc: Loc,
}

impl Verifier<'_> {
    fn report(&mut self, message: impl Into<String>) {
        self.problems.push(Diagnostic::new(message, self.loc, &self.func.locations));
    }

    fn func(&mut self) {
        let func = self.func;
        for &arg in &func.region(func.body()).args {
            self.visible[arg.index()] = true;
        }
        self.roles();
        if func.is_tile_level() {
            self.tile_level();
        }
        if func.waits_for_grids() {
            self.nothing_before_grid_wait();
        }
        self.region(func.body());
        self.loc = Loc::NONE;
        let returns = func.terminator(func.body()).map(|op| func.op(op));
        let found: Vec<Type> =
            returns.map(|op| op.operands.iter().map(|&v| func.ty(v)).collect()).unwrap_or_default();
        if found != func.results {
            self.report(format!(
                "function `{}` returns {}, its signature says {}",
                func.name,
                list(&found),
                list(&func.results)
            ));
        }
    }

    /// What waits for the grids before it may have been started before they have ended: until then, global memory is theirs.
    fn nothing_before_grid_wait(&mut self) {
        let func = self.func;
        let ops = &func.region(func.body()).ops;
        for &op in ops.iter().take_while(|&&op| func.op(op).code != Opcode::GridWait) {
            if let Some(access) = global_access(func, op) {
                self.loc = func.op(access).loc;
                let name = func.op(access).info().mnemonic;
                self.report(format!("`{name}` reaches global memory before `grid_wait`; the grids before this one may still be at work there"));
            }
        }
    }

    fn region(&mut self, region: Region) {
        let func = self.func;
        let ops = &func.region(region).ops;
        for (i, &op) in ops.iter().enumerate() {
            self.loc = func.op(op).loc;
            self.op(op);
            if func.op(op).info().is_terminator() && i + 1 != ops.len() {
                self.report(format!("`{}` is not the last op of its region", func.op(op).info().mnemonic));
            }
        }
    }

    fn op(&mut self, op: Op) {
        let func = self.func;
        let data = func.op(op);
        let name = data.info().mnemonic;
        for (i, &operand) in data.operands.iter().enumerate() {
            if !self.visible[operand.index()] {
                self.report(format!("operand {i} of `{name}` is used before it is defined, or outside the region that defines it"));
            }
        }
        let types: Vec<Type> = data.operands.iter().map(|&v| func.ty(v)).collect();
        self.operands(data, &types);
        self.results(data, &types);
        self.attributes(data);
        let before = self.problems.len();
        self.special_rules(op, data, &types);
        if self.problems.len() == before {
            for &region in &data.regions {
                let args = func.region(region).args.clone();
                for &arg in &args {
                    self.visible[arg.index()] = true;
                }
                self.region(region);
                self.hide(region);
                self.loc = data.loc;
            }
        }
        for &result in &data.results {
            self.visible[result.index()] = true;
        }
    }

    /// What a region defines cannot be seen outside.
    fn hide(&mut self, region: Region) {
        let data = self.func.region(region);
        for &arg in &data.args {
            self.visible[arg.index()] = false;
        }
        for &op in &data.ops {
            for &result in &self.func.op(op).results {
                self.visible[result.index()] = false;
            }
        }
    }

    fn operands(&mut self, data: &OpData, types: &[Type]) {
        let info = data.info();
        let name = info.mnemonic;
        let mut next = 0;
        for spec in info.operands {
            let (class, least, most) = match *spec {
                Arity::One(class) => (class, 1, 1),
                Arity::Maybe(class) => (class, 0, 1),
                Arity::Rest(class) => (class, 0, usize::MAX),
            };
            let mut taken = 0;
            while taken < most && next < types.len() {
                if !class.accepts(types[next], types) {
                    self.report(format!(
                        "operand {next} of `{name}` is {}, expected {}",
                        types[next],
                        class.describe(types)
                    ));
                }
                next += 1;
                taken += 1;
            }
            if taken < least {
                self.report(format!(
                    "`{name}` has {} operands, expected one more: {}",
                    types.len(),
                    class.describe(types)
                ));
                return;
            }
        }
        if next < types.len() {
            self.report(format!("`{name}` has {} operands, expected {next}", types.len()));
        }
    }

    fn results(&mut self, data: &OpData, operands: &[Type]) {
        let info = data.info();
        let name = info.mnemonic;
        let found: Vec<Type> = data.results.iter().map(|&v| self.func.ty(v)).collect();
        if info.results.contains(&Out::GivenRest) {
            return;
        }
        if found.len() != info.results.len() {
            self.report(format!("`{name}` has {} results, expected {}", found.len(), info.results.len()));
            return;
        }
        for (i, (out, &ty)) in info.results.iter().zip(&found).enumerate() {
            let expected = match *out {
                Out::Like(k) => operands.get(usize::from(k)).copied(),
                Out::Of(ty) => Some(ty),
                Out::Given | Out::GivenRest => None,
            };
            if let Some(expected) = expected.filter(|&expected| expected != ty) {
                self.report(format!("result {i} of `{name}` is {ty}, expected {expected}"));
            }
            if let Type::Vector(element, n) | Type::Accumulator(element, n) = ty
                && (n == 0 || element.bits() * u32::from(n) % 8 != 0)
            {
                self.report(format!("result {i} of `{name}` is {ty}, expected a vector of whole bytes"));
            }
        }
    }

    fn attributes(&mut self, data: &OpData) {
        let info = data.info();
        for (i, attr) in data.attrs.iter().enumerate() {
            if !info.attrs.iter().any(|(kind, _)| *kind == attr.kind) {
                self.report(format!("`{}` does not take {attr}", info.mnemonic));
            }
            if data.attrs[..i].iter().any(|other| other.kind == attr.kind) {
                self.report(format!("`{}` has {} twice", info.mnemonic, attr.kind.name()));
            }
        }
        for (kind, required) in info.attrs {
            if *required && !data.attrs.iter().any(|attr| attr.kind == *kind) {
                self.report(format!("`{}` needs {}(...)", info.mnemonic, kind.name()));
            }
        }
    }

    /// Rules that a table row cannot say.
    fn special_rules(&mut self, op: Op, data: &OpData, types: &[Type]) {
        let result = data.results.first().map(|&v| self.func.ty(v));
        let name = data.info().mnemonic;
        if data.regions.len() != data.info().regions.len() {
            self.report(format!(
                "`{name}` has {} regions, expected {}",
                data.regions.len(),
                data.info().regions.len()
            ));
            return;
        }
        let moves = matches!(
            data.code,
            Opcode::For
                | Opcode::While
                | Opcode::Yield
                | Opcode::Condition
                | Opcode::Select
                | Opcode::Call
                | Opcode::Return
        );
        if moves && types.iter().any(|ty| matches!(ty, Type::Accumulator(..))) {
            self.report(format!(
                "`{name}` moves an accumulator, which is a place in registers; make it outside and use it inside"
            ));
        }
        self.tile_op(data, types);
        match data.code {
            Opcode::For => self.for_loop(data, types),
            Opcode::While => self.while_loop(data, types),
            Opcode::If => {
                let results = self.types_of(&data.results);
                for (i, way) in ["then", "else"].into_iter().enumerate() {
                    self.takes(data.regions[i], &[], way);
                    self.yields(data.regions[i], Opcode::Yield, &results, way);
                }
            }
            Opcode::Role => {
                self.takes(data.regions[0], &[], "do");
                self.yields(data.regions[0], Opcode::Yield, &[], "do");
                if !self.func.region(self.func.body()).ops.contains(&op) {
                    self.report("`role` stands inside another region; roles divide the whole block, so put it at the top of the kernel");
                }
            }
            Opcode::Call => self.call(data, types),
            Opcode::Const => self.constant(data, result),
            Opcode::Bitcast => {
                if let (Some(from), Some(to)) = (types.first(), result)
                    && from.bits() != to.bits()
                {
                    self.report(format!(
                        "`bitcast` from {from} ({} bits) to {to} ({} bits) changes the size",
                        from.bits(),
                        to.bits()
                    ));
                }
            }
            Opcode::Cvt => {
                if let (Some(from), Some(to)) = (types.first(), result)
                    && (from.lanes() != to.lanes() || from.lanes() == 0)
                {
                    self.report(format!(
                        "`cvt` from {from} to {to}: both sides need the same number of elements"
                    ));
                }
            }
            Opcode::MulWide => {
                if let (Some(from), Some(to)) = (types.first(), result)
                    && to.bits() != 2 * from.bits()
                {
                    self.report(format!("`mul_wide` of {from} gives {} bits, not {to}", 2 * from.bits()));
                }
            }
            Opcode::Pack => {
                let fits = result.is_some_and(|ty| {
                    ty.lanes() as usize == types.len() && types.iter().all(|t| t.element() == ty.element())
                });
                if !fits {
                    self.report(format!(
                        "`pack` of {} values of {} does not make {}",
                        types.len(),
                        list(types),
                        show(result)
                    ));
                }
            }
            Opcode::Extract | Opcode::Insert | Opcode::Slice => self.part(data, types, result),
            Opcode::Concat => {
                let lanes: u32 = types.iter().map(|t| t.lanes()).sum();
                let fits = result.is_some_and(|ty| {
                    ty.lanes() == lanes && types.iter().all(|t| t.element() == ty.element())
                });
                if !fits {
                    self.report(format!("`concat` of {} does not make {}", list(types), show(result)));
                }
            }
            Opcode::TmaLoad | Opcode::TmaStore | Opcode::TmaReduce | Opcode::TmaPrefetch => {
                self.tensor_access(data, types);
            }
            Opcode::BulkLoad => {
                let extra =
                    [(Flags::MULTICAST, Element::U16, "a mask"), (Flags::HINT, Element::U64, "a policy")];
                let wanted = extra.into_iter().filter(|(flag, ..)| data.flags().has(*flag));
                let wanted: Vec<Type> = wanted.map(|(_, element, _)| Type::Scalar(element)).collect();
                if types.get(4..) != Some(&wanted[..]) {
                    self.report(format!(
                        "`bulk_load` with flags({}) takes {} after its four operands, found {}",
                        data.flags(),
                        list(&wanted),
                        list(types.get(4..).unwrap_or(&[]))
                    ));
                }
            }
            Opcode::StoreAsync => {
                let ty = types.get(1).copied();
                if ty.is_some_and(|ty| !matches!(ty.bits(), 32 | 64 | 128)) {
                    self.report(format!("`{name}` moves 32, 64 or 128 bits, not {}", show(ty)));
                }
            }
            Opcode::LdMatrix | Opcode::StMatrix => {
                let ty = if data.code == Opcode::LdMatrix { result } else { types.get(1).copied() };
                let count = data.get::<Count>().map_or(0, |Count(n)| n);
                if !matches!(count, 1 | 2 | 4) {
                    self.report(format!("`{name}` moves 1, 2 or 4 matrices, not {count}"));
                } else if ty.is_some_and(|ty| ty.bits() != 32 * count) {
                    self.report(format!(
                        "`{name}` of {count} matrices moves {} bits a lane, not {}",
                        32 * count,
                        show(ty)
                    ));
                }
            }
            Opcode::Vote | Opcode::BarrierReduce => {
                let counts =
                    data.get::<Vote>() == Some(Vote::Ballot) || data.get::<Combine>() == Some(Combine::Popc);
                let expected = if counts { Type::U32 } else { Type::BOOL };
                if result.is_some_and(|ty| ty != expected) {
                    self.report(format!("result 0 of `{name}` is {}, expected {expected}", show(result)));
                }
            }
            Opcode::Shared | Opcode::Local => {
                let align = data.get::<Align>().map_or(1, |Align(n)| n);
                if !align.is_power_of_two() {
                    self.report(format!(
                        "`{name}` asks for an alignment of {align} bytes, expected a power of two"
                    ));
                }
            }
            Opcode::Mma => self.mma(data, types),
            Opcode::Wgmma => self.wgmma(data, types),
            Opcode::AccRead | Opcode::AccWrite => {
                let vector = if data.code == Opcode::AccRead { result } else { types.get(1).copied() };
                if let (Some(Type::Accumulator(e, n)), Some(vector)) = (types.first(), vector)
                    && vector != Type::Vector(*e, *n)
                {
                    self.report(format!("`{name}` of acc<{n}x{e}> moves {n}x{e}, not {vector}"));
                }
            }
            _ => {}
        }
    }

    fn for_loop(&mut self, data: &OpData, types: &[Type]) {
        let carried = types.get(3..).unwrap_or(&[]).to_vec();
        let mut args = vec![types.first().copied().unwrap_or(Type::U32)];
        args.extend(&carried);
        self.takes(data.regions[0], &args, "do");
        self.yields(data.regions[0], Opcode::Yield, &carried, "do");
        let results = self.types_of(&data.results);
        if results != carried {
            self.report(format!(
                "`for` gives {}, expected what it carries: {}",
                list(&results),
                list(&carried)
            ));
        }
    }

    fn while_loop(&mut self, data: &OpData, types: &[Type]) {
        let results = self.types_of(&data.results);
        let mut condition = vec![Type::BOOL];
        condition.extend(&results);
        self.takes(data.regions[0], types, "test");
        self.yields(data.regions[0], Opcode::Condition, &condition, "test");
        self.takes(data.regions[1], &results, "do");
        self.yields(data.regions[1], Opcode::Yield, types, "do");
    }

    fn takes(&mut self, region: Region, expected: &[Type], which: &str) {
        let found = self.types_of(&self.func.region(region).args);
        if found != expected {
            self.report(format!("region `{which}` takes {}, expected {}", list(&found), list(expected)));
        }
    }

    fn yields(&mut self, region: Region, code: Opcode, expected: &[Type], which: &str) {
        let last = self.func.terminator(region).map(|op| self.func.op(op));
        match last {
            Some(op) if op.code == code => {
                let found = self.types_of(&op.operands);
                if found != expected {
                    let owner = std::mem::replace(&mut self.loc, op.loc);
                    self.report(format!(
                        "`{}` at the end of region `{which}` hands over {}, expected {}",
                        code.info().mnemonic,
                        list(&found),
                        list(expected)
                    ));
                    self.loc = owner;
                }
            }
            _ => self.report(format!("region `{which}` does not end in `{}`", code.info().mnemonic)),
        }
    }

    fn call(&mut self, data: &OpData, types: &[Type]) {
        let name = data.text().unwrap_or("");
        let Some(callee) = self.module.func(name) else {
            self.report(format!("`call` of {name:?}, which the module does not have"));
            return;
        };
        let params: Vec<Type> = callee.region(callee.body()).args.iter().map(|&v| callee.ty(v)).collect();
        if params != types {
            self.report(format!("`call` of {name:?} passes {}, expected {}", list(types), list(&params)));
        }
        let results = self.types_of(&data.results);
        if results != callee.results {
            self.report(format!(
                "`call` of {name:?} takes back {}, expected {}",
                list(&results),
                list(&callee.results)
            ));
        }
    }

    fn constant(&mut self, data: &OpData, result: Option<Type>) {
        let Some(crate::Constant(bits)) = data.get() else { return };
        let fits = match result {
            Some(Type::Scalar(element)) => canonical(element, bits) == bits,
            _ => false,
        };
        if !fits {
            self.report(format!("constant {bits:#x} is not a value of {}", show(result)));
        }
    }

    fn part(&mut self, data: &OpData, types: &[Type], result: Option<Type>) {
        let name = data.info().mnemonic;
        let (Some(&vector), Some(Index(index))) = (types.first(), data.get::<Index>()) else { return };
        let (part, lanes) = match data.code {
            Opcode::Insert => (types.get(1).copied(), 1),
            Opcode::Extract => (result, 1),
            _ => (result, result.map_or(0, Type::lanes)),
        };
        if index.saturating_add(lanes) > vector.lanes() || part.and_then(Type::element) != vector.element() {
            self.report(format!("`{name}` of {} at index {index} of {vector}", show(part)));
        }
        if data.code == Opcode::Extract && !matches!(result, Some(Type::Scalar(_))) {
            self.report(format!("`extract` gives a scalar, not {}", show(result)));
        }
    }

    fn tensor_access(&mut self, data: &OpData, types: &[Type]) {
        let fixed = data.info().operands.len() - 1;
        let name = data.info().mnemonic;
        let rank = data.get::<Rank>().map_or(0, |Rank(n)| usize::from(n));
        let flags = data.flags();
        if !(1..=5).contains(&rank) || (flags.has(Flags::IM2COL) && rank < 3) {
            self.report(format!("`{name}` has rank {rank}, expected 1 to 5, with im2col 3 to 5"));
            return;
        }
        let mut wanted = vec![Type::I32; rank];
        if flags.has(Flags::IM2COL) && matches!(data.code, Opcode::TmaLoad | Opcode::TmaPrefetch) {
            wanted.extend(vec![Type::Scalar(Element::U16); rank - 2]);
        }
        if flags.has(Flags::MULTICAST) {
            wanted.push(Type::Scalar(Element::U16));
        }
        if flags.has(Flags::HINT) {
            wanted.push(Type::U64);
        }
        if types.get(fixed..) != Some(&wanted[..]) {
            self.report(format!(
                "`{name}` of rank {rank} with flags({flags}) takes {} after its first {fixed} operands, found {}",
                list(&wanted),
                list(types.get(fixed..).unwrap_or(&[]))
            ));
        }
    }

    fn mma(&mut self, data: &OpData, types: &[Type]) {
        let Some(id) = data.get::<Mma>() else { return };
        let Some(atom) = self.atom(id, Group::Warp) else { return };
        let expected: Vec<Type> = [Operand::A, Operand::B, Operand::C].map(|o| fragment(atom, o)).into();
        if types != expected {
            self.report(format!("`mma` {id} takes {}, found {}", list(&expected), list(types)));
        }
    }

    fn wgmma(&mut self, data: &OpData, types: &[Type]) {
        let Some(id) = data.get::<Mma>() else { return };
        let Some(atom) = self.atom(id, Group::Warpgroup) else { return };
        let values = id.n / 2;
        if types.first() != Some(&Type::Accumulator(id.c, values)) {
            self.report(format!(
                "`wgmma` {id} accumulates in acc<{values}x{}>, found {}",
                id.c,
                show(types.first().copied())
            ));
        }
        if let Some(&ty @ Type::Vector(..)) = types.get(1)
            && ty != fragment(atom, Operand::A)
        {
            self.report(format!("`wgmma` {id} takes A as {}, found {ty}", fragment(atom, Operand::A)));
        }
        for (flag, operand) in [(Flags::TRANS_A, Operand::A), (Flags::TRANS_B, Operand::B)] {
            if data.flags().has(flag) && !atom.transposable(operand) {
                self.report(format!("`wgmma` {id} reads {operand:?} with k contiguous only; the other order exists for 16-bit elements"));
            }
        }
    }

    fn atom(&mut self, id: Mma, group: Group) -> Option<&'static atoms::Mma> {
        let shape = (u32::from(id.m), u32::from(id.n), u32::from(id.k));
        match atoms::find(id.a, id.b, id.c, shape) {
            Ok(atom) if atom.group == group => Some(atom),
            Ok(atom) => {
                self.report(format!(
                    "{id} is executed by {} threads together, not here",
                    atom.group.threads()
                ));
                None
            }
            Err(reason) => {
                self.report(reason.to_string());
                None
            }
        }
    }

    fn roles(&mut self) {
        let func = self.func;
        let roles: Vec<&OpData> = func
            .region(func.body())
            .ops
            .iter()
            .map(|&op| func.op(op))
            .filter(|op| op.code == Opcode::Role)
            .collect();
        let warps_in_block = func.launch.total_threads().map(|t| t.div_ceil(32));
        let mut budget = 0;
        for (i, role) in roles.iter().enumerate() {
            self.loc = role.loc;
            let name = role.text().unwrap_or("");
            let Some(warps) = role.get::<Warps>() else { continue };
            if warps.start >= warps.end || warps_in_block.is_some_and(|n| u32::from(warps.end) > n) {
                self.report(format!(
                    "role {name:?} takes warps {}..{} of a block with {} warps",
                    warps.start,
                    warps.end,
                    warps_in_block.map_or("an unknown number of".to_owned(), |n| n.to_string())
                ));
            }
            for other in &roles[..i] {
                if let Some(o) = other.get::<Warps>()
                    && warps.start < o.end
                    && o.start < warps.end
                {
                    self.report(format!("roles {:?} and {name:?} share warps", other.text().unwrap_or("")));
                }
            }
            if let Some(Registers(count)) = role.get() {
                if warps.start % 4 != 0 || warps.end % 4 != 0 {
                    self.report(format!(
                        "role {name:?} sets its registers, so it must be whole warpgroups: warps {}..{} are not",
                        warps.start, warps.end
                    ));
                }
                if count % 8 != 0 || !(24..=256).contains(&count) {
                    self.report(format!(
                        "role {name:?} asks for {count} registers, expected a multiple of 8 from 24 to 256"
                    ));
                }
                let lanes = 32 * u32::from(warps.end - warps.start.min(warps.end));
                budget = count.saturating_mul(lanes).saturating_add(budget);
            }
        }
        if budget > 65536 {
            self.report(format!("the roles ask for {budget} registers, a multiprocessor has 65536"));
        }
        self.loc = Loc::NONE;
    }

    fn types_of(&self, values: &[Value]) -> Vec<Type> {
        values.iter().map(|&v| self.func.ty(v)).collect()
    }
}

/// The bits of a constant as the IR stores them: signed integers sign-extended to 64 bits, everything else zero-extended.
#[must_use]
pub fn canonical(element: Element, bits: u64) -> u64 {
    let width = element.bits();
    if width >= 64 {
        return bits;
    }
    let low = bits & ((1 << width) - 1);
    if element.is_int() && element.is_signed() && low >> (width - 1) == 1 { low | !0 << width } else { low }
}

fn list(types: &[Type]) -> String {
    if types.is_empty() {
        return "nothing".to_owned();
    }
    types.iter().map(Type::to_string).collect::<Vec<_>>().join(", ")
}

fn show(ty: Option<Type>) -> String {
    ty.map_or("nothing".to_owned(), |ty| ty.to_string())
}

/// The registers of one thread that hold an operand.
fn fragment(atom: &atoms::Mma, operand: Operand) -> Type {
    let (rows, columns) = atom.extents(operand);
    Type::Vector(
        atom.element(operand),
        u16::try_from(rows * columns / atom.group.threads()).unwrap_or(u16::MAX),
    )
}

/// The first op among this one and those in its regions that may reach global memory.
fn global_access(func: &Func, op: Op) -> Option<Op> {
    let data = func.op(op);
    let reaches = |ty: Type| matches!(ty, Type::Pointer(Space::Global | Space::Generic) | Type::TensorMap);
    let operands = data.info().effects.accesses.iter();
    let own = operands.filter_map(|access| data.operands.get(usize::from(access.operand)));
    if data.code == Opcode::Call || own.copied().any(|operand| reaches(func.ty(operand))) {
        return Some(op);
    }
    let inside = data.regions.iter().flat_map(|&region| &func.region(region).ops);
    inside.copied().find_map(|op| global_access(func, op))
}
