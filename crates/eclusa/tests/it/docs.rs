//! The documentation matches the program: its lists are compared with those of the real binary.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use eclusa::config::Config;
use eclusa::fake::{Answer, FakeUpstream};
use eclusa_core::gate::Reason;

use super::program::Program;

/// The environment variables of the documentation's examples.
const ENV: [(&str, &str); 5] = [
    ("SHOP_KEY", "shop-0123456789abcdef"),
    ("GRAFANA_KEY", "graf-0123456789abcdef"),
    ("SMTP_PASSWORD", "smtp-0123456789abcdef"),
    ("AWS_ACCESS_KEY_ID", "AKIDDOCS"),
    ("AWS_SECRET_ACCESS_KEY", "docs"),
];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(docs().join(name)).unwrap()
}

/// All pages with their text.
fn pages() -> Vec<(PathBuf, String)> {
    let mut folders = vec![docs()];
    let mut pages = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let text = std::fs::read_to_string(&path).unwrap();
                pages.push((path, text));
            }
        }
    }
    assert!(pages.len() > 10, "{pages:?}");
    pages
}

/// The first cells of the tables of a page below the heading `section`, or of all its tables, without the quotes.
fn first_cells(page: &str, section: Option<&str>) -> BTreeSet<String> {
    let heading = section.map(|section| format!("\n## {section}\n"));
    let part = heading.map_or(page, |heading| page.split_once(heading.as_str()).unwrap().1);
    let part = if section.is_some() { part.split("\n## ").next().unwrap() } else { part };
    let cells = part.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    cells.map(|(cell, _)| cell.to_owned()).collect()
}

#[tokio::test]
async fn every_call_of_the_api_is_described_and_no_other() {
    let program =
        Program::start("[lanes.work]\nchain = [\"up\"]\n[upstreams.up]\nurl = \"http://127.0.0.1:9\"\n", &[])
            .await;
    let api = program.get("/openapi.json").await.json();
    let mut calls = BTreeSet::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            // The proxy accepts every method, which OpenAPI cannot express.
            let method = if path.starts_with("/proxy/") { "ANY".to_owned() } else { method.to_uppercase() };
            calls.insert(format!("{method} {path}"));
        }
    }
    for page in ["/", "/openapi.json", "/docs"] {
        assert_eq!(program.get(page).await.status, 200, "{page}");
        calls.insert(format!("GET {page}"));
    }
    assert_eq!(first_cells(&page("reference/api.md"), Some("Calls")), calls);
}

/// Causes an event for every metric that needs one: jobs fail, wait for the breaker and are retried, one of two dead letters
/// is trimmed, and a balance is corrected.
#[tokio::test]
async fn every_metric_is_described_and_no_other() {
    let upstream = FakeUpstream::start(Answer::status(503)).await.unwrap();
    let balances = r#"{"policies":[{"name":"OTHER","availableTokens":1}]}"#;
    let reported = FakeUpstream::start(Answer::status(200).body(balances)).await.unwrap();
    let config = format!(
        "[lanes.work]\nchain = [\"up\"]\nretry = {{ attempts = 2, base = \"1ms\" }}\ndead_letters = {{ max = 1 }}\n\
         [lanes.fast]\nmode = \"direct\"\nchain = [\"up\"]\n[upstreams.up]\nurl = \"{}\"\nbreaker = {{ failures = 1, open_for = \"500ms\" }}\n\
         [[upstreams.up.policies]]\nname = \"ALL\"\ncapacity = 10\nrefill = \"1/s\"\n\
         [upstreams.other]\nurl = \"{}\"\nreconcile = {{ path = \"/\", every = \"1h\", format = \"json\" }}\npace = {{ adaptive = true }}\n\
         [[upstreams.other.policies]]\nname = \"OTHER\"\ncapacity = 10\nrefill = \"1/s\"\n",
        upstream.url(),
        reported.url()
    );
    let program = Program::start(&config, &[]).await;
    for _ in 0..2 {
        let job = program.enqueue("work", &serde_json::json!({ "request": {} })).await;
        assert_eq!(program.finished(&job).await["status"], "failed");
    }
    program.logged("Dead letter removed", &[("reason", "max")]).await;
    program.logged("Balance differs from the upstream's count", &[("policy", "OTHER")]).await;
    program.get("/proxy/fast/a").await;
    program.logged("Alert fires", &[("alert", "breaker_open")]).await;
    let metrics = program.get("/metrics").await;
    let types = metrics.text().lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let names: BTreeSet<String> = types.map(|(name, _)| name.to_owned()).collect();
    assert_eq!(first_cells(&page("reference/metrics.md"), None), names);
    for help in metrics.text().lines().filter(|line| line.starts_with("# HELP ")) {
        assert!(help.ends_with('.') && !help.ends_with(".."), "one full stop: {help}");
    }
}

