//! Statements that hold others: branches and loops, and what those hand on.

use tilewright_ir::{Axis, Cmp, Element, Loc, Op, Opcode, Region, Type, Value};

use super::element::sample;
use super::program::{Gen, Tile, shape};

/// How much there was before a region.
#[derive(Debug, Clone, Copy)]
struct Mark {
    tiles: usize,
    scalars: usize,
    inputs: usize,
    own: usize,
}

impl Gen {
    /// Statements in a region of their own; what they make is forgotten when `end` has chosen from it.
    fn block(&mut self, mark: Mark, end: impl FnOnce(&mut Gen) -> Vec<Value>, code: Opcode) {
        self.depth += 1;
        for _ in 0..1 + self.random.below(3) {
            self.statement();
        }
        self.depth -= 1;
        let values = end(self);
        self.b.push(code, values, [], [], Loc::NONE);
        self.b.close();
        self.tiles.truncate(mark.tiles);
        self.scalars.truncate(mark.scalars);
        self.inputs.truncate(mark.inputs);
        self.own.truncate(mark.own);
    }

    fn mark(&self) -> Mark {
        Mark {
            tiles: self.tiles.len(),
            scalars: self.scalars.len(),
            inputs: self.inputs.len(),
            own: self.own.len(),
        }
    }

    /// Tiles that control flow hands on.
    fn carried(&mut self) -> Vec<Tile> {
        (0..1 + self.random.below(2)).map(|_| self.exact()).collect()
    }

    /// One of two ways.
    pub(super) fn branch(&mut self) {
        let carried = self.carried();
        let types: Vec<Type> = carried.iter().map(|tile| Type::Tile(tile.element, tile.shape)).collect();
        let (value, element) = self.random.pick(&self.scalars);
        let condition = if element.is_bool() {
            value
        } else {
            // Floats of 8 bits are stored and converted, and nothing else.
            let (value, element) = match element {
                Element::E4M3 | Element::E5M2 => {
                    (self.emit(Opcode::Cvt, &[value], &[], Some(Type::Scalar(Element::F32))), Element::F32)
                }
                _ => (value, element),
            };
            let bits = sample(&mut self.random, element);
            let (other, cmp) = (self.constant(element, bits), self.random.pick(Cmp::ALL));
            self.emit(Opcode::Cmp, &[value, other], &[cmp.into()], None)
        };
        let op = self.b.push(Opcode::If, [condition], [], types, Loc::NONE);
        for _ in 0..2 {
            let mark = self.mark();
            self.b.open(op);
            let like = carried.clone();
            self.block(mark, |g| g.alike(&like), Opcode::Yield);
        }
        let results = self.results(op);
        self.tiles.extend(results);
    }

    /// Tiles of the same types, from what there is.
    fn alike(&mut self, like: &[Tile]) -> Vec<Value> {
        like.iter().map(|tile| self.exact_of(tile.element, tile.shape).value).collect()
    }

    /// A number of rounds, at most three.
    fn rounds(&mut self) -> Value {
        let words: Vec<Value> =
            self.scalars.iter().filter(|(_, e)| *e == Element::U32).map(|(v, _)| *v).collect();
        if words.is_empty() || self.random.once_in(2) {
            let count = u64::from(self.random.below(4));
            return self.constant(Element::U32, count);
        }
        let (word, few) = (self.random.pick(&words), self.constant(Element::U32, 3));
        self.emit(Opcode::And, &[word, few], &[], None)
    }

    pub(super) fn repeat(&mut self) {
        let carried = self.carried();
        let types: Vec<Type> = carried.iter().map(|tile| Type::Tile(tile.element, tile.shape)).collect();
        let rounds = self.rounds();
        let outer = std::mem::replace(&mut self.repeated, true);
        let op = if self.random.once_in(4) {
            self.while_loop(&carried, &types, rounds)
        } else {
            let (zero, step) = (self.constant(Element::U32, 0), u64::from(1 + self.random.below(2)));
            let step = self.constant(Element::U32, step);
            let mut operands = vec![zero, rounds, step];
            operands.extend(carried.iter().map(|tile| tile.value));
            let op = self.b.push(Opcode::For, operands, [], types.clone(), Loc::NONE);
            let mark = self.mark();
            let region = self.b.open(op);
            let counter = self.b.func.add_arg(region, Type::U32);
            self.scalars.push((counter, Element::U32));
            self.arguments_of(region, &carried);
            let like = carried.clone();
            self.block(mark, |g| g.alike(&like), Opcode::Yield);
            op
        };
        self.repeated = outer;
        let results = self.results(op);
        self.tiles.extend(results);
    }

