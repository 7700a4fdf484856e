//! Elementary functions against references in f64, with the errors that the table promises.
//!
//! Each function is staged as a kernel, and a small evaluator runs its ops on many arguments at once. Approximate instructions are
//! evaluated twice: correctly rounded, and off by up to the error that the hardware's manual admits, in either direction.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bits of registers")]

use half::{bf16, f16};
use tilewright_ir::{Cmp, Constant, Element, Flags, Func, Funnel, OpData, Opcode, Region, Round, Type};
use tilewright_lang::math::{ACCURATE_HALF, Bound, FUNCTIONS, MathFunction};
use tilewright_lang::prelude::*;

// ---- evaluation -----------------------------------------------------------------------------------------------------------------

/// How approximate instructions behave.
#[derive(Clone, Copy, PartialEq)]
enum Hardware {
    Exact,
    /// Errs as far as documented, in a direction that depends on the argument.
    Worst,
}

fn float(element: Element, bits: u64) -> f64 {
    match element {
        Element::F64 => f64::from_bits(bits),
        Element::F32 => f64::from(f32::from_bits(bits as u32)),
        Element::F16 => f16::from_bits(bits as u16).to_f64(),
        Element::BF16 => bf16::from_bits(bits as u16).to_f64(),
        other => panic!("{other} is no float of these functions"),
    }
}

fn bits(element: Element, value: f64) -> u64 {
    match element {
        Element::F64 => value.to_bits(),
        Element::F32 => u64::from((value as f32).to_bits()),
        Element::F16 => u64::from(f16::from_f64(value).to_bits()),
        Element::BF16 => u64::from(bf16::from_f64(value).to_bits()),
        other => panic!("{other} is no float of these functions"),
    }
}

/// Digits of the significand and the exponent of the smallest normal number.
fn format(element: Element) -> (i32, i32) {
    match element {
        Element::F32 => (24, -126),
        Element::F16 => (11, -14),
        Element::BF16 => (8, -126),
        other => panic!("{other} is no result of these functions"),
    }
}

/// The distance of neighbours at `value`.
fn ulp(element: Element, value: f64) -> f64 {
    let (digits, lowest) = format(element);
    let exponent = if value == 0.0 { lowest } else { exponent(value).max(lowest) };
    2f64.powi(exponent - digits + 1)
}