#[test]
fn every_reason_to_wait_is_described_and_no_other() {
    let words: BTreeSet<String> = Reason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    assert_eq!(first_cells(&page("reference/wait-reasons.md"), Some("Reasons")), words);
}

/// Blocks marked `toml` are valid configs; others are marked `toml fragment`.
#[test]
fn every_config_of_the_documentation_is_valid() {
    let env = |name: &str| ENV.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ops.key"), "ops-0123456789abcdef\n").unwrap();
    let made = rcgen::generate_simple_self_signed(["gw.example".to_owned()]).unwrap();
    std::fs::write(folder.path().join("server.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("server.key"), made.signing_key.serialize_pem()).unwrap();
    let name = folder.path().join("eclusa.toml").display().to_string();
    let mut checked = 0;
    for (path, text) in pages() {
        for block in text.split("\n```toml\n").skip(1) {
            let block = block.split("\n```").next().unwrap();
            let config = Config::parse(&name, block, &env);
            assert!(config.is_ok(), "{}: {}\n{block}", path.display(), config.err().unwrap());
            checked += 1;
        }
    }
    assert!(checked > 5, "{checked}");
}

/// Links between pages are valid.
#[test]
fn every_link_between_pages_leads_to_a_file() {
    for (path, text) in pages() {
        for link in text.split("](").skip(1).map(|rest| rest.split([')', '#']).next().unwrap()) {
            if link.is_empty() || link.contains("://") {
                continue;
            }
            assert!(path.parent().unwrap().join(link).exists(), "{}: {link}", path.display());
        }
    }
}

/// The outputs in console blocks, each with its command.
fn outputs(page: &str) -> Vec<(String, String)> {
    let blocks = page.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let commands = blocks.flat_map(|block| block.split("$ ").skip(1));
    commands.filter_map(|text| text.split_once('\n')).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

/// A search and replace has damaged it before.
#[test]
fn jobs_are_shown_with_the_heading_of_their_timeline() {
    let mut seen = 0;
    for (path, text) in pages() {
        for (command, output) in outputs(&text) {
            let shows = ["get", "wait", "cancel"].map(|verb| format!("eclusa jobs {verb} "));
            if !shows.iter().any(|shows| command.starts_with(shows)) || !output.contains("\ntimeline\n") {
                continue;
            }
            let heading = output.split_once("\ntimeline\n").unwrap().1.lines().next().unwrap();
            let words: Vec<&str> = heading.split_whitespace().collect();
            assert_eq!(words, ["AT", "EVENT", "DETAIL"], "{}: {command}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 3, "{seen}");
}

/// Package registries show these pages without the repository around them.
#[test]
fn the_readmes_of_the_clients_link_to_nothing_outside_their_package() {
    for client in ["typescript", "python"] {
        let readme = page(&format!("../clients/{client}/README.md"));
        let links = readme.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        for link in links {
            assert!(link.starts_with("https://") || link.starts_with('#'), "{client}: {link}");
        }
    }
}
