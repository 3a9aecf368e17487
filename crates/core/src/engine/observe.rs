//! What changed since an observer last asked: job transitions, from a bounded ring, and whether anything else changed.
//!
//! The ring exists only while there are observers; otherwise a transition costs one comparison. It is not stored: after a
//! restart or a takeover it starts empty, and the answer to an observer with an older cursor says that there is a gap.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use super::Engine;
use super::jobs::Phase;
use crate::ids::JobId;
use crate::job::{DropReason, Level, Status};
use crate::layout::encode_state;
use crate::table::{JobIx, LaneIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::timeline::EventKind;
use crate::verbs::{JobTransition, Observe, ObserveCursor, Observed, ObservedState};

/// Transitions kept for observers.
const KEPT: usize = 4_096;
/// Transitions in one answer.
const MAX_RETURNED: usize = 1_000;
/// An observer that does not ask again within this time after an answer is gone.
const GRACE: Span = Span::from_secs(60);

/// Job transitions since the first observer asked.
#[derive(Debug)]
pub(super) struct Observation {
    /// The epoch and the time in which it began. Together they identify it, among those of all engines.
    epoch: u64,
    began: Time,
    /// It ends if no observer asks until then.
    until: Time,
    /// The number of the last transition.
    last: u64,
    kept: VecDeque<KeptTransition>,
}

/// One transition, with everything needed to show it after its job is forgotten.
#[derive(Debug)]
struct KeptTransition {
    at: Time,
    job: JobId,
    key: Option<Arc<str>>,
    lane: LaneIx,
    tenant: Arc<str>,
    level: Level,
    kind: EventKind<UpstreamIx>,
    status: Status,
    dropped: Option<DropReason>,
}

impl Observation {
    /// The number of the oldest transition kept.
    fn first(&self) -> u64 {
        self.last + 1 - self.kept.len() as u64
    }

    /// Whether all transitions after `cursor` are kept.
    fn covers(&self, cursor: &ObserveCursor) -> bool {
        (self.epoch, self.began) == (cursor.epoch, cursor.began)
            && self.first() <= cursor.number + 1
            && cursor.number <= self.last
    }

    fn push(&mut self, transition: KeptTransition) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(transition);
        self.last += 1;
    }
}

impl Engine {
    /// What changed since `ask.seen`. Transitions are kept from the first call on, until no observer asks for a while.
    pub fn observe(&mut self, ask: &Observe, now: Time) -> Observed {
        let until = now + ask.wait + GRACE;
        let epoch = self.leases.epoch;
        let begin = || Box::new(Observation { epoch, began: now, until, last: 0, kept: VecDeque::new() });
        let observation = self.observation.get_or_insert_with(begin);
        observation.until = observation.until.max(until);
        let covered = ask.seen.as_ref().filter(|seen| observation.covers(seen));
        // An observer that is new, or missed some, gets no transitions, because it gets the whole state.
        let (epoch, began) = (observation.epoch, observation.began);
        let after = covered.map_or(observation.last, |seen| seen.number);
        let skipped = usize::try_from(after + 1 - observation.first()).unwrap_or(usize::MAX);
        let kept = self.observation.iter().flat_map(|observation| &observation.kept);
        let jobs: Vec<_> = kept
            .skip(skipped)
            .take(MAX_RETURNED)
            .map(|transition| self.view_transition(transition))
            .collect();
        let number = after + jobs.len() as u64;
        let state =
            ObservedState { lanes: self.lanes(now), upstreams: self.upstreams(now), alerts: self.alerts() };
        let digest = digest(&state);
        let changed = covered.is_none_or(|seen| seen.state != digest);
        Observed {
            cursor: ObserveCursor { epoch, began, number, state: digest },
            now,
            gap: ask.seen.is_some() && covered.is_none(),
            jobs,
            state: changed.then_some(state),
        }
    }

    /// Whether jobs changed since `seen`, or may have changed.
    pub fn jobs_changed_since(&self, seen: &ObserveCursor) -> bool {
        let observation = self.observation.as_ref();
        observation.is_none_or(|observation| !observation.covers(seen) || observation.last > seen.number)
    }

