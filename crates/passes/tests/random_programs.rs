//! Random scalar programs with control flow and memory compute the same before and after every pass and the whole pipeline.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use tilewright_ir::{
    Attr, Builder, Cmp, Constant, Element, Func, Funnel, Index, Loc, Lut, Module, Opcode, Round, Space, Type,
    Value, verify,
};
use tilewright_passes::interp::Interpreter;
use tilewright_passes::{Options, Pass, Pipeline};

const INTS: [Type; 6] =
    [Type::U32, Type::I32, Type::U64, Type::I64, Type::Scalar(Element::U8), Type::Scalar(Element::I16)];
const FLOATS: [Type; 4] =
    [Type::F32, Type::Scalar(Element::F64), Type::Scalar(Element::F16), Type::Scalar(Element::BF16)];
const PARAMS: [Type; 8] = [
    Type::Pointer(Space::Global),
    Type::U32,
    Type::I32,
    Type::U64,
    Type::I64,
    Type::F32,
    Type::Scalar(Element::F64),
    Type::BOOL,
];
/// Where the memory that programs use starts.
const BASE: u64 = 64;

/// Builds a program from a stream of choices, so that a shorter stream is a smaller program.
struct Gen {
    choices: std::vec::IntoIter<u32>,
    b: Builder,
    /// Values that can be used here.
    pool: Vec<Value>,
    pointer: Value,
    depth: u32,
}

impl Gen {
    fn program(choices: Vec<u32>) -> Func {
        let mut func = Func::new("random");
        let mut pool = Vec::new();
        for (i, ty) in PARAMS.into_iter().enumerate() {
            let align = if i == 0 { 16 } else { 0 };
            pool.push(func.add_param(format!("p{i}"), ty, align));
        }
        let pointer = pool.remove(0);
        let mut g = Gen { choices: choices.into_iter(), b: Builder::new(func), pool, pointer, depth: 0 };
        while g.choices.len() > 0 {
            g.statement();
        }
        let returned: Vec<Value> = g.pool.iter().rev().take(40).copied().collect();
        let types: Vec<Type> = returned.iter().map(|&v| g.b.func.ty(v)).collect();
        g.b.push(Opcode::Return, returned, [], [], Loc::NONE);
        let mut func = g.b.finish();
        func.results = types;
        func
    }

    fn choose(&mut self, n: usize) -> usize {
        self.choices.next().unwrap_or(0) as usize % n
    }

    fn of_type(&mut self, ty: Type) -> Value {
        let fitting: Vec<Value> = self.pool.iter().copied().filter(|&v| self.b.func.ty(v) == ty).collect();
        if fitting.is_empty() || self.choose(5) == 0 {
            return self.constant(ty);
        }
        // Recent values make deeper expressions.
        let recent = fitting.len().min(6);
        fitting[fitting.len() - 1 - self.choose(recent)]
    }

    fn constant(&mut self, ty: Type) -> Value {
        let element = ty.element().unwrap();
        let bits = if element.is_float() {
            let values = [0f32, -0.0, 1.0, -1.5, 0.25, 3.0, 1e-3, 1024.0, f32::INFINITY];
            let value = values[self.choose(values.len())];
            match element {
                Element::F64 => f64::from(value).to_bits(),
                Element::F32 => u64::from(value.to_bits()),
                Element::F16 => {
                    [0, 0x8000, 0x3c00, 0xbe00, 0x3400, 0x4200, 0x7bff, 0x0001, 0x7c00][self.choose(9)]
                }
                _ => [0, 0x8000, 0x3f80, 0xbfc0, 0x3e80, 0x4040, 0x7f7f, 0x0001, 0x7f80][self.choose(9)],
            }
        } else {
            let values = [
                0,
                1,
                2,
                3,
                7,
                8,
                10,
                31,
                32,
                100,
                u64::MAX,
                u64::MAX - 1,
                1 << 31,
                1 << 63,
                0xaaaa_5555_1234_8001,
            ];
            values[self.choose(values.len())]
        };
        self.b.constant(ty, tilewright_ir::canonical(element, bits), Loc::NONE)
    }

