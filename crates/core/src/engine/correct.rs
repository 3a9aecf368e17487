//! Balances set to what the upstream itself counts.

use super::Engine;
use crate::time::Time;
use crate::verbs::{Corrected, Correction};

impl Engine {
    /// Sets each bucket to what its upstream says it holds, less what calls under way hold, and never above what it could
    /// refill to.
    pub fn correct(&mut self, corrections: &[Correction], now: Time) -> Vec<Corrected> {
        let correct = |correction: &Correction| {
            let Correction { bucket, spec, theirs } = correction;
            let index = self.buckets.find_or_create_under(&bucket.key(), *spec, now);
            let (before, after) = self.buckets.correct(index, *theirs, now);
            self.stir_waiting_for(index);
            Corrected { before, after }
        };
        corrections.iter().map(correct).collect()
    }
}
