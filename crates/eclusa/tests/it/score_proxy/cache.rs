//! "Cache de Respostas Recentes": the bureau is asked once.

use eclusa::fake::{Answer, Behaviour, FakeUpstream, Latch};
use serde_json::json;

use super::{CPF, Program, Proxy, cpf, program, score};

/// The remaining freshness in seconds that a hit reports.
fn ttl(cache_status: &str) -> u64 {
    let ttl = cache_status.strip_prefix("eclusa; hit; ttl=");
    ttl.and_then(|ttl| ttl.parse().ok()).unwrap_or_else(|| panic!("{cache_status}"))
}

/// "Cliente B faz a mesma requisição logo em seguida. Resposta vem do cache, sem custo para o upstream."
#[tokio::test]
async fn a_second_client_is_answered_from_the_cache() {
    let proxy = Proxy::start(Behaviour::script([score("731"), score("0")]), &[]).await;
    let first = proxy.ask_and_wait(CPF).await;
    assert_eq!((first.status, first.header("cache-status")), (200, "eclusa; fwd=miss; stored"));
    let second = proxy.ask(CPF, &[]).await;
    assert_eq!((second.status, second.json()), (200, json!({ "score": 731 })));
    assert_eq!(second.header("content-type"), "application/json");
    // A minute by default, of which some has passed.
    assert!(ttl(second.header("cache-status")) <= 60, "{second:?}");
    assert_eq!(proxy.bureau.requests().len(), 1);
    assert_eq!(proxy.program.metric("eclusa_cache_hits_total", &[("lane", "score")]).await, 1);

    let third = json!({ "request": { "query": { "cpf": CPF } } });
    let third = proxy.program.post("/v1/lanes/score/jobs", &third).await;
    assert_eq!((third.status, &third.json()["result"]["body"]), (200, &json!({ "score": 731 })));
    assert!(ttl(third.header("cache-status")) <= 60);

    let other = proxy.ask_and_wait(&cpf(1)).await;
    assert_eq!(other.json(), json!({ "score": 0 }));
    assert_eq!(proxy.bureau.requests().len(), 2);
}

/// A refusal is not cached, and the answer does not claim so. A request that was never sent has no `Cache-Status`.
#[tokio::test]
async fn only_what_is_stored_is_called_stored() {
    let proxy = Proxy::start(Behaviour::script([Answer::status(404), score("731")]), &[]).await;
    let refused = proxy.ask_and_wait(CPF).await;
    assert_eq!((refused.status, refused.header("cache-status")), (404, "eclusa; fwd=miss"));
    let answered = proxy.ask_and_wait(CPF).await;
    assert_eq!((answered.status, answered.header("cache-status")), (200, "eclusa; fwd=miss; stored"));

    proxy.program.pause("score").await;
    let expired = proxy.ask(&cpf(1), &[("eclusa-ttl", "100ms"), ("prefer", "wait=60")]).await;
    assert_eq!((expired.status, expired.headers.get("cache-status")), (503, None));
}

/// A temporary redirect is not shared with other callers.
#[tokio::test]
async fn of_redirections_only_permanent_ones_are_stored() {
    for (status, stored) in [(302, false), (303, false), (307, false), (301, true), (308, true)] {
        let moved = Answer::status(status).header("location", "/elsewhere");
        let proxy = Proxy::start(Behaviour::script([moved, score("731")]), &[]).await;
        let first = proxy.ask_and_wait(CPF).await;
        let said = if stored { "eclusa; fwd=miss; stored" } else { "eclusa; fwd=miss" };
        assert_eq!((first.status, first.header("cache-status")), (status, said));
        let second = proxy.ask_and_wait(CPF).await;
        assert_eq!(second.status, if stored { status } else { 200 }, "after {status}");
    }
}

/// `CACHE_TTL_SEC` says how long, and not longer.
#[tokio::test]
async fn an_answer_is_used_again_until_its_time_is_over() {
    let long = Proxy::start(score("1"), &[("CACHE_TTL_SEC", "3600")]).await;
    assert_eq!(long.ask_and_wait(CPF).await.status, 200);
    assert!((3_000..=3_600).contains(&ttl(long.ask(CPF, &[]).await.header("cache-status"))));

    let short =
        Proxy::start(Behaviour::script([score("1"), score("0"), score("2")]), &[("CACHE_TTL_SEC", "1")])
            .await;
    assert_eq!(short.ask_and_wait(CPF).await.json(), json!({ "score": 1 }));
    short.pass(1_000).await;
    let again = short.ask_and_wait(CPF).await;
    assert_eq!(
        (again.json(), again.header("cache-status")),
        (json!({ "score": 2 }), "eclusa; fwd=miss; stored")
    );
    assert_eq!(short.bureau.requests().len(), 3);
}

/// "Antes de enviar uma chamada ao upstream, o scheduler consulta o cache".
#[tokio::test]
async fn the_cache_is_asked_again_before_a_call() {
    let proxy = Proxy::start(score("731"), &[]).await;
    // A delayed job is not answered at intake.
    let put_off = json!({ "delay": "1s", "request": { "query": { "cpf": CPF } } });
    let put_off = proxy.program.enqueue("score", &put_off).await;
    assert_eq!(proxy.ask_and_wait(CPF).await.status, 200);
    let job = proxy.program.finished(&put_off).await;
    assert_eq!((&job["status"], &job["reason"]), (&json!("completed"), &json!("cache")));
    assert_eq!(job["result"]["body"], json!({ "score": 731 }));
    assert_eq!(proxy.bureau.requests().len(), 1);
    assert_eq!(proxy.jobs_total("processed").await, 2);
    let totals = proxy.program.get("/v1/lanes/score").await.json()["totals"].clone();
    assert_eq!((&totals["completed"], &totals["cacheHits"]), (&json!(1), &json!(1)), "{totals}");
}

