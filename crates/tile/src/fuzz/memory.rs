//! Statements that touch memory, and the buffers they need.
//!
//! Every store has a buffer of its own, in which each program has a part to itself, or is one of several accesses to a part of memory that a
//! program uses as it likes; atomics may meet, if their sum does not tell the order.

use tilewright_ir::{
    Axis, Combine, Constant, Element, Opcode, Order, Scope, Shape, Space, Type, Value, canonical,
};

use super::element::{ELEMENTS, sample, small};
use super::program::{Gen, Tile, shape};
use super::{Given, Rule};

const GLOBAL: Type = Type::Pointer(Space::Global);

/// A tensor in memory, as loads and stores describe it.
#[derive(Debug, Clone)]
pub(super) struct Tensor {
    pointer: Value,
    element: Element,
    extents: Vec<u32>,
    /// Extents and strides.
    facts: Vec<Value>,
    small: bool,
}

/// What a buffer holds before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contents {
    Any,
    Small,
}

impl Gen {
    /// A parameter that is a scalar. Now and then it comes with a promise.
    pub(super) fn parameter(&mut self, prefix: &str, element: Element, bits: u64) -> Value {
        let name = format!("{prefix}{}", self.arguments.len());
        let multiple = if element.is_int() && bits != 0 { 1 << bits.trailing_zeros().min(5) } else { 0 };
        let promise = if multiple > 1 && self.random.once_in(2) { multiple } else { 0 };
        self.arguments.push(Given::Scalar(element, Constant(bits)));
        self.b.func.add_param(name, Type::Scalar(element), promise)
    }

    /// A parameter that points to a new buffer.
    fn buffer(&mut self, element: Element, count: usize, contents: Contents, rule: Rule) -> Value {
        let mut bytes = Vec::with_capacity(count * element.bytes() as usize);
        for _ in 0..count {
            let bits = match contents {
                Contents::Any => sample(&mut self.random, element),
                Contents::Small => small(&mut self.random, element),
            };
            bytes.extend_from_slice(&bits.to_le_bytes()[..element.bytes() as usize]);
        }
        let align = self.random.pick(&[0, element.bytes(), 16]);
        self.pointer(element, bytes, rule, align)
    }

    fn pointer(&mut self, element: Element, bytes: Vec<u8>, rule: Rule, align: u32) -> Value {
        let name = format!("p{}", self.arguments.len());
        self.arguments.push(Given::Buffer { element, bytes, rule });
        self.b.func.add_param(name, GLOBAL, align)
    }

    /// A matrix of small integers as libraries have them: row by row, each from a multiple of 16 bytes on.
    pub(super) fn matrix(&mut self, [rows, columns]: [u32; 2], element: Element) -> Tensor {
        let pitch = columns.next_multiple_of(16);
        let mut bytes = Vec::new();
        for _ in 0..rows * pitch {
            let bits = small(&mut self.random, element);
            bytes.extend_from_slice(&bits.to_le_bytes()[..element.bytes() as usize]);
        }
        let pointer = self.pointer(element, bytes, Rule::Exact, 16);
        let mut facts = [rows, columns].map(|extent| self.number(Element::U32, i64::from(extent))).to_vec();
        facts.push(self.number(Element::I64, i64::from(pitch)));
        facts.push(self.constant(Element::I64, 1));
        Tensor { pointer, element, extents: vec![rows, columns], facts, small: true }
    }

    /// A matrix for each program, from a pointer of its own.
    pub(super) fn own_matrix(&mut self, [rows, columns]: [u32; 2], element: Element) -> Tensor {
        let all = self.matrix([rows * self.programs(), columns], element);
        let stride = rows * columns.next_multiple_of(16);
        let stride = self.constant(Element::I64, u64::from(stride));
        let bytes = self.constant(Element::I64, u64::from(element.bytes()));
        let own = self.emit(Opcode::Bitcast, &[self.program], &[], Some(Type::I32));
        let own = self.emit(Opcode::Cvt, &[own], &[], Some(Type::I64));
        let own = self.emit(Opcode::Mul, &[own, stride], &[], None);
        let own = self.emit(Opcode::Mul, &[own, bytes], &[], None);
        let pointer = self.emit(Opcode::PtrAdd, &[all.pointer, own], &[], None);
        let mut facts = all.facts.clone();
        facts[0] = self.constant(Element::U32, u64::from(rows));
        Tensor { pointer, facts, extents: vec![rows, columns], ..all }
    }

