//! The kernel: weights from memory through a queue of each thread to its registers, and there to the tensor cores or the CUDA cores.

use tilewright_lang::Element;
use tilewright_lang::prelude::*;

use super::{Config, Core, Shape};
use crate::gemm::factor::{Factor, Side};
use crate::gemm::problem::Problem;
use crate::gemm::result::Output;
use crate::gemm::split::Shares;

/// Elements of an access. Along k the end of a row is another matter, so only address and leading dimension count.
pub(super) fn width(side: Side, problem: &Problem) -> u32 {
    if side.is_k_major(problem) {
        let element = side.element(problem);
        side.placement(problem).vector(element, problem.batch, 16 / element.bytes())
    } else if side == Side::A {
        1
    } else {
        side.width(problem)
    }
}

/// Loads `len` elements, those from `j` on at `at(j)`, `width` at a time.
#[track_caller]
fn load<T: Element>(len: u32, width: u32, at: impl Fn(u32) -> Global<T>) -> Vector<T> {
    let width = width.min(len);
    Vector::concat((0..len).step_by(width as usize).map(|j| at(j).load_vector(width)))
}

/// Loads `len` elements, one by one where they exist; zeros elsewhere.
#[track_caller]
fn load_some<T: Element>(
    len: u32,
    at: impl Fn(u32) -> Global<T>,
    exists: impl Fn(u32) -> Val<bool>,
) -> Vector<T> {
    let zero = Vector::<u32>::splat(0u32, T::ELEMENT.bytes().div_ceil(4)).bitcast::<T>().slice(0, 1);
    Vector::concat((0..len).map(|j| at(j).load_vector_if(exists(j), zero)))
}

#[device]
fn before(k: Val<u32>, end: Val<u32>) -> Val<bool> {
    k < end
}

/// What one load of a thread brings, step after step: neighbours along k, or along the columns of D at one step of k.
#[derive(Clone, Debug)]
struct Stream<T> {
    factor: Factor<T>,
    /// Where it starts. Along the columns, a start for each access; columns beyond the last are read from the last ones instead, and
    /// nobody looks at their sums.
    starts: Vec<Global<T>>,
    /// First step of k of the lane, at which it starts, and how many further on this load is.
    first: Val<u32>,
    further: u32,
    len: u32,
    width: u32,
    /// Whether neighbours are those along k.
    along_k: bool,
}

impl<T: Element> Stream<T> {
    /// Where element `j` lies, `k` steps after the start.
    #[track_caller]
    fn at(&self, k: Val<u32>, j: u32) -> Global<T> {
        match (self.along_k, self.factor.is_k_major()) {
            (true, true) => self.starts[0].at(k).at(self.further + j),
            (true, false) => self.starts[0].at(self.factor.offset(val(0u32), k + (self.further + j))),
            (false, _) => {
                let start = self.starts[(j / self.width) as usize];
                start.at(self.factor.offset(val(0u32), k + self.further)).at(j % self.width)
            }
        }
    }

    /// The elements `k` steps after the start.
    #[track_caller]
    fn load(&self, k: Val<u32>) -> Vector<T> {
        load(self.len, self.width, |j| self.at(k, j))
    }

    /// The same, as far as they lie before step `end` of k.
    #[track_caller]
    fn load_until(&self, k: Val<u32>, end: Val<u32>) -> Vector<T> {
        let first = self.first + k + self.further;
        let step = |j: u32| if self.along_k { first + j } else { first };
        load_some(self.len, |j| self.at(k, j), |j| before(step(j), end))
    }

    /// Starts to copy them to a place of 16 bytes; through registers if they are too narrow for asynchronous copies.
    #[track_caller]
    fn fetch(&self, k: Val<u32>, to: SharedPtr<T>) {
        if self.width * T::ELEMENT.bytes() < 4 {
            to.store_vector(self.load(k));
            return;
        }
        for j in (0..self.len).step_by(self.width as usize) {
            copy_async(to.at(j), self.at(k, j), self.width);
        }
    }
}

/// For each chunk of a step and each operand, the loads of the weights.
type Weights<W> = Vec<Vec<Vec<Stream<W>>>>;