fn exponent(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// What the manual says an instruction may be off by, less what rounding the result adds: relative and absolute.
fn admitted(code: Opcode, element: Element, x: f64) -> (f64, f64) {
    match (code, element) {
        (Opcode::Ex2, Element::F16) => (2f64.powf(-9.9), 0.0),
        (Opcode::Ex2, Element::BF16) => (2f64.powi(-7), 0.0),
        (Opcode::Ex2, _) => (1.5 * 2f64.powi(-24), 0.0),
        (Opcode::Lg2, _) if x > 0.5 && x < 2.0 => (0.0, 2f64.powi(-22)),
        (Opcode::Lg2, _) => (2f64.powi(-22), 0.0),
        (Opcode::Rcp, _) => (0.5 * 2f64.powi(-24), 0.0),
        (Opcode::Rsqrt, _) => (2f64.powf(-22.9), 0.0),
        (Opcode::Sqrt, _) => (2f64.powi(-23), 0.0),
        (Opcode::Sin | Opcode::Cos, _) => (0.0, 2f64.powf(-20.5)),
        (Opcode::Tanh, Element::F16) => (0.0, 2f64.powf(-10.987)),
        (Opcode::Tanh, Element::BF16) => (0.0, 2f64.powi(-8)),
        (Opcode::Tanh, _) => (2f64.powi(-11), 0.0),
        _ => (0.0, 0.0),
    }
}

fn instruction(op: &OpData, element: Element, x: u64, hardware: Hardware) -> u64 {
    let ftz = op.flags().has(Flags::FTZ);
    let smallest = 2f64.powi(format(element).1);
    let flush = |v: f64| if ftz && v.abs() < smallest { 0f64.copysign(v) } else { v };
    let value = flush(float(element, x));
    let exact = match op.code {
        Opcode::Rcp => 1.0 / value,
        Opcode::Sqrt => value.sqrt(),
        Opcode::Rsqrt if value == 0.0 => f64::INFINITY.copysign(value),
        Opcode::Rsqrt => 1.0 / value.sqrt(),
        Opcode::Sin => value.sin(),
        Opcode::Cos => value.cos(),
        Opcode::Ex2 => value.exp2(),
        Opcode::Lg2 => value.log2(),
        _ => value.tanh(),
    };
    let approximate = op.code == Opcode::Tanh || op.flags().has(Flags::APPROX);
    if !approximate || hardware == Hardware::Exact || !exact.is_finite() || exact == 0.0 {
        return bits(element, flush(exact));
    }
    let (relative, absolute) = admitted(op.code, element, value);
    let direction = (x.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 3;
    let off = (direction as f64 - 1.0) * (relative * exact.abs() + absolute);
    bits(element, flush(exact + off))
}

struct Machine<'a> {
    func: &'a Func,
    hardware: Hardware,
    values: Vec<Vec<u64>>,
    lanes: usize,
}

/// Runs a kernel `f(x, y, out)` on all arguments; gives what it stores.
fn run(func: &Func, hardware: Hardware, x: &[u64], y: &[u64]) -> Vec<u64> {
    let mut machine =
        Machine { func, hardware, values: vec![Vec::new(); func.value_count()], lanes: x.len() };
    let args = &func.region(func.body()).args;
    machine.values[args[0].index()] = x.to_vec();
    machine.values[args[1].index()] = y.to_vec();
    machine.region(func.body()).pop().expect("a store")
}

impl Machine<'_> {
    /// Runs the ops of a region; gives the operands of its last effect (what is stored, or handed on).
    fn region(&mut self, region: Region) -> Vec<Vec<u64>> {
        let mut last = Vec::new();
        for &op in &self.func.region(region).ops {
            let data = self.func.op(op);
            match data.code {
                Opcode::Store => last = vec![self.values[data.operands[1].index()].clone()],
                Opcode::Yield => {
                    last = data.operands.iter().map(|v| self.values[v.index()].clone()).collect();
                }
                Opcode::Return => {}
                Opcode::If => {
                    let yes = self.region(data.regions[0]);
                    let no = self.region(data.regions[1]);
                    let condition = self.values[data.operands[0].index()].clone();
                    for (i, result) in data.results.iter().enumerate() {
                        self.values[result.index()] = (0..self.lanes)
                            .map(|lane| if condition[lane] == 1 { yes[i][lane] } else { no[i][lane] })
                            .collect();
                    }
                }
                _ => {
                    let result = self.compute(data);
                    self.values[data.results[0].index()] = result;
                }
            }
        }
        last
    }

    fn element(&self, data: &OpData, i: usize) -> Element {
        match self.func.ty(data.operands[i]) {
            Type::Scalar(element) => element,
            other => panic!("{} of {other}", data.info().mnemonic),
        }
    }

    fn compute(&self, data: &OpData) -> Vec<u64> {
        let Type::Scalar(to) = self.func.ty(data.results[0]) else {
            panic!("{} gives no scalar", data.info().mnemonic)
        };
        let arg = |i: usize| self.values[data.operands[i].index()].iter().copied();
        let code = data.code;
        if code == Opcode::Const {
            return vec![data.get::<Constant>().unwrap().0; self.lanes];
        }
        let from = self.element(data, 0);
        let narrow = |v: u64| if to.bits() == 64 { v } else { v & ((1 << to.bits()) - 1) };
        let signed =
            |v: u64, of: Element| if of == Element::I32 { i64::from(v as u32 as i32) } else { v as i64 };
        let f = |v: u64| f32::from_bits(v as u32);
        let b = |v: f32| u64::from(v.to_bits());
        let integer = !from.is_float();
        match code {
            Opcode::Select => {
                arg(0).zip(arg(1)).zip(arg(2)).map(|((c, yes), no)| if c == 1 { yes } else { no }).collect()
            }
            Opcode::Bitcast => arg(0).map(narrow).collect(),
            Opcode::Cmp => {
                let cmp = data.get::<Cmp>().unwrap();
                let order = |a: u64, b: u64| {
                    if integer {
                        Some(signed(a, from).cmp(&signed(b, from)))
                    } else {
                        float(from, a).partial_cmp(&float(from, b))
                    }
                };
                let holds = |order: Option<std::cmp::Ordering>| match cmp {
                    Cmp::Eq => order.is_some_and(std::cmp::Ordering::is_eq),
                    Cmp::Ne => !order.is_some_and(std::cmp::Ordering::is_eq),
                    Cmp::Lt => order.is_some_and(std::cmp::Ordering::is_lt),
                    Cmp::Le => order.is_some_and(std::cmp::Ordering::is_le),
                    Cmp::Gt => order.is_some_and(std::cmp::Ordering::is_gt),
                    Cmp::Ge => order.is_some_and(std::cmp::Ordering::is_ge),
                };
                arg(0).zip(arg(1)).map(|(a, b)| u64::from(holds(order(a, b)))).collect()
            }
            Opcode::Cvt => arg(0)
                .map(|v| match (integer, to.is_float()) {
                    (true, false) => narrow(signed(v, from) as u64),
                    (true, true) => bits(to, signed(v, from) as f64),
                    _ => bits(to, float(from, v)),
                })
                .collect(),
            Opcode::And => arg(0).zip(arg(1)).map(|(a, b)| a & b).collect(),
            Opcode::Or => arg(0).zip(arg(1)).map(|(a, b)| a | b).collect(),
            Opcode::Xor => arg(0).zip(arg(1)).map(|(a, b)| a ^ b).collect(),
            Opcode::Not => arg(0).map(|a| narrow(!a)).collect(),
            Opcode::Shl => arg(0).zip(arg(1)).map(|(a, n)| narrow(a << n)).collect(),
            Opcode::Shr if from.is_signed() => {
                arg(0).zip(arg(1)).map(|(a, n)| narrow((signed(a, from) >> n) as u64)).collect()
            }
            Opcode::Shr => arg(0).zip(arg(1)).map(|(a, n)| a >> n).collect(),
            Opcode::FunnelShift => {
                assert_eq!(data.get::<Funnel>(), Some(Funnel::LeftWrap));
                let shift = |((low, high), n): ((u64, u64), u64)| ((high << 32 | low) << (n & 31)) >> 32;
                arg(0).zip(arg(1)).zip(arg(2)).map(shift).map(narrow).collect()
            }
            Opcode::MulWide => arg(0).zip(arg(1)).map(|(a, b)| a.wrapping_mul(b)).collect(),
            Opcode::Add if integer => arg(0).zip(arg(1)).map(|(a, b)| narrow(a.wrapping_add(b))).collect(),
            Opcode::Sub if integer => arg(0).zip(arg(1)).map(|(a, b)| narrow(a.wrapping_sub(b))).collect(),
            Opcode::Mul if integer => arg(0).zip(arg(1)).map(|(a, b)| narrow(a.wrapping_mul(b))).collect(),
            Opcode::Neg if integer => arg(0).map(|a| narrow(a.wrapping_neg())).collect(),
            Opcode::Max if integer => {
                arg(0).zip(arg(1)).map(|(a, b)| narrow(signed(a, from).max(signed(b, from)) as u64)).collect()
            }
            Opcode::Mul if from == Element::F64 => {
                arg(0).zip(arg(1)).map(|(a, b)| (f64::from_bits(a) * f64::from_bits(b)).to_bits()).collect()
            }
            Opcode::Rcp
            | Opcode::Sqrt
            | Opcode::Rsqrt
            | Opcode::Sin
            | Opcode::Cos
            | Opcode::Ex2
            | Opcode::Lg2
            | Opcode::Tanh => arg(0).map(|v| instruction(data, from, v, self.hardware)).collect(),
            _ => {
                assert!(from == Element::F32, "{} of {from}", data.info().mnemonic);
                match code {
                    Opcode::Add => arg(0).zip(arg(1)).map(|(x, y)| b(f(x) + f(y))).collect(),
                    Opcode::Sub => arg(0).zip(arg(1)).map(|(x, y)| b(f(x) - f(y))).collect(),
                    Opcode::Mul => arg(0).zip(arg(1)).map(|(x, y)| b(f(x) * f(y))).collect(),
                    Opcode::Fma => arg(0)
                        .zip(arg(1))
                        .zip(arg(2))
                        .map(|((x, y), z)| b(f(x).mul_add(f(y), f(z))))
                        .collect(),
                    Opcode::Neg => arg(0).map(|x| x ^ 0x8000_0000).collect(),
                    Opcode::Abs => arg(0).map(|x| x & 0x7fff_ffff).collect(),
                    Opcode::CopySign => {
                        arg(0).zip(arg(1)).map(|(x, y)| x & 0x7fff_ffff | y & 0x8000_0000).collect()
                    }
                    Opcode::RoundInt => {
                        assert_eq!(data.get::<Round>(), Some(Round::Zero));
                        arg(0).map(|x| b(f(x).trunc())).collect()
                    }
                    Opcode::Min | Opcode::Max => {
                        assert_eq!(data.flags(), Flags::NAN);
                        let pick = |x: f32, y: f32| {
                            if x.is_nan() || y.is_nan() {
                                f32::NAN
                            } else if (x < y) == (code == Opcode::Min) {
                                x
                            } else {
                                y
                            }
                        };
                        arg(0).zip(arg(1)).map(|(x, y)| b(pick(f(x), f(y)))).collect()
                    }
                    other => panic!("{other:?} is not evaluated"),
                }
            }
        }
    }
}

