//! Random nests of host and staged `if`s and loops over a few variables compute what Rust computes.
//!
//! The nest is written once, as a device function, and once in plain Rust. What the first stages is interpreted here.

use proptest::prelude::*;
use tilewright_ir::{Cmp, Constant, Func, Op, Opcode, Region, Special};
use tilewright_lang::prelude::*;

/// A statement over the variables.
#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// `x[to] += x[from]`.
    Add(usize, usize),
    /// Two variables trade places.
    Swap(usize, usize),
    /// `if host { .. } else { .. }`.
    HostIf(bool, Vec<Step>, Vec<Step>),
    /// `if x[0] < x[1] { .. } else { .. }`.
    If(Vec<Step>, Vec<Step>),
    /// `if x[0] < x[1] && x[1] < x[2] { .. }`.
    IfBoth(Vec<Step>),
    /// `for` over two host numbers.
    HostFor(Vec<Step>),
    /// `for` over up to three numbers.
    For(Vec<Step>),
    /// `while`, up to three times; the condition counts.
    While(Vec<Step>),
}

const VARIABLES: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pair = (0..VARIABLES, 0..VARIABLES);
    let leaf = prop_oneof![
        pair.clone().prop_map(|(to, from)| Step::Add(to, from)),
        pair.prop_map(|(a, b)| Step::Swap(a, b)),
    ];
    let step = leaf.prop_recursive(4, 24, 3, |step| {
        let body = prop::collection::vec(step, 0..3);
        prop_oneof![
            (any::<bool>(), body.clone(), body.clone()).prop_map(|(on, a, b)| Step::HostIf(on, a, b)),
            (body.clone(), body.clone()).prop_map(|(a, b)| Step::If(a, b)),
            body.clone().prop_map(Step::IfBoth),
            body.clone().prop_map(Step::HostFor),
            body.clone().prop_map(Step::For),
            body.prop_map(Step::While),
        ]
    });
    prop::collection::vec(step, 1..5)
}

#[device]
fn staged(steps: &[Step], x: &mut [Val<u32>; VARIABLES]) {
    for step in steps {
        match step {
            Step::Add(to, from) => x[*to] += x[*from],
            Step::Swap(a, b) => x.swap(*a, *b),
            Step::HostIf(on, then, otherwise) => {
                if *on {
                    staged(then, x);
                } else {
                    staged(otherwise, x);
                }
            }
            Step::If(then, otherwise) => {
                if x[0] < x[1] {
                    staged(then, x);
                } else {
                    staged(otherwise, x);
                }
            }
            Step::IfBoth(then) => {
                if x[0] < x[1] && x[1] < x[2] {
                    staged(then, x);
                }
            }
            Step::HostFor(body) => {
                for _ in 0..2 {
                    staged(body, x);
                }
            }
            Step::For(body) => {
                for i in 0..x[2] % 4 {
                    x[0] ^= i;
                    staged(body, x);
                }
            }
            Step::While(body) => {
                let mut left = x[1] % 4 + 1;
                while {
                    left -= 1;
                    left > 0
                } {
                    staged(body, x);
                }
                x[0] += left;
            }
        }
    }
}

#[kernel]
fn nest(out: Global<u32>, steps: Vec<Step>) {
    let mut x = [thread_id(0), thread_id(1), thread_id(2)];
    staged(&steps, &mut x);
    for (i, one) in (0u32..).zip(x) {
        out.at(i).store(one);
    }
}

fn plain(steps: &[Step], x: &mut [u32; VARIABLES]) {
    for step in steps {
        match step {
            Step::Add(to, from) => x[*to] = x[*to].wrapping_add(x[*from]),
            Step::Swap(a, b) => x.swap(*a, *b),
            Step::HostIf(true, body, _) | Step::HostIf(false, _, body) => plain(body, x),
            Step::If(then, _) if x[0] < x[1] => plain(then, x),
            Step::If(_, otherwise) => plain(otherwise, x),
            Step::IfBoth(then) if x[0] < x[1] && x[1] < x[2] => plain(then, x),
            Step::IfBoth(_) => {}
            Step::HostFor(body) => (0..2).for_each(|_| plain(body, x)),
            Step::For(body) => {
                for i in 0..x[2] % 4 {
                    x[0] ^= i;
                    plain(body, x);
                }
            }
            Step::While(body) => (0..x[1] % 4).for_each(|_| plain(body, x)),
        }
    }
}

