//! The gates of one API: on Redis while it answers, else in this process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eclusa_core::gate::GateSpecs;
use eclusa_core::{Clock, Engine, Name, Spec, StoreError, Time, UpstreamSpec};
use tokio::time::Instant;

use super::{Limits, LimitsError};
use crate::SystemClock;
use crate::store::RedisStore;

/// A Redis that did not answer is asked again so much later.
const ASK_AGAIN: Duration = Duration::from_secs(1);

pub(super) struct State {
    pub(super) name: Name,
    shared: Option<Shared>,
    local: Mutex<Engine>,
}

struct Shared {
    store: RedisStore,
    /// When to try a server that did not answer; `None` while it does.
    try_at: Mutex<Option<Instant>>,
}

impl State {
    pub(super) fn new(limits: &Limits, name: &str, gates: GateSpecs) -> Result<Self, LimitsError> {
        let name = Name::new(name)?;
        // One upstream alone cannot be at odds with another.
        let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(name.clone(), gates)]).unwrap_or_default();
        let shared = match &limits.redis {
            Some(url) => {
                Some(Shared { store: RedisStore::new(url, &limits.prefix, &spec)?, try_at: Mutex::default() })
            }
            None => None,
        };
        Ok(Self { name, shared, local: Mutex::new(Engine::new(&spec)) })
    }

    /// Asks the one or the other, which follow the same rules.
    pub(super) async fn ask<T>(
        &self,
        shared: impl AsyncFnOnce(&RedisStore) -> Result<T, StoreError>,
        local: impl FnOnce(&mut Engine, Time) -> T,
    ) -> T {
        if let Some(redis) = self.shared.as_ref().filter(|redis| redis.may_answer()) {
            match shared(&redis.store).await {
                Ok(answer) => {
                    self.found(redis);
                    return answer;
                }
                Err(error) => self.lost(redis, &error),
            }
        }
        local(&mut lock(&self.local), SystemClock.now())
    }

    fn lost(&self, redis: &Shared, error: &StoreError) {
        let try_at = Instant::now() + ASK_AGAIN;
        if lock(&redis.try_at).replace(try_at).is_none() {
            tracing::warn!(name = %self.name, %error, "Limits are this process's own until Redis answers");
        }
    }

    fn found(&self, redis: &Shared) {
        if lock(&redis.try_at).take().is_some() {
            tracing::info!(name = %self.name, "Limits are shared again");
            // Failures in a row that were counted meanwhile say nothing of the next time.
            lock(&self.local).reset(&self.name, SystemClock.now());
        }
    }
}

impl Shared {
    /// Whether to ask it. Only one of those who come when it is time to try finds out whether it does not answer; the
    /// others need not wait for that.
    fn may_answer(&self) -> bool {
        let now = Instant::now();
        match &mut *lock(&self.try_at) {
            None => true,
            Some(try_at) if *try_at <= now => {
                *try_at = now + ASK_AGAIN;
                true
            }
            Some(_) => false,
        }
    }
}

/// What it holds is whole also where somebody panicked: the engine has no half-done verbs.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
