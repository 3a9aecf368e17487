//! `/openapi.json` and `/docs`: the API describes itself, without external assets.

use axum::response::{Html, IntoResponse, Response};
use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use utoipa::openapi::OpenApi;

use super::extract::NoQuery;

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'";

/// Serves the page.
pub(super) async fn page(_: NoQuery) -> Response {
    ([(CONTENT_SECURITY_POLICY, POLICY)], Html(include_str!("docs/page.html"))).into_response()
}

/// Serves its script.
pub(super) async fn script() -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("docs/page.js")).into_response()
}

/// Serves its style sheet.
pub(super) async fn style() -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("docs/page.css")).into_response()
}

/// Serves the OpenAPI document.
pub(super) fn document(mut api: OpenApi) -> impl Fn(NoQuery) -> std::future::Ready<Response> + Clone {
    api.merge(super::proxy::describe());
    let document = Bytes::from(super::openapi::complete(&api).to_string());
    move |_| std::future::ready(([(CONTENT_TYPE, "application/json")], document.clone()).into_response())
}
