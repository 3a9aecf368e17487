//! Ids of jobs and nonces of leases.

use std::sync::{Arc, Mutex, PoisonError};

use eclusa_core::{Clock, HashKey, JobId};
use uuid::Builder;

/// Bytes fetched at once: each fetch is a call to the system.
const RANDOM_BATCH: usize = 1000;

/// Set in the nonce of every lease that was given to a worker elsewhere, and in none of our own.
const FOREIGN: u64 = 1 << 63;

/// Makes ids that nobody can guess: who knows the id of a job may see it, and who knows a lease may end it.
pub(crate) struct Ids {
    clock: Arc<dyn Clock>,
    /// Random bytes that were fetched and not used.
    random: Mutex<Vec<u8>>,
}

impl Ids {
    /// Ids with the time of `clock`.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, random: Mutex::default() }
    }

    /// An id that nobody else has, and that sorts by time.
    pub(crate) fn job(&self) -> JobId {
        let now = self.clock.now().as_millis();
        JobId(Builder::from_unix_timestamp_millis(now, &self.random()).into_uuid().as_u128())
    }

    /// Makes a lease one that a worker elsewhere may end.
    pub(crate) fn foreign_nonce(&self) -> u64 {
        u64::from_ne_bytes(self.random()) | FOREIGN
    }

    /// A key to offer a store that has none.
    pub(crate) fn hash_key(&self) -> HashKey {
        HashKey::new(u128::from_ne_bytes(self.random()))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that needs what nobody can guess")]
    fn random<const N: usize>(&self) -> [u8; N] {
        let mut left = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < N {
            left.resize(RANDOM_BATCH.max(N), 0);
            if getrandom::fill(&mut left).is_err() {
                fastrand::fill(&mut left);
            }
        }
        let rest = left.len() - N;
        let taken = std::array::from_fn(|at| left[rest + at]);
        left.truncate(rest);
        taken
    }
}

/// Seeds the maps of the engines of this process with what nobody can guess.
#[expect(clippy::disallowed_methods, reason = "a seed that is known would be none")]
pub(crate) fn seed_maps() {
    let mut seed = [0; 8];
    if getrandom::fill(&mut seed).is_err() {
        fastrand::fill(&mut seed);
    }
    eclusa_core::seed_maps(u64::from_ne_bytes(seed));
}

/// A number for one ask of our own, by which its answer is found again.
pub(crate) fn own_nonce() -> u64 {
    fastrand::u64(..FOREIGN)
}

/// Whether a lease with this nonce was given to a worker elsewhere.
pub(crate) const fn is_foreign(nonce: u64) -> bool {
    nonce & FOREIGN != 0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::SystemClock;

    #[test]
    fn no_bytes_are_given_twice() {
        let ids = Ids::new(Arc::new(SystemClock));
        let taken: BTreeSet<[u8; 10]> = (0..1000).map(|_| ids.random()).collect();
        assert_eq!(taken.len(), 1000);
    }

    #[test]
    fn a_nonce_tells_whose_lease_it_is() {
        let ids = Ids::new(Arc::new(SystemClock));
        assert!((0..100).all(|_| is_foreign(ids.foreign_nonce()) && !is_foreign(own_nonce())));
    }
}
