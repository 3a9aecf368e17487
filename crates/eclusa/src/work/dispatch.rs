//! Dispatch: asks for jobs of one lane that may start, and starts them.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::gate::CallResult;
use eclusa_core::{Denied, Dispatch, Dispatched, Grant, Name, Span};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Workers;
use super::run::Run;
use super::slots::{Slots, TakenSlots};
use crate::ids::own_nonce;
use crate::rules::Rules;
use crate::telemetry::Metrics;

/// How long the store may hold the question while nothing can start.
const HELD: Span = Span::from_secs(10);

pub(super) async fn run(workers: Arc<Workers>, lane: Name, slots: Slots, stop: CancellationToken) {
    let mut dispatcher = Dispatcher { workers, lane, stop: stop.clone(), blocked: Blocked::default() };
    loop {
        let taken = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            taken = slots.take() => taken,
        };
        let max = taken.iter().map(TakenSlots::len).sum();
        let Some(granted) = dispatcher.ask(max, Span::ZERO).await else { return };
        let full = granted.grants.len() == max;
        dispatcher.start(granted, taken);
        if full {
            continue;
        }
        // Nothing more can start now. The store holds the next question, and no slot is held meanwhile.
        let Some(granted) = dispatcher.ask(1, HELD).await else { return };
        match slots.take_one() {
            Some(slot) => dispatcher.start(granted, vec![slot]),
            None => dispatcher.give_back(granted),
        }
    }
}

/// Jobs that may start.
#[derive(Default)]
struct Granted {
    grants: Vec<Grant>,
    /// The earliest time they can have been granted, and the rules they run under.
    given: Option<(Instant, Arc<Rules>)>,
    /// When gates were first asked for them, and the gate that held them back, if any.
    gates: Option<(Instant, Option<Denied>)>,
}

struct Dispatcher {
    workers: Arc<Workers>,
    lane: Name,
    /// Cancelled when the lane is removed or the process is stopping.
    stop: CancellationToken,
    blocked: Blocked,
}

impl Dispatcher {
    /// Asks for at most `max` jobs; `None` if the process is stopping.
    async fn ask(&mut self, max: usize, wait: Span) -> Option<Granted> {
        let Workers { decider, rules: current, metrics, .. } = &*self.workers;
        let asked_at = Instant::now();
        let mut rules = current.get();
        let ask = Dispatch {
            lane: self.lane.clone(),
            max,
            lease: Span::from(rules.config.workers.lease),
            nonce: own_nonce(),
            wait,
            denied: self.blocked.denied(),
        };
        let answer = tokio::select! {
            biased;
            // The store releases what it may have granted.
            () = self.stop.cancelled() => return None,
            answer = decider.dispatch(ask) => answer,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if decider.wait_out_outage(&error).await => return Some(Granted::default()),
            Err(_) => return None,
        };
        let gates = match &self.blocked.0 {
            Some((denied, since)) => (*since, Some(denied.clone())),
            None => (asked_at + Duration::from_millis(answer.held.as_millis()), None),
        };
        self.blocked.update(metrics, &self.lane, &answer, asked_at);
        // A lane that was removed meanwhile is only in the older rules.
        let newest = current.get();
        if newest.config.lanes.contains_key(&self.lane) {
            rules = newest;
        }
        let at = asked_at + Duration::from_millis(answer.held.as_millis());
        Some(Granted { grants: answer.grants, given: Some((at, rules)), gates: Some(gates) })
    }

    /// Starts the granted jobs; unused slots are released.
    fn start(&self, granted: Granted, mut taken: Vec<TakenSlots>) {
        let (Some((asked, rules)), Some(gates)) = (granted.given, granted.gates) else { return };
        let Some(lane_rules) = rules.config.lanes.get(&self.lane) else { return };
        for grant in granted.grants {
            let run = Run {
                workers: self.workers.clone(),
                lane: self.lane.clone(),
                rules: rules.clone(),
                lane_rules: lane_rules.clone(),
                grant,
                asked,
                gates: gates.clone(),
            };
            let slot = taken.iter_mut().find_map(TakenSlots::split_one);
            self.workers.life.running.spawn(async move { run.to_its_end(slot).await });
        }
    }

    /// Returns the jobs to the front of their lines: other lanes took all slots meanwhile.
    fn give_back(&self, granted: Granted) {
        for grant in granted.grants {
            self.workers.decider.end_call(
                grant.upstream.without_key(),
                grant.lease,
                CallResult::NotSent.into(),
            );
        }
    }
}

/// The gate that holds back a lane with jobs, and since when.
#[derive(Default)]
struct Blocked(Option<(Denied, Instant)>);

impl Blocked {
    fn denied(&self) -> Option<Denied> {
        self.0.as_ref().map(|(denied, _)| denied.clone())
    }

    /// Counts each time a gate starts to hold the lane back, and measures for how long.
    fn update(&mut self, metrics: &Metrics, lane: &Name, answer: &Dispatched, now: Instant) {
        let held_back = answer.denied.as_ref().filter(|_| answer.grants.is_empty());
        if self.0.as_ref().map(|(denied, _)| denied) == held_back {
            return;
        }
        if let Some((denied, since)) = self.0.take() {
            metrics.time_wait(lane, denied.reason, now - since);
        }
        if let Some(denied) = held_back {
            metrics.count_denial(Some(lane), denied.upstream.as_ref(), denied.reason);
            self.0 = Some((denied.clone(), now));
        }
    }
}
