//! Jobs submitted to async upstreams: their external ids, when to poll, and completions that arrive early.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::jobs::Phase;
use super::leases::Use;
use crate::table::{JobIx, UpstreamIx};
use crate::time::{Span, Time};
use crate::verbs::{Completion, Polling};

/// Messages about a job that are remembered, so that each counts once.
const MAX_MESSAGES: usize = 8;

/// What is known of a job that was submitted to an async upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Submission {
    /// The upstream's id of the job.
    pub(crate) external: Option<Arc<str>>,
    /// Whether the job continues along its chain if the upstream does not report in time.
    pub(crate) next: bool,
    /// When to poll next and the interval after that, while the job is awaited.
    pub(crate) poll: Option<(Time, Span)>,
    /// A completion that arrived before the answer to the submit.
    pub(crate) early: Option<Box<Completion>>,
    /// Hashes of the messages received, newest last.
    pub(crate) messages: Vec<u64>,
}

impl Submission {
    /// The size of an early completion.
    pub(crate) fn early_bytes(&self) -> u64 {
        let answer = self.early.as_ref().and_then(|early| early.answer.as_ref());
        answer.map_or(0, |answer| answer.len() as u64)
    }

    pub(super) fn remember_message(&mut self, message: Option<u64>) {
        let Some(message) = message else { return };
        if self.messages.len() == MAX_MESSAGES {
            self.messages.remove(0);
        }
        self.messages.push(message);
    }
}

/// Finds jobs by external id and by the time of their next poll.
#[derive(Debug, Default)]
pub(super) struct SubmissionIndex {
    called: BTreeSet<(Arc<str>, JobIx)>,
    polls: BTreeSet<(UpstreamIx, Time, JobIx)>,
}

impl SubmissionIndex {
    /// Jobs with this external id.
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
    /// Records that the upstream has accepted a job, which is awaited from now on.
    pub(super) fn submitted(
        &mut self,
        job: JobIx,
        external: Option<Arc<str>>,
        next: bool,
        poll: Option<Polling>,
        now: Time,
    ) {
        let submission = self.jobs[job].rare().submission.get_or_insert_default();
        let old = std::mem::replace(&mut submission.external, external);
        submission.next = next;
        submission.poll = poll.map(|poll| (now + poll.after, poll.every));
        if let Some(old) = old {
            self.submissions.forget(&old, job);
        }
        self.index_submission(job);
        self.start_polling(job);
        self.jobs.touch(job);
    }

    /// Makes a job findable by its external id.
    pub(super) fn index_submission(&mut self, job: JobIx) {
        if let Some(external) = self.jobs[job].submission().and_then(|submission| submission.external.clone())
        {
            self.submissions.called.insert((external, job));
        }
    }

    /// Schedules polls of an awaiting job, if it has any.
    pub(super) fn start_polling(&mut self, job: JobIx) {
        if let Some(entry) = self.poll_of(job) {
            self.submissions.polls.insert(entry);
        }
    }

    /// Ends the polls of a job that is no longer awaited.
    pub(super) fn stop_polling(&mut self, job: JobIx) {
        if let Some(entry) = self.poll_of(job) {
            self.submissions.polls.remove(&entry);
        }
        if let Some(submission) = self.jobs[job].rare.as_mut().and_then(|rare| rare.submission.as_mut()) {
            submission.poll = None;
        }
    }

    /// Sets when a job is polled next.
    pub(super) fn poll_later(&mut self, job: JobIx, at: Time) {
        let Some(entry) = self.poll_of(job) else { return };
        self.submissions.polls.remove(&entry);
        if let Some(poll) =
            self.jobs[job].rare().submission.as_mut().and_then(|submission| submission.poll.as_mut())
        {
            poll.0 = at;
        }
        self.start_polling(job);
        self.jobs.touch(job);
    }

    fn poll_of(&self, job: JobIx) -> Option<(UpstreamIx, Time, JobIx)> {
        let state = &self.jobs[job];
        Some((state.upstream?, state.submission()?.poll?.0, job))
    }

    /// Takes the completion that arrived before the answer to the submit.
    pub(super) fn take_early(&mut self, job: JobIx) -> Option<Completion> {
        let submission = self.jobs[job].rare.as_mut()?.submission.as_mut()?;
        let bytes = submission.early_bytes();
        let early = submission.early.take()?;
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