/// Executes a kernel of these few ops for one thread.
struct Interpreter<'a> {
    func: &'a Func,
    thread: [u32; VARIABLES],
    values: Vec<u64>,
    stored: Vec<u32>,
}

impl Interpreter<'_> {
    /// Runs a region with these arguments; what its last op hands on.
    fn region(&mut self, region: Region, args: &[u64]) -> Vec<u64> {
        let func = self.func;
        for (arg, value) in func.region(region).args.iter().zip(args) {
            self.values[arg.index()] = *value;
        }
        let mut handed = Vec::new();
        for &op in &func.region(region).ops {
            let data = func.op(op);
            let results = self.op(op);
            if data.info().is_terminator() {
                handed = data.operands.iter().map(|v| self.values[v.index()]).collect();
            }
            for (result, value) in data.results.iter().zip(results) {
                self.values[result.index()] = value;
            }
        }
        handed
    }

    fn op(&mut self, op: Op) -> Vec<u64> {
        let data = self.func.op(op);
        let x: Vec<u64> = data.operands.iter().map(|v| self.values[v.index()]).collect();
        let word = |value: u64| vec![value & 0xffff_ffff];
        match data.code {
            Opcode::Const => vec![data.get::<Constant>().unwrap().0],
            Opcode::Special => {
                let axes = [Special::TidX, Special::TidY, Special::TidZ];
                let axis = axes.iter().position(|axis| data.get() == Some(*axis)).unwrap();
                vec![self.thread[axis].into()]
            }
            Opcode::Add => word(x[0].wrapping_add(x[1])),
            Opcode::Sub => word(x[0].wrapping_sub(x[1])),
            Opcode::Rem => word(x[0] % x[1]),
            Opcode::Xor => word(x[0] ^ x[1]),
            Opcode::Cmp => vec![u64::from(match data.get::<Cmp>() {
                Some(Cmp::Lt) => x[0] < x[1],
                Some(Cmp::Gt) => x[0] > x[1],
                other => panic!("{other:?}"),
            })],
            Opcode::If => self.region(data.regions[usize::from(x[0] == 0)], &[]),
            Opcode::For => {
                let mut carried = x[3..].to_vec();
                for i in (x[0]..x[1]).step_by(usize::try_from(x[2]).unwrap()) {
                    let args: Vec<u64> = std::iter::once(i).chain(carried).collect();
                    carried = self.region(data.regions[0], &args);
                }
                carried
            }
            Opcode::While => {
                let mut carried = x;
                loop {
                    let tested = self.region(data.regions[0], &carried);
                    if tested[0] == 0 {
                        return tested[1..].to_vec();
                    }
                    carried = self.region(data.regions[1], &tested[1..]);
                }
            }
            Opcode::Store => {
                self.stored.push(u32::try_from(x[1]).unwrap());
                Vec::new()
            }
            Opcode::PtrAdd => vec![0],
            Opcode::Yield | Opcode::Condition => Vec::new(),
            other => panic!("{other:?} is not interpreted"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nests_compute_what_rust_computes(steps in steps(), thread in prop::array::uniform3(0u32..6)) {
        let kernel = nest::stage(steps.clone()).unwrap_or_else(|error| panic!("{error}"));
        let func = kernel.func();
        let values = vec![0; func.value_count()];
        let mut interpreter = Interpreter { func, thread, values, stored: Vec::new() };
        interpreter.region(func.body(), &[]);
        let mut expected = thread;
        plain(&steps, &mut expected);
        prop_assert_eq!(interpreter.stored, expected, "{}", kernel.ir());
    }
}
