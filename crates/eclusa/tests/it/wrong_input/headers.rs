//! Headers for Eclusa: applied or refused, never ignored.

use eclusa::fake::{Answer, Latch};
use serde_json::{Value, json};

use super::{assert_problem, start, start_well};

const JOBS: &str = "/v1/lanes/other/jobs";

#[tokio::test]
async fn headers_describe_a_job_in_json_as_they_do_a_request() {
    let (program, _upstream) = start_well().await;
    program.pause("other").await;
    let headers = [
        ("eclusa-tenant", "acme"),
        ("eclusa-priority", "low"),
        ("eclusa-type", "update"),
        ("eclusa-ttl", "90s"),
        ("idempotency-key", "order-1"),
    ];
    let answer = program.send("POST", JOBS, &headers, "{\"request\":{}}").await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    let job = program.get("/v1/jobs/order-1").await.json();
    let said = ["tenant", "priority", "type"].map(|field| job[field].clone());
    assert_eq!(said, [json!("acme"), json!("low"), json!("update")]);
    let lasts = super::program::millis(&job["expiresAt"]) - super::program::millis(&job["createdAt"]);
    assert_eq!(lasts, 90_000);
    // The same value twice is not a contradiction.
    let same = json!({ "id": "order-1", "tenant": "acme", "priority": "low", "type": "update", "ttl": "90000ms",
                       "request": {} });
    let again = program.send("POST", JOBS, &headers, &same.to_string()).await;
    assert_eq!((again.status, &again.json()["jobId"]), (202, &job["jobId"]), "{}", again.text());
}

