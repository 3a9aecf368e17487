//! Poll: which jobs an upstream has told nothing of, so that somebody must ask it.

use super::Engine;
use crate::table::JobIx;
use crate::time::Time;
use crate::verbs::{DuePoll, MAX_BATCH, Poll, Polls};

/// An answer stops once the payloads reach this size, so that it fits into one message.
const MAX_POLLED_BYTES: usize = 4 << 20;

impl Engine {
    /// Hands out jobs whose upstream is to be asked now. Each is due again when the claim is over, at the earliest.
    pub fn poll(&mut self, ask: &Poll, now: Time) -> Polls {
        let mut polls = Polls { due: Vec::new(), now, next: Time::NEVER };
        let Some(upstream) = self.upstream_by_name.get(&ask.upstream).copied() else { return polls };
        let mut bytes = 0;
        while let Some((at, job)) = self.away.first_poll(upstream) {
            polls.next = at;
            if at > now || polls.due.len() >= ask.max.min(MAX_BATCH) || bytes >= MAX_POLLED_BYTES {
                break;
            }
            let every = self.jobs[job].away().and_then(|away| away.poll).map(|(_, every)| every);
            // Always later than now, or it would be handed out again at once.
            let later = every.unwrap_or_default().max(ask.claim).max(crate::Span::from_millis(1));
            self.poll_later(job, now + later);
            bytes += self.jobs[job].payload.len();
            polls.due.push(self.due_poll(job));
        }
        polls
    }

    fn due_poll(&self, index: JobIx) -> DuePoll {
        let job = &self.jobs[index];
        DuePoll {
            job: job.id,
            tenant: self.lane(job.lane).tenants[job.tenant].name.clone(),
            key: job.rare.as_ref().and_then(|rare| rare.key.clone()),
            external: job.away().and_then(|away| away.external.clone()),
            payload: job.payload.clone(),
            attempt: job.attempts,
        }
    }
}