    fn emit(&mut self, code: Opcode, operands: &[Value], attrs: &[Attr], ty: Option<Type>) -> Value {
        let value = self.b.value(code, operands.iter().copied(), attrs.iter().cloned(), ty, Loc::NONE);
        self.pool.push(value);
        value
    }

    fn statement(&mut self) {
        let int = INTS[self.choose(INTS.len())];
        let float = FLOATS[self.choose(FLOATS.len())];
        match self.choose(20) {
            0..=2 => {
                let codes = [
                    Opcode::Add,
                    Opcode::Sub,
                    Opcode::Mul,
                    Opcode::And,
                    Opcode::Or,
                    Opcode::Xor,
                    Opcode::Min,
                    Opcode::Max,
                    Opcode::MulHi,
                ];
                let code = codes[self.choose(codes.len())];
                let (a, b) = (self.of_type(int), self.of_type(int));
                self.emit(code, &[a, b], &[], None);
            }
            3 => {
                let codes = [Opcode::Add, Opcode::Sub, Opcode::Mul, Opcode::Div, Opcode::Min, Opcode::Max];
                let code = codes[self.choose(codes.len())];
                let (a, b) = (self.of_type(float), self.of_type(float));
                self.emit(code, &[a, b], &[], None);
            }
            4 => {
                let ty = if self.choose(2) == 0 { int } else { float };
                let (a, b, c) = (self.of_type(ty), self.of_type(ty), self.of_type(ty));
                self.emit(Opcode::Fma, &[a, b, c], &[], None);
            }
            5 => {
                let codes = [
                    Opcode::Neg,
                    Opcode::Not,
                    Opcode::Abs,
                    Opcode::Brev,
                    Opcode::Popc,
                    Opcode::Clz,
                    Opcode::Bfind,
                ];
                let code = codes[self.choose(codes.len())];
                let a = self.of_type(int);
                self.emit(code, &[a], &[], None);
            }
            6 => {
                let a = self.of_type(float);
                match self.choose(3) {
                    0 => self.emit(Opcode::Neg, &[a], &[], None),
                    1 => self.emit(Opcode::Abs, &[a], &[], None),
                    _ => self.emit(Opcode::RoundInt, &[a], &[Round::Down.into()], None),
                };
            }
            7 => {
                let code = if self.choose(2) == 0 { Opcode::Shl } else { Opcode::Shr };
                let (a, n) = (self.of_type(int), self.of_type(Type::U32));
                self.emit(code, &[a, n], &[], None);
            }
            8 => {
                // By constants of all kinds, and by values that are not zero.
                let code = if self.choose(2) == 0 { Opcode::Div } else { Opcode::Rem };
                let a = self.of_type(int);
                let divisors = [
                    1i64,
                    2,
                    3,
                    5,
                    7,
                    8,
                    10,
                    28,
                    64,
                    100,
                    -1,
                    -2,
                    -3,
                    -8,
                    -10,
                    127,
                    125,
                    i64::MIN,
                    i64::MAX,
                    641,
                ];
                let divisor = divisors[self.choose(divisors.len())];
                let element = int.element().unwrap();
                let bits = tilewright_ir::canonical(element, divisor.cast_unsigned());
                let d = if self.choose(4) == 0 {
                    let one = self.b.constant(int, 1, Loc::NONE);
                    let x = self.of_type(int);
                    self.emit(Opcode::Or, &[x, one], &[], None)
                } else {
                    self.b.constant(int, if bits == 0 { 3 } else { bits }, Loc::NONE)
                };
                self.emit(code, &[a, d], &[], None);
            }
            9 => {
                let ty = if self.choose(2) == 0 { int } else { float };
                let (a, b) = (self.of_type(ty), self.of_type(ty));
                let cmp = Cmp::ALL[self.choose(Cmp::ALL.len())];
                self.emit(Opcode::Cmp, &[a, b], &[cmp.into()], None);
            }
            10 => {
                let codes = [Opcode::And, Opcode::Or, Opcode::Xor];
                let code = codes[self.choose(3)];
                let (a, b) = (self.of_type(Type::BOOL), self.of_type(Type::BOOL));
                let c = self.emit(code, &[a, b], &[], None);
                if self.choose(2) == 0 {
                    self.emit(Opcode::Not, &[c], &[], None);
                }
            }
            11 => {
                let c = self.of_type(Type::BOOL);
                let ty = if self.choose(2) == 0 { int } else { float };
                let (a, b) = (self.of_type(ty), self.of_type(ty));
                self.emit(Opcode::Select, &[c, a, b], &[], None);
            }
            12 => {
                let all = [INTS[self.choose(6)], FLOATS[self.choose(4)]];
                let (from, to) = (if self.choose(2) == 0 { int } else { float }, all[self.choose(2)]);
                let a = self.of_type(from);
                let b = self.emit(Opcode::Cvt, &[a], &[], Some(to));
                let last = INTS[self.choose(6)];
                self.emit(Opcode::Cvt, &[b], &[], Some(last));
            }
            13 => self.bits(),
            14 => self.vector(),
            15..=17 => self.memory(),
            _ => self.control(),
        }
    }

