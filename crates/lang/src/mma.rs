//! Matrix products by tensor cores: of one warp ([`WarpMma`]) and of a warpgroup ([`Accumulator`]).
//!
//! Both are driven by the hardware's table of atoms. A kernel picks an atom, and loads, multiplies and stores by its layouts;
//! descriptors and lane addresses are computed, never written by hand.

use std::marker::PhantomData;

use tilewright_hardware::{Group, Major, MatrixDescriptor, Operand as Side, mma};
use tilewright_ir::{Attr, Bits, Count, Flags, Mma as MmaId, Opcode, Type, Value};

use crate::element::{Element, Number};
use crate::fragment::Fragment;
use crate::tensor::Shared;
use crate::trace;
use crate::value::{Operand, Val};
use crate::vector::{Vector, vector_type};

fn id_of(atom: &mma::Mma) -> MmaId {
    let dim = |n: u32| u16::try_from(n).unwrap_or(u16::MAX);
    let s = atom.shape;
    MmaId { m: dim(s.m), n: dim(s.n), k: dim(s.k), c: atom.c, a: atom.a, b: atom.b }
}

/// The matrix product of one warp: `C = A * B + C`, all in registers. `B` is given by columns: a tile `(n, k)`.
///
/// ```
/// use tilewright_lang::prelude::*;
/// #[kernel(threads = 32)]
/// fn product(a: Global<bf16>, b: Global<bf16>, c: Global<f32>) {
///     let tile_a = Shared::<bf16>::new(k_major::<bf16>(16, 16, SwizzleMode::B32));
///     let tile_b = Shared::<bf16>::new(k_major::<bf16>(8, 16, SwizzleMode::B32));
///     let (row, half) = (thread_id(0) / 2, thread_id(0) % 2 * 8);
///     tile_a.at((row, half)).store_vector(a.matrix(16).at(row, half).load_vector(8));
///     if row < 8 {
///         tile_b.at((row, half)).store_vector(b.matrix(16).at(row, half).load_vector(8));
///     }
///     warp_barrier();
///     let mma = WarpMma::<bf16, bf16, f32>::new((16, 8, 16));
///     let sum = mma.multiply(mma.load_a(tile_a, 0, 0), mma.load_b(tile_b, 0, 0), mma.zero());
///     sum.for_each_run(|row, column, pair| c.matrix(8).at(row, column).store_vector(pair));
/// }
/// assert!(product::stage()?.ir().contains("mma(m16n8k16.f32.bf16.bf16)"));
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[derive(Debug)]
pub struct WarpMma<A, B, C> {
    atom: Option<&'static mma::Mma>,
    types: PhantomData<fn(A, B) -> C>,
}

impl<A, B, C> Clone for WarpMma<A, B, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, B, C> Copy for WarpMma<A, B, C> {}

impl<A: Element, B: Element, C: Number> WarpMma<A, B, C> {
    /// The atom of this shape, `(m, n, k)`.
    #[must_use]
    #[track_caller]
    pub fn new(shape: (u32, u32, u32)) -> WarpMma<A, B, C> {
        let atom = trace::check(mma::find(A::ELEMENT, B::ELEMENT, C::ELEMENT, shape));
        if let Some(atom) = atom
            && atom.group != Group::Warp
        {
            trace::error(format!("{atom} belongs to a warpgroup; use Accumulator"));
        }
        WarpMma { atom: atom.filter(|atom| atom.group == Group::Warp), types: PhantomData }
    }

    /// Rows, columns and depth of one product.
    #[must_use]
    pub fn shape(self) -> (u32, u32, u32) {
        self.atom.map_or((1, 1, 1), |atom| (atom.shape.m, atom.shape.n, atom.shape.k))
    }

    /// Loads the `A` of one product from a tile `(m, k)`: block `i` of its rows, block `k` of its depth.
    #[must_use]
    #[track_caller]
    pub fn load_a(self, tile: Shared<A>, i: u32, k: u32) -> Fragment<A> {
        self.load(tile, Side::A, i, k, 1)[0]
    }

    /// Loads the `B` of one product from a tile `(n, k)`: block `j` of its columns, block `k` of its depth.
    #[must_use]
    #[track_caller]
    pub fn load_b(self, tile: Shared<B>, j: u32, k: u32) -> Fragment<B> {
        self.load(tile, Side::B, j, k, 1)[0]
    }

