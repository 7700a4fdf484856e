//! [`Fragment`]: a matrix spread over the registers of a warp or a warpgroup.

use tilewright_hardware::{Group, Major, Operand as Role, matrix_copy, mma};
use tilewright_ir::{Count, Element as Kind, Flags, Opcode, Value};
use tilewright_layout::{Composed, Coord, IntTuple, Tree, TvLayout};

use crate::element::Element;
use crate::memory::SharedPtr;
use crate::special::{lane_id, thread_id};
use crate::stage::Carry;
use crate::tensor::Shared;
use crate::thread_map::ThreadMaps;
use crate::trace;
use crate::value::Val;
use crate::vector::{Vector, vector_type};

/// One operand of a tensor-core instruction in registers: which thread holds which element is in the hardware's table of atoms.
#[derive(Debug, Clone, Copy)]
pub struct Fragment<T> {
    values: Vector<T>,
    atom: &'static mma::Mma,
    role: Role,
}

#[diagnostic::do_not_recommend]
impl<T> Carry for Fragment<T> {
    fn values(&self, out: &mut Vec<Value>) {
        self.values.values(out);
    }
    fn replace(&mut self, from: &mut dyn Iterator<Item = Value>) {
        self.values.replace(from);
    }
}

impl<T: Element> Fragment<T> {
    pub(crate) fn new(values: Vector<T>, atom: &'static mma::Mma, role: Role) -> Fragment<T> {
        Fragment { values, atom, role }
    }

    /// The elements of this thread.
    #[must_use]
    pub fn values(self) -> Vector<T> {
        self.values
    }

    /// The same places with other elements, as many.
    #[must_use]
    #[track_caller]
    pub fn with_values<U: Element>(self, values: Vector<U>) -> Fragment<U> {
        if values.len() != self.values.len() {
            trace::error(format!("a fragment of {} elements, given {}", self.values.len(), values.len()));
        }
        Fragment { values, atom: self.atom, role: self.role }
    }

    /// Applies a function to each element.
    #[must_use]
    #[track_caller]
    pub fn map<U: Element>(self, f: impl FnMut(Val<T>) -> Val<U>) -> Fragment<U> {
        self.with_values(self.values.map(f))
    }

    /// Converts each element.
    #[must_use]
    #[track_caller]
    pub fn cast<U: Element>(self) -> Fragment<U> {
        self.with_values(self.values.cast())
    }

    /// Rows and columns of the whole matrix.
    #[must_use]
    pub fn extents(self) -> (u32, u32) {
        self.atom.extents(self.role)
    }

    /// Columns `first..first + columns` of the sums of a warpgroup as a fragment of their own; both are multiples of 8.
    #[must_use]
    #[track_caller]
    pub fn columns(self, first: u32, columns: u32) -> Fragment<T> {
        let (_, all) = self.extents();
        // Where sums lie depends on the number of columns alone, so any product with as many will do.
        let narrow = mma::all().find(|atom| atom.group == Group::Warpgroup && atom.shape.n == columns);
        let inside = first.is_multiple_of(8) && first.checked_add(columns).is_some_and(|end| end <= all);
        match narrow.filter(|_| inside && self.role == Role::C && self.atom.group == Group::Warpgroup) {
            Some(atom) => Fragment { values: self.values.slice(first / 2, columns / 2), atom, role: Role::C },
            None => {
                trace::error(format!(
                    "columns {first} to {} of a fragment of {all}; expected multiples of 8 in the sums of a warpgroup",
                    first.saturating_add(columns)
                ));
                self
            }
        }
    }

    /// Visits this thread's elements in runs of neighbours in a row: `f(row, column, elements)`, the position being that of the
    /// first.
    #[track_caller]
    pub fn for_each_run(self, mut f: impl FnMut(Val<u32>, Val<u32>, Vector<T>)) {
        self.visit(None, &mut f);
    }

    /// The same for a matrix that lies somewhere in a larger one: its first element is at `(row, column)`, and positions are those in
    /// the larger one. They are that of the first run plus constants, which takes fewer registers than to add afterwards.
    #[track_caller]
    pub fn for_each_run_from(
        self,
        (row, column): (Val<u32>, Val<u32>),
        mut f: impl FnMut(Val<u32>, Val<u32>, Vector<T>),
    ) {
        self.visit(Some((row, column)), &mut f);
    }

    #[track_caller]
    fn visit(self, origin: Option<(Val<u32>, Val<u32>)>, f: &mut dyn FnMut(Val<u32>, Val<u32>, Vector<T>)) {
        let Some(runs) = Runs::new(self.atom, self.role) else { return };
        for start in (0..self.values.len()).step_by(runs.len as usize) {
            let (row, column) = runs.from(start, origin);
            f(row, column, self.values.slice(start, runs.len));
        }
    }

