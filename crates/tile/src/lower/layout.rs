//! Which thread holds which element of a tile.
//!
//! The threads of a program are numbered by block of the cluster, warp and lane; each holds some registers. A [`Layout`] writes every one of
//! these numbers in a mixed radix system, whose [`Digit`]s each move along one axis of the tile, or along none: then the threads that differ
//! in it hold copies. Along an axis, all its digits together count every position exactly once. Where they count further than the axis
//! extends, the elements behind its end hold nothing that anybody may look at.
//!
//! ```text
//! a row of 1024 floats, 4 warps:   registers 4:1, 2:512   lanes 32:4   warps 4:128
//! ```

use std::fmt;

use tilewright_ir::Shape;

/// Lanes of a warp.
pub(crate) const LANES: u32 = 32;

/// One digit: how many values it has, and how far one step moves along which axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Digit {
    pub(crate) axis: Option<usize>,
    pub(crate) extent: u32,
    pub(crate) stride: u32,
}

impl Digit {
    fn copies(extent: u32) -> Digit {
        Digit { axis: None, extent, stride: 0 }
    }
}

/// The number of a thread, in its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    Lane,
    Warp,
    Block,
}

impl Holder {
    pub(crate) const ALL: [Holder; 3] = [Holder::Lane, Holder::Warp, Holder::Block];
}

/// How many threads a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Team {
    pub(crate) warps: u32,
    pub(crate) blocks: u32,
}

/// Who holds which element. Digits of a number stand fastest first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    pub(crate) registers: Vec<Digit>,
    lanes: Vec<Digit>,
    warps: Vec<Digit>,
    blocks: Vec<Digit>,
}

impl Layout {
    /// Elements dealt out so that neighbours along `order[0]` lie in `vector` registers of a lane, then in neighbouring lanes; `order` goes
    /// on with the axes from the fastest to the slowest in memory. Warps go to slow axes first, so that what is combined along the fast one
    /// stays within a warp; blocks share the fast axis.
    pub(crate) fn blocked(shape: Shape, order: &[usize], vector: u32, team: Team) -> Layout {
        let mut deal = Deal::new(shape);
        let Some((&fast, slow)) = order.split_first() else { return deal.layout };
        let mut registers = deal.take(fast, vector.min(shape.extents()[fast]));
        let mut lanes = Vec::new();
        let mut left = LANES;
        for &axis in order {
            let take = left.min(deal.left(axis).next_power_of_two());
            lanes.extend(deal.take(axis, take));
            left /= take;
        }
        lanes.extend((left > 1).then_some(Digit::copies(left)));
        // Each block takes one piece of the fast axis. Its stride is known when the other digits are.
        let blocks = team.blocks.min(deal.left(fast).next_power_of_two());
        let share = deal.left(fast).div_ceil(blocks);
        let mut warps = Vec::new();
        let mut left = team.warps;
        for &axis in slow.iter().rev() {
            let take = best_divisor(left, deal.left(axis));
            warps.extend(deal.take(axis, take));
            left /= take;
        }
        let mut rest = share;
        let take = best_divisor(left, rest);
        warps.extend(deal.take(fast, take));
        left /= take;
        rest = rest.div_ceil(take);
        warps.extend((left > 1).then_some(Digit::copies(left)));
        registers.extend(deal.take(fast, rest));
        for &axis in slow {
            registers.extend(deal.take(axis, deal.left(axis)));
        }
        let mut of_blocks: Vec<Digit> = deal.take(fast, blocks).into_iter().collect();
        let copies = team.blocks / blocks.max(1);
        of_blocks.extend((copies > 1).then_some(Digit::copies(copies)));
        Layout { registers, lanes, warps, blocks: of_blocks, ..deal.layout }
    }

    /// From its digits.
    pub(crate) fn of(shape: Shape, registers: Vec<Digit>, [lanes, warps, blocks]: [Vec<Digit>; 3]) -> Layout {
        Layout { shape, registers, lanes, warps, blocks }
    }

    /// The digits of a part of the thread's number.
    pub(crate) fn digits(&self, holder: Holder) -> &[Digit] {
        match holder {
            Holder::Lane => &self.lanes,
            Holder::Warp => &self.warps,
            Holder::Block => &self.blocks,
        }
    }

