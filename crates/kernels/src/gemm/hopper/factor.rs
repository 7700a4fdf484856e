//! A factor of the product: its tensor, and the ring of tiles that it is loaded into.
//!
//! Tiles may overhang the matrix. The copy engine would fill the rest of them with zeros, but takes four times as long for that as for
//! rows that exist (H200: about 8 cycles for 128 bytes; 4096 x 1088 x 4096 by tiles of 64 x 256 took half as long again). So what lies
//! outside is not loaded: the last rows of a matrix are copied in boxes of just that many rows, by a tensor map of their own, and the rest of
//! a slot keeps what it had. Nobody looks at what comes of that, since rows of the product do not mix; but it has to have been written
//! once, which [`Factor::clear`] does while the first copies are under way.
//!
//! Host and device: [`Overhang`] is the arguments of a launch, [`Edge`] is what a kernel makes of them.

use tilewright_hardware::Element as HardwareElement;
use tilewright_lang::Argument;
use tilewright_lang::prelude::*;

use super::plan::Plan;
use super::result::{boxes, matrix_map};
use super::schedule::Unit;
use crate::gemm::recipe::{Binding, MapBinding, Operand};

/// Bytes of what the copy engine moves as one, and of what a thread clears at once.
const PIECE: u32 = 16;

/// Which factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    A,
    B,
}

impl Side {
    fn name(self) -> char {
        match self {
            Side::A => 'a',
            Side::B => 'b',
        }
    }
}

/// How tiles overhang a factor. Rows are those of A, or columns of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overhang {
    /// Rows that are loaded: those of the matrix, in whole pieces where rows are contiguous in memory.
    extent: u32,
    /// The first rows of a tile, which are never left out.
    kept: u32,
    /// Rows of the box that loads the last rows, if any are left after whole boxes.
    edge: u32,
}

impl Overhang {
    /// None if tiles end where the matrix does.
    pub(super) fn new(plan: &Plan, side: Side) -> Option<Overhang> {
        let size = Size::new(plan, side);
        let extent = match side {
            Side::A => plan.problem.m,
            Side::B => plan.problem.n,
        };
        let extent = if size.k_major { extent } else { extent.next_multiple_of(size.elements) };
        // Blocks of a cluster have a tile each, also where the matrix ends with the first.
        let all_have_rows = extent.div_ceil(size.rows).is_multiple_of(size.along);
        let kept = if all_have_rows { extent % size.rows } else { 0 };
        let overhangs = !extent.is_multiple_of(size.rows * size.along);
        overhangs.then_some(Overhang { extent, kept, edge: extent % size.width })
    }
}

/// The sizes of what is loaded of a factor.
#[derive(Clone, Copy)]
struct Size {
    /// Rows of a tile.
    rows: u32,
    /// Tiles of a cluster along the rows.
    along: u32,
    /// Blocks of a cluster that use the same tile.
    sharing: u32,
    /// Rows that a block loads, and those of one box.
    part: u32,
    width: u32,
    /// Elements of k in a step.
    depth: u32,
    /// Elements of a piece, and whether they are neighbours along k.
    elements: u32,
    k_major: bool,
}

impl Size {
    fn new(plan: &Plan, side: Side) -> Size {
        let (m, n) = plan.config.cluster;
        let (k_major_a, k_major_b) = plan.problem.k_major();
        let (rows, along, sharing, k_major) = match side {
            Side::A => (plan.config.m, m, n, k_major_a),
            Side::B => (plan.config.n, n, m, k_major_b),
        };
        let (part, bytes) = (rows / sharing, plan.problem.types.a.bytes());
        let width = if k_major { part } else { plan.span(part) / bytes };
        Size { rows, along, sharing, part, width, depth: plan.depth, elements: PIECE / bytes, k_major }
    }
}

