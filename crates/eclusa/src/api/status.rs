//! `/v1/status`: the state of everything in a sentence.
//!
//! The worst thing gives the sentence: a store that does not answer, then a lane without rules, then the lane with the most
//! jobs held by a gate, then a paused lane. Otherwise everything flows.

mod needs;

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::gate::Reason;
use eclusa_core::{Alert, LaneHold, LaneView, ObservedState, Span, Store, StoreError, Time, UpstreamView};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::alerts::may_see;
use super::auth::{Caller, Right};
use super::extract::NoQuery;
use super::model::{Remark, ServiceStatus, iso};
use super::problem::Problem;
use super::state::Api;
use super::store_problem::unavailable;
use crate::config::StoreUrl;
use crate::peers::{OwnerSeen, Peer, Peers};
use crate::rules::CurrentRules;
use crate::store::{Ack, AnyStore};
use crate::telemetry::{Metrics, Rates};
use crate::words::counted;

/// A hold that ends within this time counts as flowing, if the last job starts within it too.
const BRIEF: Span = Span::from_secs(1);

/// What the status is made of.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct StatusParts {
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    peers: Arc<Peers>,
    #[from_request(via(State))]
    rates: Arc<Rates>,
    #[from_request(via(State))]
    metrics: Arc<Metrics>,
}

/// How things are, in a sentence
///
/// `code` and `args` are for translation; `text` is the sentence in English. `needs` lists what a person should look at.
#[utoipa::path(get, path = "/v1/status", tag = "health", responses((status = 200, body = ServiceStatus)))]
pub(super) async fn status(
    parts: StatusParts,
    caller: Caller,
    _: NoQuery,
) -> Result<Json<ServiceStatus>, Problem> {
    caller.may(Right::SeeAll)?;
    match parts.read(&caller).await {
        Ok(status) => Ok(Json(status)),
        Err(error) if error.is_transient() => Ok(Json(store_lost())),
        Err(error) => Err(unavailable(&error)),
    }
}

impl StatusParts {
    /// The status as far as `caller` may see it.
    async fn read(&self, caller: &Caller) -> Result<ServiceStatus, StoreError> {
        let (lanes, upstreams) = (self.store.lanes().await?, self.store.upstreams().await?);
        let alerts = self.store.alerts().await?;
        Ok(self.of(&ObservedState { lanes, upstreams, alerts }, caller))
    }

    /// The status of this `state`, as far as `caller` may see it.
    pub(super) fn of(&self, state: &ObservedState, caller: &Caller) -> ServiceStatus {
        if self.peers.is_cut_off() {
            return store_lost();
        }
        let rules = self.rules.get();
        let ObservedState { mut lanes, mut upstreams, alerts } = state.clone();
        let mut alerts = alerts.firing;
        lanes.retain(|lane| caller.may_use(&lane.name).is_ok());
        for lane in &mut lanes {
            lane.top_tenant.take_if(|(tenant, _)| caller.may_act_for(tenant).is_err());
        }
        upstreams.retain(|upstream| caller.may_reach(&rules.config, upstream.name.as_str()).is_ok());
        alerts.retain(|alert| may_see(caller, &rules.config, &alert.condition.key));
        let (now, answers) = (Instant::now(), &self.metrics.answers);
        let rates = lanes.iter().map(|lane| self.rates.of(lane, answers, now));
        let per_second = rates.map(|rates| rates.completed + rates.answered).sum();
        let answered = lanes.iter().any(|lane| answers.total(&lane.name) > 0);
        let owner = self.peers.owner();
        let seen = Overview {
            lanes: &lanes,
            upstreams: &upstreams,
            alerts: &alerts,
            peers: &self.peers.instances(),
            owner: owner.as_ref(),
            ack: (rules.config.store.url != StoreUrl::Memory).then_some(rules.config.store.ack),
            per_second,
            answered,
            now: self.store.now(),
        };
        seen.status()
    }
}

/// What is known of everything.
pub(super) struct Overview<'a> {
    pub(super) lanes: &'a [LaneView],
    pub(super) upstreams: &'a [UpstreamView],
    /// Those that are firing.
    pub(super) alerts: &'a [Alert],
    pub(super) peers: &'a [Peer],
    pub(super) owner: Option<&'a OwnerSeen>,
    /// `None` if nothing is stored.
    pub(super) ack: Option<Ack>,
    /// Jobs completed and requests answered per second, over about the last minute.
    pub(super) per_second: f64,
    /// Whether this process answered a request directly.
    pub(super) answered: bool,
    /// The store's time.
    pub(super) now: Time,
}