    /// A box of a matrix; zeros where it ends.
    pub(super) fn load_box(&mut self, from: &Tensor, starts: [Value; 2], shape: Shape) -> Value {
        let mut operands = vec![from.pointer];
        operands.extend(starts);
        operands.extend(&from.facts);
        operands.push(self.constant(from.element, 0));
        self.emit(Opcode::TileLoad, &operands, &[], Some(Type::Tile(from.element, shape)))
    }

    /// A number that is a constant or a parameter.
    fn number(&mut self, element: Element, value: i64) -> Value {
        let bits = canonical(element, value.cast_unsigned());
        if self.random.once_in(2) { self.constant(element, bits) } else { self.parameter("n", element, bits) }
    }

    /// A new tensor. Its axes lie in memory in any order and direction, with room between; if it is `shared`, elements may coincide.
    fn tensor(
        &mut self,
        extents: &[u32],
        element: Element,
        contents: Contents,
        shared: bool,
        rule: Rule,
    ) -> Tensor {
        let rank = extents.len();
        let mut order: Vec<usize> = (0..rank).collect();
        if !self.random.once_in(3) {
            // The usual order, the last axis first.
            order.reverse();
        } else {
            for i in (1..rank).rev() {
                order.swap(i, self.random.index(i + 1));
            }
        }
        let mut strides = vec![0i64; rank];
        let (mut next, mut before, mut span) = (1 + i64::from(self.random.once_in(6)), 0, 1);
        for axis in order {
            let extent = i64::from(extents[axis]);
            let flat = shared && self.random.once_in(12);
            let stride = if flat { 0 } else { next };
            let reach = stride * (extent - 1).max(0);
            span += reach;
            strides[axis] = stride;
            if stride > 0 && self.random.once_in(10) {
                strides[axis] = -stride;
                before += reach;
            }
            if !flat {
                next *= extent.max(1);
                if self.random.once_in(3) {
                    next += i64::from(self.random.below(5));
                }
            }
        }
        let count = usize::try_from(span).unwrap_or(1);
        let mut pointer = self.buffer(element, count, contents, rule);
        if before > 0 {
            let distance = self.constant(Element::I64, (before * i64::from(element.bytes())).cast_unsigned());
            pointer = self.emit(Opcode::PtrAdd, &[pointer, distance], &[], None);
        }
        let mut facts: Vec<Value> =
            extents.iter().map(|&extent| self.number(Element::U32, i64::from(extent))).collect();
        for stride in strides {
            facts.push(self.number(Element::I64, stride));
        }
        Tensor { pointer, element, extents: extents.to_vec(), facts, small: contents == Contents::Small }
    }

    /// Where a box starts: a number, or so many boxes from the first as programs came before.
    fn start(&mut self, shift: i32, extent: u32, by_program: bool) -> Value {
        if !by_program {
            return self.number(Element::I32, i64::from(shift));
        }
        let extent = self.constant(Element::U32, u64::from(extent));
        let place = self.emit(Opcode::Mul, &[self.program, extent], &[], None);
        let place = self.emit(Opcode::Bitcast, &[place], &[], Some(Type::I32));
        let shift = self.number(Element::I32, i64::from(shift));
        self.emit(Opcode::Add, &[place, shift], &[], None)
    }

    /// A tile of any numbers from memory.
    pub(super) fn load(&mut self, shape: Shape, element: Element) -> Tile {
        let contents = if self.random.once_in(4) { Contents::Small } else { Contents::Any };
        self.load_from(shape, element, contents)
    }

    /// A tile of small integers from memory.
    pub(super) fn load_small(&mut self, shape: Shape, element: Element) -> Tile {
        self.load_from(shape, element, Contents::Small)
    }

    fn load_from(&mut self, shape: Shape, element: Element, contents: Contents) -> Tile {
        let rank = shape.rank();
        let small_only = contents == Contents::Small;
        let fits = |tensor: &&Tensor| {
            tensor.element == element && tensor.extents.len() == rank && (tensor.small || !small_only)
        };
        let known: Vec<Tensor> = self.inputs.iter().filter(fits).cloned().collect();
        let tensor = if !known.is_empty() && self.random.once_in(3) {
            known[self.random.index(known.len())].clone()
        } else {
            let mut extents = Vec::new();
            for (axis, &extent) in shape.extents().iter().enumerate() {
                let more = self.random.below(5);
                let choices =
                    [extent, extent, extent + more, extent.saturating_sub(more), extent.div_ceil(2)];
                let extent = self.random.pick(&choices);
                let programs = if axis == 0 && self.random.once_in(2) { self.programs() } else { 1 };
                extents.push(extent * programs);
            }
            let tensor = self.tensor(&extents, element, contents, true, Rule::Exact);
            self.inputs.push(tensor.clone());
            tensor
        };
        let mut operands = vec![tensor.pointer];
        for (axis, &extent) in shape.extents().iter().enumerate() {
            let shift = if self.random.once_in(2) { 0 } else { self.random.between(-4, 4) };
            let by_program = axis == 0 && self.random.once_in(2);
            operands.push(self.start(shift, extent, by_program));
        }
        operands.extend(&tensor.facts);
        let pad =
            if tensor.small { small(&mut self.random, element) } else { sample(&mut self.random, element) };
        operands.push(self.constant(element, pad));
        let value = self.emit(Opcode::TileLoad, &operands, &[], Some(Type::Tile(element, shape)));
        self.push(Tile { value, element, shape, rule: Rule::Exact, small: tensor.small })
    }

