//! What is remembered of the bytes of a region, compactly.
//!
//! A [`Cell`] is eight bytes: the last write, and the *others*: accesses that a later one could conflict with besides it
//! (readers since then, and strong writes that ran together with it). Both are *stamps*, a record's number and a lane;
//! records are shared by the lanes of a warp and by all bytes of a range. Two or more others form a list, which cells with
//! the same past share by counting references; hence a range of 16 KiB with one past is one decision and a fill.
//!
//! A granule of four bytes has one cell until somebody touches a part of it; then the cell points to four cells, until they
//! are equal again.
//!
//! Records are only ever appended; when there are many, those that no cell mentions are dropped.

use smallvec::{SmallVec, smallvec};

use super::access::{Access, Conflict, Hazard, Later, Record};

/// In `Cell::write`: the granule is split, the rest is a number of a split. In `Cell::others`: the rest is a list's number.
const INDIRECT: u32 = 1 << 31;
const LANE_BITS: u32 = 5;
const MOST_RECORDS: usize = 1 << (31 - LANE_BITS);
/// Records that may pile up before the first collection.
const SLACK: usize = 4096;
pub(super) const GRANULE: usize = 4;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    write: u32,
    others: u32,
}

impl Cell {
    fn pointing_to(split: usize) -> Cell {
        Cell { write: indirect(split), others: 0 }
    }

    fn split(self) -> Option<usize> {
        (self.write & INDIRECT != 0).then_some((self.write & !INDIRECT) as usize)
    }
}

/// Numbers of lists and splits stay below the number of bytes, of which memory holds less than 2^31 cells' worth.
fn indirect(number: usize) -> u32 {
    u32::try_from(number).map_or(0, |number| INDIRECT | number)
}

fn stamp(id: u32, lane: u32) -> u32 {
    id << LANE_BITS | lane
}

fn id_of(stamp: u32) -> usize {
    (stamp >> LANE_BITS) as usize
}

fn lane_of(stamp: u32) -> u32 {
    stamp & 31
}

fn list_of(others: u32) -> Option<usize> {
    (others & INDIRECT != 0).then_some((others & !INDIRECT) as usize)
}

/// The lanes of a slot that made one access.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Cluster and slot, so that looking for a slot stays inside the list.
    key: u64,
    id: u32,
    lanes: u32,
}

#[derive(Clone, Debug, Default)]
struct List {
    /// Cells that mention it; 0 when free.
    refs: u32,
    /// Entries ever added: tells when to look for superfluous ones.
    added: u32,
    /// Whether any entry is a write.
    writes: bool,
    entries: SmallVec<[Entry; 8]>,
}

/// A conflict with the access of a lane.
#[derive(Clone, Copy, Debug)]
struct Hit {
    hazard: Hazard,
    id: usize,
    lane: u32,
}

#[derive(Clone, Debug)]
pub(super) struct History {
    /// Number 0 is nobody's.
    records: Vec<Record>,
    collect_at: usize,
    lists: Vec<List>,
    free_lists: Vec<u32>,
    splits: Vec<[Cell; GRANULE]>,
    free_splits: Vec<u32>,
    longest_list: usize,
    /// The conflict of the cell that is being touched. Not a result, because it hardly ever exists.
    hit: Option<Hit>,
}

impl History {
    /// Most readers of a byte that are remembered.
    pub(super) fn longest_list(&self) -> usize {
        self.longest_list
    }

    pub(super) fn new(longest_list: usize) -> Self {
        History {
            records: Vec::new(),
            collect_at: SLACK,
            lists: Vec::new(),
            free_lists: Vec::new(),
            splits: Vec::new(),
            free_splits: Vec::new(),
            longest_list,
            hit: None,
        }
    }

