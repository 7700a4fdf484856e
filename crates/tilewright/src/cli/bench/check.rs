//! Whether a result is right: against sums in f64 of the same rounded inputs, all of them for small products, some rows and columns (the
//! first, the last and a few between) for large ones.
//!
//! D is filled with a poison before the run. Of every row that is looked at, no element may have kept it, and what lies between rows must
//! have.

use tilewright::device::{Buffer, DeviceError};
use tilewright::hardware::Element;
use tilewright::kernels::gemm::{Accumulation, Problem};

use super::super::product::{Case, bias_element, footprint, index};
use super::data::{Pattern, decode};

/// The numbers of the operands.
#[derive(Debug)]
pub(super) struct Inputs {
    pub(super) a: Pattern,
    pub(super) b: Pattern,
    pub(super) bias: Pattern,
}

impl Inputs {
    /// Fresh ones for a problem.
    pub(super) fn new(problem: &Problem, seed: u64) -> Inputs {
        let Problem { m, n, k, batch, types, .. } = *problem;
        Inputs {
            a: Pattern::new(types.a, footprint(&problem.a, m, k, batch), seed),
            b: Pattern::new(types.b, footprint(&problem.b, k, n, batch), seed.wrapping_add(1)),
            bias: Pattern::new(bias_element(types.d), u64::from(n), seed.wrapping_add(2)),
        }
    }
}

/// What came of a check.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// The largest difference as a part of what rounding explains.
    pub(super) error: f64,
    /// Elements that were compared.
    pub(super) compared: usize,
    /// The first element that is wrong, in words.
    pub(super) wrong: Option<String>,
}

/// The byte that D is filled with: a NaN of every float, and of an integer a number that no product gives.
pub(super) fn poison(element: Element) -> u8 {
    if element.is_float() { 0xff } else { 0x80 }
}

/// Products of so many steps are compared in full.
const SMALL: f64 = (1 << 24) as f64;

/// Rows and columns of a large product that are compared.
const SOME: u32 = 32;

/// Compares a result.
pub(super) fn check(
    case: &Case,
    problem: &Problem,
    inputs: &Inputs,
    d: &Buffer<u8>,
) -> Result<Verdict, DeviceError> {
    let Problem { m, n, k, batch, types, .. } = *problem;
    let mut verdict = Verdict { error: 0.0, compared: 0, wrong: None };
    if m == 0 || n == 0 {
        return Ok(verdict);
    }
    let all = problem.flops() <= 2.0 * SMALL;
    let most = if all { u32::MAX } else { SOME };
    let (width, poison) = (types.d.bytes() as usize, poison(types.d));
    let untouched = |bytes: &[u8]| bytes.iter().all(|&byte| byte == poison);
    let bytes_at = |place: u64| usize::try_from(place).unwrap_or(usize::MAX).saturating_mul(width);
    for member in places(batch, if all { u32::MAX } else { 2 }) {
        let columns: Vec<(u32, Vec<f64>)> = places(n, most)
            .map(|column| {
                (column, (0..k).map(|k| inputs.b.at(index(&problem.b, member, k, column))).collect())
            })
            .collect();
        for row in places(m, most) {
            let a: Vec<f64> = (0..k).map(|k| inputs.a.at(index(&problem.a, member, row, k))).collect();
            let start = bytes_at(index(&problem.d, member, row, 0));
            let end = bytes_at(index(&problem.d, member, row, 0) + problem.d.leading).min(d.len());
            let line = d.slice(start..end)?.to_vec()?;
            let (elements, gap) = line.split_at(bytes_at(u64::from(n)).min(line.len()));
            if !untouched(gap) {
                verdict.refute(format!("what lies behind row {row} was written"));
            }
            let missing = elements.chunks(width).position(untouched);
            if let Some(column) = missing {
                verdict.refute(format!("element ({row}, {column}) was not written"));
            }
            for (column, b) in &columns {
                let (mut sum, mut squares) = (0.0, 0.0);
                for (a, b) in a.iter().zip(b) {
                    sum += a * b;
                    squares += (a * b).powi(2);
                }
                let bias = inputs.bias.at(u64::from(*column));
                let expected = case.finish.apply(sum, bias);
                let at = *column as usize * width;
                let found = decode(types.d, &elements[at..at + width]);
                let slack = case.finish.slack() * (sum.abs() + bias.abs());
                let tolerance = tolerance(problem, expected, squares.sqrt()) + slack;
                verdict.compare((row, u64::from(*column)), found, expected, tolerance);
            }
        }
    }
    Ok(verdict)
}

