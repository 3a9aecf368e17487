//! The rate limiter.

use std::time::Duration;

use eclusa_core::{Admission, Admit, Span, Store};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::state::ApiState;

/// The longest wait; longer ones are cut to this.
const LONGEST_WAIT: Duration = Duration::from_hours(24);
/// The shortest pause between two questions to the store.
const MIN_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause, in case Redis comes or goes.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Admits calls at a rate, independently of the breaker of the same API. See [the module](super).
pub struct RateLimiter {
    state: ApiState,
    /// Waiting callers, first come, first served: only the first asks the store.
    line: Mutex<()>,
}

impl RateLimiter {
    pub(super) fn new(state: ApiState) -> Self {
        Self { state, line: Mutex::new(()) }
    }

    /// Takes a token if there is one. Returns `false` if nothing was taken.
    pub async fn acquire(&self) -> bool {
        self.take().await.is_ok()
    }

    /// Takes a token as soon as there is one. Returns `false` once it is clear that there will be none within `wait`.
    pub async fn acquire_within(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait.min(LONGEST_WAIT);
        let Ok(_turn) = timeout_at(deadline, self.line.lock()).await else { return false };
        while let Err(until_next) = self.take().await {
            if until_next > deadline.saturating_duration_since(Instant::now()) {
                return false;
            }
            tokio::time::sleep(until_next.clamp(MIN_PAUSE, MAX_PAUSE)).await;
        }
        true
    }

    /// Takes a token, or returns how long until there may be one.
    async fn take(&self) -> Result<(), Duration> {
        let ask = Admit {
            lane: None,
            tenant: None,
            chain: vec![self.state.name.clone()],
            holds: Vec::new(),
            correlation: None,
            // A token is taken, not a slot, so nothing is released later.
            lease: Span::ZERO,
            nonce: 0,
            after: None,
            probe: true,
        };
        let admitted = self.state.store().await.admit(ask).await.map_err(|_| MAX_PAUSE)?;
        match admitted.admission {
            Admission::Granted { .. } => Ok(()),
            Admission::Denied { denial, .. } => {
                Err(Duration::from_millis(denial.at.since(admitted.now).as_millis()))
            }
            // Cannot happen: its own rules define the upstream.
            Admission::UnknownUpstream(_) | Admission::UnknownLane => Err(Duration::MAX),
        }
    }
}
