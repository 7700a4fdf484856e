//! Kernels of the tile level on a device: launched with tensors, compiled for what is true of them.
//!
//! [`slot`] knows the parameters and checks arguments, [`overlap`] that no view is written through another, [`facts`] has what is looked at
//! to choose among [`variants`], which are compiled when they are needed first. On the CPU there are no variants: the interpreter runs
//! the kernel as it stands.

mod facts;
mod overlap;
mod slot;
mod variants;

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tilewright_compiler::Compiler;
use tilewright_ir::{Constant, canonical};
use tilewright_tile::interp::{self, Argument as Interpreted};

use super::value::{Memory, Number, Passed};
use super::{Argument, Device, DeviceError, DeviceKind, Dim3, Report, TensorMap, kernel, reach};
use facts::{EXACT, Key};
pub(crate) use overlap::{apart, is_injective};
use slot::{Slot, SlotKind};
pub use variants::Variant;
use variants::{Entry, MapPlan, Source, Variants};

/// A kernel on tiles, on a device; made by [`Device::program`]. Clones are the same program, with the same variants.
///
/// ```
/// use tilewright::device::Fact;
/// use tilewright::lang::tile::prelude::*;
/// use tilewright::prelude::Device;
///
/// /// out = a * x + y
/// #[kernel]
/// fn axpy(a: Val<f32>, x: View<f32, 2>, y: View<f32, 2>, out: View<f32, 2>) {
///     let [x, y] = [x, y].map(|view| view.partition([4, 64]).load());
///     out.partition([4, 64]).store(x * a + y);
/// }
///
/// let device = Device::simulator();
/// let axpy = device.program(&axpy::stage()?)?;
/// let (x, y) = (device.upload(&[1.0f32; 10 * 100])?, device.upload(&[0.5f32; 10 * 100])?);
/// // One program for each tile of what the kernel partitions; in place, as `y` is both read and written.
/// axpy.run(&[&2.0f32, &x.view([10, 100]), &y.view([10, 100]), &y.view([10, 100])])?.expect_clean()?;
/// assert_eq!(y.to_vec()?, [2.5; 1000]);
///
/// // What was compiled, and for which arguments.
/// let variant = &axpy.variants()[0];
/// assert!(variant.facts().contains(&("x_stride1".to_owned(), Fact::Is(1))));
/// assert!(variant.threads().is_some());
///
/// let error = axpy.run(&[&2.0f32, &x.view([10, 100]), &y.view([1000]), &y.view([10, 100])]).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "argument 3 of kernel `axpy` (parameter `y`): found a view of f32 1000 with strides [1], \
///      expected a view of f32 in 2 dimensions, as in `buffer.view([rows, columns])`"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Arguments
///
/// One for each parameter that the author wrote: a [`BufferView`](super::BufferView) for a `View`, a number for a `Val`, a
/// [`Buffer`](super::Buffer) for a `Global`. Checked at each launch are numbers, types and dimensions; that a view lies inside of its buffer,
/// has extents below 2^31, and keeps what the kernel promises of it (`aligned`, `unit_stride`, ...); and that a view the kernel writes has
/// each element once and shares none with another view. A kernel may work in place: the very same view can be given twice, if it is
/// written through one of the two only. What is read through the other must then be written, if at all, by the same program, and after it
/// was read in the same round of all loops: loads may move ahead of stores through another view. Programs that need more read and write through
/// one view, where all is in the order of the text. Two views count as sharing elements if that cannot be excluded, as between different strides in the same range of memory. `Global` pointers are not looked at.
///
/// # Variants
///
/// A kernel is compiled again when one of these facts about its arguments is different, and runs faster for what is true:
///
/// * a pointer is a multiple of 16 bytes;
/// * a stride is 1, or a multiple of 16 bytes;
/// * an extent along an axis of stride 1 is a multiple of 16 bytes;
/// * an extent is that of the tile which the kernel loads or stores there (above 1);
/// * the grid has one program along the second or third axis;
/// * an extent is a certain number, if [`Program::exact`] asks for it.
///
/// Where the device has a [pack](Device::add_pack) with code for some of these facts, and no other, that runs instead.
///
/// The facts of the first 16 pointers count. 32 variants are kept; the one that was not used for the longest time goes first.
/// [`Program::variants`] are all. On the [CPU](Device::cpu) nothing is compiled.
///
/// # Grid
///
/// [`Program::launch`] takes the number of programs along each axis. A kernel that says with
/// [`partition`](crate::lang::tile::View::partition) which tile each program owns can be [run](Program::run) without; another grid than one
/// program for each tile of a view that it writes is refused. A grid without programs does nothing. Whether a program is one block of threads or a cluster of them is decided by the compiler and does not show.
#[derive(Clone)]
pub struct Program {
    device: Device,
    body: Arc<Body>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({} on {:?}, {} variants)", self.body.name, self.device, self.variants().len())
    }
}