impl Verdict {
    pub(super) fn compare(&mut self, (row, column): (u32, u64), found: f64, expected: f64, tolerance: f64) {
        self.compared += 1;
        let difference = (found - expected).abs();
        let error = if difference == 0.0 { 0.0 } else { difference / tolerance };
        // Also of no number at all.
        if error.is_nan() || error > 1.0 {
            self.refute(format!(
                "element ({row}, {column}) is {found:e}, expected {expected:e} within {tolerance:.1e}"
            ));
        }
        // JSON has no infinity.
        self.error = if error.is_nan() { f64::MAX } else { self.error.max(error.min(f64::MAX)) };
    }

    pub(super) fn refute(&mut self, words: String) {
        self.error = f64::MAX;
        self.wrong.get_or_insert(words);
    }
}

/// What rounding explains. The result is rounded once. Sums are rounded at every step of the tensor core, each time by a part of a sum
/// whose size is that of the root of the squares (`norm`): steps of 32 toward zero add up, and those of CUDA cores go either way.
fn tolerance(problem: &Problem, expected: f64, norm: f64) -> f64 {
    let types = problem.types;
    if !types.d.is_float() {
        // Integers are exact, but epilogues take them in f32, and round.
        let rounded = 0.5 + f64::exp2(-22.0) * (expected.abs() + norm);
        return if problem.epilogue.is_identity() { 0.0 } else { rounded };
    }
    let depth = f64::from(problem.k);
    let steps = |depth: f64| 4.0 * (depth / 32.0 + 2.0 * depth.sqrt() + 8.0);
    let unit = |element: Element| (-f64::from(element.mantissa_bits().unwrap_or(52))).exp2();
    let plain = unit(types.accumulate) * steps(depth);
    let sums = match (types.a, problem.accumulation) {
        // Tensor cores of Hopper keep about 14 bits of such sums.
        (Element::E4M3 | Element::E5M2, Accumulation::Fast) => f64::exp2(-13.0) * steps(depth),
        (Element::E4M3 | Element::E5M2, Accumulation::Promoted) => {
            f64::exp2(-13.0) * steps(depth.min(128.0)) + plain
        }
        _ => plain,
    };
    unit(types.d) * expected.abs() + sums * norm + f64::MIN_POSITIVE
}

/// Of so many places, at most so many: the first, the last and some between, the same every time.
pub(super) fn places(count: u32, most: u32) -> impl Iterator<Item = u32> {
    let (count, most) = (u64::from(count), u64::from(most.max(2)));
    let shown = count.min(most);
    // Not at equal distances: faults often are.
    let place = move |i: u64| match i {
        _ if count <= most => i,
        0 => 0,
        i if i + 1 == shown => count - 1,
        i => {
            let (low, high) = (i * (count - 1) / (shown - 1), (i + 1) * (count - 1) / (shown - 1));
            low + i.wrapping_mul(0x9E37_79B9) % (high - low)
        }
    };
    (0..shown).filter_map(move |i| u32::try_from(place(i)).ok())
}

#[cfg(test)]
mod tests {
    use tilewright::device::Device;

    use super::*;