    /// Digits of all threads, each with its holder and the weight of one step in the holder's number.
    pub(crate) fn thread_digits(&self) -> impl Iterator<Item = (Holder, u32, Digit)> + '_ {
        Holder::ALL
            .into_iter()
            .flat_map(|holder| weighted(self.digits(holder)).map(move |(w, d)| (holder, w, d)))
    }

    /// Registers of a thread.
    pub(crate) fn count(&self) -> usize {
        self.registers.iter().map(|digit| digit.extent as usize).product()
    }

    /// How far the register stands from the thread's own place, along each axis.
    pub(crate) fn offset(&self, register: usize) -> Vec<u32> {
        let mut offset = vec![0; self.shape.rank()];
        let mut rest = u32::try_from(register).unwrap_or(u32::MAX);
        for digit in &self.registers {
            if let Some(axis) = digit.axis {
                offset[axis] += rest % digit.extent * digit.stride;
            }
            rest /= digit.extent;
        }
        offset
    }

    /// The offsets of all registers.
    pub(crate) fn offsets(&self) -> Vec<Vec<u32>> {
        (0..self.count()).map(|register| self.offset(register)).collect()
    }

    /// How far the digits along an axis count: its extent, or more.
    pub(crate) fn reach(&self, axis: usize) -> u32 {
        let own = self.registers.iter().copied().chain(self.thread_digits().map(|(.., digit)| digit));
        own.filter(|digit| digit.axis == Some(axis)).map(|digit| digit.extent).product()
    }

    /// Whether the digits count further than the axis extends.
    pub(crate) fn is_padded(&self, axis: usize) -> bool {
        self.reach(axis) > self.shape.extents()[axis]
    }

    /// Whether some threads hold copies of what others hold.
    pub(crate) fn has_copies(&self) -> bool {
        self.thread_digits().any(|(.., digit)| digit.axis.is_none() && digit.extent > 1)
    }

    /// The layout of what remains when an axis shrinks to one element that all threads along it hold.
    pub(crate) fn without(&self, axis: usize) -> Layout {
        let gone = |digit: &Digit| digit.axis == Some(axis);
        let copies = |digits: &[Digit]| {
            digits.iter().map(|d| if gone(d) { Digit::copies(d.extent) } else { *d }).collect::<Vec<_>>()
        };
        Layout {
            shape: self.shape.with(axis, 1).unwrap_or(self.shape),
            registers: self.registers.iter().filter(|digit| !gone(digit)).copied().collect(),
            lanes: copies(&self.lanes),
            warps: copies(&self.warps),
            blocks: copies(&self.blocks),
        }
    }

    /// The same elements with axes in another order: axis `i` of the result is axis `axes[i]` of this.
    pub(crate) fn transposed(&self, axes: &[u8]) -> Option<Layout> {
        let extents: Vec<u32> = axes.iter().map(|&a| self.shape.extents()[usize::from(a)]).collect();
        let place = |axis: usize| axes.iter().position(|&a| usize::from(a) == axis);
        Some(self.relabelled(Shape::new(&extents)?, place))
    }

    fn relabelled(&self, shape: Shape, place: impl Fn(usize) -> Option<usize>) -> Layout {
        let all = |digits: &[Digit]| {
            digits.iter().map(|d| Digit { axis: d.axis.and_then(&place), ..*d }).collect::<Vec<_>>()
        };
        Layout {
            shape,
            registers: all(&self.registers),
            lanes: all(&self.lanes),
            warps: all(&self.warps),
            blocks: all(&self.blocks),
        }
    }

    /// The same elements, counted row by row, with other extents: every digit moves along one axis of the new shape, or splits where an axis
    /// ends. None if a digit straddles an axis in a way that digits cannot say, or if elements were held behind the end of an axis.
    pub(crate) fn reshaped(&self, shape: Shape) -> Option<Layout> {
        if (0..self.shape.rank()).any(|axis| self.is_padded(axis)) {
            return None;
        }
        let (from, to) = (row_major(self.shape), row_major(shape));
        let split = |digits: &[Digit]| -> Option<Vec<Digit>> {
            let mut out = Vec::new();
            for digit in digits {
                let Some(axis) = digit.axis else {
                    out.push(*digit);
                    continue;
                };
                let (mut extent, mut flat) = (digit.extent, digit.stride * from[axis]);
                while extent > 1 {
                    // The innermost axis whose range still contains this stride.
                    let axis = (0..shape.rank())
                        .rev()
                        .find(|&a| flat < to[a] * shape.extents()[a] && flat >= to[a])?;
                    let room = (to[axis] * shape.extents()[axis]) / flat;
                    let take = extent.min(room);
                    if flat % to[axis] != 0 || extent % take != 0 || take < 2 {
                        return None;
                    }
                    out.push(Digit { axis: Some(axis), extent: take, stride: flat / to[axis] });
                    extent /= take;
                    flat *= take;
                }
            }
            Some(out)
        };
        let layout = Layout {
            shape,
            registers: split(&self.registers)?,
            lanes: split(&self.lanes)?,
            warps: split(&self.warps)?,
            blocks: split(&self.blocks)?,
        };
        let exact = (0..shape.rank()).all(|axis| layout.reach(axis) == shape.extents()[axis]);
        exact.then_some(layout)
    }

    /// The place of a thread along each axis, without its registers.
    pub(crate) fn place(&self, lane: u32, warp: u32, block: u32) -> Vec<u32> {
        let mut place = vec![0; self.shape.rank()];
        for (number, holder) in [(lane, Holder::Lane), (warp, Holder::Warp), (block, Holder::Block)] {
            for (weight, digit) in weighted(self.digits(holder)) {
                if let Some(axis) = digit.axis {
                    place[axis] += number / weight % digit.extent * digit.stride;
                }
            }
        }
        place
    }

    /// Which register of this layout holds what each register of `other` holds, if every thread has its own elements already.
    pub(crate) fn registers_for(&self, other: &Layout, team: Team) -> Option<Vec<usize>> {
        if self.shape != other.shape {
            return None;
        }
        let mine = self.offsets();
        let mut found = None;
        for block in 0..team.blocks {
            for warp in 0..team.warps {
                for lane in 0..LANES {
                    let (from, to) = (self.place(lane, warp, block), other.place(lane, warp, block));
                    if found.is_none() {
                        let wanted = |offset: Vec<u32>| {
                            let at: Vec<u32> = offset.iter().zip(&to).map(|(o, t)| o + t).collect();
                            mine.iter()
                                .position(|o| o.iter().zip(&from).map(|(o, f)| o + f).eq(at.iter().copied()))
                        };
                        found = Some(other.offsets().into_iter().map(wanted).collect::<Option<Vec<_>>>()?);
                    }
                    if from != to {
                        return None;
                    }
                }
            }
        }
        found
    }
}