// ---- references -----------------------------------------------------------------------------------------------------------------

/// 1 - erf(x): a series of positive terms near zero, the continued fraction beyond.
fn erfc(x: f64) -> f64 {
    if x < 2.5 { 1.0 - erf(x) } else { erfc_beyond(x) }
}

fn erf(x: f64) -> f64 {
    let size = x.abs();
    let value = if size < 2.5 {
        let (mut term, mut sum, mut n) = (size, size, 0.0);
        while term > sum * 1e-18 {
            n += 1.0;
            term *= 2.0 * size * size / (2.0 * n + 1.0);
            sum += term;
        }
        sum * (-size * size).exp() * std::f64::consts::FRAC_2_SQRT_PI
    } else {
        1.0 - erfc_beyond(size)
    };
    value.copysign(x)
}

fn erfc_beyond(x: f64) -> f64 {
    let fraction = (1..=80).rev().fold(x, |tail, n| x + f64::from(n) / 2.0 / tail);
    (-x * x).exp() / fraction / std::f64::consts::PI.sqrt()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `x * g(x)` where the second factor vanishes at minus infinity.
fn gated(x: f64, g: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * g }
}

fn tanh_form(x: f64) -> f64 {
    2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)
}

// ---- the functions --------------------------------------------------------------------------------------------------------------

