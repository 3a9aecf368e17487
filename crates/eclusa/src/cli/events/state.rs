//! What the stream has said so far: a pure function of its events.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::happening::{Happening, find, time};
use super::sse::Event;
use crate::cli::Exit;
use crate::cli::output::{typed, typed_all};
use crate::model::{Alert, Gate, Lane, ServiceStatus, Upstream};

/// A snapshot may be this old when it arrives. A larger difference is one between the clocks.
const STALE: SignedDuration = SignedDuration::from_secs(5);

/// What is known of everything.
#[derive(Debug, Default)]
pub(in crate::cli) struct State {
    pub(in crate::cli) lanes: Vec<Lane>,
    pub(in crate::cli) upstreams: Vec<Upstream>,
    /// Alerts that fire.
    pub(in crate::cli) alerts: Vec<Alert>,
    /// Alerts that have resolved.
    resolved: Vec<Alert>,
    /// Faults of the store and the fleet: time, code, text.
    faults: Vec<[String; 3]>,
    pub(in crate::cli) status: Option<ServiceStatus>,
    /// How far the store's clock is ahead of ours.
    ahead: SignedDuration,
    /// Whether a snapshot has arrived: only after it are there changes to report.
    known: bool,
    /// What happened in the update that is not complete yet.
    pending: Vec<Happening>,
}

impl State {
    /// Takes in an event that arrived at `now`. The last event of an update, which has its id, returns what happened in the
    /// update, by time: an update has gates before the jobs whose failures closed them.
    pub(in crate::cli) fn apply(&mut self, event: &Event, now: Timestamp) -> Result<Vec<Happening>, Exit> {
        let happenings = self.changes(event, now)?;
        self.pending.extend(happenings);
        if event.id.is_none() {
            return Ok(Vec::new());
        }
        self.pending.sort_by_key(|happening| happening.at.unwrap_or(Timestamp::MAX));
        Ok(std::mem::take(&mut self.pending))
    }

    fn changes(&mut self, event: &Event, now: Timestamp) -> Result<Vec<Happening>, Exit> {
        let data: Value = serde_json::from_str(&event.data)
            .map_err(|error| Exit::Error(format!("the server sent an event that is not JSON: {error}")))?;
        let mut happenings = Vec::new();
        match event.name.as_str() {
            "snapshot" => {
                self.set_clock(data["at"].as_str().and_then(time), now);
                let at = self.store_time(now);
                if let Some(lanes) = data["lanes"].as_array() {
                    self.set_lanes(typed_all(lanes)?, at, &mut happenings);
                }
                if let Some(upstreams) = data["upstreams"].as_array() {
                    self.set_upstreams(typed_all(upstreams)?, at, &mut happenings);
                }
                self.set_alerts(&data["alerts"], &mut happenings)?;
                self.set_faults(&data["fleet"], &mut happenings);
                if !std::mem::replace(&mut self.known, true) {
                    happenings.clear();
                }
            }
            "lanes" => {
                let lanes = merged(&self.lanes, &data, |lane| &lane.name)?;
                self.set_lanes(lanes, self.store_time(now), &mut happenings);
            }
            "upstreams" => {
                let upstreams = merged(&self.upstreams, &data, |upstream| &upstream.name)?;
                self.set_upstreams(upstreams, self.store_time(now), &mut happenings);
            }
            "alerts" => self.set_alerts(&data, &mut happenings)?,
            "fleet" => self.set_faults(&data, &mut happenings),
            "status" => self.status = Some(typed(&data)?),
            "jobs" => {
                let jobs = typed_all(data.as_array().map(Vec::as_slice).unwrap_or_default())?;
                happenings.extend(jobs.into_iter().map(Happening::of_job));
            }
            // `gap` changes nothing: a snapshot follows. Other events are those of a newer server.
            _ => {}
        }
        Ok(happenings)
    }

    /// The time of the store's clock when ours shows `now`.
    pub(in crate::cli) fn store_time(&self, now: Timestamp) -> Timestamp {
        now.checked_add(self.ahead).unwrap_or(now)
    }

