//! The usage that an answer reports.
//!
//! JSON is read when it is complete, up to a bound. In an event stream the last event that has the value counts, so the
//! stream need not be kept. Nothing is read from a body that is compressed or too large: such a call costs what it
//! held.

use std::sync::Arc;

use eclusa_core::{Tokens, Usage};
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::Value;

/// The largest JSON answer, and the largest event, that is parsed, in bytes.
const MAX_READ: usize = 1 << 20;

/// A JSON number as tokens; fractions are rounded up to a millionth.
pub(crate) fn amount(value: &Value) -> Option<Tokens> {
    if let Some(whole) = value.as_i64() {
        return Some(Tokens::from_micro(whole.saturating_mul(Tokens::ONE.as_micro())));
    }
    let micro = (value.as_f64()? * 1e6).ceil();
    #[expect(clippy::cast_possible_truncation, reason = "it saturates")]
    micro.is_finite().then(|| Tokens::from_micro(micro as i64))
}

/// Reads the usage from the complete body of an answer.
pub(crate) fn read_usage(sources: Vec<Arc<str>>, headers: &HeaderMap, body: &[u8]) -> Usage {
    let mut meter = UsageMeter::new(sources, headers);
    meter.feed(body);
    meter.usage()
}

/// Reads the usage from a body as it streams through.
pub(crate) struct UsageMeter {
    found: Vec<(Arc<str>, Option<Tokens>)>,
    format: BodyFormat,
    /// For JSON, everything so far; for a stream, the current line.
    text: Vec<u8>,
    /// For a stream, the data of the current event.
    event: Vec<u8>,
    /// The event is larger than [`MAX_READ`].
    overlong: bool,
    /// A part of the line was left out because of that.
    cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BodyFormat {
    Json,
    Events,
    Unreadable,
}

impl UsageMeter {
    /// A meter for a body with these headers.
    pub(crate) fn new(sources: Vec<Arc<str>>, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let encoded = !matches!(text(&CONTENT_ENCODING), "" | "identity");
        let events = text(&CONTENT_TYPE).to_ascii_lowercase().starts_with("text/event-stream");
        let format = match (encoded || sources.is_empty(), events) {
            (true, _) => BodyFormat::Unreadable,
            (false, true) => BodyFormat::Events,
            (false, false) => BodyFormat::Json,
        };
        let found = sources.into_iter().map(|source| (source, None)).collect();
        Self { found, format, text: Vec::new(), event: Vec::new(), overlong: false, cut: false }
    }

    /// Reads the next part.
    pub(crate) fn feed(&mut self, part: &[u8]) {
        match self.format {
            BodyFormat::Unreadable => {}
            BodyFormat::Json if self.text.len() + part.len() > MAX_READ => {
                (self.format, self.text) = (BodyFormat::Unreadable, Vec::new());
            }
            BodyFormat::Json => self.text.extend_from_slice(part),
            BodyFormat::Events => self.feed_events(part),
        }
    }

    fn feed_events(&mut self, part: &[u8]) {
        let mut rest = part;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.extend_line(&rest[..end]);
            self.end_line();
            rest = &rest[end + 1..];
        }
        self.extend_line(rest);
    }

    fn extend_line(&mut self, part: &[u8]) {
        if self.text.len() + self.event.len() + part.len() > MAX_READ {
            self.overlong = true;
        }
        if self.overlong {
            self.cut |= !part.is_empty();
        } else {
            self.text.extend_from_slice(part);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.text);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if std::mem::take(&mut self.cut) {
            // The line was not empty, so it does not end the event.
        } else if line.is_empty() {
            self.end_event();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            self.event.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            self.event.push(b'\n');
        }
    }

    fn end_event(&mut self) {
        let event = std::mem::take(&mut self.event);
        if !std::mem::take(&mut self.overlong) {
            self.look_into(&event);
        }
    }

