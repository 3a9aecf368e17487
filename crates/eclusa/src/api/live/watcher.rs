//! The task that asks the store for changes while there are listeners; one per process.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{LaneView, Name, Observe, ObserveCursor, Observed, ObservedState, Span, Store};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::feed::{Found, Live};
use crate::api::fleet::Fleet;
use crate::api::{lanes, model};
use crate::ids::own_nonce;
use crate::life::Life;
use crate::peers::Peers;
use crate::rules::CurrentRules;
use crate::store::AnyStore;
use crate::telemetry::{Metrics, Rates};

/// At most two updates a second.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// How long the store may hold the question. Values of this process, such as rates, are refreshed at least this often.
const HELD: Span = Span::from_secs(2);
/// The pause after an error of the store.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// The task continues for this long without listeners, so that clients can reconnect and resume.
const LINGER: Duration = Duration::from_mins(1);

/// Everything the task reads and writes.
pub(super) struct Watcher {
    pub(super) live: Arc<Live>,
    pub(super) store: Arc<AnyStore>,
    pub(super) rules: Arc<CurrentRules>,
    pub(super) rates: Arc<Rates>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) peers: Arc<Peers>,
    pub(super) life: Arc<Life>,
}

impl Watcher {
    /// Starts the task unless it is running.
    pub(super) fn start_if_needed(self) {
        let mut feed = self.live.feed();
        if feed.run == 0 {
            feed.begin(own_nonce().max(1));
            self.live.updates.send_replace(0);
            drop(feed);
            tokio::spawn(self.run());
        }
    }

    async fn run(self) {
        let stopping = self.life.stopping.clone();
        tokio::select! {
            () = stopping.cancelled() => {}
            () = self.watch() => {}
        }
    }

    async fn watch(&self) {
        let (mut seen, mut state) = (None, None);
        let mut last_listener = Instant::now();
        loop {
            if self.live.has_listeners() {
                last_listener = Instant::now();
            } else if last_listener.elapsed() > LINGER && self.end() {
                return;
            }
            let asked = Instant::now();
            match self.store.observe(Observe { seen, wait: HELD }).await {
                Ok(observed) => {
                    let more = self.take(observed, &mut seen, &mut state);
                    if !more {
                        sleep_until(asked + PAUSE).await;
                    }
                }
                Err(error) => {
                    // The fleet shows that the store does not answer.
                    if let Some(state) = &state {
                        self.publish(self.found(state));
                    }
                    tracing::debug!(%error, "The store did not report changes");
                    sleep(STORE_PAUSE).await;
                }
            }
        }
    }

    /// Ends the run unless a listener has arrived meanwhile.
    fn end(&self) -> bool {
        let mut feed = self.live.feed();
        let over = !self.live.has_listeners();
        if over {
            feed.begin(0);
        }
        over
    }

    /// Publishes an answer. Returns whether the store may have more changes already.
    fn take(
        &self,
        observed: Observed,
        seen: &mut Option<ObserveCursor>,
        state: &mut Option<Arc<ObservedState>>,
    ) -> bool {
        let Observed { cursor, now, gap, jobs, state: changed } = observed;
        let more = seen.is_some_and(|seen| cursor.number >= seen.number + MANY);
        *seen = Some(cursor);
        if changed.is_some() {
            *state = changed.map(Arc::new);
        }
        if let Some(state) = state {
            self.publish(Found { now: Some(now), gap, jobs, ..self.found(state) });
        }
        more
    }

    fn publish(&self, found: Found) {
        if let Some(update) = self.live.feed().take(found) {
            self.live.updates.send_replace(update);
        }
    }

    /// The state as JSON.
    fn found(&self, state: &Arc<ObservedState>) -> Found {
        let rules = self.rules.get();
        let lane = |view: &LaneView| {
            let lane = lanes::shown(view, &rules, &self.rates, &self.metrics);
            (view.name.clone(), json(&lane))
        };
        let in_force = |name: &Name| rules.config.spec.upstream(name).is_some();
        let upstreams = model::upstreams(&state.upstreams, in_force);
        // The same order; keys are shown with their upstreams.
        let plain = state.upstreams.iter().filter(|view| view.name.key().is_none());
        Found {
            now: None,
            gap: false,
            jobs: Vec::new(),
            lanes: state.lanes.iter().map(lane).collect(),
            upstreams: plain.zip(&upstreams).map(|(view, one)| (view.name.clone(), json(one))).collect(),
            alerts: Arc::new(state.alerts.clone()),
            fleet: json(&Fleet::of(&self.peers, &rules.config.store)),
            state: state.clone(),
        }
    }
}

/// An answer with this many job transitions may not have all of them.
const MANY: u64 = 1_000;

/// Cannot fail: keys are strings, and numbers are finite.
fn json(shown: &impl serde::Serialize) -> Value {
    serde_json::to_value(shown).unwrap_or_default()
}
