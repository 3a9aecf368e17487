//! `/proxy/{lane}/{path…}`: the request itself is the job.

use axum::body::Body as HttpBody;
use axum::response::{IntoResponse, Response};
use eclusa_core::{JobView, Name};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use hyper::body::Incoming;

use super::auth::Caller;
use super::direct::DirectRequest;
use super::enqueue::{self, Taken};
use super::extract::Body;
use super::headers;
use super::headers::header;
use super::model::Accepted;
use super::model::vocabulary::Priority;
use super::problem::{Kind, Problem};
use super::state::ApiState;
use super::submit::{self, Intake};
use super::wait;
use crate::config::{LaneConfig, Mode};
use crate::execute::http::{RequestHead, target};
use crate::intake::{DEFAULT_TENANT, Submission};
use crate::request::{self, JobTrace, Request, remove_lone_state};

const PREFIX: &str = "/proxy/";

/// Whether this path is a proxy path.
pub(super) fn takes(path: &str) -> bool {
    path.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty())
}

/// Passes a request through its lane.
pub(super) async fn proxy(api: &ApiState, request: http::Request<Incoming>) -> Result<Response, Problem> {
    let current = api.rules.get();
    let (mut parts, body) = request.into_parts();
    let caller = Caller::of(&parts, &current.config.keys)?;
    let (lane, path) = split(parts.uri.path());
    let (lane, rules) = submit::lane_of(&current.config, &caller, lane)?;
    let path =
        target::normalise(path).map_err(|bad| Problem::new(Kind::BadRequest, format!("The path {bad}")))?;
    let query = parts.uri.query().map(target::query).transpose();
    let query = query.map_err(|bad| Problem::new(Kind::BadRequest, format!("The query {bad}")))?;
    remove_lone_state(&mut parts.headers);
    let head = RequestHead { method: parts.method, path, query, headers: parts.headers };
    if rules.mode == Mode::Direct {
        let asking = DirectRequest { parts: api, current: &current, caller: &caller, lane, rules };
        return Ok(asking.pass(head, parts.version, body).await);
    }
    Box::pin(queue(api.into(), &caller, (lane, rules), head, body)).await
}

/// Enqueues a request as a job.
async fn queue(
    intake: Intake,
    caller: &Caller,
    (lane, rules): (&Name, &LaneConfig),
    head: RequestHead,
    body: Incoming,
) -> Result<Response, Problem> {
    let RequestHead { method, path, query, headers: asked } = head;
    let span = intake.traces.request(&asked);
    let (method, headers) = (method.to_string(), headers::passed_on(&asked)?);
    let Body(body) = Body::read(body, &intake.rules, &intake.life.uploads).await?;
    let request = Request { method, path, query, headers, body: body.to_vec() };
    let mut submission = submission(caller, &asked, request)?;
    submission.trace = span.as_deref().map(|span| JobTrace::under(span.context(), None));
    let job = submit::job(&intake, caller, (lane, rules), submission).await?;
    let wait = headers::prefer_wait(&asked).map(|wait| wait.min(intake.rules.get().config.server.max_wait));
    let (taken, ended) = Box::pin(enqueue::enqueue(&intake, job, wait, span)).await?;
    Ok(match taken {
        Taken::Cached(cached) => {
            let mut response = stored(&cached.answer)?;
            // Cookies were meant for the client whose request was cached.
            response.headers_mut().remove(http::header::SET_COOKIE);
            with(response, [header("cache-status", &headers::cache_hit(&cached))])
        }
        Taken::Job(id, accepted) => match wait {
            Some(wait) => enqueue::answered(&intake.store, id, (wait, ended), |job| answer_of(&job)).await?,
            None => enqueue::accepted(&intake.store, id, accepted).await?,
        },
    })
}

/// The OpenAPI description of this call, which accepts every method and path.
pub(super) fn describe() -> utoipa::openapi::OpenApi {
    #[derive(utoipa::OpenApi)]
    #[openapi(paths(described))]
    struct Proxy;
    <Proxy as utoipa::OpenApi>::openapi()
}

