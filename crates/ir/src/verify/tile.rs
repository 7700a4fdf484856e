//! The rules of the tile level.
//!
//! A function that holds an op of a [program](Group::Program) is at the tile level: it says what a whole program does, and has no threads
//! to speak of. Scalars there are the same for all of the program.

use crate::Element;
use crate::attr::{Axes, Axis, Combine, Index, Special};
use crate::func::{OpData, Region};
use crate::table::{Group, Opcode};
use crate::types::{Shape, Type};

use super::{Verifier, list, show};

/// Ops that hand tiles on without looking at them.
fn carries(code: Opcode) -> bool {
    matches!(
        code,
        Opcode::For | Opcode::While | Opcode::If | Opcode::Yield | Opcode::Condition | Opcode::Poison
    )
}

/// Ops for scalars that mean the same in a program as in each of its threads.
fn is_uniform(data: &OpData) -> bool {
    let info = data.info();
    match data.code {
        Opcode::Special => matches!(
            data.get(),
            Some(
                Special::CtaidX
                    | Special::CtaidY
                    | Special::CtaidZ
                    | Special::NctaidX
                    | Special::NctaidY
                    | Special::NctaidZ
            )
        ),
        Opcode::Load
        | Opcode::LoadIf
        | Opcode::BulkPrefetch
        | Opcode::GridWait
        | Opcode::GridLaunch
        | Opcode::Fence
        | Opcode::Assert => true,
        code => info.is_pure() || carries(code),
    }
}