    fn bits(&mut self) {
        let (a, b, c) = (self.of_type(Type::U32), self.of_type(Type::U32), self.of_type(Type::U32));
        match self.choose(6) {
            0 => self.emit(Opcode::Bfe, &[a, b, c], &[], None),
            1 => {
                let d = self.of_type(Type::U32);
                self.emit(Opcode::Bfi, &[a, b, c, d], &[], None)
            }
            2 => self.emit(Opcode::Prmt, &[a, b, c], &[], None),
            3 => {
                let lut = u8::try_from(self.choose(256)).unwrap();
                self.emit(Opcode::Lop3, &[a, b, c], &[Lut(lut).into()], None)
            }
            4 => {
                let mode = Funnel::ALL[self.choose(Funnel::ALL.len())];
                self.emit(Opcode::FunnelShift, &[a, b, c], &[mode.into()], None)
            }
            _ => self.emit(Opcode::MulWide, &[a, b], &[], Some(Type::U64)),
        };
    }

    fn vector(&mut self) {
        let parts: Vec<Value> = (0..4).map(|_| self.of_type(Type::I32)).collect();
        let wide = Type::Vector(Element::I32, 4);
        let pack = self.b.value(Opcode::Pack, parts.clone(), [], Some(wide), Loc::NONE);
        let lane = u32::try_from(self.choose(4)).unwrap();
        let sum = self.b.value(Opcode::Add, [pack, pack], [], None, Loc::NONE);
        let insert = self.b.value(Opcode::Insert, [sum, parts[0]], [Index(lane).into()], None, Loc::NONE);
        let half = Type::Vector(Element::I32, 2);
        let slice = self.b.value(Opcode::Slice, [insert], [Index(lane % 3).into()], Some(half), Loc::NONE);
        let joined = self.b.value(Opcode::Concat, [slice, slice], [], Some(wide), Loc::NONE);
        let at = u32::try_from(self.choose(4)).unwrap();
        self.emit(Opcode::Extract, &[joined], &[Index(at).into()], Some(Type::I32));
        self.emit(Opcode::Extract, &[pack], &[Index(at).into()], Some(Type::I32));
    }