fn staged<T: tilewright_lang::Element>(f: impl Fn(Val<T>, Val<T>) -> Val<T>) -> Func {
    let kernel = tilewright_lang::stage::kernel("function", || {
        let x: Val<T> = tilewright_lang::stage::argument("x");
        let y: Val<T> = tilewright_lang::stage::argument("y");
        let out: Global<T> = tilewright_lang::stage::argument("out");
        out.store(f(x, y));
    });
    kernel.unwrap().into_func()
}

/// A function in f32, f16 and bf16.
type Kinds = [(Element, Func); 3];

struct Case {
    name: &'static str,
    accurate: Kinds,
    fast: Kinds,
    reference: fn(f64, f64) -> f64,
}

macro_rules! cases {
    ($( $name:ident $fast:ident ($($y:ident)?) $reference:expr; )*) => {
        [$( Case {
            name: stringify!($name),
            accurate: cases!(@ $name ($($y)?)),
            fast: cases!(@ $fast ($($y)?)),
            reference: $reference,
        } ),*]
    };
    (@ $name:ident ($y:ident)) => {[
        (Element::F32, staged::<f32>(|x, y| x.$name(y))),
        (Element::F16, staged::<f16>(|x, y| x.$name(y))),
        (Element::BF16, staged::<bf16>(|x, y| x.$name(y))),
    ]};
    (@ $name:ident ()) => {[
        (Element::F32, staged::<f32>(|x, _| x.$name())),
        (Element::F16, staged::<f16>(|x, _| x.$name())),
        (Element::BF16, staged::<bf16>(|x, _| x.$name())),
    ]};
}

