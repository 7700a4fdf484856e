//! Between global memory and registers.
//!
//! A box is read in vectors along the axis that is contiguous in memory, as wide as alignment and layout allow. Elements outside of the
//! tensor are not touched: a load gives the padding for them, a store leaves them out. Of threads that hold copies, the first one stores.

use std::collections::HashMap;
use std::rc::Rc;

use tilewright_hardware::Arch;
use tilewright_ir::{Attr, AttrKind, Cmp, Combine, Element, Index, Op, OpData, Opcode, Type, Value};
use tilewright_passes::RemarkKind;

use super::assign::{Box3, Order, constant, memory_order, missing};
use super::layout::{Holder, Layout};
use super::touched::{Place, Start, Touched};
use super::{Held, LowerError, Lowering, Result, Tile};

/// Registers that lie side by side in memory and move in one access.
pub(super) struct Run {
    /// The first and those after it.
    pub(super) registers: Vec<usize>,
    pub(super) address: Value,
    pub(super) inside: Option<Value>,
}

impl Lowering<'_> {
    pub(super) fn load(&mut self, data: &OpData) -> Result<()> {
        let result = data.results[0];
        let element = self.checked_element(data, result)?;
        let chosen = self.layout(result);
        let order = self.order(data);
        let layout = self.good_for(&chosen, &order);
        let pad = self.scalar(data.operands[data.operands.len() - 1]);
        self.touch_box(data, &layout, element, None);
        let runs = self.runs(data, &layout, &order, element);
        let mut registers = vec![pad; layout.count()];
        let hints = hints(data);
        for run in runs {
            let count = u16::try_from(run.registers.len()).unwrap_or(1);
            let ty = if count == 1 { Type::Scalar(element) } else { Type::Vector(element, count) };
            let loaded = match run.inside {
                None => self.value(Opcode::Load, [run.address], hints.clone(), ty),
                Some(inside) => {
                    let other = if count == 1 {
                        pad
                    } else {
                        self.value(Opcode::Pack, vec![pad; usize::from(count)], [], ty)
                    };
                    self.value(Opcode::LoadIf, [run.address, inside, other], hints.clone(), ty)
                }
            };
            for (i, &register) in (0u32..).zip(&run.registers) {
                registers[register] = if count == 1 {
                    loaded
                } else {
                    self.value(Opcode::Extract, [loaded], [Index(i).into()], Type::Scalar(element))
                };
            }
        }
        let tile = Tile { layout, registers };
        let tile = self.convert(tile, &chosen, element);
        self.hold(result, Held::Tile(tile));
        Ok(())
    }

    pub(super) fn store(&mut self, op: Op, data: &OpData) -> Result<()> {
        let value = data.operands[1];
        let element = self.checked_element(data, value)?;
        let chosen = self.held_layout(value).unwrap_or_else(|| self.layout(value));
        let order = self.order(data);
        let layout = self.good_for(&chosen, &order);
        let tile = self.tile_in(value, &layout);
        self.touch_box(data, &layout, element, Some(op));
        let runs = self.runs(data, &layout, &order, element);
        let first = self.is_first(&layout);
        let hints = hints(data);
        for run in runs {
            let parts: Vec<Value> = run.registers.iter().map(|&register| tile.registers[register]).collect();
            let whole = match parts[..] {
                [one] => one,
                _ => {
                    let count = u16::try_from(parts.len()).unwrap_or(1);
                    self.value(Opcode::Pack, parts, [], Type::Vector(element, count))
                }
            };
            match self.both(run.inside, first) {
                None => self.push(Opcode::Store, [run.address, whole], hints.clone(), []),
                Some(here) => self.push(Opcode::StoreIf, [run.address, whole, here], hints.clone(), []),
            };
        }
        Ok(())
    }

    /// One thread asks for what the program will not load itself. Without clusters there is no instruction for it, and it is only a hint.
    pub(super) fn prefetch(&mut self, data: &OpData) {
        if !self.arch.supports(Arch::SM_90) || self.align.at(data.operands[0], 0) < 16 {
            self.remark(
                RemarkKind::Missed,
                "nothing is brought to the cache: it takes sm_90, and rows aligned to 16 bytes".to_owned(),
            );
            return;
        }
        let (address, bytes) = (self.scalar(data.operands[0]), self.scalar(data.operands[1]));
        let (whole, zero) = (self.u32(!15), self.u32(0));
        let bytes = self.binary(Opcode::And, bytes, whole);
        let any = self.value(Opcode::Cmp, [bytes, zero], [Cmp::Ne.into()], Type::BOOL);
        let holders: &[Holder] =
            if self.team().blocks > 1 { &Holder::ALL } else { &[Holder::Lane, Holder::Warp] };
        let mut numbers = zero;
        for &holder in holders {
            let number = self.number(holder);
            numbers = self.early(Opcode::Or, [numbers, number], [], Type::U32);
        }
        let first = self.early(Opcode::Cmp, [numbers, zero], [Cmp::Eq.into()], Type::BOOL);
        let here = self.binary(Opcode::And, first, any);
        self.only_if(Some(here), |this| {
            this.push(Opcode::BulkPrefetch, [address, bytes], [], []);
        });
    }

    /// A box is about to be read, or written by this op, by threads that each have their own elements of it unless some hold copies.
    pub(super) fn touch_box(&mut self, data: &OpData, layout: &Rc<Layout>, element: Element, by: Option<Op>) {
        let access = self.access_to_box(data, layout, element, by);
        self.touch_global(access);
    }

    pub(super) fn access_to_box(
        &self,
        data: &OpData,
        layout: &Rc<Layout>,
        element: Element,
        by: Option<Op>,
    ) -> Touched {
        let source = self.source;
        let parts = Box3::of(data, layout.shape.rank());
        let start = |&start: &Value| {
            // Starts are of 32 bits with a sign.
            let number = constant(source, start).and_then(|bits| u32::try_from(bits & 0xffff_ffff).ok());
            number.map_or(Start::Computed(start), |number| Start::At(number.cast_signed().into()))
        };
        let place = (!layout.has_copies()).then(|| Place {
            pointer: data.operands[0],
            starts: parts.starts.iter().map(start).collect(),
            extents: parts.extents.to_vec(),
            strides: parts.strides.to_vec(),
            layout: layout.clone(),
            bytes: super::assign::bytes(element),
        });
        let root = self.root(data.operands[0]);
        Touched { root, writes: by.is_some(), place, in_text: true, by }
    }

    fn touch_points(&mut self, data: &OpData, writes: bool) {
        let root = self.root(data.operands[0]);
        self.touch_global(Touched { root, writes, place: None, in_text: true, by: None });
    }

    fn checked_element(&self, data: &OpData, tile: Value) -> Result<Element, LowerError> {
        let element = self.element(tile);
        if !element.bits().is_multiple_of(8) && !element.is_bool() {
            return Err(self.unsupported(
                data,
                format!("moves {element}, which is narrower than a byte; pack elements into u8"),
            ));
        }
        Ok(element)
    }

    pub(super) fn order(&self, data: &OpData) -> Order {
        memory_order(self.source, &self.align, data).unwrap_or(Order { axes: vec![0], vector: 1 })
    }

    /// The layout to access memory in: the chosen one if neighbouring lanes access neighbours, else one where they do.
    fn good_for(&mut self, chosen: &Rc<Layout>, order: &Order) -> Rc<Layout> {
        let shape = chosen.shape;
        let fast = order.fast();
        let along = |digit: &super::layout::Digit| digit.axis == Some(fast);
        let lanes =
            chosen.digits(Holder::Lane).iter().filter(|d| along(d)).map(|d| d.extent).product::<u32>();
        let vector = chosen.registers.first().filter(|d| along(d) && d.stride == 1).map_or(1, |d| d.extent);
        let bytes_together = lanes * vector;
        if bytes_together >= 8 || shape.extents()[fast] <= bytes_together || shape.elements() <= 256 {
            return chosen.clone();
        }
        self.remark(
            RemarkKind::Applied,
            format!("memory is contiguous along axis {fast} and the tile is held along another: elements go through shared memory"),
        );
        Rc::new(Layout::blocked(shape, &order.axes, order.vector, self.team()))
    }

    /// The accesses that a box takes.
    pub(super) fn runs(
        &mut self,
        data: &OpData,
        layout: &Layout,
        order: &Order,
        element: Element,
    ) -> Vec<Run> {
        let rank = layout.shape.rank();
        let parts = Box3::of(data, rank);
        let bytes = i64::from(super::assign::bytes(element));
        let fast = order.fast();
        let along = layout
            .registers
            .first()
            .filter(|d| d.axis == Some(fast) && d.stride == 1)
            .map_or(1, |d| d.extent);
        let vector = greatest_common_power(along, order.vector);
        if vector < order.vector && order.vector > 1 {
            self.remark(
                RemarkKind::Missed,
                format!("accesses of {vector} elements where memory would allow {}", order.vector),
            );
        } else if vector * u32::try_from(bytes).unwrap_or(1) < 16 && layout.shape.extents()[fast] >= 32 {
            let missing = missing(self.source, &self.align, data).join(", ");
            let bytes = i64::from(vector) * bytes;
            self.remark(
                RemarkKind::Missed,
                format!("accesses of {bytes} bytes; accesses of 16 need to know {missing}"),
            );
        }

        // The thread's own place, and how far along each axis it may go.
        let mut address = self.scalar(data.operands[0]);
        let mut starts = Vec::with_capacity(rank);
        for axis in 0..rank {
            let (start, base) = (self.scalar(parts.starts[axis]), self.base(layout, axis));
            let base = self.value(Opcode::Bitcast, [base], [], Type::I32);
            let at = self.binary(Opcode::Add, start, base);
            starts.push(at);
            let stride = self.scalar(parts.strides[axis]);
            let wide = self.value(Opcode::Cvt, [at], [], Type::I64);
            let elements = self.binary(Opcode::Mul, wide, stride);
            let size = self.i64(bytes);
            let distance = self.binary(Opcode::Mul, elements, size);
            address = self.value(
                Opcode::PtrAdd,
                [address, distance],
                [],
                Type::Pointer(tilewright_ir::Space::Global),
            );
        }
        let free: Vec<bool> = (0..rank).map(|axis| self.never_leaves(&parts, layout, axis)).collect();
        let mut checks: HashMap<(usize, u32), Value> = HashMap::new();
        let mut moved: HashMap<(usize, u32), Value> = HashMap::new();
        let mut masks: HashMap<Vec<(usize, u32)>, Option<Value>> = HashMap::new();
        let mut runs = Vec::new();
        for first in (0..layout.count()).step_by(vector as usize) {
            let offset = layout.offset(first);
            let mut place = address;
            let mut constant_bytes = 0;
            for (axis, &further) in offset.iter().enumerate() {
                if further == 0 {
                    continue;
                }
                match constant(self.source, parts.strides[axis]) {
                    Some(stride) => constant_bytes += i64::from(further) * stride.cast_signed() * bytes,
                    None => {
                        let distance = match moved.get(&(axis, further)) {
                            Some(&known) => known,
                            None => {
                                let stride = self.scalar(parts.strides[axis]);
                                let times = self.i64(i64::from(further) * bytes);
                                let distance = self.binary(Opcode::Mul, stride, times);
                                moved.insert((axis, further), distance);
                                distance
                            }
                        };
                        let ty = Type::Pointer(tilewright_ir::Space::Global);
                        place = self.value(Opcode::PtrAdd, [place, distance], [], ty);
                    }
                }
            }
            if constant_bytes != 0 {
                let distance = self.i64(constant_bytes);
                place = self.value(
                    Opcode::PtrAdd,
                    [place, distance],
                    [],
                    Type::Pointer(tilewright_ir::Space::Global),
                );
            }
            let key: Vec<(usize, u32)> =
                (0..rank).filter(|&axis| !free[axis]).map(|axis| (axis, offset[axis])).collect();
            let inside = match masks.get(&key) {
                Some(&known) => known,
                None => {
                    let mut all = None;
                    for &(axis, further) in &key {
                        let check = match checks.get(&(axis, further)) {
                            Some(&known) => known,
                            None => {
                                let check = self.in_bounds(&parts, &starts, axis, further);
                                checks.insert((axis, further), check);
                                check
                            }
                        };
                        all = self.both(all, Some(check));
                    }
                    masks.insert(key, all);
                    all
                }
            };
            // What the layout holds behind the end of the tile must not be touched even if the tensor goes on there.
            let own = self.is_inside(layout, &offset);
            let inside = self.both(inside, own);
            runs.push(Run { registers: (first..first + vector as usize).collect(), address: place, inside });
        }
        runs
    }

    fn in_bounds(&mut self, parts: &Box3<'_>, starts: &[Value], axis: usize, further: u32) -> Value {
        let offset = self.constant(Type::I32, u64::from(further));
        let at = if further == 0 { starts[axis] } else { self.binary(Opcode::Add, starts[axis], offset) };
        // One comparison for both ends: what is negative is large without its sign.
        let at = self.value(Opcode::Bitcast, [at], [], Type::U32);
        let extent = self.scalar(parts.extents[axis]);
        self.value(Opcode::Cmp, [at, extent], [Cmp::Lt.into()], Type::BOOL)
    }

    /// Whether it is known here that the box stays inside of the tensor along an axis.
    fn never_leaves(&self, parts: &Box3<'_>, layout: &Layout, axis: usize) -> bool {
        let start = constant(self.source, parts.starts[axis]);
        let extent = constant(self.source, parts.extents[axis]);
        match (start, extent) {
            (Some(start), Some(extent)) => {
                start.cast_signed() >= 0
                    && start.saturating_add(u64::from(layout.shape.extents()[axis])) <= extent
            }
            _ => false,
        }
    }

    // ---- Element by element ------------------------------------------------------------------------------------------------

    /// The addresses of all registers, from distances in elements.
    fn addresses(
        &mut self,
        pointer: Value,
        distances: Value,
        layout: &Rc<Layout>,
        element: Element,
    ) -> Vec<Value> {
        let pointer = self.scalar(pointer);
        let of = self.element(distances);
        let tile = self.tile_in(distances, layout);
        let size = self.i64(i64::from(super::assign::bytes(element)));
        let mut known: HashMap<Value, Value> = HashMap::new();
        let mut out = Vec::with_capacity(tile.registers.len());
        for distance in tile.registers {
            let address = match known.get(&distance) {
                Some(&address) => address,
                None => {
                    let wide = if of.bits() == 64 {
                        self.value(Opcode::Bitcast, [distance], [], Type::I64)
                    } else {
                        self.value(Opcode::Cvt, [distance], [], Type::I64)
                    };
                    let further = self.binary(Opcode::Mul, wide, size);
                    let ty = Type::Pointer(tilewright_ir::Space::Global);
                    let address = self.value(Opcode::PtrAdd, [pointer, further], [], ty);
                    known.insert(distance, address);
                    address
                }
            };
            out.push(address);
        }
        out
    }

    /// Which registers an op on single elements is about.
    fn masks(&mut self, mask: Value, layout: &Rc<Layout>) -> Vec<Value> {
        let tile = self.tile_in(mask, layout);
        let offsets = layout.offsets();
        let each = tile.registers.into_iter().zip(offsets);
        each.map(|(mask, offset)| {
            let inside = self.is_inside(layout, &offset);
            self.both(Some(mask), inside).unwrap_or(mask)
        })
        .collect()
    }

    pub(super) fn gather(&mut self, data: &OpData) {
        let result = data.results[0];
        let (layout, element) = (self.layout(result), self.element(result));
        let addresses = self.addresses(data.operands[0], data.operands[1], &layout, element);
        let masks = self.masks(data.operands[2], &layout);
        let others = self.tile_in(data.operands[3], &layout).registers;
        self.touch_points(data, false);
        let hints = hints(data);
        let each = addresses.into_iter().zip(masks).zip(others);
        let registers = each
            .map(|((address, mask), other)| {
                self.value(Opcode::LoadIf, [address, mask, other], hints.clone(), Type::Scalar(element))
            })
            .collect();
        self.hold_tile(result, layout, registers);
    }

    pub(super) fn scatter(&mut self, data: &OpData) {
        let value = data.operands[3];
        let (layout, element) = (self.layout(value), self.element(value));
        let addresses = self.addresses(data.operands[0], data.operands[1], &layout, element);
        let masks = self.masks(data.operands[2], &layout);
        let values = self.tile_in(value, &layout).registers;
        self.touch_points(data, true);
        let first = self.is_first(&layout);
        let hints = hints(data);
        for ((address, mask), value) in addresses.into_iter().zip(masks).zip(values) {
            let here = self.both(Some(mask), first).unwrap_or(mask);
            self.push(Opcode::StoreIf, [address, value, here], hints.clone(), []);
        }
    }

    /// Threads that hold copies must combine once: the first of them does, and tells the others what it found.
    pub(super) fn atomic(&mut self, data: &OpData) -> Result<(), LowerError> {
        let result = data.results[0];
        let (layout, element) = (self.layout(result), self.element(result));
        let combine = data.get::<Combine>();
        if element == Element::BF16 && !self.arch.supports(Arch::SM_90) {
            return Err(self.unsupported(data, "adds bf16 to memory, which takes sm_90; add f16 or f32"));
        }
        let code = if combine.is_some() { Opcode::Atomic } else { Opcode::AtomicCas };
        // Only what combines can do without what was there.
        let reduces = combine.is_some_and(|combine| combine != Combine::Exchange);
        let addresses = self.addresses(data.operands[0], data.operands[1], &layout, element);
        let masks = self.masks(data.operands[2], &layout);
        let expected = match code {
            Opcode::AtomicCas => {
                self.tile_in(data.operands[3], &layout).registers.into_iter().map(Some).collect()
            }
            _ => vec![None; layout.count()],
        };
        let values = self.tile_in(data.operands[data.operands.len() - 1], &layout).registers;
        self.touch_points(data, true);
        let first = self.is_first(&layout);
        let wanted = self.is_used(result);
        let mut registers = Vec::with_capacity(values.len());
        let places = addresses.into_iter().zip(masks);
        for ((address, mask), (expected, value)) in places.zip(expected.into_iter().zip(values)) {
            let here = self.both(Some(mask), first).unwrap_or(mask);
            let types = wanted.then_some(Type::Scalar(element));
            let op = self.push(Opcode::If, [here], [], types);
            for way in 0..2 {
                let _ = self.fill(op, |this, _| {
                    if way == 1 {
                        return Ok(if wanted { vec![value] } else { Vec::new() });
                    }
                    let operands = [address].into_iter().chain(expected).chain([value]);
                    let attrs = combine.map(Attr::from);
                    if wanted || !reduces {
                        let old = this.value(code, operands, attrs, Type::Scalar(element));
                        return Ok(if wanted { vec![old] } else { Vec::new() });
                    }
                    this.push(Opcode::Reduce, operands, attrs, []);
                    Ok(Vec::new())
                });
            }
            registers.push(self.builder.func.op(op).results.first().copied().unwrap_or(value));
        }
        let tile = Tile { layout: layout.clone(), registers };
        let tile = if wanted && layout.has_copies() { self.shared_by_first(&tile, element) } else { tile };
        self.hold(result, Held::Tile(tile));
        Ok(())
    }

    fn is_used(&self, value: Value) -> bool {
        self.source.walk().into_iter().any(|op| self.source.op(op).operands.contains(&value))
    }
}

/// The cache hints of an access.
fn hints(data: &OpData) -> Vec<tilewright_ir::Attr> {
    data.attrs.iter().filter(|attr| matches!(attr.kind, AttrKind::Cache | AttrKind::Evict)).cloned().collect()
}

/// The largest power of two that divides both.
fn greatest_common_power(a: u32, b: u32) -> u32 {
    1 << a.trailing_zeros().min(b.trailing_zeros()).min(31)
}
