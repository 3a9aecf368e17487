//! The rate limiter.

use std::time::Duration;

use eclusa_core::{Admission, Admit, Span, Store};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::state::ApiState;

/// Longer than this nobody waits.
const LONGEST_WAIT: Duration = Duration::from_hours(24);
/// Between two questions at least so much time passes, whatever the answer was.
const BREATHER: Duration = Duration::from_millis(1);
/// And at most so much, in case Redis comes or goes.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Says whether the rate allows a call now, whatever the breaker of the same API says. See [the module](super).
pub struct RateLimiter {
    state: ApiState,
    /// Those who wait, first come, first served: only the first asks.
    line: Mutex<()>,
}

impl RateLimiter {
    pub(super) fn new(state: ApiState) -> Self {
        Self { state, line: Mutex::new(()) }
    }

    /// Takes a token if there is one. Where it answers `false` nothing was taken.
    pub async fn acquire(&self) -> bool {
        self.take().await.is_ok()
    }

    /// Takes a token as soon as there is one. It answers `false` once it is clear that there will be none within `wait`.
    pub async fn acquire_within(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait.min(LONGEST_WAIT);
        let Ok(_turn) = timeout_at(deadline, self.line.lock()).await else { return false };
        while let Err(until_next) = self.take().await {
            if until_next > deadline.saturating_duration_since(Instant::now()) {
                return false;
            }
            tokio::time::sleep(until_next.clamp(BREATHER, ASK_AGAIN)).await;
        }
        true
    }

    /// Takes a token, or says in how much time there may be one.
    async fn take(&self) -> Result<(), Duration> {
        let ask = Admit {
            lane: None,
            tenant: None,
            chain: vec![self.state.name.clone()],
            holds: Vec::new(),
            correlation: None,
            // What is taken is a token and not a slot, so nobody comes to give it back.
            lease: Span::ZERO,
            nonce: 0,
            after: None,
        };
        let admitted = self.state.store().await.admit(ask).await.map_err(|_| ASK_AGAIN)?;
        match admitted.admission {
            Admission::Granted { .. } => Ok(()),
            Admission::Denied { denial, .. } => {
                Err(Duration::from_millis(denial.at.since(admitted.now).as_millis()))
            }
            // It is asked for nothing but the upstream of its own rules.
            Admission::UnknownUpstream(_) | Admission::UnknownLane => Err(Duration::MAX),
        }
    }
}
