//! Samples, medians, bars, and how they are told.

use std::error::Error;
use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tilewright_cuda::Context;

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// How thoroughly to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) quick: bool,
}

impl Settings {
    /// One of two numbers.
    pub(crate) fn choose(self, thorough: usize, quick: usize) -> usize {
        if self.quick { quick } else { thorough }
    }
}

/// The middle of samples, and the tenth and ninetieth percentile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(mut samples: Vec<f64>) -> Spread {
        samples.sort_by(f64::total_cmp);
        let at = |part: usize| samples.get((samples.len().saturating_sub(1)) * part / 10).copied();
        let [low, median, high] = [1, 5, 9].map(|part| at(part).unwrap_or(f64::NAN));
        Spread { low, median, high }
    }

    /// The same in other units: bandwidths are one over times, so the order may turn.
    pub(crate) fn map(self, unit: impl Fn(f64) -> f64) -> Spread {
        let (low, high) = (unit(self.low), unit(self.high));
        Spread { low: low.min(high), median: unit(self.median), high: low.max(high) }
    }
}

/// Seconds of both sides, taken by turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Turns {
    pub(crate) ours: Spread,
    pub(crate) raw: Spread,
    /// Ours over raw, round by round. What a round finds (a host that is busy, pages that lie badly) it finds for both sides, so that
    /// this says more than one median over the other.
    pub(crate) ratio: Spread,
}

impl Turns {
    /// The same in other units, in which a ratio of times is `ratio`.
    pub(crate) fn map(self, unit: impl Fn(f64) -> f64, ratio: impl Fn(f64) -> f64) -> Turns {
        Turns { ours: self.ours.map(&unit), raw: self.raw.map(&unit), ratio: self.ratio.map(ratio) }
    }
}

/// What a result must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bar {
    /// Ours over raw, at most.
    Ratio(f64),
    /// Ours over raw, at least: for bandwidths.
    RatioAtLeast(f64),
    /// Ours, at most.
    Ours(f64),
    /// Told, not judged.
    None,
}

/// One result.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: Spread,
    /// The other side, if there is one, and ours over it.
    pub(crate) raw: Option<(Spread, Spread)>,
    pub(crate) bar: Bar,
}

impl Entry {
    /// A result against the driver.
    pub(crate) fn against_raw(
        name: impl Into<String>,
        unit: &'static str,
        Turns { ours, raw, ratio }: Turns,
        bar: Bar,
    ) -> Entry {
        Entry { name: name.into(), unit, ours, raw: Some((raw, ratio)), bar }
    }

    /// Ours over raw.
    pub(crate) fn ratio(&self) -> Option<f64> {
        self.raw.map(|(_, ratio)| ratio.median)
    }

    /// Whether the bar was met, if there is one. A comparison with nothing is not.
    pub(crate) fn passes(&self) -> Option<bool> {
        match self.bar {
            Bar::Ratio(most) => Some(self.ratio().is_some_and(|ratio| ratio <= most)),
            Bar::RatioAtLeast(least) => Some(self.ratio().is_some_and(|ratio| ratio >= least)),
            Bar::Ours(most) => Some(self.ours.median <= most),
            Bar::None => None,
        }
    }

    fn bar_text(&self) -> Option<String> {
        match self.bar {
            Bar::Ratio(most) => Some(format!("ratio <= {most}")),
            Bar::RatioAtLeast(least) => Some(format!("ratio >= {least}")),
            Bar::Ours(most) => Some(format!("ours <= {most} {}", self.unit)),
            Bar::None => None,
        }
    }

