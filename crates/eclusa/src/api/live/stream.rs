//! One stream: the changes that the caller may see and asked for.

use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use eclusa_core::{JobTransition, Name};
use futures_util::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::feed::{Cursor, Live, Named, News, Seat};
use super::watcher::PAUSE;
use crate::api::alerts;
use crate::api::auth::Caller;
use crate::api::status::StatusParts;
use crate::config::Config;
use crate::life::Life;
use crate::model::{LiveJob, ServiceStatus, iso};
use crate::rules::{CurrentRules, Rules};

/// How often an idle stream gets a comment, so that proxies keep the connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends after this long; the client reconnects with its cursor.
const MAX_LENGTH: Duration = Duration::from_hours(1);

/// How often the status is compared with the one that was sent last: time alone may change it.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// The topics of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(clippy::struct_excessive_bools, reason = "topics are chosen independently of each other")]
pub(super) struct Topics {
    lanes: bool,
    upstreams: bool,
    jobs: bool,
    alerts: bool,
    fleet: bool,
    status: bool,
}

impl Topics {
    /// Parses a comma-separated list; `None` means all topics.
    pub(super) fn parse(text: Option<&str>) -> Result<Self, String> {
        let all = "lanes,upstreams,jobs,alerts,fleet,status";
        let mut topics = Self::default();
        for word in text.unwrap_or(all).split(',') {
            let topic = match word.trim() {
                "lanes" => &mut topics.lanes,
                "upstreams" => &mut topics.upstreams,
                "jobs" => &mut topics.jobs,
                "alerts" => &mut topics.alerts,
                "fleet" => &mut topics.fleet,
                "status" => &mut topics.status,
                other => return Err(format!("contains {other:?}, which is not one of {all}")),
            };
            *topic = true;
        }
        Ok(topics)
    }
}

/// What a listener may see and asked for.
pub(super) struct Subscription {
    pub(super) caller: Caller,
    pub(super) topics: Topics,
    pub(super) lane: Option<Name>,
    pub(super) tenant: Option<String>,
}

impl Subscription {
    fn shows_lane(&self, lane: &Name) -> bool {
        self.lane.as_ref().is_none_or(|only| only == lane) && self.caller.may_use(lane).is_ok()
    }

    fn shows_job(&self, job: &JobTransition) -> bool {
        self.lane.as_ref().is_none_or(|only| *only == job.lane)
            && self.tenant.as_deref().is_none_or(|only| *only == *job.tenant)
            && self.caller.may_use(&job.lane).is_ok()
            && self.caller.may_act_for(&job.tenant).is_ok()
    }

    /// The events for `news`. Only the last one has the cursor, so that a client that received some of them gets all again.
    fn events(&self, news: &News, config: &Config) -> Vec<Event> {
        let Topics { lanes, upstreams, jobs, alerts, fleet, .. } = self.topics;
        let lanes = lanes.then(|| pick(&news.lanes, |name| self.shows_lane(name)));
        let reach = |name: &Name| self.caller.may_reach(config, name.as_str()).is_ok();
        let upstreams = upstreams.then(|| pick(&news.upstreams, reach));
        let alerts = news.alerts.as_ref().filter(|_| alerts);
        let alerts = alerts.map(|view| json!(alerts::shown(view, &self.caller, config)));
        let fleet = news.fleet.as_deref().filter(|_| fleet).cloned();
        let seen = news.jobs.iter().filter(|job| jobs && self.shows_job(job));
        let jobs: Vec<_> = seen.map(|job| LiveJob::from(&**job)).collect();
        let mut named: Vec<(&str, Value)> = Vec::new();
        if news.gap {
            named.push(("gap", json!({})));
        }
        if news.whole {
            let mut snapshot = json!({ "at": iso(news.now) });
            let parts = [("lanes", lanes), ("upstreams", upstreams), ("alerts", alerts), ("fleet", fleet)];
            for (name, part) in parts.into_iter().filter_map(|(name, part)| Some((name, part?))) {
                snapshot[name] = part;
            }
            named.push(("snapshot", snapshot));
        } else {
            let some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
            named.extend(lanes.filter(some).map(|lanes| ("lanes", lanes)));
            named.extend(upstreams.filter(some).map(|upstreams| ("upstreams", upstreams)));
            named.extend(alerts.map(|alerts| ("alerts", alerts)));
            named.extend(fleet.map(|fleet| ("fleet", fleet)));
            named.extend((!jobs.is_empty()).then(|| ("jobs", json!(jobs))));
        }
        let last = named.len().saturating_sub(1);
        let event = |(number, (name, data)): (usize, (&str, Value))| {
            let event = Event::default().event(name).data(data.to_string());
            if number == last { event.id(news.cursor.to_string()) } else { event }
        };
        named.into_iter().enumerate().map(event).collect()
    }
}

