//! Trace context, and spans as received by a collector.

use std::collections::{BTreeMap, BTreeSet};

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::{Value, json};

use super::program::{PATIENCE, Program, end};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

async fn start(upstream: &FakeUpstream, more: &str) -> Program {
    let config = format!(
        "[lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]\n[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 2, base = \"1ms\" }}\n\
         [upstreams.up]\nurl = \"{}\"\n{more}",
        upstream.url()
    );
    Program::start(&config, &[]).await
}

fn traces(collector: &FakeUpstream) -> String {
    format!("[traces]\notlp = \"{}\"\nheaders = {{ X-Team = \"pay\" }}\n", collector.url())
}

/// The trace and the span of the last request.
fn passed_on(upstream: &FakeUpstream) -> Option<[String; 3]> {
    let requests = upstream.requests();
    let header = requests.last().unwrap().headers.get("traceparent")?.to_str().unwrap().to_owned();
    let parts: Vec<&str> = header.split('-').collect();
    assert_eq!((parts.len(), parts[0]), (4, "00"), "{header}");
    Some([parts[1], parts[2], parts[3]].map(ToOwned::to_owned))
}

/// All received spans by name, once there are at least `count`.
async fn spans(collector: &FakeUpstream, count: usize) -> BTreeMap<String, Vec<Value>> {
    let mut batches = 0;
    loop {
        let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let requests = collector.requests();
        for request in &requests {
            assert_eq!(
                (request.path.as_str(), &request.headers["x-team"]),
                ("/v1/traces", &"pay".parse().unwrap())
            );
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            for span in body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap() {
                found.entry(span["name"].as_str().unwrap().to_owned()).or_default().push(span.clone());
            }
        }
        if found.values().map(Vec::len).sum::<usize>() >= count {
            return found;
        }
        batches = (requests.len() as u64).max(batches) + 1;
        let came = tokio::time::timeout(PATIENCE, collector.wait_for(batches)).await;
        assert!(came.is_ok(), "only {found:#?}");
    }
}

fn attribute(span: &Value, key: &str) -> Value {
    let attributes = span["attributes"].as_array().unwrap();
    attributes.iter().find(|one| one["key"] == key).map_or(Value::Null, |one| one["value"].clone())
}

#[tokio::test]
async fn the_context_of_a_caller_is_passed_on_with_a_new_span() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, "").await;
    let context = [("traceparent", SENT), ("tracestate", "vendor=1"), ("prefer", "wait=60")];
    let mut seen = BTreeSet::from(["00f067aa0ba902b7".to_owned()]);
    for path in ["/proxy/fast/a", "/proxy/work/a"] {
        assert_eq!(program.send("GET", path, &context, "").await.status, 200);
        let [trace, span, flags] = passed_on(&upstream).unwrap();
        assert_eq!((trace.as_str(), flags.as_str()), (TRACE, "01"), "{path}");
        assert!(seen.insert(span), "{path}: a new span");
        assert_eq!(upstream.requests().last().unwrap().headers["tracestate"], "vendor=1");
    }
    // Stored with the job, across restarts.
    program.pause("work").await;
    let job = r#"{"request":{"path":"/b"}}"#;
    assert_eq!(program.send("POST", "/v1/lanes/work/jobs", &context[..2], job).await.status, 202);
    let (_, dir) = program.stop().await;
    let config = std::fs::read_to_string(dir.path().join("eclusa.toml")).unwrap();
    let program = Program::start_in(dir, &config, &[]).await;
    program.resume("work").await;
    upstream.wait_for(3).await;
    let [trace, span, _] = passed_on(&upstream).unwrap();
    assert_eq!(trace, TRACE);
    assert!(seen.insert(span));
    assert_eq!(upstream.requests().last().unwrap().headers["tracestate"], "vendor=1");
    program.get("/proxy/fast/a").await;
    assert_eq!(passed_on(&upstream), None, "nobody traces this");
}