    fn arguments_of(&mut self, region: Region, carried: &[Tile]) -> Vec<Value> {
        let mut values = Vec::new();
        for tile in carried {
            let value = self.b.func.add_arg(region, Type::Tile(tile.element, tile.shape));
            values.push(value);
            self.tiles.push(Tile { value, small: false, ..*tile });
        }
        values
    }

    fn while_loop(&mut self, carried: &[Tile], types: &[Type], rounds: Value) -> Op {
        let mut all = vec![Type::U32];
        all.extend(types);
        let operands = [rounds].into_iter().chain(carried.iter().map(|tile| tile.value));
        let op = self.b.push(Opcode::While, operands, [], all, Loc::NONE);
        let mark = self.mark();
        let test = self.b.open(op);
        let left = self.b.func.add_arg(test, Type::U32);
        let mut passed = self.arguments_of(test, carried);
        let zero = self.constant(Element::U32, 0);
        let goes_on = self.emit(Opcode::Cmp, &[left, zero], &[Cmp::Ne.into()], None);
        passed.splice(0..0, [goes_on, left]);
        self.b.push(Opcode::Condition, passed, [], [], Loc::NONE);
        self.b.close();
        self.tiles.truncate(mark.tiles);
        let body = self.b.open(op);
        let left = self.b.func.add_arg(body, Type::U32);
        self.scalars.push((left, Element::U32));
        self.arguments_of(body, carried);
        let one = self.constant(Element::U32, 1);
        let next = self.emit(Opcode::Sub, &[left, one], &[], None);
        let like = carried.to_vec();
        let end = |g: &mut Gen| [next].into_iter().chain(g.alike(&like)).collect();
        self.block(mark, end, Opcode::Yield);
        op
    }

    /// Rows of a matrix, one after the other: how far each element, times the largest of its row, is from the row's sum, all added up.
    pub(super) fn rows(&mut self) {
        let fit: Vec<u32> =
            [32, 96, 256, 512, 1000, 1024].into_iter().filter(|&columns| columns <= self.limit).collect();
        let (columns, element) =
            (self.random.pick(&fit), self.random.pick(&[Element::F32, Element::BF16, Element::I32]));
        let (rows, cut) = (1 + self.random.below(7), self.random.pick(&[0, 0, 8, 3]));
        let from = self.matrix([rows, columns - cut], element);
        let wide = if element == Element::I32 { Element::I32 } else { Element::F32 };
        let sums = self.exact_of(wide, shape(&[1, columns]));
        let ty = Type::Tile(wide, sums.shape);
        let (rounds, step) = (u64::from(self.random.below(rows + 3)), u64::from(1 + self.random.below(2)));
        let [zero, rounds, step] = [0, rounds, step].map(|n| self.constant(Element::U32, n));
        let left = self.constant(Element::I32, 0);
        let op = self.b.push(Opcode::For, [zero, rounds, step, sums.value], [], [ty], Loc::NONE);
        let mark = self.mark();
        let region = self.b.open(op);
        let round = self.b.func.add_arg(region, Type::U32);
        let sums = Tile { value: self.b.func.add_arg(region, ty), ..sums };
        let row = self.emit(Opcode::Bitcast, &[round], &[], Some(Type::I32));
        let value = self.load_box(&from, [row, left], sums.shape);
        let row = self.converted(Tile { value, element, ..sums }, wide);
        let [sum, most] = [Opcode::Add, Opcode::Max].map(|code| {
            self.combination(false, Axis(1), &[row], |body, a, b| {
                vec![body.b.value(code, [a[0], b[0]], [], None, Loc::NONE)]
            });
            let small = self.tiles[self.tiles.len() - 1];
            self.tile(Opcode::Broadcast, &[small.value], &[], Tile { small: false, ..sums })
        });
        let next = self.map(&[sums, row, most, sum], &[wide], |body, args| {
            let product = body.b.value(Opcode::Mul, [args[1], args[2]], [], None, Loc::NONE);
            let distance = body.b.value(Opcode::Sub, [product, args[3]], [], None, Loc::NONE);
            vec![body.b.value(Opcode::Add, [args[0], distance], [], None, Loc::NONE)]
        });
        let outer = std::mem::replace(&mut self.repeated, true);
        self.block(mark, |_| vec![next[0].value], Opcode::Yield);
        self.repeated = outer;
        let results = self.results(op);
        self.tiles.extend(results);
    }
}