    /// Whether it is time to call [`Self::collect`].
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= self.collect_at
    }

    /// Prepares an access to be recorded.
    #[inline(always)]
    pub(super) fn enter<'a>(&mut self, a: &Access<'a>) -> Later<'a> {
        let record = Record::of(a);
        if self.records.last() != Some(&record) {
            if self.records.is_empty() {
                self.records.push(record);
            }
            self.records.push(record);
        }
        // `collect` keeps the number of records far below 2^32.
        #[allow(clippy::cast_possible_truncation)]
        let id = (self.records.len() - 1) as u32;
        let lane = u32::from(a.epoch.agent.lane & 31);
        Later {
            record,
            id,
            lane,
            lanes: 1 << lane,
            own: 1 << (a.issuer.lane & 31),
            know: a.know,
            settled: Default::default(),
        }
    }

    /// Prepares an access that several lanes make, each itself or with its own lane of a stream.
    pub(super) fn enter_lanes<'a>(&mut self, a: &Access<'a>) -> Later<'a> {
        let mut first = *a;
        (first.epoch.agent.lane, first.issuer.lane) = (0, 0);
        self.enter(&first)
    }

    /// Checks and records an access to `bytes` (counted from the first of `cells`). The conflict's offset is `base` further.
    #[inline(always)]
    pub(super) fn access(
        &mut self,
        cells: &mut [Cell],
        (start, end): (usize, usize),
        base: u64,
        later: &Later<'_>,
    ) -> Option<Conflict> {
        let first = start / GRANULE;
        if start % GRANULE == 0 && end - start == GRANULE && cells[first].split().is_none() {
            let cell = &mut cells[first];
            *cell = self.touch(*cell, 1, later);
            return if self.hit.is_none() { None } else { self.report(base, start) };
        }
        self.access_many(cells, (start, end), base, later)
    }

    /// Any range: whole granules in runs with the same past, and parts of granules.
    fn access_many(
        &mut self,
        cells: &mut [Cell],
        (start, end): (usize, usize),
        base: u64,
        later: &Later<'_>,
    ) -> Option<Conflict> {
        let mut conflict = None;
        let mut at = start;
        while at < end {
            let granule = at / GRANULE;
            let (from, to) = (at % GRANULE, (end - granule * GRANULE).min(GRANULE));
            let offset;
            if to - from == GRANULE && cells[granule].split().is_none() {
                let (first, next) = self.touch_runs(&mut cells[granule..end / GRANULE], later);
                (offset, at) = (at + first * GRANULE, at + next * GRANULE);
            } else {
                offset = granule * GRANULE + self.touch_parts(&mut cells[granule], from, to, later);
                at = granule * GRANULE + to;
            }
            if self.hit.is_some() {
                let found = self.report(base, offset);
                conflict = conflict.or(found);
            }
        }
        conflict
    }

    /// Whole granules until one is split or a run is in conflict. Returns where the last run begins and ends.
    fn touch_runs(&mut self, cells: &mut [Cell], later: &Later<'_>) -> (usize, usize) {
        let (mut first, mut at) = (0, 0);
        while at < cells.len() && cells[at].split().is_none() && self.hit.is_none() {
            let old = cells[at];
            let mut next = at + 1;
            while next < cells.len() && cells[next] == old {
                next += 1;
            }
            let new = self.touch(old, next - at, later);
            cells[at..next].iter_mut().for_each(|cell| *cell = new);
            (first, at) = (at, next);
        }
        (first, at)
    }

    /// Bytes `from..to` of a granule; returns the byte of the conflict, if there is one.
    fn touch_parts(&mut self, cell: &mut Cell, from: usize, to: usize, later: &Later<'_>) -> usize {
        let split = cell.split().unwrap_or_else(|| {
            let split = self.new_split(*cell);
            *cell = Cell::pointing_to(split);
            split
        });
        let mut conflict: Option<(usize, Hit)> = None;
        let mut at = from;
        while at < to {
            // In place and cell by cell: a copy of all four would be loaded wider than it was stored.
            let old = self.splits[split][at];
            let mut next = at + 1;
            while next < to && self.splits[split][next] == old {
                next += 1;
            }
            let new = self.touch(old, next - at, later);
            self.splits[split][at..next].iter_mut().for_each(|part| *part = new);
            if let Some(hit) = self.hit.take() {
                conflict = conflict.or(Some((at, hit)));
            }
            at = next;
        }
        let [first, rest @ ..] = &self.splits[split];
        if rest.iter().all(|part| part == first) {
            *cell = self.free_split(split, 1);
        }
        self.hit = conflict.map(|(_, hit)| hit);
        conflict.map_or(from, |(at, _)| at)
    }

    fn new_split(&mut self, cell: Cell) -> usize {
        if let Some(list) = list_of(cell.others) {
            self.lists[list].refs += 3;
        }
        if let Some(split) = self.free_splits.pop() {
            self.splits[split as usize] = [cell; GRANULE];
            return split as usize;
        }
        self.splits.push([cell; GRANULE]);
        self.splits.len() - 1
    }

    /// Frees a split, leaving `keep` of the four references of its first cell to the caller.
    fn free_split(&mut self, split: usize, keep: usize) -> Cell {
        let parts = std::mem::take(&mut self.splits[split]);
        self.free_splits.extend(u32::try_from(split));
        for part in &parts[keep..] {
            self.unlink(part.others, 1);
        }
        parts[0]
    }

    #[cold]
    fn report(&mut self, base: u64, offset: usize) -> Option<Conflict> {
        let hit = self.hit.take()?;
        let earlier = self.records[hit.id].past(u8::try_from(hit.lane).unwrap_or(0));
        Some(Conflict { hazard: hit.hazard, earlier, offset: base.wrapping_add(offset as u64) })
    }

    /// Checks and records an access to `count` undivided cells that are all `cell`. A conflict is left in `hit`.
    #[inline(always)]
    fn touch(&mut self, cell: Cell, count: usize, later: &Later<'_>) -> Cell {
        let me = stamp(later.id, later.lane);
        let writes = later.record.writes();
        let settled = cell.write == 0 || self.is_settled(cell.write, 0, later);
        if !writes {
            if !settled {
                self.judge_write(cell.write, later);
            }
            let others = match cell.others {
                0 if later.lanes.is_power_of_two() => me,
                0 => {
                    let entry = Entry { key: later.record.stream(), id: later.id, lanes: later.lanes };
                    self.link(&[entry], count)
                }
                others => self.read(others, count, later),
            };
            return Cell { write: cell.write, others };
        }
        let alone = cell.others == 0 || cell.others & INDIRECT == 0 && self.is_settled(cell.others, 1, later);
        if settled && alone {
            return Cell { write: me, others: 0 };
        }
        let outlived = if settled { None } else { self.judge_write(cell.write, later) };
        Cell { write: me, others: self.overwrite(cell.others, outlived, count, later) }
    }

    /// Whether there is nothing to do about a stamp; `which` of the two memories to use.
    #[inline(always)]
    fn is_settled(&self, stamp: u32, which: usize, later: &Later<'_>) -> bool {
        let id = stamp >> LANE_BITS;
        let settled = later.settled[which].get() == id || later.settles(&self.records[id as usize]);
        if settled {
            later.settled[which].set(id);
        }
        settled
    }

    /// Judges a last write; returns it if it is to be remembered beyond the write that comes.
    fn judge_write(&mut self, write: u32, later: &Later<'_>) -> Option<u32> {
        let (id, lane) = (id_of(write), lane_of(write));
        let record = &self.records[id];
        let order = later.order(record, 1 << lane);
        if let Some(hazard) = order.hazard {
            self.hit = Some(Hit { hazard, id, lane });
        }
        (later.outlive(record, 1 << lane, &order) != 0).then_some(write)
    }

    fn entry(&self, stamp: u32) -> Entry {
        let id = id_of(stamp);
        Entry { key: self.records[id].stream(), id: stamp >> LANE_BITS, lanes: 1 << lane_of(stamp) }
    }

    /// A write comes: judges the others, and returns those that it does not replace.
    fn overwrite(&mut self, others: u32, write: Option<u32>, count: usize, later: &Later<'_>) -> u32 {
        let mut hit = None;
        let mut kept: SmallVec<[Entry; 4]> = SmallVec::new();
        let mut judge = |records: &[Record], entry: Entry| {
            let id = entry.id as usize;
            let order = later.order(&records[id], entry.lanes);
            if let (None, Some(hazard)) = (&hit, order.hazard) {
                hit = Some(Hit { hazard, id, lane: order.loose.trailing_zeros() });
            }
            let lanes = later.outlive(&records[id], entry.lanes, &order);
            if lanes != 0 {
                kept.push(Entry { lanes, ..entry });
            }
        };
        match list_of(others) {
            Some(list) => self.lists[list].entries.iter().for_each(|&entry| judge(&self.records, entry)),
            None if others == 0 => {}
            None => judge(&self.records, self.entry(others)),
        }
        self.unlink(others, count);
        if let Some(write) = write {
            let entry = self.entry(write);
            match kept.iter_mut().find(|other| other.id == entry.id) {
                Some(same) => same.lanes |= entry.lanes,
                None => kept.push(entry),
            }
        }
        if kept.len() > self.longest_list {
            kept.remove(0);
        }
        // That somebody still reads says more than that the write before it is not known either.
        self.hit = hit.or(self.hit);
        self.link(&kept, count)
    }

    /// A reader comes besides others: judges it, and returns the others with it.
    fn read(&mut self, others: u32, count: usize, later: &Later<'_>) -> u32 {
        let lanes = later.lanes;
        let Some(list) = list_of(others) else {
            if lanes.is_power_of_two() && others == stamp(later.id, later.lane) {
                return others;
            }
            let old = self.entry(others);
            let record = &self.records[old.id as usize];
            let key = later.record.stream();
            if old.key == key && old.lanes == lanes && later.record.repeats(record) {
                return stamp(later.id, later.lane);
            }
            self.hit = self.hit.or_else(|| self.judge_writes(&[old], later));
            if old.id == later.id {
                return self.link(&[Entry { lanes: old.lanes | lanes, ..old }], count);
            }
            return self.link(&[old, Entry { key, id: later.id, lanes }], count);
        };
        if self.lists[list].writes {
            self.hit = self.hit.or_else(|| self.judge_writes(&self.lists[list].entries, later));
        }
        let last = self.lists[list].entries.len() - 1;
        if self.lists[list].entries[last].id == later.id && lanes & !self.lists[list].entries[last].lanes == 0
        {
            return others;
        }
        let (list, others) = self.make_own(list, others, count);
        let last = &mut self.lists[list].entries[last];
        if last.id == later.id {
            last.lanes |= lanes;
        } else {
            self.add_reader(list, later);
        }
        others
    }

    fn judge_writes(&self, entries: &[Entry], later: &Later<'_>) -> Option<Hit> {
        entries.iter().find_map(|entry| {
            let id = entry.id as usize;
            let record = &self.records[id];
            if !record.writes() {
                return None;
            }
            let order = later.order(record, entry.lanes);
            order.hazard.map(|hazard| Hit { hazard, id, lane: order.loose.trailing_zeros() })
        })
    }

    /// Adds a reader that is not the newest entry already.
    fn add_reader(&mut self, list: usize, later: &Later<'_>) {
        let (records, longest) = (&self.records, self.longest_list);
        let List { added, entries, .. } = &mut self.lists[list];
        let key = later.record.stream();
        let mut newer = Entry { key, id: later.id, lanes: later.lanes };
        let (mut repeated, mut since) = (newer.lanes, later.record.clock());
        let mut gone = 0;
        // Newest first, so that each entry of this slot loses the lanes that have read again since. Only a newcomer
        // looks, its fellow lanes find it in front.
        for at in (0..entries.len()).rev() {
            let entry = &mut entries[at];
            if entry.key == key {
                if entry.id == later.id {
                    newer.lanes |= entry.lanes;
                    entry.lanes = 0;
                } else {
                    let record = &records[entry.id as usize];
                    if record.clock() <= since && later.record.repeats(record) {
                        let lanes = entry.lanes;
                        entry.lanes &= !repeated;
                        // What repeats is itself repeated by the newcomer; a stronger reader in between is not enough.
                        if record.as_strong_as(&later.record) {
                            (repeated, since) = (repeated | lanes, record.clock());
                        }
                    }
                }
                gone += usize::from(entry.lanes == 0);
            }
        }
        if gone > 0 {
            entries.retain(|entry| entry.lanes != 0);
        }
        *added = added.wrapping_add(1);
        if entries.len() >= 8 && (added.is_power_of_two() || *added % 64 == 0) {
            entries.retain(|entry| {
                let record = &records[entry.id as usize];
                !(later.record.inherits(record)
                    && later.know.unknown(record.cluster(), record.slot(), entry.lanes, record.clock()) == 0)
            });
        }
        if entries.len() >= longest {
            entries.remove(*added as usize % longest);
        }
        entries.push(newer);
    }

    /// A list that only `count` cells mention, with the contents of `list`.
    fn make_own(&mut self, list: usize, others: u32, count: usize) -> (usize, u32) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if self.lists[list].refs == count {
            return (list, others);
        }
        self.lists[list].refs -= count;
        let copy = List { refs: count, ..self.lists[list].clone() };
        let new = self.new_list(copy);
        (new, indirect(new))
    }

    fn new_list(&mut self, list: List) -> usize {
        if let Some(free) = self.free_lists.pop() {
            self.lists[free as usize] = list;
            return free as usize;
        }
        self.lists.push(list);
        self.lists.len() - 1
    }

    /// The word for `count` cells whose others are `entries`.
    fn link(&mut self, entries: &[Entry], count: usize) -> u32 {
        match entries {
            [] => 0,
            [one] if one.lanes.is_power_of_two() => stamp(one.id, one.lanes.trailing_zeros()),
            _ => {
                let writes = entries.iter().any(|entry| self.records[entry.id as usize].writes());
                let refs = u32::try_from(count).unwrap_or(u32::MAX);
                let list =
                    self.new_list(List { refs, added: 0, writes, entries: SmallVec::from_slice(entries) });
                indirect(list)
            }
        }
    }

    /// `count` cells no longer mention `others`.
    fn unlink(&mut self, others: u32, count: usize) {
        if let Some(list) = list_of(others) {
            let refs = &mut self.lists[list].refs;
            *refs = refs.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
            if *refs == 0 {
                self.lists[list].entries = smallvec![];
                self.free_lists.push(others & !INDIRECT);
            }
        }
    }

    /// Nothing has happened to `bytes` any more.
    pub(super) fn forget(&mut self, cells: &mut [Cell], (start, end): (usize, usize)) {
        for (at, place) in cells.iter_mut().enumerate().take(end.div_ceil(GRANULE)).skip(start / GRANULE) {
            let from = start.saturating_sub(at * GRANULE);
            let to = (end - at * GRANULE).min(GRANULE);
            let cell = *place;
            if (from, to) == (0, GRANULE) {
                match cell.split() {
                    Some(split) => {
                        self.free_split(split, 0);
                    }
                    None => self.unlink(cell.others, 1),
                }
                *place = Cell::default();
            } else if cell != Cell::default() {
                let split = cell.split().unwrap_or_else(|| self.new_split(cell));
                *place = Cell::pointing_to(split);
                for part in from..to {
                    let old = std::mem::take(&mut self.splits[split][part]);
                    self.unlink(old.others, 1);
                }
            }
        }
    }

    /// Drops the records that nobody mentions. `cells` are all cells of the region.
    #[cold]
    pub(super) fn collect<'c>(&mut self, cells: impl Iterator<Item = &'c mut [Cell]>) {
        let mut live = Renumbering { new: vec![0; self.records.len()], old: &self.records, kept: Vec::new() };
        live.kept.extend(self.records.first().copied());
        let mut count = 0;
        for cells in cells {
            count += cells.len();
            cells.iter_mut().for_each(|cell| live.cell(cell));
        }
        self.splits.iter_mut().flatten().for_each(|cell| live.cell(cell));
        self.lists
            .iter_mut()
            .flat_map(|list| &mut list.entries)
            .for_each(|entry| entry.id = live.id(entry.id));
        self.records = live.kept;
        self.collect_at = (self.records.len() * 2 + count / 4 + SLACK).min(MOST_RECORDS - 1);
    }

    /// Whether even the records in use are too many to go on.
    pub(super) fn is_exhausted(&self) -> bool {
        self.records.len() > MOST_RECORDS / 2
    }
}

struct Renumbering<'a> {
    new: Vec<u32>,
    old: &'a [Record],
    kept: Vec<Record>,
}

impl Renumbering<'_> {
    fn id(&mut self, id: u32) -> u32 {
        let new = &mut self.new[id as usize];
        if *new == 0 {
            *new = u32::try_from(self.kept.len()).unwrap_or(0);
            self.kept.push(self.old[id as usize]);
        }
        *new
    }

    fn stamp(&mut self, word: u32) -> u32 {
        if word == 0 || word & INDIRECT != 0 {
            word
        } else {
            stamp(self.id(word >> LANE_BITS), lane_of(word))
        }
    }

    fn cell(&mut self, cell: &mut Cell) {
        cell.write = self.stamp(cell.write);
        cell.others = self.stamp(cell.others);
    }
}
