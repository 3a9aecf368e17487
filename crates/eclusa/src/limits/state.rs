//! The store that all limiters and breakers of one [`Limits`](super::Limits) use.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use eclusa_core::gate::GateSpecs;
use eclusa_core::{Name, Spec, UpstreamSpec};

use super::LimitsError;
use crate::SystemClock;
use crate::ids::seed_maps;
use crate::store::{AnyStore, EmbeddedStore, RedisSettings, RedisStore};

/// How this process is described to the others.
const ABOUT: &str = "library";

/// A store with the rules of all APIs named so far.
pub(super) struct SharedStore {
    store: AnyStore,
    rules: Mutex<LibraryRules>,
    /// The number of rule changes that the store has applied.
    applied: tokio::sync::Mutex<u64>,
}

#[derive(Default)]
struct LibraryRules {
    gates: BTreeMap<Name, GateSpecs>,
    changes: u64,
}

impl LibraryRules {
    fn spec(&self) -> Spec {
        let upstreams = self.gates.iter().map(|(name, gates)| UpstreamSpec::new(name.clone(), gates.clone()));
        // The names are unique, so the spec is always valid.
        Spec::partial(upstreams.collect()).unwrap_or_default()
    }
}

impl SharedStore {
    /// Opens a store on the Redis at `url` with keys that begin with `prefix`, or in this process.
    pub(super) fn open(url: Option<&str>, prefix: &str) -> Result<Self, LimitsError> {
        seed_maps();
        let nothing = Spec::default();
        let store = match url {
            Some(url) => {
                let settings = RedisSettings {
                    prefix: prefix.to_owned(),
                    library: true,
                    about: ABOUT.to_owned(),
                    ..RedisSettings::default()
                };
                AnyStore::Redis(Box::new(RedisStore::open(url, &settings, &nothing)?))
            }
            None => AnyStore::Embedded(Box::new(EmbeddedStore::memory(&nothing, Arc::new(SystemClock)))),
        };
        Ok(Self { store, rules: Mutex::default(), applied: tokio::sync::Mutex::new(0) })
    }

    /// Adds a rule for the API called `name`.
    pub(super) fn add(&self, name: &Name, rule: impl FnOnce(&mut GateSpecs)) {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rule(rules.gates.entry(name.clone()).or_default());
        rules.changes += 1;
    }

    /// The store, after it has applied all rules.
    async fn store(&self) -> &AnyStore {
        let mut applied = self.applied.lock().await;
        let changed = {
            let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
            (*applied < rules.changes).then(|| (rules.changes, rules.spec()))
        };
        if let Some((changes, spec)) = changed {
            // If Redis does not answer now, the next question that reaches it carries the rules.
            let _ = self.store.configure(ABOUT, &spec).await;
            *applied = changes;
        }
        &self.store
    }
}

/// The gates of one API.
pub(super) struct ApiState {
    pub(super) name: Name,
    shared: Arc<SharedStore>,
}

impl ApiState {
    pub(super) fn new(name: Name, shared: Arc<SharedStore>) -> Self {
        Self { name, shared }
    }

    /// The store that holds them.
    pub(super) async fn store(&self) -> &AnyStore {
        self.shared.store().await
    }
}
