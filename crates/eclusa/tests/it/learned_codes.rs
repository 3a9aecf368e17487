//! The results of retries by code, from real calls to the proposed lists.

use eclusa::fake::{Answer, Behaviour, FakeUpstream};
use serde_json::json;

use super::program::{Program, eclusa};

#[tokio::test]
async fn codes_that_a_retry_cures_or_never_cures_are_proposed_for_the_config() {
    // 520 succeeds on the second call, 521 never does.
    let calls = std::sync::Mutex::new(std::collections::BTreeMap::<String, u32>::new());
    let upstream = FakeUpstream::start(Behaviour::by(move |seen| {
        let path = seen.path.clone();
        let mut calls = calls.lock().unwrap();
        let number = calls.entry(path.clone()).or_default();
        *number += 1;
        match (path.starts_with("/cured"), *number) {
            (true, 1) => Answer::status(520),
            (true, _) => Answer::status(200),
            _ => Answer::status(521),
        }
    }))
    .await
    .unwrap();
    let config = format!(
        "[lanes.work]\nchain = [\"crm\"]\nretry = {{ attempts = 2, base = \"1ms\" }}\n[upstreams.crm]\nurl = \"{}\"\n\
         permanent = [\"404\"]\n",
        upstream.url()
    );
    let program = Program::start(&config, &[]).await;
    let mut jobs = Vec::new();
    for number in 0..20 {
        for kind in ["cured", "hopeless"] {
            let request = json!({ "request": { "path": format!("/{kind}/{number}") } });
            jobs.push(program.enqueue("work", &request).await);
        }
    }
    for job in &jobs {
        program.finished(job).await;
    }
    let reported = program.get("/v1/upstreams/crm/codes").await.json();
    assert_eq!(
        (&reported["retryable"], &reported["permanent"]),
        (&json!(["520"]), &json!(["404", "521"])),
        "{reported}"
    );
    let codes = reported["codes"].as_array().unwrap();
    let of = |code: &str| codes.iter().find(|one| one["code"] == code).unwrap();
    assert_eq!(
        (&of("520")["seen"], &of("520")["cured"], &of("520")["cureShare"]),
        (&json!(20), &json!(20), &json!(1.0))
    );
    let hopeless = of("521");
    assert_eq!(
        (&hopeless["seen"], &hopeless["failedAgain"], &hopeless["notRetried"]),
        (&json!(40), &json!(20), &json!(20))
    );
    let shown = eclusa().args(["upstreams", "codes", "--url", &program.url()]).output().await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("\n[upstreams.crm]\nretryable = [\"520\"]\npermanent = [\"404\", \"521\"]\n"),
        "{shown}"
    );
    assert_eq!(program.get("/v1/upstreams/nobody/codes").await.status, 404);
}
