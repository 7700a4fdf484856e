//! [`Case`]: a product with everything decided by a seed: extents, types, how matrices lie, what happens to the sums, all numbers.

use std::fmt;

use tilewright::gemm::Gemm;
use tilewright::hardware::Element;
use tilewright::kernels::gemm::epilogue::{Access, Epilogue, Expr, ExtraOperand, Formula, How, Real, Shape};
use tilewright::kernels::gemm::{Accumulation, Placement, Problem, Storage, Types};

use crate::memory::{Contents, Lies};
use crate::random::Random;

/// What cases may be drawn.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Most rows, columns and steps of k.
    pub(crate) extents: [usize; 3],
    /// Types of factors.
    pub(crate) types: &'static [(Element, Element)],
}

/// The types of factors of the whole library.
pub(crate) const ALL_TYPES: &[(Element, Element)] = &[
    (Element::BF16, Element::BF16),
    (Element::F16, Element::F16),
    (Element::TF32, Element::TF32),
    (Element::F32, Element::F32),
    (Element::TF32, Element::F32),
    (Element::F64, Element::F64),
    (Element::I8, Element::I8),
    (Element::U8, Element::U8),
    (Element::I8, Element::U8),
    (Element::E4M3, Element::E4M3),
    (Element::E5M2, Element::E5M2),
    (Element::E4M3, Element::E5M2),
];

/// The types of results.
const RESULTS: &[Element] = &[
    Element::F16,
    Element::BF16,
    Element::F32,
    Element::F64,
    Element::E4M3,
    Element::E5M2,
    Element::I8,
    Element::U8,
    Element::I32,
];

/// A matrix of the product.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) lies: Lies,
    /// Elements before what the product is told of.
    pub(crate) offset: usize,
    pub(crate) contents: Contents,
}

/// An operand of the epilogue.
#[derive(Debug)]
pub(crate) struct Extra {
    pub(crate) operand: ExtraOperand,
    pub(crate) offset: usize,
    pub(crate) contents: Contents,
}

/// A product with its numbers.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) gemm: Gemm,
    pub(crate) problem: Problem,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) c: Option<Matrix>,
    pub(crate) d: Matrix,
    pub(crate) extras: Vec<Extra>,
    pub(crate) scalars: Vec<(String, f64)>,
    /// Members are found by lists of addresses.
    pub(crate) pointers: bool,
    /// C is the memory of D.
    pub(crate) in_place: bool,
    /// All numbers are small and whole, so that every order of additions gives the same.
    pub(crate) exact: bool,
}

impl Case {
    /// The case of some random numbers.
    pub(crate) fn draw(random: &mut Random, limits: &Limits) -> Result<Case, String> {
        let extents = limits.extents.map(|most| random.extent(most));
        Case::draw_with(random, extents, limits.types, true)
    }

