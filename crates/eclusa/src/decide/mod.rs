//! The store's verbs that change something, as the rest of the program uses them.
//!
//! Every job that a verb ends is counted and logged here and nowhere else, and callers that wait for a permit are woken
//! when one may be possible. A verb runs to completion even if its caller stops waiting.

mod permit;
mod quotes;

pub(crate) use permit::{Permit, PermitAnswer, PermitDenied};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Advance, Advanced, AlertChanges, CancelAll, Cancelled, CancelledAll, Clock, CompleteAnswer, Completed,
    Completion, DiscardedLetters, Dispatch, Dispatched, Ended, EnqueueAnswer, Enqueued, Fire, Fired, JobId,
    LeaseId, LetterQuery, Name, NewJob, Outcome, Place, Replay, Replayed, ReplayedLetter, Report, Settled,
    Settlement, Store, StoreError, Swept, TrimReason, UpstreamView, Watch,
};
use tokio::time::{Instant, timeout_at};

use self::quotes::Quotes;
use crate::life::Life;
use crate::store::AnyStore;
use crate::telemetry::{Metrics, log_end};
use crate::turns::Turns;

/// How long to wait before asking again when the store did not answer.
const STORE_PAUSE: Duration = Duration::from_millis(250);
/// The reason under which a discarded dead letter is counted.
const PURGED: &str = "purged";

/// See the module.
pub(crate) struct Decider {
    store: Arc<AnyStore>,
    /// Measures how long jobs lived. Decisions use the store's time.
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    /// Callers that wait for a permit, in order.
    turns: Arc<Turns>,
    life: Arc<Life>,
    /// The start times that were quoted for jobs.
    quotes: Quotes,
    /// Whether the last question to the store went unanswered.
    store_lost: AtomicBool,
}

impl Decider {
    pub(crate) fn new(
        store: Arc<AnyStore>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
        turns: Arc<Turns>,
        life: Arc<Life>,
    ) -> Self {
        let (quotes, store_lost) = (Quotes::default(), AtomicBool::new(false));
        Self { store, clock, metrics, turns, life, quotes, store_lost }
    }

    /// Enqueues jobs and returns the result and place of each, read in the same step. Gives up at `until`.
    pub(crate) async fn enqueue(
        self: &Arc<Self>,
        jobs: Vec<NewJob>,
        until: Instant,
    ) -> Result<EnqueueAnswer, StoreError> {
        let decider = self.clone();
        let put = async move {
            let lanes: Vec<(JobId, Name)> = jobs.iter().map(|job| (job.id, job.lane.clone())).collect();
            // Dropping the future withdraws what the store has not begun, so late callers leave nothing behind.
            let answer = timeout_at(until, decider.store.enqueue(jobs)).await;
            let late = "its turn did not come within `server.max_wait`";
            let answer = answer.unwrap_or_else(|_| Err(StoreError::Unconfirmed { cause: late.into() }))?;
            decider.note(&answer.ended);
            for ((job, lane), enqueued) in lanes.iter().zip(&answer.jobs) {
                match enqueued {
                    Enqueued::Cached(cached) => decider.metrics.count_cached(lane, cached.stale),
                    Enqueued::Accepted(Place { eta: Some(eta), .. }) => {
                        if let Some(started) = decider.quotes.quoted(*job, *eta) {
                            decider.metrics.compare_eta(lane, *eta, started);
                        }
                    }
                    _ => {}
                }
            }
            Ok(answer)
        };
        self.life.run_to_completion(put).await
    }

    /// Cancels a job.
    pub(crate) async fn cancel(self: &Arc<Self>, job: JobId) -> Result<Cancelled, StoreError> {
        let decider = self.clone();
        let cancel = async move {
            let cancelled = decider.store.cancel(job).await?;
            if let Cancelled::Yes(ended) = &cancelled {
                decider.note(std::slice::from_ref(&**ended));
            }
            Ok(cancelled)
        };
        self.life.run_to_completion(cancel).await
    }

    /// Cancels a page of the matching jobs.
    pub(crate) async fn cancel_all(self: &Arc<Self>, ask: CancelAll) -> Result<CancelledAll, StoreError> {
        let decider = self.clone();
        let cancel = async move {
            let cancelled = decider.store.cancel_all(ask).await?;
            decider.note(&cancelled.ended);
            Ok(cancelled)
        };
        self.life.run_to_completion(cancel).await
    }

    /// Enqueues the job of a scheduled time, unless that was done before.
    pub(crate) async fn fire(self: &Arc<Self>, ask: Fire) -> Result<Fired, StoreError> {
        let decider = self.clone();
        let fire = async move {
            let lane = ask.job.as_ref().map(|job| job.lane.clone());
            let fired = decider.store.fire(ask).await?;
            if let Fired::Submitted(answer) = &fired {
                decider.note(&answer.ended);
                if let (Some(lane), [Enqueued::Cached(cached)]) = (&lane, answer.jobs.as_slice()) {
                    decider.metrics.count_cached(lane, cached.stale);
                }
            }
            Ok(fired)
        };
        self.life.run_to_completion(fire).await
    }

