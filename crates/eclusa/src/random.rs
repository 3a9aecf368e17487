//! Random bytes that nobody can guess.

use std::sync::{Mutex, PoisonError};

/// Bytes fetched at once: each fetch is a call to the system.
const FETCHED: usize = 1000;

/// The system's random bytes; none is given twice.
#[derive(Debug, Default)]
pub(crate) struct Random {
    left: Mutex<Vec<u8>>,
}

impl Random {
    #[expect(clippy::disallowed_methods, reason = "the one place that needs what nobody can guess")]
    pub(crate) fn take<const N: usize>(&self) -> [u8; N] {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        if left.len() < N {
            left.resize(FETCHED.max(N), 0);
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_bytes_are_given_twice() {
        let random = Random::default();
        let taken: BTreeSet<[u8; 10]> = (0..1000).map(|_| random.take()).collect();
        assert_eq!(taken.len(), 1000);
    }
}
