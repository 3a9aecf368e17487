//! The lease of a permit: settled or extended by the worker.

use std::fmt;

use axum::Json;
use eclusa_core::gate::CallResult;
use eclusa_core::{LeaseId, Name, Report, Settled, Span, Store, Time, Usage};
use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::LimitsState;
use crate::api::auth::Caller;
use crate::api::extract::{Body, NoQuery, Path};
use crate::api::problem::{Kind, Problem};
use crate::api::store_problem::unavailable;
use crate::api::upstreams::callable;
use crate::execute::http::Hints;
use crate::execute::{CallEnd, Called};
use crate::ids::is_foreign;
use crate::intake::Fault;
use crate::policy::amount;
use crate::rules::CurrentRules;

/// A lease as an external worker names it: with its upstream, whose rules judge the call.
pub(super) struct ForeignLease {
    pub(super) upstream: Name,
    pub(super) id: LeaseId,
}

impl fmt::Display for ForeignLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.upstream, self.id)
    }
}

impl ForeignLease {
    /// Parses a lease id, if the caller may use its upstream.
    fn find(rules: &CurrentRules, caller: &Caller, text: &str) -> Result<Self, Problem> {
        let parts =
            text.split_once(':').and_then(|(upstream, id)| Some((upstream, id.parse::<LeaseId>().ok()?)));
        let Some((upstream, id)) = parts else { return Err(no_such_lease()) };
        let upstream = callable(rules, caller, upstream)?;
        // Leases of Eclusa's own workers cannot be ended from outside.
        if is_foreign(id.nonce) { Ok(Self { upstream, id }) } else { Err(no_such_lease()) }
    }
}

fn no_such_lease() -> Problem {
    Problem::new(Kind::NotFound, "There is no such lease: it never existed, was settled, or has expired")
}

/// The result of a call.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({ "status": 429, "retryAfter": "30" }))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SettleRequest {
    /// The upstream's HTTP status, or a word for a call without a response.
    #[schema(value_type = CallStatus)]
    status: Value,
    /// The `Retry-After` header of the response, unchanged: seconds, or a date. It applies with 403, 429 and 5xx.
    #[serde(default)]
    retry_after: Option<String>,
    /// The usage that the response reports, for policies that charge by it: a number, or `{"body:/usage/total_tokens":
    /// 321}` if they count different things.
    #[schema(value_type = Option<f64>)]
    #[serde(default)]
    usage: Option<Value>,
}

/// A worker's report of its call.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(untagged)]
enum CallStatus {
    /// An HTTP status, 100 to 599.
    Answered(u16),
    /// Why there was no response.
    Unanswered(Unanswered),
}

/// Why there was no response.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Unanswered {
    /// No response in time.
    Timeout,
    /// The connection failed or broke.
    ConnectionError,
    /// The call was not made: its tokens are given back.
    NotSent,
}

impl SettleRequest {
    /// The reported call, or everything that is wrong with the report.
    fn called(&self, now: Time) -> Result<Called, Vec<Fault>> {
        let end = self.end();
        let close = match (&self.retry_after, &end) {
            (None, _) => Ok(None),
            (Some(text), Ok(CallEnd::Answered(status))) => retry_after(text, *status, now),
            (Some(text), Err(_)) => retry_after(text, 429, now),
            (Some(_), Ok(_)) => Err(Fault::new("retryAfter", "is not allowed without a response")),
        };
        let usage = self.usage.as_ref().map_or(Ok(Usage::Unknown), used);
        match (end, close, usage) {
            (Ok(end), Ok(close), Ok(usage)) => Ok(Called { close, usage, ..end.into() }),
            (end, close, usage) => Err([end.err(), close.err(), usage.err()].into_iter().flatten().collect()),
        }
    }

    fn end(&self) -> Result<CallEnd, Fault> {
        let reason = || "reported by the worker that made the call".to_owned();
        match CallStatus::deserialize(&self.status) {
            Ok(CallStatus::Answered(status @ 100..=599)) => Ok(CallEnd::Answered(status)),
            Ok(CallStatus::Answered(_)) => Err(Fault::new("status", "must be from 100 to 599")),
            Ok(CallStatus::Unanswered(Unanswered::Timeout)) => Ok(CallEnd::TimedOut(reason())),
            Ok(CallStatus::Unanswered(Unanswered::ConnectionError)) => Ok(CallEnd::Broken(reason())),
            Ok(CallStatus::Unanswered(Unanswered::NotSent)) => Ok(CallEnd::NotMade),
            Err(_) => {
                let problem = "must be an HTTP status, or one of timeout, connection_error, not_sent";
                Err(Fault::new("status", problem))
            }
        }
    }
}