/// What the parameters that [`Factor::declare`] declares get.
pub(super) fn bindings(plan: &Plan, side: Side) -> Vec<(String, Binding)> {
    let name = side.name();
    let whole = map(plan, side);
    let mut bindings = Vec::new();
    if let Some(Overhang { extent, kept, edge }) = Overhang::new(plan, side) {
        bindings.push((format!("{name}_extent"), Binding::U32(extent)));
        bindings.push((format!("{name}_kept"), Binding::U32(kept)));
        // If whole boxes end where the matrix does, the kernel has this map and never uses it.
        let dimension = usize::from(Size::new(plan, side).k_major);
        let shortened = (edge > 0).then_some((dimension, edge));
        bindings.push((format!("{name}_edge"), Binding::Map(MapBinding { shortened, ..whole.clone() })));
    }
    bindings.push((format!("{name}_map"), Binding::Map(whole)));
    bindings
}

/// A factor as the copy engine sees it.
fn map(plan: &Plan, side: Side) -> MapBinding {
    let problem = &plan.problem;
    let (batched_a, batched_b) = plan.batched();
    let (operand, placement, element, extents, batched) = match side {
        Side::A => (Operand::A, &problem.a, problem.types.a, (problem.m, problem.k), batched_a),
        Side::B => (Operand::B, &problem.b, problem.types.b, (problem.k, problem.n), batched_b),
    };
    if problem.k == 0 {
        return nothing(element, batched);
    }
    matrix_map(operand, placement, element, extents, batched.then_some(problem.batch))
}

/// Tensors have elements. These are zeros, and so is everything outside of them.
fn nothing(element: HardwareElement, batched: bool) -> MapBinding {
    let inner = u64::from(16 / element.bytes());
    let (dims, strides) =
        if batched { (vec![inner, 1, 1], vec![16, 16]) } else { (vec![inner, 1], vec![16]) };
    MapBinding { operand: Operand::Workspace, offset: 0, dims, strides, shortened: None }
}

/// A factor in a kernel.
#[derive(Clone, Copy)]
pub(super) struct Factor<T> {
    map: TensorMap<T>,
    pub(super) ring: Ring<T>,
    stages: u32,
    size: Size,
    /// Which part of a tile this block loads, of those that use the same.
    part: Val<u32>,
    batched: bool,
    edge: Option<Edge<T>>,
}

/// The end of a factor that tiles overhang.
#[derive(Clone, Copy)]
struct Edge<T> {
    extent: Val<u32>,
    kept: Val<u32>,
    /// Brings the last rows.
    map: TensorMap<T>,
}

impl<T: Element> Factor<T> {
    /// Declares the parameters and the ring. `part` is this block's number among those that use the same tile.
    #[track_caller]
    pub(super) fn declare(plan: &Plan, side: Side, part: Val<u32>) -> Factor<T> {
        let name = side.name();
        let (batched, tile) = match side {
            Side::A => (plan.batched().0, plan.tile_a()),
            Side::B => (plan.batched().1, plan.tile_b()),
        };
        let map: TensorMap<T> = Argument::declare(&format!("{name}_map"));
        let edge = Overhang::new(plan, side).map(|_| Edge {
            extent: Argument::declare(&format!("{name}_extent")),
            kept: Argument::declare(&format!("{name}_kept")),
            map: Argument::declare(&format!("{name}_edge")),
        });
        let stages = plan.config.stages;
        Factor {
            map,
            ring: Ring::new(stages, tile),
            stages,
            size: Size::new(plan, side),
            part,
            batched,
            edge,
        }
    }

    /// Fetches the descriptions of the tensor. By one thread.
    pub(super) fn prefetch(&self) {
        self.map.prefetch();
        if let Some(edge) = self.edge {
            edge.map.prefetch();
        }
    }

    /// Whether tiles overhang.
    pub(super) fn overhangs(&self) -> bool {
        self.edge.is_some()
    }

