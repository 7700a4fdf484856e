//! [`Arguments`]: the memory and the numbers of one run, and whether they are what the product takes.

use tilewright_hardware::Element;
use tilewright_kernels::gemm::epilogue::{Access, Shape};
use tilewright_kernels::gemm::{Batching, Footprint, Placement, Problem, Storage, Types};

use super::builder::WIDEST;
use super::{Error, Workspace};
use crate::device::{Device, DynBuffer};

/// What a run takes: A, B and D always, the others if the [epilogue](crate::kernels::gemm::epilogue::Epilogue) asks for them.
///
/// ```
/// use tilewright::gemm::{Arguments, Epilogue, Gemm};
/// use tilewright::prelude::*;
///
/// let device = Device::cpu();
/// let plan = Gemm::new(2, 2, 3).element::<f32>().epilogue(Epilogue::linear()).plan(&device)?;
/// let (a, b) = (device.upload(&[1.0f32; 6])?, device.upload(&[2.0f32; 6])?);
/// let (c, d) = (device.upload(&[1.0f32; 4])?, device.alloc::<f32>(4)?);
/// plan.run(&Arguments::new(&a, &b, &d).c(&c).alpha(0.5).beta(10.0))?;
/// assert_eq!(d.to_vec()?, [13.0; 4]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Arguments {
    pub(super) a: DynBuffer,
    pub(super) b: DynBuffer,
    pub(super) d: DynBuffer,
    pub(super) c: Option<DynBuffer>,
    pub(super) extras: Vec<(String, DynBuffer)>,
    pub(super) scalars: Vec<(String, f64)>,
    pub(super) workspace: Option<Workspace>,
}

impl Arguments {
    /// The factors and where the result goes. Batches by [addresses](Batching::Pointers) take buffers of u64.
    #[must_use]
    pub fn new(a: impl Into<DynBuffer>, b: impl Into<DynBuffer>, d: impl Into<DynBuffer>) -> Arguments {
        Arguments {
            a: a.into(),
            b: b.into(),
            d: d.into(),
            c: None,
            extras: Vec::new(),
            scalars: Vec::new(),
            workspace: None,
        }
    }

    /// With the matrix that is added. It may be the same memory as D, exactly; so may a matrix that the epilogue reads.
    #[must_use]
    pub fn c(mut self, c: impl Into<DynBuffer>) -> Arguments {
        self.c = Some(c.into());
        self
    }

    /// With an operand of the epilogue.
    #[must_use]
    pub fn extra(mut self, name: &str, buffer: impl Into<DynBuffer>) -> Arguments {
        self.extras.retain(|(known, _)| known != name);
        self.extras.push((name.to_owned(), buffer.into()));
        self
    }

    /// With a number of the epilogue. `alpha` is 1 and `beta` is 0 unless given.
    #[must_use]
    pub fn scalar(mut self, name: &str, value: f64) -> Arguments {
        self.scalars.retain(|(known, _)| known != name);
        self.scalars.push((name.to_owned(), value));
        self
    }

    /// With another factor than 1 for the sums.
    #[must_use]
    pub fn alpha(self, alpha: f64) -> Arguments {
        self.scalar("alpha", alpha)
    }

    /// With another factor than 0 for C.
    #[must_use]
    pub fn beta(self, beta: f64) -> Arguments {
        self.scalar("beta", beta)
    }

    /// With scratch memory of the caller; otherwise the plan has its own.
    #[must_use]
    pub fn workspace(mut self, workspace: &Workspace) -> Arguments {
        self.workspace = Some(workspace.clone());
        self
    }

    /// The value of a number.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        let given = self.scalars.iter().find(|(known, _)| known == name).map(|&(_, value)| value);
        given.or(match name {
            "alpha" => Some(1.0),
            "beta" => Some(0.0),
            _ => None,
        })
    }

    /// The memory of an operand of the epilogue.
    pub(super) fn named(&self, name: &str) -> Option<&DynBuffer> {
        self.extras.iter().find(|(known, _)| known == name).map(|(_, buffer)| buffer)
    }

    /// The names of the operands of the epilogue, in the order in which they were given.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.extras.iter().map(|(name, _)| name)
    }

    /// All memory but the workspace; the operands of the epilogue last, in the order of their [names](Arguments::names).
    pub(super) fn memory(&self) -> impl Iterator<Item = &DynBuffer> + Clone {
        [&self.a, &self.b, &self.d]
            .into_iter()
            .chain(&self.c)
            .chain(self.extras.iter().map(|(_, buffer)| buffer))
    }
}