    /// The fragment whose runs are what `f(row, column, length)` gives.
    #[track_caller]
    pub(crate) fn gather(
        atom: &'static mma::Mma,
        role: Role,
        f: &mut dyn FnMut(Val<u32>, Val<u32>, u32) -> Vector<T>,
    ) -> Option<Fragment<T>> {
        let runs = Runs::new(atom, role)?;
        let (rows, columns) = atom.extents(role);
        let mut parts = Vec::new();
        for start in (0..rows * columns / atom.group.threads()).step_by(runs.len as usize) {
            let (row, column) = runs.from(start, None);
            let part = f(row, column, runs.len);
            if part.len() != runs.len {
                trace::error(format!("{} elements for a run of {} of a fragment", part.len(), runs.len));
                return None;
            }
            parts.push(part);
        }
        Some(Fragment::new(Vector::concat(parts), atom, role))
    }

    /// Stores the matrix to a tile of its size, `(row, column)`, with matrix stores (Hopper and later).
    #[track_caller]
    pub fn store_matrix(self, tile: Shared<T>) {
        self.store_matrix_at(tile, 0, 0);
    }

    /// Stores the matrix to a part of a tile, from a row and a column on, with matrix stores.
    #[track_caller]
    pub fn store_matrix_at(self, tile: Shared<T>, row: u32, column: u32) {
        let Some(tv) = self.layout() else { return };
        let thread = thread_in(self.atom.group);
        let Some(steps) = matrix_steps(tv, thread, tile.bytewise(), T::ELEMENT, (row, column)) else {
            return;
        };
        let per_register = 32 / T::ELEMENT.bits();
        for step in steps {
            let part = self.values.slice(step.register * per_register, step.count * per_register);
            trace::effect(
                Opcode::StMatrix,
                [step.address.id, part.id],
                [Count(step.count).into(), step.flags.into()],
            );
        }
    }

    /// The elements of a part of a tile, from a row and a column on, that lie where this fragment's do: what [`store_matrix_at`] would store
    /// there, read back with matrix loads. They may be of another type than the fragment's.
    ///
    /// [`store_matrix_at`]: Fragment::store_matrix_at
    #[track_caller]
    pub fn load_matrix_at<U: Element>(self, tile: Shared<U>, row: u32, column: u32) -> Fragment<U> {
        let thread = thread_in(self.atom.group);
        let at = (row, column);
        let steps = self.layout().and_then(|tv| matrix_steps(tv, thread, tile.bytewise(), U::ELEMENT, at));
        let values = match steps {
            Some(steps) => load_steps(&steps),
            None => Vector::of(trace::poison(vector_type::<U>(self.values.len())), self.values.len()),
        };
        Fragment::new(values, self.atom, self.role)
    }

    /// Loads several matrices that follow each other along the rows of the tile, with as few instructions as possible.
    #[track_caller]
    pub(crate) fn load_matrices(
        tile: Shared<T>,
        at: (u32, u32),
        atom: &'static mma::Mma,
        role: Role,
        count: u32,
    ) -> Vec<Fragment<T>> {
        let Some(one) = atom.fragment(role) else { return Vec::new() };
        let Some(tv) = trace::check(mma::repeat(one, count)) else { return Vec::new() };
        let Some(steps) = matrix_steps(&tv, lane_id(), tile.bytewise(), T::ELEMENT, at) else {
            return Vec::new();
        };
        let all = load_steps(&steps);
        let len = all.len() / count;
        let part = |i| if count == 1 { all } else { all.slice(i * len, len) };
        (0..count).map(|i| Fragment::new(part(i), atom, role)).collect()
    }

    fn layout(self) -> Option<&'static TvLayout> {
        self.atom.fragment(self.role)
    }
}

/// Where the runs of a fragment lie: neighbours in a row that one thread holds side by side.
struct Runs {
    places: &'static TvLayout,
    threads: u32,
    rows: ThreadMaps,
    columns: ThreadMaps,
    /// Elements of a run.
    len: u32,
}

impl Runs {
    #[track_caller]
    fn new(atom: &'static mma::Mma, role: Role) -> Option<Runs> {
        let (places, threads) = (atom.fragment(role)?, atom.group.threads());
        let thread = thread_in(atom.group);
        let (rows, columns) = positions(places, threads, 0);
        Some(Runs {
            places,
            threads,
            rows: ThreadMaps::new(thread, rows),
            columns: ThreadMaps::new(thread, columns),
            len: if role == Role::C { 2 } else { (32 / atom.element(role).bits()).max(1) },
        })
    }

    /// Row and column of the run that starts with this value, counted from somewhere else if so told.
    #[track_caller]
    fn from(&self, value: u32, origin: Option<(Val<u32>, Val<u32>)>) -> (Val<u32>, Val<u32>) {
        let (rows, columns) = positions(self.places, self.threads, value);
        let place = |maps: &ThreadMaps, table: &[u32], origin: Option<Val<u32>>| {
            let (staged, further) = maps.at(table);
            let first = origin.map_or(staged, |origin| origin + staged);
            if further == 0 { first } else { first + further }
        };
        let (top, left) = origin.unzip();
        (place(&self.rows, &rows, top), place(&self.columns, &columns, left))
    }
}