/// Parses the reported usage.
fn used(usage: &Value) -> Result<Usage, Fault> {
    let wrong =
        || Fault::new("usage", "must be a number, or an object of numbers by their place in the response");
    match usage {
        Value::Null => Ok(Usage::Unknown),
        Value::Object(places) => {
            let entry = |(place, value): (&String, &Value)| Some((place.as_str().into(), amount(value)?));
            places.iter().map(entry).collect::<Option<_>>().map(Usage::BySource).ok_or_else(wrong)
        }
        number => amount(number).map(Usage::Amount).ok_or_else(wrong),
    }
}

/// How long a response with this `Retry-After` asks to stop sending.
fn retry_after(text: &str, status: u16, now: Time) -> Result<Option<Span>, Fault> {
    let header = HeaderValue::from_str(text).ok().map(|value| (RETRY_AFTER, value));
    let hints = Hints::read(&HeaderMap::from_iter(header), now);
    let wrong = || Fault::new("retryAfter", "must be seconds or an HTTP date, as the upstream sent it");
    hints.retry_after.ok_or_else(wrong).map(|_| hints.close_for(status))
}

/// The report of a caller that may not change the gates of the upstream, because others share them: it settles what the
/// lease holds, and says nothing about the upstream.
fn only_holds(report: Report) -> Report {
    let result = if report.result.is_unsent() { CallResult::NotSent } else { CallResult::Unknown };
    Report { result, retry_after: None, ..report }
}

/// A lease was settled.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct LeaseSettled {
    /// Always `true`.
    settled: bool,
}

/// Settle a lease: report the result of its call
///
/// The gates count it like every other call. With a key bound to tenants, or to lanes where other lanes use the upstream too,
/// it only settles what the lease holds: breaker, cooldown, pace and `Retry-After` are shared with others.
#[utoipa::path(post, path = "/v1/limits/leases/{leaseId}/settle", tag = "limits", request_body = SettleRequest,
    params(("leaseId" = String, Path, description = "The lease")), responses((status = 200, body = LeaseSettled)))]
pub(in crate::api) async fn settle(
    limits: LimitsState,
    caller: Caller,
    Path(lease): Path<String>,
    _: NoQuery,
    body: Body,
) -> Result<Json<LeaseSettled>, Problem> {
    let ForeignLease { upstream, id } = ForeignLease::find(&limits.rules, &caller, &lease)?;
    let report: SettleRequest = body.object()?;
    let called = report.called(limits.clock.now()).map_err(|faults| Problem::invalid(&faults).in_body())?;
    let rules = limits.rules.get();
    let mut judged = rules.judge(&upstream, &called);
    if caller.may_change_breaker(&rules.config, upstream.as_str()).is_err() {
        judged.report = only_holds(judged.report);
    }
    let closed = judged.report.retry_after.is_some();
    let (decider, metrics) = (limits.decider.clone(), limits.metrics.clone());
    let settling = async move {
        let settled = decider.try_end_call(&upstream, id, judged.report).await? == Some(Settled::Released);
        if settled {
            metrics.count_call(&upstream, &judged.judgement, closed);
        }
        Ok(settled)
    };
    if !limits.life.run_to_completion(settling).await.map_err(|error| unavailable(&error))? {
        return Err(no_such_lease());
    }
    Ok(Json(LeaseSettled { settled: true }))
}

/// A lease was extended.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api) struct LeaseExtended {
    /// Always `true`.
    extended: bool,
}

/// Extend a lease by its full duration from now
#[utoipa::path(post, path = "/v1/limits/leases/{leaseId}/extend", tag = "limits",
    params(("leaseId" = String, Path, description = "The lease")), responses((status = 200, body = LeaseExtended)))]
pub(in crate::api) async fn extend(
    limits: LimitsState,
    caller: Caller,
    Path(lease): Path<String>,
    _: NoQuery,
) -> Result<Json<LeaseExtended>, Problem> {
    let lease = ForeignLease::find(&limits.rules, &caller, &lease)?;
    let alive = limits.store.extend(vec![lease.id], limits.rules.get().config.workers.lease.into()).await;
    match alive.map_err(|error| unavailable(&error))?.as_slice() {
        [true] => Ok(Json(LeaseExtended { extended: true })),
        _ => Err(no_such_lease()),
    }
}
