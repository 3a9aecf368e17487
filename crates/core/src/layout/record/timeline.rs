//! The layout of a job's timeline.

use crate::layout::LayoutError;
use crate::layout::convert::{Layout, layout_struct};
use crate::layout::shared::StatusLayout;
use crate::layout::view::{FailureNoteLayout, ServedByLayout, WaitedLayout};
use crate::timeline::{Event, EventKind};

layout_struct!(EventLayout<'a> = Event<u32> { at: u64, kind: EventKindLayout<'a> });

/// Not made by the macro: a failure without a note is written as before notes existed, and both forms are read.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub(in crate::layout) enum EventKindLayout<'a> {
    Accepted,
    Started(u32),
    Failed(u32),
    RetryAt(u64),
    WaitsForRest,
    TakenUp,
    Released,
    Awaiting(u32),
    Served(ServedByLayout),
    Ended(StatusLayout),
    FailedFor(u32, FailureNoteLayout<'a>),
    Omitted(u32),
    StartedAfter(u32, WaitedLayout),
}

impl<'a> Layout<'a, EventKind<u32>> for EventKindLayout<'a> {
    fn from_domain(kind: &'a EventKind<u32>) -> Self {
        match kind {
            EventKind::Accepted => Self::Accepted,
            EventKind::Started(upstream) => Self::Started(*upstream),
            EventKind::StartedAfter(upstream, waited) => {
                Self::StartedAfter(*upstream, Layout::from_domain(waited))
            }
            EventKind::Failed(upstream, None) => Self::Failed(*upstream),
            EventKind::Failed(upstream, Some(note)) => Self::FailedFor(*upstream, Layout::from_domain(note)),
            EventKind::RetryAt(at) => Self::RetryAt(Layout::from_domain(at)),
            EventKind::WaitsForRest => Self::WaitsForRest,
            EventKind::TakenUp => Self::TakenUp,
            EventKind::Released => Self::Released,
            EventKind::Awaiting(upstream) => Self::Awaiting(*upstream),
            EventKind::Served(by) => Self::Served(Layout::from_domain(by)),
            EventKind::Ended(status) => Self::Ended(Layout::from_domain(status)),
            EventKind::Omitted(lines) => Self::Omitted(*lines),
        }
    }

    fn into_domain(self) -> Result<EventKind<u32>, LayoutError> {
        Ok(match self {
            Self::Accepted => EventKind::Accepted,
            Self::Started(upstream) => EventKind::Started(upstream),
            Self::StartedAfter(upstream, waited) => EventKind::StartedAfter(upstream, waited.into_domain()?),
            Self::Failed(upstream) => EventKind::Failed(upstream, None),
            Self::FailedFor(upstream, note) => EventKind::Failed(upstream, Some(note.into_domain()?)),
            Self::RetryAt(at) => EventKind::RetryAt(Layout::into_domain(at)?),
            Self::WaitsForRest => EventKind::WaitsForRest,
            Self::TakenUp => EventKind::TakenUp,
            Self::Released => EventKind::Released,
            Self::Awaiting(upstream) => EventKind::Awaiting(upstream),
            Self::Served(by) => EventKind::Served(by.into_domain()?),
            Self::Ended(status) => EventKind::Ended(status.into_domain()?),
            Self::Omitted(lines) => EventKind::Omitted(lines),
        })
    }
}
