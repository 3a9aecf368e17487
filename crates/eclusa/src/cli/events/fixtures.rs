//! Lanes and upstreams as the server sends them, for tests.

use serde_json::{Map, Value, json};

/// An idle lane.
pub(in crate::cli) fn lane(name: &str) -> Value {
    let zeros = |names: &[&str]| -> Map<String, Value> {
        names.iter().map(|name| ((*name).to_owned(), json!(0))).collect()
    };
    let rates = zeros(&["accepted", "started", "completed", "failed", "dropped", "answered", "seconds"]);
    let totals = zeros(&[
        "accepted",
        "started",
        "completed",
        "coalesced",
        "cacheHits",
        "fallbacks",
        "failed",
        "cancelled",
        "expired",
        "preempted",
        "refused",
        "deadLetters",
        "deadLettersTrimmed",
    ]);
    json!({
        "name": name, "paused": false, "queued": { "high": 0, "normal": 0, "low": 0 }, "pending": 0,
        "processing": 0, "waitingBytes": 0, "finished": 0, "deadLetters": 0, "rates": rates, "totals": totals,
        "answers": {}, "gates": [], "mode": "queue", "chain": ["fal"], "capacity": 100,
    })
}

/// An upstream with a closed breaker.
pub(in crate::cli) fn upstream(name: &str) -> Value {
    json!({
        "name": name, "inFlight": 0, "requestsLastMinute": 0, "errorsLastMinute": 0, "latencyMs": null, "breaker": "closed",
        "gates": [{ "reason": "circuit_open", "open": true, "until": null, "level": 0, "limit": 5 }],
    })
}