/// A matrix of a problem.
pub(super) struct Matrix<'a> {
    pub(super) name: &'static str,
    pub(super) placement: &'a Placement,
    pub(super) rows: u32,
    pub(super) columns: u32,
    pub(super) element: Element,
}

/// The matrices of a problem: A, B, D and C.
pub(super) fn matrices(problem: &Problem) -> [Matrix<'_>; 4] {
    let columns = problem.n / problem.epilogue.columns_for_one();
    let matrix = |name, placement, rows, columns, element| Matrix { name, placement, rows, columns, element };
    [
        matrix("A", &problem.a, problem.m, problem.k, problem.types.a),
        matrix("B", &problem.b, problem.k, problem.n, problem.types.b),
        matrix("D", &problem.d, problem.m, columns, problem.types.d),
        matrix("C", &problem.c, problem.m, columns, problem.types.c),
    ]
}

impl Matrix<'_> {
    /// Which part of the memory a batch of it takes, in elements.
    fn place(&self, batch: u32) -> Footprint {
        Footprint::of_matrix(self.placement, (self.rows, self.columns), batch)
    }

    /// Elements of a line: of what lies side by side.
    pub(super) fn line(&self) -> u32 {
        match self.placement.storage {
            Storage::RowMajor => self.columns,
            Storage::ColumnMajor => self.rows,
        }
    }

    /// Elements from the first to the last of a batch, if that is a number.
    pub(super) fn footprint(&self, batch: u32) -> Option<u64> {
        self.place(batch).extent()
    }

    fn bytes(&self, batch: u32) -> Option<u64> {
        self.footprint(batch)?.checked_mul(u64::from(self.element.bytes()))
    }

    fn describe(&self, batch: u32) -> String {
        let Placement { storage, leading, .. } = *self.placement;
        let one = format!("{} x {}, {storage}, leading dimension {leading}", self.rows, self.columns);
        if batch > 1 { format!("{batch} times {one}, {} apart", self.placement.batch_stride) } else { one }
    }
}

/// Holds arguments against what a product takes.
pub(super) fn check(device: &Device, problem: &Problem, arguments: &Arguments) -> Result<(), Error> {
    let [a, b, d, c] = matrices(problem);
    for (matrix, buffer) in [(&a, &arguments.a), (&b, &arguments.b), (&d, &arguments.d)] {
        check_matrix(device, problem, matrix, buffer)?;
    }
    match (&arguments.c, problem.epilogue.reads_c()) {
        (Some(buffer), true) => check_matrix(device, problem, &c, buffer)?,
        (None, false) => {}
        (None, true) => {
            return Err(Error::argument(
                "C",
                "nothing",
                format!("a buffer of {} ({})", c.element, c.describe(problem.batch)),
                "the epilogue reads C: give it with `Arguments::c`",
            ));
        }
        (Some(_), false) => {
            return Err(Error::argument(
                "C",
                "a buffer",
                "none",
                "the epilogue does not read C: plan with one that does, such as `Epilogue::linear()`",
            ));
        }
    }
    check_scalars(problem, arguments)?;
    check_extras(device, problem, arguments)?;
    check_overlap(problem, arguments)?;
    if let Some(workspace) = &arguments.workspace
        && device != workspace.device()
    {
        return Err(other_device("the workspace", device));
    }
    Ok(())
}

pub(super) fn other_device(what: &str, device: &Device) -> Error {
    let expected = format!("memory of the device of the plan ({})", device.name());
    Error::argument(what, "memory of another device", expected, "upload the data there")
}

