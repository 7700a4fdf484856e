//! Random programs of nested loops and branches: the PTX stores what the IR means.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod machine;

use std::collections::HashMap;

use machine::run;
use tilewright_codegen::{Options, compile};
use tilewright_hardware::{Arch, Element};
use tilewright_ir::{
    Attr, Builder, Cmp, Constant, Func, Index, Loc, Module, Op, Opcode, Region, Space, Type, Value, verify,
};

const PAIR: Type = Type::Vector(Element::U32, 2);
const POINTER: Type = Type::Pointer(Space::Global);

/// Numbers that repeat.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % sides as u64).unwrap()
    }
}

struct Author {
    dice: Dice,
    b: Builder,
    /// What can be used here.
    visible: Vec<Value>,
    out: Value,
}

impl Author {
    fn op(&mut self, code: Opcode, operands: &[Value], attrs: &[Attr], given: Option<Type>) -> Value {
        let value = self.b.value(code, operands.iter().copied(), attrs.iter().cloned(), given, Loc::NONE);
        self.visible.push(value);
        value
    }

    fn number(&mut self, ty: Type, value: u64) -> Value {
        self.op(Opcode::Const, &[], &[Constant(value).into()], Some(ty))
    }

    /// Any visible value of a type; a constant if there is none.
    fn pick(&mut self, ty: Type) -> Value {
        let fitting: Vec<Value> = self.visible.iter().copied().filter(|&v| self.b.func.ty(v) == ty).collect();
        if !fitting.is_empty() {
            return fitting[self.dice.roll(fitting.len())];
        }
        match ty {
            PAIR => {
                let one = self.pick(Type::U32);
                self.op(Opcode::Pack, &[one, one], &[], Some(PAIR))
            }
            Type::BOOL => self.number(ty, 1),
            _ => self.number(ty, 3),
        }
    }

    fn any_type(&mut self) -> Type {
        [Type::U32, Type::U32, Type::BOOL, POINTER, PAIR][self.dice.roll(5)]
    }

    fn step(&mut self, depth: usize) {
        let (a, b) = (self.pick(Type::U32), self.pick(Type::U32));
        match self.dice.roll(if depth == 0 { 11 } else { 15 }) {
            0 => {
                let value = self.dice.roll(9) as u64;
                self.number(Type::U32, value);
            }
            1..=3 => {
                let code = [Opcode::Add, Opcode::Sub, Opcode::Mul, Opcode::Xor][self.dice.roll(4)];
                self.op(code, &[a, b], &[], None);
            }
            4 => {
                let cmp = Cmp::ALL[self.dice.roll(6)];
                self.op(Opcode::Cmp, &[a, b], &[cmp.into()], None);
            }
            5 => {
                let ty = self.any_type();
                let (p, x, y) = (self.pick(Type::BOOL), self.pick(ty), self.pick(ty));
                self.op(Opcode::Select, &[p, x, y], &[], None);
            }
            6 => {
                let pointer = self.pick(POINTER);
                let value = self.dice.roll(100) as u64;
                let by = self.number(Type::U64, value);
                self.op(Opcode::PtrAdd, &[pointer, by], &[], None);
            }
            7 => {
                self.op(Opcode::Pack, &[a, b], &[], Some(PAIR));
            }
            8 => {
                let pair = self.pick(PAIR);
                let index = u32::from(self.dice.roll(2) == 1);
                self.op(Opcode::Extract, &[pair], &[Index(index).into()], Some(Type::U32));
            }
            9 => {
                let (x, y) = (self.pick(PAIR), self.pick(PAIR));
                self.op(Opcode::Add, &[x, y], &[], None);
            }
            10 => self.show(),
            11 | 12 => self.count(depth - 1),
            13 => self.choose(depth - 1),
            _ => self.repeat(depth - 1),
        }
    }

    /// Stores something of what is visible.
    fn show(&mut self) {
        let value = match self.any_type() {
            Type::BOOL => {
                let (p, x, y) = (self.pick(Type::BOOL), self.pick(Type::U32), self.pick(Type::U32));
                self.op(Opcode::Select, &[p, x, y], &[], None)
            }
            POINTER => {
                let pointer = self.pick(POINTER);
                self.op(Opcode::PtrToInt, &[pointer], &[], Some(Type::U64))
            }
            PAIR => {
                let pair = self.pick(PAIR);
                self.op(Opcode::Extract, &[pair], &[Index(1).into()], Some(Type::U32))
            }
            ty => self.pick(ty),
        };
        self.b.push(Opcode::Store, [self.out, value], [], [], Loc::NONE);
    }

