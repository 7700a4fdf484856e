//! What an epilogue cannot be, with the reason.

use tilewright_hardware::Element;

use super::Epilogue;
use super::expr::{Access, Expr, ExtraOperand, How, Pick, Shape};
use crate::gemm::GemmError;
use crate::gemm::problem::{LARGEST_STRIDE, Problem, Storage, check_distance};

/// Elements that operands can have.
const ELEMENTS: [Element; 6] =
    [Element::F16, Element::BF16, Element::F32, Element::F64, Element::E4M3, Element::E5M2];

/// Parts that an expression can have. Each is code for every element that a thread holds, and an expression that is used twice is there twice: a
/// few steps of doubling would keep the compiler busy for ever.
const MOST_PARTS: usize = 512;

impl Epilogue {
    /// Whether it can be computed for a problem.
    ///
    /// # Errors
    /// If the expression is too large, contradicts itself (two operands of one name, pairs of pairs), takes functions that the type it computes in
    /// does not have, or if a matrix does not fit the problem.
    pub fn check(&self, problem: &Problem) -> Result<(), GemmError> {
        let refuse = |reason: String| Err(GemmError::Epilogue { reason });
        let mut parts = 0usize;
        self.result().visit(&mut |_| parts += 1);
        if parts > MOST_PARTS {
            return refuse(format!(
                "{parts} parts; expected at most {MOST_PARTS}; a value that is used twice is computed once in a formula of your own"
            ));
        }
        self.check_names().or_else(refuse)?;
        let paired = self.columns_for_one() > 1;
        check_part(self.result(), &Context { paired, picked: false, weighted: false }).or_else(refuse)?;
        if self.computes_in(&problem.types) == Element::F64
            && let Some(function) = self.functions().first()
        {
            return refuse(format!("{function} of f64 does not exist on the device; accumulate in f32"));
        }
        for operand in self.all_operands() {
            check_operand(&operand, problem)?;
        }
        Ok(())
    }

    fn check_names(&self) -> Result<(), String> {
        let scalars = self.scalars();
        let operands = self.all_operands();
        for name in scalars.iter().chain(operands.iter().map(|operand| &operand.name)) {
            check_name(name)?;
        }
        for (i, operand) in operands.iter().enumerate() {
            let name = &operand.name;
            if scalars.contains(name) {
                return Err(format!("`{name}` names a number and an operand; expected different names"));
            }
            if let Some(other) = operands[..i].iter().find(|other| other.name == *name && *other != operand) {
                if other.matches_d() != operand.matches_d() {
                    return Err(format!(
                        "`{name}` is used before and after two columns become one, which leaves half as many; expected a name for each"
                    ));
                }
                return Err(format!(
                    "`{name}` is described as [{other}] and as [{operand}]; expected a name for each"
                ));
            }
        }
        // The same value may be stored by several parts of an expression that contain it: it is computed once.
        let mut stored: Vec<(&str, &Expr)> = Vec::new();
        self.collect_stores(&mut stored);
        for (i, (name, value)) in stored.iter().enumerate() {
            if stored[..i].iter().any(|(other, known)| other == name && known != value) {
                return Err(format!("`{name}` is written twice; expected a name for each"));
            }
        }
        let mut result = Ok(());
        self.result().visit(&mut |expr| {
            if let Expr::User(function, inputs) = expr {
                let (name, takes, given) = (function.name(), function.inputs(), inputs.len());
                if takes != given && result.is_ok() {
                    result = Err(format!("the formula `{name}` takes {takes} values and is given {given}"));
                }
                if result.is_ok() {
                    result = check_name(name);
                }
                // Its kernel would be found under what it computed before.
                if result.is_ok() && !function.is_constant() {
                    result = Err(format!(
                        "the formula `{name}` computes something else than when it was given; expected one that is always the same"
                    ));
                }
            }
        });
        result
    }

    /// What it writes besides D.
    fn collect_stores<'e>(&'e self, stored: &mut Vec<(&'e str, &'e Expr)>) {
        let mut open = vec![self.result()];
        while let Some(expr) = open.pop() {
            if let Expr::Store(operand, value) = expr {
                stored.push((&operand.name, value));
            }
            open.extend(expr.parts());
        }
    }

    /// The names of the functions in it that only f32 has.
    fn functions(&self) -> Vec<String> {
        let mut names = Vec::new();
        self.result().visit(&mut |expr| match expr {
            Expr::Unary(function, _) if function.needs_functions() => names.push(function.name().to_owned()),
            Expr::User(function, _) if function.needs_functions() => {
                names.push(format!("the formula `{}`", function.name()));
            }
            _ => {}
        });
        names
    }
}