fn check_matrix(
    device: &Device,
    problem: &Problem,
    matrix: &Matrix<'_>,
    buffer: &DynBuffer,
) -> Result<(), Error> {
    if !buffer.is_on(device) {
        return Err(other_device(matrix.name, device));
    }
    let (found, name) = (Types::in_memory(buffer.element()), matrix.name);
    if problem.batching == Batching::Pointers {
        if found != Element::U64 {
            let expected = "addresses as u64, one for each member of the batch";
            let remedy = "leave out `pointers()` if the matrices lie at a fixed distance";
            return Err(Error::argument(name, format!("a buffer of {found}"), expected, remedy));
        }
        if buffer.bytes() < 8 * u64::from(problem.batch) {
            let expected = format!("{}, one for each member of the batch", problem.batch);
            let remedy = "give an address for each";
            return Err(Error::argument(name, format!("{} addresses", buffer.bytes() / 8), expected, remedy));
        }
        return Ok(());
    }
    let element = Types::in_memory(matrix.element);
    if found != element {
        let remedy = "upload the data in that type, or plan with `types` that say otherwise";
        return Err(Error::argument(
            name,
            format!("a buffer of {found}"),
            format!("a buffer of {element}"),
            remedy,
        ));
    }
    if matrix.bytes(problem.batch).is_none_or(|needed| needed > buffer.bytes()) {
        let needed = matrix.footprint(problem.batch).map_or("2^64".to_owned(), |needed| needed.to_string());
        let has = buffer.bytes() / u64::from(element.bytes());
        return Err(Error::argument(
            name,
            format!("{has} elements"),
            format!("at least {needed} ({})", matrix.describe(problem.batch)),
            "check extents, storage and leading dimension",
        ));
    }
    if buffer.alignment() < matrix.placement.alignment && matrix.footprint(problem.batch) != Some(0) {
        return Err(Error::argument(
            name,
            format!("an address that is a multiple of {} bytes", buffer.alignment()),
            format!("a multiple of {}, as planned", matrix.placement.alignment),
            format!(
                "plan with `alignment_{}({})`, or run with a `Planner`, which looks",
                name.to_lowercase(),
                buffer.alignment()
            ),
        ));
    }
    Ok(())
}

fn check_scalars(problem: &Problem, arguments: &Arguments) -> Result<(), Error> {
    let known = problem.epilogue.scalars();
    let list = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    for name in &known {
        if arguments.number(name).is_none() {
            let remedy = format!("give it with `Arguments::scalar(\"{name}\", value)`");
            return Err(Error::argument(format!("the number `{name}`"), "nothing", "a value", remedy));
        }
    }
    for (name, _) in &arguments.scalars {
        if !known.contains(name) {
            return Err(Error::argument(
                format!("the number `{name}`"),
                "a value",
                format!("one of the epilogue's numbers: {list}"),
                "plan with an epilogue that has it, such as `Epilogue::linear()` for alpha and beta",
            ));
        }
    }
    Ok(())
}

fn check_extras(device: &Device, problem: &Problem, arguments: &Arguments) -> Result<(), Error> {
    let operands = problem.epilogue.operands();
    for operand in &operands {
        let (argument, element) = (format!("operand `{}`", operand.name), Types::in_memory(operand.element));
        let needed = operand.elements(problem);
        let Some(buffer) = arguments.named(&operand.name) else {
            let remedy = format!("give it with `Arguments::extra(\"{}\", &buffer)`", operand.name);
            return Err(Error::argument(
                argument,
                "nothing",
                format!("{needed} elements of {element}"),
                remedy,
            ));
        };
        if !buffer.is_on(device) {
            return Err(other_device(&argument, device));
        }
        let found = Types::in_memory(buffer.element());
        if found != element {
            let (found, expected) = (format!("a buffer of {found}"), format!("a buffer of {element}"));
            let remedy = "upload the data in that type, or say otherwise in the epilogue";
            return Err(Error::argument(argument, found, expected, remedy));
        }
        let has = buffer.bytes() / u64::from(element.bytes());
        if has < needed {
            let expected = format!("at least {needed}");
            let remedy = "check the extents of the product and the shape in the epilogue";
            return Err(Error::argument(argument, format!("{has} elements"), expected, remedy));
        }
        let aligned = match &operand.shape {
            Shape::Matrix(placement) => placement.alignment.min(WIDEST),
            _ => operand.alignment(),
        };
        if buffer.alignment() < aligned && needed > 0 {
            let found = format!("an address that is a multiple of {} bytes", buffer.alignment());
            let remedy = format!(
                "plan with `alignment_of(\"{}\", {})`, or run with a `Planner`, which looks",
                operand.name,
                buffer.alignment()
            );
            return Err(Error::argument(
                argument,
                found,
                format!("a multiple of {aligned}, as planned"),
                remedy,
            ));
        }
    }
    for (name, _) in &arguments.extras {
        if operands.iter().all(|operand| operand.name != *name) {
            let known: Vec<&str> = operands.iter().map(|operand| operand.name.as_str()).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(Error::argument(
                format!("operand `{name}`"),
                "a buffer",
                format!("one of the epilogue's operands: {known}"),
                "check the name, or plan with an epilogue that has it",
            ));
        }
    }
    Ok(())
}

