//! Direct lanes: the caller waits on the connection, bodies stream through, and what no gate admits now is refused.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body as HttpBody;
use axum::extract::{FromRequestParts, Request as HttpRequest, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use eclusa_core::gate::{CallResult, GateView};
use eclusa_core::{Admit, Clock, Name, Span, Store};
use http::{HeaderMap, HeaderName, Method};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, Limited};
use tokio::time::Instant;

use super::auth::{Caller, Right};
use super::extract::{unread, whole};
use super::headers::{idempotency_key, passed_on, text};
use super::problem::{Kind, Problem};
use super::refusal::not_now;
use super::state::Api;
use super::submit::{header, unavailable};
use crate::config::{Field, Lane};
use crate::decide::{Asked, Decider, Leave};
use crate::execute::http::{AnswerBody, BodyError, Head, Streamed};
use crate::execute::{CallContext, CallEnd, Called, Judged, Judgement};
use crate::ids::{Ids, own_nonce};
use crate::intake::{DEFAULT_TENANT, check};
use crate::leases::{Hold, Leases};
use crate::life::Life;
use crate::request::Request;
use crate::rules::{CurrentRules, Rules};
use crate::store::AnyStore;
use crate::telemetry::Metrics;

/// A body up to this size is held whole, so that another upstream can be tried.
const HELD: usize = 64 * 1024;

/// What passing requests on needs.
#[derive(FromRequestParts)]
#[from_request(state(Api))]
pub(super) struct Direct {
    #[from_request(via(State))]
    decider: Arc<Decider>,
    #[from_request(via(State))]
    store: Arc<AnyStore>,
    #[from_request(via(State))]
    rules: Arc<CurrentRules>,
    #[from_request(via(State))]
    ids: Arc<Ids>,
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
    head: Head<'a>,
    key: &'a str,
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
        let max = self.rules.get().config.server.max_body;
        let key = idempotency_key(&parts.headers)?.unwrap_or_else(|| self.ids.job().to_string());
        let (method, headers) = (parts.method.to_string(), passed_on(&parts.headers)?);
        let mut request = Request { method, path, query, headers, body: Vec::new() };
        let held = held(&parts.headers, body, max).await?;
        match &held {
            Held::Whole(body) => request.body = body.to_vec(),
            Held::Stream(_) if looks_into_bodies(rules) => {
                let detail = format!("The lane looks into bodies, which is possible up to {HELD} bytes");
                return Err(Problem::new(Kind::TooLarge, detail));
            }
            Held::Stream(_) => {}
        }
        let chain = check(&request, rules).map_err(|faults| Problem::invalid(&faults))?;
        let passing = Passing { direct: self, lane, head: Head::from(&request), key: &key };
        match held {
            Held::Whole(body) => passing.along(chain, body).await,
            Held::Stream(body) => passing.once(chain, body, max).await,
        }
    }
}

fn looks_into_bodies(rules: &Lane) -> bool {
    let fields = rules.validate.iter().map(|(field, _)| field);
    let mut fields = fields.chain(rules.chains.iter().map(|chains| &chains.by));
    fields.any(|field| matches!(field, Field::Body(_)))
}

enum Held {
    Whole(Bytes),
    Stream(Limited<HttpBody>),
}

/// Reads a body that announces itself as small; any other streams.
async fn held(headers: &HeaderMap, body: HttpBody, max: usize) -> Result<Held, Problem> {
    let announced =
        headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let small = body.size_hint().exact().is_some_and(|size| size <= HELD as u64)
        || announced.is_some_and(|length: usize| length <= HELD);
    if announced.is_some_and(|length| length > max) {
        return Err(Problem::new(
            Kind::TooLarge,
            format!("The body has more than {max} bytes (server.max_body)"),
        ));
    }
    if !small {
        return Ok(Held::Stream(Limited::new(body, max)));
    }
    whole(Limited::new(body, HELD), HELD).await.map(Held::Whole)
}

