//! [`Kernel`]: a staged kernel, ready for the compiler.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tilewright_hardware::TensorMapSpec;
use tilewright_ir::{Diagnostic, Element as Kind, Func, Launch, Module, Type, Value, verify};

use crate::Error;
use crate::access;
use crate::element::Element;
use crate::memory::{Ptr, space};
use crate::tensor_map::TensorMap;
use crate::trace;
use crate::value::Val;

/// A kernel after staging: its code in the IR, and what the host must know to launch it.
///
/// ```
/// use tilewright_lang::prelude::*;
///
/// /// out = a * x + y
/// #[kernel(threads = block)]
/// fn axpy(a: Val<f32>, x: Global<f32>, y: Global<f32>, out: Global<f32>, n: Val<u32>, block: u32) {
///     let i = block_id(0) * block + thread_id(0);
///     if i < n {
///         out.at(i).store(a.mul_add(x.at(i).load(), y.at(i).load()));
///     }
/// }
///
/// let kernel = axpy::stage(256)?;
/// assert_eq!(kernel.name(), "axpy");
/// assert_eq!(kernel.parameters().count(), 5);
/// assert!(kernel.ir().contains("fma"));
/// assert_eq!(kernel.element("x").map(|element| element.name()), Some("f32"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Kernel {
    func: Func,
    maps: Vec<(String, TensorMapSpec)>,
    elements: Vec<(String, Kind)>,
    views: Vec<ViewInfo>,
}

impl Kernel {
    /// The name of the function.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.func.name
    }

    /// The code.
    #[must_use]
    pub fn func(&self) -> &Func {
        &self.func
    }

    /// The code, to hand on.
    #[must_use]
    pub fn into_func(self) -> Func {
        self.func
    }

    /// The code as text.
    #[must_use]
    pub fn ir(&self) -> String {
        self.func.to_string()
    }

    /// Threads, clusters and registers, as far as the kernel fixes them.
    #[must_use]
    pub fn launch(&self) -> Launch {
        self.func.launch
    }

    /// Name, type and promised alignment of each run-time parameter, in the order of the call.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, Type, u32)> {
        let args = &self.func.region(self.func.body()).args;
        self.func.params.iter().zip(args).map(|(p, &v)| (p.name.as_str(), self.func.ty(v), p.align))
    }

    /// What the tensor map of that parameter must describe: derived from the shared-memory tiles that the kernel copies through it.
    #[must_use]
    pub fn tensor_map(&self, parameter: &str) -> Option<&TensorMapSpec> {
        self.maps.iter().find(|(name, _)| name == parameter).map(|(_, spec)| spec)
    }

    /// The views among the parameters, in their order, and what the kernel does to each.
    #[must_use]
    pub fn views(&self) -> &[ViewInfo] {
        &self.views
    }

    /// The elements that a pointer or tensor map among the parameters leads to, as the author wrote it: `Global<f32>` leads to f32.
    #[must_use]
    pub fn element(&self, parameter: &str) -> Option<Kind> {
        self.elements.iter().find(|(name, _)| name == parameter).map(|&(_, element)| element)
    }
}

/// A view among the parameters of a kernel of the tile level: what a launch must know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewInfo {
    /// The name of the parameter: of its pointer, and before `_extent0` and `_stride0`, which follow it.
    pub name: String,
    /// What it holds.
    pub element: Kind,
    /// The number of its dimensions.
    pub rank: usize,
    /// The kernel may read it.
    pub reads: bool,
    /// The kernel may write to it.
    pub writes: bool,
    /// The axes along which the kernel relies on a stride of 1.
    pub unit_strides: Vec<bool>,
    /// The extents of the tile that each program has of it, if the kernel says so with [`View::partition`](crate::tile::View::partition).
    pub partition: Option<Vec<u32>>,
}

impl ViewInfo {
    /// The grid of programs for a tensor of these extents: one for each tile of the partition. None if the view has no partition, or not as
    /// many dimensions, or there are 2^32 tiles along an axis of the grid.
    ///
    /// ```
    /// use tilewright_lang::tile::prelude::*;
    ///
    /// #[kernel]
    /// fn clear(x: View<f32, 4>) {
    ///     x.partition([1, 2, 16, 64]).store(0f32);
    /// }
    ///
    /// let kernel = clear::stage()?;
    /// assert_eq!(kernel.views()[0].grid(&[3, 5, 33, 64]), Some([9, 3, 1]));
    /// # Ok::<(), tilewright_lang::Error>(())
    /// ```
    #[must_use]
    pub fn grid(&self, extents: &[u64]) -> Option<[u32; 3]> {
        let tile = self.partition.as_ref().filter(|tile| tile.len() == extents.len())?;
        let mut blocks =
            extents.iter().zip(tile).map(|(extent, &tile)| extent.div_ceil(u64::from(tile.max(1))));
        // As `View::partition` has it: the last two of three or more axes have ids of their own.
        let shared = tile.len().saturating_sub(2).max(1);
        let first = blocks.by_ref().take(shared).try_fold(1u64, u64::checked_mul)?;
        let count = |blocks: u64| u32::try_from(blocks).ok();
        Some([count(first)?, count(blocks.next().unwrap_or(1))?, count(blocks.next().unwrap_or(1))?])
    }
}

