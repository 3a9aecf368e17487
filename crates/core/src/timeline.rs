//! A job's history: what happened to it, line by line.

use std::sync::Arc;

use crate::ended::ServedBy;
use crate::gate::Reason;
use crate::job::{CallFailure, Status};
use crate::time::Time;

/// Lines kept of a job's history. Beyond that the oldest are dropped and only counted.
const MAX_TIMELINE: usize = 20;
/// Characters kept of a failure's reason in the history; the job's last failure is kept whole.
const MAX_REASON: usize = 120;

/// One line of a job's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<U> {
    /// When it happened.
    pub at: Time,
    /// What happened.
    pub kind: EventKind<U>,
}

/// What can happen to a job; `U` identifies an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind<U> {
    /// It was accepted.
    Accepted,
    /// A worker started it at this upstream.
    Started(U),
    /// It failed at this upstream; records of earlier versions have no note.
    Failed(U, Option<Arc<FailureNote>>),
    /// Its retry is scheduled for this time.
    RetryAt(Time),
    /// The rest of its chain is busy; it waits for that.
    WaitsForRest,
    /// Its worker vanished; it is back in its line.
    TakenUp,
    /// Its worker released it unsent.
    Released,
    /// The upstream works on it.
    Awaiting(U),
    /// It was completed without a successful call of its own.
    Served(ServedBy),
    /// It ended with this status.
    Ended(Status),
    /// This many older lines were dropped.
    Omitted(u32),
    /// A worker started it at this upstream, after something had held it.
    StartedAfter(U, Box<Waited>),
}

/// What held the lane of a job while the job waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waited {
    /// What denied the start.
    pub reason: Reason,
    /// From when on, within the job's wait.
    pub since: Time,
    /// Until when; the job may have waited longer, for its turn or for a worker.
    pub until: Time,
}

/// Why a job failed at an upstream, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureNote {
    /// The HTTP status, SMTP reply or SES code, if there was one.
    pub code: Option<Arc<str>>,
    /// The reason, from the upstream or from Eclusa, cut to one line.
    pub reason: Arc<str>,
}

impl FailureNote {
    /// Shortens a failure for the history.
    pub fn of(failure: &CallFailure) -> Self {
        let reason = failure.reason.as_str();
        let cut = reason.char_indices().nth(MAX_REASON).map_or(reason.len(), |(at, _)| at);
        Self { code: failure.code.clone(), reason: reason[..cut].into() }
    }
}

impl<U> EventKind<U> {
    /// Converts the upstreams of an event.
    pub(crate) fn map<V>(&self, name: impl Fn(&U) -> V) -> EventKind<V> {
        match self {
            EventKind::Accepted => EventKind::Accepted,
            EventKind::Started(upstream) => EventKind::Started(name(upstream)),
            EventKind::StartedAfter(upstream, waited) => {
                EventKind::StartedAfter(name(upstream), waited.clone())
            }
            EventKind::Failed(upstream, note) => EventKind::Failed(name(upstream), note.clone()),
            EventKind::RetryAt(at) => EventKind::RetryAt(*at),
            EventKind::WaitsForRest => EventKind::WaitsForRest,
            EventKind::TakenUp => EventKind::TakenUp,
            EventKind::Released => EventKind::Released,
            EventKind::Awaiting(upstream) => EventKind::Awaiting(name(upstream)),
            EventKind::Served(by) => EventKind::Served(*by),
            EventKind::Ended(status) => EventKind::Ended(*status),
            EventKind::Omitted(lines) => EventKind::Omitted(*lines),
        }
    }

    /// How many lines of the history it represents.
    const fn lines(&self) -> u64 {
        match self {
            EventKind::Omitted(lines) => *lines as u64,
            _ => 1,
        }
    }
}

/// Adds a line. If there are too many, the oldest ones are replaced by their count.
pub(crate) fn push<U>(timeline: &mut Vec<Event<U>>, event: Event<U>) {
    if timeline.len() == MAX_TIMELINE {
        let omitted = timeline[..2].iter().map(|event| event.kind.lines()).sum::<u64>();
        let omitted = u32::try_from(omitted).unwrap_or(u32::MAX);
        timeline[1].kind = EventKind::Omitted(omitted);
        timeline.remove(0);
    }
    if timeline.is_empty() {
        // Most jobs have no second line.
        timeline.reserve_exact(1);
    }
    timeline.push(event);
}

/// Lines with their numbers, which count from 1 and do not change when older lines are omitted. A line that represents
/// omitted ones has the number of the last of them.
pub fn numbered<U>(timeline: &[Event<U>]) -> impl Iterator<Item = (u64, &Event<U>)> {
    let mut number = 0;
    timeline.iter().map(move |event| {
        number += event.kind.lines();
        (number, event)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::FailureReason;

    #[test]
    fn omitted_lines_are_counted_and_numbers_stay() {
        let mut timeline = Vec::new();
        for upstream in 1..=50_u64 {
            push(
                &mut timeline,
                Event { at: Time::from_millis(upstream), kind: EventKind::Started(upstream) },
            );
        }
        assert_eq!(timeline.len(), MAX_TIMELINE);
        assert_eq!(timeline[0].kind, EventKind::Omitted(31));
        let shown: Vec<_> = numbered(&timeline).map(|(number, event)| (number, event.kind.clone())).collect();
        assert_eq!(shown[0], (31, EventKind::Omitted(31)));
        let rest: Vec<_> = (32..=50).map(|number| (number, EventKind::Started(number))).collect();
        assert_eq!(shown[1..], rest);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let failure = |reason: &str| CallFailure {
            reason: FailureReason::new(reason).unwrap(),
            code: Some("502".into()),
            upstream: None,
        };
        assert_eq!(&*FailureNote::of(&failure("ação")).reason, "ação");
        assert_eq!(*FailureNote::of(&failure(&"ã".repeat(500))).reason, *"ã".repeat(MAX_REASON));
    }
}
