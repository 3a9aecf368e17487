//! Calls about a job that an upstream works on: to poll it, and to cancel it.

use std::sync::Arc;

use eclusa_core::gate::CallResult;
use eclusa_core::{Clock, EventKind, JobId, JobView, LeaseId, Name, Payload, Report, Status};
use serde_json::Value;

use crate::config::RequestTemplate;
use crate::decide::Decider;
use crate::execute::http::shape::{Values, shape};
use crate::execute::{CallContext, CallEnd, Called, Sent};
use crate::life::Life;
use crate::request::{Content, Envelope};
use crate::rules::Rules;

/// A job that was submitted to an upstream.
#[derive(Debug, Clone)]
pub(crate) struct Submitted {
    pub(crate) job: JobId,
    /// The upstream, or the key of it with which the job was submitted.
    pub(crate) at: Name,
    pub(crate) tenant: Arc<str>,
    pub(crate) external: Option<Arc<str>>,
    pub(crate) payload: Payload,
}

/// Makes follow-up calls about submitted jobs.
#[derive(Clone)]
pub(crate) struct FollowUp {
    pub(crate) rules: Arc<Rules>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl FollowUp {
    /// Sends the request that a template makes of the job. It passes no gate: gates are for submits.
    pub(crate) async fn call(&self, template: &RequestTemplate, job: &Submitted) -> Called {
        let upstream = &job.at.without_key();
        let key = match self.rules.key(upstream, job.at.key()) {
            Ok(key) => key,
            Err(end) => return end.into(),
        };
        let envelope = match Envelope::from_payload(&job.payload) {
            Ok(envelope) => envelope,
            Err(error) => return CallEnd::Invalid(format!("the stored job {error}")).into(),
        };
        let params = envelope.params.as_deref().and_then(|params| serde_json::from_str::<Value>(params).ok());
        let job_id = job.job.to_string();
        let values = Values {
            params: params.as_ref().unwrap_or(&Value::Null),
            job_id: &job_id,
            id: envelope.key.as_deref(),
            tenant: &job.tenant,
            webhook_url: None,
            external_id: job.external.as_deref(),
            key: key.map(|key| key.secret.reveal()),
        };
        let shaped = match shape(template, &values) {
            Ok(shaped) => shaped,
            Err(unfit) => {
                let lacks: Vec<String> =
                    unfit.iter().map(|unfit| format!("`{}` {}", unfit.field, unfit.problem)).collect();
                return CallEnd::Invalid(format!("the template does not fit: {}", lacks.join(", "))).into();
            }
        };
        let (idempotency_key, clock) = (job_id.as_str(), &*self.clock);
        let mut headers = key.map_or(Vec::new(), |key| key.headers.clone());
        headers.extend(shaped.headers);
        let context = CallContext { idempotency_key, traceparent: None, headers: &headers, clock };
        match self.rules.upstreams.get(upstream) {
            Some(client) => client.call(&Content::Http(shaped.request), &context, &Sent::default()).await,
            None => CallEnd::NotMade.into(),
        }
    }

    /// Cancels the job at the upstream; returns whether the upstream accepted that.
    pub(crate) async fn cancel(&self, job: &Submitted) -> bool {
        let upstream = &job.at.without_key();
        let rules = self.rules.config.upstreams.get(upstream);
        let Some(template) = rules.and_then(|rules| rules.awaited()?.cancel.as_ref()) else {
            return false;
        };
        let called = self.call(template, job).await;
        let judged = self.rules.judge(upstream, &called).judgement;
        let understood = judged.result == CallResult::Success;
        if understood {
            tracing::info!(jobId = %job.job, %upstream, "Cancelled at the upstream");
        } else {
            tracing::warn!(jobId = %job.job, %upstream, reason = judged.reason, "Not cancelled at the upstream");
        }
        understood
    }
}

/// Cancels a job at the upstream that worked on it; `job` is as it was when it was cancelled. Its slot is released when
/// the upstream has accepted.
pub(crate) fn recall(follow_up: FollowUp, decider: &Arc<Decider>, life: &Life, job: &JobView) {
    let Some((upstream, lease)) = works_on(job) else { return };
    let job = Submitted {
        job: job.id,
        at: job.at.clone().unwrap_or_else(|| upstream.clone()),
        tenant: job.tenant.clone(),
        external: job.external.clone(),
        payload: job.payload.clone(),
    };
    let decider = decider.clone();
    life.running.spawn(async move {
        if follow_up.cancel(&job).await {
            decider.end_call(upstream, lease, Report::from(CallResult::Unknown));
        }
    });
}

/// The upstream that works on the job, and the lease under which it does.
fn works_on(job: &JobView) -> Option<(Name, LeaseId)> {
    let awaits = matches!(job.timeline.last()?.kind, EventKind::Awaiting(_));
    let lease = job.lease.filter(|_| job.status == Status::Processing && awaits)?;
    Some((job.upstream.clone()?, lease))
}
