//! "Em caso de falha no upstream (timeout, breaker aberto, erro 5xx), o cache também pode ser usado como fallback."

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use super::super::program;
use super::{CPF, Proxy, cpf, score};

/// A proxy with a stale cached answer; `then` is what the bureau does next.
async fn with_an_old_answer(then: impl IntoIterator<Item = Answer>) -> Proxy {
    let answers = [score("731"), score("0")].into_iter().chain(then);
    let env = [
        ("CACHE_TTL_SEC", "1"),
        ("REQUEST_TIMEOUT_MS", "2000"),
        ("BREAKER_FAILURE_THRESHOLD", "2"),
        ("BREAKER_OPEN_WINDOW_MS", "600000"),
    ];
    let proxy = Proxy::start(Behaviour::script(answers), &env).await;
    assert_eq!(proxy.ask_and_wait(CPF).await.json(), json!({ "score": 731 }));
    proxy.pass(1_000).await;
    proxy
}

/// Checks that the stale answer was used for this reason, and counted once.
async fn fell_back(proxy: &Proxy, answer: &program::Answer, motivo: &str) {
    assert_eq!((answer.status, answer.json()), (200, json!({ "score": 731 })), "{answer:?}");
    assert_eq!(proxy.jobs_total("fallback").await, 1);
    let fallbacks = |motivo| [("lane", "score"), ("motivo", motivo)];
    assert_eq!(proxy.program.metric("proxy_fallbacks_total", &fallbacks(motivo)).await, 1);
    for other in
        ["breaker_aberto", "timeout", "erro_5xx", "erro_conexao"].into_iter().filter(|other| *other != motivo)
    {
        assert_eq!(proxy.program.metric("proxy_fallbacks_total", &fallbacks(other)).await, 0);
    }
    // Two were processed to get here, and this one did not fail.
    assert_eq!((proxy.jobs_total("processed").await, proxy.jobs_total("failed").await), (2, 0));
}

#[tokio::test]
async fn an_old_answer_serves_when_the_bureau_does_not_answer_in_time() {
    let proxy = with_an_old_answer([Answer::hang()]).await;
    let answer = proxy.ask_and_wait(CPF).await;
    proxy.program.finished(answer.header("eclusa-job-id")).await;
    assert_eq!(answer.header("cache-status"), "eclusa; fwd=stale; detail=timeout");
    fell_back(&proxy, &answer, "timeout").await;
    assert_eq!(proxy.of_bureau("proxy_timeouts_total").await, 1);
}

#[tokio::test]
async fn an_old_answer_serves_when_the_bureau_fails() {
    let proxy = with_an_old_answer([Answer::status(503)]).await;
    let answer = proxy.ask_and_wait(CPF).await;
    proxy.program.finished(answer.header("eclusa-job-id")).await;
    assert_eq!(answer.header("cache-status"), "eclusa; fwd=stale; detail=erro_5xx");
    fell_back(&proxy, &answer, "erro_5xx").await;
}

/// An unreachable bureau, or one that hangs up, is not a 5xx.
#[tokio::test]
async fn an_old_answer_serves_when_there_is_no_connection_to_the_bureau() {
    let mut proxy = with_an_old_answer([]).await;
    proxy.bureau.close_connections().await;
    proxy.bureau = FakeUpstream::start(Answer::status(200)).await.unwrap();
    let answer = proxy.ask_and_wait(CPF).await;
    proxy.program.finished(answer.header("eclusa-job-id")).await;
    assert_eq!(answer.header("cache-status"), "eclusa; fwd=stale; detail=erro_conexao");
    fell_back(&proxy, &answer, "erro_conexao").await;

    let proxy = with_an_old_answer([Answer::reset()]).await;
    let answer = proxy.ask_and_wait(CPF).await;
    proxy.program.finished(answer.header("eclusa-job-id")).await;
    fell_back(&proxy, &answer, "erro_conexao").await;
}

/// 429 means later and 501 never: neither is a failure of the bureau.
#[tokio::test]
async fn no_old_answer_serves_after_429_or_501() {
    for status in [429, 501] {
        let proxy = with_an_old_answer([Answer::status(status)]).await;
        let answer = proxy.ask_and_wait(CPF).await;
        assert_eq!(answer.status, status);
        proxy.program.finished(answer.header("eclusa-job-id")).await;
        assert_eq!(
            (proxy.jobs_total("fallback").await, proxy.jobs_total("failed").await),
            (0, 1),
            "{status}"
        );
    }
}

