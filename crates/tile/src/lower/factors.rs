//! Factors of products, one by one: whether a load can run ahead, how its tile would lie in shared memory, and what is in the way if it cannot.

use tilewright_hardware::{Arch, Group, Major, MatrixDescriptor, SwizzleMode, TensorMapSpec, mma, smem_tile};
use tilewright_ir::{
    AccessKind, Axes, Def, Element, Flags, Func, Loc, Op, OpData, Opcode, Region, Type, Uses, Value,
};
use tilewright_passes::Alignment;

use super::assign::{Box3, bytes, constant};
use super::dot::Lines;
use super::pipeline::{Form, Left, MapParameter, Number, Outer, Refusal, Staged, WARPGROUP};

/// Registers of a thread that a left factor may take for as long as a loop runs.
const KEPT_IN_REGISTERS: u32 = 16;

/// What is known of a function whose factors may be loaded ahead.
pub(super) struct Analysis<'a> {
    pub(super) func: &'a Func,
    pub(super) arch: Arch,
    pub(super) align: &'a Alignment,
    pub(super) uses: Uses,
}

impl Analysis<'_> {
    /// Where a left factor is that does not run ahead: in registers, unless it stays the same and takes many.
    pub(super) fn held(&self, body: Region, factor: Value) -> Left {
        let func = self.func;
        let shape = func.ty(factor).shape();
        let mut inside = Vec::new();
        func.walk_region(body, &mut inside);
        let made_inside = func.def_op(factor).is_some_and(|op| inside.contains(&op))
            || func.region(body).args.contains(&factor);
        // One warpgroup has 64 rows, at least.
        let many = shape.is_some_and(|s| s.extents()[1] * 64 / 2 > KEPT_IN_REGISTERS * WARPGROUP);
        let whole = shape.is_some_and(|s| s.extents()[1].is_multiple_of(64));
        if many && whole && !made_inside { Left::Kept(factor) } else { Left::Registers(factor) }
    }

    /// The load behind a factor, and which of its axes is k: the factor itself, or its transpose.
    fn factor(&self, body: Region, operand: Value, k_axis: usize) -> Result<(Op, usize), (Loc, Refusal)> {
        let func = self.func;
        let inside = func.def_op(operand).filter(|op| func.region(body).ops.contains(op));
        let Some(op) = inside else {
            return Err((Loc::NONE, "it is made outside of the loop".to_owned()));
        };
        let data = func.op(op);
        let is_swap = data.get::<Axes>().is_some_and(|axes| axes.axes() == [1, 0]);
        if data.code != Opcode::TileLoad && !(data.code == Opcode::Transpose && is_swap) {
            return Err((Loc::NONE, format!("it is computed in the loop, by `{}`", data.info().mnemonic)));
        }
        if self.uses.count(operand) != 1 {
            return Err((
                data.loc,
                "it is used by another op, too; load it a second time for that".to_owned(),
            ));
        }
        match data.code {
            Opcode::TileLoad => Ok((op, k_axis)),
            _ => self.factor(body, data.operands[0], 1 - k_axis),
        }
    }

    /// What every mechanism needs of a load; gives the axis that is contiguous in memory.
    fn contiguous(&self, load: Op) -> Result<usize, Refusal> {
        let (func, data) = (self.func, self.func.op(load));
        let Type::Tile(element, _) = func.ty(data.results[0]) else { return Err("it is no tile".to_owned()) };
        let parts = Box3::of(data, 2);
        let units = 128 / element.bits().max(1);
        let Some(fast) = (0..2).rev().find(|&axis| constant(func, parts.strides[axis]) == Some(1)) else {
            return Err(
                "no axis of it is known to have a stride of 1; launch with a tensor that has one".to_owned()
            );
        };
        let slow = 1 - fast;
        if self.align.at(data.operands[0], 0) < 16 {
            return Err(
                "its pointer is not known to be a multiple of 16 bytes; promise that, or align the tensor"
                    .to_owned(),
            );
        }
        if !self.align.at(parts.strides[slow], 0).is_multiple_of(u64::from(units)) {
            return Err(format!(
                "its stride along axis {slow} is not known to be a multiple of {units}; promise that, or pad the rows of the tensor"
            ));
        }
        if data.operands.last().and_then(|&pad| constant(func, pad)) != Some(0) {
            return Err("elements outside of the tensor are not zero; pad with zero".to_owned());
        }
        Ok(fast)
    }

    /// How the copy engine would bring a factor.
    pub(super) fn for_engine(
        &self,
        body: Region,
        operand: Value,
        (k_axis, element, rows): (usize, Element, u32),
    ) -> Result<(Op, Staged), (Loc, Refusal)> {
        let (load, k_axis) = self.factor(body, operand, k_axis)?;
        let loc = self.func.op(load).loc;
        self.boxes(load, (k_axis, element, rows)).map(|staged| (load, staged)).map_err(|why| (loc, why))
    }

    fn boxes(&self, load: Op, (k_axis, element, rows): (usize, Element, u32)) -> Result<Staged, Refusal> {
        let (func, data) = (self.func, self.func.op(load));
        let fast = self.contiguous(load)?;
        let args = &func.region(func.body()).args;
        let known = |value: &Value| args.contains(value) || constant(func, *value).is_some();
        let outer = match self.outer(data.operands[0]) {
            _ if args.contains(&data.operands[0]) => None,
            Some(outer) => Some(outer),
            None => {
                return Err("its pointer is neither a parameter nor one index of a parameter's axis; pass a view that starts there".to_owned());
            }
        };
        let parts = Box3::of(data, 2);
        // Both factors are powers of two; zero is a multiple of the largest.
        if self.align.at(parts.starts[fast], 0).saturating_mul(bytes(element).into()) < 16 {
            return Err("it may start at no multiple of 16 bytes along its contiguous axis".to_owned());
        }
        if !parts.extents.iter().chain(parts.strides).all(known) {
            return Err("its extents or strides are computed; pass them as arguments".to_owned());
        }
        // It runs ahead of everything.
        if is_written(func, load, &func.walk()) {
            return Err("the program writes to the same tensor; write to another one".to_owned());
        }
        let Some(shape) = func.ty(data.results[0]).shape() else { return Err("it is no tile".to_owned()) };
        let major = if fast == k_axis { Major::K } else { Major::Mn };
        let extents = shape.extents();
        let (tile_rows, depth) = (extents[1 - k_axis], extents[k_axis]);
        let modes = [SwizzleMode::B128, SwizzleMode::B64, SwizzleMode::B32];
        let found = modes.into_iter().find_map(|mode| {
            let tile = smem_tile(major, tile_rows, depth, element, mode).ok()?;
            MatrixDescriptor::for_operand(&tile, element, rows).ok()?;
            let boxes = TensorMapSpec::for_tile(&tile, element).ok()?;
            (boxes.major == major).then_some((tile, boxes))
        });
        let Some((tile, boxes)) = found else {
            return Err(format!(
                "warpgroups cannot read {shape} of {element} from shared memory along this axis; take more of the contiguous axis at a time"
            ));
        };
        let bytes = u32::try_from(boxes.spec.bytes()).unwrap_or(u32::MAX)
            * u32::try_from(boxes.boxes.len()).unwrap_or(1);
        Ok(Staged { element, offset: 0, bytes, fast, form: Form::Boxes { tile, boxes, map: 0, outer } })
    }

    /// The axis whose index a pointer was made with: a parameter, and so many bytes further as an index times a stride that the host knows.
    fn outer(&self, pointer: Value) -> Option<Outer> {
        let func = self.func;
        let args = &func.region(func.body()).args;
        let made_by = |value: Value, code: Opcode| {
            func.def_op(value).map(|op| func.op(op)).filter(|data| data.code == code)
        };
        let add = made_by(pointer, Opcode::PtrAdd).filter(|add| args.contains(&add.operands[0]))?;
        let bytes = made_by(add.operands[1], Opcode::Mul)?;
        let elements = made_by(bytes.operands[0], Opcode::Mul)?;
        constant(func, bytes.operands[1])?;
        let (wide, stride) = (elements.operands[0], elements.operands[1]);
        let index = made_by(wide, Opcode::Cvt).map(|cvt| cvt.operands[0])?;
        let size = constant(func, bytes.operands[1]).unwrap_or(0);
        let known = args.contains(&stride) || constant(func, stride).is_some();
        let aligned = self.align.at(stride, 0).saturating_mul(size).is_multiple_of(16);
        (known && aligned && func.ty(index) == Type::I32).then_some(Outer { index, stride })
    }

    /// The map for a load or store: one for all that need the same.
    pub(super) fn map(
        &self,
        load: Op,
        spec: &TensorMapSpec,
        (fast, outer): (usize, Option<Outer>),
        maps: &mut Vec<MapParameter>,
    ) -> usize {
        let (func, data) = (self.func, self.func.op(load));
        let parts = Box3::of(data, 2);
        let args = &func.region(func.body()).args;
        let name = |value: Value| {
            let position = args.iter().position(|&arg| arg == value)?;
            func.params.get(position).map(|param| param.name.clone())
        };
        let number = |value: Value| match name(value) {
            Some(name) => Number::Parameter(name),
            None => Number::Constant(constant(func, value).unwrap_or(0).cast_signed()),
        };
        let inner_first = [fast, 1 - fast];
        let pointer = root(func, data.operands[0]).and_then(name).unwrap_or_default();
        let mut wanted = MapParameter {
            name: format!("{pointer}_map{}", maps.len()),
            pointer,
            spec: spec.clone(),
            extents: inner_first.iter().map(|&axis| number(parts.extents[axis])).collect(),
            strides: inner_first.iter().map(|&axis| number(parts.strides[axis])).collect(),
        };
        if let Some(outer) = outer {
            let extents = [spec.box_dims(), &[1]].concat();
            let deeper = TensorMapSpec::new(spec.element(), &extents, spec.swizzle());
            // One more axis of one element is never too much for two.
            wanted.spec = deeper.unwrap_or(wanted.spec);
            wanted.extents.push(Number::All);
            wanted.strides.push(number(outer.stride));
        }
        let same = |map: &MapParameter| MapParameter { name: wanted.name.clone(), ..map.clone() } == wanted;
        maps.iter().position(same).unwrap_or_else(|| {
            maps.push(wanted.clone());
            maps.len() - 1
        })
    }

    /// How threads would bring a factor, and the scalars that its place follows from.
    pub(super) fn for_threads(
        &self,
        body: Region,
        operand: Value,
        k_axis: usize,
        element: Element,
    ) -> Result<(Op, Staged, Vec<Op>), (Loc, Refusal)> {
        let (load, k_axis) = self.factor(body, operand, k_axis)?;
        let loc = self.func.op(load).loc;
        self.lines(body, load, k_axis, element)
            .map(|(staged, scalars)| (load, staged, scalars))
            .map_err(|why| (loc, why))
    }

    fn lines(
        &self,
        body: Region,
        load: Op,
        k_axis: usize,
        element: Element,
    ) -> Result<(Staged, Vec<Op>), Refusal> {
        let (func, data) = (self.func, self.func.op(load));
        let fast = self.contiguous(load)?;
        let Some(shape) = func.ty(data.results[0]).shape() else { return Err("it is no tile".to_owned()) };
        let parts = Box3::of(data, 2);
        let units = 128 / element.bits().max(1);
        if !shape.extents()[fast].is_multiple_of(units) {
            return Err(format!("its extent along axis {fast} is not a multiple of {units}; take one"));
        }
        if !self.align.at(parts.starts[fast], 0).is_multiple_of(u64::from(units)) {
            return Err(format!("it starts along axis {fast} where no multiple of {units} is known to be"));
        }
        let along_k = fast == k_axis;
        if !along_k && element.bits() != 16 {
            return Err(format!(
                "tensor cores cannot turn {element}; store the tensor with the summed axis contiguous"
            ));
        }
        let mut ops = Vec::new();
        func.walk_region(body, &mut ops);
        if is_written(func, load, &ops) {
            return Err(
                "the loop writes to the same tensor, or has a fence; write to another one, and fence outside"
                    .to_owned(),
            );
        }
        let mut scalars = Vec::new();
        for &operand in &data.operands {
            follows(func, &func.region(body).ops, operand, &mut scalars)?;
        }
        let lines = Lines::swizzled(shape.extents()[fast] * element.bits() / 8);
        let bytes = (lines.pitch() * shape.extents()[1 - fast]).next_multiple_of(128);
        Ok((Staged { element, offset: 0, bytes, fast, form: Form::Lines { lines, along_k } }, scalars))
    }

    pub(super) fn warpgroup_atom(&self, data: &OpData) -> Option<&'static mma::Mma> {
        let func = self.func;
        let element = |i: usize| func.ty(data.operands[i]).element();
        let factor = |e: Element| match e {
            Element::F32 if data.flags().has(Flags::TF32) => Some(Element::TF32),
            Element::F32 | Element::F64 => None,
            other => Some(other),
        };
        let (a, b, c) = (factor(element(0)?)?, factor(element(1)?)?, element(2)?);
        let sums = func.ty(data.results[0]).shape()?;
        let (m, n) = (sums.extents()[0], sums.extents()[1]);
        let k = func.ty(data.operands[0]).shape()?.extents()[1];
        let atom = mma::best(self.arch, Group::Warpgroup, a, b, c, (m, n, k)).ok()?;
        (atom.shape.n == n).then_some(atom)
    }
}

