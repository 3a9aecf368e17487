//! The dashboard: the built files of `ui/`, embedded in the program.
//!
//! `dist/` is committed, so building the program needs no Node; a test builds it again and compares.

use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

/// Every file by its path, sorted; next to each the same compressed with Brotli as `.br`.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// For names that contain a hash of the content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// The page itself.
pub(crate) const INDEX: &str = "index.html";

/// A file of the dashboard, compressed if the client accepts it; `None` if there is no such file.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let plain = embedded(path).filter(|_| !is_compressed(path))?;
    let compressed = accepts_brotli(headers).then(|| embedded(&format!("{path}.br"))).flatten();
    let is_brotli = compressed.is_some();
    let mut response = compressed.unwrap_or(plain).into_response();
    let cached = if path.starts_with("assets/") { FOR_EVER } else { "no-cache" };
    let fixed = [
        (CONTENT_TYPE, content_type(path)),
        (CACHE_CONTROL, cached),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (VARY, "accept-encoding"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if is_brotli {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
    }
    Some(response)
}

fn embedded(path: &str) -> Option<&'static [u8]> {
    let at = FILES.binary_search_by_key(&path, |(name, _)| name).ok()?;
    Some(FILES[at].1)
}

fn is_compressed(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == "br")
}

fn accepts_brotli(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut codings = accepted.flat_map(|text| text.split(','));
    codings.any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "br"
            && quality.trim().strip_prefix("q=").is_none_or(|q| q.parse().is_ok_and(|q: f32| q > 0.0))
    })
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(encoding: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(encoding))])
    }

    #[test]
    fn every_file_has_a_type_and_a_smaller_compressed_twin() {
        let (mut total, mut plain) = (0, 0);
        for (path, data) in FILES.iter().filter(|(path, _)| !is_compressed(path)) {
            assert_ne!(content_type(path), "application/octet-stream", "{path}");
            let twin = embedded(&format!("{path}.br")).unwrap_or_else(|| panic!("no {path}.br"));
            total += twin.len();
            plain += data.len();
        }
        assert!(total < plain && total <= 150 * 1024, "{total} of {plain} bytes");
    }

    #[test]
    fn clients_that_accept_brotli_get_it() {
        let encoding = |headers| file(INDEX, &headers).unwrap().headers().get(CONTENT_ENCODING).cloned();
        assert!(encoding(accepting("gzip, deflate, br, zstd")).is_some());
        assert!(encoding(accepting("br;q=0.5")).is_some());
        assert!(encoding(accepting("gzip, br;q=0")).is_none());
        assert!(encoding(HeaderMap::new()).is_none());
        assert!(file("index.html.br", &accepting("br")).is_none(), "only as an encoding of the file");
        assert!(file("../mod.rs", &HeaderMap::new()).is_none());
    }
}
