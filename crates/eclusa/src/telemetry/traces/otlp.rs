//! Spans in the JSON encoding of OTLP/HTTP.

use serde_json::{Value, json};

use super::span::{Attribute, Ended};

/// The status code of a failed span.
const ERROR: u8 = 2;

/// The body of one request to `/v1/traces`.
pub(super) fn encode(spans: &[Ended], instance: &str) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let resource =
        [("service.name", "eclusa"), ("service.version", version), ("service.instance.id", instance)];
    let resource: Vec<Value> =
        resource.map(|(key, text)| json!({ "key": key, "value": { "stringValue": text } })).into();
    json!({ "resourceSpans": [{
        "resource": { "attributes": resource },
        "scopeSpans": [{
            "scope": { "name": "eclusa", "version": version },
            "spans": spans.iter().map(span).collect::<Vec<_>>(),
        }],
    }] })
}

fn span(span: &Ended) -> Value {
    let mut encoded = json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": span.from.to_string(),
        "endTimeUnixNano": span.to.to_string(),
        "attributes": span.attributes.iter().map(attribute).collect::<Vec<_>>(),
    });
    if let Some(parent) = span.parent {
        encoded["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(error) = &span.error {
        encoded["status"] = json!({ "code": ERROR, "message": error });
    }
    encoded
}

fn attribute((key, value): &(&'static str, Attribute)) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({ "stringValue": text }),
        // 64-bit numbers are strings in the JSON encoding of protobuf.
        Attribute::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": key, "value": value })
}

/// How many spans of an accepted request the collector rejected.
pub(super) fn refused(answer: &[u8]) -> u64 {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let count = &answer["partialSuccess"]["rejectedSpans"];
    count.as_u64().or_else(|| count.as_str()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::span::SpanKind;
    use super::*;

    #[test]
    fn a_span_is_written_as_the_json_of_otlp() {
        let ended = Ended {
            trace: 0xab,
            id: 0xcd,
            parent: Some(0xef),
            name: "attempt",
            kind: SpanKind::Client,
            from: 1_700_000_000_000_000_000,
            to: 1_700_000_000_000_000_500,
            attributes: vec![("eclusa.upstream", "up".into()), ("http.response.status_code", 503_u64.into())],
            error: Some("answered 503".into()),
        };
        let expected = json!({
            "traceId": "000000000000000000000000000000ab", "spanId": "00000000000000cd",
            "parentSpanId": "00000000000000ef", "name": "attempt", "kind": 3,
            "startTimeUnixNano": "1700000000000000000", "endTimeUnixNano": "1700000000000000500",
            "attributes": [
                { "key": "eclusa.upstream", "value": { "stringValue": "up" } },
                { "key": "http.response.status_code", "value": { "intValue": "503" } },
            ],
            "status": { "code": 2, "message": "answered 503" },
        });
        let body = encode(&[ended], "7");
        assert_eq!(body["resourceSpans"][0]["scopeSpans"][0]["spans"][0], expected);
        let service = &body["resourceSpans"][0]["resource"]["attributes"][0];
        assert_eq!(*service, json!({ "key": "service.name", "value": { "stringValue": "eclusa" } }));
    }

    #[test]
    fn refused_spans_are_counted_as_number_or_text() {
        assert_eq!(refused(br#"{"partialSuccess":{"rejectedSpans":"3"}}"#), 3);
        assert_eq!(refused(br#"{"partialSuccess":{"rejectedSpans":2}}"#), 2);
        assert_eq!((refused(b"{}"), refused(b"")), (0, 0));
    }
}