    /// The same with given extents. A small one may be a batch, and have an epilogue for which all of the result must be looked at.
    pub(crate) fn draw_with(
        random: &mut Random,
        [m, n, k]: [usize; 3],
        types: &[(Element, Element)],
        small: bool,
    ) -> Result<Case, String> {
        let exact = random.once_in(3);
        let types = draw_types(random, types);
        let batch = if small && random.once_in(3) { random.below(5) } else { 1 };
        let pointers = random.once_in(4);
        let Drawn { epilogue, scalars, even } = draw_epilogue(random, types, [m, n, k, batch], exact, small);
        let n = if even { n.next_multiple_of(2) } else { n };
        let columns = n / epilogue.columns_for_one() as usize;
        let accumulation = random.pick(&[Accumulation::Fast, Accumulation::Promoted]);
        let in_place = epilogue.reads_c() && types.c == types.d && random.once_in(4);

        let number = |random: &mut Random, element| input(random, element, exact);
        let factor = |random: &mut Random, element, rows, columns| {
            let placed = Placed::draw(random, element, [rows, columns, batch], pointers, true);
            let contents = Contents::matrix(element, &placed.lies, || number(random, element));
            (Matrix { lies: placed.lies.clone(), offset: placed.offset, contents }, placed)
        };
        let (a, at_a) = factor(random, types.a, m, k);
        let (b, at_b) = factor(random, types.b, k, n);
        let at_d = Placed::draw(random, types.d, [m, columns, batch], pointers, false);
        let at_c = match in_place {
            true => at_d.clone(),
            false => Placed::draw(random, types.c, [m, columns, batch], pointers, true),
        };
        // Nobody reads a C that counts nothing.
        let ignored = scalars.iter().any(|(name, value)| name == "beta" && *value == 0.0);
        let c = epilogue.reads_c().then(|| {
            let contents = Contents::matrix(types.c, &at_c.lies, || {
                if ignored && types.c.is_float() { f64::NAN } else { number(random, types.c) }
            });
            Matrix { lies: at_c.lies.clone(), offset: at_c.offset, contents }
        });
        let contents = match &c {
            Some(c) if in_place => c.contents.clone(),
            _ => Contents::room(types.d, &at_d.lies),
        };
        let d = Matrix { lies: at_d.lies.clone(), offset: at_d.offset, contents };

        let mut gemm = Gemm::new(m, n, k).types(types).batch(batch).epilogue(epilogue);
        gemm = gemm.accumulation(accumulation);
        gemm = gemm.a(at_a.lies.storage).leading_a(at_a.lies.leading).alignment_a(at_a.alignment);
        gemm = gemm.b(at_b.lies.storage).leading_b(at_b.lies.leading).alignment_b(at_b.alignment);
        gemm = gemm.c(at_c.lies.storage).leading_c(at_c.lies.leading).alignment_c(at_c.alignment);
        gemm = gemm.d(at_d.lies.storage).leading_d(at_d.lies.leading).alignment_d(at_d.alignment);
        gemm = match pointers {
            true => gemm.pointers(),
            false => {
                gemm.stride_a(at_a.stride).stride_b(at_b.stride).stride_c(at_c.stride).stride_d(at_d.stride)
            }
        };
        let described =
            |gemm: &Gemm| gemm.problem().map_err(|error| format!("the description is refused: {error}"));
        let problem = described(&gemm)?;
        let operands = problem.epilogue.operands().into_iter();
        let extras: Vec<Extra> =
            operands.map(|operand| Extra::draw(random, operand, &problem, exact)).collect();
        for Extra { operand, offset, .. } in &extras {
            if !matches!(operand.shape, Shape::Matrix(_)) {
                gemm = gemm.alignment_of(&operand.name, alignment(operand.element, *offset));
            }
        }
        let problem = described(&gemm)?;
        Ok(Case { gemm, problem, a, b, c, d, extras, scalars, pointers, in_place, exact })
    }
}

/// How a matrix lies on the device.
#[derive(Clone)]
struct Placed {
    lies: Lies,
    offset: usize,
    stride: usize,
    /// What the addresses that the product is given are multiples of, in bytes.
    alignment: u32,
}

