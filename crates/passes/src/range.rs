//! `range`: comparisons that always come out the same are gone.
//!
//! For every integer the smallest and the largest number that it can be, from what is known of constants, of the registers of the hardware
//! (a kernel of 128 threads, as here, has none whose number is 128), and of the ops between them.
//!
//! ```text
//! %0 = special reg(tid.x) : u32            %0 = special reg(tid.x) : u32
//! %1 = const value(4) : u32                %1 = const value(4) : u32
//! %2 = mul %0, %1 : u32              →     %2 = mul %0, %1 : u32
//! %3 = const value(512) : u32              %3 = const value(512) : u32
//! %4 = cmp %2, %3 cmp(lt) : bool           %4 = const value(1) : bool
//! ```
//!
//! So masks for the end of a row cost nothing where rows are as long as what the threads hold. What follows from the comparison is left to
//! [`fold`](crate::fold).
//!
//! Limits: what loops carry can be anything, but for the counter of a `for`; scalars only; a result that may wrap can be anything.

use smallvec::SmallVec;
use tilewright_ir::{
    Attr, Cmp, Constant, Element, Func, Launch, OpData, Opcode, Region, Special, Type, Value,
};

use crate::context::Context;
use crate::rewrite::constant;

/// The name of the pass.
pub const NAME: &str = "range";

/// Runs the pass; true if anything changed.
pub fn run(func: &mut Func, _cx: &mut Context) -> bool {
    let mut ranges = Ranges { func, known: vec![None; func.value_count()] };
    ranges.region(func.body());
    let known = ranges.known;
    let mut changed = false;
    for op in func.walk() {
        let data = func.op(op);
        let outcome = match (data.code, data.get::<Cmp>(), &data.operands[..]) {
            (Opcode::Cmp, Some(cmp), &[a, b]) => {
                known[a.index()].zip(known[b.index()]).and_then(|(a, b)| decided(cmp, a, b))
            }
            _ => None,
        };
        if let Some(outcome) = outcome {
            let data = func.op_mut(op);
            data.code = Opcode::Const;
            data.operands.clear();
            data.attrs = SmallVec::from_iter([Attr::of(Constant(outcome.into()))]);
            changed = true;
        }
    }
    changed
}

/// What a comparison gives, if it is the same for all numbers of two ranges.
fn decided(cmp: Cmp, a: Range, b: Range) -> Option<bool> {
    let (below, above) = (a.high < b.low, b.high < a.low);
    let (not_above, not_below) = (a.high <= b.low, b.high <= a.low);
    let of = |yes: bool, no: bool| {
        if yes {
            Some(true)
        } else if no {
            Some(false)
        } else {
            None
        }
    };
    match cmp {
        Cmp::Lt => of(below, not_below),
        Cmp::Le => of(not_above, above),
        Cmp::Gt => of(above, not_above),
        Cmp::Ge => of(not_below, below),
        Cmp::Eq => of(not_above && not_below, below || above),
        Cmp::Ne => of(below || above, not_above && not_below),
    }
}

/// All numbers from one to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    low: i128,
    high: i128,
}

impl Range {
    fn of(a: i128, b: i128) -> Range {
        Range { low: a.min(b), high: a.max(b) }
    }

    fn up_to(high: u64) -> Range {
        Range { low: 0, high: high.into() }
    }

    /// All that an integer can be; none for what is no integer.
    fn all(ty: Type) -> Option<Range> {
        let Type::Scalar(element) = ty else { return None };
        let bits = element.bits();
        (element.is_int() && bits <= 64).then(|| match element.is_signed() {
            true => Range { low: -(1 << (bits - 1)), high: (1 << (bits - 1)) - 1 },
            false => Range { low: 0, high: (1 << bits) - 1 },
        })
    }

    fn holds(self, other: Range) -> bool {
        self.low <= other.low && other.high <= self.high
    }

    fn is_negative(self) -> bool {
        self.low < 0
    }

    /// The number, if there is only one.
    fn only(self) -> Option<i128> {
        (self.low == self.high).then_some(self.low)
    }
}

struct Ranges<'a> {
    func: &'a Func,
    known: Vec<Option<Range>>,
}