/// Names are parts of the names of parameters, and of keys.
fn check_name(name: &str) -> Result<(), String> {
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !name.is_empty() && name.chars().all(letters) {
        return Ok(());
    }
    Err(format!("{name:?} is no name; expected letters, digits and `_`"))
}

/// What is around a part of an expression.
struct Context {
    /// Whether columns of the product make one of D.
    paired: bool,
    /// Whether this is inside of a pick.
    picked: bool,
    /// Whether this is inside of a weighted expression.
    weighted: bool,
}

fn check_part(expr: &Expr, context: &Context) -> Result<(), String> {
    let mut inside = Context { ..*context };
    match expr {
        Expr::Sum if context.paired && !context.picked => {
            return Err(
                "the sum is used where two columns have become one; expected `first_of_pair` or `second_of_pair` around it"
                    .to_owned(),
            );
        }
        Expr::C if context.picked => {
            return Err("C is as large as D and cannot be used before two columns become one".to_owned());
        }
        Expr::Pick(Pick { in_column: true, .. }, _) => {
            return Err(
                "it makes one column of two, and the product is transposed: they would be rows; choose an algorithm without `swap`"
                    .to_owned(),
            );
        }
        Expr::Pick(..) if context.picked => {
            return Err("it makes one column of two twice; expected once".to_owned());
        }
        Expr::Pick(..) => inside.picked = true,
        Expr::Store(operand, _) if context.weighted => {
            let name = &operand.name;
            return Err(format!(
                "`{name}` is written inside of a weighted expression, which is not computed where its weight is zero"
            ));
        }
        Expr::Weighted(..) => inside.weighted = true,
        _ => {}
    }
    expr.parts().into_iter().try_for_each(|part| check_part(part, &inside))
}

fn check_reduction(operand: &ExtraOperand, how: How, problem: &Problem) -> Result<(), String> {
    let (name, element) = (&operand.name, operand.element);
    let expected = problem.epilogue.computes_in(&problem.types);
    if element != expected {
        return Err(format!(
            "`{name}` gets the {how} of values in {element}; they are computed in {expected}"
        ));
    }
    let (rows, columns) = operand.extents(problem);
    let stride = operand.batch_stride;
    let extent = match operand.shape {
        Shape::PerRow => rows,
        Shape::PerColumn => columns,
        Shape::One if stride == 0 => return Ok(()),
        Shape::One => {
            return Err(format!(
                "`{name}` is one number for the whole batch; its batch stride is {stride}, expected 0"
            ));
        }
        Shape::Matrix(_) => {
            return Err(format!(
                "`{name}` gets the {how} of values and is a matrix; expected one for rows, columns or all"
            ));
        }
    };
    if problem.batch > 1 && stride < u64::from(extent) {
        return Err(format!(
            "`{name}` has elements for each member of the batch; their stride is {stride}, expected at least {extent}"
        ));
    }
    Ok(())
}