/// All of a program but its device, whose cache may hold it.
pub(super) struct Body {
    name: Arc<str>,
    kernel: tilewright_lang::Kernel,
    compiler: Compiler,
    slots: Vec<Slot>,
    /// Slot and axis of the extents that are compiled in.
    exact: Vec<(usize, usize)>,
    /// What runs it, if that is this computer.
    interpreter: Option<interp::Program>,
    variants: Variants,
}

impl Body {
    pub(super) fn new(
        device: &Device,
        kernel: &tilewright_lang::Kernel,
        compiler: Compiler,
    ) -> Result<Body, DeviceError> {
        if !kernel.func().is_tile_level() {
            return Err(DeviceError::ThreadKernel { kernel: kernel.name().to_owned() });
        }
        let interpreter = match device.kind() {
            DeviceKind::Cpu => Some(interp::Program::new(kernel.func())?.parallel(true)),
            DeviceKind::Cuda | DeviceKind::Simulator => None,
        };
        Ok(Body {
            name: kernel.name().into(),
            slots: slot::slots(kernel),
            kernel: kernel.clone(),
            compiler,
            exact: Vec::new(),
            interpreter,
            variants: Variants::default(),
        })
    }

    /// Checks all arguments and gives the facts about them.
    fn check(&self, device: &Device, passed: &[Passed<'_>]) -> Result<Key, DeviceError> {
        if passed.len() != self.slots.len() {
            let parameters: Vec<String> =
                self.slots.iter().map(|slot| format!("`{}`, {}", slot.name, slot.describe())).collect();
            return Err(DeviceError::ArgumentCount {
                kernel: self.name.to_string(),
                found: passed.len(),
                expected: self.slots.len(),
                parameters: if parameters.is_empty() { "none".to_owned() } else { parameters.join("; ") },
            });
        }
        let mut key = Key::default();
        for (number, (slot, passed)) in (1..).zip(self.slots.iter().zip(passed)) {
            slot.check(device, passed).map_err(|wrong| DeviceError::Argument {
                kernel: self.name.to_string(),
                number,
                name: slot.name.clone(),
                found: wrong.found,
                expected: wrong.expected,
            })?;
            slot.note_facts(passed, &mut key);
        }
        for (exact, &(slot, axis)) in key.exact.iter_mut().zip(&self.exact) {
            if let Passed::View(view) = &passed[slot] {
                *exact = u32::try_from(view.extents[axis]).unwrap_or(0);
            }
        }
        overlap::check(&self.slots, passed).map_err(|shared| {
            let (kernel, written) = (self.name.to_string(), self.slots[shared.written].name.clone());
            if shared.written == shared.other {
                let expected = "each element once, since the kernel writes them; check strides".to_owned();
                let (number, found) = (shared.written + 1, shared.found);
                return DeviceError::Argument { kernel, number, name: written, found, expected };
            }
            let other = self.slots[shared.other].name.clone();
            DeviceError::Overlap { kernel, written, other, found: shared.found }
        })?;
        Ok(key)
    }

    /// The grid that partitions ask for. The arguments were checked.
    fn grid(&self, passed: &[Passed<'_>]) -> Result<[u32; 3], DeviceError> {
        let mut known: Option<(&Slot, [u32; 3])> = None;
        for (slot, passed) in self.slots.iter().zip(passed) {
            let (SlotKind::View(view), Passed::View(tensor)) = (&slot.kind, passed) else { continue };
            let Some(tile) = &view.info.partition else { continue };
            let refuse = |found, expected: &str| {
                Err(DeviceError::Grid { kernel: self.name.to_string(), found, expected: expected.to_owned() })
            };
            let Some(grid) = view.info.grid(&tensor.extents[..tensor.rank]) else {
                let found = format!("`{}`, {}, in tiles of {tile:?}", slot.name, tensor.describe());
                return refuse(found, "fewer than 2^32 tiles along each axis of the grid; take larger tiles");
            };
            match known {
                Some((first, other)) if other != grid => {
                    let found =
                        format!("{other:?} tiles of `{}` and {grid:?} of `{}`", first.name, slot.name);
                    return refuse(found, "as many of each view that the kernel partitions");
                }
                Some(_) => {}
                None => known = Some((slot, grid)),
            }
        }
        known.map(|(_, grid)| grid).ok_or_else(|| DeviceError::Grid {
            kernel: self.name.to_string(),
            found: "no view with a partition".to_owned(),
            expected: "`View::partition` in the kernel, or the grid given with `launch`".to_owned(),
        })
    }

    /// Whether a grid has one program for each tile of the views that are written by partition: with others a tile would be written by
    /// several programs at the same time, or by none. The arguments were checked.
    fn expect_grid(&self, passed: &[Passed<'_>], found: [u32; 3]) -> Result<(), DeviceError> {
        for (slot, passed) in self.slots.iter().zip(passed) {
            let (SlotKind::View(view), Passed::View(tensor)) = (&slot.kind, passed) else { continue };
            let Some(tile) = view.info.partition.as_ref().filter(|_| slot.writes()) else { continue };
            let expected = view.info.grid(&tensor.extents[..tensor.rank]);
            // Where there are no tiles, nothing is written.
            if expected == Some(found) || expected.is_some_and(|expected| expected.contains(&0)) {
                continue;
            }
            let expected =
                expected.map_or("fewer than 2^32 along each axis".to_owned(), |e| format!("{e:?}"));
            return Err(DeviceError::Grid {
                kernel: self.name.to_string(),
                found: format!("{found:?} programs"),
                expected: format!(
                    "{expected}, one for each tile of {tile:?} of `{}`, which the kernel partitions; `run` takes that grid by itself",
                    slot.name
                ),
            });
        }
        Ok(())
    }

    /// The arguments of the kernel's parameters, in their order: the one place where a view becomes a pointer, its extents and its strides.
    /// What compiled code takes beyond that are [`Body::maps`].
    fn expand<'a>(&self, passed: &[Passed<'a>]) -> Expanded<'a> {
        let mut all = Expanded::new();
        for passed in passed {
            let Passed::View(view) = passed else {
                all.push(*passed);
                continue;
            };
            all.push(Passed::Buffer(view.element, view.memory, view.start()));
            // Both fit: that was checked.
            let extent = |&extent: &u64| Number::new(u32::try_from(extent).unwrap_or(0));
            let stride = |&stride: &u64| Number::new(i64::try_from(stride).unwrap_or(0));
            all.extend(view.extents[..view.rank].iter().map(extent).map(Passed::Number));
            all.extend(view.strides[..view.rank].iter().map(stride).map(Passed::Number));
        }
        all
    }