/// For each chunk of a step, the rows of the other factor: the one that the tensor core wants from this lane in each instruction, or all.
type Inputs<X> = Vec<Vec<Stream<X>>>;

/// A lane: one of eight along the columns of D, one of four along k.
#[derive(Clone, Copy, Debug)]
struct Lane {
    group: Val<u32>,
    /// Its first step of k.
    first: Val<u32>,
}

impl Lane {
    #[track_caller]
    fn new(shape: Shape, start: Val<u32>) -> Lane {
        let (group, quarter) = (lane_id() / 4, lane_id() % 4);
        Lane { group, first: start + quarter * shape.depth }
    }

    /// The weights as the lane sees them, for `tiles` operands from column `left` of `n` on.
    #[track_caller]
    fn weights<W: Element>(
        self,
        shape: Shape,
        tiles: u32,
        (factor, width): (Factor<W>, u32),
        (left, n): (Val<u32>, Val<u32>),
    ) -> Weights<W> {
        let Lane { group, first } = self;
        let weight = |chunk: u32, tile: u32, i: u32| {
            let column = left + tile * shape.columns;
            let (along_k, len, width) = (shape.k_major, shape.piece, width.min(shape.piece));
            let (starts, step) = if along_k {
                (vec![factor.at(min(column + shape.column(group, i), n - 1), first)], 0)
            } else {
                let column = column + shape.column(group, 0);
                let start = |j: u32| factor.at(min(column + j, n - width), first);
                ((0..len).step_by(width as usize).map(start).collect(), i)
            };
            let further = chunk * shape.chunk() + step;
            Stream { factor, starts, first, further, len, width, along_k }
        };
        let operand = |chunk, tile| (0..shape.loads).map(|i| weight(chunk, tile, i)).collect();
        (0..shape.chunks).map(|chunk| (0..tiles).map(|tile| operand(chunk, tile)).collect()).collect()
    }

    /// The other factor, which has `m` rows.
    #[track_caller]
    fn inputs<X: Element>(self, shape: Shape, (factor, width): (Factor<X>, u32), m: Val<u32>) -> Inputs<X> {
        let Lane { group, first } = self;
        let input = |chunk: u32, i: u32| {
            let row = match shape.core {
                Core::Tensor(_) => group + i * 8,
                Core::Scalar => val(i),
            };
            let starts = vec![factor.at(min(row, m - 1), first)];
            let (len, width) = (shape.depth, width.min(shape.depth));
            let further = chunk * shape.chunk();
            Stream { factor, starts, first, further, len, width, along_k: true }
        };
        let rows = |chunk: u32| (0..shape.inputs()).map(|i| input(chunk, i)).collect();
        (0..shape.chunks).map(rows).collect()
    }
}

/// The queue of each thread: weights on their way, in places of 16 bytes that no other thread looks at. So a thread waits for its own
/// copies, and for nobody else.
///
/// Loads to registers would need no shared memory, but assemblers move them down to where they are used, and then few are in flight.
#[derive(Clone, Copy, Debug)]
struct Queue<W> {
    places: Shared<W>,
    /// Loads of a step, and threads of the block.
    loads: u32,
    threads: u32,
}

impl<W: Element> Queue<W> {
    #[track_caller]
    fn new(stages: u32, loads: u32, threads: u32) -> Queue<W> {
        let elements = stages * loads * threads * (16 / W::ELEMENT.bytes());
        Queue { places: Shared::new(format!("{elements}:1").as_str()), loads, threads }
    }

    #[track_caller]
    fn place(&self, slot: Val<u32>, i: u32) -> SharedPtr<W> {
        let place = (slot * self.loads + i) * self.threads + thread_id(0);
        self.places.ptr().at(place * (16 / W::ELEMENT.bytes()))
    }

    /// Starts to bring the weights of the step `k` after the start.
    #[track_caller]
    fn push(&self, weights: &Weights<W>, k: Val<u32>, slot: Val<u32>) {
        for (i, stream) in (0u32..).zip(weights.iter().flatten().flatten()) {
            stream.fetch(k, self.place(slot, i));
        }
    }