#[tokio::test]
async fn a_header_that_contradicts_the_body_is_refused() {
    let (program, upstream) = start_well().await;
    for (header, value, field, said) in [
        ("Eclusa-Tenant", "acme", "tenant", "bolt"),
        ("Eclusa-Priority", "high", "priority", "low"),
        ("Eclusa-Type", "a", "type", "b"),
        ("Eclusa-Ttl", "10s", "ttl", "11s"),
        ("Idempotency-Key", "a", "id", "b"),
    ] {
        let body = json!({ "request": {}, field: said }).to_string();
        let answer = program.send("POST", JOBS, &[(header, value)], &body).await;
        let problem = assert_problem(&answer, 422, "invalid");
        let differs = format!("differs from {header}: send one of them");
        let expected = json!([{ "field": field, "pointer": format!("/{field}"), "problem": differs }]);
        assert_eq!(problem["errors"], expected);
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn an_unknown_eclusa_header_is_refused_with_a_suggestion() {
    let direct = "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]";
    let (program, upstream) = start(Answer::status(200), direct).await;
    let body = "{\"request\":{}}";
    for (method, path) in [("POST", JOBS), ("GET", "/proxy/work/a"), ("GET", "/proxy/fast/a")] {
        let answer = program.send(method, path, &[("Eclusa-Tennant", "acme")], body).await;
        let problem = assert_problem(&answer, 422, "invalid");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("did you mean `eclusa-tenant`?"), "{method} {path}: {detail}");
    }
    let twice = [("eclusa-tenant", "acme"), ("eclusa-tenant", "bolt")];
    assert_problem(&program.send("POST", JOBS, &twice, body).await, 400, "bad-request");
    let batch = format!("[{body}]");
    let answer = program.send("POST", "/v1/lanes/other/jobs/batch", &[("eclusa-tenant", "a")], &batch).await;
    let problem = assert_problem(&answer, 422, "invalid");
    assert!(problem["detail"].as_str().unwrap().contains("set it in each job"), "{problem}");
    let key = [("idempotency-key", "k")];
    let answer = program.send("POST", "/v1/lanes/other/jobs/batch", &key, &batch).await;
    let problem = assert_problem(&answer, 422, "invalid");
    assert!(problem["detail"].as_str().unwrap().contains("give each job an `id`"), "{problem}");
    assert!(upstream.requests().is_empty());
}

/// Every call refuses `Eclusa-*` headers that the OpenAPI document does not list for it, known or not.
#[tokio::test]
async fn no_call_ignores_an_eclusa_header() {
    let (program, upstream) = start(Answer::status(200), "").await;
    let document = program.get("/openapi.json").await.json();
    let mut calls = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let named = path.replace("{lane}", "work").replace("{name}", "up").replace("{upstream}", "up");
        let target = named.replace(['{', '}'], "");
        // A response to HEAD has no body to look at.
        for (method, call) in methods.as_object().unwrap().iter().filter(|(method, _)| *method != "head") {
            let parameters = call["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
            for (header, value) in [
                ("Eclusa-Foo", "1"),
                ("Eclusa-Job-Id", "1"),
                ("Eclusa-Tenant", "acme"),
                ("Eclusa-Priority", "high"),
                ("Eclusa-Type", "a"),
                ("Eclusa-Ttl", "10s"),
            ] {
                if parameters.iter().any(|one| one["name"] == header) {
                    continue;
                }
                let body = "{\"request\":{}}";
                let answer = program.send(&method.to_uppercase(), &target, &[(header, value)], body).await;
                let problem = assert_problem(&answer, 422, "invalid");
                let field = format!("Header {}", header.to_lowercase());
                assert_eq!(problem["errors"][0]["field"], field, "{method} {path}: {problem}");
                let helps = problem["detail"].as_str().unwrap().contains("did you mean");
                assert!(!helps, "{method} {path}: {problem}");
                calls += 1;
            }
        }
    }
    assert!(calls > 200, "{calls}");
    let answer = program.send("POST", "/v1/limits/up/acquire", &[("eclusa-tenant", "acme")], "").await;
    let problem = assert_problem(&answer, 422, "invalid");
    assert!(problem["detail"].as_str().unwrap().contains("`scope`"), "{problem}");
    let lane = program.get("/v1/lanes/work").await.json();
    assert_eq!((&lane["totals"]["accepted"], &lane["paused"]), (&0.into(), &false.into()));
    assert!(upstream.requests().is_empty());
}

/// RFC 7240: a preference that cannot be followed is ignored.
#[tokio::test]
async fn a_wait_that_is_no_number_of_seconds_is_ignored_and_not_confirmed() {
    let latch = Latch::default();
    let (program, _upstream) = start(Answer::status(200).after(&latch), "").await;
    for value in ["wait=1.5", "wait=soon", "wait=-1", "return=minimal; wait=60"] {
        for (method, path, body) in [("GET", "/proxy/work/a", ""), ("POST", JOBS, "{\"request\":{}}")] {
            let answer = program.send(method, path, &[("prefer", value)], body).await;
            let applied = answer.header("preference-applied");
            assert_eq!((answer.status, applied), (202, ""), "{value} {path}: {}", answer.text());
        }
    }
    latch.open();
}

/// A wait that times out returns the current job, not the job at intake.
#[tokio::test]
async fn a_wait_that_times_out_shows_the_current_job() {
    let latch = Latch::default();
    let (program, _upstream) = start(Answer::status(200).after(&latch), "").await;
    program.pause("other").await;
    let prefer = [("prefer", "wait=1")];
    let (proxied, enqueued, waiting) = tokio::join!(
        program.send("GET", "/proxy/work/a", &prefer, ""),
        program.send("POST", "/v1/lanes/work/jobs", &prefer, "{\"request\":{}}"),
        program.send("GET", "/proxy/other/a", &prefer, ""),
    );
    for answer in [&proxied, &enqueued] {
        assert_eq!((answer.status, answer.header("preference-applied")), (202, "wait=1"));
        let reported = answer.json();
        assert_eq!(
            (&reported["status"], &reported["position"]),
            (&json!("processing"), &Value::Null),
            "{reported}"
        );
    }
    let reported = waiting.json();
    assert_eq!((&reported["status"], &reported["position"]), (&json!("queued"), &json!(0)), "{reported}");
    latch.open();
}

#[tokio::test]
async fn a_direct_lane_bounds_names_as_a_queue_does() {
    let (program, upstream) =
        start(Answer::status(200), "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]").await;
    let long = "x".repeat(257);
    for (header, value) in [("eclusa-tenant", ""), ("eclusa-tenant", &long), ("idempotency-key", &long)] {
        for path in ["/proxy/fast/a", "/proxy/work/a"] {
            let answer = program.send("GET", path, &[(header, value)], "").await;
            assert_problem(&answer, 422, "invalid");
        }
    }
    let named = [("eclusa-tenant", &long[1..]), ("idempotency-key", &long[1..])];
    assert_eq!(program.send("GET", "/proxy/fast/a", &named, "").await.status, 200);
    assert_eq!(upstream.requests().len(), 1);
}

/// Nothing waits in a direct lane: what only a waiting job can have is refused there, not ignored.
#[tokio::test]
async fn a_direct_lane_refuses_headers_about_waiting() {
    let (program, upstream) =
        start(Answer::status(200), "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]").await;
    let given = [("eclusa-priority", "high"), ("eclusa-type", "update"), ("eclusa-ttl", "10s")];
    for (name, value) in given {
        let answer = program.send("GET", "/proxy/fast/a", &[(name, value)], "").await;
        let problem = assert_problem(&answer, 422, "invalid");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(name) && detail.contains("remove it"), "{detail}");
    }
    let answer = program.send("GET", "/proxy/fast/a", &given, "").await;
    assert_eq!(answer.json()["errors"].as_array().unwrap().len(), 3, "all at once");
    assert!(upstream.requests().is_empty());
    assert_eq!(program.send("GET", "/proxy/fast/a", &[("eclusa-tenant", "acme")], "").await.status, 200);
}
