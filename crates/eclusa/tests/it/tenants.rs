//! Tenants of a lane: waiting jobs, limits per tenant, and what is logged when their jobs fail.

use std::collections::BTreeSet;

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::{Value, json};

use crate::cli::{run_at, run_with};
use crate::program::{Program, millis};

fn config(upstream: &FakeUpstream, lane: &str) -> String {
    format!(
        "[lanes.mail]\nchain = [\"api\"]\n{lane}\n[upstreams.api]\nurl = \"{}\"\n[log]\nformat = \"json\"\n",
        upstream.url()
    )
}

async fn enqueue(program: &Program, tenant: &str) -> String {
    program.enqueue("mail", &json!({ "tenant": tenant, "request": { "path": "/a" } })).await
}

#[tokio::test]
async fn tenants_are_listed_with_what_waits_and_runs() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let lane = "concurrency = 2\nfairness = { weights = { \"a*\" = 2 } }";
    let program = Program::start(&config(&upstream, lane), &[]).await;
    for tenant in ["acme", "acme", "acme", "bolt"] {
        enqueue(&program, tenant).await;
    }
    upstream.wait_for(2).await;
    let all = program.get("/v1/lanes/mail/tenants").await.json();
    let by_name = |name: &str| {
        let all = all["tenants"].as_array().unwrap();
        all.iter().find(|tenant| tenant["companyId"] == name).unwrap().clone()
    };
    let acme = by_name("acme");
    assert!(acme["lastProcessedAt"].is_string(), "{acme}");
    let expected = json!({
        "companyId": "acme", "lastProcessedAt": acme["lastProcessedAt"], "roundsWithoutProcessing": 0,
        "currentPriority": 5, "totalProcessed": 2, "consecutiveBatchCount": 2, "queued": 1, "processing": 2, "weight": 2,
        "next": true,
    });
    assert_eq!(acme, expected);
    let expected = json!({
        "companyId": "bolt", "roundsWithoutProcessing": 4, "currentPriority": 1, "totalProcessed": 0,
        "consecutiveBatchCount": 0, "queued": 1, "processing": 0, "weight": 1, "next": false,
    });
    assert_eq!(by_name("bolt"), expected);
    let out = run_at(&program.url(), &["lanes", "tenants", "mail"]).await.ok();
    let lines: Vec<Vec<&str>> = out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[1][..9], ["acme", "next", "1", "2", "2", "2", "2", "0", "5"], "{out}");
    assert_eq!(lines[2], ["bolt", "-", "1", "0", "0", "0", "1", "4", "1", "-"], "{out}");
    let one =
        run_at(&program.url(), &["lanes", "tenants", "mail", "--limit", "1", "-o", "json"]).await.json();
    assert_eq!(one["tenants"].as_array().unwrap().len(), 1);
    run_at(&program.url(), &["lanes", "tenants", "nothing"]).await.failed(3);
    latch.open();
}

#[tokio::test]
async fn the_tenant_that_is_served_next_is_found_among_many() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&upstream, ""), &[]).await;
    let job = |tenant: &str| json!({ "tenant": tenant, "request": { "path": "/a" } });
    enqueue(&program, "tenant-0").await;
    program.until("/v1/lanes/mail", |lane| lane.json()["totals"]["completed"] == 1).await;
    program.pause("mail").await;
    let many: Vec<_> = (0..1_000).map(|n| job(&format!("tenant-{n}"))).collect();
    program.post("/v1/lanes/mail/jobs/batch", &json!(many)).await;
    let urgent = json!({ "tenant": "urgent", "priority": "high", "request": { "path": "/a" } });
    program.post("/v1/lanes/mail/jobs/batch", &json!([job("flood"), job("flood"), urgent])).await;
    let busiest = program.get("/v1/lanes/mail/tenants?busiest=3").await.json();
    let of = |at: usize| (&busiest["tenants"][at]["companyId"], &busiest["tenants"][at]["next"]);
    assert_eq!(of(0), (&json!("urgent"), &json!(true)), "{busiest}");
    assert_eq!(of(1), (&json!("flood"), &json!(false)));
    assert_eq!(of(2), (&json!("tenant-0"), &json!(false)), "of those that are left it was served most");
    assert_eq!((&busiest["tenants"][3], &busiest["cursor"]), (&Value::Null, &Value::Null));
    for bad in ["busiest=0", "busiest=201", "busiest=5&cursor=1"] {
        let refused = program.get(&format!("/v1/lanes/mail/tenants?{bad}")).await;
        assert_eq!(
            (refused.status, &refused.json()["errors"][0]["field"]),
            (422, &json!("busiest")),
            "{bad}"
        );
    }
}