fn cases() -> [Case; 18] {
    cases! {
        exp exp_fast () |x, _| x.exp();
        exp2 exp2_fast () |x, _| x.exp2();
        exp_m1 exp_m1_fast () |x, _| x.exp_m1();
        log log_fast () |x, _| x.ln();
        log2 log2_fast () |x, _| x.log2();
        ln_1p ln_1p_fast () |x, _| x.ln_1p();
        pow pow_fast (y) |x, y| x.powf(y);
        sin sin_fast () |x, _| x.sin();
        cos cos_fast () |x, _| x.cos();
        tanh tanh_fast () |x, _| x.tanh();
        erf erf_fast () |x, _| erf(x);
        sigmoid sigmoid_fast () |x, _| sigmoid(x);
        silu silu_fast () |x, _| gated(x, sigmoid(x));
        gelu gelu_fast () |x, _| gated(x, 0.5 * erfc(-x / std::f64::consts::SQRT_2));
        gelu_tanh gelu_tanh_fast () |x, _| gated(x, sigmoid(tanh_form(x)));
        sqrt sqrt_fast () |x, _| x.sqrt();
        rsqrt rsqrt_fast () |x, _| if x == 0.0 { f64::INFINITY.copysign(x) } else { 1.0 / x.sqrt() };
        recip recip_fast () |x, _| 1.0 / x;
    }
}

fn row(name: &str) -> &'static MathFunction {
    FUNCTIONS.iter().find(|row| row.name == name).expect("a row of the table")
}

// ---- arguments ------------------------------------------------------------------------------------------------------------------

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }
}

/// How many random arguments a function gets.
const COUNT: usize = if cfg!(debug_assertions) { 16_000 } else { 1_000_000 };

const SPECIAL: [f32; 24] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    3.0,
    -3.0,
    1.5,
    -1.5,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1e-45,
    -1e-45,
    1e-40,
    -1e-40,
    16_777_216.0,
];

/// Special values, every exponent, all bit patterns at random, and the ranges in which the functions live.
fn arguments() -> Vec<f32> {
    let mut random = Random(1);
    let mut all = SPECIAL.to_vec();
    for exponent in 0..=255u32 {
        for mantissa in [0, 1, 2, 0x35_04f2, 0x35_04f3, 0x40_0000, 0x7f_ffff] {
            for sign in [0, 0x8000_0000] {
                all.push(f32::from_bits(sign | exponent << 23 | mantissa));
            }
        }
    }
    for _ in 0..COUNT {
        all.push(f32::from_bits(random.next() as u32));
        for range in [1.0, 4.0, 16.0, 128.0, 1e5] {
            all.push((random.unit() * 2.0 - 1.0) * range);
        }
        all.push(1.0 + (random.unit() - 0.5) * 0.01);
    }
    all
}

/// Pairs for powers: those of special values, and such that most results are finite.
fn pairs() -> (Vec<f32>, Vec<f32>) {
    let mut random = Random(2);
    let mut all: Vec<(f32, f32)> = SPECIAL.iter().flat_map(|&x| SPECIAL.map(|y| (x, y))).collect();
    for i in 0..7 * COUNT {
        let near_one = 1.0 + (random.unit() - 0.5) * 0.5f32.powi((i % 20) as i32);
        let x = if i % 3 == 0 { near_one } else { f32::from_bits(random.next() as u32) };
        let exponent = random.unit() * 290.0 - 155.0;
        let y = if i % 5 == 0 { (random.unit() * 64.0 - 32.0).round() } else { exponent / x.abs().log2() };
        all.push((x, y));
    }
    all.into_iter().unzip()
}

// ---- comparison -----------------------------------------------------------------------------------------------------------------

/// What was found: the largest error, in ulp, and relative to what is allowed.
#[derive(Debug, Default, Clone, Copy)]
struct Worst {
    ulp: f64,
    /// Error over allowance.
    share: f64,
    at: (f64, f64),
    got: f64,
    expected: f64,
}

/// The error of a result in units of distance; infinity stands for the number after the largest.
fn distance(element: Element, got: f64, expected: f64) -> f64 {
    let beyond = if element == Element::F16 { 65536.0 } else { 2f64.powi(128) };
    (got.clamp(-beyond, beyond) - expected.clamp(-beyond, beyond)).abs()
}

/// What a kernel is held to.
#[derive(Clone, Copy)]
struct Promise {
    reference: fn(f64, f64) -> f64,
    bound: Bound,
    /// Zeros have the right sign.
    signs: bool,
}