/// Equal requests in flight are sent once, and all get the answer.
#[tokio::test]
async fn equal_requests_in_flight_are_sent_once() {
    let latch = Latch::default();
    let proxy = Proxy::start(score("731").after(&latch), &[]).await;
    let first = proxy.take_in(CPF, &[]).await;
    proxy.bureau.wait_for(1).await;
    let (second, third) = (proxy.take_in(CPF, &[]).await, proxy.take_in_as(CPF, "high").await);
    assert_eq!(proxy.program.why(&second).await, "coalesced");
    assert_eq!(proxy.program.why(&third).await, "coalesced");
    latch.open();
    for (job, reason) in [(first, json!(null)), (second, json!("coalesced")), (third, json!("coalesced"))] {
        let job = proxy.program.finished(&job).await;
        assert_eq!((&job["status"], &job["reason"]), (&json!("completed"), &reason));
        assert_eq!(job["result"]["body"], json!({ "score": 731 }));
    }
    assert_eq!(proxy.bureau.requests().len(), 1);
    assert_eq!(proxy.jobs_total("processed").await, 3);
    // `completed` of a lane counts only calls; the metric counts all answered jobs.
    let totals = proxy.program.get("/v1/lanes/score").await.json()["totals"].clone();
    let of = |name: &str| totals[name].as_u64().unwrap();
    assert_eq!((of("completed"), of("coalesced"), of("cacheHits")), (1, 2, 0), "{totals}");
}

/// A failure is not shared: the next of the equal requests is sent.
#[tokio::test]
async fn a_failure_is_not_shared() {
    let latch = Latch::default();
    let answers = [Answer::status(500).after(&latch), score("2")];
    let proxy = Proxy::start(Behaviour::script(answers), &[]).await;
    let first = proxy.take_in(CPF, &[]).await;
    proxy.bureau.wait_for(1).await;
    let second = proxy.take_in(CPF, &[]).await;
    latch.open();
    assert_eq!(proxy.program.finished(&first).await["status"], "failed");
    let second = proxy.program.finished(&second).await;
    assert_eq!((&second["status"], &second["result"]["body"]), (&json!("completed"), &json!({ "score": 2 })));
    assert_eq!(proxy.bureau.requests().len(), 2);
}

/// Cached answers survive a crash.
#[tokio::test]
async fn the_cache_survives_a_crash() {
    let proxy = Proxy::start(score("731"), &[]).await;
    assert_eq!(proxy.ask_and_wait(CPF).await.status, 200);
    let Proxy { program, bureau } = proxy;
    let dir = program.kill().await;
    let config = std::fs::read_to_string(dir.path().join("eclusa.toml")).unwrap();
    let program = super::Program::start_in(dir, &config, &[("UPSTREAM_URL", &bureau.url())]).await;
    let proxy = Proxy { program, bureau };
    let answer = proxy.ask(CPF, &[]).await;
    assert_eq!((answer.status, answer.json()), (200, json!({ "score": 731 })));
    assert!(ttl(answer.header("cache-status")) <= 60);
    assert_eq!(proxy.bureau.requests().len(), 1);
}

/// Another path, another method or a body must not fill the entry that `GET /proxy/score?cpf=…` reads.
#[tokio::test]
async fn no_request_can_replace_the_cached_answer_of_a_cpf() {
    let example = std::fs::read_to_string(program::example("score-proxy.toml")).unwrap();
    let default = example
        .replace("key_scope = \"all\", ", "")
        .replace("accept = { methods = [\"GET\"], paths = [\"/\"] }", "")
        .replace("listen = \"127.0.0.1:8080\"", "listen = \"127.0.0.1:0\"");
    assert!(!default.contains("key_scope") && !default.contains("accept ="));
    let bureau = FakeUpstream::start(Behaviour::by(|request| {
        let right = request.method == "GET" && request.path == "/" && request.body.is_empty();
        score(if right { "731" } else { "0" })
    }));
    let bureau = bureau.await.unwrap();
    let quick =
        [("UPSTREAM_URL", &*bureau.url()), ("SCHEDULER_INITIAL_INTERVAL_MS", "50"), ("JOB_TTL_MS", "600000")];
    let strict = Program::start_example("score-proxy.toml", &quick).await;
    let keyed = Program::start(&default, &quick).await;
    for (program, refused) in [(strict, true), (keyed, false)] {
        for (method, path, body) in [("GET", "/other", ""), ("POST", "", ""), ("GET", "", "x")] {
            let path = format!("/proxy/score{path}?cpf={CPF}");
            let answer = program.send(method, &path, &[("prefer", "wait=60")], body).await;
            let status = if refused && body.is_empty() { 422 } else { 200 };
            assert_eq!(answer.status, status, "{method} {path} {}", answer.text());
        }
        let path = format!("/proxy/score?cpf={CPF}");
        let answer = program.send("GET", &path, &[("prefer", "wait=60")], "").await;
        assert_eq!((answer.status, answer.json()), (200, json!({ "score": 731 })));
    }
}
