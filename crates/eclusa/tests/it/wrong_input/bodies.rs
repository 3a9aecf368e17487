//! Invalid JSON bodies: all errors are reported at once, with their location.

use serde_json::{Value, json};

use super::{Program, assert_problem, start, start_well};
use eclusa::fake::Answer;

const NO_UNIT: &str =
    "has no unit: write a whole number and a unit: \"500ms\", \"10s\", \"5m\", \"24h\", \"7d\"";

/// The pointers and problems of an answer to an invalid body.
async fn wrong(program: &Program, path: &str, body: &Value) -> Vec<(String, String)> {
    let answer = program.post(path, body).await;
    let problem = assert_problem(&answer, 422, "invalid");
    let errors = problem["errors"].as_array().unwrap_or_else(|| panic!("{problem}"));
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{problem}")).to_owned();
    errors.iter().map(|error| (text(&error["pointer"]), text(&error["problem"]))).collect()
}

fn problems(wrong: &[(&str, &str)]) -> Vec<(String, String)> {
    wrong.iter().map(|(pointer, problem)| ((*pointer).to_owned(), (*problem).to_owned())).collect()
}

#[tokio::test]
async fn everything_that_is_wrong_with_a_job_is_reported_at_once() {
    let (program, upstream) = start_well().await;
    let job = json!({
        "id": 7, "prioriti": "high", "priority": "urgent", "ttl": 5, "tenant": ["acme"],
        "request": { "path": 3, "verb": "GET", "headers": { "x-id": 1 }, "method": "?" },
    });
    let expected = problems(&[
        ("/id", "must be text"),
        ("/prioriti", "is unknown; did you mean `priority`?"),
        ("/request/headers/x-id", "must be text"),
        ("/request/path", "must be text"),
        ("/request/verb", "is unknown; known are `body`, `headers`, `method`, `path`, `query`"),
        ("/tenant", "must be text"),
        ("/ttl", NO_UNIT),
        ("/priority", "must be one of high, normal, low"),
        ("/request/method", "is not a method that can be passed on"),
    ]);
    assert_eq!(wrong(&program, "/v1/lanes/work/jobs", &job).await, expected);
    let batch = program.post("/v1/lanes/work/jobs/batch", &json!([job, { "request": {} }])).await.json();
    let pointers: Vec<&Value> =
        batch[0]["errors"].as_array().unwrap().iter().map(|error| &error["pointer"]).collect();
    assert_eq!(pointers, expected.iter().map(|(pointer, _)| pointer).collect::<Vec<_>>());
    assert!(batch[1]["jobId"].is_string(), "{batch}");
    upstream.wait_for(1).await;
}

