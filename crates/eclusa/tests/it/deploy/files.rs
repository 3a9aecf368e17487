//! The Dockerfile, the compose file, the systemd unit and the Kubernetes manifests agree with the program and with each other.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::file;
use crate::cli::run_with;
use crate::program::Program;

const CONFIG_PATH: &str = "/etc/eclusa/eclusa.toml";
const STATE_PATH: &str = "/var/lib/eclusa";
const PORT: u64 = 8080;
/// `drain`, `shutdown_grace` and what the documentation says for the rest.
const STOP_SECONDS: u64 = 5 + 30 + 25;
/// The file limit that `eclusa doctor` asks for with the defaults.
const OPEN_FILES: u64 = 10_000 + 2 * 256 + 100;

const VALUES: [(&str, &str); 3] = [
    ("ECLUSA_APP_KEY", "0123456789abcdef-app"),
    ("ECLUSA_OPS_KEY", "0123456789abcdef-ops"),
    ("UPSTREAM_URL", "http://127.0.0.1:9"),
];

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap()
}

/// All documents of a YAML file.
fn yaml(name: &str) -> Vec<Value> {
    let script = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))";
    let packages = file("../crates/eclusa/tests/it/deploy/python");
    let mut python = Command::new("python3");
    let read = python.args(["-c", script]).arg(file(name)).env("PYTHONPATH", packages).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    serde_json::from_slice(&read.stdout).unwrap()
}

/// The variables that must be set for deploy/eclusa.toml, and those that may be.
fn variables() -> BTreeSet<String> {
    let config = text("eclusa.toml");
    let names = config.split("${").skip(1).filter_map(|rest| rest.split([':', '}']).next());
    names.map(ToOwned::to_owned).collect()
}

fn seconds(text: &str) -> u64 {
    text.strip_suffix('s').unwrap_or(text).parse().unwrap()
}

/// The line with this prefix, without the prefix.
fn setting<'a>(text: &'a str, name: &str) -> &'a str {
    let found: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(name)).collect();
    let [one] = found[..] else { panic!("{name} exists {} times", found.len()) };
    one
}

#[tokio::test]
async fn the_config_runs_and_has_what_the_other_files_count_on() {
    let path = file("eclusa.toml");
    let checked = run_with(&["check", path.to_str().unwrap()], &VALUES, "").await.ok();
    assert!(
        checked.starts_with(&format!("ok: 1 lane and 1 upstream; listens on 0.0.0.0:{PORT}")),
        "{checked}"
    );
    let config = text("eclusa.toml");
    let time = |name| seconds(setting(&config, name).split('"').nth(1).unwrap());
    assert_eq!(time("drain = ") + time("shutdown_grace = ") + 25, STOP_SECONDS);
    assert!(config.contains(&format!("embedded:{STATE_PATH}/data")));

    let deployment = kinds(&yaml("kubernetes/eclusa.yaml"), "Deployment").remove(0);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let env = [&VALUES[..], &[("ECLUSA_LISTEN", "127.0.0.1:0"), ("ECLUSA_STORE", "memory:")]].concat();
    let program = Program::start(&config, &env).await;
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let probe = &container[probe]["httpGet"];
        assert_eq!(program.get(probe["path"].as_str().unwrap()).await.status, 200, "{probe}");
    }
    let readiness = &container["readinessProbe"];
    let notices =
        readiness["periodSeconds"].as_u64().unwrap() * readiness["failureThreshold"].as_u64().unwrap();
    assert!(notices < time("drain = "), "the drain ends before Kubernetes notices");
}

fn kinds(documents: &[Value], kind: &str) -> Vec<Value> {
    documents.iter().filter(|document| document["kind"] == kind).cloned().collect()
}

#[test]
fn the_kubernetes_manifests_agree_with_the_config_and_with_each_other() {
    let all = yaml("kubernetes/eclusa.yaml");
    let one = |kind| kinds(&all, kind).remove(0);
    let (config, deployment) = (one("ConfigMap"), one("Deployment"));
    assert_eq!(config["data"]["eclusa.toml"], text("eclusa.toml"));
    let pod = &deployment["spec"]["template"];
    let (spec, labels) = (&pod["spec"], &pod["metadata"]["labels"]);
    let container = &spec["containers"][0];
    assert_eq!(container["args"], serde_json::json!(["serve"]));
    assert_eq!(container["ports"][0]["containerPort"], PORT);
    assert_eq!(
        format!("{}/eclusa.toml", container["volumeMounts"][0]["mountPath"].as_str().unwrap()),
        CONFIG_PATH
    );
    assert_eq!(spec["volumes"][0]["configMap"]["name"], config["metadata"]["name"]);
    assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() >= STOP_SECONDS);
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    for name in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[name]["httpGet"]["port"], container["ports"][0]["name"]);
    }
    let budget = one("PodDisruptionBudget");
    for selector in
        [&deployment["spec"]["selector"]["matchLabels"], &budget["spec"]["selector"]["matchLabels"]]
    {
        assert_eq!(selector, labels);
    }
    assert_eq!(&one("Service")["spec"]["selector"], labels);
    assert!(deployment["spec"]["replicas"].as_u64() > budget["spec"]["maxUnavailable"].as_u64());
    // Each variable of the config is in the Deployment, or in the secret that the file says how to make.
    let manifests = text("kubernetes/eclusa.yaml");
    let (said, _) = manifests.split_once("apiVersion").unwrap();
    for name in variables().iter().filter(|name| *name != "ECLUSA_LISTEN") {
        let given = container["env"].as_array().unwrap().iter().any(|env| env["name"] == **name);
        assert!(given || said.contains(&format!("--from-literal={name}=")), "{name}");
    }
}

