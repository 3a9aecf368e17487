//! Asking for a permit, and waiting for it.

use std::time::Duration;

use eclusa_core::gate::{NotUntil, Reason};
use eclusa_core::{Admit, Name, Store, Tokens};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::lease::ForeignLease;
use super::{Acquired, LimitsState};
use crate::api::problem::{Kind, Problem};
use crate::api::refusal::not_now;
use crate::api::store_problem::unavailable;
use crate::decide::{Permit, PermitAnswer, PermitDenied};
use crate::policy::Takes;
use crate::turns::Line;

/// How often the head of the queue asks without being woken: a safety net besides the reported time and the wake-ups.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Minimum time between two questions, whatever the store answers.
const MIN_ASK_INTERVAL: Duration = Duration::from_millis(1);

/// A granted permit. Dropped without being accepted, because the caller has disconnected, it is given back.
pub(super) struct Grant {
    permit: Permit,
    remaining: Option<Tokens>,
}

impl Grant {
    /// Hands the permit to the caller.
    pub(super) fn accept(self) -> Acquired {
        let lease_id =
            ForeignLease { upstream: self.permit.upstream.clone(), id: self.permit.lease }.to_string();
        let key = self.permit.key.clone();
        self.permit.hand_over();
        let whole = |tokens: Tokens| tokens.as_micro().div_euclid(Tokens::ONE.as_micro());
        Acquired { granted: true, lease_id, key, remaining: self.remaining.map(whole) }
    }
}

/// How long until the gate opens.
fn opens_in(denied: &PermitDenied) -> Duration {
    Duration::from_millis(denied.denial.at.since(denied.now).as_millis())
}

/// Whether it denies only calls of the same scope.
fn is_scoped(denied: &PermitDenied) -> bool {
    denied.used_up().is_some_and(|quota| quota.bucket().is_some())
}

/// The call that a worker wants to make.
#[derive(Clone, Copy)]
pub(super) struct WantedCall<'a> {
    pub(super) upstream: &'a Name,
    pub(super) takes: &'a Takes,
    /// Whether the worker's report will count for the breaker, so that the call may be a probe.
    pub(super) counts: bool,
}

/// A permit for one call, now or within `wait`.
pub(super) async fn grant(
    limits: &LimitsState,
    call: WantedCall<'_>,
    wait: Duration,
) -> Result<Grant, Problem> {
    let upstream = call.upstream;
    let deadline = Instant::now() + wait;
    // A caller that does not wait does not queue.
    let line = limits.turns.line(upstream);
    let mut own_turn = if wait.is_zero() { None } else { turn(limits, &line, upstream, deadline).await? };
    loop {
        if limits.life.stopping.is_cancelled() {
            return Err(stopping());
        }
        let denied = match ask(limits, call).await? {
            Ok(grant) => return Ok(grant),
            Err(denied) => denied,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !(denied.sooner || opens_in(&denied) <= left) {
            return Err(refused(limits, upstream, &denied));
        }
        let again = opens_in(&denied).clamp(MIN_ASK_INTERVAL, ASK_AGAIN).min(left);
        if is_scoped(&denied) {
            // Other callers wait for other buckets: let them pass.
            drop(own_turn.take());
            tokio::select! {
                () = limits.life.stopping.cancelled() => {}
                () = tokio::time::sleep(again) => {}
            }
            own_turn = turn(limits, &line, upstream, deadline).await?;
            continue;
        }
        tokio::select! {
            () = line.rung() => {}
            () = limits.life.stopping.cancelled() => {}
            () = tokio::time::sleep(again) => {}
        }
    }
}

/// Asks once.
async fn ask(limits: &LimitsState, call: WantedCall<'_>) -> Result<Result<Grant, PermitDenied>, Problem> {
    let (lease, nonce) = (limits.rules.get().config.workers.lease.into(), limits.ids.foreign_nonce());
    let (holds, correlation) = (call.takes.holds.clone(), call.takes.correlation);
    let ask = Admit {
        lane: None,
        tenant: None,
        chain: vec![call.upstream.clone()],
        holds,
        correlation,
        lease,
        nonce,
        after: None,
        probe: call.counts,
    };
    let asked = limits.decider.admit(ask).await.map_err(|error| unavailable(&error))?;
    match asked {
        PermitAnswer::Granted(permit) => {
            let remaining = permit.quota.as_ref().map(|quota| quota.remaining);
            Ok(Ok(Grant { permit, remaining }))
        }
        PermitAnswer::Denied { denied, .. } => Ok(Err(denied)),
        PermitAnswer::Unknown => {
            Err(Problem::new(Kind::Internal, "The rules of the config and of the store differ"))
        }
    }
}

/// Waits until it is the caller's turn, or until the deadline.
async fn turn(
    limits: &LimitsState,
    line: &Line,
    upstream: &Name,
    deadline: Instant,
) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    tokio::select! {
        biased;
        turn = line.next() => return Ok(turn),
        () = limits.life.stopping.cancelled() => return Err(stopping()),
        () = tokio::time::sleep_until(deadline) => {}
    }
    let now = limits.store.now();
    let views = limits.store.upstreams().await.map_err(|error| unavailable(&error))?;
    let Some(view) = views.into_iter().find(|view| view.name == *upstream) else {
        return Err(Problem::new(Kind::Internal, "The upstream is not configured"));
    };
    let last = view.gates.into_iter().filter(|gate| gate.denies_until.is_some());
    let last = last.max_by_key(|gate| gate.denies_until);
    let denial =
        last.as_ref().and_then(|gate| Some(NotUntil { reason: gate.reason, at: gate.denies_until? }));
    let denial = denial.unwrap_or(NotUntil { reason: Reason::Behind, at: now });
    Err(refused(limits, upstream, &PermitDenied { denial, quota: None, gate: last, sooner: false, now }))
}

fn refused(limits: &LimitsState, upstream: &Name, denied: &PermitDenied) -> Problem {
    limits.metrics.count_refusal(None, Some(upstream), denied.denial.reason);
    not_now(upstream, denied)
}

fn stopping() -> Problem {
    Problem::new(Kind::Stopping, "The server is stopping").retry_after(5)
}