    /// Whether the state of lanes, upstreams or alerts has changed since `seen`.
    pub fn state_changed_since(&self, seen: &ObserveCursor, now: Time) -> bool {
        let state =
            ObservedState { lanes: self.lanes(now), upstreams: self.upstreams(now), alerts: self.alerts() };
        digest(&state) != seen.state
    }

    /// Adds an event to the timeline of a job and keeps it for observers.
    pub(super) fn note(&mut self, index: JobIx, now: Time, kind: EventKind<UpstreamIx>) {
        if self.observation.is_some() {
            self.keep_transition(index, now, kind.clone());
        }
        self.jobs[index].note(now, kind);
    }

    /// Keeps an event for observers that is not part of the stored timeline: a job was accepted, or ended.
    pub(super) fn note_unstored(&mut self, index: JobIx, now: Time, kind: EventKind<UpstreamIx>) {
        if self.observation.is_some() {
            self.keep_transition(index, now, kind);
        }
    }

    #[cold]
    fn keep_transition(&mut self, index: JobIx, now: Time, kind: EventKind<UpstreamIx>) {
        if self.observation.as_ref().is_none_or(|observation| observation.until < now) {
            self.observation = None;
            return;
        }
        let job = &self.jobs[index];
        let transition = KeptTransition {
            at: now,
            job: job.id,
            key: job.rare.as_ref().and_then(|rare| rare.key.clone()),
            lane: job.lane,
            tenant: self.lane(job.lane).tenants[job.tenant].name.clone(),
            level: job.level,
            status: status_after(&kind, job.status()),
            dropped: match job.phase {
                Phase::Finished { dropped, .. } => dropped,
                _ => None,
            },
            kind,
        };
        if let Some(observation) = &mut self.observation {
            observation.push(transition);
        }
    }

    fn view_transition(&self, transition: &KeptTransition) -> JobTransition {
        JobTransition {
            at: transition.at,
            job: transition.job,
            key: transition.key.clone(),
            lane: self.lane(transition.lane).name.clone(),
            tenant: transition.tenant.clone(),
            level: transition.level,
            kind: transition.kind.map(|upstream| self.upstream(*upstream).name.clone()),
            status: transition.status,
            dropped: transition.dropped,
        }
    }
}

/// The status of a job after an event. `now` is its status while the event is recorded.
fn status_after(kind: &EventKind<UpstreamIx>, now: Status) -> Status {
    match kind {
        EventKind::Accepted | EventKind::Omitted(_) => now,
        EventKind::WaitsForRest | EventKind::TakenUp | EventKind::Released => Status::Queued,
        EventKind::Started(_)
        | EventKind::StartedAfter(..)
        | EventKind::Failed(..)
        | EventKind::Awaiting(_)
        | EventKind::Served(_) => Status::Processing,
        EventKind::RetryAt(_) => Status::Pending,
        EventKind::Ended(status) => *status,
    }
}