    /// A region with its arguments and steps; ends in `code` with values of the given types behind `first`.
    fn region(
        &mut self,
        op: Op,
        args: &[Type],
        depth: usize,
        code: Opcode,
        first: Option<Value>,
        types: &[Type],
    ) {
        let visible = self.visible.len();
        let region = self.b.open(op);
        for &ty in args {
            let arg = self.b.func.add_arg(region, ty);
            self.visible.push(arg);
        }
        for _ in 0..self.dice.roll(6) {
            self.step(depth);
        }
        let first = match (code, first) {
            (Opcode::Condition, _) => {
                let counter = self.b.func.region(region).args[0];
                let limit = self.number(Type::U32, 4);
                Some(self.op(Opcode::Cmp, &[counter, limit], &[Cmp::Lt.into()], None))
            }
            (_, Some(one)) => {
                let counter = self.b.func.region(region).args[0];
                Some(self.op(Opcode::Add, &[counter, one], &[], None))
            }
            _ => None,
        };
        let mut handed: Vec<Value> = first.into_iter().collect();
        for &ty in types {
            let value = self.pick(ty);
            handed.push(value);
        }
        // The counter of a `while` passes through its test.
        if code == Opcode::Condition {
            handed.insert(1, self.b.func.region(region).args[0]);
        }
        self.b.push(code, handed, [], [], Loc::NONE);
        self.b.close();
        self.visible.truncate(visible);
    }

    fn carried(&mut self) -> (Vec<Type>, Vec<Value>) {
        let types: Vec<Type> = (0..self.dice.roll(4)).map(|_| self.any_type()).collect();
        let values = types.iter().map(|&ty| self.pick(ty)).collect();
        (types, values)
    }

    fn count(&mut self, depth: usize) {
        let rounds = self.dice.roll(4) as u64;
        let lo = if self.dice.roll(2) == 0 { self.number(Type::U32, 0) } else { self.visible[1] };
        let hi = self.number(Type::U32, 2 + rounds);
        let by = if self.dice.roll(2) == 0 { self.number(Type::U32, 1) } else { self.visible[2] };
        let (types, values) = self.carried();
        let op =
            self.b.push(Opcode::For, [lo, hi, by].into_iter().chain(values), [], types.clone(), Loc::NONE);
        let args: Vec<Type> = [Type::U32].into_iter().chain(types.clone()).collect();
        self.region(op, &args, depth, Opcode::Yield, None, &types);
        self.visible.extend(self.b.func.op(op).results.iter().copied());
    }

    fn choose(&mut self, depth: usize) {
        let condition = self.pick(Type::BOOL);
        let (types, _) = self.carried();
        let op = self.b.push(Opcode::If, [condition], [], types.clone(), Loc::NONE);
        self.region(op, &[], depth, Opcode::Yield, None, &types);
        self.region(op, &[], depth, Opcode::Yield, None, &types);
        self.visible.extend(self.b.func.op(op).results.iter().copied());
    }

    fn repeat(&mut self, depth: usize) {
        let start = self.number(Type::U32, 0);
        let one = self.number(Type::U32, 1);
        let (types, values) = self.carried();
        let (passed, _) = self.carried();
        let results: Vec<Type> = [Type::U32].into_iter().chain(passed.clone()).collect();
        let op =
            self.b.push(Opcode::While, [start].into_iter().chain(values), [], results.clone(), Loc::NONE);
        let args: Vec<Type> = [Type::U32].into_iter().chain(types.clone()).collect();
        self.region(op, &args, depth, Opcode::Condition, None, &passed);
        self.region(op, &results, depth, Opcode::Yield, Some(one), &types);
        self.visible.extend(self.b.func.op(op).results.iter().copied());
    }
}

fn program(seed: u64) -> Func {
    let mut func = Func::new("k");
    let out = func.add_param("out", POINTER, 8);
    let params = ["a", "b", "c"].map(|name| func.add_param(name, Type::U32, 0));
    let flag = func.add_param("p", Type::BOOL, 0);
    let mut visible = vec![out];
    visible.extend(params);
    visible.push(flag);
    let mut author = Author { dice: Dice(seed), b: Builder::new(func), visible, out };
    for _ in 0..12 {
        author.step(3);
    }
    for _ in 0..6 {
        author.show();
    }
    author.b.finish()
}

/// What the IR means.
struct Meaning<'a> {
    func: &'a Func,
    values: HashMap<Value, Vec<u64>>,
    stored: Vec<u64>,
    fuel: u32,
}