    /// Stores a tile to a tensor of its own, and now and then loads it again.
    pub(super) fn store(&mut self, tile: Tile) {
        let mut extents = Vec::new();
        for (axis, &extent) in tile.shape.extents().iter().enumerate() {
            let programs = if axis == 0 { self.programs() } else { 1 };
            let whole = extent * programs;
            let less = self.random.below(4);
            extents.push(self.random.pick(&[whole, whole, whole + less, whole.saturating_sub(less)]));
        }
        let tensor = self.tensor(&extents, tile.element, Contents::Any, false, tile.rule);
        let mut place = Vec::new();
        for (axis, &extent) in tile.shape.extents().iter().enumerate() {
            let shift = if self.random.once_in(2) { 0 } else { self.random.between(-3, 3) };
            place.push(self.start(shift, extent, axis == 0));
        }
        place.extend(&tensor.facts);
        let operands = [tensor.pointer, tile.value].into_iter().chain(place.iter().copied());
        self.b.push(Opcode::TileStore, operands, [], [], tilewright_ir::Loc::NONE);
        if self.random.once_in(10) {
            let bits = sample(&mut self.random, tile.element);
            let pad = self.constant(tile.element, bits);
            let operands: Vec<Value> = [tensor.pointer].into_iter().chain(place).chain([pad]).collect();
            let ty = Type::Tile(tile.element, tile.shape);
            let value = self.emit(Opcode::TileLoad, &operands, &[], Some(ty));
            self.rereads = true;
            self.push(Tile { value, small: false, ..tile });
        }
    }

    /// A scalar from memory, the same for all programs.
    pub(super) fn load_scalar(&mut self) {
        let element = self.random.pick(&ELEMENTS);
        let count = 1 + self.random.index(6);
        let pointer = self.buffer(element, count, Contents::Any, Rule::Exact);
        let at = self.random.index(count) as u64 * u64::from(element.bytes());
        let at = self.constant(Element::U64, at);
        let pointer = self.emit(Opcode::PtrAdd, &[pointer, at], &[], None);
        let value = self.emit(Opcode::Load, &[pointer], &[], Some(Type::Scalar(element)));
        self.scalars.push((value, element));
    }

    /// Distances below `count` made from a tile, with a mask; what is masked out is far away.
    pub(super) fn distances(&mut self, from: Tile, count: u32, element: Element, before: u32) -> [Tile; 2] {
        let from = self.converted(from, Element::U32);
        let results = self.map(&[from], &[element, Element::Bool], |body, args| {
            let at = tilewright_ir::Loc::NONE;
            let (count, three, zero) = (
                body.constant(Element::U32, u64::from(count)),
                body.constant(Element::U32, 3),
                body.constant(Element::U32, 0),
            );
            let low = body.b.value(Opcode::And, [args[0], three], [], None, at);
            let mask = body.b.value(Opcode::Cmp, [low, zero], [tilewright_ir::Cmp::Ne.into()], None, at);
            let place = body.b.value(Opcode::Rem, [args[0], count], [], None, at);
            let place = if element == Element::U32 {
                place
            } else {
                body.b.value(Opcode::Cvt, [place], [], Some(Type::Scalar(element)), at)
            };
            let (before, far) = (
                body.constant(element, u64::from(before)),
                body.constant(element, canonical(element, 0x7abc_def0)),
            );
            let place = body.b.value(Opcode::Sub, [place, before], [], None, at);
            vec![body.b.value(Opcode::Select, [mask, place, far], [], None, at), mask]
        });
        [results[0], results[1]]
    }

