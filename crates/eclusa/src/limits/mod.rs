//! Limits for Rust programs that make their own calls: a rate limiter and a circuit breaker for each API.
//!
//! With a Redis they are shared: by all processes that name the same server, and by gateways that keep their state there.
//! Without one they are this process's own. Whoever uses them sees no difference.
//!
//! ```
//! # use std::time::Duration;
//! use eclusa::limits::{Limits, Rate};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! # fn call_the_portal() -> bool { true }
//! let limits = Limits::new(None); // or Some("redis://127.0.0.1:6379")
//! let limiter = limits.rate_limiter("pncp", Rate { calls: 10, per: Duration::from_secs(1), burst: 10 })?;
//! let breaker = limits.circuit_breaker("pncp", 50, Duration::from_secs(120))?;
//!
//! if !breaker.is_degraded().await && limiter.acquire_within(Duration::from_secs(5)).await {
//!     if call_the_portal() {
//!         breaker.record_success().await;
//!     } else {
//!         breaker.record_failure().await;
//!     }
//! }
//! # Ok::<(), eclusa::limits::LimitsError>(()) })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A Redis that does not answer never fails a call: each process goes by its part of every limit until it answers again.
//!
//! A gateway may have other gates for the same API: those of both hold, as long as both are there. Where they name the same
//! gate, the rule of the process that was started or changed last applies to all.
//!
//! A limiter is only about the rate: it gives leave also while the breaker of the same API is open.

mod circuit_breaker;
mod rate_limiter;
mod state;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eclusa_core::gate::{BreakerSpec, BucketSpec, GateSpecs};
use eclusa_core::{Name, SpecError};
use thiserror::Error;

pub use self::circuit_breaker::CircuitBreaker;
pub use self::rate_limiter::RateLimiter;
use self::state::{ApiState, SharedStore};
use crate::config::on_or_off;
use crate::store::RedisError;

/// A limiter or breaker that cannot be.
#[derive(Debug, Error)]
pub enum LimitsError {
    /// Its name or its rule is wrong.
    #[error(transparent)]
    Rule(#[from] SpecError),
    /// The address of the Redis makes no sense.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// So many calls per span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub calls: u32,
    /// In how much time.
    pub per: Duration,
    /// How many may be made at once after a time without any.
    pub burst: u32,
}

/// Where the state of limiters and breakers lives. On Redis it takes part in the fleet as one process, from its first limiter
/// or breaker on until it, its clones and all its limiters and breakers are dropped.
#[derive(Clone)]
pub struct Limits {
    redis: Option<String>,
    prefix: String,
    /// Opened for the first limiter or breaker.
    shared: Arc<Mutex<Option<Arc<SharedStore>>>>,
}

impl Limits {
    /// On the Redis at this address, or in this process if there is none.
    pub fn new(redis: Option<&str>) -> Self {
        Self { redis: redis.map(ToOwned::to_owned), prefix: String::new(), shared: Arc::default() }
    }

    /// On the Redis that `REDIS_URL` names, if it does. `USE_REDIS_CIRCUIT_BREAKER=false` makes them this process's own all
    /// the same: a way back that needs no change of the program.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = variable("USE_REDIS_CIRCUIT_BREAKER");
        let unshared = set.is_some_and(|set| on_or_off(&set) == Some(false));
        let redis = variable("REDIS_URL").filter(|url| !url.is_empty() && !unshared);
        Self::new(redis.as_deref())
    }

    /// Whether other processes can share them.
    pub const fn are_shared(&self) -> bool {
        self.redis.is_some()
    }

    /// The same in keys that begin with `prefix`, to share them with a gateway whose `store.prefix` that is. Without, they
    /// are `circuit_breaker:<name>:failures`, `circuit_breaker:<name>:degraded_until` and `rate_limiter:<name>`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self.shared = Arc::default();
        self
    }

    /// The limiter of the API called `name`. All who share it should give the same rate.
    pub fn rate_limiter(&self, name: &str, rate: Rate) -> Result<RateLimiter, LimitsError> {
        let bucket = BucketSpec::new(rate.burst, rate.calls, rate.per.into())?;
        Ok(RateLimiter::new(self.state(name, |gates| gates.bucket = Some(bucket))?))
    }

    /// The breaker of the API called `name`, which `failures` in a row open for a while. All who share it should give the
    /// same numbers.
    pub fn circuit_breaker(
        &self,
        name: &str,
        failures: u32,
        open_for: Duration,
    ) -> Result<CircuitBreaker, LimitsError> {
        let breaker = BreakerSpec::new(failures, open_for.into(), 1)?;
        Ok(CircuitBreaker::new(self.state(name, |gates| gates.breaker = Some(breaker))?))
    }

    fn state(&self, name: &str, rule: impl FnOnce(&mut GateSpecs)) -> Result<ApiState, LimitsError> {
        let name = Name::new(name)?;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = match &*shared {
            Some(open) => open.clone(),
            None => shared.insert(Arc::new(SharedStore::open(self.redis.as_deref(), &self.prefix)?)).clone(),
        };
        shared.add(&name, rule);
        Ok(ApiState::new(name, shared))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_unshares_them_in_any_usual_way() {
        let shared = |set: Option<&str>| {
            Limits::from_variables(|name| match name {
                "REDIS_URL" => Some("redis://127.0.0.1".to_owned()),
                _ => set.map(ToOwned::to_owned),
            })
            .are_shared()
        };
        for set in ["false", "False", "FALSE", "0", "off", "Off", "no", " false "] {
            assert!(!shared(Some(set)), "{set:?}");
        }
        for set in [None, Some(""), Some("true"), Some("TRUE"), Some("1"), Some("on")] {
            assert!(shared(set), "{set:?}");
        }
    }
}