    /// Evaluates the alerts.
    pub(crate) async fn watch(self: &Arc<Self>, ask: Watch) -> Result<AlertChanges, StoreError> {
        let decider = self.clone();
        let watch = async move {
            let changes = decider.store.watch(ask).await?;
            decider.note(&changes.ended);
            Ok(changes)
        };
        self.life.run_to_completion(watch).await
    }

    /// Ends this attempt of a job of `lane` with the result that its upstream reported.
    pub(crate) async fn complete(
        self: &Arc<Self>,
        (lane, attempt): (Name, u32),
        reported: Completion,
    ) -> Result<Completed, StoreError> {
        let decider = self.clone();
        let complete = async move {
            let (job, upstream) = (reported.job, reported.upstream.clone());
            let retry = match reported.outcome {
                Outcome::Retry { after, .. } => Some(Duration::from_millis(after.as_millis())),
                _ => None,
            };
            let CompleteAnswer { completed, ended } = decider.store.complete(reported).await?;
            decider.note(&ended);
            if let (Completed::Settled(Settled::RetryAt(_)), Some(delay)) = (completed, retry) {
                decider.metrics.count_retry(&lane, attempt + 1, delay);
            }
            decider.turns.ring(&upstream);
            tracing::info!(jobId = %job, %upstream, did = ?completed, "The upstream reported the result of a job");
            Ok(completed)
        };
        self.life.run_to_completion(complete).await
    }

    /// Enqueues a dead letter again.
    pub(crate) async fn replay(self: &Arc<Self>, ask: Replay) -> Result<Replayed, StoreError> {
        let decider = self.clone();
        let replay = async move {
            let replayed = decider.store.replay(ask).await?;
            if let Replayed::As(_, ended) = &replayed {
                decider.note(ended);
            }
            Ok(replayed)
        };
        self.life.run_to_completion(replay).await
    }

    /// Deletes a dead letter; returns whether it existed.
    pub(crate) async fn discard(self: &Arc<Self>, lane: Name, letter: JobId) -> Result<bool, StoreError> {
        let decider = self.clone();
        let discard = async move {
            let gone = decider.store.discard(lane.clone(), letter).await?;
            if gone {
                decider.metrics.count_trimmed_letter(&lane, PURGED);
            }
            Ok(gone)
        };
        self.life.run_to_completion(discard).await
    }

    /// Deletes a page of the matching dead letters.
    pub(crate) async fn discard_all(
        self: &Arc<Self>,
        query: LetterQuery,
    ) -> Result<DiscardedLetters, StoreError> {
        let decider = self.clone();
        let discard = async move {
            let discarded = decider.store.discard_all(query).await?;
            for (lane, _) in &discarded.gone {
                decider.metrics.count_trimmed_letter(lane, PURGED);
            }
            Ok(discarded)
        };
        self.life.run_to_completion(discard).await
    }

    /// Asks for jobs of a lane that may start. If the caller stops waiting, the store releases what it granted.
    pub(crate) async fn dispatch(&self, ask: Dispatch) -> Result<Dispatched, StoreError> {
        let lane = ask.lane.clone();
        let answer = self.store.dispatch(ask).await?;
        for (grant, eta) in answer
            .grants
            .iter()
            .filter_map(|grant| Some((grant, self.quotes.started(grant.job, answer.now)?)))
        {
            if grant.attempt == 1 {
                self.metrics.compare_eta(&lane, eta, answer.now);
            }
        }
        self.note(&answer.ended);
        self.note_recovered(&answer.recovered);
        Ok(answer)
    }

    /// Moves a job along its chain, waiting out outages of the store; `None` if the store failed permanently.
    pub(crate) async fn advance(&self, ask: Advance) -> Option<Advanced> {
        let advanced = loop {
            match self.store.advance(ask.clone()).await {
                Ok(advanced) => break Some(advanced),
                Err(error) if !self.wait_out_outage(&error).await => break None,
                Err(_) => {}
            }
        };
        self.turns.ring(&ask.upstream);
        advanced
    }

    /// Ends the lease of a call to `upstream`, waiting out outages of the store: a call that was made must be reported.
    /// Changes nothing if the lease is stale.
    pub(crate) async fn settle(self: &Arc<Self>, upstream: &Name, settlement: Settlement) -> Option<Settled> {
        let (decider, upstream) = (self.clone(), upstream.clone());
        let settle = async move {
            loop {
                match decider.store.settle(vec![settlement.clone()]).await {
                    Ok(mut answer) => {
                        decider.note(&answer.ended);
                        decider.turns.ring(&upstream);
                        return Ok(answer.leases.pop());
                    }
                    Err(error) if !decider.wait_out_outage(&error).await => return Err(error),
                    Err(_) => {}
                }
            }
        };
        self.life.run_to_completion(settle).await.ok().flatten()
    }

