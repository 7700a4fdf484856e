//! The kernel under construction.
//!
//! Staged values are indices into the function that this thread is building. Every operation of the language ends here: it appends
//! an op together with the caller's place in the source (`#[track_caller]`). Mistakes are collected, not thrown: staging goes on
//! with a poison value, so that all mistakes of a kernel come out at once.
//!
//! Every kernel goes through these functions thousands of times with other closures and types. They are thin where they are generic, and
//! what they do is in functions that are not, which are compiled once: that decides how long a crate of kernels takes to build.

use std::cell::RefCell;
use std::panic::Location;

use tilewright_hardware::TensorMapSpec;
use tilewright_ir::{
    Attr, Attrs, Builder, Diagnostic, Element, Frame, Func, Loc, Op, Opcode, Region, Type, Value,
};
use tilewright_layout::Composed;

/// A function being built, and what belongs to it at staging time only.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) builder: Builder,
    pub(crate) frame: Frame,
    /// The place in the kernel that called this crate last.
    pub(crate) last: Loc,
    pub(crate) errors: Vec<Diagnostic>,
    /// Layouts of tensors, so that a tensor is a pointer and an index and can be copied.
    pub(crate) layouts: Vec<Composed>,
    /// For each tensor-map parameter what its uses ask of it.
    pub(crate) maps: Vec<(Value, TensorMapSpec)>,
    /// What parameters point to.
    pub(crate) elements: Vec<(Value, Element)>,
    /// The parameters that are views.
    pub(crate) views: Vec<ViewParameter>,
}

/// A parameter that is a view.
#[derive(Debug)]
pub(crate) struct ViewParameter {
    pub(crate) pointer: Value,
    pub(crate) extents: Vec<Value>,
    /// Along which axes the stride is promised to be 1.
    pub(crate) unit_strides: Vec<bool>,
    pub(crate) partition: Option<Partition>,
}

/// How programs share a view among themselves.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) tile: Vec<u32>,
    /// Where the tile of this program begins, each time that the kernel asked.
    pub(crate) starts: Vec<Vec<Value>>,
}

thread_local! {
    static TRACER: RefCell<Option<Tracer>> = const { RefCell::new(None) };
}

/// Builds a function by running `body`, and returns the tracer. An outer kernel under construction, if any, is put back even when
/// `body` panics. The caller's place is that of the kernel.
#[track_caller]
pub(crate) fn stage(name: &str, body: &mut dyn FnMut()) -> Tracer {
    struct Restore(Option<Tracer>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let outer = self.0.take();
            TRACER.with(|tracer| *tracer.borrow_mut() = outer);
        }
    }
    let mut tracer = Tracer {
        builder: Builder::new(Func::new(name)),
        frame: Frame::KERNEL,
        last: Loc::NONE,
        errors: Vec::new(),
        layouts: Vec::new(),
        maps: Vec::new(),
        elements: Vec::new(),
        views: Vec::new(),
    };
    let at = Location::caller();
    tracer.last = tracer.builder.func.locations.add(at.file(), at.line(), at.column(), Frame::KERNEL);
    let restore = Restore(TRACER.with(|cell| cell.borrow_mut().replace(tracer)));
    body();
    let done = TRACER.with(|cell| cell.borrow_mut().take());
    drop(restore);
    done.unwrap_or_else(|| not_staging())
}

#[allow(
    clippy::panic,
    reason = "a mistake in the program, like a borrow of a RefCell twice; there is no kernel to report it on"
)]
fn not_staging() -> ! {
    panic!("kernel values exist only while a kernel is being staged: call this from a `#[kernel]` function")
}

/// Runs `f` on the kernel under construction.
///
/// # Panics
/// If this thread is not staging a kernel.
pub(crate) fn with<R>(f: impl FnOnce(&mut Tracer) -> R) -> R {
    let (mut f, mut result) = (Some(f), None);
    with_tracer(&mut |tracer| result = f.take().map(|f| f(tracer)));
    result.unwrap_or_else(|| not_staging())
}

fn with_tracer(f: &mut dyn FnMut(&mut Tracer)) {
    TRACER.with(|cell| match cell.borrow_mut().as_mut() {
        Some(tracer) => f(tracer),
        None => not_staging(),
    });
}