    /// The lane with this name.
    pub(in crate::cli) fn lane(&self, name: &str) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.name == name)
    }

    /// The upstream with this name.
    pub(in crate::cli) fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }

    /// Replaces a lane that the server returned to another call.
    pub(in crate::cli) fn set_lane(&mut self, lane: Lane) {
        if let Some(known) = self.lanes.iter_mut().find(|known| known.name == lane.name) {
            *known = lane;
        }
    }

    fn set_clock(&mut self, at: Option<Timestamp>, now: Timestamp) {
        let ahead = at.map_or(SignedDuration::ZERO, |at| at.duration_since(now));
        let explained = -STALE <= ahead && ahead.is_negative();
        self.ahead = if explained { SignedDuration::ZERO } else { ahead };
    }

    fn set_lanes(&mut self, lanes: Vec<Lane>, at: Timestamp, happenings: &mut Vec<Happening>) {
        for lane in &lanes {
            if self.lane(&lane.name).is_some_and(|known| known.paused != lane.paused) {
                happenings.push(Happening::of_lane(&lane.name, lane.paused, at));
            }
        }
        self.lanes = lanes;
    }

    fn set_upstreams(&mut self, upstreams: Vec<Upstream>, at: Timestamp, happenings: &mut Vec<Happening>) {
        for new in &upstreams {
            let Some(old) = self.upstream(&new.name) else { continue };
            happenings.extend(Happening::of_breaker(old, new, at));
            compare_gates(&new.name, &old.gates, &new.gates, at, happenings);
            for key in &new.keys {
                let known = old.keys.iter().find(|known| known.name == key.name);
                let gates = known.map(|known| known.gates.as_slice()).unwrap_or_default();
                compare_gates(&format!("{}/{}", new.name, key.name), gates, &key.gates, at, happenings);
            }
        }
        self.upstreams = upstreams;
    }

    fn set_alerts(&mut self, data: &Value, happenings: &mut Vec<Happening>) -> Result<(), Exit> {
        let list = |name: &str| data[name].as_array().map(|list| typed_all::<Alert>(list)).transpose();
        let (Some(firing), Some(resolved)) = (list("alerts")?, list("recent")?) else { return Ok(()) };
        let is_new = |alert: &&Alert, known: &[Alert]| !known.iter().any(|old| same_alert(old, alert));
        let ended = resolved.iter().filter(|alert| is_new(alert, &self.resolved));
        let fired = firing.iter().filter(|alert| is_new(alert, &self.alerts));
        // The newest of those that resolved comes first.
        happenings.extend(ended.rev().chain(fired).map(Happening::of_alert));
        (self.alerts, self.resolved) = (firing, resolved);
        Ok(())
    }

    fn set_faults(&mut self, data: &Value, happenings: &mut Vec<Happening>) {
        let Some(faults) = data["faults"].as_array() else { return };
        let text = |fault: &Value, name: &str| fault[name].as_str().unwrap_or_default().to_owned();
        let fault = |fault: &Value| ["at", "code", "text"].map(|name| text(fault, name));
        let faults: Vec<_> = faults.iter().map(fault).collect();
        let new = faults.iter().filter(|fault| !self.faults.contains(fault));
        happenings.extend(new.rev().map(|[at, code, text]| Happening::of_fault(code, text, time(at))));
        self.faults = faults;
    }
}

/// The list with changed items replaced, new ones added and removed ones left out, by name.
fn merged<T: serde::de::DeserializeOwned + Clone>(
    known: &[T],
    changes: &Value,
    name: impl Fn(&T) -> &String,
) -> Result<Vec<T>, Exit> {
    let changes = changes.as_array().map(Vec::as_slice).unwrap_or_default();
    let is_changed = |item: &&T| changes.iter().any(|change| change["name"] == **name(item));
    let mut list: Vec<T> = known.iter().filter(|item| !is_changed(item)).cloned().collect();
    for change in changes.iter().filter(|change| change["removed"] != true) {
        list.push(typed(change)?);
    }
    list.sort_by(|a, b| name(a).cmp(name(b)));
    Ok(list)
}