/// The largest error of a kernel, printed, and added to `failures` if it is above the bound.
///
/// # Panics
/// Where the result is NaN and should not be, or the other way round, or a zero has the wrong sign.
fn measure(
    name: &str,
    (element, func): &(Element, Func),
    hardware: Hardware,
    (x, y): (&[u64], &[u64]),
    promise: Promise,
    failures: &mut Vec<String>,
) {
    let Promise { reference, bound, signs } = promise;
    let mut worst = Worst::default();
    for (x, y) in x.chunks(4096).zip(y.chunks(4096)) {
        let results = run(func, hardware, x, y);
        for ((&x, &y), &result) in x.iter().zip(y).zip(&results) {
            let (x, y, got) = (float(*element, x), float(*element, y), float(*element, result));
            let expected = reference(x, y);
            let wrong_kind = got.is_nan() != expected.is_nan()
                || (signs && expected == 0.0 && got.is_sign_negative() != expected.is_sign_negative());
            assert!(!wrong_kind, "{name} of {element} at ({x:e}, {y:e}): {got:e}, expected {expected:e}");
            if expected.is_nan() || got == expected {
                continue;
            }
            let (off, unit) = (distance(*element, got, expected), ulp(*element, expected));
            let size = if name.starts_with("pow") { y.abs() * (1.0 + x.abs().log2().abs()) } else { x.abs() };
            let allowed = (bound.ulp + bound.slope * size) * unit + bound.absolute;
            if off / allowed > worst.share {
                worst = Worst { ulp: off / unit, share: off / allowed, at: (x, y), got, expected };
            }
        }
    }
    let Worst { ulp, share, at, got, expected } = worst;
    let found = format!(
        "{name:15} {element:4} {ulp:9.3} ulp, {share:5.3} of the bound, at {at:?}: {got:e}, expected {expected:e}"
    );
    println!("{found}");
    if share > 1.0 {
        failures.push(found);
    }
}

fn in_f32(values: &[f32]) -> Vec<u64> {
    values.iter().map(|v| u64::from(v.to_bits())).collect()
}

#[test]
fn every_function_has_a_row_and_a_reference() {
    let rows: Vec<&str> = FUNCTIONS.iter().map(|row| row.name).collect();
    assert_eq!(rows, cases().map(|case| case.name));
}

