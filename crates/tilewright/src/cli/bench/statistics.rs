//! Numbers about numbers.

use serde::{Deserialize, Serialize};

/// The middle of some samples, and how far they spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    /// Tenth percentile.
    pub(super) low: f64,
    /// Ninetieth percentile.
    pub(super) high: f64,
}

impl Spread {
    /// None of no samples.
    pub(super) fn of(samples: &[f64]) -> Option<Spread> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Spread {
            median: percentile(&sorted, 0.5)?,
            low: percentile(&sorted, 0.1)?,
            high: percentile(&sorted, 0.9)?,
        })
    }

    pub(super) fn map(self, change: impl Fn(f64) -> f64) -> Spread {
        Spread { median: change(self.median), low: change(self.low), high: change(self.high) }
    }
}

/// Of sorted samples, between neighbours in proportion.
fn percentile(sorted: &[f64], part: f64) -> Option<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a few thousand samples")]
    let place = part * sorted.len().checked_sub(1)? as f64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and their number")]
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    Some(sorted[below] + (sorted[above] - sorted[below]) * place.fract())
}

/// The median of the quotients of samples that were taken side by side: what changes with time (clocks, heat) happens to both and cancels.
pub(super) fn paired_ratio(above: &[f64], below: &[f64]) -> Option<f64> {
    let quotients: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
    Spread::of(&quotients).map(|spread| spread.median)
}

/// None of no numbers.
pub(super) fn geometric_mean(numbers: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut logarithms) = (0.0, 0.0);
    for number in numbers {
        count += 1.0;
        logarithms += number.ln();
    }
    (count > 0.0).then(|| (logarithms / count).exp())
}

/// Four digits that mean something.
pub(super) fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_percentiles_of_samples_in_any_order() {
        let samples: Vec<f64> = [7, 0, 10, 3, 1, 2, 9, 4, 5, 6, 8].map(f64::from).to_vec();
        assert_eq!(Spread::of(&samples), Some(Spread { median: 5.0, low: 1.0, high: 9.0 }));
        assert_eq!(Spread::of(&[1.0, 2.0]).map(|spread| spread.median), Some(1.5));
        assert_eq!(Spread::of(&[4.0]), Some(Spread { median: 4.0, low: 4.0, high: 4.0 }));
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn ratios_of_neighbours_cancel_what_both_suffer() {
        // The machine slows down by half: the ratio stays.
        let (ours, theirs) = ([1.0, 1.0, 2.0], [1.1, 1.1, 2.2]);
        assert!((paired_ratio(&theirs, &ours).unwrap() - 1.1).abs() < 1e-12);
        assert_eq!(paired_ratio(&[], &[]), None);
    }

    #[test]
    fn the_geometric_mean_of_a_ratio_and_its_inverse_is_one() {
        assert!((geometric_mean([2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert!((geometric_mean([1.0, 10.0, 100.0]).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(geometric_mean([]), None);
    }

    #[test]
    fn four_digits_are_kept() {
        assert_eq!([123_456.0, 0.001_234_56, 1.0].map(rounded), [123_500.0, 0.001_235, 1.0]);
    }
}
