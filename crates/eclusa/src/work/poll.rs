//! Poll: asks upstreams about jobs that they work on and have not reported.
//!
//! Every process of a fleet runs this loop; the store gives each due job to one of them, for as long as the call may
//! take. A failed call is repeated when the job is due again.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::{DuePoll, JobId, Name, Span, Store, StoreError};
use tokio::task::JoinSet;

use super::Workers;
use crate::awaited::{FollowUp, JobProgress, Submitted, completion, progress};
use crate::config::{Async, Poll as PollRules};
use crate::rules::Rules;
use crate::store::AnyStore;

/// Jobs that one process polls at one upstream at the same time.
const MAX_AT_ONCE: usize = 16;
/// The shortest pause between two questions to the store.
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause: another process may end and leave due jobs behind.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// How much longer than its call a job is reserved for this process.
const MARGIN: Duration = Duration::from_secs(5);

/// Runs a loop for each upstream that can be polled under the current rules.
pub(super) async fn run(workers: Arc<Workers>, store: Arc<AnyStore>) {
    let (mut changes, life) = (workers.rules.watch(), workers.life.clone());
    loop {
        let rules = changes.borrow_and_update().clone();
        // A running poll ends with its loop; the job is due again later.
        let mut loops = JoinSet::new();
        for (upstream, found) in &rules.config.upstreams {
            let Some(awaited) = found.awaited() else { continue };
            let Some(poll) = &awaited.poll else { continue };
            let claim = (found.timeout + found.connect_timeout + MARGIN).into();
            let follow_up = FollowUp { rules: rules.clone(), clock: workers.clock.clone() };
            let (upstream, awaited, poll) = (upstream.clone(), awaited.clone(), poll.clone());
            let (workers, store, rules) = (workers.clone(), store.clone(), rules.clone());
            let asked = UpstreamPoll { workers, store, rules, follow_up, upstream, awaited, poll, claim };
            loops.spawn(Arc::new(asked).run_forever());
        }
        tokio::select! {
            () = life.stopping.cancelled() => return,
            _ = changes.changed() => {}
            // The store failed permanently.
            Some(_) = loops.join_next() => return,
        }
    }
}

/// The loop of one upstream.
struct UpstreamPoll {
    workers: Arc<Workers>,
    store: Arc<AnyStore>,
    rules: Arc<Rules>,
    follow_up: FollowUp,
    upstream: Name,
    awaited: Async,
    poll: PollRules,
    claim: Span,
}

impl UpstreamPoll {
    async fn run_forever(self: Arc<Self>) {
        let (mut calls, mut asked) = (JoinSet::new(), Vec::new());
        loop {
            let pause = match self.begin(&mut calls, &mut asked).await {
                Ok(pause) => pause,
                Err(error) if self.workers.decider.wait_out_outage(&error).await => continue,
                Err(_) => return,
            };
            self.workers.decider.store_answers();
            tokio::select! {
                Some(ended) = calls.join_next() => asked.extend(ended.ok()),
                () = tokio::time::sleep(pause), if calls.len() < MAX_AT_ONCE => {}
            }
        }
    }

    /// Starts to poll the due jobs; returns how long to wait before the next look.
    async fn begin(
        self: &Arc<Self>,
        calls: &mut JoinSet<JobId>,
        asked: &mut Vec<JobId>,
    ) -> Result<Duration, StoreError> {
        let max = MAX_AT_ONCE - calls.len();
        let (upstream, claim) = (self.upstream.clone(), self.claim);
        let polls = self.store.poll(eclusa_core::Poll { upstream, max, claim, asked: asked.clone() }).await?;
        asked.clear();
        for due in polls.due {
            let poll = self.clone();
            calls.spawn(async move {
                let job = due.job;
                if let Err(error) = poll.poll_job(due).await {
                    tracing::warn!(jobId = %job, %error, "The upstream's report of a job could not be stored");
                }
                job
            });
        }
        // A job that is submitted later is not due before this time has passed.
        let longest = Duration::from_millis(self.poll.times.after.as_millis()).min(MAX_PAUSE);
        let next = Duration::from_millis(polls.next.since(polls.now).as_millis());
        Ok(next.min(longest).max(MIN_PAUSE))
    }

    async fn poll_job(&self, due: DuePoll) -> Result<(), StoreError> {
        let DuePoll { job, at, tenant, external, payload, attempt, .. } = due;
        let at = at.unwrap_or_else(|| self.upstream.clone());
        let submitted = Submitted { job, at, tenant, external: external.clone(), payload };
        let called = self.follow_up.call(&self.poll.request, &submitted).await;
        let judged = self.rules.judge(&self.upstream, &called).judgement;
        let Some(answer) = called.answer.filter(|answer| (200..300).contains(&answer.status)) else {
            let (upstream, reason) = (&self.upstream, judged.reason);
            tracing::warn!(jobId = %job, %upstream, reason, "The upstream did not report the state of the job");
            return Ok(());
        };
        let progress = progress(Some(&self.poll.states), &answer.body);
        if progress == JobProgress::Running {
            return Ok(());
        }
        let Some(view) = self.store.job(job).await? else { return Ok(()) };
        let lane = self.rules.config.lanes.get(&view.lane);
        let retry = lane.map_or_else(Default::default, |lane| lane.retry);
        let (reported, at) = ((progress, answer), (job, attempt));
        let seed = self.workers.seed;
        let completion = completion(&self.upstream, &self.awaited, reported, at, &retry, seed);
        let Some(mut completion) = completion else { return Ok(()) };
        // The result is of the job that was polled, whatever id the body names.
        completion.external = external;
        self.workers.decider.complete((view.lane, attempt), completion).await.map(drop)
    }
}
