//! Invalid requests, each with a problem that says what is wrong and where.

use eclusa::fake::{Answer, Latch};
use serde_json::{Value, json};

use super::{assert_problem, start, start_well};

#[tokio::test]
async fn an_unknown_lane_is_refused_with_the_known_ones() {
    let (program, _upstream) = start_well().await;
    for answer in [
        program.get("/proxy/wrk/a").await,
        program.get("/v1/lanes/wrk").await,
        program.post("/v1/lanes/wrk/jobs", &json!({ "request": {} })).await,
        program.post("/v1/lanes/wrk/pause", &Value::Null).await,
    ] {
        let problem = assert_problem(&answer, 404, "not-found");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("`wrk`") && detail.contains("other, work"), "{detail}");
    }
}

#[tokio::test]
async fn unknown_things_are_not_found() {
    let (program, _upstream) = start_well().await;
    for path in [
        "/v2/jobs",
        "/proxy/",
        "/v1/jobs/no-id",
        "/v1/jobs/01a1e1d0-c0a3-7980-9917-0dccdd45b6f3",
        "/v1/jobs/01a1e1d0-c0a3-7980-9917-0dccdd45b6f3/wait",
        "/v1/upstreams/down",
        "/v1/breakers/up",
        "/v1/dead-letters/01a1e1d0-c0a3-7980-9917-0dccdd45b6f3",
    ] {
        assert_problem(&program.get(path).await, 404, "not-found");
    }
}

#[tokio::test]
async fn another_method_is_not_allowed() {
    let (program, _upstream) = start_well().await;
    for (method, path) in [("PUT", "/v1/lanes"), ("DELETE", "/metrics"), ("GET", "/v1/lanes/work/jobs")] {
        let answer = program.send(method, path, &[], "").await;
        let problem = assert_problem(&answer, 405, "method-not-allowed");
        assert!(!answer.header("allow").is_empty(), "{method} {path}: {answer:?}");
        assert!(problem["detail"].as_str().unwrap().contains(method), "{problem}");
    }
}

/// `curl -d` calls every body a form.
#[tokio::test]
async fn a_body_is_read_as_json_whatever_it_is_called() {
    let (program, upstream) = start_well().await;
    for kind in ["application/x-www-form-urlencoded", "text/plain", "application/xml"] {
        let kind = [("content-type", kind)];
        assert_eq!(program.send("POST", "/v1/lanes/work/jobs", &kind, "{\"request\":{}}").await.status, 202);
        let answer = program.send("POST", "/v1/lanes/work/jobs", &kind, "a=b").await;
        let problem = assert_problem(&answer, 400, "bad-request");
        assert!(problem["detail"].as_str().unwrap().contains("JSON"), "{problem}");
    }
    upstream.wait_for(3).await;
}