    /// Writes to what copies leave out: of the tile that begins with a row, while they may be under way, or of any tile. Each of so many
    /// threads says its number.
    #[device]
    pub(super) fn clear(&self, row: Option<Val<u32>>, (thread, threads): (Val<u32>, u32)) {
        if let Some(edge) = self.edge {
            let Size { rows, depth, elements, k_major, .. } = self.size;
            let there = row.map_or(edge.kept, |row| self.rows_from(row));
            if there < rows {
                let mut piece = thread;
                while piece < rows * depth / elements {
                    let (row, k) = if k_major {
                        (piece / (depth / elements), piece % (depth / elements) * elements)
                    } else {
                        (piece % (rows / elements) * elements, piece / (rows / elements))
                    };
                    if row >= there {
                        for stage in 0..self.stages {
                            let to = self.ring.at(val(stage)).at((row, k)).cast::<u32>();
                            to.store_vector(Vector::new([val(0u32); 4]));
                        }
                    }
                    piece += threads;
                }
                fence_async();
            }
        }
    }

    /// Rows of the tile that begins with a row, as far as there are any.
    #[track_caller]
    fn rows_from(&self, row: Val<u32>) -> Val<u32> {
        match self.edge {
            None => val(self.size.rows),
            Some(Edge { extent, .. }) => min(extent - min(row, extent), self.size.rows),
        }
    }

    /// Bytes of the tile that begins with a row, from all blocks that load parts of it.
    #[track_caller]
    pub(super) fn bytes(&self, row: Val<u32>) -> Val<u32> {
        self.rows_from(row) * (self.size.depth / self.size.elements * PIECE)
    }

    /// Starts to fill a slot with rows `row..` and steps `k..`.
    #[device]
    pub(super) fn load(&self, slot: Slot, at: (Val<u32>, Val<u32>), member: Val<u32>, full: Mbarrier) {
        let options = match self.size.sharing {
            1 => CopyOptions::new(),
            sharing => CopyOptions::new().multicast((1u16 << sharing) - 1),
        };
        let whole = self.boxes(self.map, slot.index, at, member);
        match self.edge {
            None => {
                for (to, coordinates) in whole {
                    self.map.load_box(to, full, &coordinates, options);
                }
            }
            Some(edge) => {
                let last = self.boxes(edge.map, slot.index, at, member);
                for ((number, whole), last) in (0u32..).zip(whole).zip(last) {
                    let first = at.0 + self.part * self.size.part + number * self.size.width;
                    if first + self.size.width <= edge.extent {
                        self.map.load_box(whole.0, full, &whole.1, options);
                    } else if first < edge.extent {
                        edge.map.load_box(last.0, full, &last.1, options);
                    }
                }
            }
        }
    }

    /// Brings to L2 what [`load`](Factor::load) would load of the first steps of a unit.
    #[device]
    pub(super) fn ask(&self, steps: u32, depth: u32, unit: &Unit, row: Val<u32>, member: Val<u32>) {
        if steps > 0 {
            for step in 0..min(unit.count, steps) {
                let at = (row, (unit.first + step) * depth);
                for (_, coordinates) in self.boxes(self.map, val(0), at, member) {
                    self.map.prefetch_box(&coordinates);
                }
            }
        }
    }

    /// The copies of this block's part of a tile by a map: where in the ring, and which coordinates.
    #[track_caller]
    fn boxes(
        &self,
        map: TensorMap<T>,
        index: Val<u32>,
        (row, k): (Val<u32>, Val<u32>),
        member: Val<u32>,
    ) -> Vec<(SharedPtr<T>, Vec<Val<i32>>)> {
        let whole = self.ring.at(index);
        let Size { sharing, part, .. } = self.size;
        let (tile, row) = match sharing {
            1 => (whole, row),
            _ => (whole.row_block(self.part, part), row + self.part * part),
        };
        boxes(map, tile, (row, k), self.batched.then_some(member))
    }
}
