//! Checks before routing: refuses unsupported methods, requests that do not name exactly one host, and `Eclusa-*` headers
//! that the call does not read.

use http::header::{ALLOW, HOST};
use http::{HeaderValue, Method, Version};

use super::headers;
use super::problem::{Kind, Problem};
use crate::execute::http::target;

/// `Ok` if the request can be routed.
pub(super) fn check<B>(request: &http::Request<B>) -> Result<(), Problem> {
    check_method(request.method())?;
    let mut hosts = request.headers().get_all(HOST).into_iter();
    let detail = match (hosts.next(), hosts.next(), request.version()) {
        (Some(_), Some(_), _) => "The header Host is given more than once",
        (None, _, Version::HTTP_11) => "The header Host is missing",
        _ => return headers::check_own(request.headers(), request.uri().path()),
    };
    Err(Problem::new(Kind::BadRequest, detail))
}

fn check_method(method: &Method) -> Result<(), Problem> {
    if target::may_be_sent(method) {
        return Ok(());
    }
    let detail = match *method {
        Method::TRACE | Method::CONNECT => "TRACE and CONNECT are not supported",
        _ => "A method is at most 20 capital letters and `-`",
    };
    let allowed = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
    Err(Problem::new(Kind::MethodNotAllowed, detail).header(ALLOW, allowed))
}