    pub(super) fn gather(&mut self) {
        let from = self.exact();
        let element = self.random.pick(&ELEMENTS);
        let count = 1 + self.random.below(100);
        let wide = self.random.pick(&[Element::U32, Element::I32, Element::I64]);
        let before = if wide.is_signed() { self.random.below(count) } else { 0 };
        let [distances, mask] = self.distances(from, count, wide, before);
        let mut pointer = self.buffer(element, count as usize, Contents::Any, Rule::Exact);
        if before > 0 {
            let bytes = self.constant(Element::I64, u64::from(before * element.bytes()));
            pointer = self.emit(Opcode::PtrAdd, &[pointer, bytes], &[], None);
        }
        let other = self.exact_of(element, from.shape);
        let operands = [pointer, distances.value, mask.value, other.value];
        let value = self.emit(Opcode::Gather, &operands, &[], None);
        self.push(Tile { value, small: false, ..other });
    }

    /// For every element of a shape a place of its own among all elements of all programs, in no simple order.
    fn own_places(&mut self, shape: Shape) -> Tile {
        let count = shape.elements();
        let iotas: Vec<Tile> = (0..shape.rank())
            .map(|axis| {
                let axis = Axis(u8::try_from(axis).unwrap_or(0));
                let ty = Some(Type::Tile(Element::U32, shape));
                let value = self.emit(Opcode::Iota, &[], &[axis.into()], ty);
                Tile { value, element: Element::U32, shape, rule: Rule::Exact, small: false }
            })
            .collect();
        let factors: Vec<u32> = (1..count.max(2)).filter(|&f| greatest_divisor(f, count) == 1).collect();
        let (factor, offset) = (self.random.pick(&factors), self.random.below(count));
        let program = self.program;
        let wide = self.random.pick(&[Element::U32, Element::I32, Element::I64]);
        let results = self.map(&iotas, &[wide], |body, args| {
            let at = tilewright_ir::Loc::NONE;
            let mut number = |n: u32| body.constant(Element::U32, u64::from(n));
            let extents: Vec<Value> = shape.extents().iter().map(|&extent| number(extent)).collect();
            let (factor, offset, count) = (number(factor), number(offset), number(count));
            let mut linear = args[0];
            for (&arg, &extent) in args.iter().zip(&extents).skip(1) {
                linear = body.b.value(Opcode::Fma, [linear, extent, arg], [], None, at);
            }
            let mixed = body.b.value(Opcode::Fma, [linear, factor, offset], [], None, at);
            let place = body.b.value(Opcode::Rem, [mixed, count], [], None, at);
            let place = body.b.value(Opcode::Fma, [program, count, place], [], None, at);
            if wide == Element::U32 {
                return vec![place];
            }
            vec![body.b.value(Opcode::Cvt, [place], [], Some(Type::Scalar(wide)), at)]
        });
        results[0]
    }

    fn mask(&mut self, shape: Shape) -> Tile {
        self.exact_of(Element::Bool, shape)
    }

    pub(super) fn scatter(&mut self) {
        let tile = self.exact();
        let places = self.own_places(tile.shape);
        let mask = self.mask(tile.shape);
        let count = (tile.shape.elements() * self.programs()) as usize;
        let pointer = self.buffer(tile.element, count, Contents::Any, Rule::Exact);
        let operands = [pointer, places.value, mask.value, tile.value];
        self.b.push(Opcode::Scatter, operands, [], [], tilewright_ir::Loc::NONE);
    }

    /// An atomic, now and then after a fence.
    pub(super) fn atomic(&mut self) {
        if self.random.once_in(4) {
            let attrs = [Order::AcqRel.into(), Scope::Gpu.into()];
            self.b.push(Opcode::Fence, [], attrs, [], tilewright_ir::Loc::NONE);
        }
        let from = self.exact();
        let element = self.random.pick(&[Element::I32, Element::U32, Element::I64, Element::F32]);
        let exclusive = !element.is_float() && self.random.once_in(3);
        let value = if element.is_float() {
            self.load_small(from.shape, element)
        } else {
            self.exact_of(element, from.shape)
        };
        let combine =
            if exclusive && self.random.once_in(3) { Combine::Exchange } else { self.some_combine(element) };
        let contents = if element.is_float() { Contents::Small } else { Contents::Any };
        let (count, distances, mask) = if exclusive {
            let places = self.own_places(from.shape);
            (from.shape.elements() * self.programs(), places, self.mask(from.shape))
        } else {
            let count = 1 + self.random.below(40);
            let wide = self.random.pick(&[Element::U32, Element::I32, Element::I64]);
            let [distances, mask] = self.distances(from, count, wide, 0);
            (count, distances, mask)
        };
        let pointer = self.buffer(element, count as usize, contents, Rule::Exact);
        let result = if exclusive && self.random.once_in(3) {
            let expected = self.exact_of(element, from.shape);
            let operands = [pointer, distances.value, mask.value, expected.value, value.value];
            self.emit(Opcode::TileAtomicCas, &operands, &[], None)
        } else {
            let operands = [pointer, distances.value, mask.value, value.value];
            self.emit(Opcode::TileAtomic, &operands, &[combine.into()], None)
        };
        if exclusive {
            // What was there before depends on nobody else.
            self.push(Tile { value: result, small: false, ..value });
        }
    }
}

