//! Generated requests against the real binary: every answer matches the OpenAPI document.

use super::{KEY, Server, python, succeeds};

/// Ids of existing things, so that generated requests get past 404. `/proxy` passes any status on; the other calls
/// may answer 502, 503 and 504 only where the document says so, and none 500.
fn config(job: &str, letter: &str) -> String {
    format!(
        r#"
generation = {{ max-examples = 5, deterministic = true }}
continue-on-failure = true
suppress-health-check = ["all"]
request-timeout = 20.0

[parameters]
"path.lane" = "work"
"path.upstream" = "works"
"path.name" = "works"
"path.policy" = "ALL"
"path.id" = "{job}"

[phases.stateful]
enabled = false

[phases.coverage]
unexpected-methods = []

[checks]
positive_data_acceptance.enabled = false
negative_data_rejection.enabled = false
missing_required_header.enabled = false
unsupported_method.enabled = false
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "502", "503", "504"]

[[operations]]
include-path = "/v1/dead-letters/{{id}}/replay"
parameters = {{ "path.id" = "{letter}" }}

[[operations]]
include-operation-id = ["proxyGet", "proxyPut", "proxyPatch"]
parameters = {{ "path.lane" = "direct" }}
"#
    )
}

/// Event streams are excluded: they would be read to the end. One worker: the tool's caches are not thread-safe.
#[tokio::test]
async fn every_answer_to_generated_requests_is_one_that_the_document_describes() {
    let (server, folder) = (Server::start().await, tempfile::tempdir().unwrap());
    let (job, letter) = (server.failed_job().await, server.failed_job().await);
    let path = folder.path().join("schemathesis.toml");
    std::fs::write(&path, config(&job, &letter)).unwrap();
    let mut run = server.command(python().with_file_name("schemathesis"));
    run.arg("--config-file").arg(&path).arg("run").arg(format!("{}/openapi.json", server.program.url()));
    run.args(["--header", &format!("Authorization: Bearer {KEY}"), "--workers", "1"]);
    let streams = ["/v1/jobs/{id}/events", "/v1/events"];
    streams.iter().for_each(|path| {
        run.args(["--exclude-path", path]);
    });
    run.current_dir(folder.path());
    let output = succeeds(&mut run).await;
    let said = String::from_utf8(output.stdout).unwrap();
    let document = server.program.get("/openapi.json").await.json();
    let paths = document["paths"].as_object().unwrap().values();
    let calls: usize = paths.map(|methods| methods.as_object().unwrap().len()).sum();
    assert!(said.contains(&format!("Tested: {}", calls - streams.len())), "not every call was tried: {said}");
}