fn check_operand(operand: &ExtraOperand, problem: &Problem) -> Result<(), GemmError> {
    let name = &operand.name;
    if !ELEMENTS.contains(&operand.element) {
        let reason = format!(
            "`{name}` has elements of {}; expected f16, bf16, f32, f64, e4m3 or e5m2",
            operand.element
        );
        return Err(GemmError::Epilogue { reason });
    }
    if problem.batch > 1 {
        let matrix = || format!("operand `{name}`");
        check_distance("the batch stride", operand.batch_stride, LARGEST_STRIDE, matrix)?;
    }
    let widest = operand.widest(problem, operand.alignment());
    if !operand.width.is_power_of_two() || operand.width > widest.max(1) {
        let (width, what) =
            (operand.width, "expected a power of two that its extent and strides are multiples of");
        let reason =
            format!("`{name}` is said to be accessed {width} elements at a time; {what}, at most {widest}");
        return Err(GemmError::Epilogue { reason });
    }
    if let Access::Reduce(how) = operand.access {
        return check_reduction(operand, how, problem).map_err(|reason| GemmError::Epilogue { reason });
    }
    let Shape::Matrix(placement) = operand.shape else {
        return match operand.access {
            Access::Read => Ok(()),
            _ => {
                let reason =
                    format!("`{name}` is written and has the shape {:?}; expected a matrix", operand.shape);
                Err(GemmError::Epilogue { reason })
            }
        };
    };
    let (rows, columns) = operand.extents(problem);
    let contiguous = match placement.storage {
        Storage::RowMajor => columns,
        Storage::ColumnMajor => rows,
    };
    let matrix = || format!("operand `{name}` ({rows} x {columns}, {})", placement.storage);
    placement.check_distances(problem.batch, matrix)?;
    let wrong = |what, found, expected| Err(GemmError::Matrix { matrix: matrix(), what, found, expected });
    if placement.leading < u64::from(contiguous.max(1)) {
        return wrong("the leading dimension", placement.leading, format!("at least {}", contiguous.max(1)));
    }
    if !placement.alignment.is_power_of_two() || placement.alignment < operand.element.bytes() {
        let expected = format!("a power of two, {} at least", operand.element.bytes());
        return wrong("the alignment", u64::from(placement.alignment), expected);
    }
    let footprint = operand.footprint(problem);
    if operand.access == Access::Write && footprint.members_overlap() {
        return wrong("the batch stride", placement.batch_stride, footprint.apart());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::epilogue::{Formula, Real};
    use crate::gemm::problem::{Placement, Types};
    use Element::{BF16, F32, F64, I32};

    fn message(epilogue: impl Into<Epilogue>, types: Types) -> String {
        let epilogue = epilogue.into();
        let problem = Problem { epilogue, batch: 2, ..Problem::new(4, 6, 8, types) };
        problem.epilogue.check(&problem).map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    struct Half;
    impl Formula for Half {
        fn name(&self) -> String {
            "half".to_owned()
        }
        fn apply<R: Real>(&self, x: &[R]) -> R {
            x[0] * R::of(0.5)
        }
    }

    struct Softplus;
    impl Formula for Softplus {
        fn name(&self) -> String {
            "softplus".to_owned()
        }
        fn apply<R: Real>(&self, x: &[R]) -> R {
            (x[0].exp() + R::of(1.0)).ln()
        }
    }

    #[test]
    fn doubling_again_and_again_is_refused_at_once() {
        let twice = |times: u32| (0..times).fold(Expr::Sum, |x, _| x.clone() * Expr::from(0.5) + x);
        assert_eq!(message(twice(6), Types::of(BF16)), "fine");
        let refused = message(twice(14), Types::of(BF16));
        assert!(refused.contains("expected at most 512") && refused.contains("formula"), "{refused}");
    }

    #[test]
    fn what_can_be_computed_is_accepted() {
        let dense = Placement::dense(Storage::RowMajor, 4, 6);
        for (epilogue, types) in [
            (Epilogue::linear().bias_per_column("bias", BF16).gelu(), Types::of(BF16)),
            (Epilogue::new().residual("x", BF16, dense).store("pre", BF16, dense).silu(), Types::of(BF16)),
            (Epilogue::new().bias_per_column("bias", F32).swiglu(), Types::of(BF16)),
            (Epilogue::linear().map(Half), Types::of(F64)),
            (Epilogue::new().scale("s").relu(), Types::of(Element::I8)),
            (Epilogue::new().store("pre", F32, dense).swiglu(), Types::of(BF16)),
            // What has no columns is the same before and after two become one.
            (Epilogue::new().bias_per_row("b", F32).swiglu().bias_per_row("b", F32), Types::of(BF16)),
            // The same operand twice is one operand.
            (Epilogue::new().bias_per_row("b", F32).bias_per_row("b", F32), Types::of(F32)),
        ] {
            assert_eq!(message(epilogue, types), "fine");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let dense = Placement::dense(Storage::RowMajor, 4, 6);
        let sum = || Expr::Sum;
        for (epilogue, reason) in [
            (
                Epilogue::new().bias_per_row("b", F32).scale_columns("b", F32),
                "`b` is described as [row b:f32] and as [column b:f32]; expected a name for each",
            ),
            (
                Epilogue::new().bias_per_column("b", F32).swiglu().bias_per_column("b", F32),
                "`b` is used before and after two columns become one, which leaves half as many; expected a name for each",
            ),
            (
                Epilogue::new().store("x", F32, dense).relu().store("x", F32, dense),
                "`x` is written twice; expected a name for each",
            ),
            (
                Epilogue::new().alpha().scale("alpha"),
                "`alpha` names a number and an operand; expected different names",
            ),
            (Epilogue::new().scale("a b"), "\"a b\" is no name; expected letters, digits and `_`"),
            (Expr::formula(Half, [sum(), sum()]).into(), "the formula `half` takes 1 values and is given 2"),
            (
                (sum() + sum().first_of_pair()).into(),
                "the sum is used where two columns have become one; expected `first_of_pair` or `second_of_pair` around it",
            ),
            (
                (sum() + Expr::C).first_of_pair().into(),
                "C is as large as D and cannot be used before two columns become one",
            ),
            (Epilogue::new().swiglu().swiglu(), "it makes one column of two twice; expected once"),
            (
                Epilogue::new().swiglu().transposed(),
                "it makes one column of two, and the product is transposed: they would be rows; choose an algorithm without `swap`",
            ),
            (
                sum().store("x", F32, dense).weighted("beta").into(),
                "`x` is written inside of a weighted expression, which is not computed where its weight is zero",
            ),
            (
                Epilogue::new().bias_per_row("b", I32),
                "`b` has elements of i32; expected f16, bf16, f32, f64, e4m3 or e5m2",
            ),
        ] {
            assert_eq!(
                message(epilogue, Types::of(F32)),
                format!("the epilogue cannot be computed: {reason}")
            );
        }
    }

    #[test]
    fn functions_that_f64_does_not_have_are_refused() {
        let refused = |what: &str| {
            format!(
                "the epilogue cannot be computed: {what} of f64 does not exist on the device; accumulate in f32"
            )
        };
        assert_eq!(message(Epilogue::new().relu().gelu(), Types::of(F64)), refused("gelu"));
        assert_eq!(message(Epilogue::new().map(Softplus), Types::of(F64)), refused("the formula `softplus`"));
    }

    #[test]
    fn accesses_must_not_be_wider_than_operands() {
        let operand = |width| ExtraOperand { width, ..ExtraOperand::new("b", F32, Shape::PerColumn) };
        assert_eq!(message(Expr::Sum + operand(2), Types::of(F32)), "fine");
        assert_eq!(
            message(Expr::Sum + operand(4), Types::of(F32)),
            "the epilogue cannot be computed: `b` is said to be accessed 4 elements at a time; expected a power of two that its extent \
             and strides are multiples of, at most 2"
        );
    }

    #[test]
    fn reductions_must_fit() {
        let refused = |reason: &str| format!("the epilogue cannot be computed: {reason}");
        let reduce = |shape, element, stride| {
            let operand = ExtraOperand::new("r", element, shape).each_batch(stride);
            message(Expr::Sum.reduce(operand, How::Sum), Types::of(F32))
        };
        assert_eq!(reduce(Shape::PerRow, F32, 4), "fine");
        assert_eq!(
            reduce(Shape::PerRow, F32, 3),
            refused("`r` has elements for each member of the batch; their stride is 3, expected at least 4")
        );
        assert_eq!(
            reduce(Shape::PerColumn, BF16, 6),
            refused("`r` gets the sum of values in bf16; they are computed in f32")
        );
        assert_eq!(
            reduce(Shape::One, F32, 1),
            refused("`r` is one number for the whole batch; its batch stride is 1, expected 0")
        );
        assert_eq!(
            reduce(Shape::Matrix(Placement::dense(Storage::RowMajor, 4, 6)), F32, 0),
            refused("`r` gets the sum of values and is a matrix; expected one for rows, columns or all")
        );
    }

    #[test]
    fn matrices_must_fit() {
        let narrow = Placement { leading: 5, ..Placement::dense(Storage::RowMajor, 4, 6) };
        assert_eq!(
            message(Epilogue::new().residual("x", BF16, narrow), Types::of(BF16)),
            "operand `x` (4 x 6, row-major): the leading dimension is 5, expected at least 6"
        );
        let odd = Placement { alignment: 2, ..Placement::dense(Storage::RowMajor, 4, 6) };
        assert_eq!(
            message(Epilogue::new().residual("x", F32, odd), Types::of(BF16)),
            "operand `x` (4 x 6, row-major): the alignment is 2, expected a power of two, 4 at least"
        );
        let shared = Placement { batch_stride: 0, ..Placement::dense(Storage::ColumnMajor, 4, 6) };
        assert_eq!(message(Epilogue::new().residual("x", F32, shared), Types::of(BF16)), "fine");
        assert_eq!(
            message(Epilogue::new().store("x", F32, shared), Types::of(BF16)),
            "operand `x` (4 x 6, column-major): the batch stride is 0, expected one that keeps members apart, since they are written: 24, or another at which no two \
             share an element"
        );
    }
}