    /// The tensor maps that a variant takes after all other arguments, which were [expanded](Body::expand).
    fn maps(
        &self,
        device: &Device,
        entry: &Entry,
        expanded: &[Passed<'_>],
    ) -> Result<Vec<TensorMap>, DeviceError> {
        let number = |&source: &Source| match source {
            Source::Constant(number) => number,
            Source::Parameter(at) => match &expanded[at] {
                Passed::Number(number) => number.bits(),
                _ => 0,
            },
            Source::All => 1,
        };
        let map = |plan: &MapPlan| {
            let Passed::Buffer(_, memory, offset) = expanded[plan.pointer] else {
                return Err(DeviceError::OtherDevice);
            };
            let width = u64::from(plan.spec.element().bytes());
            let mut extents: Vec<u64> = plan.extents.iter().map(number).collect();
            let strides: Vec<u64> =
                plan.strides.iter().map(|stride| number(stride).saturating_mul(width)).collect();
            let place = (memory, offset, memory.bytes().saturating_sub(offset as u64));
            let outermost = plan.extents.len() - 1;
            if matches!(plan.extents[outermost], Source::All) {
                let inner = reach(width, &extents, &strides).unwrap_or(u64::MAX);
                let further = place.2.saturating_sub(inner).checked_div(strides[outermost - 1]);
                // The same matrix at every index needs no memory for more of them.
                extents[outermost] = further.map_or(1 << 31, |further| (further + 1).min(1 << 31));
            }
            device.map_memory(&plan.spec, place, &extents, &strides)
        };
        entry.maps.iter().map(map).collect()
    }

    /// The variant for these facts, made if there is none.
    fn variant(&self, device: &Device, key: &Key) -> Result<Arc<Entry>, DeviceError> {
        self.variants.get(key, || {
            let facts = key.facts(&self.slots, &self.exact);
            let made = device.make(&self.kernel, Some(&facts), self.compiler)?;
            let body = match self.interpreter {
                None if device.runs() => Some(kernel::Body::made(device, &self.kernel, &made)?),
                _ => None,
            };
            let names: Vec<&str> = self.kernel.parameters().map(|(name, ..)| name).collect();
            Ok(Entry::new(device, *key, body, Variant::new(facts, made), &names))
        })
    }

    /// Runs it in the interpreter on the memory of this computer.
    fn interpret(
        &self,
        program: &interp::Program,
        device: &Device,
        grid: [u32; 3],
        passed: &[Passed<'_>],
    ) -> Result<(), DeviceError> {
        // Each memory once, and whether it may be written.
        let mut places: Vec<(tilewright_sim::Buffer, bool)> = Vec::new();
        for (slot, passed) in self.slots.iter().zip(passed) {
            if let Some(Memory::Host(memory)) = passed.memory().map(|memory| &**memory) {
                match places.iter_mut().find(|(place, _)| *place == memory.place()) {
                    Some((_, written)) => *written |= slot.writes(),
                    None => places.push((memory.place(), slot.writes())),
                }
            }
        }
        let expanded = self.expand(passed);
        let run = |simulator: &mut tilewright_sim::Simulator| {
            let copy = |&(place, written): &(_, bool)| written.then(|| simulator.read(place)).transpose();
            let mut copies = places.iter().map(copy).collect::<Result<Vec<_>, _>>()?;
            let outcome = {
                let mut arguments = Vec::with_capacity(expanded.len() + places.len());
                for passed in &expanded {
                    arguments.push(match passed {
                        Passed::Number(number) => {
                            Interpreted::Scalar(Constant(canonical(number.element(), number.bits())))
                        }
                        Passed::Buffer(_, memory, offset) => {
                            let behind = |(place, _): &(tilewright_sim::Buffer, bool)| {
                                place.address() == memory.address()
                            };
                            let position = places.iter().position(behind).ok_or(DeviceError::OtherDevice)?;
                            let (argument, offset) = (expanded.len() + position, *offset as u64);
                            Interpreted::Within { argument, offset }
                        }
                        // No parameter of the tile level takes them, and views are expanded.
                        Passed::Map(..) | Passed::Bytes(_) | Passed::View(_) => {
                            return Err(DeviceError::OtherDevice);
                        }
                    });
                }
                for (copy, &(place, _)) in copies.iter_mut().zip(&places) {
                    arguments.push(match copy {
                        Some(bytes) => Interpreted::Memory(bytes),
                        None => Interpreted::Shared(simulator.bytes(place)?),
                    });
                }
                program.run(grid, &mut arguments)
            };
            for (copy, &(place, _)) in copies.iter().zip(&places) {
                if let Some(bytes) = copy {
                    simulator.write(place, bytes)?;
                }
            }
            Ok(outcome?)
        };
        device.with_memory(run).ok_or(DeviceError::OtherDevice)?
    }
}

impl Program {
    pub(super) fn new(device: &Device, body: Arc<Body>) -> Program {
        Program { device: device.clone(), body }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.body.name
    }

    /// The device that it runs on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The kernel.
    #[must_use]
    pub fn kernel(&self) -> &tilewright_lang::Kernel {
        &self.body.kernel
    }

    /// The same program with the extent of a view along an axis compiled in: each number makes a variant of its own, which needs no checks for
    /// it and can unroll loops. For extents that are few, such as the width of a model; at most eight for a program.
    ///
    /// ```
    /// use tilewright::device::Fact;
    /// use tilewright::lang::tile::prelude::*;
    /// use tilewright::prelude::Device;
    ///
    /// #[kernel]
    /// fn row_sums(x: View<f32, 2>, out: View<f32, 1>) {
    ///     let mut sum = Tile::<f32>::zeros([1]);
    ///     for step in 0..x.extent(1).div_ceil(64) {
    ///         sum = sum + x.row(program_id(0)).tile([64]).block(step).load().sum(0);
    ///     }
    ///     out.partition([1]).store(sum);
    /// }
    ///
    /// let device = Device::simulator();
    /// let program = device.program(&row_sums::stage()?)?.exact("x", 1)?;
    /// let (x, out) = (device.upload(&[1.0f32; 2 * 100])?, device.alloc::<f32>(2)?);
    /// program.run(&[&x.view([2, 100]), &out.view([2])])?.expect_clean()?;
    /// assert_eq!(out.to_vec()?, [100.0; 2]);
    /// assert!(program.variants()[0].facts().contains(&("x_extent1".to_owned(), Fact::Is(100))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the kernel has no such view or axis, or eight are compiled in already.
    pub fn exact(&self, view: &str, axis: usize) -> Result<Program, DeviceError> {
        let has = |slot: &Slot| matches!(&slot.kind, SlotKind::View(own) if slot.name == view && axis < own.info.rank);
        let found = self.body.slots.iter().position(has).filter(|_| self.body.exact.len() < EXACT);
        let Some(slot) = found else {
            let views = self.body.kernel.views().iter();
            let known: Vec<String> =
                views.map(|view| format!("{} of `{}`", axes(view.rank), view.name)).collect();
            return Err(DeviceError::NoAxis {
                kernel: self.name().to_owned(),
                view: view.to_owned(),
                axis,
                known: format!("{} (at most {EXACT} in all)", known.join(", ")),
            });
        };
        let mut exact = self.body.exact.clone();
        exact.push((slot, axis));
        let body = Body { exact, ..Body::new(&self.device, &self.body.kernel, self.body.compiler)? };
        Ok(Program::new(&self.device, Arc::new(body)))
    }

    /// Runs so many programs: to their end on the simulator and the CPU, some time from now on a GPU, in the order of everything else on the
    /// device.
    ///
    /// # Errors
    /// If arguments or the grid are wrong, or the kernel does not compile for them, or goes wrong on the CPU. What it does wrong on the
    /// simulator is in the report.
    pub fn launch(&self, grid: impl Into<Dim3>, arguments: &[&dyn Argument]) -> Result<Report, DeviceError> {
        let (passed, grid) = (given(arguments), grid.into().0);
        let key = self.body.check(&self.device, &passed)?;
        if !grid.contains(&0) {
            self.fits(grid, 1)?;
            self.body.expect_grid(&passed, grid)?;
        }
        self.start(grid, &key, &passed)
    }

    /// Runs one program for each tile of the views that the kernel [partitions](crate::lang::tile::View::partition).
    ///
    /// # Errors
    /// As [`Program::launch`], and if the kernel partitions no view, or views have different numbers of tiles.
    pub fn run(&self, arguments: &[&dyn Argument]) -> Result<Report, DeviceError> {
        let passed = given(arguments);
        let key = self.body.check(&self.device, &passed)?;
        self.start(self.body.grid(&passed)?, &key, &passed)
    }

    /// The grid that [`Program::run`] would take.
    ///
    /// # Errors
    /// As [`Program::run`].
    pub fn grid_for(&self, arguments: &[&dyn Argument]) -> Result<[u32; 3], DeviceError> {
        let passed = given(arguments);
        self.body.check(&self.device, &passed)?;
        self.body.grid(&passed)
    }

    /// What is compiled, or packed, for these arguments, made if it is not there yet: facts, threads, clusters, remarks, PTX. The CPU does not run it,
    /// but can tell.
    ///
    /// # Errors
    /// As [`Program::launch`].
    pub fn build_for(&self, arguments: &[&dyn Argument]) -> Result<Variant, DeviceError> {
        let passed = given(arguments);
        let key = self.body.check(&self.device, &passed)?;
        // Without a grid nothing is known of it.
        let key = self.body.grid(&passed).map_or(key, |grid| key.on_grid(grid));
        Ok(self.body.variant(&self.device, &key)?.variant.clone())
    }

    /// What was compiled and is kept, in the order in which it was needed.
    #[must_use]
    pub fn variants(&self) -> Vec<Variant> {
        self.body.variants.all()
    }

    fn start(&self, grid: [u32; 3], key: &Key, passed: &[Passed<'_>]) -> Result<Report, DeviceError> {
        let body = &*self.body;
        if grid.contains(&0) {
            return Ok(Report::done(body.name.clone()));
        }
        if let Some(program) = &body.interpreter {
            self.fits(grid, 1)?;
            body.interpret(program, &self.device, grid, passed)?;
            return Ok(Report::done(body.name.clone()));
        }
        let entry = body.variant(&self.device, &key.on_grid(grid))?;
        let blocks = entry.variant.cluster().map_or(1, |[blocks, ..]| blocks);
        let grid = self.fits(grid, blocks)?;
        match &entry.body {
            Some(compiled) => {
                let maps;
                let mut arguments = body.expand(passed);
                maps = body.maps(&self.device, &entry, &arguments)?;
                arguments.extend(maps.iter().map(|map| Passed::Map(&map.spec, &map.map, &map.memory)));
                let mut grid = grid;
                if let Some(resident) = entry.resident {
                    arguments.extend(grid.map(|programs| Passed::Number(Number::new(programs))));
                    let all = grid.iter().fold(1u32, |all, &programs| all.saturating_mul(programs));
                    // They are counted in 32 bits.
                    self.fits([all, 1, 1], 1)?;
                    grid = [all.min(resident), 1, 1];
                }
                compiled.launch(grid, &arguments)
            }
            None => Ok(Report::done(body.name.clone())),
        }
    }

    /// The grid of blocks for one of programs of so many blocks each, if a GPU can have it.
    fn fits(&self, [x, y, z]: [u32; 3], blocks: u32) -> Result<[u32; 3], DeviceError> {
        let wide = x.checked_mul(blocks).filter(|&wide| wide <= i32::MAX.cast_unsigned());
        match wide {
            Some(wide) if y <= 65535 && z <= 65535 => Ok([wide, y, z]),
            _ => Err(DeviceError::Grid {
                kernel: self.name().to_owned(),
                found: format!("{:?} programs", [x, y, z]),
                expected: format!(
                    "at most {} along the first axis and 65535 along the others; take larger tiles, or the long axis first",
                    i32::MAX.cast_unsigned() / blocks.max(1)
                ),
            }),
        }
    }
}

/// Arguments of a launch, and what they become: as many as most kernels take need no heap, which would cost as much as all checks do.
type Given<'a> = SmallVec<[Passed<'a>; 8]>;
type Expanded<'a> = SmallVec<[Passed<'a>; 24]>;

fn given<'a>(arguments: &[&'a dyn Argument]) -> Given<'a> {
    arguments.iter().map(|argument| argument.pass()).collect()
}

/// The axes of a view, for messages.
fn axes(rank: usize) -> String {
    (0..rank).map(|axis| axis.to_string()).collect::<Vec<_>>().join(", ")
}