impl Tracer {
    /// A place of the source, in the current frame. A closure does not know its caller's place, nor does a function that is passed
    /// as one: what they make here belongs to the call that came last.
    pub(crate) fn place(&mut self, at: &Location<'_>) -> Loc {
        let file = at.file();
        let own = file!().strip_suffix("trace.rs").is_some_and(|folder| file.starts_with(folder))
            || file.ends_with("library/core/src/ops/function.rs");
        if !own {
            self.last = self.builder.func.locations.add(at.file(), at.line(), at.column(), self.frame);
        }
        self.last
    }

    pub(crate) fn ty(&self, value: Value) -> Type {
        self.builder.func.ty(value)
    }
}

/// Notes the caller's place for a function that makes its first op in a closure.
#[track_caller]
pub(crate) fn here() {
    let at = Location::caller();
    with(|t| t.place(at));
}

/// Appends an op. `given` are the result types that the table leaves open.
#[track_caller]
pub(crate) fn push(
    code: Opcode,
    operands: impl AsRef<[Value]>,
    attrs: impl IntoIterator<Item = Attr>,
    given: impl AsRef<[Type]>,
) -> Op {
    append(code, operands.as_ref(), attrs.into_iter().collect(), given.as_ref(), Location::caller())
}

fn append(code: Opcode, operands: &[Value], attrs: Attrs, given: &[Type], at: &Location<'_>) -> Op {
    with(|t| {
        let loc = t.place(at);
        t.builder.push(code, operands.iter().copied(), attrs, given.iter().copied(), loc)
    })
}

/// Appends an op and returns its first result; `given` is its type where the table leaves it open.
#[track_caller]
pub(crate) fn value(
    code: Opcode,
    operands: impl AsRef<[Value]>,
    attrs: impl IntoIterator<Item = Attr>,
    given: impl Into<Option<Type>>,
) -> Value {
    append_value(code, operands.as_ref(), attrs.into_iter().collect(), given.into(), Location::caller())
}

fn append_value(
    code: Opcode,
    operands: &[Value],
    attrs: Attrs,
    given: Option<Type>,
    at: &Location<'_>,
) -> Value {
    with(|t| {
        let loc = t.place(at);
        t.builder.value(code, operands.iter().copied(), attrs, given, loc)
    })
}

/// Appends an op without results.
#[track_caller]
pub(crate) fn effect(code: Opcode, operands: impl AsRef<[Value]>, attrs: impl IntoIterator<Item = Attr>) {
    push(code, operands, attrs, []);
}

/// A constant of the given bits, canonical for its type.
#[track_caller]
pub(crate) fn constant(element: Element, bits: u64) -> Value {
    let at = Location::caller();
    with(|t| {
        let loc = t.place(at);
        t.builder.constant(Type::Scalar(element), tilewright_ir::canonical(element, bits), loc)
    })
}

/// A `u32` constant.
#[track_caller]
pub(crate) fn u32_const(value: u32) -> Value {
    constant(Element::U32, u64::from(value))
}

/// Reports a mistake at the caller's place.
#[track_caller]
pub(crate) fn error(message: impl Into<String>) {
    report(message.into(), Location::caller());
}

fn report(message: String, at: &Location<'_>) {
    with(|t| {
        let loc = t.place(at);
        let diagnostic = Diagnostic::new(message, loc, &t.builder.func.locations);
        t.errors.push(diagnostic);
    });
}

/// A value to go on with after a mistake.
#[track_caller]
pub(crate) fn poison(ty: Type) -> Value {
    value(Opcode::Poison, [], [], ty)
}

/// The result, or a report at the caller's place and nothing.
#[track_caller]
pub(crate) fn check<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(reason) => {
            error(reason.to_string());
            None
        }
    }
}

/// Opens a new region of `op`.
pub(crate) fn open(op: Op) -> Region {
    with(|t| t.builder.open(op))
}

/// Ends the open region.
#[track_caller]
pub(crate) fn close(code: Opcode, operands: impl AsRef<[Value]>) {
    effect(code, operands, []);
    with(|t| t.builder.close());
}
