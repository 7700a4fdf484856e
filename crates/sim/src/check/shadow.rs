//! Shadow memory: what is remembered of a block's shared memory, and of global memory.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use super::access::{Access, Conflict, Later};
use super::history::{Cell, GRANULE, History};

/// Marks bytes as initialised, a bit each.
fn mark(bits: &mut [u64], start: usize, end: usize, value: bool) {
    let mut at = start;
    while at < end {
        let count = (64 - at % 64).min(end - at);
        let mask = (u64::MAX >> (64 - count)) << (at % 64);
        if value {
            bits[at / 64] |= mask;
        } else {
            bits[at / 64] &= !mask;
        }
        at += count;
    }
}

fn first_clear(bits: &[u64], start: usize, end: usize) -> Option<usize> {
    let mut at = start;
    while at < end {
        let rest = !bits[at / 64] >> (at % 64);
        if rest != 0 {
            let found = at + rest.trailing_zeros() as usize;
            return (found < end).then_some(found);
        }
        at += 64 - at % 64;
    }
    None
}

/// The lanes in a mask.
fn ones(mut lanes: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = lanes.trailing_zeros();
        lanes &= lanes.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

/// The shadow of a region of bytes.
///
/// It remembers of every byte the last write, and whatever else a later access could conflict with: the readers since
/// then, and strong accesses that ran together with it.
///
/// * A write replaces what is ordered before it and what it conflicts with, so that a conflict is reported once, not by
///   every access that follows. It does not replace what is weaker than itself: who may run together with an atomic may
///   still be in the way of the plain store before it.
/// * A lane that reads again replaces its earlier read.
/// * Exact for up to 64 readers (warps, not threads) of a byte; of more, some are forgotten, and a conflict with them is
///   missed.
///
/// ```
/// use tilewright_sim::check::Shadow;
///
/// let mut shadow = Shadow::new(64);
/// shadow.initialise(0..10);
/// assert_eq!(shadow.first_uninitialised(4..12), Some(10));
/// ```
#[derive(Clone, Debug)]
pub struct Shadow {
    bytes: usize,
    cells: Vec<Cell>,
    initialised: Vec<u64>,
    history: History,
}

impl Shadow {
    /// A region that nobody has touched, uninitialised.
    #[must_use]
    pub fn new(bytes: usize) -> Shadow {
        Shadow {
            bytes,
            cells: vec![Cell::default(); bytes.div_ceil(GRANULE)],
            initialised: vec![0; bytes.div_ceil(64)],
            history: History::new(64),
        }
    }

    /// Checks an access against what is recorded, and records it, conflict or not. A write initialises.
    #[inline]
    pub fn access(&mut self, range: Range<usize>, a: &Access<'_>) -> Option<Conflict> {
        let (start, end) = self.cut(&range)?;
        if self.history.is_full() {
            self.collect();
        }
        if a.kind.writes() {
            mark(&mut self.initialised, start, end, true);
        }
        let later = self.history.enter(a);
        self.history.access(&mut self.cells, (start, end), 0, &later)
    }

    /// One access to several ranges: what [`Self::access`] does range by range, faster. Calls `found` for every conflict.
    pub fn access_ranges(&mut self, ranges: &[Range<u32>], a: &Access<'_>, mut found: impl FnMut(Conflict)) {
        if self.history.is_full() {
            self.collect();
        }
        let later = self.history.enter(a);
        for range in ranges {
            let Some((start, end)) = self.cut(&(range.start as usize..range.end as usize)) else { continue };
            if a.kind.writes() {
                mark(&mut self.initialised, start, end, true);
            }
            if let Some(conflict) = self.history.access(&mut self.cells, (start, end), 0, &later) {
                found(conflict);
            }
        }
    }

    /// The same access by several lanes of a warp that share their knowledge, each to `bytes` bytes from `start(lane)`:
    /// what [`Self::access`] does lane by lane (whatever lanes `a` names), faster. Calls `found` for every conflict.
    #[inline]
    pub fn access_lanes(
        &mut self,
        lanes: u32,
        bytes: usize,
        start: impl Fn(u32) -> usize,
        a: &Access<'_>,
        mut found: impl FnMut(u32, Conflict),
    ) {
        if self.history.is_full() {
            self.collect();
        }
        let mut later = self.history.enter_lanes(a);
        for lane in ones(lanes) {
            let start = start(lane);
            let Some((start, end)) = self.cut(&(start..start.saturating_add(bytes))) else { continue };
            if a.kind.writes() {
                mark(&mut self.initialised, start, end, true);
            }
            later.set_lane(lane);
            if let Some(conflict) = self.history.access(&mut self.cells, (start, end), 0, &later) {
                found(lane, conflict);
            }
        }
    }

    /// A read by those of `lanes` that are in groups which read the same `bytes` bytes, each with its start: what [`Self::access_lanes`]
    /// does, in one step for a group. Calls `found` with the first lane of a group in conflict.
    pub fn read_groups(
        &mut self,
        groups: &[(u32, u32)],
        lanes: u32,
        bytes: usize,
        a: &Access<'_>,
        mut found: impl FnMut(u32, Conflict),
    ) {
        if self.history.is_full() {
            self.collect();
        }
        let mut later = self.history.enter_lanes(a);
        for &(group, start) in groups {
            let lanes = group & lanes;
            if lanes == 0 {
                continue;
            }
            let Some((start, end)) = self.cut(&(start as usize..(start as usize).saturating_add(bytes)))
            else {
                continue;
            };
            later.set_lanes(lanes);
            if let Some(conflict) = self.history.access(&mut self.cells, (start, end), 0, &later) {
                found(lanes.trailing_zeros(), conflict);
            }
        }
    }

    /// The host, or whoever need not be checked, has written here.
    pub fn initialise(&mut self, range: Range<usize>) {
        if let Some((start, end)) = self.cut(&range) {
            mark(&mut self.initialised, start, end, true);
        }
    }

    /// The first byte in the range that nobody has written.
    #[inline]
    #[must_use]
    pub fn first_uninitialised(&self, range: Range<usize>) -> Option<usize> {
        let (start, end) = self.cut(&range)?;
        first_clear(&self.initialised, start, end)
    }

    /// Back to the beginning: nobody has touched these bytes, and they are uninitialised.
    pub fn forget(&mut self, range: Range<usize>) {
        if let Some((start, end)) = self.cut(&range) {
            mark(&mut self.initialised, start, end, false);
            self.history.forget(&mut self.cells, (start, end));
        }
    }

    fn cut(&self, range: &Range<usize>) -> Option<(usize, usize)> {
        let end = range.end.min(self.bytes);
        (range.start < end).then_some((range.start, end))
    }

    #[cold]
    pub(super) fn collect(&mut self) {
        self.history.collect(std::iter::once(&mut self.cells[..]));
        if self.history.is_exhausted() {
            self.cells.fill(Cell::default());
            self.history = History::new(64);
        }
    }
}

const PAGE_BYTES: usize = 1024;
const PAGE: u64 = PAGE_BYTES as u64;

#[derive(Clone, Debug)]
struct Page {
    cells: [Cell; PAGE_BYTES / GRANULE],
    initialised: [u64; PAGE_BYTES / 64],
}

/// Multiplication spreads page numbers well enough, and they come from the program's own addresses.
#[derive(Clone, Copy, Debug, Default)]
struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

/// The shadow of global memory: like [`Shadow`], for 64-bit addresses, in pages that appear when they are touched.
///
/// Exact for up to 16 readers (warps) of a byte; of more, some are forgotten.
///
/// ```
/// use tilewright_sim::check::GlobalShadow;
///
/// let mut global = GlobalShadow::new();
/// global.initialise(0x7000_0000, 1 << 30);
/// assert_eq!(global.first_uninitialised(0x7000_0000 + (1 << 30) - 4, 8), Some(0x7000_0000 + (1 << 30)));
/// ```
#[derive(Clone, Debug)]
pub struct GlobalShadow {
    // Boxed, so that growing moves pointers only.
    #[allow(clippy::vec_box)]
    pages: Vec<Box<Page>>,
    numbers: HashMap<u64, usize, BuildHasherDefault<PageHasher>>,
    /// The page used last: number and place.
    recent: (u64, usize),
    /// Ranges that the host wrote, disjoint, from start to end. Where there is a page, the page's bits count.
    host: BTreeMap<u64, u64>,
    history: History,
}

impl Default for GlobalShadow {
    fn default() -> Self {
        Self::new()
    }
}

impl GlobalShadow {
    /// Memory that nobody has touched, uninitialised.
    #[must_use]
    pub fn new() -> GlobalShadow {
        GlobalShadow::remembering(16)
    }

    /// The same with room for so many readers of a byte.
    pub(super) fn remembering(readers: usize) -> GlobalShadow {
        GlobalShadow {
            pages: Vec::new(),
            numbers: HashMap::default(),
            recent: (u64::MAX, 0),
            host: BTreeMap::new(),
            history: History::new(readers),
        }
    }

    /// Checks an access against what is recorded, and records it, conflict or not. A write initialises.
    #[inline]
    pub fn access(&mut self, address: u64, bytes: usize, a: &Access<'_>) -> Option<Conflict> {
        if self.history.is_full() {
            self.collect();
        }
        let later = self.history.enter(a);
        self.touch(address, bytes, a.kind.writes(), &later)
    }

    /// Like [`Shadow::access_lanes`].
    #[inline]
    pub fn access_lanes(
        &mut self,
        lanes: u32,
        bytes: usize,
        address: impl Fn(u32) -> u64,
        a: &Access<'_>,
        mut found: impl FnMut(u32, Conflict),
    ) {
        if self.history.is_full() {
            self.collect();
        }
        let mut later = self.history.enter_lanes(a);
        for lane in ones(lanes) {
            later.set_lane(lane);
            if let Some(conflict) = self.touch(address(lane), bytes, a.kind.writes(), &later) {
                found(lane, conflict);
            }
        }
    }

    #[inline]
    fn touch(&mut self, address: u64, bytes: usize, writes: bool, later: &Later<'_>) -> Option<Conflict> {
        let mut conflict = None;
        for (number, start, end) in pieces(address, bytes as u64) {
            let place = self.page(number);
            let page = &mut self.pages[place];
            if writes {
                mark(&mut page.initialised, start, end, true);
            }
            let found = self.history.access(&mut page.cells, (start, end), number * PAGE, later);
            conflict = conflict.or(found);
        }
        conflict
    }

    /// The host, or whoever need not be checked, has written here.
    pub fn initialise(&mut self, address: u64, bytes: u64) {
        let (mut start, mut end) = (address, address.saturating_add(bytes));
        if start == end {
            return;
        }
        self.for_pages(start, end, |page, start, end| mark(&mut page.initialised, start, end, true));
        // One range takes the place of all that it overlaps or touches.
        while let Some((&from, &to)) = self.host.range(..=end).next_back()
            && to >= start
        {
            (start, end) = (start.min(from), end.max(to));
            self.host.remove(&from);
        }
        self.host.insert(start, end);
    }

    /// The address of the first byte that nobody has written.
    #[must_use]
    pub fn first_uninitialised(&self, address: u64, bytes: usize) -> Option<u64> {
        pieces(address, bytes as u64).find_map(|(number, start, end)| match self.find(number) {
            Some(place) => {
                first_clear(&self.pages[place].initialised, start, end).map(|at| number * PAGE + at as u64)
            }
            None => {
                let (start, end) = (number * PAGE + start as u64, number * PAGE + (end - 1) as u64);
                let reached = self.host.range(..=start).next_back().map_or(start, |(_, &to)| to.max(start));
                (reached <= end).then_some(reached)
            }
        })
    }

    /// Back to the beginning: nobody has touched these bytes, and they are uninitialised.
    pub fn forget(&mut self, address: u64, bytes: u64) {
        let (start, end) = (address, address.saturating_add(bytes));
        let mut history = std::mem::replace(&mut self.history, History::new(0));
        self.for_pages(start, end, |page, start, end| {
            mark(&mut page.initialised, start, end, false);
            history.forget(&mut page.cells, (start, end));
        });
        self.history = history;
        while let Some((&from, &to)) = self.host.range(..end).next_back()
            && to > start
        {
            self.host.remove(&from);
            if to > end {
                self.host.insert(end, to);
            }
            if from < start {
                self.host.insert(from, start);
            }
        }
    }

    fn find(&self, number: u64) -> Option<usize> {
        if self.recent.0 == number { Some(self.recent.1) } else { self.numbers.get(&number).copied() }
    }

    #[inline]
    fn page(&mut self, number: u64) -> usize {
        if self.recent.0 != number {
            let place = self.numbers.get(&number).copied().unwrap_or_else(|| self.new_page(number));
            self.recent = (number, place);
        }
        self.recent.1
    }

    fn new_page(&mut self, number: u64) -> usize {
        let mut page = Box::new(Page {
            cells: [Cell::default(); PAGE_BYTES / GRANULE],
            initialised: [0; PAGE_BYTES / 64],
        });
        let first = number * PAGE;
        let last = first + (PAGE - 1);
        for (&from, &to) in self.host.range(..=last).rev().take_while(|(_, to)| **to > first) {
            // Both differences are below a page.
            let within = |at: u64| usize::try_from(at.clamp(first, last) - first).unwrap_or(0);
            let end = if to > last { PAGE_BYTES } else { within(to) };
            mark(&mut page.initialised, within(from), end, true);
        }
        self.pages.push(page);
        self.numbers.insert(number, self.pages.len() - 1);
        self.pages.len() - 1
    }

    /// Calls `change` for the part of each existing page in the range, whichever are fewer: its pages or all pages.
    fn for_pages(&mut self, start: u64, end: u64, mut change: impl FnMut(&mut Page, usize, usize)) {
        if (end - start) / PAGE < self.pages.len() as u64 {
            for (number, from, to) in pieces(start, end - start) {
                if let Some(place) = self.find(number) {
                    change(&mut self.pages[place], from, to);
                }
            }
            return;
        }
        for (&number, &place) in &self.numbers {
            let first = number * PAGE;
            let within = |at: u64| usize::try_from(at.saturating_sub(first).min(PAGE)).unwrap_or(0);
            if within(start) < within(end) {
                change(&mut self.pages[place], within(start), within(end));
            }
        }
    }

    #[cold]
    pub(super) fn collect(&mut self) {
        self.history.collect(self.pages.iter_mut().map(|page| &mut page.cells[..]));
        if self.history.is_exhausted() {
            self.pages.iter_mut().for_each(|page| page.cells.fill(Cell::default()));
            self.history = History::new(self.history.longest_list());
        }
    }
}

/// The pages of a range of addresses, with the offsets of its first and behind its last byte there.
fn pieces(address: u64, bytes: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = address.saturating_add(bytes);
    let mut at = address;
    std::iter::from_fn(move || {
        let number = at / PAGE;
        let start = at % PAGE;
        let count = (PAGE - start).min(end - at);
        at += count;
        // Offsets into a page are below 1024, on any machine a usize.
        let within = |offset: u64| usize::try_from(offset).unwrap_or(0);
        (count > 0).then(|| (number, within(start), within(start + count)))
    })
}