#[tokio::test]
async fn a_job_leaves_spans_from_intake_to_settle() {
    let upstream = FakeUpstream::start(Behaviour::script([Answer::status(503)]).then(Answer::status(200)));
    let (upstream, collector) =
        (upstream.await.unwrap(), FakeUpstream::start(Answer::status(200)).await.unwrap());
    let program = start(&upstream, &traces(&collector)).await;
    let batch = r#"[{"request":{"path":"/a"}}]"#;
    let answer = program.send("POST", "/v1/lanes/work/jobs/batch", &[("traceparent", SENT)], batch).await;
    let job = answer.json()[0]["jobId"].as_str().unwrap().to_owned();
    assert_eq!(program.ended(&job).await["status"], "completed");
    let spans = spans(&collector, 8).await;
    let counts: Vec<(&str, usize)> = spans.iter().map(|(name, spans)| (name.as_str(), spans.len())).collect();
    assert_eq!(counts, [("attempt", 2), ("gates", 2), ("intake", 1), ("settle", 2), ("wait", 1)]);
    let intake = &spans["intake"][0];
    assert_eq!((&intake["parentSpanId"], &intake["kind"]), (&json!("00f067aa0ba902b7"), &json!(2)));
    for span in spans.values().flatten() {
        assert_eq!(span["traceId"], TRACE);
        let nanos = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        assert!(nanos("startTimeUnixNano") <= nanos("endTimeUnixNano"), "{span}");
        if span["name"] != "intake" {
            assert_eq!(span["parentSpanId"], intake["spanId"], "{span}");
            assert_eq!(attribute(span, "eclusa.job.id")["stringValue"], job);
        }
    }
    let called: Vec<String> = upstream
        .requests()
        .iter()
        .map(|seen| seen.headers["traceparent"].to_str().unwrap().to_owned())
        .collect();
    for (attempt, (status, error)) in spans["attempt"].iter().zip([("503", json!(2)), ("200", Value::Null)]) {
        assert_eq!(attribute(attempt, "http.response.status_code")["intValue"], status);
        assert_eq!(attempt["status"]["code"], error);
        let named = format!("00-{TRACE}-{}-01", attempt["spanId"].as_str().unwrap());
        assert!(called.contains(&named), "{named} in {called:?}");
    }
}

#[tokio::test]
async fn a_direct_call_and_a_job_without_a_context_begin_traces() {
    let (upstream, collector) = (Answer::status(200), Answer::status(200));
    let upstream = FakeUpstream::start(upstream).await.unwrap();
    let collector = FakeUpstream::start(collector).await.unwrap();
    let program = start(&upstream, &traces(&collector)).await;
    // A trace that the caller does not record is not recorded here.
    let unsampled = SENT.replace("-01", "-00");
    assert_eq!(program.send("GET", "/proxy/fast/a", &[("traceparent", &unsampled)], "").await.status, 200);
    assert_eq!(passed_on(&upstream).unwrap()[2], "00");
    assert_eq!(program.get("/proxy/fast/a").await.status, 200);
    let [trace, span, flags] = passed_on(&upstream).unwrap();
    assert_ne!(trace, TRACE);
    assert_eq!(flags, "03");
    let spans = spans(&collector, 3).await;
    let names: Vec<&str> = spans.keys().map(String::as_str).collect();
    assert_eq!(names, ["attempt", "gates", "intake"]);
    assert!(spans.values().flatten().all(|span| span["traceId"] == trace), "{spans:#?}");
    assert_eq!(spans["attempt"][0]["spanId"], span);
    assert_eq!(spans["intake"][0].get("parentSpanId"), None);
    program.until("/metrics", |page| page.text().contains("eclusa_spans_exported_total 3\n")).await;
}

