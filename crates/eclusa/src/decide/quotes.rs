//! The start times quoted at intake, to compare them with the real ones.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use eclusa_core::{JobId, Time};
use hashbrown::HashMap;

/// The most quotes that are kept. Beyond that the oldest are dropped, and the measurement becomes a sample.
const REMEMBERED: usize = 10_000;
/// How many starts are kept, for jobs that a worker started before their quote was noted.
const STARTS: usize = 64;

/// The quotes of jobs that this process enqueued and that have not started.
#[derive(Default)]
pub(super) struct Quotes(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_job: HashMap<JobId, Time, foldhash::fast::FixedState>,
    order: VecDeque<JobId>,
    /// The last jobs that started without a quote, and when.
    started: VecDeque<(JobId, Time)>,
}

impl Quotes {
    /// Notes that `job` should start at `eta`, or returns its start if it has started.
    pub(super) fn quoted(&self, job: JobId, eta: Time) -> Option<Time> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, at)) = known.started.iter().find(|(started, _)| *started == job) {
            return Some(*at);
        }
        if known.order.len() == REMEMBERED {
            let oldest = known.order.pop_front();
            oldest.and_then(|oldest| known.by_job.remove(&oldest));
        }
        known.order.push_back(job);
        known.by_job.insert(job, eta);
        None
    }

    /// Removes and returns the quoted start of `job`, which starts now.
    pub(super) fn started(&self, job: JobId, now: Time) -> Option<Time> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let quoted = known.by_job.remove(&job);
        if quoted.is_none() {
            if known.started.len() == STARTS {
                known.started.pop_front();
            }
            known.started.push_back((job, now));
        }
        quoted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_taken_once_and_their_number_is_bounded() {
        let quotes = Quotes::default();
        let job = |number: usize| JobId(number as u128);
        let now = Time::from_millis(9);
        for number in 0..=REMEMBERED {
            assert_eq!(quotes.quoted(job(number), Time::from_millis(7)), None);
        }
        assert_eq!(quotes.started(job(0), now), None);
        let twice = (quotes.started(job(1), now), quotes.started(job(1), now));
        assert_eq!(twice, (Some(Time::from_millis(7)), None));
        assert_eq!(quotes.0.lock().unwrap().order.len(), REMEMBERED);
    }

    #[test]
    fn a_job_that_started_before_its_quote_was_noted_is_compared_too() {
        let quotes = Quotes::default();
        let (start, quote) = (Time::from_millis(5), Time::from_millis(7));
        for number in 1..=STARTS as u128 + 1 {
            assert_eq!(quotes.started(JobId(number), start), None);
        }
        assert_eq!(quotes.quoted(JobId(1), quote), None, "its start is forgotten");
        assert_eq!(quotes.quoted(JobId(2), quote), Some(start));
    }
}
