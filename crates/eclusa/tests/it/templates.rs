//! One job for several providers: each gets the request that its template makes of the job's params.

use eclusa::fake::{Answer, FakeUpstream, ReceivedRequest};
use serde_json::{Value, json};

use super::program::Program;

/// Two providers with different request formats, by model; `plain` has no template.
fn config(first: &FakeUpstream, second: &FakeUpstream) -> String {
    format!(
        r#"
[server]
listen = "127.0.0.1:0"
public_url = "https://gw.example/eclusa"
[lanes.generate]
chain_by = "params:/modelId"
chains = {{ "flux-pro" = ["replicate", "fal"], "plain" = ["plain", "fal"] }}
retry = {{ attempts = 1 }}
[upstreams.replicate]
url = "{}"
headers = {{ Authorization = "Bearer of-all" }}
request = {{ path = "/v1/models/{{params./modelId}}/predictions", headers = {{ Authorization = "Token ${{TOKEN}}", X-Tenant = "{{tenant}}" }}, body = {{ input = "{{params./input}}", webhook = "{{webhook_url}}" }} }}
[upstreams.fal]
url = "{}"
request = {{ path = "/fal-ai/{{params./modelId}}?fal_webhook={{webhook_url}}", body = {{ prompt = "{{params./input/prompt}}", seed = "{{params./input/seed}}", ref = "{{id}}:{{job_id}}" }} }}
[upstreams.plain]
url = "{}"
"#,
        first.url(),
        second.url(),
        first.url(),
    )
}

fn body(seen: &ReceivedRequest) -> Value {
    serde_json::from_slice(&seen.body).unwrap()
}

fn generation() -> Value {
    let params = json!({ "modelId": "flux-pro", "input": { "prompt": "a lock", "seed": 7 } });
    json!({ "id": "gen-1", "tenant": "acme", "params": params })
}

#[tokio::test]
async fn each_provider_is_sent_the_job_in_its_own_words() {
    let replicate = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let fal = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&replicate, &fal), &[("TOKEN", "r8-secret")]).await;
    let id = program.enqueue("generate", &generation()).await;
    let job = program.ended(&id).await;
    assert_eq!(
        (&job["status"], &job["upstream"], &job["attempts"]),
        (&json!("completed"), &json!("fal"), &json!(1))
    );
    let hook = |upstream: &str| format!("https://gw.example/eclusa/v1/webhooks/{upstream}/{id}");

    let seen = &replicate.requests()[0];
    assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", "/v1/models/flux-pro/predictions"));
    for (name, value) in [
        ("authorization", "Token r8-secret"),
        ("x-tenant", "acme"),
        ("content-type", "application/json"),
        ("idempotency-key", "gen-1"),
    ] {
        assert_eq!(seen.headers[name], value, "{name}");
    }
    let input = json!({ "prompt": "a lock", "seed": 7 });
    assert_eq!(body(seen), json!({ "input": input, "webhook": hook("replicate") }));

    let seen = &fal.requests()[0];
    assert_eq!(seen.path, "/fal-ai/flux-pro");
    let query = seen.query.as_deref().unwrap().replace("%3A", ":").replace("%2F", "/");
    assert_eq!(query, format!("fal_webhook={}", hook("fal")));
    assert_eq!(body(seen), json!({ "prompt": "a lock", "seed": 7, "ref": format!("gen-1:{id}") }));
    assert!(!format!("{job}{:?}", program.log()).contains("r8-secret"));
}