impl Meaning<'_> {
    fn bind(&mut self, to: &[Value], from: Vec<Vec<u64>>) {
        for (&to, from) in to.iter().zip(from) {
            self.values.insert(to, from);
        }
    }

    /// Runs a region and gives what it hands over; `None` when the program takes too long.
    fn region(&mut self, region: Region) -> Option<Vec<Vec<u64>>> {
        let func = self.func;
        for &op in &func.region(region).ops {
            self.fuel = self.fuel.checked_sub(1)?;
            let data = func.op(op);
            let args: Vec<Vec<u64>> = data.operands.iter().map(|v| self.values[v].clone()).collect();
            let word = |i: usize| args[i][0];
            let lanes = |f: &dyn Fn(u32, u32) -> u32| -> Vec<u64> {
                args[0]
                    .iter()
                    .zip(&args[1])
                    .map(|(&a, &b)| u64::from(f(u32::try_from(a).unwrap(), u32::try_from(b).unwrap())))
                    .collect()
            };
            let result = match data.code {
                Opcode::Const => vec![data.get::<Constant>().unwrap().0],
                Opcode::Add => lanes(&u32::wrapping_add),
                Opcode::Sub => lanes(&u32::wrapping_sub),
                Opcode::Mul => lanes(&u32::wrapping_mul),
                Opcode::Xor => lanes(&|a, b| a ^ b),
                Opcode::PtrAdd => vec![word(0).wrapping_add(word(1))],
                Opcode::PtrToInt => args[0].clone(),
                Opcode::Pack => vec![word(0), word(1)],
                Opcode::Extract => vec![args[0][data.get::<Index>().unwrap().0 as usize]],
                Opcode::Select => args[if word(0) == 1 { 1 } else { 2 }].clone(),
                Opcode::Cmp => {
                    let order = word(0).cmp(&word(1));
                    vec![u64::from(match data.get::<Cmp>().unwrap() {
                        Cmp::Eq => order.is_eq(),
                        Cmp::Ne => order.is_ne(),
                        Cmp::Lt => order.is_lt(),
                        Cmp::Le => order.is_le(),
                        Cmp::Gt => order.is_gt(),
                        Cmp::Ge => order.is_ge(),
                    })]
                }
                Opcode::Store => {
                    self.stored.push(word(1));
                    continue;
                }
                Opcode::Yield | Opcode::Condition => return Some(args),
                Opcode::If => {
                    let results = self.region(data.regions[usize::from(word(0) == 0)])?;
                    self.bind(&data.results, results);
                    continue;
                }
                Opcode::For => {
                    let (mut i, hi, by) = (word(0), word(1), word(2));
                    let mut carried = args[3..].to_vec();
                    while i < hi {
                        let given: Vec<Vec<u64>> = [vec![i]].into_iter().chain(carried).collect();
                        self.bind(&func.region(data.regions[0]).args, given);
                        carried = self.region(data.regions[0])?;
                        i += by;
                    }
                    self.bind(&data.results, carried);
                    continue;
                }
                Opcode::While => {
                    let mut carried = args;
                    loop {
                        self.bind(&func.region(data.regions[0]).args, carried);
                        let passed = self.region(data.regions[0])?;
                        let on = passed[0][0] == 1;
                        if !on {
                            self.bind(&data.results, passed[1..].to_vec());
                            break;
                        }
                        self.bind(&func.region(data.regions[1]).args, passed[1..].to_vec());
                        carried = self.region(data.regions[1])?;
                    }
                    continue;
                }
                other => panic!("{other:?}"),
            };
            self.values.insert(data.results[0], result);
        }
        Some(Vec::new())
    }
}

#[test]
fn random_programs_store_what_they_mean() {
    let mut compared = 0;
    for seed in 0..1000_u64 {
        let func = program(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let module = Module::from(func);
        assert_eq!(verify(&module), [], "{module}");
        let func = &module.funcs[0];
        let params = [4096, seed % 3, 1 + seed % 4, 77, seed % 2];
        let mut meaning = Meaning { func, values: HashMap::new(), stored: Vec::new(), fuel: 4000 };
        let args = func.region(func.body()).args.clone();
        meaning.bind(&args, params.iter().map(|&value| vec![value]).collect());
        if meaning.region(func.body()).is_none() {
            continue;
        }
        compared += 1;
        let compiled =
            compile(func, &Options::new(Arch::SM_80)).unwrap_or_else(|error| panic!("{error}\n{module}"));
        assert_eq!(run(&compiled, &params), meaning.stored, "seed {seed}\n{module}\n{}", compiled.text);
    }
    assert!(compared > 500, "only {compared} programs were short enough");
}