#[tokio::test]
async fn a_key_for_some_tenants_sees_only_those() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let keys = "[[auth.keys]]\nname = \"ops\"\nrole = \"admin\"\nkey = \"ops-0123456789abcdef\"\n\
                [[auth.keys]]\nname = \"acme\"\nrole = \"viewer\"\ntenants = [\"ac*\"]\nkey = \"acme-0123456789abcdef\"\n";
    let program = Program::start(&format!("{}{keys}", config(&upstream, "")), &[]).await;
    let bearer = |key: &'static str| [("authorization", key)];
    for tenant in ["acme", "bolt"] {
        let job = json!({ "tenant": tenant, "request": { "path": "/a" } }).to_string();
        let headers =
            [("authorization", "Bearer ops-0123456789abcdef"), ("content-type", "application/json")];
        assert_eq!(program.send("POST", "/v1/lanes/mail/jobs", &headers, &job).await.status, 202);
    }
    let names = async |key| {
        let all = program.send("GET", "/v1/lanes/mail/tenants", &bearer(key), "").await.json();
        let all = all["tenants"].as_array().unwrap().clone();
        all.iter().map(|tenant| tenant["companyId"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    assert_eq!(names("Bearer ops-0123456789abcdef").await, BTreeSet::from(["acme".into(), "bolt".into()]));
    assert_eq!(names("Bearer acme-0123456789abcdef").await, BTreeSet::from(["acme".into()]));
    let path = "/v1/lanes/mail/tenants?busiest=5";
    let busiest = program.send("GET", path, &bearer("Bearer acme-0123456789abcdef"), "").await.json();
    assert_eq!(busiest["tenants"].as_array().unwrap().len(), 1, "{busiest}");
    let env = [("ECLUSA_URL", program.url()), ("ECLUSA_KEY", "acme-0123456789abcdef".to_owned())];
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let out = run_with(&["lanes", "tenants", "mail"], &env, "").await.ok();
    assert!(out.contains("acme") && !out.contains("bolt"), "{out}");
}

#[tokio::test]
async fn a_tenant_at_its_limit_sees_why_and_a_reload_lifts_it() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let limited = "tenant_rate = { \"acme\" = \"1/day\" }";
    let program = Program::start(&config(&upstream, limited), &[]).await;
    let first = enqueue(&program, "acme").await;
    program.ended(&first).await;
    let second = enqueue(&program, "acme").await;
    let other = enqueue(&program, "bolt").await;
    program.ended(&other).await;
    assert_eq!(program.why(&second).await, "rate_limit");
    let why = program.get(&format!("/v1/jobs/{second}/why")).await.json();
    assert!(why["detail"].as_str().unwrap().starts_with("The token bucket of tenant `acme`"), "{why}");
    assert!(why["eta"].is_string(), "{why}");
    assert_eq!(why["tenant"], "acme");
    assert!(millis(&why["until"]) > 0 && millis(&why["until"]) <= millis(&why["eta"]), "{why}");
    let gate = json!({ "tenant": "acme", "reason": "rate_limit", "open": false, "until": why["until"], "level": 0, "limit": 1 });
    assert!(why["gates"].as_array().unwrap().contains(&gate), "{why}");
    let out = run_at(&program.url(), &["why", &second]).await.ok();
    let line = |words: &[&str]| out.lines().any(|line| line.split_whitespace().collect::<Vec<_>>() == words);
    assert!(line(&["tenant", "acme"]) && line(&["until", why["until"].as_str().unwrap()]), "{out}");
    assert!(
        line(&["tenant", "acme", "bucket", "0/1", "tokens,", "too", "few", why["until"].as_str().unwrap()]),
        "{out}"
    );
    program.reload(&config(&upstream, "tenant_rate = { \"acme\" = \"2/day\" }"));
    program.logged("The config was reloaded", &[]).await;
    assert_eq!(program.why(&second).await, "rate_limit", "what was spent stays spent");
    program.reload(&config(&upstream, ""));
    program.ended(&second).await;
}

#[tokio::test]
async fn a_direct_lane_refuses_a_tenant_at_its_limit_and_no_other() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Behaviour::by({
        let latch = latch.clone();
        move |seen| match seen.path.as_str() {
            "/slow" => Answer::status(200).after(&latch),
            _ => Answer::status(200),
        }
    }))
    .await
    .unwrap();
    let lane = "mode = \"direct\"\ntenant_rate = \"3/h\"\ntenant_concurrency = 1";
    let program = Program::start(&config(&upstream, lane), &[]).await;
    let call = async |path: &str, tenant| program.send("GET", path, &[("eclusa-tenant", tenant)], "").await;
    let (slow, ()) = tokio::join!(call("/proxy/mail/slow", "acme"), async {
        upstream.wait_for(1).await;
        let refused = call("/proxy/mail/a", "acme").await;
        assert_eq!((refused.status, &refused.json()["reason"]), (429, &json!("concurrency")));
        assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
        assert_eq!(call("/proxy/mail/a", "bolt").await.status, 200);
        latch.open();
    });
    assert_eq!(
        (slow.status, slow.header("ratelimit-policy")),
        (200, "\"mail-tenant-rate_limit\";q=3;w=3600")
    );
    let again = async || loop {
        // A slot is freed when the end of the call is reported.
        let answer = call("/proxy/mail/a", "acme").await;
        if answer.status == 200 || answer.json()["reason"] != "concurrency" {
            break answer;
        }
    };
    assert_eq!((again().await.status, again().await.status), (200, 200));
    let refused = again().await;
    assert_eq!((refused.status, &refused.json()["reason"]), (429, &json!("rate_limit")));
    let after: u32 = refused.header("retry-after").parse().unwrap();
    assert!((1_100..=1_200).contains(&after), "{after}");
    assert_eq!(call("/proxy/mail/a", "bolt").await.status, 200);
}