    /// A product of the host, rounded to the type of the result.
    fn product(case: &Case, problem: &Problem, inputs: &Inputs, device: &Device) -> Buffer<u8> {
        let Problem { m, n, k, batch, .. } = *problem;
        let elements = footprint(&problem.d, m, n, batch);
        let mut bytes = vec![poison(problem.types.d); usize::try_from(elements).unwrap() * 4];
        for (member, row, column) in
            (0..batch).flat_map(|z| (0..m).flat_map(move |row| (0..n).map(move |column| (z, row, column))))
        {
            let step = |k| {
                inputs.a.at(index(&problem.a, member, row, k))
                    * inputs.b.at(index(&problem.b, member, k, column))
            };
            let value = case.finish.apply((0..k).map(step).sum(), inputs.bias.at(u64::from(column)));
            let at = usize::try_from(index(&problem.d, member, row, column)).unwrap() * 4;
            #[allow(clippy::cast_possible_truncation)]
            bytes[at..at + 4].copy_from_slice(&(value as f32).to_le_bytes());
        }
        device.upload(&bytes).unwrap()
    }

    fn case(shape: &str) -> Case {
        Case {
            shape: shape.parse().unwrap(),
            element: Element::F32,
            layout: "nt".parse().unwrap(),
            finish: "none".parse().unwrap(),
        }
    }

    fn verdict(shape: &str, spoil: impl Fn(&mut Vec<u8>)) -> Verdict {
        let (case, device) = (case(shape), Device::cpu());
        let problem = case.problem().unwrap();
        let inputs = Inputs::new(&problem, 11);
        let d = product(&case, &problem, &inputs, &device);
        let mut bytes = d.to_vec().unwrap();
        spoil(&mut bytes);
        d.write(&bytes).unwrap();
        check(&case, &problem, &inputs, &d).unwrap()
    }

    #[test]
    fn a_right_result_is_right() {
        for (shape, compared) in
            [("5x7x9", 35), ("4x6x3*2+3", 48), ("0x6x3", 0), ("3x2x0", 6), ("300x300x200", 1024)]
        {
            let verdict = verdict(shape, |_| {});
            assert_eq!((verdict.compared, &verdict.wrong), (compared, &None), "{shape}");
            assert!(verdict.error < 1.0);
        }
    }

    #[test]
    fn what_is_wrong_is_found() {
        // One number, a little off: a step of the sum that is missing would be more.
        let off = verdict("5x7x9", |bytes| {
            let value = f32::from_le_bytes(bytes[4..8].try_into().unwrap());
            bytes[4..8].copy_from_slice(&(value + 0.01).to_le_bytes());
        });
        assert!(off.wrong.unwrap().starts_with("element (0, 1) is "));
        let kept = verdict("5x7x9", |bytes| bytes[8..12].fill(0xff));
        assert_eq!(kept.wrong.unwrap(), "element (0, 2) was not written");
        let beyond = verdict("5x7x9+2", |bytes| bytes[7 * 4] = 0);
        assert_eq!(beyond.wrong.unwrap(), "what lies behind row 0 was written");
        assert_eq!(beyond.error, f64::MAX);
    }

    #[test]
    fn places_are_the_first_the_last_and_others() {
        assert_eq!(places(5, u32::MAX).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        let some: Vec<u32> = places(100_000, 32).collect();
        assert_eq!((some.len(), some[0], some[31]), (32, 0, 99_999));
        assert!(some.is_sorted_by(|a, b| a < b));
        assert_eq!(places(0, 32).count(), 0);
        assert_eq!(places(33, 32).count(), 32);
    }

    #[test]
    fn a_missing_step_is_more_than_rounding() {
        let mut case = case("4096x4096x4096");
        for (element, norm) in [(Element::BF16, 64.0), (Element::F32, 64.0), (Element::TF32, 64.0)] {
            case.element = element;
            let problem = case.problem().unwrap();
            assert!(tolerance(&problem, 0.0, norm) < 0.1, "{element}");
        }
        case.element = Element::I8;
        assert_eq!(tolerance(&case.problem().unwrap(), 7.0, 1e6), 0.0);
    }
}