    /// A few accesses near each other: at a fixed place, or at an index below 16.
    fn memory(&mut self) {
        if self.choose(2) == 0 {
            return self.accesses(self.pointer);
        }
        let index = self.of_type(Type::U32);
        let mask = self.b.constant(Type::U32, 15, Loc::NONE);
        let index = self.emit(Opcode::And, &[index, mask], &[], None);
        let scale = [4, 8, 16][self.choose(3)];
        let scale = self.b.constant(Type::U32, scale, Loc::NONE);
        let wide = self.b.value(Opcode::MulWide, [index, scale], [], Some(Type::U64), Loc::NONE);
        let base = self.b.value(Opcode::PtrAdd, [self.pointer, wide], [], None, Loc::NONE);
        self.accesses(base);
    }

    fn accesses(&mut self, base: Value) {
        let start = u64::try_from(self.choose(4)).unwrap();
        let step = 1 + u64::try_from(self.choose(6)).unwrap() / 5;
        for i in 0..1 + self.choose(4) as u64 {
            let offset = self.b.constant(Type::U64, 4 * (start + i * step), Loc::NONE);
            let at = self.b.value(Opcode::PtrAdd, [base, offset], [], None, Loc::NONE);
            let ty = if self.choose(6) == 0 { Type::I64 } else { Type::I32 };
            if self.choose(2) == 0 {
                self.emit(Opcode::Load, &[at], &[], Some(ty));
            } else {
                let value = self.of_type(ty);
                self.b.push(Opcode::Store, [at, value], [], [], Loc::NONE);
            }
        }
    }

    fn block(&mut self, statements: usize) {
        self.depth += 1;
        for _ in 0..statements {
            self.statement();
        }
        self.depth -= 1;
    }

    fn control(&mut self) {
        if self.depth >= 3 {
            return;
        }
        let carried: Vec<Type> = (0..self.choose(4))
            .map(|_| [Type::I32, Type::F32, Type::U64, Type::BOOL][self.choose(4)])
            .collect();
        let count = 1 + self.choose(4);
        match self.choose(3) {
            0 => {
                let condition = self.of_type(Type::BOOL);
                let op = self.b.push(Opcode::If, [condition], [], carried.clone(), Loc::NONE);
                for _ in 0..2 {
                    let mark = self.pool.len();
                    self.b.open(op);
                    self.block(count);
                    self.end(Opcode::Yield, &[], &carried, mark);
                }
                self.results(op);
            }
            1 => self.count(&carried, count),
            _ => self.repeat(&carried, count),
        }
    }

    fn count(&mut self, carried: &[Type], statements: usize) {
        let lower = self.choose(4) as u64;
        let lower = self.b.constant(Type::U32, lower, Loc::NONE);
        let upper = if self.choose(2) == 0 {
            let bound = self.choose(8) as u64;
            self.b.constant(Type::U32, bound, Loc::NONE)
        } else {
            let mask = self.b.constant(Type::U32, 7, Loc::NONE);
            let x = self.of_type(Type::U32);
            self.b.value(Opcode::And, [x, mask], [], None, Loc::NONE)
        };
        let step = 1 + self.choose(3) as u64;
        let step = self.b.constant(Type::U32, step, Loc::NONE);
        let mut operands = vec![lower, upper, step];
        for &ty in carried {
            operands.push(self.of_type(ty));
        }
        let op = self.b.push(Opcode::For, operands, [], carried.to_vec(), Loc::NONE);
        let mark = self.pool.len();
        let body = self.b.open(op);
        let counter = self.b.func.add_arg(body, Type::U32);
        self.pool.push(counter);
        for &ty in carried {
            let arg = self.b.func.add_arg(body, ty);
            self.pool.push(arg);
        }
        self.block(statements);
        // Addresses from the counter itself: what strength reduction looks for.
        let scale = [4, 8, 12][self.choose(3)];
        let scale = self.b.constant(Type::U32, scale, Loc::NONE);
        let wide = self.b.value(Opcode::MulWide, [counter, scale], [], Some(Type::U64), Loc::NONE);
        let far = self.b.constant(Type::U64, 128, Loc::NONE);
        let offset = match self.choose(4) {
            0 => wide,
            1 => self.b.value(Opcode::Add, [wide, far], [], None, Loc::NONE),
            2 => self.b.value(Opcode::Sub, [far, wide], [], None, Loc::NONE),
            _ => {
                let same = self.b.value(Opcode::Cvt, [counter], [], Some(Type::U64), Loc::NONE);
                let three = self.b.constant(Type::U32, 3, Loc::NONE);
                let shifted = self.b.value(Opcode::Shl, [same, three], [], None, Loc::NONE);
                self.b.value(Opcode::Fma, [same, far, shifted], [], None, Loc::NONE)
            }
        };
        let base = self.b.value(Opcode::PtrAdd, [self.pointer, offset], [], None, Loc::NONE);
        self.accesses(base);
        self.end(Opcode::Yield, &[], carried, mark);
        self.results(op);
    }

