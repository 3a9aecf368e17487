//! The dashboard: the built files of `ui/`, embedded in the program.
//!
//! `dist/` is committed, so building the program needs no Node; a test builds it again and compares.

use axum::response::{IntoResponse, Response};
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY,
    VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue};

/// Every file by its path, sorted; next to each the same compressed, see [`CODINGS`].
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

/// Compressed forms: the name of the coding and the extension of its files. The first is preferred.
const CODINGS: [(&str, &str); 2] = [("br", "br"), ("gzip", "gz")];

const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// For names that contain a hash of the content.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// The page itself.
pub(crate) const INDEX: &str = "index.html";

/// A file of the dashboard, compressed if the client accepts it; `None` if there is no such file.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Response> {
    let plain = embedded(path).filter(|_| !is_compressed(path))?;
    let compressed =
        coding(headers).and_then(|(name, extension)| Some((name, embedded(&format!("{path}.{extension}"))?)));
    let mut response = compressed.map_or(plain, |(_, data)| data).into_response();
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
    if let Some((name, _)) = compressed {
        response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static(name));
    }
    Some(response)
}

fn embedded(path: &str) -> Option<&'static [u8]> {
    let at = FILES.binary_search_by_key(&path, |(name, _)| name).ok()?;
    Some(FILES[at].1)
}

fn is_compressed(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| CODINGS.iter().any(|coding| coding.1 == extension))
}

/// The coding that the client likes best; `None` if it accepts none of ours.
fn coding(headers: &HeaderMap) -> Option<(&'static str, &'static str)> {
    let quality = |wanted: &str| {
        let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let mut codings = accepted.flat_map(|text| text.split(','));
        codings.find_map(|coding| {
            let (name, quality) = coding.split_once(';').unwrap_or((coding, "q=1"));
            let named = name.trim().eq_ignore_ascii_case(wanted);
            named.then(|| quality.trim().strip_prefix("q=")?.parse::<f32>().ok()).flatten()
        })
    };
    let mut best = None;
    let mut most = 0.0;
    for coding in CODINGS {
        let quality = quality(coding.0).unwrap_or(0.0);
        if quality > most {
            (best, most) = (Some(coding), quality);
        }
    }
    best
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
    fn every_file_has_a_type_and_small_compressed_twins() {
        let plain = || FILES.iter().filter(|(path, _)| !is_compressed(path));
        for (path, _) in plain() {
            assert_ne!(content_type(path), "application/octet-stream", "{path}");
        }
        for (_, extension) in CODINGS {
            let twin = |path| embedded(&format!("{path}.{extension}"));
            let twins =
                plain().map(|(path, _)| twin(path).unwrap_or_else(|| panic!("no {path}.{extension}")));
            let total: usize = twins.map(<[u8]>::len).sum();
            assert!(total <= 150 * 1024, "{total} bytes of .{extension}");
        }
    }

    #[test]
    fn clients_get_the_coding_they_like_best() {
        let encoding = |headers| {
            let answer = file(INDEX, &headers).unwrap();
            answer.headers().get(CONTENT_ENCODING).map(|value| value.to_str().unwrap().to_owned())
        };
        let wanted = [
            ("gzip, deflate, br, zstd", Some("br")),
            ("br;q=0.5", Some("br")),
            ("gzip, br;q=0", Some("gzip")),
            ("gzip;q=1.0, br; q=0.2", Some("gzip")),
            ("GZIP", Some("gzip")),
            ("gzip;q=0, deflate", None),
            ("identity", None),
        ];
        for (accepted, coding) in wanted {
            assert_eq!(encoding(accepting(accepted)).as_deref(), coding, "{accepted}");
        }
        assert_eq!(encoding(HeaderMap::new()), None);
        for compressed in ["index.html.br", "index.html.gz"] {
            assert!(file(compressed, &accepting("br, gzip")).is_none(), "only as an encoding of the file");
        }
        assert!(file("../mod.rs", &HeaderMap::new()).is_none());
    }

    #[test]
    fn a_gzip_twin_is_the_file() {
        let plain = embedded(INDEX).unwrap();
        let twin = embedded("index.html.gz").unwrap();
        assert_eq!(twin[..2], [0x1f, 0x8b]);
        let size = u32::from_le_bytes(twin[twin.len() - 4..].try_into().unwrap());
        assert_eq!(size as usize, plain.len(), "the size in its trailer");
    }
}