impl Placed {
    fn draw(
        random: &mut Random,
        element: Element,
        [rows, columns, batch]: [usize; 3],
        pointers: bool,
        read: bool,
    ) -> Placed {
        let storage = random.pick(&[Storage::RowMajor, Storage::ColumnMajor]);
        let (lines, line) = if storage == Storage::RowMajor { (rows, columns) } else { (columns, rows) };
        // As the copy engine likes it, dense, or anyhow.
        let whole = 16 / element.bytes() as usize;
        let gaps = random.below(3);
        let gap = |random: &mut Random, extent: usize| match gaps {
            0 => extent.next_multiple_of(whole) + whole * random.below(2),
            1 => extent,
            _ => extent + random.below(19),
        };
        // Members side by side in one wide matrix, as heads of attention are.
        let heads = !pointers && random.once_in(6);
        let leading = gap(random, if heads { line * batch.max(1) } else { line }).max(1);
        let size = gap(random, lines * leading);
        let stride = match random.below(6) {
            // All the same, or each a line further than the one before.
            0 if read => 0,
            1 if read => leading,
            _ if heads => line,
            _ => size,
        };
        let offset = if random.once_in(2) { 0 } else { random.pick(&[1, 2, 3, 4, 8, 12, 16]) };
        let start = |member: usize| match pointers {
            // The last comes first, and there is something between them.
            true if stride > 0 => offset + (batch - 1 - member) * (size + if gaps == 0 { whole } else { 3 }),
            true => offset,
            false => offset + member * stride,
        };
        let starts: Vec<usize> = (0..batch).map(start).collect();
        let bits = if pointers { starts.iter().fold(0, |bits, start| bits | start) } else { offset };
        let alignment = alignment(element, bits);
        Placed { lies: Lies { storage, rows, columns, leading, starts }, offset, stride, alignment }
    }
}

/// Bytes that the address of an element of a buffer is a multiple of, 16 at most.
fn alignment(element: Element, index: usize) -> u32 {
    element.bytes() << index.trailing_zeros().min(4 - element.bytes().ilog2())
}

impl Extra {
    fn draw(random: &mut Random, operand: ExtraOperand, problem: &Problem, exact: bool) -> Extra {
        // Matrices say what their addresses are multiples of.
        let offset = match operand.shape {
            Shape::Matrix(placement) if placement.alignment >= 16 => 0,
            _ => random.pick(&[0, 0, 1, 2]),
        };
        let elements = usize::try_from(operand.elements(problem)).unwrap_or(usize::MAX);
        let len = offset + elements + 5;
        let element = operand.element;
        let contents = match operand.access {
            Access::Read => {
                let mut contents = Contents::unreadable(element, len);
                for index in operand_indices(&operand, problem) {
                    let value = if exact { input(random, element, true) } else { 1.5 * random.real() };
                    contents.set(offset + index, value);
                }
                contents
            }
            _ => Contents::unwritten(element, len),
        };
        Extra { operand, offset, contents }
    }

    /// The elements that a run writes.
    pub(crate) fn written(&self, problem: &Problem) -> Vec<bool> {
        let mut written = vec![false; self.contents.len()];
        for index in operand_indices(&self.operand, problem) {
            written[self.offset + index] = true;
        }
        written
    }
}

/// All elements of an operand that a run touches, some perhaps more than once: those that belong to a place, and those of reductions even
/// where there is nothing to reduce.
fn operand_indices(operand: &ExtraOperand, problem: &Problem) -> Vec<usize> {
    let (rows, columns) = operand.extents(problem);
    let (rows, columns, members) = match (operand.access, operand.shape) {
        (Access::Reduce(_), Shape::PerRow) => (rows, 1, problem.batch),
        (Access::Reduce(_), Shape::PerColumn) => (1, columns, problem.batch),
        (Access::Reduce(_), _) => (1, 1, 1),
        _ => (rows, columns, problem.batch),
    };
    let index =
        |member, row, column| usize::try_from(operand.index(member, row, column)).unwrap_or(usize::MAX);
    // One row and one column of places reach every element of what is no matrix.
    let matrix = matches!(operand.shape, Shape::Matrix(_));
    let mut all = Vec::new();
    for member in 0..members {
        for row in 0..rows {
            let end = if matrix || row == 0 { columns } else { columns.min(1) };
            all.extend((0..end).map(|column| index(member, row, column)));
        }
    }
    all
}

/// A number of an input.
fn input(random: &mut Random, element: Element, exact: bool) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let below = |random: &mut Random, end: usize| random.below(end) as f64;
    match element {
        Element::U8 if exact => below(random, 4),
        _ if exact => below(random, 7) - 3.0,
        Element::U8 => below(random, 256),
        Element::I8 => below(random, 256) - 128.0,
        Element::I32 => below(random, 2001) - 1000.0,
        Element::E4M3 | Element::E5M2 => 2.0 * random.real(),
        _ => random.real(),
    }
}