/// Row and column of a value in all threads.
fn positions(places: &TvLayout, threads: u32, value: u32) -> (Vec<u32>, Vec<u32>) {
    (0..threads).map(|thread| place(places, thread, value)).unzip()
}

/// One matrix load or store.
struct MatrixStep {
    address: SharedPtr<u8>,
    register: u32,
    count: u32,
    flags: Flags,
}

/// The matrix loads or stores that move a fragment of a tile of such elements, with their addresses.
#[track_caller]
fn matrix_steps(
    tv: &TvLayout,
    thread: Val<u32>,
    tile: Shared<u8>,
    element: Kind,
    at: (u32, u32),
) -> Option<Vec<MatrixStep>> {
    trace::here();
    let layout = tile.known()?;
    let major = trace::check(major_of(&layout))?;
    let copies = trace::check(matrix_copy::for_fragment(tv, element, major))?;
    let threads = u32::try_from(tv.threads()).unwrap_or(32);
    let table = |copy: &matrix_copy::FragmentCopy| -> Option<Vec<u32>> {
        let offset = |t: u32| {
            let (row, column) = copy.coordinate(t);
            byte_offset(&layout, row + at.0, column + at.1, element.bits())
        };
        trace::check((0..threads).map(offset).collect::<Result<Vec<u32>, String>>())
    };
    // Tables start from the origin of the tile, so that loads at different places share their staged part.
    let origin = copies.first()?;
    let offset = |t: u32| {
        let (row, column) = origin.coordinate(t);
        byte_offset(&layout, row, column, element.bits())
    };
    let first = trace::check((0..threads).map(offset).collect::<Result<Vec<u32>, String>>())?;
    let maps = ThreadMaps::new(thread, first);
    let mut steps = Vec::with_capacity(copies.len());
    for copy in &copies {
        let (staged, constant) = maps.at(&table(copy)?);
        let mut address = tile.ptr().byte_add(staged);
        if constant != 0 {
            address = address.byte_add(constant);
        }
        steps.push(MatrixStep {
            address,
            register: copy.register,
            count: copy.copy.matrices(),
            flags: Flags::TRANS.when(copy.copy.transposed()),
        });
    }
    Some(steps)
}

/// Loads, by all steps.
#[track_caller]
fn load_steps<T: Element>(steps: &[MatrixStep]) -> Vector<T> {
    let per_register = 32 / T::ELEMENT.bits();
    let mut parts = Vec::with_capacity(steps.len());
    for step in steps {
        let len = step.count * per_register;
        let attrs = [Count(step.count).into(), step.flags.into()];
        let value = trace::value(Opcode::LdMatrix, [step.address.id], attrs, vector_type::<T>(len));
        parts.push(Vector::of(value, len));
    }
    if let [one] = parts[..] { one } else { Vector::concat(parts) }
}

/// This thread's number in its warp or warpgroup.
#[track_caller]
pub(crate) fn thread_in(group: Group) -> Val<u32> {
    match group {
        Group::Warpgroup => thread_id(0) & 127u32,
        _ => lane_id(),
    }
}

/// Row and column of a value of a thread.
fn place(tv: &TvLayout, thread: u32, value: u32) -> (u32, u32) {
    let at = |tree: &IntTuple| match tree {
        Tree::Leaf(n) => u32::try_from(*n).unwrap_or(0),
        Tree::Tuple(_) => 0,
    };
    match tv.coordinate(i64::from(thread), i64::from(value)) {
        Ok(Tree::Tuple(modes)) if modes.len() == 2 => (at(&modes[0]), at(&modes[1])),
        _ => (0, 0),
    }
}

/// Which mode of a tile is contiguous.
fn major_of(layout: &Composed) -> Result<Major, String> {
    let at = |row, column| byte_offset(layout, row, column, 8);
    let origin = at(0, 0)?;
    if at(0, 1).ok() == origin.checked_add(1) {
        Ok(Major::K)
    } else if at(1, 0).ok() == origin.checked_add(1) {
        Ok(Major::Mn)
    } else {
        Err(format!("{layout} has no contiguous mode, so matrices cannot be moved from or to it"))
    }
}

/// Bytes from the start of a tile to an element.
fn byte_offset(layout: &Composed, row: u32, column: u32, bits: u32) -> Result<u32, String> {
    let coord = Coord::from((i64::from(row), i64::from(column)));
    let index = layout.eval(&coord).map_err(|e| e.to_string())?;
    match index {
        Tree::Leaf(n) => {
            u32::try_from(n * i64::from(bits) / 8).map_err(|_| format!("{layout} leaves shared memory"))
        }
        Tree::Tuple(_) => Err(format!("{layout} does not give places in memory")),
    }
}
