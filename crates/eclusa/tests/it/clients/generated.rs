//! A well-known generator makes a complete and correctly typed client from the OpenAPI document.

use tokio::process::Command;

use super::{Server, python, succeeds};

#[tokio::test]
async fn a_generated_client_has_every_call_and_correct_types() {
    let (server, folder) = (Server::start().await, tempfile::tempdir().unwrap());
    let document = server.save_document(folder.path()).await;
    let config = folder.path().join("config.yml");
    std::fs::write(
        &config,
        "project_name_override: generated\npackage_name_override: generated\npost_hooks: []\n",
    )
    .unwrap();
    let mut generate = Command::new(python().with_file_name("openapi-python-client"));
    generate
        .arg("generate")
        .arg("--path")
        .arg(&document)
        .arg("--config")
        .arg(&config)
        .current_dir(folder.path());
    succeeds(&mut generate).await;
    let package = folder.path().join("generated/generated");
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(document).unwrap()).unwrap();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, call) in methods.as_object().unwrap() {
            let tag = call["tags"][0].as_str().unwrap().replace('-', "_");
            let name = snake_case(call["operationId"].as_str().unwrap());
            let file = package.join(format!("api/{tag}/{name}.py"));
            assert!(file.exists(), "{method} {path} was left out: no {}", file.display());
        }
    }
    let mut check = Command::new(python());
    check.args(["-m", "mypy", "--cache-dir"]).arg(folder.path().join("cache"));
    check.args(["--ignore-missing-imports", "-p", "generated"]).current_dir(folder.path().join("generated"));
    succeeds(&mut check).await;
}

/// `getUpstreamCodes` as `get_upstream_codes`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}
