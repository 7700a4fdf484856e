//! Statements of a program: what is done with whole tiles.

use tilewright_ir::{
    Attr, Axes, Axis, Builder, Cmp, Combine, Element, Flags, Func, Index, Loc, Op, Opcode, Round, Shape,
    Special, Type, Value,
};
use tilewright_passes::float;

use super::element::{Body, ELEMENTS, converts, only_converts, sample};
use super::memory::Tensor;
use super::random::Random;
use super::{Case, Given, Rule};

/// A tile that statements can use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tile {
    pub(super) value: Value,
    pub(super) element: Element,
    pub(super) shape: Shape,
    /// How exactly its elements are known.
    pub(super) rule: Rule,
    /// Whether its elements are integers between -8 and 8.
    pub(super) small: bool,
}

/// A kernel under construction.
pub(super) struct Gen {
    pub(super) random: Random,
    pub(super) b: Builder,
    pub(super) arguments: Vec<Given>,
    pub(super) grid: [u32; 3],
    /// The number of this program among all.
    pub(super) program: Value,
    pub(super) tiles: Vec<Tile>,
    pub(super) scalars: Vec<(Value, Element)>,
    pub(super) inputs: Vec<Tensor>,
    /// Memory that a program uses as it likes.
    pub(super) own: Vec<Tensor>,
    pub(super) rereads: bool,
    /// Statements that may still be made.
    pub(super) left: u32,
    pub(super) depth: u32,
    /// Whether what is made now may run more than once.
    pub(super) repeated: bool,
    /// The most elements of a tile.
    pub(super) limit: u32,
    /// The shape that most tiles have, so that they can meet.
    pub(super) home: Shape,
}

/// A shape from extents of this generator.
#[allow(clippy::expect_used, reason = "the generator makes extents that are positive and few elements")]
pub(super) fn shape(extents: &[u32]) -> Shape {
    Shape::new(extents).expect("positive extents, few elements")
}

/// The bits of a float.
fn real(element: Element, value: f64) -> u64 {
    float::encode(element, value, Round::Nearest, false).unwrap_or(0)
}

/// The case of a seed.
pub(super) fn generate(seed: u64, budget: u32) -> Case {
    let mut random = Random::new(seed);
    let grid = random.pick(&[[1, 1, 1], [1, 1, 1], [2, 1, 1], [3, 1, 1], [2, 2, 1], [1, 2, 2]]);
    let limit = random.pick(&[16, 64, 64, 256, 256, 1024, 4096]);
    let mut b = Builder::new(Func::new(format!("fuzz_{seed}")));
    let mut special = |id: Special| b.value(Opcode::Special, [], [id.into()], Some(Type::U32), Loc::NONE);
    let [x, y, z] = [Special::CtaidX, Special::CtaidY, Special::CtaidZ].map(&mut special);
    let [columns, rows] = [Special::NctaidX, Special::NctaidY].map(&mut special);
    let line = b.value(Opcode::Fma, [z, rows, y], [], None, Loc::NONE);
    let program = b.value(Opcode::Fma, [line, columns, x], [], None, Loc::NONE);
    let mut g = Gen {
        random,
        b,
        arguments: Vec::new(),
        grid,
        program,
        tiles: Vec::new(),
        scalars: [x, y, z, columns, program].map(|value| (value, Element::U32)).to_vec(),
        inputs: Vec::new(),
        own: Vec::new(),
        rereads: false,
        left: budget,
        depth: 0,
        repeated: false,
        limit,
        home: shape(&[1]),
    };
    g.home = g.some_shape();
    for element in [Element::U32, Element::I32, Element::F32] {
        let bits = sample(&mut g.random, element);
        let value = g.parameter("s", element, bits);
        g.scalars.push((value, element));
    }
    while g.left > 0 {
        g.statement();
    }
    // What was computed last has seen the most.
    let count = 2 + g.random.index(2);
    let mut last: Vec<Tile> = g.tiles.iter().rev().take(count).copied().collect();
    if last.is_empty() {
        last.push(g.exact());
    }
    for tile in last {
        g.store(tile);
    }
    Case { seed, budget, func: g.b.finish(), grid, arguments: g.arguments, rereads: g.rereads }
}