/// A collector that refuses, one that hangs, and none: requests are still answered, and the process ends in time.
#[tokio::test]
async fn nothing_waits_for_a_collector() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let refusing = FakeUpstream::start(Behaviour::script([Answer::status(400)]).then(Answer::status(200)))
        .await
        .unwrap();
    let program = start(&upstream, &traces(&refusing)).await;
    assert_eq!(program.get("/proxy/fast/a").await.status, 200);
    let dropped = program.logged("Spans were dropped", &[("reason", "refused")]).await;
    let counted = program.metric("eclusa_spans_dropped_total", &[("reason", "refused")]).await;
    assert_eq!(dropped["spans"], counted);
    program.get("/proxy/fast/a").await;
    program.logged("The trace collector accepts spans again", &[]).await;

    let hanging = FakeUpstream::start(Answer::hang()).await.unwrap();
    let program = start(&upstream, &traces(&hanging)).await;
    assert_eq!(program.get("/proxy/fast/a").await.status, 200);
    hanging.wait_for(1).await;
    let quick = async {
        for _ in 0..50 {
            assert_eq!(program.get("/proxy/fast/a").await.status, 200);
        }
        program.enqueue("work", &json!({ "request": {} })).await
    };
    let job = tokio::time::timeout(PATIENCE, quick).await.unwrap();
    assert_eq!(program.ended(&job).await["status"], "completed");
    assert!(program.stop().await.0.success());

    // Nobody listens on the port of the discard service. A port that was free a moment ago may be taken by another test.
    let program = start(&upstream, "[traces]\notlp = \"http://127.0.0.1:9\"\n").await;
    assert_eq!(program.get("/proxy/fast/a").await.status, 200);
    program.logged("Spans were dropped", &[("reason", "unreachable")]).await;
    assert!(program.metric("eclusa_spans_dropped_total", &[("reason", "unreachable")]).await >= 3);
}

/// A batch is tried again while the collector is unavailable, and the last spans are sent when the process stops.
#[tokio::test]
async fn spans_survive_a_collector_that_is_unavailable_for_a_moment_and_the_end_of_the_process() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let unavailable = Behaviour::script([Answer::status(503), Answer::status(429)]);
    let collector = FakeUpstream::start(unavailable.then(Answer::status(200))).await.unwrap();
    let program = start(&upstream, &traces(&collector)).await;
    assert_eq!(program.get("/proxy/fast/a").await.status, 200);
    tokio::time::timeout(PATIENCE, collector.wait_for(3)).await.unwrap();
    let bodies: Vec<_> = collector.requests().into_iter().map(|request| request.body).collect();
    assert!(bodies.iter().all(|body| *body == bodies[0]), "the same batch");
    program.until("/metrics", |page| page.text().contains("eclusa_spans_exported_total 3\n")).await;
    assert_eq!(program.get("/proxy/fast/b").await.status, 200);
    assert!(program.stop().await.0.success());
    let sent: usize = spans(&collector, 12).await.values().map(Vec::len).sum();
    assert_eq!(sent, 12, "three batches of the first request, one of the second");
}

/// Only a share of the traces that start here is recorded, but all traces of callers are.
#[tokio::test]
async fn a_share_of_new_traces_is_recorded() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let collector = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, &(traces(&collector) + "sample = 0.000001\n")).await;
    for _ in 0..20 {
        program.get("/proxy/fast/a").await;
    }
    assert_eq!(passed_on(&upstream), None);
    program.send("GET", "/proxy/fast/a", &[("traceparent", SENT)], "").await;
    let spans = spans(&collector, 3).await;
    assert!(spans.values().flatten().all(|span| span["traceId"] == TRACE), "{spans:#?}");
}