#[tokio::test]
async fn headers_that_mean_something_must_be_right() {
    let (program, upstream) = start_well().await;
    for (name, value) in [
        ("eclusa-priority", "urgent"),
        ("eclusa-priority", "HIGH"),
        ("eclusa-ttl", "0"),
        ("eclusa-ttl", "0s"),
        ("eclusa-ttl", "-1s"),
        ("eclusa-ttl", "soon"),
        ("eclusa-tenant", ""),
        ("eclusa-type", &"x".repeat(257)),
    ] {
        let answer = program.send("GET", "/proxy/work/a", &[(name, value)], "").await;
        let problem = assert_problem(&answer, 422, "invalid");
        let field = problem["errors"][0]["field"].as_str().unwrap().to_lowercase();
        assert!(name.ends_with(&field), "{name}: {value}: {problem}");
    }
    for name in ["idempotency-key", "eclusa-tenant"] {
        let value = if name == "idempotency-key" { "\"\"" } else { "\u{e9}" };
        assert_problem(&program.send("GET", "/proxy/work/a", &[(name, value)], "").await, 400, "bad-request");
    }
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_job_as_json_must_be_right() {
    let (program, upstream) = start_well().await;
    let deep = format!("{{\"request\":{{\"body\":{}{}}}}}", "[".repeat(200), "]".repeat(200));
    for (body, status, word) in [
        ("", 400, "bad-request"),
        ("{", 400, "bad-request"),
        ("{\"request\":{}} more", 400, "bad-request"),
        ("\u{0}", 400, "bad-request"),
        (&deep, 400, "bad-request"),
        ("[]", 422, "invalid"),
        ("{}", 422, "invalid"),
        ("{\"request\":{},\"prioridade\":\"high\"}", 422, "invalid"),
        ("{\"request\":{\"url\":\"http://evil.example\"}}", 422, "invalid"),
        ("{\"request\":{},\"priority\":\"urgent\"}", 422, "invalid"),
        ("{\"request\":{},\"ttl\":0}", 422, "invalid"),
        ("{\"request\":{},\"ttl\":-1}", 422, "invalid"),
        ("{\"request\":{},\"ttl\":1000}", 422, "invalid"),
        ("{\"request\":{},\"ttl\":\"0s\"}", 422, "invalid"),
        ("{\"request\":{},\"delay\":[]}", 422, "invalid"),
        ("{\"request\":{},\"id\":\"\"}", 422, "invalid"),
        ("{\"request\":{},\"tenant\":\"a\\nb\"}", 422, "invalid"),
        ("{\"request\":{\"method\":\"G T\"}}", 422, "invalid"),
        ("{\"request\":{\"method\":\"CONNECT\"}}", 422, "invalid"),
        ("{\"request\":{\"headers\":{\"x\":\"a\\r\\nb: c\"}}}", 422, "invalid"),
        ("{\"request\":{\"headers\":{\"a b\":\"c\"}}}", 422, "invalid"),
        ("{\"request\":{\"query\":[1]}}", 422, "invalid"),
    ] {
        let answer = program.send("POST", "/v1/lanes/work/jobs", &[], body).await;
        let _ = assert_problem(&answer, status, word);
    }
    assert_eq!(program.get("/v1/lanes/work").await.json()["totals"]["accepted"], 0);
    assert!(upstream.requests().is_empty());
}

/// All errors are reported at once.
#[tokio::test]
async fn all_invalid_fields_are_reported_at_once() {
    let (program, _upstream) = start_well().await;
    let job = json!({ "priority": "urgent", "ttl": "soon", "request": { "path": "/../x", "method": "?" } });
    let problem = assert_problem(&program.post("/v1/lanes/work/jobs", &job).await, 422, "invalid");
    let fields: Vec<&str> =
        problem["errors"].as_array().unwrap().iter().map(|error| error["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["priority", "ttl", "request.path", "request.method"]);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nmax_body = \"1KiB\"";
    let (program, upstream) = start(Answer::status(200), server).await;
    let body = "x".repeat(1025);
    for path in ["/proxy/work/a", "/v1/lanes/work/jobs"] {
        assert_problem(&program.send("POST", path, &[], &body).await, 413, "too-large");
    }
    assert_eq!(program.send("POST", "/proxy/work/a", &[], &body[..1024]).await.status, 202);
    upstream.wait_for(1).await;
    assert_eq!(upstream.requests()[0].body.len(), 1024);
}

#[tokio::test]
async fn a_batch_answers_each_job_separately() {
    let (program, _upstream) = start_well().await;
    let jobs =
        json!([{ "request": {} }, { "request": {}, "priority": "urgent" }, { "request": {}, "id": "a" }]);
    let answer = program.post("/v1/lanes/work/jobs/batch", &jobs).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    assert_eq!(text.matches("jobId").count(), 2, "{text}");
    assert_eq!(text.matches("urn:eclusa:problem:invalid").count(), 1, "{text}");
    let many = Value::Array(vec![json!({ "request": {} }); 1001]);
    assert!((400..500).contains(&program.post("/v1/lanes/work/jobs/batch", &many).await.status));
}

#[tokio::test]
async fn a_batch_reports_the_position_of_each_job() {
    let (program, _upstream) = start_well().await;
    program.pause("work").await;
    let jobs = json!([
        { "request": {} }, { "request": {} }, { "request": {}, "ttl": "soon" },
        { "request": {}, "priority": "high" }, { "request": {}, "delay": "1h" }
    ]);
    let answers = program.post("/v1/lanes/work/jobs/batch", &jobs).await.json();
    let places: Vec<(&Value, &Value)> =
        answers.as_array().unwrap().iter().map(|one| (&one["status"], &one["position"])).collect();
    let (queued, pending) = (json!("queued"), json!("pending"));
    assert_eq!(places[..2], [(&queued, &json!(0)), (&queued, &json!(1))]);
    assert_eq!(places[2].0, 422);
    assert_eq!(places[3..], [(&queued, &json!(0)), (&pending, &json!(0))]);
    let alone = program.get(&format!("/v1/jobs/{}", answers[4]["jobId"].as_str().unwrap())).await.json();
    assert_eq!(answers[4]["expiresAt"], alone["expiresAt"]);
    program.resume("work").await;
}

/// The same key and payload is the same job, another payload is a conflict.
#[tokio::test]
async fn an_idempotency_key_belongs_to_one_payload() {
    let (program, upstream) = start_well().await;
    program.pause("work").await;
    let send = async |body: &str, key: &str| {
        program.send("POST", "/proxy/work/a", &[("idempotency-key", key)], body).await
    };
    let (first, again) = (send("one", "k1").await, send("one", "\"k1\"").await);
    assert_eq!((first.status, again.status), (202, 202));
    assert_eq!(first.json()["jobId"], again.json()["jobId"]);
    let other = send("two", "k1").await;
    let problem = assert_problem(&other, 422, "idempotency-conflict");
    assert!(
        !problem.to_string().contains(first.json()["jobId"].as_str().unwrap()),
        "it may be another's job"
    );
    let tenant = [("idempotency-key", "k1"), ("eclusa-tenant", "another")];
    let foreign = program.send("POST", "/proxy/work/a", &tenant, "one").await;
    assert_problem(&foreign, 422, "idempotency-conflict");
    assert_ne!(send("one", "k2").await.json()["jobId"], first.json()["jobId"]);

    let job = json!({ "id": "k3", "request": { "path": "/a" } });
    let id = program.enqueue("work", &job).await;
    assert_eq!(program.enqueue("work", &job).await, id);
    let other = json!({ "id": "k3", "request": { "path": "/b" } });
    assert_problem(&program.post("/v1/lanes/work/jobs", &other).await, 422, "idempotency-conflict");
    program.resume("work").await;
    program.ended(&id).await;
    // Even after it has ended.
    let answer = program.post("/v1/lanes/work/jobs", &job).await;
    assert_eq!((answer.status, &answer.json()["jobId"]), (200, &json!(id)));
    upstream.wait_for(3).await;
    assert_eq!(upstream.requests().len(), 3);
}

/// `Prefer: wait`: the upstream's answer, or 202 when the time is over.
#[tokio::test]
async fn a_waiting_caller_gets_the_upstreams_response_or_202() {
    let answer =
        Answer::status(404).header("x-own", "1").header("content-type", "text/plain").body("unknown");
    let (program, _upstream) = start(answer, "").await;
    let waited = program.send("GET", "/proxy/work/a", &[("prefer", "wait=60")], "").await;
    assert_eq!((waited.status, waited.text()), (404, "unknown"));
    assert_eq!((waited.header("x-own"), waited.header("content-type")), ("1", "text/plain"));
    assert_eq!((waited.header("eclusa-upstream"), waited.header("eclusa-attempts")), ("up", "1"));
    assert_eq!(waited.header("preference-applied"), "wait=60");

    let latch = Latch::default();
    let (program, upstream) = start(Answer::status(200).body("late").after(&latch), "").await;
    let waited = program.send("GET", "/proxy/work/a", &[("prefer", "wait=0")], "").await;
    assert_eq!(waited.status, 202);
    let id = waited.json()["jobId"].as_str().unwrap().to_owned();
    assert_eq!(waited.header("location"), format!("/v1/jobs/{id}"));
    upstream.wait_for(1).await;
    let looked = program.get(&format!("/v1/jobs/{id}/wait?timeout=0")).await;
    assert_eq!((looked.status, &looked.json()["status"]), (200, &json!("processing")));
    latch.open();
    assert_eq!(program.ended(&id).await["result"]["body"], "late");
    for timeout in ["-1", "soon", "NaN"] {
        let looked = program.get(&format!("/v1/jobs/{id}/wait?timeout={timeout}")).await;
        assert!((400..500).contains(&looked.status), "{timeout}");
    }
}

/// Errors in a query are reported per parameter, without the value.
#[tokio::test]
async fn an_invalid_query_is_refused_with_the_field_and_a_fix() {
    let (program, _upstream) = start_well().await;
    let job = program.enqueue("work", &json!({ "request": {} })).await;
    let wait = format!("/v1/jobs/{job}/wait?timeout=soon");
    let known = "is unknown; known are `lane`, `tenant`, `status`, `id`, `externalId`, `since`, `until`, \
                 `cursor`";
    for (path, field, problem) in [
        ("/v1/jobs?max=12", "max", known),
        ("/v1/jobs?cursor=abc", "cursor", "is not a cursor of a previous page"),
        ("/v1/jobs?lane=work&lane=work", "lane", "is given more than once"),
        ("/v1/lanes/work/tenants?cursor=-1", "cursor", "must be a whole number, zero or more"),
        ("/v1/dead-letters/stats?by=day", "by", "must be `code` (default), `tenant` or `lane`"),
        (&wait, "timeout", "must be a number"),
    ] {
        let reported = assert_problem(&program.get(path).await, 422, "invalid");
        assert_eq!(reported["errors"], json!([{ "field": field, "problem": problem }]), "{path}");
    }
    let both = assert_problem(&program.get("/v1/jobs?max=1&lane=a&lane=b").await, 422, "invalid");
    assert_eq!(both["detail"], format!("max: {known}; lane: is given more than once"));
}

#[tokio::test]
async fn problems_are_xml_if_the_client_accepts_xml() {
    let (program, _upstream) = start_well().await;
    let headers = [("accept", "application/xml"), ("eclusa-priority", "<&>")];
    let answer = program.send("GET", "/proxy/work/a", &headers, "").await;
    assert_eq!((answer.status, answer.header("content-type")), (422, "application/problem+xml"));
    let text = answer.text();
    assert!(text.contains("<problem xmlns=\"urn:ietf:rfc:7807\">"), "{text}");
    assert!(
        text.contains("<type>urn:eclusa:problem:invalid</type>") && text.contains("<status>422</status>"),
        "{text}"
    );
    let json = program.send("GET", "/v1/nothing", &[("accept", "application/json")], "").await;
    assert_problem(&json, 404, "not-found");
}
