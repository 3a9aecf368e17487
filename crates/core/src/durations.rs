//! A histogram of durations in fixed buckets, small enough to keep one per lane and upstream.
//!
//! Each power of two of milliseconds is divided into four buckets, so that a quantile is off by an eighth at most. Counting is
//! one increment.

use crate::time::Span;

/// Buckets per power of two.
const PARTS: u64 = 4;
/// Up to about six days; what takes longer counts in the last bucket.
const BUCKETS: usize = 112;

/// How often something took how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Durations {
    counts: Box<[u32; BUCKETS]>,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: Box::new([0; BUCKETS]) }
    }
}

/// Two quantiles of durations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quantiles {
    /// Half took no longer.
    pub p50: Span,
    /// Nineteen of twenty took no longer.
    pub p95: Span,
}

impl Durations {
    /// Counts one.
    pub(crate) fn add(&mut self, span: Span) {
        let count = &mut self.counts[bucket(span)];
        *count = count.saturating_add(1);
    }

    /// Adds `part` of `whole` of each count of `other`.
    pub(crate) fn add_share(&mut self, other: &Self, part: u64, whole: u64) {
        for (count, other) in self.counts.iter_mut().zip(other.counts.iter()) {
            let share = u64::from(*other) * part / whole.max(1);
            *count = count.saturating_add(u32::try_from(share).unwrap_or(u32::MAX));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
    }

    /// The two quantiles; `None` if nothing was counted.
    pub(crate) fn quantiles(&self) -> Option<Quantiles> {
        let total: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        (total > 0).then(|| Quantiles { p50: self.quantile(total, 50), p95: self.quantile(total, 95) })
    }

    /// The middle of the bucket in which the duration with this rank lies.
    fn quantile(&self, total: u64, percent: u64) -> Span {
        let rank = (total * percent).div_ceil(100).max(1);
        let mut below = 0;
        let reached = |count: &u32| {
            below += u64::from(*count);
            below >= rank
        };
        let found = self.counts.iter().position(reached).unwrap_or(BUCKETS - 1);
        Span::from_millis(u64::midpoint(lower_bound(found), lower_bound(found + 1) - 1))
    }
}

fn bucket(span: Span) -> usize {
    let ms = span.as_millis();
    if ms < PARTS {
        return usize::try_from(ms).unwrap_or_default();
    }
    let power = u64::from(ms.ilog2());
    let part = (ms >> (power - 2)) % PARTS;
    usize::try_from((power - 1) * PARTS + part).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The shortest duration of a bucket, in milliseconds.
const fn lower_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PARTS {
        return bucket;
    }
    let (power, part) = (bucket / PARTS + 1, bucket % PARTS);
    (PARTS + part) << (power - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_within_its_bucket() {
        for ms in (0..2_000).chain([4_095, 4_096, 86_400_000, (1 << 29) - 1]) {
            let found = bucket(Span::from_millis(ms));
            assert!(lower_bound(found) <= ms && ms < lower_bound(found + 1), "{ms} is in bucket {found}");
        }
        assert_eq!(bucket(Span::from_millis(u64::MAX)), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_off_by_an_eighth_at_most() {
        let mut durations = Durations::default();
        assert_eq!(durations.quantiles(), None);
        (1..=1_000).for_each(|ms| durations.add(Span::from_millis(ms)));
        let Quantiles { p50, p95 } = durations.quantiles().unwrap();
        assert!(p50.as_millis().abs_diff(500) <= 63, "{p50:?}");
        assert!(p95.as_millis().abs_diff(950) <= 119, "{p95:?}");
        durations.clear();
        assert_eq!(durations.quantiles(), None);
    }

    #[test]
    fn a_share_of_another_histogram_counts_as_much() {
        let (mut sum, mut other) = (Durations::default(), Durations::default());
        (0..10).for_each(|_| other.add(Span::from_millis(1_000)));
        (0..4).for_each(|_| sum.add(Span::ZERO));
        sum.add_share(&other, 3, 10);
        assert_eq!(sum.quantiles().map(|both| both.p50), Some(Span::ZERO), "four of seven");
        sum.add_share(&other, 2, 10);
        assert!(sum.quantiles().is_some_and(|both| both.p50 > Span::from_millis(800)), "five of nine");
    }
}