/// A job that can be read has everything checked, too: names that are too long, where it calls back, what its lane validates.
#[tokio::test]
async fn everything_that_is_wrong_with_a_job_that_can_be_read_is_reported_at_once() {
    let (program, upstream) = start_well().await;
    let long = "x".repeat(257);
    let mut job = json!({ "id": long, "tenant": long, "type": long, "ttl": "0s", "request": {}, "callbackUrl": "nowhere" });
    let pointers = async |job: &Value| -> Vec<String> {
        let mut pointers: Vec<String> = wrong(&program, "/v1/lanes/work/jobs", job)
            .await
            .into_iter()
            .map(|(pointer, _)| pointer)
            .collect();
        pointers.sort();
        pointers
    };
    assert_eq!(pointers(&job).await, ["/callbackUrl", "/id", "/tenant", "/ttl", "/type"]);
    job["prioriti"] = json!("high");
    assert_eq!(pointers(&job).await, ["/callbackUrl", "/id", "/prioriti", "/tenant", "/ttl", "/type"]);
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn missing_and_invalid_fields_are_reported_at_once() {
    let (program, _upstream) = start_well().await;
    let missing = "is missing: upstream `up` has no template that builds it from `params`";
    let expected = problems(&[("/priority", "must be one of high, normal, low"), ("/request", missing)]);
    assert_eq!(wrong(&program, "/v1/lanes/work/jobs", &json!({ "priority": "urgent" })).await, expected);
    // An invalid field is not also reported as missing.
    let not_one = problems(&[("/request", "must be an object")]);
    assert_eq!(wrong(&program, "/v1/lanes/work/jobs", &json!({ "request": "GET /" })).await, not_one);
}

/// A list of values in field order is not accepted as an object.
#[tokio::test]
async fn an_array_is_no_object() {
    let more = "[server]\nlisten = \"127.0.0.1:0\"";
    let (program, upstream) = start(Answer::status(200), more).await;
    let body = problems(&[("", "must be an object")]);
    let nothing = Value::Null;
    let job = json!(["id-1", "acme", "high", nothing, nothing, nothing, { "path": "/a" }]);
    for path in ["/v1/lanes/work/jobs", "/v1/limits/up/acquire", "/v1/dead-letters/replay"] {
        assert_eq!(wrong(&program, path, &job).await, body, "{path}");
    }
    // And an object is no array.
    for batch in [json!({ "request": {} }), json!("jobs"), Value::Null] {
        let found = wrong(&program, "/v1/lanes/work/jobs/batch", &batch).await;
        assert_eq!(found, problems(&[("", "must be an array")]), "{batch}");
    }
    let inside = problems(&[("/request", "must be an object")]);
    let job = json!({ "request": ["GET", "/a", "", {}] });
    assert_eq!(wrong(&program, "/v1/lanes/work/jobs", &job).await, inside);
    assert_eq!(wrong(&program, "/v1/limits/up/acquire", &job).await, inside);
    let filter = problems(&[("/filter", "must be an object")]);
    assert_eq!(wrong(&program, "/v1/dead-letters/replay", &json!({ "filter": ["work"] })).await, filter);
    assert_eq!(program.get("/v1/lanes/work").await.json()["totals"]["accepted"], 0);
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn other_bodies_are_reported_the_same_way() {
    let (program, _upstream) = start_well().await;
    let missing = problems(&[("/event", "is missing"), ("/correlationId", "is missing")]);
    assert_eq!(wrong(&program, "/v1/policies/credits", &json!({})).await, missing);
    let several = json!({ "credits": [{ "event": "payment" }, 7], "more": true });
    let expected = problems(&[
        ("/credits/0/correlationId", "is missing"),
        ("/credits/1", "must be an object"),
        ("/more", "is unknown; known are `credits`"),
    ]);
    assert_eq!(wrong(&program, "/v1/policies/credits", &several).await, expected);
    let lease = program.post("/v1/limits/up/acquire", &json!({})).await.json()["leaseId"].clone();
    let path = format!("/v1/limits/leases/{}/settle", lease.as_str().unwrap());
    let pointers = async |body: Value| -> Vec<String> {
        wrong(&program, &path, &body).await.into_iter().map(|(pointer, _)| pointer).collect()
    };
    assert_eq!(pointers(json!({ "usage": 1 })).await, ["/status"]);
    assert_eq!(pointers(json!({ "status": 99, "usage": "much" })).await, ["/status", "/usage"]);
    assert_eq!(pointers(json!({ "retryAfter": 5, "cost": 1 })).await, ["/cost", "/retryAfter", "/status"]);
}

/// Numbers without a unit mean seconds to some and milliseconds to others.
#[tokio::test]
async fn a_duration_needs_its_unit() {
    let (program, upstream) = start_well().await;
    let problem = NO_UNIT.to_owned();
    for field in ["ttl", "delay"] {
        for value in [json!(2000), json!("2000"), json!(0), json!(1.5)] {
            let job = json!({ "request": {}, field: value });
            let found = wrong(&program, "/v1/lanes/work/jobs", &job).await;
            assert_eq!(found, [(format!("/{field}"), problem.clone())], "{job}");
        }
    }
    for value in [json!(5000), json!("5000")] {
        let found = wrong(&program, "/v1/limits/up/acquire", &json!({ "wait": value })).await;
        assert_eq!(found, [("/wait".to_owned(), problem.clone())]);
    }
    // The same text if something else is wrong too.
    let found = wrong(&program, "/v1/limits/up/acquire", &json!({ "wait": 5, "scope": 7 })).await;
    assert_eq!(found, problems(&[("/scope", "must be text"), ("/wait", NO_UNIT)]));
    let found = wrong(&program, "/v1/lanes/work/jobs", &json!({ "request": {}, "ttl": true, "id": 7 })).await;
    let not_one = NO_UNIT.replacen("has no unit", "is not a duration", 1);
    assert_eq!(found, problems(&[("/id", "must be text"), ("/ttl", &not_one)]));
    let header = program.send("GET", "/proxy/work/a", &[("eclusa-ttl", "2000")], "").await;
    let problem_of_header = assert_problem(&header, 422, "invalid");
    assert_eq!(problem_of_header["errors"], json!([{ "field": "Eclusa-Ttl", "problem": problem }]));
    for query in ["/v1/jobs?since=10", "/v1/dead-letters?until=10", "/v1/jobs?until=10"] {
        assert_problem(&program.get(query).await, 422, "invalid");
    }
    assert!(upstream.requests().is_empty());
}