fn draw_types(random: &mut Random, factors: &[(Element, Element)]) -> Types {
    let (a, b) = random.pick(factors);
    let types = Types { b, ..Types::of(a) };
    let results: &[Element] = match types.accumulate {
        Element::F64 => &[Element::F64],
        Element::I32 => &[Element::I32, Element::I32, Element::I8, Element::F32, Element::BF16],
        _ if a.bytes() == 1 => &[Element::BF16, Element::F32, Element::F16, Element::E4M3],
        _ if a.bytes() == 2 => &[a, a, Element::F32, Element::E4M3, Element::E5M2],
        _ => &[Element::F32, Element::F32, Element::BF16],
    };
    // Now and then one that nobody would think of.
    let results = if random.once_in(6) { RESULTS } else { results };
    let types = types.with_result(random.pick(results));
    match random.once_in(4) {
        true => Types { c: random.pick(RESULTS), ..types },
        false => types,
    }
}

/// An epilogue with its numbers.
struct Drawn {
    epilogue: Epilogue,
    scalars: Vec<(String, f64)>,
    /// Whether the product must have an even number of columns.
    even: bool,
}

fn draw_epilogue(
    random: &mut Random,
    types: Types,
    [m, n, k, batch]: [usize; 4],
    exact: bool,
    small: bool,
) -> Drawn {
    let wide = types.accumulate == Element::F64;
    #[allow(clippy::cast_precision_loss, reason = "small")]
    let steps = k.max(1) as f64;
    // Sums of bytes are large, and these bring them to where results have room.
    let bytes = types.accumulate == Element::I32 && !exact;
    let usual = match (types.a, types.b) {
        (Element::U8, Element::U8) => 16256.0 * steps,
        _ => 8000.0 * steps.sqrt(),
    };
    let alphas: &[f64] = match (exact, bytes) {
        (true, _) => &[1.0, 2.0, -1.0],
        (_, true) if types.d == Element::I32 => &[0.125, 0.75],
        (_, true) => &[2f64.powf((50.0 / usual).log2().round())],
        _ => &[1.0, 0.5, -1.25, 3.0],
    };
    let element = match wide {
        true => Element::F64,
        false => random.pick(&[Element::F32, Element::BF16, Element::F16]),
    };
    let reduced = if wide { Element::F64 } else { Element::F32 };
    let placement = |random: &mut Random, columns: usize| {
        let storage = random.pick(&[Storage::RowMajor, Storage::ColumnMajor]);
        let (lines, line) = if storage == Storage::RowMajor { (m, columns) } else { (columns, m) };
        let leading = (line + random.pick(&[0, 0, 3, 8])).max(1);
        let alignment = random.pick(&[16, element.bytes()]);
        Placement { storage, leading: leading as u64, batch_stride: (lines * leading) as u64, alignment }
    };
    let reduce = |shape: Shape, how: How, extent: usize| {
        let each = if batch > 1 && shape != Shape::One { extent } else { 0 };
        move |x: Expr| x.reduce(ExtraOperand::new("reduced", reduced, shape).each_batch(each), how)
    };
    let new = || if bytes { Epilogue::new().alpha() } else { Epilogue::new() };
    let even = n.next_multiple_of(2);
    // What whole numbers go through unharmed; that for which all of the result must be looked at; what f64 does not have.
    let mut kinds: Vec<usize> = (0..6).collect();
    if small {
        kinds.extend(6..10);
        // As often as all the others.
        kinds.extend([16; 10]);
    }
    if !exact && !wide {
        kinds.extend(10..16);
    }
    let epilogue = match random.pick(&kinds) {
        0 if !bytes || types.d == Element::I32 => Epilogue::identity(),
        0 | 1 => Epilogue::linear(),
        2 => new().bias_per_column("bias", element).relu(),
        3 => new().bias_per_row("bias", element),
        4 => Epilogue::new().alpha().residual("residual", element, placement(random, n)),
        5 => new().bias_per_column("bias", element).store("before", element, placement(random, n)).relu(),
        6 => new().then(reduce(Shape::PerRow, How::Sum, m)),
        7 => new().then(reduce(Shape::PerColumn, How::Sum, n)),
        8 => new().then(reduce(Shape::One, How::AbsMax, 1)),
        9 => match random.once_in(2) {
            true => new().then(reduce(Shape::PerRow, How::Max, m)),
            false => new().bias_per_row("bias", element).then(reduce(Shape::PerColumn, How::Max, n)),
        },
        10 => new().bias_per_column("bias", element).gelu(),
        11 => new().bias_per_row("bias", element).silu(),
        12 => new().scale_rows("rows", Element::F32).scale_columns("columns", Element::F32),
        13 => new().scale("scale").bias_per_column("bias", element).gelu_tanh(),
        14 => match random.once_in(2) {
            true => new().swiglu(),
            false => new().store("before", element, placement(random, even)).swiglu(),
        },
        15 => Epilogue::linear().bias_per_column("bias", element).sigmoid().residual(
            "residual",
            element,
            placement(random, n),
        ),
        _ => Composed { random, types, extents: [m, n, batch], exact, parts: 0, products: 0 }.draw(&new()),
    };
    let scalar = |name: String| {
        let value = match name.as_str() {
            "alpha" => random.pick(alphas),
            _ => random.pick(&[0.0, 1.0, -2.0]),
        };
        (name, value)
    };
    let scalars = epilogue.scalars().into_iter().map(scalar).collect();
    Drawn { even: epilogue.columns_for_one() == 2, epilogue, scalars }
}

