//! `/v1/status`: the state of everything in a sentence.
//!
//! The worst thing gives the sentence: a store that does not answer, then a lane without rules, then the lane with the most
//! jobs held by a gate, then a paused lane. Otherwise everything flows.

use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use eclusa_core::gate::{BreakerState, Reason};
use eclusa_core::{
    Alert, AlertRule, Clock, LaneHold, LaneView, Name, ObservedState, Span, Store, StoreError, Time,
    UpstreamView,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::alerts::may_see;
use super::auth::{Caller, Right};
use super::extract::NoQuery;
use super::model::{self, Need, Remark, ServiceStatus, iso};
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
    #[from_request(via(State))]
    clock: Arc<dyn Clock>,
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
            now: self.clock.now(),
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

    /// An alert about something that has a row of its own only makes that row more serious.
    fn needs(&self) -> Vec<Need> {
        let upstreams = self.upstreams.iter().filter(|view| view.name.key().is_none());
        let mut needs: Vec<Need> = upstreams.filter_map(|view| self.hot(view)).collect();
        needs.extend(self.lanes.iter().filter_map(|lane| self.dead_letters(lane)));
        needs.extend(self.alerts.iter().filter(|alert| !self.has_row(alert)).map(alert));
        needs.extend(self.lanes.iter().filter(|lane| lane.paused).map(paused));
        needs.extend(self.peers.iter().filter(|peer| peer.differs > 0).map(differs));
        needs.sort_by_key(|need| need.severity != CRITICAL);
        needs
    }

    /// Whether the row of an upstream or lane tells what the alert is about.
    fn has_row(&self, alert: &Alert) -> bool {
        let key = &alert.condition.key;
        match key.rule {
            AlertRule::BreakerOpen => {
                let mut upstreams = self.upstreams.iter().filter(|view| view.name.key().is_none());
                upstreams.any(|view| Some(&view.name) == key.upstream.as_ref() && is_open(view))
            }
            AlertRule::DeadLetters => {
                let mut lanes = self.lanes.iter();
                lanes.any(|lane| Some(&lane.name) == key.lane.as_ref() && lane.dead_letters > 0)
            }
            _ => false,
        }
    }

    /// The most serious firing alert of `rule` that concerns this.
    fn alerted(&self, rule: AlertRule, concerns: impl Fn(&Alert) -> bool) -> Option<model::Alert> {
        let alerts = self.alerts.iter().filter(|alert| alert.condition.key.rule == rule && concerns(alert));
        alerts.map(model::Alert::from).max_by_key(|alert| alert.severity == CRITICAL)
    }

    /// An upstream that is not called because of its errors.
    fn hot(&self, view: &UpstreamView) -> Option<Need> {
        let name = view.name.as_str();
        let link = Some(format!("#/upstreams/{name}"));
        let fallback = self.next_in_chain(view);
        let steps_in = fallback.as_ref().map_or(String::new(), |fallback| format!("; `{fallback}` steps in"));
        if is_open(view) {
            let until = view.degraded_until;
            let at =
                until.and_then(clock_time).map_or(String::new(), |time| format!(", tried again at {time}"));
            let text = format!("The breaker of `{name}` is open{at}{steps_in}.");
            let args = json!({ "upstream": name, "until": until.and_then(iso), "fallback": fallback });
            let need = warning(remark("breaker_open", args, &text), link);
            let about = |alert: &Alert| alert.condition.key.upstream.as_ref() == Some(&view.name);
            return Some(need.with(self.alerted(AlertRule::BreakerOpen, about)));
        }
        let gate =
            view.gates.iter().find(|gate| gate.reason == Reason::Cooldown && gate.denies_until.is_some())?;
        let at =
            gate.denies_until.and_then(clock_time).map_or(String::new(), |time| format!(" until {time}"));
        let errors = plural(gate.level.unsigned_abs(), "error", "errors");
        let args = json!({
            "upstream": name, "errors": gate.level, "until": gate.denies_until.and_then(iso), "fallback": fallback,
        });
        let since = view.last_failure.as_ref().and_then(|failure| iso(failure.at));
        let text = format!("`{name}` cools down{at} after {errors}{steps_in}.");
        Some(Need { since, ..warning(remark("upstream_hot", args, &text), link) })
    }

    /// The upstream that follows this one in the chain of a lane and can be called.
    fn next_in_chain(&self, view: &UpstreamView) -> Option<String> {
        let usable =
            |name: &&Name| self.upstreams.iter().any(|other| other.name == **name && !is_open(other));
        let after = |lane: &LaneView| {
            let mut chain = lane.chain.iter().skip_while(|name| **name != view.name).skip(1);
            chain.find(usable).map(ToString::to_string)
        };
        self.lanes.iter().find_map(after)
    }

    fn dead_letters(&self, lane: &LaneView) -> Option<Need> {
        let (name, count) = (lane.name.as_str(), lane.dead_letters);
        let letters = plural(count, "dead letter", "dead letters");
        let args = json!({ "lane": name, "count": count });
        let remark = remark("dead_letters", args, &format!("{letters} in lane `{name}`."));
        let since = lane.oldest_dead_letter.and_then(iso);
        let need = Need { since, ..warning(remark, Some(format!("#/dead-letters?lane={name}"))) };
        let about = |alert: &Alert| alert.condition.key.lane.as_ref() == Some(&lane.name);
        (count > 0).then(|| need.with(self.alerted(AlertRule::DeadLetters, about)))
    }
}

impl Need {
    /// As serious as the alert about it, and since when the alert fires if nothing better is known.
    fn with(self, alert: Option<model::Alert>) -> Self {
        let Some(alert) = alert else { return self };
        Self { severity: alert.severity, since: self.since.or(alert.since), ..self }
    }
}

fn is_open(view: &UpstreamView) -> bool {
    view.breaker.as_ref().is_some_and(|breaker| breaker.state == BreakerState::Open)
}

const WARNING: &str = "warning";
const CRITICAL: &str = "critical";

fn remark(code: &str, args: Value, text: &str) -> Remark {
    Remark { code: code.into(), args, text: text.into() }
}

fn warning(remark: Remark, link: Option<String>) -> Need {
    Need { remark, severity: WARNING.into(), since: None, link }
}

fn alert(alert: &Alert) -> Need {
    let alert = model::Alert::from(alert);
    let args = json!({
        "name": alert.name, "lane": alert.lane, "upstream": alert.upstream, "policy": alert.policy,
        "tenant": alert.tenant, "value": alert.value, "threshold": alert.threshold,
    });
    let remark = remark("alert", args, &alert.text);
    Need { remark, severity: alert.severity, since: alert.since, link: Some("#/alerts".into()) }
}

fn paused(lane: &LaneView) -> Need {
    let name = lane.name.as_str();
    let args = json!({ "lane": name, "waiting": waiting(lane) });
    warning(remark("paused", args, &format!("Lane `{name}` is paused.")), Some(format!("#/lanes/{name}")))
}

fn differs(peer: &Peer) -> Need {
    let (id, count) = (&peer.id, peer.differs);
    let text = format!("Process {id} has other rules than those in force for {count} lanes or upstreams.");
    warning(remark("differs", json!({ "process": id, "count": count }), &text), Some("#/fleet".into()))
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