    fn fields(&self) -> [(&'static str, Value); 10] {
        let spread = |of: Spread| json!([rounded(of.low), rounded(of.high)]);
        [
            ("name", json!(self.name)),
            ("ours", json!(rounded(self.ours.median))),
            ("raw", json!(self.raw.map(|(raw, _)| rounded(raw.median)))),
            ("unit", json!(self.unit)),
            ("ratio", json!(self.ratio().map(rounded))),
            ("bar", json!(self.bar_text())),
            ("pass", json!(self.passes())),
            ("ours_10_to_90_percent", spread(self.ours)),
            ("raw_10_to_90_percent", json!(self.raw.map(|(raw, _)| spread(raw)))),
            ("ratio_10_to_90_percent", json!(self.raw.map(|(_, ratio)| spread(ratio)))),
        ]
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |spread: Spread| {
            let [low, median, high] = [spread.low, spread.median, spread.high].map(rounded);
            format!("{median} ({low} to {high})")
        };
        let raw = self.raw.map(|(raw, _)| side(raw)).unwrap_or_default();
        write!(f, "{:48} {:28} {raw:28} {:4}", self.name, side(self.ours), self.unit)?;
        if let Some((_, Spread { low, median, high })) = self.raw {
            write!(f, " ratio {median:.3} ({low:.3} to {high:.3})")?;
        }
        match (self.passes(), self.bar_text()) {
            (Some(true), Some(bar)) => write!(f, ", {bar}: met"),
            (Some(false), Some(bar)) => write!(f, ", {bar}: MISSED"),
            _ => Ok(()),
        }
    }
}

/// Four digits that mean something.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Everything as it is kept in `results/`: a line for each result, the name first, so that people read it and a diff shows what changed.
pub(crate) fn report(context: &Context, quick: bool, entries: &[Entry]) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let what = "Cost of the runtime against the driver called directly, in the same run, by turns: medians, and the tenth and ninetieth \
                percentile. A ratio is ours over raw, of the two that were taken one right after the other.";
    let driver = driver_version().unwrap_or_else(|| format!("CUDA {}", context.driver().version()));
    let command = "cargo bench -p tilewright-cuda --bench gpu";
    let command = if quick { format!("{command} -- --quick") } else { command.to_owned() };
    let head = [
        ("what", json!(what)),
        ("gpu", json!(context.device().name)),
        ("driver", json!(driver)),
        ("date", json!(date(since.as_secs() / 86_400))),
        ("command", json!(command)),
    ];
    let line = |entry: &Entry| format!("  {{{}}}", members(&entry.fields(), ", "));
    let lines: Vec<String> = entries.iter().map(line).collect();
    format!("{{\n {},\n \"entries\": [\n{}\n ]\n}}\n", members(&head, ",\n "), lines.join(",\n"))
}

fn members(fields: &[(&str, Value)], separator: &str) -> String {
    let members: Vec<String> = fields.iter().map(|(name, value)| format!("\"{name}\": {value}")).collect();
    members.join(separator)
}

/// The version of the driver's build, such as 580.159.04.
fn driver_version() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    text.split_whitespace().find(is_version).map(str::to_owned)
}

/// The date of a day since 1970, in the Gregorian calendar.
fn date(mut days: u64) -> String {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}

/// Seconds that something takes, each of `count` times.
#[inline]
pub(crate) fn seconds_each(count: usize, mut work: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let begin = Instant::now();
    for _ in 0..count {
        work()?;
    }
    #[allow(clippy::cast_precision_loss, reason = "thousands")]
    Ok(begin.elapsed().as_secs_f64() / count as f64)
}

/// Takes samples by turns, so that what changes with time (clocks, heat, other users) happens to both, and compares those of a round. An
/// eighth more is taken first, and thrown away.
pub(crate) fn by_turns(
    samples: usize,
    mut ours: impl FnMut() -> Outcome<f64>,
    mut raw: impl FnMut() -> Outcome<f64>,
) -> Outcome<Turns> {
    let warm_up = samples.div_ceil(8);
    let mut rounds = Vec::with_capacity(samples);
    for n in 0..warm_up + samples {
        // Who goes first changes too.
        let (a, b) = if n % 2 == 0 {
            let a = ours()?;
            (a, raw()?)
        } else {
            let b = raw()?;
            (ours()?, b)
        };
        if n >= warm_up {
            rounds.push((a, b));
        }
    }
    let spread = |of: fn(&(f64, f64)) -> f64| Spread::of(rounds.iter().map(of).collect());
    Ok(Turns { ours: spread(|round| round.0), raw: spread(|round| round.1), ratio: spread(|(a, b)| a / b) })
}

/// An entry of times, in a unit of so many to the second.
pub(crate) fn times(
    name: impl Into<String>,
    (unit, per_second): (&'static str, f64),
    turns: Turns,
    bar: Bar,
) -> Entry {
    Entry::against_raw(name, unit, turns.map(|seconds| seconds * per_second, |ratio| ratio), bar)
}

pub(crate) const NANOSECONDS: (&str, f64) = ("ns", 1e9);
pub(crate) const MICROSECONDS: (&str, f64) = ("us", 1e6);
pub(crate) const MILLISECONDS: (&str, f64) = ("ms", 1e3);