    fn look_into(&mut self, json: &[u8]) {
        let Ok(json) = serde_json::from_slice::<Value>(json) else { return };
        for (source, found) in &mut self.found {
            let pointer = source.strip_prefix("body:").unwrap_or_default();
            *found = json.pointer(pointer).and_then(amount).or(*found);
        }
    }

    /// The usage, after the last part.
    pub(crate) fn usage(&mut self) -> Usage {
        match self.format {
            BodyFormat::Json => {
                let text = std::mem::take(&mut self.text);
                self.look_into(&text);
            }
            // The last event may end with the stream.
            BodyFormat::Events => {
                self.end_line();
                self.end_event();
            }
            BodyFormat::Unreadable => {}
        }
        let found = self.found.iter().filter_map(|(source, found)| Some((source.clone(), (*found)?)));
        let found: Vec<_> = found.collect();
        if found.is_empty() { Usage::Unknown } else { Usage::BySource(found) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "body:/usage/total_tokens";

    fn usage(content_type: &'static str, parts: &[&[u8]]) -> Usage {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, http::HeaderValue::from_static(content_type))]);
        let mut meter = UsageMeter::new(vec![SOURCE.into()], &headers);
        parts.iter().for_each(|part| meter.feed(part));
        meter.usage()
    }

    fn found(tokens: u32) -> Usage {
        Usage::BySource(vec![(SOURCE.into(), Tokens::whole(tokens))])
    }

    #[test]
    fn json_is_read_whatever_its_parts() {
        let body = br#"{"usage":{"total_tokens":321}}"#;
        for cut in 0..body.len() {
            let (first, second) = body.split_at(cut);
            assert_eq!(usage("application/json", &[first, second]), found(321), "{cut}");
        }
        for body in [&b"{}"[..], b"", b"not json", br#"{"usage":{"total_tokens":"x"}}"#] {
            assert_eq!(usage("application/json", &[body]), Usage::Unknown);
        }
        assert_eq!(usage("application/json", &[body, &vec![b' '; MAX_READ]]), Usage::Unknown);
    }

    #[test]
    fn in_a_stream_the_last_event_with_the_value_counts() {
        let stream =
            b"data: {\"usage\":null}\n\nevent: x\r\ndata: {\"usage\":\r\ndata: {\"total_tokens\":5}}\r\n\r\n\
            : comment\ndata: {\"usage\":{\"total_tokens\":7}}\n\ndata: {\"delta\":1}\n\ndata: [DONE]\n\n";
        for cut in 0..stream.len() {
            let (first, second) = stream.split_at(cut);
            assert_eq!(usage("text/event-stream; charset=utf-8", &[first, second]), found(7), "{cut}");
        }
        let unended = b"data: {\"usage\":{\"total_tokens\":9}}";
        assert_eq!(usage("text/event-stream", &[unended]), found(9), "the stream ends the event");
    }

    #[test]
    fn an_oversized_event_is_skipped_and_the_next_is_read() {
        let long = vec![b'x'; MAX_READ + 1];
        let next = b"\n\ndata: {\"usage\":{\"total_tokens\":3}}\n\n";
        assert_eq!(usage("text/event-stream", &[b"data: ", &long, next]), found(3));
        let same = b"\ndata: {\"usage\":{\"total_tokens\":3}}\n\n";
        assert_eq!(
            usage("text/event-stream", &[b"data: ", &long, same]),
            Usage::Unknown,
            "it is still the same event"
        );
    }

    #[test]
    fn amounts_are_numbers_to_a_millionth() {
        let micro =
            |text| serde_json::from_str(text).ok().and_then(|value| amount(&value)).map(Tokens::as_micro);
        assert_eq!(micro("12"), Some(12_000_000));
        assert_eq!(micro("0.0000001"), Some(1));
        assert_eq!(micro("-3"), Some(-3_000_000));
        assert_eq!(micro("1e300"), Some(i64::MAX));
        assert_eq!(micro("9223372036854775807"), Some(i64::MAX));
        for none in ["\"1\"", "null", "[]"] {
            assert_eq!(micro(none), None);
        }
    }
}
