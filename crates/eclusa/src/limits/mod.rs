//! Limits for Rust programs that make their own calls: a rate limiter and a circuit breaker for each API.
//!
//! With Redis they are shared by all processes that name the same server, and by gateways that keep their state there.
//! Without Redis they are local to this process. The API is the same.
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
//! If Redis does not answer, calls do not fail: each process uses its share of every limit until Redis answers again.
//!
//! A gateway may have other gates for the same API. All gates apply while both are running. If both define the same
//! gate, the rule of the process that was started or changed last applies to all.
//!
//! A limiter only limits the rate: it admits calls even while the breaker of the same API is open.

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

/// Why a limiter or breaker cannot be created.
#[derive(Debug, Error)]
pub enum LimitsError {
    /// The name or the rule is invalid.
    #[error(transparent)]
    Rule(#[from] SpecError),
    /// The address of Redis is invalid.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// A number of calls per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number of calls.
    pub calls: u32,
    /// The period.
    pub per: Duration,
    /// How many calls may be made at once after an idle time.
    pub burst: u32,
}

/// Holds the state of limiters and breakers. On Redis it joins the fleet as one process with its first limiter or
/// breaker, and leaves when it, its clones and all its limiters and breakers are dropped.
#[derive(Clone)]
pub struct Limits {
    redis: Option<String>,
    prefix: String,
    /// Opened with the first limiter or breaker.
    shared: Arc<Mutex<Option<Arc<SharedStore>>>>,
}

impl Limits {
    /// Keeps the state on the Redis at this address, or in this process if there is none.
    pub fn new(redis: Option<&str>) -> Self {
        Self { redis: redis.map(ToOwned::to_owned), prefix: String::new(), shared: Arc::default() }
    }

    /// Keeps the state on the Redis that `REDIS_URL` names, if it is set. `USE_REDIS_CIRCUIT_BREAKER=false` makes it
    /// local to this process: a way back that needs no change of the program.
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = variable("USE_REDIS_CIRCUIT_BREAKER");
        let unshared = set.is_some_and(|set| on_or_off(&set) == Some(false));
        let redis = variable("REDIS_URL").filter(|url| !url.is_empty() && !unshared);
        Self::new(redis.as_deref())
    }

    /// Whether the limits are shared with other processes.
    pub const fn are_shared(&self) -> bool {
        self.redis.is_some()
    }

    /// Uses keys that begin with `prefix`, to share limits with a gateway that has this `store.prefix`. Without a
    /// prefix the keys are `circuit_breaker:<name>:failures`, `circuit_breaker:<name>:degraded_until` and
    /// `rate_limiter:<name>`.
    #[must_use]
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        prefix.clone_into(&mut self.prefix);
        self.shared = Arc::default();
        self
    }

    /// The limiter of the API called `name`. All processes that share it should pass the same rate.
    pub fn rate_limiter(&self, name: &str, rate: Rate) -> Result<RateLimiter, LimitsError> {
        let bucket = BucketSpec::new(rate.burst, rate.calls, rate.per.into())?;
        Ok(RateLimiter::new(self.state(name, |gates| gates.bucket = Some(bucket))?))
    }

    /// The breaker of the API called `name`: `failures` consecutive failures open it for `open_for`. All processes that
    /// share it should pass the same numbers.
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
    fn every_usual_spelling_of_false_makes_limits_local() {
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