impl Gen {
    pub(super) fn emit(
        &mut self,
        code: Opcode,
        operands: &[Value],
        attrs: &[Attr],
        ty: Option<Type>,
    ) -> Value {
        self.b.value(code, operands.iter().copied(), attrs.iter().cloned(), ty, Loc::NONE)
    }

    pub(super) fn constant(&mut self, element: Element, bits: u64) -> Value {
        self.b.constant(Type::Scalar(element), bits, Loc::NONE)
    }

    pub(super) fn programs(&self) -> u32 {
        self.grid.iter().product()
    }

    /// A new shape: ranks 1 to 3, extents of all kinds.
    fn some_shape(&mut self) -> Shape {
        const EXTENTS: [u32; 20] =
            [1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 32, 33, 48, 64, 100, 128, 192, 511, 1024];
        let rank = 1 + self.random.index(3);
        let mut extents = Vec::new();
        let mut left = self.limit;
        for _ in 0..rank {
            let fit: Vec<u32> = EXTENTS.into_iter().filter(|&extent| extent <= left).collect();
            let extent = self.random.pick(&fit);
            left /= extent;
            extents.push(extent);
        }
        extents.rotate_left(self.random.index(rank));
        shape(&extents)
    }

    pub(super) fn push(&mut self, tile: Tile) -> Tile {
        self.tiles.push(tile);
        tile
    }

    /// A tile made by an op, and kept.
    pub(super) fn tile(&mut self, code: Opcode, operands: &[Value], attrs: &[Attr], like: Tile) -> Tile {
        let value = self.emit(code, operands, attrs, Some(Type::Tile(like.element, like.shape)));
        self.push(Tile { value, ..like })
    }

    /// A tile of which every element is known exactly; one of the last, most of the time.
    pub(super) fn exact(&mut self) -> Tile {
        let all: Vec<Tile> = self.tiles.iter().copied().filter(|tile| tile.rule == Rule::Exact).collect();
        if all.is_empty() || self.random.once_in(8) {
            let element = self.random.pick(&ELEMENTS);
            return self.load(self.home, element);
        }
        let recent = if self.random.once_in(3) { all.len() } else { all.len().min(3) };
        all[all.len() - 1 - self.random.index(recent)]
    }

    /// An exact tile of this type.
    pub(super) fn exact_of(&mut self, element: Element, shape: Shape) -> Tile {
        let fits = |tile: &&Tile| tile.rule == Rule::Exact && tile.shape == shape;
        let all: Vec<Tile> = self.tiles.iter().filter(fits).copied().collect();
        let same: Vec<Tile> = all.iter().copied().filter(|tile| tile.element == element).collect();
        if !same.is_empty() {
            return same[same.len() - 1 - self.random.index(same.len().min(3))];
        }
        if all.is_empty() || self.random.once_in(2) {
            return self.load(shape, element);
        }
        let tile = self.random.pick(&all);
        self.converted(tile, element)
    }

    /// The same tile with another element.
    pub(super) fn converted(&mut self, tile: Tile, element: Element) -> Tile {
        if tile.element == element {
            return tile;
        }
        let from = tile.element;
        let small = tile.small && !element.is_bool() && (element.is_signed() || !from.is_signed());
        let results = self.map(&[tile], &[element], |body, args| {
            let ty = Some(Type::Scalar(element));
            vec![if converts(from, element) {
                body.b.value(Opcode::Cvt, [args[0]], [], ty, Loc::NONE)
            } else {
                let (mut x, mut from) = (args[0], from);
                if only_converts(from) {
                    from = Element::F32;
                    x = body.b.value(Opcode::Cvt, [x], [], Some(Type::F32), Loc::NONE);
                }
                let half = body.constant(from, real(from, 0.5));
                body.b.value(Opcode::Cmp, [x, half], [Cmp::Lt.into()], None, Loc::NONE)
            }]
        });
        let tile = Tile { small, ..results[0] };
        self.push(tile)
    }