    /// The weights in a slot: for each chunk and operand, its loads.
    #[track_caller]
    fn read(&self, weights: &Weights<W>, slot: Val<u32>) -> Vec<Vec<Vec<Vector<W>>>> {
        let mut number = 0..self.loads;
        let mut next =
            |stream: &Stream<W>| self.place(slot, number.next().unwrap_or(0)).load_vector(stream.len);
        let mut operand = |loads: &Vec<Stream<W>>| loads.iter().map(&mut next).collect();
        weights.iter().map(|chunk| chunk.iter().map(&mut operand).collect()).collect()
    }
}

/// Weights that lie along the columns of D, turned: for each column, the registers along k. Bytes are moved between registers, first
/// those of neighbouring steps, then those of pairs of steps.
#[track_caller]
fn turn<W: Element>(loads: &[Vector<W>], packed: u32) -> Vec<Vec<Vector<W>>> {
    let words: Vec<Vec<Val<u32>>> = loads.iter().map(|load| load.bitcast::<u32>().elements()).collect();
    let pair =
        |x: Val<u32>, y: Val<u32>, low: u32, high: u32| [x.permute_bytes(y, low), x.permute_bytes(y, high)];
    let mut columns = vec![Vec::new(); loads[0].len() as usize];
    for part in words.chunks(packed as usize) {
        for word in 0..words[0].len() {
            let turned = match part {
                [x, y] => pair(x[word], y[word], 0x5410, 0x7632).to_vec(),
                [x, y, z, w] => {
                    let (early, late) =
                        (pair(x[word], y[word], 0x5140, 0x7362), pair(z[word], w[word], 0x5140, 0x7362));
                    let both = |i: usize| pair(early[i], late[i], 0x5410, 0x7632);
                    [both(0), both(1)].concat()
                }
                other => other.iter().map(|x| x[word]).collect(),
            };
            for (i, register) in turned.into_iter().enumerate() {
                columns[word * packed as usize + i].push(Vector::new([register]).bitcast::<W>());
            }
        }
    }
    columns
}

/// The sums of a lane.
#[derive(Clone, Debug, Carry)]
struct Sums<C> {
    /// For each operand, each of its instructions, each eight rows of the product.
    tensor: Vec<Fragment<C>>,
    /// For each operand, each of its columns, each row of the product.
    scalar: Vec<Val<C>>,
}

/// How sums of a lane are counted.
#[derive(Clone, Copy, Debug)]
struct Count {
    /// Instructions of an operand that have sums of their own, and columns of an operand of a lane.
    products: u32,
    columns: u32,
}

impl Shape {
    fn count(&self) -> Count {
        match self.k_major {
            true => Count { products: 1, columns: 2 },
            false => Count { products: self.piece / 2, columns: self.piece },
        }
    }

    /// Which column of an operand a lane's column is.
    #[track_caller]
    fn column(&self, group: Val<u32>, i: u32) -> Val<u32> {
        if self.k_major { group + i * 8 } else { group * self.piece + i }
    }
}

/// Adds the products of one step.
#[track_caller]
fn multiply<W: Element, X: Element, C: Number>(
    shape: Shape,
    weights: &[Vec<Vector<W>>],
    inputs: &[Vector<X>],
    sums: &mut Sums<C>,
) {
    let Count { products, columns } = shape.count();
    match shape.core {
        Core::Tensor(depth) => {
            let mma = WarpMma::<W, X, C>::new((16, 8, depth));
            let packed = shape.packed;
            // Registers of an instruction: first the halves of its rows, then those of its depth.
            let steps = if shape.k_major { 2 } else { 1 };
            for (t, loads) in weights.iter().enumerate() {
                let columns = if shape.k_major { Vec::new() } else { turn(loads, packed) };
                for p in 0..products {
                    for s in 0..steps {
                        let mut register = 0;
                        let a = mma.gather_a(|_, _, _| {
                            let (half, part) = (register % 2, 2 * s + register / 2);
                            register += 1;
                            if shape.k_major {
                                loads[half as usize].slice(part * packed, packed)
                            } else {
                                columns[(2 * p + half) as usize][part as usize]
                            }
                        });
                        for (i, input) in inputs.iter().enumerate() {
                            let mut register = 0;
                            let b = mma.gather_b(|_, _, _| {
                                register += 1;
                                input.slice((2 * s + register - 1) * packed, packed)
                            });
                            let sum =
                                &mut sums.tensor[(t * products as usize + p as usize) * inputs.len() + i];
                            *sum = mma.multiply(a, b, *sum);
                        }
                    }
                }
            }
        }
        Core::Scalar => {
            for (t, loads) in weights.iter().enumerate() {
                for column in 0..columns {
                    for (row, input) in inputs.iter().enumerate() {
                        let sum =
                            &mut sums.scalar[(t * columns as usize + column as usize) * inputs.len() + row];
                        for step in 0..shape.depth {
                            let weight = match shape.k_major {
                                true => loads[column as usize].get(step),
                                false => loads[step as usize].get(column),
                            };
                            *sum = weight.cast::<C>().mul_add(input.get(step).cast::<C>(), *sum);
                        }
                    }
                }
            }
        }
    }
}

