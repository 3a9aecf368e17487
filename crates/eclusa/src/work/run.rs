//! Run: takes one job along its chain and settles how it went.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::gate::CallResult;
use eclusa_core::retry::{FailedCall, Verdict};
use eclusa_core::{
    Advance, Advanced, CallFailure, Closure, FailureReason, Grant, Name, Outcome, Payload, Report, Settled,
    Settlement,
};
use tokio::time::Instant;

use super::Workers;
use super::heartbeat::MARGIN;
use crate::config::Lane;
use crate::execute::http::{CallContext, CallEnd, Called, Hints, Judgement};
use crate::request::Envelope;
use crate::rules::Rules;
use crate::telemetry::log_retry;

/// A job that this process runs.
pub(super) struct Run {
    pub(super) workers: Arc<Workers>,
    pub(super) lane: Name,
    /// It ends under the rules it began with.
    pub(super) rules: Arc<Rules>,
    /// Those of its lane.
    pub(super) lane_rules: Arc<Lane>,
    pub(super) grant: Grant,
    /// When the grant was asked for.
    pub(super) asked: Instant,
}

/// A call that was judged.
struct Ended {
    upstream: Name,
    judgement: Judgement,
    report: Report,
    answer: Option<Payload>,
}

impl Run {
    /// Runs the job until it is settled, its lease is lost, or the process can wait no longer.
    pub(super) async fn to_its_end(&self) {
        let lease = self.rules.config.workers.lease;
        let hold = self.workers.leases.hold(self.grant.lease, self.asked + lease);
        tokio::select! {
            biased;
            () = self.along_the_chain() => {}
            () = hold.lost(lease / MARGIN) => {
                tracing::warn!(jobId = %self.grant.job, lane = %self.lane, "Lease lost, call cut off");
            }
            () = self.workers.life.aborting.cancelled() => self.let_go().await,
        }
    }

    async fn along_the_chain(&self) {
        let envelope = match Envelope::from_payload(&self.grant.payload) {
            Ok(envelope) => envelope,
            Err(error) => return self.bury(&format!("what is stored of the job {error}")).await,
        };
        let mut upstream = self.grant.upstream.clone();
        loop {
            let ended = self.call(&upstream, &envelope).await;
            if !self.may_go_on(&ended.judgement) {
                return self.settle(ended).await;
            }
            let advanced = self.advance(&ended).await;
            match advanced {
                Some(Advanced::To(next)) => upstream = next,
                Some(Advanced::Exhausted) => return self.settle(ended).await,
                Some(Advanced::Stale) => return self.give_back(ended).await,
                Some(Advanced::Waits(_)) | None => return,
            }
        }
    }

    async fn call(&self, upstream: &Name, envelope: &Envelope) -> Ended {
        let job = self.grant.job.to_string();
        let idempotency_key = envelope.key.as_deref().unwrap_or(&job);
        let context = CallContext { idempotency_key, traceparent: None, clock: &*self.workers.clock };
        let started = Instant::now();
        let called = match self.rules.upstreams.get(upstream) {
            Some(client) => client.call(&envelope.request, &context).await,
            None => {
                Called { end: CallEnd::NotSent("is no longer configured".into()), hints: Hints::default() }
            }
        };
        self.workers.metrics.time_call(upstream, started.elapsed());
        self.judged(upstream, called)
    }

    fn judged(&self, upstream: &Name, called: Called) -> Ended {
        let rules = self.rules.config.upstreams.get(upstream);
        let judgement = called.judge(&rules.map(|rules| rules.codes.clone()).unwrap_or_default());
        let close = called.close_for();
        self.workers.metrics.count_call(upstream, &judgement, close.is_some());
        let close = close.map(|wait| Closure { wait, bucket: None });
        let report = Report { result: judgement.result, costs: Vec::new(), close };
        let answer = match called.end {
            CallEnd::Answered(response) => Some(response.to_payload()),
            _ => None,
        };
        Ended { upstream: upstream.clone(), judgement, report, answer }
    }

