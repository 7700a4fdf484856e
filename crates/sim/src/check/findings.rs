//! A collector of findings whose result does not depend on who found what first.

use std::collections::{BTreeMap, BTreeSet};

use super::finding::{Finding, FindingKind};

/// When something was found, in an order that is the same in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The round of the schedule.
    pub round: u64,
    /// The cluster.
    pub cluster: u32,
    /// A number inside the cluster and round.
    pub sequence: u64,
}

/// What makes two findings the same: kind, first line, second line.
type Group = (FindingKind, u32, Option<u32>);

#[derive(Clone, Debug)]
struct Seen {
    key: Key,
    count: u64,
    /// Absent if it did not make it into the bounded number that is shown.
    finding: Option<Finding>,
}

/// Collects findings, counting repeats.
///
/// Of findings with the same kind and lines the one with the least [`Key`] is kept, and of those the [`Findings::LIMIT`]
/// with the least keys. Whichever way findings are spread over collectors that are then merged, the outcome is the same.
/// Beyond the limit only a counter is kept for each combination of lines.
///
/// ```
/// use tilewright_sim::check::{Finding, FindingKind, Findings, Key, Place};
///
/// let mut findings = Findings::default();
/// for sequence in [5, 3, 4] {
///     let key = Key { round: 0, cluster: 0, sequence };
///     findings.record(key, FindingKind::Trap, 7, None, || {
///         Finding::new(FindingKind::Trap, format!("number {sequence}"), Place { line: 7, ..Place::default() })
///     });
/// }
/// let list = findings.into_sorted();
/// assert_eq!((list.len(), list[0].count, list[0].message.as_str()), (1, 3, "number 3"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Findings {
    groups: BTreeMap<Group, Seen>,
    shown: BTreeSet<(Key, Group)>,
}

impl Findings {
    /// Distinct findings kept in full.
    pub const LIMIT: usize = 256;

    /// Counts a finding; `describe` is called only if its text is wanted.
    pub fn record(
        &mut self,
        key: Key,
        kind: FindingKind,
        first_line: u32,
        second_line: Option<u32>,
        describe: impl FnOnce() -> Finding,
    ) {
        self.add((kind, first_line, second_line), key, 1, || Some(describe()));
    }

    /// Adds a finding that is described already.
    pub fn push(&mut self, key: Key, finding: Finding) {
        let group = (finding.kind, finding.first.line, finding.second.as_ref().map(|place| place.line));
        self.add(group, key, finding.count, || Some(finding));
    }

    /// Takes over what another collector found.
    pub fn merge(&mut self, other: Findings) {
        for (group, seen) in other.groups {
            self.add(group, seen.key, seen.count, || seen.finding);
        }
    }

    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Distinct findings, shown or not.
    #[must_use]
    pub fn distinct(&self) -> usize {
        self.groups.len()
    }

    /// All findings with their repeats.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.groups.values().map(|seen| seen.count).sum()
    }

    /// The findings by key, with their counts.
    #[must_use]
    pub fn into_sorted(mut self) -> Vec<Finding> {
        let counted = |group| {
            let Seen { count, finding, .. } = self.groups.remove(&group)?;
            Some(Finding { count, ..finding? })
        };
        self.shown.into_iter().map(|(_, group)| group).filter_map(counted).collect()
    }

    fn add(&mut self, group: Group, key: Key, count: u64, describe: impl FnOnce() -> Option<Finding>) {
        let seen = self.groups.entry(group).or_insert(Seen { key, count: 0, finding: None });
        let first = seen.count == 0;
        seen.count = seen.count.saturating_add(count);
        if !first && key >= seen.key {
            return;
        }
        self.shown.remove(&(seen.key, group));
        (seen.key, seen.finding) = (key, None);
        let rank = (key, group);
        if self.shown.len() >= Self::LIMIT && self.shown.last().is_some_and(|last| *last < rank) {
            return;
        }
        seen.finding = describe();
        self.shown.insert(rank);
        if self.shown.len() > Self::LIMIT
            && let Some((_, last)) = self.shown.pop_last()
            && let Some(seen) = self.groups.get_mut(&last)
        {
            seen.finding = None;
        }
    }
}
