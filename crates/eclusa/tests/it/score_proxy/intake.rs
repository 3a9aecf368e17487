//! "Como um Job entra na Fila": what is validated, what is answered, what is kept.

use eclusa::fake::{Answer, Latch};
use serde_json::json;

use super::super::program::{Program, millis};
use super::{CPF, Proxy, cpf, score};

/// The endpoint validates the parameters: only a valid CPF is accepted, and no error repeats the value.
#[tokio::test]
async fn only_a_right_cpf_is_taken_in() {
    let proxy = Proxy::start(Answer::status(200), &[]).await;
    for (query, field) in [
        ("?cpf=05227892181", "query.cpf"),
        ("?cpf=05227892170", "query.cpf"),
        ("?cpf=052.278.921-80", "query.cpf"),
        ("?cpf=11111111111", "query.cpf"),
        ("?cpf=5227892180", "query.cpf"),
        ("?cpf=", "query.cpf"),
        ("?", "query.cpf"),
        ("", "query.cpf"),
        ("?cpf=05227892180&cpf=05227892180", "query.cpf"),
        ("?cpf=05227892180&nome=05227892180", "query.nome"),
        ("?CPF=05227892180", "query.cpf"),
    ] {
        let answer = proxy.program.get(&format!("/proxy/score{query}")).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (422, "application/problem+json"),
            "{query}"
        );
        let problem = answer.json();
        assert_eq!(problem["type"], "urn:eclusa:problem:invalid");
        let errors = problem["errors"].as_array().unwrap();
        assert!(errors.iter().any(|error| error["field"] == field), "{query}: {problem}");
        let value = query.rsplit('=').next().filter(|value| value.len() > 1).unwrap_or("no value");
        assert!(!answer.text().contains(value), "{}", answer.text());
    }
    let job = json!({ "request": { "query": { "cpf": "05227892181" } } });
    let answer = proxy.program.post("/v1/lanes/score/jobs", &job).await;
    assert_eq!((answer.status, &answer.json()["errors"][0]["field"]), (422, &json!("query.cpf")));
    let lane = proxy.program.get("/v1/lanes/score").await.json();
    assert_eq!(lane["totals"]["accepted"], 0);
    assert!(proxy.bureau.requests().is_empty());
}

/// "retorna 202 com jobId ao enfileirar", with the job's URL, its position in the queue, and its earliest start.
#[tokio::test]
async fn an_accepted_job_is_answered_with_202_and_its_position() {
    let latch = Latch::default();
    let env = [("SCHEDULER_INITIAL_INTERVAL_MS", "60000")];
    let proxy = Proxy::start(score("1").after(&latch), &env).await;
    let first = proxy.take_in(CPF, &[]).await;
    proxy.bureau.wait_for(1).await;
    let (second, third) = (proxy.ask(&cpf(2), &[]).await, proxy.ask(&cpf(3), &[]).await);
    for answer in [&second, &third] {
        let (taken, id) = (answer.json(), answer.json()["jobId"].as_str().unwrap().to_owned());
        assert_eq!(
            (answer.status, &taken["status"], &taken["lane"]),
            (202, &json!("queued"), &json!("score"))
        );
        assert_eq!(answer.header("location"), format!("/v1/jobs/{id}"));
        assert_eq!(answer.header("eclusa-job-id"), id);
        assert_eq!(
            proxy.program.get(answer.header("location")).await.json()["expiresAt"],
            taken["expiresAt"]
        );
    }
    let (second, third) = (second.json(), third.json());
    assert_eq!((&second["position"], &third["position"]), (&json!(0), &json!(1)));
    // One call per tick: the second a minute after the first, the third another minute later.
    let started = super::program::starts(&proxy.job(&first).await)[0];
    assert_eq!(millis(&second["eta"]), started + 60_000);
    assert_eq!(millis(&third["eta"]), started + 120_000);
}

/// "por padrão, prioridade normal"; producers may say `priority` or `type`.
#[tokio::test]
async fn a_job_is_normal_unless_its_priority_or_type_says_otherwise() {
    let proxy = Proxy::start(Answer::status(200), &[]).await;
    proxy.program.pause("score").await;
    for (at, (headers, expected)) in [
        (vec![], "normal"),
        (vec![("eclusa-type", "update")], "high"),
        (vec![("eclusa-type", "query")], "normal"),
        (vec![("eclusa-priority", "high")], "high"),
        (vec![("eclusa-priority", "low")], "low"),
        (vec![("eclusa-priority", "low"), ("eclusa-type", "update")], "low"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = proxy.take_in(&cpf(u32::try_from(at).unwrap()), &headers).await;
        assert_eq!(proxy.job(&id).await["priority"], expected, "{headers:?}");
    }
    for (at, (mut job, expected)) in [
        (json!({}), "normal"),
        (json!({ "type": "update" }), "high"),
        (json!({ "priority": "high" }), "high"),
        (json!({ "priority": "low" }), "low"),
    ]
    .into_iter()
    .enumerate()
    {
        job["request"] = json!({ "query": { "cpf": cpf(100 + u32::try_from(at).unwrap()) } });
        let id = proxy.program.enqueue("score", &job).await;
        assert_eq!(proxy.job(&id).await["priority"], expected, "{job}");
    }
}

/// "grava o job com metadados: id, params, priority, createdAt, expiresAt", which is `JOB_TTL_MS` later.
#[tokio::test]
async fn a_job_keeps_its_request_and_expires_after_its_ttl() {
    let proxy = Proxy::start_bare(Answer::status(200), &[]).await;
    proxy.program.pause("score").await;
    let job = json!({ "id": "outbox-7", "type": "update", "params": { "origem": "lote" },
        "request": { "query": { "cpf": CPF } } });
    let id = proxy.program.enqueue("score", &job).await;
    let job = proxy.job(&id).await;
    assert_eq!((&job["id"], &job["jobId"]), (&json!("outbox-7"), &json!(id)));
    assert_eq!((&job["params"], &job["type"]), (&json!({ "origem": "lote" }), &json!("update")));
    assert_eq!((&job["priority"], &job["status"]), (&json!("high"), &json!("queued")));
    assert_eq!(millis(&job["expiresAt"]) - millis(&job["createdAt"]), 10_000);
}

/// The request is sent to `UPSTREAM_URL` unchanged, and its answer is the job's result.
#[tokio::test]
async fn the_bureau_gets_the_query_and_its_answer_is_the_result() {
    let proxy = Proxy::start(score("731"), &[]).await;
    let id = proxy.take_in(CPF, &[]).await;
    let job = proxy.program.finished(&id).await;
    assert_eq!(
        (&job["status"], &job["upstream"], &job["attempts"]),
        (&json!("completed"), &json!("bureau"), &json!(1))
    );
    assert_eq!((&job["result"]["status"], &job["result"]["body"]), (&json!(200), &json!({ "score": 731 })));
    let seen = &proxy.bureau.requests()[0];
    assert_eq!((seen.method.as_str(), seen.query.as_deref()), ("GET", Some("cpf=05227892180")));
    assert_eq!(proxy.jobs_total("processed").await, 1);
}

/// Without `UPSTREAM_URL` there is nowhere to send anything.
#[tokio::test]
async fn the_bureaus_address_must_be_given() {
    let config = std::fs::read_to_string(super::super::program::example("score-proxy.toml")).unwrap();
    let (code, reported) = Program::refused(&tempfile::tempdir().unwrap(), &config, &[]).await;
    assert_eq!(code, Some(6));
    assert!(reported.contains("UPSTREAM_URL") && reported.contains("set the bureau's address"), "{reported}");
}
