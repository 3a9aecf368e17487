//! A job's history: what happened to it, line by line.

use std::sync::Arc;

use crate::ended::ServedBy;
use crate::job::{CallFailure, Status};
use crate::time::Time;

/// Later lines of a job's history push out the oldest; their number is kept.
const MAX_TIMELINE: usize = 20;
/// No more characters of a failure's reason are kept in the history; the last failure is kept whole.
const MAX_REASON: usize = 120;

/// One line of a job's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<U> {
    /// When.
    pub at: Time,
    /// What.
    pub kind: EventKind<U>,
}

/// What can happen to a job; `U` names an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventKind<U> {
    /// It came in.
    Accepted,
    /// A worker took it to this upstream.
    Started(U),
    /// This upstream failed it; why is not known of what an earlier version wrote.
    Failed(U, Option<Arc<FailureNote>>),
    /// It will be tried again then.
    RetryAt(Time),
    /// The rest of its chain was busy, so it waits for that.
    WaitsForRest,
    /// Its worker vanished and it went back to its line.
    TakenUp,
    /// Its worker gave it back unsent.
    Released,
    /// The upstream works on it.
    Awaiting(U),
    /// It got an answer that its own call did not bring.
    Served(ServedBy),
    /// It ended so.
    Ended(Status),
    /// So many lines stood here.
    Omitted(u32),
}

/// Why an upstream failed a job, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureNote {
    /// The HTTP status, SMTP reply or SES code, if there was one.
    pub code: Option<Arc<str>>,
    /// Said by the upstream or by us, cut to a line.
    pub reason: Arc<str>,
}

impl FailureNote {
    /// What a history keeps of a failure.
    pub fn of(failure: &CallFailure) -> Self {
        let reason = failure.reason.as_str();
        let cut = reason.char_indices().nth(MAX_REASON).map_or(reason.len(), |(at, _)| at);
        Self { code: failure.code.clone(), reason: reason[..cut].into() }
    }
}

impl<U> EventKind<U> {
    /// The same event with upstreams named another way.
    pub(crate) fn map<V>(&self, name: impl Fn(&U) -> V) -> EventKind<V> {
        match self {
            EventKind::Accepted => EventKind::Accepted,
            EventKind::Started(upstream) => EventKind::Started(name(upstream)),
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

    /// How many lines of the history it stands for.
    const fn lines(&self) -> u64 {
        match self {
            EventKind::Omitted(lines) => *lines as u64,
            _ => 1,
        }
    }
}

/// Adds a line; the oldest ones are only counted once there are too many.
pub(crate) fn push<U>(timeline: &mut Vec<Event<U>>, event: Event<U>) {
    if timeline.len() == MAX_TIMELINE {
        let omitted = timeline[..2].iter().map(|event| event.kind.lines()).sum::<u64>();
        let omitted = u32::try_from(omitted).unwrap_or(u32::MAX);
        timeline[1].kind = EventKind::Omitted(omitted);
        timeline.remove(0);
    }
    timeline.push(event);
}

/// Lines with their numbers, which count from 1 and stay the same when older lines are omitted. A line that stands for
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