/// The status while the store does not answer.
pub(super) fn store_lost() -> ServiceStatus {
    let text = "The store does not answer: no jobs are accepted, nothing accepted is lost; direct lanes run on this process's share of the limits.";
    ServiceStatus { remark: remark("store_lost", json!({}), text), also: Vec::new(), needs: Vec::new() }
}

impl Overview<'_> {
    pub(super) fn status(&self) -> ServiceStatus {
        let stuck: Vec<&LaneView> = self.lanes.iter().filter(|lane| self.is_stuck(lane)).collect();
        let worst = stuck.iter().max_by_key(|lane| (is_gone(lane), !lane.paused, waiting(lane)));
        let remark = match worst {
            Some(lane) => self.stuck(lane, stuck.len() - 1),
            None => self.flowing(),
        };
        let rest = (stuck.len() == 1 && self.lanes.len() > 1)
            .then(|| self::remark("rest_flows", json!({}), "Everything else flows."));
        ServiceStatus { remark, also: rest.into_iter().chain(self.fleet()).collect(), needs: self.needs() }
    }

    fn is_stuck(&self, lane: &LaneView) -> bool {
        let soon = |at: Time| at <= self.now + BRIEF;
        let brief = |hold: &LaneHold| hold.until.is_some_and(soon) && lane.last_start.is_none_or(soon);
        let held = lane.held.as_ref().is_some_and(|hold| stops(hold.reason) && !brief(hold));
        waiting(lane) > 0 && (lane.paused || held)
    }

    fn flowing(&self) -> Remark {
        if !self.answered && self.lanes.iter().all(|lane| lane.totals.accepted == 0) {
            return remark("fresh", json!({}), "No job has been sent yet.");
        }
        let per_second = (self.per_second * 10.0).round() / 10.0;
        let digits = usize::from(per_second < 100.0);
        let text = if per_second > 0.0 {
            format!("Everything flows, {per_second:.digits$}/s.")
        } else {
            "Everything flows.".to_owned()
        };
        remark("flows", json!({ "perSecond": per_second }), &text)
    }

    /// `others`: how many other lanes are stuck too.
    fn stuck(&self, lane: &LaneView, others: usize) -> Remark {
        let (name, count) = (&lane.name, waiting(lane));
        let waiting = plural(count, "job waits", "jobs wait");
        let and = match others {
            0 => String::new(),
            others => format!("; {}", plural(others as u64, "other lane waits", "other lanes wait")),
        };
        let mut args = json!({ "lane": name.as_str(), "waiting": count });
        if others > 0 {
            args["others"] = others.into();
        }
        let Some(hold) = lane.held.as_ref().filter(|_| !lane.paused || is_gone(lane)) else {
            let text = format!("`{name}` is paused: {waiting} until it is resumed{and}.");
            return remark("paused", args, &text);
        };
        if hold.reason == Reason::RulesGone {
            let text = format!("No process has rules for `{name}`: {waiting}{and}.");
            return remark("rules_gone", args, &text);
        }
        let limit = self.limit(lane, hold);
        let upstream = hold.upstream.as_ref().map(ToString::to_string);
        let cause = cause(hold, name.as_str(), limit);
        let last = lane.last_start.and_then(clock_time);
        let last = last.map_or(String::new(), |time| match count {
            1 => format!(", it starts at {time}"),
            _ => format!(", the last starts at {time}"),
        });
        let more = [
            ("reason", Some(hold.reason.as_str().into())),
            ("upstream", upstream.map(Value::from)),
            ("limit", limit.map(Value::from)),
            ("opensAt", hold.until.and_then(iso).map(Value::from)),
            ("lastStart", lane.last_start.and_then(iso).map(Value::from)),
        ];
        for (key, value) in more.into_iter().filter_map(|(key, value)| Some((key, value?))) {
            args[key] = value;
        }
        remark("held", args, &format!("{cause} {waiting}{last}{and}."))
    }

    /// The limit of the gate that holds a lane.
    fn limit(&self, lane: &LaneView, hold: &LaneHold) -> Option<i64> {
        let upstream = self.upstreams.iter().find(|upstream| Some(&upstream.name) == hold.upstream.as_ref());
        let gates = upstream.map_or(&lane.gates, |upstream| &upstream.gates);
        let gate = gates.iter().find(|gate| gate.reason == hold.reason)?;
        gate.limit.map(|limit| counted(gate, limit))
    }

    fn fleet(&self) -> Option<Remark> {
        let owner = self.owner?;
        let processes = self.peers.len();
        let (accepted, ack) = match self.ack {
            Some(Ack::Fsync) => ("on disk", "fsync"),
            Some(Ack::Write) => ("written to the journal", "write"),
            Some(Ack::Replicate) => ("on a replica too", "replicate"),
            None => ("in memory", "memory"),
        };
        let who = if processes > 1 { format!(", owner {}", owner.id) } else { String::new() };
        let all = plural(processes as u64, "process", "processes");
        let args =
            json!({ "processes": processes, "owner": owner.id, "since": iso(owner.since), "ack": ack });
        let text = format!("{all}{who}, accepted means {accepted}.");
        Some(remark("fleet", args, &text))
    }
}