impl Gen {
    /// Accesses of any kind to memory that only this program uses, anywhere in it, turned or not: their order is what counts.
    pub(super) fn use_own(&mut self) {
        let tensor = if !self.own.is_empty() && !self.random.once_in(3) {
            self.own[self.random.index(self.own.len())].clone()
        } else {
            let element = self.random.pick(&ELEMENTS);
            let columns = self.random.pick(&[16, 40, 64, 256, 512, 1024]).min(self.limit);
            let rows = 1 + self.random.below((self.limit / columns).clamp(1, 16));
            let tensor = self.own_matrix([rows, columns], element);
            self.own.push(tensor.clone());
            tensor
        };
        self.rereads = true;
        for _ in 0..1 + self.random.below(3) {
            match self.random.below(8) {
                0..=2 => self.store_to(&tensor),
                3..=5 => self.load_back(&tensor),
                6 => self.gather_from(&tensor),
                _ => self.add_to(&tensor),
            }
        }
    }

    /// A box of such memory: its shape, and the operands from the starts on.
    fn some_box(&mut self, tensor: &Tensor) -> (Shape, Vec<Value>) {
        let mut boxes = Vec::new();
        for &extent in &tensor.extents {
            let size = self.random.pick(&[extent, extent, extent, extent.div_ceil(2), 1]);
            let shift = self.random.pick(&[0, 0, 0, 1, 3, 4, 8, -1, -4]);
            let start = self.start(shift, size, false);
            boxes.push((size, start));
        }
        let turned = self.random.once_in(4);
        let mut operands: Vec<Value> = boxes.iter().map(|&(_, start)| start).collect();
        let mut facts = tensor.facts.clone();
        let mut extents: Vec<u32> = boxes.iter().map(|&(size, _)| size).collect();
        if turned {
            extents.reverse();
            operands.reverse();
            facts.swap(0, 1);
            facts.swap(2, 3);
        }
        operands.extend(facts);
        (shape(&extents), operands)
    }

    fn store_to(&mut self, tensor: &Tensor) {
        let (shape, place) = self.some_box(tensor);
        let tile = self.exact_of(tensor.element, shape);
        let operands = [tensor.pointer, tile.value].into_iter().chain(place);
        self.b.push(Opcode::TileStore, operands, [], [], tilewright_ir::Loc::NONE);
    }

    fn load_back(&mut self, tensor: &Tensor) {
        let (shape, place) = self.some_box(tensor);
        let bits = sample(&mut self.random, tensor.element);
        let pad = self.constant(tensor.element, bits);
        let operands: Vec<Value> = [tensor.pointer].into_iter().chain(place).chain([pad]).collect();
        let value = self.emit(Opcode::TileLoad, &operands, &[], Some(Type::Tile(tensor.element, shape)));
        self.push(Tile { value, element: tensor.element, shape, rule: Rule::Exact, small: false });
    }

    fn gather_from(&mut self, tensor: &Tensor) {
        let from = self.exact();
        let [distances, mask] = self.distances(from, tensor.extents[1], Element::U32, 0);
        let other = self.exact_of(tensor.element, from.shape);
        let operands = [tensor.pointer, distances.value, mask.value, other.value];
        let value = self.emit(Opcode::Gather, &operands, &[], None);
        self.push(Tile { value, small: false, ..other });
    }

    fn add_to(&mut self, tensor: &Tensor) {
        if !matches!(tensor.element, Element::I32 | Element::U32 | Element::I64) {
            return self.load_back(tensor);
        }
        let from = self.exact();
        let [distances, mask] = self.distances(from, tensor.extents[1], Element::U32, 0);
        let value = self.exact_of(tensor.element, from.shape);
        let operands = [tensor.pointer, distances.value, mask.value, value.value];
        self.emit(Opcode::TileAtomic, &operands, &[Combine::Add.into()], None);
    }
}

fn greatest_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}