/// Digits, each with the weight of one step in the number that they write.
pub(crate) fn weighted(digits: &[Digit]) -> impl Iterator<Item = (u32, Digit)> + '_ {
    digits.iter().scan(1, |weight, digit| {
        let own = *weight;
        *weight *= digit.extent;
        Some((own, *digit))
    })
}

/// Strides of a dense row-major tile.
pub(crate) fn row_major(shape: Shape) -> Vec<u32> {
    let mut strides = vec![1; shape.rank()];
    for axis in (1..shape.rank()).rev() {
        strides[axis - 1] = strides[axis] * shape.extents()[axis];
    }
    strides
}

/// The number of warps, a divisor of `left`, that an axis with so many pieces can use: the most that leave nobody idle, and where that is
/// less than half of what would fit, the most that fit.
fn best_divisor(left: u32, pieces: u32) -> u32 {
    let divisors = (1..=left).filter(|d| left.is_multiple_of(*d) && *d <= pieces);
    let (mut exact, mut most) = (1, 1);
    for d in divisors {
        most = d;
        if pieces.is_multiple_of(d) {
            exact = d;
        }
    }
    if 2 * exact >= most { exact } else { most }
}

/// Digits under construction: how much of each axis is dealt out.
struct Deal {
    layout: Layout,
    dealt: Vec<u32>,
}

impl Deal {
    fn new(shape: Shape) -> Deal {
        let none =
            Layout { shape, registers: Vec::new(), lanes: Vec::new(), warps: Vec::new(), blocks: Vec::new() };
        Deal { layout: none, dealt: vec![1; shape.rank()] }
    }

    /// Pieces of an axis that are left.
    fn left(&self, axis: usize) -> u32 {
        self.layout.shape.extents()[axis].div_ceil(self.dealt[axis])
    }