/// Without a stale answer, an open breaker means that no call is made.
#[tokio::test]
async fn a_call_that_an_open_breaker_prevents_is_counted() {
    let proxy = with_an_old_answer([]).await;
    for _ in 0..2 {
        proxy.program.post("/v1/breakers/bureau/failure", &json!(null)).await;
    }
    assert_eq!(proxy.of_bureau("eclusa_calls_avoided_total").await, 0);
    let answer = proxy.ask(&cpf(1), &[("eclusa-ttl", "100ms"), ("prefer", "wait=60")]).await;
    assert_eq!((answer.status, &answer.json()["reason"]), (503, &json!("ttl_expired")));
    proxy.program.finished(answer.json()["jobId"].as_str().unwrap()).await;
    assert_eq!(proxy.of_bureau("eclusa_calls_avoided_total").await, 1);
    let refused = proxy.program.post("/v1/limits/bureau/acquire", &json!({})).await;
    assert_eq!((refused.status, &refused.json()["reason"]), (429, &json!("circuit_open")));
    assert_eq!(proxy.of_bureau("eclusa_calls_avoided_total").await, 2);
    // A stale answer is an answer.
    proxy.ask(CPF, &[]).await;
    assert_eq!(proxy.of_bureau("eclusa_calls_avoided_total").await, 2);
    assert_eq!(proxy.bureau.requests().len(), 2);
}

/// With the breaker open, the stale answer is returned at once, without a job.
#[tokio::test]
async fn an_old_answer_serves_at_once_while_the_breaker_is_open() {
    let proxy = with_an_old_answer([]).await;
    for _ in 0..2 {
        proxy.program.post("/v1/breakers/bureau/failure", &json!(null)).await;
    }
    let answer = proxy.ask(CPF, &[]).await;
    let status = answer.header("cache-status");
    assert!(
        status.starts_with("eclusa; hit; ttl=") && status.ends_with("; detail=breaker_aberto"),
        "{status}"
    );
    fell_back(&proxy, &answer, "breaker_aberto").await;
    assert_eq!(proxy.bureau.requests().len(), 2);
}

/// With the breaker open, a job that is already waiting gets the stale answer.
#[tokio::test]
async fn an_old_answer_serves_a_job_that_waits_when_the_breaker_opens() {
    let proxy = with_an_old_answer([]).await;
    proxy.program.pause("score").await;
    let waiting = proxy.take_in(CPF, &[("idempotency-key", "once")]).await;
    for _ in 0..2 {
        proxy.program.post("/v1/breakers/bureau/failure", &json!(null)).await;
    }
    proxy.program.resume("score").await;
    let job = proxy.program.finished(&waiting).await;
    assert_eq!((&job["status"], &job["reason"]), (&json!("completed"), &json!("breaker_aberto")));
    let answer = proxy.ask(CPF, &[("idempotency-key", "once"), ("prefer", "wait=60")]).await;
    assert_eq!(answer.header("cache-status"), "eclusa; fwd=stale; detail=breaker_aberto");
    fell_back(&proxy, &answer, "breaker_aberto").await;
    assert_eq!(proxy.bureau.requests().len(), 2);
}

/// A 4xx is the caller's error, not the bureau's: a stale answer would hide it.
#[tokio::test]
async fn no_old_answer_serves_when_the_bureau_refuses_the_request() {
    let proxy = with_an_old_answer([Answer::status(404).body("unknown")]).await;
    let answer = proxy.ask_and_wait(CPF).await;
    assert_eq!((answer.status, answer.text()), (404, "unknown"));
    proxy.program.finished(answer.header("eclusa-job-id")).await;
    assert_eq!((proxy.jobs_total("fallback").await, proxy.jobs_total("failed").await), (0, 1));
}

/// Without a stale answer, a failure is reported as such.
#[tokio::test]
async fn a_failure_without_an_old_answer_is_a_failure() {
    let proxy = with_an_old_answer([Answer::status(503)]).await;
    let answer = proxy.ask_and_wait(&cpf(1)).await;
    assert_eq!(answer.status, 503);
    proxy.program.finished(answer.header("eclusa-job-id")).await;
    assert_eq!((proxy.jobs_total("fallback").await, proxy.jobs_total("failed").await), (0, 1));
}
