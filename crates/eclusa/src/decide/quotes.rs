//! Which start was quoted for a job when it was taken in, so that it can be compared with the real one.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use eclusa_core::{JobId, Time};
use hashbrown::HashMap;

/// Quotes of more jobs are forgotten, the oldest first: what is measured is a sample then.
const REMEMBERED: usize = 10_000;

/// The quotes of jobs that this process took in and that did not start yet.
#[derive(Default)]
pub(super) struct Quotes(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_job: HashMap<JobId, Time, foldhash::fast::FixedState>,
    order: VecDeque<JobId>,
}

impl Quotes {
    /// `job` was told that it will start then.
    pub(super) fn quoted(&self, job: JobId, eta: Time) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.order.len() == REMEMBERED {
            let oldest = known.order.pop_front();
            oldest.and_then(|oldest| known.by_job.remove(&oldest));
        }
        known.order.push_back(job);
        known.by_job.insert(job, eta);
    }

    /// What `job` was told, which starts now.
    pub(super) fn take(&self, job: JobId) -> Option<Time> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).by_job.remove(&job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_is_taken_once_and_only_so_many_are_remembered() {
        let quotes = Quotes::default();
        let job = |number: usize| JobId(number as u128);
        for number in 0..=REMEMBERED {
            quotes.quoted(job(number), Time::from_millis(7));
        }
        assert_eq!(quotes.take(job(0)), None);
        assert_eq!((quotes.take(job(1)), quotes.take(job(1))), (Some(Time::from_millis(7)), None));
        assert_eq!(quotes.0.lock().unwrap().order.len(), REMEMBERED);
    }
}