    fn repeat(&mut self, carried: &[Type], statements: usize) {
        let mask = self.b.constant(Type::U32, 7, Loc::NONE);
        let x = self.of_type(Type::U32);
        let rounds = self.b.value(Opcode::And, [x, mask], [], None, Loc::NONE);
        let mut all = vec![Type::U32];
        all.extend(carried);
        let mut operands = vec![rounds];
        for &ty in carried {
            operands.push(self.of_type(ty));
        }
        let op = self.b.push(Opcode::While, operands, [], all.clone(), Loc::NONE);
        let mark = self.pool.len();
        let test = self.b.open(op);
        let args: Vec<Value> = all.iter().map(|&ty| self.b.func.add_arg(test, ty)).collect();
        self.pool.extend(&args);
        self.block(1);
        let zero = self.b.constant(Type::U32, 0, Loc::NONE);
        let goes_on = self.b.value(Opcode::Cmp, [args[0], zero], [Cmp::Ne.into()], None, Loc::NONE);
        self.end(Opcode::Condition, &[goes_on, args[0]], carried, mark);
        let body = self.b.open(op);
        let args: Vec<Value> = all.iter().map(|&ty| self.b.func.add_arg(body, ty)).collect();
        self.pool.extend(&args);
        self.block(statements);
        let one = self.b.constant(Type::U32, 1, Loc::NONE);
        let next = self.b.value(Opcode::Sub, [args[0], one], [], None, Loc::NONE);
        self.end(Opcode::Yield, &[next], carried, mark);
        self.results(op);
    }

    /// Ends a region and forgets its values.
    fn end(&mut self, code: Opcode, first: &[Value], types: &[Type], mark: usize) {
        let mut operands = first.to_vec();
        for &ty in types {
            operands.push(self.of_type(ty));
        }
        self.b.push(code, operands, [], [], Loc::NONE);
        self.b.close();
        self.pool.truncate(mark);
    }

    fn results(&mut self, op: tilewright_ir::Op) {
        self.pool.extend(self.b.func.op(op).results.clone());
    }
}