    /// The next digit along an axis; none if it would count to one.
    fn take(&mut self, axis: usize, extent: u32) -> Vec<Digit> {
        let stride = self.dealt[axis];
        self.dealt[axis] *= extent;
        if extent > 1 { vec![Digit { axis: Some(axis), extent, stride }] } else { Vec::new() }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut part = |name: &str, digits: &[Digit]| -> fmt::Result {
            write!(f, " {name}")?;
            for digit in digits {
                match digit.axis {
                    Some(axis) => write!(f, " {}:{}@{axis}", digit.extent, digit.stride)?,
                    None => write!(f, " {}:copies", digit.extent)?,
                }
            }
            Ok(())
        };
        part("registers", &self.registers)?;
        part("lanes", &self.lanes)?;
        part("warps", &self.warps)?;
        part("blocks", &self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(extents: &[u32]) -> Shape {
        Shape::new(extents).expect("a shape")
    }

    /// Every element is held, by as many threads as there are copies, and by one register of each.
    fn check(layout: &Layout, team: Team) {
        let total = layout.shape.elements() as usize;
        let strides = row_major(layout.shape);
        let mut seen = vec![0u32; total];
        for block in 0..team.blocks {
            for warp in 0..team.warps {
                for lane in 0..LANES {
                    let place = layout.place(lane, warp, block);
                    for offset in layout.offsets() {
                        let at: Vec<u32> = place.iter().zip(&offset).map(|(p, o)| p + o).collect();
                        if at.iter().zip(layout.shape.extents()).all(|(a, e)| a < e) {
                            let flat: u32 = at.iter().zip(&strides).map(|(a, s)| a * s).sum();
                            seen[flat as usize] += 1;
                        }
                    }
                }
            }
        }
        let copies: u32 =
            layout.thread_digits().filter(|(.., d)| d.axis.is_none()).map(|(.., d)| d.extent).product();
        assert!(seen.iter().all(|&n| n == copies), "{layout}: {seen:?}");
    }

    #[test]
    fn blocked_layouts_hold_everything_once() {
        for extents in
            [&[1, 1536][..], &[1, 1000], &[7, 33], &[64, 64], &[4, 4096], &[5], &[1], &[3, 5, 7], &[128, 1]]
        {
            for (warps, blocks) in [(1, 1), (4, 1), (6, 1), (3, 2), (8, 4)] {
                for vector in [1, 2, 4, 8] {
                    let rank = extents.len();
                    let orders = [(0..rank).rev().collect::<Vec<_>>(), (0..rank).collect()];
                    for order in orders {
                        if extents[order[0]] % vector == 0 {
                            let team = Team { warps, blocks };
                            check(&Layout::blocked(shape(extents), &order, vector, team), team);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_row_of_1536_needs_no_padding() {
        let layout = Layout::blocked(shape(&[1, 1536]), &[1, 0], 4, Team { warps: 6, blocks: 1 });
        assert_eq!(layout.to_string(), " registers 4:1@1 2:768@1 lanes 32:4@1 warps 6:128@1 blocks");
        assert!(!layout.is_padded(1));
    }

    #[test]
    fn shapes_change_without_moving_elements() {
        let team = Team { warps: 4, blocks: 1 };
        let layout = Layout::blocked(shape(&[16, 64]), &[1, 0], 4, team);
        let reshaped = layout.reshaped(shape(&[4, 4, 32, 2])).expect("powers of two split");
        check(&reshaped, team);
        let strides = [row_major(layout.shape), row_major(reshaped.shape)];
        let flat =
            |place: &[u32], strides: &[u32]| place.iter().zip(strides).map(|(p, s)| p * s).sum::<u32>();
        for lane in 0..LANES {
            let places = [layout.place(lane, 1, 0), reshaped.place(lane, 1, 0)];
            assert_eq!(flat(&places[0], &strides[0]), flat(&places[1], &strides[1]));
        }
        let back = reshaped.reshaped(layout.shape).expect("and join");
        assert!(layout.registers_for(&back, team).is_some());
        assert_eq!(layout.transposed(&[1, 0]).and_then(|t| t.transposed(&[1, 0])), Some(layout));
    }

    #[test]
    fn what_all_threads_hold_already_needs_no_exchange() {
        let team = Team { warps: 4, blocks: 1 };
        let wide = Layout::blocked(shape(&[8, 256]), &[1, 0], 4, team);
        let other = Layout::blocked(shape(&[8, 256]), &[1, 0], 2, team);
        assert!(wide.registers_for(&other, team).is_none());
        let sums = wide.without(1);
        assert!(sums.registers_for(&sums.clone(), team).is_some() && sums.has_copies());
    }
}