    /// A `map` whose body is built by a function from arguments to results.
    pub(super) fn map(
        &mut self,
        inputs: &[Tile],
        gives: &[Element],
        build: impl FnOnce(&mut Body<'_>, &[Value]) -> Vec<Value>,
    ) -> Vec<Tile> {
        let shape = inputs[0].shape;
        let types: Vec<Type> = gives.iter().map(|&element| Type::Tile(element, shape)).collect();
        let op = self.b.push(Opcode::Map, inputs.iter().map(|tile| tile.value), [], types, Loc::NONE);
        let elements: Vec<Element> = inputs.iter().map(|tile| tile.element).collect();
        self.body(op, &elements, build);
        self.results(op)
    }

    /// Fills the region of an op that computes single elements.
    fn body(&mut self, op: Op, takes: &[Element], build: impl FnOnce(&mut Body<'_>, &[Value]) -> Vec<Value>) {
        let region = self.b.open(op);
        let args: Vec<Value> =
            takes.iter().map(|&element| self.b.func.add_arg(region, Type::Scalar(element))).collect();
        let pool = args.iter().copied().zip(takes.iter().copied()).collect();
        let mut body = Body { b: &mut self.b, random: &mut self.random, pool, depth: 0 };
        let values = build(&mut body, &args);
        self.b.push(Opcode::Yield, values, [], [], Loc::NONE);
        self.b.close();
    }

    /// The tiles that an op gives, exact.
    pub(super) fn results(&self, op: Op) -> Vec<Tile> {
        let tile = |&value: &Value| match self.b.func.ty(value) {
            Type::Tile(element, shape) => {
                Some(Tile { value, element, shape, rule: Rule::Exact, small: false })
            }
            _ => None,
        };
        self.b.func.op(op).results.iter().filter_map(tile).collect()
    }

    pub(super) fn statement(&mut self) {
        self.left = self.left.saturating_sub(1);
        match self.random.below(25) {
            0..=1 => {
                let (shape, element) = (self.home, self.random.pick(&ELEMENTS));
                self.load(shape, element);
            }
            2..=6 => self.compute(),
            7..=8 => self.combine(false),
            9..=10 => self.combine(true),
            11..=13 => self.rearrange(),
            14 => self.gather(),
            15 if !self.repeated => self.scatter(),
            16 => self.atomic(),
            17 if self.limit >= 1024 && self.random.once_in(2) => {
                if self.random.once_in(3) {
                    self.dot_chain();
                } else {
                    self.dot_loop();
                }
            }
            17 => {
                // One after the other, they take turns with shared memory.
                for _ in 0..self.random.pick(&[1, 1, 1, 2, 3, 4]) {
                    self.dot();
                }
            }
            18 => self.scalar(),
            19 => self.approximate(),
            20 if !self.repeated => {
                let tile = self.exact();
                self.store(tile);
            }
            21 if self.depth < 2 => self.branch(),
            22 if self.depth == 0 && self.limit >= 32 && self.random.once_in(3) => self.rows(),
            22..=23 if self.depth < 2 => self.repeat(),
            24 => self.use_own(),
            _ => self.make(),
        }
    }

    /// A tile out of nothing but a scalar.
    fn make(&mut self) {
        let shape = if self.random.once_in(3) { self.some_shape() } else { self.home };
        let like = |element| Tile { value: Value(0), element, shape, rule: Rule::Exact, small: false };
        if self.random.once_in(2) {
            let axis = self.axis(shape);
            self.tile(Opcode::Iota, &[], &[axis.into()], like(Element::U32));
        } else {
            let (value, element) = self.random.pick(&self.scalars);
            self.tile(Opcode::Splat, &[value], &[], like(element));
        }
    }

    fn axis(&mut self, shape: Shape) -> Axis {
        Axis(u8::try_from(self.random.index(shape.rank())).unwrap_or(0))
    }

    /// A map with random code.
    fn compute(&mut self) {
        let first = self.exact();
        let mut inputs = vec![first];
        for _ in 0..self.random.below(3) {
            let element = self.random.pick(&ELEMENTS);
            inputs.push(self.exact_of(element, first.shape));
        }
        let gives: Vec<Element> =
            (0..1 + self.random.below(2)).map(|_| self.random.pick(&ELEMENTS)).collect();
        let outside: Vec<(Value, Element)> = (0..2).map(|_| self.random.pick(&self.scalars)).collect();
        let count = 2 + self.random.below(6);
        let elements = gives.clone();
        let results = self.map(&inputs, &gives, |body, _| {
            body.pool.extend(outside);
            body.statements(count);
            elements.iter().map(|&element| body.of(element)).collect()
        });
        self.tiles.extend(results);
    }

    /// A function of which hardware knows only the first digits.
    fn approximate(&mut self) {
        let tile = self.exact();
        let tile = self.converted(tile, Element::F32);
        let code = self.random.pick(&[
            Opcode::Ex2,
            Opcode::Lg2,
            Opcode::Rsqrt,
            Opcode::Sin,
            Opcode::Cos,
            Opcode::Tanh,
        ]);
        let results = self.map(&[tile], &[Element::F32], |body, args| {
            // Where it is steep or has no value, approximations differ.
            let (low, high) =
                if matches!(code, Opcode::Lg2 | Opcode::Rsqrt) { (1.0, 9.0) } else { (-3.0, 3.0) };
            let x = clamped(body, args[0], low, high);
            vec![body.b.value(code, [x], [], None, Loc::NONE)]
        });
        self.push(Tile { rule: Rule::Near { absolute: 1e-3, relative: 1e-3 }, ..results[0] });
    }

    /// A reduction or a scan.
    fn combine(&mut self, scan: bool) {
        let base = self.exact();
        let axis = self.axis(base.shape);
        let kind = self.random.below(8);
        match kind {
            0..=1 => {
                let element = self.random.pick(&[Element::I32, Element::U32, Element::I64, Element::I8]);
                let codes = [
                    Opcode::Add,
                    Opcode::Xor,
                    Opcode::Min,
                    Opcode::Max,
                    Opcode::And,
                    Opcode::Or,
                    Opcode::Mul,
                ];
                let code = self.random.pick(&codes);
                let tile = self.converted(base, element);
                self.combination(scan, axis, &[tile], |body, a, b| {
                    vec![body.b.value(code, [a[0], b[0]], [], None, Loc::NONE)]
                });
            }
            2 => {
                let code = self.random.pick(&[Opcode::And, Opcode::Or, Opcode::Xor]);
                let tile = self.converted(base, Element::Bool);
                self.combination(scan, axis, &[tile], |body, a, b| {
                    vec![body.b.value(code, [a[0], b[0]], [], None, Loc::NONE)]
                });
            }
            3 => {
                let element = self.random.pick(&[Element::F32, Element::F16, Element::BF16]);
                let code = self.random.pick(&[Opcode::Min, Opcode::Max]);
                let tile = self.converted(base, element);
                self.combination(scan, axis, &[tile], |body, a, b| {
                    vec![body.b.value(code, [a[0], b[0]], [], None, Loc::NONE)]
                });
            }
            4 => {
                // The last one that is not zero: associative, and the order matters.
                let element = self.random.pick(&[Element::I32, Element::U32, Element::I64]);
                let tile = self.converted(base, element);
                self.combination(scan, axis, &[tile], |body, a, b| {
                    let zero = body.constant(element, 0);
                    let is = body.b.value(Opcode::Cmp, [b[0], zero], [Cmp::Ne.into()], None, Loc::NONE);
                    vec![body.b.value(Opcode::Select, [is, b[0], a[0]], [], None, Loc::NONE)]
                });
            }
            5 => {
                // x -> a * x + b, one after the other.
                let tile = self.converted(base, Element::U32);
                let other = self.exact_of(Element::U32, base.shape);
                self.combination(scan, axis, &[tile, other], |body, a, b| {
                    let factor = body.b.value(Opcode::Mul, [a[0], b[0]], [], None, Loc::NONE);
                    let offset = body.b.value(Opcode::Fma, [a[1], b[0], b[1]], [], None, Loc::NONE);
                    vec![factor, offset]
                });
            }
            6 => {
                // The largest and where it is; the first of equals.
                let tile = self.converted(base, Element::I32);
                let place = Tile { element: Element::U32, small: false, ..tile };
                let place = self.tile(Opcode::Iota, &[], &[axis.into()], place);
                self.combination(scan, axis, &[tile, place], |body, a, b| {
                    let compare = |body: &mut Body<'_>, x, y, cmp: Cmp| {
                        body.b.value(Opcode::Cmp, [x, y], [cmp.into()], None, Loc::NONE)
                    };
                    let larger = compare(body, b[0], a[0], Cmp::Gt);
                    let equal = compare(body, b[0], a[0], Cmp::Eq);
                    let earlier = compare(body, b[1], a[1], Cmp::Lt);
                    let tied = body.b.value(Opcode::And, [equal, earlier], [], None, Loc::NONE);
                    let take = body.b.value(Opcode::Or, [larger, tied], [], None, Loc::NONE);
                    let pick = |body: &mut Body<'_>, i: usize| {
                        body.b.value(Opcode::Select, [take, b[i], a[i]], [], None, Loc::NONE)
                    };
                    vec![pick(body, 0), pick(body, 1)]
                });
            }
            _ => self.sum(scan, axis, base),
        }
    }

