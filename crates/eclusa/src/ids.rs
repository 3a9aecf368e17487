//! Job ids and lease nonces.

use std::sync::{Arc, Mutex, PoisonError};

use eclusa_core::{Clock, HashKey, JobId};
use uuid::Builder;

/// Random bytes fetched per system call.
const RANDOM_BATCH: usize = 1000;

/// Set in the nonce of every lease granted to an external worker, and in no other.
const FOREIGN: u64 = 1 << 63;

/// Makes unguessable ids: knowing a job's id allows reading it, and knowing a lease allows ending it.
pub(crate) struct Ids {
    clock: Arc<dyn Clock>,
    /// Random bytes not used yet.
    random: Mutex<Vec<u8>>,
}

impl Ids {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, random: Mutex::default() }
    }

    /// A unique id that sorts by time.
    pub(crate) fn job(&self) -> JobId {
        let now = self.clock.now().as_millis();
        JobId(Builder::from_unix_timestamp_millis(now, &self.random()).into_uuid().as_u128())
    }

    /// A nonce for a lease that an external worker may end.
    pub(crate) fn foreign_nonce(&self) -> u64 {
        u64::from_ne_bytes(self.random()) | FOREIGN
    }

    /// A hash key for a store that has none.
    pub(crate) fn hash_key(&self) -> HashKey {
        HashKey::new(u128::from_ne_bytes(self.random()))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that needs unguessable values")]
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

/// When the id of a job was made, in milliseconds since the Unix epoch.
pub(crate) fn made_ms(job: JobId) -> u64 {
    u64::try_from(job.0 >> 80).unwrap_or_default()
}

/// Seeds the hash maps of the engines in this process with an unguessable value.
#[expect(clippy::disallowed_methods, reason = "a predictable seed would be useless")]
pub(crate) fn seed_maps() {
    let mut seed = [0; 8];
    if getrandom::fill(&mut seed).is_err() {
        fastrand::fill(&mut seed);
    }
    eclusa_core::seed_maps(u64::from_ne_bytes(seed));
}

/// A nonce for a question of this process, by which its answer is recognised.
pub(crate) fn own_nonce() -> u64 {
    fastrand::u64(..FOREIGN)
}

/// Whether a lease with this nonce belongs to an external worker.
pub(crate) const fn is_foreign(nonce: u64) -> bool {
    nonce & FOREIGN != 0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::SystemClock;

    #[test]
    fn the_id_of_a_job_tells_when_it_was_made() {
        struct At(u64);
        impl Clock for At {
            fn now(&self) -> eclusa_core::Time {
                eclusa_core::Time::from_millis(self.0)
            }
        }
        assert_eq!(made_ms(Ids::new(Arc::new(At(1_700_000_000_123))).job()), 1_700_000_000_123);
    }

    #[test]
    fn random_bytes_are_never_repeated() {
        let ids = Ids::new(Arc::new(SystemClock));
        let taken: BTreeSet<[u8; 10]> = (0..1000).map(|_| ids.random()).collect();
        assert_eq!(taken.len(), 1000);
    }

    #[test]
    fn a_nonce_says_whether_its_lease_is_foreign() {
        let ids = Ids::new(Arc::new(SystemClock));
        assert!((0..100).all(|_| is_foreign(ids.foreign_nonce()) && !is_foreign(own_nonce())));
    }
}
