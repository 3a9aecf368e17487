//! Direct lanes: the caller waits on the connection, bodies are streamed, and a request that no gate admits now is
//! refused.

mod flow;
mod held;

use std::sync::{Arc, PoisonError};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use eclusa_core::gate::CallResult;
use eclusa_core::{Admit, Name};
use http::Version;
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::Instant;

use self::flow::{BodyFault, Call, streamed};
use self::held::{Begun, HELD, Held, hold};
use super::auth::{Caller, Right};
use super::extract::unread;
use super::headers::{idempotency_key, refuse_waiting, sendable, text};
use super::problem::{Kind, Problem};
use super::refusal::not_now;
use super::state::ApiState;
use super::store_problem::unavailable;
use crate::config::{Field, LaneConfig, Policy, UpstreamConfig};
use crate::decide::PermitAnswer;
use crate::execute::http::{BoxError, RequestHead};
use crate::execute::{CallContext, CallEnd, Judgement};
use crate::ids::own_nonce;
use crate::intake::{DEFAULT_TENANT, bad_name, check};
use crate::policy::{Subject, Takes};
use crate::request::{Headers, RequestView};
use crate::rules::Rules;
use crate::telemetry::traces::{OpenSpan, SpanKind};

/// A request to a direct lane.
pub(super) struct DirectRequest<'a> {
    pub(super) parts: &'a ApiState,
    pub(super) current: &'a Arc<Rules>,
    pub(super) caller: &'a Caller,
    pub(super) lane: &'a Name,
    pub(super) rules: &'a LaneConfig,
}

/// A request being passed through a direct lane.
struct Passing<'a> {
    parts: &'a ApiState,
    current: &'a Arc<Rules>,
    lane: &'a Name,
    tenant: &'a str,
    /// Whether it may be sent again although it may have had its effect.
    repeatable: bool,
    key: &'a str,
    version: Version,
    takes: Takes,
    /// The span of the whole request, if it belongs to a trace.
    span: Option<Box<OpenSpan>>,
}

impl DirectRequest<'_> {
    /// Forwards a request at once, or says when to try again.
    pub(super) async fn pass(self, head: RequestHead, version: Version, body: Incoming) -> Response {
        let (lane, metrics) = (self.lane, &self.parts.metrics);
        let passed = self.try_pass(head, version, body).await;
        let response = passed.unwrap_or_else(IntoResponse::into_response);
        metrics.answers.count(lane, response.status().as_u16());
        response
    }

    async fn try_pass(
        self,
        mut head: RequestHead,
        version: Version,
        body: Incoming,
    ) -> Result<Response, Problem> {
        let Self { parts, current, caller, lane, rules } = self;
        let mut span = parts.traces.request(&head.headers);
        if let Some(span) = &mut span {
            span.set("eclusa.lane", || lane.as_str());
        }
        caller.may(Right::Enqueue)?;
        let tenant = text(&head.headers, "eclusa-tenant")?.map(ToOwned::to_owned);
        let tenant = tenant.as_deref().or(caller.own_tenant()).unwrap_or(DEFAULT_TENANT);
        caller.may_act_for(tenant)?;
        refuse_waiting(&head.headers)?;
        if parts.life.stopping.is_cancelled() {
            return Err(Problem::new(Kind::Stopping, "The server is stopping").retry_after(5));
        }
        let key = idempotency_key(&head.headers)?;
        let words = [("Eclusa-Tenant", Some(tenant)), ("Idempotency-Key", key.as_deref())];
        if let Some(fault) = words.into_iter().find_map(|(name, word)| bad_name(name, word?)) {
            return Err(Problem::invalid(&[fault]));
        }
        let key = key.unwrap_or_else(|| parts.ids.job().to_string());
        let upstreams = &current.config.upstreams;
        let mut policies =
            rules.upstreams().filter_map(|name| upstreams.get(name)).flat_map(UpstreamConfig::policies);
        let server = &current.config.server;
        let keep = if policies.any(Policy::reads_bodies) { server.max_body } else { HELD };
        let held = hold(&head.headers, body, server, keep, &parts.life.uploads).await?;
        sendable(&mut head.headers)?;
        let body = match &held {
            Held::Whole(body) => &body[..],
            Held::Begun(_) if looks_into_bodies(rules) => {
                let detail = format!("The lane reads fields of bodies, which must have at most {HELD} bytes");
                return Err(Problem::new(Kind::TooLarge, detail));
            }
            Held::Begun(_) => &[],
        };
        let view = view(&head, body);
        let chain = check(view, rules).map_err(|faults| Problem::invalid(&faults))?;
        let takes = parts.scopes.takes(upstreams, chain, Subject::new(view, tenant)).await;
        let takes = takes.map_err(|error| unavailable(&error))?;
        let takes = takes.map_err(|faults| Problem::invalid(&faults))?;
        let repeatable = head.method.is_idempotent();
        let passing = Passing { parts, current, lane, tenant, repeatable, key: &key, version, takes, span };
        match held {
            Held::Whole(body) => passing.along(chain, head, body).await,
            Held::Begun(body) => passing.once(chain, head, body).await,
        }
    }
}

