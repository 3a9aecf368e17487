//! Which upstream of its chain a job goes to, and what happens if none admits it.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::json;

use super::program::{Answer as Response, Program};

/// A lane with the chain `a`, `b`, each with these rules, and one attempt per job.
async fn start(a: (&FakeUpstream, &str), b: (&FakeUpstream, &str), of_lane: &str) -> Program {
    let config = format!(
        "[lanes.work]\nchain = [\"a\", \"b\"]\n{of_lane}\n[upstreams.a]\nurl = \"{}\"\n{}\n[upstreams.b]\nurl = \"{}\"\n{}\n",
        a.0.url(),
        a.1,
        b.0.url(),
        b.1
    );
    Program::start(&config, &[]).await
}

async fn upstream(behaviour: impl Into<Behaviour>) -> FakeUpstream {
    FakeUpstream::start(behaviour).await.unwrap()
}

async fn enqueue(program: &Program, path: &str) -> String {
    program.enqueue("work", &json!({ "request": { "path": path } })).await
}

#[tokio::test]
async fn when_all_fail_the_job_fails_or_is_tried_again_as_the_lane_says() {
    for (attempts, retry) in
        [(1, "retry = { attempts = 1 }"), (2, "retry = { attempts = 2, base = \"1ms\" }")]
    {
        let (a, b) = (upstream(Answer::status(503)).await, upstream(Answer::status(429)).await);
        let program = start((&a, ""), (&b, ""), retry).await;
        let ended = program.ended(&enqueue(&program, "/x").await).await;
        assert_eq!((&ended["status"], &ended["attempts"]), (&json!("failed"), &json!(attempts)));
        assert_eq!(
            (&ended["lastFailure"]["code"], &ended["lastFailure"]["upstream"]),
            (&json!("429"), &json!("b"))
        );
        assert_eq!((a.requests().len(), b.requests().len()), (attempts, attempts), "each once in a pass");
    }
}

#[tokio::test]
async fn when_all_are_hot_the_line_waits_and_no_attempt_is_spent() {
    let once = |status| Behaviour::script([Answer::status(status)]).then(Answer::status(200));
    let (a, b) = (upstream(once(503)).await, upstream(once(503)).await);
    let rules = "cooldown = [\"1s\"]";
    let program = start((&a, rules), (&b, rules), "retry = { attempts = 1 }").await;
    let first = enqueue(&program, "/first").await;
    assert_eq!(program.ended(&first).await["status"], "failed");
    let second = enqueue(&program, "/second").await;
    assert_eq!(program.why(&second).await, "cooldown");
    let waiting = program.get(&format!("/v1/jobs/{second}")).await.json();
    assert_eq!((&waiting["status"], &waiting["attempts"]), (&json!("queued"), &json!(0)));
    let ended = program.ended(&second).await;
    assert_eq!(
        (&ended["status"], &ended["attempts"], &ended["upstream"]),
        (&json!("completed"), &json!(1), &json!("a"))
    );
}

#[tokio::test]
async fn with_some_tried_and_the_rest_busy_the_job_waits_for_those_and_tries_none_twice() {
    let latch = Latch::default();
    let a = upstream(Answer::status(503)).await;
    let b = upstream(Behaviour::script([Answer::status(200).after(&latch)]).then(Answer::status(200))).await;
    let program = start((&a, ""), (&b, "max_concurrent = 1"), "retry = { attempts = 1 }").await;
    let hog = enqueue(&program, "/hog").await;
    b.wait_for(1).await;
    let waiting = enqueue(&program, "/waiting").await;
    let waits_for_b = |answer: &Response| answer.json()["reason"] == "concurrency";
    program.until(&format!("/v1/jobs/{waiting}/why"), waits_for_b).await;
    assert_eq!(program.get(&format!("/v1/jobs/{waiting}")).await.json()["status"], "queued");
    latch.open();
    assert_eq!(program.ended(&hog).await["upstream"], "b");
    let ended = program.ended(&waiting).await;
    assert_eq!(
        (&ended["status"], &ended["upstream"], &ended["attempts"]),
        (&json!("completed"), &json!("b"), &json!(1))
    );
    assert_eq!(a.requests().len(), 2, "each job was there once");
}

/// In chain order, skipping upstreams without slots or requests per minute.
#[tokio::test]
async fn a_job_goes_to_the_first_upstream_with_room_in_its_slots_and_window() {
    let latch = Latch::default();
    let a = upstream(Answer::status(200).after(&latch)).await;
    let b = upstream(Behaviour::script([Answer::status(200)]).then(Answer::status(200))).await;
    let program = start((&a, "max_concurrent = 1"), (&b, "rpm = 1"), "").await;
    enqueue(&program, "/1").await;
    a.wait_for(1).await;
    let second = enqueue(&program, "/2").await;
    assert_eq!(program.ended(&second).await["upstream"], "b");
    let third = enqueue(&program, "/3").await;
    assert_eq!(program.why(&third).await, "concurrency", "of the two it opens first");
    latch.open();
    assert_eq!(program.ended(&third).await["upstream"], "a");
}
