//! How far the real starts of jobs were from the estimates at intake, in the last hour.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eclusa_core::Name;
use tokio::time::Instant;

use crate::words::QuoteErrors;

/// What is older does not count.
const SPAN: Duration = Duration::from_hours(1);
/// Starts that are kept for a lane; with more of them it is the last that count.
const KEPT: usize = 1_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Quoted(Mutex<BTreeMap<Name, VecDeque<(Instant, Duration)>>>);

impl Quoted {
    /// A job of `lane` started `off` before or after the estimate.
    pub(crate) fn note(&self, lane: &Name, off: Duration, now: Instant) {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !lanes.contains_key(lane) {
            lanes.insert(lane.clone(), VecDeque::new());
        }
        let Some(starts) = lanes.get_mut(lane) else { return };
        if starts.len() == KEPT {
            starts.pop_front();
        }
        starts.push_back((now, off));
    }

    /// How far starts in `lane` were off; `None` if none were compared.
    pub(crate) fn of(&self, lane: &Name, now: Instant) -> Option<QuoteErrors> {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let starts = lanes.get_mut(lane)?;
        while starts.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > SPAN) {
            starts.pop_front();
        }
        let mut off: Vec<_> = starts.iter().map(|(_, off)| *off).collect();
        off.sort_unstable();
        let quantile = |percent: usize| off.get((off.len() * percent).div_ceil(100).saturating_sub(1));
        let seconds = |percent| quantile(percent).map(Duration::as_secs_f64);
        let (p50_sec, p95_sec) = (seconds(50)?, seconds(95)?);
        Some(QuoteErrors { count: off.len() as u64, p50_sec, p95_sec })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_the_last_starts_of_the_last_hour_count() {
        let (quoted, start) = (Quoted::default(), Instant::now());
        let (mail, other) = (Name::new("mail").unwrap(), Name::new("other").unwrap());
        assert_eq!(quoted.of(&mail, start), None);
        for ms in 1..=100 {
            quoted.note(&mail, Duration::from_millis(ms), start);
        }
        let seen = quoted.of(&mail, start);
        assert_eq!(seen, Some(QuoteErrors { count: 100, p50_sec: 0.05, p95_sec: 0.095 }));
        assert_eq!(quoted.of(&other, start), None);
        for _ in 0..KEPT {
            quoted.note(&mail, Duration::from_secs(1), start + SPAN / 2);
        }
        let seen = quoted.of(&mail, start + SPAN);
        assert_eq!(seen, Some(QuoteErrors { count: 1_000, p50_sec: 1.0, p95_sec: 1.0 }));
        assert_eq!(quoted.of(&mail, start + SPAN * 2), None);
    }
}