#[tokio::test]
async fn missing_params_are_reported_at_intake_for_every_provider_of_the_chain() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&upstream, &upstream), &[("TOKEN", "t")]).await;
    let refused = async |job: Value| {
        let answer = program.post("/v1/lanes/generate/jobs", &job).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        let errors = answer.json()["errors"].as_array().unwrap().clone();
        let said =
            errors.iter().map(|error| format!("{}: {}", error["field"], error["problem"]).replace('"', ""));
        said.collect::<Vec<_>>()
    };
    assert_eq!(
        refused(json!({ "params": { "modelId": "flux-pro", "input": { "prompt": "x" } } })).await,
        [
            "params./input/seed: is missing, but upstream `fal` needs it",
            "id: is missing, but upstream `fal` needs it"
        ]
    );
    assert_eq!(
        refused(json!({ "params": { "modelId": "sdxl" } })).await,
        ["params./modelId: has a value without a chain; send one of `flux-pro`, `plain`"]
    );
    assert_eq!(
        refused(json!({ "request": { "path": "/x" } })).await,
        ["params./modelId: is missing: it selects the upstreams; send one of `flux-pro`, `plain`"]
    );
    assert_eq!(
        refused(
            json!({ "id": "a", "params": { "modelId": "plain", "input": { "prompt": "x", "seed": 1 } } })
        )
        .await,
        ["request: is missing: upstream `plain` has no template that builds it from `params`"]
    );
    assert!(upstream.requests().is_empty());
}

/// If only some upstreams have a template, the others get the job's own request.
#[tokio::test]
async fn a_request_of_its_own_goes_to_providers_without_a_template() {
    let plain = FakeUpstream::start(Answer::status(500)).await.unwrap();
    let fal = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&plain, &fal), &[("TOKEN", "t")]).await;
    let mut job = generation();
    job["params"]["modelId"] = json!("plain");
    job["request"] = json!({ "path": "/own", "body": { "own": true } });
    let id = program.enqueue("generate", &job).await;
    assert_eq!(program.ended(&id).await["upstream"], "fal");
    assert_eq!(
        (plain.requests()[0].path.as_str(), body(&plain.requests()[0])),
        ("/own", json!({ "own": true }))
    );
    assert_eq!(fal.requests()[0].path, "/fal-ai/plain");
}

/// The same key with other params is a conflict; and a job without a request can be replayed.
#[tokio::test]
async fn params_are_part_of_idempotency_and_of_replays() {
    let upstream = FakeUpstream::start(Answer::status(400)).await.unwrap();
    let program = Program::start(&config(&upstream, &upstream), &[("TOKEN", "t")]).await;
    let id = program.enqueue("generate", &generation()).await;
    let again = program.post("/v1/lanes/generate/jobs", &generation()).await;
    assert_eq!(again.json()["jobId"], id.as_str(), "waiting or ended, it is the same job");
    let mut other = generation();
    other["params"]["input"]["seed"] = json!(8);
    assert_eq!(program.post("/v1/lanes/generate/jobs", &other).await.status, 422);
    assert_eq!(program.ended(&id).await["status"], "failed");
    let letter = program.get(&format!("/v1/dead-letters/{id}")).await.json();
    assert_eq!(letter["originalData"]["params"], generation()["params"]);
    assert_eq!(letter["originalData"].get("request"), None);
    let before = upstream.requests().len();
    let replay = program.post(&format!("/v1/dead-letters/{id}/replay"), &json!({})).await.json();
    program.ended(replay["jobId"].as_str().unwrap()).await;
    assert_eq!(body(&upstream.requests()[before])["input"], generation()["params"]["input"]);
}

/// Policies look at the rendered request, not at the job.
#[tokio::test]
async fn limits_by_scope_count_the_rendered_request() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let config = format!(
        r#"
[lanes.generate]
chain = ["llm"]
[upstreams.llm]
url = "{}"
request = {{ path = "/v1/chat", headers = {{ X-Org = "{{params./org}}" }}, body = {{ max_tokens = "{{params./budget}}" }} }}
[[upstreams.llm.policies]]
name = "TOKENS"
match = {{ path = "/v1/chat" }}
scope = "header:X-Org"
capacity = 100
refill = "1/day"
hold = "body:/max_tokens"
"#,
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    let id = program.enqueue("generate", &json!({ "params": { "org": "acme", "budget": 70 } })).await;
    program.ended(&id).await;
    super::policies::settles_to(&program, "TOKENS", "acme", 30).await;
    let id = program.enqueue("generate", &json!({ "params": { "org": "acme", "budget": 31 } })).await;
    assert_eq!(program.why(&id).await, "rate_limit");
}