    /// Ends a lease whose call has no job, or whose job returns to its line. Does not wait for the result.
    pub(crate) fn end_call(self: &Arc<Self>, upstream: Name, lease: LeaseId, report: Report) {
        let settlement = end_of_call(lease, report);
        if let Some(answer) = self.store.settle_now(&settlement) {
            self.note(&answer.ended);
            self.turns.ring(&upstream);
            return;
        }
        let decider = self.clone();
        let settle = async move { decider.settle(&upstream, settlement).await };
        self.life.running.spawn(settle);
    }

    /// Like [`end_call`](Self::end_call), but waits, and reports an outage to the caller.
    pub(crate) async fn try_end_call(
        &self,
        upstream: &Name,
        lease: LeaseId,
        report: Report,
    ) -> Result<Option<Settled>, StoreError> {
        let mut answer = self.store.settle(vec![end_of_call(lease, report)]).await?;
        self.note(&answer.ended);
        self.turns.ring(upstream);
        Ok(answer.leases.pop())
    }

    /// Reports a call that was made elsewhere to the breaker of `upstream`.
    pub(crate) async fn record(
        &self,
        upstream: Name,
        result: CallResult,
    ) -> Result<Option<UpstreamView>, StoreError> {
        let view = self.store.record(upstream.clone(), result).await?;
        self.turns.ring(&upstream);
        Ok(view)
    }

    /// Closes a breaker whose open window is over.
    pub(crate) async fn recover(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        let view = self.store.recover(upstream.clone()).await?;
        self.turns.ring(&upstream);
        Ok(view)
    }

    /// Closes a breaker and clears its upstream's cooldown and Retry-After.
    pub(crate) async fn reset(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        let view = self.store.reset(upstream.clone()).await?;
        self.turns.ring(&upstream);
        Ok(view)
    }

    /// Does what only the passing of time triggers.
    pub(crate) async fn sweep(&self) -> Result<Swept, StoreError> {
        let swept = self.store.sweep().await?;
        self.note(&swept.ended);
        self.note_recovered(&swept.recovered);
        for (lane, job, surplus) in &swept.dead_letters {
            let reason = match surplus {
                TrimReason::Expired => "ttl",
                TrimReason::OverCap => "max",
            };
            self.metrics.count_trimmed_letter(lane, reason);
            tracing::warn!(jobId = %job, lane = %lane, reason, "Dead letter removed");
        }
        for ReplayedLetter { lane, letter, job, bulk } in &swept.replayed {
            let by = bulk.map_or_else(|| "redrive".to_owned(), |bulk| bulk.to_string());
            tracing::info!(jobId = %job, replayOf = %letter, lane = %lane, by, "Dead letter replayed");
        }
        if swept.debits_dropped > 0 {
            self.metrics.count_dropped_debits(swept.debits_dropped);
            let calls = swept.debits_dropped;
            tracing::warn!(
                calls,
                "Too many correlation ids: events can no longer return the tokens of the oldest calls"
            );
        }
        Ok(swept)
    }

    /// Counts and logs jobs that ended. Every verb that can end jobs calls this.
    fn note(&self, ended: &[Ended]) {
        for ended in ended {
            self.metrics.count_end(ended, self.clock.now());
            log_end(ended);
        }
    }

    /// Logs jobs that were put back in their lines because their worker vanished.
    fn note_recovered(&self, jobs: &[JobId]) {
        for job in jobs {
            tracing::warn!(jobId = %job, "Job recovered: its worker did not come back");
        }
        if !jobs.is_empty() {
            self.turns.ring_all();
        }
    }

    /// Waits a little if the error is transient, and returns whether to try again. After a permanent failure the
    /// process must end, because it can keep no promise.
    pub(crate) async fn wait_out_outage(&self, error: &StoreError) -> bool {
        if error.is_transient() {
            if !self.store_lost.swap(true, Ordering::Relaxed) {
                tracing::warn!(error = %error, "The store does not answer; trying until it does");
            }
            tokio::time::sleep(STORE_PAUSE).await;
            return true;
        }
        // Every loop gets the error; it is logged once.
        if self.life.fail() {
            tracing::error!(error = %error, "The store failed");
        }
        false
    }

    /// Notes that the store answered.
    pub(crate) fn store_answers(&self) {
        if self.store_lost.swap(false, Ordering::Relaxed) {
            tracing::info!("The store answers again");
            self.turns.ring_all();
        }
    }
}

/// A settlement that releases the lease and ends no job.
const fn end_of_call(lease: LeaseId, report: Report) -> Settlement {
    Settlement { lease, report, outcome: Outcome::Release, answer: None, unsent: None }
}
