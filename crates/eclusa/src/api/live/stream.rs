//! One stream: what changed, of what the caller may see and asked for.

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
use crate::api::model::{LiveJob, ServiceStatus, iso};
use crate::api::status::{StatusParts, store_lost};
use crate::config::Config;
use crate::life::Life;
use crate::rules::{CurrentRules, Rules};

/// A silent stream gets a comment this often, so that nothing between takes it for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A stream ends after this long; the client comes back with its cursor.
const MAX_LENGTH: Duration = Duration::from_hours(1);

/// What a stream tells of.
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
    /// Reads names that are separated by commas; none means all.
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
                other => return Err(format!("has {other:?}, which is none of {all}")),
            };
            *topic = true;
        }
        Ok(topics)
    }
}

/// What one who listens may see and asked for.
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

    /// The events for `news`; the last of them has the cursor, so that a client that got only some of them gets all again.
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
        let mut told: Vec<(&str, Value)> = Vec::new();
        if news.gap {
            told.push(("gap", json!({})));
        }
        if news.whole {
            let mut snapshot = json!({ "at": iso(news.now) });
            let parts = [("lanes", lanes), ("upstreams", upstreams), ("alerts", alerts), ("fleet", fleet)];
            for (name, part) in parts.into_iter().filter_map(|(name, part)| Some((name, part?))) {
                snapshot[name] = part;
            }
            told.push(("snapshot", snapshot));
        } else {
            let some = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
            told.extend(lanes.filter(some).map(|lanes| ("lanes", lanes)));
            told.extend(upstreams.filter(some).map(|upstreams| ("upstreams", upstreams)));
            told.extend(alerts.map(|alerts| ("alerts", alerts)));
            told.extend(fleet.map(|fleet| ("fleet", fleet)));
            told.extend((!jobs.is_empty()).then(|| ("jobs", json!(jobs))));
        }
        let last = told.len().saturating_sub(1);
        let event = |(number, (name, data)): (usize, (&str, Value))| {
            let event = Event::default().event(name).data(data.to_string());
            if number == last { event.id(news.cursor.to_string()) } else { event }
        };
        told.into_iter().enumerate().map(event).collect()
    }
}

/// Those that are to be shown, as they are told.
fn pick(named: &Named, shows: impl Fn(&Name) -> bool) -> Value {
    let shown = |(name, shown): &(Name, Option<Arc<Value>>)| match shown {
        Some(shown) => (**shown).clone(),
        None => json!({ "name": name.as_str(), "removed": true }),
    };
    named.iter().filter(|(name, _)| shows(name)).map(shown).collect()
}

/// One who listens.
pub(super) struct Listener {
    live: Arc<Live>,
    life: Arc<Life>,
    rules: Arc<CurrentRules>,
    /// Those under which the caller was let in: with others it must ask again.
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
        // What is there already is news to this one.
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

    /// The next events, or a comment if there were none for a while; `None` at the end.
    async fn next(&mut self) -> Option<Vec<Event>> {
        let life = self.life.clone();
        let silent_at = Instant::now() + HEARTBEAT;
        loop {
            if Instant::now() >= self.until || !Arc::ptr_eq(&self.begun, &self.rules.get()) {
                return None;
            }
            let changed = async {
                sleep_until(self.next).await;
                self.updates.changed().await
            };
            tokio::select! {
                biased;
                () = life.stopping.cancelled() => return None,
                changed = timeout_at(silent_at, changed) => match changed {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return None,
                    Err(_) => return Some(vec![Event::default().comment("")]),
                },
            }
            let Some(news) = self.live.feed().since(self.seen) else { continue };
            self.seen = Some(news.cursor);
            self.next = Instant::now() + PAUSE;
            let mut events = self.scope.events(&news, &self.begun.config);
            events.extend(self.status_event().await);
            if !events.is_empty() {
                return Some(events);
            }
        }
    }

    /// The status, if it was asked for and is not the one that was sent last.
    async fn status_event(&mut self) -> Option<Event> {
        if !self.scope.topics.status {
            return None;
        }
        let status = self.status.read(&self.scope.caller).await.unwrap_or_else(|_| store_lost());
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
