//! How maps hash keys that callers choose: with a seed of the process, so that nobody can choose keys that collide.
//!
//! The seed decides where a key is in memory and nothing else: nothing may depend on the order in which such a map is walked.

use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

static SEED: OnceLock<SharedSeed> = OnceLock::new();

/// Seeds the maps that are made in this process from now on; only the first call counts. Without it their seed is fixed.
pub fn seed_maps(seed: u64) {
    let _ = SEED.set(SharedSeed::from_u64(seed));
}

/// Hashes with the seed of the process.
#[derive(Debug, Clone)]
pub(crate) struct Seeded(SeedableRandomState);

impl Default for Seeded {
    fn default() -> Self {
        Self(
            SEED.get()
                .map_or_else(SeedableRandomState::fixed, |seed| SeedableRandomState::with_seed(0, seed)),
        )
    }
}

impl BuildHasher for Seeded {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_depend_on_the_seed_of_the_process() {
        let unseeded = Seeded::default().hash_one("acme");
        seed_maps(7);
        let seeded = Seeded::default().hash_one("acme");
        assert_ne!(seeded, unseeded);
        seed_maps(8);
        assert_eq!(Seeded::default().hash_one("acme"), seeded, "maps that are there keep their seed");
    }
}