/// The sums of a warp for one row of the product and one operand, put down where `at` says for each column: neighbours at once where the
/// weights lie along the columns.
#[track_caller]
fn put_row<C: Number>(shape: Shape, at: impl Fn(u32) -> SharedPtr<C>, sums: &[Val<C>]) {
    let together = if shape.k_major { 1 } else { 16 / C::ELEMENT.bytes() };
    for (i, sums) in (0u32..).zip(sums.chunks(together as usize)) {
        at(i * together).store_vector(Vector::new(sums.iter().copied()));
    }
}

/// Writes the sums of a warp to its place in shared memory: rows of the product times columns of D, rows `pitch` apart.
#[device]
fn put_down<C: Number>(shape: Shape, tiles: u32, sums: &Sums<C>, mine: SharedPtr<C>, pitch: u32) {
    let (group, quarter) = (lane_id() / 4, lane_id() % 4);
    let Count { products, columns } = shape.count();
    let inputs = shape.inputs();
    for tile in unroll(0..tiles) {
        let at = |row: Val<u32>| {
            move |i: u32| mine.at(row * pitch + shape.column(group, i) + tile * shape.columns)
        };
        for row in unroll(0..inputs) {
            match shape.core {
                Core::Tensor(_) => {
                    // Element e of a lane: column e / 2 of its two of the operand, row e % 2 of its two of the product.
                    for e in unroll(0..2) {
                        let sum = |i: u32| {
                            let product = (tile * products + i / 2) * inputs + row;
                            sums.tensor[product as usize].values().get(i % 2 * 2 + e)
                        };
                        let sums: Vec<Val<C>> = (0..columns).map(sum).collect();
                        put_row(shape, at(quarter * 2 + (row * 8 + e)), &sums);
                    }
                }
                Core::Scalar => {
                    // The four lanes along k have a share each; one of them writes the sums.
                    let sum = |i: u32| sums.scalar[((tile * columns + i) * inputs + row) as usize];
                    let sums = (0..columns).map(|i| warp_reduce_among(sum(i), 4, |x, y| x + y));
                    let sums: Vec<Val<C>> = sums.collect();
                    if quarter == row % 4 {
                        put_row(shape, at(val(row)), &sums);
                    }
                }
            }
        }
    }
}

