//! `[traces]`: where spans are exported.

use http::{HeaderName, HeaderValue, Uri};

use super::read::Table;
use super::types::BaseUrl;
use super::units::Fraction;
use super::upstreams::headers;

/// The OTLP/HTTP path for spans, below the collector's URL.
const PATH: &str = "/v1/traces";

/// Where spans are exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracesConfig {
    /// The full URL.
    pub endpoint: Uri,
    /// Sent with every request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// The share of traces starting here that is recorded, in millionths.
    pub sample_micros: u32,
}

pub(super) fn traces(t: &mut Table<'_>) -> Option<TracesConfig> {
    let url: Option<BaseUrl> = t.need(
        "otlp",
        "\"http://127.0.0.1:4318\"",
        "The collector's OTLP/HTTP URL. Spans are sent to `/v1/traces` below it, as JSON.",
    );
    let headers = headers(t, "Sent with every request to the collector, such as `Authorization`.");
    let sample = t.or(
        "sample",
        Fraction { micros: 1_000_000 },
        "The share of traces starting here that is recorded. Traces of callers are recorded if their \
         `traceparent` says so.",
    );
    let endpoint = url.and_then(|url| {
        let path =
            if url.prefix.ends_with(PATH) { url.prefix.clone() } else { format!("{}{PATH}", url.prefix) };
        Uri::builder().scheme(url.scheme).authority(url.authority).path_and_query(path).build().ok()
    })?;
    let sample_micros = u32::try_from(sample.micros).unwrap_or(u32::MAX);
    Some(TracesConfig { endpoint, headers, sample_micros })
}