    /// Whether another upstream may cure what went wrong.
    fn may_go_on(&self, judgement: &Judgement) -> bool {
        let single = self.lane_rules.chain.len() == 1 && self.lane_rules.chains.is_none();
        let stop = judgement.ambiguous && !self.lane_rules.retry.retries_ambiguous();
        judgement.verdict == Some(Verdict::Retryable) && !single && !stop
    }

    async fn advance(&self, ended: &Ended) -> Option<Advanced> {
        let ask = Advance {
            lease: self.grant.lease,
            upstream: ended.upstream.clone(),
            report: ended.report.clone(),
            failure: failure(&ended.upstream, &ended.judgement),
        };
        self.workers.decider.advance(ask).await
    }

    async fn settle(&self, ended: Ended) {
        let Ended { upstream, judgement, report, answer } = ended;
        let outcome = self.outcome(&upstream, &judgement, &report);
        let retry = match &outcome {
            Outcome::Retry { after, .. } => Some(*after),
            _ => None,
        };
        let settled = self.send(&upstream, report, outcome, answer).await;
        if let (Some(Settled::RetryAt(_)), Some(delay)) = (settled, retry) {
            let delay = Duration::from_millis(delay.as_millis());
            self.workers.metrics.count_retry(&self.lane, self.grant.attempt + 1, delay);
            log_retry(&self.grant, &self.lane, self.lane_rules.retry.attempts(), &judgement, delay);
        }
    }

    fn outcome(&self, upstream: &Name, judgement: &Judgement, report: &Report) -> Outcome {
        let Some(verdict) = judgement.verdict else {
            return if judgement.reusable { Outcome::Done } else { Outcome::DoneUncached };
        };
        let retry_after = report.close.as_ref().map(|close| close.wait);
        let failed = FailedCall { verdict, ambiguous: judgement.ambiguous, retry_after };
        let failure = failure(upstream, judgement);
        match self.lane_rules.retry.next_attempt(
            self.workers.seed,
            &failed,
            self.grant.job,
            self.grant.attempt,
        ) {
            Some(after) => Outcome::Retry { after, failure },
            None => Outcome::Dead(failure),
        }
    }

    /// The job was cancelled while it ran, so it goes no further; its lease still holds slots, and the gates must hear of
    /// the call. Changes nothing if the lease itself is gone.
    async fn give_back(&self, ended: Ended) {
        self.send(&ended.upstream, ended.report, Outcome::Release, None).await;
    }

    /// The job cannot be run by anybody.
    async fn bury(&self, why: &str) {
        let outcome = Outcome::Dead(failed(why, None, None));
        self.send(&self.grant.upstream, CallResult::NotSent.into(), outcome, None).await;
    }

    /// The process ends and the call with it. It may have had its effect, so it is as if its worker had vanished: the
    /// job goes back to the front of its line, or ends where the lane forbids to send twice.
    async fn let_go(&self) {
        let outcome = if self.lane_rules.retry.retries_ambiguous() {
            Outcome::Release
        } else {
            Outcome::Dead(failed("its worker was stopped while it ran; it may have been sent", None, None))
        };
        self.send(&self.grant.upstream, CallResult::Unknown.into(), outcome, None).await;
    }

    async fn send(
        &self,
        upstream: &Name,
        report: Report,
        outcome: Outcome,
        answer: Option<Payload>,
    ) -> Option<Settled> {
        let settlement = Settlement { lease: self.grant.lease, report, outcome, answer };
        self.workers.decider.settle(upstream, settlement).await
    }
}

fn failure(upstream: &Name, judgement: &Judgement) -> CallFailure {
    failed(&judgement.reason, judgement.code.as_deref(), Some(upstream.clone()))
}

fn failed(reason: &str, code: Option<&str>, upstream: Option<Name>) -> CallFailure {
    let reason =
        FailureReason::new(reason).unwrap_or_else(|_| FailureReason::fixed("failed without a reason"));
    CallFailure { reason, code: code.map(Into::into), upstream }
}