fn view<'a>(head: &'a RequestHead, body: &'a [u8]) -> RequestView<'a> {
    let RequestHead { method, path, query, headers } = head;
    let headers = Headers::Passing(headers);
    RequestView { method: method.as_str(), path, query: query.as_deref(), headers, body }
}

fn looks_into_bodies(rules: &LaneConfig) -> bool {
    let fields = rules.validate.iter().map(|(field, _)| field);
    let mut fields = fields.chain(rules.chains.iter().map(|chains| &chains.by));
    fields.any(|field| matches!(field, Field::Body(_)))
}

impl Passing<'_> {
    /// Tries the upstreams in order until one answers.
    async fn along(&self, chain: &[Name], head: RequestHead, body: Bytes) -> Result<Response, Problem> {
        let mut left: Vec<Name> = chain.to_vec();
        let mut call = self.admit(&left, None).await?;
        loop {
            left.retain(|upstream| *upstream != call.permit.upstream);
            if left.is_empty() {
                return self.call(call, head, Full::new(body), false).await.map_err(|failed| failed.problem);
            }
            let (problem, failed) = match self.call(call, head.clone(), Full::new(body.clone()), true).await {
                Ok(response) => return Ok(response),
                Err(Failed { problem, again: Some(failed) }) => (problem, failed),
                Err(Failed { problem, .. }) => return Err(problem),
            };
            call = self.admit(&left, Some(failed)).await.map_err(|_| problem)?;
        }
    }

    async fn once(&self, chain: &[Name], head: RequestHead, body: Begun) -> Result<Response, Problem> {
        let call = self.admit(chain, None).await?;
        let (fault, max) = (call.fault.clone(), call.rules.config.server.max_body);
        let body = body.map_err(move |error| {
            *fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(unread(&*error, max));
            error
        });
        self.call(call, head, body, false).await.map_err(|failed| failed.problem)
    }

    /// Obtains a permit for one upstream of `chain`. `failed` is the previous call, which has already passed the lane's
    /// gates.
    async fn admit(&self, chain: &[Name], failed: Option<Call>) -> Result<Call, Problem> {
        let ApiState { decider, leases, metrics, life, .. } = self.parts;
        let rules = self.current.clone();
        let lasts = rules.config.workers.lease;
        let (lane, tenant, nonce) = (Some(self.lane.clone()), Some(self.tenant.into()), own_nonce());
        let (holds, correlation) = (self.takes.at(chain), self.takes.correlation);
        let (chain, lease) = (chain.to_vec(), lasts.into());
        let after = failed.as_ref().and_then(|failed| failed.permit.final_report());
        let ask = Admit { lane, tenant, chain, holds, correlation, lease, nonce, after, probe: true };
        let mut gates = self.span.as_ref().map(|span| Box::new(span.child("gates", SpanKind::Internal)));
        let asked = Instant::now();
        match decider.admit(ask).await.map_err(|error| unavailable(&error))? {
            PermitAnswer::Granted(permit) => {
                if let Some(failed) = failed {
                    failed.permit.continued_by(&permit);
                }
                let hold = leases.hold(permit.lease, asked + lasts);
                let (metrics, fault) = (metrics.clone(), BodyFault::default());
                let running = life.direct.token();
                Ok(Call { permit, rules, metrics, asked, head: None, fault, _hold: hold, _running: running })
            }
            PermitAnswer::Denied { upstream, denied } => {
                gates.iter_mut().for_each(|span| span.fail(denied.denial.reason.as_str()));
                metrics.count_refusal(Some(self.lane), upstream.as_ref(), denied.denial.reason);
                Err(not_now(upstream.as_ref().unwrap_or(self.lane), &denied))
            }
            PermitAnswer::Unknown => {
                Err(Problem::new(Kind::Internal, "The rules of the lane and of the store differ"))
            }
        }
    }

    /// Makes the call. With `more`, an answer that another upstream may improve on counts as a failure too.
    async fn call<B>(
        &self,
        mut call: Call,
        head: RequestHead,
        body: B,
        more: bool,
    ) -> Result<Response, Failed>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let clock = &*self.parts.clock;
        let rules = call.rules.clone();
        let headers = match rules.key(&call.permit.upstream, call.permit.key.as_deref()) {
            Ok(key) => key.map_or(&[][..], |key| &key.headers),
            Err(end) => {
                let judged = call.settle_as(end, None);
                return Err(Failed { problem: failed(&judged.judgement), again: Some(call) });
            }
        };
        let mut attempt = self.span.as_ref().map(|span| Box::new(span.child("attempt", SpanKind::Client)));
        let traceparent = attempt.as_ref().map(|span| span.traceparent());
        let traceparent = traceparent.as_deref();
        let context = CallContext { idempotency_key: self.key, traceparent, headers, clock };
        let Some(client) = rules.upstreams.get(&call.permit.upstream) else {
            return Err(Problem::new(Kind::Internal, "The upstream is not configured").into());
        };
        // The default result: the caller may disconnect, or its body break off.
        call.permit.set_report(CallResult::Unknown.into());
        let judged = match client.stream(head, body, &context).await {
            Ok(answer) => {
                let status = answer.status.as_u16();
                if let Some(span) = &mut attempt {
                    span.of_call(&call.permit.upstream, 1);
                    span.of_end(&CallEnd::Answered(status));
                }
                call.head = Some((status, answer.close));
                let judged = call.settle_as(CallEnd::Answered(status), answer.close);
                if !(more && judged.may_go_on(self.repeatable)) {
                    return Ok(streamed(answer, call, self.version));
                }
                judged
            }
            Err(end) => {
                if let Some(problem) = call.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    return Err(problem.into());
                }
                let judged = call.settle_as(end, None);
                if let Some(span) = &mut attempt {
                    span.of_call(&call.permit.upstream, 1);
                    span.fail(&judged.judgement.reason);
                }
                judged
            }
        };
        let again = judged.may_go_on(self.repeatable).then_some(call);
        Err(Failed { problem: failed(&judged.judgement), again })
    }
}

/// A call without a response for the caller.
struct Failed {
    problem: Problem,
    /// The call, if another upstream may succeed.
    again: Option<Call>,
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self { problem, again: None }
    }
}

fn failed(judgement: &Judgement) -> Problem {
    let kind = match judgement.result {
        CallResult::TimedOut => Kind::UpstreamTimeout,
        _ => Kind::UpstreamFailed,
    };
    Problem::new(kind, judgement.reason.clone())
}
