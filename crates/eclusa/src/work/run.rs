//! Run: takes one job along its chain and settles the result.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use eclusa_core::layout::Delivery;
use eclusa_core::{
    Advance, Advanced, CALLBACKS, Callback, Denied, Grant, JobId, Name, Notice, Outcome, Payload, Settled,
    Settlement,
};
use http::{HeaderName, HeaderValue};
use serde_json::Value;
use tokio::time::Instant;

use super::Workers;
use super::heartbeat::MARGIN;
use super::slots::{TakenSlots, release_early};
use crate::awaited::{FollowUp, Submitted, external_id, submit_failed};
use crate::config::{Async, LaneConfig, OnFailure, UpstreamKeyConfig};
use crate::execute::http::shape::{JobValues, Shaped, for_upstream};
use crate::execute::{Attempt, CallContext, CallEnd, Called, Judged, Sent};
use crate::ids::made_ms;
use crate::model::{AlertMessage, Job};
use crate::request::{Content, Envelope, JobTrace, Mail, Response, TRACESTATE};
use crate::rules::Rules;
use crate::telemetry::log_retry;
use crate::telemetry::traces::{OpenSpan, SpanKind};

/// The `tracestate` header of the job's trace, if it has one.
fn state_header(trace: &JobTrace) -> Option<(HeaderName, HeaderValue)> {
    Some((TRACESTATE, HeaderValue::try_from(trace.state.as_deref()?).ok()?))
}

/// A job that this process is running.
pub(super) struct Run {
    pub(super) workers: Arc<Workers>,
    pub(super) lane: Name,
    /// The rules when it started; it ends under the same.
    pub(super) rules: Arc<Rules>,
    /// The rules of its lane.
    pub(super) lane_rules: Arc<LaneConfig>,
    pub(super) grant: Grant,
    /// When the grant was asked for.
    pub(super) asked: Instant,
    /// When gates were first asked for the job, and the gate that held its lane back, if any.
    pub(super) gates: (Instant, Option<Denied>),
}

/// What the worker has to do for a job.
enum Order {
    Request(Box<Envelope>),
    Deliver(Delivery),
}

impl Order {
    fn read(lane: &Name, job: JobId, payload: &[u8]) -> Result<Self, String> {
        if lane.as_str() == CALLBACKS {
            return Delivery::decode(payload).map(Self::Deliver).map_err(|error| format!("is {error}"));
        }
        let mut envelope = Envelope::from_payload(payload).map_err(|error| error.to_string())?;
        if let Content::Mail(mail) = &mut envelope.content {
            mail.resume(job);
        }
        Ok(Self::Request(Box::new(envelope)))
    }

    /// The trace the job belongs to.
    fn trace(&self) -> Option<&JobTrace> {
        match self {
            Self::Request(envelope) => envelope.trace.as_deref(),
            Self::Deliver(_) => None,
        }
    }

    /// Replaces the message by what is left to send after a partial success; returns the new payload for the store.
    fn replace(&mut self, left: Option<Box<Mail>>) -> Option<Payload> {
        let (Self::Request(envelope), Some(left)) = (self, left) else { return None };
        envelope.content = Content::Mail(left);
        Some(envelope.to_payload())
    }
}

impl Run {
    /// Runs the job until it is settled, its lease is lost, or the process aborts it.
    pub(super) async fn to_its_end(&self, slot: Option<TakenSlots>) {
        let lease = self.rules.config.workers.lease;
        let hold = self.workers.leases.hold(self.grant.lease, self.asked + lease);
        let (mut at, sent) = (self.grant.upstream.clone(), Sent::default());
        tokio::select! {
            biased;
            () = self.along_the_chain(&mut at, &sent, slot) => {}
            () = hold.lost(lease / MARGIN) => {
                tracing::warn!(jobId = %self.grant.job, lane = %self.lane, "Lease lost, call cancelled");
            }
            // The process ends, and the call with it.
            () = self.workers.life.aborting.cancelled() => {
                self.workers.life.let_go.fetch_add(1, Ordering::Relaxed);
                let settled = self.end(&at, CallEnd::Abandoned { sent: sent.perhaps() }).await;
                self.workers.life.count_let_go(settled);
            }
        }
    }

