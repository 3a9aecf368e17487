//! Limits by scope: in direct lanes, in queues, for external workers, and how they are reported.

mod acquire;
mod balances;
mod cli;
mod credits;
mod direct;
mod example;
mod llm;
mod queue;
mod shared;
mod usage;

use serde_json::Value;

use super::program::{Answer, Program};

/// The anti-scan policies of the DICT and one for its lists, with a refill so slow that balances do not change. A lookup
/// holds its worst cost.
pub(crate) const DICT: &str = r#"
[[upstreams.dict.policies]]
name = "USER"
match = { method = ["GET"], path = "/entries/{key}" }
scope = "header:PI-PayerId"
classes = [
  { name = "PF", scope = '^\d{11}$', capacity = 100, refill = "20/day", credit = { payment = 1 } },
  { name = "PJ", scope = '^[0-9A-Z]{12}\d{2}$', capacity = 1000, refill = "200/day", credit = { payment = 2 } },
]
cost = { "200" = 1, "404" = 20, default = 0 }
hold = "worst"
correlation = "header:PI-EndToEndId"
[[upstreams.dict.policies]]
name = "PSP"
match = { method = ["GET"], path = "/entries/{key}" }
class = "E"
classes = [{ name = "E", capacity = 5000, refill = "250/day" }, { name = "H", capacity = 50, refill = "2/min" }]
cost = { "200" = 1, "404" = 3, default = 0 }
hold = "worst"
credit = { payment = 1 }
correlation = "header:PI-EndToEndId"
[[upstreams.dict.policies]]
name = "LISTS"
match = { path = "/claims" }
capacity = 20
refill = "6/day"
cost = { "500" = 0, default = 1 }
"#;

pub(crate) const PERSON: &str = "12345678901";
pub(crate) const COMPANY: &str = "12ABC34501DE35";

/// A direct lane `fast` and a queue `slow` over one upstream, `dict`, with these policies.
pub(crate) async fn start(url: &str, policies: &str) -> Program {
    let config = format!(
        "[workers]\nlease = \"10m\"\n[lanes.fast]\nmode = \"direct\"\nchain = [\"dict\"]\n\
         [lanes.slow]\nchain = [\"dict\"]\nretry = {{ attempts = 1 }}\n\
         [upstreams.dict]\nurl = \"{url}\"\n{policies}\n"
    );
    Program::start(&config, &[]).await
}

/// A lookup of `payer` through the direct lane.
pub(crate) async fn lookup(program: &Program, payer: &str, id: &str) -> Answer {
    let headers = [("PI-PayerId", payer), ("PI-EndToEndId", id)];
    program.send("GET", "/proxy/fast/entries/a@b.c", &headers, "").await
}

pub(crate) async fn balance(program: &Program, policy: &str, scope: &str) -> Value {
    let scope = if scope.is_empty() { String::new() } else { format!("?scope={scope}") };
    let answer = program.get(&format!("/v1/policies/{policy}{scope}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["availableTokens"].clone()
}

/// Returns once a policy has this many tokens: calls are settled after their answer has passed.
pub(crate) async fn settles_to(program: &Program, policy: &str, scope: &str, tokens: i64) {
    let scope = if scope.is_empty() { String::new() } else { format!("?scope={scope}") };
    let path = format!("/v1/policies/{policy}{scope}");
    let reached = |answer: &Answer| answer.json()["availableTokens"] == tokens;
    program.until(&path, reached).await;
}

/// No file and no log line may contain this.
pub(crate) fn is_nowhere(program: &Program, secret: &str) {
    let log = format!("{:?}", program.log());
    assert!(!log.contains(secret), "{log}");
}