/// The log line of the requirements, from the real program.
#[tokio::test]
async fn a_retry_is_logged_with_the_fields_of_the_sources_and_no_others() {
    let upstream = FakeUpstream::start(Answer::status(421)).await.unwrap();
    let config =
        config(&upstream, "retry = { attempts = 5 }").replace("url =", "retryable = [\"421\"]\nurl =");
    let program = Program::start(&config, &[]).await;
    let id = enqueue(&program, "789e4567").await;
    let line = program.logged("Job failed, scheduling retry", &[]).await;
    let fields: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "attempt",
        "companyId",
        "errorCode",
        "errorReason",
        "isRetryable",
        "jobId",
        "level",
        "maxAttempts",
        "message",
        "nextRetryDelay",
        "timestamp",
    ];
    assert_eq!(BTreeSet::from_iter(fields), BTreeSet::from(expected));
    let expected = json!([id, "789e4567", 1, 5, "421", true, "warn"]);
    let given: Value = ["jobId", "companyId", "attempt", "maxAttempts", "errorCode", "isRetryable", "level"]
        .map(|field| line[field].clone())
        .to_vec()
        .into();
    assert_eq!(given, expected);
    assert!((750..=1_250).contains(&line["nextRetryDelay"].as_u64().unwrap()), "{line}");
    let at = line["timestamp"].as_str().unwrap();
    assert!(at.len() == 24 && at.ends_with('Z'), "{at}");
}

#[tokio::test]
async fn the_metrics_name_the_first_two_hundred_tenants_and_count_the_rest_together() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&upstream, ""), &[]).await;
    let twice = |tenant: String| std::iter::repeat_n(tenant, 2);
    let tenants = (0..200).map(|n| format!("big-{n}")).flat_map(twice);
    let tenants = tenants.chain((0..5).map(|n| format!("small-{n}")));
    let jobs: Value = tenants
        .map(|tenant| json!({ "tenant": tenant, "request": { "path": "/a" } }))
        .collect::<Vec<_>>()
        .into();
    assert_eq!(program.post("/v1/lanes/mail/jobs/batch", &jobs).await.status, 200);
    program.until("/v1/lanes/mail", |answer| answer.json()["totals"]["completed"] == 405).await;
    let shown = |page: &str, metric: &str| {
        let lines =
            page.lines().filter(|line| line.starts_with(&format!("{metric}{{")) && line.contains("\"mail\""));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let jobs_of_rest = |page: &str| {
        let all = shown(page, "tenant_jobs_processed");
        all.iter().any(|line| line.contains("companyId=\"other\"") && line.ends_with(" 5"))
    };
    let page = program.until("/metrics", |answer| jobs_of_rest(answer.text())).await;
    let metrics = [
        "tenant_jobs_processed",
        "tenant_current_priority",
        "tenant_consecutive_batch",
        "tenant_rounds_without_processing",
    ];
    for metric in metrics {
        let lines = shown(page.text(), metric);
        assert_eq!(lines.len(), 201, "{metric}");
        assert!(
            lines.iter().any(|line| line.contains("\"other\""))
                && !lines.iter().any(|line| line.contains("small-"))
        );
    }
}