    /// Calls one upstream after the other. `at` is the upstream where the job is, with the key if it has keys.
    async fn along_the_chain(&self, at: &mut Name, sent: &Sent, slot: Option<TakenSlots>) {
        let mut order = match Order::read(&self.lane, self.grant.job, &self.grant.payload) {
            Ok(order) => order,
            Err(error) => {
                let unreadable = CallEnd::Invalid(format!("the stored job {error}"));
                self.end(at, unreadable).await;
                return;
            }
        };
        let trace = order.trace().cloned();
        let trace = trace.as_ref();
        self.trace_start(trace);
        loop {
            let (mut called, took) = self.call(at, &order, sent).await;
            let left = order.replace(called.left.take());
            let upstream = at.without_key();
            let mut judged = self.rules.judge(&upstream, &called);
            judged.report.took = Some(took.into());
            judged.report.answered_ago = called.answered_at.map(|began| began.elapsed().into());
            if let Some(awaited) = self.awaited(&upstream) {
                submit_failed(awaited, &called, &mut judged);
            }
            let Judged { judgement, report, .. } = &judged;
            self.workers.metrics.count_call(&upstream, judgement, report.retry_after.is_some());
            if !self.may_go_on(&judged) {
                let _span = self.settling(trace, &judged);
                release_early(slot, self.settle(at, judged, called.answer, left)).await;
                return;
            }
            let gates = trace.map(|trace| self.span(trace, "gates", SpanKind::Internal));
            let advanced = self.advance(&judged, left.clone()).await;
            drop(gates);
            match advanced {
                Some(Advanced::To(next)) => {
                    *at = next;
                    sent.clear();
                }
                Some(Advanced::Exhausted) => {
                    let _span = self.settling(trace, &judged);
                    release_early(slot, self.settle(at, judged, called.answer, left)).await;
                    return;
                }
                Some(Advanced::Stale) => return self.give_back(judged),
                Some(Advanced::Waits(_)) | None => return,
            }
        }
    }

    /// Makes a call; returns how long it took.
    async fn call(&self, at: &Name, order: &Order, sent: &Sent) -> (Called, Duration) {
        let mut span = order.trace().map(|trace| self.span(trace, "attempt", SpanKind::Client));
        let started = Instant::now();
        let called = match order {
            Order::Request(envelope) => self.request(at, envelope, span.as_ref(), sent).await,
            Order::Deliver(delivery) => {
                sent.set();
                match delivery {
                    Delivery::Callback(callback) => self.call_back(callback).await,
                    Delivery::Notice(notice) => self.notify(notice).await,
                }
            }
        };
        let took = started.elapsed();
        if let Some(span) = &mut span {
            span.of_call(&at.without_key(), self.grant.attempt);
            span.of_end(&called.end);
        }
        self.workers.metrics.time_call(&at.without_key(), took);
        (called, took)
    }

    async fn request(&self, at: &Name, envelope: &Envelope, span: Option<&OpenSpan>, sent: &Sent) -> Called {
        let upstream = &at.without_key();
        let prepared = self.rules.key(upstream, at.key()).and_then(|key| {
            let shaped = self.shaped(upstream, key, envelope)?;
            let own = key.map_or(Vec::new(), |key| key.headers.clone());
            Ok((shaped, own))
        });
        let (shaped, mut headers) = match prepared {
            Ok(prepared) => prepared,
            Err(end) => return end.into(),
        };
        let shaped = shaped.map(|shaped| {
            headers.extend(shaped.headers);
            Content::Http(shaped.request)
        });
        let content = shaped.as_ref().unwrap_or(&envelope.content);
        let job = self.grant.job.to_string();
        let idempotency_key = envelope.key.as_deref().unwrap_or(&job);
        let clock = &*self.workers.clock;
        headers.extend(envelope.trace.as_ref().and_then(|trace| state_header(trace)));
        let traceparent = span.map(OpenSpan::traceparent);
        let traceparent = traceparent.as_deref();
        let context = CallContext { idempotency_key, traceparent, headers: &headers, clock };
        match self.rules.upstreams.get(upstream) {
            Some(client) => client.call(content, &context, sent).await,
            None => CallEnd::NotSent("is no longer configured".into()).into(),
        }
    }

