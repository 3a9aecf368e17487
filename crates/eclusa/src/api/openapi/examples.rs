//! An example for every JSON response, all about the same lane `render`, its upstream `fal` and the tenant `acme`.

use eclusa_core::TREND_HOURS;
use serde_json::{Map, Value, json};

/// Adds an example to each schema of a response that has none, and to each response that is a list.
pub(super) fn add(document: &mut Value) {
    let Some(schemas) = document["components"]["schemas"].as_object_mut() else { return };
    for (name, example) in all(schemas) {
        if let Some(schema) = schemas.get_mut(name) {
            schema["example"] = example;
        }
    }
    let schemas = schemas.clone();
    for call in document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut) {
        for operation in call.as_object_mut().into_iter().flat_map(Map::values_mut) {
            let responses = operation["responses"].as_object_mut().into_iter().flat_map(Map::values_mut);
            responses.filter_map(|one| one.pointer_mut("/content/application~1json")).for_each(|content| {
                if let Some(item) = content["schema"]["items"]["$ref"].as_str() {
                    let name = item.rsplit('/').next().unwrap_or_default();
                    content["example"] = json!([schemas.get(name).map(|schema| &schema["example"])]);
                }
            });
        }
    }
}

/// Examples by the name of their schema.
fn all(schemas: &Map<String, Value>) -> Vec<(&'static str, Value)> {
    let declared = |name: &str| schemas.get(name).map(|schema| schema["example"].clone()).unwrap_or_default();
    let (job, accepted, letter) = (declared("Job"), declared("Accepted"), declared("DeadLetter"));
    let alert = json!({
        "name": "dead_letters", "severity": "warning", "lane": "render", "value": 12.0, "threshold": 10.0,
        "since": "2026-11-16T01:48:00.000Z", "text": "Lane `render` has 12 dead letters; the limit is 10.",
    });
    let replay = json!({
        "replayId": "01a1e20d-11c2-7b1e-8a3c-5a1f0f6d2b77", "status": "running", "total": 12, "replayed": 7,
        "failed": 1, "running": 2, "remaining": 2, "filter": { "lane": "render", "code": "503" },
        "startedAt": "2026-11-16T01:50:40.000Z", "endedAt": null,
    });
    let bucket = json!({
        "name": "IMAGES", "upstream": "fal", "availableTokens": 80, "capacity": 100, "refillTokens": 2,
        "refillPeriodSec": 60, "scope": "18d4956485ad7666b6a267f418061e86", "spentLastMinute": 20.0,
        "creditedLastMinute": 2.0, "emptyInSec": 300,
    });
    let cached = json!({
        "status": "completed", "lane": "render", "reason": "cache", "result": job["result"],
    });
    let credited = json!({ "credited": 1.0, "repeated": false });
    let gate = json!({
        "reason": "rate_limit", "open": false, "until": "2026-11-16T01:50:36.120Z", "level": 0, "limit": 10,
    });
    vec![
        ("AlertList", json!({ "alerts": [alert], "recent": [] })),
        ("Alert", alert),
        ("BatchAnswer", accepted),
        (
            "Breaker",
            json!({ "name": "fal", "failures": 1, "degraded": false, "degradedUntil": null, "state": "closed" }),
        ),
        ("BulkList", json!({ "replays": [replay] })),
        ("BulkReplay", replay),
        ("CachedAnswer", cached),
        ("CancelledJobs", json!({ "matched": 3, "cancelled": 3, "dryRun": false })),
        ("Counted", json!({ "matched": 12, "dryRun": true })),
        ("DeadLetterList", json!({ "deadLetters": [letter] })),
        ("EndedAtOnce", job.clone()),
        ("Health", health()),
        ("History", history()),
        ("JobList", json!({ "jobs": [job] })),
        ("Lane", lane(&gate)),
        ("LeaseExtended", json!({ "extended": true })),
        ("LeaseSettled", json!({ "settled": true })),
        ("OneOrPage", bucket.clone()),
        ("OneOrSeveral", credited),
        ("PolicyList", json!({ "policies": [bucket] })),
        ("PurgedLetters", json!({ "matched": 12, "purged": 12, "dryRun": false })),
        (
            "Session",
            json!({ "required": true, "name": "ops", "role": "operator", "maxPriority": "high",
                "expiresAt": "2026-11-16T13:50:33.311Z" }),
        ),
        ("Stats", json!({ "total": 12, "counts": { "503": 9, "timeout": 3 }, "other": 0, "trend": trend() })),
        ("TenantList", tenants()),
        (
            "Upstream",
            json!({ "name": "fal", "inFlight": 2, "requestsLastMinute": 58, "gates": [gate],
                "breaker": "closed", "errorsLastMinute": 1, "latencyMs": { "p50": 850, "p95": 2100 },
                "lastFailure": { "code": "503", "at": "2026-11-16T01:50:12.000Z" } }),
        ),
        ("UpstreamCodes", codes()),
        (
            "WebhookReceipt",
            json!({ "jobId": "01a1e20c-835f-7f54-a1de-93085b88f45f", "changed": true, "status": "completed" }),
        ),
    ]
}