/// The entries that `shows` selects, as JSON.
fn pick(named: &Named, shows: impl Fn(&Name) -> bool) -> Value {
    let shown = |(name, shown): &(Name, Option<Arc<Value>>)| match shown {
        Some(shown) => (**shown).clone(),
        None => json!({ "name": name.as_str(), "removed": true }),
    };
    named.iter().filter(|(name, _)| shows(name)).map(shown).collect()
}

/// The state of one stream.
pub(super) struct Listener {
    live: Arc<Live>,
    life: Arc<Life>,
    rules: Arc<CurrentRules>,
    /// The rules under which the caller was admitted. When they change, it must reconnect.
    begun: Arc<Rules>,
    scope: Subscription,
    seen: Option<Cursor>,
    updates: watch::Receiver<u64>,
    /// Nothing is sent before this.
    next: Instant,
    until: Instant,
    status: StatusParts,
    /// The status that was sent last.
    sent_status: Option<ServiceStatus>,
    _seat: Seat,
}

impl Listener {
    pub(super) fn new(
        live: Arc<Live>,
        (life, status): (Arc<Life>, StatusParts),
        rules: Arc<CurrentRules>,
        scope: Subscription,
        seen: Option<Cursor>,
        seat: Seat,
    ) -> Self {
        let (mut updates, begun, now) = (live.updates.subscribe(), rules.get(), Instant::now());
        // Everything that exists already is new to this stream.
        updates.mark_changed();
        Self {
            live,
            life,
            rules,
            begun,
            scope,
            seen,
            updates,
            next: now,
            until: now + MAX_LENGTH,
            status,
            sent_status: None,
            _seat: seat,
        }
    }

    /// All events.
    pub(super) fn events(self) -> impl Stream<Item = Event> {
        let steps = stream::unfold(self, async |mut listener| {
            let events = listener.next().await?;
            Some((stream::iter(events), listener))
        });
        steps.flatten()
    }

    /// The next events, or a comment if there were none for [`HEARTBEAT`]; `None` at the end.
    async fn next(&mut self) -> Option<Vec<Event>> {
        let silent_at = Instant::now() + HEARTBEAT;
        loop {
            if Instant::now() >= self.until || !Arc::ptr_eq(&self.begun, &self.rules.get()) {
                return None;
            }
            let status_at = self.scope.topics.status.then(|| Instant::now() + STATUS_EVERY);
            let look_at = status_at.map_or(silent_at, |status_at| status_at.min(silent_at));
            let changed = self.changed_before(look_at).await?;
            let news = if changed { self.live.feed().since(self.seen) } else { None };
            let mut events = Vec::new();
            if let Some(news) = news {
                self.seen = Some(news.cursor);
                self.next = Instant::now() + PAUSE;
                events = self.scope.events(&news, &self.begun.config);
            }
            events.extend(self.status_event());
            if !events.is_empty() {
                return Some(events);
            }
            if Instant::now() >= silent_at {
                return Some(vec![Event::default().comment("")]);
            }
        }
    }

    /// Waits until something changed, but not after `until`; says whether it did. `None` if the stream must end.
    async fn changed_before(&mut self, until: Instant) -> Option<bool> {
        let changed = async {
            sleep_until(self.next).await;
            self.updates.changed().await
        };
        tokio::select! {
            biased;
            () = self.life.stopping.cancelled() => None,
            changed = timeout_at(until, changed) => match changed {
                Ok(Ok(())) => Some(true),
                Ok(Err(_)) => None,
                Err(_) => Some(false),
            },
        }
    }

    /// The status, if it was asked for and is not the one that was sent last.
    fn status_event(&mut self) -> Option<Event> {
        if !self.scope.topics.status {
            return None;
        }
        let state = self.live.feed().state()?;
        let status = self.status.of(&state, &self.scope.caller);
        if self.sent_status.as_ref() == Some(&status) {
            return None;
        }
        let event = Event::default().event("status").data(json!(status).to_string());
        self.sent_status = Some(status);
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_a_list_of_known_words() {
        let all = Topics::parse(None).unwrap();
        assert!(all.lanes && all.upstreams && all.jobs && all.alerts && all.fleet && all.status);
        let some = Topics::parse(Some("lanes, jobs")).unwrap();
        assert_eq!(some, Topics { lanes: true, jobs: true, ..Topics::default() });
        assert!(Topics::parse(Some("lanes,tenants")).is_err());
        assert!(Topics::parse(Some("")).is_err());
    }
}