    /// Loads the `B`s of two neighbouring products, blocks `j` and `j + 1`, with half the instructions.
    #[must_use]
    #[track_caller]
    pub fn load_b_pair(self, tile: Shared<B>, j: u32, k: u32) -> [Fragment<B>; 2] {
        let both = self.load(tile, Side::B, j, k, 2);
        [both[0], both[1]]
    }

    #[track_caller]
    fn load<T: Element>(
        self,
        tile: Shared<T>,
        side: Side,
        block: u32,
        k: u32,
        count: u32,
    ) -> Vec<Fragment<T>> {
        let atom = self.atom();
        let (rows, depth) = atom.extents(side);
        let loaded = Fragment::load_matrices(tile, (block * rows, k * depth), atom, side, count);
        if loaded.len() == count as usize {
            return loaded;
        }
        (0..count).map(|_| Fragment::new(poison_vector(atom, side), atom, side)).collect()
    }

    /// The `A` of one product, made of runs that `f(row, k, length)` gives, neighbours in a row: from global memory, or of elements
    /// that no matrix load moves.
    #[must_use]
    #[track_caller]
    pub fn gather_a(self, mut f: impl FnMut(Val<u32>, Val<u32>, u32) -> Vector<A>) -> Fragment<A> {
        let atom = self.atom();
        let gathered = Fragment::gather(atom, Side::A, &mut f);
        gathered.unwrap_or_else(|| Fragment::new(poison_vector(atom, Side::A), atom, Side::A))
    }

    /// The `B` of one product, made of runs that `f(column, k, length)` gives.
    #[must_use]
    #[track_caller]
    pub fn gather_b(self, mut f: impl FnMut(Val<u32>, Val<u32>, u32) -> Vector<B>) -> Fragment<B> {
        let atom = self.atom();
        let gathered = Fragment::gather(atom, Side::B, &mut f);
        gathered.unwrap_or_else(|| Fragment::new(poison_vector(atom, Side::B), atom, Side::B))
    }

    /// A `C` of zeros.
    #[must_use]
    #[track_caller]
    pub fn zero(self) -> Fragment<C> {
        let atom = self.atom();
        Fragment::new(Vector::splat(C::ZERO, values(atom, Side::C)), atom, Side::C)
    }

    /// `a * b + c`.
    #[must_use]
    #[track_caller]
    pub fn multiply(self, a: Fragment<A>, b: Fragment<B>, c: Fragment<C>) -> Fragment<C> {
        let operands = [a.values().id, b.values().id, c.values().id];
        let id = trace::value(Opcode::Mma, operands, [id_of(self.atom()).into()], None);
        c.with_values(Vector::of(id, c.values().len()))
    }

    /// The atom; after a mistake some other one, so that staging goes on to find further mistakes.
    fn atom(self) -> &'static mma::Mma {
        #[allow(clippy::expect_used, reason = "the table is never empty")]
        self.atom.unwrap_or_else(|| mma::all().next().expect("the hardware has matrix instructions"))
    }
}

/// Elements of one thread.
fn values(atom: &mma::Mma, side: Side) -> u32 {
    let (rows, columns) = atom.extents(side);
    rows * columns / atom.group.threads()
}

#[track_caller]
fn poison_vector<T: Element>(atom: &mma::Mma, side: Side) -> Vector<T> {
    let len = values(atom, side);
    Vector::of(trace::poison(vector_type::<T>(len)), len)
}

/// The accumulator of a warpgroup's tensor core while multiplications are in flight.
///
/// It cannot be read: [`finish`](Accumulator::finish) waits and gives the [`Fragment`]s, and takes the accumulator away.
///
/// ```
/// # use tilewright_lang::prelude::*;
/// # #[kernel(threads = 128)]
/// # fn k(out: Global<f32>) {
/// # let a = Shared::<f16>::new(k_major::<f16>(64, 64, SwizzleMode::B128));
/// # let b = Shared::<f16>::new(k_major::<f16>(128, 64, SwizzleMode::B128));
/// let sums = Accumulator::<f32>::new(64, 128);
/// sums.multiply(a, b, false); // starts; the warpgroup goes on
/// for part in sums.finish() {
///     part.for_each_run(|row, column, pair| out.matrix(128).at(row, column).store_vector(pair));
/// }
/// # }
/// # assert_eq!(k::stage()?.ir().matches("wgmma %").count(), 4);
/// # Ok::<(), tilewright_lang::Error>(())
/// ```
#[derive(Debug)]
pub struct Accumulator<C> {
    /// One set of registers for each 64 rows and each group of columns, row by row.
    blocks: Vec<Value>,
    rows: u32,
    /// Columns of one multiplication, and how many stand side by side.
    n: u32,
    across: u32,
    ty: PhantomData<fn() -> C>,
}

