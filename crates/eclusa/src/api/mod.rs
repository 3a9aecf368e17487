//! The HTTP API.

mod access;
mod alerts;
mod audit;
mod auth;
mod batch;
mod codes;
mod dashboard;
mod dead_letters;
mod direct;
mod docs;
mod enqueue;
mod events;
mod example;
mod extract;
mod find;
mod finish;
mod fleet;
mod head;
mod headers;
mod health;
mod history;
mod jobs;
mod json;
mod lanes;
mod limits;
mod live;
mod openapi;
pub(crate) mod policies;
mod problem;
mod proxy;
mod refusal;
mod search;
mod session;
mod state;
mod status;
mod store_problem;
mod submit;
mod upstreams;
mod wait;
mod webhooks;

pub use dead_letters::{BulkList, BulkReplay, BulkRequest, DeadLetterList, FilterBody, PurgedLetters};
pub(crate) use events::Streams;
pub use search::{CancelledJobs, JobList};
pub(crate) use state::{Api, ApiState};

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tower::Service as _;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::access::AccessLine;
use self::problem::{Kind, OwnProblem, Problem};
use crate::model;
use crate::peers::ProcessRole;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Eclusa",
        description = "Queues, paces and retries calls to rate-limited APIs. Errors are problem details (RFC 9457); with \
                   `Accept: application/xml` they come as `application/problem+xml`. A path answers a method that it does not \
                   list with 405 (`MethodNotAllowed`)."
    ),
    components(schemas(model::JobEvent, model::LiveJob, live::LiveSnapshot, problem::ProblemDetails))
)]
struct Description;

/// All calls that need a key: each takes a [`Caller`](auth::Caller) first.
fn calls() -> OpenApiRouter<Api> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(jobs::enqueue))
        .routes(routes!(batch::enqueue))
        .routes(routes!(jobs::wait))
        .routes(routes!(jobs::why))
        .routes(routes!(events::follow))
        .routes(routes!(live::listen))
        .routes(routes!(lanes::list))
        .routes(routes!(lanes::get))
        .routes(routes!(lanes::tenants))
        .routes(routes!(upstreams::list))
        .routes(routes!(upstreams::get))
        .routes(routes!(codes::codes))
        .routes(routes!(upstreams::breakers))
        .routes(routes!(upstreams::get_breaker))
        .routes(routes!(limits::acquire))
        .routes(routes!(limits::lease::settle))
        .routes(routes!(limits::lease::extend))
        .routes(routes!(policies::list))
        .routes(routes!(policies::get))
        .routes(routes!(dead_letters::stats))
        .routes(routes!(dead_letters::export))
        .routes(routes!(dead_letters::show_all))
        .routes(routes!(alerts::list))
        .routes(routes!(health::health))
        .routes(routes!(status::status))
        .routes(routes!(history::history))
        .routes(routes!(health::metrics))
}

/// The calls by which an operator changes something.
fn changes() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(search::search, search::cancel))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(lanes::pause))
        .routes(routes!(lanes::resume))
        .routes(routes!(upstreams::failure))
        .routes(routes!(upstreams::success))
        .routes(routes!(upstreams::try_recover))
        .routes(routes!(upstreams::reset))
        .routes(routes!(policies::credit))
        .routes(routes!(dead_letters::list, dead_letters::purge))
        .routes(routes!(dead_letters::begin))
        .routes(routes!(dead_letters::show, dead_letters::stop))
        .routes(routes!(dead_letters::get, dead_letters::discard))
        .routes(routes!(dead_letters::replay))
}

/// The calls that need no key.
fn open_calls() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(health::livez))
        .routes(routes!(health::readyz))
        .routes(routes!(webhooks::receive))
        .routes(routes!(session::show, session::begin, session::end))
}

/// The OpenAPI description, for tests.
#[cfg(test)]
fn description() -> utoipa::openapi::OpenApi {
    let mut document = calls().merge(changes()).merge(open_calls()).split_for_parts().1;
    document.merge(proxy::describe());
    document
}

/// Answers the requests of a process.
pub(crate) struct Service {
    router: Router,
    /// Handles `/proxy` requests, which bypass the router: its layers would cost more than all else. Absent in a
    /// process without intake.
    lanes: Option<Api>,
    /// Set with `log.access`.
    access: Option<Api>,
}

