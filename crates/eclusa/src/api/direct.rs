//! Direct lanes: the caller waits on the connection, bodies stream through, and what no gate admits now is refused.

mod flow;
mod held;

use std::sync::{Arc, PoisonError};

use axum::extract::{FromRequestParts, Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use eclusa_core::gate::CallResult;
use eclusa_core::{Admit, Clock, Name};
use http::{Method, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use tokio::time::Instant;

use self::flow::{Call, Fault, streamed};
use self::held::{Begun, HELD, Held, hold};
use super::auth::{Caller, Right};
use super::extract::unread;
use super::headers::{idempotency_key, passed_on, text};
use super::problem::{Kind, Problem};
use super::refusal::not_now;
use super::state::Api;
use super::submit::unavailable;
use crate::config::{Field, Lane, Policy, Upstream};
use crate::decide::{Asked, Decider};
use crate::execute::http::{BoxError, Head};
use crate::execute::{CallContext, CallEnd, Judgement};
use crate::ids::{Ids, own_nonce};
use crate::intake::{DEFAULT_TENANT, check};
use crate::leases::Leases;
use crate::life::Life;
use crate::policy::{Scopes, Subject, Takes};
use crate::request::Request;
use crate::rules::CurrentRules;
use crate::telemetry::Metrics;

/// What passing requests on needs.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Direct {
    #[from_request(via(State))]
    decider: Arc<Decider>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    ids: Arc<Ids>,
    #[from_request(via(State))]
    scopes: Arc<Scopes>,
    #[from_request(via(State))]
    leases: Arc<Leases>,
    #[from_request(via(State))]
    life: Arc<Life>,
    #[from_request(via(State))]
    metrics: Arc<Metrics>,
    #[from_request(via(State))]
    clock: Arc<dyn Clock>,
}

/// A request on its way through a direct lane.
struct Passing<'a> {
    direct: &'a Direct,
    lane: &'a Name,
    tenant: &'a str,
    head: Head<'a>,
    key: &'a str,
    version: Version,
    takes: Takes,
}

impl Direct {
    /// Passes a request on at once, or says when to come again.
    pub(super) async fn pass(
        &self,
        caller: &Caller,
        (lane, rules): (&Name, &Lane),
        target: (String, Option<String>),
        request: HttpRequest,
    ) -> Response {
        let passed = self.try_pass(caller, (lane, rules), target, request).await;
        let response = passed.unwrap_or_else(IntoResponse::into_response);
        self.metrics.answers.count(lane, response.status().as_u16());
        response
    }

    async fn try_pass(
        &self,
        caller: &Caller,
        (lane, rules): (&Name, &Lane),
        (path, query): (String, Option<String>),
        request: HttpRequest,
    ) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        caller.may(Right::Enqueue)?;
        let tenant = text(&parts.headers, "eclusa-tenant")?.or(caller.own_tenant());
        caller.may_be(tenant.unwrap_or(DEFAULT_TENANT))?;
        if self.life.stopping.is_cancelled() {
            return Err(Problem::new(Kind::Stopping, "The server is stopping").retry_after(5));
        }
        let key = idempotency_key(&parts.headers)?.unwrap_or_else(|| self.ids.job().to_string());
        let (method, headers) = (parts.method.to_string(), passed_on(&parts.headers)?);
        let mut request = Request { method, path, query, headers, body: Vec::new() };
        let current = self.rules.get();
        let upstreams = &current.config.upstreams;
        let mut policies =
            rules.upstreams().filter_map(|name| upstreams.get(name)).flat_map(Upstream::policies);
        let server = &current.config.server;
        let keep = if policies.any(Policy::reads_bodies) { server.max_body } else { HELD };
        let held = hold(&parts.headers, body, server, keep, &self.life.uploads).await?;
        match &held {
            Held::Whole(body) => request.body = body.to_vec(),
            Held::Begun(_) if looks_into_bodies(rules) => {
                let detail = format!("The lane looks into bodies, which is possible up to {HELD} bytes");
                return Err(Problem::new(Kind::TooLarge, detail));
            }
            Held::Begun(_) => {}
        }
        let chain = check(&request, rules).map_err(|faults| Problem::invalid(&faults))?;
        let subject = Subject::new(&request, tenant.unwrap_or(DEFAULT_TENANT));
        let takes =
            self.scopes.takes(upstreams, chain, subject).await.map_err(|error| unavailable(&error))?;
        let takes = takes.map_err(|faults| Problem::invalid(&faults))?;
        let (head, version) = (Head::from(&request), parts.version);
        let tenant = tenant.unwrap_or(DEFAULT_TENANT);
        let passing = Passing { direct: self, lane, tenant, head, key: &key, version, takes };
        match held {
            Held::Whole(body) => passing.along(chain, body).await,
            Held::Begun(body) => passing.once(chain, body).await,
        }
    }
}