impl Ranges<'_> {
    fn get(&self, value: Value) -> Option<Range> {
        self.known[value.index()]
    }

    fn region(&mut self, region: Region) {
        let func = self.func;
        for &arg in &func.region(region).args {
            if self.get(arg).is_none() {
                self.known[arg.index()] = Range::all(func.ty(arg));
            }
        }
        for &op in &func.region(region).ops {
            let data = func.op(op);
            if data.code == Opcode::For {
                let counter = func.region(data.regions[0]).args[0];
                self.known[counter.index()] = self.counter(data);
            }
            for &inner in &data.regions {
                self.region(inner);
            }
            for &result in &data.results {
                let all = Range::all(func.ty(result));
                let found = all.and_then(|all| self.result(data, result).filter(|found| all.holds(*found)));
                self.known[result.index()] = found.or(all);
            }
        }
    }

    /// Rounds begin at the first bound or after it, and before the second.
    fn counter(&self, data: &OpData) -> Option<Range> {
        let (low, high) = (self.get(data.operands[0])?, self.get(data.operands[1])?);
        let step = self.get(data.operands[2])?;
        (step.low > 0 && low.low < high.high).then(|| Range { low: low.low, high: high.high - 1 })
    }

    /// The numbers that an op can give before they wrap; none if nobody knows.
    fn result(&self, data: &OpData, result: Value) -> Option<Range> {
        let of = |i: usize| data.operands.get(i).and_then(|&v| self.get(v));
        let corners = |a: Range, b: Range, f: fn(i128, i128) -> Option<i128>| {
            let all = [f(a.low, b.low)?, f(a.low, b.high)?, f(a.high, b.low)?, f(a.high, b.high)?];
            Some(Range::of(*all.iter().min()?, *all.iter().max()?))
        };
        let sum = |a: Range, b: Range| corners(a, b, i128::checked_add);
        let product = |a: Range, b: Range| corners(a, b, i128::checked_mul);
        match data.code {
            Opcode::Const => {
                let bits = constant(self.func, result)?;
                let signed = self.func.ty(result).element().is_some_and(Element::is_signed);
                let number = if signed { bits.cast_signed().into() } else { bits.into() };
                Some(Range::of(number, number))
            }
            Opcode::Special => special(data.get()?, &self.func.launch),
            Opcode::Add => sum(of(0)?, of(1)?),
            Opcode::Sub => corners(of(0)?, of(1)?, i128::checked_sub),
            Opcode::Mul | Opcode::MulWide => product(of(0)?, of(1)?),
            Opcode::Fma => sum(product(of(0)?, of(1)?)?, of(2)?),
            Opcode::Min => {
                let (a, b) = (of(0)?, of(1)?);
                Some(Range { low: a.low.min(b.low), high: a.high.min(b.high) })
            }
            Opcode::Max => {
                let (a, b) = (of(0)?, of(1)?);
                Some(Range { low: a.low.max(b.low), high: a.high.max(b.high) })
            }
            Opcode::Select => {
                let (a, b) = (of(1)?, of(2)?);
                Some(Range { low: a.low.min(b.low), high: a.high.max(b.high) })
            }
            Opcode::Div | Opcode::Rem => {
                let (a, b) = (of(0)?, of(1)?.only().filter(|&by| by > 0)?);
                match data.code {
                    _ if a.is_negative() => None,
                    Opcode::Div => Some(Range { low: a.low / b, high: a.high / b }),
                    _ if a.high < b => Some(a),
                    _ => Some(Range { low: 0, high: b - 1 }),
                }
            }
            Opcode::Shr => {
                let (a, by) = (of(0)?, u32::try_from(of(1)?.only()?).ok().filter(|&by| by < 64)?);
                (!a.is_negative()).then(|| Range { low: a.low >> by, high: a.high >> by })
            }
            Opcode::Shl => {
                let by = u32::try_from(of(1)?.only()?).ok().filter(|&by| by < 64)?;
                product(of(0)?, Range::of(1 << by, 1 << by))
            }
            // Of numbers that are not negative, the smaller one limits what they have in common.
            Opcode::And => {
                let limits = [of(0)?, of(1)?].into_iter().filter(|range| !range.is_negative());
                limits.map(|range| range.high).min().map(|high| Range { low: 0, high })
            }
            Opcode::Or | Opcode::Xor => {
                let (a, b) = (of(0)?, of(1)?);
                let bits = 128 - a.high.max(b.high).leading_zeros();
                (!a.is_negative() && !b.is_negative()).then(|| Range { low: 0, high: (1 << bits) - 1 })
            }
            // A number that both types have stays the same; others are refused by the caller.
            Opcode::Cvt | Opcode::Bitcast if data.attrs.is_empty() => of(0),
            _ => None,
        }
    }
}

