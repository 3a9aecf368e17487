//! Costs from the answer: in JSON, and in the last event of a stream.

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use super::{settles_to, start};

const TOKENS: &str = r#"
[[upstreams.dict.policies]]
name = "TOKENS"
match = { method = ["POST"] }
scope = "tenant"
capacity = 1000
refill = "1/day"
hold = "body:/max_tokens"
cost = { from = "body:/usage/total_tokens", "429" = 0, default = 1 }
"#;

fn json_answer(tokens: u32) -> Answer {
    let body = json!({ "usage": { "total_tokens": tokens } }).to_string();
    Answer::status(200).header("content-type", "application/json").body(body)
}

fn events(tokens: u32) -> Answer {
    let body = format!(
        "data: {{\"delta\":\"a\"}}\n\ndata: {{\"usage\":{{\"total_tokens\":{tokens}}}}}\n\ndata: [DONE]\n\n"
    );
    Answer::status(200).header("content-type", "text/event-stream").body(body)
}

#[tokio::test]
async fn a_direct_lane_charges_the_cost_in_the_response() {
    let answers = [json_answer(120), events(80), Answer::status(200).body("nothing"), Answer::status(429)];
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = start(&upstream.url(), TOKENS).await;
    for left in [880, 800, 500, 500] {
        let body = json!({ "max_tokens": 300 }).to_string();
        program.send("POST", "/proxy/fast/v1/chat", &[("eclusa-tenant", "acme")], &body).await;
        settles_to(&program, "TOKENS", "acme", left).await;
    }
    let much = json!({ "max_tokens": 501 }).to_string();
    let denied = program.send("POST", "/proxy/fast/v1/chat", &[("eclusa-tenant", "acme")], &much).await;
    assert_eq!((denied.status, denied.header("ratelimit").contains("\"TOKENS\";r=500")), (429, true));
    let never = json!({ "max_tokens": 1001 }).to_string();
    let refused = program.send("POST", "/proxy/fast/v1/chat", &[("eclusa-tenant", "acme")], &never).await;
    assert_eq!(
        (refused.status, refused.json()["errors"][0]["field"].as_str()),
        (422, Some("body./max_tokens"))
    );
}

#[tokio::test]
async fn a_queue_charges_the_cost_in_the_response() {
    let upstream = FakeUpstream::start(Behaviour::script([json_answer(120), events(80)])).await.unwrap();
    let program = start(&upstream.url(), TOKENS).await;
    for left in [880, 800] {
        let request = json!({ "path": "/v1/chat", "body": { "max_tokens": 300 } });
        let id = program.enqueue("slow", &json!({ "tenant": "acme", "request": request })).await;
        program.ended(&id).await;
        settles_to(&program, "TOKENS", "acme", left).await;
    }
}

/// A compressed answer cannot be read, and would cost what was held.
#[tokio::test]
async fn an_upstream_that_is_charged_by_its_answers_is_asked_not_to_compress_them() {
    let upstream = FakeUpstream::start(json_answer(10)).await.unwrap();
    let program = start(&upstream.url(), TOKENS).await;
    let gzip = [("accept-encoding", "gzip, br")];
    program.send("POST", "/proxy/fast/v1/chat", &gzip, "{}").await;
    let request = json!({ "path": "/v1/chat", "headers": { "accept-encoding": "gzip" }, "body": {} });
    let id = program.enqueue("slow", &json!({ "request": request })).await;
    program.ended(&id).await;
    for seen in upstream.requests() {
        let asked: Vec<_> = seen.headers.get_all("accept-encoding").iter().collect();
        assert_eq!(asked, ["identity"]);
    }
    assert_eq!(upstream.requests().len(), 2);
}

/// A body too large to buffer for a second upstream is still read completely if a policy needs it.
#[tokio::test]
async fn a_large_body_is_read_for_a_policy() {
    let upstream = FakeUpstream::start(json_answer(10)).await.unwrap();
    let program = start(&upstream.url(), TOKENS).await;
    let body = json!({ "pad": "x".repeat(200_000), "max_tokens": 1000 }).to_string();
    let answer = program.send("POST", "/proxy/fast/v1/chat", &[], &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(upstream.requests()[0].body.len(), body.len());
    settles_to(&program, "TOKENS", "default", 990).await;
}
