//! Poll: jobs whose async upstream has reported nothing yet and must be asked.

use super::Engine;
use super::jobs::Phase;
use crate::table::JobIx;
use crate::time::{Span, Time};
use crate::verbs::{DuePoll, MAX_BATCH, Poll, Polls};

/// An answer ends once the payloads reach this size, so that it fits into one message.
const MAX_POLLED_BYTES: usize = 4 << 20;

impl Engine {
    /// Hands out jobs whose upstream is to be asked now. Each is due again when the claim ends or, once it was asked,
    /// after its poll interval.
    pub fn poll(&mut self, ask: &Poll, now: Time) -> Polls {
        let mut polls = Polls { due: Vec::new(), now, next: Time::NEVER };
        let Some(upstream) = self.upstream_by_name.get(&ask.upstream).copied() else { return polls };
        for job in &ask.asked {
            let poll = self.jobs.find(*job).and_then(|job| Some((job, self.jobs[job].submission()?.poll?.1)));
            if let Some((job, every)) = poll.filter(|(job, _)| self.jobs[*job].upstream == Some(upstream)) {
                self.poll_later(job, now + every);
            }
        }
        let mut bytes = 0;
        while let Some((at, job)) = self.submissions.first_poll(upstream) {
            polls.next = at;
            if at > now || polls.due.len() >= ask.max.min(MAX_BATCH) || bytes >= MAX_POLLED_BYTES {
                break;
            }
            // Always later than now, or it would be handed out again at once.
            self.poll_later(job, now + ask.claim.max(Span::from_millis(1)));
            bytes += self.jobs[job].payload.len();
            polls.due.push(self.due_poll(job));
        }
        polls
    }

    fn due_poll(&self, index: JobIx) -> DuePoll {
        let job = &self.jobs[index];
        let at = match job.phase {
            Phase::Processing { lease } => self.leases.get(lease).and_then(|lease| lease.upstream),
            _ => None,
        };
        DuePoll {
            job: job.id,
            at: at.or(job.upstream).map(|at| self.upstream(at).name.clone()),
            tenant: self.lane(job.lane).tenants[job.tenant].name.clone(),
            key: job.rare.as_ref().and_then(|rare| rare.key.clone()),
            external: job.submission().and_then(|submission| submission.external.clone()),
            payload: job.payload.clone(),
            attempt: job.attempts,
        }
    }
}