    /// The request that the template of `upstream` makes of `params`, to be sent in place of the job's own. That it
    /// fits was checked at intake, under the rules of that time.
    fn shaped(
        &self,
        upstream: &Name,
        key: Option<&UpstreamKeyConfig>,
        envelope: &Envelope,
    ) -> Result<Option<Shaped>, CallEnd> {
        let params: Option<Value> =
            envelope.params.as_deref().and_then(|params| serde_json::from_str(params).ok());
        if matches!(envelope.content, Content::Mail(_))
            || params.is_none() && envelope.content != Content::Templates
        {
            return Ok(None);
        }
        let Grant { job, tenant, .. } = &self.grant;
        let (params, id) = (&params.unwrap_or_default(), envelope.key.as_deref());
        let values = JobValues { params, job: *job, id, tenant };
        let shaped = for_upstream((&self.rules.config).into(), upstream, &values, key);
        shaped.transpose().map_err(|unfit| {
            let first = unfit.first().map(|unfit| format!("`{}` {}", unfit.field, unfit.problem));
            CallEnd::Invalid(format!("the job does not fit the template: {}", first.unwrap_or_default()))
        })
    }

    async fn call_back(&self, Callback { url, job }: &Callback) -> Called {
        let body = serde_json::to_vec(&Job::from(job.clone())).unwrap_or_default();
        match &self.rules.callbacks {
            Some(client) => client.call(self.grant.job, url, body, &*self.workers.clock).await,
            None => CallEnd::NotSent("callbacks are no longer configured".into()).into(),
        }
    }

    async fn notify(&self, Notice { to, alert }: &Notice) -> Called {
        let body = serde_json::to_vec(&AlertMessage::from(alert)).unwrap_or_default();
        self.rules.alerts.call(self.grant.job, to, body, &*self.workers.clock).await
    }

    /// Records how long the job waited.
    fn trace_start(&self, trace: Option<&JobTrace>) {
        let Some(trace) = trace else { return };
        // A replay has the trace of its first job and began to wait later.
        let accepted_ms = trace.taken_ms.max(made_ms(self.grant.job));
        if self.grant.attempt == 1 {
            self.span(trace, "wait", SpanKind::Internal).since(accepted_ms, self.asked);
        }
        let (since, held_back) = &self.gates;
        let mut span = self.span(trace, "gates", SpanKind::Internal);
        if let Some(Denied { reason, .. }) = held_back {
            span.set("eclusa.reason", || reason.as_str());
        }
        // The lane may have been held back before this job arrived.
        span.lasted((*since, accepted_ms), Instant::now());
    }

    fn settling(&self, trace: Option<&JobTrace>, judged: &Judged) -> Option<OpenSpan> {
        let mut span = self.span(trace?, "settle", SpanKind::Internal);
        span.of_call(&judged.upstream, self.grant.attempt);
        Some(span)
    }

    fn span(&self, trace: &JobTrace, name: &'static str, kind: SpanKind) -> OpenSpan {
        let mut span = self.workers.traces.below(&trace.context, name, kind);
        span.of_job(&self.lane, self.grant.job);
        span
    }

    fn may_go_on(&self, judged: &Judged) -> bool {
        let single = self.lane_rules.chain.len() == 1 && self.lane_rules.chains.is_none();
        !single && judged.may_go_on(self.lane_rules.retry.retries_ambiguous())
    }