/// Compares the cooldown and the `Retry-After` of an upstream, or of one of its keys.
fn compare_gates(name: &str, old: &[Gate], new: &[Gate], at: Timestamp, happenings: &mut Vec<Happening>) {
    let (hot, asked) = ("cooldown", "upstream_retry_after");
    if let (Some(old), Some(new)) = (find(old, hot), find(new, hot)) {
        happenings.extend(Happening::of_cooldown(name, old, new, at));
    }
    happenings.extend(Happening::of_retry_after(name, find(old, asked), find(new, asked), at));
}

fn same_alert(a: &Alert, b: &Alert) -> bool {
    let key = |alert: &Alert| {
        let Alert { name, severity, lane, upstream, policy, tenant, since, resolved_at, .. } = alert.clone();
        (name, severity, lane, upstream, policy, tenant, since, resolved_at)
    };
    key(a) == key(b)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use serde_json::json;

    use super::super::happening::clock_time;
    use super::*;
    use crate::cli::events::fixtures::{lane, upstream};

    const NOW: &str = "2026-11-16T14:03:24Z";

    /// A state with one lane and one upstream.
    fn known() -> State {
        let mut state = State::default();
        let snapshot = json!({
            "at": NOW, "lanes": [lane("mail")], "upstreams": [upstream("fal")],
            "alerts": { "alerts": [], "recent": [] }, "fleet": { "faults": [] },
        });
        assert_eq!(hear(&mut state, "snapshot", &snapshot), Vec::<String>::new());
        state
    }

    /// What happened, in words.
    fn hear(state: &mut State, name: &str, data: &Value) -> Vec<String> {
        let event = Event { name: name.into(), data: data.to_string(), id: Some("7-1".into()) };
        let happenings = state.apply(&event, NOW.parse().unwrap()).unwrap();
        happenings.iter().map(|one| one.sentence(|at| clock_time(at, &TimeZone::UTC))).collect()
    }

    fn names(state: &State) -> Vec<&str> {
        state.lanes.iter().map(|lane| lane.name.as_str()).collect()
    }

    #[test]
    fn changed_lanes_replace_known_ones_and_removed_ones_go() {
        let mut state = known();
        let mut busy = lane("mail");
        busy["processing"] = 7.into();
        hear(&mut state, "lanes", &json!([busy, lane("bulk")]));
        assert_eq!((names(&state), state.lane("mail").unwrap().processing), (vec!["bulk", "mail"], 7));
        hear(&mut state, "lanes", &json!([{ "name": "mail", "removed": true }]));
        assert_eq!(names(&state), ["bulk"]);
        hear(&mut state, "snapshot", &json!({ "at": NOW, "lanes": [lane("new")] }));
        assert_eq!(names(&state), ["new"], "a snapshot is everything");
        assert_eq!(state.upstreams.len(), 1, "of the topics that are in it");
    }

    #[test]
    fn what_a_snapshot_says_first_did_not_just_happen() {
        let mut state = State::default();
        let mut paused = lane("mail");
        paused["paused"] = true.into();
        let alert = json!({ "name": "dead_letters", "severity": "warning", "lane": "mail", "value": 101,
            "threshold": 100, "since": NOW, "text": "Too many." });
        let mut snapshot = json!({
            "at": NOW, "lanes": [paused], "alerts": { "alerts": [alert], "recent": [] },
            "fleet": { "faults": [{ "at": NOW, "code": "takeover", "text": "Taken over." }] },
        });
        assert_eq!(hear(&mut state, "snapshot", &snapshot), Vec::<String>::new());
        snapshot["lanes"] = json!([lane("mail")]);
        assert_eq!(hear(&mut state, "snapshot", &snapshot), ["lane resumed"], "later ones are compared");
    }

    #[test]
    fn pauses_gates_and_faults_are_compared_with_what_was_known() {
        let mut state = known();
        let mut paused = lane("mail");
        paused["paused"] = true.into();
        assert_eq!(hear(&mut state, "lanes", &json!([paused])), ["lane paused"]);
        let mut open = upstream("fal");
        open["breaker"] = "open".into();
        open["gates"][0] = json!({ "reason": "circuit_open", "open": false,
            "until": "2026-11-16T14:03:34Z", "level": 5, "limit": 5 });
        let asked = json!({ "reason": "upstream_retry_after", "open": false,
            "until": "2026-11-16T14:04:00Z", "level": 0, "limit": null });
        open["gates"].as_array_mut().unwrap().push(asked.clone());
        open["keys"] = json!([{ "name": "spare", "inFlight": 0, "requestsLastMinute": 0, "gates": [asked] }]);
        let said = hear(&mut state, "upstreams", &json!([open]));
        let until = "asked to wait until 14:04:00";
        let expected =
            ["breaker of fal is open until 14:03:34", &format!("fal {until}"), &format!("fal/spare {until}")];
        assert_eq!(said, expected);
        assert!(hear(&mut state, "upstreams", &json!([open])).is_empty(), "the same again");
        let fault = |at: &str, text: &str| json!({ "at": at, "code": "takeover", "text": text });
        let first = json!({ "faults": [fault("2026-11-16T14:03:20Z", "One.")] });
        assert_eq!(hear(&mut state, "fleet", &first), ["One."]);
        let both = json!({ "faults": [fault("2026-11-16T14:03:21Z", "Two."), first["faults"][0]] });
        assert_eq!(hear(&mut state, "fleet", &both), ["Two."]);
    }

    #[test]
    fn alerts_fire_and_resolve_once() {
        let mut state = known();
        let firing = json!({ "name": "dead_letters", "severity": "warning", "lane": "mail", "value": 101,
            "threshold": 100, "since": NOW, "text": "Too many." });
        let mut resolved = firing.clone();
        resolved["resolvedAt"] = NOW.into();
        resolved["text"] = "Resolved: Too many.".into();
        let mut more = firing.clone();
        more["value"] = 102.into();
        for (alerts, recent, expected) in [
            (vec![&firing], vec![], &["alert: Too many."][..]),
            (vec![&more], vec![], &[]),
            (vec![], vec![&resolved], &["alert: Resolved: Too many."]),
            (vec![], vec![&resolved], &[]),
        ] {
            let data = json!({ "alerts": alerts, "recent": recent });
            assert_eq!(hear(&mut state, "alerts", &data), expected);
        }
    }

    #[test]
    fn an_update_is_reported_at_its_end_in_the_order_of_time() {
        let mut state = known();
        let mut paused = lane("mail");
        paused["paused"] = true.into();
        let first = Event { name: "lanes".into(), data: json!([paused]).to_string(), id: None };
        let now = NOW.parse().unwrap();
        assert!(state.apply(&first, now).unwrap().is_empty());
        let job = |at: &str, event: &str| {
            json!({ "at": at, "jobId": "1", "id": "1", "lane": "mail", "tenant": "t", "priority": "normal",
                "event": event, "status": "queued" })
        };
        let jobs = json!([job("2026-11-16T14:03:23Z", "accepted"), job("2026-11-16T14:03:23Z", "completed")]);
        assert_eq!(hear(&mut state, "jobs", &jobs), ["accepted", "completed", "lane paused"]);
        assert!(hear(&mut state, "jobs", &json!([])).is_empty());
    }

    #[test]
    fn clocks_are_compared_with_a_snapshot_that_may_be_old() {
        let mut state = known();
        for (at, expected) in [
            (NOW, NOW),
            ("2026-11-16T14:03:19Z", NOW),
            ("2026-11-16T14:03:18Z", "2026-11-16T14:03:18Z"),
            ("2026-11-16T14:03:25Z", "2026-11-16T14:03:25Z"),
        ] {
            hear(&mut state, "snapshot", &json!({ "at": at }));
            assert_eq!(state.store_time(NOW.parse().unwrap()).to_string(), expected, "{at}");
        }
    }

    #[test]
    fn events_of_a_newer_server_are_ignored_and_broken_ones_are_errors() {
        let mut state = known();
        assert!(hear(&mut state, "tides", &json!({})).is_empty());
        let broken = Event { name: "lanes".into(), data: "[{".into(), id: None };
        assert!(matches!(state.apply(&broken, NOW.parse().unwrap()), Err(Exit::Error(_))));
        let other = Event { name: "lanes".into(), data: "[{\"name\":\"mail\"}]".into(), id: None };
        assert!(matches!(state.apply(&other, NOW.parse().unwrap()), Err(Exit::Error(_))));
    }
}