#[test]
fn the_compose_file_agrees_with_the_config_and_the_image() {
    let compose = yaml("compose/compose.yaml").remove(0);
    let eclusa = &compose["services"]["eclusa"];
    let given: BTreeSet<String> = eclusa["environment"].as_object().unwrap().keys().cloned().collect();
    let mut wanted = variables();
    wanted.remove("ECLUSA_LISTEN");
    assert_eq!(given, wanted);
    assert_eq!(eclusa["command"], serde_json::json!(["serve"]));
    assert!(eclusa["ports"][0].as_str().unwrap().ends_with(&format!(":{PORT}")));
    let path = |value: &Value| file("compose").join(value.as_str().unwrap().split(':').next().unwrap());
    let volume = &eclusa["volumes"][0];
    assert!(volume.as_str().unwrap().ends_with(&format!(":{CONFIG_PATH}:ro")) && path(volume).exists());
    assert!(path(&compose["services"]["redis"]["volumes"][0]).exists());
    let context = file("compose").join(eclusa["build"]["context"].as_str().unwrap());
    assert!(context.join(eclusa["build"]["dockerfile"].as_str().unwrap()).exists());
    assert!(seconds(eclusa["stop_grace_period"].as_str().unwrap()) >= STOP_SECONDS);
    assert_eq!((&eclusa["read_only"], &eclusa["user"]), (&true.into(), &"65532:65532".into()));
    assert!(eclusa["ulimits"]["nofile"].as_u64().unwrap() >= OPEN_FILES);
}

#[test]
fn the_dockerfile_agrees_with_the_config_and_the_toolchain() {
    let docker = text("docker/Dockerfile");
    let toolchain = text("../Cargo.toml");
    let version = setting(&toolchain, "rust-version = ").trim_matches('"');
    assert!(docker.contains(&format!("FROM rust:{version}-")), "{version}");
    assert_eq!(setting(&docker, "ENV ECLUSA_CONFIG="), CONFIG_PATH);
    assert_eq!((setting(&docker, "WORKDIR /var"), setting(&docker, "VOLUME ")), ("/lib/eclusa", STATE_PATH));
    assert_eq!((setting(&docker, "USER "), setting(&docker, "EXPOSE ")), ("65532:65532", "8080"));
    assert_eq!(setting(&docker, "ENTRYPOINT "), r#"["/usr/local/bin/eclusa"]"#);
    assert_eq!(setting(&docker, "CMD "), r#"["serve"]"#);
    // The build needs all parts of the workspace.
    let ignored = text("docker/Dockerfile.dockerignore");
    for needed in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "crates", "bench"] {
        assert!(ignored.lines().any(|line| line == format!("!{needed}")), "{needed}");
    }
}

#[tokio::test]
async fn the_systemd_unit_is_sound_and_starts_the_program() {
    let unit = text("systemd/eclusa.service");
    let start = setting(&unit, "ExecStart=").split_once(' ').unwrap().1;
    assert!(start.ends_with(CONFIG_PATH), "{start}");
    let mut words: Vec<&str> = start.split(' ').collect();
    words.push("--help");
    run_with(&words, &[], "").await.ok();
    assert_eq!(setting(&unit, "WorkingDirectory="), STATE_PATH);
    assert!(setting(&unit, "TimeoutStopSec=").parse::<u64>().unwrap() >= STOP_SECONDS);
    assert!(setting(&unit, "LimitNOFILE=").parse::<u64>().unwrap() >= OPEN_FILES);

    // The unit must name an existing program.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("eclusa.service");
    std::fs::write(&path, unit.replace("/usr/local/bin/eclusa", env!("CARGO_BIN_EXE_eclusa"))).unwrap();
    let analyze = |arguments: &[&str]| {
        let ran = Command::new("systemd-analyze").args(arguments).arg(&path).output().unwrap();
        let said = [ran.stdout, ran.stderr].concat();
        (ran.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    assert_eq!(analyze(&["verify"]), (true, String::new()));
    let (safe, said) = analyze(&["security", "--offline=yes", "--threshold=20"]);
    assert!(safe, "{said}");
}
