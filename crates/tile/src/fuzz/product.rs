//! Matrix products: one, in a loop along k, and one that takes another's result.

use tilewright_ir::{Axes, Element, Flags, Loc, Opcode, Type, Value};

use super::Rule;
use super::program::{Gen, Tile, clamped, shape};

impl Gen {
    /// A matrix product of small integers, or of many matrices of them.
    pub(super) fn dot(&mut self) {
        const EXTENTS: [u32; 12] = [1, 2, 3, 7, 8, 16, 16, 17, 24, 32, 48, 64];
        let (factor, sum) = self.random.pick(&[
            (Element::F16, Element::F32),
            (Element::F16, Element::F16),
            (Element::BF16, Element::F32),
            (Element::F32, Element::F32),
            (Element::I8, Element::I32),
        ]);
        // Few would be for tensor cores by chance.
        let whole = if self.random.once_in(2) { 16 } else { 1 };
        let [m, n, k] = [(); 3].map(|()| {
            let fits = |e: &u32| e * e <= self.limit.max(16 * 16) && e.is_multiple_of(whole);
            let fit: Vec<u32> = EXTENTS.into_iter().filter(fits).collect();
            self.random.pick(&fit)
        });
        // As many as threads can exchange through shared memory, as numbers of 64 bits.
        let room = (16384 / (m * n).max(m * k).max(k * n)).min(8);
        let many: &[u32] = match self.random.below(3) {
            0 => &[1 + self.random.below(room)],
            _ => &[],
        };
        let [a, b, c] = [([m, k], factor), ([k, n], factor), ([m, n], sum)]
            .map(|(matrix, element)| self.load_small(shape(&[many, &matrix].concat()), element));
        let flags = Flags::TF32.when(factor == Element::F32 && self.random.once_in(2));
        let to = Tile { small: false, ..c };
        self.tile(Opcode::Dot, &[a.value, b.value, c.value], &[flags.into()], to);
    }

    /// A product summed up along k by a loop, from matrices as libraries have them: what a compiler can load ahead.
    pub(super) fn dot_loop(&mut self) {
        const EXTENTS: [(u32, u32, u32); 6] =
            [(64, 8, 64), (64, 64, 64), (64, 24, 16), (64, 32, 32), (128, 32, 32), (32, 16, 16)];
        let Some(swap) = Axes::new(&[1, 0]) else { return };
        let (element, sum) = self.random.pick(&[
            (Element::F16, Element::F32),
            (Element::F16, Element::F16),
            (Element::BF16, Element::F32),
        ]);
        let (m, n, k) = self.random.pick(&EXTENTS);
        // Sums in f16 of more than two pieces may need more bits than they have.
        let pieces = 1 + self.random.below(if sum == Element::F16 { 2 } else { 6 });
        let depth = k * pieces - self.random.below(9);
        let turned = self.random.once_in(2);
        let height = m * self.programs() - self.random.below(9);
        let a = self.matrix([height, depth], element);
        let b = self.matrix(if turned { [n, depth] } else { [depth, n] }, element);
        let like =
            Tile { value: Value(0), element: sum, shape: shape(&[m, n]), rule: Rule::Exact, small: false };
        let from = if self.random.once_in(2) {
            let nothing = self.constant(sum, 0);
            self.tile(Opcode::Splat, &[nothing], &[], like).value
        } else {
            self.load_small(like.shape, sum).value
        };
        let [zero, one, rows, deep] = [0, 1, m, k].map(|n| self.constant(Element::U32, u64::from(n)));
        let rounds = self.random.below(pieces + 2);
        let rounds = self.constant(Element::U32, u64::from(rounds));
        let row = self.emit(Opcode::Mul, &[self.program, rows], &[], None);
        let row = self.emit(Opcode::Bitcast, &[row], &[], Some(Type::I32));
        let none = self.constant(Element::I32, 0);
        let ty = Type::Tile(sum, like.shape);
        let op = self.b.push(Opcode::For, [zero, rounds, one, from], [], [ty], Loc::NONE);
        let region = self.b.open(op);
        let round = self.b.func.add_arg(region, Type::U32);
        let sums = self.b.func.add_arg(region, ty);
        let at = self.emit(Opcode::Mul, &[round, deep], &[], None);
        let at = self.emit(Opcode::Bitcast, &[at], &[], Some(Type::I32));
        let left = self.load_box(&a, [row, at], shape(&[m, k]));
        let right = if turned {
            let right = self.load_box(&b, [none, at], shape(&[n, k]));
            let ty = Type::Tile(element, shape(&[k, n]));
            self.emit(Opcode::Transpose, &[right], &[swap.into()], Some(ty))
        } else {
            self.load_box(&b, [at, none], shape(&[k, n]))
        };
        // Now and then something is done to the sums in every round.
        let negate = self.random.once_in(3);
        let sums = if negate {
            let sums = Tile { value: sums, ..like };
            let negative = self.map(&[sums], &[sum], |body, args| {
                vec![body.b.value(Opcode::Neg, [args[0]], [], None, Loc::NONE)]
            });
            negative[0].value
        } else {
            sums
        };
        let sum = self.emit(Opcode::Dot, &[left, right, sums], &[], Some(ty));
        self.b.push(Opcode::Yield, [sum], [], [], Loc::NONE);
        self.b.close();
        let results = self.results(op);
        self.tiles.extend(results);
    }