/// Runs `body` as the kernel's code and checks the result.
#[track_caller]
pub(crate) fn stage(name: &str, body: impl FnOnce()) -> Result<Kernel, Error> {
    // Every kernel has a body of its own type; what is done with it is compiled once.
    let mut body = Some(body);
    stage_once(name, &mut || {
        if let Some(body) = body.take() {
            body();
        }
    })
}

#[track_caller]
fn stage_once(name: &str, body: &mut dyn FnMut()) -> Result<Kernel, Error> {
    let mut outcome = Ok(());
    let mut tracer = trace::stage(name, &mut || outcome = catch_unwind(AssertUnwindSafe(&mut *body)));
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    let func = tracer.builder.finish();
    let module = Module::from(func);
    tracer.errors.extend(verify(&module));
    if !tracer.errors.is_empty() {
        return Err(Error { kernel: name.to_owned(), diagnostics: tracer.errors });
    }
    let Some(func) = module.funcs.into_iter().next() else {
        return Err(Error { kernel: name.to_owned(), diagnostics: Vec::new() });
    };
    let name_of = |value: Value| {
        let position = func.region(func.body()).args.iter().position(|&arg| arg == value)?;
        func.params.get(position).map(|param| param.name.clone())
    };
    let maps = tracer.maps.into_iter().filter_map(|(value, spec)| Some((name_of(value)?, spec))).collect();
    let elements: Vec<(String, Kind)> =
        tracer.elements.into_iter().filter_map(|(value, of)| Some((name_of(value)?, of))).collect();
    let strays = tracer.views.iter().filter_map(|view| {
        let op = access::stray_store(&func, view.pointer, view.partition.as_ref()?)?;
        let message = format!(
            "`{}` is stored to outside of its partition; store to the tile of `partition` only, or do not partition the view",
            name_of(view.pointer).unwrap_or_default()
        );
        Some(Diagnostic::new(message, func.op(op).loc, &func.locations))
    });
    let strays: Vec<Diagnostic> = strays.collect();
    if !strays.is_empty() {
        return Err(Error { kernel: name.to_owned(), diagnostics: strays });
    }
    let views = tracer.views.into_iter().filter_map(|view| {
        let name = name_of(view.pointer)?;
        let &(_, element) = elements.iter().find(|(of, _)| *of == name)?;
        let access::Uses { reads, writes } = access::of_pointer(&func, view.pointer);
        let (rank, partition) = (view.extents.len(), view.partition.map(|partition| partition.tile));
        Some(ViewInfo { name, element, rank, reads, writes, unit_strides: view.unit_strides, partition })
    });
    let views = views.collect();
    Ok(Kernel { func, maps, elements, views })
}

/// What a run-time parameter of a kernel can be.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a run-time parameter of a kernel",
    note = "run-time parameters are `Val<T>`, `Global<T>`, `TensorMap<T>` and `View<T, R>`"
)]
pub trait Argument {
    /// Declares the parameter.
    fn declare(name: &str) -> Self;
}

pub(crate) fn declare(name: &str, ty: Type, align: u32) -> Value {
    trace::with(|t| t.builder.func.add_param(name, ty, align))
}

/// Declares a parameter that leads to elements in memory.
pub(crate) fn declare_memory<T: Element>(name: &str, ty: Type, align: u32) -> Value {
    let value = declare(name, ty, align);
    trace::with(|t| t.elements.push((value, T::ELEMENT)));
    value
}

impl<T: Element> Argument for Val<T> {
    fn declare(name: &str) -> Val<T> {
        Val::of(declare(name, Type::Scalar(T::ELEMENT), 0))
    }
}

impl<T: Element> Argument for Ptr<T, space::Global> {
    fn declare(name: &str) -> Self {
        Ptr::of(declare_memory::<T>(name, Type::Pointer(tilewright_ir::Space::Global), T::ELEMENT.bytes()))
    }
}

impl<T: Element> Argument for TensorMap<T> {
    fn declare(name: &str) -> Self {
        TensorMap::of(declare_memory::<T>(name, Type::TensorMap, 0))
    }
}