    async fn advance(&self, judged: &Judged, unsent: Option<Payload>) -> Option<Advanced> {
        let ask = Advance {
            lease: self.grant.lease,
            upstream: judged.upstream.clone(),
            report: judged.report.clone(),
            failure: judged.failure(),
            unsent,
        };
        self.workers.decider.advance(ask).await
    }

    /// Ends the attempt without a finished call; returns what that did.
    async fn end(&self, upstream: &Name, end: CallEnd) -> Option<Settled> {
        self.settle(upstream, self.rules.judge(&upstream.without_key(), &end.into()), None, None).await
    }

    /// Ends the attempt with its last call; `left` is what is left to send after a partial success. Returns what that did, if
    /// the store answers.
    async fn settle(
        &self,
        at: &Name,
        judged: Judged,
        answer: Option<Response>,
        left: Option<Payload>,
    ) -> Option<Settled> {
        let Grant { job, attempt: number, .. } = self.grant;
        let keyed =
            self.rules.config.upstreams.get(&judged.upstream).is_some_and(|rules| !rules.keys().is_empty());
        let attempt = Attempt { job, number, seed: self.workers.seed, keyed };
        let outcome = match self.awaiting(&judged, answer.as_ref()) {
            Some(awaiting) => awaiting,
            None => judged.outcome(&self.lane_rules.retry, attempt),
        };
        let retry = match &outcome {
            Outcome::Retry { after, .. } => Some(Duration::from_millis(after.as_millis())),
            _ => None,
        };
        let external = match &outcome {
            Outcome::Awaiting { external, .. } => external.clone(),
            _ => None,
        };
        let answer = answer.as_ref().filter(|_| external.is_none()).map(Response::to_payload);
        let settlement =
            Settlement { lease: self.grant.lease, report: judged.report, outcome, answer, unsent: left };
        let settled = self.workers.decider.settle(&judged.upstream, settlement).await;
        if let (Some(Settled::Released), Some(external)) = (settled, external) {
            self.recall(at.clone(), external).await;
        }
        if let (Some(Settled::RetryAt(_)), Some(delay)) = (settled, retry) {
            self.workers.metrics.count_retry(&self.lane, number + 1, delay);
            log_retry(&self.grant, self.lane_rules.retry.attempts(), &judged.judgement, delay);
        }
        settled
    }

    /// The outcome for an upstream that accepted the job and will report its result later.
    fn awaiting(&self, judged: &Judged, answer: Option<&Response>) -> Option<Outcome> {
        let awaited = self.awaited(&judged.upstream)?;
        let external = external_id(awaited, &answer.filter(|_| judged.judgement.verdict.is_none())?.body)?;
        let next = awaited.on_failure == OnFailure::Next;
        let poll = awaited.poll.as_ref().map(|poll| poll.times);
        Some(Outcome::Awaiting { timeout: awaited.timeout, external: Some(external.into()), next, poll })
    }

    fn awaited(&self, upstream: &Name) -> Option<&Async> {
        self.rules.config.upstreams.get(upstream)?.awaited()
    }

    /// Cancels the job at the upstream: it was cancelled here while it was being submitted.
    async fn recall(&self, at: Name, external: Arc<str>) {
        let follow_up = FollowUp { rules: self.rules.clone(), clock: self.workers.clock.clone() };
        let Grant { job, tenant, payload, .. } = self.grant.clone();
        follow_up.cancel(&Submitted { job, at, tenant, external: Some(external), payload }).await;
    }

    /// Ends the lease of a job that was cancelled while it ran: it still holds slots, and the gates need the result of
    /// the call. Changes nothing if the lease is gone.
    fn give_back(&self, judged: Judged) {
        self.workers.decider.end_call(judged.upstream, self.grant.lease, judged.report);
    }
}
