//! The DICT example against a DICT that keeps its own counts.

mod antiscan;
mod certificates;
mod reconcile;
mod server;
mod traffic;

use serde_json::json;

use self::server::Dict;
use crate::program::{Answer, PATIENCE, Program};

pub(crate) const PERSON: &str = "12345678901";
pub(crate) const COMPANY: &str = "12ABC34501DE35";

/// A process with the example on `store`, which reconciles at the interval `every`.
async fn start(dict: &Dict, category: &str, store: &str, every: &str) -> Program {
    let env = [
        ("DICT_URL", dict.url()),
        ("DICT_CATEGORY", category),
        ("REDIS_URL", store),
        ("DICT_RECONCILE", every),
    ];
    let program = Program::start_example("dict.toml", &env).await;
    program.until("/readyz", |answer| answer.status == 200).await;
    program
}

/// A process on its own directory, after its first and only reconciliation.
async fn single(dict: &Dict, category: &str) -> Program {
    let program = start(dict, category, "embedded:./data", "1h").await;
    compared(&[&program], 1).await;
    program
}

/// Returns once these processes have reconciled `count` times in total.
async fn compared(programs: &[&Program], times: u64) {
    let enough = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
        loop {
            pace.tick().await;
            let mut sum = 0;
            for program in programs {
                let of = [("upstream", "dict"), ("result", "compared")];
                sum += program.metric("eclusa_reconciliations_total", &of).await;
            }
            if sum >= times {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, enough).await.unwrap();
}

async fn lookup(program: &Program, payer: &str, key: &str, id: &str) -> Answer {
    let headers = [("PI-RequestingParticipant", "12345678"), ("PI-PayerId", payer), ("PI-EndToEndId", id)];
    program.send("GET", &format!("/proxy/dict/entries/{key}"), &headers, "").await
}

/// Pays for a lookup, first at the DICT. Eclusa knows the lookup once its answer has passed.
async fn pay(program: &Program, dict: &Dict, id: &str) {
    dict.paid(id);
    let event = json!({ "event": "payment", "correlationId": id });
    let reported = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(5));
        loop {
            pace.tick().await;
            let answer = program.post("/v1/policies/credits", &event).await;
            match answer.status {
                200 => return,
                404 => {}
                other => panic!("{other}: {}", answer.text()),
            }
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.unwrap();
}

/// Returns once Eclusa's balance equals the DICT's, in whole tokens and up to the refill of a round trip. Both refill at the
/// same rate, so time alone does not make them equal unless they are full.
async fn equal(program: &Program, dict: &Dict, policy: &'static str, payer: &str) {
    let scope = if payer.is_empty() { String::new() } else { format!("?scope={payer}") };
    let same = |answer: &Answer| {
        let ours = answer.json()["availableTokens"].as_f64().unwrap();
        let (theirs, per_second) = dict.tokens(policy, payer);
        ours <= theirs + 0.05 && ours >= theirs - 1.0 - per_second * 0.5
    };
    program.until(&format!("/v1/policies/{policy}{scope}"), same).await;
}