    /// A product of a product, summed up by a loop, as in attention: the first left factor is the same in every round, the second one is
    /// computed. Each program has its own right factors, some rows of a matrix, from a pointer of its own.
    pub(super) fn dot_chain(&mut self) {
        const EXTENTS: [(u32, u32, u32, u32); 6] = [
            (64, 16, 16, 16),
            (64, 64, 32, 24),
            (128, 32, 64, 64),
            (64, 32, 48, 8),
            (32, 16, 16, 16),
            (128, 128, 32, 16),
        ];
        let element = self.random.pick(&[Element::F16, Element::BF16]);
        let (m, k, n, width) = self.random.pick(&EXTENTS);
        let pieces = 1 + self.random.below(4);
        let keys = n * pieces - self.random.below(9);
        let query = self.load_small(shape(&[m, k]), element).value;
        let [first, second] = [k, width].map(|columns| self.own_matrix([keys, columns], element));
        let sums = |n: u32| Type::Tile(Element::F32, shape(&[m, n]));
        let nothing = self.constant(Element::F32, 0);
        let none = self.emit(Opcode::Splat, &[nothing], &[], Some(sums(width)));
        let [zero, one, deep] = [0, 1, n].map(|n| self.constant(Element::U32, u64::from(n)));
        let start = self.constant(Element::I32, 0);
        let rounds = self.random.below(pieces + 2);
        let rounds = self.constant(Element::U32, u64::from(rounds));
        let op = self.b.push(Opcode::For, [zero, rounds, one, none], [], [sums(width)], Loc::NONE);
        let region = self.b.open(op);
        let round = self.b.func.add_arg(region, Type::U32);
        let sum = self.b.func.add_arg(region, sums(width));
        let at = self.emit(Opcode::Mul, &[round, deep], &[], None);
        let at = self.emit(Opcode::Bitcast, &[at], &[], Some(Type::I32));
        let Some(swap) = Axes::new(&[1, 0]) else { return };
        let right = self.load_box(&first, [at, start], shape(&[n, k]));
        let right =
            self.emit(Opcode::Transpose, &[right], &[swap.into()], Some(Type::Tile(element, shape(&[k, n]))));
        let scores = self.emit(Opcode::Splat, &[nothing], &[], Some(sums(n)));
        let scores = self.emit(Opcode::Dot, &[query, right, scores], &[], Some(sums(n)));
        let scores = Tile {
            value: scores,
            element: Element::F32,
            shape: shape(&[m, n]),
            rule: Rule::Exact,
            small: false,
        };
        let weights = self.map(&[scores], &[element], |body, args| {
            let low = clamped(body, args[0], -2.0, 2.0);
            vec![body.b.value(Opcode::Cvt, [low], [], Some(Type::Scalar(element)), Loc::NONE)]
        });
        let values = self.load_box(&second, [at, start], shape(&[n, width]));
        let sum = self.emit(Opcode::Dot, &[weights[0].value, values, sum], &[], Some(sums(width)));
        self.b.push(Opcode::Yield, [sum], [], [], Loc::NONE);
        self.b.close();
        let results = self.results(op);
        self.tiles.extend(results);
    }
}