impl Service {
    pub(crate) fn new(api: &Api, role: ProcessRole) -> Self {
        let lanes = (role != ProcessRole::Worker).then(|| api.clone());
        let rules = &api.0.rules;
        let access = rules.get().config.log.access.then(|| api.clone());
        Self { router: router(api, role), lanes, access }
    }

    /// Answers a request. Problems are sent as XML if the client prefers it.
    pub(crate) async fn answer(
        self: Arc<Self>,
        request: http::Request<Incoming>,
        peer: SocketAddr,
    ) -> Result<Response, Infallible> {
        let logged = self.access.as_ref().map(|api| Box::new(AccessLine::begin(&api.0, &request, peer)));
        let in_xml = wants_xml(request.headers());
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let mut response = match (head::check(&request), &self.lanes) {
            (Err(problem), _) => problem.into_response(),
            (Ok(()), Some(api)) if proxy::takes(request.uri().path()) => {
                proxy::proxy(&api.0, request).await.unwrap_or_else(IntoResponse::into_response)
            }
            _ => {
                let mut router = self.router.clone();
                let Ok(response) = router.call(request.map(Body::new)).await;
                response
            }
        };
        if let Some(OwnProblem { refusal }) = response.extensions().get() {
            if let Some(refusal) = refusal {
                refusal.log(response.status(), &method, &uri, peer);
            }
            if in_xml {
                response = problem_as_xml(response).await;
            }
        }
        Ok(match logged {
            Some(line) => line.of(response),
            None => response,
        })
    }
}

/// The API of a process with this role, except `/proxy`.
pub(crate) fn router(api: &Api, role: ProcessRole) -> Router {
    if role == ProcessRole::Worker {
        return health_of_a_worker(api);
    }
    let changes = changes().layer(from_fn_with_state(api.0.life.clone(), finish::finish));
    let (routes, document) = calls().merge(changes).merge(open_calls()).split_for_parts();
    routes
        .route("/openapi.json", get(docs::document(document)))
        .route("/", get(dashboard::page))
        .route("/assets/{file}", get(dashboard::asset))
        .route("/docs", get(docs::page))
        .route("/docs/page.js", get(docs::script))
        .route("/docs/page.css", get(docs::style))
        .fallback(async || Problem::new(Kind::NotFound, "There is nothing at this path; see /docs"))
        .method_not_allowed_fallback(wrong_method)
        .with_state(api.clone())
}

async fn wrong_method(method: Method) -> Problem {
    let detail = format!("This path does not support {method}; the header Allow lists what it supports");
    Problem::new(Kind::MethodNotAllowed, detail)
}

fn health_of_a_worker(api: &Api) -> Router {
    Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/v1/health", get(health::health))
        .fallback(async || {
            Problem::new(
                Kind::NotFound,
                "This process only runs jobs (--role worker); send requests to one with --role all or api",
            )
        })
        .method_not_allowed_fallback(wrong_method)
        .with_state(api.clone())
}

async fn problem_as_xml(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let problem = serde_json::from_slice(&body).unwrap_or_default();
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+xml"));
    parts.headers.remove(http::header::CONTENT_LENGTH);
    (parts, problem::as_xml(problem)).into_response()
}

fn wants_xml(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let (mut xml, mut json) = (0.0_f32, 0.0_f32);
    for kind in accepted.flat_map(|accept| accept.split(',')) {
        let mut parts = kind.split(';').map(str::trim);
        let best = match parts.next() {
            Some("application/xml" | "application/problem+xml") => &mut xml,
            Some("application/json" | "application/problem+json") => &mut json,
            _ => continue,
        };
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        *best = best.max(quality);
    }
    xml > 0.0 && xml >= json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_is_sent_only_if_preferred() {
        let wants = |accept: &str| {
            wants_xml(&HeaderMap::from_iter([(ACCEPT, HeaderValue::try_from(accept).unwrap())]))
        };
        let xml =
            ["application/xml", "text/html, application/problem+xml;q=0.9", "application/xml, */*;q=0.1"];
        assert!(xml.into_iter().all(wants));
        let other = ["", "*/*", "application/json, application/xml;q=0.5", "application/xml;q=0"];
        assert!(!other.into_iter().any(wants));
    }
}