/// `D = epilogue(A * B)` for few rows, some columns of D (or one part of their steps) a block.
#[kernel(threads = config.threads())]
pub(super) fn gemv<W: Element, X: Element, C: Number, R: Number>(
    m: Val<u32>,
    n: Val<u32>,
    k: Val<u32>,
    tiles_n: Val<u32>,
    parts: Val<u32>,
    share: Val<u32>,
    problem: Problem,
    config: Config,
    shape: Shape,
) {
    grid_wait();
    let Config { tiles, warps, stages, .. } = config;
    let columns = shape.columns * tiles;
    let depth = shape.step();

    // Which columns of which member of the batch, and which steps of k.
    let unit = block_id(0) / parts;
    let (part, batch) = (block_id(0) % parts, unit / tiles_n);
    let left = unit % tiles_n * columns;
    let start = min(part * share, k);
    let end = min(start + share, k);

    let factors =
        (Factor::<W>::declare(Side::B, &problem, batch), Factor::<X>::declare(Side::A, &problem, batch));
    let widths = (width(Side::B, &problem), width(Side::A, &problem));
    // Whole steps are dealt to the warps in turn.
    let warp = warp_id();
    let steps = (end - start) / depth;
    let turns = (steps + (warps - 1) - warp) / warps;
    let lane = Lane::new(shape, start);
    let all_weights = lane.weights(shape, tiles, (factors.0, widths.0), (left, n));
    let all_inputs = lane.inputs(shape, (factors.1, widths.1), m);
    let queue = Queue::<W>::new(stages, config.loads(&shape), config.threads());
    let push = |turn: Val<u32>, slot: Val<u32>| queue.push(&all_weights, (turn * warps + warp) * depth, slot);

    for ahead in unroll(0..stages - 1) {
        if ahead < turns {
            push(val(ahead), val(ahead));
        }
        copy_commit();
    }

    let Count { products, columns: each } = shape.count();
    let (tensor, scalar) = match shape.core {
        Core::Tensor(depth) => {
            let zero = WarpMma::<W, X, C>::new((16, 8, depth)).zero();
            (vec![zero; (tiles * products * (shape.rows / 8)) as usize], Vec::new())
        }
        Core::Scalar => (Vec::new(), vec![val(C::ZERO); (tiles * each * shape.rows) as usize]),
    };
    let mut sums = Sums { tensor, scalar };

    let (mut full, mut free) = (val(0u32), val(stages - 1));
    for turn in 0..turns {
        copy_wait(stages - 2);
        // Into the slot that was read in the turn before.
        if turn + (stages - 1) < turns {
            push(turn + (stages - 1), free);
        }
        copy_commit();
        let k = (turn * warps + warp) * depth;
        let chunks = queue.read(&all_weights, full);
        for (weights, rows) in chunks.iter().zip(&all_inputs) {
            let inputs: Vec<Vector<X>> = rows.iter().map(|row| row.load(k)).collect();
            multiply(shape, weights, &inputs, &mut sums);
        }
        full = select(full == stages - 1, 0, full + 1);
        free = select(free == stages - 1, 0, free + 1);
    }
    // What is left of k is shorter than a step.
    let rest = steps * depth;
    if start + rest < end && warp == warps - 1 {
        for (weights, rows) in all_weights.iter().zip(&all_inputs) {
            let load = |loads: &Vec<Stream<W>>| loads.iter().map(|load| load.load_until(rest, end)).collect();
            let weights: Vec<Vec<Vector<W>>> = weights.iter().map(load).collect();
            let inputs: Vec<Vector<X>> = rows.iter().map(|row| row.load_until(rest, end)).collect();
            multiply(shape, &weights, &inputs, &mut sums);
        }
    }

    // Now, and not at the start, where it would cost registers; nobody could begin before this block has loaded most anyway.
    grid_launch_dependents();

    // The warps' sums, added from the first to the last, four neighbours a thread. Rows are four elements further apart than they are
    // long, so that lanes of a fragment hit different banks.
    let pitch = columns + 4;
    let all = Shared::<C>::new(format!("{}:1", warps * shape.rows * pitch).as_str());
    put_down(shape, tiles, &sums, all.ptr().at(warp * (shape.rows * pitch)), pitch);
    barrier();
    let quads = columns / 4;
    let place = |i: u32| {
        let number = thread_id(0) + i * config.threads();
        (number / quads, number % quads * 4)
    };
    let add = |i: u32| {
        let (row, column) = place(i);
        let at = min(row, shape.rows - 1) * pitch + column;
        let of_warp = |warp: u32| all.ptr().at(at + warp * (shape.rows * pitch)).load_vector(4);
        (1..warps).fold(of_warp(0), |sum, warp| sum + of_warp(warp))
    };
    let totals: Vec<Vector<C>> = (0..config.quads(&shape)).map(add).collect();

    let mut output = Output::<R>::declare(&problem, (m, n));
    let mut finish = |totals: &[Vector<C>]| {
        for (i, total) in (0u32..).zip(totals) {
            let (row, column) = place(i);
            output.store(batch, (row, left + column), &[total.cast::<R>().elements()]);
        }
    };
    if config.parts == 1 {
        finish(&totals);
    } else {
        let shares = Shares::<C>::declare(config.threads());
        let (last, totals) = shares.combine(unit, (part, parts), &totals);
        if last {
            finish(&totals);
        }
    }
}