impl Verifier<'_> {
    /// Only what a program can do stands in a function of the tile level.
    pub(super) fn tile_level(&mut self) {
        let func = self.func;
        if let Some(threads) = func.launch.total_threads()
            && !threads.is_multiple_of(32)
        {
            self.loc = func.walk().first().map_or(self.loc, |&op| func.op(op).loc);
            self.report(format!(
                "a program of {threads} threads; a kernel on tiles has whole warps, expected a multiple of 32"
            ));
        }
        for op in func.walk() {
            let data = func.op(op);
            if data.info().group != Group::Program && !is_uniform(data) {
                self.loc = data.loc;
                let name = data.info().mnemonic;
                self.report(format!(
                    "`{name}` is for threads, and this kernel works on tiles: a program has no threads to name, only ids of programs"
                ));
            }
        }
    }

    /// What holds of an op that touches tiles.
    pub(super) fn tile_op(&mut self, data: &OpData, types: &[Type]) {
        let is_tile = |ty: &Type| matches!(ty, Type::Tile(..));
        let touches = types.iter().any(is_tile) || self.types_of(&data.results).iter().any(is_tile);
        if data.info().group != Group::Program {
            if touches && !carries(data.code) {
                let name = data.info().mnemonic;
                self.report(format!("`{name}` takes elements of tiles one by one: put it into a `map`"));
            }
            return;
        }
        let results = self.types_of(&data.results);
        let result = results.first().copied();
        let (from, to) = (types.first().copied(), result.and_then(Type::shape));
        let name = data.info().mnemonic;
        let same_element = from.and_then(Type::element) == result.and_then(Type::element);
        let fits = match data.code {
            Opcode::Splat => same_element && to.is_some(),
            Opcode::Iota => {
                result.and_then(Type::element) == Some(Element::U32)
                    && to.is_some_and(|to| axis(data, to).is_some())
            }
            Opcode::Broadcast => {
                let grows = |a: Shape, b: Shape| a.rank() == b.rank() && a.broadcast(&b) == Some(b);
                same_element && from.and_then(Type::shape).zip(to).is_some_and(|(a, b)| grows(a, b))
            }
            Opcode::Reshape => {
                let elements = |ty: Type| ty.shape().map(|s| s.elements());
                same_element && to.is_some() && from.and_then(elements) == result.and_then(elements)
            }
            Opcode::Transpose => {
                same_element
                    && from.and_then(Type::shape).zip(to).is_some_and(|(a, b)| transposed(data, a) == Some(b))
            }
            Opcode::Cat | Opcode::Part => same_element && self.pieces(data, types, to),
            Opcode::Take => {
                let others = |a: Shape, b: Shape| {
                    axis(data, a).and_then(|at| b.extents().get(at).and_then(|&n| a.with(at, n)))
                };
                let indices = types.get(1).copied().and_then(Type::shape);
                same_element
                    && indices == to
                    && from.and_then(Type::shape).zip(to).is_some_and(|(a, b)| others(a, b) == Some(b))
            }
            Opcode::Item => {
                from.and_then(Type::shape).is_some_and(|s| s.elements() == 1)
                    && matches!(result, Some(Type::Scalar(_)))
                    && same_element
            }
            Opcode::Map => return self.map(data, types, &results),
            Opcode::TileReduce | Opcode::TileScan => return self.combination(data, types, &results),
            Opcode::Dot => return self.dot(types),
            Opcode::TileLoad | Opcode::TileStore => return self.box_access(data, types, result),
            Opcode::Gather | Opcode::Scatter | Opcode::TileAtomic | Opcode::TileAtomicCas => {
                return self.scattered(data, types);
            }
            _ => true,
        };
        if !fits {
            self.report(format!("`{name}` of {} does not give {}", list(types), show(result)));
        }
    }

    fn pieces(&self, data: &OpData, types: &[Type], to: Option<Shape>) -> bool {
        let shapes: Vec<Shape> = types.iter().filter_map(|ty| ty.shape()).collect();
        let (Some(&first), Some(to)) = (shapes.first(), to) else { return false };
        let Some(axis) = axis(data, first) else { return false };
        let along = |shape: Shape| shape.extents().get(axis).copied().unwrap_or(0);
        if data.code == Opcode::Part {
            let end = data.get::<Index>().and_then(|Index(start)| start.checked_add(along(to)));
            return first.with(axis, along(to)) == Some(to) && end.is_some_and(|end| end <= along(first));
        }
        let Some(&second) = shapes.get(1) else { return false };
        types[0].element() == types[1].element()
            && first.with(axis, along(second)) == Some(second)
            && along(first).checked_add(along(second)).and_then(|sum| first.with(axis, sum)) == Some(to)
    }

    fn map(&mut self, data: &OpData, types: &[Type], results: &[Type]) {
        let shapes = types.iter().chain(results).map(|ty| ty.shape());
        let shapes: Vec<Option<Shape>> = shapes.collect();
        if results.is_empty() || shapes.iter().any(|shape| shape.is_none() || *shape != shapes[0]) {
            self.report(format!(
                "`map` of {} gives {}; all of them are tiles of one shape",
                list(types),
                list(results)
            ));
            return;
        }
        self.takes(data.regions[0], &elements(types), "do");
        self.yields(data.regions[0], Opcode::Yield, &elements(results), "do");
        self.per_element(data.regions[0]);
    }

    fn combination(&mut self, data: &OpData, types: &[Type], results: &[Type]) {
        let name = data.info().mnemonic;
        let Some(shape) = types.first().and_then(|ty| ty.shape()) else {
            self.report(format!("`{name}` combines at least one tile"));
            return;
        };
        let Some(axis) = axis(data, shape) else {
            self.report(format!("`{name}` along axis {:?} of {shape}", data.get::<Axis>()));
            return;
        };
        let after = if data.code == Opcode::TileScan { Some(shape) } else { shape.with(axis, 1) };
        let expected: Vec<Type> =
            types.iter().filter_map(|ty| Some(Type::Tile(ty.element()?, after?))).collect();
        if types.iter().any(|ty| ty.shape() != Some(shape)) || results != expected {
            self.report(format!(
                "`{name}` along axis {axis} of {} gives {}, expected {} from tiles of one shape",
                list(types),
                list(results),
                list(&expected)
            ));
            return;
        }
        let one = elements(types);
        self.takes(data.regions[0], &[&one[..], &one[..]].concat(), "do");
        self.yields(data.regions[0], Opcode::Yield, &one, "do");
        self.per_element(data.regions[0]);
    }

    /// A region that runs for single elements: threads do that, each for itself, in any order and any number of times.
    fn per_element(&mut self, region: Region) {
        let func = self.func;
        let mut ops = Vec::new();
        func.walk_region(region, &mut ops);
        for op in ops {
            let data = func.op(op);
            let local = data.info().is_pure() && data.code != Opcode::Special;
            if !local && !carries(data.code) {
                self.loc = data.loc;
                let name = data.info().mnemonic;
                self.report(format!(
                    "`{name}` stands in a region that computes single elements, where only arithmetic can be"
                ));
            }
        }
    }

    fn dot(&mut self, types: &[Type]) {
        let extents = |i: usize| types.get(i).and_then(|ty| ty.shape()).map(|s| s.extents().to_vec());
        let element = |i: usize| types.get(i).and_then(|ty| ty.element());
        let fits = match (extents(0).as_deref(), extents(1).as_deref(), extents(2).as_deref()) {
            (Some([of_a @ .., m, k]), Some([of_b @ .., l, n]), Some([of_c @ .., rows, columns])) => {
                of_c.len() <= 1 && of_a == of_c && of_b == of_c && m == rows && k == l && n == columns
            }
            _ => false,
        };
        if !fits {
            self.report(format!(
                "`dot` takes m x k, k x n and m x n elements, or b x m x k, b x k x n and b x m x n, found {}",
                list(types)
            ));
            return;
        }
        let known = element(0).zip(element(1)).zip(element(2)).is_some_and(|((a, b), c)| {
            let eight = |e: Element| matches!(e, Element::E4M3 | Element::E5M2);
            let byte = |e: Element| matches!(e, Element::I8 | Element::U8);
            match c {
                Element::F32 => {
                    a == b && matches!(a, Element::F16 | Element::BF16 | Element::F32) || eight(a) && eight(b)
                }
                Element::F16 => a == b && a == Element::F16 || eight(a) && eight(b),
                Element::F64 => a == b && a == Element::F64,
                Element::I32 => byte(a) && byte(b),
                _ => false,
            }
        });
        if !known {
            self.report(format!(
                "`dot` of {}: known are f16, bf16 and f32 factors (the same twice), and e4m3 or e5m2, all with f32 sums, f16, e4m3 and e5m2 with f16 sums, too; f64; i8 or u8 with i32 sums",
                list(types)
            ));
        }
    }

    fn box_access(&mut self, data: &OpData, types: &[Type], result: Option<Type>) {
        let name = data.info().mnemonic;
        let load = data.code == Opcode::TileLoad;
        let (tile, first) = if load { (result, 1) } else { (types.get(1).copied(), 2) };
        let Some(Type::Tile(element, shape)) = tile else {
            self.report(format!("`{name}` is about a tile, not {}", show(tile)));
            return;
        };
        let rank = shape.rank();
        let mut wanted = [vec![Type::I32; rank], vec![Type::U32; rank], vec![Type::I64; rank]].concat();
        wanted.extend(load.then_some(Type::Scalar(element)));
        if types.get(first..) != Some(&wanted[..]) {
            self.report(format!(
                "`{name}` of a tile of {rank} dimensions takes {} after its first {first} operands, found {}",
                list(&wanted),
                list(types.get(first..).unwrap_or(&[]))
            ));
        }
    }

    fn scattered(&mut self, data: &OpData, types: &[Type]) {
        let name = data.info().mnemonic;
        let shapes: Vec<Option<Shape>> = types.iter().skip(1).map(|ty| ty.shape()).collect();
        if shapes.iter().any(|shape| *shape != shapes[0]) {
            self.report(format!("`{name}` of {}; all tiles have one shape", list(types)));
        }
        let combines = matches!(
            data.get::<Combine>(),
            Some(
                Combine::Add
                    | Combine::Min
                    | Combine::Max
                    | Combine::And
                    | Combine::Or
                    | Combine::Xor
                    | Combine::Exchange
            )
        );
        if data.code == Opcode::TileAtomic && !combines {
            self.report("`tile_atomic` does add, min, max, and, or, xor, exch");
        }
    }
}

/// The axis that an op names, if its shape has it.
fn axis(data: &OpData, shape: Shape) -> Option<usize> {
    data.get::<Axis>().map(|Axis(axis)| usize::from(axis)).filter(|&axis| axis < shape.rank())
}

/// The extents of a tile after its axes were reordered.
fn transposed(data: &OpData, shape: Shape) -> Option<Shape> {
    let axes = data.get::<Axes>()?;
    let extents: Option<Vec<u32>> =
        axes.axes().iter().map(|&axis| shape.extents().get(usize::from(axis)).copied()).collect();
    extents.filter(|e| e.len() == shape.rank()).and_then(|e| Shape::new(&e))
}

/// One element of each tile.
fn elements(types: &[Type]) -> Vec<Type> {
    types.iter().filter_map(|ty| ty.element()).map(Type::Scalar).collect()
}
