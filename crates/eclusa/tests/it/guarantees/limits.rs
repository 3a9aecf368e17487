//! A limit is never exceeded, in any interval and across restarts.

use std::time::Duration;

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};

use super::super::program::{Program, starts};
use super::{again, config, enqueue};

/// How long the upstream takes to answer. It may count a call at any time until then.
const ANSWERS_AFTER_MS: i64 = 250;
/// How much the clocks of two processes may deviate in a minute, while they follow the machine's clock.
const CLOCKS_MS: i64 = 40;

/// `rpm = 5`: in any sixty seconds the upstream counts five calls, also when the process is killed in between.
#[tokio::test]
async fn no_minute_holds_more_calls_than_allowed_even_across_a_kill() {
    let delay = Duration::from_millis(ANSWERS_AFTER_MS.unsigned_abs());
    let upstream = FakeUpstream::start(Answer::status(200).delay(delay)).await.unwrap();
    let program = Program::start(&config(&upstream, "", "rpm = 5"), &[]).await;
    let ids = enqueue(&program, 3).await;
    for id in &ids {
        program.ended(id).await;
    }
    let program = again(program.kill().await).await;
    let mut ids = ids;
    ids.extend(enqueue(&program, 5).await);
    upstream.wait_for(5).await;
    assert_eq!(program.why(&ids[5]).await, "window");
    let mut times = Vec::new();
    for id in &ids {
        // A request may wait as long as the window.
        program.ended(id).await;
        times.extend(starts(&program.ended(id).await));
    }
    assert_eq!((times.len(), upstream.requests().len()), (8, 8));
    times.sort_unstable();
    let seen: Vec<i64> =
        upstream.requests().iter().map(|seen| i64::try_from(seen.at.as_millis()).unwrap()).collect();
    // Between the answer of a call and the fifth start after it.
    let least = 60_000 + ANSWERS_AFTER_MS - CLOCKS_MS;
    for times in [&times, &seen] {
        for six in times.windows(6) {
            assert!(six[5] - six[0] >= least, "{times:?}");
        }
    }
}

/// `max_concurrent = 3`: the upstream never has more than three unanswered calls.
#[tokio::test]
async fn no_more_calls_than_allowed_are_under_way() {
    const JOBS: usize = 10;
    const AT_ONCE: usize = 3;
    let latches: Vec<Latch> = (0..JOBS).map(|_| Latch::default()).collect();
    let answers = latches.iter().map(|latch| Answer::status(200).after(latch)).collect::<Vec<_>>();
    let upstream = FakeUpstream::start(Behaviour::script(answers)).await.unwrap();
    let program = Program::start(&config(&upstream, "", "max_concurrent = 3"), &[]).await;
    program.pause("work").await;
    let ids = enqueue(&program, JOBS).await;
    program.resume("work").await;
    for (answered, latch) in latches.iter().enumerate() {
        let come = JOBS.min(answered + AT_ONCE);
        upstream.wait_for(come as u64).await;
        if come < JOBS {
            assert_eq!(program.why(&ids[come]).await, "concurrency");
        }
        let in_flight = program.get("/v1/upstreams/up").await.json()["inFlight"].as_u64().unwrap();
        assert!(in_flight <= AT_ONCE as u64, "{in_flight} at once");
        assert_eq!(upstream.requests().len(), come, "{answered} were answered");
        latch.open();
    }
    for id in &ids {
        assert_eq!(program.ended(id).await["status"], "completed");
    }
}

/// `rate = "5/s", burst = 2`: after the burst one call per token.
#[tokio::test]
async fn a_bucket_lets_through_its_burst_and_then_one_call_per_token() {
    let upstream = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let program = Program::start(&config(&upstream, "", "rate = \"5/s\"\nburst = 2"), &[]).await;
    program.pause("work").await;
    let ids = enqueue(&program, 6).await;
    program.resume("work").await;
    let mut times = Vec::new();
    for id in &ids {
        times.extend(starts(&program.ended(id).await));
    }
    times.sort_unstable();
    // Call n has waited for n-1 tokens, two of which were available.
    for (tokens, at) in (0..).zip(times.iter().skip(1)) {
        assert!(at - times[0] >= 200 * tokens, "{times:?}");
    }
}

/// A lane has its own limits, over all its upstreams.
#[tokio::test]
async fn a_lane_can_be_limited_itself() {
    let latch = Latch::default();
    let upstream = FakeUpstream::start(Answer::status(200).after(&latch)).await.unwrap();
    let program = Program::start(&config(&upstream, "concurrency = 2", ""), &[]).await;
    program.pause("work").await;
    let ids = enqueue(&program, 3).await;
    program.resume("work").await;
    upstream.wait_for(2).await;
    assert_eq!(program.why(&ids[2]).await, "concurrency");
    assert_eq!(program.get("/v1/lanes/work").await.json()["processing"], 2);
    latch.open();
    assert_eq!(program.ended(&ids[2]).await["status"], "completed");
}