/// Draws epilogues of several steps, each of whatever comes.
struct Composed<'r> {
    random: &'r mut Random,
    types: Types,
    /// Rows, columns and members of what there is at this step.
    extents: [usize; 3],
    exact: bool,
    /// Steps that have a name.
    parts: usize,
    /// Steps that multiply: of whole numbers, few enough that all results still are.
    products: usize,
}

/// `x * y + x`.
struct Twist;

impl Formula for Twist {
    fn name(&self) -> String {
        "twist".to_owned()
    }
    fn inputs(&self) -> usize {
        2
    }
    fn apply<R: Real>(&self, x: &[R]) -> R {
        x[0] * x[1] + x[0]
    }
}

impl Composed<'_> {
    fn draw(mut self, start: &Epilogue) -> Epilogue {
        let wide = self.types.accumulate == Element::F64;
        let pairs = !self.exact && !wide && self.random.once_in(5);
        if pairs {
            self.extents[1] = self.extents[1].next_multiple_of(2);
        }
        let mut x = start.result().clone();
        for _ in 0..1 + self.random.below(5) {
            x = self.step(x);
        }
        if pairs {
            self.extents[1] /= 2;
            x = Epilogue::from(x).swiglu().result().clone();
            for _ in 0..self.random.below(3) {
                x = self.step(x);
            }
        }
        // What is read where two columns are one already, or never were two.
        if self.random.once_in(4) { Epilogue::from(x).beta_c() } else { x.into() }
    }

    fn step(&mut self, x: Expr) -> Expr {
        let wide = self.types.accumulate == Element::F64;
        let choices = if self.products == 3 { 8 } else { 12 };
        match self.random.below(choices) {
            0 | 1 => x + self.vector(),
            2 => {
                let (name, element, placement) = self.matrix();
                x + Expr::matrix(&name, element, placement)
            }
            3 => x.relu(),
            4 => x + self.vector().weighted("weight"),
            5 => {
                let (name, element, placement) = self.matrix();
                x.store(&name, element, placement)
            }
            6 | 7 => self.reduce(x),
            8 => {
                self.products += 1;
                x * self.vector()
            }
            9 => {
                self.products += 1;
                let (name, element, placement) = self.matrix();
                x * Expr::matrix(&name, element, placement)
            }
            10 => {
                self.products += 1;
                Expr::formula(Twist, [x, self.vector()])
            }
            _ if self.exact || wide => x.abs(),
            _ => x.silu(),
        }
    }

    fn name(&mut self) -> String {
        self.parts += 1;
        format!("part{}", self.parts)
    }

    fn element(&mut self) -> Element {
        let elements =
            [Element::F32, Element::BF16, Element::F16, Element::F64, Element::E4M3, Element::E5M2];
        self.random.pick(&elements)
    }

    /// An operand with one element for each row, each column, or all.
    fn vector(&mut self) -> Expr {
        let [m, n, _] = self.extents;
        let (shape, extent) = self.random.pick(&[(Shape::PerRow, m), (Shape::PerColumn, n), (Shape::One, 1)]);
        let stride = self.random.pick(&[0, extent, extent + 1, extent.next_multiple_of(16)]);
        ExtraOperand::new(&self.name(), self.element(), shape).each_batch(stride).into()
    }

    fn matrix(&mut self) -> (String, Element, Placement) {
        let [m, n, _] = self.extents;
        let element = self.element();
        let storage = self.random.pick(&[Storage::RowMajor, Storage::ColumnMajor]);
        let (lines, line) = if storage == Storage::RowMajor { (m, n) } else { (n, m) };
        let leading = (line + self.random.pick(&[0, 0, 3, 8])).max(1);
        let placement =
            Placement::dense(storage, m, n).with_leading(leading).with_batch_stride(lines * leading);
        let alignment = self.random.pick(&[16, element.bytes()]);
        (self.name(), element, Placement { alignment, ..placement })
    }

    fn reduce(&mut self, x: Expr) -> Expr {
        let [m, n, batch] = self.extents;
        let (shape, extent) = self.random.pick(&[(Shape::PerRow, m), (Shape::PerColumn, n), (Shape::One, 0)]);
        let how = self.random.pick(&[How::Sum, How::Max, How::AbsMax]);
        let element = if self.types.accumulate == Element::F64 { Element::F64 } else { Element::F32 };
        let each = if batch > 1 { extent + if extent > 0 { self.random.below(3) } else { 0 } } else { 0 };
        x.reduce(ExtraOperand::new(&self.name(), element, shape).each_batch(each), how)
    }
}

