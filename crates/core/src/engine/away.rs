//! Jobs that an upstream works on: what it calls them, when it is asked, and what it told too early.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::jobs::Phase;
use super::leases::Use;
use crate::table::{JobIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::verbs::{Completion, Polling};

/// How many messages about a job are remembered, so that each counts once.
const MAX_HEARD: usize = 8;

/// What is known of a job that was submitted to an upstream which tells later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Away {
    /// What the upstream calls it.
    pub(crate) external: Option<Arc<str>>,
    /// Whether it goes on along its chain if the upstream does not tell in time.
    pub(crate) next: bool,
    /// When the upstream is asked next and how often after that, while it is waited for.
    pub(crate) poll: Option<(Time, Span)>,
    /// What the upstream told before its answer to the submit was heard.
    pub(crate) early: Option<Box<Completion>>,
    /// Hashes of the messages that were heard, the newest last.
    pub(crate) heard: Vec<u64>,
}

impl Away {
    /// Bytes of what was told too early.
    pub(crate) fn early_bytes(&self) -> u64 {
        let answer = self.early.as_ref().and_then(|early| early.answer.as_ref());
        answer.map_or(0, |answer| answer.len() as u64)
    }

    pub(super) fn hear(&mut self, message: Option<u64>) {
        let Some(message) = message else { return };
        if self.heard.len() == MAX_HEARD {
            self.heard.remove(0);
        }
        self.heard.push(message);
    }
}

/// Finds jobs by what their upstream calls them, and by when it is to be asked.
#[derive(Debug, Default)]
pub(super) struct AwayIndex {
    called: BTreeSet<(Arc<str>, JobIx)>,
    polls: BTreeSet<(UpstreamIx, Time, JobIx)>,
}

impl AwayIndex {
    /// Jobs that are called `external`.
    pub(super) fn called(&self, external: &Arc<str>) -> impl Iterator<Item = JobIx> {
        let all = (external.clone(), JobIx(0))..=(external.clone(), JobIx(u32::MAX));
        self.called.range(all).map(|(_, job)| *job)
    }

    pub(super) fn forget(&mut self, external: &Arc<str>, job: JobIx) {
        self.called.remove(&(external.clone(), job));
    }

    /// The job of `upstream` that is due first, and when.
    pub(super) fn first_poll(&self, upstream: UpstreamIx) -> Option<(Time, JobIx)> {
        let from = (upstream, Time::default(), JobIx(0));
        let to = (upstream, Time::NEVER, JobIx(u32::MAX));
        self.polls.range(from..=to).next().map(|(_, at, job)| (*at, *job))
    }
}

impl Engine {
    /// The upstream has taken a job in, which is waited for now.
    pub(super) fn submitted(
        &mut self,
        job: JobIx,
        external: Option<Arc<str>>,
        next: bool,
        poll: Option<Polling>,
        now: Time,
    ) {
        let away = self.jobs[job].rare().away.get_or_insert_default();
        let old = std::mem::replace(&mut away.external, external);
        away.next = next;
        away.poll = poll.map(|poll| (now + poll.after, poll.every));
        if let Some(old) = old {
            self.away.forget(&old, job);
        }
        self.restore_away(job);
        self.start_polling(job);
        self.jobs.touch(job);
    }

    /// Makes a job findable by what its upstream calls it.
    pub(super) fn restore_away(&mut self, job: JobIx) {
        if let Some(external) = self.jobs[job].away().and_then(|away| away.external.clone()) {
            self.away.called.insert((external, job));
        }
    }

    /// The upstream of an awaiting job is asked from time to time, where it can be.
    pub(super) fn start_polling(&mut self, job: JobIx) {
        if let Some(entry) = self.poll_of(job) {
            self.away.polls.insert(entry);
        }
    }

    /// The upstream of a job is not waited for any more.
    pub(super) fn stop_polling(&mut self, job: JobIx) {
        if let Some(entry) = self.poll_of(job) {
            self.away.polls.remove(&entry);
        }
        if let Some(away) = self.jobs[job].rare.as_mut().and_then(|rare| rare.away.as_mut()) {
            away.poll = None;
        }
    }

    /// Sets when the upstream of a job is asked next.
    pub(super) fn poll_later(&mut self, job: JobIx, at: Time) {
        let Some(entry) = self.poll_of(job) else { return };
        self.away.polls.remove(&entry);
        if let Some(poll) = self.jobs[job].rare().away.as_mut().and_then(|away| away.poll.as_mut()) {
            poll.0 = at;
        }
        self.start_polling(job);
        self.jobs.touch(job);
    }

    fn poll_of(&self, job: JobIx) -> Option<(UpstreamIx, Time, JobIx)> {
        let state = &self.jobs[job];
        Some((state.upstream?, state.away()?.poll?.0, job))
    }

    /// What the upstream of a job told before its answer to the submit was heard; it is not kept any longer.
    pub(super) fn take_early(&mut self, job: JobIx) -> Option<Completion> {
        let away = self.jobs[job].rare.as_mut()?.away.as_mut()?;
        let bytes = away.early_bytes();
        let early = away.early.take()?;
        self.jobs.bytes -= bytes;
        self.jobs.touch(job);
        Some(*early)
    }

    /// Whether a worker, not the upstream, has the job.
    pub(super) fn is_with_a_worker(&self, job: JobIx) -> bool {
        let Phase::Processing { lease } = self.jobs[job].phase else { return false };
        self.leases.get(lease).is_some_and(|lease| matches!(lease.used_by, Use::Job(..)))
    }
}