/// A `tracestate` belongs to the `traceparent` it came with: without one, or with one that is none, it is not passed on.
#[tokio::test]
async fn a_tracestate_without_a_traceparent_is_ignored() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let collector = FakeUpstream::start(Answer::status(200)).await.unwrap();
    for more in [String::new(), traces(&collector)] {
        let program = start(&upstream, &more).await;
        let alone = [("tracestate", "vendor=1"), ("prefer", "wait=60")];
        let unreadable = [("traceparent", "00-1-2-01"), alone[0], alone[1]];
        let job = r#"{"request":{"path":"/b"}}"#;
        let own = r#"{"request":{"path":"/b","headers":{"tracestate":"own=1"}}}"#;
        for headers in [&alone[..], &unreadable] {
            for (method, path, body) in [
                ("GET", "/proxy/fast/a", ""),
                ("GET", "/proxy/work/a", ""),
                ("POST", "/v1/lanes/work/jobs", job),
                ("POST", "/v1/lanes/work/jobs", own),
            ] {
                assert_eq!(program.send(method, path, headers, body).await.status, 200, "{path}");
                let seen = upstream.requests().pop().unwrap();
                assert_eq!(seen.headers.get("tracestate"), None, "{headers:?} {path} {body}");
            }
        }
        // What a job is to send itself stays together.
        let both = format!(r#"{{"request":{{"headers":{{"traceparent":"{SENT}","tracestate":"own=1"}}}}}}"#);
        assert_eq!(program.send("POST", "/v1/lanes/work/jobs", &alone[1..], &both).await.status, 200);
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(
            (&seen.headers["traceparent"], &seen.headers["tracestate"]),
            (&SENT.parse().unwrap(), &"own=1".parse().unwrap())
        );
    }
}

/// The job that a submission found, not the one that it would have been.
#[tokio::test]
async fn the_span_of_a_repeated_submission_names_the_job_that_is_there() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let collector = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, &traces(&collector)).await;
    program.pause("work").await;
    let headers = [("traceparent", SENT), ("idempotency-key", "once")];
    let first = program.send("GET", "/proxy/work/a", &headers, "").await.json();
    let again = program.send("GET", "/proxy/work/a", &headers, "").await.json();
    assert_eq!(first["jobId"], again["jobId"]);
    let conflict = program.send("GET", "/proxy/work/b", &headers, "").await;
    assert_eq!(conflict.status, 422);
    let spans = spans(&collector, 3).await;
    let named: Vec<Value> =
        spans["intake"].iter().map(|span| attribute(span, "eclusa.job.id")["stringValue"].clone()).collect();
    assert_eq!(named, [first["jobId"].clone(), first["jobId"].clone(), Value::Null]);
}

/// A replay waits from when it was asked for, not from when the first job was sent; an edited one stays in its trace.
#[tokio::test]
async fn a_replay_stays_in_its_trace_and_waits_from_when_it_was_asked_for() {
    let upstream = FakeUpstream::start(Answer::status(400)).await.unwrap();
    let collector = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = start(&upstream, &traces(&collector)).await;
    let context = [("traceparent", SENT), ("tracestate", "vendor=1")];
    let sent =
        program.send("POST", "/v1/lanes/work/jobs", &context, r#"{"request":{"path":"/a"}}"#).await.json();
    let letter = sent["jobId"].as_str().unwrap().to_owned();
    let began = program.ended(&letter).await;
    // Its spans are there: what comes from here on is of the replays.
    spans(&collector, 5).await;
    let mut expected = 5;
    for patch in [json!({}), json!({ "request": { "path": "/b" } })] {
        let replay = program.post(&format!("/v1/dead-letters/{letter}/replay"), &patch).await.json();
        let job = replay["jobId"].as_str().unwrap().to_owned();
        program.ended(&job).await;
        let seen = upstream.requests().pop().unwrap();
        assert_eq!(seen.headers["tracestate"], "vendor=1", "{patch}");
        assert_eq!(passed_on(&upstream).unwrap()[0], TRACE, "{patch}");
        expected += 4;
        let spans = spans(&collector, expected).await;
        let waits = spans["wait"].iter().find(|span| attribute(span, "eclusa.job.id")["stringValue"] == job);
        let from: i64 = waits.unwrap()["startTimeUnixNano"].as_str().unwrap().parse().unwrap();
        assert!(from / 1_000_000 >= end(&began), "{patch}: {waits:?}");
    }
}
