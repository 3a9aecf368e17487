//! Corrections: balances set to what the upstream reports.

use super::Engine;
use crate::gate::Bucket;
use crate::time::Time;
use crate::verbs::{Corrected, Correction};

impl Engine {
    /// Sets each bucket to the balance that its upstream reports, minus what calls in flight hold and what was spent
    /// since the upstream was asked, and never above what it could have refilled to. A bucket whose policy gives credit
    /// is only lowered.
    pub fn correct(&mut self, corrections: &[Correction], now: Time) -> Vec<Corrected> {
        corrections.iter().map(|correction| self.correct_one(correction, now)).collect()
    }

    fn correct_one(&mut self, correction: &Correction, now: Time) -> Corrected {
        let Correction { bucket, spec, reported, when_asked, asked_ago } = correction;
        let key = bucket.key();
        if self.buckets.find(&key).is_none() {
            let mut full = Bucket::full(spec, now);
            let uncertainty = full.correct(spec, *reported, (*when_asked, *asked_ago), false, now);
            let (before, after) = (spec.capacity(), full.balance(spec, now));
            if before == after {
                return Corrected { before, after, uncertainty };
            }
        }
        let index = self.buckets.find_or_create_under(&key, *spec, now);
        let corrected = self.buckets.correct(index, correction, now);
        self.mark_waiting_ready(index);
        corrected
    }
}
