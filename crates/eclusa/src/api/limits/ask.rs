//! Asking for leave, and waiting for it.

use std::time::Duration;

use eclusa_core::gate::{NotUntil, Quota, Reason};
use eclusa_core::{Admit, Name, Store, StoreError, Time, Tokens, UpstreamView};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::lease::ForeignLease;
use super::{Acquired, Limits};
use crate::api::problem::{Kind, Problem};
use crate::api::refusal::{not_now, not_now_under};
use crate::api::submit::unavailable;
use crate::decide::{Asked, Leave};
use crate::policy::Takes;
use crate::turns::Line;

/// How often the first of a line asks by itself: the safety net under the time that it was told and under the bell.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Between two questions at least so much time passes, whatever the store says.
const BREATHER: Duration = Duration::from_millis(1);

/// Leave that was given. If nobody takes it, because who asked has gone, it is given back.
pub(super) struct Grant {
    leave: Leave,
    remaining: Option<Tokens>,
}

impl Grant {
    /// Somebody is there to be told.
    pub(super) fn accept(self) -> Acquired {
        let lease_id =
            ForeignLease { upstream: self.leave.upstream.clone(), id: self.leave.lease }.to_string();
        self.leave.hand_over();
        let whole = |tokens: Tokens| tokens.as_micro().div_euclid(Tokens::ONE.as_micro());
        Acquired { granted: true, lease_id, remaining: self.remaining.map(whole) }
    }
}

/// A gate said no.
struct Denied {
    denial: NotUntil,
    /// The limit that allows the fewest such calls.
    quota: Option<Quota>,
    now: Time,
    view: UpstreamView,
}

impl Denied {
    fn opens_in(&self) -> Duration {
        Duration::from_millis(self.denial.at.since(self.now).as_millis())
    }

    /// Whether only calls of the same scope are denied by it.
    fn is_scoped(&self) -> bool {
        self.quota.as_ref().is_some_and(|quota| quota.bucket.is_some() && quota.enough_at > self.now)
    }

    /// Whether the gate may open within `left`. While a slot or a probe is out it may come back before the time that was
    /// named, which is that of its lease.
    fn may_open_within(&self, left: Duration) -> bool {
        let sooner = match self.denial.reason {
            Reason::Concurrency => true,
            Reason::CircuitOpen => self.view.degraded_until.is_none(),
            _ => false,
        };
        sooner || self.opens_in() <= left
    }
}

/// Leave for one call to `upstream` that takes this, now or within `wait`.
pub(super) async fn grant(
    limits: &Limits,
    upstream: &Name,
    takes: &Takes,
    wait: Duration,
) -> Result<Grant, Problem> {
    let deadline = Instant::now() + wait;
    // Who does not wait stands behind nobody.
    let line = limits.turns.line(upstream);
    let mut own_turn = if wait.is_zero() { None } else { turn(limits, &line, upstream, deadline).await? };
    loop {
        if limits.life.stopping.is_cancelled() {
            return Err(stopping());
        }
        let denied = match ask(limits, upstream, takes).await? {
            Ok(grant) => return Ok(grant),
            Err(denied) => denied,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !denied.may_open_within(left) {
            return Err(refused(limits, upstream, &denied));
        }
        let again = denied.opens_in().clamp(BREATHER, ASK_AGAIN).min(left);
        if denied.is_scoped() {
            // Others wait for other buckets: they pass.
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
async fn ask(limits: &Limits, upstream: &Name, takes: &Takes) -> Result<Result<Grant, Denied>, Problem> {
    let (lease, nonce) = (limits.rules.get().config.workers.lease.into(), limits.ids.foreign_nonce());
    let (holds, correlation) = (takes.holds.clone(), takes.correlation);
    let ask = Admit { lane: None, chain: vec![upstream.clone()], holds, correlation, lease, nonce };
    let asked = limits.decider.admit(ask).await.map_err(|error| unavailable(&error))?;
    // Read afterwards: what is left is what the grant has left.
    let view = view_of(limits, upstream).await.map_err(|error| unavailable(&error))?;
    match (asked, view) {
        (Asked::Granted(leave), view) => {
            let scoped = leave.quota.as_ref().filter(|quota| quota.bucket.is_some());
            let scoped = scoped.map(|quota| quota.remaining);
            Ok(Ok(Grant { leave, remaining: scoped.or_else(|| view?.tokens) }))
        }
        (Asked::Denied { denial, quota, now, .. }, Some(view)) => {
            Ok(Err(Denied { denial, quota, now, view }))
        }
        (Asked::Denied { .. } | Asked::Unknown, _) => {
            Err(Problem::new(Kind::Internal, "The config and the store do not agree on the rules"))
        }
    }
}

async fn view_of(limits: &Limits, upstream: &Name) -> Result<Option<UpstreamView>, StoreError> {
    Ok(limits.store.upstreams().await?.into_iter().find(|view| view.name == *upstream))
}

/// Waits until all who came before have had their turn; at the deadline it is too late.
async fn turn(
    limits: &Limits,
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
    let now = limits.clock.now();
    let view = view_of(limits, upstream).await.map_err(|error| unavailable(&error))?;
    let Some(view) = view else { return Err(Problem::new(Kind::Internal, "The upstream is not there")) };
    let denials =
        view.gates.iter().filter_map(|gate| Some(NotUntil { reason: gate.reason, at: gate.denies_until? }));
    let last = denials.max_by_key(|denial| denial.at);
    let denial = last.unwrap_or(NotUntil { reason: Reason::Behind, at: now });
    Err(refused(limits, upstream, &Denied { denial, quota: None, now, view }))
}

fn refused(limits: &Limits, upstream: &Name, denied: &Denied) -> Problem {
    let Denied { denial, quota, now, view } = denied;
    limits.metrics.count_denial(None, Some(upstream), denial.reason);
    let scoped = quota.as_ref().and_then(|quota| not_now_under(quota, *denial, *now));
    scoped.unwrap_or_else(|| not_now(upstream, *denial, &view.gates, *now))
}

fn stopping() -> Problem {
    Problem::new(Kind::Stopping, "The server is stopping").retry_after(5)
}