/// What the hardware's registers can hold.
fn special(special: Special, launch: &Launch) -> Option<Range> {
    let below = |count: u32| Range::up_to(u64::from(count.max(1)) - 1);
    let of = |axes: Option<[u32; 3]>, axis: usize| axes.map(|axes| below(axes[axis]));
    match special {
        Special::TidX => of(launch.threads, 0),
        Special::TidY => of(launch.threads, 1),
        Special::TidZ => of(launch.threads, 2),
        Special::LaneId => Some(below(32)),
        Special::ClusterCtaidX => of(launch.cluster, 0),
        Special::ClusterCtaidY => of(launch.cluster, 1),
        Special::ClusterCtaidZ => of(launch.cluster, 2),
        Special::ClusterCtarank => launch.cluster.map(|cluster| below(cluster.iter().product())),
        // A grid has at most 2^31 - 1 blocks along an axis.
        Special::CtaidX | Special::CtaidY | Special::CtaidZ => Some(Range::up_to((1 << 31) - 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_ir::parse;

    /// What the comparisons of a kernel of 128 threads in clusters of 4 become: 0, 1, or what they were.
    fn outcomes(body: &str) -> Vec<Option<u64>> {
        let text = format!("func @f (%out: ptr<global>, %n: u32, %i: i32) {{ {body} }}");
        let mut module = parse(&text).unwrap();
        let func = &mut module.funcs[0];
        (func.launch.threads, func.launch.cluster) = (Some([128, 1, 1]), Some([4, 1, 1]));
        let found = |func: &Func| {
            let bools = func.walk().into_iter().map(|op| func.op(op).results.to_vec()).collect::<Vec<_>>();
            bools
                .concat()
                .into_iter()
                .filter(|&v| func.ty(v) == Type::BOOL)
                .map(|v| constant(func, v))
                .collect::<Vec<_>>()
        };
        assert!(found(func).iter().all(Option::is_none));
        run(func, &mut Context::default());
        found(func)
    }

    #[test]
    fn numbers_of_threads_are_limited() {
        let body = "%0 = special reg(tid.x) : u32
            %1 = special reg(cluster_ctarank) : u32
            %2 = const value(128) : u32
            %3 = fma %1, %2, %0 : u32
            %4 = const value(512) : u32
            %5 = const value(511) : u32
            %6 = cmp %3, %4 cmp(lt) : bool
            %7 = cmp %3, %5 cmp(lt) : bool
            %8 = cmp %3, %5 cmp(gt) : bool
            %9 = cmp %0, %2 cmp(ne) : bool
            %10 = cmp %2, %0 cmp(eq) : bool";
        assert_eq!(outcomes(body), [Some(1), None, Some(0), Some(1), Some(0)]);
    }

    #[test]
    fn what_may_wrap_is_unknown() {
        let body = "%0 = special reg(tid.x) : u32
            %1 = const value(1) : u32
            %2 = sub %0, %1 : u32
            %3 = const value(1000) : u32
            %4 = cmp %2, %3 cmp(lt) : bool
            %5 = add %n, %1 : u32
            %6 = cmp %5, %1 cmp(ge) : bool
            %7 = bitcast %i : u32
            %8 = cmp %7, %3 cmp(lt) : bool
            %9 = cvt %i : i64
            %10 = const value(2147483648) : i64
            %11 = cmp %9, %10 cmp(lt) : bool";
        assert_eq!(outcomes(body), [None, None, None, Some(1)]);
    }

    #[test]
    fn counters_stay_between_their_bounds() {
        let body = "%0 = const value(2) : u32
            %1 = const value(10) : u32
            %2 = const value(0) : u32
            for %0, %1, %0 do {
              (%3: u32)
              %4 = cmp %3, %1 cmp(lt) : bool
              %5 = cmp %3, %0 cmp(ge) : bool
              %6 = cmp %3, %0 cmp(eq) : bool
              yield
            }
            for %0, %n, %0 do {
              (%7: u32)
              %8 = cmp %7, %2 cmp(gt) : bool
              %9 = cmp %7, %1 cmp(lt) : bool
              yield
            }";
        assert_eq!(outcomes(body), [Some(1), Some(1), None, Some(1), None]);
    }
}
