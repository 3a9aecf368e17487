//! Rates of lanes over about the last minute, from samples of their totals.
//!
//! Totals cover all processes that share the store, and so do the rates; the samples are local.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::{LaneView, Name, Totals};
use tokio::time::Instant;

use super::AnswerMeter;
use crate::words::LaneRates;

/// How often totals are sampled.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// The period that rates cover, once the process has run that long.
const SPAN: Duration = Duration::from_mins(1);
/// A shorter period gives no meaningful rate.
const LEAST: Duration = Duration::from_secs(1);

/// Samples of the totals of all lanes in the last minute.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    samples: Mutex<VecDeque<TotalsSample>>,
}

#[derive(Debug)]
struct TotalsSample {
    at: Instant,
    /// By lane, with the direct requests answered by this process.
    totals: Vec<(Name, Totals, u64)>,
}

impl Rates {
    /// Takes a sample of the totals.
    pub(crate) fn sample(&self, lanes: &[LaneView], answers: &AnswerMeter, at: Instant) {
        let totals = lanes.iter().map(|lane| (lane.name.clone(), lane.totals, answers.total(&lane.name)));
        let totals = totals.collect();
        let mut samples = self.lock();
        samples.push_back(TotalsSample { at, totals });
        while samples.get(1).is_some_and(|second| at - second.at >= SPAN) {
            samples.pop_front();
        }
    }

    /// The rates of `lane`, just read, since the oldest sample.
    pub(crate) fn of(&self, lane: &LaneView, answers: &AnswerMeter, now: Instant) -> LaneRates {
        let samples = self.lock();
        let Some(oldest) = samples.front() else { return LaneRates::default() };
        let then = oldest.totals.iter().find(|(name, ..)| *name == lane.name);
        let (then, answered) = then.map(|(_, totals, answered)| (*totals, *answered)).unwrap_or_default();
        let span = now.saturating_duration_since(oldest.at);
        let per_second = |happened: u64| {
            #[expect(clippy::cast_precision_loss, reason = "a rate needs no more precision")]
            let happened = happened as f64;
            rounded(happened / span.max(LEAST).as_secs_f64())
        };
        let rate = |count: fn(&Totals) -> u64| per_second(count(&lane.totals).saturating_sub(count(&then)));
        LaneRates {
            accepted: rate(|totals| totals.accepted),
            started: rate(|totals| totals.started),
            completed: rate(Totals::completed_jobs),
            failed: rate(|totals| totals.failed),
            dropped: rate(Totals::dropped_jobs),
            answered: per_second(answers.total(&lane.name).saturating_sub(answered)),
            seconds: rounded(span.as_secs_f64()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<TotalsSample>> {
        self.samples.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn rounded(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(totals: Totals) -> LaneView {
        LaneView {
            name: Name::new("mail").unwrap(),
            paused: false,
            paused_since: None,
            queued: [0; 3],
            pending: 0,
            processing: 0,
            waiting_bytes: 0,
            finished: 0,
            dead_letters: 0,
            oldest_dead_letter: None,
            dead_letters_until: None,
            top_code: None,
            top_tenant: None,
            letter_ages: eclusa_core::LetterAges::default(),
            oldest_waiting: None,
            capacity: None,
            totals,
            gates: Vec::new(),
            chain: Vec::new(),
            ttl: None,
            held: None,
            last_start: None,
            will_expire: 0,
        }
    }

    fn accepted(accepted: u64) -> LaneView {
        lane(Totals { accepted, ..Totals::default() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_rate_is_what_happened_since_the_oldest_sample() {
        let (rates, start) = (Rates::default(), Instant::now());
        assert_eq!(
            rates.of(&accepted(7), &AnswerMeter::default(), start),
            LaneRates::default(),
            "nothing is known yet"
        );
        rates.sample(&[accepted(7)], &AnswerMeter::default(), start);
        let soon = rates.of(&accepted(9), &AnswerMeter::default(), start + Duration::from_millis(10));
        assert_eq!((soon.accepted, soon.seconds), (2.0, 0.01), "a period this short gives no rate");
        let later = rates.of(&accepted(22), &AnswerMeter::default(), start + Duration::from_secs(10));
        assert_eq!((later.accepted, later.seconds), (1.5, 10.0));
    }

    #[tokio::test(start_paused = true)]
    async fn samples_older_than_a_minute_are_dropped() {
        let (rates, start) = (Rates::default(), Instant::now());
        for number in 0..100 {
            // One job a second for 250 seconds, then none.
            rates.sample(
                &[accepted((number * 5).min(250))],
                &AnswerMeter::default(),
                start + EVERY * u32::try_from(number).unwrap(),
            );
        }
        assert_eq!(rates.lock().len(), 13);
        let seen = |total| {
            let rates = rates.of(&accepted(total), &AnswerMeter::default(), start + EVERY * 99);
            (rates.accepted, rates.seconds)
        };
        assert_eq!((seen(250), seen(310)), ((0.0, 60.0), (1.0, 60.0)));
    }

    #[tokio::test(start_paused = true)]
    async fn every_kind_of_completion_and_drop_counts() {
        let (rates, answers, start) = (Rates::default(), AnswerMeter::default(), Instant::now());
        let mail = Name::new("mail").unwrap();
        answers.count(&mail, 200);
        rates.sample(&[lane(Totals::default())], &answers, start);
        [200, 429, 429].into_iter().for_each(|status| answers.count(&mail, status));
        let totals = Totals {
            started: 10,
            completed: 1,
            cache_hits: 5,
            coalesced: 1,
            fallbacks: 1,
            answered_at_intake: 4,
            failed: 3,
            expired: 1,
            preempted: 2,
            refused: 3,
            ..Totals::default()
        };
        let rates = rates.of(&lane(totals), &answers, start + Duration::from_secs(1));
        let expected = LaneRates {
            accepted: 0.0,
            started: 10.0,
            completed: 4.0,
            failed: 3.0,
            dropped: 6.0,
            answered: 3.0,
            seconds: 1.0,
        };
        assert_eq!(rates, expected);
    }
}