impl Passing<'_> {
    /// Tries one upstream after the other until one answers.
    async fn along(&self, chain: &[Name], body: Bytes) -> Result<Response, Problem> {
        let mut left: Vec<Name> = chain.to_vec();
        let mut last = None;
        loop {
            let call = match self.admit(&left).await {
                Ok(call) => call,
                Err(problem) => return Err(last.unwrap_or(problem)),
            };
            left.retain(|upstream| *upstream != call.leave.upstream);
            let (answer, curable) =
                self.call(call, Full::new(body.clone()), !left.is_empty(), &Fault::default()).await;
            match answer {
                Err(problem) if curable && !left.is_empty() => last = Some(problem),
                answer => return answer,
            }
        }
    }

    async fn once(&self, chain: &[Name], body: Limited<HttpBody>, max: usize) -> Result<Response, Problem> {
        let call = self.admit(chain).await?;
        let fault = Fault::default();
        let told = fault.clone();
        let body = body.map_err(move |error| {
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(unread(&*error, max));
            error
        });
        self.call(call, body, false, &fault).await.0
    }

    async fn admit(&self, chain: &[Name]) -> Result<Call, Problem> {
        let Direct { decider, rules, leases, metrics, .. } = self.direct;
        let rules = rules.get();
        let lasts = rules.config.workers.lease;
        let (lane, nonce) = (Some(self.lane.clone()), own_nonce());
        let ask = Admit {
            lane,
            chain: chain.to_vec(),
            holds: Vec::new(),
            correlation: None,
            lease: lasts.into(),
            nonce,
        };
        let asked = Instant::now();
        match decider.admit(ask).await.map_err(|error| unavailable(&error))? {
            Asked::Granted(leave) => {
                let hold = leases.hold(leave.lease, asked + lasts);
                Ok(Call { leave, rules, metrics: metrics.clone(), asked, head: None, _hold: hold })
            }
            Asked::Denied { upstream, denial, now } => {
                metrics.count_denial(Some(self.lane), upstream.as_ref(), denial.reason);
                let at = upstream.unwrap_or_else(|| self.lane.clone());
                Err(not_now(&at, denial, &self.gates(&at).await, now))
            }
            Asked::Unknown => {
                Err(Problem::new(Kind::Internal, "The lane and the store do not agree on the rules"))
            }
        }
    }

    /// The gates of the upstream or the lane that said no.
    async fn gates(&self, at: &Name) -> Vec<GateView> {
        let upstreams = self.direct.store.upstreams().await.unwrap_or_default();
        let lanes = self.direct.store.lanes().await.unwrap_or_default();
        let of_upstreams = upstreams.into_iter().map(|view| (view.name, view.gates));
        let mut all = of_upstreams.chain(lanes.into_iter().map(|view| (view.name, view.gates)));
        all.find(|(name, _)| name == at).map(|(_, gates)| gates).unwrap_or_default()
    }

    /// Makes the call; says also whether another upstream may cure what went wrong.
    async fn call<B>(
        &self,
        mut call: Call,
        body: B,
        more: bool,
        fault: &Fault,
    ) -> (Result<Response, Problem>, bool)
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let clock = &*self.direct.clock;
        let context = CallContext { idempotency_key: self.key, traceparent: None, clock };
        let rules = call.rules.clone();
        let Some(client) = rules.upstreams.get(&call.leave.upstream) else {
            return (Err(Problem::new(Kind::Internal, "The upstream is not configured")), false);
        };
        // Unless something else comes of it: the caller may go away, or its body break off.
        call.report(&CallEnd::Abandoned.into());
        match client.stream(self.head, body, &context).await {
            Ok(answer) => {
                let status = answer.status.as_u16();
                call.head = Some((status, answer.close));
                let judged = call.end(CallEnd::Answered(status), answer.close);
                if more && judged.may_go_on(self.may_repeat()) {
                    return (Err(failed(&judged.judgement)), true);
                }
                (Ok(streamed(answer, call)), false)
            }
            Err(end) => {
                if let Some(problem) = fault.lock().unwrap_or_else(PoisonError::into_inner).take() {
                    return (Err(problem), false);
                }
                let judged = call.end(end, None);
                (Err(failed(&judged.judgement)), judged.may_go_on(self.may_repeat()))
            }
        }
    }

    /// What may have had its effect is sent again only where that does no harm.
    fn may_repeat(&self) -> bool {
        Method::from_bytes(self.head.method.as_bytes()).is_ok_and(|method| method.is_idempotent())
    }
}

/// What went wrong with the caller's own body, which is not the upstream's fault.
type Fault = Arc<Mutex<Option<Problem>>>;

fn failed(judgement: &Judgement) -> Problem {
    let kind = match judgement.result {
        CallResult::TimedOut => Kind::UpstreamTimeout,
        _ => Kind::UpstreamFailed,
    };
    Problem::new(kind, judgement.reason.clone())
}

/// A call under way.
struct Call {
    leave: Leave,
    /// It ends under the rules it began with.
    rules: Arc<Rules>,
    metrics: Arc<Metrics>,
    asked: Instant,
    /// The status of the answer that is coming, and for how long the upstream said to stay away.
    head: Option<(u16, Option<Span>)>,
    /// Keeps its slots taken however long the answer is.
    _hold: Hold,
}

impl Call {
    /// It ended, or its answer began to come.
    fn end(&mut self, end: CallEnd, close: Option<Span>) -> Judged {
        let judged = self.report(&Called { close, ..end.into() });
        self.metrics.count_call(&judged.upstream, &judged.judgement, close.is_some());
        self.metrics.time_call(&judged.upstream, self.asked.elapsed());
        judged
    }

    /// The answer breaks off. What the upstream said of its limits was said.
    fn break_off(&mut self, error: BodyError) {
        let Some((status, close)) = self.head else { return };
        let end = CallEnd::from(error).after_head(status);
        // Else it was counted when it began.
        let anew = end != CallEnd::Answered(status);
        let judged = self.report(&Called { close, ..end.into() });
        if anew {
            self.metrics.count_call(&judged.upstream, &judged.judgement, false);
        }
    }

    /// What the gates will be told when the lease ends.
    fn report(&mut self, called: &Called) -> Judged {
        let judged = self.rules.judge(&self.leave.upstream, called);
        self.leave.report(judged.report.clone());
        judged
    }
}

/// The upstream's answer, whose body comes as it comes.
fn streamed(answer: Streamed, call: Call) -> Response {
    let upstream = header("eclusa-upstream", call.leave.upstream.as_str());
    let mut response = Response::new(HttpBody::new(Flow { body: answer.body, call }));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    // The body is sent anew, and its length with it.
    response.headers_mut().remove(HeaderName::from_static("content-length"));
    response.headers_mut().extend(upstream);
    response
}

/// A body that keeps its call open until it has passed.
struct Flow {
    body: AnswerBody,
    call: Call,
}

impl Body for Flow {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(error))) = &frame {
            self.call.break_off(error.clone());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
