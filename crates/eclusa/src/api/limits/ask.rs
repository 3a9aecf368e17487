//! Asking for leave, and waiting for it.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::gate::{CallResult, NotUntil, Reason};
use eclusa_core::{Admission, Admit, Admitted, LeaseId, Name, Store, StoreError, Time, Tokens, UpstreamView};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Acquired;
use super::lease::{ForeignLease, foreign_nonce};
use crate::api::problem::{Kind, Problem};
use crate::api::refusal::not_now;
use crate::api::submit::unavailable;
use crate::gateway::Gateway;
use crate::turns::Line;

/// How often the first of a line asks by itself: the safety net under the time that it was told and under the bell.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Between two questions at least so much time passes, whatever the store says.
const BREATHER: Duration = Duration::from_millis(1);

/// Leave that was given. If nobody takes it, because who asked has gone, it is given back.
pub(super) struct Grant {
    gateway: Arc<Gateway>,
    upstream: Name,
    lease: LeaseId,
    remaining: Option<Tokens>,
    accepted: bool,
}

impl Grant {
    /// Somebody is there to be told.
    pub(super) fn accept(mut self) -> Acquired {
        self.accepted = true;
        let lease_id = ForeignLease { upstream: self.upstream.clone(), id: self.lease }.to_string();
        let whole = |tokens: Tokens| tokens.as_micro().div_euclid(Tokens::ONE.as_micro());
        Acquired { granted: true, lease_id, remaining: self.remaining.map(whole) }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.accepted {
            self.gateway.end_call(self.upstream.clone(), self.lease, CallResult::NotSent.into());
        }
    }
}

/// What comes of asking.
enum Asked {
    Granted(Grant),
    Denied(Denied),
}

/// A gate said no.
struct Denied {
    denial: NotUntil,
    now: Time,
    view: UpstreamView,
}

impl Denied {
    fn opens_in(&self) -> Duration {
        Duration::from_millis(self.denial.at.since(self.now).as_millis())
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

/// Leave for one call to `upstream`, now or within `wait`.
pub(super) async fn grant(gateway: &Arc<Gateway>, upstream: &Name, wait: Duration) -> Result<Grant, Problem> {
    let deadline = Instant::now() + wait;
    // Who does not wait stands behind nobody.
    let line = gateway.turns.line(upstream);
    let _turn = if wait.is_zero() { None } else { turn(gateway, &line, upstream, deadline).await? };
    loop {
        if gateway.life.stopping.is_cancelled() {
            return Err(stopping());
        }
        let denied = match ask(gateway, upstream).await? {
            Asked::Granted(grant) => return Ok(grant),
            Asked::Denied(denied) => denied,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !denied.may_open_within(left) {
            return Err(refused(gateway, upstream, denied.denial, &denied.view, denied.now));
        }
        tokio::select! {
            () = line.rung() => {}
            () = gateway.life.stopping.cancelled() => {}
            () = tokio::time::sleep(denied.opens_in().clamp(BREATHER, ASK_AGAIN).min(left)) => {}
        }
    }
}

/// Asks once. What was granted is given back if whoever asked goes away meanwhile.
async fn ask(gateway: &Arc<Gateway>, upstream: &Name) -> Result<Asked, Problem> {
    let asked = gateway.life.to_the_end(admit(gateway.clone(), upstream.clone())).await;
    let asked = asked.map_err(|error| unavailable(&error))?;
    asked.ok_or_else(|| Problem::new(Kind::Internal, "The config and the store do not agree on the rules"))
}

/// `None` if the store does not know the upstream.
async fn admit(gateway: Arc<Gateway>, upstream: Name) -> Result<Option<Asked>, StoreError> {
    let (lease, nonce) = (gateway.rules.get().config.workers.lease.into(), foreign_nonce());
    let ask = Admit { lane: None, chain: vec![upstream.clone()], holds: Vec::new(), lease, nonce };
    let Admitted { admission, ended, now } = gateway.store.admit(ask).await?;
    gateway.note(&ended);
    // Read afterwards: what is left is what the grant has left.
    let view = view_of(&gateway, &upstream).await;
    Ok(match admission {
        Admission::Granted { lease, .. } => {
            let mut grant = Grant { gateway, upstream, lease, remaining: None, accepted: false };
            grant.remaining = view?.and_then(|view| view.tokens);
            Some(Asked::Granted(grant))
        }
        Admission::Denied { denial, .. } => view?.map(|view| Asked::Denied(Denied { denial, now, view })),
        Admission::UnknownUpstream(_) | Admission::UnknownLane => None,
    })
}

async fn view_of(gateway: &Gateway, upstream: &Name) -> Result<Option<UpstreamView>, StoreError> {
    Ok(gateway.store.upstreams().await?.into_iter().find(|view| view.name == *upstream))
}

/// Waits until all who came before have had their turn; at the deadline it is too late.
async fn turn(
    gateway: &Gateway,
    line: &Line,
    upstream: &Name,
    deadline: Instant,
) -> Result<Option<OwnedSemaphorePermit>, Problem> {
    tokio::select! {
        biased;
        turn = line.next() => return Ok(turn),
        () = gateway.life.stopping.cancelled() => return Err(stopping()),
        () = tokio::time::sleep_until(deadline) => {}
    }
    let now = gateway.clock.now();
    let view = view_of(gateway, upstream).await.map_err(|error| unavailable(&error))?;
    let Some(view) = view else { return Err(Problem::new(Kind::Internal, "The upstream is not there")) };
    let denials =
        view.gates.iter().filter_map(|gate| Some(NotUntil { reason: gate.reason, at: gate.denies_until? }));
    let last = denials.max_by_key(|denial| denial.at);
    let denial = last.unwrap_or(NotUntil { reason: Reason::Behind, at: now });
    Err(refused(gateway, upstream, denial, &view, now))
}

fn refused(gateway: &Gateway, upstream: &Name, denial: NotUntil, view: &UpstreamView, now: Time) -> Problem {
    gateway.metrics.count_denial(None, Some(upstream), denial.reason);
    not_now(upstream, denial, &view.gates, now)
}

fn stopping() -> Problem {
    Problem::new(Kind::Stopping, "The server is stopping").retry_after(5)
}
