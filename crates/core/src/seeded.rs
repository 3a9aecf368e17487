//! Hashing of keys that callers choose, with a per-process seed, so that callers cannot choose keys that collide.
//!
//! Nothing may depend on the iteration order of such a map.

use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::SharedSeed;
use foldhash::fast::{FoldHasher, SeedableRandomState};

static SEED: OnceLock<SharedSeed> = OnceLock::new();

/// Seeds the maps that this process creates from now on; only the first call counts. Without it the seed is fixed.
pub fn seed_maps(seed: u64) {
    let _ = SEED.set(SharedSeed::from_u64(seed));
}

/// Hashes with the process's seed.
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
    fn hashes_depend_on_the_seed_of_the_process() {
        let unseeded = Seeded::default().hash_one("acme");
        seed_maps(7);
        let seeded = Seeded::default().hash_one("acme");
        assert_ne!(seeded, unseeded);
        seed_maps(8);
        assert_eq!(Seeded::default().hash_one("acme"), seeded, "only the first seed counts");
    }
}