/// Pass a request through a lane
///
/// Any method. In a queue lane the request becomes a job and is answered with 202; with `Prefer: wait=N` it is answered
/// with the upstream's response if that arrives within N seconds. In a direct lane it is forwarded at once, or refused
/// with 429.
#[utoipa::path(get, path = "/proxy/{lane}/{path}", tag = "proxy",
    params(
        ("lane" = String, Path, description = "The lane's name"),
        ("path" = String, Path, description = "Path below the upstream's base URL, forwarded with the query"),
        ("Prefer" = Option<String>, Header, description = "`wait=10`: seconds to wait for the answer"),
        ("Idempotency-Key" = Option<String>, Header, min_length = 1, description = "Sending the same key again returns the same job"),
        ("Eclusa-Tenant" = Option<String>, Header, description = "The tenant the job belongs to"),
        ("Eclusa-Priority" = Option<Priority>, Header, description = "`high`, `normal` or `low`"),
        ("Eclusa-Type" = Option<String>, Header, description = "The job's type; the lane's `types` may map it to a priority"),
        ("Eclusa-Ttl" = Option<String>, Header, description = "How long the job may wait before it expires, such as `10s`"),
    ),
    responses(
        (status = 202, body = Accepted, description = "Accepted; the job waits"),
        (status = "default", description = "The upstream's status, headers and body, or those from the cache",
            body = Value, content_type = "*/*"),
    ))]
#[expect(dead_code, reason = "only its description is used")]
fn described() {}

/// `/proxy/score/a/b` is lane `score` and path `/a/b`.
fn split(path: &str) -> (&str, &str) {
    let rest = path.strip_prefix(PREFIX).unwrap_or_default();
    rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash))
}

fn submission(caller: &Caller, asked: &HeaderMap, request: Request) -> Result<Submission, Problem> {
    let tenant = headers::text(asked, "eclusa-tenant")?;
    let tenant = tenant.or(caller.own_tenant()).unwrap_or(DEFAULT_TENANT).to_owned();
    Ok(Submission {
        key: headers::idempotency_key(asked)?,
        tenant,
        priority: headers::priority(asked)?,
        kind: headers::text(asked, "eclusa-type")?.map(ToOwned::to_owned),
        delay: eclusa_core::Span::ZERO,
        ttl: headers::ttl(asked)?,
        params: None,
        request: Some(request),
        message: None,
        callback: None,
        trace: None,
    })
}

/// The upstream's response to an ended job, or the problem why there is none.
fn answer_of(job: &JobView) -> Response {
    let answered = job.result.as_deref().map(stored);
    let response = match answered {
        Some(Ok(mut response)) => {
            if job.served.is_some() {
                response.headers_mut().remove(http::header::SET_COOKIE);
            }
            response
        }
        Some(Err(problem)) => problem.into_response(),
        None => wait::without_answer(job).into_response(),
    };
    let upstream = job.upstream.as_ref().map_or("", Name::as_str);
    let cache_status = headers::cache_status(job, response.status());
    with(
        response,
        [
            header("eclusa-job-id", &job.id.to_string()),
            header("eclusa-attempts", &job.attempts.to_string()),
            header("eclusa-upstream", upstream).filter(|_| !upstream.is_empty()),
            cache_status.and_then(|status| header("cache-status", &status)),
        ],
    )
}

/// A stored response of an upstream.
fn stored(answer: &[u8]) -> Result<Response, Problem> {
    let answer = request::Response::from_payload(answer)
        .map_err(|error| Problem::new(Kind::Internal, format!("The stored answer {error}")))?;
    let mut response = Response::new(HttpBody::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY);
    // The body's length is set again when it is sent.
    for (name, value) in answer.headers.into_iter().filter(|(name, _)| name != "content-length") {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
}

fn with<const N: usize>(mut response: Response, headers: [Option<(HeaderName, HeaderValue)>; N]) -> Response {
    response.headers_mut().extend(headers.into_iter().flatten());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lane_is_the_first_part_of_the_path() {
        assert_eq!(split("/proxy/score"), ("score", ""));
        assert_eq!(split("/proxy/score/"), ("score", "/"));
        assert_eq!(split("/proxy/score/a/b"), ("score", "/a/b"));
        assert_eq!(split("/proxy/score//a"), ("score", "//a"));
    }
}