fn looks_into_bodies(rules: &Lane) -> bool {
    let fields = rules.validate.iter().map(|(field, _)| field);
    let mut fields = fields.chain(rules.chains.iter().map(|chains| &chains.by));
    fields.any(|field| matches!(field, Field::Body(_)))
}

impl Passing<'_> {
    /// Tries one upstream after the other until one answers.
    async fn along(&self, chain: &[Name], body: Bytes) -> Result<Response, Problem> {
        let mut left: Vec<Name> = chain.to_vec();
        let mut call = self.admit(&left, None).await?;
        loop {
            left.retain(|upstream| *upstream != call.leave.upstream);
            let (problem, failed) = match self.call(call, Full::new(body.clone()), !left.is_empty()).await {
                Ok(response) => return Ok(response),
                Err(Failed { problem, again: Some(failed) }) if !left.is_empty() => (problem, failed),
                Err(Failed { problem, .. }) => return Err(problem),
            };
            call = self.admit(&left, Some(failed)).await.map_err(|_| problem)?;
        }
    }

    async fn once(&self, chain: &[Name], body: Begun) -> Result<Response, Problem> {
        let call = self.admit(chain, None).await?;
        let (told, max) = (call.fault.clone(), call.rules.config.server.max_body);
        let body = body.map_err(move |error| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(unread(&*error, max));
            error
        });
        self.call(call, body, false).await.map_err(|failed| failed.problem)
    }

    /// Leave for one of `chain`, in place of the call that `failed`, which has passed the lane.
    async fn admit(&self, chain: &[Name], failed: Option<Call>) -> Result<Call, Problem> {
        let Direct { decider, rules, leases, metrics, .. } = self.direct;
        let rules = rules.get();
        let lasts = rules.config.workers.lease;
        let (lane, tenant, nonce) = (Some(self.lane.clone()), Some(self.tenant.into()), own_nonce());
        let (holds, correlation) = (self.takes.at(chain), self.takes.correlation);
        let (chain, lease) = (chain.to_vec(), lasts.into());
        let after = failed.as_ref().and_then(|failed| failed.leave.told());
        let ask = Admit { lane, tenant, chain, holds, correlation, lease, nonce, after };
        let asked = Instant::now();
        match decider.admit(ask).await.map_err(|error| unavailable(&error))? {
            Asked::Granted(leave) => {
                if let Some(failed) = failed {
                    failed.leave.passed_to(&leave);
                }
                let hold = leases.hold(leave.lease, asked + lasts);
                let (metrics, fault) = (metrics.clone(), Fault::default());
                Ok(Call { leave, rules, metrics, asked, head: None, fault, _hold: hold })
            }
            Asked::Denied { upstream, denied } => {
                metrics.count_refusal(Some(self.lane), upstream.as_ref(), denied.denial.reason);
                Err(not_now(upstream.as_ref().unwrap_or(self.lane), &denied))
            }
            Asked::Unknown => {
                Err(Problem::new(Kind::Internal, "The lane and the store do not agree on the rules"))
            }
        }
    }

    /// Makes the call. With `more`, an answer that another upstream may better is a failure too.
    async fn call<B>(&self, mut call: Call, body: B, more: bool) -> Result<Response, Failed>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<BoxError>,
    {
        let clock = &*self.direct.clock;
        let rules = call.rules.clone();
        let headers = match rules.key(&call.leave.upstream, call.leave.key.as_deref()) {
            Ok(key) => key.map_or(&[][..], |key| &key.headers),
            Err(end) => {
                let judged = call.told(end, None);
                return Err(Failed { problem: failed(&judged.judgement), again: Some(call) });
            }
        };
        let context = CallContext { idempotency_key: self.key, traceparent: None, headers, clock };
        let Some(client) = rules.upstreams.get(&call.leave.upstream) else {
            return Err(Problem::new(Kind::Internal, "The upstream is not configured").into());
        };
        // Unless something else comes of it: the caller may go away, or its body break off.
        call.report(&CallEnd::Abandoned.into());
        let judged = match client.stream(self.head, body, &context).await {
            Ok(answer) => {
                let status = answer.status.as_u16();
                call.head = Some((status, answer.close));
                let judged = call.told(CallEnd::Answered(status), answer.close);
                if !(more && judged.may_go_on(self.may_repeat())) {
                    return Ok(streamed(answer, call, self.version));
                }
                judged
            }
            Err(end) => {
                if let Some(problem) = call.fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    return Err(problem.into());
                }
                call.told(end, None)
            }
        };
        let again = judged.may_go_on(self.may_repeat()).then_some(call);
        Err(Failed { problem: failed(&judged.judgement), again })
    }

    /// What may have had its effect is sent again only where that does no harm.
    fn may_repeat(&self) -> bool {
        Method::from_bytes(self.head.method.as_bytes()).is_ok_and(|method| method.is_idempotent())
    }
}

/// A call that has no answer for the caller.
struct Failed {
    problem: Problem,
    /// The call, if another upstream may cure what went wrong.
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
