//! What a person should look at, and what happens by itself.

use eclusa_core::gate::{BreakerState, Reason};
use eclusa_core::{Alert, AlertRule, LaneView, Name, Time, UpstreamView};
use serde_json::json;

use super::{Overview, clock_time, plural, remark, waiting};
use crate::api::model::{self, Need, Remark, iso};
use crate::peers::Peer;

impl Overview<'_> {
    /// An alert about something that has a row of its own only makes that row more serious.
    pub(super) fn needs(&self) -> Vec<Need> {
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
        let since = lane.oldest_dead_letter.and_then(iso);
        let need = Need { since, ..warning(letters_of(lane), Some(format!("#/dead-letters?lane={name}"))) };
        let about = |alert: &Alert| alert.condition.key.lane.as_ref() == Some(&lane.name);
        (count > 0).then(|| need.with(self.alerted(AlertRule::DeadLetters, about)))
    }
}

/// How many dead letters a lane has, the most frequent code and tenant, and until when the oldest is kept.
fn letters_of(lane: &LaneView) -> Remark {
    let (name, count, until) = (lane.name.as_str(), lane.dead_letters, lane.dead_letters_until);
    let (code, code_count) = lane.top_code.as_ref().map(|(code, count)| (&**code, count)).unzip();
    let (tenant, tenant_count) = lane.top_tenant.as_ref().map(|(tenant, count)| (&**tenant, count)).unzip();
    let args = json!({
        "lane": name, "count": count, "until": until.and_then(iso), "topCode": code, "topCodeCount": code_count,
        "topTenant": tenant, "topTenantCount": tenant_count,
    });
    let code = lane.top_code.iter().map(|(code, count)| format!("{count} with code {code}"));
    let tenant = lane.top_tenant.iter().map(|(tenant, count)| format!("{count} from `{tenant}`"));
    let most = code.chain(tenant).reduce(|code, tenant| format!("{code}, {tenant}"));
    let most = most.map_or(String::new(), |most| format!(": {most}"));
    let kept = until.and_then(day).map_or(String::new(), |day| format!("; the oldest is kept until {day}"));
    let letters = plural(count, "dead letter", "dead letters");
    remark("dead_letters", args, &format!("{letters} in lane `{name}`{most}{kept}."))
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
    let remark = remark("paused", args, &format!("Lane `{name}` is paused."));
    Need { since: lane.paused_since.and_then(iso), ..warning(remark, Some(format!("#/lanes/{name}"))) }
}

fn differs(peer: &Peer) -> Need {
    let (id, count) = (&peer.id, peer.differs);
    let text = format!("Process {id} has other rules than those in force for {count} lanes or upstreams.");
    warning(remark("differs", json!({ "process": id, "count": count }), &text), Some("#/fleet".into()))
}

/// The date and time to the minute, in UTC.
fn day(time: Time) -> Option<String> {
    let text = iso(time)?;
    Some(format!("{} {} UTC", text.get(..10)?, text.get(11..16)?))
}