/// Results as text in which all NaNs are equal, and the memory afterwards.
fn outcome(func: &Func, args: &[Constant]) -> Result<(Vec<Option<u64>>, Vec<u8>), String> {
    let memory = (0..2048u32).map(|i| u8::try_from(i.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    let mut interpreter = Interpreter { memory, fuel: 200_000, ..Interpreter::default() };
    let results = interpreter.run(func, args).map_err(|e| e.to_string())?;
    let bits = results.into_iter().zip(&func.results).map(|(value, ty)| {
        value.map(|Constant(bits)| {
            let nan = match ty.element().unwrap() {
                Element::F32 => f32::from_bits(u32::try_from(bits).unwrap()).is_nan(),
                Element::F64 => f64::from_bits(bits).is_nan(),
                Element::F16 => bits & 0x7fff > 0x7c00,
                Element::BF16 => bits & 0x7fff > 0x7f80,
                _ => false,
            };
            if nan { 0xdead } else { bits }
        })
    });
    Ok((bits.collect(), interpreter.memory))
}

fn pipelines() -> Vec<(&'static str, Pipeline)> {
    let mut all: Vec<_> = Pass::ALL.into_iter().map(|pass| (pass.name(), Pipeline::of(&[pass]))).collect();
    all.push(("fold twice", Pipeline::of(&[Pass::Fold, Pass::Fold])));
    all.push(("licm, strength", Pipeline::of(&[Pass::Licm, Pass::Strength])));
    all.push(("standard", Pipeline::standard()));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(600), max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn passes_keep_what_programs_compute(
        choices in prop::collection::vec(any::<u32>(), 20..400),
        a in any::<(u32, i32, u64, i64)>(),
        (x, y, c) in (any::<f32>(), any::<f64>(), any::<bool>()),
    ) {
        let func = Gen::program(choices);
        let args = [
            BASE,
            u64::from(a.0),
            i64::from(a.1).cast_unsigned(),
            a.2,
            a.3.cast_unsigned(),
            u64::from(x.to_bits()),
            y.to_bits(),
            u64::from(c),
        ]
        .map(Constant);
        let original = Module::from(func);
        prop_assert!(verify(&original).is_empty(), "{:?}\n{original}", verify(&original));
        let Ok((expected, memory)) = outcome(&original.funcs[0], &args) else {
            // Too long, or stuck on an undefined value: nothing to compare.
            return Ok(());
        };
        for (name, pipeline) in pipelines() {
            let mut module = original.clone();
            let run = pipeline.with(Options { verify: true, dump: false }).run(&mut module);
            prop_assert!(run.is_ok(), "{name}: {}", run.unwrap_err());
            let (found, memory_after) = outcome(&module.funcs[0], &args)
                .map_err(|error| TestCaseError::fail(format!("{name}: {error}\n{original}\nbecame\n{module}")))?;
            for (i, (e, f)) in expected.iter().zip(&found).enumerate() {
                prop_assert!(e.is_none() || e == f, "{name}: result {i} was {e:x?}, is {f:x?}\n{original}\nbecame\n{module}");
            }
            prop_assert!(memory == memory_after, "{name}: memory differs\n{original}\nbecame\n{module}");
        }
    }

    #[test]
    fn divisions_by_any_constant(x in any::<u64>(), d in any::<u64>(), small in 1u64..2000, which in 0usize..6) {
        let ty = INTS[which];
        let element = ty.element().unwrap();
        for divisor in [d, small, small.wrapping_neg(), d >> 40] {
            let divisor = tilewright_ir::canonical(element, divisor);
            if divisor == 0 {
                continue;
            }
            let mut func = Func::new("divide");
            let param = func.add_param("x", ty, 0);
            let mut b = Builder::new(func);
            let c = b.constant(ty, divisor, Loc::NONE);
            let q = b.value(Opcode::Div, [param, c], [], None, Loc::NONE);
            let r = b.value(Opcode::Rem, [param, c], [], None, Loc::NONE);
            b.push(Opcode::Return, [q, r], [], [], Loc::NONE);
            let mut func = b.finish();
            func.results = vec![ty, ty];
            let mut module = Module::from(func);
            let arg = [Constant(tilewright_ir::canonical(element, x))];
            let expected = Interpreter::default().run(&module.funcs[0], &arg).unwrap();
            Pipeline::of(&[Pass::Strength]).run(&mut module).unwrap();
            let left = module.funcs[0].walk().into_iter().any(|op| {
                let data = module.funcs[0].op(op);
                matches!(data.code, Opcode::Div | Opcode::Rem)
            });
            prop_assert!(!left, "a division is left\n{module}");
            prop_assert_eq!(Interpreter::default().run(&module.funcs[0], &arg).unwrap(), expected, "{}", module);
        }
    }
}
