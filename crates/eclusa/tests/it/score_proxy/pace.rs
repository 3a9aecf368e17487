//! "Como um Job sai da Fila": one job per tick, and the tick adapts.

use eclusa::fake::{Answer, Behaviour};
use serde_json::json;

use super::super::program::starts;
use super::{Proxy, cpf, score};

/// "processa 1 job por tick": however many wait, each starts at least an interval after the previous one.
#[tokio::test]
async fn one_job_starts_per_tick() {
    let proxy = Proxy::start(Answer::status(200), &[("SCHEDULER_INITIAL_INTERVAL_MS", "200")]).await;
    proxy.program.pause("score").await;
    let mut jobs = Vec::new();
    for number in 0..5 {
        jobs.push(proxy.take_in(&cpf(number), &[]).await);
    }
    proxy.program.resume("score").await;
    let mut times = Vec::new();
    for job in &jobs {
        times.extend(starts(&proxy.program.finished(job).await));
    }
    assert_eq!(times.len(), 5);
    // Each interval is the one at its start; every earlier success made it at most a tenth shorter.
    for (pair, least) in times.windows(2).zip([200, 180, 162, 145]) {
        assert!(pair[1] - pair[0] >= least, "{times:?}");
    }
}

/// "pode ajustar a cadência": shorter after success, longer after errors, timeouts and 429.
#[tokio::test]
async fn the_tick_adapts_to_how_the_bureau_takes_it() {
    let answers = [
        score("1"),
        score("2"),
        Answer::status(500),
        Answer::hang(),
        Answer::status(404),
        Answer::status(429),
    ];
    let env = [("SCHEDULER_INITIAL_INTERVAL_MS", "200"), ("REQUEST_TIMEOUT_MS", "2000")];
    let proxy = Proxy::start(Behaviour::script(answers), &env).await;
    for (number, interval) in (0..).zip([180, 162, 243, 365, 365, 729]) {
        let job = proxy.take_in(&cpf(number), &[]).await;
        proxy.program.finished(&job).await;
        assert_eq!(proxy.program.gate("bureau", "pace").await["level"], interval, "after answer {number}");
    }
}

/// "A chamada ao upstream tem timeout (`REQUEST_TIMEOUT_MS`)": the job fails, and both are counted.
#[tokio::test]
async fn a_call_that_takes_too_long_fails_the_job() {
    let proxy = Proxy::start(Answer::hang(), &[("REQUEST_TIMEOUT_MS", "100")]).await;
    let job = proxy.take_in(&cpf(1), &[]).await;
    let failed = proxy.program.finished(&job).await;
    assert_eq!((&failed["status"], &failed["attempts"]), (&json!("failed"), &json!(1)));
    assert_eq!(failed["lastFailure"]["code"], "timeout");
    assert_eq!(proxy.of_bureau("proxy_timeouts_total").await, 1);
    let timeouts = [("upstream", "bureau"), ("code", "timeout")];
    assert_eq!(proxy.program.metric("proxy_upstream_errors_total", &timeouts).await, 1);
    assert_eq!(proxy.jobs_total("failed").await, 1);
    let line = proxy.program.logged("Job failed permanently", &[("jobId", &job)]).await;
    assert_eq!(line["errorCode"], "timeout");
}

/// "Em caso de erro: contabiliza failed e as métricas de erro", by code, and nothing is repeated.
#[tokio::test]
async fn an_error_fails_the_job_and_is_counted_by_its_code() {
    let proxy = Proxy::start(Behaviour::script([Answer::status(503), Answer::status(404)]), &[]).await;
    for (number, code) in [(1, "503"), (2, "404")] {
        let job = proxy.take_in(&cpf(number), &[]).await;
        let failed = proxy.program.finished(&job).await;
        assert_eq!((&failed["status"], &failed["lastFailure"]["code"]), (&json!("failed"), &json!(code)));
        let labels = [("upstream", "bureau"), ("code", code)];
        assert_eq!(proxy.program.metric("proxy_upstream_errors_total", &labels).await, 1);
    }
    assert_eq!(proxy.jobs_total("failed").await, 2);
    assert_eq!(proxy.bureau.requests().len(), 2);
}

/// A 429 without a time is a penalty too; other errors are not.
#[tokio::test]
async fn every_429_counts_as_a_penalty() {
    let answers = [Answer::status(429), Answer::status(503), Answer::status(404)];
    let proxy = Proxy::start(Behaviour::script(answers), &[]).await;
    for number in 1..=3 {
        let job = proxy.take_in(&cpf(number), &[]).await;
        assert_eq!(proxy.program.finished(&job).await["status"], "failed");
    }
    assert_eq!(proxy.of_bureau("proxy_rate_limit_penalties_total").await, 1);
}

/// `proxy_rate_limit_penalties_total`: the bureau's Retry-After is respected.
#[tokio::test]
async fn the_bureau_can_ask_to_be_left_alone() {
    let answer = Answer::status(429).header("retry-after", "60");
    let proxy = Proxy::start(Behaviour::script([answer]), &[]).await;
    let first = proxy.take_in(&cpf(1), &[]).await;
    assert_eq!(proxy.program.finished(&first).await["lastFailure"]["code"], "429");
    assert_eq!(proxy.of_bureau("proxy_rate_limit_penalties_total").await, 1);
    let second = proxy.take_in(&cpf(2), &[]).await;
    assert_eq!(proxy.program.why(&second).await, "upstream_retry_after");
    assert_eq!(proxy.bureau.requests().len(), 1);
}
