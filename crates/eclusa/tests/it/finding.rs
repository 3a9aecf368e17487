//! Jobs are found by the id their caller gave, by filter and by time, and cancelled by filter.

use eclusa::SystemClock;
use eclusa::fake::{Answer, FakeUpstream};
use eclusa_core::Clock;
use serde_json::{Value, json};

use crate::cli::run_at;
use crate::program::{Program, millis};

const OPERATOR: &str = "operator-0123456789";

/// Two lanes whose jobs wait, because they are paused.
async fn paused(more: &str) -> (Program, FakeUpstream) {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!(
        "[store]\nurl = \"memory:\"\n[lanes.a]\nchain = [\"api\"]\n[lanes.b]\nchain = [\"api\"]\n\
         [upstreams.api]\nurl = \"{}\"\n{more}",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    if more.is_empty() {
        program.pause("a").await;
        program.pause("b").await;
    }
    (program, upstream)
}

fn job(id: &str, tenant: &str) -> Value {
    json!({ "id": id, "tenant": tenant, "request": { "path": "/x" } })
}

/// The ids that the callers gave to the listed jobs.
async fn listed(program: &Program, query: &str) -> Vec<String> {
    let page = program.get(&format!("/v1/jobs{query}")).await.json();
    let jobs = page["jobs"].as_array().unwrap_or_else(|| panic!("{page}"));
    jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_job_is_found_by_the_id_its_caller_gave() {
    let (program, _upstream) = paused("").await;
    let own = program.enqueue("a", &job("order-7", "acme")).await;
    for path in ["order-7", "order-7?lane=a", &own, &format!("{own}?lane=a")] {
        assert_eq!(program.get(&format!("/v1/jobs/{path}")).await.json()["jobId"], own, "{path}");
    }
    assert_eq!(program.get("/v1/jobs/order-7/why").await.json()["status"], "queued");
    assert_eq!(program.get("/v1/jobs/order-7/wait?timeout=0").await.json()["jobId"], own);
    for path in ["order-8", "order-7?lane=b", &format!("{own}?lane=b"), "order-7/why?lane=b"] {
        assert_eq!(program.get(&format!("/v1/jobs/{path}")).await.status, 404, "{path}");
    }

    let other = program.enqueue("b", &job("order-7", "acme")).await;
    for (method, path) in [("GET", ""), ("DELETE", ""), ("GET", "/why"), ("GET", "/wait")] {
        let reported = program.send(method, &format!("/v1/jobs/order-7{path}"), &[], "").await;
        assert_eq!(
            (reported.status, reported.text().contains("`?lane=` with one of a, b")),
            (409, true),
            "{reported:?}"
        );
    }
    assert_eq!(program.get("/v1/jobs/order-7?lane=b").await.json()["jobId"], other);
    assert_eq!(program.send("DELETE", "/v1/jobs/order-7?lane=b", &[], "").await.json()["jobId"], other);
    assert_eq!(program.get("/v1/jobs/order-7/wait?lane=b").await.json()["status"], "cancelled");
    assert_eq!(program.get("/v1/jobs/order-7/wait?lane=a&timeout=0").await.json()["status"], "queued");
}

#[tokio::test]
async fn jobs_are_listed_newest_first_and_by_filter() {
    let (program, _upstream) = paused("").await;
    let mut times = Vec::new();
    for (lane, id, tenant) in [("a", "1", "acme"), ("b", "2", "bolt"), ("a", "3", "bolt")] {
        let own = program.enqueue(lane, &job(id, tenant)).await;
        let created = program.get(&format!("/v1/jobs/{own}")).await.json()["createdAt"].clone();
        times.push(created.as_str().unwrap().to_owned());
        // The next one arrives at another millisecond.
        while i64::try_from(SystemClock.now().as_millis()).unwrap() <= millis(&created) {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(listed(&program, "").await, ["3", "2", "1"]);
    assert_eq!(listed(&program, "?tenant=bolt").await, ["3", "2"]);
    assert_eq!(listed(&program, "?lane=a&status=queued").await, ["3", "1"]);
    assert_eq!(listed(&program, "?id=2").await, ["2"]);
    assert_eq!(listed(&program, &format!("?since={}", times[1])).await, ["3", "2"]);
    assert_eq!(listed(&program, &format!("?until={}", times[1])).await, ["2", "1"]);
    assert_eq!(listed(&program, &format!("?since={0}&until={0}", times[1])).await, ["2"]);
    assert_eq!(listed(&program, "?since=10m").await.len(), 3);
    assert_eq!(listed(&program, "?until=10m").await.len(), 0);
    let wrong = program.get("/v1/jobs?since=yesterday&status=lost&cursor=7").await;
    let fields: Vec<Value> =
        wrong.json()["errors"].as_array().unwrap().iter().map(|e| e["field"].clone()).collect();
    assert_eq!((wrong.status, fields), (422, vec![json!("status"), json!("since"), json!("cursor")]));
}

#[tokio::test]
async fn only_matching_jobs_are_cancelled() {
    let (program, upstream) = paused("").await;
    for number in 0..120 {
        program
            .enqueue("a", &job(&format!("a{number}"), if number % 2 == 0 { "acme" } else { "bolt" }))
            .await;
    }
    program.enqueue("b", &job("b1", "acme")).await;
    let delete = async |query: &str| program.send("DELETE", &format!("/v1/jobs{query}"), &[], "").await;

    let dry = delete("?lane=a&tenant=acme&dryRun=true").await.json();
    assert_eq!(dry, json!({ "matched": 60, "cancelled": 0, "dryRun": true }));
    let done = delete("?lane=a&tenant=acme").await.json();
    assert_eq!(done, json!({ "matched": 60, "cancelled": 60, "dryRun": false }));
    assert_eq!(program.get("/v1/jobs/a0?lane=a").await.json()["status"], "cancelled");
    assert_eq!(listed(&program, "?lane=b&status=queued").await, ["b1"]);
    assert_eq!(delete("?status=queued&until=1h").await.json()["matched"], 0);

    for (query, field) in [("", "lane"), ("?status=completed", "status"), ("?dryRun=maybe", "dryRun")] {
        let reported = delete(query).await;
        assert_eq!(
            (reported.status, &reported.json()["errors"][0]["field"]),
            (422, &json!(field)),
            "{query}"
        );
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn the_command_line_cancels_by_filter_after_confirmation() {
    let (program, _upstream) = paused("").await;
    for number in 0..3 {
        program.enqueue("a", &job(&format!("a{number}"), "acme")).await;
    }
    let run = async |arguments: &[&str]| run_at(&program.url(), arguments).await;
    let filter = ["jobs", "cancel", "--lane", "a", "--status", "queued"];
    let dry = run(&[&filter[..], &["--dry-run", "-o", "json"]].concat()).await.json();
    assert_eq!(dry, json!({ "matched": 3, "cancelled": 0, "dryRun": true }));
    assert!(run(&filter).await.failed(2).contains("Cancel 3 jobs? There is no terminal to confirm on"));
    let one = run(&["jobs", "cancel", "a1", "--lane", "a", "-o", "json"]).await.json();
    assert_eq!((&one["id"], &one["status"]), (&json!("a1"), &json!("cancelled")));
    assert_eq!(run(&[&filter[..], &["--yes"]].concat()).await.ok(), "matched    2\ncancelled  2\n");
    assert!(run(&["jobs", "cancel"]).await.failed(2).contains("no job and no filter"));
    assert!(run(&["jobs", "cancel", "a1", "--tenant", "x"]).await.failed(2).contains("a job and a filter"));
    let listed = run(&["jobs", "ls", "--id", "a2", "--since", "10m", "-o", "json"]).await.json();
    assert_eq!(listed["jobs"][0]["status"], "cancelled");
}

#[tokio::test]
async fn a_key_for_some_tenants_cancels_only_theirs() {
    let key = format!(
        "[[auth.keys]]\nname = \"ops\"\nrole = \"operator\"\nkey = \"{OPERATOR}\"\nlanes = [\"a\"]\ntenants = [\"acme\"]\n"
    );
    let (program, _upstream) = paused(&key).await;
    let bearer = format!("Bearer {OPERATOR}");
    let delete = async |query: &str| {
        program.send("DELETE", &format!("/v1/jobs{query}"), &[("authorization", &bearer)], "").await.status
    };
    for (query, status) in [
        ("?lane=a&tenant=acme", 200),
        ("?lane=a", 403),
        ("?tenant=acme", 403),
        ("?lane=a&tenant=bolt", 403),
        ("?lane=b&tenant=acme", 403),
    ] {
        assert_eq!(delete(query).await, status, "{query}");
    }
}

#[tokio::test]
async fn a_job_shows_its_request_but_no_secrets_and_masked_fields_only_to_admins() {
    let upstream = FakeUpstream::start(Answer::status(400)).await.unwrap();
    let keys = [("boss", "admin"), ("ops", "operator"), ("shop", "producer")].map(|(name, role)| {
        format!("[[auth.keys]]\nname = \"{name}\"\nrole = \"{role}\"\nkey = \"{name}-0123456789abcdef\"\n")
    });
    let config = format!(
        "[store]\nurl = \"memory:\"\n[lanes.a]\nchain = [\"api\"]\n\
         mask = [\"body./email\", \"query.cpf\", \"header.x-id\", \"params./name\"]\n\
         [upstreams.api]\nurl = \"{}\"\nheaders = {{ X-Upstream = \"own\" }}\n{}",
        upstream.url(),
        keys.concat()
    );
    let program = Program::start(&config, &[]).await;
    let ask = async |key: &str, method: &str, path: &str, body: &str| {
        let bearer = format!("Bearer {key}-0123456789abcdef");
        let headers = [("authorization", bearer.as_str()), ("prefer", "wait=30")];
        program.send(method, path, &headers, body).await.json()
    };
    let job = json!({
        "id": "order-7",
        "params": { "name": "Ana", "size": 1 },
        "request": {
            "path": "/run",
            "query": { "cpf": "1", "page": "2" },
            "headers": { "X-Id": "7", "X-Api-Key": "k", "X-Trace": "t" },
            "body": { "email": "a@b.c", "age": 7 },
        },
    });
    let reported = ask("shop", "POST", "/v1/lanes/a/jobs", &job.to_string()).await;
    assert_eq!(reported["status"], "failed", "{reported}");
    let request = |id: &str, cpf: &str, email: &str| {
        json!({
            "method": "POST", "path": "/run", "query": format!("cpf={cpf}&page=2"),
            "headers": { "content-type": ["application/json"], "x-api-key": ["***"], "x-id": [id], "x-trace": ["t"] },
            "body": { "email": email, "age": 7 },
        })
    };
    let (open, masked) = (request("7", "1", "a@b.c"), request("***", "%2A%2A%2A", "***"));
    let id = reported["jobId"].as_str().unwrap().to_owned();
    for (key, request, name) in [("boss", &open, "Ana"), ("ops", &masked, "***"), ("shop", &masked, "***")] {
        for path in [format!("/v1/jobs/{id}"), "/v1/jobs/order-7/wait".into()] {
            let seen = ask(key, "GET", &path, "").await;
            assert_eq!((&seen["request"], &seen["params"]["name"]), (request, &json!(name)), "{key} {path}");
            assert_eq!(seen["params"]["size"], 1);
        }
        if key != "shop" {
            let letter = ask(key, "GET", &format!("/v1/dead-letters/{id}"), "").await;
            assert_eq!(letter["originalData"]["request"], *request, "{key}");
            assert_eq!(letter["originalData"]["params"]["name"], name);
            let list = ask(key, "GET", "/v1/jobs", "").await;
            assert!(list["jobs"][0].get("request").is_none() && list["jobs"][0].get("params").is_none());
        }
    }
    assert_eq!(reported["request"], masked, "also for a caller that waits for its job");
    assert_eq!(upstream.requests()[0].headers["x-api-key"], "k", "it is sent as it came");
}