impl<C: Number> Accumulator<C> {
    /// Registers for `rows` times `columns` elements, `rows` a multiple of 64. Their contents are undefined.
    #[must_use]
    #[track_caller]
    pub fn new(rows: u32, columns: u32) -> Accumulator<C> {
        trace::here();
        if rows == 0 || !rows.is_multiple_of(64) || columns == 0 || !columns.is_multiple_of(8) {
            trace::error(format!("an accumulator of {rows} times {columns}; expected multiples of 64 and 8"));
        }
        let across = columns.div_ceil(256).max(1);
        let n = (columns / across).max(8);
        let each = u16::try_from(n / 2).unwrap_or(u16::MAX);
        let make = |_| trace::value(Opcode::MakeAccumulator, [], [], Type::Accumulator(C::ELEMENT, each));
        let blocks = (0..(rows / 64).max(1) * across).map(make).collect();
        Accumulator { blocks, rows, n, across, ty: PhantomData }
    }

    /// Starts `self = a * b`, or `self += a * b` if `accumulate` holds, as one group of multiplications. The tiles are `(m, k)` and
    /// `(n, k)` and must stay untouched until the group has been waited for.
    #[track_caller]
    pub fn multiply<A: Element, B: Element>(
        &self,
        a: Shared<A>,
        b: Shared<B>,
        accumulate: impl Operand<bool>,
    ) {
        let Some(atom) = self.atom::<A, B>() else { return };
        let blocks = self.blocks();
        if let Some((depth, flags, left)) = blocks.left(a.bytewise(), atom) {
            blocks.start(atom, depth, b.bytewise(), accumulate.val(), flags, &left);
        }
    }

    /// The same with `A` in registers: for each 64 rows, the fragments along the depth.
    #[track_caller]
    pub fn multiply_registers<A: Element, B: Element>(
        &self,
        a: &[Vec<Fragment<A>>],
        b: Shared<B>,
        accumulate: impl Operand<bool>,
    ) {
        let Some(atom) = self.atom::<A, B>() else { return };
        let depth = a.first().map_or(0, Vec::len);
        if a.len() * 64 != self.rows as usize || a.iter().any(|row| row.len() != depth) {
            trace::error(format!("A has fragments for {} rows, the accumulator {}", a.len() * 64, self.rows));
            return;
        }
        let left = |row: usize, k: usize| a[row][k].values().id;
        self.blocks().start(atom, depth, b.bytewise(), accumulate.val(), Flags::NONE, &left);
    }

    #[track_caller]
    fn atom<A: Element, B: Element>(&self) -> Option<&'static mma::Mma> {
        let k = 256 / A::ELEMENT.bits();
        trace::check(mma::find(A::ELEMENT, B::ELEMENT, C::ELEMENT, (64, self.n, k)))
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { blocks: &self.blocks, rows: self.rows, n: self.n, across: self.across }
    }

    /// Waits until at most `pending` groups of multiplications are in flight; the tiles of the others may be overwritten.
    #[track_caller]
    pub fn wait(&self, pending: u32) {
        trace::effect(Opcode::WgmmaWait, [], [Count(pending).into()]);
    }

    /// Waits for all multiplications, and gives the result: a fragment for each 64 rows (and, above 256 columns, each group of
    /// columns).
    #[must_use]
    #[track_caller]
    pub fn finish(self) -> Vec<Fragment<C>> {
        self.drain()
    }

    /// Waits for all multiplications, and gives the sums so far; the accumulator goes on. For sums that are scaled or promoted on
    /// the way.
    #[must_use]
    #[track_caller]
    pub fn drain(&self) -> Vec<Fragment<C>> {
        self.wait(0);
        // Where the sums lie depends on the accumulator alone, so any atom with this one will do.
        let fits = |atom: &&mma::Mma| {
            atom.group == Group::Warpgroup && atom.shape.n == self.n && atom.c == C::ELEMENT
        };
        let Some(atom) = mma::all().find(fits) else {
            trace::error(format!(
                "no warpgroup multiplication accumulates {} columns of {}",
                self.n,
                C::ELEMENT
            ));
            return Vec::new();
        };
        let len = self.n / 2;
        let read = |&block| {
            let id = trace::value(Opcode::AccRead, [block], [], vector_type::<C>(len));
            Fragment::new(Vector::of(id, len), atom, Side::C)
        };
        self.blocks.iter().map(read).collect()
    }

    /// Sets the sums to start from: one fragment for each that [`finish`](Accumulator::finish) will give.
    #[track_caller]
    pub fn set(&self, fragments: &[Fragment<C>]) {
        if fragments.len() != self.blocks.len() {
            trace::error(format!(
                "{} fragments for an accumulator of {}",
                fragments.len(),
                self.blocks.len()
            ));
            return;
        }
        for (&block, fragment) in self.blocks.iter().zip(fragments) {
            trace::effect(Opcode::AccWrite, [block, fragment.values().id], []);
        }
    }
}

