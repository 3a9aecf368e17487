//! `/`: the dashboard's files. They need no key; what they show does.

use axum::extract::Path;
use axum::response::Response;
use http::HeaderMap;

use super::problem::{Kind, Problem};
use crate::web;

/// The page.
pub(super) async fn page(headers: HeaderMap) -> Result<Response, Problem> {
    file(web::INDEX, &headers)
}

/// A script or a style sheet.
pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, Problem> {
    file(&format!("assets/{name}"), &headers)
}

fn file(path: &str, headers: &HeaderMap) -> Result<Response, Problem> {
    web::file(path, headers).ok_or_else(|| Problem::new(Kind::NotFound, "The dashboard has no such file"))
}