    /// A sum of floats: of small integers it is exact in any order, of others nearly the same.
    fn sum(&mut self, scan: bool, axis: Axis, base: Tile) {
        let length = base.shape.extents()[usize::from(axis.0)];
        let exact = base.small || self.random.once_in(2);
        let tile = if base.small {
            self.converted(base, Element::F32)
        } else if exact {
            self.load_small(base.shape, Element::F32)
        } else {
            let tile = self.converted(base, Element::F32);
            self.map(&[tile], &[Element::F32], |body, args| vec![clamped(body, args[0], -1.0, 1.0)])[0]
        };
        let before = self.tiles.len();
        self.combination(scan, axis, &[tile], |body, a, b| {
            vec![body.b.value(Opcode::Add, [a[0], b[0]], [], None, Loc::NONE)]
        });
        if !exact {
            let absolute = 1e-5 * f64::from(length) + 1e-5;
            for tile in &mut self.tiles[before..] {
                tile.rule = Rule::Near { absolute, relative: 1e-5 };
            }
        }
    }

    pub(super) fn combination(
        &mut self,
        scan: bool,
        axis: Axis,
        tiles: &[Tile],
        build: impl FnOnce(&mut Body<'_>, &[Value], &[Value]) -> Vec<Value>,
    ) {
        let whole = tiles[0].shape;
        let after = if scan { Some(whole) } else { whole.with(usize::from(axis.0), 1) }.unwrap_or(whole);
        let types: Vec<Type> = tiles.iter().map(|tile| Type::Tile(tile.element, after)).collect();
        let code = if scan { Opcode::TileScan } else { Opcode::TileReduce };
        let mut attrs: Vec<Attr> = vec![axis.into()];
        if scan {
            attrs.push(Flags::REVERSE.when(self.random.once_in(2)).into());
        }
        let op = self.b.push(code, tiles.iter().map(|tile| tile.value), attrs, types, Loc::NONE);
        let elements: Vec<Element> = tiles.iter().chain(tiles).map(|tile| tile.element).collect();
        let half = tiles.len();
        self.body(op, &elements, |body, args| build(body, &args[..half], &args[half..]));
        let results = self.results(op);
        self.tiles.extend(results);
    }

    /// Elements to other places.
    fn rearrange(&mut self) {
        let tile = if self.tiles.is_empty() { self.exact() } else { self.random.pick(&self.tiles) };
        let extents = tile.shape.extents().to_vec();
        let axis = self.random.index(extents.len());
        let at = Axis(u8::try_from(axis).unwrap_or(0));
        match self.random.below(7) {
            0 => {
                let mut axes: Vec<u8> = (0..).take(extents.len()).collect();
                for i in (1..axes.len()).rev() {
                    axes.swap(i, self.random.index(i + 1));
                }
                let turned: Vec<u32> = axes.iter().map(|&axis| extents[usize::from(axis)]).collect();
                let Some(axes) = Axes::new(&axes) else { return };
                self.tile(
                    Opcode::Transpose,
                    &[tile.value],
                    &[axes.into()],
                    Tile { shape: shape(&turned), ..tile },
                );
            }
            1 => {
                let to = self.reshaped(&extents, axis);
                self.tile(Opcode::Reshape, &[tile.value], &[], Tile { shape: to, ..tile });
            }
            2 if tile.shape.elements() <= self.limit => {
                let like = |other: &&Tile| {
                    other.element == tile.element && other.shape == tile.shape && other.rule == tile.rule
                };
                let all: Vec<Tile> = self.tiles.iter().filter(like).copied().collect();
                let other = if all.is_empty() { tile } else { self.random.pick(&all) };
                let mut joined = extents;
                joined[axis] *= 2;
                let to = Tile { shape: shape(&joined), small: tile.small && other.small, ..tile };
                self.tile(Opcode::Cat, &[tile.value, other.value], &[at.into()], to);
            }
            3 => {
                self.part(tile, axis, None);
            }
            4 => self.take(tile, axis),
            _ => {
                // Down to one along an axis, and up again.
                let one = if extents[axis] == 1 { tile } else { self.part(tile, axis, Some(1)) };
                let mut grown = one.shape.extents().to_vec();
                let room = (self.limit / one.shape.elements()).max(1);
                grown[axis] = if room >= extents[axis] && self.random.once_in(2) {
                    extents[axis]
                } else {
                    1 + self.random.below(room.min(70))
                };
                self.tile(Opcode::Broadcast, &[one.value], &[], Tile { shape: shape(&grown), ..one });
            }
        }
    }

    /// Slices of a tile along an axis.
    fn part(&mut self, tile: Tile, axis: usize, count: Option<u32>) -> Tile {
        let mut extents = tile.shape.extents().to_vec();
        let whole = extents[axis];
        let count = count.unwrap_or_else(|| 1 + self.random.below(whole));
        let start = self.random.below(whole - count + 1);
        extents[axis] = count;
        let at = Axis(u8::try_from(axis).unwrap_or(0));
        let to = Tile { shape: shape(&extents), ..tile };
        self.tile(Opcode::Part, &[tile.value], &[at.into(), Index(start).into()], to)
    }

    /// Elements at indices along an axis, of which some are outside.
    fn take(&mut self, tile: Tile, axis: usize) {
        let mut extents = tile.shape.extents().to_vec();
        let room = self.limit / (tile.shape.elements() / extents[axis]);
        extents[axis] = 1 + self.random.below(room.clamp(1, 70));
        let indices = self.exact_of(Element::U32, shape(&extents));
        let [within, _] = self.distances(indices, tile.shape.extents()[axis], Element::U32, 0);
        let at = Axis(u8::try_from(axis).unwrap_or(0));
        self.tile(
            Opcode::Take,
            &[tile.value, within.value],
            &[at.into()],
            Tile { shape: shape(&extents), ..tile },
        );
    }

    /// As many elements with other extents.
    fn reshaped(&mut self, extents: &[u32], axis: usize) -> Shape {
        let mut to = extents.to_vec();
        match self.random.below(4) {
            0 => to = vec![extents.iter().product()],
            1 if to.len() < 4 => to.insert(axis, 1),
            2 if to.len() > 1 && axis > 0 => {
                let extent = to.remove(axis);
                to[axis - 1] *= extent;
            }
            _ => {
                let divisors: Vec<u32> =
                    (2..=extents[axis]).filter(|d| extents[axis].is_multiple_of(*d)).collect();
                if !divisors.is_empty() && to.len() < 4 {
                    let divisor = self.random.pick(&divisors);
                    to[axis] /= divisor;
                    to.insert(axis + 1, divisor);
                }
            }
        }
        shape(&to)
    }

    /// A scalar: an element of a tile, one from memory, or computed from others.
    fn scalar(&mut self) {
        match self.random.below(3) {
            0 => {
                let mut tile = self.exact();
                for axis in 0..tile.shape.rank() {
                    if tile.shape.extents()[axis] > 1 {
                        tile = self.part(tile, axis, Some(1));
                    }
                }
                let value = self.emit(Opcode::Item, &[tile.value], &[], Some(Type::Scalar(tile.element)));
                self.scalars.push((value, tile.element));
            }
            1 => self.load_scalar(),
            _ => {
                let pool = self.scalars.clone();
                let known = pool.len();
                let mut body = Body { b: &mut self.b, random: &mut self.random, pool, depth: 1 };
                body.statements(2);
                let new = body.pool.split_off(known);
                self.scalars.extend(new);
            }
        }
    }

    /// What an atomic may do to these elements.
    pub(super) fn some_combine(&mut self, element: Element) -> Combine {
        if element.is_float() {
            return Combine::Add;
        }
        self.random.pick(&[Combine::Add, Combine::Min, Combine::Max, Combine::And, Combine::Or, Combine::Xor])
    }
}

/// A float between two; the lower one for NaN.
pub(super) fn clamped(body: &mut Body<'_>, x: Value, low: f64, high: f64) -> Value {
    let low = body.constant(Element::F32, real(Element::F32, low));
    let high = body.constant(Element::F32, real(Element::F32, high));
    let above = body.b.value(Opcode::Max, [x, low], [], None, Loc::NONE);
    body.b.value(Opcode::Min, [above, high], [], None, Loc::NONE)
}