/// The registers of an accumulator, whatever is in them: what does not depend on types is compiled once.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    blocks: &'a [Value],
    rows: u32,
    n: u32,
    across: u32,
}

impl Blocks<'_> {
    /// An `A` in shared memory: the steps along its depth, how it lies, and the descriptor for each 64 rows and each step.
    #[track_caller]
    fn left(self, a: Shared<u8>, atom: &mma::Mma) -> Option<(usize, Flags, impl Fn(usize, usize) -> Value)> {
        let left = trace::check(MatrixDescriptor::for_operand(&a.known()?, atom.a, 64))?;
        if left.row_offsets.len() * 64 != self.rows as usize {
            trace::error(format!(
                "A has {} rows, the accumulator {}",
                left.row_offsets.len() * 64,
                self.rows
            ));
            return None;
        }
        let base = descriptor(a, &left);
        let depth = left.k_offsets.len();
        let flags = Flags::TRANS_A.when(left.major == Major::Mn);
        let step = move |row: usize, k: usize| advance(base, left.row_offsets[row] + left.k_offsets[k]).id;
        Some((depth, flags, step))
    }

    #[track_caller]
    fn start(
        self,
        atom: &'static mma::Mma,
        depth: usize,
        b: Shared<u8>,
        accumulate: Val<bool>,
        flags: Flags,
        a: &dyn Fn(usize, usize) -> Value,
    ) {
        let Some(layout) = b.known() else { return };
        let Some(right) = trace::check(MatrixDescriptor::for_operand(&layout, atom.b, self.n)) else {
            return;
        };
        if right.k_offsets.len() != depth || right.row_offsets.len() != self.across as usize {
            trace::error(format!(
                "B has {} columns and {} steps of k; expected {} and {depth}, those of the accumulator and of A",
                right.row_offsets.len() * self.n as usize,
                right.k_offsets.len(),
                self.across * self.n
            ));
            return;
        }
        let base = descriptor(b, &right);
        let flags = flags.with(Flags::TRANS_B.when(right.major == Major::Mn));
        let attrs: [Attr; 2] = [id_of(atom).into(), flags.into()];
        trace::effect(Opcode::WgmmaFence, [], []);
        for k in 0..depth {
            let add = if k == 0 { accumulate } else { true.val() };
            for (i, &block) in self.blocks.iter().enumerate() {
                let (row, column) = (i / self.across as usize, i % self.across as usize);
                let right = advance(base, right.row_offsets[column] + right.k_offsets[k]);
                trace::effect(Opcode::Wgmma, [block, a(row, k), right.id, add.id], attrs.clone());
            }
        }
        trace::effect(Opcode::WgmmaCommit, [], []);
    }
}

#[track_caller]
fn descriptor(tile: Shared<u8>, form: &MatrixDescriptor) -> Val<u64> {
    let bits = Bits(form.encode_high());
    Val::of(trace::value(Opcode::Descriptor, [tile.ptr().id], [bits.into()], None))
}

/// The descriptor of a matrix so many bytes further. The address sits in the low bits, in units of 16 bytes, and cannot carry out of
/// them: shared memory ends before.
#[track_caller]
fn advance(descriptor: Val<u64>, bytes: u32) -> Val<u64> {
    if bytes == 0 { descriptor } else { descriptor + u64::from(bytes / 16) }
}