/// An argument in memory.
struct Part<'a> {
    name: String,
    buffer: &'a DynBuffer,
    /// In elements.
    place: Footprint,
    element: Element,
    written: bool,
    /// How it lies, if it has the extents of D and each of its elements is read before that of D is written.
    in_place: Option<&'a Placement>,
}

impl Part<'_> {
    fn meets(&self, other: &Part<'_>) -> bool {
        let bytes = |part: &Part<'_>| part.place.scaled(part.element.bytes());
        match (bytes(self), bytes(other)) {
            (Some(own), Some(its)) => own.meets(self.buffer.address(), its, other.buffer.address()),
            _ => true,
        }
    }

    /// Whether every element lies exactly where the other has it.
    fn is_exactly(&self, other: &Part<'_>) -> bool {
        let lies = |part: &Part<'_>| {
            part.in_place
                .map(|place| (place.storage, place.leading, part.place.members.min(2) * place.batch_stride))
        };
        let element = |part: &Part<'_>| Types::in_memory(part.element);
        self.buffer.address() == other.buffer.address()
            && element(self) == element(other)
            && lies(self).is_some()
            && lies(self) == lies(other)
    }
}

/// What is written must not lie on anything else, but D may be exactly what is read at each of its places.
fn check_overlap(problem: &Problem, arguments: &Arguments) -> Result<(), Error> {
    let operands = problem.epilogue.operands();
    let mut parts = Vec::new();
    // Of a batch by address, only the device knows where the members are.
    if problem.batching == Batching::Strided {
        let buffers = [Some(&arguments.a), Some(&arguments.b), Some(&arguments.d), arguments.c.as_ref()];
        for (matrix, buffer) in matrices(problem).into_iter().zip(buffers) {
            let Some(buffer) = buffer else { continue };
            let (name, element, place) =
                (matrix.name.to_owned(), matrix.element, matrix.place(problem.batch));
            let in_place = matches!(matrix.name, "C" | "D").then_some(matrix.placement);
            parts.push(Part { name, buffer, place, element, written: matrix.name == "D", in_place });
        }
    }
    for operand in &operands {
        let Some(buffer) = arguments.named(&operand.name) else { continue };
        let (name, place) = (format!("operand `{}`", operand.name), operand.footprint(problem));
        let in_place = match &operand.shape {
            Shape::Matrix(placement) if operand.access == Access::Read && operand.matches_d() => {
                Some(placement)
            }
            _ => None,
        };
        let written = operand.access != Access::Read;
        parts.push(Part { name, buffer, place, element: operand.element, written, in_place });
    }
    for (i, part) in parts.iter().enumerate().filter(|(_, part)| part.written) {
        for (_, other) in parts.iter().enumerate().filter(|(j, _)| *j != i) {
            if !part.meets(other) || (part.name == "D" && part.is_exactly(other)) {
                continue;
            }
            // Of two that are written, D is what people look at last.
            let (part, other) = if part.name == "D" && other.written { (other, part) } else { (part, other) };
            let (name, its) = (&part.name, &other.name);
            let expected = match (name.as_str(), other.in_place) {
                ("D", Some(_)) => format!(
                    "memory apart from {its}, or exactly that of {its} in the same type, storage, leading dimension and batch stride"
                ),
                ("D", None) => format!("memory apart from {its}"),
                _ => "memory apart, since it is written".to_owned(),
            };
            let own = if name == "D" { "D" } else { "it" };
            return Err(Error::argument(
                name,
                format!("memory that overlaps {its}"),
                expected,
                format!("give {own} memory of its own"),
            ));
        }
    }
    Ok(())
}