/// Whether the host can make a tensor map for a box: it knows the pointer, all extents and all strides.
pub(super) fn from_host(func: &Func, data: &OpData) -> bool {
    let parameters = &func.region(func.body()).args;
    let known = |value: &Value| parameters.contains(value) || constant(func, *value).is_some();
    let parts = Box3::of(data, 2);
    parameters.contains(&data.operands[0]) && parts.extents.iter().chain(parts.strides).all(known)
}

/// Whether some of these ops may write to what a load reads, or let the program see what others wrote.
pub(super) fn is_written(func: &Func, load: Op, ops: &[Op]) -> bool {
    let own = root(func, func.op(load).operands[0]);
    ops.iter().any(|&op| {
        let data = func.op(op);
        let writes = data.info().effects.accesses.iter().any(|access| access.kind != AccessKind::Read);
        let other = data.operands.first().and_then(|&pointer| root(func, pointer));
        data.code == Opcode::Fence || writes && (own.is_none() || other.is_none() || own == other)
    })
}

/// Collects those of some ops that a value is computed from, in order; refuses what is no scalar, and what other rounds of a loop decide.
pub(super) fn follows(func: &Func, ops: &[Op], value: Value, scalars: &mut Vec<Op>) -> Result<(), Refusal> {
    match func.value(value).def {
        Def::Arg(region, i) if i > 0 && region != func.body() && func.region(region).ops == ops => {
            Err("its place depends on what the loop carries; compute it from the counter".to_owned())
        }
        Def::Result(op, _) if ops.contains(&op) => {
            let data = func.op(op);
            let of_tiles = data.operands.iter().chain(&data.results).any(|&v| func.ty(v).shape().is_some());
            if !data.info().is_pure() || of_tiles || !data.regions.is_empty() {
                return Err(format!(
                    "its place depends on `{}` in the loop; compute it from the counter",
                    data.info().mnemonic
                ));
            }
            if !scalars.contains(&op) {
                data.operands.iter().try_for_each(|&operand| follows(func, ops, operand, scalars))?;
                scalars.push(op);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The parameter that a pointer was made from, if it is known.
pub(super) fn root(func: &Func, pointer: Value) -> Option<Value> {
    match func.value(pointer).def {
        Def::Arg(region, _) => (region == func.body()).then_some(pointer),
        Def::Result(op, _) => {
            let data = func.op(op);
            (data.code == Opcode::PtrAdd).then(|| root(func, data.operands[0])).flatten()
        }
    }
}