/// In one line, for people.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { m, n, k, batch, types, epilogue, accumulation, .. } = &self.problem;
        let Types { a, b, c, d, .. } = types;
        write!(f, "{m} x {n} x {k}, {a} * {b} -> {d}")?;
        if *batch != 1 || self.pointers {
            write!(f, ", batch {batch}{}", if self.pointers { " by addresses" } else { "" })?;
        }
        let matrices = [("A", &self.a), ("B", &self.b), ("D", &self.d)];
        for (name, Matrix { lies, offset, .. }) in matrices.into_iter().chain(self.c.iter().map(|c| ("C", c)))
        {
            let storage = if lies.storage == Storage::RowMajor { "by rows" } else { "by columns" };
            write!(f, ", {name} {storage} of {} from {offset}", lies.leading)?;
            if *batch > 1 {
                write!(f, " at {:?}", lies.starts)?;
            }
        }
        if self.c.is_some() {
            write!(f, ", C of {c}{}", if self.in_place { " is D" } else { "" })?;
        }
        if a.bytes() == 1 && a.is_float() {
            write!(f, ", {accumulation:?}")?;
        }
        if !epilogue.is_identity() {
            write!(f, ", {epilogue} {:?}", self.scalars)?;
        }
        f.write_str(if self.exact { ", whole numbers" } else { "" })
    }
}