#[test]
fn accurate_forms_keep_their_bound_for_every_argument() {
    let (single, double) = (in_f32(&arguments()), pairs());
    let (x, y) = (in_f32(&double.0), in_f32(&double.1));
    let mut failures = Vec::new();
    for case in cases() {
        let bound = Bound { ulp: row(case.name).accurate, slope: 0.0, absolute: 0.0 };
        let promise = Promise { reference: case.reference, bound, signs: true };
        let inputs = if case.name == "pow" { (&x[..], &y[..]) } else { (&single[..], &single[..]) };
        measure(case.name, &case.accurate[0], Hardware::Exact, inputs, promise, &mut failures);
        if approximates(&case.accurate[0].1) {
            measure(case.name, &case.accurate[0], Hardware::Worst, inputs, promise, &mut failures);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Does the kernel use an approximate instruction?
fn approximates(func: &Func) -> bool {
    func.walk().into_iter().any(|op| func.op(op).flags().has(Flags::APPROX))
}

#[test]
fn fast_forms_keep_their_bound_in_their_domain() {
    let (all, (px, py)) = (arguments(), pairs());
    let mut failures = Vec::new();
    for case in cases() {
        let row = row(case.name);
        let inside = |x: f32| x >= row.domain.0 && x <= row.domain.1;
        let (x, y): (Vec<f32>, Vec<f32>) = if case.name == "pow" {
            let normal = |x: f32, y: f32| {
                let exponent = f64::from(y) * f64::from(x).log2();
                let size = f64::from(y.abs()) + exponent.abs();
                exponent > -125.9 && exponent < 127.9 && y.is_normal() && size < 1000.0
            };
            px.iter().zip(&py).filter(|&(&x, &y)| inside(x) && normal(x, y)).unzip()
        } else {
            all.iter().filter(|&&x| inside(x) && x.is_normal()).map(|&x| (x, x)).unzip()
        };
        let (x, y) = (in_f32(&x), in_f32(&y));
        let promise = Promise { reference: case.reference, bound: flushing(row.fast), signs: false };
        for hardware in [Hardware::Exact, Hardware::Worst] {
            let name = format!("{}_fast", case.name);
            measure(&name, &case.fast[0], hardware, (&x, &y), promise, &mut failures);
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Fast forms may take subnormal results for zero.
fn flushing(bound: Bound) -> Bound {
    Bound { absolute: bound.absolute + f64::from(f32::MIN_POSITIVE), ..bound }
}

#[test]
fn sixteen_bits_round_once() {
    let all: Vec<u64> = (0..=0xffff).collect();
    let mut failures = Vec::new();
    for case in &cases() {
        let row = row(case.name);
        for (i, fast) in [(1, row.fast_f16), (2, row.fast_bf16)] {
            let element = case.accurate[i].0;
            let inputs = |from: f64, to: f64| -> (Vec<u64>, Vec<u64>) {
                let inside = |bits: u64| (from..=to).contains(&float(element, bits));
                let y = |x: u64| if case.name == "pow" { exponent_for(element, x) } else { x };
                all.iter().filter(|&&x| inside(x) || to.is_infinite()).map(|&x| (x, y(x))).unzip()
            };
            let bound = Bound { ulp: ACCURATE_HALF, slope: 0.0, absolute: 0.0 };
            let promise = Promise { reference: case.reference, bound, signs: true };
            let (x, y) = inputs(f64::NEG_INFINITY, f64::INFINITY);
            measure(case.name, &case.accurate[i], Hardware::Worst, (&x, &y), promise, &mut failures);
            let promise = Promise { bound: flushing(fast), signs: false, ..promise };
            let (x, y) = inputs(f64::from(row.domain.0), f64::from(row.domain.1));
            measure(
                &format!("{}_fast", case.name),
                &case.fast[i],
                Hardware::Worst,
                (&x, &y),
                promise,
                &mut failures,
            );
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A `y` for which the power of `x` is mostly finite: of either sign, and different for neighbours.
fn exponent_for(element: Element, x: u64) -> u64 {
    let exponent = ((x * 37 % 101) as f64 - 50.0) * 0.2;
    let log = float(element, x).abs().log2();
    bits(
        element,
        if log.is_finite() && log != 0.0 { (exponent / log).clamp(-500.0, 500.0) } else { exponent },
    )
}

#[test]
fn powers_of_two_are_exact() {
    let exponents: Vec<f32> = (-149..=127i16).map(f32::from).collect();
    let powers: Vec<u64> =
        exponents.iter().map(|&n| u64::from((f64::from(n).exp2() as f32).to_bits())).collect();
    let exponents = in_f32(&exponents);
    assert_eq!(run(&staged::<f32>(|x, _| x.exp2()), Hardware::Exact, &exponents, &exponents), powers);
    assert_eq!(run(&staged::<f32>(|x, _| x.log2()), Hardware::Exact, &powers, &powers), exponents);
    let twos = vec![u64::from(2f32.to_bits()); powers.len()];
    assert_eq!(run(&staged::<f32>(|x, y| x.pow(y)), Hardware::Worst, &twos, &exponents), powers);
}

#[test]
fn sine_and_cosine_together_are_those_of_each() {
    let x = in_f32(&arguments());
    let pairs = [
        (staged::<f32>(|x, _| x.sin_cos().0), staged::<f32>(|x, _| x.sin())),
        (staged::<f32>(|x, _| x.sin_cos().1), staged::<f32>(|x, _| x.cos())),
        (staged::<f32>(|x, _| x.sin_cos_fast().0), staged::<f32>(|x, _| x.sin_fast())),
        (staged::<f32>(|x, _| x.sin_cos_fast().1), staged::<f32>(|x, _| x.cos_fast())),
    ];
    for (together, alone) in &pairs {
        for x in x.chunks(4096) {
            let alone = run(alone, Hardware::Exact, x, x);
            assert_eq!(run(together, Hardware::Exact, x, x), alone);
        }
    }
}

#[test]
fn vectors_apply_the_function_to_each_element() {
    #[kernel]
    fn vectors(x: Global<bf16>, out: Global<bf16>) {
        let x = x.load_vector(4);
        out.store_vector(x.exp().pow(x.sin_fast()).tanh_fast());
    }
    let ir = vectors::stage().unwrap().ir();
    let count = |op: &str| ir.matches(op).count();
    assert_eq!((count(" sin "), count(" tanh "), count(" pack ")), (4, 1, 3), "{ir}");

    #[kernel]
    fn unequal(x: Global<f32>) {
        let powers = x.load_vector(4).pow(x.load_vector(2));
        x.store_vector(powers);
    }
    let error = unequal::stage().unwrap_err().to_string();
    assert!(error.contains("vectors of 4 and 2 elements"), "{error}");
}