/// A hash of everything that is shown. Hashes of different engines cannot be compared.
fn digest(state: &ObservedState) -> u64 {
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(&encode_state(state));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{CallResult, GateSpecs};
    use crate::ids::Name;
    use crate::job::NewJob;
    use crate::spec::{Chain, LaneSpec, Spec, UpstreamSpec};
    use crate::verbs::{Dispatch, Outcome, Report, Settlement};

    fn at(secs: u64) -> Time {
        Time::from_millis(1_000_000) + Span::from_secs(secs)
    }

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn engine() -> Engine {
        let mut lane = LaneSpec::new(name("work"), Chain::new(vec![name("up")]).unwrap());
        lane.keep.max = 0;
        let spec = Spec::new(vec![lane], vec![UpstreamSpec::new(name("up"), GateSpecs::default())]).unwrap();
        Engine::new(&spec)
    }

    fn ask(seen: Option<&Observed>) -> Observe {
        Observe { seen: seen.map(|observed| observed.cursor), wait: Span::from_secs(10) }
    }

    fn enqueue(engine: &mut Engine, ids: std::ops::Range<u128>, now: Time) {
        let job = |id| NewJob {
            key: Some(format!("k{id}").into()),
            ..NewJob::new(JobId(id), name("work"), "acme", *b"x")
        };
        for id in ids {
            engine.enqueue(vec![job(id)], now);
        }
    }

    fn kinds(observed: &Observed) -> Vec<(u128, &'static str, Status)> {
        let word = |kind: &EventKind<Name>| match kind {
            EventKind::Accepted => "accepted",
            EventKind::Started(_) | EventKind::StartedAfter(..) => "started",
            EventKind::Ended(_) => "ended",
            _ => "other",
        };
        observed.jobs.iter().map(|change| (change.job.0, word(&change.kind), change.status)).collect()
    }

    #[test]
    fn transitions_are_returned_once_and_in_order_even_of_forgotten_jobs() {
        use Status::{Completed, Processing, Queued};
        let mut engine = engine();
        enqueue(&mut engine, 0..1, at(0));
        let first = engine.observe(&ask(None), at(1));
        assert!(
            first.jobs.is_empty() && !first.gap && first.state.is_some(),
            "a new observer gets the state only"
        );
        enqueue(&mut engine, 1..2, at(2));
        let (lease, wait) = (Span::from_secs(10), Span::ZERO);
        let dispatch = Dispatch { lane: name("work"), max: 1, lease, nonce: 1, wait, denied: None };
        let grant = engine.dispatch(&dispatch, at(2)).grants.remove(0);
        let done = Settlement {
            lease: grant.lease,
            report: Report::from(CallResult::Success),
            outcome: Outcome::Done,
            answer: None,
            unsent: None,
        };
        engine.settle(vec![done], at(3));
        let second = engine.observe(&ask(Some(&first)), at(3));
        let all = [(1, "accepted", Queued), (0, "started", Processing), (0, "ended", Completed)];
        assert_eq!(kinds(&second), all);
        assert_eq!((second.jobs[2].key.as_deref(), second.jobs[2].tenant.as_ref()), (Some("k0"), "acme"));
        assert!(second.state.is_some() && !second.gap);
        let third = engine.observe(&ask(Some(&second)), at(3));
        assert!(third.jobs.is_empty() && third.state.is_none() && !third.gap, "nothing changed: {third:?}");
        assert!(
            !engine.jobs_changed_since(&third.cursor) && !engine.state_changed_since(&third.cursor, at(3))
        );
        assert!(engine.jobs_changed_since(&first.cursor));
    }

    #[test]
    fn an_observer_that_is_late_or_was_at_another_engine_gets_a_gap() {
        let mut engine = engine();
        let first = engine.observe(&ask(None), at(0));
        enqueue(&mut engine, 0..KEPT as u128, at(0));
        let all = engine.observe(&ask(Some(&first)), at(0));
        assert_eq!((all.jobs.len(), all.gap), (MAX_RETURNED, false), "an answer is bounded");
        let rest = engine.observe(&ask(Some(&all)), at(0));
        assert_eq!(rest.jobs.first().map(|change| change.job.0), Some(MAX_RETURNED as u128));
        enqueue(&mut engine, 9_000..9_001, at(0));
        let late = engine.observe(&ask(Some(&first)), at(0));
        assert!(late.gap && late.jobs.is_empty() && late.state.is_some());
        let mut other = engine_with_observer();
        let elsewhere = other.observe(&ask(Some(&rest)), at(1));
        assert!(elsewhere.gap && elsewhere.state.is_some(), "another engine");
    }

    fn engine_with_observer() -> Engine {
        let mut engine = engine();
        engine.observe(&ask(None), at(1));
        engine
    }

    #[test]
    fn nothing_is_kept_after_the_last_observer_is_gone() {
        let mut engine = engine();
        enqueue(&mut engine, 0..1, at(0));
        assert!(engine.observation.is_none());
        let first = engine.observe(&ask(None), at(0));
        enqueue(&mut engine, 1..2, at(70));
        assert!(engine.observation.is_some(), "it may still come back");
        enqueue(&mut engine, 2..3, at(71));
        assert!(engine.observation.is_none());
        assert!(engine.jobs_changed_since(&first.cursor));
        assert!(engine.observe(&ask(Some(&first)), at(72)).gap);
    }
}