/// Letters of the last two hours.
fn trend() -> Value {
    let hours = |ends: [u64; 2]| [vec![0; TREND_HOURS - 2], ends.to_vec()].concat();
    let counts = json!({ "503": hours([2, 7]), "timeout": hours([3, 0]) });
    json!({ "until": "2026-11-16T01:50:33.311Z", "stepSec": 3600, "counts": counts })
}

fn lane(gate: &Value) -> Value {
    json!({
        "name": "render", "mode": "queue", "chain": ["fal"], "paused": false,
        "queued": { "high": 1, "normal": 3, "low": 0 }, "pending": 1, "processing": 2, "waitingBytes": 5120,
        "finished": 930, "deadLetters": 12, "capacity": 1_000_000, "ttlSec": 3600.0, "willExpire": 0,
        "rates": { "accepted": 1.1, "started": 1.0, "completed": 0.9, "failed": 0.0, "dropped": 0.0,
            "answered": 0.0, "seconds": 60.0 },
        "totals": { "accepted": 950, "started": 990, "completed": 925, "coalesced": 4, "cacheHits": 0,
            "fallbacks": 0, "failed": 13, "cancelled": 1, "expired": 0, "preempted": 0, "refused": 0,
            "deadLetters": 13, "deadLettersTrimmed": 1 },
        "answers": {}, "gates": [], "oldestWaitingAt": "2026-11-16T01:50:33.311Z",
        "held": { "reason": gate["reason"], "upstream": "fal", "until": gate["until"] },
        "lastStart": "2026-11-16T01:50:39.120Z", "quotes": { "count": 410, "p50Sec": 0.2, "p95Sec": 1.4 },
    })
}

fn health() -> Value {
    let instance = "33db8856918c7753";
    json!({
        "status": "ok",
        "store": { "kind": "embedded", "status": "ok", "losses": 0, "ack": "fsync", "journalBytes": 48213,
            "url": "embedded:./data" },
        "owner": { "id": instance, "epoch": 1, "since": "2026-11-16T00:00:00.000Z" },
        "instances": [{ "id": instance, "role": "all", "differs": 0, "differing": [], "leaving": false,
            "self": true, "owner": true }],
        "circuitBreakers": { "fal": { "failures": 1, "degraded": false, "degradedUntil": null } },
        "rateLimiters": { "fal": { "tokensAvailable": 0.0, "requestsLastMinute": 58 } },
        "version": "0.1.0", "startedAt": "2026-11-16T00:00:00.000Z", "faults": [],
    })
}

fn history() -> Value {
    json!({ "stepSec": 60, "points": [{ "at": "2026-11-16T01:50:00.000Z", "accepted": 66, "started": 60,
        "completed": 58, "failed": 0, "dropped": 0, "waiting": 4, "processing": 2,
        "waitMs": { "p50": 200, "p95": 2800 }, "partial": true }] })
}

fn tenants() -> Value {
    json!({ "tenants": [{ "companyId": "acme", "roundsWithoutProcessing": 0, "currentPriority": 5,
        "totalProcessed": 940, "consecutiveBatchCount": 1, "queued": 4, "processing": 2, "weight": 1, "next": true,
        "lastProcessedAt": "2026-11-16T01:50:33.514Z" }] })
}

fn codes() -> Value {
    json!({ "upstream": "fal", "codes": [{ "code": "409", "class": "permanent", "classifiedBy": "default",
        "seen": 40, "retried": 22, "cured": 21, "failedAgain": 1, "notRetried": 18, "cureShare": 0.95,
        "proposed": "retryable" }],
        "retryable": ["409"], "permanent": [], "toml": "retryable = [\"409\"]\n" })
}