fn remark(code: &str, args: Value, text: &str) -> Remark {
    Remark { code: code.into(), args, text: text.into() }
}

fn waiting(lane: &LaneView) -> u64 {
    lane.queued.iter().sum::<u64>() + lane.pending
}

fn is_gone(lane: &LaneView) -> bool {
    lane.held.as_ref().is_some_and(|hold| hold.reason == Reason::RulesGone)
}

/// Whether jobs that wait for this reason are held up, as opposed to waiting their turn.
const fn stops(reason: Reason) -> bool {
    match reason {
        Reason::Pace
        | Reason::RateLimit
        | Reason::Window
        | Reason::Concurrency
        | Reason::Cooldown
        | Reason::CircuitOpen
        | Reason::UpstreamRetryAfter
        | Reason::RulesGone
        | Reason::StoreUnavailable => true,
        Reason::Paused
        | Reason::Scheduled
        | Reason::RetryBackoff
        | Reason::Behind
        | Reason::Coalesced
        | Reason::AwaitingWebhook
        | Reason::NoWorker => false,
    }
}

/// Why a lane is held, as the first half of a sentence. The dashboard says the same.
fn cause(hold: &LaneHold, lane: &str, limit: Option<i64>) -> String {
    let at = hold.upstream.as_ref().map_or(lane, |upstream| upstream.as_str());
    let when = |before: &str| {
        hold.until.and_then(clock_time).map_or(String::new(), |time| format!("{before} {time}"))
    };
    match (hold.reason, limit) {
        (Reason::Window, Some(1)) => format!("`{at}` has used its 1 request for this minute:"),
        (Reason::Window, Some(limit)) => format!("`{at}` has used its {limit} requests for this minute:"),
        (Reason::Window, None) => format!("`{at}` has used its requests for this minute:"),
        (Reason::Concurrency, Some(1)) => format!("The only slot of `{at}` is taken:"),
        (Reason::Concurrency, Some(limit)) => format!("All {limit} slots of `{at}` are taken:"),
        (Reason::Concurrency, None) => format!("All slots of `{at}` are taken:"),
        (Reason::RateLimit, _) => format!("`{at}` has no tokens left:"),
        (Reason::Pace, _) => format!("`{at}` is paced:"),
        (Reason::Cooldown, _) => format!("`{at}` cools down after errors{}:", when(" until")),
        (Reason::CircuitOpen, _) => {
            format!("The breaker of `{at}` is open{}:", when(", the next probe is at"))
        }
        (Reason::UpstreamRetryAfter, _) => format!("`{at}` asked to wait{}:", when(" until")),
        (Reason::StoreUnavailable, _) => {
            format!("The store is back, the processes are reporting: in `{lane}`")
        }
        _ => format!("`{lane}` is held:"),
    }
}

/// `1 job waits`, `2 jobs wait`.
fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The time of day, in UTC.
fn clock_time(time: Time) -> Option<String> {
    let text = iso(time)?;
    Some(format!("{} UTC", text.get(11..19)?))
}

#[cfg(test)]
mod tests;
